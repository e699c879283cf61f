"""Calls that a model wrote as text though it could have made them natively."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from msgspec.structs import replace

from nacre.agent.ports import Emit, Reply, Spec, Text
from nacre.entries import ToolCall
from nacre.history.text import text_of
from nacre.providers.text_tools.parser import Answer, read_native
from nacre.providers.text_tools.stream_filter import Sieve, sift
from nacre.providers.wire import new_id


async def with_written_calls(ask: Callable[[Emit], Awaitable[Reply]], tools: Sequence[Spec], emit: Emit) -> Reply:
    """Ask a model that calls tools natively; a call that it wrote as text instead becomes one, and is not shown."""
    if not tools:
        return await ask(emit)
    sieve = Sieve(tools, native=True)
    try:
        reply = await ask(sift(sieve, emit))
    except BaseException:
        # An answer that breaks off is shown as far as it came.
        if sieve.tail:
            emit(Text(sieve.tail))
        raise
    text = text_of(reply.message)
    # A model that made a call natively means what it wrote beside it as text.
    has_called = bool(reply.message.tool_calls)
    answer = Answer(content=text) if has_called else read_native(text, tools, cut=reply.finish == "length")
    rest = answer.content if not sieve.shown else answer.content.lstrip()
    if rest.startswith(sieve.shown) and len(rest) > len(sieve.shown):
        emit(Text(rest[len(sieve.shown) :]))
    return with_answer(reply, answer)


def with_answer(reply: Reply, answer: Answer) -> Reply:
    """The reply with its text taken apart."""
    message = reply.message
    found = (ToolCall(id=new_id(), name=call.name, arguments=call.arguments) for call in answer.calls)
    calls = (*message.tool_calls, *found)
    reasoning = "\n".join(filter(None, (message.reasoning, answer.reasoning)))
    message = replace(message, content=answer.content, tool_calls=calls, reasoning=reasoning or None)
    return replace(reply, message=message, finish="calls" if answer.calls else reply.finish)
