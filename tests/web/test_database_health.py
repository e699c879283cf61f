"""The numbers and the readiness of a daemon whose sessions are in PostgreSQL."""

from __future__ import annotations

import errno
import os
from functools import partial
from pathlib import Path

import pytest

from nacre.errors import Refused
from nacre.opening import Move
from nacre.storage.postgres.address import parse
from nacre.storage.postgres.schema import init
from nacre.web import health
from nacre.web.http_errors import fault_of
from tests.postgres.opened import through
from tests.postgres.proxy import Proxy
from tests.postgres.servers import PostgresServer
from tests.web.conftest import Echo, Serve
from tests.web.test_health import numbers


def test_connections_and_round_trips_are_counted(server: Serve, database: str) -> None:
    init(parse(database))
    site = server(provider=Echo(), root=database)
    assert site.client.post("/api/sessions/k/messages", json={"content": "hi"}).status_code == 200
    found = numbers(site)
    states = [found[f"nacre_database_connections agent=main,state={state}"] for state in ("idle", "used")]
    assert sum(states) >= 1
    assert found["nacre_database_waiting agent=main"] == 0
    assert found["nacre_database_failed_connects_total agent=main"] == 0
    assert found["nacre_database_wait_seconds_total agent=main"] >= 0
    before = found["nacre_database_round_trips_total agent=main"]
    assert site.client.post("/api/sessions/k/messages", json={"content": "ho"}).status_code == 200
    found = numbers(site)
    assert found["nacre_database_round_trips_total agent=main"] > before
    assert found["nacre_database_round_trip_seconds_total agent=main"] > 0


def test_files_have_no_connections(server: Serve) -> None:
    site = server(provider=Echo())
    assert not [name for name in numbers(site) if name.startswith("nacre_database")]


def test_a_database_that_does_not_answer_is_not_ready(server: Serve, database: str, postgres: PostgresServer) -> None:
    init(parse(database))
    with Proxy(postgres.port) as proxy:
        site = server(provider=Echo(), root=through(database, proxy.port))
        state = site.web.state
        state.check = site.call(lambda: health.Check(state.parts, fresh=0, timeout=0.2))
        proxy.stall()
        answer = site.client.get("/readyz")
        assert (answer.status_code, answer.json()["failing"]) == (503, ["store"])
        proxy.resume()
        while site.client.get("/readyz").status_code != 200:
            # The look that hung goes on.
            continue


def test_a_sealed_store_is_not_ready(server: Serve, database: str, tmp_path: Path) -> None:
    init(parse(database))
    for place in (str(tmp_path / "store"), database):
        site = server(provider=Echo(), root=place)
        assert site.client.get("/readyz").status_code == 200
        with Move(place, str(tmp_path / "other")) as move:
            move.seal()
        state = site.web.state
        state.check = site.call(partial(health.Check, state.parts, fresh=0))
        answer = site.client.get("/readyz")
        assert (answer.status_code, answer.json()["failing"]) == (503, ["store"])
        assert f"its sessions were moved to {tmp_path}/other" in answer.json()["reasons"][0]
        refused = site.client.post("/api/sessions/k/messages", json={"content": "hi"})
        assert (refused.status_code, refused.json()["code"]) == (503, "unavailable")


@pytest.mark.parametrize(
    ("text", "status"),
    [
        ("the database at postgresql://db.example/nacre cannot be reached, nothing was stored: no route", 503),
        (f"session 'k': nothing was stored: {OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))}", 507),
        ("nothing was stored: the database is full: no space (SQLSTATE 53100)", 507),
    ],
)
def test_only_a_full_disk_is_insufficient_storage(text: str, status: int) -> None:
    assert fault_of(Refused(text)).status == status
