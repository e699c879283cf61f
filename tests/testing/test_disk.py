"""The simulated disk: as the kernel when all goes well, and as bad as the kernel may be when it does not."""

from __future__ import annotations

import errno
import os
import random
import stat
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from nacre.storage.system import System
from nacre.testing import Disk, Fault, Killed, Process, WouldBlockForever, images

LOG = "/store/log"
APPEND = os.O_RDWR | os.O_CREAT | os.O_APPEND
FLAGS = (
    os.O_CREAT,
    os.O_CREAT | os.O_EXCL,
    os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW,
    os.O_CREAT | os.O_TRUNC,
    os.O_TRUNC,
    os.O_APPEND,
    os.O_DIRECTORY,
)


@pytest.fixture
def disk() -> Disk:
    """A disk with a durable, empty `/store`."""
    disk = Disk(seed=1)
    system = disk.process()
    system.mkdir("/store", 0o700)
    sync_names(system, "/")
    return disk


def sync_names(system: System, *paths: str) -> None:
    for path in paths:
        fd = system.open(path, os.O_RDONLY | os.O_DIRECTORY)
        system.fsync(fd)
        system.close(fd)


def start_log(system: System, data: bytes = b"", path: str = LOG) -> int:
    """A file whose name and bytes are durable."""
    fd = system.open(path, APPEND)
    if data:
        system.write(fd, data)
    system.fsync(fd)
    sync_names(system, os.path.dirname(path))  # noqa: PTH120 - a path of the simulated disk
    return fd


def after_power_cut(disk: Disk, budget: int = 200) -> list[Disk]:
    return list(images(disk.snapshot(), random.Random(7), budget))


def contents(disk: Disk, path: str = LOG, budget: int = 200) -> set[bytes | None]:
    return {held(image, path) for image in after_power_cut(disk, budget)}


def held(disk: Disk, path: str) -> bytes | None:
    try:
        return disk.read(path)
    except FileNotFoundError:
        return None


def names_left(disk: Disk, *paths: str) -> set[tuple[str, ...]]:
    """Which of these names each image has."""
    return {tuple(path for path in paths if held(image, path) is not None) for image in after_power_cut(disk)}


# A power cut and the bytes of a file


def test_unsynced_write_may_vanish_or_stay(disk: Disk) -> None:
    system = disk.process()
    system.write(start_log(system, b"old "), b"new")
    assert {b"old ", b"old new"} <= contents(disk)


def test_synced_write_is_in_every_image(disk: Disk) -> None:
    system = disk.process()
    fd = start_log(system, b"one ")
    system.write(fd, b"two ")
    system.fdatasync(fd)
    system.write(fd, b"three")
    assert all(content is not None and content.startswith(b"one two ") for content in contents(disk))


def test_settled_disk_has_one_image(disk: Disk) -> None:
    start_log(disk.process(), b"all of it")
    assert [image.read(LOG) for image in after_power_cut(disk)] == [b"all of it"]


def test_write_may_be_torn_at_every_byte(disk: Disk) -> None:
    system = disk.process()
    system.write(start_log(system), b"abcdef")
    assert {b"", b"a", b"ab", b"abc", b"abcd", b"abcde", b"abcdef"} <= contents(disk)


def test_size_may_grow_without_the_bytes(disk: Disk) -> None:
    system = disk.process()
    system.write(start_log(system, b"old "), b"new")
    assert b"old \0\0\0" in contents(disk, budget=0)


def test_any_subset_of_dirty_sectors_may_survive(disk: Disk) -> None:
    system = disk.process()
    system.write(start_log(system), b"x" * 1536)
    left = {tuple(content[at : at + 1] for at in (0, 512, 1024)) for content in contents(disk) if content}
    assert {(b"\0", b"x", b"\0"), (b"x", b"\0", b"x"), (b"\0", b"\0", b"x")} <= left


def test_later_write_may_reach_the_disk_before_an_earlier_one(disk: Disk) -> None:
    system = disk.process()
    fd = start_log(system)
    system.write(fd, b"a" * 512)
    system.write(fd, b"b" * 512)
    assert b"\0" * 512 + b"b" * 512 in contents(disk)


def test_unsynced_cut_may_be_undone(disk: Disk) -> None:
    system = disk.process()
    fd = start_log(system, b"keep, drop")
    system.ftruncate(fd, 4)
    assert contents(disk) == {b"keep", b"keep, drop", b"keep\0\0\0\0\0\0"}


def test_what_a_cut_took_does_not_come_back_inside_a_later_write(disk: Disk) -> None:
    system = disk.process()
    fd = start_log(system, b"x" * 1024)
    system.ftruncate(fd, 0)
    system.write(fd, b"y" * 2048)
    assert all(content is None or b"x" not in content for content in contents(disk) if len(content or b"") > 1024)


def test_clean_file_shares_its_bytes_with_every_image(disk: Disk) -> None:
    system = disk.process()
    start_log(system, b"large and old", "/store/other")
    system.write(start_log(system), b"new")
    before = disk.read("/store/other")
    assert all(image.read("/store/other") is before for image in after_power_cut(disk))


# A power cut and names


def test_name_may_be_lost_without_a_sync_of_its_directory(disk: Disk) -> None:
    system = disk.process()
    fd = system.open(LOG, APPEND)
    system.write(fd, b"synced")
    system.fsync(fd)
    assert contents(disk) == {None, b"synced"}


def test_name_may_survive_without_bytes(disk: Disk) -> None:
    system = disk.process()
    system.write(system.open(LOG, APPEND), b"unsynced")
    sync_names(system, "/store")
    assert {b"", b"unsynced"} <= contents(disk, budget=0)


def test_directory_may_be_lost_with_all_that_is_in_it(disk: Disk) -> None:
    system = disk.process()
    system.mkdir("/store/sessions", 0o700)
    start_log(system, b"synced", "/store/sessions/a")
    assert contents(disk, "/store/sessions/a") == {None, b"synced"}


def test_rename_within_a_directory_is_atomic(disk: Disk) -> None:
    system = disk.process()
    start_log(system, b"old")
    start_log(system, b"new", "/store/tmp")
    system.rename("/store/tmp", LOG)
    assert contents(disk) == {b"old", b"new"}
    assert names_left(disk, LOG, "/store/tmp") == {(LOG, "/store/tmp"), (LOG,)}


def test_rename_without_a_sync_of_the_file_may_leave_it_empty(disk: Disk) -> None:
    system = disk.process()
    start_log(system, b"old")
    system.write(system.open("/store/tmp", APPEND), b"new")
    system.rename("/store/tmp", LOG)
    sync_names(system, "/store")
    assert {b"", b"new"} <= contents(disk)
    assert b"old" not in contents(disk)


def test_rename_between_directories_leaves_either_name_or_both(disk: Disk) -> None:
    system = disk.process()
    start_log(system, b"moved")
    system.mkdir("/store/archive", 0o700)
    system.rename(LOG, "/store/archive/log")
    assert names_left(disk, LOG, "/store/archive/log") == {
        (LOG,),
        (LOG, "/store/archive/log"),
        ("/store/archive/log",),
    }


@pytest.mark.parametrize(
    ("synced", "left"),
    [("/store/archive", {("new",), ("old", "new")}), ("/store", {("new",)})],
)
def test_sync_of_one_directory_settles_its_side_of_a_rename(
    disk: Disk, synced: str, left: set[tuple[str, ...]]
) -> None:
    system = disk.process()
    start_log(system, b"moved")
    system.mkdir("/store/archive", 0o700)
    sync_names(system, "/store")
    system.rename(LOG, "/store/archive/log")
    sync_names(system, synced)
    short = {LOG: "old", "/store/archive/log": "new"}
    assert {tuple(short[name] for name in names) for names in names_left(disk, *short)} == left


def test_directory_moved_elsewhere_takes_its_files_along(disk: Disk) -> None:
    system = disk.process()
    disk.write_durable("/store/base/log", b"inside")
    disk.write_durable("/store/trash/other", b"")
    system.rename("/store/base", "/store/trash/base")
    left = names_left(disk, "/store/base/log", "/store/trash/base/log")
    assert left == {("/store/base/log",), ("/store/base/log", "/store/trash/base/log"), ("/store/trash/base/log",)}


def test_unlink_may_reach_the_disk_before_an_earlier_link_elsewhere(disk: Disk) -> None:
    system = disk.process()
    start_log(system, b"kept?")
    system.mkdir("/store/base", 0o700)
    sync_names(system, "/store")
    system.link(LOG, "/store/base/log")
    system.unlink(LOG)
    assert () in names_left(disk, LOG, "/store/base/log")


def test_changes_of_one_name_keep_their_order(disk: Disk) -> None:
    system = disk.process()
    start_log(system, b"a", "/store/a")
    system.rename("/store/a", "/store/b")
    system.rename("/store/b", "/store/c")
    assert {len(names) for names in names_left(disk, "/store/a", "/store/b", "/store/c")} == {1}


def test_hard_link_keeps_the_bytes(disk: Disk) -> None:
    system = disk.process()
    start_log(system, b"shared")
    system.link(LOG, "/store/base")
    sync_names(system, "/store")
    system.unlink(LOG)
    sync_names(system, "/store")
    (image,) = after_power_cut(disk)
    assert image.read("/store/base") == b"shared"
    assert image.process().stat("/store/base").st_nlink == 1


def test_links_are_counted_anew_in_each_image(disk: Disk) -> None:
    system = disk.process()
    start_log(system, b"shared")
    system.link(LOG, "/store/base")
    assert system.stat(LOG).st_nlink == 2
    assert {image.process().stat(LOG).st_nlink for image in after_power_cut(disk)} == {1, 2}


# Failed and lying syncs


def test_bytes_of_a_failed_sync_are_gone_though_a_retry_says_yes(disk: Disk) -> None:
    system = disk.process()
    fd = start_log(system, b"acked ")
    disk.fail(Fault(call="fdatasync"))
    system.write(fd, b"doomed")
    with pytest.raises(OSError, match="Input/output error"):
        system.fdatasync(fd)
    system.fdatasync(fd)
    assert disk.read(LOG) == b"acked doomed"
    assert next(iter(after_power_cut(disk))).read(LOG) == b"acked "


def test_bytes_after_a_failed_sync_stand_behind_a_hole(disk: Disk) -> None:
    system = disk.process()
    fd = start_log(system, b"acked ")
    disk.fail(Fault(call="fdatasync"))
    system.write(fd, b"doomed")
    with pytest.raises(OSError, match="Input/output error"):
        system.fdatasync(fd)
    system.write(fd, b" later")
    system.fdatasync(fd)
    assert contents(disk, budget=0) == {b"acked \0\0\0\0\0\0 later", b"acked doomed later"}


def test_failed_sync_may_have_written_some(disk: Disk) -> None:
    system = disk.process()
    fd = start_log(system, b"acked ")
    disk.fail(Fault(call="fsync"))
    system.write(fd, b"doomed")
    with pytest.raises(OSError, match="Input/output error"):
        system.fsync(fd)
    assert {b"acked ", b"acked doo", b"acked doomed"} <= contents(disk)


def test_bytes_written_again_after_a_failed_sync_are_safe(disk: Disk) -> None:
    system = disk.process()
    fd = start_log(system, b"acked ")
    disk.fail(Fault(call="fdatasync"))
    system.write(fd, b"doomed")
    with pytest.raises(OSError, match="Input/output error"):
        system.fdatasync(fd)
    system.ftruncate(fd, 6)
    system.write(fd, b"again")
    system.fdatasync(fd)
    assert contents(disk) == {b"acked again"}


def test_names_of_a_failed_directory_sync_wait_for_the_next(disk: Disk) -> None:
    system = disk.process()
    system.fsync(system.open(LOG, APPEND))
    disk.fail(Fault(call="fsync"))
    with pytest.raises(OSError, match="Input/output error"):
        sync_names(system, "/store")
    assert contents(disk) == {None, b""}
    sync_names(system, "/store")
    assert contents(disk) == {b""}


def test_lying_sync_makes_nothing_durable(disk: Disk) -> None:
    system = disk.process()
    fd = start_log(system)
    disk.fail(Fault(call="fdatasync", mode="lie"))
    system.write(fd, b"data")
    system.fdatasync(fd)
    assert b"" in contents(disk)


# Planned failures


def test_fault_strikes_the_nth_call_and_as_many_as_planned(disk: Disk) -> None:
    system = disk.process()
    fd = start_log(system)
    disk.fail(Fault(call="write", nth=2, count=2, errno=errno.EDQUOT))
    assert [outcome(lambda: system.write(fd, b"x")) for _ in range(4)] == [1, errno.EDQUOT, errno.EDQUOT, 1]


def test_star_counts_every_change_and_sync_but_no_reading(disk: Disk) -> None:
    system = disk.process()
    fd = start_log(system)
    disk.fail(Fault(call="*", nth=2, count=None))
    assert system.stat(LOG).st_size == system.fstat(fd).st_size == 0
    assert system.pread(fd, 9, 0) == b""
    system.write(fd, b"x")
    assert outcome(lambda: system.fdatasync(fd)) == outcome(lambda: system.unlink(LOG)) == errno.EIO
    disk.heal()
    system.unlink(LOG)


@pytest.mark.parametrize("call", ["open", "close", "pread", "fstat", "stat", "listdir", "flock", "unlock"])
def test_reading_calls_fail_by_name(disk: Disk, call: str) -> None:
    system = disk.process()
    fd = start_log(system)
    calls: dict[str, Callable[[], object]] = {
        "open": lambda: system.open(LOG, os.O_RDONLY),
        "close": lambda: system.close(fd),
        "pread": lambda: system.pread(fd, 1, 0),
        "fstat": lambda: system.fstat(fd),
        "stat": lambda: system.stat(LOG),
        "listdir": lambda: system.listdir("/store"),
        "flock": lambda: system.flock(fd, wait=False),
        "unlock": lambda: system.unlock(fd),
    }
    disk.fail(Fault(call=call, errno=errno.ENOLCK))
    assert outcome(calls[call]) == errno.ENOLCK


def test_short_write_and_read_do_half(disk: Disk) -> None:
    system = disk.process()
    fd = start_log(system)
    disk.fail(Fault(call="write", mode="short"))
    disk.fail(Fault(call="pread", mode="short"))
    assert system.write(fd, b"abcd") == 2
    assert system.write(fd, b"cd") == 2
    assert system.pread(fd, 4, 0) == b"ab"


def test_full_disk_takes_half_and_then_refuses(disk: Disk) -> None:
    system = disk.process()
    fd = start_log(system)
    disk.fail(Fault(call="write", mode="short", errno=errno.ENOSPC))
    assert [outcome(lambda: system.write(fd, b"abcd")) for _ in range(3)] == [2, errno.ENOSPC, 4]


def test_full_disk_stays_full(disk: Disk) -> None:
    system = disk.process()
    fd = start_log(system)
    disk.fail(Fault(call="*", mode="short", errno=errno.ENOSPC, count=None))
    outcomes = [outcome(lambda: system.write(fd, b"abcd")) for _ in range(3)]
    assert outcomes == [2, errno.ENOSPC, errno.ENOSPC]
    system.ftruncate(fd, 0)


def test_kill_in_a_write_leaves_half_of_it(disk: Disk) -> None:
    system = disk.process()
    fd = start_log(system)
    disk.fail(Fault(call="write", mode="kill"))
    with pytest.raises(Killed):
        system.write(fd, b"abcd")
    assert disk.read(LOG) == b"ab"


def test_kill_in_another_call_comes_before_it(disk: Disk) -> None:
    system = disk.process()
    start_log(system, b"still here")
    disk.fail(Fault(call="unlink", mode="kill"))
    with pytest.raises(Killed):
        system.unlink(LOG)
    assert disk.read(LOG) == b"still here"


# Processes


def test_kill_keeps_the_page_cache_and_drops_the_locks(disk: Disk) -> None:
    system, other = disk.process(), disk.process()
    fd = start_log(system)
    system.flock(fd, wait=True)
    system.write(fd, b"unsynced")
    system.kill()
    mine = other.open(LOG, APPEND)
    assert other.flock(mine, wait=True)
    assert other.pread(mine, 99, 0) == b"unsynced"
    assert b"" in contents(disk)


def test_killed_process_can_only_clean_up(disk: Disk) -> None:
    system = disk.process()
    fd = start_log(system)
    system.kill()
    system.unlock(fd)
    system.close(fd)
    for call in (lambda: system.stat("/nowhere"), lambda: system.mkdir("/store", 0o700), lambda: system.write(fd, b"")):
        with pytest.raises(Killed):
            call()


def test_lock_belongs_to_one_open_file_description(disk: Disk) -> None:
    system = disk.process()
    first, second = start_log(system), system.open(LOG, APPEND)
    assert system.flock(first, wait=False)
    assert system.flock(first, wait=True)
    assert not system.flock(second, wait=False)
    assert not system.share(second)
    system.unlock(second)
    assert not system.flock(second, wait=False)
    system.close(first)
    assert system.flock(second, wait=False)


def test_waiting_for_ever_is_an_error(disk: Disk) -> None:
    system, other = disk.process(), disk.process()
    system.flock(start_log(system), wait=True)
    with pytest.raises(WouldBlockForever):
        other.flock(other.open(LOG, APPEND), wait=True)


def test_clone_keeps_page_cache_and_what_is_pending(disk: Disk) -> None:
    system = disk.process()
    fd = start_log(system)
    system.write(fd, b"pending")
    twin = disk.clone()
    system.write(fd, b", more")
    assert twin.read(LOG) == b"pending"
    assert {b"", b"pen", b"pending"} <= contents(twin)


def test_clone_has_no_processes_no_locks_and_no_faults(disk: Disk) -> None:
    system = disk.process()
    system.flock(start_log(system), wait=True)
    disk.fail(Fault(call="*", count=None))
    other = disk.clone().process()
    fd = other.open(LOG, APPEND)
    assert other.flock(fd, wait=True)
    assert other.write(fd, b"x") == 1


# Hook, snapshots and determinism


def test_hook_sees_every_change_and_sync_before_it_happens(disk: Disk) -> None:
    system, calls = disk.process(), list[str]()
    disk.before = lambda call, arguments: calls.append(f"{call} {arguments[0]}")
    fd = start_log(system, b"x", "/store/tmp")
    system.ftruncate(fd, 0)
    system.fdatasync(fd)
    system.mkdir("/store/base", 0o700)
    system.link("/store/tmp", "/store/base/x")
    system.rename("/store/tmp", LOG)
    system.unlink(LOG)
    assert calls == [
        *("open /store/tmp", "write /store/tmp", "fsync /store/tmp", "fsync /store", "ftruncate /store/tmp"),
        *("fdatasync /store/tmp", "mkdir /store/base", "link /store/tmp", "rename /store/tmp", "unlink /store/log"),
    ]


def test_calls_that_change_nothing_do_not_tick(disk: Disk) -> None:
    system = disk.process()
    ticks = disk.ticks
    assert outcome(lambda: system.mkdir("/store", 0o700)) == errno.EEXIST
    assert outcome(lambda: system.unlink(LOG)) == errno.ENOENT
    assert outcome(lambda: system.rename(LOG, "/store/x")) == errno.ENOENT
    system.listdir("/store")
    assert disk.ticks == ticks


def test_hook_may_let_another_process_run(disk: Disk) -> None:
    system, other = disk.process(), disk.process()
    start_log(system)

    def steal(_call: str, _arguments: tuple[object, ...]) -> None:
        disk.before = None
        other.unlink(LOG)

    disk.before = steal
    assert outcome(lambda: system.unlink(LOG)) == errno.ENOENT


def test_snapshot_is_not_changed_by_what_comes_after(disk: Disk) -> None:
    system = disk.process()
    fd = start_log(system)
    system.write(fd, b"before")
    snapshot = disk.snapshot()
    system.write(fd, b"after")
    system.fsync(fd)
    system.unlink(LOG)
    found = {held(image, LOG) for image in images(snapshot, random.Random(7), 50)}
    assert {b"", b"before"} <= found
    assert not any(content is None or b"after" in content for content in found)


def test_images_are_distinct_and_settled(disk: Disk) -> None:
    system = disk.process()
    system.write(start_log(system), b"abc")
    system.rename(LOG, "/store/log2")
    found = [(held(image, LOG), held(image, "/store/log2")) for image in after_power_cut(disk)]
    assert len(found) == len(set(found))
    assert {len(after_power_cut(image)) for image in after_power_cut(disk)} == {1}


def test_one_seed_gives_one_history() -> None:
    assert history(seed=5) == history(seed=5)
    assert history(seed=5) != history(seed=6)


def history(seed: int) -> list[object]:
    disk = Disk(seed)
    system = disk.process()
    fd = system.open("/log", APPEND)
    seen: list[object] = []
    for _ in range(3):
        system.write(fd, system.random(16))
        seen += [system.now(), system.stat("/log").st_mtime_ns]
    return seen + [held(image, "/log") for image in images(disk.snapshot(), random.Random(seed), 20)]


def test_clone_goes_on_as_the_original_would(disk: Disk) -> None:
    disk.process().random(8)
    system, twin = disk.process(), disk.clone().process()
    assert [system.random(8), system.random(8)] == [twin.random(8), twin.random(8)]
    assert system.now() == twin.now()


# Planting


def test_planted_file_is_in_every_image(disk: Disk) -> None:
    disk.write_durable("/store/sessions/a", b"planted")
    assert contents(disk, "/store/sessions/a") == {b"planted"}


def test_planted_damage_keeps_the_inode(disk: Disk) -> None:
    system = disk.process()
    fd = start_log(system, b"good")
    system.write(fd, b"unsynced")
    disk.write_durable(LOG, b"rot")
    assert system.pread(fd, 99, 0) == b"rot"
    assert contents(disk) == {b"rot"}


# As the kernel


def test_process_answers_every_call_itself() -> None:
    calls = {name for name in vars(System) if not name.startswith("_")}
    assert calls <= set(vars(Process))


def test_stat_tells_what_kind_whose_and_when(disk: Disk) -> None:
    system = disk.process()
    fd = start_log(system)
    before = system.fstat(fd)
    system.write(fd, b"abc")
    after = system.stat(LOG)
    assert (after.st_mode, after.st_uid, after.st_size) == (stat.S_IFREG | 0o600, os.geteuid(), 3)
    assert (after.st_ino, after.st_dev) == (before.st_ino, before.st_dev)
    assert after.st_mtime_ns > before.st_mtime_ns
    assert system.stat("/store").st_mode == stat.S_IFDIR | 0o700


def test_unlinked_file_lives_on_for_who_has_it_open(disk: Disk) -> None:
    system = disk.process()
    fd = start_log(system, b"data")
    system.unlink(LOG)
    assert system.pread(fd, 4, 0) == b"data"
    assert system.fstat(fd).st_nlink == 0


def test_closed_descriptor_is_bad(disk: Disk) -> None:
    system = disk.process()
    fd = start_log(system)
    system.close(fd)
    assert outcome(lambda: system.pread(fd, 1, 0)) == outcome(lambda: system.close(fd)) == errno.EBADF


def test_descriptor_does_only_what_it_was_opened_for(disk: Disk) -> None:
    system = disk.process()
    start_log(system)
    reader, writer = system.open(LOG, os.O_RDONLY), system.open(LOG, os.O_WRONLY)
    assert outcome(lambda: system.write(reader, b"x")) == outcome(lambda: system.pread(writer, 1, 0)) == errno.EBADF
    assert outcome(lambda: system.ftruncate(reader, 0)) == errno.EINVAL


def test_root_cannot_be_renamed(disk: Disk) -> None:
    assert outcome(lambda: disk.process().rename("/", "/store/x")) == errno.EBUSY


@pytest.mark.parametrize("seed", range(40))
def test_random_calls_end_as_they_do_on_the_real_kernel(seed: int, root: Path) -> None:
    root.mkdir()
    disk = Disk()
    disk.process().mkdir("/store", 0o700)
    real = list(random_calls(System(), str(root), random.Random(seed)))
    simulated = list(random_calls(disk.process(), "/store", random.Random(seed)))
    assert simulated == real


def random_calls(system: System, top: str, rng: random.Random) -> Iterator[tuple[str, object]]:
    """Call at random on a few names, and tell how each call ended and what the tree then looks like."""
    paths = [f"{top}/{name}" for name in ("a", "b", "d", "d/a", "d/e", "d/e/a")]
    for _ in range(60):
        one, two = rng.choice(paths), rng.choice(paths)
        flags = rng.choice((os.O_RDWR, os.O_RDONLY)) | rng.choice(FLAGS)
        calls = (
            ("open", partial(scribble, system, one, flags, rng.randrange(9))),
            ("mkdir", partial(system.mkdir, one, 0o700)),
            ("rename", partial(system.rename, one, two)),
            ("link", partial(system.link, one, two)),
            ("unlink", partial(system.unlink, one)),
        )
        name, call = rng.choice(calls)
        ended = outcome(call)
        yield f"{name} {one[len(top) :]} {two[len(top) :]} {flags:o}", (ended, [look(system, path) for path in paths])


def scribble(system: System, path: str, flags: int, size: int) -> bytes:
    fd = system.open(path, flags)
    try:
        system.write(fd, b"x" * size)
        system.ftruncate(fd, size + 2)
        system.write(fd, b"y")
        return system.pread(fd, 99, 0)
    finally:
        system.close(fd)


def look(system: System, path: str) -> object:
    def seen() -> tuple[object, ...]:
        found = system.stat(path)
        directory = stat.S_ISDIR(found.st_mode)
        return (directory, sorted(system.listdir(path)) if directory else found.st_size, directory or found.st_nlink)

    return outcome(seen)


def outcome(call: Callable[[], object]) -> object:
    """What a call returns, or the number of the error it raises."""
    try:
        return call()
    except OSError as error:
        return error.errno


def test_a_byte_is_claimed_by_one_process_until_it_lets_go_or_is_killed(disk: Disk) -> None:
    one, other = disk.process(), disk.process()
    first = one.open("/lock", os.O_RDWR | os.O_CREAT)
    second = other.open("/lock", os.O_RDWR)
    assert (one.claim(first, 7), other.claim(second, 7), other.claim(second, 8)) == (0, -1, 0)
    assert (one.claimant(first, 7), other.claimant(second, 7)) == (0, -1)
    other.disclaim(second, 7)
    one.disclaim(first, 7)
    assert other.claim(second, 7) == 0
    other.kill()
    assert one.claim(first, 7) == 0
