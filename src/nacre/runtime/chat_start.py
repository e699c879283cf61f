"""How a chat begins, in a terminal or an editor: its key, its folder and its title."""

from __future__ import annotations

import uuid
from datetime import datetime
from typing import Any

from nacre.history.message_text import first_text
from nacre.sessions import Sessions

_CHAT = "chat-"
_MAX_TITLE = 48


def new_key() -> str:
    """A key for a new session, for people to read."""
    return f"{_CHAT}{datetime.now().astimezone():%Y%m%d-%H%M}-{uuid.uuid4().hex[:8]}"


def opening_meta(sessions: Sessions, key: str, *, cwd: str, text: str) -> dict[str, Any]:
    """The meta that is stored with the next message of a chat: its folder and its title, unless it has them.

    The title is made of the first message of the session, which is an earlier one than `text` if there is any. A
    session of a channel that is resumed in a terminal stays without a folder, so that -c never continues it.
    """
    now = sessions.snapshot(key, last=0)
    is_chat = not now.n or key.startswith(_CHAT)
    meta = {"cwd": cwd} if cwd and is_chat and not now.meta.get("cwd") else {}
    if not now.meta.get("title"):
        title = title_of(sessions.read(key, first_text) or text)
        meta |= {"title": title} if title else {}
    return meta


def title_of(words: str) -> str:
    """A title for a session that starts with these words."""
    line = " ".join(words.split())
    if len(line) <= _MAX_TITLE:
        return line
    cut = line[:_MAX_TITLE].rpartition(" ")[0] or line[:_MAX_TITLE]
    return f"{cut}…"
