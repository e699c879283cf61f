"""How long to wait before something is tried again."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct


class Backoff(Struct, frozen=True, kw_only=True):
    """Seconds to wait before the next attempt: each time twice as long as before, and never longer than `longest`."""

    first: float = 0.5
    longest: float = 60.0

    def waits(self) -> Iterator[float]:
        wait = self.first
        while True:
            yield wait
            wait = min(2 * wait, self.longest)


USUAL = Backoff()
