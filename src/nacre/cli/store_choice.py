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


def root_of(args: Namespace) -> str:
    """Where the store is: --store, else NACRE_HOME, else the user's data directory."""
    return os.path.abspath(os.path.expanduser(args.store or default_place()))


def main_root(args: Namespace) -> str:
    """The store of the main agent: --agent makes `root_of` that of another."""
    return root_of(args) if args.agent == MAIN else root_of(args).removesuffix(f"/agents/{args.agent}")


def open_store(args: Namespace, *, create: bool = False) -> Sessions:
    """Open the store; one that was named and is not there is an error, the default one is then just empty.

    Raises Failure for a place that cannot be a store: it must not look like a store without sessions.
    """
    from nacre.cli.notices import print_warnings  # noqa: PLC0415 - a list that is up to date opens nothing
    from nacre.opening import open as open_sessions  # noqa: PLC0415 - the same

    print_warnings()
    root = root_of(args)
    if _is_folder(root) or create:
        return open_sessions(root)
    if args.store:
        raise Failure(
            "not_found", f"there is no store at {root}", hint="the first message creates one; check --store and --agent"
        )
    if not getattr(args, "quiet", True):
        sys.stderr.write(f"no store at {clean(root)} yet; the first message creates it\n")
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
