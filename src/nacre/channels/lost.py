"""When a server is away: what that is called, and how long to wait before the next attempt."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

import anyio
from msgspec import Struct

from nacre.backoff import Backoff
from nacre.errors import ChannelError

_REMEMBERED = 1000


class Lost(Exception):
    """The server cannot be reached, or hung up, or makes no sense; a later attempt may succeed.

    What the server `said` of it may repeat what it was told: no log has it.
    """

    def __init__(self, message: str, *, said: str = "") -> None:
        super().__init__(f"{message} ({said})" if said else message)
        self.summary = message


class Unsent(Lost):
    """The same, and it is certain that the server has seen nothing of the request."""


class Gone(ChannelError):
    """The recipient does not exist, and a retry would not help."""


class Later(ChannelError):
    """Nothing was sent, for a reason that concerns this recipient alone: try again, at least `wait` seconds later."""

    def __init__(self, message: str, *, wait: float = 0.0) -> None:
        super().__init__(message)
        self.wait = wait


class Absent(Later):
    """The recipient is not there now, and may come back."""


class Doubtful(ChannelError):
    """It is not known whether the message was sent."""


class Doubts:
    """The ids of answers that may have been sent, so that whoever sends them again can say so; the last of them."""

    def __init__(self) -> None:
        self._ids: dict[str, None] = {}

    def __contains__(self, id: str) -> bool:
        return id in self._ids

    @contextmanager
    def about(self, id: str) -> Iterator[None]:
        """Note whether what is sent under an id meanwhile is in doubt; it is not if it was sent, or cannot be."""
        try:
            yield
        except Doubtful:
            self._ids[id] = None
            if len(self._ids) > _REMEMBERED:
                del self._ids[next(iter(self._ids))]
            raise
        except Gone:
            self._ids.pop(id, None)
            raise
        self._ids.pop(id, None)


class Patience(Struct, frozen=True, kw_only=True):
    """How long to wait, in seconds: after the first failure, at most, and with words for a server that is away."""

    first: float = 1.0
    most: float = 300.0
    outage: float = 60.0
    sleep: Callable[[float], Awaitable[None]] = anyio.sleep


class Attempts:
    """Waits between attempts, which begin anew when one succeeds."""

    def __init__(self, patience: Patience) -> None:
        self._patience = patience
        self.succeeded()

    def succeeded(self) -> None:
        self._waits = Backoff(first=self._patience.first, longest=self._patience.most).waits()

    async def wait(self) -> None:
        await self._patience.sleep(next(self._waits))
