"""How much room each part of a store takes."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import NamedTuple

from nacre.log.names import stem_of_log

FOLDERS = ("sessions", "archive", "cold", "quarantine", "base", "blobs", "trash")
_OF_SESSIONS = ("sessions", "archive", "cold", "quarantine")


class Usage(NamedTuple):
    """Bytes by folder, and by the file name of each session."""

    folders: dict[str, int]
    sessions: dict[str, int]

    @property
    def total(self) -> int:
        return sum(self.folders.values())


def usage_of(root: str) -> Usage:
    """Measure a store; a file with several names counts once."""
    folders = dict.fromkeys(FOLDERS, 0)
    sessions: dict[str, int] = {}
    seen: set[tuple[int, int]] = set()
    for folder in FOLDERS:
        for entry in _files(f"{root}/{folder}"):
            found = entry.stat(follow_symlinks=False)
            if (found.st_dev, found.st_ino) in seen:
                continue
            if found.st_nlink > 1:
                seen.add((found.st_dev, found.st_ino))
            folders[folder] += found.st_size
            if folder in _OF_SESSIONS:
                name = entry.name.partition(".")[0]
                name = stem_of_log(name) if folder == "sessions" else name
                sessions[name] = sessions.get(name, 0) + found.st_size
    return Usage(folders, sessions)


def _files(folder: str) -> Iterator[os.DirEntry[str]]:
    try:
        entries = os.scandir(folder)
    except FileNotFoundError:
        return
    with entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                yield from _files(entry.path)
            elif entry.is_file(follow_symlinks=False):
                yield entry
