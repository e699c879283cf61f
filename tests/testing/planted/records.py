"""Planted bugs: which records are read, and when."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from nacre import Sessions, View
from nacre.storage.memory_store import MemoryStore
from nacre.testing import contract
from tests.testing.planted.table import planted

T = TypeVar("T")


@planted(contract.records_are_read_between_two_numbers)
class AfterIsInclusive(Sessions):
    def records(self, key: str, kind: str | None = None, *, after: int = 0, **rest: Any) -> Any:
        return super().records(key, kind, after=max(after - 1, 0), **rest)


@planted(contract.records_are_read_between_two_numbers)
class BeforeIsInclusive(Sessions):
    def records(self, key: str, kind: str | None = None, *, before: int | None = None, **rest: Any) -> Any:
        return super().records(key, kind, before=None if before is None else before + 1, **rest)


@planted(contract.records_are_read_between_two_numbers)
class TheLastAreCountedBeforeTheRange(Sessions):
    def records(self, key: str, kind: str | None = None, *, last: int | None = None, **rest: Any) -> Any:
        numbers = {entry.n for entry in super().records(key, kind, last=last)}
        return (entry for entry in super().records(key, kind, **rest) if entry.n in numbers)


@planted(contract.the_last_records_come_oldest_first)
class TheLastRecordsComeNewestFirst(Sessions):
    def records(self, key: str, kind: str | None = None, *, last: int | None = None, **rest: Any) -> Any:
        found = list(super().records(key, kind, last=last, **rest))
        return iter(found if last is None else found[::-1])


@planted(contract.the_last_records_come_oldest_first)
class TheLastAreCountedInEveryKind(Sessions):
    def records(self, key: str, kind: str | None = None, **rest: Any) -> Any:
        return (entry for entry in super().records(key, **rest) if kind in (None, entry.kind))


@planted(contract.the_last_records_come_oldest_first)
class TheLastNoneAreAll(Sessions):
    def records(self, key: str, kind: str | None = None, *, last: int | None = None, **rest: Any) -> Any:
        return super().records(key, kind, last=last or None, **rest)


@planted(contract.records_of_earlier_generations_count_where_no_number_is_given)
class OnlyTheNewestGenerationIsRead(Sessions):
    def records(self, key: str, kind: str | None = None, *, after: int = 0, **rest: Any) -> Any:
        return super().records(key, kind, after=after or 1, **rest)


@planted(contract.records_of_earlier_generations_count_where_no_number_is_given)
class TheLastAreOfTheNewestGeneration(Sessions):
    def records(self, key: str, kind: str | None = None, *, last: int | None = None, **rest: Any) -> Any:
        return super().records(key, kind, last=last, **rest if last is None else {"after": 1, **rest})


@planted(contract.records_of_earlier_generations_count_where_no_number_is_given)
class NumbersAreOfEveryGeneration(Sessions):
    def records(self, key: str, kind: str | None = None, *, after: int = 0, **rest: Any) -> Any:
        return (entry for entry in super().records(key, kind, **rest) if entry.n > after)


@planted(contract.records_end_where_they_did_when_they_were_asked_for)
class RecordsGoOnWithWhatIsWritten(Sessions):
    def records(self, key: str, kind: str | None = None, **rest: Any) -> Any:
        last = ("", 0)
        for entry in super().records(key, kind, **rest):
            last = (entry.generation, entry.n)
            yield entry
        yield from (entry for entry in super().records(key, kind) if (entry.generation, entry.n) > last)


@planted(contract.records_end_where_they_did_when_they_were_asked_for)
class ArchivingEndsTheRecordsThatAreBeingRead(MemoryStore):
    def read_generation(self, key: str, uid: str, get: Callable[[View], T]) -> T | None:
        return super().read_generation(key, uid, get) if self.status(key) and self._active[key].uid == uid else None


@planted(
    contract.a_deletion_ends_the_records_that_are_being_read,
    contract.a_large_payload_that_was_erased_ends_the_records,
)
class RecordsAreReadAllAtOnce(Sessions):
    def records(self, key: str, kind: str | None = None, **rest: Any) -> Any:
        return iter(list(super().records(key, kind, **rest)))


@planted(contract.a_deletion_ends_the_records_that_are_being_read)
class TheNextSessionIsTakenForTheOneThatWasDeleted(MemoryStore):
    def read_generation(self, key: str, uid: str, get: Callable[[View], T]) -> T | None:
        return super().read_generation(key, uid, get) or self.read(key, get)


@planted(contract.records_are_refused_for_wrong_arguments_when_they_are_asked_for)
class WrongArgumentsAreRefusedWhenTheFirstIsTaken(Sessions):
    def records(self, key: str, kind: str | None = None, **rest: Any) -> Any:
        yield from super().records(key, kind, **rest)


@planted(contract.records_are_refused_for_wrong_arguments_when_they_are_asked_for)
class ANumberBelowZeroIsZero(Sessions):
    def records(self, key: str, kind: str | None = None, *, after: Any = 0, **rest: Any) -> Any:
        return super().records(key, kind, after=max(after or 0, 0), **rest)
