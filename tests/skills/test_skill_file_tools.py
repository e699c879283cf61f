"""What a skill's `allowed-tools` ask for, as rules."""

from __future__ import annotations

from pathlib import Path

import pytest

from nacre.skills.skill_file import permits, read
from tests.skills.folders import skill

TEXT = "---\nname: {name}\ndescription: x\nallowed-tools: "


@pytest.mark.parametrize(
    ("given", "rules"),
    [
        ("Bash(git:*) Bash(jq *) Read", ("shell(git *)", "shell(jq *)", "read_file")),
        ("Read, Write, Bash(npm test), Bash(npm run build:*)",
         ("read_file", "write_file", "shell(npm test)", "shell(npm run build *)")),
        ("[Read, 'Bash(git add *)']", ("read_file", "shell(git add *)")),
        ("Bash", ("shell",)),
        ("Bash(*)", ("shell",)),
        ("Write(src/**) Edit(docs/*.md)", ("write_file(src/**)", "edit_file(docs/*.md)")),
        ("WebFetch(domain:docs.python.org)", ("web_fetch(docs.python.org)",)),
        ("mcp__github__list_issues", ("github_list_issues",)),
        ("read_file list_files", ("read_file", "list_files")),
        ("Read Read", ("read_file",)),
        ("''", ()),
    ],
)  # fmt: skip
def test_the_names_of_other_programs_are_understood(tmp_path: Path, given: str, rules: tuple[str, ...]) -> None:
    found = read(skill(tmp_path, "one", f"{TEXT}{given}\n---\nx")).skill
    assert found is not None
    assert permits(found.allowed_tools) == rules


@pytest.mark.parametrize("given", ["Bash(echo shell (x)) Read", "Bash(git", "*", "Bash(a)Bash", "Read (shell)"])
def test_what_cannot_be_read_to_its_end_allows_nothing(tmp_path: Path, given: str) -> None:
    found = read(skill(tmp_path, "one", f"{TEXT}'{given}'\n---\nx")).skill
    assert found is not None
    assert permits(found.allowed_tools) == ()


def test_who_checks_a_skill_is_told_that_nothing_is_allowed(tmp_path: Path) -> None:
    wrong, right = (
        read(skill(tmp_path, name, f"{TEXT}{tools}\n---\nx")) for name, tools in (("a", "Bash(x"), ("b", "Read"))
    )
    assert wrong.advice == ("allowed-tools cannot be read, so nothing is allowed: write `Bash(git:*) Read`",)
    assert right.advice == ()
