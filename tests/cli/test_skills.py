"""nacre skills."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import Nacre


@pytest.fixture
def place(nacre: Nacre, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home and a project with no skills in them."""
    (tmp_path / "project").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path / "project")
    return tmp_path / "project"


def test_a_new_skill_is_listed_and_right(nacre: Nacre, place: Path) -> None:
    made = nacre("skills", "new", "my-skill", "--description", "Do: it")
    assert made.out == f"{nacre.root}/home/skills/my-skill/SKILL.md\n"
    listed = nacre("skills", "list", "--json").json["items"]
    assert [(one["name"], one["from"]) for one in listed] == [
        ("my-skill", "user"),
        ("session-archaeology", "packaged"),
        ("writing-skills", "packaged"),
    ]
    assert listed[0]["description"] == "Do: it"
    assert nacre("skills", "check").code == 0


def test_a_name_that_cannot_be_or_is_taken_is_refused(nacre: Nacre, place: Path) -> None:
    assert nacre("skills", "new", "Bad Name").code == 2
    assert nacre("skills", "new", "../../up").code == 2
    assert nacre("skills", "new").code == 2
    assert nacre("skills", "new", "x", "--in", "here", "--json").json["path"] == str(place / "here" / "x" / "SKILL.md")
    again = nacre("skills", "new", "x", "--in", "here")
    assert again.code == 2
    assert "already" in again.err


@pytest.mark.parametrize("named", [".agents/skills/bad", ".agents/skills/bad/SKILL.md", "bad", "./.agents/skills"])
def test_what_is_wrong_is_told_and_is_exit_1(nacre: Nacre, place: Path, named: str) -> None:
    folder = place / ".agents" / "skills" / "bad"
    folder.mkdir(parents=True)
    (folder / "SKILL.md").write_text("---\nname: good\nx: y\n---\n")
    told = nacre("skills", "check", named)
    assert told.code == 1
    assert "wrong   there is no description" in told.out
    found = nacre("skills", "check", named, "--json").json
    assert found["ok"] is False
    assert found["skills"][0]["usable"] is False
    assert len(found["skills"][0]["errors"]) == 3


def test_an_unknown_skill_is_exit_3(nacre: Nacre, place: Path) -> None:
    assert nacre("skills", "check", "nobody").code == 3


def test_warnings_stand_beside_the_list(nacre: Nacre, place: Path) -> None:
    folder = place / ".nacre" / "skills" / "writing-skills"
    folder.mkdir(parents=True)
    (folder / "SKILL.md").write_text('---\nname: writing-skills\ndescription: "Mine\\e[2J"\n---\nx')
    listed = nacre("skills")
    assert "is hidden by" in listed.err
    assert "project" in listed.out
    assert "\x1b" not in listed.out
