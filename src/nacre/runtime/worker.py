"""A worker of the daemon: a process that runs an agent's turns, and is asked for them over a socket."""

from __future__ import annotations

import asyncio
import ctypes
import logging
import os
import signal
import socket
import sys
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, ExitStack, suppress
from itertools import count
from typing import cast

import anyio
import msgspec
from msgspec import Raw

from nacre.agent.kernel import Kernel
from nacre.agent.ports import Answer, Approval, Ask, Emit, Event, Text, ignore, no_wait
from nacre.config import Settings
from nacre.errors import InvalidMessage, NacreError, Refused, Stopped
from nacre.runtime.app import App, Options
from nacre.runtime.assembly import Part, run_agent
from nacre.runtime.daemon_log import Form, logged
from nacre.runtime.worker_frames import (
    Call,
    Cancel,
    Connection,
    Decided,
    Deliver,
    Done,
    End,
    Failed,
    Happened,
    NotStarted,
    Ping,
    Pong,
    Ready,
    Resume,
    Sent,
    Start,
    Stop,
    StoreCounts,
    ToWorker,
    Withdrawn,
    encode,
    encode_error,
    encode_question,
    to_worker,
)

logger = logging.getLogger(__name__)

Handler = Callable[[App, Raw, Emit], Awaitable[object]]
"""Do what a layer above asks for in a session; returns what can be sent."""
RunAgent = Callable[[Settings, Options, int], AbstractAsyncContextManager[App]]
"""Run the agent of a worker, given the worker's number."""

_PR_SET_PDEATHSIG = 1
_TICK = 0.01
_NOT_WAITED_FOR = "nobody waits for the request any more"


def main(handlers: Mapping[str, Handler], run: RunAgent | None = None) -> None:
    """Run a worker until the daemon ends it; the number of its socket is the last word of the command line."""
    if sys.platform == "linux":
        # It ends with the daemon, also where it does not read its socket just then.
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    with socket.socket(fileno=int(sys.argv[-1])) as wire:
        # A program that a tool starts must not keep it open when this process is gone.
        wire.set_inheritable(False)
        anyio.run(_work, wire, handlers, run or _run_agent)


def _run_agent(settings: Settings, options: Options, number: int) -> AbstractAsyncContextManager[App]:
    # What is done for the whole store is done by one process.
    part = Part.FIRST_WORKER if number == 0 else Part.WORKER
    return run_agent(settings, options, part=part, kernel=make_kernel)


def make_kernel(app: App) -> Kernel:
    """The kernel of a worker: messages arrive elsewhere, so that no step of a turn has to wait for one."""
    return Kernel(app.sessions, app.agent_for, pace=no_wait)


async def _work(wire: socket.socket, handlers: Mapping[str, Handler], run: RunAgent) -> None:
    server = _Server(handlers)
    connect = asyncio.get_running_loop().create_unix_connection
    _, connection = await connect(
        lambda: Connection(to_worker, receive=server.receive, refuse=server.refuse, lost=server.leave), sock=wire
    )
    server.connection = connection
    start = await server.started
    settings = Settings(start.tables, start.environ)
    options = msgspec.convert(start.options, Options)
    with ExitStack() as stack:
        if start.log_form:
            form = cast("Form", start.log_form)
            about = {"worker": start.number}
            stack.enter_context(
                logged(sys.stderr, form=form, level=start.log_level, secrets=start.secrets, about=about)
            )
        try:
            async with run(settings, options, start.number) as app:
                if app.trouble:
                    # The documents that stand in for a store are for one process.
                    raise Refused(app.trouble)  # noqa: TRY301 - as whatever else keeps it from starting
                await server.serve(app)
        except Exception as error:
            # Whatever keeps it from starting, or went wrong while it ended.
            logger.exception("a worker failed")
            connection.send(NotStarted(encode_error(error)))
        connection.close()


class _Server:
    """Answers the frames of the daemon."""

    def __init__(self, handlers: Mapping[str, Handler]) -> None:
        self.connection: Connection[ToWorker] | None = None
        self.started: asyncio.Future[Start] = asyncio.get_running_loop().create_future()
        self._handlers = handlers
        self._app: App | None = None
        self._over = asyncio.Event()
        self._requests: dict[int, asyncio.Task[None]] = {}
        self._questions: dict[int, asyncio.Future[Answer]] = {}
        self._numbers = count()

    async def serve(self, app: App) -> None:
        """Answer until it is to end."""
        self._app = app
        self._send(Ready())
        await self._over.wait()
        for task in self._requests.values():
            task.cancel()

    def leave(self, _: str) -> None:
        """The daemon is gone: the next one must find nothing running."""
        if not self._over.is_set():
            os._exit(1)

    def refuse(self, id: int, reason: str) -> None:
        """A request that is not as it should be fails by itself."""
        error = InvalidMessage(f"a message cannot be passed to its worker: {reason}")
        self._send(Failed(id, encode_error(error)))

    def receive(self, frame: ToWorker) -> None:
        match frame:
            case Start():
                self.started.set_result(frame)
            case Deliver() | Resume() | Call():
                task = asyncio.get_running_loop().create_task(self._answer(frame))
                self._requests[frame.id] = task
            case Cancel(id):
                # Not before it has begun: then it could not say that it is over.
                asyncio.get_running_loop().call_soon(self._cancel, id)
            case Stop(key):
                if self._app is not None:
                    self._app.kernel.stop(key)
            case Decided(question, answer):
                if (waiting := self._questions.get(question)) is not None and not waiting.done():
                    waiting.set_result(answer)
            case Ping(has_news):
                if self._app is not None:
                    self._report(self._app, has_news=has_news)
            case End():
                self._over.set()

    def _cancel(self, id: int) -> None:
        task = self._requests.get(id)
        if task is None:
            # It was over, but how could not be read.
            self._send(Failed(id, encode_error(Stopped(_NOT_WAITED_FOR))))
        elif not task.cancelling():
            task.cancel()

    def _report(self, app: App, *, has_news: bool) -> None:
        if has_news:
            app.hear_of_turns()
        store = StoreCounts.of(app.sessions.load())
        self._send(Pong(app.work.counts(), store, len(app.kernel), list(app.children.running)))

    async def _answer(self, request: Deliver | Resume | Call) -> None:
        emit, flush = self._emitter(request.id) if request.is_watched else (ignore, lambda: None)
        try:
            value = await self._run(request, emit)
            ids = self._ids(request) if value is None else []
            flush()
            self._send(Done(request.id, Raw(encode(value)), ids))
        except asyncio.CancelledError:
            await self._wait_for_turn(request)
            self._send(Failed(request.id, encode_error(Stopped(_NOT_WAITED_FOR))))
        except Exception as error:
            # It is data from here on; what nobody expected is logged where it happened.
            if not isinstance(error, NacreError):
                logger.exception("a request failed in a worker")
            flush()
            self._send(Failed(request.id, encode_error(error)))
        finally:
            del self._requests[request.id]

    async def _run(self, request: Deliver | Resume | Call, emit: Emit) -> object:
        app = self._app
        if app is None:
            raise NacreError("the worker is not running")
        if isinstance(request, Call):
            return await self._handlers[request.name](app, request.data, emit)
        ask = self._asker(request.id) if request.can_ask else None
        if isinstance(request, Deliver):
            return await app.kernel.deliver(request.message, emit=emit, ask=ask)
        return await app.kernel.resume(request.key, emit=emit, ask=ask)

    async def _wait_for_turn(self, request: Deliver | Resume | Call) -> None:
        """Wait for the end of the turn that a request began, which goes on without it, unless the worker ends."""
        key = request.message.key if isinstance(request, Deliver) else request.key
        while not self._over.is_set() and self._app is not None and self._app.kernel.is_at_work(key):  # noqa: ASYNC110 - it says by no event that it ends
            await anyio.sleep(_TICK)

    def _ids(self, request: Deliver | Resume | Call) -> list[str]:
        return self._app.kernel.ids_answered(request.message.key) if self._app and isinstance(request, Deliver) else []

    def _emitter(self, id: int) -> tuple[Emit, Callable[[], None]]:
        """What sends events, those of one round of the event loop together; and what sends them now."""
        waiting: list[Event] = []
        loop = asyncio.get_running_loop()

        def flush() -> None:
            events = waiting.copy()
            waiting.clear()
            # What cannot be sent is left out, as any event may be.
            with suppress(InvalidMessage):
                if events:
                    self._send(Happened(id, events))

        def emit(event: Event) -> None:
            if not waiting:
                loop.call_soon(flush)
            elif isinstance(event, Text) and isinstance(before := waiting[-1], Text):
                event = Text(before.text + event.text)
                waiting.pop()
            waiting.append(event)

        return emit, flush

    def _asker(self, id: int) -> Ask:
        async def ask(approval: Approval) -> Answer:
            number = next(self._numbers)
            waiting: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
            self._questions[number] = waiting
            try:
                self._send(encode_question(approval, question=number, id=id))
                return await waiting
            except asyncio.CancelledError:
                self._send(Withdrawn(number))
                raise
            finally:
                del self._questions[number]

        return ask

    def _send(self, frame: Sent) -> None:
        if self.connection is not None:
            self.connection.send(frame)
