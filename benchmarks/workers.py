"""What two workers are worth on two cores: completions in sessions, with 32 clients that keep their connections."""

from __future__ import annotations

import json
import os
import resource
import select
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import anyio
from msgspec import Struct

import nacre
from benchmarks import measure
from benchmarks.gateway import Crowd
from benchmarks.rows import Row, at_least, micros, plain, shown
from benchmarks.scene import Scene
from benchmarks.scripted_worker import ANSWERS
from nacre.config import Settings
from nacre.providers.scripted import Scripted
from nacre.runtime.app import App, Options
from nacre.runtime.gateway.access import Access
from nacre.runtime.gateway.gateway import Gateway, Room
from nacre.runtime.gateway.inbox import Inbox
from nacre.runtime.gateway.rate_limit import LoopLimit
from nacre.runtime.workers import WorkerKernel, WorkerSetup

_TOKEN = "a token that nobody guesses"  # noqa: S105 - it opens nothing but this benchmark
_CLIENTS, _SESSIONS = 32, 8
_CORES = _WORKERS = 2
_SENDERS, _EACH = 300, 5


def throughput(scene: Scene) -> Iterator[Row]:
    """Completions a second with workers against one process, in rounds that take turns."""
    room = scene.room("workers")
    count = 20 * scene.sizes.pairs
    pairs = [
        (_complete(room / f"{number} alone", 0, count), _complete(room / f"{number} workers", _WORKERS, count))
        for number in range(scene.sizes.runs)
    ]
    ratio = statistics.median(alone.core_seconds / workers.core_seconds for alone, workers in pairs)
    raw = statistics.median(alone.wall / workers.wall for alone, workers in pairs)
    rates = "; ".join(f"{count / alone.wall:.0f}/s, {count / workers.wall:.0f}/s" for alone, workers in pairs)
    cpu = statistics.median(workers.cpu for _, workers in pairs) / count
    what = f"completions in sessions, {_WORKERS} workers against one process, {_CORES} cores"
    yield at_least(f"{what}, without the clients' CPU", ratio, 1.4, absolute=f"{rates}; clients {micros(cpu)} each")
    yield plain(f"{what}, raw", shown(raw))


def senders(scene: Scene) -> Iterator[Row]:
    """How soon a message is durable while many write at once, with workers and without."""
    room, found = scene.room("senders of workers"), {}
    for workers in (0, _WORKERS):
        found[workers] = _child("worker senders", room / str(workers), _SENDERS, workers)
    for workers, one in found.items():
        who = f"{workers} workers" if workers else "no workers"
        rate = f"{one['rate']:.0f}/s; median {micros(one['p50'])}"
        yield plain(f"{_SENDERS} senders at once, {who}: p99 of accept-to-durable", micros(one["p99"]), absolute=rate)


class _Run(Struct, frozen=True):
    """Seconds that requests took, and CPU seconds that their clients took."""

    wall: float
    cpu: float

    @property
    def core_seconds(self) -> float:
        """The CPU time that the machine had for the server: all of it but what the clients took."""
        return _CORES * self.wall - self.cpu


def _complete(store: Path, workers: int, count: int) -> _Run:
    with subprocess.Popen(  # noqa: S603 - our own module
        _command("workers", store, _TOKEN, workers),
        cwd=measure.PROJECT,
        env=_environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None  # noqa: S101 - it was asked for
        port = json.loads(process.stdout.readline())
        found = _child("clients", port, _TOKEN, count)
        process.communicate()
    return _Run(**found)


def _child(*words: object) -> dict[str, float]:
    done = subprocess.run(  # noqa: S603 - our own module
        _command(*words), cwd=measure.PROJECT, env=_environment(), stdout=subprocess.PIPE, check=True
    )
    found: dict[str, float] = json.loads(done.stdout)
    return found


def _command(*words: object) -> list[str]:
    return [sys.executable, "-m", "benchmarks.child", *map(str, words)]


def _environment() -> dict[str, str]:
    """Workers do not look for modules in the current folder."""
    return {**os.environ, "PYTHONPATH": str(measure.PROJECT)}


# ---- in processes of their own


def serve_senders(store: str, count: str, workers: str) -> dict[str, float]:
    """Let many write at once over a channel; how soon what they wrote was durable, and how many were answered."""
    crowd = Crowd(int(count), _EACH)

    async def run() -> None:
        with nacre.open(store) as sessions:
            app = make_app(sessions, store, int(workers))
            gateway = Gateway(
                [crowd],
                inbox=Inbox(sessions),
                room=lambda _: Room(sessions, app.kernel),
                access=lambda _: Access(per_minute=10_000),
                commands={},
                pacer=app.pacer,
                loops=LoopLimit(limit=1_000_000),
            )
            async with app.kernel, anyio.create_task_group() as tasks:
                begun = time.perf_counter()
                tasks.start_soon(gateway.run)
                await crowd.done.wait()
                took.append(time.perf_counter() - begun)
                tasks.cancel_scope.cancel()

    took: list[float] = []
    anyio.run(run)
    cuts = statistics.quantiles(crowd.accepted, n=100)
    return {"rate": int(count) * _EACH / took[0], "p50": cuts[49], "p99": cuts[98]}


def make_app(sessions: nacre.Sessions, store: str, workers: int) -> App:
    """An agent whose model answers at once, here or in workers."""
    settings = Settings({}, {})
    app = App(settings, sessions, Scripted(ANSWERS))
    if workers:
        setup = WorkerSetup(count=workers, module="benchmarks.scripted_worker")
        app.kernel = WorkerKernel(app, setup, settings=settings, options=Options(store=store))
    return app


def ask_many(port: str, token: str, count: str) -> dict[str, float]:
    """Send requests over keep-alive connections, one at a time over each; the seconds and the CPU that it took."""
    requests = [_request(token, f"s{client}-{number}") for client in range(_CLIENTS) for number in range(_SESSIONS)]
    poll = select.epoll()
    wires = {}
    for client in range(_CLIENTS):
        wire = socket.create_connection(("127.0.0.1", int(port)))
        wire.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        wires[wire.fileno()] = _Wire(wire, requests[client * _SESSIONS :][:_SESSIONS])
        poll.register(wire, select.EPOLLIN)
    # Each session is begun before the clock is.
    _run(poll, wires, _CLIENTS * _SESSIONS)
    begun, cpu = time.perf_counter(), _cpu()
    _run(poll, wires, int(count))
    return {"wall": time.perf_counter() - begun, "cpu": _cpu() - cpu}


class _Wire:
    def __init__(self, wire: socket.socket, requests: list[bytes]) -> None:
        self.wire, self.requests, self.at, self.buffer = wire, requests, 0, b""

    def ask(self) -> None:
        self.wire.sendall(self.requests[self.at % len(self.requests)])
        self.at += 1

    def is_answered(self) -> bool:
        self.buffer += self.wire.recv(65536)
        head, found, body = self.buffer.partition(b"\r\n\r\n")
        if not found:
            return False
        assert head.startswith(b"HTTP/1.1 200"), self.buffer  # noqa: S101 - else nothing was measured
        length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
        if len(body) < length:
            return False
        self.buffer = b""
        return True


def _run(poll: select.epoll, wires: dict[int, _Wire], count: int) -> None:
    left, waiting = count, 0
    for wire in wires.values():
        wire.ask()
        left, waiting = left - 1, waiting + 1
    while waiting:
        for fd, _ in poll.poll():
            if wires[fd].is_answered():
                waiting -= 1
                if left:
                    wires[fd].ask()
                    left, waiting = left - 1, waiting + 1


def _request(token: str, session: str) -> bytes:
    body = json.dumps(
        {"model": "nacre", "session_id": session, "messages": [{"role": "user", "content": "How is the weather?"}]}
    ).encode()
    head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {token}\r\n"
    return f"{head}Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body


def _cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime
