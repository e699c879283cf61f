"""A store of which only the keys with a prefix can be reached."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, TypeVar

from nacre.errors import InvalidArgument, InvalidKey
from nacre.messages import Load, QuarantineEntry, Receipt, Report, Settlement
from nacre.records import Record, Transaction, View
from nacre.storage.protocol import Backend, Generation, Hold, Listed, Status

if TYPE_CHECKING:
    from nacre.storage.group_commit import Pending
    from nacre.storage.watch import Watch

T = TypeVar("T")


class Prefixed:
    """The sessions of a store whose keys begin with a prefix: reads find nothing elsewhere, writes are refused."""

    def __init__(self, whole: Backend, prefix: str) -> None:
        self._whole = whole
        self._prefix = prefix

    @property
    def location(self) -> str:
        return self._whole.location

    @property
    def load(self) -> Load | None:
        return self._whole.load

    def run(self, key: str, transaction: Transaction) -> int:
        return self._whole.run(self._own(key), transaction)

    def submit(self, key: str, transaction: Transaction) -> Pending:
        return self._whole.submit(self._own(key), transaction)

    def read(self, key: str, get: Callable[[View], T]) -> T | None:
        return self._whole.read(key, get) if self._is_own(key) else None

    def hold(self, key: str) -> Hold:
        return self._whole.hold(self._own(key))

    def follow(self, key: str, after: int) -> Iterator[tuple[str, Record]]:
        return self._whole.follow(self._own(key), after)

    def watch(self) -> Watch:
        return self._whole.watch()

    def close(self) -> None:
        """Do nothing: the store is its owner's to close."""

    def generations(self, key: str, get: Callable[[Generation], T]) -> list[T]:
        return self._whole.generations(key, get) if self._is_own(key) else []

    def status(self, key: str) -> Status:
        return self._whole.status(key) if self._is_own(key) else ""

    def each(self, *, archived: bool) -> Iterator[Listed]:
        return (found for found in self._whole.each(archived=archived) if self._is_own(found.key))

    def move(self, key: str, *, archive: bool) -> None:
        self._whole.move(self._own(key), archive=archive)

    def fork(self, key: str, new_key: str, transaction: Transaction) -> None:
        self._whole.fork(self._own(key), self._own(new_key), transaction)

    def delete(self, key: str) -> None:
        self._whole.delete(self._own(key))

    def compact(self, key: str, keep: Callable[[View], set[int]]) -> bool:
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
        """The key if it has the prefix; raises InvalidKey in the same words for any other, there or not."""
        if not self._is_own(key):
            raise InvalidKey(f"{key!r:.200} is not a key of your sessions: these begin with {self._prefix!r}")
        return key

    def _one(self, key: str | None) -> str:
        if key is None:
            raise InvalidArgument("name one of your sessions; only the owner can check all of them")
        return self._own(key)
