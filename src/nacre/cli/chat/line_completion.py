"""Completions for a line of the conversation: commands, what they take, and files after an @."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from msgspec import Struct

from nacre.cli.chat.slash_commands import COMMANDS
from nacre.runtime.app import App

_MAX_SESSIONS = 50
_MAX_FILES = 1000
_MENTION = re.compile(r'(?<!\S)@("?)((?<=")[^"\n]*|\S*)$')
"""A file that is being mentioned at the end of a line."""


class Choice(Struct, frozen=True):
    """A word for the end of a line, in place of its last letters."""

    word: str
    replaces: int
    meaning: str = ""


class Completion:
    """Completions for an agent; its models are asked for once, since that takes a while."""

    def __init__(self, app: App, folder: Path) -> None:
        self._app = app
        self._folder = folder
        self._models: list[str] | None = None

    async def choices(self, line: str) -> list[Choice]:
        """Every word that the end of a line may become."""
        if (mention := _MENTION.search(line)) and not line.startswith("/"):
            return list(_mentioned_files(mention[1], mention[2], self._folder))
        if not line.startswith("/") or "\n" in line:
            return []
        command, blank, last = line.partition(" ")
        if not blank:
            commands = ((f"/{name}", command.meaning) for name, command in COMMANDS.items())
            skills = ((f"/{name}", "a skill") for name in self._app.skills.names if name not in COMMANDS)
            prompts = ((f"/{name}", prompt.meaning) for name, prompt in self._app.prompts.items())
            return list(_matching([*commands, *skills, *prompts], command))
        takes = COMMANDS[command[1:]].takes.strip("[]") if command[1:] in COMMANDS else ""
        if takes == "MODEL" and self._models is None:
            self._models = await self._app.models()
        return list(self.values(takes, last))

    def values(self, takes: str, last: str) -> Iterator[Choice]:
        """What a command takes, of those that begin with `last`."""
        match takes:
            case "REF":
                infos = self._app.sessions.list(prefix=last, limit=_MAX_SESSIONS)
                yield from (Choice(info.key, len(last), info.title) for info in infos)
            case "MODEL":
                yield from _matching(((model, "") for model in self._models or ()), last)
            case "SKILL":
                yield from _matching(((name, "") for name in self._app.skills.names), last)
            case "PATH":
                yield from _files(last, self._folder)
            case _:
                return


def _matching(words: Iterable[tuple[str, str]], typed: str) -> Iterator[Choice]:
    yield from (Choice(word, len(typed), meaning) for word, meaning in words if word.startswith(typed))


def _mentioned_files(quote: str, typed: str, within: Path) -> Iterator[Choice]:
    """Files after an @; a path with a blank is put between quotes."""
    above = typed[: typed.rfind("/") + 1]
    for choice in _files(typed, within):
        path = f"{above}{choice.word}"
        word = f'@"{path}"' if quote or " " in path else f"@{path}"
        yield Choice(word.removesuffix('"') if path.endswith("/") else word, len(typed) + len(quote) + 1)


def _files(typed: str, within: Path) -> Iterator[Choice]:
    """The names in a folder that begin like this; hidden ones only after a dot."""
    folder, _, beginning = typed.rpartition("/")
    place = within / Path(f"{folder}/" if "/" in typed else ".").expanduser()
    try:
        found = sorted(place.iterdir())
    except OSError:
        return
    for path in found[:_MAX_FILES]:
        if path.name.startswith(beginning) and (beginning.startswith(".") or not path.name.startswith(".")):
            yield Choice(path.name + "/" * path.is_dir(), len(beginning), "")
