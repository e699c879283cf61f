"""The sidebar of every page: a search, pinned and recent sessions, and the tags and folders that they have."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import datetime
from itertools import groupby
from pathlib import PurePath

from msgspec import Struct
from starlette.requests import Request

from nacre.config import MAIN
from nacre.messages import SessionInfo
from nacre.render.html import escaped
from nacre.render.text import clip, one_line
from nacre.runtime import App
from nacre.web.caller import caller
from nacre.web.pages import urls

_MOST_SHOWN, _MOST_READ, _MOST_PINNED, _MOST_LABELS = 60, 200, 30, 8
_LONGEST = 80
CURRENT = ' aria-current="page"'


class Side(Struct, frozen=True, kw_only=True):
    """What a sidebar shows; `text` is what its sessions were narrowed to, `live` the keys with a running turn."""

    pinned: Sequence[SessionInfo] = ()
    recent: Sequence[SessionInfo] = ()
    tags: Sequence[str] = ()
    folders: Sequence[str] = ()
    live: frozenset[str] = frozenset()
    total: int = 0
    text: str = ""


def read(app: App, text: str = "") -> Side:
    """Read the newest sessions and the pinned ones; tags and folders are those of the newest."""
    newest = app.sessions.page(text=text, limit=_MOST_READ)
    pinned = app.sessions.page(text=text, pinned=True, limit=_MOST_PINNED).items
    recent = [info for info in newest.items if not info.pinned][:_MOST_SHOWN]
    return Side(
        pinned=pinned,
        recent=recent,
        tags=_most_common(tag for info in newest.items for tag in info.tags),
        folders=_most_common(info.cwd for info in newest.items if info.cwd),
        live=frozenset(info.key for info in (*pinned, *recent) if app.kernel.is_at_work(info.key)),
        total=newest.total,
        text=text,
    )


def html(request: Request, side: Side | None = None, *, here: str = "", query: str = "") -> str:
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
        f'<input type="search" name="q" value="{escaped(query)}" placeholder="Search" autocomplete="off" dir="auto" '
        'aria-label="Search all sessions" title="Search all sessions (/)"></form>'
        f'<div id="recent" data-side="{escaped(urls.page("/side"))}">{sessions(side, here)}</div>'
        f'<div class="side-foot">{agents}'
        f'<a href="{urls.page("/")}">All sessions</a>'
        f'<button type="button" class="plain" data-act="theme" hidden title="Dark or light (T)" '
        f'aria-label="Dark or light">{icon("theme")}</button>'
        f'<button type="button" class="plain" data-act="help" hidden title="Keys (?)" aria-label="Keyboard help">'
        f"{icon('keys')}</button></div></nav>\n"
    )


def sessions(side: Side | None, here: str = "") -> str:
    """The sessions of a sidebar, pinned ones first, the others by age."""
    if side is None:
        return ""
    if not (side.pinned or side.recent):
        words = f"No title or key has “{escaped(one_line(side.text))}”." if side.text else "Nothing here yet."
        return f'<p class="none">{words}{_search(side)}</p>'
    today = datetime.now().astimezone()
    ages = groupby(side.recent, lambda info: _age(info.updated, today))
    groups = [*([("Pinned", list(side.pinned))] if side.pinned else []), *((age, list(many)) for age, many in ages)]
    drawn = "".join(f"<h2>{name}</h2><ul>{''.join(_rows(many, side, here))}</ul>" for name, many in groups)
    more = side.total - len(side.pinned) - len(side.recent)
    rest = f'<p><a href="{escaped(urls.page("/", text=side.text))}">{more:,} more</a></p>' if more > 0 else ""
    return f"{_search(side)}{drawn}{rest}{'' if side.text else _labels(side)}"


def _rows(many: Sequence[SessionInfo], side: Side, here: str) -> Iterator[str]:
    for info in many:
        current = CURRENT if info.key == here else ""
        live = '<span class="dot" role="img" aria-label="turn running" title="turn running"></span>'
        yield (
            f'<li><a href="{escaped(urls.to("s", info.key))}"{current} dir="auto">'
            f"{live if info.key in side.live else ''}{escaped(name_of(info))}</a></li>"
        )


def name_of(info: SessionInfo) -> str:
    """What a session is called in one line."""
    return clip(one_line(info.title or info.key), _LONGEST)


def folder_name(path: str) -> str:
    """The last part of a folder's path."""
    return PurePath(path).name or path


def _search(side: Side) -> str:
    """Titles and keys are only a part of it: the way to all messages with these words."""
    if not side.text:
        return ""
    words = escaped(clip(one_line(side.text), _LONGEST))
    return f'<p><a href="{escaped(urls.page("/search", q=side.text))}">Search messages for “{words}”</a></p>'


def _labels(side: Side) -> str:
    tags = [(urls.page("/", tag=tag), one_line(tag), tag) for tag in side.tags]
    folders = [(urls.page("/", folder=path), one_line(folder_name(path)), path) for path in side.folders]
    return "".join(
        f'<h2>{name}</h2><div class="chips">{"".join(_label(*label) for label in many)}</div>'
        for name, many in (("Tags", tags), ("Folders", folders))
        if many
    )


def _label(address: str, words: str, title: str) -> str:
    return f'<a href="{escaped(address)}" title="{escaped(one_line(title))}">{escaped(words)}</a>'


def _most_common(values: Iterator[str]) -> list[str]:
    return [value for value, _ in Counter(values).most_common(_MOST_LABELS)]


def _age(moment: datetime, now: datetime) -> str:
    days = (now.date() - moment.astimezone(now.tzinfo).date()).days
    if days <= 1:
        return "Yesterday" if days == 1 else "Today"
    return "Last 7 days" if days <= 7 else "Last 30 days" if days <= 30 else "Older"  # noqa: PLR2004 - as they say


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
    """A small drawing; what it means is said beside it."""
    return f'<svg class="icon" viewBox="0 0 24 24" aria-hidden="true"><path d="{_ICONS[name]}"/></svg>'
