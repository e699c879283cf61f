"""Bugs planted in the store on purpose: the simulated disk must catch every one of them."""

from __future__ import annotations

import errno
import logging
import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

import nacre
from nacre.records import Record, Rules, State
from nacre.storage import blobs, compaction, format, log, recovery, rewrite, session_files, transaction, view, writer
from nacre.storage.log import Log
from nacre.storage.paths import SessionPaths, settle_names, unlink_if_there, write_all
from nacre.storage.recovery import Tail
from nacre.storage.rewrite import Scratch
from nacre.storage.system import System
from nacre.storage.transaction import Batch
from nacre.storage.writer import LogWriter
from nacre.testing import Fault, Process
from tests.crash import simulation

Plant = Callable[[pytest.MonkeyPatch], None]
Campaign = Callable[[int], int]

MOST_SEEDS = 150
# Seeds that catch a bug which the first ones miss are tried first: each takes a second.
CATCHING = {"header_alone_counts": 50, "cold_file_not_flushed": 12}


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """No log lines: every crash that is recovered from would write some."""
    logging.disable()
    yield
    logging.disable(logging.NOTSET)
    simulation.blobs_from(0)


def failing_syncs(seed: int) -> int:
    """Fail every flush once, then go on working."""
    calls = ("fdatasync", "fsync")
    faults = (Fault(call=call, nth=nth, errno=errno.EIO) for call in calls for nth in range(1, 12))
    return simulation.failing_calls(seed, faults, budget=3)


def no_sync(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Process, "fdatasync", lambda self, fd: None)


def no_directory_sync(patch: pytest.MonkeyPatch) -> None:
    for module in (log, writer):
        patch.setattr(module, "settle_names", lambda system, folder: None)


def no_sync_before_rename(patch: pytest.MonkeyPatch) -> None:
    def install(self: Scratch) -> None:
        self._system.rename(self._place.scratch, self._place.log)

    patch.setattr(Scratch, "install", install)


def retried_flush(patch: pytest.MonkeyPatch) -> None:
    def flush(self: LogWriter) -> None:
        try:
            self._system.fdatasync(self._fd)
        except OSError:
            self._system.fdatasync(self._fd)
        self._named = True

    patch.setattr(LogWriter, "_flush_file", flush)


def torn_tail_kept(patch: pytest.MonkeyPatch) -> None:
    def mend(self: LogWriter, lines: Any, found: Tail) -> None:
        write_all(self._system, self._fd, b"\n")
        self._take_tail(found)
        self.size = lines.size + 1

    patch.setattr(LogWriter, "_mend", mend)


def newline_not_checked(patch: pytest.MonkeyPatch) -> None:
    """The next record is glued to what a crash left of the one before it."""

    def mend(self: LogWriter, lines: Any, found: Tail) -> None:
        self._take_tail(found)
        self.size = lines.size

    patch.setattr(LogWriter, "_mend", mend)


def checksum_not_checked(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(format, "is_intact", lambda line: line.startswith(format.START) and line.endswith(b'"}'))


def group_not_checked(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(recovery, "_is_complete", lambda group, good: True)


def states_not_redone(patch: pytest.MonkeyPatch) -> None:
    def relink(found: Tail, view: Any, rules: Rules) -> tuple[list[bytes], State]:
        kept = [piece for piece in found.kept if piece.record is not None]
        return [piece.raw + b"\n" for piece in kept], recovery.state_of(kept[-1].record if kept else found.before)

    patch.setattr(writer, "relink", relink)


def nothing_settled_before_building_on_it(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(LogWriter, "settle", lambda self: None)


def no_roll_back(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(LogWriter, "_roll_back", lambda self: None)


def roll_back_not_flushed(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(LogWriter, "_roll_back", lambda self: self._system.ftruncate(self._fd, self.size))


def no_rescue(patch: pytest.MonkeyPatch) -> None:
    def rescue(self: LogWriter, batch: Batch | None = None) -> None:
        self._poisoned = ""

    patch.setattr(LogWriter, "_rescue", rescue)


def cold_file_not_flushed(patch: pytest.MonkeyPatch) -> None:
    def append(system: System, *arguments: Any, **options: Any) -> compaction.Extent:
        fsync, system.fsync = system.fsync, lambda fd: None  # type: ignore[method-assign]
        try:
            return original(system, *arguments, **options)
        finally:
            system.fsync = fsync  # type: ignore[method-assign]

    original = compaction.append
    patch.setattr(compaction, "append", append)


def leftovers_in_the_cold_file_kept(patch: pytest.MonkeyPatch) -> None:
    def append(
        system: System, path: str, before: compaction.Extent, lines: Iterator[bytes], **options: Any
    ) -> compaction.Extent:
        extent = original(system, path, compaction.Extent(1 << 40, 0), lines, **options)
        return extent._replace(length=before.length + 1)

    original = compaction.append
    patch.setattr(compaction, "append", append)


def log_removed_before_the_rest(patch: pytest.MonkeyPatch) -> None:
    def rest(system: System, place: SessionPaths, *, upto: str) -> None:
        unlink_if_there(system, place.log)
        settle_names(system, place.folder)
        session_files.erase_rest(system, place, upto=upto)

    for module in (log, writer):
        patch.setattr(module, "erase_rest", rest)


def deletion_not_recorded(patch: pytest.MonkeyPatch) -> None:
    def erased(self: Log, expect: object = None) -> None:
        with self.writer.hold(create=False):
            session_files.erase_rest(self._system, self._place, upto="~")
            self.writer.remove()

    patch.setattr(Log, "erase", erased)


def header_alone_counts(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(LogWriter, "holds_session", property(lambda self: self.n > 0))
    patch.setattr(view, "examine_end", _without_openings)


def _without_openings(lines: Any, *, key: str, is_whole: bool = False) -> Tail:
    found = recovery.examine(lines, key=key)
    last = found.last
    if last is None or last.t != "open":
        return found
    note = Record(v=1, n=last.n, t="x.seen", ts=last.ts, st=last.st)
    return found._replace(kept=[found.kept[0]._replace(record=note)])


def scratch_written_in_place(patch: pytest.MonkeyPatch) -> None:
    """A rewrite that empties the log and fills it again, instead of a new file and a rename."""

    def install(self: LogWriter, new: rewrite.Successor) -> None:
        data = b"".join(new.lines)
        self._system.ftruncate(self._fd, 0)
        write_all(self._system, self._fd, data)
        self._system.fdatasync(self._fd)
        self.size = len(data)
        self._take(new.header, new.n, new.state)

    patch.setattr(LogWriter, "install", install)


def relaxed_batches_not_marked(patch: pytest.MonkeyPatch) -> None:
    def begun(self: Batch, view: Any, **rest: Any) -> None:
        original(self, view, **{**rest, "relaxed": False})

    original = Batch.__init__
    patch.setattr(Batch, "__init__", begun)


def relaxed_close_does_not_flush(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(LogWriter, "flush", lambda self: None)


def payload_links_not_settled(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(blobs, "settle_names", lambda system, folder: None)


def payload_not_flushed(patch: pytest.MonkeyPatch) -> None:
    def write(system: System, path: str, data: bytes) -> None:
        fd = system.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        write_all(system, fd, data)
        system.close(fd)

    patch.setattr(blobs, "_write", write)


def payload_kept_when_its_session_goes(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(blobs, "release", unlink_if_there)
    patch.setattr(blobs, "unused", lambda system, root: ())


def payload_of_one_session_only(patch: pytest.MonkeyPatch) -> None:
    """What another session shares is believed without a look at it."""
    patch.setattr(blobs, "_holds", lambda system, path, data: True)


PLANTED: Sequence[tuple[Plant, Campaign]] = (
    (no_sync, simulation.power_cuts),
    (no_directory_sync, simulation.power_cuts),
    (no_sync_before_rename, simulation.power_cuts),
    (retried_flush, failing_syncs),
    (torn_tail_kept, simulation.power_cuts),
    (newline_not_checked, simulation.power_cuts),
    (checksum_not_checked, simulation.flipped_bit),
    (group_not_checked, simulation.torn_batches),
    (states_not_redone, simulation.torn_batches),
    (nothing_settled_before_building_on_it, simulation.kills),
    (no_roll_back, simulation.refused_batches),
    (roll_back_not_flushed, simulation.refused_batches),
    (no_rescue, failing_syncs),
    (cold_file_not_flushed, simulation.power_cuts),
    (leftovers_in_the_cold_file_kept, simulation.power_cuts),
    (log_removed_before_the_rest, simulation.power_cuts),
    (deletion_not_recorded, simulation.power_cuts),
    (header_alone_counts, simulation.power_cuts),
    (scratch_written_in_place, simulation.power_cuts),
    (relaxed_batches_not_marked, simulation.relaxed_cuts),
    (relaxed_close_does_not_flush, simulation.relaxed_cuts),
    (payload_links_not_settled, simulation.power_cuts),
    (payload_not_flushed, simulation.power_cuts),
    (payload_kept_when_its_session_goes, simulation.power_cuts),
    (payload_of_one_session_only, simulation.power_cuts),
)


@pytest.mark.parametrize(("plant", "campaign_of"), PLANTED, ids=[plant.__name__ for plant, _ in PLANTED])
def test_planted_bug_is_caught(plant: Plant, campaign_of: Campaign, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    with pytest.raises((simulation.Violation, nacre.NacreError, AssertionError, OSError)):
        all(map(campaign_of, sorted(range(MOST_SEEDS), key=lambda seed: seed != CATCHING.get(plant.__name__))))


def test_lock_taken_on_a_log_that_was_replaced_meanwhile_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    assert simulation.two_writers() == ("a", "b", "c")
    monkeypatch.setattr(LogWriter, "_has_the_name", lambda self, found: True)
    assert simulation.two_writers() != ("a", "b", "c")


def test_a_log_that_is_not_looked_at_before_it_is_written_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    assert simulation.two_writers() == ("a", "b", "c")
    monkeypatch.setattr(LogWriter, "_is_as_known", lambda self: self.size >= 0)
    with pytest.raises((AssertionError, nacre.NacreError)):
        assert simulation.two_writers() == ("a", "b", "c")


def test_evicting_an_unflushed_handle_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    simulation.evicted_while_relaxed()
    monkeypatch.setattr(LogWriter, "flush", lambda self: None)
    with pytest.raises(simulation.Violation):
        simulation.evicted_while_relaxed()


def test_ids_lost_by_compaction_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    assert simulation.retried_after_compaction() == ("once",)
    monkeypatch.setattr(transaction.Ids, "window", lambda self, *_: {})
    assert simulation.retried_after_compaction() != ("once",)
