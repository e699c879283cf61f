"""What a turn costs a database: statements, rows, bytes, WAL and CPU time, counted on a real server.

The turns are those of a gateway: a message is accepted into the inbox, answered by the kernel, and its answer is
delivered. The figures are what `benchmarks.scale_model` reckons with.
"""

from __future__ import annotations

import os
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import anyio
from msgspec import Struct

import nacre
from benchmarks import database
from benchmarks.gateway import Crowd, serve_crowd
from benchmarks.rows import Row, micros, plain
from benchmarks.scene import Scene, words
from benchmarks.turns import answering
from nacre.agent.kernel import Kernel
from nacre.runtime.gateway.queue import StepPacer
from nacre.storage.postgres.statements import TEXTS, Statements
from tests.postgres.guard import processes_in
from tests.postgres.programs import wait_until
from tests.postgres.servers import PostgresServer

QUESTION, ANSWER = 200, 1_000
"""Bytes that a person says, and that the model answers."""
_EARLIER = 4
_TICKS = os.sysconf("SC_CLK_TCK")


class Costs(Struct, frozen=True, kw_only=True):
    """What turns cost a database, all of them or one on average.

    `statements` has how often each is run. `flushes` are those of the WAL: what is committed at the same moment shares
    one. `rows` are new records, `stored` is by how much all tables and indexes grow. The CPU times are in seconds.
    """

    statements: Mapping[str, float]
    flushes: float
    rows: float
    stored: float
    wal: float
    gateway_cpu: float
    server_cpu: float

    @property
    def calls(self) -> float:
        """All statements together."""
        return sum(self.statements.values())

    def since(self, before: Costs, turns: int) -> Costs:
        """The costs of one of so many turns."""
        calls = Counter(dict(self.statements))
        calls.subtract(dict(before.statements))
        rest = {
            name: (getattr(self, name) - getattr(before, name)) / turns
            for name in self.__struct_fields__
            if name != "statements"
        }
        return Costs(statements={name: count / turns for name, count in calls.most_common() if count > 0}, **rest)


def turns(scene: Scene) -> Iterator[Row]:
    """What a turn through the gateway costs PostgreSQL, for docs/scale.md."""
    each = 4 if scene.is_quick else 10
    for name, senders, is_warm in (
        ("one sender", 1, True),
        ("200 senders at once", 200, True),
        ("200 senders at once, each in a session that this gateway has not used", 200, False),
    ):
        # Only the first turn in a session is one in a session that was not used.
        turns_of_each = (each * 50 if senders == 1 else each) if is_warm else 1
        costs = count(senders, turns_of_each, is_warm=is_warm)
        often = ", ".join(f"{calls:.2g} {statement}" for statement, calls in costs.statements.items() if calls >= 0.05)
        used = f"CPU of the gateway {micros(costs.gateway_cpu)}, of the server {micros(costs.server_cpu)}"
        yield plain(
            f"PostgreSQL: statements of a turn, {name}",
            f"{costs.calls:.3g}",
            absolute=f"{costs.flushes:.2g} flushes, {costs.rows:.3g} records, {costs.stored / 1e3:.3g} kB stored, "
            f"{costs.wal / 1e3:.3g} kB of WAL; {used}; {often}",
        )


def count(senders: int, each: int, *, is_warm: bool) -> Costs:
    """The costs of a turn in sessions of eight messages; if `is_warm` the gateway has answered in each of them before.

    Nothing is vacuumed meanwhile, which would be in the figures of one run and not of another.
    """
    settings: dict[str, str | int] = {"shared_preload_libraries": "pg_stat_statements", "autovacuum": "off"}
    with database.server(**settings) as server:
        url = database.store_in(server, "turns")
        server.query("CREATE EXTENSION pg_stat_statements", database="turns")
        idle = _processes(server)
        anyio.run(_talk, url, senders, [_EARLIER], lambda: None, lambda: None)
        _wait_until_idle(server, idle)
        before: list[Costs] = []
        used: list[tuple[float, float]] = []
        anyio.run(
            _talk,
            url,
            senders,
            [1, each] if is_warm else [each],
            lambda: before.append(_costs(server, lambda: _cpu(server))),
            lambda: used.append(_cpu(server)),
            _EARLIER,
        )
        # What a connection has counted is certain when it has ended; what it has used, while it is open.
        _wait_until_idle(server, idle)
        return _costs(server, lambda: used[0]).since(before[0], senders * each)


async def _talk(  # noqa: PLR0913, PLR0917 - for anyio.run, which passes no names
    url: str,
    senders: int,
    parts: Sequence[int],
    before_last: Callable[[], object],
    after_last: Callable[[], object],
    begin: int = 0,
) -> None:
    """Let every sender have turns, in parts; something is called before and after the last one.

    All connections are open then: the CPU time of a process of the server that is about to end is nowhere for a moment.
    """
    with nacre.open(url) as sessions:
        pacer, agent = StepPacer(), answering(sum(parts) * senders, answer=words(ANSWER))
        async with Kernel(sessions, lambda _: agent, pace=pacer.step) as kernel:
            for number, turns in enumerate(parts, 1):
                if number == len(parts):
                    before_last()
                crowd = Crowd(senders, turns, begin=begin, text=words(QUESTION))
                await serve_crowd(sessions, kernel, crowd, pacer)
                begin += turns
        after_last()


# ---- what the server says


def _costs(server: PostgresServer, cpu: Callable[[], tuple[float, float]]) -> Costs:
    """What was used so far. To ask for it takes CPU time, too, which is looked at afterwards."""
    found = server.query("SELECT calls, query FROM pg_stat_statements WHERE toplevel", database="turns")
    names = {_without_values(getattr(Statements("nacre"), name).text.decode()): name for name in TEXTS}
    calls: Counter[str] = Counter()
    for number, query in found:
        name = names.get(_without_values(query))
        if name is not None:
            calls[name] += int(number)
    [[flushes, rows, stored, wal]] = server.query(
        "SELECT (SELECT wal_sync FROM pg_stat_wal), (SELECT count(*) FROM nacre.records), "
        "(SELECT sum(pg_total_relation_size(oid)) FROM pg_class WHERE relkind = 'r' "
        "AND relnamespace = 'nacre'::regnamespace), pg_current_wal_insert_lsn() - '0/0'",
        database="turns",
    )
    gateway, of_server = cpu()
    return Costs(
        statements=calls,
        flushes=int(flushes),
        rows=int(rows),
        stored=int(stored),
        wal=int(wal),
        gateway_cpu=gateway,
        server_cpu=of_server,
    )


def _without_values(query: str) -> str:
    """A statement as the server counts it: with its constants and parameters alike."""
    return " ".join(re.sub(r"\$\d+|'[^']*'|\b(?:\d+|true|false)\b", "?", query).split())


def _processes(server: PostgresServer) -> set[int]:
    """Every process of a server but the first one, those too that have ended and were not seen to by it yet."""
    main = (server.data / "postmaster.pid").read_text(encoding="ascii").split()[0]
    found = set()
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if (process / "stat").read_text(encoding="utf-8").rpartition(")")[2].split()[1] == main:
                found.add(int(process.name))
    return found


def _wait_until_idle(server: PostgresServer, idle: set[int]) -> None:
    wait_until(lambda: _processes(server) <= idle, "the end of all connections")


def _cpu(server: PostgresServer) -> tuple[float, float]:
    """CPU seconds of this process, and of the server with those of its processes that have ended."""
    ticks = 0
    for pid in processes_in(server.data):
        with suppress(OSError):
            fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
            ticks += sum(map(int, fields[11:15]))
    return time.process_time(), ticks / _TICKS
