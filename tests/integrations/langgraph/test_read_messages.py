"""A conversation for a graph: every call has one result, whatever was erased and whoever stored it."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import pytest
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, HumanMessage, RemoveMessage, ToolMessage
from langgraph.graph import START, MessagesState, StateGraph

import nacre
from nacre import Message, ToolCall
from nacre.integrations.langgraph import NacreSaver, read_messages
from tests.integrations.langgraph.test_messages import exact
from tests.integrations.others import UNKNOWN

THREAD: Any = {"configurable": {"thread_id": "t"}}
INTERRUPTED = "interrupted, outcome unknown"


def make_graph(sessions: nacre.Sessions, *replies: BaseMessage) -> Any:
    state: Any = MessagesState
    builder = StateGraph(state)
    builder.add_node("reply", lambda _: {"messages": [*replies]})
    builder.add_edge(START, "reply")
    return builder.compile(checkpointer=NacreSaver(sessions))


def run(sessions: nacre.Sessions, *replies: BaseMessage) -> list[BaseMessage]:
    """One run of a graph that is given the conversation and a question; returns the messages of its state."""
    given: Any = [*read_messages(sessions, "t"), HumanMessage("And then?")]
    state: dict[str, list[BaseMessage]]
    state = make_graph(sessions, *replies).invoke({"messages": given}, THREAD, durability="sync")
    return state["messages"]


def read_state(sessions: nacre.Sessions) -> list[BaseMessage]:
    """The messages that a saver of another process reads."""
    found = NacreSaver(nacre.AsyncSessions.of(sessions)).get_tuple(THREAD)
    assert found is not None
    messages: list[BaseMessage] = found.checkpoint["channel_values"]["messages"]
    return messages


def unpaired(messages: Sequence[BaseMessage]) -> list[str]:
    """The calls without exactly one result right after them, and the results without a call."""
    waiting: list[str | None] = []
    wrong: list[str | None] = []
    for message in messages:
        if isinstance(message, ToolMessage):
            if message.tool_call_id in waiting:
                waiting.remove(message.tool_call_id)
            else:
                wrong.append(message.tool_call_id)
        else:
            wrong += waiting
            waiting = [call["id"] for call in message.tool_calls] if isinstance(message, AIMessage) else []
    return [*map(str, [*wrong, *waiting])]


# ---- whatever was erased


def make_turn(chance: random.Random) -> list[BaseMessage]:
    """Messages of a turn that calls tools; some have what only the serializer can store."""
    found: list[BaseMessage] = []
    for _ in range(chance.randrange(3)):
        ids = chance.sample(["c1", "c2", "c3", "c" * 60, "ü"], chance.randint(1, 3))
        kind, at = chance.choice([(AIMessage, "a"), (AIMessage, b"\xff"), (AIMessageChunk, "a")])
        calls: Any = [{"name": "look", "args": {"at": at}, "id": id} for id in ids]
        found.append(kind("", tool_calls=calls))
        found += [ToolMessage("seen", tool_call_id=id, artifact=chance.choice([None, b"\xff"])) for id in ids]
    return [*found, AIMessage("done")]


@pytest.mark.parametrize("seed", range(40))
def test_every_call_has_one_result_whatever_was_erased(seed: int) -> None:
    chance = random.Random(seed)
    with nacre.open(":memory:") as sessions:
        for _ in range(3):
            run(sessions, *make_turn(chance))
            for number in chance.sample(sessions.snapshot("t").numbers, 2):
                sessions.redact("t", number)
            assert unpaired(read_messages(sessions, "t")) == []
            assert unpaired(read_state(sessions)) == []
        assert [one.text for one in read_messages(sessions, "t")] == [one.text for one in read_state(sessions)]


# ---- whoever stored it


class Agent:
    """Another framework, whose tools may give their results late, or twice; `results` is what a reader is shown."""

    def __init__(self, sessions: nacre.Sessions, chance: random.Random) -> None:
        self.sessions, self.chance = sessions, chance
        self.results: dict[str, str] = {}

    def call(self) -> None:
        ids = [f"c{len(self.results) + at}" for at in range(self.chance.randint(1, 2))]
        self.results.update(dict.fromkeys(ids, INTERRUPTED))
        calls = tuple([ToolCall(id=id, name="look", arguments="{}") for id in ids])
        self.sessions.add_full_message("t", Message(role="assistant", tool_calls=calls))

    def answer(self) -> None:
        for id in self.chance.sample([*self.results], min(len(self.results), 2)):
            text = self.chance.choice(["waiting for approval", "a shell", "a pearl"])
            self.sessions.add_full_message("t", Message(role="tool", tool_call_id=id, content=text))
            self.results[id] = text

    def think(self) -> None:
        self.sessions.add_full_message("t", Message(role="", extra={"type": "reasoning"}))

    def say(self) -> None:
        self.sessions.add_message("t", "user", "Well?")


def results_in(messages: Sequence[BaseMessage]) -> dict[str, str]:
    return {one.tool_call_id: one.text for one in messages if isinstance(one, ToolMessage)}


@pytest.mark.parametrize("seed", range(40))
def test_a_graph_that_takes_turns_with_others_has_the_newest_result_of_each_call(
    seed: int, caplog: pytest.LogCaptureFixture
) -> None:
    chance = random.Random(seed)
    with nacre.open(":memory:") as sessions:
        agent = Agent(sessions, chance)
        for _ in range(12):
            chance.choice([agent.call, agent.answer, agent.think, agent.say])()
            found = read_messages(sessions, "t")
            assert (unpaired(found), results_in(found)) == ([], agent.results)
            if chance.random() < 0.4:
                state = run(sessions, AIMessage("done"))
                assert (unpaired(state), results_in(state)) == ([], agent.results)
                assert read_messages(sessions, "t") == state == read_state(sessions)
        # All that others said was given to the graph.
        assert caplog.messages == []


def test_a_result_of_the_graph_for_a_call_of_others_is_the_only_one(place: str) -> None:
    with nacre.open(place) as sessions:
        agent = Agent(sessions, random.Random(0))
        agent.call()
        called = next(one for one in read_messages(sessions, "t") if isinstance(one, AIMessage))
        results = [ToolMessage("a shell", tool_call_id=call["id"]) for call in called.tool_calls]
        make_graph(sessions, *results).invoke({"messages": [called]}, THREAD, durability="sync")
        state = run(sessions, AIMessage("done"))
        assert [one.text for one in state] == ["", *["a shell"] * len(results), "And then?", "done"]


def test_what_the_graph_itself_takes_out_leaves_without_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    with nacre.open(":memory:") as sessions:
        sessions.add_messages("t", [Message(role="user", content=text) for text in ("Well?", "Or not?")])
        second = run(sessions, AIMessage("done"))[1]
        state = run(sessions, RemoveMessage(id=second.id or ""))
        assert [one.text for one in state] == ["Well?", "And then?", "done", "And then?"]
        assert caplog.messages == []


def test_a_result_that_came_after_the_history_was_read_leaves_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    with nacre.open(":memory:") as sessions:
        agent = Agent(sessions, random.Random(0))
        agent.call()
        earlier = read_messages(sessions, "t")
        agent.answer()
        given: Any = [*earlier, HumanMessage("And then?")]
        make_graph(sessions, AIMessage("done")).invoke({"messages": given}, THREAD, durability="sync")
        left = len(agent.results)
        assert [message.partition(" are")[0] for message in caplog.messages] == [
            f"thread 't': messages that others wrote ({left})"
        ]


# ---- whatever they stored


ODD = [
    Message(role="system"),
    Message(role="system", content=[{"type": "thinking", "thinking": "hm"}]),
    Message(role="system", tool_calls=(ToolCall(id="c1", name="look", arguments="{broken"),)),
    Message(role="system", content=[{"type": "hologram", "data": b"x"}, 5, None, {}]),
    Message(role="assistant", tool_calls=(ToolCall(id="c1", extra={"type": "custom"}),)),
    Message(role="critic", content="no role of LangChain's", name="ü"),
    *(
        Message(role=role, content="not yours", extra={"langgraph": value})
        for role in ("system", "user", "assistant", "tool", "critic", "chat")
        for value in UNKNOWN
    ),
]


@pytest.mark.parametrize("message", ODD, ids=map(str, range(len(ODD))))
def test_a_graph_goes_on_after_an_odd_message_of_others(message: Message) -> None:
    with nacre.open(":memory:") as sessions:
        sessions.add_messages("t", [Message(role="user", content="Well?"), message])
        state = run(sessions, AIMessage("done"))
        assert [one.text for one in state if one.text not in ("", INTERRUPTED)][-2:] == ["And then?", "done"]
        assert exact(read_state(sessions)) == exact(state)
    with nacre.open(":memory:") as sessions:
        sessions.add_messages("t", [Message(role="user", content="Well?"), message])
        # A graph that is not given it.
        make_graph(sessions, AIMessage("done")).invoke({"messages": [HumanMessage("Hi")]}, THREAD, durability="sync")
        assert [one.text for one in read_state(sessions)] == ["Hi", "done"]
