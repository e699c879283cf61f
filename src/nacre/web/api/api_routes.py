"""The API for sessions: list, read, search, send, fork, archive, delete, and follow."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import nullcontext
from functools import partial
from typing import Any, TypeVar
from urllib.parse import unquote

import msgspec
from anyio import to_thread
from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from nacre.agent.actor import UserMessage
from nacre.agent.ports import Called, ChildReturned, Emit, Notice, Returned, Text, Thought
from nacre.keys import is_internal
from nacre.runtime import App
from nacre.runtime.redaction import Erasure
from nacre.runtime.redaction import redact as erase_message
from nacre.runtime.titles import first_title
from nacre.sessions import Sessions
from nacre.web.api import queries, schemas
from nacre.web.api.openapi import OPERATIONS, document
from nacre.web.api.retries import deliver_once, newest, request_id
from nacre.web.auth import media_type
from nacre.web.caller import agent, begin, check_key
from nacre.web.http_errors import Fault, fault_of
from nacre.web.running_turns import Running, Turns
from nacre.web.sse import BEAT, EventStream, event, records, stays

T = TypeVar("T", bound=Struct)
P = TypeVar("P")
Handler = Callable[[Request], Awaitable[Response]]
Act = Callable[[Sessions, str], None]
_PLACE = re.compile(r" - at (?:`key` in )?`\$\.?(.*)`\Z", re.DOTALL)
_VALUE = re.compile(r"Invalid (?:enum )?value .* - at `", re.DOTALL)
_MISSING = re.compile(r"missing required field `(\w+)`")


# ---- what only reads


async def list_sessions(request: Request) -> Response:
    query = parse_query(request, schemas.ListQuery)
    return json_response(await to_thread.run_sync(queries.list_sessions, agent(request).sessions, query))


async def search(request: Request) -> Response:
    query = parse_query(request, schemas.SearchQuery)
    return json_response(await to_thread.run_sync(queries.search, agent(request).sessions, query))


async def read(request: Request) -> Response:
    query = parse_query(request, schemas.ReadQuery)
    return json_response(await to_thread.run_sync(queries.read, agent(request).sessions, key_in(request), query))


async def follow(request: Request) -> Response:
    """The records of a session as events; a client that comes back says which it had last."""
    sessions, key = agent(request).sessions, key_in(request)
    query = parse_query(request, schemas.EventsQuery)
    last = request.headers.get("last-event-id", "")
    if last and not (last.isascii() and last.isdecimal() and len(last) < 17):  # noqa: PLR2004 - digits of 53 bits
        raise Fault("usage", "Last-Event-ID must be the number of a record")
    queries.require((await to_thread.run_sync(queries.end, sessions, key)).n or None, key)
    # Changes are reported by the key, also to a client that follows the session by another name.
    key = await to_thread.run_sync(sessions.resolve, key)
    if request.method == "HEAD":
        return Response(media_type=EventStream.media_type)
    changes = request.app.state.changes if query.wait == "yes" else None
    after = int(last) if last else query.after
    return EventStream(
        records(sessions, key, after=after, changes=changes, heartbeat=request.app.state.limits.heartbeat)
    )


async def describe(request: Request) -> Response:
    """The OpenAPI document."""
    base: str = request.state.prefix + request.scope["root_path"]
    return Response(document(base), media_type="application/json")


# ---- what changes something


async def send(request: Request) -> Response:
    """Send a message to a session; the turn continues if the client disconnects."""
    wanted = await body(request, schemas.Send)
    key, id = writable_key(request), request_id(request.headers)
    inbound = UserMessage(key=key, content=wanted.content, id=id, sender="api", meta=first_title(wanted.content))
    app, heartbeat = agent(request), request.app.state.limits.heartbeat
    turns: Turns = request.app.state.turns

    async def work(emit: Emit) -> schemas.Sent:
        # The same words under the same id wait for each other, so that a client that repeats them gets their answer.
        async with turns.alone(f"{key}\n{id}") if id else nullcontext():
            before = await to_thread.run_sync(newest, app.sessions, key)
            answer = await deliver_once(app, inbound, before, emit=emit)
        return schemas.Sent(key=key, joined=answer is None, answer=None if answer is None else answer.to_mapping())

    running = begin(request, work, key=key, is_watched=wanted.stream)
    stream = _stream_turn(running, heartbeat) if wanted.stream else None
    return await respond(request, running, stream=stream, whole=lambda sent: sent)


async def _stream_turn(running: Running[schemas.Sent], heartbeat: float) -> AsyncGenerator[bytes, None]:
    """A turn as events: what happens in it, and at last what came of it."""
    async for happened in running.events(silence=heartbeat):
        match happened:
            case None:
                yield BEAT
            case Text(text):
                yield event({"text": text}, name="text")
            case Thought(text):
                yield event({"text": text}, name="thought")
            case Notice(text):
                yield event({"text": text}, name="notice")
            case Called(call):
                yield event({"call": call.to_mapping()}, name="called")
            case Returned(call, output):
                yield event({"id": call.id, "text": output.text, "failed": output.failed}, name="returned")
            case ChildReturned():
                pass
    try:
        yield event(running.outcome(), name="answer")
    except Exception as error:  # noqa: BLE001 - the status is sent; what went wrong is an event now
        yield event(fault_of(error).to_problem(), name="problem")


async def rename(request: Request) -> Response:
    wanted = await body(request, schemas.Rename)
    key = writable_key(request)
    return json_response(await to_thread.run_sync(queries.rename, agent(request).sessions, key, wanted.title))


async def fork(request: Request) -> Response:
    wanted = await body(request, schemas.Fork)
    made = await to_thread.run_sync(queries.fork, agent(request).sessions, writable_key(request), wanted)
    return json_response(made, status=201)


async def _change(act: Act, done: Callable[..., schemas.Done], request: Request) -> Response:
    """Do something to a session in which no turn runs."""
    parse_query(request, schemas.NoQuery)
    key = writable_key(request)
    await at_rest(agent(request), key, act)
    return json_response(done(key=key))


async def redact(request: Request) -> Response:
    """Erase the content of a message, with what the agent made of it."""
    query, key, app = parse_query(request, schemas.RedactQuery), writable_key(request), agent(request)
    number = request.path_params["n"]
    if not (number.isascii() and number.isdecimal() and len(number) < 17):  # noqa: PLR2004 - digits of 53 bits
        raise Fault("usage", "a message is named by its number")
    done: list[Erasure] = []

    def act(sessions: Sessions, key: str) -> None:
        queries.check_is_key(sessions, key)
        done.append(erase_message(sessions, app.memory, key, int(number), generation=query.generation))

    await at_rest(app, key, act)
    found = msgspec.to_builtins(done[0].redaction)
    return json_response(schemas.Redacted(**found, facts=done[0].facts))


async def stop(request: Request) -> Response:
    """Stop the turn that runs in a session."""
    parse_query(request, schemas.NoQuery)
    key, app = key_in(request), agent(request)
    queries.require((await to_thread.run_sync(queries.end, app.sessions, key)).n or None, key)
    was_running = app.kernel.stop(key)
    return json_response(schemas.Done(operation="stop", key=key, status="stopped" if was_running else "idle"))


_HANDLERS: dict[str, Handler] = {
    "list": list_sessions,
    "search": search,
    "read": read,
    "events": follow,
    "send": send,
    "rename": rename,
    "fork": fork,
    "archive": partial(_change, queries.archive, partial(schemas.Done, operation="archive", status="archived")),
    "unarchive": partial(_change, queries.unarchive, partial(schemas.Done, operation="unarchive", status="active")),
    "delete": partial(_change, queries.erase, partial(schemas.Done, operation="rm", status="erased")),
    "redact": redact,
    "stop": stop,
}
routes = [
    Route("/openapi.json", describe),
    *(Route(one.path, _HANDLERS[one.id], methods=[one.method]) for one in OPERATIONS if one.id in _HANDLERS),
]


# ---- requests and responses


def key_in(request: Request) -> str:
    """The session's key in the path, where it is escaped; raises Fault if it is not the caller's to reach."""
    try:
        return check_key(request, unquote(request.path_params["key"], errors="strict"))
    except UnicodeDecodeError as error:
        raise Fault("invalid_key", "a session's key must be percent-encoded UTF-8") from error


def writable_key(request: Request) -> str:
    """The key of a session that may be written or removed; raises Fault for one of nacre's own."""
    return refuse_internal(key_in(request))


def refuse_internal(key: str) -> str:
    if is_internal(key):
        raise Fault("forbidden", f"session {key!r} belongs to nacre: it can be read here, but not changed or forked")
    return key


async def at_rest(app: App, key: str, act: Act) -> None:
    """Do something to a session in which no turn runs; raises Fault, or SessionBusy, if one does."""
    if app.kernel.is_at_work(key):
        raise Fault("locked", f"a turn is running in session {key!r}; wait until it ends, or stop it")

    def work() -> None:
        with queries.hold(app.sessions, key):
            act(app.sessions, key)

    await to_thread.run_sync(work)


def parse_query(request: Request, kind: type[T]) -> T:
    """The query as a value; raises Fault for what it should not hold."""
    given = request.query_params.multi_items()
    fields = dict(given)
    if len(fields) < len(given):
        raise Fault("usage", "a parameter is given twice")
    try:
        return msgspec.convert(fields, kind, strict=False)
    except msgspec.ValidationError as error:
        raise Fault("usage", str(error)) from error


async def body(request: Request, kind: type[T]) -> T:
    """The body as a value; raises Fault for what it should not be."""
    parse_query(request, schemas.NoQuery)
    fields = await decode_body(request, dict[str, Any])
    for name, value in fields.items():
        # To JSON Schema 2.0 is an integer.
        if isinstance(value, float) and value.is_integer():
            fields[name] = int(value)
    try:
        return msgspec.convert(fields, kind)
    except msgspec.ValidationError as error:
        raise Fault("usage", f"the body is not valid: {error}") from error


async def decode_body(request: Request, kind: type[P]) -> P:
    """The JSON of the body; raises Fault if it is not that."""
    if media_type(request.headers) != "application/json":
        raise Fault("media_type", "the body must be JSON: `Content-Type: application/json`")
    try:
        return msgspec.json.decode(await request.body(), type=kind)
    except msgspec.ValidationError as error:
        raise invalid(error, "the body") from error
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise Fault("usage", f"the body cannot be read: {error}") from error


def invalid(error: msgspec.ValidationError, what: str, *, under: str = "") -> Fault:
    """The problem with a value, and where it is, as OpenAI's errors name that: `messages[0].role`.

    The value itself is not repeated: it may be words of a conversation.
    """
    reason = _VALUE.sub("Invalid value - at `", str(error))
    found, missing = _PLACE.search(reason), _MISSING.search(reason)
    parts = (under, found[1] if found else "", missing[1] if missing else "")
    param = ".".join(part for part in parts if part).replace(".[", "[")
    return Fault("usage", f"{what} is not valid: {reason}", param=param)


async def respond(
    request: Request,
    running: Running[P],
    *,
    stream: AsyncGenerator[bytes, None] | None,
    whole: Callable[[P], Any],
    is_kept: bool = True,
) -> Response:
    """Wait for an answer, or stream it; one that is not kept is stopped when its client disconnects."""
    if stream is not None:
        await stays(request.receive, lambda: running.wait(request.app.state.limits.first_event_timeout))
        if running.error is not None:
            raise running.error
        return EventStream(stream, left=lambda: running.leave(stop=not is_kept))
    try:
        is_there = await stays(request.receive, running.over)
    finally:
        running.leave(stop=not is_kept)
    # A client that is no longer there is sent nothing.
    return json_response(whole(running.outcome())) if is_there else Response(status_code=204)


def json_response(value: Any, *, status: int = 200) -> Response:
    return Response(msgspec.json.encode(value), status_code=status, media_type="application/json")
