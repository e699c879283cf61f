"""The connection breaks before and after each round trip of every call: what the caller is told, and what is stored.

Each call is made on a session of its own, with the connection cut at the first round trip, then at the second, and so
on until it came through untouched. Afterwards another store looks at the database, past the proxy: what it finds must
be the session as it was, or as the same call without a fault has left it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any, Literal, NamedTuple

import pytest

import nacre
from nacre.errors import DurabilityUnknown
from tests.postgres.opened import create, numbers, opened, said, through
from tests.postgres.programs import wait_until
from tests.postgres.proxy import Proxy

When = Literal["before", "after"]
WHEN: tuple[When, ...] = ("before", "after")
PATIENCE = 20.0
LARGE = "x" * 100_000


def user(text: str) -> nacre.Message:
    return nacre.Message(role="user", content=text)


class Call(NamedTuple):
    """What is called with a key; `prepare` makes the session first."""

    act: Callable[[nacre.Sessions, str], object]
    prepare: Callable[[nacre.Sessions, str], object] = lambda sessions, key: sessions.add_message(key, "user", "a")


def nothing(sessions: nacre.Sessions, key: str) -> None:
    """The session is not there before."""


def prepare_many(sessions: nacre.Sessions, key: str) -> None:
    for text in "abc":
        sessions.add_message(key, "user", text)


def prepare_archived(sessions: nacre.Sessions, key: str) -> None:
    sessions.add_message(key, "user", "a")
    sessions.archive(key)


def prepare_fork(sessions: nacre.Sessions, key: str) -> None:
    prepare_many(sessions, key)
    sessions.fork(key, f"{key}-fork")


def prepare_trashed(sessions: nacre.Sessions, key: str) -> None:
    prepare_many(sessions, key)
    sessions.move_to_trash(key)


def trash_id(sessions: nacre.Sessions, key: str) -> str:
    return next(one.id for one in sessions.list_trash() if one.key == key)


def write_with_lease(sessions: nacre.Sessions, key: str) -> int:
    turn = sessions.hold(key)
    turn.take()
    number = sessions.append(key, "x.note", 1, lease=turn)
    turn.close()
    return number


def take_turn(sessions: nacre.Sessions, key: str) -> None:
    turn = sessions.hold(key)
    turn.take()
    sessions.append(key, "x.note", 1, lease=turn)


def take_over_turn(sessions: nacre.Sessions, key: str) -> None:
    turn = sessions.hold(key)
    turn.take_over()
    sessions.append(key, "x.note", 1, lease=turn)


# What is settled by itself: it may be told that it is stored, or that it is not, but never that this is unknown.
WRITES: dict[str, Call] = {
    "append": Call(lambda sessions, key: sessions.add_message(key, "user", "b")),
    "append a group": Call(lambda sessions, key: sessions.add_messages(key, [user("b"), user("c")])),
    "append with an id": Call(lambda sessions, key: sessions.add_messages(key, [user("b")], id="i")),
    "append with an id again": Call(
        lambda sessions, key: sessions.add_messages(key, [user("b")], id="i"),
        lambda sessions, key: sessions.add_messages(key, [user("b")], id="i"),
    ),
    "append with a number": Call(lambda sessions, key: sessions.add_messages(key, [user("b")], expect=2)),
    "append a payload": Call(lambda sessions, key: sessions.add_message(key, "user", LARGE)),
    "append a note": Call(lambda sessions, key: sessions.append(key, "x.note", {"stars": 5})),
    "submit": Call(lambda sessions, key: sessions.submit(key, [user("b")]).result(60)),
    "create": Call(lambda sessions, key: sessions.add_message(key, "user", "b"), nothing),
    "create with an id": Call(lambda sessions, key: sessions.add_messages(key, [user("b")], id="i"), nothing),
    "create with a number": Call(lambda sessions, key: sessions.add_messages(key, [user("b")], expect=0), nothing),
    "create with a payload": Call(lambda sessions, key: sessions.add_message(key, "user", LARGE), nothing),
    "create again": Call(lambda sessions, key: sessions.add_message(key, "user", "b"), prepare_archived),
    "set_meta": Call(lambda sessions, key: sessions.set_meta(key, {"color": "blue"})),
    "set_labels": Call(lambda sessions, key: sessions.set_labels(key, title="Shells", tags=["sea"], pinned=True)),
    "set_history": Call(lambda sessions, key: sessions.set_history(key, [user("b"), user("c")])),
    "set_summary": Call(lambda sessions, key: sessions.set_summary(key, "short")),
    "truncate_history": Call(lambda sessions, key: sessions.truncate_history(key, 1), prepare_many),
    "pop": Call(lambda sessions, key: sessions.pop(key), prepare_many),
    "clear": Call(lambda sessions, key: sessions.clear(key), prepare_many),
    "rewind": Call(lambda sessions, key: sessions.rewind(key, 2), prepare_many),
    "append to a fork": Call(
        lambda sessions, key: sessions.add_messages(f"{key}-fork", [user("b")], id="i"), prepare_fork
    ),
    "append with a lease": Call(write_with_lease),
    "take a turn": Call(take_turn),
    "take a turn over": Call(take_over_turn),
}
KNOWN = ("append", "append a group", "append with an id", "append with an id again", "append a payload", "set_meta")
# One transaction of several round trips: that it was cut while it was committed is told.
MOVES: dict[str, Call] = {
    "fork": Call(lambda sessions, key: sessions.fork(key, f"{key}-fork"), prepare_many),
    "archive": Call(lambda sessions, key: sessions.archive(key)),
    "unarchive": Call(lambda sessions, key: sessions.unarchive(key), prepare_archived),
    "delete": Call(lambda sessions, key: sessions.delete(key), prepare_fork),
    "redact": Call(lambda sessions, key: sessions.redact(key, 2), prepare_fork),
    "move_to_trash": Call(lambda sessions, key: sessions.move_to_trash(key), prepare_many),
    "restore_from_trash": Call(
        lambda sessions, key: sessions.restore_from_trash(trash_id(sessions, key)), prepare_trashed
    ),
    "erase_from_trash": Call(lambda sessions, key: sessions.erase_from_trash(trash_id(sessions, key)), prepare_trashed),
}
# They change nothing, and come through every single break.
READS: dict[str, Callable[[nacre.Sessions, str], object]] = {
    "get_history": lambda sessions, key: [one.content for one in sessions.get_history(key)],
    "snapshot": lambda sessions, key: sessions.snapshot(key).n,
    "transcript": said,
    "records": numbers,
    "last records": lambda sessions, key: [entry.n for entry in sessions.records(key, last=2)],
    "get_meta": lambda sessions, key: sessions.get_meta(key),
    "exists": lambda sessions, key: sessions.exists(key),
    "verify": lambda sessions, key: sessions.verify(key).ok,
    "list": lambda sessions, key: [one.key for one in sessions.list() if one.key == key],
    "search": lambda sessions, key: [hit.key for hit in sessions.search("pearl") if hit.key == key],
    "list_trash": lambda sessions, key: [one.key for one in sessions.list_trash() if one.key == key],
}


Opened = Callable[[], nacre.Sessions]


@pytest.fixture
def direct(database: str) -> Iterator[nacre.Sessions]:
    """The store, past the proxy."""
    with opened(create(database)) as sessions:
        yield sessions


@pytest.fixture
def open_cut(direct: nacre.Sessions, database: str, proxy: Proxy) -> Opened:
    """Opens the store through the proxy: always anew, so that a call has the same round trips each time."""
    # Notices to other processes are sent at any time, and may be lost.
    proxy.uncounted = b"notify"
    return lambda: opened(through(database, proxy.port), patience=PATIENCE)


def plan(proxy: Proxy, when: When, at: int) -> None:
    proxy.reset()
    (proxy.cut_before if when == "before" else proxy.cut_after)(at)


def dump(sessions: nacre.Sessions, key: str) -> object:
    """Everything that a caller can see of a session, its fork and its trash, without times and names that differ."""
    found: list[Any] = []
    for name in (key, f"{key}-fork"):
        entries = list(sessions.records(name))
        assert len({(entry.generation, entry.n) for entry in entries}) == len(entries)
        # A turn whose first claim was not answered is taken over from oneself.
        kinds = [entry.kind for entry in entries if entry.kind != "turn"]
        live = [message.content for message in sessions.get_history(name)]
        found += [sessions.status(name), kinds, said(sessions, name), live]
        found += [sessions.get_summary(name), sessions.get_meta(name)]
    return found, [one.key == key for one in sessions.list_trash()].count(True)


def cut_everywhere(
    call: Call, direct: nacre.Sessions, open_cut: Opened, proxy: Proxy, *, when: When, is_known: bool = False
) -> list[BaseException]:
    """Make a call with a cut at each of its round trips; returns what was raised, fails if what is stored is wrong."""
    raised: list[BaseException] = []
    call.prepare(direct, "model")
    before = dump(direct, "model")
    call.act(direct, "model")
    after = dump(direct, "model")
    for at in count(1):
        key = f"{when}-{is_known}-{at}"
        with open_cut() as cut:
            call.prepare(cut if is_known else direct, key)
            plan(proxy, when, at)
            allowed = [after]
            try:
                call.act(cut, key)
            except DurabilityUnknown as error:
                raised.append(error)
                allowed = [before, after]
            except nacre.StoreError as error:
                raised.append(error)
                allowed = [before]
            is_over = not proxy.faults
            proxy.reset()
        assert dump(direct, key) in allowed, (at, when, raised[-1:])
        if is_over:
            assert at > 1
            return raised
    raise AssertionError


@pytest.mark.parametrize("when", WHEN)
@pytest.mark.parametrize("name", WRITES)
def test_a_write_comes_through_every_break_and_is_stored_once(
    name: str, when: When, direct: nacre.Sessions, open_cut: Opened, proxy: Proxy
) -> None:
    assert cut_everywhere(WRITES[name], direct, open_cut, proxy, when=when) == []


@pytest.mark.parametrize("when", WHEN)
@pytest.mark.parametrize("name", KNOWN)
def test_so_does_one_whose_writer_knows_the_last_number(
    name: str, when: When, direct: nacre.Sessions, open_cut: Opened, proxy: Proxy
) -> None:
    assert cut_everywhere(WRITES[name], direct, open_cut, proxy, when=when, is_known=True) == []


@pytest.mark.parametrize("when", WHEN)
@pytest.mark.parametrize("name", MOVES)
def test_a_move_is_done_or_not_and_unknown_only_if_its_commit_was_cut(
    name: str, when: When, direct: nacre.Sessions, open_cut: Opened, proxy: Proxy
) -> None:
    raised = cut_everywhere(MOVES[name], direct, open_cut, proxy, when=when)
    assert [type(error) for error in raised] == [DurabilityUnknown]
    assert "is not known" in str(raised[0])


@pytest.mark.parametrize("when", WHEN)
@pytest.mark.parametrize("name", READS)
def test_a_read_comes_through_every_break(
    name: str, when: When, direct: nacre.Sessions, open_cut: Opened, proxy: Proxy
) -> None:
    get = READS[name]
    direct.add_messages("k", [user("a pearl"), user("b")])
    direct.set_meta("k", {"color": "blue"})
    expected = get(direct, "k")
    for at in count(1):
        with open_cut() as cut:
            plan(proxy, when, at)
            assert get(cut, "k") == expected, at
            if not proxy.faults:
                return


@pytest.mark.parametrize(("when", "at"), [(when, at) for when in WHEN for at in (1, 2, 3)])
def test_a_turn_is_given_back_or_may_be_taken_over(
    when: When, at: int, direct: nacre.Sessions, open_cut: Opened, proxy: Proxy
) -> None:
    with open_cut() as cut:
        turn, other = cut.hold("k"), direct.hold("k")
        turn.take()
        plan(proxy, when, at)
        turn.close()
        is_cut = bool(proxy.faults)
    try:
        other.take()
    except nacre.SessionBusy:
        # It expires by itself; whoever cannot wait takes it over.
        assert is_cut
        other.take_over()
    other.close()


def test_a_follower_sees_everything_once_although_its_connections_break(
    direct: nacre.Sessions, open_cut: Opened, proxy: Proxy
) -> None:
    direct.add_message("k", "user", "0")
    seen: list[object] = []
    with open_cut() as cut:

        def follow() -> None:
            for entry in cut.follow("k", after=1):
                seen.append(entry.data["content"])
                if entry.data["content"] == "9":
                    return

        follower = threading.Thread(target=follow, daemon=True)
        follower.start()
        for number in range(1, 10):
            wait_until(lambda: len(seen) == number, "the record before")  # noqa: B023 - called at once
            proxy.disconnect()
            direct.add_message("k", "user", str(number))
        follower.join(60)
        assert seen == [str(number) for number in range(10)]


@pytest.mark.parametrize(("when", "found"), [("before", ["a"]), ("after", ["a", "b"])])
def test_who_retries_with_the_id_of_what_is_unknown_has_it_once(
    when: When, found: list[object], direct: nacre.Sessions, database: str, proxy: Proxy
) -> None:
    proxy.uncounted = b"notify"
    with opened(through(database, proxy.port), patience=0.5) as cut:
        cut.add_message("k", "user", "a")
        cut.append("k", "x.note", 1)
        plan(proxy, when, 1)
        # Nobody can look afterwards what came of it.
        proxy.refuse()
        for later in range(2, 10):
            proxy.cut_before(later)
        with pytest.raises(DurabilityUnknown, match="retry with the same id"):
            cut.add_messages("k", [user("b")], id="i")
        proxy.reset()
        proxy.accept()
        assert said(direct, "k") == found
        assert cut.add_messages("k", [user("b")], id="i") == 4
        assert said(direct, "k") == ["a", "b"]
