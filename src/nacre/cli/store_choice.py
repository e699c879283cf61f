"""The store that a command works on, and the rows of its last list, so that `@3` can name one."""

from __future__ import annotations

import os
import stat
import sys
from argparse import Namespace
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING
from zlib import crc32

from nacre.cli.failures import Failure
from nacre.cli.one_line import clean
from nacre.cli.verbs import MAIN, default_place

if TYPE_CHECKING:
    from nacre.sessions import Sessions

# Between the store's path and the keys of its last list: neither has it within.
_BETWEEN = "\0"


def store_of(args: Namespace) -> str:
    """The agent's store, a folder or a URL: --store, else NACRE_STORE_URL, store.url, or the local folder.

    A URL may hold a password: `shown_store` is for people. Raises ConfigError for one that cannot be used.
    """
    place = main_store(args)
    if args.agent == MAIN:
        return place
    if not is_url(place):
        return f"{place}/agents/{args.agent}"
    from nacre.opening import store_of as database_of  # noqa: PLC0415 - loads the library

    return database_of(place, args.agent)


def main_store(args: Namespace) -> str:
    """The store of the main agent, in which or next to which those of others are."""
    from nacre import config  # noqa: PLC0415 - completion needs no settings

    place: str = args.store or config.store_url() or default_place()
    if not is_url(place):
        return os.path.abspath(os.path.expanduser(place))
    if args.store:
        return given_url(place)
    return place


def given_url(url: str) -> str:
    """An address from the command line, which has no password; NACRE_STORE_URL may have that of the same database.

    So what an error or a receipt shows can be given again. Raises ConfigError for one that cannot be used.
    """
    from nacre import config  # noqa: PLC0415 - the same
    from nacre.opening import with_password  # noqa: PLC0415 - loads the library

    config.check_store_url(url, may_have_password=False)
    return with_password(url, os.environ.get("NACRE_STORE_URL", ""))


def shown_store(args: Namespace) -> str:
    """The store for people: a folder, or a URL without its password. It is the `location` of its sessions."""
    return show(store_of(args))


def show(store: str) -> str:
    """A store for people."""
    if not is_url(store):
        return store
    from nacre.opening import show_place  # noqa: PLC0415 - loads the library

    return show_place(store)


def is_url(place: str) -> bool:
    """Tell whether a place is the address of a database; as in `nacre.opening`, which would take too long to load."""
    return "://" in place


def root_of(args: Namespace) -> str:
    """The local folder of the agent: for its home, workspace, logins and tokens; its store too, if that is a folder."""
    root = main_root(args)
    return root if args.agent == MAIN else f"{root}/agents/{args.agent}"


def main_root(args: Namespace) -> str:
    """The local folder of the main agent."""
    given = "" if not args.store or is_url(args.store) else args.store
    return os.path.abspath(os.path.expanduser(given or default_place()))


def open_store(args: Namespace, *, create: bool = False) -> Sessions:
    """Open the store; one that was named and is not there is an error, the default one is then just empty.

    Raises Failure for a place that cannot be a store: it must not look like a store without sessions.
    """
    from nacre.cli.notices import print_warnings  # noqa: PLC0415 - a list that is up to date opens nothing
    from nacre.opening import open as open_sessions  # noqa: PLC0415 - the same

    print_warnings()
    store = store_of(args)
    if is_url(store) or _is_folder(store) or create:
        return open_sessions(store)
    if args.store or args.agent != MAIN:
        raise Failure(
            "not_found",
            f"there is no store at {store}",
            hint="the first message creates one; check --store and --agent",
        )
    if not getattr(args, "quiet", True):
        sys.stderr.write(f"no store at {clean(store)} yet; the first message creates it\n")
    return open_sessions(":memory:")


def _is_folder(path: str) -> bool:
    """Tell whether there is a folder; False if there is nothing. Raises Failure for anything else."""
    hint = "move it away, or choose another store with --store"
    try:
        mode = os.stat(path).st_mode
    except FileNotFoundError:
        if not os.path.islink(path):
            return False
        mode = 0
    except NotADirectoryError:
        above = os.path.dirname(path)
        while not os.path.lexists(above):
            above = os.path.dirname(above)
        raise Failure("failed", f"{above} is not a directory, so there is no store at {path}", hint=hint) from None
    except OSError as error:
        raise Failure("failed", f"the store at {path} cannot be read: {error.strerror or error}", hint=hint) from error
    if not stat.S_ISDIR(mode):
        raise Failure("failed", f"{path} is not a directory", hint=hint)
    return True


def count_logs(folder: str) -> int:
    try:
        return sum(name.endswith(".jsonl") for name in os.listdir(folder))
    except OSError:
        return 0


def emptied_logs(root: str) -> list[str]:
    """Logs that have lost everything; one that is being created has a file next to it that says so."""
    found: list[str] = []
    for folder in ("sessions", "archive"):
        with suppress(OSError), os.scandir(f"{root}/{folder}") as files:
            empty = {file.name for file in files if file.name.endswith((".jsonl", ".new")) and not file.stat().st_size}
            logs = (name for name in empty if name.endswith(".jsonl"))
            found += [f"{folder}/{name}" for name in logs if f"{name.removesuffix('.jsonl')}.new" not in empty]
    return sorted(found)


def is_active(sessions: Sessions, key: str) -> bool:
    """Tell whether a key has an active session; a write to any other would begin a new one."""
    return sessions.status(key) == "active"


def remember_rows(store: str, keys: Sequence[str]) -> None:
    """Keep the rows of a list; where the cache cannot be written, `@3` will just not work."""
    path = _rows_path(store)
    scratch = f"{path}.{os.getpid()}"
    try:
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        fd = os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
        with os.fdopen(fd, "wb") as file:
            file.write(_BETWEEN.join((store, *keys)).encode("utf-8", "surrogateescape"))
        os.replace(scratch, path)
    except OSError:
        return


def recall_rows(store: str) -> list[str]:
    """The keys of the last list of a store, in order; none if there was no such list."""
    try:
        with open(_rows_path(store), "rb") as file:
            listed, *keys = file.read().decode("utf-8", "surrogateescape").split(_BETWEEN)
    except OSError:
        return []
    return keys if listed == store else []


def _rows_path(store: str) -> str:
    """One file per store, so that a list of another does not take the rows away; two rarely share a file."""
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return os.path.join(cache, "nacre", f"rows-{crc32(os.fsencode(store)):08x}")
