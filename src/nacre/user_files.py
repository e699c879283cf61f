"""The files that nacre keeps for a user outside the store: where they are, and how one is replaced."""

# The command line uses this before anything else is loaded, and pathlib takes its time.
# ruff: noqa: PTH103, PTH105, PTH108, PTH111, PTH112, PTH118, PTH208

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress


def state_folder() -> str:
    """The user's state directory for nacre: `$XDG_STATE_HOME/nacre`."""
    home = os.environ.get("XDG_STATE_HOME") or "~/.local/state"
    return os.path.join(os.path.expanduser(home), "nacre")


def standby_folder(root: str) -> str:
    """Where the sessions of a store are written while it cannot be used."""
    from hashlib import blake2b  # noqa: PLC0415 - most runs do not need it

    return os.path.join(state_folder(), "standby", blake2b(root.encode(), digest_size=8).hexdigest())


def has_standby(root: str) -> bool:
    """Tell whether sessions of a store wait outside it until they are brought into it."""
    return any(name.endswith(".json") for place in standby_places(root) for name in os.listdir(place))


def standby_places(root: str) -> list[str]:
    """The folders in which they wait: one for each process that wrote at the same time."""
    folder = standby_folder(root)
    with suppress(FileNotFoundError, NotADirectoryError):
        places = (os.path.join(folder, name) for name in sorted(os.listdir(folder)))
        return [place for place in places if os.path.isdir(place)]
    return []


def standby_documents(root: str, key: str) -> list[str]:
    """The documents of a session that wait there, from which it would come back after a deletion."""
    found: list[str] = []
    for place in standby_places(root):
        import json  # noqa: PLC0415 - most stores have none

        for name in os.listdir(place):
            path = os.path.join(place, name)
            with suppress(OSError, ValueError, RecursionError, AttributeError), open(path, encoding="utf-8") as file:  # noqa: PTH123
                if ".json" in name and json.load(file).get("key") == key:
                    found.append(path)
    return found


@contextmanager
def locked(folder: str | os.PathLike[str]) -> Iterator[None]:
    """Change files of a folder while other processes wait; the folder is made if it is not there."""
    import fcntl  # noqa: PLC0415 - only to write

    os.makedirs(folder, mode=0o700, exist_ok=True)
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def write_whole(file: str | os.PathLike[str], data: bytes) -> None:
    """Replace a file whole or not at all, durably; only its owner may read it. A link to it stays a link."""
    import tempfile  # noqa: PLC0415 - only to write

    file = os.path.realpath(file)
    folder, name = os.path.split(os.fspath(file))
    handle, scratch = tempfile.mkstemp(prefix=f".{name}.", dir=folder)
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(handle)
        os.replace(scratch, file)
    except BaseException:
        with suppress(OSError):
            os.unlink(scratch)
        raise
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
