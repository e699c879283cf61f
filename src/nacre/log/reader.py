"""Reading a log without a lock: what was whole in it when it was opened."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from nacre.log.file import open_log
from nacre.log.lines import Lines
from nacre.log.ops import Ops
from nacre.log.past import LogPast
from nacre.log.place import Place
from nacre.log.tail import examine, state_of


class Reading(NamedTuple):
    """A log as it was found: its past, None if it holds no session; whether it ends in a deletion."""

    past: LogPast | None = None
    is_deleted: bool = False
    size: int = 0
    updated: str = ""


@contextmanager
def reading(ops: Ops, place: Place) -> Iterator[Reading]:
    """Open a log for as long as its past is read; a torn end, or a group still being written, is left out."""
    try:
        fd = open_log(ops, place.log, os.O_RDONLY)
    except FileNotFoundError:
        yield Reading()
        return
    try:
        yield _look(ops, fd, place)
    finally:
        ops.close(fd)


def _look(ops: Ops, fd: int, place: Place) -> Reading:
    size = ops.fstat(fd).st_size
    tail = examine(Lines(ops, fd, size), key=place.key)
    if tail.last is None or tail.last.t == "open":
        # A header alone is a creation that did not come to its end.
        return Reading(size=size)
    if tail.last.t == "del":
        return Reading(is_deleted=True, size=size)
    lines = Lines(ops, fd, tail.end if tail.torn else size)
    past = LogPast(lines, header=tail.header, n=tail.last.n, state=state_of(tail.last), ops=ops, place=place)
    lines.damaged = not tail.torn or not tail.header.uid
    return Reading(past=past, size=size, updated=tail.last.ts)
