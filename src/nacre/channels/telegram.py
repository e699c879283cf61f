"""Telegram, by long polling of its Bot API: updates as text, and Markdown as Telegram wants it marked up."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

import anyio
import msgspec
from anyio.to_thread import run_sync
from msgspec import Struct, field

from nacre.channels.channel import Accept, Doubtful, Doubts, Gone, InboundMessage, Later, Lost, Unsent, again
from nacre.channels.channel_files import Cursor, Retries, RetryPolicy, parse_address, read_secret
from nacre.channels.chunking import FENCE_ROOM, clean, close_fences, split, text_to, utf16
from nacre.channels.http_client import Api, Refusal
from nacre.errors import ChannelError, ConfigError, NacreError, describe_error
from nacre.storage.protocol import Document

logger = logging.getLogger(__name__)

_MAX_PIECE = 4096 - len(again("```")) + len("```")
_POLL = 50
_SOON = 1.0
_MAX_SENT = 1000
# After a week without updates Telegram begins to count again, and it keeps nothing for longer than a day.
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
    """A bot; `state` is a document for how far it has read."""

    is_exact = False

    def __init__(
        self,
        config: Config,
        *,
        state: Document,
        name: str = "telegram",
        retry: RetryPolicy | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.name = name
        self._config, self._retry, self._clock = config, retry or RetryPolicy(), clock
        self._cursor = Cursor(state)
        token = read_secret(name, "token", config.token_file)
        server = parse_address(config.address, section=f"channels.{name}", key="address")
        self._api = Api(f"{server}/bot{token}", secret=token)
        self.is_up = False
        self._bot = Bot()
        self._sent: dict[str, int] = {}
        self._doubts = Doubts()

    async def run(self, accept: Accept) -> None:
        """Hear people until cancelled; raises ConfigError if Telegram does not know the bot."""
        retries = Retries(self._retry)
        while True:
            try:
                self._bot = Bot.of(await self._ask("getMe", {}))
                self.is_up = True
                await self._follow(accept, retries)
            except Refusal as refusal:
                if refusal.status in _UNKNOWN:
                    raise ConfigError(f"{self._config.address} rejects the token of channels.{self.name}") from None
                logger.warning("Telegram rejected a request; retrying", extra={"reason": describe_error(refusal)})
                self.is_up = False
                await self._retry.sleep(_retry_after(refusal))
            except ConfigError:
                raise
            except (Lost, NacreError, OSError) as error:
                logger.warning("connection to Telegram lost; reconnecting", extra={"reason": describe_error(error)})
                self.is_up = False
            await retries.wait()

    async def send(self, to: InboundMessage, text: str, *, id: str) -> None:
        """Answer in the chat; what of an answer was sent is not sent again under the same `id` by this process."""
        if self._config.markdown:
            pieces = close_fences(split(text, _MAX_PIECE - 2 * FENCE_ROOM, size=utf16))
        else:
            pieces = split(text, _MAX_PIECE, size=utf16)
        for number in range(self._sent.get(id, 0), len(pieces)):
            piece = again(pieces[number]) if id in self._doubts else pieces[number]
            with self._doubts.about(id):
                await self._send_piece(to, piece, first=number == 0)
            self._sent[id] = number + 1
        while len(self._sent) > _MAX_SENT:
            del self._sent[next(iter(self._sent))]

    async def show_typing(self, to: InboundMessage) -> None:
        """Show that an answer is being written, until cancelled; Telegram shows it for five seconds each time."""
        body: dict[str, Any] = {"chat_id": to.chat, "action": "typing"}
        if to.thread.isdecimal():
            body["message_thread_id"] = int(to.thread)
        with suppress(Lost, Refusal):
            while True:
                await self._ask("sendChatAction", body, max_seconds=_TYPING)
                await anyio.sleep(_TYPING)

    async def close(self) -> None:
        await self._api.close()

    # ---- in

    async def _follow(self, accept: Accept, retries: Retries) -> None:
        # How far was read, and when; nothing if that is another bot's.
        saved = await run_sync(self._cursor.read)
        offset, heard = saved.get("offset"), saved.get("heard")
        if saved.get("bot") != self._bot.id or not isinstance(offset, int) or not isinstance(heard, int | float):
            offset, heard = 0, self._clock()
        while True:
            asked = time.monotonic()
            if self._clock() - heard > _STALE:
                offset = 0
            body = {"offset": offset, "timeout": _POLL, "limit": 100, "allowed_updates": ["message"]}
            found = updates(await self._ask("getUpdates", body, max_seconds=_POLL + 20))
            for update in found:
                if (message := self._inbound(update.message)) is not None:
                    await accept(message)
                offset = max(offset, update.update_id + 1)
            if found:
                heard = self._clock()
                await run_sync(self._cursor.write, {"bot": self._bot.id, "offset": offset, "heard": heard})
            elif time.monotonic() - asked < _SOON:
                # A server that does not hold the question until there is an answer would be asked all the time.
                await self._retry.sleep(min(self._retry.first, _SOON))
            retries.reset()

    def _inbound(self, message: Message | None) -> InboundMessage | None:
        text = "" if message is None else text_of(message, self._bot)
        if message is None or message.sender is None or not text:
            return None
        return InboundMessage(
            channel=self.name,
            account=str(self._bot.id),
            chat=str(message.chat.id),
            thread=str(message.thread) if message.is_topic else "",
            sender=str(message.sender.id),
            id=f"{message.chat.id}.{message.id}",
            text=text,
            shown=message.sender.display_name,
            handle=message.sender.username,
        )

    # ---- out

    async def _send_piece(self, to: InboundMessage, text: str, *, first: bool) -> None:
        body: dict[str, Any] = {"chat_id": to.chat, "text": text, "link_preview_options": {"is_disabled": True}}
        if to.thread.isdecimal():
            body["message_thread_id"] = int(to.thread)
        message = to.id.rpartition(".")[2]
        if first and to.chat.startswith("-") and message.isdecimal():
            # In a group, so that people see who is answered.
            body["reply_parameters"] = {"message_id": int(message), "allow_sending_without_reply": True}
        if self._config.markdown:
            try:
                await self._post(body | {"text": to_markdown_v2(text), "parse_mode": "MarkdownV2"})
            except Gone as error:
                cause = error.__cause__
                is_refused = isinstance(cause, Refusal) and cause.status == _BAD_REQUEST
                if not is_refused or "parse entities" not in str(cause).lower():
                    raise
            else:
                return
        await self._post(body)

    async def _post(self, body: Mapping[str, Any]) -> None:
        """Send a message; again only where it is certain that it was not sent, since it would be shown twice."""
        retries, deadline = Retries(self._retry), time.monotonic() + self._retry.outage
        while True:
            try:
                await self._ask("sendMessage", body)
            except Unsent as error:
                if time.monotonic() > deadline:
                    raise ChannelError(f"{self._config.address} {error}, and nothing was sent") from error
            except Lost as error:
                raise Doubtful(f"{self._config.address} {error}; it is not known whether it was sent") from error
            except Refusal as refusal:
                if refusal.status in _UNKNOWN:
                    # The chat is there as it was, and the owner of the bot has a new token soon.
                    reason = "rejects the bot's token, and nothing was sent"
                    raise ChannelError(f"{self._config.address} {reason}") from None
                if refusal.status != _TOO_MANY:
                    raise Gone(f"Telegram does not accept messages for this chat: it {refusal}") from refusal
                # It counts messages per chat: other chats need not wait.
                wait = _retry_after(refusal)
                raise Later(f"Telegram asks to wait {wait:.0f} seconds, and nothing was sent", wait=wait) from refusal
            else:
                return
            await retries.wait()

    async def _ask(self, method: str, body: Mapping[str, Any], *, max_seconds: float = 30.0) -> Any:
        found = await self._api.call("POST", f"/{method}", body=body, max_seconds=max_seconds)
        return found.get("result")


def _retry_after(refusal: Refusal) -> float:
    parameters = refusal.body.get("parameters")
    wait = parameters.get("retry_after") if isinstance(parameters, dict) else None
    return float(wait) if isinstance(wait, int | float) else refusal.wait or 0.0


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
    def display_name(self) -> str:
        return clean(self.username or self.first_name)


class Chat(Struct, frozen=True):
    """Where it was written."""

    id: int
    type: str = "private"


class RepliedMessage(Struct, frozen=True):
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
    reply: RepliedMessage | None = field(default=None, name="reply_to_message")


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
    parsed: list[Update] = []
    for item in found if isinstance(found, list) else ():
        try:
            parsed.append(msgspec.convert(item, Update))
        except msgspec.ValidationError:
            number = item.get("update_id") if isinstance(item, dict) else None
            parsed += [Update(number)] if isinstance(number, int) else []
    return sorted(parsed, key=lambda update: update.update_id)


def text_of(message: Message, bot: Bot) -> str:
    """What a message says to the bot; nothing if it says nothing, or is not for it."""
    text = clean(message.text or message.caption).strip()
    if message.sender is None or message.sender.is_bot:
        return ""
    if (command := _COMMAND.match(text)) is not None:
        to_me = command[2] is None or command[2].lower() == bot.username.lower()
        return f"/{command[1]}{text[command.end() :]}" if to_me else ""
    if message.chat.type == "private":
        return text
    # In a group: what begins with the bot's name, has its name in it, or replies to it.
    if not bot.username:
        return ""
    said = text_to(text, bot.username)
    if said is not None:
        return said
    is_named = re.search(rf"@{re.escape(bot.username)}\b", text, re.IGNORECASE) is not None
    reply = message.reply
    is_reply = reply is not None and reply.sender is not None and reply.sender.id == bot.id
    return text if is_named or is_reply else ""


def to_markdown_v2(text: str) -> str:
    """Markdown as Telegram's MarkdownV2: code, bold, links and headings are shown, all else is as it was typed."""
    parts, at = [], 0
    for block in _BLOCK.finditer(text):
        parts += [_mark_up_text(text[at : block.start()]), f"```{_escape(block[1].strip(), _CODE)}\n"]
        parts += [_escape(block[2], _CODE), "```"]
        at = block.end()
    return "".join([*parts, _mark_up_text(text[at:])])


def _mark_up_text(text: str) -> str:
    text = _HEADING.sub(lambda found: f"**{found[1].replace('*', '')}**", text)
    parts, at = [], 0
    for span in _SPAN.finditer(text):
        code, bold, label, address = span.groups()
        parts.append(_escape(text[at : span.start()], _SPECIAL))
        if code is not None:
            parts.append(f"`{_escape(code, _CODE)}`")
        elif bold is not None:
            parts.append(f"*{_escape(bold, _SPECIAL)}*")
        else:
            parts.append(f"[{_escape(label, _SPECIAL)}]({_escape(address, _LINK)})")
        at = span.end()
    return "".join([*parts, _escape(text[at:], _SPECIAL)])


def _escape(text: str, special: re.Pattern[str]) -> str:
    return special.sub(r"\\\1", text)
