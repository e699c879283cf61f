"""The index: what it takes to build, to search a million messages with it, and to list ten thousand sessions."""

from __future__ import annotations

import os
import random
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from pathlib import Path

import nacre
from benchmarks import measure
from benchmarks.rows import Row, at_most, micros, plain, shown
from benchmarks.scene import Scene, progress
from nacre.history.list_page import Wanted
from nacre.index import Index

_GROUP = 1_000
_LIMIT = 50
_LENGTHS = (5, 8, 20, 20, 40, 80, 200)
_NOTHING = "thisisnowhere"
# One message in so many has the word; out of a million that is 10 to 100,000 hits.
_PERIODS = (100_000, 50_000, 20_000, 10_000, 5_000, 2_000, 1_000, 500, 100, 10)
_HAN = "山水火木金土日月星云"

_TABLES = """
CREATE VIRTUAL TABLE words USING fts5 (
    body, content='', tokenize='porter unicode61 remove_diacritics 2');
CREATE VIRTUAL TABLE grams USING fts5 (
    body, content='', tokenize='trigram', detail=none, columnsize=0);
INSERT INTO words (words, rank) VALUES ('automerge', 16);
INSERT INTO grams (grams, rank) VALUES ('automerge', 16);
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class Asked:
    """A query, the bare table that could answer it and how, and in which messages its words were put."""

    query: str
    table: str
    match: str
    planted: str
    period: int

    def hits(self, count: int) -> int:
        """How many of so many messages it finds."""
        return -(-count // self.period)


def _asked() -> list[Asked]:
    """A hundred queries: words, phrases, parts of words, Chinese, two words at once, each at ten frequencies."""
    found: list[Asked] = []
    for place, period in enumerate(_PERIODS):
        found += _asked_at(chr(ord("a") + place), _HAN[place], period)
    return found


def _asked_at(mark: str, han: str, period: int) -> Iterator[Asked]:
    for number, word in enumerate((f"quartz{mark}", f"Zürich{mark}", f"ключ{mark}")):
        yield Asked(query=word, table="words", match=f'"{word}"', planted=word, period=period)
        two = f"{word} tin{number}{mark}"
        yield Asked(query=f'"{two}"', table="words", match=f'"{two}"', planted=two, period=period)
    for number in range(2):
        inner = f"oxyg{number}{mark}en"
        yield Asked(query=inner, table="grams", match=_trigrams(inner), planted=f"xx{inner}yy", period=period)
    for length in (3, 4):
        text = han * (length - 2) + "数据"
        yield Asked(query=text, table="grams", match=_trigrams(text), planted=f"在{text}里", period=period)


def _trigrams(text: str) -> str:
    """A text as a table of single trigrams can be asked for it."""
    return " AND ".join(f'"{text[at : at + 3]}"' for at in range(len(text) - 2))


def searching(scene: Scene) -> Iterator[Row]:
    """A hundred queries against the bare full-text query, and Chinese words of two characters."""
    count = scene.sizes.long
    asked = _asked()
    store, cache = _filled(scene, count, asked), scene.room("search-cache")
    index = Index(str(store), cache=str(cache))
    progress(f"indexing {count:,} messages")
    took = measure.timed(lambda: index.search(_NOTHING))
    database = next(cache.rglob("index.sqlite"))
    bare = sqlite3.connect(database)
    bare.execute("PRAGMA cache_size = -32768")
    _check(index, bare, asked, count)
    yield _queries(index, bare, asked, count, scene)
    yield from _pairs(index, count, scene)
    size = sum(file.stat().st_size for file in database.parent.iterdir())
    text = sum(len(body.encode()) for body in _bodies(store))
    yield plain(
        f"index of {count:,} messages: size against the text in it",
        shown(size / text),
        absolute=f"text {text / 1e6:,.0f} MB, index {size / 1e6:,.0f} MB, built in {took:,.0f} s",
    )
    index.close()
    bare.close()


def building(scene: Scene) -> Iterator[Row]:
    """Reading logs into the index against inserting the same text into the same two tables."""
    count = scene.sizes.long // 20
    store = _filled(scene, count, _asked(), name="build-store")
    bodies = _bodies(store)
    room = scene.room("build")
    samples = measure.interleave(
        {"bare": partial(_insert, room, bodies), "ours": partial(_build, room, store)}, rounds=scene.sizes.runs, warm=1
    )
    ratio = measure.paired(samples, "ours", "bare")
    yield at_most(
        f"index build of {count:,} messages against bare FTS5 inserts of the same text",
        ratio,
        1.3,
        absolute=f"{micros(measure.p50(samples['bare']))}, {micros(measure.p50(samples['ours']))}",
    )


def listing(scene: Scene) -> Iterator[Row]:
    """All sessions from the index against the bare directory."""
    store, cache = scene.listed, scene.room("list-cache")
    folder = store / "sessions"
    held = Index(str(store), cache=str(cache))
    _list(held)
    samples = measure.interleave(
        {
            "scandir": lambda: _scan(folder),
            "held": lambda: _list(held),
            "fresh": lambda: _list(Index(str(store), cache=str(cache))),
        },
        rounds=scene.sizes.runs * 2,
        warm=1,
    )
    bare = measure.p50(samples["scandir"])
    for name, how in (("held", "listed before"), ("fresh", "index just opened")):
        yield at_most(
            f"list {scene.sizes.listed:,} sessions with the index ({how}) against scandir + stat, warm",
            measure.paired(samples, name, "scandir"),
            3,
            absolute=f"{micros(bare)}, {micros(measure.p50(samples[name]))}",
        )
    held.close()


def _queries(index: Index, bare: sqlite3.Connection, asked: list[Asked], count: int, scene: Scene) -> Row:
    ours: list[float] = []
    theirs: list[float] = []
    for one in asked:
        samples = measure.interleave(
            {
                "bare": lambda one=one: _bare(bare, one),  # type: ignore[misc]
                "ours": lambda one=one: index.search(one.query, limit=_LIMIT),  # type: ignore[misc]
            },
            rounds=scene.sizes.runs,
            warm=1,
        )
        ours.append(measure.p50(samples["ours"]))
        theirs.append(measure.p50(samples["bare"]))
    ratio = _p95(ours) / _p95(theirs)
    least, most = min(one.hits(count) for one in asked), max(one.hits(count) for one in asked)
    return at_most(
        f"search of {count:,} messages, {len(asked)} queries with {least:,} to {most:,} hits, limit {_LIMIT}, p95 "
        "against the bare FTS5 query",
        ratio,
        3,
        absolute=f"{micros(_p95(theirs))}, {micros(_p95(ours))}; p50 {micros(measure.p50(theirs))}, "
        f"{micros(measure.p50(ours))}",
    )


def _pairs(index: Index, count: int, scene: Scene) -> Iterator[Row]:
    """Words of two characters, which the trigram table alone cannot answer."""
    took: list[float] = []
    for han in _HAN:
        samples = measure.interleave(
            {"ours": partial(index.search, f"{han}数", limit=_LIMIT)}, rounds=scene.sizes.runs, warm=1
        )
        took.append(measure.p50(samples["ours"]))
    yield at_most(
        f"search of {count:,} messages for Chinese words of two characters, limit {_LIMIT}, p95",
        _p95(took) * 1e3,
        50,
        unit=" ms",
        absolute=f"p50 {micros(measure.p50(took))}",
    )


def _bare(connection: sqlite3.Connection, one: Asked) -> int:
    sql = f"SELECT rowid FROM {one.table} WHERE {one.table} MATCH ? ORDER BY rank LIMIT {_LIMIT}"  # noqa: S608
    return len(connection.execute(sql, (one.match,)).fetchall())


def _check(index: Index, bare: sqlite3.Connection, asked: list[Asked], count: int) -> None:
    """Refuse to time a query that does not find what was put there."""
    for one in asked:
        sql = f"SELECT count(*) FROM {one.table} WHERE {one.table} MATCH ?"  # noqa: S608
        found = bare.execute(sql, (one.match,)).fetchone()[0]
        ours = len(index.search(one.query, limit=_GROUP))
        if found != one.hits(count) or ours != min(found, _GROUP):
            raise RuntimeError(f"{one.query!r} finds {ours} and {found}, not {one.hits(count)}")


def _filled(scene: Scene, count: int, asked: list[Asked], *, name: str = "search-store") -> Path:
    """A store of messages of mixed length, a thousand to a session, in which every query finds what it should."""
    store = scene.room(name)
    progress(f"building {count:,} messages to search")
    text = _writer()
    with nacre.open(store) as sessions:
        for start in range(0, count, _GROUP):
            said = [text(number, asked) for number in range(start, min(count, start + _GROUP))]
            messages = [nacre.Message(role="user", content=content) for content in said]
            # The last one comes by itself, as it would in a conversation.
            sessions.add_messages(f"talk:{start // _GROUP}", messages[:-1])
            sessions.add_full_message(f"talk:{start // _GROUP}", messages[-1])
    return store


def _writer() -> Callable[[int, list[Asked]], str]:
    chance = random.Random(1)
    letters = "etaoinshrdlucmfwypvbgk"
    words = ["".join(chance.choices(letters, k=chance.randint(2, 10))) for _ in range(30_000)]
    weights = list(accumulate(1 / (place + 1) for place in range(len(words))))

    def write(number: int, asked: list[Asked]) -> str:
        said = chance.choices(words, cum_weights=weights, k=chance.choice(_LENGTHS))
        return " ".join([*said, *(one.planted for one in asked if number % one.period == 0)])

    return write


def _bodies(store: Path) -> list[str]:
    with nacre.open(store) as sessions:
        keys = [info.key for info in sessions.list()]
        return [str(stored.message.content) for key in keys for stored in sessions.transcript(key)]


def _insert(room: Path, bodies: list[str]) -> None:
    path = room / "bare.sqlite"
    for file in room.glob("bare.sqlite*"):
        file.unlink()
    connection = sqlite3.connect(path, isolation_level=None)
    for pragma in ("journal_mode = WAL", "synchronous = NORMAL", "cache_size = -32768"):
        connection.execute(f"PRAGMA {pragma}")
    connection.executescript(_TABLES)
    for start in range(0, len(bodies), 5 * _GROUP):
        rows = list(enumerate(bodies[start : start + 5 * _GROUP], start + 1))
        connection.execute("BEGIN IMMEDIATE")
        for table in ("words", "grams"):
            connection.executemany(f"INSERT INTO {table} (rowid, body) VALUES (?, ?)", rows)  # noqa: S608
        connection.execute("COMMIT")
    connection.close()


def _build(room: Path, store: Path) -> None:
    cache = room / "cache"
    shutil.rmtree(cache, ignore_errors=True)
    index = Index(str(store), cache=str(cache))
    index.search(_NOTHING)
    index.close()


def _list(index: Index) -> int:
    return sum(info.messages > 0 for info in index.page(Wanted()).items)


def _scan(folder: Path) -> int:
    with os.scandir(folder) as entries:
        return sum(entry.stat().st_size > 0 for entry in entries)


def _p95(values: list[float]) -> float:
    return sorted(values)[int(len(values) * 0.95)]
