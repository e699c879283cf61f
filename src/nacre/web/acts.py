"""What the page's forms do, with or without a script: write, rename, tag, pin, fork, archive, rewind, delete."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from urllib.parse import parse_qsl

import anyio
from anyio import to_thread
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from nacre.agent.actor import Inbound
from nacre.app import App
from nacre.history.labels import MOST_TAGS, tags_in
from nacre.web import asking, links, reading, shapes
from nacre.web.asking import Questions
from nacre.web.events import HEARTBEAT, EventStream, stays
from nacre.web.problems import Fault
from nacre.web.turns import Turns

_MOST_FIELDS = 20
_DIGITS = 18

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
        return RedirectResponse(links.to("s", key), status_code=303)
    if verb in _NOT_AT_WORK and app.kernel.is_at_work(key):
        raise Fault("conflict", f"session {key!r} has a running turn; stop it first")

    def act() -> str:
        with reading.held(app.sessions, key) if verb in _NOT_AT_WORK else nullcontext():
            return ACTS[verb](app, key, given)

    return RedirectResponse(await to_thread.run_sync(act), status_code=303)


async def said(app: App, turns: Turns, key: str, given: Mapping[str, str]) -> Response:
    """Send a message and wait for the answer; the turn continues if the client disconnects."""
    running = turns.start(asking.turn(app, _inbound(key, given)))
    try:
        await running.over()
        running.outcome()
    finally:
        running.leave(stop=False)
    now = await to_thread.run_sync(lambda: app.sessions.snapshot(key, last=1))
    return RedirectResponse(f"{links.to('s', key)}#{now.numbers[-1] if now.numbers else ''}", status_code=303)


async def turned(request: Request, app: App, turns: Turns, questions: Questions, key: str) -> Response:
    """Send a message and stream the turn as events; it continues if the client disconnects."""
    left = anyio.Event()
    inbound = _inbound(key, await fields(request))
    running = turns.start(asking.turn(app, inbound, lambda emit: questions.asker(key, emit, left)))

    def leave() -> None:
        left.set()
        running.leave(stop=False)

    if not await stays(request.receive, lambda: running.wait(HEARTBEAT)):
        leave()
    if running.has_failed:
        running.outcome()
    return EventStream(asking.told(running), left=leave)


def _inbound(key: str, given: Mapping[str, str]) -> Inbound:
    content = given.get("content", "").replace("\r\n", "\n").strip()
    if not content:
        raise Fault("usage", "the message is empty")
    return Inbound(key=key, content=content, id=given.get("id", "")[:64], sender="web")


def _title(app: App, key: str, given: Mapping[str, str]) -> str:
    reading.rename(app.sessions, key, given.get("title", "")[:200])
    return links.to("s", key)


def _tags(app: App, key: str, given: Mapping[str, str]) -> str:
    reading.describe(app.sessions, key, {"tags": tags_in(given.get("tags", ""))[:MOST_TAGS] or None})
    return links.to("s", key)


def _pin(app: App, key: str, given: Mapping[str, str]) -> str:
    reading.describe(app.sessions, key, {"pinned": given.get("pinned") == "1" or None})
    return links.to("s", key)


def _fork(app: App, key: str, given: Mapping[str, str]) -> str:
    at = given.get("at", "")
    wanted = shapes.Fork(key=given.get("to", "").strip() or None, at=_record(at) if at else None)
    return links.to("s", reading.fork(app.sessions, key, wanted).key)


def _archive(app: App, key: str, _: Mapping[str, str]) -> str:
    app.sessions.archive(key)
    return links.page("/")


def _unarchive(app: App, key: str, _: Mapping[str, str]) -> str:
    app.sessions.unarchive(key)
    return links.to("s", key)


def _rewind(app: App, key: str, given: Mapping[str, str]) -> str:
    app.sessions.rewind(key, reading.behind(app.sessions, key, _record(given.get("to", ""))))
    return links.to("s", key)


def _record(number: str) -> int:
    if not (number.isascii() and number.isdecimal() and len(number) <= _DIGITS):
        raise Fault("usage", f"a record is named by its number, not {number!r:.40}")
    return int(number)


def _delete(app: App, key: str, given: Mapping[str, str]) -> str:
    if given.get("sure") != "1":
        raise Fault("usage", "tick the box to confirm the deletion; nothing was deleted")
    reading.erase(app.sessions, key)
    return links.page("/")


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
