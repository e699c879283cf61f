"""What the parts of the MCP client share: the settings of a server, what it offers, errors, limits, deadlines."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from math import inf
from types import TracebackType
from typing import Any, NamedTuple, Protocol
from urllib.parse import urlsplit

from anyio import CancelScope, current_time
from msgspec import Struct
from msgspec.structs import replace

from nacre.agent.ports import Tool
from nacre.errors import ConfigError, ToolError

MAX_BYTES = 64 * 1024 * 1024
"""The longest message, and the most that one response over HTTP may have, a stream of events too."""
MAX_UNSOLICITED = 10_000
"""The most messages in a minute that answer nothing."""
MAX_TIMEOUTS = 10
"""How many times its timeout a call may take that reports progress."""
_MINUTE = 60
_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
_ODD = re.compile(r"[^a-zA-Z0-9_-]+")


class Config(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A server: a program to start (`command`), or an address (`url`).

    `client_id`, `client_secret`, `scope` and `callback_port` are for a server that people log in to and that does not
    register clients by itself.
    """

    name: str
    command: str = ""
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = {}
    url: str = ""
    headers: Mapping[str, str] = {}
    timeout: float = 60
    start_timeout: float = 30
    client_id: str = ""
    client_secret: str = ""
    scope: str = ""
    callback_port: int = 0

    def checked(self) -> Config:
        """The same with `${VARIABLE}` replaced from our environment; raises ConfigError for what cannot work."""
        where = f"the MCP server {self.name!r}"
        if bool(self.command) == bool(self.url):
            raise ConfigError(f"{where} needs a command or a url, and not both")
        if self.url and (urlsplit(self.url).scheme not in {"http", "https"} or not urlsplit(self.url).hostname):
            raise ConfigError(f"{where} needs a url that begins with http:// or https://, not {self.url!r}")
        if self.timeout <= 0 or self.start_timeout <= 0:
            raise ConfigError(f"{where} needs a timeout and a start_timeout of more than 0 seconds")

        def value(found: re.Match[str]) -> str:
            try:
                return os.environ[found[1]]
            except KeyError:
                raise ConfigError(f"{where} needs the variable {found[1]}: it is not set") from None

        return replace(
            self,
            env={name: _VARIABLE.sub(value, text) for name, text in self.env.items()},
            headers={name: _VARIABLE.sub(value, text) for name, text in self.headers.items()},
            client_secret=_VARIABLE.sub(value, self.client_secret),
        )


Login = Callable[[Config], Any]
"""Who proves to a server who we are: gives an `httpx2.Auth`, or None."""


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


class Deadline:
    """How long an answer is waited for: `seconds`, again after each sign of progress, but not for ever."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    def __enter__(self) -> None:
        now = current_time()
        self._end = now + self._seconds * MAX_TIMEOUTS
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
    def pause(self) -> Iterator[None]:
        """Stop the clock while a person takes their time."""
        begun, self._scope.deadline = current_time(), inf
        try:
            yield
        finally:
            self._end += current_time() - begun
            self.renew()


class UnsolicitedCounter:
    """Counts the messages of a server that answer nothing."""

    def __init__(self) -> None:
        self._count, self._since = 0, current_time()

    def add(self) -> None:
        """Count one; raises ToolError if there were too many in a minute."""
        if current_time() - self._since > _MINUTE:
            self._count, self._since = 0, current_time()
        self._count += 1
        if self._count > MAX_UNSOLICITED:
            raise ToolError(f"it sent more than {MAX_UNSOLICITED:,} messages in a minute that answer nothing")
