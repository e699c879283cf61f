"""Real graphs: with NacreSaver they go through the same states, and list the same history, as with InMemorySaver."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import asynccontextmanager, contextmanager
from threading import Event
from typing import Annotated, Any

import pytest
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, RemoveMessage, ToolMessage
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.graph.message import REMOVE_ALL_MESSAGES, add_messages
from langgraph.types import Command, Send, interrupt
from typing_extensions import TypedDict

import nacre
from nacre.integrations.langgraph import NacreSaver
from tests.integrations.langgraph.saving import open_saving, save

THREAD: Any = {"configurable": {"thread_id": "t"}}


# ---- graphs


class State(MessagesState):
    """Messages, and a list that several tasks of a step add to."""

    notes: Annotated[list[str], lambda old, new: old + new]


def think(state: State) -> dict[str, Any]:
    """A scripted model: it calls two tools, and answers when it has both results."""
    messages, count = state["messages"], len(state["messages"])
    if isinstance(messages[-1], HumanMessage):
        calls: list[Any] = [{"name": "look", "args": {"at": at}, "id": f"call-{count}-{at}"} for at in (0, 1)]
        return {"messages": [AIMessage("Looking.", id=f"ai-{count}", tool_calls=calls)], "notes": ["asked"]}
    return {"messages": [AIMessage(f"Seen after {count}.", id=f"ai-{count}")], "notes": ["answered"]}


def look(call: Any) -> dict[str, Any]:
    """A tool: the second one asks a person, twice."""
    text = "plain"
    if call["args"]["at"]:
        text = f"{interrupt('May I?')}, {interrupt('Really?')}"
    result = ToolMessage(text, tool_call_id=call["id"], id=f"tool-{call['id']}")
    return {"messages": [result], "notes": [text]}


def after_think(state: State) -> Any:
    last = state["messages"][-1]
    calls = last.tool_calls if isinstance(last, AIMessage) else []
    return [Send("look", call) for call in calls] or END


def make_agent() -> Any:
    builder: Any = StateGraph(State)
    builder.add_node("think", think)
    builder.add_node("look", look)
    builder.add_edge(START, "think")
    builder.add_conditional_edges("think", after_think, ["look", END])
    builder.add_edge("look", "think")
    return builder


class Inner(TypedDict):
    """The state of a subgraph: messages of its own, which are not those of the thread."""

    messages: Annotated[list[AnyMessage], add_messages]
    depth: int


def make_nested() -> Any:
    """A graph in a graph in a graph: the innermost asks a person."""

    def ask(state: Inner) -> dict[str, Any]:
        answer = interrupt({"depth": state["depth"]})
        return {"messages": [AIMessage(f"inner: {answer}", id=f"inner-{len(state['messages'])}")]}

    innermost: Any = StateGraph(Inner)
    innermost.add_node("ask", ask)
    innermost.add_edge(START, "ask")
    middle: Any = StateGraph(Inner)
    middle.add_node("deeper", lambda state: {"depth": state["depth"] + 1})
    middle.add_node("innermost", innermost.compile())
    middle.add_edge(START, "deeper")
    middle.add_edge("deeper", "innermost")
    compiled = middle.compile(checkpointer=True)

    def call(state: State) -> dict[str, Any]:
        said: Any = {"messages": [HumanMessage("from outside", id=f"outside-{len(state['messages'])}")], "depth": 0}
        found = compiled.invoke(said)
        return {"messages": [AIMessage(found["messages"][-1].text, id=f"outer-{len(state['messages'])}")]}

    outer: Any = StateGraph(State)
    outer.add_node("call", call)
    outer.add_edge(START, "call")
    return outer


# ---- what is done with them: the same steps with each saver


def say(text: str, id: str) -> dict[str, Any]:
    return {"messages": [HumanMessage(text, id=id)], "notes": []}


def talk(graph: Any) -> list[Any]:
    """Two turns, each with interrupts that are answered one after the other."""
    found = []
    for turn in ("one", "two"):
        found += [graph.invoke(say(turn, turn), THREAD), view(graph.get_state(THREAD))]
        found += [graph.invoke(Command(resume="yes"), THREAD), view(graph.get_state(THREAD))]
        found += [graph.invoke(Command(resume="really"), THREAD), view(graph.get_state(THREAD))]
    return found


def travel(graph: Any) -> list[Any]:
    """Edit the state, go on from an old checkpoint, and from there again."""
    found = talk(graph)
    history = [*graph.get_state_history(THREAD)]
    # 1. A checkpoint in the middle goes another way.
    old = history[len(history) // 2].config
    edited = graph.update_state(old, {"messages": [HumanMessage("edited", id="edited")]}, as_node=START)
    found += [graph.invoke(None, edited), view(graph.get_state(THREAD)), view(graph.get_state(old))]
    found += [graph.invoke(Command(resume="no"), THREAD), graph.invoke(Command(resume="never"), THREAD)]
    # 2. The same checkpoint runs again, as it was; then a copy of it.
    found += [graph.invoke(None, old), graph.invoke(None, graph.update_state(old, None, as_node="__copy__"))]
    # 3. Messages are edited, removed, and all replaced.
    last = graph.get_state(THREAD).values["messages"][-1]
    changes: list[list[Any]] = [
        [AIMessage("rewritten", id=last.id)],
        [RemoveMessage(id=last.id)],
        [RemoveMessage(id="one"), HumanMessage("new", id="new")],
        [RemoveMessage(id=REMOVE_ALL_MESSAGES), HumanMessage("all new", id="all")],
        [RemoveMessage(id=REMOVE_ALL_MESSAGES)],
        [HumanMessage("again", id="again")],
    ]
    for change in changes:
        graph.update_state(THREAD, {"messages": change}, as_node="look")
        found.append(view(graph.get_state(THREAD)))
    return found


def nest(graph: Any) -> list[Any]:
    """Turns of a graph whose subgraph is interrupted, seen with and without the subgraphs."""
    found = []
    for turn in ("one", "two"):
        found += [graph.invoke(say(turn, turn), THREAD), view(graph.get_state(THREAD, subgraphs=True))]
        found += [graph.invoke(Command(resume=f"answer {turn}"), THREAD), view(graph.get_state(THREAD))]
    return found


def view(state: Any) -> Any:
    """A state without what differs from run to run: ids of checkpoints and tasks, and times."""
    return {
        "values": state.values,
        "next": state.next,
        "metadata": {k: v for k, v in state.metadata.items() if k in ("source", "step")} if state.metadata else None,
        "interrupts": [one.value for one in state.interrupts],
        "tasks": [
            (task.name, repr(task.error), [one.value for one in task.interrupts], task.result, inner(task.state))
            for task in state.tasks
        ],
    }


def inner(state: Any) -> Any:
    return view(state) if hasattr(state, "values") and not isinstance(state, dict) else None


def place_in(history: list[Any]) -> list[tuple[Any, int | None]]:
    """A history with the place of each state's parent in it."""
    places = {one.config["configurable"]["checkpoint_id"]: at for at, one in enumerate(history)}
    parents = [one.parent_config and one.parent_config["configurable"]["checkpoint_id"] for one in history]
    return [(view(one), places.get(parent)) for one, parent in zip(history, parents, strict=True)]


def without_ids(found: Any) -> Any:
    """What `invoke` gave, with interrupts as their values: their ids are of the task."""
    if isinstance(found, dict) and "__interrupt__" in found:
        return {**found, "__interrupt__": [one.value for one in found["__interrupt__"]]}
    return found


RUNS = [
    pytest.param(make_agent, talk, id="interrupts"),
    pytest.param(make_agent, travel, id="time-travel"),
    pytest.param(make_nested, nest, id="subgraphs"),
]


@pytest.mark.parametrize(("make", "run"), RUNS)
@pytest.mark.parametrize("durability", ["sync", "async", "exit"])
def test_a_graph_goes_through_the_same_states(
    make: Callable[[], Any], run: Callable[[Any], list[Any]], durability: str, place: str
) -> None:
    expected, listed = run_with(InMemorySaver(), make, run, durability)
    with nacre.open(place) as sessions:
        found, history = run_with(NacreSaver(sessions), make, run, durability)
        # A saver that has seen nothing of it lists the same, and so does one that keeps nothing in between.
        again = make().compile(checkpointer=NacreSaver(nacre.AsyncSessions.of(sessions)))
        newest = again.get_state(THREAD).values
        assert place_in([*again.get_state_history(THREAD)]) == listed
        assert [one.text for one in newest["messages"]] == [one.content for one in sessions.get_history("t")]
    assert found == expected
    assert history == listed


def run_with(
    saver: BaseCheckpointSaver[Any], make: Callable[[], Any], run: Callable[[Any], list[Any]], mode: str
) -> tuple[list[Any], list[Any]]:
    graph = make().compile(checkpointer=saver)
    found = [without_ids(one) for one in run(Durable(graph, mode))]
    return found, place_in([*graph.get_state_history(THREAD)])


class Durable:
    """A graph that is always invoked with one kind of durability."""

    def __init__(self, graph: Any, mode: str) -> None:
        self._graph, self._mode = graph, mode

    def __getattr__(self, name: str) -> Any:
        return getattr(self._graph, name)

    def invoke(self, given: Any, config: Any) -> Any:
        return self._graph.invoke(given, config, durability=self._mode)


# ---- the same, awaited


async def talk_async(graph: Any) -> list[Any]:
    found = []
    for turn in ("one", "two"):
        steps: list[Any] = [say(turn, turn), Command(resume="yes"), Command(resume="really")]
        for given in steps:
            found += [without_ids(await graph.ainvoke(given, THREAD)), view(await graph.aget_state(THREAD))]
    old = [one async for one in graph.aget_state_history(THREAD)][-3].config
    edited = await graph.aupdate_state(old, {"messages": [HumanMessage("edited", id="edited")]}, as_node=START)
    return [*found, without_ids(await graph.ainvoke(None, edited)), view(await graph.aget_state(THREAD))]


async def nest_async(graph: Any) -> list[Any]:
    found = [without_ids(await graph.ainvoke(say("one", "one"), THREAD))]
    found.append(view(await graph.aget_state(THREAD, subgraphs=True)))
    return [*found, await graph.ainvoke(Command(resume="answer"), THREAD)]


@pytest.mark.parametrize(
    ("make", "run"), [(make_agent, talk_async), (make_nested, nest_async)], ids=["agent", "subgraphs"]
)
@pytest.mark.parametrize("opens_async", [True, False])
def test_an_awaited_graph_goes_through_the_same_states(
    make: Callable[[], Any], run: Any, place: str, opens_async: bool
) -> None:
    async def try_both() -> None:
        listed = []
        for saver in (opened(place, opens_async=opens_async), in_memory()):
            async with saver as it:
                graph = make().compile(checkpointer=it)
                found = await run(graph)
                listed.append((found, place_in([one async for one in graph.aget_state_history(THREAD)])))
        assert listed[0] == listed[1]

    asyncio.run(try_both())


@asynccontextmanager
async def opened(place: str, *, opens_async: bool) -> AsyncGenerator[NacreSaver]:
    if opens_async:
        async with nacre.open_async(place) as awaited:
            yield NacreSaver(awaited)
    else:
        with nacre.open(place) as sessions:
            yield NacreSaver(sessions)


@asynccontextmanager
async def in_memory() -> AsyncGenerator[InMemorySaver]:
    yield InMemorySaver()


# ---- what a thread looks like from outside


@contextmanager
def running(place: str, make: Callable[[], Any]) -> Generator[tuple[Any, nacre.Sessions]]:
    with nacre.open(place) as sessions:
        yield make().compile(checkpointer=NacreSaver(sessions)), sessions


def test_messages_of_a_subgraph_are_no_part_of_the_conversation(place: str) -> None:
    with running(place, make_nested) as (graph, sessions):
        nest(graph)
        said = [(one.role, one.content) for one in sessions.get_history("t")]
    assert said == [
        ("user", "one"),
        ("assistant", "inner: answer one"),
        ("user", "two"),
        ("assistant", "inner: answer two"),
    ]


def test_a_message_is_stored_once_however_many_checkpoints_have_it(place: str) -> None:
    with running(place, make_agent) as (graph, sessions):
        talk(graph)
        assert len([*graph.get_state_history(THREAD)]) == 10
        assert len([one for one in sessions.read("t", lambda view: [*view.all()]) or [] if one.m is not None]) == 10


def test_a_failed_task_keeps_what_the_others_wrote(lasting_place: str) -> None:
    attempts = []
    stored = Event()

    class Saver(NacreSaver):
        def put_writes(self, config: Any, writes: Any, task_id: str, task_path: str = "") -> None:
            super().put_writes(config, writes, task_id, task_path)
            if ("notes", ["worked"]) in writes:
                stored.set()

    def fail_once(_: State) -> dict[str, Any]:
        attempts.append(1)
        if attempts.count(1) == 1:
            # LangGraph stores nothing more of a step that has failed.
            assert stored.wait(60)
            raise ValueError("not yet")
        return {"notes": ["second"]}

    def work(_: State) -> dict[str, Any]:
        attempts.append(2)
        return {"notes": ["worked"], "messages": [AIMessage("done", id="done")]}

    def make() -> Any:
        builder: Any = StateGraph(State)
        builder.add_node("fail", fail_once)
        builder.add_node("work", work)
        builder.add_edge(START, "fail")
        builder.add_edge(START, "work")
        return builder

    with nacre.open(lasting_place) as sessions:
        graph = make().compile(checkpointer=Saver(sessions))
        with pytest.raises(ValueError, match="not yet"):
            graph.invoke(say("hello", "hello"), THREAD, durability="sync")
    with running(lasting_place, make) as (graph, _):
        assert graph.get_state(THREAD).tasks[0].error is not None
        found = graph.invoke(None, THREAD)
    assert found["notes"] == ["second", "worked"]
    assert attempts.count(2) == 1


# ---- what is not live was moved out of the log


@pytest.mark.parametrize(("make", "run"), RUNS)
def test_a_saved_thread_is_as_it_was(
    make: Callable[[], Any], run: Callable[[Any], list[Any]], lasting_place: str
) -> None:
    with open_saving(lasting_place) as sessions:
        saver = NacreSaver(sessions)
        run(make().compile(checkpointer=saver))
        before = everything(saver)
        save(sessions, "t")
        assert everything(saver) == before
        assert everything(NacreSaver(nacre.AsyncSessions.of(sessions))) == before
    with open_saving(lasting_place) as sessions:
        newest = NacreSaver(sessions).get_tuple(THREAD)
        assert newest == before[0]
        assert everything(NacreSaver(sessions)) == before


def everything(saver: NacreSaver) -> list[Any]:
    """All that a saver says about the thread, each checkpoint also by its id."""
    listed = [*saver.list({"configurable": {"thread_id": "t"}})]
    return [saver.get_tuple(THREAD), listed, [saver.get_tuple(one.config) for one in listed]]


@pytest.mark.parametrize("is_opened_again", [False, True])
def test_a_saved_thread_can_be_gone_on_from_anywhere(lasting_place: str, is_opened_again: bool) -> None:
    expected = InMemorySaver()
    with open_saving(lasting_place) as sessions:
        saver = NacreSaver(sessions)
        for one in (expected, saver):
            talk(make_agent().compile(checkpointer=one))
        save(sessions, "t")
        if not is_opened_again:
            assert go_back(saver) == go_back(expected)
    with open_saving(lasting_place) as sessions:
        if is_opened_again:
            assert go_back(NacreSaver(sessions)) == go_back(expected)
        graphs = [make_agent().compile(checkpointer=one) for one in (NacreSaver(sessions), expected)]
        found, wanted = (place_in([*graph.get_state_history(THREAD)]) for graph in graphs)
        assert found == wanted


def go_back(saver: BaseCheckpointSaver[Any]) -> list[Any]:
    """Go on from the newest checkpoint, and from each old one, the other way round."""
    graph = make_agent().compile(checkpointer=saver)
    history = [*graph.get_state_history(THREAD)]
    found = [without_ids(graph.invoke(say("three", "three"), THREAD)), view(graph.get_state(THREAD))]
    for at, old in enumerate(history):
        edited = graph.update_state(old.config, {"messages": [HumanMessage("edited", id=f"e{at}")]}, as_node=START)
        found += [
            without_ids(graph.invoke(None, edited)),
            view(graph.get_state(THREAD)),
            view(graph.get_state(old.config)),
        ]
    return found
