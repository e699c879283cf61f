"""LlamaIndex: SimpleChatStore, persisted after every message, and NacreChatStore."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

from llama_index.core.llms import ChatMessage
from llama_index.core.storage.chat_store import SimpleChatStore

import nacre
from nacre.integrations.llama_index import NacreChatStore


class LlamaIndex:
    """One JSON file with all sessions."""

    not_applicable: ClassVar[dict[str, str]] = {"idempotent-retry": "its append takes no id for a retry"}

    def __init__(self, path: Path) -> None:
        self._file = str(path / "chat_store.json")
        self._store: Any = SimpleChatStore.from_persist_path(self._file)

    def append(self, session: str, text: str, id: str) -> None:  # noqa: ARG002 - it takes none
        self._store.add_message(session, ChatMessage(role="user", content=text))
        self._store.persist(self._file)

    def read(self, session: str) -> list[str]:
        return [message.content for message in self._store.get_messages(session)]

    def close(self) -> None:
        pass


class Nacre(LlamaIndex):
    """The same calls, with the adapter's store, which has nothing to persist."""

    def __init__(self, path: Path) -> None:
        self._sessions = nacre.open(path)
        self._store = NacreChatStore(self._sessions)

    def append(self, session: str, text: str, id: str) -> None:  # noqa: ARG002 - it takes none
        self._store.add_message(session, ChatMessage(role="user", content=text))

    def close(self) -> None:
        self._sessions.close()
