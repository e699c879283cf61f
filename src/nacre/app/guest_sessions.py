"""The sessions of a store as a guest reaches them: their own, and no others."""

from __future__ import annotations

import builtins
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, TypeVar

from nacre.entries import Hit, Page, Past, QuarantineEntry, Receipt, Record, Report, Settlement, Unit
from nacre.errors import InvalidArgument, InvalidKey
from nacre.history.paging import Wanted
from nacre.sessions import Sessions
from nacre.store.base import Backend, Generation, Hold, Listed

if TYPE_CHECKING:
    from nacre.log.commit import Pending

T = TypeVar("T")


class GuestSessions(Sessions):
    """The sessions whose keys begin with a prefix; any other key has no session here, and cannot begin one.

    It is the wall behind the checks of the HTTP interface: whatever key a request brings through them, another's
    session is not to be had from it. Other names of sessions are unknown here, since they could lead outside.
    """

    def __init__(self, whole: Sessions, prefix: str) -> None:
        super().__init__(_GuestStore(whole._store, prefix))  # noqa: SLF001 - there is no other way up
        self._index = whole._index  # noqa: SLF001 - the same
        self._whole = whole
        self._prefix = prefix

    def search(  # noqa: PLR0913 - as in Sessions
        self,
        query: str,
        *,
        limit: int = 50,
        internal: bool = False,
        fill: bool = False,
        skip: tuple[str, int] | None = None,
        prefix: str = "",
        only: str = "",
        meaning: bool = False,
    ) -> builtins.list[Hit]:
        """Search the messages of the guest's sessions."""
        within = _narrower(self._prefix, prefix)
        if within is None:
            return []
        return self._whole.search(
            query,
            limit=limit,
            internal=internal,
            fill=fill,
            skip=skip,
            prefix=within,
            only=only,
            meaning=meaning,
        )

    def make_vectors(self, most: int = 16) -> int:  # noqa: ARG002 - as in Sessions
        """Do nothing: how many messages others have is not for a guest to know, and whoever serves them makes all."""
        return 0

    def delete(self, key: str) -> None:
        """Erase one of the guest's sessions for good."""
        if self.exists(key):
            self._whole.delete(key)

    def close(self) -> None:
        """Do nothing: the store is its owner's to close."""

    def _page(self, wanted: Wanted) -> Page:
        prefix = _narrower(self._prefix, wanted.prefix)
        return Page(items=[], total=0) if prefix is None else super()._page(wanted._replace(prefix=prefix))


class _GuestStore:
    """A store of which only keys with a prefix can be reached: reads find nothing elsewhere, writes are refused."""

    def __init__(self, whole: Backend, prefix: str) -> None:
        self._whole = whole
        self._prefix = prefix

    @property
    def location(self) -> str:
        return self._whole.location

    def run(self, key: str, unit: Unit) -> int:
        return self._whole.run(self._own(key), unit)

    def submit(self, key: str, unit: Unit) -> Pending:
        return self._whole.submit(self._own(key), unit)

    def read(self, key: str, get: Callable[[Past], T]) -> T | None:
        return self._whole.read(key, get) if self._is_own(key) else None

    def hold(self, key: str) -> Hold:
        return self._whole.hold(self._own(key))

    def follow(self, key: str, after: int) -> Iterator[tuple[str, Record]]:
        return self._whole.follow(self._own(key), after)

    def close(self) -> None:
        """Do nothing: the store is its owner's to close."""

    def generations(self, key: str, get: Callable[[Generation], T]) -> list[T]:
        return self._whole.generations(key, get) if self._is_own(key) else []

    def each(self, *, archived: bool) -> Iterator[Listed]:
        return (found for found in self._whole.each(archived=archived) if self._is_own(found.key))

    def move(self, key: str, *, archive: bool) -> None:
        self._whole.move(self._own(key), archive=archive)

    def fork(self, key: str, new_key: str, unit: Unit) -> None:
        self._whole.fork(self._own(key), self._own(new_key), unit)

    def delete(self, key: str) -> None:
        self._whole.delete(self._own(key))

    def compact(self, key: str, keep: Callable[[Past], set[int]]) -> bool:
        return self._whole.compact(self._own(key), keep)

    def verify(self, key: str | None) -> Report:
        return self._whole.verify(self._one(key))

    def repair(self, key: str) -> Receipt:
        return self._whole.repair(self._own(key))

    def quarantine(self, key: str | None) -> list[QuarantineEntry]:
        return [entry for entry in self._whole.quarantine(key) if self._is_own(entry.key)]

    def restore(self, key: str, n: int | None) -> Settlement:
        return self._whole.restore(self._own(key), n)

    def discard(self, key: str, n: int | None) -> Settlement:
        return self._whole.discard(self._own(key), n)

    def _is_own(self, key: str) -> bool:
        return key.startswith(self._prefix)

    def _own(self, key: str) -> str:
        """The key if it is the guest's; raises InvalidKey in the same words for any other, there or not."""
        if not self._is_own(key):
            raise InvalidKey(f"{key!r:.200} is not a key of your sessions: these begin with {self._prefix!r}")
        return key

    def _one(self, key: str | None) -> str:
        if key is None:
            raise InvalidArgument("name one of your sessions; only the owner can check all of them")
        return self._own(key)


def _narrower(one: str, other: str) -> str | None:
    """The longer of two beginnings of a key, if both can be one's; None otherwise."""
    longer, shorter = (one, other) if len(one) > len(other) else (other, one)
    return longer if longer.startswith(shorter) else None
