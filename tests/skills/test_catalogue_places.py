"""Where skills come from, and which of two holds."""

from __future__ import annotations

from pathlib import Path

from nacre.skills.catalogue import Place, find, folders, usual_places
from tests.skills.folders import GOOD, skill


def test_the_project_comes_before_the_user_and_the_user_before_us(tmp_path: Path) -> None:
    project, home, user = tmp_path / "p", tmp_path / "home", tmp_path / "user"
    skill(home / "skills", "same")
    skill(project / ".agents" / "skills", "same")
    skill(user / ".agents" / "skills", "writing-skills")
    found, warnings = find(usual_places(home=home, user=user, projects=[project]))
    whose = {one.skill.name: one.place.whose for one in found}
    assert whose == {"same": "project", "session-archaeology": "packaged", "writing-skills": "user"}
    assert len(warnings) == 2
    assert "'same' is hidden by" in warnings[0]


def test_a_project_that_is_left_out_brings_nothing(tmp_path: Path) -> None:
    skill(tmp_path / ".nacre" / "skills", "theirs")
    found, _ = find(usual_places(home=tmp_path / "w", user=tmp_path / "h"))
    assert [one.skill.name for one in found] == ["session-archaeology", "writing-skills"]


def test_a_skill_of_a_project_that_is_not_accepted_hides_no_other(tmp_path: Path) -> None:
    project, home = tmp_path / "p", tmp_path / "home"
    skill(home / "skills", "same")
    skill(project / ".agents" / "skills", "same")
    found, warnings = find(usual_places(home=home, user=tmp_path, projects=[project]), accepts=lambda _: False)
    assert {one.skill.name: one.place.whose for one in found}["same"] == "user"
    assert warnings == []


def test_a_broken_skill_is_warned_of_and_the_others_go_on(tmp_path: Path) -> None:
    skill(tmp_path, "bad", "nothing")
    skill(tmp_path, "good")
    found, warnings = find([Place(whose="user", folder=tmp_path)])
    assert [one.skill.name for one in found] == ["good"]
    assert warnings[-1] == f"{tmp_path / 'bad'}: it was skipped"


def test_skills_are_found_in_groups_but_not_in_one_another_or_too_deep(tmp_path: Path) -> None:
    skill(tmp_path / "group", "a")
    skill(tmp_path / "group" / "a" / "examples", "inner")
    skill(tmp_path / "1/2/3/4", "deep")
    skill(tmp_path / ".git", "no")
    (tmp_path / "loop").symlink_to(tmp_path)
    found = [folder.relative_to(tmp_path).as_posix() for folder in folders(Place(whose="user", folder=tmp_path))]
    assert found[0] == "group/a"
    assert not any("inner" in path or "deep" in path or "no" in path for path in found)


def test_one_folder_reached_twice_is_one_skill(tmp_path: Path) -> None:
    skill(tmp_path / "x", "a", GOOD)
    (tmp_path / "y").symlink_to(tmp_path / "x")
    found, warnings = find([Place(whose="project", folder=tmp_path / "x"), Place(whose="user", folder=tmp_path / "y")])
    assert len(found) == 1
    assert warnings == []
