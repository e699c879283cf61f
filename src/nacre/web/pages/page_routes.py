"""The web page: every session to read, to search and to write in, drawn by the server."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from anyio import to_thread
from starlette.convertors import Convertor, register_url_convertor
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from nacre.errors import NacreError, SessionNotFound
from nacre.history.transcript import Transcript, Wanted, message
from nacre.history.transcript import part as transcript_part
from nacre.records import View
from nacre.render.html import escaped
from nacre.render.quarantine_report import notices
from nacre.web import attachments, caller
from nacre.web.api import api_routes, queries
from nacre.web.http_errors import Fault
from nacre.web.pages import (
    alternates,
    forms,
    layout,
    message_html,
    model_choice,
    search_page,
    session_list,
    side_bar,
    transcript_page,
    urls,
    usage_chart,
)
from nacre.web.pages.highlight import marker
from nacre.web.pages.turn_view import Stages

_TWINS = ("json", "md")
_OWNERS_VERBS = ("answer", "model")
"""What a guest does not decide: whether a tool runs, and which model is paid for."""
_BARE = ("", ".json", ".md")
_DIGITS = 18

Handler = Callable[[Request], Awaitable[Response]]


async def sessions(request: Request) -> Response:
    """The list, as a page, as JSON or as Markdown."""
    filters, suffix = session_list.Filters.of(request.query_params), _suffix(request)
    found = await to_thread.run_sync(session_list.listed, caller.agent(request), filters)
    if suffix == "json":
        return alternates.json({"schema_version": 1, "total": found.total}, session_list.items(found))
    if suffix == "md":
        return alternates.markdown(session_list.markdown(found))
    new = f'<a class="button" href="{urls.page("/new")}">New session</a>'
    body = layout.top(session_list.title(found), more=new) + session_list.html(found)
    twin = filters.address("/index", page=filters.page)
    return layout.framed(request, "Sessions", body, side=await _side(request), twins=twin)


async def search(request: Request) -> Response:
    """What a query finds, as a page, as JSON or as Markdown."""
    query, suffix = request.query_params.get("q", "").strip(), _suffix(request)
    stored = caller.agent(request).sessions
    hits = await to_thread.run_sync(search_page.found, stored, query)
    if suffix == "json":
        return alternates.json({"schema_version": 1, "query": query}, search_page.items(hits))
    if suffix == "md":
        return alternates.markdown(search_page.markdown(query, hits))
    titles = await to_thread.run_sync(search_page.titles, stored, hits)
    body = layout.top("Search") + search_page.html(query, hits, titles)
    name = f"Search: {query}" if query else "Search"
    beside = await _side(request, query=query)
    return layout.framed(request, name, body, side=beside, twins=urls.page("/search", q=query))


async def session(request: Request) -> Response:
    """A transcript, or its twin where the key with the suffix is nobody's own."""
    app, key, wanted = caller.agent(request), _key(request), _wanted(request)
    stem, dot, suffix = key.rpartition(".")
    if dot and suffix in _TWINS and not await to_thread.run_sync(app.sessions.exists, key):
        return await _twin(stem, suffix, request)
    stages, query = _stages(request), request.query_params.get("q", "")
    try:
        shown = await to_thread.run_sync(queries.transcript, app.sessions, key, wanted)
    except SessionNotFound:
        if stages.of(key) is None:
            raise
        # A page that was reloaded before its first message was stored.
        shown = Transcript(key=key)
    # What the page shows and sends is for the session itself, also if it was asked for by another name.
    key = shown.key
    is_guest = caller.caller(request).is_guest
    asked = [] if is_guest else stages.questions.of(key)

    def draw() -> str:
        return transcript_page.html(
            shown,
            model=model_choice.model_of(app, shown.meta),
            query=query,
            limit=app.tokens,
            is_busy=stages.of(key) is not None,
            aside=notices(app.sessions.quarantine(key)).get(key),
            questions=asked,
            may_choose=not is_guest,
        )

    # Long messages take long to draw, and nobody else is to wait for it.
    body = await to_thread.run_sync(draw)
    beside = await _side(request, here=key)
    return layout.framed(request, shown.title or key, body, side=beside, twins=urls.to("s", key), kind="reader")


async def part(request: Request) -> Response:
    """One chunk of a transcript, or where a message is."""
    stored, key, wanted = caller.agent(request).sessions, _key(request), _wanted(request)
    if wanted.at:
        return alternates.json(_where(await to_thread.run_sync(queries.transcript, stored, key, wanted)), [])
    number, mark = _number(request.query_params, "chunk"), marker(request.query_params.get("q", ""))

    def get(view: View) -> Transcript:
        return transcript_part(view, wanted, number=number)

    def draw() -> str:
        shown = stored.read(key, get, generation=wanted.generation)
        return message_html.sections(queries.require(shown, key), mark)

    return layout.fragment(await to_thread.run_sync(draw))


async def blob(request: Request) -> Response:
    """A picture or a file of a message."""
    stored, key, n = caller.agent(request).sessions, _key(request), _number(request.query_params, "n")

    def send() -> Response:
        found = stored.read(key, lambda view: (message(view, n),), generation=_wanted(request).generation)
        (one,) = queries.require(found, key)
        if one is None:
            raise Fault("not_found", f"there is no message {n}")
        return attachments.sent(one.message, _number(request.query_params, "part"))

    return await to_thread.run_sync(send)


async def beside(request: Request) -> Response:
    """The session before or after another in the list, which may be filtered."""
    app, key, filters = caller.agent(request), _key(request), session_list.Filters.of(request.query_params)
    step = -1 if request.query_params.get("step") == "newer" else 1
    found = await to_thread.run_sync(session_list.beside, app, filters, key, step)
    return RedirectResponse(urls.to("s", found or key), status_code=303)


async def use(request: Request) -> Response:
    """What a whole session used."""
    app, key = caller.agent(request), _key(request)
    entries = await to_thread.run_sync(app.sessions.records, key)
    queries.require(entries or None, key)
    found = [entry for entry in entries if entry.kind in {"use", "sum"}]
    drawn = usage_chart.drawing(found, limit=app.tokens, base=urls.to("s", key))
    words = usage_chart.legend(found, limit=app.tokens)
    back = f'<a href="{escaped(urls.to("s", key))}">{escaped(key)}</a>'
    inside = f"<p>{back}</p>{drawn}<p>{words}</p><p>{usage_chart.KEY}</p>"
    body = f'{layout.top("Tokens")}<main class="use" id="main" tabindex="-1">{inside}</main>'
    return layout.framed(request, "Tokens", body, side=await _side(request, here=key))


async def model(request: Request) -> Response:
    """Which model answers in a session, to choose from; for the script without what is around it."""
    app, key = caller.agent(request), _key(request)
    current = await to_thread.run_sync(lambda: model_choice.model_of(app, app.sessions.get_meta(key)))
    choice = await model_choice.html(app, key, current)
    if request.query_params.get("part") == "1":
        return layout.fragment(choice)
    body = f'{layout.top("Model")}<main class="choice" id="main" tabindex="-1">{choice}</main>'
    return layout.framed(request, "Model", body, side=await _side(request, here=key))


async def sidebar(request: Request) -> Response:
    """The sessions of the sidebar, narrowed to a text, for the script."""
    text, here = request.query_params.get("text", "").strip(), request.query_params.get("here", "")
    found = await to_thread.run_sync(side_bar.read, caller.agent(request), text)
    return layout.fragment(side_bar.sessions(found, here))


async def new(request: Request) -> Response:
    """A page for a new session, which is created by the first message."""
    shown = Transcript(key=caller.new_key(request))
    may_choose = not caller.caller(request).is_guest
    body = transcript_page.html(shown, is_new=True, model=caller.agent(request).model, may_choose=may_choose)
    return layout.framed(request, "New session", body, side=await _side(request), kind="reader")


async def say(request: Request) -> Response:
    """Send a message from the form."""
    return await forms.said(request, caller.agent(request), _writable_key(request), await forms.fields(request))


async def turn(request: Request) -> Response:
    """Send a message from the script, and stream the turn."""
    return await forms.turned(request, caller.agent(request), _stages(request), _writable_key(request))


async def watch(request: Request) -> Response:
    """Stream the turn that a page has begun and that still runs."""
    return forms.watched(caller.agent(request), _stages(request), _key(request))


async def do(request: Request) -> Response:
    """Something else that a form asks for."""
    verb = request.path_params["verb"]
    if verb in _OWNERS_VERBS and caller.caller(request).is_guest:
        raise Fault("forbidden", "only the owner of this agent may do this")
    if verb == "answer":
        given = await forms.fields(request)
        _stages(request).questions.answer(_key(request), given.get("id", ""), given.get("answer", ""))
        return RedirectResponse(urls.to("s", _key(request)), status_code=303)
    if verb == "model":
        key, given = _writable_key(request), await forms.fields(request)
        return RedirectResponse(
            await model_choice.chosen(caller.agent(request), key, given.get("model", "")), status_code=303
        )
    if verb not in {*forms.ACTS, "stop"}:
        raise Fault("not_found", f"there is no action {verb!r:.40}")
    return await forms.done(caller.agent(request), verb, _writable_key(request), await forms.fields(request))


async def _twin(key: str, suffix: str, request: Request) -> Response:
    stored, wanted, n = caller.agent(request).sessions, _wanted(request), _number(request.query_params, "n")
    if n:
        return await to_thread.run_sync(alternates.of_message, stored, key, n, wanted)
    return await to_thread.run_sync(alternates.of_session, stored, key, suffix, wanted)


async def static(request: Request) -> Response:
    name = request.path_params["name"]
    if name not in {"nacre.css", "nacre.js"}:
        raise Fault("not_found", f"there is no file {name!r:.40}")
    return layout.static(name, request.query_params.get("v", ""))


async def login(request: Request) -> Response:
    """Where the token is asked for; one that stands behind the address's `#token=` is taken from there."""
    body = (
        f'<main class="login" id="main"><h1>nacre</h1><form method="post" action="{urls.page("/login")}" id="login">'
        '<label>Token <input name="token" type="password" autocomplete="current-password" required autofocus></label>'
        "<button>Open</button></form><p><code>nacre serve</code> prints it, unless you set it yourself.</p>"
        '<p role="alert" id="wrong"></p></main>'
    )
    return layout.framed(request, "Log in", body)


def _told(handler: Handler) -> Handler:
    """A handler whose errors are pages for people; programs are told in their own way."""

    async def told(request: Request) -> Response:
        urls.mount(request.state.prefix, request.scope["root_path"])
        try:
            return await handler(request)
        except NacreError as error:
            if "text/html" not in request.headers.get("accept", ""):
                raise
            fault = caller.fault_for(error, caller.caller(request))
            return layout.problem(request, fault, side=side_bar.html(request))

    return told


async def _side(request: Request, *, here: str = "", query: str = "") -> str:
    found = await to_thread.run_sync(side_bar.read, caller.agent(request))
    return side_bar.html(request, found, here=here, query=query)


def _stages(request: Request) -> Stages:
    """The turns that this application's pages have begun."""
    state = request.app.state
    if not hasattr(state, "stages"):
        state.stages = Stages(heartbeat=state.limits.heartbeat)
    found: Stages = state.stages
    return found


def _where(shown: Transcript) -> dict[str, Any]:
    query = {"tip": shown.tip, "all": int(shown.is_all)}
    return {"n": shown.anchor, "place": shown.place, "page": urls.to("s", shown.key, at=shown.anchor, **query)}


def _key(request: Request) -> str:
    """The session that is meant; a key that browsers fold away in a path stands in the query.

    Raises Fault if it is not the caller's to reach.
    """
    found: str = request.path_params["key"]
    return caller.check_key(request, request.query_params.get("key", "") + found if found in _BARE else found)


def _writable_key(request: Request) -> str:
    key = _key(request)
    api_routes.refuse_internal(key)
    return key


def _suffix(request: Request) -> str:
    suffix = request.path_params.get("suffix", "")
    if suffix not in {"", *_TWINS}:
        raise Fault("not_found", f"a page is also available as .json and .md, not as .{suffix:.20}")
    return str(suffix)


def _wanted(request: Request) -> Wanted:
    query = request.query_params
    return Wanted(
        at=_number(query, "at"),
        place=_number(query, "place"),
        tip=_number(query, "tip"),
        is_all=query.get("all", "") not in {"", "0"},
        generation=query.get("g", ""),
    )


def _number(query: Mapping[str, str], name: str) -> int:
    text = query.get(name, "")
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= _DIGITS else 0


class _Key(Convertor[str]):
    """A key in a path: whatever there is, line breaks too, which Starlette's own paths do not take."""

    regex = "(?s:.*)"

    def convert(self, value: str) -> str:
        return value

    def to_string(self, value: str) -> str:
        return urls.quoted(value)


register_url_convertor("key", _Key())
_PAGES: Mapping[str, Handler] = {
    "/": sessions,
    "/index.{suffix}": sessions,
    "/search": search,
    "/search.{suffix}": search,
    "/new": new,
    "/side": sidebar,
    "/model/{key:key}": model,
    "/login": login,
    "/s/{key:key}": session,
    "/part/{key:key}": part,
    "/turn/{key:key}": watch,
    "/use/{key:key}": use,
    "/blob/{key:key}": blob,
    "/beside/{key:key}": beside,
    "/static/{name}": static,
}
_FORMS: Mapping[str, Handler] = {"/say/{key:key}": say, "/turn/{key:key}": turn, "/do/{verb}/{key:key}": do}
routes = [
    *(Route(path, _told(page), methods=["GET"]) for path, page in _PAGES.items()),
    *(Route(path, _told(form), methods=["POST"]) for path, form in _FORMS.items()),
]
"""Every page of the agent in the application's state."""
