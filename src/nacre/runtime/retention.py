"""Old sessions: archived when nobody has written to them for long, and into the trash when they were archived long ago.

Nothing of it happens unless it is set. Every act is written down in `receipts/retention.jsonl` before it begins and
when it is done, so that whatever is killed in between is found by the next run.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Literal, Self

import anyio
import msgspec
from anyio import from_thread, to_thread
from msgspec import Struct

from nacre.config import Settings
from nacre.errors import ConfigError, Conflict, NacreError, SessionBusy, StoreError, describe_error
from nacre.messages import GenerationInfo
from nacre.runtime.app import App
from nacre.sessions import Sessions

logger = logging.getLogger(__name__)

_JOURNAL = "retention"
_SPAN = re.compile(r"(\d{1,5})([hdwy])\Z")
_HOURS = {"h": 1, "d": 24, "w": 7 * 24, "y": 365 * 24}
_MAX_HOURS = 1000 * _HOURS["y"]
_FIRST, _EVERY = 300.0, 86_400.0

Sleep = Callable[[float], Awaitable[None]]
Clock = Callable[[], datetime]


def utc_now() -> datetime:
    return datetime.fromtimestamp(time.time(), UTC)


class Rules(Struct, frozen=True, kw_only=True):
    """After how long a session is archived, and an archived one goes to the trash; None: never."""

    archive_after: timedelta | None = None
    delete_after: timedelta | None = None

    @classmethod
    def of(cls, settings: Settings) -> Rules:
        """What is set; raises ConfigError for what is not a duration."""
        keys = ("archive_after", "delete_after")
        return cls(**{key: span(settings.text(f"retention.{key}"), f"retention.{key}") for key in keys})

    def __bool__(self) -> bool:
        return self.archive_after is not None or self.delete_after is not None


def span(text: str, name: str) -> timedelta | None:
    """Read a span such as `90d`; None for nothing."""
    if not text:
        return None
    found = _SPAN.match(text)
    hours = 0 if found is None else int(found[1]) * _HOURS[found[2]]
    if not 0 < hours <= _MAX_HOURS:
        raise ConfigError(f"{name} is a duration such as 12h, 90d, 8w or 1y, or nothing; not {text!r}")
    return timedelta(hours=hours)


class Act(Struct, frozen=True, kw_only=True):
    """One thing to do: with which life of which session, and since when it is so."""

    act: Literal["archive", "delete"]
    key: str
    uid: str
    since: datetime
    bytes: int = 0

    @property
    def why(self) -> str:
        what = "nothing was written" if self.act == "archive" else "it was archived, and nothing changed"
        return f"{what} since {self.since:%Y-%m-%d}"


class Left(NacreError):
    """A session that was due is skipped: it changed meanwhile, or it is in use."""


# ---- what is due


def due(sessions: Sessions, rules: Rules, *, clock: Clock = utc_now) -> list[Act]:
    """What would be done now, the oldest first; sessions with `pinned` in their meta are never due.

    Internal sessions are not archived, since that would make the agent forget; what was archived of one is removed.
    """
    moment = clock()
    found: list[Act] = []
    if rules.archive_after is not None:
        before = moment - rules.archive_after
        for info in sessions.list():
            now = _look(sessions, info.key) if info.updated < before else None
            if now is not None and now.updated < before:
                found.append(_archiving(now))
    if rules.delete_after is not None:
        # Lives whose file nobody has touched since: to be put into the archive counts, or to come out of a backup.
        before = moment - rules.delete_after
        for info in sessions.list(archived=True, internal=True):
            now = _look(sessions, info.key, info.generation) if info.updated < before else None
            if now is not None and now.changed < before and not _is_pinned(sessions, info.key):
                since = max(now.changed, now.updated)
                found.append(msgspec.structs.replace(_archiving(now), act="delete", since=since))
    return sorted(found, key=lambda act: (act.since, act.key))


def _archiving(found: GenerationInfo) -> Act:
    return Act(act="archive", key=found.key, uid=found.generation, since=found.updated, bytes=found.bytes)


def _is_pinned(sessions: Sessions, key: str) -> bool:
    found = sessions.generation(key)
    return found is not None and found.pinned


def _look(sessions: Sessions, key: str, uid: str = "") -> GenerationInfo | None:
    """A life of a session as it is now; None if it is pinned, or cannot be read."""
    try:
        found = sessions.generation(key, uid)
    except StoreError as error:
        logger.warning(
            "a session cannot be read and is skipped", extra={"session": key, "error": describe_error(error)}
        )
        return None
    return None if found is None or found.pinned else found


# ---- doing it


class Keeper:
    """Does what is due in one store; for as long as it is open, no other process does."""

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions
        self._receipts = sessions.journal(_JOURNAL)

    def __enter__(self) -> Self:
        try:
            self._receipts.__enter__()
        except SessionBusy as error:
            where = self._sessions.location
            raise SessionBusy(f"another process is applying retention in {where}") from error
        # An earlier run may have been killed in an act: say what became of it.
        with suppress(msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            last = msgspec.json.decode(self._receipts.last(), type=Receipt)
            if last.state == "begun":
                is_archived = self._sessions.generation(last.key, last.uid) is not None
                is_done = is_archived if last.act == "archive" else not is_archived
                why = "" if is_done else f"{last.why}; but it was interrupted"
                self._add(_now(last, "done" if is_done else "left", why))
        return self

    def __exit__(self, *_: object) -> None:
        self._receipts.__exit__()

    def do(self, act: Act) -> None:
        """Do one thing, with a receipt; raises Left if it is not due any more, and StoreError if it cannot be done."""
        fields = {"act": act.act, "key": act.key, "uid": act.uid, "why": act.why, "bytes": act.bytes}
        receipt = _now(Receipt(ts="", state="begun", **fields), "begun")  # type: ignore[arg-type] # each of its kind
        self._add(receipt)
        hold = self._sessions.hold(act.key)
        try:
            try:
                hold.take()
            except SessionBusy as error:
                raise Left(str(error)) from error
            try:
                self._archive(act) if act.act == "archive" else self._delete(act)
            finally:
                hold.close()
        except BaseException as error:
            self._add(_now(receipt, "left", f"{receipt.why}; but {error}"))
            raise
        self._add(_now(receipt, "done"))

    def _archive(self, act: Act) -> None:
        found = _look(self._sessions, act.key)
        if found is None or _archiving(found) != act:
            raise Left("it was changed meanwhile")
        self._sessions.archive(act.key)
        moved = _look(self._sessions, act.key, act.uid)
        if moved is None or moved.updated != act.since:
            # Somebody wrote between our look and the move: it belongs back, unless a new one has begun.
            try:
                self._sessions.unarchive(act.key)
            except Conflict:
                return
            raise Left("it was changed meanwhile")

    def _delete(self, act: Act) -> None:
        found = _look(self._sessions, act.key, act.uid)
        if found is None or found.changed > act.since or _is_pinned(self._sessions, act.key):
            raise Left("it was changed meanwhile")
        self._sessions.move_to_trash(act.key, generation=act.uid)

    def _add(self, receipt: Receipt) -> None:
        self._receipts.add(msgspec.json.encode(receipt))


# ---- receipts


class Receipt(Struct, frozen=True, kw_only=True):
    """A line of the receipts: what, with what, why, and how far it came."""

    ts: str
    act: str
    state: Literal["begun", "done", "left"]
    key: str
    uid: str
    why: str
    bytes: int


def _now(receipt: Receipt, state: Literal["begun", "done", "left"], why: str = "") -> Receipt:
    ts = f"{utc_now().isoformat(timespec='milliseconds')[:-6]}Z"
    return msgspec.structs.replace(receipt, ts=ts, state=state, why=why or receipt.why)


# ---- the daemon's


async def keep(agents: Mapping[str, App], *, sleep: Sleep = anyio.sleep, clock: Clock = utc_now) -> None:
    """Apply retention for every agent, some minutes after the start and then once a day."""
    await sleep(_FIRST)
    while True:
        for name, app in list(agents.items()):
            # While the store cannot be used, what stands in for it archives nothing.
            if app.sessions.is_durable and not app.trouble and not app.is_ending:
                await to_thread.run_sync(_apply, name, app, clock)
        await sleep(_EVERY)


def _apply(name: str, app: App, clock: Clock) -> None:
    """Do what is due in an agent's store; what cannot be done is logged and left for tomorrow."""
    done = {"archive": 0, "delete": 0}
    try:
        acts = due(app.sessions, rules, clock=clock) if (rules := Rules.of(app.settings)) else []
        if not acts:
            return
        with Keeper(app.sessions) as keeper:
            for act in acts:
                from_thread.check_cancelled()
                try:
                    keeper.do(act)
                    done[act.act] += 1
                except (NacreError, OSError) as error:
                    extra = {"session": act.key, "error": describe_error(error)}
                    logger.info("retention skipped a session", extra=extra)
    except Exception:
        # What is wrong with an old session must not end the service of all others.
        logger.exception("retention failed", extra={"agent": name})
    logger.info("retention finished", extra={"agent": name, **done})
