"""Find the lines that a text is about: full-text search in RAM, mixed by score with embeddings if there are any."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterable, Sequence
from threading import Lock
from typing import TYPE_CHECKING

from nacre.index.minilm import MiniLM
from nacre.index.search_text import spellings_in
from nacre.index.stems import irregular
from nacre.memory.store import Line
from nacre.memory.text_match import is_grammar, tokens

if TYPE_CHECKING:
    from nacre.index.minilm import Floats

_POOL = 100
_MAX_WORDS = 32
_MIN_LETTERS = 4
_SPACED = re.compile(r"[^\W_]+")
_TABLES = """
CREATE VIRTUAL TABLE words USING fts5(body, tokenize = 'porter unicode61 remove_diacritics 2');
CREATE VIRTUAL TABLE grams USING fts5(body, tokenize = 'trigram');
"""
# How much of a score is by meaning, where there is an embedding; and what is too far off to be found by it.
_MEANING, _FAR = 0.7, 0.2


class FactIndex:
    """An index of some lines, kept in step with them."""

    def __init__(self) -> None:
        self._embedding: Vectors | None = None
        self._lines: dict[str, Line] = {}
        self._rows: dict[str, int] = {}
        self._ids: dict[int, str] = {}
        self._subjects: dict[str, dict[str, None]] | None = None
        self._last = 0
        self._has_grams = False
        self._lock = Lock()
        self._connection = sqlite3.connect(":memory:", check_same_thread=False, isolation_level=None)
        self._connection.executescript(_TABLES)

    def use(self, embedding: Vectors) -> None:
        """Find by meaning too, from now on."""
        embedding.update(self._lines.values())
        self._embedding = embedding

    def update(self, lines: Sequence[Line]) -> None:
        """Have these lines and no others."""
        with self._lock:
            now = {line.id: line for line in lines}
            gone = [id for id, line in self._lines.items() if not _says_same(line, now.get(id))]
            came = [line for line in lines if not _says_same(line, self._lines.get(line.id))]
            removed = [(self._rows.pop(id),) for id in gone]
            for (row,) in removed:
                del self._ids[row]
            added: list[tuple[int, str]] = []
            spaced: list[tuple[int, str]] = []
            for line in came:
                self._last += 1
                self._rows[line.id], self._ids[self._last] = self._last, line.id
                body = _body(line)
                added.append((self._last, body))
                # FTS5 finds words by the spaces between them: in scripts without, pairs of characters are the words.
                words = body if body.isascii() and "n't" not in body else " ".join(tokens(body))
                spaced.append((self._last, " ".join([words, *spellings_in(body)])))
            run = self._connection.executemany
            self._connection.execute("BEGIN")
            run("DELETE FROM words WHERE rowid = ?", removed)
            run("INSERT INTO words (rowid, body) VALUES (?, ?)", spaced)
            if self._has_grams:
                run("DELETE FROM grams WHERE rowid = ?", removed)
                run("INSERT INTO grams (rowid, body) VALUES (?, ?)", added)
            self._connection.execute("COMMIT")
            if self._subjects is not None:
                for id in gone:
                    self._subjects[_subject(self._lines[id].subject)].pop(id)
                for line in came:
                    self._subjects.setdefault(_subject(line.subject), {})[line.id] = None
            self._lines = now
        if self._embedding is not None and (gone or came):
            self._embedding.update(lines)

    def find(self, text: str, *, limit: int) -> list[Line]:
        """The lines that a text is about, best first; any text may be asked with."""
        with self._lock:
            found = self._scored("words", _words(text))
            if not found:
                # Look inside words for longer ones without their endings.
                long = [word for word in _SPACED.findall(_clean(text).casefold()) if len(word) >= _MIN_LETTERS]
                cut = (word[: max(_MIN_LETTERS, len(word) - 2)] for word in long if not is_grammar(word))
                found = self._scored("grams", list(dict.fromkeys(cut))[:_MAX_WORDS])
            lines = self._lines
        scores = _of_best(found)
        if self._embedding is not None:
            near = _of_best(self._embedding.nearest(text, limit=_POOL))
            both = {**scores, **near}
            scores = {id: (1 - _MEANING) * scores.get(id, 0.0) + _MEANING * near.get(id, 0.0) for id in both}
        return [lines[id] for id in sorted(scores, key=scores.__getitem__, reverse=True) if id in lines][:limit]

    def like(self, text: str, *, limit: int) -> list[Line]:
        """The lines that have words of a text, best first."""
        with self._lock:
            return [self._lines[id] for id, _ in self._scored("words", _words(text))[:limit]]

    def about(self, subject: str, *, limit: int) -> list[Line]:
        """The newest lines of a subject."""
        with self._lock:
            if self._subjects is None:
                self._subjects = {}
                for line in self._lines.values():
                    self._subjects.setdefault(_subject(line.subject), {})[line.id] = None
            ids = list(self._subjects.get(_subject(subject), ()) if subject else ())
            return [self._lines[id] for id in ids[-limit:]]

    def having(self, words: Sequence[str]) -> list[Line]:
        """All lines that have one of some words, oldest first."""
        with self._lock:
            query = "SELECT rowid FROM words WHERE words MATCH ? ORDER BY rowid"
            rows = self._connection.execute(query, (_any_of(words),))
            return [self._lines[self._ids[row]] for (row,) in rows]

    def close(self) -> None:
        with self._lock:
            self._connection.close()

    def _scored(self, table: str, words: Sequence[str]) -> list[tuple[str, float]]:
        if not words:
            return []
        if table == "grams" and not self._has_grams:
            # Few texts are found by parts of words alone, so they are indexed for the first one.
            self._has_grams = True
            bodies = ((row, _body(self._lines[id])) for row, id in self._ids.items())
            self._connection.execute("BEGIN")
            self._connection.executemany("INSERT INTO grams (rowid, body) VALUES (?, ?)", bodies)
            self._connection.execute("COMMIT")
        query = f"SELECT rowid, -rank FROM {table} WHERE {table} MATCH ? ORDER BY rank LIMIT {_POOL}"  # noqa: S608 - our own
        rows = self._connection.execute(query, (_any_of(words),))
        return [(self._ids[row], score) for row, score in rows]


def _any_of(words: Sequence[str]) -> str:
    """A query for lines that have any of some words."""
    return " OR ".join('"' + word.replace('"', '""') + '"' for word in words)


def _says_same(line: Line, other: Line | None) -> bool:
    return line is other or (other is not None and line.text == other.text and line.subject == other.subject)


def _subject(text: str) -> str:
    return " ".join(text.casefold().split())


def _body(line: Line) -> str:
    return f"{line.text} {line.subject}".replace("\0", " ")


def _of_best(found: Sequence[tuple[str, float]]) -> dict[str, float]:
    """Scores as shares of the best one."""
    best = found[0][1] if found else 1.0
    return {id: score / best for id, score in found}


def _words(text: str) -> list[str]:
    """The words to look for: those of a text, and how else they are written or bent."""
    asked = _clean(text)
    words = list(dict.fromkeys(tokens(" ".join([asked, *spellings_in(asked)]))))
    bent = (other for word in words for other in irregular(word))
    return [word for word in dict.fromkeys([*words, *bent]) if not is_grammar(word)][:_MAX_WORDS]


def _clean(text: str) -> str:
    return text.replace("\0", " ").encode("utf-8", "replace").decode()


class Vectors:
    """A vector for each line, made a few at a time; what has none yet is not found."""

    def __init__(self, model: MiniLM) -> None:
        self._model = model
        self._waiting: dict[str, str] = {}
        self._rows: dict[str, Floats] = {}
        self._matrix: tuple[list[str], Floats] | None = None
        self._lock = Lock()

    def update(self, lines: Iterable[Line]) -> None:
        """Have these lines and no others."""
        with self._lock:
            now = {line.id: line.text for line in lines}
            self._rows = {id: row for id, row in self._rows.items() if id in now}
            self._waiting = {id: text for id, text in now.items() if id not in self._rows}
            self._matrix = None

    def work(self, limit: int) -> int:
        """Make vectors for some of the lines that have none; returns how many still have none."""
        with self._lock:
            batch = list(self._waiting.items())[:limit]
        if batch:
            made = self._model.embed([text for _, text in batch])
            with self._lock:
                for (id, text), row in zip(batch, made, strict=True):
                    if self._waiting.get(id) == text:
                        del self._waiting[id]
                        self._rows[id] = row
                self._matrix = None
        return len(self._waiting)

    def nearest(self, text: str, *, limit: int) -> list[tuple[str, float]]:
        """The ids of the lines whose meaning is nearest, and how near, best first; those far off are left out."""
        import numpy  # noqa: ICN001, PLC0415 - it is loaded with every model

        with self._lock:
            if self._matrix is None and self._rows:
                self._matrix = (list(self._rows), numpy.stack(list(self._rows.values())))
            ids, matrix = self._matrix or ([], None)
        if matrix is None or not text.strip():
            return []
        scores = matrix @ self._model.embed([text])[0]
        best = scores.argsort()[::-1][:limit]
        return [(ids[at], float(scores[at])) for at in best if scores[at] >= _FAR]
