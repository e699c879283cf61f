"""A transcript's page: its head with what can be done, the messages at hand, and a place to write."""

from __future__ import annotations

import secrets
from collections.abc import Sequence

from nacre.keys import is_internal
from nacre.render.html import escaped
from nacre.render.quarantine import unreadable
from nacre.render.text import one_line
from nacre.web import articles, asking, links, plot
from nacre.web.asking import Question
from nacre.web.branch import Bar
from nacre.web.frame import top
from nacre.web.highlight import marker
from nacre.web.transcript import CHUNK, Transcript


def html(
    shown: Transcript, *, query: str = "", limit: int = 0, is_new: bool = False, questions: Sequence[Question] = ()
) -> str:
    """The page's body; `limit` is how many tokens the model is shown, `questions` wait for a person."""
    is_open = not (shown.tip or shown.is_archived or _is_fixed(shown))
    return (
        f"{top(query=query)}{_head(shown, is_new=is_new, limit=limit)}"
        f'<main id="transcript" {_facts(shown, query)}>'
        f"{_notice(shown)}{_covered(shown)}{_gap(shown, 'before')}"
        f"{articles.sections(shown, marker(query))}"
        f"{_gap(shown, 'after')}{'' if shown.high else _EMPTY}</main>"
        f'<div id="live" class="live" aria-live="polite">{"".join(map(asking.html, questions))}</div>'
        f"{_footer(shown) if is_open else _closed(shown)}"
    )


_EMPTY = '<p class="none">There are no messages yet.</p>'


def _facts(shown: Transcript, query: str) -> str:
    facts = {
        "key": shown.key,
        "page": links.to("s", shown.key),
        "raw": links.to("s", shown.key, ".json"),
        "fork": "" if _is_fixed(shown) else links.to("do/fork", shown.key),
        "turn": links.to("turn", shown.key),
        "beside": links.to("beside", shown.key),
        "part": links.to("part", shown.key),
        "api": links.page(f"/api/sessions/{links.quoted(shown.key)}"),
        "query": links.query(tip=shown.tip, all=int(shown.is_all), g=_other(shown), q=query),
        "low": shown.low,
        "high": shown.high,
        "chunk": CHUNK,
        "n": shown.n,
        "generation": shown.generation,
        "anchor": shown.anchor,
        "tip": shown.tip,
    }
    return " ".join(f'data-{name}="{escaped(str(value))}"' for name, value in facts.items())


def _other(shown: Transcript) -> str:
    """The generation, if it is not the newest."""
    return "" if not shown.generations or shown.generation == shown.generations[-1] else shown.generation


def _is_fixed(shown: Transcript) -> bool:
    """Tell whether it can only be read: an older session with its key, or one of nacre's own."""
    return bool(_other(shown)) or is_internal(shown.key)


# ---- the head


def _head(shown: Transcript, *, is_new: bool, limit: int) -> str:
    title = escaped(one_line(shown.title or shown.key))
    key = f'<span class="key">{escaped(one_line(shown.key))}</span> · ' if shown.title else ""
    counted = f'<span id="count">{shown.live:,} message{"s" * (shown.live != 1)}</span>'
    archived = " · archived" if shown.is_archived else ""
    about = "" if is_new else f" · {_twins(shown)} · {_beside(shown)}"
    return (
        f'<header><div class="title"><h1>{title}</h1>{"" if is_new else _pin(shown)}</div>'
        f'<p>{key}{counted}{archived}{about}{_tags(shown)}<span id="status" role="status"></span></p>'
        f"{_aside(shown)}{_lives(shown)}{_use(shown, limit)}{'' if is_new else _menu(shown)}</header>"
    )


def _aside(shown: Transcript) -> str:
    """What of the session is in quarantine, until it is settled, and what of this page cannot be read."""
    found = (notice for notice in (shown.aside, unreadable(shown.key, shown.losses)) if notice is not None)
    return "".join(
        f'<p class="wrong" role="status">{escaped(one_line(notice.text))} '
        f"<code>{escaped(one_line(notice.command))}</code></p>"
        for notice in found
    )


def _beside(shown: Transcript) -> str:
    """The sessions before and behind this one in the list."""
    return " ".join(
        f'<a href="{escaped(links.to("beside", shown.key, step=step))}" data-step="{step}">{step}</a>'
        for step in ("newer", "older")
    )


def _pin(shown: Transcript) -> str:
    if shown.is_archived or _is_fixed(shown):
        return ""
    is_pinned = shown.meta.get("pinned") is True
    look = f'aria-pressed="{"true" if is_pinned else "false"}" aria-label="Pinned" title="Pin to the top of the list"'
    button = f'<button class="pin" {look}>{"★" if is_pinned else "☆"}</button>'
    value = "" if is_pinned else _hidden("pinned", 1)
    return f'<form method="post" action="{escaped(links.to("do/pin", shown.key))}">{value}{button}</form>'


def _tags(shown: Transcript) -> str:
    return "".join(
        f' <a class="tag" href="{escaped(links.page("/", tag=tag))}">{escaped(one_line(tag))}</a>'
        for tag in tags(shown)
    )


def tags(shown: Transcript) -> list[str]:
    """What people have put on a session."""
    found = shown.meta.get("tags")
    return [tag for tag in found if isinstance(tag, str)] if isinstance(found, list) else []


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
    return f'<nav class="chips" aria-label="Generations">generations: {found}</nav>'


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
    """What can be done to the session; nothing if it can only be read."""
    if _is_fixed(shown):
        return ""
    key = shown.key
    title = "" if shown.is_archived else _form(key, "title", "Rename", _field("title", "Title", shown.title))
    labels = (
        ""
        if shown.is_archived
        else _form(key, "tags", "Tag", _field("tags", "Tags, separated by commas", _list(shown)))
    )
    fork = _form(key, "fork", "Fork", _field("to", "Key of the fork", f"{key}-2"), _hidden("at", shown.tip))
    close = _form(key, "unarchive", "Unarchive") if shown.is_archived else _form(key, "archive", "Archive")
    sure = '<label><input type="checkbox" name="sure" value="1" required> erase it for good</label>'
    return (
        '<details class="menu"><summary>Rename, tag, fork, archive, delete</summary>'
        f"{title}{labels}{fork}{close}{_form(key, 'delete', 'Delete', sure, kind='danger')}</details>"
    )


def _list(shown: Transcript) -> str:
    return ", ".join(map(one_line, tags(shown)))


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
        back = _form(shown.key, "rewind", "Continue from this branch", _hidden("to", shown.tip))
        return (
            '<aside class="bar" aria-label="Branch"><p>This is not the current branch. '
            f'<a href="{escaped(current)}">Current branch</a></p>{"" if _is_fixed(shown) else back}</aside>'
        )
    if _other(shown):
        newest = f'<a href="{escaped(current)}">Newest</a>'
        return f'<aside class="bar"><p>An older session with this key. {newest}</p></aside>'
    return ""


def _covered(shown: Transcript) -> str:
    """The bar above the history, for what a summary stands for or a cut has left out."""
    if shown.is_all or not shown.hidden:
        return ""
    first = shown.bars[0] if shown.bars else Bar(n=0, covers=0, text="")
    one = Bar(n=first.n, covers=shown.hidden, text=first.text)
    address = links.to("s", shown.key, all=1, place=shown.hidden, g=_other(shown))
    saved = plot.saved(shown.uses, one.n)
    more = f'{f" ({saved})" if saved else ""}; <a href="{escaped(address)}#s{one.n}">show</a>'
    return articles.bar(one, is_in_force=True, more=more)


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
    if is_internal(shown.key):
        words = "This session belongs to nacre: it can be read here, but not changed."
    elif shown.is_archived and not _other(shown):
        words = "This session is archived."
    else:
        words = "This is not the current part of the session."
    return f'<footer><p class="none">{words}</p></footer>'
