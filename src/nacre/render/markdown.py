"""Markdown as models write it, parsed into blocks; nothing in it is ever taken for HTML.

Every message parses, in time that grows with its length alone. What is not understood is text.

The rules are CommonMark's with GitHub's tables, and `tests/render/test_oracle.py` names where they are not: a list
may be indented as models indent them, and definitions of links stay in sight.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from msgspec import Struct

from nacre.render.spans import ADDRESS, TITLE, address_of, reference_key

_MAX_DEPTH = 8
_MAX_COLUMNS = 64
_MAX_MISSING = 10_000
_CODE_INDENT = 4


class Heading(Struct, frozen=True):
    """A heading of level 1 to 6."""

    level: int
    text: str


class Paragraph(Struct, frozen=True):
    """Lines of prose; their ends are kept."""

    text: str


class Definitions(Struct, frozen=True):
    """Lines that say where links lead to, as `[label]: address`."""

    text: str


class Code(Struct, frozen=True):
    """Lines that are shown as they are."""

    language: str
    text: str


class Table(Struct, frozen=True):
    """Rows of cells, the heads first, all of one length; the side of a column is "left", "right", "center" or ""."""

    rows: tuple[tuple[str, ...], ...]
    sides: tuple[str, ...]


class Quote(Struct, frozen=True):
    """What somebody else said."""

    blocks: tuple[Block, ...]


class Item(Struct, frozen=True):
    """One item of a list, with its mark as written."""

    mark: str
    blocks: tuple[Block, ...]


class Listing(Struct, frozen=True):
    """A list."""

    items: tuple[Item, ...]

    @property
    def is_ordered(self) -> bool:
        return self.items[0].mark[0].isdigit()


class Line(Struct, frozen=True):
    """A line across the page."""


Block = Heading | Paragraph | Definitions | Code | Table | Quote | Listing | Line


class Document(Struct, frozen=True):
    """The blocks of a text, and the addresses of the links that it defines, for `spans`."""

    blocks: tuple[Block, ...]
    references: Mapping[str, str]


def parse(text: str) -> Document:
    parser = _Parser(text.split("\n"))
    return Document(parser.parse(), parser.references)


def blocks(text: str) -> tuple[Block, ...]:
    """The blocks of a text."""
    return parse(text).blocks


def open_fence(text: str) -> str:
    """The fence that the text leaves open, "" if none."""
    mark = ""
    for line in text.split("\n"):
        if mark:
            mark = "" if _closes(line, mark) else mark
        elif fence := _FENCE.match(line):
            mark = fence[1]
    return mark


_FENCE = re.compile(r" {0,3}(`{3,}(?=[^`]*$)|~{3,})(.*)$")
_HEADING = re.compile(r" {0,3}(#{1,6})(?:[ \t]+(.*))?$")
_HEADING_END = re.compile(r"(?:^|[ \t])#+$")
_UNDERLINE = re.compile(r" {0,3}(=+|-+)\s*$")
_ITEM = re.compile(r"([ \t]*)([-*+]|\d{1,9}[.)])(?:([ \t]+)(?=\S)|\s*$)")
_RULED = re.compile(r" {0,3}([-*_])[ \t]*(?:\1[ \t]*){2,}$")
_QUOTED = re.compile(r" {0,3}> ?")
_STARTS = re.compile(r"[ \t]*(?:[`~#>*+_-]|\d{1,9}[.)])")
_BAR = re.compile(r"(?<!\\)\|")
_DEFINITION = re.compile(
    rf" {{0,3}}\[(?P<label>(?:[^\[\]\\]|\\.){{1,999}}+)\]:[ \t]*+(?:{ADDRESS})(?:[ \t]++(?:{TITLE}))?\s*$"
)


class _List:
    """A list that is still open: what its marks end with, or are, and where the leftmost one stands."""

    __slots__ = ("base", "items", "sort")

    def __init__(self, sort: str, base: int) -> None:
        self.sort = sort
        self.base = base
        self.items: list[tuple[str, _Container]] = []


class _Container:
    """What blocks are in: the text, a quote, or an item, whose lines are indented by `least` and begin at `offset`."""

    __slots__ = ("blocks", "least", "offset")

    def __init__(self, least: int = 0, offset: int = 0) -> None:
        self.blocks: list[Block | _List | _Container] = []
        self.least = least
        self.offset = offset

    def close(self) -> tuple[Block, ...]:
        done: list[Block] = []
        for block in self.blocks:
            if isinstance(block, _List):
                items = (Item(mark, inner.close()) for mark, inner in block.items)
                done.append(Listing(tuple(items)))
            else:
                done.append(Quote(block.close()) if isinstance(block, _Container) else block)
        return tuple(done)


class _Fence(Struct, frozen=True):
    """A block of code that is still open."""

    mark: str
    indent: int
    language: str


# The block that takes the next lines.
_NOTHING, _PARAGRAPH, _FENCED, _INDENTED, _TABLE = range(5)


class _Parser:
    """Takes the lines of a text one by one, and puts each where it belongs.

    `_open` are the containers that the last line was in, and `_lines` those of the one block in them that is not
    complete yet, which is in the last of them.
    """

    def __init__(self, lines: Sequence[str]) -> None:
        self._source = lines
        self._open = [_Container()]
        self._kind = _NOTHING
        self._lines: list[str] = []
        self._fence = _Fence("", 0, "")
        self._sides: tuple[str, ...] = ()
        self._missing = 0
        self.references: dict[str, str] = {}

    def parse(self) -> tuple[Block, ...]:
        for at in range(len(self._source)):
            self._take(at)
        self._end_block()
        return self._open[0].close()

    def _take(self, at: int) -> None:
        # 1. Which of the open containers is the line in?
        rest, depth = self._inside(self._source[at])
        is_inside = depth == len(self._open)
        if self._kind == _FENCED and is_inside:
            # Code goes up to a fence of the same sort and at least that length; without one, up to the end.
            if _closes(rest, self._fence.mark):
                self._end_block()
            else:
                self._lines.append(_without_indent(rest, self._fence.indent))
            return
        if not rest.strip():
            self._take_blank(depth)
            return
        # 2. Text goes on with a paragraph even without the marks of the containers around it.
        if self._kind == _PARAGRAPH and not is_inside and not self._begins(rest, at):
            self._lines.append(rest.lstrip())
            return
        self._close(depth)
        # 3. Which containers does it open?
        if _STARTS.match(rest) is not None and not self._is_code(rest):
            rest = self._enter(rest)
        # 4. What is left is a part of a block.
        self._put(rest)

    def _inside(self, line: str) -> tuple[str, int]:
        """What is left of a line without the marks of the containers that it is in, and how many these are."""
        for depth, container in enumerate(self._open[1:], 1):
            if not container.offset:
                mark = _QUOTED.match(line)
                if mark is None:
                    return line, depth
                line = line[mark.end() :]
            elif not line.strip():
                continue
            elif _indent(line) < container.least:
                return line, depth
            else:
                line = _without_indent(line, container.offset)
        return line, len(self._open)

    def _begins(self, rest: str, at: int) -> bool:
        """Tell whether a line that is not in all containers of a paragraph begins something outside of them."""
        if _STARTS.match(rest) is None:
            return at + 1 < len(self._source) and _is_head(rest) and _is_rule(self._source[at + 1])
        return any(sort.match(rest) for sort in (_FENCE, _HEADING, _RULED, _QUOTED, _ITEM))

    def _take_blank(self, depth: int) -> None:
        self._close(depth)
        if self._kind == _INDENTED:
            self._lines.append("")
            return
        is_empty = self._kind == _NOTHING and not self._open[-1].blocks
        self._end_block()
        if is_empty and self._open[-1].offset:
            # An item whose first lines are blank has nothing in it.
            self._open.pop()

    def _close(self, depth: int) -> None:
        """Close the containers that a line is not in."""
        if depth < len(self._open):
            self._end_block()
            del self._open[depth:]

    # ---- containers

    def _is_code(self, rest: str) -> bool:
        """Tell whether a line belongs to the indented code above it, whatever it looks like."""
        return self._kind == _INDENTED and _indent(rest) >= _CODE_INDENT

    def _enter(self, rest: str) -> str:
        """Open the containers that begin in a line; gives the line without their marks."""
        while len(self._open) <= _MAX_DEPTH:
            if mark := _QUOTED.match(rest):
                self._end_block()
                quote = _Container()
                self._open[-1].blocks.append(quote)
                self._open.append(quote)
                rest = rest[mark.end() :]
                continue
            item = _ITEM.match(rest)
            if item is None or _RULED.match(rest):
                break
            # Not every item may follow a paragraph at once: a year at the beginning of a line is no item.
            if self._kind == _PARAGRAPH and (item[3] is None or item[2][:-1] not in {"", "1"}):
                break
            rest = self._enter_item(rest, item)
        return rest

    def _enter_item(self, rest: str, item: re.Match[str]) -> str:
        lead, mark, blanks = _indent(item[1]), item[2], item[3] or ""
        self._end_block()
        siblings = self._open[-1].blocks
        last = siblings[-1] if siblings else None
        if not isinstance(last, _List) or last.sort != mark[-1]:
            last = _List(mark[-1], lead)
            siblings.append(last)
        last.base = min(last.base, lead)
        # More blanks are the indentation of code.
        width = len(blanks) if 1 <= len(blanks) <= _CODE_INDENT else 1
        inner = _Container(last.base + 2, lead + len(mark) + width)
        last.items.append((mark, inner))
        self._open.append(inner)
        return blanks[width:] + rest[item.end() :]

    # ---- blocks

    def _put(self, rest: str) -> None:
        """Put a line into the block that is open, or into a new one."""
        if self._kind == _PARAGRAPH and self._continue_paragraph(rest):
            return
        if self._kind == _TABLE and "|" in rest and not _starts_block(rest) and self._may_fill(rest):
            self._lines.append(rest)
            return
        if self._is_code(rest):
            self._lines.append(_without_indent(rest, _CODE_INDENT))
            return
        self._end_block()
        self._begin_block(rest)

    def _may_fill(self, row: str) -> bool:
        """Count the cells that a row of the table lacks; False once the text lacks too many, as only a trap does."""
        self._missing += max(self._lines[0].count("|") - row.count("|"), 0)
        return self._missing <= _MAX_MISSING

    def _continue_paragraph(self, rest: str) -> bool:
        """Take a line that continues a paragraph, or makes a heading or a table of it; False if it does neither."""
        if underline := _UNDERLINE.match(rest):
            found = self._paragraph()
            if isinstance(found, Paragraph):
                text = "\n".join(line.strip() for line in self._lines)
                self._open[-1].blocks.append(Heading(1 if underline[1][0] == "=" else 2, text))
                self._kind = _NOTHING
                return True
        elif _is_rule(rest) and _is_head(self._lines[-1]):
            head = self._lines.pop()
            self._end_block()
            self._kind, self._lines, self._sides = _TABLE, [head], tuple(map(_side, _cells(rest)))
            return True
        if _starts_block(rest):
            return False
        self._lines.append(rest)
        return True

    def _begin_block(self, rest: str) -> None:
        add = self._open[-1].blocks.append
        if fence := _FENCE.match(rest):
            self._kind, self._lines = _FENCED, []
            self._fence = _Fence(fence[1], _indent(rest), fence[2].strip())
        elif heading := _HEADING.match(rest):
            add(Heading(len(heading[1]), _HEADING_END.sub("", (heading[2] or "").strip()).rstrip()))
        elif _RULED.match(rest):
            add(Line())
        elif _indent(rest) >= _CODE_INDENT:
            self._kind, self._lines = _INDENTED, [_without_indent(rest, _CODE_INDENT)]
        elif rest.strip():
            self._kind, self._lines = _PARAGRAPH, [rest]

    def _end_block(self) -> None:
        """Put the block that is open where it belongs."""
        add = self._open[-1].blocks.append
        if self._lines and self._kind == _PARAGRAPH:
            add(self._paragraph())
        elif self._kind == _FENCED:
            add(Code(self._fence.language, "\n".join(self._lines)))
        elif self._kind == _INDENTED:
            add(Code("", "\n".join(self._lines).rstrip("\n")))
        elif self._kind == _TABLE:
            # With as many columns as its first line has.
            rows = [_cells(line) for line in self._lines]
            count = len(rows[0])
            filled = tuple((*row[:count], *[""] * (count - len(row))) for row in rows)
            add(Table(filled, (*self._sides[:count], *[""] * (count - len(self._sides)))))
        self._kind, self._lines = _NOTHING, []

    def _paragraph(self) -> Paragraph | Definitions:
        """The lines as a paragraph, of which the first may define links."""
        text = "\n".join(self._lines)
        for line in self._lines:
            found = _DEFINITION.match(line)
            if found is None:
                return Paragraph(text)
            self.references.setdefault(reference_key(found["label"]), address_of(found))
        return Definitions(text)


def _starts_block(rest: str) -> bool:
    """Tell whether a line begins something that cannot be a part of a paragraph."""
    return _STARTS.match(rest) is not None and any(sort.match(rest) for sort in (_FENCE, _HEADING, _RULED))


def _closes(line: str, mark: str) -> bool:
    stripped = line.strip()
    return stripped.startswith(mark) and not stripped.strip(mark[0])


def _is_head(line: str) -> bool:
    """Tell whether a line can be the first of a table."""
    return 0 < line.count("|") <= _MAX_COLUMNS


def _is_rule(line: str) -> bool:
    """Tell whether a line is what stands below the heads of a table."""
    return "-" in line and "|" in line and not line.strip().strip("|-: \t")


def _cells(line: str) -> tuple[str, ...]:
    inner = line.strip().removeprefix("|").removesuffix("|")
    return tuple(cell.strip().replace("\\|", "|") for cell in _BAR.split(inner))


def _side(rule: str) -> str:
    """Where the text of a column stands, as the colons of its rule say."""
    if rule.startswith(":"):
        return "center" if rule.endswith(":") else "left"
    return "right" if rule.endswith(":") else ""


def _indent(line: str) -> int:
    lead = line[: len(line) - len(line.lstrip(" \t"))]
    return len(lead.expandtabs(4))


def _without_indent(line: str, columns: int) -> str:
    """The line without so many columns of blanks at its beginning, as far as it has them."""
    at = column = 0
    while column < columns and line[at : at + 1] in {" ", "\t"}:
        column += 4 - column % 4 if line[at] == "\t" else 1
        at += 1
    return " " * (column - columns) + line[at:]
