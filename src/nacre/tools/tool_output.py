"""What a model is shown of a tool's output: with a limit, and harmless to a terminal."""

from __future__ import annotations

import re

from nacre.agent.ports import Output

MAX_LENGTH = 16_000
_NEAR = 200
# What can drive a terminal or hide text; newline and tab are what they are, CRLF is a line's end.
_UNSAFE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff\U000e0000-\U000e007f]"
)
# CSI; OSC, DCS and the like up to their end; two-character escapes.
_SEQUENCE = re.compile(
    "(?:\x1b\\[|\x9b)[0-?]*[ -/]*[@-~]"
    "|(?:\x1b[\\]PX^_]|[\x9d\x90])[^\x07\x1b\x9c]*(?:\x07|\x1b\\\\|\x9c)"
    "|\x1b[ -/]*[0-Z\\\\^-~]"
)
_BYTE = 0xFF
_UNIT = 0xFFFF


def limit_output(text: str, *, limit: int = MAX_LENGTH, failed: bool = False) -> Output:
    """Give a text to the model: harmless, and if it is long its head and its tail with a note between them."""
    safe = harmless(text)
    if len(safe) <= limit:
        return Output(text=safe, failed=failed)
    return Output(text=cut(safe, limit), whole=safe, failed=failed)


def cut(text: str, limit: int) -> str:
    """The head and the tail of a text, and between them how many characters were left out."""
    # Each ends or begins at the end of a line if one is near.
    end = text.rfind("\n", limit // 2 - _NEAR, limit // 2)
    head = text[: end if end > 0 else limit // 2]
    start = len(text) - (limit - limit // 2)
    line = text.find("\n", start, start + _NEAR)
    tail = text[line + 1 if line >= 0 else start :]
    left_out = len(text) - len(head) - len(tail)
    return f"{head}\n[… {left_out:,} characters left out …]\n{tail}"


def harmless(text: str) -> str:
    """The text with every character that could drive a terminal or hide text shown as its number."""
    if text.isascii() and text.isprintable():
        return text
    return _UNSAFE.sub(_escape, text.replace("\r\n", "\n"))


def strip_terminal_codes(text: str) -> str:
    """What a program printed as a plain terminal would have it in the end: no colours, no lines written over."""
    lines = _SEQUENCE.sub("", text).replace("\r\n", "\n").split("\n")
    return "\n".join(line.rstrip("\r").rpartition("\r")[2] for line in lines)


def _escape(found: re.Match[str]) -> str:
    point = ord(found[0])
    if point <= _BYTE:
        return f"\\x{point:02x}"
    return f"\\u{point:04x}" if point <= _UNIT else f"\\U{point:08x}"
