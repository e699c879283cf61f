"""Planted bugs: erasing one message, and what is left of it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

from msgspec.structs import replace

from nacre import Conflict, Hit, Message, Redaction, SessionNotFound, Sessions
from nacre.index import Index
from nacre.storage.format import seal, unseal
from nacre.storage.memory_store import MemoryStore
from nacre.storage.protocol import FindCopies, Prefixed
from nacre.testing import contract
from tests.testing.planted.table import planted


class _Holes(Sessions):
    """Sessions that change how a message whose content was erased is read."""

    def change(self, hole: Message) -> Message | None:
        raise NotImplementedError

    def get_history(self, key: str, **rest: Any) -> Any:
        read = super().get_history(key, **rest)
        found = [self.change(message) if "redacted" in message.extra else message for message in read]
        return [message for message in found if message is not None]


@planted(contract.an_erased_message_leaves_a_marked_hole)
class HolesAreLeftOutOfTheHistory(_Holes):
    def change(self, hole: Message) -> Message | None:
        return None


@planted(contract.an_erased_message_leaves_a_marked_hole)
class AHoleIsNotMarked(_Holes):
    def change(self, hole: Message) -> Message | None:
        return replace(hole, extra={})


@planted(contract.what_links_an_erased_message_stays)
class AHoleHasNoCalls(_Holes):
    def change(self, hole: Message) -> Message | None:
        return replace(hole, tool_calls=())


@planted(contract.what_links_an_erased_message_stays)
class AHoleIsNobodysResult(_Holes):
    def change(self, hole: Message) -> Message | None:
        return replace(hole, tool_call_id=None)


@planted(contract.an_erased_message_leaves_a_marked_hole)
class ErasingIsOnlyTruncation(Sessions):
    def redact(self, key: str, n: int, **rest: Any) -> Any:
        self.truncate_history(key, 0)
        return Redaction(key=key, generation=self.snapshot(key).generation, n=n, erased=(n,))


class _Remembered(Sessions):
    """Sessions that keep, where readers find it, what they were to erase."""

    def __init__(self, *store: Any, **options: Any) -> None:
        super().__init__(*store, **options)
        self.kept: dict[int, Any] = {}

    def redact(self, key: str, n: int, **rest: Any) -> Any:
        self.kept |= {entry.n: entry for entry in super().records(key, after=n - 1, before=n + 1)}
        return super().redact(key, n, **rest)


@planted(contract.an_erased_message_leaves_a_marked_hole)
class RecordsKeepWhatWasErased(_Remembered):
    def records(self, key: str, kind: str | None = None, **rest: Any) -> Any:
        return (self.kept.get(entry.n, entry) for entry in super().records(key, kind, **rest))


@planted(contract.an_erased_message_leaves_a_marked_hole)
class FollowersGetWhatWasErased(_Remembered):
    def follow(self, key: str, after: int = 0) -> Any:
        for entry in super().follow(key, after):
            yield self.kept.get(entry.n, entry)


@planted(contract.what_links_an_erased_message_stays)
class OnlyTheContentOfAMessageIsErased(_Remembered):
    def records(self, key: str, kind: str | None = None, **rest: Any) -> Any:
        for entry in super().records(key, kind, **rest):
            before = self.kept[entry.n].data if entry.n in self.kept else {}
            yield replace(entry, data={**before, "content": ""}) if before else entry


@planted(contract.an_erased_message_leaves_a_marked_hole)
class ErasingCountsForExpect(Sessions):
    def redact(self, key: str, n: int, **rest: Any) -> Any:
        found = super().redact(key, n, **rest)
        self.set_summary(key, self.get_summary(key))
        return found


@planted(contract.an_erased_message_cannot_be_brought_back)
class OnlyLiveMessagesAreErased(Sessions):
    def redact(self, key: str, n: int, **rest: Any) -> Any:
        if n in self.snapshot(key).numbers:
            return super().redact(key, n, **rest)
        return Redaction(key=key, generation="", n=n)


@planted(contract.an_erased_message_cannot_be_brought_back)
class ErasingTwiceIsAConflict(Sessions):
    def redact(self, key: str, n: int, **rest: Any) -> Any:
        if any(stored.n == n and stored.message.extra for stored in self.transcript(key)):
            raise Conflict(f"session {key!r} has no message {n}")
        return super().redact(key, n, **rest)


@planted(contract.an_erased_message_cannot_be_brought_back)
class WhatWasErasedBeforeIsNamedAgain(Sessions):
    def redact(self, key: str, n: int, **rest: Any) -> Any:
        return replace(super().redact(key, n, **rest), erased=(n,))


class _Store(MemoryStore):
    """A store whose `redact` has the arguments of a backend, so that a bug names only those that it changes."""

    def redact(self, key: str, n: int, **how: Any) -> Redaction:
        return super().redact(key, n, **how)


@planted(contract.one_message_of_a_group_can_be_erased)
class AGroupIsErasedWhole(_Store):
    def redact(self, key: str, n: int, **how: Any) -> Redaction:
        found, record = super().redact(key, n, **how), self._active[key].find(n)
        first, count = (record and record.tx) or (n, 1)
        for each in range(first, first + count):
            super().redact(key, each, **how)
        return found


@planted(contract.one_message_of_a_group_can_be_erased)
class AnErasedGroupFallsApart(_Store):
    def redact(self, key: str, n: int, **how: Any) -> Redaction:
        found = super().redact(key, n, **how)
        life = self._active[key]
        records = [unseal(line) for line in life._lines]
        life._lines = [seal(replace(record, tx=None))[:-1] for record in records if record is not None]
        return found


@planted(contract.an_erased_payload_is_gone_unless_another_message_has_it)
class EqualMessagesAreErasedAlong(_Store):
    def redact(self, key: str, n: int, **how: Any) -> Redaction:
        said = {record.n: record.blobs for record in self._active[key].all() if record.blobs}
        found = super().redact(key, n, **how)
        for same in (each for each, blobs in said.items() if blobs == said.get(n)):
            super().redact(key, same, **how)
        return found


@planted(contract.an_erased_payload_is_gone_unless_another_message_has_it)
class PayloadsAreNotCounted(_Store):
    def redact(self, key: str, n: int, **how: Any) -> Redaction:
        return replace(super().redact(key, n, **how), payloads=0)


@planted(contract.an_erased_payload_is_gone_unless_another_message_has_it)
class WhatAnotherMessageKeepsIsNotCounted(_Store):
    def redact(self, key: str, n: int, **how: Any) -> Redaction:
        return replace(super().redact(key, n, **how), kept=0)


@planted(contract.who_may_still_have_the_words_is_named)
class NoForkIsNamed(_Store):
    def redact(self, key: str, n: int, **how: Any) -> Redaction:
        return replace(super().redact(key, n, **how), forks=())


@planted(contract.who_may_still_have_the_words_is_named)
class EverySummaryIsNamed(_Store):
    def redact(self, key: str, n: int, **how: Any) -> Redaction:
        every = tuple(record.n for record in self._active[key].all() if record.t == "sum")
        return replace(super().redact(key, n, **how), summaries=every)


@planted(contract.who_may_still_have_the_words_is_named)
class SummariesAreErasedAlong(Sessions):
    def redact(self, key: str, n: int, **rest: Any) -> Any:
        found = super().redact(key, n, **rest)
        for covers in found.summaries:
            super().redact(key, covers, **rest)
        return found


@planted(contract.who_may_still_have_the_words_is_named)
class ForksAreErasedAlong(Sessions):
    def redact(self, key: str, n: int, **rest: Any) -> Any:
        found = super().redact(key, n, **rest)
        for fork in found.forks:
            super().redact(fork, n, **rest)
        return found


@planted(contract.who_may_still_have_the_words_is_named, contract.copies_of_an_erased_message_go_with_it)
class OnlyMessagesCanBeErased(Sessions):
    def redact(self, key: str, n: int, **rest: Any) -> Any:
        if not list(self.records(key, "msg", after=n - 1, before=n + 1)):
            raise Conflict(f"session {key!r} has no message {n}")
        return super().redact(key, n, **rest)


@planted(contract.copies_of_an_erased_message_go_with_it)
class CopiesStay(_Store):
    def redact(self, key: str, n: int, **how: Any) -> Redaction:
        nothing: FindCopies = lambda *_: []  # noqa: E731 - a function of that type
        return super().redact(key, n, **{**how, "find_copies": nothing})


@planted(contract.copies_of_an_erased_message_go_with_it)
class EveryNoteIsTakenForACopy(_Store):
    def redact(self, key: str, n: int, **how: Any) -> Redaction:
        notes = [record.n for record in self._active[key].all() if record.t[:2] == "x."]
        return super().redact(key, n, **{**how, "find_copies": lambda *_: notes})


@planted(contract.a_retry_of_an_erased_write_is_known)
@planted(contract.what_was_erased_is_not_there_after_reopening, files=True)
class TheIdOfAnErasedMessageIsForgotten(Sessions):
    def add_message(self, key: str, role: str, content: str, *, id: Any = None, **rest: Any) -> Any:
        has_holes = any(stored.message.extra for stored in self.transcript(key))
        return super().add_message(key, role, content, id=None if has_holes else id, **rest)


@planted(contract.a_retry_of_an_erased_write_is_known)
class OtherContentUnderAnIdIsNoError(Sessions):
    def add_message(self, key: str, role: str, content: str, **rest: Any) -> Any:
        try:
            return super().add_message(key, role, content, **rest)
        except Conflict:
            return self.snapshot(key).n


@planted(contract.a_retry_of_an_erased_write_is_known)
class IdsRememberWhatWasErased(_Store):
    def redact(self, key: str, n: int, **how: Any) -> Redaction:
        life = self._active[key]
        before = life._ids
        found = super().redact(key, n, **how)
        life._ids = before
        return found


@planted(contract.a_retry_of_a_write_erased_in_an_earlier_generation_is_known)
class TheNextGenerationRemembersWhatWasErased(_Store):
    def redact(self, key: str, n: int, **how: Any) -> Redaction:
        before = self._active[key]._ids
        found = super().redact(key, n, **how)
        self._active[key]._ids = before
        return found


@planted(contract.a_retry_of_a_write_erased_in_an_earlier_generation_is_known)
class IdsOfEarlierGenerationsDoNotCount(Sessions):
    def add_message(self, key: str, role: str, content: str, *, id: Any = None, **rest: Any) -> Any:
        is_earlier = any(self.read_generations(key, lambda view: view.is_archived))
        return super().add_message(key, role, content, id=None if is_earlier else id, **rest)


@planted(contract.what_cannot_be_erased_is_refused)
class ErasingNothingIsNoError(Sessions):
    def redact(self, key: str, n: int, **rest: Any) -> Any:
        with suppress(Conflict):
            return super().redact(key, n, **rest)


@planted(contract.what_cannot_be_erased_is_refused)
class AFloatIsTakenAsANumber(Sessions):
    def redact(self, key: str, n: int, **rest: Any) -> Any:
        return super().redact(key, int(n) if isinstance(n, float) else n, **rest)


@planted(contract.what_cannot_be_erased_is_refused)
class AGenerationThatIsNotThereIsTheNewest(Sessions):
    def redact(self, key: str, n: int, **rest: Any) -> Any:
        try:
            return super().redact(key, n, **rest)
        except SessionNotFound:
            return super().redact(key, n)


@planted(contract.what_cannot_be_erased_is_refused)
class AGenerationOfNoneIsTheNewest(Sessions):
    def redact(self, key: str, n: int, *, generation: Any = "", **rest: Any) -> Any:
        return super().redact(key, n, generation=generation or "", **rest)


@planted(contract.what_cannot_be_erased_is_refused)
class SessionsOfNacreCanBeErased(Sessions):
    def redact(self, key: str, n: int, **rest: Any) -> Any:
        return Sessions.redact(self.with_internal_keys(), key, n, **rest)


@planted(contract.a_message_of_any_generation_can_be_erased)
class AlwaysTheNewestGenerationIsErased(Sessions):
    def redact(self, key: str, n: int, *, generation: str = "", **rest: Any) -> Any:
        return super().redact(key, n, **rest)


@planted(contract.a_message_of_any_generation_can_be_erased)
class TheOldestGenerationIsErased(Sessions):
    def redact(self, key: str, n: int, *, generation: str = "", **rest: Any) -> Any:
        first = self.transcript(key)[0].generation
        return super().redact(key, n, generation=generation or first, **rest)


@planted(contract.a_message_of_any_generation_can_be_erased)
class ErasingUnarchivesASession(Sessions):
    def redact(self, key: str, n: int, **rest: Any) -> Any:
        if self.status(key) == "archived":
            self.unarchive(key)
        return super().redact(key, n, **rest)


@planted(contract.a_message_is_erased_by_another_name_of_its_session)
class OtherNamesAreNotLookedUp(Sessions):
    def resolve(self, name: str) -> str:
        return name


@planted(contract.a_message_is_erased_by_another_name_of_its_session)
class APartCanEraseAnything(Sessions):
    def within(self, prefix: str) -> Sessions:
        class Leaky(Prefixed):
            def redact(self, key: str, n: int, **how: Any) -> Redaction:
                return self._whole.redact(key, n, **how)

        return Sessions(Leaky(self._store, prefix))


@planted(contract.copies_elsewhere_are_erased_after_those_of_the_store)
class CopiesElsewhereAreErasedFirst(Sessions):
    def redact(self, key: str, n: int, *, erase_copies: Any = None, **rest: Any) -> Any:
        if erase_copies is not None:
            erase_copies(Redaction(key=key, generation="", n=n))
        return super().redact(key, n, **rest)


@planted(contract.copies_elsewhere_are_erased_after_those_of_the_store)
class CopiesElsewhereAreErasedTwice(Sessions):
    def redact(self, key: str, n: int, *, erase_copies: Callable[[Redaction], None] | None = None, **rest: Any) -> Any:
        found = super().redact(key, n, erase_copies=erase_copies, **rest)
        if erase_copies is not None:
            erase_copies(found)
        return found


@planted(contract.copies_elsewhere_are_erased_after_those_of_the_store)
class CopiesThatCannotBeErasedAreNoError(Sessions):
    def redact(self, key: str, n: int, **rest: Any) -> Any:
        with suppress(OSError):
            return super().redact(key, n, **rest)


@planted(contract.what_was_erased_is_not_there_after_reopening, files=True)
class WhatWasErasedIsHiddenByThisProcess(Sessions):
    erased: frozenset[int] = frozenset()

    def redact(self, key: str, n: int, **rest: Any) -> Any:
        self.erased |= {n}
        return Redaction(key=key, generation="", n=n, erased=(n,))

    def get_history(self, key: str, **rest: Any) -> Any:
        read = zip(self.snapshot(key, **rest).numbers, super().get_history(key, **rest), strict=True)
        return [replace(message, content="") if n in self.erased else message for n, message in read]


@planted(contract.a_message_in_the_trash_can_be_erased, files=True)
class TheTrashIsNotSearchedForWhatIsErased(Sessions):
    def redact(self, key: str, n: int, **rest: Any) -> Any:
        if not self.exists(key):
            raise SessionNotFound(f"there is no session {key!r}")
        return super().redact(key, n, **rest)


@planted(contract.a_message_in_the_trash_can_be_erased, files=True)
class ErasingRestoresASession(Sessions):
    def redact(self, key: str, n: int, **rest: Any) -> Any:
        self.restore_from_trash(self.list_trash()[0].id)
        return super().redact(key, n, **rest)


@planted(contract.an_erased_message_is_not_found)
class TheIndexKeepsWhatWasErased(Index):
    def erase(self, key: str) -> None:
        pass


@planted(contract.an_erased_message_is_not_found)
class TheIndexForgetsTheSessionForGood(Index):
    gone: frozenset[str] = frozenset()

    def erase(self, key: str) -> None:
        super().erase(key)
        self.gone |= {key}

    def search(self, query: str, **how: Any) -> list[Hit]:
        return [hit for hit in super().search(query, **how) if hit.key not in self.gone]
