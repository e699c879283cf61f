"""After a restart a sender is answered by somebody who knows what was said before; nothing is read ahead of that."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import pytest

from nacre.channels.channel import Accept, InboundMessage, key_of
from nacre.config import Settings
from nacre.runtime import run_agent
from nacre.runtime.daemon import serving
from nacre.storage.system import System
from tests.ollama_server import OllamaServer, said
from tests.ollama_server import serving as ollama
from tests.paths import log_of
from tests.runtime.test_assembly import MODELS, answer

Opened = list[str]


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> Opened:
    """The files that were opened, by name."""
    names: Opened = []
    real = System.open

    def noted(self: System, path: str, *args: Any) -> int:
        names.append(Path(path).name)
        return real(self, path, *args)

    monkeypatch.setattr(System, "open", noted)
    return names


def words(text: str, sender: str = "ann") -> InboundMessage:
    return InboundMessage(channel="telegram", chat=sender, sender=sender, id=text, text=text)


class Post:
    """A channel over which one sender at a time gets an answer."""

    name = "telegram"
    is_exact = True
    is_up = True

    def __init__(self) -> None:
        self.answered = anyio.Event()

    async def run(self, accept: Accept) -> None:
        """Nobody writes here of their own accord."""

    async def send(self, to: InboundMessage, text: str, *, id: str) -> None:
        self.answered.set()

    async def close(self) -> None:
        """There is nothing to close."""


async def daemon(server: OllamaServer, opened: Opened, *said: InboundMessage) -> Opened:
    """Run a daemon that is told something; returns which files it had opened before."""
    # Memory would go through turns that it does not know yet, beside all this.
    settings = Settings({"ollama": {"host": server.host}, "memory": {"enabled": False}}, {})
    async with run_agent(settings) as app, serving(app) as service, anyio.create_task_group() as tasks:
        ready = anyio.Event()
        tasks.start_soon(lambda: service.run(ready=ready.set))
        await ready.wait()
        gateway = service.gateway
        assert gateway is not None
        post = gateway._channels["telegram"] = Post()
        await anyio.wait_all_tasks_blocked()
        before = [*opened]
        for arrived in said:
            post.answered = anyio.Event()
            await gateway.accept(arrived)
            await post.answered.wait()
        await anyio.wait_all_tasks_blocked()
        tasks.cancel_scope.cancel()
    return before


def test_the_first_prompt_after_a_restart_holds_the_old_turns_which_nobody_read_at_the_start(
    home: Path, opened: Opened
) -> None:
    async def run() -> None:
        async with ollama(OllamaServer([answer(said("hello"))], MODELS)) as server:
            await daemon(server, opened, words("I am Ann"), words("I am Bob", "bob"))
            # The first time that a store is opened again, its logs are told from an earlier agent's.
            await daemon(server, opened)
            opened.clear()
            before = await daemon(server, opened, words("who am I?"))
            ann, bob = (log_of(home / "nacre_home", key_of(words("", sender))).name for sender in ("ann", "bob"))
            assert not {ann, bob} & set(before)
            assert ann in opened
            assert bob not in opened
            asked = [one["content"] for one in server.chats[-1]["messages"] if one["role"] != "system"]
            assert asked == ["I am Ann", "hello", "who am I?"]

    anyio.run(run)
