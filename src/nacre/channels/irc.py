"""IRC: private messages, and what is said to the bot by name in its channels."""

from __future__ import annotations

import itertools
import logging
import ssl
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from hashlib import blake2b
from pathlib import Path

import anyio
from anyio.abc import ByteStream

from nacre.channels.addressing import addressed
from nacre.channels.channel import Accept, Arrived, again
from nacre.channels.irc_lines import Line, fold, plain
from nacre.channels.irc_link import Config, Link, Pace
from nacre.channels.lost import Attempts, Doubtful, Doubts, Gone, Lost, Patience
from nacre.channels.table import needed, secret, variable
from nacre.channels.waiting import Waiting
from nacre.errors import ChannelError, ConfigError, NacreError

__all__ = ["Config", "Irc", "Pace"]

logger = logging.getLogger(__name__)

_PLAIN_PORT, _TLS_PORT = 6667, 6697
_CONNECT = 30.0
_STEADY = 30.0
_MOST_WAITING = 10_000
_ACTION = "\x01ACTION "


class Irc:
    """A bot on one server; `state` is a file for messages that were received and not accepted yet.

    `named` are the nicks of the configuration: whoever has one is called as it is there, however the server spells it.
    """

    is_exact = False

    def __init__(  # noqa: PLR0913 - each may be another
        self,
        config: Config,
        *,
        state: Path,
        name: str = "irc",
        named: Sequence[str] = (),
        patience: Patience | None = None,
        pace: Pace | None = None,
    ) -> None:
        self.name = name
        self.account = f"{config.nick}@{config.host}"
        self._config, self._named = config, named
        self._patience, self._pace = patience or Patience(), pace or Pace()
        self._password = _password(config, name)
        self._waiting = Waiting(state)
        self._numbers = itertools.count()
        self._link: Link | None = None
        self._change = anyio.Event()
        self._waited = float("-inf")
        self._doubts = Doubts()

    @property
    def is_up(self) -> bool:
        """Whether the server knows the bot."""
        return self._link is not None

    async def run(self, accept: Accept) -> None:
        """Hear people until cancelled; raises ConfigError if the server will not have the bot as it is set up."""
        failure: ConfigError | None = None
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._deliver, accept)
            try:
                await self._stay_connected()
            except ConfigError as error:
                failure = error
            tasks.cancel_scope.cancel()
        if failure is not None:
            raise failure

    async def send(self, to: Arrived, text: str, *, id: str) -> None:
        """Send an answer to the chat it belongs to; the server has it when this returns."""
        if id in self._doubts:
            text = again(text)
        if _is_channel(to.chat):
            target, text = to.chat, f"{to.shown}: {text}" if to.shown else text
        else:
            target = to.shown or to.sender or to.chat
        if not target or not target.isprintable() or " " in target or target.startswith(":"):
            raise Gone(f"{target!r} is not a valid name on IRC")
        with self._doubts.about(id):
            await self._insist(text, target)

    async def close(self) -> None:
        """Nothing is open but while it runs."""

    # ---- words out

    async def _insist(self, text: str, target: str) -> None:
        """Say it; somebody who is not there is waited for, since people come back after an outage as we do."""
        attempts = Attempts(self._patience)
        while True:
            link = await self._linked()
            try:
                return await link.say(text, target)
            except Lost as error:
                raise Doubtful(
                    f"{self._config.host} {error}; it is not known how much of the message was sent"
                ) from error
            except Gone:
                if not self._may_wait():
                    raise
            await attempts.wait()

    def _may_wait(self) -> bool:
        """Whether there is still time to wait for people: all answers wait meanwhile, so it is a while in ten."""
        now, outage = time.monotonic(), self._patience.outage
        if now > self._waited + 10 * outage:
            self._waited = now
        return now < self._waited + outage

    async def _linked(self) -> Link:
        with anyio.move_on_after(self._patience.outage):
            while self._link is None:
                await self._change.wait()
        if self._link is None:
            raise ChannelError(f"{self._config.host} cannot be reached, and nothing was sent")
        return self._link

    # ---- words in

    async def _deliver(self, accept: Accept) -> None:
        attempts = Attempts(self._patience)
        while True:
            arrived = await self._waiting.first()
            try:
                await accept(arrived)
            except NacreError as error:
                logger.warning(
                    "a message cannot be accepted yet; retrying", extra={"channel": self.name, "reason": str(error)}
                )
                await attempts.wait()
                continue
            self._waiting.done()
            attempts.succeeded()

    def _hear(self, link: Link, line: Line) -> None:
        if len(self._waiting) >= _MOST_WAITING:
            logger.warning("too many messages are waiting, and some were dropped", extra={"channel": self.name})
        elif (arrived := self._arrived(link, line)) is not None:
            self._waiting.put(arrived)

    def _arrived(self, link: Link, line: Line) -> Arrived | None:
        """What a line says to the bot; None if it says nothing, or is not for it."""
        sender = self._sender(link, line)
        target, said = line.param(0), line.param(1)
        if not sender or link.is_me(line.nick) or len(line.params) != 2:  # noqa: PLR2004 - to whom, and what
            return None
        text = _to_me(link, self._config.nick, said) if target[:1] in link.kinds else _said(said)
        if not text or not (target[:1] in link.kinds or link.is_me(target)):
            return None
        chat = fold(target, link.mapping) if target[:1] in link.kinds else sender
        return Arrived(
            channel=self.name,
            account=self.account,
            chat=chat,
            sender=sender,
            id=self._id(line),
            text=text,
            shown=line.nick,
            handle=line.nick if self._config.identify == "nick" else "",
        )

    def _sender(self, link: Link, line: Line) -> str:
        if self._config.identify == "account":
            return line.tags.get("account", "")
        nick = fold(line.nick, link.mapping)
        # Only the server knows which nicks are the same, and whoever looks at a list or a key cannot ask it.
        return next((name for name in self._named if fold(name, link.mapping) == nick), nick)

    def _id(self, line: Line) -> str:
        """The server's name for a line, else one made of what is known: who, where, what and when."""
        if msgid := line.tags.get("msgid"):
            return plain(msgid)
        when = line.tags.get("time") or f"{time.time_ns()}.{next(self._numbers)}"
        return blake2b("\n".join((line.prefix, *line.params, when)).encode(), digest_size=16).hexdigest()

    # ---- the connection

    async def _stay_connected(self) -> None:
        attempts = Attempts(self._patience)
        while True:
            begun = time.monotonic()
            try:
                async with self._opened() as stream:
                    await self._serve(stream)
            except Lost as error:
                logger.warning(
                    "connection to the IRC server lost; reconnecting",
                    extra={"host": self._config.host, "reason": str(error)},
                )
            if time.monotonic() - begun > _STEADY:
                attempts.succeeded()
            await attempts.wait()

    async def _serve(self, stream: ByteStream) -> None:
        link = Link(
            stream, self._config, password=self._password, pace=self._pace, hear=lambda line: self._hear(link, line)
        )
        failure: Lost | ConfigError | None = None
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(link.beat)
                tasks.start_soon(self._offer, link)
                try:
                    await link.serve()
                except (Lost, ConfigError) as error:
                    failure = error
                tasks.cancel_scope.cancel()
        finally:
            self._link = None
        if failure is not None:
            raise failure

    async def _offer(self, link: Link) -> None:
        """Let words go out over a link once it is registered."""
        await link.registered.wait()
        self._link = link
        self._change.set()
        self._change = anyio.Event()
        logger.info("connected to IRC", extra={"host": self._config.host})

    @asynccontextmanager
    async def _opened(self) -> AsyncIterator[ByteStream]:
        config = self._config
        port = config.port or (_TLS_PORT if config.tls else _PLAIN_PORT)
        stream: ByteStream | None = None
        try:
            with anyio.move_on_after(_CONNECT):
                stream = await _connected(config, port)
        except OSError as error:
            raise Lost(f"cannot be reached ({error})") from error
        if stream is None:
            raise Lost(f"cannot be reached within {_CONNECT:g} seconds")
        try:
            yield stream
        finally:
            await anyio.aclose_forcefully(stream)


async def _connected(config: Config, port: int) -> ByteStream:
    if not config.tls:
        return await anyio.connect_tcp(config.host, port)
    context = ssl.create_default_context(cafile=config.ca_file or None)
    return await anyio.connect_tcp(config.host, port, ssl_context=context, tls_standard_compatible=False)


def _password(config: Config, name: str) -> str:
    section, known = f"channels.{name}", variable(name, "PASSWORD")
    found = secret(config.password_file, known, section=section, key="password_file")
    return needed(found, section=section, key="password_file", variable=known) if config.login else found


def _is_channel(chat: str) -> bool:
    return chat[:1] in tuple("#&+!")


def _said(text: str) -> str:
    """What was typed; requests of clients to clients are nobody's words, but for `/me`."""
    if text.startswith(_ACTION):
        return f"*{plain(text[len(_ACTION) :])}*"
    return "" if text.startswith("\x01") else plain(text)


def _to_me(link: Link, wanted: str, text: str) -> str:
    said = plain(text)
    return next((words for nick in (link.nick, wanted) if (words := addressed(said, nick))), "")
