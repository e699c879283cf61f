"""A turn while it runs, as lines for a terminal: calls and thoughts folded to a line, the answer as Markdown.

The answer comes in pieces: some lines of it are final, and some may still change.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from copy import copy

from msgspec.structs import replace

from nacre.agent.ports import Approval, Called, ChildReturned, Event, Notice, Returned, Text, Thought
from nacre.amounts import size
from nacre.messages import ToolCall
from nacre.render.changes import COLOURS, change_lines, mark
from nacre.render.colours import Painter
from nacre.render.conversation import arguments_of
from nacre.render.markdown import Block, Code, Listing, Table, blocks, open_fence
from nacre.render.terminal import Sheet, code_line, fence, markdown
from nacre.render.text import clip, one_line, visible, width, wrap

_MIN_COLUMNS = 12
_MIN_SHOWN_SECONDS = 1.0
SUBJECTS = ("command", "path", "url", "task")
"""Arguments that say what a call is about; they stand in the first line of a question."""
_SIGNS = {"old_text": "- ", "new_text": "+ ", "content": "+ "}
_SHOWN_AS_CHANGE = ("content", "old_text", "new_text", "all")


class Stream:
    """A text that is still coming; in the end its lines are those that `markdown` makes of the whole.

    At most one block is held back, of a list one item, of code one line.
    """

    def __init__(self, sheet: Callable[[], Sheet]) -> None:
        self._sheet = sheet
        self._part = ""
        self._waiting: list[str] = []
        self._begun = False
        self._goes_on = False
        self._code: _Fence | None = None

    def feed(self, text: str) -> list[str]:
        """Take a piece; gives the lines that are final with it."""
        *whole, self._part = (self._part + text).split("\n")
        return [line for one in whole for line in self._take(one.removesuffix("\r"))]

    def end(self) -> list[str]:
        """Take nothing more; gives the lines that are left."""
        lines = list(self._take(self._part)) if self._part else []
        lines += self._code.end() if self._code is not None else self._flush()
        self.__init__(self._sheet)  # type: ignore[misc] # as it was when it was made
        return lines

    @property
    def tail(self) -> list[str]:
        """The lines that may still change."""
        part = self._part.removesuffix("\r")
        if self._code is not None:
            return self._code.draw_tail(part)
        lines = list(markdown("\n".join([*self._waiting, part]), replace(self._sheet(), cuts_code=True)))
        return ["", *lines] if lines and self._begun and not self._goes_on else lines

    def _take(self, line: str) -> Iterator[str]:
        """Take a whole line; gives what is final now."""
        if self._code is not None:
            yield from self._code.take(visible(line))
            if self._code.is_closed:
                self._code = None
            return
        self._waiting.append(visible(line))
        found = _parse(self._waiting)
        if not found:
            self._waiting.clear()
        elif len(found) > 1:
            # A table is known by its second line.
            yield from self._flush(2 if isinstance(found[-1], Table) else 1)
        elif not line.strip() and not isinstance(found[0], Listing | Code):
            # A list and indented code may go on after a blank line.
            yield from self._flush()
        elif self._begins_item(found[0]):
            yield from self._flush(1)
            self._goes_on = True
        if self._waiting and open_fence(self._waiting[0]) and isinstance(_parse(self._waiting)[0], Code):
            yield from self._gap()
            self._code = _Fence(self._waiting.pop(), self._sheet)
            yield fence(self._sheet(), self._code.language)

    def _begins_item(self, block: Block) -> bool:
        """Tell whether the last line begins a further item of the list that waits."""
        if not isinstance(block, Listing) or len(block.items) == 1:
            return False
        before = _parse(self._waiting[:-1])[0]
        is_new = isinstance(before, Listing) and len(before.items) < len(block.items)
        return is_new and _lead(self._waiting[0]) == _lead(self._waiting[-1])

    def _flush(self, rest: int = 0) -> list[str]:
        """What waits, save some lines of it, as lines."""
        split = len(self._waiting) - rest
        done, self._waiting = self._waiting[:split], self._waiting[split:]
        lines = list(markdown("\n".join(done), self._sheet()))
        return [*self._gap(), *lines] if lines else []

    def _gap(self) -> list[str]:
        """The empty line between two blocks."""
        gap = [""] if self._begun and not self._goes_on else []
        self._begun, self._goes_on = True, False
        return gap


class _Fence:
    """A block of code, of which every line is final when it has come."""

    def __init__(self, head: str, sheet: Callable[[], Sheet]) -> None:
        self._head = head
        self._sheet = sheet
        block = blocks(f"{head}\n")[0]
        self.language = block.language if isinstance(block, Code) else ""
        self._painter = Painter(self.language if sheet().has_colour else "")
        self._blank: list[str] = []
        self._is_empty = True
        self.is_closed = False

    def take(self, line: str) -> list[str]:
        if not open_fence(f"{self._head}\n{line}"):
            self.is_closed = True
            return self.end()
        text = self._text(line)
        if not text:
            # Empty lines at the end of code are not shown.
            self._blank.append("")
            return []
        lines = self._draw([*self._blank, text], self._painter, self._sheet())
        self._blank, self._is_empty = [], False
        return lines

    def end(self) -> list[str]:
        return [*([""] if self._is_empty else []), fence(self._sheet())]

    def draw_tail(self, part: str) -> list[str]:
        """What is drawn below the lines that are final."""
        sheet = replace(self._sheet(), cuts_code=True)
        if not part or not open_fence(f"{self._head}\n{part}"):
            return [fence(sheet)]
        return [*self._draw([*self._blank, self._text(part)], copy(self._painter), sheet), fence(sheet)]

    def _text(self, line: str) -> str:
        """The line without the indentation of its fence."""
        block = blocks(f"{self._head}\n{line}")[0]
        return block.text if isinstance(block, Code) else line

    def _draw(self, lines: list[str], painter: Painter, sheet: Sheet) -> list[str]:
        return [drawn for line in lines for drawn in code_line(visible(line), painter, sheet)]


def _parse(lines: list[str]) -> tuple[Block, ...]:
    return blocks("\n".join(lines))


def _lead(line: str) -> str:
    return line[: len(line) - len(line.lstrip(" \t"))]


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
        lines = self._end_thought() if not isinstance(event, Thought) else []
        match event:
            case Text():
                said = self._stream.feed(event.text)
                if said and not self._has_spoken:
                    self._has_spoken = True
                    lines += [""] if self._has_drawn else []
                lines += said
            case Thought():
                self._thought += event.text
                lines += self._end_text()
            case Called():
                self._running[event.call.id] = event.call, time.monotonic()
                lines += self._end_text()
            case Returned(call=call, output=output, session=session):
                lines += self._end_text()
                since = now = time.monotonic()
                # One that was refused in a delegated session may have the id of a call that runs here.
                if not session:
                    _, since = self._running.pop(call.id, (call, now))
                took = now - since
                end = _extent(output.text) + (f" {took:.1f} s" if took >= _MIN_SHOWN_SECONDS else "")
                mark = "×" if output.failed else "▸"
                lines.append(_fold(call, one_line(output.text), self._sheet(), mark=mark, end=end))
            case ChildReturned():
                pass
            case Notice():
                lines += [*self._end_text(), *notice(event.text, self._sheet())]
        self._has_drawn = self._has_drawn or bool(lines)
        return lines

    def pause(self) -> list[str]:
        """Draw what is left of the text before a question; a call that runs goes on."""
        return [*self._end_thought(), *self._end_text()]

    def end(self) -> list[str]:
        """Draw what is left; the next event begins another turn."""
        lines = self.pause()
        for call, _ in self._running.values():
            lines.append(_fold(call, "stopped", self._sheet(), mark="■", end=""))
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

    def _end_text(self) -> list[str]:
        """The end of what was said; what follows stands apart from it."""
        lines = [*self._stream.end()]
        if lines and not self._has_spoken and self._has_drawn:
            lines.insert(0, "")
        gap = [""] if lines or self._has_spoken else []
        self._has_spoken = False
        return [*lines, *gap]

    def _end_thought(self) -> list[str]:
        text, self._thought = self._thought.strip(), ""
        if not text:
            return []
        self._has_drawn = True
        end = _extent(text)
        line = clip(f"~ {one_line(text)}", self._sheet().columns - width(end)) + end
        return [self._sheet().paint(line, "2;3")]


def notice(text: str, sheet: Sheet) -> list[str]:
    """A notice, wrapped: a mark before its first line, and the others below it."""
    lines = wrap(visible(text.strip()).expandtabs(), sheet.columns - 2)
    return [sheet.paint(f"{' ' if place else '·'} {line}", "2") for place, line in enumerate(lines)]


def question(approval: Approval, sheet: Sheet, *, limit: int = 40) -> list[str]:
    """A question about a call, in at most `limit` lines; the first says which tool, and which file or command."""
    name, task = one_line(approval.call.name), one_line(approval.task)
    arguments = approval.call.arguments if isinstance(approval.call.arguments, Mapping) else {}
    subject = next((arguments[field] for field in SUBJECTS if isinstance(arguments.get(field), str)), "")
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
        tail = [sheet.paint(f"  {line}", "2") for line in wrap(whole, sheet.columns - 2)]
    room = max(limit - len(head) - len(tail), 1)
    if len(body) > room:
        body[room - 1 :] = [sheet.paint(f"    … {len(body) - room + 1} more lines: v shows all", "33")]
    return [*head, *body, *tail]


def _details(approval: Approval, sheet: Sheet, *, is_cut: bool) -> Iterator[str]:
    """The exact command, the change to the file as it is now, or every argument."""
    given, change = approval.call.arguments, approval.change
    rest = dict(given) if isinstance(given, Mapping) else {"arguments": given}
    subject = next((field for field in SUBJECTS if isinstance(rest.get(field), str)), "")
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


def _fold(call: ToolCall, answer: str, sheet: Sheet, *, mark: str, end: str) -> str:
    """A call and what came of it, on one line."""
    name = clip(one_line(call.name), sheet.columns // 3)
    room = max(sheet.columns - width(name) - width(end) - 7, _MIN_COLUMNS)
    arguments = one_line(arguments_of(call))
    arguments = clip(arguments, max(room - width(answer), room // 2))
    answer = clip(answer, max(room - width(arguments), 1))
    shown = f"{sheet.paint(f'{mark} {name}', '31' if mark == '×' else '35')}({arguments})"
    return f"{shown} {sheet.paint('→', '2')} {answer}{sheet.paint(end, '2')}"


def _extent(text: str) -> str:
    """How much a folded text holds, where its first line is not all."""
    return f" ({size(len(text.encode(errors='replace')))})" if "\n" in text.strip() else ""
