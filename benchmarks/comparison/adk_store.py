"""Google ADK: SqliteSessionService, and NacreSessionService.

Each append reads the session first, and is not repeated if refused.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, ClassVar

from google.adk.events import Event
from google.adk.sessions.sqlite_session_service import SqliteSessionService
from google.genai import types

import nacre
from nacre.integrations.adk import NacreSessionService


class Adk:
    """One user of one app; an event per message."""

    not_applicable: ClassVar[dict[str, str]] = {
        "torn-tail": "SQLite with a rollback journal overwrites pages: a crash leaves no torn tail in its file",
    }

    def __init__(self, path: Path) -> None:
        self._service: Any = self._opened(path)
        self._loop = asyncio.new_event_loop()

    def _opened(self, path: Path) -> Any:
        return SqliteSessionService(str(path / "adk.sqlite"))

    async def _session(self, session: str) -> Any:
        name = {"app_name": "app", "user_id": "user", "session_id": session}
        return await self._service.get_session(**name) or await self._service.create_session(**name)

    async def _append(self, session: str, text: str, id: str) -> None:
        content = types.Content(role="user", parts=[types.Part(text=text)])
        event = Event(author="user", content=content, id=id, invocation_id=id)
        await self._service.append_event(await self._session(session), event)

    def append(self, session: str, text: str, id: str) -> None:
        self._loop.run_until_complete(self._append(session, text, id))

    def read(self, session: str) -> list[str]:
        events = self._loop.run_until_complete(self._session(session)).events
        return [event.content.parts[0].text for event in events]

    def close(self) -> None:
        self._loop.close()


class Nacre(Adk):
    """The same calls, with the adapter's service."""

    not_applicable: ClassVar[dict[str, str]] = {}

    def _opened(self, path: Path) -> Any:
        self._sessions = nacre.open(path)
        return NacreSessionService(self._sessions)

    def close(self) -> None:
        self._sessions.close()
        super().close()
