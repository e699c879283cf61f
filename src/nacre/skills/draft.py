"""The beginning of a new skill."""

from __future__ import annotations

from pathlib import Path

from nacre.errors import ConfigError
from nacre.skills.skill_file import FILE, name_faults

_TEXT = """\
---
name: {name}
description: {description}
---

# {title}

Describe step by step what to do when this skill is used: in the imperative, as short as possible.

1. First …
2. Then …

## If something fails

Describe what to check, and when to ask the user.
"""
_DESCRIPTION = (
    "Describe what this does, and when to use it. The model decides by this line alone whether to load the rest."
)


def make(folder: Path, name: str, *, description: str = "") -> Path:
    """Write a new skill's SKILL.md; raises ConfigError if the name cannot be one or is taken."""
    faults = list(name_faults(name))
    if faults:
        raise ConfigError(f"{name!r} cannot name a skill: {faults[0]}")
    path = folder / name / FILE
    words = _quoted(" ".join(description.split()) or _DESCRIPTION)
    text = _TEXT.format(name=name, description=words, title=name.replace("-", " ").capitalize())
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise ConfigError(f"there is a skill {name!r} in {folder} already: choose another name") from None
    return path


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
