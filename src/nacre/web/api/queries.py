"""What the web reads of sessions; each call may take a while, and belongs into a thread."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import accumulate, dropwhile, takewhile
from typing import NamedTuple, TypeVar

import msgspec
from msgspec.structs import asdict, replace

from nacre.agent.ports import Usage
from nacre.codec import message_of, parse_time, time_of
from nacre.errors import Conflict, InvalidArgument, LogDamaged, SessionNotFound
from nacre.history import every_message, session_state
from nacre.history.list_page import parse_cursor
from nacre.history.transcript import Transcript, Wanted, open_at
from nacre.index import minilm
from nacre.records import Losses, Record, SetMeta, View
from nacre.render.conversation import notices, unreadable
from nacre.render.session_item import SORTS, session_item
from nacre.render.text import rfc3339
from nacre.render.usage import total_usage
from nacre.sessions import Sessions
from nacre.web.api import schemas
from nacre.web.http_errors import Fault

T = TypeVar("T")

MAX_PAGE_BYTES = 8 * 1024 * 1024
"""How long the messages or rows of a page may be together, as JSON; a page has one at least."""


class End(NamedTuple):
    """The last record of a session: which life of it, and which number."""

    generation: str = ""
    n: int = 0


def end(sessions: Sessions, key: str) -> End:
    """Where a session ends; number 0 if there is none."""
    return sessions.read(key, lambda view: End(view.uid, view.n)) or End()


def usage_between(sessions: Sessions, key: str, after: int, until: int | None = None) -> Usage:
    """What was used for an answer: by the records after a message, up to the one that is stored with the answer."""

    def get(view: View) -> list[Record]:
        newest_first = takewhile(lambda one: one.n > after, view.back(view.n))
        return [one for one in newest_first if one.t == "use" and (until is None or one.n <= until + 1)]

    return add_up(record.data for record in sessions.read(key, get) or ())


def add_up(notes: Iterator[object] | Sequence[object]) -> Usage:
    """The sum of what `use` records of our own say."""
    found = [note for note in notes if isinstance(note, dict)]
    return Usage(
        prompt=sum(note.get("prompt", 0) for note in found),
        completion=sum(note.get("completion", 0) for note in found),
        cached=sum(note.get("cached", 0) for note in found),
    )


# ---- lists


def list_sessions(sessions: Sessions, query: schemas.ListQuery) -> schemas.SessionList:
    """A page of the list."""
    order, is_reverse = SORTS[query.sort], query.order == "reverse"
    if query.cursor:
        try:
            parse_cursor(query.cursor, order=order, reverse=is_reverse)
        except InvalidArgument as error:
            raise _lost(query.cursor) from error
    ask = partial(
        sessions.page,
        which=query.state,
        prefix=query.prefix,
        order=order,
        reverse=is_reverse,
        cursor=query.cursor or None,
    )
    page = ask(limit=query.limit)
    # Titles and tags may have any length. Where they are too long the page is read again, with as many as fit.
    sizes = accumulate(len(msgspec.json.encode(session_item(info))) for info in page.items)
    fitting = sum(1 for _ in takewhile(lambda size: size <= MAX_PAGE_BYTES, sizes))
    if fitting < len(page.items):
        page = ask(limit=max(fitting, 1))
    asides = {key: schemas.Aside(**asdict(notice)) for key, notice in notices(sessions.quarantine()).items()}
    return schemas.SessionList(
        count=len(page.items),
        total=page.total,
        has_more=page.cursor is not None,
        next_cursor=page.cursor,
        items=[schemas.Session(**session_item(info), quarantine=asides.get(info.key)) for info in page.items],
    )


def search(
    sessions: Sessions, query: schemas.SearchQuery, *, is_installed: Callable[[], bool] = minilm.is_installed
) -> schemas.FoundList:
    """What a search finds."""
    if not sessions.is_durable:
        raise Fault("unsupported", "these sessions are in memory and have no search index")
    if query.meaning and not is_installed():
        raise Fault("unsupported", "embeddings are not installed: run `nacre setup embeddings`, or leave out meaning")
    items = [
        schemas.Found(
            key=hit.key, generation=hit.generation, n=hit.n, ts=rfc3339(hit.ts), role=hit.role, snippet=hit.snippet
        )
        for hit in sessions.search(query.q, limit=query.limit, meaning=query.meaning)
    ]
    return schemas.FoundList(count=len(items), total=len(items), has_more=False, next_cursor=None, items=items)


# ---- one session


def transcript(sessions: Sessions, key: str, wanted: Wanted) -> Transcript:
    """The part of a session around what is wanted; raises SessionNotFound if there is none."""

    def get(view: View) -> tuple[str, Transcript | None]:
        is_wanted = view.uid == wanted.generation if wanted.generation else view.is_newest
        return view.uid, open_at(view, wanted) if is_wanted else None

    found = sessions.read_generations(key, get)
    shown = next((shown for _, shown in found if shown is not None), None)
    return replace(require_in(sessions, shown, key), generations=[uid for uid, _ in found])


def read(sessions: Sessions, key: str, query: schemas.ReadQuery) -> schemas.Conversation:
    """A page of a session; raises SessionNotFound, and Fault for a cursor that leads nowhere."""
    page = (_read_live if query.scope == "live" else _read_whole)(sessions, key, query)
    head, filled = page.head, page.filled or _Filled()
    items, has_more = list(reversed(filled.items)), filled.has_more
    aside, notice = notices(sessions.quarantine(head.key)).get(head.key), unreadable(head.key, page.losses)
    return replace(
        head,
        quarantine=None if aside is None else schemas.Aside(**asdict(aside)),
        unreadable=None if notice is None else schemas.Unreadable(**asdict(notice)),
        count=len(items),
        total=page.total,
        has_more=has_more,
        next_cursor=cursor_before(items[0].generation, items[0].n) if has_more else None,
        items=items,
    )


class _Filled(NamedTuple):
    """Messages of a page, newest first, how long they are together, and whether there are more that do not fit."""

    items: Sequence[schemas.Item] = ()
    size: int = 0
    has_more: bool = False


class _Page(NamedTuple):
    """What is said of a session, messages of it, if they were read, and how many there are on all its pages.

    `losses` is what was looked for, for this page, and not found.
    """

    head: schemas.Conversation
    filled: _Filled | None
    total: int
    losses: Losses


def _read_live(sessions: Sessions, key: str, query: schemas.ReadQuery) -> _Page:
    """The newest messages of the history, or those before a cursor."""

    def get(view: View) -> _Page:
        uid, before = _place(query.cursor)
        if query.cursor and uid != view.uid:
            raise _lost(query.cursor)
        older = dropwhile(lambda record: bool(before) and record.n >= before, session_state.chain(view, view.state))
        filled = _fill(_Filled(), view, older, limit=query.limit, is_live=lambda _: True)
        return _Page(_head(view, query), filled, session_state.count(view), view.losses)

    return require_in(sessions, sessions.read(key, get), key)


def _read_whole(sessions: Sessions, key: str, query: schemas.ReadQuery) -> _Page:
    """The newest messages of all generations, or those before a cursor; of an earlier one nothing is live."""
    uid, number = _place(query.cursor)

    def begin(view: View) -> tuple[str, _Page]:
        """The page as far as the generation in which it begins has it; of the others how many messages they have."""
        filled = None
        if view.uid == uid or (not query.cursor and view.is_newest):
            before = view.find(number) if query.cursor else None
            if query.cursor and (before is None or before.t != "msg"):
                raise _lost(query.cursor)
            records = every_message.newest(view, query.limit + 1, before=before)
            filled = _fill(_Filled(), view, records, limit=query.limit, is_live=every_message.is_live(view))
        return view.uid, _Page(_head(view, query), filled, every_message.count(view), view.losses)

    pages = dict(sessions.read_generations(key, begin))
    newest = require_in(sessions, next(reversed(pages), None), key)
    if query.cursor and uid not in pages:
        raise _lost(query.cursor)
    filled = pages[uid or newest].filled or _Filled()
    losses = sum((page.losses for page in pages.values()), Losses())
    # Where there is room the page goes on in the generations before it. It begins there, too, if the log of the newest
    # has turned out to hold none.
    earlier = [one for one, page in pages.items() if one <= (uid or newest) and page.filled is None and page.total]
    while earlier and not filled.has_more:
        found = sessions.read(key, partial(_go_on, filled=filled, limit=query.limit), generation=earlier.pop())
        filled, losses = (found[0], losses + found[1]) if found is not None else (filled, losses)
    return _Page(pages[newest].head, filled, sum(page.total for page in pages.values()), losses)


def _go_on(view: View, filled: _Filled, limit: int) -> tuple[_Filled, Losses]:
    """A page with the newest messages of an earlier generation, too; and what was not found."""
    # One more than fits tells whether there are more.
    records = every_message.newest(view, limit + 1 - len(filled.items))
    filled = _fill(filled, view, records, limit=limit, is_live=lambda _: False)
    return filled, view.losses


def _fill(
    filled: _Filled, view: View, records: Iterator[Record], *, limit: int, is_live: Callable[[Record], bool]
) -> _Filled:
    """A page with more messages, as many as fit."""
    items, size = list(filled.items), filled.size
    for record in records:
        if len(items) == limit:
            return _Filled(items, size, has_more=True)
        item = _item(view, record, is_live=is_live(record))
        size += len(msgspec.json.encode(item.message))
        # A message that is longer than a page may be is alone on one.
        if size > MAX_PAGE_BYTES and items:
            return _Filled(items, size, has_more=True)
        items.append(item)
    return _Filled(items, size)


def _head(view: View, query: schemas.ReadQuery) -> schemas.Conversation:
    """What is said of a session before its messages; of an earlier generation nothing."""
    title, tokens = session_state.meta(view, view.state).get("title", ""), None
    if query.tokens == "yes" and view.is_newest:
        notes = [record.data for record in view.all() if record.t == "use"]
        used = total_usage(notes)
        tokens = schemas.Tokens(input=used.input, output=used.output, total=used.total)
    return schemas.Conversation(
        key=view.key,
        title=title if isinstance(title, str) else "",
        created=rfc3339(parse_time(view.created)) if view.created else None,
        summary=session_state.summary(view, view.state),
        tokens=tokens,
        count=0,
        total=0,
        has_more=False,
        next_cursor=None,
        items=[],
    )


def cursor_before(generation: str, n: int) -> str:
    """The cursor of a page that ends before a message."""
    return f"{generation}/{n}"


def _place(cursor: str) -> tuple[str, int]:
    """The generation and the number that a cursor names."""
    uid, _, number = cursor.rpartition("/")
    if cursor and not (number.isascii() and number.isdecimal() and len(number) < 20):  # noqa: PLR2004 - digits of 64 bits
        raise _lost(cursor)
    return uid, int(number or 0)


def _item(view: View, record: Record, *, is_live: bool) -> schemas.Item:
    message = message_of(record, view).to_mapping()
    return schemas.Item(generation=view.uid, n=record.n, ts=rfc3339(time_of(record)), live=is_live, message=message)


# ---- what changes a session


@contextmanager
def hold(sessions: Sessions, key: str) -> Iterator[None]:
    """Let nobody begin a turn of a session meanwhile; raises SessionBusy if one runs, here or in another process."""
    lock = sessions.hold(key)
    lock.take()
    try:
        yield
    finally:
        lock.close()


def rename(sessions: Sessions, key: str, title: str) -> schemas.Renamed:
    """Give a session a title; raises SessionNotFound, and Conflict if it is archived."""
    before = sessions.get_meta(key).get("title", "")
    title = title.strip()
    sessions.set_labels(key, title=title)
    return schemas.Renamed(key=key, title=title, previous=before if isinstance(before, str) else "")


def describe(sessions: Sessions, key: str, fields: dict[str, object]) -> None:
    """Change what is said of a session; raises SessionNotFound, and Conflict if it is archived."""
    # What is archived must not begin again for the sake of its title.
    if not sessions.update(key, [SetMeta(fields)]):
        require(sessions.exists(key) or None, key)
        raise Conflict(f"session {key!r} is archived and cannot be changed; unarchive it first")


def fork(sessions: Sessions, key: str, wanted: schemas.Fork) -> schemas.Forked:
    """Begin a session that shares a past; raises SessionNotFound and Conflict."""
    check_is_key(sessions, key)
    new = wanted.key or sessions.free_key(key)
    sessions.fork(key, new, at=wanted.at)
    if wanted.title:
        sessions.set_meta(new, title=wanted.title)
    return schemas.Forked(source=key, at=wanted.at, key=new)


def archive(sessions: Sessions, key: str) -> None:
    """Archive a session; raises SessionNotFound, and Conflict for another name or if it is archived already."""
    check_is_key(sessions, key)
    try:
        sessions.archive(key)
    except SessionNotFound as error:
        if sessions.exists(key):
            raise Conflict(f"session {key!r} is archived already") from error
        raise


def unarchive(sessions: Sessions, key: str) -> None:
    """Make a session active again; raises SessionNotFound and Conflict."""
    check_is_key(sessions, key)
    sessions.unarchive(key)


def erase(sessions: Sessions, key: str) -> None:
    """Erase a session for good; raises SessionNotFound, and Conflict for another name."""
    check_is_key(sessions, key)
    sessions.delete(key)


def check_is_key(sessions: Sessions, key: str) -> None:
    """Raise SessionNotFound if there is no session, Conflict if the key is another name of one.

    A reader finds a session by its other names; nothing is forked, archived or erased by them.
    """
    require(sessions.exists(key) or None, key)
    if (own := sessions.resolve(key)) != key:
        raise Conflict(f"{key!r} is another name of session {own!r}; use that key")


# ---- small things


def require_in(sessions: Sessions, value: T | None, key: str) -> T:
    """What was read of a session; raises SessionNotFound for None, LogDamaged if its log has lost everything."""
    if value is None and sessions.status(key) == "emptied":
        raise LogDamaged(f"the log of session {key!r} is empty (0 bytes); what was in it is gone")
    return require(value, key)


def require(value: T | None, key: str) -> T:
    """A value that is there; raises SessionNotFound for None."""
    if value is None:
        raise SessionNotFound(f"there is no session {key!r}")
    return value


def _lost(cursor: str) -> Fault:
    return Fault("not_found", f"the cursor {cursor!r:.200} is not valid; start again without one")
