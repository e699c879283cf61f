"""Below a path of its host: every page is crawled, and nothing on it leads out."""

from __future__ import annotations

import base64
from collections import Counter, deque
from collections.abc import Iterator, Mapping
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import urljoin, urlsplit

import anyio
import httpx
import pytest

import nacre
from nacre.config import is_prefix
from nacre.errors import ConfigError
from nacre.messages import Message
from nacre.sessions import Sessions
from nacre.web.server import application, check_prefix
from tests.web.browser.site import HEADERS, HOSTS, TOKEN, called, made, returned, said

PREFIX = "/apps/nacre"
HOST = "http://localhost"
FORM = {"origin": HOST, "content-type": "application/x-www-form-urlencoded"}
PIXEL = base64.b64encode(b"\x89PNG\r\n\x1a\n" + bytes(40)).decode()
PICTURE = [{"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PIXEL}"}}]
MOST = 4
KEYS = ("web:a", "a/b c?#", "..", "s/nacre")


@pytest.fixture
def sessions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Sessions]:
    """Sessions of which each has another kind of link: calls, pictures, branches, summaries, tags, generations."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with nacre.open(str(tmp_path / "store")) as found:
        for key in KEYS:
            found.add_messages(key, [said("user", "old"), said("assistant", "gone")])
            found.archive(key)
            found.add_message(key, "user", "needle")
            found.add_messages(key, [called("c", "shell", command="ls")])
            found.add_messages(key, [returned("c", "shell", "no", failed=True), said("assistant", "done", model="m")])
            found.append(key, "use", {"prompt": 1200, "completion": 300})
            found.add_messages(key, [Message(role="user", content=PICTURE)])
            found.rewind(key, 2)
            found.add_messages(key, [said("user", "otherwise"), said("assistant", "[a link](/elsewhere)")])
            found.set_summary(key, "What was said.")
            found.truncate_history(key, 1)
            found.set_meta(key, tags=["work"], pinned=True)
        for at in range(60):
            found.add_message(f"many:{at}", "user", "needle")
        yield found


class Addresses(HTMLParser):
    """Every attribute of a page that is an address on its host, whatever its name; and its forms with their fields."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.found: list[tuple[str, str]] = []
        self.forms: list[tuple[str, dict[str, str]]] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.found += [(name, value) for name, value in given.items() if value.startswith("/") and name != "value"]
        if tag == "form" and given.get("method") == "post":
            self.forms.append((given["action"], {}))
        elif tag in {"input", "button"} and self.forms and given.get("name"):
            self.forms[-1][1][given["name"]] = given.get("value", "")


class Proxy(httpx.AsyncBaseTransport):
    """What is before the server: it passes paths below the prefix on, with it or without it, and nothing else."""

    def __init__(self, web: Any, *, strips: bool) -> None:
        self._web = httpx.ASGITransport(app=web)
        self._strips = strips

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        raw = request.url.raw_path
        assert raw.startswith(f"{PREFIX}/".encode()), f"{raw!r} is outside"
        if self._strips:
            request.url = request.url.copy_with(raw_path=raw.removeprefix(PREFIX.encode()))
        return await self._web.handle_async_request(request)


def outside(address: str) -> bool:
    parts = urlsplit(address)
    return parts.netloc != "" or not f"{parts.path}/".startswith(f"{PREFIX}/")


def strings(value: Any) -> Iterator[str]:
    """Every address in a JSON document."""
    if isinstance(value, Mapping):
        for name, one in value.items():
            yield from [one] if name in {"page", "url"} and str(one).startswith("/") else strings(one)
    elif isinstance(value, list):
        for one in value:
            yield from strings(one)


def kind_of(address: str) -> tuple[object, ...]:
    """What pages have in common that differ only in the session or the word that they are about."""
    path, _, query = address.removeprefix(PREFIX).partition("?")
    words = path.removeprefix("/agents/ops").split("/")[:2]
    return path.startswith("/agents/"), *words, frozenset(field.partition("=")[0] for field in query.split("&"))


async def crawl(client: httpx.AsyncClient, start: str) -> tuple[set[str], list[tuple[str, dict[str, str]]]]:
    """Visit all that can be reached by links; the paths that were visited, and the forms that were found."""
    waiting, seen, forms = deque([start]), {start}, dict[str, dict[str, str]]()
    kinds = Counter[tuple[object, ...]]()
    while waiting:
        address = waiting.popleft()
        answer = await client.get(address)
        assert answer.status_code in {200, 303}, (address, answer.status_code, answer.text[:200])
        found = [answer.headers["location"]] if answer.status_code == 303 else []
        kind = answer.headers.get("content-type", "")
        if kind.startswith("text/html"):
            page = Addresses(answer.text)
            assert [one for one in page.found if outside(one[1])] == [], address
            posts = {action for action, _ in page.forms}
            forms |= dict(page.forms)
            # What a script asks for by POST, or adds more to, is not a page.
            skipped = {"data-base", "data-prefix", "data-api", "data-turn", "data-fork", "data-part"}
            # The session of a new page does not exist yet, and what is addressed to it is not there.
            if not address.endswith("/new"):
                found += [value for name, value in page.found if name not in skipped and value not in posts]
        elif kind.startswith("application/json"):
            assert [one for one in strings(answer.json()) if outside(one)] == [], address
        for one in found:
            assert not outside(one), (address, one)
            path = urljoin(address, one).partition("#")[0]
            if path not in seen and kinds[kind_of(path)] < MOST:
                seen.add(path)
                kinds[kind_of(path)] += 1
                waiting.append(path)
    return seen, list(forms.items())


@pytest.mark.parametrize("strips", [False, True], ids=["passed on", "stripped"])
def test_no_page_leads_out(sessions: Sessions, strips: bool) -> None:
    async def visited() -> None:
        app = made(sessions, ["an answer"] * 20)
        web = application(app, token=TOKEN, hosts=HOSTS, prefix=PREFIX, agents={"main": app, "ops": app})
        async with (
            app.kernel,
            httpx.AsyncClient(transport=Proxy(web, strips=strips), base_url=HOST, headers=HEADERS) as client,
        ):
            seen, forms = await crawl(client, f"{PREFIX}/")
            paths = {one.removeprefix(PREFIX).partition("?")[0] for one in seen}
            assert paths > {"/", "/agents/ops/", "/new", "/index.md", "/s/a%2Fb%20c%3F%23"}
            assert {path.split("/")[1] for path in paths} > {"beside", "blob", "s", "search.json", "static", "use"}
            kinds = {action.removeprefix(PREFIX).split("/")[1] for action, _ in forms}
            assert kinds >= {"do", "say", "logout"}
            for action, fields in {action.rpartition("/")[0]: (action, fields) for action, fields in forms}.values():
                answer = await client.post(action, data=fields, headers=FORM)
                assert "there is nothing here" not in answer.text, action
                assert not outside(answer.headers.get("location", f"{PREFIX}/")), action

    anyio.run(visited)


@pytest.mark.parametrize("strips", [False, True], ids=["passed on", "stripped"])
def test_logging_in_and_out_stays_below_and_so_does_the_cookie(sessions: Sessions, strips: bool) -> None:
    async def visited() -> None:
        web = application(made(sessions), token=TOKEN, hosts=HOSTS, prefix=PREFIX)
        async with httpx.AsyncClient(transport=Proxy(web, strips=strips), base_url=HOST) as client:
            page = {"accept": "text/html"}
            sent = await client.get(f"{PREFIX}/s/a%2Fb?q=x", headers=page)
            assert sent.headers["location"] == f"{PREFIX}/login?next=%2Fapps%2Fnacre%2Fs%2Fa%252Fb%3Fq%3Dx"
            done = await client.post(f"{PREFIX}/login", data={"token": TOKEN}, headers={"origin": HOST})
            assert (done.status_code, done.headers["location"]) == (303, f"{PREFIX}/")
            assert "Path=/apps/nacre;" in done.headers["set-cookie"]
            assert (await client.get(f"{PREFIX}/", headers=page)).status_code == 200
            api = await client.get(f"{PREFIX}/api/sessions/a%2Fb%20c%3F%23")
            assert api.json()["key"] == "a/b c?#"
            over = await client.post(f"{PREFIX}/logout", headers=FORM)
            assert (over.status_code, over.headers["location"]) == (303, f"{PREFIX}/login")
            assert (await client.get(f"{PREFIX}/", headers=page)).status_code == 303

    anyio.run(visited)


def test_the_description_says_where_the_server_is(sessions: Sessions) -> None:
    async def described() -> list[Any]:
        app = made(sessions)
        web = application(app, token=TOKEN, hosts=HOSTS, prefix=PREFIX, agents={"main": app, "ops": app})
        transport = httpx.ASGITransport(app=web)
        async with httpx.AsyncClient(transport=transport, base_url=HOST, headers=HEADERS) as client:
            paths = ("/openapi.json", f"{PREFIX}/openapi.json", f"{PREFIX}/agents/ops/openapi.json")
            return [(await client.get(path)).json()["servers"] for path in paths]

    assert anyio.run(described) == [[{"url": PREFIX}], [{"url": PREFIX}], [{"url": f"{PREFIX}/agents/ops"}]]


def test_a_path_that_only_looks_like_it_is_below_is_not(sessions: Sessions) -> None:
    async def asked() -> list[int]:
        transport = httpx.ASGITransport(app=application(made(sessions), token=TOKEN, hosts=HOSTS, prefix=PREFIX))
        async with httpx.AsyncClient(transport=transport, base_url=HOST, headers=HEADERS) as client:
            paths = ("", "/", "/healthz", "x/healthz", f"{PREFIX}/healthz")
            return [(await client.get(f"{PREFIX}{path}")).status_code for path in paths]

    assert anyio.run(asked) == [200, 200, 200, 404, 404]


@pytest.mark.parametrize("prefix", ["", "/nacre", "/a/b-c/d.e_f~1"])
def test_a_prefix_is_a_plain_path(prefix: str) -> None:
    assert is_prefix(prefix)
    check_prefix(prefix)


@pytest.mark.parametrize(
    "prefix", ["nacre", "/", "/nacre/", "//evil.example", "/a//b", "/..", "/a/.", "/a b", "/a?b", '/"', "/ä", "/a\n"]
)
def test_what_is_no_plain_path_is_no_prefix(prefix: str) -> None:
    assert not is_prefix(prefix)


@pytest.mark.parametrize(
    "prefix", ["/s", "/api/nacre", "/v1", "/agents", "/login", "/logout", "/index.html", "/static"]
)
def test_a_path_of_our_own_is_no_prefix(prefix: str) -> None:
    with pytest.raises(ConfigError, match="begins like a path of nacre's own"):
        check_prefix(prefix)
