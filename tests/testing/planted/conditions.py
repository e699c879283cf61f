"""Planted bugs: conditions that every write takes, by `expect` and `id`, and versions."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from msgspec.structs import replace

from nacre import Conflict, Pop, Rewind, Sessions, SetMeta, Summarise, Truncate, Version
from nacre.records import AppendMessage, Transaction
from nacre.storage.file_store import FileStore
from nacre.storage.memory_store import MemoryStore
from nacre.testing import contract
from tests.testing.planted.table import planted

CHANGES = (
    "add_message",
    "add_full_message",
    "add_messages",
    "set_summary",
    "set_history",
    "truncate_history",
    "submit",
    "update",
    "rewind",
    "clear",
    "set_meta",
    "set_labels",
    "append",
)
MOVES = ("archive", "unarchive", "fork", "delete")


def forget(condition: str, method: str) -> type[Sessions]:
    """Sessions that are wrong in one way: a method does not pass on a condition of its caller."""
    true = getattr(Sessions, method)

    def call(self: Sessions, *given: Any, **rest: Any) -> Any:
        return true(self, *given, **{**rest, condition: None} if condition in rest else rest)

    return type(f"{method}_forgets_{condition}", (Sessions,), {method: call})


for each in CHANGES:
    planted(contract.every_write_is_refused_if_the_session_has_changed)(forget("expect", each))
    planted(
        contract.every_write_is_stored_once_under_its_id,
        contract.every_write_refuses_other_content_under_its_id,
    )(forget("id", each))

for each in MOVES:
    planted(contract.whole_sessions_are_moved_only_as_expected)(forget("expect", each))

for each in ("expect", "id"):
    planted(contract.pop_gives_a_retry_the_same_message)(forget(each, "pop"))


@planted(contract.whole_sessions_are_moved_only_as_expected)
class OnlyAnActiveSessionIsDeletedAsExpected(MemoryStore):
    def delete(self, key: str, *, expect: int | Version | None = None, **rest: Any) -> None:
        super().delete(key, expect=expect if self.status(key) == "active" else None)


@planted(contract.every_write_refuses_other_content_under_its_id)
class OnlyMessagesUnderAnIdAreCompared(MemoryStore):
    def run(self, key: str, transaction: Transaction) -> int:
        has_message = any(isinstance(one, AppendMessage) for one in transaction.operations)
        return super().run(key, transaction if has_message else replace(transaction, print=""))


@planted(contract.every_write_is_known_by_its_id_after_reopening)
class OnlyIdsOfMessagesAreStored(FileStore):
    def __init__(self, *place: Any, **options: Any) -> None:
        super().__init__(*place, **options)
        self._seen: dict[tuple[str, str], int] = {}

    def run(self, key: str, transaction: Transaction) -> int:
        if transaction.id is None or any(isinstance(one, AppendMessage | Pop) for one in transaction.operations):
            return super().run(key, transaction)
        at = (key, transaction.id)
        self._seen[at] = self._seen.get(at) or super().run(key, replace(transaction, id=None))
        return self._seen[at]


@planted(contract.every_write_is_known_by_its_id_after_reopening)
class WhichFieldsOfMetaWereSetIsNotStored(FileStore):
    def run(self, key: str, transaction: Transaction) -> int:
        unnamed = [SetMeta(one.fields) if isinstance(one, SetMeta) else one for one in transaction.operations]
        return super().run(key, replace(transaction, operations=unnamed))


@planted(
    contract.every_write_is_refused_if_the_session_has_changed,
    contract.a_version_sees_every_record_but_those_of_maintenance,
)
class AVersionIsComparedWithTheHistory(MemoryStore):
    def run(self, key: str, transaction: Transaction) -> int:
        h = self.read(key, lambda view: view.state.h)
        is_fresh = isinstance(transaction.expect, Version) and h is not None and transaction.expect.n >= h
        return super().run(key, replace(transaction, expect=h) if is_fresh else transaction)


@planted(contract.every_write_is_refused_if_the_session_has_changed)
class ANumberIsComparedWithEveryRecord(MemoryStore):
    def run(self, key: str, transaction: Transaction) -> int:
        if isinstance(transaction.expect, int) and transaction.expect != self.read(key, lambda view: view.n):
            raise Conflict("something was stored since")
        return super().run(key, transaction)


@planted(contract.a_version_sees_every_record_but_those_of_maintenance)
class TheGenerationOfAVersionIsNotCompared(MemoryStore):
    def run(self, key: str, transaction: Transaction) -> int:
        version = transaction.expect
        if isinstance(version, Version) and version.n:
            version = Version(version.n, self.read(key, lambda view: view.uid) or "")
        return super().run(key, replace(transaction, expect=version))


@planted(contract.a_version_sees_every_record_but_those_of_maintenance)
class MaintenanceCountsForAVersion(FileStore):
    def run(self, key: str, transaction: Transaction) -> int:
        version = transaction.expect
        if isinstance(version, Version) and version.n != (self.read(key, lambda view: view.n) or 0):
            raise Conflict("something was stored since")
        return super().run(key, transaction)


@planted(contract.a_version_sees_every_record_but_those_of_maintenance)
class AVersionOfAnArchivedSessionMayBeginAnother(MemoryStore):
    def run(self, key: str, transaction: Transaction) -> int:
        return super().run(key, replace(transaction, expect=None) if self.status(key) == "archived" else transaction)


@planted(contract.a_version_of_nothing_means_a_new_session)
class AVersionOfNothingExpectsNothing(MemoryStore):
    def run(self, key: str, transaction: Transaction) -> int:
        return super().run(key, replace(transaction, expect=None) if transaction.expect == Version() else transaction)


@planted(contract.a_version_of_nothing_means_a_new_session)
class AnArchivedSessionIsNotNothing(MemoryStore):
    def run(self, key: str, transaction: Transaction) -> int:
        if transaction.expect == Version() and self.status(key):
            raise Conflict("there is a session")
        return super().run(key, transaction)


@planted(contract.a_version_of_nothing_means_a_new_session)
class AnUnknownKeyHasTheVersionMinusOne(Sessions):
    def snapshot(self, key: str, **rest: Any) -> Any:
        found = super().snapshot(key, **rest)
        return found if found.n else replace(found, n=-1)


@planted(contract.pop_gives_a_retry_the_same_message)
class ARetryOfPopGivesTheLastMessage(Sessions):
    def pop(self, key: str, **rest: Any) -> Any:
        last = self.get_history(key, last=1)
        return super().pop(key, **rest) and last[0]


@planted(contract.pop_gives_a_retry_the_same_message)
class AMessageIsLookedForInTheNewestGeneration(Sessions):
    def pop(self, key: str, **rest: Any) -> Any:
        found = super().pop(key, **rest)
        return found if found in [stored.message for stored in self.transcript(key)[-3:]] else None


@planted(contract.what_changes_nothing_does_not_use_up_its_id)
class AnIdIsStoredAlthoughNothingIsChanged(Sessions):
    def update(self, key: str, operations: Iterable[Any], **rest: Any) -> Any:
        number = super().update(key, operations, **rest)
        return number or (self.append(key, "x.id", {}, id=rest["id"]) if self.exists(key) else 0)


@planted(contract.what_changes_nothing_does_not_use_up_its_id)
class WhatChangesNothingBeginsASession(Sessions):
    def submit(self, key: str, operations: Iterable[Any], **rest: Any) -> Any:
        return super().submit(key, [SetMeta({"begun": True}), *operations], **rest)


@planted(contract.what_changes_nothing_does_not_use_up_its_id)
class WhatHasNoEffectIsLeftOutOfAStep(Sessions):
    def submit(self, key: str, operations: Iterable[Any], **rest: Any) -> Any:
        live = self.snapshot(key).live
        kept = [one for one in operations if not (isinstance(one, Truncate) and one.keep >= live)]
        return super().submit(key, kept, **rest)


@planted(contract.submit_takes_every_operation)
class SubmitTakesOnlyEntries(Sessions):
    def submit(self, key: str, operations: Iterable[Any], **rest: Any) -> Any:
        changes = Summarise | Truncate | Rewind | Pop
        return super().submit(key, [one for one in operations if not isinstance(one, changes)], **rest)


@planted(contract.submit_takes_every_operation)
class SubmitAppliesOneByOne(Sessions):
    def submit(self, key: str, operations: Iterable[Any], **rest: Any) -> Any:
        return [super(SubmitAppliesOneByOne, self).submit(key, [one], **rest) for one in operations][-1]


@planted(contract.submit_takes_every_operation)
class SubmitBeginsASessionWithWhatIsRefused(Sessions):
    def submit(self, key: str, operations: Iterable[Any], **rest: Any) -> Any:
        if not self.exists(key):
            self.append(key, "x.begun", {})
        return super().submit(key, operations, **rest)


@planted(contract.meta_may_have_fields_of_any_name)
class FieldsOfMetaAreTakenForConditions(Sessions):
    def set_meta(self, key: str, given: Any = None, /, **fields: Any) -> None:
        super().set_meta(key, **{**(given or {}), **fields})


@planted(contract.meta_may_have_fields_of_any_name)
class MetaWithoutAFieldBeginsASession(Sessions):
    def set_meta(self, key: str, given: Any = None, /, **fields: Any) -> None:
        super().set_meta(key, given or {"title": None}, **fields)
