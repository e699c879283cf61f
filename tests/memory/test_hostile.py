"""Whatever a model answers: no exception, no fact that was not said, and a line for the day."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from itertools import count
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from nacre.memory import extraction
from nacre.memory.store import Line, Part
from nacre.memory.text_match import names, salient, stem, stems
from nacre.memory.turn_reader import Turn

SAID = Turn(
    id="t",
    key="k",
    n=2,
    upto=3,
    asked="I moved to Lisbon in March and my sister Ana runs a bakery on port 8080",
    answered="Congratulations!",
    own="I moved to Lisbon in March and my sister Ana runs a bakery on port 8080",
    at=datetime(2026, 11, 15, 18, 0, tzinfo=UTC),
)
WORDS = st.sampled_from(
    ["Lisbon", "Paris", "Ana", "bakery", "not", "8080", "9090", "the user", "sister", "gold", "~~", "- "]
)
LIES = st.lists(WORDS, max_size=6).map(" ".join) | st.text(max_size=60)
FACTS = (
    st.fixed_dictionaries({"subject": st.text(max_size=9) | st.none(), "text": LIES}) | LIES | st.integers() | st.none()
)
SHAPED = st.fixed_dictionaries({"line": LIES | st.none() | st.integers(), "facts": st.lists(FACTS, max_size=8) | LIES})
JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | LIES,
    lambda inner: st.lists(inner) | st.dictionaries(LIES, inner, max_size=4),
    max_leaves=12,
)


def learned_from(learned: extraction.Extraction) -> list[Part]:
    ids = map(str, count())
    return extraction.new_facts(
        SAID, learned, near=lambda *_: [], is_unwanted=lambda _: False, new_id=lambda: next(ids)
    )


def check(said: Any) -> None:
    learned = extraction.parse_answer(said)
    line = extraction.daily_line(SAID, learned, id="d")
    assert line.text
    assert "\n" not in line.text
    for part in learned_from(learned):
        assert isinstance(part, Line)
        wanted = salient(part.text)
        assert wanted
        assert len(wanted & stems(SAID.said)) >= 0.7 * len(wanted)
        assert {stem(name) for name in names(part.text)} <= stems(SAID.said)
        assert "\n" not in part.text
        assert len(part.text) <= 300


@settings(max_examples=400, deadline=None)
@given(shaped=SHAPED, before=st.text(max_size=20), after=st.text(max_size=20), fence=st.booleans())
def test_shaped_answers_of_any_content(shaped: Any, before: str, after: str, fence: bool) -> None:
    body = json.dumps(shaped)
    check(f"{before}```json\n{body}\n```{after}" if fence else f"{before}{body}{after}")


@settings(max_examples=150, deadline=None)
@given(said=st.text() | JSON.map(json.dumps) | JSON)
def test_answers_of_any_shape(said: Any) -> None:
    check(said)


@settings(max_examples=200, deadline=None)
@given(shaped=SHAPED, cut=st.integers(0, 200))
def test_answers_cut_short(shaped: Any, cut: int) -> None:
    check(json.dumps(shaped)[:cut])


def test_answers_made_to_break_a_parser() -> None:
    for said in (
        "[" * 200_000,
        '{"a":' * 100_000,
        '{"line": "\\ud800", "facts": ["\\ud800 Lisbon"]}',
        '{"facts": ' + "9" * 10_000 + "}",
        '{"line": NaN}',
        "\0" * 1000,
        '{"line": "x", "facts": [' + '{"text": "Lisbon"},' * 10_000 + "{}]}",
        '<think>{"line": "Paris"}</think>{"line": "Lisbon it is", "facts": []}',
    ):
        check(said)
    assert extraction.parse_answer('Sure! {"line": "ok", "facts": ["a", {"text": "b", "subject": 3}]} Bye').facts == (
        extraction.Proposal(text="a"),
        extraction.Proposal(text="b"),
    )


def test_what_was_said_is_believed_in_any_fence() -> None:
    said = (
        'Here:\n```json\n{"line": "Moved to Lisbon.", "facts": [{"subject": "home", "text": "Moved to Lisbon"}]}\n```'
    )
    learned = extraction.parse_answer(said)
    assert extraction.daily_line(SAID, learned, id="d").text == "Moved to Lisbon."
    assert [part.text for part in learned_from(learned) if isinstance(part, Line)] == ["Moved to Lisbon"]
