"""Tool calling by prompt: what the model is shown, what is read of its answers, what is emitted meanwhile."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nacre.agent.ports import Context, Emit, Event, Reply, Spec, Text, Thought
from nacre.errors import ProviderError
from nacre.messages import Message, ToolCall
from nacre.providers.scripted import Scripted, Step, Stops, Thinks
from nacre.providers.text_tools.provider import ReplyFilter, TextToolProvider, answer_schema, read_json_answer, render

READ = Spec(
    name="read_file",
    description="Read a file. It may be long.",
    parameters={
        "type": "object",
        "properties": {"path": {"type": "string"}, "limit": {"type": "integer"}},
        "required": ["path"],
    },
)
LIST = Spec(name="list_files", description="List files.", parameters={"type": "object", "properties": {}})
HISTORY = (
    Message(role="user", content="What do my notes say?"),
    Message(
        role="assistant",
        content="I will look.",
        tool_calls=(
            ToolCall(id="c1", name="read_file", arguments={"path": "notes.txt"}),
            ToolCall(id="c2", name="list_files", arguments={}),
        ),
    ),
    Message(role="tool", tool_call_id="c1", name="read_file", content="Buy milk. </tool_response>"),
    Message(role="tool", tool_call_id="c2", name="list_files", content="notes.txt"),
    Message(role="user", content="Well?"),
)
CALL = '<tool_call>\n{"name": "read_file", "arguments": {"path": "a"}}\n</tool_call>'


class Holding(Scripted):
    """A scripted model that can be held to a schema, and notes which."""

    schemas: Sequence[dict[str, Any] | None] = ()

    async def complete(self, context: Context, *, emit: Emit, schema: dict[str, Any] | None = None) -> Reply:
        self.schemas = (*self.schemas, schema)
        return await super().complete(context, emit=emit)


def asked(step: Step, *, strict: bool = False, tools: Sequence[Spec] = (READ, LIST)) -> tuple[Reply, list[Event]]:
    """What a prompted model answers when it writes a step."""
    events: list[Event] = []
    provider = TextToolProvider(Holding([step]) if strict else Scripted([step]), strict=strict)
    context = Context(system="Be kind.", messages=HISTORY, tools=tools)
    reply = anyio.run(lambda: provider.complete(context, emit=events.append))
    return reply, events


def test_tools_are_told_in_the_system_text_and_nowhere_else() -> None:
    shown = render(Context(system="Be kind.", messages=HISTORY, tools=(READ, LIST)))
    assert shown.tools == ()
    assert shown.system.startswith("Be kind.\n\n# Tools")
    assert '"name":"read_file","description":"Read a file. It may be long."' in shown.system
    assert '<tool_call>\n{"name":"read_file","arguments":{"path":"the path"}}\n</tool_call>' in shown.system


def test_the_system_text_is_the_same_to_the_byte_from_turn_to_turn() -> None:
    texts = {
        render(Context(system="Be kind.", messages=HISTORY[:end], tools=(READ, LIST)), schema=held).system
        for end in range(1, len(HISTORY) + 1)
        for held in (False,)
    }
    assert len(texts) == 1


def test_what_was_shown_before_stays_a_beginning_of_what_is_shown_now() -> None:
    before = render(Context(messages=HISTORY[:2], tools=(READ,)))
    after = render(Context(messages=HISTORY, tools=(READ,)))
    assert list(after.messages[:2]) == list(before.messages)


def test_calls_and_results_of_the_history_are_shown_as_text() -> None:
    shown = render(Context(messages=HISTORY, tools=(READ, LIST))).messages
    assert [message.role for message in shown] == ["user", "assistant", "user"]
    assert shown[1] == Message(
        role="assistant",
        content=(
            'I will look.\n<tool_call>\n{"name":"read_file","arguments":{"path":"notes.txt"}}\n</tool_call>\n'
            '<tool_call>\n{"name":"list_files","arguments":{}}\n</tool_call>'
        ),
    )
    assert shown[2].content == (
        '<tool_response name="read_file">\nBuy milk. <\\/tool_response>\n</tool_response>\n\n'
        '<tool_response name="list_files">\nnotes.txt\n</tool_response>\n\nWell?'
    )


def test_a_call_that_could_not_be_read_is_shown_as_it_was_written() -> None:
    call = ToolCall(id="c", name="read_file", arguments='{"name": "read_file", "argu')
    shown = render(Context(messages=(Message(role="assistant", content="", tool_calls=(call,)),))).messages
    assert shown[0].content == '<tool_call>\n{"name": "read_file", "argu\n</tool_call>'


def test_without_tools_the_system_text_is_left_alone() -> None:
    assert render(Context(system="Be kind.", messages=HISTORY)).system == "Be kind."


def test_brief_tools_take_a_line_each() -> None:
    shown = render(Context(messages=(), tools=(READ, LIST)), brief=True).system
    assert "read_file(path: string, limit?: integer): Read a file\nlist_files(): List files.\n" in shown


def test_parts_of_a_message_are_shown_as_their_text() -> None:
    parts = [{"type": "text", "text": "one"}, {"type": "image"}, {"type": "text", "text": "two"}]
    shown = render(Context(messages=(Message(role="tool", name="x", content=parts),))).messages
    assert shown[0].content == '<tool_response name="x">\none\ntwo\n</tool_response>'


def test_the_reply_is_as_a_model_with_calls_of_its_own_would_give_it() -> None:
    reply, events = asked(["I will ", f"look.\n{CALL[:20]}", CALL[20:]])
    call = reply.message.tool_calls[0]
    assert (reply.message.content, reply.finish, reply.message.model) == ("I will look.", "calls", "scripted")
    assert (call.name, call.arguments) == ("read_file", {"path": "a"})
    assert call.id.startswith("call_")
    assert len(call.id) == 17
    assert "".join(event.text for event in events if isinstance(event, Text)) == "I will look."


def test_text_behind_a_call_is_emitted_too() -> None:
    reply, events = asked([f"One.\n{CALL}\nTwo", "."])
    assert reply.message.content == "One.\nTwo."
    assert "".join(event.text for event in events if isinstance(event, Text)) == "One.\nTwo."


def test_plain_text_comes_through_as_it_is() -> None:
    reply, events = asked(["Hello ", "you."])
    assert (reply.message.content, reply.message.tool_calls, reply.finish) == ("Hello you.", (), "stop")
    assert "".join(event.text for event in events if isinstance(event, Text)) == "Hello you."


def test_thinking_goes_to_reasoning_wherever_it_stood() -> None:
    reply, events = asked([Thinks("First."), "<think>Second.</think>", "Hello."])
    assert (reply.message.reasoning, reply.message.content) == ("First.\nSecond.", "Hello.")
    assert "".join(event.text for event in events if isinstance(event, Thought)) == "First.Second."


def test_a_call_that_was_cut_is_kept_raw() -> None:
    reply, _ = asked(['<tool_call>{"name": "read_file", "arguments": {"path": "a', Stops()])
    assert reply.message.tool_calls[0].arguments == '{"name": "read_file", "arguments": {"path": "a'
    assert reply.finish == "calls"


def test_whether_a_call_was_cut_decides_where_its_marks_do_not() -> None:
    half = "<tool_call>\n<function=read_file>\n<parameter=path>\na\n</parameter>\n"
    assert asked([half, Stops()])[0].message.tool_calls[0].arguments == half.partition("\n")[2].strip()
    assert asked(half)[0].message.tool_calls[0].arguments == {"path": "a"}


def test_usage_and_closing_reach_through() -> None:
    inner = Scripted(["x"])
    provider = TextToolProvider(inner)
    anyio.run(provider.close)
    assert inner.closed
    assert provider.model == "scripted"
    assert asked("x")[0].usage is not None


# ---- held to a schema


def test_held_answers_are_a_reply_or_a_call() -> None:
    reply, events = asked(['{"reply": "Hel', 'lo \\"you\\""}'], strict=True)
    assert (reply.message.content, reply.finish) == ('Hello "you"', "stop")
    assert events == [Text("Hel"), Text('lo "you"')]
    reply, events = asked('{"name": "read_file", "arguments": {"path": "a"}}', strict=True)
    assert reply.message.tool_calls[0].arguments == {"path": "a"}
    assert events == []


def test_the_schema_has_one_object_per_tool_and_one_for_a_reply() -> None:
    inner = Holding(['{"reply": "x"}'])
    context = Context(messages=HISTORY, tools=(READ, LIST))
    anyio.run(lambda: TextToolProvider(inner, strict=True).complete(context, emit=lambda _: None))
    assert inner.schemas == (answer_schema((READ, LIST)),)
    assert [sorted(one["properties"]) for one in answer_schema((READ, LIST))["anyOf"]] == [
        ["reply"],
        ["arguments", "name"],
        ["arguments", "name"],
    ]
    assert '{"reply": "what you say"}' in inner.contexts[0].system
    assert inner.contexts[0].messages[1].content is not None
    assert "<tool_call>" not in str(inner.contexts[0].messages[1].content)


def test_a_held_reply_that_was_cut_is_given_as_far_as_it_came_and_a_call_never() -> None:
    assert read_json_answer('{"reply": "half of\\n', (READ,), cut=True).content == "half of\n"
    found = read_json_answer('{"name": "read_file", "arguments": {"path": "ha', (READ,), cut=True)
    assert [call.arguments for call in found.calls] == ['{"name": "read_file", "arguments": {"path": "ha']


def test_a_provider_that_cannot_be_held_is_said_to_be_so() -> None:
    provider = TextToolProvider(Scripted(["x"]), strict=True)
    with pytest.raises(ProviderError, match="cannot force an answer to follow a schema"):
        anyio.run(lambda: provider.complete(Context(messages=(), tools=(READ,)), emit=lambda _: None))


@given(st.text(st.characters(exclude_categories=["Cs"])), st.integers(1, 9), st.booleans())
@settings(deadline=None)
def test_a_held_reply_comes_whole_in_any_pieces(text: str, size: int, ascii_only: bool) -> None:
    raw = json.dumps({"reply": text}, ensure_ascii=ascii_only)
    said = ReplyFilter()
    pieces = [piece.text for at in range(0, len(raw), size) for piece in said.feed(raw[at : at + size])]
    assert "".join(pieces) == said.shown == text
    assert read_json_answer(raw, (READ,)).content == text
