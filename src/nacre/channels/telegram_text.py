"""Telegram's updates as words, and Markdown as Telegram wants it marked up."""

from __future__ import annotations

import re
from typing import Any

import msgspec
from msgspec import Struct, field

from nacre.channels.addressing import addressed
from nacre.channels.pieces import clean

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
