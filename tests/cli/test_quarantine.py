"""nacre sessions quarantine, and every verb that says that something is in it."""

from __future__ import annotations

import pytest

from nacre.cli.commands.completion import completions
from tests.cli.conftest import Nacre, Terminal
from tests.paths import log_of


@pytest.fixture
def spoilt(nacre: Nacre) -> Nacre:
    """A session `telegram:42` with a group that lost its second message of three, and another that is whole."""
    with nacre.sessions() as sessions:
        sessions.add_message("other", "user", "hello")
        sessions.add_message("telegram:42", "user", "before")
        sessions.add_messages("telegram:42", [{"role": "user", "content": f"part {i}"} for i in range(3)])
    log = log_of(nacre.root, "telegram:42")
    log.write_bytes(log.read_bytes().replace(b"part 1", b"part l"))
    nacre("s", "repair", "telegram:42")
    return nacre


NOTICE = "2 records of this session are in quarantine"


def test_every_verb_says_what_is_in_quarantine_until_it_is_settled(spoilt: Nacre) -> None:
    def told() -> list[bool]:
        shown = spoilt("s", "show", "telegram:42")
        listed = spoilt("s", "list")
        items = spoilt("s", "list", "--json").json["items"]
        checks = spoilt("doctor", "--json").json["checks"]
        return [
            spoilt("s", "verify").code == 6,
            spoilt("s", "verify", "telegram:42").code == 6,
            NOTICE in shown.out,
            spoilt("s", "show", "telegram:42", "--json").json["quarantine"] is not None,
            NOTICE in listed.err,
            any(item["quarantine"] for item in items if item["key"] == "telegram:42"),
            any(check["name"] == "quarantine" and check["status"] == "warn" for check in checks),
        ]

    assert all(told())
    assert spoilt("s", "verify", "other").code == 0
    spoilt("s", "quarantine", "discard", "telegram:42", "--yes")
    assert not any(told())


def test_what_is_in_quarantine_is_listed_and_shown(spoilt: Nacre) -> None:
    (item,) = spoilt("s", "quarantine", "--json").json["items"]
    assert (item["ref"], item["n"], [one["text"] for one in item["records"]]) == (
        "telegram:42#1",
        1,
        ["part 0", "part 2"],
    )
    assert "telegram:42#1" in spoilt("s", "quarantine").out
    shown = spoilt("s", "quarantine", "show", "telegram:42#1").out
    assert "3 " in shown
    assert "part 2" in shown
    assert spoilt("s", "quarantine", "list", "other", "--json").json["items"] == []
    assert "nothing is in quarantine" in spoilt("s", "quarantine", "show", "other").err


def test_bytes_without_a_whole_record_are_shown_as_text(nacre: Nacre) -> None:
    nacre.fill("one")
    nacre.damage("one")
    nacre("s", "repair", "one")
    assert '{"v":1' in nacre("s", "quarantine", "show", "one").out
    assert "bytes of this session are in quarantine" in nacre("s", "list").err


@pytest.mark.parametrize("ref", ["telegram:42", "telegram:42#1", "teleg#1", "teleg"])
def test_restore_appends_the_records_and_ends_the_report(spoilt: Nacre, ref: str) -> None:
    assert spoilt("s", "quarantine", "restore", ref).code == 2
    assert spoilt("s", "quarantine", "restore", ref, "--dry-run", "--json").json["results"][0]["entries"] == [1]
    result = spoilt("s", "quarantine", "restore", ref, "--yes", "--json").json["results"][0]
    assert (result["status"], result["entries"], result["numbers"]) == ("restored", [1], [3, 4])
    with spoilt.sessions() as sessions:
        assert [message.content for message in sessions.get_history("telegram:42")] == ["before", "part 0", "part 2"]
    assert spoilt("s", "verify").code == 0
    assert "nothing was left to settle" in spoilt("s", "quarantine", "restore", ref, "--yes").out
    assert spoilt("s", "quarantine", "--all", "--json").json["items"][0]["settled"] == "restored"


@pytest.mark.parametrize(("answer", "code", "left"), [("y\n", 0, 0), ("n\n", 1, 1)])
def test_in_a_terminal_it_asks(
    spoilt: Nacre, monkeypatch: pytest.MonkeyPatch, answer: str, code: int, left: int
) -> None:
    monkeypatch.setattr("sys.stdin", Terminal(answer))
    assert spoilt("s", "quarantine", "discard", "telegram:42#1").code == code
    assert len(spoilt("s", "quarantine", "--json").json["items"]) == left


def test_what_cannot_be_settled_is_said(spoilt: Nacre) -> None:
    assert spoilt("s", "quarantine", "restore", "--yes").code == 2
    assert spoilt("s", "quarantine", "discard", "nobody", "--yes").code == 3
    assert spoilt("s", "quarantine", "discard", "nobody#1", "--yes").code == 3
    assert spoilt("s", "quarantine", "discard", "telegram:42#9", "--yes").code == 3


def test_a_session_without_a_log_is_named_by_its_key(spoilt: Nacre) -> None:
    log_of(spoilt.root, "telegram:42").unlink()
    assert spoilt("s", "verify").code == 6
    assert NOTICE in spoilt("s", "list").err
    assert spoilt("s", "quarantine", "discard", "telegram:42", "--yes").code == 0
    assert spoilt("s", "verify").code == 0


def test_shells_complete_sessions_and_entries(spoilt: Nacre) -> None:
    words = [value for value, _ in completions(["sessions", "quarantine", "show", "tele"])]
    assert words == ["telegram:42", "telegram:42#1"]
    assert spoilt("s", "quarantine", "--json").code == 0


def test_more_than_a_few_sessions_are_counted_below_the_list(nacre: Nacre) -> None:
    keys = [f"chat-{i}" for i in range(7)]
    for key in keys:
        nacre.fill(key)
        nacre.damage(key)
        nacre("s", "repair", key)
    assert "7 sessions have something in quarantine" in nacre("s", "list").err
    assert "4 more sessions" in nacre("doctor").out


def test_an_emptied_log_is_said_by_verify_doctor_and_repair(nacre: Nacre) -> None:
    nacre.fill("one")
    log_of(nacre.root, "one").write_bytes(b"")
    assert [found["kind"] for found in nacre("s", "verify", "--json").json["findings"]] == ["emptied"]
    assert "1 log empty (0 bytes)" in nacre("doctor").out
    nacre.fill("two")
    for _ in range(2):
        # The second list is read from the index alone.
        listed = nacre("s", "list")
        assert "one" not in listed.out
        assert "1 log empty (0 bytes): sessions/one" in listed.err
    assert nacre("s", "quarantine", "list", "one").code == 0
    shown = nacre("s", "show", "one")
    assert (shown.code, shown.out) == (6, "")
    assert "is empty (0 bytes)" in shown.err
    assert "nacre sessions repair one" in shown.err
    looked = nacre("s", "repair", "one", "--dry-run")
    assert looked.code == 0
    assert "noted in quarantine" in looked.out
    repaired = nacre("s", "repair", "one")
    assert repaired.code == 7
    assert "every byte" not in repaired.out
    assert "damaged piece" not in repaired.out
    assert "1 loss that cannot be repaired noted in quarantine" in repaired.out
    assert nacre("s", "verify").code == 6
    assert nacre("s", "quarantine", "discard", "one", "--yes").code == 0
    assert nacre("s", "verify").code == 0


def test_an_entry_in_which_nothing_is_whole_is_not_settled_by_restoring_it(nacre: Nacre) -> None:
    nacre.fill("one")
    nacre.damage("one")
    nacre("s", "repair", "one")
    for ref in ("one", "one#1"):
        done = nacre("s", "quarantine", "restore", ref, "--yes")
        assert done.code == 1
        assert "nothing in it can be restored" in done.err
        assert f"nacre sessions quarantine discard '{ref}'".replace("'one'", "one") in done.err
        assert nacre("s", "quarantine", "restore", ref, "--dry-run").code == 1
    assert "0 whole records" not in nacre("s", "quarantine", "show", "one").out
    assert nacre("s", "verify").code == 6


def test_what_is_in_the_trash_is_not_reported_and_comes_back_with_its_session(spoilt: Nacre) -> None:
    spoilt("s", "rm", "telegram:42")
    assert spoilt("s", "verify").code == 0
    spoilt("s", "restore", "telegram:42")
    assert spoilt("s", "verify").code == 6
    spoilt("s", "archive", "telegram:42")
    assert spoilt("s", "verify").code == 6
    spoilt("s", "unarchive", "telegram:42")
    spoilt("s", "gc")
    assert spoilt("s", "verify").code == 6
    assert spoilt("s", "rm", "telegram:42", "--permanent", "--yes").code == 0
    assert spoilt("s", "verify").code == 0
