"""The contract of a session store: plain functions that the tests of any backend run.

A check is given a function that opens the store and raises ``AssertionError``
with what it saw when the store behaves otherwise.

>>> import pytest
>>> @pytest.mark.parametrize("check", STORE_CONTRACT, ids=name)
... def test_contract(check: Check, tmp_path: Path) -> None:
...     check(lambda: nacre.open(tmp_path))

``STORE_CONTRACT`` needs a fresh store, ``REOPEN_CONTRACT`` a place that keeps its
sessions and may be open more than once, ``SEARCH_CONTRACT`` a store with an index,
``UPKEEP_CONTRACT`` one with a trash, journals and sizes, ``FILES_CONTRACT`` one whose sessions
are files, ``EARLIER_CONTRACT`` only the nine methods of ``SessionStore``. No check opens
the store twice unless it is in ``REOPEN_CONTRACT``.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from types import FunctionType
from typing import Any, TypeAlias

import msgspec

from nacre.errors import (
    Conflict,
    InvalidArgument,
    InvalidKey,
    InvalidMessage,
    LeaseLost,
    SessionBusy,
    SessionNotFound,
    StoreError,
)
from nacre.messages import Message, Page, Redaction, Settlement, Snapshot, ToolCall, Version
from nacre.records import AppendRecord, Losses, Pop, Rewind, SetMeta, Summarise, Truncate, View
from nacre.sessions import Forgiving, Sessions, SessionStore

Open: TypeAlias = Callable[[], Sessions]
Check: TypeAlias = Callable[[Open], None]
EarlierCheck: TypeAlias = Callable[[Callable[[], SessionStore]], None]


def name(check: Callable[..., None]) -> str:
    """Say what a check is about: its id in a parametrized test."""
    return check.__name__


def _checks(*, after: Iterable[Callable[..., None]] = ()) -> tuple[Callable[..., None], ...]:
    """Every check written so far, besides some: each public function here but `name` is one, so none is forgotten."""
    done: set[object] = {name, *after}
    written = (value for title, value in globals().items() if isinstance(value, FunctionType) and title[0] != "_")
    return tuple(check for check in written if check.__module__ == __name__ and check not in done)


# What the checks are written with. Plain `assert` would be silent under `python -O`
# and says little outside a test runner that rewrites it.


def _same(got: object, want: object) -> None:
    if got != want:
        raise AssertionError(f"got {got!r}, want {want!r}")


def _holds(claim: object) -> None:
    if not claim:
        raise AssertionError("what should hold does not")


@contextmanager
def _raises(error: type[Exception]) -> Iterator[None]:
    try:
        yield
    except error:
        return
    raise AssertionError(f"{error.__name__} was not raised")


def _user(text: str) -> Message:
    return Message(role="user", content=text)


def _texts(messages: Iterable[Message]) -> list[object]:
    return [message.content for message in messages]


def _live(sessions: SessionStore, key: str = "k") -> list[object]:
    return _texts(sessions.get_history(key))


def _ever(sessions: Sessions, key: str = "k") -> list[object]:
    return _texts(stored.message for stored in sessions.transcript(key))


def _add(sessions: Sessions, texts: Iterable[str], key: str = "k") -> list[int]:
    return [sessions.add_message(key, "user", text) for text in texts]


def _updated(sessions: Sessions, key: str) -> datetime:
    return next(info.updated for info in sessions.list(prefix=key))


# Reading and creating


def an_unknown_key_reads_as_empty(open_store: Open) -> None:
    """Reading a session that nobody wrote gives empty values and does not create it."""
    with open_store() as sessions:
        _same(sessions.get_history("k"), [])
        _same(sessions.get_summary("k"), "")
        _same(sessions.transcript("k"), [])
        _same(list(sessions.records("k")), [])
        _same(sessions.get_meta("k"), {})
        _holds(not sessions.exists("k"))
        _same(list(sessions.list()), [])


def the_first_write_creates_the_session(open_store: Open) -> None:
    """A message, a summary, a history, a meta field or a record each create their session."""
    with open_store() as sessions:
        sessions.add_message("message", "user", "hello")
        sessions.set_summary("summary", "So far.")
        sessions.set_history("history", [_user("hello")])
        sessions.set_meta("meta", title="A title")
        sessions.append("record", "x.note", {"a": 1})
        keys = {info.key for info in sessions.list()}
        _same(keys, {"message", "summary", "history", "meta", "record"})
        _same([sessions.exists(key) for key in sorted(keys)], [True] * 5)


def a_message_comes_back_as_it_was_written(open_store: Open) -> None:
    """Role and content survive, for roles nobody knows too, and the message gets a time."""
    with open_store() as sessions:
        sessions.add_message("k", "user", "hello")
        sessions.add_message("k", "narrator", "")
        history = sessions.get_history("k")
        _same([(m.role, m.content) for m in history], [("user", "hello"), ("narrator", "")])
        _same([m.created is not None and m.created.utcoffset() is not None for m in history], [True, True])


def a_role_that_no_model_knows_is_stored_as_it_is(open_store: Open) -> None:
    """However it is written, and by whatever method; kinds of content that no model knows are, too."""
    roles = ["narrator", "User", " user ", "функция", "a" * 300]
    content: list[Any] = [{"type": "hologram", "depth": 3}, {"no": "type"}, "text", 7, None, []]
    with open_store() as sessions:
        for role in roles[:2]:
            sessions.add_full_message("k", {"role": role, "content": content})
        sessions.add_messages("k", [Message(role=role, content=content) for role in roles[2:]])
        found = sessions.get_history("k")
        _same([(message.role, message.content) for message in found], [(role, content) for role in roles])
        _same([stored.message.role for stored in sessions.transcript("k")], roles)
        _same([entry.data["role"] for entry in sessions.records("k", "msg")], roles)
        sessions.set_history("k", found)
        _same(sessions.get_history("k"), found)


def every_field_of_a_message_survives(open_store: Open) -> None:
    """A message that has all its fields comes back equal."""
    message = Message(
        role="assistant",
        content=[{"type": "text", "text": "see"}, {"type": "image", "n": [1, 2.5, None, True]}],
        tool_calls=(ToolCall(id="c1", name="ls", arguments={"path": "."}, extra={"index": 0}),),
        name="nacre",
        reasoning="first, look",
        media=("media://1",),
        model="gemma4:e4b",
        created=datetime(2026, 11, 15, 18, 0, 0, 123000, tzinfo=UTC),
        extra={"finish_reason": "tool_calls"},
    )
    with open_store() as sessions:
        sessions.add_full_message("k", message)
        _same(sessions.get_history("k"), [message])


def a_mapping_in_openai_shape_comes_back_in_it(open_store: Open) -> None:
    """What a chat client sends may be stored as it is and is given back with every field."""
    call = {"id": "c1", "type": "function", "function": {"name": "ls", "arguments": '{"path":"."}'}}
    given: list[dict[str, Any]] = [
        {"role": "user", "content": "list"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "content": "a.py", "tool_call_id": "c1"},
    ]
    with open_store() as sessions:
        for mapping in given:
            sessions.add_full_message("k", mapping)
        back = [message.to_mapping() for message in sessions.get_history("k")]
        kept = [{field: out.get(field) for field in mapping} for mapping, out in zip(given, back, strict=True)]
        _same(kept, given)


def unknown_fields_survive(open_store: Open) -> None:
    """A field we have no name for is kept, on the message and on its tool calls."""
    call = {"id": "c1", "type": "function", "function": {"name": "ls", "arguments": "{}"}, "index": 3}
    mapping = {"role": "assistant", "content": "", "tool_calls": [call], "annotations": [{"a": None}]}
    with open_store() as sessions:
        sessions.add_full_message("k", mapping)
        message = sessions.get_history("k")[0]
        _same(message.extra, {"annotations": [{"a": None}]})
        _same([call.extra for call in message.tool_calls], [{"index": 3}])
        _same(message.to_mapping()["tool_calls"], [call])


def difficult_text_survives(open_store: Open) -> None:
    """Controls, line separators, bidirectional overrides and emoji come back unchanged."""
    text = 'a\x00b\n\r\x1c\x7f\x85\u2028\u2029\u202e\u2066\ufeff\ufffd 🦪 \U0010ffff "\\'
    with open_store() as sessions:
        sessions.add_message("k", "user", text)
        sessions.set_summary("k", text)
        sessions.set_meta("k", title=text)
        _same(_live(sessions), [text])
        _same(sessions.get_summary("k"), text)
        _same(sessions.get_meta("k"), {"title": text})


def a_large_message_survives(open_store: Open) -> None:
    """A tool result of a few megabytes is stored and read like any other."""
    text = "0123456789abcdef" * 200_000
    with open_store() as sessions:
        sessions.add_message("k", "tool", text)
        sessions.add_message("k", "user", "and?")
        _holds(_live(sessions) == [text, "and?"])


def a_given_time_is_kept(open_store: Open) -> None:
    """A message that says when it was created is not given another time."""
    then = datetime(2020, 2, 29, 12, 30, 15, 250000, tzinfo=UTC)
    with open_store() as sessions:
        sessions.add_full_message("k", Message(role="user", content="a", created=then))
        _same(sessions.get_history("k")[0].created, then)


def last_gives_the_newest_messages(open_store: Open) -> None:
    """``last`` cuts the reading, not the history."""
    with open_store() as sessions:
        _add(sessions, "abcd")
        _same(_texts(sessions.get_history("k", last=2)), ["c", "d"])
        _same(_texts(sessions.get_history("k", last=9)), ["a", "b", "c", "d"])
        _same(sessions.get_history("k", last=0), [])
        _same(_live(sessions), ["a", "b", "c", "d"])


def last_never_reaches_past_a_truncation(open_store: Open) -> None:
    """Asking for more than is live gives what is live."""
    with open_store() as sessions:
        _add(sessions, "abcd")
        sessions.truncate_history("k", 2)
        _same(_texts(sessions.get_history("k", last=3)), ["c", "d"])


def what_callers_change_afterwards_is_not_stored(open_store: Open) -> None:
    """Neither the mapping that was given nor the lists that came back are the store's own."""
    parts: list[Any] = [{"type": "text", "text": "before"}]
    with open_store() as sessions:
        sessions.add_full_message("k", {"role": "user", "content": parts, "x": []})
        sessions.set_meta("k", labels=["one"])
        parts[0]["text"] = "after"
        sessions.get_history("k")[0].extra["x"].append("after")
        sessions.get_history("k").clear()
        sessions.get_meta("k")["labels"].append("two")
        _same(_live(sessions), [[{"type": "text", "text": "before"}]])
        _same([message.extra for message in sessions.get_history("k")], [{"x": []}])
        _same(sessions.get_meta("k"), {"labels": ["one"]})


# Numbers, groups, expect, id


def numbers_increase_and_are_the_transcripts(open_store: Open) -> None:
    """Each write returns a higher number, the one under which ``transcript`` has it."""
    with open_store() as sessions:
        first = sessions.add_message("k", "user", "a")
        second = sessions.add_full_message("k", _user("b"))
        third = sessions.add_messages("k", [_user("c"), _user("d")])
        numbers = [stored.n for stored in sessions.transcript("k")]
        _same((numbers[0], numbers[1], numbers[3]), (first, second, third))
        _holds(numbers == sorted(set(numbers)))
        _holds(first > 0)


def numbers_are_never_reused(open_store: Open) -> None:
    """Taking messages back, by whatever means, does not free their numbers."""
    with open_store() as sessions:
        numbers = _add(sessions, "ab")
        sessions.pop("k")
        numbers += _add(sessions, "c")
        sessions.truncate_history("k", 0)
        numbers += _add(sessions, "d")
        sessions.clear("k")
        sessions.save("k")
        numbers += _add(sessions, "e")
        sessions.rewind("k", numbers[0])
        numbers += _add(sessions, "f")
        _same(numbers, sorted(set(numbers)))


def a_group_is_stored_whole(open_store: Open) -> None:
    """Several messages given at once follow each other, and the last one's number comes back."""
    with open_store() as sessions:
        sessions.add_message("k", "user", "a")
        last = sessions.add_messages("k", [_user("b"), {"role": "assistant", "content": "c"}])
        _same(_live(sessions), ["a", "b", "c"])
        _same(sessions.transcript("k")[-1].n, last)


def a_group_with_a_bad_message_is_not_stored(open_store: Open) -> None:
    """One message that cannot be stored refuses the group, and does not create the session."""
    with open_store() as sessions:
        with _raises(InvalidMessage):
            sessions.add_messages("k", [_user("a"), {"content": "no role"}])
        _holds(not sessions.exists("k"))
        sessions.add_message("k", "user", "b")
        with _raises(InvalidMessage):
            sessions.add_messages("k", [_user("c"), {"role": "user", "content": [float("nan")]}])
        _same(_ever(sessions), ["b"])


def submit_is_add_messages_without_waiting(open_store: Open) -> None:
    """The future gives the number, or the error that ``add_messages`` would raise."""
    with open_store() as sessions:
        number = sessions.submit("k", [_user("a"), _user("b")], id="one").result(timeout=30)
        _same(sessions.transcript("k")[-1].n, number)
        _same(sessions.submit("k", [_user("a"), _user("b")], id="one").result(timeout=30), number)
        with _raises(Conflict):
            sessions.submit("k", [_user("c")], expect=0).result(timeout=30)
        _same(_live(sessions), ["a", "b"])


def expect_zero_means_a_new_session(open_store: Open) -> None:
    """A caller that expects nothing may begin the history, once."""
    with open_store() as sessions:
        sessions.add_messages("k", [_user("a")], expect=0)
        with _raises(Conflict):
            sessions.add_messages("k", [_user("b")], expect=0)
        _same(_live(sessions), ["a"])


def a_stale_expect_is_a_conflict(open_store: Open) -> None:
    """A writer that has not seen the newest message gets an error, and nothing is stored."""
    with open_store() as sessions:
        first = sessions.add_messages("k", [_user("a")])
        second = sessions.add_messages("k", [_user("b")], expect=first)
        for stale in (first, second + 1):
            with _raises(Conflict):
                sessions.add_messages("k", [_user("c")], expect=stale)
        _same(_ever(sessions), ["a", "b"])


def a_refused_expect_does_not_create_the_session(open_store: Open) -> None:
    """Expecting a record of a session that is not there stores nothing."""
    with open_store() as sessions:
        with _raises(Conflict):
            sessions.add_messages("k", [_user("a")], expect=7)
        _holds(not sessions.exists("k"))


def every_change_of_history_counts_for_expect(open_store: Open) -> None:
    """Truncation, summary, replacement, pop, rewind and clear each make the last number stale."""
    changes: list[Callable[[Sessions, int], object]] = [
        lambda sessions, _: sessions.truncate_history("k", 1),
        lambda sessions, _: sessions.set_summary("k", "So far."),
        lambda sessions, _: sessions.set_history("k", [_user("z")]),
        lambda sessions, _: sessions.pop("k"),
        lambda sessions, first: sessions.rewind("k", first),
        lambda sessions, _: sessions.clear("k"),
    ]
    with open_store() as sessions:
        for change in changes:
            first, last = _add(sessions, "ab")
            change(sessions, first)
            with _raises(Conflict):
                sessions.add_messages("k", [_user("c")], expect=last)


def notes_do_not_count_for_expect(open_store: Open) -> None:
    """Meta, usage, tool and own records, and compaction, leave the expected number as it was."""
    with open_store() as sessions:
        sessions.set_meta("k", title="before any message")
        last = sessions.add_messages("k", [_user("a")], expect=0)
        sessions.set_meta("k", title="after it")
        sessions.append("k", "use", {"tokens": 12})
        sessions.append("k", "tool", {"call": "c1"})
        sessions.append("k", "x.note", {"a": 1})
        sessions.save("k")
        sessions.add_messages("k", [_user("b")], expect=last)
        _same(_live(sessions), ["a", "b"])


def a_retry_under_the_same_id_is_stored_once(open_store: Open) -> None:
    """The original number comes back, whatever happened in between."""
    with open_store() as sessions:
        number = sessions.add_messages("k", [_user("a"), _user("b")], id="once")
        _same(sessions.add_messages("k", [_user("a"), _user("b")], id="once"), number)
        sessions.add_message("k", "user", "c")
        sessions.truncate_history("k", 0)
        sessions.save("k")
        _same(sessions.add_messages("k", [_user("a"), _user("b")], id="once"), number)
        _same(_ever(sessions), ["a", "b", "c"])


def other_content_under_the_same_id_is_a_conflict(open_store: Open) -> None:
    """An id names one content: different text, more or fewer messages are refused."""
    with open_store() as sessions:
        sessions.add_messages("k", [_user("a"), _user("b")], id="once")
        for other in ([_user("a"), _user("x")], [_user("a")], [_user("a"), _user("b"), _user("c")]):
            with _raises(Conflict):
                sessions.add_messages("k", other, id="once")
        _same(_ever(sessions), ["a", "b"])


def id_is_looked_at_before_expect(open_store: Open) -> None:
    """A retry of a write that succeeded succeeds, though what it expected is long stale."""
    with open_store() as sessions:
        number = sessions.add_messages("k", [_user("a")], expect=0, id="once")
        sessions.add_message("k", "user", "b")
        _same(sessions.add_messages("k", [_user("a")], expect=0, id="once"), number)
        _same(_live(sessions), ["a", "b"])


def ids_belong_to_their_session(open_store: Open) -> None:
    """The same id in two sessions is two ids."""
    with open_store() as sessions:
        sessions.add_messages("one", [_user("a")], id="once")
        sessions.add_messages("two", [_user("b")], id="once")
        _same((_live(sessions, "one"), _live(sessions, "two")), (["a"], ["b"]))


def a_refused_write_does_not_use_up_its_id(open_store: Open) -> None:
    """After a conflict the same id may be given to what is stored at last."""
    with open_store() as sessions:
        last = sessions.add_message("k", "user", "a")
        with _raises(Conflict):
            sessions.add_messages("k", [_user("b")], expect=0, id="once")
        sessions.add_messages("k", [_user("c")], expect=last, id="once")
        _same(_live(sessions), ["a", "c"])


_WRITES: dict[str, Callable[..., object]] = {
    "add_message": lambda sessions, key, text, **how: sessions.add_message(key, "user", text, **how),
    "add_full_message": lambda sessions, key, text, **how: sessions.add_full_message(key, _user(text), **how),
    "add_messages": lambda sessions, key, text, **how: sessions.add_messages(key, [_user(text)], **how),
    "set_summary": lambda sessions, key, text, **how: sessions.set_summary(key, text, **how),
    "set_history": lambda sessions, key, text, **how: sessions.set_history(key, [_user(text)], **how),
    "truncate_history": lambda sessions, key, text, **how: sessions.truncate_history(key, 1 + len(text), **how),
    "submit": lambda sessions, key, text, **how: sessions.submit(key, [_user(text), Truncate(1)], **how).result(
        timeout=30
    ),
    "update": lambda sessions, key, text, **how: sessions.update(key, [Summarise(text), Pop()], **how),
    "rewind": lambda sessions, key, text, **how: sessions.rewind(key, 1 + len(text), **how),
    "clear": lambda sessions, key, text, **how: (
        sessions.clear(key, **how) if text == "p" else sessions.set_history(key, [], **how)
    ),
    "set_meta": lambda sessions, key, text, **how: sessions.set_meta(key, {"title": text, "id": None}, **how),
    "set_labels": lambda sessions, key, text, **how: sessions.set_labels(key, tags=[text], **how),
    "append": lambda sessions, key, text, **how: sessions.append(key, "x.note", {"text": text}, **how),
}
"""Every write that takes an id, with a text that makes it another one."""


def every_write_is_stored_once_under_its_id(open_store: Open) -> None:
    """A retry returns what the first try returned, also when much has happened in between."""
    with open_store() as sessions:
        for name, write in _WRITES.items():
            _add(sessions, "abc", name)
            first = write(sessions, name, "p", id=name)
            _add(sessions, "d", name)
            before = sessions.snapshot(name)
            _same(write(sessions, name, "p", id=name), first)
            _same((name, sessions.snapshot(name)), (name, before))


def every_write_refuses_other_content_under_its_id(open_store: Open) -> None:
    """An id names one content, whatever kind of write it is."""
    with open_store() as sessions:
        for name, write in _WRITES.items():
            _add(sessions, "abc", name)
            write(sessions, name, "p", id=name)
            before = sessions.snapshot(name)
            for other in (write, *(other for known, other in _WRITES.items() if known in ("append", "set_summary"))):
                with _raises(Conflict):
                    other(sessions, name, "qq", id=name)
            _same((name, sessions.snapshot(name)), (name, before))


def every_write_is_refused_if_the_session_has_changed(open_store: Open) -> None:
    """A number is compared with the history, a version with everything that was stored."""
    with open_store() as sessions:
        for name, write in _WRITES.items():
            _add(sessions, "abc", name)
            stale = sessions.snapshot(name)
            sessions.append(name, "x.note", {})
            with _raises(Conflict):
                write(sessions, name, "p", expect=stale.version)
            write(sessions, name, "p", expect=stale.expect)
            now = sessions.snapshot(name)
            _add(sessions, "d", name)
            before = sessions.snapshot(name)
            with _raises(Conflict):
                write(sessions, name, "q", expect=now.expect)
            _same((name, sessions.snapshot(name)), (name, before))
            write(sessions, name, "qq", expect=before.version)


def a_version_sees_every_record_but_those_of_maintenance(open_store: Open) -> None:
    """Meta and notes count, and a move to another generation; moving records out of the log does not."""
    with open_store() as sessions:
        sessions.add_messages("k", [_user(f"{n:04d}" * 300) for n in range(300)], id="once")
        sessions.truncate_history("k", 2)
        found = sessions.snapshot("k").version
        sessions.save("k")
        n = sessions.add_message("k", "user", "a", expect=found)
        for version in (found, Version(n + 1000, found.generation), Version(n - 1, found.generation), Version()):
            with _raises(Conflict):
                sessions.add_message("k", "user", "b", expect=version)
        for version in (Version(n, "0" * 32), Version(n), Version(0, found.generation)):
            with _raises(Conflict):
                sessions.add_message("k", "user", "b", expect=version)
        changes: list[Callable[[], object]] = [
            lambda: sessions.append("k", "x.note", {}),
            lambda: sessions.set_meta("k", title="T"),
        ]
        for change in changes:
            seen = sessions.snapshot("k").version
            change()
            with _raises(Conflict):
                sessions.add_message("k", "user", "b", expect=seen)
        last = sessions.snapshot("k").version
        sessions.archive("k")
        with _raises(Conflict):
            sessions.add_message("k", "user", "b", expect=last)
        sessions.unarchive("k")
        sessions.add_message("k", "user", "c", expect=last)
        _same(_ever(sessions)[-2:], ["a", "c"])


def a_version_of_nothing_means_a_new_session(open_store: Open) -> None:
    """A key without a session has a version too; one with an archived session begins another."""
    with open_store() as sessions:
        _same(sessions.snapshot("k").version, Version())
        sessions.set_meta("k", title="T", expect=Version())
        with _raises(Conflict):
            sessions.set_meta("k", title="U", expect=Version())
        sessions.archive("k")
        sessions.add_message("k", "user", "a", expect=Version())
        _same((_live(sessions), sessions.get_meta("k")), (["a"], {}))


def pop_gives_a_retry_the_same_message(open_store: Open) -> None:
    """Under one id one message is taken off, also if the session is archived before the retry."""
    with open_store() as sessions:
        _add(sessions, "abc")
        for _ in range(2):
            message = sessions.pop("k", id="once")
            _same(message and message.content, "c")
        _same(_live(sessions), ["a", "b"])
        with _raises(Conflict):
            sessions.pop("k", expect=2)
        with _raises(Conflict):
            sessions.append("k", "x.note", {}, id="once")
        sessions.archive("k")
        message = sessions.pop("k", id="once")
        _same(message and message.content, "c")
        _add(sessions, "def")
        sessions.pop("k")
        message = sessions.pop("k", id="once")
        _same((message and message.content, _live(sessions)), ("c", ["d", "e"]))


def what_changes_nothing_does_not_use_up_its_id(open_store: Open) -> None:
    """It is not stored, and nor is its id; among others that do, it is stored with them."""
    with open_store() as sessions:
        _same(sessions.pop("k", id="once"), None)
        _same(sessions.submit("k", [Truncate(5), Pop()], id="once").result(timeout=30), 0)
        _holds(not sessions.exists("k"))
        _add(sessions, "a")
        sessions.truncate_history("k", 5, id="once")
        before = sessions.snapshot("k")
        _same(sessions.update("k", [Truncate(5), Truncate(6)], id="once"), 0)
        _same(sessions.snapshot("k"), before)
        together: list[Truncate | Message | AppendRecord] = [Truncate(5), _user("b"), AppendRecord("use", {})]
        number = sessions.submit("k", together, id="once").result(timeout=30)
        _same(sessions.submit("k", together, id="once").result(timeout=30), number)
        _same((number, _live(sessions), sessions.verify().ok), (before.n + 3, ["a", "b"], True))


def submit_takes_every_operation(open_store: Open) -> None:
    """All of them are one step, and may begin a session; one that does not fit refuses them all."""
    with open_store() as sessions:
        begun = sessions.submit("k", [SetMeta({"title": "T"}), _user("a"), _user("b"), _user("c"), Pop()])
        a = begun.result(timeout=30) - 3
        sessions.submit("k", [Summarise("So far.", a), Truncate(1), _user("d")]).result(timeout=30)
        _same(
            (_live(sessions), sessions.get_summary("k"), sessions.get_meta("k")),
            (["b", "d"], "So far.", {"title": "T"}),
        )
        with _raises(Conflict):
            sessions.submit("k", [_user("e"), Rewind(999)]).result(timeout=30)
        sessions.submit("k", [Rewind(a + 3), _user("f")]).result(timeout=30)
        _same((_live(sessions), sessions.get_summary("k")), (["a", "b", "f"], ""))
        with _raises(Conflict):
            sessions.submit("other", [_user("a"), Summarise("s", 99)]).result(timeout=30)
        _holds(not sessions.exists("other"))


def whole_sessions_are_moved_only_as_expected(open_store: Open) -> None:
    """Archive, unarchive, fork and delete do nothing if the session has changed since it was looked at."""
    with open_store() as sessions:
        stale = sessions.add_message("k", "user", "a")
        seen = sessions.snapshot("k").version
        last = sessions.add_message("k", "user", "b")
        now = sessions.snapshot("k").version
        for expect in (stale, seen, 0, Version()):
            for act in (sessions.archive, sessions.delete, lambda key, **how: sessions.fork(key, "new", **how)):
                with _raises(Conflict):
                    act("k", expect=expect)
        _same((sessions.status("k"), sessions.exists("new")), ("active", False))
        sessions.fork("k", "new", expect=now)
        sessions.archive("k", expect=last)
        for act in (sessions.unarchive, sessions.delete):
            with _raises(Conflict):
                act("k", expect=seen)
        sessions.unarchive("k", expect=now)
        sessions.archive("k", expect=now)
        sessions.delete("k", expect=now)
        _same((sessions.exists("k"), _live(sessions, "new")), (False, ["a", "b"]))
        sessions.delete("k", expect=Version())
        sessions.delete("k", expect=0)
        with _raises(Conflict):
            sessions.delete("k", expect=now)


def ids_are_kept_without_limit_for_those_who_ask(open_store: Open) -> None:
    """However many records have come since, in which generation they are, and in what a fork shares."""
    with open_store() as sessions:
        sessions.set_meta("k", keep_ids=True)
        first = sessions.add_messages("k", [_user("a"), _user("b")], id="once")
        many = [_user("-")] * 5000
        for key in ("k", "fork", "k"):
            sessions.add_messages(key, many)
            _same(sessions.add_messages(key, [_user("a"), _user("b")], id="once"), first)
            with _raises(Conflict):
                sessions.add_messages(key, [_user("c")], id="once")
            if key == "k" and not sessions.exists("fork"):
                sessions.fork("k", "fork")
        # The fork has never had it among its last records, where a store may know it for another reason.
        for key in ("k", "fork") * 2:
            sessions.archive(key)
            _add(sessions, "c", key)
            _same(sessions.add_messages(key, [_user("a"), _user("b")], id="once"), first)
            _same(_live(sessions, key), ["c"])


# Leases


_LEASED: tuple[Callable[..., object], ...] = (
    lambda sessions, **how: sessions.add_messages("k", [_user("x")], **how),
    lambda sessions, **how: sessions.submit("k", [_user("x")], **how).result(timeout=30),
    lambda sessions, **how: sessions.update("k", [_user("x")], **how),
    lambda sessions, **how: sessions.append("k", "x.note", {}, **how),
)


def a_turn_has_one_holder(open_store: Open) -> None:
    """Another one gets an error until it is closed; other sessions have their own."""
    with open_store() as sessions:
        mine, other = sessions.hold("k"), sessions.hold("k")
        _same((mine.key, mine.number), ("k", None))
        mine.take()
        for lease in (mine, other):
            with _raises(SessionBusy):
                lease.take()
        sessions.hold("another").take()
        other.close()
        with _raises(SessionBusy):
            other.take()
        mine.close()
        mine.close()
        other.take()
        _same((mine.number, other.number), (None, 0))


def a_turn_that_was_taken_over_stores_nothing_more(open_store: Open) -> None:
    """Every append with the lost lease is refused; those of the new holder, and without a lease, are stored."""
    with open_store() as sessions:
        _add(sessions, "a")
        lost, lease = sessions.hold("k"), sessions.hold("k")
        lost.take()
        for append in _LEASED:
            append(sessions, lease=lost)
        lease.take_over()
        before = sessions.snapshot("k")
        for append in _LEASED:
            with _raises(LeaseLost):
                append(sessions, lease=lost)
        _same(sessions.snapshot("k"), before)
        for append in _LEASED:
            append(sessions, lease=lease)
            append(sessions)
        _same((lost.number, lease.number), (0, before.n))
        with _raises(SessionBusy):
            sessions.hold("k").take()
        lost.close()
        with _raises(SessionBusy):
            sessions.hold("k").take()
        lease.close()
        third = sessions.hold("k")
        third.take()
        _same((third.number, sessions.verify().ok), (before.n, True))


def a_turn_may_be_taken_over_again_and_again(open_store: Open) -> None:
    """Each time the number is greater, and only the last holder can append."""
    with open_store() as sessions:
        leases = [sessions.hold("k") for _ in range(4)]
        leases[0].take()
        for lease in leases[1:]:
            lease.take_over()
        leases[3].take_over()
        numbers = [lease.number or 0 for lease in leases]
        _same(numbers, sorted(set(numbers)))
        for lease in leases[:3]:
            with _raises(LeaseLost):
                sessions.append("k", "x.note", {}, lease=lease)
        sessions.append("k", "x.note", {}, lease=leases[3])
        _same([entry.kind for entry in sessions.records("k")], ["open", *["turn"] * 4, "x.note"])


def a_lost_lease_stays_lost_whatever_becomes_of_the_session(open_store: Open) -> None:
    """Going back, clearing, compaction and another generation do not bring it back; a fork begins without it."""
    with open_store() as sessions:
        first = sessions.add_messages("k", [_user(f"{n:04d}" * 300) for n in range(300)])
        lost = sessions.hold("k")
        lost.take()
        sessions.hold("k").take_over()
        changes: list[Callable[[], object]] = [
            lambda: sessions.rewind("k", first),
            lambda: sessions.truncate_history("k", 1),
            lambda: sessions.save("k"),
            lambda: sessions.set_summary("k", "So far."),
            lambda: sessions.pop("k"),
            lambda: sessions.set_meta("k", title="T"),
            lambda: sessions.clear("k"),
            lambda: sessions.set_history("k", [_user("b")]),
            lambda: sessions.archive("k"),
            lambda: sessions.unarchive("k"),
            lambda: sessions.archive("k"),
            lambda: _add(sessions, "c"),
        ]
        for change in changes:
            change()
            with _raises(LeaseLost):
                sessions.submit("k", [_user("x")], lease=lost).result(timeout=30)
        again = sessions.hold("k")
        again.take_over()
        with _raises(LeaseLost):
            sessions.submit("k", [_user("x")], lease=lost).result(timeout=30)
        sessions.archive("k")
        sessions.add_messages("k", [_user("d")], lease=again)
        sessions.fork("k", "new")
        fork = sessions.hold("new")
        fork.take()
        sessions.add_messages("new", [_user("e")], lease=fork)
        _same((fork.number, _live(sessions, "new"), sessions.verify().ok), (0, ["d", "e"], True))


def the_fence_goes_on_in_the_next_generation(open_store: Open) -> None:
    """A turn of an archived session is taken with its number, and a number does not come again."""
    with open_store() as sessions:
        _add(sessions, "a")
        first = sessions.hold("k")
        first.take_over()
        sessions.archive("k")
        first.close()
        lost, lease = sessions.hold("k"), sessions.hold("k")
        lost.take()
        sessions.add_messages("k", [_user("b")], lease=lost)
        lease.take_over()
        _same((lost.number, lease.number, sessions.snapshot("k").n), (3, 4, 3))
        with _raises(LeaseLost):
            sessions.add_messages("k", [_user("c")], lease=lost)
        sessions.add_messages("k", [_user("d")], lease=lease)
        _same((_live(sessions), sessions.verify().ok), (["b", "d"], True))


def taking_over_changes_no_history(open_store: Open) -> None:
    """It is a record that says who; it begins a session, so that one who would begin it is refused, too."""
    with open_store() as sessions:
        lost, lease = sessions.hold("k"), sessions.hold("k")
        lost.take()
        lease.take_over()
        with _raises(LeaseLost):
            sessions.add_messages("k", [_user("a")], lease=lost)
        sessions.add_messages("k", [_user("b")], expect=0, lease=lease)
        _same(
            (_live(sessions), [str(os.getpid()) in entry.data["who"] for entry in sessions.records("k", "turn")]),
            (["b"], [True]),
        )


def a_retry_with_a_lost_lease_is_known(open_store: Open) -> None:
    """What was stored before the turn was lost is not in doubt."""
    with open_store() as sessions:
        lost = sessions.hold("k")
        lost.take()
        number = sessions.add_messages("k", [_user("a")], id="once", lease=lost)
        sessions.hold("k").take_over()
        _same(sessions.add_messages("k", [_user("a")], id="once", lease=lost), number)


def a_lease_that_does_not_fit_is_refused(open_store: Open) -> None:
    """One that is not taken, or of another session, tells nothing of this one."""
    with open_store() as sessions:
        lease, other = sessions.hold("k"), sessions.hold("other")
        other.take()
        wrong: list[Any] = [lease, other, 0, "k", object()]
        for value in wrong:
            with _raises(InvalidArgument):
                sessions.add_messages("k", [_user("a")], lease=value)
        _holds(not sessions.exists("k"))


# Truncation, summary, replacement


def truncation_keeps_the_newest(open_store: Open) -> None:
    """Only the last n stay live, and the transcript still has all."""
    with open_store() as sessions:
        _add(sessions, "abcdefghij")
        sessions.truncate_history("k", 4)
        _same(_live(sessions), ["g", "h", "i", "j"])
        _same(_ever(sessions), list("abcdefghij"))


def truncation_to_nothing_or_less_keeps_none(open_store: Open) -> None:
    """Zero and negative numbers empty the history; what comes after is live."""
    with open_store() as sessions:
        for keep in (0, -1, -100):
            _add(sessions, "ab")
            sessions.truncate_history("k", keep)
            _same(_live(sessions), [])
        _add(sessions, "c")
        _same(_live(sessions), ["c"])


def truncation_to_more_than_is_live_changes_nothing(open_store: Open) -> None:
    """What an earlier truncation dropped does not come back by a wider one."""
    with open_store() as sessions:
        _add(sessions, "abcd")
        for keep in (2, 2, 3, 4, 9):
            sessions.truncate_history("k", keep)
            _same(_live(sessions), ["c", "d"])


def truncations_count_only_what_is_live(open_store: Open) -> None:
    """Truncation after truncation, with messages between, cuts by the visible history."""
    with open_store() as sessions:
        _add(sessions, "abcd")
        sessions.truncate_history("k", 2)
        _add(sessions, "ef")
        sessions.truncate_history("k", 3)
        _same(_live(sessions), ["d", "e", "f"])


def changing_an_unknown_key_writes_nothing(open_store: Open) -> None:
    """Truncating, clearing, popping and saving a session that is not there do not create it."""
    with open_store() as sessions:
        sessions.truncate_history("k", 3)
        sessions.truncate_history("k", 0)
        sessions.clear("k")
        _same(sessions.pop("k"), None)
        sessions.save("k")
        _holds(not sessions.exists("k"))
        _same(list(sessions.list()), [])


def a_summary_is_replaced_by_the_next(open_store: Open) -> None:
    """Setting the summary leaves the history alone; an empty one is none."""
    with open_store() as sessions:
        _add(sessions, "ab")
        for summary in ("first", "second", ""):
            sessions.set_summary("k", summary)
            _same(sessions.get_summary("k"), summary)
        _same(_live(sessions), ["a", "b"])


def a_summary_may_drop_what_it_covers(open_store: Open) -> None:
    """``upto`` names the last message covered; later ones stay, however many came meanwhile."""
    with open_store() as sessions:
        numbers = _add(sessions, "abcd")
        sessions.set_summary("k", "a and b", upto=numbers[1])
        _same((sessions.get_summary("k"), _live(sessions)), ("a and b", ["c", "d"]))
        sessions.set_summary("k", "all", upto=numbers[3])
        _same((sessions.get_summary("k"), _live(sessions)), ("all", []))
        _same(_ever(sessions), ["a", "b", "c", "d"])


def a_summary_of_what_is_not_live_is_a_conflict(open_store: Open) -> None:
    """Truncated, popped and unknown messages, and records that are none, cannot be covered."""
    with open_store() as sessions:
        numbers = _add(sessions, "abc")
        sessions.pop("k")
        sessions.truncate_history("k", 1)
        note = sessions.append("k", "x.note", {})
        for upto in (numbers[0], numbers[2], note, note + 100):
            with _raises(Conflict):
                sessions.set_summary("k", "wrong", upto=upto)
        _same((sessions.get_summary("k"), _live(sessions)), ("", ["b"]))


def a_summary_upto_in_an_unknown_session_is_a_conflict(open_store: Open) -> None:
    """There is nothing to cover, so nothing is created."""
    with open_store() as sessions:
        with _raises(Conflict):
            sessions.set_summary("k", "wrong", upto=2)
        _holds(not sessions.exists("k"))


def a_replaced_history_keeps_the_summary(open_store: Open) -> None:
    """The new history is the given one, and the old one stays in the transcript."""
    with open_store() as sessions:
        _add(sessions, "ab")
        sessions.set_summary("k", "So far.")
        sessions.set_history("k", [_user("x"), {"role": "assistant", "content": "y"}])
        _same(_live(sessions), ["x", "y"])
        _same(sessions.get_summary("k"), "So far.")
        _same(_ever(sessions), ["a", "b", "x", "y"])


def a_history_with_a_bad_message_replaces_nothing(open_store: Open) -> None:
    """Replacement is one step: it happens or it does not."""
    with open_store() as sessions:
        _add(sessions, "ab")
        for bad in ({"content": "no role"}, {"role": "user", "content": [float("nan")]}):
            with _raises(InvalidMessage):
                sessions.set_history("k", [_user("x"), bad])
        _same((_live(sessions), _ever(sessions)), (["a", "b"], ["a", "b"]))


def a_history_may_be_replaced_by_itself(open_store: Open) -> None:
    """What ``get_history`` gave can be set again and is equal, times included."""
    with open_store() as sessions:
        _add(sessions, "abc")
        history = sessions.get_history("k")
        sessions.set_history("k", history)
        _same(sessions.get_history("k"), history)
        sessions.set_history("k", history[1:])
        _same(sessions.get_history("k"), history[1:])


def a_history_may_be_replaced_by_nothing(open_store: Open) -> None:
    """An empty history is a history; messages can follow it."""
    with open_store() as sessions:
        _add(sessions, "ab")
        sessions.set_history("k", [])
        _same(_live(sessions), [])
        _add(sessions, "c")
        _same((_live(sessions), _ever(sessions)), (["c"], ["a", "b", "c"]))


# Rewind, pop, clear, transcript


def clear_drops_history_and_summary(open_store: Open) -> None:
    """The session stays, empty, and the transcript keeps what was said."""
    with open_store() as sessions:
        _add(sessions, "ab")
        sessions.set_summary("k", "So far.")
        sessions.clear("k")
        _same((_live(sessions), sessions.get_summary("k")), ([], ""))
        _same((_ever(sessions), sessions.exists("k")), (["a", "b"], True))


def rewind_goes_back_and_another_rewind_forth(open_store: Open) -> None:
    """The history is as it was after the record; nothing that came later is gone."""
    with open_store() as sessions:
        numbers = _add(sessions, "abc")
        sessions.rewind("k", numbers[0])
        _same(_live(sessions), ["a"])
        numbers += _add(sessions, "d")
        _same(_live(sessions), ["a", "d"])
        sessions.rewind("k", numbers[2])
        _same(_live(sessions), ["a", "b", "c"])
        sessions.rewind("k", numbers[3])
        _same(_live(sessions), ["a", "d"])
        _same(_ever(sessions), ["a", "b", "c", "d"])


def rewind_restores_the_summary(open_store: Open) -> None:
    """History and summary go together: both are as they were after the record."""
    with open_store() as sessions:
        numbers = _add(sessions, "ab")
        sessions.set_summary("k", "So far.", upto=numbers[0])
        numbers += _add(sessions, "c")
        sessions.rewind("k", numbers[1])
        _same((_live(sessions), sessions.get_summary("k")), (["a", "b"], ""))
        sessions.rewind("k", numbers[2])
        _same((_live(sessions), sessions.get_summary("k")), (["b", "c"], "So far."))


def rewind_undoes_truncation_replacement_and_clear(open_store: Open) -> None:
    """Whatever took messages out of the history, the record before it brings them back."""
    changes: list[Callable[[Sessions], object]] = [
        lambda sessions: sessions.truncate_history("k", 1),
        lambda sessions: sessions.set_history("k", [_user("x")]),
        lambda sessions: sessions.clear("k"),
    ]
    with open_store() as sessions:
        last = _add(sessions, "abc")[-1]
        for change in changes:
            change(sessions)
            sessions.rewind("k", last)
            _same(_live(sessions), ["a", "b", "c"])


def rewind_brings_back_what_compaction_moved(open_store: Open) -> None:
    """Saving after a truncation does not make it final."""
    with open_store() as sessions:
        texts = [f"{n:04d}" * 300 for n in range(300)]
        last = sessions.add_messages("k", [_user(text) for text in texts])
        sessions.truncate_history("k", 2)
        sessions.save("k")
        sessions.rewind("k", last)
        _holds(_live(sessions) == texts)


def a_transaction_may_hold_notes_and_meta(open_store: Open) -> None:
    """Messages, notes and meta that belong together are stored as one transaction, and retried as one."""
    with open_store() as sessions:
        together: list[Message | AppendRecord | SetMeta] = [
            _user("a"),
            AppendRecord("use", {"prompt": 3}),
            SetMeta({"title": "T"}),
        ]
        number = sessions.submit("k", together, id="one").result()
        _same(sessions.submit("k", together, id="one").result(), number)
        _same([entry.kind for entry in sessions.records("k")], ["open", "msg", "use", "meta"])
        _same((sessions.get_meta("k"), next(sessions.records("k", "use")).data), ({"title": "T"}, {"prompt": 3}))
        with _raises(InvalidMessage):
            sessions.submit("k", [_user("b"), AppendRecord("msg", {})])
        _same(_live(sessions), ["a"])


def a_snapshot_is_all_of_one_moment(open_store: Open) -> None:
    """The last messages, and the rest in numbers."""
    with open_store() as sessions:
        _same(sessions.snapshot("k"), Snapshot())
        _add(sessions, "abc")
        sessions.set_summary("k", "So far.")
        sessions.set_meta("k", title="T")
        found = sessions.snapshot("k", last=2)
        _same((found.n, found.live, found.expect, found.summary, found.meta), (6, 3, 5, "So far.", {"title": "T"}))
        _same(([message.content for message in found.messages], found.numbers), (["b", "c"], [3, 4]))
        _same(sessions.add_messages("k", [_user("d")], expect=found.expect), 7)


def a_large_payload_comes_back_whole(open_store: Open) -> None:
    """However long a text is, and in any field, it is read as it was written, by every way to read it."""
    large, other = "ä" * 70_000, "b" * 70_000
    message = Message(role="user", content=[{"type": "text", "text": large}, "small"], extra={"a/b": {"~": [other]}})
    with open_store() as sessions:
        sessions.add_full_message("k", message)
        sessions.append("k", "x.raw", {"payload": large})
        sessions.fork("k", "other")
        for key in ("k", "other"):
            found = sessions.get_history(key)[0]
            _same((found.content, found.extra), (message.content, message.extra))
            _same(sessions.transcript(key)[0].message, found)
            _same(next(sessions.records(key, "x.raw")).data, {"payload": large})
        _same(next(entry for entry in sessions.follow("k") if entry.kind == "msg").data["content"], message.content)


def a_retry_with_a_large_payload_is_known(open_store: Open) -> None:
    """What an id was used for is known by all of its content."""
    with open_store() as sessions:
        first = sessions.add_messages("k", [_user("a" * 70_000)], id="one")
        _same(sessions.add_messages("k", [_user("a" * 70_000)], id="one"), first)
        with _raises(Conflict):
            sessions.add_messages("k", [_user("b" * 70_000)], id="one")


def rewind_into_a_group_is_refused(open_store: Open) -> None:
    """A group is one step: only its end can be gone back to."""
    with open_store() as sessions:
        first = sessions.add_message("k", "user", "a")
        last = sessions.add_messages("k", [_user("b"), _user("c"), _user("d")])
        inside = [stored.n for stored in sessions.transcript("k") if first < stored.n < last]
        for number in inside:
            with _raises(StoreError):
                sessions.rewind("k", number)
        _same(_live(sessions), ["a", "b", "c", "d"])
        sessions.rewind("k", first)
        sessions.rewind("k", last)
        _same(_live(sessions), ["a", "b", "c", "d"])


def rewind_to_an_unknown_record_is_a_conflict(open_store: Open) -> None:
    """A number that was never given out changes nothing."""
    with open_store() as sessions:
        last = sessions.add_message("k", "user", "a")
        for number in (last + 1, last + 1000):
            with _raises(Conflict):
                sessions.rewind("k", number)
        _same(_live(sessions), ["a"])
        with _raises(StoreError):
            sessions.rewind("unknown", 2)
        _holds(not sessions.exists("unknown"))


def rewind_goes_back_to_before_a_message(open_store: Open) -> None:
    """What is stored with it, and is no message, goes too; a message that is stored with others stays."""
    with open_store() as sessions:
        sessions.add_message("k", "user", "a")
        sessions.submit("k", [SetMeta({"title": "T"}), _user("b"), AppendRecord("use", {})]).result()
        sessions.add_messages("k", [_user("c"), _user("d")])
        a, b, c, d = [stored.n for stored in sessions.transcript("k")]
        with _raises(Conflict):
            sessions.rewind("k", before=d)
        for number in (b - 1, d + 1000):
            with _raises(Conflict):
                sessions.rewind("k", before=number)
        sessions.rewind("k", before=c)
        _same(_live(sessions), ["a", "b"])
        sessions.rewind("k", before=b)
        _same(_live(sessions), ["a"])
        sessions.rewind("k", d)
        sessions.rewind("k", before=a)
        _same(_live(sessions), [])
        with _raises(InvalidArgument):
            sessions.rewind("k")
        with _raises(InvalidArgument):
            sessions.rewind("k", a, before=a)
        with _raises(SessionNotFound):
            sessions.rewind("unknown", before=2)


def what_is_stored_with_a_message_is_no_step_of_its_own(open_store: Open) -> None:
    """Going back to a message, or forking there, takes along what it cost, if that was stored with it."""
    with open_store() as sessions:
        last = sessions.submit("k", [_user("a"), AppendRecord("use", {})]).result()
        sessions.add_message("k", "user", "b")
        sessions.rewind("k", last - 1)
        sessions.fork("k", "other", at=last - 1)
        _same((_live(sessions), _live(sessions, "other")), (["a"], ["a"]))


def an_update_begins_no_session(open_store: Open) -> None:
    """Operations are one step, on an active session alone, and may say what they are built on."""
    with open_store() as sessions:
        _same(sessions.update("k", [SetMeta({"title": "T"})]), 0)
        _holds(not sessions.exists("k"))
        a, b = _add(sessions, "ab")
        last = sessions.update("k", [Rewind(a), _user("c"), AppendRecord("use", {})], expect=b)
        _same((last, _live(sessions)), (b + 3, ["a", "c"]))
        with _raises(Conflict):
            sessions.update("k", [Summarise("So far.", a)], expect=b)
        sessions.update("k", [Summarise("So far.", a)], expect=b + 2)
        _same((_live(sessions), sessions.get_summary("k")), (["c"], "So far."))
        sessions.archive("k")
        _same(sessions.update("k", [SetMeta({"title": "T"})]), 0)


def a_read_is_of_one_generation(open_store: Open) -> None:
    """The newest, or one that is named, or each of them; it says which it is."""

    def get(view: View) -> tuple[object, ...]:
        records = list(view.all())
        _same([record.n for record in view.back(view.n)], [record.n for record in reversed(records)])
        _same((view.key, view.losses, view.created), ("k", Losses(), records[0].ts))
        return view.uid, view.is_newest, view.is_archived, [record.m.content for record in records if record.m]

    with open_store() as sessions:
        _same((sessions.read("k", get), sessions.read_generations("k", get)), (None, []))
        _add(sessions, "a")
        first = sessions.read("k", get) or ()
        _same(first[1:], (True, False, ["a"]))
        sessions.archive("k")
        archived = (first[0], True, True, ["a"])
        _same((sessions.read("k", get), sessions.read_generations("k", get)), (archived, [archived]))
        _add(sessions, "b")
        second = sessions.read("k", get) or ()
        _same(second[1:], (True, False, ["b"]))
        _same(sessions.read_generations("k", get), [(first[0], False, True, ["a"]), second])
        _same(sessions.read_generations("k", lambda view: view.uid if view.is_archived else None), [first[0]])
        _same(sessions.read("k", get, generation=str(first[0])), (first[0], False, True, ["a"]))
        _same(sessions.read("k", get, generation="none"), None)
        sessions.add_alias("k", "other")
        _same((sessions.read("other", get), len(sessions.read_generations("other", get))), (second, 2))


def pop_takes_the_last_message_back(open_store: Open) -> None:
    """Messages come back newest first, then ``None``; the transcript keeps them."""
    with open_store() as sessions:
        _add(sessions, "ab")
        popped = [sessions.pop("k") for _ in range(3)]
        _same([message and message.content for message in popped], ["b", "a", None])
        _same(_live(sessions), [])
        _add(sessions, "c")
        _same((_live(sessions), _ever(sessions)), (["c"], ["a", "b", "c"]))


def pop_leaves_truncation_and_summary_alone(open_store: Open) -> None:
    """It takes one message, and uncovers nothing that was dropped before."""
    with open_store() as sessions:
        _add(sessions, "abc")
        sessions.set_summary("k", "So far.")
        sessions.truncate_history("k", 1)
        _add(sessions, "d")
        popped = [sessions.pop("k") for _ in range(3)]
        _same([message and message.content for message in popped], ["d", "c", None])
        _same((_live(sessions), sessions.get_summary("k")), ([], "So far."))


def pop_takes_one_message_of_a_group(open_store: Open) -> None:
    """Messages that were written together may be taken back one by one."""
    with open_store() as sessions:
        sessions.add_messages("k", [_user("a"), _user("b"), _user("c")])
        popped = sessions.pop("k")
        _same(popped and popped.content, "c")
        _same(_live(sessions), ["a", "b"])


def the_transcript_keeps_everything(open_store: Open) -> None:
    """Truncated, replaced, popped, summarised, cleared and rewound messages are all there, in order."""
    with open_store() as sessions:
        first = _add(sessions, "abc")[0]
        sessions.truncate_history("k", 1)
        sessions.set_history("k", [_user("d"), _user("e")])
        sessions.pop("k")
        sessions.set_summary("k", "So far.", upto=_add(sessions, "f")[0])
        sessions.clear("k")
        _add(sessions, "g")
        sessions.rewind("k", first)
        _add(sessions, "h")
        stored = sessions.transcript("k")
        _same(_texts(each.message for each in stored), list("abcdefgh"))
        _same([each.n for each in stored], sorted({each.n for each in stored}))
        _same([each.ts.utcoffset() is not None for each in stored], [True] * 8)


# Meta and own records


def meta_fields_are_merged_and_removed(open_store: Open) -> None:
    """Fields that are not named stay; ``None`` removes one."""
    with open_store() as sessions:
        sessions.set_meta("k", title="T", labels=["x", "y"])
        sessions.set_meta("k", title="U", origin={"channel": "telegram", "chat": 42})
        _same(
            sessions.get_meta("k"), {"title": "U", "labels": ["x", "y"], "origin": {"channel": "telegram", "chat": 42}}
        )
        sessions.set_meta("k", labels=None, never_set=None)
        _same(sessions.get_meta("k"), {"title": "U", "origin": {"channel": "telegram", "chat": 42}})


def meta_may_have_fields_of_any_name(open_store: Open) -> None:
    """Also those that the call has for itself; a call without a field is refused."""
    with open_store() as sessions:
        sessions.set_meta("k", {"id": "a", "expect": 1}, key="b", fields="c", self="d", id="once")
        _same(sessions.get_meta("k"), {"id": "a", "expect": 1, "key": "b", "fields": "c", "self": "d"})
        with _raises(InvalidArgument):
            sessions.set_meta("k", {})
        with _raises(InvalidArgument):
            sessions.set_meta("new", id="once", expect=0)
        _holds(not sessions.exists("new"))


def labels_are_set_and_removed_one_by_one(open_store: Open) -> None:
    """What is not named stays; an empty title, no tags and no pin leave nothing."""
    with open_store() as sessions:
        _add(sessions, "a")
        sessions.set_labels("k", title="T", tags=["x", "y"], pinned=True)
        sessions.set_labels("k")
        _same(sessions.get_meta("k"), {"title": "T", "tags": ["x", "y"], "pinned": True})
        sessions.set_labels("k", tags=[], pinned=False)
        _same(sessions.get_meta("k"), {"title": "T"})
        sessions.set_labels("k", title="")
        _same(sessions.get_meta("k"), {})


def labels_begin_no_session(open_store: Open) -> None:
    """An unknown key is not found; an archived session is not begun again."""
    with open_store() as sessions:
        with _raises(SessionNotFound):
            sessions.set_labels("k", pinned=True)
        _add(sessions, "a")
        sessions.archive("k")
        with _raises(Conflict):
            sessions.set_labels("k", pinned=True)
        _same((list(sessions.list()), sessions.get_meta("k")), ([], {}))


def a_key_has_a_status(open_store: Open) -> None:
    """It is known without reading the session."""
    with open_store() as sessions:
        _add(sessions, "a")
        _add(sessions, "a", key="old")
        sessions.archive("old")
        _same([sessions.status(key) for key in ("k", "old", "unknown")], ["active", "archived", ""])


def a_free_key_has_no_session(open_store: Open) -> None:
    """The first number counts that neither an active nor an archived session has."""
    with open_store() as sessions:
        _same(sessions.free_key("k"), "k-2")
        for key in ("k", "k-2", "k-3"):
            _add(sessions, "a", key=key)
        sessions.archive("k-2")
        _same(sessions.free_key("k"), "k-4")


def every_generation_can_be_read(open_store: Open) -> None:
    """The oldest comes first; another name finds them too."""
    with open_store() as sessions:
        _add(sessions, "ab")
        sessions.archive("k")
        _add(sessions, "c")
        sessions.add_alias("k", "other")
        for key in ("k", "other"):
            _same(sessions.read_generations(key, lambda view: view.state.i), [2, 1])
        _same(sessions.read_generations("unknown", lambda view: view.n), [])


def meta_is_not_history(open_store: Open) -> None:
    """No change of the history touches it, and it does not touch the history."""
    with open_store() as sessions:
        numbers = _add(sessions, "ab")
        sessions.set_meta("k", title="T")
        sessions.rewind("k", numbers[0])
        sessions.clear("k")
        sessions.save("k")
        _same((sessions.get_meta("k"), _live(sessions)), ({"title": "T"}, []))
        _same(_ever(sessions), ["a", "b"])


def own_records_come_back_by_kind(open_store: Open) -> None:
    """Data under a caller's own kind is kept with its number, in order, outside the history."""
    with open_store() as sessions:
        numbers = [sessions.append("k", "x.note", {"a": [1, None]}), sessions.append("k", "x.note", {"b": "c"})]
        other = sessions.append("k", "x.other", {})
        found = sessions.records("k", "x.note")
        _same(
            [(e.kind, e.n, e.data) for e in found],
            [("x.note", numbers[0], {"a": [1, None]}), ("x.note", numbers[1], {"b": "c"})],
        )
        _same([e.n for e in sessions.records("k") if e.kind.startswith("x.")], [*numbers, other])
        _same((_live(sessions), _ever(sessions)), ([], []))


def usage_and_tool_records_may_be_appended(open_store: Open) -> None:
    """The two kinds that an agent loop writes besides messages are open to callers."""
    with open_store() as sessions:
        sessions.append("k", "use", {"tokens": 12})
        sessions.append("k", "tool", {"call": "c1"})
        _same([e.data for e in sessions.records("k", "use")], [{"tokens": 12}])
        _same([e.data for e in sessions.records("k", "tool")], [{"call": "c1"}])


def kinds_of_the_store_cannot_be_appended(open_store: Open) -> None:
    """Nobody writes a truncation or a deletion by hand."""
    with open_store() as sessions:
        for kind in ("msg", "trunc", "head", "del", "open", "note", "x.", ""):
            with _raises(StoreError):
                sessions.append("k", kind, {})
        _holds(not sessions.exists("k"))


def an_append_under_the_same_id_is_stored_once(open_store: Open) -> None:
    """Own records have the same idempotency as messages."""
    with open_store() as sessions:
        number = sessions.append("k", "x.note", {"a": 1}, id="once")
        _same(sessions.append("k", "x.note", {"a": 1}, id="once"), number)
        with _raises(Conflict):
            sessions.append("k", "x.note", {"a": 2}, id="once")
        _same([e.n for e in sessions.records("k", "x.note")], [number])


def an_id_is_used_for_one_kind(open_store: Open) -> None:
    """The same data under another kind, or as a message, is other content."""
    data = {"role": "user", "content": "a"}
    with open_store() as sessions:
        sessions.append("k", "x.note", data, id="once")
        with _raises(Conflict):
            sessions.append("k", "x.other", data, id="once")
        with _raises(Conflict):
            sessions.add_messages("k", [data], id="once")
        _same((len(list(sessions.records("k", "x.other"))), _ever(sessions)), (0, []))


def own_records_hold_any_json(open_store: Open) -> None:
    """Empty values too, and each comes back as what it was."""
    values = [None, 0, False, "", [], {}, 1.5, "text", [None], {"data": None}]
    with open_store() as sessions:
        for value in values:
            sessions.append("k", "x.note", value)
        _same([repr(e.data) for e in sessions.records("k", "x.note")], [repr(value) for value in values])


def an_item_without_a_role_is_kept_as_it_was_given(open_store: Open) -> None:
    """What has a type and no role is no message of a chat, and comes back field by field."""
    item = {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}", "created": 7, "content": None}
    with open_store() as sessions:
        sessions.add_messages("k", [_user("a"), item])
        found = sessions.get_history("k")[1:]
        _same([(one.role, one.kind, one.to_mapping()) for one in found], [("", "function_call", item)])
        with _raises(InvalidMessage):
            sessions.add_full_message("k", {"call_id": "c"})
        with _raises(InvalidMessage):
            sessions.add_full_message("k", Message(role=""))
        _same(len(sessions.get_history("k")), 2)


def bytes_come_back_as_bytes(open_store: Open) -> None:
    """In a message and in own records, small and large, and next to what only looks like them."""
    large, look = bytes(range(256)) * 1000, {"$bytes": "YQ=="}
    message = Message(
        role="user",
        content=[{"type": "image", "data": b"\0\xff"}, look],
        media=(large,),
        tool_calls=(ToolCall(id="c", name="f", arguments={"a": b"b"}, extra={"x": b""}),),
        extra={"$bytes": "y", "raw": [b"z"]},
    )
    with open_store() as sessions:
        sessions.add_full_message("k", message)
        sessions.append("k", "x.note", [large, look])
        sessions.append("k", "x.note", look)
        (found,) = sessions.get_history("k")
        _same(found, msgspec.structs.replace(message, created=found.created))
        _same([entry.data for entry in sessions.records("k", "x.note")], [[large, look], look])
        _same(list(next(sessions.records("k", "msg")).data["media"]), [large])
        _holds(sessions.verify("k").ok)


def bytes_under_an_id_are_not_what_they_are_written_as(open_store: Open) -> None:
    """A retry is stored once, also in a fork, for which the log is read again."""
    said, look = Message(role="user", content=[b"a"]), {"$bytes": "YQ=="}
    with open_store() as sessions:
        note = sessions.append("k", "x.note", [b"a"], id="note")
        number = sessions.add_messages("k", [said], id="said")
        sessions.fork("k", "fork")
        for key in ("k", "fork"):
            _same(sessions.append(key, "x.note", [bytearray(b"a")], id="note"), note)
            _same(sessions.add_messages(key, [said], id="said"), number)
            with _raises(Conflict):
                sessions.append(key, "x.note", [look], id="note")
            with _raises(Conflict):
                sessions.add_messages(key, [Message(role="user", content=[look])], id="said")
            _same((len(list(sessions.records(key, "x.note"))), len(sessions.get_history(key))), (1, 1))


def bytes_are_refused_where_only_json_is_kept(open_store: Open) -> None:
    """A session's meta is read by everyone who lists it."""
    with open_store() as sessions:
        with _raises(StoreError):
            sessions.set_meta("k", icon=b"png")
        with _raises(StoreError):
            sessions.add_full_message("k", {"role": "user", "content": b"text"})
        _holds(not sessions.exists("k"))


def own_records_outlive_compaction(open_store: Open) -> None:
    """What compaction moves stays readable, and in order."""
    with open_store() as sessions:
        for n in range(3):
            sessions.append("k", "x.note", {"n": n})
            sessions.add_messages("k", [_user("x" * 1000)] * 100)
            sessions.truncate_history("k", 1)
            sessions.save("k")
        _same([e.data for e in sessions.records("k", "x.note")], [{"n": 0}, {"n": 1}, {"n": 2}])


def records_are_read_between_two_numbers(open_store: Open) -> None:
    """Both numbers are exclusive, and numbers that no record has are no error."""
    with open_store() as sessions:
        numbers = [sessions.append("k", "x.note", n) for n in range(5)]
        sessions.add_message("k", "user", "a")
        between = sessions.records("k", "x.note", after=numbers[0], before=numbers[4])
        _same([e.data for e in between], [1, 2, 3])
        _same([e.kind for e in sessions.records("k", after=numbers[3])], ["x.note", "msg"])
        _same([e.data for e in sessions.records("k", "x.note", before=numbers[2], last=1)], [1])
        _same([e.data for e in sessions.records("k", "x.note", after=numbers[2], last=9)], [3, 4])
        _same((list(sessions.records("k", after=99)), list(sessions.records("k", before=0))), ([], []))


def the_last_records_come_oldest_first(open_store: Open) -> None:
    """The last few of a kind, however many others were written after them."""
    with open_store() as sessions:
        for n in range(4):
            sessions.append("k", "x.note", n)
            sessions.add_messages("k", [_user("a")] * 3)
        _same([e.data for e in sessions.records("k", "x.note", last=2)], [2, 3])
        _same([e.data for e in sessions.records("k", "x.note", last=9)], [0, 1, 2, 3])
        _same((list(sessions.records("k", last=0)), list(sessions.records("unknown", last=2))), ([], []))


def records_of_earlier_generations_count_where_no_number_is_given(open_store: Open) -> None:
    """Numbers start again with each generation, so they are those of the newest one."""
    with open_store() as sessions:
        for n in range(3):
            sessions.append("k", "x.note", f"{n}a")
            sessions.append("k", "x.note", f"{n}b")
            if n < 2:
                sessions.archive("k")
        _same([e.data for e in sessions.records("k", "x.note")], ["0a", "0b", "1a", "1b", "2a", "2b"])
        _same([e.data for e in sessions.records("k", "x.note", last=3)], ["1b", "2a", "2b"])
        _same([e.data for e in sessions.records("k", "x.note", last=1)], ["2b"])
        _same([e.data for e in sessions.records("k", "x.note", after=1)], ["2a", "2b"])
        _same([e.data for e in sessions.records("k", "x.note", before=9, last=5)], ["2a", "2b"])


def records_end_where_they_did_when_they_were_asked_for(open_store: Open) -> None:
    """What is written, archived and compacted meanwhile does not disturb who reads them."""
    with open_store() as sessions:
        for n in range(200):
            sessions.append("k", "x.note", n)
        found = sessions.records("k", "x.note")
        _same([next(found).data for _ in range(10)], list(range(10)))
        sessions.append("k", "x.note", "later")
        sessions.save("k")
        sessions.archive("k")
        sessions.append("k", "x.note", "later still")
        _same([e.data for e in found], list(range(10, 200)))


def a_deletion_ends_the_records_that_are_being_read(open_store: Open) -> None:
    """What was erased is not given out any more, but for the few that were read ahead."""
    with open_store() as sessions:
        for _ in range(3):
            sessions.add_messages("k", [_user("a")] * 500)
            sessions.archive("k")
        found = sessions.records("k")
        next(found)
        sessions.delete("k")
        sessions.add_message("k", "user", "b")
        rest = list(found)
        _holds(len(rest) < 100)
        _holds(all(entry.kind != "msg" or entry.data["content"] == "a" for entry in rest))


def a_large_payload_that_was_erased_ends_the_records(open_store: Open) -> None:
    """It is read when its record is taken."""
    with open_store() as sessions:
        for _ in range(2):
            sessions.append("k", "x.note", "large " * 20_000)
        found = sessions.records("k", "x.note")
        _same(next(found).data, "large " * 20_000)
        sessions.delete("k")
        _same(list(found), [])


def records_are_refused_for_wrong_arguments_when_they_are_asked_for(open_store: Open) -> None:
    """Not when the first is taken."""
    wrong: list[dict[str, Any]] = [{"after": -1}, {"after": None}, {"before": 2.0}, {"before": -1}, {"last": "1"}]
    with open_store() as sessions:
        for one in wrong:
            with _raises(StoreError):
                sessions.records("k", **one)


def a_session_can_be_used_without_naming_its_key_again(open_store: Open) -> None:
    """The handle asks the store each time, and gives what the store gives."""
    with open_store() as sessions:
        session = sessions["k"]
        _same(
            (bool(session), session.exists(), len(session), list(session), "k" in sessions), (True, False, 0, [], False)
        )
        _same(session.append("user", "a"), 2)
        _same(session.append(Message(role="assistant", content="b")), 3)
        _same(session.extend([_user("c"), {"role": "user", "content": "d"}]), 5)
        session.set_summary("S", upto=2)
        session.set_meta(title="T")
        _same([message.content for message in session], ["b", "c", "d"])
        _same([message.content for message in session.messages(last=2)], ["c", "d"])
        _same((len(session), session.summary, session.meta, session.exists()), (3, "S", {"title": "T"}, True))
        _same(("k" in sessions, repr(session), session.key), (True, "Session('k')", "k"))
        with _raises(InvalidMessage):
            session.extend([_user("e"), {"content": "no role"}])
        _same(_ever(sessions), ["a", "b", "c", "d"])
        sessions.clear("k")
        sessions.archive("k")
        _holds(bool(session) and len(session) == 0 and session.exists() and "k" in sessions)


def what_cannot_be_a_key_has_no_session_to_use(open_store: Open) -> None:
    """It is refused where it is named, and a store is not taken for a list."""
    with open_store() as sessions:
        for key in ("", "a\0b", 7, None):
            with _raises(StoreError):
                sessions[key]  # type: ignore[index]
        with _raises(TypeError):
            iter(sessions)  # type: ignore[call-overload]
        with _raises(StoreError):
            sessions["k"].append("a text alone")  # type: ignore[call-overload]
        _holds(not sessions.exists("k"))


def save_changes_nothing_that_can_be_seen(open_store: Open) -> None:
    """After many truncations and compactions, history, summary, meta and transcript are whole."""
    with open_store() as sessions:
        sessions.set_meta("k", title="T")
        for turn in range(6):
            sessions.add_messages("k", [_user(f"{turn}.{n}" + "." * 1000) for n in range(60)])
            sessions.set_summary("k", f"up to {turn}")
            sessions.truncate_history("k", 5)
            before = (sessions.get_history("k"), sessions.transcript("k"))
            sessions.save("k")
            _holds((sessions.get_history("k"), sessions.transcript("k")) == before)
        _same([str(text).rstrip(".") for text in _ever(sessions)], [f"{t}.{n}" for t in range(6) for n in range(60)])
        _same([str(text).rstrip(".") for text in _live(sessions)], [f"5.{n}" for n in range(55, 60)])
        _same((sessions.get_summary("k"), sessions.get_meta("k")), ("up to 5", {"title": "T"}))


# Erasing one message


_WORDS = "the code is 4711, and nobody may know it"


def _said(sessions: Sessions, key: str = "k") -> str:
    """Everything that can be read of an active session, as one text."""
    entries = list(sessions.records(key))
    followed = sessions.follow(key)
    seen = [next(followed) for entry in entries if entry.generation == entries[-1].generation]
    followed.close()
    last = list(sessions.records(key, last=len(entries)))
    return repr((sessions.snapshot(key), sessions.get_history(key), sessions.transcript(key), entries, last, seen))


def an_erased_message_leaves_a_marked_hole(open_store: Open) -> None:
    """Its number, role, time and place stay; by no way to read it does its content come back."""
    with open_store() as sessions:
        first, n, last = _add(sessions, ["before", _WORDS, "after"])
        before = sessions.snapshot("k")
        times = [stored.ts for stored in sessions.transcript("k")]
        found = sessions.redact("k", n)
        _same((found.key, found.generation, found.n, found.erased), ("k", before.generation, n, (n,)))
        _same((found.summaries, found.forks, found.payloads, found.kept), ((), (), 0, 0))
        _holds(_WORDS not in _said(sessions))
        hole = sessions.get_history("k")[1]
        _same((hole.role, hole.content, hole.extra), ("user", "", {"redacted": True}))
        _same((_live(sessions), sessions.snapshot("k").numbers), (["before", "", "after"], [first, n, last]))
        _same([stored.ts for stored in sessions.transcript("k")], times)
        _same([entry.data.get("redacted") for entry in sessions.records("k", "msg")], [None, True, None])
        _same(sessions.add_message("k", "user", "b", expect=before.expect), sessions.snapshot("k").n)
        _same((_live(sessions)[-1:], sessions.verify().ok), (["b"], True))


def an_erased_message_cannot_be_brought_back(open_store: Open) -> None:
    """Not by going back to it, nor by what was done before; erasing it again is harmless."""
    with open_store() as sessions:
        first, n, last = _add(sessions, ["before", _WORDS, "after"])
        sessions.truncate_history("k", 1)
        sessions.save("k")
        sessions.redact("k", n)
        sessions.rewind("k", last)
        _same(_live(sessions), ["before", "", "after"])
        sessions.rewind("k", n)
        _same(_texts([sessions.pop("k") or _user("none")]), [""])
        again = sessions.redact("k", n)
        _same((sessions.snapshot("k").numbers, again.n, again.erased), ([first], n, ()))
        _same((_ever(sessions), sessions.verify().ok), (["before", "", "after"], True))


def what_links_an_erased_message_stays(open_store: Open) -> None:
    """A call keeps its id and its name, and a result whose it is: what the model is shown is still valid."""
    call = ToolCall(id="c1", name="shell", arguments={"command": _WORDS})
    asked = Message(role="assistant", content=_WORDS, reasoning=_WORDS, tool_calls=(call,), extra={"x": _WORDS})
    with open_store() as sessions:
        first = sessions.add_full_message("k", asked)
        second = sessions.add_full_message("k", Message(role="tool", content=_WORDS, tool_call_id="c1"))
        sessions.redact("k", first)
        sessions.redact("k", second)
        hole, result = sessions.get_history("k")
        _same((hole.role, hole.reasoning, hole.extra), ("assistant", None, {"redacted": True}))
        _same([(each.id, each.name) for each in hole.tool_calls], [("c1", "shell")])
        _same((result.role, result.tool_call_id, result.content), ("tool", "c1", ""))
        _holds(_WORDS not in _said(sessions))


def one_message_of_a_group_can_be_erased(open_store: Open) -> None:
    """The others stay, and stay one step."""
    with open_store() as sessions:
        before = sessions.add_message("k", "user", "before")
        last = sessions.add_messages("k", [_user("a"), _user(_WORDS), _user("c")])
        _same(sessions.redact("k", last - 1).erased, (last - 1,))
        _same(_live(sessions), ["before", "a", "", "c"])
        sessions.rewind("k", before)
        with _raises(Conflict):
            sessions.update("k", [Rewind(last - 1)])
        sessions.rewind("k", last)
        _same((_live(sessions), sessions.verify().ok), (["before", "a", "", "c"], True))


def an_erased_payload_is_gone_unless_another_message_has_it(open_store: Open) -> None:
    """However large it is; the answer says which it was."""
    large = _WORDS * 3_000
    with open_store() as sessions:
        first, second = _add(sessions, [large, large])
        found = sessions.redact("k", first)
        _same((found.payloads, found.kept), (0, 1))
        _holds(_live(sessions) == ["", large])
        found = sessions.redact("k", second)
        _same((found.payloads, found.kept), (1, 0))
        _same((_live(sessions), _WORDS in _said(sessions)), (["", ""], False))


def who_may_still_have_the_words_is_named(open_store: Open) -> None:
    """Summaries that cover the message, and forks that share it; they are not changed, and can be erased, too."""
    with open_store() as sessions:
        n, other = _add(sessions, [_WORDS, "b"])
        sessions.set_summary("k", f"They said: {_WORDS}", upto=n)
        covers = sessions.snapshot("k").n
        sessions.fork("k", "fork")
        found = sessions.redact("k", n)
        _same((found.summaries, found.forks), ((covers,), ("fork",)))
        _same(sessions.redact("k", other).summaries, ())
        _same((_ever(sessions, "fork"), _WORDS in sessions.get_summary("k")), ([_WORDS, "b"], True))
        sessions.redact("k", covers)
        _same((sessions.get_summary("k"), _WORDS in _said(sessions)), ("", False))
        sessions.redact("fork", n)
        _same((_ever(sessions, "fork"), _ever(sessions)), (["", "b"], ["", ""]))


def copies_of_an_erased_message_go_with_it(open_store: Open) -> None:
    """A title that it gave, and a file that was kept for an undo; notes can be erased by their number."""
    with open_store() as sessions:
        n = sessions.add_message("k", "user", _WORDS)
        sessions.set_meta("k", title=_WORDS[:20] + "…", cwd="/here")
        copy = sessions.append("k", "x.file", {"path": "a", "before": f"first\n{_WORDS}\n"})
        note = sessions.append("k", "x.note", {"of": "another"})
        _same(sessions.redact("k", n).erased, (n, copy - 1, copy))
        _same((sessions.get_meta("k"), _WORDS[:20] in _said(sessions)), ({"cwd": "/here"}, False))
        _same([entry.data for entry in sessions.records("k", "x.note")], [{"of": "another"}])
        sessions.redact("k", note)
        _same([entry.data for entry in sessions.records("k", "x.note")], [{"redacted": True}])


def a_retry_of_an_erased_write_is_known(open_store: Open) -> None:
    """It is not stored again, whatever it says, which nobody can compare; other ids are compared as before."""
    with open_store() as sessions:
        n = sessions.add_message("k", "user", _WORDS, id="once")
        other = sessions.add_message("k", "user", "b", id="other")
        sessions.redact("k", n)
        before = sessions.snapshot("k")
        _same(sessions.add_message("k", "user", _WORDS, id="once"), n)
        _same(sessions.add_message("k", "user", "a guess", id="once"), n)
        _same(sessions.add_message("k", "user", "b", id="other"), other)
        with _raises(Conflict):
            sessions.add_message("k", "user", "c", id="other")
        _same(sessions.snapshot("k"), before)


def a_retry_of_a_write_erased_in_an_earlier_generation_is_known(open_store: Open) -> None:
    """Whatever it says, though the next generation has known it by its content."""
    with open_store() as sessions:
        n = sessions.add_message("k", "user", _WORDS, id="once")
        sessions.archive("k")
        _add(sessions, "b")
        with _raises(Conflict):
            sessions.add_message("k", "user", "a guess", id="once")
        sessions.redact("k", n, generation=sessions.transcript("k")[0].generation)
        _same([sessions.add_message("k", "user", text, id="once") for text in (_WORDS, "a guess")], [n, n])
        _same(_live(sessions), ["b"])


def a_retry_of_an_erased_write_is_known_without_limit(open_store: Open) -> None:
    """Where ids are kept: what the store remembers of the words is erased, too, and nothing else."""
    with open_store() as sessions:
        sessions.set_meta("k", keep_ids=True)
        n = sessions.add_message("k", "user", _WORDS, id="once")
        other = sessions.add_message("k", "user", "b", id="other")
        sessions.add_messages("k", [_user("-")] * 5000)
        _same(sessions.add_message("k", "user", _WORDS, id="once"), n)
        sessions.redact("k", n)
        _same([sessions.add_message("k", "user", text, id="once") for text in (_WORDS, "a guess")], [n, n])
        _same(sessions.add_message("k", "user", "b", id="other"), other)
        with _raises(Conflict):
            sessions.add_message("k", "user", "c", id="other")


def what_cannot_be_erased_is_refused(open_store: Open) -> None:
    """What is not there, what is no content, and wrong arguments; nothing is changed."""
    wrong: list[Any] = [0, -1, 2.0, True, None, "2"]
    with open_store() as sessions:
        n = sessions.add_message("k", "user", "a")
        sessions.set_meta("k", title="T")
        sessions.truncate_history("k", 0)
        before = sessions.snapshot("k")
        for number in (1, n + 1, n + 2, 99):
            with _raises(Conflict):
                sessions.redact("k", number)
        for given in wrong:
            with _raises(InvalidArgument):
                sessions.redact("k", given)
        for uid in ("0" * 31, "g" * 32, "../" * 4, 7, None):
            with _raises(InvalidArgument):
                sessions.redact("k", n, generation=uid)  # type: ignore[arg-type]
        for key, uid in (("unknown", ""), ("k", "0" * 32)):
            with _raises(SessionNotFound):
                sessions.redact(key, n, generation=uid)
        own = sessions.with_internal_keys().add_message("nacre:x", "user", "a")
        for key in ("nacre:x", "", "a\0b"):
            with _raises(InvalidKey):
                sessions.redact(key, own)
        _same((sessions.snapshot("k"), _live(sessions, "nacre:x")), (before, ["a"]))


def a_message_of_any_generation_can_be_erased(open_store: Open) -> None:
    """Of the newest one unless another is named; an archived one stays archived."""
    with open_store() as sessions:
        for text in "ab":
            _add(sessions, text)
            sessions.archive("k")
        n = sessions.add_message("k", "user", "c")
        first, second, newest = [stored.generation for stored in sessions.transcript("k")]
        _same((sessions.redact("k", n, generation=first).generation, _ever(sessions)), (first, ["", "b", "c"]))
        _same((sessions.redact("k", n).generation, _ever(sessions)), (newest, ["", "b", ""]))
        sessions.archive("k")
        sessions.redact("k", n, generation=second)
        _same((_ever(sessions), sessions.status("k"), sessions.verify().ok), (["", "", ""], "archived", True))
        sessions.unarchive("k")
        _same((_live(sessions), sessions.add_message("k", "user", "d") > n), ([""], True))


def a_message_is_erased_by_another_name_of_its_session(open_store: Open) -> None:
    """Of those a part of the store has, only in that part."""
    with open_store() as sessions:
        n = sessions.add_message("a:1", "user", "a")
        sessions.add_alias("a:1", "other")
        with _raises(StoreError):
            sessions.within("b:").redact("a:1", n)
        _same(_live(sessions, "a:1"), ["a"])
        _same((sessions.redact("other", n).key, _live(sessions, "a:1")), ("a:1", [""]))


def copies_elsewhere_are_erased_after_those_of_the_store(open_store: Open) -> None:
    """Who has some is called once; its error is the caller's, and the message is erased all the same."""
    told: list[tuple[int, list[object]]] = []

    def fail(_: Redaction) -> None:
        raise OSError("no room")

    with open_store() as sessions:
        first, second = _add(sessions, "ab")
        sessions.redact("k", first, erase_copies=lambda found: told.append((found.n, _live(sessions))))
        _same(told, [(first, ["", "b"])])
        with _raises(OSError):
            sessions.redact("k", second, erase_copies=fail)
        _same(_live(sessions), ["", ""])


# Listing, archiving, deleting


def list_gives_true_keys_and_counts(open_store: Open) -> None:
    """Each session is listed once, under the key it was written with, with its live messages."""
    with open_store() as sessions:
        _add(sessions, "abc", "telegram:42")
        _add(sessions, "ab", "../../Ünïcode")
        sessions.truncate_history("telegram:42", 1)
        infos = {info.key: info for info in sessions.list()}
        _same({key: info.messages for key, info in infos.items()}, {"telegram:42": 1, "../../Ünïcode": 2})
        _same([info.archived for info in infos.values()], [False, False])
        _same([info.created <= info.updated for info in infos.values()], [True, True])


def labels_do_not_make_a_session_newer(open_store: Open) -> None:
    """A session was updated when something was last said or done in it, not when it was tagged or renamed."""
    with open_store() as sessions:
        _add(sessions, "a", "labelled")
        before = _updated(sessions, "labelled")
        # Until the clock has gone on: what is written now has a later time.
        _add(sessions, "a", "other")
        while _updated(sessions, "other") <= before:
            _add(sessions, "a", "other")
        sessions.set_meta("labelled", title="A title", tags=["done"], pinned=True)
        _same(_updated(sessions, "labelled"), before)
        _add(sessions, "b", "labelled")
        _holds(_updated(sessions, "labelled") > before)


def list_has_the_whole_meta(open_store: Open) -> None:
    """Of active and archived sessions: fields of any kind, merged, without those that were taken away."""
    fields = {"title": "T", "deep": {"a": [1, None, {"b": "ü" * 1000}]}, "pinned": True, "count": 2**64 - 1}
    with open_store() as sessions:
        _add(sessions, "a", "active")
        _add(sessions, "a", "bare")
        _add(sessions, "a", "old")
        for key in ("active", "old"):
            sessions.set_meta(key, {**fields, "gone": 1})
            sessions.set_meta(key, gone=None, later="x")
        sessions.archive("old")
        expected = fields | {"later": "x"}
        _same({info.key: info.meta for info in sessions.list()}, {"active": expected, "bare": {}})
        _same([info.meta for info in sessions.list(archived=True)], [expected])
        _same([info.meta for info in sessions.list(limit=1, order="key")], [expected])


def list_filters_by_prefix(open_store: Open) -> None:
    """The prefix is one of the true key, whatever characters it has."""
    with open_store() as sessions:
        for key in ("telegram:1", "telegram:2", "telegram_3", "Telegram:4", "cli"):
            _add(sessions, "a", key)
        _same({info.key for info in sessions.list(prefix="telegram:")}, {"telegram:1", "telegram:2"})
        _same({info.key for info in sessions.list(prefix="nobody")}, set())


def list_gives_the_newest_first(open_store: Open) -> None:
    """By default the session that was written last comes first; other orders and a limit can be chosen."""
    with open_store() as sessions:
        for key, count in (("b", 3), ("a", 1), ("c", 2)):
            _add(sessions, "x" * count, key)
        found = list(sessions.list())
        _same(found, sorted(found, key=lambda info: (-info.updated.timestamp(), info.key)))
        _same([info.key for info in sessions.list(order="key")], ["a", "b", "c"])
        _same([info.key for info in sessions.list(order="messages", limit=2)], ["b", "c"])
        _same([info.key for info in sessions.list(limit=0)], [])
        bad: list[dict[str, Any]] = [{"limit": True}, {"limit": 1.0}, {"limit": -1}, {"order": "age"}]
        bad += [{"archived": 1}, {"archived": None}, {"prefix": None}, {"internal": "no"}, {"order": None}]
        for given in bad:
            with _raises(StoreError):
                sessions.list(**given)


def a_page_is_followed_by_the_next_one(open_store: Open) -> None:
    """Pages are parts of one list, in any order; a cursor holds though sessions are written and deleted meanwhile."""
    with open_store() as sessions:
        for key, count in (("b", 3), ("a", 1), ("c", 2), ("e", 1), ("d", 3)):
            _add(sessions, "x" * count, key)
        sessions.archive("e")
        for order in ("updated", "created", "bytes", "messages", "key"):
            for reverse in (False, True):
                asked: dict[str, Any] = {"which": "all", "order": order, "reverse": reverse}
                whole = sessions.page(**asked, limit=None)
                first = sessions.page(**asked, limit=2)
                second = sessions.page(**asked, limit=2, cursor=first.cursor)
                third = sessions.page(**asked, limit=2, cursor=second.cursor)
                _same([*first.items, *second.items, *third.items], whole.items)
                _same((first.total, third.total, third.cursor), (5, 5, None))
        _same([info.key for info in sessions.page(order="messages").items], ["b", "d", "c", "a"])
        first = sessions.page(order="key", limit=2)
        sessions.delete("b")
        _same([info.key for info in sessions.page(order="key", cursor=first.cursor).items], ["c", "d"])
        _add(sessions, "x", "aa")
        _same([info.key for info in sessions.page(order="key", cursor=first.cursor).items], ["c", "d"])
        _same(sessions.page(limit=0), Page(items=[], total=4))


def a_page_can_be_narrowed(open_store: Open) -> None:
    """By state of archiving, key, text, tags, pin and folder; what cannot be in a key matches nothing."""
    with open_store() as sessions:
        for key in ("telegram:1", "telegram:2", "cli"):
            _add(sessions, "a", key)
        sessions.set_meta("telegram:1", title="Grüße", tags=["work", "home"], pinned=True)
        sessions.set_meta("telegram:2", tags=["work", 7], cwd="/srv/app")
        sessions.set_meta("cli", title=7, cwd="/srv")
        sessions.archive("cli")
        asked: list[tuple[dict[str, Any], list[str]]] = [
            ({}, ["telegram:1", "telegram:2"]),
            ({"which": "archived"}, ["cli"]),
            ({"which": "all"}, ["cli", "telegram:1", "telegram:2"]),
            ({"prefix": "telegram:2"}, ["telegram:2"]),
            ({"text": "GRÜSSE"}, ["telegram:1"]),
            ({"text": "gram:2"}, ["telegram:2"]),
            ({"tags": ["work"]}, ["telegram:1", "telegram:2"]),
            ({"tags": ("home", "work")}, ["telegram:1"]),
            ({"pinned": True}, ["telegram:1"]),
            ({"folder": "/srv", "which": "all"}, ["cli", "telegram:2"]),
            ({"folder": "/srv/"}, ["telegram:2"]),
            ({"folder": "/sr"}, []),
            ({"folder": "/"}, ["telegram:2"]),
            ({"prefix": "\ud800"}, []),
            ({"tags": ["\udfff"]}, []),
            ({"prefix": "\U0010ffff"}, []),
        ]
        for given, keys in asked:
            page = sessions.page(order="key", **given)
            _same(([info.key for info in page.items], page.total), (keys, len(keys)))


def a_page_tells_how_a_session_stands(open_store: Open) -> None:
    """Labels and meta, and who said what last with which model."""
    with open_store() as sessions:
        sessions.set_meta("k", title="T", tags=["work"], pinned=True, cwd="/srv", other={"a": [1]})
        sessions.add_message("k", "user", "\n go on \nplease")
        (info,) = sessions.page().items
        _same((info.tags, info.pinned, info.cwd, info.meta["other"]), (("work",), True, "/srv", {"a": [1]}))
        _same((info.role, info.model, info.last, info.state), ("user", "", "go on", "unanswered"))
        sessions.add_full_message("k", Message(role="assistant", content="done", model="m"))
        (info,) = sessions.page().items
        _same((info.role, info.model, info.last, info.state), ("assistant", "m", "done", "idle"))
        call = ToolCall(id="1", name="shell", arguments={})
        sessions.add_full_message("k", Message(role="assistant", content=None, tool_calls=(call,)))
        (info,) = sessions.page().items
        _same((info.last, info.state, info.generation != ""), ("shell", "interrupted", True))


def a_page_checks_its_arguments(open_store: Open) -> None:
    """A wrong argument, or a cursor of another order, is refused."""
    with open_store() as sessions:
        _add(sessions, "a", "k")
        _add(sessions, "a", "l")
        cursor = sessions.page(limit=1).cursor
        bad: list[dict[str, Any]] = [
            {"which": "some"},
            {"limit": -1},
            {"limit": 1.5},
            {"order": "age"},
            {"tags": "work"},
            {"pinned": 1},
            {"folder": 1},
            {"cursor": "x"},
            {"cursor": "e30="},
            {"cursor": cursor, "order": "key"},
            {"cursor": cursor, "reverse": True},
        ]
        for given in bad:
            with _raises(StoreError):
                sessions.page(**given)


def internal_sessions_are_listed_only_if_asked_for(open_store: Open) -> None:
    """Sessions of nacre's own can be read by their key, and are in no list unless it is said."""
    with open_store() as sessions:
        _add(sessions, "a", "k")
        sessions.with_internal_keys().add_message("nacre:x", "user", "a")
        _same([info.key for info in sessions.list()], ["k"])
        _same([info.key for info in sessions.list(prefix="nacre:")], [])
        _same([info.key for info in sessions.list(internal=True, order="key")], ["k", "nacre:x"])
        _same((sessions.exists("nacre:x"), _live(sessions, "nacre:x")), (True, ["a"]))
        sessions.archive("nacre:x")
        _same(list(sessions.list(archived=True)), [])
        _same([info.key for info in sessions.list(archived=True, internal=True)], ["nacre:x"])


def a_new_internal_key_is_refused(open_store: Open) -> None:
    """Keys that begin with `nacre:` are reserved; a session that has one already stays as it was."""
    with open_store() as sessions:
        _add(sessions, "a", "k")
        calls: list[Callable[[str], object]] = [
            lambda key: sessions.add_message(key, "user", "a"),
            lambda key: sessions.add_messages(key, [_user("a")]),
            lambda key: sessions.submit(key, [_user("a")]),
            lambda key: sessions.set_summary(key, "a"),
            lambda key: sessions.set_history(key, [_user("a")]),
            lambda key: sessions.set_meta(key, title="a"),
            lambda key: sessions.append(key, "x.note", 1),
            lambda key: sessions.fork("k", key),
        ]
        for call in calls:
            with _raises(InvalidKey):
                call("nacre:x")
        sessions.truncate_history("nacre:x", 1)
        _holds(not sessions.exists("nacre:x"))
        sessions.with_internal_keys().add_message("nacre:x", "user", "a")
        sessions.add_message("nacre:x", "user", "b")
        _same(_live(sessions, "nacre:x"), ["a", "b"])


def list_gives_the_newest_title(open_store: Open) -> None:
    """A title set twice is the second, also when the history has gone on and was compacted."""
    with open_store() as sessions:
        sessions.set_meta("k", title="first")
        sessions.set_meta("k", title="second")
        sessions.add_messages("k", [_user("x" * 1000)] * 100)
        sessions.clear("k")
        sessions.save("k")
        _same([(info.title, info.messages) for info in sessions.list()], [("second", 0)])


def an_archived_session_can_be_read(open_store: Open) -> None:
    """It leaves the listing, not the store."""
    with open_store() as sessions:
        _add(sessions, "ab")
        sessions.set_summary("k", "So far.")
        sessions.archive("k")
        _same((_live(sessions), sessions.get_summary("k"), _ever(sessions)), (["a", "b"], "So far.", ["a", "b"]))
        _holds(sessions.exists("k"))
        _same(list(sessions.list()), [])
        _same([(i.key, i.messages) for i in sessions.list(archived=True) if i.archived], [("k", 2)])


def a_write_to_an_archived_key_starts_a_new_generation(open_store: Open) -> None:
    """Reads take the new one; the transcript gives both, told apart by their generation."""
    with open_store() as sessions:
        _add(sessions, "ab")
        sessions.set_summary("k", "So far.")
        sessions.archive("k")
        sessions.add_messages("k", [_user("c")], expect=0)
        _same((_live(sessions), sessions.get_summary("k")), (["c"], ""))
        _same(_ever(sessions), ["a", "b", "c"])
        generations = [stored.generation for stored in sessions.transcript("k")]
        _same((generations[0] == generations[1], generations[1] == generations[2]), (True, False))


def archiving_again_never_overwrites(open_store: Open) -> None:
    """Every generation stays; reads take the newest."""
    with open_store() as sessions:
        for text in "abc":
            _add(sessions, text)
            sessions.archive("k")
        _same((_live(sessions), _ever(sessions)), (["c"], ["a", "b", "c"]))
        _same([info.key for info in sessions.list()], [])


def an_unarchived_session_goes_on(open_store: Open) -> None:
    """The newest generation is active again, and the next message follows its last."""
    with open_store() as sessions:
        _add(sessions, "x")
        sessions.archive("k")
        last = _add(sessions, "ab")[-1]
        sessions.archive("k")
        sessions.unarchive("k")
        sessions.add_messages("k", [_user("c")], expect=last)
        _same((_live(sessions), _ever(sessions)), (["a", "b", "c"], ["x", "a", "b", "c"]))
        _same([(info.key, info.archived) for info in sessions.list()], [("k", False)])


def unarchiving_next_to_an_active_session_is_a_conflict(open_store: Open) -> None:
    """Neither generation is touched."""
    with open_store() as sessions:
        _add(sessions, "a")
        sessions.archive("k")
        _add(sessions, "b")
        with _raises(Conflict):
            sessions.unarchive("k")
        _same((_live(sessions), _ever(sessions)), (["b"], ["a", "b"]))


def archiving_an_unknown_key_is_not_found(open_store: Open) -> None:
    """There is nothing to put away, nor to bring back."""
    with open_store() as sessions:
        with _raises(SessionNotFound):
            sessions.archive("k")
        with _raises(SessionNotFound):
            sessions.unarchive("k")
        _holds(not sessions.exists("k"))


def delete_erases_every_generation(open_store: Open) -> None:
    """History, transcript, records, meta and archive are gone, and other sessions are not."""
    with open_store() as sessions:
        _add(sessions, "a", "other")
        _add(sessions, "ab")
        sessions.set_meta("k", title="T")
        sessions.archive("k")
        _add(sessions, "c")
        sessions.append("k", "x.note", {})
        sessions.delete("k")
        _same((sessions.exists("k"), _live(sessions), _ever(sessions)), (False, [], []))
        _same((sessions.get_meta("k"), list(sessions.records("k"))), ({}, []))
        _same([info.key for info in sessions.list(archived=True) if info.archived], [])
        _same(_live(sessions, "other"), ["a"])


def an_id_is_known_after_archiving(open_store: Open) -> None:
    """A retry that comes after the session was archived is not stored twice, and begins no session by itself."""
    with open_store() as sessions:
        _add(sessions, "a")
        first = sessions.add_messages("k", [_user("once")], id="i")
        sessions.archive("k")
        _same(sessions.add_messages("k", [_user("once")], id="i"), first)
        _same((list(sessions.list()), _ever(sessions)), ([], ["a", "once"]))
        _add(sessions, "b")
        _same(sessions.add_messages("k", [_user("once")], id="i"), first)
        with _raises(Conflict):
            sessions.add_messages("k", [_user("other")], id="i")
        _same(_ever(sessions), ["a", "once", "b"])
        sessions.archive("k")
        sessions.delete("k")
        sessions.add_messages("k", [_user("once")], id="i")
        _same(_ever(sessions), ["once"])


def a_fork_goes_on_after_its_own_header(open_store: Open) -> None:
    """Its header has the next number, and is its last record until something is said."""
    with open_store() as sessions:
        numbers = _add(sessions, "abc")
        sessions.fork("k", "all")
        sessions.fork("k", "part", at=numbers[1])
        for key, last, texts in (("all", numbers[2], "abc"), ("part", numbers[1], "ab")):
            _same(sessions.snapshot(key).n, last + 1)
            _same([entry.n for entry in sessions.records(key, "open")], [1, last + 1])
            _same(sessions.add_message(key, "user", "own"), last + 2)
            _same(_live(sessions, key), [*texts, "own"])
        sessions.archive("all")
        sessions.fork("part", "all")
        generations = [stored.generation for stored in sessions.transcript("all")]
        _same(generations, sorted(generations))


def delete_erases_an_archived_session(open_store: Open) -> None:
    """A session that is only in the archive is deleted like another."""
    with open_store() as sessions:
        _add(sessions, "a")
        sessions.archive("k")
        sessions.delete("k")
        _same((sessions.exists("k"), _ever(sessions)), (False, []))


def deleting_an_unknown_key_is_no_error(open_store: Open) -> None:
    """What should be gone is gone, twice too."""
    with open_store() as sessions:
        sessions.delete("k")
        _add(sessions, "a")
        sessions.delete("k")
        sessions.delete("k")
        _holds(not sessions.exists("k"))


def a_deleted_key_begins_again(open_store: Open) -> None:
    """A later write makes a new session that knows nothing of the old one."""
    with open_store() as sessions:
        number = sessions.add_messages("k", [_user("a"), _user("b")], id="once")
        sessions.delete("k")
        with _raises(Conflict):
            sessions.add_messages("k", [_user("c")], expect=number)
        sessions.add_messages("k", [_user("d")], expect=0, id="once")
        _same((_live(sessions), _ever(sessions)), (["d"], ["d"]))


# Keys


def keys_that_look_alike_are_apart(open_store: Open) -> None:
    """No two keys share a session: not by case, by separators, by width or by composition."""
    keys = [
        "a:b",
        "a/b",
        "a_b",
        "a\\b",
        "a.b",
        "a-b",
        "a b",
        "a:b ",
        "A:B",
        "a",
        "A",
        "é",
        "e\u0301",
        "\uff41",
        "a.jsonl",
        "a~b",
    ]
    with open_store() as sessions:
        for key in keys:
            sessions.add_message(key, "user", f"to {key}")
        _same([_live(sessions, key) for key in keys], [[f"to {key}"] for key in keys])
        _same(sorted(info.key for info in sessions.list()), sorted(keys))


def any_key_of_unicode_will_do(open_store: Open) -> None:
    """Names of files, paths, controls and every script are only keys."""
    keys = [
        "日本語",
        "🦪",
        "..",
        ".",
        "/",
        "/etc/passwd",
        "../../x",
        "con",
        "NUL",
        "-rf",
        "~",
        " ",
        "\n",
        "\u202ex",
        "x" * 1024,
        "字" * 1024,
    ]
    with open_store() as sessions:
        for key in keys:
            sessions.add_message(key, "user", "a")
        _same([_live(sessions, key) for key in keys], [["a"]] * len(keys))
        sessions.archive("..")
        sessions.delete("/")
        _same(sorted(info.key for info in sessions.list()), sorted(set(keys) - {"..", "/"}))


def an_invalid_key_is_refused(open_store: Open) -> None:
    """The empty key, NUL, lone surrogates and more than 1,024 characters are errors, for reads too."""
    with open_store() as sessions:
        _add(sessions, "a")
        for key in ("", "a\x00b", "\ud800", "x" * 1025):
            calls: list[Callable[[str], object]] = [
                lambda key: sessions.add_message(key, "user", "a"),
                lambda key: sessions.submit(key, [_user("a")]).result(timeout=30),
                lambda key: sessions.update(key, [Pop()]),
                sessions.get_history,
                sessions.get_summary,
                sessions.get_meta,
                sessions.snapshot,
                sessions.transcript,
                sessions.records,
                sessions.exists,
                sessions.status,
                sessions.free_key,
                sessions.resolve,
                sessions.aliases,
                lambda key: next(sessions.follow(key)),
                sessions.hold,
                lambda key: sessions.fork(key, "fork"),
                lambda key: sessions.fork("k", key),
                sessions.archive,
                sessions.unarchive,
                sessions.save,
                sessions.delete,
                sessions.verify,
                sessions.repair,
                sessions.quarantine,
                sessions.restore,
                sessions.discard,
            ]
            for call in calls:
                with _raises(InvalidKey):
                    call(key)
        _same([info.key for info in sessions.list()], ["k"])


def an_invalid_message_is_refused(open_store: Open) -> None:
    """What cannot be stored as it is is an error, and nothing is stored."""
    bad: list[dict[str, Any]] = [
        {"content": "no role"},
        {"role": 7, "content": "no role"},
        {"role": "user", "content": [{"x": float("inf")}]},
        {"role": "user", "content": "a", "extra_field": 2**64},
        {"role": "user", "content": b"bytes"},
        {"role": "user", "content": [{1: "a key that is no text"}]},
    ]
    with open_store() as sessions:
        for mapping in bad:
            with _raises(InvalidMessage):
                sessions.add_full_message("k", mapping)
        _holds(not sessions.exists("k"))


# Updates, forks


def an_update_takes_every_operation(open_store: Open) -> None:
    """What other methods do one by one can be done by operations, too."""
    with open_store() as sessions:
        a, _, c = _add(sessions, "abc")
        steps: list[tuple[list[Any], list[object], str]] = [
            ([Truncate(2)], ["b", "c"], ""),
            ([Pop()], ["b"], ""),
            ([Rewind(c)], ["a", "b", "c"], ""),
            ([Summarise("S", a)], ["b", "c"], "S"),
            ([_user("d"), {"role": "user", "content": "e"}], ["b", "c", "d", "e"], "S"),
            ([Rewind(0, keeps_summary=True), _user("f")], ["f"], "S"),
            ([Rewind(0)], [], ""),
        ]
        for operations, live, summary in steps:
            last = sessions.update("k", operations)
            _same((_live(sessions), sessions.get_summary("k"), sessions.snapshot("k").n), (live, summary, last))
        sessions.update("k", [SetMeta({"title": "T"}), AppendRecord("x.note", [1])])
        _same((sessions.get_meta("k"), [e.data for e in sessions.records("k", "x.note")]), ({"title": "T"}, [[1]]))


def an_update_is_applied_whole_or_not_at_all(open_store: Open) -> None:
    """One operation that does not fit, or is wrong, refuses them all."""
    with open_store() as sessions:
        _add(sessions, "ab")
        before = list(sessions.records("k"))
        for unfit in (Summarise("S", 999), Rewind(999)):
            with _raises(Conflict):
                sessions.update("k", [_user("c"), unfit])
        bad: list[Any] = [Rewind(2.5), Truncate("1"), Summarise(7), AppendRecord("msg", 1), SetMeta([]), {}, 7]  # type: ignore[arg-type]
        for wrong in bad:
            with _raises(InvalidArgument):
                sessions.update("k", [_user("c"), wrong])
        _same(sessions.update("k", [Truncate(99)]), 0)
        _same(list(sessions.records("k")), before)


def an_operation_without_effect_takes_no_other_along(open_store: Open) -> None:
    """A truncation to more than is live, or a pop of nothing, changes nothing; what comes with it is stored."""
    with open_store() as sessions:
        _add(sessions, "a")
        last = sessions.update("k", [Truncate(9), _user("b"), Truncate(9), AppendRecord("use", 1), Truncate(9)])
        _same((_live(sessions), last), (["a", "b"], sessions.snapshot("k").n))
        sessions.rewind("k", last)
        _holds(sessions.update("k", [Pop(), Pop(), Pop(), _user("c")]) > last)
        _same((_live(sessions), _ever(sessions)), (["c"], ["a", "b", "c"]))
        _same((sessions.update("k", [Truncate(9), Truncate(8)]), sessions.verify("k").ok), (0, True))
        sessions.update("k", [Truncate(9), Truncate(8), SetMeta({"title": "T"}), SetMeta({"pinned": True})])
        _same(sessions.get_meta("k"), {"title": "T", "pinned": True})


def a_fork_and_its_source_go_separate_ways(open_store: Open) -> None:
    """It begins with the history, summary and meta of the other; what either does later does not touch the other."""
    with open_store() as sessions:
        _add(sessions, "ab")
        sessions.set_summary("k", "So far.")
        sessions.set_meta("k", title="T")
        sessions.fork("k", "fork")
        begun = (_live(sessions, "fork"), sessions.get_summary("fork"), sessions.get_meta("fork"))
        _same(begun, (["a", "b"], "So far.", {"title": "T"}))
        sessions.truncate_history("k", 1)
        _add(sessions, "c")
        _add(sessions, "d", "fork")
        sessions.set_meta("fork", title="F")
        _same((_live(sessions), sessions.get_meta("k")), (["b", "c"], {"title": "T"}))
        _same((_live(sessions, "fork"), sessions.get_meta("fork")), (["a", "b", "d"], {"title": "F"}))
        sessions.delete("k")
        _same((_live(sessions, "fork"), _ever(sessions, "fork")), (["a", "b", "d"], ["a", "b", "d"]))


def a_fork_that_cannot_be_is_refused(open_store: Open) -> None:
    """There must be an active session to fork, a free key to fork to, and a record that no group goes past."""
    with open_store() as sessions:
        _add(sessions, "a")
        last = sessions.add_messages("k", [_user("b"), _user("c")])
        _add(sessions, "x", "taken")
        for at in (last - 1, last + 1):
            with _raises(Conflict):
                sessions.fork("k", "fork", at=at)
        with _raises(Conflict):
            sessions.fork("k", "taken")
        with _raises(SessionNotFound):
            sessions.fork("unknown", "fork")
        _same((sessions.exists("fork"), _live(sessions, "taken")), (False, ["x"]))


# Other names


def a_session_is_found_by_its_other_name(open_store: Open) -> None:
    """Whatever is read or written under it is the session's; lists show the session once, by its key."""
    with open_store() as sessions:
        _add(sessions, "a")
        sessions.add_alias("k", "other")
        _add(sessions, "b", "other")
        sessions.submit("other", [_user("c")]).result(timeout=30)
        sessions.truncate_history("other", 2)
        _same((_live(sessions), _live(sessions, "other")), (["b", "c"], ["b", "c"]))
        _same(sessions.snapshot("other"), sessions.snapshot("k"))
        _same(_ever(sessions, "other"), ["a", "b", "c"])
        _same((sessions.exists("other"), sessions.status("other")), (True, ""))
        _same([sessions.resolve(name) for name in ("other", "k", "unknown")], ["k", "k", "unknown"])
        _same(([info.key for info in sessions.list()], list(sessions.aliases("k"))), (["k"], ["other"]))


def what_cannot_be_another_name_is_refused(open_store: Open) -> None:
    """Only a session gets one; a key of another session, a reserved name and an invalid key are none."""
    with open_store() as sessions:
        _add(sessions, "a")
        _add(sessions, "b", "taken")
        with _raises(SessionNotFound):
            sessions.add_alias("unknown", "other")
        with _raises(Conflict):
            sessions.add_alias("k", "taken")
        for alias in ("nacre:x", "", "a\x00b"):
            with _raises(InvalidKey):
                sessions.add_alias("k", alias)
        _same((list(sessions.aliases("k")), _live(sessions, "taken")), ([], ["b"]))


def a_name_that_is_not_clear_stands_for_itself(open_store: Open) -> None:
    """If two sessions have it, it is neither's; a session under the name itself comes first."""
    with open_store() as sessions:
        _add(sessions, "a", "one")
        _add(sessions, "b", "two")
        sessions.add_alias("one", "name")
        sessions.add_alias("two", "name")
        _same((sessions.resolve("name"), sessions.exists("name")), ("name", False))
        _add(sessions, "c", "name")
        _same((_live(sessions, "name"), _live(sessions, "one"), _live(sessions, "two")), (["c"], ["a"], ["b"]))


def other_names_go_with_their_session(open_store: Open) -> None:
    """They stay when it is archived, and are gone when it is deleted; deleting by one of them deletes nothing."""
    with open_store() as sessions:
        _add(sessions, "a")
        _add(sessions, "b", "kept")
        sessions.add_alias("k", "other")
        sessions.add_alias("kept", "second")
        sessions.delete("other")
        sessions.archive("k")
        _same((_live(sessions, "other"), list(sessions.aliases("k"))), (["a"], ["other"]))
        sessions.delete("k")
        _same((sessions.exists("other"), list(sessions.aliases("k"))), (False, []))
        _add(sessions, "c")
        _same((sessions.exists("other"), _live(sessions, "second")), (False, ["b"]))


# A part of the store


def a_part_of_the_store_shows_its_own_sessions(open_store: Open) -> None:
    """Those whose keys begin with the prefix can be read and written there; the store stays open when it is closed."""
    with open_store() as sessions:
        part = sessions.within("bob:")
        part.add_message("bob:1", "user", "a")
        _add(sessions, "b", "eve:1")
        _same(([info.key for info in part.list()], part.page().total), (["bob:1"], 1))
        _same((_live(part, "bob:1"), part.status("bob:1"), part.verify("bob:1").ok), (["a"], "active", True))
        part.fork("bob:1", "bob:2")
        part.archive("bob:1")
        part.delete("bob:1")
        part.close()
        _add(sessions, "c", "eve:1")
        _same(sorted(info.key for info in sessions.list()), ["bob:2", "eve:1"])
        _same((sessions.exists("bob:1"), _live(sessions, "bob:2")), (False, ["a"]))


def a_part_of_the_store_leads_to_no_other_session(open_store: Open) -> None:
    """Other keys have no session there, and cannot be written, forked, moved, deleted or named; nor can all."""
    with open_store() as sessions:
        _add(sessions, "a", "bob:1")
        _add(sessions, "b", "eve:1")
        sessions.add_alias("eve:1", "bob:2")
        part = sessions.within("bob:")
        for key in ("eve:1", "bob:2"):
            _same((part.exists(key), _live(part, key), _ever(part, key), part.status(key)), (False, [], [], ""))
        refused: list[Callable[[], object]] = [
            lambda: part.add_message("eve:1", "user", "c"),
            lambda: part.submit("eve:1", [_user("c")]).result(timeout=30),
            lambda: part.truncate_history("eve:1", 0),
            lambda: part.fork("eve:1", "bob:3"),
            lambda: part.fork("bob:1", "eve:2"),
            lambda: part.archive("eve:1"),
            lambda: part.hold("eve:1"),
            lambda: next(part.follow("eve:1")),
            lambda: part.verify("eve:1"),
            part.verify,
        ]
        for call in refused:
            with _raises(InvalidArgument):
                call()
        part.delete("eve:1")
        _same((_live(sessions, "eve:1"), sessions.status("eve:1")), (["b"], "active"))


# Following, turns, watching


def following_gives_the_past_and_then_what_comes(open_store: Open) -> None:
    """Every record after a number, then new ones, and those of the next generation once there is one."""
    with open_store() as sessions:
        first = _add(sessions, "ab")[0]
        entries = sessions.follow("k", first)
        said = (entry.data["content"] for entry in entries if entry.kind == "msg")
        _same(next(said, None), "b")
        _add(sessions, "c")
        _same(next(said, None), "c")
        sessions.archive("k")
        _add(sessions, "d")
        _same(next(said, None), "d")
        entries.close()


def a_held_turn_blocks_no_write(open_store: Open) -> None:
    """It can be taken again once it was given back; giving it back twice is harmless."""
    with open_store() as sessions:
        for _ in range(2):
            hold = sessions.hold("k")
            hold.take()
            _add(sessions, "a")
            hold.close()
            hold.close()
        _same(_live(sessions), ["a", "a"])


def who_has_a_turn_is_known(open_store: Open) -> None:
    """To everybody, without taking it; nobody has one that was given back."""
    with open_store() as sessions:
        turn, other = sessions.hold("k"), sessions.hold("k")
        _same((turn.holder(), other.holder()), (0, 0))
        turn.take()
        _same((turn.holder(), other.holder(), other.number), (os.getpid(), os.getpid(), None))
        turn.close()
        _same((turn.holder(), other.holder()), (0, 0))


def a_view_gives_every_record_with_its_line(open_store: Open) -> None:
    """Lines are JSON with the record's own number, and name large payloads, which the view has."""
    large = "x" * 100_000

    def read(view: View) -> list[tuple[int, Any, bool]]:
        lines = [(record.n, line) for record, line in view.all_lines()]
        _same([n for n, _ in lines], [record.n for record in view.all()])
        return [(n, msgspec.json.decode(line), line[-1:] == b"\n") for n, line in lines]

    with open_store() as sessions:
        sessions.add_message("k", "user", "a")
        sessions.add_message("k", "tool", large)
        found = sessions.read("k", read) or []
        _same(
            [(n, line["n"], line["t"], is_line) for n, line, is_line in found][1:],
            [(2, 2, "msg", True), (3, 3, "msg", True)],
        )
        name = found[-1][1]["m"]["content"].removeprefix("blob:")
        _same(sessions.read("k", lambda view: (view.payload(name), view.payload("0" * 64))), (large, None))


def a_watch_that_can_tell_says_what_has_changed(open_store: Open) -> None:
    """A store without a way to tell has none to wait on."""
    with open_store() as sessions, sessions.watch() as watch:
        _add(sessions, "a")
        if watch.fd >= 0:
            changed = watch.changed()
            _same((watch.name("k") in changed, watch.name("other") in changed), (True, False))


# Wrong arguments


def a_number_that_is_no_integer_is_refused(open_store: Open) -> None:
    """A float, a bool or a text is no number, also where it would be taken for one."""
    calls: list[Callable[[Sessions, Any], object]] = [
        lambda sessions, number: sessions.get_history("k", last=number),
        lambda sessions, number: sessions.snapshot("k", last=number),
        lambda sessions, number: sessions.set_summary("k", "S", upto=number),
        lambda sessions, number: sessions.truncate_history("k", number),
        lambda sessions, number: sessions.add_messages("k", [_user("x")], expect=number),
        lambda sessions, number: sessions.submit("k", [_user("x")], expect=number),
        lambda sessions, number: sessions.update("k", [_user("x")], expect=number),
        lambda sessions, number: sessions.rewind("k", number),
        lambda sessions, number: sessions.rewind("k", before=number),
        lambda sessions, number: sessions.fork("k", "fork", at=number),
        lambda sessions, number: sessions.follow("k", number),
        lambda sessions, number: sessions.list(limit=number),
        lambda sessions, number: sessions.page(limit=number),
        lambda sessions, number: sessions.restore("k", number),
        lambda sessions, number: sessions.discard("k", number),
    ]
    with open_store() as sessions:
        _add(sessions, "abc")
        before = list(sessions.records("k"))
        for call in calls:
            for number in (2.0, True, "2"):
                with _raises(InvalidArgument):
                    call(sessions, number)
        _same((list(sessions.records("k")), sessions.exists("fork")), (before, False))


def a_text_that_is_none_is_refused(open_store: Open) -> None:
    """So are labels, prefixes and kinds of another type, and one text where several are wanted."""
    calls: list[Callable[[Sessions, Any], object]] = [
        lambda sessions, wrong: sessions.list(prefix=wrong),
        lambda sessions, wrong: sessions.list(archived=wrong),
        lambda sessions, wrong: sessions.list(internal=wrong),
        lambda sessions, wrong: sessions.page(text=wrong),
        lambda sessions, wrong: sessions.page(reverse=wrong),
        lambda sessions, wrong: sessions.within(wrong),
        lambda sessions, wrong: sessions.records("k", wrong),
        lambda sessions, wrong: sessions.set_labels("k", title=wrong),
        lambda sessions, wrong: sessions.set_labels("k", tags=[wrong]),
        lambda sessions, wrong: sessions.set_labels("k", pinned=wrong),
        lambda sessions, wrong: sessions.quarantine("k", settled=wrong),
        lambda sessions, _: sessions.set_labels("k", tags="work"),
    ]
    with open_store() as sessions:
        _add(sessions, "a")
        for call in calls:
            for wrong in (7, b"x"):
                with _raises(InvalidArgument):
                    call(sessions, wrong)
        _same(sessions.get_meta("k"), {})


def what_cannot_be_stored_is_refused(open_store: Open) -> None:
    """A summary that is no text, meta and data that are no JSON, and messages that are not in a list."""
    bad: list[Callable[[Sessions], object]] = [
        lambda sessions: sessions.add_message("k", "user", 7),  # type: ignore[arg-type]
        lambda sessions: sessions.set_summary("k", None),  # type: ignore[arg-type]
        lambda sessions: sessions.set_meta("k", ratio=float("nan")),
        lambda sessions: sessions.set_meta("k", found={1, 2}),
        lambda sessions: sessions.append("k", "x.note", {1: "a number as a name"}),
        lambda sessions: sessions.append("k", "x.note", 2**64),
        lambda sessions: sessions.set_history("k", None),  # type: ignore[arg-type]
        lambda sessions: sessions.add_messages("k", "text"),  # type: ignore[arg-type]
        lambda sessions: sessions.submit("k", 7),  # type: ignore[arg-type]
    ]
    with open_store() as sessions:
        for call in bad:
            with _raises(InvalidArgument):
                call(sessions)
        _holds(not sessions.exists("k"))


def an_id_that_cannot_be_one_is_refused(open_store: Open) -> None:
    """It is a text of 1 to 256 characters that can be written down."""
    bad: list[Any] = ["", "x" * 257, 7, "\ud800", b"once"]
    with open_store() as sessions:
        for id in bad:
            with _raises(InvalidMessage):
                sessions.add_messages("k", [_user("a")], id=id)
            with _raises(InvalidMessage):
                sessions.submit("k", [_user("a")], id=id)
            with _raises(InvalidMessage):
                sessions.append("k", "x.note", 1, id=id)
        _holds(not sessions.exists("k"))
        sessions.add_messages("k", [_user("a")], id="ö" * 256)
        _same(sessions.add_messages("k", [_user("a")], id="ö" * 256), 2)


# The store as a whole


def a_sound_store_verifies(open_store: Open) -> None:
    """A report on one session and on all of them has no findings."""
    with open_store() as sessions:
        _add(sessions, "abc")
        sessions.truncate_history("k", 1)
        sessions.save("k")
        _add(sessions, "a", "archived")
        sessions.archive("archived")
        for report in (sessions.verify(), sessions.verify("k"), sessions.verify("archived")):
            _same((report.ok, report.findings), (True, ()))


def a_sound_session_needs_no_repair(open_store: Open) -> None:
    """Repairing it keeps every record; nothing of it is in quarantine, and there is nothing to settle."""
    with open_store() as sessions:
        _add(sessions, "ab")
        receipt = sessions.repair("k")
        _same((receipt.key, receipt.kept, receipt.set_aside, receipt.quarantine), ("k", 3, 0, None))
        _same((sessions.quarantine(), sessions.quarantine("k"), sessions.quarantine("k", settled=True)), ([], [], []))
        _same((sessions.restore("k"), sessions.discard("k")), (Settlement(key="k"), Settlement(key="k")))
        _same(_ever(sessions), ["a", "b"])


def upkeep_of_what_is_not_there_is_not_found(open_store: Open) -> None:
    """An unknown session cannot be verified or repaired, an unknown entry of a quarantine not settled."""
    with open_store() as sessions:
        _add(sessions, "a")
        calls: list[Callable[[], object]] = [
            lambda: sessions.verify("unknown"),
            lambda: sessions.repair("unknown"),
            lambda: sessions.restore("k", 1),
            lambda: sessions.discard("k", 1),
        ]
        for call in calls:
            with _raises(SessionNotFound):
                call()
        _same((sessions.exists("unknown"), _ever(sessions)), (False, ["a"]))


def a_closed_store_takes_no_write(open_store: Open) -> None:
    """What cannot be stored is not silently dropped."""
    with open_store() as sessions:
        _add(sessions, "a")
    with _raises(StoreError):
        sessions.add_message("k", "user", "b")
    with _raises(StoreError):
        sessions.submit("k", [_user("b")]).result(timeout=30)


def closing_twice_is_harmless(open_store: Open) -> None:
    """The last to close need not know it."""
    sessions = open_store()
    sessions.add_message("k", "user", "a")
    sessions.close()
    sessions.close()


def forgiving_writes_are_counted_and_return_zero(open_store: Open) -> None:
    """A failed write is no exception, and those that succeed return their number."""
    with open_store() as sessions:
        forgiving = Forgiving(sessions)
        _same(forgiving.add_message("", "user", "a"), 0)
        _same(forgiving.add_full_message("k", {"content": "no role"}), 0)
        forgiving.set_summary("", "So far.")
        forgiving.set_history("k", [{"content": "no role"}])
        forgiving.truncate_history("", 0)
        _same(forgiving.failures, 5)
        number = forgiving.add_message("k", "user", "b")
        _same([stored.n for stored in sessions.transcript("k")], [number])
        _same(forgiving.failures, 5)


def forgiving_reads_give_empty_values(open_store: Open) -> None:
    """A failed read is an empty one, but a failed save is still an error."""
    with open_store() as sessions:
        forgiving = Forgiving(sessions)
        _same((forgiving.get_history(""), forgiving.get_summary("")), ([], ""))
        with _raises(InvalidKey):
            forgiving.save("")


STORE_CONTRACT: tuple[Check, ...] = _checks()


# Places that keep their sessions


def everything_is_there_after_reopening(open_store: Open) -> None:
    """History, summary, meta, transcript, records, listing and archive come back the same."""
    with open_store() as sessions:
        _holds(sessions.is_durable)
        _add(sessions, "abc")
        sessions.set_meta("k", title="T")
        sessions.append("k", "x.note", {"a": 1})
        sessions.set_summary("k", "So far.")
        sessions.truncate_history("k", 2)
        _add(sessions, "z", "old")
        sessions.archive("old")
        before = (
            sessions.get_history("k"),
            sessions.transcript("k"),
            list(sessions.records("k")),
            list(sessions.list()),
        )
    with open_store() as sessions:
        _same(
            (sessions.get_history("k"), sessions.transcript("k"), list(sessions.records("k")), list(sessions.list())),
            before,
        )
        _same(
            (_live(sessions), sessions.get_summary("k"), sessions.get_meta("k")),
            (["b", "c"], "So far.", {"title": "T"}),
        )
        _same((_live(sessions, "old"), sessions.exists("old")), (["z"], True))


def numbers_go_on_after_reopening(open_store: Open) -> None:
    """The next number is higher than any before, also after a compaction."""
    with open_store() as sessions:
        numbers = _add(sessions, "ab")
        sessions.clear("k")
        sessions.save("k")
    with open_store() as sessions:
        numbers += _add(sessions, "c")
    _same(numbers, sorted(set(numbers)))


def expect_and_id_hold_after_reopening(open_store: Open) -> None:
    """Another run of the program may retry the write of this one."""
    with open_store() as sessions:
        number = sessions.add_messages("k", [_user("a")], expect=0, id="once")
    with open_store() as sessions:
        _same(sessions.add_messages("k", [_user("a")], expect=0, id="once"), number)
        with _raises(Conflict):
            sessions.add_messages("k", [_user("b")], id="once")
        sessions.add_messages("k", [_user("c")], expect=number)
        _same(_live(sessions), ["a", "c"])


def every_write_is_known_by_its_id_after_reopening(open_store: Open) -> None:
    """What a write stored is compared with its records, of whatever kind they are."""
    results: dict[str, object] = {}
    with open_store() as sessions:
        for name, write in _WRITES.items():
            _add(sessions, "abc", name)
            results[name] = write(sessions, name, "p", id="once")
        _add(sessions, "abc", "pop")
        _same((message := sessions.pop("pop", id="once")) and message.content, "c")
    with open_store() as sessions:
        for name, write in _WRITES.items():
            before = sessions.snapshot(name)
            _same((name, write(sessions, name, "p", id="once")), (name, results[name]))
            with _raises(Conflict):
                write(sessions, name, "qq", id="once")
            _same((name, sessions.snapshot(name)), (name, before))
        _same((message := sessions.pop("pop", id="once")) and message.content, "c")
        _same(_live(sessions, "pop"), ["a", "b"])


def a_large_retry_is_known_after_reopening(open_store: Open) -> None:
    """The content under an id is compared with what was stored, large payloads too."""
    with open_store() as sessions:
        number = sessions.add_messages("k", [_user("a" * 70_000), _user("b")], id="once")
    with open_store() as sessions:
        _same(sessions.add_messages("k", [_user("a" * 70_000), _user("b")], id="once"), number)
        _same(_live(sessions), ["a" * 70_000, "b"])


def ids_outlive_compaction_and_reopening(open_store: Open) -> None:
    """Compaction carries the window of ids along."""
    with open_store() as sessions:
        number = sessions.add_messages("k", [_user("x" * 1000)] * 300, id="once")
        sessions.truncate_history("k", 1)
        sessions.save("k")
    with open_store() as sessions:
        _same(sessions.add_messages("k", [_user("x" * 1000)] * 300, id="once"), number)
        _same(len(sessions.transcript("k")), 300)


def what_one_wrote_the_other_reads(open_store: Open) -> None:
    """Two openings of one place write one session by turns, and both see all of it."""
    with open_store() as one, open_store() as two:
        for text in "ab":
            one.add_message("k", "user", f"one {text}")
            two.add_message("k", "assistant", f"two {text}")
        _same(_live(one), ["one a", "two a", "one b", "two b"])
        one.truncate_history("k", 1)
        one.set_summary("k", "So far.")
        one.save("k")
        _same((_live(two), two.get_summary("k")), (["two b"], "So far."))


def a_conflict_is_seen_across_openings(open_store: Open) -> None:
    """``expect`` and ``id`` are checked against what is there, not what this opening knows."""
    with open_store() as one, open_store() as two:
        number = one.add_messages("k", [_user("a")], id="once")
        _same(two.add_messages("k", [_user("a")], id="once"), number)
        two.add_message("k", "user", "b")
        with _raises(Conflict):
            one.add_messages("k", [_user("c")], expect=number)
        _same((_live(one), _live(two)), (["a", "b"], ["a", "b"]))


def ids_of_the_other_are_known_however_the_writes_mix(open_store: Open) -> None:
    """Each may retry what the other wrote, with writes of its own before and between."""
    with open_store() as one, open_store() as two:
        for text in "abc":
            one.add_messages("k", [_user(text)], id=text)
            number = two.add_messages("k", [_user(text * 2)], id=text * 2)
            one.add_message("k", "user", "between")
            _same(one.add_messages("k", [_user(text * 2)], id=text * 2), number)
        _same(len(_live(one)), 9)


def archiving_and_deleting_are_seen_across_openings(open_store: Open) -> None:
    """Neither an archived nor a deleted session goes on in another opening."""
    with open_store() as one, open_store() as two:
        one.add_message("k", "user", "a")
        two.add_message("k", "user", "b")
        one.archive("k")
        two.add_message("k", "user", "c")
        _same((_live(one), _ever(one)), (["c"], ["a", "b", "c"]))
        two.delete("k")
        _same((one.exists("k"), _live(one), _ever(one)), (False, [], []))


def a_session_deleted_elsewhere_does_not_come_back(open_store: Open) -> None:
    """A process that still had it open may get an error once; then the key begins again."""
    with open_store() as one, open_store() as two:
        one.add_message("k", "user", "a")
        two.delete("k")
        with suppress(Conflict):
            one.add_message("k", "user", "b")
        one.add_message("k", "user", "c")
        _holds("a" not in _ever(two))
        _same(_live(two)[-1:], ["c"])


def other_names_are_known_across_openings(open_store: Open) -> None:
    """Also to an opening that has looked for the name before, and to one that comes later."""
    with open_store() as one, open_store() as two:
        one.add_message("k", "user", "a")
        _holds(not two.exists("other"))
        one.add_alias("k", "other")
        two.add_message("other", "user", "b")
        _same(_live(one), ["a", "b"])
    with open_store() as sessions:
        _same(_live(sessions, "other"), ["a", "b"])


def a_turn_is_held_by_one_at_a_time(open_store: Open) -> None:
    """Another opening cannot take it, under no name of the session, until it was given back."""
    with open_store() as one, open_store() as two:
        one.add_message("k", "user", "a")
        one.add_alias("k", "other")
        hold, other = one.hold("k"), two.hold("other")
        hold.take()
        with _raises(SessionBusy):
            other.take()
        two.hold("another").take()
        hold.close()
        other.take()
        other.close()


def a_turn_is_taken_over_from_another_opening(open_store: Open) -> None:
    """Its late holder stores nothing more, and the number goes on after reopening."""
    with open_store() as one, open_store() as two:
        lost, lease = one.hold("k"), two.hold("k")
        lost.take()
        one.add_messages("k", [_user("a")], lease=lost)
        lease.take_over()
        with _raises(LeaseLost):
            one.add_messages("k", [_user("b")], lease=lost)
        two.add_messages("k", [_user("c")], lease=lease)
        number = lease.number
        lease.close()
        lost.close()
    with open_store() as sessions:
        later = sessions.hold("k")
        later.take()
        sessions.add_messages("k", [_user("d")], lease=later)
        _same((later.number, _live(sessions)), (number, ["a", "c", "d"]))
        later.close()


def a_follower_sees_what_another_opening_writes(open_store: Open) -> None:
    """What is durable is given, in whichever opening it was written."""
    with open_store() as one, open_store() as two:
        one.add_message("k", "user", "a")
        entries = two.follow("k")
        said = (entry.data["content"] for entry in entries if entry.kind == "msg")
        _same(next(said, None), "a")
        one.add_messages("k", [_user("b"), _user("c")])
        _same((next(said, None), next(said, None)), ("b", "c"))
        entries.close()


def what_was_erased_is_not_there_after_reopening(open_store: Open) -> None:
    """Others who have the session open see the hole, too, and go on after it."""
    with open_store() as one, open_store() as two:
        n = one.add_message("k", "user", _WORDS, id="once")
        last = one.add_message("k", "user", "b" * 70_000)
        _same(len(_live(two)), 2)
        one.redact("k", n)
        one.redact("k", last)
        _same(_live(two), ["", ""])
        two.add_message("k", "user", "c")
        _same(_live(one), ["", "", "c"])
    with open_store() as sessions:
        _same((_live(sessions), _WORDS in _said(sessions), sessions.verify().ok), (["", "", "c"], False, True))
        _same(sessions.add_message("k", "user", _WORDS, id="once"), n)
        _same(_ever(sessions), ["", "", "c"])


REOPEN_CONTRACT: tuple[Check, ...] = _checks(after=STORE_CONTRACT)


# Stores that can search


def _found(sessions: Sessions, query: str, **narrowed: Any) -> list[str]:
    """The places that a search finds, sorted: which of equal messages comes first is not promised."""
    return sorted(f"{hit.key}@{hit.n}" for hit in sessions.search(query, **narrowed))


def a_search_finds_messages_with_all_its_words(open_store: Open) -> None:
    """Each is found where it is, also what was written after an earlier search."""
    with open_store() as sessions:
        n = sessions.add_message("k", "user", "the green pearl")
        (hit,) = sessions.search("PEARL green")
        _same((hit.key, hit.n, hit.role, hit.generation, hit.place), ("k", n, "user", "", f"k@{n}"))
        _holds("pearl" in hit.snippet and hit.ts == sessions.transcript("k")[0].ts)
        _same(_found(sessions, "pearl red"), [])
        later = sessions.add_message("k", "user", "a red pearl")
        _same((_found(sessions, "pearl red"), _found(sessions, "nothing")), ([f"k@{later}"], []))


def a_query_can_be_narrowed(open_store: Open) -> None:
    """By a phrase, a word that must not be there, a role, a tool, a session and a time."""
    call = ToolCall(id="c1", name="shell", arguments={"command": "pearl"})
    with open_store() as sessions:
        sessions.add_message("a:1", "user", "a green pearl")
        sessions.add_message("a:1", "assistant", "a pearl, green or red")
        sessions.add_message("b:1", "user", "pearl")
        sessions.add_full_message("b:1", Message(role="assistant", content="", tool_calls=(call,)))
        asked = {
            '"green pearl"': ["a:1@2"],
            "pearl -green": ["b:1@2", "b:1@3"],
            "pearl role:user": ["a:1@2", "b:1@2"],
            "pearl tool:shell": ["b:1@3"],
            "pearl session:a": ["a:1@2", "a:1@3"],
            "pearl since:1h session:a": ["a:1@2", "a:1@3"],
            "pearl until:2020-01-01": [],
        }
        for query, places in asked.items():
            _same((query, _found(sessions, query)), (query, places))


def a_search_gives_the_best_first(open_store: Open) -> None:
    """At most as many as are asked for; with ``fill`` those follow that have only some of the words."""
    with open_store() as sessions:
        sessions.add_message("k", "user", "needle " + "hay " * 200)
        sessions.add_message("k", "user", "needle")
        sessions.add_message("k", "user", "a haystack without")
        _same([hit.n for hit in sessions.search("needle")], [3, 2])
        _same([hit.n for hit in sessions.search("needle", limit=1)], [3])
        _same(sessions.search("needle", limit=0), [])
        _same(_found(sessions, "haystack needle wood"), [])
        _same(_found(sessions, "haystack needle wood", fill=True), ["k@2", "k@3", "k@4"])


def what_is_no_longer_live_is_found(open_store: Open) -> None:
    """Truncated and rewound messages, and those of archived generations, which are named; what was deleted is not."""
    with open_store() as sessions:
        first = _add(sessions, ["pearl one", "pearl two"])[0]
        sessions.rewind("k", first)
        sessions.truncate_history("k", 0)
        _same(_found(sessions, "pearl"), ["k@2", "k@3"])
        sessions.archive("k")
        _add(sessions, ["pearl three"])
        generation = sessions.transcript("k")[0].generation
        found = {(hit.n, hit.generation) for hit in sessions.search("pearl")}
        _same(found, {(2, generation), (3, generation), (2, "")})
        sessions.delete("k")
        _same(sessions.search("pearl"), [])


def a_search_can_be_of_some_sessions(open_store: Open) -> None:
    """Of those whose keys begin with a prefix, of one by any of its names, or without the end of one."""
    with open_store() as sessions:
        for key in ("a:1", "a:2", "b:1"):
            _add(sessions, ["pearl", "pearl"], key)
        sessions.add_alias("b:1", "other")
        _same(_found(sessions, "pearl", prefix="a:2"), ["a:2@2", "a:2@3"])
        _same(_found(sessions, "pearl", only="other"), ["b:1@2", "b:1@3"])
        _same(_found(sessions, "pearl", only="a:"), [])
        _same(_found(sessions, "pearl", prefix="\ud800"), [])
        _same(_found(sessions, "pearl", skip=("other", 3)), ["a:1@2", "a:1@3", "a:2@2", "a:2@3", "b:1@2"])
        _same(_found(sessions.within("a:"), "pearl"), ["a:1@2", "a:1@3", "a:2@2", "a:2@3"])
        _same(_found(sessions.within("a:"), 'pearl session:"b:1"'), [])


def internal_sessions_are_searched_only_if_asked_for(open_store: Open) -> None:
    """By ``internal``, or by the full key."""
    with open_store() as sessions:
        _add(sessions, ["pearl"])
        _add(sessions.with_internal_keys(), ["pearl"], "nacre:x")
        _same((_found(sessions, "pearl"), _found(sessions, "pearl session:nacre")), (["k@2"], []))
        _same(_found(sessions, 'pearl session:"nacre:x"'), ["nacre:x@2"])
        _same(_found(sessions, "pearl", internal=True), ["k@2", "nacre:x@2"])


def a_search_checks_its_arguments(open_store: Open) -> None:
    """A wrong one is refused; any text is a query."""
    bad: list[dict[str, Any]] = [
        {"limit": 1.5},
        {"limit": True},
        {"internal": 1},
        {"fill": "yes"},
        {"skip": "k"},
        {"skip": ("k", 1.0)},
        {"prefix": 7},
        {"only": b"k"},
        {"only": "a\x00b"},
        {"meaning": 0},
    ]
    with open_store() as sessions:
        _add(sessions, ["pearl"])
        for given in bad:
            with _raises(InvalidArgument):
                sessions.search("pearl", **given)
        with _raises(InvalidArgument):
            sessions.search(7)  # type: ignore[arg-type]
        for query in ("", "   ", '"', "role:", "-", "since:never", "\ud800", "*", "(a OR"):
            _same((query, sessions.search(query)), (query, []))


def an_erased_message_is_not_found(open_store: Open) -> None:
    """Not by a word of it either, in an active or an archived session; the others still are."""
    with open_store() as sessions:
        numbers = _add(sessions, ["a green pearl", "a red pearl"])
        _same(_found(sessions, "pearl"), ["k@2", "k@3"])
        sessions.redact("k", numbers[0])
        _same((_found(sessions, "pearl"), _found(sessions, "green")), (["k@3"], []))
        sessions.archive("k")
        _same(_found(sessions, "red"), ["k@3"])
        sessions.redact("k", numbers[1])
        _same(_found(sessions, "pearl"), [])


SEARCH_CONTRACT: tuple[Check, ...] = _checks(after=(*STORE_CONTRACT, *REOPEN_CONTRACT))


# Stores that are tidied up: trash, sizes, journals


def a_session_in_the_trash_comes_back_whole(open_store: Open) -> None:
    """It is gone from every list and read until then; every generation comes back to where it was."""
    with open_store() as sessions:
        _add(sessions, "a")
        sessions.archive("k")
        _add(sessions, "bc")
        sessions.set_meta("k", title="T")
        before = list(sessions.records("k"))
        sessions.move_to_trash("k")
        _same((sessions.exists("k"), list(sessions.list()), list(sessions.list(archived=True))), (False, [], []))
        (trashed,) = sessions.list_trash()
        _same((trashed.key, trashed.title, len(trashed.generations)), ("k", "T", 2))
        sessions.restore_from_trash(trashed.id)
        _same((list(sessions.records("k")), sessions.status("k"), sessions.list_trash()), (before, "active", []))


def one_generation_can_be_moved_to_the_trash(open_store: Open) -> None:
    """An archived one that is named; the others stay."""
    with open_store() as sessions:
        for text in "ab":
            _add(sessions, text)
            sessions.archive("k")
        _add(sessions, "c")
        first = sessions.transcript("k")[0].generation
        sessions.move_to_trash("k", generation=first)
        _same((_ever(sessions), [trashed.generations for trashed in sessions.list_trash()]), (["b", "c"], [(first,)]))
        with _raises(SessionNotFound):
            sessions.move_to_trash("k", generation=first)


def a_session_that_is_deleted_is_in_the_trash_no_more(open_store: Open) -> None:
    """Who deletes it wants nothing of it to be left."""
    with open_store() as sessions:
        for key in ("k", "other"):
            sessions.add_message(key, "user", "hello")
            sessions.move_to_trash(key)
        sessions.add_message("k", "user", "again")
        sessions.delete("k")
        _same([trashed.key for trashed in sessions.list_trash()], ["other"])


def what_is_erased_from_the_trash_is_gone(open_store: Open) -> None:
    """With its other names; what is not in the trash can be neither erased nor restored."""
    with open_store() as sessions:
        _add(sessions, "a")
        sessions.add_alias("k", "other")
        sessions.move_to_trash("k")
        (trashed,) = sessions.list_trash()
        sessions.erase_from_trash(trashed.id)
        _same((sessions.list_trash(), sessions.exists("other"), list(sessions.aliases("k"))), ([], False, []))
        for call in (sessions.restore_from_trash, sessions.erase_from_trash):
            with _raises(SessionNotFound):
                call(trashed.id)
        with _raises(SessionNotFound):
            sessions.move_to_trash("k")


def a_message_in_the_trash_can_be_erased(open_store: Open) -> None:
    """The session stays there, and comes back with the hole."""
    with open_store() as sessions:
        n = sessions.add_message("k", "user", _WORDS)
        sessions.move_to_trash("k")
        _same((sessions.redact("k", n).erased, sessions.exists("k")), ((n,), False))
        sessions.restore_from_trash(sessions.list_trash()[0].id)
        _same((_ever(sessions), _WORDS in _said(sessions), sessions.verify().ok), ([""], False, True))


def restoring_next_to_an_active_session_is_a_conflict(open_store: Open) -> None:
    """Neither is touched."""
    with open_store() as sessions:
        _add(sessions, "a")
        sessions.move_to_trash("k")
        _add(sessions, "b")
        with _raises(Conflict):
            sessions.restore_from_trash(sessions.list_trash()[0].id)
        _same((_ever(sessions), len(sessions.list_trash())), (["b"], 1))


def a_generation_says_how_its_log_is(open_store: Open) -> None:
    """The active one, or an archived one by its uid; what is not there is None."""
    with open_store() as sessions:
        _same(sessions.generation("k"), None)
        _add(sessions, "a")
        sessions.set_labels("k", pinned=True)
        uid, last = sessions.transcript("k")[0].generation, list(sessions.records("k"))[-1].ts
        active = sessions.generation("k")
        _same(active and (active.key, active.generation, active.pinned, active.updated), ("k", uid, True, last))
        _same(active and active.bytes, sessions.log_size("k"))
        _same((sessions.generation("k", uid), sessions.generation("k", "0" * 32)), (None, None))
        sessions.archive("k")
        archived = sessions.generation("k", uid)
        _same((sessions.generation("k"), archived and archived.generation), (None, uid))
        with _raises(InvalidArgument):
            sessions.generation("k", "no uid")


def the_room_that_sessions_take_is_known(open_store: Open) -> None:
    """Of the store, of each session that is asked for, and of what a compaction would keep."""
    with open_store() as sessions:
        sessions.add_messages("k", [_user("x" * 1000)] * 20)
        _add(sessions, "a", "small")
        sessions.truncate_history("k", 1)
        usage = sessions.disk_usage(["k", "small", "unknown"])
        _holds(usage.sessions["k"] >= sessions.log_size("k") > 20_000 > usage.sessions["small"] > 0)
        _same((usage.sessions["unknown"], usage.total), (0, sum(usage.folders.values())))
        _holds(usage.total >= usage.sessions["k"])
        _holds(0 < sessions.log_size("k", kept=True) < 5_000)
        _same((sessions.log_size("unknown"), sessions.log_size("unknown", kept=True)), (0, 0))
        _same((sessions.has_other_logs(["k"]), sessions.has_other_logs(["k", "small"])), (True, False))


def a_journal_keeps_its_lines(open_store: Open) -> None:
    """The last one is there when it is opened again; its name is made of small letters."""
    with open_store() as sessions:
        with sessions.journal("task") as journal:
            _same(journal.last(), b"")
            journal.add(b"one")
            journal.add(b"two")
        with sessions.journal("task") as journal, sessions.journal("other") as other:
            _same((journal.last(), other.last()), (b"two", b""))
        for wrong in ("", "Task", "../task", 7):
            with _raises(InvalidArgument):
                sessions.journal(wrong)  # type: ignore[arg-type]


def a_document_is_replaced_whole(open_store: Open) -> None:
    """The last one that was written is there, under its name alone; one that is set aside is empty afterwards."""
    with open_store() as sessions:
        document = sessions.document("feed-1")
        _same(document.read(), b"")
        for data in (b"a long one \0\xff", b"b"):
            document.write(data)
            _same((document.read(), sessions.document("feed-1").read()), (data, data))
        _same(sessions.document("feed-2").read(), b"")
        _holds(document.set_aside().endswith("unreadable"))
        _same(document.read(), b"")
        for wrong in ("", "Feed", "../feed", "a/b", 7):
            with _raises(InvalidArgument):
                sessions.document(wrong)  # type: ignore[arg-type]


def what_relies_on_a_lease_is_refused_once_it_is_lost(open_store: Open) -> None:
    """Of any session: nothing is appended, deleted or kept as a document; the new holder does all of that."""
    with open_store() as sessions:
        lost, lease = sessions.hold("k"), sessions.hold("k")
        lost.take()
        mine, its = sessions.with_internal_keys(held=lost), sessions.with_internal_keys(held=lease)
        lost.check()
        mine.append("other", "x.note", 1)
        mine.submit("other", [_user("a")]).result(timeout=30)
        mine.document("feed").write(b"mine")
        lease.take_over()
        number = sessions.snapshot("other").n
        acts: tuple[Callable[[Sessions], object], ...] = (
            lambda one: one.append("other", "x.note", 2),
            lambda one: one.submit("other", [_user("b")]).result(timeout=30),
            lambda one: one.document("feed").write(b"its"),
            lambda one: one.delete("other"),
        )
        for act in acts:
            with _raises(LeaseLost):
                act(mine)
        _same((sessions.snapshot("other").n, sessions.document("feed").read()), (number, b"mine"))
        for act in acts:
            act(its)
        _same((sessions.exists("other"), sessions.document("feed").read()), (False, b"its"))
        lease.close()
        for turn in (lost, lease):
            turn.close()
            with _raises(LeaseLost):
                turn.check()


UPKEEP_CONTRACT: tuple[Check, ...] = _checks(after=(*STORE_CONTRACT, *REOPEN_CONTRACT, *SEARCH_CONTRACT))


# Stores whose sessions are files


def a_log_tells_whose_it_is(open_store: Open) -> None:
    """Each file in the folder of the logs is of one session; any other file is of none."""
    with open_store() as sessions:
        _add(sessions, "a")
        _add(sessions, "a", "Other: one")
        folder = os.path.join(sessions.location, "sessions")  # noqa: PTH118 - a path is text here
        logs = [os.path.join(folder, file) for file in os.listdir(folder) if file.endswith(".jsonl")]  # noqa: PTH118, PTH208
        _same(sorted(str(sessions.key_of_file(log)) for log in logs), ["Other: one", "k"])
        _same(sessions.key_of_file(os.path.join(folder, "none~0.jsonl")), None)  # noqa: PTH118


def the_room_of_each_folder_is_known(open_store: Open) -> None:
    """The log of a session counts where it is: with the active ones, or in the archive."""
    with open_store() as sessions:
        _add(sessions, "a")
        size = sessions.log_size("k")
        _same(sessions.disk_usage().folders, dict.fromkeys(sessions.disk_usage().folders, 0) | {"sessions": size})
        sessions.archive("k")
        usage = sessions.disk_usage(["k"])
        _same((usage.folders["sessions"], usage.folders["archive"], usage.sessions), (0, size, {"k": size}))


FILES_CONTRACT: tuple[Check, ...] = _checks(
    after=(*STORE_CONTRACT, *REOPEN_CONTRACT, *SEARCH_CONTRACT, *UPKEEP_CONTRACT)
)


# The eight checks of the earlier systems


def earlier_round_trip(open_store: Callable[[], SessionStore]) -> None:
    """Two messages come back in order with their roles."""
    store = open_store()
    store.add_message("s1", "user", "hello")
    store.add_message("s1", "assistant", "hi")
    _same([(m.role, m.content) for m in store.get_history("s1")], [("user", "hello"), ("assistant", "hi")])
    store.close()


def earlier_tool_calls(open_store: Callable[[], SessionStore]) -> None:
    """A tool call keeps its id and name, and its result the id it answers."""
    store = open_store()
    call = ToolCall(id="tc1", name="read_file", arguments='{"path":"a.py"}')
    store.add_full_message("s1", Message(role="assistant", content="", tool_calls=(call,)))
    store.add_full_message("s1", Message(role="tool", content="print()", tool_call_id="tc1"))
    assistant, result = store.get_history("s1")
    _same([(c.id, c.name, c.arguments) for c in assistant.tool_calls], [("tc1", "read_file", '{"path":"a.py"}')])
    _same(result.tool_call_id, "tc1")
    store.close()


def earlier_summary(open_store: Callable[[], SessionStore]) -> None:
    """There is none, then one, then another."""
    store = open_store()
    store.add_message("s1", "user", "hello")
    _same(store.get_summary("s1"), "")
    store.set_summary("s1", "first")
    _same(store.get_summary("s1"), "first")
    store.set_summary("s1", "second")
    _same(store.get_summary("s1"), "second")
    store.close()


def earlier_truncate_and_save(open_store: Callable[[], SessionStore]) -> None:
    """What a truncation kept is there before and after saving."""
    store = open_store()
    for n in range(10):
        store.add_message("s1", "user", f"message {n}")
    store.truncate_history("s1", 3)
    _same(_live(store, "s1"), ["message 7", "message 8", "message 9"])
    store.save("s1")
    _same(_live(store, "s1"), ["message 7", "message 8", "message 9"])
    store.close()


def earlier_replacement(open_store: Callable[[], SessionStore]) -> None:
    """A history that is set replaces the one before it."""
    store = open_store()
    store.add_message("s1", "user", "old")
    store.set_history("s1", [_user("new 1"), Message(role="assistant", content="new 2")])
    _same(_live(store, "s1"), ["new 1", "new 2"])
    store.close()


def earlier_empty_session(open_store: Callable[[], SessionStore]) -> None:
    """A session nobody wrote is an empty list and an empty text, not an error."""
    store = open_store()
    _same((store.get_history("nobody"), store.get_summary("nobody")), ([], ""))
    store.close()


def earlier_isolation(open_store: Callable[[], SessionStore]) -> None:
    """Two sessions do not see each other."""
    store = open_store()
    store.add_message("s1", "user", "for one")
    store.add_message("s2", "user", "for two")
    store.set_summary("s1", "of one")
    _same((_live(store, "s1"), _live(store, "s2")), (["for one"], ["for two"]))
    _same((store.get_summary("s1"), store.get_summary("s2")), ("of one", ""))
    store.close()


def earlier_summarise_flow(open_store: Callable[[], SessionStore]) -> None:
    """Summary, truncation, save: the last four messages stay, and the conversation goes on."""
    store = open_store()
    for n in range(20):
        store.add_message("s1", "user" if n % 2 == 0 else "assistant", f"message {n}")
    store.set_summary("s1", "Sixteen messages.")
    store.truncate_history("s1", 4)
    store.save("s1")
    _same(_live(store, "s1"), ["message 16", "message 17", "message 18", "message 19"])
    store.add_message("s1", "user", "message 20")
    _same((_live(store, "s1")[-1:], store.get_summary("s1")), (["message 20"], "Sixteen messages."))
    store.close()


EARLIER_CONTRACT: tuple[EarlierCheck, ...] = _checks(
    after=(*STORE_CONTRACT, *REOPEN_CONTRACT, *SEARCH_CONTRACT, *UPKEEP_CONTRACT, *FILES_CONTRACT)
)
