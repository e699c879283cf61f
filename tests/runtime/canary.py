"""A word that must be in no log, and servers that repeat it: a model's, Telegram's and Matrix's."""

from __future__ import annotations

import itertools
import json
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar
from urllib.parse import unquote

from tests.channels.servers import Reply, Request

CANARY = "canarybird"
DONE = f"done, {CANARY}"

TOOLS: dict[str, dict[str, Any]] = {
    "burst": {"x": CANARY},
    "lose": {"x": CANARY},
    "wrap": {"x": CANARY},
    "read_file": {"path": f"{CANARY}.txt"},
    "list_files": {"pattern": f"{CANARY}/**"},
    "search_sessions": {"query": f'"{CANARY} AND ('},
    "web_fetch": {"url": f"http://127.0.0.1:9/{CANARY}"},
    "shell": {"command": f"cat /{CANARY}; exit 3"},
    "remember": {"fact": f"The user likes {CANARY}."},
    "delegate": {"task": f"say:refuse {CANARY}"},
    "use_skill": {"name": CANARY},
    "small_explode": {"x": CANARY},
    "small_die": {"x": CANARY},
    f"{CANARY}_tool": {"x": CANARY},
}
FAULTS = ("plain", "refuse", "fail", "page", "cut", "inline", "empty", "badargs", "late")
WAYS = (*FAULTS, *TOOLS)
"""What the model does when it is told `say:WAY`."""
LAST = "long"
"""The same, after all others: from then on the model is taken for one that can be shown little."""


# ---- the model's server


def piece(**delta: Any) -> bytes:
    return f"data: {json.dumps({'choices': [{'index': 0, 'delta': delta}]})}\n\n".encode()


def end(reason: str) -> bytes:
    return f"data: {json.dumps({'choices': [{'index': 0, 'delta': {}, 'finish_reason': reason}]})}\n\n".encode()


def calls(name: str, arguments: str) -> list[bytes]:
    function = {"name": name, "arguments": arguments}
    call = [{"index": 0, "id": "call_1", "type": "function", "function": function}]
    return [piece(role="assistant", tool_calls=call), end("tool_calls"), b"data: [DONE]\n\n"]


def text(said: str) -> list[bytes]:
    return [piece(role="assistant", content=said), end("stop"), b"data: [DONE]\n\n"]


class Model(BaseHTTPRequestHandler):
    """Does what the last message of the user says, and quotes all that it was sent wherever it can."""

    protocol_version = "HTTP/1.0"
    beside = itertools.count()
    results: ClassVar[set[str]] = set()
    """The tools that were called, and whose results came back."""

    def do_GET(self) -> None:
        self._answer(200, json.dumps({"data": [{"id": "m"}]}).encode())

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        # Reasons are cut: what is quoted is the end, in which the word is.
        asked = json.dumps(body["messages"])[-150:]
        last = body["messages"][-1]
        if "tools" not in body:
            self._beside(asked)
        elif last["role"] == "tool":
            self.results.add(body["messages"][-2]["tool_calls"][0]["function"]["name"])
            self._stream(text(f"{DONE}: {str(last['content'])[:200]}"))
        else:
            found = re.findall(r"say:(\w+)", json.dumps(last["content"]))
            self._do(found[-1] if found else "plain", asked)

    def _beside(self, asked: str) -> None:
        """Summaries, memory and titles: nothing that can be used, with the conversation in it."""
        match next(Model.beside) % 6:
            case 0:
                self._refuse(400, f"{CANARY} {asked}")
            case 1:
                self._stream(text(CANARY))
            case 2:
                self._stream(text(f"{CANARY} " * 100))
            case 3:
                self._answer(200, f"<html><body>{CANARY} {asked}</body></html>".encode())
            case 4:
                self._stream(text(f"I will not. {CANARY} {asked}"))
            case _:
                self._stream(text(json.dumps({"line": CANARY, "facts": [CANARY, {"subject": CANARY}]})))

    def _do(self, way: str, asked: str) -> None:
        match way:
            case "refuse":
                self._refuse(400, asked)
            case "long":
                self._refuse(400, f"maximum context length exceeded: {asked}")
            case "fail":
                self._refuse(500, asked)
            case "late":
                self._refuse(429, asked)
            case "page":
                self._answer(200, f"<html><body>{asked}</body></html>".encode())
            case "cut":
                self._stream([piece(role="assistant", content=CANARY)])
            case "inline":
                self._stream([piece(content=CANARY), f"data: {json.dumps({'error': {'message': asked}})}\n\n".encode()])
            case "empty":
                self._stream(text(""))
            case "badargs":
                self._stream(calls("read_file", f'{{"path": "{CANARY}'))
            case _ if way in TOOLS:
                self._stream(calls(way, json.dumps(TOOLS[way])))
            case _:
                self._stream(text(f"so you say {asked}"))

    def _refuse(self, status: int, said: str) -> None:
        self._answer(status, json.dumps({"error": {"message": f"cannot take {said}"}}).encode())

    def _stream(self, pieces: list[bytes]) -> None:
        self._answer(200, b"".join(pieces), "text/event-stream")

    def _answer(self, status: int, body: bytes, kind: str = "application/json") -> None:
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Keep quiet."""


@contextmanager
def model() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Model) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}/v1"
        finally:
            server.shutdown()
            thread.join()


# ---- messengers


def troubled() -> Callable[[str], Reply | None]:
    """A server that fails on every third message, and repeats it."""
    numbers = itertools.count()

    def trouble(said: str) -> Reply | None:
        match next(numbers) % 12:
            case 2:
                return Reply({"ok": False, "error_code": 400, "description": f"bad: {said}", "error": said}, status=400)
            case 5:
                return Reply(said.encode(), status=500)
            case 8:
                return Reply(said.encode())
            case 11:
                return Reply(how="cut")
            case _:
                return None

    return trouble


def telegram(words: list[str]) -> Callable[[Request], Reply]:
    """Telegram's side: each of the words is said by somebody else, and what is sent may be refused."""
    trouble, left = troubled(), [
        {
            "update_id": number,
            "message": {
                "message_id": number,
                "from": {"id": 7, "first_name": "Ann", "is_bot": False},
                "chat": {"id": 100 + number, "type": "private"},
                "date": 1,
                "text": said,
            },
        }
        for number, said in enumerate(words, 1)
    ]  # fmt: skip

    def answer(request: Request) -> Reply:
        match request.path.rpartition("/")[2]:
            case "getMe":
                return Reply({"ok": True, "result": {"id": 42, "is_bot": True, "username": "bot", "first_name": "b"}})
            case "getUpdates":
                found = [update for update in left if update["update_id"] >= request.body["offset"]]
                return Reply({"ok": True, "result": found}) if found else Reply(how="hold")
            case "sendChatAction":
                return Reply({"ok": False, "error_code": 400, "description": CANARY}, status=400)
            case _:
                return trouble(str(request.body)) or Reply({"ok": True, "result": {}})

    return answer


def matrix(words: list[str]) -> Callable[[Request], Reply]:
    """Matrix's side: each of the words is said in a room of its own."""
    trouble, rooms = troubled(), {}
    for number, said in enumerate(words, 1):
        content = {"msgtype": "m.text", "body": said}
        event = {"type": "m.room.message", "sender": "@ann:h", "event_id": f"${number}", "content": content}
        rooms[f"!room{number}:h"] = {"timeline": {"events": [event], "limited": number % 5 == 0, "prev_batch": "p"}}

    def answer(request: Request) -> Reply:
        path = unquote(request.path)
        if "whoami" in path:
            return Reply({"user_id": "@bot:h"})
        if "/sync" in path and "since=" not in path:
            return Reply({"next_batch": "s1"})
        if "/sync" in path:
            return Reply({"next_batch": "s2", "rooms": {"join": rooms}}) if "since=s1" in path else Reply(how="hold")
        if "/send/" in path:
            return trouble(str(request.body)) or Reply({"event_id": "$x"})
        if "joined_members" in path:
            return Reply({"joined": {"@ann:h": {}, "@bot:h": {}}})
        # Typing notices, and what was said in a gap.
        return Reply({"errcode": "M_FORBIDDEN", "error": CANARY}, status=403)

    return answer


# ---- what the agent is given


OWN = '''
from nacre.tools import tool


@tool(effect="read")
def burst(x: str) -> str:
    """Fail."""
    raise ValueError(f"cannot take {x}")


@tool(effect="read")
def lose(x: str) -> str:
    """Lose a file."""
    return open(f"/nowhere/{x}").read()


@tool(effect="read")
def wrap(x: str) -> str:
    """Fail because of something."""
    try:
        int(x)
    except ValueError as error:
        raise RuntimeError(x) from error
    return ""
'''

SMALL = """
import json, os, sys
for line in sys.stdin:
    message = json.loads(line)
    params = message.get("params", {})
    if "id" not in message:
        continue
    reply = {"jsonrpc": "2.0", "id": message["id"]}
    if message["method"] == "initialize":
        reply["result"] = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}},
                           "serverInfo": {"name": "s", "version": "1"}}
    elif message["method"] == "tools/list":
        names = ("explode", "die")
        reply["result"] = {"tools": [{"name": name, "inputSchema": {"type": "object"}} for name in names]}
    elif message["method"] == "tools/call" and params["name"] == "die":
        sys.stderr.write(f"dying of {params['arguments']}\\n")
        os._exit(3)
    elif message["method"] == "tools/call":
        print(json.dumps({"jsonrpc": "2.0", "method": "notifications/strange", "params": params}), flush=True)
        print(f"this is not JSON: {params['arguments']}", flush=True)
        reply["error"] = {"code": -32000, "message": f"cannot take {params['arguments']}"}
    else:
        reply["result"] = {}
    print(json.dumps(reply), flush=True)
"""
