"""Markdown that comes in pieces, as lines for a terminal: those that are final, and those that may still change."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from copy import copy

from msgspec.structs import replace

from nacre.render.code import Painter
from nacre.render.markdown import Block, Code, Listing, Table, blocks, open_fence
from nacre.render.terminal import Sheet, code_line, fence, markdown
from nacre.render.text import visible


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
        return [line for one in whole for line in self._taken(one.removesuffix("\r"))]

    def end(self) -> list[str]:
        """Take nothing more; gives the lines that are left."""
        lines = list(self._taken(self._part)) if self._part else []
        lines += self._code.end() if self._code is not None else self._flushed()
        self.__init__(self._sheet)  # type: ignore[misc] # as it was when it was made
        return lines

    @property
    def tail(self) -> list[str]:
        """The lines that may still change."""
        part = self._part.removesuffix("\r")
        if self._code is not None:
            return self._code.shown(part)
        lines = list(markdown("\n".join([*self._waiting, part]), replace(self._sheet(), cuts_code=True)))
        return ["", *lines] if lines and self._begun and not self._goes_on else lines

    def _taken(self, line: str) -> Iterator[str]:
        """Take a whole line; gives what is final now."""
        if self._code is not None:
            yield from self._in_code(self._code, visible(line))
            return
        self._waiting.append(visible(line))
        found = _parsed(self._waiting)
        if not found:
            self._waiting.clear()
        elif len(found) > 1:
            # A table is known by its second line.
            yield from self._flushed(2 if isinstance(found[-1], Table) else 1)
        elif not line.strip() and not isinstance(found[0], Listing | Code):
            # A list and indented code may go on behind a blank line.
            yield from self._flushed()
        elif self._begins_item(found[0]):
            yield from self._flushed(1)
            self._goes_on = True
        if self._waiting and open_fence(self._waiting[0]) and isinstance(_parsed(self._waiting)[0], Code):
            yield from self._gap()
            self._code = _Fence(self._waiting.pop(), self._sheet)
            yield from self._code.begin()

    def _in_code(self, code: _Fence, line: str) -> Iterator[str]:
        yield from code.take(line)
        if code.is_closed:
            self._code = None

    def _begins_item(self, block: Block) -> bool:
        """Tell whether the last line begins a further item of the list that waits."""
        if not isinstance(block, Listing) or len(block.items) == 1:
            return False
        before = _parsed(self._waiting[:-1])[0]
        is_new = isinstance(before, Listing) and len(before.items) < len(block.items)
        return is_new and _lead(self._waiting[0]) == _lead(self._waiting[-1])

    def _flushed(self, rest: int = 0) -> list[str]:
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
        self._language = block.language if isinstance(block, Code) else ""
        self._painter = Painter(self._language if sheet().has_colour else "")
        self._blank: list[str] = []
        self._is_empty = True
        self.is_closed = False

    def begin(self) -> list[str]:
        return [fence(self._sheet(), self._language)]

    def take(self, line: str) -> list[str]:
        if not open_fence(f"{self._head}\n{line}"):
            self.is_closed = True
            return self.end()
        text = self._text(line)
        if not text:
            # Empty lines at the end of code are not shown.
            self._blank.append("")
            return []
        lines = self._drawn([*self._blank, text], self._painter, self._sheet())
        self._blank, self._is_empty = [], False
        return lines

    def end(self) -> list[str]:
        return [*([""] if self._is_empty else []), fence(self._sheet())]

    def shown(self, part: str) -> list[str]:
        """What is drawn below the lines that are final."""
        sheet = replace(self._sheet(), cuts_code=True)
        if not part or not open_fence(f"{self._head}\n{part}"):
            return [fence(sheet)]
        return [*self._drawn([*self._blank, self._text(part)], copy(self._painter), sheet), fence(sheet)]

    def _text(self, line: str) -> str:
        """The line without the indentation of its fence."""
        block = blocks(f"{self._head}\n{line}")[0]
        return block.text if isinstance(block, Code) else line

    def _drawn(self, lines: list[str], painter: Painter, sheet: Sheet) -> list[str]:
        return [drawn for line in lines for drawn in code_line(visible(line), painter, sheet)]


def _parsed(lines: list[str]) -> tuple[Block, ...]:
    return blocks("\n".join(lines))


def _lead(line: str) -> str:
    return line[: len(line) - len(line.lstrip(" \t"))]
