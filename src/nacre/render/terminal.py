"""A conversation as lines for a terminal; no message can control it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from itertools import chain, groupby

from msgspec import Struct
from msgspec.structs import replace

from nacre.render.code import PLAIN, Painter
from nacre.render.conversation import Call, Cover, Cut, Part, Said
from nacre.render.markdown import Block, Code, Definitions, Heading, Line, Listing, Paragraph, Quote, Table, blocks
from nacre.render.spans import BOLD, CODE, ITALIC, STRUCK, Span, spans
from nacre.render.text import clip, cuts, one_line, pad, size, visible, width, wrapped
from nacre.render.theme import sgr_for

_NARROWEST = 20
_WIDEST_PROSE = 100
_NARROWEST_CELL = 8
_SGR = ((BOLD, "1"), (ITALIC, "3"), (STRUCK, "9"), (CODE, "36"))
_ROLES = {"user": "1;32", "assistant": "1;34", "tool": "35", "system": "33"}


When = Callable[[datetime], str]
"""How a moment is written: how long ago, or exactly."""


class Sheet(Struct, frozen=True, kw_only=True):
    """How to print: the width, colours or none and for which background, everything or folded.

    Lines of code are printed whole, so that they can be copied; `cuts_code` is for what is drawn again and again.
    """

    columns: int = 80
    has_colour: bool = False
    is_full: bool = False
    theme: str = "dark"
    cuts_code: bool = False

    def paint(self, text: str, sgr: str) -> str:
        """The text in a colour, where there are any."""
        return f"\x1b[{sgr_for(self.theme, sgr)}m{text}\x1b[0m" if self.has_colour and sgr and text else text

    def narrowed(self, columns: int) -> Sheet:
        """The same with fewer columns."""
        return replace(self, columns=max(self.columns - columns, _NARROWEST))


def cover(found: Cover, sheet: Sheet, *, when: When) -> Iterator[str]:
    """What stands above the conversation."""
    if found.title:
        yield sheet.paint(clip(one_line(found.title), sheet.columns), "1")
    facts = [one_line(found.key)]
    if found.created is not None:
        facts.append(f"created {when(found.created)}")
    facts.append(found.counted)
    yield from (sheet.paint(line, "2") for line in wrapped(" · ".join(facts), sheet.columns))


def conversation(found: Iterable[Part], sheet: Sheet, *, when: When) -> Iterator[str]:
    """Every part of a conversation, each behind an empty line."""
    for part in found:
        yield ""
        yield from _cut(part, sheet) if isinstance(part, Cut) else _said(part, sheet, when)


def markdown(text: str, sheet: Sheet) -> Iterator[str]:
    """Markdown as wrapped lines."""
    yield from _all(blocks(visible(text)), sheet)


# ---- parts


def _said(said: Said, sheet: Sheet, when: When) -> Iterator[str]:
    yield _headline(said, sheet, when)
    inner = sheet.narrowed(2)
    if not said.is_live:
        # Grey is one colour: nothing in it has another.
        inner = replace(inner, has_colour=False)
    for line in _body(said, inner):
        yield f"  {line if said.is_live else sheet.paint(line, '2')}" if line else ""


def _headline(said: Said, sheet: Sheet, when: When) -> str:
    who = one_line(f"{said.role} {said.name}" if said.name else said.role)
    facts = [who, *([one_line(said.model)] if said.model else ()), when(said.ts)]
    if not said.is_live:
        line = clip(f"#{said.label} × {' · '.join(facts)} · not in the history", sheet.columns)
        return sheet.paint(line, "2")
    rest = clip(" · ".join(["", *facts[1:]]), max(sheet.columns - width(who) - len(said.label) - 2, 0))
    return (
        f"{sheet.paint('#' + said.label, '2')} {sheet.paint(who, _ROLES.get(said.role, '1'))}{sheet.paint(rest, '2')}"
    )


def _body(said: Said, sheet: Sheet) -> Iterator[str]:
    if said.reasoning:
        yield from _reasoning(said.reasoning, sheet)
    if said.text:
        yield from _result(said.text, sheet) if said.role == "tool" else markdown(said.text, sheet)
    for attachment in said.attachments:
        yield sheet.paint(clip(f"[{one_line(attachment)}]", sheet.columns), "35")
    for call in said.calls:
        yield from _call(call, sheet)


def _reasoning(text: str, sheet: Sheet) -> Iterator[str]:
    if not sheet.is_full:
        yield sheet.paint(clip(f"~ {one_line(text)}", sheet.columns), "2;3")
        return
    for line in wrapped(visible(text).expandtabs(), sheet.columns - 2):
        yield sheet.paint(f"~ {line}", "2;3")


def _result(text: str, sheet: Sheet) -> Iterator[str]:
    """What a tool gave back without a call that it belongs to."""
    if sheet.is_full:
        yield from _verbatim(text, sheet)
    else:
        yield clip(f"→ {one_line(text)}", sheet.columns - 12) + sheet.paint(_extent(text), "2")


def _call(call: Call, sheet: Sheet) -> Iterator[str]:
    if sheet.is_full:
        yield from _unfolded(call, sheet)
        return
    name = clip(one_line(call.name), sheet.columns // 3)
    end = _extent(call.result.text) if call.result is not None else ""
    room = sheet.columns - width(name) - 7
    if room - width(end) > _NARROWEST:
        room -= width(end)
    else:
        end = ""
    answer = one_line(call.result.text) if call.result is not None else "no result"
    arguments = clip(one_line(call.arguments), max(room - width(answer), room // 2))
    answer = clip(answer, room - width(arguments))
    yield f"{sheet.paint(f'▸ {name}', '35')}({arguments}) {sheet.paint('→', '2')} {answer}{sheet.paint(end, '2')}"


def _unfolded(call: Call, sheet: Sheet) -> Iterator[str]:
    yield sheet.paint(clip(f"▾ {one_line(call.name)}", sheet.columns), "35")
    inner = sheet.narrowed(4)
    yield from (f"    {line}" for line in _verbatim(call.arguments, inner) if call.arguments)
    if call.result is None:
        yield sheet.paint("  → no result", "2")
        return
    yield sheet.paint(f"  → #{call.result.label}{_extent(call.result.text)}", "2")
    yield from (f"    {line}" for line in _verbatim(call.result.text, inner))


def _extent(text: str) -> str:
    """How much a folded text holds, where its first line is not all."""
    text = text.strip()
    return f" ({size(len(text.encode(errors='replace')))})" if "\n" in text or len(text) > _WIDEST_PROSE else ""


def _cut(cut: Cut, sheet: Sheet) -> Iterator[str]:
    hidden = f", {cut.hidden} message{'s' * (cut.hidden != 1)} before" if cut.hidden else ""
    title = clip(f"── {'summary' if cut.summary else 'history was cut'}{hidden} ", sheet.columns)
    yield sheet.paint(title + "─" * (min(sheet.columns, _WIDEST_PROSE) - width(title)), "33")
    for line in markdown(cut.summary, sheet.narrowed(2)):
        yield f"  {line}" if line else ""


# ---- blocks


def _all(found: Sequence[Block], sheet: Sheet) -> Iterator[str]:
    """Blocks with an empty line between them, save inside a list."""
    for place, block in enumerate(found):
        if place:
            yield ""
        yield from _block(block, sheet)


def _block(block: Block, sheet: Sheet) -> Iterator[str]:
    match block:
        case Heading(level, text):
            yield from _flow((Span(f"{'#' * level} "), *spans(text)), sheet, sgr="1;4" if level == 1 else "1")
        case Paragraph(text) | Definitions(text):
            # Links by label stay as they are written: while an answer comes, nobody knows what will define them.
            yield from _flow(spans(text), sheet)
        case Code(language, text):
            yield from _code(language, text, sheet)
        case Table():
            yield from _table(block, sheet)
        case Quote(inner):
            yield from (f"{sheet.paint('│', '2')} {line}".rstrip() for line in _all(inner, sheet.narrowed(2)))
        case Listing(items):
            for item in items:
                mark = item.mark if block.is_ordered else "•"
                yield from _hung(mark, _tight(item.blocks, sheet.narrowed(len(mark) + 1)))
        case Line():
            yield sheet.paint("─" * min(sheet.columns, _WIDEST_PROSE), "2")


def _tight(found: Sequence[Block], sheet: Sheet) -> Iterator[str]:
    return chain.from_iterable(_block(block, sheet) for block in found)


def _hung(mark: str, lines: Iterable[str]) -> Iterator[str]:
    """Lines with a mark before the first and as many blanks before the others."""
    lead = f"{mark} "
    for line in lines:
        yield f"{lead}{line}".rstrip()
        lead = " " * len(lead)
    if lead[0] != " ":
        yield mark


def _code(language: str, text: str, sheet: Sheet) -> Iterator[str]:
    painter = Painter(language if sheet.has_colour else "")
    yield fence(sheet, language)
    for line in visible(text).rstrip("\n").split("\n"):
        yield from code_line(line, painter, sheet)
    yield fence(sheet)


def fence(sheet: Sheet, language: str = "") -> str:
    """The line above a block of code, or below it."""
    return sheet.paint(clip(f"```{language}", sheet.columns), "2")


def code_line(line: str, painter: Painter, sheet: Sheet) -> Iterator[str]:
    """A line of code in its colours, whole or cut."""
    line = line.expandtabs()
    if sheet.cuts_code:
        yield from (sheet.paint(line[start:end], PLAIN) for start, end in cuts(line, sheet.columns))
    else:
        yield "".join(sheet.paint(text, sgr) for text, sgr in painter.pieces(line))


def _verbatim(text: str, sheet: Sheet) -> Iterator[str]:
    """Lines as they are, cut only where they do not fit."""
    for line in visible(text).rstrip("\n").expandtabs().split("\n"):
        yield from (line[start:end] for start, end in cuts(line, sheet.columns))


def _table(block: Table, sheet: Sheet) -> Iterator[str]:
    """Cells in columns, wrapped where they do not fit; with too many columns, every row as a list of its cells."""
    cells = [["".join(span.text for span in spans(cell)) for cell in row] for row in block.rows]
    count = len(block.sides)
    room = sheet.columns - 3 * (count - 1)
    widths = [max(map(width, column)) for column in zip(*cells, strict=True)]
    if sum(widths) > room and count * _NARROWEST_CELL > room:
        yield from _stacked(cells, sheet)
        return
    shares = _shared(widths, room)
    lines = [[list(wrapped(cell, share)) for cell, share in zip(row, shares, strict=True)] for row in cells]
    widths = [max(width(line) for cell in column for line in cell) for column in zip(*lines, strict=True)]
    is_wrapped = any(len(cell) > 1 for row in lines for cell in row)
    rule = sheet.paint("─┼─".join("─" * columns for columns in widths), "2")
    for place, row in enumerate(lines):
        if place == 1 or (place and is_wrapped):
            yield rule
        for at in range(max(map(len, row))):
            columns = zip(row, widths, block.sides, strict=True)
            parts = (_aligned(cell[at] if at < len(cell) else "", most, side) for cell, most, side in columns)
            yield sheet.paint(" │ ".join(parts).rstrip(), "" if place else "1")
    if len(lines) == 1:
        yield rule


def _aligned(text: str, columns: int, side: str) -> str:
    """The text on its side of a column."""
    if side == "center":
        text = pad(text, (columns + width(text)) // 2, right=True)
    return pad(text, columns, right=side == "right")


def _shared(widths: Sequence[int], room: int) -> list[int]:
    """The width of each column: as much as it needs where that is less than its share, else an equal share."""
    left, shared = room, dict[int, int]()
    for place in sorted(range(len(widths)), key=widths.__getitem__):
        share = left // (len(widths) - len(shared))
        shared[place] = max(min(widths[place], share), 1)
        left -= shared[place]
    return [shared[place] for place in range(len(widths))]


def _stacked(cells: Sequence[Sequence[str]], sheet: Sheet) -> Iterator[str]:
    """Each row as lines of `head: cell`, below a rule."""
    heads, *rows = cells
    for row in rows or [[""] * len(heads)]:
        yield sheet.paint("─" * min(sheet.columns, _WIDEST_PROSE), "2")
        for head, cell in zip(heads, row, strict=True):
            first, *others = wrapped(f"{head}: {cell}".strip(), sheet.columns)
            marked = head if first.startswith(f"{head}:") else ""
            yield sheet.paint(marked, "1") + first[len(marked) :]
            yield from others


# ---- spans


def _flow(found: Iterable[Span], sheet: Sheet, *, sgr: str = "") -> Iterator[str]:
    """Spans as wrapped lines, each painted whole, so that no colour runs over a line's end."""
    shown = [piece for _, link in groupby(found, key=lambda span: span.address) for piece in _shown(link, sheet, sgr)]
    for line in _lines(shown):
        for pieces in _sliced(line, min(sheet.columns, _WIDEST_PROSE)):
            yield "".join(sheet.paint(text, style) for text, style in pieces)


def _shown(link: Iterable[Span], sheet: Sheet, sgr: str) -> Iterator[tuple[str, str]]:
    """The spans of one link, or of none: ticks around code where there is no colour for it, the address behind all."""
    label, style, address = "", "", ""
    for span in link:
        text = span.text.expandtabs(4) if "\t" in span.text else span.text
        label, style, address = label + text, _sgr(span, sgr), span.address
        yield f"`{text}`" if span.style & CODE and not sheet.has_colour else text, style
    if address and label not in {address, address.removeprefix("mailto:")}:
        yield f" ({address})", style


def _sgr(span: Span, sgr: str) -> str:
    codes = [code for style, code in _SGR if span.style & style]
    return ";".join((*([sgr] if sgr else ()), *codes, *(["4"] if span.address else ())))


def _lines(shown: Iterable[tuple[str, str]]) -> Iterator[list[tuple[str, str]]]:
    """Painted texts, cut at their newlines."""
    line: list[tuple[str, str]] = []
    for text, sgr in shown:
        first, *others = text.split("\n")
        line.append((first, sgr))
        for other in others:
            yield line
            line = [(other, sgr)]
    yield line


def _sliced(line: Sequence[tuple[str, str]], columns: int) -> Iterator[list[tuple[str, str]]]:
    """The painted texts of each line that they are cut into, in one pass over both."""
    place = base = 0
    for start, end in cuts("".join(text for text, _ in line), columns):
        pieces: list[tuple[str, str]] = []
        while place < len(line):
            text, sgr = line[place]
            if base + len(text) > start:
                pieces.append((text[max(start - base, 0) : end - base], sgr))
            if base + len(text) > end:
                break
            base += len(text)
            place += 1
        yield pieces
