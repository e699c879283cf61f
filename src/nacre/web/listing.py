"""The list of sessions: filtered by its address, newest first, a page at a time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime

from msgspec import Struct

from nacre.app import App
from nacre.entries import Message, SessionInfo
from nacre.errors import StoreError
from nacre.render.conversation import text_of
from nacre.render.html import escaped
from nacre.render.text import ago, clip, count, one_line, size
from nacre.sessions import Sessions
from nacre.web import links

PER_PAGE = 50
_LONGEST = 160
_MOST_CHANNELS = 12


class Filters(Struct, frozen=True, kw_only=True):
    """What a list is narrowed to; all of it is in the address."""

    archived: bool = False
    prefix: str = ""
    text: str = ""
    page: int = 1

    @classmethod
    def of(cls, query: Mapping[str, str]) -> Filters:
        page = query.get("page", "")
        return cls(
            archived=query.get("archived", "") in {"1", "true", "on"},
            prefix=query.get("prefix", ""),
            text=query.get("text", "").strip(),
            page=max(int(page), 1) if page.isascii() and page.isdecimal() and len(page) < 7 else 1,  # noqa: PLR2004
        )

    def address(self, path: str = "/", **changed: object) -> str:
        fields = {"archived": int(self.archived), "prefix": self.prefix, "text": self.text, **changed}
        return links.page(path, **fields)


class Row(Struct, frozen=True, kw_only=True):
    """A session in the list: what is known of it, the last words in it, and how it stands."""

    info: SessionInfo
    last: str = ""
    role: str = ""
    model: str = ""
    state: str = "idle"


class Listing(Struct, frozen=True, kw_only=True):
    """A page of the list; `channels` counts sessions by the first part of their keys."""

    filters: Filters
    rows: Sequence[Row]
    total: int
    channels: Sequence[tuple[str, int]]


def listed(app: App, filters: Filters) -> Listing:
    """Read a page of the list; only its own rows are looked into."""
    every = list(app.sessions.list(archived=filters.archived))
    counted = Counter(_channel(info.key) for info in every)
    chosen = [info for info in every if info.key.startswith(filters.prefix) and _has(info, filters.text)]
    chosen.sort(key=lambda info: info.updated, reverse=True)
    shown = chosen[(filters.page - 1) * PER_PAGE : filters.page * PER_PAGE]
    return Listing(
        filters=filters,
        rows=[_row(app, info) for info in shown],
        total=len(chosen),
        channels=counted.most_common(_MOST_CHANNELS),
    )


def html(listing: Listing) -> str:
    """The list with its filters."""
    filters, now = listing.filters, datetime.now(UTC)
    rows = "".join(_item(row, now) for row in listing.rows)
    nothing = "No session matches." if filters.text or filters.prefix else "No sessions yet."
    title = "Archived sessions" if filters.archived else "Sessions"
    shown = f"<ol>{rows}</ol>" if rows else f'<p class="none">{nothing}</p>'
    return (
        f'<main class="list"><div class="head"><h1>{title}</h1><a class="button" href="/new">New session</a></div>'
        f"{_form(filters)}{_channels(listing)}{shown}{_pages(listing)}</main>"
    )


def items(listing: Listing) -> list[dict[str, object]]:
    """The rows as their twin in JSON has them."""
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
            "last": row.last,
        }
        for row in listing.rows
    ]


def markdown(listing: Listing) -> Iterator[str]:
    """The rows as their twin in Markdown has them."""
    yield f"# Sessions\n\n{listing.total:,} in all\n\n"
    for row in listing.rows:
        name = one_line(row.info.title or row.info.key).replace("]", "\\]")
        facts = f"{row.info.messages:,} messages, {row.info.updated:%Y-%m-%d %H:%M} UTC"
        yield f"- [{name}]({links.to('s', row.info.key)}) · {facts}{f' · {row.last}' if row.last else ''}\n"


def _row(app: App, info: SessionInfo) -> Row:
    try:
        # Of an archived key that was begun anew the newest life is read, which is another.
        last = None if info.archived else _last(app.sessions, info.key)
    except StoreError:
        return Row(info=info, state="damaged")
    if last is None:
        return Row(info=info, state="archived" if info.archived else "idle")
    text, others = text_of(last.content)
    words = clip(one_line(text) or one_line(" ".join(others)) or _calls(last), _LONGEST)
    return Row(info=info, last=words, role=last.role, model=last.model or "", state=_state(app, info.key, last))


def _last(sessions: Sessions, key: str) -> Message | None:
    found = sessions.get_history(key, last=1)
    return found[0] if found else None


def _calls(message: Message) -> str:
    return ", ".join(one_line(call.name) for call in message.tool_calls)


def _state(app: App, key: str, last: Message) -> str:
    if app.kernel.is_at_work(key):
        return "live"
    if last.tool_calls or last.role == "tool":
        return "interrupted"
    return "unanswered" if last.role == "user" else "idle"


def _channel(key: str) -> str:
    name, colon, _ = key.partition(":")
    return name + colon


def _has(info: SessionInfo, text: str) -> bool:
    wanted = text.casefold()
    return not wanted or wanted in info.key.casefold() or wanted in info.title.casefold()


def _item(row: Row, now: datetime) -> str:
    info = row.info
    title = escaped(one_line(info.title or info.key))
    key = f'<span class="key">{escaped(one_line(info.key))}</span>' if info.title else ""
    facts = [
        f"{count(info.messages)} message{'s' * (info.messages != 1)}",
        size(info.bytes),
        *([escaped(one_line(row.model))] if row.model else ()),
    ]
    who = f"<b>{escaped(row.role)}</b> " if row.role else ""
    return (
        f'<li class="row {row.state}"><a href="{escaped(links.to("s", info.key))}">'
        f'<span class="dot" role="img" aria-label="{row.state}" title="{row.state}"></span>'
        f"<strong>{title}</strong> {key}"
        f'<span class="when"><time datetime="{info.updated:%Y-%m-%dT%H:%M:%SZ}">{ago(info.updated, now)}</time></span>'
        f'<span class="last">{who}{escaped(row.last)}</span>'
        f'<span class="facts">{" · ".join(facts)}</span></a></li>\n'
    )


def _form(filters: Filters) -> str:
    checked = " checked" if filters.archived else ""
    return (
        '<form class="filters" action="/" aria-label="Filters">'
        f'<input name="text" value="{escaped(filters.text)}" placeholder="Title or key" aria-label="Title or key">'
        f'<input name="prefix" value="{escaped(filters.prefix)}" placeholder="Key begins with" '
        'aria-label="Key begins with">'
        f'<label><input type="checkbox" name="archived" value="1"{checked}> archived</label>'
        "<button>Filter</button></form>"
    )


def _channels(listing: Listing) -> str:
    if len(listing.channels) < 2:  # noqa: PLR2004 - one is no choice
        return ""
    chips = [("", "all", sum(number for _, number in listing.channels))]
    chips += [(name, name.rstrip(":"), number) for name, number in listing.channels]
    return f'<nav class="chips" aria-label="Channels">{"".join(_chip(listing, *chip) for chip in chips)}</nav>'


def _chip(listing: Listing, prefix: str, name: str, number: int) -> str:
    here = ' aria-current="true"' if listing.filters.prefix == prefix else ""
    address = listing.filters.address(prefix=prefix)
    return f'<a href="{escaped(address)}"{here}>{escaped(one_line(name)) or "–"} <i>{count(number)}</i></a>'


def _pages(listing: Listing) -> str:
    page, last = listing.filters.page, max(-(-listing.total // PER_PAGE), 1)
    if last == 1:
        return ""
    before = _page(listing, page - 1, "&lsaquo; newer") if page > 1 else ""
    after = _page(listing, page + 1, "older &rsaquo;") if page < last else ""
    return f'<nav class="pages" aria-label="Pages of the list">{before} <span>{page} of {last:,}</span> {after}</nav>'


def _page(listing: Listing, page: int, words: str) -> str:
    return f'<a href="{escaped(listing.filters.address(page=page))}">{words}</a>'
