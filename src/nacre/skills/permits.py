"""The tools that a skill names in `allowed-tools`, as rules of this agent."""

from __future__ import annotations

import re

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


def permits(allowed_tools: str) -> tuple[str, ...]:
    """The rules that a skill asks for, such as `shell(git *)`; none if they cannot be read to the end."""
    found: list[str] = []
    at = 0
    while at < len(allowed_tools):
        entry = _ENTRY.match(allowed_tools, at)
        if entry is None:
            return ()
        found.append(_rule(entry[1], (entry[2] or "").strip()))
        at = entry.end()
    return tuple(dict.fromkeys(found))


def _rule(name: str, pattern: str) -> str:
    server = _SERVER.fullmatch(name)
    tool = f"{server[1]}_{server[2]}" if server else _OURS.get(name, name)
    # `git:*` is how some write `git *`, and a host may be marked as one.
    pattern = re.sub(r":\*$", " *", pattern) if tool == "shell" else pattern.removeprefix("domain:")
    return f"{tool}({pattern})" if pattern and pattern != "*" else tool
