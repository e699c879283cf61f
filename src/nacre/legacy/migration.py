"""Bringing earlier sessions into the store: each whole or not at all, and the originals kept."""

from __future__ import annotations

import errno
import logging
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from itertools import accumulate
from typing import Any

import msgspec
from msgspec import Struct

from nacre.codec import timestamp
from nacre.errors import Conflict, LogDamaged, Refused, StoreError, describe_error
from nacre.history import alias_table, session_state
from nacre.history.session_state import RULES
from nacre.keys import is_internal
from nacre.legacy import formats
from nacre.legacy.detect import DONE, LOCK, is_due
from nacre.legacy.documents import NOTE, Legacy, Unreadable, describe
from nacre.legacy.formats import Source, contents
from nacre.legacy.merge import Outcome, Plan, Planner, holds, is_contained, knows
from nacre.records import AppendRecord, Transaction, View
from nacre.storage.file_store import FileStore
from nacre.storage.paths import SessionPaths, key_of, settle_names, write_all
from nacre.storage.plain_names import has_plain_name, rename_plain

logger = logging.getLogger(__name__)

Progress = Callable[[int, int], None]
"""Called after each file with the bytes looked at so far, and the bytes in all."""

_AT_ONCE = 64
"""How many logs are renamed together, with one flush of their folder."""

_SENTENCES = {
    "unreadable": "cannot be read and was left as it is: {detail}; correct it, or move it out of the store",
    "failed": "could not be migrated and was left as it is: {detail}; the next start tries again",
    "separate": "is now session {key!r}, since another session has its key",
}

_CarryOut = Callable[[Plan, Legacy, Source], str]
_NOT_WRITABLE = (errno.ENOSPC, errno.EDQUOT, errno.EROFS)


class Migrated(Struct, frozen=True, kw_only=True):
    """What became of one file.

    `migrated`: it is a session now. `separate`: under a new key, since its own was taken by another session.
    `appended`: it went on where a session ended. `finished`: all of it was in the store already. `empty`: there was
    nothing in it. `unreadable`, `failed`: it was left as it is, and `detail` says why.
    """

    file: str
    key: str = ""
    outcome: Outcome
    messages: int = 0
    set_aside: int = 0
    detail: str = ""


class Migration(Struct, frozen=True, kw_only=True):
    """What became of every file that held an earlier session; `ok` when none was left as it was.

    `unknown` are the other files of the directory, and `is_known` tells whether anything in it is an earlier agent's,
    or was before it was migrated.
    """

    report: tuple[Migrated, ...] = ()
    unknown: tuple[str, ...] = ()
    is_known: bool = True

    @property
    def ok(self) -> bool:
        return all(migrated.outcome not in ("unreadable", "failed") for migrated in self.report)


def migrate(
    store: FileStore,
    directory: str | os.PathLike[str],
    *,
    dry_run: bool = False,
    progress: Progress | None = None,
    follows_names: bool = False,
) -> Migration:
    """Bring every earlier session in a directory, or in its `sessions`, into the store.

    With `follows_names`, one whose key is another name of a session in the store is appended to that.

    It may be killed at any point and run again: nothing is lost, and nothing comes twice. Raises Refused if the store
    cannot be written; what was not migrated by then is as it was.
    """
    place = os.path.abspath(directory)  # noqa: PTH100 - paths are text here
    walk = _Walk(store, place, progress, follows_names=follows_names)
    if dry_run:
        return walk.summarize(tuple(walk.preview()))
    with _lock_migrations(store, walk.directory):
        AliasTable(store).restore()
        return walk.summarize(tuple(walk.run()))


def migrate_into(root: str, directory: str, *, dry_run: bool, progress: Progress) -> Migration:
    """Migrate a directory into the store at a place; where there is none yet, a dry run makes none."""
    with ExitStack() as stack:
        if dry_run and not os.path.isdir(f"{root}/sessions"):  # noqa: PTH112 - paths are text here
            from tempfile import TemporaryDirectory  # noqa: PLC0415 - for dry runs; a start may come here

            root = stack.enter_context(TemporaryDirectory())
        store = stack.enter_context(closing(FileStore(root, rules=RULES)))
        return migrate(store, directory, dry_run=dry_run, progress=progress)


def migrate_at_start(store: FileStore) -> Migration:
    """Migrate what an earlier agent, or the fallback, left in the store's own directory; usually that is nothing.

    Raises Refused as `migrate` does.
    """
    if not is_due(store.system, store.location):
        return Migration()
    walk = _Walk(store, store.location, None)
    try:
        with _lock_migrations(store, store.location) as is_settled:
            found = Migration(report=tuple(walk.run(is_settled=is_settled)))
    except Refused:
        # A store that may only be read can be opened, if nothing in it waits to be migrated.
        if any(walk.preview()):
            raise
        return Migration()
    for one in found.report:
        # Say for people what became of a file, and what they can do.
        sentence = _SENTENCES.get(one.outcome, "was found: {outcome}").format(**msgspec.to_builtins(one))
        path = one.file if one.file.startswith("/") else f"{store.location}/{one.file}"
        level = logging.WARNING if one.outcome in _SENTENCES else logging.INFO
        extra = {"migrated": msgspec.to_builtins(one)}
        logger.log(level, "%s, a session of an earlier agent, %s", path, sentence, extra=extra)
    return found


class _Walk:
    """One walk over the files of a directory."""

    def __init__(
        self, store: FileStore, directory: str, progress: Progress | None, *, follows_names: bool = False
    ) -> None:
        self.directory = directory
        self._store = store
        self._system = store.system
        self._root = store.location
        self._own = f"{store.location}/sessions"
        self._progress = progress
        self._now = timestamp(self._system.now())
        self._planner = Planner(store, self._now, follows_names=follows_names)
        self._names = AliasTable(store)
        self._known: list[Source] = []

    def preview(self) -> Iterator[Migrated]:
        """Say what would be done."""
        return self._each(formats.sources(self._system, self.directory), lambda *_: "")

    def run(self, *, is_settled: bool = False) -> Iterator[Migrated]:
        """Do it, and say what was done; `is_settled` if names of logs in the store are known to be logs."""
        if self.directory == self._root:
            # Logs of earlier versions get the names of today, so that an earlier agent does not take them for its own.
            with self._refuse_unwritable():
                files = self._system.listdir(self._own)
                names = sorted(file.removesuffix(".jsonl") for file in files if file.endswith(".jsonl"))
                places = [SessionPaths.of(self._root, name) for name in names if key_of(name) is not None]
                for start in range(0, len(places), _AT_ONCE):
                    self._rename(places[start : start + _AT_ONCE])
        found = formats.sources(self._system, self.directory, logs=self._own if is_settled else "")
        if found:
            self._settle()
            yield from self._each(self._clear_names(found), self._carry_out)
        for folder, name in formats.lone_metas(self._system, self.directory):
            self._finish_meta(folder, name)

    @contextmanager
    def _refuse_unwritable(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise Refused(f"{self._own} cannot be written, nothing was migrated: {error}") from error

    def summarize(self, report: tuple[Migrated, ...]) -> Migration:
        """What was done, and what nobody knows; a store has files of its own, which are not named."""
        directory = self.directory
        unknown = formats.unknown_files(self._system, directory, self._known) if directory != self._root else []
        is_known = bool(report) or formats.has_migrated(self._system, directory)
        return Migration(report=report, unknown=tuple(unknown), is_known=is_known)

    # ---- one file after the other

    def _each(self, found: Sequence[Source], carry_out: _CarryOut) -> Iterator[Migrated]:
        sizes = []
        for source in found:
            sizes.append(0)
            with suppress(OSError):
                sizes[-1] = self._system.stat(source.path).st_size
        for source, done in zip(found, accumulate(sizes), strict=True):
            yield from self._migrate_source(source, carry_out)
            if self._progress is not None:
                self._progress(done, sum(sizes))

    def _migrate_source(self, source: Source, carry_out: _CarryOut) -> Iterator[Migrated]:
        """What becomes of the session in a file, or those in a database; nothing if there is no earlier agent's."""
        try:
            found = [formats.read_source(self._system, source)] if not source.is_database else ()
            for legacy in filter(None, found or formats.read_database(self._system, source.path)):
                self._known.append(source)
                yield self._migrate_session(legacy, source, carry_out)
        except FileNotFoundError:
            return
        except (Unreadable, OSError) as error:
            self._known.append(source)
            yield Migrated(file=self._file(source), outcome="unreadable", detail=str(error))

    def _migrate_session(self, legacy: Legacy, source: Source, carry_out: _CarryOut) -> Migrated:
        file = self._file(source)
        try:
            plan = self._planner.plan(legacy, legacy.src(file))
            detail = carry_out(plan, legacy, source)
        except (OSError, StoreError) as error:
            if isinstance(error.__cause__, OSError) and error.__cause__.errno in _NOT_WRITABLE:
                raise
            return Migrated(file=file, key=legacy.key, outcome="failed", detail=str(error))
        count, bad = plan.more.added if plan.outcome == "appended" else len(legacy.said), len(legacy.bad)
        return Migrated(file=file, key=plan.key, outcome=plan.outcome, messages=count, set_aside=bad, detail=detail)

    def _file(self, source: Source) -> str:
        """The file as the store remembers it: from its own root, if it is below that."""
        return f"{source.folder}/{source.original}".removeprefix(f"{self._root}/")

    # ---- before the first

    def _settle(self) -> None:
        """Make durable what a run that was killed may have done, before its files are renamed."""
        try:
            for folder in (self._root, self._own, f"{self._root}/archive"):
                settle_names(self._system, folder)
        except FileNotFoundError:
            return
        except OSError as error:
            raise Refused(f"{self._root} cannot be synced, nothing was migrated: {error}") from error

    def _rename(self, places: Sequence[SessionPaths]) -> None:
        try:
            rename_plain(self._system, *places)
            for place in places:
                if has_plain_name(self._system, place) == "second":
                    logger.warning("a session has two logs; both are kept as generations", extra={"key": place.key})
                    self._store.take_in(place.key)
        except StoreError as error:
            if len(places) > 1:
                for place in places:
                    self._rename([place])
                return
            extra = {"file": places[0].plain, "error": describe_error(error)}
            logger.warning("a log could not be renamed", extra=extra)

    def _clear_names(self, found: Sequence[Source]) -> Sequence[Source]:
        """Rename earlier sessions that have names of logs, so that none of them is taken for a damaged log."""
        cleared = list(found)
        with self._refuse_unwritable():
            for at, source in enumerate(found):
                is_earlier = False
                with suppress(Unreadable, OSError):
                    has_its_name = source.folder == self._own and formats.has_log_name(source.name)
                    is_earlier = has_its_name and formats.read_source(self._system, source) is not None
                if is_earlier:
                    goal = formats.free_path(self._system, f"{source.path}.migrating")
                    self._system.rename(source.path, goal)
                    cleared[at] = source._replace(name=goal.removeprefix(f"{source.folder}/"))
            if cleared != list(found):
                settle_names(self._system, self._own)
        return cleared

    # ---- one of them

    def _carry_out(self, plan: Plan, legacy: Legacy, source: Source) -> str:
        """Store what a file holds, see that it is there, and rename the file; returns what was wrong with that."""
        src = legacy.src(self._file(source))
        if plan.outcome != "empty":
            self._write(plan, legacy, src)

            # Read the session back, and set aside what was no message.
            def is_held(view: View) -> bool:
                return holds(view, legacy, src) if knows(view, src) else is_contained(view, legacy)

            found = self._store.generations(plan.key, lambda one: one.uid if is_held(one.view) else None)
            uids = [uid for uid in found if uid is not None]
            if not uids:
                raise LogDamaged(f"session {plan.key!r} does not contain all of {src['file']}, which was not changed")
            formats.set_aside(self._system, SessionPaths.of(self._root, plan.key), uids[-1], legacy.bad)
            self._names.give(plan.key, legacy.meta)
        if source.is_database:
            # It keeps its name: it may have other files, and the names of both cannot change in one step.
            return ""
        try:
            self._finish(source.folder, source.name, source.original)
            if source.meta:
                self._finish(source.folder, source.meta, source.meta)
        except OSError as error:
            return f"its file could not be renamed: {error}"
        return ""

    def _write(self, plan: Plan, legacy: Legacy, src: dict[str, Any]) -> None:
        if plan.outcome in ("migrated", "separate"):
            self._refuse_other_file(plan.key)
            records, created = legacy.records(self._now), legacy.began(self._now)
            if not self._store.import_session(plan.key, records, src=src, created=created, archived=legacy.is_archived):
                raise Conflict(f"session {plan.key!r} was created meanwhile; migrate again")
        elif plan.more.operations:
            note = AppendRecord(NOTE, {**src, "added": plan.more.added})
            self._store.run(plan.key, Transaction(operations=(*plan.more.operations, note), expect=plan.more.expect))
            # A relaxed store has not flushed it yet.
            self._store.compact(plan.key, session_state.keep)
        else:
            # The process that wrote it may have been killed before its flush.
            self._store.run(plan.key, Transaction(operations=(), creates=False))

    def _refuse_other_file(self, key: str) -> None:
        """Refuse to found a session where a file that is no log has the log's name."""
        path = SessionPaths.of(self._root, key).log
        try:
            found = contents(self._system, path)
        except FileNotFoundError:
            return
        if found is not None and found[0]:
            raise Conflict(f"{path} is not a log but has the name of one; move it elsewhere")

    # ---- after it

    def _finish(self, folder: str, name: str, original: str) -> None:
        """Give a file the name of one that was migrated; that is durable before anything else is done."""
        try:
            self._system.rename(f"{folder}/{name}", formats.free_path(self._system, f"{folder}/{original}.migrated"))
        except FileNotFoundError:
            return
        settle_names(self._system, folder)

    def _finish_meta(self, folder: str, name: str) -> None:
        """Rename metadata whose session was renamed by a run that was killed right after that."""
        path = f"{folder}/{name}"
        file = f"{path.removeprefix(f'{self._root}/').removesuffix('.meta.json')}.jsonl"
        try:
            found = contents(self._system, path)
            if found is not None:
                key, digest = describe(found[0], name.removesuffix(".meta.json"))
                known = self._store.source_of(key)
                if any(src.get("file") == file and src.get("meta") == digest for src in known):
                    self._finish(folder, name, name)
        except (OSError, StoreError) as error:
            logger.warning("metadata could not be renamed", extra={"file": path, "error": describe_error(error)})


@contextmanager
def _lock_migrations(store: FileStore, directory: str) -> Iterator[bool]:
    """Keep other migrations into the store waiting; gives whether its own directory was looked through before.

    The lock file stays, and says so once it has been.
    """
    system, root = store.system, store.location
    try:
        fd = system.open(f"{root}/{LOCK}", os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o600)
        system.flock(fd, wait=True)
    except OSError as error:
        raise Refused(f"{root}/{LOCK} cannot be locked, nothing was migrated: {error}") from error
    try:
        is_done = system.pread(fd, len(DONE), 0) == DONE
        yield is_done
        if directory == root and not is_done:
            # If that fails, or is lost, the next start looks through it again.
            with suppress(OSError):
                system.ftruncate(fd, 0)
                write_all(system, fd, DONE)
    finally:
        system.close(fd)


_MAIN = re.compile(r"agent:[^:]*:main\Z", re.IGNORECASE)
"""The main session of an agent, which it lists as an alias of every other one."""


class AliasTable:
    """The names in a store's table, and those that are to be in it."""

    def __init__(self, store: FileStore) -> None:
        self._store = store
        self._known: set[tuple[str, str]] | None = None

    def give(self, key: str, meta: Mapping[str, Any]) -> None:
        """Give a session the aliases that its meta lists, durably, unless it has them."""
        # Neither the name of a main session nor a reserved one can be one session's.
        names = (name for name in alias_table.aliases_in(meta) if not _MAIN.match(name) and not is_internal(name))
        wanted = [(name, key) for name in names if name != key]
        if not wanted:
            return
        if self._known is None:
            self._known = set()
            for table in alias_table.TABLES:
                # The process that wrote what is there may have been killed before its flush.
                self._store.run(table, Transaction(operations=(), creates=False))
                found = self._store.read(table, alias_table.read)
                self._known.update(alias_table.pairs(found) if found is not None else ())
        new = [pair for pair in wanted if pair not in self._known]
        if new:
            self._store.run(alias_table.KEY, Transaction(alias_table.notes(new)))
            # A relaxed store has not flushed it yet.
            self._store.compact(alias_table.KEY, session_state.keep)
            self._known.update(new)

    def restore(self) -> None:
        """Give every session the names that its meta lists: the table may have lost some, or be lost itself."""
        for archived in (False, True):
            for found in self._store.each(archived=archived):
                view = found.view
                if not view.state.mp:
                    continue
                names = alias_table.aliases_in(session_state.meta(view, view.state))
                # Without those that a fork has from what it grew from.
                headers = (record for record in view.back(view.n) if record.t == "open" and record.base is not None)
                header = next(headers, None) if names else None
                inherited = alias_table.aliases_in(session_state.meta(view, header.st)) if header is not None else []
                self.give(found.key, {"aliases": [name for name in names if name not in inherited]})
