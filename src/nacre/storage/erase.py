"""Removing every file that a session has beside its log."""

from __future__ import annotations

from nacre.storage.blobs import release, unused
from nacre.storage.paths import SessionPaths, settle_names, unlink_if_there
from nacre.storage.system import System

# Logs first: what was interrupted must leave no log without what belongs to it.
_FOLDERS = ("trash", "archive", "cold", "base", "blobs", "quarantine")


def erase_rest(system: System, place: SessionPaths, *, upto: str) -> None:
    """Remove a session's moved-out, quarantined, archived and trashed files, durably; its log comes after them.

    Those of generations later than `upto` stay. Only with the lock of the key: it keeps others from beginning or
    moving a generation meanwhile.
    """
    for folder in (f"{place.root}/{name}" for name in _FOLDERS):
        try:
            files = system.listdir(folder)
        except FileNotFoundError:
            continue
        for file in files:
            name, _, rest = file.partition(".")
            path = f"{folder}/{file}"
            if name == place.name and path != place.log and rest.partition(".")[0] <= upto:
                _remove(system, path)
        if folder == place.blobs:
            for path in list(unused(system, place.root)):
                unlink_if_there(system, path)
        # Also with nothing left to remove: the process that removed it may have been killed before settling it.
        settle_names(system, folder)


def _remove(system: System, path: str) -> None:
    if path.split("/")[-2] == "blobs":
        release(system, path)
    else:
        unlink_if_there(system, path)
