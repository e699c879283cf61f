"""One model as its server lists it."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

_NOT_FOR_CHAT = ("embed", "minilm", "bge-", "rerank", "whisper", "tts", "dall-e", "image", "moderation")


class ModelInfo(Struct, frozen=True, kw_only=True):
    """A model of a server: bytes on disk, context window in tokens, capabilities; None or () if not known."""

    name: str
    size: int | None = None
    context: int | None = None
    capabilities: tuple[str, ...] = ()

    @property
    def can_chat(self) -> bool:
        """Whether it answers messages; where the server does not say, its name decides."""
        if self.capabilities:
            return "completion" in self.capabilities or "tools" in self.capabilities
        name = self.name.lower()
        return not any(word in name for word in _NOT_FOR_CHAT)


def entries_of(listed: Any, key: str, *, name: str) -> list[dict[str, Any]]:
    """The entries of a server's list that have a name; none if it is no list."""
    entries = listed.get(key) if isinstance(listed, dict) else None
    found = entries if isinstance(entries, list) else []
    return [entry for entry in found if isinstance(entry, dict) and isinstance(entry.get(name), str) and entry[name]]
