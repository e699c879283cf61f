"""A session that grows while it is watched: the browser holds a few screens of it, and the newest message at once."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import nacre
from tests.web.browser.site import fill, served
from tests.web.browser.test_browser import until

if TYPE_CHECKING:
    from playwright.sync_api import Page, Route

Visit = Callable[..., "Page"]
MOST_NODES = 5000
EARLY = re.compile("chunk=[0-9]&")
# Every node of the document, texts and comments too; the most that there were at any frame.
COUNT = """(() => {
  window.most = 0;
  const look = () => {
    const walk = document.createTreeWalker(document, NodeFilter.SHOW_ALL);
    let count = 0;
    while (walk.nextNode()) count++;
    window.most = Math.max(window.most, count);
    setTimeout(() => requestAnimationFrame(look), 50);
  };
  look();
})()"""
LAST = "[...document.querySelectorAll('#transcript section article')].at(-1)?.textContent.includes('{}')"
# Another process writes: many at once, as an import does, and then one after the other.
WRITE = """
import sys, nacre
from tests.web.browser.site import fill
with nacre.open(sys.argv[1]) as sessions:
    fill(sessions, "web:k", 9800)
    for at in range(200):
        sessions.add_message("web:k", "user" if at % 2 else "assistant", f"written one by one: {at} of 200")
    sessions.add_message("web:k", "assistant", "the very last")
"""


def test_ten_thousand_messages_arrive_and_the_browser_holds_a_few(tmp_path: Path, visit: Visit) -> None:
    root = tmp_path / "store"
    with nacre.open(str(root)) as sessions:
        fill(sessions, "web:k", 40)
    with served(root) as url:
        page = visit(url, "/s/web:k", width=1280)
        page.wait_for_selector("section article")
        page.evaluate(COUNT)
        subprocess.run([sys.executable, "-c", WRITE, str(root)], check=True)
        until(page, LAST.format("the very last"))
        until(page, "document.querySelector('#count').textContent === '10,041 messages'")
        until(page, "scrollY + innerHeight > document.documentElement.scrollHeight - 2")
        assert page.evaluate("most") <= MOST_NODES
        # What came before is there for whoever scrolls up, and what is read does not move when more comes.
        page.keyboard.press("g")
        page.wait_for_selector("article[id='2']")
        page.mouse.move(640, 400)
        page.mouse.wheel(0, 1500)
        until(page, "scrollY > 1000")
        place = page.evaluate("document.elementFromPoint(640, 400).closest('article').getBoundingClientRect().top")
        with nacre.open(str(root)) as other:
            other.add_message("web:k", "user", "one more")
        page.wait_for_selector("#new:visible")
        now = page.evaluate("document.elementFromPoint(640, 400).closest('article').getBoundingClientRect().top")
        assert abs(now - place) <= 1
        page.click("#new")
        until(page, LAST.format("one more"))
        assert page.evaluate("most") <= MOST_NODES
        page.context.close()


def test_what_comes_late_takes_nobody_back_from_the_end(tmp_path: Path, visit: Visit) -> None:
    root = tmp_path / "store"
    with nacre.open(str(root)) as sessions:
        fill(sessions, "web:k", 800)
    with served(root) as url:
        page = visit(url, "/s/web:k")
        page.wait_for_selector("details[id='800']")
        late: list[Route] = []
        page.route(EARLY, lambda route: route.continue_() if late else late.append(route))
        with page.expect_request(EARLY):
            page.evaluate("scrollTo(0, 0)")
        page.evaluate("scroller.toEnd()")
        with nacre.open(str(root)) as other:
            other.add_message("web:k", "user", "the newest")
        until(page, LAST.format("the newest"))
        with page.expect_response(EARLY):
            late[0].continue_()
        until(page, "!scroller.busy")
        assert page.evaluate(LAST.format("the newest"))
        until(page, "scrollY + innerHeight > document.documentElement.scrollHeight - 2")
        page.context.close()


def test_what_was_unfolded_is_so_when_one_comes_back(tmp_path: Path, visit: Visit) -> None:
    root = tmp_path / "store"
    with nacre.open(str(root)) as sessions:
        fill(sessions, "web:k", 800)
    with served(root) as url:
        page = visit(url, "/s/web:k")
        page.wait_for_selector("details[id='800']")
        page.evaluate("document.getElementById('800').open = true")
        page.keyboard.press("g")
        page.wait_for_selector("article[id='2']")
        assert page.locator("details[id='800']").count() == 0
        page.keyboard.press("G")
        page.wait_for_selector("details[id='800'][open]")
        page.context.close()
