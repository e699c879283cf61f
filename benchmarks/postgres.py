"""Sessions in PostgreSQL: against a plain INSERT, many at once, long ones, and beside the stores that people use there.

The server is on the same machine, so that its CPU time counts as much as the client's, and there is no network that
would hide either. Every commit is flushed, by all of them.
"""

from __future__ import annotations

import asyncio
import random
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial

import psycopg

import nacre
from benchmarks import database, measure
from benchmarks.peers import Contender, Peer, wait_for_all
from benchmarks.rows import Row, at_least, at_most, micros, plain
from benchmarks.scene import LONG, SHORT, Scene, fill, progress, words
from tests.postgres.servers import PostgresServer

_KEY = "bench:postgres"
_BLOCK = 50
_SETTLE = 0.03
"""Longer than a notice waits: what an append leaves to other threads is paid in its own block."""
_CROWD = 64
_EACH = 20
_ALONE = 300
_MANY = 1_000
_DEEP = 1_000

_OURS = Peer("nacre", "nacre")
_OPENAI = Peer("OpenAI Agents SQLAlchemySession", "openai-agents", "openai-agents")
_LANGGRAPH = Peer("LangGraph PostgresSaver", "langgraph", "langgraph")
PEERS = (_OPENAI, _LANGGRAPH)


# ---- one append


def append(scene: Scene) -> Iterator[Row]:
    """An append of 1 kB against a plain INSERT of the same line: wall time, and CPU time of the client."""
    with database.server() as server, database.sessions_in(server, "append") as sessions:
        text = words(1_000)
        sessions.add_message(_KEY, "user", text)
        with psycopg.connect(server.url("append"), autocommit=True) as link:
            actions = {"nacre": lambda: sessions.add_message(_KEY, "user", text), "INSERT": _plain_insert(link)}
            with measure.awake():
                rounds = [_block_of_each(actions, turn) for turn in range(scene.sizes.pairs // 5 + 1)][1:]
    for number, (what, bar) in enumerate((("p50", 1.3), ("CPU of the client", 2))):
        times = {name: [each[name][number] for each in rounds] for name in actions}
        ratio = measure.paired(times, "nacre", "INSERT")
        one, other = (micros(measure.p50(times[name])) for name in ("nacre", "INSERT"))
        yield at_most(
            f"PostgreSQL: append of 1 kB against a plain INSERT and COMMIT of the same line through psycopg, {what}",
            ratio,
            bar,
            absolute=f"{one}, INSERT {other}",
        )


def _plain_insert(link: psycopg.Connection) -> Callable[[], object]:
    """The same row without a session: the line that was stored last, in a table with the same key."""
    link.execute("CREATE TABLE plain (LIKE nacre.records, PRIMARY KEY (sid, uid, n))")
    (line,) = link.execute("SELECT line FROM nacre.records ORDER BY n DESC LIMIT 1").fetchone() or ("",)
    sid, uid, n = uuid.uuid4(), uuid.uuid4(), 0

    def insert() -> None:
        nonlocal n
        n += 1
        values = (sid, uid, n, 1 << 61, None, line)
        link.execute(
            "INSERT INTO plain (sid, uid, n, writer, id, line) VALUES (%s, %s, %s, %s, %s, %s)", values, prepare=True
        )

    return insert


def _block_of_each(actions: Mapping[str, Callable[[], object]], turn: int) -> dict[str, tuple[float, float]]:
    """The median time and the mean CPU time of each action, many times in a row; in turning order."""
    names = list(actions) if turn % 2 else list(actions)[::-1]
    found = {}
    for name in names:
        before = time.process_time()
        times = [measure.timed(actions[name]) for _ in range(_BLOCK)]
        time.sleep(_SETTLE)
        found[name] = (measure.p50(times), (time.process_time() - before) / _BLOCK)
    return found


# ---- many sessions at once


def crowd(scene: Scene) -> Iterator[Row]:
    """Many sessions at once against one, by threads and by tasks."""
    keys = [f"bench:{number}" for number in range(_CROWD)]
    with database.server() as server, database.sessions_in(server, "crowd") as sessions, measure.awake():
        text = words(1_000)
        for key in [_KEY, *keys]:
            sessions.add_message(key, "user", text)
        tasks = nacre.open_async(server.url("crowd"))
        asyncio.run(tasks.__aenter__())

        def write(count: int, key: str) -> None:
            for _ in range(count):
                sessions.add_message(key, "user", text)

        async def write_async(count: int, keys: Sequence[str]) -> None:
            async def one(key: str) -> None:
                for _ in range(count):
                    await tasks.add_message(key, "user", text)

            await asyncio.gather(*map(one, keys))

        with ThreadPoolExecutor(_CROWD) as pool:
            contests: dict[str, tuple[Callable[[], object], Callable[[], object]]] = {
                "threads": (partial(write, _ALONE, _KEY), lambda: list(pool.map(partial(write, _EACH), keys))),
                "tasks through open_async": (
                    lambda: asyncio.run(write_async(_ALONE, [_KEY])),
                    lambda: asyncio.run(write_async(_EACH, keys)),
                ),
            }
            for name, (alone, together) in contests.items():
                samples = measure.interleave({"one": alone, "many": together}, rounds=scene.sizes.runs * 2, warm=1)
                one = [_ALONE / took for took in samples["one"]]
                many = [_CROWD * _EACH / took for took in samples["many"]]
                ratios = [both / single for single, both in zip(one, many, strict=True)]
                yield at_least(
                    f"PostgreSQL: {_CROWD} sessions at once against one, {name}, throughput",
                    measure.p50(ratios),
                    3,
                    absolute=f"{measure.p50(one):,.0f}/s, {measure.p50(many):,.0f}/s; {measure.spread(ratios)}",
                )
        asyncio.run(tasks.close())


def fairness(scene: Scene) -> Iterator[Row]:
    """A thousand sessions over a pool of sixteen connections: the slowest against the fastest, and errors."""
    seconds = 3 if scene.is_quick else 10
    keys = [f"bench:{number}" for number in range(_MANY)]
    with database.server() as server, database.sessions_in(server, "many") as sessions:
        text = words(1_000)
        for name, run in (("threads", _count_in_threads), ("tasks through open_async", _count_in_tasks)):
            counts, errors = run(server.url("many"), sessions, keys, text, seconds)
            yield at_most(
                f"PostgreSQL: {_MANY:,} sessions at once over a pool of 16, {name}: the fastest against the slowest",
                max(counts) / max(min(counts), 0.1),
                5,
                absolute=f"{sum(counts) / seconds:,.0f}/s; {min(counts)} to {max(counts)} appends each",
            )
            yield at_most(f"the same, {name}: errors", errors, 0, unit="")


def _count_in_threads(
    _: str, sessions: nacre.Sessions, keys: Sequence[str], text: str, seconds: float
) -> tuple[list[int], int]:
    """How often each session was appended to, by a thread each, and how many calls failed."""
    together, errors = threading.Barrier(len(keys)), [0]

    def write(key: str) -> int:
        count = 0
        sessions.add_message(key, "user", text)
        together.wait()
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            try:
                sessions.add_message(key, "user", text)
                count += 1
            except nacre.NacreError:
                errors[0] += 1
        return count

    with ThreadPoolExecutor(len(keys)) as pool:
        return list(pool.map(write, keys)), errors[0]


def _count_in_tasks(
    url: str, _: nacre.Sessions, keys: Sequence[str], text: str, seconds: float
) -> tuple[list[int], int]:
    """The same by tasks."""
    errors = [0]

    async def write(sessions: nacre.AsyncSessions, key: str, end: float) -> int:
        count = 0
        while time.monotonic() < end:
            try:
                await sessions.add_message(key, "user", text)
                count += 1
            except nacre.NacreError:
                errors[0] += 1
        return count

    async def run() -> list[int]:
        async with nacre.open_async(url) as sessions:
            end = time.monotonic() + seconds
            return await asyncio.gather(*(write(sessions, key, end) for key in keys))

    return asyncio.run(run()), errors[0]


# ---- long sessions


def depth(scene: Scene) -> Iterator[Row]:
    """The last 50 messages of a long session against those of a short one."""
    sizes = scene.sizes
    with database.server() as server, database.sessions_in(server, "depth") as sessions:
        for key, count in ((SHORT, sizes.short), (LONG, sizes.long)):
            fill(sessions, key, count, text=words(200))
        server.query("VACUUM ANALYZE", database="depth")
        actions = {key: partial(sessions.get_history, key, last=50) for key in (SHORT, LONG)}
        with measure.awake():
            samples = measure.interleave(actions, rounds=sizes.samples // 4, warm=20)
    yield at_most(
        f"PostgreSQL: last 50 of {sizes.long:,} messages against of {sizes.short:,}",
        measure.paired(samples, LONG, SHORT),
        1.5,
        absolute=f"{micros(measure.p50(samples[LONG]))}, {micros(measure.p50(samples[SHORT]))}",
    )


# ---- other stores


def peers(scene: Scene) -> Iterator[Row]:
    """Other session stores in PostgreSQL, each in a database of its own: append, resume, and bytes."""
    turns, each = (4, 5) if scene.is_quick else (12, 10)
    what = f"PostgreSQL, {_DEEP:,} messages of 1 kB"
    with database.server() as server:
        urls = {peer: server.create_database(f"peer_{peer.name.replace('-', '_')}") for peer in (_OURS, *PEERS)}
        took: dict[str, dict[Peer, list[float]]] = {}
        first = _sizes_with_one(scene, server)
        sizes: dict[Peer, int] = {}
        for kind in ("append", "resume"):
            progress(f"{len(urls)} stores in PostgreSQL: {kind}")
            with ExitStack() as stack:
                built = {
                    peer: stack.enter_context(_contender(scene, kind, peer, url, _DEEP)) for peer, url in urls.items()
                }
                ready = wait_for_all(built)
                for peer in list(urls):
                    if peer not in ready:
                        yield plain(f"{what}: {peer.label}", built[peer].failure)
                        del urls[peer]
                if kind == "append":
                    sizes = {peer: _database_size(server, url.rpartition("/")[2]) for peer, url in urls.items()}
                took[kind] = _act_in_turn(ready, turns=turns, each=each)
    for kind, times in took.items():
        for peer in PEERS:
            if peer in urls:
                ratio = measure.p50([one / other for one, other in zip(times[peer], times[_OURS], strict=True)])
                absolute = f"{micros(measure.p50(times[peer]))}, nacre {micros(measure.p50(times[_OURS]))}"
                yield at_least(f"{what}: {kind} by {peer.label} against nacre, p50", ratio, 1, absolute=absolute)
    # What tables take before there is anything in them is paid once for a store, not for each session.
    added = {peer: size - first[peer] for peer, size in sizes.items() if peer in first}
    for peer, bar in ((_OPENAI, 1.3), (_LANGGRAPH, 1.0)):
        if peer in added:
            absolute = f"{added[_OURS] / 1e6:.2f} MB, {added[peer] / 1e6:.2f} MB"
            title = f"{what}: bytes that they add to tables and indexes, against {peer.label}"
            yield at_most(title, added[_OURS] / added[peer], bar, absolute=absolute)
    one = ", ".join(f"{peer.label} {size / 1e3:.0f} kB" for peer, size in first.items())
    yield plain("PostgreSQL: bytes of tables and indexes with one message", one)


def _sizes_with_one(scene: Scene, server: PostgresServer) -> dict[Peer, int]:
    """How large the tables of each store are with one message."""
    urls = {peer: server.create_database(f"one_{peer.name.replace('-', '_')}") for peer in (_OURS, *PEERS)}
    with ExitStack() as stack:
        built = {peer: stack.enter_context(_contender(scene, "append", peer, url, 1)) for peer, url in urls.items()}
        return {peer: _database_size(server, urls[peer].rpartition("/")[2]) for peer in wait_for_all(built)}


def _contender(scene: Scene, kind: str, peer: Peer, url: str, count: int) -> Contender:
    room = scene.root / "database peers" / f"{peer.name} {count}"
    room.mkdir(parents=True, exist_ok=True)
    (room / "url").write_text(url)
    return Contender(kind, peer, room, count, module="benchmarks.database_contenders")


def _act_in_turn(ready: Mapping[Peer, Contender], *, turns: int, each: int) -> dict[Peer, list[float]]:
    """The median of each one's times in each round, in shuffled order; the first round is for warming up."""
    took: dict[Peer, list[float]] = {peer: [] for peer in ready}
    with measure.awake():
        for turn in range(turns + 1):
            for peer in random.sample(list(ready), len(ready)):
                seconds = ready[peer].act(each).seconds
                if turn:
                    took[peer].append(measure.p50(seconds))
    return took


def _database_size(server: PostgresServer, name: str) -> int:
    """The bytes of all tables that are not the server's own, with their indexes and what is stored beside them."""
    server.query("VACUUM", database=name)
    [[size]] = server.query(
        "SELECT sum(pg_total_relation_size(c.oid)) FROM pg_class c JOIN pg_namespace s ON s.oid = c.relnamespace "
        "WHERE c.relkind = 'r' AND s.nspname NOT LIKE 'pg\\_%' AND s.nspname <> 'information_schema'",
        database=name,
    )
    return int(size)
