"""A model that is somebody, and a channel that a test writes to, for agents in one process."""

from __future__ import annotations

import asyncio
import importlib.metadata
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import anyio
import pytest

from nacre.backoff import Backoff
from nacre.channels.channel import Accept, InboundMessage
from nacre.config import Settings
from nacre.errors import ConfigError
from nacre.runtime.agents import Agents
from nacre.runtime.daemon import GROUP
from nacre.runtime.workers import WorkerSetup
from tests.ollama_server import Answer, OllamaServer, done, said, serving

MODELS = {"gemma4:e4b": ["completion", "tools"]}
PATIENT = 20.0


class Voice(OllamaServer):
    """A model that says who it is and what it heard; what is `held` it thinks of until `opened` is set."""

    def __init__(self, name: str) -> None:
        super().__init__([], MODELS)
        self.name = name
        self.asked = asyncio.Event()
        self.opened = asyncio.Event()

    def answer(self, path: str, body: Mapping[str, Any]) -> Answer:
        if path != "/api/chat":
            return super().answer(path, body)
        heard = str(body["messages"][-1]["content"])
        self.asked.set()
        return Answer(chunks=(said(f"{self.name} heard {heard}"), done()), headers={"x-held": str("held" in heard)})

    async def _send(self, writer: asyncio.StreamWriter, answer: Answer) -> None:
        if answer.headers.get("x-held") != "True":
            await super()._send(writer, answer)
            return
        await super()._send(writer, Answer(chunks=(said(thinking="hm"),), end="hang"))
        await self.opened.wait()
        writer.write(b"".join(b"%x\r\n%b\r\n" % (len(chunk), chunk) for chunk in (*answer.chunks, b"")))
        await writer.drain()


class Wire:
    """A channel of any name; a test says words on it, and reads what was sent."""

    is_exact = True
    is_up = True

    def __init__(self, table: Mapping[str, Any], *, name: str, state: Path) -> None:
        self.name, self.table, self.state = name, table, state
        self.sent: list[str] = []
        self.is_closed = False
        self._change = anyio.Event()
        self._words: list[InboundMessage] = []
        self._count = 0

    async def run(self, accept: Accept) -> None:
        if self.table.get("refuses"):
            raise ConfigError("the server refuses the password")
        while True:
            while self._words:
                await accept(self._words[0])
                del self._words[0]
            self._change = anyio.Event()
            await self._change.wait()

    async def send(self, to: InboundMessage, text: str, *, id: str) -> None:
        self.sent.append(text)
        self._change.set()

    async def close(self) -> None:
        self.is_closed = True

    def say(self, text: str) -> None:
        self._count += 1
        self._words.append(
            InboundMessage(channel=self.name, chat="c", sender="ann", id=f"{text}{self._count}", text=text)
        )
        self._change.set()

    async def hears(self, count: int = 1) -> list[str]:
        with anyio.fail_after(PATIENT):
            while len(self.sent) < count:
                await self._change.wait()
                await anyio.lowlevel.checkpoint()
        return self.sent


class Point(NamedTuple):
    """An entry point that brings wires, and keeps the newest of each name."""

    wires: dict[str, Wire]

    def load(self) -> Any:
        def make(table: Mapping[str, Any], *, name: str, state: Path) -> Wire:
            self.wires[name] = Wire(table, name=name, state=state)
            return self.wires[name]

        return make


def wired(monkeypatch: pytest.MonkeyPatch) -> dict[str, Wire]:
    """The wires that are made from now on, by their names."""
    point = Point({})
    found = importlib.metadata.entry_points

    def entry_points(**wanted: str) -> Any:
        return [point] if wanted == {"group": GROUP, "name": "wire"} else found(**wanted)

    monkeypatch.setattr(importlib.metadata, "entry_points", entry_points)
    return point.wires


class House(NamedTuple):
    """Two agents, and their models."""

    agents: Agents
    main: Voice
    clerk: Voice
    wires: Mapping[str, Wire]

    def settings(self, **sections: Any) -> Settings:
        """The configuration: the clerk answers on the wire `office`, the main agent on `home`."""
        clerk = {"ollama": {"host": self.clerk.host}}
        usual = {
            "agents": {"clerk": clerk},
            "channels": {"home": {"kind": "wire"}, "office": {"kind": "wire", "agent": "clerk"}},
            "memory": {"enabled": False},
            "ollama": {"host": self.main.host},
        }
        return Settings({**usual, **sections}, {})


@asynccontextmanager
async def house(
    wires: Mapping[str, Wire],
    *,
    start: bool = True,
    grace: float = 8.0,
    workers: WorkerSetup | None = None,
    **sections: Any,
) -> AsyncIterator[House]:
    """Both agents, until the block ends; they end in order. What does not start is tried again often."""
    async with AsyncExitStack() as stack:
        main = await stack.enter_async_context(serving(Voice("main")))
        clerk = await stack.enter_async_context(serving(Voice("clerk")))
        agents = await stack.enter_async_context(Agents(grace=grace, backoff=Backoff(first=0.01), workers=workers))
        made = House(agents, main, clerk, wires)  # type: ignore[arg-type] # serving gives back what it is given
        if start:
            await agents.start(made.settings(**sections))
        yield made
        await agents.end()
