"""Wrong arguments are refused at the door; no awaited call blocks the event loop, or goes on after its caller."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from threading import Event
from typing import Any
from uuid import uuid4

import pytest
from langchain_core.messages import HumanMessage
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.graph import START, MessagesState, StateGraph

import nacre
from nacre.integrations.langgraph import NacreSaver, read_messages
from tests.event_loop import assert_loop_goes_on, async_methods

THREAD: Any = {"configurable": {"thread_id": "t", "checkpoint_ns": ""}}


def make_checkpoint(messages: Sequence[HumanMessage] = (HumanMessage("hello", id="h"),)) -> Any:
    values = {"messages": [*messages]}
    return {**empty_checkpoint(), "channel_values": values, "channel_versions": {"messages": 1}}


@pytest.mark.parametrize("wrong", [None, "place", object(), NacreSaver])
def test_sessions_are_needed(wrong: Any) -> None:
    with pytest.raises(nacre.InvalidArgument, match="sessions must be Sessions or AsyncSessions"):
        NacreSaver(wrong)
    with pytest.raises(nacre.InvalidArgument, match="sessions must be Sessions or AsyncSessions"):
        read_messages(wrong, "t")


def test_the_history_is_read_from_sessions_of_both_kinds() -> None:
    async def read() -> list[str]:
        async with nacre.open_async(":memory:") as sessions:
            await sessions.add_message("k", "user", "hello")
            found = [read_messages(sessions, "k"), await sessions.call(lambda plain: read_messages(plain, "k"))]
            return [message.text for messages in found for message in messages]

    assert asyncio.run(read()) == ["hello", "hello"]


@pytest.mark.parametrize("config", [{}, {"configurable": {}}, None, {"configurable": None}])
def test_a_thread_id_is_needed(config: Any) -> None:
    with nacre.open(":memory:") as sessions:
        saver = NacreSaver(sessions)
        for call in calls_with(saver, config):
            with pytest.raises(nacre.InvalidArgument, match="the config needs a thread_id"):
                call()
        assert [*sessions.list()] == []


@pytest.mark.parametrize("id", ["", None, 7, b"t", "a\ud800", "\x00"])
def test_a_thread_id_is_a_key(id: Any) -> None:
    with nacre.open(":memory:") as sessions:
        saver = NacreSaver(sessions)
        config: Any = {"configurable": {"thread_id": id, "checkpoint_ns": "", "checkpoint_id": "1"}}
        by_id: list[Callable[[], object]] = [
            lambda: saver.delete_thread(id),
            lambda: saver.copy_thread(id, "t"),
            lambda: saver.copy_thread("t", id),
        ]
        for call in [*calls_with(saver, config)[1:], *by_id]:
            with pytest.raises(nacre.InvalidKey):
                call()
        assert [*sessions.list()] == []


def calls_with(saver: NacreSaver, config: Any) -> list[Callable[[], object]]:
    """Calls of each method that takes a config, the awaited ones too."""
    return [
        lambda: saver.get_tuple(config),
        lambda: saver.put(config, make_checkpoint(), {}, {"messages": 1}),
        lambda: saver.put_writes(config, [("a", 1)], "task"),
        lambda: saver.get_delta_channel_history(config=config, channels=["a"]),
        lambda: asyncio.run(saver.aget_tuple(config)),
        lambda: asyncio.run(saver.aput(config, make_checkpoint(), {}, {"messages": 1})),
        lambda: asyncio.run(saver.aput_writes(config, [("a", 1)], "task")),
    ]


@pytest.mark.parametrize("wrong", [{"checkpoint_ns": 7}, {"checkpoint_id": 7}, {"checkpoint_id": ["1"]}])
def test_names_in_a_config_are_texts(wrong: dict[str, Any]) -> None:
    with nacre.open(":memory:") as sessions:
        for call in calls_with(NacreSaver(sessions), {"configurable": {"thread_id": "t", **wrong}}):
            with pytest.raises(nacre.InvalidArgument, match="must be texts"):
                call()


def test_writes_need_the_checkpoint_that_they_follow() -> None:
    with nacre.open(":memory:") as sessions, pytest.raises(nacre.InvalidArgument, match="checkpoint_id"):
        NacreSaver(sessions).put_writes(THREAD, [("a", 1)], "task")


def test_lists_of_ids_and_a_strategy_are_checked() -> None:
    with nacre.open(":memory:") as sessions:
        saver = NacreSaver(sessions)
        wrong: Any
        for wrong in ("thread", [7], [None]):
            for call in (saver.prune, saver.delete_for_runs):
                with pytest.raises(nacre.InvalidArgument, match="a list of ids is needed"):
                    call(wrong)
        with pytest.raises(nacre.InvalidArgument, match="strategy must be"):
            saver.prune(["t"], strategy="oldest")


def test_a_value_that_cannot_be_stored_changes_nothing() -> None:
    with nacre.open(":memory:") as sessions:
        saver = NacreSaver(sessions)
        saver.put(THREAD, make_checkpoint(), {}, {"messages": 1})
        before = saver.get_tuple(THREAD)
        wrong = make_checkpoint()
        wrong["channel_values"]["value"] = {"too large": 2**70}
        wrong["channel_versions"]["value"] = 1
        with pytest.raises(TypeError):
            saver.put(THREAD, wrong, {}, {"messages": 1, "value": 1})
        assert saver.get_tuple(THREAD) == before
        assert NacreSaver(nacre.AsyncSessions.of(sessions)).get_tuple(THREAD) == before


def test_a_copy_never_replaces_a_session() -> None:
    with nacre.open(":memory:") as sessions:
        saver = NacreSaver(sessions)
        saver.put(THREAD, make_checkpoint(), {}, {"messages": 1})
        sessions.add_message("other", "user", "Here already.")
        with pytest.raises(nacre.Conflict):
            saver.copy_thread("t", "other")
        assert [one.content for one in sessions.get_history("other")] == ["Here already."]


# ---- the event loop


async def list_all(saver: NacreSaver) -> int:
    return len([one async for one in saver.alist(THREAD)])


PUT: Any = {"configurable": {"thread_id": "t", "checkpoint_ns": "", "checkpoint_id": "1"}}
MANY = [HumanMessage(f"message {at}", id=f"m{at}") for at in range(1000)]
MORE = [*MANY, HumanMessage("one more", id="more")]
AWAITED: dict[str, Callable[[NacreSaver], Awaitable[object]]] = {
    "aget_tuple": lambda saver: saver.aget_tuple(THREAD),
    "alist": list_all,
    "aput": lambda saver: saver.aput(PUT, make_checkpoint(MORE), {}, {"messages": 1}),
    "aput_writes": lambda saver: saver.aput_writes(PUT, [("messages", MANY)], "task"),
    "aget_delta_channel_history": lambda saver: saver.aget_delta_channel_history(config=THREAD, channels=["a"]),
    "acopy_thread": lambda saver: saver.acopy_thread("t", f"copy-{uuid4()}"),
    "aprune": lambda saver: saver.aprune(["t"]),
    "adelete_for_runs": lambda saver: saver.adelete_for_runs(["run"]),
    "adelete_thread": lambda saver: saver.adelete_thread("t"),
}


@pytest.mark.parametrize("method", AWAITED)
def test_no_call_blocks_the_event_loop(method: str) -> None:
    def prepare(sessions: nacre.Sessions) -> None:
        for _ in range(2):
            NacreSaver(sessions).put(THREAD, make_checkpoint(MANY), {"run_id": "run"}, {"messages": 1})

    # As another process has them: nothing is remembered.
    assert_loop_goes_on(
        prepare, lambda sessions: AWAITED[method](NacreSaver(nacre.AsyncSessions.of(sessions))), most=500
    )


def test_every_method_is_tried_in_the_event_loop() -> None:
    assert async_methods(NacreSaver) == set(AWAITED)


# ---- cancelled


WRITES = ["aput", "aput_writes", "acopy_thread", "aprune", "adelete_for_runs", "adelete_thread"]


@pytest.mark.parametrize("method", WRITES)
def test_a_cancelled_write_is_done_when_the_caller_goes_on(method: str) -> None:
    begun, goes_on = Event(), Event()

    class Waiting(nacre.Sessions):
        """Sessions whose first call waits in its thread."""

        def __getattribute__(self, name: str) -> Any:
            if name in ("is_at", "read", "delete", "list", "status") and not begun.is_set():
                begun.set()
                goes_on.wait()
            return super().__getattribute__(name)

    async def run(sessions: nacre.Sessions) -> None:
        writing = asyncio.ensure_future(AWAITED[method](NacreSaver(sessions)))
        await asyncio.to_thread(begun.wait)
        for _ in range(2):
            writing.cancel()
            await asyncio.sleep(0)
        is_done = writing.done()
        goes_on.set()
        assert not is_done
        with pytest.raises(asyncio.CancelledError):
            await writing

    with nacre.open(":memory:") as sessions:
        saver = NacreSaver(sessions)
        for at in range(2):
            saver.put(THREAD, make_checkpoint(MANY[: at + 1]), {"run_id": "run"}, {"messages": 1})
        before = contents(sessions)
        sessions.__class__ = Waiting
        asyncio.run(run(sessions))
        # What it does is done, and nothing comes later.
        assert contents(sessions) != before


def contents(sessions: nacre.Sessions) -> list[Any]:
    return [(one.key, sessions.read(one.key, lambda view: view.n)) for one in sessions.list()]


@pytest.mark.parametrize("method", WRITES)
def test_cancelled_writes_leave_no_thread_waiting(method: str) -> None:
    async def run(sessions: nacre.Sessions) -> None:
        saver = NacreSaver(sessions)
        for turns in range(50):
            await saver.aput(THREAD, make_checkpoint(MANY[:1]), {"run_id": "run"}, {"messages": 1})
            writing = asyncio.ensure_future(AWAITED[method](saver))
            for _ in range(turns % 5):
                await asyncio.sleep(0)
            writing.cancel()
            await asyncio.gather(writing, return_exceptions=True)
            # Whatever was cancelled comes before this.
            await saver.adelete_thread("t")
            assert await saver.aget_tuple(THREAD) is None
            assert "t" not in sessions

    with nacre.open(":memory:") as sessions:
        asyncio.run(asyncio.wait_for(run(sessions), 60))


def test_a_graph_of_coroutines_may_run_many_threads_at_once(place: str) -> None:
    async def answer(state: MessagesState) -> dict[str, Any]:
        await asyncio.sleep(0)
        return {"messages": [HumanMessage(f"answer to {state['messages'][-1].text}")]}

    builder: Any = StateGraph(MessagesState)
    builder.add_node("answer", answer)
    builder.add_edge(START, "answer")

    async def main() -> None:
        async with nacre.open_async(place) as sessions:
            graph = builder.compile(checkpointer=NacreSaver(sessions))

            async def talk(key: str) -> None:
                for at in range(3):
                    said = {"messages": [HumanMessage(f"{key} {at}")]}
                    await graph.ainvoke(said, {"configurable": {"thread_id": key}})

            keys = [f"thread {at}" for at in range(12)]
            await asyncio.gather(*map(talk, keys))
            for key in keys:
                said = [one.content for one in await sessions.get_history(key)]
                assert said == [text for at in range(3) for text in (f"{key} {at}", f"answer to {key} {at}")]

    asyncio.run(main())
