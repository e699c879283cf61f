"""A model of many users: what 100,000 turns a second need of databases, and what breaks first.

    python -m benchmarks.scale_model        prints the tables of docs/scale.md

The inputs of `Turn` were measured by `benchmarks.database_turns`; the rest are assumptions, each with its name. Nothing
here is random between two runs: the simulations are seeded, and a test compares the tables with the page.
"""

from __future__ import annotations

import heapq
import math
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import count
from random import Random
from statistics import quantiles

from msgspec import Struct

_DAY = 86_400
_MONTH = 730
"""Hours."""


class Turn(Struct, frozen=True, kw_only=True):
    """What one turn costs, as measured with 200 senders at once: a question of 200 bytes, an answer of 1,000.

    `cold` is how many statements it takes in a session that the gateway has not used before. The CPU times are in
    seconds of one core.
    """

    statements: float = 6.2
    cold: float = 10.7
    flushes: float = 3.6
    rows: float = 6.3
    stored: float = 4_200
    wal: float = 5_750
    gateway_cpu: float = 0.0025
    server_cpu: float = 0.0015
    connections: int = 17
    """Of one gateway: the pool, and one to listen."""


class Load(Struct, frozen=True, kw_only=True):
    """How many people there are, and how often they speak. `mean` is the mean rate over a day against the peak."""

    users: int = 10_000_000
    peak: float = 100_000
    mean: float = 0.35
    cold_share: float = 0.3


class Node(Struct, frozen=True, kw_only=True):
    """A database server: its cores, how busy they may be, how long a commit waits for the disk and the standby.

    More than `terabytes` are not put on one, so that it can be copied in hours. The prices are in dollars.
    """

    cores: int = 32
    busy: float = 0.5
    flush: float = 0.0005
    standby: float = 0.0005
    terabytes: float = 10
    round_trip: float = 0.0005
    gateway_busy: float = 0.6
    hourly_core: float = 0.05
    monthly_gigabyte: float = 0.10
    copies: int = 3


class Needs(Struct, frozen=True, kw_only=True):
    """What a load needs, at its peak and in a day."""

    statements: float
    flushes: float
    wal: float
    rows: float
    bytes: float
    server_cores: float
    nodes: int
    gateways: int
    connections: int


def needs(turn: Turn, load: Load, node: Node) -> Needs:
    """The sum of it."""
    per_turn = turn.statements * (1 - load.cold_share) + turn.cold * load.cold_share
    # What a cold turn reads besides costs as much as the average statement.
    cores = load.peak * turn.server_cpu * per_turn / turn.statements
    gateways = math.ceil(load.peak * turn.gateway_cpu / node.gateway_busy)
    return Needs(
        statements=load.peak * per_turn,
        flushes=load.peak * turn.flushes,
        wal=load.peak * turn.wal,
        rows=load.peak * load.mean * _DAY * turn.rows,
        bytes=load.peak * load.mean * _DAY * turn.stored,
        server_cores=cores,
        nodes=math.ceil(cores / (node.cores * node.busy)),
        gateways=gateways,
        connections=gateways * turn.connections,
    )


# ---- one node, by the event


class Waits(Struct, frozen=True, kw_only=True):
    """How long the database kept a turn waiting, in seconds, and how busy it was."""

    p50: float
    p99: float
    busy: float
    per_flush: float


def simulate_node(rate: float, turn: Turn, node: Node, *, turns: int = 4_000, seed: int = 1) -> Waits:
    """Simulate turns on one node, which come at random with a mean rate."""
    return _NodeRun(turn, node, Random(seed)).run(rate, turns)


_Act = Callable[[float], None]
"""Something that happens at a moment."""


class _NodeRun:
    """A run of one node.

    A turn is a chain of statements. Each waits for a core, and takes it for a time that is random around its mean; each
    that commits waits for the next flush of the WAL, which is one for all that wait, and for the standby.
    """

    def __init__(self, turn: Turn, node: Node, random: Random) -> None:
        self._node, self._random = node, random
        self._steps = round(turn.statements)
        self._service = turn.server_cpu / self._steps
        self._commits = set(_spread(round(turn.flushes), self._steps))
        self._events: list[tuple[float, int, _Act]] = []
        self._order = count()
        self._free, self._queue = node.cores, deque[_Act]()
        self._is_flushing, self._unflushed = False, list[_Act]()
        self._waits: list[float] = []
        self._used, self._flushes, self._committed = 0.0, 0, 0

    def run(self, rate: float, turns: int) -> Waits:
        moment = 0.0
        for _ in range(turns):
            moment += self._random.expovariate(rate)
            self._at(moment, lambda now: self._step(0, now, now))
        last = 0.0
        while self._events:
            last, _, act = heapq.heappop(self._events)
            act(last)
        cuts = quantiles(self._waits, n=100)
        busy = self._used / (last * self._node.cores)
        return Waits(p50=cuts[49], p99=cuts[98], busy=busy, per_flush=self._committed / self._flushes)

    def _at(self, moment: float, act: _Act) -> None:
        heapq.heappush(self._events, (moment, next(self._order), act))

    def _step(self, number: int, started: float, now: float) -> None:
        """Run the next statement of a turn, and then the one after it."""
        if number == self._steps:
            self._waits.append(now - started)
            return

        def answer(moment: float) -> None:
            self._at(moment + self._node.round_trip, lambda later: self._step(number + 1, started, later))

        self._compute(now, partial(self._commit, answer) if number in self._commits else answer)

    def _compute(self, now: float, done: _Act) -> None:
        """Take a core when one is free."""
        begin = partial(self._begin, done)
        if self._free:
            self._free -= 1
            begin(now)
        else:
            self._queue.append(begin)

    def _begin(self, done: _Act, now: float) -> None:
        took = self._random.expovariate(1 / self._service)
        self._used += took

        def end(moment: float) -> None:
            if self._queue:
                self._queue.popleft()(moment)
            else:
                self._free += 1
            done(moment)

        self._at(now + took, end)

    def _commit(self, done: _Act, now: float) -> None:
        """Wait for the next flush."""
        self._committed += 1
        self._unflushed.append(done)
        if not self._is_flushing:
            self._flush(now)

    def _flush(self, now: float) -> None:
        self._is_flushing, self._flushes = True, self._flushes + 1
        taken, self._unflushed = self._unflushed, []

        def end(moment: float) -> None:
            self._is_flushing = False
            for done in taken:
                self._at(moment + self._node.standby, done)
            if self._unflushed:
                self._flush(moment)

        self._at(now + self._node.flush, end)


def _spread(some: int, of: int) -> Iterator[int]:
    """Which of so many steps are some of them, evenly."""
    return (step * of // some for step in range(some))


# ---- what is one for all


def simulate_row(rate: float, *, each: float, trip: float, seconds: float = 20, seed: int = 1) -> float:
    """The p99 of how long appends to one session wait that come at random, in seconds; infinite if they are too many.

    Whoever comes while the row is being written waits, and goes with all others who wait in the next statement: `trip`
    is the time of one round trip with its flush, `each` that of every append in it.
    """
    if rate * each >= 1:
        return math.inf
    random = Random(seed)
    arrivals: list[float] = []
    moment = random.expovariate(rate)
    while moment < seconds:
        arrivals.append(moment)
        moment += random.expovariate(rate)
    waits: list[float] = []
    now, first = 0.0, 0
    while first < len(arrivals):
        now = max(now, arrivals[first])
        last = first
        while last < len(arrivals) and arrivals[last] <= now:
            last += 1
        now += trip + each * (last - first)
        waits += (now - arrival for arrival in arrivals[first:last])
        first = last
    return quantiles(waits, n=100)[98]


def nodes_touched(sessions: int, nodes: int) -> float:
    """On how many nodes the rows of so many sessions are, on average."""
    return nodes * (1 - (1 - 1 / nodes) ** sessions)


# ---- the tables of docs/scale.md


def tables(turn: Turn, load: Load, node: Node) -> Iterator[str]:
    """Each table as Markdown."""
    yield _needs_table(turn, load, node)
    yield _node_table(turn, node)
    yield _row_table()
    yield _spread_table()
    yield _cost_table(turn, load, node)


def _needs_table(turn: Turn, load: Load, node: Node) -> str:
    found = needs(turn, load, node)
    return _table(
        ("what", "for one turn", f"{load.peak:,.0f} turns a second"),
        [
            (
                "statements",
                f"{turn.statements:g} ({turn.cold:g} cold)",
                f"{found.statements:,.0f} a second, {load.cold_share:.0%} of turns cold",
            ),
            ("flushed commits", f"{turn.flushes:g}", f"{found.flushes:,.0f} a second"),
            ("WAL", f"{turn.wal / 1e3:g} kB", f"{found.wal / 1e6:,.0f} MB a second, to every standby too"),
            ("records", f"{turn.rows:g}", f"{found.rows / 1e9:,.1f} billion a day"),
            ("bytes of tables and indexes", f"{turn.stored / 1e3:g} kB", f"{found.bytes / 1e12:,.1f} TB a day"),
            ("CPU of the server", f"{turn.server_cpu * 1e3:g} ms", f"{found.server_cores:,.0f} cores, all busy"),
            (
                f"nodes of {node.cores} cores, {node.busy:.0%} busy",
                "",
                f"{found.nodes}, each with a synchronous standby",
            ),
            (
                f"gateways, each on one core, {node.gateway_busy:.0%} busy",
                f"{turn.gateway_cpu * 1e3:g} ms",
                f"{found.gateways}",
            ),
            ("connections", f"{turn.connections} a gateway", f"{found.connections:,}"),
        ],
    )


def _node_table(turn: Turn, node: Node) -> str:
    most = node.cores / turn.server_cpu
    rows = []
    for share in (0.25, 0.5, 0.7, 0.85, 0.95):
        waits = simulate_node(most * share, turn, node)
        rows.append(
            (
                f"{most * share:,.0f}",
                f"{waits.busy:.0%}",
                f"{waits.per_flush:.1f}",
                f"{waits.p50 * 1e3:.1f} ms",
                f"{waits.p99 * 1e3:.1f} ms",
            )
        )
    return _table(("turns a second on one node", "busy", "commits a flush", "database time p50", "p99"), rows)


def _row_table() -> str:
    """One session that everybody writes to, as the inbox of a store is."""
    rows = []
    for rate in (500, 2_000, 5_000, 8_000, 12_000, 20_000):
        shown = [
            "grows without end" if math.isinf(wait) else f"{wait * 1e3:.1f} ms"
            for wait in (
                simulate_row(rate, each=_EACH, trip=_TRIP),
                simulate_row(rate, each=_EACH, trip=_TRIP + _APART),
            )
        ]
        rows.append((f"{rate:,}", *shown))
    return _table(("messages a second", "p99 in one place", "p99 with 20 ms between places"), rows)


_EACH = 0.000_13
"""Seconds of client and server for one more append in a statement, measured with 64 sessions at once."""
_TRIP = 0.0015
_APART = 0.020


def _spread_table() -> str:
    rows = [
        (str(sessions), *(f"{nodes_touched(sessions, nodes):.1f}" for nodes in (4, 16, 64)))
        for sessions in (1, 4, 16, 64)
    ]
    return _table(("sessions in one transaction", "of 4 nodes", "of 16", "of 64"), rows)


def _cost_table(turn: Turn, load: Load, node: Node) -> str:
    found = needs(turn, load, node)
    rows = []
    for days in (7, 30, 90, 365):
        stored = found.bytes * days
        nodes = max(found.nodes, math.ceil(stored / 1e12 / node.terabytes))
        cores = nodes * node.cores * node.copies + found.gateways
        compute = cores * node.hourly_core * _MONTH
        storage = stored * node.copies / 1e9 * node.monthly_gigabyte
        per_turn = (compute + storage) / (load.peak * load.mean * _DAY * 30)
        millions = [f"{amount / 1e6:.2f} M$" for amount in (compute, storage)]
        rows.append((f"{days} days", f"{stored / 1e12:,.0f} TB", str(nodes), *millions, f"{per_turn * 1e6:.1f} $"))
    head = ("kept in the database", "one copy", "nodes", "compute a month", "storage a month", "for a million turns")
    return _table(head, rows)


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


if __name__ == "__main__":
    print("\n\n".join(tables(Turn(), Load(), Node())))  # noqa: T201 - the command's answer
