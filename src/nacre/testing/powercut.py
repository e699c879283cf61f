"""What a power cut may leave of a simulated disk."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cached_property, reduce
from itertools import accumulate, chain
from typing import NamedTuple, TypeAlias

from nacre.testing.disk import Disk
from nacre.testing.tree import (
    ROOT,
    Cut,
    Directory,
    Edit,
    File,
    Inode,
    Snapshot,
    Write,
    patch,
    rename_entries,
    with_needs,
)

SECTOR = 512


def images(snapshot: Snapshot, rng: random.Random, budget: int) -> Iterator[Disk]:
    """Yield disks that a power cut at this moment may leave, each once, built when asked for.

    First come the extremes: nothing that was pending, all of it, names without bytes, bytes without names, sizes
    without bytes. Then `budget` random draws, less those that were seen before. What was synced is in every image.
    """
    cut = _Cut(snapshot)
    seen: set[tuple[int, tuple[bytes, ...]]] = set()
    for layout, contents in chain(cut.extremes(), cut.draws(rng, budget)):
        key = (layout.id, contents)
        if key not in seen:
            seen.add(key)
            yield cut.image(layout, contents)


class _Layout(NamedTuple):
    """The tree that some of the pending changes of names leave: settled inodes, and unsettled files with their links.

    Two layouts with one `id` are the same tree.
    """

    id: int
    settled: dict[int, Inode]
    unsettled: tuple[tuple[int, int], ...]


_Draw: TypeAlias = tuple[_Layout, tuple[bytes, ...]]


class _Cut:
    """A power cut at one moment: which names, and which bytes of which files, it leaves open."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._ids = tuple(naming.id for naming in snapshot.namings)
        self._trees: dict[frozenset[tuple[int, str, int]], int] = {}
        self._layouts: dict[frozenset[int], _Layout] = {}
        self._unsettled = {
            inode: _Unsettled(node)
            for inode, node in snapshot.inodes.items()
            if isinstance(node, File) and not node.is_settled
        }

    def extremes(self) -> Iterator[_Draw]:
        yield self._extreme((), _Unsettled.nothing)
        yield self._extreme(self._ids, _Unsettled.everything)
        yield self._extreme(self._ids, _Unsettled.nothing)
        yield self._extreme((), _Unsettled.everything)
        yield self._extreme(self._ids, _Unsettled.zeros)
        yield self._extreme((), _Unsettled.zeros)
        # A sync that failed may have written all the same.
        yield self._extreme(self._ids, _Unsettled.seen)

    def draws(self, rng: random.Random, budget: int) -> Iterator[_Draw]:
        if not (self._ids or self._unsettled):
            return
        for _ in range(budget):
            layout = self._layout(self._draw_names(rng))
            yield layout, tuple(self._unsettled[inode].draw(rng) for inode, _ in layout.unsettled)

    def image(self, layout: _Layout, contents: tuple[bytes, ...]) -> Disk:
        inodes = layout.settled.copy()
        for (inode, links), content in zip(layout.unsettled, contents, strict=True):
            file = self._unsettled[inode].file
            inodes[inode] = File(mode=file.mode, mtime=file.mtime, links=links, live=content, durable=content)
        was = self._snapshot
        return Disk(at=Snapshot(inodes=inodes, namings=(), serial=was.serial, clock=was.clock, seed=was.seed))

    def _extreme(self, names: tuple[int, ...], content: Callable[[_Unsettled], bytes]) -> _Draw:
        layout = self._layout(frozenset(names))
        return layout, tuple(content(self._unsettled[inode]) for inode, _ in layout.unsettled)

    def _draw_names(self, rng: random.Random) -> frozenset[int]:
        """All, none, the first few, or any with what they need: changes of unrelated names may be reordered."""
        if not self._ids:
            return frozenset()
        kind = rng.random()
        if kind < 0.3:
            return frozenset(self._ids)
        if kind < 0.45:
            return frozenset()
        if kind < 0.7:
            return frozenset(self._ids[: rng.randrange(len(self._ids) + 1)])
        bits = rng.getrandbits(len(self._ids))
        chosen = (name for place, name in enumerate(self._ids) if bits >> place & 1)
        return with_needs(chosen, self._snapshot.namings)

    def _layout(self, names: frozenset[int]) -> _Layout:
        """The tree that these changes of names leave."""
        if names in self._layouts:
            return self._layouts[names]
        # 1. The entries of every directory as the disk has it when these changes of names reached it.
        inodes = self._snapshot.inodes
        durable = {inode: node.durable for inode, node in inodes.items() if isinstance(node, Directory)}
        for naming in self._snapshot.namings:
            if naming.id in names:
                durable[naming.directory] = rename_entries(durable[naming.directory], naming.names)
        # 2. What can be reached from the root, and under how many names.
        settled: dict[int, Inode] = {}
        entries: list[tuple[int, str, int]] = []
        ahead = [ROOT]
        while ahead:
            inode = ahead.pop()
            if inode not in settled:
                node, live = inodes[inode], durable[inode]
                settled[inode] = Directory(mode=node.mode, mtime=node.mtime, live=live, durable=live)
                entries += [(inode, name, child) for name, child in live.items()]
                ahead += [child for child in live.values() if child in durable]
        links = Counter(inode for _, _, inode in entries)
        # 3. The files of which a power cut leaves exactly what is seen now.
        for inode, count in links.items():
            file = inodes[inode]
            if isinstance(file, File) and inode not in self._unsettled:
                settled[inode] = file if file.links == count else replace(file, links=count)
        tree = self._trees.setdefault(frozenset(entries), len(self._trees))
        unsettled = tuple((inode, count) for inode, count in links.items() if inode in self._unsettled)
        layout = self._layouts[names] = _Layout(tree, settled, unsettled)
        return layout


class _Unsettled:
    """The contents that a power cut may leave of one file."""

    def __init__(self, file: File) -> None:
        self.file = file

    def nothing(self) -> bytes:
        return self._likely.versions[0]

    def everything(self) -> bytes:
        return self._likely.versions[-1]

    def zeros(self) -> bytes:
        return self._likely.zeros()

    def seen(self) -> bytes:
        return self.file.live

    def draw(self, rng: random.Random) -> bytes:
        if self.file.doubtful and rng.random() < 0.5:
            # A failed sync may have written some of what it should have.
            edits = self.file.doubtful
            kept = (edit if sure else _tear(edit, rng) for edit, sure in edits if sure or rng.random() < 0.5)
            return _Versions(reduce(patch, kept, self.file.durable), self.file.pending).draw(rng)
        return self._likely.draw(rng)

    @cached_property
    def _likely(self) -> _Versions:
        return _Versions(self.file.floor(), self.file.pending)


class _Versions:
    """A file's content after each of its pending edits: the disk has a size and sectors out of any of them."""

    def __init__(self, floor: bytes, pending: tuple[Edit, ...]) -> None:
        self.versions = list(accumulate(pending, patch, initial=floor))
        self._pending = pending

    def draw(self, rng: random.Random) -> bytes:
        if not self._pending:
            return self.versions[0]
        kind = rng.random()
        if kind < 0.4:
            # The first few edits, the last of them torn at any byte; after the tear there may be zeros.
            index = rng.randrange(len(self._pending))
            content = patch(self.versions[index], _tear(self._pending[index], rng))
            return content if rng.random() < 0.75 else content.ljust(len(self.versions[index + 1]), b"\0")
        if kind < 0.8:
            return self._sectors(rng)
        if kind < 0.87:
            return self.zeros()
        return self.versions[0 if kind < 0.93 else -1]

    def zeros(self) -> bytes:
        """The last size, and zeros wherever it had to grow for that."""
        least, last = min(map(len, self.versions)), len(self.versions[-1])
        return self.versions[0][:least].ljust(last, b"\0")

    def _sectors(self, rng: random.Random) -> bytes:
        """Each dirty sector as it was after some edit, and the size as it was after some edit, mostly the last."""
        last = len(self._pending)
        final = last if rng.random() < 0.75 else rng.randrange(last + 1)
        size = len(self.versions[final])
        offsets = range(min(self._first_dirty, size), size, SECTOR)
        pieces = [self.versions[0][: offsets.start]]
        for offset, pick in zip(offsets, rng.choices(range(last + 1), k=len(offsets)), strict=True):
            end = min(offset + SECTOR, size)
            # What a cut that reached the disk took never comes back.
            oldest = max((after for after, cut in self._cuts if after <= final and cut <= offset), default=0)
            version = self.versions[max(pick, oldest)]
            pieces.append(version[offset:end].ljust(end - offset, b"\0"))
        return b"".join(pieces)

    @cached_property
    def _cuts(self) -> list[tuple[int, int]]:
        return [(after, edit.size) for after, edit in enumerate(self._pending, 1) if isinstance(edit, Cut)]

    @cached_property
    def _first_dirty(self) -> int:
        starts = (edit.offset if isinstance(edit, Write) else edit.size for edit in self._pending)
        first = min(len(self.versions[0]), *starts)
        return first - first % SECTOR


def _tear(edit: Edit, rng: random.Random) -> Edit:
    """A write that ends early, often at one of the bytes where mistakes are; a cut happens or does not."""
    if isinstance(edit, Cut):
        return edit
    whole = len(edit.data)
    end = rng.choice((1, whole // 2, whole - 1, whole, rng.randrange(whole + 1), rng.randrange(whole + 1)))
    return Write(edit.offset, edit.data[:end])
