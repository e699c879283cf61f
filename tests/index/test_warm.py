"""A listing straight from the index: the same as the library's, or none at all."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from nacre import Sessions
from nacre.index import Index
from nacre.index.warm import FILE, Listed, folder_of, listed
from tests.index.conftest import infos
from tests.paths import log_of


@pytest.fixture
def warm(sessions: Sessions, index: Index) -> Index:
    for key in ("one", "telegram:42", "日本"):
        sessions.add_message(key, "user", "hello")
    sessions.set_meta("one", title="A title", tags=["work", "home"], pinned=True, cwd="/tmp")
    sessions.add_message("closed", "user", "bye")
    sessions.archive("closed")
    _listed(index)
    return index


def _listed(index: Index) -> list[Listed]:
    return [
        Listed(
            info.key,
            info.title,
            info.messages,
            info.created,
            info.updated,
            info.bytes,
            info.pinned,
            info.tags,
            info.cwd,
            info.role,
            info.model,
        )
        for info in infos(index)
    ]


def _database(root: Path, cache: Path) -> Path:
    return Path(folder_of(str(root), str(cache))) / FILE


def test_it_says_what_the_library_says(warm: Index, root: Path, cache: Path) -> None:
    assert sorted(listed(str(root), cache=str(cache)) or []) == sorted(_listed(warm))


def test_a_log_that_has_grown_is_read_by_the_library(warm: Index, sessions: Sessions, root: Path, cache: Path) -> None:
    sessions.add_message("one", "user", "more")
    assert listed(str(root), cache=str(cache)) is None
    _listed(warm)
    assert {info.key: info.messages for info in listed(str(root), cache=str(cache)) or []}["one"] == 2


def test_a_new_session_is_found_by_the_library(warm: Index, sessions: Sessions, root: Path, cache: Path) -> None:
    sessions.add_message("new", "user", "hello")
    assert listed(str(root), cache=str(cache)) is None


def test_a_session_that_went_is_missed(warm: Index, root: Path, cache: Path) -> None:
    log_of(root, "one").unlink()
    assert listed(str(root), cache=str(cache)) is None


@pytest.mark.parametrize("name", ["old.json", "old.jsonl", "old.jsonl.archived", "sessions/old.json"])
def test_what_an_earlier_agent_left_is_left_to_the_library(name: str, warm: Index, root: Path, cache: Path) -> None:
    (root / name).write_text("{}")
    assert listed(str(root), cache=str(cache)) is None


def test_without_an_index_there_is_nothing_and_none_is_made(sessions: Sessions, root: Path, cache: Path) -> None:
    sessions.add_message("one", "user", "hello")
    assert listed(str(root), cache=str(cache)) is None
    assert not cache.exists()


def test_a_broken_index_is_not_believed(warm: Index, root: Path, cache: Path) -> None:
    warm.close()
    _database(root, cache).write_bytes(b"no database" * 500)
    assert listed(str(root), cache=str(cache)) is None


def test_values_that_cannot_be_are_not_believed(warm: Index, root: Path, cache: Path) -> None:
    with sqlite3.connect(_database(root, cache)) as connection:
        connection.execute("UPDATE log SET updated = 'yesterday'")
    connection.close()
    assert listed(str(root), cache=str(cache)) is None


def test_an_index_of_another_version_is_not_read(warm: Index, root: Path, cache: Path) -> None:
    with sqlite3.connect(_database(root, cache)) as connection:
        connection.execute("PRAGMA user_version = 99")
    connection.close()
    assert listed(str(root), cache=str(cache)) is None


def test_an_index_that_is_locked_is_not_waited_for(warm: Index, root: Path, cache: Path) -> None:
    warm.close()
    other = sqlite3.connect(_database(root, cache), isolation_level=None)
    other.execute("PRAGMA locking_mode = EXCLUSIVE")
    other.execute("BEGIN EXCLUSIVE")
    assert listed(str(root), cache=str(cache)) is None
    other.close()


def test_a_link_in_place_of_the_index_is_not_followed(warm: Index, root: Path, cache: Path) -> None:
    warm.close()
    folder = _database(root, cache).parent
    folder.rename(root.parent / "elsewhere")
    folder.symlink_to(root.parent / "elsewhere")
    assert listed(str(root), cache=str(cache)) is None


def test_it_loads_neither_the_store_nor_openssl(warm: Index, root: Path, cache: Path) -> None:
    code = (
        "import sys; from nacre.index.warm import listed; assert listed(sys.argv[1], cache=sys.argv[2]);"
        "print(*(name for name in ('msgspec', 'hashlib', 'nacre.storage', 'nacre.records') if name in sys.modules))"
    )
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "COV"))}
    command = [sys.executable, "-c", code, str(root), str(cache)]
    assert subprocess.run(command, check=True, capture_output=True, text=True, env=clean).stdout.strip() == ""
