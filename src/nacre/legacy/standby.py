"""What an agent runs on when its store cannot be used: JSON documents, and what is already in the logs to read."""

from __future__ import annotations

import logging
import os
from datetime import UTC, datetime

from nacre.entries import parse_time
from nacre.errors import StoreError, describe_error
from nacre.history import live
from nacre.legacy.documents import Unreadable
from nacre.legacy.manager import Seen, Session, SessionManager, session_of
from nacre.legacy.sources import read, sources
from nacre.log.ops import Ops
from nacre.log.place import Place, uids_in
from nacre.log.reader import reading

logger = logging.getLogger(__name__)


def fallback(
    directory: str | os.PathLike[str], error: Exception, *, place: str = "", ops: Ops | None = None
) -> SessionManager:
    """Return the earlier store on a directory whose store cannot be opened or written, and say so.

    Sessions that are in logs can be read, and written to as documents that go on from them; the next migration appends
    what these say. Nothing survives that is not saved. The documents are in the directory, or in another `place`.
    """
    logger.warning(
        "the store cannot be used; until it can, sessions are stored as JSON documents",
        extra={"directory": place or os.fspath(directory), "error": describe_error(error)},
    )
    return documents(directory, place=place, ops=ops)


def documents(directory: str | os.PathLike[str], *, place: str = "", ops: Ops | None = None) -> SessionManager:
    """The same, for whoever says by themselves that the store cannot be used."""
    calls = ops or Ops()
    return SessionManager(place or directory, ops=calls, elsewhere=_logs(calls, os.fspath(directory)))


def _logs(ops: Ops, root: str) -> Logs | None:
    try:
        return Logs(ops, root)
    except StoreError as error:
        logger.warning(
            "the sessions of the store cannot be read",
            extra={"directory": root, "error": describe_error(error)},
        )
        return None


class Logs:
    """The sessions of a store, and earlier ones in lines, read without opening the store."""

    def __init__(self, ops: Ops, root: str) -> None:
        self._ops = ops
        self._root = root
        self._earlier: dict[str, Session] = {}
        for source in sources(ops, root):
            if not source.is_document:
                try:
                    legacy = read(ops, source)
                except (Unreadable, OSError) as error:
                    logger.warning(
                        "a session cannot be read",
                        extra={"file": source.path, "error": describe_error(error)},
                    )
                    continue
                if legacy is not None:
                    self._earlier[legacy.key] = session_of(legacy, datetime.now(UTC))

    def read(self, key: str) -> Seen | None:
        """The session of a key; raises StoreError if it is there and cannot be read."""
        active = Place.of(self._root, key)
        try:
            archived = [
                active._replace(archived=uid) for uid in uids_in(self._ops, f"{self._root}/archive", active.name)
            ]
            for place in (active, *reversed(archived)):
                seen = self._look(place)
                if seen is not None:
                    return seen
        except NotADirectoryError:
            # A file is where a folder of the store should be: there are no logs.
            pass
        except OSError as error:
            raise StoreError(f"session {key!r} cannot be read: {error}") from error
        session = self._earlier.get(key)
        return Seen(session=session) if session is not None else None

    def _look(self, place: Place) -> Seen | None:
        with reading(self._ops, place) as found:
            past = found.past
            if past is None:
                return None
            session = Session(
                key=place.key,
                messages=tuple(live.history(past)),
                summary=live.summary(past, past.state),
                created=parse_time(past.header.created or found.updated),
                updated=parse_time(found.updated),
                meta=live.meta(past, past.state),
            )
            return Seen(session=session, uid="" if place.archived else past.header.uid, h=past.state.h)
