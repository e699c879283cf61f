"""What NacreSession promises beyond the SDK's protocol: stores, other writers, cancelled callers, erased content."""

from __future__ import annotations

import asyncio
import gc
import subprocess
import sys
import time
import weakref
from collections.abc import Awaitable, Callable
from random import Random
from threading import Event
from typing import Any

import pytest
from agents import SessionSettings
from agents.memory import Session, is_openai_responses_compaction_aware_session
from agents.memory import session as sdk_session
from hypothesis import given, settings
from hypothesis import strategies as st

import nacre
from nacre.integrations.openai_agents import NacreSession, to_messages
from tests.event_loop import assert_loop_goes_on, async_methods

HELLO: Any = {"role": "user", "content": "hello"}
CALL: Any = {"type": "function_call", "call_id": "c1", "name": "ls", "arguments": "{}"}
RESULT: Any = {"type": "function_call_output", "call_id": "c1", "output": "a.py"}


def question(n: int) -> Any:
    return {"role": "user", "content": f"question {n}"}


def test_it_is_a_session_that_leaves_compaction_to_its_wrapper() -> None:
    with nacre.open(":memory:") as sessions:
        session = NacreSession("s", sessions)
        assert isinstance(session, Session)
        assert not is_openai_responses_compaction_aware_session(session)


def test_it_is_there_after_a_restart(lasting_place: str) -> None:
    async def add() -> None:
        async with nacre.open_async(lasting_place) as sessions:
            await NacreSession("s", sessions).add_items([HELLO, CALL, RESULT])

    asyncio.run(add())
    with nacre.open(lasting_place) as sessions:
        assert asyncio.run(NacreSession("s", sessions).get_items()) == [HELLO, CALL, RESULT]
        assert [message.role for message in sessions.get_history("s")] == ["user", "assistant", "tool"]


def test_async_sessions_may_be_opened_later(root: Any) -> None:
    async def run() -> list[Any]:
        later = nacre.open_async(root)
        session = NacreSession("s", later)
        async with later:
            await session.add_items([HELLO])
            return await session.get_items()

    assert asyncio.run(run()) == [HELLO]


def test_what_others_write_is_seen_at_once(place: str) -> None:
    async def run(sessions: nacre.Sessions) -> None:
        one, other = NacreSession("s", sessions), NacreSession("s", sessions)
        await one.add_items([question(0)])
        assert await one.get_items(2) == [question(0)]
        await other.add_items([question(1)])
        assert await one.get_items(2) == [question(0), question(1)]
        assert await other.pop_item() == question(1)
        assert await one.get_items(2) == [question(0)]
        await other.clear_session()
        assert await one.get_items(2) == []

    with nacre.open(place) as sessions:
        asyncio.run(run(sessions))


def test_what_another_process_writes_is_seen_at_once(root: Any) -> None:
    code = (
        "import asyncio, nacre, sys; from nacre.integrations.openai_agents import NacreSession\n"
        "x = {'role': 'user', 'content': 'x'}\n"
        "with nacre.open(sys.argv[1]) as s: asyncio.run(NacreSession('s', s).add_items([x]))"
    )

    async def run(sessions: nacre.Sessions) -> None:
        session = NacreSession("s", sessions)
        await session.add_items([HELLO])
        assert await session.get_items(5) == [HELLO]
        await asyncio.to_thread(subprocess.run, [sys.executable, "-c", code, str(root)], check=True)
        assert await session.get_items(5) == [HELLO, {"role": "user", "content": "x"}]

    with nacre.open(root) as sessions:
        asyncio.run(run(sessions))


def test_items_that_are_remembered_are_not_those_of_the_caller() -> None:
    async def run(sessions: nacre.Sessions) -> None:
        session = NacreSession("s", sessions)
        await session.add_items([{"role": "user", "content": "hello"}])
        for _ in range(3):
            found: Any = await session.get_items(5)
            assert found == [HELLO]
            found[0]["content"] = "changed"

    with nacre.open(":memory:") as sessions:
        asyncio.run(run(sessions))


def test_long_items_are_read_as_they_were_given_whatever_is_remembered() -> None:
    long: list[Any] = [{"role": "user", "content": f"{n}" * 400_000} for n in range(6)]

    async def run(sessions: nacre.Sessions) -> None:
        for item in long:
            # A server makes a session for each request.
            await NacreSession("s", sessions).add_items([item])
            await NacreSession("s", sessions).get_items(2)
        assert await NacreSession("s", sessions).get_items(2) == long[-2:]
        assert await NacreSession("s", sessions).get_items() == long

    with nacre.open(":memory:") as sessions:
        asyncio.run(run(sessions))


def test_many_sessions_of_one_store_each_have_their_own_items() -> None:
    async def run(sessions: nacre.Sessions) -> None:
        for n in range(100):
            session = NacreSession(f"s{n % 70}", sessions)
            await session.add_items([{"role": "user", "content": f"{n}"}])
            await session.get_items(5)
        for n in range(70):
            expected = [n, n + 70] if n < 30 else [n]
            items: list[Any] = await NacreSession(f"s{n}", sessions).get_items(5)
            assert [item["content"] for item in items] == [f"{one}" for one in expected]

    with nacre.open(":memory:") as sessions:
        asyncio.run(run(sessions))


def test_sessions_that_nobody_has_any_more_are_forgotten_with_what_was_remembered() -> None:
    sessions = nacre.open(":memory:")
    asyncio.run(NacreSession("s", sessions).add_items([HELLO]))
    sessions.close()
    seen = weakref.ref(sessions)
    del sessions
    deadline = time.monotonic() + 30
    while seen() is not None and time.monotonic() < deadline:
        # The threads of the sessions end a moment after their last work.
        gc.collect()
        time.sleep(0.01)
    assert seen() is None


def test_an_erased_item_is_not_remembered(place: str) -> None:
    async def run(sessions: nacre.Sessions) -> None:
        session = NacreSession("s", sessions)
        await session.add_items([HELLO, CALL, RESULT])
        assert await session.get_items(5) == [HELLO, CALL, RESULT]
        for number in sessions.snapshot("s").numbers:
            sessions.redact("s", number)
        assert await session.get_items(5) == [
            {"role": "user", "content": "[erased]"},
            CALL,
            {**RESULT, "output": "[erased]"},
        ]

    with nacre.open(place) as sessions:
        asyncio.run(run(sessions))


def test_messages_of_others_are_items_and_can_be_popped_one_by_one(place: str) -> None:
    calls = [{"id": f"c{n}", "type": "function", "function": {"name": "ls", "arguments": "{}"}} for n in (1, 2)]

    async def run(sessions: nacre.Sessions) -> None:
        sessions.add_messages("s", [{"role": "user", "content": "ls"}, {"role": "assistant", "tool_calls": calls}])
        sessions.add_messages("s", [{"role": "tool", "content": "a", "tool_call_id": "c1"}])
        session = NacreSession("s", sessions)
        items = await session.get_items()
        assert [item.get("type") for item in items] == [
            None,
            "function_call",
            "function_call",
            "function_call_output",
            "function_call_output",
        ]
        while items:
            assert await session.get_items(2) == items[-2:]
            assert await session.pop_item() == items.pop()
            assert await session.get_items() == items
        assert await session.pop_item() is None

    with nacre.open(place) as sessions:
        asyncio.run(run(sessions))


@pytest.mark.parametrize("seed", range(40))
def test_whatever_others_store_between_the_items_each_pop_takes_the_last_one(seed: int) -> None:
    random = Random(seed)

    async def run(sessions: nacre.Sessions) -> None:
        session = NacreSession("s", sessions)
        for n in range(random.randint(3, 14)):
            call = {"id": f"c{n}", "type": "function", "function": {"name": "ls", "arguments": "{}"}}
            kind = random.choice(["ours", "theirs", "call", "result", "result"])
            if kind == "ours":
                await session.add_items([question(n)])
            elif kind == "theirs":
                sessions.add_full_message("s", {"role": "user", "content": f"theirs {n}"})
            elif kind == "call":
                sessions.add_full_message("s", {"role": "assistant", "tool_calls": [call]})
            else:
                earlier = f"c{random.randint(max(0, n - 3), n)}"
                sessions.add_full_message("s", {"role": "tool", "content": f"result {n}", "tool_call_id": earlier})
        items = await session.get_items()
        while items:
            assert await session.get_items(3) == items[-3:]
            assert await session.pop_item() == items.pop()
            assert await session.get_items() == items
        assert await session.pop_item() is None

    with nacre.open(":memory:") as sessions:
        asyncio.run(run(sessions))


def test_the_last_item_is_popped_whatever_others_have_written_last(place: str) -> None:
    async def run(sessions: nacre.Sessions) -> None:
        session = NacreSession("s", sessions)
        await session.add_items([HELLO, CALL])
        sessions.add_full_message("s", {"role": "tool", "content": "a.py", "tool_call_id": "c1"})
        # They are no items: a note, and a result without a call.
        sessions.add_full_message("s", nacre.Message(role="", extra={"type": "note"}))
        sessions.add_full_message("s", {"role": "tool", "content": "b.py", "tool_call_id": "c2"})
        assert await session.get_items() == [HELLO, CALL, RESULT]
        assert await session.pop_item() == RESULT
        sessions.add_full_message("s", nacre.Message(role="", extra={"type": "note"}))
        assert [await session.pop_item() for _ in range(3)] == [CALL, HELLO, None]

    with nacre.open(place) as sessions:
        asyncio.run(run(sessions))


mixed = st.lists(
    st.sampled_from(
        [
            [HELLO],
            [CALL],
            [RESULT],
            nacre.Message(role="user", content="x"),
            nacre.Message(role="", extra={"type": "note"}),
            nacre.Message(role="assistant", content="x"),
            nacre.Message(role="assistant", tool_calls=(nacre.ToolCall(id="c1", name="ls", arguments="{}"),)),
            nacre.Message(
                role="assistant",
                tool_calls=tuple(nacre.ToolCall(id=id, name="ls", arguments="{}") for id in ("c2", "c3")),
            ),
            *(nacre.Message(role="tool", content="a.py", tool_call_id=id) for id in ("c1", "c2", "c3")),
        ]
    ),
    max_size=8,
)


def ids_once(script: list[Any]) -> bool:
    """Tell whether others use no id twice: which of two is given another depends on how much is read."""
    ids = [call.id for one in script if isinstance(one, nacre.Message) for call in one.tool_calls]
    return len(ids) == len(set(ids))


@settings(max_examples=200)
@given(mixed.filter(ids_once), st.integers(1, 4))
def test_a_limit_gives_the_end_of_all_items_whoever_wrote_them(script: list[Any], limit: int) -> None:
    async def run(sessions: nacre.Sessions) -> None:
        session, items = NacreSession("s", sessions), list[Any]()
        for one in script:
            if isinstance(one, list):
                await session.add_items(one)
            else:
                sessions.add_full_message("s", one)
            items = await session.get_items()
            assert await session.get_items(limit) == items[-limit:]
        while items:
            assert await session.pop_item() == items[-1]
            # A call of others whose result was taken off has been interrupted.
            items = await session.get_items()
            assert await session.get_items(limit) == items[-limit:]

    with nacre.open(":memory:") as sessions:
        asyncio.run(run(sessions))


def test_the_result_of_a_call_of_others_takes_the_place_of_the_words_for_it(place: str) -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "ls", "arguments": "{}"}}

    async def run(sessions: nacre.Sessions) -> None:
        session = NacreSession("s", sessions)
        sessions.add_full_message("s", {"role": "assistant", "content": None, "tool_calls": [call]})
        for limit in (None, 10):
            assert await session.get_items(limit) == [CALL, {**RESULT, "output": "interrupted, outcome unknown"}]
        await session.add_items([RESULT])
        for limit in (None, 10):
            assert await session.get_items(limit) == [CALL, RESULT]

    with nacre.open(place) as sessions:
        asyncio.run(run(sessions))


def test_an_archived_session_is_not_there_and_begins_again(place: str) -> None:
    async def run(sessions: nacre.Sessions) -> None:
        session = NacreSession("s", sessions)
        await session.add_items([HELLO, CALL])
        assert await session.get_items(5) == [HELLO, CALL]
        sessions.archive("s")
        for _ in range(2):
            assert await session.get_items() == await session.get_items(5) == []
            assert await session.pop_item() is None
            await session.clear_session()
        assert sessions.status("s") == "archived"
        await session.add_items([RESULT])
        assert await session.get_items() == await session.get_items(5) == [RESULT]

    with nacre.open(place) as sessions:
        asyncio.run(run(sessions))


WRITES: dict[str, Callable[[NacreSession], Awaitable[Any]]] = {
    "add_items": lambda session: session.add_items([question(1)]),
    "pop_item": lambda session: session.pop_item(),
    "clear_session": lambda session: session.clear_session(),
    "_atomic_replace_items": lambda session: session._atomic_replace_items([question(1)]),
}


@pytest.mark.parametrize("method", WRITES)
@pytest.mark.parametrize("end", ["delete", "archive"])
def test_what_another_process_has_deleted_or_archived_begins_again(lasting_place: str, method: str, end: str) -> None:
    async def run(sessions: nacre.Sessions, other: nacre.Sessions) -> None:
        session = NacreSession("s", sessions)
        await session.add_items([HELLO])
        getattr(other, end)("s")
        await WRITES[method](session)
        expected = [question(1)] if "items" in method else []
        assert await session.get_items() == await session.get_items(5) == expected

    with nacre.open(lasting_place) as sessions, nacre.open(lasting_place) as other:
        asyncio.run(run(sessions, other))


def test_a_cancelled_append_is_done_when_the_caller_goes_on() -> None:
    begun, goes_on = Event(), Event()

    class SlowSessions(nacre.Sessions):
        """Sessions whose append waits in the thread."""

        def add_messages(self, *args: Any, **named: Any) -> int:
            begun.set()
            goes_on.wait()
            return super().add_messages(*args, **named)

    async def run(sessions: nacre.Sessions) -> list[Any]:
        session = NacreSession("s", sessions)
        adding = asyncio.ensure_future(session.add_items([HELLO]))
        await asyncio.to_thread(begun.wait)
        for _ in range(2):
            adding.cancel()
            await asyncio.sleep(0)
        assert not adding.done()
        goes_on.set()
        with pytest.raises(asyncio.CancelledError):
            await adding
        return await session.get_items()

    with nacre.open(":memory:") as sessions:
        slow = SlowSessions.__new__(SlowSessions)
        slow.__dict__ |= vars(sessions)
        assert asyncio.run(run(slow)) == [HELLO]


def test_cancelled_appends_are_stored_or_not_and_leave_no_thread_waiting(place: str) -> None:
    async def run(sessions: nacre.Sessions) -> None:
        for delay in range(200):
            session = NacreSession(f"s{delay}", sessions)
            adding = asyncio.ensure_future(session.add_items([HELLO, CALL]))
            for _ in range(delay % 5):
                await asyncio.sleep(0)
            adding.cancel()
            await asyncio.gather(adding, return_exceptions=True)
            found = await session.get_items()
            assert found in ([], [HELLO, CALL])
            assert await session.get_items() == found
        # More than there are threads: if one waited for good, these would too.
        work = (NacreSession(f"t{n}", sessions).add_items([HELLO]) for n in range(40))
        await asyncio.wait_for(asyncio.gather(*work), 60)

    with nacre.open(place) as sessions:
        asyncio.run(run(sessions))


MANY = [question(n) for n in range(1000)]
AWAITED: dict[str, Callable[[NacreSession], Awaitable[Any]]] = {
    "get_items": lambda session: session.get_items(),
    "add_items": lambda session: session.add_items(MANY),
    "pop_item": lambda session: session.pop_item(),
    "clear_session": lambda session: session.clear_session(),
    "_atomic_replace_items": lambda session: session._atomic_replace_items(MANY),
}


@pytest.mark.parametrize("method", AWAITED)
def test_no_call_blocks_the_event_loop(method: str) -> None:
    assert_loop_goes_on(
        lambda sessions: sessions.add_messages("s", to_messages(MANY)),
        lambda sessions: AWAITED[method](NacreSession("s", sessions)),
        most=500,
    )


def test_every_method_is_tried_in_the_event_loop() -> None:
    assert async_methods(NacreSession) <= set(AWAITED)


def test_a_history_is_replaced_in_one_step(place: str) -> None:
    async def run(sessions: nacre.Sessions) -> None:
        session = NacreSession("s", sessions)
        await session.add_items([question(0), question(1)])
        before = len(list(sessions.records("s")))
        assert await session._atomic_replace_items([HELLO, CALL, RESULT])
        assert await session.get_items() == [HELLO, CALL, RESULT]
        # What was replaced stays in the transcript.
        assert len(list(sessions.records("s"))) > before

    with nacre.open(place) as sessions:
        asyncio.run(run(sessions))


@pytest.mark.skipif(not hasattr(sdk_session, "_CompactionSnapshot"), reason="since 0.23 of the SDK")
def test_a_compaction_replaces_the_end_in_one_step_or_not_at_all(place: str) -> None:
    summary: Any = {"type": "compaction", "encrypted_content": "x"}

    async def run(sessions: nacre.Sessions) -> None:
        session = NacreSession("s", sessions)
        await session.add_items([question(n) for n in range(6)])
        snapshot = await session._get_compaction_snapshot(4, prune_prefix=lambda item: item == question(0))
        assert snapshot.items == [question(n) for n in range(2, 6)]
        assert not snapshot.complete
        assert await snapshot.replace_suffix(2, [summary])
        assert await session.get_items() == [question(1), question(2), question(3), summary]
        assert not await snapshot.replace_suffix(2, [summary])
        assert (await session._get_compaction_snapshot(4)).complete
        assert await session._atomic_replace_items([summary])
        assert await session.get_items() == [summary]

    with nacre.open(place) as sessions:
        asyncio.run(run(sessions))


@pytest.mark.parametrize("limit", [SessionSettings(limit=1), {"limit": 1}])
def test_the_settings_limit_what_is_read(limit: Any) -> None:
    async def run(sessions: nacre.Sessions) -> None:
        session = NacreSession("s", sessions, session_settings=limit)
        await session.add_items([question(0), question(1)])
        assert await session.get_items() == [question(1)]
        assert await session.get_items(2) == [question(0), question(1)]

    with nacre.open(":memory:") as sessions:
        asyncio.run(run(sessions))


@pytest.mark.parametrize("id", ["", None, 7, "a\0b"])
def test_a_wrong_id_is_refused_at_the_door(id: Any) -> None:
    with nacre.open(":memory:") as sessions, pytest.raises(nacre.InvalidKey):
        NacreSession(id, sessions)


def test_sessions_of_a_wrong_type_are_refused_at_the_door() -> None:
    wrong: Any = ":memory:"
    with pytest.raises(nacre.InvalidArgument, match="sessions"):
        NacreSession("s", wrong)


@pytest.mark.parametrize("items", ["text", {"role": "user", "content": "x"}, 7, None])
def test_items_that_are_no_list_are_refused_and_nothing_is_stored(items: Any) -> None:
    with nacre.open(":memory:") as sessions:
        with pytest.raises(nacre.InvalidArgument, match="items"):
            asyncio.run(NacreSession("s", sessions).add_items(items))
        assert not sessions.exists("s")


@pytest.mark.parametrize("limit", ["1", 1.5, True, [1]])
def test_a_limit_that_is_no_number_is_refused(limit: Any) -> None:
    with nacre.open(":memory:") as sessions, pytest.raises(nacre.InvalidArgument, match="limit"):
        asyncio.run(NacreSession("s", sessions).get_items(limit))


@pytest.mark.parametrize("role", ["user", ""])
@pytest.mark.parametrize("mark", [5, "text", True, None, ["a"]])
def test_what_others_keep_under_the_name_does_not_make_it_unreadable(mark: Any, role: str) -> None:
    async def run(sessions: nacre.Sessions) -> None:
        session = NacreSession("s", sessions)
        await session.add_items([question(0)])
        sessions.add_full_message(
            "s",
            nacre.Message(role=role, content="theirs" if role else None, extra={"type": "item", "openai_agents": mark}),
        )
        theirs = [{"role": "user", "content": "theirs"}] if role else []
        assert await session.get_items() == [question(0), *theirs]
        assert await session.get_items(1) == [question(0), *theirs][-1:]
        assert await session.pop_item() == [question(0), *theirs][-1]

    with nacre.open(":memory:") as sessions:
        asyncio.run(run(sessions))
