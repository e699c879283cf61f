"""The options of every verb, wherever they stand on the command line."""

from __future__ import annotations

import os
from collections.abc import Sequence

from nacre.cli.failures import Failure

HELP = """\
options of every verb:
  --store PATH          store to use (default: NACRE_HOME, else
                        ~/.local/share/nacre)
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

SWITCHES = {
    "--json": "json",
    "--jsonl": "jsonl",
    "--iso": "iso",
    "--no-pager": "no_pager",
    "--quiet": "quiet",
    "-q": "quiet",
}
VERBOSE = {"-v": 1, "--verbose": 1, "-vv": 2}
HELPS = ("-h", "--help")
NAMES = ("--store", "--agent", "--config", "--color", "--no-color", *SWITCHES, "-v", "--verbose", *HELPS)
"""Every option of this kind, for completion and for errors."""
_WHEN = ("auto", "always", "never")
MAIN = "main"
"""The agent without --agent; as in `nacre.config`, which would take too long to load here."""


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
            if not self._takes(word, waiting):
                rest.append(word)
        if self.config:
            # The variable is how every part, and every process started from here, learns of it.
            os.environ["NACRE_CONFIG"] = self.config
        if self.agent != MAIN:
            self.store = f"{self.store or default_place()}/agents/{self.agent}"
        return [*rest, *reversed(waiting)]

    def _takes(self, word: str, waiting: list[str]) -> bool:
        name, equals, value = word.partition("=")
        if name == "--store":
            self.store = value if equals else _next(waiting, "--store", "the path of a store")
        elif name == "--agent":
            self.agent = value if equals else _next(waiting, "--agent", "the name of an agent")
        elif name == "--config":
            self.config = value if equals else _next(waiting, "--config", "the path of a file")
        elif word in VERBOSE:
            self.verbose += VERBOSE[word]
        elif name == "--color":
            self.color = _when(value if equals else _optional(waiting))
        elif word == "--no-color":
            self.color = "never"
        elif word in HELPS:
            self.help = True
        elif word in SWITCHES:
            setattr(self, SWITCHES[word], True)
        else:
            return False
        return True


def default_place() -> str:
    """The default store: the same as the library's, without loading it."""
    data = os.environ.get("XDG_DATA_HOME") or "~/.local/share"
    return os.environ.get("NACRE_HOME") or f"{data}/nacre"


def _next(waiting: list[str], option: str, what: str) -> str:
    if not waiting:
        raise Failure("usage", f"{option} needs {what}")
    return waiting.pop()


def _optional(waiting: list[str]) -> str:
    """The argument of `--color`, if it has one; alone it means always."""
    return waiting.pop() if waiting and waiting[-1] in _WHEN else "always"


def _when(value: str) -> str:
    if value not in _WHEN:
        raise Failure("usage", f"--color is auto, always or never, not {value!r}")
    return value
