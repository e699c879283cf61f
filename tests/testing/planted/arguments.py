"""Planted bugs: wrong arguments that are taken for something else."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from nacre import Sessions
from nacre.testing import contract
from tests.testing.planted.table import planted


@planted(contract.a_number_that_is_no_integer_is_refused, contract.list_gives_the_newest_first)
class AFloatIsTakenAsALimit(Sessions):
    def list(self, *, limit: Any = None, **given: Any) -> Any:
        return super().list(limit=None if limit is None else int(limit), **given)


@planted(contract.a_number_that_is_no_integer_is_refused)
class AFloatIsTakenAsACount(Sessions):
    def truncate_history(self, key: str, keep_last: int, **rest: Any) -> Any:
        return super().truncate_history(key, int(keep_last), **rest)


@planted(contract.a_text_that_is_none_is_refused)
class ALabelBecomesText(Sessions):
    def set_labels(self, key: str, *, title: Any = None, **labels: Any) -> Any:
        return super().set_labels(key, title=None if title is None else str(title), **labels)


@planted(contract.a_text_that_is_none_is_refused)
class ATextIsTakenForTags(Sessions):
    def set_labels(self, key: str, *, tags: Any = None, **labels: Any) -> Any:
        return super().set_labels(key, tags=None if tags is None else list(tags), **labels)


@planted(contract.what_cannot_be_stored_is_refused)
class ContentBecomesText(Sessions):
    def add_message(self, key: str, role: str, content: Any, **rest: Any) -> Any:
        return super().add_message(key, role, str(content), **rest)


@planted(contract.what_cannot_be_stored_is_refused)
class WhatIsNoNumberIsNull(Sessions):
    def set_meta(self, key: str, given: Any = None, /, **fields: Any) -> Any:
        known = {name: None if str(item) == "nan" else item for name, item in fields.items()}
        return super().set_meta(key, given, **known)


@planted(contract.what_cannot_be_stored_is_refused)
class ASetBecomesAList(Sessions):
    def set_meta(self, key: str, given: Any = None, /, **fields: Any) -> Any:
        listed: dict[str, Any] = {
            name: sorted(item) if isinstance(item, set) else item for name, item in fields.items()
        }
        return super().set_meta(key, given, **listed)


@planted(contract.what_cannot_be_stored_is_refused)
class ANumberBecomesAName(Sessions):
    def append(self, key: str, kind: str, data: Any, **rest: Any) -> Any:
        named = {str(name): item for name, item in data.items()} if isinstance(data, dict) else data
        return super().append(key, kind, named, **rest)


@planted(contract.what_cannot_be_stored_is_refused)
class ALongNumberIsRounded(Sessions):
    def append(self, key: str, kind: str, data: Any, **rest: Any) -> Any:
        return super().append(key, kind, float(data) if isinstance(data, int) else data, **rest)


@planted(contract.what_cannot_be_stored_is_refused)
class NoHistoryIsAnEmptyOne(Sessions):
    def set_history(self, key: str, history: Any, **rest: Any) -> Any:
        return super().set_history(key, history or [], **rest)


@planted(contract.what_cannot_be_stored_is_refused)
class ATextIsAMessage(Sessions):
    def add_messages(self, key: str, messages: Any, **rest: Any) -> Any:
        given = [{"role": "user", "content": messages}] if isinstance(messages, str) else messages
        return super().add_messages(key, given, **rest)


@planted(contract.what_cannot_be_stored_is_refused)
class NoSummaryIsAnEmptyOne(Sessions):
    def set_summary(self, key: str, summary: str, **rest: Any) -> Any:
        return super().set_summary(key, summary or "", **rest)


@planted(contract.an_id_that_cannot_be_one_is_refused)
class AnEmptyIdIsNone(Sessions):
    def add_messages(self, key: str, messages: Iterable[Any], **rest: Any) -> Any:
        return super().add_messages(key, messages, **{**rest, "id": rest.get("id") or None})


@planted(contract.an_id_that_cannot_be_one_is_refused)
class ALongIdIsCut(Sessions):
    def append(self, key: str, kind: str, data: Any, *, id: Any = None, **rest: Any) -> Any:
        return super().append(key, kind, data, id=id[:256] if isinstance(id, str) else id, **rest)
