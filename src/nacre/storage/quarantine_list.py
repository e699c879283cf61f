"""What of a directory of logs is in quarantine, by session: one folder is listed, and no log is opened."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence

import msgspec

from nacre.codec import EPOCH, parse_time
from nacre.errors import StoreError
from nacre.messages import QuarantineEntry, QuarantineRecord
from nacre.records import Record
from nacre.storage.file_names import key_of, stem
from nacre.storage.paths import SessionPaths
from nacre.storage.quarantine import EMPTIED, IN_PLACE, MISSING, ROTTEN, TORN, UNREADABLE, UNSURE, Aside, entries
from nacre.storage.system import System, is_from_system

_NAME = re.compile(r"([^.]+)\.([0-9a-f]{32})\.jsonl\Z")
_LONGEST_TEXT = 400
_REASONS = {
    TORN: "the end of a write that a crash cut short; it was never acknowledged",
    UNSURE: "damaged at the end of the log: torn by a crash or rotten, which cannot be told",
    ROTTEN: "damaged in the middle of the log",
    MISSING: "{detail}, and not a byte of what is missing is left",
    IN_PLACE: "damage that cannot be repaired: {detail}",
    EMPTIED: "the log was found empty (0 bytes); what was in it is gone",
    UNREADABLE: "a line of the quarantine file is damaged itself",
}


class Quarantine:
    """The quarantine files of a store; one that has not changed is not read again."""

    def __init__(self, system: System, root: str, key_in: Callable[[SessionPaths], str | None]) -> None:
        self._system = system
        self._root = root
        self._key_in = key_in
        self._known: dict[str, tuple[tuple[int, int, int], list[QuarantineEntry]]] = {}

    def entries(self, key: str | None) -> list[QuarantineEntry]:
        """All entries of a session, or of all, settled ones too, by session and number."""
        name = None if key is None else stem(key)
        found = [entry for place in self._places(name) for entry in self._of(place)]
        return sorted(found, key=lambda entry: (entry.key, entry.n, entry.generation))

    def _places(self, name: str | None) -> Iterator[SessionPaths]:
        try:
            files = self._system.listdir(f"{self._root}/quarantine")
        except FileNotFoundError:
            return
        except OSError as error:
            raise StoreError(f"the quarantine of {self._root} cannot be read: {error}") from error
        for file in files:
            found = _NAME.match(file)
            if found is not None and name in (None, found[1]):
                yield SessionPaths(self._root, "", found[1], found[2])

    def _of(self, place: SessionPaths) -> Sequence[QuarantineEntry]:
        path = place.quarantine(place.archived)
        try:
            found = self._system.stat(path)
            state = (found.st_ino, found.st_size, found.st_mtime_ns)
            if path not in self._known or self._known[path][0] != state:
                asides = entries(self._system, place, place.archived)
                key = next((aside.key for aside in asides if aside.key), "") or self._key_of(place)
                self._known[path] = (state, [_entry(aside, key) for aside in asides])
        except FileNotFoundError:
            # Erased meanwhile.
            return ()
        except OSError as error:
            if not is_from_system(error):
                raise
            # What one session has in quarantine must not hide what others have.
            self._known.pop(path, None)
            return [_unreadable(place, self._key_of(place), f"{path} cannot be read: {error}")]
        return self._known[path][1]

    def _key_of(self, place: SessionPaths) -> str:
        """The key of a session whose entries do not name it, as those of earlier versions."""
        return key_of(place.name) or self._key_in(place) or self._key_in(place._replace(archived="")) or place.name


def _unreadable(place: SessionPaths, key: str, reason: str) -> QuarantineEntry:
    """An entry for a quarantine file that cannot be read."""
    return QuarantineEntry(
        key=key, n=0, generation=place.archived, ts=EPOCH, kind=UNREADABLE, reason=reason, bytes=0, records=(), text=""
    )


def _entry(aside: Aside, key: str) -> QuarantineEntry:
    records = [
        QuarantineRecord(n=record.n, ts=parse_time(record.ts), kind=record.t, text=_text(record))
        for record, _ in aside.records()
    ]
    settled = "torn" if aside.kind == TORN else aside.settled
    reason = _REASONS.get(aside.kind, "{kind}").format(kind=aside.kind, detail=aside.detail)
    beginning = b"".join(aside.regions)[:_LONGEST_TEXT].decode(errors="replace")
    return QuarantineEntry(
        key=key,
        n=aside.n,
        generation=aside.uid,
        ts=parse_time(aside.ts),
        kind=aside.kind,
        reason=reason,
        bytes=aside.size,
        records=tuple(records),
        text=beginning,
        settled=settled,
    )


def _text(record: Record) -> str:
    """What a record says: its text, or its content as JSON."""
    if record.m is not None and isinstance(record.m.content, str):
        return record.m.content
    return record.text or msgspec.json.encode(record.m or record.meta or record.data).decode()
