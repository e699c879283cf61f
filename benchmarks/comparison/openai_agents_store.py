"""OpenAI Agents SDK: SQLiteSession on a file, and NacreSession."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, ClassVar

from agents import SQLiteSession

import nacre
from nacre.integrations.openai_agents import NacreSession


class OpenAIAgents:
    """One SQLiteSession per session, all in one database."""

    not_applicable: ClassVar[dict[str, str]] = {"idempotent-retry": "its append takes no id for a retry"}

    def __init__(self, path: Path) -> None:
        self._path = path
        self._open: dict[str, Any] = {}
        self._loop = asyncio.new_event_loop()

    def _session(self, session: str) -> Any:
        if session not in self._open:
            self._open[session] = self._opened(session)
        return self._open[session]

    def _opened(self, session: str) -> Any:
        return SQLiteSession(session, self._path / "agents.sqlite")

    def append(self, session: str, text: str, id: str) -> None:  # noqa: ARG002 - it takes none
        self._loop.run_until_complete(self._session(session).add_items([{"role": "user", "content": text}]))

    def read(self, session: str) -> list[str]:
        items = self._loop.run_until_complete(self._session(session).get_items())
        return [item["content"] for item in items]

    def close(self) -> None:
        for one in self._open.values():
            one.close()
        self._loop.close()


class Nacre(OpenAIAgents):
    """The same calls, with the adapter's sessions."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._sessions = nacre.open(path)

    def _opened(self, session: str) -> Any:
        return NacreSession(session, self._sessions)

    def close(self) -> None:
        self._sessions.close()
        self._loop.close()
