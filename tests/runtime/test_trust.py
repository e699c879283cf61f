"""Which folders are trusted: by their root, by name, and with what was accepted of them."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from nacre.config import Settings
from nacre.errors import ConfigError, ToolError
from nacre.runtime.folder import apply_config, digests, open_folder, shell_word, sources
from nacre.runtime.trust import TrustStore, find_root, why_broad
from nacre.skills import find as find_skills
from nacre.skills.catalogue import Catalogue, project_places

NOBODY = 65534
NONE = Settings({}, {})


@pytest.fixture
def store(tmp_path: Path) -> TrustStore:
    return TrustStore(tmp_path / "state")


@pytest.fixture
def project(home: Path) -> Path:
    return home / "project"


def test_the_root_is_where_git_begins(project: Path) -> None:
    (project / "a" / "b").mkdir(parents=True)
    assert find_root(project / "a" / "b") == project / "a" / "b"
    (project / ".git").mkdir()
    assert find_root(project / "a" / "b") == project
    (project / "a" / ".git").write_text("gitdir: elsewhere")
    assert find_root(project / "a" / "b") == project / "a"


def test_a_repository_that_is_the_home_directory_rules_nothing_below(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(project))
    (project / ".git").mkdir()
    (project / "below").mkdir()
    assert find_root(project / "below") == project / "below"


@pytest.mark.parametrize("place", ["/", "/tmp", "/var/tmp"])
def test_what_holds_everything_is_trusted_only_by_name(place: str) -> None:
    assert why_broad(Path(place))


def test_what_everybody_can_write_is_trusted_only_by_name(project: Path) -> None:
    assert why_broad(project) == ""
    project.chmod(0o777)
    assert why_broad(project) == "everybody can write to it"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
def test_another_users_folder_is_trusted_only_by_name(project: Path, store: TrustStore) -> None:
    theirs = project / "theirs"
    theirs.mkdir()
    os.chown(theirs, NOBODY, NOBODY)
    store.accept(project, {})
    assert why_broad(theirs) == "it belongs to another user"
    assert store.covering(theirs) is None


def test_trust_covers_what_is_below_but_no_repository(project: Path, store: TrustStore) -> None:
    store.accept(project, {})
    (project / "plain").mkdir()
    (project / "vendor" / ".git").mkdir(parents=True)
    found = store.covering(project / "plain")
    assert found is not None
    assert found[0] == project
    assert store.covering(project / "vendor") is None
    assert store.covering(project.parent) is None


def test_what_is_accepted_is_added_to_what_was(project: Path, store: TrustStore) -> None:
    store.accept(project, {"a": "1"})
    store.accept(project, {"b": "2"})
    assert store.entries()[str(project)].accepted == {"a": "1", "b": "2"}
    assert (store.revoke(project), store.revoke(project)) == (True, False)


def test_a_file_that_cannot_be_read_trusts_nothing_and_says_so(store: TrustStore) -> None:
    store.file.parent.mkdir()
    store.file.write_text("{]")
    with pytest.raises(ConfigError, match=r"trust\.json cannot be read.*remove it"):
        store.entries()


def test_any_file_of_a_skill_that_changes_makes_it_new(project: Path, store: TrustStore) -> None:
    skill = project / ".agents" / "skills" / "deploy"
    skill.mkdir(parents=True)
    (skill / "SKILL.md").write_text("---\nname: deploy\ndescription: How.\n---\nRun run.sh.")
    (skill / "run.sh").write_text("echo")
    store.accept(project, digests(sources(project, project)))
    assert open_folder(project, NONE, trust=store).follows(skill)
    (skill / "run.sh").write_text("evil")
    folder = open_folder(project, NONE, trust=store)
    assert not folder.follows(skill)
    assert [source.path for source in folder.pending] == [skill]


def test_long_instructions_are_cut_with_a_mark(project: Path) -> None:
    (project / "AGENTS.md").write_text("x" * 100_000)
    ((_, text),) = open_folder(project, NONE, is_trusted=True).instructions
    assert len(text) < 33_000
    assert text.endswith("[only the first 32,768 bytes are shown]")


def test_instructions_that_are_no_file_are_not_waited_for(project: Path) -> None:
    os.mkfifo(project / "AGENTS.md")
    folder = open_folder(project, NONE, is_trusted=True)
    assert folder.notes == ["AGENTS.md is not followed: it is not a regular file"]


def test_a_folder_may_name_more_folders_with_skills_inside_it(project: Path) -> None:
    (project / ".nacre").mkdir()
    (project / ".nacre/config.toml").write_text('[skills]\nfolders = ["docs/skills", "../out", "/etc"]\n')
    skill = project / "docs" / "skills" / "deploy"
    skill.mkdir(parents=True)
    (skill / "SKILL.md").write_text("---\nname: deploy\ndescription: How.\n---\n")
    folder = open_folder(project, NONE, is_trusted=True)
    assert folder.follows(skill)
    assert [note.split("'")[1] for note in folder.notes] == ["../out", "/etc"]


def test_a_skill_whose_instructions_are_a_link_is_not_followed(project: Path) -> None:
    skill = project / ".agents" / "skills" / "deploy"
    skill.mkdir(parents=True)
    (project / "text.md").write_text("---\nname: deploy\ndescription: How.\n---\n")
    (skill / "SKILL.md").symlink_to(project / "text.md")
    folder = open_folder(project, NONE, is_trusted=True)
    assert not folder.follows(skill)
    assert folder.notes == [".agents/skills/deploy is not followed: its SKILL.md is a link"]


def test_a_folder_raises_no_limit_of_an_agent(project: Path) -> None:
    (project / ".nacre").mkdir()
    (project / ".nacre/config.toml").write_text("[agent]\nmax_steps = 20\n")
    settings = Settings({"agents": {"clerk": {"max_steps": 5}}}, {})
    config = open_folder(project, settings, is_trusted=True).config
    steps = [apply_config(config, settings.for_agent(name)).number("agent.max_steps") for name in ("main", "clerk")]
    assert steps == [20, 5]


def test_a_link_to_the_file_stays_a_link(project: Path, store: TrustStore) -> None:
    store.file.parent.mkdir(parents=True, exist_ok=True)
    target = store.file.parent / "elsewhere.json"
    store.file.symlink_to(target)
    store.accept(project, {})
    assert store.file.is_symlink()
    assert str(project) in target.read_text()


def test_a_file_of_a_newer_version_is_not_rewritten(project: Path, store: TrustStore) -> None:
    store.file.parent.mkdir(parents=True, exist_ok=True)
    store.file.write_text('{"schema_version": 2, "folders": {}}')
    with pytest.raises(ConfigError, match="newer nacre"):
        store.accept(project, {})
    assert store.file.read_text() == '{"schema_version": 2, "folders": {}}'


def test_a_line_break_in_a_name_is_shown_and_quoted(project: Path) -> None:
    folder = project / "it's\nnot trusted"
    folder.mkdir(parents=True)
    (note,) = open_folder(folder, NONE, trust=TrustStore(project / "state")).notes
    word = shell_word(folder)
    assert "\n" not in note
    assert word in note
    done = subprocess.run(["bash", "-c", f"printf %s {word}"], capture_output=True, text=True, check=True)
    assert done.stdout == str(folder)


def test_a_changed_file_of_a_skill_is_not_served(project: Path) -> None:
    skill = project / ".agents" / "skills" / "x"
    skill.mkdir(parents=True)
    (skill / "SKILL.md").write_text("---\nname: x\ndescription: y\n---\nbody\n")
    (skill / "extra.md").write_text("good")
    folder = open_folder(project, NONE, is_trusted=True)
    found, _ = find_skills(project_places(project))
    catalogue = Catalogue([entry.skill for entry in found], is_current=folder.is_current)
    assert catalogue.load("x", "extra.md") == "good"
    (skill / "extra.md").write_text("evil")
    with pytest.raises(ToolError, match="changed since they were accepted"):
        catalogue.load("x", "extra.md")
