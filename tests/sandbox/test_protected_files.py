"""Files that tell agents or git what to do: no command changes or creates one, in any sandbox and without one."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from nacre.agent.ports import Finished
from tests.sandbox.places import CONFINED, ran

every_kind = pytest.mark.parametrize("kind", [*CONFINED, "off"])


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    return folder


def shell(kind: str, project: Path, command: str) -> Finished:
    return ran(kind, project, "sh", "-c", command, aside=project.parent / "aside")


def set_aside(project: Path) -> dict[str, str]:
    """The files that were put aside, by name, with their text."""
    aside = project.parent / "aside"
    files = [path for path in aside.rglob("*") if path.is_file() and not path.is_symlink()]
    return {path.name: path.read_text() for path in files}


def git(folder: Path, *words: str) -> None:
    subprocess.run(["git", "-c", "init.defaultBranch=main", *words], cwd=folder, check=True, capture_output=True)


@every_kind
@pytest.mark.parametrize("name", ["AGENTS.md", "CLAUDE.md", ".nacre/config.toml", ".agents/skills/x/SKILL.md"])
def test_a_file_that_is_there_stays_as_it_is(kind: str, name: str, project: Path) -> None:
    file = project / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("mine")
    top = name.partition("/")[0]
    command = f"echo evil >>{name}; echo evil >{name}.new; mv {name}.new {name}; rm -rf {top}; echo go >other"
    shell(kind, project, command)
    assert file.read_text() == "mine"
    assert (project / "other").read_text() == "go\n"


@every_kind
@pytest.mark.parametrize("name", ["AGENTS.md", "CLAUDE.md", ".nacre/config.toml", ".claude/skills/x/SKILL.md"])
def test_a_file_that_was_missing_is_put_aside(kind: str, name: str, project: Path) -> None:
    finished = shell(kind, project, f"mkdir -p $(dirname {name}); echo evil >{name}; echo done >other")
    assert [path.name for path in project.iterdir()] == ["other"]
    assert set_aside(project) == {name.rpartition("/")[2]: "evil\n"}
    top = name.partition("/")[0]
    assert f"{top} is protected and was created by the command" in finished.notes[0]


@every_kind
def test_a_link_is_restored(kind: str, project: Path) -> None:
    (project / "AGENTS.md").write_text("mine")
    (project / "CLAUDE.md").symlink_to("AGENTS.md")
    finished = shell(kind, project, "rm CLAUDE.md; echo evil >CLAUDE.md")
    assert (project / "CLAUDE.md").readlink() == Path("AGENTS.md")
    assert (project / "CLAUDE.md").read_text() == "mine"
    assert set_aside(project) == {"CLAUDE.md": "evil\n"}
    assert len(finished.notes) == 1


@every_kind
def test_hooks_and_settings_of_git_stay_as_they_are(kind: str, project: Path) -> None:
    git(project, "init")
    before = (project / ".git/config").read_text()
    attack = "git config core.fsmonitor ./evil; echo evil >.git/hooks/pre-commit; mv .git old; mkdir -p .git/hooks"
    shell(kind, project, f"{attack}; echo '[core] hooksPath=x' >.git/config; echo /x >.git/commondir")
    assert (project / ".git/config").read_text() == before
    assert not [path for path in (project / ".git/hooks").iterdir() if path.suffix != ".sample"]
    assert not (project / ".git/commondir").exists()


@every_kind
def test_a_commit_works(kind: str, project: Path) -> None:
    git(project, "init")
    identity = "git -c user.name=n -c user.email=e"
    finished = shell(
        kind, project, f"echo text >file; git add file && {identity} commit -qm first && git log --oneline"
    )
    assert (finished.status, finished.notes) == (0, ())
    assert finished.output.endswith(b"first\n")


@every_kind
def test_a_new_repository_is_left_alone_but_not_its_hooks(kind: str, project: Path) -> None:
    assert shell(kind, project, "git init -q .").notes == ()
    assert (project / ".git/config").exists()
    assert len(shell(kind, project, "git config core.fsmonitor ./evil; true").notes) == (1 if kind == "off" else 0)
    assert "fsmonitor" not in (project / ".git/config").read_text()


@every_kind
def test_a_new_repository_with_a_hook_or_a_program_is_disarmed(kind: str, project: Path) -> None:
    finished = shell(
        kind, project, "git init -q .; git config core.fsmonitor ./evil; echo evil >.git/hooks/post-checkout"
    )
    assert len(finished.notes) == 2
    assert not (project / ".git/config").exists()
    assert not (project / ".git/hooks").exists()


@every_kind
def test_a_pointer_to_another_repository_is_put_aside(kind: str, project: Path) -> None:
    shell(kind, project, "git init -q evil; echo 'gitdir: evil/.git' >.git")
    assert not (project / ".git").exists()
    assert set_aside(project)[".git"] == "gitdir: evil/.git\n"


@every_kind
def test_a_folder_that_forbids_it_is_put_aside_too(kind: str, project: Path) -> None:
    shell(kind, project, "mkdir -p .claude/skills/x; echo evil >.claude/skills/x/SKILL.md; chmod -R 0 .claude")
    assert list(project.iterdir()) == []


@every_kind
def test_a_file_that_the_user_makes_between_two_commands_is_protected(kind: str, project: Path) -> None:
    shell(kind, project, "true")
    (project / "AGENTS.md").write_text("mine")
    shell(kind, project, "echo evil >>AGENTS.md; true")
    assert (project / "AGENTS.md").read_text() == "mine"


@every_kind
def test_what_was_put_there_is_put_aside_when_the_time_is_up(kind: str, project: Path) -> None:
    ran(kind, project, "sh", "-c", "echo evil >AGENTS.md; sleep 100", timeout=1, aside=project.parent / "aside")
    assert list(project.iterdir()) == []


@every_kind
def test_a_folder_with_any_names_is_restored(kind: str, project: Path) -> None:
    (project / ".claude").mkdir()
    for name in ("#notes", "-x", "settings.json"):
        (project / ".claude" / name).write_text(name)
    shell(kind, project, "rm -rf .claude")
    assert sorted(path.read_text() for path in (project / ".claude").iterdir()) == ["#notes", "-x", "settings.json"]


@every_kind
def test_a_file_with_a_second_name_is_restored(kind: str, project: Path) -> None:
    (project / "notes.txt").write_text("mine")
    (project / "AGENTS.md").hardlink_to(project / "notes.txt")
    finished = shell(kind, project, "echo evil >>notes.txt")
    assert (project / "AGENTS.md").read_text() == "mine"
    assert "AGENTS.md is protected and was changed" in finished.notes[0]


@every_kind
def test_a_nested_repository_keeps_its_hooks_settings_and_instructions(kind: str, project: Path) -> None:
    nested = project / "libs" / "sub"
    nested.mkdir(parents=True)
    git(nested, "init", "-q")
    (nested / "AGENTS.md").write_text("mine")
    config = (nested / ".git" / "config").read_text()
    command = "cd libs/sub; echo e >.git/hooks/pre-commit; echo e >>.git/config; echo e >AGENTS.md; echo e >CLAUDE.md"
    finished = shell(kind, project, f"{command}; echo go >other")
    assert not (nested / ".git" / "hooks" / "pre-commit").exists()
    assert (nested / ".git" / "config").read_text() == config
    assert (nested / "AGENTS.md").read_text() == "mine"
    assert not (nested / "CLAUDE.md").exists()
    assert (nested / "other").exists()
    assert len(finished.notes) == 4


@every_kind
def test_a_worktree_keeps_its_repository(kind: str, project: Path) -> None:
    git(project, "init", "-q")
    git(project, "-c", "user.name=a", "-c", "user.email=a@b", "commit", "-q", "--allow-empty", "-m", "a")
    git(project, "worktree", "add", "-q", str(project.parent / "tree"))
    common = project / ".git" / "worktrees" / "tree" / "commondir"
    before = common.read_text()
    finished = shell(kind, project, "cd .git/worktrees/tree; echo /evil >commondir; echo x >config.worktree")
    assert common.read_text() == before
    assert not common.with_name("config.worktree").exists()
    assert len(finished.notes) == 2


@every_kind
def test_new_and_removed_folders_are_left_alone(kind: str, project: Path) -> None:
    (project / "old").mkdir()
    (project / "old" / "AGENTS.md").write_text("mine")
    finished = shell(kind, project, "rm -rf old; mkdir new; echo theirs >new/AGENTS.md; git init -q new/repo")
    assert finished.notes == ()
    assert sorted(path.name for path in project.iterdir()) == ["new"]


def test_nothing_outside_the_folder_is_moved_through_a_link(project: Path) -> None:
    other = project.parent / "other"
    other.mkdir()
    git(other, "init", "-q")
    hook = other / ".git" / "hooks" / "pre-commit"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text("theirs")
    (project / "sub").mkdir()
    (project / "sub" / "AGENTS.md").write_text("mine")
    (other / "AGENTS.md").write_text("theirs")
    finished = shell("off", project, f"ln -s {other}/.git .git; rm -rf sub; ln -s {other} sub")
    assert hook.read_text() == (other / "AGENTS.md").read_text() == "theirs"
    assert not (project / ".git").is_symlink()
    assert any("replaced by a link" in note for note in finished.notes)
