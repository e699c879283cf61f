"""What `nacre serve` sends over the golden store: pages, their JSON and Markdown twins, the API, errors."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from typing import Any

import httpx
import pytest

import nacre
from tests.golden.conftest import Golden, Room

TOKEN = "a-token-that-is-long-enough-for-all"  # noqa: S105 - it opens nothing but these tests
TAX = "chat-20240501-0900-a1b2"
ODD = "irc%3A%23boats%20%26%20%3Cb%3E%2F%C3%BC"

PAGES: Mapping[str, str] = {
    "list": "/",
    "list-archived": "/?archived=1",
    "list-text": "/?text=boat",
    "list-tag": "/?tag=boats",
    "list-channel": "/?channel=telegram",
    "list-folder": "/?folder=/home/ada/tax",
    "list-nothing": "/?text=submarine",
    "list.json": "/index.json",
    "list.md": "/index.md",
    "session-tools": f"/s/{TAX}",
    "session-tools.json": f"/s/{TAX}.json",
    "session-tools.md": f"/s/{TAX}.md",
    "session-message.json": f"/s/{TAX}.json?n=5",
    "session-summary": "/s/telegram:42",
    "session-summary-all": "/s/telegram:42?all=1",
    "session-summary.md": "/s/telegram:42.md",
    "session-branch": "/s/telegram:43",
    "session-older-branch": "/s/telegram:43?tip=6",
    "session-older-branch.md": "/s/telegram:43.md?tip=6",
    "session-place": "/s/telegram:43?at=3",
    "session-marked": "/s/telegram:42?q=boat",
    "session-fork": "/s/cli:fork",
    "session-generations": "/s/weekly",
    "session-archived": "/s/closed",
    "session-damaged": "/s/damaged",
    "session-interrupted": "/s/chat-20240505-2010-c3d4",
    "session-unanswered": "/s/open",
    "session-odd": f"/s/{ODD}",
    "session-compacted": "/s/compacted",
    "session-missing": "/s/nowhere",
    "part": "/part/telegram:43?chunk=0",
    "part-place": "/part/telegram:43?at=3",
    "use": f"/use/{TAX}",
    "use-nothing": "/use/open",
    "search": "/search?q=boat",
    "search.json": "/search.json?q=boat",
    "search.md": "/search.md?q=boat",
    "search-nothing": "/search?q=submarine",
    "search-empty": "/search",
    "new": "/new",
    "side": "/side?text=boat",
    "model": "/model/telegram:42",
    "beside": "/beside/telegram:42?step=newer",
    "login": "/login",
    "page-missing": "/nowhere",
    "twin-missing": "/search.pdf?q=boat",
}
API: Mapping[str, str] = {
    "openapi": "/openapi.json",
    "list": "/api/sessions",
    "list-all": "/api/sessions?state=all&sort=key&limit=3",
    "list-prefix": "/api/sessions?prefix=telegram:",
    "list-wrong": "/api/sessions?state=odd",
    "search": "/api/search?q=boat&limit=3",
    "search-empty": "/api/search?q=",
    "read-tools": f"/api/sessions/{TAX}?tokens=yes",
    "read-summary": "/api/sessions/telegram:42",
    "read-summary-whole": "/api/sessions/telegram:42?scope=whole",
    "read-branch-page": "/api/sessions/telegram:43?limit=2",
    "read-damaged": "/api/sessions/damaged",
    "read-missing": "/api/sessions/nowhere",
    "events": "/api/sessions/telegram:43/events?wait=no",
    "models": "/v1/models",
    "model": "/v1/models/nacre",
    "model-missing": "/v1/models/other",
    "response-missing": "/v1/responses/resp_1",
    "healthz": "/healthz",
    "readyz": "/readyz",
    "missing": "/api/nowhere",
}
STATIC = {"static-css": "/static/nacre.css", "static-js": "/static/nacre.js"}
"""Files whose text is in the tree; that they are served is compared."""
HEADERS = ("content-type", "content-disposition", "cache-control", "content-security-policy", "location")

_CHANGING = (
    (r"nonce-[\w-]{24}", "nonce-NONCE"),
    (r'nonce="[\w-]{24}"', 'nonce="NONCE"'),
    (r'name="id" value="[0-9a-f]{32}"', 'name="id" value="ID"'),
    (r"\?v=[0-9a-f]{16}", "?v=HASH"),
    (r'"created":\d+', '"created":0'),
    (r"web:[0-9a-f]{8}\b", "web:NEW"),
    (r"<h2>embedded</h2><button[^>]*>[^<]*</button>", ""),
    (rf'"version":"{re.escape(nacre.__version__)}"', '"version":"VERSION"'),
)
"""What each request, release or installation has of its own."""


@pytest.fixture(scope="session")
def site(shared_room: Room) -> Iterator[httpx.Client]:
    """A daemon on the golden store."""
    command = [sys.executable, "-m", "nacre", "serve", "--port", "0", "--json"]
    variables = {**shared_room.variables, "NACRE_SERVE_TOKEN": TOKEN}
    pipes: Mapping[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL, "text": True}
    with subprocess.Popen(command, env=variables, cwd=shared_room.path / "work", **pipes) as process:
        try:
            assert process.stdout is not None
            url = json.loads(process.stdout.readline())["url"]
            with httpx.Client(base_url=url, timeout=60, headers={"accept-encoding": "identity"}) as client:
                # The list counts what sessions hold while there is time; this request takes its time.
                client.get("/?full=1", headers=_who(TOKEN)).raise_for_status()
                yield client
        finally:
            process.kill()


def _who(token: str, accept: str = "text/html") -> dict[str, str]:
    return {"authorization": f"Bearer {token}", "accept": accept}


def _told(room: Room, response: httpx.Response, *, body: str | None = None) -> str:
    """A response as a golden file has it."""
    text = response.text if body is None else body
    heads = [f"{name}: {response.headers[name]}" for name in HEADERS if name in response.headers]
    asked = f"{response.request.method} {response.request.url.raw_path.decode()}"
    told = "\n".join([asked, str(response.status_code), *heads, "", text, ""])
    for pattern, instead in _CHANGING:
        told = re.sub(pattern, instead, told)
    return room.without_path(told)


@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_what_it_was(site: httpx.Client, shared_room: Room, golden: Golden, name: str) -> None:
    golden.check(f"web/page-{name}.txt", _told(shared_room, site.get(PAGES[name], headers=_who(TOKEN))))


@pytest.mark.parametrize("name", API)
def test_the_api_answers_as_it_did(site: httpx.Client, shared_room: Room, golden: Golden, name: str) -> None:
    response = site.get(API[name], headers=_who(TOKEN, "application/json"))
    golden.check(f"web/api-{name}.txt", _told(shared_room, response))


@pytest.mark.parametrize("name", STATIC)
def test_a_file_is_served_as_it_was(site: httpx.Client, shared_room: Room, golden: Golden, name: str) -> None:
    response = site.get(STATIC[name], headers=_who(TOKEN))
    golden.check(f"web/{name}.txt", _told(shared_room, response, body="some text" if response.text else ""))


def test_a_picture_is_served_as_it_was(site: httpx.Client, shared_room: Room, golden: Golden) -> None:
    response = site.get(f"/blob/{ODD}?n=3&part=1", headers=_who(TOKEN))
    golden.check("web/picture.txt", _told(shared_room, response, body=f"{len(response.content)} bytes"))


def test_a_login_leads_where_it_did(site: httpx.Client, shared_room: Room, golden: Golden) -> None:
    for name, token in {"login-right": TOKEN, "login-wrong": "wrong"}.items():
        response = site.post("/login", data={"token": token}, headers={"accept": "text/html"})
        golden.check(f"web/{name}.txt", _told(shared_room, response))
    site.cookies.clear()


@pytest.mark.parametrize("path", ["/", "/api/sessions"])
def test_a_stranger_is_sent_away_as_before(site: httpx.Client, shared_room: Room, golden: Golden, path: str) -> None:
    for who, headers in {"stranger": {"accept": "text/html"}, "impostor": _who("wrong")}.items():
        name = "api" if path != "/" else "page"
        golden.check(f"web/{who}-{name}.txt", _told(shared_room, site.get(path, headers=headers)))


def test_the_metrics_have_the_same_names(site: httpx.Client, shared_room: Room, golden: Golden) -> None:
    response = site.get("/metrics", headers=_who(TOKEN))
    names = "\n".join(line for line in response.text.splitlines() if line.startswith("#"))
    golden.check("web/metrics.txt", _told(shared_room, response, body=names))


def test_every_golden_file_of_the_web_is_compared(golden: Golden) -> None:
    names = [*(f"page-{name}" for name in PAGES), *(f"api-{name}" for name in API), *STATIC]
    names += ["login-right", "login-wrong", "metrics", "picture"]
    strangers = [f"{who}-{kind}" for who in ("stranger", "impostor") for kind in ("page", "api")]
    golden.check_names("web", (f"{name}.txt" for name in (*names, *strangers)))
