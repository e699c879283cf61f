"""The scripted model: says its script, remembers what it was shown, waits where it is told to."""

from __future__ import annotations

import anyio
import pytest

from nacre.agent.ports import Context, Event, Provider, Reply, Text, Thought
from nacre.errors import ContextOverflow, ProviderError
from nacre.messages import Message, ToolCall
from nacre.providers.scripted import Call, Pause, Scripted, Step, Stops, Thinks

CONTEXT = Context(system="Be kind.", messages=(Message(role="user", content="hello there"),))


def played(*steps: Step) -> tuple[list[Reply], list[Event]]:
    """Every reply of a script, and every event."""
    events: list[Event] = []
    replies: list[Reply] = []

    async def play() -> None:
        provider: Provider = Scripted(steps)
        replies.extend([await provider.complete(CONTEXT, emit=events.append) for _ in steps])
        await provider.close()

    anyio.run(play)
    return replies, events


def test_texts_are_emitted_piece_by_piece_and_answered_whole() -> None:
    replies, events = played(["Hel", "lo"], "Bye")
    assert [reply.message.content for reply in replies] == ["Hello", "Bye"]
    assert events == [Text("Hel"), Text("lo"), Text("Bye")]


def test_calls_have_the_same_ids_in_every_run() -> None:
    replies, _ = played(["Look:", Call("read_file", {"path": "a"}), Call("shell", id="mine")], Call("shell"))
    assert replies[0].message.tool_calls == (
        ToolCall(id="call_1", name="read_file", arguments={"path": "a"}),
        ToolCall(id="mine", name="shell", arguments={}),
    )
    assert replies[1].message.tool_calls[0].id == "call_3"
    assert replies[0].finish == "calls"


def test_thinking_length_usage_and_model_are_reported() -> None:
    replies, events = played([Thinks("hm"), "One two", Stops()])
    assert (replies[0].message.reasoning, replies[0].message.model, replies[0].finish) == ("hm", "scripted", "length")
    assert replies[0].usage is not None
    assert (replies[0].usage.prompt, replies[0].usage.completion, replies[0].usage.request) == (4, 2, "request_1")
    assert events[0] == Thought("hm")


def test_an_error_of_the_script_is_raised_where_it_stands() -> None:
    events: list[Event] = []
    with pytest.raises(ContextOverflow):
        anyio.run(lambda: Scripted([["half", ContextOverflow("too long")]]).complete(CONTEXT, emit=events.append))
    assert events == [Text("half")]


def test_a_script_that_is_over_says_so_and_contexts_are_remembered() -> None:
    provider = Scripted([])
    with pytest.raises(ProviderError, match="request 1 has no answer"):
        anyio.run(lambda: provider.complete(CONTEXT, emit=lambda _: None))
    assert provider.contexts == [CONTEXT]


def test_a_pause_waits_until_it_is_let_go() -> None:
    events: list[Event] = []

    async def play() -> None:
        go, reached = anyio.Event(), anyio.Event()
        provider = Scripted([["before", Pause(go, reached), "after"]])
        async with anyio.create_task_group() as group:
            group.start_soon(lambda: provider.complete(CONTEXT, emit=events.append))
            await reached.wait()
            assert events == [Text("before")]
            go.set()

    anyio.run(play)
    assert events == [Text("before"), Text("after")]
