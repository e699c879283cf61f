"""nacre.open_async: the same sessions for asyncio; every call is awaited, and none blocks the event loop.

There is no second implementation: what a method does is written in `nacre.sessions`, and here is only where it runs.

    add_message, append, update …         get_history, list, fork, delete …         follow
       |  on the loop: check, encode         |                                        |
       '--> one thread, in order:            '--> a few threads                       '--> a few others, whenever
            find the log, queue it                                                         the watch reports a change
             '--> the group committer
"""

from __future__ import annotations

import asyncio
import builtins
import os
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from contextvars import copy_context
from functools import partial, wraps
from itertools import islice
from threading import Thread
from types import TracebackType
from typing import TYPE_CHECKING, Any, Concatenate, NamedTuple, ParamSpec, Self, TypeAlias, TypeVar, cast, overload
from weakref import WeakSet

import msgspec

from nacre.checks import check_int, check_key
from nacre.errors import StoreError
from nacre.loop_threads import LoopThreads
from nacre.messages import Entry, Message
from nacre.opening import open as open_sessions
from nacre.records import Transaction
from nacre.sessions import AnyMessage, Session, Sessions
from nacre.storage.group_commit import Pending, refuse
from nacre.storage.protocol import AnyLease, Lease
from nacre.storage.watch import Watch

if TYPE_CHECKING:
    from nacre.storage.file_store import Durability

F = TypeVar("F")
P = ParamSpec("P")
T = TypeVar("T")
# Few: they keep each other, and the loop, from running.
_MAX_READING = 4
_MAX_WAITING = 16
_MAX_PART = 64
_LONG = 32 * 1024
_LOOK_AGAIN = 0.2


def open_async(target: str | os.PathLike[str] | None = None, *, durability: Durability = "commit") -> AsyncSessions:
    """Open the sessions at a place for asyncio: `async with nacre.open_async(place) as sessions`.

    The arguments are those of `nacre.open`. The place is opened when the context is entered; when it is left,
    whatever was submitted is durable.

    >>> import asyncio
    >>> async def main():
    ...     async with nacre.open_async(":memory:") as sessions:
    ...         return await sessions.add_message("telegram:42", "user", "What is nacre?")
    >>> asyncio.run(main())
    2
    """
    return AsyncSessions(partial(open_sessions, target, durability=durability))


# ---- where a method runs

Face: TypeAlias = "AsyncSessions | AsyncSession"


def _read(method: Callable[Concatenate[F, P], T]) -> Callable[Concatenate[Face, P], Coroutine[Any, Any, T]]:
    """A method that reads, called in a thread. If it is cancelled, the thread finishes by itself."""

    @wraps(method)
    async def call(self: Face, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self._work.read(partial(method, self._on(self._sessions), *args, **kwargs))

    return call


def _wait(method: Callable[Concatenate[F, P], T]) -> Callable[Concatenate[Face, P], Coroutine[Any, Any, T]]:
    """The same for one that may wait for the disk or for other writers; reads do not wait for it."""

    @wraps(method)
    async def call(self: Face, /, *args: P.args, **kwargs: P.kwargs) -> T:
        # By its name: a part of the sessions has some methods of its own.
        return await self._work.wait(partial(getattr(self._on(self._sessions), method.__name__), *args, **kwargs))

    return call


def _iterated(
    method: Callable[Concatenate[Sessions, P], Iterable[T]],
) -> Callable[Concatenate[AsyncSessions, P], AsyncIterator[T]]:
    """The method as an async iterator, which takes some items at a time in a thread."""

    @wraps(method)
    async def iterate(self: AsyncSessions, /, *args: P.args, **kwargs: P.kwargs) -> AsyncIterator[T]:
        items = iter(await self._work.read(partial(method, self._sessions, *args, **kwargs)))
        while part := await self._work.read(partial(_some_of, items)):
            for item in part:
                yield item

    return iterate


def _some_of(items: Iterator[T]) -> list[T]:
    """The next items: few, so that little is read ahead, and none after one that is long."""
    found = []
    for item in islice(items, _MAX_PART):
        found.append(item)
        if _is_long([item]):
            break
    return found


def _queued(method: Callable[Concatenate[F, P], T]) -> Callable[Concatenate[Face, P], Coroutine[Any, Any, T]]:
    """A method that only makes a transaction and stores it: it is queued, and what comes of it is awaited.

    The transaction is made at once, so that what the caller changes afterwards is not stored; one that takes long is
    made in a thread.
    """
    gives_number = method.__annotations__["return"] != "None"

    @wraps(method)
    async def call(self: Face, /, *args: P.args, **kwargs: P.kwargs) -> T:
        write = _Write(self._work, self._sessions)
        make = partial(method, self._on(write), *args, **kwargs)
        if _is_long([*args, *kwargs.values()]):
            await self._work.read(make)
        else:
            make()
        number = await write.pending
        return cast("T", number if gives_number else None)

    return call


def _at_once(method: Callable[Concatenate[Sessions, P], T]) -> Callable[Concatenate[AsyncSessions, P], T]:
    """A method that only makes a transaction and does not wait for it."""

    @wraps(method)
    def call(self: AsyncSessions, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return method(_Write(self._work, self._sessions), *args, **kwargs)

    return call


def _is_long(values: list[object]) -> bool:
    """Tell whether to encode some values would hold up an event loop; also if they have no end."""
    size = 0
    while values and size <= _LONG:
        value = values.pop()
        size += len(value) if isinstance(value, str | bytes) else 8
        if isinstance(value, Mapping):
            values += value.values()
        elif isinstance(value, list | tuple):
            values += value
        elif isinstance(value, msgspec.Struct):
            values += (getattr(value, field) for field in value.__struct_fields__)
    return size > _LONG


class _Write(Sessions):
    """The sessions for one call that writes: it is left to the thread that queues.

    It has no store: a method that would read in the loop's thread fails at once.
    """

    def __init__(self, work: _Work, sessions: Sessions) -> None:
        self._work = work
        self._sessions = sessions
        self.pending = Pending()

    def _submit(
        self,
        key: str,
        transaction: Transaction,
        lease: AnyLease | None = None,
        pending: Pending | None = None,  # noqa: ARG002 - it has its own
    ) -> Pending:
        self._work.queue(_Request(self._sessions, key, transaction, lease, self.pending))
        return self.pending

    def _run(self, key: str, transaction: Transaction, lease: AnyLease | None = None) -> int:
        # Nobody looks at it: the caller awaits the future.
        return cast("int", self._submit(key, transaction, lease))


# ---- the threads


class _Request(NamedTuple):
    """What the thread that queues is asked for."""

    sessions: Sessions
    key: str
    transaction: Transaction
    lease: AnyLease | None
    pending: Pending


class _Work:
    """The threads of an open store, and those who follow its sessions."""

    def __init__(self) -> None:
        self.is_closed = False
        self.begin()
        _all.add(self)

    def begin(self) -> None:
        """Begin without any thread; also after a fork, in the child, whose parent has them."""
        # One, so that what is submitted first is written first.
        self._submitter = ThreadPoolExecutor(1, "nacre-submit")
        self._readers = LoopThreads(_MAX_READING, "nacre-read")
        self._waiters = LoopThreads(_MAX_WAITING, "nacre-wait")
        self._in_order = ThreadPoolExecutor(_MAX_WAITING, "nacre-order")
        self._requests: deque[_Request] = deque()
        self._is_called = False
        self._watchers: dict[asyncio.AbstractEventLoop, _Watcher] = {}
        self._closing: Future[None] | None = None

    def queue(self, request: _Request) -> None:
        """Let the thread that queues submit a transaction, after all that were given to it before."""
        self.check_open()
        self._requests.append(request)
        # If it was called and has not begun, it will take all that waits.
        if not self._is_called:
            try:
                self._is_called = True
                self._submitter.submit(self._submit_all)
            except BaseException as error:
                # A signal may strike before it is called: then the next one calls.
                self._is_called = False
                if not isinstance(error, RuntimeError):
                    raise
                # Nobody is called for those either who came meanwhile, from another loop.
                for *_, waiting in self._take_requests():
                    refuse(waiting, StoreError(f"nothing was stored: {error}"))

    def _submit_all(self) -> None:
        self._is_called = False
        for sessions, key, transaction, lease, pending in self._take_requests():
            try:
                sessions._submit(key, transaction, lease, pending)
            except Exception as error:  # noqa: BLE001 - whatever it is, the caller gets it
                refuse(pending, error)

    def _take_requests(self) -> Iterator[_Request]:
        with suppress(IndexError):
            while True:
                yield self._requests.popleft()

    async def read(self, work: Callable[[], T]) -> T:
        """Read something in a thread."""
        return await self._begin(self._readers, work)

    async def wait(self, work: Callable[[], T]) -> T:
        """Do something that may wait for the disk."""
        return await self._begin(self._waiters, work)

    def _begin(self, threads: LoopThreads, work: Callable[[], T]) -> asyncio.Future[T]:
        self.check_open()
        try:
            return threads.begin(partial(copy_context().run, _do, work))
        except RuntimeError as error:
            raise StoreError(f"nothing was done: {error}") from error

    def begin_to_wait(self, work: Callable[[], T]) -> Future[T]:
        """Do something that may wait for the disk; what is given first is begun first."""
        self.check_open()
        try:
            return self._in_order.submit(copy_context().run, _do, work)
        except RuntimeError as error:
            raise StoreError(f"nothing was done: {error}") from error

    def check_open(self) -> None:
        if self.is_closed:
            raise StoreError("the store is closed")

    @contextmanager
    def bell(self, sessions: Sessions, key: str) -> Iterator[asyncio.Event]:
        """An event that is set when a session changes from now on."""
        loop = asyncio.get_running_loop()
        watcher = self._watchers.get(loop)
        if watcher is None:
            # In the loop's thread: it reads nothing, and the folder's name is known to the system.
            watcher = self._watchers[loop] = _Watcher(loop, sessions.watch())
        bell, name = asyncio.Event(), watcher.watch.name(key)
        bells = watcher.bells.setdefault(name, set())
        bells.add(bell)
        try:
            yield bell
        finally:
            bells.discard(bell)
            if not bells:
                watcher.bells.pop(name, None)
            if not watcher.bells and self._watchers.pop(loop, None) is not None:
                watcher.stop()
                self._close_watch(watcher.watch)

    def _close_watch(self, watch: Watch) -> None:
        # The system may take a while for it.
        try:
            self._in_order.submit(watch.close)
        except RuntimeError:
            watch.close()

    async def close(self, sessions: Sessions) -> None:
        """Finish everything in a thread of its own, which does not stop if the caller no longer waits."""
        self.is_closed = True
        for loop, watcher in builtins.list(self._watchers.items()):
            # In a loop that was closed nobody is left.
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(watcher.ring, {""})
        if self._closing is None or self._closing.done():
            closing = self._closing = Future()
            closing.set_running_or_notify_cancel()
            Thread(target=self._finish, args=(sessions, closing), name="nacre-close").start()
        await asyncio.wrap_future(self._closing)

    def _finish(self, sessions: Sessions, closing: Future[None]) -> None:
        try:
            # 1. What was queued is submitted, what was called is done.
            for threads in (self._submitter, self._waiters, self._in_order, self._readers):
                threads.shutdown()
            # 2. What was submitted is written and flushed.
            sessions.close()
            # 3. Who followed has gone, unless the loop ended under them.
            for watcher in builtins.list(self._watchers.values()):
                if watcher.loop.is_closed():
                    watcher.watch.close()
        except BaseException as error:  # noqa: BLE001 - whatever it is, the caller gets it
            closing.set_exception(error)
        else:
            closing.set_result(None)

    def begin_in_child(self) -> None:
        """Forget the parent's threads and loops; its descriptors would take away what is reported to it."""
        for watcher in self._watchers.values():
            watcher.watch.close()
        self.begin()


def _do(work: Callable[[], T]) -> T:
    try:
        return work()
    except StopIteration as error:
        # A future cannot hold it: the caller would wait forever.
        raise RuntimeError("a function that was given to a method raised StopIteration") from error


class _Watcher:
    """Wakes those who follow sessions in one event loop, all with one descriptor."""

    def __init__(self, loop: asyncio.AbstractEventLoop, watch: Watch) -> None:
        self.loop = loop
        self.watch = watch
        self.bells: dict[str, set[asyncio.Event]] = {}
        self._timer: asyncio.TimerHandle | None = None
        if watch.fd >= 0:
            os.set_blocking(watch.fd, False)
            loop.add_reader(watch.fd, self._look)
        else:
            self._look_again()

    def _look(self) -> None:
        with suppress(BlockingIOError):
            self.ring(self.watch.changed())

    def _look_again(self) -> None:
        """Where changes are not reported, everybody looks for them every now and then."""
        self.ring({""})
        self._timer = self.loop.call_later(_LOOK_AGAIN, self._look_again)

    def ring(self, names: set[str]) -> None:
        # An empty name: too much has changed to be reported, and it may be anything.
        for name in builtins.list(self.bells) if "" in names else names & self.bells.keys():
            for bell in self.bells[name]:
                bell.set()

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        elif not self.loop.is_closed():
            self.loop.remove_reader(self.watch.fd)


# ---- the interface


class AsyncLease:
    """The turn of a session, as `Sessions.hold` gives it: `take`, `take_over` and `close` are awaited, in their order.

    If `take` or `take_over` is cancelled, the turn is given back; `close` is done even then.

    >>> async def answer(sessions):
    ...     turn = await sessions.hold("cli:1")
    ...     await turn.take()
    ...     try:
    ...         return await sessions.append("cli:1", "x.rating", {"stars": 5}, lease=turn)
    ...     finally:
    ...         await turn.close()
    >>> async def main():
    ...     async with nacre.open_async(":memory:") as sessions:
    ...         return await answer(sessions)
    >>> import asyncio
    >>> asyncio.run(main())
    2
    """

    def __init__(self, work: _Work, lease: Lease) -> None:
        self._work = work
        self._lease = lease
        self._last: Future[None] | None = None

    def __repr__(self) -> str:
        return f"AsyncLease({self.key!r}, number={self.number})"

    @property
    def key(self) -> str:
        """Whose turn it is."""
        return self._lease.key

    @property
    def number(self) -> int | None:
        """The fencing number: 0 as long as the turn was never taken over, then greater with each time.

        None while the lease is not taken.
        """
        return self._lease.number

    async def take(self) -> None:
        """Take it; raises SessionBusy, with who has it, if that is another holder."""
        await self._take(self._lease.take)

    async def take_over(self) -> None:
        """Take it although another may have it, from whom every append with its lease is refused from now on.

        That is one durable record; it begins a session where there is none. Raises SessionBusy if yet another holder
        was faster.
        """
        await self._take(self._lease.take_over)

    async def holder(self) -> int:
        """The process that has it: 0 if there is none, or it cannot be known; -1 if it is unknown which.

        Nothing is taken, and nothing is made.
        """
        return await self._work.read(self._lease.holder)

    async def check(self) -> None:
        """Raise LeaseLost if it is not taken, or was lost.

        Where a lease can expire, the store is asked only if it may have; one that was taken over by force is noticed
        by the next write, or somewhat later here.
        """
        await self._work.read(self._lease.check)

    async def close(self) -> None:
        """Let others take it; also after the sessions were closed."""
        await asyncio.shield(asyncio.wrap_future(self._begin(self._lease.close)))

    async def _take(self, take: Callable[[], None]) -> None:
        self._work.check_open()
        taking = self._begin(take)
        try:
            await asyncio.wrap_future(taking)
        except asyncio.CancelledError:
            # The thread may have it, or get it yet, and nobody would know.
            self._begin(lambda: None if taking.cancelled() or taking.exception() else self._lease.close())
            raise

    def _begin(self, work: Callable[[], None]) -> Future[None]:
        """Do something after what was begun before, which may still run although nobody waits for it."""
        before = [self._last] if self._last is not None else []

        def do_next() -> None:
            wait(before)
            work()

        if self._work.is_closed:
            threads = ThreadPoolExecutor(1, "nacre-lease")
            self._last = threads.submit(do_next)
            threads.shutdown(wait=False)
        else:
            self._last = self._work.begin_to_wait(do_next)
        return self._last


class AsyncSessions:
    """Durable sessions for asyncio: the methods of `Sessions`, awaited. No call blocks the event loop.

    `list`, `records` and `follow` are for `async for`. `submit`, `within` and `with_internal_keys` are not awaited.

    A write that is cancelled while it is awaited is stored or not. To know which, retry it under the same `id`, or use
    `submit`: its future still has the outcome. A read that is cancelled stops waiting.
    It may be used from several event loops, also at once.

    >>> import asyncio
    >>> async def main():
    ...     async with nacre.open_async(":memory:") as sessions:
    ...         keys = ["cli:1", "cli:2", "cli:3"]
    ...         await asyncio.gather(*(sessions.add_message(key, "user", "hello") for key in keys))
    ...         print([info.key async for info in sessions.list(order="key")])
    ...         print([entry.kind async for entry in sessions.records("cli:1")])
    >>> asyncio.run(main())
    ['cli:1', 'cli:2', 'cli:3']
    ['open', 'msg']
    """

    def __init__(self, open: Callable[[], Sessions]) -> None:
        self._open = open
        self._work = _Work()
        self._sessions: Sessions = _NotOpen()

    @staticmethod
    def of(sessions: Sessions) -> AsyncSessions:
        """Sessions that are open already, for asyncio; who opened them closes them.

        >>> import asyncio
        >>> async def main():
        ...     return await nacre.AsyncSessions.of(sessions).exists("cli:1")
        >>> asyncio.run(main())
        False
        """
        return _Part(_Work(), sessions)

    async def __aenter__(self) -> Self:
        if not isinstance(self._sessions, _NotOpen):
            raise StoreError("the sessions are open already")
        try:
            self._sessions = await self._work.wait(self._open)
        except BaseException:
            await self.close()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Wait until what was submitted is stored, flush, and release everything; twice is harmless.

        If it is cancelled, all that is done without the caller.
        """
        await self._work.close(self._sessions)

    @property
    def location(self) -> str:
        """Where the store is."""
        return self._sessions.location

    @property
    def is_durable(self) -> bool:
        """Whether sessions outlive the process: those in memory do not."""
        return self._sessions.is_durable

    @property
    def blocking(self) -> Sessions:
        """The same sessions for code that may wait, such as a thread; `close` is left to the `AsyncSessions`."""
        self._work.check_open()
        return self._sessions

    async def call(self, work: Callable[[Sessions], T]) -> T:
        """Call a function with the plain sessions, in a thread: for several steps that belong together.

        If it is cancelled, a function that has begun still runs to its end; one that has not is not called.

        >>> import asyncio
        >>> async def main():
        ...     async with nacre.open_async(":memory:") as sessions:
        ...         return await sessions.call(lambda plain: plain.add_message("cli:1", "user", "hello"))
        >>> asyncio.run(main())
        2
        """
        return await self._work.wait(lambda: work(self._sessions))

    def within(self, prefix: str) -> AsyncSessions:
        """The sessions whose keys begin with a prefix; any other key has no session there, and cannot begin one.

        Other names of sessions are unknown there, since they could lead outside.
        """
        return _Part(self._work, self._sessions.within(prefix))

    @property
    def is_shared(self) -> bool:
        """Whether processes on several machines may use the store at once: those of a database may."""
        return self._sessions.is_shared

    def with_internal_keys(self, *, held: AnyLease | None = None) -> AsyncSessions:
        """The same sessions for nacre's own parts, which may begin sessions whose key starts with `nacre:`.

        With `held`, a lease of any session that is taken, nothing is appended, deleted or kept as a document once that
        lease is lost: it is LeaseLost.
        """
        plain = held._lease if isinstance(held, AsyncLease) else held
        return _Part(self._work, self._sessions.with_internal_keys(held=plain))

    def __getitem__(self, key: str) -> AsyncSession:
        """One session by its key, to be used without naming it again; nothing is read or written."""
        return AsyncSession(self, check_key(key))

    # Python would take a class that has `[key]` for a list. `list` has the sessions, and `exists` tells of one.
    __iter__ = None

    def _on(self, sessions: Sessions) -> Any:
        """What a method is called on."""
        return sessions

    # ---- writes that are queued

    add_message = _queued(Sessions.add_message)
    add_full_message = _queued(Sessions.add_full_message)
    add_messages = _queued(Sessions.add_messages)
    append = _queued(Sessions.append)
    clear = _queued(Sessions.clear)
    set_history = _queued(Sessions.set_history)
    set_meta = _queued(Sessions.set_meta)
    submit = _at_once(Sessions.submit)
    truncate_history = _queued(Sessions.truncate_history)
    update = _queued(Sessions.update)

    # ---- writes that read too, and upkeep

    add_alias = _wait(Sessions.add_alias)
    archive = _wait(Sessions.archive)
    delete = _wait(Sessions.delete)
    discard = _wait(Sessions.discard)
    document = _wait(Sessions.document)
    erase_from_trash = _wait(Sessions.erase_from_trash)
    finish_redactions = _wait(Sessions.finish_redactions)
    forget_aliases = _wait(Sessions.forget_aliases)
    fork = _wait(Sessions.fork)
    journal = _wait(Sessions.journal)
    make_vectors = _wait(Sessions.make_vectors)
    move_to_trash = _wait(Sessions.move_to_trash)
    pop = _wait(Sessions.pop)
    redact = _wait(Sessions.redact)
    remove_leftovers = _wait(Sessions.remove_leftovers)
    repair = _wait(Sessions.repair)
    restore = _wait(Sessions.restore)
    restore_from_trash = _wait(Sessions.restore_from_trash)
    rewind = _wait(Sessions.rewind)
    save = _wait(Sessions.save)
    set_labels = _wait(Sessions.set_labels)
    set_summary = _wait(Sessions.set_summary)
    unarchive = _wait(Sessions.unarchive)
    watch = _wait(Sessions.watch)

    # ---- reads

    aliases = _read(Sessions.aliases)
    disk_usage = _read(Sessions.disk_usage)
    exists = _read(Sessions.exists)
    free_key = _read(Sessions.free_key)
    generation = _read(Sessions.generation)
    get_history = _read(Sessions.get_history)
    get_meta = _read(Sessions.get_meta)
    get_summary = _read(Sessions.get_summary)
    has_other_logs = _read(Sessions.has_other_logs)
    is_at = _read(Sessions.is_at)
    key_of_file = _read(Sessions.key_of_file)
    list_trash = _read(Sessions.list_trash)
    load = _read(Sessions.load)
    log_size = _read(Sessions.log_size)
    page = _read(Sessions.page)
    quarantine = _read(Sessions.quarantine)
    read = _read(Sessions.read)
    read_generations = _read(Sessions.read_generations)
    resolve = _read(Sessions.resolve)
    search = _read(Sessions.search)
    snapshot = _read(Sessions.snapshot)
    status = _read(Sessions.status)
    transcript = _read(Sessions.transcript)
    verify = _read(Sessions.verify)

    # ---- iterators

    list = _iterated(Sessions.list)
    records = _iterated(Sessions.records)

    def follow(self, key: str, after: int = 0) -> AsyncGenerator[Entry, None]:
        """Every record after number `after`, and then new ones from any process; ends when it is cancelled.

        A record is given only when its writer knows that it is durable. If the session is archived
        and begun again, its new generation follows.
        """
        # Not a generator itself: wrong arguments are refused here, not when the first record is asked for.
        return self._follow(check_key(key), check_int(after, "after"))

    async def _follow(self, key: str, after: int) -> AsyncGenerator[Entry, None]:
        sessions = self._sessions
        key = await self._work.read(partial(sessions._resolve_or_keep, key))
        with self._work.bell(sessions, key) as bell:
            parts = sessions._parts(key, after)
            while True:
                entries, is_last = await self._work.wait(partial(next, parts))
                for entry in entries:
                    yield entry
                if is_last:
                    await bell.wait()
                    # Before it is read: what changes from here on rings again.
                    bell.clear()

    async def hold(self, key: str) -> AsyncLease:
        """The lease of a session's turn, not taken yet, as an `AsyncLease`. All names of a session share one turn.

        A write with `lease` is refused with LeaseLost once another holder has taken the turn over.
        """
        return AsyncLease(self._work, await self._work.read(partial(self._sessions.hold, key)))


class AsyncSession:
    """One session, by its key: `sessions[key]` of `AsyncSessions`. It has the methods of `Session`, awaited.

    What is a property there is a method here, and `len(session)` is `await session.length()`. `async for` gives its
    live messages.

    >>> async def main():
    ...     async with nacre.open_async(":memory:") as sessions:
    ...         session = sessions["cli:1"]
    ...         await session.append("user", "What is nacre?")
    ...         await session.set_meta(title="Shells")
    ...         return await session.meta(), [message.content async for message in session]
    >>> import asyncio
    >>> asyncio.run(main())
    ({'title': 'Shells'}, ['What is nacre?'])
    """

    __slots__ = ("_all", "key")

    def __init__(self, sessions: AsyncSessions, key: str) -> None:
        self._all = sessions
        self.key = key

    def __repr__(self) -> str:
        return f"AsyncSession({self.key!r})"

    async def __aiter__(self) -> AsyncIterator[Message]:
        for message in await self.messages():
            yield message

    @overload
    async def append(self, message: AnyMessage) -> int: ...

    @overload
    async def append(self, message: str, content: str) -> int: ...

    async def append(self, message: Any, content: str | None = None) -> int:
        """Append a message, or a role and a text; returns its record number."""
        return await self._append(message, content)

    _append = _queued(cast("Callable[[Session, Any, str | None], int]", Session.append))
    exists = _read(Session.exists)
    extend = _queued(Session.extend)
    length = _read(Session.__len__)
    messages = _read(Session.messages)
    meta = _read(cast("Callable[[Session], dict[str, Any]]", cast("property", Session.meta).fget))
    set_meta = _queued(Session.set_meta)
    set_summary = _wait(Session.set_summary)
    summary = _read(cast("Callable[[Session], str]", cast("property", Session.summary).fget))

    @property
    def _work(self) -> _Work:
        return self._all._work

    @property
    def _sessions(self) -> Sessions:
        return self._all._sessions

    def _on(self, sessions: Sessions) -> Any:
        """What a method is called on."""
        return Session(sessions, self.key)


class _Part(AsyncSessions):
    """Some of the sessions of a store, which its owner closes."""

    def __init__(self, work: _Work, sessions: Sessions) -> None:
        self._work = work
        self._sessions = sessions

    async def __aenter__(self) -> Self:
        return self

    async def close(self) -> None:
        """Do nothing: the owner of all of them closes the store."""


class _NotOpen(Sessions):
    """Stands for the sessions before they are opened; it has no store."""

    def __init__(self) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing: there is nothing to close."""

    def __getattr__(self, name: str) -> Any:
        raise StoreError("the sessions are not open: use `async with nacre.open_async(place) as sessions`")


_all: WeakSet[_Work] = WeakSet()


def _begin_in_child() -> None:
    """After a fork, in the child."""
    for work in builtins.list(_all):
        work.begin_in_child()


os.register_at_fork(after_in_child=_begin_in_child)
