"""Counters of a running agent since its start."""

from __future__ import annotations

import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from typing import Literal

from msgspec import Struct

from nacre.agent.ports import Context, Emit, Provider, Reply
from nacre.errors import NacreError

SHORT = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0)
"""Seconds that a write may take."""
LONG = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
"""Seconds that a turn may take."""

Refusal = Literal["stranger", "rate", "loop", "full"]


class Spread:
    """How often a value was at most each bound, how often beyond the last, and the sum of all."""

    __slots__ = ("bounds", "counts", "sum")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def add(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.sum += value


class Traffic:
    """Counters of messages from channels and their outcomes; each by the channel's name."""

    def __init__(self) -> None:
        self.accepted: Counter[str] = Counter()
        self.answered: Counter[str] = Counter()
        self.failed: Counter[str] = Counter()
        self.refused: Counter[tuple[str, Refusal]] = Counter()
        self.durable = Spread(SHORT)


class WorkCounts(Struct, array_like=True):
    """What an agent did, to be sent and added up; the pairs in `errors` are a model and the name of an error."""

    running: int = 0
    turns: list[int] = []
    seconds: float = 0.0
    requests: dict[str, int] = {}
    errors: list[tuple[str, str, int]] = []
    tokens_in: dict[str, int] = {}
    tokens_out: dict[str, int] = {}


class Work:
    """What an agent did: turns, requests to models, and tokens; the last two by the model's name."""

    def __init__(self) -> None:
        self.turns = Spread(LONG)
        self.requests: Counter[str] = Counter()
        self.errors: Counter[tuple[str, str]] = Counter()
        self.tokens_in: Counter[str] = Counter()
        self.tokens_out: Counter[str] = Counter()
        self._begun: dict[str, float] = {}

    @property
    def running(self) -> int:
        """How many sessions have a turn under way."""
        return len(self._begun)

    def begin(self, key: str) -> None:
        """A turn begins in a session."""
        self._begun[key] = time.monotonic()

    def end(self, key: str) -> None:
        """Count the end of a turn; does nothing if none was started."""
        begun = self._begun.pop(key, None)
        if begun is not None:
            self.turns.add(time.monotonic() - begun)

    def counts(self) -> WorkCounts:
        """What was counted so far."""
        return WorkCounts(
            running=self.running,
            turns=self.turns.counts,
            seconds=self.turns.sum,
            requests=self.requests,
            errors=[(model, error, count) for (model, error), count in self.errors.items()],
            tokens_in=self.tokens_in,
            tokens_out=self.tokens_out,
        )

    def add(self, counts: WorkCounts) -> None:
        """Add what another process counted, except for what runs there."""
        for at, count in enumerate(counts.turns):
            self.turns.counts[at] += count
        self.turns.sum += counts.seconds
        self.requests.update(counts.requests)
        self.errors.update({(model, error): count for model, error, count in counts.errors})
        self.tokens_in.update(counts.tokens_in)
        self.tokens_out.update(counts.tokens_out)

    def of(self, inner: Provider, key: str) -> Provider:
        """The same provider, counted; for a turn in a session, if there is one."""
        return _Counted(inner, self, key)


class ProviderWrapper:
    """Asks the provider inside, which is the application's to close."""

    def __init__(self, inner: Provider) -> None:
        self._inner = inner

    @property
    def model(self) -> str:
        return self._inner.model

    async def complete(self, context: Context, *, emit: Emit) -> Reply:
        return await self._inner.complete(context, emit=emit)

    async def close(self) -> None:
        """Close nothing."""


class _Counted(ProviderWrapper):
    def __init__(self, inner: Provider, work: Work, key: str) -> None:
        super().__init__(inner)
        self._work, self._key = work, key

    async def complete(self, context: Context, *, emit: Emit) -> Reply:
        work, model = self._work, self.model
        work.requests[model] += 1
        try:
            reply = await super().complete(context, emit=emit)
        except Exception as error:
            work.errors[model, type(error).__name__] += 1
            if not isinstance(error, NacreError):
                # Somebody's bug: it ends the actor, and nobody learns that the turn is over.
                work.end(self._key)
            raise
        if reply.usage is not None:
            work.tokens_in[model] += reply.usage.prompt
            work.tokens_out[model] += reply.usage.completion
        return reply
