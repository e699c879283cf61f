"""Markdown and terminal output as HTML, safe by construction: all text is escaped, only tags written here come out."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby
from operator import itemgetter
from typing import NamedTuple

from nacre.agent.ports import STOPPED
from nacre.render.colours import Painter
from nacre.render.markdown import Block, Code, Definitions, Heading, Line, Listing, Paragraph, Quote, Table, parse
from nacre.render.spans import BOLD, CODE, ITALIC, STRUCK, Span, is_linkable, spans
from nacre.render.text import visible

_TAGS = ((CODE, "code"), (STRUCK, "del"), (ITALIC, "em"), (BOLD, "strong"))
_TASK = re.compile(r"\[([ xX])\] ")
_MAX_COLOURED = 20_000
# The styles of a terminal, as the classes of its colours; code of an unknown language has none.
_LOOKS = {"1": "bold", "2": "dim", "31": "fg1", "32": "fg2", "33": "fg3", "34": "fg4", "1;34": "bold fg4", "35": "fg5"}
_ESCAPES = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#39;"})


def escape(text: str) -> str:
    """The text as HTML shows it, control characters made visible; good inside quoted attributes too."""
    return visible(text).translate(_ESCAPES)


def html(text: str) -> str:
    """Markdown as HTML; that an answer was stopped is not taken for a part of the code that it stopped in."""
    written = text.removesuffix(f"\n\n{STOPPED}")
    end = f"<p>{STOPPED}</p>" if written != text else ""
    return "".join(blocks_html(written)) + end


def blocks_html(text: str) -> list[str]:
    """Markdown as HTML, an element for each block."""
    found = parse(text)
    return ["".join(_block(block, found.references)) for block in found.blocks]


def _all(found: Iterable[Block], references: Mapping[str, str]) -> Iterator[str]:
    for block in found:
        yield from _block(block, references)


def _block(block: Block, references: Mapping[str, str]) -> Iterator[str]:
    match block:
        case Heading(level, text):
            # The page's own headings are h1 and h2.
            tag = f"h{min(level + 2, 6)}"
            yield f"<{tag}>{_spans(spans(text, references))}</{tag}>"
        case Paragraph(text):
            found = spans(text, references)
            # A formula of several lines is code by itself.
            is_formula = len(found) == 1 and found[0].style == CODE and "\n" in found[0].text
            yield f'<pre tabindex="0"><code>{escape(text)}</code></pre>' if is_formula else f"<p>{_spans(found)}</p>"
        case Definitions(text):
            # Nothing that a message says is hidden.
            yield f"<p>{_spans(spans(text))}</p>"
        case Code(language, text):
            label = f' data-language="{escape(language)}"' if language else ""
            # What scrolls can be reached by keys.
            yield f'<pre tabindex="0"{label}><code>{_paint(language, text)}</code></pre>'
        case Table():
            yield from _table(block, references)
        case Quote(inner):
            yield from ("<blockquote>", *_all(inner, references), "</blockquote>")
        case Listing():
            yield from _list(block, references)
        case Line():
            yield "<hr>"


def _list(block: Listing, references: Mapping[str, str]) -> Iterator[str]:
    tag = "ol" if block.is_ordered else "ul"
    first = block.items[0].mark[:-1].lstrip("0") or "0"
    start = f' start="{first}"' if block.is_ordered and first != "1" else ""
    # The marks stand on the side where the lines begin.
    yield f'<{tag}{start} dir="auto">'
    for item in block.items:
        match item.blocks:
            case (Paragraph(text), *rest) if (task := _TASK.match(text)) is not None:
                word, sign = ("to do", "☐") if task[1] == " " else ("done", "☑")
                box = f'<span class="box" role="img" aria-label="{word}">{sign}</span>'
                inner = (Paragraph(text[task.end() :]), *rest)
                yield from (f'<li class="task">{box} ', *_all(inner, references), "</li>")
            case _:
                yield from ("<li>", *_all(item.blocks, references), "</li>")
    yield f"</{tag}>"


def _table(block: Table, references: Mapping[str, str]) -> Iterator[str]:
    yield '<div class="table" tabindex="0"><table>'
    sides = [f' class="{side}"' if side else "" for side in block.sides]
    for place, row in enumerate(block.rows):
        tag = "td" if place else "th"
        cells = zip(row, sides, strict=True)
        yield "<tr>"
        yield from (f"<{tag}{side}>{_spans(spans(cell, references))}</{tag}>" for cell, side in cells)
        yield "</tr>"
    yield "</table></div>"


def _paint(language: str, text: str) -> str:
    """Code with its keywords, names and texts in colour, where the language is known."""
    if not language or len(text) > _MAX_COLOURED:
        return escape(text)
    painter = Painter(language)
    lines = []
    for line in text.split("\n"):
        painted = ""
        for look, pieces in groupby(painter.pieces(line), key=lambda piece: _LOOKS.get(piece[1], "")):
            part = escape("".join(piece for piece, _ in pieces))
            painted += f'<span class="{look}">{part}</span>' if look and part.strip() else part
        lines.append(painted)
    return "\n".join(lines)


def _spans(found: Iterable[Span]) -> str:
    """Spans and their links, with addresses shown; no link where a click could do more than open a page or a mail."""
    parts = []
    for address, group in groupby(found, key=lambda span: span.address):
        label = text = ""
        for span in group:
            label += span.text
            part = escape(span.text).replace("\n", "<br>\n")
            for style, tag in _TAGS:
                if span.style & style:
                    part = f"<{tag}>{part}</{tag}>"
            text += part
        if address and is_linkable(address):
            text = f'<a href="{escape(address)}" rel="noopener noreferrer nofollow">{text}</a>'
        parts.append(text)
        if address and label not in {address, address.removeprefix("mailto:")}:
            parts.append(f' <span class="address">({escape(address)})</span>')
    return "".join(parts)


# ---- terminal output: colours as classes, and nothing that moves a cursor

_SEQUENCE = re.compile(
    r"\x1b(?:"
    r"\[(?P<sgr>[0-9;:]*)m"
    r"|\[[0-?]*[ -/]*[@-~]"
    r"|[\]PX^_][^\x07\x1b]{0,4096}(?:\x07|\x1b\\)"
    r"|[ -/]*[0-~]"
    r")"
)
_LINE = re.compile(r"[^\n]*\n|[^\n]+")
_PALETTE = (
    *((0, 0, 0), (205, 0, 0), (0, 205, 0), (205, 205, 0), (0, 0, 238), (205, 0, 205), (0, 205, 205), (229, 229, 229)),
    *((127, 127, 127), (255, 0, 0), (0, 255, 0), (255, 255, 0), (92, 92, 255), (255, 0, 255), (0, 255, 255)),
    (255, 255, 255),
)
_ON = {1: "bold", 2: "dim", 3: "slanted", 4: "under", 9: "struck"}
_OFF = {22: ("bold", "dim"), 23: ("slanted",), 24: ("under",), 29: ("struck",)}
_INKS = {39: -1, **{30 + n: n for n in range(8)}, **{90 + n: 8 + n for n in range(8)}}
_GROUNDS = {code + 10: colour for code, colour in _INKS.items()}
# Clears the rest of a line; the mark for it is no text that a tool can write.
_ERASING = frozenset(("\x1b[K", "\x1b[0K"))
_ERASE = "\x1b[K"
_CUBE, _GREYS = 16, 232
_STEPS = (0, 95, 135, 175, 215, 255)


class Pen(NamedTuple):
    """How what follows is written; colours are 0 to 15, or -1 for the page's own."""

    ink: int = -1
    ground: int = -1
    marks: frozenset[str] = frozenset()
    is_inverse: bool = False

    @property
    def classes(self) -> str:
        """What the style sheet knows: on a coloured ground the ink is its own, so that no text can hide there."""
        ink, ground = (self.ground, self.ink) if self.is_inverse else (self.ink, self.ground)
        if ground >= 0:
            colour = f"bg{ground}"
        elif self.is_inverse:
            colour = "inverse"
        else:
            colour = f"fg{ink}" if ink >= 0 else ""
        return " ".join(filter(None, (colour, *sorted(self.marks))))


def ansi(text: str) -> str:
    """Terminal output as HTML; of what was written over, what stands there at last."""
    if "\x1b" not in text and "\r" not in text:
        return escape(text)
    found = []
    for piece, pen in _pieces(text):
        classes = pen.classes if piece else ""
        found.append(f'<span class="{classes}">{escape(piece)}</span>' if classes else escape(piece))
    return "".join(found)


def plain(text: str) -> str:
    """Terminal output without its colours."""
    if "\x1b" not in text and "\r" not in text:
        return text
    return "".join(piece for piece, _ in _pieces(text))


def _pieces(text: str) -> Iterator[tuple[str, Pen]]:
    """The text as it stands when all is written, in stretches of one pen."""
    pen = Pen()
    for line in _LINE.findall(text.replace("\r\n", "\n")) if "\r" in text else [text]:
        found: list[tuple[str, Pen]] = []
        at = 0
        for sequence in _SEQUENCE.finditer(line):
            found.append((line[at : sequence.start()], pen))
            at = sequence.end()
            if sequence["sgr"] is not None:
                pen = _turn(pen, sequence["sgr"])
            elif sequence[0] in _ERASING:
                found.append((_ERASE, pen))
        found.append((line[at:], pen))
        yield from _overwrite(found) if "\r" in line else ((piece, its) for piece, its in found if piece != _ERASE)


def _overwrite(pieces: Iterable[tuple[str, Pen]]) -> Iterator[tuple[str, Pen]]:
    """A line as it looks after carriage returns have begun it again."""
    cells: list[tuple[str, Pen]] = []
    column = 0
    for piece, pen in pieces:
        if piece == _ERASE:
            del cells[column:]
            continue
        for character in piece:
            if character == "\r":
                column = 0
            elif character == "\n":
                cells.append((character, pen))
            else:
                cells[column : column + 1] = [(character, pen)]
                column += 1
    for pen, stretch in groupby(cells, key=itemgetter(1)):
        yield "".join(character for character, _ in stretch), pen


def _turn(pen: Pen, sgr: str) -> Pen:
    """The pen after a sequence; codes that are unknown change nothing."""
    codes = deque(int(code[:9]) if code else 0 for code in sgr.replace(":", ";").split(";"))
    while codes:
        code = codes.popleft()
        if code == 0:
            pen = Pen()
        elif code in _ON:
            pen = pen._replace(marks=pen.marks | {_ON[code]})
        elif code in _OFF:
            pen = pen._replace(marks=pen.marks - {*_OFF[code]})
        elif code in {7, 27}:
            pen = pen._replace(is_inverse=code == 7)  # noqa: PLR2004 - SGR
        elif code == 38:  # noqa: PLR2004 - SGR
            pen = pen._replace(ink=_read_colour(codes))
        elif code == 48:  # noqa: PLR2004 - SGR
            pen = pen._replace(ground=_read_colour(codes))
        elif code in _INKS:
            pen = pen._replace(ink=_INKS[code])
        elif code in _GROUNDS:
            pen = pen._replace(ground=_GROUNDS[code])
    return pen


def _read_colour(codes: deque[int]) -> int:
    """A colour of 256 or of millions as the nearest of sixteen; takes its codes away."""
    kind = codes.popleft() if codes else 0
    if kind == 5 and codes:  # noqa: PLR2004 - SGR
        number = codes.popleft()
        if number < _CUBE:
            return number
        if number >= _GREYS:
            colour = (8 + 10 * (number - _GREYS),) * 3
        else:
            red, rest = divmod(number - _CUBE, 36)
            green, blue = divmod(rest, 6)
            colour = _STEPS[red], _STEPS[green], _STEPS[blue]
    elif kind == 2 and len(codes) >= 3:  # noqa: PLR2004 - SGR
        colour = codes.popleft(), codes.popleft(), codes.popleft()
    else:
        return -1

    def distance(at: int) -> int:
        return sum((one - other) ** 2 for one, other in zip(_PALETTE[at], colour, strict=True))

    return min(range(len(_PALETTE)), key=distance)
