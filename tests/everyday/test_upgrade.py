"""A store that version 0.1.0 left: taken over as it is, and nothing is written that 0.1.0 could not read.

`stores/0.1.0` was made by the last commit before chats had folders: two chats, memory with its pages in the workspace,
a session of a channel, an archived one, and a session under a key that is reserved since.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

import nacre
from nacre.records import FORMAT
from tests.everyday.conftest import Person

MADE_BY = Path(__file__).parent / "stores" / "0.1.0"
FIRST, SECOND = "chat-20261116-1741-ab55", "chat-20261116-1741-b03e"
NOTES = "nacre:notes"
KINDS = {"open", "msg", "sum", "trunc", "head", "meta", "ids", "use", "tool", "mark", "del"}
"""What docs/format.md says of format 1."""


@pytest.fixture
def upgraded(person: Person) -> Person:
    shutil.copytree(MADE_BY, person.store)
    for path in (person.store, *person.store.rglob("*")):
        path.chmod(0o700 if path.is_dir() else 0o600)
    return person


def records(person: Person) -> list[dict[str, object]]:
    logs = [*person.store.glob("sessions/*.jsonl"), *person.store.glob("archive/*.jsonl")]
    return [json.loads(line) for log in logs for line in log.read_text().splitlines()]


def test_every_session_of_an_older_store_is_there(upgraded: Person) -> None:
    listed = upgraded.nacre("sessions", "list", "--all", "--json").json["items"]
    assert {item["key"] for item in listed} == {FIRST, SECOND, "telegram::42::7", "old"}
    assert upgraded.said(FIRST)[0] == "the blue boat is in Faro"
    assert upgraded.nacre("sessions", "verify").code == 0
    assert "blue boat" in upgraded.nacre("memory", "list", "--days").out


def test_no_log_of_an_older_store_keeps_a_name_that_an_earlier_agent_gives_its_files(upgraded: Person) -> None:
    assert (upgraded.store / "sessions" / f"{FIRST}.jsonl").exists()
    upgraded.nacre("sessions", "list")
    logs = [path.name for path in (upgraded.store / "sessions").iterdir()]
    assert logs
    assert all("~" in name for name in logs)
    assert upgraded.said(FIRST)[0] == "the blue boat is in Faro"


def test_a_chat_without_a_folder_gets_one_when_it_is_resumed(upgraded: Person) -> None:
    here = upgraded.folder("work")
    assert upgraded.nacre("chat", "-c", "more", at=here).code == 3
    assert FIRST in upgraded.nacre("chat", "-r", at=here).err
    assert upgraded.ask("-r", "THE BLUE BOAT is in Faro", "and now?", at=here)["session"] == FIRST
    assert upgraded.ask("-c", "and then?", at=here)["session"] == FIRST
    assert upgraded.ask("-r", "telegram::42::7", "hello", at=here)["session"] == "telegram::42::7"
    assert upgraded.ask("-c", "still here", at=here)["session"] == FIRST


def test_a_reserved_key_of_a_caller_stays_readable_and_doctor_names_it(upgraded: Person) -> None:
    assert "a note of mine" in upgraded.nacre("sessions", "show", NOTES).out
    assert NOTES in upgraded.nacre("doctor").out
    with upgraded.sessions() as sessions:
        sessions.add_message(NOTES, "user", "one more")
        assert [message.content for message in sessions.get_history(NOTES)] == ["a note of mine", "one more"]
        with pytest.raises(nacre.InvalidKey):
            sessions.add_message("nacre:new", "user", "hello")
    assert upgraded.nacre("sessions", "fork", "--internal", NOTES, "notes").code == 0
    assert upgraded.nacre("sessions", "rm", NOTES, "--internal").code == 0
    assert upgraded.said("notes") == ["a note of mine", "one more"]
    assert NOTES not in upgraded.nacre("doctor").out


def test_what_is_written_to_an_older_store_is_of_the_same_format(upgraded: Person) -> None:
    here = upgraded.folder("work")
    upgraded.ask("-r", FIRST, "and now?", at=here)
    upgraded.ask("hello", at=here)
    assert {record["v"] for record in records(upgraded)} == {FORMAT} == {1}
    assert {str(record["t"]) for record in records(upgraded) if not str(record["t"]).startswith("x.")} <= KINDS
    assert all(len(record["st"]) == 6 for record in records(upgraded) if isinstance(record["st"], list))
