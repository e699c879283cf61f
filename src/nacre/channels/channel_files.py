"""What a channel needs besides its server: settings and secrets, what it keeps, and waits for a server that is away."""

from __future__ import annotations

import json
import logging
import os
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal, TypeVar
from urllib.parse import urlsplit

import anyio
import msgspec
from msgspec import Struct

from nacre.backoff import Backoff
from nacre.channels.channel import InboundMessage
from nacre.errors import ConfigError, describe_error
from nacre.storage.protocol import Document

logger = logging.getLogger(__name__)


class Cursor:
    """How far a channel has read: a JSON object in a document of the store, replaced whole or not at all."""

    def __init__(self, document: Document) -> None:
        self._document = document

    def read(self) -> dict[str, Any]:
        """What was written last; nothing if nothing was, or if it cannot be understood."""
        data = self._document.read()
        if not data:
            return {}
        try:
            found = json.loads(data)
        except (ValueError, RecursionError):
            found = None
        if isinstance(found, dict):
            return found
        # It is kept for anyone who wants to see what it was; the channel begins as it did the first time.
        what = "the saved position of a channel cannot be read; it was renamed"
        logger.warning(what, extra={"file": self._document.set_aside()})
        return {}

    def write(self, value: dict[str, Any]) -> None:
        """Replace the value, durably; raises StoreError, and LeaseLost if another gateway has the channels by now."""
        self._document.write(json.dumps(value).encode())


class Spool:
    """A queue in a file, one JSON line each, for messages that their server never resends.

    What was put in is there after the process was killed (not after a power loss: it is not flushed, since accepting
    is what makes a message durable). The file is emptied when nothing waits; after a kill, messages may come out that
    had been accepted, under the same id.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._queue = deque[InboundMessage]()
        self._arrival = anyio.Event()
        try:
            lines = path.read_bytes().splitlines()
        except FileNotFoundError:
            lines = []
        for line in lines:
            with suppress(msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                self._queue.append(msgspec.json.decode(line, type=InboundMessage))
        if missing := len(lines) - len(self._queue):
            logger.warning("waiting messages cannot be read from disk", extra={"file": str(path), "lines": missing})

    def put(self, message: InboundMessage) -> None:
        """Add a message; if it cannot be written to disk, it waits only in memory."""
        self._queue.append(message)
        self._arrival.set()
        try:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            handle = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            try:
                os.write(handle, msgspec.json.encode(message) + b"\n")
            finally:
                os.close(handle)
        except OSError as error:
            fields = {"file": str(self._path), "reason": describe_error(error)}
            logger.warning("waiting messages cannot be written to disk", extra=fields)

    async def first(self) -> InboundMessage:
        """The oldest; waits for one."""
        while not self._queue:
            self._arrival = anyio.Event()
            await self._arrival.wait()
        return self._queue[0]

    def done(self) -> None:
        """Forget the oldest: it was accepted."""
        self._queue.popleft()
        if not self._queue:
            with suppress(OSError):
                os.truncate(self._path, 0)

    def __len__(self) -> int:
        return len(self._queue)


T = TypeVar("T")


def parse_settings(kind: type[T], table: Mapping[str, Any], *, section: str) -> T:
    """The table as a value; raises ConfigError that names the section and the key."""
    try:
        return msgspec.convert(dict(table), kind)
    except msgspec.ValidationError as error:
        raise ConfigError(f"[{section}] cannot be used: {error}; see docs/channels.md for its settings") from error


def read_secret(channel: str, kind: Literal["token", "password"], file: str, *, is_required: bool = True) -> str:
    """A channel's secret: what the file of its settings holds, else what a variable of the environment does.

    Raises ConfigError for a file that cannot be read, and for a secret that is required and nowhere.
    """
    section, key = f"channels.{channel}", f"{kind}_file"
    variable = f"NACRE_{channel.replace('-', '_').upper()}_{kind.upper()}"
    if not file:
        found = os.environ.get(variable, "").strip()
        if not found and is_required:
            raise ConfigError(
                f"[{section}] has no secret: set {section}.{key} to a file that contains it, or set {variable}"
            )
        return found
    try:
        text = Path(file).expanduser().read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text"
        raise ConfigError(f"{section}.{key} names {file!r}, which cannot be read: {reason}") from None
    if not text or not text.isprintable():
        raise ConfigError(f"{section}.{key} names {file!r}, which must contain exactly one line")
    return text


def parse_address(text: str, *, section: str, key: str) -> str:
    """The address of a server, without a slash at its end; raises ConfigError if it is none."""
    try:
        parts = urlsplit(text)
        is_valid = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_valid = False
    if not is_valid:
        raise ConfigError(f"{section}.{key} is an address such as https://example.org, not {text!r}")
    return text.rstrip("/")


class RetryPolicy(Struct, frozen=True, kw_only=True):
    """Seconds to wait: after the first failure, at most, and with an answer for a server that is away: `outage`."""

    first: float = 1.0
    limit: float = 300.0
    outage: float = 60.0
    sleep: Callable[[float], Awaitable[None]] = anyio.sleep


class Retries:
    """Waits between attempts, which begin again with the first when one succeeds."""

    def __init__(self, policy: RetryPolicy) -> None:
        self._policy = policy
        self.reset()

    def reset(self) -> None:
        """Begin with the first wait again: an attempt succeeded."""
        self._waits = Backoff(first=self._policy.first, longest=self._policy.limit).waits()

    async def wait(self) -> None:
        await self._policy.sleep(next(self._waits))
