"""A connection to an MCP server: the package's client, kept open by a task of its own.

The client's contexts must be left by the task that entered them, while calls come from the tasks of many sessions and
any of them may be the first. So one task enters, waits until the connection is to end, and leaves.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TypeVar

import anyio
import mcp
from anyio import Event, create_task_group, move_on_after
from anyio.abc import TaskStatus
from mcp.client import Client
from mcp.client.session import ClientRequestContext
from mcp.client.subscriptions import SubscriptionLost
from mcp.shared import jsonrpc_dispatcher
from mcp.shared.exceptions import MCPError
from mcp.types import CONNECTION_CLOSED, INVALID_REQUEST, ElicitRequestFormParams, ElicitResult, Implementation
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from opentelemetry.trace import INVALID_SPAN, Span
from pydantic import ValidationError

from nacre import __version__
from nacre.agent.ports import Notice, Scene
from nacre.errors import ToolError
from nacre.tools.foreign_spans import ForeignSpans
from nacre.tools.mcp import client_types
from nacre.tools.mcp.client_types import Closed, Config, Deadline, Forgotten, Gone, Login, LoginNeeded, Program
from nacre.tools.mcp.transports import connect_http, connect_program
from nacre.tools.tool_output import harmless

_CHANGES = (
    mcp.types.ToolListChangedNotification,
    mcp.types.PromptListChangedNotification,
    mcp.types.ResourceListChangedNotification,
)
_SECONDS_BETWEEN_CHANGES = 1
_SECONDS_TO_END = 8
_MAX_REASON = 500

T = TypeVar("T")

_PACKAGE = os.path.dirname(str(mcp.__file__)) + os.sep  # noqa: PTH120 - as the paths of log records are written
# The package logs messages, addresses and errors with their content; in part under a name that others use too.
logging.getLogger("mcp").setLevel(logging.CRITICAL + 1)
logging.getLogger("client").addFilter(lambda record: not record.pathname.startswith(_PACKAGE))


@contextmanager
def _no_span(*_: object, **__: object) -> Iterator[Span]:
    yield INVALID_SPAN


def _send_no_trace(_: object) -> None:
    """Leave what is sent as it is."""


_SPANS = ForeignSpans(jsonrpc_dispatcher, otel_span=_no_span, inject_trace_context=_send_no_trace)


class Connection:
    """A client that is open from `run`'s start to its end; once it has ended it is of no more use."""

    def __init__(self, config: Config, program: Program | None, *, login: Login, is_legacy: bool = False) -> None:
        self._name = config.name
        self._program = program
        self._scenes: list[tuple[Scene | None, Deadline]] = []
        self._is_over, self._ended, self._changed = Event(), Event(), Event()
        self._failure: BaseException | None = None
        self._unsolicited = client_types.FloodCounter()
        self.client = Client(
            connect_http(config, login)
            if program is None
            else connect_program(program, self._is_over.set, name=config.name),
            mode="legacy" if is_legacy else "auto",
            client_info=Implementation(name="nacre", version=__version__),
            message_handler=self._handle_message,
            elicitation_callback=self._elicit,
            # What a server offers is asked for when it may have changed, and then it is wanted as it is.
            cache=None,
        )

    @property
    def is_open(self) -> bool:
        return not self._is_over.is_set()

    async def run(self, on_change: Callable[[], Awaitable[None]], *, task_status: TaskStatus[None]) -> None:
        """Keep the connection open; raises what kept it from being opened, and nothing later."""
        is_started = False
        try:
            with _SPANS.off():
                async with self.client as client, create_task_group() as tasks:
                    # A result is shown as it is: to check it against a schema of the server can take any time.
                    object.__setattr__(client.session, "validate_tool_result", _accept)
                    tasks.start_soon(self._follow, on_change)
                    if client.protocol_version in MODERN_PROTOCOL_VERSIONS:
                        tasks.start_soon(self._listen)
                    is_started = True
                    task_status.started()
                    await self._is_over.wait()
                    tasks.cancel_scope.cancel()
            if self._program is not None and self._failure is None:
                self._failure = Closed(self._program.reason)
        except Exception as error:
            # Whatever breaks a connection is reported to those who wait for an answer.
            self._failure = _find_cause(error)
            if not is_started:
                raise self._reason() from error
        finally:
            self._is_over.set()
            self._ended.set()

    async def close(self) -> None:
        """End it, and wait until that is done."""
        self._is_over.set()
        with move_on_after(_SECONDS_TO_END):
            await self._ended.wait()

    async def ask(self, act: Callable[[Client], Awaitable[T]], deadline: Deadline, scene: Scene | None) -> T:
        """Ask the server; raises ToolError with the server's error, Gone, Forgotten, LoginNeeded or TimeoutError."""
        entry = (scene, deadline)
        self._scenes.append(entry)
        try:
            with _SPANS.off(), deadline.start():
                return await act(self.client)
            raise TimeoutError
        except MCPError as error:
            if error.code == CONNECTION_CLOSED and error.message == "Connection closed":
                with move_on_after(_SECONDS_TO_END):
                    await self._ended.wait()
                raise self._reason() from error
            if error.code == INVALID_REQUEST and error.message == "Session terminated":
                self._is_over.set()
                raise Forgotten("it forgets its sessions") from error
            if error.message.startswith("Failed to parse "):
                raise ToolError("it sent an answer that is not valid") from error  # the rest quotes it
            raise ToolError(harmless(error.message)[:_MAX_REASON] or f"error {error.code}") from error
        except ValidationError as error:
            raise ToolError(_fault(error)) from error
        except RuntimeError as error:
            raise ToolError(harmless(str(error))[:_MAX_REASON]) from error
        finally:
            self._scenes.remove(entry)

    def _reason(self) -> ToolError:
        """Why the connection ended."""
        match self._failure:
            case LoginNeeded() | Gone() | Forgotten() as error:
                return error
            case MCPError() as error if error.message == "Connection closed" and self._program is not None:
                return Closed(self._program.reason)
            case ValidationError() as error:
                return Gone(_fault(error))
            case None:
                return Gone("the connection was closed")
            case error:
                # What follows the first line may have values in it.
                text = str(error).partition("\n")[0] or type(error).__name__
                return Gone(harmless(text)[:_MAX_REASON])

    # ---- what the server says by itself

    async def _handle_message(self, message: object) -> None:
        try:
            self._unsolicited.add()
        except ToolError as error:
            self._failure = Gone(str(error))
            self._is_over.set()
        if isinstance(message, _CHANGES):
            self._changed.set()

    async def _listen(self) -> None:
        """Ask a server of the newer protocol to say when its tools change; the others do so by themselves."""
        wanted = self.client.server_capabilities
        tools = bool(wanted.tools and wanted.tools.list_changed)
        prompts = bool(wanted.prompts and wanted.prompts.list_changed)
        if tools or prompts:
            with suppress(MCPError, SubscriptionLost, TimeoutError):
                async with self.client.listen(tools_list_changed=tools, prompts_list_changed=prompts) as events:
                    async for _ in events:
                        self._changed.set()

    async def _follow(self, on_change: Callable[[], Awaitable[None]]) -> None:
        """Report changes, however many there are, once a second."""
        while True:
            await self._changed.wait()
            self._changed = Event()
            with suppress(ToolError):  # what was offered before is kept
                await on_change()
            await anyio.sleep(_SECONDS_BETWEEN_CHANGES)

    async def _elicit(
        self,
        context: ClientRequestContext,  # noqa: ARG002 - the package's shape
        params: mcp.types.ElicitRequestParams,
    ) -> ElicitResult:
        """Answer a question to the user: with its default values, if there are enough and the user agrees.

        There is no form here, and nobody is sent to an address that a server names.
        """
        scenes = [(scene, deadline) for scene, deadline in self._scenes if scene is not None]
        if len({scene.key for scene, _ in scenes}) != 1:
            return ElicitResult(action="decline")  # it may be about any session's call, and the answer is one user's
        scene, deadline = scenes[-1]
        question = harmless(params.message)[:_MAX_REASON]
        schema = params.requested_schema if isinstance(params, ElicitRequestFormParams) else None
        fields = (schema or {}).get("properties", {}).items()
        values = {name: field["default"] for name, field in fields if isinstance(field, dict) and "default" in field}
        if schema is None or any(name not in values for name in schema.get("required") or ()):
            scene.emit(Notice(f"{self._name} asked, and nobody could answer here: {question}"))
            return ElicitResult(action="decline")
        with deadline.pause():
            refusal = await scene.permit({"question": question, "answer": values})
        return ElicitResult(action="decline") if refusal else ElicitResult(action="accept", content=values)


async def _accept(*_: object) -> None:
    """Check nothing."""


def _fault(error: ValidationError) -> str:
    """What is wrong with an answer, without its values."""
    first = error.errors(include_url=False, include_context=False, include_input=False)[0]
    where = ".".join(str(part) for part in first["loc"])
    return harmless(f"it sent an answer that is not valid: {where}: {first['msg']}")[:_MAX_REASON]


def _find_cause(error: BaseException) -> BaseException:
    """The error in a group of them, or in a group within; what can be done about before all others."""
    if not isinstance(error, BaseExceptionGroup):
        return error
    found = [_find_cause(one) for one in error.exceptions]
    return next((one for one in found if isinstance(one, LoginNeeded | Forgotten)), found[0])
