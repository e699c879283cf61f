"""What a list shows of a session: its labels, and who said what last. Reads its meta and its last message."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from nacre.errors import StoreError
from nacre.history import session_state
from nacre.history.message_text import text_of
from nacre.messages import ERASED_TEXT
from nacre.records import Records

MAX_TAGS = 20
_MAX_TAG = 40
_MAX_LINE = 160
# Labels and titles, who has the turn, and what rewriting a log leaves at its end: nobody said anything.
_ABOUT = frozenset(("meta", "mark", "ids", "turn"))


class Labels(NamedTuple):
    """The labels of one session."""

    pinned: bool = False
    tags: tuple[str, ...] = ()


def labels(meta: Mapping[str, Any]) -> Labels:
    """The labels in a session's meta; whatever is no tag is left out."""
    tags = meta.get("tags")
    named = tuple(tag for tag in tags if isinstance(tag, str)) if isinstance(tags, list) else ()
    return Labels(pinned=bool(meta.get("pinned")), tags=named)


def tags_in(text: str) -> list[str]:
    """The tags that a text names, with commas between them: each once, without blanks around it, and not too long."""
    return list(dict.fromkeys(tag for one in text.split(",") if (tag := one.strip()[:_MAX_TAG].strip())))


class Overview(NamedTuple):
    """A session in a list; the fields are those of SessionInfo."""

    title: str
    meta: dict[str, Any]
    tags: tuple[str, ...]
    pinned: bool
    cwd: str
    role: str = ""
    model: str = ""
    last: str = ""
    state: str = "idle"


def overview(view: Records) -> Overview:
    """Read what a list shows of a session; one whose last message cannot be read is damaged, and still listed."""
    meta = session_state.meta(view, view.state) if view.state.mp else {}
    pinned, tags = labels(meta)
    title, cwd = (text if isinstance(text, str) else "" for text in (meta.get("title"), meta.get("cwd")))
    found = Overview(title=title, meta=meta, tags=tags, pinned=pinned, cwd=cwd)
    try:
        record = next(session_state.newest(view, 1), None)
        last = (record if record.blobs is None else view.whole(record)).m if record is not None else None
    except (OSError, StoreError):
        return found._replace(state="damaged")
    if last is None:
        return found
    # The first line that says something, or the tools that are called.
    line = text_of(last).strip().partition("\n")[0].strip() or ", ".join(call.name for call in last.tool_calls)
    if record is not None and record.gone is not None:
        line = ERASED_TEXT
    state = "unanswered" if last.role == "user" else "idle"
    if last.tool_calls or last.role == "tool":
        state = "interrupted"
    role, model = last.kind[:_MAX_LINE], (last.model or "")[:_MAX_LINE]
    return found._replace(role=role, model=model, last=line[:_MAX_LINE], state=state)


def when_updated(view: Records, last: str) -> str:
    """When something was last said or done in a session; `last` is the time of its last record, whatever that is.

    To tag, pin, rename or repair a session does not make it the one that a person was last in.
    """
    try:
        return next((record.ts for record in view.back(view.n) if record.t not in _ABOUT), last)
    except (OSError, StoreError):
        return last
