"""What a conversation at a terminal asks of the parts around it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

from msgspec import Struct

from nacre.agent.kernel import Kernel
from nacre.agent.ports import Approval, Change, Event, Tool
from nacre.entries import SessionInfo, Stored
from nacre.history.window import Window
from nacre.sessions import Sessions


class Skills(Protocol):
    """What the agent was taught."""

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all skills."""

    def load(self, name: str, file: str = "") -> str:
        """A skill in full; raises ToolError if there is none of that name."""


class Draft(Protocol):
    """A summary, and what the session costs before and after it, in tokens."""

    @property
    def text(self) -> str:
        """What it says."""

    @property
    def sentence(self) -> str:
        """What was done, for a person."""

    @property
    def before(self) -> int:
        """The tokens without it."""

    @property
    def after(self) -> int:
        """The tokens with it."""


class Compactor(Protocol):
    """Who makes summaries; each raises NacreError if there is nothing to do, or it cannot be done."""

    @property
    def listeners(self) -> list[Callable[[str, Any], None]]:
        """Called with the session's key and a Draft when a summary was made after a turn."""

    async def finish(self, key: str) -> None:
        """Wait for the summary that is due after a turn, if one is."""

    async def preview(self, key: str, focus: str = "") -> Draft:
        """What the summary would be."""

    async def compact(self, key: str, focus: str = "") -> Draft:
        """Summarise all but the last turn."""

    async def undo(self, key: str) -> int:
        """Take the last summary back; gives how many messages are live again."""


class FileHistory(Protocol):
    """What turns did to files, and how to take it back; a turn is named by the number of the message that began it."""

    def changes(self, key: str, turn: int) -> Sequence[Change]:
        """The files that a turn changed, as they were before it and as they are now."""

    def restore(self, key: str, turn: int) -> Sequence[str]:
        """Put the files back as they were before the turn; gives a line about each."""


class App(Protocol):
    """The agent that runs, as far as a terminal has to do with it."""

    @property
    def sessions(self) -> Sessions:
        """The store."""

    @property
    def kernel(self) -> Kernel:
        """Who gives words to their session."""

    @property
    def model(self) -> str:
        """Which model answers."""

    @property
    def tools(self) -> Mapping[str, Tool]:
        """What the model may call."""

    @property
    def skills(self) -> Skills:
        """What it was taught."""

    @property
    def notes(self) -> list[str]:
        """What is to be said at the start."""

    @property
    def compactor(self) -> Compactor:
        """Who makes summaries."""

    @property
    def file_history(self) -> FileHistory:
        """What turns did to files."""

    @property
    def tokens(self) -> int:
        """How many tokens of a session the model is shown at most."""

    async def use(self, model: str) -> None:
        """Let another model answer from now on; raises ProviderError."""

    async def models(self) -> list[str]:
        """The models that there are."""

    def window(self, key: str) -> Window:
        """What the model would be shown of a session now."""


class Drawing(Protocol):
    """A turn as it is drawn."""

    @property
    def live(self) -> list[str]:
        """Lines that may still change."""

    @property
    def doing(self) -> str:
        """A word for what happens now."""

    def take(self, event: Event) -> list[str]:
        """Draw what happened; gives the lines that are final with it."""

    def end(self) -> list[str]:
        """Draw what is left."""


class Desk(Struct, frozen=True, kw_only=True):
    """How things are looked up and how they look; whatever it gives is safe to print.

    `find` gives the key of a reference, `history` the live messages of a session, `past` its end as
    lines, `export` writes it to a file and says so, `question` draws a call that somebody has to
    allow in at most so many lines, `rows` is a list of words and what they mean, `safe` makes a text
    safe, `paint` gives it a colour.
    """

    find: Callable[[str], str]
    history: Callable[[str], Sequence[Stored]]
    past: Callable[[str], list[str]]
    export: Callable[[str, str], str]
    listed: Callable[[Sequence[SessionInfo]], list[str]]
    drawing: Callable[[], Drawing]
    question: Callable[[Approval, int], list[str]]
    change: Callable[[Change], list[str]]
    rows: Callable[[Sequence[tuple[str, str]]], list[str]]
    safe: Callable[[str], str]
    paint: Callable[[str, str], str]


class Reader(Protocol):
    """Whoever reads lines from a person and prints for them."""

    @property
    def reads_ahead(self) -> bool:
        """Whether it can read while a turn runs."""

    def held(self) -> AbstractContextManager[None]:
        """Have the keyboard, from the first line to the last."""

    async def read(self, draft: str = "") -> str:
        """What the person wrote next, `draft` being there to begin with; raises EOFError when they leave."""

    async def ask(self, question: str, answers: Collection[str]) -> str:
        """The answer to a question, in lower case; asked until it is one of those that there are."""

    def show(self, lines: Sequence[str]) -> None:
        """Print lines."""

    def refresh(self) -> None:
        """Draw anew what may change."""
