"""Markdown as HTML, safe by construction: all text is escaped, and only tags written here come out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from nacre.render.markdown import (
    BOLD,
    CODE,
    ITALIC,
    STRUCK,
    Block,
    Code,
    Heading,
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
_ESCAPES = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#39;"})


def escaped(text: str) -> str:
    """The text as HTML shows it, control characters made visible; good inside quoted attributes too."""
    return visible(text).translate(_ESCAPES)


def html(text: str) -> str:
    """Markdown as HTML."""
    return "".join(_all(blocks(text)))


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
            yield f"<p>{_spans(spans(text))}</p>"
        case Code(language, text):
            label = f' data-language="{escaped(language)}"' if language else ""
            yield f"<pre{label}><code>{escaped(text)}</code></pre>"
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
    yield f'<ol start="{first}">' if block.is_ordered and first != "1" else f"<{tag}>"
    for item in block.items:
        yield from ("<li>", *_all(item.blocks), "</li>")
    yield f"</{tag}>"


def _table(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    yield '<div class="table"><table>'
    for place, row in enumerate(rows):
        tag = "td" if place else "th"
        yield "<tr>" + "".join(f"<{tag}>{_spans(spans(cell))}</{tag}>" for cell in row) + "</tr>"
    yield "</table></div>"


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
