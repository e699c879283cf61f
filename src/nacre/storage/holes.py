"""What stays of a record whose content was erased: its line without the content, and how the content is recognised."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import msgspec

from nacre.records import Record, State, View
from nacre.storage import blobs
from nacre.storage.format import START, escaped, fields, number, salvage, sealed_fields, unseal
from nacre.storage.protocol import FindCopies

_ALIKE = 16
"""So many bytes of an erased content are taken for a part of it."""
FILE_COPY = "x.file"
"""The kind of a record that keeps a file as it was before the agent changed it."""
COPIES = {
    FILE_COPY: ("before",),
    "meta": ("title", "claude_agent"),
    "x.claude_agent": ("whole", "json"),
    "x.langgraph": ("set", "w"),
    "x.llama_index": ("message",),
}
"""The kinds of records that may repeat what a message says, and which of their fields do; the others stay."""
_LINKS = ("role", "tool_calls", "tool_call_id", "model", "created", "extra")
_NO_CHECKSUM = "00000000"


class Erased(NamedTuple):
    """Which records of a generation lose their content.

    `n` is the one that was named, `also` those that repeat it; `last` is the last record that was stored with it, as
    idempotency keys name it.
    """

    n: int
    also: tuple[int, ...] = ()
    last: int = 0

    @property
    def numbers(self) -> frozenset[int]:
        return frozenset((self.n, *self.also))


class Plan(NamedTuple):
    """What erasing a record means in its generation.

    `payloads` are the large payloads that nothing else in it needs, `kept` counts those that something needs;
    `summaries` are the numbers of the summaries that cover it.
    """

    erased: Erased
    payloads: tuple[str, ...]
    kept: int
    summaries: tuple[int, ...]


def plan(view: View, record: Record, find_copies: FindCopies) -> Plan:
    """What there is to erase in a session besides a record of it, whose content may be erased already."""
    n = record.n
    also = tuple(find_copies(view, record if record.blobs is None else view.whole(record)))
    first, count = record.tx or (n, 1)
    ours: set[str] = set()
    others: set[str] = set()
    summaries: list[int] = []
    for one in view.all():
        if one.blobs is not None:
            (ours if one.n == n or one.n in also else others).update(blobs.names(one))
        if one.t == "sum" and one.n > n and one.gone is None and (one.upto is None or one.upto >= n):
            summaries.append(one.n)
    return Plan(Erased(n, also, first + count - 1), tuple(sorted(ours - others)), len(ours & others), tuple(summaries))


def has_content(record: Record) -> bool:
    """Tell whether a record is of a kind whose content can be erased."""
    return record.t in ("msg", "sum", "use", "tool") or record.t.startswith("x.")


def hole(raw: bytes, erased: Erased) -> bytes | None:
    """The line of a record without its content; None if there is nothing to erase in it.

    Numbers, links, times, state, roles, and the ids and names of tool calls stay, so that what comes after it still
    holds. `gone` marks it, and makes it as long as it was, if it is not shorter than the mark itself.
    """
    record, found = unseal(raw), fields(raw)
    assert record is not None  # noqa: S101 - the lines of a log are records
    left = {name: value for name, value in found.items() if name not in ("gone", "st", "br")}
    if record.t == "ids":
        # The fingerprint of a content could be compared with that of a guess.
        left["ids"] = {id: (n, "" if n == erased.last else was) for id, (n, was) in (record.ids or {}).items()}
    elif record.n not in erased.numbers:
        return None
    elif record.t == "meta":
        left["meta"] = {name: value for name, value in (record.meta or {}).items() if name not in COPIES["meta"]}
    else:
        for name in ("lossy", "blobs", "text", "data"):
            left.pop(name, None)
        if "m" in left:
            left["m"] = _links(found["m"])
        if record.t in COPIES and isinstance(record.data, dict):
            kept = {name: value for name, value in record.data.items() if name not in COPIES[record.t]}
            # Without its content it must not look like a file that was not there before: an undo would remove that.
            left["data"] = {**kept, "is_too_large": True} if record.t == FILE_COPY else kept
        if record.restored_from is not None:
            left["restored_from"] = (*record.restored_from[:2], _NO_CHECKSUM)
    if _plain(left) == _plain({name: value for name, value in found.items() if name not in ("gone", "st", "br")}):
        return None
    state = record.st
    room = len(raw) + 1 - len(_line(left, "", state))
    return _line(left, "." * max(room, 0), state)[:-1]


def unpadded(line: bytes) -> bytes:
    """A hole without what makes it as long as the record was."""
    record = unseal(line)
    assert record is not None  # noqa: S101 - `hole` made it
    return _line({name: value for name, value in fields(line).items() if name != "gone"}, "", record.st)[:-1]


def _line(left: dict[str, object], gone: str, state: State) -> bytes:
    return sealed_fields({**left, "gone": gone}, st=state)


def _plain(value: object) -> Any:
    return msgspec.json.decode(msgspec.json.encode(value))


def _links(message: Any) -> dict[str, Any]:
    """What is left of a message: who said it, and what it has to do with others."""
    left = {name: message[name] for name in _LINKS if name in message}
    if "tool_calls" in left:
        calls = left["tool_calls"]
        left["tool_calls"] = [{name: call[name] for name in ("id", "name") if name in call} for call in calls]
    extra = left.pop("extra", {})
    links = {"answers": extra["answers"]} if isinstance(extra.get("answers"), list) else {}
    origin = extra.get("origin")
    if isinstance(origin, dict) and "id" in origin:
        links["origin"] = {"id": origin["id"]}
    return {**left, "extra": links} if links else left


class Trace:
    """How bytes are recognised that hold an erased record, or a part of it, though they are no whole record.

    They begin as its line does, or have a run of its content as it was written: any 31 bytes of it, or all of a
    shorter text.
    """

    def __init__(self, erased: Erased, lines: Iterable[bytes]) -> None:
        self._numbers = erased.numbers
        self._marks = [b"%b%d," % (START, n) for n in erased.numbers]
        self._runs: set[bytes] = set()
        for line in lines:
            found = fields(line)
            message = found.get("m")
            said = message if isinstance(message, dict) else {name: found.get(name) for name in ("text", "data")}
            for name, value in said.items():
                if isinstance(value, str) and name in ("content", "text") and len(value) < _ALIKE:
                    # With its name, since some words are everywhere.
                    self._marks.append(b'"%b":%b' % (name.encode(), _written(value)))
                elif name not in _LINKS or name == "tool_calls":
                    self._add(value)

    def _add(self, value: object) -> None:
        if isinstance(value, str):
            text = _written(value)[1:-1]
            ends = (*range(_ALIKE, len(text), _ALIKE), len(text)) if len(text) >= _ALIKE else ()
            self._runs.update(text[end - _ALIKE : end] for end in ends)
        elif isinstance(value, dict | list):
            for inner in value.values() if isinstance(value, dict) else value:
                self._add(inner)

    def is_in(self, data: bytes) -> bool:
        """Tell whether some bytes hold it."""
        if any(mark in data for mark in self._marks):
            return True
        runs = self._runs
        return bool(runs) and any(data[at : at + _ALIKE] in runs for at in range(len(data) - _ALIKE + 1))

    def blank(self, data: bytes) -> bytes:
        """The same bytes with spaces for what holds it; whole records of other numbers among them stay as they are."""
        lines: list[bytes] = []
        for raw in data.split(b"\n"):
            parts: list[bytes] = []
            at = 0
            for start, end in [*salvage(raw), (len(raw), len(raw))]:
                rest, whole = raw[at:start], raw[start:end]
                parts.append(b" " * len(rest) if self.is_in(rest) else rest)
                parts.append(b" " * len(whole) if whole and number(whole) in self._numbers else whole)
                at = end
            lines.append(b"".join(parts))
        return b"\n".join(lines)


def _written(text: str) -> bytes:
    return escaped(msgspec.json.encode(text))
