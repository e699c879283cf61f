"""A turn while it runs, as lines for a terminal: calls and thoughts folded to a line, the answer as Markdown."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping

from nacre.agent.ports import Called, Event, Notice, Output, Returned, Text, Thought, Tool
from nacre.entries import ToolCall
from nacre.render.conversation import arguments_of
from nacre.render.stream import Stream
from nacre.render.terminal import Sheet
from nacre.render.text import clip, one_line, size, visible, width

_NARROWEST = 12
_WORTH_TELLING = 1.0


class Turn:
    """What is drawn of one turn after another; `live` may still change, what was given back may not."""

    def __init__(self, sheet: Callable[[], Sheet]) -> None:
        self._sheet = sheet
        self._stream = Stream(sheet)
        self._thought = ""
        self._call: ToolCall | None = None
        self._since = 0.0
        self._has_spoken = self._has_drawn = False

    def take(self, event: Event) -> list[str]:
        """Draw what happened; gives the lines that are final with it."""
        lines = [*(self._thoughts() if not isinstance(event, Thought) else ()), *self._happened(event)]
        self._has_drawn = self._has_drawn or bool(lines)
        return lines

    def end(self) -> list[str]:
        """Draw what is left; the next event begins another turn."""
        lines = [*self._thoughts(), *self._spoken()]
        if self._call is not None:
            lines.append(_folded(self._call, "stopped", self._sheet(), mark="■", end=""))
        self.__init__(self._sheet)  # type: ignore[misc] # as it was when it was made
        return lines

    @property
    def live(self) -> list[str]:
        """What may still change: the end of the answer, the newest thought, the call that runs."""
        if self._call is not None:
            name, arguments = one_line(self._call.name), one_line(arguments_of(self._call))
            return [self._sheet().paint(clip(f"▸ {name}({arguments})", self._sheet().columns), "35")]
        if self._thought:
            newest = self._thought.rstrip().rpartition("\n")[2]
            return [self._sheet().paint(clip(f"~ {one_line(newest)}", self._sheet().columns), "2;3")]
        tail = self._stream.tail
        return ["", *tail] if tail and self._has_drawn and not self._has_spoken else tail

    @property
    def doing(self) -> str:
        """A word for what happens now."""
        if self._call is not None:
            return f"running {clip(one_line(self._call.name), 30)}"
        return "answering" if self._stream.tail else "thinking"

    def _happened(self, event: Event) -> list[str]:
        match event:
            case Text():
                return list(self._said(event.text))
            case Thought():
                self._thought += event.text
                return self._spoken()
            case Called():
                self._call, self._since = event.call, time.monotonic()
                return self._spoken()
            case Returned():
                line = self._returned(event.call, event.output)
                self._call = None
                return [*self._spoken(), line]
            case Notice():
                line = clip(f"· {one_line(event.text)}", self._sheet().columns)
                return [*self._spoken(), self._sheet().paint(line, "2")]

    def _said(self, text: str) -> Iterator[str]:
        lines = self._stream.feed(text)
        if lines and not self._has_spoken:
            self._has_spoken = True
            yield from [""] if self._has_drawn else []
        yield from lines

    def _spoken(self) -> list[str]:
        """The end of what was said; what follows stands apart from it."""
        lines = [*self._stream.end()]
        if lines and not self._has_spoken and self._has_drawn:
            lines.insert(0, "")
        gap = [""] if lines or self._has_spoken else []
        self._has_spoken = False
        return [*lines, *gap]

    def _thoughts(self) -> list[str]:
        text, self._thought = self._thought.strip(), ""
        if not text:
            return []
        self._has_drawn = True
        end = _extent(text)
        line = clip(f"~ {one_line(text)}", self._sheet().columns - width(end)) + end
        return [self._sheet().paint(line, "2;3")]

    def _returned(self, call: ToolCall, output: Output) -> str:
        took = time.monotonic() - self._since if self._call is not None else 0.0
        end = _extent(output.text) + (f" {took:.1f} s" if took >= _WORTH_TELLING else "")
        return _folded(call, one_line(output.text), self._sheet(), mark="×" if output.failed else "▸", end=end)


def question(tool: Tool, call: ToolCall, sheet: Sheet, *, most: int = 40) -> list[str]:
    """What a person is asked about: the exact command, the exact change, or every argument; at most so many lines."""
    name = one_line(call.name)
    arguments = call.arguments if isinstance(call.arguments, Mapping) else {"arguments": call.arguments}
    lines = list(_asked(name, arguments, sheet))
    hidden = len(lines) - most
    if hidden > 0:
        lines[most:] = [sheet.paint(f"    … {hidden} more lines: v shows all", "33")]
    verb = {"read": "read", "write": "write", "run": "run"}[tool.effect]
    return [sheet.paint(clip(f"? {name} wants to {verb}:", sheet.columns), "1;33"), *lines]


def _asked(name: str, arguments: Mapping[str, object], sheet: Sheet) -> Iterator[str]:
    rest = dict(arguments)
    match name:
        case "shell" if isinstance(rest.get("command"), str):
            yield from _block(str(rest.pop("command")), "$ ", sheet, "1")
        case "edit_file" if isinstance(rest.get("old_text"), str) and isinstance(rest.get("new_text"), str):
            yield from _block(str(rest.pop("path", "")), "", sheet, "1")
            yield from _block(str(rest.pop("old_text")), "- ", sheet, "31")
            yield from _block(str(rest.pop("new_text")), "+ ", sheet, "32")
        case "write_file" if isinstance(rest.get("content"), str):
            yield from _block(str(rest.pop("path", "")), "", sheet, "1")
            yield from _block(str(rest.pop("content")), "+ ", sheet, "32")
        case _:
            pass
    for field, value in rest.items():
        text = value if isinstance(value, str) else arguments_of(ToolCall(arguments=value))
        yield from _block(f"{one_line(str(field))} = {text}", "", sheet, "")


def _block(text: str, lead: str, sheet: Sheet, sgr: str) -> Iterator[str]:
    """Every line of a text with every character in it, behind a mark; a line that is cut goes on without one."""
    room = max(sheet.columns - 5 - len(lead), _NARROWEST)
    for line in visible(text).expandtabs().split("\n"):
        mark, rest = lead, line
        while rest or mark == lead:
            piece = clip(rest, room, mark="") or rest[:1]
            yield f"    {sheet.paint(mark + piece, sgr)}"
            mark, rest = " " * len(lead) or " ", rest[len(piece) :]


def _folded(call: ToolCall, answer: str, sheet: Sheet, *, mark: str, end: str) -> str:
    """A call and what came of it, on one line."""
    name = clip(one_line(call.name), sheet.columns // 3)
    room = max(sheet.columns - width(name) - width(end) - 7, _NARROWEST)
    arguments = one_line(arguments_of(call))
    arguments = clip(arguments, max(room - width(answer), room // 2))
    answer = clip(answer, max(room - width(arguments), 1))
    shown = f"{sheet.paint(f'{mark} {name}', '31' if mark == '×' else '35')}({arguments})"
    return f"{shown} {sheet.paint('→', '2')} {answer}{sheet.paint(end, '2')}"


def _extent(text: str) -> str:
    """How much a folded text holds, where its first line is not all."""
    return f" ({size(len(text.encode(errors='replace')))})" if "\n" in text.strip() else ""
