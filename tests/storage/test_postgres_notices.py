"""Telling others that a session has changed: through the database, and without it by looking."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import closing

import pytest

import nacre
from nacre.storage.postgres.address import parse
from nacre.storage.postgres.connections import Connections
from nacre.storage.postgres.notices import Notices
from nacre.storage.postgres.statements import Statements
from nacre.storage.postgres.view import sid_of
from nacre.storage.watch import Watch
from tests.postgres.opened import open_store, through
from tests.postgres.programs import wait_until
from tests.postgres.proxy import Proxy
from tests.postgres.rows import Rows
from tests.postgres.servers import PostgresServer

LISTENING = "SELECT pid FROM pg_stat_activity WHERE query LIKE 'LISTEN%%' AND pid <> pg_backend_pid()"


@pytest.fixture
def rows(empty_database: str) -> Iterator[Rows]:
    with Rows(empty_database) as found:
        yield found


def names_until(watch: Watch, wanted: set[str]) -> set[str]:
    """What a watch is told until it was told all of this."""
    found: set[str] = set()
    while not wanted <= found:
        found |= watch.changed()
    return found


def test_another_process_is_told_which_session_has_changed(empty_database: str) -> None:
    with nacre.open(empty_database) as one, nacre.open(empty_database) as other:
        watch = one.watch()
        # At the beginning anything may have changed.
        assert watch.changed() == {""}
        other.add_message("k", "user", "a")
        assert names_until(watch, {sid_of("k")}) == {sid_of("k")}
        watch.close()


def test_of_very_many_changes_only_that_there_are_some_is_told(empty_database: str) -> None:
    with closing(open_store(empty_database)) as one, closing(open_store(empty_database)) as other:
        watch = one.watch()
        names_until(watch, {""})
        # The first is sent at once, and the others after a moment, together.
        for number in range(400):
            other.notices.tell(sid_of(f"k{number}"))
        assert len(names_until(watch, {""})) < 300
        watch.close()


def test_who_listens_goes_on_when_the_connection_has_broken(
    empty_database: str, rows: Rows, caplog: pytest.LogCaptureFixture
) -> None:
    with nacre.open(empty_database) as one, nacre.open(empty_database) as other:
        watch = one.watch()
        names_until(watch, {""})
        wait_until(lambda: len(rows.run(LISTENING)) == 1, "one connection that listens")
        ((first,),) = rows.run(LISTENING)
        rows.run("SELECT pg_terminate_backend(%s)", first)
        # After a break, too.
        names_until(watch, {""})
        assert "the database cannot be listened to" in caplog.messages
        wait_until(lambda: rows.run(LISTENING) not in ([], [(first,)]), "another connection that listens")
        other.add_message("k", "user", "a")
        assert sid_of("k") in names_until(watch, {sid_of("k")})
        watch.close()


def test_what_is_not_told_is_looked_for_in_the_end(empty_database: str) -> None:
    address = parse(empty_database)
    connections = Connections(address)
    notices = Notices(connections, Statements(address.schema), look_every=0.1)
    watch = notices.watch()
    notices.tell(sid_of("k"))
    names_until(watch, {sid_of("k")})
    for _ in range(3):
        names_until(watch, {""})
    watch.close()
    notices.close()
    connections.close()


def test_a_notice_that_cannot_be_sent_is_no_error(
    postgres: PostgresServer, empty_database: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, logger="nacre.storage.postgres.notices")
    with Proxy(postgres.port) as proxy, closing(open_store(through(empty_database, proxy.port), patience=0.1)) as store:
        proxy.refuse()
        proxy.disconnect()
        store.notices.tell(sid_of("k"))
        wait_until(lambda: "a notice was not sent" in caplog.messages, "a line in the log")


def test_a_second_watch_of_a_process_needs_no_other_connection(empty_database: str, rows: Rows) -> None:
    with nacre.open(empty_database) as sessions:
        first = sessions.watch()
        second = sessions.watch()
        sessions.add_message("k", "user", "a")
        assert sid_of("k") in names_until(second, {sid_of("k")})
        # Those of stores that were closed just now may still be on their way out.
        wait_until(lambda: len(rows.run(LISTENING)) == 1, "one connection that listens")
        for watch in (first, second):
            watch.close()
