"""What a person allowed always, folder by folder; and the rules of the configuration."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import msgspec
from msgspec import Struct

from nacre.config import Settings
from nacre.errors import ConfigError
from nacre.skills import Skill, permits
from nacre.tools.permission_rules import Rule, Rules, parse_rule
from nacre.user_files import locked, state_folder, write_whole

_FILE = "permissions.json"
_KINDS = ("allow", "ask", "deny")


class _Document(Struct, frozen=True):
    schema_version: int = 1
    folders: dict[str, list[str]] = {}


class PermissionStore:
    """The rules that people answered "always" to, by the root of the folder: one file of this user's, mode 0600."""

    def __init__(self, path: Path | None = None) -> None:
        self.path = path or Path(state_folder()) / _FILE

    def rules(self, root: str) -> tuple[str, ...]:
        """What is allowed in a folder, without rules that cannot be read; raises ConfigError if the file cannot be."""
        return readable_rules(self._read().get(root, ()))[0]

    def problems(self, root: str) -> list[str]:
        """A line for each rule of a folder that cannot be read, and is not followed."""
        found = readable_rules(self._read().get(root, ()))[1]
        return [f"{self.path}: {problem}; it is not followed" for problem in found]

    def folders(self) -> dict[str, list[str]]:
        """What is allowed in every folder."""
        return self._read()

    def add(self, root: str, rules: Sequence[str]) -> None:
        """Allow more in a folder."""
        with self._change() as folders:
            folders[root] = list(dict.fromkeys([*folders.get(root, ()), *rules]))

    def remove(self, root: str, rules: Sequence[str] | None = None) -> list[str]:
        """Take rules of a folder back, or all of them; gives those that were there."""
        with self._change() as folders:
            before = folders.get(root, [])
            gone = [rule for rule in before if rules is None or rule in rules]
            folders[root] = [rule for rule in before if rule not in gone]
            if not folders[root]:
                del folders[root]
        return gone

    def _read(self) -> dict[str, list[str]]:
        try:
            document = msgspec.json.decode(self.path.read_bytes(), type=_Document)
        except FileNotFoundError:
            return {}
        except (OSError, msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise ConfigError(f"{self.path} cannot be read: {error}; repair it, or move it away") from error
        return document.folders

    @contextmanager
    def _change(self) -> Iterator[dict[str, list[str]]]:
        """Change the rules under a lock; the file is replaced whole. Raises ConfigError if it cannot be written."""
        try:
            with locked(self.path.parent):
                folders = self._read()
                yield folders
                text = msgspec.json.format(msgspec.json.encode(_Document(folders=folders)), indent=2)
                write_whole(self.path, text + b"\n")
        except OSError as error:
            raise ConfigError(f"{self.path} cannot be written: {error.strerror}") from error


def readable_rules(rules: Sequence[str]) -> tuple[tuple[str, ...], list[str]]:
    """The rules that can be read, and what is wrong with each of the others."""
    good, problems = [], []
    for rule in rules:
        try:
            parse_rule(rule)
        except ConfigError as error:
            problems.append(str(error))
        else:
            good.append(rule)
    return tuple(good), problems


def rules_of(
    settings: Settings, *, allow: Sequence[str] = (), ask: Sequence[str] = (), deny: Sequence[str] = ()
) -> Rules:
    """The rules of the configuration, and more from the command line or the folder; raises ConfigError."""
    more = {"allow": allow, "ask": ask, "deny": deny}
    found = {}
    for kind in _KINDS:
        try:
            found[kind] = tuple(parse_rule(rule) for rule in settings.texts(f"permissions.{kind}"))
        except ConfigError as error:
            raise ConfigError(f"permissions.{kind}: {error}") from error
        found[kind] += tuple(parse_rule(rule) for rule in more[kind])
    return Rules(allow=found["allow"], ask=found["ask"], deny=found["deny"])


def skill_rules(skills: Iterable[Skill]) -> dict[str, tuple[Rule, ...]]:
    """What each skill asks for, by its name; rules that cannot be read are left out."""
    found = {skill.name: readable_rules(permits(skill.allowed_tools))[0] for skill in skills}
    return {name: tuple(map(parse_rule, rules)) for name, rules in found.items() if rules}


def check_rules(settings: Settings) -> None:
    """Read the rules of every agent; raises ConfigError for one that cannot be read."""
    for agent in settings.agents:
        rules_of(settings.for_agent(agent))
