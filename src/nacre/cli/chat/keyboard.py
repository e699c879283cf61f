"""The keyboard during a conversation, read key by key and given to other programs for a while; texts cut to columns."""

from __future__ import annotations

import os
import signal
import termios
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from typing import Any, TextIO

from prompt_toolkit.input.vt100 import Vt100Input
from prompt_toolkit.utils import get_cwidth

Modes = list[Any]


class Keyboard(Vt100Input):
    """A terminal that stays in raw mode from the first line to the last, so that no key is lost between two lines.

    prompt_toolkit would set the terminal back whenever something is printed; here that happens only when
    another program gets the terminal: a command, an editor, or the shell after Ctrl-Z.
    """

    def __init__(self, stdin: TextIO) -> None:
        super().__init__(stdin)
        self._modes_before = _modes(self.fileno())
        self._raw_modes: Modes | None = None
        self.is_released = False

    def cooked_mode(self) -> AbstractContextManager[None]:
        return nullcontext()

    @contextmanager
    def held(self) -> Iterator[None]:
        """Read key by key until the end of the block."""
        with self.raw_mode():
            self._raw_modes = _modes(self.fileno())
            yield

    @contextmanager
    def released(self) -> Iterator[None]:
        """Give the terminal to another program until the end of the block; Ctrl-C is a signal meanwhile."""
        self.is_released = True
        _set(self.fileno(), self._modes_before)
        try:
            yield
        finally:
            self.is_released = False
            self.restore()

    def suspend(self) -> None:
        """Stop this process and those it started, as Ctrl-Z does; returns when the shell continues it."""
        _set(self.fileno(), self._modes_before)
        os.kill(0, signal.SIGTSTP)
        # Also where nobody could stop us: a process that has no shell above it ignores the signal.
        self.restore()

    def restore(self) -> None:
        """Read key by key again, after the process was stopped and the shell changed the terminal."""
        if not self.is_released:
            _set(self.fileno(), self._raw_modes)


def _modes(fd: int) -> Modes | None:
    try:
        return termios.tcgetattr(fd)
    except termios.error:
        return None


def _set(fd: int, modes: Modes | None) -> None:
    if modes is not None:
        with suppress(termios.error):
            termios.tcsetattr(fd, termios.TCSADRAIN, modes)


def clip(text: str, columns: int) -> str:
    """The text if it fits, else its beginning and a mark."""
    if get_cwidth(text) <= columns:
        return text
    while text and get_cwidth(text) >= columns:
        text = text[:-1]
    return f"{text}…" if columns > 0 else ""


def clip_start(text: str, columns: int) -> str:
    """The text if it fits, else a mark and its end."""
    if get_cwidth(text) <= columns:
        return text
    while text and get_cwidth(text) >= columns:
        text = text[1:]
    return f"…{text}" if columns > 0 else ""
