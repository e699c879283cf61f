"""Ask a person whether a tool may run: yes, no, or always."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Sequence
from typing import Protocol

from nacre.agent.ports import Answer, Approval, Ask
from nacre.cli.chat.chat_ports import About

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
        shown: list[str] = []

        def draw_to_fit(most: int) -> list[str]:
            shown[:] = draw(approval, most)
            return shown

        def draw_first_line(_: int) -> list[str]:
            return draw(approval, sys.maxsize)[:1]

        show([])
        about: About = draw_to_fit
        while (answer := await read(prompt, (*answers, *_VIEW), about)) in _VIEW:
            # All of it is printed once, unless it was; then the question needs only its first line.
            whole = draw(approval, sys.maxsize)
            show(whole[1:] if len(shown) < len(whole) else ["  (this is all of it)"])
            about = draw_first_line
            shown = whole
        show([f"  {answers[answer]}"])
        return answers[answer]

    return ask
