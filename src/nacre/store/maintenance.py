"""The files of a store, without what is said in them: whose they are, how large, what is left over, a copy."""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import msgspec

from nacre.entries import GenerationInfo, Past, parse_time
from nacre.errors import InvalidKey, StoreError
from nacre.log.names import key_of, stem
from nacre.log.ops import Ops, is_from_system
from nacre.log.place import Place
from nacre.log.plain import path_now
from nacre.log.reader import reading

if TYPE_CHECKING:
    from nacre.store.files import Files

_LONGEST_HEADER = 4096


class _Header(msgspec.Struct, frozen=True):
    """What the first line of a log says of its session."""

    sid: str | None = None


def listed(ops: Ops, folder: str) -> list[str]:
    """The names in a folder; none if there is no folder."""
    try:
        return ops.listdir(folder)
    except FileNotFoundError:
        return []


def key_of_log(ops: Ops, path: str, name: str) -> str | None:
    """The key of the log of a session, as its first line or else its name tells; None if that is another session's."""
    try:
        fd = ops.open(path, os.O_RDONLY | os.O_NOFOLLOW)
        try:
            line = ops.pread(fd, _LONGEST_HEADER, 0).partition(b"\n")[0]
        finally:
            ops.close(fd)
        key = msgspec.json.decode(line, type=_Header).sid or key_of(name)
        return key if key is not None and stem(key) == name else None
    except (OSError, msgspec.DecodeError, UnicodeDecodeError, RecursionError, InvalidKey):
        return key_of(name)


def generation(files: Files, key: str, uid: str, *, is_pinned: Callable[[Past], bool]) -> GenerationInfo | None:
    """The active generation of a session, or an archived one; None if it is not there."""
    ops, place = files.ops, Place.of(files.location, key, uid)
    try:
        path = path_now(ops, place)
        changed = ops.stat(path).st_ctime if path else 0.0
        with reading(ops, place) as found:
            if found.past is None:
                return None
            return GenerationInfo(
                key=key,
                generation=found.past.uid,
                pinned=is_pinned(found.past),
                updated=parse_time(found.updated),
                changed=datetime.fromtimestamp(changed, UTC),
                bytes=found.size + found.past.header.cold,
            )
    except OSError as error:
        if not is_from_system(error):
            raise
        raise StoreError(f"{place.log} cannot be read: {error}") from error
