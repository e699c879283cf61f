"""What the page's forms do, with or without a script: write, rename, tag, pin, fork, archive, rewind, delete."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from urllib.parse import parse_qsl

from anyio import to_thread
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from nacre.agent.ports import Emit
from nacre.errors import ConfigError, ModelUnavailable, NacreError
from nacre.history.overview import MAX_TAGS, tags_in
from nacre.messages import Message
from nacre.render.html import escape, html
from nacre.render.text import one_line
from nacre.runtime import App
from nacre.runtime.app import CHOSEN
from nacre.runtime.models import list_all
from nacre.web import caller
from nacre.web.api import api_routes, queries, schemas
from nacre.web.auth import media_type
from nacre.web.http_errors import Fault
from nacre.web.pages import message_form, urls
from nacre.web.pages.turn_view import Stage, Stages
from nacre.web.running_turns import Turns
from nacre.web.sse import EventStream, stays

_MAX_FIELDS = 20
_DIGITS = 18
_FAILS_AT_ONCE = 0.5
"""Seconds in which a turn that fails is an answer with its status; later it is an event."""
_OWNERS_VERBS = ("answer", "model")
"""What a guest does not decide: whether a tool runs, and which model is paid for."""
_BARE = ("", ".json", ".md")
ACTS = ("title", "tags", "pin", "fork", "archive", "unarchive", "rewind", "delete")
"""What a form does to a session."""
_NOT_AT_WORK = frozenset(("archive", "unarchive", "rewind", "delete"))
"""What is not done while a turn runs."""


# ---- a request


def key_in(request: Request) -> str:
    """The session that is meant; a key that browsers fold away in a path stands in the query.

    Raises Fault if it is not the caller's to reach.
    """
    found: str = request.path_params["key"]
    return caller.check_key(request, request.query_params.get("key", "") + found if found in _BARE else found)


def _writable_key(request: Request) -> str:
    return api_routes.refuse_internal(key_in(request))


def stages_of(request: Request) -> Stages:
    """The turns that this application's pages have begun."""
    state = request.app.state
    if not hasattr(state, "stages"):
        state.stages = Stages(heartbeat=state.limits.heartbeat)
    found: Stages = state.stages
    return found


async def _fields(request: Request) -> dict[str, str]:
    """The fields of a form."""
    if not request.headers.get("content-type", "").startswith("application/x-www-form-urlencoded"):
        raise Fault("media_type", "a form is sent as application/x-www-form-urlencoded")
    body = (await request.body()).decode("utf-8", "replace")
    try:
        return dict(parse_qsl(body, keep_blank_values=True, max_num_fields=_MAX_FIELDS))
    except ValueError as error:
        raise Fault("usage", f"the form cannot be read: {error}") from error


# ---- messages


async def say(request: Request) -> Response:
    """Send a message from the form and wait for the answer; the turn continues if the client disconnects."""
    app, key = caller.agent(request), _writable_key(request)
    work = message_form.turn(app, key, message_form.saying_of(await _fields(request)))
    running = caller.begin(request, message_form.keep_failures(app, key, work, caller.caller(request)), key=key)
    try:
        await running.over()
        running.outcome()
    finally:
        running.leave(stop=False)
    now = await to_thread.run_sync(lambda: app.sessions.snapshot(key, last=1))
    return RedirectResponse(f"{urls.to('s', key)}#{now.numbers[-1] if now.numbers else ''}", status_code=303)


async def turn(request: Request) -> Response:
    """Send a message from the script, and stream the turn as events; it continues if the client disconnects."""
    app, stages, key = caller.agent(request), stages_of(request), _writable_key(request)
    if media_type(request.headers) == "application/json":
        saying = message_form.parse_saying(await request.body())
    else:
        saying = message_form.saying_of(await _fields(request))
    if saying.model and caller.caller(request).is_guest:
        raise Fault("forbidden", "only the owner of this agent chooses the model")
    if stages.of(key) is not None:
        raise Fault("conflict", f"session {key!r} has a running turn; wait for it, or stop it")
    turns: Turns = request.app.state.turns
    stage = stages.begin(key)

    # A guest is not asked, as in a channel: what runs without a question is the owner's to say.
    is_guest = caller.caller(request).is_guest
    ask = None if is_guest else stages.questions.asker(key, stage.emit, stage.audience)
    try:
        work = message_form.turn(app, key, saying, ask=ask, began=lambda n: setattr(stage, "base", n))
    except NacreError:
        stages.end(key, stage)
        raise
    work = message_form.keep_failures(app, key, work, caller.caller(request))
    stage.words = html(saying.content) if saying.content else ""

    async def run(_: Emit) -> Message | None:
        try:
            answer = await work(stage.emit)
        finally:
            stages.end(key, stage)
            stage.touch()
        if not stage.base:
            turns.start_unwatched(app.improve_title(key))
        return answer

    stage.running = caller.begin(request, run, key=key)
    if await stays(request.receive, lambda: stage.wait(0, _FAILS_AT_ONCE)) and stage.running.error is not None:
        raise stage.running.error
    return _stream(app, stages, stage, key)


async def watch(request: Request) -> Response:
    """Stream the turn that runs, for a page that was opened or reloaded meanwhile; no content if none does."""
    app, stages, key = caller.agent(request), stages_of(request), key_in(request)
    stage = stages.of(key)
    if stage is None:
        return Response(status_code=204)
    stage.audience.enter()
    return _stream(app, stages, stage, key)


def _stream(app: App, stages: Stages, stage: Stage, key: str) -> Response:
    events = stage.events(
        lambda: stages.questions.of(key),
        is_stored=lambda base: queries.end(app.sessions, key).n > base,
        heartbeat=stages.heartbeat,
    )
    return EventStream(events, left=stage.audience.leave)


# ---- all else


async def do(request: Request) -> Response:
    """Do something else that a form asks for, and go on to where that is seen."""
    verb, app = request.path_params["verb"], caller.agent(request)
    if verb in _OWNERS_VERBS and caller.caller(request).is_guest:
        raise Fault("forbidden", "only the owner of this agent may do this")
    if verb not in {*ACTS, *_OWNERS_VERBS, "stop"}:
        raise Fault("not_found", f"there is no action {verb!r:.40}")
    key = key_in(request) if verb == "answer" else _writable_key(request)
    given = await _fields(request)
    to = urls.to("s", key)
    if verb == "answer":
        stages_of(request).questions.answer(key, given.get("id", ""), given.get("answer", ""))
    elif verb == "model":
        name = given.get("model", "")
        ref = await app.find_choice(name) if name else ""
        queries.describe(app.sessions, key, {CHOSEN: ref or None})
    elif verb == "stop":
        app.kernel.stop(key)
    else:
        if verb in _NOT_AT_WORK and app.kernel.is_at_work(key):
            raise Fault("conflict", f"session {key!r} has a running turn; stop it first")
        to = await to_thread.run_sync(_act, app, verb, key, given)
    return RedirectResponse(to, status_code=303)


def _act(app: App, verb: str, key: str, given: Mapping[str, str]) -> str:
    """Do something to a session, given a form's fields; returns where to go."""
    with queries.hold(app.sessions, key) if verb in _NOT_AT_WORK else nullcontext():
        match verb:
            case "title":
                queries.rename(app.sessions, key, given.get("title", "")[:200])
            case "tags":
                app.sessions.set_labels(key, tags=tags_in(given.get("tags", ""))[:MAX_TAGS])
            case "pin":
                app.sessions.set_labels(key, pinned=given.get("pinned") == "1")
            case "fork":
                at = given.get("at", "")
                wanted = schemas.Fork(key=given.get("to", "").strip() or None, at=_record(at) if at else None)
                return urls.to("s", queries.fork(app.sessions, key, wanted).key)
            case "archive":
                queries.check_is_key(app.sessions, key)
                app.sessions.archive(key)
                return urls.page("/")
            case "unarchive":
                queries.unarchive(app.sessions, key)
            case "rewind":
                app.sessions.rewind(key, _record(given.get("to", "")))
            case "delete":
                if given.get("sure") != "1":
                    raise Fault("usage", "tick the box to confirm the deletion; nothing was deleted")
                queries.erase(app.sessions, key)
                return urls.page("/")
            case _:
                pass
    return urls.to("s", key)


def _record(number: str) -> int:
    if not (number.isascii() and number.isdecimal() and len(number) <= _DIGITS):
        raise Fault("usage", f"a record is named by its number, not {number!r:.40}")
    return int(number)


# ---- which model answers


def model_of(app: App, meta: Mapping[str, object]) -> str:
    """The name of the model that answers in a session; of a chosen one that cannot answer any more, too."""
    try:
        return app.provider_named(meta.get(CHOSEN)).ref
    except (ModelUnavailable, ConfigError):
        # The session can be read all the same, and another model chosen.
        return str(meta.get(CHOSEN, ""))


async def model_form(app: App, key: str, current: str) -> str:
    """All models that can be reached as a form, a button for each; `current` answers now."""

    def button(ref: str, words: str, *, is_here: bool) -> str:
        here = "true" if is_here else "false"
        return f'<button name="model" value="{escape(ref)}" aria-pressed="{here}">{escape(one_line(words))}</button>'

    groups = button("", f"the agent's own: {app.model}", is_here=current == app.model)
    for listed in await list_all(app.settings):
        groups += f"<h2>{escape(listed.kind)}{'' if listed.is_local else ' · remote: the session is sent there'}</h2>"
        for name in (info.name for info in listed.models if info.can_chat):
            ref = f"{listed.kind}/{name}"
            # The agent's own is listed once more among the others: one of the two is chosen, not both.
            groups += button(ref, name, is_here=ref == current != app.model)
        groups += f'<p class="none">{escape(one_line(listed.problem))}</p>' if listed.problem else ""
    return (
        f'<form class="models" method="post" action="{escape(urls.to("do/model", key))}">'
        f"<p>It answers in this session from the next message on.</p>{groups}</form>"
    )
