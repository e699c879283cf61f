"""Each call of a repository or a storage is one step, whatever another process does before its reads and writes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from strands.types.exceptions import SessionException
from strands.types.session import Session, SessionAgent, SessionMessage, SessionType

import nacre
from nacre.integrations.strands import NacreSessionRepository, NacreStorage
from tests.interleaving import MEDDLES, assert_one_step

AT = "2026-01-02T03:04:05+00:00"


class Graph:
    """As much of a graph as a repository asks for."""

    def __init__(self, state: str) -> None:
        self.id = "g"
        self.state = state

    def serialize_state(self) -> dict[str, Any]:
        return {"state": self.state}


def graph(state: str) -> Any:
    return Graph(state)


def agent(name: str, state: str = "") -> SessionAgent:
    return SessionAgent(name, {"state": state}, {"__name__": "x", "removed_message_count": 0})


def said(text: str) -> Any:
    return {"role": "user", "content": [{"text": text}]}


def message(text: str, id: int, **more: Any) -> SessionMessage:
    return SessionMessage(said(text), id, created_at=AT, **more)


def redacted(text: str, id: int) -> SessionMessage:
    return SessionMessage(said(text), id, redact_message=said(text), created_at=AT)


def begin(repository: NacreSessionRepository, key: str, word: str) -> None:
    repository.create_session(Session(session_id=key, session_type=SessionType.AGENT))
    repository.create_agent(key, agent("a", word))
    for number in range(2):
        repository.create_message(key, "a", SessionMessage(said(f"{word} {number}"), number))
    repository.create_multi_agent(key, graph(word))


def prepare(sessions: nacre.Sessions, key: str, word: str) -> None:
    begin(NacreSessionRepository(sessions), key, word)


def short(found: Any) -> Any:
    match found:
        case list():
            return [short(one) for one in found]
        case Session():
            return "a session"
        case SessionAgent():
            return found.state
        case SessionMessage():
            return found.to_message()
        case _:
            return found


def look(sessions: nacre.Sessions, key: str) -> Any:
    repository = NacreSessionRepository(sessions)
    found = [short(repository.read_agent(key, name)) for name in ("a", "b")]
    return [*found, repository.read_multi_agent(key, "g")]


CALLS: dict[str, Callable[[NacreSessionRepository, str], Any]] = {
    "create_session": lambda it, key: it.create_session(Session(session_id=key, session_type=SessionType.AGENT)),
    "read_session": lambda it, key: it.read_session(key),
    "delete_session": lambda it, key: it.delete_session(key),
    "create_agent": lambda it, key: it.create_agent(key, agent("b", "ours")),
    "read_agent": lambda it, key: it.read_agent(key, "a"),
    "update_agent": lambda it, key: it.update_agent(key, agent("a", "ours")),
    "create_message": lambda it, key: it.create_message(key, "a", message("ours", 2)),
    "create_message of another agent": lambda it, key: it.create_message(key, "b", message("ours", 0)),
    "read_message": lambda it, key: it.read_message(key, "a", 0),
    "update_message": lambda it, key: it.update_message(key, "a", message("ours", 1)),
    "update_message that redacts": lambda it, key: it.update_message(key, "a", redacted("ours", 1)),
    "list_messages": lambda it, key: it.list_messages(key, "a"),
    "create_multi_agent": lambda it, key: it.create_multi_agent(key, graph("ours")),
    "read_multi_agent": lambda it, key: it.read_multi_agent(key, "g"),
    "update_multi_agent": lambda it, key: it.update_multi_agent(key, graph("ours")),
}


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("meddle", MEDDLES)
def test_a_call_of_the_repository_is_one_step(root: Path, meddle: str, name: str) -> None:
    def call(sessions: nacre.Sessions, key: str) -> Any:
        return short(CALLS[name](NacreSessionRepository(sessions), key))

    assert_one_step(root, meddle, prepare=prepare, call=call, look=look, errors=(SessionException,))


# ---- the storage


def path(key: str, name: str = "snapshot_latest.json") -> str:
    return f"session/{key}/scopes/agent/a/snapshots/{name}"


def snapshot(*texts: str) -> bytes:
    messages = [{**said(text), "tracking_id": f"t{number}"} for number, text in enumerate(texts)]
    return json.dumps({"schema": "1", "data": {"messages": messages}}, ensure_ascii=False).encode()


def prepare_snapshot(sessions: nacre.Sessions, key: str, word: str) -> None:
    asyncio.run(NacreStorage(sessions).write(path(key), snapshot(f"{word} 1", f"{word} 2")))


STORAGE: dict[str, Callable[[NacreStorage, str], Coroutine[Any, Any, Any]]] = {
    "write": lambda it, key: it.write(path(key), snapshot("old 1", "old 2", "ours")),
    "write that drops the end": lambda it, key: it.write(path(key), snapshot("old 1")),
    "write that replaces": lambda it, key: it.write(path(key), snapshot("old 1", "ours")),
    "write of another": lambda it, key: it.write(path(key, "1.json"), snapshot("old 1")),
    "write of bytes": lambda it, key: it.write(path(key), b"\xff"),
    "read": lambda it, key: it.read(path(key)),
    "delete": lambda it, key: it.delete(path(key)),
}


@pytest.mark.parametrize("name", STORAGE)
@pytest.mark.parametrize("meddle", MEDDLES)
def test_a_call_of_the_storage_is_one_step(root: Path, meddle: str, name: str) -> None:
    def call(sessions: nacre.Sessions, key: str) -> Any:
        return asyncio.run(STORAGE[name](NacreStorage(sessions), key))

    def look_at_snapshots(sessions: nacre.Sessions, key: str) -> Any:
        return [asyncio.run(NacreStorage(sessions).read(path(key, one))) for one in ("snapshot_latest.json", "1.json")]

    assert_one_step(root, meddle, prepare=prepare_snapshot, call=call, look=look_at_snapshots)


@pytest.mark.parametrize("meddle", MEDDLES)
def test_a_list_of_the_storage_is_one_step(root: Path, meddle: str) -> None:
    def call(sessions: nacre.Sessions, key: str) -> Any:
        return path(key) in asyncio.run(NacreStorage(sessions).list())

    assert_one_step(root, meddle, prepare=prepare_snapshot, call=call, look=lambda *_: None)
