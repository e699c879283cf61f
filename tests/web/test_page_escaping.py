"""Whatever a session, a query or a model server says, no tag and no attribute of a page comes from it.

Every text that gets into a page is hostile here: a place that forgets to escape one shows the tag or the attribute.
"""

from __future__ import annotations

from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import quote

import anyio
import pytest

import nacre
from nacre.config import Settings
from nacre.history.transcript import FAILED
from nacre.messages import Message, ToolCall
from nacre.providers.scripted import Scripted
from nacre.render.changes import patch_html
from nacre.runtime import App
from nacre.sessions import Sessions
from nacre.web.pages import urls
from nacre.web.pages.forms import model_form
from nacre.web.pages.turn_view import Question, question_html
from tests.everyday.model import Model
from tests.web.browser.site import called, got, posted, returned, said

EVIL = "<evil>\" evil=\"1\" ' evil='1' </title></pre><evil>"
KEY, LINK = f"web:{EVIL}", quote(f"web:{EVIL}", safe="")


class Tags(HTMLParser):
    """Every tag and every attribute, by its name."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.names: set[str] = set()
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names |= {tag, *(name for name, _ in attrs)}


def assert_escaped(html: str) -> None:
    assert "&lt;evil&gt;" in html, "the text is not on the page, so nothing is tested"
    assert not {name for name in Tags(html).names if "evil" in name}


def content() -> list[Any]:
    data = "data:text/plain;base64,eHg="
    return [
        {"type": "text", "text": EVIL},
        {"type": "text", "text": f'<file name="{EVIL.replace(chr(34), "")}">\n{EVIL}\n</file>'},
        {"type": "file", "file": {"filename": EVIL, "file_data": data}},
        {"type": "file", "file": {"file_data": data.replace("text/plain", f"text/{EVIL}")}},
        {"type": EVIL, "url": f"https://x.org/{EVIL}"},
        {"type": EVIL},
    ]


@pytest.fixture(scope="module")
def sessions(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sessions]:
    room: Path = tmp_path_factory.mktemp("store")
    with pytest.MonkeyPatch.context() as patch, nacre.open(str(room / "store")) as found:
        patch.setenv("XDG_CACHE_HOME", str(room / "cache"))
        for key in (KEY, f"{KEY} 2"):
            found.add_full_message(key, Message(role="user", content=content(), name=EVIL))
            found.add_messages(key, [said("assistant", EVIL, reasoning=EVIL, model=EVIL)])
            found.add_messages(key, [called("a", EVIL, command=EVIL, path=EVIL), returned("a", EVIL, EVIL)])
            found.add_messages(key, [called("b", "edit_file", path=EVIL, old_text=EVIL, new_text=f"{EVIL}\n{EVIL}")])
            found.add_messages(key, [returned("b", "edit_file", f"@@ {EVIL} @@\n {EVIL}\n+{EVIL}", failed=True)])
            found.add_messages(key, [returned("none", EVIL, EVIL), Message(role=EVIL, content=EVIL)])
            found.set_meta(key, title=EVIL, tags=[EVIL], model=EVIL, cwd=f"/{EVIL}", chosen_model=EVIL)
        found.set_summary(KEY, EVIL, upto=2)
        yield found


@pytest.mark.parametrize(
    "path",
    [
        "/",
        f"/?text={quote(EVIL)}&tag={quote(EVIL)}&folder={quote(EVIL)}&model={quote(EVIL)}&channel={quote(EVIL)}",
        f"/?tag={quote(EVIL)}",
        f"/?prefix={quote(EVIL)}&state={quote(EVIL)}&archived=1&page=2",
        f"/search?q={quote(EVIL)}",
        "/search?q=evil",
        f"/search?q=evil&in={quote(KEY)}&role={quote(EVIL)}",
        f"/side?text={quote(EVIL)}&here={LINK}",
        f"/side?text={quote(EVIL)}nowhere",
        f"/s/{LINK}",
        f"/s/{LINK}?all=1",
        f"/s/{LINK}?q={quote(EVIL)}",
        f"/s/{LINK}?q=evil",
        f"/use/{LINK}",
    ],
)
def test_no_text_makes_a_tag_or_an_attribute_of_a_page(sessions: Sessions, path: str) -> None:
    assert_escaped(got(sessions, path))


@pytest.mark.parametrize("path", [f"/s/{LINK}x", f"/s/{LINK}?g={quote(EVIL)}", f"/use/{LINK}x"])
def test_a_page_that_is_not_there_repeats_nothing_as_it_is(sessions: Sessions, path: str) -> None:
    assert not {name for name in Tags(got(sessions, path, status=404)).names if "evil" in name}


def test_why_there_was_no_answer_is_escaped(sessions: Sessions) -> None:
    sessions.add_messages("failed", [said("user", "hi")])
    sessions.append("failed", FAILED, {"after": list(sessions.records("failed", "msg"))[-1].n, "reason": EVIL})
    assert_escaped(got(sessions, "/s/failed"))


def test_why_a_form_is_refused_repeats_nothing_as_it_is(sessions: Sessions) -> None:
    answer = posted(sessions, f"/do/model/{LINK}", model=EVIL)
    assert answer.is_error
    assert not {name for name in Tags(answer.text).names if "evil" in name}


def test_a_patch_is_escaped() -> None:
    html = patch_html(f"--- {EVIL}\n@@ {EVIL} @@\n {EVIL}\n+{EVIL}\n-{EVIL}")
    assert html.count("&lt;evil&gt;") == 10
    assert_escaped(html)


def test_a_question_about_a_call_is_escaped() -> None:
    urls.mount("", "")
    call = ToolCall(id=EVIL, name=EVIL, arguments={"path": EVIL, "command": EVIL, EVIL: EVIL})
    question = Question(text=EVIL, id=EVIL, key=KEY, call=call, effect="write", wider=EVIL)
    assert_escaped(question_html(question))


def test_the_names_of_models_are_escaped(sessions: Sessions) -> None:
    async def offered() -> str:
        app = App(Settings({"ollama": {"host": model.host}}, {}), sessions, Scripted(()))
        urls.mount("", "")
        return await model_form(app, KEY, EVIL)

    with Model(models={EVIL: 8192}) as model:
        assert_escaped(anyio.run(offered))
