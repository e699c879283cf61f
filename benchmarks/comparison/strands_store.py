"""Strands Agents: FileSessionManager as a repository, one file per message, and NacreSessionRepository."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

from strands.session.file_session_manager import FileSessionManager
from strands.types.session import Session, SessionAgent, SessionMessage, SessionType

import nacre
from nacre.integrations.strands import NacreSessionRepository

AGENT = "agent"


class Strands:
    """A manager per session; messages are numbered here, in the process: the repository gives no number."""

    not_applicable: ClassVar[dict[str, str]] = {"idempotent-retry": "its append takes no id for a retry"}

    def __init__(self, path: Path) -> None:
        self._path = path
        self._open: dict[str, Any] = {}
        self._next: dict[str, int] = {}

    def _manager(self, session: str) -> Any:
        if session not in self._open:
            manager: Any = self._opened(session)
            if manager.read_agent(session, AGENT) is None:
                manager.create_agent(session, SessionAgent(agent_id=AGENT, state={}, conversation_manager_state={}))
            stored = manager.list_messages(session, AGENT)
            self._next[session] = stored[-1].message_id + 1 if stored else 0
            self._open[session] = manager
        return self._open[session]

    def _opened(self, session: str) -> Any:
        return FileSessionManager(session_id=session, storage_dir=str(self._path))

    def append(self, session: str, text: str, id: str) -> None:  # noqa: ARG002 - it takes none
        manager = self._manager(session)
        said: Any = {"role": "user", "content": [{"text": text}]}
        manager.create_message(session, AGENT, SessionMessage.from_message(said, self._next[session]))
        self._next[session] += 1

    def read(self, session: str) -> list[str]:
        stored = self._manager(session).list_messages(session, AGENT)
        return [one.to_message()["content"][0]["text"] for one in stored]

    def close(self) -> None:
        self._open.clear()


class Nacre(Strands):
    """The same calls, with the adapter's repository."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._sessions = nacre.open(path)

    def _opened(self, session: str) -> Any:
        repository: Any = NacreSessionRepository(self._sessions)
        if repository.read_session(session) is None:
            repository.create_session(Session(session_id=session, session_type=SessionType.AGENT))
        return repository

    def close(self) -> None:
        super().close()
        self._sessions.close()
