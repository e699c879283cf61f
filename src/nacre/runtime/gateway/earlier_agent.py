"""The conversation that a sender had with an earlier agent: found by the names it had there, and taken up once."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator, Mapping
from hashlib import sha256
from typing import Any, NamedTuple

from msgspec.structs import replace

from nacre.channels.channel import InboundMessage
from nacre.errors import InvalidKey, StoreError
from nacre.runtime.gateway.access import Access, is_of_sender
from nacre.sessions import Sessions

logger = logging.getLogger(__name__)

_MAX_KNOWN = 4096
_MAIN = ("agent:main:main", "unified:default")
_KINDS = ("direct", "group", "channel")
_LOSSY = re.compile(r"[^\w-]")
_PLAIN = re.compile(r"[^\W_]+(-[^\W_]+)*\Z")
_UNIQUE = ("telegram",)
"""Channels whose ids and names have so small an alphabet that no two senders get the same sanitised name."""


_DIRECT_CHATS = ("irc", "telegram")
"""Channels in which the chat of a person who writes to the agent alone is called like the person."""


class Name(NamedTuple):
    """A name that an earlier agent may have given to a session.

    `is_personal` if it is one sender's, not a chat's. `is_certain` if no other sender can have had it.
    """

    text: str
    is_personal: bool
    is_certain: bool = True


class Earlier:
    """Finds the session that a sender had with an earlier agent, once, and remembers what it found.

    From then on `own`, the key that the sender has here, is another name of that session. `kinds` tells what a channel
    is, by its name; it has none if two channels are of one kind, since either could be the earlier agent's.
    """

    def __init__(
        self,
        sessions: Sessions,
        access: Callable[[str], Access],
        kinds: Mapping[str, str] | None = None,
        *,
        limit: int = _MAX_KNOWN,
    ) -> None:
        self._sessions, self._access, self._kinds, self._limit = sessions, access, kinds or {}, limit
        self._known: dict[str, str | None] = {}

    def __call__(self, arrived: InboundMessage, own: str) -> str | None:
        """The key of the earlier session; None if there is none that is certainly this sender's."""
        if not self._access(arrived.channel).keeps:
            return None
        if own in self._known:
            return self._known[own]
        try:
            key = self._find(arrived, own)
        except InvalidKey:
            # The answer says so.
            return None
        except _Unreadable as error:
            # It is there, and cannot be read now; the sender gets the reason with the answer.
            return error.key
        if len(self._known) >= self._limit:
            del self._known[next(iter(self._known))]
        self._known[own] = key
        return key

    def __len__(self) -> int:
        return len(self._known)

    def _find(self, arrived: InboundMessage, own: str) -> str | None:
        key = self._sessions.resolve(own)
        if key != own:
            return key
        if self._sessions.exists(own):
            return None
        is_only_user = list(self._access(arrived.channel).allow) == [arrived.sender]
        is_one_persons = arrived.chat == arrived.sender or not own.endswith(":")
        for name in names(arrived, self._kinds.get(arrived.channel, arrived.channel)):
            # What is continued is one person's here too; an agent's main session is its only user's.
            if name.is_personal and not (is_one_persons and (is_only_user or name.text not in _MAIN)):
                continue
            try:
                if not self._sessions.exists(name.text):
                    continue
                key = self._sessions.resolve(name.text)
                if reason := self._doubt(key, name, arrived, own):
                    logger.warning(
                        "a session of an earlier agent was not continued",
                        extra={"session": key, "channel": arrived.channel, "reason": reason},
                    )
                    continue
                if own not in self._sessions.aliases(key):
                    self._sessions.add_alias(key, own)
                    logger.info("a session of an earlier agent is continued", extra={"session": key, "as": own})
            except InvalidKey:
                continue
            except StoreError:
                raise _Unreadable(name.text) from None
            return key
        return None

    def _doubt(self, key: str, name: Name, arrived: InboundMessage, own: str) -> str:
        """Why a session may be another's; "" if it is not."""
        meta = self._sessions.get_meta(key)
        kind = self._kinds.get(arrived.channel, arrived.channel)
        scope = meta.get("scope")
        channel = scope.get("channel") if isinstance(scope, dict) else None
        if isinstance(channel, str) and channel.lower() != kind:
            return f"it belongs to the channel {channel}"
        if not name.is_personal:
            return ""
        claims = [alias for alias in self._sessions.aliases(key) if is_of_sender(alias)]
        if claims and own not in claims:
            return f"it was continued by {claims[0]}"
        sender = meta.get("sender_id")
        if isinstance(sender, str) and sender:
            return "" if sender in {arrived.sender, arrived.handle} else "another sender began it"
        # The configuration may name the sender, and nobody else who would have had that name.
        named = set(self._access(arrived.channel).named)
        others = [_as_sent_by(arrived, other) for other in named - {arrived.sender, "*"}]
        is_named = arrived.sender in named and not any(
            name.text == one.text for other in others for one in names(other, kind)
        )
        if name.is_certain or channel or is_named:
            return ""
        return (
            "other senders may have had the same name there; "
            f"to continue it, list the sender in channels.{arrived.channel}.allow"
        )


class _Unreadable(Exception):
    """A session that is there and cannot be read."""

    def __init__(self, key: str) -> None:
        super().__init__(key)
        self.key = key


def names(arrived: InboundMessage, kind: str) -> Iterator[Name]:
    """What earlier agents may have called the session of a message; the most precise names come first."""
    # Of picoclaw: names by scope, which are hashes, then those by agent, and both as the file names that they had.
    made = [*_by_scope(arrived, kind), *_by_agent(arrived, kind)]
    yield from made
    for name in made:
        if (text := re.sub(r"[:/\\]", "_", name.text)) != name.text:
            yield Name(text, name.is_personal, is_certain=name.is_certain and _is_certain(arrived, kind))
    yield from _of_zeroclaw(arrived, kind)
    is_direct = arrived.chat == arrived.sender
    chat, thread = arrived.chat, arrived.thread
    if thread:
        yield from (Name(f"{kind}:{chat}:{word}:{thread}", is_personal=False) for word in ("topic", "thread"))
    else:
        # Of nanobot, and of the first picoclaw.
        yield Name(f"{kind}:{chat}", is_personal=is_direct)
        yield Name(f"agent:main:{kind}:{chat}", is_personal=is_direct)
    if is_direct:
        yield from (Name(text, is_personal=True) for text in _MAIN)


def _by_scope(arrived: InboundMessage, kind: str) -> Iterator[Name]:
    chat, thread, sender = arrived.chat.lower(), arrived.thread.lower(), arrived.sender.lower()
    start = f"v=1|agent=main|channel={kind}|account=default"
    chats = [f"|chat={word}:{chat}" for word in _KINDS]
    if thread:
        topics = [f"|topic=topic:{thread}", ""] if kind != "telegram" else [f"|topic=topic:{thread}"]
        chats = [f"|chat={word}:{chat}/{thread}" for word in _KINDS] + [
            one + topic for one in chats for topic in topics
        ]
    for one in chats:
        for who in (sender, f"{kind}:{sender}"):
            yield Name(_opaque(f"{start}{one}|sender={who}"), is_personal=True)
        yield Name(_opaque(f"{start}{one}"), is_personal="|chat=direct:" in one)
    if _may_be_direct(arrived, kind):
        for who in (sender, f"{kind}:{sender}"):
            yield Name(_opaque(f"{start}|sender={who}"), is_personal=True)


def _opaque(text: str) -> str:
    return f"sk_v1_{sha256(text.encode()).hexdigest()}"


def _by_agent(arrived: InboundMessage, kind: str) -> Iterator[Name]:
    chat, thread, sender = arrived.chat.lower(), arrived.thread.lower(), arrived.sender.lower()
    for word in ("group", "channel"):
        yield Name(f"agent:main:{kind}:{word}:{chat}" + (f"/{thread}" if thread else ""), is_personal=False)
    if not _may_be_direct(arrived, kind):
        return
    for peer in dict.fromkeys((sender, f"{kind}:{sender}", chat)):
        yield Name(f"agent:main:{kind}:default:direct:{peer}", is_personal=True)
        yield Name(f"agent:main:{kind}:direct:{peer}", is_personal=True)
        # It does not say in which channel the peer was.
        yield Name(f"agent:main:direct:{peer}", is_personal=True, is_certain=peer.startswith(f"{kind}:"))


def _of_zeroclaw(arrived: InboundMessage, kind: str) -> Iterator[Name]:
    """Names of channel, chat, thread and sender with `_` between them; later ones with the bot's name, sanitised."""
    thread, is_direct = arrived.thread, arrived.chat == arrived.sender
    for sender in dict.fromkeys(filter(None, (arrived.sender, arrived.handle))):
        # Where people write to the bot alone, the chat of IRC is the sender as they spell themselves.
        chats = [sender, arrived.chat] if is_direct and sender != arrived.chat else [arrived.chat]
        for scope in (kind, f"{kind}.default", f"{kind}.{arrived.channel}"):
            for chat in chats:
                if thread:
                    yield from _with_clean_form(arrived, kind, f"{scope}_{chat}:{thread}_{thread}_{sender}")
                    yield from _with_clean_form(arrived, kind, f"{scope}_{chat}_{thread}_{sender}")
                if not thread or kind == "matrix":
                    yield from _with_clean_form(arrived, kind, f"{scope}_{chat}_{sender}")
        if thread:
            yield from _with_clean_form(arrived, kind, f"{kind}_{thread}_{sender}")
        if _may_be_direct(arrived, kind):
            yield from _with_clean_form(arrived, kind, f"{kind}_{sender}")


def _may_be_direct(arrived: InboundMessage, kind: str) -> bool:
    """Tell whether nobody else may read along: what names only a sender may hold what they said to the agent alone."""
    return arrived.chat == arrived.sender or (kind not in _DIRECT_CHATS and not arrived.thread)


def _with_clean_form(arrived: InboundMessage, kind: str, text: str) -> Iterator[Name]:
    is_certain = _is_certain(arrived, kind)
    yield Name(text, is_personal=True, is_certain=is_certain)
    if (clean := _LOSSY.sub("_", text)) != text:
        yield Name(clean, is_personal=True, is_certain=is_certain)


def _is_certain(arrived: InboundMessage, kind: str) -> bool:
    """Tell whether the end of a name that was joined with `_` names this sender, and can name no other.

    It does if the sender has neither `_` nor anything that becomes one: then it is what stands after the last `_`.
    """
    return kind in _UNIQUE or _PLAIN.match(arrived.sender) is not None


def _as_sent_by(arrived: InboundMessage, sender: str) -> InboundMessage:
    """The same message, had another sent it."""
    chat = sender if arrived.chat == arrived.sender else arrived.chat
    return replace(arrived, sender=sender, chat=chat, handle="")


def kinds_of(tables: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    """What each channel is, by its name, where no other one is the same."""
    kinds = {name: str(table.get("kind", name)) for name, table in tables.items()}
    found = list(kinds.values())
    return {name: kind if found.count(kind) == 1 else name for name, kind in kinds.items()}
