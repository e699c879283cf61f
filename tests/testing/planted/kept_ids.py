"""Planted bugs: ids that are to count without limit, and do not."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from msgspec.structs import replace

from nacre import Conflict, Redaction, Sessions
from nacre.records import Rules
from nacre.storage.memory_store import MemoryStore
from nacre.testing import contract
from tests.testing.planted.table import planted

_WINDOW = 4096


@planted(
    contract.ids_are_kept_without_limit_for_those_who_ask, contract.a_retry_of_an_erased_write_is_known_without_limit
)
class IdsAreKeptForAWhile(MemoryStore):
    def __init__(self, *, rules: Rules) -> None:
        super().__init__(rules=replace(rules, keeps_ids=lambda *_: False))


@planted(contract.ids_are_kept_without_limit_for_those_who_ask)
class AForkDoesNotKeepItsIds(Sessions):
    def fork(self, key: str, new_key: str, *rest: Any, **how: Any) -> Any:
        found = super().fork(key, new_key, *rest, **how)
        self.set_meta(new_key, keep_ids=None)
        return found


@planted(contract.ids_are_kept_without_limit_for_those_who_ask)
class AnArchivedSessionDoesNotKeepItsIds(Sessions):
    def archive(self, key: str, **rest: Any) -> Any:
        self.set_meta(key, keep_ids=None)
        return super().archive(key, **rest)


@planted(contract.ids_are_kept_without_limit_for_those_who_ask)
class IdsOfOneEarlierGenerationAreKept(MemoryStore):
    def move(self, key: str, *, archive: bool, **rest: Any) -> None:
        super().move(key, archive=archive, **rest)
        self._archived[key][-1]._earlier = None


@planted(contract.ids_are_kept_without_limit_for_those_who_ask)
class AKeptIdGivesTheFirstNumberOfItsGroup(Sessions):
    def add_messages(self, key: str, messages: Iterable[Any], **rest: Any) -> Any:
        given = list(messages)
        number = super().add_messages(key, given, **rest)
        return number if number > self.snapshot(key).n - _WINDOW else number - len(given) + 1


@planted(
    contract.ids_are_kept_without_limit_for_those_who_ask, contract.a_retry_of_an_erased_write_is_known_without_limit
)
class OtherContentUnderAKeptIdIsNoError(Sessions):
    def add_message(self, key: str, role: str, content: str, **rest: Any) -> Any:
        return self.add_messages(key, [{"role": role, "content": content}], **rest)

    def add_messages(self, key: str, messages: Iterable[Any], **rest: Any) -> Any:
        try:
            return super().add_messages(key, messages, **rest)
        except Conflict:
            return self.snapshot(key).n


@planted(contract.a_retry_of_an_erased_write_is_known_without_limit)
class KeptIdsRememberWhatWasErased(MemoryStore):
    def redact(self, key: str, n: int, **how: Any) -> Redaction:
        life = self._active[key]
        kept, upto = life._kept, life._kept_upto
        found = super().redact(key, n, **how)
        life._kept, life._kept_upto = kept, upto
        return found


@planted(contract.a_retry_of_an_erased_write_is_known_without_limit)
class KeptIdsAreForgottenWhenOneIsErased(MemoryStore):
    def redact(self, key: str, n: int, **how: Any) -> Redaction:
        found, life = super().redact(key, n, **how), self._active[key]
        life._kept_upto = life.n
        return found
