"""How much of a session a model can be shown: what it was found to count, less what comes with every request."""

from __future__ import annotations

from collections.abc import Sequence

from nacre.agent.ports import Context, Emit, Provider, Reply, Spec
from nacre.history.tokens import Calibration, cost

_REPLY_SHARE = 8
_LEAST = 256


class Budget:
    """The room that models have; what a model reports of each request makes the estimate better."""

    def __init__(self, tokens: int) -> None:
        self._tokens = tokens
        self._learned: dict[str, Calibration] = {}

    def limit(self, provider: Provider) -> int:
        """The tokens that a request may take: what is configured, or what a small model can take at all."""
        size = getattr(provider, "context_size", None)
        return self._tokens if size is None else min(self._tokens, size)

    def room(self, provider: Provider, system: str, tools: Sequence[Spec]) -> int:
        """The estimated tokens that are left for messages, beside the prompt, the tools and the reply."""
        limit = self.limit(provider)
        calibration = self._learned.get(provider.model, Calibration())
        taken = cost(Context(system=system, messages=(), tools=tools), reply=limit // _REPLY_SHARE)
        return max(calibration.room(limit) - taken, _LEAST)

    def watched(self, provider: Provider) -> Provider:
        """The same provider, from which the budget learns."""
        return _Watched(provider, self)

    def learn(self, model: str, context: Context, reply: Reply) -> None:
        """Take in what a provider reports of a request."""
        if reply.usage is not None:
            before = self._learned.get(model, Calibration())
            self._learned[model] = before.learned(cost(context), reply.usage.prompt)


class _Watched:
    def __init__(self, inner: Provider, budget: Budget) -> None:
        self._inner = inner
        self._budget = budget

    @property
    def model(self) -> str:
        return self._inner.model

    async def complete(self, context: Context, *, emit: Emit) -> Reply:
        reply = await self._inner.complete(context, emit=emit)
        self._budget.learn(self.model, context, reply)
        return reply

    async def close(self) -> None:
        """It is the application's to close."""
