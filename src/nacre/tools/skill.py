"""use_skill: the instructions of a skill, and the files that come with it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

from nacre.agent.ports import Output
from nacre.errors import ToolError
from nacre.tools.functions import Function
from nacre.tools.tool_output import MOST, harmless

Load = Callable[[str, str], str]
"""Give the text of a skill, or of the file of it that is named; raises ToolError."""

_NEAR = 2000
_FOR_THE_NOTE = 200


def skill_tool(names: Sequence[str], load: Load) -> Function:
    """The tool that loads one of these skills; `names` must not be empty."""

    def use_skill(name: str, file: str = "", offset: int = 0) -> Output:
        """Load the instructions of a skill before doing what it is for, or a file that it comes with.

        A long text comes in parts: read all of them. Its files are in the folder that is named with it; other tools
        can read them and run its scripts there, by their full path.

        Args:
            name: which skill
            file: one of the skill's files, as its instructions name it; empty for the instructions
            offset: how many characters of the text to leave out, since they were read before
        """
        return Output(text=_part(harmless(load(name, file)), offset))

    use_skill.__annotations__["name"] = Literal.__getitem__(tuple(sorted(names)))
    return Function(use_skill, effect="read")


def _part(text: str, offset: int) -> str:
    """A part of a text that a model is shown whole, with a note that says how to get the next one."""
    if offset < 0 or (offset and offset >= len(text)):
        raise ToolError(f"offset is from 0 to {max(len(text) - 1, 0)}, not {offset}: the text ends there")
    rest = text[offset:]
    if len(rest) <= MOST:
        return rest
    most = MOST - _FOR_THE_NOTE
    # Up to the end of a line, if there is one near.
    end = rest.rfind("\n", most - _NEAR, most) + 1 or most
    after = offset + end
    return f"{rest[:end]}\n[{len(text) - after:,} of {len(text):,} characters follow; offset={after} continues]"
