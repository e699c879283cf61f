"""What is around every page: its head, the bar on top, the sidebar, the help, and the two files that it loads."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from functools import cache
from hashlib import blake2b
from importlib.resources import files
from itertools import groupby
from pathlib import PurePath

from msgspec import Struct
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from nacre.config import MAIN
from nacre.messages import SessionInfo
from nacre.render import html_page
from nacre.render.html import escape
from nacre.render.text import clip, one_line
from nacre.runtime import App
from nacre.web.caller import caller
from nacre.web.http_errors import Fault
from nacre.web.pages import urls

MAX_LABEL = 200
"""Characters of a title or a tag that are shown; longer tags and folders are not offered to choose from."""

_TYPES = {"nacre.css": "text/css", "nacre.js": "text/javascript"}
# With `no-referrer` a browser says `Origin: null` even for our own forms, and they would be refused.
_HEADERS = {"referrer-policy": "same-origin"}
_THEMES = ("dark", "light")
_ICONS = {
    "side": "M4 5h16v14H4zM10 5v14",
    "menu": "M4 7h16M4 12h16M4 17h16",
    "plus": "M12 5v14M5 12h14",
    "theme": "M12 4a8 8 0 1 0 0 16zM12 4a8 8 0 0 1 0 16",
    "keys": "M9.5 9.5a2.5 2.5 0 1 1 3.6 2.2c-.8.4-1.1.9-1.1 1.8M12 17h.01",
    "more": "M5 11.5v1M12 11.5v1M19 11.5v1",
    "clip": "M20 11.5l-7.6 7.6a5 5 0 0 1-7-7l8-8a3.3 3.3 0 0 1 4.7 4.7l-8 8a1.7 1.7 0 0 1-2.4-2.4l7.2-7.2",
}


def icon(name: str) -> str:
    """A small drawing; what it means is said next to it."""
    return f'<svg class="icon" viewBox="0 0 24 24" aria-hidden="true"><path d="{_ICONS[name]}"/></svg>'


def page(  # noqa: PLR0913 - what a page is made of
    request: Request, title: str, body: str, *, side: str = "", status: int = 200, alternates: str = "", kind: str = ""
) -> Response:
    """A whole page next to its sidebar; `alternates` is its address without a suffix, for its Markdown and JSON."""
    # What a person has chosen for all pages: dark or light, with a sidebar or without.
    theme = request.cookies.get("theme", "")
    chosen = f' data-theme="{theme}"' if theme in _THEMES else ""
    chosen += ' data-side="closed"' if request.cookies.get("side", "") == "closed" else ""
    style, script = (urls.page(f"/static/{name}", v=_file(name)[1]) for name in ("nacre.css", "nacre.js"))
    # What the policy of this response lets load files by.
    nonce = escape(getattr(request.state, "nonce", ""))
    path, mark, query = alternates.partition("?")
    links = "".join(
        f'<link rel="alternate" type="{media}" href="{escape(f"{path}.{suffix}{mark}{query}")}">\n'
        for suffix, media in (("json", "application/json"), ("md", "text/markdown"))
        if alternates
    )
    html = (
        f'<!doctype html>\n<html lang="en" data-base="{urls.base()}" data-prefix="{urls.prefix()}"'
        f"{chosen}>\n<head>\n"
        '<meta charset="utf-8">\n<meta name="viewport" content="width=device-width,initial-scale=1">\n'
        f"<title>{escape(clip(one_line(title), MAX_LABEL))} · nacre</title>\n"
        f'<link rel="stylesheet" href="{style}" nonce="{nonce}">\n'
        f'<script src="{script}" nonce="{nonce}" defer></script>\n{links}'
        f'<link rel="icon" href="data:,">\n</head>\n<body class="{kind}">\n'
        f'{_SKIP if side else ""}{side}<div class="page">{body}</div>\n{_help()}</body>\n</html>\n'
    )
    return HTMLResponse(html, status_code=status, headers=_HEADERS)


_SKIP = '<a class="skip" href="#main">Skip to the content</a>\n'


def problem(request: Request, fault: Fault, *, side: str = "") -> Response:
    """What went wrong, for people."""
    urls.mount(request.state.prefix, request.scope["root_path"])
    found = fault.to_problem()
    back = f'<p><a class="button" href="{urls.page("/")}">All sessions</a></p>'
    inside = f'<p role="alert">{escape(found.detail)}</p>{back}'
    body = f'{top(found.title, has_side=bool(side))}<main class="problem" id="main" tabindex="-1">{inside}</main>'
    answer = page(request, found.title, body, side=side, status=found.status)
    answer.headers.update(fault.headers)
    return answer


def fragment(html: str) -> Response:
    """A piece of a page, for its script."""
    return HTMLResponse(html, headers=_HEADERS)


def top(title: str, *, more: str = "", has_side: bool = True) -> str:
    """The bar on top: the way to the sidebar, what the page is, and what can be done; `title` and `more` are HTML."""
    return f'<header class="top">{_TO_SIDE if has_side else ""}<h1 dir="auto">{title}</h1>{more}</header>'


_TO_SIDE = (
    '<button type="button" class="plain narrow" popovertarget="side" aria-label="Sessions" title="Sessions">'
    f"{icon('menu')}</button>"
    '<button type="button" class="plain wide" data-act="side" title="Show the sidebar (s)" '
    f'aria-label="Show the sidebar">{icon("menu")}</button>'
)


async def static(request: Request) -> Response:
    """One of the two files; under the version that it has it never changes."""
    name = request.path_params["name"]
    if name not in _TYPES:
        raise Fault("not_found", f"there is no file {name!r:.40}")
    text, current = _file(name)
    age = "public, max-age=31536000, immutable" if request.query_params.get("v", "") == current else "no-cache"
    return Response(text, media_type=_TYPES[name], headers={"cache-control": age})


@cache
def _file(name: str) -> tuple[str, str]:
    """A file's text and its version."""
    text = (files("nacre.web") / "static" / name).read_text("utf-8")
    text = html_page.style() + text if name.endswith(".css") else text
    return text, blake2b(text.encode(), digest_size=8).hexdigest()


_KEYS = {
    "Everywhere": {
        "N": "new session",
        "/": "search",
        "s": "show or hide the sidebar",
        "l": "the list of all sessions",
        "T": "dark or light",
        "?": "this list",
    },
    "Moving": {
        "j k": "next, previous message, session or match; ↓ ↑ in lists",
        "n p": "next, previous prompt",
        "g G": "first, last message",
        "[ ]": "newer, older session",
        "b B": "previous, next branch",
        "f": "follow new messages",
    },
    "The message that is marked": {
        "e E": "fold or unfold one, all",
        "c": "copy it",
        "y": "copy a link to it",
        "r": "show it as it is stored",
        "u": "edit your message: another branch",
        "R": "answer again: another branch",
    },
    "Writing": {
        "i": "write a message",
        "Enter": "send; Shift Enter begins a line",
        "a": "attach files",
        "m": "choose the model",
        ".": "stop the answer",
        "t": "title, tags and more",
        "*": "pin the session",
    },
    "A tool that asks": {"Alt Y": "yes", "Alt N": "no", "Alt A": "always in this session"},
}


def _help() -> str:
    groups = ""
    for title, keys in _KEYS.items():
        rows = "".join(
            f"<dt>{' '.join(f'<kbd>{escape(key)}</kbd>' for key in names.split())}</dt><dd>{what}</dd>"
            for names, what in keys.items()
        )
        groups += f"<section><h3>{title}</h3><dl>{rows}</dl></section>"
    return (
        f'<dialog id="help" aria-label="Keys"><h2>Keys</h2><div class="keys">{groups}</div>'
        '<form method="dialog"><button>Close</button></form>'
        f'<form method="post" action="{urls.page("/logout")}"><button>Log out</button></form></dialog>\n'
    )


# ---- the sidebar

_MAX_SHOWN, _MAX_READ, _MAX_PINNED, _MAX_LABELS = 60, 200, 30, 8
_MAX_NAME = 80
CURRENT = ' aria-current="page"'
_LIVE = '<span class="dot" role="img" aria-label="turn running" title="turn running"></span>'


class Side(Struct, frozen=True, kw_only=True):
    """What a sidebar shows; `text` is what its sessions were narrowed to, `live` the keys with a running turn."""

    pinned: Sequence[SessionInfo] = ()
    recent: Sequence[SessionInfo] = ()
    tags: Sequence[str] = ()
    folders: Sequence[str] = ()
    live: frozenset[str] = frozenset()
    total: int = 0
    text: str = ""


def read_side(app: App, text: str = "") -> Side:
    """Read the newest sessions and the pinned ones; tags and folders are those of the newest."""
    newest = app.sessions.page(text=text, limit=_MAX_READ)
    pinned = app.sessions.page(text=text, pinned=True, limit=_MAX_PINNED).items
    recent = [info for info in newest.items if not info.pinned][:_MAX_SHOWN]
    tags = Counter(tag for info in newest.items for tag in info.tags if len(tag) <= MAX_LABEL)
    folders = Counter(info.cwd for info in newest.items if 0 < len(info.cwd) <= MAX_LABEL)
    return Side(
        pinned=pinned,
        recent=recent,
        tags=[tag for tag, _ in tags.most_common(_MAX_LABELS)],
        folders=[path for path, _ in folders.most_common(_MAX_LABELS)],
        live=frozenset(info.key for info in (*pinned, *recent) if app.kernel.is_at_work(info.key)),
        total=newest.total,
        text=text,
    )


def side_html(request: Request, side: Side | None = None, *, here: str = "", query: str = "") -> str:
    """The sidebar; without sessions where they cannot be read. `here` is the session that the page shows."""
    # The way to the other agents, if there are any; a guest has one.
    names: list[str] = [] if caller(request).is_guest else request.app.state.sites.names
    links = "".join(
        f'<a href="{urls.prefix()}{"/" if name == MAIN else f"{urls.AGENTS}{name}/"}"'
        f"{CURRENT if name == request.app.state.agent.name else ''}>{name}</a> "
        for name in names
    )
    agents = f'<nav class="agents" aria-label="Agents">{links}</nav>' if len(names) > 1 else ""
    return (
        '<nav id="side" popover aria-label="Sessions"><div class="side-head">'
        f'<a class="home" href="{urls.page("/")}">nacre</a>'
        '<button type="button" class="plain" data-act="side" hidden title="Hide the sidebar (s)" '
        f'aria-label="Hide the sidebar">{icon("side")}</button></div>'
        f'<a class="button new" href="{urls.page("/new")}" title="New session (N)">{icon("plus")} New session</a>'
        f'<form role="search" action="{urls.page("/search")}">'
        f'<input type="search" name="q" value="{escape(query)}" placeholder="Search" autocomplete="off" dir="auto" '
        'aria-label="Search all sessions" title="Search all sessions (/)"></form>'
        f'<div id="recent" data-side="{escape(urls.page("/side"))}">{side_sessions(side, here)}</div>'
        f'<div class="side-foot">{agents}'
        f'<a href="{urls.page("/")}">All sessions</a>'
        f'<button type="button" class="plain" data-act="theme" hidden title="Dark or light (T)" '
        f'aria-label="Dark or light">{icon("theme")}</button>'
        f'<button type="button" class="plain" data-act="help" hidden title="Keys (?)" aria-label="Keyboard help">'
        f"{icon('keys')}</button></div></nav>\n"
    )


def side_sessions(side: Side | None, here: str = "") -> str:
    """The sessions of a sidebar, pinned ones first, the others by age."""
    if side is None:
        return ""
    search = ""
    if side.text:
        # Titles and keys are only a part of it: the way to all messages with these words.
        words = escape(clip(one_line(side.text), _MAX_NAME))
        address = escape(urls.page("/search", q=side.text))
        search = f'<p><a href="{address}">Search messages for “{words}”</a></p>'
    if not (side.pinned or side.recent):
        nothing = f"No title or key has “{escape(one_line(side.text))}”." if side.text else "Nothing here yet."
        return f'<p class="none">{nothing}{search}</p>'
    today = datetime.now().astimezone()
    groups = [("Pinned", list(side.pinned))] if side.pinned else []
    groups += [(age, list(many)) for age, many in groupby(side.recent, lambda info: _age(info.updated, today))]
    drawn = ""
    for title, infos in groups:
        drawn += f"<h2>{title}</h2><ul>"
        for info in infos:
            live = _LIVE if info.key in side.live else ""
            name = escape(clip(one_line(info.title or info.key), _MAX_NAME))
            current = CURRENT if info.key == here else ""
            drawn += f'<li><a href="{escape(urls.to("s", info.key))}"{current} dir="auto">{live}{name}</a></li>'
        drawn += "</ul>"
    more = side.total - len(side.pinned) - len(side.recent)
    rest = f'<p><a href="{escape(urls.page("/", text=side.text))}">{more:,} more</a></p>' if more > 0 else ""
    if side.text:
        return f"{search}{drawn}{rest}"
    tags = [(urls.page("/", tag=tag), tag, tag) for tag in side.tags]
    folders = [(urls.page("/", folder=path), folder_name(path), path) for path in side.folders]
    labels = ""
    for name, many in (("Tags", tags), ("Folders", folders)):
        chips = "".join(
            f'<a href="{escape(address)}" title="{escape(one_line(title))}">{escape(one_line(words))}</a>'
            for address, words, title in many
        )
        labels += f'<h2>{name}</h2><div class="chips">{chips}</div>' if many else ""
    return f"{drawn}{rest}{labels}"


def _age(moment: datetime, now: datetime) -> str:
    days = (now.date() - moment.astimezone(now.tzinfo).date()).days
    if days <= 1:
        return "Yesterday" if days == 1 else "Today"
    return "Last 7 days" if days <= 7 else "Last 30 days" if days <= 30 else "Older"  # noqa: PLR2004 - as they say


def folder_name(path: str) -> str:
    """The last part of a folder's path."""
    return PurePath(path).name or path
