"""Markdown as HTML, safe by construction: all text is escaped, and only tags written here come out."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby

from nacre.agent.ports import STOPPED
from nacre.render.code import Painter
from nacre.render.markdown import (
    BOLD,
    CODE,
    ITALIC,
    STRUCK,
    Block,
    Code,
    Heading,
    Item,
    Line,
    Listing,
    Paragraph,
    Quote,
    Span,
    Table,
    blocks,
    is_linkable,
    spans,
)
from nacre.render.text import visible

_TAGS = ((CODE, "code"), (STRUCK, "del"), (ITALIC, "em"), (BOLD, "strong"))
_TASK = re.compile(r"\[([ xX])\] ")
_MOST_COLOURED = 20_000
# The styles of a terminal, as the classes of its colours; code of an unknown language has none.
_LOOKS = {
    "1": "bold",
    "2": "dim",
    "31": "fg1",
    "32": "fg2",
    "33": "fg3",
    "34": "fg4",
    "1;34": "bold fg4",
    "35": "fg5",
}
_ESCAPES = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#39;"})


def escaped(text: str) -> str:
    """The text as HTML shows it, control characters made visible; good inside quoted attributes too."""
    return visible(text).translate(_ESCAPES)


def html(text: str) -> str:
    """Markdown as HTML; that an answer was stopped is not taken for a part of the code that it stopped in."""
    written = text.removesuffix(f"\n\n{STOPPED}")
    end = f"<p>{STOPPED}</p>" if written != text else ""
    return "".join(_all(blocks(written))) + end


def blocks_html(text: str) -> list[str]:
    """Markdown as HTML, an element for each block."""
    return ["".join(_block(block)) for block in blocks(text)]


def _all(found: Iterable[Block]) -> Iterator[str]:
    for block in found:
        yield from _block(block)


def _block(block: Block) -> Iterator[str]:
    match block:
        case Heading(level, text):
            # The page's own headings are h1 and h2.
            tag = f"h{min(level + 2, 6)}"
            yield f"<{tag}>{_spans(spans(text))}</{tag}>"
        case Paragraph(text):
            found = spans(text)
            # A formula of several lines is code by itself.
            is_formula = len(found) == 1 and found[0].style == CODE and "\n" in found[0].text
            yield f'<pre tabindex="0"><code>{escaped(text)}</code></pre>' if is_formula else f"<p>{_spans(found)}</p>"
        case Code(language, text):
            label = f' data-language="{escaped(language)}"' if language else ""
            # What scrolls can be reached by keys.
            yield f'<pre tabindex="0"{label}><code>{_coloured(language, text)}</code></pre>'
        case Table(rows):
            yield from _table(rows)
        case Quote(inner):
            yield from ("<blockquote>", *_all(inner), "</blockquote>")
        case Listing():
            yield from _list(block)
        case Line():
            yield "<hr>"


def _list(block: Listing) -> Iterator[str]:
    tag = "ol" if block.is_ordered else "ul"
    first = block.items[0].mark[:-1].lstrip("0") or "0"
    start = f' start="{first}"' if block.is_ordered and first != "1" else ""
    # The marks stand on the side where the lines begin.
    yield f'<{tag}{start} dir="auto">'
    for item in block.items:
        yield from _item(item)
    yield f"</{tag}>"


def _item(item: Item) -> Iterator[str]:
    match item.blocks:
        case (Paragraph(text), *rest) if (task := _TASK.match(text)) is not None:
            word, sign = ("to do", "☐") if task[1] == " " else ("done", "☑")
            box = f'<span class="box" role="img" aria-label="{word}">{sign}</span>'
            yield from (f'<li class="task">{box} ', *_all((Paragraph(text[task.end() :]), *rest)), "</li>")
        case _:
            yield from ("<li>", *_all(item.blocks), "</li>")


def _table(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    yield '<div class="table" tabindex="0"><table>'
    for place, row in enumerate(rows):
        tag = "td" if place else "th"
        yield "<tr>" + "".join(f"<{tag}>{_spans(spans(cell))}</{tag}>" for cell in row) + "</tr>"
    yield "</table></div>"


def _coloured(language: str, text: str) -> str:
    """Code with its keywords, names and texts in colour, where the language is known."""
    if not language or len(text) > _MOST_COLOURED:
        return escaped(text)
    painter = Painter(language)
    return "\n".join("".join(_painted(painter.pieces(line))) for line in text.split("\n"))


def _painted(pieces: Iterable[tuple[str, str]]) -> Iterator[str]:
    for look, many in groupby(pieces, key=lambda piece: _LOOKS.get(piece[1], "")):
        text = escaped("".join(text for text, _ in many))
        yield f'<span class="{look}">{text}</span>' if look and text.strip() else text


def _spans(found: Iterable[Span]) -> str:
    return "".join(map(_span, found))


def _span(span: Span) -> str:
    text = escaped(span.text)
    if "\n" in text:
        text = text.replace("\n", "<br>\n")
    for style, tag in _TAGS:
        if span.style & style:
            text = f"<{tag}>{text}</{tag}>"
    return _link(span, text) if span.address else text


def _link(span: Span, text: str) -> str:
    """A link with its address shown; no link where a click could do anything but open a page or a letter."""
    address = escaped(span.address)
    shown = "" if span.address.removeprefix("mailto:") == span.text else f' <span class="address">({address})</span>'
    if not is_linkable(span.address):
        return f"{text}{shown}"
    return f'<a href="{address}" rel="noopener noreferrer nofollow">{text}</a>{shown}'
