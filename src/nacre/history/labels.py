"""What people put on a session to find and keep it, in its meta: tags, and a pin."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

MOST_TAGS = 20
_LONGEST = 40


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
    return list(dict.fromkeys(tag for one in text.split(",") if (tag := one.strip()[:_LONGEST].strip())))
