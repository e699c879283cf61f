"""A simulated disk and the processes that use it, for crash tests of code that calls the system through `System`."""

from __future__ import annotations

import errno
import errno as codes
import os
import stat
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

from nacre.storage.system import System
from nacre.testing.tree import Cut, Directory, Move, Snapshot, Tree, Write, failure

Hook: TypeAlias = Callable[[str, tuple[Any, ...]], None]


Mode: TypeAlias = Literal["error", "short", "kill", "lie"]


class Killed(BaseException):
    """The simulated process got SIGKILL: no handler of its own may catch this."""


class WouldBlockForever(AssertionError):
    """A lock was waited for that no one can ever release: the simulation has one thread."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """From the `nth` call of this name on, `count` calls fail (None: all of them).

    `"*"` stands for every call that changes or syncs. The modes:
    `error` raises `errno`, and a sync then drops what it should have written;
    `short` does half of a write or a read, and with ENOSPC refuses the write after it;
    `kill` kills the process before the call, or after half of a write;
    `lie` lets a sync return without syncing.
    A mode that means nothing for a call leaves that call alone.
    """

    call: str
    nth: int = 1
    errno: int = codes.EIO
    count: int | None = 1
    mode: Mode = "error"

    def names(self, call: str, *, ticks: bool) -> bool:
        """Whether this fault is about that call."""
        return self.call == call or (ticks and self.call == "*")

    def strikes(self, seen: int) -> bool:
        """Whether the call that is number `seen` of its name fails."""
        return seen >= self.nth and (self.count is None or seen < self.nth + self.count)

    def once_full(self) -> Fault:
        """What is left of this fault when a short write has used up the last free space."""
        count = None if self.count is None else max(1, self.count - 1)
        return replace(self, call="write", nth=1, count=count, mode="error")


class Faults:
    """The failures planned for one disk, each with its own count of the calls it has seen."""

    __slots__ = ("_planned",)

    def __init__(self) -> None:
        self._planned: list[tuple[Fault, int]] = []

    def plan(self, fault: Fault) -> None:
        """Add a failure; its calls are counted from now on."""
        self._planned.append((fault, 0))

    def clear(self) -> None:
        """Drop every planned failure."""
        self._planned.clear()

    def meet(self, call: str, *, ticks: bool) -> Fault | None:
        """Count this call, and give the first failure that strikes it."""
        struck: Fault | None = None
        for index, (fault, seen) in enumerate(self._planned):
            if not fault.names(call, ticks=ticks):
                continue
            self._planned[index] = (fault, seen + 1)
            if struck is None and fault.strikes(seen + 1):
                struck = fault
                if call == "write" and fault.mode == "short" and fault.errno == codes.ENOSPC:
                    self._planned[index] = (fault.once_full(), 0)
        return struck


class Disk:
    """A file system whose durable side is known: what was synced, and what only the page cache has.

    `before(call, arguments)` is called before each call that changes or syncs something, `ticks` counts those calls,
    and a path stands in the arguments where the call has a descriptor. Everything, time and randomness too, follows
    from `seed` and the calls made. There are no symbolic links and no permissions, and one thread.
    """

    __slots__ = ("_locks", "_tree", "before", "bytes", "claims", "faults", "ticks")

    def __init__(self, seed: int = 0, *, at: Snapshot | None = None) -> None:
        self._tree = Tree.empty(seed) if at is None else Tree(at)
        self._locks: dict[int, _Description] = {}
        self.before: Hook | None = None
        self.faults = Faults()
        self.ticks = 0
        self.claims: dict[tuple[int, int], Process] = {}
        self.bytes: dict[tuple[int, int], _Description] = {}

    def process(self) -> Process:
        """A new process, with no file open."""
        return Process(self, self._tree, self._locks)

    def fail(self, plan: Fault) -> None:
        """Plan a failure; its calls are counted from now on."""
        self.faults.plan(plan)

    def heal(self) -> None:
        """Drop every planned failure."""
        self.faults.clear()

    def snapshot(self) -> Snapshot:
        """All of the disk as it is now, for `images`; costs next to nothing."""
        return self._tree.freeze()

    def clone(self) -> Disk:
        """The same disk with the same page cache, as another process finds it when all others were killed here."""
        return Disk(at=self.snapshot())

    def read(self, path: str) -> bytes:
        """The bytes of a file, as a process would read them."""
        return self._tree.file(self._tree.get(path), path).live

    def write_durable(self, path: str, data: bytes) -> None:
        """Plant a file, or damage one in place, as if the disk had always held it; directories are made as needed."""
        self._tree.plant(path, data)


class _Description:
    """An open file description: what a descriptor stands for and what owns a lock."""

    __slots__ = ("flags", "inode", "path", "position")

    def __init__(self, path: str, inode: int, flags: int) -> None:
        self.path = path
        self.inode = inode
        self.flags = flags
        self.position = 0

    @property
    def reads(self) -> bool:
        return self.flags & os.O_ACCMODE != os.O_WRONLY

    @property
    def writes(self) -> bool:
        return self.flags & os.O_ACCMODE != os.O_RDONLY


class Process(System):
    """The system calls of one process on a simulated disk.

    Descriptor numbers are never used twice, so that the use of a closed one always shows. Once killed, every call
    raises `Killed`, except those that clean up: the kernel has done that.
    """

    def __init__(self, disk: Disk, tree: Tree, locks: dict[int, _Description]) -> None:
        self._disk = disk
        self._tree = tree
        self._locks = locks
        self._open: dict[int, _Description] = {}
        self._next = 3
        self._killed = False

    def kill(self) -> None:
        """SIGKILL: descriptors are closed and locks dropped; the page cache keeps what was written."""
        self._killed = True
        for description in self._open.values():
            self._release(description)
        self._open.clear()
        self._disk.claims = {place: owner for place, owner in self._disk.claims.items() if owner is not self}

    # Descriptors

    def open(self, path: str, flags: int, mode: int = 0o600) -> int:
        """Open, and create or empty the file if the flags say so."""
        self._live()
        missing = bool(flags & os.O_CREAT) and self._tree.find(path) is None
        if missing or flags & os.O_TRUNC:
            self._obey(self._tick("open", path, flags, mode), path)
        else:
            self._obey(self._meet("open"), path)
        inode = self._tree.find(path)
        if inode is None:
            inode = self._tree.create(path, stat.S_IFREG | mode) if flags & os.O_CREAT else self._tree.get(path)
        elif flags & os.O_CREAT and flags & os.O_EXCL:
            raise failure(errno.EEXIST, path)
        elif isinstance(self._tree.inodes[inode], Directory):
            if flags & (os.O_CREAT | os.O_TRUNC | os.O_WRONLY | os.O_RDWR):
                raise failure(errno.EISDIR, path)
        elif flags & os.O_DIRECTORY:
            raise failure(errno.ENOTDIR, path)
        if flags & os.O_TRUNC:
            self._tree.edit(inode, Cut(0))
        fd = self._next
        self._next += 1
        self._open[fd] = _Description(path, inode, flags)
        return fd

    def close(self, fd: int) -> None:
        """Close; a planned failure is raised after it, as the kernel does."""
        if self._killed:
            return
        description = self._at(fd)
        self._release(description)
        del self._open[fd]
        self._obey(self._meet("close"), description.path)

    def _at(self, fd: int) -> _Description:
        self._live()
        description = self._open.get(fd)
        if description is None:
            raise failure(errno.EBADF, f"descriptor {fd}")
        return description

    # Bytes

    def pread(self, fd: int, size: int, offset: int) -> bytes:
        """Read what the page cache has."""
        description = self._at(fd)
        if not description.reads:
            raise failure(errno.EBADF, description.path)
        fault = self._obey(self._meet("pread"), description.path)
        data = self._tree.file(description.inode, description.path).live[offset : offset + size]
        return data[: _half(data)] if fault is not None and fault.mode == "short" else data

    def write(self, fd: int, data: bytes | memoryview) -> int:
        """Write into the page cache: all, or half if a planned failure says so."""
        description = self._at(fd)
        if not description.writes:
            raise failure(errno.EBADF, description.path)
        data = bytes(data)
        fault = self._tick("write", description.path, data)
        if fault is not None and fault.mode in {"short", "kill"}:
            data = data[: _half(data)]
        if fault is None or fault.mode != "error":
            file = self._tree.file(description.inode, description.path)
            offset = len(file.live) if description.flags & os.O_APPEND else description.position
            if data:
                self._tree.edit(description.inode, Write(offset, data))
            description.position = offset + len(data)
        self._obey(fault, description.path)
        return len(data)

    def ftruncate(self, fd: int, size: int) -> None:
        """Set a file's size in the page cache."""
        description = self._at(fd)
        if not description.writes or size < 0:
            raise failure(errno.EINVAL, description.path)
        self._obey(self._tick("ftruncate", description.path, size), description.path)
        self._tree.edit(description.inode, Cut(size))

    def fdatasync(self, fd: int) -> None:
        """Make a file's bytes, or a directory's names, durable."""
        self._sync("fdatasync", fd)

    def fsync(self, fd: int) -> None:
        """Make a file's bytes, or a directory's names, durable."""
        self._sync("fsync", fd)

    def _sync(self, call: str, fd: int) -> None:
        description = self._at(fd)
        fault = self._tick(call, description.path)
        if fault is not None and fault.mode == "error":
            self._tree.lose(description.inode)
        self._obey(fault, description.path)
        if fault is None or fault.mode != "lie":
            self._tree.sync(description.inode)

    # Looking

    def fstat(self, fd: int) -> os.stat_result:
        """What the kernel tells of an open file."""
        description = self._at(fd)
        self._obey(self._meet("fstat"), description.path)
        return self._tree.stat(description.inode)

    def stat(self, path: str) -> os.stat_result:
        """What the kernel tells of a path."""
        self._obey(self._meet("stat"), path)
        return self._tree.stat(self._tree.get(path))

    def listdir(self, path: str) -> list[str]:
        """The names in a directory."""
        self._obey(self._meet("listdir"), path)
        return list(self._tree.directory(self._tree.get(path), path).live)

    # Locks

    def flock(self, fd: int, wait: bool) -> bool:  # noqa: FBT001 - as in System
        """Take the exclusive lock; it belongs to the open file description."""
        description = self._at(fd)
        self._obey(self._meet("flock"), description.path)
        owner = self._locks.setdefault(description.inode, description)
        if wait and owner is not description:
            raise WouldBlockForever(f"the lock of {description.path!r} is held through another descriptor")
        return owner is description

    def share(self, fd: int) -> bool:
        """Take the lock to read; here one reader at a time is enough."""
        return self.flock(fd, wait=False)

    def unlock(self, fd: int) -> None:
        """Release the lock, if it is held through this descriptor."""
        if self._killed:
            return
        description = self._at(fd)
        self._release(description)
        self._obey(self._meet("unlock"), description.path)

    def lock_byte(self, fd: int, at: int, wait: bool) -> bool:  # noqa: FBT001 - as in System
        """Lock one byte; it belongs to the open file description."""
        description = self._at(fd)
        self._obey(self._meet("lock_byte"), description.path)
        owner = self._disk.bytes.setdefault((description.inode, at), description)
        if wait and owner is not description:
            raise WouldBlockForever(f"byte {at} of {description.path!r} is locked through another descriptor")
        return owner is description

    def lock_all_bytes(self, fd: int) -> None:
        """Wait for all bytes; nobody who holds one would ever release it here."""
        inode = self._at(fd).inode
        if any(place[0] == inode for place in self._disk.bytes):
            raise WouldBlockForever(f"a byte of {self._at(fd).path!r} is locked through another descriptor")

    def unlock_byte(self, fd: int, at: int) -> None:
        """Release a byte, if it is held through this descriptor."""
        if not self._killed and self._disk.bytes.get(place := (self._at(fd).inode, at)) is self._at(fd):
            del self._disk.bytes[place]

    def claim(self, fd: int, at: int) -> int:
        """Lock one byte; it belongs to the process, and another hears only that it is taken."""
        description = self._at(fd)
        self._obey(self._meet("claim"), description.path)
        owner = self._disk.claims.setdefault((description.inode, at), self)
        return 0 if owner is self else -1

    def claimant(self, fd: int, at: int) -> int:
        """Tell whether another process has claimed a byte: 0 if none has."""
        return -1 if self._disk.claims.get((self._at(fd).inode, at), self) is not self else 0

    def disclaim(self, fd: int, at: int) -> None:
        """Release a byte, if it is this process's."""
        place = (self._at(fd).inode, at)
        if self._disk.claims.get(place) is self:
            del self._disk.claims[place]

    def _release(self, description: _Description) -> None:
        if self._locks.get(description.inode) is description:
            del self._locks[description.inode]
        for place in [place for place, owner in self._disk.bytes.items() if owner is description]:
            del self._disk.bytes[place]

    # Names

    def rename(self, old: str, new: str) -> None:
        """Move a name; durable when both directories were synced."""
        self._change("rename", lambda: self._tree.rename_move(old, new), old, new)

    def link(self, old: str, new: str) -> None:
        """Give a file another name."""
        self._change("link", lambda: self._tree.link_move(old, new), old, new)

    def unlink(self, path: str) -> None:
        """Take a file's name away; a process that has it open keeps it."""
        self._change("unlink", lambda: self._tree.unlink_move(path), path)

    def mkdir(self, path: str, mode: int) -> None:
        """Make an empty directory."""
        self._live()
        if self._tree.find(path) is not None:
            raise failure(errno.EEXIST, path)
        self._obey(self._tick("mkdir", path, mode), path)
        self._tree.create(path, stat.S_IFDIR | mode)

    def _change(self, call: str, move: Callable[[], Move], *paths: str) -> None:
        self._live()
        move()  # a call that the kernel refuses changes nothing: it is no tick
        self._obey(self._tick(call, *paths), paths[0])
        self._tree.apply(move())  # asked again: the hook may have let another process run

    # Time and chance

    def now(self) -> float:
        """The disk's own clock."""
        return self._tree.now() / 1e9

    def random(self, size: int) -> bytes:
        """Bytes that follow from the disk's seed."""
        return self._tree.random(size)

    # Faults

    def _tick(self, call: str, *arguments: Any) -> Fault | None:
        self._live()
        self._disk.ticks += 1
        if self._disk.before is not None:
            self._disk.before(call, arguments)
        return self._meet(call, ticks=True)

    def _meet(self, call: str, *, ticks: bool = False) -> Fault | None:
        self._live()
        return self._disk.faults.meet(call, ticks=ticks)

    def _obey(self, fault: Fault | None, path: str) -> Fault | None:
        if fault is not None and fault.mode == "error":
            raise failure(fault.errno, path)
        if fault is not None and fault.mode == "kill":
            self.kill()
            raise Killed
        return fault

    def _live(self) -> None:
        if self._killed:
            raise Killed


def _half(data: bytes) -> int:
    return len(data) - len(data) // 2
