from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from pathlib import Path

import pytest

import nacre
from nacre.history.session_state import RULES
from nacre.legacy.detect import DONE, is_due
from nacre.legacy.migration import migrate_at_start
from nacre.storage.file_store import FileStore
from nacre.storage.system import System


def test_a_new_store_has_nothing_to_migrate(root: Path) -> None:
    assert not is_due(System(), str(root))
    FileStore(str(root), rules=RULES)
    assert not is_due(System(), str(root))


def test_a_store_is_looked_through_once(root: Path) -> None:
    store = FileStore(str(root), rules=RULES)
    nacre.Sessions(store).add_message("k", "user", "a")
    assert is_due(System(), str(root))
    migrate_at_start(store)
    assert not is_due(System(), str(root))


@pytest.mark.parametrize(
    "name", ["a.json", "a.jsonl", "a.jsonl.archived", "sessions/a.json", "sessions/a.jsonl.migrating.2"]
)
def test_any_name_of_an_earlier_session_is_a_sign(name: str, root: Path) -> None:
    store = FileStore(str(root), rules=RULES)
    nacre.Sessions(store).add_message("k", "user", "a")
    migrate_at_start(store)
    (root / name).touch()
    assert is_due(System(), str(root))


def test_looking_for_signs_loads_nothing_else() -> None:
    program = "import sys, nacre.legacy.detect; print(sorted(m for m in sys.modules if m.startswith('nacre.legacy')))"
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert found.stdout == "['nacre.legacy', 'nacre.legacy.detect']\n"


def test_the_package_gives_what_it_names_and_nothing_else() -> None:
    import nacre.legacy as package  # noqa: PLC0415 - the module itself is looked at

    assert all(getattr(package, name).__name__ == name for name in package.__all__)
    with pytest.raises(AttributeError, match="nothing"):
        _ = package.nothing


def aged(root: Path) -> None:
    """Let the folder of the logs be as old as one of yesterday."""
    os.utime(root / "sessions", ns=(10**18, 10**18 + len(list((root / "sessions").iterdir()))))


class Listing(System):
    """The operating system, and which folders were listed."""

    def __init__(self) -> None:
        self.listed: list[str] = []

    def listdir(self, path: str) -> list[str]:
        self.listed.append(path)
        return super().listdir(path)


def test_logs_are_not_listed_again_while_their_folder_is_as_it_was(root: Path) -> None:
    store = FileStore(str(root), rules=RULES)
    nacre.Sessions(store).add_message("k", "user", "a")
    migrate_at_start(store)
    aged(root)
    first, second = Listing(), Listing()
    assert not is_due(first, str(root))
    assert not is_due(second, str(root))
    assert (len(first.listed), second.listed) == (2, [str(root)])


def test_a_name_that_comes_later_is_a_sign(root: Path) -> None:
    test_logs_are_not_listed_again_while_their_folder_is_as_it_was(root)
    (root / "sessions" / "late.json").touch()
    assert is_due(System(), str(root))
    aged(root)
    assert is_due(System(), str(root))


def test_a_folder_that_has_just_changed_is_not_taken_for_known(root: Path) -> None:
    store = FileStore(str(root), rules=RULES)
    nacre.Sessions(store).add_message("k", "user", "a")
    migrate_at_start(store)
    first, second = Listing(), Listing()
    assert not is_due(first, str(root))
    assert not is_due(second, str(root))
    assert first.listed == second.listed == [str(root), f"{root}/sessions"]


def test_a_migration_in_another_process_is_not_disturbed(root: Path) -> None:
    store = FileStore(str(root), rules=RULES)
    nacre.Sessions(store).add_message("k", "user", "a")
    migrate_at_start(store)
    aged(root)
    with (root / "migrating.lock").open("rb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        assert not is_due(System(), str(root))
        assert held.read() == DONE
