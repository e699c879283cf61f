"""nacre memory."""

from __future__ import annotations

from pathlib import Path

import pytest

from nacre.memory.memory import Memory
from tests.cli.conftest import Nacre, Terminal
from tests.damage.lines import resealed


@pytest.fixture
def told(nacre: Nacre) -> Nacre:
    """A store with two facts of one session and one of another."""
    with nacre.sessions() as sessions:
        sessions.add_message("telegram:42", "user", "I moved to Lisbon")
        sessions.add_message("telegram:42", "assistant", "Nice!")
        memory = Memory(sessions, nacre.root / "home")
        memory.remember("The user lives in Lisbon.", key="telegram:42")
        memory.remember("The user's cat is called Tom.", key="telegram:42")
        memory.remember("Deploys are on Tuesdays.", key="irc:dev")
    return nacre


def texts(nacre: Nacre) -> list[str]:
    return [item["text"] for item in nacre("memory", "list", "--json").json["items"]]


def test_facts_are_listed_with_where_they_were_learned(told: Nacre) -> None:
    listed = told("memory")
    assert listed.code == 0
    assert "The user lives in Lisbon." in listed.out
    assert "telegram:42@3" in listed.out
    item = told("memory", "list", "--json").json["items"][2]
    assert (item["text"], item["session"], item["by"]) == ("Deploys are on Tuesdays.", "irc:dev", "nacre")


def test_an_empty_memory_is_no_error_and_leaves_nothing_behind(nacre: Nacre) -> None:
    assert nacre("memory", "list", "--json").json["items"] == []
    assert nacre("memory", "search", "x").code == 1
    assert not nacre.root.exists()


def test_a_search_that_finds_nothing_is_exit_1(told: Nacre) -> None:
    found = told("memory", "search", "where", "is", "Lisbon", "--json")
    assert [item["text"] for item in found.json["items"]] == ["The user lives in Lisbon."]
    assert told("memory", "search", "zebra").code == 1


def test_why_shows_the_turn(told: Nacre) -> None:
    shown = told("memory", "why", "Lisbon")
    assert shown.code == 0
    assert "learned in telegram:42@3" in shown.out
    assert "    I moved to Lisbon" in shown.out
    assert told("memory", "why", "Lisbon", "--json").json["turn"]["answered"] == "Nice!"
    assert told("memory", "why", "zebra").code == 3
    assert told("memory", "why", "user").code in {3, 4}


def test_what_was_learned_in_a_session_is_erased(told: Nacre) -> None:
    before = told.files()
    planned = told("memory", "forget", "--session", "telegram:42", "--dry-run", "--json").json
    assert (planned["erased"], planned["dry_run"]) == (2, True)
    assert told.files() == before
    assert told("memory", "forget", "--session", "telegram:42").code == 2
    assert told("memory", "forget", "--session", "telegram:42", "--yes", "--json").json["erased"] == 2
    assert texts(told) == ["Deploys are on Tuesdays."]
    assert not any(b"called Tom" in data for data in told.files().values())
    assert told("memory", "forget", "--session", "irc:dev", "-y").code == 0
    assert told("memory", "forget", "--session", "nobody:1", "-y").code == 3


def test_who_erases_a_session_is_told_what_memory_keeps_of_it(told: Nacre, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", Terminal("y\n"))
    result = told("s", "rm", "telegram:42", "--permanent")
    assert "Erase telegram:42 for good (memory still has 2 lines learned there)? [y/N]" in result.err
    assert "2 lines learned in telegram:42; `nacre memory forget --session telegram:42` erases them too" in result.err
    assert told("memory", "forget", "--session", "telegram:42", "--yes").code == 0
    assert not any(b"called Tom" in data for data in told.files().values())


def test_who_empties_the_trash_is_told_the_same(told: Nacre) -> None:
    assert "memory" not in told("s", "rm", "telegram:42").err
    result = told("s", "trash", "empty", "--yes", "--json")
    assert result.json["results"][0]["remembered"] == 2
    assert "nacre memory forget --session telegram:42" in result.err


def test_of_a_key_that_has_a_session_still_memory_keeps_everything(told: Nacre) -> None:
    told("s", "rm", "telegram:42")
    told.fill("telegram:42")
    assert "memory" not in told("s", "trash", "empty", "--yes").err


def test_a_memory_that_cannot_be_read_keeps_no_session_from_being_erased(told: Nacre) -> None:
    (log,) = (told.root / "sessions").glob("nacre-memory~*.jsonl")
    log.write_bytes(b"".join(resealed(line, v=2) for line in log.read_bytes().splitlines()))
    result = told("s", "rm", "telegram:42", "--permanent", "--yes")
    assert (result.code, result.out) == (0, "telegram:42: erased\n")
    assert "memory cannot be read" in result.err


def test_only_some_of_many_sessions_are_named(nacre: Nacre) -> None:
    keys = [f"key {number}" for number in range(7)]
    nacre.fill(*keys)
    with nacre.sessions() as sessions:
        memory = Memory(sessions, nacre.root / "home")
        for key in keys:
            memory.remember(f"The secret of {key} is {key}.", key=key)
    lines = nacre("s", "rm", *keys, "--permanent", "--yes").err.splitlines()
    assert [line.count("nacre memory forget --session 'key ") for line in lines] == [1, 1, 1, 1, 1, 0]
    assert lines[-1] == "… and facts learned in 2 more sessions"


def test_single_facts_are_erased_by_id_or_words(told: Nacre) -> None:
    id = told("memory", "list", "--json").json["items"][0]["id"]
    assert told("memory", "forget", id[:6], "Tuesdays", "--yes").code == 0
    assert texts(told) == ["The user's cat is called Tom."]
    assert told("memory", "forget", "zebra", "--yes").code == 3


def test_a_fact_is_edited(told: Nacre) -> None:
    before = told.files()
    assert "→ Deploys are on Mondays." in told("memory", "edit", "Tuesdays", "Deploys are on Mondays.", "--dry-run").out
    assert told.files() == before
    assert told("memory", "edit", "Tuesdays", "Deploys are on Mondays.").code == 0
    assert texts(told)[2] == "Deploys are on Mondays."
    assert "Mondays" in (told.root / "home" / "MEMORY.md").read_text()


def test_the_page_is_edited_in_the_editor(told: Nacre, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    editor = tmp_path / "editor"
    editor.write_text('#!/bin/sh\nsed -i -e s/Lisbon/Porto/ -e /Tom/d "$1"\n')
    editor.chmod(0o700)
    monkeypatch.setenv("VISUAL", str(editor))
    told_of = told("memory", "edit", "--json").json
    assert (told_of["added"], told_of["removed"]) == (1, 2)
    assert texts(told) == ["The user lives in Porto.", "Deploys are on Tuesdays."]
    monkeypatch.setenv("VISUAL", "/nowhere/editor")
    assert told("memory", "edit").code == 1


@pytest.mark.parametrize(
    "words",
    [
        ("list", "x"),
        ("search",),
        ("why",),
        ("forget",),
        ("forget", "x", "--session", "y"),
        ("edit", "x"),
        ("list", "--session", "x"),
        ("search", "x", "--limit", "0"),
        ("learn",),
    ],
)
def test_what_makes_no_sense_is_exit_2(told: Nacre, words: tuple[str, ...]) -> None:
    assert told("memory", *words).code == 2
