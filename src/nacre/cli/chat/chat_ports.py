"""What a conversation in a terminal needs from the parts around it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Literal, Protocol

from msgspec import Struct

from nacre.agent.kernel import Kernel
from nacre.agent.model_request import ContextUsage
from nacre.agent.ports import Approval, Change, Event, Tool
from nacre.entries import SessionInfo, Stored
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


class Learner(Protocol):
    """Who goes through turns for memory, after they ended."""

    async def rest(self) -> None:
        """Wait until it has gone through every turn."""

    async def learn_earlier(self) -> None:
        """Wait until it has learned something from what an earlier process left, if that left something."""


class FileHistory(Protocol):
    """What turns did to files, and how to take it back; a turn is named by the number of the message that began it."""

    def changes(self, key: str, turn: int) -> Sequence[Change]:
        """The files that a turn changed, as they were before it and as they are now."""

    def restore(self, key: str, turn: int) -> Sequence[str]:
        """Put the files back as they were before the turn; gives a line about each."""


class Folder(Protocol):
    """The folder that the agent works in."""

    @property
    def is_trusted(self) -> bool:
        """Whether the agent may change files and run programs there."""


class Prompt(Protocol):
    """A message of an MCP server that a person sends by a command."""

    @property
    def takes(self) -> str:
        """Its arguments, as in a usage line."""

    @property
    def meaning(self) -> str:
        """What it is for, in a line."""

    async def message(self, words: str) -> tuple[str, Sequence[dict[str, Any]]]:
        """Its text and its images, as parts of a message; raises ToolError for arguments that do not fit."""


class App(Protocol):
    """The agent that runs, as far as a terminal has to do with it."""

    @property
    def folder(self) -> Folder | None:
        """The folder that it works in."""

    @property
    def sessions(self) -> Sessions:
        """The store."""

    @property
    def trouble(self) -> str:
        """Why something stands in for the store; "" if nothing does."""

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
    def prompts(self) -> Mapping[str, Prompt]:
        """What MCP servers have for a person to send, by command."""

    @property
    def notes(self) -> list[str]:
        """What is to be said at the start."""

    @property
    def compactor(self) -> Compactor:
        """Who makes summaries."""

    @property
    def learner(self) -> Learner | None:
        """Who goes through turns for memory; None if there is no memory."""

    @property
    def file_history(self) -> FileHistory:
        """What turns did to files."""

    @property
    def tokens(self) -> int:
        """How many tokens a request and its reply may have together."""

    async def use(self, model: str) -> str:
        """Let another model answer from now on; returns a note or "". Raises ModelUnavailable, ConfigError."""

    async def models(self) -> list[str]:
        """The models of all providers that can be reached, as `provider/model`."""

    async def check_model(self) -> None:
        """Raise ModelUnavailable if no model can answer."""

    def remote_question(self, key: str) -> str:
        """The question whether a session may be sent to a remote model; "" if none is to be asked."""

    def other_model_before(self, key: str) -> str:
        """The model that answered last in a session, if another one answers now; "" otherwise."""

    def allow_remote(self, key: str) -> None:
        """Let a remote model answer in a session."""

    async def suggest_title(self, key: str) -> str:
        """A title for a session, made by the model; "" if it makes none. Raises ProviderError."""

    def filling(self, key: str) -> ContextUsage:
        """What would fill the model's context if something were said in a session now."""

    def cost(self, use: Any) -> float | None:
        """What a request cost in money, by its `use` record; None if no price is configured for its model."""


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

    def pause(self) -> list[str]:
        """Draw what is left of the text before a question; a call that runs goes on."""

    def end(self) -> list[str]:
        """Draw what is left."""


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


class Desk(Struct, frozen=True, kw_only=True):
    """How things are looked up and how they look.

    `pick` lets a person choose a session and gives its key, `find` gives the key of a reference, `origin` says
    that a session belongs to another folder or to a channel; `history` gives the live messages of a session,
    `past` its last messages as lines; `export` writes it to a file and says so; `question` draws a call that
    somebody has to allow in a number of lines, `change` what was done to a file, `rows` names with their
    meanings; `safe` makes a text safe to print, `paint` gives it a colour, `wrap` breaks it into lines that
    fit the screen.
    """

    pick: Callable[[], Awaitable[str | None]]
    find: Callable[[str], str]
    origin: Callable[[str], str]
    history: Callable[[str], Sequence[Stored]]
    view: Callable[[str], list[str]]
    export: Callable[[str, str], str]
    listed: Callable[[Sequence[SessionInfo]], list[str]]
    drawing: Callable[[], Drawing]
    question: Callable[[Approval, int], list[str]]
    change: Callable[[Change], list[str]]
    rows: Callable[[Sequence[tuple[str, str]]], list[str]]
    safe: Callable[[str], str]
    paint: Callable[[str, str], str]
    wrap: Callable[[str], list[str]]
    look: Look = Look()


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
