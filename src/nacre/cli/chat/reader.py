"""What reads lines from a person and prints for them, and what it is given to show."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractContextManager
from datetime import datetime
from typing import Literal, Protocol

from msgspec import Struct

About = Callable[[int], list[str]]
"""What a question is about, drawn in a number of lines: its first line is the most important."""
Theme = Literal["dark", "light", "none"]
Bell = Literal["bell", "notify", "off"]


class Look(Struct, frozen=True, kw_only=True):
    """How the terminal looks and sounds; `bell_after` is how many seconds a turn takes that is worth a bell."""

    has_colour: bool = False
    theme: Theme = "dark"
    bell: Bell = "bell"
    bell_after: int = 10

    @property
    def dim(self) -> str:
        """The style of what is less important, as prompt_toolkit names it."""
        return {"dark": "ansibrightblack", "light": "#606060", "none": ""}[self.theme]


class Candidate(Struct, frozen=True, kw_only=True):
    """A session that can be resumed; `cwd` is the folder it belongs to, "" if it has none."""

    key: str
    title: str
    updated: datetime
    cwd: str
    first_words: str
    is_here: bool


class Footer(Struct, frozen=True, kw_only=True):
    """The last line of the screen: `used` and `share` both say how full the context is, exactly and in short."""

    model: str
    used: str
    share: str
    title: str


class Line(Struct, frozen=True):
    """What a person wrote; `foreign` has every text in it that they did not type, `pasted` those that were pasted."""

    text: str
    foreign: tuple[str, ...] = ()
    pasted: tuple[str, ...] = ()


class Reader(Protocol):
    """Reads lines from a person and prints for them."""

    @property
    def reads_ahead(self) -> bool:
        """Whether it can read while a turn runs."""

    @property
    def is_released(self) -> bool:
        """Whether another program has the terminal."""

    def held(self) -> AbstractContextManager[None]:
        """Have the keyboard, from the first line to the last."""

    def released(self) -> AbstractContextManager[None]:
        """Give the terminal to another program."""

    def resume(self) -> None:
        """Draw again after the process was stopped by a signal."""

    async def read(self, draft: str = "") -> Line:
        """Read the next line, which begins with `draft`; raises EOFError when the user leaves."""

    async def ask(self, question: str, answers: Collection[str], about: About | None = None) -> str:
        """Ask until one of the answers is given, in lower case; what it is about stays on the screen meanwhile."""

    def show(self, lines: Sequence[str]) -> None:
        """Print lines."""

    def alert(self, text: str) -> None:
        """Call somebody who looks elsewhere."""

    def refresh(self) -> None:
        """Draw again what may change."""
