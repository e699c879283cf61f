from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import anyio
import pytest

from nacre.errors import ConfigError
from nacre.sandbox import Found, Kind, find
from nacre.sandbox.policy import linked_folders
from tests.sandbox.places import usable


def found(workspace: Path, kind: Kind = "auto", hidden: tuple[Path, ...] = (), readable: Sequence[str] = ()) -> Found:
    places = [str(path) for path in hidden]
    return anyio.run(lambda: find(str(workspace), kind=kind, hidden=places, readable=readable))


def named(result: Found) -> str | None:
    return None if result.sandbox is None else result.sandbox.name


def test_bubblewrap_is_preferred(tmp_path: Path) -> None:
    usable("bwrap")
    assert named(found(tmp_path)) == "bwrap"


def test_a_bubblewrap_that_does_not_work_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usable("landlock")
    false = tmp_path / "bwrap"
    false.write_text("#!/bin/sh\necho it is broken\nexit 1\n")
    false.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert named(found(tmp_path)) == "landlock"
    assert "it is broken" in found(tmp_path, "bwrap").why


def test_where_nothing_works_it_says_why_and_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("sys.executable", "/bin/false")
    result = found(tmp_path)
    assert result.sandbox is None
    assert all(word in result.why for word in ("bwrap:", "landlock:", "apt-get install bubblewrap", "'off'"))


def test_there_is_none_on_other_systems(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    result = found(tmp_path)
    assert result.sandbox is None
    assert "set the sandbox to 'off'" in result.why


def test_off_is_a_sandbox_that_says_what_it_is(tmp_path: Path) -> None:
    result = found(tmp_path, "off")
    assert named(result) == "off"
    assert "every right of the user" in result.why


@pytest.mark.parametrize("workspace", ["/", "/usr/share", "/etc", "/proc", "/no/such/folder"])
def test_a_workspace_must_be_a_folder_of_the_users(workspace: str) -> None:
    with pytest.raises(ConfigError, match="workspace"):
        found(Path(workspace))


def test_a_hidden_path_in_the_workspace_must_exist(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="create it"):
        found(tmp_path, hidden=(tmp_path / "missing",))


def test_a_hidden_path_outside_need_not_exist(tmp_path: Path) -> None:
    usable("auto")
    (tmp_path / "room").mkdir()
    assert named(found(tmp_path / "room", hidden=(tmp_path / "missing",)))


def test_a_hidden_path_may_not_go_through_a_link_in_the_workspace(tmp_path: Path) -> None:
    (tmp_path / "room").mkdir()
    (tmp_path / "store").mkdir()
    (tmp_path / "room" / "link").symlink_to(tmp_path / "store")
    with pytest.raises(ConfigError, match="link"):
        found(tmp_path / "room", hidden=(tmp_path / "room" / "link",))


def test_the_workspace_cannot_be_hidden(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="separate them"):
        found(tmp_path, hidden=(tmp_path,))


def test_a_workspace_may_lie_in_a_hidden_folder(tmp_path: Path) -> None:
    usable("auto")
    (tmp_path / "room").mkdir()
    assert named(found(tmp_path / "room", hidden=(tmp_path,)))


def test_what_shall_be_readable_must_exist(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="does not exist"):
        found(tmp_path, readable=[str(tmp_path / "none")])


def test_of_another_place_only_the_folders_that_programs_are_linked_from_are_needed(tmp_path: Path) -> None:
    for folder in ("bin", "opt/node/bin", "opt/private", "usr"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "opt" / "node" / "bin" / "node").touch()
    (tmp_path / "opt" / "alone").touch()
    for name, target in (("node", "opt/node/bin/node"), ("alone", "opt/alone"), ("gone", "opt/gone/x"), ("u", "usr")):
        (tmp_path / "bin" / name).symlink_to(tmp_path / target)
    programs = [str(tmp_path / "bin"), str(tmp_path / "none")]
    assert linked_folders(programs, str(tmp_path / "opt")) == [str(tmp_path / "opt" / "node")]
