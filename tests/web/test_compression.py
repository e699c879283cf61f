"""gzip: for what is long and is text, if it is accepted; never for events, and not for pages of others."""

from __future__ import annotations

import gzip
import json
import re
from html import unescape

import httpx
import pytest

from nacre.messages import Message
from tests.web.conftest import Echo, Serve, Site, events

TEXT = "a line that is like all the others\n" * 400


def raw(site: Site, path: str, **headers: str) -> tuple[httpx.Headers, bytes]:
    """A response as it comes over the wire."""
    fields = {"accept-encoding": "gzip", **{name.replace("_", "-"): value for name, value in headers.items()}}
    with site.client.stream("GET", path, headers=fields) as answer:
        assert answer.status_code == 200
        return answer.headers, b"".join(answer.iter_raw())


@pytest.fixture
def site(server: Serve) -> Site:
    found = server(provider=Echo())
    found.sessions.add_message("k", "user", TEXT)
    return found


@pytest.mark.parametrize("path", ["/s/k", "/static/nacre.js", "/static/nacre.css", "/api/sessions/k", "/s/k.md"])
def test_what_is_long_comes_compressed_and_whole(site: Site, path: str) -> None:
    plain, packed = raw(site, path, accept_encoding="identity"), raw(site, path)
    assert (plain[0].get("content-encoding"), packed[0]["content-encoding"]) == (None, "gzip")
    assert plain[0]["vary"] == packed[0]["vary"] == "Accept-Encoding"
    assert len(packed[1]) < len(plain[1]) / 2
    if path != "/s/k":  # it has a nonce
        assert gzip.decompress(packed[1]) == plain[1]
    assert int(packed[0].get("content-length", len(packed[1]))) == len(packed[1])


def test_what_is_short_or_a_picture_comes_as_it_is(site: Site) -> None:
    assert "content-encoding" not in raw(site, "/healthz")[0]
    headers, _ = raw(site, "/api/sessions?prefix=none")
    assert ("content-encoding" not in headers, headers["vary"]) == (True, "Accept-Encoding")
    png = "iVBORw0KGgo" + "A" * 4001
    url = f"data:image/png;base64,{png}"
    picture = Message(role="user", content=[{"type": "image_url", "image_url": {"url": url}}])
    site.sessions.add_messages("p", [picture])
    [address] = set(re.findall('"(/blob/[^"]+)"', site.client.get("/s/p").text))
    headers, body = raw(site, unescape(address))
    assert (headers["content-type"], "content-encoding" in headers, len(body) > 2000) == ("image/png", False, True)


def test_events_leave_as_they_happen(site: Site) -> None:
    for at in range(40):
        site.sessions.add_message("k", "user", f"{at} {TEXT[:200]}")
    with site.client.stream("GET", "/api/sessions/k/events", headers={"accept-encoding": "gzip"}) as answer:
        assert "content-encoding" not in answer.headers
        found = events(answer.iter_lines())
        while "39 a line" not in json.dumps(next(found)):
            pass
        site.sessions.add_message("k", "user", "now")
        assert "now" in json.dumps(next(found))


@pytest.mark.parametrize(
    ("accepted", "is_packed"),
    [
        ("gzip", True),
        ("br, GZIP;q=0.5", True),
        ("*", True),
        ("x-gzip", True),
        ("deflate, *;q=0.1", True),
        ("", False),
        ("identity", False),
        ("gzip;q=0", False),
        ("gzip; q=0.000, *", False),
        ("br", False),
        ("*;q=0", False),
    ],
)
def test_a_client_gets_what_it_accepts(site: Site, accepted: str, is_packed: bool) -> None:
    assert ("content-encoding" in raw(site, "/s/k", accept_encoding=accepted)[0]) == is_packed


@pytest.mark.parametrize(("asking", "is_packed"), [("cross-site", False), ("same-site", False), ("same-origin", True)])
def test_a_page_of_somebody_else_s_learns_nothing_from_a_size(site: Site, asking: str, is_packed: bool) -> None:
    assert ("content-encoding" in raw(site, "/s/k", sec_fetch_site=asking)[0]) == is_packed


def test_the_same_page_has_another_size_each_time(site: Site) -> None:
    assert len({len(raw(site, "/api/sessions/k")[1]) for _ in range(20)}) > 3


def test_a_large_session_is_compressed_as_it_is_read(server: Serve) -> None:
    site = server(provider=Echo())
    for at in range(30):
        site.sessions.add_message("k", "user", f"{at} " + "x y z " * 30_000)
    headers, packed = raw(site, "/s/k.json")
    assert (headers["content-encoding"], "content-length" in headers) == ("gzip", False)
    assert [one["message"]["content"][:3] for one in json.loads(gzip.decompress(packed))["items"]][:2] == ["0 x", "1 x"]
