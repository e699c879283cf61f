"""The earlier session store: everything in memory, and one JSON document per session when it is saved."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from threading import RLock
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from nacre.codec import encode_message, plain_json, timestamp
from nacre.errors import Conflict, InvalidMessage, LogDamaged, Refused, StoreError, describe_error
from nacre.legacy.detect import open_file
from nacre.legacy.documents import META, Base, Legacy, Unreadable, spell_time, to_earlier
from nacre.legacy.formats import Source, free_path, read_source, sources
from nacre.messages import Message
from nacre.sessions import AnyMessage
from nacre.storage.paths import settle_names, stem, unlink_if_there, write_all
from nacre.storage.system import System

logger = logging.getLogger(__name__)

_message = msgspec.json.Decoder(Message).decode


class Session(Struct, frozen=True, kw_only=True):
    """A session as the earlier store gives it."""

    key: str
    messages: tuple[Message, ...] = ()
    summary: str = ""
    created: datetime
    updated: datetime
    meta: dict[str, Any] = {}


Elsewhere = Callable[[str], tuple[Session, Base | None] | None]
"""Reads a session that has no document, by its key, and what a document that goes on from it must say of that."""


class _Held(Struct, kw_only=True):
    """A session in memory, with what its document has besides; `dropped` messages were before its first one."""

    session: Session
    path: str
    base: Base | None = None
    rest: dict[str, Any] = {}
    dropped: int = 0

    def drop(self, count: int) -> None:
        """Drop the oldest messages."""
        self.session = replace(self.session, messages=self.session.messages[count:])
        self.dropped += count
        if self.base is not None:
            self.base = replace(self.base, kept=max(0, self.base.kept - count))

    def document(self) -> bytes:
        session = self.session
        fields: dict[str, Any] = {
            **self.rest,
            "key": session.key,
            "messages": [to_earlier(message) for message in session.messages],
            "summary": session.summary,
            "created": spell_time(session.created),
            "updated": spell_time(session.updated),
        }
        if session.meta:
            fields[META] = session.meta
        if self.base is not None:
            fields["base"] = msgspec.to_builtins(self.base)
        return json.dumps(fields, indent=2, ensure_ascii=False).encode() + b"\n"


class SessionManager:
    """The nine methods over JSON documents in a directory, or in its `sessions`; only what is saved survives.

    Numbers are positions in the history, and start again when the documents are loaded. Sessions that have no document
    are read from `elsewhere`, and get one when they are written to and saved.
    """

    def __init__(
        self, directory: str | os.PathLike[str], *, system: System | None = None, elsewhere: Elsewhere | None = None
    ) -> None:
        self._directory = os.path.abspath(directory)  # noqa: PTH100 - paths are text here
        self._system = system or System()
        self._elsewhere = elsewhere
        self._lock = RLock()
        self._held: dict[str, _Held] = {}
        for source in sources(self._system, self._directory):
            try:
                legacy = read_source(self._system, source) if source.is_document else None
            except (Unreadable, OSError) as error:
                extra = {"file": source.path, "error": describe_error(error)}
                logger.warning("a session's document cannot be read", extra=extra)
                continue
            if legacy is None:
                continue
            session = session_of(legacy, self._now())
            known = self._held.get(session.key)
            if known is not None and known.session.updated >= session.updated:
                logger.warning("a session has two documents", extra={"key": session.key, "unused": source.path})
                continue
            rest = legacy.meta.get("legacy") or {}
            self._held[session.key] = _Held(session=session, path=source.path, base=legacy.base, rest=rest)

    def get_or_create(self, key: str) -> Session:
        """The session of a key; a new one is in memory only until it is saved."""
        with self._lock:
            return self._writable(key).session

    def add_message(self, key: str, role: str, content: str) -> int:
        """Append one plain message; returns its position."""
        return self.add_full_message(key, Message(role=role, content=content))

    def add_full_message(self, key: str, message: AnyMessage) -> int:
        """Append a message with all its parts; returns its position."""
        stored = self._normalize(message)
        with self._lock:
            held = self._change(key)
            held.session = replace(held.session, messages=(*held.session.messages, stored))
            return held.dropped + len(held.session.messages)

    def get_history(self, key: str, *, last: int | None = None) -> list[Message]:
        """The messages, oldest first; all, or only the last few."""
        with self._lock:
            messages = self._session(key).messages
        return list(messages if last is None else messages[len(messages) - min(max(last, 0), len(messages)) :])

    def get_summary(self, key: str) -> str:
        """The summary, "" if none."""
        with self._lock:
            return self._session(key).summary

    def set_summary(self, key: str, summary: str, *, upto: int | None = None) -> None:
        """Replace the summary, and drop the messages up to position `upto`; raises Conflict if there is no such one."""
        if not isinstance(summary, str):
            raise InvalidMessage(f"a summary must be text, not {type(summary).__name__}")
        with self._lock:
            dropped = self._held[key].dropped if key in self._held else 0
            if upto is not None and not dropped < upto <= dropped + len(self._session(key).messages):
                raise Conflict(f"session {key!r} has no message {upto} to summarise up to")
            held = self._change(key, summary=str(plain_json(summary, "summary")))
            held.drop(0 if upto is None else upto - held.dropped)

    def set_history(self, key: str, history: Iterable[AnyMessage]) -> None:
        """Replace the history; the summary stays."""
        stored = tuple(self._normalize(message) for message in history)
        with self._lock:
            held = self._change(key)
            held.drop(len(held.session.messages))
            held.session = replace(held.session, messages=stored)

    def truncate_history(self, key: str, keep_last: int) -> None:
        """Keep only the last messages, none for 0 or less."""
        with self._lock:
            dead = len(self._session(key).messages) - max(keep_last, 0)
            if dead > 0:
                self._change(key).drop(dead)

    def sessions(self) -> list[Session]:
        """Every session that is in memory; those that are only elsewhere are not."""
        with self._lock:
            return [held.session for held in self._held.values()]

    def get_meta(self, key: str) -> dict[str, Any]:
        """The session's meta."""
        with self._lock:
            return self._session(key).meta

    def set_meta(self, key: str, meta: dict[str, Any]) -> None:
        """Replace the session's meta."""
        with self._lock:
            self._change(key, meta=_without_rest(meta))

    def save(self, key: str) -> None:
        """Write the session's document again, durably; raises Refused if the one before it is all there is."""
        with self._lock:
            held = self._held.get(key)
            if held is None:
                return
            try:
                self._keep_before(key, held.path)
                self._write(held.path, held.document())
            except OSError as error:
                raise Refused(f"session {key!r} was not saved: {error}") from error

    def close(self) -> None:
        """Nothing is held open."""

    # ---- in memory

    def _session(self, key: str) -> Session:
        """The session as it is, without making one."""
        held = self._held.get(key)
        return held.session if held is not None else self._read_elsewhere(key)[0]

    def _read_elsewhere(self, key: str) -> tuple[Session, Base | None]:
        """The session that is elsewhere, or a new one."""
        found = self._elsewhere(key) if self._elsewhere is not None else None
        return found or (Session(key=key, created=self._now(), updated=self._now()), None)

    def _writable(self, key: str) -> _Held:
        if key not in self._held:
            path = f"{self._directory}/{stem(key)}.json"
            session, base = self._read_elsewhere(key)
            self._held[key] = _Held(session=session, path=path, base=base)
        return self._held[key]

    def _change(self, key: str, **fields: Any) -> _Held:
        """A session that is written to, with some of its fields changed."""
        held = self._writable(key)
        held.session = replace(held.session, updated=self._now(), **fields)
        return held

    def _normalize(self, message: AnyMessage) -> Message:
        """A message as it comes back from its document, with the time it was stored where its writer gave none."""
        stored = _message(encode_message(message).raw)
        return stored if stored.created is not None else replace(stored, created=self._now())

    def _now(self) -> datetime:
        return datetime.fromisoformat(timestamp(self._system.now())).astimezone(UTC)

    # ---- on disk

    def _keep_before(self, key: str, path: str) -> None:
        """See that nothing is lost by rewriting a document.

        A file that is not this session's is not written over; one in which something is no message keeps a name.
        """
        folder, _, name = path.rpartition("/")
        try:
            legacy = read_source(self._system, Source(folder, name, name))
        except FileNotFoundError:
            return
        except Unreadable as error:
            raise LogDamaged(f"{path} cannot be read ({error}) and is not overwritten; move it away") from error
        if legacy is None or legacy.key != key:
            raise StoreError(f"{path} is not the document of session {key!r}; move it away")
        if legacy.bad:
            self._system.link(path, free_path(self._system, f"{path}.damaged"))

    def _write(self, path: str, document: bytes) -> None:
        folder, _, name = path.rpartition("/")
        scratch = f"{folder}/.{name}.{self._system.random(8).hex()}.tmp"
        self._make(folder)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
        try:
            with open_file(self._system, scratch, flags) as fd:
                write_all(self._system, fd, document)
                self._system.fsync(fd)
            self._system.rename(scratch, path)
        except OSError:
            unlink_if_there(self._system, scratch)
            raise
        settle_names(self._system, folder)

    def _make(self, folder: str) -> None:
        try:
            self._system.mkdir(folder, 0o700)
        except FileExistsError:
            return
        except FileNotFoundError:
            self._make(folder.rpartition("/")[0] or "/")
            self._system.mkdir(folder, 0o700)
        settle_names(self._system, folder.rpartition("/")[0] or "/")


def session_of(legacy: Legacy, now: datetime) -> Session:
    """What is live of an earlier session."""
    return Session(
        key=legacy.key,
        messages=tuple(legacy.messages[legacy.dropped :]),
        summary=legacy.summary,
        created=legacy.created or legacy.updated or legacy.changed or now,
        updated=legacy.updated or legacy.created or legacy.changed or now,
        meta=_without_rest(legacy.meta),
    )


def _without_rest(meta: dict[str, Any]) -> dict[str, Any]:
    """A meta without the fields of an earlier document, which stand in the document itself."""
    return {field: value for field, value in meta.items() if field != "legacy"}
