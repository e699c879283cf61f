"""Large payloads: stored once by content, linked by every session that has them, and read through that link.

`blobs/<sha256>` is what sessions share; `blobs/<name>.<uid>.<sha256>` is one session's hard link to it. A session
never depends on the shared name: it is only where the next session finds the payload, and may go at any time.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any

import msgspec

from nacre.messages import Message
from nacre.records import Record, Records
from nacre.storage.lines import Lines
from nacre.storage.paths import SessionPaths, listed, make_folder, settle_names, unlink_if_there, write_all
from nacre.storage.system import System, opened

LARGEST = 64 * 1024
_BLOCK = 1024 * 1024
LOST = "[a large payload is lost]"
"""What readers find where a payload was."""
_MARK = "blob:"
_NO_LINK = (errno.EXDEV, errno.EPERM, errno.EMLINK, errno.ENOTSUP, errno.ENOENT, errno.EEXIST)
_SHARED_NAME = 64
_OURS_AND_SHARED = 2

Payloads = dict[str, bytes]
"""Payloads by the SHA-256 of their bytes."""


# ---- in a record


def lightened(record: Record) -> tuple[Record, Payloads]:
    """Take the texts over LARGEST bytes out of a record.

    In the place of each stands `blob:` and its name, and the record's `blobs` says which places these are.
    """
    taken: Payloads = {}
    places: list[str] = []

    def lighten(value: Any, at: str) -> Any:
        if isinstance(value, dict):
            steps = ((name, name.replace("~", "~0").replace("/", "~1")) for name in value)
            return {name: lighten(value[name], f"{at}/{step}") for name, step in steps}
        if isinstance(value, list):
            return [lighten(part, f"{at}/{index}") for index, part in enumerate(value)]
        if not isinstance(value, str) or len(value) * 4 <= LARGEST or len(data := value.encode()) <= LARGEST:
            return value
        name = _name(data)
        taken[name] = data
        places.append(at)
        return f"{_MARK}{name}"

    if record.m is not None:
        light = lighten(msgspec.json.decode(msgspec.json.encode(record.m)), "/m")
        changes: dict[str, Any] = {"m": msgspec.Raw(msgspec.json.encode(light))}
    else:
        changes = {"data": lighten(record.data, "/data")}
    return (msgspec.structs.replace(record, **changes, blobs=places), taken) if taken else (record, taken)


def names(record: Record) -> list[str]:
    """The payloads that a record refers to."""
    return [name for _, name in _named(record, _parts(record))]


def whole(record: Record, payload: Callable[[str], str | None], lost: str | None = LOST) -> Record:
    """Put the payloads of a record back in; where one is lost there is `lost` instead, or with None still its name."""
    value = _parts(record)
    for place, name in _named(record, value):
        found = payload(name)
        text = lost if found is None else found
        if text is not None:
            above, _, last = place.rpartition("/")
            inside = _at(value, above)
            inside[int(last) if isinstance(inside, list) else _unescaped(last)] = text
    if record.m is None:
        return msgspec.structs.replace(record, data=value["data"], blobs=None)
    return msgspec.structs.replace(record, m=msgspec.convert(value["m"], Message), blobs=None)


def whole_up_to(limit: int, records: Iterable[Record], view: Records) -> list[Record]:
    """The first records, with their payloads put back in: as many as are within `limit` bytes, and one at least.

    Only records that have payloads count: the others are short, and how many there are is for the caller to limit.
    """
    found: list[Record] = []
    size = 0
    for record in records:
        if record.blobs is None:
            found.append(record)
            continue
        complete = view.whole(record)
        size += len(msgspec.json.encode(complete))
        if size > limit and found:
            break
        found.append(complete)
    return found


def _named(record: Record, value: Any) -> list[tuple[str, str]]:
    """The places of a record's payloads, and their names."""
    found = ((place, _at(value, place)) for place in record.blobs or ())
    return [(place, text[len(_MARK) :]) for place, text in found if isinstance(text, str) and text.startswith(_MARK)]


def _parts(record: Record) -> Any:
    """A record's contents as JSON has them, with nothing but objects and lists, which its places are in."""
    name, value = ("m", record.m) if record.m is not None else ("data", record.data)
    return {name: msgspec.json.decode(msgspec.json.encode(value))}


def _at(value: Any, place: str) -> Any:
    """What is at a place that is named as JSON pointers name it; None if there is nothing."""
    for step in place.split("/")[1:]:
        try:
            value = value[int(step) if isinstance(value, list) else _unescaped(step)]
        except (LookupError, TypeError, ValueError):
            return None
    return value


def _unescaped(step: str) -> str:
    return step.replace("~1", "/").replace("~0", "~")


def _name(data: bytes) -> str:
    from hashlib import sha256  # noqa: PLC0415 - brings OpenSSL along

    return sha256(data).hexdigest()


# ---- on disk


def keep(system: System, place: SessionPaths, uid: str, payloads: Mapping[str, bytes]) -> None:
    """Link payloads to a session, durably; only under its lock. One that no session has yet is written."""
    make_folder(system, place.blobs)
    for name, data in payloads.items():
        link, shared = place.blob(uid, name), f"{place.blobs}/{name}"
        if _holds(system, link, data):
            continue
        unlink_if_there(system, link)
        if not (_holds(system, shared, data) and _link(system, shared, link)):
            _write(system, link, data)
            unlink_if_there(system, shared)
            _link(system, link, shared)
    settle_names(system, place.blobs)


def read(system: System, place: SessionPaths, uid: str, name: str) -> str | None:
    """A payload of a session; None if it is lost or not what was written."""
    for path in (place.blob(uid, name), f"{place.blobs}/{name}"):
        with suppress(FileNotFoundError):
            data = _read(system, path)
            if _name(data) == name:
                return data.decode()
    return None


def links(system: System, place: SessionPaths, uid: str) -> Iterator[tuple[str, str]]:
    """The payloads that a session links: their names and paths; not what a killed writer left of one."""
    beginning = f"{place.name}.{uid}."
    for file in listed(system, place.blobs):
        name = file.removeprefix(beginning)
        if file.startswith(beginning) and len(name) == _SHARED_NAME:
            yield name, f"{place.blobs}/{file}"


def release(system: System, link: str) -> None:
    """Take a session's link away, and the payload with it if no other session has it.

    The shared name goes first: a crash between the two leaves a link, which is found again.
    """
    folder, _, file = link.rpartition("/")
    shared = f"{folder}/{file.rpartition('.')[2]}"
    with suppress(FileNotFoundError):
        if system.stat(shared).st_nlink <= _OURS_AND_SHARED:
            system.unlink(shared)
    unlink_if_there(system, link)


def unused(system: System, root: str) -> Iterator[str]:
    """Payloads that no session links; a session that links one at this moment keeps it, since only the name goes."""
    folder = f"{root}/blobs"
    for file in listed(system, folder):
        if "." not in file and len(file) == _SHARED_NAME:
            with suppress(FileNotFoundError):
                if system.stat(f"{folder}/{file}").st_nlink == 1:
                    yield f"{folder}/{file}"


def _link(system: System, path: str, goal: str) -> bool:
    """Give a payload another name; False where that cannot be, or somebody was quicker."""
    try:
        system.link(path, goal)
    except OSError as error:
        if error.errno not in _NO_LINK:
            raise
        return False
    return True


def _write(system: System, path: str, data: bytes) -> None:
    scratch = f"{path}.tmp"
    unlink_if_there(system, scratch)
    try:
        with opened(system, scratch, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_NOFOLLOW) as fd:
            write_all(system, fd, data)
            system.fsync(fd)
        system.rename(scratch, path)
    except BaseException:
        # What cannot be removed now goes when this payload is written again, or with its session.
        with suppress(OSError):
            unlink_if_there(system, scratch)
        raise


def _holds(system: System, path: str, data: bytes) -> bool:
    """Tell whether a file is there and has just these bytes."""
    try:
        return system.stat(path).st_size == len(data) and _read(system, path) == data
    except FileNotFoundError:
        return False


def _read(system: System, path: str) -> bytes:
    with opened(system, path) as fd:
        return Lines(system, fd, size := system.fstat(fd).st_size).read(0, size)
