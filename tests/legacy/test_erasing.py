"""Deleting a migrated session erases the file that it came from, too."""

from __future__ import annotations

import json
from pathlib import Path

import nacre


def document(key: str, text: str) -> str:
    return json.dumps({"key": key, "messages": [{"role": "user", "content": text}], "summary": ""})


def test_delete_erases_the_original_of_a_migrated_session(tmp_path: Path) -> None:
    (tmp_path / "one.json").write_text(document("one", "a"))
    (tmp_path / "two.json").write_text(document("two", "b"))
    with nacre.open(tmp_path) as sessions:
        sessions.delete("one")
    assert sorted(file.name for file in tmp_path.glob("*.json*")) == ["two.json.migrated"]


def test_delete_leaves_a_file_of_that_name_with_other_content(tmp_path: Path) -> None:
    (tmp_path / "one.json").write_text(document("one", "a"))
    with nacre.open(tmp_path) as sessions:
        (tmp_path / "one.json.migrated.2").write_text("somebody's own")
        sessions.delete("one")
    assert [file.name for file in tmp_path.glob("one.json*")] == ["one.json.migrated.2"]


def test_deleting_a_fork_leaves_the_original_of_its_parent(tmp_path: Path) -> None:
    (tmp_path / "one.json").write_text(document("one", "a"))
    with nacre.open(tmp_path) as sessions:
        sessions.fork("one", "fork")
        sessions.delete("fork")
        assert [file.name for file in tmp_path.glob("one.json*")] == ["one.json.migrated"]
        sessions.delete("one")
    assert not list(tmp_path.glob("one.json*"))
