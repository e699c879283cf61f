"""The cold file: whole lines in frames, and no more of it read or trusted than its log vouches for."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import pytest

import nacre
from nacre.storage import compaction
from nacre.storage.lines import Piece
from nacre.storage.system import System
from nacre.testing import Disk, Fault, Process
from tests.damage.frames import MAGIC, cold_file, frames_of, make_earlier, plain_frame
from tests.damage.lines import conversation, fields_of, message, resealed, seal
from tests.paths import log_of
from tests.simulated import LOG, ROOT, opened, said, say

PATH = "/cold/k.jsonl.zst"
EMPTY = compaction.Extent(0, 0)
LINES = conversation("k", ["a", "b", "c"])


@pytest.fixture
def disk() -> Disk:
    return Disk()


@pytest.fixture
def process(disk: Disk) -> Process:
    return disk.process()


def numbers(system: System, length: int | None) -> list[object]:
    """The numbers of the records in a cold file; None for damage."""
    pieces = compaction.pieces(system, PATH, length)
    return [piece.record.n if piece.record is not None else None for piece in pieces]


def append(
    system: System, before: compaction.Extent | int, lines: Sequence[bytes], *, log: Sequence[bytes] = LINES
) -> compaction.Extent:
    """Add lines to the cold file of a log that has some lines; a length alone is what an earlier version knew."""
    extent = compaction.Extent(before, None) if isinstance(before, int) else before
    return compaction.append(system, PATH, extent, lines, is_in_log=lambda n, raw: raw + b"\n" in log)


def flipped(content: bytes, place: int, bit: int) -> bytes:
    return content[:place] + bytes([content[place] ^ 1 << bit]) + content[place + 1 :]


# Reading back from a number

LONG = conversation("k", [random.Random(at).randbytes(30_000).hex() for at in range(20)])
"""Two lines fit into a frame; the header is in the first."""


def back(system: System, extent: compaction.Extent, n: int) -> list[int]:
    return [one.n for one in compaction.back(system, PATH, length=extent.length, n=n, last=21)]


def test_the_frame_with_a_record_is_found_wherever_it_is(process: Process) -> None:
    extent = append(process, EMPTY, LONG)
    found = {n: back(process, extent, n) for n in range(22)}
    assert found[0] == []
    assert all(found[n][0] == n for n in range(1, 22))
    assert all(len(found[n]) <= 3 for n in range(22))
    assert found[21] == back(process, extent, 99)


def test_only_numbers_around_those_that_were_moved_out_later_may_not_be_found(process: Process) -> None:
    extent = append(process, EMPTY, LONG[:7] + LONG[9:12], log=LONG)
    extent = append(process, extent, LONG[7:9] + LONG[12:], log=LONG)
    missed = {n for n in range(1, 22) if n not in back(process, extent, n)}
    assert missed <= set(range(8, 13))


def test_nothing_is_found_in_a_file_that_is_not_there(process: Process) -> None:
    assert back(process, compaction.Extent(100, 1), 5) == []


@pytest.mark.parametrize("is_whole", [True, False])
def test_of_a_damaged_frame_nothing_is_found_that_is_below_the_damage(disk: Disk, *, is_whole: bool) -> None:
    process = disk.process()
    lines = [LINES[0], LINES[1], b"not a record\n", LINES[3]]
    frame = plain_frame(*lines)
    disk.write_durable(PATH, frame if is_whole else frame[: len(frame) // 2])
    found = back(process, compaction.Extent(len(frame), 4), 4)
    assert found == ([4] if is_whole else [])


# Writing


def test_lines_come_back_in_the_order_in_which_they_were_added(process: Process) -> None:
    extent = append(process, EMPTY, LINES[:2])
    extent = append(process, extent, LINES[2:])
    assert extent.records == 4
    assert numbers(process, extent.length) == numbers(process, None) == [1, 2, 3, 4]


def test_no_lines_are_no_frame(process: Process) -> None:
    assert list(compaction.frames([])) == []
    assert append(process, EMPTY, []) == EMPTY


def test_a_frame_is_filled_with_lines_but_never_splits_one() -> None:
    line = b"x" * (50 * 1024) + b"\n"
    assert [frame.lines for frame in compaction.frames([line] * 5)] == [2, 2, 1]


def test_a_frame_has_a_checksum() -> None:
    (frame,) = compaction.frames(LINES)
    assert frame.data[4] & 0b100


@pytest.mark.parametrize("call", ["write", "fsync"])
def test_a_failed_append_gives_its_room_back(disk: Disk, process: Process, call: str) -> None:
    extent = append(process, EMPTY, LINES[:1])
    before = disk.read(PATH)
    if call == "fsync":
        disk.fail(Fault(call="fsync", nth=2))  # the first settles the folder's name
    else:
        disk.fail(Fault(call="write"))
    with pytest.raises(OSError, match="Input/output error"):
        append(process, extent, LINES[1:])
    assert disk.read(PATH) == before


def test_a_failed_first_append_leaves_no_file(disk: Disk, process: Process) -> None:
    disk.fail(Fault(call="write"))
    with pytest.raises(OSError, match="Input/output error"):
        append(process, EMPTY, LINES)
    assert process.listdir("/cold") == []


def test_an_append_that_fails_before_it_wrote_leaves_what_is_there(disk: Disk, process: Process) -> None:
    append(process, EMPTY, LINES)
    before = disk.read(PATH)
    disk.fail(Fault(call="pread"))
    with pytest.raises(OSError, match="Input/output error"):
        append(process, EMPTY, LINES, log=[])
    assert disk.read(PATH) == before


# Behind the part that counts


@pytest.mark.parametrize("lost", range(40))
@pytest.mark.parametrize("zeros", [0, 5])
def test_what_a_compaction_left_unfinished_is_cut_off_by_the_next(
    disk: Disk, process: Process, lost: int, zeros: int
) -> None:
    extent = append(process, EMPTY, LINES[:1])
    append(process, extent, LINES[1:3])
    disk.write_durable(PATH, disk.read(PATH)[: -lost or None] + bytes(zeros))
    extent = append(process, extent, LINES[3:])
    assert extent.records == 2
    assert numbers(process, extent.length) == numbers(process, None) == [1, 4]


@pytest.mark.parametrize("at_hand", [[], LINES[2:]], ids=["none", "one"])
@pytest.mark.parametrize("log_length", ["nothing", "one frame"])
def test_intact_frames_are_never_cut_off_unless_the_log_has_their_records(
    process: Process, at_hand: list[bytes], log_length: str
) -> None:
    extent = append(process, EMPTY, LINES[:1])
    append(process, extent, LINES[1:3])
    mistaken = extent if log_length == "one frame" else EMPTY
    extent = append(process, mistaken, LINES[3:], log=at_hand)
    assert extent.records == 4
    assert numbers(process, extent.length) == [1, 2, 3, 4]


@pytest.mark.parametrize("left", [b"x", MAGIC + b"rotten", b"\0\0rotten", plain_frame(b"rotten\n")])
def test_what_cannot_be_read_is_not_cut_off_and_counts_as_damage(disk: Disk, process: Process, left: bytes) -> None:
    extent = append(process, EMPTY, LINES[:1])
    disk.write_durable(PATH, disk.read(PATH) + left)
    extent = append(process, extent, LINES[1:])
    assert left in disk.read(PATH)
    assert numbers(process, extent.length) == [1, None, 2, 3, 4]


# Damage


def test_a_cold_file_that_should_be_there_is_damage(process: Process) -> None:
    assert (numbers(process, None), numbers(process, 0), numbers(process, 7)) == ([], [], [None])


def test_a_cold_file_that_should_be_longer_is_damage_behind_what_it_holds(process: Process) -> None:
    extent = append(process, EMPTY, LINES)
    assert numbers(process, extent.length + 1) == [1, 2, 3, 4, None]


def test_reading_resumes_behind_a_rotten_frame(disk: Disk, process: Process) -> None:
    first = append(process, EMPTY, LINES[:2])
    second = append(process, first, LINES[2:3])
    append(process, second, LINES[3:])
    content = disk.read(PATH)
    rotten = b"x" * (second.length - first.length)
    disk.write_durable(PATH, content[: first.length] + rotten + content[second.length :])
    assert numbers(process, None) == [1, 2, None, 4]
    assert compaction.measure(process, PATH) == compaction.Extent(len(content), 3)


@pytest.mark.parametrize("gap", [1, 64 * 1024 - 3, 64 * 1024, 200 * 1024])
def test_the_next_frame_is_found_however_far_it_is(disk: Disk, process: Process, gap: int) -> None:
    extent = append(process, EMPTY, LINES)
    disk.write_durable(PATH, b"x" * gap + disk.read(PATH) + b"x" * gap)
    assert numbers(process, gap * 2 + extent.length) == [None, 1, 2, 3, 4, None]


@pytest.mark.parametrize("bit", range(8))
@pytest.mark.parametrize("pack", [plain_frame, lambda *lines: next(compaction.frames(lines)).data], ids=["old", "new"])
def test_a_flip_costs_no_record_of_another_frame_and_never_goes_unnoticed(
    disk: Disk, process: Process, pack: Callable[..., bytes], bit: int
) -> None:
    packs = [pack(*LINES[:1]), pack(*LINES[1:3]), pack(*LINES[3:])]
    content = b"".join(packs)
    for place in range(len(packs[0]), len(packs[0]) + len(packs[1])):
        disk.write_durable(PATH, flipped(content, place, bit))
        found = numbers(process, len(content))
        assert (found[0], found[-1]) == (1, 4), place
        assert None in found or found == [1, 2, 3, 4], place


@pytest.mark.parametrize(("old", "new"), [(b':"b"', b':"B"'), (b'}\n{"v":1,"n":3', b'}\x0b{"v":1,"n":3')])
def test_every_record_of_a_damaged_text_that_is_intact_is_kept(
    disk: Disk, process: Process, old: bytes, new: bytes
) -> None:
    disk.write_durable(PATH, plain_frame(b"".join(LINES).replace(old, new)))
    assert numbers(process, None) == [1, 2, *([] if b"B" in new else [3]), 4, None]


def test_the_text_of_a_frame_whose_checksum_does_not_match_is_still_read(disk: Disk, process: Process) -> None:
    (frame,) = compaction.frames([LINES[0], LINES[1].replace(b'"a"', b'"A"'), *LINES[2:]])
    disk.write_durable(PATH, flipped(frame.data, len(frame.data) - 1, 0))
    assert numbers(process, None) == [1, 3, 4, None]


def test_damage_deep_in_a_long_frame_leaves_what_is_before_it(disk: Disk, process: Process) -> None:
    long = conversation("k", [random.Random(0).randbytes(100_000).hex()] * 2 + ["b"])
    frame = plain_frame(*long)
    disk.write_durable(PATH, flipped(frame, len(frame) - 1, 0))
    assert numbers(process, None)[:2] == [1, 2]


@pytest.mark.parametrize("rest", [b"x", LINES[3][:-1]], ids=["damage", "record"])
def test_what_stands_behind_the_last_newline_of_a_frame_is_damage(disk: Disk, process: Process, rest: bytes) -> None:
    disk.write_durable(PATH, plain_frame(*LINES[:3], rest))
    assert numbers(process, None) == [1, 2, 3, *([4] if rest != b"x" else []), None]


def test_a_frame_without_a_record_is_damage(disk: Disk, process: Process) -> None:
    disk.write_durable(PATH, plain_frame(LINES[0]) + plain_frame())
    assert numbers(process, None) == [1, None]


def test_a_cold_file_that_is_cut_while_it_is_read_is_damage(process: Process, monkeypatch: pytest.MonkeyPatch) -> None:
    extent = append(process, EMPTY, LINES)
    monkeypatch.setattr(process, "pread", lambda fd, size, offset: b"")
    assert numbers(process, extent.length) == [None]


# Files of earlier versions


def test_frames_without_a_checksum_are_read_and_appended_to(disk: Disk, process: Process) -> None:
    old = plain_frame(*LINES[:2])
    disk.write_durable(PATH, old)
    extent = append(process, len(old), LINES[2:])
    assert extent.records == 4
    assert disk.read(PATH).startswith(old)
    assert numbers(process, extent.length) == [1, 2, 3, 4]


@pytest.mark.parametrize("is_there", [True, False])
def test_records_that_nobody_counted_before_they_were_cut_off_are_noticed(
    disk: Disk, process: Process, is_there: bool
) -> None:
    if is_there:
        disk.write_durable(PATH, plain_frame(*LINES[:2]))
    length = len(plain_frame(*LINES[:2])) + 7
    extent = append(process, length, LINES[3:])
    assert extent.records == (4 if is_there else 2)
    assert len(numbers(process, None)) == (3 if is_there else 1)


# In a session


@pytest.fixture
def compacted(disk: Disk) -> Disk:
    """A session with all but its last message moved out, in two frames."""
    sessions = opened(disk)
    for text in ("a", "b"):
        say(sessions, text, "c")
        sessions.truncate_history("k", 1)
        sessions.save("k")
    return disk


def transcript(disk: Disk) -> list[object]:
    return [stored.message.content for stored in opened(disk).transcript("k")]


def findings(disk: Disk) -> list[tuple[str, str]]:
    return [(finding.kind, finding.detail) for finding in opened(disk).verify("k").findings]


def rewrite_header(disk: Disk, **changes: object) -> None:
    """Give the log a header with other values; those that are None are left out."""
    first, rest = disk.read(LOG).split(b"\n", 1)
    fields = {name: value for name, value in (fields_of(first) | changes).items() if value is not None}
    disk.write_durable(LOG, seal(fields) + rest)


def test_a_session_of_an_earlier_version_is_read_verified_appended_to_and_restored_from(compacted: Disk) -> None:
    make_earlier(compacted, "k")
    old = compacted.read(cold_file(compacted, "k"))
    assert (transcript(compacted), findings(compacted)) == (["a", "c", "b", "c"], [])
    sessions = opened(compacted)
    say(sessions, *"xyz")
    sessions.truncate_history("k", 1)
    sessions.save("k")
    assert compacted.read(cold_file(compacted, "k")).startswith(old)
    assert (transcript(compacted), findings(compacted)) == (["a", "c", "b", "c", *"xyz"], [])
    assert fields_of(compacted.read(LOG).split(b"\n", 1)[0])["moved"] > 0
    opened(compacted).rewind("k", 3)
    assert (said(opened(compacted)), findings(compacted)) == (["a", "c"], [])


def test_the_header_says_how_many_records_were_moved_out(compacted: Disk) -> None:
    header = fields_of(compacted.read(LOG).split(b"\n", 1)[0])
    assert header["moved"] == len(list(compaction.pieces(compacted.process(), cold_file(compacted, "k"), None)))
    assert findings(compacted) == []


def test_a_frame_that_is_gone_without_a_trace_is_noticed_and_stays_so(compacted: Disk) -> None:
    path = cold_file(compacted, "k")
    content = compacted.read(path)
    compacted.write_durable(path, content[content.rindex(MAGIC) :])
    rewrite_header(compacted, cold=len(content) - content.rindex(MAGIC))
    expected = ("cold", "2 of the moved-out records are missing; numbers that are not found: 2, 4")
    assert findings(compacted) == [expected]
    sessions = opened(compacted)
    say(sessions, *"xyz")
    sessions.truncate_history("k", 1)
    sessions.save("k")
    assert findings(compacted) == [expected]
    assert transcript(compacted) == ["c", "b", "c", *"xyz"]


@pytest.mark.parametrize("moved", [None, 1])
def test_a_count_that_is_lower_than_what_is_there_is_no_loss(compacted: Disk, moved: int | None) -> None:
    rewrite_header(compacted, moved=moved)
    assert findings(compacted) == []


@pytest.mark.parametrize("length", ["nothing", "one frame", "within a frame"])
def test_a_mistaken_length_in_the_header_costs_nothing(compacted: Disk, length: str) -> None:
    path = cold_file(compacted, "k")
    second = compacted.read(path).rindex(MAGIC)
    rewrite_header(compacted, cold={"nothing": None, "one frame": second, "within a frame": second + 9}[length])
    sessions = opened(compacted)
    say(sessions, *"xyz")
    sessions.truncate_history("k", 1)
    sessions.save("k")
    assert transcript(compacted) == ["a", "c", "b", "c", *"xyz"]
    assert sessions.verify("k").ok


@pytest.mark.parametrize("text", ["x", "other"])
def test_a_session_whose_compaction_did_not_finish_is_compacted_by_the_next(compacted: Disk, text: str) -> None:
    length = len(compacted.read(cold_file(compacted, "k")))
    sessions = opened(compacted)
    say(sessions, *"xyz")
    sessions.truncate_history("k", 1)
    compacted.fail(Fault(call="rename"))
    with pytest.raises(nacre.Refused):
        sessions.save("k")
    path = cold_file(compacted, "k")
    counted, left = compacted.read(path)[:length], compacted.read(path)[length:]
    ((_, _, lines),) = frames_of(left)
    said_x = next(line for line in lines.splitlines(keepends=True) if b'"x"' in line)
    said_it = resealed(said_x, m={"role": "user", "content": text})
    compacted.write_durable(path, counted + plain_frame(lines.replace(said_x, said_it)))
    opened(compacted).save("k")
    assert transcript(compacted) == ["a", "c", "b", "c", *"xyz"]
    assert [kind for kind, _ in findings(compacted)] == ([] if text == "x" else ["repeated"])


def test_two_records_of_one_number_are_found(compacted: Disk) -> None:
    path = cold_file(compacted, "k")
    (other,) = compaction.frames([message(2, "other", before=0, ordinal=1)])
    compacted.write_durable(path, compacted.read(path) + other.data)
    rewrite_header(compacted, cold=len(compacted.read(path)))
    assert findings(compacted) == [("repeated", "record 2 is there twice, with different contents")]


@pytest.mark.parametrize("is_counted", [True, False])
def test_a_fork_knows_how_many_records_were_moved_out_of_what_it_shares(compacted: Disk, is_counted: bool) -> None:
    opened(compacted).fork("k", "fork")
    log = str(log_of(ROOT, "fork"))
    header = fields_of(compacted.read(log))
    assert header["base"]["moved"] == [fields_of(compacted.read(LOG).split(b"\n", 1)[0])["moved"]]
    header["base"] |= {"moved": [99]} if is_counted else {}
    if not is_counted:
        del header["base"]["moved"]  # as earlier versions wrote it
    compacted.write_durable(log, seal(header))
    assert opened(compacted).verify("fork").ok is not is_counted
    assert [stored.message.content for stored in opened(compacted).transcript("fork")] == ["a", "c", "b", "c"]


def test_a_record_that_was_brought_back_is_there_twice_and_that_is_fine(compacted: Disk) -> None:
    opened(compacted).rewind("k", 3)
    assert findings(compacted) == []


def test_a_damaged_frame_does_not_hide_behind_a_compaction(compacted: Disk) -> None:
    path = cold_file(compacted, "k")
    compacted.write_durable(path, flipped(compacted.read(path), 40, 3))
    before = findings(compacted)
    assert [kind for kind, _ in before] == ["cold", "cold"]
    sessions = opened(compacted)
    say(sessions, *"xyz")
    sessions.truncate_history("k", 1)
    sessions.save("k")
    assert transcript(compacted)[-5:] == ["b", "c", *"xyz"]
    assert findings(compacted) == before


def test_a_session_whose_moved_out_records_are_gone_says_so_and_goes_on(disk: Disk) -> None:
    sessions = opened(disk)
    say(sessions, "a", "b", "c")
    sessions.truncate_history("k", 1)
    sessions.save("k")
    (moved_out,) = disk.process().listdir("/store/cold")
    disk.process().unlink(f"/store/cold/{moved_out}")
    assert [finding.kind for finding in sessions.verify("k").findings] == ["cold", "cold"]
    say(sessions, "d")
    assert said(sessions) == ["c", "d"]
    assert b'"cold":' in disk.read(LOG)


# Other lines in the place of some


def replaced(content: str) -> Callable[[Piece], bytes]:
    """A change of what the third line says."""
    other = resealed(LINES[2], m={"role": "user", "content": content})[:-1]
    return lambda piece: other if piece.raw == LINES[2][:-1] else piece.raw


@pytest.mark.parametrize("content", ["", *"acdefghijklm", "b" * 5_000])
def test_a_file_with_other_lines_has_its_old_length(process: Process, content: str) -> None:
    random_text = random.Random(0).randbytes(400).hex()
    extent = append(process, EMPTY, [*LINES, message(5, random_text, before=4, ordinal=4)])
    extent = append(process, extent, [message(6, "f", before=5, ordinal=5)])
    before = process.stat(PATH).st_size
    assert compaction.replace(process, PATH, replaced(content)) == 1
    assert process.stat(PATH).st_size == before
    assert numbers(process, extent.length) == [1, 2, 3, 4, 5, 6]
    assert compaction.replace(process, PATH, replaced("not there any more")) == 0


def test_what_does_not_fit_is_refused_and_the_file_stays(process: Process, disk: Disk) -> None:
    append(process, EMPTY, LINES)
    before = disk.read(PATH)
    with pytest.raises(nacre.StoreError, match="does not fit"):
        compaction.replace(process, PATH, replaced(random.Random(0).randbytes(400).hex()))
    assert disk.read(PATH) == before
