"""Where the files of one session are, how a log is opened, and how directories are listed, created and flushed.

The log of an active session is always `<slug>~<hash>.jsonl`, a name that no earlier agent makes by accident. The other
files of a session, which stand in folders of nacre's own, have its stem: a plain key itself, else the same.
"""

from __future__ import annotations

import errno
import os
import re
import stat as modes
from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import lru_cache
from typing import NamedTuple
from weakref import WeakKeyDictionary

from nacre.checks import check_key
from nacre.errors import LogDamaged
from nacre.storage.system import System, opened

_UID = re.compile(r"[0-9a-f]{32}\Z")
_LAST_UID = "f" * 32
_ANY_LOG = b'{"v":'
_MAX_MICROS = 16**14 - 1
_BLOCK = 1024 * 1024
_SETTLED = 2_000_000_000
"""Nanoseconds after which the time of a folder tells of every change; clocks of file systems tick slowly."""
_SAFE = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}\Z")
_LOG = re.compile(r"[a-z0-9_-]*~[0-9a-f]{32}\Z")
_RESERVED = {"con", "prn", "aux", "nul", *(f"{port}{i}" for port in ("com", "lpt") for i in range(10))}


# ---- a key as a file name


@lru_cache(maxsize=4096)
def stem(key: str) -> str:
    """Return the name, without its ending, that the files of the session `key` have besides its log.

    A safe key is its own name; any other gets a readable slug, `~` and a hash of the whole key.
    `~` is not in the safe alphabet, so the two kinds never meet.
    Raises InvalidKey for what cannot be a key.
    """
    key = check_key(key)
    if _is_plain(key):
        return key
    slug = re.sub(r"[^a-z0-9]+", "-", key.lower().encode("ascii", "ignore").decode()).strip("-")[:40]
    return f"{slug}~{_hash(key)}"


@lru_cache(maxsize=4096)
def log_stem(name: str) -> str:
    """Return the name of the active log, without its ending, of the session whose stem is `name`."""
    return name if "~" in name else f"{name}~{_hash(name)}"


def stem_of_log(file: str) -> str:
    """Return the stem of the session whose active log has this name, without its ending.

    A log that an earlier version made may have the plain key as its name.
    """
    name = file.partition("~")[0]
    return name if name != file and _is_plain(name) and log_stem(name) == file else file


def is_log_name(file: str) -> bool:
    """Tell whether a name, without its ending, is one that active logs have today."""
    return _LOG.match(file) is not None


def key_of(name: str) -> str | None:
    """Return the key that a stem alone tells, if it does."""
    return name if _is_plain(name) else None


def _is_plain(key: str) -> bool:
    return _SAFE.match(key) is not None and key not in _RESERVED


def _hash(key: str) -> str:
    from hashlib import blake2b  # noqa: PLC0415 - brings OpenSSL along, which a program that only imports does not need

    return blake2b(key.encode(), digest_size=16).hexdigest()


class SessionPaths(NamedTuple):
    """The paths of one session in one store."""

    root: str
    key: str
    name: str
    archived: str = ""

    @classmethod
    def of(cls, root: str, key: str, archived: str = "") -> SessionPaths:
        """The active session of a key, or its archived generation of that uid."""
        return cls(root, key, stem(key), archived)

    @classmethod
    def of_file(cls, root: str, file: str) -> SessionPaths:
        """The session of a log that was met by its name in `sessions` or in `archive`; its key is in its header."""
        name, _, uid = file.removesuffix(".jsonl").partition(".")
        return cls(root, "", name if uid else stem_of_log(name), uid)

    @property
    def folder(self) -> str:
        return f"{self.root}/archive" if self.archived else f"{self.root}/sessions"

    @property
    def log(self) -> str:
        return f"{self._base}.jsonl"

    @property
    def plain(self) -> str:
        """The name that earlier versions gave an active log, the plain key; "" if it never had another than today's."""
        return "" if self.archived or "~" in self.name else f"{self.folder}/{self.name}.jsonl"

    @property
    def path(self) -> str:
        """The log's path below the store."""
        return self.log[len(self.root) + 1 :]

    @property
    def scratch(self) -> str:
        """Where the next log is written before it takes the old one's name; only under the log's lock."""
        return f"{self._base}.tmp"

    @property
    def scratches(self) -> tuple[str, ...]:
        """Where a rewrite that was cut short may have left a part of the session; also one of an earlier version."""
        return (self.scratch, f"{self.plain.removesuffix('.jsonl')}.tmp") if self.plain else (self.scratch,)

    @property
    def birth(self) -> str:
        """An empty file that is there from before the log is made until its first record is in it.

        So a log without a byte is one whose creation was cut short if this is next to it, and an emptied one if not.
        """
        return f"{self._base}.new"

    @property
    def _base(self) -> str:
        return f"{self.folder}/{self.name}.{self.archived}" if self.archived else f"{self.folder}/{log_stem(self.name)}"

    def cold(self, uid: str) -> str:
        return f"{self.root}/cold/{self.name}.{uid}.jsonl.zst"

    def base(self, uid: str, level: int) -> str:
        """A log below a fork; what was moved out of it has the same name with `.zst` at its end."""
        return f"{self.root}/base/{self.name}.{uid}.{level}.jsonl"

    @property
    def blobs(self) -> str:
        """Where large payloads are: what sessions share, and each one's links to it."""
        return f"{self.root}/blobs"

    def blob(self, uid: str, name: str) -> str:
        return f"{self.blobs}/{self.name}.{uid}.{name}"

    def ids(self, uid: str) -> str:
        """The index of the ids that a session keeps without limit."""
        return f"{self.root}/ids/{self.name}.{uid}"

    def quarantine(self, uid: str) -> str:
        return f"{self.root}/quarantine/{self.name}.{uid}.jsonl"


class TrashedPaths(SessionPaths):
    """The paths of a generation in the trash; `archived` is all of the log's name that follows the session's."""

    __slots__ = ()

    @property
    def folder(self) -> str:
        return f"{self.root}/trash"

    @property
    def _aside(self) -> str:
        return f"{self.folder}/{self.name}.{self.archived.removesuffix('.archived')}"

    def cold(self, uid: str) -> str:  # noqa: ARG002 - the name of the log has it
        return f"{self._aside}.cold.zst"

    def quarantine(self, uid: str) -> str:  # noqa: ARG002 - the same
        return f"{self._aside}.quarantine"


# ---- files


def open_log(system: System, path: str, flags: int) -> tuple[int, os.stat_result]:
    """Open a log, which must be a regular file of this user; raises LogDamaged for a link, a pipe or another's file."""
    try:
        # Without O_NONBLOCK the open of a pipe would wait for its other end.
        fd = system.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600)
    except FileNotFoundError:
        # There is no link either: that would not be followed.
        raise
    except OSError as error:
        with suppress(OSError):
            if modes.S_ISLNK(system.stat(path).st_mode):
                raise LogDamaged(f"{path} is a symbolic link; it was not changed") from error
        raise
    try:
        found = system.fstat(fd)
    except BaseException:
        system.close(fd)
        raise
    if modes.S_ISREG(found.st_mode) and found.st_uid == os.geteuid():
        return fd, found
    system.close(fd)
    raise LogDamaged(f"{path} is not a regular file of this user; it was not changed")


def write_all(system: System, fd: int, data: bytes) -> None:
    """Write until nothing is left; the kernel may take less than it is given."""
    taken = system.write(fd, data)
    while taken < len(data):
        more = system.write(fd, data[taken:])
        if more <= 0:
            raise OSError(errno.EIO, f"write took {more} of {len(data) - taken} bytes")
        taken += more


def in_blocks(parts: Iterable[bytes]) -> Iterator[bytes]:
    """Join parts into blocks of about a megabyte."""
    block: list[bytes] = []
    size = 0
    for part in parts:
        block.append(part)
        size += len(part)
        if size >= _BLOCK:
            yield b"".join(block)
            block, size = [], 0
    yield b"".join(block)


def replace_file(system: System, path: str, parts: Iterable[bytes]) -> None:
    """Give a file another content, durably and as one step; what is called so is the old file or the new one."""
    scratch = f"{path}.tmp"
    unlink_if_there(system, scratch)
    try:
        with opened(system, scratch, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_NOFOLLOW) as fd:
            for block in in_blocks(parts):
                write_all(system, fd, block)
            system.fsync(fd)
        system.rename(scratch, path)
    except BaseException:
        with suppress(OSError):
            unlink_if_there(system, scratch)
        raise
    settle_names(system, os.path.dirname(path))


def unlink_if_there(system: System, path: str) -> None:
    with suppress(FileNotFoundError):
        system.unlink(path)


def is_strange(system: System, path: str) -> bool:
    """Tell whether a file does not begin as our logs do, not even with a log's beginning that was torn."""
    beginning = read_beginning(system, path, len(_ANY_LOG))
    # A power cut may leave a file that is empty or all zeros: that was one of ours.
    return not _ANY_LOG.startswith(beginning) and any(beginning)


def read_beginning(system: System, path: str, size: int) -> bytes:
    with opened(system, path) as fd:
        return system.pread(fd, size, 0)


def is_being_born(system: System, place: SessionPaths) -> bool:
    """Tell whether a log without a byte is one whose creation has not finished."""
    try:
        system.stat(place.birth)
    except FileNotFoundError:
        return False
    return True


def is_emptied(system: System, place: SessionPaths) -> bool:
    """Tell whether a log has lost everything; one that is being created has nothing yet."""
    try:
        return not (
            system.stat(place.log).st_size
            or is_being_born(system, place)
            # Its creation may have finished in between.
            or system.stat(place.log).st_size
        )
    except OSError:
        return False


# ---- folders


class FolderState(NamedTuple):
    """Which folder it is, and when a name was last added to it or removed."""

    inode: int
    changed: int


# By folder: its state, and the hashes of what the names in it begin with, up to the first dot.
_seen: WeakKeyDictionary[System, dict[str, tuple[FolderState, frozenset[int]]]] = WeakKeyDictionary()


def folder_state(system: System, folder: str) -> FolderState | None:
    """What changes when a folder does; None if it changed so recently that it may change again unnoticed."""
    found = system.stat(folder)
    is_settled = found.st_mtime_ns < system.now() * 1e9 - _SETTLED
    return FolderState(found.st_ino, found.st_mtime_ns) if is_settled else None


def may_hold(system: System, folder: str, stem: str) -> bool:
    """Tell whether a folder may hold a file whose name begins with a stem and a dot; raises OSError.

    A folder that has not changed is not listed again.
    """
    now = folder_state(system, folder)
    if now is None:
        return True
    known = _seen.setdefault(system, {})
    if folder not in known or known[folder][0] != now:
        known[folder] = (now, frozenset(hash(name.partition(".")[0]) for name in system.listdir(folder)))
    return hash(stem) in known[folder][1]


def listed(system: System, folder: str) -> list[str]:
    """The names in a folder; none if there is no folder."""
    try:
        return system.listdir(folder)
    except (FileNotFoundError, NotADirectoryError):
        return []


def uids_in(system: System, folder: str, name: str) -> list[str]:
    """The generations of a session that have a file in a folder, oldest first."""
    try:
        files = system.listdir(folder) if may_hold(system, folder, name) else []
    except FileNotFoundError:
        return []
    found = (file.removeprefix(f"{name}.").split(".")[0] for file in files if file.startswith(f"{name}."))
    return sorted({uid for uid in found if _UID.match(uid)})


def put_away(system: System, place: SessionPaths) -> frozenset[str]:
    """The generations of a session that are archived or in the trash."""
    folders = (f"{place.root}/{folder}" for folder in ("archive", "trash"))
    return frozenset(uid for folder in folders for uid in uids_in(system, folder, place.name))


def new_uid(system: System, *, after: Iterable[str] = ()) -> str:
    """Return a random name for a generation that sorts by the time it was made, and after those given.

    Clocks may go backwards, or be before 1970 or beyond what 14 digits hold.
    """
    micros = min(max(0, int(system.now() * 1_000_000)), _MAX_MICROS)
    uid = f"{micros:014x}{system.random(9).hex()}"
    newest = max(after, default="")
    if uid > newest:
        return uid
    if newest == _LAST_UID:
        raise OSError(errno.EOVERFLOW, "no uid is greater than that of the newest generation", newest)
    return f"{int(newest, 16) + 1:032x}"


def make_folder(system: System, path: str) -> None:
    """Create a private directory, unless it is there, and flush its name: its creator may have been killed."""
    try:
        system.mkdir(path, 0o700)
    except FileExistsError:
        if not modes.S_ISDIR(system.stat(path).st_mode):
            raise NotADirectoryError(errno.ENOTDIR, "not a directory", path) from None
    settle_names(system, os.path.dirname(path))


def settle_names(system: System, folder: str) -> None:
    """Make the names in a directory survive a power cut."""
    with opened(system, folder, os.O_RDONLY | os.O_DIRECTORY) as fd:
        system.fsync(fd)
