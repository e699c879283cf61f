"""Removing every file that a session has beside its log."""

from __future__ import annotations

from nacre.log.blobs import release, unused
from nacre.log.ops import Ops
from nacre.log.place import Place, settle_names, unlink_if_there

_FOLDERS = ("cold", "base", "blobs", "quarantine", "archive", "trash")


def erase_rest(ops: Ops, place: Place, *, upto: str) -> None:
    """Remove a session's moved-out, quarantined, archived and trashed files, durably; its log comes after them.

    Those of generations later than `upto` stay: they began after the deletion.
    """
    unlink_if_there(ops, f"{place.root}/locks/{place.name}.turn")
    for folder in (f"{place.root}/{name}" for name in _FOLDERS):
        try:
            files = ops.listdir(folder)
        except FileNotFoundError:
            continue
        for file in files:
            name, _, rest = file.partition(".")
            if name == place.name and rest.partition(".")[0] <= upto and f"{folder}/{file}" != place.log:
                _remove(ops, f"{folder}/{file}")
        if folder == place.blobs:
            for path in list(unused(ops, place.root)):
                unlink_if_there(ops, path)
        # Also with nothing left to remove: whoever did may have been killed before settling it.
        settle_names(ops, folder)


def _remove(ops: Ops, path: str) -> None:
    if path.split("/")[-2] == "blobs":
        release(ops, path)
    else:
        unlink_if_there(ops, path)
