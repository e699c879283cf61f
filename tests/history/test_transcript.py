"""A part of a branch around one place, and what stands around it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import nacre
from nacre.history.transcript import CHUNK, FAILED, Transcript, Wanted, message, open_at, outline, part, stretch
from nacre.messages import Message, ToolCall
from nacre.records import View
from nacre.sessions import Sessions


@pytest.fixture
def sessions(place: str) -> Iterator[Sessions]:
    with nacre.open(place) as opened:
        yield opened


def add(sessions: Sessions, *texts: str) -> None:
    for text in texts:
        sessions.add_message("k", "user", text)


def opened(sessions: Sessions, **wanted: object) -> Transcript:
    found = sessions.read("k", lambda view: open_at(view, Wanted(**wanted)))  # type: ignore[arg-type]
    assert found is not None
    return found


def numbers(shown: Transcript) -> list[int]:
    return [one.n for chunk in shown.chunks for one in chunk.stored]


def test_the_end_is_shown_if_nothing_else_is_wanted(sessions: Sessions) -> None:
    sessions.add_messages("k", [Message(role="user", content="x")] * (3 * CHUNK))
    sessions.set_meta("k", title="T")
    shown = opened(sessions)
    assert (shown.title, shown.high, shown.live, shown.tip, shown.anchor) == ("T", 120, 120, 0, 0)
    assert numbers(shown) == list(range(CHUNK + 2, 3 * CHUNK + 2))


def test_a_place_or_a_message_is_shown_with_what_is_around_it(sessions: Sessions) -> None:
    sessions.add_messages("k", [Message(role="user", content="x")] * (5 * CHUNK))
    for shown in (opened(sessions, place=1), opened(sessions, at=2)):
        assert (shown.anchor, shown.place, numbers(shown)) == (2, 1, list(range(2, 2 * CHUNK + 2)))
    assert opened(sessions, at=9999).anchor == 9999
    assert opened(sessions, place=9999).anchor == 0


def test_a_title_that_is_no_text_is_none(sessions: Sessions) -> None:
    add(sessions, "a")
    sessions.set_meta("k", title=["T"])
    assert opened(sessions).title == ""


def test_a_message_that_was_summarised_is_shown_with_all_others(sessions: Sessions) -> None:
    add(sessions, "a", "b", "c")
    sessions.set_summary("k", "so far", upto=3)
    assert (opened(sessions).hidden, numbers(opened(sessions))) == (2, [4])
    shown = opened(sessions, at=2)
    assert (shown.is_all, numbers(shown), [bar.covers for bar in shown.bars]) == (True, [2, 3, 4], [2])


def test_a_message_of_another_branch_is_shown_on_that(sessions: Sessions) -> None:
    add(sessions, "a", "b", "c")
    sessions.rewind("k", 2)
    add(sessions, "d")
    shown = opened(sessions, at=3)
    assert (shown.tip, shown.anchor, numbers(shown)) == (4, 3, [2, 3, 4])
    assert [(fork.parent, fork.tips, fork.chosen) for fork in shown.forks] == [(2, [4, 6], 0)]
    assert numbers(opened(sessions, tip=4)) == [2, 3, 4]
    assert opened(sessions, tip=6).tip == 0
    assert numbers(opened(sessions, tip=9999)) == [2, 6]


ASKED = [ToolCall(id=id, name="f") for id in "abcd"]
RESULTS = [Message(role="tool", content="x", tool_call_id=call.id) for call in ASKED]
WORDS = [Message(role="assistant", content="x")] * (CHUNK - 2)


@pytest.mark.parametrize(
    "calls",
    [
        [Message(role="assistant", tool_calls=tuple(ASKED))],
        [Message(role="assistant", tool_calls=(call,)) for call in ASKED],
        [*(Message(role="assistant", tool_calls=(call,)) for call in ASKED), Message(role="user", content="x")],
    ],
    ids=["one message", "a message each", "words between"],
)
def test_no_result_is_apart_from_its_call(sessions: Sessions, calls: list[Message]) -> None:
    sessions.add_messages("k", [*WORDS[len(calls) :], *calls, *RESULTS, *WORDS])

    def chunk(number: int) -> Transcript | None:
        return sessions.read("k", lambda view: part(view, Wanted(), number=number))

    chunks = [found for number in range(4) if (found := chunk(number)) is not None]
    assert [[place for one in found.chunks for place in one.places] for found in chunks] == [
        list(range(1, 43)),
        list(range(43, 81)),
        [],
        [],
    ]


def test_a_run_of_results_that_is_too_long_is_cut(sessions: Sessions) -> None:
    sessions.add_messages("k", [Message(role="tool", content="x", tool_call_id="1")] * (5 * CHUNK))
    shown = sessions.read("k", lambda view: part(view, Wanted(), number=2))
    assert shown is not None
    assert [(one.places[0], one.places[-1]) for one in shown.chunks] == [(81, 120)]


def test_what_was_used_lately_is_told_and_why_the_last_message_has_no_answer(sessions: Sessions) -> None:
    add(sessions, "a")
    sessions.append("k", "use", {"prompt": 1})
    sessions.append("k", FAILED, {"after": 1, "reason": "of another"})
    sessions.append("k", FAILED, {"after": 2, "reason": "no model"})
    sessions.append("k", "use", {"prompt": 2})
    shown = opened(sessions)
    assert ([entry.data for entry in shown.uses], shown.failure) == ([{"prompt": 1}, {"prompt": 2}], "no model")
    add(sessions, "b")
    assert opened(sessions).failure == ""
    for _ in range(600):
        sessions.append("k", "x.other", {})
    assert opened(sessions).uses == []


def test_a_whole_branch_and_one_message(sessions: Sessions) -> None:
    add(sessions, "a", "b")
    sessions.truncate_history("k", 1)

    def get(view: View) -> list[list[int]]:
        outlines = [outline(view, Wanted(is_all=is_all)) for is_all in (False, True)]
        found = [stretch(view, state, shown.low, max_bytes=1)[1] for shown, state in outlines]
        alone = [one.n for n in (1, 2, 9) if (one := message(view, n)) is not None]
        return [*([one.n for one in stored] for stored in found), alone]

    assert sessions.read("k", get) == [[3], [2, 3], [2]]


def test_a_branch_is_read_a_few_messages_at_a_time_and_fewer_if_they_are_long(sessions: Sessions) -> None:
    add(sessions, *map(str, range(CHUNK)), *("x" * 100_000 for _ in range(3)), "end")

    def get(view: View) -> list[tuple[int, int]]:
        shown, state = outline(view, Wanted())
        places, found = [shown.low], []
        while places[-1] <= state.i:
            place, stored = stretch(view, state, places[-1], max_bytes=250_000)
            places.append(place)
            found.append((place, len(stored)))
        return found

    assert sessions.read("k", get) == [(CHUNK + 1, CHUNK), (CHUNK + 3, 2), (2 * CHUNK + 3, 2)]
    assert sessions.read("k", lambda view: stretch(view, view.state, 41, max_bytes=1)[0]) == 42


def test_a_branch_stays_the_same_while_it_is_read_whatever_happens_to_the_session(sessions: Sessions) -> None:
    add(sessions, "a", "b", "c")
    found = sessions.read("k", lambda view: outline(view, Wanted()))
    assert found is not None
    sessions.rewind("k", before=3)
    add(sessions, "other")
    sessions.truncate_history("k", 1)
    rest = sessions.read("k", lambda view: stretch(view, found[1], found[0].low, max_bytes=1))
    assert rest is not None
    assert [one.message.content for one in rest[1]] == ["a", "b", "c"]
