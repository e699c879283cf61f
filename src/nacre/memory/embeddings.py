"""A vector for each line of memory: which lines mean nearly the same as a text."""

from __future__ import annotations

from collections.abc import Iterable
from threading import Lock
from typing import TYPE_CHECKING

from nacre.index.minilm import WIDTH, MiniLM
from nacre.memory.lines import Line

if TYPE_CHECKING:
    from nacre.index.minilm import Floats

_FAR = 0.2


class Vectors:
    """A vector for each line, made a few at a time; what has none yet is not found."""

    def __init__(self, model: MiniLM) -> None:
        self._model = model
        self._waiting: dict[str, str] = {}
        self._rows: dict[str, Floats] = {}
        self._matrix: tuple[list[str], Floats] | None = None
        self._lock = Lock()

    def keep(self, lines: Iterable[Line]) -> None:
        """Know these lines and no others."""
        with self._lock:
            now = {line.id: line.text for line in lines}
            self._rows = {id: row for id, row in self._rows.items() if id in now}
            self._waiting = {id: text for id, text in now.items() if id not in self._rows}
            self._matrix = None

    def work(self, most: int) -> int:
        """Make vectors for some of the lines that have none; returns how many still have none."""
        with self._lock:
            batch = list(self._waiting.items())[:most]
        if batch:
            made = self._model.embed([text for _, text in batch])
            with self._lock:
                for (id, text), row in zip(batch, made, strict=True):
                    if self._waiting.get(id) == text:
                        del self._waiting[id]
                        self._rows[id] = row
                self._matrix = None
        return len(self._waiting)

    def nearest(self, text: str, *, most: int) -> list[tuple[str, float]]:
        """The ids of the lines whose meaning is nearest, and how near, best first; those far off are left out."""
        ids, matrix = self._stacked()
        if not ids or not text.strip():
            return []
        scores = matrix @ self._model.embed([text])[0]
        best = scores.argsort()[::-1][:most]
        return [(ids[at], float(scores[at])) for at in best if scores[at] >= _FAR]

    def _stacked(self) -> tuple[list[str], Floats]:
        import numpy  # noqa: ICN001, PLC0415 - whoever has a model has it loaded

        with self._lock:
            if self._matrix is None:
                rows = list(self._rows.values())
                stacked = numpy.stack(rows) if rows else numpy.zeros((0, WIDTH), dtype=numpy.float32)
                self._matrix = (list(self._rows), stacked)
            return self._matrix
