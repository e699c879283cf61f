"""The sockets that the server listens on, and clients that take up room: they say nothing, or read nothing."""

from __future__ import annotations

import select
import socket
from contextlib import ExitStack, suppress

import pytest

from nacre.web.gate import Limits
from nacre.web.server import listen
from tests.web.conftest import TOKEN, Echo, Serve, Site

PATIENT = 20
REQUEST = f"GET /api/sessions/k HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}\r\n\r\n".encode()


def test_a_connection_does_not_wait_for_acknowledgements() -> None:
    (server,) = listen("127.0.0.1", 0)
    with server, socket.create_connection(server.getsockname()):
        connection, _ = server.accept()
        with connection:
            assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def connected(site: Site) -> socket.socket:
    return socket.create_connection(("127.0.0.1", site.port), timeout=PATIENT)


@pytest.fixture
def small(server: Serve) -> Site:
    """A server that has room for eight connections."""
    return server(provider=Echo(), limits=Limits(connections=8))


@pytest.mark.parametrize(
    "start", [b"", b"GET / HT", b"POST /login HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n{"]
)
def test_many_connections_that_say_nothing_keep_nobody_out(small: Site, start: bytes, stack: ExitStack) -> None:
    idle = [stack.enter_context(connected(small)) for _ in range(8)]
    for line in idle:
        line.sendall(start)
    for _ in range(20):
        with small.visitor({"Authorization": f"Bearer {TOKEN}"}) as visitor:
            assert visitor.get("/api/sessions").status_code == 200
    # One of them made room.
    poll = select.poll()
    for line in idle:
        poll.register(line, select.POLLIN)
    (ended, _), *_ = poll.poll(PATIENT * 1000)
    with suppress(ConnectionResetError):
        assert next(line for line in idle if line.fileno() == ended).recv(100) == b""


def test_who_is_being_answered_is_not_closed_for_another(small: Site, stack: ExitStack) -> None:
    small.sessions.add_message("k", "user", "hello")
    follow = REQUEST.replace(b"/k ", b"/k/events ")
    busy = [stack.enter_context(connected(small)) for _ in range(8)]
    for line in busy:
        line.sendall(follow)
        assert line.recv(100).startswith(b"HTTP/1.1 200")
    with connected(small) as late:
        assert late.recv(100).startswith(b"HTTP/1.1 503")
    small.sessions.add_message("k", "user", "and again")
    for line in busy:
        assert line.recv(100)


def test_an_answer_that_its_client_does_not_read_is_not_kept(server: Serve) -> None:
    site = server(provider=Echo(), limits=Limits(stall_timeout=0.2))
    # More than the system itself holds for a connection.
    site.sessions.add_message("k", "user", "x" * 12_000_000)
    with socket.socket() as line:
        line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        line.connect(("127.0.0.1", site.port))
        line.sendall(REQUEST)
        gone = select.poll()
        gone.register(line, 0)
        assert gone.poll(PATIENT * 1000)
        assert line.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)


def test_an_answer_that_is_read_slowly_is_read_to_its_end(server: Serve) -> None:
    site = server(provider=Echo(), limits=Limits(stall_timeout=0.2, slowest_reader=1))
    site.sessions.add_message("k", "user", "x" * 12_000_000)
    with connected(site) as line:
        line.sendall(REQUEST.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))
        found = 0
        while piece := line.recv(65536):
            found += len(piece)
    assert found > 12_000_000
