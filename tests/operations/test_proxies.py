"""The daemon behind a real nginx and a real Caddy, with the configurations of the documentation."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

import httpx
import pytest

import nacre
from tests.cli.daemons import TOKEN, Daemon, Models, configure, daemon
from tests.operations.proxies import HOST, PROXIES, started, unchecked
from tests.web.conftest import events


class Site(NamedTuple):
    """A daemon, and the way to it through a proxy."""

    daemon: Daemon
    url: str
    client: httpx.Client
    store: Path
    port: int


@pytest.fixture(scope="module")
def models() -> Iterator[Models]:
    with Models(("main",)) as found:
        yield found


@pytest.fixture(params=PROXIES, scope="module")
def site(request: pytest.FixtureRequest, models: Models, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    tmp_path = tmp_path_factory.mktemp(request.param)
    configure(tmp_path, f'[memory]\nenabled = false\n[ollama]\nhost = "{models.host("main")}"\n')
    with daemon(tmp_path, "--prefix", "/nacre", "--name", HOST) as served:
        port = urlsplit(served.url).port or 0
        with started(request.param, tmp_path, port) as front:
            url = f"https://127.0.0.1:{front}"
            headers = {"host": f"{HOST}:{front}", "accept-encoding": "gzip"}
            more = {"sni_hostname": HOST}
            with httpx.Client(base_url=f"{url}/nacre", headers=headers, verify=unchecked(), timeout=60) as client:
                client.event_hooks["request"].append(lambda asked: asked.extensions.update(more))
                yield Site(served, url, client, tmp_path / "store", front)


def log_in(site: Site) -> None:
    origin = f"https://{HOST}:{site.port}"
    answer = site.client.post("/login", data={"token": TOKEN}, headers={"origin": origin})
    assert (answer.status_code, answer.headers["location"]) == (303, "/nacre/")
    assert all(word in answer.headers["set-cookie"] for word in ("; Secure", "Path=/nacre"))


def test_the_page_and_the_api_work_below_the_prefix_over_tls(site: Site) -> None:
    with nacre.open(site.store) as sessions:
        sessions.add_message("a/b", "user", "hello " * 500)
    sent = site.client.get("/s/a%2Fb", headers={"accept": "text/html"})
    assert sent.headers["location"] == "/nacre/login?next=%2Fnacre%2Fs%2Fa%252Fb"
    log_in(site)
    page = site.client.get("/s/a%2Fb", headers={"accept": "text/html"})
    assert (page.status_code, page.headers["content-encoding"]) == (200, "gzip")
    assert 'action="/nacre/say/a%2Fb"' in page.text
    assert site.client.get("/api/sessions/a%2Fb").json()["key"] == "a/b"


def test_events_come_as_they_happen(site: Site) -> None:
    with nacre.open(site.store) as sessions:
        sessions.add_message("k", "user", "before")
        site.client.headers["authorization"] = f"Bearer {TOKEN}"
        with site.client.stream("GET", "/api/sessions/k/events") as stream:
            found = events(stream.iter_lines())
            assert [next(found)["event"] for _ in range(2)] == ["open", "msg"]
            for at in range(5):
                sessions.add_message("k", "user", f"now {at}")
                assert f"now {at}" in str(next(found))


@pytest.mark.parametrize(("size", "status"), [(16_700_000, 400), (17_000_000, 413)])
def test_what_the_daemon_takes_the_proxy_takes_too(site: Site, size: int, status: int) -> None:
    site.client.headers["authorization"] = f"Bearer {TOKEN}"
    # It is no JSON, which the daemon finds when it has all of it.
    headers = {"content-type": "application/json"}
    answer = site.client.post("/api/sessions/k/messages", content=b"x" * size, headers=headers)
    assert answer.status_code == status


def test_a_turn_is_streamed_and_survives_that_the_daemon_is_killed(site: Site) -> None:
    site.client.headers["authorization"] = f"Bearer {TOKEN}"
    body = {"model": "main", "stream": True, "messages": [{"role": "user", "content": "hi"}], "user": "u"}
    with site.client.stream("POST", "/v1/chat/completions", json=body) as stream:
        assert stream.headers["content-type"].startswith("text/event-stream")
        assert list(stream.iter_lines())[-2:] == ["data: [DONE]", ""]
    site.daemon.process.send_signal(signal.SIGKILL)
    site.daemon.process.wait()
    assert site.client.get("/healthz").status_code == 502
    port = str(urlsplit(site.daemon.url).port)
    with daemon(site.store.parent, "--port", port, "--prefix", "/nacre", "--name", HOST):
        assert site.client.get("/healthz").status_code == 200
        items = site.client.get("/api/sessions").json()["items"]
        assert [info["messages"] for info in items if info["key"] not in {"a/b", "k"}] == [2]
