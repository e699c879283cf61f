"""Microsoft Agent Framework: FileHistoryProvider, JSON lines, and NacreHistoryProvider."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from agent_framework import FileHistoryProvider, Message

import nacre
from nacre.integrations.agent_framework import NacreHistoryProvider


class AgentFramework:
    """The provider as it is by default; a message has the id of the write."""

    def __init__(self, path: Path) -> None:
        self._provider: Any = self._opened(path)
        self._loop = asyncio.new_event_loop()

    def _opened(self, path: Path) -> Any:
        return FileHistoryProvider(path)

    def append(self, session: str, text: str, id: str) -> None:
        message = Message(role="user", contents=[text], message_id=id)
        self._loop.run_until_complete(self._provider.save_messages(session, [message]))

    def read(self, session: str) -> list[str]:
        return [message.text for message in self._loop.run_until_complete(self._provider.get_messages(session))]

    def close(self) -> None:
        self._loop.close()


class Nacre(AgentFramework):
    """The same calls, with the adapter's provider."""

    def _opened(self, path: Path) -> Any:
        self._sessions = nacre.open(path)
        return NacreHistoryProvider(self._sessions)

    def close(self) -> None:
        self._sessions.close()
        super().close()
