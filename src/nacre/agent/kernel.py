"""The kernel: finds or starts a session's actor, and keeps one's failure from the others."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol

from nacre.agent.actor import Actor, Agent, TurnRequest, UserMessage
from nacre.agent.background import TaskOwner
from nacre.agent.live_session import KernelSessions
from nacre.agent.ports import Ask, Emit, Pace, ignore, no_wait
from nacre.errors import NacreError, Stopped
from nacre.history.replies import is_final
from nacre.messages import Message, Snapshot

logger = logging.getLogger(__name__)


class AnyKernel(AbstractAsyncContextManager[object], Protocol):
    """What runs the turns of sessions, in this process or in others: see `Kernel`."""

    async def deliver(self, message: UserMessage, *, emit: Emit = ignore, ask: Ask | None = None) -> Message | None:
        """Pass a message to its session and wait for the answer."""

    async def resume(self, key: str, *, emit: Emit = ignore, ask: Ask | None = None) -> Message | None:
        """Finish the turn that a crash cut short; None if there is none."""

    def stop(self, key: str) -> bool:
        """Stop the turn that runs in a session; False if none does."""

    def is_at_work(self, key: str) -> bool:
        """Tell whether a turn runs in a session, or waits to."""

    def ids_answered(self, key: str) -> list[str]:
        """The ids of the messages that the turn in a session answers so far."""

    def snapshot(self, key: str) -> Snapshot | None:
        """A session with its newest messages, without reading it; None if it is not known here as it is now."""

    def used_since(self, key: str, n: int) -> list[Any] | None:
        """What the `use` records of a session after record `n` say, without reading it; None if that is not known."""

    def __len__(self) -> int: ...


class Kernel(TaskOwner):
    """The actors of one process: started when a request comes, ended when they are idle.

    `agent_for` says who answers in a session; at most `max_actors` are kept for users who may write again.
    """

    def __init__(  # noqa: PLR0913 - each is a limit of its own, by name
        self,
        sessions: KernelSessions,
        agent_for: Callable[[str], Agent],
        *,
        idle: float = 300,
        max_actors: int = 1000,
        max_waiting: int = 64,
        pace: Pace = no_wait,
    ) -> None:
        self._sessions, self._agent_for, self._idle, self._pace = sessions, agent_for, idle, pace
        self._max_actors, self._max_waiting = max_actors, max_waiting
        self._actors: dict[str, Actor] = {}

    async def deliver(self, message: UserMessage, *, emit: Emit = ignore, ask: Ask | None = None) -> Message | None:
        """Pass a message to its session and wait for the answer; the turn continues if the caller is cancelled.

        None if it came in the middle of a turn: the caller who began that gets the answer to both. Raises Busy
        if too much is waiting, SessionBusy if another process is at a turn of the session, Stopped if
        somebody stopped it, and what the model or the store raised.
        """
        return await self._submit(message.key, TurnRequest(message, emit=emit, ask=ask))

    async def resume(self, key: str, *, emit: Emit = ignore, ask: Ask | None = None) -> Message | None:
        """Finish the turn that a crash cut short; None if there is none."""
        now = self.snapshot(key) or self._sessions.snapshot(key, last=1)
        if not now.messages or is_final(now.messages[-1]):
            return None
        return await self._submit(key, TurnRequest(None, emit=emit, ask=ask))

    def stop(self, key: str) -> bool:
        """Stop the turn that runs in a session; False if none does."""
        actor = self._actors.get(key)
        return actor is not None and actor.stop()

    def is_at_work(self, key: str) -> bool:
        """Tell whether a turn runs in a session, or waits to."""
        actor = self._actors.get(key)
        return actor is not None and actor.is_at_work

    def ids_answered(self, key: str) -> list[str]:
        """The ids of the messages that the turn in a session answers so far, in their order; empty if none runs."""
        actor = self._actors.get(key)
        return actor.answers if actor is not None else []

    def snapshot(self, key: str) -> Snapshot | None:
        """A session with its newest messages, without reading it; None if it is not known here as it is now.

        Messages that were committed here are as they were given: without the time at which they were stored.
        """
        actor = self._actors.get(key)
        return actor.snapshot() if actor is not None else None

    def used_since(self, key: str, n: int) -> list[Any] | None:
        """What the `use` records of a session after record `n` say, without reading it; None if that is not known."""
        actor = self._actors.get(key)
        return actor.used_since(n) if actor is not None else None

    def __len__(self) -> int:
        return len(self._actors)

    async def _submit(self, key: str, request: TurnRequest) -> Message | None:
        """Pass a request to the actor of a session, which is started if need be, and wait for the answer."""
        if self._tasks is None:
            raise NacreError("the kernel is not running")
        actor = self._actors.pop(key, None)
        if actor is None:
            actor = Actor(self._sessions, key, self._agent_for(key), pace=self._pace, max_waiting=self._max_waiting)
            if len(self._actors) >= self._max_actors:
                # The one that has had nothing to do for longest ends; its session is read again when it is needed.
                next((other for other in self._actors.values() if not other.is_at_work), actor).wake()
            self._tasks.start_soon(self._run_actor, key, actor, name=f"session {key}")
        self._actors[key] = actor
        actor.post(request)
        await request.done
        if request.error is not None:
            raise request.error
        return request.answer

    async def _run_actor(self, key: str, actor: Actor) -> None:
        """Run an actor to its end; whatever happens to it stays with it, and the next request starts another."""
        failure: BaseException = Stopped("the agent is shutting down")
        try:
            await actor.run(idle=self._idle)
        except Exception as error:
            # One session's bug: its callers get the error, all others go on.
            logger.exception("the actor of a session failed; it is restarted when needed", extra={"session": key})
            failure = error
        finally:
            if self._actors.get(key) is actor:
                del self._actors[key]
            actor.give_up(failure)
