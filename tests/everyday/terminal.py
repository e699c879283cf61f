"""A terminal for everyday scripts: an emulator (pyte) over a pty, with an interactive shell and `nacre` in it.

with Screen(person, "chat", columns=40, at=folder) as screen:
    screen.until("for help")
    screen.say("hello")
    screen.until("You said: hello")
    screen.leave()
"""

from __future__ import annotations

import fcntl
import os
import pty
import shlex
import struct
import subprocess
import termios
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import pyte

from tests.readable import is_readable

if TYPE_CHECKING:
    from tests.everyday.conftest import Person

ENTER, ALT_ENTER, TAB, ESCAPE, BACKSPACE, UP, DOWN = "\r", "\x1b\r", "\t", "\x1b", "\x7f", "\x1b[A", "\x1b[B"
CTRL_C, CTRL_D, CTRL_R, CTRL_U, CTRL_X, CTRL_E, CTRL_Z = "\x03", "\x04", "\x12", "\x15", "\x18", "\x05", "\x1a"
PATIENCE = 120
"""Seconds until something counts as not coming; a busy machine may take long."""
_LOOK_AGAIN = 0.2
_PROMPT = "$"
_SCROLLBACK = 5000


class _Emulator(pyte.HistoryScreen):
    """The emulator; it answers what programs ask a terminal, and counts bells."""

    def __init__(self, columns: int, rows: int, answer: Callable[[str], None]) -> None:
        self.bells = 0
        self._answer = answer
        super().__init__(columns, rows, history=_SCROLLBACK, ratio=1)

    def write_process_input(self, data: str) -> None:
        self._answer(data)

    def bell(self, *_: object) -> None:
        self.bells += 1


class Screen:
    """A terminal window in which somebody runs a command, from a shell with job control."""

    def __init__(
        self, person: Person, *words: str, columns: int = 80, rows: int = 24, at: Path | None = None, **env: str
    ) -> None:
        self._main, side = pty.openpty()
        self._emulator = _Emulator(columns, rows, self.type)
        self._stream = pyte.ByteStream(self._emulator)
        self.raw = b""
        self._set_size(columns, rows)
        programs = person.home / ".programs"
        programs.mkdir(exist_ok=True)
        (programs / "nacre").write_text(f'#!/bin/sh\nexec {shlex.join(person.command())} "$@"\n')
        (programs / "nacre").chmod(0o755)
        start = programs / "bashrc"
        start.write_text(f"PS1='{_PROMPT} '\nHISTFILE=\n")
        # The shell opens the terminal by name, so that it becomes the controlling one of a new session.
        name = os.ttyname(side)
        shell = f"exec bash --noprofile --rcfile {shlex.quote(str(start))} -i <{name} >{name} 2>&1"
        self._process = subprocess.Popen(
            ["bash", "-c", shell],
            stdin=subprocess.DEVNULL,
            cwd=at or person.home,
            env={**person.env, "PATH": f"{programs}:{person.env['PATH']}", **env},
            start_new_session=True,
        )
        self._wait(self._is_at_shell, "the shell did not start")
        os.close(side)
        self.run("nacre", *words)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # Closing the terminal hangs up on what still runs in it.
        os.close(self._main)
        self._process.kill()
        self._process.wait()

    # ---- what a person does

    def type(self, text: str) -> None:
        os.write(self._main, text.encode())

    def say(self, line: str) -> None:
        """Type a line, and Enter when it is seen."""
        self.type(line)
        self.until(line)
        self.type(ENTER)

    def paste(self, text: str) -> None:
        """Paste as a terminal does: between two marks."""
        self.type(f"\x1b[200~{text}\x1b[201~")

    def run(self, *words: str) -> None:
        """Type a command at the prompt of the shell."""
        self.type(f"{shlex.join(words)}\r")

    def resize(self, columns: int, rows: int) -> None:
        """Make the window larger or smaller; the program is told."""
        self._emulator.resize(rows, columns)
        self._set_size(columns, rows)

    def suspend(self) -> None:
        """Press Ctrl-Z, and wait for the shell."""
        self.type(CTRL_Z)
        self.until_shell()

    def resume(self) -> None:
        """Bring what was suspended back."""
        self.run("fg")

    def leave(self) -> int:
        """Press Ctrl-D; gives the exit code."""
        self.type(CTRL_D)
        return self.code()

    # ---- what a person sees

    @property
    def lines(self) -> list[str]:
        """What is on the screen, without blanks at the ends of lines and empty lines at its end."""
        lines = [line.rstrip() for line in self._emulator.display]
        while lines and not lines[-1]:
            lines.pop()
        return lines

    @property
    def text(self) -> str:
        return "\n".join(self.lines)

    @property
    def words(self) -> str:
        """What is on the screen as one line, so that it does not matter where lines are broken."""
        return " ".join(self.text.split())

    @property
    def scrollback(self) -> str:
        """What has left the screen at its top, and the screen."""
        size = self._emulator.columns
        gone = ("".join(line[x].data for x in range(size)).rstrip() for line in self._emulator.history.top)
        return "\n".join([*gone, *self.lines])

    @property
    def bells(self) -> int:
        return int(self._emulator.bells)

    @property
    def cursor(self) -> tuple[int, int]:
        """Column and row of the cursor, from 0."""
        return self._emulator.cursor.x, self._emulator.cursor.y

    def until(self, wanted: str) -> str:
        """Wait until a text is on the screen, over several lines if need be; gives the screen."""
        wanted = " ".join(wanted.split())
        self._wait(lambda: wanted in self.words, f"{wanted!r} is not on the screen")
        return self.text

    def until_gone(self, unwanted: str) -> str:
        """Wait until a text is no longer on the screen; gives the screen."""
        unwanted = " ".join(unwanted.split())
        self._wait(lambda: unwanted not in self.words, f"{unwanted!r} stays on the screen")
        return self.text

    def until_true(self, condition: Callable[[], Any], what: str) -> None:
        """Read what is printed until a condition holds, which may be about something else than the screen."""
        end = time.monotonic() + PATIENCE
        while not condition():
            assert time.monotonic() < end, f"{what}, but:\n{self.text}"
            self._read(_LOOK_AGAIN)

    def until_shell(self) -> None:
        """Wait until the shell asks for a command."""
        self._wait(self._is_at_shell, "the shell does not come back")

    def code(self) -> int:
        """Wait until the command has ended; gives its exit code and ends the shell."""
        self.until_shell()
        self.type("exit $?\r")
        return self._process.wait(PATIENCE)

    # ---- underneath

    def _is_at_shell(self) -> bool:
        x, y = self.cursor
        return x == len(_PROMPT) + 1 and str(self._emulator.display[y]).rstrip() == _PROMPT

    def _set_size(self, columns: int, rows: int) -> None:
        fcntl.ioctl(self._main, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def _wait(self, condition: Callable[[], Any], complaint: str) -> None:
        end = time.monotonic() + PATIENCE
        while not condition():
            left = end - time.monotonic()
            if left < 0 or not self._read(left):
                raise AssertionError(f"{complaint}, but:\n{self.text}")

    def _read(self, seconds: float) -> bool:
        """Read some of what is printed; False if nothing comes any more."""
        if not is_readable(self._main, seconds):
            return False
        try:
            data = os.read(self._main, 65536)
        except OSError:
            return False
        self.raw += data
        self._stream.feed(data)
        return bool(data)
