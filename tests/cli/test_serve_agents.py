"""A daemon with several agents: on a real IRC server, over HTTP, through a stop, a restart and a reload."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest

import nacre as library
from tests.channels.irc_peers import person
from tests.channels.servers import Server, ngircd
from tests.cli.conftest import Nacre
from tests.cli.daemons import PROGRAM, Daemon, Models, configure, daemon, environment


@pytest.fixture
def models() -> Iterator[Models]:
    with Models(("main", "clerk")) as made:
        yield made


def usual(models: Models, more: str = "") -> str:
    return f"""
        [memory]
        enabled = false
        [ollama]
        host = "{models.host("main")}"
        [agents.clerk.ollama]
        host = "{models.host("clerk")}"
        {more}
    """


def said(root: Path, key: str) -> list[Any]:
    with library.open(root) as sessions:
        return [message.content for message in sessions.get_history(key)]


def asked(running: Daemon, model: str, text: str, **fields: Any) -> str:
    body = {"model": model, "messages": [{"role": "user", "content": text}], **fields}
    answer = running.client.post("v1/chat/completions", json=body)
    assert answer.status_code == 200, answer.text
    return str(answer.json()["choices"][0]["message"]["content"])


@pytest.fixture
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with ngircd(tmp_path_factory.mktemp("ngircd")).running() as made:
        yield made


def on_irc(models: Models, port: int) -> str:
    place = f'host = "127.0.0.1"\nport = {port}\ntls = false'
    main, clerk = (
        f'[channels.{name}]\n{place}\nnick = "{nick}"' for name, nick in (("irc", "perla"), ("den", "clara"))
    )
    return usual(models, f'{main}\n{clerk}\nkind = "irc"\nagent = "clerk"')


def test_a_turn_that_hangs_does_not_keep_the_daemon_and_the_next_start_finishes_it(
    models: Models, server: Server, tmp_path: Path
) -> None:
    configure(tmp_path, on_irc(models, server.port))
    took: list[float] = []

    async def first(running: Daemon) -> None:
        async with person("Bob", server.port) as bob:
            await bob.meets("perla")
            await bob.meets("clara")
            bob.say("perla", "pearl")
            assert await bob.hears() == ["main heard pearl"]
            bob.say("clara", "oyster")
            assert await bob.hears() == ["clerk heard oyster"]
            await anyio.to_thread.run_sync(models.asked, "clerk")
            bob.say("clara", "held")
            await anyio.to_thread.run_sync(models.asked, "clerk")
            took.append(await anyio.to_thread.run_sync(running.ends, signal.SIGTERM))

    async def second() -> None:
        async with person("Bob", server.port) as bob:
            await bob.meets("clara")
            models.call(models.voices["clerk"].opened.set)
            assert await bob.hears() == ["clerk heard held"]

    with daemon(tmp_path) as running:
        anyio.run(first, running)
        assert (running.process.returncode, took[0] < 10) == (0, True)
    mine, theirs = "irc:perla@127.0.0.1:bob::bob", "den:clara@127.0.0.1:bob::bob"
    assert said(tmp_path / "store" / "agents" / "clerk", theirs) == ["oyster", "clerk heard oyster", "held"]
    with daemon(tmp_path):
        anyio.run(second)
    clerk = tmp_path / "store" / "agents" / "clerk"
    assert said(clerk, theirs) == ["oyster", "clerk heard oyster", "held", "clerk heard held"]
    assert said(tmp_path / "store", mine) == ["pearl", "main heard pearl"]
    assert (said(clerk, mine), said(tmp_path / "store", theirs)) == ([], [])


HANGING = """
import asyncio, pathlib, time

def look():
    if pathlib.Path("hang").exists():
        pathlib.Path("hangs").touch()
        time.sleep(60)
    asyncio.get_running_loop().call_later(0.05, look)

look()
"""


def test_nothing_keeps_it_from_ending_in_time(models: Models, tmp_path: Path) -> None:
    configure(tmp_path, usual(models))
    tools = tmp_path / "store" / "home" / "tools"
    tools.mkdir(parents=True)
    (tools / "hanging.py").write_text(HANGING)
    with daemon(tmp_path) as running:
        (tmp_path / "hang").touch()
        while not (tmp_path / "hangs").exists():
            os.sched_yield()
        assert running.ends(signal.SIGTERM) < 10
        assert running.process.returncode == -signal.SIGALRM


def test_a_second_signal_ends_it_at_once(models: Models, tmp_path: Path) -> None:
    configure(tmp_path, usual(models))
    body = {"content": "held", "stream": True}
    with daemon(tmp_path) as running, running.client.stream("POST", "api/sessions/k/messages", json=body):
        models.asked("main")
        running.process.send_signal(signal.SIGTERM)
        running.logs("shutting down")
        assert running.ends(signal.SIGTERM) < 5
        assert running.process.returncode == -signal.SIGTERM
    assert said(tmp_path / "store", "k") == ["held"]


def test_an_agent_is_a_model_and_has_its_own_address(models: Models, tmp_path: Path) -> None:
    configure(tmp_path, usual(models))
    with daemon(tmp_path) as running:
        names = [one["id"] for one in running.client.get("v1/models").json()["data"]]
        assert names == ["nacre", "gemma4:e4b", "ollama/gemma4:e4b", "clerk"]
        assert asked(running, "nacre", "pearl", session_id="s") == "main heard pearl"
        assert asked(running, "clerk", "oyster", session_id="s") == "clerk heard oyster"
        below = running.client.get("agents/clerk/v1/models").json()["data"]
        assert [one["id"] for one in below] == ["nacre", "gemma4:e4b", "ollama/gemma4:e4b"]
        for place, heard in (("", "pearl"), ("agents/clerk/", "oyster")):
            found = running.client.get(f"{place}api/sessions/api::s::").json()
            assert [one["message"]["content"] for one in found["items"]][:1] == [heard]
            assert running.client.get(f"{place}api/search", params={"q": "oyster"}).json()["items"] == [] or place
        assert running.client.get("agents/nobody/api/sessions").status_code == 404
        assert running.client.get("agents/clerk/api/sessions", headers={"authorization": ""}).status_code == 401
    assert said(tmp_path / "store", "api::s::") == ["pearl", "main heard pearl"]
    assert said(tmp_path / "store" / "agents" / "clerk", "api::s::") == ["oyster", "clerk heard oyster"]


def test_the_page_of_an_agent_leads_to_its_own_pages(models: Models, tmp_path: Path) -> None:
    configure(tmp_path, usual(models))
    with daemon(tmp_path) as running:
        asked(running, "clerk", "oyster", session_id="s")
        page = running.client.get("agents/clerk/", headers={"accept": "text/html"})
        assert "/agents/clerk/s/api::s::" in page.text
        assert "oyster" in running.client.get("agents/clerk/s/api::s::").text
        assert '<a href="/">main</a> <a href="/agents/clerk/" aria-current="page">clerk</a>' in page.text
        assert "/agents/clerk/s/api::s::" not in running.client.get("").text
        stranger = running.client.get("agents/clerk/", headers={"authorization": "", "accept": "text/html"})
        assert stranger.status_code in {303, 401}


# ---- reload


def test_a_reload_brings_an_agent_and_takes_one_and_the_port_stays_open(models: Models, tmp_path: Path) -> None:
    configure(tmp_path, usual(models))
    with daemon(tmp_path) as running:
        with running.client.stream("POST", "api/sessions/k/messages", json={"content": "held", "stream": True}) as held:
            models.asked("main")
            configure(tmp_path, usual(models).replace("agents.clerk", "agents.scribe"))
            running.process.send_signal(signal.SIGHUP)
            assert running.logs("configuration reloaded")["changed"] == "clerk, scribe"
            assert asked(running, "scribe", "hi") == "clerk heard hi"
            assert running.client.get("agents/clerk/api/sessions").status_code == 404
            models.call(models.voices["main"].opened.set)
            assert "main heard held" in "".join(held.iter_text())
        configure(tmp_path, "[agent]\nmodle = 1")
        running.process.send_signal(signal.SIGHUP)
        assert "did you mean agent.model?" in running.logs("the configuration is not valid")["reason"]
        assert asked(running, "scribe", "hi") == "clerk heard hi"


def test_an_agent_that_ends_for_its_new_settings_asks_for_patience(models: Models, tmp_path: Path) -> None:
    configure(tmp_path, usual(models))
    body = {"content": "held", "stream": True}
    with daemon(tmp_path) as running:
        with running.client.stream("POST", "agents/clerk/api/sessions/k/messages", json=body) as held:
            models.asked("clerk")
            configure(tmp_path, usual(models, "[agents.clerk.web]\nallow = 'here'"))
            running.process.send_signal(signal.SIGHUP)
            while (found := running.client.get("agents/clerk/api/sessions")).status_code == 200:
                continue
            assert (found.status_code, found.headers["retry-after"]) == (429, "1")
            assert running.client.get("api/sessions").status_code == 200
            models.call(models.voices["clerk"].opened.set)
            assert "clerk heard held" in "".join(held.iter_text())
        assert running.logs("configuration reloaded")["changed"] == "clerk"
        assert running.client.get("agents/clerk/api/sessions/k").status_code == 200


# ---- systemd


def test_systemd_is_told_how_it_is(models: Models, tmp_path: Path) -> None:
    configure(tmp_path, usual(models))
    address = f"\0nacre-test-{tmp_path.name}-{id(models)}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as wire:
        wire.bind(address)
        wire.settimeout(20)
        with daemon(tmp_path, NOTIFY_SOCKET=f"@{address[1:]}") as running:
            assert wire.recv(1000) == b"READY=1"
            running.process.send_signal(signal.SIGHUP)
            assert wire.recv(1000).startswith(b"RELOADING=1\nMONOTONIC_USEC=")
            assert wire.recv(1000) == b"READY=1"
            running.ends(signal.SIGTERM)
            assert wire.recv(1000) == b"STOPPING=1"


def test_systemd_takes_the_unit(nacre: Nacre, tmp_path: Path) -> None:
    printed = nacre("serve", "--unit", "--port", "9000", "--store", str(tmp_path / "a b%c"))
    assert f'--port 9000 --store "{tmp_path}/a b%%c"' in printed.out
    unit = tmp_path / "nacre.service"
    unit.write_text(printed.out)
    try:
        command = ["systemd-analyze", "verify", "--user", str(unit)]
        done = subprocess.run(
            command, env={"XDG_RUNTIME_DIR": str(tmp_path)}, capture_output=True, text=True, check=False
        )
    except FileNotFoundError:
        pytest.skip("systemd-analyze is not there")
    assert (done.returncode, done.stderr) == (0, "")


# ---- would it start?


def checked(room: Path, *words: str, **variables: str) -> tuple[int, dict[str, str]]:
    command = [*PROGRAM, "serve", "--check", "--port", "0", "--json", *words]
    done = subprocess.run(command, env={**environment(room), **variables}, capture_output=True, text=True, check=False)
    return done.returncode, {check["name"]: check["status"] for check in json.loads(done.stdout)["checks"]}


def test_a_check_looks_at_every_part_and_changes_nothing(models: Models, tmp_path: Path) -> None:
    configure(tmp_path, usual(models, '[channels.irc]\nhost = "127.0.0.1"'))
    code, found = checked(tmp_path)
    parts = ["address", "token", "extras", "config", "store", "workspace", "irc", "model"]
    assert code == 0
    found = {name: status for name, status in found.items() if not name.endswith("sandbox")}
    assert found == dict.fromkeys([*parts, *(f"clerk: {part}" for part in ("store", "workspace", "model"))], "ok")
    assert not (tmp_path / "store").exists()
    assert [path for voice in models.voices.values() for path, _ in voice.requests if path == "/api/chat"] == []


@pytest.mark.parametrize(
    ("config", "words", "code", "failing"),
    [
        ("[agent]\nmodle = 1", (), 2, ["config"]),
        ('[channels.telegram]\nkind = "telegram"', (), 2, ["telegram", "model"]),
        ("", (), 1, ["model"]),
        ("", ("--host", "192.0.2.1"), 2, ["address", "token", "model"]),
        ('[agent]\nprovider = "openai"\nmodel = "m"\n[openai]\nbase_url = "http://127.0.0.1:9"', (), 1, ["model"]),
    ],
)
def test_a_check_says_what_is_wrong(
    tmp_path: Path, config: str, words: tuple[str, ...], code: int, failing: list[str]
) -> None:
    configure(tmp_path, config)
    found = checked(
        tmp_path,
        *words,
        NACRE_SERVE_TOKEN="",
        NACRE_OLLAMA_HOST="http://127.0.0.1:9",
        NACRE_AGENT_PROVIDER=_who(config),
    )
    assert (found[0], [name for name, status in found[1].items() if status == "fail"]) == (code, failing)


def _who(config: str) -> str:
    return "openai" if "openai" in config else "ollama"


# ---- the command line


def test_one_talks_to_an_agent_by_its_name(models: Models, tmp_path: Path) -> None:
    configure(tmp_path, usual(models))
    command = [*PROGRAM, "chat", "--agent", "clerk", "hello"]
    options: dict[str, Any] = {"env": environment(tmp_path), "stdin": subprocess.DEVNULL, "capture_output": True}
    done = subprocess.run(command, text=True, check=False, **options)
    assert done.stdout == "clerk heard hello\n"
    assert not (tmp_path / "store" / "sessions").exists()
    command[3] = "nobody"
    assert subprocess.run(command, text=True, check=False, **options).returncode == 2


def test_the_sessions_of_an_agent_are_looked_at_by_its_name(nacre: Nacre) -> None:
    nacre.fill("mine")
    with library.open(nacre.root / "agents" / "clerk") as sessions:
        sessions.add_message("theirs", "user", "oyster")
    assert [item["key"] for item in nacre("s", "list", "--json").json["items"]] == ["mine"]
    assert [item["key"] for item in nacre("s", "list", "--json", "--agent", "clerk").json["items"]] == ["theirs"]
    assert nacre("s", "show", "theirs", "--agent=clerk").code == 0
    assert nacre("s", "list", "--agent", "nobody").code == 3
    assert nacre("serve", "--agent", "clerk").code == 2


@pytest.mark.parametrize("words", [("doctor",), ("s", "verify"), ("s", "gc"), ("s", "du"), ("s", "verify", "--deep")])
def test_a_store_that_holds_agents_is_sound(nacre: Nacre, words: tuple[str, ...]) -> None:
    nacre.fill("mine")
    with library.open(nacre.root / "agents" / "clerk") as sessions:
        sessions.add_message("theirs", "user", "oyster")
    found = nacre(*words)
    assert (found.code, f"{nacre.root}/agents" in found.out, "warn" in found.out) == (0, False, False)
    with library.open(nacre.root / "agents" / "clerk") as sessions:
        assert sessions.exists("theirs")
