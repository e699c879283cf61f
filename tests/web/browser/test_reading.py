"""Reading in a real browser: every key, what is offered for a message, pictures, and who can read it."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import nacre
from nacre.messages import Message
from tests.web.browser.site import called, fill, returned, said, served
from tests.web.browser.test_browser import until, wide
from tests.web.test_message_parts import png

if TYPE_CHECKING:
    from playwright.sync_api import Page

Visit = Callable[..., "Page"]
ANSI = "".join(f"\x1b[{code}mcolour {code}\x1b[0m\n" for code in (*range(30, 38), *range(90, 98), *range(40, 48), 2, 7))
PICTURE = "data:image/png;base64," + base64.b64encode(png(40, 30)).decode()


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    root = tmp_path_factory.mktemp("reading")
    with nacre.open(str(root)) as sessions:
        sessions.add_message("irc:other", "user", "of another channel")
        sessions.add_message("web:old", "user", "the oldest of the web")
        sessions.add_message("web:k", "user", "Look around.")
        for at in range(6):
            sessions.add_messages("web:k", [called(f"c{at}", "read_file", path=f"{at}.txt")])
            sessions.add_messages("web:k", [returned(f"c{at}", "read_file", f"text of {at}\n" * 9)])
        edit = {"path": "a.py", "old_text": "a\nb\nc", "new_text": "a\nB\nc"}
        sessions.add_messages("web:k", [Message(role="assistant", content="I *edit*.", reasoning="Hm.")])
        sessions.add_messages("web:k", [called("e", "edit_file", **edit)])
        sessions.add_messages("web:k", [returned("e", "edit_file", ANSI, failed=True)])
        sessions.add_messages(
            "web:k", [said("assistant", "Done.\n\n```py\nx = 1\n```\n\n> quoted\n\n[a](https://a.example)")]
        )
        content = [{"type": "text", "text": "A picture"}, {"type": "image_url", "image_url": {"url": PICTURE}}]
        sessions.add_full_message("web:k", Message(role="user", content=content))
        sessions.append("web:k", "use", {"prompt": 9000, "completion": 80})
        sessions.set_meta("web:k", title="Around", tags=["work"], pinned=True)
        fill(sessions, "web:sum", 40)
        sessions.set_summary("web:sum", "Many parts.", upto=21)
        sessions.add_message("web:sum", "user", "One way")
        sessions.rewind("web:sum", 41)
        sessions.add_message("web:sum", "user", "Another way")
    with served(root) as url:
        yield url


def id_here(page: Page) -> Any:
    return page.locator("#transcript .here").get_attribute("id")


def test_a_run_is_one_line_that_unfolds(site: str, visit: Visit) -> None:
    page = visit(site, "/s/web:k")
    run = page.locator("details.run")
    assert run.locator("summary").first.inner_text().startswith("6 tool calls read_file ×6")
    assert not page.locator("article[id='5']").is_visible()
    run.locator("summary").first.click()
    assert page.locator("article[id='5']").is_visible()


def test_keys_stop_at_runs_and_not_inside_closed_ones(site: str, visit: Visit) -> None:
    page = visit(site, "/s/web:k#2")
    page.wait_for_selector("article.here")
    page.keyboard.press("j")
    assert id_here(page) == "r3"
    page.keyboard.press("j")
    assert id_here(page) == "15"
    page.keyboard.press("k")
    page.keyboard.press("e")
    page.keyboard.press("j")
    assert id_here(page) == "3"


def test_a_link_into_a_run_opens_it(site: str, visit: Visit) -> None:
    page = visit(site, "/s/web:k#8")
    page.wait_for_selector("article.here.flash")
    assert id_here(page) == "7"
    assert page.locator("details[id='8'] pre").last.is_visible()


def test_everything_unfolds_and_folds_at_once(site: str, visit: Visit) -> None:
    page = visit(site, "/s/web:k")
    closed = page.locator("#transcript details:not([open])")
    page.keyboard.press("E")
    assert closed.count() == 0
    page.keyboard.press("E")
    assert page.locator("#transcript details[open]").count() == 0


def test_first_last_follow_and_write(site: str, visit: Visit) -> None:
    page = visit(site, "/s/web:sum?all=1", height=300)
    page.keyboard.press("g")
    until(page, "scrollY === 0")
    page.keyboard.press("G")
    until(page, "scrollY + innerHeight > document.documentElement.scrollHeight - 2")
    page.keyboard.press("f")
    assert page.inner_text("#status").endswith("not following")
    page.keyboard.press("f")
    assert page.inner_text("#status").endswith("following")
    page.keyboard.press("i")
    assert page.evaluate("document.activeElement.name") == "content"


def test_links_and_words_are_copied(site: str, visit: Visit) -> None:
    page = visit(site, "/s/web:k#15", permissions=["clipboard-read", "clipboard-write"])
    page.wait_for_selector("article.here")
    clipboard = "navigator.clipboard.readText()"
    page.keyboard.press("y")
    until(page, "document.querySelector('#status').textContent.endsWith('link copied')")
    assert page.evaluate(clipboard) == f"{site}/s/web:k#15"
    page.keyboard.press("c")
    until(page, "document.querySelector('#status').textContent.endsWith('message copied')")
    assert page.evaluate(clipboard) == "I *edit*."
    page.hover("article pre code")
    page.click(".float.text button")
    until(page, "document.querySelector('#status').textContent === 'copied'")
    assert page.evaluate(clipboard) == "x = 1"


def test_what_is_offered_for_a_message(site: str, visit: Visit) -> None:
    page = visit(site, "/s/web:k")
    page.hover("article[id='15']")
    page.click(".float.tools >> text=raw")
    assert '"content": "I *edit*."' in page.locator("article[id='15'] .raw").inner_text()
    page.click(".float.tools >> text=fork")
    page.wait_for_url(re.compile("/s/web:k-2$"))
    assert page.locator("article").last.get_attribute("id") == "15"


def test_the_sessions_beside_this_one(site: str, visit: Visit) -> None:
    page = visit(site, "/?prefix=web%3A&text=o")
    page.click("text=web:old")
    page.wait_for_url("**/s/web:old")
    page.keyboard.press("[")
    page.wait_for_url("**/s/web:k")
    page.keyboard.press("]")
    page.wait_for_url("**/s/web:old")


def test_arrows_go_through_what_was_found(site: str, visit: Visit) -> None:
    page = visit(site, "/search?q=text")
    page.focus("[type=search]")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowUp")
    assert page.evaluate("[...document.querySelectorAll('main li > a')].indexOf(document.activeElement)") == 0
    page.keyboard.press("Enter")
    page.wait_for_selector("article.here.flash mark")


def test_a_picture_is_drawn(site: str, visit: Visit) -> None:
    page = visit(site, "/s/web:k")
    page.locator(".picture img").scroll_into_view_if_needed()
    until(page, "document.querySelector('.picture img').naturalWidth === 40")


def test_a_change_and_colours_are_drawn(site: str, visit: Visit) -> None:
    page = visit(site, "/s/web:k")
    assert page.locator(".diff del").inner_text().strip() == "-b"
    red, black = (page.locator(f".{name}").evaluate("one => getComputedStyle(one).color") for name in ("fg1", "fg0"))
    assert red != black


def test_what_is_new_since_the_last_look_is_marked(site: str, visit: Visit) -> None:
    page = visit(site, "/s/irc:other")
    page.evaluate("localStorage.setItem(`seen ${document.querySelector('#transcript').dataset.page}`, '1')")
    page.evaluate("addEventListener('pagehide', event => event.stopImmediatePropagation(), true)")
    page.evaluate("document.querySelector('#transcript').dataset.n = '1'")
    page.reload()
    assert page.locator("article.unseen").get_attribute("id") == "2"


def test_a_pin_is_put_and_taken_away(site: str, visit: Visit) -> None:
    page = visit(site, "/s/irc:other")
    page.click("button.pin")
    page.wait_for_selector("button.pin[aria-pressed=true]")
    page.goto(site)
    page.wait_for_selector(".row .pin >> nth=1")
    page.goto(f"{site}/s/irc:other")
    page.click("button.pin")
    page.wait_for_selector("button.pin[aria-pressed=false]")


# ---- who can read it

PAGES = ("/", "/?pinned=1&state=idle", "/s/web:k", "/s/web:sum", "/search?q=text", "/new", "/use/web:k", "/s/nobody")
# The contrast of every text that is in view with what is behind it, where that is less than it should be.
PALE = """() => {
  const parse = text => { const [r, g, b, a = 1] = text.match(/[\\d.]+/g).map(Number); return [r, g, b, a]; };
  const over = ([r, g, b, a], [R, G, B]) => [r * a + R * (1 - a), g * a + G * (1 - a), b * a + B * (1 - a)];
  const light = rgb => rgb.map(one => one / 255).map(one => one <= .04045 ? one / 12.92 : ((one + .055) / 1.055) ** 2.4)
    .reduce((sum, one, at) => sum + one * [.2126, .7152, .0722][at], 0);
  const behind = one => {
    const layers = [];
    for (let at = one; at; at = at.parentElement) layers.push(parse(getComputedStyle(at).backgroundColor));
    return layers.reverse().reduce((ground, layer) => over(layer, ground), [255, 255, 255]);
  };
  const faded = one => one ? getComputedStyle(one).opacity * faded(one.parentElement) : 1;
  const pale = [];
  const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walk.nextNode()) {
    const one = walk.currentNode.parentElement;
    if (!walk.currentNode.data.trim() || !one.checkVisibility() || one.closest("[aria-hidden], .gap")) continue;
    const style = getComputedStyle(one), ground = behind(one);
    const [r, g, b, a] = parse(style.color);
    const ink = over([r, g, b, a * faded(one)], ground);
    const [low, high] = [light(ink), light(ground)].sort((x, y) => x - y);
    const ratio = (high + .05) / (low + .05);
    const size = parseFloat(style.fontSize), isLarge = size >= 24 || (size >= 18.66 && style.fontWeight >= 700);
    if (ratio < (isLarge ? 3 : 4.5)) pale.push(`${one.outerHTML.slice(0, 80)}: ${ratio.toFixed(2)}`);
  }
  return pale;
}"""
CONTROLS = "a, button, input:not([type=hidden]), textarea, select, summary, img, svg, [role=img]"
NAMELESS = f"""() => [...document.querySelectorAll("{CONTROLS}")].filter(one => one.checkVisibility() && !(
  one.closest("[aria-hidden]") ||
  one.getAttribute("aria-label") || one.textContent.trim() || one.labels?.length || one.getAttribute("alt")
  || one.querySelector("img[alt]")
)).map(one => one.outerHTML.slice(0, 120))"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_text_stands_out_and_every_control_has_a_name(site: str, visit: Visit, scheme: str) -> None:
    page = visit(site, "/", scheme=scheme, forgiven="404")
    for path in PAGES:
        page.goto(site + path)
        page.evaluate("document.querySelectorAll('details').forEach(one => { one.open = true })")
        assert page.evaluate(PALE) == [], path
        page.evaluate("document.querySelectorAll('.menu').forEach(one => { one.open = false })")
        for act in ("null", "document.querySelector('article, .row a, .found li a')?.focus()"):
            page.evaluate(act)
            assert page.evaluate(PALE) == [], path
            assert page.evaluate(NAMELESS) == [], path
        if path.startswith("/s/web"):
            page.keyboard.press("n")
            page.hover("article")
            assert page.evaluate(PALE) == [], f"{path}, marked"


def test_at_360_pixels_nothing_is_wider_than_the_screen(site: str, visit: Visit) -> None:
    page = visit(site, "/", width=360, forgiven="404")
    for path in PAGES:
        page.goto(site + path)
        page.evaluate("document.querySelectorAll('details').forEach(one => { one.open = true })")
        assert wide(page) == 360, path
        page.evaluate("document.querySelectorAll('.menu').forEach(one => { one.open = false })")
        if path.startswith("/s/web"):
            page.hover("article")
        assert wide(page) == 360, path


def test_nothing_moves_for_those_who_do_not_want_it(site: str, visit: Visit) -> None:
    page = visit(site, "/s/web:k#15", reduced_motion="reduce")
    page.wait_for_selector("article.flash")
    assert page.evaluate("document.getAnimations().length") == 0
    moving = visit(site, "/s/web:k#15")
    moving.wait_for_selector("article.flash")
    assert moving.evaluate("document.getAnimations().length") == 1


def test_a_list_is_completed_when_it_is_there(visit: Visit, tmp_path: Path) -> None:
    root = tmp_path / "large"
    with nacre.open(str(root)) as sessions:
        fill(sessions, "large", 2000)
    with served(root) as url:
        page = visit(url, "/")
        page.wait_for_selector(".row >> text=500 tool calls")
        assert page.get_attribute("main.list", "data-full") is None


def test_an_item_without_a_role_is_below_its_heading(tmp_path: Path, visit: Visit) -> None:
    with nacre.open(str(tmp_path)) as sessions:
        sessions.add_full_message("web:k", {"type": "function_call", "call_id": "c1", "name": "ls"})
    with served(tmp_path) as url:
        page = visit(url, "/s/web:k")
        head, block = (page.locator(f"article[id='2'] {part}").first.bounding_box() for part in ("h2", "pre"))
        assert head is not None
        assert block is not None
        assert block["y"] >= head["y"] + head["height"]
        assert abs(block["x"] - head["x"]) < page.viewport_size["width"] / 4  # type: ignore[index]
