"""A conversation as one HTML file that needs nothing else: no network, no fonts, one script of its own."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from hashlib import sha256

from nacre.render.conversation import Cover, Cut, MessageView, Part
from nacre.render.html import ansi, escape, html, plain
from nacre.render.text import clip, one_line, size

_MAX_LINE = 200
_IN_SECTION = 50
_ROLES = frozenset(("user", "assistant", "tool", "system"))

STYLE = """
:root{color-scheme:light dark;--ground:#fdfcf9;--ink:#22252a;--faint:#5f646c;--edge:#e2dfd8;--sheet:#fff;--code:#f4f2ec;
--user:#2f6f4f;--assistant:#2f5d95;--tool:#7a4b8f;--system:#8a6116;--link:#1d5fa8;--here:#f6eccb}
@media (prefers-color-scheme:dark){:root{--ground:#16181c;--ink:#dcdfe4;--faint:#a3a9b3;--edge:#2e3239;--sheet:#1c1f24;
--code:#23272e;--user:#7cc49c;--assistant:#86b4ea;--tool:#c79ad8;--system:#d9b36a;--link:#86b9f2;--here:#3a3520}}
*{box-sizing:border-box}
html{scroll-padding-top:.5rem}
body{margin:0;background:var(--ground);color:var(--ink);font:16px/1.55 system-ui,sans-serif;overflow-wrap:anywhere}
main,body>header,body>footer{max-width:54rem;margin:0 auto;padding:0 1rem}
body>header{padding-top:1.5rem;padding-bottom:1rem;border-bottom:1px solid var(--edge)}
body>footer{padding-top:1rem;padding-bottom:2rem}
h1{margin:0 0 .25rem;font-size:1.5rem;line-height:1.25}
h3,h4,h5,h6{margin:1.1em 0 .4em;font-size:1.05rem;line-height:1.3}
h3{font-size:1.2rem}
body>header p,body>footer p{margin:0;color:var(--faint);font-size:.875rem}
section{content-visibility:auto;contain-intrinsic-size:auto 400rem;padding:0 .75rem;margin:0 -.75rem}
section:last-child{contain-intrinsic-size:auto 20rem}
article{padding:.8rem .75rem;margin:0 -.75rem;border-bottom:1px solid var(--edge)}
article:target,article.here{background:var(--here)}
article>h2{margin:0 0 .3rem;font-size:.8125rem;font-weight:400;color:var(--faint);line-height:1.5}
article>h2 b{font-size:.9375rem;margin-right:.35em}
.user>h2 b{color:var(--user)}.assistant>h2 b{color:var(--assistant)}
.tool>h2 b{color:var(--tool)}.system>h2 b{color:var(--system)}
article>h2 a{color:inherit;margin-right:.35em}
.gone{opacity:.65}
.cut{border-left:3px solid var(--system);padding-left:.75rem;margin-left:0}
p,ul,ol,pre,blockquote,.table,details{margin:.5em 0}
ul,ol{padding-left:1.6rem}
li>p{margin:.15em 0}
a{color:var(--link)}
.address{color:var(--faint);font-size:.875em}
code,pre{font:.875em/1.5 ui-monospace,SFMono-Regular,Menlo,Consolas,monospace}
code{background:var(--code);border-radius:3px;padding:.1em .25em}
pre{background:var(--code);border-radius:6px;padding:.6rem .75rem;overflow-x:auto;white-space:pre-wrap;tab-size:4}
pre code{background:none;padding:0;font-size:1em}
pre[data-language]::before{content:attr(data-language);display:block;color:var(--faint);font-size:.85em}
blockquote{border-left:3px solid var(--edge);padding-left:.75rem;margin-left:0;color:var(--faint)}
hr{border:0;border-top:1px solid var(--edge)}
.table{overflow-x:auto}
table{border-collapse:collapse}
th,td{border:1px solid var(--edge);padding:.25rem .5rem;text-align:left;vertical-align:top}
:is(th,td).right{text-align:right}:is(th,td).center{text-align:center}
details{border:1px solid var(--edge);border-radius:6px;background:var(--sheet)}
summary{padding:.3rem .6rem;cursor:pointer;font:.8125rem/1.6 ui-monospace,Menlo,Consolas,monospace;
white-space:nowrap;overflow:hidden;text-overflow:ellipsis}
summary b{color:var(--tool)}
summary i{color:var(--faint);font-style:normal}
details>pre{margin:0;border-radius:0;border-top:1px solid var(--edge);max-height:40rem;overflow:auto}
details>pre:last-child{border-radius:0 0 6px 6px}
.attachment{color:var(--tool);font-size:.875rem}
.dim{color:var(--faint)}
.fg0{color:light-dark(#22252a,#a3a9b3)}.fg1{color:light-dark(#b3261e,#f2a29b)}.fg2{color:light-dark(#1b6a3a,#7cc49c)}
.fg3{color:light-dark(#755400,#d9b36a)}.fg4{color:light-dark(#1d5fa8,#86b4ea)}.fg5{color:light-dark(#8a3f8f,#d3a3e0)}
.fg6{color:light-dark(#0b6670,#6fc7d0)}.fg7{color:light-dark(#565b63,#c9cdd4)}.fg8{color:light-dark(#5c6169,#a3a9b3)}
.fg9{color:light-dark(#b81c14,#ff9d94)}.fg10{color:light-dark(#1a6a35,#8fdcae)}.fg11{color:light-dark(#785600,#ecc97c)}
.fg12{color:light-dark(#2a5fc8,#9cc4f5)}.fg13{color:light-dark(#953896,#e0b3ec)}.fg14{color:light-dark(#0a6771,#86dbe4)}
.fg15{color:light-dark(#3a3e45,#fff)}
.bg0{background:#111;color:#fff}.bg1{background:#b3261e;color:#fff}.bg2{background:#1b6e3c;color:#fff}
.bg3{background:#e0b64a;color:#111}.bg4{background:#1d5fa8;color:#fff}.bg5{background:#8a3f8f;color:#fff}
.bg6{background:#0b6b75;color:#fff}.bg7{background:#d5d7db;color:#111}.bg8{background:#5c616a;color:#fff}
.bg9{background:#ff9d94;color:#111}.bg10{background:#8fdcae;color:#111}.bg11{background:#ecc97c;color:#111}
.bg12{background:#9cc4f5;color:#111}.bg13{background:#e0b3ec;color:#111}.bg14{background:#86dbe4;color:#111}
.bg15{background:#fff;color:#111}
.inverse{background:var(--ink);color:var(--code)}
.bold{font-weight:700}.slanted{font-style:italic}.under{text-decoration:underline}.struck{text-decoration:line-through}
.diff del,.diff ins,.diff span{display:block;text-decoration:none}
.diff del{background:light-dark(#fbe3e0,#43282a);color:light-dark(#8c1d18,#ffb4ab)}
.diff ins{background:light-dark(#e0f0e4,#1f3a2b);color:light-dark(#14532d,#a6e3bd)}
.diff .hunk{color:var(--faint)}
kbd{border:1px solid var(--edge);border-radius:3px;padding:0 .3em;font:.85em ui-monospace,monospace}
@media (prefers-reduced-motion:no-preference){html{scroll-behavior:auto}}
@media print{section{content-visibility:visible}}
"""

SCRIPT = """
"use strict";
const unfold = () => {
  const one = document.getElementById(location.hash.slice(1));
  if (one && one.matches("details")) one.open = true;
};
addEventListener("hashchange", unfold);
unfold();
addEventListener("keydown", event => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const first = document.querySelector("article");
  if (!first) return;
  const [marked] = document.getElementsByClassName("here");
  const near = y => { const at = document.elementFromPoint(innerWidth / 2, y); return at && at.closest("article"); };
  const inView = one => { const box = one.getBoundingClientRect(); return box.bottom > 0 && box.top < innerHeight; };
  const here = marked && inView(marked) ? marked : near(24) || near(72);
  const sibling = (one, on) => {
    const next = on ? one.nextElementSibling : one.previousElementSibling;
    if (next) return next;
    const section = on ? one.parentElement.nextElementSibling : one.parentElement.previousElementSibling;
    return section && (on ? section.firstElementChild : section.lastElementChild);
  };
  const step = (from, on, kind) => {
    let one = from;
    do one = one && sibling(one, on); while (one && !one.matches(kind));
    return one;
  };
  const go = one => {
    if (!one) return;
    if (marked) marked.classList.remove("here");
    one.classList.add("here");
    one.scrollIntoView({block: "start"});
    if (one.id) history.replaceState(null, "", "#" + one.id);
    event.preventDefault();
  };
  const fold = one => {
    const all = one ? [...one.querySelectorAll("details")] : [];
    const open = all.some(each => !each.open);
    all.forEach(each => { each.open = open; });
  };
  switch (event.key) {
    case "j": go(here ? step(here, true, "article") : first); break;
    case "k": go(step(here, false, "article")); break;
    case "n": go(here ? step(here, true, ".user") : first); break;
    case "p": go(step(here, false, ".user")); break;
    case "g": go(first); break;
    case "G": go(document.querySelector("main").lastElementChild.lastElementChild); break;
    case "e": fold(here); break;
  }
});
"""
_KEYS = (
    "<kbd>j</kbd> <kbd>k</kbd> next and previous message, <kbd>n</kbd> <kbd>p</kbd> of the user, "
    '<kbd>e</kbd> unfold, <a href="#end">to the end</a>'
)
_FOOT = (
    '</section>\n</main>\n<footer id="end"><p>Exported by nacre.</p></footer>\n'
    f"<script>{SCRIPT}</script>\n</body>\n</html>\n"
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
        f"<title>{title}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n"
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
    yield _FOOT


def policy() -> str:
    """What the page may do: be styled by its own style and run its own script; nothing else."""
    style, script = (f"sha256-{b64encode(sha256(text.encode()).digest()).decode()}" for text in (STYLE, SCRIPT))
    return f"default-src 'none'; style-src '{style}'; script-src '{script}'; base-uri 'none'; form-action 'none'"


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
