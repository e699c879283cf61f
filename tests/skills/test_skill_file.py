"""SKILL.md is checked strictly and loaded leniently."""

from __future__ import annotations

import os
from importlib.util import find_spec
from pathlib import Path

import pytest

from nacre.skills.catalogue import PACKAGED
from nacre.skills.skill_file import make, read
from tests.skills.folders import GOOD, skill

needs_reference = pytest.mark.skipif(
    find_spec("skills_ref") is None, reason="the reference validator is not installed: pip install skills-ref"
)
FULL = """---
name: {name}
description: >
  Does a thing.
  Use when asked.
license: MIT
compatibility: needs git
metadata:
  version: 1.0
  draft: yes
allowed-tools: Bash(git:*) Read
---
# Body

---
a rule above
"""


def test_a_whole_skill_is_read_with_every_value_as_text(tmp_path: Path) -> None:
    found = read(skill(tmp_path, text=FULL))
    assert found.errors == found.advice == ()
    assert found.skill is not None
    assert found.skill.description == "Does a thing. Use when asked."
    assert found.skill.metadata == {"version": "1.0", "draft": "yes"}
    assert found.skill.allowed_tools == "Bash(git:*) Read"
    assert found.skill.body == "# Body\n\n---\na rule above"


# text; what the check says; whether it can be used all the same; whether the reference validator finds it valid
CASES = [
    (GOOD, "", True, True),
    (GOOD.replace("Does a thing.", "a --- b"), "", True, True),
    ("---\ndescription: d\n---\nx", "there is no name", True, False),
    ("---\nname: {name}\n---\nx", "there is no description", False, False),
    ("---\nname: {name}\ndescription: ''\n---\nx", "there is no description", False, False),
    ("---\nname: Other\ndescription: d\n---\nx", "capital letters", True, False),
    ("---\nname: other\ndescription: d\n---\nx", "differs from the name of its folder", True, False),
    ("---\nname: -a\ndescription: d\n---\nx", "begins or ends with a hyphen", True, False),
    ("---\nname: a--b\ndescription: d\n---\nx", "two in a row", True, False),
    ("---\nname: a_b\ndescription: d\n---\nx", "other characters", True, False),
    ("---\nname: " + "a" * 65 + "\ndescription: d\n---\nx", "the maximum is 64", True, False),
    ("---\nname: {name}\ndescription: " + "d" * 1025 + "\n---\nx", "the maximum is 1,024", True, False),
    ("---\nname: {name}\ndescription: d\ncompatibility: " + "c" * 501 + "\n---\nx", "the maximum is 500", True, False),
    ("---\nname: {name}\ndescription: d\nauthor: me\n---\nx", "'author' not known", True, False),
    ("---\nname: {name}\ndescription: Use it: now\n---\nx", "needs quotes", True, False),
    ("---\nname: [\n---\nx", "not YAML", False, False),
    ("---\n- a\n---\nx", "not of the form", False, False),
    ("# no fields", "must begin with a line", False, False),
    ("---\nname: {name}\ndescription: d\n", "must begin with a line", False, False),
    ("", "must begin with a line", False, False),
]
# Where the reference is wrong: it reads past nothing before the fields, and refuses mappings written in one line.
DIFFERENT = [
    ("\ufeff" + GOOD, "", True, False),
    ('---\nname: {name}\ndescription: d\nmetadata: {"a": "b"}\n---\nx', "", True, False),
]


@pytest.mark.parametrize(("text", "error", "usable", "valid"), CASES + DIFFERENT)
def test_the_check_is_strict_and_loading_lenient(
    tmp_path: Path, text: str, error: str, usable: bool, valid: bool
) -> None:
    found = read(skill(tmp_path, text=text))
    assert any(error in fault for fault in found.errors) if error else found.errors == ()
    assert (found.skill is not None) == usable


@needs_reference
@pytest.mark.parametrize(("text", "error", "usable", "valid"), CASES + DIFFERENT)
def test_the_reference_validator_agrees_or_errs_as_is_known(
    tmp_path: Path, text: str, error: str, usable: bool, valid: bool
) -> None:
    from skills_ref import validate  # type: ignore[import-untyped] # noqa: PLC0415 - may not be there

    assert (validate(skill(tmp_path, text=text)) == []) == valid


@needs_reference
def test_the_reference_cuts_a_description_at_three_hyphens_and_we_do_not(tmp_path: Path) -> None:
    from skills_ref import read_properties  # noqa: PLC0415 - may not be there

    folder = skill(tmp_path, text=GOOD.replace("Does a thing.", "a --- b."))
    ours = read(folder).skill
    assert read_properties(folder).description == "a"
    assert ours is not None
    assert ours.description == "a --- b. Use when asked."


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("---\nname: {name}\ndescription: \udcff\n---\n", "is not UTF-8"),
        ("x" * 1_000_001, "more than 1,000,000 bytes"),
        ("---\na: " + "[" * 1500 + "\n---\n", "too long or too deep"),
        ("---\na: " + "[" * 150 + "\n---\n", "not YAML"),
    ],
)
def test_hostile_files_are_refused_in_words(tmp_path: Path, text: str, error: str) -> None:
    found = read(skill(tmp_path, text=text))
    assert found.skill is None
    assert error in found.errors[0]


def test_no_file_and_line_ends_of_another_system(tmp_path: Path) -> None:
    assert read(tmp_path).errors == ("there is no SKILL.md",)
    assert read(skill(tmp_path, text=GOOD.replace("\n", "\r\n"))).errors == ()


def test_letters_outside_ascii_and_long_bodies_are_advice(tmp_path: Path) -> None:
    assert "outside a-z" in read(skill(tmp_path, "café")).advice[0]
    assert "longer than 500 lines" in read(skill(tmp_path, "long", GOOD + "x\n" * 600)).advice[0]


def test_packaged_skills_and_drafts_are_right(tmp_path: Path) -> None:
    made = make(tmp_path, "new-one", description='Say "hi": always').parent
    folders = [*sorted(PACKAGED.iterdir()), made]
    assert [read(folder).errors + read(folder).advice for folder in folders] == [(), (), ()]
    assert [folder.name for folder in folders] == ["session-archaeology", "writing-skills", "new-one"]


def test_a_pipe_in_the_place_of_the_instructions_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "SKILL.md")
    reading = read(tmp_path)
    assert (reading.skill, reading.errors) == (None, ("SKILL.md is not a regular file",))
