"""Asking a person whether a tool may run: yes, no, or always in this session."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Literal

from nacre.agent.actor import Ask
from nacre.agent.ports import Tool
from nacre.entries import ToolCall

Answer = Literal["yes", "no", "always"]

_MOST_LINES = 40
_PROMPT = "allow it? [y]es, [n]o, [a]lways in this session, [v]iew all "
_ANSWERS: dict[str, Answer] = {
    "y": "yes",
    "yes": "yes",
    "n": "no",
    "no": "no",
    "a": "always",
    "always": "always",
}
_VIEW = ("v", "view")


def asked(
    draw: Callable[[Tool, ToolCall, int], list[str]],
    show: Callable[[Sequence[str]], None],
    read: Callable[[str, Collection[str]], Awaitable[str]],
) -> Ask:
    """Somebody to ask: what is wanted is drawn and shown, then an answer is read."""

    async def ask(tool: Tool, call: ToolCall) -> Answer:
        show(draw(tool, call, _MOST_LINES))
        while (answer := await read(_PROMPT, (*_ANSWERS, *_VIEW))) in _VIEW:
            show(draw(tool, call, sys.maxsize))
        show([f"  {_ANSWERS[answer]}"])
        return _ANSWERS[answer]

    return ask
