"""How far a long piece of work has come."""

from __future__ import annotations

import io
import sys

import pytest

from nacre.cli.progress import Progress, format_duration


class Terminal(io.StringIO):
    """A stderr that is a terminal, or is not."""

    def __init__(self, *, is_terminal: bool) -> None:
        super().__init__()
        self._is_terminal = is_terminal

    def isatty(self) -> bool:
        return self._is_terminal


def drawn(monkeypatch: pytest.MonkeyPatch, *, is_terminal: bool, seconds: float, shown: bool = True) -> str:
    """What stands on stderr after a piece of work of which half is done after some seconds."""
    stderr = Terminal(is_terminal=is_terminal)
    monkeypatch.setattr(sys, "stderr", stderr)
    now = 0.0
    monkeypatch.setattr("time.monotonic", lambda: now)
    with Progress("verifying", total=2_000_000, unit="bytes", shown=shown) as step:
        now = seconds
        step(1_000_000)
        return stderr.getvalue()


def test_what_is_soon_done_is_not_talked_about(monkeypatch: pytest.MonkeyPatch) -> None:
    assert drawn(monkeypatch, is_terminal=True, seconds=0.4) == ""


def test_on_a_terminal_a_line_is_redrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    line = drawn(monkeypatch, is_terminal=True, seconds=2)
    assert line == "\rverifying 1.0 MB of 2.0 MB, 500.0 kB/s, 2 s left\x1b[K"


def test_and_wiped_away_in_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn(monkeypatch, is_terminal=True, seconds=2)
    assert isinstance(sys.stderr, Terminal)
    assert sys.stderr.getvalue().endswith("\r\x1b[K")


@pytest.mark.parametrize(("seconds", "lines"), [(9, 0), (11, 1)])
def test_elsewhere_it_is_a_line_every_ten_seconds(monkeypatch: pytest.MonkeyPatch, seconds: float, lines: int) -> None:
    assert drawn(monkeypatch, is_terminal=False, seconds=seconds).count("\n") == lines


def test_nobody_who_wants_quiet_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    assert drawn(monkeypatch, is_terminal=True, seconds=60, shown=False) == ""


def test_without_a_total_nothing_is_foretold() -> None:
    assert Progress("counting", total=None, unit="sessions", shown=True).line(2) == "counting 0 sessions, 0 sessions/s"


@pytest.mark.parametrize(("seconds", "words"), [(99, "99 s"), (100, "2 min"), (5999, "100 min"), (7200, "2.0 h")])
def test_a_span_is_told_in_the_largest_unit_that_says_enough(seconds: float, words: str) -> None:
    assert format_duration(seconds) == words
