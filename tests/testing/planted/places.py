"""Planted bugs: places that do not keep their sessions, and openings that do not see each other."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from nacre import Conflict, InvalidArgument, SessionNotFound, Sessions
from nacre.records import AppendMessage, Transaction, View
from nacre.storage.file_store import FileStore
from nacre.storage.memory_store import MemoryStore
from nacre.storage.transaction import fingerprint
from nacre.testing import contract
from tests.testing.planted.table import planted


@planted(contract.everything_is_there_after_reopening, files=True)
class MetaIsKeptInMemory(Sessions):
    def __init__(self, *store: Any, **options: Any) -> None:
        super().__init__(*store, **options)
        self._meta: dict[str, Any] = {}

    def set_meta(self, key: str, given: Any = None, /, **fields: Any) -> None:
        self._meta.setdefault(key, {}).update(fields)

    def get_meta(self, key: str) -> Any:
        return self._meta.get(key, {})


@planted(contract.everything_is_there_after_reopening, files=True)
class ClosingLosesTheArchive(Sessions):
    def close(self) -> None:
        for info in self.list(archived=True):
            self.delete(info.key)
        super().close()


@planted(contract.numbers_go_on_after_reopening, files=True)
class NumbersBeginAgain(Sessions):
    _count = 0

    def add_message(self, key: str, role: str, content: str, **rest: Any) -> Any:
        super().add_message(key, role, content, **rest)
        self._count += 1
        return self._count


@planted(contract.expect_and_id_hold_after_reopening, contract.ids_of_the_other_are_known_however_the_writes_mix)
class OnlyOwnIdsAreKnown(FileStore):
    def run(self, key: str, transaction: Transaction) -> int:
        own = f"{transaction.id}-{id(self)}" if transaction.id else None
        return super().run(key, replace(transaction, id=own))


@planted(contract.a_large_retry_is_known_after_reopening)
class AnIdIsOfTheBeginningOfATextAlone(FileStore):
    def run(self, key: str, transaction: Transaction) -> int:
        parts = [bytes(one.raw)[:1000] for one in transaction.operations if isinstance(one, AppendMessage)]
        return super().run(key, replace(transaction, print=fingerprint(parts)))


@planted(contract.ids_outlive_compaction_and_reopening)
class CompactionLosesIds(FileStore):
    def run(self, key: str, transaction: Transaction) -> int:
        wanted = f"{transaction.id}#"
        in_log = self.read(key, lambda view: [r.id for r in view.back(view.n) if r.id and r.id.startswith(wanted)])
        last = self.read(key, lambda view: view.n) or 0
        return super().run(key, replace(transaction, id=in_log[0] if in_log else f"{wanted}{last}"))


@planted(contract.what_one_wrote_the_other_reads, files=True)
class TheHistoryIsReadOnce(Sessions):
    _known: Any = None

    def add_message(self, key: str, role: str, content: str, **rest: Any) -> Any:
        self._known = list(self.get_history(key))
        number = super().add_message(key, role, content, **rest)
        self._known += super().get_history(key, last=1)
        return number

    def get_history(self, key: str, **rest: Any) -> Any:
        return self._known if self._known is not None else super().get_history(key, **rest)


@planted(contract.a_conflict_is_seen_across_openings, files=True)
class ExpectIsComparedWithWhatThisOpeningWrote(Sessions):
    _last: int | None = None

    def add_messages(self, key: str, messages: Iterable[Any], **rest: Any) -> Any:
        expect = rest.pop("expect", None)
        if expect not in (None, self._last):
            raise Conflict("the history has changed")
        self._last = super().add_messages(key, messages, **rest)
        return self._last


@planted(contract.archiving_and_deleting_are_seen_across_openings, files=True)
class WhatWasThereIsThere(Sessions):
    _known: frozenset[str] = frozenset()

    def exists(self, key: str) -> bool:
        return key in self._known or super().exists(key)

    def add_message(self, key: str, role: str, content: str, **rest: Any) -> Any:
        self._known |= {key}
        return super().add_message(key, role, content, **rest)


@planted(contract.a_session_deleted_elsewhere_does_not_come_back, files=True)
class ALostLogIsWrittenAgainFromMemory(Sessions):
    _mine: tuple[str, ...] = ()

    def add_message(self, key: str, role: str, content: str, **rest: Any) -> Any:
        if not self.exists(key):
            for text in self._mine:
                super().add_message(key, role, text)
        self._mine += (content,)
        return super().add_message(key, role, content, **rest)


@planted(contract.a_session_in_the_trash_comes_back_whole, files=True)
class TheTrashForgetsWhatWasActive(Sessions):
    def restore_from_trash(self, id: str) -> Any:
        key = next(trashed.key for trashed in self.list_trash() if trashed.id == id)
        super().restore_from_trash(id)
        self.archive(key)


@planted(contract.a_session_in_the_trash_comes_back_whole, files=True)
class ASessionInTheTrashIsStillListed(Sessions):
    def move_to_trash(self, key: str, **rest: Any) -> Any:
        super().move_to_trash(key, **rest)
        self.restore_from_trash(self.list_trash()[0].id)


@planted(contract.one_generation_can_be_moved_to_the_trash, files=True)
class EveryGenerationIsMovedToTheTrash(Sessions):
    def move_to_trash(self, key: str, **rest: Any) -> Any:
        super().move_to_trash(key)


@planted(contract.a_session_that_is_deleted_is_in_the_trash_no_more)
class DeletingLeavesTheTrash(MemoryStore):
    def delete(self, key: str, **rest: Any) -> None:
        trash = self._trash
        super().delete(key, **rest)
        self._trash = trash


@planted(contract.a_session_that_is_deleted_is_in_the_trash_no_more, files=True)
class DeletingEmptiesTheTrash(Sessions):
    def delete(self, key: str, **rest: Any) -> None:
        for trashed in self.list_trash():
            self.erase_from_trash(trashed.id)
        super().delete(key, **rest)


@planted(contract.what_is_erased_from_the_trash_is_gone, files=True)
class ErasingLeavesOtherNames(Sessions):
    def forget_aliases(self, key: str) -> Any:
        pass


@planted(contract.what_is_erased_from_the_trash_is_gone, files=True)
class ErasingNothingIsNoError(Sessions):
    def erase_from_trash(self, id: str) -> Any:
        with suppress(SessionNotFound):
            super().erase_from_trash(id)


@planted(contract.restoring_next_to_an_active_session_is_a_conflict, files=True)
class RestoringArchivesWhatIsActive(Sessions):
    def restore_from_trash(self, id: str) -> Any:
        for trashed in self.list_trash():
            self.archive(trashed.key)
        super().restore_from_trash(id)


@planted(contract.a_generation_says_how_its_log_is, files=True)
class NoGenerationIsPinned(Sessions):
    def generation(self, key: str, uid: str = "") -> Any:
        found = super().generation(key, uid)
        return found and replace(found, pinned=False)


@planted(contract.a_generation_says_how_its_log_is, files=True)
class TheActiveGenerationIsFoundByAnyUid(Sessions):
    def generation(self, key: str, uid: str = "") -> Any:
        return super().generation(key, uid) or super().generation(key)


@planted(contract.the_room_that_sessions_take_is_known, files=True)
class WhatWouldBeKeptIsAll(Sessions):
    def log_size(self, key: str, **rest: Any) -> Any:
        return super().log_size(key)


@planted(contract.the_room_that_sessions_take_is_known, files=True)
class NoOtherLogIsSeen(Sessions):
    def has_other_logs(self, keys: Iterable[str]) -> bool:
        return False


@planted(contract.a_journal_keeps_its_lines, files=True)
class ThereIsOneJournal(Sessions):
    def journal(self, name: str) -> Any:
        super().journal(name)
        return super().journal("task")


@planted(contract.a_journal_keeps_its_lines, files=True)
class AJournalMayBeAnywhere(Sessions):
    def journal(self, name: str) -> Any:
        return super().journal(name.rpartition("/")[2] if isinstance(name, str) else name)


@planted(contract.what_is_erased_from_the_trash_is_gone, contract.one_generation_can_be_moved_to_the_trash, files=True)
class MovingNothingToTheTrashIsNoError(Sessions):
    def move_to_trash(self, key: str, **rest: Any) -> Any:
        with suppress(SessionNotFound):
            super().move_to_trash(key, **rest)


@planted(contract.a_generation_says_how_its_log_is, files=True)
class AWrongUidIsUnknown(Sessions):
    def generation(self, key: str, uid: str = "") -> Any:
        with suppress(InvalidArgument):
            return super().generation(key, uid)


@planted(contract.the_room_that_sessions_take_is_known, files=True)
class FoldersTakeNoRoom(Sessions):
    def disk_usage(self, keys: Iterable[str] = ()) -> Any:
        usage = super().disk_usage(keys)
        return replace(usage, folders=dict.fromkeys(usage.folders, 0))


@planted(contract.a_journal_keeps_its_lines, files=True)
class AJournalBeginsAgain(Sessions):
    def journal(self, name: str) -> Any:
        Path(self.location, "receipts", f"{name}.jsonl").unlink(missing_ok=True)
        return super().journal(name)


@planted(contract.a_document_is_replaced_whole, files=True)
class ThereIsOneDocument(Sessions):
    def document(self, name: str) -> Any:
        super().document(name)
        return super().document("feed")


@planted(contract.a_document_is_replaced_whole, files=True)
class ADocumentMayBeAnywhere(Sessions):
    def document(self, name: str) -> Any:
        return super().document(name.rpartition("/")[2] if isinstance(name, str) else name)


@planted(contract.a_document_is_replaced_whole)
class ADocumentIsAddedTo(MemoryStore):
    def document(self, name: str, **rest: Any) -> Any:
        found = super().document(name, **rest)
        write = found.write
        found.write = lambda data: write(found.read() + data)  # type: ignore[method-assign]
        return found


@planted(contract.what_relies_on_a_lease_is_refused_once_it_is_lost)
class NothingReliesOnALease(Sessions):
    def with_internal_keys(self, **_: Any) -> Any:
        return super().with_internal_keys()


@planted(contract.what_relies_on_a_lease_is_refused_once_it_is_lost)
class ADeletionReliesOnNoLease(MemoryStore):
    def delete(self, key: str, **options: Any) -> None:
        super().delete(key, **{**options, "held": None})


@planted(contract.what_relies_on_a_lease_is_refused_once_it_is_lost)
class ADocumentReliesOnNoLease(MemoryStore):
    def document(self, name: str, **_: Any) -> Any:
        return super().document(name)


@planted(contract.what_relies_on_a_lease_is_refused_once_it_is_lost)
class ALeaseThatIsNotTakenIsNotLost(MemoryStore):
    def check_lent(self, lease: Any) -> None:
        if lease.number is not None:
            super().check_lent(lease)


@planted(contract.a_log_tells_whose_it_is, files=True)
class EveryFileIsOfTheFirstSession(Sessions):
    def key_of_file(self, path: str) -> Any:
        return min(info.key for info in self.list())


@planted(contract.the_room_of_each_folder_is_known, files=True)
class TheArchiveTakesNoRoom(Sessions):
    def disk_usage(self, keys: Iterable[str] = ()) -> Any:
        usage = super().disk_usage(keys)
        return replace(usage, folders=usage.folders | {"archive": 0})


@planted(contract.a_view_gives_every_record_with_its_line)
class TheFirstRecordHasNoLine(MemoryStore):
    def read(self, key: str, get: Any) -> Any:
        return super().read(key, lambda view: get(_FewerLines(view)))


class _FewerLines:
    def __init__(self, view: View) -> None:
        self._view = view

    def __getattr__(self, name: str) -> Any:
        return getattr(self._view, name)

    def all_lines(self) -> Any:
        return list(self._view.all_lines())[1:]


@planted(contract.a_view_gives_every_record_with_its_line)
class ALargePayloadIsNowhere(MemoryStore):
    def read(self, key: str, get: Any) -> Any:
        return super().read(key, lambda view: get(_NoPayloads(view)))


class _NoPayloads(_FewerLines):
    def all_lines(self) -> Any:
        return self._view.all_lines()

    def payload(self, name: str) -> str | None:
        return None
