"""nacre sessions archive, unarchive, rename and fork."""

from __future__ import annotations

import pytest

from nacre.messages import Message
from nacre.records import AppendRecord
from tests.cli.conftest import Nacre


def test_several_are_archived_and_one_that_fails_does_not_stop_the_others(nacre: Nacre) -> None:
    nacre.fill("one", "two")
    result = nacre("s", "archive", "one", "nothing-here", "two", "--json")
    assert result.code == 9
    assert result.json["ok"] is False
    assert [item["ok"] for item in result.json["results"]] == [True, False, True]
    assert result.json["results"][1]["error"]["type"] == "not_found"


@pytest.mark.parametrize("verb", ["archive", "pin", "compact", "repair"])
def test_what_several_references_mean_is_settled_before_anything_is_done(nacre: Nacre, verb: str) -> None:
    # In the order of their names, too: all of it may be written within a millisecond.
    for key in ("charlie", "bravo", "alpha"):
        nacre.fill(key)
    result = nacre("s", verb, "@last", "@last~1", "alpha", "--json")
    assert [item["key"] for item in result.json["results"]] == ["alpha", "bravo"]


def test_archive_and_unarchive_undo_each_other(nacre: Nacre) -> None:
    nacre.fill("one")
    before = nacre.files()
    assert nacre("s", "archive", "one").out == "one: archived\n"
    assert nacre("s", "unarchive", "one").out == "one: active again\n"
    assert nacre.files() == before


@pytest.mark.parametrize(("first", "verb"), [("archive", "archive"), (None, "unarchive")])
def test_what_is_done_already_is_not_done_again_in_silence(nacre: Nacre, first: str | None, verb: str) -> None:
    nacre.fill("one")
    if first:
        nacre("s", first, "one")
    assert nacre("s", verb, "one").code == 1


def test_a_title_is_given_and_taken_away(nacre: Nacre) -> None:
    nacre.fill("one")
    assert nacre("s", "rename", "one", "Tax", "return", "--json").json["title"] == "Tax return"
    assert nacre("s", "list", "--json").json["items"][0]["title"] == "Tax return"
    assert nacre("s", "rename", "one", "", "--json").json["previous"] == "Tax return"
    with nacre.sessions() as sessions:
        assert sessions.get_meta("one") == {}


def test_an_archived_session_is_not_renamed_into_a_new_one(nacre: Nacre) -> None:
    nacre.fill("one")
    nacre("s", "archive", "one")
    before = nacre.files()
    assert nacre("s", "rename", "one", "x").code == 1
    assert nacre.files() == before


def test_a_fork_at_an_answer_takes_along_what_it_cost(nacre: Nacre) -> None:
    with nacre.sessions() as sessions:
        answer = Message(role="assistant", content="Hello.")
        sessions.submit("talk", [Message(role="user", content="Hi.")]).result()
        number = sessions.submit("talk", [answer, AppendRecord("use", {"prompt": 1})]).result()
        sessions.add_message("talk", "user", "And now?")
    assert nacre("s", "fork", f"talk@{number - 1}", "two").code == 0
    with nacre.sessions() as sessions:
        assert [message.content for message in sessions.get_history("two")] == ["Hi.", "Hello."]


def test_a_fork_shares_the_past_up_to_a_record(nacre: Nacre) -> None:
    nacre.fill("one")
    result = nacre("s", "fork", "one@2", "two", "--name", "Second try", "--json")
    assert result.json == {
        "schema_version": 1,
        "ok": True,
        "operation": "fork",
        "dry_run": False,
        "source": "one",
        "at": 2,
        "key": "two",
    }
    with nacre.sessions() as sessions:
        assert [message.content for message in sessions.get_history("two")] == ["hello from one"]
        assert sessions.get_meta("two") == {"title": "Second try"}


def test_a_fork_without_a_key_gets_the_next_free_one(nacre: Nacre) -> None:
    nacre.fill("one")
    assert [nacre("s", "fork", "one", "--json").json["key"] for _ in range(2)] == ["one-2", "one-3"]


def test_a_fork_never_takes_a_key_that_is_there(nacre: Nacre) -> None:
    nacre.fill("one", "two")
    assert nacre("s", "fork", "one", "two", "--json").json["error"]["type"] == "conflict"
