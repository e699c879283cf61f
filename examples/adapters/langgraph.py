"""LangGraph: a graph whose threads are in nacre, with a scripted model and without the network.

A graph calls a tool, and asks a person first: it is interrupted. The store is opened again, as after a restart, and the
answer continues the thread where it stood. The thread is copied, and goes another way from an old checkpoint. Then the
graph continues what a program without LangGraph has written in between.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

# This file has the name of the package, which must not be looked for in its folder.
sys.path[:] = [path for path in sys.path if Path(path).resolve() != Path(__file__).resolve().parent]

from langchain_core.messages import AIMessage, HumanMessage, ToolCall, ToolMessage  # noqa: E402 - after the line above
from langchain_core.runnables import RunnableConfig  # noqa: E402 - the same
from langgraph.graph import END, START, MessagesState, StateGraph  # noqa: E402 - the same
from langgraph.types import Command, interrupt  # noqa: E402 - the same

import nacre  # noqa: E402 - the same
from nacre.integrations.langgraph import NacreSaver, read_messages  # noqa: E402 - the same

THREAD: RunnableConfig = {"configurable": {"thread_id": "shells"}}


def model(state: MessagesState) -> dict[str, Any]:
    """The script: weigh first, then say what came of it."""
    last = state["messages"][-1]
    if isinstance(last, ToolMessage):
        return {"messages": [AIMessage(f"{last.text}. I have read {len(state['messages'])} messages.")]}
    call = {"name": "weigh", "args": {"shell": "mussel"}, "id": f"call_{len(state['messages'])}"}
    return {"messages": [AIMessage("Let me weigh it.", tool_calls=[call])]}


def weigh(state: MessagesState) -> dict[str, Any]:
    """The tool; it runs only if a person agrees."""
    call = calls_of(state)[0]
    if interrupt(f"May I weigh the {call['args']['shell']}?") != "yes":
        return {"messages": [ToolMessage("It was not weighed", tool_call_id=call["id"])]}
    return {"messages": [ToolMessage("It weighs 6 grams", tool_call_id=call["id"])]}


def after_model(state: MessagesState) -> str:
    return "weigh" if calls_of(state) else END


def calls_of(state: MessagesState) -> list[ToolCall]:
    last = state["messages"][-1]
    return last.tool_calls if isinstance(last, AIMessage) else []


builder = StateGraph(MessagesState)
builder.add_node("model", model)
builder.add_node("weigh", weigh)
builder.add_edge(START, "model")
builder.add_conditional_edges("model", after_model)
builder.add_edge("weigh", "model")


def ask(place: str) -> None:
    with nacre.open(place) as sessions:
        graph = builder.compile(checkpointer=NacreSaver(sessions))
        graph.invoke({"messages": [HumanMessage("How heavy is it?")]}, THREAD)
        print(f"interrupted: {graph.get_state(THREAD).interrupts[0].value}")


def answer(place: str) -> None:
    with nacre.open(place) as sessions:
        saver = NacreSaver(sessions)
        graph = builder.compile(checkpointer=saver)
        waiting = graph.get_state(THREAD).config
        found = graph.invoke(Command(resume="yes"), THREAD)
        print(f"resumed: {found['messages'][-1].text}")

        saver.copy_thread("shells", "shells, again")
        graph.invoke(None, graph.update_state(waiting, None, as_node="__copy__"))
        found = graph.invoke(Command(resume="no"), THREAD)
        print(f"from an old checkpoint: {found['messages'][-1].text}")
        print(f"{len([*graph.get_state_history(THREAD)])} checkpoints are listed")

        sessions.add_message("shells", "user", "A note from a program without LangGraph.")
        graph.invoke({"messages": [*read_messages(sessions, "shells"), HumanMessage("And now?")]}, THREAD)
        found = graph.invoke(Command(resume="yes"), THREAD)
        print(f"continued: {found['messages'][-1].text}")


def show(place: str) -> None:
    with nacre.open(place) as sessions:
        for key in ("shells", "shells, again"):
            print(f"-- {key}")
            for message in sessions.get_history(key):
                calls = "".join(f" [calls {one.name}]" for one in message.tool_calls)
                print(f"{message.role}: {message.content or ''}{calls}")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        ask(folder)
        answer(folder)
        show(folder)
