"""Microsoft Agent Framework: FileHistoryProvider, JSON lines."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from agent_framework import FileHistoryProvider, Message


class AgentFramework:
    """The provider as it is by default; a message has the id of the write."""

    def __init__(self, path: Path) -> None:
        self._provider: Any = FileHistoryProvider(path)
        self._loop = asyncio.new_event_loop()

    def append(self, session: str, text: str, id: str) -> None:
        message = Message(role="user", contents=[text], message_id=id)
        self._loop.run_until_complete(self._provider.save_messages(session, [message]))

    def read(self, session: str) -> list[str]:
        return [message.text for message in self._loop.run_until_complete(self._provider.get_messages(session))]

    def close(self) -> None:
        self._loop.close()
