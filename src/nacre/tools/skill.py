"""use_skill: the instructions of a skill, and the files that come with it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

from nacre.tools.functions import Function

Load = Callable[[str, str], str]
"""Give the text of a skill, or of the file of it that is named; raises ToolError."""


def skill_tool(names: Sequence[str], load: Load) -> Function:
    """The tool that loads one of these skills; `names` must not be empty."""

    def use_skill(name: str, file: str = "") -> str:
        """Load the instructions of a skill before doing what it is for, or a file that it comes with.

        Args:
            name: which skill
            file: one of the skill's files, as its instructions name it; empty for the instructions
        """
        return load(name, file)

    use_skill.__annotations__["name"] = Literal.__getitem__(tuple(sorted(names)))
    return Function(use_skill, effect="read")
