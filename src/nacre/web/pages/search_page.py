"""The search page: what was found, session by session, with a link to each message."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence

from nacre.errors import StoreError
from nacre.index import minilm
from nacre.messages import Hit
from nacre.records import View
from nacre.render.html import escape
from nacre.render.html_page import time
from nacre.render.text import clip, one_line
from nacre.sessions import Sessions
from nacre.web.pages import urls
from nacre.web.pages.layout import MAX_LABEL
from nacre.web.pages.message_html import snippet

MAX_HITS = 200
_MAX_SEARCHED = 2_000
_FAILED = re.compile(r"(?:^|\s)has:error(?=\s|$)")
_MEANING = re.compile(r"(?:^|\s)by:meaning(?=\s|$)")
_CHOICES = (
    ("role:user", "you"),
    ("role:assistant", "answers"),
    ("role:tool", "results"),
    ("has:error", "failed calls"),
    ("by:meaning", "in other words"),
    ("since:1d", "last day"),
    ("since:7d", "last week"),
    ("since:30d", "last month"),
)


def search(sessions: Sessions, query: str, *, is_installed: Callable[[], bool] = minilm.is_installed) -> list[Hit]:
    """What a query finds.

    `has:error` leaves the calls that failed, among the best or newest that are looked at. `by:meaning` finds other
    words too, where embeddings are installed.
    """
    meaning = _MEANING.search(query) is not None and is_installed()
    query = _MEANING.sub(" ", query).strip()
    if not query:
        return []
    if _FAILED.search(query) is None:
        return sessions.search(query, limit=MAX_HITS, meaning=meaning)
    hits = sessions.search(f"{_FAILED.sub(' ', query)} role:tool", limit=_MAX_SEARCHED)
    failed = {key: _failed_calls(sessions, key, many) for key, many in by_session(hits).items()}
    return [hit for hit in hits if (hit.generation, hit.n) in failed[hit.key]][:MAX_HITS]


def words(query: str) -> str:
    """What of a query is to be marked in a message."""
    return _MEANING.sub(" ", _FAILED.sub(" ", query)).strip()


def titles(sessions: Sessions, hits: Sequence[Hit]) -> dict[str, str]:
    """The titles of the sessions in which something was found."""
    named = {key: sessions.get_meta(key).get("title", "") for key in by_session(hits)}
    return {key: clip(title, MAX_LABEL) for key, title in named.items() if isinstance(title, str) and title}


def html(
    query: str,
    hits: Sequence[Hit],
    titles: Mapping[str, str],
    *,
    is_installed: Callable[[], bool] = minilm.is_installed,
) -> str:
    """What a query found."""
    groups = ""
    for key, many in by_session(hits).items():
        rows = ""
        for hit in many:
            address = f"{urls.to('s', hit.key, at=hit.n, g=hit.generation, q=words(query))}#{hit.n}"
            rows += (
                f'<li class="{escape(hit.role)}"><a href="{escape(address)}">'
                f'<span class="facts"><b>{escape(hit.role)}</b> #{hit.n} {time(hit.ts)}</span>'
                f'<span dir="auto">{snippet(hit.snippet)}</span></a></li>'
            )
        title = titles.get(key, "")
        own_key = f' <span class="key">{escape(one_line(key))}</span>' if title else ""
        shown = escape(one_line(title or key))
        head = f'<a href="{escape(urls.to("s", key))}">{shown}</a>{own_key} <i>{len(many)}</i>'
        groups += f"<section><h2>{head}</h2><ol>{rows}</ol></section>"
    choices = [choice for choice in _CHOICES if choice[0] != "by:meaning" or is_installed()]
    chips = "".join(_chip(query, token, name) for token, name in choices)
    return (
        f'<main class="found" id="main" tabindex="-1"><form class="filters" role="search" aria-label="Search" '
        f'action="{urls.page("/search")}"><input type="search" name="q" value="{escape(query)}" dir="auto" '
        'placeholder="Search all sessions" aria-label="Search all sessions"><button>Search</button></form>'
        f'<nav class="chips" aria-label="Narrow the search">{chips}</nav>'
        f'<p role="status">{_summary(query, hits)}</p>{groups}<p class="hint">{_HINT}</p></main>'
    )


def markdown(query: str, hits: Sequence[Hit]) -> Iterator[str]:
    yield f"# Search: {one_line(query)}\n\n{_summary('', hits)}\n"
    for key, many in by_session(hits).items():
        yield f"\n## {one_line(key)}\n\n"
        for hit in many:
            address = f"{urls.to('s', key, at=hit.n, g=hit.generation)}#{hit.n}"
            yield f"- [#{hit.n}]({address}) {hit.role}: {one_line(hit.snippet)}\n"


def by_session(hits: Sequence[Hit]) -> dict[str, list[Hit]]:
    """Hits by session, each session where its best one is."""
    by_key: dict[str, list[Hit]] = {}
    for hit in hits:
        by_key.setdefault(hit.key, []).append(hit)
    return by_key


def _failed_calls(sessions: Sessions, key: str, hits: Sequence[Hit]) -> set[tuple[str, int]]:
    """Which of these messages of a session, by generation and number, are results of calls that failed."""

    def get(view: View) -> set[tuple[str, int]]:
        # Hits of what is active do not name their generation.
        here = [hit for hit in hits if hit.generation == view.uid or (view.is_newest and not hit.generation)]
        found = ((hit, view.find(hit.n)) for hit in here)
        return {(hit.generation, hit.n) for hit, one in found if one and one.m and one.m.extra.get("failed") is True}

    try:
        return set().union(*sessions.read_generations(key, get))
    except StoreError:
        return set()


def _summary(query: str, hits: Sequence[Hit]) -> str:
    if not query and not hits:
        return "All words must match; of a question, some."
    count = f"{len(hits):,}{' or more' if len(hits) == MAX_HITS else ''} message{'s' * (len(hits) != 1)}"
    return f"{count} in {len(by_session(hits)):,} session{'s' * (len(by_session(hits)) != 1)}"


def _chip(query: str, token: str, name: str) -> str:
    """A filter to add, or to take away if it is there; of two times the newer choice holds."""
    tokens = query.split()
    is_there = token in tokens
    kept = [one for one in tokens if one != token and not (token.startswith("since:") and one.startswith("since:"))]
    address = urls.page("/search", q=" ".join(kept if is_there else [*kept, token]))
    here = ' aria-current="true"' if is_there else ""
    return f'<a href="{escape(address)}"{here}>{name}</a>'


_HINT = (
    "<code>&quot;a phrase&quot;</code>, <code>-not</code>, <code>role:user</code>, <code>tool:shell</code>, "
    "<code>has:error</code>, <code>session:telegram</code>, <code>since:7d</code> and "
    "<code>until:2026-01-31</code> narrow it."
)
