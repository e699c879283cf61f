"""Removing every file that a session has beside its log."""

from __future__ import annotations

from typing import NamedTuple

from nacre.log.blobs import release, unused
from nacre.log.ops import Ops
from nacre.log.place import Place, put_away, settle_names, unlink_if_there

_FOLDERS = ("cold", "base", "blobs", "quarantine", "archive", "trash")


def erase_rest(ops: Ops, place: Place, *, upto: str) -> None:
    """Remove a session's moved-out, quarantined, archived and trashed files, durably; its log comes after them.

    Those of generations later than `upto` stay: they began after the deletion. Payloads of one that never came to
    be go too, whatever its uid; only the lock of the active log keeps others from beginning one meanwhile.
    """
    doomed = _Doomed(upto, None if place.archived else put_away(ops, place))
    for folder in (f"{place.root}/{name}" for name in _FOLDERS):
        try:
            files = ops.listdir(folder)
        except FileNotFoundError:
            continue
        for file in files:
            name, _, rest = file.partition(".")
            path = f"{folder}/{file}"
            if name == place.name and path != place.log and doomed.takes(folder, rest.partition(".")[0]):
                _remove(ops, path)
        if folder == place.blobs:
            for path in list(unused(ops, place.root)):
                unlink_if_there(ops, path)
        # Also with nothing left to remove: whoever did may have been killed before settling it.
        settle_names(ops, folder)


class _Doomed(NamedTuple):
    """Which generations go: those up to one, and payloads of those that are not among the known ones."""

    upto: str
    known: frozenset[str] | None

    def takes(self, folder: str, uid: str) -> bool:
        is_unborn = self.known is not None and uid not in self.known and folder.endswith("/blobs")
        return uid <= self.upto or is_unborn


def _remove(ops: Ops, path: str) -> None:
    if path.split("/")[-2] == "blobs":
        release(ops, path)
    else:
        unlink_if_there(ops, path)
