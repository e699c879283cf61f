"""Wrong arguments are refused at the door, and no awaited call blocks the event loop."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import HumanMessage
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.graph import START, MessagesState, StateGraph

import nacre
from nacre.integrations.langgraph import NacreSaver, read_messages

THREAD: Any = {"configurable": {"thread_id": "t", "checkpoint_ns": ""}}


def make_checkpoint() -> Any:
    values = {"messages": [HumanMessage("hello", id="h")]}
    return {**empty_checkpoint(), "channel_values": values, "channel_versions": {"messages": 1}}


@pytest.mark.parametrize("wrong", [None, "place", object(), NacreSaver])
def test_sessions_are_needed(wrong: Any) -> None:
    with pytest.raises(nacre.InvalidArgument, match="sessions must be Sessions or AsyncSessions"):
        NacreSaver(wrong)
    with pytest.raises(nacre.InvalidArgument, match="sessions must be Sessions"):
        read_messages(wrong, "t")


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


class Slow(nacre.Sessions):
    """Sessions whose every read and write takes a while."""

    def read(self, *args: Any, **named: Any) -> Any:
        time.sleep(0.2)
        return super().read(*args, **named)

    def update(self, *args: Any, **named: Any) -> Any:
        time.sleep(0.2)
        return super().update(*args, **named)

    def append(self, *args: Any, **named: Any) -> Any:
        time.sleep(0.2)
        return super().append(*args, **named)

    def fork(self, *args: Any, **named: Any) -> Any:
        time.sleep(0.2)
        return super().fork(*args, **named)

    def delete(self, *args: Any, **named: Any) -> Any:
        time.sleep(0.2)
        return super().delete(*args, **named)


async def list_all(saver: NacreSaver) -> int:
    return len([one async for one in saver.alist(THREAD)])


PUT: Any = {"configurable": {"thread_id": "t", "checkpoint_ns": "", "checkpoint_id": "1"}}
AWAITED: dict[str, Callable[[NacreSaver], Awaitable[object]]] = {
    "aget_tuple": lambda saver: saver.aget_tuple(THREAD),
    "alist": list_all,
    "aput": lambda saver: saver.aput(PUT, make_checkpoint(), {}, {"messages": 1}),
    "aput_writes": lambda saver: saver.aput_writes(PUT, [("a", 1)], "task"),
    "aget_delta_channel_history": lambda saver: saver.aget_delta_channel_history(config=THREAD, channels=["a"]),
    "acopy_thread": lambda saver: saver.acopy_thread("t", "copy"),
    "aprune": lambda saver: saver.aprune(["t"]),
    "adelete_for_runs": lambda saver: saver.adelete_for_runs(["run"]),
    "adelete_thread": lambda saver: saver.adelete_thread("t"),
}


@pytest.mark.parametrize("method", AWAITED)
def test_no_call_blocks_the_event_loop(root: Path, method: str) -> None:
    async def main() -> None:
        with nacre.open(root) as sessions:
            first = NacreSaver(sessions)
            for _ in range(2):
                first.put(THREAD, make_checkpoint(), {"run_id": "run"}, {"messages": 1})
            sessions.__class__ = Slow
            calling = asyncio.ensure_future(AWAITED[method](NacreSaver(nacre.AsyncSessions.of(sessions))))
            turns = 0
            while not calling.done():
                await asyncio.sleep(0.01)
                turns += 1
            await calling
            assert turns > 5

    asyncio.run(main())


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
