"""The API for sessions: list, read, search, send, fork, archive, delete, and follow."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import nullcontext
from typing import Any, TypeVar
from urllib.parse import unquote

import msgspec
from anyio import to_thread
from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from nacre.agent.actor import UserMessage
from nacre.agent.ports import Ask, Called, Emit, Event, Notice, Returned, Text, Thought
from nacre.entries import Message
from nacre.errors import Conflict
from nacre.keys import is_internal
from nacre.runtime import App
from nacre.runtime.titles import first_title
from nacre.sessions import Sessions
from nacre.web.api import queries, schemas
from nacre.web.api.openapi import OPERATIONS, document
from nacre.web.auth import media_type
from nacre.web.caller import agent, begin, check_key
from nacre.web.http_errors import Fault, fault_of
from nacre.web.limits import Limits
from nacre.web.retries import answer_to, checked_id, is_waiting
from nacre.web.running_turns import Running, Turns
from nacre.web.sse import BEAT, EventStream, event, records, stays

T = TypeVar("T", bound=Struct)
P = TypeVar("P")
_PLACE = re.compile(r" - at (?:`key` in )?`\$\.?(.*)`\Z", re.DOTALL)
_VALUE = re.compile(r"Invalid (?:enum )?value .* - at `", re.DOTALL)
_MISSING = re.compile(r"missing required field `(\w+)`")


# ---- what only reads


async def list_sessions(request: Request) -> Response:
    query = queried(request, schemas.ListQuery)
    return answered(await to_thread.run_sync(queries.listed, agent(request).sessions, query))


async def search(request: Request) -> Response:
    query = queried(request, schemas.SearchQuery)
    return answered(await to_thread.run_sync(queries.found, agent(request).sessions, query))


async def read(request: Request) -> Response:
    query = queried(request, schemas.ReadQuery)
    return answered(await to_thread.run_sync(queries.read, agent(request).sessions, key_in(request), query))


async def follow(request: Request) -> Response:
    """The records of a session as events; a client that comes back says which it had last."""
    sessions, key = agent(request).sessions, key_in(request)
    query = queried(request, schemas.EventsQuery)
    after = _resumed(request, query.after)
    queries.existing((await to_thread.run_sync(queries.end, sessions, key)).n or None, key)
    # What is written is told by the key, also to whoever follows the session by another name.
    key = await to_thread.run_sync(sessions.resolve, key)
    if request.method == "HEAD":
        return Response(media_type=EventStream.media_type)
    changes = request.app.state.changes if query.wait == "yes" else None
    heartbeat = limits(request).heartbeat
    return EventStream(records(sessions, key, after=after, changes=changes, heartbeat=heartbeat))


async def describe(request: Request) -> Response:
    """The OpenAPI document."""
    base: str = request.state.prefix + request.scope["root_path"]
    return Response(document(base), media_type="application/json")


# ---- what changes something


async def send(request: Request) -> Response:
    """Send a message to a session; the turn continues if the client disconnects."""
    wanted = await body(request, schemas.Send)
    key, id = writable_key(request), checked_id(request.headers)
    inbound = UserMessage(key=key, content=wanted.content, id=id, sender="api", meta=first_title(wanted.content))
    running = begin(request, _delivering(agent(request), _turns(request), inbound), key=key)
    stream = _told(running, limits(request).heartbeat) if wanted.stream else None
    return await respond(request, running, stream=stream, whole=lambda sent: sent)


async def rename(request: Request) -> Response:
    wanted = await body(request, schemas.Rename)
    key = writable_key(request)
    return answered(await to_thread.run_sync(queries.rename, agent(request).sessions, key, wanted.title))


async def fork(request: Request) -> Response:
    wanted = await body(request, schemas.Fork)
    made = await to_thread.run_sync(queries.fork, agent(request).sessions, writable_key(request), wanted)
    return answered(made, status=201)


async def archive(request: Request) -> Response:
    key = writable_key(request)
    if not await _at_rest(request, queries.archived):
        raise Conflict(f"session {key!r} is archived already")
    return answered(schemas.Done(operation="archive", key=key, status="archived"))


async def unarchive(request: Request) -> Response:
    await _at_rest(request, queries.unarchive)
    return answered(schemas.Done(operation="unarchive", key=key_in(request), status="active"))


async def delete(request: Request) -> Response:
    await _at_rest(request, queries.erase)
    return answered(schemas.Done(operation="rm", key=key_in(request), status="erased"))


async def stop(request: Request) -> Response:
    """Stop the turn that runs in a session."""
    nothing_queried(request)
    key = key_in(request)
    sessions = agent(request).sessions
    queries.existing((await to_thread.run_sync(queries.end, sessions, key)).n or None, key)
    was_running = agent(request).kernel.stop(key)
    return answered(schemas.Done(operation="stop", key=key, status="stopped" if was_running else "idle"))


_HANDLERS: dict[str, Callable[[Request], Awaitable[Response]]] = {
    "list": list_sessions,
    "search": search,
    "read": read,
    "events": follow,
    "send": send,
    "rename": rename,
    "fork": fork,
    "archive": archive,
    "unarchive": unarchive,
    "delete": delete,
    "stop": stop,
}
routes = [
    Route("/openapi.json", describe),
    *(Route(one.path, _HANDLERS[one.id], methods=[one.method]) for one in OPERATIONS if one.id in _HANDLERS),
]


# ---- a turn


def _delivering(app: App, turns: Turns, inbound: UserMessage) -> Callable[[Emit], Awaitable[schemas.Sent]]:
    async def work(emit: Emit) -> schemas.Sent:
        # The same words under the same id wait for each other, so that whoever repeats them gets their answer.
        async with turns.alone(f"{inbound.key}\n{inbound.id}") if inbound.id else nullcontext():
            stand = await to_thread.run_sync(queries.stand, app.sessions, inbound.key)
            answer = await deliver_once(app, inbound, stand, emit=emit)
        return schemas.Sent(key=inbound.key, joined=answer is None, answer=None if answer is None else mapping(answer))

    return work


async def deliver_once(  # noqa: PLR0913 - who asks, and whom to tell
    app: App,
    inbound: UserMessage,
    stand: queries.Stand,
    *,
    emit: Emit,
    ask: Ask | None = None,
    prepare: Callable[[], Awaitable[None]] | None = None,
) -> Message | None:
    """Deliver a message and give its answer; one that came before under its id is not stored again.

    `stand` is where the session stood before, `prepare` is done before a new message is delivered.
    """
    answer = answer_to(stand, id=inbound.id, content=inbound.content)
    if answer is not None:
        return answer
    if inbound.id and is_waiting(stand, id=inbound.id, words=Message(role="user", content=inbound.content)):
        return await app.kernel.resume(inbound.key, emit=emit, ask=ask)
    if prepare is not None:
        await prepare()
    return await app.kernel.deliver(inbound, emit=emit, ask=ask)


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
        await stays(request.receive, lambda: running.wait(limits(request).first_event_timeout))
        if running.has_failed:
            running.outcome()
        return EventStream(stream, left=lambda: running.leave(stop=not is_kept))
    try:
        is_there = await stays(request.receive, running.over)
    finally:
        running.leave(stop=not is_kept)
    return answered(whole(running.outcome())) if is_there else gone()


async def _told(running: Running[schemas.Sent], heartbeat: float) -> AsyncGenerator[bytes, None]:
    """A turn as events: what happens in it, and at last what came of it."""
    async for happened in running.events(silence=heartbeat):
        yield BEAT if happened is None else _event(happened)
    try:
        yield event(running.outcome(), name="answer")
    except Exception as error:  # noqa: BLE001 - the status is sent; what went wrong is an event now
        yield event(fault_of(error).to_problem(), name="problem")


def _event(happened: Event) -> bytes:
    match happened:
        case Text(text):
            return event({"text": text}, name="text")
        case Thought(text):
            return event({"text": text}, name="thought")
        case Notice(text):
            return event({"text": text}, name="notice")
        case Called(call):
            return event({"call": call.to_mapping()}, name="called")
        case Returned(call, output):
            return event({"id": call.id, "text": output.text, "failed": output.failed}, name="returned")


# ---- requests and responses


def limits(request: Request) -> Limits:
    found: Limits = request.app.state.limits
    return found


def _turns(request: Request) -> Turns:
    found: Turns = request.app.state.turns
    return found


def key_in(request: Request) -> str:
    """The session's key in the path, where it is escaped; raises Fault if it is not the caller's to reach."""
    try:
        return check_key(request, unquote(request.path_params["key"], errors="strict"))
    except UnicodeDecodeError as error:
        raise Fault("invalid_key", "a session's key must be percent-encoded UTF-8") from error


def writable_key(request: Request) -> str:
    """The key of a session that may be written or removed; raises Fault for one of nacre's own."""
    key = key_in(request)
    refuse_internal(key)
    return key


def refuse_internal(key: str) -> None:
    if is_internal(key):
        raise Fault("forbidden", f"session {key!r} belongs to nacre: it can be read here, but not changed or forked")


async def _at_rest(request: Request, act: Callable[[Sessions, str], P]) -> P:
    nothing_queried(request)
    return await at_rest(agent(request), writable_key(request), act)


async def at_rest(app: App, key: str, act: Callable[[Sessions, str], P]) -> P:
    """Do something to a session in which no turn runs; raises Fault, or SessionBusy, if one does."""
    if app.kernel.is_at_work(key):
        raise Fault("locked", f"a turn is running in session {key!r}; wait until it ends, or stop it")

    def work() -> P:
        with queries.held(app.sessions, key):
            return act(app.sessions, key)

    return await to_thread.run_sync(work)


def queried(request: Request, kind: type[T]) -> T:
    """The query as a value; raises Fault for what it should not hold."""
    given = request.query_params.multi_items()
    fields = dict(given)
    if len(fields) < len(given):
        raise Fault("usage", "a parameter is given twice")
    try:
        return msgspec.convert(fields, kind, strict=False)
    except msgspec.ValidationError as error:
        raise Fault("usage", str(error)) from error


def nothing_queried(request: Request) -> None:
    queried(request, schemas.NoQuery)


async def body(request: Request, kind: type[T]) -> T:
    """The body as a value; raises Fault for what it should not be."""
    nothing_queried(request)
    found = decoded(await json_body(request), dict[str, Any])
    try:
        return msgspec.convert({name: _integral(value) for name, value in found.items()}, kind)
    except msgspec.ValidationError as error:
        raise Fault("usage", f"the body is not valid: {error}") from error


async def json_body(request: Request) -> bytes:
    if media_type(request.headers) != "application/json":
        raise Fault("media_type", "the body must be JSON: `Content-Type: application/json`")
    return await request.body()


def _integral(value: Any) -> Any:
    """A number as JSON Schema sees it, to which 2.0 is an integer."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def decoded(data: bytes, kind: type[P]) -> P:
    try:
        return msgspec.json.decode(data, type=kind)
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


def answered(value: Any, *, status: int = 200) -> Response:
    return Response(msgspec.json.encode(value), status_code=status, media_type="application/json")


def gone() -> Response:
    """What is sent to a client that is no longer there."""
    return Response(status_code=204)


def mapping(message: Message) -> dict[str, Any]:
    return message.to_mapping()


def _resumed(request: Request, after: int) -> int:
    """Where a stream goes on: behind the last event that the client had, if it says so."""
    last = request.headers.get("last-event-id", "")
    if not last:
        return after
    if not (last.isascii() and last.isdecimal() and len(last) < 17):  # noqa: PLR2004 - digits of 53 bits
        raise Fault("usage", "Last-Event-ID must be the number of a record")
    return int(last)
