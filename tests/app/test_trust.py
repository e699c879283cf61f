"""Which folders are trusted: by their root, by name, and with what was accepted of them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from nacre.app.folder import digests, open_folder, sources
from nacre.app.folder_config import apply
from nacre.app.trust import TrustStore, find_root, why_broad
from nacre.config import Settings
from nacre.errors import ConfigError

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
    steps = [apply(config, settings.for_agent(name)).number("agent.max_steps") for name in ("main", "clerk")]
    assert steps == [20, 5]
