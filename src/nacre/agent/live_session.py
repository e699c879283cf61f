"""A session as its actor knows it: the newest messages, kept in step with the log, and how more are committed."""

from __future__ import annotations

import asyncio
import hashlib
import math
from collections.abc import Awaitable, Callable, Sequence
from contextlib import nullcontext
from typing import Any, Protocol, TypeVar

import anyio
from anyio import to_thread
from msgspec.structs import replace

from nacre.agent.model_request import Terms, terms_of
from nacre.agent.ports import Entry, Pace, no_wait
from nacre.errors import Conflict, LeaseLost
from nacre.history import replies
from nacre.history.message_text import cut_middle
from nacre.history.pairing import without_facts
from nacre.history.window import Costs, Turns, Window, recent
from nacre.messages import Message, Snapshot, Version
from nacre.records import AppendRecord, SetMeta, View
from nacre.storage.protocol import Lease

T = TypeVar("T")
_MIN_KEPT = 256  # messages, so that a repeat is known without reading the log


class KernelSessions(Protocol):
    """All that the kernel needs of sessions, whatever keeps them."""

    def submit(
        self, key: str, operations: Sequence[Entry | SetMeta], *, id: str | None = None, lease: Lease | None = None
    ) -> Awaitable[int]:
        """Store entries as one transaction, unless the lease is lost; gives the last number once they are durable.

        What it returns may be awaited again.
        """

    def snapshot(self, key: str, *, last: int | None = None) -> Snapshot:
        """The session at this moment: its last messages, summary and meta."""

    def is_at(self, key: str, version: Version) -> bool:
        """Tell, without reading, whether nothing was stored since; False if that is not known."""

    def read(self, key: str, get: Callable[[View], T]) -> T | None:
        """The result of a function of the records of a session; None if there is none."""

    def hold(self, key: str) -> Lease:
        """The lease of a session's turn."""

    @property
    def is_shared(self) -> bool:
        """Whether a call may wait for the network; then it is made in a thread."""


class LiveSession:
    """The newest messages of a session, and the session as it was `now`; the model is shown these messages alone.

    What is known of it is kept in step with what is committed here. Whether somebody else has written to the session,
    the store tells without reading it.
    """

    def __init__(self, sessions: KernelSessions, key: str, pace: Pace = no_wait, *, limit: int = _MIN_KEPT) -> None:
        self.key, self._sessions, self._pace = key, sessions, pace
        self.lease: Lease | None = None
        self._max_shown, self._max_kept = limit, max(limit, _MIN_KEPT)
        self.now = Snapshot(n=-1)  # it is not read yet
        self.messages: list[Message] = []
        self._numbers: list[int] = []
        self._by_id = replies.MessagesById()
        self._turns = Turns(Costs(limit=4 * self._max_kept), limit=2 * limit)
        self._last_user: Message | None = None
        # What was used since a record, by the records that were committed here.
        self._used: list[tuple[int, Any]] = []
        self._used_since = 0
        self._cache_key = ("", "")
        # A message that is stored with what is committed next, and its id.
        self.unsaved: list[Message] = []
        self._unsaved_id = ""

    async def take_turn(self) -> None:
        """Take the turn; from then on commits are refused with LeaseLost if another takes it over."""
        # What an earlier turn could not store comes again.
        self.unsaved = []
        self.lease = self._sessions.hold(self.key)
        await self._ask(self.lease.take)

    async def give_turn_back(self) -> None:
        """Let others take the turn, whatever is cancelled meanwhile."""
        if self.lease is not None:
            with anyio.CancelScope(shield=True) if self._sessions.is_shared else nullcontext():
                await self._ask(self.lease.close)

    async def _ask(self, call: Callable[[], T]) -> T:
        """Ask the store: at once, or in a thread where the answer comes over the network."""
        return await to_thread.run_sync(call) if self._sessions.is_shared else call()

    async def read(self) -> None:
        """Read the session as it is now."""
        now = await self._ask(lambda: self._sessions.snapshot(self.key, last=self._max_kept))
        self.messages, self._numbers = list(now.messages), list(now.numbers)
        self._by_id = replies.MessagesById(self.messages)
        self.now = replace(now, messages=[], numbers=[])
        self._used, self._used_since = [], now.n
        self._last_user = next((message for message in reversed(self.messages) if message.role == "user"), None)
        if self._last_user is None and self.messages:
            self._last_user = await self._ask(lambda: self._sessions.read(self.key, replies.last_words))

    async def refresh(self) -> None:
        """Read the session again if somebody else has written to it, as a summary does."""
        if self.now.n >= 0 and await self._ask(self._is_unchanged):
            self._used, self._used_since = [], self.now.n
        else:
            await self.read()

    def _is_unchanged(self) -> bool:
        return self.is_current or self._sessions.snapshot(self.key, last=0).version == self.now.version

    @property
    def is_current(self) -> bool:
        """Whether the session is as it is known here; False also if only reading it would tell."""
        return self.now.n > 0 and self._sessions.is_at(self.key, self.now.version)

    def snapshot(self) -> Snapshot | None:
        """The session with its newest messages, without reading it; None if somebody else may have written to it."""
        if not self.is_current:
            return None
        return replace(self.now, messages=list(self.messages), numbers=list(self._numbers))

    def used_since(self, n: int) -> list[Any] | None:
        """What `use` records after record `n` say; None if not all of them were committed here."""
        return None if n < self._used_since else [data for number, data in self._used if number > n]

    @property
    def terms(self) -> Terms:
        """What the user's newest message asks of its answer, also where a summary covers it."""
        newest = [*filter(None, [self._last_user]), *self.unsaved]
        return terms_of(newest[-1:])

    @property
    def cache_key(self) -> str:
        """A name for the session that is its own and tells nothing about it; "" before it is stored."""
        generation, name = self._cache_key
        if generation != self.now.generation:
            generation = self.now.generation
            name = hashlib.sha256(generation.encode()).hexdigest()[:32]
            self._cache_key = (generation, name)
        return name

    def has(self, id: str) -> bool:
        """Tell whether the message with an id is among the newest."""
        return self._by_id.place(id) is not None

    def reply(self, id: str = "", content: object = "") -> Message | None:
        """The reply to the message with an id, or to the last one if it is ""; None if it has none yet."""
        if not id:
            return next(filter(replies.is_final, self.messages[-1:]), None)
        at = self._by_id.place(id)
        return None if at is None else replies.reply_to(self.messages[at:], content, id=id)

    def window(self, tokens: int, *, summary: int, has_facts: bool = True, coming: Sequence[Message] = ()) -> Window:
        """What fits into a number of tokens, with the summary in at most `summary` tokens, once messages have come."""
        coming = [*self.unsaved, *coming]
        now, messages = self.now, [*self.messages, *coming]
        count = max(now.live, len(self.messages)) + len(coming)
        newest = reversed(messages) if has_facts else map(without_facts, reversed(messages))
        text = cut_middle(now.summary, summary)
        return recent(newest, count=count, summary=text, tokens=tokens, limit=self._max_shown, known=self._turns)

    async def commit_once(self, message: Message, *prompt: SetMeta, id: str) -> Message | None:
        """Commit a message, unless it is a repeat; returns its earlier answer, None if it has none yet."""
        # First one that waits, by itself, since a transaction has one id. A conflict over that is not one over this.
        if self.unsaved:
            await self.commit([])
        try:
            await self.commit([*prompt, message], id=id)
        except Conflict as error:
            await self.read()
            if not id or not self.now.n or isinstance(error, LeaseLost):
                raise
        if not id or self.has(id):
            return self.reply(id, message.content)
        return await to_thread.run_sync(
            self._sessions.read, self.key, lambda view: replies.find_reply(view, message.content, id=id)
        )

    def save_with_next(self, message: Message, *, id: str) -> None:
        """Show the model a message now, and store it in one transaction with what is committed next."""
        self.unsaved, self._unsaved_id = [message], id

    async def commit_unsaved(self) -> None:
        """Commit a message that was to be stored later, if it is not stored yet."""
        try:
            if self.unsaved:
                await self.commit([])
        except Conflict as error:
            if isinstance(error, LeaseLost):
                raise
            # It is stored: a commit of it and more failed and left that unknown.
            await self.read()

    async def commit(self, entries: Sequence[Entry | SetMeta], *, id: str | None = None) -> int:
        """Store entries as one transaction, and return when they are durable, whatever is cancelled meanwhile.

        Not with an id while a message waits to be stored with them: the transaction has the id of that.
        """
        if self.unsaved:
            if id:
                raise ValueError("a transaction has one id; commit the message that waits before")
            # With its id the transaction is refused if the message was stored before.
            entries, id = [*self.unsaved, *entries], self._unsaved_id
        pending = self._sessions.submit(self.key, entries, id=id or None, lease=self.lease)
        try:
            number = await pending
            await self._pace()
        except asyncio.CancelledError:
            if anyio.current_effective_deadline() > -math.inf:
                # Not a scope of ours: the task itself is cancelled, as when the loop is closed.
                raise
            # It is written all the same. Whatever was cancelled is again at the next wait. A scope is entered only
            # here, since it costs more than all else around a commit.
            with anyio.CancelScope(shield=True):
                number = await pending
        self.unsaved = []
        before = self.now
        is_next = before.n > 0 and number == before.n + len(entries)
        if not is_next or any(isinstance(entry, SetMeta) for entry in entries):
            # Somebody else wrote too, it was stored before, or the session is new: read it again.
            await self.read()
            return number
        added: list[Message] = []
        for at, entry in enumerate(entries, before.n + 1):
            if isinstance(entry, Message):
                added.append(entry)
                self._numbers.append(at)
            elif isinstance(entry, AppendRecord) and entry.kind == "use":
                self._used.append((at, entry.data))
        self.messages += added
        self._by_id.add(added)
        if users := [message for message in added if message.role == "user"]:
            # Not within a turn: the message that it answers is kept.
            self._by_id.drop(self.messages[: -self._max_kept])
            del self.messages[: -self._max_kept], self._numbers[: -self._max_kept]
            self._last_user = users[-1]
        changed = self._numbers[-1] if added else before.expect
        self.now = replace(before, n=number, live=before.live + len(added), expect=changed)
        return number
