"""One turn: ask the model, run what it calls, until it has nothing to call."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from msgspec import Struct, to_builtins
from msgspec.structs import replace

from nacre.agent.ports import Called, Commit, Emit, Guard, Look, Notice, Output, Provider, Reply, Returned, Scene, Tool
from nacre.entries import Message, Note, ToolCall
from nacre.errors import ContextOverflow, ToolError
from nacre.history.text import text_of
from nacre.history.tokens import cost

logger = logging.getLogger(__name__)

_ATTEMPTS = 8
_TOO_LONG = (
    "The smallest request of this session was rejected too; it has about {size} tokens.\n"
    "Give the server a larger context, use another model, or write a shorter message."
)
_REPEATS = 3
_STUCK = "[stopped: {name} failed {times} times in a row with the same arguments]"
_CUT = "the answer was cut off before this call was complete; nothing was run: do it in smaller pieces"


class Turn(Struct, frozen=True, kw_only=True):
    """The parts of a turn; `hear` commits messages that arrived meanwhile."""

    key: str
    look: Look
    provider: Provider
    tools: Mapping[str, Tool]
    guard: Guard
    commit: Commit
    hear: Callable[[], Awaitable[None]]
    emit: Emit
    steps: int = 50


async def run_turn(turn: Turn) -> Message:
    """Run the model and its tools until it answers without calling any; returns that answer.

    Every step is committed before the next begins, so that a crash at any point leaves a log from
    which the turn can go on. A model that repeats what has failed, and does nothing else, is stopped.
    """
    before: list[ToolCall] = []
    times = 0
    for _ in range(turn.steps):
        reply = await _said(turn)
        if not (calls := reply.message.tool_calls):
            return reply.message
        outputs = [await _called(turn, call, is_cut=reply.finish == "length" and call is calls[-1]) for call in calls]
        wanted = [replace(call, id="", extra={}) for call in calls]
        is_failed = all(output.failed for output in outputs)
        times, before = (times + 1 if is_failed and wanted == before else int(is_failed)), wanted
        if times == _REPEATS:
            return await _stop(turn, "repeated", _STUCK.format(name=calls[0].name, times=times))
        await turn.hear()
    return await _stop(turn, "steps", f"[stopped after {turn.steps} steps]")


async def _stop(turn: Turn, why: str, text: str) -> Message:
    end = Message(role="assistant", content=text, extra={"stopped": why})
    await turn.commit([end])
    return end


async def _said(turn: Turn) -> Reply:
    """Let the model speak, and commit what it said with what it cost; an empty answer is asked for once more."""
    reply = await _ask_model(turn)
    if _is_empty(reply):
        turn.emit(Notice("the model gave no answer; asking again"))
        # Only what it cost: an empty answer in the log would be the end of the turn.
        if spent := _use(reply):
            await turn.commit(spent)
        reply = await _ask_model(turn)
    if reply.finish == "length":
        turn.emit(Notice("the answer was cut off: it reached the model's maximum number of tokens"))
        reply = replace(reply, message=replace(reply.message, extra={**reply.message.extra, "stopped": "length"}))
    await turn.commit([reply.message, *_use(reply)])
    return reply


def _use(reply: Reply) -> list[Note]:
    return [] if reply.usage is None else [Note("use", {"model": reply.message.model, **to_builtins(reply.usage)})]


def _is_empty(reply: Reply) -> bool:
    return reply.finish == "stop" and not reply.message.tool_calls and not text_of(reply.message).strip()


async def _ask_model(turn: Turn) -> Reply:
    """Ask the model; while the request is too long for it, ask again with a smaller one.

    Raises ContextOverflow with the sizes if the smallest request is refused too.
    """
    refusal = ContextOverflow("the request is too long for the model")
    below: int | None = None
    for _ in range(_ATTEMPTS):
        context = turn.look(below)
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
    raise ContextOverflow(f"{refusal}\n{_TOO_LONG.format(size=below)}") from refusal


async def _called(turn: Turn, call: ToolCall, *, is_cut: bool) -> Output:
    """Run one call; that it was started is durable before it runs, its result before anything else."""
    tool = turn.tools.get(call.name)
    refusal, is_refused = (_CUT if is_cut else _fault(call, turn.tools)), False
    if tool is not None and not refusal:
        refusal = await turn.guard(tool, call)
        is_refused = bool(refusal)
    if tool is None or refusal:
        output = Output(text=refusal, failed=True, is_refused=is_refused)
    else:
        await turn.commit([Note("tool", {"call": call.id, "name": call.name})])
        turn.emit(Called(call))
        output = await _run(turn, tool, call)
    await turn.commit([result(call, output)])
    turn.emit(Returned(call, output))
    return output


async def _run(turn: Turn, tool: Tool, call: ToolCall) -> Output:
    is_refused = False

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
        # A tool's bug is the model's to hear of, and nobody else's turn is to end for it.
        logger.exception("a tool failed", extra={"tool": call.name})
        return Output(text=f"the tool {call.name} failed: {type(error).__name__}: {error}", failed=True)


def result(call: ToolCall, output: Output) -> Message:
    """The message that answers a call."""
    extra = {"failed": True} if output.failed else {}
    whole = {"whole": output.whole} if output.whole is not None else {}
    return Message(role="tool", tool_call_id=call.id, name=call.name, content=output.text, extra={**extra, **whole})


def _fault(call: ToolCall, tools: Mapping[str, Tool]) -> str:
    """What is wrong with a call, in words for the model; "" if nothing is."""
    if call.name not in tools:
        return f"there is no tool {call.name!r}; there are: {', '.join(sorted(tools)) or 'none'}"
    if not isinstance(call.arguments, dict):
        return f"the arguments of {call.name} are not a JSON object: {call.arguments!r:.200}; nothing was run"
    return ""
