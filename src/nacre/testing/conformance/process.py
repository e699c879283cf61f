"""A child process with the store open, as the checks use it."""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import threading
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


_CHILD = Path(__file__).with_name("child.py")


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
    """A process that has the store in `path` open; `append` returns when the store has acknowledged."""

    def __init__(self, setting: Setting, path: Path) -> None:
        self._timeout = setting.timeout
        self.refusals: list[str] = []
        environment = dict(os.environ)
        if setting.python == sys.executable:  # what can be imported here can be imported there
            environment["PYTHONPATH"] = os.pathsep.join(entry for entry in sys.path if entry)
        path.mkdir(parents=True, exist_ok=True)
        try:
            self._process = subprocess.Popen(  # noqa: S603 - our own module, with the Python that the caller names
                [setting.python, str(_CHILD), setting.factory, str(path)],
                env=environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
            )
        except OSError as error:
            raise CannotRun(f"{setting.python!r} cannot be started: {error.strerror}") from error
        self._answers: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._reader = threading.Thread(target=self._read_answers, daemon=True)
        self._reader.start()
        try:
            self.not_applicable: dict[str, str] = self._answer(setting.start)
        except StoreFailed as error:
            self.kill()
            raise CannotRun(f"{setting.factory}: {error}") from error

    def _read_answers(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.endswith("\n"):  # else it died while it wrote this: nothing was acknowledged
                self._answers.put(line)
        self._answers.put("")

    def _answer(self, timeout: float | None = None) -> Any:
        timeout = self._timeout if timeout is None else timeout
        try:
            line = self._answers.get(timeout=timeout)
        except queue.Empty:
            raise StoreFailed(f"no answer within {timeout:g} s") from None
        if not line:
            self._answers.put("")
            raise StoreFailed(f"its process ended with status {self._process.wait()}")
        answer = json.loads(line)
        if "error" in answer:
            self.refusals.append(answer["error"])
            raise AppendRefused(answer["error"])
        return answer["ok"]

    def _send(self, *command: Any) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(command) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise StoreFailed(f"its process ended with status {self._process.wait()}") from None

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
            if self._process.poll() is None and not self._has_ended():
                raise
            return False
        return True

    def _has_ended(self) -> bool:
        self._reader.join(timeout=1)
        return not self._reader.is_alive()

    def begin_flood(self, session: str, label: str, *, past_refusals: bool = False) -> None:
        """Append as fast as it can: until one is refused, or without end."""
        self._send("flood", session, label, past_refusals)

    def next_acknowledged(self) -> int:
        number: int = self._answer()
        return number

    def kill(self) -> list[int]:
        """End it by SIGKILL, and give the numbers that it had acknowledged and nobody had read yet."""
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()
        self._reader.join()
        rest: list[int] = []
        while line := self._answers.get():
            answer = json.loads(line)
            if "error" in answer:
                self.refusals.append(answer["error"])
            elif isinstance(answer["ok"], int):
                rest.append(answer["ok"])
        self._close_pipes()
        return rest

    def close(self) -> None:
        """Close the store, and then end its process."""
        try:
            self.ask("close")
        finally:
            self._process.kill()
            self._process.wait()
            self._reader.join()
            self._close_pipes()

    def _close_pipes(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with suppress(BrokenPipeError):
            self._process.stdin.close()
        self._process.stdout.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process.poll() is None or self._reader.is_alive():
            self.kill()
        else:
            self._close_pipes()
