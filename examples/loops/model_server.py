"""A scripted model on this machine: a real HTTP server that speaks OpenAI's chat completions and Ollama's chat.

The loops in this folder use it, so that they run without a network and without a key. It is not an example itself.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, TypeAlias

Reply: TypeAlias = str | int | dict[str, dict[str, Any]]
"""What the model says, or the status of a server that fails, or the tools that it calls with their arguments."""


@contextmanager
def model_server(*replies: Reply) -> Iterator[str]:
    """Give the replies one after the other, until the block ends; yields the address, `http://127.0.0.1:PORT`."""
    script = list(replies)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            if not script:
                self.send(500, {"error": {"message": "the script has no more replies"}})
            elif isinstance(reply := script.pop(0), int):
                self.send(reply, {"error": {"message": "the scripted server fails here"}})
            elif self.path == "/v1/chat/completions":
                self.send(200, completion(body["model"], reply))
            elif self.path == "/api/chat":
                self.send(200, chat(body["model"], reply))
            else:
                self.send(404, {"error": {"message": f"there is no {self.path}"}})

        def send(self, status: int, answer: dict[str, Any]) -> None:
            encoded = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(encoded)))
            self.end_headers()
            self.wfile.write(encoded)

        def log_message(self, format: str, *args: Any) -> None:
            """Print nothing: the loop says what happens."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


def completion(model: str, reply: str | dict[str, dict[str, Any]]) -> dict[str, Any]:
    """An answer of `/v1/chat/completions`."""
    message: dict[str, Any] = {"role": "assistant", "content": reply if isinstance(reply, str) else None}
    if not isinstance(reply, str):
        functions = [{"name": name, "arguments": json.dumps(arguments)} for name, arguments in reply.items()]
        message["tool_calls"] = [
            {"id": f"call_{number}", "type": "function", "function": function}
            for number, function in enumerate(functions, start=1)
        ]
    reason = "stop" if isinstance(reply, str) else "tool_calls"
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1_750_000_000,
        "model": model,
        "choices": [{"index": 0, "message": message, "finish_reason": reason}],
        "usage": {"prompt_tokens": 20, "completion_tokens": 5, "total_tokens": 25},
    }


def chat(model: str, reply: str | dict[str, dict[str, Any]]) -> dict[str, Any]:
    """An answer of `/api/chat`."""
    message: dict[str, Any] = {"role": "assistant", "content": reply if isinstance(reply, str) else ""}
    if not isinstance(reply, str):
        message["tool_calls"] = [
            {"function": {"name": name, "arguments": arguments}} for name, arguments in reply.items()
        ]
    counts = {"prompt_eval_count": 20, "eval_count": 5}
    return {"model": model, "created_at": "2026-01-02T03:04:05Z", "message": message, "done": True, **counts}
