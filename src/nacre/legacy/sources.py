"""Where earlier agents left their sessions: the files that may hold one, known by name and first bytes."""

from __future__ import annotations

import os
import re
import stat as modes
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, NamedTuple
from zlib import crc32

import msgspec

from nacre.errors import StoreError
from nacre.legacy.detect import open_file
from nacre.legacy.documents import Bad
from nacre.storage import quarantine
from nacre.storage.file_names import is_log_name
from nacre.storage.lines import Lines, Piece
from nacre.storage.paths import SessionPaths
from nacre.storage.system import System

_OURS = b'{"v":'
_BLOCK = 1024 * 1024
_BEGINNING = 64 * 1024
_CLAIMED = re.compile(r"(.+\.jsonl)\.migrating(\.\d+)?\Z", re.DOTALL)
_META = ".meta.json"
DATABASE = "sessions.db"
_WORKSPACE = re.compile(r"[0-9a-f]{32}\Z")
_KNOWN = re.compile(
    r"(\..*|migrating\.lock|.*\.migrated(\.\d+)?|.*\.checkpoint\.json|sessions\.db-(wal|shm))\Z", re.DOTALL
)
"""What is next to sessions and is none: hidden files, locks, what was migrated, and parts of a session or database."""


class Source(NamedTuple):
    """A file that may hold a session, what it was called first, and the name of the metadata next to it.

    A database holds several, and keeps its name.
    """

    folder: str
    name: str
    original: str
    meta: str = ""
    is_database: bool = False

    @property
    def path(self) -> str:
        return f"{self.folder}/{self.name}"

    @property
    def is_archived(self) -> bool:
        return self.original.endswith(".archived")

    @property
    def is_document(self) -> bool:
        return self.original.endswith(".json")


def sources(system: System, directory: str, *, logs: str = "") -> list[Source]:
    """The files of a directory that may hold sessions: archived ones first, and documents last.

    In the folder `logs` a name that logs have is a log's, unless there is metadata next to it.
    """
    found = [source for _, _, source in _files(system, directory) if source is not None]
    found = [one for one in found if one.folder != logs or not has_log_name(one.name) or one.meta]
    return sorted(found, key=lambda source: (not source.is_archived, source.is_document))


def has_log_name(name: str) -> bool:
    """Tell whether a file has a name that active logs have today."""
    return name.endswith(".jsonl") and is_log_name(name.removesuffix(".jsonl"))


def lone_metas(system: System, directory: str) -> list[tuple[str, str]]:
    """Metadata without a session: folder and name."""
    files, used = list(_files(system, directory)), set[tuple[str, str]]()
    for folder, _, source in files:
        if source is not None and source.meta:
            is_log = False
            with suppress(OSError):
                is_log = contents(system, source.path) is None
            used |= set() if is_log else {(folder, source.meta)}
    return [(folder, name) for folder, name, _ in files if name.endswith(_META) and (folder, name) not in used]


def unknown_files(system: System, directory: str, known: Iterable[Source]) -> list[str]:
    """The files of a directory, and of its `sessions`, that nobody knows: not those of `known`, and no log of ours."""
    names = {f"{source.folder}/{name}" for source in known for name in (source.name, source.meta)}
    found = []
    for folder, name, _ in _files(system, directory):
        path = f"{folder}/{name}"
        if path in names or _KNOWN.match(name):
            continue
        try:
            is_unknown = modes.S_ISREG(system.stat(path).st_mode) and contents(system, path) is not None
        except OSError:
            is_unknown = True
        found += [path] if is_unknown else []
    return found


def has_migrated(system: System, directory: str) -> bool:
    """Tell whether files of a directory were migrated before."""
    return any(".migrated" in name for _, name, _ in _files(system, directory))


def contents(
    system: System, path: str, *, unless: Callable[[bytes], bool] | None = None
) -> tuple[bytes, datetime] | None:
    """The bytes of a file and when it was changed; None if it is a log of ours, or no file at all.

    None as well if `unless` says so of its beginning: a large file of another program is not read at every start.
    """
    with open_file(system, path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK) as fd:
        found = system.fstat(fd)
        if not modes.S_ISREG(found.st_mode) or system.pread(fd, len(_OURS), 0) == _OURS:
            return None
        if unless is not None and unless(system.pread(fd, _BEGINNING, 0)):
            return None
        data = bytearray()
        while block := system.pread(fd, _BLOCK, len(data)):
            data += block
        return bytes(data), datetime.fromtimestamp(found.st_mtime_ns / 1e9, UTC)


def free_path(system: System, path: str) -> str:
    """A path that no file has: the given one, or with a number after it."""
    free, number = path, 1
    while True:
        try:
            system.stat(free)
        except FileNotFoundError:
            return free
        number += 1
        free = f"{path}.{number}"


def _files(system: System, directory: str) -> Iterator[tuple[str, str, Source | None]]:
    """Every file where sessions may be, by folder and name; and what it is if it may hold one."""
    folders = [directory, f"{directory}/sessions"]
    # nanobot has a folder for each of its workspaces.
    workspaces = [(folder, name) for folder in folders for name in _names(system, folder) if _WORKSPACE.match(name)]
    for folder in folders + [f"{folder}/{name}" for folder, name in sorted(workspaces)]:
        names = _names(system, folder)
        yield from ((folder, name, _source(folder, name, names)) for name in sorted(names))


def _source(folder: str, name: str, names: set[str]) -> Source | None:
    claimed = _CLAIMED.match(name)
    original = claimed[1] if claimed is not None else name
    if name == DATABASE:
        return Source(folder, name, name, is_database=True)
    if original.endswith((".json", ".jsonl.archived")) and not original.endswith(_META):
        return Source(folder, name, original)
    meta = original.removesuffix(".jsonl") + _META
    # Where a file was moved out of the way of a log, the metadata is that file's, and not the log's.
    is_its_own = meta in names and (claimed is not None or f"{name}.migrating" not in names)
    return Source(folder, name, original, meta if is_its_own else "") if original.endswith(".jsonl") else None


def _names(system: System, folder: str) -> set[str]:
    try:
        return set(system.listdir(folder))
    except (FileNotFoundError, NotADirectoryError):
        return set()
    except OSError as error:
        raise StoreError(f"{folder} cannot be read: {error}") from error


class _BadLines(Lines):
    """Lines of a file that is in memory, from an offset on."""

    def __init__(self, system: System, bad: Bad) -> None:
        super().__init__(system, -1, bad.start + len(bad.raw))
        self._block, self._block_start = bad.raw, bad.start


def set_aside(system: System, place: SessionPaths, uid: str, bad: Sequence[Bad]) -> None:
    """Append what is bad to a session's quarantine file, durably, unless a run that was killed has done so."""
    if not bad:
        return
    # 1. Kind, offset and checksum of what is in the quarantine file.
    data = b""
    with suppress(FileNotFoundError), open_file(system, place.quarantine(uid), os.O_RDONLY | os.O_NOFOLLOW) as fd:
        data = system.pread(fd, system.fstat(fd).st_size, 0)
    known: set[tuple[Any, ...]] = set()
    for line in data.split(b"\n"):
        # A line of another shape is nothing that was set aside.
        with suppress(msgspec.DecodeError, UnicodeDecodeError, RecursionError, TypeError, KeyError, AttributeError):
            found = msgspec.json.decode(line)
            known.add((found["kind"], found.get("off", 0), found["crc"]))
    # 2. Append what is not.
    for piece in bad:
        held = Piece(piece.start, piece.start + len(piece.raw), piece.raw, None)
        is_new = (piece.reason, piece.start, f"{crc32(piece.raw):08x}") not in known
        # What is there is flushed again: the process that wrote it may have been killed before that.
        quarantine.set_aside(
            system, place, uid, _BadLines(system, piece), [held] if is_new else [], reason=piece.reason
        )
