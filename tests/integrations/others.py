"""Other processes that use the sessions of an adapter by nacre's own operations, between its calls and inside them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from random import Random
from typing import Any

import nacre
from nacre.errors import Conflict, SessionNotFound

UNKNOWN: list[Any] = [5, "x", None, [], {}, {"id": 5}, {"entry": 5}, {"json": 5}]
"""What somebody who does not know a framework may have put under its name."""
CALL = nacre.ToolCall(id="c1", name="look_up", arguments={"city": "Rome"})


class Others:
    """Another process; what it does to a session is drawn at random."""

    def __init__(self, place: str, random: Random, *, framework: str) -> None:
        self.sessions = nacre.open(place)
        self._random = random
        self._foreign = [
            nacre.Message(role="user", content="And in Oslo?"),
            nacre.Message(role="assistant", tool_calls=(CALL,)),
            nacre.Message(role="tool", tool_call_id=CALL.id, content="sunny"),
            *(
                nacre.Message(role=role, content="not yours", extra={framework: value})
                for role in ("user", "assistant", "tool")
                for value in UNKNOWN
            ),
        ]

    def close(self) -> None:
        self.sessions.close()

    def status(self, key: str) -> str:
        return self.sessions.status(key)

    def marks(self, key: str, framework: str, generation: str | None = None) -> list[Any]:
        """What the messages of a generation, or of all, have under the name of the framework."""
        stored = self.sessions.transcript(key)
        return [one.message.extra.get(framework) for one in stored if generation in (None, one.generation)]

    def act(self, key: str, keys: Sequence[str]) -> str:
        """Do something to a session, which may be forked to one of `keys`; returns what."""
        acts: dict[str, Callable[[], object]] = {
            "archive": lambda: self.sessions.archive(key),
            "unarchive": lambda: self.sessions.unarchive(key),
            "delete": lambda: self.sessions.delete(key),
            "say": lambda: self.sessions.add_full_message(key, self._random.choice(self._foreign)),
            "rewind": lambda: self.sessions.rewind(key, self._number(key)),
            "fork": lambda: self.sessions.fork(key, self._random.choice(keys)),
            "redact": lambda: self.sessions.redact(key, self._number(key)),
            "label": lambda: self.sessions.set_labels(key, title=str(self._random.random())),
            "note": lambda: self.sessions.update(key, [nacre.AppendRecord("x.note", "…")]),
            "save": lambda: self.sessions.save(key),
        }
        # Deletions are rare, or there would never be much.
        act = self._random.choices(list(acts), weights=[1 if act == "delete" else 4 for act in acts])[0]
        # It is told as any process is if there is nothing to do it to, or if it was deleted meanwhile.
        with suppress(Conflict, SessionNotFound):
            acts[act]()
        return act

    def toggle(self, key: str) -> None:
        """Archive a session, or bring it back."""
        if self.status(key):
            (self.sessions.archive if self.status(key) == "active" else self.sessions.unarchive)(key)

    def _number(self, key: str) -> int:
        return self._random.choice(self.sessions.snapshot(key).numbers or [1])


class Interrupted(nacre.Sessions):
    """Sessions in whose calls others act: once, before the call number `at` of those that are counted."""

    at = 0
    act: Callable[[], object] | None = None

    @classmethod
    def open(cls, place: str) -> Interrupted:
        sessions = nacre.open(place)
        sessions.__class__ = cls
        assert isinstance(sessions, cls)
        return sessions

    def interrupt(self, at: int, act: Callable[[], object] | None) -> None:
        self.at, self.act = at, act

    def _count(self) -> None:
        self.at -= 1
        if self.at == 0 and self.act is not None:
            self.act()

    def snapshot(self, *given: Any, **named: Any) -> Any:
        self._count()
        return super().snapshot(*given, **named)

    def read(self, *given: Any, **named: Any) -> Any:
        self._count()
        return super().read(*given, **named)

    def update(self, *given: Any, **named: Any) -> Any:
        self._count()
        return super().update(*given, **named)

    def submit(self, *given: Any, **named: Any) -> Any:
        self._count()
        return super().submit(*given, **named)

    def delete(self, *given: Any, **named: Any) -> Any:
        self._count()
        return super().delete(*given, **named)
