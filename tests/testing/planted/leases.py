"""Planted bugs: turns, who has them, and what the holder of a lost one can still store."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from msgspec.structs import replace

from nacre import LeaseLost, SessionBusy, Sessions, Version, View
from nacre.records import AppendRecord, Operation, Record, Records, RecordStamp, Rewind, State, TakeOver, Transaction
from nacre.storage.file_store import FileStore
from nacre.storage.memory_store import MemoryStore
from nacre.testing import contract
from tests.testing.planted.conditions import forget
from tests.testing.planted.table import apply_with_state, planted

for each in ("add_messages", "submit", "update", "append"):
    planted(contract.a_turn_that_was_taken_over_stores_nothing_more)(forget("lease", each))


@planted(contract.a_turn_has_one_holder)
class TwoMayHaveOneTurn(MemoryStore):
    def lend(self, lease: Any, **how: Any) -> None:
        self._turns.clear()
        super().lend(lease, **how)


@planted(contract.who_has_a_turn_is_known)
class NobodyHasATurn(MemoryStore):
    def is_lent(self, key: str) -> bool:
        return False


@planted(contract.a_turn_has_one_holder)
class AHolderMayTakeItsTurnAgain(MemoryStore):
    def lend(self, lease: Any, **how: Any) -> None:
        if lease.number is None:
            super().lend(lease, **how)


@planted(contract.a_turn_has_one_holder)
class TheStoreHasOneTurn(MemoryStore):
    def lend(self, lease: Any, **how: Any) -> None:
        if self._turns:
            raise SessionBusy("another turn is held")
        super().lend(lease, **how)


@planted(contract.a_turn_has_one_holder, contract.a_turn_that_was_taken_over_stores_nothing_more)
class AnyLeaseGivesTheTurnBack(MemoryStore):
    def take_back(self, lease: Any) -> None:
        super().take_back(lease)
        self._turns = {(key, fence) for key, fence in self._turns if key != lease.key}


@planted(contract.a_turn_has_one_holder)
class AClosedLeaseKeepsItsNumber(MemoryStore):
    def take_back(self, lease: Any) -> None:
        number = lease.number
        super().take_back(lease)
        lease.number = number


@planted(
    contract.a_turn_that_was_taken_over_stores_nothing_more,
    contract.a_turn_may_be_taken_over_again_and_again,
    contract.a_lost_lease_stays_lost_whatever_becomes_of_the_session,
)
class LeasesAreIgnored(MemoryStore):
    def run(self, key: str, transaction: Transaction) -> int:
        return super().run(key, replace(transaction, fence=None))


@planted(contract.a_turn_that_was_taken_over_stores_nothing_more, contract.taking_over_changes_no_history)
class TakingOverStoresNothing(MemoryStore):
    def lend(self, lease: Any, *, by_force: bool = False) -> None:
        if by_force:
            self._turns.clear()
        super().lend(lease)


@planted(contract.a_turn_is_taken_over_from_another_opening)
class AnOpeningKnowsOnlyItsOwnTakeovers(FileStore):
    has_taken = False

    def run(self, key: str, transaction: Transaction) -> int:
        self.has_taken |= any(isinstance(one, TakeOver) for one in transaction.operations)
        return super().run(key, transaction if self.has_taken else replace(transaction, fence=None))


@planted(contract.a_turn_is_taken_over_from_another_opening)
class ATakeoverIsAPlainNote(FileStore):
    def run(self, key: str, transaction: Transaction) -> int:
        notes = [AppendRecord("x.turn", {}) if isinstance(one, TakeOver) else one for one in transaction.operations]
        return super().run(key, replace(transaction, operations=notes))


@planted(contract.a_turn_that_was_taken_over_stores_nothing_more)
class AfterATakeoverEveryWriteNeedsALease(MemoryStore):
    def run(self, key: str, transaction: Transaction) -> int:
        if transaction.fence is None and self.read(key, lambda view: view.state.fence > 0):
            raise LeaseLost("the turn was taken over")
        return super().run(key, transaction)


@planted(contract.a_turn_that_was_taken_over_stores_nothing_more)
class ALeaseThatIsTakenInPeaceHasNumberZero(MemoryStore):
    def lend(self, lease: Any, *, by_force: bool = False) -> None:
        super().lend(lease, by_force=by_force)
        lease.number = lease.number if by_force else 0


@planted(contract.a_turn_may_be_taken_over_again_and_again)
class OnlyTheFirstHolderLosesItsLease(MemoryStore):
    def run(self, key: str, transaction: Transaction) -> int:
        return super().run(key, replace(transaction, fence=None) if transaction.fence else transaction)


@planted(contract.a_turn_may_be_taken_over_again_and_again)
class ATurnIsTakenOverOnce(MemoryStore):
    def lend(self, lease: Any, *, by_force: bool = False) -> None:
        if by_force and self.read(lease.key, lambda view: view.state.fence > 0):
            raise SessionBusy("the turn was taken over already")
        super().lend(lease, by_force=by_force)


@planted(contract.a_lost_lease_stays_lost_whatever_becomes_of_the_session)
def a_rewind_brings_a_lost_lease_back(
    operation: Operation, stamp: RecordStamp, state: State, view: Records
) -> Record | None:
    none = {"fence": 0} if isinstance(operation, Rewind) else {}
    return apply_with_state(operation, stamp, state, view, **none)


@planted(contract.a_lost_lease_stays_lost_whatever_becomes_of_the_session)
class CompactionBringsALostLeaseBack(MemoryStore):
    def compact(self, key: str, keep: Callable[[View], set[int]]) -> bool:
        life = self._active[key]
        life.state = replace(life.state, fence=0)
        return super().compact(key, keep)


@planted(contract.a_lost_lease_stays_lost_whatever_becomes_of_the_session)
class UnarchivingBringsALostLeaseBack(MemoryStore):
    def move(self, key: str, *, archive: bool, expect: int | Version | None = None) -> None:
        super().move(key, archive=archive, expect=expect)
        for life in self._lives(key):
            life.state = replace(life.state, fence=life.state.fence if archive else 0)


@planted(
    contract.a_lost_lease_stays_lost_whatever_becomes_of_the_session,
    contract.the_fence_goes_on_in_the_next_generation,
)
class ANewGenerationBringsALostLeaseBack(MemoryStore):
    def _newest_archived(self, key: str) -> None:
        return None


@planted(contract.a_lost_lease_stays_lost_whatever_becomes_of_the_session)
class AForkGoesOnWithTheFence(MemoryStore):
    def fork(self, key: str, new_key: str, transaction: Transaction) -> None:
        super().fork(key, new_key, transaction)
        life = self._active[new_key]
        life.state = replace(life.state, fence=self._active[key].state.fence)


@planted(contract.the_fence_goes_on_in_the_next_generation)
def the_number_of_a_lease_comes_again(
    operation: Operation, stamp: RecordStamp, state: State, view: Records
) -> Record | None:
    same = {"fence": stamp.n} if isinstance(operation, TakeOver) else {}
    return apply_with_state(operation, stamp, state, view, **same)


@planted(contract.taking_over_changes_no_history)
def a_takeover_counts_for_expect(
    operation: Operation, stamp: RecordStamp, state: State, view: Records
) -> Record | None:
    last = {"h": stamp.n} if isinstance(operation, TakeOver) else {}
    return apply_with_state(operation, stamp, state, view, **last)


@planted(contract.taking_over_changes_no_history)
class ATakeoverBeginsNoSession(MemoryStore):
    def lend(self, lease: Any, *, by_force: bool = False) -> None:
        if not self.status(lease.key):
            self._turns.clear()
        super().lend(lease, by_force=by_force and bool(self.status(lease.key)))


@planted(contract.taking_over_changes_no_history)
class ATakeoverDoesNotSayWho(MemoryStore):
    def run(self, key: str, transaction: Transaction) -> int:
        unsigned = [TakeOver("somebody") if isinstance(one, TakeOver) else one for one in transaction.operations]
        return super().run(key, replace(transaction, operations=unsigned))


@planted(contract.a_retry_with_a_lost_lease_is_known)
class ALeaseIsLookedAtBeforeTheId(MemoryStore):
    def run(self, key: str, transaction: Transaction) -> int:
        if transaction.fence not in (None, self.read(key, lambda view: view.state.fence) or 0):
            raise LeaseLost("the turn was taken over")
        return super().run(key, transaction)


@planted(contract.a_lease_that_does_not_fit_is_refused)
class ALeaseThatIsNotTakenIsNone(Sessions):
    def add_messages(self, key: str, messages: Iterable[Any], *, lease: Any = None, **rest: Any) -> Any:
        is_taken = getattr(lease, "number", None) is not None
        return super().add_messages(key, messages, lease=lease if is_taken else None, **rest)


@planted(contract.a_lease_that_does_not_fit_is_refused)
class ALeaseOfAnotherSessionIsNone(Sessions):
    def add_messages(self, key: str, messages: Iterable[Any], *, lease: Any = None, **rest: Any) -> Any:
        is_own = getattr(lease, "key", key) == key
        return super().add_messages(key, messages, lease=lease if is_own else None, **rest)
