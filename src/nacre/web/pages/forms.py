"""What the page's forms do, with or without a script: write, rename, tag, pin, fork, archive, rewind, delete."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from functools import partial
from urllib.parse import parse_qsl

from anyio import to_thread
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from nacre.agent.ports import Ask, Emit
from nacre.errors import NacreError
from nacre.history.overview import MAX_TAGS, tags_in
from nacre.messages import Message
from nacre.render.html import html
from nacre.runtime import App
from nacre.web import caller
from nacre.web.api import queries, schemas
from nacre.web.auth import media_type
from nacre.web.http_errors import Fault
from nacre.web.pages import message_form, urls
from nacre.web.pages.turn_view import Stage, Stages
from nacre.web.running_turns import Turns
from nacre.web.sse import EventStream, stays

logger = logging.getLogger(__name__)

_MOST_FIELDS = 20
_DIGITS = 18
_PATIENCE = 0.5
"""Seconds in which a turn that fails at once is an answer with its status; later it is an event."""

Act = Callable[[App, str, Mapping[str, str]], str]
"""Do something to a session, given a form's fields; returns where to go."""


async def fields(request: Request) -> dict[str, str]:
    """The fields of a form."""
    if not request.headers.get("content-type", "").startswith("application/x-www-form-urlencoded"):
        raise Fault("media_type", "a form is sent as application/x-www-form-urlencoded")
    body = (await request.body()).decode("utf-8", "replace")
    try:
        return dict(parse_qsl(body, keep_blank_values=True, max_num_fields=_MOST_FIELDS))
    except ValueError as error:
        raise Fault("usage", f"the form cannot be read: {error}") from error


async def done(app: App, verb: str, key: str, given: Mapping[str, str]) -> Response:
    """Do what a form asks, and go on to where that is seen."""
    if verb == "stop":
        app.kernel.stop(key)
        return RedirectResponse(urls.to("s", key), status_code=303)
    if verb in _NOT_AT_WORK and app.kernel.is_at_work(key):
        raise Fault("conflict", f"session {key!r} has a running turn; stop it first")

    def act() -> str:
        with queries.hold(app.sessions, key) if verb in _NOT_AT_WORK else nullcontext():
            return ACTS[verb](app, key, given)

    return RedirectResponse(await to_thread.run_sync(act), status_code=303)


async def said(request: Request, app: App, key: str, given: Mapping[str, str]) -> Response:
    """Send a message and wait for the answer; the turn continues if the client disconnects."""
    work = message_form.turn(app, key, message_form.saying_of(given))
    running = caller.begin(request, message_form.keeping_failures(app, key, work, _explain(request)), key=key)
    try:
        await running.over()
        running.outcome()
    finally:
        running.leave(stop=False)
    now = await to_thread.run_sync(lambda: app.sessions.snapshot(key, last=1))
    return RedirectResponse(f"{urls.to('s', key)}#{now.numbers[-1] if now.numbers else ''}", status_code=303)


async def turned(request: Request, app: App, stages: Stages, key: str) -> Response:
    """Send a message and stream the turn as events; it continues if the client disconnects."""
    is_json = media_type(request.headers) == "application/json"
    told = message_form.saying_in(await request.body()) if is_json else message_form.saying_of(await fields(request))
    if told.model and caller.caller(request).is_guest:
        raise Fault("forbidden", "only the owner of this agent chooses the model")
    if stages.of(key) is not None:
        raise Fault("conflict", f"session {key!r} has a running turn; wait for it, or stop it")
    turns: Turns = request.app.state.turns
    stage = stages.begin(key)

    def asker(_: Emit) -> Ask | None:
        # A guest is not asked, as in a channel: what runs without a question is the owner's to say.
        return None if caller.caller(request).is_guest else stages.questions.asker(key, stage.emit, stage.audience)

    try:
        work = message_form.turn(app, key, told, asker=asker, began=lambda n: setattr(stage, "base", n))
    except NacreError:
        stages.end(key, stage)
        raise
    work = message_form.keeping_failures(app, key, work, _explain(request))
    stage.words = html(told.content) if told.content else ""

    async def run(_: Emit) -> Message | None:
        try:
            answer = await work(stage.emit)
        finally:
            stages.end(key, stage)
            stage.touch()
        if not stage.base:
            turns.start_unwatched(_improve_title(app, key))
        return answer

    stage.running = caller.begin(request, run, key=key)
    if await stays(request.receive, lambda: stage.wait(0, _PATIENCE)) and stage.running.error is not None:
        raise stage.running.error
    return _streamed(app, stages, stage, key)


def _explain(request: Request) -> Callable[[BaseException], Fault]:
    """What a caller is told of an error."""
    return partial(caller.fault_for, who=caller.caller(request))


async def _improve_title(app: App, key: str) -> None:
    """Let the model name a session that has begun, unless a person has named it by then."""
    plain = app.sessions.get_meta(key).get("title")
    try:
        better = await app.suggest_title(key)
        if better and app.sessions.get_meta(key).get("title") == plain:
            app.sessions.set_meta(key, title=better)
    except NacreError as error:
        # The title made of the first words stays.
        logger.info("no title was generated", extra={"kind": type(error).__name__})


def watched(app: App, stages: Stages, key: str) -> Response:
    """Stream the turn that runs, for a page that was opened or reloaded meanwhile; no content if none does."""
    stage = stages.of(key)
    if stage is None:
        return Response(status_code=204)
    stage.audience.enter()
    return _streamed(app, stages, stage, key)


def _streamed(app: App, stages: Stages, stage: Stage, key: str) -> Response:
    def is_stored(base: int) -> bool:
        return queries.end(app.sessions, key).n > base

    told = stage.told(lambda: stages.questions.of(key), is_stored=is_stored, heartbeat=stages.heartbeat)
    return EventStream(told, left=stage.audience.leave)


def _title(app: App, key: str, given: Mapping[str, str]) -> str:
    queries.rename(app.sessions, key, given.get("title", "")[:200])
    return urls.to("s", key)


def _tags(app: App, key: str, given: Mapping[str, str]) -> str:
    app.sessions.set_labels(key, tags=tags_in(given.get("tags", ""))[:MAX_TAGS])
    return urls.to("s", key)


def _pin(app: App, key: str, given: Mapping[str, str]) -> str:
    app.sessions.set_labels(key, pinned=given.get("pinned") == "1")
    return urls.to("s", key)


def _fork(app: App, key: str, given: Mapping[str, str]) -> str:
    at = given.get("at", "")
    wanted = schemas.Fork(key=given.get("to", "").strip() or None, at=_record(at) if at else None)
    return urls.to("s", queries.fork(app.sessions, key, wanted).key)


def _archive(app: App, key: str, _: Mapping[str, str]) -> str:
    queries.check_is_key(app.sessions, key)
    app.sessions.archive(key)
    return urls.page("/")


def _unarchive(app: App, key: str, _: Mapping[str, str]) -> str:
    queries.unarchive(app.sessions, key)
    return urls.to("s", key)


def _rewind(app: App, key: str, given: Mapping[str, str]) -> str:
    app.sessions.rewind(key, _record(given.get("to", "")))
    return urls.to("s", key)


def _record(number: str) -> int:
    if not (number.isascii() and number.isdecimal() and len(number) <= _DIGITS):
        raise Fault("usage", f"a record is named by its number, not {number!r:.40}")
    return int(number)


def _delete(app: App, key: str, given: Mapping[str, str]) -> str:
    if given.get("sure") != "1":
        raise Fault("usage", "tick the box to confirm the deletion; nothing was deleted")
    queries.erase(app.sessions, key)
    return urls.page("/")


ACTS: Mapping[str, Act] = {
    "title": _title,
    "tags": _tags,
    "pin": _pin,
    "fork": _fork,
    "archive": _archive,
    "unarchive": _unarchive,
    "rewind": _rewind,
    "delete": _delete,
}
_NOT_AT_WORK = frozenset(("archive", "unarchive", "rewind", "delete"))
