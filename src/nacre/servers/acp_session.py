"""A session in an editor: its agent, its turns, and the updates and questions that the editor gets during them."""

from __future__ import annotations

import logging
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, Protocol, TypeVar

import anyio
from acp import RequestError, schema
from anyio.abc import TaskGroup
from msgspec.structs import replace

from nacre.agent.actor import UserMessage
from nacre.agent.ports import Answer, Approval, Event, Notice
from nacre.config import Settings
from nacre.errors import NacreError, SessionBusy, Stopped, ungroup
from nacre.history.message_text import text_of
from nacre.messages import Message
from nacre.render.text import visible_line
from nacre.runtime import App, Options, run_agent
from nacre.runtime.chat_start import opening_meta
from nacre.runtime.folder import open_folder
from nacre.servers.acp_params import BUSY, FAILED
from nacre.servers.acp_questions import ask_for_servers, ask_for_trust
from nacre.servers.acp_updates import Calls, Update, agent_text, thought

logger = logging.getLogger(__name__)

T = TypeVar("T")
_STOP_REASONS = {"length": "max_tokens", "steps": "max_turn_requests"}
"""By why an answer stopped. The protocol's "refusal" says that the prompt is forgotten, and no prompt is."""


class Server(Protocol):
    """What a session needs of the server that has it open."""

    settings: Settings
    options: Options
    tasks: TaskGroup

    async def tell(self, key: str, update: Update) -> None: ...

    async def ask(self, key: str, call: Any, options: list[Any]) -> str: ...


class _Cancelled(Exception):
    """The user cancelled instead of answering a question."""


class EditorSession:
    """One session that an editor has open: its folder, its mode, and its agent while that runs."""

    def __init__(self, server: Server, key: str, folder: Path, servers: dict[str, dict[str, Any]]) -> None:
        self.key, self.folder, self.mode = key, folder, server.options.mode
        self._server, self._offered = server, servers
        # None until the user was asked; then what of it may be used.
        self._accepted: dict[str, dict[str, Any]] | None = None
        self._app: App | None = None
        self._ended: anyio.Event | None = None
        self._end = anyio.Event()
        self.is_at_turn = False
        self._cancelled = anyio.Event()

    def cancel(self) -> None:
        """Stop the turn, if one runs."""
        if self.is_at_turn:
            self._cancelled.set()

    # ---- the agent

    async def start(self, update: _Updates) -> App:
        """The agent of this session; the first time its user is asked about the folder and the servers."""
        if self._app is not None and self._app.options.mode == self.mode:
            return self._app
        await self.close()
        if self._accepted is None:
            await ask_for_trust(self.folder, self._server.settings, self._confirm)
            self._accepted = await self._ask_for_servers()
        settings = self._server.settings
        table = {**settings.table("mcp"), **self._accepted}
        own = Settings({**settings.tables, "mcp": table}, settings.environ) if self._accepted else settings
        options = replace(self._server.options, folder=self.folder, mode=self.mode)
        self._end, self._ended = anyio.Event(), anyio.Event()
        # A task of its own enters and leaves it.
        run = partial(self._server.tasks.start, self._run, own, options, self._ended)
        app: App | NacreError = await self._unless_cancelled(run)
        if isinstance(app, NacreError):
            raise app
        self._app = app
        # The mode of this session may change during a turn: what is stricter then holds at once.
        app.mode_limit = lambda: self.mode
        for note in app.notes:
            update.put(Notice(note))
        return app

    async def close(self) -> None:
        """End the agent, if it runs."""
        app, ended = self._app, self._ended
        self._app = None
        if app is not None and ended is not None:
            self._end.set()
            await ended.wait()

    async def _run(
        self, settings: Settings, options: Options, ended: anyio.Event, *, task_status: anyio.abc.TaskStatus[Any]
    ) -> None:
        """Run the agent until it is closed; a failure to start is passed on as a value."""
        is_running = False
        try:
            async with run_agent(settings, options) as app:
                await app.check_model()
                is_running = True
                task_status.started(app)
                await self._end.wait()
        except Exception as error:  # one session's failure is not the others'
            found = ungroup(error)
            if is_running:
                logger.exception("the agent of a session failed", extra={"session": self.key})
                self._app = None
                return
            known = found if isinstance(found, NacreError) else NacreError(f"{type(found).__name__}: {found}")
            task_status.started(known)
        finally:
            ended.set()

    # ---- questions

    async def _ask_for_servers(self) -> dict[str, dict[str, Any]]:
        settings = self._server.settings
        if self._offered and not open_folder(self.folder, settings).is_trusted:
            await self._server.tell(self.key, thought("(MCP servers are not used in a folder that is not trusted)\n"))
            return {}
        return await ask_for_servers(self._offered, configured=settings.table("mcp"), confirm=self._confirm)

    async def _confirm(self, title: str, texts: Sequence[str], *, yes: str, no: str, kind: Any) -> bool:
        call = schema.ToolCallUpdate(
            tool_call_id=f"question:{uuid.uuid4().hex[:8]}",
            title=title,
            kind="other",
            status="pending",
            content=[
                schema.ContentToolCallContent(type="content", content=schema.TextContentBlock(type="text", text=text))
                for text in texts
            ],
        )
        options = [
            schema.PermissionOption(option_id="yes", name=yes, kind=kind),
            schema.PermissionOption(option_id="no", name=no, kind="reject_once"),
        ]
        return await self._question(call, options) == "yes"

    # ---- turns

    async def prompt(self, content: str | list[Any]) -> str:
        """Answer a message; returns why the turn ended."""
        if self.is_at_turn:
            raise RequestError(BUSY, f"session {self.key!r} is at another prompt: cancel it, or wait for its end")
        self.is_at_turn, self._cancelled = True, anyio.Event()
        try:
            async with _updates(self._server, self.key) as update:
                answer = await self._answer(content, update)
        except (_Cancelled, Stopped):
            return "cancelled"
        except SessionBusy as error:
            problem = f"another program is at a turn of session {self.key!r}: wait for its end ({error})"
            raise RequestError(BUSY, problem) from error
        except NacreError as error:
            raise RequestError(FAILED, str(error)) from error
        finally:
            self.is_at_turn = False
        if self._cancelled.is_set():
            return "cancelled"
        stopped = answer.extra.get("stopped") if answer is not None else None
        return _STOP_REASONS.get(str(stopped), "end_turn")

    async def _answer(self, content: str | list[Any], update: _Updates) -> Message | None:
        app = await self.start(update)
        if self._cancelled.is_set():
            raise _Cancelled
        update.calls = Calls(uuid.uuid4().hex[:8], folder=str(self.folder), preview=app.grounds.preview)
        text = content if isinstance(content, str) else str(content[-1].get("text", ""))
        meta = opening_meta(app.sessions, self.key, cwd=str(self.folder), text=text)
        inbound = UserMessage(key=self.key, content=content, sender="editor", meta=meta)
        answer: Message | None = None
        failure: NacreError | None = None
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._stop_when_cancelled, app)
                try:
                    answer = await app.kernel.deliver(inbound, emit=update.put, ask=self._ask_with(update))
                except NacreError as error:
                    failure = error
                tasks.cancel_scope.cancel()
        finally:
            for one in update.calls.end_all():
                update.add(one)
        if failure is not None:
            raise failure
        if answer is not None and answer.extra.get("stopped") in {"steps", "repeated"}:
            # A mark of ours instead of an answer, which no model has said.
            update.add(agent_text(text_of(answer)))
        return answer

    async def _stop_when_cancelled(self, app: App) -> None:
        """Stop the turn once the user cancelled; before it has begun there is nothing to stop yet."""
        await self._cancelled.wait()
        while not app.kernel.stop(self.key):  # noqa: ASYNC110 - that it has begun is no event
            await anyio.sleep(0.02)

    async def _question(self, call: schema.ToolCallUpdate, options: list[schema.PermissionOption]) -> str:
        """Ask the editor's user; the chosen option. Raises _Cancelled, also if the editor leaves it open."""
        answer = await self._unless_cancelled(partial(self._server.ask, self.key, call, options))
        if not answer:
            raise _Cancelled
        return answer

    async def _unless_cancelled(self, step: Callable[[], Awaitable[T]]) -> T:
        """What a step gives; once the user cancelled it is ended, and _Cancelled raised."""
        results: list[T] = []
        failure: Exception | None = None
        async with anyio.create_task_group() as tasks:

            async def give_up() -> None:
                await self._cancelled.wait()
                tasks.cancel_scope.cancel()

            tasks.start_soon(give_up)
            try:
                results.append(await step())
            except Exception as error:  # noqa: BLE001 - it is raised below, and not as a group
                failure = error
            tasks.cancel_scope.cancel()
        if failure is not None:
            raise failure
        if not results:
            raise _Cancelled
        return results[0]

    def _ask_with(self, update: _Updates) -> Any:
        async def ask(approval: Approval) -> Answer:
            """Ask the editor's user about a call, after everything that happened before was shown."""
            begun, call = update.calls.ask(approval)
            for one in begun:
                update.add(one)
            await update.flush()
            options = [schema.PermissionOption(option_id="yes", name="Allow once", kind="allow_once")]
            if approval.always:
                where = "in this folder" if approval.scope == "folder" else "in this session"
                wanted = f", as the skill {visible_line(approval.skill)} wants" if approval.skill else ""
                rules = ", ".join(map(visible_line, approval.always))
                name = f"Always {where}{wanted}: {rules}"
                options.append(schema.PermissionOption(option_id="always", name=name, kind="allow_always"))
            options.append(schema.PermissionOption(option_id="no", name="Reject", kind="reject_once"))
            try:
                answer = await self._question(call, options)
            except _Cancelled:
                # The turn is stopped while it waits here, so that nothing more comes of it.
                self.cancel()
                await anyio.sleep_forever()
                return "no"
            if answer not in {"yes", "always"} or (answer == "always" and not approval.always):
                return "no"
            if approval.session:
                # No event says that a call of a delegated task begins.
                for one in update.calls.begin(approval.call, session=approval.session, status="in_progress"):
                    update.add(one)
            return "always" if answer == "always" else "yes"

        return ask


class _Updates:
    """What the editor gets during a prompt, in order."""

    def __init__(self, server: Server, key: str) -> None:
        self._server, self._key = server, key
        self._waiting: list[Update] = []
        self._sending = anyio.Lock()
        self._news = anyio.Event()
        self.calls = Calls("0", folder="", preview=lambda _: None)

    def put(self, event: Event) -> None:
        for one in self.calls.updates(event):
            self.add(one)

    def add(self, update: Update) -> None:
        self._waiting.append(update)
        self._news.set()

    async def flush(self) -> None:
        """Come back when all of it is sent; if the editor is gone, the turn goes on without it."""
        async with self._sending:
            while self._waiting:
                await self._server.tell(self._key, self._waiting.pop(0))

    async def pump(self) -> None:
        while True:
            await self._news.wait()
            self._news = anyio.Event()
            await self.flush()


@asynccontextmanager
async def _updates(server: Server, key: str) -> AsyncIterator[_Updates]:
    """Updates that are sent as they come; at the end of the block all were."""
    found, failure = _Updates(server, key), None
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(found.pump)
        try:
            yield found
        except Exception as error:  # noqa: BLE001 - it is raised below, and not as a group
            failure = error
        await found.flush()
        tasks.cancel_scope.cancel()
    if failure is not None:
        raise failure
