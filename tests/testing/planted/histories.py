"""Planted bugs: truncation, summary, replacement, rewind, pop, clear, and what compaction may lose."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import takewhile
from typing import Any

from msgspec.structs import replace

from nacre import Conflict, Sessions
from nacre.history.session_state import apply
from nacre.records import Operation, Pop, Record, Records, RecordStamp, Rewind, State, Summarise, Truncate
from nacre.storage.memory_store import MemoryStore
from nacre.storage.protocol import Later
from nacre.testing import contract
from tests.testing.planted.table import apply_with_state, planted


@planted(contract.truncation_keeps_the_newest, contract.earlier_truncate_and_save)
class TruncationKeepsTheOldest(Sessions):
    def truncate_history(self, key: str, keep_last: int, **rest: Any) -> Any:
        return self.set_history(key, self.get_history(key)[:keep_last], **rest)


@planted(contract.truncation_keeps_the_newest)
class TruncationDeletesFromTheTranscript(Sessions):
    def transcript(self, key: str) -> Any:
        live = self.snapshot(key).numbers
        return [stored for stored in super().transcript(key) if stored.n in live]


@planted(contract.truncation_to_nothing_or_less_keeps_none)
class ANegativeNumberIsTakenFromTheOtherEnd(Sessions):
    def truncate_history(self, key: str, keep_last: int, **rest: Any) -> Any:
        return super().truncate_history(key, abs(keep_last), **rest)


@planted(contract.truncation_to_more_than_is_live_changes_nothing)
def a_wider_truncation_brings_messages_back(
    operation: Operation, stamp: RecordStamp, state: State, view: Records
) -> Record | None:
    if isinstance(operation, Truncate):
        return apply(operation, stamp, replace(state, live=state.i), view)
    return apply(operation, stamp, state, view)


@planted(contract.truncations_count_only_what_is_live)
def a_truncation_counts_what_was_dropped(
    operation: Operation, stamp: RecordStamp, state: State, view: Records
) -> Record | None:
    if isinstance(operation, Truncate):
        operation = Truncate(operation.keep - (state.i - state.live))
    return apply(operation, stamp, state, view)


@planted(contract.changing_an_unknown_key_writes_nothing)
class ClearingBeginsASession(Sessions):
    def clear(self, key: str, **rest: Any) -> Any:
        self.set_history(key, [])
        return super().clear(key, **rest)


@planted(contract.a_summary_is_replaced_by_the_next, contract.earlier_summary)
class OnlyTheFirstSummaryCounts(Sessions):
    def set_summary(self, key: str, summary: str, **rest: Any) -> Any:
        return super().set_summary(key, self.get_summary(key) or summary, **rest)


@planted(contract.a_summary_is_replaced_by_the_next)
class AnEmptySummaryIsIgnored(Sessions):
    def set_summary(self, key: str, summary: str, **rest: Any) -> Any:
        return super().set_summary(key, summary or self.get_summary(key), **rest)


@planted(contract.a_summary_may_drop_what_it_covers)
class ASummaryDropsOneLess(Sessions):
    def set_summary(self, key: str, summary: str, *, upto: int | None = None, **rest: Any) -> Any:
        live = self.snapshot(key).numbers
        covered = [n for n in live if upto is not None and n < upto]
        return super().set_summary(key, summary, upto=covered[-1] if covered else None, **rest)


@planted(contract.a_summary_of_what_is_not_live_is_a_conflict)
class ASummaryOfWhatIsGoneCoversNothing(Sessions):
    def set_summary(self, key: str, summary: str, **rest: Any) -> Any:
        try:
            return super().set_summary(key, summary, **rest)
        except Conflict:
            return super().set_summary(key, summary)


@planted(contract.a_summary_upto_in_an_unknown_session_is_a_conflict)
class ASummaryAlwaysBeginsASession(Sessions):
    def set_summary(self, key: str, summary: str, *, upto: int | None = None, **rest: Any) -> Any:
        return super().set_summary(key, summary, upto=upto if self.exists(key) else None, **rest)


@planted(contract.a_replaced_history_keeps_the_summary)
class AReplacedHistoryHasNoSummary(Sessions):
    def set_history(self, key: str, history: Iterable[Any], **rest: Any) -> Any:
        self.clear(key)
        return super().set_history(key, history, **rest)


@planted(contract.a_history_with_a_bad_message_replaces_nothing)
class AHistoryIsReplacedOneByOne(Sessions):
    def set_history(self, key: str, history: Iterable[Any], **rest: Any) -> Any:
        super().set_history(key, [], **rest)
        for message in history:
            self.add_full_message(key, message)


@planted(contract.earlier_replacement, contract.a_replaced_history_keeps_the_summary)
class AReplacedHistoryIsAppended(Sessions):
    def set_history(self, key: str, history: Iterable[Any], **rest: Any) -> Any:
        return self.add_messages(key, history, **rest)


@planted(contract.a_history_may_be_replaced_by_nothing)
class NoMessagesReplaceNothing(Sessions):
    def set_history(self, key: str, history: Iterable[Any], **rest: Any) -> Any:
        return super().set_history(key, list(history) or self.get_history(key), **rest)


@planted(contract.clear_drops_history_and_summary)
class ClearingKeepsTheSummary(Sessions):
    def clear(self, key: str, **rest: Any) -> Any:
        return self.truncate_history(key, 0, **rest)


@planted(
    contract.the_transcript_keeps_everything,
    contract.clear_drops_history_and_summary,
    contract.numbers_are_never_reused,
)
class ClearingDeletes(Sessions):
    def clear(self, key: str, **rest: Any) -> Any:
        return self.delete(key)


@planted(contract.rewind_goes_back_and_another_rewind_forth)
class RewindTakesWhatWasWrittenBefore(Sessions):
    def rewind(self, key: str, to: int | None = None, **rest: Any) -> Any:
        self.set_history(key, [stored.message for stored in self.transcript(key) if stored.n <= (to or 0)])


@planted(contract.rewind_restores_the_summary)
def rewind_keeps_the_summary(operation: Operation, stamp: RecordStamp, state: State, view: Records) -> Record | None:
    same = {"sp": state.sp} if isinstance(operation, Rewind) and operation.to else {}
    return apply_with_state(operation, stamp, state, view, **same)


@planted(contract.rewind_undoes_truncation_replacement_and_clear)
def rewind_leaves_a_truncation_in_force(
    operation: Operation, stamp: RecordStamp, state: State, view: Records
) -> Record | None:
    same = {"live": state.live} if isinstance(operation, Rewind) and operation.to else {}
    return apply_with_state(operation, stamp, state, view, **same)


@planted(contract.meta_is_not_history)
def rewind_takes_the_meta_along(operation: Operation, stamp: RecordStamp, state: State, view: Records) -> Record | None:
    target = view.find(operation.to) if isinstance(operation, Rewind) and operation.to else None
    same = {"mp": target.st.mp} if target is not None else {}
    return apply_with_state(operation, stamp, state, view, **same)


@planted(contract.rewind_into_a_group_is_refused)
def a_group_can_be_entered(operation: Operation, stamp: RecordStamp, state: State, view: Records) -> Record | None:
    if not isinstance(operation, Rewind) or (target := view.find(operation.to)) is None:
        return apply(operation, stamp, state, view)
    record = apply(Rewind(0, keeps_summary=True), stamp, state, view)
    return record and replace(record, to=operation.to, st=replace(target.st, h=stamp.n, br=stamp.n))


@planted(contract.rewind_to_an_unknown_record_is_a_conflict)
class RewindToAnUnknownRecordIsToTheLast(Sessions):
    def rewind(self, key: str, to: int | None = None, **rest: Any) -> Any:
        return super().rewind(key, None if to is None else min(to, self.snapshot(key).n), **rest)


@planted(contract.rewind_goes_back_to_before_a_message)
class BeforeAMessageIsTheRecordBeforeIt(Sessions):
    def rewind(self, key: str, to: int | None = None, *, before: int | None = None, **rest: Any) -> Any:
        return super().rewind(key, to if before is None else before - 1, **rest)


@planted(contract.rewind_goes_back_to_before_a_message)
class ToIsStrongerThanBefore(Sessions):
    def rewind(self, key: str, to: int | None = None, *, before: int | None = None, **rest: Any) -> Any:
        return super().rewind(key, to, before=before if to is None else None, **rest)


@planted(contract.what_is_stored_with_a_message_is_no_step_of_its_own)
class RewindLooksForTheVeryRecord(Sessions):
    def rewind(self, key: str, to: int | None = None, **rest: Any) -> Any:
        self.update(key, [Rewind(to or 0)])


@planted(contract.pop_takes_the_last_message_back, contract.pop_takes_one_message_of_a_group)
class PopOnlyLooks(Sessions):
    def pop(self, key: str, **rest: Any) -> Any:
        return next(iter(self.get_history(key, last=1)), None)


@planted(contract.pop_leaves_truncation_and_summary_alone)
def pop_uncovers_what_was_dropped(
    operation: Operation, stamp: RecordStamp, state: State, view: Records
) -> Record | None:
    same = {"live": state.live} if isinstance(operation, Pop) and state.i > state.live else {}
    return apply_with_state(operation, stamp, state, view, **same)


@planted(contract.pop_takes_one_message_of_a_group)
class PopTakesTheWholeGroup(Sessions):
    def pop(self, key: str, **rest: Any) -> Any:
        message = next(iter(self.get_history(key, last=1)), None)
        kinds = [entry for entry in self.records(key) if entry.kind == "msg"]
        self.truncate_history(key, 0) if len(kinds) > 1 else super().pop(key, **rest)
        return message


@planted(contract.the_transcript_keeps_everything)
class TheTranscriptForgetsWhatWasPopped(Sessions):
    _popped: tuple[int, ...] = ()

    def pop(self, key: str, **rest: Any) -> Any:
        self._popped += tuple(self.snapshot(key, last=1).numbers)
        return super().pop(key, **rest)

    def transcript(self, key: str) -> Any:
        return [stored for stored in super().transcript(key) if stored.n not in self._popped]


@planted(contract.a_snapshot_is_all_of_one_moment)
class ASnapshotExpectsTheLastRecord(Sessions):
    def snapshot(self, key: str, **rest: Any) -> Any:
        found = super().snapshot(key, **rest)
        return replace(found, expect=found.n)


@planted(contract.a_snapshot_is_all_of_one_moment)
class ASnapshotCountsWhatItShows(Sessions):
    def snapshot(self, key: str, **rest: Any) -> Any:
        found = super().snapshot(key, **rest)
        return replace(found, live=len(found.messages))


@planted(contract.a_large_payload_comes_back_whole)
class AFollowerGetsNoLargePayload(MemoryStore):
    def later(self, key: str, after: int, uid: str, limit: int) -> Later:
        found = super().later(key, after, uid, limit)
        return found._replace(records=[self._active[key].find(record.n) or record for record in found.records])


@planted(contract.earlier_summarise_flow)
def a_truncation_ends_the_summary(
    operation: Operation, stamp: RecordStamp, state: State, view: Records
) -> Record | None:
    none = {"sp": 0} if isinstance(operation, Truncate) else {}
    return apply_with_state(operation, stamp, state, view, **none)


@planted(contract.earlier_summarise_flow, contract.a_summary_is_replaced_by_the_next)
def a_summary_drops_everything(operation: Operation, stamp: RecordStamp, state: State, view: Records) -> Record | None:
    none = {"live": 0} if isinstance(operation, Summarise) else {}
    return apply_with_state(operation, stamp, state, view, **none)


class _Compacted(Sessions):
    """Sessions that remember what a compaction moved."""

    def __init__(self, *store: Any, **options: Any) -> None:
        super().__init__(*store, **options)
        self.moved: set[int] = set()

    def save(self, key: str) -> Any:
        live = set(self.snapshot(key).numbers)
        self.moved |= {entry.n for entry in super().records(key) if entry.n not in live}
        return super().save(key)


@planted(contract.save_changes_nothing_that_can_be_seen, contract.earlier_truncate_and_save)
class SavingBringsBackWhatWasTruncated(Sessions):
    def save(self, key: str) -> Any:
        self.set_history(key, [stored.message for stored in self.transcript(key)])


@planted(contract.save_changes_nothing_that_can_be_seen)
class CompactionLosesMessages(_Compacted):
    def transcript(self, key: str) -> Any:
        return [stored for stored in super().transcript(key) if stored.n not in self.moved]


@planted(contract.own_records_outlive_compaction)
class CompactionLosesOwnRecords(_Compacted):
    def records(self, key: str, kind: str | None = None, **rest: Any) -> Any:
        return [entry for entry in super().records(key, kind, **rest) if entry.n not in self.moved]


@planted(contract.rewind_brings_back_what_compaction_moved)
class CompactionMakesATruncationFinal(_Compacted):
    def rewind(self, key: str, to: int | None = None, **rest: Any) -> Any:
        super().rewind(key, to, **rest)
        self.truncate_history(key, sum(n not in self.moved for n in self.snapshot(key).numbers))


@planted(contract.an_update_takes_every_operation, contract.a_replaced_history_keeps_the_summary)
def an_emptied_history_never_keeps_its_summary(
    operation: Operation, stamp: RecordStamp, state: State, view: Records
) -> Record | None:
    none = {"sp": 0} if isinstance(operation, Rewind) and not operation.to else {}
    return apply_with_state(operation, stamp, state, view, **none)


@planted(contract.an_update_takes_every_operation)
class AnUpdateAppliesTheFirstOperation(Sessions):
    def update(self, key: str, operations: Iterable[Any], **rest: Any) -> Any:
        return super().update(key, list(operations)[:1], **rest)


@planted(contract.an_operation_without_effect_takes_no_other_along)
class AnOperationWithoutEffectTakesAllAlong(Sessions):
    def update(self, key: str, operations: Iterable[Any], **rest: Any) -> Any:
        given, live = list(operations), self.snapshot(key).live
        is_idle = any(isinstance(one, Truncate) and one.keep >= live for one in given)
        return 0 if is_idle else super().update(key, given, **rest)


@planted(contract.an_update_is_applied_whole_or_not_at_all)
class AnUpdateIsAppliedOneByOne(Sessions):
    def update(self, key: str, operations: Iterable[Any], **rest: Any) -> Any:
        number = 0
        for operation in operations:
            number = super().update(key, [operation], **rest)
        return number


@planted(contract.following_gives_the_past_and_then_what_comes)
@planted(contract.a_follower_sees_what_another_opening_writes, files=True)
class FollowingEndsWithThePast(Sessions):
    def follow(self, key: str, after: int = 0) -> Any:
        return (entry for entry in list(self.records(key)) if entry.n > after)


@planted(contract.following_gives_the_past_and_then_what_comes)
class FollowingBeginsAtTheBeginning(Sessions):
    def follow(self, key: str, after: int = 0) -> Any:
        return super().follow(key)


@planted(contract.rewind_to_an_unknown_record_is_a_conflict, contract.rewind_goes_back_to_before_a_message)
class RewindOfNothingIsNoError(Sessions):
    def rewind(self, key: str, to: int | None = None, **rest: Any) -> Any:
        if self.exists(key):
            super().rewind(key, to, **rest)


@planted(contract.a_snapshot_is_all_of_one_moment)
class ASnapshotHasTheNumbersOfAll(Sessions):
    def snapshot(self, key: str, **rest: Any) -> Any:
        return replace(super().snapshot(key, **rest), numbers=super().snapshot(key).numbers)


@planted(contract.following_gives_the_past_and_then_what_comes)
class FollowingEndsWithTheGeneration(Sessions):
    def follow(self, key: str, after: int = 0) -> Any:
        first = self.snapshot(key).generation
        return takewhile(lambda entry: entry.generation == first, super().follow(key, after))
