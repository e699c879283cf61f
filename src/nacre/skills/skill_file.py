"""SKILL.md: what is in it, and what is wrong with it."""

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
from nacre.skills.permits import permits

FILE = "SKILL.md"
_LONGEST_FILE = 1_000_000
_LONGEST_NAME = 64
_LONGEST_DESCRIPTION = 1024
_LONGEST_COMPATIBILITY = 500
_LONGEST_FIELDS = 65_536
_MOST_BRACKETS = 200
_LONG_BODY_LINES = 500
_LONG_BODY = 20_000
_FIELDS = frozenset({"name", "description", "license", "compatibility", "metadata", "allowed-tools"})
# The marks are whole lines: three hyphens inside a value are text.
_DOCUMENT = re.compile(r"---[ \t]*\n(.*?)(?:^|\n)---[ \t]*(?:\n|\Z)(.*)\Z", re.DOTALL | re.MULTILINE)
_UNQUOTED = re.compile(r"^(description|compatibility):[ \t]+(?![\"'|>])(.*:.*)$", re.MULTILINE)


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
    """What came of reading a folder: a skill unless it is beyond use, and what is wrong by the specification.

    `errors` are against the specification; `advice` is not, but other programs or models may stumble over it.
    """

    folder: Path
    skill: Skill | None
    errors: tuple[str, ...] = ()
    advice: tuple[str, ...] = ()


def read(folder: Path) -> Reading:
    """Read a skill as leniently as can be: it is lost only without a description, or if nothing can be made of it."""
    try:
        text = _text(folder / FILE)
        fields, body, mended = _parsed(text)
    except ValueError as error:
        return Reading(folder=folder, skill=None, errors=(str(error),))
    errors = [*mended, *_faults(fields, folder)]
    return Reading(
        folder=folder, skill=_skill(fields, body, folder), errors=tuple(errors), advice=tuple(_advice(fields, body))
    )


def _text(path: Path) -> str:
    try:
        # A pipe without a writer would be waited for without end.
        with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as file:
            is_file = stat.S_ISREG(os.fstat(file.fileno()).st_mode)
            data = file.read(_LONGEST_FILE + 1) if is_file else b""
    except FileNotFoundError:
        raise ValueError(f"there is no {FILE}") from None
    except OSError as error:
        raise ValueError(f"{FILE} cannot be read: {error.strerror}") from error
    if not is_file:
        raise ValueError(f"{FILE} is not a regular file")
    if len(data) > _LONGEST_FILE:
        raise ValueError(f"{FILE} has more than {_LONGEST_FILE:,} bytes")
    try:
        return data.decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        raise ValueError(f"{FILE} is not UTF-8: byte {error.start:,} is not text") from error


def _parsed(text: str) -> tuple[dict[str, Any], str, list[str]]:
    """The fields and the body, and what had to be mended to get at them; raises ValueError."""
    found = _DOCUMENT.match(text)
    if found is None:
        raise ValueError(f"{FILE} must begin with a line `---`, its fields, and a line `---`")
    mended: list[str] = []
    try:
        fields = _fields(found[1])
    except ValueError as error:
        quoted = _UNQUOTED.sub(_quoted, found[1])
        if quoted == found[1]:
            raise
        fields = _fields(quoted)
        mended = [f"{error}; a value with a colon needs quotes"]
    return fields, found[2].strip("\n"), mended


def _quoted(found: re.Match[str]) -> str:
    value = found[2].strip().replace("\\", "\\\\").replace('"', '\\"')
    return f'{found[1]}: "{value}"'


def _fields(text: str) -> dict[str, Any]:
    """The fields as text: nothing is taken for a number, a date or a truth value."""
    # The parser takes seconds for a thousand brackets in one another.
    if len(text) > _LONGEST_FIELDS or text.count("[") + text.count("{") > _MOST_BRACKETS:
        raise ValueError("the fields are too long or too deep")
    try:
        import yaml  # noqa: PLC0415 - only for who has skills
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


def _skill(fields: Mapping[str, Any], body: str, folder: Path) -> Skill | None:
    description = _words(fields.get("description"))
    if not description:
        return None
    metadata = fields.get("metadata")
    return Skill(
        name=_words(fields.get("name")) or folder.name,
        description=description,
        body=body,
        folder=folder,
        compatibility=_words(fields.get("compatibility")),
        license=_words(fields.get("license")),
        metadata={k: v for k, v in metadata.items() if isinstance(v, str)} if isinstance(metadata, dict) else {},
        allowed_tools=_tools(fields.get("allowed-tools")),
    )


def _words(value: Any) -> str:
    return " ".join(value.split()) if isinstance(value, str) else ""


def _tools(value: Any) -> str:
    """The tools of a skill; other programs accept a list too."""
    return ", ".join(map(_words, value)) if isinstance(value, list) else _words(value)


# ---- the specification


def _faults(fields: Mapping[str, Any], folder: Path) -> Iterator[str]:
    unknown = sorted(str(field) for field in fields if field not in _FIELDS)
    if unknown:
        yield f"{', '.join(map(repr, unknown))} not known: the fields are {', '.join(sorted(_FIELDS))}"
    yield from _name_faults(fields.get("name"), folder)
    yield from _text_faults("description", fields.get("description"), _LONGEST_DESCRIPTION, is_needed=True)
    yield from _text_faults("compatibility", fields.get("compatibility"), _LONGEST_COMPATIBILITY, is_needed=False)
    yield from (f"{field} is a text" for field in ("license", "allowed-tools") if not _is_text(fields.get(field, "")))
    metadata = fields.get("metadata", {})
    if not isinstance(metadata, dict) or not all(_is_text(value) for value in metadata.values()):
        yield "metadata is a mapping of texts to texts"


def name_faults(name: str) -> Iterator[str]:
    """What is wrong with a skill's name."""
    if len(name) > _LONGEST_NAME:
        yield f"the name has {len(name)} characters; the maximum is {_LONGEST_NAME}"
    if name != name.lower():
        yield f"the name {name!r} has capital letters: use lower case"
    if name.startswith("-") or name.endswith("-") or "--" in name:
        yield f"the name {name!r} begins or ends with a hyphen, or has two in a row"
    if not name or not all(char.isalnum() or char == "-" for char in name):
        yield f"the name {name!r} has other characters than letters, digits and hyphens"


def _name_faults(name: Any, folder: Path) -> Iterator[str]:
    if not isinstance(name, str) or not name.strip():
        yield "there is no name"
        return
    normal = unicodedata.normalize("NFKC", name.strip())
    yield from name_faults(normal)
    if normal != unicodedata.normalize("NFKC", folder.name):
        yield f"the name {name!r} differs from the name of its folder, {folder.name!r}: make them equal"


def _text_faults(field: str, value: Any, most: int, *, is_needed: bool) -> Iterator[str]:
    if value is None and not is_needed:
        return
    if not isinstance(value, str) or not value.strip():
        yield f"there is no {field}" if value is None or is_needed else f"{field} is a text"
    elif len(value) > most:
        yield f"{field} has {len(value):,} characters; the maximum is {most:,}"


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


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
        most = f"{_LONG_BODY_LINES} lines or {_LONG_BODY:,} characters"
        yield f"the instructions are longer than {most}: move parts of them to other files in the folder"
