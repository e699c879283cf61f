"""`nacre acp` as an editor starts it: a process, pipes, the official client, and a model server with a script."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from acp import connect_to_agent, schema

LIMIT = 64 * 1024 * 1024


class Model:
    """A server with the interface of OpenAI that answers one step of a script per request.

    A piece of a step is a text, {"thinks": …}, {"call": name, …arguments}, {"reach": event} which is set then,
    {"wait": event}, or {"finish": reason}. The calls of each answer are numbered from the start, as some servers do.
    """

    def __init__(self) -> None:
        self.script: list[list[Any]] = []
        self.requests: list[dict[str, Any]] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def log_message(self, *_: Any) -> None:
                pass

            def do_GET(self) -> None:
                self._send({"object": "list", "data": [{"id": "scripted", "object": "model"}]})

            def do_POST(self) -> None:
                given = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                outer.requests.append(given)
                step = outer.script.pop(0) if outer.script else ["(the script is over)"]
                self.send_response(200)
                self.send_header("Content-Type", "text/event-stream")
                self.end_headers()
                with suppress(OSError):
                    for chunk in _chunks(step, len(outer.requests)):
                        self.wfile.write(f"data: {chunk}\n\n".encode())
                        self.wfile.flush()

            def _send(self, document: Any) -> None:
                data = json.dumps(document).encode()
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}/v1"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


def _chunks(step: list[Any], number: int) -> Iterator[str]:
    def chunk(delta: dict[str, Any], finish: str | None = None) -> str:
        choice = {"index": 0, "delta": delta, "finish_reason": finish}
        return json.dumps({"id": f"r{number}", "object": "chat.completion.chunk", "choices": [choice]})

    calls, finish = 0, ""
    for piece in step:
        if isinstance(piece, str):
            yield chunk({"content": piece})
        elif "thinks" in piece:
            yield chunk({"reasoning_content": piece["thinks"]})
        elif "reach" in piece:
            piece["reach"].set()
        elif "wait" in piece:
            piece["wait"].wait(60)
        elif "finish" in piece:
            finish = piece["finish"]
        else:
            arguments = json.dumps({name: value for name, value in piece.items() if name != "call"})
            function = {"name": piece["call"], "arguments": arguments}
            yield chunk(
                {"tool_calls": [{"index": calls, "id": f"call_{calls}", "type": "function", "function": function}]}
            )
            calls += 1
    yield chunk({}, finish or ("tool_calls" if calls else "stop"))
    yield "[DONE]"


class Editor:
    """A client of the SDK that keeps what it is told, and answers questions as `answers` says by their title."""

    def __init__(self) -> None:
        self.updates: list[Any] = []
        self.questions: list[Any] = []
        self.answer: Callable[[Any, list[Any]], str | None] = lambda call, options: "yes"
        self.may_answer = asyncio.Event()
        self.may_answer.set()
        self.news = asyncio.Event()
        self.process: Any = None
        self.agent: Any = None

    async def request_permission(self, session_id: str, tool_call: Any, options: list[Any], **_: Any) -> Any:
        self.questions.append((tool_call, options))
        self.news.set()
        await self.may_answer.wait()
        chosen = self.answer(tool_call, options)
        if chosen is None:
            return schema.RequestPermissionResponse(outcome=schema.DeniedOutcome(outcome="cancelled"))
        return schema.RequestPermissionResponse(outcome=schema.AllowedOutcome(outcome="selected", option_id=chosen))

    async def session_update(self, session_id: str, update: Any, **_: Any) -> None:
        self.updates.append(update)
        self.news.set()

    def on_connect(self, conn: Any) -> None:
        pass

    def of(self, kind: str) -> list[Any]:
        return [update for update in self.updates if update.session_update == kind]

    @property
    def cards(self) -> dict[str, Any]:
        """The calls as they are shown now: how each began, with the updates that came since."""
        found = {start.tool_call_id: start.model_copy() for start in self.of("tool_call")}
        assert len(found) == len(self.of("tool_call"))
        for update in self.of("tool_call_update"):
            for field in ("title", "status", "content"):
                if (value := getattr(update, field)) is not None:
                    setattr(found[update.tool_call_id], field, value)
        return found

    def text(self, kind: str = "agent_message_chunk") -> str:
        return "".join(getattr(update.content, "text", "") for update in self.of(kind))

    async def until(self, check: Callable[[], object]) -> None:
        while not check():
            self.news.clear()
            await asyncio.wait_for(self.news.wait(), 30)

    async def ask(self, key: str, *words: Any) -> str:
        blocks = [schema.TextContentBlock(type="text", text=one) if isinstance(one, str) else one for one in words]
        response = await asyncio.wait_for(self.agent.prompt(session_id=key, prompt=blocks), 60)
        # Whatever the turn was: every call is over, and each question was about the call that it points at.
        assert {card.status for card in self.cards.values()} <= {"completed", "failed"}
        for call, _ in self.questions:
            if not call.tool_call_id.startswith("question:"):
                card = self.cards[call.tool_call_id]
                assert (card.title, card.kind, card.raw_input) == (call.title, call.kind, call.raw_input)
        return str(response.stop_reason)


class Place:
    """A store, a folder that is not trusted yet, a model, and the environment of `nacre`."""

    def __init__(self, folder: Path, model: Model) -> None:
        self.model, self.root, self.folder = model, folder / "store", folder / "project"
        self.folder.mkdir()
        self.config = folder / "config.toml"
        self.config.write_text(
            f'[agent]\nmodel = "openai/scripted"\ntitles = false\n[openai]\nbase_url = "{model.url}"\n'
            "[memory]\nenabled = false\n"
        )
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("NACRE_", "XDG_"))}
        self.environ = {
            **kept,
            "NACRE_HOME": str(self.root),
            "NACRE_CONFIG": str(self.config),
            "XDG_STATE_HOME": str(folder / "state"),
            "XDG_CACHE_HOME": str(folder / "cache"),
            "OPENAI_API_KEY": "none",
        }

    def configure(self, text: str) -> None:
        """Add tables to the configuration."""
        with self.config.open("a") as config:
            config.write(text)

    async def start(self, *words: str) -> asyncio.subprocess.Process:
        pipe = asyncio.subprocess.PIPE
        command = [sys.executable, "-m", "nacre", "acp", *words]
        return await asyncio.create_subprocess_exec(
            *command, env=self.environ, stdin=pipe, stdout=pipe, stderr=pipe, limit=LIMIT
        )

    @asynccontextmanager
    async def editor(self, *words: str) -> AsyncIterator[Editor]:
        """An editor that has said hello; at the end its process is gone, and has written nothing to stderr."""
        process, editor = await self.start(*words), Editor()
        editor.process = process
        editor.agent = connect_to_agent(editor, process.stdin, process.stdout, use_unstable_protocol=True)  # type: ignore[arg-type] # what is not called is not there
        try:
            await asyncio.wait_for(editor.agent.initialize(protocol_version=1), 60)
            yield editor
        finally:
            if process.returncode is None:
                process.stdin.close()  # type: ignore[union-attr] # it is a pipe
                try:
                    await asyncio.wait_for(process.wait(), 30)
                except TimeoutError:
                    process.kill()
                    raise
            await editor.agent.close()


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    model = Model()
    yield Place(tmp_path, model)
    model.close()


def run(test: Coroutine[Any, Any, Any]) -> Any:
    return asyncio.run(asyncio.wait_for(test, 120))
