"""A transcript's page: its head with what can be done, the messages that were read, and a place to write."""

from __future__ import annotations

import secrets
from collections.abc import Sequence

from nacre.channels.file_parts import MAX_IMAGE_BYTES, MAX_TEXT_BYTES
from nacre.history.branches import Bar
from nacre.history.transcript import CHUNK, Transcript
from nacre.keys import is_internal
from nacre.render.conversation import Notice, unreadable
from nacre.render.html import escape
from nacre.render.text import clip, one_line
from nacre.web.pages import message_html, session_usage, urls
from nacre.web.pages.layout import MAX_LABEL, icon, top
from nacre.web.pages.message_form import MAX_FILES
from nacre.web.pages.turn_view import Question, question_html

_MAX_NAME = 60


def html(  # noqa: PLR0913 - what a page is made of
    shown: Transcript,
    *,
    model: str,
    query: str = "",
    limit: int = 0,
    is_new: bool = False,
    is_busy: bool = False,
    aside: Notice | None = None,
    may_choose: bool = True,
    questions: Sequence[Question] = (),
) -> str:
    """The page's body; `model` answers, with `limit` tokens, `questions` wait for a person, `is_busy` in a turn.

    `may_choose` offers to choose another model, `aside` says what is in quarantine.
    """
    is_open = not (shown.tip or shown.is_archived or _is_fixed(shown))
    empty = "" if shown.high else _EMPTY if is_open else '<p class="none">There are no messages.</p>'
    title = "New session" if is_new else escape(clip(one_line(shown.title or shown.key), MAX_LABEL))
    menu = "" if is_new or _is_fixed(shown) else _menu(shown)
    head = top(title, more=f'<span id="status" role="status"></span>{menu}')
    notice = failure = again = ""
    if _other(shown):
        newest = f'<a href="{escape(urls.to("s", shown.key))}">Newest</a>'
        notice = f'<aside class="bar"><p>An older session with this key. {newest}</p></aside>'
    if shown.failure and not is_busy:
        # Why the last message has no answer, until it has one.
        failure = f'<p class="doing wrong" role="alert">{escape(shown.failure)}</p>'
    if is_open and shown.live:
        # Have the last message answered once more, on a branch of its own.
        again = (
            f'<form id="again" method="post" action="{escape(urls.to("say", shown.key))}">{_hidden("again", "last")}'
            '<button class="plain" title="Answer once more, on another branch (R)">↻ Answer again</button></form>'
        )
    return (
        f'{head}<main id="transcript" tabindex="-1" {_facts(shown, query)}><span id="main" tabindex="-1"></span>'
        f"{_about(shown, is_new=is_new, limit=limit, aside=aside)}"
        f"{notice}{_summary_bar(shown)}{_gap(shown, 'before')}"
        f"{message_html.sections(shown, message_html.marker(query))}"
        f"{_gap(shown, 'after')}{empty}"
        f'<div id="live" aria-live="polite"{" data-busy" if is_busy else ""}>'
        f"{''.join(map(question_html, questions))}{failure}</div>"
        f"{again}</main>"
        f"{_footer(shown, model, is_new=is_new, may_choose=may_choose) if is_open else _closed_footer(shown)}"
    )


_EMPTY = (
    '<div class="welcome"><h2>What shall we do?</h2>'
    "<p>Write a message below. The session is created with it, and every step of the answer is stored before the next "
    "begins: close this page whenever you like, nothing is lost.</p>"
    "<p>Attach images and text files by the paper clip, by pasting or by dropping them here. A tool that may change "
    "something asks you first. <kbd>Esc</kbd> and then <kbd>?</kbd> lists all keys.</p></div>"
)


def _facts(shown: Transcript, query: str) -> str:
    facts = {
        "key": shown.key,
        "page": urls.to("s", shown.key),
        "raw": urls.to("s", shown.key, ".json"),
        "fork": "" if _is_fixed(shown) else urls.to("do/fork", shown.key),
        "turn": urls.to("turn", shown.key),
        "beside": urls.to("beside", shown.key),
        "part": urls.to("part", shown.key),
        "api": urls.page(f"/api/sessions/{urls.segment(shown.key)}"),
        "query": urls.query(tip=shown.tip, all=int(shown.is_all), g=_other(shown), q=query).removeprefix("?"),
        "low": shown.low,
        "high": shown.high,
        "chunk": CHUNK,
        "n": shown.n,
        "generation": shown.generation,
        "anchor": shown.anchor,
        "tip": shown.tip,
    }
    return " ".join(f'data-{name}="{escape(str(value))}"' for name, value in facts.items())


def _other(shown: Transcript) -> str:
    """The generation, if it is not the newest."""
    return "" if not shown.generations or shown.generation == shown.generations[-1] else shown.generation


def _is_fixed(shown: Transcript) -> bool:
    """Tell whether it can only be read: an older session with its key, or one of nacre's own."""
    return bool(_other(shown)) or is_internal(shown.key)


# ---- the head


def _about(shown: Transcript, *, is_new: bool, limit: int, aside: Notice | None) -> str:
    """What is known of the session, above its messages."""
    facts = [
        f'<span class="key">{escape(one_line(shown.key))}</span>',
        f'<span id="count">{shown.live:,} message{"s" * (shown.live != 1)}</span>',
    ]
    facts += ["archived"] if shown.is_archived else []
    if not is_new:
        # The same as JSON and Markdown, and the sessions before and after this one in the list.
        query = {"tip": shown.tip, "g": _other(shown)}
        files = [
            f'<a href="{escape(urls.to("s", shown.key, f".{suffix}", **query))}">.{suffix}</a>'
            for suffix in ("json", "md")
        ]
        steps = [
            f'<a href="{escape(urls.to("beside", shown.key, step=step))}" data-step="{step}">{step}</a>'
            for step in ("newer", "older")
        ]
        facts += [" ".join(files), " ".join(steps)]
    tags = "".join(
        f' <a class="tag" href="{escape(urls.page("/", tag=tag))}">{escape(one_line(tag))}</a>' for tag in _tags(shown)
    )
    # What of the session is in quarantine, until it is settled, and what of this page cannot be read.
    found = (notice for notice in (aside, unreadable(shown.key, shown.losses)) if notice is not None)
    wrong = "".join(
        f'<p class="wrong" role="status">{escape(one_line(notice.text))} '
        f"<code>{escape(one_line(notice.command))}</code></p>"
        for notice in found
    )
    # Links to what was archived under the same key before.
    links = ""
    for number, uid in enumerate(shown.generations, 1):
        here = ' aria-current="true"' if uid == shown.generation else ""
        links += f'<a href="{escape(urls.to("s", shown.key, g=uid))}"{here}>{number}</a>'
    drawing = session_usage.drawing(shown.uses, limit=limit)
    whole = f'<a href="{escape(urls.to("use", shown.key))}">whole session</a>'
    use = (
        f'<details class="use"><summary>{session_usage.legend(shown.uses, limit=limit)}</summary>{drawing}'
        f"<p>{session_usage.KEY} · {whole}</p></details>"
    )
    lives = f'<nav class="chips" aria-label="Generations">generations: {links}</nav>'
    return (
        f'<div class="about"{" hidden" if is_new else ""}><p>{" · ".join(facts)}{tags}</p>'
        f"{wrong}{lives if len(shown.generations) > 1 else ''}{use if drawing else ''}</div>"
    )


def _tags(shown: Transcript) -> list[str]:
    """What people have put on a session."""
    found = shown.meta.get("tags")
    return [tag for tag in found if isinstance(tag, str)] if isinstance(found, list) else []


def _menu(shown: Transcript) -> str:
    """What can be done to the session: pin it, and what is folded away."""
    key, pin, forms = shown.key, "", ""
    if not shown.is_archived:
        is_pinned = shown.meta.get("pinned") is True
        state = "true" if is_pinned else "false"
        look = f'aria-pressed="{state}" aria-label="Pinned" title="Pin to the top of the list"'
        button = f'<button class="plain pin" {look}>{"★" if is_pinned else "☆"}</button>'
        value = "" if is_pinned else _hidden("pinned", 1)
        pin = f'<form method="post" action="{escape(urls.to("do/pin", key))}">{value}{button}</form>'
        tags = ", ".join(map(one_line, _tags(shown)))
        forms += _form(key, "title", "Rename", _field("title", "Title", shown.title))
        forms += _form(key, "tags", "Tag", _field("tags", "Tags, separated by commas", tags))
    forms += _form(key, "fork", "Fork", _field("to", "Key of the fork", f"{key}-2"), _hidden("at", shown.tip))
    forms += _form(key, "unarchive", "Unarchive") if shown.is_archived else _form(key, "archive", "Archive")
    sure = '<label><input type="checkbox" name="sure" value="1" required> erase it for good</label>'
    forms += _form(key, "delete", "Delete", sure, kind="danger")
    name = "Rename, tag, fork, archive, delete"
    return (
        f'{pin}<details class="menu"><summary aria-label="{name}" title="{name} (t)">{icon("more")}</summary>'
        f"<div>{forms}</div></details>"
    )


def _form(key: str, verb: str, words: str, *inside: str, kind: str = "") -> str:
    address = escape(urls.to(f"do/{verb}", key))
    look = f' class="{kind}"' if kind else ""
    return f'<form method="post" action="{address}">{"".join(inside)}<button{look}>{words}</button></form>'


def _field(name: str, label: str, value: str) -> str:
    return f'<input name="{name}" aria-label="{label}" placeholder="{label}" value="{escape(value)}">'


def _hidden(name: str, value: object) -> str:
    return f'<input type="hidden" name="{name}" value="{escape(str(value))}">' if value else ""


# ---- around the messages


def _summary_bar(shown: Transcript) -> str:
    """The bar above the history, for what a summary stands for or a cut has left out."""
    if shown.is_all or not shown.hidden:
        return ""
    first = shown.bars[0] if shown.bars else Bar(n=0, covers=0, text="")
    one = Bar(n=first.n, covers=shown.hidden, text=first.text)
    address = urls.to("s", shown.key, all=1, place=shown.hidden, g=_other(shown))
    saved = session_usage.savings(shown.uses, one.n)
    more = f'{f" ({saved})" if saved else ""}; <a href="{escape(address)}#s{one.n}">show</a>'
    return message_html.bar(one, is_in_force=True, more=more)


def _gap(shown: Transcript, side: str) -> str:
    """Messages that are fetched when they come into view; without a script, a link to them."""
    places = [place for chunk in shown.chunks for place in chunk.places] or [shown.low - 1]
    count = places[0] - shown.low if side == "before" else shown.high - places[-1]
    place = places[0] - 1 if side == "before" else places[-1] + 1
    count = max(count, 0)
    words = "earlier" if side == "before" else "later"
    address = urls.to("s", shown.key, place=place, tip=shown.tip, all=int(shown.is_all), g=_other(shown))
    inside = f'<a href="{escape(address)}">{count:,} {words} messages</a>' if count else ""
    return f'<div class="gap" id="{side}" data-count="{count}">{inside}</div>\n'


def _footer(shown: Transcript, model: str, *, is_new: bool, may_choose: bool) -> str:
    """Where a message is written; without a script it is sent as a form."""
    name = escape(clip(one_line(model), _MAX_NAME))
    choice = escape(urls.to("model", shown.key))
    words = 'title="Choose the model that answers (m)"'
    # Before there is a session, only the script can keep a choice for it.
    chosen = (
        f'<button type="button" class="model" data-choice="{choice}" disabled {words}>{name}</button>'
        if is_new
        else f'<a class="model" href="{choice}" data-choice="{choice}" {words}>{name}</a>'
    )
    chosen = chosen if may_choose else ""
    return (
        f'<footer class="writing"><form id="say" method="post" action="{escape(urls.to("say", shown.key))}">'
        f'<input type="hidden" name="id" value="{secrets.token_hex(16)}">'
        '<p id="editing" hidden><span></span> <button type="button" class="plain">Cancel</button></p>'
        '<p id="waiting" role="status" hidden><span>Sent when the answer is complete.</span> '
        '<button type="button" class="plain">Not yet</button></p>'
        '<p id="refused" class="wrong" aria-live="assertive"></p>'
        '<ul id="files" aria-label="Attachments" hidden></ul>'
        '<textarea name="content" rows="1" required placeholder="Write a message" aria-label="Message" dir="auto"'
        f"{' autofocus' if is_new else ''}></textarea>"
        '<div class="actions"><button type="button" class="plain" id="attach" hidden title="Attach files (a)" '
        f'aria-label="Attach files">{icon("clip")}</button>'
        f'<input type="file" id="choose" multiple hidden aria-label="Files" data-text="{MAX_TEXT_BYTES}" '
        f'data-image="{MAX_IMAGE_BYTES}" data-files="{MAX_FILES}">'
        f'{chosen}<button type="button" id="stop" hidden title="Stop the answer (.)">Stop</button>'
        '<button class="primary" title="Send (Enter)">Send</button></div></form></footer>'
    )


def _closed_footer(shown: Transcript) -> str:
    """What is said where nothing can be written; on another branch, with the way to go on from it."""
    if shown.tip:
        current = f'<a href="{escape(urls.to("s", shown.key, g=_other(shown)))}">Current branch</a>'
        form = _form(shown.key, "rewind", "Continue from this branch", _hidden("to", shown.tip), kind="primary")
        may_continue = not (shown.is_archived or _is_fixed(shown))
        words = f"<p>This is not the current branch. {current}</p>{form if may_continue else ''}"
        return f'<footer class="writing other">{words}</footer>'
    if is_internal(shown.key):
        words = "This session belongs to nacre: it can be read here, but not changed."
    elif shown.is_archived and not _other(shown):
        words = "This session is archived."
    else:
        words = "This is not the current part of the session."
    return f'<footer class="writing"><p class="none">{words}</p></footer>'
