"""A turn in a real browser, as a person meets it: its address, its draft, its question, its branches, its files."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio

import nacre
from nacre.errors import ProviderError
from nacre.providers.scripted import Call, Pause, Step
from tests.web.browser.site import said, served
from tests.web.browser.test_browser import until
from tests.web.browser.test_talking import TOOLS, Never, store, write
from tests.web.test_message_parts import png

if TYPE_CHECKING:
    from playwright.sync_api import Page

Visit = Callable[..., "Page"]


class Gate:
    """What a scripted model waits at until it is opened, from another thread."""

    def __init__(self) -> None:
        self.is_open = False

    async def wait(self) -> None:
        while not self.is_open:  # noqa: ASYNC110 - it is opened by another thread
            await anyio.sleep(0.01)


def test_the_address_is_the_session_s_before_the_model_says_a_word(tmp_path: Path, visit: Visit) -> None:
    with served(tmp_path / "store", [[Pause(Never())], "Later."]) as url:
        page = visit(url, "/new")
        write(page, "begin")
        page.wait_for_url(re.compile("/s/web:[0-9a-f]{8}$"))
        page.wait_for_selector("#transcript section article.user >> text=begin")
        page.reload()
        page.wait_for_selector("section article.user >> text=begin")
        page.click("#stop")
        page.wait_for_selector("section >> text=stopped by the user")
        page.context.close()


def test_a_reload_in_the_first_turn_keeps_the_question(tmp_path: Path, visit: Visit) -> None:
    with served(tmp_path / "store", [Call("wipe", {"path": "a.txt"}), "Done."], tools=TOOLS) as url:
        page = visit(url, "/new")
        write(page, "wipe it")
        page.wait_for_selector(".ask >> text=a.txt")
        page.reload()
        page.click(".ask .yes")
        page.wait_for_selector("section article >> text=Done.")
        assert page.locator("section summary", has_text="wiped a.txt").count() == 1
        assert page.locator(".draft, .ask").count() == 0
        page.context.close()


def test_a_message_that_is_refused_can_be_sent_again(tmp_path: Path, visit: Visit) -> None:
    with served(tmp_path / "store", []) as url:
        page = visit(url, "/new", forgiven="Failed to load resource")
        page.route("**/turn/**", lambda route: route.fulfill(status=400, json={"detail": "no room"}))
        write(page, "begin")
        page.wait_for_selector("[role=alert] >> text=no room")
        assert page.url.endswith("/new")
        assert page.input_value("#say textarea") == "begin"
        page.context.close()


# How often a text is in sight, and where it begins, frame by frame; what differs from one to the next is kept.
WATCH = """text => {
  window.frames_ = [];
  const look = () => {
    const many = [...document.querySelectorAll("article")].filter(one => one.textContent.includes(text));
    const [one] = many;
    const line = one && [...one.querySelectorAll("p, pre, li")].find(each => each.textContent.includes(text));
    frames_.push([many.length, one ? Math.round(line.getBoundingClientRect().top + scrollY) : null]);
    requestAnimationFrame(look);
  };
  look();
}"""
WRITTEN = "First **words**.\n\n- one\n- two\n\n```py\nx = 1\n```\n\n"


def test_a_draft_is_drawn_as_it_stays_and_neither_doubles_nor_jumps(tmp_path: Path, visit: Visit) -> None:
    gate = Gate()
    with served(store(tmp_path), [[WRITTEN, Pause(gate), "The end."]]) as url:
        page = visit(url, "/s/web:k")
        page.evaluate(WATCH, "First words")
        write(page, "go")
        page.wait_for_selector("#live pre code .fg3")
        assert page.locator("#live .said strong").inner_text() == "words"
        assert page.locator("#live .said li").count() == 2
        gate.is_open = True
        page.wait_for_selector("section article >> text=The end.")
        until(page, "!document.querySelector('.draft, .doing')")
        frames = page.evaluate("frames_")
        assert {count for count, _ in frames} <= {0, 1}
        assert len({top for count, top in frames if count}) == 1
        page.context.close()


def test_answers_between_calls_are_each_there_once(tmp_path: Path, visit: Visit) -> None:
    steps: list[Step] = [["Let me see. ", Call("wipe", {"path": "a.txt"})], "So it is."]
    with served(store(tmp_path), steps, tools=TOOLS) as url:
        page = visit(url, "/s/web:k")
        page.evaluate(WATCH, "Let me see")
        write(page, "wipe it")
        page.click(".ask .yes")
        page.wait_for_selector("section article >> text=So it is.")
        assert {count for count, _ in page.evaluate("frames_")} <= {0, 1}
        assert page.locator("article", has_text="Let me see").count() == 1
        page.context.close()


def test_an_answer_may_be_written_ahead(tmp_path: Path, visit: Visit) -> None:
    gate = Gate()
    with served(store(tmp_path), [["I think", Pause(gate)], "And that."]) as url:
        page = visit(url, "/s/web:k")
        write(page, "this?")
        page.wait_for_selector("#live >> text=I think")
        write(page, "and that?")
        assert page.inner_text("#waiting span") == "Sent when the answer is complete."
        gate.is_open = True
        page.wait_for_selector("section article >> text=And that.")
        page.context.close()


# ---- drafts


def test_a_message_that_waits_for_its_turn_survives_a_reload(tmp_path: Path, visit: Visit) -> None:
    gate = Gate()
    with served(store(tmp_path), [["I think", Pause(gate)], "And that."]) as url:
        page = visit(url, "/s/web:k")
        write(page, "this?")
        page.wait_for_selector("#live >> text=I think")
        write(page, "and that?")
        page.reload()
        page.wait_for_selector("#live >> text=I think")
        assert page.input_value("#say textarea") == "and that?"
        assert page.locator("#waiting").is_visible()
        gate.is_open = True
        page.wait_for_selector("section article >> text=And that.")
        page.wait_for_function("document.querySelector('#say textarea').value === ''")
        assert page.locator("section article.user", has_text="and that?").count() == 1
        page.reload()
        page.wait_for_selector("section article >> text=And that.")
        page.wait_for_function("document.querySelector('#say textarea').value === ''")
        page.context.close()


def test_a_message_that_waits_is_sent_when_the_answer_ended_during_the_reload(tmp_path: Path, visit: Visit) -> None:
    gate = Gate()
    with served(store(tmp_path), [["I think", Pause(gate), " so."], "And that."]) as url:
        page = visit(url, "/s/web:k")
        write(page, "this?")
        page.wait_for_selector("#live >> text=I think")
        write(page, "and that?")
        page.goto(f"{url}/")
        gate.is_open = True
        page.wait_for_selector("main.list")
        with nacre.open(str(tmp_path / "store")) as sessions:
            while sessions.get_history("web:k")[-1].role != "assistant":
                page.wait_for_timeout(50)
        page.goto(f"{url}/s/web:k")
        page.wait_for_selector("section article >> text=And that.")
        page.context.close()


def test_a_message_that_waits_can_be_held_back(tmp_path: Path, visit: Visit) -> None:
    gate = Gate()
    with served(store(tmp_path), [["I think", Pause(gate), " so."]]) as url:
        page = visit(url, "/s/web:k")
        write(page, "this?")
        page.wait_for_selector("#live >> text=I think")
        page.fill("#say textarea", "and that?")
        page.click("#say .primary")
        page.click("#waiting button")
        gate.is_open = True
        page.wait_for_selector("section article >> text=I think so.")
        until(page, "!document.querySelector('#say.busy')")
        assert page.input_value("#say textarea") == "and that?"
        page.context.close()


def test_what_is_written_and_attached_is_there_after_a_reload_and_in_another_tab(tmp_path: Path, visit: Visit) -> None:
    with served(store(tmp_path), ["Seen."]) as url:
        page = visit(url, "/new")
        page.fill("#say textarea", "for a new one")
        page.goto(f"{url}/s/web:k")
        assert page.input_value("#say textarea") == ""
        page.fill("#say textarea", "half a thou")
        page.set_input_files("#choose", file("a.txt", b"kept"))
        page.wait_for_selector("#files li")
        page.reload()
        assert page.input_value("#say textarea") == "half a thou"
        page.wait_for_selector("#files li")
        other = page.context.new_page()
        other.goto(f"{url}/s/web:k")
        assert other.input_value("#say textarea") == "half a thou"
        write(other, "half a thought")
        other.wait_for_selector("section article >> text=Seen.")
        until(other, "!localStorage.getItem('draft ' + document.querySelector('main').dataset.page)")
        other.goto(f"{url}/new")
        assert other.input_value("#say textarea") == "for a new one"
        page.reload()
        assert page.input_value("#say textarea") == ""
        assert page.locator("#files li").count() == 0
        page.context.close()
    assert content_of(tmp_path / "store")[0] == {"type": "text", "text": '<file name="a.txt">\nkept\n</file>'}


def test_an_edit_is_still_one_after_a_reload_and_leaves_the_draft_before_it(tmp_path: Path, visit: Visit) -> None:
    with served(store(tmp_path), ["Edited."]) as url:
        page = visit(url, "/s/web:k")
        page.fill("#say textarea", "a draft")
        page.keyboard.press("Escape")
        page.keyboard.press("u")
        until(page, "document.querySelector('#say textarea').value === 'hi'")
        page.reload()
        assert page.locator("#editing").is_visible()
        write(page, "hi again")
        page.wait_for_selector("section article >> text=Edited.")
        assert page.input_value("#say textarea") == "a draft"
        page.context.close()
    with nacre.open(str(tmp_path / "store")) as sessions:
        assert [one.content for one in sessions.get_history("web:k")] == ["hi again", "Edited."]


def test_a_message_that_was_sent_just_before_a_reload_is_not_stored_twice(tmp_path: Path, visit: Visit) -> None:
    with served(store(tmp_path), [[Pause(Never())], "Once."]) as url:
        page = visit(url, "/s/web:k")
        held: list[Any] = []
        page.route("**/turn/**", lambda route: route.continue_() if held else held.append(route))
        write(page, "once")
        page.wait_for_selector("#live .user >> text=once")
        sent = page.evaluate("JSON.parse(localStorage.getItem('draft /s/web:k'))")
        with nacre.open(str(tmp_path / "store")) as sessions:
            words = nacre.Message(role="user", content="once", extra={"origin": {"id": sent["id"], "sender": "web"}})
            sessions.add_full_message("web:k", words)
        page.reload()
        page.wait_for_selector("section article.user >> text=once")
        assert page.input_value("#say textarea") == "once"
        page.press("#say textarea", "Enter")
        page.wait_for_selector("#stop:visible")
        page.context.close()
    with nacre.open(str(tmp_path / "store")) as sessions:
        assert [one.content for one in sessions.get_history("web:k") if one.role == "user"] == ["hi", "once"]


def test_whoever_logs_out_leaves_no_drafts(tmp_path: Path, visit: Visit) -> None:
    with served(store(tmp_path)) as url:
        page = visit(url, "/s/web:k")
        page.fill("#say textarea", "mine alone")
        page.keyboard.press("Escape")
        page.keyboard.press("?")
        page.click("#help >> text=Log out")
        page.wait_for_url("**/login*")
        assert page.evaluate("Object.keys(localStorage).filter(one => one.startsWith('draft'))") == []
        page.context.close()


def test_a_question_mark_is_typed_into_the_field_of_a_new_session(tmp_path: Path, visit: Visit) -> None:
    with served(tmp_path / "store") as url:
        page = visit(url, "/new")
        until(page, "document.activeElement.matches('#say textarea')")
        page.keyboard.type("why?")
        assert page.input_value("#say textarea") == "why?"
        assert not page.locator("#help").is_visible()
        page.wait_for_selector(".welcome >> text=Esc")
        page.keyboard.press("Escape")
        page.keyboard.press("?")
        assert page.locator("#help").is_visible()
        page.context.close()


def test_a_touch_screen_begins_a_line_by_enter_and_sends_by_the_button(tmp_path: Path, visit: Visit) -> None:
    with served(store(tmp_path), ["Both."]) as url:
        page = visit(url, "/s/web:k", width=360, is_mobile=True, has_touch=True)
        page.fill("#say textarea", "one")
        page.keyboard.press("Enter")
        page.keyboard.type("two")
        assert page.input_value("#say textarea") == "one\ntwo"
        page.tap("#say .primary")
        page.wait_for_selector("section article >> text=Both.")
        page.context.close()


def test_the_keys_are_read_from_their_beginning_on_a_small_screen(tmp_path: Path, visit: Visit) -> None:
    with served(tmp_path / "store") as url:
        page = visit(url, "/", width=360, height=600)
        page.keyboard.press("?")
        assert page.evaluate("[help.open, help.scrollTop]") == [True, 0]
        page.context.close()


# ---- a turn that fails


def test_why_there_is_no_answer_is_there_after_a_reload_and_on_other_pages(tmp_path: Path, visit: Visit) -> None:
    with served(store(tmp_path), [ProviderError("the model is asleep"), "Awake."]) as url:
        page = visit(url, "/s/web:k", forgiven="502")
        other = page.context.new_page()
        other.goto(f"{url}/s/web:k")
        write(page, "hello?")
        for one in (page, other):
            one.wait_for_selector("#live [role=alert] >> text=the model is asleep")
            assert one.locator("#live .doing").count() == 1
        page.reload()
        page.wait_for_selector("#live [role=alert] >> text=the model is asleep")
        page.click("#again button")
        page.wait_for_selector("section article >> text=Awake.")
        assert page.locator("[role=alert] >> text=asleep").count() == 0
        page.context.close()


# ---- a tool that asks


def test_a_question_is_answered_by_keys_and_its_buttons_differ(tmp_path: Path, visit: Visit) -> None:
    steps: list[Step] = [Call("wipe", {"path": name}) for name in ("a.txt", "b.txt", "c.txt", "d.txt")]
    with served(store(tmp_path), [*steps, "All."], tools=TOOLS) as url:
        page = visit(url, "/s/web:k")
        write(page, "wipe them")
        page.wait_for_selector(".ask >> text=a.txt")
        look = "one => { const s = getComputedStyle(one); return s.backgroundColor + s.color + s.borderStyle; }"
        assert len({page.locator(f".ask .{one}").evaluate(look) for one in ("yes", "no", "always")}) == 3
        for name, key in (("a.txt", "Alt+n"), ("b.txt", "Alt+y"), ("c.txt", "Alt+a")):
            page.wait_for_selector(f".ask >> text={name}")
            until(page, "getComputedStyle(document.querySelector('.ask button')).pointerEvents !== 'none'")
            page.keyboard.press(key)
        page.wait_for_selector("section article >> text=All.")
        page.context.close()
    with nacre.open(str(tmp_path / "store")) as sessions:
        results = [str(one.content) for one in sessions.get_history("web:k") if one.role == "tool"]
        assert [result.partition(" ")[0] for result in results] == ["wipe", "wiped", "wiped", "wiped"]


# ---- branches


def test_a_message_is_edited_and_both_branches_stay(tmp_path: Path, visit: Visit) -> None:
    with served(store(tmp_path), ["To the first.", "To the second."]) as url:
        page = visit(url, "/s/web:k")
        write(page, "a first try")
        page.wait_for_selector("section article >> text=To the first.")
        page.hover("section article.user >> nth=1")
        page.click(".float.tools >> text=edit")
        until(page, "document.querySelector('#say textarea').value === 'a first try'")
        write(page, "a second try")
        page.wait_for_selector("section article >> text=To the second.")
        until(page, "!document.querySelector('.draft')")
        assert page.locator("article", has_text="To the first.").count() == 0
        assert page.inner_text(".branches span >> nth=0") == "branch 2/2"
        page.keyboard.press("Escape")
        page.keyboard.press("b")
        page.wait_for_selector("section article >> text=To the first.")
        assert page.locator("article", has_text="a second try").count() == 0
        page.context.close()


def test_an_answer_is_given_again_as_another_branch(tmp_path: Path, visit: Visit) -> None:
    with served(store(tmp_path), ["One way.", "Another way.", "A third."]) as url:
        page = visit(url, "/s/web:k")
        write(page, "which?")
        page.wait_for_selector("section article >> text=One way.")
        page.click("#again button")
        page.wait_for_selector("section article >> text=Another way.")
        page.keyboard.press("Escape")
        until(page, "!document.querySelector('#say.busy')")
        page.keyboard.press("R")
        page.wait_for_selector("section article >> text=A third.")
        until(page, "document.querySelector('.branches span')?.textContent === 'branch 3/3'")
        assert page.locator("section article.user", has_text="which?").count() == 1
        page.context.close()
    with nacre.open(str(tmp_path / "store")) as sessions:
        assert [one.content for one in sessions.get_history("web:k")][-2:] == ["which?", "A third."]


# ---- files

DROP = """([name, kind, text]) => {
  const data = new DataTransfer();
  data.items.add(new File([text], name, {type: kind}));
  for (const [target, event] of [[document.body, new DragEvent("dragover", {dataTransfer: data, bubbles: true})],
    [document.body, new DragEvent("drop", {dataTransfer: data, bubbles: true})]]) target.dispatchEvent(event);
}"""
PASTE = """([name, kind, text]) => {
  const data = new DataTransfer();
  data.items.add(new File([text], name, {type: kind}));
  const event = new ClipboardEvent("paste", {clipboardData: data, bubbles: true});
  document.querySelector("#say textarea").dispatchEvent(event);
}"""


def file(name: str, data: bytes) -> Any:
    return {"name": name, "mimeType": "", "buffer": data}


def content_of(root: Path) -> Any:
    with nacre.open(str(root)) as sessions:
        return sessions.get_history("web:k")[-2].content


def test_files_are_attached_by_button_paste_and_drop(tmp_path: Path, visit: Visit) -> None:
    root, picture = store(tmp_path), png(4, 3)
    with served(root, ["Seen.", "Seen again."]) as url:
        page = visit(url, "/s/web:k")
        page.set_input_files("#choose", file("p.png", picture))
        page.wait_for_selector("#files li >> text=p.png")
        page.evaluate(PASTE, ["a.txt", "text/plain", "pasted"])
        page.wait_for_selector("#files li >> text=a.txt")
        page.evaluate(DROP, ["b.txt", "text/plain", "dropped"])
        page.wait_for_selector("#files li >> text=b.txt")
        page.evaluate(DROP, ["c.txt", "text/plain", "not wanted"])
        page.click("[aria-label='Remove c.txt']")
        write(page, "look")
        page.wait_for_selector("section article >> text=Seen.")
        assert page.locator("section .picture img").count() == 1
        assert page.locator("section summary", has_text="b.txt").count() == 1
        assert page.locator("#files li").count() == 0
        page.context.close()
    url_of = "data:image/png;base64," + base64.b64encode(picture).decode()
    assert content_of(root) == [
        {"type": "image_url", "image_url": {"url": url_of}},
        {"type": "text", "text": '<file name="a.txt">\npasted\n</file>'},
        {"type": "text", "text": '<file name="b.txt">\ndropped\n</file>'},
        {"type": "text", "text": "look"},
    ]


def test_a_message_with_files_is_edited_with_them(tmp_path: Path, visit: Visit) -> None:
    root = store(tmp_path)
    with served(root, ["Seen.", "Seen again."]) as url:
        page = visit(url, "/s/web:k")
        page.set_input_files("#choose", file("ä.txt", "über".encode()))
        page.wait_for_selector("#files li")
        write(page, "look")
        page.wait_for_selector("section article >> text=Seen.")
        until(page, "!document.querySelector('#say.busy')")
        page.keyboard.press("Escape")
        page.keyboard.press("u")
        page.wait_for_selector("#files li >> text=ä.txt")
        page.fill("#say textarea", "look again")
        page.keyboard.press("Enter")
        page.wait_for_selector("section article >> text=Seen again.")
        page.context.close()
    assert content_of(root)[0] == {"type": "text", "text": '<file name="ä.txt">\nüber\n</file>'}
    assert content_of(root)[1] == {"type": "text", "text": "look again"}


def test_what_cannot_be_attached_is_refused_at_once_with_the_reason(tmp_path: Path, visit: Visit) -> None:
    with served(store(tmp_path), ["Never."]) as url:
        page = visit(url, "/s/web:k")
        page.fill("#say textarea", "look")
        page.set_input_files("#choose", [file("x.bin", b"\xff\xfe\x00"), file("a.txt", b"good")])
        page.wait_for_selector("#refused >> text=x.bin is neither text nor an image")
        assert page.locator("#files li").all_inner_texts() == ["a.txt\n×"]
        page.evaluate(PASTE, ["long.txt", "", "x" * 400_001])
        page.wait_for_selector("#refused >> text=long.txt has more than 400,000 bytes")
        page.evaluate(DROP, ["x.pdf", "", "%PDF-\udcff\x00" * 100_000])
        page.wait_for_selector("#refused >> text=x.pdf has more than 400,000 bytes")
        page.set_input_files("#choose", [file(f"{at}.txt", b"") for at in range(20)])
        page.wait_for_selector("#refused >> text=19.txt a message has at most 20 files")
        assert page.locator("#files li").count() == 20
        assert page.input_value("#say textarea") == "look"
        page.context.close()


def test_what_the_server_refuses_is_kept_in_the_field(tmp_path: Path, visit: Visit) -> None:
    with served(store(tmp_path), ["Never."]) as url:
        page = visit(url, "/s/web:k", forgiven="400")
        page.set_input_files("#choose", file("a.txt", b"good"))
        page.wait_for_selector("#files li")
        page.route("**/turn/**", lambda route: route.fulfill(status=400, json={"detail": "no room"}))
        write(page, "look")
        page.wait_for_selector("#live [role=alert] >> text=no room")
        assert page.input_value("#say textarea") == "look"
        assert page.locator("#files li").count() == 1
        page.context.close()


def picture(width: int, height: int) -> Any:
    url = f"data:image/png;base64,{base64.b64encode(png(width, height)).decode()}"
    return nacre.Message(role="user", content=[{"type": "image_url", "image_url": {"url": url}}])


def test_a_page_with_pictures_opens_at_its_end_and_stays_there(tmp_path: Path, visit: Visit) -> None:
    root = tmp_path / "store"
    with nacre.open(str(root)) as sessions:
        sessions.add_messages("web:k", [picture(300, 200), picture(2000, 500), picture(200, 900), said("user", "end")])
    with served(root) as url:
        page = visit(url, "/s/web:k")
        page.evaluate("document.querySelectorAll('img').forEach(one => { one.loading = 'eager'; })")
        until(page, "[...document.querySelectorAll('img')].every(one => one.complete && one.naturalWidth)")
        assert page.evaluate("document.documentElement.scrollHeight - scrollY - innerHeight") < 8
        shapes = "[...document.querySelectorAll('img')].map(one => one.clientWidth / one.clientHeight)"
        assert [round(shape, 1) for shape in page.evaluate(shapes)] == [1.5, 4.0, 0.2]
        page.set_input_files("#choose", [file(f"{at}-{'long' * 20}.txt", b"") for at in range(2)])
        page.wait_for_selector("#files li >> nth=1")
        until(page, "document.documentElement.scrollHeight - scrollY - innerHeight < 8")
        page.context.close()


# ---- times, directions, titles


def test_times_are_the_reader_s_own(tmp_path: Path, visit: Visit) -> None:
    root = tmp_path / "store"
    with nacre.open(str(root)) as sessions:
        message = nacre.Message(
            role="user",
            content="hi",
            created=nacre.Message.from_mapping(
                {"role": "user", "content": "x", "created": "2024-03-10T23:30:00Z"}
            ).created,
        )
        sessions.add_full_message("web:k", message)
        sessions.add_message("web:k", "assistant", "hello")
    with served(root) as url:
        page = visit(url, "/s/web:k", timezone_id="Asia/Tokyo", locale="en-GB")
        first = page.locator("article time").first
        assert first.inner_text() == "11 Mar 2024, 08:30"
        assert re.match("Monday.* 11 March 2024 .*08:30:00", first.get_attribute("title") or "")
        with nacre.open(str(root)) as other:
            other.add_message("web:k", "user", "now")
        page.wait_for_selector("section article >> text=now")
        assert re.fullmatch(r"\d\d:\d\d", page.locator("article time").last.inner_text())
        page.context.close()


def test_text_of_people_runs_in_its_own_direction(tmp_path: Path, visit: Visit) -> None:
    root = tmp_path / "store"
    with nacre.open(str(root)) as sessions:
        sessions.add_messages("web:k", [said("user", "שלום hello"), said("assistant", "Fine.\n\n- אחת\n- שתיים")])
        sessions.set_meta("web:k", title="שיחה")
    with served(root) as url:
        page = visit(url, "/s/web:k")
        direction = "one => getComputedStyle(one).direction"
        for place in ("article.user .said", "article.assistant ul", "h1", "#recent a[aria-current]"):
            assert page.locator(place).evaluate(direction) == "rtl", place
        assert page.locator("article.assistant .said").evaluate(direction) == "ltr"
        page.fill("#say textarea", "שלום")
        assert page.locator("#say textarea").evaluate(direction) == "rtl"
        page.context.close()


def test_a_session_gets_a_title_of_its_first_words_and_then_of_the_model(tmp_path: Path, visit: Visit) -> None:
    settings = {"agent": {"titles": True}}
    with served(tmp_path / "store", ["Mind the gap.", "Trains of London"], settings=settings) as url:
        page = visit(url, "/new")
        write(page, "How do I get to Paddington?")
        until(page, "document.querySelector('h1').textContent === 'Trains of London'")
        page.wait_for_selector("#recent a[aria-current] >> text=Trains of London")
        assert page.title() == "Trains of London · nacre"
        page.wait_for_selector("header .menu")
        page.wait_for_selector("#again button")
        page.context.close()
