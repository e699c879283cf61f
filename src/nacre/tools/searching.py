"""search_sessions: what was said in earlier conversations."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from nacre.agent.ports import Scene
from nacre.entries import Hit
from nacre.tools.functions import Function

_MOST = 50
_FAR = 2000


class Search(Protocol):
    """How sessions are searched: `Sessions.search`, or something that narrows it."""

    def __call__(self, query: str, *, limit: int) -> Sequence[Hit]:
        """The messages that a query finds, best first."""


Sees = Callable[[str, str], bool]
"""Whether one session may see what was said in another."""


class Searcher:
    """The tool that searches."""

    def __init__(self, search: Search, sees: Sees) -> None:
        self._search = search
        self._sees = sees

    def search_sessions(self, query: str, scene: Scene, limit: int = 10) -> str:
        """Search all earlier conversations; each result has its session, record, time and role.

        Args:
            query: words that must all match; "a phrase", -not, role:user, tool:NAME, since:2026-01-31 narrow it
            limit: maximum number of results
        """
        most = min(max(limit, 1), _MOST)
        # Who may see little gets the best of what may be seen, if that is not far behind.
        found = self._search(query, limit=most if self._sees(scene.key, "") else _FAR)
        hits = [hit for hit in found if self._sees(scene.key, hit.key)][:most]
        return "\n".join(map(_line, hits)) or f"nothing was found for {query!r}"


def search_tool(search: Search, *, sees: Sees = lambda *_: True) -> Function:
    """The tool that searches sessions."""
    return Function(Searcher(search, sees).search_sessions, effect="read")


def _line(hit: Hit) -> str:
    return f"{hit.key}@{hit.n}  {hit.ts:%Y-%m-%d %H:%M}  {hit.role}: {' '.join(hit.snippet.split())}"
