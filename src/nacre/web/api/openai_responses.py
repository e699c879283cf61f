"""OpenAI's responses: each answers a message of a session, and its id leads back to both.

An id holds the name of the session and the message's own: `resp_`, base64url of the session and the user as JSON, and
16 hex digits. It is read in the name of the caller, so that it never leads to a session of somebody else.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
import secrets
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import msgspec
from anyio import to_thread
from msgspec import Struct
from msgspec.structs import replace
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from nacre.agent.model_request import Terms, terms_of, with_terms
from nacre.agent.ports import Form, Spec
from nacre.codec import message_in, time_of
from nacre.codec import message_of as stored_message
from nacre.history import every_message
from nacre.history.replies import id_of, is_final
from nacre.messages import Message, Stored
from nacre.records import Record, View
from nacre.runtime import App
from nacre.runtime.structured_output import check_schema
from nacre.sessions import Sessions
from nacre.web.api import openai_messages, queries
from nacre.web.api import openai_schemas as openai
from nacre.web.api.api_routes import at_rest, decode_body, invalid, json_response, respond
from nacre.web.api.openai_models import choose_agent
from nacre.web.api.openai_requests import RESPONSE, Answer, ParsedRequest, is_short, work
from nacre.web.api.retries import is_retry, request_id
from nacre.web.caller import Caller, agent, begin, check_user, session_for
from nacre.web.http_errors import Fault

_ID = re.compile(r"resp_([A-Za-z0-9_-]+)([0-9a-f]{16})")
_LOGPROBS = "message.output_text.logprobs"
_TEXTS = ("input_text", "output_text", "text", "summary_text")


class Name(NamedTuple):
    """What a response's id says: the session, the user that it was for, and the message that it answers."""

    session: str
    user: str
    message: str

    @property
    def id(self) -> str:
        place = base64.urlsafe_b64encode(msgspec.json.encode((self.session, self.user))).decode().rstrip("=")
        return f"resp_{place}{self.message}"


class Echo(Struct, frozen=True, kw_only=True):
    """What a response repeats of its request; `is_bare`: the model alone answered, with the client's tools."""

    is_bare: bool = False
    instructions: str | None = None
    previous: str | None = None
    metadata: dict[str, str] = {}
    user: str | None = None


class Exchange(NamedTuple):
    """The message that a response answers, its answer if there is one, and whether that is the session's last."""

    words: Stored
    answer: Stored | None
    is_last: bool


# ---- the endpoints


async def create(request: Request) -> Response:
    """Answer; a response that is stored continues when its client disconnects, any other is stopped."""
    wanted = await decode_body(request, openai.Respond)
    choose_agent(request, wanted.model)
    _check(wanted)
    form = openai_messages.form_of(wanted.text.format if wanted.text is not None else None)
    if form is not None:
        await check_schema(form.schema)
    place = _known_place(wanted, request)
    parse = partial(_parse, wanted, form, request, place)
    if is_short(request.headers) and (place is not None or wanted.previous_response_id is None):
        name, who, asked = parse()
    else:
        # A client may send a very long history, and nobody else is to wait for its being read, nor for a session.
        name, who, asked = await to_thread.run_sync(parse)
    app = agent(request, who)
    answering = work(app, request.app.state.turns, asked)
    running = begin(request, answering, key=asked.key, who=who, is_watched=bool(wanted.stream))
    begun = openai_messages.begin_document(name.id, app.provider.model, wanted, form=form, is_stored=bool(asked.key))
    stream = (
        openai_messages.stream_response(running, begun, request.app.state.limits.heartbeat) if wanted.stream else None
    )
    return await respond(
        request, running, stream=stream, whole=partial(openai_messages.end_document, begun), is_kept=bool(asked.key)
    )


async def read(request: Request) -> Response:
    """A stored response; one whose turn is under way, or was cut short, is in progress."""
    if request.query_params.get("stream", "false") != "false":
        raise Fault("usage", "a stored response is given whole: leave stream out", param="stream")
    name = _parse_id(request.path_params["id"])
    who, key = session_for(request, session=name.session, user=name.user)
    return json_response(await to_thread.run_sync(_stored_response, agent(request, who), key, name))


async def delete(request: Request) -> Response:
    """Erase the session that a response is in, with all that was said there."""
    name = _parse_id(request.path_params["id"])
    who, key = session_for(request, session=name.session, user=name.user)

    def erase(sessions: Sessions, key: str) -> None:
        _find(sessions, key, name)
        queries.erase(sessions, key)

    await at_rest(agent(request, who), key, erase)
    return json_response(openai.ResponseDeleted(id=name.id))


routes = [
    Route("/v1/responses", create, methods=["POST"]),
    Route("/v1/responses/{id}", read),
    Route("/v1/responses/{id}", delete, methods=["DELETE"]),
]


# ---- what is asked


def _check(wanted: openai.Respond) -> None:
    """Refuse what would be answered otherwise than it was meant."""
    if wanted.background:
        reason = "background must be false: a response that is stored continues without its client anyway"
        raise Fault("usage", reason, param="background")
    if wanted.conversation is not None:
        reason = "conversation is not supported: use previous_response_id or session_id"
        raise Fault("usage", reason, param="conversation")
    if wanted.prompt is not None:
        raise Fault("usage", "prompt is not supported: send the text as instructions or input", param="prompt")
    if wanted.top_logprobs or _LOGPROBS in (wanted.include or ()):
        param = "top_logprobs" if wanted.top_logprobs else "include"
        raise Fault("usage", "logprobs are not supported", param=param)
    if wanted.moderation is not None:
        raise Fault("usage", "moderation is not supported: leave it out", param="moderation")
    if wanted.session_id and wanted.previous_response_id:
        reason = "previous_response_id names a session already: leave session_id out"
        raise Fault("usage", reason, param="session_id")


def _parse(
    wanted: openai.Respond, form: Form | None, request: Request, place: _Place | None
) -> tuple[Name, Caller, ParsedRequest]:
    """The request in the words of completions: who answers, in which session (`place`, if known), and after what."""
    spoken = _parse_input(wanted.input)
    instructions = "\n\n".join(
        part
        for part in (
            wanted.instructions,
            *(openai_messages.text_of(one) for one in spoken if one.role in openai_messages.SYSTEM),
        )
        if part
    )
    messages = [one for one in spoken if one.role not in openai_messages.SYSTEM]
    if not messages or messages[-1].role == "assistant":
        reason = "the last item must be a user's message or a function's result: it is the one answered"
        raise Fault("usage", reason, param="input")
    is_bare = bool(wanted.tools) or messages[-1].role == "tool"
    specs, must_call = _parse_tools(wanted)
    name, who, key, before = place or _choose_place(wanted, messages, request)
    # Without a session, and to the model alone, instructions are system text; in a session they go with the words.
    terms = Terms(form=form, instructions=instructions if key and not is_bare else "")
    echo = Echo(
        is_bare=is_bare,
        instructions=wanted.instructions,
        previous=wanted.previous_response_id,
        metadata=wanted.metadata or {},
        user=wanted.user,
    )
    messages = with_terms(messages, terms)
    messages[-1] = replace(messages[-1], extra={**messages[-1].extra, RESPONSE: msgspec.to_builtins(echo)})
    cut = 0
    if key:
        spoke_last = max((at for at, one in enumerate(messages) if one.role == "assistant"), default=-1)
        cut = spoke_last + 1 if is_bare else len(messages) - 1
    asked = ParsedRequest(
        key=key,
        nowhere=who.key() if who.is_guest else "",
        id=name.message if key else "",
        is_retry=is_retry(request.headers),
        system=instructions,
        messages=[*before, *messages[cut:]],
        tools=specs if is_bare else None,
        must_call=must_call,
        one_call=wanted.parallel_tool_calls is False,
        sender=wanted.user or "api",
        terms=terms,
        seed=messages[:cut],
    )
    return name, who, asked


def _parse_tools(wanted: openai.Respond) -> tuple[list[Spec], bool]:
    """The functions that the model may call, and whether it must; raises Fault for tools of other kinds."""
    functions: list[openai.Function] = []
    for at, tool in enumerate(wanted.tools or ()):
        if (kind := tool.get("type")) != "function":
            reason = f"tools of type {kind!r:.100} do not run here; there are functions, which the client runs"
            raise Fault("usage", reason, param=f"tools[{at}].type")
        try:
            functions.append(msgspec.convert(tool, openai.Function))
        except msgspec.ValidationError as error:
            raise invalid(error, "a function", under=f"tools[{at}]") from error
    is_offered, must_call, names = openai_messages.choice_of(wanted.tool_choice)
    specs = openai_messages.specs_of(functions, names)
    if must_call and not specs:
        raise Fault("usage", "tool_choice asks for a call, and there are no tools", param="tool_choice")
    return specs if is_offered else [], must_call


def _parse_input(given: str | Sequence[Mapping[str, Any]]) -> list[Message]:
    """The items of an input as messages; calls that follow each other are one message's."""
    if isinstance(given, str):
        return [Message(role="user", content=given)]
    found: list[Message] = []
    for at, item in enumerate(given):
        kind, param = item.get("type") or "message", f"input[{at}]"
        if kind == "reasoning":
            continue
        try:
            chat = msgspec.convert(_mapping(kind, item, param), openai.ChatMessage)
        except msgspec.ValidationError as error:
            raise Fault("usage", invalid(error, f"an item of type {kind!r:.100}").detail, param=param) from error
        message = openai_messages.message_of(chat, param=param)
        last = found[-1] if found else None
        if kind == "function_call" and last is not None and last.role == "assistant":
            found[-1] = replace(last, tool_calls=(*last.tool_calls, *message.tool_calls))
        else:
            found.append(message)
    return found


def _mapping(kind: Any, item: Mapping[str, Any], param: str) -> dict[str, Any]:
    """An item in the shape of chat completions; raises Fault for one that a model could not be shown."""
    match kind:
        case "message":
            if item.get("role") == "tool":
                raise Fault("usage", "a result is an item of type function_call_output", param=f"{param}.role")
            return {"role": item.get("role"), "content": _content(item.get("content"), f"{param}.content")}
        case "function_call":
            function = {"name": item.get("name"), "arguments": item.get("arguments")}
            call = {"id": item.get("call_id"), "type": "function", "function": function}
            return {"role": "assistant", "content": None, "tool_calls": [call]}
        case "function_call_output":
            if not item.get("call_id"):
                raise Fault("usage", "a result needs the call_id of its call", param=f"{param}.call_id")
            content = _content(item.get("output"), f"{param}.output")
            return {"role": "tool", "tool_call_id": item.get("call_id"), "content": content}
        case _:
            raise Fault(
                "usage",
                f"an item of type {kind!r:.100} cannot be shown to the model; there are message, function_call, "
                "function_call_output and reasoning",
                param=f"{param}.type",
            )


def _content(given: Any, param: str) -> Any:
    """The content of an item; text alone is text."""
    if not isinstance(given, list):
        return given
    parts: list[dict[str, Any]] = []
    for at, part in enumerate(given):
        match part:
            case {"type": kind, "text": str(text)} if kind in _TEXTS:
                parts.append({"type": "text", "text": text})
            case {"type": "refusal", "refusal": str(text)}:
                parts.append({"type": "text", "text": text})
            case {"type": "input_image", "image_url": str(url)}:
                parts.append({"type": "image_url", "image_url": {"url": url}})
            case _:
                kind = part.get("type") if isinstance(part, dict) else part
                reason = f"a part of type {kind!r:.100} cannot be shown; there are input_text and input_image"
                raise Fault("usage", reason, param=f"{param}[{at}]")
    return parts[0]["text"] if len(parts) == 1 and "text" in parts[0] else parts


# ---- where it is said


_Place = tuple[Name, Caller, str, Sequence[Message]]
"""A response's name, who asks, which session a message goes to ("" for none), and what comes before it if none."""


def _known_place(wanted: openai.Respond, request: Request) -> _Place | None:
    """The place after the last response of a session that is known here; None if only reading shows it."""
    if wanted.previous_response_id is None or wanted.store is False:
        return None
    before = _parse_id(wanted.previous_response_id)
    check_user(request, wanted.user)
    if wanted.user and before.user != wanted.user:
        return None
    who, key = session_for(request, session=before.session, user=before.user)
    now = agent(request, who).known_session(key)
    # Its answer must be the last thing that changed the history: what was undone since, if anything, is not in memory.
    if now is None or not now.messages or not is_final(now.messages[-1]) or now.numbers[-1] != now.expect:
        return None
    words = next((one for one in reversed(now.messages[:-1]) if is_final(one) or id_of(one) == before.message), None)
    if words is None or id_of(words) != before.message or RESPONSE not in words.extra:
        return None
    if msgspec.convert(words.extra[RESPONSE], Echo).is_bare:
        return None
    mine = _derive(request_id(request.headers), "message") or secrets.token_hex(8)
    return before._replace(message=mine), who, key, ()


def _choose_place(wanted: openai.Respond, messages: Sequence[Message], request: Request) -> _Place:
    """Find or choose the session; one that has gone on since the previous response is forked there."""
    given = request_id(request.headers)
    check_user(request, wanted.user)
    user, mine = wanted.user or "", _derive(given, "message") or secrets.token_hex(8)
    if wanted.previous_response_id is None:
        session = wanted.session_id or request.headers.get("x-session-id", "")
        if not session:
            session = _derive(given, "session") or secrets.token_hex(12)
        name = Name(session, user, mine)
        who, key = session_for(request, session=session, user=user)
        return name, who, "" if wanted.store is False else key, ()
    before = _parse_id(wanted.previous_response_id)
    if user and before.user != user:
        raise _no_such(before)
    who, key = session_for(request, session=before.session, user=before.user)
    sessions = agent(request, who).sessions
    found = _find(sessions, key, before)
    if found.answer is None:
        raise Fault("conflict", f"the response {wanted.previous_response_id!r} is not complete; nothing can follow it")
    name = before._replace(message=mine)
    if wanted.store is False:
        if not found.is_last:
            raise Fault("usage", "without store only the newest response of a session can be continued")
        return name, who, "", sessions.get_history(key)
    if found.is_last:
        return name, who, key, ()
    # The message that came after the answer may be this one, sent again.
    next_id, content = _read_next(sessions, key, found.answer)
    if next_id == mine or (next_id and is_retry(request.headers) and content == messages[-1].content):
        return name._replace(message=next_id), who, key, ()
    session = _derive(given, "fork") or secrets.token_hex(12)
    _, branch = session_for(request, session=session, user=before.user)
    if not sessions.exists(branch):
        sessions.fork(key, branch, at=found.answer.n)
    return name._replace(session=session), who, branch, ()


def _read_next(sessions: Sessions, key: str, answer: Stored) -> tuple[str, Any]:
    """The id and the content of the first message after an answer that has an id."""

    def get(view: View) -> tuple[str, Any]:
        later = (record for record in view.all() if record.n > answer.n and record.t == "msg")
        messages = ((record, message_in(record)) for record in later)
        found = ((id, record) for record, one in messages if one is not None and (id := id_of(one)))
        id, record = next(found, ("", None))
        return id, stored_message(record, view).content if record is not None else None

    return sessions.read(key, get, generation=answer.generation) or ("", None)


def _derive(id: str, use: str) -> str:
    """A name that a request with the same Idempotency-Key gets again; "" if it has none."""
    if not id:
        return ""
    return hashlib.blake2b(id.encode(), digest_size=8 if use == "message" else 12, person=use.encode()).hexdigest()


def _parse_id(id: str) -> Name:
    """What an id says; raises Fault for one that is none of ours."""
    found = _ID.fullmatch(id)
    try:
        place = base64.urlsafe_b64decode(f"{found[1]}===" if found else "?")
        session, user = msgspec.json.decode(place, type=tuple[str, str])
    except (binascii.Error, UnicodeDecodeError, msgspec.DecodeError):
        session, user = "", ""
    if found is None or not session:
        raise Fault("not_found", f"there is no response {id!r:.200}")
    return Name(session, user, found[2])


def _no_such(name: Name) -> Fault:
    return Fault("not_found", f"there is no response {name.id!r:.200}")


def _find(sessions: Sessions, key: str, name: Name) -> Exchange:
    """The message of a response and its answer; raises Fault if there is none."""

    def find_in(view: View, newest_first: Iterator[Record]) -> Exchange | None:
        """Read from the end of a generation up to the message; what comes after it may be long, and is not kept."""
        last: Record | None = None
        final: Record | None = None
        reply: Record | None = None
        for record in newest_first:
            if (one := message_in(record)) is None:
                continue
            if id_of(one) == name.message and RESPONSE in one.extra:
                words = _stored(view, record)
                answer = reply if msgspec.convert(words.message.extra[RESPONSE], Echo).is_bare else final
                is_last = answer is not None and answer is last and view.is_newest
                return Exchange(words, _stored(view, answer) if answer is not None else None, is_last=is_last)
            last = last or record
            final = record if is_final(one) else final
            reply = record if is_final(one) or one.role == "assistant" else reply
        return None

    def find_anywhere(view: View) -> Exchange | None:
        return find_in(view, every_message.newest(view, view.highest))

    # Most often it is among the newest; one that compaction moved out, or that was archived, is looked for everywhere.
    found = sessions.read(key, lambda view: find_in(view, view.back(view.n)))
    found = found or next(reversed(sessions.read_generations(key, find_anywhere)), None)
    if found is None:
        raise _no_such(name)
    return found


def _stored(view: View, record: Record) -> Stored:
    return Stored(generation=view.uid, n=record.n, ts=time_of(record), message=stored_message(record, view))


def _stored_response(app: App, key: str, name: Name) -> openai.ResponseDocument:
    words, answer, _ = _find(app.sessions, key, name)
    echo = msgspec.convert(words.message.extra[RESPONSE], Echo)
    form = terms_of([words.message]).form
    document = openai.ResponseDocument(
        id=name.id,
        created_at=int(words.ts.timestamp()),
        status="in_progress",
        model=app.provider.model,
        instructions=echo.instructions,
        previous_response_id=echo.previous,
        metadata=echo.metadata,
        text=openai_messages.text_config(form),
        user=echo.user,
    )
    if answer is None:
        return document
    usage = queries.usage_between(app.sessions, key, words.n, answer.n)
    return openai_messages.end_document(document, Answer(message=answer.message, usage=usage))
