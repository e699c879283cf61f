"""What the tests of PostgreSQL may ask for besides `postgres` and `database`: servers that they may stop and kill."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.postgres.proxy import Proxy
from tests.postgres.servers import PostgresServer


@pytest.fixture
def server() -> Iterator[PostgresServer]:
    """A durable server of the test's own, which it may stop, kill and configure."""
    with PostgresServer() as found:
        yield found


@pytest.fixture
def proxy(postgres: PostgresServer) -> Iterator[Proxy]:
    """A proxy in front of the shared server: `postgres.url(port=proxy.port)`."""
    with Proxy(postgres.port) as found:
        yield found
