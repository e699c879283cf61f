"""Records of a session that repeat what a message of it says: titles, and copies of files for an undo."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from nacre.history.message_text import text_of
from nacre.records import Record, Records
from nacre.storage.holes import FILE_COPY

_ALIKE = 16
"""A file has a text of a message if that is at least so long; shorter ones are everywhere."""


def copies_of(view: Records, record: Record) -> list[int]:
    """The numbers of the records that repeat a message: its first words as a title, and files with a text of it.

    A text of at least 16 characters that the message has anywhere, in the arguments of a call too, is looked for in
    the copies of files. What somebody wrote in words of their own, as a summary, is not found.
    """
    if record.m is None:
        return []
    line = text_of(record.m).strip().partition("\n")[0]
    message = msgspec.to_builtins(record.m)
    said = [message.get(name) for name in ("content", "reasoning", "tool_calls", "media")]
    texts = {text for text in _texts(said) if len(text) >= _ALIKE}
    found = []
    for other in view.all():
        if other.t == "meta":
            title = (other.meta or {}).get("title")
            if isinstance(title, str) and title and line and _is_beginning(title, line):
                found.append(other.n)
        elif other.t == FILE_COPY and texts:
            data = (other if other.blobs is None else view.whole(other)).data
            before = data.get("before") if isinstance(data, dict) else None
            if isinstance(before, str) and any(text in before for text in texts):
                found.append(other.n)
    return found


def _is_beginning(title: str, line: str) -> bool:
    """Tell whether a title is a line, or the beginning of it and a mark that it was cut."""
    title, line = " ".join(title.split()), " ".join(line.split())
    return title == line or (title.endswith("…") and line.startswith(title[:-1]))


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
        # The arguments of a call are JSON text.
        if value.startswith(("{", "[")):
            try:
                inner = msgspec.json.decode(value)
            except (msgspec.DecodeError, RecursionError):
                return
            yield from _texts(inner)
    elif isinstance(value, dict):
        for inner in value.values():
            yield from _texts(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _texts(inner)
