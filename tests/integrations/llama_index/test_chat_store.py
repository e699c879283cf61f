"""Chats are read as they were given, in both kinds of LlamaIndex's stores, and by its memories."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Awaitable, Callable
from inspect import signature
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from llama_index.core.base.llms.types import ChatMessage, ImageBlock, MessageRole, TextBlock
from llama_index.core.memory import ChatMemoryBuffer, Memory
from llama_index.core.storage.chat_store import SimpleChatStore
from llama_index.core.storage.chat_store.base_db import MessageStatus
from llama_index.core.storage.chat_store.sql import SQLAlchemyChatStore

import nacre
from nacre.integrations.llama_index import NacreAsyncChatStore, NacreChatStore
from tests.event_loop import assert_loop_goes_on, async_methods

CALL = {"id": "c1", "type": "function", "function": {"name": "ls", "arguments": "{}"}}
MESSAGES = [
    ChatMessage("hello"),
    ChatMessage(""),
    ChatMessage(role="user", blocks=[]),
    ChatMessage("\ud800"),
    ChatMessage("a", role="assistant", additional_kwargs={"tool_calls": [CALL], "x": [1]}),
    ChatMessage("a.py", role="tool", additional_kwargs={"tool_call_id": "c1", "name": "ls"}),
    ChatMessage(role="user", blocks=[TextBlock(text="look"), ImageBlock(image=b"\x89PNG", image_mimetype="image/png")]),
    ChatMessage(role="user", blocks=[TextBlock(text="a"), TextBlock(text="b")]),
    *(ChatMessage("x", role=role) for role in MessageRole),
]
messages = st.sampled_from(MESSAGES)


def dump(found: Any) -> Any:
    if isinstance(found, list):
        return [dump(one) for one in found]
    return found.model_dump(mode="json") if isinstance(found, ChatMessage) else found


def contents(found: list[ChatMessage]) -> list[str | None]:
    return [one.content for one in found]


# ---- as the stores of LlamaIndex

keys = st.sampled_from(["a", "b"])
steps = st.one_of(
    st.tuples(st.just("set_messages"), keys, st.lists(messages, min_size=1, max_size=4)),
    st.tuples(st.just("add_message"), keys, messages),
    st.tuples(st.just("get_messages"), keys),
    st.tuples(st.just("delete_messages"), keys),
    st.tuples(st.just("delete_message"), keys, st.integers(0, 4)),
    st.tuples(st.just("delete_last_message"), keys),
    st.tuples(st.just("others"), keys, st.sampled_from(["theirs", "And in Oslo?"])),
)
ASYNC = {"add_message": "async_add_message"}


@pytest.mark.filterwarnings("ignore")
@settings(max_examples=150, deadline=None)
@given(st.lists(steps, max_size=20), st.booleans())
def test_it_says_what_the_simple_store_says(script: list[Any], is_async: bool) -> None:
    with nacre.open(":memory:") as sessions:
        ours, theirs = NacreChatStore(sessions), SimpleChatStore()
        for name, key, *rest in script:
            if not theirs.get_messages(key):
                # There a key without messages is a key, and its last message an IndexError.
                theirs.store.pop(key, None)
            if name == "others":
                sessions.add_message(key, "user", rest[0])
                theirs.add_message(key, ChatMessage(rest[0]))
                assert dump(ours.get_messages(key)) == dump(theirs.get_messages(key))
                continue
            expected = getattr(theirs, name)(key, *[list(it) if isinstance(it, list) else it for it in rest])
            if is_async:
                found = asyncio.run(getattr(ours, ASYNC.get(name, f"a{name}"))(key, *rest))
            else:
                found = getattr(ours, name)(key, *rest)
            assert dump(found) == dump(expected)
            assert dump(ours.get_messages(key)) == dump(theirs.get_messages(key))
            assert ours.get_keys() == sorted(one for one in theirs.get_keys() if theirs.get_messages(one))


CALL = {"id": "c1", "type": "function", "function": {"name": "clock", "arguments": "{}"}}
THEIRS: list[dict[str, Any]] = [
    {"role": "user", "content": "theirs"},
    {"role": "assistant", "content": None, "tool_calls": [CALL]},
    {"role": "tool", "content": "Noon.", "tool_call_id": "c1"},
    {"role": "tool", "content": "Nobody asked.", "tool_call_id": "c2"},
    {"role": "", "type": "item"},
]


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.sampled_from(THEIRS) | st.sampled_from(["ours", "and this"]), max_size=9),
    st.sampled_from(["delete_message", "delete_last_message", "delete_oldest_messages", "archive_oldest_messages"]),
    st.integers(-4, 9),
)
def test_indices_and_counts_are_those_of_what_is_shown(written: list[Any], name: str, number: int) -> None:
    with nacre.open(":memory:") as sessions:
        store, memory = NacreChatStore(sessions), NacreAsyncChatStore(sessions)
        for one in written:
            if isinstance(one, str):
                store.add_message("k", ChatMessage(one))
            else:
                sessions.add_full_message("k", one)
        shown = dump(store.get_messages("k"))
        if "oldest" in name:
            found = asyncio.run(getattr(memory, name)("k", max(number, 0)))
            expected, rest = shown[: max(number, 0)], shown[max(number, 0) :]
        else:
            at = -1 if name == "delete_last_message" else number
            found = store.delete_last_message("k") if name == "delete_last_message" else store.delete_message("k", at)
            is_there = -len(shown) <= at < len(shown)
            expected = shown[at] if is_there else None
            rest = [one for place, one in enumerate(shown) if not is_there or place != at % len(shown)]
        assert dump(found) == expected
        # A call whose result was taken out is still a call, and the other way around.
        assert dump(store.get_messages("k")) == rest
        if name == "archive_oldest_messages":
            assert dump(asyncio.run(memory.get_messages("k", MessageStatus.ARCHIVED))) == expected


statuses = st.sampled_from(list(MessageStatus))
async_steps = st.one_of(
    st.tuples(st.just("add_message"), messages, statuses),
    st.tuples(st.just("add_messages"), st.lists(messages, min_size=1, max_size=3), statuses),
    st.tuples(st.just("set_messages"), st.lists(messages, max_size=3), statuses),
    st.tuples(st.just("delete_messages"), st.none() | statuses),
    st.tuples(st.just("delete_oldest_messages"), st.integers(0, 3)),
    st.tuples(st.just("archive_oldest_messages"), st.integers(0, 3)),
    st.tuples(st.just("get_messages"), st.none() | statuses, st.integers(0, 3), st.integers(0, 3)),
    st.tuples(st.just("count_messages"), st.none() | statuses),
)


@pytest.mark.filterwarnings("ignore")
@settings(max_examples=50, deadline=None)
@given(st.lists(async_steps, max_size=12))
def test_it_says_what_the_sql_store_says(script: list[Any]) -> None:
    async def play() -> None:
        theirs = SQLAlchemyChatStore(table_name="t")
        async with nacre.open_async(":memory:") as sessions:
            ours = NacreAsyncChatStore(sessions)
            for name, *rest in script:
                assert dump(await getattr(ours, name)("k", *rest)) == dump(await getattr(theirs, name)("k", *rest)), (
                    name
                )
                for status in (*MessageStatus, None):
                    assert dump(await ours.get_messages("k", status)) == dump(await theirs.get_messages("k", status))
        if theirs._async_engine is not None:
            await theirs._async_engine.dispose()

    asyncio.run(play())


# ---- memories


def test_a_buffer_goes_on_where_it_was(lasting_place: str) -> None:
    for number in range(2):
        with nacre.open(lasting_place) as sessions:
            memory = ChatMemoryBuffer.from_defaults(
                chat_store=NacreChatStore(sessions), chat_store_key="c1", tokenizer_fn=str.split
            )
            memory.put(ChatMessage(f"question {number}"))
            memory.put(ChatMessage(f"answer {number}", role="assistant"))
    with nacre.open(lasting_place) as sessions:
        assert contents(NacreChatStore(sessions).get_messages("c1")) == [
            "question 0",
            "answer 0",
            "question 1",
            "answer 1",
        ]


@pytest.mark.skipif(
    Memory.model_fields["sql_store"].annotation is SQLAlchemyChatStore,
    reason="the Memory of this version of LlamaIndex takes only its own store",
)
def test_a_memory_archives_what_does_not_fit(lasting_place: str) -> None:
    async def talk() -> list[ChatMessage]:
        async with nacre.open_async(lasting_place) as sessions:
            memory = Memory(
                session_id="c1",
                sql_store=cast("Any", NacreAsyncChatStore(sessions)),
                token_limit=30,
                chat_history_token_ratio=0.5,
                token_flush_size=5,
                tokenizer_fn=str.split,
            )
            for number in range(8):
                await memory.aput(ChatMessage(f"question {number} is long"))
                await memory.aput(ChatMessage(f"answer {number} is long", role="assistant"))
            return await memory.aget()

    kept = asyncio.run(talk())

    async def look() -> None:
        async with nacre.open_async(lasting_place) as sessions:
            store = NacreAsyncChatStore(sessions)
            active = await store.get_messages("c1")
            assert contents(active) == contents(kept)
            archived = await store.get_messages("c1", MessageStatus.ARCHIVED)
            assert len(archived) + len(active) == 16
            assert archived
            assert contents(await store.get_messages("c1", None)) == contents(archived + active)
            assert [one.content for one in await sessions.get_history("c1")] == contents(active)

    asyncio.run(look())


@pytest.mark.skipif(
    "chat_store" not in signature(Memory.from_defaults).parameters,
    reason="Memory.from_defaults of this version of LlamaIndex takes only its own store",
)
def test_a_memory_with_defaults_goes_on_where_it_was(lasting_place: str) -> None:
    async def talk(question: str) -> list[str | None]:
        async with nacre.open_async(lasting_place) as sessions:
            store = NacreAsyncChatStore(sessions)
            memory = cast("Any", Memory).from_defaults(session_id="c1", chat_store=store, tokenizer_fn=str.split)
            await memory.aput(ChatMessage(question))
            return contents(await memory.aget())

    assert asyncio.run(talk("question 0")) == ["question 0"]
    assert asyncio.run(talk("question 1")) == ["question 0", "question 1"]


def test_what_is_stored_is_a_conversation(place: str) -> None:
    with nacre.open(place) as sessions:
        store = NacreChatStore(sessions)
        for message in (MESSAGES[0], *MESSAGES[4:7]):
            store.add_message("c1", message)
        history = sessions.get_history("c1")
        assert [(one.role, one.tool_call_id) for one in history] == [
            ("user", None),
            ("assistant", None),
            ("tool", "c1"),
            ("user", None),
        ]
        assert [one.content for one in history[:3]] == ["hello", "a", "a.py"]
        assert [call.name for call in history[1].tool_calls] == ["ls"]
        assert all("json" not in one.extra["llama_index"] for one in history)


def test_a_conversation_of_others_is_read(place: str) -> None:
    with nacre.open(place) as sessions:
        sessions.add_message("c1", "user", "Which files?")
        sessions.add_full_message("c1", {"role": "assistant", "content": None, "tool_calls": [CALL]})
        sessions.add_full_message("c1", {"role": "tool", "content": "a.py", "tool_call_id": "c1"})
        store = NacreChatStore(sessions)
        found = store.get_messages("c1")
        assert [(one.role.value, one.content or "") for one in found] == [
            ("user", "Which files?"),
            ("assistant", ""),
            ("tool", "a.py"),
        ]
        assert found[1].additional_kwargs["tool_calls"][0]["id"] == found[2].additional_kwargs["tool_call_id"] == "c1"
        assert store.get_keys() == ["c1"]


# ---- what nacre does to the session meanwhile

TURN = [
    ChatMessage("Which files?"),
    ChatMessage("I look.", role="assistant", additional_kwargs={"tool_calls": [CALL, {**CALL, "id": "c2"}]}),
    ChatMessage("a.py", role="tool", additional_kwargs={"tool_call_id": "c1"}),
    ChatMessage("b.py", role="tool", additional_kwargs={"tool_call_id": "c2"}),
    ChatMessage("Two.", role="assistant"),
]


@pytest.mark.parametrize("at", range(5))
def test_an_erased_message_is_the_only_one_that_changes(at: int, place: str) -> None:
    with nacre.open(place) as sessions:
        store = NacreChatStore(sessions)
        store.set_messages("c1", TURN)
        sessions.redact("c1", sessions.snapshot("c1").numbers[at])
        found = store.get_messages("c1")
        assert contents(found) == [*contents(TURN[:at]), "[erased]", *contents(TURN[at + 1 :])]
        assert [call["id"] for call in found[1].additional_kwargs["tool_calls"]] == ["c1", "c2"]
        assert [one.additional_kwargs["tool_call_id"] for one in found[2:4]] == ["c1", "c2"]


def test_messages_that_a_rewind_brings_back_are_not_archived(place: str) -> None:
    with nacre.open(place) as sessions:
        store = NacreAsyncChatStore(sessions)

        async def of(status: MessageStatus | None) -> list[str | None]:
            return contents(await store.get_messages("c1", status))

        async def play() -> None:
            await store.add_messages("c1", [ChatMessage(text) for text in "abc"])
            before = sessions.snapshot("c1").n
            await store.archive_oldest_messages("c1", 2)
            sessions.rewind("c1", before)
            assert (await of(MessageStatus.ACTIVE), await of(MessageStatus.ARCHIVED)) == (["a", "b", "c"], [])
            await store.archive_oldest_messages("c1", 1)
            assert (await of(MessageStatus.ACTIVE), await of(MessageStatus.ARCHIVED)) == (["b", "c"], ["a"])
            assert await of(None) == ["a", "b", "c"]

        asyncio.run(play())


def test_an_archived_session_is_not_there_and_begins_again(place: str) -> None:
    async def play(store: NacreAsyncChatStore) -> None:
        await store.add_messages("c1", TURN)
        await store.archive_oldest_messages("c1", 1)
        sessions.archive("c1")
        for status in (*MessageStatus, None):
            assert await store.get_messages("c1", status) == []
            await store.delete_messages("c1", status)
        assert await store.delete_message("c1", 0) is None
        assert await store.delete_oldest_messages("c1", 1) == await store.archive_oldest_messages("c1", 1) == []
        assert (sessions.status("c1"), await store.get_keys()) == ("archived", [])
        await store.add_message("c1", TURN[0], MessageStatus.ARCHIVED)
        assert contents(await store.get_messages("c1", None)) == contents(TURN[:1])

    def play_blocking(store: NacreChatStore) -> None:
        store.set_messages("c2", TURN)
        sessions.archive("c2")
        assert [store.get_messages("c2"), store.delete_messages("c2"), store.delete_last_message("c2")] == [
            [],
            None,
            None,
        ]
        assert (sessions.status("c2"), store.get_keys()) == ("archived", [])
        store.add_message("c2", TURN[0])
        assert contents(store.get_messages("c2")) == contents(TURN[:1])

    with nacre.open(place) as sessions:
        asyncio.run(play(NacreAsyncChatStore(sessions)))
        play_blocking(NacreChatStore(sessions))


def test_a_write_after_another_process_has_deleted_or_archived_the_session(root: Path) -> None:
    async def play(sessions: nacre.Sessions, other: nacre.Sessions) -> None:
        store, awaited = NacreChatStore(sessions), NacreAsyncChatStore(sessions)
        writes: list[Callable[[], Any]] = [
            lambda: store.add_message("k", TURN[0]),
            lambda: store.set_messages("k", TURN[:1]),
            lambda: store.delete_messages("k"),
            lambda: store.delete_message("k", 0),
            lambda: store.delete_last_message("k"),
            lambda: awaited.add_message("k", TURN[0]),
            lambda: awaited.set_messages("k", TURN[:1]),
            lambda: awaited.delete_message("k", 0),
            lambda: awaited.delete_messages("k"),
            lambda: awaited.delete_oldest_messages("k", 1),
            lambda: awaited.archive_oldest_messages("k", 1),
        ]
        for at, write in enumerate(writes):
            for end in (other.archive, other.delete):
                store.set_messages("k", TURN)
                end("k")
                done = write()
                if asyncio.iscoroutine(done):
                    await done
                assert contents(store.get_messages("k")) == (contents(TURN[:1]) if at in (0, 1, 5, 6) else [])

    with nacre.open(root) as sessions, nacre.open(root) as other:
        asyncio.run(play(sessions, other))


# ---- wrong arguments, the event loop, and a process that is killed


@pytest.mark.parametrize("kind", [NacreChatStore, NacreAsyncChatStore])
def test_arguments_are_checked(kind: Any) -> None:
    for wrong in (None, "place", object()):
        with pytest.raises(nacre.InvalidArgument, match="Sessions or AsyncSessions"):
            kind(wrong)
    with nacre.open(":memory:") as sessions:
        for key in ("", None, 7, "\0"):
            with pytest.raises(nacre.InvalidKey):
                asyncio.run(kind(sessions).get_messages(key))
        with pytest.raises(nacre.InvalidMessage):
            NacreChatStore(sessions).add_message("k", "text")  # type: ignore[arg-type]


@pytest.mark.parametrize("status", ["bogus", 7, [], None])
def test_a_status_must_be_one(status: Any) -> None:
    async def play(store: NacreAsyncChatStore) -> None:
        await store.add_message("k", ChatMessage("x"))
        acts = [store.add_message("k", ChatMessage("y"), status), store.set_messages("k", [ChatMessage("y")], status)]
        if status is not None:
            acts += [store.get_messages("k", status), store.delete_messages("k", status)]  # type: ignore[list-item]
        for act in acts:
            with pytest.raises(nacre.InvalidArgument, match="MessageStatus"):
                await act
        assert contents(await store.get_messages("k", None)) == ["x"]

    with nacre.open(":memory:") as sessions:
        asyncio.run(play(NacreAsyncChatStore(sessions)))


def test_what_comes_after_a_cancelled_change_is_stored_after_it(root: Path) -> None:
    begun, goes_on = threading.Event(), threading.Event()

    class Slow(nacre.Sessions):
        def set_history(self, *args: Any, **named: Any) -> None:
            begun.set()
            goes_on.wait()
            super().set_history(*args, **named)

    async def main(sessions: nacre.Sessions) -> list[str | None]:
        store = NacreChatStore(sessions)
        first = asyncio.create_task(store.aset_messages("k", [ChatMessage("old")]))
        await asyncio.to_thread(begun.wait)
        first.cancel()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert not first.done()
        goes_on.set()
        await asyncio.gather(first, return_exceptions=True)
        assert first.cancelled()
        await store.aset_messages("k", [ChatMessage("new")])
        return contents(store.get_messages("k"))

    with nacre.open(root) as sessions:
        sessions.__class__ = Slow
        assert asyncio.run(main(sessions)) == ["new"]


MANY = [ChatMessage(f"{n}") for n in range(1000)]
OF_CALLS: dict[str, Callable[[NacreChatStore], Awaitable[Any]]] = {
    "aset_messages": lambda store: store.aset_messages("k", MANY),
    "aget_messages": lambda store: store.aget_messages("k"),
    "async_add_message": lambda store: store.async_add_message("k", MANY[0]),
    "adelete_messages": lambda store: store.adelete_messages("k"),
    "adelete_message": lambda store: store.adelete_message("k", 0),
    "adelete_last_message": lambda store: store.adelete_last_message("k"),
    "aget_keys": lambda store: store.aget_keys(),
}
AWAITED: dict[str, Callable[[NacreAsyncChatStore], Awaitable[Any]]] = {
    "get_messages": lambda store: store.get_messages("k", None),
    "count_messages": lambda store: store.count_messages("k"),
    "add_message": lambda store: store.add_message("k", MANY[0]),
    "add_messages": lambda store: store.add_messages("k", MANY),
    "set_messages": lambda store: store.set_messages("k", MANY),
    "delete_message": lambda store: store.delete_message("k", 0),
    "delete_messages": lambda store: store.delete_messages("k"),
    "delete_oldest_messages": lambda store: store.delete_oldest_messages("k", 900),
    "archive_oldest_messages": lambda store: store.archive_oldest_messages("k", 900),
    "get_keys": lambda store: store.get_keys(),
}


def fill(sessions: nacre.Sessions) -> None:
    NacreChatStore(sessions).set_messages("k", MANY)


@pytest.mark.parametrize("method", OF_CALLS)
def test_no_call_blocks_the_event_loop(method: str) -> None:
    assert_loop_goes_on(fill, lambda sessions: OF_CALLS[method](NacreChatStore(sessions)), most=500)


@pytest.mark.parametrize("method", AWAITED)
def test_no_call_of_the_async_store_blocks_the_event_loop(method: str) -> None:
    assert_loop_goes_on(fill, lambda sessions: AWAITED[method](NacreAsyncChatStore(sessions)), most=500)


def test_every_method_is_tried_in_the_event_loop() -> None:
    assert async_methods(NacreChatStore) == set(OF_CALLS)
    assert async_methods(NacreAsyncChatStore) == set(AWAITED)


CHILD = """
import sys, nacre
from llama_index.core.base.llms.types import ChatMessage
from nacre.integrations.llama_index import NacreChatStore
store = NacreChatStore(nacre.open(sys.argv[1]))
for n in range(int(sys.argv[3])):
    store.add_message("c1", ChatMessage(f"{sys.argv[2]} {n}"))
    print(n, flush=True)
"""


def start(place: str, who: str, count: int) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, "-c", CHILD, place, who, str(count)], stdout=subprocess.PIPE, text=True)


def test_two_processes_lose_nothing(lasting_place: str) -> None:
    children = [start(lasting_place, who, 30) for who in ("one", "two")]
    assert [child.communicate()[0].count("\n") for child in children] == [30, 30]
    with nacre.open(lasting_place) as sessions:
        found = contents(NacreChatStore(sessions).get_messages("c1"))
        assert sorted(map(str, found)) == sorted(f"{who} {n}" for who in ("one", "two") for n in range(30))


def test_what_was_acknowledged_survives_a_kill(lasting_place: str) -> None:
    child = start(lasting_place, "one", 100_000)
    assert child.stdout is not None
    seen = [child.stdout.readline() for _ in range(20)]
    os.kill(child.pid, signal.SIGKILL)
    seen += child.communicate()[0].splitlines()
    with nacre.open(lasting_place) as sessions:
        found = contents(NacreChatStore(sessions).get_messages("c1"))
        assert len(found) in (len(seen), len(seen) + 1)
        assert found == [f"one {n}" for n in range(len(found))]


@pytest.mark.parametrize("erased", range(5))
def test_every_call_has_one_result_after_erasing(erased: int, place: str) -> None:
    calls = [CALL, {**CALL, "id": "c2"}]
    said = [
        ChatMessage("Where?"),
        ChatMessage(role="assistant", additional_kwargs={"tool_calls": calls}),
        ChatMessage("a.py", role="tool", additional_kwargs={"tool_call_id": "c1"}),
        ChatMessage("b.py", role="tool", additional_kwargs={"tool_call_id": "c2"}),
        ChatMessage("There.", role="assistant"),
    ]
    with nacre.open(place) as sessions:
        store = NacreChatStore(sessions)
        store.set_messages("k", said)
        sessions.redact("k", sessions.snapshot("k").numbers[erased])
        found = store.get_messages("k")
        assert [one.role for one in found] == [one.role for one in said]
        assert [one["id"] for one in found[1].additional_kwargs["tool_calls"]] == ["c1", "c2"]
        assert [one.additional_kwargs["tool_call_id"] for one in found[2:4]] == ["c1", "c2"]
        assert [one.content for one in found].count("[erased]") == 1


@pytest.mark.parametrize("role", ["user", ""])
@pytest.mark.parametrize("mark", [5, "text", True, None, ["a"]])
def test_what_others_keep_under_the_name_does_not_make_it_unreadable(mark: Any, role: str) -> None:
    with nacre.open(":memory:") as sessions:
        store = NacreChatStore(sessions)
        store.add_message("k", ChatMessage("ours"))
        sessions.add_full_message(
            "k",
            nacre.Message(role=role, content="theirs" if role else None, extra={"type": "item", "llama_index": mark}),
        )
        assert contents(store.get_messages("k")) == (["ours", "theirs"] if role else ["ours"])
        assert contents(asyncio.run(NacreAsyncChatStore(sessions).get_messages("k", None)))[0] == "ours"
        store.delete_message("k", 0)
        assert contents(store.get_messages("k")) == (["theirs"] if role else [])
