"""A conversation as one HTML file that needs nothing else: no network, no fonts, one script of its own."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from functools import cache
from hashlib import sha256
from importlib.resources import files

from nacre.amounts import size
from nacre.render.conversation import Cover, Cut, MessageView, Part
from nacre.render.html import ansi, escape, html, plain
from nacre.render.text import clip, one_line

_MAX_LINE = 200
_IN_SECTION = 50
_ROLES = frozenset(("user", "assistant", "tool", "system"))

_KEYS = (
    "<kbd>j</kbd> <kbd>k</kbd> next and previous message, <kbd>n</kbd> <kbd>p</kbd> of the user, "
    '<kbd>e</kbd> unfold, <a href="#end">to the end</a>'
)


def page(cover: Cover, found: Iterable[Part]) -> Iterator[str]:
    """The file, piece by piece; never more of it at a time than one message."""
    title = escape(one_line(cover.title or cover.key))
    known = [escape(one_line(cover.key)), *([f"created {time(cover.created)}"] if cover.created else ()), cover.totals]
    yield (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy()}">\n'
        '<meta name="viewport" content="width=device-width,initial-scale=1">\n'
        '<meta name="referrer" content="no-referrer">\n'
        f"<title>{title}</title>\n<style>{style()}</style>\n</head>\n<body>\n"
        f"<header><h1>{title}</h1><p>{' · '.join(known)}</p><p>{_KEYS}</p></header>\n<main>\n"
    )
    yield "<section>\n"
    for place, part in enumerate(found):
        if place and place % _IN_SECTION == 0:
            # A browser lays out a section only when it comes into view: what is outside of it costs nothing.
            yield "</section>\n<section>\n"
        if isinstance(part, Cut):
            hidden = f" · {part.hidden:,} message{'s' * (part.hidden != 1)} before it" if part.hidden else ""
            name = "summary" if part.summary else "cut"
            yield f'<article class="cut"><h2><b>{name}</b>{hidden}</h2>{html(part.summary)}</article>\n'
        else:
            yield "".join(_article(part))
    yield '</section>\n</main>\n<footer id="end"><p>Exported by nacre.</p></footer>\n'
    yield f"<script>{script()}</script>\n</body>\n</html>\n"


@cache
def style() -> str:
    """The style of the page, and the first part of the web page's."""
    return "\n" + (files("nacre.render") / "html_page.css").read_text("utf-8")


@cache
def script() -> str:
    """The script of the page: keys to move through it."""
    return "\n" + (files("nacre.render") / "html_page.js").read_text("utf-8")


def policy() -> str:
    """What the page may do: be styled by its own style and run its own script; nothing else."""
    look, act = (f"sha256-{b64encode(sha256(text.encode()).digest()).decode()}" for text in (style(), script()))
    return f"default-src 'none'; style-src '{look}'; script-src '{act}'; base-uri 'none'; form-action 'none'"


def _article(shown: MessageView) -> Iterator[str]:
    """One message, to be found under its number."""
    label = escape(shown.label)
    yield f'<article id="{label}" class="{kind_of(shown)}">'
    yield f'<h2><b>{who(shown)}</b> <a href="#{label}">#{label}</a> {facts(shown)}</h2>'
    if shown.reasoning:
        yield f"<details><summary><i>reasoning</i></summary><pre>{escape(shown.reasoning)}</pre></details>"
    if shown.text and shown.role == "tool":
        yield f"<details><summary><i>→</i> {_short(plain(shown.text))} <i>{amount(shown.text)}</i></summary>"
        yield f"<pre>{ansi(shown.text)}</pre></details>"
    elif shown.text:
        yield html(shown.text)
    for attachment in shown.attachments:
        yield f'<p class="attachment">[{_short(attachment)}]</p>'
    for call in shown.calls:
        # Folded to one line, with an anchor for its result's own number.
        result = call.result
        anchor = f' id="{escape(result.label)}"' if result is not None else ""
        answer = "no result" if result is None else f"{_short(plain(result.text))} <i>{amount(result.text)}</i>"
        yield f"<details{anchor}><summary><b>{escape(one_line(call.name))}</b>({_short(call.arguments)}) "
        yield f"<i>→</i> {answer}</summary>"
        yield f"<pre>{escape(call.arguments)}</pre>" if call.arguments else ""
        yield f"<pre>{ansi(result.text)}</pre>" if result is not None else ""
        yield "</details>"
    yield "</article>\n"


def kind_of(shown: MessageView) -> str:
    """How a message looks, as a class: by whose it is, and whether the model sees it."""
    return f"{shown.role if shown.role in _ROLES else 'other'}{'' if shown.is_live else ' gone'}"


def who(shown: MessageView) -> str:
    """Who wrote a message."""
    return escape(one_line(f"{shown.role} {shown.name}" if shown.name else shown.role))


def facts(shown: MessageView) -> str:
    """When a message was written, and by which model."""
    known = [time(shown.ts), *([escape(one_line(shown.model))] if shown.model else ())]
    return " · ".join(known if shown.is_live else [*known, "not in the history"])


def _short(text: str) -> str:
    return escape(clip(one_line(text), _MAX_LINE))


def amount(text: str) -> str:
    """How long a text is."""
    return size(len(text.encode(errors="replace")))


def time(moment: datetime) -> str:
    """A moment; a script may put the reader's own time there."""
    there = moment.astimezone(UTC)
    return f'<time datetime="{there:%Y-%m-%dT%H:%M:%SZ}">{there:%Y-%m-%d %H:%M} UTC</time>'
