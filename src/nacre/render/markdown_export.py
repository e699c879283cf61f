"""A conversation as Markdown that a person reads and git keeps."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime

from nacre.agent.ports import STOPPED
from nacre.render.conversation import Cover, Cut, MessageView, Part
from nacre.render.markdown import open_fence
from nacre.render.text import one_line, visible


def document(cover: Cover, found: Iterable[Part]) -> Iterator[str]:
    """The document, piece by piece; what a message says stays as it is, save its control characters."""
    facts = [f"`{one_line(cover.key)}`", *([f"created {_time(cover.created)}"] if cover.created else ()), cover.totals]
    yield f"# {one_line(cover.title or cover.key)}\n\n{' · '.join(facts)}\n"
    for part in found:
        if isinstance(part, Cut):
            hidden = f" · {part.hidden} message{'s' * (part.hidden != 1)} before it" if part.hidden else ""
            yield f"\n## {'summary' if part.summary else 'cut'}{hidden}\n\n{_close(visible(part.summary))}"
        else:
            yield "\n" + "".join(_message(part))


def _message(shown: MessageView) -> Iterator[str]:
    who = one_line(f"{shown.role} {shown.name}" if shown.name else shown.role)
    facts = [f"#{shown.label}", _time(shown.ts), *([one_line(shown.model)] if shown.model else ())]
    gone = "" if shown.is_live else " · not in the history"
    yield f"## {who} · {' · '.join(facts)}{gone}\n"
    if shown.reasoning:
        yield "\n"
        for line in visible(shown.reasoning).strip().split("\n"):
            yield f"> {line}".rstrip() + "\n"
    if shown.text:
        yield "\n" + (_fence(shown.text) if shown.role == "tool" else _close(visible(shown.text)))
    for attachment in shown.attachments:
        yield f"\n\\[{one_line(attachment)}\\]\n"
    for call in shown.calls:
        yield f"\n**{one_line(call.name)}**\n"
        if call.arguments:
            yield "\n" + _fence(call.arguments)
        if call.result is None:
            yield "\nno result\n"
        else:
            yield f"\n→ #{call.result.label}\n\n{_fence(call.result.text)}"


def _close(text: str) -> str:
    """The text with its last fence closed, so that it swallows neither what follows nor that it was stopped."""
    text = text.rstrip("\n")
    fence = open_fence(text)
    if not fence:
        return f"{text}\n"
    written = text.removesuffix(f"\n\n{STOPPED}")
    end = f"\n{STOPPED}\n" if written != text else ""
    return f"{written}\n{fence}\n{end}"


def _fence(text: str) -> str:
    """The text in a fence that is longer than any in it."""
    fence = "`" * max(3, 1 + max((len(run) for run in re.findall("`+", text)), default=0))
    return f"{fence}\n{visible(text).rstrip()}\n{fence}\n"


def _time(moment: datetime) -> str:
    return f"{moment.astimezone(UTC):%Y-%m-%d %H:%M} UTC"
