"""Old sessions: archived when nobody has written to them for long, and into the trash when they were archived long ago.

Nothing of it happens unless it is set. Every act is written down in `receipts/retention.jsonl` before it begins and
when it is done, so that whatever is killed in between is found by the next run.
"""

from __future__ import annotations

import logging
import os
import re
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Literal, Self

import anyio
import msgspec
from anyio import from_thread, to_thread
from msgspec import Struct

from nacre.app.running import App
from nacre.config import Settings
from nacre.entries import Past, parse_time
from nacre.errors import ConfigError, Conflict, NacreError, SessionBusy, StoreError, describe_error
from nacre.history import live
from nacre.log.names import key_of, stem
from nacre.log.ops import Ops
from nacre.log.place import Place, make_folder, settle_names, write_all
from nacre.log.reader import reading
from nacre.sessions import Sessions

logger = logging.getLogger(__name__)

RECEIPTS = "receipts/retention.jsonl"
_SPAN = re.compile(r"(\d{1,5})([hdwy])\Z")
_HOURS = {"h": 1, "d": 24, "w": 7 * 24, "y": 365 * 24}
_LONGEST = 1000 * _HOURS["y"]
_FIRST, _EVERY = 300.0, 86_400.0

Discard = Callable[[Place], None]
"""Move an archived generation to the trash, durably."""
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
    if not 0 < hours <= _LONGEST:
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
        found += _to_archive(sessions, before=moment - rules.archive_after)
    if rules.delete_after is not None:
        found += _to_delete(sessions.location, before=moment - rules.delete_after)
    return sorted(found, key=lambda act: (act.since, act.key))


def _to_archive(sessions: Sessions, *, before: datetime) -> Iterator[Act]:
    for info in sessions.list():
        if info.updated < before:
            act = _seen(Place.of(sessions.location, info.key))
            if act is not None and act.since < before:
                yield act


def _to_delete(root: str, *, before: datetime) -> Iterator[Act]:
    """Lives whose file nobody has touched since: to be put into the archive counts, or to come out of a backup."""
    try:
        files = sorted(os.listdir(f"{root}/archive"))  # noqa: PTH208 - a path is text here
    except FileNotFoundError:
        return
    for file in files:
        name, _, uid = file.removesuffix(".jsonl").partition(".")
        place = Place(root, "", name, uid)
        if file.endswith(".jsonl") and (touched := _touched(place)) < before:
            act = _seen(place)
            if act is not None and not _is_pinned(Place.of(root, act.key)):
                yield msgspec.structs.replace(act, act="delete", since=max(touched, act.since))


def _touched(place: Place) -> datetime:
    """When a log was last written, renamed or linked; later than anything if it is gone."""
    try:
        return datetime.fromtimestamp(os.lstat(place.log).st_ctime, UTC)
    except FileNotFoundError:
        return datetime.max.replace(tzinfo=UTC)


def _is_pinned(place: Place) -> bool:
    with reading(Ops(), place) as found:
        return found.past is not None and _has_pin(found.past)


def _has_pin(past: Past) -> bool:
    return bool(live.meta(past, past.state).get("pinned"))


def _seen(place: Place) -> Act | None:
    """A life of a session as it is now, as something to archive; None if it is pinned, or cannot be read."""
    try:
        with reading(Ops(), place) as found:
            if found.past is None or _has_pin(found.past):
                return None
            header = found.past.header
            key = place.key or header.sid or key_of(place.name)
            if key is None or stem(key) != place.name:
                return None
            since, size = parse_time(found.updated), found.size + header.cold
            return Act(act="archive", key=key, uid=header.uid, since=since, bytes=size)
    except (OSError, StoreError) as error:
        logger.warning(
            "a session cannot be read and is skipped",
            extra={"file": place.log, "error": describe_error(error)},
        )
        return None


# ---- doing it


class Keeper:
    """Does what is due in one store; for as long as it is open, no other process does."""

    def __init__(self, sessions: Sessions, discard: Discard) -> None:
        self._sessions = sessions
        self._discard = discard
        self._receipts = _Receipts(sessions.location)

    def __enter__(self) -> Self:
        self._receipts.open()
        return self

    def __exit__(self, *_: object) -> None:
        self._receipts.close()

    def do(self, act: Act) -> None:
        """Do one thing, with a receipt; raises Left if it is not due any more, and StoreError if it cannot be done."""
        with self._receipts.of(act):
            hold = self._sessions.hold(act.key)
            try:
                hold.take()
            except SessionBusy as error:
                raise Left(str(error)) from error
            try:
                self._archive(act) if act.act == "archive" else self._delete(act)
            finally:
                hold.close()

    def _archive(self, act: Act) -> None:
        place = Place.of(self._sessions.location, act.key)
        if _seen(place) != act:
            raise Left("it was changed meanwhile")
        self._sessions.archive(act.key)
        moved = _seen(place._replace(archived=act.uid))
        if moved is None or moved.since != act.since:
            # Somebody wrote between our look and the move: it belongs back, unless a new one has begun.
            try:
                self._sessions.unarchive(act.key)
            except Conflict:
                return
            raise Left("it was changed meanwhile")

    def _delete(self, act: Act) -> None:
        place = Place.of(self._sessions.location, act.key, archived=act.uid)
        if _touched(place) > act.since or _seen(place) is None or _is_pinned(place._replace(archived="")):
            raise Left("it was changed meanwhile")
        self._discard(place)


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


class _Receipts:
    """A file of JSON lines, held by one process at a time."""

    def __init__(self, root: str) -> None:
        self._root = root
        self._path = f"{root}/{RECEIPTS}"
        self._ops = Ops()
        self._fd = -1

    def open(self) -> None:
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW
        try:
            make_folder(self._ops, os.path.dirname(self._path))  # noqa: PTH120 - the same
            self._fd = self._ops.open(self._path, flags)
            if not self._ops.flock(self._fd, wait=False):
                self.close()
                raise SessionBusy(f"another process is applying retention in {self._root}")
            settle_names(self._ops, os.path.dirname(self._path))  # noqa: PTH120 - the same
            self._finish()
        except OSError as error:
            self.close()
            raise StoreError(f"{self._path} cannot be written: {error}") from error

    def close(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            self._ops.close(fd)

    @contextmanager
    def of(self, act: Act) -> Iterator[None]:
        receipt = _receipt(act)
        self._add(receipt)
        try:
            yield
        except BaseException as error:
            self._add(_now(receipt, "left", f"{receipt.why}; but {error}"))
            raise
        self._add(_now(receipt, "done"))

    def _add(self, receipt: Receipt) -> None:
        """Append a line, durably; a torn one before it is ended first."""
        size = self._ops.fstat(self._fd).st_size
        is_torn = size > 0 and self._ops.pread(self._fd, 1, size - 1) != b"\n"
        line = msgspec.json.encode(receipt) + b"\n"
        write_all(self._ops, self._fd, b"\n" + line if is_torn else line)
        self._ops.fdatasync(self._fd)

    def _finish(self) -> None:
        """Say what became of the act that an earlier run was killed in."""
        last = self._last()
        if last is not None and last.state == "begun":
            is_done = _is_done(self._root, last)
            self._add(
                _now(last, "done" if is_done else "left", "" if is_done else f"{last.why}; but it was interrupted")
            )

    def _last(self) -> Receipt | None:
        size = self._ops.fstat(self._fd).st_size
        lines = self._ops.pread(self._fd, min(size, 1 << 16), max(0, size - (1 << 16))).splitlines()
        try:
            return msgspec.json.decode(lines[-1], type=Receipt) if lines else None
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return None


def _receipt(act: Act) -> Receipt:
    fields = {"act": act.act, "key": act.key, "uid": act.uid, "why": act.why, "bytes": act.bytes}
    return _now(Receipt(ts="", state="begun", **fields), "begun")  # type: ignore[arg-type] # each of its kind


def _now(receipt: Receipt, state: Literal["begun", "done", "left"], why: str = "") -> Receipt:
    ts = f"{utc_now().isoformat(timespec='milliseconds')[:-6]}Z"
    return msgspec.structs.replace(receipt, ts=ts, state=state, why=why or receipt.why)


def _is_done(root: str, receipt: Receipt) -> bool:
    archived = os.path.exists(Place.of(root, receipt.key, archived=receipt.uid).log)  # noqa: PTH110 - the same
    return archived if receipt.act == "archive" else not archived


# ---- the daemon's


async def keep(
    agents: Mapping[str, App], discard: Discard, *, sleep: Sleep = anyio.sleep, clock: Clock = utc_now
) -> None:
    """Look after the old sessions of every agent, some minutes after the start and then once a day."""
    await sleep(_FIRST)
    while True:
        for name, app in list(agents.items()):
            if os.path.isabs(app.sessions.location) and not app.is_ending:  # noqa: PTH117 - the same
                await to_thread.run_sync(_look_after, name, app, discard, clock)
        await sleep(_EVERY)


def _look_after(name: str, app: App, discard: Discard, clock: Clock) -> None:
    """Do what is due in an agent's store; what cannot be done is logged and left for tomorrow."""
    done = {"archive": 0, "delete": 0}
    try:
        acts = due(app.sessions, rules, clock=clock) if (rules := Rules.of(app.settings)) else []
        if not acts:
            return
        with Keeper(app.sessions, discard) as keeper:
            for act in acts:
                from_thread.check_cancelled()
                done[act.act] += _is_kept(keeper, act)
    except Exception:
        # What is wrong with an old session must not end the service of all others.
        logger.exception("retention failed", extra={"agent": name})
    logger.info("retention finished", extra={"agent": name, **done})


def _is_kept(keeper: Keeper, act: Act) -> bool:
    try:
        keeper.do(act)
    except (NacreError, OSError) as error:
        logger.info("retention skipped a session", extra={"session": act.key, "error": describe_error(error)})
        return False
    return True
