"""The trash: where the files of removed sessions wait, and how they come back.

`trash/<name>.<uid>.<µs>.jsonl` is a log, with `.archived` before the ending if the session was archived; its cold and
quarantine files follow it under the same beginning. The log goes first and comes back last, so that a crash at any
point leaves a session that is either in the trash or not, and the rest is done by doing it again.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from typing import NamedTuple, Protocol

from nacre.errors import Conflict, SessionBusy, SessionNotFound, StoreError
from nacre.messages import TrashedSession
from nacre.records import View
from nacre.storage import blobs
from nacre.storage.change_marks import Marks
from nacre.storage.locks import KeyLock
from nacre.storage.maintenance import key_of_log, size_of_file
from nacre.storage.paths import (
    SessionPaths,
    TrashedPaths,
    key_of,
    listed,
    make_folder,
    settle_names,
    uids_in,
    unlink_if_there,
)
from nacre.storage.plain_names import path_now
from nacre.storage.protocol import Status
from nacre.storage.system import System, opened, wrap_error
from nacre.storage.view import reading

_NAME = re.compile(r"([^.]+)\.([0-9a-f]{32})\.(\d{1,18})(\.archived)?\.jsonl\Z")


class _Files(Protocol):
    """What the trash needs of its store."""

    @property
    def location(self) -> str: ...

    @property
    def system(self) -> System: ...

    @property
    def marks(self) -> Marks | None: ...

    def status(self, key: str) -> Status: ...

    def move(self, key: str, *, archive: bool) -> None: ...


class _Log(NamedTuple):
    """A log in the trash, and where it came from."""

    path: str
    stamp: str
    uid: str
    home: SessionPaths

    @property
    def followers(self) -> tuple[tuple[str, str], tuple[str, str]]:
        """The names of what follows it, in the trash and at home."""
        aside = f"{self.home.root}/trash/{self.home.name}.{self.uid}.{self.stamp}"
        home = self.home
        return (f"{aside}.cold.zst", home.cold(self.uid)), (f"{aside}.quarantine", home.quarantine(self.uid))


class Trash:
    """The trash of one store."""

    def __init__(self, files: _Files) -> None:
        self._files = files
        self._system = files.system
        self._root = files.location
        self._folder = f"{files.location}/trash"

    def put(self, key: str, uid: str | None) -> None:
        """Move every generation of a session here, or one archived generation, durably."""
        place = SessionPaths.of(self._root, key)
        with wrap_error(StoreError, f"session {key!r} was not moved to the trash, or not all of it"):
            stamp = str(int(self._system.now() * 1_000_000))
            archived = uids_in(self._system, f"{self._root}/archive", place.name)
            if uid is None and self._files.status(key) == "active":
                self._files.move(key, archive=True)
            make_folder(self._system, self._folder)
            with KeyLock(self._system, place):
                there = uids_in(self._system, f"{self._root}/archive", place.name)
                chosen = [one for one in there if uid in (None, one)]
                if not chosen:
                    raise SessionNotFound(f"there is no session {key!r} to move to the trash")
                for one in chosen:
                    ending = ".archived" * (one in archived)
                    path = f"{self._folder}/{place.name}.{one}.{stamp}{ending}.jsonl"
                    log = _Log(path, stamp, one, place._replace(archived=one))
                    # Give it its name in the trash while nobody else is at it, and let follow what belongs to it.
                    old = log.home.log
                    with opened(self._system, old, os.O_RDWR | os.O_NOFOLLOW) as fd:
                        self._system.flock(fd, wait=True)
                        if not os.path.samestat(self._system.fstat(fd), self._system.stat(old)):
                            raise SessionBusy(f"{old} was changed meanwhile\ntry again")
                        self._mark(log.home)
                        self._system.rename(old, log.path)
                    settle_names(self._system, self._folder)
                    settle_names(self._system, log.home.folder)
                    for aside, home in log.followers:
                        self._move(home, aside)

    def sessions(self, title_of: Callable[[View], str]) -> list[TrashedSession]:
        """What is here, the last removed first."""
        with wrap_error(StoreError, "the trash cannot be read"):
            files = sorted(listed(self._system, self._folder))
            groups: dict[str, list[_Log]] = {}
            for file in files:
                if (log := self._parse(file)) is not None:
                    groups.setdefault(f"{log.home.name}.{log.stamp}", []).append(log)
            found = []
            for id, logs in groups.items():
                beginnings = tuple(f"{log.home.name}.{log.uid}.{log.stamp}." for log in logs)
                paths = [f"{self._folder}/{file}" for file in files if file.startswith(beginnings)]
                # A session whose log cannot be read has no title.
                name, _, rest = os.path.basename(logs[-1].path).removesuffix(".jsonl").partition(".")
                title, place = "", TrashedPaths(self._root, "", name, rest)
                with suppress(OSError, StoreError), reading(self._system, place) as found_log:
                    title = title_of(found_log.view) if found_log.view is not None else ""
                session = TrashedSession(
                    id=id,
                    key=self._key(logs),
                    title=title,
                    removed=datetime.fromtimestamp(int(logs[0].stamp) / 1_000_000, UTC),
                    generations=tuple(log.uid for log in logs),
                    bytes=sum(size_of_file(self._system, path) for path in paths),
                )
                found.append(session)
        return sorted(found, key=lambda one: one.removed, reverse=True)

    def restore(self, id: str) -> None:
        """Bring a session back to where it was; raises Conflict if its key has an active session by now."""
        logs = self._logs(id)
        with (
            wrap_error(StoreError, f"{id} was not restored from the trash, or not all of it"),
            KeyLock(self._system, logs[0].home),
        ):
            for log in logs:
                self._refuse_taken(log)
            for log in logs:
                make_folder(self._system, log.home.folder)
                for aside, home in log.followers:
                    self._move(aside, home)
                try:
                    self._system.link(log.path, log.home.log)
                except FileExistsError:
                    # An earlier try may have come this far.
                    self._refuse_taken(log)
                # After the change: a reader who takes the mark finds the log.
                self._mark(log.home)
                settle_names(self._system, log.home.folder)
                self._system.unlink(log.path)
                settle_names(self._system, self._folder)

    def key_of(self, id: str) -> str:
        """The key of a session here; raises SessionNotFound if there is none."""
        return self._key(self._logs(id))

    def erase(self, id: str) -> bool:
        """Erase a session for good; another one of the same key stays, and False is returned if there is one."""
        logs = self._logs(id)
        with wrap_error(StoreError, f"{id} was not erased, or not all of it"), KeyLock(self._system, logs[0].home):
            for log in logs:
                if not self._is_same(log.path, log.home.log):
                    # Otherwise it is back already, and only its name in the trash was left by a crash.
                    self._erase_followers(log)
                unlink_if_there(self._system, log.path)
                settle_names(self._system, self._folder)
            return not any(file.startswith(f"{logs[0].home.name}.") for file in listed(self._system, self._folder))

    # ---- what is here

    def _logs(self, id: str) -> list[_Log]:
        with wrap_error(StoreError, "the trash cannot be read"):
            logs = [
                log for file in sorted(listed(self._system, self._folder)) if (log := self._parse(file)) is not None
            ]
        found = [log for log in logs if id == f"{log.home.name}.{log.stamp}"]
        if not found:
            raise SessionNotFound(f"there is no session {id!r} in the trash")
        return found

    def _parse(self, file: str) -> _Log | None:
        found = _NAME.match(file)
        if found is None:
            return None
        name, uid, stamp, archived = found.groups()
        return _Log(f"{self._folder}/{file}", stamp, uid, SessionPaths(self._root, "", name, uid if archived else ""))

    def _key(self, logs: list[_Log]) -> str:
        name = logs[0].home.name
        return key_of_log(self._system, logs[-1].path, name) or key_of(name) or name

    # ---- into it, and out of it

    def _move(self, old: str, new: str) -> None:
        """Move a file that may not be there, or may have been moved before a crash."""
        try:
            make_folder(self._system, os.path.dirname(new))
            self._system.rename(old, new)
        except FileNotFoundError:
            return
        settle_names(self._system, os.path.dirname(new))
        settle_names(self._system, os.path.dirname(old))

    def _refuse_taken(self, log: _Log) -> None:
        taken = path_now(self._system, log.home)
        if taken and not self._is_same(log.path, taken):
            key = self._key([log])
            raise Conflict(f"there is now an active session {key!r}\narchive or remove that one first")

    def _erase_followers(self, log: _Log) -> None:
        """Remove what follows a log, in the trash and, if a crash left it there, at home; and the past of a fork."""
        place, beginning = log.home, f"{log.home.name}.{log.uid}."
        base = f"{self._root}/base"
        paths = [path for names in log.followers for path in names]
        # It stayed there: whether it fits the log is seen when it is used.
        paths.append(place.ids(log.uid))
        paths += [f"{base}/{file}" for file in listed(self._system, base) if file.startswith(beginning)]
        for path in paths:
            unlink_if_there(self._system, path)
        links = [f"{place.blobs}/{file}" for file in listed(self._system, place.blobs) if file.startswith(beginning)]
        for link in links:
            blobs.release(self._system, link)
        for folder in {os.path.dirname(path) for path in (*paths, *links)}:
            with suppress(FileNotFoundError):
                settle_names(self._system, folder)

    def _is_same(self, one: str, other: str) -> bool:
        try:
            return os.path.samestat(self._system.stat(one), self._system.stat(other))
        except FileNotFoundError:
            return False

    def _mark(self, place: SessionPaths) -> None:
        if self._files.marks is not None:
            self._files.marks.leave(place.path)
