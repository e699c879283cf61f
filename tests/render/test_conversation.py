"""What readers see of a conversation: calls beside results, numbers that differ, the place of a cut."""

from __future__ import annotations

from typing import Any

import pytest

from nacre.messages import ToolCall
from nacre.render.conversation import Cut, MessageView, arguments_of, describe_part, parts, text_of
from tests.render.talk import call, listing, stored


def said(*messages: Any, **options: Any) -> list[MessageView]:
    return [part for part in parts(messages, **options) if isinstance(part, MessageView)]


def test_a_result_stands_beside_its_call() -> None:
    _, asked, answer = said(*listing())
    (made,) = asked.calls
    assert (made.name, made.arguments) == ("list_files", 'path="."')
    assert made.result is not None
    assert (made.result.label, made.result.text) == ("4", "a.py\nb.py")
    assert answer.label == "5"


def test_results_in_any_order_find_their_calls() -> None:
    calls = (call("a", "x"), call("b", "y"), call("a", "z"))
    (asked,) = said(
        stored(2, "assistant", tool_calls=calls),
        stored(3, "tool", "for y", tool_call_id="b"),
        stored(4, "tool", "for x", tool_call_id="a"),
        stored(5, "tool", "for z", tool_call_id="a"),
    )
    assert [made.result.text for made in asked.calls if made.result] == ["for x", "for y", "for z"]


def test_a_result_without_a_call_stands_alone() -> None:
    found = said(stored(2, "user", "hi"), stored(3, "tool", "lost", tool_call_id="c"))
    assert [(one.label, one.role) for one in found] == [("2", "user"), ("3", "tool")]


def test_a_call_without_a_result_has_none() -> None:
    (asked,) = said(stored(2, "assistant", tool_calls=(call("c", "x"),)))
    assert asked.calls[0].result is None


def test_the_cut_stands_before_the_first_live_message() -> None:
    cut = Cut(summary="before", hidden=3)
    found = list(parts(listing(), live={5}, newest="g", cut=cut))
    assert found[-2] == cut
    assert [part.is_live for part in found if isinstance(part, MessageView)] == [False, False, True]


def test_the_cut_stands_last_where_nothing_is_live() -> None:
    cut = Cut(summary="all of it")
    assert list(parts(listing(), live=set(), newest="g", cut=cut))[-1] == cut


def test_numbers_of_older_generations_name_them() -> None:
    old, older = stored(2, "user", "a", generation="o"), stored(2, "user", "b", generation="p")
    found = said(old, older, stored(2, "user", "c", generation="g"), live={2}, newest="g")
    assert [(one.label, one.is_live) for one in found] == [("1.2", False), ("2.2", False), ("2", True)]


def test_parts_that_are_no_text_get_a_few_words() -> None:
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * 4000}}
    assert text_of([{"type": "text", "text": "see"}, image]) == ("see", ("image/png, 3.0 kB",))


@pytest.mark.parametrize(
    ("part", "words"),
    [
        ({"type": "image_url", "image_url": {"url": "https://x.org/i"}}, "image_url: https://x.org/i"),
        ({"type": "odd", "n": [1]}, 'odd: {"type":"odd","n":[1]}'),
        (7, "7"),
    ],
)
def test_other_parts_are_described(part: Any, words: str) -> None:
    assert describe_part(part) == words


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ('{"a": 1, "b": "x"}', 'a=1, b="x"'),
        ({"a": [1, 2]}, "a=[1,2]"),
        ("not json", "not json"),
        ("[" * 5000, "[" * 5000),
        ("[1]", "[1]"),
        ("", ""),
        ("null", ""),
    ],
)
def test_arguments_read_like_a_call(given: Any, shown: str) -> None:
    assert arguments_of(ToolCall(name="f", arguments=given)) == shown
