"""Files of a user beside the store: replaced whole, or left as they were."""

from __future__ import annotations

from pathlib import Path

import pytest

from nacre.user_files import has_standby, locked, standby_folder, standby_places, state_folder, write_whole


def test_the_state_folder_is_where_the_variable_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/somebody")
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    assert state_folder() == "/home/somebody/.local/state/nacre"
    monkeypatch.setenv("XDG_STATE_HOME", "~/elsewhere")
    assert state_folder() == "/home/somebody/elsewhere/nacre"


def test_a_file_is_replaced_and_only_its_owner_reads_it(tmp_path: Path) -> None:
    file = tmp_path / "a" / "file"
    with locked(file.parent):
        write_whole(file, b"one")
        write_whole(file, b"two")
    assert (file.read_bytes(), file.stat().st_mode & 0o777) == (b"two", 0o600)
    assert list(file.parent.iterdir()) == [file]


def test_a_file_that_cannot_be_replaced_leaves_nothing_behind(tmp_path: Path) -> None:
    (tmp_path / "file").mkdir()
    with pytest.raises(IsADirectoryError):
        write_whole(tmp_path / "file", b"x")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_stray_file_among_the_places_of_standby_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    folder = Path(standby_folder("/store"))
    (folder / "0").mkdir(parents=True)
    (folder / ".DS_Store").write_text("x")
    assert (standby_places("/store"), has_standby("/store")) == ([str(folder / "0")], False)
    (folder / "0" / "k.json").write_text("{}")
    assert has_standby("/store")
