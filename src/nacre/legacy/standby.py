"""What an agent runs on when its store cannot be used: JSON documents, and what is already in the logs to read."""

from __future__ import annotations

import fcntl
import logging
import os
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from datetime import UTC, datetime
from functools import partial
from typing import NoReturn, TypeVar

from nacre import records
from nacre.codec import encode_message, parse_time
from nacre.errors import DurabilityUnknown, StoreError, describe_error
from nacre.history import alias_table, session_state
from nacre.history.session_state import RULES
from nacre.keys import is_internal
from nacre.legacy.documents import Base, Unreadable, spell_time
from nacre.legacy.formats import read_source, sources
from nacre.legacy.migration import Migration, migrate
from nacre.legacy.session_manager import Elsewhere, Session, SessionManager, session_of
from nacre.messages import Version
from nacre.records import Operation, Rules, Transaction, View
from nacre.storage.documents import FileDocument, path_of
from nacre.storage.file_store import FileStore
from nacre.storage.memory_store import MemoryStore
from nacre.storage.paths import SessionPaths, uids_in
from nacre.storage.protocol import Document, Generation, Journal, Lease, Listed, Status
from nacre.storage.system import System
from nacre.storage.view import reading
from nacre.user_files import standby_folder, standby_places

logger = logging.getLogger(__name__)

T = TypeVar("T")
_MAX_PLACES = 16


def fallback(
    directory: str | os.PathLike[str], error: Exception, *, place: str = "", system: System | None = None
) -> SessionManager:
    """Return the earlier store on a directory whose store cannot be opened or written, and say so.

    Sessions that are in logs can be read, and written to as documents that go on from them; the next migration appends
    what these say. Nothing survives that is not saved. The documents are in the directory, or in another `place`.
    """
    extra = {"directory": place or os.fspath(directory), "error": describe_error(error)}
    logger.warning("the store cannot be used; until it can, sessions are stored as JSON documents", extra=extra)
    return documents(directory, place=place, system=system)


def documents(directory: str | os.PathLike[str], *, place: str = "", system: System | None = None) -> SessionManager:
    """The same, for a caller that reports by itself that the store cannot be used."""
    calls, root = system or System(), os.fspath(directory)
    logs: Elsewhere | None = None
    try:
        logs = partial(_read_log, calls, root, _read_earlier(calls, root))
    except StoreError as error:
        extra = {"directory": root, "error": describe_error(error)}
        logger.warning("the sessions of the store cannot be read", extra=extra)
    return SessionManager(place or directory, system=calls, elsewhere=logs)


def _read_earlier(system: System, root: str) -> dict[str, Session]:
    """The sessions in lines that earlier agents left in a store; raises StoreError."""
    found: dict[str, Session] = {}
    for source in sources(system, root):
        try:
            legacy = None if source.is_document else read_source(system, source)
        except (Unreadable, OSError) as error:
            logger.warning("a session cannot be read", extra={"file": source.path, "error": describe_error(error)})
            continue
        if legacy is not None:
            found[legacy.key] = session_of(legacy, datetime.now(UTC))
    return found


def _read_log(system: System, root: str, earlier: dict[str, Session], key: str) -> tuple[Session, Base | None] | None:
    """Read the session of a key without opening the store; raises StoreError if it is there and cannot be read."""
    active = SessionPaths.of(root, key)
    try:
        uids = uids_in(system, f"{root}/archive", active.name)
        for place in (active, *(active._replace(archived=uid) for uid in reversed(uids))):
            with reading(system, place) as found:
                view = found.view
                if view is None:
                    continue
                session = Session(
                    key=key,
                    messages=tuple(session_state.history(view)),
                    summary=session_state.summary(view, view.state),
                    created=parse_time(view.header.created or found.updated),
                    updated=parse_time(found.updated),
                    meta=session_state.meta(view, view.state),
                )
                uid = "" if place.archived else view.header.uid
                return session, Base(uid=uid, h=view.state.h, kept=len(session.messages)) if uid else None
    except NotADirectoryError:
        # A file is where a folder of the store should be: there are no logs.
        pass
    except OSError as error:
        raise StoreError(f"session {key!r} cannot be read: {error}") from error
    return (earlier[key], None) if key in earlier else None


class StandIn(MemoryStore):
    """Sessions in RAM that are read from documents and saved to them: messages, summary and meta; no other records.

    What needs a store (archive, delete, fork, trash) is refused. `reason` says why the store cannot be used.
    """

    is_durable = True

    def __init__(self, root: str, error: StoreError, *, rules: Rules) -> None:
        super().__init__(rules=rules)
        self.reason = str(error)
        # A folder that no other process uses.
        fd: int | None = None
        with suppress(OSError):
            for number in range(_MAX_PLACES):
                self.location = f"{standby_folder(root)}/{number}"
                os.makedirs(self.location, mode=0o700, exist_ok=True)  # noqa: PTH103 - paths are text here
                fd = _lock(self.location)
                if fd is not None:
                    break
        if fd is None:
            raise error
        self._fd = fd
        self._manager = documents(root, place=self.location)
        self._root = root
        self._loaded: set[str] = set()

    def run(self, key: str, transaction: Transaction) -> int:
        with self._lock:
            self._load(key)
            before = super().read(key, lambda view: view.n)
            number = super().run(key, transaction)
            if super().read(key, lambda view: view.n) != before and not is_internal(key):
                self._save(key, transaction)
            return number

    def read(self, key: str, get: Callable[[View], T]) -> T | None:
        with self._lock:
            self._load(key)
            return super().read(key, get)

    def generations(self, key: str, get: Callable[[Generation], T]) -> list[T]:
        with self._lock:
            self._load(key)
            return super().generations(key, get)

    def status(self, key: str) -> Status:
        with self._lock:
            self._load(key)
            return super().status(key)

    def each(self, *, archived: bool) -> Iterator[Listed]:
        """The sessions that have a document, or were asked for."""
        with self._lock:
            known = {session.key: session for session in self._manager.sessions()}
            for key in known:
                self._load(key)
            found = list(super().each(archived=archived))
        for one in found:
            # The records of a document have the time at which they were read from it.
            session = known.get(one.key)
            times = (one.created, one.updated)
            created, updated = map(spell_time, (session.created, session.updated)) if session is not None else times
            yield one._replace(created=created, updated=updated)

    def move(self, key: str, *, archive: bool, expect: int | Version | None = None) -> None:  # noqa: ARG002 - it has the store's shape
        self._refuse(f"session {key!r} cannot be {'archived' if archive else 'taken from the archive'}")

    def fork(self, key: str, new_key: str, transaction: Transaction) -> None:  # noqa: ARG002 - the same
        self._refuse(f"session {key!r} cannot be forked")

    def delete(self, key: str, *, expect: int | Version | None = None, held: Lease | None = None) -> None:  # noqa: ARG002 - the same
        self._refuse(f"session {key!r} cannot be deleted")

    def move_to_trash(self, key: str, uid: str | None) -> None:  # noqa: ARG002 - the same
        self._refuse(f"session {key!r} cannot be moved to the trash")

    def journal(self, name: str) -> Journal:
        self._refuse(f"journal {name!r} cannot be opened")

    def document(self, name: str, *, held: Lease | None = None) -> Document:
        """In a file next to the documents of sessions: how far channels have read must outlive this process."""
        return FileDocument(path_of(self.location, name), held=held)

    def close(self) -> None:
        if not self._closed:
            os.close(self._fd)
        super().close()

    def _refuse(self, what: str) -> NoReturn:
        raise StoreError(f"{what} while the store cannot be used: {self.reason}")

    def _load(self, key: str) -> None:
        """Read the document of a session, or its log, when it is first asked for."""
        if key in self._loaded or (is_internal(key) and key not in alias_table.TABLES):
            return
        if is_internal(key):
            # The other names of sessions in a table of the store; none if it cannot be read.
            pairs: list[tuple[str, str]] = []
            with suppress(OSError, StoreError), reading(System(), SessionPaths.of(self._root, key)) as found:
                pairs = alias_table.pairs(alias_table.read(found.view)) if found.view is not None else []
            operations: list[Operation] = [*alias_table.notes(pairs)]
        else:
            operations = [encode_message(message) for message in self._manager.get_history(key)]
            if summary := self._manager.get_summary(key):
                operations.append(records.Summarise(summary))
            if meta := self._manager.get_meta(key):
                operations.append(records.SetMeta(meta))
        if operations:
            super().run(key, Transaction(operations))
        self._loaded.add(key)

    def _save(self, key: str, transaction: Transaction) -> None:
        manager = self._manager
        kinds = [type(one) for one in transaction.operations]
        count = kinds.count(records.AppendMessage)
        if not {*kinds} <= {records.AppendMessage, records.AppendRecord, records.SetMeta}:
            manager.set_history(key, super().read(key, session_state.history) or ())
            manager.set_summary(key, super().read(key, lambda view: session_state.summary(view, view.state)) or "")
        elif count:
            for message in (super().read(key, lambda view: session_state.history(view, count)) or ())[-count:]:
                manager.add_full_message(key, message)
        elif records.SetMeta not in kinds or not manager.get_history(key):
            # A meta without a message is saved with the first one.
            return
        manager.set_meta(key, super().read(key, lambda view: session_state.meta(view, view.state)) or {})
        try:
            manager.save(key)
        except StoreError as error:
            raise DurabilityUnknown(f"session {key!r} is in memory only: {error}") from error


def bring_home(root: str) -> Iterator[Migration]:
    """Migrate the documents that stand-ins of a store have left, now that the store can be used."""
    with closing(FileStore(root, rules=RULES)) as store:
        for place in standby_places(root):
            fd = _lock(place)
            if fd is None:
                continue
            try:
                yield migrate(store, place, follows_names=True)
                # They are in the store, and read back from it; a copy would outlive the session if that is deleted.
                for name in os.listdir(place):  # noqa: PTH208 - the same
                    if name.endswith(".json.migrated"):
                        os.unlink(f"{place}/{name}")  # noqa: PTH108 - the same
            finally:
                os.close(fd)


def _lock(place: str) -> int | None:
    """Hold a folder for this process; None if another one does."""
    fd = os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(fd)
        return None
    return fd
