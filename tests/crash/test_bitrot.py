"""Rot: what is untouched is kept, and what is lost is reported.

Random damage to random logs, and a flip in every byte of every kind of file.
"""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

import nacre
from nacre.testing import Disk
from tests.crash import flips
from tests.simulated import ROOT, opened

KEY = "rot"


@dataclass(frozen=True, slots=True)
class Line:
    """One record of the log before it was damaged."""

    raw: bytes
    n: int
    batch: int
    group: int | None
    is_message: bool


def write_a_life(root: Path, rng: random.Random) -> Path:
    """A log with groups, summaries, truncations and rewinds."""
    with nacre.open(root) as sessions:
        numbers = [sessions.add_message(KEY, "user", "m0")]
        for step in range(1, rng.randint(4, 14)):
            match rng.choice(["one", "one", "group", "summary", "truncate", "rewind", "meta"]):
                case "one":
                    numbers.append(sessions.add_message(KEY, "user", f"m{step} " + "ü" * rng.randrange(80)))
                case "group":
                    group = [nacre.Message(role="user", content=f"m{step}.{part}") for part in range(rng.randint(2, 4))]
                    numbers.append(sessions.add_messages(KEY, group))
                case "summary":
                    sessions.set_summary(KEY, f"summary {step}")
                case "truncate":
                    sessions.truncate_history(KEY, rng.randrange(4))
                case "rewind":
                    sessions.rewind(KEY, rng.choice(numbers))
                case _:
                    sessions.set_meta(KEY, step=step)
    (log,) = (root / "sessions").glob("*.jsonl")
    return log


def parsed(content: bytes) -> list[Line]:
    lines = []
    for raw in content.split(b"\n")[:-1]:
        record = json.loads(raw)
        group = record["tx"][0] if "tx" in record else None
        lines.append(Line(raw, record["n"], record.get("b", record["n"]), group, record["t"] == "msg"))
    return lines


def flip_bytes(content: bytes, rng: random.Random) -> bytes:
    damaged = bytearray(content)
    for _ in range(rng.randint(1, 5)):
        damaged[rng.randrange(len(damaged))] ^= rng.randint(1, 255)
    return bytes(damaged)


def remove_range(content: bytes, rng: random.Random) -> bytes:
    start = rng.randrange(len(content))
    return content[:start] + content[start + rng.randint(1, 400) :]


def insert_bytes(content: bytes, rng: random.Random) -> bytes:
    place = rng.randrange(len(content) + 1)
    inserted = rng.choice(
        [rng.randbytes(rng.randint(1, 60)), b'{"v":1,"n":', b'"', b"\\", b"}", b',"crc":"00000000"}', b"\x00"]
    )
    return content[:place] + inserted + content[place:]


def zero_range(content: bytes, rng: random.Random) -> bytes:
    start = rng.randrange(len(content))
    size = min(rng.choice([1, 16, 512]), len(content) - start)
    return content[:start] + b"\0" * size + content[start + size :]


def cut_off(content: bytes, rng: random.Random) -> bytes:
    return content[: rng.randrange(len(content))]


def join_lines(content: bytes, rng: random.Random) -> bytes:
    breaks = [place for place, byte in enumerate(content) if byte == 0x0A]
    place = rng.choice(breaks or [len(content)])
    return content[:place] + content[place + 1 :]


ACCIDENTS: list[Callable[[bytes, random.Random], bytes]] = [
    flip_bytes,
    remove_range,
    insert_bytes,
    zero_range,
    cut_off,
    join_lines,
]


def untouched(lines: list[Line], damaged: bytes) -> list[Line]:
    """The records whose bytes are all there; a last one without its newline does not count."""
    return [line for line in lines if line.raw in damaged and not damaged.endswith(line.raw)]


def must_be_kept(lines: list[Line], damaged: bytes) -> list[str]:
    """The messages that have to survive: untouched, and not part of a broken group that nothing later proves."""
    whole = untouched(lines, damaged)
    numbers = {line.n for line in whole}
    broken = {line.group for line in lines if line.group is not None and line.n not in numbers}
    newest = max((line.batch for line in whole), default=0)
    kept = [line for line in whole if line.is_message and (line.group not in broken or line.batch < newest)]
    return [json.loads(line.raw)["m"]["content"] for line in kept]


def loses_nothing_or_only_the_end(lines: list[Line], damaged: bytes) -> bool:
    """Whether what is left is a whole beginning of the log, which nobody can tell from a shorter log."""
    left = [line for line in damaged.split(b"\n") if line]
    return damaged.endswith(b"\n") and left == [line.raw for line in lines[: len(left)]]


@pytest.mark.parametrize("part", range(6))
def test_untouched_records_are_kept_and_damage_is_reported(root: Path, campaign: bool, part: int) -> None:
    for number in range(100_000 // 6 if campaign else 50):
        seed = part * 1_000_000 + number
        rng = random.Random(seed)
        log = write_a_life(root, rng)
        content = log.read_bytes()
        damaged = content
        for _ in range(rng.choice([1, 1, 1, 2, 3])):
            damaged = rng.choice(ACCIDENTS)(damaged, rng) or damaged
        log.write_bytes(damaged)
        check(root, parsed(content), damaged, seed)
        shutil.rmtree(root)


def check(root: Path, lines: list[Line], damaged: bytes, seed: int) -> None:
    with nacre.open(root) as sessions:
        report = sessions.verify(KEY)
        found = [str(stored.message.content) for stored in sessions.transcript(KEY)]
        expected = must_be_kept(lines, damaged)
        assert [text for text in found if text in expected] == expected, f"seed {seed}"
        sessions.add_message(KEY, "user", "after")
        reported = not report.ok or bool(sessions.quarantine(KEY))
        assert reported or loses_nothing_or_only_the_end(lines, damaged), f"seed {seed}: silent"
        again = [str(stored.message.content) for stored in sessions.transcript(KEY)]
        assert again == [*found, "after"], f"seed {seed}"
        assert sessions.get_history(KEY)[-1].content == "after", f"seed {seed}"
        assert {finding.kind for finding in sessions.verify(KEY).findings} <= {"quarantine"}, f"seed {seed}"
        sessions.discard(KEY)
        assert sessions.verify(KEY).ok, f"seed {seed}"


KINDS = [
    *("sessions/k", "sessions/fork", "sessions/group", "sessions/earlier"),
    *("archive/", "base/", "blobs/"),
    *("cold/k", "cold/fork", "cold/earlier"),
]


@pytest.mark.parametrize("kind", KINDS)
def test_a_flip_in_any_file_costs_at_most_its_unit_and_is_reported(campaign: bool, kind: str) -> None:
    disk = flips.build()
    before = flips.facts(opened(disk))
    ((path, content),) = [item for item in flips.files(disk).items() if item[0].startswith(f"{ROOT}/{kind}")]
    for unit in flips.units(disk, path):
        for place, bit in places(unit, random.Random(f"{kind} {unit.start}"), campaign=campaign):
            damaged = disk.clone()
            flipped = content[:place] + bytes([content[place] ^ 1 << bit]) + content[place + 1 :]
            damaged.write_durable(path, flipped)
            check_flip(damaged, before, unit, f"{kind} place {place} bit {bit}")


def places(unit: flips.Unit, rng: random.Random, *, campaign: bool) -> list[tuple[int, int]]:
    """Which bits to flip: all of a line or a frame, of a payload one in each byte; a few of them in everyday tests."""
    size = unit.end - unit.start
    if not campaign:
        some = rng.sample(range(unit.start, unit.end), min(max(10, size // 8), 60))
        return [(place, rng.randrange(8)) for place in [unit.start, unit.end - 1, *some]]
    if size > 10_000:
        return [(place, rng.randrange(8)) for place in range(unit.start, unit.end)]
    return [(place, bit) for place in range(unit.start, unit.end) for bit in range(8)]


def check_flip(disk: Disk, before: flips.Facts, unit: flips.Unit, where: str) -> None:
    """Verify, read, write and compact: no more than one unit is lost, and that stays reported."""
    sessions = opened(disk)
    was_reported = not sessions.verify().ok
    found = flips.facts(sessions)
    gone = flips.lost(before, found)
    assert all(flips.is_in(text, unit) for text in gone), f"{where} costs {gone}"
    assert was_reported or (unit.is_frame and not gone), f"{where} is not reported"
    assert not gone or flips.is_reported(sessions, disk), f"{where} is no longer reported after reading"
    flips.go_on(sessions)
    assert flips.lost(found, flips.facts(sessions)) == set(), f"{where} costs more later"
    assert not gone or flips.is_reported(opened(disk), disk), f"{where} is no longer reported after writing"
