"""Tool calls as HTML: one line that says what was done and what came of it, changes as changes, output in colour."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec
from msgspec import Struct

from nacre.messages import Message, ToolCall
from nacre.render.ansi import ansi, plain
from nacre.render.conversation import Call, arguments_of, text_of
from nacre.render.diff import changed, is_patch, patch, written
from nacre.render.html import escaped
from nacre.render.html_page import amount
from nacre.render.text import clip, one_line

_LONGEST_LINE = 160
_LONGEST_TEXT = 200_000
_WORTH_TELLING = 0.1
_MOST_NAMED = 4
FEWEST_IN_RUN = 3
"""How many calls beside each other are folded into one line."""


class Made(Struct, frozen=True, kw_only=True):
    """A call as it was made and its answer as it is stored; `since` is when it could have begun at the earliest.

    `is_newest` if nothing was said behind it.
    """

    call: Call
    given: ToolCall
    answer: Message | None
    since: datetime
    is_newest: bool = False

    @property
    def is_lost(self) -> bool:
        """True if nothing came of it; the newest may still be at work."""
        return self.call.result is None and not self.is_newest

    @property
    def has_failed(self) -> bool:
        return self.answer is not None and self.answer.extra.get("failed") is True

    @property
    def ended(self) -> datetime:
        return self.call.result.ts if self.call.result is not None else self.since


def folded(made: Made) -> str:
    """A call folded to one line, with its result's own anchor; open if it failed."""
    result = made.call.result
    anchor = f' id="{escaped(result.label)}"' if result is not None else ""
    state = ' class="failed" open' if made.has_failed else ""
    line = f"{doing(made.given, made.call)} <i>→</i> {_outcome(made)}"
    output = returned(_text(made)) if result is not None else ""
    return f"<details{anchor}{state}><summary>{line}</summary>{arguments(made.given)}{output}</details>"


def run(id: str, many: Sequence[Made], inside: str) -> str:
    """Several calls folded to one line; open if one of them failed."""
    failed = sum(made.has_failed for made in many)
    state = " open" if failed else ""
    return f'<details class="run" id="{id}"{state}><summary>{_told(many, failed)}</summary>{inside}</details>\n'


def alone(text: str, *, has_failed: bool) -> str:
    """A result whose call is not beside it."""
    state = ' class="failed" open' if has_failed else ""
    return f"<details{state}><summary><i>→</i> {short(text)} <i>{amount(text)}</i></summary>{returned(text)}</details>"


def doing(given: ToolCall, call: Call | None = None) -> str:
    """What a call does, in one line."""
    name = call.name if call is not None else given.name
    match name, _mapping(given):
        case "shell", {"command": str(command)}:
            return f"<b>$</b> {short(command)}"
        case _, {"path": str(path)}:
            return f"<b>{escaped(one_line(name))}</b> {short(path)}"
        case _:
            return f"<b>{escaped(one_line(name))}</b>({short(arguments_of(given))})"


def path_of(given: ToolCall) -> str:
    """The file that a call is about; "" if it names none."""
    match _mapping(given):
        case {"path": str(path)}:
            return path
        case _:
            return ""


def arguments(given: ToolCall) -> str:
    """A call's arguments: a command as it was typed, an edit as what it changes, all else name by name."""
    match _mapping(given):
        case {"old_text": str(old), "new_text": str(new), **rest}:
            return f"{changed(cut(old), cut(new))}{_rest(rest)}"
        case {"old_string": str(old), "new_string": str(new), **rest}:
            return f"{changed(cut(old), cut(new))}{_rest(rest)}"
        case {"path": str(), "content": str(content), **rest}:
            return f"{written(cut(content))}{_rest(rest)}"
        case {"command": str(command), **rest}:
            return f'<pre tabindex="0">$ {escaped(cut(command))}</pre>{_rest(rest)}'
        case {"patch": str(text), **rest} | {"diff": str(text), **rest}:
            return f"{patch(cut(text))}{_rest(rest)}"
        case _:
            text = arguments_of(given)
            return f'<pre tabindex="0">{escaped(cut(text))}</pre>' if text else ""


def returned(text: str) -> str:
    """A tool's output as a terminal would show it."""
    return patch(cut(text)) if is_patch(text) else f'<pre tabindex="0">{ansi(cut(text))}</pre>'


def cut(text: str) -> str:
    """A text that a browser can hold; what is left out is in the raw message."""
    if len(text) <= _LONGEST_TEXT:
        return text
    return f"{text[:_LONGEST_TEXT]}\n… {len(text) - _LONGEST_TEXT:,} more characters: the .json version has all of them"


def short(text: str) -> str:
    """The first line of a text that says something."""
    return escaped(clip(one_line(plain(text[:_LONGEST_TEXT])), _LONGEST_LINE))


def _mapping(given: ToolCall) -> Any:
    """A call's arguments by name; some stores keep them as the text that the model wrote."""
    if not isinstance(given.arguments, str):
        return given.arguments
    try:
        return msgspec.json.decode(given.arguments)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return None


def _rest(arguments: Mapping[Any, object]) -> str:
    """Arguments that are not shown otherwise; the path stands in the line above."""
    left = {name: value for name, value in arguments.items() if name != "path" or not isinstance(value, str)}
    return f'<pre tabindex="0">{escaped(cut(arguments_of(ToolCall(arguments=left))))}</pre>' if left else ""


def _outcome(made: Made) -> str:
    if made.call.result is None:
        return "<em>no result</em>" if made.is_lost else "<i>no result yet</i>"
    text = _text(made)
    word = "<em>failed</em> " if made.has_failed else ""
    return f"{word}{short(text)} <i>{', '.join((*_duration(made.ended, made.since), amount(text)))}</i>"


def _told(many: Sequence[Made], failed: int) -> str:
    names = Counter(one_line(made.call.name) for made in many).most_common()
    listed = [f"{escaped(clip(name, 40))}{f' ×{count}' if count > 1 else ''}" for name, count in names[:_MOST_NAMED]]
    more = ["…"] if len(names) > _MOST_NAMED else []
    facts = [*_duration(many[-1].ended, many[0].since)]
    lost = sum(made.is_lost for made in many)
    words = [f"<em>{failed} failed</em>"] if failed else []
    words += [f"<em>{lost} without result</em>"] if lost else []
    head = ", ".join((f"<b>{len(many)} tool calls</b>", *words))
    return f"{head} <i>{', '.join((*listed, *more))}{f' · {facts[0]}' if facts else ''}</i>"


def _text(made: Made) -> str:
    return text_of(made.answer.content)[0] if made.answer is not None else ""


def _duration(end: datetime, since: datetime) -> Iterator[str]:
    took = (end - since).total_seconds()
    if took >= _WORTH_TELLING:
        yield f"{took:.1f} s"
