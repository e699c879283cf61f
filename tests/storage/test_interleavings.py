"""Two processes at one key: whatever one does between two system calls of the other, it is as if one came first."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import nacre
from nacre.testing import Disk, Fault
from nacre.testing.disk import Killed
from nacre.testing.tree import Snapshot
from tests.erased import traces_on
from tests.interleaved import Rival, interrupted
from tests.simulated import ROOT, opened, say

BIG = "payload " + "x" * 70_000
Act = Callable[[nacre.Sessions], Any]


def answer(act: Callable[[], object]) -> object:
    """What came of a call, so that it can be compared."""
    try:
        return act()
    except (nacre.Conflict, nacre.SessionNotFound) as error:
        return type(error).__name__


def history(sessions: nacre.Sessions, key: str = "k") -> list[Any]:
    return [message.content for message in sessions.get_history(key)]


def transcript(sessions: nacre.Sessions, key: str = "k") -> list[Any]:
    return [entry.message.content for entry in sessions.transcript(key)]


def verify(sessions: nacre.Sessions) -> list[str]:
    return [finding.kind for finding in sessions.verify().findings]


def archived(sessions: nacre.Sessions) -> list[tuple[str, int]]:
    return [(info.key, info.messages) for info in sessions.list(archived=True)]


ACTS: dict[str, Act] = {
    "append": lambda sessions: say(sessions, "appended"),
    "archive": lambda sessions: sessions.archive("k"),
    "unarchive": lambda sessions: sessions.unarchive("k"),
    "delete": lambda sessions: sessions.delete("k"),
    "fork to it": lambda sessions: sessions.fork("source", "k"),
    "fork from it": lambda sessions: sessions.fork("k", "source 2"),
    "history": history,
    "transcript": transcript,
}
WRITES = [name for name in ACTS if name not in ("history", "transcript")]


def begin(state: str) -> Disk:
    """A disk with a session to fork from, and generations of the key `k`."""
    disk = Disk()
    sessions = opened(disk)
    say(sessions, "root", BIG, key="source")
    for at, step in enumerate(state.split()):
        match step:
            case "active":
                say(sessions, f"{at} {BIG}", f"{at} more")
            case "archived":
                say(sessions, f"{at} {BIG}", f"{at} more")
                sessions.archive("k")
            case "fork":
                sessions.fork("source", "k")
            case _:
                assert step == "nothing"
    return disk


def look(disk: Disk) -> tuple[object, ...]:
    """All that a new process finds; generations are in the order of their uids."""
    sessions = opened(disk)
    uids = list(dict.fromkeys(entry.generation for entry in sessions.transcript("k")))
    assert uids == sorted(uids)
    others = history(sessions, "source 2"), sessions.exists("source 2")
    return sessions.exists("k"), history(sessions), transcript(sessions), others


def in_turn(snapshot: Snapshot, first: Act, second: Act) -> tuple[object, ...]:
    disk = Disk(at=snapshot)
    one, other = opened(disk), opened(disk)
    return answer(lambda: first(one)), answer(lambda: second(other)), look(disk)


def interleave(snapshot: Snapshot, act: Act, rival: Act, at: int) -> tuple[tuple[object, ...], bool]:
    """What comes of an act that is interrupted before call `at`, and whether it makes that many calls."""
    disk = Disk(at=snapshot)
    sessions, process = interrupted(disk)
    other = opened(disk)
    waiting = Rival(lambda: answer(lambda: rival(other)))
    process.arm(at, waiting.try_to)
    first = answer(lambda: act(sessions))
    was_met = process.calls >= at
    result = (first, waiting.finish(), look(disk))
    opened(disk).delete("k")
    assert left_of(disk, "k") == []
    return result, was_met


def left_of(disk: Disk, name: str) -> list[str]:
    """Every file of a session, in whatever folder."""
    process = disk.process()
    folders = [folder for folder in process.listdir(ROOT) if "." not in folder]
    files = [f"{folder}/{file}" for folder in folders for file in process.listdir(f"{ROOT}/{folder}")]
    return [file for file in files if file.split("/")[1].startswith((f"{name}.", f"{name}~"))]


@pytest.mark.parametrize("state", ["archived", "archived active", "fork"])
@pytest.mark.parametrize("rival", ["archive", "unarchive", "delete"])
def test_what_is_moved_or_deleted_meanwhile_is_not_called_damage(rival: str, state: str) -> None:
    snapshot = begin(state).snapshot()
    at, goes_on = 1, True
    while goes_on:
        disk = Disk(at=snapshot)
        sessions, process = interrupted(disk)
        waiting = Rival(lambda disk=disk: answer(lambda: ACTS[rival](opened(disk))))  # type: ignore[misc]
        process.arm(at, waiting.try_to)
        assert verify(sessions) == [], f"{rival} before call {at}"
        goes_on = process.calls >= at
        at += 1


@pytest.mark.parametrize("state", ["archived archived", "archived active", "archived archived active"])
def test_a_session_whose_deletion_was_cut_short_is_unknown_everywhere(state: str) -> None:
    snapshot = begin(state).snapshot()
    nth, is_killed = 1, True
    while is_killed:
        disk = Disk(at=snapshot)
        disk.fail(Fault(call="unlink", nth=nth, mode="kill"))
        try:
            opened(disk).delete("k")
            is_killed = False
        except Killed:
            is_killed = True
        disk.heal()
        sessions = opened(disk)
        assert (archived(sessions), verify(sessions), sessions.exists("k")) == ([], [], False)
        assert transcript(sessions) == []
        say(sessions, "new")
        assert transcript(sessions) == ["new"]
        nth += 1
    assert nth > 2


@pytest.mark.parametrize("state", ["nothing", "archived", "archived active", "fork"])
@pytest.mark.parametrize("rival", WRITES)
@pytest.mark.parametrize("act", ACTS)
def test_two_processes_at_one_key_act_as_if_one_came_first(act: str, rival: str, state: str) -> None:
    snapshot = begin(state).snapshot()
    forwards = in_turn(snapshot, ACTS[act], ACTS[rival])
    second, first, found = in_turn(snapshot, ACTS[rival], ACTS[act])
    allowed = [forwards, (first, second, found)]
    # Whoever has the log open when it is deleted is told so, and nothing is done.
    deleted = in_turn(snapshot, ACTS["delete"], ACTS["history"])[2]
    allowed += [("Conflict", None, deleted)] if rival == "delete" else []
    allowed += [(None, "Conflict", deleted)] if act == "delete" else []
    at, goes_on = 1, True
    while goes_on:
        result, goes_on = interleave(snapshot, ACTS[act], ACTS[rival], at)
        assert result in allowed, f"{rival} before call {at} of {act}"
        at += 1


ERASED_TEXT = "what is erased while another process is at the session"


@pytest.mark.parametrize("act", ["append", "archive", "fork from it", "delete", "history", "transcript"])
def test_whatever_another_process_does_meanwhile_nothing_of_an_erased_message_stays(act: str) -> None:
    def make() -> Disk:
        disk = Disk()
        say(opened(disk), "one", ERASED_TEXT, "three")
        return disk

    for at in range(1, 400):
        disk = make()
        sessions, process = interrupted(disk)
        rival = Rival(lambda disk=disk: answer(lambda: ACTS[act](opened(disk))))  # type: ignore[misc]
        process.arm(at, rival.try_to)
        found = answer(lambda sessions=sessions: sessions.redact("k", 3))  # type: ignore[misc]
        calls = process.calls
        rival.finish()
        with opened(disk) as after:
            after.finish_redactions()
            assert verify(after) == []
            if act == "delete":
                assert not after.exists("k")
            else:
                assert transcript(after)[:3] == ["one", "", "three"]
            # A fork that was made in time shares it.
            if act != "fork from it":
                assert traces_on(disk, ERASED_TEXT, ROOT) == []
            elif isinstance(found, nacre.Redaction) and transcript(after, "source 2")[1]:
                assert traces_on(disk, ERASED_TEXT, ROOT) != []
        if calls < at:
            return
    pytest.fail("the series does not end")
