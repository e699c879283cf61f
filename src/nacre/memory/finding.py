"""Which lines a text is about: full-text search in RAM, mixed by reciprocal rank with embeddings if there are any."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterable, Sequence
from threading import Lock
from typing import Protocol

from nacre.memory.lines import Line
from nacre.memory.words import is_grammar, salient, stems, tokens

_RANK = 60
_POOL = 50
_MOST_WORDS = 32
_SHORTEST = 4
_SPACED = re.compile(r"[^\W_]+")
_TABLES = """
CREATE VIRTUAL TABLE words USING fts5(body, tokenize = 'porter unicode61 remove_diacritics 2');
CREATE VIRTUAL TABLE grams USING fts5(body, tokenize = 'trigram');
"""
# Where there is an embedding, one word in common says little beside it, and most words in common say as much.
_WORDS_BESIDE, _WEAK = 1.0, 0.005


class Embedding(Protocol):
    """Vectors of lines; those that it has not come to yet are not found by it."""

    def nearest(self, text: str, *, most: int) -> list[str]:
        """The ids of the lines whose meaning is nearest, best first."""

    def keep(self, lines: Iterable[Line]) -> None:
        """Know these lines and no others."""

    def work(self, most: int) -> int:
        """Make vectors for some of the lines that have none; returns how many still have none."""


class Finder:
    """An index of some lines, kept in step with them."""

    def __init__(self) -> None:
        self._embedding: Embedding | None = None
        self._lines: dict[str, Line] = {}
        self._rows: dict[str, int] = {}
        self._ids: dict[int, str] = {}
        self._last = 0
        self._lock = Lock()
        self._connection = sqlite3.connect(":memory:", check_same_thread=False, isolation_level=None)
        self._connection.executescript(_TABLES)

    def use(self, embedding: Embedding) -> None:
        """Find by meaning too, from now on."""
        embedding.keep(self._lines.values())
        self._embedding = embedding

    def keep(self, lines: Sequence[Line]) -> None:
        """Hold these lines and no others."""
        with self._lock:
            now = {line.id: line for line in lines}
            gone = [id for id, line in self._lines.items() if now.get(id) is not line]
            came = [line for line in lines if self._lines.get(line.id) is not line]
            self._connection.execute("BEGIN")
            self._remove(gone)
            self._insert(came)
            self._connection.execute("COMMIT")
            self._lines = now
        if self._embedding is not None and (gone or came):
            self._embedding.keep(lines)

    def find(self, text: str, *, most: int) -> list[Line]:
        """The lines that a text is about, best first; any text may be asked with."""
        with self._lock:
            found = self._ranked("words", _words(text)) or self._ranked("grams", _pieces(text))
            rankings = [(1.0, found)]
        if self._embedding is not None:
            strong = [id for id in found if self._is_strong(id, text)]
            rankings = [(_WORDS_BESIDE, strong), (1.0, self._embedding.nearest(text, most=_POOL)), (_WEAK, found)]
        scores: dict[str, float] = {}
        for weight, ids in rankings:
            for rank, id in enumerate(ids):
                scores[id] = scores.get(id, 0.0) + weight / (_RANK + rank)
        best = sorted(scores, key=scores.__getitem__, reverse=True)
        return [self._lines[id] for id in best if id in self._lines][:most]

    def _is_strong(self, id: str, text: str) -> bool:
        """Tell whether a line has most of the words that were asked for, or a number or name that is like no other."""
        wanted, there = salient(text), stems(self._lines[id].text)
        shared = wanted & there
        return len(shared) > len(wanted) / 2 or any(any(map(str.isdigit, word)) for word in shared)

    def close(self) -> None:
        with self._lock:
            self._connection.close()

    def _remove(self, ids: Iterable[str]) -> None:
        rows = [(self._rows.pop(id),) for id in ids]
        for (row,) in rows:
            del self._ids[row]
        self._connection.executemany("DELETE FROM words WHERE rowid = ?", rows)
        self._connection.executemany("DELETE FROM grams WHERE rowid = ?", rows)

    def _insert(self, lines: Iterable[Line]) -> None:
        bodies: list[tuple[int, str, str]] = []
        for line in lines:
            self._last += 1
            self._rows[line.id], self._ids[self._last] = self._last, line.id
            body = f"{line.text} {line.subject}".replace("\0", " ")
            bodies.append((self._last, " ".join(tokens(body)), body))
        run = self._connection.executemany
        run("INSERT INTO words (rowid, body) VALUES (?, ?)", ((row, words) for row, words, _ in bodies))
        run("INSERT INTO grams (rowid, body) VALUES (?, ?)", ((row, body) for row, _, body in bodies))

    def _ranked(self, table: str, words: Sequence[str]) -> list[str]:
        if not words:
            return []
        match = " OR ".join('"' + word.replace('"', '""') + '"' for word in words)
        rows = self._connection.execute(
            f"SELECT rowid FROM {table} WHERE {table} MATCH ? ORDER BY rank LIMIT {_POOL}",  # noqa: S608 - our own names
            (match,),
        )
        return [self._ids[row] for (row,) in rows]


def _words(text: str) -> list[str]:
    """The words to look for."""
    return [word for word in dict.fromkeys(tokens(_clean(text))) if not is_grammar(word)][:_MOST_WORDS]


def _pieces(text: str) -> list[str]:
    """What to look for inside words: longer words without their endings."""
    found = [word for word in _SPACED.findall(_clean(text).casefold()) if len(word) >= _SHORTEST]
    cut = (word[: max(_SHORTEST, len(word) - 2)] for word in found if not is_grammar(word))
    return list(dict.fromkeys(cut))[:_MOST_WORDS]


def _clean(text: str) -> str:
    return text.replace("\0", " ").encode("utf-8", "replace").decode()
