"""A web page as text: what a reader would see, as Markdown with headings, links, lists and code."""

from __future__ import annotations

import re
from collections import Counter
from contextlib import suppress
from html.parser import HTMLParser
from typing import NamedTuple
from urllib.parse import urljoin

from nacre.tools.web.hidden_text import Attributes, Look, Sheet

_HEADINGS = {f"h{level}": "#" * level for level in range(1, 7)}
_CLOSE_LINES = frozenset({"dd", "div", "dt", "li", "tr"})
_BLOCKS = frozenset(
    {"address", "article", "aside", "blockquote", "body", "caption", "center", "dd", "details", "dialog", "div", "dl"}
    | {"dt", "fieldset", "figcaption", "figure", "footer", "form", "header", "hr", "html", "li", "main", "menu", "nav"}
    | {"ol", "p", "pre", "search", "section", "summary", "table", "tbody", "tfoot", "thead", "tr", "ul", *_HEADINGS}
)
_CELLS = frozenset({"td", "th"})
_VOID = frozenset(
    {"area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "param", "source", "track", "wbr"}
)
_TABLE = frozenset({"table"})
_PARTS = _CELLS | {"tr", "tbody", "thead", "tfoot", "caption"}
_WALLS = _CELLS | {"caption", "table", "template", "object"}
_LISTS = frozenset({"ol", "ul", "menu"})
_IN_ITEMS = _LISTS | {"p"}
_WHOLE_PAGE = frozenset({"html", "body"})
_BEFORE_THE_TITLE = frozenset({"html", "head", "title"})
_OF_THE_HEAD = frozenset({"base", "link", "meta", "noscript", "script", "style", "template", "title"})
# What a start tag ends, from the inside, as far as no wall is before it.
_PARAGRAPH = (("p", _BLOCKS - {"p"} | _CELLS),)
_ENDED_BY: dict[str, tuple[tuple[str, frozenset[str]], ...]] = {
    "li": (("li", _LISTS),),
    **{tag: (("dt", frozenset({"dl"})), ("dd", frozenset({"dl"}))) for tag in ("dt", "dd")},
    **{tag: (("td", _TABLE | {"tr"}), ("th", _TABLE | {"tr"})) for tag in ("td", "th")},
    "tr": (("tr", _TABLE),),
    **{tag: tuple((part, _TABLE) for part in ("tbody", "thead", "tfoot")) for tag in ("tbody", "thead", "tfoot")},
}
_MAX_LOOKED_AT = 100
"""How many open elements are looked at for the one that a tag ends, so that no page takes long."""
_MAX_INDENTS = 12
"""How many lists in one another are indented; the same reason."""
_WITH_LANGUAGE = frozenset({"div", "figure", "pre", "code"})
_LANGUAGE = re.compile(
    r"(?:^|\s)(?:(?:language-|lang-|highlight-source-|brush:\s*)([\w+#.-]+)|highlight-([\w+#.-]+)\s+notranslate)"
)
_NO_LANGUAGE = frozenset({"none", "default", "nohighlight"})
_WORD = re.compile(r"[\w+#.-]{1,30}")
_BLANKS = re.compile(r"[ \t\r\n\f\xa0]+")
_UNFINISHED = re.compile(r"<[!?/A-Za-z]")
_NO_TARGETS = ("#", "javascript:", "data:", "mailto:")
_TINY_IMAGE = frozenset({"0", "1", "0px", "1px"})


def readable(html: str, *, url: str) -> tuple[str, str]:
    """The title and the text of a page; links are made absolute."""
    page = _Page(html, url)
    page.feed(html)
    page.close()
    return _BLANKS.sub(" ", "".join(page.title)).strip(), str(page.lines)


class _Lines:
    """Markdown as it is written: breaks, indents and marks come with the text that follows them, or not at all."""

    def __init__(self) -> None:
        self.pieces: list[str] = []
        self._breaks = 0
        self._indents: list[str] = []
        self._marks: list[str] = []

    def __str__(self) -> str:
        return "\n".join(line.rstrip() for line in "".join(self.pieces).split("\n")).strip()

    @property
    def is_at_start(self) -> bool:
        return bool(self._breaks or self._marks) or not self.pieces or self.pieces[-1].endswith((" ", "\n"))

    def end_line(self, breaks: int) -> None:
        """Begin a new line, after an empty one if `breaks` is 2."""
        self._breaks = max(self._breaks, breaks)

    def begin_item(self, mark: str) -> None:
        """Begin something with a mark; what belongs to it is indented until `end_item`."""
        self._marks.append(mark)
        self._indents.append(" " * len(mark))

    def end_item(self) -> None:
        self._indents.pop()
        if self._marks:
            self._marks.pop()  # nothing was in it

    def begin_text(self) -> int:
        """Write what comes before a text; gives the number of the piece that follows."""
        # An item in the first line of another stands after its mark.
        marks = "".join(self._marks[-_MAX_INDENTS:])
        if self._breaks and self.pieces:
            indent = "".join(self._indents[: min(len(self._indents) - len(self._marks), _MAX_INDENTS)])
            self.pieces.append("\n" * self._breaks + indent + marks)
        elif marks:
            self.pieces.append(marks)
        self._breaks = 0
        self._marks.clear()
        return len(self.pieces)

    def write(self, text: str) -> None:
        if text:
            self.begin_text()
            self.pieces.append(text)

    def write_block(self, lines: list[str]) -> None:
        """Write lines as they are, below each other."""
        self.end_line(2)
        self.write(("\n" + "".join(self._indents[:_MAX_INDENTS])).join(lines))
        self.end_line(2)


class _Element(NamedTuple):
    """An element that is open; `has_item` says that an item of the text ends with it."""

    tag: str
    look: Look
    has_item: bool
    language: str


class _Span:
    """Words that are marked as a whole once they end: from the piece that they begin with."""

    def __init__(self, target: str = "") -> None:
        self.target = target
        self.start: int | None = None


class _Page(HTMLParser):
    """Collects what is seen of a page; end tags that are left out are understood as browsers do."""

    def __init__(self, html: str, url: str) -> None:
        super().__init__(convert_charrefs=True)
        self._url = url
        self._sheet = Sheet(html)
        self.lines = _Lines()
        self._open: list[_Element] = []
        self._count: Counter[str] = Counter()
        self._lists: list[int | None] = []
        self._cells = 0
        self._link: _Span | None = None
        self._word: _Span | None = None
        self.title: list[str] = []
        self._code: list[str] | None = None
        self._language = ""

    def close(self) -> None:
        # A comment or a tag that is not finished is not seen, but the parser would take it for text.
        if _UNFINISHED.match(self.rawdata):
            self.rawdata = ""
        super().close()
        while self._open:
            self._end(self._open.pop())

    # ---- elements

    @property
    def _look(self) -> Look:
        return self._open[-1].look if self._open else Look()

    @property
    def _inside(self) -> str:
        return self._open[-1].tag if self._open else ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = {name: value or "" for name, value in reversed(attrs)}
        if self._inside == "head" and tag not in _OF_THE_HEAD:
            self._end_all("head")
        for other, walls in [*(_PARAGRAPH if tag in _BLOCKS else ()), *_ENDED_BY.get(tag, ())]:
            self._end_all(other, walls)
        look = self._sheet.look(self._look, tag, attributes)
        has_item = not look.is_gone and self._begin(tag, attributes, look)
        if tag not in _VOID:
            language = _language(attributes) if tag in _WITH_LANGUAGE else ""
            self._open.append(_Element(tag, look, has_item, language))
            self._count[tag] += 1

    def handle_endtag(self, tag: str) -> None:
        if tag in _WHOLE_PAGE:
            return  # what follows is still in it, and in what was not ended
        # The end of something around a table does not end a cell of it, nor the end of a word a block.
        walls = _WALLS if tag in _BLOCKS else _BLOCKS | _CELLS
        self._end_all(tag, _TABLE if tag in _TABLE | _PARTS else walls)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        # `<p/>` begins an element; only in drawings and formulas it would end it too.
        self.handle_starttag(tag, attrs)

    def handle_data(self, data: str) -> None:
        if self._inside == "head" and data.strip():
            self._end_all("head")
        if self._inside == "title" and all(element.tag in _BEFORE_THE_TITLE for element in self._open[-3:]):
            self.title.append(data)
        elif not self._look.is_seen:
            return
        elif self._code is not None:
            self._code.append(data)
        elif text := _BLANKS.sub(" ", data):
            self._write(text)

    def _end_all(self, tag: str, walls: frozenset[str] = frozenset()) -> None:
        """End the innermost element with a tag and all that is in it, if there is one and no wall before it."""
        if not self._count[tag]:
            return
        last = len(self._open) - 1
        for at in range(last, max(last - _MAX_LOOKED_AT, -1), -1):
            if self._open[at].tag == tag:
                while len(self._open) > at:
                    element = self._open.pop()
                    self._count[element.tag] -= 1
                    self._end(element)
                return
            if self._open[at].tag in walls:
                return

    # ---- what is written

    def _begin(self, tag: str, attributes: Attributes, look: Look) -> bool:
        """Write what an element begins with; tells whether it is an item, which ends with it."""
        if self._code is not None:
            self._begin_in_code(tag, attributes)
            return False
        if tag in _BLOCKS:
            self._end_line(tag)
        mark = f"{_HEADINGS[tag]} " if tag in _HEADINGS else ""
        if tag == "li":
            mark, number = "- ", self._lists[-1] if self._lists else None
            if number is not None:
                number = _whole(attributes.get("value", ""), number)
                self._lists[-1], mark = number + 1, f"{number}. "
        if mark:
            self.lines.begin_item(mark)
        elif tag in _LISTS:
            self._lists.append(_whole(attributes.get("start", ""), 1) if tag == "ol" else None)
        elif tag == "pre":
            above = (element.language for element in reversed(self._open[-2:]) if element.language)
            self._code, self._language = [], _language(attributes) or next(above, "")
        elif look.is_seen:
            self._begin_words(tag, attributes)
        return bool(mark)

    def _end_line(self, tag: str) -> None:
        self.lines.end_line(1 if tag in _CLOSE_LINES or (self._lists and tag in _IN_ITEMS) else 2)

    def _begin_in_code(self, tag: str, attributes: Attributes) -> None:
        code = self._code or []
        if tag == "br" or (tag in _BLOCKS and code and not code[-1].endswith("\n")):
            code.append("\n")
        if tag == "code":
            self._language = self._language or _language(attributes)

    def _begin_words(self, tag: str, attributes: Attributes) -> None:
        match tag:
            case "br":
                self.lines.end_line(1)
            case "img":
                words = _BLANKS.sub(" ", attributes.get("alt", "")).strip()
                if words and not {attributes.get("width"), attributes.get("height")} & _TINY_IMAGE:
                    self._write(f"[image: {words}]")
            case "a":
                self._end_link()
                self._link = _Span(attributes.get("href", ""))
            case "code":
                self._end_word()
                self._word = _Span()
            case "tr":
                self._cells = 0
            case "td" | "th":
                self.lines.write(" | " if self._cells else "")
                self._cells += 1
            case _:
                pass

    def _end(self, element: _Element) -> None:
        tag, look, has_item, _ = element
        if look.is_gone:
            return
        if tag == "pre" and self._code is not None:
            text, self._code = "".join(self._code).removeprefix("\n").rstrip(), None
            if text.strip():
                # Between marks that do not occur in it.
                mark = "`" * max(3, _longest_mark(text) + 1)
                self.lines.write_block([f"{mark}{self._language}", *text.split("\n"), mark])
        elif self._code is not None:
            self._begin_in_code(tag, {})
            return
        elif tag in _LISTS:
            self._lists.pop()
        elif tag == "a":
            self._end_link()
        elif tag == "code":
            self._end_word()
        if has_item:
            self.lines.end_item()
        if tag in _BLOCKS:
            self._end_line(tag)

    def _write(self, text: str) -> None:
        """Write words, whose blanks count once."""
        text = text.lstrip() if self.lines.is_at_start else text
        if not text:
            return
        start = self.lines.begin_text()
        for span in (self._link, self._word):
            if span is not None and span.start is None:
                span.start = start
        self.lines.write(text)

    def _end_link(self) -> None:
        """Write a link that leads somewhere as Markdown."""
        link, self._link = self._link, None
        target = link.target.strip() if link is not None else ""
        if link is None or link.start is None or target.lower().startswith(_NO_TARGETS) or not target:
            return
        with suppress(ValueError):  # it is no address
            self._mark_words(link.start, "[", f"]({urljoin(self._url, target)})")

    def _end_word(self) -> None:
        """Write a word of code between marks that do not occur in it."""
        word, self._word = self._word, None
        if word is not None and word.start is not None:
            longest = _longest_mark("".join(self.lines.pieces[word.start :]))
            pad = " " if longest else ""
            mark = "`" * (longest + 1)
            self._mark_words(word.start, mark + pad, pad + mark)

    def _mark_words(self, start: int, before: str, after: str) -> None:
        """Put marks around the words from a piece on, in one line."""
        words = "".join(self.lines.pieces[start:])
        end = [" "] if words.endswith(" ") else []
        self.lines.pieces[start:] = [f"{before}{_BLANKS.sub(' ', words).strip()}{after}", *end]


def _longest_mark(text: str) -> int:
    return max(map(len, re.findall(r"`+", text)), default=0)


def _language(attributes: Attributes) -> str:
    found = _LANGUAGE.search(attributes.get("class", ""))
    name = found[1] or found[2] if found else attributes.get("data-lang", attributes.get("data-language", ""))
    return name if _WORD.fullmatch(name) and name not in _NO_LANGUAGE else ""


def _whole(text: str, otherwise: int) -> int:
    found = re.match(r"\s*([-+]?\d{1,9})", text)
    return int(found[1]) if found else otherwise
