"""No path, no link and no race leads out of a workspace."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from nacre.errors import ToolError
from nacre.tools.files.workspace import Workspace


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    folder = tmp_path / "outside"
    folder.mkdir()
    (folder / "secret").write_text("secret")
    return folder


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "root"
    (folder / "sub" / "deep").mkdir(parents=True)
    (folder / "a.txt").write_text("a")
    (folder / "sub" / "b.txt").write_text("b")
    return folder


def content(workspace: Workspace, path: str) -> str:
    with os.fdopen(workspace.read(path)) as file:
        return file.read()


def opened() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


@pytest.mark.parametrize(
    "path", ["a.txt", "./a.txt", "sub/../a.txt", "sub//deep/../../a.txt", "inner", "far", "to-sub/../a.txt", "chain"]
)
def test_every_way_inside_leads_to_the_file(root: Path, path: str) -> None:
    (root / "inner").symlink_to("a.txt")
    (root / "far").symlink_to(root / "a.txt")
    (root / "to-sub").symlink_to("sub/deep")
    (root / "chain").symlink_to("sub/./../inner")
    (root / "sub" / "a.txt").write_text("a")
    assert content(Workspace(root), path) == "a"


def test_an_absolute_path_inside_is_understood_also_by_another_spelling(root: Path, tmp_path: Path) -> None:
    (tmp_path / "alias").symlink_to(root)
    workspace = Workspace(tmp_path / "alias")
    assert content(workspace, str(root / "a.txt")) == "a"
    assert content(workspace, str(tmp_path / "alias" / "a.txt")) == "a"


@pytest.mark.parametrize(
    "path",
    [
        "../outside/secret",
        "sub/../../outside/secret",
        "{outside}/secret",
        "/etc/passwd",
        "{root}-other/x",
        "link",
        "folder/secret",
        "absolute/secret",
        "sub/up/secret",
        "loop",
        "~/secret",
        "",
        "a\0b",
    ],
)
def test_nothing_leads_out_for_reading_or_writing(root: Path, outside: Path, path: str) -> None:
    (root / "link").symlink_to("../outside/secret")
    (root / "folder").symlink_to("../outside")
    (root / "absolute").symlink_to(outside)
    (root / "sub" / "up").symlink_to("../../outside")
    (root / "loop").symlink_to("loop")
    spelled = path.format(outside=outside, root=root)
    before = opened()
    with pytest.raises(ToolError):
        os.close(Workspace(root).read(spelled))
    if path != "~/secret":
        with pytest.raises(ToolError):
            Workspace(root).replace(spelled, b"changed")
    assert (outside / "secret").read_text() == "secret"
    assert [path.name for path in outside.iterdir()] == ["secret"]
    assert opened() == before


SWAPPER = """
import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
os.chdir(sys.argv[1])
print("ready", flush=True)
while os.getppid() == int(sys.argv[2]):
    if libc.renameat2(-100, b"x", -100, b"y", 2):
        sys.exit(f"no exchange: {os.strerror(ctypes.get_errno())}")
"""


def test_a_directory_that_is_swapped_for_a_link_all_the_time_never_leads_out(root: Path, outside: Path) -> None:
    (root / "x").mkdir()
    (root / "x" / "secret").write_text("inside")
    (root / "y").symlink_to(outside)
    command = [sys.executable, "-c", SWAPPER, str(root), str(os.getpid())]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as swapper:
        assert swapper.stdout is not None
        swapper.stdout.readline()
        read, refused = _hammered(Workspace(root), 4000)
        swapper.kill()
    assert read == {"inside"}
    assert refused > 10
    assert (outside / "secret").read_text() == "secret"
    assert [path.name for path in outside.iterdir()] == ["secret"]


def _hammered(workspace: Workspace, times: int) -> tuple[set[str], int]:
    read: set[str] = set()
    refused = 0
    for _ in range(times):
        try:
            read.add(content(workspace, "x/secret"))
            workspace.replace("x/secret", b"inside")
        except ToolError:
            refused += 1
    return read, refused


@pytest.fixture
def guarded(root: Path) -> Workspace:
    (root / "store").mkdir()
    (root / "store" / "log").write_text("private")
    (root / "config.toml").write_text("private")
    (root / "tools").mkdir()
    (root / "tools" / "t.py").write_text("code")
    hidden = [str(root / "store"), str(root / "config.toml"), str(root / "memory"), str(root.parent)]
    return Workspace(root, hidden=hidden, frozen=[str(root / "tools")])


@pytest.mark.parametrize(
    "path",
    [
        "store/log",
        "store",
        "sub/../store/log",
        "alias/log",
        "hard",
        "config.toml",
        "memory/x",
        "memory",
        "Store/../store/log",
    ],
)
def test_what_is_hidden_is_neither_read_nor_written_by_any_name(guarded: Workspace, root: Path, path: str) -> None:
    (root / "alias").symlink_to("store")
    (root / "hard").hardlink_to(root / "config.toml")
    with pytest.raises(ToolError):
        os.close(guarded.read(path))
    with pytest.raises(ToolError):
        guarded.replace(path, b"changed")
    assert not (root / "memory").exists()
    assert (root / "store" / "log").read_text() == (root / "config.toml").read_text() == "private"


def test_a_hidden_path_that_holds_the_workspace_forbids_nothing_in_it(guarded: Workspace) -> None:
    assert content(guarded, "a.txt") == "a"


@pytest.mark.parametrize("path", ["tools/t.py", "tools/new.py", "tools/sub/new.py", "tools", "link/new.py"])
def test_what_is_frozen_is_read_but_not_written(guarded: Workspace, root: Path, path: str) -> None:
    (root / "link").symlink_to("tools")
    with pytest.raises(ToolError):
        guarded.replace(path, b"changed")
    assert content(guarded, "tools/t.py") == "code"
    assert [path.name for path in (root / "tools").iterdir()] == ["t.py"]


def test_devices_and_pipes_are_refused_without_waiting(root: Path) -> None:
    os.mkfifo(root / "pipe")
    with pytest.raises(ToolError, match="not a regular file"):
        Workspace(root).read("pipe")
    with pytest.raises(ToolError, match="not a regular file"):
        Workspace(root).replace("pipe", b"")


def test_a_write_makes_directories_keeps_the_mode_and_leaves_nothing_behind(root: Path) -> None:
    workspace = Workspace(root)
    assert workspace.replace("new/er/file", b"1") is True
    (root / "new/er/file").chmod(0o755)
    assert workspace.replace("new/er/file", b"2") is False
    assert (root / "new/er/file").read_bytes() == b"2"
    assert (root / "new/er/file").stat().st_mode & 0o777 == 0o755
    assert [path.name for path in (root / "new/er").iterdir()] == ["file"]


@pytest.mark.parametrize("mode", [0o4755, 0o2755, 0o6711])
def test_a_write_keeps_no_set_id_bit(root: Path, mode: int) -> None:
    (root / "program").write_text("old")
    (root / "program").chmod(mode)
    Workspace(root).replace("program", b"new")
    assert (root / "program").stat().st_mode & 0o7777 == mode & 0o777


def test_a_write_through_a_link_inside_changes_what_it_points_to(root: Path) -> None:
    (root / "link").symlink_to("sub/b.txt")
    Workspace(root).replace("link", b"changed")
    assert (root / "link").is_symlink()
    assert (root / "sub" / "b.txt").read_text() == "changed"


def test_a_read_only_file_and_a_directory_are_not_replaced(root: Path) -> None:
    (root / "a.txt").chmod(0o444)
    with pytest.raises(ToolError, match="read-only"):
        Workspace(root).replace("a.txt", b"")
    with pytest.raises(ToolError, match="is a directory"):
        Workspace(root).replace("sub", b"")


def test_a_file_that_changed_meanwhile_is_not_overwritten(root: Path) -> None:
    status = (root / "a.txt").stat()
    (root / "a.txt").write_text("theirs, and longer")
    with pytest.raises(ToolError, match="changed meanwhile"):
        Workspace(root).replace("a.txt", b"ours", expected=status)
    assert (root / "a.txt").read_text() == "theirs, and longer"


@pytest.mark.parametrize(
    "path",
    [
        "AGENTS.md",
        "sub/claude.MD",
        ".nacre/config.toml",
        "a/../.agents/skills/x/SKILL.md",
        "deep/er/.claude/settings.json",
        ".git/hooks/pre-commit",
        ".git",
        "link/config",
        "innocent.md",
    ],
)
def test_what_tells_agents_or_git_what_to_do_is_protected(tmp_path: Path, path: str) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / "link").symlink_to(".git")
    (tmp_path / "innocent.md").symlink_to("AGENTS.md")
    assert Workspace(tmp_path).is_protected(path)
    assert Workspace(tmp_path).is_protected(str(tmp_path / path))


@pytest.mark.parametrize("path", ["README.md", "agents.md.txt", ".gitignore", ".github/workflows/x.yml", "nacre/x"])
def test_other_files_are_not_protected(tmp_path: Path, path: str) -> None:
    assert not Workspace(tmp_path).is_protected(path)
