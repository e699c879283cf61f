"""The words of a command line: every verb with a one-line summary, and the options that every verb takes.

An overview loads no verb.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from nacre.cli.failures import Failure

ALIASES = {"session": "sessions", "s": "sessions", "ls": "list"}
DEFAULT = {"sessions": "list"}
MEANT = dict.fromkeys(("del", "delete", "remove"), "rm")
"""What people type by the habits of other programs, and the verb that does it here."""

SESSIONS = {
    "list": "list sessions, newest first (ls)",
    "show": "read a conversation",
    "search": "search all sessions, archived ones too",
    "tail": "print the last records of a session; -f follows it",
    "fork": "start a new session from the history of another",
    "rename": "set the title of a session",
    "tag": "add tags to a session; `list --tag` filters by them",
    "untag": "remove tags from a session",
    "pin": "protect sessions from retention",
    "unpin": "remove the pin from sessions",
    "archive": "archive sessions; they can still be read",
    "unarchive": "make archived sessions active again",
    "move-folder": "update the folder of chats after a folder was moved",
    "rm": "move sessions to the trash",
    "redact": "erase the content of one message for good",
    "trash": "list, restore or empty the trash",
    "restore": "restore sessions from the trash",
    "export": "export a conversation as Markdown, HTML or JSON",
    "stats": "count messages and tokens per day, model and session",
    "verify": "check all data and report damage",
    "repair": "move damaged bytes to quarantine and repair a session",
    "quarantine": "list, show, restore or discard what was damaged and set aside",
    "summarize": "summarise all but the last turn with a model",
    "compact": "move truncated and replaced records out of the log",
    "backup": "copy the whole store, also while it is written",
    "copy": "copy all sessions to another store; --finish moves them",
    "unseal": "accept writes again in a store whose sessions were moved",
    "migrate": "import the sessions of an earlier agent",
    "du": "show how much disk space sessions use",
    "gc": "delete files that no session needs",
    "retain": "archive and remove old sessions as configured",
}

TOP = {
    "chat": "talk to the agent, or have it answer once",
    "sessions": "list, read, search, fork, move and repair sessions (s)",
    "serve": "run the agent as a daemon: channels, HTTP API, web page",
    "init": "find a model, ask three questions, write the configuration",
    "models": "list the models that can answer; pull installs one with Ollama",
    "setup": "install optional parts: the embedded model, embeddings",
    "store": "where sessions are stored; init and upgrade prepare a database",
    "doctor": "check the store, the settings, the model and the machine",
    "config": "the settings: show, set, get, edit, check",
    "skills": "the agent's skills: list, check, new",
    "acp": "run the agent inside an editor that speaks the Agent Client Protocol",
    "mcp": "MCP servers: list them, log in, log out; serve offers past sessions to others",
    "memory": "the agent's memory: list, search, why, history, add, confirm, edit, restore, forget",
    "trust": "which folders the agent may work in: add, list, revoke",
    "permissions": "what is always allowed in a folder: list, revoke, clear",
    "completion": "print a completion script for bash, zsh or fish",
    "help": "show the help of a verb",
}

GROUPS = {"sessions": SESSIONS}
HIDDEN = ("__complete",)
NESTED = {
    "serve tokens": "tokens of the HTTP interface for other people and programs: add, list, revoke",
    "store init": "create the tables for sessions in a PostgreSQL database; again is harmless",
    "store upgrade": "bring the tables of a database to the version of this program",
}
"""Verbs of a verb that also works alone."""
MODULES = {
    "completion": ("completion", "__complete"),
    "copy": ("copy", "unseal"),
    "damage": ("verify", "repair", "quarantine"),
    "housekeeping": ("du", "compact", "gc", "retain", "backup"),
    "session_changes": (
        "rename",
        "tag",
        "untag",
        "pin",
        "unpin",
        "archive",
        "unarchive",
        "fork",
        "move-folder",
        "summarize",
    ),
    "show": ("show", "tail"),
    "store": ("store init", "store upgrade"),
    "transfer": ("export", "migrate"),
    "trash": ("rm", "trash", "restore"),
    "trust": ("trust", "permissions"),
}
"""Modules that several verbs share; any other verb is a module of its name."""

HELP = """\
options of every verb:
  --store PLACE         store to use, a folder or postgresql://HOST/NAME
                        (default: NACRE_STORE_URL, else store.url, else
                        NACRE_HOME, else ~/.local/share/nacre)
  --agent NAME          use the store of this agent
  --config FILE         configuration file (default: NACRE_CONFIG, else
                        ~/.config/nacre/config.toml)
  --json                print one JSON document, errors too
  --jsonl               print one JSON object per line
  --iso                 print exact times (RFC 3339) instead of "3 min ago"
  --color WHEN          auto, always or never (also --no-color, NO_COLOR)
  --no-pager            do not use a pager
  -q, --quiet           no hints, no progress
  -v, --verbose         log to stderr, show causes of errors; -vv: debug
  -h, --help            show this help
"""

REF = """\
ways to name a session:
  telegram:42           its key, or a unique prefix of it (4 characters or more)
  0190a3, …9f2c         the start or the end of its uid
  'Tax return'          its title
  @last, @last~2        the newest session; the second before that
  @3                    row 3 of the last list
  path/to/file.jsonl    its file
  telegram:42@17        record 17 of it, for verbs that take a record
"""

_EXAMPLES = """\
examples:
  nacre chat                                talk to the agent
  nacre chat 'what is in this folder?'      one question, one answer
  git diff | nacre chat 'review this'       about the output of a program
  nacre chat -c                             continue the last conversation
  nacre sessions                            list the sessions
  nacre sessions search 'database error'    search them
  nacre doctor                              check that everything works
"""

_SESSIONS_EXAMPLES = """\
examples:
  nacre sessions                            list the sessions
  nacre s show @1                           read the first one of the list
  nacre s rm @2 && nacre s restore @last    remove one and restore it
  nacre s verify --json | jq .ok            check the store in a script
"""

_SWITCHES = {
    "--json": "json",
    "--jsonl": "jsonl",
    "--iso": "iso",
    "--no-pager": "no_pager",
    "--quiet": "quiet",
    "-q": "quiet",
}
_VERBOSE = {"-v": 1, "--verbose": 1, "-vv": 2}
_HELPS = ("-h", "--help")
_VALUES = {"--store": "the place of a store", "--agent": "the name of an agent", "--config": "the path of a file"}
NAMES = (*_VALUES, "--color", "--no-color", *_SWITCHES, "-v", "--verbose", *_HELPS)
"""Every option of this kind, for completion and for errors."""
_WHEN = ("auto", "always", "never")
MAIN = "main"
"""The agent without --agent; as in `nacre.config`, which would take too long to load here."""


def overview() -> str:
    """What `nacre`, `nacre --help` and `nacre help` print."""
    return (
        "usage: nacre VERB …\n\nAn agent in your terminal whose sessions survive every crash.\n\n"
        f"verbs:\n{_table(TOP)}\n{_EXAMPLES}\n{HELP}"
        "  -V, --version         show the version\n\n`nacre help VERB` shows more about a verb.\n"
    )


def group_overview(group: str) -> str:
    """What `nacre sessions --help` prints."""
    return (
        f"usage: nacre {group} [VERB] …\n\n"
        "List, read, search, fork, move and repair sessions. Without a verb: list them.\n\n"
        f"verbs:\n{_table(GROUPS[group])}\n{REF}\n{_SESSIONS_EXAMPLES}\n{HELP}"
        f"\n`nacre help {group} VERB` shows more about a verb.\n"
    )


def _table(verbs: dict[str, str]) -> str:
    return "".join(f"  {name:<12}{summary}\n" for name, summary in verbs.items())


class Flags:
    """The values of the options of every verb."""

    def __init__(self) -> None:
        self.store: str | None = None
        self.agent = MAIN
        self.json = self.jsonl = self.iso = self.no_pager = self.quiet = self.help = False
        self.color = ""
        self.config = ""
        self.verbose = 0

    def take(self, words: Sequence[str]) -> list[str]:
        """Take these options out of a command line; returns what is left."""
        rest: list[str] = []
        waiting = list(reversed(words))
        while waiting and waiting[-1] != "--":
            word = waiting.pop()
            name, equals, value = word.partition("=")
            if name in _VALUES:
                if not equals and not waiting:
                    raise Failure("usage", f"{name} needs {_VALUES[name]}")
                setattr(self, name.removeprefix("--"), value if equals else waiting.pop())
            elif word in _VERBOSE:
                self.verbose += _VERBOSE[word]
            elif name == "--color":
                # Without a value it means always.
                self.color = value if equals else waiting.pop() if waiting and waiting[-1] in _WHEN else "always"
                if self.color not in _WHEN:
                    raise Failure("usage", f"--color is auto, always or never, not {self.color!r}")
            elif word == "--no-color":
                self.color = "never"
            elif word in _HELPS:
                self.help = True
            elif word in _SWITCHES:
                setattr(self, _SWITCHES[word], True)
            else:
                rest.append(word)
        if self.config:
            # The variable is how every part, and every process started from here, learns of it.
            os.environ["NACRE_CONFIG"] = self.config
        return [*rest, *reversed(waiting)]


def default_place() -> str:
    """The local folder: the same as the library's, without loading it. Raises Failure for the address of a database."""
    home = os.environ.get("NACRE_HOME")
    if home and "://" in home:
        # Not shown: it may hold a password.
        raise Failure("config", "NACRE_HOME is a folder; put the address of a database into NACRE_STORE_URL")
    data = os.environ.get("XDG_DATA_HOME") or "~/.local/share"
    return home or f"{data}/nacre"
