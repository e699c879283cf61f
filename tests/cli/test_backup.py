"""A copy of a live store: whatever is done to it meanwhile, what was acknowledged before is in the copy, whole."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

import nacre as library
from tests.cli.conftest import Nacre

KEYS = [f"web:{at}" for at in range(12)] + ["plain", "irc:#room", "a/b"]
WRITER = """
import random, sys
import nacre

sessions, seed = nacre.open(sys.argv[1]), random.Random(int(sys.argv[2]))
keys = sys.argv[3:]
print("writing", flush=True)
for step in range(10**9):
    key = seed.choice(keys)
    try:
        match seed.randrange(12):
            case 0:
                sessions.truncate_history(key, 2)
                sessions.save(key)
            case 1:
                sessions.archive(key)
            case 2:
                sessions.unarchive(key)
            case 3:
                sessions.add_message(key, "user", f"large {step} " + "x" * seed.choice((60_000, 70_000)))
            case 4:
                sessions.fork(key, f"fork:{seed.randrange(5)}:{step % 7}")
            case _:
                sessions.add_message(key, "user", f"later {step}")
    except nacre.NacreError:
        pass
"""


def fill(root: Path) -> dict[str, list[str]]:
    """A store with all kinds of files; what was acknowledged of each session."""
    with library.open(root) as sessions:
        for at, key in enumerate(KEYS):
            for n in range(12):
                sessions.add_message(key, "user", f"{key} {n} " + "y" * (70_000 if n == at % 12 else 30_000))
            if at % 3 == 0:
                sessions.truncate_history(key, 3)
                sessions.save(key)
        sessions.archive("web:1")
        sessions.fork("web:2", "fork:first")
        return {key: texts(sessions, key) for key in [*KEYS, "fork:first"]}


def texts(sessions: library.Sessions, key: str) -> list[str]:
    return [str(one.message.content) for one in sessions.transcript(key)]


@pytest.mark.parametrize("seed", range(2))
def test_a_store_is_copied_while_others_write_move_and_compact_it(root: Path, nacre: Nacre, seed: int) -> None:
    known = fill(root)
    command = [sys.executable, "-c", WRITER, str(root), str(seed), *KEYS]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout is not None
        writer.stdout.readline()
        copies = [root.parent / f"copy{at}" for at in range(3)]
        done = [nacre("sessions", "backup", str(copy), "--json") for copy in copies]
        writer.kill()
    assert [one.code for one in done] == [0, 0, 0], [one.err for one in done]
    for copy in copies:
        with library.open(copy) as restored:
            assert restored.verify().ok, restored.verify()
            for key, before in known.items():
                missing = Counter(before) - Counter(texts(restored, key))
                assert [text[:40] for text in missing] == [], key


def test_a_copy_has_the_same_files_and_shares_what_the_store_shares(root: Path, nacre: Nacre) -> None:
    fill(root)
    (root / "agents" / "clerk").mkdir(parents=True)
    with library.open(root / "agents" / "clerk") as other:
        other.add_message("k", "user", "hello")
    (root / "workspace").mkdir()
    (root / "workspace" / "link").symlink_to("nowhere")
    copy = root.parent / "copy"
    done = nacre("sessions", "backup", str(copy))
    assert (done.code, f"nacre --store {copy} sessions verify" in done.err) == (0, True)
    found = Nacre(copy, nacre._capsys).files()
    assert found == nacre.files()
    assert len({path.stat().st_ino for path in (copy / "blobs").iterdir()}) < len(list((copy / "blobs").iterdir()))
    assert (copy / "workspace" / "link").is_symlink()
    assert not (copy / "marks").exists()
    assert nacre("--store", str(copy), "sessions", "verify").code == 0


def test_a_log_whose_creation_was_cut_short_is_not_in_the_copy(root: Path, nacre: Nacre) -> None:
    nacre.fill("k")
    cut, emptied = (root / "sessions" / f"{name}~{'0' * 32}.jsonl" for name in ("cut", "emptied"))
    for log in (cut, emptied):
        log.touch()
    cut.with_suffix(".new").touch()
    copy = root.parent / "copy"
    assert nacre("sessions", "backup", str(copy)).code == 0
    assert {path.name for path in (copy / "sessions").iterdir()} == {
        emptied.name,
        *(path.name for path in (root / "sessions").iterdir() if path.name.startswith("k~")),
    }


@pytest.mark.parametrize(
    ("folder", "code", "told"),
    [
        ("store/inside", 2, "is inside the store"),
        ("store", 2, "is inside the store"),
        ("there", 1, "exists already"),
        ("partial", 1, "partial.partial is left of a copy that was interrupted"),
        ("none/copy", 3, "there is no folder"),
    ],
)
def test_a_place_where_no_copy_can_be_is_refused(root: Path, nacre: Nacre, folder: str, code: int, told: str) -> None:
    nacre.fill("k")
    before = nacre.files()
    (root.parent / "there").mkdir()
    (root.parent / "partial.partial").mkdir()
    done = nacre("sessions", "backup", str(root.parent / folder))
    assert (done.code, told in done.err) == (code, True), done.err
    assert nacre.files() == before


def test_where_there_is_no_store_there_is_nothing_to_copy(root: Path, nacre: Nacre) -> None:
    assert nacre("sessions", "backup", str(root.parent / "copy")).code == 3
    assert not (root.parent / "copy").exists()


def test_a_disk_that_is_full_leaves_no_copy_that_looks_whole(root: Path, nacre: Nacre) -> None:
    nacre.fill("k")
    goal = root.parent / "copy"
    limited = f"ulimit -f 0; trap '' XFSZ; exec {sys.executable} -m nacre.cli sessions backup {goal}"
    done = subprocess.run(["sh", "-c", limited], check=False, capture_output=True, text=True)
    assert (done.returncode, "the store was not copied" in done.stderr, goal.exists()) == (1, True, False), done
