"""How long to wait before the next attempt at something that failed."""

from __future__ import annotations

import random
from collections.abc import Iterator

from msgspec import Struct


class Backoff(Struct, frozen=True, kw_only=True):
    """Seconds to wait before the next attempt: each time twice as long as before, and never longer than `longest`.

    A random part is left out, so that many clients do not come back at once.
    """

    first: float = 0.5
    longest: float = 60.0

    def waits(self) -> Iterator[float]:
        """The waits of one row of failures."""
        wait = min(self.first, self.longest)
        while True:
            yield wait * random.uniform(0.5, 1.0)  # noqa: S311 - it hides nothing
            wait = min(2 * wait, self.longest)


USUAL = Backoff()
