"""The files of pages: read and replaced such that nothing that a person saves is overwritten unread."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path

import msgspec

from nacre.memory.store import MEMORY_PAGE, RenderedLine
from nacre.storage.paths import unlink_if_there, write_all
from nacre.storage.system import System

_DAY = re.compile(r"\d{4}-\d\d-\d\d\.md\Z")
_BLOCK = 1 << 20
_MAX_BYTES = 16 * _BLOCK
_MOMENT = 0.1
_FOLDER, _BASES = "memory", ".rendered"

FileStamp = tuple[int, int, int, int]
"""Inode, size and time of a file: another one means that somebody wrote it.

A file that was written a moment ago may be written again in the same tick: its last number is never the same.
"""


class Unreadable(OSError):
    """A page is not text, or too large to be one; it is left as it is."""


class Base(msgspec.Struct, frozen=True):
    """A page as we wrote it, and from which life of the memory."""

    epoch: str
    lines: list[RenderedLine]


class PageFiles:
    """The pages in the agent's own folder: `MEMORY.md`, and `memory/` with a page for every day.

    How each page was last written is kept in `memory/.rendered/`; without it, no line counts as removed.
    """

    def __init__(self, root: Path, system: System | None = None) -> None:
        self._root = str(root)
        self._system = system or System()
        self._count = count(1)
        self._bases: dict[str, tuple[tuple[int, int, int], Base | None]] = {}

    def path(self, page: str) -> str:
        """Where a page is; a link is followed to the file that it names."""
        return os.path.realpath(f"{self._root}/{page}")

    def pages(self) -> list[str]:
        """The pages that are there."""
        names: list[str] = []
        with suppress(OSError):
            names = self._system.listdir(f"{self._root}/{_FOLDER}")
        return [MEMORY_PAGE, *(f"{_FOLDER}/{name}" for name in sorted(names) if _DAY.match(name))]

    def stamp(self, page: str) -> FileStamp | None:
        """Tell the file of a page from what it was before; None if it is not there."""
        try:
            found = self._system.stat(self.path(page))
        except OSError:
            return None
        is_new = self._system.now() - found.st_mtime < _MOMENT
        return (*_mark(found), next(self._count) if is_new else 0)

    def read(self, page: str) -> str | None:
        """The text of a page; None if there is none. Raises Unreadable."""
        path = self.path(page)
        data = self._content(path)
        if data is None:
            return None
        if len(data) > _MAX_BYTES:
            raise Unreadable(f"{path} has more than {_MAX_BYTES} bytes: it is not read")
        try:
            return data.decode()
        except UnicodeDecodeError as error:
            raise Unreadable(f"{path} is not UTF-8: it is not read") from error

    def finish_write(self, page: str, ours: str) -> None:
        """Finish what a crash left half done; only while the store is held.

        A character that was cut off at the end is removed, if the page is the beginning of what it is to be: then it
        is added again. A person's file that is not text is left as it is.
        """
        path = self.path(page)
        data = self._content(path)
        if data is None:
            # The process was killed between two renames.
            with suppress(FileNotFoundError):
                self._system.rename(_hidden(path, "old"), path)
        elif ours.encode().startswith(data) and (whole := len(data.decode(errors="ignore").encode())) < len(data):
            with self._open(path, os.O_WRONLY) as fd:
                self._system.ftruncate(fd, whole)
        self._clean_up(path)

    def replace(self, page: str, old: str | None, new: str) -> bool:
        """Replace a text by another; False if somebody has saved the page meanwhile: read it again."""
        path = self.path(page)
        fresh = _hidden(path, "new")
        mode = 0o600
        with suppress(OSError):
            mode = self._system.stat(path).st_mode & 0o777
        self._write(fresh, new, mode=mode)
        try:
            return (old is None or self._rename_old(path, old)) and self._link(fresh, path)
        finally:
            self._clean_up(path)

    def extend(self, page: str, old: str, more: str) -> bool:
        """Append to a page; False if somebody has saved it meanwhile: read it again.

        A crash may leave a part of what was to be added; the next one to sync adds the rest.
        """
        try:
            fd = self._system.open(self.path(page), os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW)
        except FileNotFoundError:
            return False
        except OSError:
            # It may not be written, but another may take its place.
            return self.replace(page, old, old + more)
        try:
            if self._system.fstat(fd).st_size != len(old.encode()):
                return False
            write_all(self._system, fd, more.encode())
        finally:
            self._system.close(fd)
        return True

    def remove(self, page: str, old: str | None) -> bool:
        """Remove a page, if there is one; False if somebody has saved it meanwhile."""
        path = self.path(page)
        is_same = old is None or self._rename_old(path, old)
        unlink_if_there(self._system, _hidden(path, "old"))
        if is_same:
            unlink_if_there(self._system, self._base_path(page))
        return is_same

    def base(self, page: str) -> Base | None:
        """How a page was last written; None if that is not known.

        The first line of the file is a whole base, and each further one a line that was added to the page since. It is
        read again if it is another file or has grown: nobody but us writes it.
        """
        path = self._base_path(page)
        try:
            mark = _mark(self._system.stat(path))
        except FileNotFoundError:
            return None
        if page not in self._bases or self._bases[page][0] != mark:
            malformed = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
            first, *added = (self._content(path) or b"").split(b"\n")
            base: Base | None = None
            with suppress(*malformed):
                base = msgspec.json.decode(first, type=Base)
            lines = base.lines if base is not None else []
            for line in added:
                # A line that a crash cut off is added to the page once more.
                with suppress(*malformed):
                    lines.append(msgspec.json.decode(line, type=RenderedLine))
            self._bases[page] = (mark, base)
        return self._bases[page][1]

    def set_base(self, page: str, base: Base) -> None:
        """Keep how a page was written; only once it is there: lines that are not would count as removed."""
        path = self._base_path(page)
        self._write(f"{path}.new", msgspec.json.encode(base).decode(), mode=0o600)
        self._system.rename(f"{path}.new", path)
        self._bases[page] = (_mark(self._system.stat(path)), base)

    def extend_base(self, page: str, lines: Sequence[RenderedLine]) -> None:
        """Keep what was added to a page; only once it is there, and where a base was kept before."""
        before = self.base(page)
        path = self._base_path(page)
        with self._open(path, os.O_WRONLY | os.O_APPEND) as fd:
            # A line end comes first, so that a line that a crash cut off spoils no other.
            write_all(self._system, fd, b"".join(b"\n" + msgspec.json.encode(line) for line in lines))
        if before is not None:
            base = Base(before.epoch, [*before.lines, *lines])
            self._bases[page] = (_mark(self._system.stat(path)), base)

    def _base_path(self, page: str) -> str:
        return f"{self._root}/{_FOLDER}/{_BASES}/{page.rpartition('/')[2].removesuffix('.md')}.json"

    def _write(self, path: str, text: str, *, mode: int) -> None:
        Path(path).parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        unlink_if_there(self._system, path)
        with self._open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode) as fd:
            write_all(self._system, fd, text.encode())

    def _clean_up(self, path: str) -> None:
        unlink_if_there(self._system, _hidden(path, "new"))
        unlink_if_there(self._system, _hidden(path, "old"))

    @contextmanager
    def _open(self, path: str, flags: int, mode: int = 0o600) -> Iterator[int]:
        fd = self._system.open(path, flags, mode)
        try:
            yield fd
        finally:
            self._system.close(fd)

    def _content(self, path: str) -> bytes | None:
        blocks: list[bytes] = []
        try:
            with self._open(path, os.O_RDONLY) as fd:
                while (size := sum(map(len, blocks))) <= _MAX_BYTES and (block := self._system.pread(fd, _BLOCK, size)):
                    blocks.append(block)
        except FileNotFoundError:
            return None
        return b"".join(blocks)

    def _rename_old(self, path: str, old: str) -> bool:
        """Rename the page; if it is not what we know, give it its name back."""
        hidden = _hidden(path, "old")
        try:
            self._system.rename(path, hidden)
        except FileNotFoundError:
            return True
        if self._content(hidden) == old.encode():
            return True
        self._link(hidden, path)
        return False

    def _link(self, file: str, path: str) -> bool:
        """Give a file the page's name; False if there is one of that name by now."""
        try:
            self._system.link(file, path)
        except FileExistsError:
            return False
        except OSError:
            # A file system without links.
            if self._content(path) is not None:
                return False
            self._system.rename(file, path)
        return True


def _mark(found: os.stat_result) -> tuple[int, int, int]:
    return (found.st_ino, found.st_size, found.st_mtime_ns)


def _hidden(path: str, ending: str) -> str:
    folder, name = os.path.split(path)
    return f"{folder}/.{name}.{ending}"
