"""Talking in a real browser: stopping, being asked, and a server that goes and comes back."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

import anyio

import nacre
from nacre.agent.ports import Tool
from nacre.providers.scripted import Call, Pause, Step
from nacre.tools.functions import Function
from tests.web.browser.site import TOKEN, called, returned, said, served
from tests.web.browser.test_browser import until

if TYPE_CHECKING:
    from playwright.sync_api import Page, Request

Visit = Callable[..., "Page"]


class Never:
    async def wait(self) -> None:
        await anyio.sleep_forever()


def wipe(path: str) -> str:
    """Wipe a file.

    Args:
        path: the file
    """
    return f"wiped {path}"


TOOLS: dict[str, Tool] = {"wipe": Function(wipe, effect="write")}


def store(tmp_path: Path) -> Path:
    root = tmp_path / "store"
    with nacre.open(str(root)) as sessions:
        sessions.add_messages("web:k", [said("user", "hi"), said("assistant", "hello")])
    return root


def write(page: Page, words: str) -> None:
    page.fill("#say textarea", words)
    page.keyboard.press("Enter")


def test_a_turn_is_stopped(tmp_path: Path, visit: Visit) -> None:
    with served(store(tmp_path), [["I begin", Pause(Never())], "Once more."]) as url:
        page = visit(url, "/s/web:k")
        assert not page.locator("#stop").is_visible()
        write(page, "go")
        page.wait_for_selector("#live >> text=I begin")
        page.click("#stop")
        page.wait_for_selector("#transcript section >> text=stopped by the user")
        until(page, "document.querySelector('#status').textContent === 'stopped'")
        assert page.locator("article", has_text="I begin").count() == 1
        assert page.locator("article", has_text="go").count() == 1
        assert page.locator("[role=alert]").count() == 0
        assert not page.locator("#stop").is_visible()
        page.context.close()


def test_a_tool_asks_on_the_page(tmp_path: Path, visit: Visit) -> None:
    steps: list[Step] = [Call("wipe", {"path": "a.txt"}), Call("wipe", {"path": "b.txt"}), "Both?"]
    with served(store(tmp_path), steps, tools=TOOLS) as url:
        page = visit(url, "/s/web:k")
        write(page, "wipe them")
        page.wait_for_selector(".ask >> text=a.txt")
        page.click(".ask >> text=No")
        page.wait_for_selector(".ask >> text=b.txt")
        page.click(".ask >> text=Yes")
        page.wait_for_selector("#transcript article >> text=Both?")
        assert page.locator(".ask").count() == 0
        assert page.locator("#transcript summary", has_text="wiped b.txt").count() == 1
        assert page.locator("#transcript summary", has_text="the user said no").count() == 1
        page.context.close()


def test_a_question_is_there_again_when_the_page_comes_back(tmp_path: Path, visit: Visit) -> None:
    with served(store(tmp_path), [Call("wipe", {"path": "a.txt"}), "Done."], tools=TOOLS) as url:
        page = visit(url, "/s/web:k")
        write(page, "wipe it")
        page.wait_for_selector(".ask")
        page.reload()
        page.click(".ask >> text=Always")
        page.wait_for_selector("#transcript article >> text=Done.")
        page.context.close()
    with nacre.open(str(tmp_path / "store")) as sessions:
        assert sessions.get_meta("web:k")["approvals"] == ["wipe"]


def test_after_a_restart_nothing_is_lost_and_nothing_is_there_twice(tmp_path: Path, visit: Visit) -> None:
    root = store(tmp_path)
    with served(root) as url:
        page = visit(url, "/s/web:k", forgiven="ERR_")
        asked: list[Request] = []
        page.on("request", lambda one: asked.append(one) if "/events" in one.url else None)
        with nacre.open(str(root)) as other:
            other.add_message("web:k", "user", "before")
        page.wait_for_selector("#transcript >> text=before")
    with nacre.open(str(root)) as sessions:
        for at in range(60):
            sessions.add_message("web:k", "assistant", f"meanwhile {at}")
    with served(root, port=int(url.rpartition(":")[2])):
        page.wait_for_selector("#transcript >> text=meanwhile 59", timeout=15000)
        until(page, "document.querySelector('#count').textContent === '63 messages'")
        ids = page.evaluate("[...document.querySelectorAll('#transcript article')].map(one => +one.id)")
        assert ids == list(range(2, 65))
        assert asked[-1].all_headers()["last-event-id"] == "4"


def test_calls_that_come_become_a_run_and_what_was_opened_stays_open(tmp_path: Path, visit: Visit) -> None:
    root = tmp_path / "store"
    with nacre.open(str(root)) as sessions:
        sessions.add_messages("web:k", [said("user", "go")])
        for at in range(2):
            sessions.add_messages("web:k", [called(f"c{at}", "read", path=f"{at}"), returned(f"c{at}", "read", "text")])
    with served(root) as url:
        page = visit(url, "/s/web:k")
        page.click("details[id='4'] summary")
        page.evaluate("document.getElementById('2').isTheSame = true")
        with nacre.open(str(root)) as other:
            other.add_messages("web:k", [called("c2", "read", path="2"), returned("c2", "read", "text")])
        page.wait_for_selector("details.run[id='r3'] >> text=3 tool calls")
        ids = page.evaluate("[...document.querySelectorAll('#transcript article')].map(one => +one.id)")
        assert ids == [2, 3, 5, 7]
        assert page.locator("details[id='4']").get_attribute("open") is not None
        assert page.evaluate("document.getElementById('2').isTheSame")
        page.context.close()


def turned_away(page: Page, *, hidden: bool) -> None:
    value = "true" if hidden else "false"
    page.evaluate(f"Object.defineProperty(document, 'hidden', {{get: () => {value}, configurable: true}})")
    page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")


def test_more_tabs_than_a_browser_has_lines_to_a_server(tmp_path: Path, visit: Visit) -> None:
    root = store(tmp_path)
    with served(root) as url:
        first = visit(url, "/s/web:k")
        turned_away(first, hidden=True)
        for _ in range(7):
            page = first.context.new_page()
            page.goto(f"{url}/s/web:k", timeout=60_000)
            page.wait_for_selector("article")
            turned_away(page, hidden=True)
        with nacre.open(str(root)) as other:
            other.add_message("web:k", "user", "meanwhile")
        turned_away(first, hidden=False)
        first.wait_for_selector("#transcript >> text=meanwhile")
        first.context.close()


def test_a_question_that_was_answered_elsewhere_goes(tmp_path: Path, visit: Visit) -> None:
    with served(store(tmp_path), [Call("wipe", {"path": "a.txt"}), "Done."], tools=TOOLS) as url:
        page = visit(url, "/s/web:k")
        write(page, "wipe it")
        page.wait_for_selector(".ask")
        other = page.context.new_page()
        other.goto(f"{url}/s/web:k")
        other.wait_for_selector(".ask")
        page.click(".ask >> text=No")
        other.wait_for_selector(".ask", state="detached")
        for one in (page, other):
            one.wait_for_selector("#transcript section article >> text=Done.")
        page.context.close()
    with nacre.open(str(tmp_path / "store")) as sessions:
        assert "said no" in str(sessions.get_history("web:k")[-2].content)


def test_the_second_click_of_two_does_not_answer_the_next_question(tmp_path: Path, visit: Visit) -> None:
    steps: list[Step] = [Call("wipe", {"path": "a.txt"}), Call("wipe", {"path": "b.txt"}), "Both?"]
    with served(store(tmp_path), steps, tools=TOOLS) as url:
        page = visit(url, "/s/web:k")
        write(page, "wipe them")
        page.click(".ask:has-text('a.txt') >> text=Yes")
        page.wait_for_selector(".ask:has-text('b.txt')")
        box = page.evaluate("document.querySelector('.ask button').getBoundingClientRect().toJSON()")
        page.mouse.click(box["x"] + 5, box["y"] + 5)
        page.click(".ask:has-text('b.txt') >> text=No", timeout=4000)
        page.wait_for_selector("#transcript article >> text=Both?")
        assert page.locator("#transcript summary", has_text="the user said no").count() == 1
        page.context.close()


def test_below_a_prefix_a_session_is_begun_followed_and_forked(tmp_path: Path, visit: Visit) -> None:
    """Whatever the page asks for is below the prefix: `visit` fails a page that asks for anything else."""
    root = store(tmp_path)
    with served(root, ["First.", "Second."], prefix="/apps/nacre") as url:
        page = visit(url, "/apps/nacre/new")
        write(page, "begin")
        page.wait_for_selector("article >> text=First.")
        page.wait_for_url("**/apps/nacre/s/web:*")
        page.click("[data-act=theme]")
        page.reload()
        assert page.evaluate("document.documentElement.dataset.theme") in {"dark", "light"}
        page.goto(f"{url}/s/web:k")
        with nacre.open(str(root)) as sessions:
            sessions.add_message("web:k", "assistant", "from another process")
        page.wait_for_selector("article >> text=from another process")
        write(page, "go on")
        page.wait_for_selector("article >> text=Second.")
        page.goto(url + "/login?next=" + quote("/elsewhere", safe=""))
        page.fill("#login input", TOKEN)
        page.keyboard.press("Enter")
        page.wait_for_url(f"{url}/")


def test_a_proxy_whose_server_is_away_is_told_in_plain_words_and_nothing_is_lost(tmp_path: Path, visit: Visit) -> None:
    with served(store(tmp_path), ["Here I am."]) as url:
        page = visit(url, "/s/web:k", forgiven="502")
        page.route("**/turn/*", lambda route: route.fulfill(status=502, body="<html>Bad Gateway</html>"))
        write(page, "are you there?")
        page.wait_for_selector("#live [role=alert] >> text=the server answered 502; try again")
        assert page.input_value("#say textarea") == "are you there?"
        page.unroute("**/turn/*")
        page.press("#say textarea", "Enter")
        page.wait_for_selector("article >> text=Here I am.")
        page.close()
