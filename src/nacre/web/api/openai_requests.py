"""A request of OpenAI's clients, as both of their interfaces have it, and who answers it.

Without tools of the client the agent answers: in a session its turn runs in the kernel, without one it is kept
nowhere. With tools the model answers alone, and the client runs what it calls.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, Literal

import anyio
from anyio import to_thread
from msgspec import Raw, Struct, msgpack, to_builtins
from msgspec.structs import replace
from starlette.datastructures import Headers

from nacre.agent.actor import UserMessage
from nacre.agent.loop import run_turn
from nacre.agent.model_request import NONE as NO_TERMS
from nacre.agent.model_request import TERMS, Material, Terms, fit, terms_of, with_terms
from nacre.agent.ports import Context, Emit, Entry, Event, Notice, Provider, Reply, Spec, Text, Turn, Usage
from nacre.errors import Conflict, InvalidAnswer
from nacre.history.message_text import text_of
from nacre.history.pairing import pair
from nacre.history.replies import find_reply, is_final
from nacre.history.window import Window, window
from nacre.messages import Message, Snapshot
from nacre.records import AppendRecord
from nacre.runtime import App
from nacre.runtime.titles import first_title
from nacre.runtime.worker import Handler
from nacre.runtime.workers import WorkerKernel
from nacre.web.api import queries
from nacre.web.api.retries import answer_to, answer_to_history, is_waiting, newest
from nacre.web.http_errors import Fault
from nacre.web.running_turns import Turns

RESPONSE = "response"
"""Where a message's `extra` keeps what a response repeats of its request."""
_KEPT = (TERMS, RESPONSE)
_KEEPS_SESSIONS = ("delegate", "remember", "forget")
"""Tools that write to the store, which an answer without a session must not."""
_NOWHERE = "api"
_CALL_ATTEMPTS = 3
_MUST_CALL = "Answer with a call of one of these tools, and with no text: {names}"

_SHORT = 32 * 1024
"""Bytes of a body that is understood faster than a thread takes it."""
_NAME = "completion"

Finish = Literal["stop", "calls", "length"]


class ParsedRequest(Struct, frozen=True, kw_only=True):
    """A request as it is understood.

    `nowhere` is the key whose rights an answer without a session has; `seed` is stored before the messages that are
    answered. `tools` are the client's, None if the agent is to answer with its own; `must_call` asks for a call of
    one of them, and `one_call` for not more than one.
    """

    key: str
    nowhere: str
    id: str
    is_retry: bool
    system: str
    messages: list[Message]
    tools: list[Spec] | None
    must_call: bool = False
    one_call: bool = False
    sender: str
    terms: Terms = NO_TERMS
    seed: Sequence[Message] = ()


_decode = msgpack.Decoder(ParsedRequest).decode


class Answer(Struct, frozen=True, kw_only=True):
    """What is answered, and what it cost."""

    message: Message
    usage: Usage


def is_short(headers: Headers) -> bool:
    """Tell whether the body of a request is so short that nobody waits for its being understood."""
    length = headers.get("content-length", "")
    return length.isdecimal() and int(length) <= _SHORT


def finish_of(message: Message) -> Finish:
    """Why an answer ends, by what is stored with it: so it is the same at once, in a stream, and again."""
    if "stopped" in message.extra:
        return "length"
    return "calls" if message.tool_calls else "stop"


def work(app: App, turns: Turns, asked: ParsedRequest) -> Callable[[Emit], Awaitable[Answer]]:
    """What answers a request, once it is begun."""
    kernel, has_tools = app.kernel, asked.tools is not None
    if isinstance(kernel, WorkerKernel) and asked.key:
        return partial(_answer_in_worker, kernel, asked)

    def read() -> Snapshot:
        if not (asked.id or asked.is_retry or has_tools) and len(asked.messages) == 1:
            # New words after an answer, as most are: nothing else has to be read.
            now = app.sessions.snapshot(asked.key, last=1)
            if not now.messages or is_final(now.messages[-1]):
                return now
        return newest(app.sessions, asked.key)

    def find_answer(now: Snapshot) -> Message | None:
        """What was answered, if this was said before."""
        known = answer_to(now, id=asked.id, content=asked.messages[-1].content, has_tools=has_tools)
        return known or answer_to_history(now, asked.messages, is_retry=asked.is_retry, has_tools=has_tools)

    async def answer(emit: Emit) -> Answer:
        if not asked.key and not has_tools:
            return await _by_agent(app, asked, emit)
        if not asked.key:
            # The model alone, with the client's tools, which the client runs.
            _check_results(asked.messages, asked.messages)
            reply = await _ask(app.agent_for("").provider(), asked, pair(asked.messages), emit)
            return Answer(message=reply.message, usage=reply.usage or Usage())
        async with turns.alone(asked.key):
            # A session whose actor is there is not read again, unless somebody else has written to it.
            now = app.known_session(asked.key)
            if now is None:
                now = await to_thread.run_sync(read)
            if (known := find_answer(now)) is not None:
                return Answer(message=known, usage=Usage())
            if asked.seed:
                await _store(app, asked.key, asked.seed, id=f"{asked.id}:before")
                now = await to_thread.run_sync(newest, app.sessions, asked.key)
            return await (_by_model_in_session if has_tools else _by_agent_in_session)(app, asked, now, emit)

    return answer


# ---- in a worker, which has the session in memory


class _Refusal(Struct, frozen=True, kw_only=True):
    """A fault that comes back from a worker."""

    kind: str
    detail: str
    param: str
    headers: dict[str, str]


class _Outcome(Struct, frozen=True, kw_only=True):
    """What a worker gives back: an answer, or why there is none."""

    answer: Answer | None = None
    refusal: _Refusal | None = None


async def _answer_in_worker(kernel: WorkerKernel, asked: ParsedRequest, emit: Emit) -> Answer:
    done = await kernel.call(_NAME, asked, _Outcome, key=asked.key, emit=emit, is_repeatable=bool(asked.id))
    if done.answer is None:
        why = done.refusal or _Refusal(kind="failed", detail="", param="", headers={})
        raise Fault(why.kind, why.detail, param=why.param, headers=why.headers)
    return done.answer


def make_handlers() -> dict[str, Handler]:
    """What a worker does for this interface, by name."""
    turns = Turns()

    async def answer(app: App, data: Raw, emit: Emit) -> _Outcome:
        try:
            return _Outcome(answer=await work(app, turns, _decode(data))(emit))
        except Fault as fault:
            refusal = _Refusal(kind=fault.kind, detail=fault.detail, param=fault.param, headers=fault.headers)
            return _Outcome(refusal=refusal)

    return {_NAME: answer}


# ---- the agent


async def _by_agent_in_session(app: App, asked: ParsedRequest, now: Snapshot, emit: Emit) -> Answer:
    """The agent, in a session: it gets the newest words only, and has the rest itself."""
    words = asked.messages[-1]
    # The same words in another form are new: the turn that waits would answer in the form that it was begun with.
    is_same = bool(asked.id) or terms_of(now.messages) == asked.terms
    if is_same and is_waiting(now, id=asked.id, words=words):
        answer = await app.kernel.resume(asked.key, emit=emit)
    else:
        extra = {name: words.extra[name] for name in _KEPT if name in words.extra}
        inbound = UserMessage(
            key=asked.key,
            content=words.content or "",
            id=asked.id,
            sender=asked.sender,
            meta=first_title(text_of(words)),
            extra=extra,
        )
        answer = await app.kernel.deliver(inbound, emit=emit)
    if answer is None:
        raise Fault(
            "conflict", "the message was added to a turn that another client started; its answer is in the session"
        )
    used = app.kernel.used_since(asked.key, now.n)
    if used is not None:
        return Answer(message=answer, usage=queries.add_up(used))
    usage = await to_thread.run_sync(queries.usage_between, app.sessions, asked.key, now.n)
    return Answer(message=answer, usage=usage)


async def _by_agent(app: App, asked: ParsedRequest, emit: Emit) -> Answer:
    """The agent, without a session: what is said is kept until it is answered, and nowhere but here."""
    kept = list(asked.messages)
    notes: list[Any] = []
    who = app.agent_for(asked.nowhere)
    system = "\n\n".join(part for part in (who.system(), asked.system) if part)
    tools = {name: tool for name, tool in who.tools.items() if name not in _KEEPS_SESSIONS}

    def show(tokens: int, **_: object) -> Window:
        return window(kept, tokens=tokens, limit=who.max_messages)

    async def look(below: int | None) -> Context:
        specs = [tool.spec for tool in tools.values()]
        material = Material(show=show, system=system, skills=who.skills(), tools=specs, terms=asked.terms)
        return fit(material, tokens=who.tokens(), capacity=who.capacity(), below=below).context

    async def commit(entries: Sequence[Entry]) -> int:
        kept.extend(entry for entry in entries if isinstance(entry, Message))
        notes.extend(entry.data for entry in entries if isinstance(entry, AppendRecord) and entry.kind == "use")
        return len(kept)

    async def hear() -> None:
        """Nobody else can speak here."""

    key = asked.nowhere or _NOWHERE
    turn = Turn(
        key=key,
        look=look,
        provider=app.agent_for("").provider(),
        tools=tools,
        guard=who.guard(key, None),
        commit=commit,
        hear=hear,
        emit=emit,
        steps=who.steps,
    )
    answer = await run_turn(turn)
    return Answer(message=answer, usage=queries.add_up(notes))


# ---- the model alone


async def _by_model_in_session(app: App, asked: ParsedRequest, now: Snapshot, emit: Emit) -> Answer:
    """The model alone, with what the session holds: the newest words and results are stored first, then the answer."""
    who = app.agent_for(asked.key)
    new, waiting = _since_answer(asked.messages), _since_answer(now.messages)
    _check_results(new, now.messages)
    hold = app.sessions.hold(asked.key)
    await to_thread.run_sync(hold.take)
    try:
        gist = [(one.role, one.content, one.tool_call_id) for one in new]
        if gist != [(one.role, one.content, one.tool_call_id) for one in waiting]:
            known = await _store_new(app, asked, now, new)
            if known is not None:
                return Answer(message=known, usage=Usage())
        shown = await to_thread.run_sync(app.window, asked.key)
        reply = await _ask(who.provider(), asked, with_terms(shown.messages, asked.terms), emit)
        used = [AppendRecord("use", {"model": reply.message.model, **to_builtins(reply.usage)})] if reply.usage else []
        await _store(app, asked.key, [reply.message, *used])
    finally:
        hold.close()
        who.after(asked.key)
    return Answer(message=reply.message, usage=reply.usage or Usage())


async def _ask(provider: Provider, asked: ParsedRequest, messages: Sequence[Message], emit: Emit) -> Reply:
    """Ask the model; where a call is required, an answer without one is asked for again.

    Raises InvalidAnswer if no attempt has a call, and what the provider raises.
    """
    tools = asked.tools or []
    context = Context(system=asked.system, messages=messages, tools=tools)

    def finish(reply: Reply) -> Reply:
        """A reply with not more calls than the client takes, which says if it was cut off."""
        calls = reply.message.tool_calls[:1] if asked.one_call else reply.message.tool_calls
        cut = {"stopped": "length"} if reply.finish == "length" else {}
        return replace(reply, message=replace(reply.message, tool_calls=calls, extra={**reply.message.extra, **cut}))

    if not asked.must_call:
        return finish(await provider.complete(context, emit=emit))

    def hear(event: Event) -> None:
        if not isinstance(event, Text):
            emit(event)

    how = _MUST_CALL.format(names=", ".join(spec.name for spec in tools))
    context = replace(context, system="\n\n".join(part for part in (asked.system, how) if part))
    used = Usage()
    for attempt in range(_CALL_ATTEMPTS):
        if attempt:
            emit(Notice("the answer has no call, which was asked for; asking again"))
        reply = await provider.complete(context, emit=hear)
        if reply.usage is not None:
            used = queries.add_up([to_builtins(used), to_builtins(reply.usage)])
        if reply.message.tool_calls or reply.finish == "length":
            return finish(replace(reply, usage=used if reply.usage is not None else None))
        again = Message(role="user", content=how)
        said = replace(reply.message, content=reply.message.content or "(nothing)")
        context = replace(context, messages=(*context.messages, said, again))
    raise InvalidAnswer(f"the model was asked {_CALL_ATTEMPTS} times to call a tool, and gave text instead")


def _check_results(new: Sequence[Message], before: Sequence[Message]) -> None:
    """Refuse results of calls that were never made: without its call, a model cannot be shown one."""
    calls = {call.id for one in before for call in one.tool_calls}
    if alien := [one.tool_call_id for one in new if one.role == "tool" and one.tool_call_id not in calls]:
        raise Fault("usage", f"there is a result of the call {alien[0]!r:.100}, but no such call before it")


async def _store_new(app: App, asked: ParsedRequest, now: Snapshot, new: Sequence[Message]) -> Message | None:
    """Store what is new, unless it came before; what it was answered with then, None if it waits for it."""
    words = new[-1]
    if asked.id:
        # The client's own name for its words, by which they are known when they come again.
        words = replace(words, extra={**words.extra, "origin": {"id": asked.id}})
    try:
        number = await _store(app, asked.key, [*new[:-1], words], id=asked.id)
    except Conflict:
        if not asked.id or not app.sessions.exists(asked.key):
            raise
    else:
        if not asked.id or number > now.n:
            return None
    known = partial(find_reply, content=words.content, id=asked.id, ends=lambda one: one.role == "assistant")
    return await to_thread.run_sync(app.sessions.read, asked.key, known)


async def _store(app: App, key: str, entries: Sequence[Entry], *, id: str = "") -> int:
    with anyio.CancelScope(shield=True):
        number = await app.sessions.submit(key, entries, id=id or None)
    return number  # noqa: RET504 - to the type checker a scope may end without it


def _since_answer(messages: Sequence[Message]) -> list[Message]:
    """What came since the model last spoke."""
    at = max((place for place, one in enumerate(messages) if one.role == "assistant"), default=-1)
    return list(messages[at + 1 :])
