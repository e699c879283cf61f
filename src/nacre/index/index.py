"""Index: lists and searches the sessions of one store from what it has read of their logs before."""

from __future__ import annotations

import os
from collections.abc import Callable
from threading import Lock, local
from typing import TYPE_CHECKING
from weakref import WeakSet

from nacre.history.list_page import Wanted
from nacre.index.query import parse, spoken
from nacre.index.warm import folder_of
from nacre.messages import Hit, Page
from nacre.storage.system import System

if TYPE_CHECKING:
    from sqlite3 import Connection

    from nacre.index.meaning import Embedder

SLICE = 1000
"""How many logs are compared with what is known of them, whether they are marked or not."""


def _usual_embedder() -> Embedder:
    from nacre.index.minilm import shared_model  # noqa: PLC0415 - an extra

    return shared_model()


class Index:
    """An index of the store at `root`, kept in the user's cache directory or in `cache`.

    It catches up with the logs whenever it is asked: with those that their writers have marked, and `slice_size`
    others. No writer waits for it; a fork waits `fork_timeout` seconds for what is being asked. Its files may be
    deleted, damaged or locked at any moment: they are made again, or done without.
    """

    def __init__(  # noqa: PLR0913 - each may be another
        self,
        root: str,
        *,
        cache: str | None = None,
        system: System | None = None,
        slice_size: int = SLICE,
        embedder: Callable[[], Embedder] = _usual_embedder,
        fork_timeout: float = 2.0,
    ) -> None:
        from nacre.index.database import Database  # noqa: PLC0415
        from nacre.index.sync import CatchUp  # noqa: PLC0415 - SQLite is loaded when an index is wanted

        self._system = system or System()
        self._embedder = embedder
        self._fork_timeout = fork_timeout
        self._database = Database(folder_of(root, cache))
        self._catch_up = CatchUp(self._system, root, slice_size=slice_size)
        self._lock = Lock()
        _indexes.add(self)

    def search(  # noqa: PLR0913 - what a search can be narrowed to
        self,
        query: str,
        *,
        limit: int = 50,
        internal: bool = False,
        fill: bool = False,
        skip: tuple[str, int] | None = None,
        prefix: str = "",
        only: str = "",
        meaning: bool = False,
    ) -> list[Hit]:
        """The messages that a query finds, best first; any text is a query.

        Words must all match, as whole words, or, if that finds nothing, inside words; Chinese, Japanese
        and signs match anywhere. `"a phrase"`, `-not`, `role:`, `tool:`, `session:` (how a key begins, or
        in quotes all of it), `since:` and `until:` (2026-11-01, in UTC, or 7d) narrow it. What a fork shares
        with a session that is searched too is found once, where it was written. Internal sessions are searched if
        `internal` is set, or if one is named in quotes. With `fill`, messages that have some of the words follow those
        that have all. `skip` leaves out the messages of one active session from a record on. With a `prefix`, only
        sessions whose key begins with it are searched, with `only` that one; what others say then changes nothing. With
        `meaning`, messages are found by what they mean, too, as far as `make_vectors` has come; raises ConfigError if
        the model for it is not installed.
        """
        from nacre.index.search import hits  # noqa: PLC0415 - a listing can do without

        parsed = parse(query, now=self._system.now())
        parsed = parsed._replace(internal=internal, fill=fill, skip=skip, prefix=prefix, only=only)
        words = spoken(query) if meaning else ""
        vector = self._embedder().embed([words])[0] if words else None

        def work(connection: Connection) -> list[Hit]:
            self._catch_up.run(connection)
            return hits(connection, parsed, limit=limit, vector=vector)

        with self._lock:
            return self._database.run(work)

    def make_vectors(self, most: int = 16) -> int:
        """Make vectors for some of the messages that have none, the newest first; returns how many still have none.

        Of long messages it takes fewer than `most`. The index can be asked meanwhile. Raises ConfigError if nothing for
        it is installed.
        """
        from nacre.index.meaning import embedded, save, take  # noqa: PLC0415 - a listing can do without

        embedder = self._embedder()

        def begin(connection: Connection) -> list[tuple[int, str]]:
            self._catch_up.run(connection)
            return take(connection, most)

        with self._lock:
            rows = self._database.run(begin)
        vectors = embedded(embedder, rows)
        with self._lock:
            return self._database.run(lambda connection: save(connection, rows, vectors))

    def page(self, wanted: Wanted) -> Page:
        """A part of the list of sessions; where all of it is wanted, every log is compared with what is known of it."""
        from nacre.index.catalog import page  # noqa: PLC0415 - a search can do without

        def work(connection: Connection) -> Page:
            self._catch_up.look(connection, all_logs=wanted.limit is None)
            return page(connection, wanted)

        with self._lock:
            return self._database.run(work)

    def forget(self, key: str) -> None:
        """Erase what is known of a session that was deleted."""
        with self._lock:
            self._database.try_run(lambda connection: self._catch_up.forget(connection, key))

    def erase(self, key: str) -> None:
        """Erase what is known of a session until it is read again, so that no byte of it is left in a file.

        Where that cannot be, the whole index is deleted, and made again when it is next used. Raises StoreError if even
        that is impossible.
        """
        with self._lock:
            self._database.erase(lambda connection: self._catch_up.forget(connection, key))

    def close(self) -> None:
        """Close the database; twice is harmless."""
        with self._lock:
            self._database.close()

    def hold(self) -> bool:
        """Before a fork: let what is being asked come to its end; False if that takes too long."""
        return self._lock.acquire(timeout=self._fork_timeout)

    def release(self) -> None:
        """After a fork, in the parent, of what was held."""
        self._lock.release()

    def begin_in_child(self) -> None:
        """After a fork, in the child: a thread of the parent may still have been at the index."""
        self._lock = Lock()
        self._database.begin_in_child()
        self._catch_up.begin_in_child()


_indexes: WeakSet[Index] = WeakSet()
_forking = local()


def _before_fork() -> None:
    """A child has the locks that SQLite had inside the process, and no thread that would release them."""
    _forking.held = []
    for index in list(_indexes):
        if index.hold():
            _forking.held.append(index)


def _after_fork() -> None:
    for index in _forking.held:
        index.release()


def _begin_in_child() -> None:
    for index in list(_indexes):
        index.begin_in_child()


os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_begin_in_child)
