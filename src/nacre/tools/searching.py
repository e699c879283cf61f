"""search_sessions: what was said in earlier conversations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from nacre.entries import Hit
from nacre.tools.functions import Function

_MOST = 50


class Search(Protocol):
    """How sessions are searched: `Sessions.search`, or something that narrows it."""

    def __call__(self, query: str, *, limit: int) -> Sequence[Hit]:
        """The messages that a query finds, best first."""


class Searcher:
    """The tool that searches."""

    def __init__(self, search: Search) -> None:
        self._search = search

    def search_sessions(self, query: str, limit: int = 10) -> str:
        """Find words in all earlier conversations; each hit names its session, record, time and speaker.

        Args:
            query: words that must all be there; "a phrase", -not, role:user, tool:NAME, since:2026-01-31 narrow it
            limit: how many hits at most
        """
        hits = self._search(query, limit=min(max(limit, 1), _MOST))
        return "\n".join(map(_line, hits)) or f"nothing was found for {query!r}"


def search_tool(search: Search) -> Function:
    """The tool that searches sessions."""
    return Function(Searcher(search).search_sessions, effect="read")


def _line(hit: Hit) -> str:
    return f"{hit.key}@{hit.n}  {hit.ts:%Y-%m-%d %H:%M}  {hit.role}: {' '.join(hit.snippet.split())}"
