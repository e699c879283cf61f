from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from nacre.errors import InvalidMessage
from nacre.legacy.documents import from_earlier, is_same, moment, to_earlier, to_picoclaw
from nacre.messages import Message, ToolCall

WHEN = datetime(2026, 3, 1, 4, 0, 0, 123456, tzinfo=UTC)


def test_names_of_earlier_fields_are_ours_afterwards() -> None:
    given = {"reasoning_content": "hm", "model_name": "m", "created_at": "2026-03-01T12:00:00.123456789+08:00"}
    found = from_earlier({"role": "assistant", "content": "x", **given})
    assert found == Message(role="assistant", content="x", reasoning="hm", model="m", created=WHEN)


def test_attachments_are_media_and_go_back_where_they_were() -> None:
    given = {"role": "user", "content": "", "media": ["media://a"], "attachments": [{"type": "image", "ref": "b"}]}
    found = from_earlier(given)
    assert found.media == ("media://a", {"type": "image", "ref": "b"})
    assert to_earlier(found) == given


def test_a_tool_call_keeps_what_only_its_provider_understands() -> None:
    function = {"name": "f", "arguments": "{}", "thought_signature": "s"}
    call = {
        "id": "c",
        "type": "function",
        "function": function,
        "extra_content": {"google": {"thought_signature": "t"}},
    }
    found = from_earlier({"role": "assistant", "content": "", "tool_calls": [call]})
    (ours,) = found.tool_calls
    assert (ours.id, ours.name, ours.arguments) == ("c", "f", "{}")
    assert to_earlier(found)["tool_calls"] == [call]


@pytest.mark.parametrize(
    "field",
    [
        {"system_parts": [{"type": "text", "text": "x"}]},
        {"name": 7},
        {"content": {"text": "x"}},
        {"tool_calls": "none"},
        {"tool_calls": [{"id": 1}]},
        {"created_at": "yesterday"},
        {"media": "one"},
    ],
    ids=str,
)
def test_what_does_not_fit_is_kept_under_its_name(field: dict[str, Any]) -> None:
    found = from_earlier({"role": "user", "content": "x", **field})
    assert found.extra == field
    assert to_earlier(found) | {"content": "x"} == {"role": "user", "content": "x", **field} | {"content": "x"}


def test_nulls_and_the_year_one_mean_nothing() -> None:
    found = from_earlier({"role": "user", "content": None, "name": None, "created_at": "0001-01-01T00:00:00Z"})
    assert found == Message(role="user")


def test_of_two_spellings_ours_counts_and_the_other_is_kept() -> None:
    found = from_earlier({"role": "user", "content": "x", "reasoning": "a", "reasoning_content": "b"})
    assert (found.reasoning, found.extra) == ("a", {"reasoning_content": "b"})
    assert from_earlier(to_earlier(found)) == found


@pytest.mark.parametrize("role", [None, "", 3])
def test_a_message_without_a_role_is_none(role: Any) -> None:
    with pytest.raises(InvalidMessage):
        from_earlier({"role": role, "content": "x"})


def test_every_field_of_ours_survives_a_document() -> None:
    message = Message(
        role="assistant",
        content=[{"type": "text", "text": "x"}],
        tool_calls=(ToolCall(id="c", name="f", arguments={"a": 1}),),
        tool_call_id="d",
        name="n",
        reasoning="r",
        media=({"type": "image"}, "media://a"),
        model="m",
        created=WHEN,
        extra={"turn": 7},
    )
    assert from_earlier(to_earlier(message)) == message


@pytest.mark.parametrize(
    ("value", "found"),
    [
        ("2026-03-01T04:00:00.123456Z", WHEN),
        ("2026-03-01T04:00:00.123456", WHEN),
        (1772337600.123456, WHEN),
        (1772337600123.456, WHEN),
        ("0001-01-01T00:00:00Z", None),
        (True, None),
        (1e30, None),
        ([], None),
    ],
)
def test_times_come_in_many_spellings(value: Any, found: datetime | None) -> None:
    assert moment(value) == found


def test_a_time_that_was_never_told_is_no_difference() -> None:
    ours = Message(role="user", content="x", created=WHEN)
    assert is_same(ours, Message(role="user", content="x"))
    assert not is_same(ours, Message(role="user", content="x", created=datetime(2026, 1, 1, tzinfo=UTC)))
    assert not is_same(ours, Message(role="user", content="y"))


# ---- as picoclaw demands it

PARTS = [{"type": "text", "text": "see"}, {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}]


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        (Message(role="user", content="x"), {"role": "user", "content": "x"}),
        (Message(role="assistant"), {"role": "assistant", "content": ""}),
        (Message(role="user", content=PARTS), {"role": "user", "content": "see", "content_parts": PARTS}),
        (
            Message(role="assistant", content="", tool_calls=(ToolCall(id="1", name="f", arguments={"a": 1}),)),
            {
                "role": "assistant",
                "content": "",
                "tool_calls": [{"id": "1", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}],
            },
        ),
        (
            Message(role="user", content="x", media=("a", {"type": "image", "ref": "b"})),
            {"role": "user", "content": "x", "media": ["a"], "attachments": [{"type": "image", "ref": "b"}]},
        ),
        (Message(role="user", content="x", media=({"n": 1},)), {"role": "user", "content": "x"}),
        (Message(role="user", content="x", media=({"n": "1"}, "a")), {"role": "user", "content": "x"}),
        (
            Message(role="user", content="x", extra={"model_name": 5, "odd": [1]}),
            {"role": "user", "content": "x", "odd": [1]},
        ),
    ],
)
def test_a_message_has_the_types_that_picoclaw_demands(message: Message, expected: dict[str, object]) -> None:
    assert to_picoclaw(message) == expected


@pytest.mark.parametrize(
    "message",
    [
        Message(role="user", content="x", created=WHEN, extra={"odd": [1]}),
        Message(role="user", content=PARTS, created=WHEN),
        Message(role="assistant", created=WHEN, tool_calls=(ToolCall(id="1", name="f", arguments={"a": 1}),)),
        Message(role="assistant", content="x", created=WHEN, reasoning="r", model="m"),
    ],
)
def test_a_message_is_known_again_after_picoclaw_has_rewritten_it(message: Message) -> None:
    known = ("role", "content", "model_name", "created_at", "reasoning_content", "tool_calls")
    rewritten = {name: value for name, value in to_picoclaw(message).items() if name in known}
    assert is_same(message, from_earlier(rewritten))
    assert not is_same(message, from_earlier({**rewritten, "content": "other"}))
    assert is_same(message, from_earlier(to_picoclaw(message)))


def test_parts_come_back_from_an_export() -> None:
    assert from_earlier(to_picoclaw(Message(role="user", content=PARTS))) == Message(role="user", content=PARTS)
