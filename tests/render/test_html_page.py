"""The one-file page: whole, closed to the outside, and built piece by piece."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterator
from html.parser import HTMLParser

from nacre.messages import Stored
from nacre.render.conversation import Cover, Cut, parts
from nacre.render.html_page import page, policy
from tests.render.talk import NOW, call, listing, long, stored


def built(*messages: object, **options: object) -> str:
    cover = Cover(key="k", title="<Title>", created=NOW, messages=len(messages))
    return "".join(page(cover, parts(messages, **options)))  # type: ignore[arg-type]


class Ids(HTMLParser):
    """What can be linked to, and every tag."""

    def __init__(self) -> None:
        super().__init__()
        self.ids: list[str | None] = []
        self.tags: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.ids += [value for name, value in attrs if name == "id"]


def parsed(text: str) -> Ids:
    found = Ids()
    found.feed(text)
    return found


def test_a_message_is_found_under_its_number() -> None:
    text = built(*listing())
    assert '<article id="2" class="user"><h2><b>user</b> <a href="#2">#2</a>' in text
    assert "<p>what is <strong>here</strong>?</p></article>" in text


def test_a_call_is_folded_and_its_result_has_its_own_number() -> None:
    text = built(*listing())
    assert '<details id="4"><summary><b>list_files</b>(path=&quot;.&quot;) <i>→</i> a.py <i>9 B</i></summary>' in text
    assert "<pre>a.py\nb.py</pre></details>" in text


def test_numbers_of_all_generations_differ() -> None:
    old = stored(2, "user", "a", generation="o")
    found = parsed(built(old, *listing(), live={2, 3, 4, 5}, newest="g"))
    assert found.ids == ["1.2", "2", "3", "4", "5", "end"]


def test_what_is_no_longer_live_is_marked_and_the_summary_stands_at_the_cut() -> None:
    text = built(*listing(), live={5}, newest="g", cut=Cut(summary="**Looked**", hidden=1_234))
    assert text.count(' gone">') == 2
    assert "<h2><b>summary</b> · 1,234 messages before it</h2><p><strong>Looked</strong></p></article>" in text


def test_the_policy_allows_the_pages_own_style_and_script_and_nothing_else() -> None:
    text = built(*listing())
    assert f'content="{policy()}"' in text
    for tag, rule in (("style", "style-src"), ("script", "script-src")):
        (inner,) = re.findall(f"<{tag}>(.*?)</{tag}>", text, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(inner.encode()).digest()).decode()
        assert f"{rule} 'sha256-{digest}'" in policy()
    assert policy().startswith("default-src 'none';")


def test_nothing_is_loaded_from_anywhere() -> None:
    text = built(*listing())
    assert not re.search(r"\bsrc=|url\(|@import|<link|https?://", text)


def test_hostile_messages_add_no_tag() -> None:
    evil = "</pre></details></article><script>alert(1)</script><img src=x onerror=alert(1)>\x1b[2J\u202e"
    calls = (call(evil, evil, {evil: evil}), call("b", "b", evil))
    text = built(
        stored(2, evil, evil, name=evil, model=evil, reasoning=evil, media=[evil]),
        stored(3, "assistant", [{"type": evil, "u": evil}], tool_calls=calls),
        stored(4, "tool", evil, tool_call_id=evil),
        stored(5, "tool", evil, tool_call_id="x"),
        cut=Cut(summary=evil),
    )
    tags = parsed(text).tags
    assert tags.count("script") == 1
    assert "img" not in tags
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e]", text)


def test_a_hundred_thousand_messages_are_never_held_at_once() -> None:
    taken = 0

    def counted() -> Iterator[Stored]:
        nonlocal taken
        for one in long(100_000):
            taken += 1
            yield one

    size = 0
    for place, piece in enumerate(page(Cover(key="k"), parts(counted()))):
        size += len(piece)
        assert taken <= place + 2
    assert taken == 100_000
    assert size > 15_000_000
