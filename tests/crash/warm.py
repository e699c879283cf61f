"""A warm process that forks one child for each job, so that a case costs milliseconds, and the client that tests hold.

The process has nacre imported and never opens a store itself.
Run as a program it reads one JSON line of jobs at a time and answers with one line of outcomes.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import selectors
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NoReturn, Protocol, Self

PROJECT = Path(__file__).resolve().parents[2]
SECONDS_BEFORE_A_CHILD_COUNTS_AS_HUNG = 60


class Say(Protocol):
    """Sends one line of facts from a child to the test."""

    def __call__(self, **facts: Any) -> None: ...


Task = Callable[..., None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One child: the function it runs, as `module:name` in this package, and when it is killed."""

    task: str
    arguments: dict[str, Any] = field(default_factory=dict)
    kill_after: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What a child said, and how it ended: 0, an exit code, or minus the signal."""

    status: int
    lines: list[dict[str, Any]]

    def said(self, fact: str) -> list[Any]:
        """Every value that the child gave for one fact, in order."""
        return [line[fact] for line in self.lines if fact in line]


class Warm:
    """The test's end: starts the process, hands it jobs, returns their outcomes."""

    def __init__(self, *, preload: Path | None = None) -> None:
        environment = dict(os.environ)
        environment["PYTHONPATH"] = os.pathsep.join([str(PROJECT), *filter(None, [environment.get("PYTHONPATH")])])
        if preload is not None:
            environment["LD_PRELOAD"] = str(preload)
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.crash.warm"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
            text=True,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate()

    def run(self, task: str, **arguments: Any) -> Outcome:
        """Run one task to its end, and fail if it raised or hung."""
        outcome = self.race([Job(task=task, arguments=arguments)])[0]
        assert outcome.status == 0, (
            f"{task} ended with {outcome.status}: {outcome.said('raised') or outcome.lines[-3:]}"
        )
        return outcome

    def race(self, jobs: Sequence[Job]) -> list[Outcome]:
        """Run all jobs at once, each in a child of its own."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps([asdict(job) for job in jobs]) + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        assert answer, "the warm process died"
        return [Outcome(**outcome) for outcome in json.loads(answer)]


@contextlib.contextmanager
def forked(body: Callable[[Say], None]) -> Iterator[Child]:
    """A child of a child, for tasks that need a second process; waited for at the end."""
    child = start(body)
    try:
        yield child
    except BaseException:
        child.kill()
        raise
    finally:
        child.finish()


class Child:
    """A forked process and what it said so far."""

    def __init__(self, pid: int, pipe: int, kill_after: float | None = None) -> None:
        self.pid = pid
        self.pipe = pipe
        self.kill_at = None if kill_after is None else time.monotonic() + kill_after
        self._output = b""
        self._outcome: Outcome | None = None

    def listen(self) -> bool:
        """Take what the child said; False once it has ended."""
        data = os.read(self.pipe, 1 << 16)
        self._output += data
        return bool(data)

    def hear(self, fact: str) -> Any:
        """Wait until the child states a fact, and return it."""
        while not (said := Outcome(status=0, lines=self._lines()).said(fact)):
            assert self.listen(), f"the child ended without saying {fact!r}: {self._output!r}"
        return said[0]

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)
        self.kill_at = None

    def finish(self) -> Outcome:
        """Listen to the end, and collect the exit status."""
        if self._outcome is None:
            while self.listen():
                pass
            os.close(self.pipe)
            status = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
            self._outcome = Outcome(status=status, lines=self._lines())
        return self._outcome

    def _lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self._output.split(b"\n")[:-1]]


def start(body: Callable[[Say], None], *, kill_after: float | None = None) -> Child:
    """Fork a child that runs `body` and ends."""
    reading, writing = os.pipe()
    pid = os.fork()
    if not pid:
        os.close(reading)
        _live(body, writing)
    os.close(writing)
    return Child(pid, reading, kill_after)


def _live(body: Callable[[Say], None], pipe: int) -> NoReturn:
    def say(**facts: Any) -> None:
        os.write(pipe, json.dumps(facts).encode() + b"\n")

    signal.alarm(SECONDS_BEFORE_A_CHILD_COUNTS_AS_HUNG)
    try:
        body(say)
    except BaseException:  # noqa: BLE001 - the error becomes a fact that the test shows
        say(raised=traceback.format_exc())
        os._exit(1)
    os._exit(0)


def _task(job: Job) -> Callable[[Say], None]:
    module, name = job.task.split(":")
    task: Task = getattr(importlib.import_module(f"tests.crash.{module}"), name)
    return lambda say: task(say, **job.arguments)


def _watch(children: Sequence[Child]) -> list[Outcome]:
    with selectors.DefaultSelector() as selector:
        for child in children:
            selector.register(child.pipe, selectors.EVENT_READ, child)
        while selector.get_map():
            for key, _ in selector.select(_kill_the_due(children)):
                if not key.data.listen():
                    key.data.kill_at = None
                    selector.unregister(key.fileobj)
    return [child.finish() for child in children]


def _kill_the_due(children: Sequence[Child]) -> float | None:
    """Kill whose time has come, and return the seconds until the next."""
    now = time.monotonic()
    for child in children:
        if child.kill_at is not None and child.kill_at <= now:
            child.kill()
    return min((child.kill_at - now for child in children if child.kill_at is not None), default=None)


def _serve() -> None:
    importlib.import_module("nacre")
    for line in sys.stdin:
        jobs = [Job(**job) for job in json.loads(line)]
        outcomes = _watch([start(_task(job), kill_after=job.kill_after) for job in jobs])
        sys.stdout.write(json.dumps([asdict(outcome) for outcome in outcomes]) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    _serve()
