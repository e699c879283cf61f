"""One turn: ask the model, run what it calls, until it has nothing to call."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from itertools import groupby
from typing import Any, TypeVar

import anyio
from msgspec import to_builtins
from msgspec.structs import replace

from nacre.agent.ports import Called, Notice, Output, Reply, Returned, Scene, Turn
from nacre.entries import AppendRecord, Message, ToolCall
from nacre.errors import ContextOverflow, ToolError
from nacre.history.message_text import text_of
from nacre.history.tokens import cost

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
        reply = await _ask_and_commit(turn)
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


async def _ask_and_commit(turn: Turn) -> Reply:
    """Ask the model, and commit its answer with what it cost; an empty answer is asked for once more."""
    reply = await _ask_model(turn)
    if reply.finish == "stop" and not reply.message.tool_calls and not text_of(reply.message).strip():
        turn.emit(Notice("the model gave no answer; asking again"))
        # Only what it cost: an empty answer in the log would be the end of the turn.
        if notes := _usage_notes(reply):
            await turn.commit(notes)
        reply = await _ask_model(turn)
    if reply.finish == "length":
        turn.emit(Notice("the answer was cut off: it reached the model's maximum number of tokens"))
        reply = replace(reply, message=replace(reply.message, extra={**reply.message.extra, "stopped": "length"}))
    await turn.commit([reply.message, *_usage_notes(reply)])
    return reply


def _usage_notes(reply: Reply) -> list[AppendRecord]:
    return (
        [] if reply.usage is None else [AppendRecord("use", {"model": reply.message.model, **to_builtins(reply.usage)})]
    )


async def _ask_model(turn: Turn) -> Reply:
    """Ask the model; while the request is too long for it, ask again with a smaller one.

    Raises ContextOverflow with the sizes if the smallest request is refused too.
    """
    refusal = ContextOverflow("the request is too long for the model")
    below: int | None = None
    for _ in range(_MAX_ATTEMPTS):
        context = await turn.look(below)
        size = cost(context)
        if below is not None and size >= below:
            break
        try:
            return await turn.provider.complete(context, emit=turn.emit)
        except ContextOverflow as error:
            refusal = error
        if below is None:
            turn.emit(Notice("the request was too long for the model; retrying with less"))
        below = size
    raise ContextOverflow(
        f"{refusal}\nThe smallest request of this session was rejected too; it has about {below} tokens.\n"
        "Give the server a larger context, use another model, or write a shorter message."
    ) from refusal


# ---- the tool calls of one answer


logger = logging.getLogger(__name__)

T = TypeVar("T")
_MAX_PARALLEL = 8
_CUT = "the answer was cut off before this call was complete; nothing was run: do it in smaller pieces"


async def run_calls(turn: Turn, calls: Sequence[ToolCall], *, cut: ToolCall | None) -> list[Output]:
    """Run the calls of an answer: neighbours that only read side by side, all others one after the other."""

    def only_reads(call: ToolCall) -> bool:
        return call.name in turn.tools and turn.tools[call.name].effect == "read"

    outputs: list[Output] = []
    for is_reading, neighbours in groupby(calls, only_reads):
        together = list(neighbours)
        for batch in [together] if is_reading else [[call] for call in together]:
            outputs += await _run_batch(turn, batch, cut=cut)
    return outputs


async def _run_batch(turn: Turn, calls: Sequence[ToolCall], *, cut: ToolCall | None) -> list[Output]:
    """Run calls side by side; that they were started is durable before they run, each result before the next."""
    refusals = [await _refusal(turn, call, is_cut=call is cut) for call in calls]
    started = [call for call, refusal in zip(calls, refusals, strict=True) if refusal is None]
    if started:
        await turn.commit([AppendRecord("tool", {"call": call.id, "name": call.name}) for call in started])
    for call in started:
        turn.emit(Called(call))

    async def keep(at: int, output: Output) -> None:
        await turn.commit([result_message(calls[at], output)])
        turn.emit(Returned(calls[at], output))

    work = [partial(_run, turn, call, refusal) for call, refusal in zip(calls, refusals, strict=True)]
    return await run_side_by_side(work, keep, limit=_MAX_PARALLEL)


async def _refusal(turn: Turn, call: ToolCall, *, is_cut: bool) -> Output | None:
    """What a call is answered with if it may not or cannot run, in words for the model."""
    fault = ""
    if is_cut:
        fault = _CUT
    elif call.name not in turn.tools:
        fault = f"there is no tool {call.name!r}; there are: {', '.join(sorted(turn.tools)) or 'none'}"
    elif not isinstance(call.arguments, dict):
        fault = f"the arguments of {call.name} are not a JSON object: {call.arguments!r:.200}; nothing was run"
    if fault:
        return Output(text=fault, failed=True)
    refusal = await turn.guard(turn.tools[call.name], call)
    return Output(text=refusal, failed=True, is_refused=True) if refusal else None


async def _run(turn: Turn, call: ToolCall, refusal: Output | None) -> Output:
    if refusal is not None:
        return refusal
    tool, is_refused = turn.tools[call.name], False

    async def permit(arguments: Mapping[str, Any]) -> str:
        nonlocal is_refused
        refusal = await turn.guard(tool, replace(call, arguments=dict(arguments)))
        is_refused = is_refused or bool(refusal)
        return refusal

    try:
        return await tool.run(call.arguments, Scene(key=turn.key, call=call, emit=turn.emit, permit=permit))
    except ToolError as error:
        return Output(text=str(error), failed=True, is_refused=is_refused)
    except Exception as error:
        # A tool's bug is reported to the model; no turn ends for it.
        logger.exception("a tool failed", extra={"tool": call.name})
        return Output(text=f"the tool {call.name} failed: {type(error).__name__}: {error}", failed=True)


def result_message(call: ToolCall, output: Output) -> Message:
    """The message that answers a call."""
    extra = {"failed": True} if output.failed else {}
    whole = {"whole": output.whole} if output.whole is not None else {}
    content: Any = [{"type": "text", "text": output.text}, *output.images] if output.images else output.text
    return Message(role="tool", tool_call_id=call.id, name=call.name, content=content, extra={**extra, **whole})


async def run_side_by_side(
    work: Sequence[Callable[[], Awaitable[T]]], keep: Callable[[int, T], Awaitable[None]], *, limit: int
) -> list[T]:
    """Run all of `work`, at most `limit` at once, and give what each returned.

    Each result is passed to `keep` with its position as soon as it and all before it are there. If one of them
    raises, or the caller is cancelled, all end.
    """
    results: dict[int, T] = {}
    done = [anyio.Event() for _ in work]
    slots = anyio.CapacityLimiter(limit)
    failure: Exception | None = None

    async def run(at: int) -> None:
        nonlocal failure
        try:
            async with slots:
                results[at] = await work[at]()
        except Exception as error:  # noqa: BLE001 - raised below, as itself and not as a group of one
            failure = failure or error
        done[at].set()

    async with anyio.create_task_group() as group:
        for at in range(len(work)):
            group.start_soon(run, at)
        try:
            for at, event in enumerate(done):
                await event.wait()
                if failure is not None:
                    break
                await keep(at, results[at])
        except Exception as error:  # noqa: BLE001 - the same
            failure = error
        group.cancel_scope.cancel()
    if failure is not None:
        raise failure
    return [results[at] for at in range(len(work))]
