"""The web page: every session to read, to search and to write in, drawn by the server."""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import msgspec
from anyio import to_thread
from starlette.convertors import Convertor, register_url_convertor
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response, StreamingResponse
from starlette.routing import Route

from nacre.errors import NacreError, SessionNotFound
from nacre.history import session_state
from nacre.history.transcript import Transcript, Wanted, message, outline, stretch
from nacre.history.transcript import part as transcript_part
from nacre.messages import Entry, Stored
from nacre.records import State, View
from nacre.render.conversation import Cover, Cut, notices, parts
from nacre.render.html import escape
from nacre.render.markdown_export import document
from nacre.render.text import rfc3339
from nacre.sessions import Sessions
from nacre.web import caller
from nacre.web.api import queries
from nacre.web.http_errors import Fault
from nacre.web.pages import (
    forms,
    layout,
    message_html,
    message_parts,
    search_page,
    session_list,
    session_usage,
    transcript_page,
    urls,
)
from nacre.web.pages.forms import key_in, stages_of

_ALTERNATES = ("json", "md")
_MARKDOWN = "text/markdown; charset=utf-8"
_DIGITS = 18
_encode = msgspec.json.Encoder().encode

Handler = Callable[[Request], Awaitable[Response]]


async def sessions(request: Request) -> Response:
    """The list, as a page, as JSON or as Markdown."""
    filters, suffix = session_list.Filters.of(request.query_params), _suffix(request)
    found = await to_thread.run_sync(session_list.read_list, caller.agent(request), filters)
    if suffix == "json":
        return _json({"schema_version": 1, "total": found.total}, session_list.items(found))
    if suffix == "md":
        return StreamingResponse(session_list.markdown(found), media_type=_MARKDOWN)
    new = f'<a class="button" href="{urls.page("/new")}">New session</a>'
    name = "Archived sessions" if filters.archived else "Sessions"
    title = f"{name} <i>{found.total:,}</i>" if found.total else name
    body = layout.top(title, more=new) + session_list.html(found)
    address = filters.address("/index", page=filters.page)
    return layout.page(request, "Sessions", body, side=await _side(request), alternates=address)


async def search(request: Request) -> Response:
    """What a query finds, as a page, as JSON or as Markdown."""
    query, suffix = request.query_params.get("q", "").strip(), _suffix(request)
    stored = caller.agent(request).sessions
    hits = await to_thread.run_sync(search_page.search, stored, query)
    if suffix == "json":
        return _json({"schema_version": 1, "query": query}, hits)
    if suffix == "md":
        return StreamingResponse(search_page.markdown(query, hits), media_type=_MARKDOWN)
    titles = await to_thread.run_sync(search_page.titles, stored, hits)
    body = layout.top("Search") + search_page.html(query, hits, titles)
    name = f"Search: {query}" if query else "Search"
    side = await _side(request, query=query)
    return layout.page(request, name, body, side=side, alternates=urls.page("/search", q=query))


async def session(request: Request) -> Response:
    """A transcript, or its JSON or Markdown where no session has the key with the suffix."""
    app, key, wanted = caller.agent(request), key_in(request), _parse_wanted(request)
    stem, dot, suffix = key.rpartition(".")
    if dot and suffix in _ALTERNATES and not await to_thread.run_sync(app.sessions.exists, key):
        n = _number(request.query_params, "n")
        if n:
            return await to_thread.run_sync(_send_message, app.sessions, stem, n, wanted)
        return await to_thread.run_sync(_send_session, app.sessions, stem, suffix, wanted)
    stages, query = stages_of(request), request.query_params.get("q", "")
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
            model=forms.model_of(app, shown.meta),
            query=query,
            limit=app.tokens,
            is_busy=stages.of(key) is not None,
            aside=notices(app.sessions.quarantine(key)).get(key),
            questions=asked,
            may_choose=not is_guest,
        )

    # Long messages take long to draw, and nobody else is to wait for it.
    body = await to_thread.run_sync(draw)
    side = await _side(request, here=key)
    return layout.page(request, shown.title or key, body, side=side, alternates=urls.to("s", key), kind="reader")


async def part(request: Request) -> Response:
    """One chunk of a transcript, or where a message is."""
    stored, key, wanted = caller.agent(request).sessions, key_in(request), _parse_wanted(request)
    if wanted.at:
        shown = await to_thread.run_sync(queries.transcript, stored, key, wanted)
        query = {"tip": shown.tip, "all": int(shown.is_all)}
        page = urls.to("s", shown.key, at=shown.anchor, **query)
        return _json({"n": shown.anchor, "place": shown.place, "page": page}, [])
    number, mark = _number(request.query_params, "chunk"), message_html.marker(request.query_params.get("q", ""))

    def draw() -> str:
        found = stored.read(key, partial(transcript_part, wanted=wanted, number=number), generation=wanted.generation)
        return message_html.sections(queries.require(found, key), mark)

    return layout.fragment(await to_thread.run_sync(draw))


async def blob(request: Request) -> Response:
    """A picture or a file of a message."""
    stored, key, n = caller.agent(request).sessions, key_in(request), _number(request.query_params, "n")

    def send() -> Response:
        found = stored.read(key, lambda view: (message(view, n),), generation=_parse_wanted(request).generation)
        (one,) = queries.require(found, key)
        if one is None:
            raise Fault("not_found", f"there is no message {n}")
        return message_parts.send_attachment(one.message, _number(request.query_params, "part"))

    return await to_thread.run_sync(send)


async def neighbour(request: Request) -> Response:
    """The session before or after another in the list, which may be filtered."""
    app, key, filters = caller.agent(request), key_in(request), session_list.Filters.of(request.query_params)
    step = -1 if request.query_params.get("step") == "newer" else 1
    found = await to_thread.run_sync(session_list.neighbour, app, filters, key, step)
    return RedirectResponse(urls.to("s", found or key), status_code=303)


async def use(request: Request) -> Response:
    """What a whole session used."""
    app, key = caller.agent(request), key_in(request)

    def read() -> list[Entry] | None:
        if not app.sessions.exists(key):
            return None
        return [entry for entry in app.sessions.records(key) if entry.kind in {"use", "sum"}]

    found = queries.require(await to_thread.run_sync(read), key)
    drawn = session_usage.drawing(found, limit=app.tokens, base=urls.to("s", key))
    words = session_usage.legend(found, limit=app.tokens)
    back = f'<a href="{escape(urls.to("s", key))}">{escape(key)}</a>'
    inside = f"<p>{back}</p>{drawn}<p>{words}</p><p>{session_usage.KEY}</p>"
    body = f'{layout.top("Tokens")}<main class="use" id="main" tabindex="-1">{inside}</main>'
    return layout.page(request, "Tokens", body, side=await _side(request, here=key))


async def model(request: Request) -> Response:
    """Which model answers in a session, to choose from; for the script without what is around it."""
    app, key = caller.agent(request), key_in(request)
    current = await to_thread.run_sync(lambda: forms.model_of(app, app.sessions.get_meta(key)))
    choice = await forms.model_form(app, key, current)
    if request.query_params.get("part") == "1":
        return layout.fragment(choice)
    body = f'{layout.top("Model")}<main class="choice" id="main" tabindex="-1">{choice}</main>'
    return layout.page(request, "Model", body, side=await _side(request, here=key))


async def sidebar(request: Request) -> Response:
    """The sessions of the sidebar, narrowed to a text, for the script."""
    text, here = request.query_params.get("text", "").strip(), request.query_params.get("here", "")
    found = await to_thread.run_sync(layout.read_side, caller.agent(request), text)
    return layout.fragment(layout.side_sessions(found, here))


async def new(request: Request) -> Response:
    """A page for a new session, which is created by the first message."""
    who, id = caller.caller(request), secrets.token_hex(4)
    shown = Transcript(key=who.key(session=id) if who.account else f"web:{id}")
    body = transcript_page.html(shown, is_new=True, model=caller.agent(request).model, may_choose=not who.is_guest)
    return layout.page(request, "New session", body, side=await _side(request), kind="reader")


async def login(request: Request) -> Response:
    """Where the token is asked for; one that follows `#token=` in the address is taken from there."""
    body = (
        f'<main class="login" id="main"><h1>nacre</h1><form method="post" action="{urls.page("/login")}" id="login">'
        '<label>Token <input name="token" type="password" autocomplete="current-password" required autofocus></label>'
        "<button>Open</button></form><p><code>nacre serve</code> prints it, unless you set it yourself.</p>"
        '<p role="alert" id="wrong"></p></main>'
    )
    return layout.page(request, "Log in", body)


async def _answer(handler: Handler, request: Request) -> Response:
    """Have a request answered: addresses are below the prefix, and errors are pages for people."""
    urls.mount(request.state.prefix, request.scope["root_path"])
    try:
        return await handler(request)
    except NacreError as error:
        if "text/html" not in request.headers.get("accept", ""):
            raise
        fault = caller.fault_for(error, caller.caller(request))
        return layout.problem(request, fault, side=layout.side_html(request))


async def _side(request: Request, *, here: str = "", query: str = "") -> str:
    found = await to_thread.run_sync(layout.read_side, caller.agent(request))
    return layout.side_html(request, found, here=here, query=query)


def _suffix(request: Request) -> str:
    suffix = request.path_params.get("suffix", "")
    if suffix not in {"", *_ALTERNATES}:
        raise Fault("not_found", f"a page is also available as .json and .md, not as .{suffix:.20}")
    return str(suffix)


def _parse_wanted(request: Request) -> Wanted:
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


# ---- the same pages for programs and for editors


def _json(head: dict[str, Any], items: Sequence[Any]) -> Response:
    """A listing as JSON."""
    return Response(_encode({**head, "count": len(items), "items": items}), media_type="application/json")


def _send_session(sessions: Sessions, key: str, suffix: str, wanted: Wanted) -> Response:
    """A whole branch of a session, as it is now; it is read and sent a few messages at a time."""
    found = sessions.read(key, lambda view: outline(view, wanted), generation=wanted.generation)
    shown, state = queries.require(found, key)
    stored = _messages(sessions, shown, state)
    summary = shown.bars[0].text if shown.bars else ""
    if suffix == "md":
        # Before any is read: messages that are lost are counted, too.
        cover = Cover(key=shown.key, title=shown.title, messages=max(shown.high - shown.low + 1, 0))
        text = "" if shown.tip else summary
        cut = Cut(summary=text, hidden=shown.hidden) if shown.hidden and not shown.is_all else None
        return StreamingResponse(document(cover, parts(stored, cut=cut)), media_type=_MARKDOWN)

    def pieces() -> Iterator[bytes]:
        head = {
            "schema_version": 1,
            "key": shown.key,
            "title": shown.title,
            "generation": shown.generation,
            "n": shown.n,
            "summary": summary,
            "hidden": shown.hidden,
        }
        yield _encode(head)[:-1] + b',"items":['
        count = 0
        for count, one in enumerate(stored, 1):
            yield (b",\n" if count > 1 else b"\n") + _encode(_item(one))
        yield b'],"count":%d}\n' % count

    return StreamingResponse(pieces(), media_type="application/json")


def _messages(sessions: Sessions, shown: Transcript, state: State) -> Iterator[Stored]:
    """The messages of a branch, which stays the same whatever is added to the session meanwhile.

    It breaks off if the session is deleted or cannot be read.
    """
    place = shown.low
    while place <= state.i:
        read = partial(stretch, state=state, first=place, max_bytes=queries.MAX_PAGE_BYTES)
        found = sessions.read(shown.key, read, generation=shown.generation)
        place, stored = queries.require(found, shown.key)
        yield from stored


def _send_message(sessions: Sessions, key: str, n: int, wanted: Wanted) -> Response:
    """One message as it is stored."""

    def get(view: View) -> tuple[str, object, Stored | None]:
        return view.key, session_state.meta(view, view.state).get("title", ""), message(view, n)

    own, title, found = queries.require(sessions.read(key, get, generation=wanted.generation), key)
    head = {"schema_version": 1, "key": own, "title": title if isinstance(title, str) else ""}
    return _json(head, [_item(found)] if found is not None else [])


def _item(one: Stored) -> dict[str, Any]:
    ts = rfc3339(one.ts)
    return {"generation": one.generation, "n": one.n, "ts": ts, "message": one.message.to_mapping()}


# ---- all of them


class _Key(Convertor[str]):
    """A key in a path: whatever there is, line breaks too, which Starlette's own paths do not take."""

    regex = "(?s:.*)"

    def convert(self, value: str) -> str:
        return value

    def to_string(self, value: str) -> str:
        return urls.segment(value)


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
    "/turn/{key:key}": forms.watch,
    "/use/{key:key}": use,
    "/blob/{key:key}": blob,
    "/beside/{key:key}": neighbour,
    "/static/{name}": layout.static,
}
_FORMS: Mapping[str, Handler] = {
    "/say/{key:key}": forms.say,
    "/turn/{key:key}": forms.turn,
    "/do/{verb}/{key:key}": forms.do,
}
routes = [
    *(Route(path, partial(_answer, page), methods=["GET"]) for path, page in _PAGES.items()),
    *(Route(path, partial(_answer, form), methods=["POST"]) for path, form in _FORMS.items()),
]
"""Every page of the agent in the application's state."""
