"""Typing indicators: shown while a turn runs, whatever the channel makes of them."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import anyio

from nacre.channels.channel import InboundMessage
from nacre.runtime.gateway.delivery import TypingIndicators


class Telling:
    """A channel that notes when it shows that an answer is being written."""

    name = "line"
    is_exact = True
    is_up = True

    def __init__(self, *, broken: bool = False) -> None:
        self.seen: list[str] = []
        self._broken = broken

    async def show_typing(self, to: InboundMessage) -> None:
        self.seen.append(f"{to.chat} on")
        if self._broken:
            raise ValueError("a bug of the channel")
        try:
            await anyio.sleep_forever()
        finally:
            self.seen.append(f"{to.chat} off")

    async def run(self, accept: Any) -> None: ...
    async def send(self, to: InboundMessage, text: str, *, id: str) -> None: ...
    async def close(self) -> None: ...


def words(chat: str) -> InboundMessage:
    return InboundMessage(channel="line", chat=chat, sender="ann", id="1", text="?")


def shown(channel: Telling, *, is_known: bool = True) -> list[str]:
    async def run() -> None:
        channels: Mapping[str, Any] = {"line": channel} if is_known else {}
        typing = TypingIndicators(channels)
        async with anyio.create_task_group() as tasks:
            with typing.show(tasks, words("a")):
                await anyio.wait_all_tasks_blocked()
                with typing.show(tasks, words("a")), typing.show(tasks, words("b")):
                    await anyio.wait_all_tasks_blocked()
                await anyio.wait_all_tasks_blocked()
                channel.seen.append("still")

    anyio.run(run)
    return channel.seen


def test_it_is_shown_once_per_chat_until_the_last_turn_there_is_over() -> None:
    assert shown(Telling()) == ["a on", "b on", "b off", "still", "a off"]


def test_a_channel_that_fails_at_it_is_left_alone() -> None:
    assert shown(Telling(broken=True)) == ["a on", "b on", "still"]


def test_a_channel_that_cannot_show_it_shows_nothing() -> None:
    assert shown(Telling(), is_known=False) == ["still"]


def test_nothing_is_shown_without_somebody_to_run_it() -> None:
    channel = Telling()
    with TypingIndicators({"line": channel}).show(None, words("a")):
        pass
    assert channel.seen == []


def test_it_ends_with_a_turn_that_fails() -> None:
    channel = Telling()

    async def run() -> None:
        async with anyio.create_task_group() as tasks:
            with suppress(ValueError), TypingIndicators({"line": channel}).show(tasks, words("a")):
                await anyio.wait_all_tasks_blocked()
                int("not a number")

    anyio.run(run)
    assert channel.seen == ["a on", "a off"]
