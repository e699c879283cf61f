"""MCP over HTTP: logging in, tokens in private files, and servers that lead elsewhere."""

from __future__ import annotations

import io
import json
import logging
import os
import re
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.parse import parse_qs, urlencode, urlsplit

import anyio
import httpx2
import pytest

from nacre.errors import ToolError
from nacre.runtime.daemon_log import logged
from nacre.tools.mcp import Config, LoginNeeded, Server, Servers, login_from
from nacre.tools.mcp.client_types import TokenFile
from nacre.tools.mcp.servers import log_in
from nacre.tools.mcp.transports import HttpTransport
from tests.tools.mcp_site import Site, site
from tests.tools.scenes import scene

PEER = str(Path(__file__).with_name("mcp_server.py"))


@pytest.fixture
def desk() -> Iterator[Site]:
    with site() as found:
        yield found


@pytest.fixture
def address() -> Iterator[str]:
    """A server of the official package."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with subprocess.Popen([sys.executable, PEER, str(port)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as peer:
        assert peer.stdout is not None
        for line in peer.stdout:
            if b"running on" in line:
                break
        yield f"http://127.0.0.1:{port}/mcp"
        peer.kill()


async def say(server: Server, tool: str = "desk_say") -> str:
    """Call a tool of a server in a connection of its own."""
    async with Servers([server]):
        tools = {tool.spec.name: tool for tool in (await server.offer()).tools}
        return (await tools[tool].run({}, scene())).text


def called(desk: Site, folder: Path, **changes: Any) -> str:
    return anyio.run(say, Server(Config(name="desk", url=desk.url, **changes), login=login_from(folder)))


async def agree(page: str) -> int:
    """Do what a browser does whose user agrees; gives the status of where it ends."""

    def visit() -> int:
        try:
            with urllib.request.urlopen(page) as answer:  # noqa: S310 - loopback
                return int(answer.status)
        except HTTPError as error:
            with error:
                return error.code

    return await anyio.to_thread.run_sync(visit)


async def show(page: str) -> None:
    assert await agree(page) == 200


def logged_in(desk: Site, folder: Path) -> TokenFile:
    config = Config(name="desk", url=desk.url)
    file = TokenFile(folder, config)

    async def enter() -> tuple[bool, list[str]]:
        return await log_in(config, file, show=show)

    assert anyio.run(enter) == (True, ["desk_say"])
    return file


def test_a_server_of_the_official_package_is_spoken_to_and_lines_are_not_cut(address: str) -> None:
    assert anyio.run(say, Server(Config(name="peer", url=address)), "peer_lines") == "a\\u2028b\\u2029c\\x85d"
    assert "3,000,000" not in anyio.run(say, Server(Config(name="peer", url=address)), "peer_long")


def test_a_server_that_wants_no_login_gets_none_but_our_headers(desk: Site, tmp_path: Path) -> None:
    desk.is_open = True
    assert called(desk, tmp_path, headers={"x-key": "mine"}) == "a\\u2028b\\u2029c\\x85d"
    assert {message["headers"]["x-key"] for message in desk.seen} == {"mine"}
    assert desk.grants == []
    assert list(tmp_path.iterdir()) == []


def test_without_a_login_the_command_for_it_is_told_and_nothing_is_registered(desk: Site, tmp_path: Path) -> None:
    with pytest.raises(LoginNeeded, match=r"needs you to log in: nacre mcp login desk$"):
        called(desk, tmp_path)
    assert (desk.grants, list(tmp_path.iterdir())) == ([], [])


def test_a_refused_header_is_told_as_such(desk: Site, tmp_path: Path) -> None:
    with pytest.raises(ToolError, match="refuses the authorization header"):
        called(desk, tmp_path, headers={"Authorization": "Bearer wrong"})


def test_tokens_of_a_login_are_private_and_used_until_they_are_erased(desk: Site, tmp_path: Path) -> None:
    file = logged_in(desk, tmp_path / "mcp")
    (path,) = (tmp_path / "mcp").iterdir()
    assert (path.stat().st_mode & 0o777, path.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    assert called(desk, tmp_path / "mcp") == "a\\u2028b\\u2029c\\x85d"
    assert desk.grants == ["authorization_code"]
    assert (file.erase(), file.erase()) == (True, False)
    with pytest.raises(LoginNeeded):
        called(desk, tmp_path / "mcp")


def back(page: str, **query: str) -> str:
    """The address that a page leads back to, with a query."""
    asked = {name: values[0] for name, values in parse_qs(urlsplit(page).query).items()}
    return f"{asked['redirect_uri']}?{urlencode({'state': asked['state'], **query})}"


def test_a_user_who_refuses_is_told_what_the_server_says(desk: Site, tmp_path: Path) -> None:
    async def refuse(page: str) -> None:
        await agree(back(page, error="access_denied", error_description="not \x1b[31mtoday"))

    config = Config(name="desk", url=desk.url)
    with pytest.raises(ToolError, match=r"the server refused: not \\x1b\[31mtoday"):
        anyio.run(lambda: log_in(config, TokenFile(tmp_path, config), show=refuse))


def test_what_does_not_come_from_the_page_of_the_login_is_ignored(desk: Site, tmp_path: Path) -> None:
    async def attack(page: str) -> None:
        missing = back(page, code="evil").replace("state", "x")
        for address in (back(page, code="evil", state="wrong"), back(page), missing):
            assert await agree(address) == 404
        await agree(page)

    config = Config(name="desk", url=desk.url)
    is_done, _ = anyio.run(lambda: log_in(config, TokenFile(tmp_path, config), show=attack))
    assert is_done


def test_tokens_that_expired_are_refreshed_where_they_came_from(desk: Site, tmp_path: Path) -> None:
    logged_in(desk, tmp_path).change(expires=1.0)
    desk.tokens.clear()
    assert called(desk, tmp_path) == "a\\u2028b\\u2029c\\x85d"
    # The new tokens were stored: they are used, and those before could be refreshed once.
    assert called(desk, tmp_path) == "a\\u2028b\\u2029c\\x85d"
    assert desk.grants == ["authorization_code", "refresh_token"]


def test_tokens_that_are_refused_before_their_time_are_refreshed(desk: Site, tmp_path: Path) -> None:
    logged_in(desk, tmp_path)
    desk.tokens.clear()
    assert called(desk, tmp_path) == "a\\u2028b\\u2029c\\x85d"
    assert desk.grants == ["authorization_code", "refresh_token"]


def twice(server: Server, between: Callable[[], object]) -> list[str]:
    """Call a tool twice in one connection, with something between."""

    async def use() -> list[str]:
        async with Servers([server]):
            (tool,) = (await server.offer()).tools
            first = (await tool.run({}, scene())).text
            between()
            return [first, (await tool.run({}, scene())).text]

    return anyio.run(use)


def test_tokens_that_another_process_refreshed_are_used(desk: Site, tmp_path: Path) -> None:
    file = logged_in(desk, tmp_path)

    def refresh_elsewhere() -> None:
        desk.tokens.clear()
        desk.refreshable.clear()
        file.change(tokens=desk.give("read"))

    server = Server(Config(name="desk", url=desk.url), login=login_from(tmp_path))
    assert twice(server, refresh_elsewhere) == ["a\\u2028b\\u2029c\\x85d"] * 2
    assert desk.grants == ["authorization_code"]


def test_a_server_that_has_forgotten_the_session_is_greeted_again(desk: Site, tmp_path: Path) -> None:
    desk.is_open, desk.session = True, "one"

    def restart() -> None:
        desk.session = "two"

    server = Server(Config(name="desk", url=desk.url), login=login_from(tmp_path))
    assert twice(server, restart) == ["a\\u2028b\\u2029c\\x85d"] * 2
    assert [message["method"] for message in desk.seen].count("tools/call") == 3


def test_tokens_that_cannot_be_refreshed_need_a_new_login(desk: Site, tmp_path: Path) -> None:
    logged_in(desk, tmp_path).change(expires=1.0)
    desk.tokens.clear()
    desk.refreshable.clear()
    with pytest.raises(LoginNeeded):
        called(desk, tmp_path)
    logged_in(desk, tmp_path)
    assert called(desk, tmp_path) == "a\\u2028b\\u2029c\\x85d"


def test_a_call_that_needs_more_scope_is_allowed_at_the_next_login(desk: Site, tmp_path: Path) -> None:
    logged_in(desk, tmp_path)
    desk.needed = "write"
    with pytest.raises(LoginNeeded):
        called(desk, tmp_path)
    logged_in(desk, tmp_path)
    assert desk.asked_scope == ["read", "read write"]
    assert called(desk, tmp_path) == "a\\u2028b\\u2029c\\x85d"


def test_tokens_are_not_sent_to_another_address_under_the_same_name(desk: Site, tmp_path: Path) -> None:
    logged_in(desk, tmp_path)
    with site() as other:
        with pytest.raises(LoginNeeded):
            called(other, tmp_path)
        assert all("Authorization" not in message["headers"] for message in other.seen)


def test_a_redirect_to_another_host_is_not_followed(desk: Site, tmp_path: Path) -> None:
    logged_in(desk, tmp_path)
    with site() as other:
        desk.redirect = other.url
        with pytest.raises(ToolError, match="not followed"):
            called(desk, tmp_path)
        assert other.seen == []


def test_an_answer_that_is_too_long_ends_the_call(desk: Site, tmp_path: Path) -> None:
    desk.is_open, desk.huge = True, 65 * 1024 * 1024
    with pytest.raises(ToolError, match="more than 67,108,864 bytes"):
        called(desk, tmp_path)


def test_an_answer_that_is_packed_is_not_unpacked(desk: Site, tmp_path: Path) -> None:
    desk.is_open = desk.is_packed = True
    with pytest.raises(ToolError, match="compressed its answer"):
        called(desk, tmp_path)
    assert desk.seen[0]["headers"]["accept-encoding"] == "identity"


@pytest.mark.parametrize("raw", [b"secret words", b'{"secret": 1}', b'["\\ud83d secret"]'])
def test_an_answer_that_cannot_be_read_is_told_without_its_words(raw: bytes, desk: Site, tmp_path: Path) -> None:
    desk.is_open, desk.raw = True, raw
    with pytest.raises(ToolError, match="'desk': it sent an answer that is not valid") as told:
        called(desk, tmp_path)
    assert "secret" not in str(told.value)


def test_a_server_that_floods_is_ended(desk: Site, tmp_path: Path) -> None:
    desk.is_open, desk.noise = True, 100
    assert called(desk, tmp_path, timeout=600).startswith("a")
    desk.noise = 10_010
    with pytest.raises(ToolError, match="more than 10,000 messages in a minute"):
        called(desk, tmp_path, timeout=600)


class Peer:
    """A connection, as far as it says who is at its other end."""

    def get_extra_info(self, name: str) -> tuple[str, int]:
        assert name == "server_addr"
        return "93.184.215.14", 443


@pytest.mark.parametrize(
    ("target", "said"),
    [
        ("https://127.0.0.1:9200/register", "not a public address"),
        ("https://169.254.169.254/latest/meta-data", "not a public address"),
        ("https://[::ffff:10.0.0.1]/", "not a public address"),
        ("http://93.184.215.15/token", "without https"),
        ("https://93.184.215.15/token", ""),
    ],
)
def test_a_public_server_leads_nowhere_but_to_the_public_web(target: str, said: str) -> None:
    asked: list[str] = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        asked.append(str(request.url))
        return httpx2.Response(200, extensions={"network_stream": Peer()})

    async def ask() -> None:
        async with httpx2.AsyncClient(
            transport=HttpTransport(httpx2.MockTransport(answer), "https://d.example/mcp")
        ) as client:
            await client.get("https://d.example/mcp")
            await client.get(target)

    if said:
        with pytest.raises(ToolError, match=said):
            anyio.run(ask)
    else:
        anyio.run(ask)
    assert asked == ["https://d.example/mcp", *([] if said else [target])]


def test_only_what_the_package_logs_is_left_out_of_a_name_that_others_use(caplog: pytest.LogCaptureFixture) -> None:
    logging.getLogger("client").warning("somebody else's")
    assert caplog.messages == ["somebody else's"]


def test_a_server_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(ToolError, match=r"the MCP server 'desk' cannot be reached: .*connect"):
        anyio.run(say, Server(Config(name="desk", url="http://127.0.0.1:9/mcp"), login=login_from(tmp_path)))


def test_no_secret_of_a_server_is_logged(desk: Site, tmp_path: Path) -> None:
    log = io.StringIO()
    with logged(log, form="json", level="debug"):
        logged_in(desk, tmp_path)
        called(desk, tmp_path, headers={"x-key": "secret-header"})
        desk.tokens.clear()
        desk.refreshable.clear()
        with pytest.raises(LoginNeeded):
            called(desk, tmp_path)
    assert "secret" not in log.getvalue()


def nacre(tmp_path: Path, *words: str) -> subprocess.Popen[str]:
    environ = {**os.environ, "NACRE_HOME": str(tmp_path / "store"), "NACRE_CONFIG": str(tmp_path / "config.toml")}
    command = [sys.executable, "-m", "nacre", "mcp", *words]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environ)


def test_the_command_line_logs_in_lists_and_logs_out(desk: Site, tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text(f'[mcp.desk]\nurl = "{desk.url}"\n[mcp.gone]\ncommand = "/not/there"\n')
    with nacre(tmp_path, "login", "desk", "--no-browser") as login:
        assert login.stderr is not None
        page = next(found[0] for line in login.stderr if (found := re.match(r"http://\S+/authorize\S+", line)))
        anyio.run(agree, page)
        assert (login.communicate()[0], login.returncode) == ("logged in to desk: it has 1 tool\n", 0)
    with nacre(tmp_path, "list", "--json") as listing:
        found = json.loads(listing.communicate()[0])
    assert found["servers"] == [
        {"name": "desk", "where": desk.url, "is_logged_in": True, "tools": ["desk_say"], "prompts": []},
        {"name": "gone", "where": "/not/there", "is_logged_in": False, "tools": None, "prompts": None},
    ]
    assert "cannot be started" in found["problems"][0]
    with nacre(tmp_path, "logout", "desk") as logout:
        assert logout.communicate()[0] == "the tokens of desk are erased\n"
    assert list((tmp_path / "store/mcp").iterdir()) == []


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("login",), "needs the name of a server"),
        (("list", "desk"), "takes no name"),
        (("login", "desks"), "there is no MCP server 'desks'; there are: desk"),
        (("login", "desk"), "desk is a program"),
    ],
)
def test_wrong_words_are_told(words: tuple[str, ...], said: str, tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text('[mcp.desk]\ncommand = "x"\n')
    with nacre(tmp_path, *words) as command:
        assert said in command.communicate()[1]
    assert command.returncode != 0
