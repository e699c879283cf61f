"""Deriving what is searched from the records of a database: what is new since the last time, in small transactions.

A session's row says up to which record its messages were taken in. Who takes in more sets that number from what it was
in the transaction that adds the messages: of several processes one succeeds for each part, and nothing is taken in
twice or left out. An erasure sets the number to one that it never had before, and so fails what was read before it.

Sessions that changed are found by the minute of the change, by the clock of the database. The minute up to which all
were taken in is kept for the next time, less some minutes for transactions that had begun and were not seen yet.
"""

from __future__ import annotations

import logging
import re
import unicodedata
from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import partial
from itertools import accumulate, count, islice, takewhile
from typing import NamedTuple

from nacre.codec import message_in, parse_time, sortable
from nacre.errors import DurabilityUnknown, Refused, describe_error
from nacre.index.search_text import UNSPACED, Calls, body_of, folded, tools_of, words_of
from nacre.index.stems import stem
from nacre.messages import Message
from nacre.records import Record
from nacre.storage.postgres.connections import NotAllowed, Run, Statement
from nacre.storage.postgres.database import Database
from nacre.storage.postgres.view import Head, PostgresView, head_of, plain_uid, sid_of
from nacre.storage.postgres.writer import array_of

logger = logging.getLogger(__name__)

_MARGIN = 10
"""Minutes that a transaction may take from its begin until others see it."""
_SESSIONS, _RECORDS, _MAX_SIZE = 500, 200, 1024 * 1024
# How far before a result its call is looked for, when that was taken in earlier.
_LOOK_BACK = 200
_NONE = "0" * 32
# What PostgreSQL can hold of one text: positions up to a number, and so many of each word, in a limited size.
_MAX_POSITION, _MAX_REPEATS, _MAX_VECTOR = 16_383, 255, 900_000
_MAX_WORD = 500
# What is lost in a crash of the server is taken in again: it need not wait for the disk.
_NOT_DURABLE = Statement(b"not_durable", b"SET LOCAL synchronous_commit = off")
# A word; one character of a script that has no words; a sign outside of ASCII, as an emoji is.
_WORD = re.compile(rf"[{UNSPACED}]|(?:(?![{UNSPACED}])[^\W_])+|[^\x00-\x7f\w\s]")
# Between two words that are no neighbours.
_GAP = "\ue000"
_TOKEN = re.compile(rf"[^\W_]+|{_GAP}")


class _Changed(Exception):
    """Another process took in the same, or what was read has been erased."""


class _Text(NamedTuple):
    """What is searched of a message."""

    n: int
    ts: str
    role: str
    tools: str
    body: str
    may_repeat: bool


class _Part(NamedTuple):
    """Messages that are taken in together: those after a record, up to another."""

    texts: list[_Text]
    before: int
    upto: int


def take_in(database: Database) -> None:
    """Take in every message that was stored before; those that are stored meanwhile may be left for the next time."""
    rows = database.connections.read(database.statements.indexing)
    known, now = (int(value or b"0") for value in rows[0])
    at = (known, _NONE, _NONE)
    while True:
        rows = database.connections.read(database.statements.unindexed, *at, _SESSIONS)
        for row in rows:
            head = head_of(row[4:])
            at = (int(row[0] or b"0"), plain_uid(row[1]), head.uid)
            key = (row[2] or b"").decode()
            try:
                _take_in_session(database, key, head, int(row[3] or b"0"))
            except Refused as error:
                # All others are searched all the same.
                logger.warning("a session cannot be searched", extra={"session": key, "error": describe_error(error)})
        if len(rows) < _SESSIONS:
            break
    if now - _MARGIN > known:
        # One who may only read leaves that to others.
        with suppress(NotAllowed):
            database.connections.in_transaction(lambda run: run(database.statements.advance_indexing, now - _MARGIN))


def _take_in_session(database: Database, key: str, head: Head, indexed: int) -> None:
    """Take in the messages of a generation after a record, in parts."""
    view, calls = database.view(key, head), Calls()
    while indexed < head.n:
        records = view.after(max(indexed, 0), _RECORDS)
        # The last part ends with the last record, whatever was lost before it.
        upto = records[-1].n if len(records) == _RECORDS else head.n
        texts = [text for record in records if (text := _text_of(view, record, calls)) is not None]
        for part in _parts(texts, before=indexed, upto=upto):
            try:
                database.connections.in_transaction(partial(_store, database, view, part))
            except (_Changed, DurabilityUnknown):
                # What is not taken in is still known to be missing; the next search sees to it.
                return
        indexed = upto


def _parts(texts: list[_Text], *, before: int, upto: int) -> Iterator[_Part]:
    """Texts in parts that are not too large; together they go from one record to another."""
    part: list[_Text] = []
    for text in texts:
        if part and sum(len(one.body) for one in part) + len(text.body) > _MAX_SIZE:
            yield _Part(part, before, part[-1].n)
            before, part = part[-1].n, []
        part.append(text)
    yield _Part(part, before, upto)


def _text_of(view: PostgresView, record: Record, calls: Calls) -> _Text | None:
    # Of an erased message there is nothing to find; a fork may still have it.
    if record.m is None or record.gone is not None:
        return None
    message: Message = record.m
    if record.blobs is not None or record.bin:
        message = message_in(view.whole(record)) or message
    asked = message.tool_call_id
    if asked is not None and asked not in calls:
        # Its call was taken in earlier.
        for earlier in islice(view.back(record.n - 1), _LOOK_BACK):
            made = earlier.m.tool_calls if earlier.m is not None else ()
            calls |= {call.id: call.name for call in made}
            if asked in calls:
                break
    tools = tools_of(message, calls)
    said = message.created if message.created is not None else parse_time(record.ts)
    return _Text(
        n=record.n,
        ts=sortable(said),
        role=_storable(message.kind),
        tools=_storable("\n".join(tools)),
        body=_storable(body_of(message)),
        may_repeat=message.created is not None,
    )


def _storable(text: str) -> str:
    """A text that a database can hold: no NUL, no lone surrogates."""
    return text.replace("\0", " ").encode("utf-8", "replace").decode()


def _store(database: Database, view: PostgresView, part: _Part, run: Run) -> None:
    """Add messages to what is searched, and note up to where; raises _Changed if somebody else was there."""
    sid, uid, statements = sid_of(view.key), view.uid, database.statements
    texts, before, upto = part
    run(_NOT_DURABLE)
    if before <= 0:
        run(statements.erase_texts, sid, uid)
    if texts:
        vectors = [(_words(text.body), _stems(text.body)) for text in texts]
        origins = [_origin(view, text.n) for text in texts]
        run(
            statements.add_texts,
            sid,
            uid,
            array_of([str(text.n) for text in texts]),
            array_of([text.ts for text in texts]),
            array_of([text.role for text in texts]),
            array_of([text.tools for text in texts]),
            array_of([text.body for text in texts]),
            array_of([folded(text.body) for text in texts]),
            array_of([words.text for words, _ in vectors]),
            array_of([stems.text for _, stems in vectors]),
            array_of(["t" if words.is_long or stems.is_long else "f" for words, stems in vectors]),
            array_of([sid for sid, _ in origins]),
            array_of([uid for _, uid in origins]),
        )
        # A message that was stored again, as when a summary is undone, is found once: where it was stored last.
        if repeating := {text.ts for text in texts if text.may_repeat}:
            run(statements.hide_repeats, sid, uid, array_of(sorted(repeating)))
    # The last step, as from here to the end of the transaction an append to the session waits.
    if not run(statements.note_indexed, sid, uid, before, upto).changed:
        raise _Changed


def _origin(view: PostgresView, n: int) -> tuple[str | None, str | None]:
    """The session and generation that wrote a record which a fork shares; None if it is its own."""
    level = next((level for level in view.head.base if n <= level.upto), None)
    return (level.sid, level.uid) if level is not None else (None, None)


# ---- words as PostgreSQL keeps them


class _Vector(NamedTuple):
    """The words of a text with their places, as PostgreSQL reads them.

    One that `is_long` has no places: it has more words than PostgreSQL can number.
    """

    text: str
    is_long: bool


def words_in(text: str) -> list[str]:
    """The words of a text without case and accents, as they are looked for: none is longer than is kept."""
    return [word[:_MAX_WORD] for word in _WORD.findall(folded(text))]


def stems_in(text: str) -> list[str]:
    """The words of a text, laid out by `words_of`, without their endings; a gap between two is a word of its own."""
    return [stem(word)[:_MAX_WORD] for word in _TOKEN.findall(text.lower())]


def _words(body: str) -> _Vector:
    """Every word as it is written, and every character of a script without words.

    PostgreSQL's own parser is not asked: it takes `web-03` and `access.log` apart by rules that a query cannot follow,
    and what it leaves out would be found in files and not here.
    """
    if body.isascii():
        return _vector(words_in(body), count(1))
    words = words_in(unicodedata.normalize("NFC", body))
    # A sign has the place of the word before it.
    return _vector(words, islice(accumulate((word[0].isalnum() for word in words), initial=1), 1, None))


def _stems(body: str) -> _Vector:
    """Every word in every spelling, without its ending: as English has them, which leaves most others as they are."""
    return _vector(stems_in(words_of(body)), count(1))


def _vector(words: list[str], at: Iterable[int]) -> _Vector:
    """Words with their places."""
    places: dict[str, list[int]] = {}
    for word, place in zip(words, at, strict=False):
        found = places.get(word)
        if found is None:
            places[word] = [place]
        else:
            found.append(place)
    places.pop(_GAP, None)
    is_long = len(words) >= _MAX_POSITION or max(map(len, places.values()), default=0) > _MAX_REPEATS
    is_long = is_long or sum(len(word.encode()) + 4 * len(found) + 8 for word, found in places.items()) > _MAX_VECTOR
    if not is_long:
        return _Vector(" ".join([f"'{word}':{','.join(map(str, found))}" for word, found in places.items()]), is_long)
    # What is too much is left out: the first words are the ones that are looked for.
    sizes = accumulate(len(word.encode()) + 8 for word in places)
    kept = takewhile(lambda pair: pair[1] <= _MAX_VECTOR, zip(places, sizes, strict=True))
    return _Vector(" ".join(f"'{word}'" for word, _ in kept), is_long)
