"""Markdown as models write it, parsed into blocks and spans; nothing in it is ever taken for HTML.

Every message parses, in time that grows with its length alone. What is not understood is text.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Sequence

from msgspec import Struct

_DEEPEST = 8
_MOST_COLUMNS = 64


# How a span is set; plain numbers, since a long message has a great many spans.
PLAIN, BOLD, ITALIC, STRUCK, CODE = 0, 1, 2, 4, 8


class Span(Struct, frozen=True):
    """Some text in one style; `address` is where it links to."""

    text: str
    style: int = PLAIN
    address: str = ""


class Heading(Struct, frozen=True):
    """A heading of level 1 to 6."""

    level: int
    text: str


class Paragraph(Struct, frozen=True):
    """Lines of prose; their ends are kept."""

    text: str


class Code(Struct, frozen=True):
    """Lines that are shown as they are."""

    language: str
    text: str


class Table(Struct, frozen=True):
    """Rows of cells, the heads first."""

    rows: tuple[tuple[str, ...], ...]


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


Block = Heading | Paragraph | Code | Table | Quote | Listing | Line


def blocks(text: str) -> tuple[Block, ...]:
    """The blocks of a text."""
    return tuple(_blocks(text.split("\n"), 0))


def spans(text: str) -> Sequence[Span]:
    """The text of one paragraph, heading or cell, cut where its style changes."""
    if _MARKED.search(text) is None:
        return (Span(text),)
    return _merged(_styled(*_tokens(text)))


def open_fence(text: str) -> str:
    """The fence that the text leaves open, "" if none."""
    mark = ""
    for line in text.split("\n"):
        if mark:
            mark = "" if _closes(line, mark) else mark
        elif fence := _FENCE.match(line):
            mark = fence[1]
    return mark


def is_linkable(address: str) -> bool:
    """Tell whether an address may be one that a click follows."""
    return _LINKABLE.match(address) is not None


# ---- blocks

_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})([^`\n]*)$")
_HEADING = re.compile(r" {0,3}(#{1,6})[ \t]+(.*)")
_ITEM = re.compile(r"([ \t]*)([-*+]|\d{1,9}[.)])([ \t]+)(?=\S)")
_RULED = re.compile(r" {0,3}([-*_])[ \t]*(?:\1[ \t]*){2,}$")
_QUOTED = re.compile(r" {0,3}> ?")
_STARTS = re.compile(r"[ \t]*(?:[`~#>*+_-]|\d{1,9}[.)])")


def _blocks(lines: Sequence[str], depth: int) -> Iterator[Block]:
    at = 0
    while at < len(lines):
        if not lines[at].strip():
            at += 1
            continue
        block, at = _block(lines, at, depth)
        yield block


def _block(lines: Sequence[str], at: int, depth: int) -> tuple[Block, int]:
    """The block that begins at a line, and the line behind it."""
    line = lines[at]
    if depth < _DEEPEST and _STARTS.match(line) is not None:
        if fence := _FENCE.match(line):
            return _code(lines, at, fence)
        if heading := _HEADING.match(line):
            return Heading(len(heading[1]), heading[2].strip()), at + 1
        if _RULED.match(line):
            return Line(), at + 1
        if _QUOTED.match(line):
            return _quote(lines, at, depth)
        if item := _ITEM.match(line):
            return _list(lines, at, item, depth)
    if _is_table(lines, at):
        return _table(lines, at)
    return _paragraph(lines, at)


def _code(lines: Sequence[str], at: int, fence: re.Match[str]) -> tuple[Block, int]:
    """Code up to a fence of the same sort and at least that length; without one, up to the end."""
    mark = fence[1]
    indent = len(lines[at]) - len(lines[at].lstrip(" "))
    end = at + 1
    while end < len(lines) and not _closes(lines[end], mark):
        end += 1
    body = "\n".join(_without_indent(line, indent) for line in lines[at + 1 : end])
    return Code(fence[2].strip(), body), end + 1


def _closes(line: str, mark: str) -> bool:
    stripped = line.strip()
    return stripped.startswith(mark) and not stripped.strip(mark[0])


def _quote(lines: Sequence[str], at: int, depth: int) -> tuple[Block, int]:
    inner = []
    while at < len(lines) and (mark := _QUOTED.match(lines[at])):
        inner.append(lines[at][mark.end() :])
        at += 1
    return Quote(tuple(_blocks(inner, depth + 1))), at


def _list(lines: Sequence[str], at: int, first: re.Match[str], depth: int) -> tuple[Block, int]:
    """Items of one sort at one indentation, each with the lines that are indented below it."""
    base, is_ordered = _indent(first[1]), first[2][0].isdigit()
    items: list[Item] = []
    while at < len(lines):
        item = _ITEM.match(lines[at])
        if item is None or _indent(item[1]) > base + 1 or item[2][0].isdigit() != is_ordered:
            break
        inner, at = _item(lines, at, item, base)
        items.append(Item(item[2], tuple(_blocks(inner, depth + 1))))
    return Listing(tuple(items)), at


def _item(lines: Sequence[str], at: int, item: re.Match[str], base: int) -> tuple[list[str], int]:
    """The lines of an item, and the line where the next may begin."""
    offset = _indent(item[1]) + len(item[2]) + (len(item[3]) if item[3].isspace() and len(item[3]) <= 4 else 1)  # noqa: PLR2004 - more is indented code
    inner, end = [lines[at][item.end() :]], at + 1
    for place in range(at + 1, len(lines)):
        line = lines[place]
        if not line.strip():
            continue
        if _indent(line) < base + 2:
            return inner, place if _ITEM.match(line) else end
        inner += [_without_indent(before, offset) for before in lines[end : place + 1]]
        end = place + 1
    return inner, end


def _is_table(lines: Sequence[str], at: int) -> bool:
    if at + 1 >= len(lines) or not 0 < lines[at].count("|") <= _MOST_COLUMNS:
        return False
    below = lines[at + 1]
    return "-" in below and "|" in below and not below.strip().strip("|-: \t")


def _table(lines: Sequence[str], at: int) -> tuple[Block, int]:
    rows = [_cells(lines[at])]
    at += 2
    while at < len(lines) and "|" in lines[at]:
        rows.append(_cells(lines[at]))
        at += 1
    return Table(tuple(rows)), at


def _cells(line: str) -> tuple[str, ...]:
    inner = line.strip().removeprefix("|").removesuffix("|")
    return tuple(cell.strip().replace("\\|", "|") for cell in _BAR.split(inner))


_BAR = re.compile(r"(?<!\\)\|")


def _paragraph(lines: Sequence[str], at: int) -> tuple[Block, int]:
    end = at + 1
    while end < len(lines) and lines[end].strip() and not _interrupts(lines, end):
        end += 1
    return Paragraph("\n".join(lines[at:end])), end


def _interrupts(lines: Sequence[str], at: int) -> bool:
    """Tell whether a line ends the paragraph above it."""
    line = lines[at]
    if _STARTS.match(line) is None:
        return _is_table(lines, at)
    return any(sort.match(line) for sort in (_FENCE, _HEADING, _RULED, _QUOTED, _ITEM))


def _indent(line: str) -> int:
    lead = line[: len(line) - len(line.lstrip(" \t"))]
    return len(lead.expandtabs(4))


def _without_indent(line: str, columns: int) -> str:
    bare = line.lstrip(" \t")
    return line[: len(line) - len(bare)].expandtabs(4)[columns:] + bare


# ---- spans

_MARKED = re.compile(r"[\\`*_\[$]|~~|<[hm]|https?://")
_TOKEN = re.compile(
    r"(?P<math>(?<![\w$])(?:\$\$[^$]+\$\$|\$(?!\s)[^$\n]+(?<!\s)\$(?![\w$({]))"
    r"|\\\((?:[^\\\n]|\\[^()\n])+\\\)|\\\[(?:[^\\]|\\[^\[\]])+\\\])"
    r"|\\(?P<escaped>[!-/:-@\[-`{-~])"
    r"|(?P<ticks>`+)"
    r"|!?\[(?P<label>[^\[\]\n]{1,999})\]\((?P<address>[^\s()<>]+(?:\([^\s()<>]*\)[^\s()<>]*)*)(?:[ \t]\"[^\"\n]*\")?\)"
    r"|<(?P<auto>(?:https?://|mailto:)[^\s<>]+)>"
    r"|(?<![A-Za-z0-9])(?P<bare>https?://[^\s<>\"'`]+)"
    r"|(?P<mark>\*{1,3}|_{1,3}|~~)"
)
# Prices, variables of a shell and escaped brackets are between such signs too; a formula has one of these.
_FORMULA = re.compile(r"[\\^={}+<>]")
_TICKS = re.compile("`+")
_LINKABLE = re.compile(r"(?:https?://|mailto:)[^\s\x00-\x20]+$", re.IGNORECASE)
_STYLES = {
    "*": ITALIC,
    "_": ITALIC,
    "**": BOLD,
    "__": BOLD,
    "***": BOLD | ITALIC,
    "___": BOLD | ITALIC,
    "~~": STRUCK,
}


class _Pair(Struct, frozen=True):
    """A style that begins behind one token and ends before another."""

    first: int
    last: int
    style: int


def _tokens(text: str) -> tuple[list[Span], list[_Pair]]:
    """The spans of a text without their emphasis, and which of them are emphasised."""
    found: list[Span] = []
    emphasis = _Emphasis()
    runs = _Runs(text)
    at = 0
    while match := _TOKEN.search(text, at):
        if match.start() > at:
            found.append(Span(text[at : match.start()]))
        at = match.end()
        match match.lastgroup:
            case "ticks":
                span, at = _code_span(match, runs)
                found.append(span)
            case "math" if not _is_formula(match[0]):
                # The sign alone; an escaped one without its backslash.
                at = match.start() + (1 if match[0][0] == "$" else 2)
                found.append(Span(match.string[at - 1 : at]))
            case "math":
                found.append(Span(match[0], CODE))
            case "mark":
                emphasis.meet(match, len(found))
                found.append(Span(match[0]))
            case _:
                span, at = _other(match)
                found.append(span)
    found.append(Span(text[at:]))
    return found, emphasis.pairs


def _is_formula(text: str) -> bool:
    """Tell whether what is between two signs is a formula, which is shown as it is written."""
    if text.startswith("\\["):
        return _FORMULA.search(text, 2, len(text) - 2) is not None
    body = text.strip("$") if text[0] == "$" else text[2:-2]
    return not any(map(str.isspace, body)) or "_" in body or _FORMULA.search(body) is not None


def _other(match: re.Match[str]) -> tuple[Span, int]:
    """An escaped character, or a link."""
    if match["escaped"] is not None:
        return Span(match["escaped"]), match.end()
    if match["label"] is not None:
        return Span(match["label"], address=match["address"]), match.end()
    if match["auto"] is not None:
        return Span(match["auto"], address=match["auto"]), match.end()
    address = _without_end(match["bare"])
    return Span(address, address=address), match.start() + len(address)


def _without_end(address: str) -> str:
    """A bare address without the punctuation of the sentence around it."""
    end = len(address)
    surplus = address.count(")") - address.count("(")
    while end and (address[end - 1] in ".,;:!?*_~" or (address[end - 1] == ")" and surplus > 0)):
        surplus -= address[end - 1] == ")"
        end -= 1
    return address[:end]


def _code_span(match: re.Match[str], runs: _Runs) -> tuple[Span, int]:
    """Code up to a run of as many ticks; without one, the ticks themselves."""
    ticks, start = match[0], match.end()
    end = runs.find(len(ticks), start)
    if end < 0:
        return Span(ticks), start
    body = match.string[start:end].replace("\n", " ")
    if body.startswith(" ") and body.endswith(" ") and body.strip():
        body = body[1:-1]
    return Span(body, CODE), end + len(ticks)


class _Runs:
    """Where the runs of ticks of each length begin; looked for once, since most texts have none."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._starts: dict[int, list[int]] | None = None

    def find(self, length: int, at: int) -> int:
        """Where the next run of that length begins, -1 if there is none."""
        if self._starts is None:
            self._starts = {}
            for run in _TICKS.finditer(self._text):
                self._starts.setdefault(len(run[0]), []).append(run.start())
        starts = self._starts.get(length, [])
        place = bisect_left(starts, at)
        return starts[place] if place < len(starts) else -1


class _Emphasis:
    """Which marks belong together: each mark that can close takes the last like it that is open."""

    def __init__(self) -> None:
        self.pairs: list[_Pair] = []
        self._open: dict[str, list[int]] = {mark: [] for mark in _STYLES}

    def meet(self, match: re.Match[str], token: int) -> None:
        mark, text = match[0], match.string
        before = text[match.start() - 1] if match.start() else " "
        after = text[match.end()] if match.end() < len(text) else " "
        inside_word = mark[0] == "_" and before.isalnum() and after.isalnum()
        if not before.isspace() and not inside_word and self._close(mark, token):
            return
        if not after.isspace() and not inside_word:
            self._open[mark].append(token)

    def _close(self, mark: str, token: int) -> bool:
        if self._open[mark]:
            first = self._open[mark].pop()
            for others in self._open.values():
                while others and others[-1] > first:
                    others.pop()
            self.pairs.append(_Pair(first, token, _STYLES[mark]))
            return True
        single, double = mark[0], mark[0] * 2
        if len(mark) == 3 and self._open[single] and self._open[double]:  # noqa: PLR2004 - as in **bold *and italic***
            inner, outer = sorted((single, double), key=lambda part: -self._open[part][-1])
            return self._close(inner, token) and self._close(outer, token)
        return False


def _styled(tokens: Sequence[Span], pairs: Sequence[_Pair]) -> Iterator[Span]:
    """The spans in their styles, without the marks that made them."""
    begins = {pair.first: pair.style for pair in pairs}
    ends = Counter(pair.last for pair in pairs)
    around = [PLAIN]
    for place, token in enumerate(tokens):
        if place in begins:
            around.append(around[-1] | begins[place])
        elif place in ends:
            del around[-ends[place] :]
        else:
            yield Span(token.text, token.style | around[-1], token.address)


def _merged(found: Iterator[Span]) -> list[Span]:
    """The spans with neighbours of one style joined."""
    joined: list[Span] = []
    texts: list[str] = []
    for span in found:
        if joined and joined[-1].style == span.style and not joined[-1].address and not span.address:
            texts.append(span.text)
            continue
        if joined:
            joined[-1] = Span("".join(texts), joined[-1].style, joined[-1].address)
        joined.append(span)
        texts = [span.text]
    joined[-1] = Span("".join(texts), joined[-1].style, joined[-1].address)
    return [span for span in joined if span.text]
