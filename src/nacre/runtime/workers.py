"""The workers of a daemon: processes that run an agent's turns, started, asked, watched and replaced."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import count
from typing import Any, Literal, Self, TypeVar
from zlib import crc32

import anyio
import anyio.to_thread
import msgspec
from anyio.abc import TaskGroup
from msgspec import Raw, Struct
from msgspec.structs import astuple, replace

from nacre.agent.actor import UserMessage
from nacre.agent.ports import Answer, Ask, Emit, Event, ignore
from nacre.backoff import Backoff
from nacre.checks import check_key, is_unicode, show
from nacre.codec import encode_message
from nacre.config import Settings
from nacre.errors import InvalidMessage, NacreError, SessionBusy, Stopped, describe_error
from nacre.messages import Load, Message, Snapshot
from nacre.runtime.app import App, Options
from nacre.runtime.counters import Work, WorkCounts
from nacre.runtime.session_owner import outermost
from nacre.runtime.worker_frames import (
    Call,
    Cancel,
    Connection,
    Decided,
    Deliver,
    Done,
    End,
    Failed,
    FromWorker,
    Happened,
    NotStarted,
    Ping,
    Pong,
    Question,
    Ready,
    Resume,
    Sent,
    Start,
    Stop,
    StoreCounts,
    Withdrawn,
    WorkerFault,
    decode_error,
    decode_question,
    encode,
    from_worker,
)

logger = logging.getLogger(__name__)

T = TypeVar("T")
_MAX_LOSSES = 5
"""How many workers may end while they are at one message; it is not given to a further one."""
_MAX_STARTS = 3
"""How many processes may end before the first one is ready, without saying why."""
_TICK = 0.01
_ENDING = "the agent is shutting down"
_LOST = "the process that was answering has ended; send the request again"
_MIN_LIFETIME = 60.0
"""Seconds after which a worker that ends is no failed start."""
_messages: msgspec.msgpack.Decoder[Message | None] = msgspec.msgpack.Decoder(Message | None)


class WorkerLost(NacreError):
    """The process that ran the turn has ended; what was stored is kept, and the request can be sent again."""


class _NotReady(NacreError):
    """A worker took too long to start; the next one would, too."""


class Pace(Struct, frozen=True, kw_only=True):
    """How workers are watched, in seconds.

    Every `beat` a worker is asked whether it lives; after `missed` questions without an answer it is killed, and after
    `dying` more it is replaced even if it is still there, and `taking_over` is how long taking over its turns may take.
    One that was asked to end has `ending`.
    """

    beat: float = 1.0
    missed: int = 10
    dying: float = 2.0
    taking_over: float = 2.0
    ending: float = 1.0
    starting: float = 120.0
    backoff: Backoff = Backoff(first=0.1, longest=30.0)


class WorkerSetup(Struct, frozen=True, kw_only=True):
    """How many workers an agent has, and what starts one; `log_form` is "" where they log nothing themselves."""

    count: int
    module: str
    log_form: Literal["", "json", "text"] = ""
    log_level: str = "info"
    secrets: Sequence[str] = ()
    pace: Pace = Pace()
    kill: Callable[[int], None] = lambda pid: os.kill(pid, signal.SIGKILL)


class WorkerKernel:
    """The kernel of an agent whose turns run in workers; each session has its worker, by its key."""

    def __init__(self, app: App, setup: WorkerSetup, *, settings: Settings, options: Options) -> None:
        self._app, self._setup = app, setup
        tables, environ, given = dict(settings.tables), dict(settings.environ), msgspec.to_builtins(options)
        self._workers = [
            _Worker(
                setup,
                Start(number, tables, environ, given, setup.log_form, setup.log_level, list(setup.secrets)),
                take_over=self._take_over,
            )
            for number in range(setup.count)
        ]
        self._at_work: Counter[str] = Counter()
        self._stops: Counter[str] = Counter()
        self._answered: dict[str, list[str]] = {}
        self._has_news = False
        self._tasks: TaskGroup | None = None

    async def __aenter__(self) -> Self:
        tasks = self._tasks = await anyio.create_task_group().__aenter__()
        refusals: list[Exception] = []

        async def start(worker: _Worker) -> None:
            try:
                await tasks.start(worker.run)
            except Exception as error:  # noqa: BLE001 - it is raised again below, and not as one of a group
                refusals.append(error)

        try:
            async with anyio.create_task_group() as starting:
                for worker in self._workers:
                    starting.start_soon(start, worker)
            if refusals:
                raise refusals[0]  # noqa: TRY301 - the others are ended, as after any other failure
        except BaseException:
            await self.__aexit__()
            raise
        tasks.start_soon(self._watch)
        return self

    async def __aexit__(self, *_: object) -> None:
        tasks, self._tasks = self._tasks, None
        if tasks is None:
            return
        with anyio.CancelScope(shield=True):
            async with anyio.create_task_group() as ending:
                for worker in self._workers:
                    ending.start_soon(worker.end)
        tasks.cancel_scope.cancel()
        await tasks.__aexit__(None, None, None)

    # ---- what a kernel does

    async def deliver(self, message: UserMessage, *, emit: Emit = ignore, ask: Ask | None = None) -> Message | None:
        """Pass a message to its session's worker and wait for the answer, as `Kernel.deliver` does.

        If the worker ends, a message with an id goes to the next one, unless something of its answer was emitted.
        Raises WorkerLost where that cannot be.
        """
        _check(message)
        attempts = [message]

        def frame(id: int) -> Deliver:
            sent = attempts[0]
            # From the second time on it may be stored and answered: that is found out before the model is asked.
            attempts[0] = replace(sent, is_kept=False)
            return Deliver(id, sent, emit is not ignore, ask is not None)

        key = message.key
        done = await self._request(key, frame, emit=emit, ask=ask, is_repeatable=bool(message.id))
        found = _messages.decode(done.value)
        if found is None and key in self._at_work:
            self._answered[key] = done.ids
        return found

    async def resume(self, key: str, *, emit: Emit = ignore, ask: Ask | None = None) -> Message | None:
        """Finish the turn that a crash cut short; None if there is none."""

        def frame(id: int) -> Resume:
            return Resume(id, key, emit is not ignore, ask is not None)

        return _messages.decode((await self._request(key, frame, emit=emit, ask=ask, is_repeatable=False)).value)

    async def call(  # noqa: PLR0913 - what is asked, where, and who hears of it
        self, name: str, data: object, result: type[T], *, key: str, emit: Emit = ignore, is_repeatable: bool
    ) -> T:
        """Have a handler of the worker of a session do something; raises as `deliver` does."""
        raw = Raw(encode(data))

        def frame(id: int) -> Call:
            return Call(id, key, name, raw, emit is not ignore)

        done = await self._request(key, frame, emit=emit, ask=None, is_repeatable=is_repeatable)
        return msgspec.msgpack.decode(done.value, type=result)

    def stop(self, key: str) -> bool:
        """Stop the turn that runs in a session; False if none does."""
        if not self.is_at_work(key):
            return False
        if key in self._at_work:
            # If its worker is lost before it hears of it, the request is not sent again.
            self._stops[key] += 1
        self._worker_of(key).send(Stop(key))
        return True

    def is_at_work(self, key: str) -> bool:
        """Tell whether a turn runs in a session, or waits to."""
        worker = self._worker_of(key)
        return key in self._at_work or key in worker.at_work or key in worker.load.children

    def ids_answered(self, key: str) -> list[str]:
        """The ids of the messages that the turn in a session answers, as far as is known here."""
        return self._answered.get(key, [])

    def snapshot(self, _: str) -> Snapshot | None:
        """A session as it is in memory: it is not in this process."""
        return None

    def used_since(self, _: str, __: int) -> list[Any] | None:
        """What is in memory of a session's use: nothing in this process."""
        return None

    def __len__(self) -> int:
        return sum(worker.load.actors for worker in self._workers)

    # ---- what is shown of it

    def number_of(self, key: str) -> int:
        """Which worker a session has; that of a child is its parent's."""
        return crc32(outermost(self._app.sessions, key).encode()) % len(self._workers)

    @property
    def running(self) -> int:
        """How many sessions have a request under way, also one that nobody waits for any more."""
        return len(self._at_work.keys() | {key for worker in self._workers for key in worker.at_work})

    @property
    def restarts(self) -> int:
        """How many workers were replaced since the start."""
        return sum(worker.restarts for worker in self._workers)

    @property
    def up(self) -> list[bool]:
        """Each worker, and whether it takes requests now."""
        return [worker.is_up for worker in self._workers]

    @property
    def pids(self) -> list[int]:
        """The processes of the workers that run."""
        return [worker.process.pid for worker in self._workers if worker.process is not None]

    def add_work(self, work: Work) -> None:
        """Add what all workers have counted, those that ended too."""
        for worker in self._workers:
            work.add(worker.counted.counts())
            work.add(worker.load.counts)

    def add_load(self, load: Load) -> Load:
        """What the stores of this process and of all workers have to write."""
        theirs = (worker.stored + worker.load.store for worker in self._workers)
        return Load(*astuple(sum(theirs, StoreCounts.of(load))))

    # ---- how

    def _worker_of(self, key: str) -> _Worker:
        return self._workers[self.number_of(key)]

    async def _request(
        self,
        key: str,
        frame: Callable[[int], Deliver | Resume | Call],
        *,
        emit: Emit,
        ask: Ask | None,
        is_repeatable: bool,
    ) -> Done:
        worker, losses, stops = self._worker_of(key), 0, self._stops[key]
        self._at_work[key] += 1
        try:
            while True:
                await worker.wait_until_up()
                if self._tasks is None:
                    raise Stopped(_ENDING)
                if self._stops[key] != stops:
                    raise Stopped("the turn was stopped")
                pending = _Pending(key, emit, ask, self._tasks)
                try:
                    return await worker.request(frame, pending)
                except WorkerLost:
                    losses += 1
                    if not is_repeatable or pending.has_emitted or losses >= _MAX_LOSSES:
                        raise
        finally:
            self._has_news = True
            self._at_work[key] -= 1
            if not self._at_work[key]:
                del self._at_work[key]
                self._stops.pop(key, None)
                self._answered.pop(key, None)

    async def _watch(self) -> None:
        """Ask every worker whether it lives, and tell the first one whether there is anything new in the store."""
        while True:
            await anyio.sleep(self._setup.pace.beat)
            has_news, self._has_news = self._has_news, False
            for worker in self._workers:
                worker.ping(has_news=has_news and worker is self._workers[0])

    async def _take_over(self, pid: int, keys: Sequence[str]) -> None:
        """Take turns over from a process that does not end, so that nothing that it still does is stored.

        What cannot be taken over in time is logged: the next turn there waits until the process ends.
        """
        left = dict.fromkeys(keys, f"it took longer than {self._setup.pace.taking_over:g} seconds")

        def take() -> None:
            for key in [*left]:
                try:
                    self._take_over_session(key, pid)
                except NacreError as error:
                    left[key] = describe_error(error)
                else:
                    del left[key]

        with anyio.move_on_after(self._setup.pace.taking_over):
            await anyio.to_thread.run_sync(take, abandon_on_cancel=True)
        for key, reason in dict(left).items():
            about = {"session": key, "reason": reason}
            logger.warning("the turn of a stuck worker was not taken over", extra=about)

    def _take_over_session(self, key: str, pid: int) -> None:
        lease = self._app.sessions.hold(key)
        if lease.holder() == pid:
            with suppress(SessionBusy):
                lease.take_over()
            lease.close()


def _check(message: UserMessage) -> None:
    """Refuse what the store would refuse: on its way to a worker it would be changed, or not arrive."""
    check_key(message.key)
    encode_message(Message(role="user", content=message.content, extra=message.extra))
    if message.id and not (isinstance(message.id, str) and is_unicode(message.id)):
        raise InvalidMessage(f"an id must be text in valid Unicode, not {show(message.id)}")


class _Pending:
    """A request that a worker has: who waits for it, and who hears of it and is asked meanwhile."""

    def __init__(self, key: str, emit: Emit, ask: Ask | None, tasks: TaskGroup) -> None:
        self.key, self.emit, self.ask, self.tasks = key, emit, ask, tasks
        self.has_emitted = False
        self.result: asyncio.Future[Done] = asyncio.get_running_loop().create_future()

    def tell(self, events: Sequence[Event]) -> None:
        """Emit events; what goes wrong there is this request's alone."""
        self.has_emitted = True
        try:
            for event in events:
                self.emit(event)
        except Exception as error:  # noqa: BLE001 - the caller that waits for the request gets it
            self.emit = ignore
            self.settle(error)

    def settle(self, outcome: Done | Exception) -> None:
        if self.result.done():
            return
        if isinstance(outcome, Done):
            self.result.set_result(outcome)
        else:
            self.result.set_exception(outcome)


class _Worker:
    """One worker and those that replace it."""

    def __init__(self, setup: WorkerSetup, start: Start, *, take_over: Callable[[int, Sequence[str]], Any]) -> None:
        self._setup, self._pace, self._start, self._take_over = setup, setup.pace, start, take_over
        self.process: subprocess.Popen[bytes] | None = None
        self._left: list[subprocess.Popen[bytes]] = []
        self.load = Pong(WorkCounts(), StoreCounts(), 0, [])
        self.counted, self.stored = Work(), StoreCounts()
        self.restarts = 0
        self._connection: Connection[FromWorker] | None = None
        self._up, self._lost = anyio.Event(), anyio.Event()
        self._refusal: Exception | None = None
        self._reason = ""
        # What it has not finished yet; who waits for it may have been cancelled meanwhile.
        self._pending: dict[int, _Pending] = {}
        self.at_work: Counter[str] = Counter()
        self._questions: dict[int, anyio.CancelScope] = {}
        self._numbers = count()
        self._unanswered = 0
        self._is_ending = False
        self._life = anyio.CancelScope()

    @property
    def is_up(self) -> bool:
        return self._up.is_set() and not self._is_ending

    # ---- its life

    async def run(self, *, task_status: anyio.abc.TaskStatus[None]) -> None:
        """Run the worker and its successors; raises what keeps the very first one from starting."""
        with self._life:
            waits = self._pace.backoff.waits()
            for left in reversed(range(_MAX_STARTS)):
                try:
                    await self._begin()
                    break
                except _NotReady:
                    raise
                except NacreError:
                    # One that says why it cannot start would say so again; one that was killed would not.
                    if self._refusal is not None or not left:
                        raise
                    await anyio.sleep(next(waits))
            task_status.started()
            begun = anyio.current_time()
            while True:
                if self.is_up:
                    await self._lost.wait()
                    if self._is_ending:
                        return
                    about = {"worker": self._start.number, "reason": self._reason}
                    logger.error("a worker is lost; it is replaced", extra=about)
                    await self._close_lost()
                    if anyio.current_time() - begun > _MIN_LIFETIME:
                        waits = self._pace.backoff.waits()
                await anyio.sleep(next(waits))
                begun = anyio.current_time()
                try:
                    await self._begin()
                except Exception as error:  # noqa: BLE001 - whatever it is, the next attempt may succeed
                    about = {"worker": self._start.number, "reason": describe_error(error)}
                    logger.error("a worker could not be started; retrying", extra=about)  # noqa: TRY400 - described
                else:
                    self.restarts += 1
                    logger.info("a worker was started again", extra={"worker": self._start.number})

    async def _begin(self) -> None:
        """Start a process and wait until it takes requests."""
        ours, theirs = socket.socketpair()
        self._lost, self._refusal, self._reason, self._unanswered = anyio.Event(), None, "", 0
        ready = anyio.Event()
        command = [sys.executable, "-P", "-m", self._setup.module, str(theirs.fileno())]
        with theirs:
            try:
                # A session of its own: a Ctrl-C at the daemon's terminal is the daemon's, which ends its workers. Not
                # in a thread: a worker ends with the thread that started it.
                self.process = subprocess.Popen(  # noqa: ASYNC220, S603 - that is why, and our own module
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=2,
                    pass_fds=[theirs.fileno()],
                    start_new_session=True,
                )
            except OSError:
                ours.close()
                raise
        lost = self._lost

        def receive(frame: FromWorker) -> None:
            if lost.is_set():
                return  # it was given up
            if isinstance(frame, Ready):
                ready.set()
            self._receive(frame)

        def refuse(id: int, reason: str) -> None:
            logger.error("what a worker sent is wrong", extra={"worker": self._start.number, "reason": reason})
            if not lost.is_set() and (pending := self._pending.get(id)) is not None:
                # If this was its end, it is over; if not, the worker says when it is.
                self.send(Cancel(id))
                pending.settle(WorkerFault(f"worker {self._start.number} sent what cannot be read"))

        def lose(reason: str) -> None:
            self._reason = self._reason or reason
            lost.set()
            ready.set()

        connect = asyncio.get_running_loop().create_unix_connection
        try:
            _, self._connection = await connect(
                lambda: Connection(from_worker, receive=receive, refuse=refuse, lost=lose), sock=ours
            )
            self._connection.send(self._start)
            with anyio.move_on_after(self._pace.starting):
                await ready.wait()
            if not ready.is_set():
                why = f"worker {self._start.number} was not ready within {self._pace.starting:g} seconds"
                raise _NotReady(why)  # noqa: TRY301 - the process must end after any failure
            if lost.is_set():
                why = f"worker {self._start.number} ended before it was ready"
                raise self._refusal or NacreError(why)  # noqa: TRY301 - the process must end after any failure
        except BaseException:
            await self._close_lost()
            raise
        self._up.set()

    async def _close_lost(self) -> None:
        """Make sure that the process has ended, or can store nothing; those who wait for it learn that it is lost."""
        if self._up.is_set():
            self._up = anyio.Event()
        process, self.process = self.process, None
        connection, self._connection = self._connection, None
        keys = [*(pending.key for pending in self._pending.values()), *self.load.children]
        if connection is not None:
            connection.abort()
        with anyio.CancelScope(shield=True):
            if process is not None:
                await self._kill(process, keys)
        self.counted.add(self.load.counts)
        self.stored += self.load.store.counted()
        self.load = Pong(WorkCounts(), StoreCounts(), 0, [])
        for scope in self._questions.values():
            scope.cancel()
        self._questions.clear()
        pending, self._pending = self._pending, {}
        self.at_work.clear()
        for one in pending.values():
            one.settle(Stopped(_ENDING) if self._is_ending else WorkerLost(_LOST))

    async def _kill(self, process: subprocess.Popen[bytes], keys: Sequence[str]) -> None:
        if process.poll() is None:
            self._setup.kill(process.pid)
        await _wait(process, self._pace.dying)
        if process.returncode is None:
            about = {"worker": self._start.number, "pid": process.pid}
            logger.error("a worker does not end; its turns are taken over", extra=about)
            self._left.append(process)
            await self._take_over(process.pid, keys)

    async def end(self) -> None:
        """End it in order, and else at once."""
        is_up, self._is_ending = self.is_up, True
        if is_up and self.process is not None:
            self.send(End())
            # Turns have had their time. One that hangs must not keep its callers waiting until it is killed.
            for pending in self._pending.values():
                pending.settle(Stopped(_ENDING))
            await _wait(self.process, self._pace.ending)
            await self._close_lost()
        # One that was just being started is killed.
        self._life.cancel()
        # Those who wait for it learn that it does not come.
        self._up.set()

    # ---- what it is asked

    async def wait_until_up(self) -> None:
        """Wait until it takes requests; raises Stopped if it ends instead."""
        while not self.is_up:
            if self._is_ending:
                raise Stopped(_ENDING)
            await self._up.wait()

    async def request(self, frame: Callable[[int], Deliver | Resume | Call], pending: _Pending) -> Done:
        """Send a request and wait for its result; raises WorkerLost if the worker ends first."""
        id = next(self._numbers)
        sent = frame(id)
        self.send(sent)
        self._pending[id] = pending
        self.at_work[pending.key] += 1
        try:
            return await pending.result
        except asyncio.CancelledError:
            # Its turn goes on, and may ask; it is forgotten when the worker says that it is over.
            self.send(Cancel(id))
            raise

    def _finish(self, id: int, outcome: Done | Exception) -> None:
        """The worker has finished a request."""
        pending = self._pending.pop(id, None)
        if pending is None:
            return
        self.at_work[pending.key] -= 1
        if not self.at_work[pending.key]:
            del self.at_work[pending.key]
        pending.settle(outcome)

    def ping(self, *, has_news: bool) -> None:
        """Ask whether it lives; one that has not answered for too long is given up."""
        # Those that did not end when they were killed leave nothing behind once they have.
        self._left = [process for process in self._left if process.poll() is None]
        if not self.is_up:
            return
        if self._unanswered >= self._pace.missed:
            self._reason = f"it did not answer for {self._pace.missed * self._pace.beat:g} seconds"
            self._lost.set()
            return
        self._unanswered += 1
        self.send(Ping(has_news))

    def send(self, frame: Sent) -> bool:
        """Send a frame; False if there is nobody to send it to."""
        if self._connection is None:
            return False
        self._connection.send(frame)
        return True

    def _receive(self, frame: FromWorker) -> None:
        match frame:
            case Ready():
                pass
            case NotStarted(error):
                self._refusal = decode_error(error)
            case Happened(id, events):
                if (pending := self._pending.get(id)) is not None:
                    pending.tell(events)
            case Question():
                pending = self._pending.get(frame.id)
                if pending is not None and pending.ask is not None:
                    scope = self._questions[frame.question] = anyio.CancelScope()
                    pending.tasks.start_soon(self._decide, frame, pending.ask, scope, self._connection)
            case Withdrawn(question):
                if (asking := self._questions.get(question)) is not None:
                    asking.cancel()
            case Done(id):
                self._finish(id, frame)
            case Failed(id, error):
                self._finish(id, decode_error(error))
            case Pong():
                self.load, self._unanswered = frame, 0

    async def _decide(
        self, asked: Question, ask: Ask, scope: anyio.CancelScope, connection: Connection[FromWorker] | None
    ) -> None:
        """Ask a person what the worker asks; a later worker counts its questions from the beginning again."""
        with scope:
            try:
                answer = msgspec.convert(await ask(decode_question(asked)), Answer)
            except Exception:
                # Who cannot be asked has not said yes.
                logger.exception("a question could not be asked")
                answer = "no"
            if connection is not None:
                connection.send(Decided(asked.question, answer))
        if self._questions.get(asked.question) is scope:
            del self._questions[asked.question]


async def _wait(process: subprocess.Popen[bytes], seconds: float) -> None:
    """Wait until a process has ended, and not for longer than so many seconds."""
    with anyio.move_on_after(seconds):
        while process.poll() is None:  # noqa: ASYNC110 - it says by no event that it ends
            await anyio.sleep(_TICK)
