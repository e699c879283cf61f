"""What readers see of a conversation: calls beside results, numbers that differ, the place of a cut."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from nacre.messages import Message, Stored, ToolCall
from nacre.render.conversation import Cut, MessageView, arguments_of, describe_part, parts, text_of
from tests.item_orders import ORDERS, TWICE
from tests.render.talk import NOW, call, listing, long, stored


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


@pytest.mark.parametrize("order", ORDERS)
def test_each_call_of_every_framework_has_its_result(order: str) -> None:
    found = said(*(numbered(ORDERS[order])))
    made = [(one.id, one.result and one.result.text) for asked in found for one in asked.calls]
    assert made == [(id, f"{id.upper()}!") for id, _ in made]
    assert made
    assert all(one.role != "tool" for one in found)
    places = [int(one.label) for one in found]
    assert places == sorted(places)


@pytest.mark.parametrize("order", TWICE)
def test_a_second_result_stands_where_it_came(order: str) -> None:
    found = said(*numbered(TWICE[order]))
    (first,) = [one.result for asked in found for one in asked.calls if one.id == "a"]
    assert first is not None
    assert first.text == "needs confirmation"
    assert [one.text for one in found if one.role == "tool"] == ["A!"]


def test_a_call_that_is_made_again_waits_no_longer() -> None:
    again = stored(4, "assistant", tool_calls=(call("c", "x"),))
    one = parts([stored(2, "assistant", tool_calls=(call("c", "x"),)), stored(3, "user", "again"), again])
    found = [part.label for part in one if isinstance(part, MessageView)]
    assert found == ["2", "3", "4"]
    answered = said(
        stored(2, "assistant", tool_calls=(call("c", "x"),)), again, stored(5, "tool", "y", tool_call_id="c")
    )
    assert [made.result and made.result.label for asked in answered for made in asked.calls] == [None, "5"]


def test_a_result_without_an_id_belongs_to_what_stands_before_it() -> None:
    asked = stored(2, "assistant", tool_calls=(call("", "x"),))
    (next_to,) = said(asked, stored(3, "tool", "y"))
    assert next_to.calls[0].result is not None
    assert [one.label for one in said(asked, stored(3, "user", "and?"), stored(4, "tool", "y"))] == ["2", "3", "4"]


def test_a_result_of_another_branch_or_generation_is_not_the_calls() -> None:
    asked = stored(2, "assistant", tool_calls=(call("c", "x"),))
    gone, now = stored(3, "tool", "gone", tool_call_id="c"), stored(5, "tool", "now", tool_call_id="c")
    found = said(asked, gone, now, live={2, 5}, newest="g")
    assert [(one.label, one.is_live) for one in found] == [("2", True), ("3", False)]
    assert found[0].calls[0].result is not None
    assert found[0].calls[0].result.text == "now"
    other = stored(3, "tool", "y", generation="h", tool_call_id="c")
    assert [one.role for one in said(asked, other, newest="h")] == ["assistant", "tool"]


def test_a_call_without_a_result_holds_back_only_some_of_a_long_conversation() -> None:
    read = 0

    def talk() -> Iterator[Stored]:
        nonlocal read
        yield stored(2, "assistant", tool_calls=(call("c", "x"),))
        for one in long(1000):
            read += 1
            yield one
        yield stored(2000, "tool", "late", tool_call_id="c")

    found = parts(talk())
    assert next(found) == said(stored(2, "assistant", tool_calls=(call("c", "x"),)))[0]
    assert read < 200
    rest = list(found)
    assert len(rest) == 1001
    assert isinstance(rest[-1], MessageView)
    assert rest[-1].text == "late"


def numbered(messages: list[Message]) -> list[Stored]:
    return [Stored(generation="g", n=n, ts=NOW, message=message) for n, message in enumerate(messages, 2)]


def test_of_an_item_without_a_role_its_words_are_shown_without_base64() -> None:
    summary = [{"type": "summary_text", "text": "I added"}]
    thought = {"type": "reasoning", "summary": summary, "encrypted_content": "A" * 400, "openai_agents": {}}
    picture = {"type": "image_generation_call", "result": "A" * 4000, "openai_agents": {}}
    shown = said(stored(2, "", extra=thought), stored(3, "", extra=picture))
    assert [one.text for one in shown] == ["I added", '```json\n{"result":"3.0 kB"}\n```']
