"""SKILL.md: what is in it, what is wrong with it, which tools it asks for, and how a new one begins."""

from __future__ import annotations

import os
import re
import stat
import unicodedata
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct

from nacre.errors import ConfigError, install_command

FILE = "SKILL.md"
_MAX_FILE = 1_000_000
_MAX_NAME = 64
_MAX_DESCRIPTION = 1024
_MAX_COMPATIBILITY = 500
_MAX_FIELDS = 65_536
_MAX_BRACKETS = 200
_LONG_BODY_LINES = 500
_LONG_BODY = 20_000
_FIELDS = frozenset({"name", "description", "license", "compatibility", "metadata", "allowed-tools"})
# The marks are whole lines: three hyphens inside a value are text.
_DOCUMENT = re.compile(r"---[ \t]*\n(.*?)(?:^|\n)---[ \t]*(?:\n|\Z)(.*)\Z", re.DOTALL | re.MULTILINE)
_UNQUOTED = re.compile(r"^(description|compatibility):[ \t]+(?![\"'|>])(.*:.*)$", re.MULTILINE)
# The names that skills use for tools, and ours.
_OURS = {
    "Bash": "shell",
    "Edit": "edit_file",
    "MultiEdit": "edit_file",
    "Write": "write_file",
    "WebFetch": "web_fetch",
    "Read": "read_file",
    "Glob": "list_files",
    "LS": "list_files",
    "Task": "delegate",
}
# Patterns may hold spaces and commas; parentheses in them are not nested.
_ENTRY = re.compile(r"([A-Za-z][\w.-]*)(?:\(([^()]*)\))?(?:[\s,]+|\Z)")
_SERVER = re.compile(r"mcp__(.+?)__(.+)")
_TEMPLATE = """\
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
_PLACEHOLDER = (
    "Describe what this does, and when to use it. The model decides by this line alone whether to load the rest."
)


class Skill(Struct, frozen=True, kw_only=True):
    """A skill: its folder, what the catalogue says of it, and its instructions."""

    name: str
    description: str
    body: str
    folder: Path
    compatibility: str = ""
    license: str = ""
    metadata: Mapping[str, str] = {}
    allowed_tools: str = ""


class Reading(Struct, frozen=True, kw_only=True):
    """What came of reading a folder: a skill unless it cannot be used at all, and what is wrong by the specification.

    `errors` are against the specification; `advice` is not, but other programs or models may fail on it.
    """

    folder: Path
    skill: Skill | None
    errors: tuple[str, ...] = ()
    advice: tuple[str, ...] = ()


def read(folder: Path) -> Reading:
    """Read a skill as leniently as can be: it is lost only without a description, or if nothing can be made of it."""
    # 1. The fields and the instructions below them; a colon in a value that has no quotes is repaired.
    try:
        document = _DOCUMENT.match(_read_text(folder / FILE))
        if document is None:
            raise ValueError(f"{FILE} must begin with a line `---`, its fields, and a line `---`")  # noqa: TRY301 - a fault like the others
        errors: list[str] = []
        try:
            fields = _parse_fields(document[1])
        except ValueError as error:
            repaired = _UNQUOTED.sub(lambda found: f"{found[1]}: {_quote(found[2].strip())}", document[1])
            if repaired == document[1]:
                raise
            fields = _parse_fields(repaired)
            errors = [f"{error}; a value with a colon needs quotes"]
    except ValueError as error:
        return Reading(folder=folder, skill=None, errors=(str(error),))

    # 2. The skill, which needs a description.
    body, skill = document[2].strip("\n"), None
    if description := _words(fields.get("description")):
        metadata = fields.get("metadata")
        skill = Skill(
            name=_words(fields.get("name")) or folder.name,
            description=description,
            body=body,
            folder=folder,
            compatibility=_words(fields.get("compatibility")),
            license=_words(fields.get("license")),
            metadata={k: v for k, v in metadata.items() if isinstance(v, str)} if isinstance(metadata, dict) else {},
            allowed_tools=_tools(fields.get("allowed-tools")),
        )

    # 3. What is wrong with it.
    errors += _field_faults(fields, folder)
    return Reading(folder=folder, skill=skill, errors=tuple(errors), advice=tuple(_advice(fields, body)))


def _read_text(path: Path) -> str:
    try:
        # A pipe without a writer would be waited for without end.
        with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as file:
            is_file = stat.S_ISREG(os.fstat(file.fileno()).st_mode)
            data = file.read(_MAX_FILE + 1) if is_file else b""
    except FileNotFoundError:
        raise ValueError(f"there is no {FILE}") from None
    except OSError as error:
        raise ValueError(f"{FILE} cannot be read: {error.strerror}") from error
    if not is_file:
        raise ValueError(f"{FILE} is not a regular file")
    if len(data) > _MAX_FILE:
        raise ValueError(f"{FILE} has more than {_MAX_FILE:,} bytes")
    try:
        return data.decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        raise ValueError(f"{FILE} is not UTF-8: byte {error.start:,} is not text") from error


def _parse_fields(text: str) -> dict[str, Any]:
    """The fields as text: nothing is taken for a number, a date or a truth value."""
    # The parser takes seconds for a thousand brackets in one another.
    if len(text) > _MAX_FIELDS or text.count("[") + text.count("{") > _MAX_BRACKETS:
        raise ValueError("the fields are too long or too deep")
    try:
        import yaml  # noqa: PLC0415 - only for users who have skills
    except ModuleNotFoundError as error:
        raise ConfigError(f"reading skills needs PyYAML: {install_command('agent')}") from error
    try:
        found = yaml.load(text, Loader=yaml.BaseLoader)  # noqa: S506 - it makes nothing but texts, lists and mappings
    except yaml.MarkedYAMLError as error:
        line = f" in line {error.problem_mark.line + 2}" if error.problem_mark else ""
        raise ValueError(f"the fields are not YAML: {error.problem}{line}") from error
    except (yaml.YAMLError, RecursionError) as error:
        raise ValueError(f"the fields are not YAML: {error}") from error
    if not isinstance(found, dict):
        raise ValueError("the fields are not of the form `name: value`")  # noqa: TRY004 - it is about a file's text
    return found


def _words(value: Any) -> str:
    return " ".join(value.split()) if isinstance(value, str) else ""


def _tools(value: Any) -> str:
    """The tools of a skill; other programs accept a list too."""
    return ", ".join(map(_words, value)) if isinstance(value, list) else _words(value)


# ---- the specification


def _field_faults(fields: Mapping[str, Any], folder: Path) -> Iterator[str]:
    unknown = sorted(str(field) for field in fields if field not in _FIELDS)
    if unknown:
        yield f"{', '.join(map(repr, unknown))} not known: the fields are {', '.join(sorted(_FIELDS))}"

    name = fields.get("name")
    if not isinstance(name, str) or not name.strip():
        yield "there is no name"
    else:
        normal = unicodedata.normalize("NFKC", name.strip())
        yield from name_faults(normal)
        if normal != unicodedata.normalize("NFKC", folder.name):
            yield f"the name {name!r} differs from the name of its folder, {folder.name!r}: make them equal"

    for field, limit in (("description", _MAX_DESCRIPTION), ("compatibility", _MAX_COMPATIBILITY)):
        value, is_needed = fields.get(field), field == "description"
        if isinstance(value, str) and value.strip():
            if len(value) > limit:
                yield f"{field} has {len(value):,} characters; the maximum is {limit:,}"
        elif is_needed or value is not None:
            yield f"there is no {field}" if is_needed else f"{field} is a text"

    texts = ("license", "allowed-tools")
    yield from (f"{field} is a text" for field in texts if not isinstance(fields.get(field, ""), str))
    metadata = fields.get("metadata", {})
    if not isinstance(metadata, dict) or not all(isinstance(value, str) for value in metadata.values()):
        yield "metadata is a mapping of texts to texts"


def name_faults(name: str) -> Iterator[str]:
    """What is wrong with a skill's name."""
    if len(name) > _MAX_NAME:
        yield f"the name has {len(name)} characters; the maximum is {_MAX_NAME}"
    if name != name.lower():
        yield f"the name {name!r} has capital letters: use lower case"
    if name.startswith("-") or name.endswith("-") or "--" in name:
        yield f"the name {name!r} begins or ends with a hyphen, or has two in a row"
    if not name or not all(char.isalnum() or char == "-" for char in name):
        yield f"the name {name!r} has other characters than letters, digits and hyphens"


def _advice(fields: Mapping[str, Any], body: str) -> Iterator[str]:
    name = fields.get("name")
    if isinstance(name, str) and not name.isascii():
        yield f"the name {name!r} has letters outside a-z, which some programs reject"
    tools = _tools(fields.get("allowed-tools"))
    if tools and not permits(tools):
        yield "allowed-tools cannot be read, so nothing is allowed: write `Bash(git:*) Read`"
    if not body.strip():
        yield "there are no instructions below the fields"
    if body.count("\n") >= _LONG_BODY_LINES or len(body) > _LONG_BODY:
        limit = f"{_LONG_BODY_LINES} lines or {_LONG_BODY:,} characters"
        yield f"the instructions are longer than {limit}: move parts of them to other files in the folder"


# ---- the tools that a skill names


def permits(allowed_tools: str) -> tuple[str, ...]:
    """The rules that a skill asks for, such as `shell(git *)`; none if they cannot be read to the end."""
    found: list[str] = []
    at = 0
    while at < len(allowed_tools):
        entry = _ENTRY.match(allowed_tools, at)
        if entry is None:
            return ()
        at = entry.end()
        server = _SERVER.fullmatch(entry[1])
        tool = f"{server[1]}_{server[2]}" if server else _OURS.get(entry[1], entry[1])
        # `git:*` is how some write `git *`, and a host may be marked as one.
        pattern = (entry[2] or "").strip()
        pattern = re.sub(r":\*$", " *", pattern) if tool == "shell" else pattern.removeprefix("domain:")
        found.append(f"{tool}({pattern})" if pattern and pattern != "*" else tool)
    return tuple(dict.fromkeys(found))


# ---- a new skill


def make(folder: Path, name: str, *, description: str = "") -> Path:
    """Write a new skill's SKILL.md; raises ConfigError if the name cannot be one or is taken."""
    faults = list(name_faults(name))
    if faults:
        raise ConfigError(f"{name!r} cannot name a skill: {faults[0]}")
    path = folder / name / FILE
    quoted = _quote(" ".join(description.split()) or _PLACEHOLDER)
    text = _TEMPLATE.format(name=name, description=quoted, title=name.replace("-", " ").capitalize())
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise ConfigError(f"there is a skill {name!r} in {folder} already: choose another name") from None
    return path


def _quote(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
