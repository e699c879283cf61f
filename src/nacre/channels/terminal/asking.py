"""Ask a person whether a tool may run: yes, no, or always."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Sequence
from typing import Protocol

from nacre.agent.ports import Answer, Approval, Ask
from nacre.channels.terminal.ports import About

_ANSWERS: dict[str, Answer] = {"y": "yes", "yes": "yes", "n": "no", "no": "no"}
_ALWAYS: dict[str, Answer] = {"a": "always", "always": "always"}
_VIEW = ("v", "view")


class Read(Protocol):
    """Asks a question and returns one of the answers; `about` is drawn above it, to fit the screen."""

    async def __call__(self, question: str, answers: Collection[str], about: About | None = None) -> str: ...


def asked(draw: Callable[[Approval, int], list[str]], show: Callable[[Sequence[str]], None], read: Read) -> Ask:
    """Make an `Ask`: a question is drawn to fit the screen, then an answer is read."""

    async def ask(approval: Approval) -> Answer:
        answers = {**_ANSWERS, **(_ALWAYS if approval.always else {})}
        prompt = f"Allow? [y]es, [n]o, {'[a]lways, ' if approval.always else ''}[v]iew: "
        show([])
        while (answer := await read(prompt, (*answers, *_VIEW), lambda most: draw(approval, most))) in _VIEW:
            show(draw(approval, sys.maxsize))
        show([f"  {answers[answer]}"])
        return answers[answer]

    return ask
