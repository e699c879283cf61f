"""What the parts of an MCP client pass to each other: offers, errors, limits, patience."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from math import inf
from types import TracebackType
from typing import Any, NamedTuple, Protocol

from anyio import CancelScope, current_time

from nacre.agent.ports import Tool
from nacre.errors import ToolError
from nacre.tools.mcp.config import Config


class Prompt(Protocol):
    """A message of a server that the user sends by a command."""

    @property
    def takes(self) -> str:
        """Its arguments, as in a usage line."""

    @property
    def meaning(self) -> str:
        """What it is for, in a line."""

    async def message(self, words: str) -> tuple[str, Sequence[dict[str, Any]]]:
        """Its text and its images, as parts of a message; raises ToolError for arguments that do not fit."""


class Offer(NamedTuple):
    """What a server offers: tools to the model, prompts to the user, by their command."""

    tools: Sequence[Tool]
    prompts: Mapping[str, Prompt]


MAX_BYTES = 64 * 1024 * 1024
"""The longest message, and the most that one response over HTTP may have, a stream of events too."""
MAX_UNASKED = 10_000
"""The most messages in a minute that answer nothing."""
MOST_TIMEOUTS = 10
"""How many times its timeout a call may take that tells of progress."""
_MINUTE = 60
_ODD = re.compile(r"[^a-zA-Z0-9_-]+")


def clean(name: str) -> str:
    """A name as one of a tool, a command or a file."""
    return _ODD.sub("_", name)


class Gone(ToolError):
    """The server is not there any more; what became of a call it had is not known."""


class Closed(Gone):
    """A program has closed its output."""


class Forgotten(ToolError):
    """The server knows our session or our tokens no more, and has done nothing: another connection may do."""


class LoginNeeded(ToolError):
    """The server wants the user to log in, or to allow more."""

    def __init__(self, name: str) -> None:
        super().__init__(f"the MCP server {name!r} needs you to log in: nacre mcp login {name}")


Login = Callable[[Config], Any]
"""Who proves to a server who we are: gives an `httpx2.Auth`, or None."""


class Patience:
    """How long an answer is waited for: `seconds`, again after each sign of progress, but not for ever."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    def __enter__(self) -> None:
        now = current_time()
        self._end = now + self._seconds * MOST_TIMEOUTS
        self._scope = CancelScope(deadline=now + self._seconds)
        self._scope.__enter__()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        return bool(self._scope.__exit__(kind, error, trace))

    def renew(self) -> None:
        """Wait again as long as at first."""
        self._scope.deadline = min(current_time() + self._seconds, self._end)

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Let a person take their time."""
        begun, self._scope.deadline = current_time(), inf
        try:
            yield
        finally:
            self._end += current_time() - begun
            self.renew()


class Unasked:
    """Counts the messages of a server that answer nothing."""

    def __init__(self) -> None:
        self._count, self._since = 0, current_time()

    def add(self) -> None:
        """Count one; raises ToolError if there were too many in a minute."""
        if current_time() - self._since > _MINUTE:
            self._count, self._since = 0, current_time()
        self._count += 1
        if self._count > MAX_UNASKED:
            raise ToolError(f"it sent more than {MAX_UNASKED:,} messages in a minute that answer nothing")
