"""IRC for tests: people with a plain client, a server that says what the test wants, and the bot."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio

from nacre.channels.channel import InboundMessage
from nacre.channels.irc import Config, Irc, Pace
from nacre.channels.irc_lines import Line, parse
from tests.channels.servers import HASTY, PATIENT

QUICK = Pace(every=0.0)


class Person:
    """Somebody with a plain client."""

    def __init__(self, nick: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.nick, self._reader, self._writer = nick, reader, writer

    def write(self, line: str | bytes) -> None:
        self._writer.write((line.encode() if isinstance(line, str) else line) + b"\r\n")

    def say(self, target: str, text: str) -> None:
        self.write(f"PRIVMSG {target} :{text}")

    async def line(self, *commands: str) -> Line:
        """The next line with one of these commands."""
        with anyio.fail_after(PATIENT):
            while True:
                line = parse(await self._reader.readuntil(b"\n"))
                if line is not None and line.command == "PING":
                    self.write(f"PONG :{line.param(-1)}")
                if line is not None and line.command in commands:
                    return line

    async def hears(self, count: int = 1) -> list[str]:
        return [(await self.line("PRIVMSG")).param(-1) for _ in range(count)]

    async def meets(self, nick: str) -> None:
        """Wait until somebody is on the server."""
        with anyio.fail_after(PATIENT):
            while True:
                self.write(f"ISON {nick}")
                if (await self.line("303")).param(-1).strip():
                    return

    async def misses(self, nick: str) -> None:
        """Wait until somebody has left the server."""
        with anyio.fail_after(PATIENT):
            there = nick
            while there:
                self.write(f"ISON {nick}")
                there = (await self.line("303")).param(-1).strip()


@asynccontextmanager
async def person(nick: str, port: int, *channels: str) -> AsyncIterator[Person]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    made = Person(nick, reader, writer)
    made.write(f"NICK {nick}\r\nUSER {nick} 0 * :{nick}")
    await made.line("376", "422")
    for channel in channels:
        made.write(f"JOIN {channel}")
        await made.line("366")
    try:
        yield made
    finally:
        writer.close()


def bot(port: int, room: Path, nick: str, **more: Any) -> Irc:
    pace, named = more.pop("pace", QUICK), more.pop("named", ())
    retry = more.pop("retry", HASTY)
    config = Config(host="127.0.0.1", port=port, tls=more.pop("tls", False), nick=nick, **more)
    return Irc(config, state=room / "irc", pace=pace, retry=retry, named=named)


def to_nick(nick: str) -> InboundMessage:
    return InboundMessage(channel="irc", chat=nick, sender=nick, id="", text="")


# ---- a server that says what the test wants

Talk = Callable[[Person], Awaitable[None]]


@asynccontextmanager
async def saying(talk: Talk, *, silent: bool = False) -> AsyncIterator[int]:
    """A server that says something to each client, and then answers pings until it goes, or nothing."""

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            client = Person("server", reader, writer)
            await talk(client)
            while not silent:
                await client.line("PING")
            await reader.read()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()


async def welcome(client: Person, offered: str = "", features: str = "") -> None:
    """Let a client in, with what it may ask for and what else there is."""
    await client.line("CAP")
    client.write(f"CAP * LS * :{offered}\r\nCAP * LS :draft/more=1")
    line = await client.line("CAP")
    if line.param(0) == "REQ":
        client.write(f"CAP * ACK :{line.param(1)}")
        await client.line("CAP")
    client.write(f"001 nacre :hello\r\n005 nacre CASEMAPPING=rfc1459 CHANTYPES=# {features} :ok\r\n422 nacre :no motd")
