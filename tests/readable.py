"""Waiting for a file descriptor of any number: `select` takes none from 1024 on, and a test may have many open."""

from __future__ import annotations

import select


def is_readable(fd: int, seconds: float) -> bool:
    """Tell whether there is something to read, or the end, within a time."""
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    return bool(poll.poll(max(seconds, 0) * 1000))
