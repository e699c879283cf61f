"""Planted bugs: keys, archiving, deleting, forks, and the store as a whole."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from nacre import ConfigError, Finding, InvalidKey, Receipt, Report, SessionBusy, SessionNotFound, Sessions, StoreError
from nacre.records import Transaction, View
from nacre.storage.file_store import FileStore
from nacre.storage.group_commit import Pending
from nacre.storage.memory_store import MemoryStore
from nacre.storage.protocol import Prefixed
from nacre.storage.watch import Watch
from nacre.testing import contract
from tests.testing.planted.table import planted

T = TypeVar("T")


@planted(contract.an_update_begins_no_session)
class AnUpdateBeginsASession(Sessions):
    def update(self, key: str, operations: Iterable[Any], **rest: Any) -> Any:
        if self.exists(key):
            return super().update(key, operations, **rest)
        return self.submit(key, operations, **rest).result()


@planted(contract.an_update_begins_no_session)
class AnUpdateExpectsNothing(Sessions):
    def update(self, key: str, operations: Iterable[Any], **rest: Any) -> Any:
        return super().update(key, operations, **{**rest, "expect": None})


@planted(contract.a_read_is_of_one_generation)
class EveryGenerationIsTheNewest(MemoryStore):
    def _begin(self, key: str, life: Any) -> None:
        self._active[key] = life


@planted(contract.a_read_is_of_one_generation)
class ANamedGenerationIsNotLookedFor(Sessions):
    def read(self, key: str, get: Callable[[View], T], **rest: Any) -> Any:
        return super().read(key, get)


@planted(contract.every_generation_can_be_read)
class TheNewestGenerationComesFirst(Sessions):
    def read_generations(self, key: str, get: Callable[[View], T | None]) -> Any:
        return super().read_generations(key, get)[::-1]


@planted(contract.an_archived_session_can_be_read)
class AnArchivedSessionCannotBeRead(MemoryStore):
    def read(self, key: str, get: Callable[[View], T]) -> T | None:
        return super().read(key, get) if self.status(key) == "active" else None


@planted(contract.a_write_to_an_archived_key_starts_a_new_generation)
class AWriteBringsTheArchivedSessionBack(MemoryStore):
    def run(self, key: str, transaction: Transaction) -> int:
        if self.status(key) == "archived":
            self.move(key, archive=False)
        return super().run(key, transaction)


@planted(contract.archiving_again_never_overwrites)
class ArchivingAgainOverwrites(MemoryStore):
    def move(self, key: str, *, archive: bool, **rest: Any) -> None:
        if archive:
            self._archived.pop(key, None)
        super().move(key, archive=archive, **rest)


@planted(contract.an_unarchived_session_goes_on)
class TheOldestGenerationIsUnarchived(MemoryStore):
    def move(self, key: str, *, archive: bool, **rest: Any) -> None:
        if not archive:
            self._archived[key].reverse()
        super().move(key, archive=archive, **rest)


@planted(contract.unarchiving_next_to_an_active_session_is_a_conflict)
class UnarchivingArchivesWhatIsActive(MemoryStore):
    def move(self, key: str, *, archive: bool, **rest: Any) -> None:
        if not archive and (active := self._active.pop(key, None)) is not None:
            self._archived[key].insert(0, active)
        super().move(key, archive=archive, **rest)


@planted(contract.delete_erases_every_generation, contract.delete_erases_an_archived_session)
class DeletingLeavesTheArchive(MemoryStore):
    def delete(self, key: str, **rest: Any) -> None:
        self._active.pop(key, None)


@planted(contract.delete_erases_an_archived_session)
class OnlyAnActiveSessionIsDeleted(Sessions):
    def delete(self, key: str, **rest: Any) -> Any:
        if self.status(key) == "active":
            super().delete(key, **rest)


@planted(contract.deleting_an_unknown_key_is_no_error)
class DeletingNothingIsAnError(Sessions):
    def delete(self, key: str, **rest: Any) -> Any:
        if not self.exists(key):
            raise SessionNotFound(f"there is no session {key!r}")
        super().delete(key, **rest)


@planted(contract.a_deleted_key_begins_again)
class ADeletedSessionIsOnlyEmptied(Sessions):
    def delete(self, key: str, **rest: Any) -> Any:
        self.clear(key)


@planted(contract.a_deleted_key_begins_again)
class IdsOutliveDeletion(MemoryStore):
    _deleted: Any = None

    def delete(self, key: str, **rest: Any) -> None:
        self._deleted = self._active.get(key)
        super().delete(key, **rest)

    def _newest_archived(self, key: str) -> Any:
        return super()._newest_archived(key) or self._deleted


@planted(contract.a_fork_goes_on_after_its_own_header)
class AForkIsACopyOfTheMessages(Sessions):
    def fork(self, key: str, new_key: str, *, at: int | None = None, **rest: Any) -> Any:
        last = self.snapshot(key).n if at is None else at
        self.set_history(new_key, [stored.message for stored in self.transcript(key) if stored.n <= last])


@planted(contract.keys_that_look_alike_are_apart)
class KeysAreOfAnyCase(MemoryStore):
    def run(self, key: str, transaction: Transaction) -> int:
        return super().run(key.lower(), transaction)

    def read(self, key: str, get: Callable[[View], T]) -> T | None:
        return super().read(key.lower(), get)


@planted(contract.any_key_of_unicode_will_do)
class AKeyIsAFileName(MemoryStore):
    def run(self, key: str, transaction: Transaction) -> int:
        if "/" in key or key in (".", ".."):
            raise InvalidKey(f"{key!r} cannot be the name of a file")
        return super().run(key, transaction)


@planted(contract.any_key_of_unicode_will_do, contract.an_invalid_key_is_refused)
class AKeyIsCut(MemoryStore):
    def run(self, key: str, transaction: Transaction) -> int:
        return super().run(key[:255], transaction)


@planted(contract.an_invalid_key_is_refused)
class AnInvalidKeyHasNoSession(Sessions):
    def exists(self, key: str) -> bool:
        try:
            return super().exists(key)
        except InvalidKey:
            return False


@planted(contract.a_sound_store_verifies)
class AnArchivedSessionIsTakenForDamage(MemoryStore):
    def verify(self, key: str | None) -> Report:
        found = [Finding(key=one, kind="lost", where="log", detail="no log") for one in self._archived]
        return Report(findings=tuple(found))


@planted(contract.closing_twice_is_harmless)
class ClosingTwiceIsAnError(MemoryStore):
    def close(self) -> None:
        if self._closed:
            raise StoreError("the store is closed")
        super().close()


@planted(contract.forgiving_writes_are_counted_and_return_zero, contract.forgiving_reads_give_empty_values)
class AnInvalidKeyIsNoErrorOfTheStore(MemoryStore):
    def run(self, key: str, transaction: Transaction) -> int:
        if not key:
            raise ConfigError("empty key")
        return super().run(key, transaction)

    def read(self, key: str, get: Callable[[View], T]) -> T | None:
        if not key:
            raise ConfigError("empty key")
        return super().read(key, get)


@planted(contract.earlier_isolation)
class TheSummaryIsOneForAll(Sessions):
    def get_summary(self, key: str) -> Any:
        return super().get_summary(key) or super().get_summary("s1")


@planted(contract.a_fork_and_its_source_go_separate_ways)
class AForkIsTheSameSession(MemoryStore):
    def fork(self, key: str, new_key: str, transaction: Transaction) -> None:
        self._begin(new_key, self._active[key])


@planted(contract.a_fork_and_its_source_go_separate_ways)
class AForkForgetsTheMeta(Sessions):
    def fork(self, key: str, new_key: str, **rest: Any) -> Any:
        super().fork(key, new_key, **rest)
        self.set_meta(new_key, **dict.fromkeys(self.get_meta(key)))


@planted(contract.a_fork_that_cannot_be_is_refused)
class AForkOverwrites(MemoryStore):
    def fork(self, key: str, new_key: str, transaction: Transaction) -> None:
        if key in self._active:
            self._active.pop(new_key, None)
        super().fork(key, new_key, transaction)


@planted(contract.a_fork_that_cannot_be_is_refused)
class AForkAtAnUnknownRecordIsOfAll(Sessions):
    def fork(self, key: str, new_key: str, *, at: int | None = None, **rest: Any) -> Any:
        return super().fork(key, new_key, at=None if at is None else min(at, self.snapshot(key).n), **rest)


@planted(contract.a_part_of_the_store_shows_its_own_sessions)
class APartClosesTheWhole(Sessions):
    def within(self, prefix: str) -> Sessions:
        part = super().within(prefix)
        part.close = self.close  # type: ignore[method-assign]
        return part


@planted(contract.a_part_of_the_store_shows_its_own_sessions, contract.a_part_of_the_store_leads_to_no_other_session)
class APartIsTheWhole(Sessions):
    def within(self, prefix: str) -> Sessions:
        return self


@planted(contract.a_part_of_the_store_leads_to_no_other_session)
class APartCanArchiveAnything(Sessions):
    def within(self, prefix: str) -> Sessions:
        class Leaky(Prefixed):
            def move(self, key: str, *, archive: bool, **rest: Any) -> None:
                self._whole.move(key, archive=archive, **rest)

        return Sessions(Leaky(self._store, prefix))


@planted(contract.a_held_turn_blocks_no_write)
class AHeldTurnBlocksWrites(MemoryStore):
    def run(self, key: str, transaction: Transaction) -> int:
        if any(held == key for held, _ in self._turns):
            raise SessionBusy(f"session {key!r} is in use")
        return super().run(key, transaction)


@planted(contract.a_held_turn_blocks_no_write, contract.a_turn_has_one_holder)
class AHeldTurnIsNeverGivenBack(MemoryStore):
    def take_back(self, lease: Any) -> None:
        pass


@planted(contract.a_watch_that_can_tell_says_what_has_changed)
class TheWrongFolderIsWatched(FileStore):
    def watch(self) -> Watch:
        return Watch(self.location)


@planted(contract.a_sound_session_needs_no_repair)
class RepairingForgetsWhatIsNotLive(MemoryStore):
    def repair(self, key: str) -> Receipt:
        live = self.read(key, lambda view: view.state.live) or 0
        return Receipt(key=key, kept=live, set_aside=0, quarantine=None)


@planted(contract.upkeep_of_what_is_not_there_is_not_found)
class AnUnknownSessionIsSound(MemoryStore):
    def verify(self, key: str | None) -> Report:
        return Report()


@planted(contract.upkeep_of_what_is_not_there_is_not_found)
class AnEntryThatIsNotThereIsSettled(Sessions):
    def discard(self, key: str, n: int | None = None) -> Any:
        return super().discard(key)


@planted(contract.a_closed_store_takes_no_write)
class AClosedStoreGoesOn(MemoryStore):
    def close(self) -> None:
        pass


@planted(contract.a_fork_and_its_source_go_separate_ways)
class DeletingTakesForksAlong(Sessions):
    _forks: tuple[tuple[str, str], ...] = ()

    def fork(self, key: str, new_key: str, **rest: Any) -> Any:
        super().fork(key, new_key, **rest)
        self._forks += ((key, new_key),)

    def delete(self, key: str, **rest: Any) -> Any:
        for gone in (key, *(fork for source, fork in self._forks if source == key)):
            super().delete(gone, **rest)


@planted(contract.a_fork_that_cannot_be_is_refused)
class AForkOfNothingIsEmpty(Sessions):
    def fork(self, key: str, new_key: str, **rest: Any) -> Any:
        return super().fork(key, new_key, **rest) if self.exists(key) else self.set_history(new_key, [])


@planted(contract.a_sound_session_needs_no_repair)
class RestoringAppendsWhatIsThere(Sessions):
    def restore(self, key: str, n: int | None = None) -> Any:
        self.add_messages(key, self.get_history(key))
        return super().restore(key, n)


@planted(contract.a_closed_store_takes_no_write)
class ASubmittedWriteIsTakenAfterClosing(MemoryStore):
    def submit(self, key: str, transaction: Transaction, pending: Pending | None = None) -> Pending:
        self._closed = False
        return super().submit(key, transaction, pending)


@planted(contract.forgiving_reads_give_empty_values, contract.an_invalid_key_is_refused)
class SavingNothingIsNoError(MemoryStore):
    def compact(self, key: str, keep: Callable[[View], set[int]]) -> bool:
        return self.status(key) == "active" if key else False
