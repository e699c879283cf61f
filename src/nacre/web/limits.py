"""What a server allows its clients: connections, bytes and seconds."""

from __future__ import annotations

from msgspec import Struct


class Limits(Struct, frozen=True, kw_only=True):
    """The limits of a server, and the pace of its streams; times are in seconds.

    A connection is closed whose client took less than `slowest_reader` bytes a second for `stall_timeout`. A body
    may take `body_timeout`, and longer only while it comes fast enough. A stream waits `first_event_timeout` for its
    first event, since what fails before it has a status of its own, and says that it lives each `heartbeat`.

    Of a body that was refused as too large, at most `discarded_bytes` are read and discarded, and in all for at most
    `discard_timeout`, before the connection is closed. The bytes are twice those of the largest body that is
    accepted: who sends more has not merely misjudged. The time is enough for a busy proxy to see the response, and
    less than a client has that sends nothing.
    """

    connections: int = 4096
    head_timeout: float = 10.0
    body_bytes: int = 16 * 1024 * 1024
    body_timeout: float = 30.0
    discarded_bytes: int = 32 * 1024 * 1024
    discard_timeout: float = 5.0
    stall_timeout: float = 60.0
    slowest_reader: int = 1000
    first_event_timeout: float = 10.0
    heartbeat: float = 15.0


DEFAULT = Limits()
