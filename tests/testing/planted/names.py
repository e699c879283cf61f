"""Planted bugs: other names of sessions."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from nacre import Conflict, InvalidKey, Sessions
from nacre.history import alias_table
from nacre.storage.protocol import Lease
from nacre.testing import contract
from tests.testing.planted.table import planted


@planted(contract.a_session_is_found_by_its_other_name)
class OtherNamesAreNotResolved(Sessions):
    def _target(self, name: str) -> str | None:
        return None


@planted(contract.a_session_is_found_by_its_other_name)
class OtherNamesAreForReading(Sessions):
    def _goal(self, key: str) -> str:
        return key


@planted(contract.what_cannot_be_another_name_is_refused)
class AKeyThatIsTakenIsIgnored(Sessions):
    def add_alias(self, key: str, alias: str) -> Any:
        with suppress(Conflict):
            super().add_alias(key, alias)


@planted(contract.what_cannot_be_another_name_is_refused)
class AReservedNameIsIgnored(Sessions):
    def add_alias(self, key: str, alias: str) -> Any:
        with suppress(InvalidKey):
            super().add_alias(key, alias)


@planted(contract.a_name_that_is_not_clear_stands_for_itself)
class ANameOfTwoIsTheFirstOnes(Sessions):
    def _target(self, name: str) -> str | None:
        return next(iter(self._table().keys.get(name, ())), None)


@planted(contract.other_names_go_with_their_session)
class OtherNamesOutliveTheirSession(Sessions):
    def _erase_aliases(self, key: str) -> None:
        pass


@planted(contract.other_names_go_with_their_session)
class ASessionIsDeletedByItsOtherName(Sessions):
    def delete(self, key: str, **rest: Any) -> Any:
        super().delete(self.resolve(key), **rest)


@planted(contract.other_names_are_known_across_openings, files=True)
class OtherNamesAreReadOnce(Sessions):
    def _table(self) -> alias_table.Names:
        return self._names or super()._table()


@planted(contract.a_turn_is_held_by_one_at_a_time, files=True)
class ATurnIsOfOneName(Sessions):
    def hold(self, key: str) -> Lease:
        return self._store.hold(key)


@planted(contract.a_session_is_found_by_its_other_name)
class AStatusIsThatOfAnyName(Sessions):
    def status(self, key: str) -> Any:
        return super().status(self.resolve(key))
