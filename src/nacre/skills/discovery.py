"""Where skills are, and which of two with one name is meant."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Literal

from msgspec import Struct

from nacre.skills.skill_file import FILE, Reading, Skill, read

PACKAGED = Path(__file__).parent / "packaged"
_DEEPEST = 4
_MOST_FOLDERS = 2000
_PASSED_OVER = frozenset({".git", "node_modules", "__pycache__", ".venv"})


class Place(Struct, frozen=True, kw_only=True):
    """A folder with skills in it, and whose it is."""

    whose: Literal["project", "user", "packaged"]
    folder: Path


class Found(Struct, frozen=True, kw_only=True):
    """A skill and where it was found."""

    place: Place
    skill: Skill


class Finding(Struct, frozen=True, kw_only=True):
    """All skills, by name, and what is worth a warning."""

    skills: tuple[Found, ...]
    warnings: tuple[str, ...]


def usual_places(*, home: Path, user: Path, projects: Iterable[Path] = ()) -> tuple[Place, ...]:
    """Where skills are looked for, the strongest first: the projects', the user's, the packaged ones.

    `home` is the agent's own folder, `user` the user's home directory. The skills of a project were written by
    whoever wrote the project: leave it out unless the user trusts it.
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


def find(places: Iterable[Place], *, accepts: Callable[[Path], bool] = lambda _: True) -> Finding:
    """Every skill of these places; of two with one name the first is used, with a warning about the other.

    A skill of a project whose folder `accepts` refuses is left out without a word.
    """
    skills: dict[str, Found] = {}
    warnings: list[str] = []
    seen: set[Path] = set()
    for place, reading in _readings(places, seen, accepts):
        warnings += [f"{reading.folder}: {fault}" for fault in reading.errors]
        if reading.skill is None:
            warnings.append(f"{reading.folder}: it was skipped")
        elif (before := skills.get(reading.skill.name)) is not None:
            warnings.append(f"{reading.folder}: {reading.skill.name!r} is hidden by {before.skill.folder}")
        else:
            skills[reading.skill.name] = Found(place=place, skill=reading.skill)
    return Finding(skills=tuple(skills[name] for name in sorted(skills)), warnings=tuple(warnings))


def folders(place: Place) -> Iterator[Path]:
    """The folders in a place that hold a SKILL.md, sorted; nothing below one of them is looked at."""
    looked_at = 0
    waiting = [(place.folder, 0)]
    while waiting and looked_at < _MOST_FOLDERS:
        folder, depth = waiting.pop()
        looked_at += 1
        if depth and (folder / FILE).is_file():
            yield folder
        elif depth < _DEEPEST:
            waiting += [(child, depth + 1) for child in reversed(_children(folder))]


def _readings(
    places: Iterable[Place], seen: set[Path], accepts: Callable[[Path], bool]
) -> Iterator[tuple[Place, Reading]]:
    for place in places:
        for folder in folders(place):
            if place.whose == "project" and not accepts(folder):
                continue
            real = folder.resolve()
            if real not in seen:
                seen.add(real)
                yield place, read(folder)


def _children(folder: Path) -> list[Path]:
    try:
        with os.scandir(folder) as entries:
            return sorted(folder / entry.name for entry in entries if entry.is_dir() and entry.name not in _PASSED_OVER)
    except OSError:
        return []
