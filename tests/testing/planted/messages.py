"""Planted bugs: messages that do not come back as they were written, and callers that share memory with the store."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

from msgspec.structs import replace

from nacre import Message, SessionNotFound, Sessions
from nacre.codec import PARTS, ROLES
from nacre.testing import contract
from tests.testing.planted.table import planted


@planted(contract.an_unknown_key_reads_as_empty)
class AReadBeginsTheSession(Sessions):
    def get_meta(self, key: str) -> Any:
        self.append(key, "x.read", {})
        return super().get_meta(key)


@planted(contract.an_unknown_key_reads_as_empty)
class NoSummaryIsNone(Sessions):
    def get_summary(self, key: str) -> Any:
        return super().get_summary(key) or None


@planted(contract.earlier_empty_session, contract.an_unknown_key_reads_as_empty)
class AnUnknownKeyIsAnError(Sessions):
    def get_history(self, key: str, **rest: Any) -> Any:
        if not self.exists(key):
            raise SessionNotFound(f"there is no session {key!r}")
        return super().get_history(key, **rest)


@planted(contract.the_first_write_creates_the_session)
class MetaBeginsNoSession(Sessions):
    def set_meta(self, key: str, given: Any = None, /, **fields: Any) -> None:
        if self.exists(key):
            super().set_meta(key, given, **fields)


@planted(contract.a_message_comes_back_as_it_was_written)
class AnUnknownRoleIsTheUser(Sessions):
    def add_message(self, key: str, role: str, content: str, **rest: Any) -> Any:
        known = role if role in ("system", "user", "assistant", "tool") else "user"
        return super().add_message(key, known, content, **rest)


@planted(contract.earlier_round_trip, contract.a_message_comes_back_as_it_was_written)
class TheNewestComesFirst(Sessions):
    def get_history(self, key: str, **rest: Any) -> Any:
        return super().get_history(key, **rest)[::-1]


@planted(contract.earlier_round_trip)
class LosesEverySecondMessage(Sessions):
    def get_history(self, key: str, **rest: Any) -> Any:
        return super().get_history(key, **rest)[::2]


class _Changed(Sessions):
    """Sessions that change a full message before they store it."""

    def change(self, message: Message) -> Message:
        raise NotImplementedError

    def add_full_message(self, key: str, message: Message | Mapping[str, Any], **rest: Any) -> Any:
        value = message if isinstance(message, Message) else Message.from_mapping(message)
        return super().add_full_message(key, self.change(value), **rest)


@planted(contract.a_role_that_no_model_knows_is_stored_as_it_is)
class AnUnknownRoleOfAFullMessageIsTheUser(_Changed):
    def change(self, message: Message) -> Message:
        return replace(message, role=message.role if message.role in ROLES else "user")


@planted(contract.a_role_that_no_model_knows_is_stored_as_it_is)
class RolesAreWrittenSmall(_Changed):
    def change(self, message: Message) -> Message:
        return replace(message, role=message.role.lower())


@planted(contract.a_role_that_no_model_knows_is_stored_as_it_is)
class UnknownPartsAreLeftOut(_Changed):
    def change(self, message: Message) -> Message:
        parts = message.content if isinstance(message.content, list) else []
        return replace(
            message, content=[part for part in parts if isinstance(part, dict) and part.get("type") in PARTS]
        )


@planted(contract.a_role_that_no_model_knows_is_stored_as_it_is)
class RolesAreStripped(Sessions):
    def add_messages(self, key: str, messages: Iterable[Any], **rest: Any) -> Any:
        return super().add_messages(key, [replace(one, role=one.role.strip()) for one in messages], **rest)


@planted(contract.a_role_that_no_model_knows_is_stored_as_it_is)
class ALongRoleIsCut(Sessions):
    def transcript(self, key: str, **rest: Any) -> Any:
        found = super().transcript(key, **rest)
        return [replace(one, message=replace(one.message, role=one.message.role[:64])) for one in found]


@planted(contract.a_role_that_no_model_knows_is_stored_as_it_is)
class AReplacedHistoryHasOnlyKnownRoles(Sessions):
    def set_history(self, key: str, history: Iterable[Any], **rest: Any) -> Any:
        return super().set_history(key, [one for one in history if one.role in ROLES], **rest)


class _Items(Sessions):
    """Sessions that change how an item without a role is read."""

    def change(self, item: Message) -> Message | None:
        raise NotImplementedError

    def get_history(self, key: str, **rest: Any) -> Any:
        read = super().get_history(key, **rest)
        found = [message if message.role else self.change(message) for message in read]
        return [message for message in found if message is not None]


@planted(contract.an_item_without_a_role_is_kept_as_it_was_given)
class ItemsAreLeftOutOfTheHistory(_Items):
    def change(self, item: Message) -> Message | None:
        return None


@planted(contract.an_item_without_a_role_is_kept_as_it_was_given)
class AnItemIsTheAssistants(_Items):
    def change(self, item: Message) -> Message | None:
        return replace(item, role="assistant")


@planted(contract.an_item_without_a_role_is_kept_as_it_was_given)
class FieldsOfAnItemAreReadAsThoseOfAMessage(_Items):
    def change(self, item: Message) -> Message | None:
        extra = dict(item.extra)
        return replace(item, name=extra.pop("name"), content=extra.pop("content"), extra=extra)


@planted(contract.an_item_without_a_role_is_kept_as_it_was_given)
class AnItemHasTheTimeItWasStored(_Items):
    def change(self, item: Message) -> Message | None:
        return replace(item, extra={**item.extra, "created": item.created})


@planted(contract.an_item_without_a_role_is_kept_as_it_was_given)
class FieldsOfAnItemThatAreNullAreDropped(_Items):
    def change(self, item: Message) -> Message | None:
        return replace(item, extra={name: value for name, value in item.extra.items() if value is not None})


@planted(contract.an_item_without_a_role_is_kept_as_it_was_given)
class WhatHasNoTypeIsAnItem(Sessions):
    def add_full_message(self, key: str, message: Any, **rest: Any) -> Any:
        is_item = isinstance(message, dict) and "role" not in message
        return super().add_full_message(key, {"type": "item", **message} if is_item else message, **rest)


@planted(contract.an_item_without_a_role_is_kept_as_it_was_given)
class AnEmptyRoleIsTheUsers(Sessions):
    def add_full_message(self, key: str, message: Any, **rest: Any) -> Any:
        has_none = isinstance(message, Message) and not message.role
        return super().add_full_message(key, replace(message, role="user") if has_none else message, **rest)


@planted(contract.every_field_of_a_message_survives)
class ReasoningIsDropped(_Changed):
    def change(self, message: Message) -> Message:
        return replace(message, reasoning=None)


@planted(contract.a_mapping_in_openai_shape_comes_back_in_it, contract.earlier_tool_calls)
class AResultForgetsItsCall(_Changed):
    def change(self, message: Message) -> Message:
        return replace(message, tool_call_id=None)


@planted(contract.a_mapping_in_openai_shape_comes_back_in_it, contract.earlier_tool_calls)
class ArgumentsAreParsed(_Changed):
    def change(self, message: Message) -> Message:
        calls = [
            replace(call, arguments=json.loads(call.arguments)) if isinstance(call.arguments, str) else call
            for call in message.tool_calls
        ]
        return replace(message, tool_calls=tuple(calls))


@planted(contract.unknown_fields_survive)
class UnknownFieldsAreDropped(_Changed):
    def change(self, message: Message) -> Message:
        return replace(message, extra={})


@planted(contract.unknown_fields_survive)
class UnknownFieldsOfCallsAreDropped(_Changed):
    def change(self, message: Message) -> Message:
        return replace(message, tool_calls=tuple(replace(call, extra={}) for call in message.tool_calls))


@planted(contract.a_given_time_is_kept)
class EveryMessageIsOfNow(_Changed):
    def change(self, message: Message) -> Message:
        return replace(message, created=datetime.now(UTC))


@planted(contract.difficult_text_survives)
class LineSeparatorsBecomeNewlines(Sessions):
    def add_message(self, key: str, role: str, content: str, **rest: Any) -> Any:
        return super().add_message(key, role, "\n".join(content.splitlines()), **rest)


@planted(contract.difficult_text_survives)
class ASummaryIsStripped(Sessions):
    def set_summary(self, key: str, summary: str, **rest: Any) -> Any:
        return super().set_summary(key, summary.replace("\x00", "").strip(), **rest)


@planted(contract.a_large_message_survives)
class ALongTextIsCut(Sessions):
    def add_message(self, key: str, role: str, content: str, **rest: Any) -> Any:
        return super().add_message(key, role, content[:1_000_000], **rest)


@planted(contract.last_gives_the_newest_messages)
class LastGivesTheOldest(Sessions):
    def get_history(self, key: str, **rest: Any) -> Any:
        return super().get_history(key)[: rest.get("last")]


@planted(contract.last_gives_the_newest_messages)
class LastZeroIsAll(Sessions):
    def get_history(self, key: str, **rest: Any) -> Any:
        return super().get_history(key, last=rest.get("last") or None)


@planted(contract.last_never_reaches_past_a_truncation)
class LastIsTakenFromTheTranscript(Sessions):
    def get_history(self, key: str, **rest: Any) -> Any:
        return [stored.message for stored in self.transcript(key)][-(rest.get("last") or 0) :]


@planted(contract.what_callers_change_afterwards_is_not_stored)
class TheHistoryThatIsKeptIsGivenOut(Sessions):
    _kept: tuple[int, Any] = (0, [])

    def get_history(self, key: str, **rest: Any) -> Any:
        if self._kept[0] != (n := self.snapshot(key).n):
            self._kept = n, super().get_history(key, **rest)
        return self._kept[1]


@planted(contract.an_invalid_message_is_refused, contract.bytes_are_refused_where_only_json_is_kept)
class WhatIsNoTextBecomesText(Sessions):
    def add_full_message(self, key: str, message: Any, **rest: Any) -> Any:
        if isinstance(message, dict) and isinstance(message.get("content"), bytes):
            message = {**message, "content": message["content"].decode()}
        return super().add_full_message(key, message, **rest)


@planted(contract.an_invalid_message_is_refused)
class AMessageWithoutARoleIsTheUsers(Sessions):
    def add_full_message(self, key: str, message: Any, **rest: Any) -> Any:
        return super().add_full_message(key, {"role": "user", **message}, **rest)


@planted(contract.a_history_may_be_replaced_by_itself)
class AReplacedHistoryGetsNewTimes(Sessions):
    def set_history(self, key: str, history: Iterable[Any], **rest: Any) -> Any:
        long_ago = datetime(2000, 1, 1, tzinfo=UTC)
        return super().set_history(key, [replace(message, created=long_ago) for message in history], **rest)


@planted(contract.a_message_comes_back_as_it_was_written)
class TimesHaveNoZone(Sessions):
    def get_history(self, key: str, **rest: Any) -> Any:
        found = super().get_history(key, **rest)
        return [replace(message, created=message.created and message.created.replace(tzinfo=None)) for message in found]


@planted(contract.what_callers_change_afterwards_is_not_stored)
class TheMessagesThatAreKeptAreGivenOut(TheHistoryThatIsKeptIsGivenOut):
    def get_history(self, key: str, **rest: Any) -> Any:
        return list(super().get_history(key, **rest))


@planted(contract.a_group_with_a_bad_message_is_not_stored)
class WhatJsonCannotHoldIsNull(Sessions):
    def add_messages(self, key: str, messages: Iterable[Any], **rest: Any) -> Any:
        given = list(messages)
        texts = [isinstance(one, Message) or isinstance(one.get("content"), str) for one in given]
        good = [one if text else {**one, "content": None} for one, text in zip(given, texts, strict=True)]
        return super().add_messages(key, good, **rest)
