"""One MCP server: started when it is first needed, and again when it has died."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from math import inf
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, Self, TypeVar

import anyio
from anyio import CancelScope, Lock, create_task_group, current_time, fail_after, to_thread
from anyio.abc import TaskGroup

from nacre.agent.ports import Scene, Tool
from nacre.errors import ConfigError, ToolError, install_command
from nacre.tools.mcp.config import Config
from nacre.tools.mcp.process import start

if TYPE_CHECKING:
    from mcp.client import Client

    from nacre.tools.mcp.connection import Connection

T = TypeVar("T")


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


_MOST_TIMEOUTS = 10
"""How many times its timeout a call may take that tells of progress."""


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


def _no_login(_: Config) -> None:
    return None


class Patience:
    """How long an answer is waited for: `seconds`, again after each sign of progress, but not for ever."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    def __enter__(self) -> None:
        now = current_time()
        self._end = now + self._seconds * _MOST_TIMEOUTS
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


class Server:
    """One configured server.

    A call that was under way when the server died fails and is not repeated: it may have been done.
    """

    def __init__(self, config: Config, *, login: Login = _no_login) -> None:
        self.config = config.checked()
        self._login = login
        self._tasks: TaskGroup | None = None
        self._connection: Connection | None = None
        self._starting = Lock()
        self._is_legacy = False
        self.on_change: Callable[[], Awaitable[None]] = _nothing

    @property
    def name(self) -> str:
        return self.config.name

    def live_in(self, tasks: TaskGroup) -> None:
        """Keep connections open in a task group from now on."""
        self._tasks = tasks

    async def offer(self) -> Offer:
        """What the server offers now; raises ToolError if it cannot be asked."""
        await self._ready()
        from nacre.tools.mcp.offers import offer_of  # noqa: PLC0415 - it needs the package, which is loaded now

        return await offer_of(self)

    async def use(
        self,
        act: Callable[[Client], Awaitable[T]],
        *,
        patience: Patience | None = None,
        scene: Scene | None = None,
    ) -> T:
        """Ask the server, starting it first if need be; raises ToolError, which says what the server is called."""
        for is_last in (False, True):
            connection = await self._ready()
            waiting = patience or Patience(self.config.start_timeout)
            try:
                return await connection.ask(act, waiting, scene)
            except TimeoutError as error:
                raise ToolError(f"the MCP server {self.name!r} did not answer in time; it was told to stop") from error
            except LoginNeeded:
                raise
            except Gone as error:
                await self.close()
                raise ToolError(f"the MCP server {self.name!r} ended: {error}. It is not known what it did.") from error
            except ToolError as error:
                if isinstance(error, Forgotten) and not is_last:
                    await self.close()
                    continue
                raise ToolError(f"the MCP server {self.name!r}: {error}") from error
        raise AssertionError

    async def close(self) -> None:
        """End the connection; twice is harmless, and a later request opens one again."""
        connection, self._connection = self._connection, None
        if connection is not None:
            with CancelScope(shield=True):
                await connection.close()

    async def _ready(self) -> Connection:
        async with self._starting:
            if self._connection is None or not self._connection.is_open:
                await self.close()
                try:
                    self._connection = await self._started()
                except (TimeoutError, OSError, ToolError) as error:
                    if isinstance(error, LoginNeeded):
                        raise
                    reason = str(error) or f"no answer within {self.config.start_timeout:g} s"
                    lacks = "reached" if self.config.url else "started"
                    raise ToolError(f"the MCP server {self.name!r} cannot be {lacks}: {reason}") from error
            return self._connection

    async def _started(self) -> Connection:
        if find_spec("mcp") is None:
            raise ToolError(f"MCP servers need another package: {install_command('mcp')}")
        try:
            return await self._connected()
        except Forgotten:
            return await self._connected()
        except Closed:
            # Some programs end when they are asked anything before the handshake of the older protocol.
            if self._is_legacy or not self.config.command:
                raise
            self._is_legacy = True
            return await self._connected()

    async def _connected(self) -> Connection:
        if self._tasks is None:
            raise ToolError("it is used outside of `Servers`")
        program = await start(self.config) if self.config.command else None
        try:
            # The package takes a second to load: the program starts meanwhile.
            module = await to_thread.run_sync(import_module, "nacre.tools.mcp.connection")
        except BaseException:
            if program is not None:
                with CancelScope(shield=True):
                    await program.close()
            raise
        connection: Connection = module.Connection(self.config, program, login=self._login, is_legacy=self._is_legacy)
        with fail_after(self.config.start_timeout):
            await self._tasks.start(connection.run, self._change)
        return connection

    async def _change(self) -> None:
        await self.on_change()


class Servers:
    """Several servers, each connected when it is first needed; all are ended with the context."""

    def __init__(self, servers: Iterable[Server]) -> None:
        self._servers = list(servers)
        self._tasks: TaskGroup | None = None

    def __iter__(self) -> Iterator[Server]:
        return iter(self._servers)

    async def __aenter__(self) -> Self:
        self._tasks = await create_task_group().__aenter__()
        for server in self._servers:
            server.live_in(self._tasks)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        tasks, self._tasks = self._tasks, None
        if tasks is None:
            return
        with CancelScope(shield=True):
            async with create_task_group() as closing:
                for server in self._servers:
                    closing.start_soon(server.close)
        tasks.cancel_scope.cancel()
        # What was raised is the caller's own; the connections have nothing to add to it.
        await tasks.__aexit__(None, None, None)

    async def offers(self) -> tuple[dict[str, Offer], list[str]]:
        """What each server offers, in their order, and what is wrong with those that cannot be asked."""
        found: dict[str, Offer] = {}
        problems: dict[str, str] = {}

        async def ask(server: Server) -> None:
            try:
                found[server.name] = await server.offer()
            except ToolError as error:
                problems[server.name] = str(error)

        async with create_task_group() as asking:
            for server in self._servers:
                asking.start_soon(ask, server)
        names = [server.name for server in self._servers]
        return {name: found[name] for name in names if name in found}, [
            problems[name] for name in names if name in problems
        ]

    def follow(
        self,
        offers: dict[str, Offer],
        tools: dict[str, Tool],
        prompts: dict[str, Prompt],
        *,
        accepts: Callable[[str], bool],
    ) -> None:
        """Change tools and prompts in place when a server says that its own have changed; `offers` is how they are."""

        async def renew(server: Server) -> None:
            new, old = await server.offer(), offers.get(server.name, Offer((), {}))
            for tool in old.tools:
                tools.pop(tool.spec.name, None)
            for command in old.prompts:
                prompts.pop(command, None)
            offers[server.name] = new
            for tool in new.tools:
                if accepts(tool.spec.name):
                    tools.setdefault(tool.spec.name, tool)
            prompts.update(new.prompts)

        for server in self._servers:
            server.on_change = partial(renew, server)


def login_from(folder: Path) -> Login:
    """Log in with the tokens that are in a folder; where a person is needed, raise LoginNeeded."""

    def login(config: Config) -> Any:
        from nacre.tools.mcp.oauth import silent  # noqa: PLC0415 - it needs the package
        from nacre.tools.mcp.tokens import TokenFile  # noqa: PLC0415 - the same

        return silent(config, TokenFile(folder, config))

    return login


def servers_of(table: Mapping[str, Mapping[str, Any]], *, login: Login = _no_login) -> list[Server]:
    """The servers of a section of the configuration; raises ConfigError."""
    import msgspec  # noqa: PLC0415 - beside its only use

    try:
        configs = [msgspec.convert({**entry, "name": name}, Config) for name, entry in table.items()]
    except msgspec.ValidationError as error:
        raise ConfigError(f"an MCP server of the configuration cannot be read: {error}") from error
    return [Server(config, login=login) for config in configs]


async def _nothing() -> None:
    await anyio.lowlevel.checkpoint()
