"""Who comes in and who does not: tokens, cookies, hosts, pages of others, and requests made to hurt."""

from __future__ import annotations

import logging
import socket
import time
from contextlib import suppress
from typing import Any

import anyio
import httpx
import pytest

from nacre.errors import ConfigError, StoreError
from nacre.web import auth, gate
from nacre.web.auth import Keys
from nacre.web.caller import Caller
from nacre.web.gate import Limits, source_of
from nacre.web.http_errors import Fault
from nacre.web.server import application, serve
from tests.web.conftest import TOKEN, Echo, Serve, Site, agent

CONTENT = [
    "/api/sessions",
    "/api/sessions/k",
    "/api/sessions/k/events",
    "/api/search?q=x",
    "/v1/models",
    "/",
    "/nothing",
]


def raw(site: Site, data: bytes, *, end: bool = False) -> bytes:
    """What comes back for bytes as they are."""
    with socket.create_connection(("127.0.0.1", site.port), timeout=20) as line:
        line.sendall(data)
        if end:
            line.shutdown(socket.SHUT_WR)
        found = b""
        while piece := line.recv(65536):
            found += piece
        return found


def head(*lines: str, start: str = "GET /api/sessions HTTP/1.1") -> bytes:
    usual = [f"Authorization: Bearer {TOKEN}", "Connection: close"]
    return "\r\n".join((start, *lines, *usual, "", "")).encode("latin-1")


def login(site: Site, token: str = TOKEN, **options: Any) -> Any:
    with site.visitor() as visitor:
        return visitor.post("/login", json={"token": token}, **options)


# ---- the token


@pytest.mark.parametrize("path", CONTENT)
def test_nothing_is_shown_without_a_token(echo: Site, path: str) -> None:
    with echo.visitor() as visitor:
        answer = visitor.get(path)
    assert (answer.status_code, answer.headers["www-authenticate"]) == (401, "Bearer")


@pytest.mark.parametrize("method", ["POST", "PATCH", "DELETE", "PUT"])
def test_nothing_is_changed_without_a_token(echo: Site, method: str) -> None:
    echo.sessions.add_message("k", "user", "mine")
    with echo.visitor() as visitor:
        assert visitor.request(method, "/api/sessions/k", json={"title": "x"}).status_code == 401
        assert visitor.post("/v1/chat/completions", json={}).json()["error"]["code"] == "invalid_api_key"
    assert echo.said("k") == [("user", "mine")]


@pytest.mark.parametrize("given", ["Bearer", f"Basic {TOKEN}", f"Bearer {TOKEN}x", "", f"Bearer x {TOKEN}"])
def test_another_token_is_none(echo: Site, given: str) -> None:
    with echo.visitor({"Authorization": given}) as visitor:
        assert visitor.get("/api/sessions").status_code == 401


def test_what_holds_no_content_is_public(echo: Site) -> None:
    with echo.visitor() as visitor:
        assert visitor.get("/openapi.json").json()["openapi"] == "3.1.0"


def test_there_is_no_server_without_a_token(echo: Site) -> None:
    with pytest.raises(ConfigError, match="needs a token"):
        application(echo.app, token="", hosts=())


def test_who_looks_at_a_page_is_sent_to_the_login(echo: Site) -> None:
    with echo.visitor({"Accept": "text/html"}) as visitor:
        answer = visitor.get("/s/k?q=a b")
        assert (answer.status_code, answer.headers["location"]) == (303, "/login?next=%2Fs%2Fk%3Fq%3Da%2520b")
        assert visitor.get("/api/sessions").status_code == 401


def test_a_login_leads_back_to_the_very_address(echo: Site) -> None:
    with echo.visitor({"Accept": "text/html"}) as visitor:
        answer = visitor.get("/s/a%3Fb%0A%25?q=%23")
        assert answer.headers["location"] == "/login?next=%2Fs%2Fa%253Fb%250A%2525%3Fq%3D%2523"


@pytest.mark.parametrize("path", ["/login", "/healthz", "/static/nacre.css"])
def test_a_stranger_does_not_learn_which_agents_there_are(echo: Site, path: str) -> None:
    with echo.visitor() as visitor:
        answers = [visitor.get(f"/agents/{name}{path}") for name in ("main", "nobody")]
    assert [answer.status_code for answer in answers] == [401, 401]
    assert "there are" not in answers[1].text


# ---- the cookie


def test_a_login_gives_a_cookie_that_scripts_and_other_sites_do_not_get(echo: Site) -> None:
    answer = login(echo)
    cookie = answer.headers["set-cookie"]
    assert answer.status_code == 204
    assert all(word in cookie for word in ("HttpOnly", "SameSite=strict", "Path=/", "Max-Age=2592000"))
    assert TOKEN not in cookie


def test_a_form_logs_in_too(echo: Site) -> None:
    with echo.visitor() as visitor:
        answer = visitor.post("/login", data={"token": TOKEN})
        assert (answer.status_code, answer.headers["location"]) == (303, "/")
        assert visitor.get("/api/sessions").status_code == 200


@pytest.mark.parametrize("body", [b'{"token": "\xff"}', b'{"x": ' + b"[" * 3000, b"\x00", b'{"token": 1e999}'])
def test_a_login_that_cannot_be_read_is_the_senders_fault(echo: Site, body: bytes) -> None:
    with echo.visitor({"Content-Type": "application/json"}) as visitor:
        assert visitor.post("/login", content=body).status_code == 400


def test_a_cookie_reads_and_with_its_pages_origin_it_writes(echo: Site) -> None:
    with echo.visitor() as visitor:
        visitor.post("/login", json={"token": TOKEN})
        send = ("/api/sessions/k/messages", {"content": "hello"})
        assert visitor.get("/api/sessions").status_code == 200
        assert visitor.post(send[0], json=send[1]).status_code == 403
        assert visitor.post(send[0], json=send[1], headers={"Origin": echo.url}).status_code == 200
        assert visitor.post("/logout", headers={"Origin": echo.url}).status_code == 204
        assert visitor.get("/api/sessions").status_code == 401


@pytest.mark.parametrize("other", ['seen={"a": 1}', 'half="quoted', "two words=1", "=1", "[x]=1", "ü=1"])
def test_the_cookies_of_another_server_on_this_host_do_not_hide_ours(echo: Site, other: str) -> None:
    ours = login(echo).headers["set-cookie"].partition(";")[0]
    data = f"GET /api/sessions HTTP/1.1\r\nHost: localhost\r\nCookie: {other}; {ours}\r\nConnection: close\r\n\r\n"
    assert raw(echo, data.encode())[9:12] == b"200"


def test_behind_a_proxy_that_speaks_tls_the_cookie_does_not_go_without(echo: Site) -> None:
    assert "Secure" not in login(echo, headers={"Origin": echo.url}).headers["set-cookie"]
    beyond = login(echo, headers={"Origin": "https://localhost", "Host": "localhost"})
    assert "Secure" in beyond.headers["set-cookie"]


def test_a_cookie_that_was_changed_or_is_old_is_none() -> None:
    keys, other = Keys("a"), Keys("b")
    value, others = keys.new_cookie(1000, Caller()), other.new_cookie(1000, Caller())
    assert keys.cookie_of(value, 1000) == Caller()
    assert keys.cookie_of(value, 1000 + 30 * 86_400) is None
    assert keys.cookie_of(f"9{value}", 1000) is None
    assert {keys.cookie_of(text, 1000) for text in ("", ".", "x.y", value[:-1], others, "ü.ü", "1.x.y")} == {None}
    assert keys.cookie != other.cookie


# ---- guessing


def test_whoever_tries_many_wrong_tokens_must_wait(echo: Site) -> None:
    answers = [login(echo, f"guess {number}") for number in range(11)]
    assert [answer.status_code for answer in answers] == [401] * 10 + [429]
    assert 0 < int(answers[-1].headers["retry-after"]) <= 60


def test_the_right_token_is_accepted_while_others_at_its_address_guess(echo: Site) -> None:
    for number in range(11):
        login(echo, f"guess {number}")
    with echo.visitor({"Authorization": f"Bearer {TOKEN}"}) as visitor:
        assert visitor.get("/api/sessions").status_code == 200
    assert login(echo).status_code == 204
    assert login(echo, "another guess").status_code == 429


def test_one_old_token_again_and_again_is_no_guessing(echo: Site) -> None:
    assert {login(echo, "last year's").status_code for _ in range(15)} == {401}
    assert login(echo).status_code == 204


def test_a_minute_later_one_may_try_again() -> None:
    guesses = auth._Guesses()
    for number in range(10):
        guesses.add("a", str(number), now=100)
    with pytest.raises(Fault):
        guesses.check("a", now=159)
    guesses.check("b", now=159)
    guesses.check("a", now=160)


def test_addresses_are_forgotten_before_they_fill_the_memory() -> None:
    guesses = auth._Guesses()
    for number in range(5000):
        guesses.add(str(number), "x", now=1)
    assert len(guesses._wrong) == 1024


@pytest.mark.parametrize(
    ("client", "address"),
    [
        (("192.0.2.1", 1), "192.0.2.1"),
        (("2001:db8:1:2:3:4:5:6", 1), "2001:db8:1:2::/64"),
        (("::ffff:192.0.2.1", 1), "192.0.2.1"),
        (("fe80::1%eth0", 1), "fe80::/64"),
        (("testclient", 1), "None"),
        (None, "None"),
    ],
)
def test_guesses_are_counted_by_network(client: Any, address: str) -> None:
    assert source_of({"client": client, "headers": []}, ()) == address


@pytest.mark.parametrize(
    ("peer", "said", "source"),
    [
        ("10.0.0.5", ["192.0.2.1"], "192.0.2.1"),
        ("10.0.0.5", ["203.0.113.9, 192.0.2.1"], "192.0.2.1"),
        ("10.0.0.5", ["192.0.2.1, 10.0.0.6"], "192.0.2.1"),
        ("10.0.0.5", ["203.0.113.9", "192.0.2.1"], "192.0.2.1"),
        ("10.0.0.5", ["10.0.0.6"], "10.0.0.6"),
        ("10.0.0.5", ["192.0.2.1:4711"], "192.0.2.1"),
        ("10.0.0.5", ["[2001:db8:1:2::3]:80"], "2001:db8:1:2::/64"),
        ("10.0.0.5", ["192.0.2.1, nonsense"], "10.0.0.5"),
        ("10.0.0.5", [""], "10.0.0.5"),
        ("10.0.0.5", [], "10.0.0.5"),
        ("::ffff:10.0.0.5", ["192.0.2.1"], "192.0.2.1"),
        ("fd00::1", ["192.0.2.1"], "192.0.2.1"),
        ("198.51.100.7", ["192.0.2.1"], "198.51.100.7"),
    ],
)
def test_what_a_proxy_says_of_the_source_is_believed_if_the_proxy_is_trusted(
    peer: str, said: list[str], source: str
) -> None:
    headers = [(b"x-forwarded-for", text.encode()) for text in said]
    assert source_of({"client": (peer, 1), "headers": headers}, ("10.0.0.0/24", "fd00::/8")) == source


def test_guesses_behind_a_trusted_proxy_are_counted_by_client(server: Serve) -> None:
    site = server(provider=Echo(), settings={"serve": {"trusted_proxies": ["127.0.0.1"]}})

    def guess(number: int, client: str) -> int:
        return int(login(site, f"guess {number}", headers={"X-Forwarded-For": client}).status_code)

    assert [guess(number, "192.0.2.1") for number in range(11)][-1] == 429
    assert guess(11, "192.0.2.2") == 401
    assert [login(site, f"guess {number}").status_code for number in (12, 13)] == [401, 401]


# ---- hosts and pages


@pytest.mark.parametrize("host", ["127.0.0.1", "LOCALHOST", "localhost:1"])
def test_our_own_names_are_let_in(echo: Site, host: str) -> None:
    assert raw(echo, head(f"Host: {host}")).startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize(
    "host", ["evil.example", "127.0.0.1.evil.example", "", "localhost:x", "localhost@evil", "[::1]"]
)
def test_another_name_that_leads_here_is_refused(echo: Site, host: str) -> None:
    assert raw(echo, head(f"Host: {host}")).startswith(b"HTTP/1.1 421")


def test_an_address_with_colons_is_a_host_in_brackets(echo: Site) -> None:
    async def ask() -> int:
        web = application(echo.app, token=TOKEN, hosts=("fd00::5",))
        transport = httpx.ASGITransport(app=web)
        async with httpx.AsyncClient(transport=transport, base_url="http://[fd00::5]:8080") as client:
            return (await client.get("/healthz")).status_code

    assert anyio.run(ask) == 200


def test_two_hosts_or_none_are_refused(echo: Site) -> None:
    assert raw(echo, head("Host: 127.0.0.1", "Host: evil.example")).startswith(b"HTTP/1.1 4")
    assert raw(echo, head(start="GET /api/sessions HTTP/1.0")).startswith(b"HTTP/1.1 421")


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://127.0.0.1:1"},
        {"Origin": "ftp://127.0.0.1"},
        {"Origin": "http://[::1"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
    ],
)
@pytest.mark.parametrize("path", ["/api/sessions/k/messages", "/login"])
def test_another_page_changes_nothing_even_with_the_token(echo: Site, headers: dict[str, str], path: str) -> None:
    answer = echo.client.post(path, json={"content": "x"}, headers=headers)
    assert (answer.status_code, answer.json()["code"]) == (403, "forbidden")
    assert not echo.sessions.exists("k")


@pytest.mark.parametrize("path", ["/api/sessions", "/nothing", "/openapi.json", "/v1/models"])
def test_every_answer_has_its_headers_and_a_nonce_of_its_own(echo: Site, path: str) -> None:
    first, second = echo.client.get(path), echo.client.get(path)
    assert {name: first.headers.get(name) for name in gate._HEADERS} == gate._HEADERS
    assert "script-src 'nonce-" in first.headers["content-security-policy"]
    assert "unsafe" not in first.headers["content-security-policy"]
    assert first.headers["content-security-policy"] != second.headers["content-security-policy"]
    assert "server" not in first.headers


# ---- requests made to hurt


HUGE = head("Host: localhost", "Content-Length: 99999999999", start="POST /api/sessions/k/messages HTTP/1.1")


def test_a_body_that_says_it_is_huge_is_refused_before_it_is_read(server: Serve) -> None:
    site = server(provider=Echo(), limits=Limits(discard_timeout=0.1))
    assert raw(site, HUGE).startswith(b"HTTP/1.1 413")


def test_a_body_that_grows_too_large_is_refused_while_it_is_read(server: Serve) -> None:
    site = server(provider=Echo(), limits=Limits(body_bytes=1000))
    pieces = (b"x" * 600 for _ in range(3))
    answer = site.client.post("/api/sessions/k/messages", content=pieces, headers={"content-type": "application/json"})
    assert (answer.status_code, answer.json()["code"]) == (413, "too_large")


CHUNK = b"80000\r\n" + b"x" * 0x80000 + b"\r\n"


@pytest.mark.parametrize(
    ("length", "body"),
    [("Content-Length: 16777216", b"x" * 16_777_216), ("Transfer-Encoding: chunked", CHUNK * 32 + b"0\r\n\r\n")],
    ids=["announced", "in chunks"],
)
def test_who_sends_all_of_a_body_that_is_too_large_still_gets_the_answer(
    server: Serve, length: str, body: bytes
) -> None:
    """Some clients and proxies read nothing before they have sent everything, or lose what they were sent."""
    site = server(provider=Echo(), limits=Limits(body_bytes=1000, discard_timeout=60))
    kind = "Content-Type: application/json"
    start = head("Host: localhost", kind, length, start="POST /api/sessions/k/messages HTTP/1.1")
    assert raw(site, start + body).startswith(b"HTTP/1.1 413")


def test_a_refused_body_that_does_not_end_is_not_read_forever(server: Serve) -> None:
    site = server(provider=Echo(), limits=Limits(discarded_bytes=1_000_000, discard_timeout=60))
    with socket.create_connection(("127.0.0.1", site.port), timeout=20) as line:
        line.sendall(HUGE)
        with pytest.raises(ConnectionError):
            line.sendall(b"x" * 100_000_000)  # more than the system keeps for a connection that nobody reads


def test_a_stranger_sends_little(echo: Site) -> None:
    with echo.visitor() as visitor:
        assert visitor.post("/login", content=b"x" * 5000).status_code == 413
        assert visitor.post("/api/sessions/k/messages", content=b"x" * 5000).status_code == 401


def test_a_body_that_does_not_come_is_not_waited_for(server: Serve) -> None:
    site = server(provider=Echo(), limits=Limits(body_timeout=0.05))
    kind = "Content-Type: application/json"
    start = head("Host: localhost", kind, "Content-Length: 9", start="POST /api/sessions/k/messages HTTP/1.1")
    assert raw(site, start + b"{").startswith(b"HTTP/1.1 408")


def dribbled(site: Site, start: str) -> bytes:
    """What comes back for a body that comes byte by byte until nobody takes it."""
    data = f"{start}\r\nHost: localhost\r\nContent-Length: 4000\r\n\r\n".encode()
    found, began = b"", time.monotonic()
    with socket.create_connection(("127.0.0.1", site.port), timeout=0.02) as line, suppress(ConnectionError):
        while time.monotonic() < began + 5:
            line.sendall(data)
            data = b" "
            with suppress(TimeoutError):
                piece = line.recv(65536)
                found += piece
                if not piece:
                    return found
        pytest.fail("it is still waited for")
    return found


@pytest.mark.parametrize("path", ["/api/sessions/k/messages", "/healthz"])
def test_a_body_that_nobody_reads_is_not_waited_for(server: Serve, path: str) -> None:
    site = server(provider=Echo(), limits=Limits(head_timeout=0.1))
    assert dribbled(site, f"POST {path} HTTP/1.1")[9:12] in {b"401", b"405"}


def test_a_body_that_comes_byte_by_byte_is_not_waited_for(server: Serve) -> None:
    site = server(provider=Echo(), limits=Limits(body_timeout=0.2))
    assert dribbled(site, "POST /login HTTP/1.1")[9:12] == b"408"


def test_what_follows_a_refused_body_is_no_failure_of_ours(echo: Site, caplog: pytest.LogCaptureFixture) -> None:
    with socket.create_connection(("127.0.0.1", echo.port), timeout=20) as line:
        line.sendall(b"POST /nothing HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n1\r\n")
        found = line.recv(65536)
        assert found[9:12] == b"401"
        while not found.endswith(b"}"):
            found += line.recv(65536)
        line.sendall(b"no chunk")
        assert line.recv(65536) == b""
    assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []


@pytest.mark.parametrize("requests", [0, 1])
def test_a_head_that_does_not_come_is_not_waited_for(server: Serve, requests: int) -> None:
    site = server(provider=Echo(), limits=Limits(head_timeout=0.1))
    with socket.create_connection(("127.0.0.1", site.port), timeout=20) as line:
        for _ in range(requests):
            line.sendall(b"GET /nothing HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert line.recv(65536).startswith(b"HTTP/1.1 401")
        line.sendall(b"GET /nothing HTTP/1.1\r\nHost: loc")
        while line.recv(65536):  # raises when the line stays open for longer than its timeout
            continue


@pytest.mark.parametrize(
    "line",
    [
        "X-Long: " + "x" * 100_000,
        "\r\n".join(f"X-{number}: {'y' * 900}" for number in range(100)),
    ],
    ids=["one", "many"],
)
def test_a_head_that_is_too_long_is_refused(echo: Site, line: str) -> None:
    assert raw(echo, head("Host: localhost", line))[:12] == b"HTTP/1.1 431"


@pytest.mark.parametrize(
    "start",
    [
        "GET /api/sessions/\xff HTTP/1.1",
        "GET /api/sessions/%ff HTTP/1.1",
        "GET /api/sessions/%00 HTTP/1.1",
        "GET /api/sessions/..%2f..%2fetc%2fpasswd HTTP/1.1",
        "GET /api/sessions/../../etc/passwd HTTP/1.1",
        "GET //api/sessions HTTP/1.1",
        "GET /api/sessions/ HTTP/1.1",
        "GET /API/sessions HTTP/1.1",
        "GET /openapi.json/../api/sessions HTTP/1.1",
        "GET /static/../api/sessions HTTP/1.1",
        "GET http://evil.example/api/sessions HTTP/1.1",
        "BREW /api/sessions HTTP/1.1",
        "POST /api/sessions HTTP/1.1",
        "nonsense",
        "GET /api/sessions/" + "a" * 2000 + " HTTP/1.1",
        "GET /api/search?q=%ff HTTP/1.1",
    ],
)
def test_a_strange_request_is_the_senders_fault_and_shows_nothing(echo: Site, start: str) -> None:
    echo.sessions.add_message("k", "user", "mine")
    answer = raw(echo, head("Host: localhost", start=start))
    assert answer[9:12] in {b"400", b"404", b"405"} or (b"search" in start.encode() and answer[9:12] == b"200")
    assert b"mine" not in answer


@pytest.mark.parametrize(
    "start", ["GET /static/../api/sessions HTTP/1.1", "GET /openapi.json/../api/sessions HTTP/1.1"]
)
def test_what_is_public_leads_to_nothing_else(echo: Site, start: str) -> None:
    data = f"{start}\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode()
    assert raw(echo, data)[9:12] in {b"401", b"404"}


def test_two_lengths_are_refused(echo: Site) -> None:
    start = "POST /api/sessions/k/messages HTTP/1.1"
    lines = ("Host: localhost", "Content-Length: 5", "Transfer-Encoding: chunked", "Content-Length: 6")
    assert raw(echo, head(*lines, start=start))[9:12] == b"400"


def test_a_length_and_chunks_are_refused_and_nothing_after_them_is_answered(echo: Site) -> None:
    """A proxy may end the body where its length says, and take what follows for somebody else's request."""
    start = "POST /v1/chat/completions HTTP/1.1\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\nHost: localhost"
    hidden = f"GET /api/sessions HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}\r\n\r\n"
    found = raw(echo, f"{start}\r\nAuthorization: Bearer {TOKEN}\r\n\r\n0\r\n\r\n{hidden}".encode())
    assert found[9:12] == b"400"
    assert found.count(b"HTTP/1.1 ") == 1


def test_a_web_socket_is_not_spoken(echo: Site) -> None:
    lines = ("Host: localhost", "Upgrade: websocket", "Sec-WebSocket-Key: eA==", "Sec-WebSocket-Version: 13")
    assert raw(echo, head(*lines))[9:12] in {b"200", b"400"}


def test_neither_tokens_nor_words_are_in_the_logs(echo: Site, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    echo.client.post("/api/sessions/k/messages", json={"content": "a secret word"})
    echo.client.get("/api/search?q=another secret")
    login(echo, "a wrong secret")
    echo.client.post("/v1/chat/completions", content=b"{ third secret", headers={"content-type": "application/json"})
    ours = [record for record in caplog.records if record.name.startswith(("nacre", "uvicorn", "starlette"))]
    texts = [record.getMessage() for record in ours]
    assert [text for text in texts if "secret" in text or TOKEN in text] == []


def test_what_nobody_foresaw_is_told_to_the_log_and_not_to_the_client(
    server: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    site = server(RuntimeError("inner workings"))
    answer = site.client.post("/api/sessions/k/messages", json={"content": "hi"})
    assert (answer.status_code, "inner" in answer.text, answer.json()["code"]) == (500, False, "failed")
    assert answer.headers["x-frame-options"] == "DENY"
    assert "a request failed" in caplog.messages


def test_a_store_that_is_away_is_a_line_in_the_log_without_a_trace(
    server: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    site = server(StoreError("the database does not answer"))
    answer = site.client.post("/api/sessions/k/messages", json={"content": "hi"})
    [line] = [record for record in caplog.records if record.getMessage() == "a request failed"]
    assert (answer.status_code >= 500, line.levelname, line.exc_info) == (True, "WARNING", None)
    assert "does not answer" in line.__dict__["error"]


# ---- the server


def test_a_port_that_is_taken_is_a_sentence(echo: Site) -> None:
    async def run() -> None:
        made = application(echo.app, token=TOKEN, hosts=())
        await serve(made, host="127.0.0.1", port=echo.port, ready=lambda _: None)

    with pytest.raises(ConfigError, match=r"cannot listen at '127\.0\.0\.1'"):
        anyio.run(run)


def test_it_listens_at_every_address_of_a_host_and_ends_when_cancelled() -> None:
    app = agent(":memory:", provider=_Silent())

    async def run() -> None:
        async with app.kernel, anyio.create_task_group() as tasks:
            made = application(app, token=TOKEN, hosts=("localhost",))
            up = anyio.Event()
            ports: list[int] = []

            def ready(port: int) -> None:
                ports.append(port)
                up.set()

            async def listen() -> None:
                await serve(made, host="localhost", port=0, ready=ready)

            tasks.start_soon(listen)
            await up.wait()
            stream = await anyio.connect_tcp("127.0.0.1", ports[0])
            await stream.aclose()
            tasks.cancel_scope.cancel()

    anyio.run(run)
    app.sessions.close()


class _Silent:
    model = "silent"

    async def complete(self, *_: Any, **__: Any) -> Any:
        raise NotImplementedError

    async def close(self) -> None:
        """Nothing to release."""
