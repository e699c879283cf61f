"""search_sessions: what was said in earlier conversations."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

from nacre.agent.ports import Scene
from nacre.entries import Hit, Past
from nacre.tools.functions import Function

T = TypeVar("T")
Sees = Callable[[str, str], bool]
"""Whether one session may see what was said in another."""

_MOST = 50
_FAR = 2000
# A turn has far fewer records; one that cannot be found is not looked for through the whole log.
_LONGEST_TURN = 4096


class Searched(Protocol):
    """What of `Sessions` is needed."""

    def search(self, query: str, *, limit: int, fill: bool, skip: tuple[str, int] | None, prefix: str) -> Sequence[Hit]:
        """The messages that a query finds, best first; with a prefix, in sessions whose key begins with it."""

    def read(self, key: str, get: Callable[[Past], T]) -> T | None:
        """What a function makes of the records of a session; None if there is none."""


class Searcher:
    """The tool that searches."""

    def __init__(self, sessions: Searched, sees: Sees) -> None:
        self._sessions = sessions
        self._sees = sees

    def search_sessions(self, query: str, scene: Scene, limit: int = 10) -> str:
        """Search all earlier conversations; each result has its session, record, time and role.

        Args:
            query: a question, or words; "a phrase", -not, role:user, tool:NAME, since:2026-01-31 narrow it
            limit: maximum number of results
        """
        most = min(max(limit, 1), _MOST)
        start = self._sessions.read(scene.key, lambda past: turn_start(past, scene.call.id))
        sees_all = self._sees(scene.key, "")
        # Who may see little gets the best of what may be seen, and nothing by which words of others could be guessed.
        found = self._sessions.search(
            query,
            limit=most if sees_all else _FAR,
            fill=True,
            skip=(scene.key, start) if start else None,
            prefix="" if sees_all else scene.key,
        )
        hits = [hit for hit in found if self._sees(scene.key, hit.key)][:most]
        return "\n".join(map(_line, hits)) or f"nothing was found for {query!r}"


def search_tool(sessions: Searched, *, sees: Sees = lambda *_: True) -> Function:
    """The tool that searches sessions."""
    return Function(Searcher(sessions, sees).search_sessions, effect="read")


def turn_start(past: Past, call: str) -> int:
    """The record with which the turn of a tool call begins: its words are in the question and in the call itself.

    A turn begins behind the last answer that called nothing. 0 if the call is not in the log.
    """
    start, is_in_turn = 0, False
    for count, record in enumerate(past.back(past.n)):
        message = record.m
        if count == _LONGEST_TURN:
            break
        if message is None:
            continue
        if message.role == "assistant" and not message.tool_calls and is_in_turn:
            break
        is_in_turn = is_in_turn or any(one.id == call for one in message.tool_calls)
        start = record.n
    return start if is_in_turn else 0


def _line(hit: Hit) -> str:
    return f"{hit.key}@{hit.n}  {hit.ts:%Y-%m-%d %H:%M}  {hit.role}: {' '.join(hit.snippet.split())}"
