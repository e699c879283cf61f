"""Ask a person whether a tool may run: yes, no, or always."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Awaitable, Callable, Collection, Sequence

from nacre.agent.ports import Answer, Approval, Ask

_ROWS_BELOW = 4
"""Rows that the prompt and the footer need below a question."""
_FEWEST_ROWS = 5
_ANSWERS: dict[str, Answer] = {"y": "yes", "yes": "yes", "n": "no", "no": "no"}
_ALWAYS: dict[str, Answer] = {"a": "always", "always": "always"}
_VIEW = ("v", "view")


def asked(
    draw: Callable[[Approval, int], list[str]],
    show: Callable[[Sequence[str]], None],
    read: Callable[[str, Collection[str]], Awaitable[str]],
) -> Ask:
    """Make an `Ask`: a question is drawn to fit the screen and shown, then an answer is read."""

    async def ask(approval: Approval) -> Answer:
        answers = {**_ANSWERS, **(_ALWAYS if approval.always else {})}
        prompt = f"Allow? [y]es, [n]o, {'[a]lways, ' if approval.always else ''}[v]iew: "
        rows = max(shutil.get_terminal_size().lines - _ROWS_BELOW, _FEWEST_ROWS)
        show(draw(approval, rows))
        while (answer := await read(prompt, (*answers, *_VIEW))) in _VIEW:
            lines = draw(approval, sys.maxsize)
            # The first line once more at the end: it names the tool and the file, and has scrolled away.
            show([*lines, *(lines[:1] if len(lines) > rows else [])])
        show([f"  {answers[answer]}"])
        return answers[answer]

    return ask
