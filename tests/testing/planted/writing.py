"""Planted bugs: numbers, groups, `expect` and `id`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec
from msgspec.structs import replace

from nacre import Conflict, InvalidMessage, Sessions
from nacre.records import (
    AppendMessage,
    AppendRecord,
    Operation,
    Record,
    Records,
    RecordStamp,
    SetMeta,
    State,
    Transaction,
    Truncate,
)
from nacre.storage.memory_store import MemoryStore
from nacre.storage.transaction import fingerprint
from nacre.testing import contract
from tests.testing.planted.table import apply_with_state, planted


@planted(contract.numbers_are_never_reused, contract.numbers_increase_and_are_the_transcripts)
class NumbersArePlacesInTheHistory(Sessions):
    def add_message(self, key: str, role: str, content: str, **rest: Any) -> Any:
        super().add_message(key, role, content, **rest)
        return len(self.get_history(key))


@planted(contract.numbers_increase_and_are_the_transcripts)
class AGroupGivesItsFirstNumber(Sessions):
    def add_messages(self, key: str, messages: Iterable[Any], **rest: Any) -> Any:
        given = list(messages)
        return super().add_messages(key, given, **rest) - len(given) + 1


@planted(contract.a_group_is_stored_whole)
class AGroupIsStoredByHalves(Sessions):
    def add_messages(self, key: str, messages: Iterable[Any], **rest: Any) -> Any:
        given = list(messages)
        return super().add_messages(key, given[: (len(given) + 1) // 2], **rest)


@planted(contract.a_group_with_a_bad_message_is_not_stored)
class AGroupIsStoredOneByOne(Sessions):
    def add_messages(self, key: str, messages: Iterable[Any], **rest: Any) -> Any:
        return [self.add_full_message(key, message) for message in messages][-1]


@planted(contract.submit_is_add_messages_without_waiting)
class SubmitForgetsTheId(Sessions):
    def submit(self, key: str, operations: Iterable[Any], **rest: Any) -> Any:
        return super().submit(key, operations, **{**rest, "id": None})


@planted(contract.submit_is_add_messages_without_waiting)
class SubmitExpectsNothing(Sessions):
    def submit(self, key: str, operations: Iterable[Any], **rest: Any) -> Any:
        return super().submit(key, operations, **{**rest, "expect": None})


@planted(contract.a_transaction_may_hold_notes_and_meta)
class SubmitTakesOnlyMessages(Sessions):
    def submit(self, key: str, operations: Iterable[Any], **rest: Any) -> Any:
        return super().submit(key, [one for one in operations if not isinstance(one, AppendRecord | SetMeta)], **rest)


@planted(contract.expect_zero_means_a_new_session)
class ExpectZeroExpectsNothing(MemoryStore):
    def run(self, key: str, transaction: Transaction) -> int:
        return super().run(key, replace(transaction, expect=transaction.expect or None))


@planted(contract.a_stale_expect_is_a_conflict, contract.a_refused_expect_does_not_create_the_session)
class ExpectIsIgnored(MemoryStore):
    def run(self, key: str, transaction: Transaction) -> int:
        return super().run(key, replace(transaction, expect=None))


@planted(contract.a_stale_expect_is_a_conflict)
class OnlyAnEarlierNumberIsStale(MemoryStore):
    def run(self, key: str, transaction: Transaction) -> int:
        now = self.read(key, lambda view: view.state.h) or 0
        is_later = isinstance(transaction.expect, int) and transaction.expect > now
        return super().run(key, replace(transaction, expect=None) if is_later else transaction)


@planted(contract.a_refused_expect_does_not_create_the_session)
class ASessionBeginsBeforeItsFirstWriteIsTaken(Sessions):
    def add_messages(self, key: str, messages: Iterable[Any], **rest: Any) -> Any:
        self.append(key, "x.begun", {})
        return super().add_messages(key, messages, **rest)


@planted(contract.every_change_of_history_counts_for_expect)
def a_truncation_does_not_count_for_expect(
    operation: Operation, stamp: RecordStamp, state: State, view: Records
) -> Record | None:
    same = {"h": state.h} if isinstance(operation, Truncate) else {}
    return apply_with_state(operation, stamp, state, view, **same)


@planted(contract.notes_do_not_count_for_expect)
def every_record_counts_for_expect(
    operation: Operation, stamp: RecordStamp, state: State, view: Records
) -> Record | None:
    return apply_with_state(operation, stamp, state, view, h=stamp.n)


@planted(contract.a_retry_under_the_same_id_is_stored_once)
class IdsAreForgotten(MemoryStore):
    def run(self, key: str, transaction: Transaction) -> int:
        return super().run(key, replace(transaction, id=None))


@planted(contract.other_content_under_the_same_id_is_a_conflict)
class ContentUnderAnIdIsNotCompared(MemoryStore):
    def run(self, key: str, transaction: Transaction) -> int:
        return super().run(key, replace(transaction, print="same"))


@planted(contract.a_retry_with_a_large_payload_is_known)
class OnlyTheBeginningUnderAnIdIsCompared(MemoryStore):
    def run(self, key: str, transaction: Transaction) -> int:
        parts = [bytes(one.raw)[:20] for one in transaction.operations if isinstance(one, AppendMessage)]
        return super().run(key, replace(transaction, print=fingerprint(parts)))


@planted(contract.an_id_is_used_for_one_kind)
class TheKindUnderAnIdIsNotCompared(MemoryStore):
    def run(self, key: str, transaction: Transaction) -> int:
        parts = [
            msgspec.json.encode(one.data if isinstance(one, AppendRecord) else one) for one in transaction.operations
        ]
        return super().run(key, replace(transaction, print=fingerprint(parts)))


@planted(contract.id_is_looked_at_before_expect)
class ExpectIsLookedAtBeforeId(MemoryStore):
    def run(self, key: str, transaction: Transaction) -> int:
        if transaction.expect not in (None, self.read(key, lambda view: view.state.h) or 0):
            raise Conflict("the history has changed")
        return super().run(key, transaction)


@planted(contract.ids_belong_to_their_session)
class IdsBelongToTheStore(Sessions):
    def __init__(self, *store: Any, **options: Any) -> None:
        super().__init__(*store, **options)
        self._seen: dict[str, int] = {}

    def add_messages(self, key: str, messages: Iterable[Any], **rest: Any) -> Any:
        if rest["id"] not in self._seen:
            self._seen[rest["id"]] = super().add_messages(key, messages, **rest)
        return self._seen[rest["id"]]


@planted(contract.a_refused_write_does_not_use_up_its_id)
class AnIdIsNotedBeforeTheWrite(Sessions):
    _noted: str | None = None

    def add_messages(self, key: str, messages: Iterable[Any], **rest: Any) -> Any:
        if self._noted == rest["id"]:
            return 0
        self._noted = rest["id"]
        return super().add_messages(key, messages, **rest)


@planted(contract.an_id_is_known_after_archiving)
class IdsAreForgottenByArchiving(MemoryStore):
    def _newest_archived(self, key: str) -> None:
        return None


@planted(contract.an_append_under_the_same_id_is_stored_once)
class AppendForgetsTheId(Sessions):
    def append(self, key: str, kind: str, data: Any, **rest: Any) -> Any:
        return super().append(key, kind, data, **{**rest, "id": None})


@planted(contract.kinds_of_the_store_cannot_be_appended)
class AnyKindIsTaken(Sessions):
    def append(self, key: str, kind: str, data: Any, **rest: Any) -> Any:
        own = kind if kind in ("use", "tool") or kind.startswith("x.") else f"x.{kind}"
        return super().append(key, own, data, **rest)


@planted(contract.usage_and_tool_records_may_be_appended)
class OnlyOwnKindsAreTaken(Sessions):
    def append(self, key: str, kind: str, data: Any, **rest: Any) -> Any:
        if not kind.startswith("x."):
            raise InvalidMessage(f"a record's kind must be 'x.<name>', not {kind!r}")
        return super().append(key, kind, data, **rest)


@planted(contract.own_records_hold_any_json)
class NoDataIsAnEmptyMapping(Sessions):
    def append(self, key: str, kind: str, data: Any, **rest: Any) -> Any:
        return super().append(key, kind, data or {}, **rest)


@planted(contract.own_records_come_back_by_kind)
class AKindIsAPrefix(Sessions):
    def records(self, key: str, kind: str | None = None, **rest: Any) -> Any:
        first = (kind or "").partition(".")[0]
        return [entry for entry in super().records(key, **rest) if entry.kind.startswith(first)]


@planted(contract.a_retry_under_the_same_id_is_stored_once)
class IdsAreForgottenByCompaction(MemoryStore):
    saved = 0

    def compact(self, key: str, keep: Any) -> bool:
        self.saved += 1
        return super().compact(key, keep)

    def run(self, key: str, transaction: Transaction) -> int:
        return super().run(key, replace(transaction, id=transaction.id and f"{transaction.id}-{self.saved}"))
