"""One flush per acknowledged append, counted from outside."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

FLUSHES = "fsync,fdatasync,sync,syncfs,sync_file_range,msync"
WORK = """
import os, sys, nacre
def mark(name): os.access("/mark-" + name, os.F_OK)
with nacre.open(sys.argv[1]) as sessions:
    mark("first")
    number = sessions.add_message("solo", "user", "0")
    mark("appends")
    for i in range(10):
        sessions.add_message("solo", "user", str(i))
    mark("group")
    sessions.add_messages("solo", [nacre.Message(role="user", content=str(i)) for i in range(20)])
    mark("truncate")
    sessions.truncate_history("solo", 5)
    mark("summary")
    sessions.set_summary("solo", "so far")
    mark("meta")
    sessions.set_meta("solo", title="t")
    mark("rewind")
    sessions.rewind("solo", number)
    mark("reading")
    sessions.get_history("solo"), sessions.get_summary("solo"), sessions.transcript("solo")
    mark("end")
"""
EXPECTED = {"appends": 10, "group": 1, "truncate": 1, "summary": 1, "meta": 1, "rewind": 1, "reading": 0}


@pytest.fixture
def trace(tmp_path: Path) -> list[str]:
    """Every flush and every open of the work, one line each, between the marks."""
    strace = shutil.which("strace")
    if strace is None:
        pytest.skip("strace is not installed")
    script, output = tmp_path / "work.py", tmp_path / "trace"
    script.write_text(WORK)
    command: list[str | Path] = [
        strace,
        "-f",
        "-y",
        "-e",
        f"trace={FLUSHES},access,faccessat,faccessat2,openat,open",
        "-o",
        output,
    ]
    run = subprocess.run([*command, sys.executable, script, tmp_path / "store"], check=False, capture_output=True)
    if b"ptrace" in run.stderr:
        pytest.skip("tracing is not permitted here")
    assert run.returncode == 0, run.stderr.decode()
    return output.read_text().splitlines()


def flushes_by_mark(lines: list[str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    name = "start"
    for line in lines:
        if marked := re.search(r'"/mark-(\w+)"', line):
            name = marked[1]
        elif re.search(rf"\b({FLUSHES.replace(',', '|')})\(", line):
            found.setdefault(name, []).append(line)
    return found


def test_every_write_after_the_first_costs_exactly_one_flush(trace: list[str]) -> None:
    found = flushes_by_mark(trace)
    assert {name: len(found.get(name, [])) for name in EXPECTED} == EXPECTED


def test_the_first_append_settles_the_file_and_its_name(trace: list[str]) -> None:
    first = flushes_by_mark(trace)["first"]
    assert any("/sessions/" in line for line in first)
    assert any(re.search(r"fsync\(\d+<[^>]*/sessions>", line) for line in first)


def test_no_file_is_opened_so_that_writes_flush_unseen(trace: list[str]) -> None:
    assert not [line for line in trace if "O_SYNC" in line or "O_DSYNC" in line]
