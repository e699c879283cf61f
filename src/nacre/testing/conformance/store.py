"""How a store is described to the suite, and nacre described that way."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Protocol, TypeAlias

import nacre


class Store(Protocol):
    """What the suite does with a store.

    These are plain functions. A store whose methods are awaited needs a class around it, with an `asyncio.Runner`.
    """

    def append(self, session: str, text: str, id: str) -> None:
        """Store a message; return when it is as safe as the store promises, and raise if it is not stored.

        `id` names this one write: a second call with the same id is a retry. A store without such ids ignores it, and
        says so in `not_applicable`.
        """

    def read(self, session: str) -> list[str]:
        """The texts of a session, oldest first; none if there is no such session."""
        ...

    def close(self) -> None:
        """Release everything; the store may be opened again."""


Factory: TypeAlias = Callable[[Path], Store]
"""Opens the store in a directory, which may be empty or hold what an earlier process left there.

It may have an attribute `not_applicable`: the names of checks that cannot be asked of this store, each with the reason.
"""


class NacreStore:
    """nacre's files, as they are by default."""

    def __init__(self, path: Path) -> None:
        self._sessions = nacre.open(path)

    def append(self, session: str, text: str, id: str) -> None:
        self._sessions.add_message(session, "user", text, id=id)

    def read(self, session: str) -> list[str]:
        return [str(message.content) for message in self._sessions.get_history(session)]

    def close(self) -> None:
        self._sessions.close()


def open_nacre(path: Path) -> Store:
    return NacreStore(path)
