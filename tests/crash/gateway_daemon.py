"""A warm process that forks `nacre serve` again and again; each life may end by SIGKILL at a step of the test's choice.

A step is a call of the store to the operating system, or the beginning or the end of a round trip to a database or of
one of `ACTS`.
With workers, one of them may end at a step of its own, once in each life.
Run as a program, with the number of a socket, it takes one order at a time: JSON, and a pipe for all output.
"""

from __future__ import annotations

import ctypes
import inspect
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NoReturn, Self

from msgspec import Struct, to_builtins
from uvicorn.protocols.http.h11_impl import RequestResponseCycle

import nacre.cli.commands.serve
import nacre.index
import nacre.web.server
from nacre.channels.channel_files import Cursor, Spool
from nacre.channels.http_client import Api
from nacre.channels.irc import Irc
from nacre.channels.irc_connection import IrcConnection
from nacre.channels.matrix import Matrix
from nacre.cli import main
from nacre.providers.ollama import Ollama
from nacre.runtime import daemon
from nacre.runtime.gateway.gateway import Gateway
from nacre.runtime.gateway.inbox import Inbox
from nacre.storage import file_store
from nacre.storage.postgres.connections import Link
from nacre.storage.system import System

PROJECT = Path(__file__).resolve().parents[2]
STORE = "a call of the store"
ACTS: tuple[tuple[Any, str], ...] = (
    (Gateway, "accept"),
    (Api, "call"),
    (Irc, "send"),
    (IrcConnection, "_write"),
    (Matrix, "send"),
    (Cursor, "write"),
    (Spool, "done"),
    (Spool, "put"),
    (Ollama, "complete"),
    (RequestResponseCycle, "send"),
)
STEPS = (STORE, *(f"{moment} {kind.__name__}.{act}" for kind, act in ACTS for moment in ("before", "after")))
_DIES_WITH_ITS_PARENT = 1
WORKER_DEATH = "NACRE_TEST_WORKER_DEATH"
MARK = "worker-died"
"""A file in the room of a life: one of its workers was killed."""


class Death(Struct, frozen=True):
    """When a life ends: at its nth step of a kind, or of any kind; never, at step 0."""

    nth: int = 0
    step: str = ""


class Order(Struct, frozen=True, kw_only=True):
    """One life: where, with which environment, how long the inbox may get before it is begun anew, and until when.

    `worker_death` is that of the first worker that comes to it.
    """

    room: str
    environment: dict[str, str]
    inbox: int
    death: Death
    workers: int = 0
    worker_death: Death = Death()


class Launcher:
    """The test's end of the warm process."""

    def __enter__(self) -> Self:
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        paths = [str(PROJECT), *filter(None, [os.environ.get("PYTHONPATH")])]
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.crash.gateway_daemon", str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
            )
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()
        self._process.wait()

    def launch(self, order: Order) -> int:
        """Begin a life; returns a pipe with all that it says, which ends with it."""
        reading, writing = os.pipe()
        try:
            socket.send_fds(self._socket, [json.dumps(to_builtins(order)).encode()], [writing])
        finally:
            os.close(writing)
        return reading


# ---- in the warm process


class Steps:
    """Counts steps, and ends the process at the one that was chosen."""

    def __init__(self, death: Death, *, whose: str = "killed", once: str = "") -> None:
        """`whose` is what the end is reported as; with `once`, the name of a file, it comes once."""
        self.count = 0
        self._death, self._left, self._whose, self._once = death, death.nth, whose, once

    def __call__(self, step: str) -> None:
        self.count += 1
        if self._death.step in ("", step):
            self._left -= 1
            if not self._left:
                if self._once:
                    Path(self._once).touch()
                os.write(1, json.dumps({self._whose: step, "nth": self._death.nth}).encode() + b"\n")
                os.kill(os.getpid(), signal.SIGKILL)


def arm(steps: Steps) -> None:
    """Let every step of this process be counted."""

    class Counted(System):
        def __getattribute__(self, name: str) -> Any:
            if not name.startswith("_"):
                steps(STORE)
            return super().__getattribute__(name)

    class FileStore(file_store.FileStore):
        def __init__(self, *args: Any, **options: Any) -> None:
            super().__init__(*args, **{"system": Counted(), **options})

    file_store.FileStore = FileStore  # type: ignore[misc] # so that `nacre.open` makes these
    send = Link.send

    def counted_send(link: Link, *args: Any) -> Any:
        steps(STORE)
        found = send(link, *args)
        steps(STORE)
        return found

    Link.send = counted_send  # type: ignore[assignment,method-assign]
    for kind, act in ACTS:
        setattr(kind, act, _counted(getattr(kind, act), f"{kind.__name__}.{act}", steps))


def _counted(act: Callable[..., Any], name: str, steps: Steps) -> Callable[..., Any]:
    async def later(*args: Any, **options: Any) -> Any:
        steps(f"before {name}")
        found = await act(*args, **options)
        steps(f"after {name}")
        return found

    def now(*args: Any, **options: Any) -> Any:
        steps(f"before {name}")
        found = act(*args, **options)
        steps(f"after {name}")
        return found

    return later if inspect.iscoroutinefunction(act) else now


def _live(order: dict[str, Any], output: int) -> NoReturn:
    code = 1
    try:
        ctypes.CDLL(None).prctl(_DIES_WITH_ITS_PARENT, signal.SIGKILL)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.dup2(output, 1)
        os.dup2(output, 2)
        os.close(output)
        # What the streams know of where they lead was learned in the warm process.
        sys.stdout, sys.stderr = (open(fd, "w", encoding="utf-8", closefd=False) for fd in (1, 2))  # noqa: SIM115
        os.chdir(order["room"])
        os.environ.update(order["environment"])
        steps = Steps(Death(**order["death"]))
        arm(steps)
        daemon.Inbox = partial(Inbox, max_records=order["inbox"])  # type: ignore[attr-defined,assignment] # so that a gateway gets these
        words = ["--workers", str(order["workers"])] if order["workers"] else []
        os.environ[WORKER_DEATH] = json.dumps(order["worker_death"])
        Path(MARK).unlink(missing_ok=True)
        nacre.cli.commands.serve.WORKER = "tests.crash.gateway_worker"
        code = main(["serve", "--port", "0", "--json", *words])
        os.write(1, json.dumps({"steps": steps.count}).encode() + b"\n")
    finally:
        os._exit(code)


def _serve(orders: socket.socket) -> None:
    # Whoever ends is gone at once: the pipe tells the test, and nobody asks for the exit code.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while True:
        text, pipes, _, _ = socket.recv_fds(orders, 1 << 16, 1)
        if not text:
            return
        if not os.fork():
            orders.close()
            _live(json.loads(text), pipes[0])
        os.close(pipes[0])


if __name__ == "__main__":
    _serve(socket.socket(fileno=int(sys.argv[1])))
