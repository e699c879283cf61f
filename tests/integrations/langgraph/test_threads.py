"""What may be done with whole threads: delta channels after a prune or a copy, and conversations of others."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any

import pytest
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, RemoveMessage, SystemMessage, ToolMessage
from langgraph.checkpoint.base import BaseCheckpointSaver, empty_checkpoint
from langgraph.checkpoint.base.id import uuid6
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from typing_extensions import TypedDict

import nacre
from nacre.integrations.langgraph import NacreSaver, read_messages
from tests.integrations.langgraph.saving import open_saving, save

try:
    from langgraph.channels import DeltaChannel
except ImportError:
    has_deltas = False
else:
    has_deltas = True

needs_deltas = pytest.mark.skipif(not has_deltas, reason="this version of LangGraph has no DeltaChannel")


def thread(key: str) -> Any:
    return {"configurable": {"thread_id": key}}


# ---- delta channels


def join(old: list[Any], writes: Sequence[list[Any]]) -> list[Any]:
    return [*(old or []), *(one for write in writes for one in write)]


def make_deltas(frequency: int) -> Any:
    """A graph whose messages and notes are stored as what each step added."""

    deltas: Any = DeltaChannel(join, snapshot_frequency=frequency)
    fields: Any = {"messages": Annotated[list[Any], deltas], "notes": Annotated[list[str], deltas]}

    def answer(state: Any) -> dict[str, Any]:
        count = len(state["messages"])
        return {"messages": [AIMessage(f"answer {count}", id=f"ai-{count}")], "notes": [f"note {count}"]}

    make_type: Any = TypedDict
    builder: Any = StateGraph(make_type("Deltas", fields))
    builder.add_node("answer", answer)
    builder.add_edge(START, "answer")
    return builder


def turn(graph: Any, key: str, text: str) -> Any:
    return graph.invoke({"messages": [HumanMessage(text, id=text)], "notes": []}, thread(key))


def do_nothing(_: BaseCheckpointSaver[Any]) -> None:
    pass


def prune(saver: BaseCheckpointSaver[Any]) -> None:
    saver.prune(["t"])


def copy(saver: BaseCheckpointSaver[Any]) -> None:
    saver.copy_thread("t", "copy")


def copy_and_delete(saver: BaseCheckpointSaver[Any]) -> None:
    saver.copy_thread("t", "copy")
    saver.delete_thread("t")


@needs_deltas
@pytest.mark.parametrize("frequency", [1, 3, 1000])
@pytest.mark.parametrize(
    ("change", "key"),
    [(do_nothing, "t"), (prune, "t"), (copy, "t"), (copy, "copy"), (copy_and_delete, "copy")],
    ids=["as-it-is", "pruned", "copied", "the-copy", "the-copy-of-a-deleted-one"],
)
def test_delta_channels_are_whole_after(
    change: Callable[[BaseCheckpointSaver[Any]], None], key: str, frequency: int, place: str
) -> None:
    expected = make_deltas(frequency).compile(checkpointer=InMemorySaver())
    for text in ("one", "two", "three", "four"):
        turn(expected, "t", text)
    with nacre.open(place) as sessions:
        saver = NacreSaver(sessions)
        graph = make_deltas(frequency).compile(checkpointer=saver)
        for text in ("one", "two", "three"):
            turn(graph, "t", text)
        change(saver)
        turn(graph, key, "four")
        for one in (saver, NacreSaver(nacre.AsyncSessions.of(sessions))):
            again = make_deltas(frequency).compile(checkpointer=one)
            assert again.get_state(thread(key)).values == expected.get_state(thread("t")).values


@needs_deltas
@pytest.mark.parametrize("frequency", [1, 3, 1000])
@pytest.mark.parametrize("change", [do_nothing, prune, copy])
def test_delta_channels_are_whole_after_a_save(
    change: Callable[[BaseCheckpointSaver[Any]], None], frequency: int, lasting_place: str
) -> None:
    expected = make_deltas(frequency).compile(checkpointer=InMemorySaver())
    for text in ("one", "two", "three", "four"):
        turn(expected, "t", text)
    with open_saving(lasting_place) as sessions:
        graph = make_deltas(frequency).compile(checkpointer=NacreSaver(sessions))
        for text in ("one", "two", "three"):
            turn(graph, "t", text)
        change(NacreSaver(sessions))
        save(sessions, "t")
        turn(graph, "t", "four")
        assert graph.get_state(thread("t")).values == expected.get_state(thread("t")).values
        sessions.save("t")
    with open_saving(lasting_place) as sessions:
        again = make_deltas(frequency).compile(checkpointer=NacreSaver(sessions))
        assert again.get_state(thread("t")).values == expected.get_state(thread("t")).values


@needs_deltas
@pytest.mark.parametrize("frequency", [1, 3, 1000])
def test_every_old_state_of_delta_channels_can_be_gone_on_from(frequency: int, place: str) -> None:
    def travel(saver: BaseCheckpointSaver[Any]) -> list[Any]:
        graph = make_deltas(frequency).compile(checkpointer=saver)
        for text in ("one", "two", "three"):
            turn(graph, "t", text)
        for old in [*graph.get_state_history(thread("t"))][1::2]:
            graph.invoke({"messages": [HumanMessage("other", id="other")], "notes": ["other"]}, old.config)
        return [(one.values, one.next) for one in graph.get_state_history(thread("t"))]

    with nacre.open(place) as sessions:
        assert travel(NacreSaver(sessions)) == travel(InMemorySaver())


# ---- writes that come before their checkpoint


@pytest.mark.parametrize("earlier", [0, 1, 3])
@pytest.mark.parametrize("is_another", [False, True])
def test_writes_may_come_before_their_checkpoint(earlier: int, is_another: bool, place: str) -> None:
    with nacre.open(place) as sessions:
        saver = NacreSaver(sessions)
        ids = [str(uuid6(clock_seq=at)) for at in range(earlier + 1)]
        for id in ids[:-1]:
            saver.put(thread("t"), make_checkpoint(id), {}, {})
        config: Any = {"configurable": {"thread_id": "t", "checkpoint_ns": "", "checkpoint_id": ids[-1]}}
        another = NacreSaver(nacre.AsyncSessions.of(sessions)) if is_another else saver
        another.put_writes(config, [("a", 1), ("b", [2])], "task")
        saver.put(thread("t"), make_checkpoint(ids[-1]), {}, {})
        for one in (saver, NacreSaver(nacre.AsyncSessions.of(sessions))):
            found = one.get_tuple(config)
            assert found is not None
            assert found.pending_writes == [("task", "a", 1), ("task", "b", [2])]


def make_checkpoint(id: str) -> Any:
    return {**empty_checkpoint(), "id": id}


# ---- conversations of others


def make_chat() -> Any:
    def answer(state: MessagesState) -> dict[str, Any]:
        return {"messages": [AIMessage(f"I have read {len(state['messages'])}.")]}

    builder: Any = StateGraph(MessagesState)
    builder.add_node("answer", answer)
    builder.add_edge(START, "answer")
    return builder


HELLO = [{"role": "user", "content": "Hello."}, {"role": "assistant", "content": "Hello!"}]
FOREIGN: list[dict[str, Any]] = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": [{"type": "text", "text": "What is it?"}]},
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {"id": "c1", "type": "function", "function": {"name": "look", "arguments": '{"at": "sea"}'}},
            {"id": "c2", "type": "function", "function": {"name": "look", "arguments": "{broken"}},
        ],
    },
    {"role": "tool", "tool_call_id": "c1", "content": "a shell"},
    {"role": "assistant", "content": "A shell."},
]


def test_a_conversation_of_others_is_read_with_paired_calls(place: str) -> None:
    with nacre.open(place) as sessions:
        sessions.add_messages("t", FOREIGN)
        found = read_messages(sessions, "t")
        assert read_messages(sessions, "t") == found
    assert [type(one) for one in found] == [
        HumanMessage,
        HumanMessage,
        AIMessage,
        ToolMessage,
        ToolMessage,
        AIMessage,
    ]
    # A system message may stand in the middle, where not every model takes one.
    assert found[0].text == "[system] Be brief."
    called = found[2]
    assert isinstance(called, AIMessage)
    assert called.tool_calls == [
        {"name": "look", "args": {"at": "sea"}, "id": "c1", "type": "tool_call"},
        {"name": "look", "args": {"unreadable": "{broken"}, "id": "c2", "type": "tool_call"},
    ]
    assert [one.tool_call_id for one in found if isinstance(one, ToolMessage)] == ["c1", "c2"]
    assert [one.id for one in found] == ["t@2", "t@3", "t@4", "t@5", "t@5/1", "t@6"]


def test_a_graph_goes_on_with_a_conversation_of_others_and_stores_nothing_twice(place: str) -> None:
    with nacre.open(place) as sessions:
        sessions.add_messages("t", HELLO)
        graph = make_chat().compile(checkpointer=NacreSaver(sessions))
        graph.invoke({"messages": [*read_messages(sessions, "t"), HumanMessage("And now?")]}, thread("t"))
        # Others write again; what is given once more has the ids that it had.
        sessions.add_message("t", "user", "A note.")
        graph.invoke({"messages": [*read_messages(sessions, "t"), HumanMessage("Read it.")]}, thread("t"))
        said = ["Hello.", "Hello!", "And now?", "I have read 3.", "A note.", "Read it.", "I have read 6."]
        assert [one.content for one in sessions.get_history("t")] == said
        assert [one.text for one in graph.get_state(thread("t")).values["messages"]] == said
        assert contents_of_records(sessions, "t") == said


def test_calls_and_system_messages_of_others_are_not_stored_twice(place: str) -> None:
    answered = {"role": "tool", "tool_call_id": "c2", "content": [{"type": "text", "text": "a pearl"}]}
    with nacre.open(place) as sessions:
        sessions.add_messages("t", [*FOREIGN[:4], answered, FOREIGN[4]])
        graph = make_chat().compile(checkpointer=NacreSaver(sessions))
        graph.invoke({"messages": [*read_messages(sessions, "t"), HumanMessage("And now?")]}, thread("t"))
        assert len(contents_of_records(sessions, "t")) == 8
        assert read_messages(sessions, "t") == graph.get_state(thread("t")).values["messages"]


def contents_of_records(sessions: nacre.Sessions, key: str) -> list[Any]:
    """The content of every message that was ever stored."""
    records = sessions.read(key, lambda view: [*view.all()]) or []
    return [one.m.content for one in records if one.m is not None]


@pytest.mark.parametrize("turns", [1, 4])
def test_the_history_is_the_newest_state(turns: int, place: str) -> None:
    with nacre.open(place) as sessions:
        graph = make_chat().compile(checkpointer=NacreSaver(sessions))
        for at in range(turns):
            graph.invoke({"messages": [HumanMessage(f"turn {at}")]}, thread("t"))
        newest = graph.get_state(thread("t")).values["messages"]
        assert read_messages(sessions, "t") == newest
        assert [one.content for one in sessions.get_history("t")] == [one.text for one in newest]
        assert [one.role for one in sessions.get_history("t")] == ["user", "assistant"] * turns


def test_what_others_add_is_in_the_history_and_the_next_state_decides(
    place: str, caplog: pytest.LogCaptureFixture
) -> None:
    with nacre.open(place) as sessions:
        graph = make_chat().compile(checkpointer=NacreSaver(sessions))
        graph.invoke({"messages": [HumanMessage("one")]}, thread("t"))
        sessions.add_message("t", "user", "from outside")
        # A checkpoint stays what it was.
        assert [one.text for one in graph.get_state(thread("t")).values["messages"]] == ["one", "I have read 1."]
        assert sessions.get_history("t")[-1].content == "from outside"
        assert caplog.messages == []
        # A graph that is not given it goes on without it: the history follows, the transcript keeps it.
        graph.invoke({"messages": [HumanMessage("two")]}, thread("t"))
        said = ["one", "I have read 1.", "two", "I have read 3."]
        assert [one.content for one in sessions.get_history("t")] == said
        assert "from outside" in contents_of_records(sessions, "t")
        assert [message.partition(";")[0] for message in caplog.messages] == [
            "thread 't': messages that others wrote (1) are not in the state of the graph and leave its history"
        ]


def test_an_erased_message_is_in_no_file_and_in_no_state(root: Path) -> None:
    with nacre.open(root) as sessions:
        graph = make_chat().compile(checkpointer=NacreSaver(sessions))
        for text in ("My name is Ann.", "The secret is 4711-0815.", "Go on."):
            graph.invoke({"messages": [HumanMessage(text, id=text[:2])]}, thread("t"))
        now = sessions.snapshot("t")
        sessions.redact("t", now.numbers[2])
        found = graph.invoke({"messages": [HumanMessage("And on.")]}, thread("t"))
        assert [one.text for one in found["messages"]] == [
            "My name is Ann.",
            "I have read 1.",
            "[erased]",
            "I have read 3.",
            "Go on.",
            "I have read 5.",
            "And on.",
            "I have read 7.",
        ]
        assert all("4711-0815" not in str(one) for one in graph.get_state_history(thread("t")))
    assert [file for file in root.rglob("*") if file.is_file() and b"4711-0815" in file.read_bytes()] == []


def wait_for_writes(sessions: nacre.Sessions, count: int) -> None:
    """Wait until the writes of earlier steps are stored: a graph hands them, also its input, to a thread of its own."""
    while sum(entry.data["k"] == "w" for entry in sessions.records("t", "x.langgraph")) < count:
        time.sleep(0.001)


def test_a_graph_that_is_running_does_not_store_again_what_was_erased(root: Path) -> None:
    with nacre.open(root) as sessions:

        def erase(_: MessagesState) -> dict[str, Any]:
            wait_for_writes(sessions, 2)
            sessions.redact("t", sessions.snapshot("t").numbers[0])
            return {}

        builder: Any = make_chat()
        builder.add_node("erase", erase)
        builder.add_node("end", lambda _: {"messages": [AIMessage("Done.", id="done")]})
        builder.add_edge("answer", "erase")
        builder.add_edge("erase", "end")
        graph = builder.compile(checkpointer=NacreSaver(sessions))
        question: Any = {"messages": [HumanMessage("The secret is 4711-0815.")]}
        graph.invoke(question, thread("t"), durability="sync")
        read = [one.text for one in graph.get_state(thread("t")).values["messages"]]
        assert read == ["[erased]", "I have read 1.", "Done."]
        assert len(contents_of_records(sessions, "t")) == 3
    assert [file for file in root.rglob("*") if file.is_file() and b"4711-0815" in file.read_bytes()] == []


def test_an_erased_message_of_a_saved_thread_is_in_no_file_and_in_no_state(root: Path) -> None:
    with open_saving(str(root)) as sessions:
        graph = make_chat().compile(checkpointer=NacreSaver(sessions))
        for text in ("My name is Ann.", "The secret is 4711-0815.", "Go on.", "And on."):
            graph.invoke({"messages": [HumanMessage(text, id=text)]}, thread("t"))
        before = len([*graph.get_state_history(thread("t"))])
        save(sessions, "t")
        sessions.redact("t", sessions.snapshot("t").numbers[2])
    with open_saving(str(root)) as sessions:
        graph = make_chat().compile(checkpointer=NacreSaver(sessions))
        history = [*graph.get_state_history(thread("t"))]
        assert len(history) == before
        assert all("4711-0815" not in str(one) for one in history)
        assert [one.text for one in history[0].values["messages"]][2:4] == ["[erased]", "I have read 3."]
        # Also of what is compressed there.
        assert "4711-0815" not in str(sessions.read("t", lambda view: [*view.all()]))
    assert [file for file in root.rglob("*") if file.is_file() and b"4711-0815" in file.read_bytes()] == []


@pytest.mark.parametrize("at", [0, 1, 3, 5])
@pytest.mark.parametrize("is_another", [False, True])
def test_what_takes_the_place_of_an_erased_message_is_stored(at: int, is_another: bool, place: str) -> None:
    with nacre.open(place) as sessions:
        saver = NacreSaver(sessions)
        graph = make_chat().compile(checkpointer=saver)
        for text in ("one", "two", "three"):
            graph.invoke({"messages": [HumanMessage(text, id=text)]}, thread("t"))
        sessions.redact("t", sessions.snapshot("t").numbers[at])
        if is_another:
            graph = make_chat().compile(checkpointer=NacreSaver(nacre.AsyncSessions.of(sessions)))
        erased = graph.get_state(thread("t")).values["messages"][at]
        said = ["one", "I have read 1.", "two", "I have read 3.", "three", "I have read 5."]
        # The graph drops the hole, and what follows moves up; then it says something new.
        graph.update_state(thread("t"), {"messages": [RemoveMessage(id=erased.id)]}, as_node="answer")
        said.pop(at)
        assert [one.content for one in sessions.get_history("t")] == said
        graph.update_state(thread("t"), {"messages": [HumanMessage("more", id=erased.id)]}, as_node="answer")
        assert [one.content for one in sessions.get_history("t")] == [*said, "more"]


@pytest.mark.parametrize("at", [0, 1, 2])
@pytest.mark.parametrize("role", [HumanMessage, SystemMessage])
def test_an_edit_of_a_graph_that_is_running_does_not_store_again_what_was_erased(
    root: Path, at: int, role: type[BaseMessage]
) -> None:
    with nacre.open(root) as sessions:

        def erase(_: MessagesState) -> dict[str, Any]:
            wait_for_writes(sessions, 1)
            sessions.redact("t", sessions.snapshot("t").numbers[1])
            return {}

        # A message before the erased one is edited or removed, so that the history is made anew from there.
        edits: list[list[BaseMessage]] = [[], [HumanMessage("edited", id="first")], [RemoveMessage(id="first")]]
        builder: Any = StateGraph(MessagesState)
        builder.add_node("erase", erase)
        builder.add_node("edit", lambda _: {"messages": edits[at]})
        builder.add_edge(START, "erase")
        builder.add_edge("erase", "edit")
        graph = builder.compile(checkpointer=NacreSaver(sessions))
        # Messages without an id in the input get one each.
        secret = role("The secret is 4711-0815.")
        said: Any = {"messages": [HumanMessage("first", id="first"), secret, HumanMessage("last", id="last")]}
        graph.invoke(said, thread("t"), durability="sync")
        found = [one.text for one in graph.get_state(thread("t")).values["messages"]]
        assert [text.removeprefix("[system] ") for text in found] == [
            *[["first"], ["edited"], []][at],
            "[erased]",
            "last",
        ]
    assert [file for file in root.rglob("*") if file.is_file() and b"4711-0815" in file.read_bytes()] == []


def test_other_sessions_are_no_threads(place: str) -> None:
    with nacre.open(place) as sessions:
        sessions.add_message("cli", "user", "Hello.")
        saver = NacreSaver(sessions)
        make_chat().compile(checkpointer=saver).invoke({"messages": [HumanMessage("one")]}, thread("t"))
        assert saver.get_tuple(thread("cli")) is None
        assert {one.config["configurable"]["thread_id"] for one in saver.list(None)} == {"t"}
