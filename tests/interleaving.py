"""Whether a call that reads a session and then changes it is one step, whatever another process does in between."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any, TypeAlias, cast

import nacre
from nacre.history.session_state import RULES
from nacre.storage.file_store import FileStore
from nacre.storage.protocol import Backend

Prepare: TypeAlias = Callable[[nacre.Sessions, str, str], object]
"""Begins a session under a key, with texts that begin with a word: two that begin alike have the same numbers."""
Call: TypeAlias = Callable[[nacre.Sessions, str], object]
Look: TypeAlias = Callable[[nacre.Sessions, str], object]

MEDDLES = ("archive", "delete", "archive and begin anew", "delete and begin anew", "write", "note")
_SAID = [{"role": "user", "content": "said meanwhile"}]


def assert_one_step(
    root: Path,
    meddle: str,
    *,
    prepare: Prepare,
    call: Call,
    look: Look,
    errors: tuple[type[Exception], ...] = (),
) -> None:
    """Let another process meddle before each read and write of a call.

    What the call returns and what `look` then finds must be as if one of the two had come after the other, or a call
    that raises has changed nothing. It may raise only what its framework documents.
    """
    gate = _Gate(FileStore(str(root), rules=RULES))
    keys = (f"s{number}" for number in count())
    with nacre.Sessions(cast("Backend", gate)) as ours, nacre.open(root) as other:

        def act(key: str) -> object:
            try:
                return call(ours, key)
            except errors as error:
                return type(error)

        def come_between(key: str) -> None:
            if meddle.startswith("archive"):
                if other.status(key) == "active":
                    other.archive(key)
            elif meddle.startswith("delete"):
                other.delete(key)
            elif meddle == "write":
                other.add_messages(key, _SAID)
            else:
                other.append(key, "x.note", {})
            if meddle.endswith("begin anew"):
                prepare(other, key, "new")

        def try_before(point: int) -> tuple[tuple[object, ...], bool]:
            """What comes of it if the other one meddles before a read or write, the first of which is 0."""
            key = next(keys)
            prepare(ours, key, "old")
            gate.interrupt_before(point, lambda: come_between(key))
            result = act(key)
            is_over = not gate.has_interrupted
            gate.interrupt_before(-1, lambda: None)
            if is_over:
                come_between(key)
            outcome = (result, _texts(other, key), look(other, key))
            other.delete(key)
            return outcome, is_over

        key = next(keys)
        prepare(ours, key, "old")
        come_between(key)
        without = (_texts(other, key), look(other, key))
        first, _ = try_before(0)
        found: list[tuple[object, ...]] = []
        is_over = False
        while not is_over:
            outcome, is_over = try_before(len(found) + 1)
            found.append(outcome)
    # The other one comes first, or last, or is alone.
    allowed = [first, found[-1], *((error, *without) for error in errors)]
    wrong = [(point, one) for point, one in enumerate(found, 1) if one not in allowed]
    assert not wrong, f"{wrong} is none of {allowed}"


def _texts(sessions: nacre.Sessions, key: str) -> object:
    """The messages of the active session, or that there is none."""
    status = sessions.status(key)
    return [one.content for one in sessions.get_history(key)] if status == "active" else status


class _Gate:
    """A store that calls a function before one of the calls of its methods."""

    def __init__(self, store: FileStore) -> None:
        self._store = store
        self.interrupt_before(-1, lambda: None)

    def interrupt_before(self, point: int, act: Callable[[], object]) -> None:
        self._left, self._act = point, act
        self.has_interrupted = False

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._store, name)
        if not callable(value):
            return value

        def call(*args: Any, **named: Any) -> Any:
            self._left -= 1
            if self._left == -1:
                self.has_interrupted = True
                self._act()
            return value(*args, **named)

        return call
