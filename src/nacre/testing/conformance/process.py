"""A child process with the store open, as the checks use it."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self


class StoreFailed(Exception):
    """The store raised an error, ended its process or did not answer."""


class AppendRefused(StoreFailed):
    """The store raised an error; its process continues."""


class CannotRun(Exception):
    """The factory cannot be imported: nothing can be said about the store."""


class Unusable(Exception):
    """What the factory gives cannot be called as a store: nothing can be said about it either."""


_CHILD = Path(__file__).with_name("child.py")

# How often to look whether the process lives while nothing comes from it, and how long its death may take.
_LOOK = 0.05
_DEATH = 60.0
# How long to wait for the death of processes that the store started. Longer is of no use: they cannot be reached.
_HELPERS = 0.5


class Setting(NamedTuple):
    """Which store is tried, with which Python, how often it is killed, and how long an answer may take.

    `start` is for what comes before the first call: starting Python, and importing the store.
    """

    factory: str
    python: str = sys.executable
    kills: int = 10
    timeout: float = 60.0
    start: float = 600.0


class Child:
    """A process that has the store in `path` open; `append` returns when the store has acknowledged.

    It leads a session of its own, so that what the store starts dies with it. A helper may still get away and hold
    the pipes open: no wait here relies on their end.
    """

    def __init__(self, setting: Setting, path: Path) -> None:
        self._timeout, self._factory = setting.timeout, setting.factory
        self.refusals: list[str] = []
        environment = dict(os.environ)
        if setting.python == sys.executable:  # what can be imported here can be imported there
            environment["PYTHONPATH"] = os.pathsep.join(entry for entry in sys.path if entry)
        path.mkdir(parents=True, exist_ok=True)
        try:
            self._process = subprocess.Popen(  # noqa: S603 - our own module, with the Python that the caller names
                [setting.python, str(_CHILD), setting.factory, str(path)],
                env=environment,
                bufsize=0,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        except OSError as error:
            raise CannotRun(f"{setting.python!r} cannot be started: {error.strerror}") from error
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._commands, self._answers = self._process.stdin, self._process.stdout
        self._writable, self._readable = select.poll(), select.poll()
        self._writable.register(self._commands, select.POLLOUT)
        self._readable.register(self._answers, select.POLLIN)
        self._unread = b""
        try:
            self.not_applicable: dict[str, str] = self._answer(setting.start)
        except StoreFailed as error:
            self._end()
            raise CannotRun(f"{setting.factory}: {error}") from error
        except KeyboardInterrupt:  # which comes to this process only: the child has a session of its own
            self._end()
            raise

    def _answer(self, timeout: float | None = None) -> Any:
        timeout = self._timeout if timeout is None else timeout
        limit = time.monotonic() + timeout
        while b"\n" not in self._unread:
            # The process first, then the pipe: what a dead process wrote is all there.
            has_ended = self._process.poll() is not None
            left = limit - time.monotonic()
            if self._readable.poll(0 if has_ended else 1000 * max(min(left, _LOOK), 0)):
                came = os.read(self._answers.fileno(), 1 << 16)
                if not came:
                    raise self._silence(timeout, limit)
                self._unread += came
            elif has_ended or left <= 0:
                raise self._silence(timeout, limit)
        line, _, self._unread = self._unread.partition(b"\n")
        try:
            answer = json.loads(line)
        except ValueError:
            raise StoreFailed(f"its Python writes what is no answer: {line[:100]!r}") from None
        if "unusable" in answer:
            raise Unusable(f"{self._factory}: {answer['unusable']}")
        if "error" in answer:
            self.refusals.append(answer["error"])
            raise AppendRefused(answer["error"])
        return answer["ok"]

    def _send(self, *command: Any) -> None:
        limit = time.monotonic() + self._timeout
        line = json.dumps(command).encode() + b"\n"
        while line:
            has_ended = self._process.poll() is not None
            left = limit - time.monotonic()
            if has_ended or left <= 0:
                raise self._silence(self._timeout, limit)
            if self._writable.poll(1000 * min(left, _LOOK)):
                try:
                    # So many bytes find room in a pipe that is ready: the call cannot block.
                    line = line[os.write(self._commands.fileno(), line[: select.PIPE_BUF]) :]
                except BrokenPipeError:
                    raise self._silence(self._timeout, limit) from None

    def _silence(self, timeout: float, limit: float) -> StoreFailed:
        """Why no answer comes; a process that closed its end of a pipe may be about to end."""
        try:
            status = self._process.wait(max(limit - time.monotonic(), 0))
        except subprocess.TimeoutExpired:
            return StoreFailed(f"no answer within {timeout:g} s")
        return StoreFailed(f"its process ended with status {status}")

    def ask(self, *command: Any) -> Any:
        """Send a command and wait for its answer."""
        self._send(*command)
        return self._answer()

    def open(self) -> None:
        self.ask("open")

    def append(self, session: str, text: str, id: str) -> None:
        self.ask("append", session, text, id)

    def read(self, session: str) -> list[str]:
        found: list[str] = self.ask("read", session)
        return found

    def die_inside(self, step: int, session: str, text: str, id: str) -> bool:
        """Append, and die at a step of it; True if it returned before it came to that step."""
        self._send("die", step, session, text, id)
        try:
            self._answer()
        except StoreFailed:
            if self._process.poll() is None:
                raise
            return False
        return True

    def begin_flood(self, session: str, label: str, *, past_refusals: bool = False) -> None:
        """Append as fast as it can: until one is refused, or without end."""
        self._send("flood", session, label, past_refusals)

    def next_acknowledged(self) -> int:
        number: int = self._answer()
        return number

    def kill(self) -> list[int]:
        """End it by SIGKILL, and give the numbers that it had acknowledged and nobody had read yet."""
        self._end()
        # What comes after the last newline it wrote while it died: nothing was acknowledged.
        *lines, self._unread = self._unread.split(b"\n")
        rest: list[int] = []
        for line in lines:
            answer = json.loads(line)
            if "error" in answer:
                self.refusals.append(answer["error"])
            elif isinstance(answer["ok"], int):
                rest.append(answer["ok"])
        return rest

    def close(self) -> None:
        """Close the store, and then end its process."""
        try:
            self.ask("close")
        finally:
            self._end()

    def _end(self) -> None:
        """Kill the process and what it started, and read what is left of its answers."""
        if self._answers.closed:
            return
        # On macOS a group of which all have ended gives PermissionError.
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        try:
            self._process.wait(_DEATH)
        except subprocess.TimeoutExpired:
            raise StoreFailed(f"its process did not end within {_DEATH:g} s of SIGKILL") from None
        finally:
            # The end of the pipe comes when the helpers are dead too, and what they held, such as a lock, is free.
            limit = time.monotonic() + _HELPERS
            while self._readable.poll(1000 * max(limit - time.monotonic(), 0)):
                came = os.read(self._answers.fileno(), 1 << 16)
                if not came:
                    break
                self._unread += came
            self._commands.close()
            self._answers.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()
