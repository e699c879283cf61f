"""Messages by their place on a branch, and the branches beside it."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

import nacre
from nacre.history import branches, session_state
from nacre.history.branches import alternatives, bars, between, index_of, place_of, segments
from nacre.messages import Message
from nacre.records import MemoryView, Record, State, View
from nacre.sessions import Sessions


@pytest.fixture
def sessions(place: str) -> Iterator[Sessions]:
    with nacre.open(place) as opened:
        yield opened


def add(sessions: Sessions, texts: str) -> None:
    for text in texts:
        sessions.add_message("k", "user", text)


def records(sessions: Sessions) -> list[Record]:
    return sessions.read("k", lambda view: list(view.all())) or []


def whole(st: State) -> State:
    """A branch with all its messages, whatever of it is live."""
    return State(hd=st.hd, i=st.i, live=st.i, br=st.br)


def test_messages_are_found_by_place_on_every_branch(sessions: Sessions) -> None:
    random_ = random.Random(7)
    add(sessions, "a")
    for _ in range(60):
        match random_.randrange(5):
            case 0:
                sessions.rewind("k", random_.randrange(1, sessions.snapshot("k").n))
            case 1:
                sessions.append("k", "use", {"prompt": 1})
            case _:
                add(sessions, "x")

    def check(view: View) -> bool:
        for record in view.all():
            state = whole(record.st)
            chain = [one.n for one in session_state.chain(view, state)][::-1]
            for place, number in enumerate(chain, 1):
                assert [one.n for one in between(view, state, place, place)] == [number]
                assert place_of(view, state, number) == place
        return True

    assert sessions.read("k", check)


def test_places_outside_a_branch_have_no_messages(sessions: Sessions) -> None:
    add(sessions, "abc")
    view = MemoryView(records(sessions))
    assert between(view, view.state, 4, 9) == []
    assert [one.n for one in between(view, view.state, -5, 99)] == [2, 3, 4]
    assert [place_of(view, view.state, n) for n in (1, 2, 9)] == [0, 1, 0]
    assert place_of(view, records(sessions)[1].st, 3) == 0


def test_a_message_of_another_branch_has_no_place(sessions: Sessions) -> None:
    add(sessions, "ab")
    sessions.rewind("k", 2)
    add(sessions, "c")
    view = MemoryView(records(sessions))
    assert [place_of(view, view.state, n) for n in (2, 3, 5)] == [1, 0, 2]


@pytest.mark.parametrize("lost", [3, 4, 5])
def test_a_lost_message_is_left_out_and_moves_no_other(sessions: Sessions, lost: int) -> None:
    add(sessions, "abcdef")
    view = MemoryView(record for record in records(sessions) if record.n != lost)
    for place in range(1, 7):
        n = place + 1
        assert [one.n for one in between(view, view.state, place, place)] == ([] if n == lost else [n])
    assert [one.n for one in between(view, view.state, 1, 5)] == [n for n in range(2, 7) if n != lost]


def test_what_is_left_of_a_place_leads_to_the_messages_before_it(sessions: Sessions) -> None:
    add(sessions, "ab")
    sessions.append("k", "use", {})
    add(sessions, "c")
    # The message at the second place is lost, what was stored after it is not; and the other way round.
    for lost in ({3}, {4}, {3, 4}):
        view = MemoryView(record for record in records(sessions) if record.n not in lost)
        assert [one.n for one in between(view, view.state, 1, 2)] == [n for n in (2, 3) if n not in lost]


def test_a_branch_whose_end_or_beginning_is_lost_is_read_as_far_as_it_goes(sessions: Sessions) -> None:
    add(sessions, "abc")
    sessions.rewind("k", 3)
    add(sessions, "de")
    all_records = records(sessions)
    state = all_records[-1].st
    without = {n: MemoryView(record for record in all_records if record.n != n) for n in (3, 5, 7)}
    assert between(MemoryView(all_records[:5]), state, 3, 3) == []
    assert [one.n for one in between(without[7], state, 1, 3)] == [2, 3, 6]
    assert [one.n for one in between(without[5], state, 3, 3)] == [6]
    assert [one.n for one in between(without[3], state, 1, 2)] == [2]
    assert between(MemoryView([]), State(hd=9, i=9, live=9, br=9), 1, 2) == []


def test_what_compaction_has_moved_out_is_found_by_its_place(tmp_path: object) -> None:
    with nacre.open(str(tmp_path)) as stored:
        for _ in range(4):
            stored.add_messages("k", [Message(role="user", content="x" * 400)] * 250)
        stored.set_summary("k", "short", upto=998)
        stored.save("k")

        def check(view: View) -> bool:
            assert next(view.back(500)).n == 1, "nothing was moved out"
            assert [one.n for one in between(view, view.state, 100, 140)] == list(range(101, 142))
            assert [one.n for one in between(view, view.state, 995, 999)] == list(range(996, 1001))
            assert place_of(view, view.state, 501) == 500
            return True

        assert stored.read("k", check)


def test_few_records_are_read_for_messages_that_were_moved_out(
    tmp_path: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    with nacre.open(str(tmp_path)) as stored:
        for _ in range(4):
            stored.add_messages("k", [Message(role="user", content="x" * 400)] * 1000)
        stored.set_summary("k", "short", upto=3998)
        stored.save("k")

        def count(view: View) -> int:
            found: list[int] = []
            find = view.find

            def counted(n: int) -> Record | None:
                found.append(n)
                return find(n)

            monkeypatch.setattr(view, "find", counted)
            assert len(between(view, view.state, 100, 140)) == 41
            return len(found)

        assert (stored.read("k", count) or 0) < 120


# ---- branches beside each other


def test_branches_part_behind_a_message_and_one_of_them_is_shown(sessions: Sessions) -> None:
    add(sessions, "ab")
    sessions.rewind("k", 2)
    add(sessions, "c")
    sessions.rewind("k", 2)
    add(sessions, "d")
    view = MemoryView(records(sessions))
    assert alternatives(view, view.state) == {2: [3, 5, 7]}
    assert [index_of(view, view.state, 2, [3, 5, 7]), index_of(view, view.state, 2, [3, 5])] == [2, -1]
    assert index_of(view, records(sessions)[2].st, 2, [3, 5, 7]) == 0
    assert index_of(view, records(sessions)[1].st, 2, [3, 5, 7]) == -1
    assert index_of(view, view.state, 3, [3, 5, 7]) == -1


def test_branches_from_the_beginning_are_beside_all(sessions: Sessions) -> None:
    add(sessions, "ab")
    sessions.clear("k")
    add(sessions, "c")
    view = MemoryView(records(sessions))
    assert alternatives(view, view.state) == {0: [3, 5]}
    assert index_of(view, view.state, 0, [3, 5]) == 1


def test_branches_that_are_not_passed_are_not_told_of(sessions: Sessions) -> None:
    add(sessions, "abc")
    sessions.rewind("k", 3)
    add(sessions, "d")
    sessions.rewind("k", 2)
    add(sessions, "e")
    view = MemoryView(records(sessions))
    assert alternatives(view, view.state) == {2: [4, 8]}


def test_a_rewind_without_messages_behind_it_is_no_branch(sessions: Sessions) -> None:
    add(sessions, "ab")
    sessions.rewind("k", 2)
    view = MemoryView(records(sessions))
    assert alternatives(view, view.state) == {}


def test_of_many_branches_the_newest_are_known(sessions: Sessions, monkeypatch: pytest.MonkeyPatch) -> None:
    add(sessions, "a")
    for _ in range(3):
        sessions.rewind("k", 2)
        add(sessions, "b")
    view = MemoryView(records(sessions))
    assert [one.since for one in segments(view)] == [7, 5, 3, 0]
    monkeypatch.setattr(branches, "_MAX_BRANCHES", 2)
    assert [one.since for one in segments(view)] == [7, 5]


@pytest.mark.parametrize(("lost", "since"), [({5}, []), ({1, 2, 3, 4}, [5]), ({3}, [5])])
def test_branches_are_known_as_far_as_they_can_be_read(sessions: Sessions, lost: set[int], since: list[int]) -> None:
    add(sessions, "a")
    for _ in range(2):
        sessions.rewind("k", 2)
        add(sessions, "b")
    view = MemoryView(record for record in records(sessions) if record.n not in lost)
    assert [one.since for one in segments(view)] == since


# ---- summaries


def test_the_summaries_of_a_branch_are_told_newest_first(sessions: Sessions, monkeypatch: pytest.MonkeyPatch) -> None:
    add(sessions, "abcd")
    sessions.set_summary("k", "one", upto=2)
    sessions.set_summary("k", "two", upto=4)
    view = MemoryView(records(sessions))
    assert [(bar.text, bar.covers) for bar in bars(view, view.state)] == [("two", 3), ("one", 1)]
    monkeypatch.setattr(branches, "_MAX_SUMMARIES", 1)
    assert [bar.text for bar in bars(view, view.state)] == ["two"]


def test_summaries_of_another_branch_or_that_are_lost_end_the_list(sessions: Sessions) -> None:
    add(sessions, "ab")
    sessions.set_summary("k", "one", upto=2)
    sessions.rewind("k", 4)
    sessions.set_summary("k", "two", upto=3)
    view = MemoryView(records(sessions))
    assert [bar.text for bar in bars(view, view.state)] == ["two"]
    assert bars(MemoryView([]), view.state) == []
    alone = MemoryView(record for record in records(sessions) if record.t == "sum" and record.text == "two")
    assert [bar.text for bar in bars(alone, view.state)] == ["two"]
