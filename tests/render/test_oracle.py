"""Markdown beside markdown-it-py, which follows CommonMark: the same text must mean the same to both."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from urllib.parse import unquote

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from nacre.render.html import html

# Ends of lines are kept, as chats do, and HTML is shown as text.
OTHER = MarkdownIt("commonmark", {"breaks": True, "html": False}).enable(["table", "strikethrough"])
BLOCKS = {
    "p",
    "pre",
    "hr",
    "ul",
    "ol",
    "li",
    "blockquote",
    "table",
    "tr",
    "th",
    "td",
    "h1",
    "h2",
    "h3",
    "h4",
    "h5",
    "h6",
}
INLINE = {"strong": "strong", "em": "em", "s": "del", "del": "del", "code": "code"}
SIDE = re.compile(r"left|right|center")

SAME = {
    "paragraphs": "one\n\ntwo",
    "lines of a paragraph": "one\ntwo  \nthree\\\nfour",
    "headings": "# One\n\n## Two ##\n\n###### Six\n\n####### Seven\n\n#none\n\n###",
    "setext headings": "One\n===\n\nTwo\n---\n\nof two\nlines\n-",
    "rules": "---\n\n* * *\n\n___\n\n--",
    "a rule ends a paragraph": "text\n***\ntext",
    "fenced code": "```python\nx = '<b>' & 1\n\n  y\n```\n\n~~~\n```\n~~~",
    "a fence in a paragraph": "text\n```\ncode\n```\ntext",
    "an indented fence": "  ```\n  a\n    b\n  ```",
    "a fence that stays open": "```\na\n\nb",
    "indented code": "text\n\n    a\n\n      b\n\ntext\n    no code",
    "tabs in code": "```\n\ta\n```\n\n\tb",
    "emphasis": "*a* _b_ **c** __d__ ***e*** **f *g* h** *i **j** k* **a *b***",
    "emphasis that does not match": "*a **b* 2 * 3 * 4 a** b ** c",
    "emphasis in words": "snake_case_name un*frigging*believable __init__.py _a_b_",
    "emphasis beside punctuation": '*(*a*)* "**b**" **"c"**, a*"b"*c',
    "emphasis of different lengths": "***a** b* **a*b*c** *a**b**c* ****a**** **a*",
    "struck text": "~~a **b**~~ ~c~ a~~b~~",
    "code spans": "`a` ``b ` c`` ` d ` `**e**` `f",
    "code binds tighter": "*a `b* c` [d `e](f)` g",
    "escapes": "\\*a\\* \\# \\` \\_ \\| \\a \\\\",
    "entities": "&copy; &amp; &lt;b&gt; &#35; &#x22; &nbsp;x &unknown; &#0; `&amp;`",
    "no entity is a mark": "&#42;a&#42; &#91;a](b)",
    "entities in code and links": "```\n&amp;\n```\n[a](https://x.org/?a=1&amp;b=2)",
    "links": '[a](https://x.org) [b](https://x.org "title") [c](<https://x.org/a b>) [d](https://x.org/y_(z))',
    "emphasis in links": "[a **b *c*** `d`](https://x.org) **[e](https://x.org/2)** *[f](https://x.org/3)",
    "brackets in links": "[a [b] c](https://x.org) [a \\] b](https://x.org) [not a link] [a](b",
    "links in links": "[a [b](https://x.org/1) c](d)",
    "autolinks": "<https://x.org/?a=b> <mailto:a@x.org> <a.b@x.org> <not a link>",
    "HTML": '<b>a</b> <script>alert(1)</script>\n\n<div>\n*b*\n</div>\n\n<!-- c --> <img src="x">',
    "quotes": "> a\n> b\n>\n> > c\n\ntext\n\n>d",
    "blocks in quotes": "> # a\n> - b\n>\n> ```\n> c\n> ```",
    "quotes go on without their mark": "> a\nb\n> - c\nd\n\ne",
    "bullets": "- a\n- b\n\n* c\n+ d\n\n- e\n\n- f",
    "numbers": "1. a\n2. b\n\n3) c\n\n007. d\n\ntext",
    "lists in lists": "- a\n  - b\n    - c\n- d\n\n1. e\n   - f\n2. g",
    "blocks in items": "1. a\n\n   b\n\n   ```\n   c\n   ```\n\n   > d\n2. # e\n-     f\n\n- g\n\n      h",
    "items go on without indentation": "- a\nb\n- c\n  - d\ne\n\nf",
    "empty items": "- a\n-\n- b\n\n1.\n2. c\n\n-\n\n  d",
    "items after a paragraph": "text\n- a\n\ntext\n1. b\n\ntext\n1986. no item\n\ntext\n-no item",
    "a list and a rule": "- a\n---\n- b\n***\ntext",
    "tables": "| a | b |\n|---|---|\n| 1 | *2* |\n| `x` | y \\| z |\n\ntext",
    "tables without bars at their sides": "a | b\n--- | ---\n1 | 2",
    "columns on their sides": "| a | b | c | d |\n|:--|:-:|--:|---|\n| 1 | 2 | 3 | 4 |",
    "tables with rows of other lengths": "| a | b |\n|---|---|\n| 1 |\n| 1 | 2 | 3 |",
    "a table after text": "text\n| a |\n|---|\n| 1 |",
    "no tables": "a | b\nc | d\n\n| a |\n\n|---|",
    "emphasis in other scripts": "**żółć** *ünï* **太字** foo_élan_baz",
}

DIFFERENT = {
    "an address that a click should not follow": "[a](javascript:alert(1)) [b](/etc/passwd) <ftp://x.org>",
    "a link without text, which nobody would see": "[](https://x.org)",
    "an image, which would tell a stranger that it is looked at": "![alt](https://x.org/i.png)",
    "a bare address is a link": "see https://x.org/a.",
    "a task has a box": "- [x] done\n- [ ] to do",
    "nothing of a message is hidden: definitions of links stay in sight": "[a]\n\n[a]: https://x.org\n\n[//]: # (x)",
    "a formula stays as it is written": "$a_1 * b_1$ and \\(x*y*z\\)",
    "emphasis beside Chinese punctuation, which has no blanks": "**注意。**这是 **「甲」**乙",
    "a list below a number is indented by two blanks, as models do": "1. a\n  - b\n2. c",
    "a list is a list however much it is indented": "text\n\n    - a\n    - b",
    "a fence is closed however much the end is indented": "```\na\n     ```\ntext",
    "a table may follow an item or a quote": "- a\n| b |\n|---|",
    "a line without a bar ends a table": "| a |\n|---|\n| 1 |\ntext",
    "a table may lack a rule for a column": "| a | b |\n|---|\n| 1 | 2 |",
    "what is nested deeper than anybody writes is text": ">" * 12 + " deep",
}


class Meaning(HTMLParser):
    """What HTML says: the tags of blocks, and each stretch of text with what is around it, in any order.

    Left out is how it looks: attributes save addresses, numbers and sides, paragraphs in items, and blanks.
    """

    def __init__(self, text: str, *, shift: int) -> None:
        super().__init__()
        self.found: list[tuple[str, ...]] = []
        self._shift = shift
        self._around: list[str] = []
        self._items = self._quiet = 0
        self._is_code = False
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        if tag == "span":
            # An address that is shown behind its link, or a colour.
            if given.get("class") == "address":
                self._quiet = 1
                (last, *around) = self.found.pop()
                self.found.append((last.removesuffix(" "), *around))
        elif tag == "a":
            self._around.append(unquote(given["href"]))
        elif tag == "br":
            self._add_text("\n↵\n")
        elif tag in INLINE and not (tag == "code" and self._is_code):
            self._around.append(INLINE[tag])
        elif tag in BLOCKS:
            side = SIDE.search(given.get("class", "") + given.get("style", "")) if tag in {"th", "td"} else None
            self._items += tag == "li"
            self._is_code = self._is_code or tag == "pre"
            self._add_block("+", tag, given.get("start", ""), side[0] if side else "")

    def handle_endtag(self, tag: str) -> None:
        if tag == "span":
            self._quiet = 0
        elif tag == "a" or (tag in INLINE and not (tag == "code" and self._is_code)):
            self._around.pop()
        elif tag in BLOCKS - {"hr"}:
            self._items -= tag == "li"
            self._is_code = self._is_code and tag != "pre"
            self._add_block("-", tag)

    def handle_data(self, data: str) -> None:
        if not self._quiet:
            self._add_text(data)

    def _add_block(self, sign: str, tag: str, *more: str) -> None:
        if tag[0] == "h" and tag[1].isdigit():
            tag = f"h{min(int(tag[1]) + self._shift, 6)}"
        if not (tag == "p" and self._items):
            self.found.append((sign + tag, *more))
        elif sign == "+" and self.found[-1][0][0] == "'" and self.found[-1][0][1:].strip():
            self.found.append(("¶",))

    def _add_text(self, data: str) -> None:
        around = ("", *sorted(set(self._around)))
        if self.found and self.found[-1][0][:1] == "'" and self.found[-1][1:] == around:
            data = self.found.pop()[0][1:] + data
        self.found.append((f"'{data}", *around))

    def meaning(self) -> list[tuple[str, ...]]:
        found = []
        is_code = False
        for one, *more in self.found:
            is_code = one == "+pre" or (is_code and one != "-pre")
            text = one.rstrip("\n") if is_code else re.sub(r"[ \t\n]*(↵|\n)[ \t\n]*|[ \t]+", lambda m: m[1] or " ", one)
            found.append((text, *more))
        return [(one, *more) for one, *more in _joined(found) if one != "'"]


def _joined(found: list[tuple[str, ...]]) -> list[tuple[str, ...]]:
    """Blanks beside a tag of a block mean nothing."""
    joined = []
    for place, (one, *more) in enumerate(found):
        text = one
        if one[0] == "'":
            before = found[place - 1][0][0] if place else "+"
            after = found[place + 1][0][0] if place + 1 < len(found) else "-"
            text = f"'{one[1:].lstrip()}" if before != "'" else text
            text = text.rstrip() if after != "'" else text
        joined.append((text, *more))
    return joined


def ours(text: str) -> list[tuple[str, ...]]:
    return Meaning(html(text), shift=0).meaning()


def others(text: str) -> list[tuple[str, ...]]:
    return Meaning(OTHER.render(text), shift=2).meaning()


@pytest.mark.parametrize("text", SAME.values(), ids=SAME.keys())
def test_it_means_the_same(text: str) -> None:
    assert ours(text) == others(text)


def test_links_by_label_lead_to_the_same() -> None:
    text = """[a][1] [B] [c *d*][] [e][none] [f] [**g**] [1][b] [not [b]]

> [g]

1. [g]: https://x.org/g

[1]: https://x.org/1 'title'
[b]: <https://x.org/b>
[C  *d*]: https://x.org/c
[b]: https://x.org/not

text
[f]: https://x.org/f"""
    links = [[one for one in found if "https://x.org" in str(one[1:])] for found in (ours(text), others(text))]
    assert [one for one in links[0] if one[0] != f"'{one[-1]}"] == links[1]
    assert len(links[1]) == 7


@pytest.mark.parametrize("text", DIFFERENT.values(), ids=DIFFERENT.keys())
def test_it_differs_on_purpose(text: str) -> None:
    assert ours(text) != others(text)


MARKS = ("*", "**", "_", "__", "~~", "`", "``", "a", "b", " ", ".", '"', "[", "]", "&amp;", "\\*", "[c")
LINKS = ("d](mailto:x)", "e](<mailto:y> 't')", "[f](mailto:z)")


@settings(max_examples=1000, deadline=None)
@given(st.lists(st.sampled_from(MARKS + LINKS), max_size=12))
def test_any_marks_in_a_line_mean_the_same(pieces: list[str]) -> None:
    text = f"x{''.join(pieces)}x"
    assert ours(text) == others(text)


LINES = (
    "",
    "a",
    "    b",
    "# c",
    "c ##",
    "===",
    "---",
    "***",
    "```",
    "   ```",
    "~~~",
    "> d",
    ">",
    "> - e",
    "> > f",
    "      g",
)
ITEMS = ("- h", "- i", "* j", "   - k", "-", "1. l", "2. m", "1)", "   n", "- # o", "- ```", "7. > p")


@settings(max_examples=1000, deadline=None)
@given(st.lists(st.sampled_from(LINES + ITEMS), max_size=8))
def test_any_lines_mean_the_same(lines: list[str]) -> None:
    text = "\n".join(lines)
    assert ours(text) == others(text)
