"""A store that cannot be used, from the command line: the agent goes on, says so, and loses nothing."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import nacre
from tests.cli.daemons import PROGRAM, Models, configure, daemon, environment


@pytest.fixture
def room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    with Models(("main",)) as models:
        configure(tmp_path, f'[ollama]\nhost = "{models.host("main")}"')
        yield tmp_path


def run(room: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*PROGRAM, *words], env=environment(room), cwd=room, capture_output=True, text=True, check=False, timeout=120
    )


def sessions_in(room: Path) -> dict[str, list[str]]:
    """Every session of the store, and what was said in it."""
    with nacre.open(room / "store") as sessions:
        keys = [info.key for info in sessions.list()]
        return {key: [str(message.content) for message in sessions.get_history(key)] for key in keys}


@pytest.fixture(params=["a file is the store", "a file is its folder", "a read-only disk"])
def broken(request: pytest.FixtureRequest, room: Path) -> Iterator[Any]:
    """Breaks the store in one of several ways; what it gives puts it right."""
    store = room / "store"
    if request.param == "a read-only disk":
        store.mkdir()
        done = subprocess.run(["mount", "-t", "tmpfs", "tmpfs", str(store)], capture_output=True, check=False)
        if done.returncode:
            pytest.skip("nothing can be mounted here")
        store.chmod(0o700)
        try:
            assert run(room, "chat", "before").returncode == 0
            subprocess.run(["mount", "-o", "remount,ro", str(store)], check=True)
            yield lambda: subprocess.run(["mount", "-o", "remount,rw", str(store)], check=True)
        finally:
            subprocess.run(["umount", str(store)], check=True)
        return
    file = store if request.param == "a file is the store" else store / "sessions"
    file.parent.mkdir(exist_ok=True)
    file.write_text("x")
    yield file.unlink


def test_chat_goes_on_without_the_store_and_the_next_one_brings_all_into_it(room: Path, broken: Any) -> None:
    first = run(room, "chat", "one")
    assert (first.returncode, first.stdout) == (0, "main heard one\n")
    assert "THE STORE CANNOT BE USED" in first.stderr
    assert f"JSON documents in {room}/state/nacre/standby/" in first.stderr
    assert first.stderr.lower().count("the store cannot be used") == 1
    told = run(room, "doctor", "--json")
    checks = [(check["name"], check["status"]) for check in json.loads(told.stdout)["checks"]]
    assert ("standby", "warn") in checks
    assert {("store", "fail"), ("writing", "fail")} & set(checks)
    assert [name for name, _ in checks].count("store") == 1
    broken()
    second = run(room, "chat", "two")
    assert (second.returncode, "CANNOT BE USED" in second.stderr) == (0, False)
    assert "2 messages that were written while the store could not be used are in it now" in second.stderr
    said = sorted(sessions_in(room).values())
    assert [texts for texts in said if texts[0] != "before"] == [["one", "main heard one"], ["two", "main heard two"]]
    assert not list((room / "state").rglob("*.json*"))


def test_a_chat_that_began_without_the_store_can_be_resumed_there_and_in_it(room: Path, broken: Any) -> None:
    assert run(room, "chat", "one").returncode == 0
    place = next((room / "state").rglob("chat-*.json"))
    key = json.loads(place.read_text())["key"]
    assert run(room, "chat", "-c", "two").stdout == "main heard two\n"
    assert run(room, "chat", "-r", key, "three").stdout == "main heard three\n"
    assert run(room, "chat", "-r", key[:-2], "four").stdout == "main heard four\n"
    missing = run(room, "chat", "-r", "nobody", "five")
    assert (missing.returncode, "there is no session 'nobody'" in missing.stderr) == (3, True)
    broken()
    home = run(room, "chat", "-c", "six")
    assert (home.stdout, key in home.stderr) == ("main heard six\n", True)
    assert [said for said in sessions_in(room)[key] if "heard" not in said] == ["one", "two", "three", "four", "six"]
    with nacre.open(room / "store") as sessions:
        (info,) = (info for info in sessions.list() if info.key == key)
        assert (info.title, info.cwd) == ("one", str(room))


@pytest.mark.parametrize("words", [("-c", "go on"), ("-r", "@last", "go on")], ids=["-c", "-r"])
def test_what_is_in_a_store_that_cannot_be_used_is_not_said_to_be_missing(room: Path, words: tuple[str, ...]) -> None:
    (room / "store").write_text("x")
    told = run(room, "chat", *words)
    assert told.returncode == 3
    assert "the store cannot be used: " in told.stderr
    assert "only sessions that began meanwhile can be resumed" in told.stderr


def test_a_daemon_without_its_store_answers_and_is_not_ready(room: Path) -> None:
    (room / "store").write_text("x")
    question = {"model": "nacre", "messages": [{"role": "user", "content": "hello"}], "session_id": "kept"}
    with daemon(room) as running:
        found = running.client.get("readyz")
        assert (found.status_code, found.json()["failing"]) == (503, ["store"])
        assert "the store cannot be used" in found.json()["reasons"][0]
        sent = running.client.post("v1/chat/completions", json=question)
        assert sent.json()["choices"][0]["message"]["content"] == "main heard hello"
        refused = running.client.delete("api/sessions/api::kept::")
        assert refused.status_code >= 400
        assert "while the store cannot be used" in refused.text
    (room / "store").unlink()
    with daemon(room) as running:
        assert running.client.get("readyz").status_code == 200
    assert sessions_in(room)["api::kept::"] == ["hello", "main heard hello"]


def test_where_nothing_can_be_written_it_says_why_and_ends(room: Path) -> None:
    (room / "store").write_text("x")
    (room / "state" / "nacre").mkdir(parents=True)
    (room / "state" / "nacre" / "standby").write_text("x")
    done = run(room, "chat", "one")
    assert done.returncode != 0
    assert f"{os.fspath(room)}/store is not a directory" in done.stderr
