"""Whatever the order in which a framework stores a turn, models are shown each call with its result."""

from __future__ import annotations

import pytest

import nacre
from nacre.codec import encode_message
from nacre.history.lint import snags
from nacre.history.pairing import INTERRUPTED, pair
from nacre.history.window import window
from nacre.messages import Message
from tests import provider_rules
from tests.history import bodies
from tests.history.test_session_state import log
from tests.item_orders import ORDERS, TWICE

EVERY = {**ORDERS, **TWICE}


def results(shown: list[Message]) -> list[object]:
    return [message.content for message in shown if message.role == "tool"]


@pytest.mark.parametrize("order", EVERY)
def test_each_call_is_shown_with_its_last_result(order: str) -> None:
    expected = [f"{call.id.upper()}!" for message in EVERY[order] for call in message.tool_calls]
    assert results(pair(EVERY[order])) == expected
    assert results(window(EVERY[order], tokens=10**6, limit=10**6).messages) == expected


@pytest.mark.parametrize("order", EVERY)
def test_every_cut_is_taken_by_every_provider(order: str) -> None:
    said = EVERY[order]
    for begin in range(len(said)):
        for end in range(begin + 1, len(said) + 1):
            messages = said[begin:end]
            bodies.check(window(messages, tokens=10**6, limit=10**6).messages)
            bodies.check(window(messages, tokens=20, limit=3).messages)
            if chat := nacre.to_openai(messages):
                provider_rules.openai({"model": "m", "messages": chat})
            if turns := nacre.to_anthropic(messages)[1]:
                provider_rules.anthropic({"model": "m", "max_tokens": 9, "messages": turns})


@pytest.mark.parametrize("order", EVERY)
def test_a_request_begins_with_the_one_before_but_for_a_late_result(order: str) -> None:
    said = EVERY[order]
    for end in range(1, len(said)):
        before, after = pair(said[:end]), pair(said[: end + 1])
        changed = [old.content for old, new in zip(before, after, strict=False) if old != new]
        assert changed in ([], [INTERRUPTED], ["needs confirmation"])
        assert not changed or said[end].role == "tool"


@pytest.mark.parametrize("order", ORDERS)
def test_nothing_is_in_the_way_of_going_on(order: str) -> None:
    assert snags(log(*map(encode_message, ORDERS[order]))) == []


@pytest.mark.parametrize("order", TWICE)
def test_a_second_result_is_told(order: str) -> None:
    assert [snag.kind for snag in snags(log(*map(encode_message, TWICE[order])))] == ["duplicate-result"]


def test_an_approval_is_no_words_of_the_user() -> None:
    shown = pair(ORDERS["an approval"])
    assert [message.content for message in shown if message.role == "user"] == ["hi"]
