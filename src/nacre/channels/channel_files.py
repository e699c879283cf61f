"""The files of a channel: how far it has read, and messages that were received and not yet accepted."""

from __future__ import annotations

import json
import logging
import os
from collections import deque
from contextlib import suppress
from pathlib import Path
from typing import Any

import anyio
import msgspec

from nacre.channels.channel import InboundMessage
from nacre.errors import describe_error

logger = logging.getLogger(__name__)


class CursorFile:
    """A JSON object in a file, replaced whole or not at all; when `write` returns it survives a power loss."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self) -> dict[str, Any]:
        """What was written last; nothing if nothing was, or if it cannot be understood."""
        try:
            found = json.loads(self._path.read_bytes())
        except FileNotFoundError:
            return {}
        except (ValueError, RecursionError):
            found = None
        if isinstance(found, dict):
            return found
        # It is kept for anyone who wants to see what it was; the channel begins as it did the first time.
        self._path.replace(self._path.with_name(f"{self._path.name}.unreadable"))
        logger.warning(
            "the saved position of a channel cannot be read; the file was renamed", extra={"file": str(self._path)}
        )
        return {}

    def write(self, value: dict[str, Any]) -> None:
        """Replace the value; raises OSError, and then it is what it was."""
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        new = self._path.with_name(f"{self._path.name}.new")
        with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
            file.write(json.dumps(value).encode())
            file.flush()
            os.fsync(file.fileno())
        new.replace(self._path)
        # The rename is durable when its folder is.
        folder = os.open(self._path.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


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
            logger.warning(
                "waiting messages cannot be written to disk",
                extra={"file": str(self._path), "reason": describe_error(error)},
            )

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
