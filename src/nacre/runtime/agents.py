"""Several agents in one process: each is started, stopped and restarted separately."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from itertools import combinations
from pathlib import Path
from types import TracebackType
from typing import Self

import anyio
from anyio.abc import TaskGroup, TaskStatus

from nacre.agent.kernel import AnyKernel
from nacre.backoff import Backoff
from nacre.config import MAIN, Settings
from nacre.errors import ConfigError, NacreError
from nacre.opening import is_url, local_root, store_of
from nacre.runtime.agent_parts import workspace_of
from nacre.runtime.app import App, Options
from nacre.runtime.assembly import Part, run_agent
from nacre.runtime.daemon import FOLDER, channels_of, serving
from nacre.runtime.gateway.service import ChannelService
from nacre.runtime.retention import Rules
from nacre.runtime.workers import WorkerKernel, WorkerSetup

logger = logging.getLogger(__name__)

_GRACE = 8.0
_TICK = 0.05
_BACKOFF = Backoff(first=1.0)


class Agents:
    """The agents of a configuration, each with its own store and channels.

    `apps` and `gateways` are always those that run now; `missing` are the agents that are to run and do not start, by
    their names. `settings` is the configuration that was applied last. `started` is called with each
    agent that has started. `store` is the main agent's, a folder in which the others' are or a database, and
    `model` is who answers for it.
    Turns have `grace` seconds to come to their end when an agent ends. With `workers` they run in processes of their
    own, as many for each agent.
    """

    def __init__(  # noqa: PLR0913 - each is a choice of its own, by name
        self,
        *,
        store: str | None = None,
        model: str | None = None,
        started: Callable[[App], None] = lambda _: None,
        workers: WorkerSetup | None = None,
        grace: float = _GRACE,
        backoff: Backoff = _BACKOFF,
    ) -> None:
        self.apps: dict[str, App] = {}
        self.gateways: list[ChannelService] = []
        self.missing: dict[str, anyio.CancelScope] = {}
        self.settings = Settings({}, {})
        self._root = local_root(store)
        self._store = store if store and is_url(store) else self._root
        self._model, self._started, self._grace, self._backoff = model, started, grace, backoff
        self._workers = workers
        self._units: dict[str, _Unit] = {}
        self._ran: dict[str, Settings] = {}
        self._tasks: TaskGroup | None = None
        self._changing = anyio.Lock()

    async def __aenter__(self) -> Self:
        self._tasks = await anyio.create_task_group().__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        tasks, self._tasks = self._tasks, None
        if tasks is None:
            return None
        tasks.cancel_scope.cancel()
        return await tasks.__aexit__(kind, error, trace)

    async def start(self, settings: Settings) -> None:
        """Start every agent; raises what keeps one from starting."""
        await self.check(settings)
        self.settings = settings
        for name in settings.agents:
            await self._start(name, settings)

    async def change(self, settings: Settings) -> list[str]:
        """Apply new settings; returns the names of the agents that were stopped or started.

        Raises ConfigError, and changes nothing, if the settings cannot be used. An agent that does not start
        with them goes on with those that it had; if it does not start with those either, both are tried until it does.
        """
        await self.check(settings)
        self.settings = settings
        async with self._changing, anyio.create_task_group() as tasks:
            names = {**self._units, **self.missing, **dict.fromkeys(settings.agents)}
            changed = []
            for name in names:
                unit = self._units.get(name)
                is_known = unit is not None and name in settings.agents
                if unit is not None and is_known and unit.settings.for_agent(name) == settings.for_agent(name):
                    continue
                changed.append(name)
                tasks.start_soon(self._renew, name, settings)
        return changed

    async def end(self) -> None:
        """End every agent; turns that run have a while to come to their end, and else are for the next start."""
        for trying in self.missing.values():
            trying.cancel()
        async with anyio.create_task_group() as tasks:
            for name in list(self._units):
                tasks.start_soon(self._end, name)

    async def check(self, settings: Settings) -> None:
        """Raise ConfigError if the agents, their channels or their retention cannot be as they are set up."""
        check_workspaces(settings, self._root)
        check_limits(settings)
        for name in settings.agents:
            async with AsyncExitStack() as stack:
                for channel in channels_of(settings.for_agent(name), Path(store_of(self._root, name)) / FOLDER):
                    stack.push_async_callback(channel.close)

    async def _renew(self, name: str, settings: Settings) -> None:
        if name in self.missing:
            self.missing.pop(name).cancel()
        if name in self._units:
            await self._end(name)
        before = self._ran.get(name)
        if name not in settings.agents:
            self.apps.pop(name, None)
            self._ran.pop(name, None)
            return
        wanted = [settings] if before is None else [settings, before]
        if not await self._starts(name, wanted) and self._tasks is not None:
            self.missing[name] = anyio.CancelScope()
            self._tasks.start_soon(self._insist, name, wanted, self.missing[name])

    async def _insist(self, name: str, wanted: Sequence[Settings], trying: anyio.CancelScope) -> None:
        """Try to start an agent until it runs, unless a change or the end comes before."""
        waits = self._backoff.waits()
        with trying:
            while name in self.missing:
                await anyio.sleep(next(waits))
                async with self._changing:
                    if await self._starts(name, wanted):
                        del self.missing[name]

    async def _starts(self, name: str, wanted: Sequence[Settings]) -> bool:
        """Start an agent with the first settings that it starts with; False if there are none."""
        for settings in wanted:
            try:
                await self._start(name, settings)
            except Exception:
                # Whatever it is, the other agents have nothing to do with it.
                logger.exception("an agent could not be started", extra={"agent": name})
            else:
                return True
        return False

    async def _start(self, name: str, settings: Settings) -> None:
        if self._tasks is None:
            raise NacreError("the agents are not running")
        options = Options(store=store_of(self._store, name), agent=name, model=self._model if name == MAIN else None)
        unit = _Unit(settings, options, self._workers)
        app, gateway = await self._tasks.start(unit.run, name=f"agent {name}")
        self._units[name], self.apps[name], self._ran[name] = unit, app, settings
        self.gateways.append(gateway)
        self._started(app)
        workers = {"workers": len(app.kernel.pids)} if isinstance(app.kernel, WorkerKernel) else {}
        logger.info("an agent started", extra={"agent": name, "model": app.model, **workers})

    async def _end(self, name: str) -> None:
        unit = self._units[name]
        await unit.end(grace=self._grace)
        self._units.pop(name, None)
        self.gateways[:] = [gateway for gateway in self.gateways if gateway is not unit.gateway]
        logger.info("an agent stopped", extra={"agent": name})


class _Unit:
    """One agent with its channels, from its start to its end."""

    def __init__(self, settings: Settings, options: Options, workers: WorkerSetup | None) -> None:
        self.settings = settings
        self.gateway: ChannelService | None = None
        self._options, self._workers = options, workers
        self._app: App | None = None
        self._scope = anyio.CancelScope()
        self._over = anyio.Event()

    async def run(self, *, task_status: TaskStatus[tuple[App, ChannelService]]) -> None:
        try:
            with self._scope:
                async with self._run_agent() as app, serving(app) as gateway:
                    self._app, self.gateway = app, gateway
                    await gateway.run(ready=lambda: task_status.started((app, gateway)))
                    # No turn may be running, also of those that came over HTTP.
                    while app.work.running or (isinstance(app.kernel, WorkerKernel) and app.kernel.running):  # noqa: ASYNC110 - it says by no event that it ends
                        await anyio.sleep(_TICK)
        finally:
            self._over.set()

    def _run_agent(self) -> AbstractAsyncContextManager[App]:
        settings, options, workers = self.settings, self._options, self._workers
        if workers is None:
            return run_agent(settings, options)

        def kernel(app: App) -> AnyKernel:
            # The documents that stand in for a store that cannot be used are for one process.
            return app.kernel if app.trouble else WorkerKernel(app, workers, settings=settings, options=options)

        return run_agent(settings, options, part=Part.FRONT, kernel=kernel)

    async def end(self, *, grace: float) -> None:
        """Accept no more messages; turns get some time to finish, then they are left for the next start to resume."""
        if self._app is not None and self.gateway is not None:
            self._app.is_ending = True
            self.gateway.end()
        with anyio.move_on_after(grace):
            await self._over.wait()
        self._scope.cancel()
        with anyio.CancelScope(shield=True):
            await self._over.wait()


def check_limits(settings: Settings) -> None:
    """Raise ConfigError if an agent could answer nobody, or its sessions are kept for no span of time."""
    for name in settings.agents:
        own = settings.for_agent(name)
        Rules.of(own)
        if own.number("agent.max_turns") < 1:
            raise ConfigError("agent.max_turns must be at least 1: with 0, no message from a channel is ever answered")


def check_workspaces(settings: Settings, root: str) -> None:
    """Raise ConfigError if one agent's files could be reached by another; `root` is the main one's local folder."""
    own = {name: settings.for_agent(name) for name in settings.agents}
    found = {name: workspace_of(own[name], store_of(root, name)).resolve() for name in own}
    # What is around a store may be somebody's workspace, since no tool sees a store.
    usual = {name for name in own if not own[name].text("agent.workspace")}
    for (one, its), (other, others) in combinations(found.items(), 2):
        is_below = its.is_relative_to(others) and one not in usual
        if is_below or (others.is_relative_to(its) and other not in usual):
            raise ConfigError(f"the agents {one!r} and {other!r} would share the workspace {its}; give each its own")
