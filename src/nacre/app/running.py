"""A running agent: its parts made, joined, and closed in order."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, cast

import nacre
from nacre.agent.actor import Agent, Ask, Inbound
from nacre.agent.kernel import Kernel, ignored
from nacre.agent.ports import Emit, Guard, Notice, Provider, Tool
from nacre.app.children import Delegated
from nacre.app.closing import Closing
from nacre.app.furnishing import Furniture, furnish
from nacre.app.models import provider_for
from nacre.config import Settings
from nacre.entries import Describe, Message, ToolCall
from nacre.history.window import Window, window
from nacre.sessions import Sessions
from nacre.skills import Catalogue
from nacre.tools.approvals import Approvals, Policy, Rule


class App:
    """A running agent and its parts."""

    def __init__(self, settings: Settings, sessions: Sessions, provider: Provider) -> None:
        self.settings = settings
        self.sessions = sessions
        self.provider = provider
        self.most = settings.number("agent.max_history_messages")
        self.kernel = Kernel(sessions, self.agent_for)
        self.children = Delegated(sessions, self._deliver)
        self.furniture = Furniture({}, Catalogue(()), "", [])

    @property
    def model(self) -> str:
        """Which model answers, and through whom."""
        return f"{type(self.provider).__name__.lower()}/{self.provider.model}"

    @property
    def tokens(self) -> int:
        """How many tokens of a session the model is shown; half of what a small model can take at all."""
        configured = self.settings.number("agent.max_context_tokens")
        limit = getattr(self.provider, "context_size", None)
        return configured if limit is None else min(configured, limit // 2)

    @property
    def tools(self) -> Mapping[str, Tool]:
        return self.furniture.tools

    @property
    def skills(self) -> Catalogue:
        return self.furniture.skills

    @property
    def notes(self) -> list[str]:
        """What a person should be told at the start."""
        return self.furniture.notes

    async def use(self, model: str) -> None:
        """Let another model answer from the next turn on; raises ProviderError or ConfigError."""
        old, self.provider = self.provider, await provider_for(self.settings, model)
        await old.close()

    async def close(self) -> None:
        """Let go of the model."""
        await self.provider.close()

    async def models(self) -> list[str]:
        """The models that the provider has; only the one in use if it does not say."""
        listed = getattr(self.provider, "models", None)
        return list(await listed()) if listed is not None else [self.provider.model]

    def window(self, key: str) -> Window:
        """What the model would be shown of a session now."""
        now = self.sessions.snapshot(key, last=4 * self.most)
        return window(now.messages, summary=now.summary, tokens=self.tokens, most=self.most)

    def agent_for(self, key: str) -> Agent:
        """Who answers in a session."""
        tally = self.children.running.get(key)
        return Agent(
            provider=lambda: self.provider if tally is None else tally.of(self.provider),
            tools=self.tools,
            system=lambda: self.furniture.system,
            guard=self._guard,
            tokens=self.tokens,
            most=self.most,
            steps=self.settings.number("agent.max_steps") if tally is None else tally.task.steps,
        )

    async def _deliver(self, inbound: Inbound) -> Message | None:
        return await self.kernel.deliver(inbound)

    def _guard(self, key: str, ask: Ask | None) -> Guard:
        """Who decides about calls in a session; what a person allowed for good is remembered in its meta."""
        policy = Policy(tools=cast("Mapping[str, Rule]", self.settings.table("approvals")))
        approvals = Approvals(policy, ask=ask, remembered=self.sessions.get_meta(key).get("approvals") or ())

        async def decide(tool: Tool, call: ToolCall) -> str:
            before = approvals.remembered
            refusal = await approvals(tool, call)
            if approvals.remembered != before:
                await self.sessions.submit(key, [Describe({"approvals": list(approvals.remembered)})])
            return refusal

        return decide


@asynccontextmanager
async def running(
    settings: Settings,
    *,
    store: str | None = None,
    incognito: bool = False,
    model: str | None = None,
    emit: Emit = ignored,
) -> AsyncIterator[App]:
    """Put the parts together and run them; whatever happens, all are closed, the store last.

    Raises StoreError, ConfigError, and ProviderError if there is no model to talk to.
    """
    closing = Closing()
    try:
        sessions = nacre.open(":memory:" if incognito else store)
        closing.add("store", _later(sessions.close))
        app = App(settings, sessions, await provider_for(settings, model))
        closing.add("model", app.close)
        root = None if incognito else sessions.location
        app.furniture = await furnish(settings, sessions, app.children, closing, root=root)
        for note in app.notes:
            emit(Notice(note))
        async with app.kernel:
            yield app
    finally:
        await closing.close()


def _later(close: Callable[[], None]) -> Callable[[], Any]:
    async def closed() -> None:
        close()

    return closed
