"""The list of sessions: filtered by its address, pinned first, then newest first, a page at a time."""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from operator import attrgetter

from msgspec import Struct
from msgspec.structs import replace

from nacre.amounts import count, size
from nacre.history.list_page import Which
from nacre.history.overview import MAX_TAGS
from nacre.keys import is_internal
from nacre.messages import SessionInfo
from nacre.render.conversation import Notice, notices
from nacre.render.html import escape
from nacre.render.text import ago, one_line
from nacre.runtime import App
from nacre.web.pages import urls
from nacre.web.pages.layout import MAX_LABEL, folder_name
from nacre.web.pages.session_usage import Tally, tallies_of

PER_PAGE = 50
STATES = {
    "live": "turn running",
    "unanswered": "waiting for an answer",
    "interrupted": "interrupted",
    "damaged": "damaged",
    "archived": "archived",
    "idle": "idle",
}
_MAX_CHIPS = 12
_MAX_COUNTED = 20_000
"""How many sessions, the newest, are counted for what the list can be narrowed to."""
_HURRY, _TIME = 0.06, 5.0
"""Seconds to count what the sessions of a page hold: at first, and when all of it is asked for."""
_FIELDS = ("channel", "prefix", "text", "state", "model", "tag", "folder")
OTHER = "-"
"""The channel of keys that have none."""
_DIGITS = 6
_FILE = re.compile(r'^<file name="([^"]*)">$')


class Filters(Struct, frozen=True, kw_only=True):
    """What a list is narrowed to; all of it is in the address. `is_full` asks for all that can be counted."""

    archived: bool = False
    channel: str = ""
    prefix: str = ""
    text: str = ""
    state: str = ""
    model: str = ""
    tag: str = ""
    folder: str = ""
    pinned: bool = False
    page: int = 1
    is_full: bool = False

    @classmethod
    def of(cls, query: Mapping[str, str]) -> Filters:
        page = query.get("page", "")
        fields = {name: query.get(name, "") for name in _FIELDS}
        fields["text"] = fields["text"].strip()
        return cls(
            **fields,
            archived=query.get("archived", "") in {"1", "true", "on"},
            pinned=query.get("pinned", "") == "1",
            page=max(int(page), 1) if page.isascii() and page.isdecimal() and len(page) <= _DIGITS else 1,
            is_full=query.get("full", "") == "1",
        )

    def address(self, path: str = "/", **changed: object) -> str:
        fields = {name: getattr(self, name) for name in _FIELDS}
        fields |= {"archived": int(self.archived), "pinned": int(self.pinned)}
        return urls.page(path, **{**fields, **changed})

    @property
    def is_deep(self) -> bool:
        """True if the list is narrowed by what a session is like."""
        return bool(self.state or self.model or self.tag or self.folder or self.pinned)


class Row(Struct, frozen=True, kw_only=True):
    """A session in the list: what the catalogue has, how it stands, and what it holds if that was counted."""

    info: SessionInfo
    state: str
    tally: Tally | None = None


class Facet(Struct, frozen=True, kw_only=True):
    """A way to narrow the list: a field of the address, and how many sessions each of its values has."""

    name: str
    field: str
    counts: Sequence[tuple[str, int]]


class Listing(Struct, frozen=True, kw_only=True):
    """A page of the list; `is_pending` if there was no time to count what every session on it holds."""

    filters: Filters
    rows: Sequence[Row]
    total: int
    facets: Sequence[Facet]
    is_pending: bool = False
    aside: Mapping[str, Notice] = {}


def read_list(app: App, filters: Filters, *, max_counted: int = _MAX_COUNTED, hurry: float = _HURRY) -> Listing:
    """Read a page of the list from the catalogue; what its sessions hold is counted as far as there is time."""
    found = _Catalogue(app, filters, max_counted=max_counted)
    chosen = found.choose()
    total = len(chosen) if found.is_narrowed else found.total
    filters = replace(filters, page=min(filters.page, max(-(-total // PER_PAGE), 1)))
    shown = chosen[(filters.page - 1) * PER_PAGE : filters.page * PER_PAGE]
    until = time.monotonic() + (_TIME if filters.is_full else hurry)
    tallies = {} if filters.archived else tallies_of(app.sessions).count(app.sessions, shown, until)
    rows = [Row(info=_shorten(info), state=found.state(info), tally=tallies.get(info.key)) for info in shown]
    is_pending = any(row.tally is None for row in rows if not row.info.archived)
    return Listing(
        filters=filters,
        rows=rows,
        total=total,
        facets=list(found.facets()),
        is_pending=is_pending,
        aside=notices(app.sessions.quarantine()),
    )


def _shorten(info: SessionInfo) -> SessionInfo:
    """A session as a row shows it; its title and its tags may have any length."""

    def fit(text: str) -> str:
        return text if len(text) <= MAX_LABEL else f"{text[: MAX_LABEL - 1]}…"

    return replace(info, title=fit(info.title), tags=tuple(map(fit, info.tags[:MAX_TAGS])), meta={})


def neighbour(app: App, filters: Filters, key: str, step: int) -> str:
    """The key of the session so many places after another in the list; "" if there is none."""
    keys = [info.key for info in _Catalogue(app, filters).choose()]
    at = keys.index(key) + step if key in keys else 0
    return keys[at] if 0 <= at < len(keys) else ""


class _Catalogue:
    """The sessions of one state of archiving that have a text, newest first: as many as are counted or shown."""

    def __init__(self, app: App, filters: Filters, *, max_counted: int = _MAX_COUNTED) -> None:
        self._kernel = app.kernel
        self._filters = filters
        self.is_narrowed = filters.is_deep or bool(filters.prefix or filters.channel)
        which: Which = "archived" if filters.archived else "active"
        limit = max(max_counted, filters.page * PER_PAGE)
        ask = partial(app.sessions.page, which=which, text=filters.text, limit=limit)
        newest = ask()
        self.total = newest.total
        self._infos = newest.items
        if newest.cursor is not None:
            # What is pinned, or asked for, may be older.
            tags = (filters.tag,) if filters.tag else ()
            prefix = filters.prefix or (f"{filters.channel}:" if filters.channel not in {"", OTHER} else "")
            wanted = ask(prefix=prefix, tags=tags, pinned=filters.pinned, folder=filters.folder or None)
            older = [*ask(pinned=True).items, *wanted.items]
            every = {(info.key, info.generation): info for info in (*self._infos, *older)}
            self._infos = sorted(every.values(), key=attrgetter("updated"), reverse=True)

    def choose(self) -> list[SessionInfo]:
        """The sessions that the filters leave, pinned ones first."""
        left = self._but("")
        return [*(info for info in left if info.pinned), *(info for info in left if not info.pinned)]

    def facets(self) -> Iterator[Facet]:
        """What can be chosen: of each kind, all that the other filters leave."""

        def facet(name: str, field: str, values: Sequence[str]) -> Facet:
            counts = Counter(value for value in values if 0 < len(value) <= MAX_LABEL)
            return Facet(name=name, field=field, counts=counts.most_common(_MAX_CHIPS))

        yield facet("Channels", "channel", [channel_of(info.key) for info in self._but("channel")])
        if self._filters.archived:
            return
        yield facet("States", "state", [self.state(info) for info in self._but("state")])
        yield facet("Models", "model", [info.model for info in self._but("model")])
        yield facet("Tags", "tag", [tag for info in self._but("tag") for tag in info.tags])
        yield facet("Folders", "folder", [info.cwd for info in self._but("folder")])

    def _but(self, field: str) -> Sequence[SessionInfo]:
        """What is left if one filter is not counted."""
        wanted = replace(self._filters, **{field: ""}) if field else self._filters
        if not self.is_narrowed:
            return self._infos
        return [
            info
            for info in self._infos
            if info.key.startswith(wanted.prefix)
            and (not wanted.channel or channel_of(info.key) == wanted.channel)
            and (not wanted.state or self.state(info) == wanted.state)
            and (not wanted.model or info.model == wanted.model)
            and (not wanted.tag or wanted.tag in info.tags)
            and (not wanted.folder or f"{info.cwd}/".startswith(f"{wanted.folder.rstrip('/')}/"))
            and (not wanted.pinned or info.pinned)
        ]

    def state(self, info: SessionInfo) -> str:
        if info.archived:
            return "archived"
        return "live" if self._kernel.is_at_work(info.key) else info.state


def html(listing: Listing) -> str:
    """The list with its filters."""
    filters, now = listing.filters, datetime.now(UTC)
    rows = "".join(_item(row, now) for row in listing.rows)
    is_narrowed = filters.text or filters.prefix or filters.channel or filters.is_deep
    if not (rows or is_narrowed or filters.archived):
        return f'<main class="list" id="main" tabindex="-1">{_asides(listing)}{_WELCOME}</main>'
    nothing = f'No session matches. <a href="{urls.page("/")}">All sessions</a>' if is_narrowed else "None."
    shown = f"<ol>{rows}</ol>" if rows else f'<p class="none">{nothing}</p>'
    page, pages = filters.page, max(-(-listing.total // PER_PAGE), 1)
    newer = f'<a href="{escape(filters.address(page=page - 1))}">&lsaquo; newer</a>' if page > 1 else ""
    older = f'<a href="{escape(filters.address(page=page + 1))}">older &rsaquo;</a>' if page < pages else ""
    words = f"{newer} <span>{page} of {pages:,}</span> {older}"
    steps = f'<nav class="pages" aria-label="Pages of the list">{words}</nav>' if pages > 1 else ""
    full = f' data-full="{escape(filters.address(page=filters.page, full=1))}"' if listing.is_pending else ""
    return (
        f'<main class="list" id="main" tabindex="-1"{full}>'
        f"{_form(filters)}{_facets(listing)}{_asides(listing)}{shown}{steps}</main>"
    )


_WELCOME = (
    '<div class="welcome"><h2>No sessions yet</h2>'
    "<p>A session is a conversation with your agent. It is one file in your store: it survives a crash, can be "
    "searched, forked and rewound, and nothing in it is lost.</p>"
    "<p>Sessions of every channel appear here: those that you begin on this page, in a terminal with "
    "<code>nacre chat</code>, over IRC, Matrix or Telegram, and over the HTTP interface.</p>"
    "<p><kbd>N</kbd> begins one, <kbd>?</kbd> lists all keys.</p></div>"
)


def _asides(listing: Listing) -> str:
    """What is in quarantine, until it is settled; also of sessions that are not on this page."""
    found = [
        f'<p class="wrong" role="status"><a href="{escape(urls.to("s", key))}">{escape(one_line(key))}</a>: '
        f"{escape(one_line(notice.text))} <code>{escape(one_line(notice.command))}</code></p>"
        for key, notice in listing.aside.items()
        if not is_internal(key)
    ]
    more = f'<p class="wrong">and {_many(len(found) - _MAX_CHIPS, "more session")}</p>'
    return "".join([*found[:_MAX_CHIPS], *([more] if len(found) > _MAX_CHIPS else [])])


def items(listing: Listing) -> list[dict[str, object]]:
    """The rows in JSON; what was not counted in time is null."""
    return [
        {
            "key": row.info.key,
            "title": row.info.title,
            "messages": row.info.messages,
            "created": row.info.created,
            "updated": row.info.updated,
            "bytes": row.info.bytes,
            "archived": row.info.archived,
            "state": row.state,
            "last": one_line(row.info.last),
            "model": row.info.model,
            "tags": row.info.tags,
            "pinned": row.info.pinned,
            "calls": row.tally.calls if row.tally else None,
            "failed": row.tally.failed if row.tally else None,
            "tokens": row.tally.given + row.tally.made if row.tally else None,
            "branches": row.tally.branches if row.tally else None,
            "quarantine": listing.aside.get(row.info.key),
        }
        for row in listing.rows
    ]


def markdown(listing: Listing) -> Iterator[str]:
    """The rows in Markdown."""
    yield f"# Sessions\n\n{listing.total:,} in all\n\n"
    for row in listing.rows:
        name = one_line(row.info.title or row.info.key).replace("]", "\\]")
        facts = f"{row.info.messages:,} messages, {row.info.updated:%Y-%m-%d %H:%M} UTC"
        last = one_line(row.info.last)
        aside = f" · {notice.text}" if (notice := listing.aside.get(row.info.key)) else ""
        yield f"- [{name}]({urls.to('s', row.info.key)}) · {facts}{aside}{f' · {last}' if last else ''}\n"


def channel_of(key: str) -> str:
    """The channel of a session, which its key begins with; keys of programs of their own may have none."""
    name, colon, _ = key.partition(":")
    return name if colon and name else OTHER


# ---- rows


def _item(row: Row, now: datetime) -> str:
    info, tally = row.info, row.tally or Tally()
    title = escape(one_line(info.title or info.key))
    key = f'<span class="key">{escape(one_line(info.key))}</span>' if info.title else ""
    who = f"<b>{escape(info.role)}</b> " if info.role else ""
    last = one_line(_FILE.sub(r"attached \1", info.last))
    pin = '<span class="pin" role="img" aria-label="pinned" title="pinned">★</span> ' if info.pinned else ""
    failed = f', <em class="wrong">{count(tally.failed)} failed</em>' if tally.failed else ""
    facts = (
        _many(info.messages, "message"),
        f"{_many(tally.calls, 'tool call')}{failed}" if tally.calls else "",
        f"{count(tally.given + tally.made)} tokens" if tally.given + tally.made else "",
        f"{tally.branches} branches" if tally.branches > 1 else "",
        size(info.bytes),
        escape(one_line(info.model)),
    )
    tags = "".join(f' <span class="tag">{escape(one_line(tag))}</span>' for tag in info.tags)
    return (
        f'<li class="row {row.state}"><a href="{escape(urls.to("s", info.key))}">'
        f'<span class="dot" role="img" aria-label="{STATES[row.state]}" title="{STATES[row.state]}"></span>'
        f'<strong dir="auto">{pin}{title}</strong> {key}'
        f'<span class="when"><time datetime="{info.updated:%Y-%m-%dT%H:%M:%SZ}">{ago(info.updated, now)}</time></span>'
        f'<span class="last" dir="auto">{who}{escape(last)}</span>'
        f'<span class="facts">{" · ".join(filter(None, facts))}{tags}</span></a></li>\n'
    )


def _many(number: int, word: str) -> str:
    return f"{count(number)} {word}{'s' * (number != 1)}"


# ---- filters


def _form(filters: Filters) -> str:
    checked = " checked" if filters.archived else ""
    kept = "".join(
        f'<input type="hidden" name="{name}" value="{escape(str(value))}">'
        for name, value in (
            *((name, getattr(filters, name)) for name in _FIELDS if name != "text"),
            ("pinned", int(filters.pinned)),
        )
        if value
    )
    return (
        f'<form class="filters" action="{urls.page("/")}" aria-label="Filters">'
        f'<input name="text" value="{escape(filters.text)}" placeholder="Title or key" '
        'aria-label="Title or key" dir="auto">'
        f'<label><input type="checkbox" name="archived" value="1"{checked}> archived</label>{kept}'
        "<button>Filter</button></form>"
    )


def _facets(listing: Listing) -> str:
    """Channels, and facets that are not needed every day, folded unless one of them is chosen."""
    filters, (channels, *facets) = listing.filters, listing.facets
    choice = ""
    if len(channels.counts) > 1 or filters.channel:
        choice = _chips(listing, channels, lambda value: "other" if value == OTHER else value)
    words: Mapping[str, Callable[[str], str]] = {"state": lambda value: STATES.get(value, value), "folder": folder_name}
    shown = [_chips(listing, one, words.get(one.field, str)) for one in facets if one.counts]
    if not shown:
        return choice
    here = ' aria-current="true"' if filters.pinned else ""
    address = escape(filters.address(pinned=0 if filters.pinned else 1))
    pinned = f'<nav class="chips" aria-label="Pins"><a href="{address}"{here}>★ pinned</a></nav>'
    state = " open" if filters.is_deep else ""
    part = " (so far)" if listing.is_pending else ""
    inside = f"<summary>State, model, tags, folders{part}</summary>{''.join(shown)}{pinned}"
    return f'{choice}<details class="more"{state}>{inside}</details>'


def _chips(listing: Listing, facet: Facet, words: Callable[[str], str]) -> str:
    """The values of a facet to choose from, all of them first."""
    field, chosen = facet.field, getattr(listing.filters, facet.field)
    counts = [("", 0), *facet.counts]
    if all(value != chosen for value, _ in counts):
        counts.append((chosen, 0))
    chips = ""
    for value, number in counts:
        here = ' aria-current="true"' if chosen == value else ""
        address = listing.filters.address(**{field: value})
        counted = f" <i>{count(number)}</i>" if number else ""
        whole = f' title="{escape(one_line(value))}"' if field == "folder" and value else ""
        name = escape(one_line(words(value) if value else "all")) or "–"
        chips += f'<a href="{escape(address)}"{here}{whole}>{name}{counted}</a>'
    return f'<nav class="chips" aria-label="{facet.name}">{chips}</nav>'
