"""Lists of messages, and other values, come back as they come back from InMemorySaver, whatever is done to the list."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    BaseMessage,
    FunctionMessage,
    HumanMessage,
    HumanMessageChunk,
    RemoveMessage,
    SystemMessage,
    ToolMessage,
)
from langchain_core.messages.chat import ChatMessage
from langgraph.checkpoint.base import BaseCheckpointSaver, empty_checkpoint
from langgraph.checkpoint.base.id import uuid6
from langgraph.checkpoint.memory import InMemorySaver

import nacre
from nacre.integrations.langgraph import NacreSaver

# ---- messages of every kind

texts = st.one_of(
    st.sampled_from(["", "plain", "Grüße, 世界 👩‍👩‍👧", "\x00\x1b[0m", "a\ud800b", "\udfff", '{"k": 1}', "\r\n"]),
    st.text(max_size=8),
)
# LangGraph's serializer replaces half a surrogate pair in a value by "?" and refuses it in a key.
names = st.one_of(st.sampled_from(["", "id", "content", "b", "+", "role", "ü"]), st.text("ab\n\x00é", max_size=4))
numbers = st.one_of(
    st.integers(-3, 3), st.sampled_from([2**53 + 1, 2**63, 2**64 - 1, -(2**63), 0.0, -0.0, 1.0, 1e300, 5e-324])
)
scalars = st.one_of(st.none(), st.booleans(), numbers, texts, st.binary(max_size=6))
values = st.recursive(
    scalars, lambda one: st.one_of(st.lists(one, max_size=3), st.dictionaries(names, one, max_size=3)), max_leaves=5
)
objects = st.dictionaries(names, values, max_size=3)
blocks = st.one_of(
    texts,
    st.builds(lambda text: {"type": "text", "text": text}, texts),
    st.builds(lambda data: {"type": "image", "base64": "aGk=", "mime_type": "image/png", "extras": data}, values),
    st.builds(lambda text: {"type": "reasoning", "reasoning": text, "index": 0}, texts),
    st.builds(lambda data: {"type": "file", "data": data}, st.binary(max_size=5)),
    objects,
)
contents = st.one_of(texts, st.lists(blocks, max_size=3))
ids = st.one_of(st.none(), st.sampled_from(["a", "b", "c", "", "ü"]))
calls = st.builds(
    lambda name, args, call: {"name": name, "args": args, "id": call, "type": "tool_call"},
    texts,
    objects,
    st.one_of(st.none(), texts),
)
broken_calls = st.builds(
    lambda name, args, call: {"name": name, "args": args, "id": call, "error": None, "type": "invalid_tool_call"},
    st.one_of(st.none(), texts),
    st.one_of(st.none(), texts),
    st.one_of(st.none(), texts),
)
usages = st.builds(
    lambda a, b: {"input_tokens": a, "output_tokens": b, "total_tokens": a + b}, st.integers(0, 9), st.integers(0, 9)
)
models = st.one_of(objects, st.builds(lambda name, more: {"model_name": name, **more}, scalars, objects))
common: dict[str, Any] = {
    "content": contents,
    "id": ids,
    "name": st.one_of(st.none(), texts),
    "additional_kwargs": objects,
    "response_metadata": models,
}


def build(kind: type[BaseMessage], **more: Any) -> st.SearchStrategy[BaseMessage]:
    """Messages of a kind, each with some of the fields, and sometimes one that the kind does not have."""
    needed: dict[str, Any] = {name: more.pop(name) for name in ("role", "tool_call_id", "name") if name in more}
    optional = {**{name: one for name, one in common.items() if name not in needed}, **more}
    optional["more"] = scalars
    needed["content"] = optional.pop("content")
    return st.fixed_dictionaries(needed, optional=optional).map(lambda it: kind(**it))


messages = st.one_of(
    build(HumanMessage),
    build(SystemMessage),
    build(
        AIMessage,
        tool_calls=st.lists(calls, max_size=2),
        invalid_tool_calls=st.lists(broken_calls, max_size=2),
        usage_metadata=usages,
    ),
    build(ToolMessage, tool_call_id=texts, artifact=values, status=st.sampled_from(["success", "error"])),
    build(FunctionMessage, name=texts),
    build(ChatMessage, role=st.one_of(texts, st.sampled_from(["user", "assistant", "chat", "tool", "critic"]))),
    build(AIMessageChunk),
    build(HumanMessageChunk),
    st.builds(lambda text: RemoveMessage(id=text), texts),
)


# ---- comparing


def exact(value: Any) -> Any:
    """A value as something to compare that tells 1 from 1.0 and from True, and a message by all that it has."""
    if isinstance(value, BaseMessage):
        parts = [value.__dict__, value.__pydantic_extra__ or {}]
        return (type(value), *map(exact, parts))
    if isinstance(value, dict):
        return {exact(name): exact(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return (type(value), [exact(one) for one in value])
    if isinstance(value, str):
        # Half a surrogate pair is stored as "?"; a saver that was given it may still have it.
        return value.encode(errors="replace")
    return (type(value), repr(value))


class Pair:
    """The same checkpoints, put into a NacreSaver and into an InMemorySaver."""

    def __init__(self, sessions: nacre.Sessions) -> None:
        self.sessions = sessions
        self.savers: tuple[BaseCheckpointSaver[Any], ...] = (NacreSaver(sessions), InMemorySaver())
        self.ids: list[str] = []

    def put(self, values: dict[str, Any], parent: str | None = None) -> None:
        version = len(self.ids) + 1
        checkpoint: Any = {**empty_checkpoint(), "id": str(uuid6(clock_seq=version)), "channel_values": values}
        checkpoint["channel_versions"] = dict.fromkeys(values, version)
        for saver in self.savers:
            config: Any = {"configurable": {"thread_id": "t", "checkpoint_ns": "", "checkpoint_id": parent}}
            saver.put(config, checkpoint, {"source": "loop", "step": version}, dict.fromkeys(values, version))
        self.ids.append(str(checkpoint["id"]))

    def check(self) -> None:
        """Every checkpoint has the same values in both, for this saver and for one that has seen nothing."""
        newest: Any = {"configurable": {"thread_id": "t"}}
        for saver in (self.savers[0], NacreSaver(nacre.AsyncSessions.of(self.sessions))):
            for id in [None, *reversed(self.ids)]:
                config: Any = {"configurable": {**newest["configurable"], "checkpoint_ns": "", "checkpoint_id": id}}
                ours, theirs = (one.get_tuple(config) for one in (saver, self.savers[1]))
                assert ours is not None
                assert theirs is not None
                assert ours.checkpoint["id"] == theirs.checkpoint["id"]
                assert exact(ours.checkpoint["channel_values"]) == exact(theirs.checkpoint["channel_values"])


@given(messages, values)
def test_a_message_and_a_value_come_back_as_they_were(message: BaseMessage, value: Any) -> None:
    with nacre.open(":memory:") as sessions:
        pair = Pair(sessions)
        pair.put({"messages": [message], "value": value, "one": message, "others": [message, message]})
        pair.check()


edits = st.one_of(
    st.tuples(st.just("append"), st.lists(messages, min_size=1, max_size=3)),
    st.tuples(st.just("replace"), st.integers(0, 9), messages),
    st.tuples(st.just("delete"), st.integers(0, 9)),
    st.tuples(st.just("cut front"), st.integers(0, 9)),
    st.tuples(st.just("cut end"), st.integers(0, 9)),
    st.tuples(st.just("go back"), st.integers(0, 9)),
    st.tuples(st.just("reverse")),
    st.tuples(st.just("not messages"), st.one_of(values, st.lists(st.one_of(messages, values), max_size=2))),
    st.tuples(st.just("summarize"), st.integers(0, 3), messages),
)


@given(st.lists(messages, max_size=4), st.lists(edits, max_size=8))
def test_whatever_is_done_to_the_list_every_checkpoint_keeps_its_own(
    first: list[BaseMessage], changes: list[tuple[Any, ...]]
) -> None:
    with nacre.open(":memory:") as sessions:
        pair = Pair(sessions)
        lists: list[list[BaseMessage]] = [first]
        pair.put({"messages": first})
        for change in changes:
            pair.put({"messages": edit(lists, change)}, pair.ids[-1])
        pair.check()


def edit(lists: list[list[BaseMessage]], change: tuple[Any, ...]) -> Any:
    """The next list; what is not one of messages is not gone on from."""
    kind, *arguments = change
    last = lists[-1]
    match kind:
        case "append":
            new = [*last, *arguments[0]]
        case "replace":
            new = [arguments[1] if at == arguments[0] else one for at, one in enumerate(last)]
        case "delete":
            new = [one for at, one in enumerate(last) if at != arguments[0]]
        case "cut front":
            new = last[arguments[0] :]
        case "cut end":
            new = last[: arguments[0]]
        case "go back":
            new = lists[arguments[0] % len(lists)]
        case "reverse":
            new = last[::-1]
        case "summarize":
            new = [arguments[1], *last[arguments[0] :]]
        case _:
            return arguments[0]
    lists.append(new)
    return new


# ---- equal, and yet not the same


def make_numbered(at: int, value: Any, id: str | None = "same") -> AIMessage:
    """A message that is equal to others where the value is, with calls and blocks as models have them."""
    return AIMessage(
        [{"type": "text", "text": f"message {at}", "index": value}],
        id=id and f"{id}-{at}",
        additional_kwargs={"seen": [value]},
        tool_calls=[{"name": "read", "args": {"line": value}, "id": f"call-{at}"}],
    )


EQUAL = [(1, True), (True, 1), (1, 1.0), (0, False), (0.0, -0.0)]


@pytest.mark.parametrize("place", [0, 3, 9])
@pytest.mark.parametrize(("before", "after"), EQUAL)
def test_a_value_that_is_equal_to_another_type_is_stored_as_it_is(before: Any, after: Any, place: int) -> None:
    with nacre.open(":memory:") as sessions:
        pair = Pair(sessions)
        messages = [make_numbered(at, before) for at in range(10)]
        pair.put({"messages": messages, "value": before})
        messages = [make_numbered(at, after) if at == place else one for at, one in enumerate(messages)]
        pair.put({"messages": messages, "value": after}, pair.ids[-1])
        pair.put({"messages": [*messages, make_numbered(10, after)], "value": after}, pair.ids[-1])
        pair.check()


def test_messages_that_are_equal_are_told_apart_by_their_place() -> None:
    with nacre.open(":memory:") as sessions:
        pair = Pair(sessions)
        same = [HumanMessage("same") for _ in range(9)]
        other = HumanMessage("same", id="other")
        for messages in (same, [*same[:4], other, *same[5:]], [*same, other], [other, *same[:6]], same[3:]):
            pair.put({"messages": messages}, pair.ids[-1] if pair.ids else None)
        pair.check()


def test_of_messages_that_are_equal_only_the_erased_one_is_erased() -> None:
    with nacre.open(":memory:") as sessions:
        pair = Pair(sessions)
        messages = [HumanMessage("same") for _ in range(3)]
        # As a graph begins: what it is given comes after its first checkpoint.
        pair.put({"messages": []})
        pair.put({"messages": messages}, pair.ids[-1])
        sessions.redact("t", sessions.snapshot("t").numbers[1])
        pair.put({"messages": [*messages, AIMessage("next")]}, pair.ids[-1])
        assert [one.content for one in sessions.get_history("t")] == ["same", "", "same", "next"]


# ---- changed in place


def change_content(message: AIMessage) -> None:
    message.content = "changed"


def change_block(message: AIMessage) -> None:
    message.content[0]["text"] = "changed"  # type: ignore[index] # blocks, below


def change_call(message: AIMessage) -> None:
    message.tool_calls[0]["args"]["path"] = "changed"


def change_kwargs(message: AIMessage) -> None:
    message.additional_kwargs["seen"] = True


def change_metadata(message: AIMessage) -> None:
    message.response_metadata["usage"]["tokens"] = 2


CHANGES = [change_content, change_block, change_call, change_kwargs, change_metadata]


def make_message(at: int) -> AIMessage:
    return AIMessage(
        [{"type": "text", "text": f"message {at}"}],
        id=f"ai-{at}",
        tool_calls=[{"name": "read", "args": {"path": "a"}, "id": f"call-{at}"}],
        response_metadata={"model_name": "scripted", "usage": {"tokens": 1}},
    )


@pytest.mark.parametrize("change", CHANGES)
def test_a_message_that_a_node_changed_in_place_is_stored_as_it_is(change: Callable[[AIMessage], None]) -> None:
    with nacre.open(":memory:") as sessions:
        pair = Pair(sessions)
        messages = [make_message(at) for at in range(6)]
        pair.put({"messages": messages})
        change(messages[4])
        pair.put({"messages": [*messages, make_message(6)]}, pair.ids[-1])
        pair.check()


@pytest.mark.parametrize("change", CHANGES)
def test_what_a_reader_changes_in_place_is_not_seen_by_the_next(change: Callable[[AIMessage], None]) -> None:
    with nacre.open(":memory:") as sessions:
        pair = Pair(sessions)
        pair.put({"messages": [make_message(at) for at in range(6)]})
        found = pair.savers[0].get_tuple({"configurable": {"thread_id": "t"}})
        assert found is not None
        change(found.checkpoint["channel_values"]["messages"][4])
        pair.check()


def test_content_that_was_changed_in_place_is_noticed_however_old_it_is() -> None:
    with nacre.open(":memory:") as sessions:
        pair = Pair(sessions)
        messages = [make_message(at) for at in range(60)]
        pair.put({"messages": messages})
        change_block(messages[20])
        change_content(messages[10])
        pair.put({"messages": messages}, pair.ids[-1])
        pair.check()


def test_content_far_back_that_was_changed_in_place_is_stored_by_one_of_the_next_checkpoints() -> None:
    with nacre.open(":memory:") as sessions:
        pair = Pair(sessions)
        messages = [HumanMessage(f"{at}", id=f"{at}") for at in range(2200)]
        pair.put({"messages": messages})
        for at in (700, 100, 1900):
            messages[at].content = "changed"
            for _ in range(5):
                messages = [*messages, HumanMessage("next", id=f"{len(messages)}")]
                pair.put({"messages": messages}, pair.ids[-1])
            assert [one.content for one in sessions.get_history("t")] == [one.content for one in messages]


def test_values_that_are_changed_in_place_stay_as_they_were_put() -> None:
    with nacre.open(":memory:") as sessions:
        pair = Pair(sessions)
        value = {"list": [1], "deep": {"er": ["a"]}}
        other = HumanMessage("a", id="a", additional_kwargs={"k": [1]})
        pair.put({"first": 1})
        pair.put({"value": value, "others": [other]}, pair.ids[-1])
        config: Any = {"configurable": {"thread_id": "t", "checkpoint_ns": "", "checkpoint_id": pair.ids[-1]}}
        written = [{"w": 1}]
        for saver in pair.savers:
            saver.put_writes(config, [("value", written)], "task")
        value["list"].append(2)  # type: ignore[attr-defined] # a list
        other.additional_kwargs["k"].append(2)
        written[0]["w"] = 2
        pair.check()
        found = pair.savers[0].get_tuple(config)
        assert found is not None
        assert found.pending_writes == [("task", "value", [{"w": 1}])]
