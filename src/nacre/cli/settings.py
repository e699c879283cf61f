"""The settings that exist today: where each may be set, and what it is now."""

from __future__ import annotations

import os
from typing import Any, NamedTuple

from nacre.cli.failures import Failure


class Setting(NamedTuple):
    """One key of the configuration file."""

    key: str
    meaning: str
    default: str
    choices: tuple[str, ...] = ()

    @property
    def variable(self) -> str:
        """The environment variable that overrides it."""
        return f"NACRE_{self.key.replace('.', '_').upper()}"


class Value(NamedTuple):
    """What a setting is, and where that was said."""

    setting: Setting
    value: str
    source: str


SETTINGS = (
    Setting("cli.color", "colour in the terminal", "auto", ("auto", "always", "never")),
    Setting("cli.pager", "the program that long output goes through; PAGER if it is not set", ""),
)


def path() -> str:
    """Where the configuration file is, whether it exists or not."""
    home = os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")
    return os.path.join(home, "nacre", "config.toml")


def current() -> list[Value]:
    """Every setting with its value: the environment's, else the file's, else the default."""
    tables = read()
    return [_current(setting, tables) for setting in SETTINGS]


def value_of(key: str) -> str:
    """What one setting is now."""
    return next(found.value for found in current() if found.setting.key == key)


def read() -> dict[str, Any]:
    """The configuration file; empty if there is none. Raises Failure if it cannot be read."""
    try:
        with open(path(), "rb") as file:
            import tomllib  # noqa: PLC0415 - most have no such file, and its parser takes its time to load

            return tomllib.load(file)
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise Failure("config", f"{path()} cannot be read: {error}", hint="mend it, or move it away") from error


def complaints(tables: dict[str, Any]) -> list[str]:
    """What is wrong with the settings in a file and in the environment."""
    known = {setting.key: setting for setting in SETTINGS}
    wrong: list[str] = []
    for key, value in _flat(tables):
        if key not in known:
            wrong.append(f"{key} is not a setting{_meant(key, known)}")
        elif not isinstance(value, str):
            wrong.append(f"{key} is text, not {type(value).__name__}")
    return wrong + [fault for setting in SETTINGS if (fault := _fault(_current(setting, tables)))]


def _current(setting: Setting, tables: dict[str, Any]) -> Value:
    if setting.variable in os.environ:
        return Value(setting, os.environ[setting.variable], setting.variable)
    section, _, name = setting.key.partition(".")
    table = tables.get(section)
    if isinstance(table, dict) and isinstance(table.get(name), str):
        return Value(setting, table[name], "file")
    return Value(setting, setting.default, "default")


def _flat(tables: dict[str, Any]) -> list[tuple[str, Any]]:
    found: list[tuple[str, Any]] = []
    for section, table in tables.items():
        found += (
            [(f"{section}.{name}", value) for name, value in table.items()]
            if isinstance(table, dict)
            else [(section, table)]
        )
    return found


def _fault(found: Value) -> str:
    choices = found.setting.choices
    if not choices or found.value in choices:
        return ""
    return f"{found.setting.key} is {', '.join(choices[:-1])} or {choices[-1]}, not {found.value!r} ({found.source})"


def _meant(key: str, known: dict[str, Setting]) -> str:
    from difflib import get_close_matches  # noqa: PLC0415 - only for who mistyped

    near = get_close_matches(key, known, n=1)
    return f"; did you mean {near[0]}?" if near else f"; there are {', '.join(known)}"
