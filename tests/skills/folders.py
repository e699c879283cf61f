"""Skills as they are written."""

from __future__ import annotations

from pathlib import Path

GOOD = "---\nname: {name}\ndescription: Does a thing. Use when asked.\n---\n\n# Do it\n"


def skill(folder: Path, name: str = "one", text: str = GOOD) -> Path:
    """Write a skill, and give its folder."""
    path = folder / name
    path.mkdir(parents=True)
    (path / "SKILL.md").write_bytes(text.replace("{name}", name).encode("utf-8", "surrogateescape"))
    return path
