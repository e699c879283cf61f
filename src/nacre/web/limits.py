"""What a server allows its clients: connections, bytes and seconds."""

from __future__ import annotations

from msgspec import Struct


class Limits(Struct, frozen=True, kw_only=True):
    """The limits of a server, and the pace of its streams; times are in seconds.

    A connection is closed whose client took less than `slowest_reader` bytes a second for `stall_timeout`. A body
    may take `body_timeout`, and longer only while it comes fast enough. A stream waits `first_event_timeout` for its
    first event, since what fails before it has a status of its own, and says that it lives each `heartbeat`.
    """

    connections: int = 4096
    head_timeout: float = 10.0
    body_bytes: int = 16 * 1024 * 1024
    body_timeout: float = 30.0
    stall_timeout: float = 60.0
    slowest_reader: int = 1000
    first_event_timeout: float = 10.0
    heartbeat: float = 15.0


DEFAULT = Limits()
