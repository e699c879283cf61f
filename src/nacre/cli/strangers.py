"""Files among the logs that nacre did not write: they are reported, and not changed."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from msgspec.structs import replace

from nacre.log.place import Place

if TYPE_CHECKING:
    from nacre.entries import Finding

KIND = "stranger"
_BEGINNING = b'{"v":'


def named(root: str, finding: Finding) -> Finding:
    """The same finding; a file that is not a log of nacre is reported as such."""
    if finding.kind != "torn" or not finding.where.startswith("bytes 0 "):
        return finding
    path = _path(root, finding.key)
    if not is_strange(path):
        return finding
    detail = "not a log of nacre; it was not changed, and should be moved out of the store"
    return replace(finding, kind=KIND, where=path, detail=detail)


def is_strange(path: str) -> bool:
    """Tell whether a file does not begin as our logs do, not even with a log's beginning that was torn."""
    try:
        with open(path, "rb") as file:
            beginning = file.read(len(_BEGINNING))
    except OSError:
        return False
    # A power cut may leave a file that is empty or all zeros: that was one of ours.
    return not _BEGINNING.startswith(beginning) and any(beginning)


def _path(root: str, key: str) -> str:
    """A log that says nothing is known by the name of its file, or by the key that was asked for."""
    path = Place(root, "", key).log
    return path if os.path.exists(path) else Place.of(root, key).log
