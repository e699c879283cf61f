"""The search page: what was found, session by session, with a link to each message."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from nacre.entries import Hit
from nacre.render.html import escaped
from nacre.render.text import one_line
from nacre.web import links
from nacre.web.articles import time
from nacre.web.highlight import snippet

MOST = 200


def html(query: str, hits: Sequence[Hit]) -> str:
    """What a query found."""
    groups = "".join(_group(key, found, query) for key, found in grouped(hits).items())
    return (
        f'<main class="found"><h1>Search</h1><p role="status">{_told(query, hits)}</p>{groups}'
        f"<p class=hint>{_HINT}</p></main>"
    )


def items(hits: Sequence[Hit]) -> list[dict[str, object]]:
    return [{"key": hit.key, "n": hit.n, "ts": hit.ts, "role": hit.role, "snippet": hit.snippet} for hit in hits]


def markdown(query: str, hits: Sequence[Hit]) -> Iterator[str]:
    yield f"# Search: {one_line(query)}\n\n{_told('', hits)}\n"
    for key, found in grouped(hits).items():
        yield f"\n## {one_line(key)}\n\n"
        for hit in found:
            yield f"- [#{hit.n}]({links.to('s', key, at=hit.n)}#{hit.n}) {hit.role}: {one_line(hit.snippet)}\n"


def grouped(hits: Sequence[Hit]) -> dict[str, list[Hit]]:
    """Hits by session, each session where its best one is."""
    found: dict[str, list[Hit]] = {}
    for hit in hits:
        found.setdefault(hit.key, []).append(hit)
    return found


def _told(query: str, hits: Sequence[Hit]) -> str:
    if not query and not hits:
        return "Words must all match."
    count = f"{len(hits):,}{' or more' if len(hits) == MOST else ''} message{'s' * (len(hits) != 1)}"
    return f"{count} in {len(grouped(hits)):,} session{'s' * (len(grouped(hits)) != 1)}"


def _group(key: str, hits: Sequence[Hit], query: str) -> str:
    rows = "".join(_hit(hit, query) for hit in hits)
    shown = escaped(one_line(key))
    head = f'<a href="{escaped(links.to("s", key))}">{shown}</a> <i>{len(hits)}</i>'
    return f"<section><h2>{head}</h2><ol>{rows}</ol></section>"


def _hit(hit: Hit, query: str) -> str:
    address = f"{links.to('s', hit.key, at=hit.n, q=query)}#{hit.n}"
    return (
        f'<li class="{escaped(hit.role)}"><a href="{escaped(address)}"><span class="facts"><b>{escaped(hit.role)}</b> '
        f"#{hit.n} {time(hit.ts)}</span><span>{snippet(hit.snippet)}</span></a></li>"
    )


_HINT = (
    "<code>&quot;a phrase&quot;</code>, <code>-not</code>, <code>role:user</code>, <code>tool:shell</code>, "
    "<code>session:telegram</code>, <code>since:7d</code> and <code>until:2026-01-31</code> narrow it."
)
