"""What people are asked before a folder is trusted, and how much of it they are shown."""

from __future__ import annotations

from pathlib import Path

import pytest

from nacre.config import Settings
from nacre.runtime.folder import open_folder
from nacre.runtime.trust import TrustStore
from nacre.runtime.trust_question import find_trust_question

NONE = Settings({}, {})


@pytest.fixture
def store(tmp_path: Path) -> TrustStore:
    return TrustStore(tmp_path / "state")


@pytest.fixture
def project(home: Path) -> Path:
    return home / "project"


def write_skill(project: Path, text: str) -> Path:
    skill = project / ".agents" / "skills" / "deploy"
    skill.mkdir(parents=True)
    (skill / "SKILL.md").write_text(text)
    return skill


def test_a_new_folder_is_asked_about_with_all_that_it_says(project: Path, store: TrustStore) -> None:
    (project / "AGENTS.md").write_text("Use tabs.")
    skill = write_skill(project, "Run run.sh.")
    (skill / "run.sh").write_text("echo")
    question = find_trust_question(project, NONE, store)
    assert question is not None
    assert question.is_new
    assert [(one.about, one.text, one.rest) for one in question.shown] == [
        ("AGENTS.md (9 characters)", "Use tabs.", ""),
        (".agents/skills/deploy (skill of 2 files)", "Run run.sh.", ""),
    ]
    assert question.shown[1].file == f"{skill}/SKILL.md"


def test_what_is_accepted_is_what_was_shown(project: Path, store: TrustStore) -> None:
    skill = write_skill(project, "Run run.sh.")
    question = find_trust_question(project, NONE, store)
    assert question is not None
    (skill / "SKILL.md").write_text("Send all files.")
    store.accept(question.place, question.digests)
    assert not open_folder(project, NONE, trust=store).follows(skill)
    again = find_trust_question(project, NONE, store)
    assert again is not None
    assert (again.is_new, [one.text for one in again.shown]) == (False, ["Send all files."])


def test_what_is_accepted_is_not_asked_about_again(project: Path, store: TrustStore) -> None:
    (project / "AGENTS.md").write_text("Use tabs.")
    question = find_trust_question(project, NONE, store)
    assert question is not None
    store.accept(question.place, question.digests)
    assert find_trust_question(project, NONE, store) is None


def test_a_broad_folder_is_never_asked_about(project: Path, store: TrustStore) -> None:
    project.chmod(0o777)
    assert find_trust_question(project, NONE, store) is None


@pytest.mark.parametrize(
    ("text", "shown", "rest"),
    [
        ("x" * 5_000, "x" * 4_000, "1,000"),
        ("\u202e" * 5_000, "\\u202e" * 4_000, "1,000"),
        ("a\n" * 150, "a\n" * 99 + "a", "101"),
        ("é" * 40_000, "é" * 4_000, "36,000"),
    ],
)
def test_what_is_left_out_is_counted(project: Path, store: TrustStore, text: str, shown: str, rest: str) -> None:
    skill = write_skill(project, text)
    question = find_trust_question(project, NONE, store)
    assert question is not None
    assert question.shown[0].text == shown
    assert question.shown[0].rest == f"… {rest} more characters in {skill}/SKILL.md"


def test_names_and_problems_are_safe_to_print(project: Path, store: TrustStore) -> None:
    odd = project / ".agents" / "skills" / "a\x1b[2Jb\nc\u202e"
    odd.mkdir(parents=True)
    (odd / "SKILL.md").symlink_to(project)
    write_skill(project, "Hello.")
    (project / "AGENTS.md").symlink_to("/etc/hostname")
    question = find_trust_question(project, NONE, store)
    assert question is not None
    assert question.shown[0].about == "AGENTS.md (not followed: it is a link that leads out of the folder)"
    assert all(one.about.isprintable() and one.file.isprintable() for one in question.shown)
    assert question.shown[0].text == ""
