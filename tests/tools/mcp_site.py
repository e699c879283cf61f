"""An MCP server over HTTP that people log in to, with the server that gives out its tokens, on a port of its own."""

from __future__ import annotations

import gzip
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from typing import Any
from urllib.parse import parse_qs, urlsplit


class Site:
    """Both servers, how they are to behave, and what they saw."""

    def __init__(self) -> None:
        self.is_open = False
        self.redirect = ""
        self.session = ""
        self.huge = 0
        self.noise = 0
        self.raw = b""
        self.is_packed = False
        self.tokens: set[str] = set()
        self.refreshable: set[str] = set()
        self.needed = "read"
        self.scopes: dict[str, str] = {}
        self.asked_scope: list[str] = []
        self.grants: list[str] = []
        self.seen: list[dict[str, Any]] = []
        self.numbers = count(1)
        self.ports: dict[str, int] = {}

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.ports['mcp']}/mcp"

    @property
    def issuer(self) -> str:
        return f"http://127.0.0.1:{self.ports['tokens']}"

    def give(self, scope: str) -> dict[str, Any]:
        """Make a token and one to refresh it with; the latter is valid once."""
        number = next(self.numbers)
        access, refresh = f"secret-access-{number}", f"secret-refresh-{number}"
        self.tokens.add(access)
        self.refreshable.add(refresh)
        self.scopes[access] = self.scopes[refresh] = scope
        return {
            "access_token": access,
            "token_type": "Bearer",
            "expires_in": 3600,
            "refresh_token": refresh,
            "scope": scope,
        }


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    site: Site

    def log_message(self, *_: object) -> None:
        """Print nothing."""

    def answer(self, status: int, value: Any = None, **headers: str) -> None:
        body = value if isinstance(value, bytes) else json.dumps(value, ensure_ascii=False).encode()
        body = b"" if value is None else body
        self.send_response(status)
        if self.site.is_packed:
            body = gzip.compress(body)
            self.send_header("content-encoding", "gzip")
        for name, text in headers.items():
            self.send_header(name.replace("_", "-"), text)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def body(self) -> bytes:
        return self.rfile.read(int(self.headers.get("content-length") or 0))


class Mcp(Handler):
    def do_GET(self) -> None:
        site = self.site
        if self.path.startswith("/.well-known/oauth-protected-resource"):
            self.answer(200, {"resource": site.url, "authorization_servers": [site.issuer]})
        else:
            self.answer(405 if self.path == "/mcp" else 404)

    def do_DELETE(self) -> None:
        self.answer(405)

    def do_POST(self) -> None:
        site, message = self.site, json.loads(self.body())
        site.seen.append({"headers": dict(self.headers), **message})
        if site.redirect:
            self.answer(307, None, location=site.redirect)
            return
        token = self.headers.get("authorization", "").removeprefix("Bearer ")
        about = f'resource_metadata="http://127.0.0.1:{site.ports["mcp"]}/.well-known/oauth-protected-resource/mcp"'
        if not site.is_open and token not in site.tokens:
            self.answer(401, None, www_authenticate=f'Bearer {about}, scope="read"')
            return
        is_greeting = message["method"] in {"initialize", "server/discover"}
        if site.session and not is_greeting and self.headers.get("mcp-session-id") != site.session:
            self.answer(404)
            return
        is_call = message["method"] == "tools/call"
        if is_call and not site.is_open and site.needed not in site.scopes[token].split():
            self.answer(
                403, None, www_authenticate=f'Bearer error="insufficient_scope", scope="{site.needed}", {about}'
            )
            return
        if "id" not in message:
            self.answer(202)
            return
        if is_call and site.raw:
            self.answer(200, site.raw)
            return
        if is_call and site.noise:
            self.stream({"jsonrpc": "2.0", "id": message["id"], **self.result(message)})
            return
        begins = {"mcp_session_id": site.session} if message["method"] == "initialize" and site.session else {}
        self.answer(200, {"jsonrpc": "2.0", "id": message["id"], **self.result(message)}, **begins)

    def stream(self, answer: dict[str, Any]) -> None:
        """Answer with a stream of events, of which only the last one was asked for."""
        noise = {"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": "x"}}
        events = [noise] * self.site.noise + [answer]
        body = "".join(f"data: {json.dumps(event)}\n\n" for event in events).encode()
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def result(self, message: dict[str, Any]) -> dict[str, Any]:
        match message["method"]:
            case "initialize":
                version = message["params"]["protocolVersion"]
                info = {"name": "site", "version": "1"}
                return {"result": {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": info}}
            case "tools/list":
                return {"result": {"tools": [{"name": "say", "inputSchema": {"type": "object"}}]}}
            case "tools/call":
                text = "z" * self.site.huge or "a\u2028b\u2029c\u0085d"
                return {"result": {"content": [{"type": "text", "text": text}]}}
            case _:
                return {"error": {"code": -32601, "message": "no such method"}}


class Tokens(Handler):
    def do_GET(self) -> None:
        site, parts = self.site, urlsplit(self.path)
        query = {name: values[0] for name, values in parse_qs(parts.query).items()}
        if parts.path.startswith("/.well-known/"):
            self.answer(
                200,
                {
                    "issuer": site.issuer,
                    "authorization_endpoint": f"{site.issuer}/authorize",
                    "token_endpoint": f"{site.issuer}/oauth/token",
                    "registration_endpoint": f"{site.issuer}/register",
                    "response_types_supported": ["code"],
                    "code_challenge_methods_supported": ["S256"],
                },
            )
        elif parts.path == "/authorize":
            site.asked_scope.append(query.get("scope", ""))
            self.answer(302, None, location=f"{query['redirect_uri']}?code=secret-code&state={query['state']}")
        else:
            self.answer(404)

    def do_POST(self) -> None:
        site, body = self.site, self.body()
        if self.path == "/register":
            self.answer(201, {**json.loads(body), "client_id": "client", "token_endpoint_auth_method": "none"})
            return
        form = {name: values[0] for name, values in parse_qs(body.decode()).items()}
        site.grants.append(form["grant_type"])
        if form["grant_type"] == "authorization_code":
            self.answer(200, site.give(site.asked_scope[-1]))
        elif form["refresh_token"] in site.refreshable:
            site.refreshable.discard(form["refresh_token"])
            self.answer(200, site.give(site.scopes[form["refresh_token"]]))
        else:
            self.answer(400, {"error": "invalid_grant"})


@contextmanager
def site() -> Iterator[Site]:
    """Run the servers on free ports of this machine."""
    found = Site()
    servers = []
    for name, kind in (("mcp", Mcp), ("tokens", Tokens)):
        server = ThreadingHTTPServer(("127.0.0.1", 0), type(name, (kind,), {"site": found}))
        server.daemon_threads = True
        found.ports[name] = server.server_address[1]
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        servers.append((server, thread))
    try:
        yield found
    finally:
        for server, thread in servers:
            server.shutdown()
            thread.join()
            server.server_close()
