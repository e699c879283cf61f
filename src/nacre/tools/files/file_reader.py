"""read_file and list_files: what a model may see of a workspace, in bounded memory."""

from __future__ import annotations

import codecs
import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from nacre.agent.ports import Output
from nacre.errors import ToolError
from nacre.tools.files.workspace import Pattern, Workspace
from nacre.tools.functions import Function
from nacre.tools.tool_output import MAX_LENGTH, harmless

_CHUNK = 1 << 16
_SNIFFED = 8192
_MAX_LINE = 2000
_MAX_READ = 500_000_000
"""How much of a file is read to find a line of it."""
_MAX_PATTERN = 1000
_MAX_DOUBLE_STARS = 10
_MAX_ENTRIES = 500
_MAX_LOOKED_AT = 100_000
_MAX_DEPTH = 100
_KILO = 1000
_CROWDED = frozenset({"node_modules", "__pycache__", "site-packages", ".git", ".venv", "venv", ".tox"})
_MARKS = ((codecs.BOM_UTF8, "utf-8-sig"), (codecs.BOM_UTF16_LE, "utf-16"), (codecs.BOM_UTF16_BE, "utf-16"))
_KINDS = (
    (b"\x89PNG\r\n", "a PNG image"),
    (b"\xff\xd8\xff", "a JPEG image"),
    (b"GIF8", "a GIF image"),
    (b"%PDF-", "a PDF document"),
    (b"PK\x03\x04", "a ZIP archive (or a document made of one)"),
    (b"\x1f\x8b", "gzip data"),
    (b"\x28\xb5\x2f\xfd", "zstd data"),
    (b"\x7fELF", "an ELF program"),
    (b"SQLite format 3\x00", "an SQLite database"),
    (b"\x00asm", "a WebAssembly module"),
)


class Reader:
    """The reading tools of a workspace, and of the folders of skills, whose files have full paths."""

    def __init__(self, workspace: Workspace, skills: Sequence[Workspace] = ()) -> None:
        self._workspace = workspace
        self._skills = skills

    def read_file(self, path: str, offset: int = 1, limit: int = 2000) -> Output:
        """Read a text file of the workspace. The lines come as they are, without numbers.

        Args:
            path: the file, relative to the workspace; a file of a skill by its full path
            offset: the first line to show, counted from 1
            limit: maximum number of lines to show
        """
        if offset < 1 or limit < 1:
            raise ToolError(f"offset and limit are 1 or more, not {offset} and {limit}")
        workspace, place = self._locate(path)
        with os.fdopen(workspace.read(place), "rb") as file:
            size = os.fstat(file.fileno()).st_size
            first = file.read(_SNIFFED)
            encoding = next((encoding for mark, encoding in _MARKS if first.startswith(mark)), "")
            kind = next((kind for sign, kind in _KINDS if first.startswith(sign)), "")
            if not encoding and (kind or b"\0" in first):
                what = f"{kind or 'a binary file'}, {_bytes(size)}"
                return Output(text=f"{path} is {what}: it is not text and is not shown.")
            file.seek(0)
            lines = _lines(file, path, encoding or "utf-8")
            return Output(text=_excerpt(lines, path, offset, limit, size=size))

    def list_files(self, pattern: str = "*", path: str = ".") -> Output:
        """List files and directories of the workspace with their sizes, sorted by path.

        Args:
            pattern: the names to list, such as *.py or **/*.md; ** matches any number of directories
            path: the directory to look in, relative to the workspace; the folder of a skill by its full path
        """
        if len(pattern) > _MAX_PATTERN or pattern.count("**") > _MAX_DOUBLE_STARS:
            limits = f"{_MAX_PATTERN:,} characters or {_MAX_DOUBLE_STARS} **"
            raise ToolError(f"the pattern has more than {limits}: shorten it")
        workspace, place = self._locate(path)
        # A path that is shown can be given back: one of a skill is a full path.
        prefix = "" if workspace is self._workspace else f"{workspace.root}/"
        shape = Pattern(pattern)
        rows: list[str] = []
        not_entered: set[str] = set()
        more = looked_at = 0

        def add(row: str) -> None:
            nonlocal more
            if len(rows) >= _MAX_ENTRIES:
                more += 1
            else:
                rows.append(harmless(prefix + row))

        def fill(path: str, states: frozenset[int]) -> None:
            """Take what a folder has, and those below it; raises ToolError if the folder cannot be opened."""
            nonlocal looked_at
            shown, entries = workspace.entries(path, limit=_MAX_LOOKED_AT - looked_at)
            looked_at += len(entries)
            for name, status, target in entries:
                is_meant, after = shape.step(states, name)
                is_folder = stat.S_ISDIR(status.st_mode)
                place = f"{shown}/{name}" if shown else name
                if is_meant:
                    about = f" -> {target}" if stat.S_ISLNK(status.st_mode) else f"  {_bytes(status.st_size)}"
                    add(place + ("/" if is_folder else about))
                if not after or not is_folder or looked_at >= _MAX_LOOKED_AT or place.count("/") >= _MAX_DEPTH:
                    continue
                # What has too much in it is searched only if it is named.
                if name in _CROWDED and not shape.names(states, name):
                    not_entered.add(name)
                    continue
                try:
                    fill(place, after)
                except ToolError:
                    add(f"{place}/  (cannot be read)")

        fill(place, shape.start)
        rows = rows or [f"no file in {path} matches {pattern}" if looked_at else f"{path} is empty"]
        if more:
            rows.append(f"[{more:,} more not shown: use a narrower pattern]")
        if looked_at >= _MAX_LOOKED_AT:
            rows.append(f"[stopped after {_MAX_LOOKED_AT:,} names: list a subdirectory instead]")
        if not_entered:
            names = ", ".join(sorted(not_entered))
            rows.append(f"[not searched: {names}; name them in the pattern to search them]")
        return Output(text="\n".join(rows))

    def _locate(self, path: str) -> tuple[Workspace, str]:
        """Where a path is looked for; in the folder of a skill upper and lower case are the same."""
        skill = next((skill for skill in self._skills if skill.holds(path)), None)
        if skill is None:
            return self._workspace, path
        # Each name as it is there, if only one name differs in nothing but case.
        place, found = Path(skill.root), []
        for name in filter(None, skill.inside(path)):
            alike = [name]
            if name not in {".", ".."} and not (place / name).exists():
                with suppress(OSError):
                    alike = [one.name for one in place.iterdir() if one.name.casefold() == name.casefold()]
            found.append(alike[0] if len(alike) == 1 else name)
            place /= found[-1]
        return skill, "/".join(found) or "."


def reading_tools(workspace: Workspace, skills: Sequence[Workspace] = ()) -> tuple[Function, ...]:
    """The tools that only read."""
    reader = Reader(workspace, skills)
    return (Function(reader.read_file, effect="read"), Function(reader.list_files, effect="read"))


def _lines(file: BinaryIO, path: str, encoding: str) -> Iterator[tuple[str, int]]:
    """Each line, cut if it is very long, with how many characters of it are missing.

    Raises ToolError if the file has so many bytes that nobody can wait for its end.
    """
    decoder = codecs.getincrementaldecoder(encoding)(errors="replace")
    kept, dropped = "", 0
    for _ in range(_MAX_READ // _CHUNK):
        chunk = file.read(_CHUNK)
        for at, text in enumerate(decoder.decode(chunk, final=not chunk).split("\n")):
            if at:
                yield kept, dropped
                kept, dropped = "", 0
            room = _MAX_LINE - len(kept)
            kept, dropped = kept + text[:room], dropped + max(len(text) - room, 0)
        if not chunk:
            break
    else:
        raise ToolError(f"what is wanted of {path!r} is not in its first {_bytes(_MAX_READ)}: use a program")
    if kept:
        yield kept, dropped


def _excerpt(lines: Iterator[tuple[str, int]], path: str, offset: int, limit: int, *, size: int) -> str:
    """The lines from an offset on, as far as there is room for them, and notes on what is missing."""
    shown: list[str] = []
    number, room, is_odd, is_complete = 0, MAX_LENGTH, False, True
    for number, (line, dropped) in enumerate(lines, start=1):
        if number < offset:
            continue
        text = harmless(line.removesuffix("\r")) + (f" [… {dropped:,} characters left out]" if dropped else "")
        room -= len(text) + 1
        if len(shown) >= limit or (room < 0 and shown):
            is_complete = False
            break
        is_odd = is_odd or "\ufffd" in line
        shown.append(text)
    if number == 0:
        return f"{path} is empty."
    if not shown:
        raise ToolError(f"{path!r} has {number:,} lines, so there is none at offset {offset:,}")
    end = offset + len(shown) - 1
    if not is_complete:
        shown.append(f"[lines {offset:,} to {end:,} of a file of {_bytes(size)}; offset={end + 1} continues]")
    elif offset > 1:
        shown.append(f"[lines {offset:,} to {end:,}, the last]")
    if is_odd:
        shown.append("[bytes that are not UTF-8 are shown as \ufffd]")
    return "\n".join(shown)


def _bytes(size: int) -> str:
    if size < _KILO:
        return f"{size} bytes" if size != 1 else "1 byte"
    amount = float(size)
    for unit in ("kB", "MB", "GB"):
        amount /= _KILO
        if amount < _KILO or unit == "GB":
            break
    return f"{amount:.1f} {unit}"
