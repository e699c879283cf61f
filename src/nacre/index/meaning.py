"""Search by meaning: vectors for the pieces of each message, made a few at a time, whose nearness is mixed with words.

Vectors are kept with the text, a byte for each number, and go with it. Only what people and models said has some: the
newest messages, as many as have `MAX_VECTORS` together.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from sqlite3 import Connection
from typing import TYPE_CHECKING, Any, Protocol

from nacre.index.minilm import WIDTH
from nacre.index.tables import SPOKEN, transaction, wants_vectors

if TYPE_CHECKING:
    from nacre.index.minilm import Floats

MAX_READ = 4000
"""How many characters of a text are read for their meaning, at most."""
MAX_PIECES = 16
"""How many pieces a text has, at most."""
# What is shorter ("Sure!") goes with what follows. Of about 500 characters the model reads no more.
_LEAST, _WIDEST = 30, 300
# A line that goes on in lower case was only broken there.
_END = re.compile(r"""(?<=[.!?…।؟])["')\]”’»]*\s+|(?<=[。！？])["')\]”’」』]*|\n\s*(?![a-z\s])""")  # noqa: RUF001

Span = tuple[int, int]
FAR = 0.2
"""What is nearer than this may have to do with a question."""
MAX_VECTORS = 400_000
"""How many vectors there are, of 388 bytes each."""
# How long a message may be so that as many are read in one step as are asked for: nobody is kept waiting by long ones.
_USUAL = 500
# How many texts the model gets at once, of a like length: what is shorter is padded.
_TOGETHER = 16
# How many vectors are compared at once: as numbers of four bytes, more of them leave the processor's cache.
_STEP = 1024
_LARGEST = 127
_SIZE = 4 + WIDTH

_WAITING = f"""
SELECT waiting.id, unpack_head(body, {MAX_READ}), internal FROM waiting
JOIN message ON message.id = waiting.id JOIN log ON log.id = message.log ORDER BY waiting.id DESC LIMIT ?
"""  # noqa: S608 - our own names
# Meanwhile a message may have been erased, and another have come under its number; or another process was quicker.
_STILL = f"""
SELECT 1 FROM waiting JOIN message ON message.id = waiting.id
WHERE waiting.id = ? AND unpack_head(body, {MAX_READ}) = ?
"""  # noqa: S608 - the same
# The first message that keeps all its vectors if so many of the oldest have to go.
_FIRST = "SELECT message + (piece > 0) FROM vector ORDER BY message, piece LIMIT 1 OFFSET ?"


class Embedder(Protocol):
    """What makes a vector of length one for each text."""

    def embed(self, texts: Sequence[str]) -> Floats:
        """A row for each text."""


# ---- made


def take(connection: Connection, limit: int) -> list[tuple[int, str]]:
    """The newest messages that have no vectors yet; the fewer the longer they are, but for the first."""
    if not wants_vectors(connection):
        with transaction(connection):
            # Another process may have been quicker, and have made some by now.
            if connection.execute("INSERT OR IGNORE INTO known VALUES ('vectors', '')").rowcount:
                roles = ", ".join("?" * len(SPOKEN))
                every = f"INSERT INTO waiting SELECT id FROM message WHERE role IN ({roles})"  # noqa: S608
                connection.execute(every, SPOKEN)
    rows = connection.execute(_WAITING, (limit,)).fetchall()
    if limit and not rows and _count(connection, "waiting"):
        # Messages that are noted to wait and cannot be read: making vectors would never end.
        with transaction(connection):
            # Another process may have added some by now.
            if connection.execute(_WAITING, (1,)).fetchone() is None and _count(connection, "waiting"):
                raise ValueError("messages are said to wait for vectors, and there are none")
    hidden = [(message,) for message, text, internal in rows if internal or not text.strip()]
    if hidden:
        with transaction(connection):
            connection.executemany("DELETE FROM waiting WHERE id = ?", hidden)
    spoken = [(message, text) for message, text, internal in rows if not internal and text.strip()]
    sizes = accumulate(len(text) for _, text in spoken)
    return [row for at, (row, size) in enumerate(zip(spoken, sizes, strict=True)) if not at or size <= limit * _USUAL]


def embedded(embedder: Embedder, rows: Sequence[tuple[int, str]]) -> list[list[Any]]:
    """The vectors of each message, one for each of its pieces."""
    made: list[list[Any]] = [[None for _ in pieces(text)] for _, text in rows]
    places = [(at, piece) for at, row in enumerate(made) for piece in range(len(row))]
    texts = [text[start:end] for _, text in rows for start, end in pieces(text)]
    todo = sorted(zip(texts, places, strict=True), key=lambda piece: len(piece[0]))
    for first in range(0, len(todo), _TOGETHER):
        some = todo[first : first + _TOGETHER]
        for vector, (_, (at, piece)) in zip(embedder.embed([text for text, _ in some]), some, strict=True):
            made[at][piece] = vector
    return made


def save(
    connection: Connection,
    rows: Sequence[tuple[int, str]],
    vectors: Sequence[Iterable[Any]],
    *,
    limit: int = MAX_VECTORS,
) -> int:
    """Keep the vectors of messages that are still there; returns how many messages have none yet."""
    if rows:
        with transaction(connection):
            for (message, text), made in zip(rows, vectors, strict=True):
                if connection.execute(_STILL, (message, text)).fetchone() is not None:
                    packed = ((message, piece, _pack(vector)) for piece, vector in enumerate(made))
                    connection.executemany("INSERT INTO vector VALUES (?, ?, ?)", packed)
                    connection.execute("DELETE FROM waiting WHERE id = ?", (message,))
            # What is older than all that are kept would be the first to go, and waits no more.
            too_many = _count(connection, "vector") - limit
            if too_many >= 0:
                (first,) = connection.execute(_FIRST, (too_many,)).fetchone()
                connection.execute("DELETE FROM vector WHERE message < ?", (first,))
                connection.execute("DELETE FROM waiting WHERE id < ?", (first,))
    return _count(connection, "waiting")


def _count(connection: Connection, table: str) -> int:
    """How many rows a table has, without counting them."""
    return int(connection.execute("SELECT n FROM tally WHERE name = ?", (table,)).fetchone()[0])


def _pack(vector: Any) -> bytes:
    """A vector as bytes: what the largest number stands for, then each number in a byte."""
    import numpy as np  # noqa: PLC0415 - a caller that has a vector has loaded it

    scale = np.float32(max(abs(vector).max(), 1e-12) / _LARGEST)
    return bytes(scale.astype("<f4").tobytes() + np.rint(vector / scale).astype(np.int8).tobytes())


# ---- compared


class Near:
    """How near each message that has vectors is to another vector, from 0 to 1: as near as the nearest of its own.

    `logs` are the numbers of those whose messages are taken, as SQL has them; "" for all.
    """

    def __init__(self, connection: Connection, wanted: Floats, *, logs: str = "") -> None:
        import numpy as np  # noqa: PLC0415 - the same

        every = "SELECT message, value FROM vector"
        some = f"{every} WHERE message IN (SELECT id FROM message WHERE log IN ({logs}))"  # noqa: S608 - our own numbers
        messages, scores = [np.empty(0, np.int64)], [np.empty(0, np.float32)]
        # Some at a time: as numbers of four bytes, all of them would take hundreds of megabytes.
        cursor = connection.execute(f"{some if logs else every} ORDER BY message, piece")
        while rows := cursor.fetchmany(_STEP):
            messages.append(np.fromiter((message for message, _ in rows), np.int64, len(rows)))
            scores.append(_scores([value for _, value in rows], wanted))
        of_pieces = np.concatenate(messages)
        self._messages, starts = np.unique(of_pieces, return_index=True)
        self._scores = np.maximum.reduceat(np.concatenate(scores), starts) if starts.size else scores[0]

    def of(self, messages: Iterable[int]) -> dict[int, float]:
        """How near some messages are; those that have no vectors are left out."""
        import numpy as np  # noqa: PLC0415 - the same

        asked = np.fromiter(messages, np.int64)
        at = np.searchsorted(self._messages, asked)
        at[at == self._messages.size] = 0
        known = self._messages[at] == asked if self._messages.size else np.zeros(asked.size, bool)
        return dict(zip(asked[known].tolist(), self._scores[at[known]].tolist(), strict=True))

    def close(self) -> list[int]:
        """The messages that are not far, nearest first."""
        close = (self._scores >= FAR).nonzero()[0]
        return self._messages[close[(-self._scores[close]).argsort(kind="stable")]].tolist()  # type: ignore[no-any-return]


def nearest_piece(connection: Connection, message: int, text: str, wanted: Floats) -> Span | None:
    """Where in a message the piece is that is nearest; None if the message has no vectors."""
    rows = connection.execute("SELECT value FROM vector WHERE message = ? ORDER BY piece", (message,)).fetchall()
    return pieces(text)[int(_scores([value for (value,) in rows], wanted).argmax())] if rows else None


def _scores(values: Sequence[bytes], wanted: Floats) -> Floats:
    """How near vectors are, from 0 to 1; raises ValueError if one of them is damaged."""
    import numpy as np  # noqa: PLC0415 - the same

    kind = np.dtype([("scale", "<f4"), ("values", "i1", (WIDTH,))])
    if any(len(value) != _SIZE for value in values):
        raise ValueError("a vector has not the length that it should have")
    packed = np.frombuffer(b"".join(values), dtype=kind)
    scores: Floats = packed["values"].astype(np.float32) @ wanted * packed["scale"]
    if not np.isfinite(scores).all():
        raise ValueError("a vector has numbers that are none")
    return scores.clip(0.0, None)


# ---- a text in pieces


def pieces(text: str) -> list[Span]:
    """Where the pieces of a text begin and end, in its first `MAX_READ` characters; the same for the same text."""
    text = text[:MAX_READ].rstrip()
    least = max(_LEAST, len(text) / MAX_PIECES)
    found: list[Span] = []
    for start, end in _sentences(text):
        if found and found[-1][1] - found[-1][0] < least:
            found[-1] = (found[-1][0], end)
        else:
            found.append((start, end))
    if len(found) > 1 and found[-1][1] - found[-1][0] < least:
        _, end = found.pop()
        found[-1] = (found[-1][0], end)
    return found


def _sentences(text: str) -> Iterator[Span]:
    """Where the sentences are; one that is too long in parts."""
    start = len(text) - len(text.lstrip())
    for end in (*(match.end() for match in _END.finditer(text)), len(text)):
        while end - start > _WIDEST:
            # At a space, if there is one.
            middle = text.rfind(" ", start, start + _WIDEST) + 1 or start + _WIDEST
            yield start, middle
            start = middle
        if start < end:
            yield start, end
        start = end
