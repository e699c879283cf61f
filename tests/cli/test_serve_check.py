"""`nacre serve --check` of a store that is served: it says how the daemon is, and what a restart would find."""

from __future__ import annotations

import json
import os
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from nacre.cli.commands import serve_check
from tests.cli.daemons import PROGRAM, TOKEN, Models, configure, daemon, environment

Checks = dict[str, tuple[str, str]]


@pytest.fixture(scope="module")
def models() -> Iterator[Models]:
    with Models(("main",)) as found:
        yield found


@pytest.fixture
def room(models: Models, tmp_path: Path) -> Path:
    configure(tmp_path, settings(models))
    return tmp_path


def settings(models: Models, more: str = "") -> str:
    return f'[memory]\nenabled = false\n[ollama]\nhost = "{models.host("main")}"\n{more}'


def checked(room: Path, *words: str, **variables: str) -> tuple[int, Checks]:
    command = [*PROGRAM, "serve", "--check", "--json", *words]
    done = subprocess.run(command, env={**environment(room), **variables}, capture_output=True, text=True, check=False)
    found = json.loads(done.stdout)["checks"]
    return done.returncode, {check["name"]: (check["status"], check["detail"]) for check in found}


def port_of(url: str) -> str:
    return str(urlsplit(url).port)


def test_a_daemon_that_runs_and_is_ready_is_told_with_its_address(room: Path) -> None:
    with daemon(room) as served:
        code, found = checked(room, "--port", port_of(served.url))
        where = f"127.0.0.1, port {port_of(served.url)}"
        pid = served.process.pid
        assert found["daemon"] == ("ok", f"process {pid} serves this store at {where}, and is ready")
        assert found["address"] == ("ok", f"{where}: the daemon listens there")
        assert (code, {status for status, _ in found.values()} <= {"ok", "warn"}) == (0, True)


def test_with_other_options_it_is_found_all_the_same(room: Path) -> None:
    with daemon(room) as served:
        code, found = checked(room, "--port", "0")
        assert (code, found["daemon"][1].endswith(f"port {port_of(served.url)}, and is ready")) == (0, True)
        assert found["address"] == ("ok", "127.0.0.1, port 0")


def test_a_daemon_that_is_not_ready_is_told_with_the_reasons(models: Models, room: Path) -> None:
    configure(room, settings(models, '[channels.irc]\nhost = "127.0.0.1"\nport = 9\ntls = false\nnick = "n"\n'))
    with daemon(room):
        code, found = checked(room, "--port", "0")
        assert (code, found["daemon"][0]) == (1, "fail")
        assert found["daemon"][1].endswith("it is not ready: channels\nchannel 'irc' is down")
        _, stranger = checked(room, "--port", "0", NACRE_SERVE_TOKEN="")
        assert stranger["daemon"][1].endswith("it is not ready: channels")


def test_another_token_than_the_daemon_s_is_told(room: Path) -> None:
    with daemon(room):
        code, found = checked(room, "--port", "0", NACRE_SERVE_TOKEN=TOKEN[::-1])
        assert (code, found["daemon"][0], "another token" in found["daemon"][1]) == (0, "warn", True)


def test_an_agent_that_the_daemon_does_not_know_yet_is_named(models: Models, room: Path) -> None:
    with daemon(room):
        configure(room, settings(models, "[agents.clerk]\n[agents.scribe]\n"))
        code, found = checked(room, "--port", "0")
        assert (code, found["agents"][0], found["agents"][1].endswith(": clerk, scribe")) == (0, "warn", True)


def test_a_port_that_somebody_else_has_is_told_with_who(room: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    other = tmp_path_factory.mktemp("other")
    configure(other, (room / "config" / "nacre" / "config.toml").read_text())
    with daemon(other) as served:
        code, found = checked(room, "--port", port_of(served.url))
        where = f"127.0.0.1, port {port_of(served.url)}"
        assert (code, found["address"]) == (1, ("fail", f"{where} is in use by a daemon with another store"))
        assert "daemon" not in found


@pytest.fixture
def mute() -> Iterator[int]:
    """A port at which somebody listens and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as found:
        yield found.getsockname()[1]


def test_one_that_says_nothing_is_not_waited_for_for_ever(mute: int) -> None:
    assert serve_check.ask(("127.0.0.1", mute), "", timeout=0.1) is None


def test_a_process_listens_where_its_sockets_are(mute: int) -> None:
    with socket.create_server(("::1", 0), family=socket.AF_INET6) as other:
        found = serve_check.listens_at(os.getpid())
        assert {("127.0.0.1", mute), ("::1", other.getsockname()[1])} <= set(found)
    assert serve_check.listens_at(-1) == []
