"""Settings: what may be set, where it is set, and what it is now."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from nacre.errors import ConfigError

Plain = str | int | bool
_TRUE, _FALSE = ("true", "yes", "on", "1"), ("false", "no", "off", "0")
MAIN = "main"
"""What the agent is called that is always there."""


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
    Setting("agent.max_turns", "how many senders of all channels are answered at once; others wait", 32),
    Setting("agent.only", "the tools that it may use, separated by spaces; nothing: all", ""),
    Setting("agent.persona", "who it is, in words for the model; nothing: PERSONA.md in the workspace", ""),
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
    Setting(
        "retention.archive_after", "how long after the last word a session is archived, as 90d; nothing: never", ""
    ),
    Setting("retention.delete_after", "how long after that it goes to the trash, as 1y; nothing: never", ""),
    Setting("sandbox.kind", "what confines programs that tools run", "auto", ("auto", "bwrap", "landlock", "off")),
    Setting("sandbox.network", "whether programs that tools run may use the network", False),  # noqa: FBT003
    Setting("web.allow", "private hosts that web_fetch may read, separated by spaces", ""),
)
RULES = ("ask", "allow", "deny")

_TABLES = {
    "agents": "an agent, with what differs from the main one",
    "channels": "a place where people are",
    "mcp": "a server, with a command or a url",
    "schedule": "words, and when they come",
}
"""Sections of tables whose names users choose."""
_BY_KEY = {setting.key: setting for setting in SETTINGS}
_SHARED = ("agents", "channels", "cli", "schedule")
"""Sections that are the daemon's, not one agent's."""
_ROUTED = ("channels", "schedule")
"""Sections whose tables say which agent they are for."""
_UNIQUE = ("agent.persona", "agent.workspace")
"""What an agent never has from the main one."""
_LETTERS = frozenset("abcdefghijklmnopqrstuvwxyz0123456789-")
_LONGEST_NAME = 32
_TAKEN = (MAIN, "nacre")


class Settings:
    """Every setting's value; raises ConfigError when it is made of what cannot work."""

    def __init__(self, tables: Mapping[str, Any], environ: Mapping[str, str]) -> None:
        wrong = complaints(tables, environ)
        if wrong:
            raise ConfigError("; ".join(wrong))
        self._values = {found.setting.key: found.value for found in current(tables, environ)}
        self._tables = tables
        self._environ = environ

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Settings) and (self._values, self._tables) == (other._values, other._tables)

    __hash__ = None  # type: ignore[assignment] # what can be compared and changed is no key

    @property
    def agents(self) -> list[str]:
        """The names of all agents, the main one first."""
        return [MAIN, *self.table("agents")]

    def for_agent(self, name: str) -> Settings:
        """The settings of one agent: the main one's under what its own table says, and the channels that it answers.

        Raises ConfigError if there is no such agent.
        """
        if name not in self.agents:
            raise ConfigError(f"there is no agent {name!r}; there are {', '.join(self.agents)}")
        tables = {section: table for section, table in self._tables.items() if section not in _SHARED}
        tables |= {section: mine for section in _ROUTED if (mine := _routed(self.table(section), name))}
        if name == MAIN:
            return Settings(tables, self._environ)
        own = _sections(self.table("agents")[name])
        said = {f"{section}.{key}" for section, table in own.items() for key in table} | {*_UNIQUE}
        below = {key: value for key, value in tables.get("agent", {}).items() if f"agent.{key}" not in _UNIQUE}
        tables |= {"agent": below}
        tables |= {section: {**tables.get(section, {}), **table} for section, table in own.items()}
        over = {_BY_KEY[key].variable for key in said if key in _BY_KEY}
        return Settings(tables, {variable: text for variable, text in self._environ.items() if variable not in over})

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
    agents = found if isinstance(found := tables.get("agents"), dict) else {}
    for name, table in agents.items():
        wrong += _complaints_of(name, table) if isinstance(table, dict) else []
    return wrong + [fault for section in _ROUTED for fault in _astray(section, tables.get(section), [MAIN, *agents])]


def is_name(text: str) -> bool:
    """Tell whether a text may name an agent or a channel: it stands in addresses, in keys and in names of files."""
    return 0 < len(text) <= _LONGEST_NAME and text[0] != "-" and _LETTERS.issuperset(text)


def _complaints_of(name: str, table: Mapping[str, Any]) -> list[str]:
    """What is wrong with an agent's table."""
    if not is_name(name) or name in _TAKEN:
        return [f"agents.{name}: an agent is named by lower-case letters, digits and dashes, and not main or nacre"]
    own = _sections(table)
    alien = [f"{section} is not an agent's own" for section in own if section in _SHARED]
    found = complaints({section: table for section, table in own.items() if section not in _SHARED}, {})
    return [f"[agents.{name}] {fault}" for fault in alien + found]


def _sections(table: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """An agent's table as sections: its plain keys are those of `agent`, and tables in it are sections."""
    plain = {key: value for key, value in table.items() if not isinstance(value, dict)}
    return {"agent": plain, **{key: value for key, value in table.items() if isinstance(value, dict)}}


def _routed(tables: Mapping[str, Any], name: str) -> dict[str, Any]:
    """The tables of a section that are for an agent, and what is not a table."""
    mine = {key: value for key, value in tables.items() if not isinstance(value, dict) or _agent_of(value) == name}
    return {key: _without_agent(value) if isinstance(value, dict) else value for key, value in mine.items()}


def _agent_of(table: Mapping[str, Any]) -> Any:
    return table.get("agent", MAIN)


def _without_agent(table: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in table.items() if key != "agent"}


def _astray(section: str, tables: Any, agents: list[str]) -> list[str]:
    """Tables that are for an agent that there is not."""
    found = tables.items() if isinstance(tables, dict) else ()
    wanted = {key: _agent_of(table) for key, table in found if isinstance(table, dict)}
    return [
        f"{section}.{key} is for the agent {name!r}; there are {', '.join(agents)}"
        for key, name in wanted.items()
        if name not in agents
    ]


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
