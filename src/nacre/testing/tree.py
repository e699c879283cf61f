"""A simulated file system: a tree of directories and files with a live side, a durable side, and the edits between."""

from __future__ import annotations

import errno
import os
import random
import stat
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import reduce
from typing import NamedTuple, TypeAlias

ROOT = 1
_BIRTH = 1_800_000_000_000_000_000  # nanoseconds: a day in 2027
_TICK = 1_000_000


class Write(NamedTuple):
    """These bytes at this offset."""

    offset: int
    data: bytes


class Cut(NamedTuple):
    """The file made this long."""

    size: int


Edit: TypeAlias = Write | Cut


def patch(content: bytes, edit: Edit) -> bytes:
    """The content after one edit; a gap before a write is zeros."""
    match edit:
        case Cut(size):
            return content[:size].ljust(size, b"\0")
        case Write(offset, data):
            return content[:offset].ljust(offset, b"\0") + data + content[offset + len(data) :]


@dataclass(frozen=True, slots=True, kw_only=True)
class File:
    """A regular file.

    `doubtful` is empty until a sync of the file fails. From then on it holds, in order, the edits that the failed
    sync dropped (not sure) and those that later syncs wrote (sure): no one can tell what the disk has of the former.
    """

    mode: int
    mtime: int
    links: int = 0
    live: bytes = b""
    durable: bytes = b""
    pending: tuple[Edit, ...] = ()
    doubtful: tuple[tuple[Edit, bool], ...] = ()

    @property
    def is_settled(self) -> bool:
        """Whether a power cut leaves exactly what is seen now."""
        return not (self.pending or self.doubtful)

    def edit(self, edit: Edit, *, mtime: int) -> File:
        """This file after an edit that only the page cache has."""
        return replace(self, live=patch(self.live, edit), pending=(*self.pending, edit), mtime=mtime)

    def sync(self) -> File:
        """This file after a sync that worked."""
        return self._doubt(sure=True) if self.doubtful else replace(self, durable=self.live, pending=())

    def fail_sync(self) -> File:
        """This file after a sync that failed: its pages are clean, and what they hold may be nowhere else."""
        return self._doubt(sure=False)

    def floor(self) -> bytes:
        """What the disk has for certain, every edit in doubt being lost."""
        return reduce(patch, (edit for edit, sure in self.doubtful if sure), self.durable)

    def _doubt(self, *, sure: bool) -> File:
        return replace(self, pending=(), doubtful=(*self.doubtful, *((edit, sure) for edit in self.pending)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Directory:
    """A directory: names and the inodes they stand for, as seen and as on the disk."""

    mode: int
    mtime: int
    live: Mapping[str, int]
    durable: Mapping[str, int]


Inode: TypeAlias = File | Directory
Names: TypeAlias = tuple[tuple[str, int | None], ...]


class Naming(NamedTuple):
    """One atomic change of names in one directory that is not yet durable; None takes a name away.

    It reaches the disk only together with the earlier ones it `needs`.
    """

    id: int
    directory: int
    names: Names
    needs: frozenset[int]


def rename_entries(entries: Mapping[str, int], names: Names) -> Mapping[str, int]:
    """The entries of a directory after one change of names."""
    after = dict(entries)
    for name, inode in names:
        if inode is None:
            after.pop(name, None)
        else:
            after[name] = inode
    return after


def with_needs(chosen: Iterable[int], namings: tuple[Naming, ...]) -> frozenset[int]:
    """The chosen changes of names and all they need; what is needed is always earlier."""
    ids = set(chosen)
    for naming in reversed(namings):
        if naming.id in ids:
            ids |= naming.needs
    return frozenset(ids)


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """All of a disk at one moment; shares everything with the disk it was taken of."""

    inodes: Mapping[int, Inode]
    namings: tuple[Naming, ...]
    serial: int
    clock: int
    seed: int


class Step(NamedTuple):
    """Names to change in one directory."""

    directory: int
    names: Names


class Move(NamedTuple):
    """Steps of one call, in order; each needs the one before it, and those after the first need the `under` inodes."""

    steps: tuple[Step, ...]
    under: tuple[int, ...] = ()


class Tree:
    """The page cache's view of a file system, and what of it the disk has.

    The `*_move` methods change nothing: they give the change of names that a call asks for, or raise what the kernel
    would. `apply` carries it out.
    """

    __slots__ = ("_clock", "_seed", "_serial", "inodes", "namings")

    def __init__(self, snapshot: Snapshot) -> None:
        self.inodes: dict[int, Inode] = dict(snapshot.inodes)
        self.namings = snapshot.namings
        self._serial = snapshot.serial
        self._clock = snapshot.clock
        self._seed = snapshot.seed

    @classmethod
    def empty(cls, seed: int) -> Tree:
        """A file system with nothing but its root."""
        root = Directory(mode=stat.S_IFDIR | 0o755, mtime=_BIRTH, live={}, durable={})
        return cls(Snapshot(inodes={ROOT: root}, namings=(), serial=ROOT, clock=_BIRTH, seed=seed))

    def freeze(self) -> Snapshot:
        """Everything as it is now."""
        inodes, namings = self.inodes.copy(), self.namings
        return Snapshot(inodes=inodes, namings=namings, serial=self._serial, clock=self._clock, seed=self._seed)

    # Time and chance

    def now(self) -> int:
        """The time in nanoseconds; it moves on a little whenever it is asked for."""
        self._clock += _TICK
        return self._clock

    def random(self, size: int) -> bytes:
        """Bytes that the seed and what has happened so far decide."""
        return random.Random((self._seed << 64) + self._next()).randbytes(size)  # noqa: S311 - repeatable on purpose

    def _next(self) -> int:
        self._serial += 1
        return self._serial

    # Looking

    def find(self, path: str) -> int | None:
        """The inode at a path, or None if only its last name is missing."""
        parts = _parts(path)
        if not parts:
            return ROOT
        return self.directory(self._trail(parts[:-1], path)[-1], path).live.get(parts[-1])

    def get(self, path: str) -> int:
        """The inode at a path."""
        inode = self.find(path)
        if inode is None:
            raise failure(errno.ENOENT, path)
        return inode

    def directory(self, inode: int, path: str) -> Directory:
        """The directory with this inode number."""
        node = self.inodes[inode]
        if not isinstance(node, Directory):
            raise failure(errno.ENOTDIR, path)
        return node

    def file(self, inode: int, path: str) -> File:
        """The regular file with this inode number."""
        node = self.inodes[inode]
        if not isinstance(node, File):
            raise failure(errno.EISDIR, path)
        return node

    def stat(self, inode: int) -> os.stat_result:
        """What the kernel tells of an inode."""
        node = self.inodes[inode]
        if isinstance(node, File):
            links, size = node.links, len(node.live)
        else:
            links = 2 + sum(isinstance(self.inodes[child], Directory) for child in node.live.values())
            size = 4096
        seconds = node.mtime // 1_000_000_000
        who = (os.geteuid(), os.getegid())
        fields = (node.mode, inode, 1, links, *who, size, seconds, seconds, seconds)
        return os.stat_result(fields, {"st_mtime_ns": node.mtime})

    def _trail(self, parts: Iterable[str], path: str) -> list[int]:
        trail = [ROOT]
        for part in parts:
            inode = self.directory(trail[-1], path).live.get(part)
            if inode is None:
                raise failure(errno.ENOENT, path)
            trail.append(inode)
        return trail

    def _place(self, path: str) -> tuple[list[int], str]:
        parts = _parts(path)
        if not parts:
            raise failure(errno.EBUSY, path)
        trail = self._trail(parts[:-1], path)
        self.directory(trail[-1], path)
        return trail, parts[-1]

    # Changing bytes

    def edit(self, inode: int, edit: Edit) -> None:
        """Change a file in the page cache."""
        self.inodes[inode] = self.file(inode, "").edit(edit, mtime=self.now())

    def sync(self, inode: int) -> None:
        """Make the bytes of a file, or the names in a directory, durable."""
        node = self.inodes[inode]
        if isinstance(node, File):
            self.inodes[inode] = node.sync()
        else:
            self._settle(inode)

    def lose(self, inode: int) -> None:
        """Fail a sync: a file's pages become clean all the same; a directory's names wait for the next sync."""
        node = self.inodes[inode]
        if isinstance(node, File):
            self.inodes[inode] = node.fail_sync()

    def _settle(self, inode: int) -> None:
        here = (naming.id for naming in self.namings if naming.directory == inode)
        chosen = with_needs(here, self.namings)
        for naming in self.namings:
            if naming.id in chosen:
                node = self.directory(naming.directory, "")
                self.inodes[naming.directory] = replace(node, durable=rename_entries(node.durable, naming.names))
        self.namings = tuple(naming for naming in self.namings if naming.id not in chosen)

    # Changing names

    def create(self, path: str, mode: int) -> int:
        """Make an empty file or directory, as the type in `mode` says, and give its inode number."""
        move = self.new_move(path, self._serial + 1)
        inode, now = self._next(), self.now()
        if stat.S_ISDIR(mode):
            self.inodes[inode] = Directory(mode=mode, mtime=now, live={}, durable={})
        else:
            self.inodes[inode] = File(mode=mode, mtime=now)
        self.apply(move)
        return inode

    def new_move(self, path: str, inode: int) -> Move:
        """Give a new inode its first name."""
        if self.find(path) is not None:
            raise failure(errno.EEXIST, path)
        trail, name = self._place(path)
        return Move((Step(trail[-1], ((name, inode),)),))

    def link_move(self, old: str, new: str) -> Move:
        """Give a file another name."""
        inode = self.get(old)
        move = self.new_move(new, inode)
        if isinstance(self.inodes[inode], Directory):
            raise failure(errno.EPERM, old)
        return move

    def unlink_move(self, path: str) -> Move:
        """Take a file's name away."""
        self.file(self.get(path), path)
        trail, name = self._place(path)
        return Move((Step(trail[-1], ((name, None),)),))

    def rename_move(self, old: str, new: str) -> Move:
        """Move a name.

        Within a directory that is one change. Between two, the new name comes first and the old one needs it, so that
        both or either may survive, but never neither.
        """
        (old_trail, old_name), (new_trail, new_name) = self._place(old), self._place(new)
        inode = self.get(old)
        if inode in new_trail:
            raise failure(errno.EINVAL, new)
        if self.find(new) in old_trail:
            raise failure(errno.ENOTEMPTY, new)
        if self.find(new) == inode:
            return Move(())
        there = self.find(new)
        match self.inodes[inode], None if there is None else self.inodes[there]:
            case Directory(), File():
                raise failure(errno.ENOTDIR, new)
            case File(), Directory():
                raise failure(errno.EISDIR, new)
            case Directory(), Directory(live=entries) if entries:
                raise failure(errno.ENOTEMPTY, new)
            case _:
                pass
        gone, come = (old_name, None), (new_name, inode)
        if old_trail[-1] == new_trail[-1]:
            return Move((Step(old_trail[-1], (gone, come)),))
        return Move((Step(new_trail[-1], (come,)), Step(old_trail[-1], (gone,))), under=tuple(new_trail))

    def apply(self, move: Move) -> None:
        """Carry out a change of names in the page cache; only a sync of the directory makes it durable."""
        # The pending changes of the same names: one name's changes reach the disk in order.
        touched = {(step.directory, name) for step in move.steps for name, _ in step.names}
        needs = frozenset(
            naming.id for naming in self.namings if any((naming.directory, name) in touched for name, _ in naming.names)
        )
        for step in move.steps:
            naming = Naming(self._next(), step.directory, step.names, needs)
            self.namings = (*self.namings, naming)
            # What takes the old name away needs the new one, and every directory on the way to it.
            needs = needs | {naming.id}
            needs |= {made.id for made in self.namings if any(inode in move.under for _, inode in made.names)}
            node = self.directory(step.directory, "")
            for name, inode in step.names:
                for linked, change in ((node.live.get(name), -1), (inode, +1)):
                    file = None if linked is None else self.inodes[linked]
                    if linked is not None and isinstance(file, File):
                        self.inodes[linked] = replace(file, links=file.links + change)
            self.inodes[step.directory] = replace(node, live=rename_entries(node.live, step.names), mtime=self.now())

    # Planting

    def plant(self, path: str, data: bytes) -> None:
        """Put a file on the disk as if it had always been there, with every directory on the way to it."""
        parts = _parts(path)
        for depth in range(1, len(parts)):
            self._plant_name("/" + "/".join(parts[:depth]), stat.S_IFDIR | 0o700)
        inode = self._plant_name(path, stat.S_IFREG | 0o600)
        file = self.file(inode, path)
        self.inodes[inode] = replace(file, live=data, durable=data, pending=(), doubtful=(), mtime=self.now())

    def _plant_name(self, path: str, mode: int) -> int:
        inode = self.find(path)
        if inode is None:
            inode = self.create(path, mode)
        self._settle(self._place(path)[0][-1])
        return inode


def failure(code: int, path: str) -> OSError:
    """The error the kernel would give (OSError itself picks FileNotFoundError and the like)."""
    return OSError(code, os.strerror(code), path)


def _parts(path: str) -> list[str]:
    return [part for part in path.split("/") if part not in {"", "."}]
