"""nacre sessions rm, trash and restore."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from pathlib import Path

import anyio
import pytest

from nacre.channels.channel import InboundMessage
from nacre.index import database
from nacre.runtime.gateway.inbox import KEYS, Inbox
from tests.cli.conftest import Nacre, Terminal


def words_of(nacre: Nacre, key: str) -> list[object]:
    with nacre.sessions() as sessions:
        return [stored.message.content for stored in sessions.transcript(key)]


def test_a_removed_session_is_gone_and_comes_back_whole(nacre: Nacre) -> None:
    nacre.fill("one", title="A title")
    before = nacre.files()
    assert nacre("s", "rm", "one").code == 0
    assert nacre("s", "list", "--all", "--json").json["count"] == 0
    assert nacre("s", "restore", "one").code == 0
    assert nacre.files() == before


def test_all_generations_go_and_come_back_as_they_were(nacre: Nacre) -> None:
    nacre.fill("one")
    nacre("s", "archive", "one")
    nacre.fill("one")
    before = nacre.files()
    nacre("s", "rm", "one")
    assert not any(name.startswith(("sessions/", "archive/")) for name in nacre.files())
    nacre("s", "restore", "one")
    assert nacre.files() == before


def test_what_was_moved_out_and_set_aside_goes_along(nacre: Nacre) -> None:
    nacre.fill("one")
    nacre.damage("one")
    nacre("s", "repair", "one")
    before = nacre.files()
    nacre("s", "rm", "one")
    assert all(name.startswith("trash/") for name in nacre.files())
    nacre("s", "restore", "one")
    assert nacre.files() == before


def test_restore_beside_a_new_session_of_the_key_is_refused(nacre: Nacre) -> None:
    nacre.fill("one")
    nacre("s", "rm", "one")
    nacre.fill("one")
    result = nacre("s", "restore", "one", "--json")
    assert (result.code, result.json["error"]["type"]) == (1, "conflict")
    assert len(words_of(nacre, "one")) == 2


def test_of_one_key_the_last_removed_comes_back_first(nacre: Nacre) -> None:
    for word in ("first", "second"):
        with nacre.sessions() as sessions:
            sessions.add_message("one", "user", word)
        nacre("s", "rm", "one")
    nacre("s", "restore", "one")
    assert words_of(nacre, "one") == ["second"]


def test_last_is_what_was_removed_last(nacre: Nacre) -> None:
    nacre.fill("one", "two")
    nacre("s", "rm", "one")
    nacre("s", "rm", "two")
    assert nacre("s", "restore", "@last", "--json").json["results"][0]["key"] == "two"


def test_what_is_not_in_the_trash_is_named(nacre: Nacre) -> None:
    assert "there is no session 'nobody' in the trash" in nacre("s", "restore", "nobody").err


def test_a_write_after_rm_begins_a_new_session(nacre: Nacre) -> None:
    nacre.fill("one")
    with nacre.sessions() as sessions:
        sessions.add_message("one", "user", "still open")
        nacre("s", "rm", "one")
        sessions.add_message("one", "user", "afterwards")
    assert words_of(nacre, "one") == ["afterwards"]


def test_delete_erases_the_trash_too(nacre: Nacre) -> None:
    nacre.fill("one")
    nacre("s", "rm", "one")
    with nacre.sessions() as sessions:
        sessions.delete("one")
    assert nacre.files() == {}


@pytest.mark.parametrize("options", [(), ("--permanent", "--yes")], ids=["rm", "rm --permanent"])
def test_what_goes_is_what_was_meant_before_anything_went(nacre: Nacre, options: tuple[str, ...]) -> None:
    # In the order of their names, too: all of it may be written within a millisecond.
    for key in ("delta", "charlie", "bravo", "alpha"):
        nacre.fill(key)
    named = [nacre("s", "rm", "@last", "@last~1", *options, *more, "--json").json for more in (("--dry-run",), ())]
    assert [[item["key"] for item in one["results"]] for one in named] == [["alpha", "bravo"]] * 2
    assert {item["key"] for item in nacre("s", "list", "--json").json["items"]} == {"charlie", "delta"}


def test_a_beginning_that_becomes_unique_on_the_way_is_still_ambiguous(
    nacre: Nacre, monkeypatch: pytest.MonkeyPatch
) -> None:
    nacre.fill("telegram:42", "telegram:43")
    monkeypatch.setattr("sys.stdin", Terminal("y\n"))
    result = nacre("s", "rm", "telegram:42", "tele", "--permanent")
    assert (result.code, result.out) == (9, "telegram:42: erased\n")
    assert "Erase telegram:42 for good?" in result.err
    assert [item["key"] for item in nacre("s", "list", "--json").json["items"]] == ["telegram:43"]


def test_a_session_with_two_names_is_asked_about_and_erased_once(nacre: Nacre, monkeypatch: pytest.MonkeyPatch) -> None:
    nacre.fill("one")
    monkeypatch.setattr("sys.stdin", Terminal("y\n"))
    result = nacre("s", "rm", "one", "@last", "--permanent")
    assert (result.code, result.out) == (0, "one: erased\n")
    assert "Erase one for good?" in result.err


def test_nobody_is_asked_about_nothing(nacre: Nacre) -> None:
    assert nacre("s", "rm", "nobody", "--permanent").code == 3


def test_what_comes_back_is_what_was_meant_before_anything_came(nacre: Nacre) -> None:
    nacre.fill("telegram:42", "telegram:43")
    nacre("s", "rm", "telegram:42", "telegram:43")
    assert nacre("s", "restore", "telegram:42", "tele").code == 9
    assert [item["key"] for item in nacre("s", "trash", "--json").json["items"]] == ["telegram:43"]


@pytest.mark.parametrize("is_served", [False, True])
def test_what_is_erased_leaves_no_copy_in_the_inbox(nacre: Nacre, is_served: bool) -> None:
    arrived = InboundMessage(channel="telegram", chat="42", sender="ann", id="1", text="my secret")
    nacre.fill("telegram:42")
    with nacre.sessions() as sessions, ExitStack() as held:
        inbox = Inbox(sessions)
        anyio.run(inbox.add, arrived)
        inbox.done(arrived)
        if is_served:
            hold = sessions.hold(KEYS[0])
            hold.take()
            held.callback(hold.close)
        result = nacre("s", "rm", "telegram:42", "--permanent", "--yes")
        assert ("within the hour" in result.err) is is_served
    assert any(b"my secret" in path.read_bytes() for path in nacre.root.rglob("*.jsonl")) is is_served


def test_permanent_needs_a_yes_where_nobody_can_be_asked(nacre: Nacre) -> None:
    nacre.fill("one")
    before = nacre.files()
    assert nacre("s", "rm", "one", "--permanent").code == 2
    assert nacre.files() == before
    assert nacre("s", "rm", "one", "--permanent", "--yes").code == 0
    assert nacre.files() == {}


@pytest.mark.parametrize(("answer", "code", "is_left"), [("y\n", 0, False), ("n\n", 1, True), ("", 1, True)])
def test_on_a_terminal_it_asks_once(
    nacre: Nacre, monkeypatch: pytest.MonkeyPatch, answer: str, code: int, is_left: bool
) -> None:
    nacre.fill("one")
    monkeypatch.setattr("sys.stdin", Terminal(answer))
    result = nacre("s", "rm", "one", "--permanent")
    assert result.code == code
    assert result.err.count("[y/N]") == 1
    assert bool(nacre.files()) is is_left


def test_the_trash_is_listed_and_emptied(nacre: Nacre) -> None:
    nacre.fill("one", "two")
    nacre("s", "rm", "one", "two")
    assert {item["key"] for item in nacre("s", "trash", "--json").json["items"]} == {"two", "one"}
    assert nacre("s", "trash", "empty", "two").code == 2
    assert nacre("s", "trash", "empty", "two", "--yes").code == 0
    assert [item["key"] for item in nacre("s", "trash", "list", "--json").json["items"]] == ["one"]


def indexed(nacre: Nacre, tmp_path: Path) -> bytes:
    """What is in the files of the index, after a look at the list."""
    assert nacre("s", "list", "--all", "--json").code == 0
    return b"".join(path.read_bytes() for path in (tmp_path / "cache").rglob("*") if path.is_file())


def test_what_is_erased_leaves_the_index_too(nacre: Nacre, tmp_path: Path) -> None:
    for key in ("gone", "left"):
        nacre.fill(key, title=f"title-of-{key}")
    nacre("s", "search", "hello")
    assert b"title-of-gone" in indexed(nacre, tmp_path)
    nacre("s", "rm", "gone")
    nacre("s", "trash", "empty", "--yes")
    found = indexed(nacre, tmp_path)
    words = (b"title-of-gone", b"hello from gone", b"hello from left")
    assert [word in found for word in words] == [False, False, True]


def test_a_new_session_of_an_erased_key_is_still_found(nacre: Nacre, tmp_path: Path) -> None:
    nacre.fill("one", title="title-of-old")
    nacre("s", "search", "hello")
    nacre("s", "rm", "one")
    nacre.fill("one")
    nacre("s", "trash", "empty", "--yes")
    assert b"title-of-old" not in indexed(nacre, tmp_path)
    assert [item["key"] for item in nacre("s", "search", "hello", "--json").json["items"]] == ["one"]


def test_a_python_without_sqlite_empties_the_trash(nacre: Nacre, monkeypatch: pytest.MonkeyPatch) -> None:
    nacre.fill("one")
    nacre("s", "rm", "one")
    monkeypatch.setitem(sys.modules, database.__name__, None)
    assert nacre("s", "trash", "empty", "--yes").code == 0
    assert nacre.files() == {}


def test_only_what_is_old_enough_is_erased(nacre: Nacre) -> None:
    nacre.fill("one")
    nacre("s", "rm", "one")
    assert nacre("s", "trash", "empty", "--older-than", "30d", "--yes", "--json").json["results"] == []
    assert nacre("s", "trash", "empty", "--older-than", "soon", "--yes").code == 2
    assert nacre("s", "trash", "empty", "--older-than", "0s", "--yes").code == 0
    assert nacre.files() == {}


def test_a_fork_keeps_its_past_when_its_parent_goes(nacre: Nacre) -> None:
    nacre.fill("one")
    nacre("s", "fork", "one", "two")
    nacre("s", "rm", "one")
    nacre("s", "trash", "empty", "--yes")
    assert words_of(nacre, "two")[0] == "hello from one"


def test_a_fork_comes_back_with_its_past(nacre: Nacre) -> None:
    nacre.fill("one")
    nacre("s", "fork", "one", "two")
    nacre("s", "rm", "two")
    nacre("s", "restore", "two")
    with nacre.sessions() as sessions:
        assert [message.content for message in sessions.get_history("two")] == ["hello from one", "hi"]


def test_an_emptied_fork_leaves_nothing(nacre: Nacre) -> None:
    nacre.fill("one")
    before = nacre.files()
    nacre("s", "fork", "one", "two")
    nacre("s", "rm", "two")
    nacre("s", "trash", "empty", "--yes")
    assert nacre.files() == before


def test_an_emptied_session_leaves_nothing_of_its_payloads(nacre: Nacre) -> None:
    with nacre.sessions() as sessions:
        sessions.add_message("one", "user", "z" * 100_000)
    nacre("s", "rm", "one")
    link = next((nacre.root / "blobs").glob("one.*"))
    link.with_name(f"{link.name}.tmp").write_text("what a killed writer left of one")
    nacre("s", "trash", "empty", "--yes")
    assert nacre.files() == {}


def test_a_store_without_a_trash_has_an_empty_one(nacre: Nacre) -> None:
    nacre.fill("one")
    result = nacre("s", "trash", "restore", "one", "--json")
    assert (result.code, result.json["error"]["type"]) == (3, "not_found")


def test_who_misses_something_in_the_trash_is_told_where_to_look(nacre: Nacre) -> None:
    assert "nacre sessions trash list" in nacre("s", "restore", "nobody").err


def test_the_trash_shows_titles_and_a_title_or_a_uid_comes_back(nacre: Nacre) -> None:
    nacre.fill("one", title="Tax return")
    nacre.fill("two")
    nacre("s", "archive", "one")
    nacre("s", "rm", "one", "two")
    items = nacre("s", "trash", "--json").json["items"]
    assert {item["key"]: item["title"] for item in items} == {"one": "Tax return", "two": ""}
    assert "Tax return" in nacre("s", "trash").out
    uid = next(name for name in nacre.files() if name.startswith("trash/") and ".archived" not in name).split(".")[1]
    assert nacre("s", "restore", "tax RETURN", "--json").json["results"][0]["key"] == "one"
    assert nacre("s", "restore", uid[-8:], "--json").json["results"][0]["key"] == "two"


def test_a_title_in_the_trash_names_the_session_that_had_it(nacre: Nacre) -> None:
    for title in ("Old", "New"):
        nacre.fill("one", title=title)
        nacre("s", "rm", "one")
    assert nacre("s", "restore", "old").code == 0
    assert [item["title"] for item in nacre("s", "trash", "--json").json["items"]] == ["New"]
    nacre.fill("two", title="Old")
    nacre("s", "rm", "one", "two")
    assert nacre("s", "restore", "Old").code == 4


def test_a_damaged_log_in_the_trash_has_no_title(nacre: Nacre) -> None:
    nacre.fill("one", title="A title")
    nacre("s", "rm", "one")
    next((nacre.root / "trash").glob("*.jsonl")).write_bytes(b"nothing\n")
    assert [item["title"] for item in nacre("s", "trash", "--json").json["items"]] == [""]


def test_the_other_names_of_a_session_are_erased_with_it_and_not_before(nacre: Nacre) -> None:
    nacre.fill("one", "two")
    with nacre.sessions() as sessions:
        sessions.add_alias("one", "her-number-4711")
        sessions.add_alias("two", "another")
    nacre("s", "rm", "one")
    nacre.fill("one")
    nacre("s", "rm", "one")
    [newest, _] = nacre("s", "trash", "list", "--json").json["items"]
    assert newest["key"] == "one"
    nacre("s", "restore", "one")
    nacre("s", "trash", "empty", "--yes")
    with nacre.sessions() as sessions:
        assert sessions.aliases("one") == ("her-number-4711",)
    nacre("s", "rm", "one")
    assert nacre("s", "trash", "empty", "--yes").code == 0
    assert [name for name, data in nacre.files().items() if b"4711" in data] == []
    with nacre.sessions() as sessions:
        assert sessions.resolve("another") == "two"
