"""Where messages come from and answers go to: the protocol of a channel, its errors, and the session of a sender."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Literal, Protocol, runtime_checkable

from msgspec import Struct

from nacre.errors import ChannelError

_COLONS = 4
_NAMES = frozenset(("api", "irc", "matrix", "telegram", "web"))
"""Channels whose sessions may have shorter keys: those of the page, and those of earlier versions."""


class InboundMessage(Struct, frozen=True, kw_only=True):
    """A message from a channel; `id` is the channel's id for it, `shown` the sender's display name.

    `handle` is another name of the sender by which nobody else is known at the same time, such as a user name.
    """

    channel: str
    account: str = ""
    chat: str
    thread: str = ""
    sender: str
    id: str
    text: str
    shown: str = ""
    handle: str = ""


Accept = Callable[[InboundMessage], Awaitable[None]]
"""Accept a message; when it returns the message is durable, and the channel may acknowledge it."""


class Channel(Protocol):
    """A place where people are."""

    @property
    def name(self) -> str:
        """What it is called in keys and in the configuration."""

    @property
    def is_exact(self) -> bool:
        """True if an answer that is sent again under its id is shown once."""

    @property
    def is_up(self) -> bool:
        """False while it runs and cannot reach its server."""

    async def run(self, accept: Accept) -> None:
        """Receive until cancelled; a connection that is lost is made again."""

    async def send(self, to: InboundMessage, text: str, *, id: str) -> None:
        """Send an answer; the same `id` after a crash means the same answer. Raises ChannelError if it cannot be sent.

        What may have been sent and is sent again under its id by the same run says so, unless `is_exact`.
        """

    async def close(self) -> None:
        """Release everything; twice is harmless."""


@runtime_checkable
class Typist(Protocol):
    """A channel that can show that an answer is being written."""

    async def show_typing(self, to: InboundMessage) -> None:
        """Show it until cancelled; what fails is left out."""


AGAIN = "(again) "


def again(text: str) -> str:
    """An answer that may have been seen already, and says so."""
    if text.startswith(AGAIN):
        return text
    # Code in a fence begins on a line of its own.
    return f"{AGAIN}\n{text}" if text.startswith("```") else f"{AGAIN}{text}"


def key_of(message: InboundMessage, *, per: Literal["sender", "chat"] = "sender") -> str:
    """The session key of a sender: `channel:account:chat:thread:sender`, escaped so that no two collide.

    Per chat, everybody in it shares one, and the last part is empty.
    """
    sender = message.sender if per == "sender" else ""
    parts = (message.channel, message.account, message.chat, message.thread, sender)
    return ":".join([part.replace("%", "%25").replace(":", "%3A") for part in parts])


def channel_of(key: str) -> str:
    """The channel that a session belongs to, by its key; "" if it belongs to none."""
    name, *rest = key.split(":")
    is_of_channel = len(rest) == _COLONS or (rest and name in _NAMES)
    return name if is_of_channel else ""


_MAX_DOUBTS = 1000


class Lost(Exception):
    """The server cannot be reached, or hung up, or makes no sense; a later attempt may succeed.

    What the server `said` about it may repeat our request: no log has it.
    """

    def __init__(self, message: str, *, said: str = "") -> None:
        super().__init__(f"{message} ({said})" if said else message)
        self.summary = message


class Unsent(Lost):
    """The same, and it is certain that the server has seen nothing of the request."""


class Gone(ChannelError):
    """The recipient does not exist, and a retry would not help."""


class Later(ChannelError):
    """Nothing was sent, for a reason that concerns this recipient alone: try again, at least `wait` seconds later."""

    def __init__(self, message: str, *, wait: float = 0.0) -> None:
        super().__init__(message)
        self.wait = wait


class Absent(Later):
    """The recipient is not there now, and may come back."""


class Doubtful(ChannelError):
    """It is not known whether the message was sent."""


class Doubts:
    """The ids of answers that may have been sent, so that sending them again can say so; the last of them."""

    def __init__(self) -> None:
        self._ids: dict[str, None] = {}

    def __contains__(self, id: str) -> bool:
        return id in self._ids

    @contextmanager
    def about(self, id: str) -> Iterator[None]:
        """Note whether what is sent under an id meanwhile is in doubt; it is not if it was sent, or cannot be."""
        try:
            yield
        except Doubtful:
            self._ids[id] = None
            if len(self._ids) > _MAX_DOUBTS:
                del self._ids[next(iter(self._ids))]
            raise
        except Gone:
            self._ids.pop(id, None)
            raise
        self._ids.pop(id, None)
