"""Markdown as HTML: what comes out, and that nothing else ever does."""

from __future__ import annotations

from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as some

from nacre.render.html import html

TAGS = {"p", "br", "strong", "em", "del", "code", "pre", "a", "span", "ul", "ol", "li", "blockquote", "hr"}
TAGS |= {"div", "table", "tr", "th", "td", "h3", "h4", "h5", "h6"}
ATTRIBUTES = {"href", "rel", "class", "start", "data-language", "dir", "tabindex", "role", "aria-label"}

TASK = '<li class="task"><span class="box" role="img" aria-label="{}">{}</span> <p>{}</p></li>'
TABLE = '<div class="table" tabindex="0"><table>'
ROW = '<tr><td class="right">c</td><td class="center"></td></tr>'
CODE = (
    '<pre tabindex="0" data-language="python"><code><span class="fg5">def</span> <span class="fg4">f</span>():\n    '
    '<span class="fg5">return</span> <span class="fg2">&#39;&lt;b&gt;&#39;</span></code></pre>'
)


class Strict(HTMLParser):
    """Refuses every tag and attribute that is not ours, and tags that do not nest."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.hrefs: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag in TAGS
        assert {name for name, _ in attrs} <= ATTRIBUTES
        self.hrefs += [value or "" for name, value in attrs if name == "href"]
        if tag not in {"br", "hr"}:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_comment(self, data: str) -> None:
        raise AssertionError(data)


def checked(text: str) -> Strict:
    found = Strict()
    found.feed(html(text))
    found.close()
    assert not found.open
    return found


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a **b** `c`", "<p>a <strong>b</strong> <code>c</code></p>"),
        ("one\ntwo", "<p>one<br>\ntwo</p>"),
        ("# A", "<h3>A</h3>"),
        ("- a\n- b", '<ul dir="auto"><li><p>a</p></li><li><p>b</p></li></ul>'),
        ("3. a", '<ol start="3" dir="auto"><li><p>a</p></li></ol>'),
        ("> a", "<blockquote><p>a</p></blockquote>"),
        ("```py\n<b>\n```", '<pre tabindex="0" data-language="py"><code>&lt;b&gt;</code></pre>'),
        (
            "|a|\n|-|\n|b|",
            '<div class="table" tabindex="0"><table><tr><th>a</th></tr><tr><td>b</td></tr></table></div>',
        ),
        (
            "|a|b|\n|-:|:-:|\n|c|",
            f'{TABLE}<tr><th class="right">a</th><th class="center">b</th></tr>{ROW}</table></div>',
        ),
        ("---", "<hr>"),
        ("A\n---", "<h4>A</h4>"),
        ("<mailto:a@x.org>", '<p><a href="mailto:a@x.org" rel="noopener noreferrer nofollow">mailto:a@x.org</a></p>'),
        (
            "- [x] a\n- [ ] b",
            f'<ul dir="auto">{TASK.format("done", "☑", "a")}{TASK.format("to do", "☐", "b")}</ul>',
        ),
        (
            "```python\ndef f():\n    return '<b>'\n```",
            CODE,
        ),
        ("```nothing\nif x\n```", '<pre tabindex="0" data-language="nothing"><code>if x</code></pre>'),
        ("https://x.org", '<p><a href="https://x.org" rel="noopener noreferrer nofollow">https://x.org</a></p>'),
    ],
)
def test_markdown_becomes_html(text: str, expected: str) -> None:
    assert html(text) == expected


def test_a_formula_of_several_lines_is_set_apart() -> None:
    assert html("$$\na_1 < b\n$$") == '<pre tabindex="0"><code>$$\na_1 &lt; b\n$$</code></pre>'


def test_that_an_answer_was_stopped_stands_outside_of_its_code() -> None:
    drawn = html("So:\n\n```\nx = 1\n\n[stopped by the user]")
    assert drawn == '<p>So:</p><pre tabindex="0"><code>x = 1</code></pre><p>[stopped by the user]</p>'


def test_a_link_shows_where_it_leads() -> None:
    assert html("[a](https://x.org)").endswith('>a</a> <span class="address">(https://x.org)</span></p>')


def test_a_link_is_one_whatever_is_in_its_label() -> None:
    assert html("[a **b**](https://x.org)") == (
        '<p><a href="https://x.org" rel="noopener noreferrer nofollow">a <strong>b</strong></a>'
        ' <span class="address">(https://x.org)</span></p>'
    )


def test_a_link_by_label_leads_to_its_definition_which_stays_in_sight() -> None:
    assert html("[a][1]\n\n[1]: https://x.org") == (
        '<p><a href="https://x.org" rel="noopener noreferrer nofollow">a</a>'
        ' <span class="address">(https://x.org)</span></p>'
        '<p>[1]: <a href="https://x.org" rel="noopener noreferrer nofollow">https://x.org</a></p>'
    )


@pytest.mark.parametrize(
    "text",
    [
        "<script>alert(1)</script>",
        "[x][1]\n\n[1]: javascript:alert(1)",
        "[x](javascript&colon;alert(1)) [x](&#106;avascript:alert(1)) [x](java&Tab;script:alert(1))",
        "[x](<javascript:alert(1)>) [x](https://x.org/&quot;&gt;&lt;script&gt;)",
        "&lt;img src=x onerror=alert(1)&gt; [&lt;b&gt;](https://x.org)",
        '[1]: https://x.org "<script>"\n\n[1]',
        "Title <script>\n=====",
        "    <script>alert(1)</script>",
        "<img src=x onerror=alert(1)>",
        "[x](javascript:alert(1))",
        "[x](JAVASCRIPT:alert(1))",
        "[x](data:text/html;base64,PHNjcmlwdD4=)",
        '[x](https://a"onmouseover="alert(1))',
        "<javascript:alert(1)>",
        '```"><script>alert(1)</script>\nx\n```',
        "|<script>|\n|-|\n|<img onerror=x>|",
        "# <svg onload=alert(1)>",
        "- <iframe src=//evil>",
        "[<script>](https://x.org/<script>)",
        "&lt;script&gt; &#60;script&#62;",
        "<!-- --><style>*{}</style>",
        "\u202e<b>\x1b[31m",
    ],
)
def test_hostile_text_stays_text(text: str) -> None:
    found = checked(text)
    assert all(href.startswith(("http://", "https://", "mailto:")) for href in found.hrefs)


@given(some.text(alphabet="<>&;\"'`*_~[]()|-=#>\n\\ a1:/.!@httpsjavascript\x1b\u202e", max_size=200))
def test_no_text_makes_any_tag_but_ours(text: str) -> None:
    found = checked(text)
    assert all(href.startswith(("http://", "https://", "mailto:")) for href in found.hrefs)
