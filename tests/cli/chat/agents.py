"""A small agent with a scripted model, for the terminal to talk to."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any, cast

import anyio

import nacre
from nacre import runtime
from nacre.agent.actor import Agent
from nacre.agent.kernel import Kernel
from nacre.agent.model_request import ContextUsage, ModelRequest, measure
from nacre.agent.ports import Ask, Context, Effect, Guard, Output, Provider, Scene, Spec, Tool
from nacre.history.window import window
from nacre.render.usage import Prices
from nacre.runtime.file_copies import FileHistory
from nacre.runtime.summarizer import Compactor
from nacre.skills import Catalogue
from nacre.tools.approvals import Approvals, Policy
from nacre.tools.mcp.client_types import Prompt


class Echo:
    """A tool that says what it was told; `wait` lets it run until it is stopped."""

    def __init__(self, name: str, effect: Effect) -> None:
        self.effect: Effect = effect
        self.spec = Spec(name=name, description=f"{name} for tests", parameters={"type": "object", "properties": {}})
        self.started = 0

    async def run(self, arguments: Mapping[str, Any], scene: Scene) -> Output:
        self.started += 1
        if "touch" in arguments:
            await anyio.Path(arguments["touch"]).touch()
        if arguments.get("wait"):
            await anyio.sleep_forever()
        return Output(text=str(arguments.get("says", f"ran {arguments.get('command', '')}")))


class App:
    """What `nacre.runtime` gives, made of real parts around a given model."""

    def __init__(self, sessions: nacre.Sessions, provider: Provider, *, system: str = "") -> None:
        self.sessions = sessions
        self.provider = provider
        self.model = f"test/{provider.model}"
        self.tools: Mapping[str, Tool] = {t.spec.name: t for t in (Echo("look", "read"), Echo("shell", "run"))}
        self.skills = Catalogue([])
        self.prompts: Mapping[str, Prompt] = {}
        self.notes: list[str] = []
        self.prices = Prices({})
        self.folder = None
        self.trouble = ""
        self.tokens, self.most = 32_000, 50
        self._guards: dict[str, Approvals] = {}
        agent = Agent(provider=lambda: provider, tools=self.tools, guard=self._guard, system=lambda: system)
        self.kernel = Kernel(sessions, lambda _: agent)
        self.compactor = Compactor(sessions, lambda _: self.provider)
        self.file_history = FileHistory(sessions, lambda key: key)
        self.learner = None

    def _guard(self, key: str, ask: Ask | None) -> Guard:
        before = self._guards.get(key)
        remembered: Iterable[str] = before.remembered if before is not None else ()
        self._guards[key] = Approvals(Policy(), ask=ask, remembered=remembered)
        return self._guards[key]

    async def use(self, model: str) -> str:
        self.model = model
        return ""

    async def check_model(self) -> None:
        """The model of a test can always answer."""

    def remote_question(self, key: str) -> str:
        return ""

    def other_model_before(self, key: str) -> str:
        return ""

    def allow_remote(self, key: str) -> None:
        """Every model of a test is local."""

    async def models(self) -> list[str]:
        return ["test/one", "test/two"]

    async def improve_title(self, key: str, plain: str = "") -> bool:
        return False

    def filling(self, key: str) -> ContextUsage:
        now = self.sessions.snapshot(key, last=self.most)
        shown = window(now.messages, summary=now.summary, tokens=self.tokens, limit=self.most)
        context = Context(messages=shown.messages, tools=[tool.spec for tool in self.tools.values()])
        request = ModelRequest(context=context, left_out=shown.left_out)
        return measure(request, now, skills="", limit=self.tokens, reply=4000)

    def cost(self, use: Any) -> float | None:
        return self.prices.cost(use)


def running(root: Path | str, provider: Provider, *, system: str = "") -> AbstractAsyncContextManager[runtime.App]:
    """The agent on a store, until it is left."""

    @asynccontextmanager
    async def run() -> AsyncIterator[runtime.App]:
        with nacre.open(root) as sessions:
            app = App(sessions, provider, system=system)
            async with app.kernel:
                yield cast("runtime.App", app)

    return run()
