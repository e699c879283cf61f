"""Lines that are whole and yet wrong: repeated, moved, too long, too deep, from the future, from elsewhere."""

from __future__ import annotations

import zlib
from pathlib import Path

import pytest

import nacre
from tests.damage.lines import TIME, conversation, fields_of, header, resealed, seal
from tests.damage.stores import KEY, assert_every_line_whole, go_on, lines_of, said, write

MEGABYTE = 1 << 20


@pytest.fixture
def log(root: Path) -> Path:
    return write(root, ["one", "two", "three"])


@pytest.mark.parametrize("number", [1, 2, 3])
def test_a_repeated_line_is_read_once_and_reported(root: Path, log: Path, number: int) -> None:
    lines = lines_of(log)
    log.write_bytes(b"".join(lines[: number + 1]) + lines[number] + b"".join(lines[number + 1 :]))
    after = go_on(root)
    assert (after.kept, after.reported, after.ok) == (["one", "two", "three"], True, True)
    assert lines[number].rstrip(b"\n") in b"".join(after.set_aside)


def test_a_log_written_twice_over_is_read_once(root: Path, log: Path) -> None:
    log.write_bytes(log.read_bytes() * 2)
    after = go_on(root)
    assert (after.kept, after.reported, after.ok) == (["one", "two", "three"], True, True)


def test_swapped_lines_are_reported_and_none_is_lost(root: Path, log: Path) -> None:
    lines = lines_of(log)
    log.write_bytes(lines[0] + lines[1] + lines[3] + lines[2])
    after = go_on(root)
    assert sorted(after.kept) == ["one", "three", "two"]
    assert (after.reported, after.ok) == (True, True)


def test_a_removed_line_is_reported_and_bridged(root: Path, log: Path) -> None:
    lines = lines_of(log)
    log.write_bytes(lines[0] + lines[1] + lines[3])
    with nacre.open(root) as sessions:
        assert not sessions.verify(KEY).ok
        assert [message.content for message in sessions.get_history(KEY)] == ["one", "three"]


def test_a_line_of_64_megabytes_costs_only_itself(root: Path, log: Path) -> None:
    lines = lines_of(log)
    log.write_bytes(b"".join(lines[:3]) + b"z" * (64 * MEGABYTE) + b"\n" + lines[3])
    after = go_on(root)
    assert (after.kept, after.reported, after.ok) == (["one", "two", "three"], True, True)
    assert log.stat().st_size < MEGABYTE


def test_a_sealed_record_over_the_limit_never_makes_the_session_unreadable(root: Path, log: Path) -> None:
    lines = lines_of(log)
    giant = resealed(lines[2], m={"role": "user", "content": "z" * (17 * MEGABYTE)})
    log.write_bytes(lines[0] + lines[1] + giant + lines[3])
    kept = go_on(root).kept
    assert [text for text in kept if len(text) < MEGABYTE] == ["one", "three"]


@pytest.mark.parametrize("depth", [150, 1_000, 100_000])
def test_a_sealed_record_nested_too_deep_never_makes_the_session_unreadable(root: Path, log: Path, depth: int) -> None:
    lines = lines_of(log)
    deep = lines[2].replace(b'"two"', b"[" * depth + b"]" * depth)
    body = deep[: deep.rindex(b',"crc"')]
    log.write_bytes(lines[0] + lines[1] + seal_bytes(body) + lines[3])
    kept = go_on(root).kept
    assert [kept[0], kept[-1]] == ["one", "three"]


def seal_bytes(body: bytes) -> bytes:
    """Seal a body that no encoder would write."""
    return b'%b,"crc":"%08x"}\n' % (body, zlib.crc32(body))


@pytest.mark.parametrize(
    "rubbish", [b"\n", b"\n\n\n", b"null\n", b"{}\n", b"[]\n", b'"text"\n', b"\xff\xfe\n", b"# note\n"]
)
def test_lines_that_are_no_records_cost_nothing(root: Path, log: Path, rubbish: bytes) -> None:
    lines = lines_of(log)
    log.write_bytes(b"".join(lines[:2]) + rubbish + b"".join(lines[2:]))
    after = go_on(root)
    assert (after.kept, after.ok) == (["one", "two", "three"], True)
    assert after.reported or not rubbish.strip()


def test_an_old_style_line_without_a_checksum_costs_only_itself(root: Path, log: Path) -> None:
    lines = lines_of(log)
    stray = b'{"role":"user","content":"typed in by hand"}\n'
    log.write_bytes(b"".join(lines[:3]) + stray + lines[3])
    after = go_on(root)
    assert (after.kept, after.reported) == (["one", "two", "three"], True)
    assert stray.rstrip(b"\n") in b"".join(after.set_aside)


def test_a_text_that_looks_like_a_record_is_only_a_text(root: Path) -> None:
    bait = seal({"v": 1, "n": 9, "t": "msg", "ts": TIME, "p": 0, "m": {"role": "user", "content": "bait"}}).decode()
    log = write(root, ["one", bait, "three"])
    log.write_bytes(log.read_bytes().replace(b'"one"', b'"One"'))
    assert go_on(root).kept == [bait, "three"]


def test_a_lost_header_costs_no_message(root: Path, log: Path) -> None:
    log.write_bytes(b"".join(lines_of(log)[1:]))
    after = go_on(root)
    assert (after.kept, after.reported, after.ok) == (["one", "two", "three"], True, True)


def test_a_session_without_a_header_is_still_listed_under_its_key(root: Path, log: Path) -> None:
    log.write_bytes(b"".join(lines_of(log)[1:]))
    with nacre.open(root) as sessions:
        assert [info.key for info in sessions.list()] == [KEY]


def test_a_header_of_another_key_is_refused_and_the_file_left_alone(root: Path, log: Path) -> None:
    foreign = b"".join(conversation("somebody else", ["private"]))
    log.write_bytes(foreign)
    with nacre.open(root) as sessions:
        with pytest.raises(nacre.StoreError):
            sessions.add_message(KEY, "user", "mine")
        with pytest.raises(nacre.StoreError):
            sessions.get_history(KEY)
        assert not sessions.verify(KEY).ok
    assert log.read_bytes() == foreign


def test_a_log_of_a_newer_format_is_refused_and_left_alone(root: Path, log: Path) -> None:
    newer = b"".join(resealed(line, v=2) for line in lines_of(log))
    log.write_bytes(newer)
    with nacre.open(root) as sessions:
        for act in (lambda: sessions.add_message(KEY, "user", "more"), lambda: sessions.truncate_history(KEY, 1)):
            with pytest.raises(nacre.FormatTooNew):
                act()
        with pytest.raises(nacre.FormatTooNew):
            sessions.save(KEY)
    assert log.read_bytes() == newer
    assert not list(root.glob("quarantine/*"))


def test_a_newer_record_at_the_end_of_an_old_log_is_refused_and_left_alone(root: Path, log: Path) -> None:
    lines = lines_of(log)
    mixed = b"".join(lines[:-1]) + resealed(lines[-1], v=2)
    log.write_bytes(mixed)
    with nacre.open(root) as sessions, pytest.raises(nacre.FormatTooNew):
        sessions.add_message(KEY, "user", "more")
    assert log.read_bytes() == mixed


def test_reading_a_newer_log_is_an_error_and_never_empty(root: Path, log: Path) -> None:
    log.write_bytes(b"".join(resealed(line, v=2) for line in lines_of(log)))
    with nacre.open(root) as sessions, pytest.raises(nacre.FormatTooNew):
        sessions.get_history(KEY)


def test_a_newer_log_does_not_stop_the_other_sessions(root: Path, log: Path) -> None:
    log.write_bytes(b"".join(resealed(line, v=2) for line in lines_of(log)))
    with nacre.open(root) as sessions:
        sessions.add_message("fine", "user", "here")
        assert "fine" in [info.key for info in sessions.list()]
        assert sessions.get_history("fine")[0].content == "here"


def test_records_of_an_unknown_kind_are_kept_and_skipped(root: Path, log: Path) -> None:
    lines = lines_of(log)
    state = fields_of(lines[-1])["st"]
    unknown = seal({"v": 1, "n": 5, "t": "hologram", "ts": TIME, "angle": 30, "st": state})
    log.write_bytes(b"".join(lines) + unknown)
    after = go_on(root)
    assert (after.kept, after.reported) == (["one", "two", "three"], False)
    assert unknown in lines_of(log)


def test_unknown_fields_of_a_record_survive_a_repair(root: Path, log: Path) -> None:
    lines = lines_of(log)
    marked = resealed(lines[2], sparkle="✨")
    log.write_bytes(lines[0] + lines[1] + marked + b"rubbish\n" + lines[3])
    assert go_on(root).kept == ["one", "two", "three"]
    assert marked in lines_of(log)
    assert_every_line_whole(log)


def test_a_header_in_the_middle_does_not_start_the_session_over(root: Path, log: Path) -> None:
    lines = lines_of(log)
    log.write_bytes(b"".join(lines[:3]) + header(KEY) + lines[3])
    after = go_on(root)
    assert (after.kept, after.reported) == (["one", "two", "three"], True)


def test_records_of_another_session_do_not_become_part_of_this_one_unseen(root: Path, log: Path) -> None:
    foreign = conversation("somebody else", ["x", "y", "private z"])[-1]
    lines = lines_of(log)
    log.write_bytes(b"".join(lines) + foreign)
    after = go_on(root)
    assert after.reported
    assert after.kept == ["one", "two", "three"]
    assert said(root)[-1] == "written afterwards"
