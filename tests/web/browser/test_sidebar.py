"""The sidebar in a real browser, on a desk and on a phone; the choice of a model; targets for fingers; keys."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import nacre
from tests.web.browser.site import said, served
from tests.web.browser.test_browser import until
from tests.web.browser.test_talking import write

if TYPE_CHECKING:
    from playwright.sync_api import Page

Visit = Callable[..., "Page"]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "store"
    with nacre.open(str(root)) as sessions:
        for key, title in (("web:a", "Apples"), ("web:b", "Bread and butter"), ("chat:c", "Code"), ("irc:d", "")):
            sessions.add_messages(key, [said("user", f"about {title or key}"), said("assistant", "Yes.")])
            sessions.set_meta(key, title=title or None)
        sessions.set_meta("web:a", pinned=True, tags=["fruit"])
        sessions.set_meta("chat:c", cwd="/home/ada/shop")
    return root


def names(page: Page) -> list[str]:
    return [str(one) for one in page.locator("#recent li a").all_inner_texts()]


def test_sessions_are_beside_every_page_and_narrowed_as_one_types(root: Path, visit: Visit) -> None:
    with served(root) as url:
        page = visit(url, "/s/web:b")
        assert names(page) == ["Apples", "irc:d", "Code", "Bread and butter"]
        assert page.locator("#recent h2").all_inner_texts() == ["Pinned", "Today", "Tags", "Folders"]
        assert page.inner_text("#recent [aria-current]") == "Bread and butter"
        page.keyboard.press("/")
        page.keyboard.type("butter")
        until(page, "document.querySelectorAll('#recent li a').length === 1")
        assert names(page) == ["Bread and butter"]
        assert page.locator("#recent p a").inner_text() == "Search messages for “butter”"
        page.keyboard.press("Enter")
        page.wait_for_selector("main.found li >> text=butter")
        page.click("#recent .chips a >> text=fruit")
        page.wait_for_selector("main.list .row >> text=Apples")
        page.click("#recent .chips a >> text=shop")
        page.wait_for_selector("main.list .row >> text=Code")
        assert page.locator(".row").count() == 1
        page.context.close()


def test_the_sidebar_stays_hidden_on_a_desk_once_it_is(root: Path, visit: Visit) -> None:
    with served(root) as url:
        page = visit(url, "/s/web:b", width=1280)
        page.click("[aria-label='Hide the sidebar']")
        assert not page.locator("#side").is_visible()
        page.goto(url)
        assert not page.locator("#side").is_visible()
        page.keyboard.press("s")
        assert page.locator("#side").is_visible()
        page.context.close()


def test_on_a_phone_the_sidebar_opens_over_the_page_even_without_a_script(root: Path, visit: Visit) -> None:
    with served(root) as url:
        page = visit(url, "/s/web:b", width=360)
        cookies = page.context.cookies()
        page.context.close()
        page = visit(url, "/s/web:b", width=360)
        assert not page.locator("#side").is_visible()
        page.click("header [aria-label=Sessions]")
        page.click("#recent a >> text=Apples")
        page.wait_for_url("**/s/web:a")
        assert not page.locator("#side").is_visible()
        plain = page.context.browser
        assert plain is not None
        page.context.close()
        context = plain.new_context(viewport={"width": 360, "height": 700}, java_script_enabled=False)
        context.add_cookies(cookies)  # type: ignore[arg-type]
        page = context.new_page()
        page.goto(f"{url}/s/web:b")
        page.click("header [aria-label=Sessions]")
        page.click("#recent a >> text=Apples")
        page.wait_for_url("**/s/web:a")
        context.close()


def test_an_empty_store_and_a_new_session_explain_themselves(tmp_path: Path, visit: Visit) -> None:
    with served(tmp_path / "empty") as url:
        page = visit(url, "/")
        assert "No sessions yet" in page.inner_text("main")
        page.keyboard.press("N")
        page.wait_for_url("**/new")
        assert "Write a message below" in page.inner_text("main")
        assert page.evaluate("document.activeElement.name") == "content"
        page.context.close()


SMALL = """() => [...document.querySelectorAll("button, summary, input, textarea, nav a, .menu a, [role=button]")]
  .filter(one => one.checkVisibility() && one.type !== "hidden" && !one.disabled)
  .map(one => [one, one.getBoundingClientRect()])
  .filter(([one, box]) => (box.width < 24 || box.height < 24) && !one.closest("label"))
  .map(([one, box]) => `${one.outerHTML.slice(0, 90)}: ${box.width} x ${box.height}`)"""


def test_whatever_is_touched_has_24_pixels(root: Path, visit: Visit) -> None:
    with served(root) as url:
        page = visit(url, "/", width=360, has_touch=True)
        for path in ("/", "/s/web:a", "/new", "/search?q=about", "/model/web:a"):
            page.goto(url + path)
            page.evaluate("document.querySelectorAll('details').forEach(one => { one.open = true })")
            assert page.evaluate(SMALL) == [], path
            page.evaluate("document.querySelector('#side').showPopover()")
            assert page.evaluate(SMALL) == [], f"{path}, sidebar"
        page.context.close()


def test_every_key_of_the_help_does_something(root: Path, visit: Visit) -> None:
    with served(root) as url:
        page = visit(url, "/s/web:b", width=1280)
        page.keyboard.press("?")
        listed = page.locator("#help kbd").all_inner_texts()
        known = page.evaluate("Object.keys(keys)")
        others = {"Enter", "Alt", "Y", "N", "A"}
        assert {key for key in listed if key not in known} <= others
        assert set(known) <= set(listed)
        page.context.close()


# ---- the model


class Models(BaseHTTPRequestHandler):
    """Two models behind an OpenAI-compatible server; each says its name."""

    def do_GET(self) -> None:
        self._send({"object": "list", "data": [{"id": name, "object": "model"} for name in ("small", "large")]})

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
        text = {"content": f"I am {asked['model']}."}
        chunk = {
            "id": "1",
            "object": "chat.completion.chunk",
            "choices": [{"index": 0, "delta": text, "finish_reason": "stop"}],
        }
        body = f"data: {json.dumps(chunk)}\n\ndata: [DONE]\n\n".encode()
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Say nothing."""

    def _send(self, value: object) -> None:
        body = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@contextmanager
def models() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Models) as server:
        threading.Thread(target=server.serve_forever).start()
        yield f"http://127.0.0.1:{server.server_port}/v1"
        server.shutdown()


def test_a_session_is_given_a_model_of_its_own(root: Path, visit: Visit) -> None:
    with models() as address, served(root, ["I am the agent's."], settings={"openai": {"base_url": address}}) as url:
        page = visit(url, "/s/web:b")
        page.click("a.model")
        page.click("#choice button >> text=large")
        page.wait_for_selector("a.model >> text=openai/large")
        write(page, "who?")
        page.wait_for_selector("section article >> text=I am large.")
        page.goto(f"{url}/new")
        page.keyboard.press("Escape")
        page.keyboard.press("m")
        page.click("#choice button >> text=small")
        write(page, "and who are you?")
        page.wait_for_selector("section article >> text=I am small.")
        page.goto(f"{url}/s/web:a")
        write(page, "who?")
        page.wait_for_selector("section article >> text=I am the agent's.")
        page.context.close()
    with nacre.open(str(root)) as sessions:
        assert sessions.get_meta("web:b")["chosen_model"] == "openai/large"
