"""A session as its actor knows it: read once, then kept in step with what the actor itself commits."""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol, TypeVar

import anyio
from anyio import to_thread
from msgspec.structs import replace

from nacre.agent.model_request import Terms, terms_of
from nacre.agent.ports import Entry, Pace
from nacre.entries import Message, SetMeta, Snapshot, View
from nacre.errors import Conflict
from nacre.history.message_text import cut_middle
from nacre.history.pairing import without_facts
from nacre.history.replies import Taken, answer_before, id_of, is_final, last_words
from nacre.history.window import Costs, Window, recent

T = TypeVar("T")
_MIN_KEPT = 256  # messages, so that a repeat is known without reading the log


class TurnLock(Protocol):
    """A lock that one process at a time may have."""

    def take(self) -> None:
        """Take it; raises SessionBusy if another process has it."""

    def close(self) -> None:
        """Let others take it."""


class KernelSessions(Protocol):
    """All that the kernel needs of sessions, whatever keeps them."""

    def submit(self, key: str, entries: Sequence[Entry | SetMeta], *, id: str | None = None) -> Awaitable[int]:
        """Store entries as one unit; gives the last number once they are durable."""

    def snapshot(self, key: str, *, last: int | None = None) -> Snapshot:
        """The session at this moment: its last messages, summary and meta."""

    def get_history(self, key: str, *, last: int | None = None) -> list[Message]:
        """The live messages, or the last few."""

    def exists(self, key: str) -> bool:
        """Tell whether there is such a session."""

    def read(self, key: str, get: Callable[[View], T]) -> T | None:
        """What a function makes of the records of a session; None if there is none."""

    def hold(self, key: str) -> TurnLock:
        """The lock for a turn of a session."""


async def no_wait() -> None:
    """The pace of a process where every turn may go on at once."""


class LiveSession:
    """The newest messages of a session; what the model is shown is made of these alone."""

    def __init__(self, sessions: KernelSessions, key: str, pace: Pace = no_wait, *, limit: int = _MIN_KEPT) -> None:
        self.key, self._sessions, self._pace = key, sessions, pace
        self._max_shown, self._max_kept = limit, max(limit, _MIN_KEPT)
        self._now = Snapshot()
        self._messages: list[Message] = []
        self._costs = Costs(most=4 * self._max_kept)
        self._last_user: Message | None = None
        self._cache_key = ""

    def read(self) -> None:
        """Read the session as it is now."""
        self._now = self._sessions.snapshot(self.key, last=self._max_kept)
        self._messages = list(self._now.messages)
        self._last_user = next((message for message in reversed(self._messages) if message.role == "user"), None)
        if self._last_user is None and self._messages:
            self._last_user = self._sessions.read(self.key, last_words)

    def refresh(self) -> None:
        """Read the session again if somebody else has written to it, as a summary does."""
        if self._sessions.snapshot(self.key, last=0).n != self._now.n:
            self.read()

    def has_meta(self, name: str) -> bool:
        """Tell whether the session has a value for a field of its meta."""
        return bool(self._now.meta.get(name))

    @property
    def system(self) -> str:
        """The system prompt that the model was last shown."""
        return str(self._now.meta.get("system", ""))

    @property
    def terms(self) -> Terms:
        """What the user's newest message asks of its answer, also where a summary covers it."""
        return terms_of([self._last_user] if self._last_user is not None else [])

    @property
    def cache_key(self) -> str:
        """A name for the session that is its own and tells nothing about it; "" before it is stored."""
        if not self._cache_key and (uid := self._sessions.read(self.key, lambda view: view.uid)):
            self._cache_key = hashlib.sha256(uid.encode()).hexdigest()[:32]
        return self._cache_key

    def answer(self, id: str = "", content: object = "") -> Message | None:
        """The answer to the message with an id, or to the last one if it is ""; None if it has none yet."""
        at = self.place(id)
        if at is not None and self._messages[at].content != content:
            raise Taken(f"another message was sent with the id {id!r}")
        first = len(self._messages) - 1 if at is None else at
        return next((message for message in self._messages[first:] if is_final(message)), None)

    def place(self, id: str) -> int | None:
        """The position of the message with an id among those that are kept."""
        return next((at for at, message in enumerate(self._messages) if id and id_of(message) == id), None)

    def window(self, tokens: int, *, summary: int, has_facts: bool = True, coming: Sequence[Message] = ()) -> Window:
        """What fits into a number of tokens, with the summary in at most `summary` tokens, once messages have come."""
        now, messages = self._now, [*self._messages, *coming]
        count = max(now.live, len(self._messages)) + len(coming)
        newest = reversed(messages) if has_facts else map(without_facts, reversed(messages))
        text = cut_middle(now.summary, summary)
        return recent(newest, count=count, summary=text, tokens=tokens, most=self._max_shown, estimate=self._costs)

    async def commit_once(self, message: Message, *prompt: SetMeta, id: str) -> Message | None:
        """Commit a message, unless it is a repeat; returns its earlier answer, None if it has none yet."""
        try:
            await self.commit([*prompt, message], id=id)
        except Conflict:
            if not id or not self._sessions.exists(self.key):
                raise
            self.read()
        if not id or self.place(id) is not None:
            return self.answer(id, message.content)
        return await to_thread.run_sync(
            self._sessions.read, self.key, lambda view: answer_before(view, message, id=id, ends=is_final)
        )

    async def commit(self, entries: Sequence[Entry | SetMeta], *, id: str | None = None) -> int:
        """Store entries as one unit, and return when they are durable, whatever is cancelled meanwhile."""
        with anyio.CancelScope(shield=True):
            number = await self._sessions.submit(self.key, entries, id=id or None)
            await self._pace()
        # Somebody else wrote too, or it was stored before: read again.
        created = 0 if self._now.n else 1
        if number != self._now.n + created + len(entries) or any(isinstance(entry, SetMeta) for entry in entries):
            self.read()
            return number
        added = [entry for entry in entries if isinstance(entry, Message)]
        self._messages += added
        if added and added[-1].role == "user":
            # Not within a turn: the message that it answers is kept.
            del self._messages[: -self._max_kept]
            self._last_user = added[-1]
        self._now = replace(self._now, n=number, live=self._now.live + len(added))
        return number
