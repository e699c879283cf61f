"""Each call of a provider is one step, whatever another process does before any of its reads and writes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from agent_framework import Message

import nacre
from nacre.integrations.agent_framework import NacreHistoryProvider
from tests.interleaving import MEDDLES, assert_one_step


def turn(word: str) -> list[Message]:
    return [Message("user", [f"{word} question"]), Message("assistant", [f"{word} answer"])]


def prepare(sessions: nacre.Sessions, key: str, word: str) -> None:
    asyncio.run(NacreHistoryProvider(sessions).save_messages(key, turn(word)))


def look(sessions: nacre.Sessions, key: str) -> list[str]:
    return [one.text for one in asyncio.run(NacreHistoryProvider(sessions).get_messages(key))]


def save(sessions: nacre.Sessions, key: str, *messages: Message) -> None:
    asyncio.run(NacreHistoryProvider(sessions).save_messages(key, messages))


CALLS: dict[str, Callable[[nacre.Sessions, str], Any]] = {
    "get_messages": look,
    "save_messages": lambda sessions, key: save(sessions, key, *turn("next")),
    "save_messages of a replay": lambda sessions, key: save(sessions, key, *turn("old"), *turn("next")),
    "save_messages that are stored": lambda sessions, key: save(sessions, key, *turn("old")),
}


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("meddle", MEDDLES)
def test_a_call_is_one_step(root: Path, meddle: str, name: str) -> None:
    assert_one_step(root, meddle, prepare=prepare, call=CALLS[name], look=look)
