"""Sessions for asyncio: the same methods, awaited, and an event loop that is never blocked."""

from __future__ import annotations

import asyncio
import inspect
import os
import subprocess
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine
from contextlib import aclosing, suppress
from contextvars import ContextVar
from functools import partial
from pathlib import Path
from threading import Barrier, Event, Thread, active_count, enumerate, get_ident
from typing import Any, Protocol, TypeVar, cast

import pytest

import nacre
from nacre.async_sessions import AsyncSessions
from nacre.history.session_state import RULES
from nacre.index import Index
from nacre.storage.file_store import FileStore
from nacre.storage.memory_store import MemoryStore
from nacre.storage.protocol import Lease
from nacre.storage.system import System
from tests.reference import split_doc

T = TypeVar("T")
WAIT = 30
WRITE = "import nacre, sys; nacre.open(sys.argv[1]).add_message('k', 'user', sys.argv[2])"


class Gate(System):
    """A system whose flushes wait while the gate is closed, and which notes the threads that call it."""

    def __init__(self) -> None:
        self.free = Event()
        self.free.set()
        self.flushing = Event()
        self.callers: dict[int, str] = {}

    def fdatasync(self, fd: int) -> None:
        self.flushing.set()
        assert self.free.wait(WAIT)
        os.fdatasync(fd)

    def __getattribute__(self, name: str) -> Any:
        if name in vars(System) and not name.startswith("_"):
            object.__getattribute__(self, "callers")[get_ident()] = name
        return object.__getattribute__(self, name)


def on(root: Path, system: System) -> AsyncSessions:
    """Async sessions on a system of the test's own."""
    return AsyncSessions(
        lambda: nacre.Sessions(
            FileStore(str(root), rules=RULES, system=system),
            index=lambda: Index(str(root), cache=f"{root}-cache", system=system),
        )
    )


def run(main: Callable[[], Coroutine[Any, Any, T]]) -> T:
    async def limited() -> T:
        return await asyncio.wait_for(main(), WAIT)

    return asyncio.run(limited())


async def flushing(system: Gate) -> None:
    """Wait until somebody waits at the closed gate."""
    assert await asyncio.to_thread(system.flushing.wait, WAIT)


async def texts(entries: AsyncGenerator[nacre.Entry, None], count: int) -> list[object]:
    found: list[object] = []
    while len(found) < count:
        entry = await anext(entries)
        if entry.kind == "msg":
            found.append(entry.data["content"])
    return found


def user(text: str) -> nacre.Message:
    return nacre.Message(role="user", content=text)


def kept(place: str | Path, key: str = "k") -> list[object]:
    with nacre.open(place) as sessions:
        return [message.content for message in sessions.get_history(key)]


def threads() -> int:
    """How many threads there are; those that have closed everything, and told so, may come to their end."""
    for thread in enumerate():
        if thread.name == "nacre-close":
            thread.join(WAIT)
    return active_count()


def public(kind: type) -> set[str]:
    return {name for name in dir(kind) if not name.startswith("_")}


# The same interface


OF_ASYNCIO = {"blocking", "call", "of"}
"""What only these have: how they and the plain ones become each other."""


def test_every_method_of_the_sessions_is_there_and_no_other() -> None:
    assert public(AsyncSessions) - OF_ASYNCIO == public(nacre.Sessions)


@pytest.mark.parametrize("name", sorted(public(nacre.Sessions) - {"is_durable", "is_shared", "location"}))
def test_a_method_takes_what_it_takes_there(name: str) -> None:
    ours, theirs = (inspect.signature(getattr(kind, name)).parameters for kind in (AsyncSessions, nacre.Sessions))
    assert list(ours.values()) == list(theirs.values())


@pytest.mark.parametrize("name", sorted(public(nacre.Sessions) - {"close", "follow", "hold"}))
def test_a_method_says_what_it_says_there(name: str) -> None:
    ours, theirs = (split_doc(getattr(kind, name))[0] for kind in (AsyncSessions, nacre.Sessions))
    assert ours == theirs


# What the plain classes have and these cannot: nothing of it can be awaited.
NOT_HERE = {
    "__enter__": "async with",
    "__exit__": "async with",
    "__contains__": "exists",
    "__len__": "length",
    "__iter__": "async for",
    "__bool__": "without a length it is always true",
}


@pytest.mark.parametrize(
    ("ours", "theirs", "more"),
    [
        (AsyncSessions, nacre.Sessions, {"__aenter__", "__aexit__", "__iter__", *OF_ASYNCIO}),
        (nacre.AsyncSession, nacre.Session, {"__aiter__", "length"}),
        (nacre.AsyncLease, Lease, set[str]()),
    ],
)
def test_nothing_of_the_plain_classes_is_missing(ours: type, theirs: type, more: set[str]) -> None:
    general = {*dir(Protocol), *vars(type("Any", (), {"__slots__": ()})), "__dict__", "__weakref__", "__annotations__"}
    found = [{name for name in dir(kind) if name[0] != "_" or name[:2] == "__"} - general for kind in (ours, theirs)]
    assert found[0] - more == found[1] - NOT_HERE.keys() - {"__protocol_attrs__", "__non_callable_proto_members__"}


def test_the_handle_of_a_session_takes_and_says_what_the_plain_one_does() -> None:
    for name in public(nacre.Session) - {"key", "meta", "summary"}:
        ours, theirs = getattr(nacre.AsyncSession, name), getattr(nacre.Session, name)
        assert inspect.iscoroutinefunction(ours)
        assert inspect.signature(ours).parameters == inspect.signature(theirs).parameters
        assert split_doc(ours)[0] == split_doc(theirs)[0]
    for name in ("meta", "summary"):
        assert inspect.iscoroutinefunction(getattr(nacre.AsyncSession, name))
        assert getattr(nacre.AsyncSession, name).__doc__ == getattr(nacre.Session, name).__doc__


def test_a_lease_takes_and_says_what_the_plain_one_does() -> None:
    for name in ("take", "take_over", "check", "close"):
        ours, theirs = getattr(nacre.AsyncLease, name), getattr(Lease, name)
        assert inspect.iscoroutinefunction(ours)
        assert inspect.signature(ours) == inspect.signature(theirs)
        assert str(inspect.getdoc(ours)).startswith(str(inspect.getdoc(theirs)).rstrip("."))
    assert [getattr(nacre.AsyncLease, name).__doc__ for name in ("key", "number")] == [
        getattr(Lease, name).__doc__ for name in ("key", "number")
    ]


@pytest.mark.parametrize(
    "name",
    sorted(
        public(nacre.Sessions)
        - {"follow", "is_durable", "is_shared", "list", "location", "records", "submit", "with_internal_keys", "within"}
    ),
)
def test_a_method_is_awaited(name: str) -> None:
    assert inspect.iscoroutinefunction(getattr(AsyncSessions, name))


def test_what_a_method_gives_is_what_it_gives_there(lasting_place: str) -> None:
    async def main() -> None:
        async with nacre.open_async(lasting_place) as sessions:
            number: int = await sessions.add_message("k", "user", "a")
            history: list[nacre.Message] = await sessions.get_history("k", last=1)
            length: int | None = await sessions.read("k", lambda view: len(list(view.all())))
            infos: list[nacre.SessionInfo] = [info async for info in sessions.list()]
            assert (number, [one.content for one in history], length, [one.key for one in infos]) == (
                2,
                ["a"],
                2,
                ["k"],
            )
            assert await sessions.submit("k", [user("b")]) == 3
            await sessions.set_meta("k", title="T")
            assert (await sessions.get_meta("k"), sessions.location) == ({"title": "T"}, lasting_place)

    run(main)


def test_a_method_that_gives_nothing_there_gives_nothing_here() -> None:
    async def main() -> None:
        async with nacre.open_async(":memory:") as sessions:
            calls: list[Awaitable[object]] = [
                sessions.set_history("k", [user("a")]),
                sessions.truncate_history("k", 1),
                sessions.set_meta("k", title="T"),
                sessions.clear("k"),
            ]
            assert [await call for call in calls] == [None] * 4

    run(main)


def test_a_part_of_the_sessions_is_a_part_here_too() -> None:
    async def main() -> None:
        async with nacre.open_async(":memory:") as sessions:
            async with sessions.within("guest:") as guests:
                await guests.add_message("guest:1", "user", "a")
                with pytest.raises(nacre.InvalidKey):
                    await guests.add_message("other", "user", "b")
                await guests.delete("other")
            assert [info.key async for info in sessions.list()] == ["guest:1"]
            await sessions.with_internal_keys().add_message("nacre:own", "user", "c")
            assert await sessions.exists("nacre:own")

    run(main)


def test_a_session_is_used_without_naming_its_key_again() -> None:
    async def main() -> None:
        async with nacre.open_async(":memory:") as sessions:
            session = sessions["k"]
            number: int = await session.append("user", "a")
            assert await session.append(user("b" * 40_000)) == number + 1
            await session.set_summary("S", upto=number)
            await session.set_meta(title="T")
            summary: str = await session.summary()
            meta: dict[str, Any] = await session.meta()
            length: int = await session.length()
            assert (summary, meta, length, repr(session)) == ("S", {"title": "T"}, 1, "AsyncSession('k')")
            assert [len(str(message.content)) async for message in session] == [40_000]

    run(main)


def test_sessions_are_not_taken_for_a_list() -> None:
    sessions: Any = nacre.open_async(":memory:")
    with pytest.raises(TypeError):
        iter(sessions)
    with pytest.raises(TypeError):
        assert "k" in sessions
    with pytest.raises(nacre.InvalidKey):
        sessions[""]


def test_the_meta_of_one_session_may_have_fields_of_any_name() -> None:
    async def main() -> None:
        async with nacre.open_async(":memory:") as sessions:
            await sessions["k"].set_meta({"id": 7, "expect": 8}, title="T", expect=0)
            assert await sessions["k"].meta() == {"id": 7, "expect": 8, "title": "T"}

    run(main)


# Turns


def test_a_turn_that_was_taken_over_stores_nothing_more() -> None:
    async def main() -> None:
        async with nacre.open_async(":memory:") as sessions:
            mine, other = await sessions.hold("k"), await sessions.hold("k")
            await mine.take()
            await sessions.append("k", "x.note", 1, lease=mine)
            await other.take_over()
            with pytest.raises(nacre.LeaseLost):
                await sessions.submit("k", [user("a")], lease=mine)
            await sessions.add_messages("k", [user("b")], lease=other)
            await other.close()
            assert (mine.key, mine.number, other.number) == ("k", 0, None)

    run(main)


def test_the_lease_of_another_session_is_refused_through_the_future() -> None:
    async def main() -> None:
        async with nacre.open_async(":memory:") as sessions:
            lease = await sessions.hold("other")
            with pytest.raises(nacre.InvalidArgument, match=r"taken, not AsyncLease\('other', number=None\)"):
                sessions.submit("k", [user("a")], lease=lease)
            await lease.take()
            with pytest.raises(nacre.InvalidArgument, match="of session 'k'"):
                await sessions.submit("k", [user("a")], lease=lease)
            assert not await sessions.exists("k")

    run(main)


def test_the_lease_of_a_session_is_that_of_its_other_names(root: Path) -> None:
    async def main() -> None:
        system = Gate()
        async with on(root, system) as sessions:
            await sessions.add_message("k", "user", "a")
            await sessions.add_alias("k", "other")
        async with on(root, system) as sessions:
            lease = await sessions.hold("other")
            await lease.take()
            assert await sessions.add_messages("other", [user("b")], lease=lease) == 4
        await lease.close()
        assert get_ident() not in system.callers

    run(main)


class SlowTurns(Gate):
    """A system on which somebody who wants a turn waits while the gate is closed."""

    def claim(self, fd: int, at: int) -> int:
        self.flushing.set()
        assert self.free.wait(WAIT)
        return super().claim(fd, at)


@pytest.mark.parametrize("how", ["take", "take_over"])
def test_a_turn_that_is_taken_after_its_task_was_cancelled_is_given_back(how: str, root: Path) -> None:
    async def main() -> None:
        system = SlowTurns()
        async with on(root, system) as sessions:
            await sessions.add_message("k", "user", "a")
            lease, other = await sessions.hold("k"), await sessions.hold("k")
            system.flushing.clear()
            system.free.clear()
            taking = asyncio.create_task(getattr(lease, how)())
            await flushing(system)
            taking.cancel()
            with pytest.raises(asyncio.CancelledError):
                await taking
            again = asyncio.create_task(lease.take())
            system.free.set()
            await again
            await lease.close()
            await other.take()
            await other.close()

    run(main)


class NotedLease:
    """A lease that notes what is done with it, and is taken when the gate is opened."""

    def __init__(self, lease: Lease) -> None:
        self.lease = lease
        self.key, self.number = lease.key, lease.number
        self.taking, self.free = Event(), Event()
        self.done: list[str] = []

    def take(self) -> None:
        self.taking.set()
        assert self.free.wait(WAIT)
        self.done.append("take")

    def take_over(self) -> None:
        self.done.append("take_over")

    def holder(self) -> int:
        return self.lease.holder()

    def check(self) -> None:
        self.done.append("check")

    def close(self) -> None:
        self.done.append("close")


def test_what_is_done_with_a_lease_is_done_in_the_order_of_the_calls() -> None:
    lease: NotedLease | None = None

    class Noting(nacre.Sessions):
        def hold(self, key: str) -> NotedLease:
            nonlocal lease
            lease = NotedLease(super().hold(key))
            return lease

    async def main() -> None:
        async with AsyncSessions(lambda: Noting(MemoryStore(rules=RULES))) as sessions:
            turn = await sessions.hold("k")
            assert lease is not None
            taking = asyncio.create_task(turn.take())
            assert await asyncio.to_thread(lease.taking.wait, WAIT)
            taking.cancel()
            closing, over = asyncio.create_task(turn.close()), asyncio.create_task(turn.take_over())
            # Its thread is begun after theirs.
            await sessions.save("other")
            lease.free.set()
            await asyncio.gather(closing, over)
            assert lease.done == ["take", "close", "close", "take_over"]

    run(main)


def test_a_turn_that_somebody_else_has_stays_theirs_when_a_take_is_cancelled(root: Path) -> None:
    async def main() -> None:
        async with on(root, SlowTurns()) as sessions:
            lease = await sessions.hold("k")
            await lease.take()
            taking = asyncio.create_task(lease.take())
            await asyncio.sleep(0)
            taking.cancel()
            with pytest.raises(asyncio.CancelledError):
                await taking
            await sessions.add_messages("k", [user("a")], lease=lease)
            await lease.close()

    run(main)


def test_a_turn_is_given_back_though_close_is_cancelled_or_comes_after_the_sessions_are_closed(
    lasting_place: str,
) -> None:
    async def main() -> None:
        async with nacre.open_async(lasting_place) as sessions:
            lease, other = await sessions.hold("k"), await sessions.hold("k")
            await lease.take()
            closing = asyncio.create_task(lease.close())
            await asyncio.sleep(0)
            closing.cancel()
            with pytest.raises(asyncio.CancelledError):
                await closing
            await lease.take()
        await lease.close()
        with pytest.raises(nacre.StoreError, match="the store is closed"):
            await other.take()
        async with nacre.open_async(lasting_place) as sessions:
            await (third := await sessions.hold("k")).take()
            await third.close()

    run(main)


def test_what_was_erased_is_not_given_out_by_those_who_read_on(lasting_place: str) -> None:
    async def main() -> None:
        async with nacre.open_async(lasting_place) as sessions:
            for _ in range(2):
                await sessions.append("k", "x.note", "long " * 20_000)
            async with aclosing(cast("AsyncGenerator[nacre.Entry]", sessions.records("k", "x.note"))) as entries:
                await anext(entries)
                await sessions.delete("k")
                assert [entry async for entry in entries] == []

    run(main)


# The loop is never blocked


async def _all(items: Any) -> list[object]:
    return [item async for item in items]


async def _closed(sessions: AsyncSessions) -> None:
    sessions.submit("k", [user("x")])
    await sessions.close()


async def _held(sessions: AsyncSessions) -> None:
    lease = await sessions.hold("k")
    await lease.take()
    assert await lease.holder() == os.getpid()
    await sessions.append("k", "x.note", 1, lease=lease)
    await lease.take_over()
    await lease.close()


async def _asked(sessions: AsyncSessions) -> bool:
    return sessions.is_durable and not sessions.is_shared


async def _located(sessions: AsyncSessions) -> str:
    return sessions.location


async def _prepared(sessions: AsyncSessions) -> None:
    # Without the extra `embeddings` it is refused.
    with suppress(nacre.ConfigError):
        await sessions.make_vectors()


async def _trashed(sessions: AsyncSessions, act: Callable[[str], Awaitable[None]]) -> None:
    await sessions.move_to_trash("k")
    await act((await sessions.list_trash())[0].id)


async def _unarchived(sessions: AsyncSessions) -> None:
    await sessions.archive("k")
    await sessions.unarchive("k")


async def _watched(sessions: AsyncSessions) -> None:
    (await sessions.watch()).close()


METHODS: dict[str, Callable[[AsyncSessions], Awaitable[object]]] = {
    "add_full_message": lambda sessions: sessions.add_full_message("k", user("x")),
    "add_message": lambda sessions: sessions.add_message("k", "user", "x"),
    "add_messages": lambda sessions: sessions.add_messages("k", [user("x")]),
    "add_alias": lambda sessions: sessions.add_alias("k", "other"),
    "aliases": lambda sessions: sessions.aliases("k"),
    "append": lambda sessions: sessions.append("k", "x.note", 1),
    "archive": lambda sessions: sessions.archive("k"),
    "blocking": lambda sessions: asyncio.to_thread(sessions.blocking.exists, "k"),
    "call": lambda sessions: sessions.call(lambda plain: plain.add_message("k", "user", "x")),
    "clear": lambda sessions: sessions.clear("k"),
    "close": _closed,
    "delete": lambda sessions: sessions.delete("k"),
    "discard": lambda sessions: sessions.discard("k"),
    "document": lambda sessions: sessions.document("feed"),
    "disk_usage": lambda sessions: sessions.disk_usage(["k"]),
    "erase_from_trash": lambda sessions: _trashed(sessions, sessions.erase_from_trash),
    "exists": lambda sessions: sessions.exists("k"),
    "finish_redactions": lambda sessions: sessions.finish_redactions(),
    "follow": lambda sessions: anext(sessions.follow("k")),
    "forget_aliases": lambda sessions: sessions.forget_aliases("k"),
    "fork": lambda sessions: sessions.fork("k", "new"),
    "free_key": lambda sessions: sessions.free_key("k"),
    "generation": lambda sessions: sessions.generation("k"),
    "get_history": lambda sessions: sessions.get_history("k"),
    "get_meta": lambda sessions: sessions.get_meta("k"),
    "get_summary": lambda sessions: sessions.get_summary("k"),
    "is_at": lambda sessions: sessions.is_at("k", nacre.Version()),
    "is_durable": _asked,
    "is_shared": _asked,
    "has_other_logs": lambda sessions: sessions.has_other_logs(["k"]),
    "hold": _held,
    "journal": lambda sessions: sessions.journal("task"),
    "key_of_file": lambda sessions: sessions.key_of_file(f"{sessions.location}/sessions/k.jsonl"),
    "list": lambda sessions: _all(sessions.list()),
    "list_trash": lambda sessions: sessions.list_trash(),
    "load": lambda sessions: sessions.load(),
    "location": _located,
    "log_size": lambda sessions: sessions.log_size("k"),
    "make_vectors": _prepared,
    "move_to_trash": lambda sessions: sessions.move_to_trash("k"),
    "page": lambda sessions: sessions.page(),
    "pop": lambda sessions: sessions.pop("k"),
    "quarantine": lambda sessions: sessions.quarantine(),
    "read": lambda sessions: sessions.read("k", lambda view: view.n),
    "read_generations": lambda sessions: sessions.read_generations("k", lambda view: view.n),
    "records": lambda sessions: _all(sessions.records("k")),
    "redact": lambda sessions: sessions.redact("k", 2),
    "remove_leftovers": lambda sessions: sessions.remove_leftovers(),
    "repair": lambda sessions: sessions.repair("k"),
    "resolve": lambda sessions: sessions.resolve("k"),
    "restore": lambda sessions: sessions.restore("k"),
    "restore_from_trash": lambda sessions: _trashed(sessions, sessions.restore_from_trash),
    "rewind": lambda sessions: sessions.rewind("k", 0),
    "save": lambda sessions: sessions.save("k"),
    "search": lambda sessions: sessions.search("a"),
    "set_history": lambda sessions: sessions.set_history("k", [user("x")]),
    "set_labels": lambda sessions: sessions.set_labels("k", title="x"),
    "set_meta": lambda sessions: sessions.set_meta("k", title="x"),
    "set_summary": lambda sessions: sessions.set_summary("k", "x"),
    "snapshot": lambda sessions: sessions.snapshot("k"),
    "status": lambda sessions: sessions.status("k"),
    "submit": lambda sessions: sessions.submit("k", [user("x")]),
    "transcript": lambda sessions: sessions.transcript("k"),
    "truncate_history": lambda sessions: sessions.truncate_history("k", 1),
    "unarchive": _unarchived,
    "update": lambda sessions: sessions.update("k", [user("x")]),
    "verify": lambda sessions: sessions.verify(),
    "watch": _watched,
    "with_internal_keys": lambda sessions: sessions.with_internal_keys().add_message("nacre:own", "user", "x"),
    "of": lambda sessions: AsyncSessions.of(sessions.blocking).exists("k"),
    "within": lambda sessions: sessions.within("k").add_message("k", "user", "x"),
    "[key].append": lambda sessions: sessions["k"].append("user", "x"),
    "[key].exists": lambda sessions: sessions["k"].exists(),
    "[key].extend": lambda sessions: sessions["k"].extend([user("x")]),
    "[key].length": lambda sessions: sessions["k"].length(),
    "[key].messages": lambda sessions: sessions["k"].messages(),
    "[key].meta": lambda sessions: sessions["k"].meta(),
    "[key].set_meta": lambda sessions: sessions["k"].set_meta(title="x"),
    "[key].set_summary": lambda sessions: sessions["k"].set_summary("x"),
    "[key].summary": lambda sessions: sessions["k"].summary(),
}


def test_every_method_is_among_those_that_are_tried_in_a_loop() -> None:
    assert METHODS.keys() == {
        *public(AsyncSessions),
        *(f"[key].{name}" for name in public(nacre.AsyncSession) - {"key"}),
    }


@pytest.mark.parametrize("name", METHODS)
def test_no_call_to_the_system_is_made_in_the_thread_of_the_loop(name: str, root: Path) -> None:
    async def main() -> None:
        system = Gate()
        async with on(root, system) as sessions:
            await sessions.add_messages("k", [user("a"), user("b")])
            await METHODS[name](sessions)
        assert system.callers
        assert get_ident() not in system.callers

    run(main)


def test_the_loop_runs_while_the_disk_does_not_answer(root: Path) -> None:
    async def main() -> None:
        system = Gate()
        async with on(root, system) as sessions:
            await sessions.add_message("k", "user", "a")
            system.flushing.clear()
            system.free.clear()
            calls: list[Coroutine[Any, Any, object]] = [
                *(sessions.add_message(key, "user", "b") for key in ("k", "k", "new")),
                sessions.set_summary("k", "S"),
            ]
            writes = [asyncio.create_task(call) for call in calls]
            await flushing(system)
            assert [one.content for one in await sessions.get_history("k", last=1)]
            assert not any(write.done() for write in writes)
            system.free.set()
            assert [type(await write) for write in writes] == [int, int, int, type(None)]

    run(main)


def test_reads_are_not_kept_waiting_by_any_number_of_writes_that_wait_for_the_disk(root: Path) -> None:
    async def main() -> None:
        system = Gate()
        async with on(root, system) as sessions:
            for number in range(40):
                await sessions.add_message(str(number), "user", "a")
            system.free.clear()
            writes = [asyncio.create_task(sessions.set_labels(str(number), title="T")) for number in range(40)]
            await flushing(system)
            assert len(await sessions.get_history("39")) == 1
            system.free.set()
            await asyncio.gather(*writes)

    run(main)


def test_a_function_that_reads_sees_the_context_variables_of_its_caller() -> None:
    async def main() -> None:
        name: ContextVar[str] = ContextVar("name")
        async with nacre.open_async(":memory:") as sessions:
            await sessions.add_message("k", "user", "a")
            name.set("caller")
            assert await sessions.read("k", lambda _: name.get()) == "caller"

    run(main)


def test_a_function_that_raises_stop_iteration_keeps_nobody_waiting() -> None:
    async def main() -> None:
        async with nacre.open_async(":memory:") as sessions:
            await sessions.add_message("k", "user", "a")
            with pytest.raises(RuntimeError, match="StopIteration"):
                await sessions.read("k", lambda _: next(iter(())))

    run(main)


# What is written


def test_what_was_submitted_first_is_written_first(lasting_place: str) -> None:
    numbers = list(map(str, range(200)))

    async def main() -> None:
        async with nacre.open_async(lasting_place) as sessions:
            futures = [sessions.submit("k", [user(number)]) for number in numbers]
            assert [await future for future in futures] == list(range(2, 202))

    run(main)
    assert kept(lasting_place) == numbers


def test_what_a_caller_changes_after_it_submitted_is_not_stored() -> None:
    async def main() -> None:
        async with nacre.open_async(":memory:") as sessions:
            parts = ["before"]
            future = sessions.submit("k", [{"role": "user", "content": parts}])
            parts[0] = "after"
            await future
            assert [one.content for one in await sessions.get_history("k")] == [["before"]]

    run(main)


@pytest.mark.parametrize("content", ["x" * 5_000_000, [{"type": "text", "text": "x" * 100}] * 1_000])
def test_a_long_message_is_stored_like_any_other(content: Any, place: str) -> None:
    async def main() -> None:
        async with nacre.open_async(place) as sessions:
            await sessions.add_full_message("k", nacre.Message(role="user", content=content))
            assert (await sessions.get_history("k"))[0].content == content

    run(main)


def test_a_message_without_an_end_is_refused() -> None:
    parts: list[Any] = []
    parts.append(parts)

    async def main() -> None:
        async with nacre.open_async(":memory:") as sessions:
            with pytest.raises(nacre.InvalidMessage):
                await sessions.add_full_message("k", {"role": "user", "content": parts})

    run(main)


def test_what_is_wrong_is_raised_as_it_is_there() -> None:
    async def main() -> None:
        async with nacre.open_async(":memory:") as sessions:
            with pytest.raises(nacre.InvalidKey):
                await sessions.add_message("", "user", "a")
            with pytest.raises(nacre.InvalidMessage):
                sessions.submit("k", [{"content": "no role"}])
            with pytest.raises(nacre.InvalidArgument):
                sessions.follow("k", after=1.5)  # type: ignore[arg-type]
            with pytest.raises(nacre.InvalidKey):
                await sessions.submit("nacre:new", [user("a")])
            with pytest.raises(nacre.Conflict):
                await sessions.add_messages("k", [user("a")], expect=7)
            assert [info async for info in sessions.list()] == []

    run(main)


# Cancelling


def test_a_write_that_was_cancelled_is_known_after_a_retry_under_its_id(root: Path) -> None:
    async def main() -> None:
        system = Gate()
        async with on(root, system) as sessions:
            system.free.clear()
            write = asyncio.create_task(sessions.add_messages("k", [user("a")], id="1"))
            await flushing(system)
            write.cancel()
            with pytest.raises(asyncio.CancelledError):
                await write
            system.free.set()
            assert await sessions.add_messages("k", [user("a")], id="1") == 2

    run(main)
    assert kept(root) == ["a"]


def test_a_future_tells_what_came_of_a_write_though_whoever_awaited_it_was_cancelled(root: Path) -> None:
    async def main() -> None:
        system = Gate()
        async with on(root, system) as sessions:
            system.free.clear()
            future = sessions.submit("k", [user("a")])
            waiter = asyncio.ensure_future(future)
            await flushing(system)
            waiter.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiter
            assert not future.done()
            system.free.set()
            assert (await future, future.done()) == (2, True)

    run(main)


def test_a_read_that_was_cancelled_holds_nobody_up() -> None:
    async def main() -> None:
        async with nacre.open_async(":memory:") as sessions:
            await sessions.add_message("k", "user", "a")
            reading, free = Event(), Event()

            def get(_: object) -> bool:
                reading.set()
                return free.wait(WAIT)

            read = asyncio.create_task(sessions.read("k", get))
            assert await asyncio.to_thread(reading.wait, WAIT)
            read.cancel()
            with pytest.raises(asyncio.CancelledError):
                await read
            free.set()
            assert await sessions.exists("k")

    run(main)


# Opening and closing


def test_sessions_that_are_not_open_yet_say_so() -> None:
    async def main() -> None:
        sessions = nacre.open_async(":memory:")
        for call in (sessions.add_message("k", "user", "a"), sessions.get_history("k"), sessions.save("k")):
            with pytest.raises(nacre.StoreError, match="async with"):
                await call
        await sessions.close()

    run(main)


def test_sessions_that_are_open_are_not_opened_again(root: Path) -> None:
    async def main() -> None:
        async with nacre.open_async(root) as sessions:
            with pytest.raises(nacre.StoreError, match="open already"):
                await sessions.__aenter__()
            assert await sessions.add_message("k", "user", "a") == 2

    run(main)


def test_a_place_that_cannot_be_opened_is_said_when_it_is_entered(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    before = threads()

    async def main() -> None:
        with pytest.raises(nacre.StoreError):
            async with nacre.open_async(tmp_path / "file"):
                pass

    run(main)
    assert threads() == before


def test_what_was_submitted_is_stored_when_the_context_is_left(lasting_place: str) -> None:
    async def main() -> None:
        async with nacre.open_async(lasting_place) as sessions:
            for number in range(300):
                sessions.submit(str(number % 30), [user("a")])

    run(main)
    assert [len(kept(lasting_place, str(number))) for number in range(30)] == [10] * 30


def test_closed_sessions_refuse_everything_and_are_closed_twice_without_harm(lasting_place: str) -> None:
    async def main() -> None:
        async with nacre.open_async(lasting_place) as sessions:
            await sessions.add_message("k", "user", "a")
        for call in (sessions.add_message("k", "user", "b"), sessions.get_history("k"), anext(sessions.follow("k"))):
            with pytest.raises(nacre.StoreError, match="the store is closed"):
                await call
        with pytest.raises(nacre.StoreError, match="the store is closed"):
            sessions.submit("k", [user("b")])
        await sessions.close()

    run(main)
    assert kept(lasting_place) == ["a"]


def test_a_close_that_was_cancelled_loses_nothing(root: Path) -> None:
    async def main() -> None:
        system = Gate()
        sessions = await on(root, system).__aenter__()
        system.free.clear()
        future = sessions.submit("k", [user("a")])
        closing = asyncio.create_task(sessions.close())
        await flushing(system)
        closing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await closing
        system.free.set()
        await sessions.close()
        assert future.result(0) == 2

    run(main)
    assert kept(root) == ["a"]


def test_a_flush_that_fails_when_relaxed_sessions_are_closed_is_raised(root: Path) -> None:
    class Failing(System):
        def fdatasync(self, fd: int) -> None:
            raise OSError(5, "Input/output error")

        def rename(self, old: str, new: str) -> None:
            raise OSError(5, "Input/output error")

    async def main() -> None:
        store = FileStore(str(root), rules=RULES, system=Failing(), durability="relaxed")
        sessions = await AsyncSessions(lambda: nacre.Sessions(store)).__aenter__()
        await sessions.add_message("k", "user", "a")
        with pytest.raises(nacre.StoreError, match="Input/output error"):
            await sessions.close()

    run(main)


def test_no_thread_is_left_when_they_are_closed(lasting_place: str) -> None:
    before = threads()

    async def main() -> None:
        async with nacre.open_async(lasting_place) as sessions:
            await asyncio.gather(*(sessions.add_message(str(number), "user", "a") for number in range(50)))
            await asyncio.gather(*(sessions.get_history(str(number)) for number in range(50)))

    run(main)
    assert threads() == before


# Loops and processes


def test_a_loop_that_ends_while_something_is_written_loses_nothing(root: Path) -> None:
    system = Gate()
    sessions = on(root, system)

    async def begin() -> None:
        await sessions.__aenter__()
        system.free.clear()
        sessions.submit("k", [user("a")])
        task = asyncio.create_task(sessions.add_message("k", "user", "b"))
        await flushing(system)
        task.cancel()

    run(begin)
    system.free.set()
    run(sessions.close)
    assert kept(root) == ["a", "b"]


def test_loops_one_after_another_may_use_the_same_sessions(lasting_place: str) -> None:
    sessions = nacre.open_async(lasting_place)

    async def write(text: str) -> object:
        await sessions.add_message("k", "user", text)
        async with aclosing(sessions.follow("k")) as entries:
            return (await texts(entries, 1))[0]

    run(sessions.__aenter__)
    assert [run(lambda: write("a")), run(lambda: write("b"))] == ["a", "a"]
    run(sessions.close)
    assert kept(lasting_place) == ["a", "b"]


def test_two_loops_may_use_the_same_sessions_at_once(lasting_place: str) -> None:
    sessions = nacre.open_async(lasting_place)

    async def write() -> None:
        async with aclosing(sessions.follow("k")) as entries:
            await asyncio.gather(*(sessions.add_message("k", "user", "a") for _ in range(50)))
            assert len(await texts(entries, 100)) == 100

    run(sessions.__aenter__)
    loops = [Thread(target=run, args=(write,)) for _ in range(2)]
    for thread in loops:
        thread.start()
    for thread in loops:
        thread.join(WAIT)
    run(sessions.close)
    assert len(kept(lasting_place)) == 100


def test_the_child_of_a_fork_uses_threads_of_its_own(lasting_place: str) -> None:
    program = """
import asyncio, os, sys, nacre
sessions = nacre.open_async(sys.argv[1])
async def write(text):
    await sessions.add_message("k", "user", text)
    entry = await anext(sessions.follow("k"))
    return len(await sessions.get_history("k"))
async def begin():
    await sessions.__aenter__()
    await write("parent")
asyncio.run(begin())
child = os.fork()
if not child:
    assert asyncio.run(write("child")) == 2
    asyncio.run(sessions.close())
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
assert asyncio.run(write("parent again")) == 3
asyncio.run(sessions.close())
"""
    subprocess.run([sys.executable, "-c", program, lasting_place], check=True, timeout=WAIT)
    assert kept(lasting_place) == ["parent", "child", "parent again"]


def test_what_was_submitted_when_a_program_ends_is_stored(lasting_place: str) -> None:
    program = """
import asyncio, sys, nacre
async def main():
    sessions = await nacre.open_async(sys.argv[1]).__aenter__()
    for number in range(100):
        sessions.submit(str(number % 10), [{"role": "user", "content": "a"}])
asyncio.run(main())
"""
    subprocess.run([sys.executable, "-c", program, lasting_place], check=True, timeout=WAIT)
    assert [len(kept(lasting_place, str(number))) for number in range(10)] == [10] * 10


def test_importing_nacre_does_not_load_it() -> None:
    program = "import nacre, sys; nacre.open(':memory:'); print('nacre.async_sessions' in sys.modules)"
    assert subprocess.check_output([sys.executable, "-c", program], text=True) == "False\n"


def test_a_thread_that_cannot_be_started_is_an_error_and_not_a_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    def unstartable(_: Thread) -> None:
        raise RuntimeError("can't start new thread")

    async def main() -> None:
        async with nacre.open_async(":memory:") as sessions:
            with monkeypatch.context() as patch:
                patch.setattr(Thread, "start", unstartable)
                with pytest.raises(nacre.StoreError, match="nothing was stored: can't start new thread"):
                    await sessions.add_message("k", "user", "a")
            assert await sessions.add_message("k", "user", "b") == 2

    run(main)


def test_a_signal_that_strikes_while_a_write_is_queued_keeps_no_other_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    def strike(_: Thread) -> None:
        raise TimeoutError("the turn took too long")

    async def main() -> None:
        async with nacre.open_async(":memory:") as sessions:
            with monkeypatch.context() as patch:
                patch.setattr(Thread, "start", strike)
                with pytest.raises(TimeoutError):
                    await sessions.add_message("k", "user", "a")
            await asyncio.wait_for(sessions.add_message("k", "user", "b"), WAIT)
            assert (await sessions.get_history("k"))[-1].content == "b"

    run(main)


# Following


def test_what_is_there_comes_first_and_then_what_is_written(place: str) -> None:
    async def main() -> None:
        async with nacre.open_async(place) as sessions:
            await sessions.add_messages("k", [user(str(number)) for number in range(600)])
            async with aclosing(sessions.follow("k")) as entries:
                assert await texts(entries, 600) == [str(number) for number in range(600)]
                new = asyncio.create_task(texts(entries, 2))
                await sessions.add_messages("k", [user("b"), user("c")])
                assert await new == ["b", "c"]

    run(main)


def test_a_session_that_is_not_there_yet_is_waited_for(place: str) -> None:
    async def main() -> None:
        async with nacre.open_async(place) as sessions, aclosing(sessions.follow("k")) as entries:
            first = asyncio.create_task(texts(entries, 1))
            await sessions.add_message("other", "user", "a")
            await sessions.add_message("k", "user", "b")
            assert await first == ["b"]

    run(main)


def test_a_new_generation_follows_an_archived_one(place: str) -> None:
    async def main() -> None:
        async with nacre.open_async(place) as sessions, aclosing(sessions.follow("k")) as entries:
            await sessions.add_message("k", "user", "a")
            assert await texts(entries, 1) == ["a"]
            await sessions.archive("k")
            await sessions.add_message("k", "user", "b")
            assert await texts(entries, 1) == ["b"]

    run(main)


def test_what_another_process_writes_comes(lasting_place: str) -> None:
    async def main() -> None:
        async with nacre.open_async(lasting_place) as sessions, aclosing(sessions.follow("k")) as entries:
            other = await asyncio.create_subprocess_exec(sys.executable, "-c", WRITE, lasting_place, "from afar")
            assert await texts(entries, 1) == ["from afar"]
            assert await other.wait() == 0

    run(main)


def test_a_record_comes_only_when_it_is_durable(root: Path) -> None:
    async def main() -> None:
        system = Gate()
        async with on(root, system) as sessions, aclosing(sessions.follow("k")) as entries:
            await sessions.add_message("k", "user", "a")
            assert await texts(entries, 1) == ["a"]
            system.flushing.clear()
            system.free.clear()
            future = sessions.submit("k", [user("b")])
            new = asyncio.create_task(texts(entries, 1))
            await flushing(system)
            assert [one.content for one in await sessions.get_history("k")] == ["a", "b"]
            assert not new.done()
            system.free.set()
            assert (await new, future.result(WAIT)) == (["b"], 3)

    run(main)


def test_where_changes_are_not_reported_they_are_looked_for(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> tuple[int, int]:
        raise OSError(24, "Too many open files")

    async def main() -> None:
        monkeypatch.setattr("ctypes.CDLL", lambda *_, **__: object())
        monkeypatch.setattr(os, "pipe", fail)
        async with nacre.open_async(place) as sessions, aclosing(sessions.follow("k")) as entries:
            await sessions.add_message("k", "user", "a")
            assert await texts(entries, 1) == ["a"]
            new = asyncio.create_task(texts(entries, 1))
            await sessions.add_message("k", "user", "b")
            assert await new == ["b"]

    run(main)


def test_who_does_not_take_what_comes_holds_nobody_else_up(place: str) -> None:
    async def main() -> None:
        async with (
            nacre.open_async(place) as sessions,
            aclosing(sessions.follow("k")) as slow,
            aclosing(sessions.follow("k")) as quick,
        ):
            await sessions.add_message("k", "user", "0")
            assert await texts(slow, 1) == ["0"]
            await sessions.add_messages("k", [user(str(number)) for number in range(1, 2_000)])
            assert len(await texts(quick, 2_000)) == 2_000
            assert len(await texts(slow, 1_999)) == 1_999

    run(main)


def test_those_who_follow_are_told_when_the_sessions_are_closed(place: str) -> None:
    async def main() -> None:
        async with nacre.open_async(place) as sessions:
            await sessions.add_message("k", "user", "a")
            entries = sessions.follow("k")
            assert await texts(entries, 1) == ["a"]
            following = asyncio.create_task(texts(entries, 1))
        with pytest.raises(nacre.StoreError, match="the store is closed"):
            await following

    run(main)


def descriptors() -> set[Path]:
    return set(Path("/proc/self/fd").iterdir())


def test_nothing_is_left_of_five_hundred_who_followed(place: str) -> None:
    async def main() -> None:
        async with nacre.open_async(place) as sessions:
            keys = [str(number) for number in range(50)]
            await asyncio.gather(*(sessions.add_message(key, "user", "a") for key in keys))
            before, is_complete = len(descriptors()), asyncio.Event()
            came: list[int] = []

            async def follow(key: str) -> None:
                async for entry in sessions.follow(key, after=1):
                    came.append(entry.n)
                    if len(came) == 500:
                        is_complete.set()

            tasks = [asyncio.create_task(follow(key)) for key in keys * 10]
            await is_complete.wait()
            # One watch (a pipe has two ends), a log for each thread that reads, and the lock of turns.
            assert len(descriptors()) - before < 25
            # Those that read, and with a database those of its pool, its notices and its watchdog.
            assert active_count() - threads_before < 50
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            assert len(asyncio.all_tasks()) == 2

    descriptors_before, threads_before = descriptors(), threads()
    run(main)
    # Others of this process may have ended meanwhile.
    assert threads() <= threads_before
    assert descriptors() <= descriptors_before


def test_plain_sessions_can_be_awaited_and_stay_open(root: Path) -> None:
    with nacre.open(root) as plain:

        async def main() -> None:
            async with AsyncSessions.of(plain) as sessions:
                await sessions.add_message("k", "user", "awaited")

        run(main)
        plain.add_message("k", "user", "called")
        assert [message.content for message in plain.get_history("k")] == ["awaited", "called"]


def test_steps_that_belong_together_run_in_a_thread_also_if_nobody_waits_any_more(root: Path) -> None:
    async def main() -> None:
        begun, free = Event(), Event()

        def steps(plain: nacre.Sessions) -> int:
            begun.set()
            free.wait()
            plain.add_message("k", "user", "first")
            return plain.add_message("k", "user", "second")

        async with nacre.open_async(root) as sessions:
            call = asyncio.create_task(sessions.call(steps))
            await asyncio.to_thread(begun.wait)
            call.cancel()
            free.set()
        with nacre.open(root) as plain:
            assert [message.content for message in plain.get_history("k")] == ["first", "second"]

    run(main)


def test_sessions_that_are_not_open_any_more_or_yet_give_no_plain_ones(root: Path) -> None:
    async def main() -> None:
        sessions = nacre.open_async(root)
        with pytest.raises(nacre.StoreError, match="not open"):
            sessions.blocking.exists("k")
        async with sessions:
            assert not sessions.blocking.exists("k")
        with pytest.raises(nacre.StoreError, match="closed"):
            sessions.blocking  # noqa: B018

    run(main)


# ---- the threads that work for a loop


def _number(n: int, _: nacre.Sessions) -> int:
    return n


def _keep(done: list[int], n: int, _: nacre.Sessions) -> None:
    done.append(n)


def test_calls_that_wait_for_each_other_all_get_a_thread(place: str) -> None:
    together = Barrier(10)

    async def main() -> int:
        async with nacre.open_async(place) as sessions:
            # Warm, so that a thread is waiting on which the first of them counts.
            await sessions.call(lambda _: None)
            met = [sessions.call(lambda _: together.wait(60)) for _ in range(10)]
            return len(set(await asyncio.gather(*met)))

    assert asyncio.run(main()) == 10


def test_more_calls_than_threads_are_all_made(place: str) -> None:
    async def main() -> int:
        async with nacre.open_async(place) as sessions:
            made = await asyncio.gather(*(sessions.call(partial(_number, n)) for n in range(1000)))
            return len(set(made))

    assert asyncio.run(main()) == 1000


def test_a_call_that_is_cancelled_before_it_began_is_not_made(place: str) -> None:
    may_end = Event()
    made: list[int] = []

    async def main() -> None:
        async with nacre.open_async(place) as sessions:
            # All threads are taken.
            taken = [asyncio.ensure_future(sessions.call(lambda _: may_end.wait(60))) for _ in range(16)]
            await asyncio.sleep(0)
            waiting = asyncio.ensure_future(sessions.call(lambda _: made.append(1)))
            await asyncio.sleep(0)
            waiting.cancel()
            await asyncio.wait({waiting})
            may_end.set()
            await asyncio.gather(*taken)
            await sessions.call(lambda _: made.append(2))

    asyncio.run(main())
    assert made == [2]


def test_what_was_called_is_done_before_the_store_is_closed(place: str) -> None:
    done: list[int] = []

    async def main() -> None:
        sessions = nacre.open_async(place)
        await sessions.__aenter__()
        for n in range(50):
            asyncio.ensure_future(sessions.call(partial(_keep, done, n)))  # noqa: RUF006 - closing waits for it
        await asyncio.sleep(0)
        await sessions.close()
        with pytest.raises(nacre.StoreError, match="closed"):
            await sessions.call(lambda _: done.append(99))

    asyncio.run(main())
    assert sorted(done) == list(range(50))
