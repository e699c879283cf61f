"""One connection to an IRC server: registered, kept alive, and written to at the pace that servers allow."""

from __future__ import annotations

import base64
import itertools
import logging
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Annotated, Literal

import anyio
from anyio.abc import ByteStream
from msgspec import Meta, Struct
from msgspec.structs import replace

from nacre.channels.channel import Absent, Lost
from nacre.channels.irc_lines import Incoming, Line, People, Whois, fold, outgoing, plain
from nacre.errors import ConfigError

logger = logging.getLogger(__name__)

_CAPABILITIES = frozenset({"account-tag", "message-tags", "server-time"})
_NOT_JOINED = frozenset({"403", "405", "471", "473", "474", "475", "476", "477"})
_NOT_SENT = frozenset({"401", "403", "404"})
_SASL_ERRORS = frozenset({"902", "904", "905", "906", "908"})
BOT_TAGS = frozenset({"bot", "draft/bot", "inspircd.org/bot"})
"""With one of these a server marks a message as one of a bot."""
REAL_NAME = "AI agent (nacre)"
"""Shows everybody that this is a program, and other agents of ours that it is one of them."""
_MAX_NICKS = 9
_CHUNK_BYTES = 400


class Config(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[channels.irc]`: where the server is, who the bot is there, and how people are recognised."""

    host: str
    port: Annotated[int, Meta(ge=0, le=65535)] = 0
    tls: bool = True
    ca_file: str = ""
    nick: str = "nacre"
    channels: tuple[Annotated[str, Meta(pattern=r"\S")], ...] = ()
    identify: Literal["nick", "account"] = "nick"
    login: str = ""
    password_file: str = ""


class Pace(Struct, frozen=True, kw_only=True):
    """How fast to write: some lines at once, then one in so many seconds; and how long a silence is a question.

    A nick that somebody else has is asked for again after `retake` seconds.
    """

    burst: int = 4
    every: float = 1.0
    quiet: float = 90.0
    answer: float = 60.0
    retake: float = 10.0
    sleep: Callable[[float], Awaitable[None]] = anyio.sleep


class IrcConnection:
    """A connection from its first line to its last."""

    def __init__(  # noqa: PLR0913 - each is one thing that it joins
        self,
        stream: ByteStream,
        config: Config,
        *,
        password: str,
        pace: Pace,
        people: People,
        hear: Callable[[Line], None],
    ) -> None:
        self.nick = config.nick
        self.mapping, self.kinds = "rfc1459", "#&"
        self.registered = anyio.Event()
        self._people, self._bot_mode = people, ""
        self._whois: dict[str, Whois] = {}
        self._stream, self._config, self._password, self._pace, self._hear = stream, config, password, pace, hear
        self._offered: set[str] = set()
        self._taken: set[str] = set()
        self._joined: set[str] = set()
        self._over = self._spoke = False
        self._due = 0.0
        self._renamed = 0
        self._fences: dict[str, anyio.Event] = {}
        self._tokens = itertools.count(1)
        self._refused: dict[str, str] = {}
        self._writing = anyio.Lock()
        self._turns: dict[str, anyio.Lock] = {}

    async def serve(self) -> None:
        """Register, and then hear the server until it is lost; raises Lost, or ConfigError if it will not have us."""
        try:
            await self._write("CAP LS 302")
            if self._password and not self._config.login:
                await self._write(f"PASS :{self._password}")
            await self._write(f"NICK {self.nick}", f"USER {self._config.nick} 0 * :{REAL_NAME}")
            incoming = Incoming()
            while True:
                data = await _or_lost(self._stream.receive())
                self._spoke = True
                for line in incoming.feed(data):
                    await self._handle(line)
        finally:
            self._over = True
            for fence in self._fences.values():
                fence.set()

    async def beat(self) -> None:
        """See that the server is there, the nick is the wanted one and the channels are joined; end what is dead."""
        with anyio.move_on_after(self._pace.answer):
            await self.registered.wait()
        while self.registered.is_set():
            self._spoke = False
            # The owner of our nick may be what is left of the connection before this one, and soon gone.
            wanted, pause = self._config.nick, self._pace.quiet
            if self.nick != wanted and self.nick in {_numbered(wanted, n) for n in range(1, _MAX_NICKS + 1)}:
                pause = min(pause, self._pace.retake)
            await anyio.sleep(pause)
            with anyio.move_on_after(self._pace.answer):
                await self._fence()
                if not self.is_me(wanted):
                    await self._write(f"NICK {wanted}")
                await self._join()
            if not self._spoke:
                break
        logger.info("the IRC server does not respond; disconnecting", extra={"host": self._config.host})
        await anyio.aclose_forcefully(self._stream)

    async def say(self, text: str, target: str, *, head: str = "", mark: str = "") -> None:
        """Say something to somebody; when it returns, the server has it. Raises Lost, or Absent if nobody is there.

        The first line begins with `head`, all others with `mark`.
        """
        name = self.fold(target)
        async with self._alone_with(name):
            self._refused.pop(name, None)
            for line in outgoing(text, target, self.nick, head=head, mark=mark):
                await self._turn()
                await self._write(line)
            await self._fence()
            if reason := self._refused.pop(name, ""):
                raise Absent(f"{target!r} on {self._config.host} cannot be written to: {reason}")

    async def show_typing(self, target: str, state: Literal["active", "done"]) -> None:
        """Show somebody whether an answer is being written, where the server passes that on. Raises Lost."""
        if "message-tags" in self._taken:
            await self._write(f"@+typing={state} TAGMSG {target}")

    async def look_up(self, nick: str) -> Whois | None:
        """What the server reports of somebody; None if there is nobody, or it reports nothing. Raises Lost."""
        name = self.fold(nick)
        async with self._alone_with(name):
            self._whois.pop(name, None)
            await self._turn()
            await self._write(f"WHOIS {nick}")
            await self._fence()
            return self._whois.pop(name, None)

    @asynccontextmanager
    async def _alone_with(self, name: str) -> AsyncIterator[None]:
        """One text at a time for each recipient, so that it is known which one a refusal is about."""
        lock = self._turns.setdefault(name, anyio.Lock())
        try:
            async with lock:
                yield
        finally:
            if not lock.locked():
                self._turns.pop(name, None)

    def is_me(self, nick: str) -> bool:
        return self.fold(nick) == self.fold(self.nick)

    def fold(self, name: str) -> str:
        """A nick or a channel as the server compares it."""
        return fold(name, self.mapping)

    # ---- the way in

    async def _handle(self, line: Line) -> None:
        match line.command:
            case "PRIVMSG":
                self._hear(line)
            case "PING":
                await self._write(f"PONG :{line.param(-1)}")
            case "PONG" if line.param(-1) in self._fences:
                self._fences[line.param(-1)].set()
            case "CAP":
                await self._negotiate(line)
            case "AUTHENTICATE":
                await self._authenticate()
            case "903":
                await self._write("CAP END")
            case "001":
                self.nick = line.param(0)
            case "005":
                features = dict(word.split("=", 1) for word in line.params[1:-1] if "=" in word)
                self.mapping = features.get("CASEMAPPING", self.mapping)
                self.kinds = features.get("CHANTYPES", self.kinds)
                self._bot_mode = features.get("BOT", self._bot_mode)
            case "376" | "422":
                await self._enter()
            case "NICK" | "JOIN" | "PART" | "KICK" | "QUIT":
                self._follow(line)
            case "311":
                # What is reported of somebody: user, host and real name, and then perhaps that it is a bot.
                mask = f"{line.param(2)}@{line.param(3)}"
                self._whois[self.fold(line.param(1))] = Whois(mask=mask, real_name=line.param(-1))
            case "335" if (name := self.fold(line.param(1))) in self._whois:
                self._whois[name] = replace(self._whois[name], is_bot=True)
            case "432" | "433" | "436" | "437":
                await self._rename(line)
            case "ERROR":
                reason = plain(line.param(-1))[:200]
                # Some servers have no better word for a wrong password.
                if not self.registered.is_set() and "password" in reason.lower():
                    raise ConfigError(f"{self._config.host} refuses the password: see channels.irc.password_file")
                raise Lost("closed the connection", said=reason)
            case _:
                self._note(line)

    async def _negotiate(self, line: Line) -> None:
        match line.param(1).upper(), line.param(2):
            case "LS", more:
                self._offered |= {word.partition("=")[0] for word in line.param(-1).split()}
                if more == "*":
                    return
                if self._config.login and "sasl" not in self._offered:
                    raise ConfigError(
                        f"{self._config.host} offers no SASL: remove channels.irc.login, or use another server"
                    )
                wanted = _CAPABILITIES & self._offered | ({"sasl"} if self._config.login else set())
                await self._write(f"CAP REQ :{' '.join(sorted(wanted))}" if wanted else "CAP END")
            case "ACK", _:
                self._taken |= set(line.param(-1).split())
                await self._write("AUTHENTICATE PLAIN" if "sasl" in self._taken else "CAP END")
            case "NAK", _:
                await self._write("CAP END")
            case _:
                pass

    async def _authenticate(self) -> None:
        login = self._config.login
        payload = base64.b64encode(f"{login}\0{login}\0{self._password}".encode()).decode()
        chunks = [payload[at : at + _CHUNK_BYTES] for at in range(0, len(payload), _CHUNK_BYTES)]
        # A last chunk that is full would leave the server waiting for another.
        more = ["+"] if len(chunks[-1]) == _CHUNK_BYTES else []
        await self._write(*(f"AUTHENTICATE {chunk}" for chunk in [*chunks, *more]))

    async def _enter(self) -> None:
        if self._config.identify == "account" and "account-tag" not in self._taken:
            raise ConfigError(f"{self._config.host} does not report accounts: set channels.irc.identify to 'nick'")
        self.registered.set()
        if self._bot_mode:
            await self._write(f"MODE {self.nick} +{self._bot_mode}")
        await self._join()

    async def _join(self) -> None:
        for channel in self._config.channels:
            if self.fold(channel.split()[0]) not in self._joined:
                await self._write(f"JOIN {channel}")

    # ---- what the server says

    def _follow(self, line: Line) -> None:
        channel, nick = self.fold(line.param(0)), self.fold(line.nick)
        match line.command:
            case "KICK" if self.is_me(line.param(1)):
                self._joined.discard(channel)
                self._people.lose_sight()
                logger.warning("kicked from an IRC channel", extra={"chat": plain(channel)})
            case "NICK" if self.is_me(line.nick):
                self.nick = line.param(0)
            case "JOIN" if self.is_me(line.nick):
                self._joined.add(channel)
            case "PART" if self.is_me(line.nick):
                self._joined.discard(channel)
                self._people.lose_sight()
            case "NICK":
                self._people.rename(nick, self.fold(line.param(0)), shown=line.param(0))
            case "PART" | "QUIT":
                # Who parted may still be on the server, but we no longer learn under which nick.
                self._people.leave(nick)
            case "KICK":
                self._people.leave(self.fold(line.param(1)))
            case _:
                pass

    async def _rename(self, line: Line) -> None:
        """Take another nick until the wanted one is free."""
        if self.registered.is_set():
            return
        wanted = self._config.nick
        if line.command == "432" and self.nick == wanted:
            raise ConfigError(
                f"{self._config.host} does not accept the nick {wanted!r}: choose another for channels.irc.nick"
            )
        self._renamed += 1
        if self._renamed > _MAX_NICKS:
            raise Lost(f"has other users with the nick {wanted!r} and all its variants")
        self.nick = _numbered(wanted, self._renamed)
        await self._write(f"NICK {self.nick}")

    def _note(self, line: Line) -> None:
        if line.command == "464" or line.command in _SASL_ERRORS:
            raise ConfigError(f"{self._config.host} refuses the password: see channels.irc.password_file")
        if line.command in _NOT_SENT:
            self._refused[self.fold(line.param(1))] = plain(line.param(-1))[:200]
        if line.command in _NOT_JOINED:
            logger.warning("an IRC channel cannot be joined", extra={"chat": plain(line.param(1))})

    # ---- the way out

    async def _write(self, *lines: str) -> None:
        # Nothing that came from elsewhere may end a line and begin another.
        data = "".join(re.sub(r"[\r\n\0]", " ", line) + "\r\n" for line in lines).encode()
        async with self._writing:
            await _or_lost(self._stream.send(data))

    async def _turn(self) -> None:
        """Wait until another line may be sent."""
        now = time.monotonic()
        self._due = max(self._due, now) + self._pace.every
        await self._pace.sleep(max(0.0, self._due - now - self._pace.burst * self._pace.every))

    async def _fence(self) -> None:
        """Wait until the server has read all that was written to it."""
        token = f"nacre-{next(self._tokens)}"
        fence = self._fences[token] = anyio.Event()
        try:
            await self._write(f"PING :{token}")
            with anyio.move_on_after(self._pace.answer):
                await fence.wait()
        finally:
            del self._fences[token]
        if self._over or not fence.is_set():
            raise Lost("did not confirm that it received the message")


def _numbered(nick: str, number: int) -> str:
    return f"{nick[:8]}{number}"


async def _or_lost(act: Awaitable[bytes | None]) -> bytes:
    """The result of an operation on the stream; raises Lost if the stream has ended."""
    try:
        return await act or b""
    except (anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError, OSError) as error:
        raise Lost("closed the connection", said=str(error) or "without a reason") from error
