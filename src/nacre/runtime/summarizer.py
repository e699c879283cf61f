"""Summaries of long sessions, made in the background; only summarised messages leave the history."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TypeVar

import anyio
import anyio.to_thread
from msgspec import Struct, to_builtins
from msgspec.structs import replace

from nacre.agent.background import TaskOwner
from nacre.agent.ports import Context, Provider, Usage, ignore
from nacre.codec import message_of
from nacre.errors import Conflict, ContextOverflow, NacreError, ProviderError, SessionNotFound, describe_error
from nacre.history import session_state
from nacre.history.message_text import cut_middle
from nacre.history.tokens import count, estimate
from nacre.messages import Message, Snapshot
from nacre.records import AppendRecord, Rewind, Summarise, View
from nacre.sessions import Sessions
from nacre.summaries.judge import complaint
from nacre.summaries.plan import Limits, Plan, is_due, join_request, plan
from nacre.summaries.prompt import describe, instructions, pieces, question, shorten
from nacre.summaries.verbatim import gather, join_kept, split

logger = logging.getLogger(__name__)

T = TypeVar("T")

_OVERHEAD = 400
_MAX_PIECES = 16
_ATTEMPTS = 3
_MAX_WRITES = 50
_FAILURES, _MAX_REST = 3, 64
_MIN_PIECE = 200
_RETRY = "summary_retry"
"""In a session's meta: from which record on to try again, after a summary failed in a process that ended."""
_RECORDS_TO_RETRY = 12


class Draft(Struct, frozen=True, kw_only=True):
    """A summary: the text, what it covers, and the live tokens before and after it, about."""

    plan: Plan
    text: str
    before: int
    after: int

    @property
    def sentence(self) -> str:
        """What was done, for a person."""
        messages = f"{len(self.plan.covered)} earlier messages were summarised for the model"
        return f"{messages} (about {self.before:,} → {self.after:,} tokens); nothing is deleted"


class _Seen(Struct, frozen=True, kw_only=True):
    """A session when it was read; `uid` says which generation it was, `floor` and `sp` where its history begins."""

    uid: str
    messages: list[Message]
    numbers: list[int]
    summary: str
    floor: int
    sp: int


class _Work(Struct, frozen=True, kw_only=True):
    """What one summary is made with, and what it has cost so far."""

    provider: Provider
    limits: Limits
    focus: str
    usages: list[tuple[str, Usage]]

    @property
    def room(self) -> int:
        """The tokens of conversation that fit into one request, next to the record and the answer."""
        return max(self.limits.tokens - 2 * self.limits.prose - _OVERHEAD, _MIN_PIECE)


class _Breaker(Struct):
    """How often a session's summaries have failed in a row, and how many times to leave it alone."""

    failures: int = 0
    rest: int = 0

    def is_resting(self) -> bool:
        """Tell whether to leave it alone this time."""
        self.rest -= 1
        return self.rest >= 0

    def fail(self) -> None:
        self.failures += 1
        self.rest = min(2**self.failures, _MAX_REST) if self.failures >= _FAILURES else 0


class _NothingToSummarise(NacreError):
    """The session has only its last turn, which is never summarised."""


class Compactor(TaskOwner):
    """Makes summaries: automatically after turns, and on request.

    `provider` gives a session's model, `limits` how much it is shown; `check` raises if it must not be sent to it.
    `known` gives a session that need not be read to see whether it is due, None if it must be.
    Whatever fails, the messages stay live. Raises nothing into a conversation. `listeners` are notified of each summary
    that was made after a turn.
    """

    def __init__(
        self,
        sessions: Sessions,
        provider: Callable[[str], Provider],
        *,
        limits: Callable[[str], Limits] = lambda _: Limits(),
        check: Callable[[str], None] = lambda _: None,
        known: Callable[[str], Snapshot | None] = lambda _: None,
    ) -> None:
        self._sessions, self._provider, self._limits, self._check = sessions, provider, limits, check
        self._known = known
        self._breakers: dict[str, _Breaker] = {}
        self._posted: set[str] = set()
        self._running: set[str] = set()
        self._made: set[str] = set()
        self._settled = anyio.Event()
        self._one = anyio.Semaphore(1)
        self.listeners: list[Callable[[str, Draft], None]] = []

    async def finish(self, key: str) -> None:
        """Wait for the summary that a session that was posted is due for; for a process that ends after its turn.

        One that fails is not tried again, and not waited for, before some more was said.
        """
        now = await self._snapshot(key)
        if _is_too_early(now):
            return
        while key in self._running:
            await self._settled.wait()
        if key in self._breakers or _RETRY in now.meta:
            retry = now.n + _RECORDS_TO_RETRY if key in self._breakers else None
            await anyio.to_thread.run_sync(lambda: self._sessions.set_meta(key, {_RETRY: retry}))

    def post(self, key: str) -> None:
        """Check a session in the background, and summarise it if it is near a limit."""
        if self._tasks is None:
            raise NacreError("the compactor is not running")
        self._posted.add(key)
        if key not in self._running:
            self._running.add(key)
            self._made.discard(key)
            self._tasks.start_soon(self._run, key, name=f"summary of {key}")

    async def make_room(self, key: str) -> str | None:
        """Summarise a session whose next request does not fit, if need be inside its last turn.

        Gives a sentence about it for a person, "" if listeners have reported it, and None if it was not summarised.
        Raises nothing: without a summary, the oldest messages are left out.
        """
        if key in self._running:
            while key in self._running:
                await self._settled.wait()
            if key in self._made:
                return ""
        now = await self._snapshot(key)
        if _is_too_early(now):
            return None
        draft = await self._summarise(key, inside=True)
        return draft.sentence if draft is not None else None

    async def preview(self, key: str, focus: str = "") -> Draft:
        """The summary that `compact` would put in force; asks the model and stores nothing."""
        return (await self._draft(key, await self._read(key), focus, everything=True))[0]

    async def compact(self, key: str, focus: str = "") -> Draft:
        """Summarise all but the last turn now, with everything in full that has to do with `focus`.

        Raises ProviderError if the model does not give a summary, Conflict if the history keeps changing,
        SessionNotFound, and NacreError if there is nothing to summarise.
        """
        draft = await self._compact(key, focus, everything=True)
        self._breakers.pop(key, None)
        return draft

    async def undo(self, key: str) -> int:
        """Take the last summary back: what it covers is live again, and so is what was said since.

        In one step. Returns how many messages are live again; raises Conflict if the history was changed otherwise.
        """
        return await anyio.to_thread.run_sync(_undo, self._sessions, key)

    # ---- in the background

    async def _run(self, key: str) -> None:
        try:
            while key in self._posted:
                self._posted.discard(key)
                async with self._one:
                    limits = self._limits(key)
                    now = await self._snapshot(key, last=limits.messages)
                    is_near = is_due(now.messages, live=now.live, summary=now.summary, limits=limits)
                    draft = await self._summarise(key) if is_near else None
                if draft is not None:
                    self._made.add(key)
                    for listen in self.listeners:
                        listen(key, draft)
        except Exception:
            # Nobody waits for this; the conversation goes on with what is live.
            logger.exception("could not summarise a session", extra={"session": key})
        finally:
            self._running.discard(key)
            self._settled.set()
            self._settled = anyio.Event()

    async def _snapshot(self, key: str, *, last: int = 0) -> Snapshot:
        if (now := self._known(key)) is not None:
            start = max(len(now.messages) - last, 0)
            return replace(now, messages=now.messages[start:], numbers=now.numbers[start:])
        return await anyio.to_thread.run_sync(lambda: self._sessions.snapshot(key, last=last))

    async def _summarise(self, key: str, *, inside: bool = False) -> Draft | None:
        """Summarise a session; None if there is nothing to, or it fails, or has failed too often lately."""
        breaker = self._breakers.get(key) or _Breaker()
        if breaker.is_resting():
            return None
        try:
            draft = await self._compact(key, "", everything=False, inside=inside)
        except _NothingToSummarise:
            return None
        except Exception as error:  # noqa: BLE001 - nobody waits for it; whatever fails is not tried again at once
            breaker.fail()
            self._breakers[key] = breaker
            logger.warning(
                "could not summarise this session; all of it is kept",
                extra={"session": key, "error": describe_error(error)},
            )
            return None
        self._breakers.pop(key, None)
        return draft

    # ---- one summary

    async def _compact(self, key: str, focus: str, *, everything: bool, inside: bool = False) -> Draft:
        """Read, summarise, store; start again if the history has changed in a way that matters."""
        for attempt in range(1, _ATTEMPTS + 1):
            seen = await self._read(key)
            draft, usages = await self._draft(key, seen, focus, everything=everything, inside=inside)
            try:
                await anyio.to_thread.run_sync(_store, self._sessions, key, seen, draft, usages)
            except Conflict:
                if attempt == _ATTEMPTS:
                    raise
                continue
            await anyio.to_thread.run_sync(self._sessions.save, key)
            return draft
        raise AssertionError  # pragma: no cover - the last attempt returns or raises

    async def _read(self, key: str) -> _Seen:
        def read(view: View) -> _Seen:
            records = list(session_state.newest(view))[::-1]
            return _Seen(
                uid=view.uid,
                messages=[message_of(record, view) for record in records],
                numbers=[record.n for record in records],
                summary=session_state.summary(view, view.state),
                floor=view.state.i - view.state.live,
                sp=view.state.sp,
            )

        found = await anyio.to_thread.run_sync(self._sessions.read, key, read)
        if found is None:
            raise SessionNotFound(f"there is no session {key!r}")
        return found

    async def _draft(
        self, key: str, seen: _Seen, focus: str, *, everything: bool, inside: bool = False
    ) -> tuple[Draft, list[tuple[str, Usage]]]:
        self._check(key)
        work = _Work(provider=self._provider(key), limits=self._limits(key), focus=focus, usages=[])
        reach = _MAX_PIECES * work.room
        chosen = plan(
            seen.messages,
            seen.numbers,
            summary=seen.summary,
            limits=work.limits,
            everything=everything,
            inside=inside,
            reach=reach,
        )
        if chosen is None:
            raise _NothingToSummarise(f"there is nothing to summarise in {key!r} yet: it has only the last turn")
        record, kept = split(chosen.summary)
        ended = [Message(role="user", content=chosen.ended)] if chosen.ended else []
        said = [*ended, *chosen.covered]
        # A single turn can be longer than all that a summary may cost: of its longest messages the ends are shown.
        for piece in pieces(shorten(describe(said), tokens=reach), tokens=work.room):
            record = await _extend(work, record, piece)
        # Inside a turn the words that are being answered come first; they and what else is kept share the room.
        limit = work.limits.kept_texts
        request = cut_middle(chosen.request, limit * 3 // 4)
        kept = gather(kept, said, tokens=min(limit - count(request), limit // 3) if request else limit)
        text = join_request(join_kept(record, kept), request)
        before = count(seen.summary) + sum(map(estimate, seen.messages))
        after = count(text) + sum(map(estimate, seen.messages[len(chosen.covered) :]))
        return Draft(plan=chosen, text=text, before=before, after=after), work.usages


async def _extend(work: _Work, record: str, piece: str) -> str:
    """The record with a piece of the conversation taken in; in smaller pieces if that is too long for the model."""
    try:
        return await _ask(work, record, piece)
    except ContextOverflow:
        size = count(piece)
        if size < _MIN_PIECE:
            raise
        for part in pieces([piece], tokens=size // 2):
            record = await _extend(work, record, part)
        return record


async def _ask(work: _Work, record: str, piece: str) -> str:
    """Ask the model; raises ProviderError if what it answers is no summary."""
    provider, limit = work.provider, work.limits.prose
    asked = Message(role="user", content=question(record, piece, focus=work.focus))
    try:
        reply = await provider.complete(Context(system=instructions(limit // 2), messages=[asked]), emit=ignore)
    except NacreError:
        raise
    except Exception as error:
        # Whatever a provider raises is no reason to ask it again at once, nor to end a conversation.
        raise ProviderError(
            f"{provider.model} could not be asked for a summary; the messages stay as they are"
        ) from error
    if reply.usage is not None:
        work.usages.append((reply.message.model or provider.model, reply.usage))
    answer = reply.message.content if isinstance(reply.message.content, str) else ""
    fault = complaint(answer.strip(), tokens=limit, said=f"{record}\n{piece}")
    if reply.finish != "stop" or reply.message.tool_calls:
        fault = "it was cut off" if reply.finish == "length" else "it calls a tool"
    if fault:
        refused = ProviderError(
            f"the summary of {provider.model} cannot be used: {fault}; the messages stay as they are"
        )
        refused.summary = f"the summary of {provider.model} cannot be used"
        raise refused
    return answer.strip()


def _is_too_early(now: Snapshot) -> bool:
    """Tell whether a summary has failed so lately that it is not tried yet; anybody may write the meta of a session."""
    retry = now.meta.get(_RETRY)
    return isinstance(retry, int) and now.n < retry


# ---- reading and writing, in a thread


def _store(sessions: Sessions, key: str, seen: _Seen, draft: Draft, usages: list[tuple[str, Usage]]) -> None:
    """Put a summary in force if what it is built on is as it was; what was said meanwhile changes nothing.

    Raises Conflict if the covered messages or the summary before are not what they were.
    """
    summary = Summarise(draft.text, draft.plan.upto)
    built_on = (seen.uid, seen.floor, seen.sp)

    def now(view: View) -> tuple[tuple[str, int, int], int]:
        return (view.uid, view.state.i - view.state.live, view.state.sp), view.state.h

    for _ in range(_MAX_WRITES):
        found = sessions.read(key, now)
        if found is None or found[0] != built_on:
            raise Conflict(f"session {key!r} was changed while it was summarised")
        try:
            # Whatever comes between that look and this write makes it look again.
            number = sessions.update(key, [summary], expect=found[1])
        except Conflict:
            continue
        if not number:
            raise Conflict(f"session {key!r} is no longer active")
        # What the summary cost.
        notes = [
            AppendRecord("use", {"model": model, "for": "summary", **to_builtins(usage)}) for model, usage in usages
        ]
        if notes:
            sessions.update(key, notes)
        return
    raise Conflict(f"session {key!r} is being written to constantly; try again later")


def _undo(sessions: Sessions, key: str) -> int:
    def look(view: View) -> tuple[int, int, list[Message], int]:
        """Where to go back to, what to expect, what has been said since, and how many messages are live."""
        record = view.find(view.state.sp) if view.state.sp else None
        if record is None:
            raise NacreError("there is no summary to undo")
        then = [message.n for message in session_state.chain(view, record.st)][::-1]
        now = list(session_state.newest(view))[::-1]
        if [message.n for message in now[: len(then)]] != then:
            raise NacreError("the history was changed since the summary; `rewind` goes back to any record")
        later = [message_of(message, view) for message in now[len(then) :]]
        return record.n - 1, view.state.h, later, len(now)

    for _ in range(_MAX_WRITES):
        found = sessions.read(key, look)
        if found is None:
            raise SessionNotFound(f"there is no session {key!r}")
        to, expect, later, live = found
        try:
            number = sessions.update(key, [Rewind(to), *later], expect=expect)
        except Conflict:
            continue
        if not number:
            raise SessionNotFound(f"there is no active session {key!r}")
        return (sessions.read(key, lambda view: view.state.live) or 0) - live
    raise Conflict(f"session {key!r} is being written to constantly; try again later")
