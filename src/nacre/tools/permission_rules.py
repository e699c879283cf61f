"""Rules that allow, ask about or deny tool calls: `shell(git status)`, `write_file(src/**)`, `web_fetch(host)`.

A rule is the name of a tool, or a name and a pattern in parentheses. What a pattern means depends on the tool:

- `shell(git status)` is that command with exactly these words. A last word `*` stands for one or more further words;
  a `*` inside a word for any characters of it. No `*` matches `;`, `&`, `|` or a line break, and a word that begins
  with `*` matches no option: those are written into the rule. A line with file name patterns matches no rule.
- `write_file(src/**)` is a path from the folder, as in .gitignore: `*` within a name, `**` across folders. Links are
  resolved first, and a path that leads out of the folder matches nothing.
- `web_fetch(docs.python.org)` is a host, `web_fetch(*.python.org)` every host below it.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from fnmatch import fnmatchcase, translate
from typing import Any, Literal
from urllib.parse import unquote, urlsplit

from msgspec import Struct

from nacre.errors import ConfigError
from nacre.tools.files.workspace import Pattern, can_be_path
from nacre.tools.shell_commands import NotPlain, Word, always_asks, has_options_first, loose_commands, split

Verdict = Literal["allow", "ask", "deny"]
FILE_TOOLS = ("read_file", "list_files", "write_file", "edit_file")
_RULE = re.compile(r"(?P<tool>[A-Za-z0-9_.*?-]+)(?:\((?P<pattern>.*)\))?", re.DOTALL)
_HOST = re.compile(r"(?:\*\.)?[A-Za-z0-9._-]+(?::\d+)?|\[[0-9A-Fa-f:.]+\](?::\d+)?")
_ADDRESS = re.compile(r"https?://(?:[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(?::\d{1,5})?(?:[/?#][\x21-\x7e]*)?\Z")
_NOT_MATCHED = re.compile(r"[;&|\r\n]")
_OPTION = re.compile(r"[-+]|.*=", re.DOTALL)
"""What may be an option or a setting of a program: `-x`, `+x`, `NAME=value`."""
_ANY = "*"


class Rule(Struct, frozen=True):
    """A tool's name (`*` and `?` may stand in it), and a pattern for its argument; "" is every call."""

    tool: str
    pattern: str = ""

    def __str__(self) -> str:
        return f"{self.tool}({self.pattern})" if self.pattern else self.tool


def parse_rule(text: str) -> Rule:
    """Read a rule; raises ConfigError that says what is wrong with it."""
    found = _RULE.fullmatch(text.strip())
    if found is None:
        raise ConfigError(f"the rule {text!r} cannot be read: write a tool and a pattern, as in shell(git status)")
    tool, pattern = found["tool"], found["pattern"]
    if pattern is None:
        return Rule(tool)
    if not pattern.strip():
        raise ConfigError(f"the rule {text!r} has an empty pattern: write {tool!r} for every call")
    fault, pattern = "", pattern.strip()
    match tool:
        case "shell":
            try:
                count = len(split(pattern))
            except NotPlain as error:
                raise ConfigError(f"the rule {text!r} is not a plain command: {error}") from error
            fault = f"has {count} commands: write a rule for each" if count != 1 else ""
        case "web_fetch":
            fault = "" if _HOST.fullmatch(pattern) else "names no host: write web_fetch(docs.python.org)"
        case _ if tool in FILE_TOOLS:
            if pattern.startswith("/") or ".." in pattern.split("/"):
                fault = "leaves the folder: write a path relative to it, as in src/**"
        case _:
            fault = f"has a pattern, and {tool} takes none; shell, web_fetch and the file tools do"
    if fault:
        raise ConfigError(f"the rule {text!r} {fault}")
    return Rule(tool, pattern)


def parse_readable(rules: Iterable[str]) -> dict[str, Rule]:
    """Rules by their text, without those that cannot be read: anybody may write into a session's meta."""
    found: dict[str, Rule] = {}
    for rule in rules:
        with suppress(ConfigError):
            found[rule] = parse_rule(rule)
    return found


class Rules(Struct, frozen=True, kw_only=True):
    """Rules by what they say; deny wins over ask, and ask over allow."""

    allow: tuple[Rule, ...] = ()
    ask: tuple[Rule, ...] = ()
    deny: tuple[Rule, ...] = ()


class Judge:
    """Applies rules to calls; paths of calls are relative to `base`, those of rules to `root`, else to `base` too."""

    def __init__(self, rules: Rules, *, root: str = "", base: str = ".") -> None:
        self.rules = rules
        self._base = os.path.realpath(base)
        self._root = os.path.realpath(root or base)

    def verdict(self, tool: str, arguments: Mapping[str, Any], *, more: Iterable[Rule] = ()) -> Verdict | None:
        """What the rules say about a call, with `more` rules that allow; None if no rule is about it."""
        if any(self._forbids(rule, tool, arguments) for rule in self.rules.deny):
            return "deny"
        if any(self._forbids(rule, tool, arguments) for rule in self.rules.ask):
            return "ask"
        return "allow" if self._allows([*self.rules.allow, *more], tool, arguments) else None

    def always(self, tool: str, arguments: Mapping[str, Any]) -> tuple[str, ...]:
        """The rules that would allow just this kind of call from now on; none if no rule can."""
        match tool:
            case "shell":
                commands = _plain_commands(arguments)
                exact = [f"shell({shlex.join(word.text for word in command)})" for command in commands or ()]
                # Only what would really be allowed by them: `*` in a word is a pattern in a rule.
                rules = tuple(dict.fromkeys(exact))
                is_enough = self._allows(parse_readable(rules).values(), tool, arguments)
                return rules if rules and is_enough else ()
            case "web_fetch":
                host = _host(str(arguments.get("url", "")))
                return (f"web_fetch({host})",) if _HOST.fullmatch(host) else ()
            case "write_file" | "edit_file" | "read_file" | "list_files":
                return (f"{tool}(**)",)
            case _:
                return (tool,)

    def _allows(self, rules: Iterable[Rule], tool: str, arguments: Mapping[str, Any]) -> bool:
        about = [rule for rule in rules if fnmatchcase(tool, rule.tool)]
        if any(not rule.pattern for rule in about):
            return True
        match tool:
            case "shell":
                commands = _plain_commands(arguments)
                return bool(commands) and all(
                    any(_matches_words(rule.pattern, command) for rule in about) for command in commands or ()
                )
            case "web_fetch":
                host = _host(str(arguments.get("url", "")))
                return any(_matches_host(rule.pattern, host) for rule in about)
            case _:
                place = self._place(arguments.get("path", "."))
                return place is not None and any(_matches_path(rule.pattern, place) for rule in about)

    def _forbids(self, rule: Rule, tool: str, arguments: Mapping[str, Any]) -> bool:
        """Whether a rule that restricts is about a call; where it is unclear, it is."""
        if not fnmatchcase(tool, rule.tool):
            return False
        if not rule.pattern:
            return True
        match tool:
            case "shell":
                found = loose_commands(str(arguments.get("command", "")))
                return any(_resembles(rule.pattern, words) for words in found)
            case "web_fetch":
                url = str(arguments.get("url", ""))
                host = _host(url)
                # An address that may be read in two ways is the host's if it names it at all.
                is_named = not host and rule.pattern.lower().lstrip("*.") in unquote(url).lower()
                return is_named or _matches_host(rule.pattern, host, every_port=True)
            case _:
                given = os.path.join(self._base, str(arguments.get("path", ".")))  # noqa: PTH118 - may not be a path
                places = {os.path.relpath(os.path.normpath(given), self._root), self._place(given)}
                return any(_matches_path(rule.pattern, place) for place in places if place is not None)

    def _place(self, path: object) -> str | None:
        """Where a path really leads, from the folder; None if that is outside it."""
        if not isinstance(path, str) or not can_be_path(path):
            return None
        real = os.path.realpath(os.path.join(self._base, path))  # noqa: PTH118 - links resolved as in Workspace
        inside = os.path.relpath(real, self._root)
        return None if inside == ".." or inside.startswith("../") else inside


def _plain_commands(arguments: Mapping[str, Any]) -> Sequence[tuple[Word, ...]] | None:
    """The simple commands of a call; None if rules cannot judge it."""
    try:
        commands = split(str(arguments.get("command", "")))
    except NotPlain:
        return None
    if any(always_asks([word.text for word in command]) for command in commands):
        return None
    return commands


def _matches_words(pattern: str, command: Sequence[Word]) -> bool:
    """Whether a command is what a pattern of `shell(…)` allows."""
    wanted = split(pattern)[0]
    is_open = len(wanted) > 1 and wanted[-1] == Word(_ANY, is_pattern=True)
    fixed, given = (wanted[:-1] if is_open else wanted), command[: len(wanted) - 1 if is_open else len(wanted)]
    further = command[len(fixed) :]
    if len(fixed) != len(given) or bool(further) != is_open:
        return False
    if len(wanted) > 1 and wanted[1].is_pattern and has_options_first(wanted[0].text):
        return False
    if not all(_matches_word(wanted[-1], word) for word in further):
        return False
    return all(_matches_word(want, word) for want, word in zip(fixed, given, strict=True))


def _matches_word(want: Word, word: Word) -> bool:
    # A word that the shell will replace by file names is none that a rule names, even if it looks the same.
    if word.is_pattern and word.text != "[":
        return False
    if not want.is_pattern or want.text == "[":
        return want.text == word.text
    if _NOT_MATCHED.search(word.text) or (want.text.startswith(_ANY) and _OPTION.match(word.text)):
        return False
    parts = re.split(r"(\*)", want.text)
    return re.fullmatch("".join(".*" if part == _ANY else re.escape(part) for part in parts), word.text) is not None


def _resembles(pattern: str, words: Sequence[str]) -> bool:
    """Whether words look like a command that a rule restricts; `/bin/rm` is `rm`, and `*` may stand for nothing."""
    wanted = [word.text for word in split(pattern)[0]]
    given = [words[0].rpartition("/")[2] if "/" not in wanted[0] else words[0], *words[1:]]
    if wanted[-1] == _ANY:
        wanted, given = wanted[:-1], given[: len(wanted) - 1]
    return len(wanted) == len(given) and all(
        re.fullmatch(translate(want.replace("[", "[[]")), word) for want, word in zip(wanted, given, strict=True)
    )


def _host(url: str) -> str:
    """The host of an address in lower case, with its port if that is not the usual one."""
    # Only an address that everybody reads in the same way; another has no host that a rule could allow.
    if not _ADDRESS.match(url.strip()):
        return ""
    try:
        parts = urlsplit(url.strip())
        port = parts.port
    except ValueError:
        return ""
    host = (parts.hostname or "").rstrip(".").lower()
    host = f"[{host}]" if ":" in host else host
    return host if port is None or port == {"http": 80, "https": 443}.get(parts.scheme) else f"{host}:{port}"


def _matches_host(pattern: str, host: str, *, every_port: bool = False) -> bool:
    wanted = pattern.lower().rstrip(".")
    if every_port and not re.search(r":\d+$", wanted):
        host = re.sub(r":\d+$", "", host)
    return bool(host) and (host.endswith(wanted[1:]) if wanted.startswith("*.") else host == wanted)


def _matches_path(pattern: str, place: str) -> bool:
    shape = Pattern(pattern)
    states, is_meant = shape.start, False
    for name in place.split("/"):
        is_meant, states = shape.step(states, name)
    return is_meant
