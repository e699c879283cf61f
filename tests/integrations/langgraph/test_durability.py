"""Nothing that a put or a put_writes has acknowledged is lost: not by a kill, nor by two processes on one thread."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.graph import START, MessagesState, StateGraph

import nacre
from nacre.integrations.langgraph import NacreSaver

WORKER = Path(__file__).parent / "worker.py"
THREAD: Any = {"configurable": {"thread_id": "t"}}


def start(*arguments: object) -> subprocess.Popen[str]:
    command = [sys.executable, str(WORKER), *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def run(*arguments: object) -> list[Any]:
    """What a worker printed, which has come to its end."""
    process = start(*arguments)
    printed, _ = process.communicate(timeout=120)
    assert process.returncode == 0
    return [json.loads(line) for line in printed.splitlines()]


def test_a_thread_goes_on_in_a_new_process(lasting_place: str) -> None:
    asked = run(lasting_place, "ask", "t")
    answered = run(lasting_place, "answer", "t", "yes")
    assert asked == [{"interrupt": "May I?"}]
    assert answered == [{"messages": ["hello", "May I?", "yes"]}]
    with nacre.open(lasting_place) as sessions:
        assert [one.content for one in sessions.get_history("t")] == ["hello", "May I?", "yes"]


def test_a_saver_sees_what_another_process_put(lasting_place: str) -> None:
    with nacre.open(lasting_place) as sessions:
        saver = NacreSaver(sessions)
        assert saver.get_tuple(THREAD) is None
        for count in (1, 2, 3):
            run(lasting_place, "add", "t", count)
            found = saver.get_tuple(THREAD)
            assert found is not None
            assert [one.text for one in found.checkpoint["channel_values"]["messages"]] == [
                f"{at}" for at in range(1, count + 1)
            ]


@pytest.mark.parametrize("kills", range(4))
def test_a_kill_between_put_and_put_writes_loses_nothing_acknowledged(lasting_place: str, kills: int) -> None:
    process = start(lasting_place, "forever", "t")
    assert process.stdout is not None
    # Each line is an acknowledged call; the kill comes after so many, at any point of the next one.
    acknowledged = [json.loads(process.stdout.readline()) for _ in range(20 + kills * 7)]
    process.send_signal(signal.SIGKILL)
    # Not by `communicate`, which does not know what `readline` has read already.
    with process.stdout:
        rest = process.stdout.read()
    process.wait(60)
    acknowledged += [json.loads(line) for line in rest.splitlines() if line.endswith("}")]
    with nacre.open(lasting_place) as sessions:
        saver = NacreSaver(sessions)
        found = {one.config["configurable"]["checkpoint_id"]: one for one in saver.list(THREAD)}
        for one in acknowledged:
            there = found[one["id"]]
            if one["call"] == "put":
                said = [message.text for message in there.checkpoint["channel_values"]["messages"]]
                assert said == [f"{at}" for at in range(one["step"] + 1)]
                assert there.checkpoint["channel_values"]["step"] == one["step"]
            else:
                assert (one["task"], "messages", [one["step"]]) in (there.pending_writes or [])
        newest = saver.get_tuple(THREAD)
        assert newest is not None
        # The history is the newest state, which may be one step further than what was acknowledged.
        said = [message.text for message in newest.checkpoint["channel_values"]["messages"]]
        assert [one.content for one in sessions.get_history("t")] == said


def test_two_processes_on_one_thread_keep_every_checkpoint_and_write(lasting_place: str) -> None:
    workers = [start(lasting_place, "race", "t", name, 25) for name in ("a", "b")]
    printed = [worker.communicate(timeout=120)[0] for worker in workers]
    assert [worker.returncode for worker in workers] == [0, 0]
    acknowledged = [json.loads(line) for lines in printed for line in lines.splitlines()]
    assert len(acknowledged) == 100
    with nacre.open(lasting_place) as sessions:
        saver = NacreSaver(sessions)
        found = {one.config["configurable"]["checkpoint_id"]: one for one in saver.list(THREAD)}
        assert len(found) == 50
        for one in acknowledged:
            there = found[one["id"]]
            if one["call"] == "put":
                # Each process has put a list of its own: a checkpoint is not mixed with that of the other.
                said = [message.text for message in there.checkpoint["channel_values"]["messages"]]
                assert said == [f"{one['name']}{at}" for at in range(one["step"] + 1)]
            else:
                assert (one["task"], "messages", [one["step"]]) in (there.pending_writes or [])
        # The history is the list that was put last.
        last = max(found)
        said = [message.content for message in sessions.get_history("t")]
        lists = [[it.text for it in one.checkpoint["channel_values"]["messages"]] for one in found.values()]
        assert said in lists
        newest = saver.get_tuple(THREAD)
        assert newest is not None
        assert newest.checkpoint["id"] == last


def test_a_copy_a_prune_and_a_delete_last(lasting_place: str) -> None:
    run(lasting_place, "add", "t", 1)
    run(lasting_place, "add", "t", 2)
    with nacre.open(lasting_place) as sessions:
        saver = NacreSaver(sessions)
        saver.copy_thread("t", "copy")
        saver.prune(["t"])
        saver.delete_thread("gone")
    with nacre.open(lasting_place) as sessions:
        saver = NacreSaver(sessions)
        assert len([*saver.list(THREAD)]) == 1
        assert len([*saver.list({"configurable": {"thread_id": "copy"}})]) > 1
        saver.delete_thread("t")
    with nacre.open(lasting_place) as sessions:
        assert NacreSaver(sessions).get_tuple(THREAD) is None
        assert sessions.get_history("t") == []
        assert [one.content for one in sessions.get_history("copy")] == ["1", "2"]


def run_steps(place: str, durability: str) -> list[list[Any]]:
    """What another process finds of the messages when each step begins, and when the run has returned."""
    found: list[list[Any]] = []
    with nacre.open(place) as sessions, nacre.open(place) as others:

        def step(_: MessagesState) -> dict[str, Any]:
            found.append([one.content for one in others.get_history("t")])
            return {"messages": [AIMessage(f"step {len(found)}")]}

        builder: Any = StateGraph(MessagesState)
        for name, before in (("one", START), ("two", "one"), ("three", "two")):
            builder.add_node(name, step)
            builder.add_edge(before, name)
        graph = builder.compile(checkpointer=NacreSaver(sessions))
        graph.invoke({"messages": [HumanMessage("hello")]}, THREAD, durability=durability)
        found.append([one.content for one in others.get_history("t")])
    return found


@pytest.mark.parametrize("durability", ["sync", "async", "exit"])
def test_everything_is_stored_when_a_run_has_returned(lasting_place: str, durability: str) -> None:
    assert run_steps(lasting_place, durability)[-1] == ["hello", "step 1", "step 2", "step 3"]


def test_a_step_of_a_sync_run_begins_when_what_came_before_it_is_stored(lasting_place: str) -> None:
    said = ["hello", "step 1", "step 2", "step 3"]
    assert run_steps(lasting_place, "sync") == [said[:1], said[:2], said[:3], said]


def test_an_exit_run_stores_nothing_before_its_end(lasting_place: str) -> None:
    assert run_steps(lasting_place, "exit")[:-1] == [[], [], []]
