"""A turn while it runs, as lines for a terminal: calls and thoughts folded to a line, the answer as Markdown."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping

from nacre.agent.ports import Approval, Called, Event, Notice, Output, Returned, Text, Thought
from nacre.messages import ToolCall
from nacre.render.conversation import arguments_of
from nacre.render.stream import Stream
from nacre.render.terminal import Sheet
from nacre.render.text import clip, one_line, size, visible, width, wrapped
from nacre.render.text_changes import COLOURS, change_lines, mark

_NARROWEST = 12
_WORTH_TELLING = 1.0
_SUBJECTS = ("command", "path", "url", "task")
"""Arguments that say what a call is about; they stand in the first line of a question."""
_SIGNS = {"old_text": "- ", "new_text": "+ ", "content": "+ "}
_SHOWN_AS_CHANGE = ("content", "old_text", "new_text", "all")


class Turn:
    """What is drawn of one turn after another; `live` may still change, what was given back may not."""

    def __init__(self, sheet: Callable[[], Sheet]) -> None:
        self._sheet = sheet
        self._stream = Stream(sheet)
        self._thought = ""
        self._running: dict[str, tuple[ToolCall, float]] = {}
        self._has_spoken = self._has_drawn = False

    def take(self, event: Event) -> list[str]:
        """Draw what happened; gives the lines that are final with it."""
        lines = [*(self._thoughts() if not isinstance(event, Thought) else ()), *self._happened(event)]
        self._has_drawn = self._has_drawn or bool(lines)
        return lines

    def pause(self) -> list[str]:
        """Draw what is left of the text before a question; a call that runs goes on."""
        return [*self._thoughts(), *self._spoken()]

    def end(self) -> list[str]:
        """Draw what is left; the next event begins another turn."""
        lines = self.pause()
        for call, _ in self._running.values():
            lines.append(_folded(call, "stopped", self._sheet(), mark="■", end=""))
        self.__init__(self._sheet)  # type: ignore[misc] # as it was when it was made
        return lines

    @property
    def live(self) -> list[str]:
        """What may still change: the end of the answer, the newest thought, the calls that run."""
        if self._running:
            calls = [f"▸ {one_line(call.name)}({one_line(arguments_of(call))})" for call, _ in self._running.values()]
            return [self._sheet().paint(clip(call, self._sheet().columns), "35") for call in calls]
        if self._thought:
            newest = self._thought.rstrip().rpartition("\n")[2]
            return [self._sheet().paint(clip(f"~ {one_line(newest)}", self._sheet().columns), "2;3")]
        tail = self._stream.tail
        return ["", *tail] if tail and self._has_drawn and not self._has_spoken else tail

    @property
    def doing(self) -> str:
        """A word for what happens now."""
        if self._running:
            names = dict.fromkeys(one_line(call.name) for call, _ in self._running.values())
            return f"running {clip(', '.join(names), 30)}"
        return "answering" if self._stream.tail else "thinking"

    def _happened(self, event: Event) -> list[str]:
        match event:
            case Text():
                return list(self._said(event.text))
            case Thought():
                self._thought += event.text
                return self._spoken()
            case Called():
                self._running[event.call.id] = event.call, time.monotonic()
                return self._spoken()
            case Returned():
                return [*self._spoken(), self._returned(event.call, event.output)]
            case Notice():
                return [*self._spoken(), *notice(event.text, self._sheet())]

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
        _, since = self._running.pop(call.id, (call, time.monotonic()))
        took = time.monotonic() - since
        end = _extent(output.text) + (f" {took:.1f} s" if took >= _WORTH_TELLING else "")
        return _folded(call, one_line(output.text), self._sheet(), mark="×" if output.failed else "▸", end=end)


def notice(text: str, sheet: Sheet) -> list[str]:
    """A notice, wrapped: a mark before its first line, and the others below it."""
    lines = wrapped(visible(text.strip()).expandtabs(), sheet.columns - 2)
    return [sheet.paint(f"{' ' if place else '·'} {line}", "2") for place, line in enumerate(lines)]


def question(approval: Approval, sheet: Sheet, *, most: int = 40) -> list[str]:
    """A question about a call, in at most `most` lines; the first says which tool, and which file or command."""
    name, task = one_line(approval.call.name), one_line(approval.task)
    arguments = approval.call.arguments if isinstance(approval.call.arguments, Mapping) else {}
    subject = next((arguments[field] for field in _SUBJECTS if isinstance(arguments.get(field), str)), "")
    more = " …" if "\n" in subject.strip() else ""
    action = f": {one_line(subject)}{more}" if subject else f" wants to {approval.tool.effect}"
    is_new = " (new file)" if approval.change is not None and approval.change.before is None else ""
    whole = f"? {name}{action}{is_new}"
    head = [sheet.paint(clip(whole, sheet.columns), "1;33")]
    if task:
        head.append(sheet.paint(clip(f"  asked by the delegated task: {task}", sheet.columns), "33"))
    body = list(_details(approval, sheet, is_cut=clip(whole, sheet.columns) != f"? {name}: {subject}{is_new}"))
    tail = []
    if approval.always:
        rules = ", ".join(one_line(rule) for rule in approval.always)
        wanted = f", as the skill {one_line(approval.skill)} wants" if approval.skill else ""
        whole = f"always = allow {rules} in this {approval.scope}{wanted}"
        tail = [f"  {line}" for line in wrapped(whole, sheet.columns - 2)]
        tail = [sheet.paint(line, "2") for line in tail]
    room = max(most - len(head) - len(tail), 1)
    if len(body) > room:
        body[room - 1 :] = [sheet.paint(f"    … {len(body) - room + 1} more lines: v shows all", "33")]
    return [*head, *body, *tail]


def _details(approval: Approval, sheet: Sheet, *, is_cut: bool) -> Iterator[str]:
    """The exact command, the change to the file as it is now, or every argument."""
    given, change = approval.call.arguments, approval.change
    rest = dict(given) if isinstance(given, Mapping) else {"arguments": given}
    subject = next((field for field in _SUBJECTS if isinstance(rest.get(field), str)), "")
    if subject:
        text = str(rest.pop(subject))
        if is_cut:
            yield from mark(text, "$ " if subject == "command" else "", sheet, "1")
    if change is not None:
        yield from change_lines(change, sheet)
        rest = {field: value for field, value in rest.items() if field not in _SHOWN_AS_CHANGE}
    for field, value in rest.items():
        sign = _SIGNS.get(field, "")
        text = value if isinstance(value, str) else arguments_of(ToolCall(arguments=value))
        yield from mark(text if sign else f"{one_line(str(field))} = {text}", sign, sheet, COLOURS[sign[:1] or " "])


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
