"""Sessions of nanobot: lines of which the first is metadata, and all others are messages."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from datetime import datetime
from hashlib import sha256
from typing import Any

from nacre.legacy.documents import Bad, Legacy, key_from, lines_of, meta_from, parsed, said_of
from nacre.legacy.messages import moment

_PRIVATE = ("metadata", "provider_state")


def read_nanobot(data: bytes, name: str, *, changed: datetime | None) -> Legacy | None:
    """Read the lines of one session; None if the first one that is JSON is not nanobot's metadata."""
    about: Mapping[str, Any] | None = None
    said, bad = [], []
    for start, line in lines_of(data):
        value = parsed(line)
        kind = value.get("_type") if isinstance(value, dict) else None
        if kind == "metadata":
            # There is one; of several the last one counts.
            about = value
        elif isinstance(value, dict) and about is None:
            return None
        elif kind not in _PRIVATE:
            found, wrong = said_of(_spelled(value), line, start)
            said += found
            bad += wrong
    if about is None:
        return None
    return _legacy(about, data, name, changed, (tuple(said), tuple(bad)))


def _legacy(
    about: Mapping[str, Any], data: bytes, name: str, changed: datetime | None, found: tuple[Any, tuple[Bad, ...]]
) -> Legacy:
    said, bad = found
    rest = about.get("metadata")
    meta = dict(rest) if isinstance(rest, dict) else {}
    last = meta.pop("_last_summary", None)
    text = last.get("text") if isinstance(last, dict) else None
    summary = text if isinstance(text, str) else ""
    title = meta.pop("title", None)
    shown = {"title": title} if isinstance(title, str) and title else {}
    archived = about.get("last_archived", about.get("last_consolidated"))
    return Legacy(
        key=key_from(about.get("key"), _decoded(name)),
        said=said,
        # What no summary stands for stays live: it was only copied into notes that stay behind.
        dropped=min(archived, len(said)) if summary and type(archived) is int and archived > 0 else 0,
        summary=summary,
        created=_local(about.get("created_at")),
        updated=_local(about.get("updated_at")),
        changed=changed,
        meta=meta_from({**shown, **({"nanobot": meta} if meta else {})}),
        bad=bad,
        sha256=sha256(data).hexdigest(),
    )


def _spelled(value: Any) -> Any:
    """A message with its time as other agents spell it."""
    if not isinstance(value, dict) or "timestamp" not in value or "created_at" in value:
        return value
    time = _local(value["timestamp"])
    if time is None:
        return value
    return {**{field: item for field, item in value.items() if field != "timestamp"}, "created_at": time.isoformat()}


def _local(value: Any) -> datetime | None:
    """A time that was written without its zone, which was that of the computer."""
    try:
        return moment(datetime.fromisoformat(value).astimezone().isoformat()) if isinstance(value, str) else None
    except (ValueError, OverflowError, OSError):
        return None


def _decoded(name: str) -> str:
    """The key that a file's name tells: since 2026 it is that in base64, before it was the key itself, sanitised."""
    try:
        key = base64.b64decode(name + "=" * (-len(name) % 4), altchars=b"-_", validate=True).decode()
    except (binascii.Error, ValueError):
        return name
    is_made_so = base64.urlsafe_b64encode(key.encode()).decode().rstrip("=") == name
    return key if is_made_so and ":" in key and key.isprintable() else name
