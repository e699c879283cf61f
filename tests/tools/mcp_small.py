"""A small MCP server that starts at once and misbehaves when told to."""

from __future__ import annotations

import json
import os
import sys
import threading
from pathlib import Path
from typing import Any

NAMES = (
    "add",
    "environment",
    "die",
    "never",
    "pid",
    "progress",
    "flood",
    "endless",
    "cancelled",
    "grow",
    "long",
    "line",
    "ask",
    "demand",
    "file",
    "junk",
    "raw",
)
lock = threading.Lock()
cancelled: list[Any] = []
grown: list[str] = []


def say(message: dict[str, Any]) -> None:
    with lock:
        print(json.dumps({"jsonrpc": "2.0", **message}, ensure_ascii=False), flush=True)  # noqa: T201 - its wire


def answer(message: dict[str, Any]) -> dict[str, Any] | None:
    params = message.get("params", {})
    match message["method"]:
        case "initialize":
            info = {"name": "s", "version": "1"}
            return {
                "protocolVersion": "2025-06-18",
                "capabilities": {"tools": {"listChanged": True}},
                "serverInfo": info,
            }
        case "tools/list":
            at = int(params.get("cursor", 0))
            names = (*NAMES, *grown)
            page: dict[str, Any] = {"tools": [{"name": names[at], "inputSchema": {"type": "object"}}]}
            return {**page, "nextCursor": str(at + 1)} if at + 1 < len(names) else page
        case "tools/call":
            text = called(params["name"], params.get("arguments", {}), params.get("_meta", {}).get("progressToken"))
            return {"content": [{"type": "text", "text": text}]}
        case _:
            return None


def called(name: str, arguments: dict[str, Any], token: Any) -> str:
    match name:
        case "die":
            os._exit(3)
        case "progress":
            for done in range(1, 4):
                note = {"progressToken": token, "progress": done, "total": 3, "message": f"step {done}\x1b[31m"}
                say({"method": "notifications/progress", "params": note})
                threading.Event().wait(float(arguments["pause"]))
            return "finished"
        case "flood":
            while True:
                say({"method": "notifications/message", "params": {"level": "info", "data": "noise"}})
        case "endless":
            while True:
                sys.stdout.write("x" * 1_000_000)
        case "ask" | "demand":
            required = ["name"] if name == "demand" else []
            fields = {"name": {"type": "string"}, "sure": {"type": "boolean", "default": True}}
            form = {"type": "object", "properties": fields, "required": required}
            question = {"message": "Sure?\x1b[2J", "requestedSchema": form}
            say({"id": "q", "method": "elicitation/create", "params": question})
            return json.dumps(json.loads(sys.stdin.readline())["result"])
        case "file":
            return "not a file at all"
        case "junk":
            while True:
                sys.stdout.write("\nnoise" * 10_000)
        case "cancelled":
            return json.dumps(cancelled)
        case "grow":
            grown.append("grown")
            say({"method": "notifications/tools/list_changed"})
            return "grown"
        case "long":
            return "y" * 20_000_000
        case "line":
            return "a\u2028b\u2029c\u0085d"
        case "environment":
            return " ".join(os.environ)
        case "pid":
            return str(os.getpid())
        case _:
            return str(arguments["a"] + arguments["b"])


def note(*words: str) -> None:
    """Write down what happened, for a test that cannot ask."""
    if file := os.environ.get("NOTES"):
        with Path(file).open("a") as notes:
            notes.write(f"{' '.join(words).strip()}\n")


waiting: list[dict[str, Any]] = []
say({"method": "notifications/message", "params": {"level": "info", "data": "hello"}})
say({"id": "s1", "method": "ping"})
print("not a message at all", flush=True)  # noqa: T201 - some servers do
for line in sys.stdin:
    message = json.loads(line)
    note(message.get("method", ""), message.get("params", {}).get("name", ""))
    if message.get("method") == "notifications/cancelled":
        cancelled.append(message["params"]["requestId"])
    if "id" not in message or "method" not in message:
        continue
    if sys.argv[1:] == ["--strict"] and message["method"] == "server/discover":
        sys.exit(4)
    name = message.get("params", {}).get("name")
    if name == "never":
        continue
    if name == "raw":
        text = message["params"]["arguments"]["line"].replace("ID", str(message["id"]))
        sys.stdout.buffer.write(text.encode("latin-1") + b"\n")
        sys.stdout.buffer.flush()
        continue
    if name == "add":
        # Answered in pairs, the later one first.
        waiting.append(message)
        while len(waiting) == 2:
            for one in (waiting.pop(), waiting.pop()):
                say({"id": one["id"], "result": answer(one)})
        continue
    result = answer(message)
    error = {"code": -32601, "message": f"there is no {message['method']}"}
    say({"id": message["id"], **({"error": error} if result is None else {"result": result})})
