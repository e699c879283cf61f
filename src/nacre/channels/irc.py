"""IRC: private messages, and what is said to the bot by name in its channels."""

from __future__ import annotations

import itertools
import logging
import ssl
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path
from typing import Any

import anyio
from anyio.abc import ByteStream

from nacre.channels.channel import Absent, Accept, Doubtful, Doubts, Gone, InboundMessage, Lost, again
from nacre.channels.channel_files import Retries, RetryPolicy, Spool, read_secret
from nacre.channels.chunking import text_to
from nacre.channels.irc_connection import BOT_TAGS, REAL_NAME, Config, IrcConnection, Pace
from nacre.channels.irc_lines import Line, People, plain
from nacre.errors import ChannelError, ConfigError, NacreError, describe_error

__all__ = ["Config", "Irc", "Pace"]

logger = logging.getLogger(__name__)

_PLAIN_PORT, _TLS_PORT = 6667, 6697
_CONNECT_TIMEOUT = 30.0
_STEADY = 30.0
_MAX_WAITING = 10_000
_ACTION = "\x01ACTION "
_MARK = "| "
"""Begins every line of an answer in a channel but its first."""
_ADDRESSED, _PAUSE = 2, 120.0
"""So many answers in a row address the same person by name; a row ends with a pause of so many seconds."""
_TYPING = 3.0


class Irc:
    """A bot on one server; `state` is a file for messages that were received and not accepted yet.

    `named` are the nicks of the configuration: who has one is called as it is there, however the server spells it.
    """

    is_exact = False

    def __init__(  # noqa: PLR0913 - each may be another
        self,
        config: Config,
        *,
        state: Path,
        name: str = "irc",
        named: Sequence[str] = (),
        retry: RetryPolicy | None = None,
        pace: Pace | None = None,
    ) -> None:
        self.name = name
        self.account = f"{config.nick}@{config.host}"
        self._config, self._named = config, named
        self._retry, self._pace = retry or RetryPolicy(), pace or Pace()
        self._password = read_secret(name, "password", config.password_file, is_required=bool(config.login))
        self._spool = Spool(state)
        self._numbers = itertools.count()
        self._connection: IrcConnection | None = None
        self._change = anyio.Event()
        self._doubts = Doubts()
        self._people = People()
        self._rows: dict[tuple[str, str], tuple[int, float]] = {}

    @property
    def is_up(self) -> bool:
        """Whether the server knows the bot."""
        return self._connection is not None

    async def run(self, accept: Accept) -> None:
        """Hear people until cancelled; raises ConfigError if the server will not have the bot as it is set up."""
        await _run_with(self._stay_connected(), lambda: self._deliver(accept))

    async def send(self, to: InboundMessage, text: str, *, id: str) -> None:
        """Send an answer to the chat it belongs to; the server has it when this returns."""
        if id in self._doubts:
            text = again(text)
        with self._doubts.about(id):
            with anyio.move_on_after(self._retry.outage):
                while self._connection is None:
                    await self._change.wait()
            connection = self._connection
            if connection is None:
                raise ChannelError(f"{self._config.host} cannot be reached, and nothing was sent")
            target = await self._target(connection, to)
            head, mark = self._line_starts(connection, to)
            try:
                await connection.say(text, target, head=head, mark=mark)
            except Lost as error:
                reason = f"{error}; it is not known how much of the message was sent"
                raise Doubtful(f"{self._config.host} {reason}") from error
            except Absent:
                self._people.leave(connection.fold(target))
                raise

    async def show_typing(self, to: InboundMessage) -> None:
        """Show that an answer is being written, until cancelled."""
        connection = self._connection
        if connection is None:
            return
        with suppress(ChannelError, Lost):
            target = await self._target(connection, to)
            try:
                while True:
                    await connection.show_typing(target, "active")
                    await anyio.sleep(_TYPING)
            finally:
                with anyio.move_on_after(_TYPING, shield=True):
                    await connection.show_typing(target, "done")

    async def close(self) -> None:
        """Nothing is open but while it runs."""

    # ---- out

    async def _target(self, connection: IrcConnection, to: InboundMessage) -> str:
        """Where an answer goes: to the channel, or to who asked, under the nick that they have now.

        Somebody who was out of sight meanwhile is the same if user and host are: a nick may have changed hands.
        """
        if _is_channel(to.chat):
            return _check_name(to.chat)
        person = self._people.who_said(to.sender, connection.fold(to.shown))
        if person is None:
            return _check_name(to.shown or to.sender or to.chat)
        if not person.is_here:
            try:
                found = await connection.look_up(person.nick)
            except Lost as error:
                raise ChannelError(f"{self._config.host} {error}, and nothing was sent") from error
            if found is None or found.mask != person.mask:
                raise Absent(f"{person.nick!r} on {self._config.host} is not there, or is somebody else by now")
        return person.nick

    def _line_starts(self, connection: IrcConnection, to: InboundMessage) -> tuple[str, str]:
        """How the lines of an answer begin: in a channel the first with the name of who asked, the others with a mark.

        After some answers in a row the first line shows the name and does not address it: if it is a program that
        asks because it is addressed, it stops here, however slow it is, and a person misses nothing.
        """
        if not _is_channel(to.chat):
            return "", ""
        person = self._people.who_said(to.sender, connection.fold(to.shown))
        name = person.nick if person is not None else to.shown
        row, _ = self._rows.pop((to.chat, to.sender), (0, 0.0))
        self._rows[to.chat, to.sender] = row + 1, time.monotonic()
        while len(self._rows) > _MAX_WAITING:
            del self._rows[next(iter(self._rows))]
        if not name:
            return _MARK, _MARK
        return (f"{name}: " if row < _ADDRESSED else f"({name}) "), _MARK

    # ---- in

    async def _deliver(self, accept: Accept) -> None:
        retries = Retries(self._retry)
        while True:
            message = await self._spool.first()
            if await self._is_from_program(message):
                logger.info("a message of a bot was ignored", extra={"channel": self.name})
                self._spool.done()
                continue
            try:
                await accept(message)
            except NacreError as error:
                fields = {"channel": self.name, "reason": describe_error(error)}
                logger.warning("a message cannot be accepted yet; retrying", extra=fields)
                await retries.wait()
                continue
            self._spool.done()
            retries.reset()

    async def _is_from_program(self, message: InboundMessage) -> bool:
        """Whether a message is one of a program: two that answer each other would never end.

        The server says who is a bot, and the real name who is an agent of ours; each person is looked up once.
        """
        connection = self._connection
        if connection is None or not message.shown:
            return False
        person = self._people.who_said(message.sender, connection.fold(message.shown))
        if person is not None and person.is_program is not None:
            return person.is_program
        try:
            found = await connection.look_up(message.shown)
        except Lost:
            return False
        is_program = found is not None and (found.is_bot or found.real_name == REAL_NAME)
        if person is not None:
            person.is_program = is_program
        return is_program

    def _parse(self, connection: IrcConnection, line: Line) -> InboundMessage | None:
        """What a line says to the bot; None if it says nothing, or is not for it."""
        target, said = line.param(0), line.param(1)
        if not line.nick or connection.is_me(line.nick) or len(line.params) != 2:  # noqa: PLR2004 - to whom, and what
            return None
        if not BOT_TAGS.isdisjoint(line.tags):
            return None
        if target[:1] in connection.kinds:
            nicks = (connection.nick, self._config.nick)
            text = next((words for nick in nicks if (words := text_to(plain(said), nick))), "")
        elif said.startswith(_ACTION):
            text = f"*{plain(said[len(_ACTION) :])}*"
        else:
            # Requests of clients to clients are nobody's words.
            text = "" if said.startswith("\x01") else plain(said)
        if not text or not (target[:1] in connection.kinds or connection.is_me(target)):
            return None
        person = self._people.hear(connection.fold(line.nick), shown=line.nick, mask=line.mask)
        if self._config.identify == "account":
            sender = line.tags.get("account", "")
        else:
            # Only the server knows which nicks are the same, and a reader of a list or a key cannot ask it.
            same = (name for name in self._named if connection.fold(name) == person.name)
            sender = next(same, person.name)
        if not sender:
            return None
        self._people.remember(sender, connection.fold(line.nick), person)
        chat = connection.fold(target) if target[:1] in connection.kinds else sender
        # A row of answers ends if somebody who asks again has paused before.
        _, since = self._rows.get((chat, sender), (0, 0.0))
        if time.monotonic() - since > _PAUSE:
            self._rows.pop((chat, sender), None)
        # The server's name for a line, else one made of what is known: who, where, what and when.
        id = plain(line.tags.get("msgid", ""))
        if not id:
            when = line.tags.get("time") or f"{time.time_ns()}.{next(self._numbers)}"
            id = blake2b("\n".join((line.prefix, *line.params, when)).encode(), digest_size=16).hexdigest()
        return InboundMessage(
            channel=self.name,
            account=self.account,
            chat=chat,
            sender=sender,
            id=id,
            text=text,
            shown=line.nick,
            handle=person.handle if self._config.identify == "nick" else "",
        )

    # ---- the connection

    async def _stay_connected(self) -> None:
        retries = Retries(self._retry)
        while True:
            begun = time.monotonic()
            try:
                stream = await self._connect()
                try:
                    await self._serve(stream)
                finally:
                    await anyio.aclose_forcefully(stream)
            except Lost as error:
                fields = {"host": self._config.host, "reason": describe_error(error)}
                logger.warning("connection to the IRC server lost; reconnecting", extra=fields)
            if time.monotonic() - begun > _STEADY:
                retries.reset()
            await retries.wait()

    async def _serve(self, stream: ByteStream) -> None:
        def hear(line: Line) -> None:
            if len(self._spool) >= _MAX_WAITING:
                logger.warning("too many messages are waiting, and some were dropped", extra={"channel": self.name})
            elif (message := self._parse(connection, line)) is not None:
                self._spool.put(message)

        connection = IrcConnection(
            stream, self._config, password=self._password, pace=self._pace, people=self._people, hear=hear
        )

        async def offer() -> None:
            # Messages go out over the connection once it is registered.
            await connection.registered.wait()
            self._connection = connection
            self._change.set()
            self._change = anyio.Event()
            logger.info("connected to IRC", extra={"host": self._config.host})

        try:
            await _run_with(connection.serve(), connection.beat, offer)
        finally:
            self._connection = None
            self._people.lose_sight()

    async def _connect(self) -> ByteStream:
        host, config = self._config.host, self._config
        port = config.port or (_TLS_PORT if config.tls else _PLAIN_PORT)
        try:
            with anyio.move_on_after(_CONNECT_TIMEOUT):
                if not config.tls:
                    return await anyio.connect_tcp(host, port)
                context = ssl.create_default_context(cafile=config.ca_file or None)
                return await anyio.connect_tcp(host, port, ssl_context=context, tls_standard_compatible=False)
        except OSError as error:
            raise Lost("cannot be reached", said=str(error)) from error
        raise Lost(f"cannot be reached within {_CONNECT_TIMEOUT:g} seconds")


async def _run_with(main: Awaitable[None], *others: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run others as long as the main task runs; raises what that does, and not as a group."""
    failure: Lost | ConfigError | None = None
    async with anyio.create_task_group() as tasks:
        for other in others:
            tasks.start_soon(other)
        try:
            await main
        except (Lost, ConfigError) as error:
            failure = error
        tasks.cancel_scope.cancel()
    if failure is not None:
        raise failure


def _check_name(target: str) -> str:
    """A name that a message can be sent to; raises Gone."""
    if not target or not target.isprintable() or " " in target or target.startswith(":"):
        raise Gone(f"{target!r} is not a valid name on IRC")
    return target


def _is_channel(chat: str) -> bool:
    return chat[:1] in tuple("#&+!")
