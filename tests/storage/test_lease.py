"""A turn that was taken over: in other processes, on disk, and after crashes and damage."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TypeVar

import psycopg
import pytest

import nacre
from nacre.history.session_state import RULES
from nacre.opening import holder_of
from nacre.records import Record, State, TakeOver, Transaction, View
from nacre.storage.file_store import FileStore
from nacre.storage.format import seal, unseal
from nacre.storage.locks import TurnLease
from nacre.storage.paths import SessionPaths
from nacre.storage.postgres.address import parse
from nacre.storage.system import System
from nacre.storage.view import fence_of
from nacre.testing import Disk, Fault
from tests.damage.lines import TIME, fields_of, resealed
from tests.paths import log_of
from tests.simulated import fail_after, opened, said, say

T = TypeVar("T")
HOLDER = """
import os, signal, sys, nacre
sessions = nacre.open(sys.argv[1])
lease = sessions.hold("k")
getattr(lease, sys.argv[2])()
if sys.argv[3:]:
    os.kill(os.getpid(), signal.SIGSTOP)
else:
    print(lease.number, flush=True)
    input()
try:
    print(sessions.add_messages("k", [{"role": "user", "content": "late"}], lease=lease), flush=True)
except nacre.LeaseLost as error:
    print("lost", flush=True)
"""


@contextmanager
def running(place: str, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-c", HOLDER, place, *arguments]
    with subprocess.Popen(command, stdin=-1, stdout=-1, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def line_of(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def expire(place: str) -> None:
    """Let the turns of killed holders be over: at once with files, in PostgreSQL when they were not renewed in time."""
    if place.startswith("postgresql:"):
        address = parse(place)
        with psycopg.connect(address.conninfo) as link:
            link.execute(f"UPDATE {address.schema}.leases SET until = now() - interval '1 second'".encode())  # noqa: S608 - our own name


def test_a_process_that_was_stopped_and_wakes_up_late_is_refused(lasting_place: str) -> None:
    with nacre.open(lasting_place) as sessions, running(lasting_place, "take", "stop") as stopped:
        sessions.add_message("k", "user", "a")
        assert os.WIFSTOPPED(os.waitpid(stopped.pid, os.WUNTRACED)[1])
        lease = sessions.hold("k")
        with pytest.raises(nacre.SessionBusy, match=rf"another process \((\S+ )?{stopped.pid}\)"):
            lease.take()
        lease.take_over()
        assert sessions.hold("k").holder() == os.getpid()
        stopped.send_signal(signal.SIGCONT)
        assert line_of(stopped) == "lost"
        sessions.add_messages("k", [{"role": "user", "content": "b"}], lease=lease)
        assert said(sessions) == ["a", "b"]


def test_who_has_taken_over_is_seen_by_a_third_process(lasting_place: str) -> None:
    with nacre.open(lasting_place) as sessions, running(lasting_place, "take") as first:
        assert line_of(first) == "0"
        with running(lasting_place, "take_over") as second:
            number = int(line_of(second))
            with pytest.raises(nacre.SessionBusy, match=rf"another process \((\S+ )?{second.pid}\)"):
                sessions.hold("k").take()
            assert sessions.hold("k").holder() == second.pid
        expire(lasting_place)
        lease = sessions.hold("k")
        lease.take()
        assert (lease.number or 0) >= number
        assert "lost" in first.communicate("\n")[0]
        assert said(sessions) == []


def test_what_a_killed_holder_had_is_free_at_once_or_in_a_database_when_it_has_expired(lasting_place: str) -> None:
    with nacre.open(lasting_place) as sessions:
        with running(lasting_place, "take_over") as killed:
            number = int(line_of(killed))
        expire(lasting_place)
        lease = sessions.hold("k")
        lease.take()
        assert (lease.number or 0) >= number
        sessions.add_messages("k", [{"role": "user", "content": "a"}], lease=lease)
        assert sessions.verify().ok


def test_who_has_a_turn_is_known_without_opening_a_store_of_files(root: Path) -> None:
    with nacre.open(root) as sessions, running(str(root), "take") as holder:
        assert line_of(holder) == "0"
        assert holder_of(str(root), "k") == sessions.hold("k").holder() == holder.pid


def test_a_turn_that_is_taken_over_while_it_is_taken_is_taken_as_it_is_then(root: Path) -> None:
    with nacre.open(root) as sessions:
        sessions.add_message("k", "user", "a")
        thief = sessions.hold("k")
        meanwhile = [thief.take_over, thief.close]
        place = SessionPaths.of(str(root), "k")

        def look() -> int:
            found = fence_of(System(), place)
            if meanwhile:
                meanwhile.pop(0)()
            return found

        lease = TurnLease(System(), place, fence=look)
        lease.take()
        assert (lease.number, meanwhile) == (3, [])
        assert holder_of(str(root), "k") == os.getpid()
        lease.close()
        assert holder_of(str(root), "k") == 0


def test_a_turn_whose_earlier_holder_still_has_its_byte_is_free(root: Path) -> None:
    with nacre.open(root) as sessions:
        stopped = sessions.hold("k")
        stopped.take()
        place, fences = SessionPaths.of(str(root), "k"), [0, 3, 3, 3]
        lease = TurnLease(System(), place, fence=lambda: fences.pop(0))
        lease.take()
        assert (lease.number, stopped.number) == (3, 0)
        lease.close()
        stopped.close()


@pytest.mark.parametrize("fence", [None, 7])
def test_a_take_over_that_another_was_faster_than_says_so(root: Path, fence: int | None) -> None:
    with nacre.open(root):
        place = SessionPaths.of(str(root), "k")
        faster = TurnLease(System(), place, fence=lambda: 7)
        faster.take()
        lease = TurnLease(System(), place, fence=lambda: 7, take_over=lambda _: fence)
        with pytest.raises(nacre.SessionBusy, match="session 'k' is in use by"):
            lease.take_over()
        assert lease.number is None
        faster.close()


def test_a_take_over_of_a_session_that_is_deleted_meanwhile_takes_nothing(root: Path) -> None:
    class Busy(FileStore):
        """A store in which somebody deletes the session before what was stored is read."""

        def read(self, key: str, get: Callable[[View], T]) -> T | None:
            self.delete(key)
            return super().read(key, get)

    with closing(Busy(str(root), rules=RULES)) as store:
        lease = store.hold("k")
        with pytest.raises(nacre.SessionBusy):
            lease.take_over()
        assert lease.number is None


def test_logs_without_a_take_over_have_no_byte_of_it(root: Path) -> None:
    with nacre.open(root) as sessions:
        lease = sessions.hold("k")
        lease.take()
        sessions.add_messages("k", [{"role": "user", "content": "a"}], lease=lease)
        lease.close()
        assert b"fence" not in log_of(root, "k").read_bytes()
        sessions.hold("k").take_over()
        sessions.add_message("k", "user", "b")
    assert [fields_of(line).get("fence") for line in log_of(root, "k").read_bytes().splitlines()] == [None, None, 3, 3]


@pytest.mark.parametrize("state", [State(7, 2, 2, 0, 0, 7, 3, 5), State(7, 2, 2, 0, 0, 7, 0, 5), State(h=1, br=3)])
def test_the_fence_is_written_after_the_branch_and_read_again(state: State) -> None:
    line = seal(Record(v=1, n=8, t="turn", ts=TIME, who="host 1", st=state))
    record = unseal(line[:-1])
    assert record is not None
    assert (record.st, record.who) == (state, "host 1")
    assert [part for part in fields_of(line) if part in ("st", "br", "fence")] == [
        part for part, is_there in (("st", True), ("br", state.br), ("fence", state.fence)) if is_there
    ]


def test_the_fence_is_known_after_a_rescue_a_repair_and_another_opening() -> None:
    disk = Disk()
    sessions = opened(disk)
    say(sessions, "a", "b")
    lost = sessions.hold("k")
    fail_after(disk, "write", Fault(call="fdatasync"))
    with pytest.raises(nacre.DurabilityUnknown):
        sessions._store.run("k", Transaction((TakeOver("host 1"),)))
    say(sessions, "c")
    sessions.repair("k")
    assert said(opened(disk)) == ["a", "b", "c"]
    assert opened(disk).read("k", lambda view: view.state.fence) == 4
    assert opened(disk).verify().ok
    assert lost.number is None


def test_a_record_in_doubt_before_a_take_over_may_be_lost_and_the_fence_stays(root: Path) -> None:
    with nacre.open(root) as sessions:
        sessions.add_message("k", "user", "a")
    log = log_of(root, "k")
    # One batch of which the first record is lost: the take-over is linked again.
    state = [2, 1, 1, 0, 0, 2]
    torn = {"v": 1, "n": 3, "tx": None, "t": "x.a", "ts": TIME, "data": 1, "st": state}
    turn = resealed(b'{"crc":""}', v=1, n=4, b=3, t="turn", ts=TIME, who="host 1", st=state, fence=4)
    log.write_bytes(log.read_bytes() + str(torn).encode() + b"\n" + turn)
    with nacre.open(root) as sessions:
        lease = sessions.hold("k")
        sessions.add_message("k", "user", "b")
        lease.take()
        assert lease.number == 4
        assert said(sessions) == ["a", "b"]


def test_a_damaged_log_can_still_be_held(root: Path) -> None:
    with nacre.open(root) as sessions:
        sessions.add_message("k", "user", "a")
        sessions.archive("k")
        for log in (root / "archive").iterdir():
            log.write_bytes(log.read_bytes().replace(b'"sid":"k"', b'"sid":"j"'))
        log_of(root, "other").mkdir(parents=True)
        for key in ("k", "other"):
            lease = sessions.hold(key)
            lease.take()
            assert lease.number == 0
            lease.close()


def test_what_has_a_number_and_no_key_is_no_lease(place: str) -> None:
    class Half:
        number = 0

    with nacre.open(place) as sessions, pytest.raises(nacre.InvalidArgument, match="lease must be"):
        sessions.append("k", "x.note", {}, lease=Half())  # type: ignore[arg-type]


class Reads(System):
    """Counts how often a file is read."""

    def __init__(self) -> None:
        self.count = 0

    def pread(self, fd: int, size: int, offset: int, /) -> bytes:
        self.count += 1
        return super().pread(fd, size, offset)


def test_a_turn_is_taken_without_reading_a_log_that_was_closed_to_keep_few_open(root: Path) -> None:
    system = Reads()
    with nacre.Sessions(FileStore(str(root), rules=RULES, system=system, max_open=1)) as sessions:
        say(sessions, "a")
        say(sessions, "b", key="other")
        thief = sessions.hold("k")
        thief.take_over()
        thief.close()
        say(sessions, "c", key="other")
        before = system.count
        lease = sessions.hold("k")
        lease.take()
        assert (lease.number, system.count) == (3, before)
        lease.close()


def test_a_turn_that_was_taken_over_elsewhere_while_its_log_was_closed_is_taken_with_the_new_fence(root: Path) -> None:
    with nacre.Sessions(FileStore(str(root), rules=RULES, max_open=1)) as sessions:
        say(sessions, "a")
        say(sessions, "b", key="other")
        with nacre.open(root) as others:
            thief = others.hold("k")
            thief.take_over()
            thief.close()
        lease = sessions.hold("k")
        lease.take()
        assert lease.number == 3
        lease.close()
