"""The durable inbox: messages that arrived and have not been answered yet."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Sequence
from concurrent.futures import Future
from contextlib import suppress
from itertools import islice
from typing import Any

import anyio
import anyio.to_thread
import msgspec

from nacre import Lease
from nacre.channels.channel import InboundMessage
from nacre.errors import LeaseLost, SessionBusy, StoreError
from nacre.messages import Entry
from nacre.records import AppendRecord
from nacre.sessions import Sessions

logger = logging.getLogger(__name__)

KEYS = ("nacre:inbox", "nacre:inbox:2")
_MAX_RECORDS = 5_000
_MAX_CARRIED = 2_500
_LATER = 0.5
"""Seconds until what may be written later is written, if nothing else is before."""
_RETRY = 60
"""How many times as long it waits if it could not be written."""


class Inbox:
    """The open messages, in two logs that alternate, so that neither grows forever.

    When the one that is written is full, what is still open in the older one is written to it again, and the older one
    is started again. So whatever is in the older one and was answered is answered in the younger one, or in itself.
    A log with `max_records` is full. `forget` does so twice, and then the text of no message is there that was
    answered.
    """

    def __init__(
        self,
        sessions: Sessions,
        *,
        held: Lease | None = None,
        lost: Callable[[], None] = lambda: None,
        max_records: int = _MAX_RECORDS,
        later: float = _LATER,
    ) -> None:
        """With `held` nothing is written once that lease is lost, and `lost` is called."""
        self._sessions, self._lost = sessions.with_internal_keys(held=held), lost
        self._max_records, self._max_wait = max_records, later
        self._open: dict[str, InboundMessage] = {}
        self._known: dict[str, None] = {}
        self._unkept: dict[str, None] = {}
        self._names: dict[str, str] = {}  # of all that is known, by id
        self._left: set[str] = set()  # open, and from an earlier run
        self._begun: set[str] = set()
        self._results: dict[str, str] = {}
        self._without_reply: set[str] = set()
        self._young, self._old = KEYS
        self._count = self._rotations = 0
        self._is_rotating = self._has_texts = False
        # What is written with the next record.
        self._later: list[AppendRecord] = []
        self._is_later_due = False

    def __len__(self) -> int:
        return len(self._open)

    async def load(self) -> list[InboundMessage]:
        """Read it as `read` does, in a thread if that may take long."""
        return await anyio.to_thread.run_sync(self.read) if self._sessions.is_shared else self.read()

    def read(self) -> list[InboundMessage]:
        """Read what an earlier run of the program left open, in the order in which it came."""
        logs = {key: list(self._sessions.records(key)) for key in KEYS}
        rotations = {key: _count_rotations(log) for key, log in logs.items()}
        self._young = max(KEYS, key=lambda key: rotations[key])
        self._rotations = max(0, rotations[self._young])
        self._old = next(key for key in KEYS if key != self._young)
        for key in (self._old, self._young):
            for entry in logs[key]:
                match entry.kind, entry.data:
                    case "x.arrived", data:
                        arrived = msgspec.convert(data, InboundMessage)
                        name = name_of(arrived)
                        # What was carried over was so with all else that was open: its place is there.
                        self._open.pop(name, None)
                        self._open[name] = arrived
                        self._remember(self._known, name)
                        self._has_texts = True
                    case "x.done", {"of": name, "text": text}:
                        self._results[name] = text
                    case "x.sending", {"of": name}:
                        self._begun.add(name)
                    case "x.answered", {"of": name, **more}:
                        if more:
                            # `failed`; older versions wrote `joined`, too.
                            self._without_reply.add(name)
                        self._close(name)
                    case _:
                        pass
        self._count = len(logs[self._young])
        self._left = set(self._open)
        return list(self._open.values())

    def knows(self, ids: Collection[str]) -> bool:
        """Tell whether one of these ids is that of a message that came before, open or closed with a reply."""
        names = (self._names.get(id, "") for id in ids)
        return any(self._is_known(name) and name not in self._without_reply for name in names)

    def _is_known(self, name: str) -> bool:
        return name in self._known or name in self._unkept

    def is_new(self, arrived: InboundMessage) -> bool:
        """Tell whether a message is new, and remember its name; the message itself is not stored."""
        name = name_of(arrived)
        is_new = not self._is_known(name)
        self._remember(self._unkept, name)
        return is_new

    async def add(self, arrived: InboundMessage) -> bool:
        """Store a message; durable when it returns. False if it was received before."""
        name = name_of(arrived)
        if name in self._known or name in self._open:
            return False
        self._remember(self._known, name)
        self._open[name] = arrived
        self._has_texts = True
        try:
            await self._append(AppendRecord("x.arrived", msgspec.to_builtins(arrived)))
        except BaseException:
            self._drop(self._known, name)
            self._open.pop(name, None)
            raise
        if self._count >= self._max_records:
            await self._rotate()
        return True

    def keeps(self, arrived: InboundMessage) -> bool:
        """Tell whether a message is kept here until it is answered, and came in this run: no session has it yet."""
        name = name_of(arrived)
        return name in self._open and name not in self._left

    def result(self, arrived: InboundMessage) -> str | None:
        """What a command led to; None if it was not carried out yet."""
        return self._results.get(name_of(arrived))

    async def set_result(self, arrived: InboundMessage, text: str) -> None:
        """Note what a command led to; durable when it returns."""
        name = name_of(arrived)
        if name in self._open:
            self._results[name] = text
            await self._append(AppendRecord("x.done", {"of": name, "text": text}))

    async def sending(self, arrived: InboundMessage) -> bool:
        """Note that the answer is about to be sent; durable when it returns. True if that was noted before."""
        name = name_of(arrived)
        if name in self._begun:
            return True
        if name in self._open:
            await self._append(AppendRecord("x.sending", {"of": name}))
            self._begun.add(name)
        return False

    def expect_no_reply(self, arrived: InboundMessage) -> None:
        """Know of a message that it gets no reply of its session: it had an error, or another one gets it.

        A reply that names it goes to the next one that it names.
        """
        self._without_reply.add(name_of(arrived))

    def done(self, arrived: InboundMessage) -> Awaitable[int] | None:
        """Mark a message as answered; await the result for durability."""
        name = name_of(arrived)
        if name not in self._open:
            return None
        self._close(name)
        return self._append(AppendRecord("x.answered", self._closing(name)))

    def done_later(self, arrived: InboundMessage) -> None:
        """Mark a message as answered, with the next record or soon; a crash before that repeats its answer."""
        name = name_of(arrived)
        if name in self._open:
            self._close(name)
            self._later.append(AppendRecord("x.answered", self._closing(name)))
            self._write_in(self._max_wait)

    def write_later(self) -> Awaitable[int] | None:
        """Write now what may be written later; await the result for durability."""
        self._is_later_due = False
        return self._append() if self._later else None

    async def finish(self) -> None:
        """Write what may be written later, and wait for it; what fails now is repeated at the next start."""
        if (written := self.write_later()) is not None:
            with anyio.CancelScope(shield=True), suppress(StoreError):
                await written

    async def forget(self) -> None:
        """Erase the text of every message that was answered; that it was stays known."""
        if not self._has_texts:
            return
        # What is open now, or comes meanwhile, is there afterwards, also if it is answered before this ends.
        self._has_texts = bool(self._open)
        if not all([await self._rotate() for _ in KEYS]):
            self._has_texts = True

    def _write_in(self, seconds: float) -> None:
        if not self._is_later_due:
            self._is_later_due = True
            asyncio.get_running_loop().call_later(seconds, self.write_later)

    def _append(self, *records: AppendRecord) -> Awaitable[int]:
        """Write records, and with them what may be written later: that comes again if the write fails."""
        later, self._later = self._later, []
        try:
            pending = self._sessions.submit(self._young, [*records, *later])
        except BaseException:
            self._later = later + self._later
            raise
        self._count += len(records) + len(later)
        if later or self._sessions.is_shared:
            # Who awaits the records gets the error, but has nothing to do with what went with them.
            loop = asyncio.get_running_loop()
            pending.add_done_callback(lambda written: self._look_after(written, later, loop))
        return pending

    def _look_after(self, written: Future[int], later: Sequence[AppendRecord], loop: asyncio.AbstractEventLoop) -> None:
        """Put back what was not written, as seen by the thread that wrote."""
        error = written.exception()
        # The loop is closed if this was the last write: then the answers are repeated at the next start.
        with suppress(RuntimeError):
            if isinstance(error, LeaseLost):
                loop.call_soon_threadsafe(self._lost)
            elif error is not None and later:
                logger.warning("that messages were answered was not written, and will be again: %s", error)
                loop.call_soon_threadsafe(self._put_back, later)

    def _put_back(self, later: Sequence[AppendRecord]) -> None:
        self._later[:0] = later
        self._write_in(_RETRY * self._max_wait)

    def _closing(self, name: str) -> dict[str, Any]:
        return {"of": name, "failed": True} if name in self._without_reply else {"of": name}

    def _close(self, name: str) -> None:
        self._remember(self._known, name)
        self._open.pop(name, None)
        self._left.discard(name)
        self._begun.discard(name)
        self._results.pop(name, None)

    def _remember(self, names: dict[str, None], name: str) -> None:
        """Put a name after all others, and drop the oldest of too many.

        What a channel may still repeat is only the last of it, which its own position tells.
        """
        names.pop(name, None)
        names[name] = None
        self._names[_hash(name)] = name
        for one in [*islice(names, max(0, len(names) - 2 * self._max_records))]:
            self._drop(names, one)

    def _drop(self, names: dict[str, None], name: str) -> None:
        names.pop(name, None)
        self._without_reply.discard(name)
        if not self._is_known(name):
            self._names.pop(_hash(name), None)

    async def _rotate(self) -> bool:
        """Write everything that is open to the younger log again, and start the older one again as the younger.

        So are the names of what was answered last: it may come again, and open messages may have joined a turn
        of those. False if it could not be done.
        """
        if self._is_rotating:
            return False
        self._is_rotating = True
        try:
            carried = [AppendRecord("x.arrived", msgspec.to_builtins(arrived)) for arrived in self._open.values()]
            carried += [AppendRecord("x.done", {"of": name, "text": text}) for name, text in self._results.items()]
            carried += [AppendRecord("x.sending", {"of": name}) for name in self._begun]
            limit = min(self._max_records, _MAX_CARRIED)
            for name in [name for name in self._known if name not in self._open][-limit:]:
                why = {"failed": True} if name in self._without_reply else {}
                carried.append(AppendRecord("x.answered", {"of": name, **why}))
            await self._sessions.submit(self._young, carried)
            await anyio.to_thread.run_sync(self._sessions.delete, self._old)
            self._old, self._young, self._count = self._young, self._old, 0
            self._rotations += 1
            await self._append(AppendRecord("x.anew", {"turn": self._rotations}))
        except LeaseLost:
            self._lost()
            return False
        except StoreError:
            # The messages are safe; what is full is tried again with the next.
            logger.exception("the inbox could not be recreated")
            return False
        finally:
            self._is_rotating = False
        return True


def forget_answered(sessions: Sessions) -> bool:
    """Erase the text of answered messages in a store; False if a daemon serves it, which does so by itself."""
    hold = sessions.hold(KEYS[0])
    try:
        hold.take()
    except SessionBusy:
        return False
    try:
        inbox = Inbox(sessions, held=hold if sessions.is_shared else None)
        inbox.read()
        anyio.run(inbox.forget)
    finally:
        hold.close()
    return True


def _count_rotations(log: Sequence[Entry]) -> int:
    """How often the inbox had been rotated when a log was begun; -1 for an empty log. Clocks may go back."""
    found = [entry for entry in log if entry.kind.startswith("x.")]
    return int(found[0].data["turn"]) if found and found[0].kind == "x.anew" else min(len(found), 1) - 1


def name_of(arrived: InboundMessage) -> str:
    """The unique name of a message."""
    return msgspec.json.encode((arrived.channel, arrived.account, arrived.chat, arrived.id)).decode()


def id_of(arrived: InboundMessage) -> str:
    """The id of a message in its session: its name in a form that fits an idempotency key, however long that is."""
    return _hash(name_of(arrived))


def _hash(name: str) -> str:
    from hashlib import blake2b  # noqa: PLC0415 - brings OpenSSL along

    return blake2b(name.encode(), digest_size=16).hexdigest()
