"""A process that uses a thread, for test_durability: it prints a line for each call that has returned."""

from __future__ import annotations

import json
import sys
from itertools import count
from typing import Any

from langchain_core.messages import AIMessage, HumanMessage
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.base.id import uuid6
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import Command, interrupt

import nacre
from nacre.integrations.langgraph import NacreSaver


def ask(_: MessagesState) -> dict[str, Any]:
    answer = interrupt("May I?")
    return {"messages": [AIMessage("May I?"), HumanMessage(answer)]}


def say(**line: Any) -> None:
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


def write(saver: NacreSaver, key: str, name: str, steps: Any) -> None:
    """Put checkpoints whose messages grow, each followed by writes, as a graph does."""
    messages: list[Any] = []
    parent = None
    for step in steps:
        messages = [*messages, HumanMessage(f"{name}{step}", id=f"{name}{step}")]
        versions: Any = dict.fromkeys(("messages", "step"), f"{name}{step}")
        checkpoint: Any = {**empty_checkpoint(), "id": str(uuid6()), "channel_versions": versions}
        checkpoint["channel_values"] = {"messages": messages, "step": step}
        config: Any = {"configurable": {"thread_id": key, "checkpoint_ns": "", "checkpoint_id": parent}}
        config = saver.put(config, checkpoint, {"source": "loop", "step": step}, versions)
        parent = checkpoint["id"]
        say(call="put", id=parent, step=step, name=name)
        saver.put_writes(config, [("messages", [step])], f"task {step}")
        say(call="put_writes", id=parent, step=step, task=f"task {step}")


def main(place: str, task: str, key: str, *arguments: str) -> None:
    builder: Any = StateGraph(MessagesState)
    builder.add_node("ask", ask)
    builder.add_edge(START, "ask")
    thread: Any = {"configurable": {"thread_id": key}}
    with nacre.open(place) as sessions:
        saver = NacreSaver(sessions)
        graph = builder.compile(checkpointer=saver)
        if task == "ask":
            found = graph.invoke({"messages": [HumanMessage("hello")]}, thread)
            say(interrupt=found["__interrupt__"][0].value)
        elif task == "answer":
            found = graph.invoke(Command(resume=arguments[0]), thread)
            say(messages=[one.text for one in found["messages"]])
        elif task == "add":
            graph.update_state(thread, {"messages": [HumanMessage(arguments[0])]}, as_node="ask")
        elif task == "race":
            write(saver, key, arguments[0], range(int(arguments[1])))
        else:
            write(saver, key, "", count())


if __name__ == "__main__":
    main(*sys.argv[1:])
