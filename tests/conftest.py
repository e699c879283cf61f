"""What every test may ask for: whether this is the long campaign, and a fresh place for a store."""

from __future__ import annotations

import os
import resource
import secrets
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.postgres.emptied import EmptiedStore
from tests.postgres.servers import PostgresServer

SHARED_MEMORY = Path("/dev/shm")

# Indexes of stores in temporary directories are of no use to the user who runs the tests.
_CACHE = tempfile.TemporaryDirectory(prefix="nacre-cache-")
os.environ["XDG_CACHE_HOME"] = _CACHE.name

# A process keeps the lock of turns open for every store that it had, and tests have hundreds.
_FILES, _MAX_FILES = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (max(_FILES, min(_MAX_FILES, 10_240)), _MAX_FILES))

# No property may fail because the machine is busy, and each run tries the same examples.
settings.register_profile("nacre", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("nacre")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--campaign", action="store_true", help="run the fault tests for hours, not for seconds")
    parser.addoption("--write-golden", action="store_true", help="write the files of tests/golden/files anew")


@pytest.fixture(scope="session")
def campaign(request: pytest.FixtureRequest) -> bool:
    """Whether to try everything, however long it takes."""
    return bool(request.config.getoption("--campaign"))


@pytest.fixture
def root(tmp_path: Path) -> Iterator[Path]:
    """A directory for one store, in RAM where there is such a place: a flush costs nothing there."""
    if not os.access(SHARED_MEMORY, os.W_OK):
        yield tmp_path / "store"
        return
    directory = Path(tempfile.mkdtemp(prefix="nacre-", dir=SHARED_MEMORY))
    yield directory / "store"
    shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """A PostgreSQL server for all tests of a process; none of them may stop it, or rely on what a crash keeps."""
    with PostgresServer(fast=True) as server:
        yield server


@pytest.fixture
def database(postgres: PostgresServer) -> Iterator[str]:
    """The address of one store in PostgreSQL: a schema that nobody has created yet, and that is dropped afterwards."""
    schema = f"test_{secrets.token_hex(6)}"
    yield f"{postgres.url()}?schema={schema}"
    # The stores of other agents are in schemas whose names begin with this one.
    schemas = [name for [name] in postgres.query("SELECT nspname FROM pg_namespace") if name.startswith(schema)]
    if schemas:
        # A transaction that the test has left open would make this wait.
        postgres.query(f"SET lock_timeout = '10s'; DROP SCHEMA {', '.join(schemas)} CASCADE")


@pytest.fixture(scope="session")
def emptied_store(postgres: PostgresServer) -> Iterator[EmptiedStore]:
    """A store in PostgreSQL for all tests of a process, which is emptied before each."""
    with EmptiedStore(f"{postgres.url()}?schema=emptied") as store:
        yield store


@pytest.fixture
def empty_database(emptied_store: EmptiedStore) -> str:
    """The address of a store in PostgreSQL that has its tables and nothing in them."""
    return emptied_store.empty()


@pytest.fixture(params=["files", "ram", "postgres"])
def place(request: pytest.FixtureRequest) -> str:
    """A place for one store, as `nacre.open` takes it, for tests of what is the same in all of them."""
    return place_of(request)


@pytest.fixture(params=["files", "postgres"])
def lasting_place(request: pytest.FixtureRequest) -> str:
    """The same, for tests that open it more than once."""
    return place_of(request)


def place_of(request: pytest.FixtureRequest) -> str:
    if request.param == "ram":
        return ":memory:"
    return str(request.getfixturevalue("root" if request.param == "files" else "empty_database"))
