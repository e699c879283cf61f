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
    return "".join(_written(piece, pen) for piece, pen in _pieces(text))


def plain(text: str) -> str:
    """Terminal output without its colours."""
    if "\x1b" not in text and "\r" not in text:
        return text
    return "".join(piece for piece, _ in _pieces(text))


def _written(text: str, pen: Pen) -> str:
    classes = pen.classes if text else ""
    return f'<span class="{classes}">{escaped(text)}</span>' if classes else escaped(text)


_Pieces = Iterable[tuple[str, Pen]]


def _pieces(text: str) -> Iterator[tuple[str, Pen]]:
    """The text as it stands when all is written, in stretches of one pen."""
    pen = Pen()
    for line in _LINE.findall(text.replace("\r\n", "\n")) if "\r" in text else [text]:
        found = list(_stretches(line, pen))
        pen = found[-1][1]
        yield from _overwritten(found) if "\r" in line else ((piece, its) for piece, its in found if piece != _ERASE)


def _stretches(text: str, pen: Pen) -> Iterator[tuple[str, Pen]]:
    at = 0
    for found in _SEQUENCE.finditer(text):
        yield text[at : found.start()], pen
        at = found.end()
        if found["sgr"] is not None:
            pen = _turned(pen, found["sgr"])
        elif found[0] in _ERASING:
            yield _ERASE, pen
    yield text[at:], pen


def _overwritten(pieces: _Pieces) -> Iterator[tuple[str, Pen]]:
    """A line as it looks after carriage returns have begun it anew."""
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


def _turned(pen: Pen, sgr: str) -> Pen:
    """The pen after a sequence; codes that are unknown change nothing."""
    codes = deque(int(code[:9]) if code else 0 for code in sgr.replace(":", ";").split(";"))
    while codes:
        code = codes.popleft()
        if code == 0:
            pen = Pen()
        elif code in {38, 48}:
            colour = _extended(codes)
            pen = pen._replace(ink=colour) if code == 38 else pen._replace(ground=colour)  # noqa: PLR2004 - SGR
        else:
            pen = _simple(pen, code)
    return pen


def _simple(pen: Pen, code: int) -> Pen:
    if code in _ON:
        return pen._replace(marks=pen.marks | {_ON[code]})
    if code in _OFF:
        return pen._replace(marks=pen.marks - {*_OFF[code]})
    if code in {7, 27}:
        return pen._replace(is_inverse=code == 7)  # noqa: PLR2004 - SGR
    for first, last, offset in ((30, 37, 30), (90, 97, 82), (39, 39, 40)):
        if first <= code <= last:
            return pen._replace(ink=code - offset)
    for first, last, offset in ((40, 47, 40), (100, 107, 92), (49, 49, 50)):
        if first <= code <= last:
            return pen._replace(ground=code - offset)
    return pen


def _extended(codes: deque[int]) -> int:
    """A colour of 256 or of millions as the nearest of sixteen; takes its codes away."""
    kind = codes.popleft() if codes else 0
    if kind == 5 and codes:  # noqa: PLR2004 - SGR
        return _of_256(codes.popleft())
    if kind == 2 and len(codes) >= 3:  # noqa: PLR2004 - SGR
        return _nearest(codes.popleft(), codes.popleft(), codes.popleft())
    return -1


def _of_256(number: int) -> int:
    if number < _CUBE:
        return number
    if number >= _GREYS:
        grey = 8 + 10 * (number - _GREYS)
        return _nearest(grey, grey, grey)
    red, rest = divmod(number - _CUBE, 36)
    green, blue = divmod(rest, 6)
    return _nearest(_STEPS[red], _STEPS[green], _STEPS[blue])


def _nearest(red: int, green: int, blue: int) -> int:
    def distance(at: int) -> int:
        return sum((one - other) ** 2 for one, other in zip(_PALETTE[at], (red, green, blue), strict=True))

    return min(range(len(_PALETTE)), key=distance)
