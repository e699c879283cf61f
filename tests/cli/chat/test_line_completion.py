"""What may follow on a command line, and what was typed before."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import anyio
import pytest

import nacre
from nacre import runtime
from nacre.cli.chat.input_history import Recall
from nacre.cli.chat.line_completion import Completion
from nacre.providers.scripted import Scripted
from tests.cli.chat.agents import App


def words(line: str, root: Path | str = ":memory:") -> list[str]:
    with nacre.open(root) as sessions:
        found = anyio.run(Completion(cast("runtime.App", App(sessions, Scripted([]))), Path()).choices, line)
    return [choice.word for choice in found]


def test_commands_are_completed() -> None:
    assert words("/re") == ["/resume", "/rewind"]
    assert words("re") == []


def test_models_are_completed() -> None:
    assert words("/model test/t") == ["test/two"]


def test_sessions_are_completed_with_the_newest_first(root: Path) -> None:
    with nacre.open(root) as sessions:
        for key in ("talk-1", "talk-2", "other"):
            sessions.add_message(key, "user", "hello")
    assert set(words("/resume talk", root)) == {"talk-1", "talk-2"}


def test_file_names_are_completed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "a.txt").touch()
    (tmp_path / ".hidden").touch()
    monkeypatch.chdir(tmp_path)
    assert words("/attach ") == ["notes/"]
    assert words("/attach notes/") == ["a.txt"]
    assert words(f"/attach {tmp_path}/n") == ["notes/"]
    assert words("/attach nowhere/") == []


def test_lines_are_remembered_for_their_writer_only(tmp_path: Path) -> None:
    path = tmp_path / "state" / "history"
    recall = Recall(path)
    for line in ("one", "two\nlines", "two\nlines", "  "):
        recall.add(line)
    assert Recall(path).lines == ["one", "two\nlines"]
    assert path.stat().st_mode & 0o777 == 0o600


def test_what_cannot_be_remembered_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not json\n7\n")
    assert Recall(tmp_path / "file").lines == []
    recall = Recall(tmp_path / "file" / "below")
    recall.add("one")
    assert recall.lines == ["one"]


def test_a_long_past_is_shortened(tmp_path: Path) -> None:
    path = tmp_path / "history"
    path.write_bytes(b'"x"\n' * 3000)
    assert len(Recall(path).lines) == 1000
    assert path.stat().st_size == 4000
