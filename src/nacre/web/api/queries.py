"""What the web reads of sessions; each call may take a while, and belongs into a thread."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from itertools import dropwhile, islice, takewhile
from typing import NamedTuple, TypeVar

from msgspec import Struct
from msgspec.structs import asdict, replace

from nacre.agent.ports import Usage
from nacre.entries import (
    Hit,
    Losses,
    Message,
    Record,
    SessionInfo,
    SetMeta,
    View,
    message_of,
    parse_time,
    time_of,
)
from nacre.errors import Conflict, InvalidArgument, LogDamaged, SessionNotFound
from nacre.history import session_state
from nacre.history.list_page import Order, parse_cursor
from nacre.history.transcript import Transcript, Wanted, open_at
from nacre.index import minilm
from nacre.render.quarantine_report import Notice, notices, unreadable
from nacre.render.usage import summed
from nacre.sessions import Sessions
from nacre.web.api import schemas
from nacre.web.http_errors import Fault

T = TypeVar("T")
AT_HAND = 256

_SORTS: dict[str, Order] = {
    "updated": "updated",
    "created": "created",
    "size": "bytes",
    "messages": "messages",
    "key": "key",
}


class Stand(Struct, frozen=True, kw_only=True):
    """Where a session stands: its last record, how many messages are live, and the newest of them."""

    n: int = 0
    live: int = 0
    messages: Sequence[Message] = ()


def stand(sessions: Sessions, key: str, *, last: int = AT_HAND) -> Stand:
    now = sessions.snapshot(key, last=last)
    return Stand(n=now.n, live=now.live, messages=now.messages)


class End(NamedTuple):
    """The last record of a session: which life of it, and which number."""

    generation: str = ""
    n: int = 0


def end(sessions: Sessions, key: str) -> End:
    """Where a session ends; number 0 if there is none."""
    return sessions.read(key, lambda view: End(view.uid, view.n)) or End()


def used_between(sessions: Sessions, key: str, after: int, until: int | None = None) -> Usage:
    """What was used for an answer: by the records behind a message, up to the one that is stored with the answer."""

    def get(view: View) -> list[Record]:
        newest_first = takewhile(lambda one: one.n > after, view.back(view.n))
        return [one for one in newest_first if one.t == "use" and (until is None or one.n <= until + 1)]

    return added(record.data for record in sessions.read(key, get) or ())


def added(notes: Iterator[object] | Sequence[object]) -> Usage:
    """The sum of what `use` records of our own say."""
    found = [note for note in notes if isinstance(note, dict)]
    return Usage(
        prompt=sum(note.get("prompt", 0) for note in found),
        completion=sum(note.get("completion", 0) for note in found),
        cached=sum(note.get("cached", 0) for note in found),
    )


# ---- lists


def listed(sessions: Sessions, query: schemas.ListQuery) -> schemas.SessionList:
    """A page of the list."""
    order, is_reverse = _SORTS[query.sort], query.order == "reverse"
    if query.cursor:
        try:
            parse_cursor(query.cursor, order=order, reverse=is_reverse)
        except InvalidArgument as error:
            raise _lost(query.cursor) from error
    page = sessions.page(
        which=query.state,
        prefix=query.prefix,
        order=order,
        reverse=is_reverse,
        limit=query.limit,
        cursor=query.cursor or None,
    )
    aside = notices(sessions.quarantine())
    return schemas.SessionList(
        count=len(page.items),
        total=page.total,
        has_more=page.cursor is not None,
        next_cursor=page.cursor,
        items=[_session(info, aside.get(info.key)) for info in page.items],
    )


def found(
    sessions: Sessions, query: schemas.SearchQuery, *, is_installed: Callable[[], bool] = minilm.is_installed
) -> schemas.FoundList:
    """What a search finds."""
    if sessions.location == ":memory:":
        raise Fault("unsupported", "these sessions are in memory and have no search index")
    if query.meaning and not is_installed():
        raise Fault("unsupported", "embeddings are not installed: run `nacre setup embeddings`, or leave out meaning")
    items = [_found(hit) for hit in sessions.search(query.q, limit=query.limit, meaning=query.meaning)]
    return schemas.FoundList(count=len(items), total=len(items), has_more=False, next_cursor=None, items=items)


def _session(info: SessionInfo, aside: Notice | None) -> schemas.Session:
    return schemas.Session(
        key=info.key,
        title=info.title,
        messages=info.messages,
        created=rfc3339(info.created),
        updated=rfc3339(info.updated),
        bytes=info.bytes,
        archived=info.archived,
        pinned=info.pinned,
        tags=list(info.tags),
        cwd=info.cwd,
        role=info.role,
        model=info.model,
        quarantine=_aside(aside),
    )


def _aside(notice: Notice | None) -> schemas.Aside | None:
    return None if notice is None else schemas.Aside(**asdict(notice))


def _unreadable(key: str, losses: Losses) -> schemas.Unreadable | None:
    notice = unreadable(key, losses)
    return None if notice is None else schemas.Unreadable(**asdict(notice))


def _found(hit: Hit) -> schemas.Found:
    return schemas.Found(
        key=hit.key, generation=hit.generation, n=hit.n, ts=rfc3339(hit.ts), role=hit.role, snippet=hit.snippet
    )


# ---- one session


def transcript(sessions: Sessions, key: str, wanted: Wanted) -> Transcript:
    """The part of a session around what is wanted; raises SessionNotFound if there is none."""

    def get(view: View) -> tuple[str, Transcript | None]:
        is_wanted = view.uid == wanted.generation if wanted.generation else view.is_newest
        return view.uid, open_at(view, wanted) if is_wanted else None

    found = sessions.read_generations(key, get)
    shown = next((shown for _, shown in found if shown is not None), None)
    return replace(existing_in(sessions, shown, key), generations=[uid for uid, _ in found])


def read(sessions: Sessions, key: str, query: schemas.ReadQuery) -> schemas.Conversation:
    """A page of a session; raises SessionNotFound, and Fault for a cursor that leads nowhere."""
    if query.scope == "live":
        found = sessions.read(key, lambda view: (_head(view, query), *_live_page(view, query)))
        head, items, total, has_more, losses = existing_in(sessions, found, key)
    else:
        lives = sessions.read_generations(key, lambda view: (_head(view, query), *_said(view)))
        head, *_ = existing_in(sessions, lives[-1] if lives else None, key)
        said = [item for _, items, _ in lives for item in items]
        end = _end(said, query.cursor)
        start = max(0, end - query.limit)
        items, total, has_more = said[start:end], len(said), start > 0
        losses = sum((losses for *_, losses in lives), Losses())
    return replace(
        head,
        quarantine=_aside(notices(sessions.quarantine(head.key)).get(head.key)),
        unreadable=_unreadable(head.key, losses),
        count=len(items),
        total=total,
        has_more=has_more,
        next_cursor=f"{items[0].generation}/{items[0].n}" if has_more else None,
        items=items,
    )


def _head(view: View, query: schemas.ReadQuery) -> schemas.Conversation:
    """What is said of a session before its messages; of an earlier generation nothing."""
    title = session_state.meta(view, view.state).get("title", "")
    return schemas.Conversation(
        key=view.key,
        title=title if isinstance(title, str) else "",
        created=rfc3339(parse_time(view.created)) if view.created else None,
        summary=session_state.summary(view, view.state),
        tokens=_tokens(view) if query.tokens == "yes" and view.is_newest else None,
        count=0,
        total=0,
        has_more=False,
        next_cursor=None,
        items=[],
    )


def _live_page(view: View, query: schemas.ReadQuery) -> tuple[list[schemas.Item], int, bool, Losses]:
    """The newest messages of the history, or those before a cursor."""
    uid, before = _place(query.cursor)
    if query.cursor and uid != view.uid:
        raise _lost(query.cursor)
    older = dropwhile(lambda record: bool(before) and record.n >= before, session_state.chain(view, view.state))
    records = list(islice(older, query.limit + 1))
    items = [_item(view, record, is_live=True) for record in reversed(records[: query.limit])]
    return items, session_state.count(view), len(records) > query.limit, view.losses


def _said(view: View) -> tuple[list[schemas.Item], Losses]:
    """All messages of a generation; of an earlier one nothing is live."""
    numbers = {record.n for record in session_state.chain(view, view.state)} if view.is_newest else set()
    items = [_item(view, record, is_live=record.n in numbers) for record in view.all() if record.t == "msg"]
    return items, view.losses


def _end(items: Sequence[schemas.Item], cursor: str) -> int:
    if not cursor:
        return len(items)
    place = _place(cursor)
    for at, item in enumerate(items):
        if (item.generation, item.n) == place:
            return at
    raise _lost(cursor)


def _place(cursor: str) -> tuple[str, int]:
    """The generation and the number that a cursor names."""
    uid, _, number = cursor.rpartition("/")
    if cursor and not (number.isascii() and number.isdecimal() and len(number) < 20):  # noqa: PLR2004 - digits of 64 bits
        raise _lost(cursor)
    return uid, int(number or 0)


def _item(view: View, record: Record, *, is_live: bool) -> schemas.Item:
    message = message_of(record, view).to_mapping()
    return schemas.Item(generation=view.uid, n=record.n, ts=rfc3339(time_of(record)), live=is_live, message=message)


def _tokens(view: View) -> schemas.Tokens:
    notes = [record.data for record in view.all() if record.t == "use"]
    ours, theirs = added(notes), summed(notes)
    given, made = theirs.input or ours.prompt, theirs.output or ours.completion
    return schemas.Tokens(input=given, output=made, total=theirs.total or given + made)


# ---- what changes a session


@contextmanager
def held(sessions: Sessions, key: str) -> Iterator[None]:
    """Let nobody begin a turn of a session meanwhile; raises SessionBusy if one runs, here or in another process."""
    hold = sessions.hold(key)
    hold.take()
    try:
        yield
    finally:
        hold.close()


def rename(sessions: Sessions, key: str, title: str) -> schemas.Renamed:
    """Give a session a title; raises SessionNotFound, and Conflict if it is archived."""
    before = sessions.get_meta(key).get("title", "")
    title = title.strip()
    sessions.set_labels(key, title=title)
    return schemas.Renamed(key=key, title=title, previous=before if isinstance(before, str) else "")


def describe(sessions: Sessions, key: str, fields: dict[str, object]) -> None:
    """Change what is said of a session; raises SessionNotFound, and Conflict if it is archived."""
    # What is archived must not begin anew for the sake of its title.
    if not sessions.update(key, [SetMeta(fields)]):
        existing(sessions.exists(key) or None, key)
        raise Conflict(f"session {key!r} is archived and cannot be changed; unarchive it first")


def fork(sessions: Sessions, key: str, wanted: schemas.Fork) -> schemas.Forked:
    """Begin a session that shares a past; raises SessionNotFound and Conflict."""
    check_is_key(sessions, key)
    new = wanted.key or sessions.free_key(key)
    sessions.fork(key, new, at=wanted.at)
    if wanted.title:
        sessions.set_meta(new, title=wanted.title)
    return schemas.Forked(source=key, at=wanted.at, key=new)


def archived(sessions: Sessions, key: str) -> bool:
    """Archive a session; False if it is archived already. Raises SessionNotFound, and Conflict for another name."""
    check_is_key(sessions, key)
    try:
        sessions.archive(key)
    except SessionNotFound:
        if sessions.exists(key):
            return False
        raise
    return True


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

    Whoever reads finds a session by its other names; nothing is forked, archived or erased by them.
    """
    existing(sessions.exists(key) or None, key)
    if (own := sessions.resolve(key)) != key:
        raise Conflict(f"{key!r} is another name of session {own!r}; use that key")


# ---- small things


def rfc3339(moment: datetime) -> str:
    """A moment in UTC with milliseconds."""
    return f"{moment.astimezone(UTC).isoformat(timespec='milliseconds')[:-6]}Z"


def existing_in(sessions: Sessions, value: T | None, key: str) -> T:
    """The same for what was read of a session; raises LogDamaged if its log has lost everything."""
    if value is None and sessions.status(key) == "emptied":
        raise LogDamaged(f"the log of session {key!r} is empty (0 bytes); what was in it is gone")
    return existing(value, key)


def existing(value: T | None, key: str) -> T:
    if value is None:
        raise SessionNotFound(f"there is no session {key!r}")
    return value


def _lost(cursor: str) -> Fault:
    return Fault("not_found", f"the cursor {cursor!r:.200} is not valid; start again without one")
