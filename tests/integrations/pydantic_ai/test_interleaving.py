"""Each call of a store is one step, whatever another process does before any of its reads and writes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pydantic_ai.conversation import Conversation
from pydantic_ai.conversation_store import ConversationConflict, ConversationRecord
from pydantic_ai.messages import ModelRequest, UserPromptPart

import nacre
from nacre.integrations.pydantic_ai import NacreConversationStore
from tests.interleaving import MEDDLES, assert_one_step

AT = datetime(2026, 1, 2, tzinfo=UTC)


def asked(text: str) -> ModelRequest:
    return ModelRequest(parts=[UserPromptPart(text, timestamp=AT)], timestamp=AT)


def texts(messages: Any) -> list[Any]:
    return [part.content for message in messages for part in message.parts]


def look(sessions: nacre.Sessions, key: str) -> Any:
    return texts(asyncio.run(NacreConversationStore(sessions).read_messages(key)))


CALLS: dict[str, Callable[[NacreConversationStore, ConversationRecord, Conversation], Awaitable[Any]]] = {
    "load": lambda store, record, _: store.load(record.conversation_id),
    "read_messages": lambda store, record, _: store.read_messages(record.conversation_id),
    "save": lambda store, _, conversation: store.save(conversation),
    "delete_record": lambda store, record, _: store.delete_record(
        record.conversation_id, expected_revision=record.revision
    ),
}


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("meddle", MEDDLES)
def test_a_call_is_one_step(root: Path, meddle: str, name: str) -> None:
    loaded: dict[str, tuple[ConversationRecord, Conversation]] = {}

    async def begin(store: NacreConversationStore, key: str, word: str) -> None:
        await store.save(Conversation(conversation_id=key, messages=[asked(f"{word} 1"), asked(f"{word} 2")]))
        record, conversation = await store.read_record(key), await store.load(key)
        assert record is not None
        assert conversation is not None
        conversation.messages.append(asked("ours"))
        loaded.setdefault(key, (record, conversation))

    def prepare(sessions: nacre.Sessions, key: str, word: str) -> None:
        asyncio.run(begin(NacreConversationStore(sessions), key, word))

    async def play(sessions: nacre.Sessions, key: str) -> Any:
        found = await CALLS[name](NacreConversationStore(sessions), *loaded[key])
        return texts(found.messages) if isinstance(found, Conversation) else None if name == "save" else found

    def call(sessions: nacre.Sessions, key: str) -> Any:
        return asyncio.run(play(sessions, key))

    assert_one_step(root, meddle, prepare=prepare, call=call, look=look, errors=(ConversationConflict,))
