"""An Ollama server for tests: it speaks the native wire, and answers with exactly the bytes it was given."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any, Literal

from msgspec import Struct

_REASONS = {200: "OK", 400: "Bad Request", 404: "Not Found", 429: "Too Many Requests", 500: "Internal Server Error"}


class Answer(Struct, frozen=True, kw_only=True):
    """How a chat is answered: each chunk is sent by itself, `pause` seconds apart.

    The end is a whole response, a connection that breaks off (`cut`; with no
    chunks even before the head), or nothing at all until the client goes (`hang`).
    """

    chunks: Sequence[bytes] = ()
    status: int = 200
    headers: Mapping[str, str] = {}
    pause: float = 0.0
    end: Literal["whole", "cut", "hang"] = "whole"


def line(value: Mapping[str, Any]) -> bytes:
    """Any value as a line of the stream."""
    return json.dumps(value, ensure_ascii=False).encode() + b"\n"


def said(content: str = "", *, model: str = "test", **more: Any) -> bytes:
    """A piece of the answer; `thinking` and `tool_calls` come with the content."""
    message = {"role": "assistant", "content": content, **more}
    return line({"model": model, "created_at": "2026-11-15T18:00:00Z", "message": message, "done": False})


def called(name: str, arguments: Mapping[str, Any], **more: Any) -> bytes:
    """A tool call, which Ollama sends whole."""
    return said(tool_calls=[{"function": {"name": name, "arguments": dict(arguments)}, **more}])


def done(reason: str = "stop", *, prompt: int = 11, completion: int = 7, model: str = "test") -> bytes:
    """The last line."""
    end = {"done": True, "done_reason": reason, "prompt_eval_count": prompt, "eval_count": completion}
    message = {"role": "assistant", "content": ""}
    return line({"model": model, "created_at": "2026-11-15T18:00:01Z", "message": message, **end})


def refusal(text: str, *, status: int, **headers: str) -> Answer:
    """An error instead of an answer."""
    return Answer(chunks=(line({"error": text}),), status=status, headers=headers)


class OllamaServer:
    """What a test sees of the server: where it is, what it was asked, and whether a client went away.

    `answers` are given one after the other to `/api/chat`, the last one again and again. `models` has what each
    model can do; any other is not found.
    """

    def __init__(self, answers: Sequence[Answer], models: Mapping[str, Sequence[str]]) -> None:
        self._answers = list(answers)
        self._models = models
        self.host = ""
        self.requests: list[tuple[str, dict[str, Any]]] = []
        self.heads: list[dict[str, str]] = []
        self.connections = 0
        self.abandoned = asyncio.Event()

    @property
    def chats(self) -> list[dict[str, Any]]:
        """The bodies of the chats that were asked for."""
        return [body for path, body in self.requests if path == "/api/chat"]

    def next(self) -> Answer:
        """The answer whose turn it is."""
        return self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer the requests of one connection."""
        self.connections += 1
        try:
            with suppress(ConnectionError, asyncio.IncompleteReadError):
                while await self._exchange(reader, writer):
                    pass
        finally:
            writer.close()

    async def _exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Answer one request; the connection is kept if the answer was whole."""
        first, *rest = (await reader.readuntil(b"\r\n\r\n")).decode().strip().split("\r\n")
        head = {name.lower(): value.strip() for name, _, value in (text.partition(":") for text in rest)}
        path = first.split()[1]
        body = json.loads(await reader.readexactly(int(head.get("content-length", "0"))) or b"{}")
        self.requests.append((path, body))
        self.heads.append(head)
        answer = self.answer(path, body)
        if answer.chunks or answer.end == "whole":
            await self._send(writer, answer)
        if answer.end == "hang":
            await reader.read()
            self.abandoned.set()
        return answer.end == "whole"

    async def _send(self, writer: asyncio.StreamWriter, answer: Answer) -> None:
        kind = "application/x-ndjson" if answer.status == 200 else "application/json"
        headers = {"content-type": kind, "transfer-encoding": "chunked", **answer.headers}
        written = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items())
        writer.write(f"HTTP/1.1 {answer.status} {_REASONS.get(answer.status, 'Said')}\r\n{written}\r\n".encode())
        for chunk in answer.chunks:
            writer.write(b"%x\r\n%b\r\n" % (len(chunk), chunk))
            await writer.drain()
            await asyncio.sleep(answer.pause)
        if answer.end == "whole":
            writer.write(b"0\r\n\r\n")
        await writer.drain()

    def answer(self, path: str, body: Mapping[str, Any]) -> Answer:
        """What a request gets."""
        match path:
            case "/api/tags":
                more = {"modified_at": "2026-11-15T18:00:00Z", "size": 1, "digest": "0" * 64}
                models = [{"name": name, "model": name, **more} for name in self._models]
                return Answer(chunks=(line({"models": models}),))
            case "/api/show" | "/api/chat" if body.get("model") not in self._models:
                return refusal(f"model '{body.get('model')}' not found", status=404)
            case "/api/show":
                info = {"general.architecture": "test", "test.context_length": 8192}
                known = {"model_info": info, "details": {"family": "test"}, "template": ""}
                return Answer(chunks=(line({"capabilities": list(self._models[body["model"]]), **known}),))
            case "/api/chat" if body.get("tools") and "tools" not in self._models[body["model"]]:
                return refusal(f"{body['model']} does not support tools", status=400)
            case "/api/chat":
                return self.next()
            case _:
                return refusal("404 page not found", status=404)


@asynccontextmanager
async def ollama_server(
    *answers: Answer, models: Mapping[str, Sequence[str]] | None = None
) -> AsyncIterator[OllamaServer]:
    """Serve on a free port of this machine until the block ends; without `models` there is `test`, which can do all."""
    known = {"test": ("completion", "tools", "thinking")} if models is None else models
    async with serving(OllamaServer(answers or (Answer(chunks=(said("Hello."), done())),), known)) as server:
        yield server


@asynccontextmanager
async def serving(state: OllamaServer) -> AsyncIterator[OllamaServer]:
    """Serve on a free port of this machine until the block ends."""
    tasks: set[asyncio.Task[None]] = set()

    def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        tasks.add(asyncio.create_task(state.serve(reader, writer)))

    server = await asyncio.start_server(connected, "127.0.0.1", 0)
    state.host = "http://{}:{}".format(*server.sockets[0].getsockname()[:2])
    try:
        yield state
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
