"""A conversation as lines for a terminal; no message can control it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from itertools import groupby

from msgspec import Struct
from msgspec.structs import replace

from nacre.amounts import size
from nacre.render.colours import PLAIN, Painter, sgr_for
from nacre.render.conversation import Call, Cover, Cut, MessageView, Part
from nacre.render.markdown import Block, Code, Definitions, Heading, Line, Listing, Paragraph, Quote, Table, blocks
from nacre.render.spans import BOLD, CODE, ITALIC, STRUCK, Span, spans
from nacre.render.text import clip, cuts, one_line, pad, visible, width, wrap

_MIN_COLUMNS = 20
_MAX_PROSE = 100
_MIN_CELL = 8
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

    def narrow(self, columns: int) -> Sheet:
        """The same with fewer columns."""
        return replace(self, columns=max(self.columns - columns, _MIN_COLUMNS))


def cover(found: Cover, sheet: Sheet, *, when: When) -> Iterator[str]:
    """What stands above the conversation."""
    if found.title:
        yield sheet.paint(clip(one_line(found.title), sheet.columns), "1")
    facts = [one_line(found.key)]
    if found.created is not None:
        facts.append(f"created {when(found.created)}")
    facts.append(found.totals)
    yield from (sheet.paint(line, "2") for line in wrap(" · ".join(facts), sheet.columns))


def conversation(found: Iterable[Part], sheet: Sheet, *, when: When) -> Iterator[str]:
    """Every part of a conversation, each after an empty line."""
    inner = sheet.narrow(2)
    for part in found:
        yield ""
        if isinstance(part, Cut):
            hidden = f", {part.hidden} message{'s' * (part.hidden != 1)} before" if part.hidden else ""
            title = clip(f"── {'summary' if part.summary else 'history was cut'}{hidden} ", sheet.columns)
            yield sheet.paint(title + "─" * (min(sheet.columns, _MAX_PROSE) - width(title)), "33")
            yield from (f"  {line}" if line else "" for line in markdown(part.summary, inner))
            continue
        who = one_line(f"{part.role} {part.name}" if part.name else part.role)
        facts = [*([one_line(part.model)] if part.model else ()), when(part.ts)]
        if part.is_live:
            rest = clip(" · ".join(["", *facts]), max(sheet.columns - width(who) - len(part.label) - 2, 0))
            role = sheet.paint(who, _ROLES.get(part.role, "1"))
            yield f"{sheet.paint('#' + part.label, '2')} {role}{sheet.paint(rest, '2')}"
            yield from (f"  {line}" if line else "" for line in _body(part, inner))
        else:
            # Grey is one colour: nothing in it has another.
            line = clip(f"#{part.label} × {' · '.join((who, *facts))} · not in the history", sheet.columns)
            yield sheet.paint(line, "2")
            for line in _body(part, replace(inner, has_colour=False)):
                yield f"  {sheet.paint(line, '2')}" if line else ""


def markdown(text: str, sheet: Sheet) -> Iterator[str]:
    """Markdown as wrapped lines."""
    yield from _all(blocks(visible(text)), sheet)


# ---- messages


def _body(shown: MessageView, sheet: Sheet) -> Iterator[str]:
    if shown.reasoning and sheet.is_full:
        for line in wrap(visible(shown.reasoning).expandtabs(), sheet.columns - 2):
            yield sheet.paint(f"~ {line}", "2;3")
    elif shown.reasoning:
        yield sheet.paint(clip(f"~ {one_line(shown.reasoning)}", sheet.columns), "2;3")
    # The text of a tool is a result without a call that it belongs to.
    if shown.text and shown.role != "tool":
        yield from markdown(shown.text, sheet)
    elif shown.text and sheet.is_full:
        yield from _verbatim(shown.text, sheet)
    elif shown.text:
        yield clip(f"→ {one_line(shown.text)}", sheet.columns - 12) + sheet.paint(_extent(shown.text), "2")
    for attachment in shown.attachments:
        yield sheet.paint(clip(f"[{one_line(attachment)}]", sheet.columns), "35")
    for call in shown.calls:
        yield from _unfold(call, sheet) if sheet.is_full else [_fold(call, sheet)]


def _fold(call: Call, sheet: Sheet) -> str:
    name = clip(one_line(call.name), sheet.columns // 3)
    end = _extent(call.result.text) if call.result is not None else ""
    room = sheet.columns - width(name) - 7
    if room - width(end) > _MIN_COLUMNS:
        room -= width(end)
    else:
        end = ""
    answer = one_line(call.result.text) if call.result is not None else "no result"
    arguments = clip(one_line(call.arguments), max(room - width(answer), room // 2))
    answer = clip(answer, room - width(arguments))
    return f"{sheet.paint(f'▸ {name}', '35')}({arguments}) {sheet.paint('→', '2')} {answer}{sheet.paint(end, '2')}"


def _unfold(call: Call, sheet: Sheet) -> Iterator[str]:
    yield sheet.paint(clip(f"▾ {one_line(call.name)}", sheet.columns), "35")
    inner = sheet.narrow(4)
    yield from (f"    {line}" for line in _verbatim(call.arguments, inner) if call.arguments)
    if call.result is None:
        yield sheet.paint("  → no result", "2")
        return
    yield sheet.paint(f"  → #{call.result.label}{_extent(call.result.text)}", "2")
    yield from (f"    {line}" for line in _verbatim(call.result.text, inner))


def _extent(text: str) -> str:
    """How much a folded text holds, where its first line is not all."""
    text = text.strip()
    return f" ({size(len(text.encode(errors='replace')))})" if "\n" in text or len(text) > _MAX_PROSE else ""


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
            painter = Painter(language if sheet.has_colour else "")
            yield fence(sheet, language)
            for line in visible(text).rstrip("\n").split("\n"):
                yield from code_line(line, painter, sheet)
            yield fence(sheet)
        case Table():
            yield from _table(block, sheet)
        case Quote(inner):
            yield from (f"{sheet.paint('│', '2')} {line}".rstrip() for line in _all(inner, sheet.narrow(2)))
        case Listing(items):
            for item in items:
                # The mark before the first line, as many blanks before the others.
                mark = item.mark if block.is_ordered else "•"
                below = sheet.narrow(len(mark) + 1)
                lines = [line for one in item.blocks for line in _block(one, below)]
                for place, line in enumerate(lines or [""]):
                    yield f"{' ' * len(mark) if place else mark} {line}".rstrip()
        case Line():
            yield sheet.paint("─" * min(sheet.columns, _MAX_PROSE), "2")


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
    if sum(widths) > room and count * _MIN_CELL > room:
        yield from _stack(cells, sheet)
        return
    # Each column is as wide as it needs where that is less than its share, else an equal share of what is left.
    shares, left = [0] * count, room
    for done, place in enumerate(sorted(range(count), key=widths.__getitem__)):
        shares[place] = max(min(widths[place], left // (count - done)), 1)
        left -= shares[place]
    lines = [[list(wrap(cell, share)) for cell, share in zip(row, shares, strict=True)] for row in cells]
    widths = [max(width(line) for cell in column for line in cell) for column in zip(*lines, strict=True)]
    is_wrapped = any(len(cell) > 1 for row in lines for cell in row)
    rule = sheet.paint("─┼─".join("─" * columns for columns in widths), "2")
    for place, row in enumerate(lines):
        if place == 1 or (place and is_wrapped):
            yield rule
        for at in range(max(map(len, row))):
            parts = []
            for cell, columns, side in zip(row, widths, block.sides, strict=True):
                text = cell[at] if at < len(cell) else ""
                if side == "center":
                    text = pad(text, (columns + width(text)) // 2, right=True)
                parts.append(pad(text, columns, right=side == "right"))
            yield sheet.paint(" │ ".join(parts).rstrip(), "" if place else "1")
    if len(lines) == 1:
        yield rule


def _stack(cells: Sequence[Sequence[str]], sheet: Sheet) -> Iterator[str]:
    """Each row as lines of `head: cell`, below a rule."""
    heads, *rows = cells
    for row in rows or [[""] * len(heads)]:
        yield sheet.paint("─" * min(sheet.columns, _MAX_PROSE), "2")
        for head, cell in zip(heads, row, strict=True):
            first, *others = wrap(f"{head}: {cell}".strip(), sheet.columns)
            marked = head if first.startswith(f"{head}:") else ""
            yield sheet.paint(marked, "1") + first[len(marked) :]
            yield from others


# ---- spans


def _flow(found: Iterable[Span], sheet: Sheet, *, sgr: str = "") -> Iterator[str]:
    """Spans as wrapped lines, each painted whole, so that no colour runs over a line's end."""
    lines: list[list[tuple[str, str]]] = [[]]
    for address, link in groupby(found, key=lambda span: span.address):
        label, painted, shown = "", "", []
        for span in link:
            codes = [code for style, code in _SGR if span.style & style]
            painted = ";".join((*([sgr] if sgr else ()), *codes, *(["4"] if address else ())))
            # Ticks around code where there is no colour for it.
            text = span.text.expandtabs(4) if "\t" in span.text else span.text
            shown.append((f"`{text}`" if span.style & CODE and not sheet.has_colour else text, painted))
            label += text
        if address and label not in {address, address.removeprefix("mailto:")}:
            shown.append((f" ({address})", painted))
        for piece, style in shown:
            first, *others = piece.split("\n")
            lines[-1].append((first, style))
            lines += ([(other, style)] for other in others)
    for line in lines:
        for pieces in _slice(line, min(sheet.columns, _MAX_PROSE)):
            yield "".join(sheet.paint(text, style) for text, style in pieces)


def _slice(line: Sequence[tuple[str, str]], columns: int) -> Iterator[list[tuple[str, str]]]:
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
