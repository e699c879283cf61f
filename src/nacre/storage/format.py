"""A record as a line of bytes and back: sealed with a checksum, safe to print, found again in damage."""

from __future__ import annotations

import re
from binascii import hexlify
from zlib import crc32

import msgspec
from msgspec.structs import force_setattr

from nacre.errors import FormatTooNew, InvalidMessage
from nacre.records import FORMAT, MAX_LINE_BYTES, Envelope, Record, State

START = b'{"v":1,"n":'
_DISGUISED = b'{"\\u0076":1,"n":'
_ANY_VERSION = b'{"v":'
SUFFIX = 18
"""Length of the checksum at the end of a line."""
_SUFFIX_SHAPE = re.compile(rb',"crc":"[0-9a-f]{8}"\}')
_MAX_TRIES = 64
_MAX_RIGHTED = 4096

# Characters that drive a terminal when a log is printed: DEL, C1 controls, bidirectional overrides, line separators.
_UNSAFE = re.compile(
    rb"\x7f|\xc2[\x80-\x9f]|\xd8\x9c|\xe2\x80[\x8e\x8f\xa8-\xae]|\xe2\x81[\xa6-\xa9]",
)

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Record).decode
_decode_envelope = msgspec.json.Decoder(Envelope).decode
_decode_fields = msgspec.json.Decoder(dict[str, object]).decode


def seal(record: Record) -> bytes:
    """Return the line of a record, newline included.

    Raises InvalidMessage for a record that no reader could decode: its line would be damage, and so would be what
    is built on it. The bytes of a message were checked when they were made.
    """
    line = sealed(_encode(record))
    if record.t != "msg":
        try:
            _decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise InvalidMessage(f"a record of kind {record.t!r} cannot be stored: {error}") from error
    return line


def short_enough(line: bytes) -> bytes:
    """Return the line; raises InvalidMessage if it is longer than any reader takes."""
    if len(line) > MAX_LINE_BYTES:
        raise InvalidMessage(f"the maximum size of a record is {MAX_LINE_BYTES} bytes, this one has {len(line)}")
    return line


def sealed(text: bytes) -> bytes:
    """Close an object, whose last field is its state, with the checksum of its bytes.

    The state's last two numbers are written as fields of their own, and only where they are not 0: in sessions that
    went back, and in those whose turn was taken over.
    """
    if not text.isascii() or b"\x7f" in text:
        text = escaped(text)
    if text.endswith(b",0,0]}"):
        body = text[:-6] + b"]"
    else:
        state, branch, fence = text[:-2].rsplit(b",", 2)
        body = state + (b"]" if branch == b"0" else b'],"br":' + branch)
        body += b',"fence":' + fence if fence != b"0" else b""
    if body.find(START, 1) > 0:
        # A value that looks like a record must not be taken for one when the line around it rots.
        body = body[:1] + body[1:].replace(START, _DISGUISED)
    return body + b',"crc":"' + hexlify(crc32(body).to_bytes(4)) + b'"}\n'


def escaped(text: bytes) -> bytes:
    """Return JSON text with what could drive a terminal in the escaped spelling."""
    return _UNSAFE.sub(_escape, text)


def unseal(line: bytes) -> Record | None:
    """Return the record of a line without its newline; None if it is not what was written.

    Raises FormatTooNew if it is intact and of a later version.
    """
    if not is_intact(line):
        return None
    try:
        record: Record | None = _decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        record = _unknown(line)
    if record is None:
        return None
    if record.br is not None:
        force_setattr(record.st, "br", record.br)
    if record.fence is not None:
        force_setattr(record.st, "fence", record.fence)
    if record.v != FORMAT:
        raise FormatTooNew(f"record {record.n} has format {record.v}, this version of nacre knows format {FORMAT}")
    return record


def is_intact(line: bytes | bytearray) -> bool:
    """Tell whether a line's frame and checksum are right."""
    return line.startswith(_ANY_VERSION) and line[-SUFFIX:] == b',"crc":"%08x"}' % crc32(line[:-SUFFIX])


def number(line: bytes) -> int:
    """Return the number of a line's record without reading the rest; 0 if it is not intact."""
    return int(line[len(START) : line.index(b",", len(START))]) if is_intact(line) else 0


def fields(line: bytes) -> dict[str, object]:
    """Return all fields of an intact line but its checksum, also those this version does not know."""
    found = _decode_fields(line)
    del found["crc"]
    return found


def sealed_fields(found: dict[str, object], *, st: State) -> bytes:
    """Return the line of some fields, with another state."""
    others = {name: value for name, value in found.items() if name not in ("st", "br", "fence")}
    return sealed(_encode({**others, "st": st}))


def resealed(line: bytes, *, p: int | None, st: State) -> bytes:
    """Return a record's line with its link and state replaced, every other field as it was."""
    found = fields(line)
    if p is not None:
        found["p"] = p
    return sealed_fields(found, st=st)


def salvage(line: bytes) -> list[tuple[int, int]]:
    """Return where whole records lie inside a bad line, as (start, end) pairs.

    A torn record with another appended after it, or two records that lost the newline between them.
    """
    found: list[tuple[int, int]] = []
    tries = 0
    start = line.find(START)
    while start >= 0 and tries < _MAX_TRIES:
        end = -1
        for match in _SUFFIX_SHAPE.finditer(line, start):
            tries += 1
            if is_intact(line[start : match.end()]):
                end = match.end()
                break
            if tries >= _MAX_TRIES:
                break
        if end < 0:
            start = line.find(START, start + 1)
        else:
            found.append((start, end))
            start = line.find(START, end)
    return found


def righted(line: bytes) -> bytes:
    """Return the line that a single flipped bit made this one of; empty if it is not that, or too long to try."""
    for place in range(len(line) * 8 if len(line) <= _MAX_RIGHTED else 0):
        tried = bytearray(line)
        tried[place // 8] ^= 1 << place % 8
        if is_intact(tried):
            return bytes(tried)
    return b""


def _unknown(line: bytes) -> Record | None:
    """Read a record whose kind uses our field names in another way; it is kept and skipped."""
    try:
        envelope = _decode_envelope(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return None if envelope.t == "msg" else Record(**msgspec.structs.asdict(envelope))


def _escape(match: re.Match[bytes]) -> bytes:
    return b"\\u%04x" % ord(match.group().decode())
