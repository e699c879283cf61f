"""Each call of a session is one step, whatever another process does before any of its reads and writes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from agents.memory import session as sdk_session

import nacre
from nacre.integrations.openai_agents import NacreSession
from tests.interleaving import MEDDLES, assert_one_step


def items(*texts: str) -> list[Any]:
    return [{"role": "user", "content": text} for text in texts]


def prepare(sessions: nacre.Sessions, key: str, word: str) -> None:
    asyncio.run(NacreSession(key, sessions).add_items(items(f"{word} 1", f"{word} 2")))


def prepare_foreign(sessions: nacre.Sessions, key: str, word: str) -> None:
    sessions.add_message(key, "user", f"{word} 1")
    sessions.add_message(key, "assistant", f"{word} 2")


def look(sessions: nacre.Sessions, key: str) -> Any:
    return asyncio.run(NacreSession(key, sessions).get_items())


CALLS: dict[str, Callable[[NacreSession], Any]] = {
    "get_items": lambda session: session.get_items(),
    "get_items(1)": lambda session: session.get_items(1),
    "add_items": lambda session: session.add_items(items("ours")),
    "pop_item": lambda session: session.pop_item(),
    "clear_session": lambda session: session.clear_session(),
    "_atomic_replace_items": lambda session: session._atomic_replace_items(items("ours")),
}


@pytest.mark.parametrize("begin", [prepare, prepare_foreign])
@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("meddle", MEDDLES)
def test_a_call_is_one_step(root: Path, meddle: str, name: str, begin: Any) -> None:
    def call(sessions: nacre.Sessions, key: str) -> Any:
        return asyncio.run(CALLS[name](NacreSession(key, sessions)))

    assert_one_step(root, meddle, prepare=begin, call=call, look=look)


@pytest.mark.skipif(not hasattr(sdk_session, "_CompactionSnapshot"), reason="since 0.23 of the SDK")
@pytest.mark.parametrize("prunes", [False, True])
@pytest.mark.parametrize("meddle", MEDDLES)
def test_a_compaction_replaces_what_it_has_read_or_nothing(root: Path, meddle: str, *, prunes: bool) -> None:
    snapshots: dict[str, Any] = {}

    def begin(sessions: nacre.Sessions, key: str, word: str) -> None:
        prepare(sessions, key, word)
        if word == "old":
            prune = (lambda item: item["content"] == "old 1") if prunes else None
            made = NacreSession(key, sessions)._get_compaction_snapshot(1, prune_prefix=prune)
            snapshots[key] = asyncio.run(made)

    def call(_: nacre.Sessions, key: str) -> Any:
        return asyncio.run(snapshots[key].replace_suffix(0, items("in short")))

    assert_one_step(root, meddle, prepare=begin, call=call, look=look)


@pytest.mark.skipif(not hasattr(sdk_session, "_CompactionSnapshot"), reason="since 0.23 of the SDK")
def test_a_compaction_does_not_mind_a_note() -> None:
    with nacre.open(":memory:") as sessions:
        prepare(sessions, "s", "old")
        snapshot: Any = asyncio.run(NacreSession("s", sessions)._get_compaction_snapshot(1))
        sessions.append("s", "x.note", {})
        assert asyncio.run(snapshot.replace_suffix(0, items("in short")))
        assert look(sessions, "s") == items("old 1", "in short")
