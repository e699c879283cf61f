"""Any single bit may flip: it costs at most the record it is in, and it is never silent."""

from __future__ import annotations

from pathlib import Path

import pytest

import nacre
from nacre.testing import Disk
from tests.damage.stores import KEY, Aftermath, go_on, lines_of, write
from tests.simulated import LOG, names, opened, say

TEXTS = ["one", "zwei ü", "three", "four"]


@pytest.fixture
def log(root: Path) -> Path:
    log = write(root, TEXTS[:1])
    with nacre.open(root) as sessions:
        sessions.add_messages(KEY, [nacre.Message(role="user", content=text) for text in TEXTS[1:3]])
        sessions.add_message(KEY, "user", TEXTS[3])
    return log


def flip(root: Path, log: Path, content: bytes, place: int, bit: int) -> Aftermath:
    """Put the log back with one bit changed, and go on from there."""
    for file in root.glob("quarantine/*"):
        file.unlink()
    log.write_bytes(content[:place] + bytes([content[place] ^ 1 << bit]) + content[place + 1 :])
    return go_on(root)


@pytest.mark.parametrize("bit", range(8))
def test_a_flipped_bit_costs_at_most_its_record_and_is_reported(root: Path, log: Path, bit: int) -> None:
    content = log.read_bytes()
    start = 0
    for number, line in enumerate(lines_of(log)):
        others = [text for index, text in enumerate(TEXTS, 1) if index != number]
        for place in range(start, start + len(line)):
            after = flip(root, log, content, place, bit)
            assert [text for text in after.kept if text in others] == others, (place, bit)
            assert after.reported, (place, bit)
            assert after.ok, (place, bit)
        start += len(line)


@pytest.mark.parametrize("bit", range(8))
def test_the_damaged_bytes_are_kept_in_quarantine(root: Path, log: Path, bit: int) -> None:
    content = log.read_bytes()
    start = 0
    for line in lines_of(log):
        for place in range(start, start + len(line) - 1, 5):
            after = flip(root, log, content, place, bit)
            damaged = line[: place - start] + bytes([content[place] ^ 1 << bit]) + line[place - start + 1 : -1]
            assert damaged.replace(b"\n", b"") in b"".join(after.set_aside).replace(b"\n", b""), (place, bit)
        start += len(line)


def test_history_bridges_a_lost_message(root: Path, log: Path) -> None:
    content = log.read_bytes()
    after = flip(root, log, content, content.index(b"three"), 0)
    assert after.history == ["one", "zwei ü", "four", "written afterwards"]


def test_a_flip_in_every_second_record_keeps_the_others(root: Path) -> None:
    log = write(root, [str(number) for number in range(20)])
    lines = lines_of(log)
    rotten = [line[:20] + bytes([line[20] ^ 4]) + line[21:] if n % 2 else line for n, line in enumerate(lines)]
    log.write_bytes(b"".join(rotten))
    after = go_on(root)
    assert after.kept == [str(number) for number in range(1, 20, 2)]
    assert len(after.set_aside) == 10


def test_a_flip_in_an_archived_log_is_reported_and_costs_one_record(root: Path) -> None:
    log = write(root, ["one", "two", "three"])
    with nacre.open(root) as sessions:
        sessions.archive(KEY)
    (archived,) = (root / "archive").glob("*.jsonl")
    assert not log.exists()
    archived.write_bytes(archived.read_bytes().replace(b"two", b"tvo"))
    with nacre.open(root) as sessions:
        assert not sessions.verify(KEY).ok
        assert [stored.message.content for stored in sessions.transcript(KEY)] == ["one", "three"]


def test_a_flip_in_a_cold_segment_is_reported_and_the_log_stays_readable(root: Path) -> None:
    write(root, [f"{number} " + "x" * 30_000 for number in range(20)])
    with nacre.open(root) as sessions:
        sessions.truncate_history(KEY, 2)
        sessions.save(KEY)
    (cold,) = (root / "cold").glob("*.zst")
    content = bytearray(cold.read_bytes())
    content[len(content) // 2] ^= 4
    cold.write_bytes(content)
    with nacre.open(root) as sessions:
        assert not sessions.verify(KEY).ok
        assert [str(message.content)[:2] for message in sessions.get_history(KEY)] == ["18", "19"]
        sessions.add_message(KEY, "user", "more")


def test_a_summary_hit_by_rot_is_reported_and_the_messages_stay(root: Path) -> None:
    log = write(root, ["one", "two"])
    with nacre.open(root) as sessions:
        sessions.set_summary(KEY, "they counted")
        sessions.add_message(KEY, "user", "three")
    log.write_bytes(log.read_bytes().replace(b"counted", b"cOunted"))
    after = go_on(root)
    assert (after.kept, after.reported) == (["one", "two", "three"], True)


@pytest.mark.parametrize("lost", ["summary", "title"])
def test_what_was_in_force_before_a_lost_summary_or_meta_is_so_after_compaction_too(lost: str) -> None:
    disk = Disk()
    sessions = opened(disk)
    for part in ("first", "second"):
        say(sessions, "a", "b")
        sessions.set_summary("k", f"{part} summary")
        sessions.set_meta("k", title=f"{part} title")
    say(sessions, "c")
    disk.write_durable(LOG, disk.read(LOG).replace(f"second {lost}".encode(), f"sEcond {lost}".encode()))
    for _ in range(2):
        sessions = opened(disk)
        found = {"summary": sessions.get_summary("k"), "title": sessions.get_meta("k")["title"]}
        assert found == {"summary": "second summary", "title": "second title"} | {lost: f"first {lost}"}
        sessions.truncate_history("k", 1)
        sessions.save("k")
    assert names(disk, "cold") != []
