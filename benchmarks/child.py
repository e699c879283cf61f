"""What has to run in a process of its own: to be traced, or to have a heap of its own."""

from __future__ import annotations

import gc
import json
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from unittest.mock import patch

from benchmarks import measure


def appends(store: str, count: str) -> None:
    """Open, append to a new session, append `count` times more; a mark between the phases."""
    import nacre  # noqa: PLC0415

    with nacre.open(store) as sessions:
        sessions.add_message("bench:warm", "user", "hello")
        measure.mark()
        sessions.add_message("bench:traced", "user", "hello")
        measure.mark()
        for _ in range(int(count)):
            sessions.add_message("bench:traced", "user", "hello")
        measure.mark()


def busy_log(store: str, count: str, how: str) -> int:
    """The most bytes that a process holds while it appends to one session, "with" ids or without, beyond the first."""
    import tracemalloc  # noqa: PLC0415

    import nacre  # noqa: PLC0415

    def append(number: int) -> None:
        sessions.add_message("bench:busy", "user", "hello", id=f"message-{number:012}" if how == "with" else None)

    with nacre.open(store, durability="relaxed") as sessions:
        append(0)
        tracemalloc.start()
        peak = 0
        for number in range(1, int(count)):
            append(number)
            if number % 500 == 0:
                gc.collect()
                peak = max(peak, tracemalloc.get_traced_memory()[0])
        tracemalloc.stop()
    return peak


def load(store: str, log: str, key: str, rounds: str) -> dict[str, list[float]]:
    """Time a full verified load against decoding the same lines, and against reading them too."""
    import orjson  # noqa: PLC0415

    import nacre  # noqa: PLC0415

    lines = Path(log).read_bytes().splitlines()
    kept: list[object] = []

    def verified() -> None:
        with nacre.open(store) as sessions:
            kept.append(sessions.get_history(key))

    def decoded() -> None:
        kept.append([orjson.loads(line) for line in lines])

    def read_and_decoded() -> None:
        with Path(log).open("rb") as file:
            kept.append([orjson.loads(line) for line in file])

    actions = {"nacre": verified, "orjson": decoded, "orjson, reading": read_and_decoded}
    samples: dict[str, list[float]] = {name: [] for name in actions}
    for _ in range(int(rounds)):
        for name, action in actions.items():
            samples[name].append(measure.timed(action))
            kept.clear()
            gc.collect()
    return samples


def turn(store: str) -> None:
    """A turn in a session that is there already, between two marks."""
    import anyio  # noqa: PLC0415

    import nacre  # noqa: PLC0415
    from benchmarks.turns import answering  # noqa: PLC0415
    from nacre.agent.actor import UserMessage  # noqa: PLC0415
    from nacre.agent.kernel import Kernel  # noqa: PLC0415

    async def run() -> None:
        with nacre.open(store) as sessions:
            async with Kernel(sessions, lambda _: answering(2)) as kernel:
                await kernel.deliver(UserMessage(key="k", content="hello"))
                measure.mark()
                await kernel.deliver(UserMessage(key="k", content="hello"))
                measure.mark()

    anyio.run(run)


def actors(store: str, count: str) -> int:
    """Bytes that a process holds with so many live actors."""
    from benchmarks.turns import weigh  # noqa: PLC0415

    return weigh(Path(store), int(count))


def senders(store: str, seen: str, active: str) -> int:
    """Bytes that a process holds after so many senders, of whom so many are active."""
    from benchmarks.gateway import weigh  # noqa: PLC0415

    return weigh(Path(store), int(seen), int(active))


def completions(store: str, token: str) -> None:
    """Serve an agent whose model answers at once; tells the port, and ends with its input.

    For each line of the input it tells its CPU seconds so far, and how many bytes it has read from the store.
    """
    import anyio  # noqa: PLC0415
    from anyio import to_thread  # noqa: PLC0415

    import nacre  # noqa: PLC0415
    from nacre.config import Settings  # noqa: PLC0415
    from nacre.providers.scripted import Scripted  # noqa: PLC0415
    from nacre.runtime import App  # noqa: PLC0415
    from nacre.storage.system import System  # noqa: PLC0415
    from nacre.web.server import application, serve  # noqa: PLC0415

    read, pread = 0, System.pread

    def counted(system: System, fd: int, size: int, offset: int) -> bytes:
        nonlocal read
        data = pread(system, fd, size, offset)
        read += len(data)
        return data

    def tell(what: object) -> None:
        sys.stdout.write(f"{json.dumps(what)}\n")
        sys.stdout.flush()

    def answer() -> None:
        while sys.stdin.readline():
            tell({"cpu": time.process_time(), "read": read})

    async def run() -> None:
        with patch.object(System, "pread", counted), nacre.open(store) as sessions:
            app = App(
                Settings({"agent": {"max_history_messages": 100}}, {}),
                sessions,
                Scripted(["The weather is fine."] * 100_000),
            )
            site = application(app, token=token, hosts=["127.0.0.1"])
            async with app.kernel, anyio.create_task_group() as tasks:
                tasks.start_soon(partial(serve, site, host="127.0.0.1", port=0, ready=tell))
                await to_thread.run_sync(answer)
                tasks.cancel_scope.cancel()

    anyio.run(run)


def workers(store: str, token: str, count: str) -> None:
    """Serve as `completions` does, with a number of workers; tells the port, and ends with its input."""
    import anyio  # noqa: PLC0415
    from anyio import to_thread  # noqa: PLC0415

    import nacre  # noqa: PLC0415
    from benchmarks.workers import make_app  # noqa: PLC0415
    from nacre.web.server import application, serve  # noqa: PLC0415

    def ready(port: int) -> None:
        sys.stdout.write(f"{port}\n")
        sys.stdout.flush()

    async def run() -> None:
        with nacre.open(store) as sessions:
            app = make_app(sessions, store, int(count))
            site = application(app, token=token, hosts=["127.0.0.1"])
            async with app.kernel, anyio.create_task_group() as tasks:
                tasks.start_soon(partial(serve, site, host="127.0.0.1", port=0, ready=ready))
                await to_thread.run_sync(sys.stdin.read)
                tasks.cancel_scope.cancel()

    anyio.run(run)


def clients(port: str, token: str, count: str) -> object:
    """Ask a server with or without workers, again and again."""
    from benchmarks.workers import ask_many  # noqa: PLC0415

    return ask_many(port, token, count)


def worker_senders(store: str, count: str, workers: str) -> object:
    """Let many write over a channel, with or without workers."""
    from benchmarks.workers import serve_senders  # noqa: PLC0415

    return serve_senders(store, count, workers)


TASKS: dict[str, Callable[..., object]] = {
    "appends": appends,
    "busy_log": busy_log,
    "load": load,
    "turn": turn,
    "actors": actors,
    "senders": senders,
    "completions": completions,
    "workers": workers,
    "clients": clients,
    "worker senders": worker_senders,
}

if __name__ == "__main__":
    task, *arguments = sys.argv[1:]
    json.dump(TASKS[task](*arguments), sys.stdout)
