"""search_sessions: what was said in earlier conversations."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from itertools import islice
from typing import NamedTuple, Protocol, TypeVar

from nacre.agent.ports import Scene
from nacre.entries import Hit, Message, Record, Stored, View, message_of, place_of, time_of
from nacre.errors import InvalidKey, ToolError
from nacre.history.message_text import text_of
from nacre.keys import is_internal
from nacre.tools.functions import Function

T = TypeVar("T")
Sees = Callable[[str, str], bool]
"""Whether one session may see what was said in another."""

_MAX_RESULTS = 50
_AROUND = 2
_MAX_NEIGHBOUR = 1000
# Between two messages there are few other records.
_GAP = 64
# A turn has far fewer records; one that cannot be found is not looked for through the whole log.
_MAX_TURN = 4096


class Searchable(Protocol):
    """What of `Sessions` is needed."""

    def search(  # noqa: PLR0913 - what a search can be narrowed to
        self, query: str, *, limit: int, fill: bool, skip: tuple[str, int] | None, only: str, meaning: bool
    ) -> Sequence[Hit]:
        """The messages that a query finds, best first; with `only`, those of one session."""

    def read(self, key: str, get: Callable[[View], T]) -> T | None:
        """What a function makes of the records of a session; None if there is none."""

    def transcript(self, key: str) -> Sequence[Stored]:
        """Every message of a session, those of its archived generations too."""


class Searcher:
    """The tool that searches; by meaning, too, while `meaning` says that it can be done."""

    def __init__(self, sessions: Searchable, sees: Sees, meaning: Callable[[], bool]) -> None:
        self._sessions = sessions
        self._sees = sees
        self._meaning = meaning

    def search_sessions(self, scene: Scene, query: str = "", place: str = "", limit: int = 10) -> str:
        """Search all earlier conversations, or read a result in full.

        Each result has its place (session@record), time and role, and an excerpt.

        Args:
            query: a question, or words; "a phrase", -not, role:user, tool:NAME, since:2026-01-31 narrow it
            place: instead of a query: read the message at this place, such as cli:1@42, with those before and after it
            limit: maximum number of results
        """
        if bool(query.strip()) == bool(place.strip()):
            raise ToolError("give a query to search for, or a place to read")
        return self._search(query, scene, limit) if query.strip() else self._show(place.strip(), scene)

    def _search(self, query: str, scene: Scene, limit: int) -> str:
        start = self._sessions.read(scene.key, lambda view: turn_start(view, scene.call.id))
        sees_all = self._sees(scene.key, "")
        # Who may see little gets the best of what may be seen, and nothing by which words of others could be guessed.
        found = self._sessions.search(
            query,
            limit=min(max(limit, 1), _MAX_RESULTS),
            fill=True,
            skip=(scene.key, start) if start else None,
            only="" if sees_all else scene.key,
            meaning=self._meaning(),
        )
        hits = [hit for hit in found if self._sees(scene.key, hit.key)]
        lines = [f"{hit.place}  {hit.ts:%Y-%m-%d %H:%M}  {hit.role}: {' '.join(hit.snippet.split())}" for hit in hits]
        return "\n".join(lines) or f"nothing was found for {query!r}"

    def _show(self, place: str, scene: Scene) -> str:
        """A message in full, with its neighbours."""
        key, _, numbered = place.rpartition("@")
        generation, _, number = numbered.rpartition("/")
        if not key or not number.isascii() or not number.isdecimal():
            raise ToolError(f"{place!r} is no place: give it as a search shows it, such as cli:1@42")
        found: list[_Found] = []
        if self._sees(scene.key, key) and not is_internal(key):
            found = self._read(key, generation, int(number))
        if not found:
            raise ToolError(f"there is no message {place}: a search shows where messages are")
        return "\n\n".join(one.shown(key, is_whole=one.n == int(number)) for one in found)

    def _read(self, key: str, generation: str, n: int) -> list[_Found]:
        """The message and its neighbours; nothing if there is no such message.

        A place without a generation is in the active one, or, if that has no such message, in the newest that has.
        """
        try:
            active, found = self._sessions.read(key, lambda view: (view.uid, _near(view, n))) or ("", [])
            if found and generation in ("", active):
                return found
            stored = self._sessions.transcript(key)
        except InvalidKey:
            return []
        having = (one.generation for one in reversed(stored) if one.n == n and generation in ("", one.generation))
        uid = next(having, None)
        said = [_Found(one.n, one.ts, one.message, one.generation) for one in stored if one.generation == uid]
        at = next((at for at, one in enumerate(said) if one.n == n), 0)
        return said[max(0, at - _AROUND) : at + _AROUND + 1]


class _Found(NamedTuple):
    """A message with its place."""

    n: int
    ts: datetime
    message: Message
    generation: str = ""

    def shown(self, key: str, *, is_whole: bool) -> str:
        place = place_of(key, self.generation, self.n)
        parts = [text_of(self.message), *(f"{call.name} {call.arguments}" for call in self.message.tool_calls)]
        text = "\n".join(part for part in parts if part)
        if not is_whole and len(text) > _MAX_NEIGHBOUR:
            text = f"{text[:_MAX_NEIGHBOUR]}… (read {place} for the rest)"
        return f"{place}  {self.ts:%Y-%m-%d %H:%M}  {self.message.role}:\n{text}"


def search_tool(
    sessions: Searchable, *, sees: Sees = lambda *_: True, meaning: Callable[[], bool] = lambda: False
) -> Function:
    """The tool that searches and reads sessions."""
    return Function(Searcher(sessions, sees, meaning).search_sessions, effect="read")


def _near(view: View, n: int) -> list[_Found]:
    """A message and those before and after it; nothing if record `n` is not one."""
    record = view.find(n)
    if record is None or record.m is None:
        return []
    before = [one for one in islice(view.back(n - 1), _GAP) if one.m is not None][:_AROUND]
    after = list(islice(_after(view, n), _AROUND))
    return [_Found(one.n, time_of(one), message_of(one, view)) for one in (*before[::-1], record, *after)]


def _after(view: View, n: int) -> Iterator[Record]:
    """The messages after a record, until there is none for long."""
    last = n
    while n < min(view.n, last + _GAP):
        n += 1
        record = view.find(n)
        if record is not None and record.m is not None:
            last = n
            yield record


def turn_start(view: View, call: str) -> int:
    """The record with which the turn of a tool call begins: its words are in the question and in the call itself.

    A turn begins after the last answer that called nothing. 0 if the call is not in the log.
    """
    start, is_in_turn = 0, False
    for count, record in enumerate(view.back(view.n)):
        message = record.m
        if count == _MAX_TURN:
            break
        if message is None:
            continue
        if message.role == "assistant" and not message.tool_calls and is_in_turn:
            break
        is_in_turn = is_in_turn or any(one.id == call for one in message.tool_calls)
        start = record.n
    return start if is_in_turn else 0
