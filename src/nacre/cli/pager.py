"""The pager: long output a screen at a time."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import IO

from nacre import config as settings


@contextmanager
def paged(otherwise: IO[str]) -> Iterator[IO[str]]:
    """Where to print so that the pager shows it; the stream that is given if there is no pager."""
    command = _command()
    if not command:
        yield otherwise
        return
    otherwise.flush()
    environment = {"LESS": "FRX", "LV": "-c", **os.environ}
    # The user's own words, run as the shell would run them: PAGER may hold arguments.
    process = subprocess.Popen(command, shell=True, stdin=subprocess.PIPE, text=True, encoding="utf-8", env=environment)  # noqa: S602
    assert process.stdin is not None  # noqa: S101 - a pipe was asked for
    try:
        # Who leaves the pager early has seen enough.
        with suppress(BrokenPipeError):
            yield process.stdin
    finally:
        with suppress(BrokenPipeError):
            process.stdin.close()
        _wait(process)


def _command() -> str:
    chosen = settings.value_of("cli.pager") or os.environ.get("PAGER", "")
    if chosen:
        return "" if chosen == "cat" else chosen
    found = any(os.access(os.path.join(folder, "less"), os.X_OK) for folder in os.get_exec_path())
    return "less -FRX" if found else ""


def _wait(process: subprocess.Popen[str]) -> None:
    """Wait until the pager is left; Ctrl-C is its own affair."""
    while True:
        with suppress(KeyboardInterrupt):
            process.wait()
            return
