"""A transcript's page: its head with what can be done, the messages at hand, and a place to write."""

from __future__ import annotations

import secrets

from nacre.render.html import escaped
from nacre.render.text import one_line
from nacre.web import articles, links, plot
from nacre.web.branch import Bar
from nacre.web.frame import top
from nacre.web.highlight import marker
from nacre.web.transcript import CHUNK, Transcript


def html(shown: Transcript, *, query: str = "", limit: int = 0, is_new: bool = False) -> str:
    """The page's body; `limit` is how many tokens the model is shown."""
    is_open = not (shown.tip or shown.is_archived or _other(shown))
    return (
        f"{top(query=query)}{_head(shown, is_new=is_new, limit=limit)}"
        f'<main id="transcript" {_facts(shown, query)}>'
        f"{_notice(shown)}{_covered(shown)}{_gap(shown, 'before')}"
        f"{articles.sections(shown, marker(query))}"
        f"{_gap(shown, 'after')}{'' if shown.high else _EMPTY}</main>"
        f'<div id="live" class="live" aria-live="polite"></div>{_footer(shown) if is_open else _closed(shown)}'
    )


_EMPTY = '<p class="none">Nothing has been said here yet.</p>'


def _facts(shown: Transcript, query: str) -> str:
    facts = {
        "key": shown.key,
        "page": links.to("s", shown.key),
        "raw": links.to("s", shown.key, ".json"),
        "part": links.to("part", shown.key),
        "api": f"/api/sessions/{links.quoted(shown.key)}",
        "query": links.page("", tip=shown.tip, all=int(shown.is_all), g=_other(shown), q=query).removeprefix("?"),
        "low": shown.low,
        "high": shown.high,
        "chunk": CHUNK,
        "n": shown.n,
        "anchor": shown.anchor,
        "tip": shown.tip,
    }
    return " ".join(f'data-{name}="{escaped(str(value))}"' for name, value in facts.items())


def _other(shown: Transcript) -> str:
    """The generation, if it is not the newest."""
    return "" if not shown.generations or shown.generation == shown.generations[-1] else shown.generation


# ---- the head


def _head(shown: Transcript, *, is_new: bool, limit: int) -> str:
    title = escaped(one_line(shown.title or shown.key))
    key = f'<span class="key">{escaped(one_line(shown.key))}</span> · ' if shown.title else ""
    counted = f'<span id="count">{shown.live:,} message{"s" * (shown.live != 1)}</span>'
    archived = " · archived" if shown.is_archived else ""
    menu = "" if is_new else _menu(shown)
    return (
        f"<header><h1>{title}</h1><p>{key}{counted}{archived} · {_twins(shown)}"
        f'<span id="status" role="status"></span></p>{_lives(shown)}{_use(shown, limit)}{menu}</header>'
    )


def _twins(shown: Transcript) -> str:
    query = {"tip": shown.tip, "g": _other(shown)}
    return " ".join(
        f'<a href="{escaped(links.to("s", shown.key, f".{suffix}", **query))}">.{suffix}</a>'
        for suffix in ("json", "md")
    )


def _lives(shown: Transcript) -> str:
    """Links to what was archived under the same key before."""
    if len(shown.generations) < 2:  # noqa: PLR2004 - one is no choice
        return ""
    found = "".join(_life(shown, at, uid) for at, uid in enumerate(shown.generations))
    return f'<nav class="chips" aria-label="Generations">begun anew: {found}</nav>'


def _life(shown: Transcript, at: int, uid: str) -> str:
    here = ' aria-current="true"' if uid == shown.generation else ""
    return f'<a href="{escaped(links.to("s", shown.key, g=uid))}"{here}>{at + 1}</a>'


def _use(shown: Transcript, limit: int) -> str:
    drawn = plot.drawing(shown.uses, limit=limit)
    if not drawn:
        return ""
    whole = f'<a href="{escaped(links.to("use", shown.key))}">whole session</a>'
    return (
        f'<details class="use"><summary>{plot.legend(shown.uses, limit=limit)}</summary>{drawn}'
        f"<p>{plot.KEY} · {whole}</p></details>"
    )


def _menu(shown: Transcript) -> str:
    key = shown.key
    title = "" if shown.is_archived else _form(key, "title", "Rename", _field("title", "Title", shown.title))
    fork = _form(key, "fork", "Fork", _field("to", "Key of the fork", f"{key}-2"), _hidden("at", shown.tip))
    close = _form(key, "unarchive", "Bring back") if shown.is_archived else _form(key, "archive", "Archive")
    sure = '<label><input type="checkbox" name="sure" value="1" required> erase it for good</label>'
    return (
        '<details class="menu"><summary>Rename, fork, archive, delete</summary>'
        f"{title}{fork}{close}{_form(key, 'delete', 'Delete', sure, kind='danger')}</details>"
    )


def _form(key: str, verb: str, words: str, *inside: str, kind: str = "") -> str:
    address = escaped(links.to(f"do/{verb}", key))
    look = f' class="{kind}"' if kind else ""
    return f'<form method="post" action="{address}">{"".join(inside)}<button{look}>{words}</button></form>'


def _field(name: str, label: str, value: str) -> str:
    return f'<input name="{name}" aria-label="{label}" placeholder="{label}" value="{escaped(value)}">'


def _hidden(name: str, value: object) -> str:
    return f'<input type="hidden" name="{name}" value="{escaped(str(value))}">' if value else ""


# ---- around the messages


def _notice(shown: Transcript) -> str:
    """Says that this is not where the session goes on."""
    current = links.to("s", shown.key)
    if shown.tip:
        back = _form(shown.key, "rewind", "Go on from this branch", _hidden("to", shown.tip))
        return (
            '<aside class="bar" aria-label="Branch"><p>This branch was left. '
            f'<a href="{escaped(current)}">Current branch</a></p>{"" if _other(shown) else back}</aside>'
        )
    if _other(shown):
        return f'<aside class="bar"><p>An earlier life of this key. <a href="{escaped(current)}">Newest</a></p></aside>'
    return ""


def _covered(shown: Transcript) -> str:
    """The bar above the history, for what a summary stands for or a cut has left out."""
    if shown.is_all or not shown.hidden:
        return ""
    first = shown.bars[0] if shown.bars else Bar(n=0, covers=0, text="")
    one = Bar(n=first.n, covers=shown.hidden, text=first.text)
    address = links.to("s", shown.key, all=1, place=shown.hidden, g=_other(shown))
    return articles.bar(one, is_in_force=True, more=f'; <a href="{escaped(address)}#s{one.n}">show</a>')


def _gap(shown: Transcript, side: str) -> str:
    """Messages that are fetched when they come into view; without a script, a link to them."""
    places = [place for chunk in shown.chunks for place in chunk.places] or [shown.low - 1]
    count = places[0] - shown.low if side == "before" else shown.high - places[-1]
    place = places[0] - 1 if side == "before" else places[-1] + 1
    count = max(count, 0)
    words = "earlier" if side == "before" else "later"
    address = links.to("s", shown.key, place=place, tip=shown.tip, all=int(shown.is_all), g=_other(shown))
    inside = f'<a href="{escaped(address)}">{count:,} {words} messages</a>' if count else ""
    return f'<div class="gap" id="{side}" data-count="{count}">{inside}</div>\n'


def _footer(shown: Transcript) -> str:
    return (
        f'<footer><form id="say" method="post" action="{escaped(links.to("say", shown.key))}">'
        f'<input type="hidden" name="id" value="{secrets.token_hex(16)}">'
        '<textarea name="content" rows="1" required placeholder="Write a message" aria-label="Message"></textarea>'
        '<button>Send</button><button type="button" id="stop" hidden>Stop</button></form></footer>'
    )


def _closed(shown: Transcript) -> str:
    words = "This session is archived." if shown.is_archived and not _other(shown) else "The session goes on elsewhere."
    return f'<footer><p class="none">{words}</p></footer>'
