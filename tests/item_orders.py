"""Conversations in the order in which each framework stores them, with one result for each call."""

from __future__ import annotations

from typing import Any

from nacre.messages import Message, ToolCall


def said(role: str, text: str | None, **extra: Any) -> Message:
    return Message(role=role, content=text, extra=extra)


def calls(*ids: str) -> Message:
    return Message(role="assistant", tool_calls=tuple(ToolCall(id=id, name=f"tool_{id}", arguments={}) for id in ids))


def gives(id: str, text: str) -> Message:
    return Message(role="tool", tool_call_id=id, content=text)


HI, DONE, ITEM = said("user", "hi"), said("assistant", "done"), said("", None, type="reasoning")
CONFIRM = gives("a", "needs confirmation")

ORDERS: dict[str, list[Message]] = {
    "one message with all calls": [HI, calls("a", "b"), gives("a", "A!"), gives("b", "B!"), DONE],
    "each call a message": [HI, calls("a"), calls("b"), gives("a", "A!"), gives("b", "B!"), DONE],
    "results in another order": [HI, calls("a"), calls("b"), gives("b", "B!"), gives("a", "A!"), DONE],
    "items between calls": [HI, ITEM, calls("a"), ITEM, calls("b"), ITEM, gives("a", "A!"), gives("b", "B!"), DONE],
    "words between calls": [HI, calls("a"), said("assistant", "and"), calls("b"), gives("a", "A!"), gives("b", "B!")],
    "a note between": [HI, calls("a", "b"), gives("b", "B!"), said("note", "now Eve"), gives("a", "A!"), DONE],
    "an approval": [HI, calls("a"), said("user", None, agent_framework={}), gives("a", "A!"), DONE],
    "an approval that was asked for": [HI, calls("a"), said("assistant", None), said("user", None), gives("a", "A!")],
    "a user who waits": [HI, calls("a"), said("user", "are you there?"), gives("a", "A!"), DONE],
    "ids that come again": [HI, calls("a"), gives("a", "A!"), DONE, HI, calls("a"), gives("a", "A!"), DONE],
}
"""Each call `a` has the result `A!`, each call `b` the result `B!`."""

TWICE: dict[str, list[Message]] = {
    "a confirmation": [HI, calls("a"), calls("c"), CONFIRM, gives("c", "C!"), gives("a", "A!"), DONE],
    "a confirmation in one event": [HI, calls("a"), CONFIRM, gives("a", "A!"), DONE],
    "a tool that runs for long": [HI, calls("a"), CONFIRM, said("assistant", "wait"), gives("a", "A!"), DONE],
    "a user who asks meanwhile": [
        HI, calls("a"), CONFIRM, said("assistant", "wait"), said("user", "and?"), gives("a", "A!"), DONE
    ],
}  # fmt: skip
"""Call `a` has the result `needs confirmation` first, and then `A!`."""
