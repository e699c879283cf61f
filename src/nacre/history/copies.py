"""Records of a session that repeat what a message of it says: titles, copies of files for an undo, graphs' values."""

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
    the copies of files and in the values of LangGraph; a shorter one is found there if it is all of a text. What
    somebody wrote in words of their own, as a summary, is not found.
    """
    if record.m is None:
        return []
    line = text_of(record.m).strip().partition("\n")[0]
    message = msgspec.to_builtins(record.m)
    said = [message.get(name) for name in ("content", "reasoning", "tool_calls", "media")]
    texts = {text for text in _texts(said) if len(text) >= _ALIKE}
    short = {text for text in _texts(message.get("content")) if 0 < len(text) < _ALIKE}
    found = []
    for other in view.all():
        if other.t == "meta":
            title = (other.meta or {}).get("title")
            if isinstance(title, str) and title and line and _is_beginning(title, line):
                found.append(other.n)
        elif other.t in COPIES and (texts or short):
            data = data_of(other if other.blobs is None else view.whole(other))
            kept = [data.get(name) for name in COPIES[other.t]] if isinstance(data, dict) else []
            whole = short if other.t != FILE_COPY else ()
            if any(one in whole or any(text in one for text in texts) for one in _texts(kept)):
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
    elif isinstance(value, bytes):
        yield value.decode(errors="ignore")
    elif isinstance(value, dict):
        for inner in value.values():
            yield from _texts(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _texts(inner)
