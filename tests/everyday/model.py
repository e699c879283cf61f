"""A model server for everyday scripts: real HTTP, Ollama's and OpenAI's wire, answers chosen by a function.

It runs in a thread of the test, so several processes of `nacre` can talk to it one after the other.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self

DEFAULT_MODEL = "gemma4:e4b"
_CHARACTERS_PER_TOKEN = 4


@dataclass(frozen=True)
class Call:
    """A tool call that the model makes."""

    name: str
    arguments: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Thinking:
    """Something that the model thinks before it answers."""

    text: str


@dataclass(frozen=True)
class Refusal:
    """An HTTP error instead of an answer."""

    status: int
    message: str


Piece = str | Call | Thinking
Reply = str | Refusal | Iterable[Piece | Refusal]
"""A text, an error, or pieces that are sent one by one; an error after pieces breaks the stream off.

Pieces from a generator are sent as it yields them, so a test can wait between two of them.
"""


@dataclass(frozen=True)
class Request:
    """What the server was asked, in the shape that both wires share."""

    path: str
    body: dict[str, Any]
    headers: dict[str, str]
    per_token: int = _CHARACTERS_PER_TOKEN

    @property
    def messages(self) -> list[dict[str, Any]]:
        return list(self.body.get("messages", []))

    @property
    def model(self) -> str:
        return str(self.body.get("model", ""))

    @property
    def tools(self) -> list[str]:
        """The names of the tools that were offered."""
        return [tool["function"]["name"] for tool in self.body.get("tools") or []]

    @property
    def system(self) -> str:
        return "\n\n".join(text_of(message) for message in self.messages if message["role"] == "system")

    @property
    def last(self) -> dict[str, Any]:
        """The last message."""
        return self.messages[-1] if self.messages else {"role": "", "content": ""}

    @property
    def said(self) -> str:
        """The text of the last message."""
        return text_of(self.last)

    @property
    def tokens(self) -> int:
        """What the request costs, counted as this server counts."""
        return len(json.dumps([self.messages, self.body.get("tools") or []])) // self.per_token


def text_of(message: Mapping[str, Any]) -> str:
    """The text of a message, whose content may be a list of parts."""
    content = message.get("content") or ""
    if isinstance(content, str):
        return content
    return "".join(str(part.get("text", "")) for part in content)


def echo(request: Request) -> Reply:
    """Answer with what was said: the usual reply."""
    return f"You said: {request.said.splitlines()[-1] if request.said else 'nothing'}"


class Model:
    """The server. `models` has the window of each model; a request that is larger is refused as Ollama refuses it.

    `answer` is called with every chat request, and may be replaced between two commands. `per_token` is how many
    characters it counts as a token, `shows` the window that it claims to have where that differs, and `refusal` what
    it says of a request that is too long; `{request}` and `{window}` stand for the sizes.
    """

    per_token = _CHARACTERS_PER_TOKEN
    shows: int | None = None
    refusal = "the request exceeds the available context size ({request} > {window} tokens)"

    def __init__(
        self,
        answer: Callable[[Request], Reply] = echo,
        *,
        models: Mapping[str, int] | None = None,
        capabilities: Sequence[str] = ("completion", "tools"),
    ) -> None:
        self.answer = answer
        self.models = dict({DEFAULT_MODEL: 131_072} if models is None else models)
        self.capabilities = tuple(capabilities)
        self.requests: list[Request] = []
        self.pulled: list[str] = []
        self.redirects: dict[str, str] = {}
        handler = type("Handler", (_Handler,), {"model": self})
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Stop serving; twice is harmless."""
        self._server.shutdown()
        self._server.server_close()

    @property
    def host(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    @property
    def chats(self) -> list[Request]:
        """The requests that asked for an answer, on either wire."""
        return [request for request in self.requests if request.path in {"/api/chat", "/v1/chat/completions"}]


class _Handler(BaseHTTPRequestHandler):
    model: Model
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        """Print nothing."""

    def do_GET(self) -> None:
        self._serve({})

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length", "0")))
        self._serve(json.loads(body or b"{}"))

    def _serve(self, body: dict[str, Any]) -> None:
        heads = {name.lower(): value for name, value in self.headers.items()}
        request = Request(self.path, body, heads, self.model.per_token)
        self.model.requests.append(request)
        match self.path:
            case path if path in self.model.redirects:
                self.send_response(302)
                self.send_header("location", self.model.redirects[path])
                self.send_header("content-length", "0")
                self.end_headers()
            case "/api/version":
                self._json({"version": "0.30.0"})
            case "/api/tags":
                self._json({"models": [_listed(name) for name in self.model.models]})
            case "/v1/models":
                self._json({"object": "list", "data": [{"id": name, "object": "model"} for name in self.model.models]})
            case "/api/pull":
                self.model.pulled.append(body.get("model", body.get("name", "")))
                self.model.models[self.model.pulled[-1]] = 8192
                self._stream(_lines(_pulling()), "application/x-ndjson")
            case "/api/show" | "/api/chat" | "/v1/chat/completions" if request.model not in self.model.models:
                self._error(404, f"model '{request.model}' not found")
            case "/api/show":
                self._json(_shown(self.model.shows or self.model.models[request.model], self.model.capabilities))
            case "/api/chat" | "/v1/chat/completions":
                self._chat(request)
            case _:
                self._error(404, "404 page not found")

    def _chat(self, request: Request) -> None:
        window = self.model.models[request.model]
        if request.tokens > window:
            self._error(400, self.model.refusal.format(request=request.tokens, window=window))
            return
        reply = self.model.answer(request)
        if isinstance(reply, Refusal):
            self._error(reply.status, reply.message)
            return
        pieces = [reply] if isinstance(reply, str) else reply
        if request.path == "/api/chat":
            self._stream(_lines(_ollama(request, pieces)), "application/x-ndjson")
        else:
            self._stream(_events(_openai(request, pieces)), "text/event-stream")

    def _error(self, status: int, message: str) -> None:
        error: Any = {"message": message, "type": "invalid_request_error"} if self.path.startswith("/v1") else message
        self._json({"error": error}, status=status)

    def _json(self, value: Any, *, status: int = 200) -> None:
        data = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _stream(self, chunks: Iterator[bytes], kind: str) -> None:
        self.send_response(200)
        self.send_header("content-type", kind)
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        try:
            for chunk in chunks:
                self.wfile.write(b"%x\r\n%b\r\n" % (len(chunk), chunk))
                self.wfile.flush()
            self.wfile.write(b"0\r\n\r\n")
        except (_BrokenOff, ConnectionError):
            self.close_connection = True


class _BrokenOff(Exception):
    """The stream ends in the middle."""


def _lines(values: Iterator[dict[str, Any]]) -> Iterator[bytes]:
    for value in values:
        yield json.dumps(value).encode() + b"\n"


def _events(values: Iterator[dict[str, Any]]) -> Iterator[bytes]:
    for value in values:
        yield b"data: " + json.dumps(value).encode() + b"\n\n"
    yield b"data: [DONE]\n\n"


def _ollama(request: Request, pieces: Iterable[Piece | Refusal]) -> Iterator[dict[str, Any]]:
    head = {"model": request.model, "created_at": "2026-11-15T18:00:00Z"}
    for piece in pieces:
        message: dict[str, Any] = {"role": "assistant", "content": ""}
        match piece:
            case str():
                message["content"] = piece
            case Thinking(text):
                message["thinking"] = text
            case Call(name, arguments):
                message["tool_calls"] = [{"function": {"name": name, "arguments": dict(arguments)}}]
            case Refusal():
                raise _BrokenOff
        yield {**head, "message": message, "done": False}
    end = {"done": True, "done_reason": "stop", "prompt_eval_count": request.tokens, "eval_count": 7}
    yield {**head, "message": {"role": "assistant", "content": ""}, **end}


def _openai(request: Request, pieces: Iterable[Piece | Refusal]) -> Iterator[dict[str, Any]]:
    head = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1763229600, "model": request.model}
    reason, calls = "stop", 0
    for piece in pieces:
        delta: dict[str, Any]
        match piece:
            case str():
                delta = {"content": piece}
            case Thinking(text):
                delta = {"reasoning_content": text}
            case Call(name, arguments):
                function = {"name": name, "arguments": json.dumps(dict(arguments))}
                delta = {
                    "tool_calls": [{"index": calls, "id": f"call_{calls}", "type": "function", "function": function}]
                }
                reason, calls = "tool_calls", calls + 1
            case Refusal():
                raise _BrokenOff
        yield {**head, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]}
    yield {**head, "choices": [{"index": 0, "delta": {}, "finish_reason": reason}]}
    usage = {"prompt_tokens": request.tokens, "completion_tokens": 7, "total_tokens": request.tokens + 7}
    yield {**head, "choices": [], "usage": usage}


def _listed(name: str) -> dict[str, Any]:
    details = {"family": "test", "parameter_size": "4.0B", "quantization_level": "Q4_K_M"}
    return {
        "name": name,
        "model": name,
        "modified_at": "2026-11-15T18:00:00Z",
        "size": 3_300_000_000,
        "digest": "0" * 64,
        "details": details,
    }


def _shown(window: int, capabilities: Sequence[str]) -> dict[str, Any]:
    known = {"general.architecture": "test", "test.context_length": window}
    return {"capabilities": list(capabilities), "model_info": known, "details": {"family": "test"}, "template": ""}


def _pulling() -> Iterator[dict[str, Any]]:
    yield {"status": "pulling manifest"}
    for completed in (1_000, 2_000, 3_300):
        yield {"status": "pulling 0000", "digest": "0000", "total": 3_300, "completed": completed}
    yield {"status": "success"}
