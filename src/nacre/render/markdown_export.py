"""A conversation as Markdown that a person reads and git keeps."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime

from nacre.agent.ports import STOPPED
from nacre.render.conversation import Call, Cover, Cut, Part, Said
from nacre.render.markdown import open_fence
from nacre.render.text import one_line, visible


def document(cover: Cover, found: Iterable[Part]) -> Iterator[str]:
    """The document, piece by piece; what a message says stays as it is, save its control characters."""
    yield _head(cover)
    for part in found:
        yield "\n" + (_cut(part) if isinstance(part, Cut) else "".join(_said(part)))


def _head(cover: Cover) -> str:
    facts = [f"`{one_line(cover.key)}`", *([f"created {_time(cover.created)}"] if cover.created else ())]
    facts.append(cover.counted)
    return f"# {one_line(cover.title or cover.key)}\n\n{' · '.join(facts)}\n"


def _said(said: Said) -> Iterator[str]:
    who = one_line(f"{said.role} {said.name}" if said.name else said.role)
    facts = [f"#{said.label}", _time(said.ts), *([one_line(said.model)] if said.model else ())]
    gone = "" if said.is_live else " · not in the history"
    yield f"## {who} · {' · '.join(facts)}{gone}\n"
    if said.reasoning:
        yield "\n" + _quoted(said.reasoning)
    if said.text:
        yield "\n" + (_fenced(said.text) if said.role == "tool" else _closed(visible(said.text)))
    for attachment in said.attachments:
        yield f"\n\\[{one_line(attachment)}\\]\n"
    yield from map(_call, said.calls)


def _call(call: Call) -> str:
    head = f"\n**{one_line(call.name)}**\n"
    arguments = "\n" + _fenced(call.arguments) if call.arguments else ""
    if call.result is None:
        return f"{head}{arguments}\nno result\n"
    return f"{head}{arguments}\n→ #{call.result.label}\n\n{_fenced(call.result.text)}"


def _cut(cut: Cut) -> str:
    hidden = f" · {cut.hidden} message{'s' * (cut.hidden != 1)} before it" if cut.hidden else ""
    return f"## {'summary' if cut.summary else 'cut'}{hidden}\n\n{_closed(visible(cut.summary))}"


def _closed(text: str) -> str:
    """The text with its last fence closed, so that it swallows neither what follows nor that it was stopped."""
    text = text.rstrip("\n")
    fence = open_fence(text)
    if not fence:
        return f"{text}\n"
    written = text.removesuffix(f"\n\n{STOPPED}")
    end = f"\n{STOPPED}\n" if written != text else ""
    return f"{written}\n{fence}\n{end}"


def _fenced(text: str) -> str:
    """The text in a fence that is longer than any in it."""
    fence = "`" * max(3, 1 + max((len(run) for run in re.findall("`+", text)), default=0))
    return f"{fence}\n{visible(text).rstrip()}\n{fence}\n"


def _quoted(text: str) -> str:
    return "".join(f"> {line}".rstrip() + "\n" for line in visible(text).strip().split("\n"))


def _time(moment: datetime) -> str:
    return f"{moment.astimezone(UTC):%Y-%m-%d %H:%M} UTC"
