"""The checks of `nacre doctor` for a store in a database: what may lose messages, slow them down or refuse them."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from nacre.cli.commands.diagnostics import Check, check_role, check_tables
from nacre.cli.one_line import several
from nacre.errors import NacreError
from nacre.opening import inspect_database

if TYPE_CHECKING:
    from nacre.sessions import Sessions
    from nacre.storage.postgres.inspection import Inspection

_OLDEST = 130_000
"""The first version of PostgreSQL that has all that is used."""
_SLOW = 0.02
_MAX_DRIFT = 2.0


def database_checks(url: str, count: Callable[[Callable[[Sessions], Check]], Check]) -> Iterator[Check]:
    """Ask the database at an address for everything that matters; `count` runs a check on the open store."""
    try:
        found = inspect_database(url)
    except NacreError as error:
        hint = "is it running, and may this machine and role reach it? `psql URL` shows the same error"
        yield Check("store", "fail", str(error), hint)
        return
    tables = check_tables(found)
    yield tables if tables.status != "ok" else count(_count_sessions)
    yield from inspection_checks(found)


def inspection_checks(found: Inspection) -> Iterator[Check]:
    """What is to be said of a database, besides its tables."""
    yield _check_server(found)
    yield _check_durability(found)
    yield _check_standby(found)
    yield check_role(found)
    yield _check_connection(found)
    yield _check_latency(found)
    yield _check_clock(found)
    yield _check_search(found)


def _count_sessions(sessions: Sessions) -> Check:
    active, archived = (sessions.page(which=which, limit=0).total for which in ("active", "archived"))
    return Check("store", "ok", f"{sessions.location}: {several(active, 'session')}, {archived:,} archived")


def _check_server(found: Inspection) -> Check:
    detail = f"PostgreSQL {found.release}, encoding {found.encoding}"
    if found.encoding != "UTF8":
        hint = "create another database: CREATE DATABASE nacre ENCODING 'UTF8' TEMPLATE template0"
        return Check("server", "fail", f"{detail}; sessions need UTF8", hint)
    if found.release_number < _OLDEST:
        return Check("server", "fail", detail, "upgrade it: nacre needs PostgreSQL 13 or later")
    return Check("server", "ok", detail)


def _check_durability(found: Inspection) -> Check:
    """Whether what was acknowledged survives a power cut of the server."""
    detail = f"synchronous_commit = {found.commits}, fsync = {found.fsync}, full_page_writes = {found.page_writes}"
    if "off" in (found.fsync, found.page_writes):
        hint = "set both to on in postgresql.conf: without them a power cut loses or damages what was stored"
        return Check("durability", "fail", detail, hint)
    if found.commits not in ("off", "local"):
        return Check("durability", "ok", detail)
    command = f"ALTER ROLE {found.role} SET synchronous_commit = on"
    if found.is_pooled:
        return Check("durability", "fail", f"{detail}, and a pooler keeps nacre from changing it", command)
    return Check("durability", "ok", f"{detail}; nacre turns synchronous_commit on for its own connections")


def _check_standby(found: Inspection) -> Check:
    """Whether what was acknowledged survives the loss of the server."""
    if not found.standby_names:
        detail = "no synchronous standby: what was stored since the last backup is lost with the server's disk"
        return Check("standby", "ok", f"{detail}; docs/postgres.md describes one")
    detail = f"synchronous_standby_names = {found.standby_names}"
    if found.standbys is None:
        return Check("standby", "ok", f"{detail}; role {found.role} may not see whether one is connected")
    if not found.standbys:
        hint = "start the standby: until then every write waits for it"
        return Check("standby", "fail", f"{detail}, but none is connected", hint)
    return Check("standby", "ok", f"{detail}; connected: {found.standbys}")


def _check_connection(found: Inspection) -> Check:
    """How the database is reached."""
    detail = "with TLS" if found.is_encrypted else "without TLS, on this machine"
    if found.is_pooled:
        detail += "; through a pooler that shares connections, so that `tail -f` and the page see news a little later"
    return Check("connection", "ok", detail)


def _check_latency(found: Inspection) -> Check:
    detail = f"{found.round_trip * 1000:.1f} ms for a round trip"
    if found.round_trip > _SLOW:
        hint = "every message takes at least one: run nacre near the database"
        return Check("latency", "warn", detail, hint)
    return Check("latency", "ok", detail)


def _check_clock(found: Inspection) -> Check:
    ahead = found.clock_ahead
    if abs(ahead) > _MAX_DRIFT:
        way = "fast" if ahead > 0 else "slow"
        detail = f"the server's clock is {abs(ahead):.0f} seconds {way} against this machine's"
        return Check("clock", "warn", detail, "synchronise both by NTP: times of messages are this machine's")
    return Check("clock", "ok", "the same time as here")


def _check_search(found: Inspection) -> Check:
    if found.has_trigrams and found.tables and not found.is_indexed:
        detail = (
            "pg_trgm is installed, but the indexes that it allows are not there: parts of words are found by reading"
        )
        return Check("search", "warn", f"{detail} every text", f"nacre store upgrade {shlex.quote(found.shown)}")
    if found.has_trigrams:
        return Check("search", "ok", "pg_trgm is installed: parts of words are found by an index")
    hint = "as a superuser, in this database: CREATE EXTENSION pg_trgm; then `nacre store upgrade`"
    return Check("search", "ok", "pg_trgm is not installed: parts of words are found by reading every text", hint)
