"""Copies of files before they are written, and how they are put back."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import nacre
from nacre.runtime.file_copies import KIND, FileHistory
from nacre.tools.files.workspace import Workspace


@pytest.fixture
def history(tmp_path: Path) -> Iterator[FileHistory]:
    with nacre.open(":memory:") as sessions:
        found = FileHistory(sessions, lambda key: key)
        (tmp_path / "place").mkdir()
        found.workspace = Workspace(tmp_path / "place")
        sessions.add_message("k", "user", "go")
        yield found


def write(history: FileHistory, path: str, after: bytes) -> int:
    """Write as the tools do; gives the turn."""
    assert history.workspace is not None
    file = Path(history.workspace.root, path)
    history.keep("k", path, file.read_bytes() if file.exists() else None, after)
    file.write_bytes(after)
    return int(list(history._sessions.records("k", KIND))[-1].data["turn"])


@pytest.mark.parametrize("before", [b"a\n", b"caf\xe9\0", b"", None])
def test_a_file_is_put_back_byte_for_byte(history: FileHistory, tmp_path: Path, before: bytes | None) -> None:
    file = tmp_path / "place/a"
    if before is not None:
        file.write_bytes(before)
    turn = write(history, "a", b"new")
    write(history, "a", b"newer")
    assert [(one.path, one.after) for one in history.changes("k", turn)] == [("a", "newer")]
    (line,) = history.restore("k", turn)
    assert line == ("a: removed, it was new" if before is None else "a: restored")
    assert (file.read_bytes() if file.exists() else None) == before
    assert history.restore("k", turn) == ["a: already as it was"]
    assert history.changes("k", turn) == []


def test_each_turn_has_its_own_copies(history: FileHistory, tmp_path: Path) -> None:
    first = write(history, "a", b"1")
    history._sessions.add_message("k", "assistant", "done")
    history._sessions.add_message("k", "user", "more")
    second = write(history, "b", b"2")
    assert first < second
    assert history.restore("k", second) == ["b: removed, it was new"]
    assert (tmp_path / "place/a").read_bytes() == b"1"


def test_another_folder_s_copies_are_left_alone(history: FileHistory, tmp_path: Path) -> None:
    turn = write(history, "a", b"1")
    (tmp_path / "other").mkdir()
    history.workspace = Workspace(tmp_path / "other")
    assert history.restore("k", turn) == []
    assert history.changes("k", turn) == []


def test_a_fork_can_undo_what_it_shares(history: FileHistory) -> None:
    turn = write(history, "a", b"1")
    history._sessions.add_message("k", "assistant", "done")
    history._sessions.fork("k", "k2")
    assert history.restore("k2", turn) == ["a: removed, it was new"]


def test_what_was_removed_or_replaced_since_is_left_alone(history: FileHistory, tmp_path: Path) -> None:
    turn = write(history, "a", b"1")
    (tmp_path / "place/a").write_bytes(b"mine")
    assert history.restore("k", turn) == ["a: not changed, it was changed after this turn"]
    (tmp_path / "place/a").unlink()
    (tmp_path / "place/a").mkdir()
    (line,) = history.restore("k", turn)
    assert "is a directory" in line


def test_a_file_that_became_a_folder_hides_no_other_change(history: FileHistory, tmp_path: Path) -> None:
    turn = write(history, "a", b"1")
    write(history, "b", b"2")
    (tmp_path / "place/a").unlink()
    (tmp_path / "place/a").mkdir()
    first, second = history.changes("k", turn)
    assert first.path == "a"
    assert first.after is not None
    assert "directory" in first.after or "folder" in first.after
    assert (second.path, second.after) == ("b", "2")
