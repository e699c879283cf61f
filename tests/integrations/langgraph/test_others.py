"""Others use the session of a thread meanwhile: between any two calls to the store that a saver makes."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import suppress
from itertools import count
from typing import Any

import pytest
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.base.id import uuid6
from langgraph.graph import START, MessagesState, StateGraph

import nacre
from nacre.integrations.langgraph import NacreSaver, read_messages
from tests.integrations.langgraph.saving import open_saving

THREAD: Any = {"configurable": {"thread_id": "t", "checkpoint_ns": ""}}


def fresh(sessions: nacre.Sessions) -> NacreSaver:
    """A saver that remembers nothing, as one of another process."""
    return NacreSaver(nacre.AsyncSessions.of(sessions))


# ---- what others do


def begin_again(sessions: nacre.Sessions) -> None:
    with suppress(nacre.SessionNotFound):
        sessions.archive("t")
    sessions.append("t", "x.note", {"by": "another program"})


def delete_and_begin(sessions: nacre.Sessions) -> None:
    sessions.delete("t")
    sessions.add_message("t", "user", "by another framework")


def archive(sessions: nacre.Sessions) -> None:
    with suppress(nacre.SessionNotFound):
        sessions.archive("t")


def unarchive(sessions: nacre.Sessions) -> None:
    with suppress(nacre.SessionNotFound, nacre.Conflict):
        sessions.unarchive("t")


def redact(sessions: nacre.Sessions) -> None:
    if numbers := sessions.snapshot("t").numbers:
        with suppress(nacre.Conflict):
            sessions.redact("t", numbers[0])


def put(sessions: nacre.Sessions) -> None:
    step(fresh(sessions), lambda messages: [*messages, HumanMessage("from another graph", id=f"{uuid6()}")])


def put_writes(sessions: nacre.Sessions) -> None:
    saver = fresh(sessions)
    if (newest := saver.get_tuple(THREAD)) is not None:
        saver.put_writes(newest.config, [("notes", ["from another graph"])], f"{uuid6()}")


# What ends the thread as it was: the key has another session afterwards, or none.
ENDS: dict[str, Callable[[nacre.Sessions], object]] = {
    "archive": archive,
    "begin again": begin_again,
    "delete": lambda sessions: sessions.delete("t"),
    "delete and begin": delete_and_begin,
}
CHANGES: dict[str, Callable[[nacre.Sessions], object]] = {
    "say": lambda sessions: sessions.add_message("t", "user", "from outside"),
    "note": lambda sessions: sessions.append("t", "x.note", {"a": 1}),
    "title": lambda sessions: sessions.set_meta("t", {"title": "Shells"}),
    "clear": lambda sessions: sessions.update("t", [nacre.Truncate(0)]),
    "save": lambda sessions: sessions.save("t"),
    "redact": redact,
    "put": put,
    "put writes": put_writes,
    "prune": lambda sessions: fresh(sessions).prune(["t"]),
}
ACTS = {**ENDS, **CHANGES, "unarchive": unarchive}


class Interrupted(nacre.Sessions):
    """Sessions that call `meanwhile` before each call to the store."""

    meanwhile: Callable[[], None]

    def __getattribute__(self, name: str) -> Any:
        if name in ("is_at", "read", "update", "submit", "append", "delete", "fork", "status", "list", "snapshot"):
            self.meanwhile()
        return super().__getattribute__(name)


def interrupt(sessions: nacre.Sessions, meanwhile: Callable[[], None]) -> None:
    sessions.__class__ = Interrupted
    vars(sessions)["meanwhile"] = meanwhile


# ---- a saver that remembers the thread answers as one that does not


def everything(saver: NacreSaver) -> list[Any]:
    """All that a saver says about the thread."""
    listed = [*saver.list(THREAD)]
    named = [saver.get_tuple(one.config) for one in listed]
    deltas = [saver.get_delta_channel_history(config=one.config, channels=["notes"]) for one in listed]
    return [saver.get_tuple(THREAD), listed, named, deltas]


def step(saver: NacreSaver, edit: Callable[[list[Any]], list[Any]]) -> tuple[Any, dict[str, Any]]:
    """Put the checkpoint that follows the newest one; returns its config and values."""
    newest = saver.get_tuple(THREAD)
    values = newest.checkpoint["channel_values"] if newest is not None else {}
    versions: Any = newest.checkpoint["channel_versions"] if newest is not None else {"notes": 1}
    before = values.get("messages", [])
    values = {"notes": ["first"], **values, "messages": edit(before)}
    changed = {"messages": versions.get("messages", 0) + (values["messages"] != before)}
    new: Any = changed if newest is not None else {**versions, **changed}
    checkpoint: Any = {**empty_checkpoint(), "id": f"{uuid6()}"}
    checkpoint |= {"channel_values": values, "channel_versions": {**versions, **changed}}
    config: Any = newest.config if newest is not None else THREAD
    return saver.put(config, checkpoint, {"source": "loop", "step": 1, "run_id": "run"}, new), values


EDITS: list[Callable[[list[Any]], list[Any]]] = [
    lambda messages: [*messages, HumanMessage("a question", id=f"{uuid6()}"), AIMessage("an answer", id=f"{uuid6()}")],
    lambda messages: [*messages, HumanMessage("more", id=f"{uuid6()}")],
    lambda messages: messages,
    lambda messages: messages[1:],
    lambda messages: messages[:-1],
    lambda messages: [*messages[:-1], AIMessage("rewritten", id=f"{uuid6()}")],
    lambda messages: [],
]


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("is_interrupted", [False, True])
def test_a_saver_that_remembers_answers_as_a_new_one(lasting_place: str, seed: int, *, is_interrupted: bool) -> None:
    chance = random.Random(seed)
    acted: list[str] = []
    with nacre.open(lasting_place) as sessions, open_saving(lasting_place) as others:

        def act() -> None:
            name = chance.choice([*ACTS])
            acted.append(name)
            ACTS[name](others)

        def meanwhile() -> None:
            # A few for each call: who is interrupted for ever may give up.
            if is_interrupted and len(acted) < 2 and chance.random() < 0.2:
                act()

        saver = NacreSaver(sessions)
        interrupt(sessions, lambda: None)
        for _ in range(40):
            acted.clear()
            vars(sessions)["meanwhile"] = meanwhile
            stored: Any = None
            match chance.randrange(9):
                case 0 | 1 | 2:
                    stored = step(saver, chance.choice(EDITS))
                case 3:
                    if (newest := saver.get_tuple(THREAD)) is not None:
                        saver.put_writes(newest.config, [("notes", ["from a task"])], f"{uuid6()}")
                case 4:
                    saver.prune(["t"])
                case 5:
                    saver.delete_for_runs(["run"])
                case 6:
                    everything(saver)
                case _:
                    act()
            vars(sessions)["meanwhile"] = lambda: None
            assert everything(saver) == everything(fresh(others))
            if stored is not None and not {*acted} & {*ENDS, "redact", "prune", "unarchive"}:
                config, values = stored
                found = saver.get_tuple(config)
                assert found is not None
                assert found.checkpoint["channel_values"] == values
        last = everything(saver)
    with nacre.open(lasting_place) as sessions:
        assert everything(NacreSaver(sessions)) == last


# ---- a graph that runs meanwhile


def make_graph(saver: NacreSaver) -> Any:
    numbers = count()
    builder: Any = StateGraph(MessagesState)
    for name in ("think", "answer"):
        builder.add_node(name, lambda _, name=name: {"messages": [AIMessage(name, id=f"{name}-{next(numbers)}")]})
    builder.add_edge(START, "think")
    builder.add_edge("think", "answer")
    return builder.compile(checkpointer=saver)


def texts(messages: list[BaseMessage]) -> list[str]:
    return [one.text for one in messages]


@pytest.mark.parametrize("name", ACTS)
def test_a_graph_goes_on_whatever_others_do_between_two_calls(lasting_place: str, name: str) -> None:
    question: Any = {"messages": [HumanMessage("two")]}
    for at in count():
        with nacre.open(lasting_place) as sessions, open_saving(lasting_place) as others:
            others.delete("t")
            graph = make_graph(NacreSaver(sessions))
            graph.invoke({"messages": [HumanMessage("one")]}, THREAD, durability="sync")
            calls = 0

            def act_once(at: int = at, others: nacre.Sessions = others) -> None:
                nonlocal calls
                calls += 1
                if calls == at + 1:
                    ACTS[name](others)

            interrupt(sessions, act_once)
            said = texts(graph.invoke(question, THREAD, durability="sync")["messages"])
            vars(sessions)["meanwhile"] = lambda: None
            has_acted = calls > at
            assert said[-3:] == ["two", "think", "answer"]
            found = texts(graph.get_state(THREAD).values.get("messages", []))
            assert found == texts(make_graph(fresh(others)).get_state(THREAD).values.get("messages", []))
            if name == "redact" and has_acted:
                said[0] = "[erased]"
            # What ends the thread after its last checkpoint leaves none; another graph may have put a newer one.
            assert (
                found == said or (name in ENDS and found == []) or (name == "put" and found[-1] == "from another graph")
            )
        if not has_acted:
            assert found == said
            break


# ---- one by one


@pytest.mark.parametrize("end", ENDS)
def test_a_checkpoint_of_a_thread_begun_again_is_there_after_a_restart(lasting_place: str, end: str) -> None:
    with nacre.open(lasting_place) as sessions, open_saving(lasting_place) as others:
        saver = NacreSaver(sessions)
        for edit in EDITS[:2]:
            step(saver, edit)
        ENDS[end](others)
        config, values = step(saver, EDITS[0])
    with nacre.open(lasting_place) as sessions:
        found = NacreSaver(sessions).get_tuple(config)
        assert found is not None
        assert found.checkpoint["channel_values"] == values
        assert len([*NacreSaver(sessions).list(None)]) == 1


@pytest.mark.parametrize("end", ENDS)
def test_writes_of_a_thread_begun_again_are_there_after_a_restart(lasting_place: str, end: str) -> None:
    with nacre.open(lasting_place) as sessions, open_saving(lasting_place) as others:
        saver = NacreSaver(sessions)
        config, _ = [step(saver, edit) for edit in EDITS[:2]][-1]
        ENDS[end](others)
        saver.put_writes(config, [("notes", ["from a task"])], "task")
        checkpoint: Any = {**empty_checkpoint(), "id": config["configurable"]["checkpoint_id"]}
        saver.put(THREAD, checkpoint, {}, {})
    with nacre.open(lasting_place) as sessions:
        found = NacreSaver(sessions).get_tuple(config)
        assert found is not None
        assert found.pending_writes == [("task", "notes", ["from a task"])]


def test_a_list_has_nothing_of_a_thread_begun_again_while_it_is_taken(place: str) -> None:
    with nacre.open(place) as sessions:
        saver = NacreSaver(sessions)
        old = [step(saver, EDITS[0])[0] for _ in range(3)]
        listed = saver.list(THREAD)
        assert next(listed).config == old[-1]
        sessions.archive("t")
        for _ in range(3):
            saver.put_writes(step(saver, EDITS[0])[0], [("notes", ["new"])], "task")
        assert [*listed] == []


def test_a_list_of_more_threads_than_are_remembered_has_all_their_writes(place: str) -> None:
    with nacre.open(place) as sessions:
        saver = NacreSaver(sessions)
        for at in range(70):
            config: Any = {"configurable": {"thread_id": f"t{at}", "checkpoint_ns": ""}}
            for _ in range(2):
                saver.put_writes(saver.put(config, empty_checkpoint(), {}, {}), [("notes", [at])], "task")
        assert [one.pending_writes for one in saver.list(None) if len(one.pending_writes or ()) != 1] == []


def test_an_archived_conversation_is_not_there_for_a_graph(place: str) -> None:
    with nacre.open(place) as sessions:
        sessions.add_message("t", "user", "old")
        sessions.archive("t")
        assert read_messages(sessions, "t") == []
        sessions.unarchive("t")
        assert texts([*read_messages(sessions, "t")]) == ["old"]
