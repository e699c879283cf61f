"""The sockets that the server listens on."""

from __future__ import annotations

import socket

from nacre.web.server import listening


def test_a_connection_does_not_wait_for_acknowledgements() -> None:
    (server,) = listening("127.0.0.1", 0)
    with server, socket.create_connection(server.getsockname()):
        connection, _ = server.accept()
        with connection:
            assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
