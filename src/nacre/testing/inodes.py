"""What a simulated disk is made of: values with a live side, a durable side, and the edits between them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import reduce
from typing import NamedTuple, TypeAlias


class Write(NamedTuple):
    """These bytes at this offset."""

    offset: int
    data: bytes


class Cut(NamedTuple):
    """The file made this long."""

    size: int


Edit: TypeAlias = Write | Cut


def patched(content: bytes, edit: Edit) -> bytes:
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
    def settled(self) -> bool:
        """Whether a power cut leaves exactly what is seen now."""
        return not (self.pending or self.doubtful)

    def edited(self, edit: Edit, *, mtime: int) -> File:
        """This file after an edit that only the page cache has."""
        return replace(self, live=patched(self.live, edit), pending=(*self.pending, edit), mtime=mtime)

    def synced(self) -> File:
        """This file after a sync that worked."""
        if self.doubtful:
            return self._doubting(sure=True)
        return replace(self, durable=self.live, pending=())

    def lost(self) -> File:
        """This file after a sync that failed: its pages are clean, and what they hold may be nowhere else."""
        return self._doubting(sure=False)

    def floor(self) -> bytes:
        """What the disk has for certain, every edit in doubt being lost."""
        return reduce(patched, (edit for edit, sure in self.doubtful if sure), self.durable)

    def _doubting(self, *, sure: bool) -> File:
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


def renamed(entries: Mapping[str, int], names: Names) -> Mapping[str, int]:
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
