"""Rows of a database that are not what was written: found, set aside, and reported until somebody settles it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing

import pytest

import nacre
from nacre.history.session_state import RULES
from nacre.index.postgres_index import labels
from nacre.messages import SHARED
from nacre.records import Losses, Operation, Record, Records, RecordStamp, Restore, Rules, State
from nacre.storage.postgres.address import parse
from nacre.storage.postgres.store import PostgresStore
from nacre.storage.postgres.view import sid_of
from tests.postgres.rows import Rows
from tests.simulated import said, say

LARGE = "a payload that is long " * 4_000


@pytest.fixture
def rows(empty_database: str) -> Iterator[Rows]:
    with Rows(empty_database) as found:
        yield found


@pytest.fixture
def sessions(empty_database: str) -> Iterator[nacre.Sessions]:
    with nacre.open(empty_database) as opened:
        yield opened


def kinds(sessions: nacre.Sessions, key: str | None = None) -> list[tuple[str, str]]:
    return [(finding.kind, finding.where) for finding in sessions.verify(key).findings]


def swap(rows: Rows) -> None:
    """Let the rows of records 3 and 4 change places."""
    for old, new in ((3, 99), (4, 3), (99, 4)):
        rows.run("UPDATE {s}.records SET n = %s WHERE n = %s", new, old)


DAMAGES: dict[str, Callable[[Rows], object]] = {
    "a bit of a message": lambda rows: rows.change_line("k", 3, "two", "tvo"),
    "a bit of the header": lambda rows: rows.change_line("k", 1, '"t":"open"', '"t":"oqen"'),
    "a bit of the last record": lambda rows: rows.change_line("k", 5, "four", "fivr"),
    "a line that is none": lambda rows: rows.run("UPDATE {s}.records SET line = 'what is this?' WHERE n = 3"),
    "an empty line": lambda rows: rows.run("UPDATE {s}.records SET line = '' WHERE n = 3"),
    "a row that is gone": lambda rows: rows.drop("k", 3),
    "the first row": lambda rows: rows.drop("k", 1),
    "the last row": lambda rows: rows.drop("k", 5),
    "two rows that were swapped": swap,
    "all rows": lambda rows: rows.drop("k", 1, 2, 3, 4, 5),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_damage_is_reported_until_it_is_settled(name: str, sessions: nacre.Sessions, rows: Rows) -> None:
    say(sessions, "one", "two", "three", "four")
    DAMAGES[name](rows)
    for step in (
        lambda: None,
        lambda: sessions.get_history("k"),
        lambda: sessions.transcript("k"),
        lambda: say(sessions, "later"),
        lambda: sessions.archive("k"),
        lambda: say(sessions, "and later"),
    ):
        step()
        alone, among = sessions.verify("k"), sessions.verify()
        assert (alone.ok, among.ok) == (False, False)
    assert {finding.kind for finding in sessions.verify().findings} == {"quarantine"}
    settled = sessions.discard("k")
    assert len(settled.entries) == len(sessions.quarantine("k", settled=True)) > 0
    assert (sessions.quarantine("k"), kinds(sessions), kinds(sessions, "k")) == ([], [], [])


@pytest.mark.parametrize("name", DAMAGES)
def test_what_was_not_damaged_is_kept(name: str, sessions: nacre.Sessions, rows: Rows) -> None:
    say(sessions, "one", "two", "three", "four")
    DAMAGES[name](rows)
    left = {
        "a bit of the header": ["one", "two", "three", "four"],
        "the first row": ["one", "two", "three", "four"],
        "a bit of the last record": ["one", "two", "three"],
        "the last row": ["one", "two", "three"],
        "two rows that were swapped": ["one", "four"],
        "all rows": [],
    }
    expected = left.get(name, ["one", "three", "four"])
    assert [one.message.content for one in sessions.transcript("k")] == expected
    assert said(sessions) == expected
    say(sessions, "five")
    assert said(sessions) == [*expected, "five"]


def test_what_is_wrong_is_named_with_its_record(sessions: nacre.Sessions, rows: Rows) -> None:
    say(sessions, *"abcdefgh")
    rows.change_line("k", 3, '"b"', '"x"')
    rows.run("UPDATE {s}.records SET n = 100 WHERE n = 9")
    rows.run("UPDATE {s}.records SET line = (SELECT line FROM {s}.records WHERE n = 8) WHERE n = 4")
    rows.drop("k", 6, 7)
    details = {finding.where: finding.detail for finding in sessions.verify("k").findings}
    assert details == {
        "record 3": "record 3 is not a whole record",
        "record 4": "the row of record 4 has record 8",
        "record 6": "records 6 to 7 are missing",
        "record 9": "record 9 is missing",
    }
    assert kinds(sessions, "k") == [
        ("damage", "record 3"),
        ("damage", "record 4"),
        ("missing", "record 6"),
        ("missing", "record 9"),
    ]


def test_a_repair_says_what_it_kept_and_set_aside(
    sessions: nacre.Sessions, rows: Rows, caplog: pytest.LogCaptureFixture
) -> None:
    say(sessions, "one", "two", "three")
    rows.change_line("k", 3, "two", "tvo")
    rows.drop("k", 4)
    receipt = sessions.repair("k")
    assert (receipt.kept, receipt.set_aside) == (2, 2)
    assert receipt.quarantine == f"{sessions.location} (quarantine)"
    assert ["set aside" in message for message in caplog.messages] == [True]
    again = sessions.repair("k")
    assert (again.set_aside, again.quarantine) == (0, None)
    assert [(entry.n, entry.bytes > 0) for entry in sessions.quarantine("k")] == [(1, True), (2, False)]


def test_a_gap_that_is_new_is_noted_next_to_one_that_is_known(sessions: nacre.Sessions, rows: Rows) -> None:
    say(sessions, *"abcdef")
    rows.drop("k", 3)
    sessions.repair("k")
    rows.drop("k", 5)
    assert ("missing", "record 5") in kinds(sessions, "k")
    assert sessions.repair("k").set_aside == 1
    assert [entry.reason for entry in sessions.quarantine("k")] == [
        "record 3 is missing, and not a byte of what is missing is left",
        "record 5 is missing, and not a byte of what is missing is left",
    ]


def test_a_row_with_another_state_or_header_is_reported(sessions: nacre.Sessions, rows: Rows) -> None:
    say(sessions, "one", "two")
    say(sessions, "one", "two", key="other")
    rows.run("UPDATE {s}.sessions SET state = '[1,1,1,0,0,1]' WHERE key = 'k'")
    header = "SELECT line FROM {s}.records WHERE n = 1 AND sid = %s::uuid"
    rows.run(f"UPDATE {{s}}.records SET line = ({header}) WHERE n = 1 AND sid = %s::uuid", sid_of("k"), sid_of("other"))  # noqa: S608 - our own text
    assert kinds(sessions, "k") == [("state", "sessions")]
    assert kinds(sessions, "other") == [("header", "record 1")]


def test_a_record_that_does_not_follow_from_the_one_before_it_is_reported(sessions: nacre.Sessions, rows: Rows) -> None:
    say(sessions, "one", "two", "three", "four")
    rows.reseal("k", 4, st=[4, 9, 9, 0, 0, 4])
    assert kinds(sessions) == [("state", "record 4"), ("state", "record 5")]


def test_a_summary_of_what_is_lost_is_taken_at_its_word(sessions: nacre.Sessions, rows: Rows) -> None:
    say(sessions, "one", "two", "three")
    sessions.set_summary("k", "so far", upto=3)
    rows.drop("k", 3)
    assert kinds(sessions) == [("missing", "record 3")]


def test_a_large_payload_that_is_lost_or_changed_is_reported(sessions: nacre.Sessions, rows: Rows) -> None:
    sessions.add_message("k", "user", LARGE)
    sessions.add_message("k", "user", f"another {LARGE}")
    rows.run("DELETE FROM {s}.blobs WHERE n = 2")
    rows.run("UPDATE {s}.blobs SET data = '\\x00'")
    assert kinds(sessions, "k") == [("blob", "record 2"), ("blob", "record 3")]
    assert LARGE not in said(sessions)
    losses = sessions.read("k", lambda view: (list(map(view.whole, view.all())), view.losses)[1])
    assert losses == Losses(records=0, payloads=2)


def test_a_whole_record_that_was_set_aside_comes_back_once(sessions: nacre.Sessions, rows: Rows) -> None:
    say(sessions, "one", "two", "three")
    swap(rows)
    assert said(sessions) == ["one"]
    settled = sessions.restore("k")
    assert (settled.entries, settled.numbers) == ((1, 2), (6, 7))
    assert sorted(str(one.message.content) for one in sessions.transcript("k")) == ["one", "three", "two"]
    assert (sessions.quarantine("k"), kinds(sessions)) == ([], [])
    rows.run("UPDATE {s}.quarantine SET settled = ''")
    assert sessions.restore("k").numbers == ()
    assert len(sessions.transcript("k")) == 3


def test_a_large_payload_comes_back_with_its_record(sessions: nacre.Sessions, rows: Rows) -> None:
    say(sessions, "one", "two")
    sessions.add_message("k", "user", LARGE)
    swap(rows)
    assert said(sessions) == ["one"]
    sessions.restore("k")
    assert LARGE in [one.message.content for one in sessions.transcript("k")]
    assert kinds(sessions) == []


def test_records_of_an_archived_generation_come_back_in_it(sessions: nacre.Sessions, rows: Rows) -> None:
    say(sessions, "one", "two", "three")
    swap(rows)
    sessions.archive("k")
    say(sessions, "new")
    sessions.repair("k")
    sessions.restore("k")
    assert said(sessions) == ["new"]
    assert [one.message.content for one in sessions.transcript("k")][-1] == "new"
    assert {one.message.content for one in sessions.transcript("k")} == {"one", "two", "three", "new"}


def test_records_of_a_generation_that_is_gone_come_back_in_the_newest(sessions: nacre.Sessions, rows: Rows) -> None:
    say(sessions, "one", "two", "three")
    swap(rows)
    sessions.repair("k")
    sessions.move_to_trash("k")
    with pytest.raises(nacre.SessionNotFound, match="add a message to it first"):
        sessions.restore("k")
    say(sessions, "new")
    assert len(sessions.restore("k").numbers) == 2
    assert "two" in [one.message.content for one in sessions.transcript("k")]


def test_nothing_is_restored_of_bytes_that_are_no_record(sessions: nacre.Sessions, rows: Rows) -> None:
    say(sessions, "one", "two")
    rows.change_line("k", 3, "two", "tvo")
    sessions.repair("k")
    assert sessions.restore("k") == nacre.Settlement(key="k")
    assert len(sessions.quarantine("k")) == 1


def test_restore_and_discard_of_what_is_not_there(sessions: nacre.Sessions, rows: Rows) -> None:
    say(sessions, "one", "two", "three")
    for act in (sessions.restore, sessions.discard):
        with pytest.raises(nacre.SessionNotFound, match="no quarantine entry 7"):
            act("k", 7)
        assert act("k") == nacre.Settlement(key="k")
    swap(rows)
    sessions.repair("k")
    assert sessions.restore("k", 2).entries == (2,)
    assert sessions.discard("k", 1).entries == (1,)
    assert sessions.discard("k", 1).entries == ()
    assert [entry.settled for entry in sessions.quarantine("k", settled=True)] == ["discarded", "restored"]


def test_damage_in_what_a_fork_shares_is_reported_by_both_and_left_as_it_is_by_the_fork(
    sessions: nacre.Sessions, rows: Rows
) -> None:
    say(sessions, "one", "two", "three")
    sessions.fork("k", "fork")
    say(sessions, "own", key="fork")
    rows.change_line("k", 3, "two", "tvo")
    assert kinds(sessions, "fork") == [("damage", f"{SHARED}, record 3")]
    for _ in range(2):
        assert said(sessions, "fork") == ["one", "three", "own"]
    assert [kind for kind, _ in kinds(sessions, "fork")] == ["quarantine"]
    assert rows.run("SELECT count(*) FROM {s}.records WHERE sid = %s::uuid AND n = 3", sid_of("k")) == [(1,)]
    assert said(sessions) == ["one", "three"]
    assert {entry.key for entry in sessions.quarantine()} == {"k", "fork"}
    for key in ("k", "fork"):
        sessions.discard(key)
    assert kinds(sessions) == []
    assert said(sessions, "fork") == ["one", "three", "own"]


def test_damage_that_cannot_be_set_aside_keeps_nobody_from_reading(
    empty_database: str, rows: Rows, caplog: pytest.LogCaptureFixture
) -> None:
    with nacre.open(empty_database) as sessions:
        say(sessions, "one", "two", "three")
        rows.change_line("k", 3, "two", "tvo")
        rows.run("ALTER TABLE {s}.quarantine RENAME TO elsewhere")
        try:
            assert said(sessions) == ["one", "three"]
        finally:
            rows.run("ALTER TABLE {s}.elsewhere RENAME TO quarantine")
        assert "a damaged session could not be repaired" in caplog.messages
        assert said(sessions) == ["one", "three"]
        assert len(sessions.quarantine("k")) == 1


def test_a_session_that_was_never_there_is_not_found(sessions: nacre.Sessions) -> None:
    for act in (sessions.verify, sessions.repair):
        with pytest.raises(nacre.SessionNotFound):
            act("none")


def test_deleting_a_session_ends_its_report_and_that_of_no_other(sessions: nacre.Sessions, rows: Rows) -> None:
    for key in ("k", "other"):
        say(sessions, "one", "two", key=key)
        rows.change_line(key, 3, "two", "tvo")
        sessions.repair(key)
    sessions.delete("k")
    assert {entry.key for entry in sessions.quarantine()} == {"other"}
    assert kinds(sessions) == [("quarantine", sessions.quarantine("other")[0].ref)]


def test_a_time_that_is_none_is_reported(sessions: nacre.Sessions, rows: Rows) -> None:
    say(sessions, "one")
    rows.reseal("k", 2, ts="yesterday")
    assert kinds(sessions) == [("time", "record 2")]


def test_many_sessions_are_verified_in_parts(sessions: nacre.Sessions, rows: Rows) -> None:
    say(sessions, "one")
    columns = [name for (name,) in rows.run(_COLUMNS) if name not in ("sid", "key")]
    rows.run(
        f"INSERT INTO {{s}}.sessions (sid, key, {', '.join(columns)}) SELECT md5(i::text)::uuid, 'k' || i, "  # noqa: S608 - our own names
        f"{', '.join(columns)} FROM {{s}}.sessions, generate_series(1, 1000) AS i"
    )
    assert len({finding.key for finding in sessions.verify().findings}) == 1000


_COLUMNS = "SELECT attname FROM pg_attribute WHERE attrelid = '{s}.sessions'::regclass AND attnum > 0"


def test_what_the_rules_refuse_is_not_restored_and_stays_reported(
    empty_database: str, sessions: nacre.Sessions, rows: Rows
) -> None:
    def refuse(operation: Operation, stamp: RecordStamp, state: State, view: Records) -> Record | None:
        if isinstance(operation, Restore):
            raise nacre.InvalidMessage("not today")
        return RULES.apply(operation, stamp, state, view)

    say(sessions, "one", "two", "three")
    swap(rows)
    sessions.repair("k")
    rules = Rules(apply=refuse, replay=RULES.replay)
    with (
        closing(PostgresStore(parse(empty_database), rules=rules, labels=labels)) as store,
        pytest.raises(nacre.InvalidMessage, match="not today"),
    ):
        store.restore("k", None)
    assert len(sessions.quarantine("k")) == 2
