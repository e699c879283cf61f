"""OpenAI's chat completions: the agent for clients that know nothing of it, and the bare model for those with tools."""

from __future__ import annotations

import secrets
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any, Literal
from urllib.parse import quote, unquote

import anyio
import msgspec
from anyio import to_thread
from msgspec import Struct, to_builtins
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from nacre.agent.actor import Inbound
from nacre.agent.fitting import Material, fit
from nacre.agent.loop import run_turn
from nacre.agent.ports import Called, Context, Emit, Entry, Reply, Spec, Text, Thought, Turn, Usage
from nacre.agent.terms import NONE as NO_TERMS
from nacre.agent.terms import TERMS, Form, Terms, terms_of, with_terms
from nacre.app import App
from nacre.app.forms import check_schema
from nacre.app.titles import first_title
from nacre.config import MAIN
from nacre.entries import Message, Note, ToolCall, say
from nacre.errors import Conflict
from nacre.history.earlier import answer_before, is_final
from nacre.history.pairing import paired
from nacre.history.text import text_of
from nacre.history.window import Window, window
from nacre.providers.translation import image_data, image_url
from nacre.web import reading
from nacre.web.access import Caller, agent, begin, caller, session_for
from nacre.web.api import decoded, gone, json_body, nothing_queried
from nacre.web.events import BEAT, HEARTBEAT, EventStream, event, stays
from nacre.web.problems import Fault, fault_of
from nacre.web.retries import answer_known, answer_to, checked_id, is_waiting
from nacre.web.shapes import ROLES, Chat, Function, JsonObjectFormat, JsonSchemaFormat, TextFormat
from nacre.web.turns import Running, Turns

_ALIAS = "nacre"
HEAD_PATIENCE = 10.0
_KEEPS_SESSIONS = ("delegate", "remember", "forget")
"""Tools that write to the store, which an answer without a session must not."""
_FINISHES = {"stop": "stop", "calls": "tool_calls", "length": "length"}

RESPONSE = "response"
"""Where a message's `extra` keeps what a response repeats of its request."""
KEPT = (TERMS, RESPONSE)

Finish = Literal["stop", "calls", "length"]


class Answer(Struct, frozen=True, kw_only=True):
    """What is answered: a message, what it cost, and why it ends."""

    message: Message
    usage: Usage
    finish: Finish = "stop"


class Asked(Struct, frozen=True, kw_only=True):
    """A request as it is understood.

    `nowhere` is the key whose rights an answer without a session has; `seed` is stored before the messages that are
    answered.
    """

    key: str
    nowhere: str
    id: str
    is_retry: bool
    system: str
    messages: list[Message]
    tools: list[Spec] | None
    sender: str
    terms: Terms = NO_TERMS
    seed: Sequence[Message] = ()


# ---- the two endpoints


async def models(request: Request) -> Response:
    """What may be asked for: the agent, by its own name or its model's, and further agents by their names."""
    nothing_queried(request)
    return json_response({"object": "list", "data": _models(request)})


async def model(request: Request) -> Response:
    """One of them; a slash in its name may be escaped or not."""
    nothing_queried(request)
    name, listed = unquote(request.path_params["id"], errors="replace"), _models(request)
    found = next((one for one in listed if one["id"] == name), None)
    if found is None:
        raise unknown(name, [one["id"] for one in listed])
    return json_response(found)


async def chat(request: Request) -> Response:
    """Answer; a turn of a session continues when its client disconnects, anything else is stopped."""
    nothing_queried(request)
    wanted = decoded(await json_body(request), Chat)
    choose_agent(request, wanted.model)
    _check(wanted)
    session = wanted.session_id or request.headers.get("x-session-id", "")
    who, key = session_for(request, session=session, user=wanted.user or "")
    app = agent(request, who)
    # A client may send a very long history, and nobody else is to wait for its being read.
    asked = await to_thread.run_sync(_understood, wanted, request.headers, who, key)
    await check_form(asked.terms.form)
    turns: Turns = request.app.state.turns
    running = begin(request, work(app, turns, asked), key=key, who=who)
    headers = {"x-session-key": quote(asked.key, safe=":")} if asked.key else {}
    frame = _Frame(wanted, app.provider.model)
    if wanted.stream:
        await stays(request.receive, lambda: running.wait(HEAD_PATIENCE))
        if running.has_failed:
            running.outcome()
        return EventStream(_streamed(running, frame), left=lambda: running.leave(stop=not asked.key), headers=headers)
    try:
        is_there = await stays(request.receive, running.over)
    finally:
        running.leave(stop=not asked.key)
    return json_response(frame.whole(running.outcome()), headers) if is_there else gone()


routes = [
    Route("/v1/models", models),
    Route("/v1/models/{id:path}", model),
    Route("/v1/chat/completions", chat, methods=["POST"]),
]


# ---- what is asked


def names_of(app: App) -> list[str]:
    return list(dict.fromkeys((_ALIAS, app.provider.model, app.model)))


def further(request: Request) -> list[str]:
    """The agents that the main one stands before; at their own addresses there is only each of them."""
    if request.app.state.agent.name != MAIN or caller(request).is_guest:
        return []
    return [name for name in request.app.state.sites.names if name != MAIN]


def _models(request: Request) -> list[dict[str, Any]]:
    made = int(request.app.state.began)
    names = [*names_of(agent(request)), *further(request)]
    return [{"id": name, "object": "model", "created": made, "owned_by": "nacre"} for name in names]


def unknown(name: str, names: Sequence[str]) -> Fault:
    return Fault("not_found", f"there is no model {name!r:.200}; there are: {', '.join(names)}")


def choose_agent(request: Request, model: str) -> App:
    """The agent that a model's name means, to which the request goes from here on; raises Fault if there is none."""
    if model in further(request):
        request.scope["app"] = request.app.state.sites.of(model)
    app = agent(request)
    names = [*names_of(app), *([] if caller(request).is_guest else [app.name]), *further(request)]
    if model not in names:
        raise unknown(model, names)
    return app


async def check_form(form: Form | None) -> None:
    """Raise InvalidArgument if answers cannot be checked against a form."""
    if form is not None:
        await check_schema(form.schema)


def _check(wanted: Chat) -> None:
    """Refuse what would be answered otherwise than it was meant."""
    if wanted.n not in (None, 1):
        raise Fault("usage", f"n must be 1, not {wanted.n}: there is one answer")
    if wanted.logprobs:
        raise Fault("usage", "logprobs are not supported")


def _understood(wanted: Chat, headers: Headers, who: Caller, key: str) -> Asked:
    messages = [message_of(one) for one in wanted.messages]
    system = [text_of(one) for one in messages if one.role in ROLES[:2]]
    spoken = [one for one in messages if one.role not in ROLES[:2]]
    is_choosing = wanted.tool_choice != "none"
    tools = [spec_of(tool.function) for tool in wanted.tools if is_choosing] if wanted.tools else None
    if not spoken or (spoken[-1].role != "user" and (tools is None or spoken[-1].role != "tool")):
        raise Fault(
            "usage", "the last message must be a user's message or a tool's result: it is the one that is answered"
        )
    terms = Terms(form=_form(wanted.response_format))
    return Asked(
        key=key,
        nowhere=who.key() if who.is_guest else "",
        id=checked_id(headers),
        is_retry=headers.get("x-stainless-retry-count", "0") != "0",
        system="\n\n".join(system),
        messages=with_terms(spoken, terms),
        tools=tools,
        sender=wanted.user or "api",
        terms=terms,
    )


def _form(wanted: TextFormat | JsonObjectFormat | JsonSchemaFormat | None) -> Form | None:
    """The form that an answer is to have; None if it may have any."""
    match wanted:
        case JsonObjectFormat():
            return Form(schema={"type": "object"})
        case JsonSchemaFormat(json_schema=given):
            return Form(name=given.name, schema=given.schema or {}, strict=bool(given.strict))
        case _:
            return None


def message_of(given: Mapping[str, Any]) -> Message:
    """A message as ours; raises InvalidMessage, and Fault for a role that nobody has."""
    message = Message.from_mapping(given)
    say(message)
    if message.role not in ROLES:
        raise Fault("usage", f"a message's role is one of {', '.join(ROLES)}, not {message.role!r:.100}")
    check_images(message)
    if any(name in message.extra for name in KEPT):
        rest = {name: value for name, value in message.extra.items() if name not in KEPT}
        message = msgspec.structs.replace(message, extra=rest)
    calls = tuple(
        ToolCall(id=call.id, name=call.name, arguments=_arguments(call.arguments)) for call in message.tool_calls
    )
    return msgspec.structs.replace(message, tool_calls=calls)


def check_images(message: Message) -> None:
    """Raise Fault for an image that is somewhere else: nothing is fetched here, and servers of models differ in it."""
    parts = message.content if isinstance(message.content, list) else []
    urls = (image_url(part) for part in parts if isinstance(part, dict))
    found = (image_data(url) for url in urls if url is not None)
    if not all(data is not None and data[0].startswith("image/") for data in found):
        raise Fault("usage", "an image must be a URL that begins with data:image/…;base64, for none is fetched")


def _arguments(given: Any) -> Any:
    """Arguments as an object, if their text is one."""
    if not isinstance(given, str):
        return given
    try:
        found = msgspec.json.decode(given or "{}")
    except (msgspec.DecodeError, RecursionError):
        return given
    return found if isinstance(found, dict) else given


def spec_of(function: Function) -> Spec:
    parameters = function.parameters or {"type": "object", "properties": {}}
    return Spec(name=function.name, description=function.description or "", parameters=parameters)


# ---- who answers


def work(app: App, turns: Turns, asked: Asked) -> Callable[[Emit], Awaitable[Answer]]:
    async def work(emit: Emit) -> Answer:
        if not asked.key:
            return await (_by_agent(app, asked, emit) if asked.tools is None else _by_model(app, asked, emit))
        async with turns.alone(asked.key):
            stand, known = await to_thread.run_sync(_known, app, asked)
            if known is not None:
                return _repeated(known)
            if asked.seed:
                await _stored(app, asked.key, asked.seed, id=f"{asked.id}:before")
                stand = await to_thread.run_sync(reading.stand, app.sessions, asked.key)
            answer = _in_session if asked.tools is None else _by_model_in_session
            return await answer(app, asked, stand, emit)

    return work


def _known(app: App, asked: Asked) -> tuple[reading.Stand, Message | None]:
    """Where the session stands, and what was answered if this was said before."""
    has_tools = asked.tools is not None
    if not (asked.id or asked.is_retry or has_tools) and len(asked.messages) == 1:
        # New words behind an answer, as most are: nothing else has to be read.
        stand = reading.stand(app.sessions, asked.key, last=1)
        if not stand.messages or is_final(stand.messages[-1]):
            return stand, None
    stand = reading.stand(app.sessions, asked.key)
    known = answer_to(stand, id=asked.id, content=asked.messages[-1].content, has_tools=has_tools)
    return stand, known or answer_known(stand, asked.messages, is_retry=asked.is_retry, has_tools=has_tools)


async def _in_session(app: App, asked: Asked, stand: reading.Stand, emit: Emit) -> Answer:
    """The agent, in a session: it gets the newest words only, and has the rest itself."""
    words = asked.messages[-1]
    # The same words in another form are new: the turn that waits would answer in the form that it was begun with.
    is_same = bool(asked.id) or terms_of(stand.messages) == asked.terms
    if is_same and is_waiting(stand, id=asked.id, words=words):
        answer = await app.kernel.resume(asked.key, emit=emit)
    else:
        extra = {name: words.extra[name] for name in KEPT if name in words.extra}
        inbound = Inbound(
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
    usage = await to_thread.run_sync(reading.used_since, app.sessions, asked.key, stand.n)
    return Answer(message=answer, usage=usage, finish="length" if "stopped" in answer.extra else "stop")


async def _by_agent(app: App, asked: Asked, emit: Emit) -> Answer:
    """The agent, without a session: what is said is kept until it is answered, and nowhere but here."""
    kept = list(asked.messages)
    notes: list[Any] = []
    who = app.agent_for(asked.nowhere)
    system = "\n\n".join(part for part in (who.system(), asked.system) if part)
    tools = {name: tool for name, tool in who.tools.items() if name not in _KEEPS_SESSIONS}

    def show(tokens: int, **_: object) -> Window:
        return window(kept, tokens=tokens, most=who.most)

    def look(below: int | None) -> Context:
        specs = [tool.spec for tool in tools.values()]
        material = Material(show=show, system=system, skills=who.skills(), tools=specs)
        return fit(material, tokens=who.tokens(), capacity=who.capacity(), below=below).context

    async def commit(entries: Sequence[Entry]) -> int:
        kept.extend(entry for entry in entries if isinstance(entry, Message))
        notes.extend(entry.data for entry in entries if isinstance(entry, Note) and entry.kind == "use")
        return len(kept)

    async def hear() -> None:
        """Nobody else can speak here."""

    key = asked.nowhere or _NOWHERE
    provider, guard = app.agent_for("").provider(), who.guard(key, None)
    turn = Turn(
        key=key,
        look=look,
        provider=provider,
        tools=tools,
        guard=guard,
        commit=commit,
        hear=hear,
        emit=emit,
        steps=who.steps,
    )
    answer = await run_turn(turn)
    return Answer(message=answer, usage=reading.added(notes), finish="length" if "stopped" in answer.extra else "stop")


_NOWHERE = "api"


async def _by_model(app: App, asked: Asked, emit: Emit) -> Answer:
    """The model alone, with the client's tools, which the client runs."""
    _check_results(asked.messages, asked.messages)
    shown = Context(system=asked.system, messages=paired(asked.messages), tools=asked.tools or ())
    return _answer(await app.agent_for("").provider().complete(shown, emit=emit))


async def _by_model_in_session(app: App, asked: Asked, stand: reading.Stand, emit: Emit) -> Answer:
    """The model alone, with what the session holds: the newest words and results are stored first, then the answer."""
    who = app.agent_for(asked.key)
    new, waiting = _behind_answers(asked.messages), _behind_answers(stand.messages)
    _check_results(new, stand.messages)
    hold = app.sessions.hold(asked.key)
    await to_thread.run_sync(hold.take)
    try:
        if [_gist(one) for one in new] != [_gist(one) for one in waiting]:
            known = await _heard(app, asked, stand, [*new[:-1], _marked(new[-1], asked.id)])
            if known is not None:
                return _repeated(known)
        shown = await to_thread.run_sync(app.window, asked.key)
        messages = with_terms(shown.messages, asked.terms)
        context = Context(system=asked.system, messages=messages, tools=asked.tools or ())
        reply = await who.provider().complete(context, emit=emit)
        used = [Note("use", {"model": reply.message.model, **to_builtins(reply.usage)})] if reply.usage else []
        cut = {"stopped": "length"} if reply.finish == "length" else {}
        message = msgspec.structs.replace(reply.message, extra={**reply.message.extra, **cut})
        await _stored(app, asked.key, [message, *used])
    finally:
        hold.close()
        who.after(asked.key)
    return _answer(reply)


def _check_results(new: Sequence[Message], before: Sequence[Message]) -> None:
    """Refuse results of calls that were never made: without its call, a model cannot be shown one."""
    calls = {call.id for one in before for call in one.tool_calls}
    if alien := [one.tool_call_id for one in new if one.role == "tool" and one.tool_call_id not in calls]:
        raise Fault("usage", f"there is a result of the call {alien[0]!r:.100}, but no such call before it")


def _marked(words: Message, id: str) -> Message:
    """Words with the client's own name for them, by which they are known when they come again."""
    return msgspec.structs.replace(words, extra={**words.extra, "origin": {"id": id}}) if id else words


async def _heard(app: App, asked: Asked, stand: reading.Stand, new: Sequence[Message]) -> Message | None:
    """Store what is new, unless it came before; what it was answered with then, None if it waits for it."""
    try:
        number = await _stored(app, asked.key, new, id=asked.id)
    except Conflict:
        if not asked.id or not app.sessions.exists(asked.key):
            raise
    else:
        if not asked.id or number > stand.n:
            return None
    known = partial(answer_before, words=new[-1], id=asked.id, ends=lambda one: one.role == "assistant")
    return await to_thread.run_sync(reading.backend(app.sessions).read, asked.key, known)


async def _stored(app: App, key: str, entries: Sequence[Entry], *, id: str = "") -> int:
    with anyio.CancelScope(shield=True):
        number = await app.sessions.submit(key, entries, id=id or None)
    return number  # noqa: RET504 - to the type checker a scope may end without it


def _behind_answers(messages: Sequence[Message]) -> list[Message]:
    """What came since the model last spoke."""
    at = max((place for place, one in enumerate(messages) if one.role == "assistant"), default=-1)
    return list(messages[at + 1 :])


def _gist(message: Message) -> tuple[Any, ...]:
    return message.role, message.content, message.tool_call_id


def _repeated(known: Message) -> Answer:
    return Answer(message=known, usage=Usage(), finish="calls" if known.tool_calls else "stop")


def _answer(reply: Reply) -> Answer:
    return Answer(message=reply.message, usage=reply.usage or Usage(), finish=reply.finish)


# ---- how it is answered


async def _streamed(running: Running[Answer], frame: _Frame) -> AsyncGenerator[bytes, None]:
    """The answer piece by piece; of what the agent does meanwhile, a client without its tools sees nothing."""
    said, is_apart = False, False
    yield frame.piece({"role": "assistant", "content": ""})
    async for happened in running.events(silence=HEARTBEAT):
        match happened:
            case None:
                yield BEAT
            case Text(text):
                yield frame.piece({"content": f"\n\n{text}" if said and is_apart else text})
                said, is_apart = True, False
            case Thought(text):
                yield frame.piece({"reasoning_content": text})
            case Called():
                is_apart = True
            case _:
                pass
    try:
        answer = running.outcome()
    except Exception as error:  # noqa: BLE001 - the status is sent; what went wrong is a piece now
        yield event(fault_of(error).to_openai())
        return
    for piece in frame.end(answer, said=said):
        yield piece
    yield b"data: [DONE]\n\n"


class _Frame:
    """What stands around an answer."""

    def __init__(self, wanted: Chat, model: str) -> None:
        self._wants_usage = wanted.stream_options is not None and wanted.stream_options.include_usage
        self._model = model
        self._id = f"chatcmpl-{secrets.token_hex(12)}"
        self._created = int(time.time())

    def whole(self, answer: Answer) -> dict[str, Any]:
        message = {"role": "assistant", "content": content_of(answer.message), "refusal": None, **_more(answer.message)}
        calls = calls_of(answer.message)
        if calls:
            message["tool_calls"] = calls
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": _FINISHES[answer.finish]}
        # A session may have a model of its own.
        model = answer.message.model or self._model
        return {**self._head("chat.completion"), "model": model, "choices": [choice], "usage": _usage(answer.usage)}

    def piece(self, delta: dict[str, Any], *, finish: str | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
        return event({**self._head("chat.completion.chunk"), "choices": [choice]})

    def end(self, answer: Answer, *, said: bool) -> list[bytes]:
        """The last pieces: words that did not come one by one, calls, why it ends, what it cost."""
        pieces = []
        if not said and answer.message.content:
            pieces.append(self.piece({"content": content_of(answer.message)}))
        calls = [{"index": at, **call} for at, call in enumerate(calls_of(answer.message))]
        if calls:
            pieces.append(self.piece({"tool_calls": calls}))
        pieces.append(self.piece({}, finish=_FINISHES[answer.finish]))
        if self._wants_usage:
            pieces.append(event({**self._head("chat.completion.chunk"), "choices": [], "usage": _usage(answer.usage)}))
        return pieces

    def _head(self, kind: str) -> dict[str, Any]:
        return {"id": self._id, "object": kind, "created": self._created, "model": self._model}


def content_of(message: Message) -> str | None:
    if isinstance(message.content, list):
        parts = (part.get("text", "") for part in message.content if isinstance(part, dict))
        return "".join(part for part in parts if isinstance(part, str))
    return message.content


def _more(message: Message) -> dict[str, Any]:
    return {"reasoning_content": message.reasoning} if message.reasoning else {}


def calls_of(message: Message) -> list[dict[str, Any]]:
    return [
        {
            "id": call.id,
            "type": "function",
            "function": {"name": call.name, "arguments": _written(call.arguments)},
        }
        for call in message.tool_calls
    ]


def _written(arguments: Any) -> str:
    return arguments if isinstance(arguments, str) else msgspec.json.encode(arguments).decode()


def _usage(usage: Usage) -> dict[str, Any]:
    return {
        "prompt_tokens": usage.prompt,
        "completion_tokens": usage.completion,
        "total_tokens": usage.prompt + usage.completion,
        "prompt_tokens_details": {"cached_tokens": usage.cached},
    }


def json_response(value: Any, headers: Mapping[str, str] | None = None) -> Response:
    return Response(msgspec.json.encode(value), media_type="application/json", headers=headers)
