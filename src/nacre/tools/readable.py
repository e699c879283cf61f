"""A web page as text: what a reader would see, with links and headings as Markdown."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from urllib.parse import urljoin

_UNSEEN = frozenset({"script", "style", "noscript", "template", "svg", "math", "iframe", "object", "select", "head"})
_BLOCKS = frozenset(
    {"address", "article", "aside", "blockquote", "body", "dd", "details", "div", "dl", "dt", "fieldset", "figure"}
    | {"figcaption", "footer", "form", "header", "hr", "li", "main", "nav", "ol", "p", "pre", "section", "summary"}
    | {"table", "tbody", "tfoot", "thead", "tr", "ul"}
)
_HEADINGS = {f"h{level}": "#" * level for level in range(1, 7)}
_CELLS = frozenset({"td", "th"})
_BLANKS = re.compile(r"[ \t\r\n\f\xa0]+")
_MANY_BREAKS = re.compile(r"\n{3,}")


def readable(html: str, *, url: str) -> tuple[str, str]:
    """The title and the text of a page; links are made absolute."""
    page = _Page(url)
    page.feed(html)
    page.close()
    return page.title, page.text


class _Page(HTMLParser):
    """Collects what is seen of a page; tags that are not closed do no harm."""

    def __init__(self, url: str) -> None:
        super().__init__(convert_charrefs=True)
        self._url = url
        self._pieces: list[str] = []
        self._title: list[str] = []
        self._unseen: list[str] = []
        self._links: list[tuple[str, int]] = []
        self._pre = 0
        self._in_title = False

    @property
    def title(self) -> str:
        return _BLANKS.sub(" ", "".join(self._title)).strip()

    @property
    def text(self) -> str:
        lines = [line.rstrip() for line in "".join(self._pieces).split("\n")]
        return _MANY_BREAKS.sub("\n\n", "\n".join(lines)).strip()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "title" and not self._title:
            self._in_title = True
        elif tag == "body":
            self._unseen.clear()
        elif tag in _UNSEEN:
            self._unseen.append(tag)
        elif not self._unseen:
            self._begin(tag, {name: value or "" for name, value in attrs})

    def handle_endtag(self, tag: str) -> None:
        if tag == "title":
            self._in_title = False
        elif tag in self._unseen:
            del self._unseen[self._unseen.index(tag) :]
        elif not self._unseen:
            self._end(tag)

    def handle_data(self, data: str) -> None:
        if self._in_title:
            self._title.append(data)
        elif self._unseen:
            return
        elif self._pre:
            self._pieces.append(data)
        elif text := _BLANKS.sub(" ", data):
            self._pieces.append(text.lstrip() if self._is_at_start() else text)

    def _begin(self, tag: str, attributes: dict[str, str]) -> None:
        if tag in _HEADINGS:
            self._pieces.append(f"\n\n{_HEADINGS[tag]} ")
        elif tag == "li":
            self._pieces.append("\n- ")
        elif tag == "br":
            self._pieces.append("\n")
        elif tag in _CELLS and not self._is_at_start():
            self._pieces.append(" | ")
        elif tag == "img" and attributes.get("alt", "").strip():
            self._pieces.append(f"[image: {_BLANKS.sub(' ', attributes['alt']).strip()}]")
        elif tag == "a":
            self._links.append((attributes.get("href", ""), len(self._pieces)))
        elif tag in _BLOCKS:
            self._break(tag)
        self._pre += tag == "pre"

    def _end(self, tag: str) -> None:
        if tag == "a" and self._links:
            self._link(*self._links.pop())
        elif tag in _BLOCKS or tag in _HEADINGS:
            self._break(tag)
        if tag == "pre" and self._pre:
            self._pre -= 1

    def _break(self, tag: str) -> None:
        self._pieces.append("\n" if tag in {"li", "tr", "dt", "dd", "div"} else "\n\n")

    def _link(self, target: str, start: int) -> None:
        """Write a link that leads somewhere as Markdown."""
        words = "".join(self._pieces[start:])
        if not words.strip() or not target or target.startswith(("#", "javascript:", "data:", "mailto:")):
            return
        try:
            address = urljoin(self._url, target.strip())
        except ValueError:
            return
        lead = words[: len(words) - len(words.lstrip())]
        self._pieces[start:] = [f"{lead}[{words.strip()}]({address})"]

    def _is_at_start(self) -> bool:
        return not self._pieces or self._pieces[-1].endswith(("\n", " "))
