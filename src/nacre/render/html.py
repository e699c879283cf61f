"""Markdown as HTML, safe by construction: all text is escaped, and only tags written here come out."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby

from nacre.agent.ports import STOPPED
from nacre.render.colours import Painter
from nacre.render.markdown import Block, Code, Definitions, Heading, Line, Listing, Paragraph, Quote, Table, parse
from nacre.render.spans import BOLD, CODE, ITALIC, STRUCK, Span, is_linkable, spans
from nacre.render.text import visible

_TAGS = ((CODE, "code"), (STRUCK, "del"), (ITALIC, "em"), (BOLD, "strong"))
_TASK = re.compile(r"\[([ xX])\] ")
_MAX_COLOURED = 20_000
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
    return "".join(blocks_html(written)) + end


def blocks_html(text: str) -> list[str]:
    """Markdown as HTML, an element for each block."""
    found = parse(text)
    return ["".join(_block(block, found.references)) for block in found.blocks]


def _all(found: Iterable[Block], references: Mapping[str, str]) -> Iterator[str]:
    for block in found:
        yield from _block(block, references)


def _block(block: Block, references: Mapping[str, str]) -> Iterator[str]:
    match block:
        case Heading(level, text):
            # The page's own headings are h1 and h2.
            tag = f"h{min(level + 2, 6)}"
            yield f"<{tag}>{_spans(spans(text, references))}</{tag}>"
        case Paragraph(text):
            found = spans(text, references)
            # A formula of several lines is code by itself.
            is_formula = len(found) == 1 and found[0].style == CODE and "\n" in found[0].text
            yield f'<pre tabindex="0"><code>{escaped(text)}</code></pre>' if is_formula else f"<p>{_spans(found)}</p>"
        case Definitions(text):
            # Nothing that a message says is hidden.
            yield f"<p>{_spans(spans(text))}</p>"
        case Code(language, text):
            label = f' data-language="{escaped(language)}"' if language else ""
            # What scrolls can be reached by keys.
            yield f'<pre tabindex="0"{label}><code>{_paint(language, text)}</code></pre>'
        case Table():
            yield from _table(block, references)
        case Quote(inner):
            yield from ("<blockquote>", *_all(inner, references), "</blockquote>")
        case Listing():
            yield from _list(block, references)
        case Line():
            yield "<hr>"


def _list(block: Listing, references: Mapping[str, str]) -> Iterator[str]:
    tag = "ol" if block.is_ordered else "ul"
    first = block.items[0].mark[:-1].lstrip("0") or "0"
    start = f' start="{first}"' if block.is_ordered and first != "1" else ""
    # The marks stand on the side where the lines begin.
    yield f'<{tag}{start} dir="auto">'
    for item in block.items:
        match item.blocks:
            case (Paragraph(text), *rest) if (task := _TASK.match(text)) is not None:
                word, sign = ("to do", "☐") if task[1] == " " else ("done", "☑")
                box = f'<span class="box" role="img" aria-label="{word}">{sign}</span>'
                inner = (Paragraph(text[task.end() :]), *rest)
                yield from (f'<li class="task">{box} ', *_all(inner, references), "</li>")
            case _:
                yield from ("<li>", *_all(item.blocks, references), "</li>")
    yield f"</{tag}>"


def _table(block: Table, references: Mapping[str, str]) -> Iterator[str]:
    yield '<div class="table" tabindex="0"><table>'
    sides = [f' class="{side}"' if side else "" for side in block.sides]
    for place, row in enumerate(block.rows):
        tag = "td" if place else "th"
        cells = zip(row, sides, strict=True)
        yield "<tr>"
        yield from (f"<{tag}{side}>{_spans(spans(cell, references))}</{tag}>" for cell, side in cells)
        yield "</tr>"
    yield "</table></div>"


def _paint(language: str, text: str) -> str:
    """Code with its keywords, names and texts in colour, where the language is known."""
    if not language or len(text) > _MAX_COLOURED:
        return escaped(text)
    painter = Painter(language)
    lines = []
    for line in text.split("\n"):
        painted = ""
        for look, pieces in groupby(painter.pieces(line), key=lambda piece: _LOOKS.get(piece[1], "")):
            part = escaped("".join(piece for piece, _ in pieces))
            painted += f'<span class="{look}">{part}</span>' if look and part.strip() else part
        lines.append(painted)
    return "\n".join(lines)


def _spans(found: Iterable[Span]) -> str:
    """Spans and their links, with addresses shown; no link where a click could do more than open a page or a mail."""
    parts = []
    for address, group in groupby(found, key=lambda span: span.address):
        label = text = ""
        for span in group:
            label += span.text
            part = escaped(span.text).replace("\n", "<br>\n")
            for style, tag in _TAGS:
                if span.style & style:
                    part = f"<{tag}>{part}</{tag}>"
            text += part
        if address and is_linkable(address):
            text = f'<a href="{escaped(address)}" rel="noopener noreferrer nofollow">{text}</a>'
        parts.append(text)
        if address and label not in {address, address.removeprefix("mailto:")}:
            parts.append(f' <span class="address">({escaped(address)})</span>')
    return "".join(parts)
