"""What the test of interleaving finds, and what it lets pass."""

from __future__ import annotations

from pathlib import Path

import pytest

import nacre
from nacre.integrations.access import change, read_active
from nacre.records import Pop
from tests.interleaving import MEDDLES, assert_one_step


def prepare(sessions: nacre.Sessions, key: str, word: str) -> None:
    sessions.add_messages(key, [{"role": "user", "content": f"{word} {number}"} for number in range(2)])


def pop(sessions: nacre.Sessions, key: str) -> object:
    def take() -> object:
        now = read_active(sessions, key, last=1)
        is_done = now.messages and sessions.update(key, [Pop()], expect=now.version)
        return now.messages[0].content if is_done else None

    return change(sessions, key, take)


def pop_by_number(sessions: nacre.Sessions, key: str) -> object:
    def take() -> object:
        now = read_active(sessions, key, last=1)
        is_done = now.messages and sessions.update(key, [Pop()], expect=now.expect)
        return now.messages[0].content if is_done else None

    return change(sessions, key, take)


def pop_without_a_retry(sessions: nacre.Sessions, key: str) -> object:
    now = read_active(sessions, key, last=1)
    return now.messages and sessions.update(key, [Pop()], expect=now.version)


@pytest.mark.parametrize("meddle", MEDDLES)
def test_what_is_one_step_passes(root: Path, meddle: str) -> None:
    assert_one_step(root, meddle, prepare=prepare, call=pop, look=lambda *_: None)


def test_a_number_without_a_generation_is_found(root: Path) -> None:
    with pytest.raises(AssertionError, match="old 1"):
        assert_one_step(root, "archive and begin anew", prepare=prepare, call=pop_by_number, look=lambda *_: None)


def test_an_error_that_is_not_documented_is_found(root: Path) -> None:
    with pytest.raises(nacre.Conflict):
        assert_one_step(root, "write", prepare=prepare, call=pop_without_a_retry, look=lambda *_: None)
