"""A small store with every kind of file, and what a flipped bit in any of them may cost."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass

import nacre
from nacre.storage.blobs import LOST
from nacre.testing import Disk
from tests.damage.frames import frames_of, make_earlier
from tests.paths import log_of
from tests.simulated import ROOT, names, opened

LARGE = "<large>" + "x" * 65_600
AFTERWARDS = ("<afterwards 1>", "<afterwards 2>")
KEYS = ("k", "fork", "archived", "earlier", "group")
FOLDERS = ("sessions", "archive", "base", "cold", "blobs")


def build() -> Disk:
    """Sessions with groups, meta, summaries and a payload; compacted, forked, archived, and from an earlier version."""
    disk = Disk()
    sessions = opened(disk)
    for part in ("first", "second"):
        _talk(sessions, "k", part)
        _compact(sessions, "k")
    sessions.add_message("k", "user", "<live>")
    sessions.add_message("k", "user", LARGE)
    sessions.fork("k", "fork")
    _talk(sessions, "k", "third")
    _compact(sessions, "k")
    sessions.add_message("k", "user", "<k last>")
    _talk(sessions, "fork", "own")
    _compact(sessions, "fork")
    _talk(sessions, "fork", "later")
    _talk(sessions, "archived", "put away")
    sessions.add_message("archived", "user", "<archived last>")
    sessions.archive("archived")
    for part in ("one", "two"):
        _talk(sessions, "earlier", part)
        _compact(sessions, "earlier")
    make_earlier(disk, "earlier")
    sessions.add_messages("group", [_user("<group a>"), _user("<group b>")])
    sessions.close()
    return disk


def _talk(sessions: nacre.Sessions, key: str, part: str) -> None:
    for number in range(4):
        sessions.add_message(key, "user", f"<{part} {number}>")
    sessions.add_messages(key, [_user(f"<{part} {letter}>") for letter in "abc"])
    sessions.set_summary(key, f"<summary {part}>")
    sessions.set_meta(key, note=f"<meta {part}>")
    sessions.add_message(key, "user", f"<{part} end>")


def _user(text: str) -> nacre.Message:
    return nacre.Message(role="user", content=text)


def _compact(sessions: nacre.Sessions, key: str) -> None:
    sessions.truncate_history(key, 1)
    sessions.save(key)


def files(disk: Disk) -> dict[str, bytes]:
    """Every file of the store, once; some have several names."""
    process = disk.process()
    paths = [f"{ROOT}/{folder}/{name}" for folder in FOLDERS for name in names(disk, folder)]
    by_inode = {process.stat(path).st_ino: path for path in paths}
    return {path: disk.read(path) for path in by_inode.values()}


# What stands in one unit


@dataclass(frozen=True, slots=True)
class Unit:
    """Some bytes of a file that may be lost together, and the text in them."""

    start: int
    end: int
    text: bytes
    is_frame: bool = False


def units(disk: Disk, path: str) -> list[Unit]:
    """The lines of a log, the frames of a cold file, or all of a payload."""
    content = disk.read(path)
    if path.endswith(".zst"):
        return [Unit(start, end, text, is_frame=True) for start, end, text in frames_of(content)]
    if "/base/" in path:
        # What the other session wrote behind it after the fork is of no session now.
        return list(_lines(content[: _shared_length(disk)], has_doubt=False))
    if path.endswith(".jsonl"):
        return list(_lines(content, has_doubt=True))
    return [Unit(0, len(content), path.rpartition("/")[2].encode())]


def _shared_length(disk: Disk) -> int:
    header = json.loads(disk.read(str(log_of(ROOT, "fork"))).split(b"\n")[0])
    length: int = header["base"]["levels"][0][2]
    return length


def _lines(content: bytes, *, has_doubt: bool) -> Iterator[Unit]:
    """Each line; a group in the last batch, which a crash may have torn, is lost as a whole."""
    lines = content.splitlines(keepends=True)
    last = json.loads(lines[-1])
    batch = last.get("b", last["n"])
    start = 0
    for line in lines:
        record = json.loads(line)
        is_in_doubt = has_doubt and record["n"] >= batch and "tx" in record
        group = [other for other in lines if json.loads(other).get("tx") == record["tx"]] if is_in_doubt else [line]
        yield Unit(start, start + len(line), b"".join(group))
        start += len(line)


# What the store says


@dataclass(frozen=True, slots=True)
class Facts:
    """What was said in each session, in order, and its summary and meta."""

    said: dict[str, list[str]]
    noted: dict[str, list[str]]


def facts(sessions: nacre.Sessions) -> Facts:
    """What is in every session, without what stands in for a lost payload."""
    said = {key: [str(stored.message.content) for stored in sessions.transcript(key)] for key in KEYS}
    noted = {key: [sessions.get_summary(key), str(sessions.get_meta(key).get("note", ""))] for key in KEYS}
    return Facts({key: [text for text in texts if text != LOST] for key, texts in said.items()}, noted)


def lost(before: Facts, now: Facts) -> set[str]:
    """What is no longer in one of the sessions; nothing that was not there may be, and the order is the same."""
    gone: set[str] = set()
    for key in KEYS:
        left = iter(before.said[key])
        assert all(text in left for text in now.said[key] if text not in AFTERWARDS), f"{key} has {now.said[key]}"
        gone |= set(before.said[key]) - set(now.said[key])
        gone |= set(before.noted[key]) - set(now.noted[key])
    return gone


def is_in(text: str, unit: Unit) -> bool:
    return text.encode() in unit.text or hashlib.sha256(text.encode()).hexdigest().encode() in unit.text


def is_reported(sessions: nacre.Sessions, disk: Disk) -> bool:
    """Whether a loss can still be noticed: by verify, or in quarantine."""
    return not sessions.verify().ok or bool(_quarantined(disk))


def _quarantined(disk: Disk) -> list[str]:
    try:
        return names(disk, "quarantine")
    except FileNotFoundError:
        return []


def go_on(sessions: nacre.Sessions) -> None:
    """Write to what may be damaged, and compact it; the archived session stays as it is."""
    for key in set(KEYS) - {"archived"}:
        for text in AFTERWARDS:
            sessions.add_message(key, "user", text)
        _compact(sessions, key)
