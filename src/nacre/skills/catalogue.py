"""What a model is told of skills: all of them in a line each, and one of them in full when it is used."""

from __future__ import annotations

import os
import stat
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import ExitStack, suppress
from html import escape
from itertools import islice
from pathlib import Path

from nacre.errors import ToolError
from nacre.skills.skill_file import FILE, Skill

_MOST_FILES = 200
_MOST_ENTRIES = 5_000
"""Files and folders that are looked at, whether they are listed or not."""
_MORE = "there are more files, which can be used by their names"
_LONGEST_FILE = 1_000_000
_INTRODUCTION = (
    "Skills are instructions for special tasks. When a task fits one of these, "
    "load it with use_skill before you begin; do not guess what it says."
)


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
        rows = [
            f'  <skill name="{escape(s.name)}">{escape(s.description, quote=False)}</skill>'
            for s in self._skills.values()
        ]
        return "\n".join([_INTRODUCTION, "<available_skills>", *rows, "</available_skills>"])

    def load(self, name: str, file: str = "") -> str:
        """Give a skill's instructions, with a list of its files, or one of these files; raises ToolError."""
        skill = self._skills.get(name)
        if skill is None:
            raise ToolError(f"there is no skill {name!r}: there are {', '.join(self._skills) or 'none'}")
        if not file:
            return _instructions(skill)
        text = _file(skill, file)
        if not self._is_current(skill.folder):
            raise ToolError(f"the files of the skill {name!r} were changed since they were accepted: ask the user")
        return text


def resources(skill: Skill) -> tuple[list[str], bool]:
    """The files that come with a skill, sorted, and whether these are all; links may lead anywhere and are left out.

    If there are too many, those nearest to the skill's own folder are listed.
    """
    found: list[str] = []
    waiting = deque([""])
    looked_at = 0
    while waiting and looked_at < _MOST_ENTRIES and len(found) <= _MOST_FILES:
        here = waiting.popleft()
        with suppress(OSError), os.scandir(skill.folder / here) as every:  # it may be gone meanwhile
            entries = sorted(islice(every, _MOST_ENTRIES - looked_at), key=lambda entry: entry.name)
            looked_at += len(entries)
            for entry in entries:
                name = f"{here}{entry.name}"
                if entry.is_dir(follow_symlinks=False) and not entry.name.startswith((".", "__pycache__")):
                    waiting.append(f"{name}/")
                elif entry.is_file(follow_symlinks=False) and not entry.name.startswith(".") and name != FILE:
                    found.append(name)
    is_all = not waiting and looked_at < _MOST_ENTRIES and len(found) <= _MOST_FILES
    return sorted(found[:_MOST_FILES]), is_all


def _instructions(skill: Skill) -> str:
    listed, is_all = resources(skill)
    rows = [f"  {escape(name, quote=False)}" for name in listed] + ([] if is_all else [f"  [{_MORE}]"])
    files = ["", "<skill_files>", *rows, "</skill_files>"] if rows else []
    # The real folder: a link on the way to it leads nowhere in a sandbox.
    lines = [
        f'<skill_content name="{escape(skill.name)}" folder="{escape(str(skill.folder.resolve()))}">',
        *([f"It needs: {skill.compatibility}", ""] if skill.compatibility else []),
        skill.body,
        *files,
        "</skill_content>",
    ]
    return "\n".join(lines)


def _file(skill: Skill, file: str) -> str:
    listed, is_all = resources(skill)
    wanted = _listed_name(file.removeprefix("./"), listed)
    if not wanted and not is_all and _is_plain(file):
        wanted = file  # it may be one of those that are not listed
    if not wanted:
        raise ToolError(f"the skill {skill.name!r} has no file {file!r}: it has {', '.join(listed) or 'none'}")
    with os.fdopen(_opened(skill.folder, wanted.split("/")), "rb") as stream:
        data = stream.read(_LONGEST_FILE + 1)
    if b"\0" in data:
        return f"{file} is not text: it is at {skill.folder.resolve() / wanted}"
    note = f"\n[only the first {_LONGEST_FILE:,} bytes]" if len(data) > _LONGEST_FILE else ""
    return data[:_LONGEST_FILE].decode("utf-8", "replace") + note


def _listed_name(wanted: str, listed: list[str]) -> str:
    """The name as it is listed; if none is equal, the only one that differs in case alone."""
    if wanted in listed:
        return wanted
    alike = [name for name in listed if name.casefold() == wanted.casefold()]
    return alike[0] if len(alike) == 1 else ""


def _is_plain(file: str) -> bool:
    """Tell whether a name leads down from the folder, by names that would be listed."""
    return "\0" not in file and all(part and not part.startswith(".") for part in file.split("/"))


def _opened(folder: Path, parts: list[str]) -> int:
    """Open a file name by name from its folder, so that a link put in between leads nowhere."""
    directory = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
    with ExitStack() as stack:
        at = os.open(folder, directory)
        stack.callback(os.close, at)
        try:
            for part in parts[:-1]:
                at = os.open(part, directory | os.O_NOFOLLOW, dir_fd=at)
                stack.callback(os.close, at)
            fd = os.open(parts[-1], os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=at)
        except OSError as error:
            raise ToolError(f"{'/'.join(parts)!r} cannot be read: {error.strerror}") from error
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise ToolError(f"{'/'.join(parts)!r} cannot be read: it is not a file")
    return fd
