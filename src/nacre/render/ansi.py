"""Terminal output as HTML: all text escaped, colours as classes, and nothing that moves a cursor."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable, Iterator
from itertools import groupby
from operator import itemgetter
from typing import NamedTuple

from nacre.render.html import escaped

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
        return escaped(text)
    found = []
    for piece, pen in _pieces(text):
        classes = pen.classes if piece else ""
        found.append(f'<span class="{classes}">{escaped(piece)}</span>' if classes else escaped(piece))
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
