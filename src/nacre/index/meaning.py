"""Search by meaning: a vector for each message, made a few at a time, whose nearness is mixed with the score of words.

Vectors are kept beside the text, a byte for each number, and go with it. Only what people and models said has one: the
newest `MOST` messages.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from operator import itemgetter
from sqlite3 import Connection
from typing import TYPE_CHECKING, Any, Protocol

from nacre.index.minilm import WIDTH
from nacre.index.tables import SPOKEN, transaction, wants_vectors

if TYPE_CHECKING:
    from nacre.index.minilm import Floats

FAR = 0.2
"""What is nearer than this may have to do with a question."""
MOST = 200_000
"""How many messages have a vector, of 388 bytes each."""
# The model reads no more than about 500 characters of a text.
_LONGEST = 1000
_STEP = 4096
_LARGEST = 127

_WAITING = f"""
SELECT waiting.id, unpack_head(body, {_LONGEST}), internal FROM waiting
JOIN message ON message.id = waiting.id JOIN log ON log.id = message.log ORDER BY waiting.id DESC LIMIT ?
"""  # noqa: S608 - our own names
# A message may have been erased, and another have come under its number, while the vector was made.
_SAVE = f"""
INSERT OR REPLACE INTO vector SELECT id, ? FROM message WHERE id = ? AND unpack_head(body, {_LONGEST}) = ?
"""  # noqa: S608 - the same
_OLDEST = (
    "DELETE FROM vector WHERE id IN (SELECT id FROM vector ORDER BY id LIMIT max(0, (SELECT count(*) FROM vector) - ?))"
)


class Embedder(Protocol):
    """What makes a vector of length one for each text."""

    def embed(self, texts: Sequence[str]) -> Floats:
        """A row for each text."""


def take(connection: Connection, most: int) -> list[tuple[int, str]]:
    """The newest messages that have no vector yet."""
    if not wants_vectors(connection):
        with transaction(connection):
            connection.execute("INSERT OR IGNORE INTO known VALUES ('vectors', '')")
            roles = ", ".join("?" * len(SPOKEN))
            every = f"INSERT OR IGNORE INTO waiting SELECT id FROM message WHERE role IN ({roles})"  # noqa: S608
            connection.execute(every, SPOKEN)
    rows = connection.execute(_WAITING, (most,)).fetchall()
    hidden = [(message,) for message, text, internal in rows if internal or not text.strip()]
    if hidden:
        with transaction(connection):
            connection.executemany("DELETE FROM waiting WHERE id = ?", hidden)
    return [(message, text) for message, text, internal in rows if not internal and text.strip()]


def save(connection: Connection, rows: Sequence[tuple[int, str]], vectors: Iterable[Any], *, most: int = MOST) -> int:
    """Keep the vectors of messages that are still there; returns how many messages have none yet."""
    if rows:
        _save(connection, rows, vectors, most)
    return int(connection.execute("SELECT count(*) FROM waiting").fetchone()[0])


def _save(connection: Connection, rows: Sequence[tuple[int, str]], vectors: Iterable[Any], most: int) -> None:
    with transaction(connection):
        packed = zip(_packed(vectors), rows, strict=True)
        connection.executemany(_SAVE, ((value, *row) for value, row in packed))
        made = "DELETE FROM waiting WHERE id = ? AND id IN (SELECT id FROM vector)"
        connection.executemany(made, ((message,) for message, _ in rows))
        connection.execute(_OLDEST, (most,))
        oldest = connection.execute("SELECT min(id), count(*) >= ? FROM vector", (most,)).fetchone()
        if oldest[1]:
            # What is older than all that is kept would be the first to go.
            connection.execute("DELETE FROM waiting WHERE id < ?", (oldest[0],))


def nearest(connection: Connection, wanted: Floats, *, logs: str = "") -> list[tuple[int, float]]:
    """Every message that has a vector with how near it is to another vector, from 0 to 1, nearest first.

    `logs` are the numbers of those whose messages are taken, as SQL has them; "" for all.
    """
    import numpy as np  # noqa: PLC0415 - whoever has a vector has it loaded

    every = "SELECT id, value FROM vector"
    some = f"{every} WHERE id IN (SELECT id FROM message WHERE log IN ({logs}))"  # noqa: S608 - our own numbers
    kind = np.dtype([("scale", "<f4"), ("values", "i1", (WIDTH,))])
    found: list[tuple[int, float]] = []
    cursor = connection.execute(some if logs else every)
    # Some at a time: as numbers of four bytes, all of them would take hundreds of megabytes.
    while rows := cursor.fetchmany(_STEP):
        packed = np.frombuffer(b"".join(value for _, value in rows), dtype=kind)
        scores = packed["values"].astype(np.float32) @ wanted * packed["scale"]
        found += zip((message for message, _ in rows), scores.clip(min=0.0).tolist(), strict=True)
    return sorted(found, key=itemgetter(1), reverse=True)


def _packed(vectors: Iterable[Any]) -> Iterator[bytes]:
    """Vectors as bytes: what the largest number stands for, then each number in a byte."""
    import numpy as np  # noqa: PLC0415 - the same

    for row in vectors:
        scale = np.float32(max(abs(row).max(), 1e-12) / _LARGEST)
        yield scale.astype("<f4").tobytes() + np.rint(row / scale).astype(np.int8).tobytes()
