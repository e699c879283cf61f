"""The scratch folder of a sandbox: gone after use, swept after a kill, and never anybody else's."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from nacre.sandbox.process_tree import Scratch, sweep
from tests.sandbox.places import CONFINED, ran, usable

# An agent that is at a command when it is killed.
AGENT = """
import sys, anyio
from nacre.sandbox import find

async def main():
    found = await find(sys.argv[1], kind=sys.argv[2])
    await found.sandbox.run(["sh", "-c", "mkdir -p /tmp/a && chmod 0 /tmp/a /tmp; echo >begun; read x </dev/zero"],
                            timeout=600, max_bytes=100)

anyio.run(main)
"""
NOBODY = 65534


@pytest.fixture
def room(tmp_path: Path) -> Path:
    (tmp_path / "room").mkdir()
    os.mkfifo(tmp_path / "room" / "begun")
    return tmp_path / "room"


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    place = tmp_path / "temporary"
    place.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(place))
    yield place
    for path in place.iterdir():
        path.chmod(0o700)


@pytest.mark.parametrize("kind", CONFINED)
def test_what_a_killed_agent_left_goes_with_the_next_start(kind: str, room: Path, temporary: Path) -> None:
    usable(kind)
    agent = subprocess.Popen(
        [sys.executable, "-c", AGENT, str(room), kind], env={**os.environ, "TMPDIR": str(temporary)}
    )
    (room / "begun").read_text()  # waits for the command
    agent.kill()
    agent.wait()
    assert len(list(temporary.iterdir())) == 1
    assert ran(kind, room, "true").status == 0
    assert list(temporary.iterdir()) == []


def test_one_that_is_in_use_is_left_alone(temporary: Path) -> None:
    used, left = Scratch(), temporary / "nacre-sandbox-left"
    left.mkdir()
    sweep()
    assert list(temporary.iterdir()) == [Path(used.path)]
    used.remove()
    assert list(temporary.iterdir()) == []


def test_other_names_links_and_files_are_left_alone(temporary: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (temporary / "nacre-other").mkdir()
    (temporary / "nacre-sandbox-link").symlink_to(tmp_path / "elsewhere")
    (temporary / "nacre-sandbox-file").touch()
    sweep()
    names = ["nacre-other", "nacre-sandbox-file", "nacre-sandbox-link"]
    assert sorted(path.name for path in temporary.iterdir()) == names
    assert (tmp_path / "elsewhere").is_dir()


@pytest.mark.skipif(os.getuid() != 0, reason="only root can make a folder of somebody else's")
def test_that_of_another_user_is_left_alone(temporary: Path) -> None:
    theirs = temporary / "nacre-sandbox-theirs"
    theirs.mkdir()
    os.chown(theirs, NOBODY, NOBODY)
    sweep()
    assert theirs.is_dir()
