"""A web page as text: nothing that a reader cannot see, and all that they can, with lists and code."""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import count

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nacre.errors import ToolError
from nacre.tools.web.page_text import readable
from tests.growth import assert_linear


def text(html: str) -> str:
    return readable(html, url="http://h/")[1]


HIDING = [
    "hidden",
    "hidden=until-found",
    "HIDDEN=''",
    "aria-hidden=true",
    "aria-hidden='TRUE '",
    "style='display:none'",
    "style='color:red; DISPLAY : none !important'",
    "style='display:/* a */none'",
    "style='displ\\61y:none'",
    "style='content-visibility:hidden'",
    "style='opacity:0'",
    "style='opacity:0.0'",
    "style='opacity:0%'",
    "style='font-size:0'",
    "style='font-size:0px'",
    "style='font-size:.5px'",
    "style='visibility:hidden'",
    "style='visibility:collapse'",
    "style='color:transparent'",
    "style='color:rgba(1,2,3,0)'",
    "style='color:rgb(1 2 3 / 0%)'",
    "style='position:absolute;left:-9999px'",
    "style='position:fixed; top: -1000em'",
    "style='text-indent:-9999px'",
    "style='margin-left:-99999px'",
    "style='position:absolute;clip:rect(0 0 0 0)'",
    "style='clip:rect(1px, 1px, 1px, 1px)'",
    "style='clip-path:inset(50%)'",
    "style='clip-path: inset(100%)'",
    "style='height:0;overflow:hidden'",
    "style='width:1px;height:1px;overflow:hidden'",
    "style='max-height:0px;overflow:hidden'",
    "style='transform:scale(0)'",
    "style='transform:translateX(-9999px)'",
    "style='transform:rotate(1deg) scale3d(0, 0, 0)'",
    "style='transform:matrix(0,0,0,0,0,0)'",
    "style='transform:translateX(9999px)'",
    "style='scale:0'",
    "style='translate:-100vw'",
    "style='zoom:.001'",
    "style='opacity:1e-9'",
    "style='opacity:calc(0)'",
    "style='filter:blur(1px) opacity(0)'",
    "style='-webkit-text-fill-color:transparent;color:red'",
    "style='color:#1230'",
    "style='color:#11223300'",
    "style='color:color(srgb 1 1 1/0)'",
    "style='font:italic 0/1 serif'",
    "style='font-size:.01em'",
    "style='font-size:1%'",
    "style='font-size:.001rem'",
    "style='position:absolute;left:-100vw'",
    "style='position:absolute;left:9999px'",
    "style='position:absolute;inset:0 0 0 -9999px'",
    "style='margin:-9999px'",
    "style='margin:0 -9999px'",
    "style='height:0;overflow-y:auto'",
    "style='display:none!important;display:block'",
    "style='display:none ! important'",
    "style='display:none;display:nonsense'",
    "popover",
    "class=layer",
    "class=screen",
    "class='gone'",
    "class='a gone b'",
    "id=away",
    "class='two parts'",
]
SHOWING = [
    "",
    "class=seen",
    "class=two",
    "aria-hidden=false",
    "style='display:block'",
    "style='opacity:.9'",
    "style='font-size:12px'",
    "style='color:rgb(0,0,0)'",
    "style='color:#000'",
    "style='color:rgba(0,0,0,.5)'",
    "style='position:absolute;left:-10px'",
    "style='left:-9999px'",
    "style='overflow:hidden;height:100px'",
    "style='text-indent:-2em'",
    "style='visibility:visible'",
    "style='transform:translateX(-10px)'",
    "style='transform:matrix(0,1,-1,0,0,0)'",
    "style='color:#123'",
    "style='color:#1234'",
    "style='color:#112233f0'",
    "style='font:12px serif'",
    "style='font:bold'",
    "style='font-size:.8em'",
    "style='margin:'",
    "style='margin:1em auto'",
    "style='width:1em;overflow:hidden'",
    "style='display:none;display:inline-block'",
    "class=paper",
]
SHEET = (
    "<style>@media print{.seen{display:none}} @import 'x'; .gone{display:none}"
    " /* .seen{display:none} */ #away , .other {visibility:hidden} .two.parts , p.nothing {display:none}"
    " .no .seen{display:none} .seen{display:none} .seen{display:inline}"
    " @layer a{@media screen{.layer{display:none}}} @media Only Screen {.screen{display:none}}</style>"
    "<style media='print'>.paper{display:none}</style>"
)


@pytest.mark.parametrize("attribute", HIDING)
def test_what_is_hidden_is_not_read(attribute: str) -> None:
    assert text(f"{SHEET}<p>a<span {attribute}>SECRET <b>SECRET</b></span> b") == "a b"


@pytest.mark.parametrize("attribute", SHOWING)
def test_what_is_shown_is_read(attribute: str) -> None:
    assert text(f"{SHEET}<p>a <span {attribute}>seen</span> b") == "a seen b"


@pytest.mark.parametrize(
    ("html", "said"),
    [
        ("<div style='visibility:hidden'>NO<p style='visibility:visible'>yes</div>", "yes"),
        ("<div style='font-size:0'>NO<b style='font-size:1rem'>yes</b><b style='font-size:2em'>NO</b></div>", "yes"),
        ("<div style='color:transparent'>NO<b style='color:red'>yes</b></div>", "yes"),
        ("<div style='display:none'>NO<b style='display:block'>NO</b></div>yes", "yes"),
        ("<p hidden>NO<p>yes", "yes"),
        ("<ul><li hidden>NO<li>yes</ul>", "- yes"),
        ("<table><tr hidden><td>NO<tr><td>yes<td hidden>NO<td>too</table>", "yes | too"),
        ("<dl><dt hidden>NO<dd>yes</dl>", "yes"),
        ("<div hidden><div>NO</div>NO</div>yes", "yes"),
        ("<b><div hidden>NO</b>NO</div>yes", "yes"),
        ("<div hidden><table><tr><td></div>NO</table></div>yes", "yes"),
        ("<div hidden>NO</body></html>NO", ""),
        ("<input hidden>yes<br hidden>too", "yestoo"),
        ("<template>NO</template><noscript>NO</noscript><dialog>NO</dialog>yes<dialog open>!</dialog>", "yes\n\n!"),
        ("<video>NO</video><canvas>NO</canvas><object>NO</object><iframe>NO</iframe>yes", "yes"),
        ("<!-- NO -->yes<!-- NO", "yes"),
        ("yes<!NO", "yes"),
        ("yes<p title='NO", "yes"),
        ("yes<script>NO", "yes"),
        ("<img alt=NO hidden><img alt=NO width=1 height=1><img alt=yes width=10>", "[image: yes]"),
        ("<head><title>t</title><p>yes", "yes"),
        ("<head><meta charset=x>yes", "yes"),
        ("<body style='opacity:0'>yes", "yes"),
        ("<a hidden href=/x>NO</a><a href=/y>yes</a>", "[yes](http://h/y)"),
        ("<span aria-hidden=true>NO</span><math><mi>x</mi><annotation>NO</annotation></math>", "x"),
    ],
)
def test_only_what_is_seen_is_read(html: str, said: str) -> None:
    assert text(html) == said


@pytest.mark.parametrize(
    ("html", "said"),
    [
        ("<pre><code class='hljs language-python'>a = 1\n  b\n</code></pre>", "```python\na = 1\n  b\n```"),
        ("<pre class='lang-c++'>x</pre>", "```c++\nx\n```"),
        ("<div class='highlight highlight-source-shell'><pre>ls</pre></div>", "```shell\nls\n```"),
        ("<div class='highlight-rust notranslate'><div class=highlight><pre>fn</pre></div></div>", "```rust\nfn\n```"),
        ("<div class=highlight-wrapper><pre>x</pre></div>", "```\nx\n```"),
        ("<pre data-lang=go>x</pre>", "```go\nx\n```"),
        ("<pre>\n\n  <b>x</b> <a href=/y>y</a></pre>", "```\n\n  x y\n```"),
        ("<pre>a<br>b<div>c</div><div>d</div></pre>", "```\na\nb\nc\nd\n```"),
        ("<pre>```\nx\n```</pre>", "````\n```\nx\n```\n````"),
        ("<pre>x<span hidden>NO</span></pre>", "```\nx\n```"),
        ("<pre> </pre>a", "a"),
        ("say <code>x  y</code>, <code>a`b</code>.", "say `x y`, `` a`b ``."),
        ("<a href=/x><code>f()</code></a>", "[`f()`](http://h/x)"),
        ("<ol><li>a<li>b<li value=7>c<li>d</ol>", "1. a\n2. b\n7. c\n8. d"),
        ("<ol start=9><li>a<li>b</ol>", "9. a\n10. b"),
        ("<ol><li>a<ul><li>b<li>c</ul><li>d</ol>", "1. a\n   - b\n   - c\n2. d"),
        ("<ol start=10><li>a<ol><li>b</ol></ol>", "10. a\n    1. b"),
        ("<ul><li><p>a</p><p>b</p><li>c</ul>d", "- a\n  b\n- c\n\nd"),
        ("<ol><li>a<pre>x\ny</pre><li>b</ol>", "1. a\n\n   ```\n   x\n   y\n   ```\n\n2. b"),
        ("<ul><li></li><li>a</ul>", "- a"),
        ("<ol><li hidden>NO<li>a</ol>", "1. a"),
        ("<ul><li><a href=/x>a</a></ul>", "- [a](http://h/x)"),
        ("<h2><a href=/x>a</a></h2>", "## [a](http://h/x)"),
        ("<a href=/x>a<a href=/y>b</a>", "[a](http://h/x)[b](http://h/y)"),
        ("<table><tr><td>a<td><td>c</table>", "a |  | c"),
    ],
)
def test_code_lists_and_links_keep_their_form(html: str, said: str) -> None:
    assert text(html) == said


# ---- generated pages

Node = tuple[str, str, list["Node"]]
TAGS = ["div", "p", "span", "b", "section", "li", "td", "pre"]
AROUND: dict[str, Callable[[str], str]] = {
    "li": lambda html: f"<ol>{html}</ol>",
    "td": lambda html: f"<table><tr>{html}</table>",
}
INLINE = {"p", "span", "b", "pre"}


# What is inherited could be turned back inside.
FIRM = [one for one in HIDING if not re.search(r" ?visibility:|font-size|color:(?!red)|away", one)]


def nodes() -> st.SearchStrategy[Node]:
    attributes = st.one_of(st.sampled_from(FIRM), st.sampled_from(SHOWING), st.sampled_from(["<!--", "<template>"]))
    leaf: st.SearchStrategy[Node] = st.tuples(st.sampled_from(TAGS), attributes, st.just([]))
    return st.recursive(leaf, lambda inner: st.tuples(st.sampled_from(TAGS), attributes, st.lists(inner, max_size=3)))


class Page:
    """A page made of nodes, with a word of its own in each, and which of the words can be seen."""

    def __init__(self) -> None:
        self._numbers = count()
        self.seen: list[str] = []
        self.hidden: list[str] = []

    def html(self, node: Node, *, is_seen: bool = True, inline: bool = False) -> str:
        tag, attribute, inner = node
        tag = "span" if inline else tag
        is_seen = is_seen and attribute in SHOWING
        word = f"w{next(self._numbers)}w"
        (self.seen if is_seen else self.hidden).append(word)
        if attribute == "<!--":
            return f"<!-- {word} -->"
        children = "".join(self.html(one, is_seen=is_seen, inline=inline or tag in INLINE) for one in inner)
        if attribute == "<template>":
            return f"<template>{word} {children}</template>"
        end = "" if tag in {"li", "td"} else f"</{tag}>"
        return AROUND.get(tag, str)(f"<{tag} {attribute}>{word} {children}{end}")


@given(roots=st.lists(nodes(), min_size=1, max_size=6))
@settings(deadline=None, max_examples=100, suppress_health_check=list(HealthCheck))
def test_of_any_page_what_is_seen_is_read_and_nothing_else(roots: list[Node]) -> None:
    page = Page()
    html = SHEET + "".join(map(page.html, roots))
    words = re.findall(r"w\d+w", text(html))
    assert words == page.seen
    assert not set(words) & set(page.hidden)


@given(html=st.text(alphabet="<>/!-= abpdilo'\"\n&#;", max_size=300))
@settings(deadline=None, max_examples=200, suppress_health_check=list(HealthCheck))
def test_no_page_breaks_it(html: str) -> None:
    text(f"<ol><li><pre>{html}")
    text(f"<p style='{html}'>{html}<style>{html}</style>")


@pytest.mark.parametrize(
    "part",
    ["<b>", "<a>x", "<div>", "<table><td><b>", "</i>", "<i></b>", "<li>", "<ol><li>x", "<pre>`", "<p hidden>x", ".a{}"],
)
def test_no_page_takes_long(part: str) -> None:
    assert_linear(lambda parts: text(f"<style>{parts}</style><i><div><table><td>{parts}</div>"), part * 20_000)


@pytest.mark.parametrize(
    ("name", "part"),
    [
        ("transform", "translate("),
        ("transform", "translate(-"),
        ("transform", "scale(0"),
        ("transform", "0"),
        ("transform", "scale(0)"),
        ("color", "0"),
        ("color", "rgba(0,0,0,0"),
        ("color", "rgb(/"),
        ("clip", "rect(0 "),
        ("clip-path", "inset(5"),
        ("filter", "opacity("),
        ("font", "0 "),
        ("margin", "0 "),
        ("left", "9"),
        ("display", "ruby-"),
        ("display", "inline "),
        ("width", "0;overflow:hidden;width:"),
    ],
)
def test_no_style_takes_long(name: str, part: str) -> None:
    """The whole process waits for a pattern: one that takes the square of a text stops everybody."""
    assert_linear(lambda parts: text(f"<p style='{name}:{parts}'>x"), part * (200_000 // len(part)))
    assert_linear(lambda parts: text(f"<p style='{name}:rgba(0,0,0,{parts}x'>x"), part * (200_000 // len(part)))


@pytest.mark.parametrize("part", ["}", "{", "@layer{", "@media screen{", ".a,", "a:b;"])
def test_no_style_sheet_takes_long(part: str) -> None:
    assert_linear(lambda parts: text(f"<style>{parts}</style><p>x"), part * (100_000 // len(part)))


def test_many_declarations_for_many_selectors_do_not_take_long() -> None:
    def read(parts: str) -> str:
        names = range(len(parts))
        selectors, block = ",".join(f".a{one}" for one in names), ";".join(f"p{one}:1;left:{one}" for one in names)
        return text(f"<style>{selectors}{{{block}}}</style><p>x")

    assert_linear(read, "x" * 8_000)


def test_of_rules_for_one_element_the_last_decides_whatever_is_said_twice() -> None:
    page = (
        "<style>.a{display:block} .a.b{display:none} .a{color:red}</style><p class='a b'>unseen</p><p class=a>seen</p>"
    )
    assert text(page) == "seen"


def test_style_sheets_that_cannot_be_weighed_in_time_are_an_error() -> None:
    rules = "".join(f"p.a{{margin:{number}px}}" for number in range(3_000))
    with pytest.raises(ToolError, match="too large"):
        text(f"<style>{rules}</style>" + "<p class=a>x</p>" * 2_000)


@pytest.mark.parametrize("part", ["<style>", "<style", "<style>a{", "</style"])
def test_style_sheets_that_are_not_ended_do_not_take_long(part: str) -> None:
    assert_linear(text, part * 16_000)
