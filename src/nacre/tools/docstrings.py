"""What a docstring says of a function and of each of its parameters."""

from __future__ import annotations

import re
from collections.abc import Collection
from inspect import cleandoc

_SECTION = re.compile(
    r"(args|arguments|parameters|params|returns?|yields?|raises|examples?|notes?)\s*:\s*$", re.IGNORECASE
)
_UNDERLINE = re.compile(r"^\s*[-=]{3,}\s*$")
_FIELD = re.compile(r":(?:param|parameter|arg|argument)\s+(?:[^:]*\s)?\*{0,2}(\w+)\s*:\s*(.*)")
_OTHER_FIELD = re.compile(r":(?:returns?|rtype|raises|type|yields?)\b[^:]*:")
_ENTRY = re.compile(r"[`*]{0,2}(\w+)[`*]{0,2}\s*(?:\([^)]*\))?\s*(?::|–|--| - )\s*(.*)")


def read(docstring: str, parameters: Collection[str]) -> tuple[str, dict[str, str]]:
    """What the function does, and what each parameter is.

    Known are Google's `Args:` section, `:param name: …` and plain lines of the form `name: …`;
    what a function returns and raises is left out.
    """
    summary: list[str] = []
    found: dict[str, list[str]] = {}
    into: list[str] | None = summary
    depth = -1
    for line in cleandoc(docstring).splitlines():
        named = _parameter(line.strip(), parameters)
        if named is not None:
            into, depth = found.setdefault(named[0], [named[1]]), _indent(line)
        elif _is_section(line):
            into = None
        elif into is summary:
            summary.append(line)
        elif into is not None and line.strip() and _indent(line) > depth:
            into.append(line.strip())
        else:
            into = None
    return "\n".join(summary).strip(), {name: " ".join(lines).strip() for name, lines in found.items()}


def _parameter(line: str, parameters: Collection[str]) -> tuple[str, str] | None:
    """The parameter that a line begins to describe, and its first words."""
    match = _FIELD.match(line) or _ENTRY.match(line)
    return (match[1], match[2]) if match and match[1] in parameters else None


def _is_section(line: str) -> bool:
    text = line.strip()
    return bool(_SECTION.match(text) or _OTHER_FIELD.match(text) or _UNDERLINE.match(line))


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())
