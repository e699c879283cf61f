"""Where skills are, which of two with one name is used, and what a model sees of them.

The model gets a line for each skill, and one of them in full when it is used.
"""

from __future__ import annotations

import os
import stat
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, suppress
from html import escape
from itertools import islice
from pathlib import Path
from typing import Literal

from msgspec import Struct

from nacre.errors import ToolError
from nacre.skills.skill_file import FILE, Skill, read

PACKAGED = Path(__file__).parent / "packaged"
_MAX_DEPTH = 4
_MAX_FOLDERS = 2000
_SKIPPED = frozenset({".git", "node_modules", "__pycache__", ".venv"})
_MAX_FILES = 200
_MAX_ENTRIES = 5_000
"""Files and folders that are looked at, whether they are listed or not."""
_MORE = "there are more files, which can be used by their names"
_MAX_FILE = 1_000_000
_INTRODUCTION = (
    "Skills are instructions for special tasks. When a task fits one of these, "
    "load it with use_skill before you begin; do not guess what it says."
)


class Place(Struct, frozen=True, kw_only=True):
    """A folder with skills in it, and whose it is."""

    whose: Literal["project", "user", "packaged"]
    folder: Path


class FoundSkill(Struct, frozen=True, kw_only=True):
    """A skill and where it was found."""

    place: Place
    skill: Skill


def usual_places(*, home: Path, user: Path, projects: Iterable[Path] = ()) -> tuple[Place, ...]:
    """Where skills are looked for, the strongest first: the projects', the user's, the packaged ones.

    `home` is the agent's own folder, `user` the user's home directory. The skills of a project were written by
    the authors of the project: leave it out unless the user trusts it.
    """
    mine = (home / "skills", user / ".agents" / "skills", user / ".claude" / "skills")
    return (
        *(place for project in projects for place in project_places(project)),
        *(Place(whose="user", folder=folder) for folder in mine),
        Place(whose="packaged", folder=PACKAGED),
    )


def project_places(project: Path) -> tuple[Place, ...]:
    """Where a project keeps its skills."""
    names = (".nacre", ".agents", ".claude")
    return tuple(Place(whose="project", folder=project / name / "skills") for name in names)


def find(
    places: Iterable[Place], *, accepts: Callable[[Path], bool] = lambda _: True
) -> tuple[list[FoundSkill], list[str]]:
    """Every skill of these places by name, and warnings: of two with one name the first is used, with a warning.

    A skill of a project whose folder `accepts` refuses is left out without a word.
    """
    skills: dict[str, FoundSkill] = {}
    warnings: list[str] = []
    seen: set[Path] = set()
    for place, folder in ((one, folder) for one in places for folder in folders(one)):
        if (place.whose == "project" and not accepts(folder)) or (real := folder.resolve()) in seen:
            continue
        seen.add(real)
        reading = read(folder)
        warnings += [f"{folder}: {fault}" for fault in reading.errors]
        if reading.skill is None:
            warnings.append(f"{folder}: it was skipped")
        elif (before := skills.get(reading.skill.name)) is not None:
            warnings.append(f"{folder}: {reading.skill.name!r} is hidden by {before.skill.folder}")
        else:
            skills[reading.skill.name] = FoundSkill(place=place, skill=reading.skill)
    return [skills[name] for name in sorted(skills)], warnings


def folders(place: Place) -> Iterator[Path]:
    """The folders in a place that hold a SKILL.md, sorted; nothing below one of them is looked at."""
    looked_at = 0
    waiting = [(place.folder, 0)]
    while waiting and looked_at < _MAX_FOLDERS:
        folder, depth = waiting.pop()
        looked_at += 1
        if depth and (folder / FILE).is_file():
            yield folder
        elif depth < _MAX_DEPTH:
            with suppress(OSError), os.scandir(folder) as entries:
                names = sorted(entry.name for entry in entries if entry.is_dir() and entry.name not in _SKIPPED)
                waiting += [(folder / name, depth + 1) for name in reversed(names)]


# ---- what the model sees


class Catalogue:
    """The skills of a session; its text is the same, byte for byte, as long as they are.

    `is_current` tells whether the files of a skill's folder are still those that were accepted.
    """

    def __init__(self, skills: Iterable[Skill], *, is_current: Callable[[Path], bool] = lambda _: True) -> None:
        self._is_current = is_current
        self._skills = {skill.name: skill for skill in sorted(skills, key=lambda skill: skill.name)}

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._skills)

    @property
    def skills(self) -> tuple[Skill, ...]:
        return tuple(self._skills.values())

    @property
    def text(self) -> str:
        """The part of the system prompt about skills: names and descriptions; "" if there are none."""
        if not self._skills:
            return ""
        texts = [(escape(one.name), escape(one.description, quote=False)) for one in self._skills.values()]
        rows = [f'  <skill name="{name}">{description}</skill>' for name, description in texts]
        return "\n".join([_INTRODUCTION, "<available_skills>", *rows, "</available_skills>"])

    def load(self, name: str, file: str = "") -> str:
        """Give a skill's instructions, with a list of its files, or one of these files; raises ToolError."""
        skill = self._skills.get(name)
        if skill is None:
            raise ToolError(f"there is no skill {name!r}: there are {', '.join(self._skills) or 'none'}")
        if file:
            text = _read_file(skill, file)
            if not self._is_current(skill.folder):
                raise ToolError(f"the files of the skill {name!r} were changed since they were accepted: ask the user")
            return text
        listed, is_all = resources(skill)
        rows = [f"  {escape(one, quote=False)}" for one in listed] + ([] if is_all else [f"  [{_MORE}]"])
        # The real folder: a link on the way to it leads nowhere in a sandbox.
        lines = [
            f'<skill_content name="{escape(skill.name)}" folder="{escape(str(skill.folder.resolve()))}">',
            *([f"It needs: {skill.compatibility}", ""] if skill.compatibility else []),
            skill.body,
            *(["", "<skill_files>", *rows, "</skill_files>"] if rows else []),
            "</skill_content>",
        ]
        return "\n".join(lines)


def resources(skill: Skill) -> tuple[list[str], bool]:
    """The files that come with a skill, sorted, and whether these are all; links may lead anywhere and are left out.

    If there are too many, those nearest to the skill's own folder are listed.
    """
    found: list[str] = []
    waiting = deque([""])
    looked_at = 0
    while waiting and looked_at < _MAX_ENTRIES and len(found) <= _MAX_FILES:
        here = waiting.popleft()
        with suppress(OSError), os.scandir(skill.folder / here) as every:  # it may be gone meanwhile
            entries = sorted(islice(every, _MAX_ENTRIES - looked_at), key=lambda entry: entry.name)
            looked_at += len(entries)
            for entry in entries:
                name = f"{here}{entry.name}"
                if entry.is_dir(follow_symlinks=False) and not entry.name.startswith((".", "__pycache__")):
                    waiting.append(f"{name}/")
                elif entry.is_file(follow_symlinks=False) and not entry.name.startswith(".") and name != FILE:
                    found.append(name)
    is_all = not waiting and looked_at < _MAX_ENTRIES and len(found) <= _MAX_FILES
    return sorted(found[:_MAX_FILES]), is_all


def _read_file(skill: Skill, file: str) -> str:
    # As it is listed; if none is equal, the only one that differs in case alone.
    listed, is_all = resources(skill)
    name = file.removeprefix("./")
    alike = [name] if name in listed else [one for one in listed if one.casefold() == name.casefold()]
    wanted = alike[0] if len(alike) == 1 else ""
    # Or one of those that are not listed: down from the folder, by names that would be.
    is_plain = "\0" not in file and all(part and not part.startswith(".") for part in file.split("/"))
    if not wanted and not is_all and is_plain:
        wanted = file
    if not wanted:
        raise ToolError(f"the skill {skill.name!r} has no file {file!r}: it has {', '.join(listed) or 'none'}")
    # Opened name by name from its folder, so that a link put in between leads nowhere.
    *above, last = wanted.split("/")
    directory = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
    with ExitStack() as stack:
        at = os.open(skill.folder, directory)
        stack.callback(os.close, at)
        try:
            for part in above:
                at = os.open(part, directory | os.O_NOFOLLOW, dir_fd=at)
                stack.callback(os.close, at)
            fd = os.open(last, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=at)
        except OSError as error:
            raise ToolError(f"{wanted!r} cannot be read: {error.strerror}") from error
        stack.callback(os.close, fd)
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise ToolError(f"{wanted!r} cannot be read: it is not a file")
        with os.fdopen(fd, "rb", closefd=False) as stream:
            data = stream.read(_MAX_FILE + 1)
    if b"\0" in data:
        return f"{file} is not text: it is at {skill.folder.resolve() / wanted}"
    note = f"\n[only the first {_MAX_FILE:,} bytes]" if len(data) > _MAX_FILE else ""
    return data[:_MAX_FILE].decode("utf-8", "replace") + note
