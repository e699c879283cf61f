"""Connections to PostgreSQL: a pool of them, statements sent in pipelines, and what its errors mean.

The statements are few and fixed. They go through libpq as psycopg offers it (`psycopg.pq`), prepared once per
connection, with texts as parameters: that takes half of the time of a cursor, and lets statements of several sessions
share one round trip.
"""

from __future__ import annotations

import logging
import os
import select
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from shlex import quote
from threading import Event, Lock, Thread
from typing import Any, NamedTuple, TypeVar
from weakref import WeakSet

import psycopg
from psycopg import pq
from psycopg_pool import ConnectionPool, PoolClosed, PoolTimeout, TooManyRequests

from nacre.errors import ConfigError, DurabilityUnknown, InvalidArgument, LeaseLost, Refused, StoreError
from nacre.messages import Load
from nacre.storage.postgres.address import Address

logger = logging.getLogger(__name__)
# Without a handler of the program what the pool warns of would go to stderr; callers learn it from errors.
logging.getLogger("psycopg").addHandler(logging.NullHandler())

T = TypeVar("T")
Value = str | bytes | int | None
Rows = Sequence[list[bytes | None]]

_DONE = (pq.ExecStatus.TUPLES_OK, pq.ExecStatus.COMMAND_OK)
_TEXT, _BINARY = pq.Format.TEXT, pq.Format.BINARY
# A server that commits without its standby warns of it: the wait was cancelled, or the connection is to end.
_WAIT_CANCELLED = ("01000", "57014", "57P01")
_TRY_AGAIN = ("40001", "40P01", "25P03", "25006", "55P03")
"""Serialization, deadlock, a transaction that was idle for too long, a server that became a standby, a lock."""
_GONE = ("57P01", "57P02", "57P03", "08000", "08003", "08006")
_FULL = ("53100", "53200", "53300", "53400", "54000")
_NOT_MADE = ("42P01", "3F000", "42703")
_FORBIDDEN = ("42501",)
_UNIQUE = "23505"
_NUMBER_AND_LINE = 2
_LEASE_LOST = "22012"
"""A division by zero: what the statement `held` ends with if nobody, or somebody else, has the lease."""
_PROBE_SECONDS = 2
# Keepalives find a server whose machine is gone; the application's name is for the operator.
_SETTINGS: dict[str, Any] = {
    "autocommit": True,
    "client_encoding": "UTF8",
    "application_name": "nacre",
    "connect_timeout": 10,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
}


class Statement(NamedTuple):
    """One of the fixed statements, and whether its results are texts or bytes; one without a name is not prepared."""

    name: bytes
    text: bytes
    kind: pq.Format = pq.Format.TEXT


Request = tuple[Statement, Sequence[Value]]


class ConnectionLost(StoreError):
    """The server did not answer, or the connection broke: whether a statement was carried out is not known."""


class NotAllowed(StoreError):
    """The role has no right to do that."""


class Failed(StoreError):
    """The server refused a statement, and nothing of its transaction was stored; `code` is its SQLSTATE."""

    def __init__(self, message: str, code: str) -> None:
        super().__init__(message)
        self.code = code


class NotReplicated(StoreError):
    """A commit is on the server, but the wait for its standby was cancelled: a failover may lose it."""


_BEGIN, _COMMIT = Statement(b"", b"BEGIN"), Statement(b"", b"COMMIT")
_ROLLBACK = Statement(b"", b"ROLLBACK")
_DURABLE = Statement(b"", b"SET LOCAL synchronous_commit = on")
_ABOUT = Statement(
    b"",
    b"SELECT pg_backend_pid(), current_setting('synchronous_commit'), current_setting('server_encoding')",
)
_SET = Statement(
    b"",
    b"SELECT set_config('synchronous_commit', $1, false), set_config('lock_timeout', $2, false),"
    b" set_config('idle_in_transaction_session_timeout', $3, false)",
)


class Result(NamedTuple):
    """What a statement gave: its rows, and how many it changed."""

    rows: Rows
    changed: int


Run = Callable[..., Result]
"""Runs a statement with its values, in a transaction."""


class RoundTrips:
    """How often something was sent and answered, and how long that took."""

    __slots__ = ("count", "seconds")

    def __init__(self) -> None:
        self.count, self.seconds = 0, 0.0


class Link(psycopg.Connection[Any]):
    """A connection with what is known of it: the statements it has prepared, and what its server warned of.

    Calls wait in libpq, where a signal cannot interrupt them. A server that is silent for too long is given up by
    another thread, which looks at `busy_since`.
    """

    prepared: set[bytes]
    warnings: list[str]
    is_pooled = False
    busy_since: float | None = None
    trips: RoundTrips | None = None

    def begin(self, *, relaxed: bool, timeout: float) -> None:
        """Learn what there is to know of a new connection, and make its commits durable.

        A lock is waited for less long than an answer, so that it is known that nothing was stored. A program that is
        stopped in the middle of a transaction does not keep its locks forever.
        """
        self.prepared, self.warnings = set(), []
        self.add_notice_handler(self._note)
        # Nothing is prepared before it is known whether that can be.
        self.is_pooled = True
        pid, commits, encoding = self._ask(_ABOUT)
        if encoding != "UTF8":
            raise ConfigError(f"the encoding of the database must be UTF8, not {encoding}: create another one")
        # A pooler that gives each transaction another connection names another process: nothing can be set there.
        self.is_pooled = int(pid) != self.info.backend_pid
        wanted = "off" if relaxed else "on" if commits in ("off", "local") else commits
        if not self.is_pooled:
            self._ask(_SET, wanted, f"{timeout * 1000 / 3:.0f}ms", f"{timeout * 1000:.0f}ms")
        elif wanted != commits and not relaxed:
            raise ConfigError(
                f"synchronous_commit is {commits}, and commits through the pooler would not be durable: "
                "set it with ALTER ROLE … SET synchronous_commit = on"
            )

    def _note(self, notice: psycopg.errors.Diagnostic) -> None:
        if notice.severity_nonlocalized == "WARNING":
            self.warnings.append(notice.sqlstate or "")

    def _ask(self, statement: Statement, *values: Value) -> list[str]:
        """The one row of a statement, on a new connection."""
        (found,) = self.send([(statement, values)])
        if isinstance(found, Failed):
            raise psycopg.OperationalError(str(found))
        return [(value or b"").decode() for value in found.rows[0]]

    def send(self, requests: Sequence[Request]) -> list[Result | Failed]:
        """Run statements in one round trip and as one transaction; the results are in their order.

        If one fails, nothing of them is stored: it has its error, and all others have the same. Raises ConnectionLost
        if what came of them is not known, NotReplicated if they are stored here but perhaps nowhere else.
        """
        if self.warnings:
            self.warnings.clear()
        self.busy_since = time.monotonic()
        try:
            found = [self._run(*requests[0])] if len(requests) == 1 else self._run_together(requests)
        except psycopg.OperationalError as error:
            raise ConnectionLost(f"the database does not answer: {_one_line(error)}") from error
        finally:
            if self.trips is not None:
                self.trips.count += 1
                self.trips.seconds += time.monotonic() - self.busy_since
            self.busy_since = None
        if self.warnings and any(code in _WAIT_CANCELLED for code in self.warnings):
            raise NotReplicated("stored by the server, but the wait for its standby was cancelled")
        return found

    def is_stale(self) -> bool:
        """Tell whether the server has ended the connection while nobody used it: then there is something to read."""
        poll = select.poll()
        poll.register(self.pgconn.socket, select.POLLIN)
        return bool(poll.poll(0))

    def _is_prepared(self, statement: Statement) -> bool:
        """Prepare a statement, unless that was done, or another connection may get it next."""
        if statement.name and statement.name not in self.prepared and not self.is_pooled:
            result = self.pgconn.prepare(statement.name, statement.text)
            # What the server has against it is said when it is run.
            if result.status in _DONE:
                self.prepared.add(statement.name)
        return statement.name in self.prepared

    def _run(self, statement: Statement, values: Sequence[Value]) -> Result | Failed:
        name, text, kind = statement
        params, formats = _encode(values)
        if name in self.prepared or self._is_prepared(statement):
            result = self.pgconn.exec_prepared(name, params, formats, kind)
        else:
            result = self.pgconn.exec_params(text, params, None, formats, kind)
        return _rows(result) if result.status in _DONE else _failure(result)

    def _run_together(self, requests: Sequence[Request]) -> list[Result | Failed]:
        """Run statements as one pipeline."""
        pgconn = self.pgconn
        known = [self._is_prepared(statement) for statement, _ in requests]
        pgconn.enter_pipeline_mode()
        for ((name, text, kind), values), is_prepared in zip(requests, known, strict=True):
            params, formats = _encode(values)
            if is_prepared:
                pgconn.send_query_prepared(name, params, formats, kind)
            else:
                pgconn.send_query_params(text, params, None, formats, kind)
        pgconn.pipeline_sync()
        found: list[Result | Failed] = []
        failure: Failed | None = None
        for _ in requests:
            result = self._next()
            if result is not None and result.status in _DONE:
                found.append(_rows(result))
            elif failure is None:
                failure = _failure(result)
            # The results of each end with None.
            while result is not None:
                result = self._next()
        end = self._next()
        if end is not None and end.status == pq.ExecStatus.FATAL_ERROR:
            # All went well but for the commit, which has come to nothing.
            failure = failure or _failure(end)
            end = self._next() or self._next()
        if end is None or end.status != pq.ExecStatus.PIPELINE_SYNC:
            raise psycopg.OperationalError("the connection is out of step")
        pgconn.exit_pipeline_mode()
        return found if failure is None else [failure] * len(requests)

    def _next(self) -> pq.abc.PGresult | None:
        """The next result of a pipeline; `get_result` would wait for it, and keep all other threads from running."""
        pgconn = self.pgconn
        poll = None
        while (is_unsent := pgconn.flush()) or pgconn.is_busy():
            if poll is None:
                poll = select.poll()
            poll.register(pgconn.socket, select.POLLIN | (select.POLLOUT if is_unsent else 0))
            poll.poll(1000)
            pgconn.consume_input()
        return pgconn.get_result()


def _encode(values: Sequence[Value]) -> tuple[Any, list[pq.Format] | None]:
    """Values as libpq takes them, and their formats: None where all are texts."""
    params: list[bytes | None] = []
    formats = None
    for value in values:
        if type(value) is str:
            if "\0" in value:
                # libpq would take what comes before it for all of the text.
                raise InvalidArgument(f"PostgreSQL cannot hold a text with NUL in it: {value!r:.100}")
            params.append(value.encode())
        elif type(value) is int:
            params.append(b"%d" % value)
        else:
            params.append(value)  # type: ignore[arg-type] # bytes or None
            if value is not None:
                formats = [_BINARY if type(one) is bytes else _TEXT for one in values]
    return params, formats


def _rows(result: pq.abc.PGresult) -> Result:
    if not result.nfields:
        return Result((), result.command_tuples or 0)
    get, width = result.get_value, range(result.nfields)
    if len(width) == _NUMBER_AND_LINE:
        # A session is read in rows of this kind, a thousand at a time: without a loop for each.
        rows = [[get(row, 0), get(row, 1)] for row in range(result.ntuples)]
    else:
        rows = [[get(row, column) for column in width] for row in range(result.ntuples)]
    return Result(rows, result.command_tuples or 0)


def _failure(result: pq.abc.PGresult | None) -> Failed:
    if result is None:
        raise psycopg.OperationalError("the connection was closed")
    code = (result.error_field(pq.DiagnosticField.SQLSTATE) or b"").decode()
    text = (result.error_field(pq.DiagnosticField.MESSAGE_PRIMARY) or b"").decode(errors="replace")
    severity = (result.error_field(pq.DiagnosticField.SEVERITY_NONLOCALIZED) or b"").decode()
    if severity in ("FATAL", "PANIC") or code in _GONE or not code:
        # It may have been carried out before the server ended.
        raise psycopg.OperationalError(text or "the connection was closed")
    return Failed(text, code)


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())[:300] or type(error).__name__


class Locked:
    """A transaction that holds the locks of rows."""

    def __init__(self, link: Link, rows: Rows, address: Address) -> None:
        self._link, self.rows, self._address = link, rows, address

    def read(self, statement: Statement, *values: Value) -> Rows:
        (found,) = self._link.send([(statement, values)])
        return _checked(found, self._address).rows

    def send(self, requests: Sequence[Request]) -> list[Result | Failed]:
        """Run statements and commit; a look at what came of it afterwards must not wait for its locks."""
        try:
            return self._link.send([*requests, (_COMMIT, ())])[:-1]
        except BaseException:
            self._link.close()
            raise


class Connections:
    """A pool of connections to one store.

    A statement that only reads is tried again on another connection, for as long as `patience` seconds: a server that
    is restarted, or a standby that takes over, is waited for. `timeout` is how long a server may be silent.
    """

    def __init__(
        self,
        address: Address,
        *,
        relaxed: bool = False,
        size: int = 16,
        patience: float = 20.0,
        timeout: float = 30.0,
    ) -> None:
        self.address, self.relaxed, self.size = address, relaxed, size
        self.patience, self.timeout = patience, timeout
        self.is_pooled = False
        self._trips = RoundTrips()
        self._is_down = False
        self._begin()

    def _begin(self) -> None:
        self._links: WeakSet[Link] = WeakSet()
        self._links_lock = Lock()
        self._ending = Event()
        self._watchdog = Thread(target=self._watch, args=(self._ending,), name="nacre-watchdog", daemon=True)
        self._watchdog.start()
        self._pool = self._make()

    def _watch(self, ending: Event) -> None:
        """End the calls that wait for a server which has been silent for too long."""
        while not ending.wait(min(1.0, self.timeout / 4)):
            with self._links_lock:
                links = list(self._links)
            for link in links:
                since = link.busy_since
                if since is not None and time.monotonic() - since > self.timeout:
                    logger.warning("the database is silent; a connection is given up", extra={"seconds": self.timeout})
                    # The call in libpq ends with an error; its caller closes the connection.
                    # One that has ended meanwhile has no socket any more.
                    with suppress(OSError, psycopg.Error), socket.socket(fileno=os.dup(link.pgconn.socket)) as copy:
                        copy.shutdown(socket.SHUT_RDWR)

    def _make(self) -> ConnectionPool[Link]:
        def begin(link: Link) -> None:
            # First, since the server may be silent from the beginning.
            with self._links_lock:
                self._links.add(link)
            link.begin(relaxed=self.relaxed, timeout=self.timeout)
            self.is_pooled, link.trips = link.is_pooled, self._trips

        return ConnectionPool(
            self.address.conninfo,
            connection_class=Link,
            kwargs=_SETTINGS,
            min_size=0,
            max_size=self.size,
            configure=begin,
            open=True,
            timeout=self.patience,
            reconnect_timeout=self.patience,
            num_workers=2,
            name="nacre",
        )

    def connect(self) -> None:
        """Connect once, to say clearly at the start why it cannot be done; raises StoreError."""
        try:
            with Link.connect(self.address.conninfo, **_SETTINGS) as link:
                self._links.add(link)
                link.begin(relaxed=self.relaxed, timeout=self.timeout)
                self.is_pooled = link.is_pooled
        except (psycopg.Error, ConnectionLost) as error:
            raise StoreError(f"the database at {self.address.shown} cannot be used: {_one_line(error)}") from error

    def take(self) -> Link:
        """Take a connection, to be given back; raises Refused if there is none within the time.

        A server that is restarted is waited for, once: while it is known to be down, callers learn so at once.
        """
        if self._is_down:
            self._reach()
        try:
            while (link := self._pool.getconn()).is_stale():
                link.close()
                self._pool.putconn(link)
        except (PoolTimeout, TooManyRequests) as error:
            self._is_down = True
            self._reach()
            raise Refused(
                f"no connection to the database within {self.patience:g} seconds, nothing was stored: it did not "
                f"answer, or all {self.size} are in use"
            ) from error
        except PoolClosed as error:
            raise StoreError("the store is closed") from error
        return link

    def _reach(self) -> None:
        """Raise Refused, with why, if the database cannot be reached; else it is no longer known to be down."""
        try:
            Link.connect(self.address.conninfo, **{**_SETTINGS, "connect_timeout": _PROBE_SECONDS}).close()
        except psycopg.Error as error:
            where = f"the database at {self.address.shown} cannot be reached"
            raise Refused(f"{where}, nothing was stored: {_one_line(error)}") from error
        self._is_down = False

    def give_back(self, link: Link, *, is_sound: bool = True) -> None:
        """Give a connection back; one that is in doubt, because an answer may be under way, is not used again."""
        pgconn = link.pgconn
        is_idle = pgconn.transaction_status == pq.TransactionStatus.IDLE and not pgconn.pipeline_status
        if not is_sound and not is_idle:
            link.close()
        self._pool.putconn(link)

    @contextmanager
    def link(self) -> Iterator[Link]:
        """A connection for some round trips."""
        link, is_sound = self.take(), False
        try:
            yield link
            is_sound = True
        finally:
            self.give_back(link, is_sound=is_sound)

    def send(self, requests: Sequence[Request]) -> list[Result | Failed]:
        """Run statements as one transaction in one round trip; raises ConnectionLost, NotReplicated or Refused."""
        with self.link() as link:
            return link.send(requests)

    def read(self, statement: Statement, *values: Value) -> Rows:
        """The rows that a statement gives, which changes nothing: it is tried again for a while if that may help."""
        return self.read_together([(statement, values)])[0]

    def read_together(self, requests: Sequence[Request]) -> list[Rows]:
        """The rows of several statements that see the database one after the other, in one round trip."""

        def attempt() -> list[Rows]:
            found = self.send(requests)
            return [_checked(one, self.address).rows for one in found]

        return self.retry(attempt)

    def retry(self, attempt: Callable[[], T]) -> T:
        """Do what may be done twice; while the connection is lost or another transaction is in the way, do it again.

        Raises what `explain` says of a refusal, Refused if something is in the way for too long, and StoreError if the
        server does not answer.
        """
        deadline, wait = time.monotonic() + self.patience, 0.01
        while True:
            try:
                return attempt()
            except (ConnectionLost, NotReplicated, Failed) as error:
                if isinstance(error, Failed) and not is_passing(error) and not is_repeat(error):
                    raise explain(error, self.address) from error
                if time.monotonic() + wait > deadline:
                    if isinstance(error, Failed):
                        raise Refused(f"{self.address.shown}: nothing was stored: {error}; try again") from error
                    raise StoreError(f"{self.address.shown}: {error}") from error
            time.sleep(wait)
            wait = min(wait * 2, 1.0)

    def write(self, statement: Statement, *values: Value) -> Result:
        """Run a statement that may be run twice until it is committed, for as long as `patience`; raises StoreError."""

        def attempt() -> Result:
            (found,) = self.send([(statement, values)])
            return _checked(found, self.address)

        return self.retry(attempt)

    @contextmanager
    def locked(self, statement: Statement, *values: Value) -> Iterator[Locked]:
        """Lock rows in a transaction, which ends with what is sent in it; raises ConnectionLost, Failed or Refused."""
        with self.link() as link:
            try:
                _, found = link.send([(_BEGIN, ()), (statement, values)])
                if isinstance(found, Failed):
                    raise found
                yield Locked(link, found.rows, self.address)
            finally:
                if link.pgconn.transaction_status in (pq.TransactionStatus.INTRANS, pq.TransactionStatus.INERROR):
                    with suppress(StoreError):
                        link.send([(_ROLLBACK, ())])

    def in_transaction(self, work: Callable[[Run], T], *, is_durable: bool = False) -> T:
        """Do something in one transaction; it is done again if that comes to nothing for a passing reason.

        With `is_durable` it is durable afterwards, also in a relaxed store. Raises DurabilityUnknown if the connection
        broke while it was committed.
        """
        return self.retry(lambda: self._try_transaction(work, is_durable=is_durable))

    def _try_transaction(self, work: Callable[[Run], T], *, is_durable: bool) -> T:
        with self.link() as link:

            def run(statement: Statement, *values: Value) -> Result:
                (found,) = link.send([(statement, values)])
                if isinstance(found, Failed) and is_repeat(found):
                    # Another transaction has just made the same row: this one has to see it.
                    raise found
                return _checked(found, self.address)

            run(_BEGIN)
            try:
                if is_durable and self.relaxed:
                    run(_DURABLE)
                done = work(run)
            except ConnectionLost:
                raise
            except BaseException:
                # The server has rolled it back already if that was its error.
                with suppress(StoreError):
                    run(_ROLLBACK)
                raise
            try:
                run(_COMMIT)
            except (ConnectionLost, NotReplicated) as error:
                raise DurabilityUnknown(f"whether it was done is not known: {error}") from error
            return done

    def load(self, batches: int) -> Load:
        """What there is to do and was done, with the batches that somebody else counts."""
        found = self._pool.get_stats()
        return Load(
            open=0,
            batches=batches,
            unsound=0,
            connections=found.get("pool_size", 0),
            idle=found.get("pool_available", 0),
            waiting=found.get("requests_waiting", 0),
            waits=found.get("requests_queued", 0),
            wait_seconds=found.get("requests_wait_ms", 0) / 1000,
            failed_connects=found.get("connections_errors", 0),
            round_trips=self._trips.count,
            round_trip_seconds=self._trips.seconds,
        )

    def begin_in_child(self) -> None:
        """After a fork: the connections are the parent's."""
        self._begin()

    def close(self) -> None:
        self._ending.set()
        self._pool.close()


def is_passing(error: Failed) -> bool:
    """Tell whether the same statement may succeed if it is tried again."""
    return error.code in _TRY_AGAIN


def is_repeat(error: Failed) -> bool:
    """Tell whether a row with the same name is there already."""
    return error.code == _UNIQUE


def explain(error: Failed, address: Address) -> StoreError:
    """What a refusal by the server means for the caller: nothing was stored, and what to do."""
    if error.code in _NOT_MADE:
        return StoreError(
            f"{address.shown} has no tables of nacre in schema {address.schema!r}, or of another version: "
            f"run `nacre store init {quote(address.shown)}`, or `nacre store upgrade`"
        )
    if error.code == _LEASE_LOST:
        return LeaseLost("another process has the lease by now; nothing was stored")
    if error.code in _FORBIDDEN:
        return NotAllowed(f"{address.shown}: {error}; docs/postgres.md says what the role needs")
    what = "the database is full: " if error.code in _FULL else ""
    return Refused(f"nothing was stored: {what}{error} (SQLSTATE {error.code})")


def _checked(found: Result | Failed, address: Address) -> Result:
    """The result of a statement; raises what its failure means, but for one that passes."""
    if isinstance(found, Failed):
        raise found if is_passing(found) else explain(found, address)
    return found
