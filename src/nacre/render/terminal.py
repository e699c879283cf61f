"""A conversation as lines for a terminal; what a message says can never drive it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from itertools import chain

from msgspec import Struct

from nacre.render.conversation import Call, Cover, Cut, Part, Said
from nacre.render.markdown import (
    BOLD,
    CODE,
    ITALIC,
    STRUCK,
    Block,
    Code,
    Heading,
    Line,
    Listing,
    Paragraph,
    Quote,
    Span,
    Table,
    blocks,
    spans,
)
from nacre.render.text import clip, cuts, one_line, pad, size, visible, width, wrapped

_NARROWEST = 20
_WIDEST_PROSE = 100
_SGR = ((BOLD, "1"), (ITALIC, "3"), (STRUCK, "9"), (CODE, "36"))
_ROLES = {"user": "1;32", "assistant": "1;34", "tool": "35", "system": "33"}


When = Callable[[datetime], str]
"""How a moment is written: how long ago, or exactly."""


class Sheet(Struct, frozen=True, kw_only=True):
    """What is printed on: how wide, in colour or not, and how much of it."""

    columns: int = 80
    has_colour: bool = False
    is_full: bool = False

    def paint(self, text: str, sgr: str) -> str:
        """The text in a colour, where there are any."""
        return f"\x1b[{sgr}m{text}\x1b[0m" if self.has_colour and sgr and text else text

    def narrowed(self, columns: int) -> Sheet:
        """A sheet of which some columns are taken."""
        left = max(self.columns - columns, _NARROWEST)
        return Sheet(columns=left, has_colour=self.has_colour, is_full=self.is_full)


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
        inner = Sheet(columns=inner.columns, is_full=sheet.is_full)
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
        case Paragraph(text):
            yield from _flow(spans(text), sheet)
        case Code(language, text):
            yield from _code(language, text, sheet)
        case Table(rows):
            yield from _table(rows, sheet)
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
    yield sheet.paint(clip(f"```{language}", sheet.columns), "2")
    yield from (sheet.paint(line, "36") for line in _verbatim(text, sheet))
    yield sheet.paint("```", "2")


def _verbatim(text: str, sheet: Sheet) -> Iterator[str]:
    """Lines as they are, cut only where they do not fit."""
    for line in visible(text).rstrip("\n").expandtabs().split("\n"):
        yield from (line[start:end] for start, end in cuts(line, sheet.columns))


def _table(rows: Sequence[Sequence[str]], sheet: Sheet) -> Iterator[str]:
    """Cells in columns where they fit, else one row after another as it was written."""
    cells = [["".join(span.text for span in spans(cell)) for cell in row] for row in rows]
    widths = [max(map(width, column)) for column in zip(*(_filled(row, len(rows[0])) for row in cells), strict=True)]
    fits = sum(widths) + 3 * len(widths) <= sheet.columns
    for place, row in enumerate(cells):
        line = " │ ".join(map(pad, _filled(row, len(widths)), widths)) if fits else " | ".join(row)
        for part in wrapped(line.rstrip(), sheet.columns):
            yield sheet.paint(part, "" if place else "1")
        if not place and fits:
            yield sheet.paint("─┼─".join("─" * columns for columns in widths), "2")


def _filled(row: Sequence[str], columns: int) -> list[str]:
    return [*row[:columns], *[""] * (columns - len(row))]


# ---- spans


def _flow(found: Iterable[Span], sheet: Sheet, *, sgr: str = "") -> Iterator[str]:
    """Spans as wrapped lines, each painted whole, so that no colour runs over a line's end."""
    shown = [(text, _sgr(span, sgr)) for span in found for text in _shown(span, sheet)]
    for line in _lines(shown):
        for pieces in _sliced(line, min(sheet.columns, _WIDEST_PROSE)):
            yield "".join(sheet.paint(text, style) for text, style in pieces)


def _shown(span: Span, sheet: Sheet) -> Iterator[str]:
    """A span's text, its link's address behind it, its ticks around it where there is no colour for code."""
    text = span.text.expandtabs(4) if "\t" in span.text else span.text
    yield f"`{text}`" if span.style & CODE and not sheet.has_colour else text
    if span.address and span.address.removeprefix("mailto:") != text:
        yield f" ({span.address})"


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
