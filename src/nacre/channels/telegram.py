"""Telegram, by long polling of its Bot API."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Never

import anyio
import msgspec
from anyio.to_thread import run_sync
from msgspec import Struct, field

from nacre.channels.channel import (
    Accept,
    Arrived,
    Attempts,
    Doubtful,
    Doubts,
    Gone,
    Later,
    Lost,
    Patience,
    Unsent,
    again,
)
from nacre.channels.channel_files import Position
from nacre.channels.channel_settings import address, needed, secret, variable
from nacre.channels.chunking import FENCE_ROOM, addressed, clean, fenced, split, utf16
from nacre.channels.http_client import Api, Refusal
from nacre.errors import ChannelError, ConfigError, NacreError, describe_error

logger = logging.getLogger(__name__)

_LONGEST_PIECE = 4096 - len(again("```")) + len("```")
_POLL = 50
_SOON = 1.0
_REMEMBERED = 1000
# After a week without updates Telegram begins to count anew, and it keeps nothing for longer than a day.
_STALE = 6 * 24 * 3600
_UNKNOWN = frozenset({401, 404})
_BAD_REQUEST, _TOO_MANY = 400, 429
_TYPING = 4.0


class Config(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[channels.telegram]`: the bot's token, and whether answers are shown with their Markdown."""

    address: str = "https://api.telegram.org"
    token_file: str = ""
    markdown: bool = True


class Telegram:
    """A bot; `state` is a file for how far it has read."""

    is_exact = False

    def __init__(
        self,
        config: Config,
        *,
        state: Path,
        name: str = "telegram",
        patience: Patience | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.name = name
        self._config, self._patience, self._clock = config, patience or Patience(), clock
        self._position = Position(state)
        section, known = f"channels.{name}", variable(name, "TOKEN")
        found = secret(config.token_file, known, section=section, key="token_file")
        token = needed(found, section=section, key="token_file", variable=known)
        server = address(config.address, section=section, key="address")
        self._api = Api(f"{server}/bot{token}", secret=token)
        self.is_up = False
        self._bot = Bot()
        self._shown: dict[str, int] = {}
        self._doubts = Doubts()

    async def run(self, accept: Accept) -> None:
        """Hear people until cancelled; raises ConfigError if Telegram does not know the bot."""
        attempts = Attempts(self._patience)
        while True:
            try:
                self._bot = Bot.of(await self._ask("getMe", {}))
                self.is_up = True
                await self._follow(accept, attempts)
            except Refusal as refusal:
                if refusal.status in _UNKNOWN:
                    raise ConfigError(f"{self._config.address} rejects the token of channels.{self.name}") from None
                logger.warning("Telegram rejected a request; retrying", extra={"reason": describe_error(refusal)})
                self.is_up = False
                await self._patience.sleep(_asked_wait(refusal))
            except ConfigError:
                raise
            except (Lost, NacreError, OSError) as error:
                logger.warning("connection to Telegram lost; reconnecting", extra={"reason": describe_error(error)})
                self.is_up = False
            await attempts.wait()

    async def send(self, to: Arrived, text: str, *, id: str) -> None:
        """Answer in the chat; what of an answer was sent is not sent again under the same `id` by this process."""
        pieces = self._pieces(text)
        for number in range(self._shown.get(id, 0), len(pieces)):
            piece = again(pieces[number]) if id in self._doubts else pieces[number]
            with self._doubts.about(id):
                await self._say(to, piece, first=number == 0)
            self._shown[id] = number + 1
        while len(self._shown) > _REMEMBERED:
            del self._shown[next(iter(self._shown))]

    async def show_typing(self, to: Arrived) -> None:
        """Show that an answer is being written, until cancelled; Telegram shows it for five seconds each time."""
        body: dict[str, Any] = {"chat_id": to.chat, "action": "typing"}
        if to.thread.isdecimal():
            body["message_thread_id"] = int(to.thread)
        with suppress(Lost, Refusal):
            while True:
                await self._ask("sendChatAction", body, patience=_TYPING)
                await anyio.sleep(_TYPING)

    async def close(self) -> None:
        await self._api.close()

    # ---- words in

    async def _follow(self, accept: Accept, attempts: Attempts) -> None:
        offset, heard = self._place()
        while True:
            asked = time.monotonic()
            if self._clock() - heard > _STALE:
                offset = 0
            found = updates(await self._poll(offset))
            for update in found:
                await self._take(update, accept)
                offset = max(offset, update.update_id + 1)
            if found:
                heard = self._clock()
                await run_sync(self._position.write, {"bot": self._bot.id, "offset": offset, "heard": heard})
            elif time.monotonic() - asked < _SOON:
                # A server that does not hold the question until there is an answer would be asked all the time.
                await self._patience.sleep(min(self._patience.first, _SOON))
            attempts.succeeded()

    def _place(self) -> tuple[int, float]:
        """How far was read, and when; of a position that is another bot's, nothing."""
        place = self._position.read()
        offset, heard = place.get("offset"), place.get("heard")
        known = place.get("bot") == self._bot.id and isinstance(offset, int) and isinstance(heard, int | float)
        return (offset, heard) if known else (0, self._clock())  # type: ignore[return-value] # it was just seen

    async def _poll(self, offset: int) -> Any:
        body = {"offset": offset, "timeout": _POLL, "limit": 100, "allowed_updates": ["message"]}
        return await self._ask("getUpdates", body, patience=_POLL + 20)

    async def _take(self, update: Update, accept: Accept) -> None:
        message = update.message
        text = "" if message is None else words(message, self._bot)
        if message is None or message.sender is None or not text:
            return
        arrived = Arrived(
            channel=self.name,
            account=str(self._bot.id),
            chat=str(message.chat.id),
            thread=str(message.thread) if message.is_topic else "",
            sender=str(message.sender.id),
            id=f"{message.chat.id}.{message.id}",
            text=text,
            shown=message.sender.shown,
            handle=message.sender.username,
        )
        await accept(arrived)

    # ---- words out

    def _pieces(self, text: str) -> list[str]:
        if not self._config.markdown:
            return split(text, _LONGEST_PIECE, size=utf16)
        return fenced(split(text, _LONGEST_PIECE - 2 * FENCE_ROOM, size=utf16))

    async def _say(self, to: Arrived, text: str, *, first: bool) -> None:
        body: dict[str, Any] = {"chat_id": to.chat, "text": text, "link_preview_options": {"is_disabled": True}}
        if to.thread.isdecimal():
            body["message_thread_id"] = int(to.thread)
        message = to.id.rpartition(".")[2]
        if first and to.chat.startswith("-") and message.isdecimal():
            # In a group, so that people see who is answered.
            body["reply_parameters"] = {"message_id": int(message), "allow_sending_without_reply": True}
        if self._config.markdown:
            try:
                await self._insist(body | {"text": marked_up(text), "parse_mode": "MarkdownV2"})
            except Gone as error:
                if not _is_about_markup(error):
                    raise
            else:
                return
        await self._insist(body)

    async def _insist(self, body: Mapping[str, Any]) -> None:
        """Send a message; again only where it is certain that it was not sent, since it would be shown twice."""
        attempts, deadline = Attempts(self._patience), time.monotonic() + self._patience.outage
        while True:
            try:
                await self._ask("sendMessage", body)
            except Unsent as error:
                if time.monotonic() > deadline:
                    raise ChannelError(f"{self._config.address} {error}, and nothing was sent") from error
            except Lost as error:
                raise Doubtful(f"{self._config.address} {error}; it is not known whether it was sent") from error
            except Refusal as refusal:
                self._judge(refusal)
            else:
                return
            await attempts.wait()

    def _judge(self, refusal: Refusal) -> Never:
        """What a refusal means for an answer: Later, or Gone if waiting is of no use."""
        if refusal.status in _UNKNOWN:
            # The chat is there as it was, and whoever runs the bot has a new token soon.
            raise ChannelError(f"{self._config.address} rejects the bot's token, and nothing was sent") from None
        if refusal.status != _TOO_MANY:
            raise Gone(f"Telegram does not accept messages for this chat: it {refusal}") from refusal
        # It counts messages per chat: other chats need not wait.
        wait = _asked_wait(refusal)
        raise Later(f"Telegram asks to wait {wait:.0f} seconds, and nothing was sent", wait=wait) from refusal

    async def _ask(self, method: str, body: Mapping[str, Any], *, patience: float = 30.0) -> Any:
        found = await self._api.call("POST", f"/{method}", body=body, patience=patience)
        return found.get("result")


def _asked_wait(refusal: Refusal) -> float:
    parameters = refusal.body.get("parameters")
    wait = parameters.get("retry_after") if isinstance(parameters, dict) else None
    return float(wait) if isinstance(wait, int | float) else refusal.wait or 0.0


def _is_about_markup(error: Gone) -> bool:
    cause = error.__cause__
    refused = isinstance(cause, Refusal) and cause.status == _BAD_REQUEST
    return refused and "parse entities" in str(cause).lower()


_SPECIAL = re.compile(r"([_*\[\]()~`>#+\-=|{}.!\\])")
_CODE = re.compile(r"([`\\])")
_LINK = re.compile(r"([)\\])")
_BLOCK = re.compile(r"^ {0,3}```([^\n`]*)\n(.*?)(?:^ {0,3}```[ \t]*$|\Z)", re.MULTILINE | re.DOTALL)
_SPAN = re.compile(r"`([^`\n]+)`|\*\*(\S(?:[^*\n]*\S)?)\*\*|\[([^\]\n]+)\]\((https?://[^\s()]+)\)")
_HEADING = re.compile(r"^#{1,6} +(.+?)[ #]*$", re.MULTILINE)
_COMMAND = re.compile(r"/(\w+)(?:@(\w+))?")


class User(Struct, frozen=True):
    """Who wrote."""

    id: int
    first_name: str = ""
    username: str = ""
    is_bot: bool = False

    @property
    def shown(self) -> str:
        return clean(self.username or self.first_name)


class Chat(Struct, frozen=True):
    """Where it was written."""

    id: int
    type: str = "private"


class Replied(Struct, frozen=True):
    """What a message replies to."""

    sender: User | None = field(default=None, name="from")


class Message(Struct, frozen=True):
    """What was written; fields that do not matter here are left out."""

    chat: Chat
    id: int = field(name="message_id")
    sender: User | None = field(default=None, name="from")
    text: str = ""
    caption: str = ""
    thread: int = field(default=0, name="message_thread_id")
    is_topic: bool = field(default=False, name="is_topic_message")
    reply: Replied | None = field(default=None, name="reply_to_message")


class Update(Struct, frozen=True):
    """One thing that happened; those of another shape have no message."""

    update_id: int
    message: Message | None = None


class Bot(Struct, frozen=True):
    """Who we are."""

    id: int = 0
    username: str = ""

    @staticmethod
    def of(found: Any) -> Bot:
        """The bot that Telegram says we are."""
        try:
            return msgspec.convert(found, Bot)
        except msgspec.ValidationError:
            return Bot()


def updates(found: Any) -> list[Update]:
    """The updates in an answer, in order; each has its number, whatever else is in it."""
    parsed = (_update(item) for item in (found if isinstance(found, list) else ()))
    return sorted((update for update in parsed if update is not None), key=lambda update: update.update_id)


def words(message: Message, bot: Bot) -> str:
    """What a message says to the bot; nothing if it says nothing, or is not for it."""
    text = clean(message.text or message.caption).strip()
    if message.sender is None or message.sender.is_bot:
        return ""
    if (command := _COMMAND.match(text)) is not None:
        to_me = command[2] is None or command[2].lower() == bot.username.lower()
        return f"/{command[1]}{text[command.end() :]}" if to_me else ""
    if message.chat.type == "private":
        return text
    return _said_to(bot, text, message.reply)


def marked_up(text: str) -> str:
    """Markdown as Telegram's MarkdownV2: code, bold, links and headings are shown, all else is as it was typed."""
    parts, at = [], 0
    for block in _BLOCK.finditer(text):
        parts += [_paragraphs(text[at : block.start()]), f"```{_escaped(block[1].strip(), _CODE)}\n"]
        parts += [_escaped(block[2], _CODE), "```"]
        at = block.end()
    return "".join([*parts, _paragraphs(text[at:])])


def _update(found: Any) -> Update | None:
    try:
        return msgspec.convert(found, Update)
    except msgspec.ValidationError:
        number = found.get("update_id") if isinstance(found, dict) else None
        return Update(number) if isinstance(number, int) else None


def _said_to(bot: Bot, text: str, reply: Replied | None) -> str:
    """In a group: what begins with the bot's name, has its name in it, or replies to it."""
    if not bot.username:
        return ""
    said = addressed(text, bot.username)
    if said is not None:
        return said
    named = re.search(rf"@{re.escape(bot.username)}\b", text, re.IGNORECASE) is not None
    replied = reply is not None and reply.sender is not None and reply.sender.id == bot.id
    return text if named or replied else ""


def _paragraphs(text: str) -> str:
    text = _HEADING.sub(lambda found: f"**{found[1].replace('*', '')}**", text)
    parts, at = [], 0
    for span in _SPAN.finditer(text):
        parts += [_escaped(text[at : span.start()], _SPECIAL), _span(span)]
        at = span.end()
    return "".join([*parts, _escaped(text[at:], _SPECIAL)])


def _span(found: re.Match[str]) -> str:
    code, bold, label, address = found.groups()
    if code is not None:
        return f"`{_escaped(code, _CODE)}`"
    if bold is not None:
        return f"*{_escaped(bold, _SPECIAL)}*"
    return f"[{_escaped(label, _SPECIAL)}]({_escaped(address, _LINK)})"


def _escaped(text: str, special: re.Pattern[str]) -> str:
    return special.sub(r"\\\1", text)
