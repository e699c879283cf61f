"""The options that every verb has, wherever in the line they stand."""

from __future__ import annotations

import os
from collections.abc import Sequence

from nacre.cli.failures import Failure

HELP = """\
everywhere:
  --store PATH          the store; else NACRE_HOME, else your data directory
  --agent NAME          the store of a further agent, which is inside that
  --json                one JSON document on stdout, errors too
  --jsonl               one JSON record per line: lists, search, tail
  --iso                 exact times (RFC 3339) instead of "3 min ago"
  --color WHEN          auto, always or never; --no-color, NO_COLOR: never
  --no-pager            print straight to the terminal
  -q, --quiet           no hints, no progress
  -h, --help            this
"""

SWITCHES = {
    "--json": "json",
    "--jsonl": "jsonl",
    "--iso": "iso",
    "--no-pager": "no_pager",
    "--quiet": "quiet",
    "-q": "quiet",
}
HELPS = ("-h", "--help")
_WHEN = ("auto", "always", "never")
_MAIN = "main"


class Flags:
    """What the options that every verb has were set to."""

    def __init__(self) -> None:
        self.store: str | None = None
        self.agent = _MAIN
        self.json = self.jsonl = self.iso = self.no_pager = self.quiet = self.help = False
        self.color = ""

    def take(self, words: Sequence[str]) -> list[str]:
        """Take these options out of a command line; gives the words that are left."""
        rest: list[str] = []
        waiting = list(reversed(words))
        while waiting and waiting[-1] != "--":
            word = waiting.pop()
            if not self._takes(word, waiting):
                rest.append(word)
        if self.agent != _MAIN:
            self.store = f"{self.store or default_place()}/agents/{self.agent}"
        return [*rest, *reversed(waiting)]

    def _takes(self, word: str, waiting: list[str]) -> bool:
        name, equals, value = word.partition("=")
        if name == "--store":
            self.store = value if equals else _next(waiting, "--store", "the path of a store")
        elif name == "--agent":
            self.agent = value if equals else _next(waiting, "--agent", "the name of an agent")
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
    """Where sessions are kept when nothing is said: what the library says, without loading it."""
    data = os.environ.get("XDG_DATA_HOME") or "~/.local/share"
    return os.environ.get("NACRE_HOME") or f"{data}/nacre"


def _next(waiting: list[str], option: str, what: str) -> str:
    if not waiting:
        raise Failure("usage", f"{option} needs {what}")
    return waiting.pop()


def _optional(waiting: list[str]) -> str:
    """The word behind `--color`, if it says when; alone it means always."""
    return waiting.pop() if waiting and waiting[-1] in _WHEN else "always"


def _when(value: str) -> str:
    if value not in _WHEN:
        raise Failure("usage", f"--color is auto, always or never, not {value!r}")
    return value
