"""What the parts of the MCP client share: a server's settings, offer, errors, limits, deadlines, and its program."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from hashlib import sha256
from math import inf
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import anyio
import msgspec
from anyio import BrokenResourceError, CancelScope, ClosedResourceError, current_time, move_on_after
from anyio.abc import ByteReceiveStream, ByteSendStream, Process
from msgspec import Struct
from msgspec.structs import replace

from nacre.agent.ports import Tool
from nacre.errors import ConfigError, ToolError
from nacre.user_files import locked, write_whole

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

    def resolve(self) -> Config:
        """The same with `${VARIABLE}` replaced from our environment; raises ConfigError for what cannot work."""
        where = f"the MCP server {self.name!r}"
        if bool(self.command) == bool(self.url):
            raise ConfigError(f"{where} needs a command or a url, and not both")
        try:
            address = urlsplit(self.url)
            is_address = address.scheme in {"http", "https"} and bool(address.hostname)
        except ValueError:
            is_address = False
        if self.url and not is_address:
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


class Prompt(Struct, frozen=True, kw_only=True):
    """A message of a server that the user sends by a command: its arguments, as in a usage line, and its use in a line.

    `message` gives its text and its images, as parts of a message; it raises ToolError for arguments that do not fit.
    """

    takes: str
    meaning: str
    message: Callable[[str], Coroutine[Any, Any, tuple[str, Sequence[dict[str, Any]]]]]


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
    """How long an answer is waited for: `seconds`, again after each sign of progress, but not forever."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    def start(self) -> CancelScope:
        """Start the clock; what runs in the scope is cancelled at the end."""
        now = current_time()
        self._end = now + self._seconds * MAX_TIMEOUTS
        self._scope = CancelScope(deadline=now + self._seconds)
        return self._scope

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


class FloodCounter:
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


# ---- the program of a server


_PASSED_ON = ("HOME", "LANG", "LC_ALL", "LOGNAME", "PATH", "SHELL", "TERM", "TMPDIR", "TZ", "USER")
_END_TIMEOUT = 2


class Program:
    """A running program; its output is read by the connection."""

    def __init__(self, process: Process, stdin: ByteSendStream, stdout: ByteReceiveStream) -> None:
        self._process = process
        self.stdin, self.stdout = stdin, stdout

    @property
    def reason(self) -> str:
        """Why it can no longer be asked."""
        status = self._process.returncode
        return "it closed its output" if status is None else f"its exit status is {status}"

    async def settle(self) -> None:
        """Wait a moment for the exit status of a program that has closed its output."""
        with move_on_after(_END_TIMEOUT):
            await self._process.wait()

    async def close(self) -> None:
        """Close its input, which asks it to end; then send a signal, then kill it."""
        with suppress(BrokenResourceError, ClosedResourceError, OSError):
            await self.stdin.aclose()
        for sign in (None, signal.SIGTERM, signal.SIGKILL):
            if sign is not None:
                self._kill(sign)
            with move_on_after(_END_TIMEOUT):
                await self._process.wait()
                break
        self._kill(signal.SIGKILL)
        await self._process.aclose()

    def _kill(self, sign: signal.Signals) -> None:
        """Send a signal to the program and to all that it started."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, sign)


async def start_program(config: Config) -> Program:
    """Start the program, with a small part of our environment and what the configuration adds; raises OSError."""
    environment = {name: os.environ[name] for name in _PASSED_ON if name in os.environ} | dict(config.env)
    process = await anyio.open_process(
        [config.command, *config.args],
        env=environment,
        stderr=subprocess.DEVNULL,
        # A Ctrl-C in the terminal is for us, not for it; and its children end with it.
        start_new_session=True,
    )
    if process.stdin is None or process.stdout is None:
        raise OSError("it has no input or output")
    return Program(process, process.stdin, process.stdout)


Show = Callable[[str], Awaitable[None]]
"""Show the user a page on which they log in."""

# ---- the file of a server's tokens


class Record(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The tokens, until when they are valid, the client that we were registered as, and where all that came from.

    `wanted` is a scope that the server asked for when nobody could be asked to agree.
    """

    tokens: dict[str, Any] | None = None
    expires: float | None = None
    client: dict[str, Any] | None = None
    issuer: dict[str, Any] | None = None
    resource: dict[str, Any] | None = None
    wanted: str = ""


class TokenFile:
    """The file of one server. Its name has a digest of the address: no other host is ever sent these tokens."""

    def __init__(self, folder: Path, config: Config) -> None:
        digest = sha256(f"{config.name}\n{config.url}".encode()).hexdigest()[:16]
        self._path = folder / f"{clean(config.name)[:40]}~{digest}.json"

    @property
    def stamp(self) -> tuple[int, int] | None:
        """What changes when the file does."""
        try:
            found = self._path.stat()
        except FileNotFoundError:
            return None
        return found.st_ino, found.st_mtime_ns

    def read(self) -> Record:
        """What is in the file; nothing if there is none, or none that can be read."""
        try:
            return msgspec.json.decode(self._path.read_bytes(), type=Record)
        except (FileNotFoundError, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return Record()

    def change(self, **fields: Any) -> None:
        """Replace some of it, durably; only the user may read the file."""
        with locked(self._path.parent):
            write_whole(self._path, msgspec.json.encode(msgspec.structs.replace(self.read(), **fields)))

    def erase(self) -> bool:
        """Remove it; False if there was none."""
        if not self._path.exists():
            return False
        with locked(self._path.parent):
            self._path.unlink(missing_ok=True)
        return True
