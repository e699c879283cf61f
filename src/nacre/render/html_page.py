"""A conversation as one HTML file that needs nothing else: no network, no fonts, one script of its own."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from hashlib import sha256

from nacre.render.ansi import ansi, plain
from nacre.render.conversation import Call, Cover, Cut, Part, Said
from nacre.render.html import escaped, html
from nacre.render.look import SCRIPT, STYLE
from nacre.render.text import clip, one_line, size

_LONGEST_LINE = 200
_IN_SECTION = 50
_ROLES = frozenset(("user", "assistant", "tool", "system"))


def page(cover: Cover, found: Iterable[Part]) -> Iterator[str]:
    """The file, piece by piece; never more of it at a time than one message."""
    yield _head(cover)
    yield "<section>\n"
    for place, part in enumerate(found):
        if place and place % _IN_SECTION == 0:
            # A browser lays out a section only when it comes into view: what is beside it costs nothing.
            yield "</section>\n<section>\n"
        yield _cut(part) if isinstance(part, Cut) else article(part)
    yield _FOOT


def article(said: Said) -> str:
    """One message, to be found under its number."""
    label = escaped(said.label)
    return "".join(
        (
            f'<article id="{label}" class="{kind_of(said)}">',
            f'<h2><b>{who(said)}</b> <a href="#{label}">#{label}</a> {facts(said)}</h2>',
            *_body(said),
            "</article>\n",
        )
    )


def policy() -> str:
    """What the page may do: be styled by its own style and run its own script; nothing else."""
    return (
        f"default-src 'none'; style-src '{_hash(STYLE)}'; script-src '{_hash(SCRIPT)}'; "
        "base-uri 'none'; form-action 'none'"
    )


def _head(cover: Cover) -> str:
    title = escaped(one_line(cover.title or cover.key))
    known = [escaped(one_line(cover.key)), *([f"created {time(cover.created)}"] if cover.created else ())]
    known.append(cover.counted)
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy()}">\n'
        '<meta name="viewport" content="width=device-width,initial-scale=1">\n'
        '<meta name="referrer" content="no-referrer">\n'
        f"<title>{title}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n"
        f"<header><h1>{title}</h1><p>{' · '.join(known)}</p><p>{_KEYS}</p></header>\n<main>\n"
    )


_KEYS = (
    "<kbd>j</kbd> <kbd>k</kbd> next and previous message, <kbd>n</kbd> <kbd>p</kbd> of the user, "
    '<kbd>e</kbd> unfold, <a href="#end">to the end</a>'
)
_FOOT = (
    '</section>\n</main>\n<footer id="end"><p>Exported by nacre.</p></footer>\n'
    f"<script>{SCRIPT}</script>\n</body>\n</html>\n"
)


def kind_of(said: Said) -> str:
    """How a message looks, as a class: by whose it is, and whether the model sees it."""
    return f"{said.role if said.role in _ROLES else 'other'}{'' if said.is_live else ' gone'}"


def who(said: Said) -> str:
    """Who said something."""
    return escaped(one_line(f"{said.role} {said.name}" if said.name else said.role))


def facts(said: Said) -> str:
    """When something was said, and by which model."""
    known = [time(said.ts), *([escaped(one_line(said.model))] if said.model else ())]
    return " · ".join(known if said.is_live else [*known, "not in the history"])


def _body(said: Said) -> Iterator[str]:
    if said.reasoning:
        yield f"<details><summary><i>reasoning</i></summary><pre>{escaped(said.reasoning)}</pre></details>"
    if said.text:
        yield _folded_result(said.text) if said.role == "tool" else html(said.text)
    for attachment in said.attachments:
        yield f'<p class="attachment">[{escaped(clip(one_line(attachment), _LONGEST_LINE))}]</p>'
    yield from map(_call, said.calls)


def _call(call: Call) -> str:
    """A call folded to one line, with an anchor for its result's own number."""
    result = call.result
    anchor = f' id="{escaped(result.label)}"' if result is not None else ""
    answer = "no result" if result is None else f"{_short(plain(result.text))} <i>{amount(result.text)}</i>"
    line = f"<b>{escaped(one_line(call.name))}</b>({_short(call.arguments)}) <i>→</i> {answer}"
    inner = f"<pre>{escaped(call.arguments)}</pre>" if call.arguments else ""
    inner += f"<pre>{ansi(result.text)}</pre>" if result is not None else ""
    return f"<details{anchor}><summary>{line}</summary>{inner}</details>"


def _folded_result(text: str) -> str:
    return (
        f"<details><summary><i>→</i> {_short(plain(text))} <i>{amount(text)}</i></summary>"
        f"<pre>{ansi(text)}</pre></details>"
    )


def _cut(cut: Cut) -> str:
    hidden = f" · {cut.hidden:,} message{'s' * (cut.hidden != 1)} before it" if cut.hidden else ""
    title = "summary" if cut.summary else "cut"
    return f'<article class="cut"><h2><b>{title}</b>{hidden}</h2>{html(cut.summary)}</article>\n'


def _short(text: str) -> str:
    return escaped(clip(one_line(text), _LONGEST_LINE))


def amount(text: str) -> str:
    """How long a text is."""
    return size(len(text.encode(errors="replace")))


def time(moment: datetime) -> str:
    """A moment; a script may put the reader's own time there."""
    there = moment.astimezone(UTC)
    return f'<time datetime="{there:%Y-%m-%dT%H:%M:%SZ}">{there:%Y-%m-%d %H:%M} UTC</time>'


def _hash(text: str) -> str:
    return f"sha256-{b64encode(sha256(text.encode()).digest()).decode()}"
