"""Settings: the keys of the configuration file, their defaults, and their values now."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from nacre.errors import ConfigError

Plain = str | int | bool | tuple[str, ...]
_IN_PATHS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._~")
_TRUE, _FALSE = ("true", "yes", "on", "1"), ("false", "no", "off", "0")
MAIN = "main"
"""The name of the agent that always exists."""
_NEEDS_ARRAY = frozenset("()[]\"'")
"""Characters that a space-separated list must not have: such a text is written as an array."""


class Setting(NamedTuple):
    """One key of the configuration file; its values have the type of its default (a tuple is an array of texts)."""

    key: str
    meaning: str
    default: Plain
    choices: tuple[str, ...] = ()
    is_valid: Callable[[Any], bool] = lambda _: True
    wanted: str = ""
    """What `is_valid` demands, for people."""

    @property
    def variable(self) -> str:
        """The environment variable that overrides it."""
        return f"NACRE_{self.key.replace('.', '_').upper()}"

    @property
    def kind(self) -> str:
        """The type of its values, for people."""
        kinds = {bool: "true or false", int: "a whole number", tuple: "an array of texts"}
        return kinds.get(type(self.default), "text")


class Value(NamedTuple):
    """The value of a setting, and its source: the name of a variable, `file` or `default`."""

    setting: Setting
    value: Plain
    source: str


class Problem(NamedTuple):
    """A setting that is not valid: its full key, what is wrong, and the source as in `Value`."""

    key: str
    text: str
    source: str = "file"


PROXIES = "serve.trusted_proxies"
PREFIX = "a path such as /nacre, of letters, digits, - . _ and ~, that does not end with a slash"

MAX_WORKERS = 64
_MAX_LEASE = 3600
WORKERS = f"a whole number from 0 to {MAX_WORKERS}"


def is_worker_count(number: int) -> bool:
    """Tell whether an agent can have so many workers."""
    return 0 <= number <= MAX_WORKERS


STORE_URL = "store.url"
"""The one setting that may hold a secret, and only in its variable."""


def check_store_url(url: str, *, may_have_password: bool) -> None:
    """Raise ConfigError, without the password, if a text cannot be the address of a store in a database."""
    from nacre.storage.postgres.address import has_password, hide_password, is_address  # noqa: PLC0415 - most stores are folders
    from nacre.storage.postgres.address import parse as parse_address  # noqa: PLC0415 - the same

    if "://" not in url:
        raise ConfigError(f"{url!r} is not an address such as postgresql://HOST/NAME; a folder is chosen by NACRE_HOME")
    if is_address(url) and not may_have_password and has_password(url):
        raise ConfigError(
            f"{hide_password(url)} was given with its password, which others can read in a command line or a "
            "configuration file: put it into the environment (NACRE_STORE_URL or PGPASSWORD), into ~/.pgpass or into "
            "a service file"
        )
    parse_address(url)


def are_networks(texts: tuple[str, ...]) -> bool:
    """Tell whether every text is an IP address or a network."""
    if not texts:
        return True
    from ipaddress import ip_network  # noqa: PLC0415 - few configurations have one

    try:
        return bool([ip_network(text) for text in texts])
    except ValueError:
        return False


def is_prefix(text: str) -> bool:
    """Tell whether a server can be below this path; the empty one is the root."""
    parts = text.split("/")[1:]
    return not text or (text.startswith("/") and all({*part} <= _IN_PATHS and part.strip(".") for part in parts))


SETTINGS = (
    Setting(
        "agent.provider",
        "which provider serves the model",
        "auto",
        ("auto", "ollama", "openai", "anthropic", "embedded"),
    ),
    Setting("agent.model", "name of the model; empty: the provider's default", ""),
    Setting("agent.fallback", "models that answer, in this order, if the model is unavailable: provider/model", ()),
    Setting("agent.allow_remote", "a remote model may answer in sessions where a local one did", False),  # noqa: FBT003
    Setting("agent.max_context_tokens", "maximum size of a request to the model, in tokens", 32_000),
    Setting("agent.max_history_messages", "maximum number of messages of a session in one request", 50),
    Setting("agent.max_steps", "maximum number of model calls in one turn", 50),
    Setting("agent.max_turns", "maximum number of turns that run at the same time; others wait", 32),
    Setting("agent.only", "names of the tools it may use; empty: all", ()),
    Setting("agent.persona", "who the agent is, as text for the model; empty: its PERSONA.md", ""),
    Setting("agent.titles", "let the model name a conversation after its first turn", True),  # noqa: FBT003 - a default
    Setting("agent.tools", "how tools are called", "auto", ("auto", "native", "prompted")),
    Setting("agent.workspace", "folder that `nacre serve` works in; empty: `workspace` in the store", ""),
    Setting("anthropic.base_url", "URL of Anthropic's API", "https://api.anthropic.com"),
    Setting("anthropic.key_file", "file with the API key; empty: ANTHROPIC_API_KEY", ""),
    Setting("anthropic.max_tokens", "maximum length of an answer, in tokens", 8192),
    Setting("channels.session_persistence", "store the sessions of channels on disk", True),  # noqa: FBT003 - a default
    Setting("cli.bell", "how the end of a long turn is signalled in the terminal", "bell", ("bell", "notify", "off")),
    Setting("cli.bell_after", "minimum duration of such a turn, in seconds", 10),
    Setting("cli.color", "colour in the terminal", "auto", ("auto", "always", "never")),
    Setting("cli.theme", "colours for a dark or a light background", "auto", ("auto", "dark", "light", "none")),
    Setting("cli.pager", "program that shows long output; empty: PAGER", ""),
    Setting("embedded.threads", "threads of the embedded model; -1: one per idle core, 0: one per core", -1),
    Setting("memory.enabled", "remember facts from one session to the next", True),  # noqa: FBT003
    Setting("memory.model", "model that extracts facts from turns; empty: the one that answers", ""),
    Setting("memory.tokens", "maximum size of the facts sent with each message, in tokens", 800),
    Setting("memory.embeddings", "find facts by meaning too, if installed", "auto", ("auto", "off")),
    Setting("ollama.host", "address of Ollama; empty: OLLAMA_HOST", ""),
    Setting("ollama.keep_alive", "how long Ollama keeps the model loaded", "5m"),
    Setting("openai.base_url", "URL of an OpenAI-compatible API", "https://api.openai.com/v1"),
    Setting("openai.key_file", "file with the API key; empty: OPENAI_API_KEY", ""),
    Setting("openai.azure_version", "api-version of an Azure deployment; empty: not Azure", ""),
    Setting("permissions.allow", "tool calls that run without asking, as shell(git status) or write_file(src/**)", ()),
    Setting("permissions.ask", "tool calls that are always asked about; wins over allow", ()),
    Setting("permissions.deny", "tool calls that never run; wins over ask and allow", ()),
    Setting("permissions.skills", "skills whose allowed-tools run without asking while they are used, as pdf or *", ()),
    Setting("retention.archive_after", "archive a session this long after its last message, as 90d; empty: never", ""),
    Setting("retention.delete_after", "move it to the trash this long after that, as 1y; empty: never", ""),
    Setting("sandbox.kind", "sandbox for programs that tools run", "auto", ("auto", "bwrap", "landlock", "off")),
    Setting("sandbox.network", "programs that tools run may use the network", False),  # noqa: FBT003
    Setting("sandbox.readable", "more folders that programs of tools may read, such as /opt/node", ()),
    Setting("search.embeddings", "search sessions by meaning too, if installed", "auto", ("auto", "off")),
    Setting(
        "serve.prefix",
        "path on its host below which a proxy has `nacre serve`, as /nacre; empty: the root",
        "",
        is_valid=is_prefix,
        wanted=PREFIX,
    ),
    Setting(
        PROXIES,
        "addresses or networks of proxies whose X-Forwarded-For is believed",
        (),
        is_valid=are_networks,
        wanted='IP addresses and networks, as ["10.0.0.5", "fd00::/8"]',
    ),
    Setting("serve.users_are_guests", "over HTTP, each `user` of an owner's token is a guest", False),  # noqa: FBT003
    Setting(
        "serve.workers",
        "processes that run the turns of each agent of `nacre serve`; 0: they run in its own process",
        0,
        is_valid=is_worker_count,
        wanted=WORKERS,
    ),
    Setting(
        "store.lease_seconds",
        "in a database, seconds after which the work of a process that died is taken over by another",
        30,
        is_valid=lambda seconds: 1 <= seconds <= _MAX_LEASE,
        wanted=f"a whole number from 1 to {_MAX_LEASE}",
    ),
    Setting(
        STORE_URL,
        "database that sessions are stored in, as postgresql://HOST/NAME; empty: files in NACRE_HOME",
        "",
    ),
    Setting("telemetry.content", "put texts, arguments and results into spans, for anyone who reads those", False),  # noqa: FBT003
    Setting(
        "telemetry.spans",
        "spans of turns, model calls and tools for OpenTelemetry; auto: if its OTEL_ variables ask for them",
        "auto",
        ("auto", "on", "off"),
    ),
    Setting("web.allow", "private hosts that web_fetch may read", ()),
)
RULES = ("ask", "allow", "deny")


class ModelSetting(NamedTuple):
    """One key of `[models."provider/model"]`, which requests to that model carry; `wanted` says what is valid."""

    key: str
    meaning: str
    wanted: str
    is_valid: Callable[[Any], bool]
    providers: tuple[str, ...] = ("ollama", "openai", "anthropic")


def _is_number(lowest: float, highest: float) -> Callable[[Any], bool]:
    return lambda value: type(value) in (int, float) and lowest <= value <= highest


def _is_whole(lowest: int) -> Callable[[Any], bool]:
    return lambda value: type(value) is int and lowest <= value <= _MAX_NUMBER


def _is_table_without(*names: str) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, dict) and not set(names) & set(value)


_EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh")
_THINK = ("low", "medium", "high", "max")
_SECONDS = "a number of seconds above 0"
MODEL_SETTINGS = (
    ModelSetting("temperature", "randomness of the answers", "a number from 0 to 2", _is_number(0, 2)),
    ModelSetting("top_p", "part of the likely words to choose from", "a number from 0 to 1", _is_number(0, 1)),
    ModelSetting("max_tokens", "maximum length of an answer, in tokens", "a whole number above 0", _is_whole(1)),
    ModelSetting(
        "reasoning_effort",
        "how much the model reasons",
        f"{', '.join(_EFFORTS[:-1])} or {_EFFORTS[-1]}",
        lambda value: value in _EFFORTS,
        ("openai",),
    ),
    ModelSetting(
        "thinking_budget",
        "how many tokens the model may think for; less than max_tokens",
        "a whole number of at least 1024",
        _is_whole(1024),
        ("anthropic",),
    ),
    ModelSetting(
        "think",
        "whether the model thinks, or how much",
        f"true, false, {', '.join(_THINK[:-1])} or {_THINK[-1]}",
        lambda value: type(value) is bool or value in _THINK,
        ("ollama",),
    ),
    ModelSetting(
        "options",
        "Ollama's options, as {top_k = 40, seed = 1}",
        "a table without num_ctx, which follows agent.max_context_tokens",
        _is_table_without("num_ctx"),
        ("ollama",),
    ),
    ModelSetting(
        "prompt_cache_key",
        "name under which the server caches the beginning of requests",
        "text",
        lambda value: isinstance(value, str),
        ("openai",),
    ),
    ModelSetting(
        "return_reasoning",
        "send the thoughts before a tool call back with it; default: for DeepSeek and Kimi",
        "true or false",
        lambda value: type(value) is bool,
        ("openai",),
    ),
    ModelSetting("connect_timeout", "maximum time to connect", _SECONDS, _is_number(0.001, 86_400)),
    ModelSetting("read_timeout", "maximum time without a byte of the answer", _SECONDS, _is_number(0.001, 86_400)),
    ModelSetting("total_timeout", "maximum time for a whole answer", _SECONDS, _is_number(0.001, 86_400)),
    ModelSetting(
        "body",
        'fields that are put into every request as they are, as {service_tier = "flex"}',
        "a table without model, messages, tools, system and stream",
        _is_table_without("model", "messages", "tools", "system", "stream"),
    ),
)
_PROVIDERS = ("ollama", "openai", "anthropic")

_TABLES = {
    "agents": "an agent, with the settings that differ from the main one",
    "channels": "a chat channel",
    "mcp": "a server, with a command or a url",
    "models": "settings of one model, as {temperature = 0.2}",
    "prices": "the price of a model, as {input = 3.0, output = 15.0, cached = 0.3} for a million tokens",
    "schedule": "a text, and when it is sent",
}
"""Sections of tables whose names users choose."""
_BY_KEY = {setting.key: setting for setting in SETTINGS}
_SHARED = ("agents", "channels", "cli", "schedule", "serve", "store")
"""Sections of the whole daemon: an agent cannot have its own."""
_ROUTED = ("channels", "schedule")
"""Sections whose tables name the agent they belong to."""
_UNIQUE = ("agent.persona", "agent.workspace")
"""Settings that an agent does not inherit from the main one."""
_LETTERS = frozenset("abcdefghijklmnopqrstuvwxyz0123456789-")
_MAX_NAME = 32
_MAX_NUMBER = 10**12
_TAKEN = (MAIN, "nacre")


class Settings:
    """The value of every setting; creating it raises ConfigError if one of them is not valid."""

    def __init__(self, tables: Mapping[str, Any], environ: Mapping[str, str], *, text: str = "") -> None:
        """`text` is that of the file, if there is one: errors then name the line."""
        wrong = complaints(tables, environ, text=text)
        if wrong:
            raise ConfigError("; ".join(wrong))
        self._values = {found.setting.key: found.value for found in current(tables, environ)}
        self._tables = tables
        self._environ = environ

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Settings) and (self._values, self._tables) == (other._values, other._tables)

    __hash__ = None  # type: ignore[assignment] # compared by value, so not hashable

    @property
    def agents(self) -> list[str]:
        """The names of all agents, the main one first."""
        return [MAIN, *self.table("agents")]

    def for_agent(self, name: str) -> Settings:
        """The settings of one agent: its own table over the main one's, and the channels that belong to it.

        Raises ConfigError if there is no such agent.
        """
        if name not in self.agents:
            raise ConfigError(f"there is no agent {name!r}; there are {', '.join(self.agents)}")
        tables = {section: table for section, table in self._tables.items() if section not in _SHARED}
        for section in _ROUTED:
            # The tables that are for this agent, and what is not a table.
            mine = {
                key: {field: value for field, value in one.items() if field != "agent"}
                if isinstance(one, dict)
                else one
                for key, one in self.table(section).items()
                if not isinstance(one, dict) or one.get("agent", MAIN) == name
            }
            tables |= {section: mine} if mine else {}
        if name == MAIN:
            return Settings(tables, self._environ)
        own = _sections(self.table("agents")[name])
        keys = {f"{section}.{key}" for section, table in own.items() for key in table} | {*_UNIQUE}
        below = {key: value for key, value in tables.get("agent", {}).items() if f"agent.{key}" not in _UNIQUE}
        tables |= {"agent": below}
        tables |= {section: {**tables.get(section, {}), **table} for section, table in own.items()}
        over = {_BY_KEY[key].variable for key in keys if key in _BY_KEY}
        return Settings(tables, {variable: text for variable, text in self._environ.items() if variable not in over})

    def override(self, key: str, value: Plain) -> Settings:
        """The same settings with another value for one of them, whatever the file and the environment say."""
        section, _, name = key.partition(".")
        tables = {**self._tables, section: {**self._tables.get(section, {}), name: value}}
        variable = _BY_KEY[key].variable
        return Settings(tables, {name: text for name, text in self._environ.items() if name != variable})

    @property
    def tables(self) -> Mapping[str, Any]:
        """The tables of the file."""
        return self._tables

    @property
    def environ(self) -> Mapping[str, str]:
        """The environment that overrides the file."""
        return self._environ

    def text(self, key: str) -> str:
        return str(self._values[key])

    def number(self, key: str) -> int:
        value = self._values[key]
        assert isinstance(value, int)  # noqa: S101 - checked by `complaints`
        return value

    def flag(self, key: str) -> bool:
        return bool(self._values[key])

    def texts(self, key: str) -> tuple[str, ...]:
        """The value of a setting that is an array of texts."""
        value = self._values[key]
        assert isinstance(value, tuple)  # noqa: S101 - checked by `complaints`
        return value

    def table(self, name: str) -> Mapping[str, Any]:
        """A section whose keys are names that users choose."""
        found: Mapping[str, Any] = self._tables.get(name, {})
        return found


def load() -> Settings:
    """The settings of the file and the environment; raises ConfigError."""
    text = read_text()
    return Settings(parse(text), os.environ, text=text)


def path() -> str:
    """Where the configuration file is, whether it exists or not: NACRE_CONFIG, else the usual place."""
    if named := os.environ.get("NACRE_CONFIG"):
        return os.path.abspath(os.path.expanduser(named))  # noqa: PTH100, PTH111 - pathlib takes its time
    home = os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")  # noqa: PTH111 - pathlib takes its time
    return f"{home}/nacre/config.toml"


def read_text() -> str:
    """The text of the configuration file; empty if there is none. Raises ConfigError if it cannot be read."""

    def open_at_once(name: str, flags: int) -> int:
        # Does not wait for somebody at the other end, if it is a pipe.
        return os.open(name, flags | os.O_NONBLOCK)

    try:
        with open(path(), encoding="utf-8-sig", newline="", opener=open_at_once) as file:
            if stat.S_ISFIFO(os.fstat(file.fileno()).st_mode):
                raise ConfigError(f"{path()} is a pipe, and it is read more than once; use a file")
            return file.read()
    except FileNotFoundError as error:
        if os.environ.get("NACRE_CONFIG"):
            raise ConfigError(f"there is no configuration file {path()}; check --config or NACRE_CONFIG") from error
        return ""
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path()} cannot be read: {error}; correct it, or move it away") from error


def parse(text: str) -> dict[str, Any]:
    """The tables of a configuration file; raises ConfigError if it is not TOML."""
    if not text:
        return {}
    import tomllib  # noqa: PLC0415 - most have no such file, and the parser is slow to import

    try:
        return tomllib.loads(text)
    except ValueError as error:
        raise ConfigError(f"{path()} cannot be read: {error}; correct it, or move it away") from error


def read() -> dict[str, Any]:
    """The tables of the configuration file; empty if there is none. Raises ConfigError if it cannot be read."""
    return parse(read_text())


def current(tables: Mapping[str, Any], environ: Mapping[str, str]) -> list[Value]:
    """Every setting with its value: the environment's, else the file's, else the default."""
    return [_current(setting, tables, environ) for setting in SETTINGS]


def value_of(key: str) -> str:
    """The current value of one text setting; raises ConfigError if the file cannot be read."""
    return str(_current(_BY_KEY[key], read(), os.environ).value)


def store_url() -> str:
    """The address of the store in a database, from the environment or else the file; "" if there is none.

    Raises ConfigError if it cannot be used: sessions must not be looked for, or written, elsewhere.
    """
    setting = _BY_KEY[STORE_URL]
    tables: dict[str, Any] = {}
    if setting.variable not in os.environ:
        text = read_text()
        # Most files do not have it, and the parser is slow to import.
        tables = parse(text) if setting.key.partition(".")[0] in text else {}
    found = _current(setting, tables, os.environ)
    if wrong := _value_problem(found):
        raise ConfigError(describe(wrong))
    return str(found.value)


def shown(found: Value) -> Plain:
    """The value of a setting for people: an address is without its password."""
    if found.setting.key != STORE_URL or not isinstance(found.value, str):
        return found.value
    from nacre.storage.postgres.address import hide_password  # noqa: PLC0415 - most stores are folders

    return hide_password(found.value) if "://" in found.value else found.value


def setting_of(key: str) -> Setting | None:
    """The setting of a key, also of one agent's (`agents.NAME.model`); None if it is none of ours."""
    if key.startswith("agents.") and key.count(".") > 1:
        own = key.split(".", 2)[2]
        key = own if "." in own else f"agent.{own}"
    return _BY_KEY.get(key)


def parse_value(setting: Setting, text: str) -> Plain:
    """The value that a text means for a setting, as in a variable; raises ConfigError if it is not valid."""
    found = Value(setting, _parse_text(setting, text), "")
    if wrong := _value_problem(found):
        raise ConfigError(wrong.text)
    return found.value


def to_toml(value: Any) -> str:
    """A value as it is written in the file."""
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(to_toml, value))}]"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{toml_name(name)} = {to_toml(one)}' for name, one in value.items())}}}"
    if isinstance(value, str):
        import json  # noqa: PLC0415 - only for who writes the file

        # TOML's strings are JSON's, save that DEL must be escaped.
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    return str(value).lower() if isinstance(value, bool) else str(value)


def toml_name(name: str) -> str:
    """A name as it is written in the file: between quotes if it has other characters than letters, digits, - and _."""
    is_plain = name.isascii() and name.replace("-", "a").replace("_", "a").isalnum()
    return name if is_plain else to_toml(name)


def complaints(tables: Mapping[str, Any], environ: Mapping[str, str], *, text: str = "") -> list[str]:
    """Every problem with the settings, for people; with the file's text each names its line."""
    return [describe(problem, text) for problem in problems(tables, environ)]


def describe(problem: Problem, text: str = "") -> str:
    """A problem, and where it is: a variable, or a line of the file."""
    if problem.source != "file":
        return f"{problem.text} ({problem.source})"
    line = line_of(text, problem.key)
    return f"{problem.text} ({path()}:{line})" if line else f"{problem.text} (file)"


def problems(tables: Mapping[str, Any], environ: Mapping[str, str]) -> list[Problem]:
    """Every problem with the settings in a file and in the environment."""
    wrong = [Problem(key, text) for key, value in flat(tables) if (text := _key_problem(key, value))]
    wrong += [problem for found in current(tables, environ) if (problem := _value_problem(found))]
    agents = found if isinstance(found := tables.get("agents"), dict) else {}
    for name, table in agents.items():
        wrong += _agent_problems(name, table) if isinstance(table, dict) else []
    wrong += _model_problems(tables.get("models"))
    # Channels and schedules that name an agent that does not exist.
    for key, table in flat({section: tables.get(section) for section in _ROUTED}):
        name = table.get("agent", MAIN) if isinstance(table, dict) else MAIN
        if name not in [MAIN, *agents]:
            text = f"{key} names the agent {name!r}, which does not exist; there are {', '.join([MAIN, *agents])}"
            wrong.append(Problem(f"{key}.agent", text))
    return wrong


def line_of(text: str, key: str) -> int:
    """The number of the line of a file that sets a key, else of its table's heading; 0 if neither is found."""
    import re  # noqa: PLC0415 - only after a mistake

    def split(path: str) -> list[str]:
        return [name.strip().strip("\"'") for name in path.split(".")]

    wanted, heading, nearest = key.split("."), list[str](), 0
    for number, line in enumerate(text.splitlines(), 1):
        if found := re.match(r"\s*\[\[?([^\]]+)\]", line):
            heading = split(found[1])
            if heading == wanted[: len(heading)]:
                nearest = number
        elif found := re.match(r"\s*([\w.\"' -]+?)\s*=", line):
            names = [*heading, *split(found[1])]
            if names == wanted[: len(names)]:
                return number
    return nearest


def is_name(text: str) -> bool:
    """Tell whether a text may name an agent or a channel: it is part of addresses, keys and file names."""
    return 0 < len(text) <= _MAX_NAME and text[0] != "-" and _LETTERS.issuperset(text)


def _agent_problems(name: str, table: Mapping[str, Any]) -> list[Problem]:
    """Every problem with an agent's table."""
    place = f"agents.{name}"
    if not is_name(name) or name in _TAKEN:
        rule = "the name of an agent has lower-case letters, digits and dashes, and is not main or nacre"
        return [Problem(place, f"{place}: {rule}")]
    own = _sections(table)
    wrong = [Problem(section, f"{section} cannot be set for one agent") for section in own if section in _SHARED]
    wrong += problems({section: table for section, table in own.items() if section not in _SHARED}, {})
    return [
        Problem(f"{place}.{key.removeprefix('agent.')}", f"[{place}] {text}", source) for key, text, source in wrong
    ]


def _model_problems(models: Any) -> list[Problem]:
    """Every problem with the settings of single models."""
    wrong: list[Problem] = []
    for name, table in models.items() if isinstance(models, dict) else ():
        if not isinstance(table, dict):
            continue
        place, provider = f"models.{name}", name.partition("/")[0]
        if provider not in _PROVIDERS or not name.partition("/")[2]:
            rule = f'a model is named by its provider, as [models."ollama/qwen3:8b"]; with {", ".join(_PROVIDERS)}'
            wrong.append(Problem(place, f"{place}: {rule}"))
            continue
        known = {setting.key: setting for setting in MODEL_SETTINGS if provider in setting.providers}
        for key, value in table.items():
            if key not in known:
                text = f"{place}.{key} is not a setting of models of {provider}; there are {', '.join(known)}"
                wrong.append(Problem(f"{place}.{key}", text))
            elif not known[key].is_valid(value):
                wrong.append(Problem(f"{place}.{key}", f"{place}.{key} is {known[key].wanted}, not {value!r}"))
    return wrong


def _sections(table: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """An agent's table as sections: its plain keys are those of `agent`, and tables in it are sections."""
    plain = {key: value for key, value in table.items() if not isinstance(value, dict)}
    return {"agent": plain, **{key: value for key, value in table.items() if isinstance(value, dict)}}


def _current(setting: Setting, tables: Mapping[str, Any], environ: Mapping[str, str]) -> Value:
    if setting.variable in environ:
        return Value(setting, _parse_text(setting, environ[setting.variable]), setting.variable)
    section, _, name = setting.key.partition(".")
    table = tables.get(section)
    if isinstance(table, dict) and name in table:
        return Value(setting, _from_file(setting, table[name]), "file")
    return Value(setting, setting.default, "default")


def _parse_text(setting: Setting, text: str) -> Any:
    """The value of a variable's text; the text itself if it is not valid, so that it can be reported."""
    if isinstance(setting.default, bool):
        return text.lower() in _TRUE if text.lower() in _TRUE + _FALSE else text
    if isinstance(setting.default, int):
        return int(text) if text.strip().removeprefix("-").isdecimal() else text
    if isinstance(setting.default, tuple) and text.lstrip().startswith("["):
        import tomllib  # noqa: PLC0415 - as in `read`

        try:
            tables = tomllib.loads(f"value = {text}")
        except ValueError:
            return text
        return _from_file(setting, tables["value"]) if len(tables) == 1 else text
    return _from_file(setting, text)


def _from_file(setting: Setting, value: Any) -> Any:
    """An array as a tuple; a text with several names, as it was written before there were arrays, is split."""
    if not isinstance(setting.default, tuple):
        return value
    if isinstance(value, str) and not _NEEDS_ARRAY.intersection(value):
        return tuple(value.split())
    return tuple(value) if isinstance(value, list) and all(isinstance(one, str) for one in value) else value


def flat(tables: Mapping[str, Any]) -> Iterable[tuple[str, Any]]:
    """Every key with its section, as `agent.model`, and its value."""
    for section, table in tables.items():
        if isinstance(table, dict):
            yield from ((f"{section}.{name}", value) for name, value in table.items())
        else:
            yield section, table


def _key_problem(key: str, value: Any) -> str:
    """The problem with a key of the file; empty if there is none."""
    section = key.partition(".")[0]
    if section == "approvals":
        return "" if value in RULES else f"{key} is ask, allow or deny, not {value!r}"
    if section == "prices" and isinstance(value, dict):
        numbers = [type(one) in (int, float) and one >= 0 for one in value.values()]
        if not set(value) <= {"input", "output", "cached"} or not all(numbers):
            return f"{key} has input, output and cached, each a number that is not negative, not {value!r}"
    if section in _TABLES and (isinstance(value, dict) or key not in _BY_KEY):
        return "" if isinstance(value, dict) else f"{key} is a table: {_TABLES[section]}, not {value!r}"
    if key in _BY_KEY:
        return ""
    near = close_matches(key)
    return f"{key} is not a setting; {f'did you mean {near[0]}?' if near else '`nacre config show` lists all settings'}"


def _value_problem(found: Value) -> Problem | None:
    setting, value, source = found
    choices = setting.choices
    if setting.key == STORE_URL:
        if type(value) is not str:
            return Problem(setting.key, f"{setting.key} is {setting.kind}", source)
        try:
            if value:
                check_store_url(value, may_have_password=source == setting.variable)
        except ConfigError as error:
            return Problem(setting.key, f"{setting.key}: {error}", source)
        return None
    if isinstance(setting.default, tuple) and not isinstance(value, tuple):
        wanted = 'an array of texts, as ["a", "b"]'
    elif type(value) is not type(setting.default):
        wanted = setting.kind
    elif type(value) is int and abs(value) > _MAX_NUMBER:
        wanted = f"a whole number of at most {_MAX_NUMBER}"
    elif choices and value not in choices:
        wanted = f"{', '.join(choices[:-1])} or {choices[-1]}"
    elif not setting.is_valid(value):
        wanted = setting.wanted
    else:
        return None
    return Problem(setting.key, f"{setting.key} is {wanted}, not {value!r}", source)


def close_matches(key: str) -> list[str]:
    """Settings whose keys look like this one, the most similar first."""
    from difflib import get_close_matches  # noqa: PLC0415 - only after a mistake

    last = [known for known in _BY_KEY if known.partition(".")[2] == key.rpartition(".")[2]]
    return get_close_matches(key, _BY_KEY, n=3) or last[:3]
