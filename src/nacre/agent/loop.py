"""One turn: ask the model, run what it calls, until it has nothing to call."""

from __future__ import annotations

from msgspec import to_builtins
from msgspec.structs import replace

from nacre.agent.ports import Notice, Reply, Turn
from nacre.agent.tool_calls import run_calls
from nacre.errors import ContextOverflow
from nacre.history.message_text import text_of
from nacre.history.tokens import cost
from nacre.messages import Message, ToolCall
from nacre.records import AppendRecord

_MAX_ATTEMPTS = 8
_MAX_REPEATS = 3
_STUCK = "[stopped: {name} failed {times} times in a row with the same arguments]"


async def run_turn(turn: Turn) -> Message:
    """Run the model and its tools until it answers without calling any; returns that answer.

    Every step is committed before the next begins, so that a crash at any point leaves a log from
    which the turn can go on. A model that repeats what has failed, and does nothing else, is stopped.
    """
    before: list[ToolCall] = []
    times = 0
    for _ in range(turn.steps):
        # 1. Ask the model; an empty answer is asked for once more.
        reply = await _ask_model(turn)
        if reply.finish == "stop" and not reply.message.tool_calls and not text_of(reply.message).strip():
            turn.emit(Notice("the model gave no answer; asking again"))
            # Only what it cost: an empty answer in the log would be the end of the turn.
            if notes := _usage_notes(reply):
                await turn.commit(notes)
            reply = await _ask_model(turn)

        # 2. Commit its answer with what it cost.
        if reply.finish == "length":
            turn.emit(Notice("the answer was cut off: it reached the model's maximum number of tokens"))
            reply = replace(reply, message=replace(reply.message, extra={**reply.message.extra, "stopped": "length"}))
        await turn.commit([reply.message, *_usage_notes(reply)])

        # 3. Run what it calls.
        if not (calls := reply.message.tool_calls):
            return reply.message
        outputs = await run_calls(turn, calls, cut=calls[-1] if reply.finish == "length" else None)
        wanted = [replace(call, id="", extra={}) for call in calls]
        is_failed = all(output.failed for output in outputs)
        times, before = (times + 1 if is_failed and wanted == before else int(is_failed)), wanted
        if times == _MAX_REPEATS:
            return await _stop(turn, "repeated", _STUCK.format(name=calls[0].name, times=times))
        await turn.hear()
    return await _stop(turn, "steps", f"[stopped after {turn.steps} steps]")


async def _stop(turn: Turn, why: str, text: str) -> Message:
    end = Message(role="assistant", content=text, extra={"stopped": why})
    await turn.commit([end])
    return end


def _usage_notes(reply: Reply) -> list[AppendRecord]:
    usage = {"model": reply.message.model, **to_builtins(reply.usage or {})}
    return [] if reply.usage is None else [AppendRecord("use", usage)]


async def _ask_model(turn: Turn) -> Reply:
    """Ask the model; while the request is too long for it, ask again with a smaller one.

    Raises ContextOverflow with the sizes if the smallest request is refused too.
    """
    refusal = ContextOverflow("the request is too long for the model")
    below: int | None = None
    for _ in range(_MAX_ATTEMPTS):
        context = await turn.look(below)
        if below is not None and cost(context) >= below:
            break
        try:
            return await turn.provider.complete(context, emit=turn.emit)
        except ContextOverflow as error:
            refusal = error
        if below is None:
            turn.emit(Notice("the request was too long for the model; retrying with less"))
        # Only now: most requests are not refused.
        below = cost(context)
    raise ContextOverflow(
        f"{refusal}\nThe smallest request of this session was rejected too; it has about {below} tokens.\n"
        "Give the server a larger context, use another model, or write a shorter message."
    ) from refusal
