"""Records of a session that repeat what a message of it says: titles, copies for an undo, what frameworks keep."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from nacre.codec import data_of
from nacre.history.message_text import text_of
from nacre.records import Record, Records
from nacre.storage.holes import COPIES, FILE_COPY

_ALIKE = 16
"""A text has another one in it if that is at least so long; shorter ones are everywhere."""


def copies_of(view: Records, record: Record) -> list[int]:
    """The numbers of the records that repeat a message: its first words as a title, and what has a text of it.

    A text of at least 16 characters that the message has anywhere, in the arguments of a call too, is looked for in
    the copies of files, and in what frameworks keep besides messages; there also one that is all of a text, however
    short, or the beginning of one. What somebody wrote in words of their own, as a summary, is not found.
    """
    if record.m is None:
        return []
    line = text_of(record.m).strip().partition("\n")[0]
    message = msgspec.to_builtins(record.m)
    said = [message.get(name) for name in ("content", "reasoning", "tool_calls", "media")]
    long = {text for text in _texts(said) if len(text) >= _ALIKE}
    whole = {*_texts(message.get("content"))} - {""}

    def is_repeated(text: str) -> bool:
        return text in whole or any(one in text for one in long) or any(_is_beginning(text, one) for one in long)

    found = []
    for other in view.all():
        if other.t == "meta":
            fields = other.meta or {}
            title = fields.get("title")
            kept = [fields.get(name) for name in COPIES["meta"] if name != "title"]
            is_title = isinstance(title, str) and title and line and _is_beginning(title, line)
            if is_title or any(map(is_repeated, _texts(kept))):
                found.append(other.n)
        elif other.t in COPIES and (long or whole):
            data = data_of(other if other.blobs is None else view.whole(other))
            texts = _texts([data.get(name) for name in COPIES[other.t]] if isinstance(data, dict) else [])
            is_file = other.t == FILE_COPY
            if any(any(one in text for one in long) if is_file else is_repeated(text) for text in texts):
                found.append(other.n)
    return found


def _is_beginning(title: str, line: str) -> bool:
    """Tell whether a title is a line, or the beginning of it and a mark that it was cut."""
    title, line = " ".join(title.split()), " ".join(line.split())
    return title == line or (title.endswith("…") and line.startswith(title[:-1].rstrip()))


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
    elif isinstance(value, bytes):
        yield value.decode(errors="ignore")
    elif isinstance(value, dict):
        for inner in value.values():
            yield from _texts(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _texts(inner)
