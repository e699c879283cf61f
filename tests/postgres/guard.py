"""Ends the servers of a test process and removes their files when that process is gone, however it ended.

`python guard.py FOLDER` waits until its standard input ends or its parent is gone. All servers run as programs whose
working directory is below FOLDER: that is how they are found, also those that a server started itself.
"""

from __future__ import annotations

import ctypes
import os
import select
import shutil
import signal
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_IPC_RMID = 0
_TICK = 0.5


def processes_in(folder: Path) -> list[int]:
    """Every process whose working directory is a folder or below it; one that has ended but still has an id is not."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if (process / "cwd").readlink().is_relative_to(folder):
                found.append(int(process.name))
    return found


@contextmanager
def stopped(folder: Path) -> Iterator[None]:
    """Stop every process that works in a folder for a while, also one that is just being started."""
    pids: list[int] = []
    try:
        while found := [pid for pid in processes_in(folder) if pid not in pids]:
            pids += found
            _send(signal.SIGSTOP, found)
        yield
    finally:
        _send(signal.SIGCONT, pids)


def kill_processes(folder: Path) -> None:
    """Kill every process that works in a folder, at once and without a chance to write anything more."""
    while found := processes_in(folder):
        # Stopped first: the parent of the others must not start a new one while they are killed.
        for number in (signal.SIGSTOP, signal.SIGKILL):
            _send(number, found)
        time.sleep(0.005)


def _send(number: signal.Signals, pids: Iterable[int]) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)


def remove(folder: Path) -> None:
    """Kill what works in a folder, and remove the folder and the shared memory that a killed PostgreSQL leaves."""
    kill_processes(folder)
    for file in folder.rglob("postmaster.pid"):
        # The seventh line has the key and the id of its segment.
        lines = file.read_text().splitlines()
        if len(lines) > 6:
            ctypes.CDLL(None).shmctl(int(lines[6].split()[1]), _IPC_RMID, None)
    shutil.rmtree(folder, ignore_errors=True)


def _wait_for_parent(parent: int) -> None:
    # A forked child of the parent may keep the pipe open, so its end alone is not enough.
    while os.getppid() == parent:
        readable, _, _ = select.select([sys.stdin], [], [], _TICK)
        if readable:
            return


if __name__ == "__main__":
    for ignored in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
        signal.signal(ignored, signal.SIG_IGN)
    _wait_for_parent(int(sys.argv[2]))
    remove(Path(sys.argv[1]))
