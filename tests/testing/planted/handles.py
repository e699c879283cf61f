"""Planted bugs: the handle of one session."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from nacre import Message, Session, Sessions
from nacre.testing import contract
from tests.testing.planted.table import planted


def with_handle(handle: type[Session]) -> type[Sessions]:
    """Sessions that give a handle with one fault."""

    def get(self: Sessions, key: str) -> Session:
        return handle(self, Sessions.__getitem__(self, key).key)

    return type(handle.__name__, (Sessions,), {"__getitem__": get})


def planted_handle(*checks: Any) -> Any:
    return lambda handle: planted(*checks)(with_handle(handle))


@planted_handle(contract.a_session_can_be_used_without_naming_its_key_again)
class AnEmptyHandleIsFalse(Session):
    def __bool__(self) -> bool:
        return len(self) > 0


@planted_handle(contract.a_session_can_be_used_without_naming_its_key_again)
class AHandleCountsWhatWasEverSaid(Session):
    def __len__(self) -> int:
        return len(self._sessions.transcript(self.key))


@planted_handle(contract.a_session_can_be_used_without_naming_its_key_again)
class AHandleRemembersItsMessages(Session):
    def __init__(self, sessions: Sessions, key: str) -> None:
        super().__init__(sessions, key)
        self.seen = super().messages()

    def __iter__(self) -> Iterator[Message]:
        return iter(self.seen)


@planted_handle(contract.a_session_can_be_used_without_naming_its_key_again)
class AHandleGivesAllMessages(Session):
    def messages(self, last: int | None = None) -> list[Message]:
        return super().messages()


@planted_handle(contract.a_session_can_be_used_without_naming_its_key_again)
class AHandleExtendsOneByOne(Session):
    def extend(self, messages: Iterable[Any]) -> int:
        return [self.append(message) for message in messages][-1]


@planted_handle(contract.a_session_can_be_used_without_naming_its_key_again)
class ASummaryOfAHandleCoversNothing(Session):
    def set_summary(self, summary: str, *, upto: int | None = None) -> None:
        super().set_summary(summary)


@planted(contract.a_session_can_be_used_without_naming_its_key_again)
class OnlyActiveSessionsAreIn(Sessions):
    def __contains__(self, key: str) -> bool:
        return self.status(key) == "active"


@planted(contract.a_session_can_be_used_without_naming_its_key_again)
class AHandleBeginsItsSession(Sessions):
    def __getitem__(self, key: str) -> Session:
        self.set_history(key, self.get_history(key))
        return super().__getitem__(key)


@planted(contract.what_cannot_be_a_key_has_no_session_to_use)
class AKeyIsCheckedWhenItIsUsed(Sessions):
    def __getitem__(self, key: str) -> Session:
        return Session(self, key)


@planted(contract.what_cannot_be_a_key_has_no_session_to_use)
class AStoreIsTakenForAList(Sessions):
    __iter__: Any = Sessions.list


@planted_handle(contract.what_cannot_be_a_key_has_no_session_to_use)
class ATextAloneIsWhatTheUserSays(Session):
    def append(self, message: Any, content: str | None = None) -> int:
        return super().append("user", message) if content is None else super().append(message, content)
