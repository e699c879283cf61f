"""Pins and tags: put on, taken off, found, shown."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from tests.cli.conftest import Nacre
from tests.paths import log_of


@pytest.fixture
def labelled(nacre: Nacre) -> Nacre:
    """A store with a pinned and tagged session, a tagged one and a plain one."""
    nacre.fill("one", "two", "three")
    assert nacre("s", "tag", "one", "work", "taxes").code == 0
    assert nacre("s", "tag", "two", "work").code == 0
    assert nacre("s", "pin", "one").code == 0
    return nacre


def listed(nacre: Nacre, *words: str) -> list[str]:
    return sorted(item["key"] for item in nacre("s", "list", *words, "--json").json["items"])


def test_tags_are_added_once_and_in_order(labelled: Nacre) -> None:
    result = labelled("s", "tag", "one", "home,work", "two words", "--json").json
    assert result["tags"] == ["work", "taxes", "home", "two words"]
    assert result["previous"] == ["work", "taxes"]


def test_labels_are_in_the_meta_as_the_page_keeps_them(labelled: Nacre) -> None:
    with labelled.sessions() as sessions:
        assert sessions.get_meta("one") == {"tags": ["work", "taxes"], "pinned": True}


def test_tags_are_taken_off_and_the_last_one_leaves_nothing(labelled: Nacre) -> None:
    assert labelled("s", "untag", "one", "work", "unknown").out == "one: is now tagged taxes\n"
    assert labelled("s", "untag", "two", "work").out == "two: is now untagged\n"
    with labelled.sessions() as sessions:
        assert sessions.get_meta("two") == {}


def test_a_pin_is_taken_off(labelled: Nacre) -> None:
    assert labelled("s", "unpin", "one", "two").out == "one: unpinned\ntwo: was not pinned\n"
    assert listed(labelled, "--pinned") == []


@pytest.mark.parametrize("line", [("tag", "one", "work"), ("untag", "one", "no"), ("pin", "one"), ("unpin", "two")])
def test_what_changes_nothing_writes_nothing(labelled: Nacre, line: tuple[str, ...]) -> None:
    before = labelled.files()
    assert labelled("s", *line).code == 0
    assert labelled.files() == before


def test_a_tag_is_not_left_out_in_silence(labelled: Nacre) -> None:
    result = labelled("s", "tag", "one", *(f"tag-{i}" for i in range(19)), "--json")
    assert result.json["error"]["type"] == "conflict"
    assert result.code != 0
    assert listed(labelled, "--tag", "tag-0") == []


@pytest.mark.parametrize("tag", ["", " ", ",", " , "])
def test_nothing_is_no_tag(labelled: Nacre, tag: str) -> None:
    assert labelled("s", "tag", "one", tag).code == 2


@pytest.mark.parametrize("line", [("tag", "one", "new"), ("untag", "one", "work"), ("pin", "one"), ("unpin", "one")])
def test_an_archived_session_is_not_begun_anew_for_its_labels(labelled: Nacre, line: tuple[str, ...]) -> None:
    labelled("s", "archive", "one")
    before = labelled.files()
    result = labelled("s", *line)
    assert result.code != 0
    assert "unarchive" in result.err
    assert labelled.files() == before


def test_a_list_is_filtered_by_every_label_that_is_wanted(labelled: Nacre) -> None:
    assert listed(labelled, "--tag", "work") == ["one", "two"]
    assert listed(labelled, "--tag", "work", "--tag", "taxes") == ["one"]
    assert listed(labelled, "--tag", "work", "--pinned") == ["one"]
    assert listed(labelled, "--tag", " taxes ") == ["one"]
    assert labelled("s", "list", "--tag", "none").err == "no session has these labels\n"


def test_labels_of_archived_sessions_are_those_of_their_own_life(labelled: Nacre) -> None:
    labelled("s", "archive", "one")
    labelled.fill("one")
    labelled("s", "tag", "one", "anew")
    labelled("s", "archive", "one")
    assert listed(labelled, "--archived", "--tag", "taxes") == ["one"]
    assert listed(labelled, "--archived", "--tag", "anew") == ["one"]
    assert listed(labelled, "--all", "--tag", "anew", "--tag", "taxes") == []


def test_a_table_has_a_column_for_labels_if_there_are_any(labelled: Nacre) -> None:
    table = labelled("s", "list", "--sort", "key").out.splitlines()
    assert table[1].split()[1:5] == ["one", "★", "work,", "taxes"]
    assert "TAGS" in table[0]
    assert "TAGS" not in labelled("s", "list", "--prefix", "three").out


def test_every_form_of_a_list_has_them(labelled: Nacre) -> None:
    items = labelled("s", "list", "--json", "--sort", "key").json["items"]
    assert [(item["pinned"], item["tags"]) for item in items] == [
        (True, ["work", "taxes"]),
        (False, []),
        (False, ["work"]),
    ]
    assert set(labelled("s", "list", "--format", "{key} {pinned} {tags}").out.splitlines()) == {
        "one True work,taxes",
        "two False work",
        "three False ",
    }


def test_a_damaged_log_has_no_labels_and_does_not_stop_the_list(labelled: Nacre) -> None:
    log_of(labelled.root, "two").write_bytes(b"nothing of ours\n")
    assert listed(labelled, "--tag", "work") == ["one"]


def test_show_has_them(labelled: Nacre) -> None:
    assert labelled("s", "show", "one").out.splitlines()[1] == "★ pinned · work, taxes"
    document = labelled("s", "show", "one", "--json").json
    assert (document["pinned"], document["tags"]) == (True, ["work", "taxes"])


def test_a_hostile_tag_is_shown_not_obeyed(nacre: Nacre) -> None:
    nacre.fill("one")
    for line in (("tag", "one", "a\x1b]0;b\x07"), ("list",), ("show", "one"), ("list", "--format", "{tags}")):
        out = nacre("s", *line).out
        assert "\\x1b" in out
        assert all(char.isprintable() or char == "\n" for char in out)


def test_tags_that_are_in_use_are_completed(labelled: Nacre) -> None:
    assert labelled("__complete", "--", "s", "list", "--tag", "").out.splitlines() == ["taxes", "work"]
    assert labelled("__complete", "--", "s", "tag", "three", "w").out.splitlines() == ["work"]


def test_retention_leaves_what_is_pinned_alone(labelled: Nacre, monkeypatch: pytest.MonkeyPatch) -> None:
    then = (datetime.now(UTC) + timedelta(days=100)).timestamp()
    monkeypatch.setattr("time.time", lambda: then)
    due = labelled("s", "retain", "--archive-after", "90d", "--dry-run", "--json").json["results"]
    assert sorted(one["key"] for one in due) == ["three", "two"]
