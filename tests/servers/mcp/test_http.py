"""`nacre mcp serve --http`: the official client, and everybody who should not get in."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import anyio
import httpx
import httpx2
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError

import nacre
from nacre.servers.mcp import make_server, uri_of
from nacre.servers.mcp_archive import Archive
from nacre.servers.mcp_http import MAX_BODY, MAX_CLIENTS, application, is_loopback, serve_http
from nacre.web.gate import Limits
from tests.servers.mcp.conftest import TOKEN, Place

INFO = {"name": "raw", "version": "1"}
INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": INFO},
}
ACCEPT = {"accept": "application/json, text/event-stream"}
OWN = {"authorization": f"Bearer {TOKEN}"}
HEAD = (
    f"POST /mcp HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}\r\n"
    "Content-Type: application/json\r\nAccept: application/json, text/event-stream\r\n"
).encode()


@pytest.fixture
def url(place: Place) -> Iterator[str]:
    with place.over_http("--write", "agent:") as (url, _):
        yield url


def ask(url: str, headers: dict[str, str] | None = None, content: Any = None, method: str = "POST") -> httpx.Response:
    """One request as a client of the older protocol begins."""
    body = json.dumps(INITIALIZE) if content is None else content
    given = {"content-type": "application/json", **ACCEPT, **OWN, **(headers or {})}
    given = {name: value for name, value in given.items() if value}
    return httpx.request(method, url, headers=given, content=body if method == "POST" else None, timeout=30)


@pytest.mark.parametrize("mode", ["auto", "legacy"])
def test_the_official_client_searches_and_appends(mode: Any, url: str, place: Place) -> None:
    async def test() -> None:
        async with (
            httpx2.AsyncClient(headers=OWN) as http,
            Client(streamable_http_client(url, http_client=http), mode=mode) as client,
        ):
            found = await client.call_tool("search_sessions", {"query": "pearl"})
            assert found.structured_content["results"][0]["key"] == "cli:1"
            async with anyio.create_task_group() as tasks:
                for n in range(20):
                    tasks.start_soon(client.call_tool, "append_message", {"key": "agent:1", "text": str(n)})

    anyio.run(test)
    with nacre.open(place.root) as sessions:
        assert len(sessions.get_history("agent:1")) == 20


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"origin": "http://{host}"}, 200),
        ({"host": "localhost:{port}"}, 200),
        ({"host": "LOCALHOST"}, 200),
        ({"authorization": ""}, 401),
        ({"authorization": "Bearer"}, 401),
        ({"authorization": "Bearer wrong"}, 401),
        ({"authorization": f"Bearer {TOKEN}x"}, 401),
        ({"authorization": f"Basic {TOKEN}"}, 401),
        ({"authorization": TOKEN}, 401),
        ({"origin": "http://evil.example"}, 403),
        ({"origin": "null"}, 403),
        ({"origin": "http://localhost:1"}, 403),
        ({"origin": "http://{host}.evil.example"}, 403),
        ({"host": "evil.example"}, 421),
        ({"host": "evil.example:{port}"}, 421),
        ({"host": "127.0.0.1.evil.example"}, 421),
        ({"host": "localhost:80:80"}, 421),
        ({"host": "evil.example", "origin": "http://evil.example"}, 421),
        ({"content-type": "text/plain"}, 400),
    ],
)
def test_only_who_has_the_token_and_comes_from_here_is_answered(headers: dict[str, str], status: int, url: str) -> None:
    parts = urlsplit(url)
    given = {name: value.format(host=parts.netloc, port=parts.port) for name, value in headers.items()}
    assert ask(url, given).status_code == status


@pytest.mark.parametrize("method", ["GET", "DELETE", "OPTIONS", "PUT", "HEAD"])
@pytest.mark.parametrize(
    ("headers", "status"),
    [({"authorization": ""}, 401), ({"origin": "http://evil.example"}, 403), ({"host": "evil.example"}, 421)],
)
def test_every_method_is_guarded(method: str, headers: dict[str, str], status: int, url: str) -> None:
    found = ask(url, headers, method=method)
    assert found.status_code == status
    assert "access-control-allow-origin" not in found.headers


@pytest.mark.parametrize("path", ["/", "/mcp/", "/login", "/healthz", "/static/x", "/MCP", "/mcp/../x"])
def test_there_is_nothing_else(path: str, url: str) -> None:
    elsewhere = url.removesuffix("/mcp") + path
    assert ask(elsewhere, {"authorization": ""}).status_code == 401
    assert ask(elsewhere).status_code == 404


def test_many_wrong_tokens_must_wait_and_the_right_one_need_not(url: str) -> None:
    codes = [ask(url, {"authorization": f"Bearer wrong-{n}"}).status_code for n in range(12)]
    assert codes == [401] * 10 + [429] * 2
    assert ask(url).status_code == 200


def test_a_body_that_is_too_large_is_refused_with_and_without_its_length(url: str) -> None:
    assert ask(url, content=b" " * (MAX_BODY + 1)).status_code == 413

    def pieces() -> Iterator[bytes]:
        for _ in range(20):
            yield b" " * 65536

    assert ask(url, content=pieces()).status_code == 413
    assert ask(url).status_code == 200


@pytest.mark.parametrize(
    "lines", ["Content-Length: " + "9" * 400, "Content-Length: 5\r\nTransfer-Encoding: chunked", "Content-Length: -1"]
)
def test_a_length_that_cannot_be_is_refused(lines: str, url: str) -> None:
    parts = urlsplit(url)
    with socket.create_connection((parts.hostname, parts.port), timeout=20) as wire:
        head = f"POST /mcp HTTP/1.1\r\nHost: {parts.netloc}\r\nAuthorization: Bearer {TOKEN}\r\n{lines}\r\n\r\n"
        wire.sendall(head.encode())
        assert wire.recv(100).split()[1] in {b"400", b"413"}


def test_without_the_token_no_body_is_read(url: str) -> None:
    parts = urlsplit(url)
    with socket.create_connection((parts.hostname, parts.port), timeout=20) as wire:
        head = f"POST /mcp HTTP/1.1\r\nHost: {parts.netloc}\r\nContent-Length: 1000000\r\n\r\n"
        wire.sendall(head.encode())
        assert wire.recv(100).startswith(b"HTTP/1.1 401 ")


def test_a_session_of_a_client_ends_and_is_unknown_then(url: str) -> None:
    begun = ask(url)
    session = {"mcp-session-id": begun.headers["mcp-session-id"], "mcp-protocol-version": "2025-11-25"}
    ping = json.dumps({"jsonrpc": "2.0", "id": 2, "method": "ping"})
    assert ask(url, session, ping).status_code == 200
    assert ask(url, session, method="DELETE").status_code == 200
    assert ask(url, session, ping).status_code == 404


def test_clients_that_never_say_that_they_are_gone_lock_nobody_out(url: str) -> None:
    def begin() -> dict[str, str]:
        return {"mcp-session-id": ask(url).headers["mcp-session-id"], "mcp-protocol-version": "2025-11-25"}

    ping = json.dumps({"jsonrpc": "2.0", "id": 2, "method": "ping"})
    used, streaming, unused = (begin() for _ in range(3))
    with httpx.stream("GET", url, headers={**OWN, **streaming, "accept": "text/event-stream"}, timeout=30) as stream:
        assert stream.status_code == 200
        others = [begin() for _ in range(MAX_CLIENTS - 3)]
        assert ask(url, used, ping).status_code == 200
        assert ask(url, others.pop(), method="DELETE").status_code == 200
        others += [begin() for _ in range(3)]
        codes = [ask(url, session, ping).status_code for session in (used, streaming, unused, *others)]
    assert codes == [200, 200, 404, 404, *[200] * (MAX_CLIENTS - 2)]


def test_subscriptions_of_clients_that_are_gone_leave_room_for_others(url: str, place: Place) -> None:
    with nacre.open(place.root) as sessions:
        for number in range(66):
            sessions.add_message(f"many:{number}", "user", "hello")

    def subscribe(session: dict[str, str], number: int) -> str:
        asked = {"uri": f"nacre://sessions/many%3A{number}"}
        request = {"jsonrpc": "2.0", "id": 2, "method": "resources/subscribe", "params": asked}
        return ask(url, session, json.dumps(request)).text

    gone, here = ({"mcp-session-id": ask(url).headers["mcp-session-id"]} for _ in range(2))
    answers = [subscribe(gone, number) for number in range(65)]
    assert ["error" in answer for answer in answers] == [False] * 64 + [True]
    assert "at most 64 sessions can be subscribed to" in answers[-1]
    assert ask(url, gone, method="DELETE").status_code == 200
    assert ["error" in subscribe(here, number) for number in (64, 65)] == [False] * 2


@pytest.mark.filterwarnings("ignore:resources/:mcp.shared.exceptions.MCPDeprecationWarning")
@pytest.mark.parametrize("first", [{"many": 64, "streams": 1}, {"many": 1, "streams": 64}, {"many": 0, "streams": 64}])
@pytest.mark.parametrize("later", ["2025-11-25", "2026-07-28"])
def test_who_listens_to_as_much_as_can_be_gives_way_to_others(
    first: dict[str, int], later: str, url: str, place: Place
) -> None:
    with nacre.open(place.root) as sessions:
        for number in range(64):
            sessions.add_message(f"many:{number}", "user", "hello")
    many = [uri_of(f"many:{number}") for number in range(first["many"])]

    async def test() -> None:
        async with AsyncExitStack() as stack:
            greedy, newer = [await stack.enter_async_context(over_http(url)) for _ in range(2)]
            wanted: dict[str, Any] = {"resource_subscriptions": many, "tools_list_changed": True}
            streams = [await stack.enter_async_context(greedy.listen(**wanted)) for _ in range(first["streams"])]
            if later == "2025-11-25":
                older = await stack.enter_async_context(over_http(url, mode="legacy"))
                await older.session.subscribe_resource(uri_of("cli:1"))
                await older.session.subscribe_resource(uri_of("cli:1"))
            async with newer.listen(resource_subscriptions=[uri_of("cli:1")]) as events:
                # The oldest one has ended, and knows it.
                assert [event async for event in streams[0]] == []
                with nacre.open(place.root) as sessions:
                    sessions.add_message("cli:1", "user", "And a pearl?")
                assert getattr(await anext(events), "uri", "") == uri_of("cli:1")

    anyio.run(test)


def test_what_is_not_there_is_not_listened_to(url: str) -> None:
    async def test() -> None:
        odd = ["nacre://sessions/nacre%3Anotes", "file:///etc/passwd", "nacre://sessions/%00", "x", uri_of("cli:2")]
        async with over_http(url) as client:
            async with client.listen(resource_subscriptions=[*odd, uri_of("cli:1")]) as events:
                assert events.honored.resource_subscriptions == [uri_of("cli:1")]
            with pytest.raises(MCPError, match="at most 64"):
                async with client.listen(resource_subscriptions=[uri_of(f"none:{number}") for number in range(65)]):
                    pass

    anyio.run(test)


def test_a_client_that_dies_in_the_middle_harms_nobody(url: str) -> None:
    parts = urlsplit(url)
    for sent in (b"POST /mcp HTT", b"POST /mcp HTTP/1.1\r\nHost: localhost\r\n"):
        with socket.create_connection((parts.hostname, parts.port)) as wire:
            wire.sendall(sent)
    body = json.dumps(INITIALIZE).encode()
    for cut in (10, len(body)):
        with socket.create_connection((parts.hostname, parts.port)) as wire:
            wire.sendall(HEAD + f"Content-Length: {len(body)}\r\n\r\n".encode() + body[:cut])
    assert ask(url).status_code == 200


def test_a_client_that_is_gone_in_the_middle_of_a_body_is_no_failure_of_ours(place: Place) -> None:
    with place.over_http() as (url, process):
        parts = urlsplit(url)
        with socket.create_connection((parts.hostname, parts.port)) as wire:
            wire.sendall(HEAD + b"Content-Length: 500\r\n\r\n{")
        assert ask(url).status_code == 200
        process.terminate()
        assert process.stderr is not None
        assert process.stderr.read() == b""


@pytest.mark.parametrize("sent", [b"Content-Length: 500\r\n\r\n{", b"Transfer-Encoding: chunked\r\n\r\n1\r\n{\r\n"])
def test_a_body_that_comes_byte_by_byte_is_not_waited_for(sent: bytes, place: Place) -> None:
    async def dribble(port: int) -> bytes:
        more = b" " if b"Length" in sent else b"1\r\n \r\n"
        async with await anyio.connect_tcp("127.0.0.1", port) as wire:
            await wire.send(HEAD + sent)
            while True:
                with anyio.move_on_after(0.02):
                    return await wire.receive()
                await wire.send(more)

    async def test() -> bytes:
        ports, is_ready = list[int](), anyio.Event()

        def ready(port: int) -> None:
            ports.append(port)
            is_ready.set()

        with anyio.fail_after(60), nacre.open(place.root) as sessions:
            limits = Limits(body_timeout=0.3)
            served = application(make_server(Archive(sessions, uri=uri_of)), token=TOKEN, hosts=(), limits=limits)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(partial(serve_http, served, host="127.0.0.1", port=0, ready=ready))
                await is_ready.wait()
                found = await dribble(ports[0])
                tasks.cancel_scope.cancel()
        return found

    assert anyio.run(test).startswith(b"HTTP/1.1 408 ")


@asynccontextmanager
async def over_http(url: str, mode: Any = "auto") -> AsyncIterator[Client]:
    with anyio.fail_after(60):
        async with (
            httpx2.AsyncClient(headers=OWN, timeout=60) as http,
            Client(streamable_http_client(url, http_client=http), mode=mode) as client,
        ):
            yield client


@contextmanager
def waiting_for_news(url: str, protocol: str) -> Iterator[httpx.Response]:
    """A stream that ends only if the server ends it, as clients of one of the protocols open it."""
    headers = {**OWN, **ACCEPT, "mcp-protocol-version": protocol}
    if protocol == "2025-11-25":
        asked: dict[str, Any] = {
            "method": "GET",
            "headers": {**headers, "mcp-session-id": ask(url).headers["mcp-session-id"]},
        }
    else:
        name = "io.modelcontextprotocol"
        about = {f"{name}/protocolVersion": protocol, f"{name}/clientInfo": INFO, f"{name}/clientCapabilities": {}}
        params = {"notifications": {"resourceSubscriptions": ["nacre://sessions/cli%3A1"]}, "_meta": about}
        body = {"jsonrpc": "2.0", "id": 1, "method": "subscriptions/listen", "params": params}
        asked = {"method": "POST", "headers": {**headers, "mcp-method": "subscriptions/listen"}, "json": body}
    with httpx.stream(url=url, timeout=30, **asked) as stream:
        assert stream.status_code == 200
        yield stream


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("protocol", ["2025-11-25", "2026-07-28"])
def test_a_signal_ends_it_though_streams_are_open_and_these_end_whole(
    protocol: str, number: signal.Signals, place: Place
) -> None:
    with place.over_http() as (url, process), waiting_for_news(url, protocol) as stream:
        process.send_signal(number)
        # One that nobody ends keeps the server until it is cut off, which raises an error here.
        stream.read()
        assert process.wait(30) == 0
        assert process.stderr is not None
        assert process.stderr.read() == b""


def test_a_token_is_made_and_printed(place: Place) -> None:
    with place.start("serve", "--http", "127.0.0.1:0", "--json", stderr=subprocess.DEVNULL) as process:
        assert process.stdout is not None
        said = json.loads(process.stdout.readline())
        assert ask(said["url"], {"authorization": f"Bearer {said['token']}"}).status_code == 200
        assert ask(said["url"]).status_code == 401
        process.terminate()
    with place.start("serve", "--http", "127.0.0.1:0") as process:
        assert process.stderr is not None
        url = process.stderr.readline().split()[3].decode().rstrip(";")
        token = process.stderr.readline().split()[-1].decode()
        assert len(token) == 43
        assert ask(url, {"authorization": f"Bearer {token}"}).status_code == 200
        process.terminate()
        assert process.stdout is not None
        assert process.stdout.read() == b""


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--http", "0.0.0.0:0"], "0.0.0.0 is not loopback"),
        (["--http", "[::]:0"], ":: is not loopback"),
        (["--http", "example.com:80"], "example.com is not loopback"),
        (["--http", "0.0.0.0:0", "--remote"], "there is no token in NACRE_MCP_TOKEN"),
        (["--http", "99999"], "--http is HOST:PORT or PORT"),
        (["--http", "localhost"], "--http is HOST:PORT or PORT"),
        (["--http", "", "--write", "agent:"], "--http is HOST:PORT or PORT"),
        (["--http", "--host-name", "a:80"], "without scheme and port, such as desk.lan, not 'a:80'"),
        (["--http", "--host-name", "https://a"], "without scheme and port"),
        (["--http", "--host-name", ""], "without scheme and port"),
        (["--port", "8090"], "takes no --no-browser and no --port"),
        (["--http", ":8090"], "--http is HOST:PORT"),
        (["--http", "127.0.0.1:99999"], "--http is HOST:PORT"),
        (["--http", "127.0.0.1:0", "--token-file", "{folder}/none"], "cannot be read"),
        (["--http", "127.0.0.1:0", "--token-file", "{folder}/open"], "others may read"),
        (["--http", "127.0.0.1:0", "--token-file", "{folder}/short"], "a token has 16 to 4096"),
        (["--http", "127.0.0.1:0", "--token-file", "{folder}/empty"], "there is no token in"),
        (["--token-file", "x"], "are for --http"),
        (["--write", ""], "--write needs"),
        (["--write", "nacre:notes"], "nacre's own"),
        (["--store", "{folder}/nowhere"], "there is no store at"),
    ],
)
def test_what_cannot_be_served_is_told(words: list[str], said: str, place: Place, tmp_path: Path) -> None:
    for name, text in {"open": TOKEN, "short": "short", "empty": ""}.items():
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o644 if name == "open" else 0o600)
    given = [word.format(folder=tmp_path) for word in words]
    with place.start("serve", *given) as process:
        out, err = process.communicate(timeout=30)
    assert (out, process.returncode in {2, 3}) == (b"", True)
    assert said in err.decode()


@pytest.mark.parametrize("action", [[], ["list"], ["login", "desk"], ["logout", "desk"]])
@pytest.mark.parametrize("option", [["--token-file", "none"], ["--token-file", ""], ["--host-name", "x"], ["--remote"]])
def test_options_of_serve_are_refused_elsewhere(action: list[str], option: list[str], place: Place) -> None:
    with place.start(*action, *option, stdin=subprocess.DEVNULL) as process:
        out, err = process.communicate(timeout=30)
    assert (out, process.returncode) == (b"", 2)
    assert f"takes no {option[0]}" in err.decode()


def test_a_port_alone_is_one_of_this_machine(place: Place) -> None:
    with place.start("serve", "--http", "0", "--json", stderr=subprocess.DEVNULL) as process:
        assert process.stdout is not None
        said = json.loads(process.stdout.readline())
        assert said["url"].startswith("http://127.0.0.1:")
        assert ask(said["url"], {"authorization": f"Bearer {said['token']}"}).status_code == 200
        process.terminate()


def test_another_address_is_served_if_that_is_asked_for(place: Place, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text(f"{TOKEN}\n")
    token.chmod(0o600)
    words = ["--http", "0.0.0.0:0", "--remote", "--host-name", "desk.lan", "--token-file", str(token)]
    with place.start("serve", "--json", *words) as process:
        assert process.stdout is not None
        port = json.loads(process.stdout.readline())["port"]
        url = f"http://127.0.0.1:{port}/mcp"
        assert ask(url, {"host": f"desk.lan:{port}"}).status_code == 200
        assert ask(url, {"host": f"other.lan:{port}"}).status_code == 421
        process.terminate()


@pytest.mark.parametrize(
    ("host", "is_local"),
    [("127.0.0.1", True), ("127.8.9.1", True), ("::1", True), ("localhost", True), ("0.0.0.0", False), ("::", False)],  # noqa: S104 - nothing listens there
)
def test_what_loopback_is(host: str, is_local: bool) -> None:
    assert is_loopback(host) is is_local
