"""A proxy in front of a server that understands its protocol, and loses connections exactly where a test wants it."""

from __future__ import annotations

import socket
import struct
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import BinaryIO, Literal, Self

from tests.postgres.programs import HOST, free_port

_HEADER = struct.Struct("!BI")
_STARTUP_HEADER = struct.Struct("!II")
_ENCRYPTION_REQUESTS = (80877103, 80877104)
_CANCEL_REQUEST = 80877102
# Messages of a client that begin no request: password, flush, end, and the rows of a COPY.
_BEGIN_NOTHING = frozenset(b"pHXdcf")
# Messages that end a request, since the server answers them with ReadyForQuery: Query, Sync, FunctionCall.
_END_REQUEST = frozenset(b"QSF")
_RUN_STATEMENT = frozenset(b"QE")
_SYNC, _COPY_IN, _READY = b"SGZ"
_ATTEMPTS = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """What happens at a request: before it reaches the server, or after the server has executed it."""

    action: Literal["cut", "stall"]
    when: Literal["before", "after"]


class Proxy:
    """A proxy on loopback in front of the port of a server; it runs from `with` to its end.

    A request is what the server answers with one ReadyForQuery: a simple query, or everything up to a Sync, however
    many statements that has. It is one round trip. Requests are counted from 1 over all connections; logging in is
    none. A fault happens once. All methods may be called from any thread.

    It runs in threads of this process, so a client here must not hold the interpreter while it waits: psycopg's
    `cancel` does, and its `cancel_safe` where libpq is older than 17.
    """

    def __init__(self, server_port: int) -> None:
        self.server_port = server_port
        self.port = free_port()
        self.delay = 0.0
        """How long each request waits before it goes on to the server, in seconds."""
        self.uncounted = b""
        """Requests whose first message has this pass as if they were none: those that a client sends at any time."""
        self.flows = threading.Event()
        self.flows.set()
        self._lock = threading.Lock()
        self._listening: tuple[socket.socket, threading.Thread] | None = None
        self._connections: set[_Connection] = set()
        self._planned: dict[int, Fault] = {}
        self._requests = self._statements = self._logins = self._faults = 0

    def __enter__(self) -> Self:
        for _ in range(_ATTEMPTS):
            with suppress(OSError):
                self.accept()
                return self
            self.port = free_port()
        raise OSError(f"the proxy found every port taken, {_ATTEMPTS} times")

    def __exit__(self, *_: object) -> None:
        self.close()

    # ---- what has passed

    @property
    def requests(self) -> int:
        """How many requests have begun, with those that were cut off."""
        return self._requests

    @property
    def statements(self) -> int:
        """How many statements clients have sent, with those that were cut off."""
        return self._statements

    @property
    def logins(self) -> int:
        """How many connections clients have made, without those that only cancel a statement."""
        return self._logins

    @property
    def faults(self) -> int:
        """How many of the planned faults have happened."""
        return self._faults

    def reset(self) -> None:
        """Count from the beginning, and forget the faults that have not happened."""
        with self._lock:
            self._requests = self._statements = self._logins = self._faults = 0
            self._planned.clear()

    # ---- faults at a request

    def cut_before(self, request: int) -> None:
        """Close the connection that sends this request, and do not send it to the server."""
        self._plan(request, Fault(action="cut", when="before"))

    def cut_after(self, request: int) -> None:
        """Let the server execute this request to its end, then close the connection without the reply."""
        self._plan(request, Fault(action="cut", when="after"))

    def stall_before(self, request: int) -> None:
        """Let nothing pass on any connection until `resume`, from before this request."""
        self._plan(request, Fault(action="stall", when="before"))

    def stall_after(self, request: int) -> None:
        """Let the server execute this request; its reply and all that follows wait for `resume`."""
        self._plan(request, Fault(action="stall", when="after"))

    def _plan(self, request: int, fault: Fault) -> None:
        with self._lock:
            if request <= self._requests:
                raise ValueError(f"request {request} is past: {self._requests} have begun")
            self._planned[request] = fault

    # ---- faults now

    def stall(self) -> None:
        """Let nothing pass until `resume`: connections stay open, and new ones get no answer."""
        self.flows.clear()

    def resume(self) -> None:
        """Let everything pass that was held back."""
        self.flows.set()

    def disconnect(self) -> None:
        """Close all connections."""
        with self._lock:
            connections = list(self._connections)
        for connection in connections:
            connection.cut()

    def refuse(self) -> None:
        """Refuse new connections until `accept`; those that are open stay open."""
        with self._lock:
            listening, self._listening = self._listening, None
        if listening is not None:
            listener, thread = listening
            with suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)  # wakes the thread
            thread.join()
            listener.close()

    def accept(self) -> None:
        """Accept connections, for the first time or again."""
        with self._lock:
            if self._listening is None:
                listener = socket.create_server((HOST, self.port), backlog=128)
                thread = threading.Thread(target=self._serve, args=(listener,), daemon=True)
                self._listening = (listener, thread)
                thread.start()

    def close(self) -> None:
        """Close everything, and wait until no thread is left."""
        self.refuse()
        self.resume()
        with self._lock:
            connections = list(self._connections)
        for connection in connections:
            connection.cut()
            connection.join()

    def _serve(self, listener: socket.socket) -> None:
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            connection = _Connection(self, client)
            with self._lock:
                self._connections.add(connection)
            connection.start()

    # ---- for the connections

    def count_login(self) -> None:
        with self._lock:
            self._logins += 1

    def count_statement(self) -> None:
        with self._lock:
            self._statements += 1

    def count_fault(self) -> None:
        with self._lock:
            self._faults += 1

    def begin_request(self) -> Fault | None:
        """Count a request; returns what is to happen to it."""
        with self._lock:
            self._requests += 1
            return self._planned.pop(self._requests, None)

    def forget(self, connection: _Connection) -> None:
        with self._lock:
            self._connections.discard(connection)


class _Connection:
    """A connection of a client and the one to the server that belongs to it, with a thread for each direction."""

    def __init__(self, proxy: Proxy, client: socket.socket) -> None:
        self._proxy = proxy
        self._client = client
        self._server: socket.socket | None = None
        self._is_cut = threading.Event()
        # One entry for each reply that is to come, first the one to the login: what is to happen to it.
        self._replies: deque[Fault | None] = deque([None])
        self._is_copying = False
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def join(self) -> None:
        self._thread.join()

    def cut(self) -> None:
        """Close both sides for good; the threads notice it and end."""
        self._is_cut.set()
        for side in (self._client, self._server):
            if side is not None:
                with suppress(OSError):
                    side.shutdown(socket.SHUT_RDWR)

    def _run(self) -> None:
        try:
            with self._client, self._client.makefile("rb") as sent, suppress(OSError):
                self._client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                startup = self._read_startup(sent)
                self._proxy.flows.wait()
                if startup and not self._is_cut.is_set():
                    self._forward(startup, sent)
        finally:
            self._proxy.forget(self)

    def _read_startup(self, sent: BinaryIO) -> bytes:
        """The first message of a client; encryption is declined, since nobody could look into it."""
        while header := _read_exactly(sent, _STARTUP_HEADER.size):
            length, code = _STARTUP_HEADER.unpack(header)
            body = _read_exactly(sent, length - _STARTUP_HEADER.size)
            if code in _ENCRYPTION_REQUESTS:
                self._client.sendall(b"N")
                continue
            if code != _CANCEL_REQUEST:
                self._proxy.count_login()
            return header + body
        return b""

    def _forward(self, startup: bytes, sent: BinaryIO) -> None:
        with socket.create_connection((HOST, self._proxy.server_port)) as server:
            server.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._server = server
            # It may have been cut while there was no server to close.
            if self._is_cut.is_set():
                return
            back = threading.Thread(target=self._send_replies, args=(server,), daemon=True)
            back.start()
            try:
                server.sendall(startup)
                self._send_requests(server, sent)
            finally:
                self.cut()
                back.join()

    def _send_requests(self, server: socket.socket, sent: BinaryIO) -> None:
        is_within = False
        for kind, message in _read_messages(sent):
            if kind == _SYNC and self._is_copying:
                # The server has ignored the Sync before the COPY: this one ends the same request.
                self._is_copying = False
            elif kind not in _BEGIN_NOTHING:
                if not is_within and not self._begin_request(message):
                    return
                is_within = kind not in _END_REQUEST
            if kind in _RUN_STATEMENT:
                self._proxy.count_statement()
            self._proxy.flows.wait()
            server.sendall(message)

    def _begin_request(self, message: bytes) -> bool:
        """Whether a request may go on to the server."""
        if self._proxy.uncounted and self._proxy.uncounted in message:
            self._replies.append(None)
            return True
        fault = self._proxy.begin_request()
        self._is_cut.wait(self._proxy.delay)
        if fault is not None and fault.when == "before":
            self._proxy.count_fault()
            if fault.action == "cut":
                return False
            self._proxy.stall()
        self._replies.append(fault)
        return True

    def _send_replies(self, server: socket.socket) -> None:
        held = b""
        with server.makefile("rb") as replied, suppress(OSError):
            for kind, message in _read_messages(replied):
                fault = self._replies[0] if self._replies else None
                if kind == _COPY_IN:
                    self._is_copying = True
                if kind == _READY and self._replies:
                    self._replies.popleft()
                    self._is_copying = False
                held += message
                # A reply that shall be lost is held until it is complete; but a client must see that it may COPY.
                if fault is not None and fault.when == "after":
                    if kind == _READY:
                        self._proxy.count_fault()
                        if fault.action == "cut":
                            break
                        self._proxy.stall()
                    elif kind != _COPY_IN:
                        continue
                self._proxy.flows.wait()
                self._client.sendall(held)
                held = b""
        self.cut()


def _read_messages(stream: BinaryIO) -> Iterator[tuple[int, bytes]]:
    while header := _read_exactly(stream, _HEADER.size):
        kind, length = _HEADER.unpack(header)
        body = _read_exactly(stream, length - 4)
        if len(body) < length - 4:
            return
        yield kind, header + body


def _read_exactly(stream: BinaryIO, size: int) -> bytes:
    """So many bytes, or none if the stream has ended before."""
    found = stream.read(size)
    return found if len(found) == size else b""
