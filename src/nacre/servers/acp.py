"""The agent in editors: nacre as an agent of the Agent Client Protocol, by the official SDK.

A session of an editor is an ordinary session of the store. Its agent is started by its first prompt: only then does
the editor know the session, and can its user be asked whether the folder is trusted and which programs may start.
"""

from __future__ import annotations

import logging
import signal
from collections.abc import Sequence
from contextlib import nullcontext, suppress
from datetime import UTC
from typing import Any, get_args

import acp.connection
import anyio
from acp import RequestError, schema
from acp.agent.connection import AgentSideConnection
from anyio.abc import TaskGroup, TaskStatus

import nacre
from nacre.config import Settings
from nacre.errors import NacreError
from nacre.keys import is_internal
from nacre.runtime import Options
from nacre.runtime.app import Mode
from nacre.runtime.chat_start import new_key
from nacre.runtime.folder import open_folder
from nacre.servers.acp_params import BUSY, NOT_FOUND, invalid, read_folder, read_prompt, read_servers
from nacre.servers.acp_session import EditorSession
from nacre.servers.acp_updates import Update, replay
from nacre.servers.stdio import take_stdio
from nacre.sessions import Sessions
from nacre.tools.foreign_spans import ForeignSpans

logger = logging.getLogger(__name__)

PROTOCOL = 1
MODES = (
    schema.SessionMode(id="ask", name="Ask", description="Asks before it changes files or runs commands"),
    schema.SessionMode(id="read-only", name="Read only", description="Changes nothing"),
    schema.SessionMode(id="yolo", name="Yolo", description="Allows everything that runs inside the sandbox"),
)
_PAGE = 50
_ENDING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_STOPPING = 10.0
"""Seconds that turns have to end in, once the editor is gone."""
_SPANS = ForeignSpans(acp.connection, span_context=lambda *_, **__: nullcontext())


class AcpAgent:
    """What an editor can ask for; the names of the methods are those of the SDK."""

    def __init__(self, sessions: Sessions, settings: Settings, options: Options, tasks: TaskGroup) -> None:
        self.sessions, self.settings, self.options, self.tasks = sessions, settings, options, tasks
        self._open: dict[str, EditorSession] = {}
        self._editor: Any = None

    def on_connect(self, conn: Any) -> None:
        self._editor = conn

    async def initialize(self, **_: Any) -> schema.InitializeResponse:
        """Say what we can do; an editor of a later version decides whether ours will do."""
        capabilities = schema.AgentCapabilities(
            load_session=True,
            prompt_capabilities=schema.PromptCapabilities(image=True, audio=False, embedded_context=True),
            mcp_capabilities=schema.McpCapabilities(http=True, sse=False),
            session_capabilities=schema.SessionCapabilities(
                list=schema.SessionListCapabilities(),
                resume=schema.SessionResumeCapabilities(),
                close=schema.SessionCloseCapabilities(),
            ),
        )
        return schema.InitializeResponse(
            protocol_version=PROTOCOL,
            agent_capabilities=capabilities,
            agent_info=schema.Implementation(name="nacre", title="nacre", version=nacre.__version__),
            auth_methods=[],
        )

    async def authenticate(self, method_id: str, **_: Any) -> None:
        raise invalid(f"there is nothing to log in to, so no method {method_id!r:.100}")

    async def new_session(self, cwd: str, mcp_servers: Any = None, **_: Any) -> schema.NewSessionResponse:
        folder, servers = read_folder(cwd), read_servers(mcp_servers or ())
        key = new_key()
        session = self._open[key] = EditorSession(self, key, folder, servers)
        return schema.NewSessionResponse(session_id=key, modes=_modes(session))

    async def load_session(
        self, cwd: str, session_id: str, mcp_servers: Any = None, **_: Any
    ) -> schema.LoadSessionResponse:
        session = await self._resume(cwd, session_id, mcp_servers)
        now = await anyio.to_thread.run_sync(self.sessions.snapshot, session_id)
        # Earlier calls ran in the folder of the session, which need not be the one that it is opened in now.
        folder = now.meta.get("cwd")
        for update in replay(now.messages, summary=now.summary, folder=folder if isinstance(folder, str) else ""):
            await self.tell(session_id, update)
        return schema.LoadSessionResponse(modes=_modes(session))

    async def resume_session(
        self, session_id: str, cwd: str, mcp_servers: Any = None, **_: Any
    ) -> schema.ResumeSessionResponse:
        return schema.ResumeSessionResponse(modes=_modes(await self._resume(cwd, session_id, mcp_servers)))

    async def _resume(self, cwd: str, key: str, mcp_servers: Any) -> EditorSession:
        """Open a session that is stored, or that this editor began."""
        folder, servers = read_folder(cwd), read_servers(mcp_servers or ())
        is_stored = False
        with suppress(NacreError):
            is_stored = not is_internal(key) and self.sessions.status(key) == "active"
        before = self._open.get(key)
        if not is_stored and before is None:
            problem = f"there is no active session {key!r:.200}: `nacre sessions list` lists them"
            raise RequestError(NOT_FOUND, problem)
        if before is not None and before.is_at_turn:
            raise RequestError(BUSY, f"session {key!r} is at a prompt: cancel it, or wait for its end")
        # At once: a prompt that comes while the earlier agent ends must not start that again.
        session = self._open[key] = EditorSession(self, key, folder, servers)
        if before is not None:
            await before.close()
        return session

    async def list_sessions(
        self, cwd: str | None = None, cursor: str | None = None, **_: Any
    ) -> schema.ListSessionsResponse:
        """The sessions that have a folder: chats at a terminal and in editors."""
        folder = str(read_folder(cwd, must_exist=False)) if cwd is not None else None

        def read() -> tuple[list[Any], str | None]:
            page = self.sessions.page(folder=folder, cursor=cursor, limit=_PAGE)
            return list(page.items), page.cursor

        try:
            items, following = await anyio.to_thread.run_sync(read)
        except NacreError as error:
            raise invalid(str(error)) from error
        found = [
            schema.SessionInfo(
                session_id=info.key,
                cwd=info.cwd,
                title=info.title or None,
                updated_at=info.updated.astimezone(UTC).isoformat(),
            )
            for info in items
            if info.cwd and (folder is None or info.cwd == folder) and not info.meta.get("parent")
        ]
        return schema.ListSessionsResponse(sessions=found, next_cursor=following)

    async def set_session_mode(self, session_id: str, mode_id: str, **_: Any) -> schema.SetSessionModeResponse:
        """Set what the agent may do: what is stricter holds at once, what is looser from the next prompt on."""
        session = self._session(session_id)
        if mode_id not in get_args(Mode):
            raise invalid(f"there is no mode {mode_id!r:.100}; there are: {', '.join(get_args(Mode))}")
        if mode_id == "yolo" and not open_folder(session.folder, self.settings).is_trusted:
            raise invalid(f"yolo needs a folder that you trust, and {session.folder} is none: trust it first")
        session.mode = mode_id  # type: ignore[assignment] # it is one of them
        return schema.SetSessionModeResponse()

    async def prompt(self, session_id: str, prompt: Sequence[Any], **_: Any) -> schema.PromptResponse:
        session = self._session(session_id)
        reason: Any = await session.prompt(read_prompt(prompt))
        return schema.PromptResponse(stop_reason=reason)

    async def cancel(self, session_id: str, **_: Any) -> None:
        if (session := self._open.get(session_id)) is not None:
            session.cancel()

    async def close_session(self, session_id: str, **_: Any) -> schema.CloseSessionResponse:
        """End what runs for a session; what was stored stays."""
        session = self._session(session_id)
        # At once: nothing more may begin in it while its turn and its agent end.
        del self._open[session_id]
        await self._stop([session])
        await session.close()
        return schema.CloseSessionResponse()

    async def close(self) -> None:
        """Stop every turn, so that its log says so, and end every agent."""
        await self._stop(list(self._open.values()))
        for session in self._open.values():
            await session.close()

    async def _stop(self, sessions: Sequence[EditorSession]) -> None:
        for session in sessions:
            session.cancel()
        with anyio.move_on_after(_STOPPING):
            while any(session.is_at_turn for session in sessions):  # noqa: ASYNC110 - few, and soon
                await anyio.sleep(0.02)

    # ---- for sessions

    async def tell(self, key: str, update: Update) -> None:
        """Tell the editor something; nothing happens if it is gone."""
        with suppress(ConnectionError):
            await self._editor.session_update(session_id=key, update=update)

    async def ask(self, key: str, call: Any, options: list[Any]) -> str:
        """Ask the editor's user; the chosen option, "no" if the editor cannot ask, "" if it cancelled or is gone."""
        try:
            response = await self._editor.request_permission(session_id=key, tool_call=call, options=options)
        except ConnectionError:
            return ""
        except (RequestError, ValueError) as error:
            # An error, or something that is no answer: nobody allowed it.
            logger.warning("the editor did not answer a question", extra={"error": type(error).__name__})
            return "no"
        outcome = response.outcome
        return str(outcome.option_id) or "no" if isinstance(outcome, schema.AllowedOutcome) else ""

    def _session(self, key: str) -> EditorSession:
        if (found := self._open.get(key)) is None:
            problem = f"session {key!r:.200} is not open here: begin with session/new or session/load"
            raise RequestError(NOT_FOUND, problem)
        return found


async def serve_stdio(sessions: Sessions, settings: Settings, options: Options) -> None:
    """Serve the editor at stdin and stdout until it is gone, or a signal ends this process."""
    with _SPANS.off():
        async with anyio.create_task_group() as tasks:
            agent = AcpAgent(sessions, settings, options, tasks)
            connection = AgentSideConnection(agent, take_stdio(), listening=False, use_unstable_protocol=True)  # type: ignore[arg-type] # some methods are optional
            listening = anyio.CancelScope()

            async def end_at_signal(*, task_status: TaskStatus[None]) -> None:
                with anyio.open_signal_receiver(*_ENDING) as signals:
                    task_status.started()
                    async for _ in signals:
                        break
                # A second one ends the process at once.
                signal.signal(signal.SIGINT, signal.SIG_DFL)
                listening.cancel()

            await tasks.start(end_at_signal)
            try:
                with listening:
                    await connection.listen()
            finally:
                with anyio.CancelScope(shield=True):
                    await agent.close()
                    await connection.close()
            tasks.cancel_scope.cancel()


def _modes(session: EditorSession) -> schema.SessionModeState:
    return schema.SessionModeState(current_mode_id=session.mode, available_modes=list(MODES))
