"""Settings: what may be set, where it is set, and what it is now."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from nacre.errors import ConfigError

Plain = str | int | bool
_TRUE, _FALSE = ("true", "yes", "on", "1"), ("false", "no", "off", "0")


class Setting(NamedTuple):
    """One key of the configuration file; what it is by default says what kind of value it takes."""

    key: str
    meaning: str
    default: Plain
    choices: tuple[str, ...] = ()

    @property
    def variable(self) -> str:
        """The environment variable that overrides it."""
        return f"NACRE_{self.key.replace('.', '_').upper()}"

    @property
    def kind(self) -> str:
        return {bool: "true or false", int: "a whole number"}.get(type(self.default), "text")


class Value(NamedTuple):
    """What a setting is, and where that was said: a variable, the file, or nowhere."""

    setting: Setting
    value: Plain
    source: str


SETTINGS = (
    Setting("agent.provider", "who serves the model", "auto", ("auto", "ollama", "openai", "anthropic", "embedded")),
    Setting("agent.model", "the model's name; nothing: the provider's usual one", ""),
    Setting("agent.max_context_tokens", "how much of a session the model is shown, in tokens", 32_000),
    Setting("agent.max_history_messages", "how much of a session the model is shown, in messages", 50),
    Setting("agent.max_steps", "how often a model may call tools in one turn", 50),
    Setting("agent.tools", "how tools are called", "auto", ("auto", "native", "prompted")),
    Setting("agent.workspace", "where tools read and write; nothing: `workspace` in the store", ""),
    Setting("anthropic.base_url", "where Anthropic's API is", "https://api.anthropic.com"),
    Setting("anthropic.key_file", "a file with the key; else ANTHROPIC_API_KEY", ""),
    Setting("anthropic.max_tokens", "the longest answer, in tokens", 8192),
    Setting("channels.session_persistence", "whether what comes through channels is kept on disk", True),  # noqa: FBT003 - a default
    Setting("cli.color", "colour in the terminal", "auto", ("auto", "always", "never")),
    Setting("cli.pager", "the program that long output goes through; PAGER if it is not set", ""),
    Setting("embedded.threads", "threads of the embedded model; 0: as many as there are cores", 0),
    Setting("memory.enabled", "whether facts are kept from one session to the next", True),  # noqa: FBT003
    Setting("memory.model", "the model that reads turns for what to remember; nothing: the one that answers", ""),
    Setting("memory.tokens", "how much of it the model is shown with each message, in tokens", 800),
    Setting("memory.embeddings", "whether facts are found by meaning too, if installed", "auto", ("auto", "off")),
    Setting("ollama.host", "where Ollama is; else OLLAMA_HOST", ""),
    Setting("ollama.keep_alive", "how long Ollama keeps the model loaded", "5m"),
    Setting("openai.base_url", "where an OpenAI-compatible API is", "https://api.openai.com/v1"),
    Setting("openai.key_file", "a file with the key; else OPENAI_API_KEY", ""),
    Setting("openai.azure_version", "the api-version of an Azure deployment; nothing: not Azure", ""),
    Setting("sandbox.kind", "what confines programs that tools run", "auto", ("auto", "bwrap", "landlock", "off")),
    Setting("sandbox.network", "whether programs that tools run may use the network", False),  # noqa: FBT003
    Setting("web.allow", "private hosts that web_fetch may read, separated by spaces", ""),
)
RULES = ("ask", "allow", "deny")

_TABLES = {
    "channels": "a place where people are",
    "mcp": "a server, with a command or a url",
    "schedule": "words, and when they come",
}
"""Sections of tables whose names users choose."""
_BY_KEY = {setting.key: setting for setting in SETTINGS}


class Settings:
    """Every setting's value; raises ConfigError when it is made of what cannot work."""

    def __init__(self, tables: Mapping[str, Any], environ: Mapping[str, str]) -> None:
        wrong = complaints(tables, environ)
        if wrong:
            raise ConfigError("; ".join(wrong))
        self._values = {found.setting.key: found.value for found in current(tables, environ)}
        self._tables = tables

    def text(self, key: str) -> str:
        return str(self._values[key])

    def number(self, key: str) -> int:
        return int(self._values[key])

    def flag(self, key: str) -> bool:
        return bool(self._values[key])

    def table(self, name: str) -> Mapping[str, Any]:
        """A section whose keys are names that users choose."""
        found: Mapping[str, Any] = self._tables.get(name, {})
        return found


def load() -> Settings:
    """The settings as the file and the environment say; raises ConfigError."""
    return Settings(read(), os.environ)


def path() -> str:
    """Where the configuration file is, whether it exists or not."""
    home = os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")  # noqa: PTH111 - pathlib takes its time
    return f"{home}/nacre/config.toml"


def read() -> dict[str, Any]:
    """The configuration file; empty if there is none. Raises ConfigError if it cannot be read."""
    try:
        with open(path(), "rb") as file:  # noqa: PTH123 - the same
            import tomllib  # noqa: PLC0415 - most have no such file, and its parser takes its time to load

            return tomllib.load(file)
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path()} cannot be read: {error}; mend it, or move it away") from error


def current(tables: Mapping[str, Any], environ: Mapping[str, str]) -> list[Value]:
    """Every setting with its value: the environment's, else the file's, else the default."""
    return [_current(setting, tables, environ) for setting in SETTINGS]


def value_of(key: str) -> str:
    """What one text is set to now; raises ConfigError if the file cannot be read."""
    return str(_current(_BY_KEY[key], read(), os.environ).value)


def complaints(tables: Mapping[str, Any], environ: Mapping[str, str]) -> list[str]:
    """What is wrong with the settings in a file and in the environment."""
    wrong = [fault for key, value in _flat(tables) if (fault := _strange(key, value))]
    wrong += [fault for found in current(tables, environ) if (fault := _fault(found))]
    return wrong


def _current(setting: Setting, tables: Mapping[str, Any], environ: Mapping[str, str]) -> Value:
    if setting.variable in environ:
        return Value(setting, _parsed(setting, environ[setting.variable]), setting.variable)
    section, _, name = setting.key.partition(".")
    table = tables.get(section)
    if isinstance(table, dict) and name in table:
        return Value(setting, table[name], "file")
    return Value(setting, setting.default, "default")


def _parsed(setting: Setting, text: str) -> Plain:
    """What a variable's text means; the text itself if it means nothing, so that it can be complained of."""
    if isinstance(setting.default, bool):
        return text.lower() in _TRUE if text.lower() in _TRUE + _FALSE else text
    if isinstance(setting.default, int):
        return int(text) if text.strip().isdecimal() else text
    return text


def _flat(tables: Mapping[str, Any]) -> Iterable[tuple[str, Any]]:
    for section, table in tables.items():
        if isinstance(table, dict):
            yield from ((f"{section}.{name}", value) for name, value in table.items())
        else:
            yield section, table


def _strange(key: str, value: Any) -> str:
    """What is wrong with a key of the file."""
    section = key.partition(".")[0]
    if section == "approvals":
        return "" if value in RULES else f"{key} is ask, allow or deny, not {value!r}"
    if section in _TABLES and (isinstance(value, dict) or key not in _BY_KEY):
        return "" if isinstance(value, dict) else f"{key} is a table: {_TABLES[section]}, not {value!r}"
    return "" if key in _BY_KEY else f"{key} is not a setting{_meant(key)}"


def _fault(found: Value) -> str:
    setting, value, source = found
    if type(value) is not type(setting.default):
        return f"{setting.key} is {setting.kind}, not {value!r} ({source})"
    if not setting.choices or value in setting.choices:
        return ""
    return f"{setting.key} is {', '.join(setting.choices[:-1])} or {setting.choices[-1]}, not {value!r} ({source})"


def _meant(key: str) -> str:
    from difflib import get_close_matches  # noqa: PLC0415 - only for who mistyped

    near = get_close_matches(key, _BY_KEY, n=1)
    return f"; did you mean {near[0]}?" if near else "; `nacre config show` lists what there is"
