"""Telling others that a session has changed: LISTEN and NOTIFY, with a slow look as a safety net.

A notice is sent after the commit, at once for the first change and then for all of a twentieth of a second together:
within a transaction it would take a lock of the whole database. It only says where to look. One that is lost is made
up for by the slow look, which is also all there is with a pooler in between, where nobody can listen.
"""

from __future__ import annotations

import logging
import select
import time
from contextlib import suppress
from threading import Event, Lock, Thread
from weakref import WeakSet

import psycopg

from nacre.errors import StoreError, describe_error
from nacre.storage.postgres.connections import Connections
from nacre.storage.postgres.statements import Statements
from nacre.storage.postgres.view import sid_of
from nacre.storage.watch import MemoryWatch

logger = logging.getLogger(__name__)

_GATHER = 0.05
_SLOW_LOOK = 5.0
_LOOK_WITHOUT_NOTICES = 0.5
_MAX_NAMED = 200
_ANYTHING = "*"


class PostgresWatch(MemoryWatch):
    """Told what changes, by this process at once and by others through the database."""

    def name(self, key: str) -> str:
        return sid_of(key)

    def tell_name(self, name: str) -> None:
        """Say that a session has changed, by its sid; "" if it may be any."""
        self._tell(name)


class Notices:
    """Sends notices of what was stored here, and passes on those of others to the watches of this process."""

    def __init__(self, connections: Connections, statements: Statements, *, look_every: float = _SLOW_LOOK) -> None:
        self._connections, self._statements, self._look_every = connections, statements, look_every
        self._channel = f"nacre_{connections.address.schema}"[:63]
        self.begin_in_child()

    def begin_in_child(self) -> None:
        """Begin, or begin again after a fork, whose threads are the parent's."""
        self._lock = Lock()
        self._watches: WeakSet[PostgresWatch] = WeakSet()
        self._changed: set[str] = set()
        self._is_due, self._ending = Event(), Event()
        self._sender: Thread | None = None
        self._listener: Thread | None = None

    def watch(self) -> PostgresWatch:
        """A watch, from now on."""
        watch = PostgresWatch()
        with self._lock:
            self._watches.add(watch)
            if self._listener is None:
                is_ready = Event()
                self._listener = Thread(target=self._listen, args=(is_ready,), name="nacre-listen", daemon=True)
                self._listener.start()
            else:
                is_ready = None
        if is_ready is not None:
            # What is committed from now on is heard of.
            is_ready.wait(self._connections.patience)
        return watch

    def tell(self, sid: str) -> None:
        """Say that a session has changed, here at once and elsewhere soon."""
        if self._listener is not None:
            self._tell_watches([sid])
        if sid in self._changed or self._connections.is_pooled:
            return
        with self._lock:
            self._changed.add(sid)
            if self._sender is None:
                sender = Thread(target=self._send, name="nacre-notify", daemon=True)
                # If the machine has no more threads, the slow look of others finds it. It is stored all the same.
                with suppress(RuntimeError, MemoryError):
                    sender.start()
                    self._sender = sender
        self._is_due.set()

    def close(self) -> None:
        """Send what is left, and listen no longer."""
        self._ending.set()
        self._is_due.set()
        for thread in (self._sender, self._listener):
            if thread is not None:
                thread.join(timeout=5)

    def _send(self) -> None:
        while not self._ending.is_set() or self._changed:
            self._is_due.wait()
            self._is_due.clear()
            with self._lock:
                changed, self._changed = self._changed, set()
            if not changed:
                continue
            payload = ",".join(changed) if len(changed) <= _MAX_NAMED else _ANYTHING
            try:
                self._connections.send([(self._statements.notify, (self._channel, payload))])
            except StoreError as error:
                # The slow look finds it.
                logger.debug("a notice was not sent", extra={"error": describe_error(error)})
            self._ending.wait(_GATHER)

    def _listen(self, is_ready: Event) -> None:
        """Listen, again and again if the connection breaks; after each break anything may have changed."""
        while not self._ending.is_set():
            try:
                if self._connections.is_pooled:
                    is_ready.set()
                    self._look(_LOOK_WITHOUT_NOTICES)
                    continue
                with psycopg.connect(self._connections.address.conninfo, autocommit=True, connect_timeout=10) as link:
                    link.execute(f'LISTEN "{self._channel}"')
                    is_ready.set()
                    self._tell_watches([""])
                    self._hear(link)
            except psycopg.Error as error:
                is_ready.set()
                logger.warning("the database cannot be listened to", extra={"error": describe_error(error)})
                self._look(_LOOK_WITHOUT_NOTICES)

    def _hear(self, link: psycopg.Connection) -> None:
        looked = time.monotonic()
        poll = select.poll()
        poll.register(link.pgconn.socket, select.POLLIN)
        while not self._ending.is_set():
            if poll.poll(200):
                link.pgconn.consume_input()
                while (notice := link.pgconn.notifies()) is not None:
                    names = notice.extra.decode().split(",")
                    self._tell_watches(["" if _ANYTHING in names else name for name in names])
            if time.monotonic() - looked > self._look_every:
                looked = time.monotonic()
                self._tell_watches([""])

    def _look(self, seconds: float) -> None:
        self._ending.wait(seconds)
        self._tell_watches([""])

    def _tell_watches(self, names: list[str]) -> None:
        with self._lock:
            watches = list(self._watches)
        for watch in watches:
            for name in names:
                with suppress(OSError):
                    watch.tell_name(name)
