"""Where skills are, and which of two with one name is meant."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Literal

from msgspec import Struct

from nacre.skills.document import FILE, Reading, Skill, read

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


def usual_places(*, workspace: Path, home: Path, project: Path | None = None) -> tuple[Place, ...]:
    """Where skills are looked for, the strongest first: the project's, the user's, ours.

    A project's skills are words of whoever wrote the project: leave it out if they are not to be trusted.
    """
    mine = (workspace / "skills", home / ".agents" / "skills", home / ".claude" / "skills")
    theirs = () if project is None else [project / name / "skills" for name in (".nacre", ".agents", ".claude")]
    return (
        *(Place(whose="project", folder=folder) for folder in theirs),
        *(Place(whose="user", folder=folder) for folder in mine),
        Place(whose="packaged", folder=PACKAGED),
    )


def find(places: Iterable[Place]) -> Finding:
    """Every skill of these places; of two with one name the one found first holds, and the other is warned of."""
    skills: dict[str, Found] = {}
    warnings: list[str] = []
    seen: set[Path] = set()
    for place, reading in _readings(places, seen):
        warnings += [f"{reading.folder}: {fault}" for fault in reading.errors]
        if reading.skill is None:
            warnings.append(f"{reading.folder}: it is left out")
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


def _readings(places: Iterable[Place], seen: set[Path]) -> Iterator[tuple[Place, Reading]]:
    for place in places:
        for folder in folders(place):
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
