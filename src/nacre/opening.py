"""nacre.open: picks the store."""

from __future__ import annotations

import os
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

from nacre.checks import show
from nacre.errors import ConfigError, InvalidArgument, StoreError, install_command
from nacre.history.session_state import RULES, keep
from nacre.sessions import SessionIndex, Sessions

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Self

    from nacre.storage.file_store import Durability
    from nacre.storage.maintenance import Copied
    from nacre.storage.postgres.address import Address
    from nacre.storage.postgres.inspection import Inspection
    from nacre.storage.postgres.schema import Upgrade
    from nacre.storage.protocol import Backend
    from nacre.storage.transfer import Outcome

MAIN = "main"
"""The agent whose store is not inside another's; as in `nacre.config`."""


def open(target: str | os.PathLike[str] | None = None, *, durability: Durability = "commit") -> Sessions:
    """Open the sessions at a place: a directory, `":memory:"`, `"postgresql://…"`, or where they are by default.

    The default is `NACRE_HOME`, else `nacre` in the user's data directory. With
    `durability="relaxed"` a write returns before it is flushed: it survives a killed process but not a
    power cut, until `save` or `close` has returned. Sessions of an earlier agent that are found there are
    migrated first. Raises StoreError if the place cannot be a store.

    >>> with nacre.open(":memory:") as sessions:
    ...     sessions.add_message("telegram:42", "user", "What is nacre?")
    2
    """
    if not isinstance(durability, str) or durability not in ("commit", "relaxed"):
        raise ConfigError(f"durability must be 'commit' or 'relaxed', not {show(durability)}")
    place = default_place() if target is None else _path(target)
    if place == ":memory:":
        from nacre.storage.memory_store import MemoryStore  # noqa: PLC0415 - only the store that is picked is loaded

        return Sessions(MemoryStore(rules=RULES))
    if is_url(place):
        return _open_database(place, durability=durability)
    from nacre.legacy.detect import is_due  # noqa: PLC0415 - the same
    from nacre.storage.file_store import FileStore  # noqa: PLC0415 - the same
    from nacre.storage.paths import listed  # noqa: PLC0415 - the same

    root = os.path.abspath(os.path.expanduser(place))  # noqa: PTH100, PTH111 - importing pathlib costs more than all this
    store = FileStore(root, rules=RULES, durability=durability)
    if is_due(store.system, root):
        from nacre.legacy import migrate_at_start  # noqa: PLC0415 - once in the life of a store, if ever

        migrate_at_start(store)
    sessions = Sessions(store, index=lambda: _index(root))
    if listed(store.system, f"{root}/redacting"):
        # Nobody reads before what is to be erased is gone. If that cannot be, all else can still be read.
        try:
            sessions.finish_redactions()
        except StoreError:
            import logging  # noqa: PLC0415 - costs more than all this

            logging.getLogger(__name__).exception(
                "a message could not be erased completely; the next opening tries again"
            )
    return sessions


def open_shared(url: str, *, lease_seconds: int) -> Sessions:
    """The sessions in a database, in which a turn is over if its holder does not renew it for `lease_seconds`."""
    return _open_database(url, durability="commit", lease_seconds=lease_seconds)


def _open_database(url: str, *, durability: Durability, lease_seconds: float | None = None) -> Sessions:
    """The sessions in a database; raises ConfigError if its address, or what is installed, cannot be used."""
    address = _address(url)
    with _named_extra():
        from nacre.index.postgres_index import PostgresIndex, labels  # noqa: PLC0415 - only the store that is picked is loaded
        from nacre.storage.postgres.store import LEASE_SECONDS, PostgresStore  # noqa: PLC0415 - the same
    store = PostgresStore(
        address,
        rules=RULES,
        labels=labels,
        relaxed=durability == "relaxed",
        lease_seconds=lease_seconds or LEASE_SECONDS,
    )
    return Sessions(store, index=lambda: PostgresIndex(store))


# ---- databases


def is_url(place: str) -> bool:
    """Tell whether a place is the address of a database, not a folder."""
    return "://" in place


def show_place(place: str) -> str:
    """A place for people: that of a database without its password."""
    if not is_url(place):
        return place
    from nacre.storage.postgres.address import hide_password  # noqa: PLC0415 - the same

    return hide_password(place)


def passwords_in(place: str) -> list[str]:
    """The passwords that a place has, which nobody must be shown."""
    from nacre.storage.postgres.address import passwords_in as find  # noqa: PLC0415 - the same

    return find(place) if is_url(place) else []


def with_password(url: str, known: str) -> str:
    """The address of a database with the password of another one, if that is of the same database."""
    from nacre.storage.postgres.address import with_password as add_password  # noqa: PLC0415 - the same

    return add_password(url, known)


def create_tables(url: str) -> bool:
    """Make the tables of a store in a database; False if they were there already. Raises StoreError if it cannot be."""
    address = _address(url)
    with _named_extra():
        from nacre.storage.postgres.schema import init  # noqa: PLC0415 - the same
    return init(address)


def upgrade_tables(url: str) -> Upgrade:
    """Bring the tables of a store to the version of this program, and add what the database allows since."""
    address = _address(url)
    with _named_extra():
        from nacre.storage.postgres.schema import upgrade  # noqa: PLC0415 - the same
    return upgrade(address)


def inspect_database(url: str) -> Inspection:
    """Ask a database whether a store in it can work well; raises StoreError if it cannot be reached."""
    address = _address(url)
    with _named_extra():
        from nacre.storage.postgres.inspection import inspect  # noqa: PLC0415 - the same
    return inspect(address)


def _address(url: str) -> Address:
    from nacre.storage.postgres.address import is_address, parse  # noqa: PLC0415 - the same

    if not is_address(url):
        raise ConfigError(
            f"sessions are stored in files, in memory or at postgresql://…, not at {url.partition('://')[0]}://"
        )
    return parse(url)


@contextmanager
def _named_extra() -> Iterator[None]:
    """Say how to install what is missing; raises ConfigError."""
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("psycopg", "psycopg_pool"):
            raise
        raise ConfigError(f"sessions in PostgreSQL need: {install_command('postgres')}") from error


# ---- where an agent's things are


def default_place() -> str:
    """Where sessions are kept when nothing is said; raises ConfigError for the address of a database."""
    home = os.environ.get("NACRE_HOME")
    if home:
        if is_url(home):
            # Not shown: it may hold a password.
            raise ConfigError("NACRE_HOME is a folder; put the address of a database into NACRE_STORE_URL")
        return home
    data = os.environ.get("XDG_DATA_HOME") or "~/.local/share"
    return f"{data}/nacre"


def store_of(store: str, agent: str) -> str:
    """The store of an agent, given the main one's: a folder inside it, or in a database a schema next to its own."""
    if agent == MAIN:
        return store
    if not is_url(store):
        return f"{store}/agents/{agent}"
    from nacre.storage.postgres.address import for_agent  # noqa: PLC0415 - the same

    return for_agent(store, agent)


def local_root(store: str | None, agent: str = MAIN) -> str:
    """The folder for what an agent keeps besides its sessions, given its own store: that, unless it is in a database.

    What belongs to a store in a database is where the store would be without one.
    """
    place = store or default_place()
    if is_url(place):
        place = store_of(default_place(), agent)
    return os.path.abspath(os.path.expanduser(place))  # noqa: PTH100, PTH111 - importing pathlib costs more than all this


def holder_of(root: str, key: str) -> int:
    """The process that has the turn of a session, in a store that is not opened for that.

    0 if there is none, or it cannot be known; -1 if it is unknown which.
    """
    from nacre.storage.locks import TurnLease  # noqa: PLC0415 - for those who look for a daemon
    from nacre.storage.paths import SessionPaths  # noqa: PLC0415 - the same
    from nacre.storage.system import System  # noqa: PLC0415 - the same
    from nacre.storage.view import fence_of  # noqa: PLC0415 - the same

    system, place = System(), SessionPaths.of(root, key)
    return TurnLease(system, place, fence=lambda: fence_of(system, place)).holder()


def back_up(root: str, folder: str, *, step: Callable[[], None]) -> Copied:
    """Copy a whole store into a new folder, also while it is written; `step` is called after each file.

    The store is not opened, so that nothing is migrated or repaired before it is copied.
    """
    from nacre.storage.maintenance import copy  # noqa: PLC0415 - for backups

    return copy(root, folder, step)


class Move:
    """Sessions on their way from one store to another; both are open for as long as a with statement lasts.

    They may be used meanwhile. A folder that is not there yet becomes a store.
    """

    def __init__(self, source: str, target: str) -> None:
        with ExitStack() as stack:
            found, other = (stack.enter_context(_opened_store(place)) for place in (source, target))
            self._store, self._source, self._target = found, found.transfer(), other.transfer()
            self._stack = stack.pop_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def holder_of(self, key: str) -> int:
        """The process that has the turn of a session in the source, as a lease names it."""
        return self._store.hold(key).holder()

    def copy(self) -> Iterator[Outcome]:
        """Copy what the target does not have yet, and compare the rest: what became of each generation."""
        from nacre.storage.transfer import copy  # noqa: PLC0415 - once in the life of a store

        return copy(self._source, self._target, keep=keep)

    def seal(self) -> None:
        """Let the source refuse writes and say where its sessions went; raises Conflict if they went elsewhere."""
        from nacre.storage.transfer import seal  # noqa: PLC0415 - the same

        seal(self._source, self._target)

    def copy_documents(self) -> None:
        """Copy what is kept with the sessions, such as how far channels have read, unless the target has it."""
        from nacre.storage.transfer import copy_documents  # noqa: PLC0415 - the same

        copy_documents(self._source, self._target)

    def only_in_target(self) -> list[str]:
        """The keys of what the target has and the source has not: others, or sessions that were deleted there."""
        from nacre.storage.transfer import only_in  # noqa: PLC0415 - the same

        return sorted({held.key for held in only_in(self._target, self._source)})


def sealed_to(place: str) -> str:
    """Where the sessions of a store were moved, "" if they were not; a store in a folder is not opened for that.

    Raises StoreError if a database cannot be asked.
    """
    if is_url(place):
        address = _address(place)
        with _named_extra():
            from nacre.storage.postgres.inspection import read_seal  # noqa: PLC0415 - the same
        return read_seal(address)
    from nacre.storage.seal import Seal  # noqa: PLC0415 - the same
    from nacre.storage.system import System  # noqa: PLC0415 - the same

    return Seal(System(), place).read()


def check_not_moved(sessions: Sessions) -> None:
    """Raise Refused if the sessions of an open store were moved elsewhere: nothing can be written to it."""
    if to := moved_to(sessions):
        from nacre.storage.seal import sealed  # noqa: PLC0415 - the same

        raise sealed(to, sessions.location)


def moved_to(sessions: Sessions) -> str:
    """Where the sessions of an open store were moved; "" if they were not."""
    return sessions._store.transfer().sealed_to()  # noqa: SLF001 - nobody but who moves all of them needs it


def unseal_command(place: str) -> str:
    """The command that lets a store accept writes again."""
    from nacre.storage.seal import unseal_command as command  # noqa: PLC0415 - the same

    return command(show_place(place))


def unseal(place: str) -> bool:
    """Let a store accept writes again whose sessions were moved; False if it does."""
    with _opened_store(place) as store:
        return store.transfer().unseal()


@contextmanager
def _opened_store(place: str) -> Iterator[Backend]:
    with open(place) as sessions:
        yield sessions._store  # noqa: SLF001 - nobody but who moves all of them needs it


def _index(root: str) -> SessionIndex:
    from nacre.index import Index  # noqa: PLC0415 - loads SQLite, for those who list, search or delete

    return Index(root)


def _path(target: object) -> str:
    path = os.fspath(target) if isinstance(target, str | os.PathLike) else None
    if not isinstance(path, str) or "\0" in path:
        raise InvalidArgument(f"the place of a store must be a path of text, not {show(target)}")
    return str.__str__(path)
