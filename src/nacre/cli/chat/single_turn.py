"""One turn for `nacre chat PROMPT`: runs it to its answer, or until a signal ends it."""

from __future__ import annotations

import signal
from collections.abc import Awaitable, Callable

import anyio
from anyio.abc import TaskGroup
from msgspec import Struct

from nacre.agent.actor import UserMessage
from nacre.agent.kernel import Kernel
from nacre.agent.ports import Ask, Emit
from nacre.cli.chat.chat_ports import Compactor, Learner
from nacre.cli.chat.ticker import Ticker
from nacre.entries import Message
from nacre.errors import Stopped

_AGAIN = 0.03
_SUMMARY_SECONDS = 60.0
_LEARNING_SECONDS, _EARLIER_SECONDS = 3.0, 60.0


async def finish_summary(compactor: Compactor, key: str, *, ticker: Ticker) -> int:
    """Wait for the summary that is due after a turn, for a limited time; returns the signal that ended it, else 0.

    Nothing is lost if it does not get done: it is due after the next turn as well.
    """

    async def finish() -> None:
        with anyio.move_on_after(_SUMMARY_SECONDS):
            await compactor.finish(key)

    return await _wait_for(finish, ticker=ticker)


async def finish_learning(learner: Learner, *, ticker: Ticker) -> int:
    """Let memory learn for a limited time; returns the signal that ended it, else 0.

    Nothing is lost if it does not get done: the next process learns it. That one waits longer for what this one left,
    so that commands in a row learn from every turn, one by one, however slow the model is.
    """

    async def finish() -> None:
        with anyio.move_on_after(_LEARNING_SECONDS):
            await learner.rest()
        with anyio.move_on_after(_EARLIER_SECONDS):
            await learner.learn_earlier()

    return await _wait_for(finish, ticker=ticker)


async def _wait_for(work: Callable[[], Awaitable[None]], *, ticker: Ticker) -> int:
    """Wait for work that is done after a turn; returns the signal that ended it, else 0."""
    caught = 0
    async with anyio.create_task_group() as tasks:

        async def end_at_signal() -> None:
            nonlocal caught
            with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM, signal.SIGHUP) as signals:
                async for number in signals:
                    caught = int(number)
                    tasks.cancel_scope.cancel()

        tasks.start_soon(end_at_signal)
        tasks.start_soon(ticker.run)
        await work()
        tasks.cancel_scope.cancel()
    ticker.clear()
    return caught


class Outcome(Struct, frozen=True, kw_only=True):
    """The answer, or the signal that came before it."""

    answer: Message | None = None
    signal: int = 0


class Once:
    """A turn that ends with its answer or is stopped by SIGINT; other signals leave it unfinished in the log."""

    def __init__(self, kernel: Kernel, inbound: UserMessage, *, emit: Emit, ask: Ask | None, ticker: Ticker) -> None:
        self._kernel = kernel
        self._inbound = inbound
        self._emit = emit
        self._ask = ask
        self._ticker = ticker
        self._signal = 0

    async def run(self) -> Outcome:
        """Wait for the answer; raises what `Kernel.deliver` raises, but for Stopped, in a group."""
        answer: Message | None = None
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._signals, tasks)
                tasks.start_soon(self._ticker.run)
                try:
                    answer = await self._kernel.deliver(self._inbound, emit=self._emit, ask=self._ask)
                except Stopped:
                    self._signal = self._signal or int(signal.SIGINT)
                tasks.cancel_scope.cancel()
        finally:
            self._ticker.clear()
        return Outcome(answer=answer, signal=self._signal)

    async def _signals(self, tasks: TaskGroup) -> None:
        with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM, signal.SIGHUP) as signals:
            async for number in signals:
                if self._signal or number != signal.SIGINT:
                    # Nobody stopped the turn: it is finished when the session is resumed.
                    self._signal = self._signal or int(number)
                    tasks.cancel_scope.cancel()
                else:
                    self._signal = int(number)
                    tasks.start_soon(self._stop_turn)

    def stop(self, number: signal.Signals) -> None:
        """Stop the turn that runs as if this signal had come; what the model said so far is kept."""
        self._signal = self._signal or int(number)
        self._kernel.stop(self._inbound.key)

    async def _stop_turn(self) -> None:
        """Stop the turn, also one that is only about to begin."""
        while not self._kernel.stop(self._inbound.key):  # noqa: ASYNC110 - it says by no event that it begins
            await anyio.sleep(_AGAIN)
