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

from benchmarks import measure
from benchmarks.rows import Row, at_least, plain
from benchmarks.scene import Scene

_TOKEN = "a token that nobody guesses"  # noqa: S105 - it opens nothing but this benchmark
_CLIENTS, _SESSIONS = 32, 8
_CORES = 2
_WORKERS = 2


def throughput(scene: Scene) -> Iterator[Row]:
    """Requests a second with workers against one process, in rounds that take turns."""
    room = scene.room("workers")
    count = 20 * scene.sizes.pairs
    ratios, raw, cpu = [], [], []
    for number in range(scene.sizes.runs):
        alone, with_workers = (_measure(room / f"{number}-{n}", n, count) for n in (0, _WORKERS))
        raw.append(alone["wall"] / with_workers["wall"])
        ratios.append(_core_seconds(alone) / _core_seconds(with_workers))
        cpu.append((alone, with_workers))
    best = statistics.median(raw)
    beside = "; ".join(
        f"{count / one['wall']:.0f}/s → {count / two['wall']:.0f}/s, "
        f"clients {1e6 * one['cpu'] / count:.0f} and {1e6 * two['cpu'] / count:.0f} µs CPU each"
        for one, two in cpu
    )
    what = f"completions in sessions, {_WORKERS} workers / one process, {_CORES} cores"
    yield at_least(f"{what}, without the clients' CPU", statistics.median(ratios), 1.4, absolute=beside)
    yield plain(f"{what}, raw", f"{best:.2f}×")


def _core_seconds(run: dict[str, float]) -> float:
    """The CPU time that two cores had for the server: all but what the clients took."""
    return _CORES * run["wall"] - run["cpu"]


def _measure(store: Path, workers: int, count: int) -> dict[str, float]:
    command = [sys.executable, "-m", "benchmarks.child", "workers", str(store), _TOKEN, str(workers)]
    # Workers do not look for modules in the current folder.
    environment = {**os.environ, "PYTHONPATH": str(measure.PROJECT)}
    with subprocess.Popen(  # noqa: S603 - our own module
        command, cwd=measure.PROJECT, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None  # noqa: S101 - it was asked for
        port = json.loads(process.stdout.readline())
        clients = [sys.executable, "-m", "benchmarks.child", "clients", str(port), _TOKEN, str(count)]
        done = subprocess.run(clients, cwd=measure.PROJECT, stdout=subprocess.PIPE, check=True)  # noqa: S603
        process.communicate()
    found: dict[str, float] = json.loads(done.stdout)
    return found


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
