"""Changing one key of the configuration file: comments, order and everything else stay as they are."""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from nacre.cli.failures import Failure
from nacre.config import to_toml, toml_name
from nacre.user_files import write_whole

_HEADING = re.compile(r"\s*\[([^\[\]]+)\]\s*(#.*)?$")
_KEY = re.compile(r"""\s*((?:[\w-]+|"[^"]*"|'[^']*')(?:\s*\.\s*(?:[\w-]+|"[^"]*"|'[^']*'))*)\s*=[ \t]*""")
_NAME = re.compile(r"""[\w-]+|"[^"]*"|'[^']*'""")


class _Assignment(NamedTuple):
    """Lines `first` to `last` (the one after it) set a key; its value begins at a column of the first."""

    names: tuple[str, ...]
    first: int
    last: int
    column: int


def split_key(key: str) -> list[str]:
    """The names in a key; a dot between quotes is part of a name, as in `prices."gpt-4.1-mini"`."""
    return [name.strip("\"'") for name in re.findall(r"""(?:"[^"]*"|'[^']*'|[^."'])+""", key)]


def set_key(text: str, names: Sequence[str], value: Any) -> str:
    """The text of the file with a key set to a value; raises Failure where that cannot be done by a program.

    Several places for the key are tried. The first counts whose result, read again, differs in this key alone.
    """
    wanted = _with(tomllib.loads(text), names, value)
    lines = text.splitlines(keepends=True)
    if lines and not lines[-1].endswith("\n"):
        lines[-1] += "\n"
    for changed in _candidates(lines, tuple(names), to_toml(value)):
        try:
            if tomllib.loads("".join(changed)) == wanted:
                return "".join(changed)
        except ValueError:
            continue
    what = f"{'.'.join(names)} cannot be set: the layout of the file is not supported"
    raise Failure("config", what, hint="nacre config edit")


def unset_key(text: str, names: Sequence[str]) -> str:
    """The text of the file without a key; raises Failure if it is not there."""
    lines = text.splitlines(keepends=True)
    for found in _assignments(lines):
        if found.names == tuple(names):
            return "".join([*lines[: found.first], *lines[found.last :]])
    raise Failure("not_found", f"the configuration file does not set {'.'.join(names)}")


def write(path: str, text: str) -> None:
    """Replace the file in one step, readable by its owner alone; a link to it stays a link."""
    path = os.path.realpath(path)
    try:
        write_whole(path, text.encode())
    except OSError as error:
        raise Failure("failed", f"{path} cannot be written: {error}", hint="check that you own the folder") from error


def _candidates(lines: list[str], names: tuple[str, ...], value: str) -> Iterator[list[str]]:
    """The file with the key at each place where it may stand, best first."""
    found = list(_assignments(lines))
    # 1. Where it is set now; the comment after it stays.
    for old in found:
        if old.names == names:
            head = lines[old.first][: old.column]
            tail = _comment(lines[old.first : old.last])
            newline = "\r\n" if lines[old.last - 1].endswith("\r\n") else "\n"
            yield [*lines[: old.first], f"{head}{value}{tail}{newline}", *lines[old.last :]]
    # 2. In its table: below a line that shows it as a comment, else after the last key.
    line = f"{_written(names[-1:])} = {value}\n"
    start, end = _table(lines, names[:-1])
    if start >= 0:
        shown = re.compile(rf"\s*#+\s*{re.escape(names[-1])}\s*=")
        inside = [one.last for one in found if start <= one.first < end]
        hints = [at + 1 for at in range(start, end) if shown.match(lines[at])]
        place = (hints or inside or [start])[-1]
        yield [*lines[:place], line, *lines[place:]]
    # 3. Next to other keys of the table that are written with dots.
    for before in reversed(found):
        if before.names[:-1] == names[:-1]:
            for written in (names, names[-1:]):
                yield [*lines[: before.last], f"{_written(written)} = {value}\n", *lines[before.last :]]
    # 4. In a table of its own at the end.
    gap = ["\n"] if lines and lines[-1].strip() else []
    yield [*lines, *gap, f"[{_written(names[:-1])}]\n", line]


def _assignments(lines: list[str]) -> Iterator[_Assignment]:
    """Every key of the file, with the lines that it takes; texts and arrays of several lines are passed over whole."""
    heading: tuple[str, ...] = ()
    at = 0
    while at < len(lines):
        if found := _HEADING.match(lines[at].rstrip("\r\n")):
            heading = _names(found[1])
        elif found := _KEY.match(lines[at]):
            end = at + 1
            while end < len(lines) and not _parses("".join(lines[at:end])):
                end += 1
            yield _Assignment((*heading, *_names(found[1])), at, end, found.end())
            at = end - 1
        at += 1


def _table(lines: list[str], names: tuple[str, ...]) -> tuple[int, int]:
    """The lines below a table's heading, up to the next one; -1 if there is no such heading."""
    taken = {at for one in _assignments(lines) for at in range(one.first, one.last)}
    headings = [
        (at, _names(found[1]))
        for at, line in enumerate(lines)
        if at not in taken and (found := re.match(r"\s*\[\[?([^\[\]]+)\]", line))
    ]
    for place, (at, found_names) in enumerate(headings):
        if found_names == names and not lines[at].lstrip().startswith("[["):
            return at + 1, headings[place + 1][0] if place + 1 < len(headings) else len(lines)
    return -1, -1


def _comment(lines: list[str]) -> str:
    """The comment after a value, with the blanks before it."""
    text, last = "".join(lines[:-1]), lines[-1].rstrip("\r\n")
    for found in re.finditer(r"[ \t]*#", last):
        if _parses(text + last[: found.start()]):
            return last[found.start() :]
    return ""


def _parses(text: str) -> bool:
    try:
        tomllib.loads(text)
    except ValueError:
        return False
    return True


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip("\"'") for name in _NAME.findall(text))


def _written(names: Sequence[str]) -> str:
    return ".".join(map(toml_name, names))


def _with(tables: dict[str, Any], names: Sequence[str], value: Any) -> dict[str, Any]:
    """The tables with one key set."""
    first, *rest = names
    if rest:
        below = tables.get(first)
        value = _with(below if isinstance(below, dict) else {}, rest, value)
    return {**tables, first: list(value) if isinstance(value, tuple) else value}
