"""Sessions: the interface that agent loops call, once, over any store."""

from __future__ import annotations

import builtins
import re
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache, partial
from itertools import count, takewhile
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol, Self, TypeVar, cast, get_args, overload, runtime_checkable

import msgspec
from msgspec.structs import replace

from nacre.checks import (
    check_bool,
    check_choice,
    check_count,
    check_int,
    check_items,
    check_key,
    check_optional_count,
    check_optional_int,
    check_text,
    is_unicode,
    plain_text,
    show,
)
from nacre.codec import (
    data_of,
    encode_data,
    encode_message,
    encode_text,
    message_in,
    message_of,
    parse_time,
    plain_json,
    time_of,
)
from nacre.errors import Conflict, InvalidArgument, InvalidKey, InvalidMessage, SessionNotFound, StoreError
from nacre.history import alias_table, session_state
from nacre.history.record_range import RecordRange
from nacre.keys import is_internal
from nacre.messages import (
    ERASED,
    DiskUsage,
    Entry,
    GenerationInfo,
    Hit,
    Leftover,
    Load,
    Message,
    Page,
    QuarantineEntry,
    Receipt,
    Redaction,
    Report,
    SessionInfo,
    Settlement,
    Snapshot,
    Stored,
    TrashedSession,
    Version,
)
from nacre.records import (
    AppendMessage,
    AppendRecord,
    CallerOperation,
    Pop,
    Record,
    Rewind,
    SetMeta,
    Summarise,
    Transaction,
    Truncate,
    View,
)
from nacre.storage.protocol import AnyLease, Backend, Lease, Prefixed, Status
from nacre.storage.transaction import check_expect, content_of, fingerprint

if TYPE_CHECKING:
    from nacre.history.list_page import Order, Wanted, Which
    from nacre.storage.group_commit import Pending
    from nacre.storage.protocol import BegunRedaction, Document, Generation, Journal
    from nacre.storage.watch import Watch

T = TypeVar("T")
D = TypeVar("D")
AnyMessage = Message | Mapping[str, Any]
"""A message, or a mapping in OpenAI's chat shape."""

AnyEntry = AnyMessage | AppendRecord | SetMeta
"""What can be appended: messages, and records and meta that are stored together with them."""

AnyOperation = AnyEntry | Summarise | Truncate | Rewind | Pop
"""What `submit` and `update` take: what can be appended, and changes of the history."""

_NOTES = ("use", "tool")
_MAX_ID = 256
_MAX_OWN = 4096
_FIRST_PART, _MAX_PART = 64, 1024
_MAX_FOLLOWED = 256
_UID = re.compile(r"[0-9a-f]{32}\Z")
_NAME = re.compile(r"[a-z]+\Z")
_DOCUMENT = re.compile(r"[a-z0-9][a-z0-9-]*\Z")


@runtime_checkable
class SessionStore(Protocol):
    """The nine methods that an agent loop needs: a type for code that takes `Sessions` and `Forgiving` alike.

    >>> isinstance(sessions, nacre.SessionStore), isinstance(nacre.Forgiving(sessions), nacre.SessionStore)
    (True, True)
    """

    def add_message(self, key: str, role: str, content: str) -> int:
        """Append one plain message; returns its record number."""

    def add_full_message(self, key: str, message: AnyMessage) -> int:
        """Append a message with all its parts; returns its record number."""

    def get_history(self, key: str, *, last: int | None = None) -> list[Message]:
        """The live messages, oldest first."""

    def get_summary(self, key: str) -> str:
        """The summary in force, "" if none."""

    def set_summary(self, key: str, summary: str, *, upto: int | None = None) -> None:
        """Replace the summary, and drop the messages up to `upto` that it covers."""

    def set_history(self, key: str, history: Iterable[AnyMessage]) -> None:
        """Replace the live history as one step."""

    def truncate_history(self, key: str, keep_last: int) -> None:
        """Keep only the last messages live."""

    def save(self, key: str) -> None:
        """Reclaim space where it is worth it."""

    def close(self) -> None:
        """Release everything."""


class SessionIndex(Protocol):
    """Something that has read the sessions before and answers without reading them all."""

    def search(  # noqa: PLR0913 - what a search can be narrowed to
        self,
        query: str,
        *,
        limit: int,
        internal: bool,
        fill: bool,
        skip: tuple[str, int] | None,
        prefix: str,
        only: str,
        meaning: bool,
    ) -> list[Hit]:
        """The messages that a query finds, best first; those of internal sessions only if they are asked for.

        With `fill`, those with some of the words follow; `skip` leaves out a session's messages from a record on. With
        a prefix, only sessions whose key begins with it are searched, with `only` that one. With `meaning`, messages
        are found by what they mean, too.
        """

    def make_vectors(self, most: int) -> int:
        """Prepare some messages for a search by meaning; returns how many still are to be."""

    def page(self, wanted: Wanted) -> Page:
        """A part of the list of sessions."""

    def forget(self, key: str) -> None:
        """Forget a session that was deleted."""

    def erase(self, key: str) -> None:
        """Forget a session of which something was erased, until it is read again; raises StoreError if it cannot."""

    def close(self) -> None:
        """Release everything."""


class Sessions:
    """Durable sessions over a store.

    A write returns when it is durable. Unless said otherwise, writes raise Refused when nothing was
    stored and DurabilityUnknown when that cannot be known; reads of an unknown key give empty values.
    An argument of the wrong type or value raises InvalidArgument before anything is read or written.

    Every write takes what the caller has seen. With `expect` it raises Conflict, and stores nothing, if the
    session has changed since: `Snapshot.expect` is about the history, `Snapshot.version` about everything stored.

    Most writes take an `id`, any text that names this one write. A retry under the same id stores nothing and returns
    what the first try returned; Conflict is raised if the id was used for other content. A call that changes nothing
    stores nothing, and its id can be used again.

    >>> sessions = nacre.open(":memory:")
    >>> sessions.add_message("cli:1", "user", "What is nacre?")
    2
    >>> [message.content for message in sessions.get_history("cli:1")]
    ['What is nacre?']
    """

    def __init__(self, store: Backend, *, index: Callable[[], SessionIndex] | None = None) -> None:
        self._store = store
        self._index = None if index is None else cache(index)
        self._makes_internal = False
        self._held: Lease | None = None
        self._names: alias_table.Names | None = None
        self._own: set[str] = set()
        self._names_at: tuple[tuple[str, int], ...] = ()
        self._tables: dict[str, tuple[alias_table.Names, tuple[str, int]]] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __getitem__(self, key: str) -> Session:
        """One session by its key, to be used without naming it again; nothing is read or written."""
        return Session(self, check_key(key))

    def __contains__(self, key: str) -> bool:
        return self.exists(key)

    # Python would take a class that has `[key]` for a list. `list` has the sessions.
    __iter__ = None

    @property
    def location(self) -> str:
        """Where the store is.

        >>> nacre.open(":memory:").location
        ':memory:'
        """
        return self._store.location

    @property
    def is_durable(self) -> bool:
        """Whether sessions outlive the process: those in memory do not.

        >>> sessions.is_durable, nacre.open(":memory:").is_durable
        (True, False)
        """
        return self._store.is_durable

    @property
    def is_shared(self) -> bool:
        """Whether processes on several machines may use the store at once: those of a database may.

        >>> sessions.is_shared
        False
        """
        return self._store.is_shared

    def with_internal_keys(self, *, held: AnyLease | None = None) -> Sessions:
        """The same sessions for nacre's own parts, which may begin sessions whose key starts with `nacre:`.

        With `held`, a lease of any session that is taken, nothing is appended, deleted or kept as a document once that
        lease is lost: it is LeaseLost.

        >>> sessions.with_internal_keys().add_message("nacre:notes", "user", "not for lists")
        2
        >>> [info.key for info in sessions.list()]
        ['cli:1']
        """
        own = Sessions(self._store) if held is None else _WhileHeld(self._store)
        own._index = self._index  # noqa: SLF001 - this module's own
        own._makes_internal = True  # noqa: SLF001
        own._held = cast("Lease | None", held)  # noqa: SLF001
        return own

    def within(self, prefix: str) -> Sessions:
        """The sessions whose keys begin with a prefix; any other key has no session there, and cannot begin one.

        Other names of sessions are unknown there, since they could lead outside.

        >>> guest = sessions.within("guest:")
        >>> guest.add_message("guest:7", "user", "hello")
        2
        >>> guest.exists("cli:1")
        False
        """
        return _Within(self, check_text(prefix, "prefix"))

    # ---- the nine

    def add_message(
        self, key: str, role: str, content: str, *, expect: int | Version | None = None, id: str | None = None
    ) -> int:
        """Append one plain message; returns its record number.

        >>> sessions.add_message("cli:1", "user", "And a pearl?")
        4
        """
        message = encode_text(role, content)
        if expect is None and id is None:
            return self._run(key, Transaction((message,)))
        return self._run(key, _transaction((message,), expect=expect, id=id))

    def add_full_message(
        self, key: str, message: AnyMessage, *, expect: int | Version | None = None, id: str | None = None
    ) -> int:
        """Append a Message, or a mapping in OpenAI's chat shape; returns its record number.

        Raises InvalidMessage for what cannot be stored as it is.

        >>> call = {"id": "c1", "type": "function", "function": {"name": "ls", "arguments": "{}"}}
        >>> sessions.add_full_message("cli:1", {"role": "assistant", "content": None, "tool_calls": [call]})
        4
        >>> sessions.add_full_message("cli:1", nacre.Message(role="tool", content="a.py", tool_call_id="c1"))
        5
        """
        return self._run(key, _transaction((encode_message(message),), expect=expect, id=id))

    def get_history(self, key: str, *, last: int | None = None) -> builtins.list[Message]:
        """The live messages, oldest first; all, or only the last few.

        >>> [message.content for message in sessions.get_history("cli:1")]
        ['What is nacre?', 'Mother-of-pearl.']
        >>> [message.role for message in sessions.get_history("cli:1", last=1)]
        ['assistant']
        """
        most = check_optional_count(last, "last")
        return self._read(key, lambda view: session_state.history(view, most), [])

    def get_summary(self, key: str) -> str:
        """The summary in force, "" if none.

        >>> sessions.get_summary("cli:1")
        ''
        """
        return self._read(key, lambda view: session_state.summary(view, view.state), "")

    def set_summary(
        self,
        key: str,
        summary: str,
        *,
        upto: int | None = None,
        expect: int | Version | None = None,
        id: str | None = None,
    ) -> None:
        """Replace the summary; `upto` names the last message it covers and drops up to there in the same step.

        Raises Conflict if `upto` is not a live message.

        >>> sessions.set_summary("cli:1", "They talked about nacre.", upto=2)
        >>> sessions.get_summary("cli:1"), len(sessions.get_history("cli:1"))
        ('They talked about nacre.', 1)
        """
        operation = Summarise(_text(summary), check_optional_int(upto, "upto"))
        number = self._run(key, _transaction((operation,), expect=expect, id=id, creates=operation.upto is None))
        if not number:
            raise Conflict(f"session {key!r} has no message {upto} to summarise up to")

    def set_history(
        self,
        key: str,
        history: Iterable[AnyMessage],
        *,
        expect: int | Version | None = None,
        id: str | None = None,
    ) -> None:
        """Replace the live history as one atomic step; the summary stays.

        >>> sessions.set_history("cli:1", [{"role": "user", "content": "Let us start again."}])
        >>> [message.content for message in sessions.get_history("cli:1")]
        ['Let us start again.']
        """
        operations: list[CallerOperation] = [Rewind(0, keeps_summary=True)]
        operations += map(encode_message, check_items(history, "history"))
        self._run(key, _transaction(operations, expect=expect, id=id))

    def truncate_history(
        self, key: str, keep_last: int, *, expect: int | Version | None = None, id: str | None = None
    ) -> None:
        """Keep only the last messages live, none for 0 or less; they stay in the transcript.

        >>> sessions.truncate_history("cli:1", 1)
        >>> len(sessions.get_history("cli:1")), len(sessions.transcript("cli:1"))
        (1, 2)
        """
        self.update(key, [Truncate(check_count(keep_last, "keep_last"))], expect=expect, id=id)

    def save(self, key: str) -> None:
        """Move what is no longer live out of the log, if that is most of it; everything can still be read.

        Nobody has to call it. With `durability="relaxed"`, what was written is durable when it has returned.

        >>> sessions.truncate_history("cli:1", 0)
        >>> sessions.save("cli:1")
        """
        self._store.compact(_key(key), session_state.keep)

    def close(self) -> None:
        """Wait until what was submitted is stored, and release everything; twice is harmless.

        >>> sessions = nacre.open(":memory:")
        >>> sessions.close()
        """
        if self._index is not None and self._index.cache_info().currsize:
            self._index().close()
        self._store.close()

    # ---- besides them

    def add_messages(
        self,
        key: str,
        messages: Iterable[AnyMessage],
        *,
        expect: int | Version | None = None,
        id: str | None = None,
        lease: AnyLease | None = None,
    ) -> int:
        """Append several messages, all or none; returns the last number stored.

        >>> turn = [{"role": "user", "content": "And a pearl?"}, {"role": "assistant", "content": "Nacre in layers."}]
        >>> sessions.add_messages("cli:1", turn, expect=3, id="turn-2")
        5
        >>> sessions.add_messages("cli:1", turn, expect=3, id="turn-2")  # a retry
        5
        """
        operations = [_check_entry(message) for message in check_items(messages, "messages")]
        return self._run(key, _transaction(operations, expect=expect, id=id, lease=lease), lease)

    def submit(
        self,
        key: str,
        operations: Iterable[AnyOperation],
        *,
        expect: int | Version | None = None,
        id: str | None = None,
        lease: AnyLease | None = None,
    ) -> Pending:
        """Apply operations as one step like `update`, without waiting; it may begin a session.

        The future gives the last number once it is durable, 0 if nothing is changed. It is a
        `concurrent.futures.Future`, and can be awaited in asyncio. A message is appended; an `AppendRecord` becomes a
        record as `append` makes it, a `SetMeta` one as `set_meta` does.

        >>> future = sessions.submit("cli:1", [nacre.Message(role="user", content="And a pearl?")])
        >>> future.result()
        4
        """
        checked = [_check_operation(one) for one in check_items(operations, "operations")]
        return self._submit(key, _transaction(checked, expect=expect, id=id, lease=lease), lease)

    def snapshot(self, key: str, *, last: int | None = None) -> Snapshot:
        """The session at this moment, read in one go: the live messages, or the last few, summary and meta.

        >>> now = sessions.snapshot("cli:1", last=1)
        >>> now.live, now.expect, now.messages[0].content
        (2, 3, 'Mother-of-pearl.')
        """
        most = check_optional_count(last, "last")

        def get(view: View) -> Snapshot:
            state = view.state
            records = list(session_state.newest(view, most))[::-1]
            return Snapshot(
                n=view.n,
                generation=view.uid,
                live=session_state.count(view),
                expect=state.h,
                summary=session_state.summary(view, state),
                meta=session_state.meta(view, state),
                messages=[message_of(record, view) for record in records],
                numbers=[record.n for record in records],
                archived=view.is_archived,
            )

        return self._read(key, get, Snapshot())

    def is_at(self, key: str, version: Version) -> bool:
        """Tell whether a session is as it was when it had a version: nothing was stored in it since.

        It costs next to nothing, and reads nothing: False may also mean that only reading would show it, as for a
        session that nobody has written to from here, or under its other name.

        >>> now = sessions.snapshot("cli:1")
        >>> sessions.is_at("cli:1", now.version)
        True
        """
        if not isinstance(version, Version):
            raise InvalidArgument(f"version must be a Version, as a snapshot has it, not {show(version)}")
        return self._store.is_at(_key(key), version)

    def read(self, key: str, get: Callable[[View], T], *, generation: str = "") -> T | None:
        """Call a function with a View of a session at one moment, and return its result; None if there is no session.

        The View is of the newest generation, or of the one that is named. The function may be called more than once.

        >>> sessions.read("cli:1", lambda view: (view.n, view.is_archived))
        (3, False)
        """
        if not generation:
            return self._read(key, get, None)
        return self._store.read_generation(self.resolve(key), check_text(generation, "generation"), get)

    def read_generations(self, key: str, get: Callable[[View], T | None]) -> builtins.list[T]:
        """Call a function with a View of every generation, oldest first; returns the results that are not None.

        The function may be called more than once for each.

        >>> sessions.archive("cli:1")
        >>> sessions.add_message("cli:1", "user", "A new conversation.")
        2
        >>> sessions.read_generations("cli:1", lambda view: (view.n, view.is_archived))
        [(3, True), (2, False)]
        """
        key = _key(key)

        def boxed(generation: Generation) -> tuple[T | None]:
            return (get(generation.view),)

        found = self._store.generations(key, boxed)
        if not found and (target := self._target(key)) is not None:
            found = self._store.generations(target, boxed)
        return [value for (value,) in found if value is not None]

    def update(
        self,
        key: str,
        operations: Iterable[AnyOperation],
        *,
        expect: int | Version | None = None,
        id: str | None = None,
        lease: AnyLease | None = None,
    ) -> int:
        """Apply operations to the active session as one step; returns the last number, 0 if nothing is changed.

        Unlike `submit` it never begins a session: for a key without an active one it stores nothing, messages neither,
        and returns 0. Raises Conflict if one of them does not fit the session.

        >>> better = nacre.Message(role="assistant", content="The inside of shells.")
        >>> sessions.update("cli:1", [nacre.Pop(), better], expect=3)
        5
        >>> [message.content for message in sessions.get_history("cli:1")]
        ['What is nacre?', 'The inside of shells.']
        """
        checked = [_check_operation(one) for one in check_items(operations, "operations")]
        return self._run(key, _transaction(checked, expect=expect, id=id, creates=False, lease=lease), lease)

    def hold(self, key: str) -> Lease:
        """The lease of a session's turn, not taken yet, so that only one process at a time answers in the session.

        It blocks no write. A write with `lease` is refused with LeaseLost once another holder has taken the turn over.
        All names of a session share one turn.

        >>> turn = sessions.hold("cli:1")
        >>> turn.take()
        >>> turn.close()
        """
        key = _key(key)
        return self._store.hold(key if key in self._own else self._resolve_or_keep(key))

    def transcript(self, key: str) -> builtins.list[Stored]:
        """Every message ever, truncated, replaced and moved-out ones too, of all generations.

        >>> sessions.clear("cli:1")
        >>> [(stored.n, stored.message.content) for stored in sessions.transcript("cli:1")]
        [(2, 'What is nacre?'), (3, 'Mother-of-pearl.')]
        """
        return self._records(key, _stored)

    def rewind(
        self,
        key: str,
        to: int | None = None,
        *,
        before: int | None = None,
        expect: int | Version | None = None,
        id: str | None = None,
    ) -> None:
        """Make history and summary what they were after record `to`, or before message `before`.

        Another rewind undoes it. Raises SessionNotFound for an unknown key, Conflict if there is no such record or if
        another message was stored together with it, on the side that is left.

        >>> sessions.rewind("cli:1", before=3)
        >>> [message.content for message in sessions.get_history("cli:1")]
        ['What is nacre?']
        >>> sessions.rewind("cli:1", 3)
        >>> len(sessions.get_history("cli:1"))
        2
        """
        if (to is None) == (before is None):
            both = "both" if to is not None else "neither"
            raise InvalidArgument(f"a rewind goes to a record, by `to`, or before a message, by `before`; not {both}")
        if before is None:
            goal = check_int(to, "to")
        else:
            n = check_int(before, "before")
            goal = self._read(key, lambda view: session_state.before(view, n), n)
        try:
            number = self.update(key, [Rewind(goal)], expect=expect, id=id)
        except Conflict:
            # A message that was stored with others: the history ends after the last of them.
            if (end := self._end_of_step(key, goal)) == goal:
                raise
            number = self.update(key, [Rewind(end)], expect=expect, id=id)
        if not number and goal:
            raise SessionNotFound(f"there is no active session {key!r} to rewind")

    def _end_of_step(self, key: str, n: int) -> int:
        return self._read(key, lambda view: session_state.after(view, n), n)

    def pop(self, key: str, *, expect: int | Version | None = None, id: str | None = None) -> Message | None:
        """Take the last live message off and return it; None if there is none. Undone by a rewind.

        >>> sessions.pop("cli:1").content
        'Mother-of-pearl.'
        """
        number = self.update(key, [Pop()], expect=expect, id=id)
        if not number:
            return None
        # A retry may find the first try in a generation that was archived since.
        found = self.read_generations(key, lambda view: session_state.popped(view, number, id))
        return found[-1] if found else None

    def clear(self, key: str, *, expect: int | Version | None = None, id: str | None = None) -> None:
        """Begin with an empty history and no summary; undone by a rewind.

        >>> sessions.clear("cli:1")
        >>> sessions.get_history("cli:1")
        []
        """
        self.update(key, [Rewind(0)], expect=expect, id=id)

    def fork(self, key: str, new_key: str, *, at: int | None = None, expect: int | Version | None = None) -> None:
        """Begin a session that shares the past of another, up to record `at` or all of it.

        What either of them does later does not touch the other. Raises SessionNotFound if there is nothing
        to fork, Conflict if the new key is taken, if there is no such record or if another message was stored
        together with it. `expect` is about the session that is forked. There is no `id`: a retry cannot make a second
        fork, since the key is taken then.

        >>> sessions.fork("cli:1", "cli:2", at=2)
        >>> [message.content for message in sessions.get_history("cli:2")]
        ['What is nacre?']
        """
        key, new_key, n = _key(key), _key(new_key), check_optional_int(at, "at")
        n = None if n is None else self._end_of_step(key, n)
        needs = None if n is None else lambda view: session_state.records_needed(view, n)
        transaction = Transaction(operations=(), expect=_check_expect(expect), reach=n, needs=needs)
        self._check_new(new_key, transaction)
        self._store.fork(key, new_key, transaction)

    def list(
        self,
        *,
        archived: bool = False,
        prefix: str = "",
        internal: bool = False,
        limit: int | None = None,
        order: Order = "updated",
    ) -> Iterator[SessionInfo]:
        """The active sessions, or the archived ones, whose key begins with `prefix`; at most `limit`.

        The newest, or largest, come first; with `order="key"` they are in the order of their keys. Internal
        sessions, whose key begins with `nacre:`, are left out unless `internal` is set.

        >>> [(info.key, info.messages) for info in sessions.list()]
        [('cli:1', 2)]
        """
        which: Which = "archived" if check_bool(archived, "archived") else "active"
        wanted = _wanted(which=which, prefix=prefix, internal=internal, order=order, limit=limit)
        return iter(self._page(wanted).items)

    def page(  # noqa: PLR0913 - what a list can be narrowed to
        self,
        *,
        which: Which = "active",
        prefix: str = "",
        text: str = "",
        tags: Iterable[str] = (),
        pinned: bool = False,
        folder: str | None = None,
        internal: bool = False,
        order: Order = "updated",
        reverse: bool = False,
        limit: int | None = 50,
        cursor: str | None = None,
    ) -> Page:
        """At most `limit` of the sessions, and a cursor to go on from; what is not shown is not read.

        The newest, or largest, come first; with `order="key"` they are in the order of their keys; `reverse` turns
        that round. The list can be narrowed to keys that begin with `prefix`, to keys or titles that contain `text`,
        to sessions with all of some tags, to pinned ones, and to chats of a folder or below it. Raises
        InvalidArgument for a cursor that is not from a page in the same order.

        >>> for number in range(2, 5):
        ...     sessions.set_meta(f"cli:{number}", tags=["work"])
        >>> page = sessions.page(tags=["work"], order="key", limit=2)
        >>> [info.key for info in page.items], page.total
        (['cli:2', 'cli:3'], 3)
        >>> [info.key for info in sessions.page(tags=["work"], order="key", cursor=page.cursor).items]
        ['cli:4']
        """
        wanted = _wanted(
            which=which,
            prefix=prefix,
            text=text,
            tags=tags,
            pinned=pinned,
            folder=folder,
            internal=internal,
            order=order,
            reverse=reverse,
            limit=limit,
        )
        if cursor is not None:
            from nacre.history.list_page import parse_cursor  # noqa: PLC0415 - for lists, as below

            after = parse_cursor(check_text(cursor, "cursor"), order=wanted.order, reverse=wanted.reverse)
            wanted = wanted._replace(after=after)
        return self._page(wanted)

    def search(  # noqa: PLR0913 - what a search can be narrowed to
        self,
        query: str,
        *,
        limit: int = 50,
        internal: bool = False,
        fill: bool = False,
        skip: tuple[str, int] | None = None,
        prefix: str = "",
        only: str = "",
        meaning: bool = False,
    ) -> builtins.list[Hit]:
        """Search the messages of all sessions, best match first.

        Words must all match; `"a phrase"`, `-not`, `role:`, `tool:`, `session:`, `since:` and `until:` narrow it.
        Internal sessions are searched if `internal` is set, or if one is named in full: `session:"nacre:memory"`.
        With `fill`, messages that have only some of the words follow those that have all, up to `limit`.
        `skip=(key, n)` leaves out what was said in that session from record `n` on, such as the turn that asks; its
        archived generations are searched.
        With `prefix`, only sessions whose key begins with it are searched, with `only` that one; what is found, and in
        which order, then tells nothing of other sessions.
        With `meaning`, messages are found by what they mean, too, where `make_vectors` has prepared them; raises
        ConfigError if the extra `embeddings` is not installed.

        >>> [(hit.place, hit.snippet) for hit in sessions.search("nacre role:user")]
        [('cli:1@2', 'What is **nacre**?')]
        """
        query, limit, internal, fill, prefix, only, meaning = (
            check_text(query, "query"),
            check_count(limit, "limit"),
            check_bool(internal, "internal"),
            check_bool(fill, "fill"),
            check_text(prefix, "prefix"),
            check_text(only, "only"),
            check_bool(meaning, "meaning"),
        )
        if skip is not None:
            if not isinstance(skip, tuple) or len(skip) != 2:  # noqa: PLR2004 - a pair
                raise InvalidArgument(f"skip must be a session's key and a record's number, not {show(skip)}")
            skip = (self._resolve_or_keep(check_key(skip[0])), check_int(skip[1], "the number in skip"))
        index = self._open_index()
        if not is_unicode(prefix):
            return []
        only = self._resolve_or_keep(check_key(only)) if only else ""
        return index.search(
            query,
            limit=limit,
            internal=internal,
            fill=fill,
            skip=skip,
            prefix=prefix,
            only=only,
            meaning=meaning,
        )

    def make_vectors(self, most: int = 16) -> int:
        """Prepare some messages, the newest first, for a search by meaning; returns how many are left.

        It takes about 20 ms for each; searches do not wait for it. The newest messages of users and models are
        prepared: of each its sentences, at most 16, in 388 bytes each; together at most 400,000. Raises ConfigError if
        the extra `embeddings` is not installed.

        >>> try:
        ...     left = sessions.make_vectors()
        ... except nacre.ConfigError:
        ...     left = 0  # the extra `embeddings` is not installed
        """
        return self._open_index().make_vectors(check_count(most, "most"))

    def _open_index(self) -> SessionIndex:
        if self._index is None:
            raise StoreError(f"{self.location} has no index to search")
        return self._index()

    def _page(self, wanted: Wanted) -> Page:
        texts = (wanted.prefix, wanted.text, wanted.folder or "", *wanted.tags)
        if not all(map(is_unicode, texts)):
            # No session has such a key, tag or title, and an index cannot even be asked for it.
            return Page(items=[], total=0)
        if self._index is not None:
            return self._index().page(wanted)
        from nacre.history.list_page import page_of  # noqa: PLC0415 - for lists, as below
        from nacre.history.overview import overview, when_updated  # noqa: PLC0415 - the same

        folders = {"active": (False,), "archived": (True,), "all": (False, True)}[wanted.which]
        infos = (
            SessionInfo(
                key=found.key,
                messages=session_state.count(found.view),
                created=parse_time(found.created or found.updated),
                updated=parse_time(when_updated(found.view, found.updated)),
                bytes=found.size,
                archived=found.archived,
                generation=found.view.uid,
                **overview(found.view)._asdict(),
            )
            for archived in folders
            for found in self._store.each(archived=archived)
        )
        return page_of(infos, wanted)

    def exists(self, key: str) -> bool:
        """Tell whether the key has a session, active or archived, or is the other name of one.

        >>> sessions.exists("cli:1"), sessions.exists("cli:2")
        (True, False)
        """
        return self._read(key, lambda _: True, default=False)

    def status(self, key: str) -> Status:
        """Tell what a key has: `active`, `archived`, `emptied` (an active log that has lost everything), or "".

        The log is not read, which would repair a damaged one. Other names are not looked up.

        >>> sessions.archive("cli:1")
        >>> sessions.status("cli:1")
        'archived'
        """
        return self._store.status(_key(key))

    def free_key(self, key: str) -> str:
        """The first of `key-2`, `key-3` and so on that has no session.

        >>> sessions.free_key("cli:1")
        'cli:1-2'
        """
        key = check_key(key)
        return next(free for number in count(2) if not self.exists(free := f"{key}-{number}"))

    def resolve(self, name: str) -> str:
        """The key of the session that a name stands for: its own, or that of the one session that has it as an alias.

        A name without a session, or one that several have, stands for itself.

        >>> sessions.add_alias("cli:1", "shells")
        >>> sessions.resolve("shells")
        'cli:1'
        """
        name = _key(name)
        return name if self._has(name) else self._target(name) or name

    def add_alias(self, key: str, alias: str) -> None:
        """Give a session another name: anyone who reads or appends under it, and has no session there, means this one.

        Raises SessionNotFound if there is no such session, Conflict if the name is the key of another, InvalidKey if
        it is reserved.

        >>> sessions.add_alias("cli:1", "shells")
        >>> sessions.add_message("shells", "user", "And a pearl?")
        5
        >>> len(sessions.get_history("cli:1"))
        3
        """
        key, alias = _key(key), check_key(alias)
        if is_internal(alias):
            raise InvalidKey(f"names that begin with 'nacre:' are reserved: give {key!r} another one than {alias!r}")
        if not self._has(key):
            raise SessionNotFound(f"there is no session {key!r} to give a name to")
        if self._has(alias):
            raise Conflict(f"{alias!r} is the key of a session, and cannot be another name of {key!r}")
        listed = alias_table.aliases_in(self.get_meta(key))
        if alias not in listed:
            # If it is archived, the table alone has the name.
            self._store.run(key, Transaction((SetMeta({"aliases": [*listed, alias]}),), creates=False))
        if key not in self._table().keys.get(alias, ()):
            self._store.run(alias_table.KEY, Transaction(alias_table.notes([(alias, key)])))
            # A relaxed store flushes it now: what is not flushed has to be read by everybody who finds no session.
            self.save(alias_table.KEY)
            self._table()

    def aliases(self, key: str) -> Sequence[str]:
        """The other names of a session, oldest first.

        >>> sessions.add_alias("cli:1", "shells")
        >>> list(sessions.aliases("cli:1"))
        ['shells']
        """
        return self._table().aliases.get(check_key(key), ())

    def archive(self, key: str, *, expect: int | Version | None = None) -> None:
        """Close the active session; it can still be read, and a write to its key starts a new one.

        Raises SessionNotFound if there is none. There is no `id`, since no record is stored; with a Version as
        `expect`, a retry cannot close a later session of the key.

        >>> sessions.archive("cli:1")
        >>> list(sessions.list()), len(sessions.get_history("cli:1"))
        ([], 2)
        """
        self._store.move(_key(key), archive=True, expect=_check_expect(expect))

    def unarchive(self, key: str, *, expect: int | Version | None = None) -> None:
        """Make the newest archived session active again.

        Raises SessionNotFound if there is none, Conflict if the key has an active session. `expect` is about the
        archived one. There is no `id`: a retry finds the session active.

        >>> sessions.archive("cli:1")
        >>> sessions.unarchive("cli:1")
        >>> sessions.status("cli:1")
        'active'
        """
        self._store.move(_key(key), archive=False, expect=_check_expect(expect))

    def delete(self, key: str, *, expect: int | Version | None = None) -> None:
        """Erase the session for good, archived generations too; no error if there is none.

        Another name of a session is no key of one: nothing is erased by it. `expect` is about its newest generation.
        There is no `id`, since nothing is left that could remember it.

        >>> sessions.delete("cli:1")
        >>> sessions.exists("cli:1")
        False
        """
        key = _key(key)
        self._store.delete(key, expect=_check_expect(expect), held=self._held)
        self._forget(key)
        self._erase_aliases(key)

    def _forget(self, key: str) -> None:
        """Erase what the index knows of a session; a Python without SQLite has no index."""
        if self._index is not None:
            with suppress(ModuleNotFoundError):
                self._index().forget(key)

    def redact(
        self,
        key: str,
        n: int,
        *,
        generation: str = "",
        erase_copies: Callable[[Redaction], None] | None = None,
    ) -> Redaction:
        """Erase the content of message `n` for good, from every file of the store and its index; a marked hole stays.

        The hole keeps its number, role and place in the history, and the ids and names of tool calls. It is read with
        an empty content and `extra["redacted"]`. Summaries, usage and notes can be erased by their numbers, too.
        A retry under the `id` of an erased message stores nothing, whatever its content: there is nothing to compare.

        Summaries and forks that may still have the words are not changed; the answer names them. The message is
        looked for in the newest generation, unless `generation` names another one, which may be in the trash.

        `erase_copies` is called after that, to erase copies that the store does not know of. If the process is killed
        in between, the next `nacre.open` finishes what is the store's, and `finish_redactions` the copies.

        Raises SessionNotFound if there is no such session, Conflict if it has no such message.

        >>> sessions.redact("cli:1", 2).erased
        (2,)
        >>> [(message.role, message.content, message.extra) for message in sessions.get_history("cli:1")]
        [('user', '', {'redacted': True}), ('assistant', 'Mother-of-pearl.', {})]
        """
        key, n, uid = self.resolve(check_key(key)), check_int(n, "n", least=1), check_text(generation, "generation")
        if uid and not _UID.match(uid):
            raise InvalidArgument(f"generation must be 32 hexadecimal digits, or nothing, not {show(uid)}")
        if is_internal(key) and not self._makes_internal:
            raise InvalidKey(f"{key!r} is one of nacre's own sessions, whose records cannot be erased one by one")
        has_copies = erase_copies is not None
        if has_copies and not callable(erase_copies):
            raise InvalidArgument(f"erase_copies must be a function, not {show(erase_copies)}")
        from nacre.history.copies import copies_of  # noqa: PLC0415 - for those who erase; it looks into what tools wrote

        found = self._store.redact(key, n, uid=uid, find_copies=copies_of, has_copies=has_copies)
        # After the store, since the index reads the logs.
        self._erase_from_index(key)
        if erase_copies is not None:
            erase_copies(found)
        self._store.end_redaction(found)
        return found

    def finish_redactions(self, erase_copies: Callable[[Redaction], None] | None = None) -> None:
        """Finish redactions that were cut short, with the same `erase_copies` that `redact` was called with.

        `nacre.open` has finished what is the store's. Call this at the start of a program that has copies of its own.
        Raises after the others were finished if one cannot be.

        >>> def erase_copies(redaction: nacre.Redaction) -> None:
        ...     print("erase what was made of", redaction.key, redaction.n)
        >>> sessions.finish_redactions(erase_copies)  # none was cut short
        """
        errors = []
        for begun in self._store.begun_redactions():
            try:
                self._finish_redaction(begun, erase_copies)
            except StoreError as error:
                # One that cannot be finished does not keep the others from it.
                errors.append(error)
        if errors:
            raise errors[0]

    def _finish_redaction(self, begun: BegunRedaction, erase_copies: Callable[[Redaction], None] | None) -> None:
        found = begun.redaction
        if not begun.is_stored:
            self._store.resume_redaction(found)
            self._erase_from_index(found.key)
        if begun.has_copies and erase_copies is not None:
            erase_copies(found)
        are_copies_left = begun.has_copies and erase_copies is None
        if not (begun.is_stored and are_copies_left):
            self._store.end_redaction(found, are_copies_left=are_copies_left)

    def _erase_from_index(self, key: str) -> None:
        if self._index is not None:
            with suppress(ModuleNotFoundError):
                self._index().erase(key)

    def forget_aliases(self, key: str) -> None:
        """Erase the other names of a key whose session was erased as a file; nothing happens if it has a session.

        >>> sessions.add_alias("cli:1", "shells")
        >>> sessions.forget_aliases("cli:1")  # it has a session
        >>> list(sessions.aliases("cli:1"))
        ['shells']
        """
        key = check_key(key)
        if not self._has(key):
            self._erase_aliases(key)

    # ---- housekeeping

    def generation(self, key: str, uid: str = "") -> GenerationInfo | None:
        """The active generation of a session, or an archived one by its uid, as its log is now; None if there is none.

        >>> sessions.generation("cli:1").bytes == sessions.log_size("cli:1")
        True
        """
        key, uid = check_key(key), check_text(uid, "uid")
        if uid and not _UID.match(uid):
            raise InvalidArgument(f"uid must be 32 hexadecimal digits, or nothing, not {show(uid)}")
        from nacre.history.overview import labels  # noqa: PLC0415 - for people who tidy up

        def is_pinned(view: View) -> bool:
            return labels(session_state.meta(view, view.state)).pinned

        return self._store.generation(key, uid, is_pinned=is_pinned)

    def disk_usage(self, keys: Iterable[str] = ()) -> DiskUsage:
        """How much room the folders of the store take, and the files of some sessions.

        >>> usage = sessions.disk_usage(["cli:1"])
        >>> 0 < usage.sessions["cli:1"] <= usage.total
        True
        """
        return self._store.disk_usage([check_key(key) for key in check_items(keys, "keys")])

    def log_size(self, key: str, *, kept: bool = False) -> int:
        """Bytes of the log of an active session, or only of what `save` would keep there; 0 if there is none.

        >>> sessions.truncate_history("cli:1", 0)
        >>> sessions.log_size("cli:1", kept=True) < sessions.log_size("cli:1")
        True
        """
        key, kept = check_key(key), check_bool(kept, "kept")
        return self._store.kept_size(key, session_state.keep) if kept else self._store.log_size(key)

    def key_of_file(self, path: str) -> str | None:
        """The key of the session that a file in the store's folders belongs to; None if the file does not tell.

        >>> from pathlib import Path
        >>> [sessions.key_of_file(str(path)) for path in Path(sessions.location, "sessions").glob("*.jsonl")]
        ['cli:1']
        """
        return self._store.key_of_file(check_text(path, "path"))

    def has_other_logs(self, keys: Iterable[str]) -> bool:
        """Tell whether the store has logs of other sessions than these, such as logs that cannot even be listed.

        >>> sessions.has_other_logs(["cli:1"]), sessions.has_other_logs([])
        (False, True)
        """
        return self._store.has_other_logs([check_key(key) for key in check_items(keys, "keys")])

    def remove_leftovers(self, *, dry_run: bool = False) -> builtins.list[Leftover]:
        """Remove files that no session needs, which killed writers left; returns them. With `dry_run` they stay.

        >>> sessions.remove_leftovers(dry_run=True)
        []
        """
        return self._store.remove_leftovers(dry_run=check_bool(dry_run, "dry_run"))

    def journal(self, name: str) -> Journal:
        """Lines that are kept with the sessions, for what a long task has done; a context for one process at a time.

        >>> with sessions.journal("backfill") as journal:
        ...     journal.add(b"cli:1 is done")
        ...     print(journal.last())
        b'cli:1 is done'
        """
        name = check_text(name, "name")
        if not _NAME.match(name):
            raise InvalidArgument(f"the name of a journal is made of small letters, not {show(name)}")
        return self._store.journal(name)

    def document(self, name: str) -> Document:
        """A small document that is kept with the sessions, such as how far somebody has read elsewhere.

        >>> sessions.document("feed").write(b"read up to 7")
        >>> sessions.document("feed").read()
        b'read up to 7'
        """
        name = check_text(name, "name")
        if not _DOCUMENT.match(name):
            raise InvalidArgument(
                f"the name of a document is made of small letters, digits and dashes, not {show(name)}"
            )
        return self._store.document(name, held=self._held)

    def move_to_trash(self, key: str, *, generation: str | None = None) -> None:
        """Move a session to the trash with all its generations, or only one archived generation of it.

        Raises SessionNotFound if there is none.

        >>> sessions.move_to_trash("cli:1")
        >>> sessions.exists("cli:1")
        False
        """
        key, uid = check_key(key), None if generation is None else check_text(generation, "generation")
        self._store.move_to_trash(key, uid)

    def list_trash(self) -> builtins.list[TrashedSession]:
        """The sessions in the trash, the last removed first.

        >>> sessions.move_to_trash("cli:1")
        >>> [trashed.key for trashed in sessions.list_trash()]
        ['cli:1']
        """

        def title(view: View) -> str:
            found = session_state.meta(view, view.state).get("title")
            return found if isinstance(found, str) else ""

        return self._store.list_trash(title)

    def restore_from_trash(self, id: str) -> None:
        """Bring a session back from the trash, to where it was.

        Raises SessionNotFound if it is not there, Conflict if its key has an active session by now.

        >>> sessions.move_to_trash("cli:1")
        >>> sessions.restore_from_trash(sessions.list_trash()[0].id)
        >>> len(sessions.get_history("cli:1"))
        2
        """
        self._store.restore_from_trash(check_text(id, "id"))

    def erase_from_trash(self, id: str) -> None:
        """Erase a session in the trash for good, and its other names unless its key has another session.

        Raises SessionNotFound if it is not there.

        >>> sessions.move_to_trash("cli:1")
        >>> sessions.erase_from_trash(sessions.list_trash()[0].id)
        >>> sessions.list_trash()
        []
        """
        id = check_text(id, "id")
        key = self._store.key_in_trash(id)
        # Before: a crash in between leaves what can be done again.
        self._forget(key)
        if self._store.erase_from_trash(id):
            # One that was removed another time may come back under its other names.
            self.forget_aliases(key)

    # ---- what is said of a session

    def set_meta(
        self,
        key: str,
        fields: Mapping[str, Any] | None = None,
        /,
        *,
        expect: int | Version | None = None,
        id: str | None = None,
        **more: Any,
    ) -> None:
        """Set fields of the session's meta (title, labels, origin …); None takes a field away.

        They are given by name, or as a mapping, which may have any name in it (`id`, `expect`), or as both.

        >>> sessions.set_meta("cli:1", title="Shells", origin={"chat": 42})
        >>> sessions.set_meta("cli:1", origin=None)
        >>> sessions.get_meta("cli:1")
        {'title': 'Shells'}
        """
        if not isinstance(fields, Mapping | None):
            raise InvalidMessage(f"the fields of a session's meta must be a mapping, not {show(fields)}")
        given = {**(fields or {}), **more}
        if not given:
            raise InvalidArgument("set_meta needs at least one field to set")
        self._run(key, _transaction((_check_entry(SetMeta(given)),), expect=expect, id=id))

    def get_meta(self, key: str) -> dict[str, Any]:
        """The session's meta.

        >>> sessions.set_meta("cli:1", title="Shells")
        >>> sessions.get_meta("cli:1")
        {'title': 'Shells'}
        """
        return self._read(key, lambda view: session_state.meta(view, view.state), {})

    def set_labels(  # noqa: PLR0913 - what a label can be, and the conditions of a write
        self,
        key: str,
        *,
        title: str | None = None,
        tags: Iterable[str] | None = None,
        pinned: bool | None = None,
        expect: int | Version | None = None,
        id: str | None = None,
    ) -> None:
        """Set the title, the tags or the pin of an active session; what is None stays as it is.

        An empty title, or no tags, takes them away. Raises SessionNotFound if there is no session, Conflict if it is
        archived: it must not begin again for the sake of a label.

        >>> sessions.set_labels("cli:1", title="Shells", tags=["sea"], pinned=True)
        >>> sessions.set_labels("cli:1", pinned=False)
        >>> sessions.get_meta("cli:1")
        {'title': 'Shells', 'tags': ['sea']}
        """
        key = check_key(key)
        fields: dict[str, Any] = {}
        if title is not None:
            fields["title"] = check_text(title, "title") or None
        if tags is not None:
            fields["tags"] = [check_text(tag, "a tag") for tag in check_items(tags, "tags")] or None
        if pinned is not None:
            fields["pinned"] = check_bool(pinned, "pinned") or None
        if fields and not self.update(key, [SetMeta(fields)], expect=expect, id=id):
            if self.exists(key):
                raise Conflict(f"session {key!r} is archived and cannot be changed; unarchive it first")
            raise SessionNotFound(f"there is no session {key!r}")

    def follow(self, key: str, after: int = 0) -> Generator[Entry, None, None]:
        """Every record after number `after`, and then new ones from any process; never ends.

        A record is given only when its writer knows that it is durable. If the session is archived
        and begun again, its new generation follows.

        >>> entries = sessions.follow("cli:1", after=2)
        >>> next(entries).data["content"]
        'Mother-of-pearl.'
        >>> entries.close()
        """
        # Not a generator itself: wrong arguments are refused here, not when the first record is asked for.
        return self._entries(self._resolve_or_keep(_key(key)), check_int(after, "after"))

    def _entries(self, key: str, after: int) -> Generator[Entry, None, None]:
        parts = self._parts(key, after)
        with self._store.watch() as watch:
            while True:
                entries, is_last = next(parts)
                yield from entries
                if is_last:
                    watch.wait()

    def _parts(self, key: str, after: int) -> Iterator[tuple[builtins.list[Entry], bool]]:
        """The records after a number, some at a time, and whether more can only come; without an end."""
        uid = ""
        while True:
            found = self._store.later(key, after, uid, _MAX_FOLLOWED)
            uid, after = found.uid, found.upto
            yield [_entry(uid, record) for record in found.records], found.is_last

    def watch(self) -> Watch:
        """Watch for changes: its `fd` is readable when `changed` has something to tell; close it in the end.

        >>> with sessions.watch() as watch:
        ...     number = sessions.add_message("cli:1", "user", "And a pearl?")
        ...     watch.fd < 0 or watch.name("cli:1") in watch.changed()
        True
        """
        return self._store.watch()

    def load(self) -> Load | None:
        """How busy the writers of the store are; None for one in memory.

        >>> sessions.load().batches, nacre.open(":memory:").load()
        (2, None)
        """
        return self._store.load

    def verify(self, key: str | None = None) -> Report:
        """Read a session, or all of them, from end to end and report what is wrong; changes nothing.

        >>> sessions.verify().ok
        True
        """
        return self._store.verify(None if key is None else _key(key))

    def repair(self, key: str) -> Receipt:
        """Move damaged bytes to quarantine and repair the session's logs.

        >>> receipt = sessions.repair("cli:1")
        >>> receipt.kept, receipt.set_aside
        (3, 0)
        """
        return self._store.repair(_key(key))

    def quarantine(self, key: str | None = None, *, settled: bool = False) -> builtins.list[QuarantineEntry]:
        """What of a session, or of all, was damaged and set aside, and waits for `restore` or `discard`.

        With `settled` also what waits for nothing: settled entries, and ends of writes that a crash cut short.

        >>> sessions.quarantine()
        []
        """
        found = self._store.quarantine(None if key is None else check_key(key))
        return found if check_bool(settled, "settled") else [entry for entry in found if not entry.settled]

    def restore(self, key: str, n: int | None = None) -> Settlement:
        """Append the whole records of the session's quarantine, or of entry `n`, as one group, and settle the entries.

        Each has its own time and says where it was; a message becomes a live one, at the end. What is settled is
        not restored again. If there is no whole record in them, nothing is restored and nothing settled: the answer
        has no entries, and `discard` settles them. Raises SessionNotFound if there is no entry `n`.

        >>> sessions.restore("cli:1")  # nothing was damaged
        Settlement(key='cli:1', entries=(), numbers=())
        """
        return self._store.restore(check_key(key), check_optional_int(n, "n", least=1))

    def discard(self, key: str, n: int | None = None) -> Settlement:
        """Settle the session's quarantine, or entry `n`, without its records; its bytes stay in the file.

        Raises SessionNotFound if there is no entry `n`.

        >>> sessions.discard("cli:1")  # nothing was damaged
        Settlement(key='cli:1', entries=(), numbers=())
        """
        return self._store.discard(check_key(key), check_optional_int(n, "n", least=1))

    def append(  # noqa: PLR0913 - what is stored, and the conditions of a write
        self,
        key: str,
        kind: str,
        data: Any,
        *,
        expect: int | Version | None = None,
        id: str | None = None,
        lease: AnyLease | None = None,
    ) -> int:
        """Append a record that history does not read: `use`, `tool`, or `x.<name>` of an integration.

        >>> sessions.append("cli:1", "x.rating", {"stars": 5}, id="rating-1")
        4
        >>> [entry.data for entry in sessions.records("cli:1", "x.rating")]
        [{'stars': 5}]
        """
        operation = _check_entry(AppendRecord(kind, data))
        return self._run(key, _transaction((operation,), expect=expect, id=id, lease=lease), lease)

    def records(
        self, key: str, kind: str | None = None, *, after: int = 0, before: int | None = None, last: int | None = None
    ) -> Iterator[Entry]:
        """The records of a kind, or of all kinds, with their fields, oldest first; only what is taken is read.

        With `after` and `before`, both exclusive, only those between two numbers; with `last`, the last few of them.
        Numbers start again with each generation: where one is given, only the newest generation is read, otherwise
        all of them. The last record is the one that is the last now. No lock is held between two records; if the
        session is deleted meanwhile, they end.

        >>> [(entry.n, entry.kind) for entry in sessions.records("cli:1")]
        [(1, 'open'), (2, 'msg'), (3, 'msg')]
        >>> [entry.data["content"] for entry in sessions.records("cli:1", "msg", last=1)]
        ['Mother-of-pearl.']
        """
        wanted = RecordRange(
            kind=None if kind is None else check_text(kind, "kind"),
            after=check_int(after, "after", least=0),
            before=check_optional_int(before, "before", least=0),
        )
        most = check_optional_count(last, "last")
        # Not a generator itself: wrong arguments are refused here, and what is written from now on is not read.
        if most is not None:
            return iter(self._last_entries(key, wanted, most))

        def end(view: View) -> tuple[str, str, int]:
            return view.key, view.uid, wanted.last_number(view)

        if wanted.is_bounded:
            newest = self._read(key, end, None)
            return self._walk([newest] if newest is not None else [], wanted)
        return self._walk(self.read_generations(key, end), wanted)

    def _walk(self, ends: Iterable[tuple[str, str, int]], wanted: RecordRange) -> Iterator[Entry]:
        """The records of some generations, each named by key and uid, up to a number; read in parts that grow."""
        for key, uid, end in ends:
            n, limit = wanted.after, _FIRST_PART
            while n < end:
                found = self._store.read_generation(key, uid, partial(_part, n=n, limit=limit))
                if found is None:
                    return
                for record in found:
                    if record.n > end or not wanted.has(record):
                        continue
                    if record.blobs is None:
                        yield _entry(uid, record)
                        continue
                    # A large payload is read when its record is taken, not with all those of its part.
                    whole = self._store.read_generation(key, uid, partial(_whole, record=record))
                    if whole is None:
                        return
                    yield whole
                n, limit = found[-1].n if found else end, min(limit * 4, _MAX_PART)

    def _last_entries(self, key: str, wanted: RecordRange, most: int) -> builtins.list[Entry]:
        def read_newest(view: View) -> tuple[str, str, builtins.list[Entry]]:
            return view.key, view.uid, _last_of(view, wanted=wanted, most=most)

        key, uid, entries = self._read(key, read_newest, ("", "", []))
        if wanted.is_bounded or not uid or len(entries) >= most:
            return entries
        uids = self._store.generations(key, lambda generation: generation.uid)
        for earlier in reversed(list(takewhile(lambda each: each < uid, uids))):
            if len(entries) < most:
                left = partial(_last_of, wanted=wanted, most=most - len(entries))
                entries = [*(self._store.read_generation(key, earlier, left) or ()), *entries]
        return entries

    # ---- writing

    def _run(self, key: str, transaction: Transaction, lease: AnyLease | None = None) -> int:
        # A key that was written to before is known to be no other name, and not reserved.
        if lease is not None or type(key) is not str or key not in self._own:
            key = self._place(key, transaction, lease)
        return self._store.run(key, transaction)

    def _submit(
        self, key: str, transaction: Transaction, lease: AnyLease | None = None, pending: Pending | None = None
    ) -> Pending:
        # As above.
        if lease is not None or type(key) is not str or key not in self._own:
            key = self._place(key, transaction, lease)
        return self._store.submit(key, transaction, pending)

    def _place(self, key: str, transaction: Transaction, lease: AnyLease | None) -> str:
        """The session that a transaction is for; raises if it must not begin one, or has the lease of another.

        It may read files: the first write of a key looks for other names.
        """
        key = _key(key)
        self._check_new(key, transaction)
        goal = self._goal(key)
        if lease is not None and lease.key != goal:
            raise InvalidArgument(f"lease must be of session {goal!r}, not of {show(lease.key)}")
        return goal

    def _check_new(self, key: str, transaction: Transaction) -> None:
        """Raise InvalidKey if a transaction would begin a session under a key that is reserved."""
        if is_internal(key) and transaction.creates and not self._makes_internal and not self.exists(key):
            raise InvalidKey(f"keys that begin with 'nacre:' are reserved: choose another key than {key!r}")

    # ---- reading

    def _read(self, key: str, get: Callable[[View], T], default: D) -> T | D:
        key = _key(key)

        # In a tuple: a session of which nothing is made is there all the same, and its key is no other name.
        def boxed(view: View) -> tuple[T]:
            return (get(view),)

        found = self._store.read(key, boxed)
        if found is None and (target := self._target(key)) is not None:
            found = self._store.read(target, boxed)
        return default if found is None else found[0]

    def _has(self, key: str) -> bool:
        return self._store.read(key, lambda _: True) is not None

    def _records(self, key: str, make: Callable[[str, Record, View], T | None]) -> builtins.list[T]:
        """What is made of the records of all generations, without those of which nothing is made."""

        def read(view: View) -> builtins.list[T]:
            made = (make(view.uid, record, view) for record in view.all())
            return [item for item in made if item is not None]

        return [item for found in self.read_generations(key, read) for item in found]

    # ---- other names

    def _target(self, name: str) -> str | None:
        """The one session that has a name as an alias; None if there is none, or more than one.

        A reserved name is nobody's alias, whatever the table says: what nacre writes under it is not for a session.
        """
        if is_internal(name):
            return None
        found = [key for key in self._table().keys.get(name, ()) if self._has(key)]
        return found[0] if len(found) == 1 else None

    def _resolve_or_keep(self, key: str) -> str:
        """What a name stands for now; itself if that cannot be read, as `_goal` has it."""
        try:
            return self.resolve(key)
        except StoreError:
            return key

    def _goal(self, key: str) -> str:
        """Where what is written under a key goes; other names are looked for at its first write.

        If they cannot be read, that is no reason to store nothing.
        """
        # A reserved key is nobody's other name.
        if key in self._own or is_internal(key):
            return key
        try:
            goal = self.resolve(key) if key in self._table().keys else key
        except StoreError:
            return key
        if goal == key:
            self._own = {key} if len(self._own) >= _MAX_OWN else self._own | {key}
        return goal

    def _table(self) -> alias_table.Names:
        """Every alias, read again if somebody has written one since."""
        found = [self._names_in(table) for table in alias_table.TABLES]
        at = tuple(at for _, at in found)
        if self._names is None or self._names_at != at:
            self._names, self._names_at = alias_table.join(names for names, _ in found), at
        return self._names

    def _names_in(self, table: str) -> tuple[alias_table.Names, tuple[str, int]]:
        """The names in one table, and up to which record they were read."""
        names, (uid, n) = self._tables.get(table, (None, ("", 0)))

        def get(view: View) -> tuple[alias_table.Names, tuple[str, int]]:
            if names is not None and (uid, n) == (view.uid, view.n):
                return names, (uid, n)
            known = names if uid == view.uid else None
            return alias_table.read(view, known, after=n), (view.uid, view.n)

        found = self._store.read(table, get) or (alias_table.Names({}, {}), ("", 0))
        self._tables[table] = found
        return found

    def _erase_aliases(self, key: str) -> None:
        """Erase the other names of a session that was deleted.

        A table that has them is deleted when all else that it says is in the other one, and durable: who is killed
        on the way has lost no name, and another process that does the same for its session neither.
        """
        tables = alias_table.TABLES
        while table := next((each for each in tables if key in self._names_in(each)[0].aliases), None):
            other = tables[1 - tables.index(table)]
            there = set(alias_table.pairs(self._names_in(other)[0]))
            pairs = alias_table.pairs(self._names_in(table)[0])
            rest = [pair for pair in pairs if pair[1] != key and pair not in there]
            if rest:
                self._store.run(other, Transaction(alias_table.notes(rest)))
            # The writer of what is there may have been killed, or be a relaxed store that has not flushed it.
            self._store.run(other, Transaction(operations=(), creates=False))
            self.save(other)
            self._store.delete(table)


class Session:
    """One session: `sessions[key]`. It only saves naming the key again, reads nothing ahead and remembers nothing.

    `len(session)` counts the live messages, and iterating over it gives them. Getting a handle begins no session, and
    `key in sessions` or `exists` tells whether there is one; the handle itself is always true.

    >>> session = sessions["cli:1"]
    >>> session.append("user", "And a pearl?")
    4
    >>> len(session), [message.role for message in session]
    (3, ['user', 'assistant', 'user'])
    >>> session.set_meta(title="Shells")
    >>> session.meta
    {'title': 'Shells'}
    """

    __slots__ = ("_sessions", "key")

    def __init__(self, sessions: Sessions, key: str) -> None:
        self._sessions = sessions
        self.key = key

    def __repr__(self) -> str:
        return f"Session({self.key!r})"

    def __bool__(self) -> bool:
        return True

    def __len__(self) -> int:
        """How many live messages it has."""
        return self._sessions.snapshot(self.key, last=0).live

    def __iter__(self) -> Iterator[Message]:
        return iter(self._sessions.get_history(self.key))

    def exists(self) -> bool:
        """Tell whether there is such a session, active or archived.

        >>> sessions["cli:1"].exists(), sessions["cli:2"].exists()
        (True, False)
        """
        return self._sessions.exists(self.key)

    @overload
    def append(self, message: AnyMessage) -> int: ...

    @overload
    def append(self, message: str, content: str) -> int: ...

    def append(self, message: Any, content: str | None = None) -> int:
        """Append a message, or a role and a text; returns its record number.

        >>> sessions["cli:1"].append("user", "And a pearl?")
        4
        >>> sessions["cli:1"].append({"role": "assistant", "content": "Nacre in layers."})
        5
        """
        if content is None:
            if (role := plain_text(message)) is not None:
                raise InvalidMessage(f"a role needs a text after it, as in append({role!r}, 'hello')")
            return self._sessions.add_full_message(self.key, message)
        return self._sessions.add_message(self.key, message, content)

    def extend(self, messages: Iterable[AnyMessage]) -> int:
        """Append several messages, all or none; returns the last number stored.

        >>> sessions["cli:2"].extend(sessions["cli:1"])
        3
        """
        return self._sessions.add_messages(self.key, messages)

    def messages(self, last: int | None = None) -> list[Message]:
        """The live messages, oldest first; all, or only the last few.

        >>> [message.content for message in sessions["cli:1"].messages(last=1)]
        ['Mother-of-pearl.']
        """
        return self._sessions.get_history(self.key, last=last)

    @property
    def summary(self) -> str:
        """The summary in force, "" if none.

        >>> sessions["cli:1"].summary
        ''
        """
        return self._sessions.get_summary(self.key)

    def set_summary(self, summary: str, *, upto: int | None = None) -> None:
        """Replace the summary, and drop the messages up to number `upto`, which it covers.

        >>> session = sessions["cli:1"]
        >>> session.set_summary("They talked about nacre.", upto=3)
        >>> session.summary, len(session)
        ('They talked about nacre.', 0)
        """
        self._sessions.set_summary(self.key, summary, upto=upto)

    @property
    def meta(self) -> dict[str, Any]:
        """Its title, its labels, and fields of your own.

        >>> sessions["cli:1"].set_meta(title="Shells")
        >>> sessions["cli:1"].meta
        {'title': 'Shells'}
        """
        return self._sessions.get_meta(self.key)

    def set_meta(
        self,
        fields: Mapping[str, Any] | None = None,
        /,
        *,
        expect: int | Version | None = None,
        id: str | None = None,
        **more: Any,
    ) -> None:
        """Set fields of its meta, by name or as a mapping; None takes a field away.

        >>> session = sessions["cli:1"]
        >>> session.set_meta({"title": "Shells", "id": 42})
        >>> session.meta
        {'title': 'Shells', 'id': 42}
        """
        self._sessions.set_meta(self.key, fields, expect=expect, id=id, **more)


class _WhileHeld(Sessions):
    """The sessions of a store for one who has a lease: what is written once it is lost is refused."""

    def _run(self, key: str, transaction: Transaction, lease: AnyLease | None = None) -> int:
        return super()._run(key, self._guarded(transaction), lease)

    def _submit(
        self, key: str, transaction: Transaction, lease: AnyLease | None = None, pending: Pending | None = None
    ) -> Pending:
        return super()._submit(key, self._guarded(transaction), lease, pending)

    def _guarded(self, transaction: Transaction) -> Transaction:
        # A store that is shared looks itself, when it writes.
        if self._held is not None and not self._store.is_shared:
            self._held.check()
        return replace(transaction, held=self._held)


class _Within(Sessions):
    """The sessions of a store whose keys begin with a prefix."""

    def __init__(self, whole: Sessions, prefix: str) -> None:
        index = whole._index  # noqa: SLF001 - this module's own
        narrow = None if index is None else lambda: _NarrowIndex(index(), prefix)
        super().__init__(Prefixed(whole._store, prefix), index=narrow)  # noqa: SLF001
        self._whole = whole

    def delete(self, key: str, *, expect: int | Version | None = None) -> None:
        """Erase one of them for good."""
        if self.exists(key):
            self._whole.delete(key, expect=expect)
        else:
            check_expect(_check_expect(expect), None)

    def erase_from_trash(self, id: str) -> None:
        """Erase one of them in the trash for good."""
        # It raises for another's.
        self._store.key_in_trash(check_text(id, "id"))
        self._whole.erase_from_trash(id)

    def close(self) -> None:
        """Do nothing: the owner of all of them closes the store."""


class _NarrowIndex:
    """An index that answers for the keys with a prefix alone."""

    def __init__(self, whole: SessionIndex, prefix: str) -> None:
        self._whole = whole
        self._prefix = prefix

    def search(self, query: str, *, prefix: str, **rest: Any) -> list[Hit]:
        within = _narrower(self._prefix, prefix)
        return [] if within is None else self._whole.search(query, prefix=within, **rest)

    def make_vectors(self, most: int) -> int:  # noqa: ARG002 - as in SessionIndex
        """Do nothing: how many messages others have is not to be known, and the owner of all makes them."""
        return 0

    def page(self, wanted: Wanted) -> Page:
        within = _narrower(self._prefix, wanted.prefix)
        return Page(items=[], total=0) if within is None else self._whole.page(wanted._replace(prefix=within))

    def forget(self, key: str) -> None:
        """Do nothing: a session is deleted where all of them are."""

    def erase(self, key: str) -> None:
        self._whole.erase(key)

    def close(self) -> None:
        """Do nothing, for the same reason."""


def _narrower(one: str, other: str) -> str | None:
    """The longer of two beginnings of a key, if both can be one's; None otherwise."""
    longer, shorter = (one, other) if len(one) > len(other) else (other, one)
    return longer if longer.startswith(shorter) else None


class Forgiving:
    """The nine methods for loops that do not expect a store to fail.

    A failed write is logged, counted and returns 0; a failed read is logged, counted and gives an
    empty value. `save` and `close` still raise.

    >>> forgiving = nacre.Forgiving(sessions)
    >>> forgiving.add_message("", "user", "a key that cannot be one")
    0
    >>> forgiving.failures
    1
    """

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions
        self.failures = 0

    def add_message(self, key: str, role: str, content: str) -> int:
        """Append one plain message; 0 if it was not stored."""
        return self._try(lambda: self._sessions.add_message(key, role, content), 0)

    def add_full_message(self, key: str, message: AnyMessage) -> int:
        """Append a message with all its parts; 0 if it was not stored."""
        return self._try(lambda: self._sessions.add_full_message(key, message), 0)

    def get_history(self, key: str, *, last: int | None = None) -> list[Message]:
        """The live messages, oldest first; none if they cannot be read."""
        return self._try(lambda: self._sessions.get_history(key, last=last), [])

    def get_summary(self, key: str) -> str:
        """The summary in force; "" if there is none or it cannot be read."""
        return self._try(lambda: self._sessions.get_summary(key), "")

    def set_summary(self, key: str, summary: str, *, upto: int | None = None) -> None:
        """Replace the summary."""
        self._try(lambda: self._sessions.set_summary(key, summary, upto=upto), None)

    def set_history(self, key: str, history: Iterable[AnyMessage]) -> None:
        """Replace the live history as one step."""
        self._try(lambda: self._sessions.set_history(key, history), None)

    def truncate_history(self, key: str, keep_last: int) -> None:
        """Keep only the last messages live."""
        self._try(lambda: self._sessions.truncate_history(key, keep_last), None)

    def save(self, key: str) -> None:
        """Reclaim space; raises what goes wrong."""
        self._sessions.save(key)

    def close(self) -> None:
        """Release everything; raises what goes wrong, as `save` does."""
        self._sessions.close()

    def _try(self, call: Callable[[], T], otherwise: T) -> T:
        try:
            return call()
        except StoreError:
            import logging  # noqa: PLC0415 - a third of what importing nacre costs; most programs have it loaded

            self.failures += 1
            logging.getLogger(__name__).exception("a session store call failed")
            return otherwise


def _key(key: str) -> str:
    """Return a key in its plain type; what the text may be, the store checks when it looks for the file's name."""
    return key if type(key) is str else check_key(key)


def _wanted(  # noqa: PLR0913 - the arguments of a list
    *,
    which: Which,
    prefix: str,
    internal: bool,
    order: Order,
    limit: int | None,
    text: str = "",
    tags: Iterable[str] = (),
    pinned: bool = False,
    folder: str | None = None,
    reverse: bool = False,
) -> Wanted:
    """Check the arguments of a list."""
    # What only lists need is loaded here: a program that opens a store to add to a session starts 2 ms earlier.
    from nacre.history.list_page import Order, Wanted, Which  # noqa: PLC0415

    return Wanted(
        which=cast("Which", check_choice(which, "which", get_args(Which))),
        prefix=check_text(prefix, "prefix"),
        text=check_text(text, "text").casefold(),
        tags=tuple(check_text(tag, "a tag") for tag in check_items(tags, "tags")),
        pinned=check_bool(pinned, "pinned"),
        folder=None if folder is None else check_text(folder, "folder"),
        internal=check_bool(internal, "internal"),
        order=cast("Order", check_choice(order, "order", get_args(Order))),
        reverse=check_bool(reverse, "reverse"),
        limit=check_optional_int(limit, "limit", least=0),
    )


def _transaction(
    operations: Sequence[CallerOperation],
    *,
    expect: int | Version | None,
    id: str | None,
    creates: bool = True,
    lease: AnyLease | None = None,
) -> Transaction:
    """Operations, which were checked, with the conditions for them, which are checked here."""
    expect, name, content = _check_expect(expect), None, ""
    fence = None if lease is None else getattr(lease, "number", None)
    if lease is not None and (type(fence) is not int or not hasattr(lease, "key")):
        raise InvalidArgument(f"lease must be a lease that is taken, not {show(lease)}")
    if id is not None:
        name = plain_text(id) or ""
        if not 1 <= len(name) <= _MAX_ID or not is_unicode(name):
            raise InvalidMessage(f"an id must be text of 1 to {_MAX_ID} characters, in valid Unicode, not {show(id)}")
        operations = [SetMeta(one.fields, names_fields=True) if isinstance(one, SetMeta) else one for one in operations]
        content = fingerprint(map(content_of, operations))
    to = next((one.to for one in operations if isinstance(one, Rewind) and one.to), None)
    needs = None if to is None else lambda view: session_state.records_needed(view, to)
    return Transaction(operations, expect, name, content, creates and bool(operations), to, needs, fence)


def _check_expect(expect: int | Version | None) -> int | Version | None:
    if isinstance(expect, Version):
        n = check_int(expect.n, "the number of a version", least=0)
        return Version(n, check_text(expect.generation, "the generation of a version"))
    return check_optional_int(expect, "expect")


def _check_operation(given: AnyOperation) -> CallerOperation:
    match given:
        case Summarise(text, upto):
            return Summarise(_text(text), check_optional_int(upto, "upto"))
        case Truncate(keep):
            return Truncate(check_count(keep, "keep"))
        case Rewind(to, keeps_summary):
            return Rewind(check_int(to, "to"), check_bool(keeps_summary, "keeps_summary"))
        case Pop():
            return given
        case _:
            return _check_entry(given)


def _check_entry(entry: AnyEntry) -> AppendMessage | AppendRecord | SetMeta:
    match entry:
        case AppendRecord(kind, data):
            text = plain_text(kind) or ""
            if text not in _NOTES and not (text.startswith("x.") and len(text) > len("x.") and is_unicode(text)):
                raise InvalidMessage(
                    f"a record's kind must be 'use', 'tool' or 'x.<name>' in valid Unicode, not {show(kind)}"
                )
            return AppendRecord(text, *encode_data(data))
        case SetMeta(fields):
            if not isinstance(fields, dict):
                raise InvalidMessage(f"the fields of a session's meta must be a dict, not {show(fields)}")
            if fields.get("keep_ids") is not None:
                # Only True keeps them: another value would look as if it did.
                check_bool(fields["keep_ids"], "keep_ids")
            return SetMeta(plain_json(fields, "meta"))
        case _:
            return encode_message(entry)


def _text(summary: object) -> str:
    text = plain_text(summary)
    if text is None:
        raise InvalidMessage(f"a summary must be text, not {show(summary)}")
    return str(plain_json(text, "summary"))


def _stored(uid: str, record: Record, view: View) -> Stored | None:
    if record.t != "msg":
        return None
    message, origin = message_of(record, view), _origin(record)
    return Stored(generation=uid, n=record.n, ts=time_of(record), message=message, restored_from=origin)


def _part(view: View, *, n: int, limit: int) -> list[Record]:
    return view.after(n, limit)


def _last_of(view: View, *, wanted: RecordRange, most: int) -> list[Entry]:
    return [_whole(view, record) for record in wanted.newest(view, most)]


def _whole(view: View, record: Record) -> Entry:
    return _entry(view.uid, record if record.blobs is None else view.whole(record))


def _entry(uid: str, record: Record) -> Entry:
    data, origin = _data(record), _origin(record)
    return Entry(generation=uid, n=record.n, ts=time_of(record), kind=record.t, data=data, restored_from=origin)


def _origin(record: Record) -> int | None:
    return record.restored_from[1] if record.restored_from is not None else None


def _data(record: Record) -> Any:
    """The fields of a record that are its own, not those that every record has."""
    if (message := message_in(record)) is not None:
        fields = msgspec.to_builtins(message, builtin_types=(bytes,))
        return fields if record.gone is None else {**fields, "content": "", ERASED: True}
    if record.t in _NOTES or record.t.startswith("x."):
        return data_of(record) if record.gone is None or record.data is not None else {ERASED: True}
    fields = msgspec.to_builtins(record)
    return {name: value for name, value in fields.items() if name not in _ENVELOPE}


_ENVELOPE = frozenset(("v", "n", "b", "tx", "r", "t", "ts", "id", "p", "gone", "restored_from", "st", "br", "fence"))
