"""What is damaged is set aside and stays reported until somebody settles it."""

from __future__ import annotations

import errno
import os
import random
import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest

import nacre
from nacre.history.session_state import RULES
from nacre.messages import describe_quarantine
from nacre.records import AppendRecord, Operation, Record, Records, RecordStamp, Restore, Rules, State
from nacre.storage.file_store import FileStore
from nacre.storage.lines import Lines, Piece
from nacre.storage.locks import KeyLock
from nacre.storage.log import Log
from nacre.storage.paths import SessionPaths
from nacre.storage.quarantine import entries, set_aside, settle
from nacre.storage.system import System
from nacre.testing import Disk, Fault, Killed, images
from tests.paths import log_of
from tests.simulated import LOG, ROOT, interrupt, opened, said, say

Damage = Callable[[bytes], bytes]
GROUP = [{"role": "user", "content": f"member {i}"} for i in range(4)]


def flip(text: bytes) -> Damage:
    return lambda data: data.replace(text, bytes([text[0] ^ 1]) + text[1:])


def without(text: bytes) -> Damage:
    return lambda data: b"".join(line + b"\n" for line in data.split(b"\n")[:-1] if text not in line)


def doubled(text: bytes) -> Damage:
    return lambda data: b"".join((line + b"\n") * (1 + (text in line)) for line in data.split(b"\n")[:-1])


# The log is: header, "one", "two", "three", and a group of four.
DAMAGES: dict[str, Damage] = {
    "a bit of the last group": flip(b"member 2"),
    "a bit of the first record of the last group": flip(b"member 0"),
    "a bit of an acknowledged record": flip(b"two"),
    "a bit of the header": flip(b"open"),
    "a line that is gone": without(b'"two"'),
    "a line that is gone from the last group": without(b"member 1"),
    "a line that is there twice": doubled(b'"two"'),
    "a line that is none": lambda data: data + b"what is this?\n",
    "the newline at the end": lambda data: data[:-1] + b"\x0b",
    "zeros in the middle of the last group": lambda data: data.replace(b"member 1", b"\0" * 8),
    "everything": lambda _: b"",
}
TORN: dict[str, Damage] = {
    "the end of the last line": lambda data: data[:-9],
    "the last line": lambda data: data[: data.rindex(b"\n", 0, -1) + 1],
    "the end of the group's second line": lambda data: data[: data.index(b"member 1")],
    "zeros behind half a line": lambda data: data[:-9] + b"\0" * 512,
    "zeros instead of the last newline": lambda data: data[:-1] + b"\0" * 512,
    "zeros behind the last line": lambda data: data + b"\0" * 4096,
    "nothing but the last newline": lambda data: data[:-1],
}


def write(disk: Disk, *, durability: str = "commit") -> nacre.Sessions:
    sessions = opened(disk, durability=durability)  # type: ignore[arg-type]
    say(sessions, "one", "two", "three")
    sessions.add_messages("k", GROUP)
    return sessions


def spoil(disk: Disk, damage: Damage, path: str = LOG) -> None:
    before = disk.read(path)
    disk.write_durable(path, damage(before))
    assert disk.read(path) != before


def waits(disk: Disk) -> bool:
    """Whether a new process reports something of the session, alone and among all."""
    sessions = opened(disk)
    alone, among = sessions.verify("k"), sessions.verify()
    assert alone.ok == among.ok
    return not alone.ok


def read(disk: Disk) -> None:
    sessions = opened(disk)
    sessions.get_history("k")
    sessions.transcript("k")


def write_more(disk: Disk) -> None:
    say(opened(disk), "later", "and later")


def archive(disk: Disk) -> None:
    opened(disk).archive("k")


@pytest.mark.parametrize("name", DAMAGES)
@pytest.mark.parametrize("durability", ["commit", "relaxed"])
def test_damage_is_reported_until_it_is_settled(name: str, durability: str) -> None:
    disk = Disk()
    write(disk, durability=durability).close()
    spoil(disk, DAMAGES[name])
    assert waits(disk)
    for step in (read, write_more, read, archive, read, write_more):
        step(disk)
        assert waits(disk), step.__name__
    sessions = opened(disk)
    assert {finding.kind for finding in sessions.verify().findings} == {"quarantine"}
    assert describe_quarantine(sessions.quarantine("k"))
    sessions.discard("k")
    assert not waits(disk)
    assert opened(disk).quarantine() == []
    assert {entry.settled for entry in opened(disk).quarantine(settled=True)} <= {"discarded", "torn"}


@pytest.mark.parametrize("name", TORN)
def test_the_end_of_a_write_that_was_cut_short_is_kept_but_not_reported(name: str) -> None:
    disk = Disk()
    write(disk).close()
    spoil(disk, TORN[name])
    read(disk)
    write_more(disk)
    assert not waits(disk)
    assert {entry.settled for entry in opened(disk).quarantine("k", settled=True)} <= {"torn"}


@pytest.mark.parametrize("cut", range(1, 700, 3))
def test_no_prefix_of_a_log_is_reported_once_it_is_written_to(cut: int) -> None:
    disk = Disk()
    write(disk).close()
    spoil(disk, lambda data: data[:-cut])
    write_more(disk)
    assert not waits(disk)


@pytest.mark.parametrize("archived", [False, True])
@pytest.mark.parametrize("durability", ["commit", "relaxed"])
def test_restore_brings_back_every_whole_record_once_with_its_time(durability: str, *, archived: bool) -> None:
    disk = Disk()
    sessions = write(disk, durability=durability)
    sessions.append("k", "x.note", {"a": 1})
    sessions.submit("k", [GROUP[0], AppendRecord("use", {"prompt": 3}), GROUP[1], GROUP[3]]).result()
    before = {(one.message.content, one.n): one.ts for one in sessions.transcript("k")}
    sessions.close()
    last = disk.read(LOG).rindex(b"member 1")
    spoil(disk, lambda data: data[:last] + b"mamber 1" + data[last + 8 :])
    write_more(disk)
    if archived:
        archive(disk)
    sessions = opened(disk)
    (entry,) = sessions.quarantine("k")
    assert [(one.n, one.kind, one.text) for one in entry.records] == [
        (10, "msg", "member 0"),
        (11, "use", '{"prompt":3}'),
        (13, "msg", "member 3"),
    ]
    receipt = sessions.restore("k", entry.n)
    assert (receipt.entries, len(receipt.numbers)) == ((entry.n,), 3)
    back = [one for one in opened(disk).transcript("k") if one.restored_from is not None]
    assert [(one.message.content, one.restored_from) for one in back] == [("member 0", 10), ("member 3", 13)]
    assert [one.ts for one in back] == [before["member 0", 10], before["member 3", 13]]
    (note,) = sessions.records("k", "use")
    assert (note.data, note.restored_from) == ({"prompt": 3}, 11)
    assert said(opened(disk))[-3:] == ["and later", "member 0", "member 3"]
    assert not waits(disk)
    assert sessions.restore("k") == nacre.Settlement(key="k")
    assert sessions.restore("k", entry.n) == nacre.Settlement(key="k")
    assert len([one for one in opened(disk).transcript("k") if one.restored_from is not None]) == 2


def test_what_only_said_what_is_live_and_what_is_in_the_log_is_not_restored() -> None:
    disk = Disk()
    sessions = write(disk)
    sessions.set_history("k", GROUP[:2])
    sessions.close()
    spoil(disk, doubled(b'"two"'))
    spoil(disk, lambda data: data[: data.rindex(b"member 1")] + data[data.rindex(b"member 1") :].replace(b"1", b"0"))
    read(disk)
    sessions = opened(disk)
    assert sorted(one.text for entry in sessions.quarantine("k") for one in entry.records) == ["member 0", "two"]
    before = said(sessions)
    assert len(sessions.restore("k").numbers) == 1
    assert said(sessions) == [*before, "member 0"]
    assert not waits(disk)


def test_a_summary_and_meta_come_back_as_records_without_effect() -> None:
    disk = Disk()
    sessions = opened(disk)
    say(sessions, "one")
    sessions.set_meta("k", title="A title")
    sessions.set_summary("k", "a summary")
    sessions.close()
    spoil(disk, lambda data: data + data[: data.index(b"\n") + 1].join(data.split(b"\n")[2:4]) + b"\n")
    read(disk)
    spoil(disk, lambda data: data.replace(b'"title":"A', b'"title":"B'))
    sessions = opened(disk)
    sessions.repair("k")
    before = (said(sessions), sessions.get_summary("k"), sessions.get_meta("k"))
    sessions.restore("k")
    assert (said(sessions), sessions.get_summary("k"), sessions.get_meta("k")) == before
    assert not waits(disk)


def test_large_payloads_come_back_too() -> None:
    disk = Disk()
    sessions = opened(disk)
    say(sessions, "one")
    large = "x" * 100_000
    sessions.add_messages("k", [{"role": "user", "content": large}, GROUP[0]])
    sessions.close()
    spoil(disk, flip(b"member 0"))
    sessions = opened(disk)
    sessions.get_history("k")
    sessions.restore("k")
    assert said(sessions) == ["one", large]


def test_records_of_a_generation_without_a_log_come_back_in_the_active_session() -> None:
    disk = Disk()
    write(disk).close()
    spoil(disk, flip(b"member 2"))
    read(disk)
    disk.process().unlink(LOG)
    sessions = opened(disk)
    assert [finding.kind for finding in sessions.verify("k").findings] == ["quarantine"]
    assert len(sessions.restore("k").numbers) == 3
    assert said(opened(disk)) == ["member 0", "member 1", "member 3"]
    assert not waits(disk)


def test_nothing_is_begun_where_there_is_nothing_to_restore() -> None:
    disk = Disk()
    opened(disk).add_messages("k", GROUP[:1])
    spoil(disk, flip(b"member 0"))
    read(disk)
    disk.process().unlink(LOG)
    sessions = opened(disk)
    for n in (None, 1):
        assert sessions.restore("k", n) == nacre.Settlement(key="k")
        assert disk.process().listdir(f"{ROOT}/sessions") == []
        assert not sessions.verify().ok
    assert sessions.discard("k").entries == (1,)
    assert sessions.verify().ok


def test_restore_and_discard_of_what_is_not_there() -> None:
    disk = Disk()
    write(disk)
    sessions = opened(disk)
    for act in (sessions.restore, sessions.discard):
        assert act("k") == nacre.Settlement(key="k")
        with pytest.raises(nacre.SessionNotFound, match="entry 7"):
            act("k", 7)
        with pytest.raises(nacre.InvalidArgument):
            act("k", 0)
    with pytest.raises(nacre.InvalidKey):
        sessions.quarantine("")
    with pytest.raises(nacre.SessionNotFound):
        sessions.verify("another")


@pytest.mark.parametrize("lost", ["one", "two", "three", "member 0", "member 3"])
def test_counts_never_include_what_is_gone(lost: str) -> None:
    disk = Disk()
    sessions = write(disk)
    sessions.add_message("k", "user", "the last")
    sessions.close()
    spoil(disk, flip(f'{lost}"'.encode()))
    read(disk)
    sessions = opened(disk)
    sessions.fork("k", "fork")
    say(sessions, "later")
    for key in ("k", "fork"):
        (count,) = [info.messages for info in sessions.list(prefix=key)]
        assert count == sessions.snapshot(key).live == len(said(sessions, key)), key
    sessions.restore("k")
    sessions.truncate_history("k", 3)
    assert [info.messages for info in sessions.list(prefix="k")] == [len(said(sessions))]


@pytest.mark.parametrize("chosen", ["one", "all"])
def test_restore_killed_at_any_call_is_done_or_not_and_never_twice(chosen: str) -> None:
    nth = 0
    while True:
        nth += 1
        disk = damaged_twice()
        disk.fail(Fault(call="*", nth=nth, mode="kill"))
        try:
            opened(disk).restore("k", 1 if chosen == "one" else None)
            break
        except Killed:
            disk.heal()
        at_once = said(opened(disk.clone()))
        assert at_once[:4] == ["one", "two", "three", "later"]
        assert len(at_once) in ((4, 5) if chosen == "one" else (4, 7)), nth
        for image in [disk, *images(disk.snapshot(), random.Random(nth), 3)]:
            opened(image).restore("k")
            assert sorted(said(opened(image))[4:]) == ["member 0", "member 1", "member 3"], nth
            assert not waits(image)
    assert nth > 5


def damaged_twice() -> Disk:
    """A session with two entries: a group that lost one of two, and a group that lost one of three."""
    disk = Disk()
    sessions = opened(disk)
    say(sessions, "one", "two", "three")
    sessions.add_messages("k", GROUP[::3])
    sessions.close()
    spoil(disk, flip(b"member 0"))
    read(disk)
    sessions = opened(disk)
    say(sessions, "later")
    sessions.add_messages("k", GROUP[:3])
    sessions.close()
    spoil(disk, flip(b"member 2"))
    read(disk)
    return disk


@pytest.mark.parametrize("how", ["restore", "discard"])
def test_settling_that_fails_is_refused_and_leaves_the_report(how: str) -> None:
    disk = damaged_twice()
    sessions = opened(disk)
    disk.fail(Fault(call="fsync", count=None))
    with pytest.raises(nacre.StoreError):
        getattr(sessions, how)("k")
    disk.heal()
    getattr(opened(disk), how)("k")
    assert not waits(disk)


@pytest.mark.parametrize("how", ["restore", "discard"])
def test_settling_that_a_timeout_interrupts_raises_it_and_is_done_the_next_time(how: str) -> None:
    disk = damaged_twice()
    sessions = opened(disk)
    # A restore first writes the records, and then to the quarantine.
    interrupt(disk, *["write"] * (2 if how == "restore" else 1))
    with pytest.raises(TimeoutError):
        getattr(sessions, how)("k")
    assert waits(disk)
    getattr(sessions, how)("k")
    assert not waits(disk)
    assert len(said(opened(disk))) == (7 if how == "restore" else 4)


def test_an_entry_that_cannot_be_settled_is_refused_and_waits() -> None:
    disk = Disk()
    write(disk).close()
    spoil(disk, flip(b"two"))
    read(disk)
    sessions = opened(disk)
    before = said(sessions)
    disk.fail(Fault(call="write"))
    with pytest.raises(nacre.Refused, match="nothing was"):
        sessions.discard("k")
    assert waits(disk)
    assert sessions.discard("k").numbers == ()
    assert (said(sessions), waits(disk)) == (before, False)


def test_mending_killed_at_any_call_reports_each_thing_once() -> None:
    nth = 0
    while True:
        nth += 1
        disk = Disk()
        write(disk).close()
        spoil(disk, flip(b"member 2"))
        disk.fail(Fault(call="*", nth=nth, mode="kill"))
        try:
            opened(disk).repair("k")
            break
        except Killed:
            disk.heal()
        assert waits(disk)
        sessions = opened(disk)
        sessions.repair("k")
        assert sessions.restore("k").numbers == (5, 6, 7)
        assert said(sessions) == ["one", "two", "three", "member 0", "member 1", "member 3"]
    assert nth > 5


def test_a_kill_at_any_call_of_ordinary_work_is_not_reported() -> None:
    nth = 0
    while True:
        nth += 1
        disk = Disk()
        disk.fail(Fault(call="*", nth=nth, mode="kill"))
        try:
            write(disk)
            opened(disk).archive("k")
            say(opened(disk), "anew")
            break
        except Killed:
            disk.heal()
        after = disk.clone()
        assert {finding.kind for finding in opened(after).verify().findings} <= {"torn"}, nth
        say(opened(after), "after")
        assert opened(after).verify().ok, nth
    assert nth > 20


# ---- emptied logs


def test_an_emptied_archived_log_is_reported_noted_by_repair_and_settled() -> None:
    disk = Disk()
    sessions = write(disk)
    uid = sessions.transcript("k")[0].generation
    sessions.archive("k")
    path = SessionPaths.of(ROOT, "k", archived=uid).log
    spoil(disk, lambda _: b"", path)
    assert [finding.kind for finding in opened(disk).verify("k").findings] == ["emptied"]
    say(opened(disk), "anew")
    assert [finding.kind for finding in opened(disk).verify("k").findings] == ["emptied"]
    assert opened(disk).repair("k").set_aside == 1
    assert [(entry.kind, entry.generation) for entry in opened(disk).quarantine()] == [("emptied", uid)]
    assert waits(disk)
    opened(disk).discard("k")
    assert not waits(disk)


def test_an_emptied_log_stays_reported_when_another_takes_its_place() -> None:
    disk = Disk()
    sessions = write(disk)
    sessions.archive("k")
    say(opened(disk), "anew")
    spoil(disk, lambda _: b"")
    opened(disk).unarchive("k")
    assert [entry.kind for entry in opened(disk).quarantine("k")] == ["emptied"]
    assert said(opened(disk))[0] == "one"


def test_an_emptied_log_stays_reported_when_a_fork_begins_in_it() -> None:
    disk = Disk()
    sessions = write(disk)
    say(sessions, "gone", key="new")
    spoil(disk, lambda _: b"", str(log_of(ROOT, "new")))
    opened(disk).fork("k", "new")
    assert said(opened(disk), "new") == said(sessions)
    assert [(entry.key, entry.kind) for entry in opened(disk).quarantine()] == [("new", "emptied")]


def test_a_first_write_that_is_refused_is_not_taken_for_a_loss() -> None:
    disk = Disk()
    disk.fail(Fault(call="write", mode="short"))
    disk.fail(Fault(call="write", nth=2))
    disk.fail(Fault(call="ftruncate"))
    with pytest.raises(nacre.StoreError):
        say(opened(disk), "one")
    disk.heal()
    say(opened(disk), "one")
    assert not waits(disk)


def test_a_write_that_is_refused_does_not_make_an_emptied_log_forgotten() -> None:
    disk = Disk()
    write(disk).close()
    spoil(disk, lambda _: b"")
    with pytest.raises(nacre.Conflict):
        opened(disk).add_messages("k", GROUP, expect=9)
    assert waits(disk)


# ---- the quarantine file itself


def quarantine_file(disk: Disk) -> str:
    (name,) = disk.process().listdir(f"{ROOT}/quarantine")
    return f"{ROOT}/quarantine/{name}"


@pytest.mark.parametrize("bit", [0, 4])
def test_damage_of_the_quarantine_file_is_reported_too(bit: int) -> None:
    disk = Disk()
    sessions = opened(disk)
    sessions.add_messages("k", [{"role": "user", "content": "a"}, {"role": "user", "content": "b"}])
    spoil(disk, flip(b'"a"'))
    read(disk)
    path = quarantine_file(disk)
    whole = disk.read(path)
    for place in range(len(whole)):
        disk.write_durable(path, whole[:place] + bytes([whole[place] ^ 1 << bit]) + whole[place + 1 :])
        assert waits(disk), place
    for end in range(1, len(whole)):
        disk.write_durable(path, whole[:end])
        assert waits(disk), end
    sessions = opened(disk)
    numbers = [entry.n for entry in sessions.quarantine("k")]
    assert len(set(numbers)) == len(numbers)
    sessions.discard("k", numbers[0])
    assert [entry.n for entry in opened(disk).quarantine("k")] == numbers[1:]
    sessions.discard("k")
    assert not waits(disk)


def test_entries_of_earlier_versions_are_reported_and_restored() -> None:
    disk = Disk()
    sessions = write(disk)
    uid = sessions.transcript("k")[0].generation
    lines = disk.read(LOG).split(b"\n")
    sessions.close()
    spoil(disk, flip(b"member 2"))
    read(disk)
    old = [
        b'{"kind":"torn or rotten","off":1,"len":2,"crc":"0ffa5a42","ts":"2026-11-15T18:00:00.000Z","raw":"{}"}',
        b'{"kind":"rotten","off":9,"len":1,"crc":"00000000","ts":"2026-11-15T18:00:00.000Z","raw":"x"}',
        b'{"kind":"rotten","off":9,"len":1,"crc":"ff000000","ts":"never","b64":"/w=="}',
        b"[]",
    ]
    path = quarantine_file(disk)
    assert uid in path
    disk.write_durable(path, b"\n".join(old) + b"\n" + disk.read(path))
    assert len(lines) > 7
    found = opened(disk).quarantine("k")
    assert [entry.n for entry in found] == [1, 2, 3, 4, 5]
    assert [len(entry.records) for entry in found] == [3, 0, 0, 0, 0]
    assert len(opened(disk).restore("k").numbers) == 3
    assert not waits(disk)


def test_records_of_a_later_format_and_bytes_that_are_no_text_stay_as_they_are() -> None:
    disk = Disk()
    write(disk).close()
    body = b'{"v":2,"n":9,"t":"msg","ts":"2026-11-15T18:00:00.000Z","st":[0,0,0,0,0,0]'
    later = b'%b,"crc":"%08x"}' % (body, crc32(body))
    place, uid = SessionPaths.of(ROOT, "k"), opened(disk).transcript("k")[0].generation
    process = disk.process()
    for at, raw in enumerate((later, b"\xff\xfe")):
        fd = process.open("/bytes", os.O_RDWR | os.O_CREAT | os.O_TRUNC)
        process.write(fd, raw)
        set_aside(process, place, uid, Lines(process, fd, len(raw)), [Piece(0, len(raw), raw, None)], reason=f"{at}")
    first, second = opened(disk).quarantine("k")
    assert (first.records, first.kind, first.text.encode()) == ((), "0", later)
    assert (second.records, second.bytes, second.text) == ((), 2, "\ufffd\ufffd")
    settle(process, place, uid, [1, 2], "discarded")
    before = disk.read(place.quarantine(uid))
    settle(process, place, uid, [1, 2], "discarded")
    assert disk.read(place.quarantine(uid)) == before
    assert entries(process, place, "0" * 32) == []
    assert not waits(disk)


def test_what_the_rules_refuse_is_not_restored_and_stays_reported() -> None:
    disk = damaged_twice()

    def refuse(operation: Operation, stamp: RecordStamp, state: State, view: Records) -> Record | None:
        if isinstance(operation, Restore):
            raise nacre.InvalidMessage("not today")
        return RULES.apply(operation, stamp, state, view)

    sessions = nacre.Sessions(FileStore(ROOT, rules=Rules(apply=refuse, replay=RULES.replay), system=disk.process()))
    with pytest.raises(nacre.InvalidMessage, match="not today"):
        sessions.restore("k")
    assert len(opened(disk).quarantine("k")) == 2


def test_entries_of_earlier_versions_take_the_key_from_the_log() -> None:
    disk = Disk()
    sessions = opened(disk)
    keys = ("A B", "C D", "E F")
    for key in keys:
        say(sessions, "one", key=key)
    uids = {key: sessions.transcript(key)[0].generation for key in keys}
    sessions.archive("C D")
    disk.process().unlink(SessionPaths.of(ROOT, "E F").log)
    old = b'{"kind":"rotten","off":1,"len":1,"crc":"8cdc1683","ts":"2026-11-15T18:00:00.000Z","raw":"x"}\n'
    for key in keys:
        disk.write_durable(SessionPaths.of(ROOT, key).quarantine(uids[key]), old)
    disk.write_durable(f"{ROOT}/quarantine/README", b"not ours")
    names = [entry.key for entry in opened(disk).quarantine()]
    assert names == ["A B", "C D", SessionPaths.of(ROOT, "E F").name]


@pytest.mark.parametrize("error", [FileNotFoundError, PermissionError])
def test_a_quarantine_file_that_goes_or_cannot_be_read(error: type[OSError]) -> None:
    disk = damaged_twice()

    class Away(System):
        """The files of a disk, of which those in quarantine cannot be looked at."""

        def __getattribute__(self, name: str) -> Any:
            return object.__getattribute__(self, name) if name in {"stat", "__class__"} else getattr(process, name)

        def stat(self, path: str) -> os.stat_result:
            if "/quarantine/" in path:
                raise error(errno.EACCES, "not now", path)
            return process.stat(path)

    process = disk.process()
    sessions = nacre.Sessions(FileStore(ROOT, rules=RULES, system=Away()))
    if error is FileNotFoundError:
        assert sessions.quarantine("k") == []
    else:
        assert [entry.kind for entry in sessions.quarantine("k")] == ["unreadable"]
        with pytest.raises(nacre.StoreError, match="cannot be read"):
            sessions.discard("k")


# ---- what it costs, and what it leaves


class Opens(System):
    """Counts what is opened."""

    def __init__(self) -> None:
        self.paths: list[str] = []

    def open(self, path: str, flags: int, mode: int = 0o600) -> int:
        self.paths.append(path)
        return super().open(path, flags, mode)


def test_to_ask_for_all_opens_no_log_and_reads_each_quarantine_file_once(root: Path) -> None:
    with nacre.open(root) as sessions:
        for i in range(20):
            sessions.add_message(f"chat {i}", "user", "hello")
            sessions.add_messages(f"chat {i}", GROUP)
        for i in (3, 7):
            log = log_of(root, f"chat {i}")
            log.write_bytes(flip(b"member 2")(log.read_bytes()))
            sessions.get_history(f"chat {i}")
    system = Opens()
    sessions = nacre.Sessions(FileStore(os.fspath(root), rules=RULES, system=system))
    for _ in range(2):
        assert [entry.key for entry in sessions.quarantine()] == ["chat 3", "chat 7"]
    assert [Path(path).parent.name for path in system.paths] == ["quarantine", "quarantine"]


def test_deleting_a_session_ends_its_report_and_that_of_no_other(root: Path) -> None:
    with nacre.open(root) as sessions:
        for key in ("one", "two"):
            sessions.add_message(key, "user", "hello")
            sessions.add_messages(key, GROUP)
            log = log_of(root, key)
            log.write_bytes(flip(b"member 2")(log.read_bytes()))
            sessions.get_history(key)
        sessions.delete("one")
        assert [entry.ref for entry in sessions.quarantine()] == ["two#1"]


def test_a_store_whose_quarantine_cannot_be_read_says_so(root: Path) -> None:
    with nacre.open(root) as sessions:
        sessions.add_message("k", "user", "hello")
        (root / "quarantine").write_text("a file")
        with pytest.raises(nacre.StoreError, match="quarantine"):
            sessions.quarantine()


# ---- files that no repair changes


def rot(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 4
    path.write_bytes(data)


@pytest.mark.parametrize("folder", ["cold", "base", "blobs"])
def test_damage_that_cannot_be_repaired_is_settled_by_a_person_and_new_damage_is_not(root: Path, folder: str) -> None:
    with nacre.open(root) as sessions:
        sessions.add_message("k", "user", "x" * 70_000)
        for at in range(3000):
            sessions.add_message("k", "user", f"message {at} " * 9)
        if folder == "cold":
            sessions.truncate_history("k", 1)
            sessions.save("k")
        elif folder == "base":
            sessions.fork("k", "child")
        key = "child" if folder == "base" else "k"
        # Payloads are found under two names of one file.
        (first, *_) = sorted((root / folder).iterdir())
        before = first.read_bytes()
        rot(first)
        found = [finding.kind for finding in sessions.verify(key).findings]
        assert found
        assert "quarantine" not in found
        for _ in range(2):
            sessions.repair(key)
            assert {finding.kind for finding in sessions.verify(key).findings} == {"quarantine"}
        sessions.discard(key)
        assert sessions.verify(key).ok
        sessions.repair(key)
        assert sessions.verify(key).ok
        if folder != "blobs":
            # Another place is another loss.
            data = bytearray(before)
            data[len(data) // 4] ^= 4
            first.write_bytes(data)
            assert not sessions.verify(key).ok


# ---- what a restore that fails says


def test_a_restore_that_stored_its_records_is_never_called_refused() -> None:
    disk, told = Disk(), set[type[BaseException]]()
    say(opened(disk), "one")
    opened(disk).add_messages("k", GROUP)
    disk.write_durable(LOG, flip(b"member 2")(disk.read(LOG)))
    opened(disk).repair("k")
    snapshot = disk.snapshot()
    for nth in range(1, 40):
        for call in ("open", "write", "fsync", "fdatasync", "flock"):
            again = Disk(at=snapshot)
            sessions = opened(again)
            again.fail(Fault(call=call, nth=nth, mode="error"))
            try:
                sessions.restore("k")
            except nacre.StoreError as error:
                told.add(type(error))
                again.heal()
                if not isinstance(error, nacre.DurabilityUnknown):
                    assert said(opened(again)) == ["one"], (call, nth)
                opened(again).restore("k")
            again.heal()
            assert said(opened(again)) == ["one", "member 0", "member 1", "member 3"], (call, nth)
    assert told >= {nacre.Refused, nacre.DurabilityUnknown}


@pytest.mark.parametrize("time", ["yesterday", "2026-11-17T00:00:00", ""])
def test_records_whose_times_are_none_are_shown_and_restored(time: str) -> None:
    disk = Disk()
    say(opened(disk), "one")
    opened(disk).add_messages("k", GROUP)
    lines = disk.read(LOG).split(b"\n")[:-1]
    odd = [re.sub(rb'"ts":"[^"]*"', b'"ts":"%b"' % time.encode(), line) for line in lines]
    resealed = [line[:-18] + b',"crc":"%08x"}' % crc32(line[:-18]) for line in odd]
    disk.write_durable(LOG, flip(b"member 2")(b"".join(line + b"\n" for line in resealed)))
    sessions = opened(disk)
    sessions.repair("k")
    assert [record.n for entry in sessions.quarantine("k") for record in entry.records]
    sessions.restore("k")
    assert said(sessions)[-1] == "member 3"


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir], ids=["a pipe", "a folder"])
def test_a_quarantine_file_that_is_none_hides_nothing_of_others(root: Path, make: Callable[[Path], None]) -> None:
    with nacre.open(root) as sessions:
        for key in ("a", "b"):
            sessions.add_message(key, "user", "one")
            sessions.add_message(key, "user", "two")
        log = log_of(root, "b")
        log.write_bytes(flip(b"one")(log.read_bytes()))
        sessions.repair("b")
        generation = {info.key: info.generation for info in sessions.list()}["a"]
        make(root / "quarantine" / f"a.{generation}.jsonl")
        assert [(entry.key, entry.kind) for entry in sessions.quarantine()] == [
            ("a", "unreadable"),
            ("b", "torn or rotten"),
        ]
        assert {finding.key for finding in sessions.verify().findings} == {"a", "b"}
        with pytest.raises(nacre.StoreError):
            sessions.restore("a")


def test_a_handlers_error_while_the_quarantine_is_looked_at_is_passed_on() -> None:
    process = damaged_twice().process()

    class Interrupted(System):
        def __getattribute__(self, name: str) -> Any:
            return object.__getattribute__(self, name) if name in {"stat", "__class__"} else getattr(process, name)

        def stat(self, path: str) -> os.stat_result:
            if "/quarantine/" in path:
                raise TimeoutError("the turn took too long")
            return process.stat(path)

    sessions = nacre.Sessions(FileStore(ROOT, rules=RULES, system=Interrupted()))
    with pytest.raises(TimeoutError):
        sessions.quarantine("k")


def test_an_entry_without_records_makes_no_log(root: Path) -> None:
    (root / "sessions").mkdir(parents=True)
    place, uid = SessionPaths.of(str(root), "k"), "0" * 32
    set_aside(System(), place, uid, None, (), reason="emptied")
    log = Log(System(), place, rules=RULES)
    assert log.restore(uid, [1], create=True) is not None
    log.writer.close()
    assert list((root / "sessions").glob("*.jsonl")) == []


def test_a_child_gives_up_the_key_that_its_parent_was_taking(root: Path) -> None:
    (root / "sessions").mkdir(parents=True)
    log = Log(System(), SessionPaths.of(str(root), "k"), rules=RULES)
    assert log.writer._key.take(wait=True)
    log.writer._took_key = True
    log.writer.drop()
    assert not log.writer._key.is_held


def test_who_has_a_key_does_not_wait_for_another(root: Path) -> None:
    (root / "sessions").mkdir(parents=True)
    system = System()
    first, second = (KeyLock(system, SessionPaths.of(str(root), key)) for key in ("a", "b"))
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(second.take, wait=True).result()
        with first, pytest.raises(nacre.SessionBusy):
            second.__enter__()
        pool.submit(second.release).result()
