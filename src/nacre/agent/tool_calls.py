"""The tool calls of one answer: those that only read run at the same time, with their results in order."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from itertools import groupby
from typing import Any, TypeVar

import anyio
from msgspec.structs import replace

from nacre.agent.ports import Called, Output, Returned, Scene, Turn
from nacre.errors import ToolError
from nacre.messages import Message, ToolCall
from nacre.records import AppendRecord

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
    # 1. Which of them may not or cannot run, in words for the model.
    refusals: list[Output | None] = []
    for call in calls:
        fault = refusal = ""
        if call is cut:
            fault = _CUT
        elif call.name not in turn.tools:
            fault = f"there is no tool {call.name!r}; there are: {', '.join(sorted(turn.tools)) or 'none'}"
        elif not isinstance(call.arguments, dict):
            fault = f"the arguments of {call.name} are not a JSON object: {call.arguments!r:.200}; nothing was run"
        else:
            refusal = await turn.guard(turn.tools[call.name], call)
        text = fault or refusal
        refusals.append(Output(text=text, failed=True, is_refused=bool(refusal)) if text else None)

    # 2. The others are started.
    started = [call for call, refused in zip(calls, refusals, strict=True) if refused is None]
    if started:
        await turn.commit([AppendRecord("tool", {"call": call.id, "name": call.name}) for call in started])
    for call in started:
        turn.emit(Called(call))

    # 3. All of them get their results in order.
    async def keep(at: int, output: Output) -> None:
        await turn.commit([result_message(calls[at], output)])
        turn.emit(Returned(calls[at], output))

    work = [partial(_run, turn, call, refused) for call, refused in zip(calls, refusals, strict=True)]
    return await run_side_by_side(work, keep, limit=_MAX_PARALLEL)


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
