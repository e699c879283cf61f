"""A small MCP server that starts at once and misbehaves when told to."""

from __future__ import annotations

import json
import os
import sys
import threading
from typing import Any

NAMES = ("add", "environment", "die", "never", "pid")
lock = threading.Lock()


def say(message: dict[str, Any]) -> None:
    with lock:
        print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)  # noqa: T201 - that is its wire


def answer(method: str, params: dict[str, Any]) -> dict[str, Any]:
    if method == "initialize":
        return {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": {"name": "s"}}
    if method == "tools/list":
        at = int(params.get("cursor", 0))
        page: dict[str, Any] = {"tools": [{"name": NAMES[at], "inputSchema": {"type": "object"}}]}
        return {**page, "nextCursor": str(at + 1)} if at + 1 < len(NAMES) else page
    return {"content": [{"type": "text", "text": called(params["name"], params["arguments"])}]}


def called(name: str, arguments: dict[str, Any]) -> str:
    if name == "die":
        os._exit(3)
    values = {"environment": " ".join(os.environ), "pid": str(os.getpid())}
    return values.get(name) or str(arguments["a"] + arguments["b"])


waiting: list[dict[str, Any]] = []
say({"method": "notifications/message", "params": {"data": "hello"}})
say({"id": "s1", "method": "ping"})
for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message or "method" not in message or message["params"].get("name") == "never":
        continue
    if message["params"].get("name") == "add":
        # Answered in pairs, the later one first.
        waiting.append(message)
        while len(waiting) == 2:
            for one in (waiting.pop(), waiting.pop()):
                say({"id": one["id"], "result": answer(one["method"], one["params"])})
        continue
    say({"id": message["id"], "result": answer(message["method"], message["params"])})
