"""One turn of a conversation by a LangGraph graph, which uses a tool; prints what the model was shown."""

from __future__ import annotations

import json
import sys
from typing import Any

from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langgraph.graph import END, START, MessagesState, StateGraph

import nacre
from nacre.integrations.langgraph import NacreSaver, read_messages

PLACE, KEY, QUESTION = sys.argv[1:]
ID = "call_" + QUESTION.replace(" ", "_")
asked: list[Any] = []


def model(state: MessagesState) -> dict[str, Any]:
    asked[:] = state["messages"]
    if isinstance(asked[-1], HumanMessage):
        return {"messages": [AIMessage("", tool_calls=[{"name": "clock", "args": {}, "id": ID}])]}
    return {"messages": [AIMessage(f"LangGraph: {QUESTION}!")]}


def tool(_: MessagesState) -> dict[str, Any]:
    return {"messages": [ToolMessage("noon", tool_call_id=ID)]}


def after_model(state: MessagesState) -> str:
    last = state["messages"][-1]
    return "tool" if isinstance(last, AIMessage) and last.tool_calls else END


builder = StateGraph(MessagesState)
builder.add_node("model", model)
builder.add_node("tool", tool)
builder.add_edge(START, "model")
builder.add_conditional_edges("model", after_model)
builder.add_edge("tool", "model")
with nacre.open(PLACE) as sessions:
    graph = builder.compile(checkpointer=NacreSaver(sessions))
    before = read_messages(sessions, KEY)
    graph.invoke({"messages": [*before, HumanMessage(QUESTION)]}, {"configurable": {"thread_id": KEY}})

roles = {"human": "user", "ai": "assistant", "tool": "tool"}
shown = [[roles[it.type], it.text, [call["name"] for call in getattr(it, "tool_calls", [])]] for it in asked]
sys.stdout.write(json.dumps(shown))
