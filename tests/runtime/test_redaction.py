"""Erasing a message with what the agent made of it, also if that was cut short."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest

import nacre
from nacre.channels.channel import InboundMessage
from nacre.memory.agent_memory import Memory
from nacre.messages import Redaction
from nacre.runtime.gateway.inbox import Inbox
from nacre.runtime.redaction import finish_redactions, redact
from tests.erased import traces

SECRET = "the key is under the third flower pot"  # noqa: S105 - said by somebody


def begin(root: Path) -> int:
    """A message that memory learned from; gives its number."""
    with nacre.open(root) as sessions:
        sessions.add_message("k", "user", SECRET)
        line = Memory(sessions, root / "home").remember(f"The user says that {SECRET}.", key="k")
        assert line.source is not None
        return line.source.n


def test_a_fact_that_was_learned_from_it_goes_and_others_stay(tmp_path: Path) -> None:
    n = begin(tmp_path)
    with nacre.open(tmp_path) as sessions:
        memory = Memory(sessions, tmp_path / "home")
        memory.remember("The user's cat is called Tom.", key="other")
        done = redact(sessions, memory, "k", n)
        assert (done.facts, done.are_copies_gone) == (1, True)
        assert [line.text for line in memory.lines_from("other")] == ["The user's cat is called Tom."]
    assert traces(SECRET, tmp_path) == []


def test_memorys_part_is_done_by_the_next_start_of_an_agent(tmp_path: Path) -> None:
    n = begin(tmp_path)

    def die(_: Redaction) -> None:
        raise KeyboardInterrupt

    with nacre.open(tmp_path) as sessions, pytest.raises(KeyboardInterrupt):
        sessions.redact("k", n, erase_copies=die)
    with nacre.open(tmp_path) as sessions:
        assert traces(SECRET, tmp_path) != []
        finish_redactions(sessions, Memory(sessions, tmp_path / "home"))
        assert traces(SECRET, tmp_path) == []
        assert list((tmp_path / "redacting").iterdir()) == []


def test_the_gateways_copy_of_an_answered_message_goes(tmp_path: Path) -> None:
    arrived = InboundMessage(channel="irc", chat="c", sender="s", text=SECRET, id="1")

    async def answer(inbox: Inbox) -> None:
        inbox.read()
        await inbox.add(arrived)
        closed = inbox.done(arrived)
        assert closed is not None
        await closed

    with nacre.open(tmp_path) as sessions:
        anyio.run(answer, Inbox(sessions))
        n = sessions.add_message("k", "user", SECRET)
        assert len(traces(SECRET, tmp_path)) == 2
        done = redact(sessions, None, "k", n)
        assert (done.facts, done.are_copies_gone) == (0, True)
        assert traces(SECRET, tmp_path) == []
