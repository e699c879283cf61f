"""The channels of an agent: the daemon with their lease serves them; on a shared store others wait for it.

waiting → serving when the lease is free, or its holder has not renewed it; serving → waiting when it is lost.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack

import anyio
from anyio.to_thread import run_sync

from nacre import Lease
from nacre.errors import ConfigError, LeaseLost, SessionBusy, StoreError, describe_error
from nacre.runtime.counters import Traffic
from nacre.runtime.gateway.gateway import Gateway
from nacre.runtime.gateway.inbox import KEYS
from nacre.sessions import Sessions

logger = logging.getLogger(__name__)

PAUSE = 1.0
"""Seconds between two looks at the lease."""


class Term:
    """The time in which one gateway serves the channels: from the moment it took the lease until that is lost."""

    def __init__(self, lease: Lease, *, can_be_lost: bool) -> None:
        self.lease = lease if can_be_lost else None
        self.lost = anyio.Event()
        self._is_waiting = False

    def end(self) -> None:
        """Stop at once: another gateway has the channels."""
        self.lost.set()

    async def may_send(self) -> None:
        """Return when it is certain that no other gateway has the channels; never, if another has them."""
        while self.lease is not None:
            try:
                await run_sync(self.lease.check)
            except LeaseLost:
                self.end()
                await anyio.sleep_forever()
            except StoreError as error:
                # Whether another has them is not known without the database. One line for all who wait is enough.
                if not self._is_waiting:
                    logger.warning("answers have to wait for the store", extra={"error": describe_error(error)})
                self._is_waiting = True
                await anyio.sleep(PAUSE)
            else:
                if self._is_waiting:
                    logger.info("the store answers again")
                self._is_waiting = False
                return

    async def watch(self) -> None:
        """Notice that the lease is lost, also if nothing is to be sent or stored."""
        while self.lease is not None:
            await anyio.sleep(PAUSE)
            await self.may_send()


class ChannelService:
    """Serves the channels while it has their lease; on a store that is not shared there is one such daemon.

    `make` makes the gateway of a term, which is `gateway` until the term ends. `began` is called when it serves.
    """

    def __init__(
        self,
        sessions: Sessions,
        make: Callable[[Term, Traffic], AbstractAsyncContextManager[Gateway]],
        *,
        began: Callable[[], None] = lambda: None,
    ) -> None:
        self.traffic = Traffic()
        self.gateway: Gateway | None = None
        self._is_shared, self._make, self._began = sessions.is_shared, make, began
        self._lease = sessions.hold(KEYS[0])
        self._term, self._parts = Term(self._lease, can_be_lost=self._is_shared), AsyncExitStack()
        self._over = anyio.Event()
        self._has_said_so = False

    async def start(self) -> None:
        """Begin a term if the lease is free; raises SessionBusy if another daemon has it, and the store is not shared.

        Raises ConfigError for a channel that cannot be made.
        """
        try:
            await run_sync(self._lease.take)
        except SessionBusy as error:
            if not self._is_shared:
                raise
            self._tell_of_waiting(error)
        else:
            await self._begin_term()

    async def run(self, *, ready: Callable[[], None] = lambda: None) -> None:
        """Serve the channels whenever it has their lease, until it is to end; `ready` is called at the first start.

        Raises what keeps it from serving them at the start; later it waits, and tries again.
        """
        is_ready, trouble = False, ""

        def become_ready() -> None:
            nonlocal is_ready
            if not is_ready:
                is_ready = True
                ready()

        while not self._over.is_set():
            try:
                if self.gateway is not None or await self._take():
                    await self._serve(become_ready)
                    continue
                if trouble:
                    logger.info("the store answers again")
                trouble = ""
            except* (StoreError, ConfigError) as errors:
                if not (self._is_shared and is_ready):
                    raise
                reason = describe_error(errors.exceptions[0])
                # It is said again when it is something else, or when it had passed.
                if reason != trouble:
                    logger.warning("the channels could not be served; retrying", extra={"error": reason})
                trouble = reason
                await self._end_term()
            become_ready()
            with anyio.move_on_after(PAUSE):
                await self._over.wait()

    def end(self) -> None:
        """Accept no more messages, and start no more turns; what waits or arrives now is left for the next start."""
        self._over.set()
        if self.gateway is not None:
            self.gateway.end()

    async def close(self) -> None:
        """Let another daemon serve the channels; twice is harmless."""
        with anyio.CancelScope(shield=True):
            await self._end_term()

    @property
    def is_serving(self) -> bool:
        """Whether this daemon serves the channels; else another does, and this one waits."""
        return self.gateway is not None

    @property
    def channels(self) -> Mapping[str, bool]:
        """Every channel that is served here, and whether it is up."""
        return self.gateway.channels if self.gateway is not None else {}

    @property
    def open(self) -> int:
        """The number of messages that wait for their answer."""
        return self.gateway.open if self.gateway is not None else 0

    # ---- one term

    async def _take(self) -> bool:
        """Begin a term if the lease is free by now."""
        try:
            await run_sync(self._lease.take)
        except SessionBusy as error:
            self._tell_of_waiting(error)
            return False
        await self._begin_term()
        return True

    def _tell_of_waiting(self, error: SessionBusy) -> None:
        if not self._has_said_so:
            self._has_said_so = True
            logger.info("another daemon serves the channels; waiting", extra={"reason": describe_error(error)})

    async def _begin_term(self) -> None:
        self._term, self._has_said_so = Term(self._lease, can_be_lost=self._is_shared), False
        self.gateway = await self._parts.enter_async_context(self._make(self._term, self.traffic))

    async def _serve(self, ready: Callable[[], None]) -> None:
        """Serve the channels until it is to end, or the lease is lost."""
        gateway, term = self.gateway, self._term
        if gateway is None:
            return

        async def stop_when_lost(scope: anyio.CancelScope) -> None:
            await term.lost.wait()
            scope.cancel()

        def begin() -> None:
            if self._is_shared:
                logger.info("this daemon serves the channels")
            self._began()
            ready()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(term.watch)
            tasks.start_soon(stop_when_lost, tasks.cancel_scope)
            await gateway.run(ready=begin)
            tasks.cancel_scope.cancel()
        if term.lost.is_set():
            logger.warning("another daemon has taken the channels; nothing more is sent from here")
            await self._end_term()

    async def _end_term(self) -> None:
        self.gateway = None
        await self._parts.aclose()
        await run_sync(self._lease.close)
