"""What is live: arithmetic on the last record, and a way around records that are lost."""

from __future__ import annotations

import msgspec
import pytest

from nacre.codec import encode_message
from nacre.errors import Conflict
from nacre.history import session_state
from nacre.messages import Message
from nacre.records import (
    AppendRecord,
    Delete,
    MemoryView,
    Operation,
    Pop,
    Record,
    RecordStamp,
    Rewind,
    SetMeta,
    State,
    Summarise,
    Truncate,
)

TIME = "2026-11-15T18:00:00.000Z"


def user(text: str) -> Operation:
    return encode_message(Message(role="user", content=text))


def grown(view: MemoryView, operation: Operation, *, tx: tuple[int, int] | None = None) -> MemoryView:
    """The past with one record more, as it would be read back."""
    record = session_state.apply(operation, RecordStamp(n=view.n + 1, ts=TIME, tx=tx), view.state, view)
    assert record is not None
    return MemoryView([*view.all(), msgspec.json.decode(msgspec.json.encode(record), type=Record)])


def log(*operations: Operation) -> MemoryView:
    """A log of a header, which is record 1, and what the wishes become."""
    view = MemoryView([Record(v=1, n=1, t="open", ts=TIME, st=State())])
    for operation in operations:
        view = grown(view, operation)
    return view


def without(view: MemoryView, *lost: int) -> MemoryView:
    """The past after some of its records were lost to damage."""
    return MemoryView(record for record in view.all() if record.n not in lost)


def texts(view: MemoryView, last: int | None = None) -> list[object]:
    return [message.content for message in session_state.history(view, last)]


A, B, C, D, E = map(user, "abcde")


# What each wish makes of the state


@pytest.mark.parametrize(
    ("operations", "state"),
    [
        ([A], [2, 1, 1, 0, 0, 2]),
        ([A, B, C], [4, 3, 3, 0, 0, 4]),
        ([A, B, C, Summarise("s", 2)], [4, 3, 2, 5, 0, 5]),
        ([A, B, C, Summarise("s", 2), Truncate(1)], [4, 3, 1, 5, 0, 6]),
        ([A, B, Summarise("s")], [3, 2, 2, 4, 0, 4]),
        ([A, B, Summarise("s", 3)], [3, 2, 0, 4, 0, 4]),
        ([A, B, Truncate(0)], [3, 2, 0, 0, 0, 4]),
        ([A, B, Truncate(-5)], [3, 2, 0, 0, 0, 4]),
        ([A, SetMeta({"title": "T"})], [2, 1, 1, 0, 3, 2]),
        ([A, AppendRecord("use", {}), AppendRecord("x.y", {})], [2, 1, 1, 0, 0, 2]),
        ([A, Delete()], [2, 1, 1, 0, 0, 2]),
        ([A, B, C, Rewind(2)], [2, 1, 1, 0, 0, 5, 5]),
        ([A, B, C, Rewind(2), D], [6, 2, 2, 0, 0, 6, 5]),
        ([A, Summarise("s"), Rewind(0)], [0, 0, 0, 0, 0, 4, 4]),
        ([A, Summarise("s"), Rewind(0, keeps_summary=True)], [0, 0, 0, 3, 0, 4, 4]),
        ([A, SetMeta({"a": 1}), Rewind(2)], [2, 1, 1, 0, 3, 4, 4]),
        ([A, B, Pop()], [2, 1, 1, 0, 0, 4, 4]),
        ([A, Pop()], [0, 0, 0, 0, 0, 3, 3]),
        ([A, B, C, Truncate(2), Pop()], [3, 2, 1, 0, 0, 6, 6]),
        ([A, B, Summarise("s", 2), Pop()], [2, 1, 0, 4, 0, 5, 5]),
    ],
)
def test_the_state_after_a_record(operations: list[Operation], state: list[int]) -> None:
    assert log(*operations).state == State(*state)


@pytest.mark.parametrize(
    ("operations", "operation"),
    [
        ([], Truncate(0)),
        ([A], Truncate(1)),
        ([A], Truncate(9)),
        ([], Pop()),
        ([A, Truncate(0)], Pop()),
        ([], Rewind(0)),
        ([A, Pop()], Rewind(0)),
    ],
)
def test_what_would_change_nothing_is_not_recorded(operations: list[Operation], operation: Operation) -> None:
    view = log(*operations)
    assert session_state.apply(operation, RecordStamp(n=view.n + 1, ts=TIME), view.state, view) is None


@pytest.mark.parametrize(
    ("operations", "operation"),
    [
        ([A, B], Summarise("s", 9)),
        ([A, B], Summarise("s", 1)),
        ([A, B, Truncate(1)], Summarise("s", 2)),
        ([A, B, Pop()], Summarise("s", 3)),
        ([A, SetMeta({}), B], Summarise("s", 3)),
        ([A], Rewind(9)),
        ([A], Rewind(-1)),
    ],
)
def test_what_does_not_fit_is_a_conflict(operations: list[Operation], operation: Operation) -> None:
    view = log(*operations)
    with pytest.raises(Conflict):
        session_state.apply(operation, RecordStamp(n=view.n + 1, ts=TIME), view.state, view)


def test_only_the_end_of_a_group_can_be_gone_back_to() -> None:
    view = grown(grown(log(A), B, tx=(3, 2)), C, tx=(3, 2))
    with pytest.raises(Conflict, match="record 3 is inside the group 3 to 4"):
        grown(view, Rewind(3))
    assert texts(grown(view, Rewind(4))) == ["a", "b", "c"]


def test_a_message_names_the_one_before_it_on_its_branch() -> None:
    view = log(A, B, Rewind(2), C, Pop(), D)
    assert [record.p for record in view.all() if record.t == "msg"] == [0, 2, 2, 2]


# What can be read


def test_history_follows_the_branch() -> None:
    view = log(A, B, Rewind(2), C, D, Truncate(2), E)
    assert texts(view) == ["c", "d", "e"]
    assert texts(view, 2) == ["d", "e"]
    assert texts(view, 0) == []
    assert texts(view, -1) == []


def test_history_leaps_over_a_long_abandoned_branch() -> None:
    view = log(A, *[B] * 100, Rewind(2), C)
    assert texts(view) == ["a", "c"]


def test_meta_is_merged_and_none_takes_away() -> None:
    view = log(SetMeta({"title": "T", "a": 1}), A, SetMeta({"a": None, "b": 2}))
    assert session_state.meta(view, view.state) == {"title": "T", "b": 2}


def test_what_a_pop_took_off_is_known_by_its_record() -> None:
    view = log(A, B, AppendRecord("x.y", {}), Pop(), C)
    assert session_state.popped(view, 5, None) == session_state.history(log(A, B))[-1]
    assert session_state.popped(view, 5, "other") is None
    assert [session_state.popped(view, n, None) for n in (4, 6, 99)] == [None, None, None]


def test_a_pop_whose_message_is_lost_took_off_what_is_left() -> None:
    view = MemoryView([record for record in log(A, Pop()).all() if record.n == 3])
    assert session_state.popped(view, 3, None) is None


def test_a_summary_covers_a_message_of_an_earlier_branch_that_is_still_live() -> None:
    view = log(A, B, C, Rewind(3), D, Rewind(6), E, Summarise("s", 3))
    assert texts(view) == ["d", "e"]


def test_a_summary_does_not_cover_a_message_of_a_branch_that_was_left() -> None:
    with pytest.raises(Conflict):
        log(A, B, C, Rewind(3), D, Summarise("s", 4))


def test_a_summary_finds_its_message_where_the_record_of_a_branch_is_lost() -> None:
    view = without(log(A, B, C, Rewind(3), D), 5)
    assert session_state.apply(Summarise("s", 2), RecordStamp(n=7, ts=TIME), view.state, view) is not None


def test_compaction_keeps_what_is_live_and_in_force() -> None:
    view = log(A, B, C, Summarise("s", 2), SetMeta({"a": 1}), SetMeta({"b": 1}), Truncate(1))
    assert session_state.keep(view) == {4, 5, 7}


def test_going_back_needs_the_messages_and_the_summary_of_then() -> None:
    view = log(A, B, Summarise("s", 2), C, Rewind(0), D)
    assert session_state.records_needed(view, 5) == {3, 4, 5}
    assert session_state.records_needed(view, 3) == {2, 3}
    assert session_state.records_needed(view, 99) == set()


# What is lost is bridged


def test_a_lost_message_costs_only_itself() -> None:
    view = log(A, B, C, D)
    assert [texts(without(view, n)) for n in (2, 3, 4)] == [["b", "c", "d"], ["a", "c", "d"], ["a", "b", "d"]]
    assert texts(without(view, 3, 4)) == ["a", "d"]
    assert texts(without(view, 1, 2)) == ["b", "c", "d"]


def test_the_last_message_may_be_lost_too() -> None:
    view = without(log(A, B, C, AppendRecord("x.y", {})), 4)
    assert texts(view) == ["a", "b"]


def test_a_hole_counts_as_a_message() -> None:
    view = log(A, B, C, D)
    assert texts(without(grown(view, Truncate(3)), 4)) == ["b", "d"]
    assert texts(without(grown(view, Truncate(2)), 4)) == ["d"]


def test_a_lost_message_on_a_branch_is_bridged_by_the_rewind() -> None:
    view = without(log(A, B, C, Rewind(2), D, E), 6)
    assert texts(view) == ["a", "e"]


def test_where_the_way_back_is_lost_another_branch_is_not_mistaken_for_it() -> None:
    view = without(log(A, B, C, Rewind(2), D, E), 5, 6)
    assert texts(view) == ["e"]


def test_a_lost_summary_gives_way_to_the_one_before() -> None:
    view = log(Summarise("first"), A, Summarise("second"), B)
    assert session_state.summary(view, view.state) == "second"
    assert session_state.summary(without(view, 4), view.state) == "first"
    assert session_state.summary(without(view, 2, 4), view.state) == ""


def test_a_past_without_its_beginning_has_no_summary_before_it() -> None:
    view = log(Summarise("first"), A)
    assert session_state.summary(without(view, 1, 2), view.state) == ""


def test_lost_meta_gives_way_to_the_one_before() -> None:
    view = log(SetMeta({"a": 1}), SetMeta({"b": 2}), A)
    assert session_state.meta(without(view, 3), view.state) == {"a": 1}
    assert session_state.meta(without(view, 2, 3), view.state) == {}


def test_a_record_of_another_kind_is_not_taken_for_the_summary() -> None:
    view = log(A, AppendRecord("x.y", {}))
    assert session_state.summary(view, State(sp=3)) == ""


# What follows another state than it did


def test_redone_records_follow_what_is_left() -> None:
    view = log(A, B, C, Summarise("s", 2), Truncate(1), SetMeta({"a": 1}), AppendRecord("x.y", {}), Pop(), Rewind(4), D)
    state = State()
    for record in view.all():
        link, state = session_state.replay(record, state, view)
        assert state == record.st
        assert record.t != "msg" or link == record.p


def test_a_redone_message_links_to_the_new_one_before_it() -> None:
    view = log(A, B, C)
    record = view.find(4)
    assert record is not None
    assert session_state.replay(record, State(2, 1, 1, 0, 0, 2), view) == (2, State(4, 2, 2, 0, 0, 4))


def test_a_redone_record_whose_ground_is_gone_has_no_effect() -> None:
    view = log(A, B, Summarise("s", 2))
    record = view.find(4)
    assert record is not None
    assert session_state.replay(record, State(3, 1, 1, 0, 0, 3), without(view, 2)) == (None, State(3, 1, 1, 0, 0, 3))


def test_a_redone_truncation_that_changes_nothing_leaves_the_state() -> None:
    view = log(A, B, Truncate(1))
    record = view.find(4)
    assert record is not None
    assert session_state.replay(record, State(2, 1, 1, 0, 0, 2), view) == (None, State(2, 1, 1, 0, 0, 2))
