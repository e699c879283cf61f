"""Each call of a store is one step, whatever another process does before any of its reads and writes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from llama_index.core.base.llms.types import ChatMessage
from llama_index.core.storage.chat_store.base_db import MessageStatus

import nacre
from nacre.integrations.llama_index import NacreAsyncChatStore, NacreChatStore
from tests.interleaving import MEDDLES, assert_one_step

OURS = ChatMessage("ours")


def texts(found: Any) -> Any:
    if isinstance(found, list):
        return [one.content for one in found]
    return found.content if isinstance(found, ChatMessage) else found


async def begin(store: NacreAsyncChatStore, key: str, word: str) -> None:
    await store.add_messages(key, [ChatMessage(f"{word} {number}") for number in range(4)])
    await store.archive_oldest_messages(key, 1)


def prepare(sessions: nacre.Sessions, key: str, word: str) -> None:
    asyncio.run(begin(NacreAsyncChatStore(sessions), key, word))


def look(sessions: nacre.Sessions, key: str) -> Any:
    return texts(asyncio.run(NacreAsyncChatStore(sessions).get_messages(key, MessageStatus.ARCHIVED)))


CALLS: dict[str, Callable[[NacreChatStore, str], Any]] = {
    "set_messages": lambda store, key: store.set_messages(key, [OURS]),
    "get_messages": lambda store, key: store.get_messages(key),
    "add_message": lambda store, key: store.add_message(key, OURS),
    "delete_messages": lambda store, key: store.delete_messages(key),
    "delete_message": lambda store, key: store.delete_message(key, 0),
    "delete_last_message": lambda store, key: store.delete_last_message(key),
}
AWAITED: dict[str, Callable[[NacreAsyncChatStore, str], Coroutine[Any, Any, Any]]] = {
    "get_messages": lambda store, key: store.get_messages(key, None),
    "get_messages that are archived": lambda store, key: store.get_messages(key, MessageStatus.ARCHIVED),
    "count_messages": lambda store, key: store.count_messages(key, None),
    "add_message": lambda store, key: store.add_message(key, OURS, MessageStatus.ARCHIVED),
    "set_messages": lambda store, key: store.set_messages(key, [OURS]),
    "delete_message": lambda store, key: store.delete_message(key, 0),
    "delete_messages": lambda store, key: store.delete_messages(key),
    "delete_oldest_messages": lambda store, key: store.delete_oldest_messages(key, 1),
    "archive_oldest_messages": lambda store, key: store.archive_oldest_messages(key, 1),
}


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("meddle", MEDDLES)
def test_a_call_is_one_step(root: Path, meddle: str, name: str) -> None:
    def call(sessions: nacre.Sessions, key: str) -> Any:
        return texts(CALLS[name](NacreChatStore(sessions), key))

    assert_one_step(root, meddle, prepare=prepare, call=call, look=look)


@pytest.mark.parametrize("name", AWAITED)
@pytest.mark.parametrize("meddle", MEDDLES)
def test_a_call_that_is_awaited_is_one_step(root: Path, meddle: str, name: str) -> None:
    def call(sessions: nacre.Sessions, key: str) -> Any:
        return texts(asyncio.run(AWAITED[name](NacreAsyncChatStore(sessions), key)))

    assert_one_step(root, meddle, prepare=prepare, call=call, look=look)
