"""The page in a real browser: read, fold, move by keys, search, follow, write; at any size."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pytest

import nacre
from nacre.messages import Message
from tests.web.browser.site import TOKEN, called, fill, returned, said, served

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

Visit = Callable[..., "Page"]
KEY = "telegram:bot:42::ada"
PAGE = f"/s/{KEY}"


@pytest.fixture
def store(tmp_path: Path) -> Path:
    root = tmp_path / "store"
    with nacre.open(str(root)) as sessions:
        sessions.add_messages(
            KEY, [said("user", "Why do the *tests* fail?"), called("a", "shell", command="pytest -q")]
        )
        sessions.add_messages(KEY, [returned("a", "shell", "1 failed\nin detail", failed=True)])
        sessions.add_messages(KEY, [called("b", "read_file", path="app.py")])
        sessions.add_messages(KEY, [returned("b", "read_file", "line one\nline two")])
        sessions.add_messages(KEY, [Message(role="assistant", content="Off by one.", reasoning="hm")])
        sessions.append(KEY, "use", {"prompt": 1200, "completion": 80, "cached": 300})
        sessions.set_meta(KEY, title="Why the tests fail")
        sessions.add_messages("irc:x:y::z", [said("user", "hello")])
    return root


@pytest.fixture
def site(store: Path) -> Iterator[str]:
    with served(store, ["I am the *script*.", "Again."]) as url:
        yield url


def until(page: Page, claim: str) -> None:
    """Wait until a claim about the page is true; the page's policy does not let Playwright ask in its own way."""
    look = f"() => ({claim}) ? done() : requestAnimationFrame(look)"
    late = "setTimeout(() => fail(new Error('it did not come true')), 60000)"
    page.evaluate(f"new Promise((done, fail) => {{ {late}; const look = {look}; look(); }})")


def wide(page: Page) -> int:
    return int(page.evaluate("document.documentElement.scrollWidth"))


def test_a_session_is_opened_from_the_list(site: str, visit: Visit) -> None:
    page = visit(site, "/")
    assert page.locator(".row").count() == 2
    page.click("nav.chips >> text=telegram")
    page.wait_for_url("**/?channel=telegram")
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    page.wait_for_selector("article")
    assert page.inner_text("h1") == "Why the tests fail"


def test_calls_are_folded_errors_open_and_thinking_hidden(site: str, visit: Visit) -> None:
    page = visit(site, PAGE)
    assert page.locator("details.failed").get_attribute("open") is not None
    folded = page.locator("article details", has_text="app.py")
    assert folded.get_attribute("open") is None
    assert folded.locator("summary").inner_text().startswith("read_file app.py → line one")
    assert not page.locator("details.thinking pre").is_visible()
    folded.locator("summary").click()
    assert folded.locator("pre", has_text="line two").is_visible()


def test_keys_move_fold_copy_and_show_the_stored_message(site: str, visit: Visit) -> None:
    page = visit(site, PAGE)
    page.evaluate("scrollTo(0, 0)")
    for key in ("g", "n", "j"):
        page.keyboard.press(key)
    page.wait_for_selector("article.here")
    page.keyboard.press("k")
    assert page.locator("article.here").get_attribute("id") == "2"
    page.keyboard.press("r")
    assert '"role": "user"' in page.locator("article.here .raw").inner_text()
    page.keyboard.press("j")
    page.keyboard.press("e")
    page.keyboard.press("?")
    assert page.locator("#help").is_visible()
    page.keyboard.press("Escape")
    page.keyboard.press("/")
    assert page.evaluate("document.activeElement.name") == "q"


APPEND = "import sys, nacre; nacre.open(sys.argv[1]).add_message(sys.argv[2], 'assistant', 'from another process')"


def test_what_another_process_appends_is_shown_at_once(site: str, store: Path, visit: Visit) -> None:
    page = visit(site, PAGE)
    page.wait_for_selector("article >> text=Off by one.")
    subprocess.run([sys.executable, "-c", APPEND, str(store), KEY], check=True)
    page.wait_for_selector("#transcript article >> text=from another process")
    assert page.locator("#transcript article").count() == 5
    assert page.inner_text("#count") == "7 messages"


def test_words_are_answered_on_the_page(site: str, store: Path, visit: Visit) -> None:
    page = visit(site, PAGE)
    page.fill("#say textarea", "And <b>now</b>?")
    page.keyboard.press("Enter")
    page.wait_for_selector("#transcript em >> text=script")
    until(page, "document.querySelector('#live').textContent === ''")
    assert page.locator("#transcript article.user").last.inner_text().endswith("And <b>now</b>?")
    with nacre.open(str(store)) as sessions:
        assert sessions.get_history(KEY)[-1].content == "I am the *script*."


def test_a_new_session_begins_with_the_first_words(site: str, visit: Visit) -> None:
    page = visit(site, "/new")
    page.fill("#say textarea", "Hello")
    page.click("text=Send")
    page.wait_for_url(re.compile("/s/web:[0-9a-f]{8}$"))
    page.wait_for_selector("section article.assistant")
    page.reload()
    assert page.locator("article").count() == 2


def test_the_form_works_without_a_script(site: str, browser: Any, visit: Visit) -> None:
    cookies = visit(site, "/").context.cookies()
    context = browser.new_context(java_script_enabled=False)
    context.add_cookies(cookies)
    context.set_default_timeout(60_000)
    page = context.new_page()
    page.goto(site + PAGE)
    page.fill("#say textarea", "Without a script")
    page.click("text=Send")
    page.wait_for_selector("article >> text=Without a script")
    assert page.locator("article em", has_text="script").count() == 1
    context.close()


def test_search_leads_to_the_message_and_marks_it(site: str, visit: Visit) -> None:
    page = visit(site, "/")
    page.keyboard.press("/")
    page.keyboard.type("detail")
    page.keyboard.press("Enter")
    page.click(".found li a")
    page.wait_for_selector("article.here mark")
    assert page.locator("article.here mark").first.inner_text() == "detail"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_dark_and_light_follow_the_system_and_the_button(site: str, visit: Visit, scheme: str) -> None:
    page = visit(site, PAGE, scheme=scheme)
    ground = "getComputedStyle(document.body).backgroundColor"
    was = page.evaluate(ground)
    assert was == {"light": "rgb(253, 252, 249)", "dark": "rgb(22, 24, 28)"}[scheme]
    page.click("[data-act=theme]")
    assert page.evaluate(ground) != was
    page.reload()
    assert page.evaluate(ground) != was


def test_at_360_pixels_nothing_is_wider_than_the_screen(site: str, visit: Visit) -> None:
    page = visit(site, PAGE, width=360)
    page.evaluate("document.querySelectorAll('details').forEach(one => { one.open = true })")
    assert wide(page) == 360
    for path in ("/", "/search?q=tests", "/new", f"/use/{KEY}"):
        page.goto(site + path)
        assert wide(page) == 360, path


# ---- at 100,000 messages

PAINT = "performance.getEntriesByName('first-contentful-paint')[0].startTime"
# What is drawn at five heights of the window: a message, or the picture of messages that are on their way.
SEEN = """[.1, .3, .5, .7, .85].map(share => {
  const one = document.elementFromPoint(innerWidth / 2, innerHeight * share);
  if (one.closest("section, aside, nav, footer, header, #live, #again")) return "there";
  return one.closest(".gap.drawn") ? "coming" : "blank";
})"""


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    root = tmp_path_factory.mktemp("large")
    with nacre.open(str(root)) as sessions:
        fill(sessions, "small", 100)
        fill(sessions, "large", 100_000)
    with served(root) as url:
        yield url


def painted(page: Page, address: str) -> float:
    """The best of several first paints; how fast one is depends on what else the machine does."""
    times = []
    for _ in range(5):
        page.goto(address)
        until(page, PAINT.removesuffix(".startTime"))
        times.append(float(page.evaluate(PAINT)))
    return min(times)


def test_first_paint_does_not_grow_with_the_session(large: str, visit: Visit) -> None:
    page = visit(large, "/s/small")
    small, great = painted(page, f"{large}/s/small"), painted(page, f"{large}/s/large")
    assert great <= 3 * small, f"{small:.0f} ms with 100 messages, {great:.0f} ms with 100,000"


def test_scrolling_never_shows_a_blank(large: str, visit: Visit) -> None:
    page = visit(large, "/s/large")
    page.wait_for_selector("article >> text=99996")
    page.mouse.move(600, 400)
    for _ in range(25):
        page.mouse.wheel(0, -1500)
        seen = page.evaluate(f"new Promise(done => requestAnimationFrame(() => done({SEEN})))")
        assert "blank" not in seen
    for share in (0.7, 0.5, 0.2, 0.9, 0.01):
        page.evaluate(f"scrollTo(0, document.documentElement.scrollHeight * {share})")
        assert "blank" not in page.evaluate(f"new Promise(done => requestAnimationFrame(() => done({SEEN})))")
        until(page, f"{SEEN}.every(one => one === 'there')")
    page.keyboard.press("g")
    page.wait_for_selector("article[id='2']")
    assert page.locator("#transcript article").count() < 600


def test_a_deep_link_opens_in_the_middle(large: str, visit: Visit) -> None:
    page = visit(large, "/s/large#50002")
    page.wait_for_selector("article.here")
    assert page.locator("article.here").get_attribute("id") == "50002"
    page.keyboard.press("p")
    page.wait_for_selector("article.here[id='49998']")


@pytest.mark.parametrize("next", ["/\t/evil.example", "/\\evil.example", "//evil.example", "javascript:alert(1)"])
def test_a_login_leads_nowhere_else(site: str, browser: Browser, next: str) -> None:
    with browser.new_context() as context:
        page = context.new_page()
        page.goto(f"{site}/login?next={quote(next, safe='')}#token={quote(TOKEN)}")
        page.wait_for_url(lambda address: "/login" not in address)
        assert page.url == f"{site}/"


def test_long_tags_fit(tmp_path: Path, visit: Visit) -> None:
    with nacre.open(str(tmp_path / "store")) as sessions:
        sessions.add_message("k", "user", "hi")
        sessions.set_meta("k", title="T", tags=["W" * 40, "w" * 300])
    with served(tmp_path / "store") as url:
        page = visit(url, "/s/k", width=360)
        assert wide(page) == 360
        page.goto(url)
        assert wide(page) == 360


def test_a_session_that_was_begun_anew_says_so(tmp_path: Path, visit: Visit) -> None:
    with nacre.open(str(tmp_path / "store")) as sessions:
        sessions.add_messages("k", [said("user", "hi"), said("assistant", "hello")])
        with served(tmp_path / "store") as url:
            page = visit(url, "/s/k")
            with page.expect_request("**/events?after=3"):
                page.reload()
            sessions.archive("k")
            sessions.add_message("k", "user", "from the start")
            page.wait_for_selector("#status >> text=a new session was started")
            page.context.close()


def test_who_is_done_logs_out(site: str, visit: Visit) -> None:
    page = visit(site, PAGE)
    page.keyboard.press("?")
    page.click("dialog >> text=Log out")
    page.wait_for_url(f"{site}/login")
    page.goto(f"{site}{PAGE}")
    assert "/login?next=" in page.url


def test_a_link_with_a_token_logs_in_where_the_form_is_open_already(site: str, visit: Visit) -> None:
    page = visit(site, PAGE, forgiven="401")
    page.keyboard.press("?")
    page.click("dialog >> text=Log out")
    page.wait_for_url(f"{site}/login")
    # Only the part behind the # differs, so the browser loads nothing.
    page.goto(f"{site}/login#token=that-of-yesterday")
    page.wait_for_selector("#wrong:has-text('the token is wrong')")
    page.goto(f"{site}/login#token={quote(TOKEN)}")
    page.wait_for_url(f"{site}/")
