"""MCP servers: each is started when it is first needed, and again when it has died; and logging in to them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeVar

import anyio
import msgspec
from anyio import CancelScope, Lock, create_task_group, fail_after, to_thread
from anyio.abc import TaskGroup
from msgspec.structs import replace

from nacre.agent.ports import Scene, Tool
from nacre.errors import ConfigError, ToolError, install_command
from nacre.tools.mcp.client_types import (
    Closed,
    Config,
    Deadline,
    Forgotten,
    Gone,
    Login,
    LoginNeeded,
    Offer,
    Prompt,
    Show,
    TokenFile,
    start_program,
)

if TYPE_CHECKING:
    from mcp.client import Client

    from nacre.tools.mcp.connection import Connection

T = TypeVar("T")
Accepts = Callable[[str], bool]
"""Whether a tool of this name is wanted."""


def login_from(folder: Path) -> Login:
    """Log in with the tokens that are in a folder; where a person is needed, raise LoginNeeded."""

    def login(config: Config) -> Any:
        from nacre.tools.mcp.oauth import silent_login  # noqa: PLC0415 - it needs the package

        return silent_login(config, TokenFile(folder, config))

    return login


# ---- servers


class Server:
    """One configured server.

    A call that was under way when the server died fails and is not repeated: it may have been done.
    """

    def __init__(self, config: Config, *, login: Login = lambda _: None) -> None:
        self.config = config.resolve()
        self.name = config.name
        self._login = login
        self.tasks: TaskGroup | None = None  # where connections are kept open
        self._connection: Connection | None = None
        self._starting = Lock()
        self._is_legacy = False
        self.on_change: Callable[[], Awaitable[None]] = anyio.lowlevel.checkpoint

    async def offer(self) -> Offer:
        """What the server offers now; raises ToolError if it cannot be asked."""
        await self._open()
        from nacre.tools.mcp.offers import offer_of  # noqa: PLC0415 - it needs the package, which is loaded now

        return await offer_of(self)

    async def use(
        self, act: Callable[[Client], Awaitable[T]], *, deadline: Deadline | None = None, scene: Scene | None = None
    ) -> T:
        """Ask the server, starting it first if need be; raises ToolError, which says what the server is called."""
        for is_last in (False, True):
            connection = await self._open()
            try:
                return await connection.ask(act, deadline or Deadline(self.config.start_timeout), scene)
            except TimeoutError as error:
                raise ToolError(f"the MCP server {self.name!r} did not answer in time; it was asked to stop") from error
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

    async def _open(self) -> Connection:
        """The connection, opened again if it has ended."""
        async with self._starting:
            if self._connection is not None and self._connection.is_open:
                return self._connection
            await self.close()
            try:
                if find_spec("mcp") is None:
                    raise ToolError(f"MCP servers need another package: {install_command('mcp')}")  # noqa: TRY301 - as below
                try:
                    self._connection = await self._connect()
                except (Forgotten, Closed) as error:
                    # Some programs end when they are asked anything before the handshake of the older protocol.
                    if isinstance(error, Closed):
                        if self._is_legacy or not self.config.command:
                            raise
                        self._is_legacy = True
                    self._connection = await self._connect()
            except LoginNeeded:
                raise
            except (TimeoutError, OSError, ValueError, ToolError) as error:
                # A ValueError is about what was configured: a NUL in an argument, half of an IPv6 address.
                reason = str(error) or f"no answer within {self.config.start_timeout:g} s"
                lacks = "reached" if self.config.url else "started"
                raise ToolError(f"the MCP server {self.name!r} cannot be {lacks}: {reason}") from error
            return self._connection

    async def _connect(self) -> Connection:
        if self.tasks is None:
            raise ToolError("it is used outside of `Servers`")
        program = await start_program(self.config) if self.config.command else None
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
            await self.tasks.start(connection.run, lambda: self.on_change())  # noqa: PLW0108 - it is set later
        return connection


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
            server.tasks = self._tasks
        return self

    async def __aexit__(self, *_: object) -> None:
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
        found: dict[str, Offer | ToolError] = {}

        async def ask(server: Server) -> None:
            try:
                found[server.name] = await server.offer()
            except ToolError as error:
                found[server.name] = error

        async with create_task_group() as asking:
            for server in self._servers:
                asking.start_soon(ask, server)
        answers = [(server.name, found[server.name]) for server in self._servers]
        offers = {name: one for name, one in answers if isinstance(one, Offer)}
        return offers, [str(one) for _, one in answers if isinstance(one, ToolError)]

    def follow(
        self, offers: dict[str, Offer], tools: dict[str, Tool], prompts: dict[str, Prompt], *, accepts: Accepts
    ) -> None:
        """Change tools and prompts in place when a server says that its own have changed; `offers` is how they are."""

        async def renew(server: Server) -> None:
            new, old = await server.offer(), offers.get(server.name, Offer((), {}))
            # Only its own: a name may have been another's first.
            for tool in old.tools:
                if tools.get(tool.spec.name) is tool:
                    del tools[tool.spec.name]
            for command, prompt in old.prompts.items():
                if prompts.get(command) is prompt:
                    del prompts[command]
            offers[server.name] = new
            for tool in new.tools:
                if accepts(tool.spec.name):
                    tools.setdefault(tool.spec.name, tool)
            for command, prompt in new.prompts.items():
                prompts.setdefault(command, prompt)

        for server in self._servers:
            server.on_change = partial(renew, server)


def servers_of(table: Mapping[str, Mapping[str, Any]], *, login: Login = lambda _: None) -> list[Server]:
    """The servers of a section of the configuration; raises ConfigError."""
    try:
        configs = [msgspec.convert({**entry, "name": name}, Config) for name, entry in table.items()]
    except msgspec.ValidationError as error:
        raise ConfigError(f"an MCP server of the configuration cannot be read: {error}") from error
    return [Server(config, login=login) for config in configs]


async def log_in(config: Config, file: TokenFile, *, show: Show, port: int = 0) -> tuple[bool, list[str]]:
    """Let the user log in to a server; gives whether it wanted that, and the names of its tools. Raises ToolError."""
    from nacre.tools.mcp.oauth import SECONDS_FOR_A_PERSON, Interactive  # noqa: PLC0415 - it needs the package

    # A person may take their time; the server still has its own.
    patient = replace(config, start_timeout=config.start_timeout + SECONDS_FOR_A_PERSON)
    async with Interactive(config, file, show=show, port=port) as login:
        server = Server(patient, login=lambda _: login.auth)
        async with Servers([server]):
            offer = await server.offer()
        return login.is_done, [tool.spec.name for tool in offer.tools]
