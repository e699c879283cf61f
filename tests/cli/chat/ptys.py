"""A terminal with a program in it: what it prints is read, what it asks of a terminal is answered."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self

from tests.readable import is_readable

CTRL_C, CTRL_D, ENTER, ALT_ENTER = "\x03", "\x04", "\r", "\x1b\r"
PATIENCE = 15.0
_CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b\][^\x07]*\x07|\x1b[=>()][0-9A-B]?|\r")
_WHERE = b"\x1b[6n"


class Terminal:
    """A program in a terminal of 80 columns."""

    def __init__(self, words: list[str], environment: Mapping[str, str]) -> None:
        self._main, side = pty.openpty()
        fcntl.ioctl(side, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        self._process = subprocess.Popen(
            [sys.executable, *words],
            stdin=side,
            stdout=side,
            stderr=side,
            env=dict(environment),
            start_new_session=True,
        )
        os.close(side)
        self._bytes = b""
        self._seen = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.wait()
        os.close(self._main)

    @property
    def text(self) -> str:
        """Everything printed so far, without what moves the cursor."""
        return _CONTROL.sub("", self._bytes.decode("utf-8", "replace"))

    def type(self, text: str) -> None:
        os.write(self._main, text.encode())

    def say(self, line: str) -> None:
        """Type a line and Enter, when the program has seen the line."""
        self.type(line)
        self.until(line)
        self.type(ENTER)

    def signal(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def until(self, wanted: str) -> str:
        """Read until something new is printed that has the wanted text; gives all that was new."""
        end = time.monotonic() + PATIENCE
        while wanted not in self.text[self._seen :]:
            if not self._read(end - time.monotonic()):
                raise AssertionError(f"{wanted!r} was not printed, but:\n{self.text[self._seen :][-900:]}")
        at = self.text.index(wanted, self._seen) + len(wanted)
        found, self._seen = self.text[self._seen : at], at
        return found

    def ends(self) -> int:
        """Read to the end; gives the exit code."""
        end = time.monotonic() + PATIENCE
        while self._read(end - time.monotonic()):
            continue
        return self._process.wait(5)

    def _read(self, seconds: float) -> bool:
        """Read some of what is printed; False if there is no more, or it takes too long."""
        if not is_readable(self._main, seconds):
            return False
        try:
            data = os.read(self._main, 65536)
        except OSError:
            return False
        # A program may ask where its cursor is; a terminal answers.
        for _ in range(data.count(_WHERE)):
            self.type("\x1b[1;1R")
        self._bytes += data
        return bool(data)


def environment(**more: Any) -> dict[str, str]:
    """What a program is started with: nothing of ours but what is given."""
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "PYTHONPATH") if name in os.environ}
    return {**kept, "TERM": "xterm", "LANG": "C.UTF-8", **{name: str(value) for name, value in more.items()}}
