"""Format 1 written down a second time, from its description alone: sealing, checking and hand-made logs."""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

START = b'{"v":1,"n":'
SEAL = len(b',"crc":"00000000"}')
TIME = "2026-11-15T18:00:00.000Z"
UID = "0193319f2c007000800000000000abcd"


def seal(fields: Mapping[str, Any]) -> bytes:
    """One line, with its checksum and its newline."""
    body = json.dumps(fields, separators=(",", ":"), ensure_ascii=False).encode()[:-1]
    return b'%b,"crc":"%08x"}\n' % (body, zlib.crc32(body))


def is_whole(line: bytes) -> bool:
    """Whether these bytes, newline included, are one intact record."""
    body, checksum = line[: -SEAL - 1], line[-SEAL - 1 :]
    return line.startswith(START) and checksum == b',"crc":"%08x"}\n' % zlib.crc32(body)


def fields_of(line: bytes) -> dict[str, Any]:
    """What a line says, without its checksum."""
    fields: dict[str, Any] = json.loads(line)
    del fields["crc"]
    return fields


def header(key: str, *, uid: str = UID, version: int = 1) -> bytes:
    return seal({"v": version, "n": 1, "t": "open", "ts": TIME, "sid": key, "uid": uid, "st": [0, 0, 0, 0, 0, 0]})


def message(n: int, text: str, *, before: int, ordinal: int, first: bool = False) -> bytes:
    """A message in a log that holds nothing but messages."""
    batch = {"b": 1} if first else {}
    place = {"p": before, "m": {"role": "user", "content": text}, "st": [n, ordinal, ordinal, 0, 0, n]}
    return seal({"v": 1, "n": n, **batch, "t": "msg", "ts": TIME, **place})


def conversation(key: str, texts: Sequence[str], *, uid: str = UID) -> list[bytes]:
    """A whole log: header, then one message per text, each a batch of its own but the first."""
    messages = [
        message(n, text, before=0 if n == 2 else n - 1, ordinal=n - 1, first=n == 2) for n, text in enumerate(texts, 2)
    ]
    return [header(key, uid=uid), *messages]


def resealed(line: bytes, **changes: Any) -> bytes:
    """The same line with other values in it, and a checksum that fits."""
    return seal(fields_of(line) | changes)


DELETED = [*conversation("k", ["a"]), seal({"v": 1, "n": 3, "t": "del", "ts": TIME, "st": [2, 1, 1, 0, 0, 2]})]
"""The log of session k, whose deletion was written down and did not go on."""
