"""What the agent asks of the parts around it: a model, tools, a sandbox, and someone to talk to."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Literal, Protocol

from msgspec import Struct

from nacre.messages import Message, ToolCall
from nacre.records import AppendRecord

Effect = Literal["read", "write", "run"]
Entry = Message | AppendRecord
STOPPED = "[stopped by the user]"
"""The end of an answer that was stopped, after what the model had written."""


class Spec(Struct, frozen=True, kw_only=True):
    """A tool as it is described to a model; `parameters` is a JSON schema of an object."""

    name: str
    description: str
    parameters: dict[str, Any]


class Form(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A JSON schema that the text of an answer must follow; `strict`: it keeps to the rules of OpenAI's strict mode."""

    schema: dict[str, Any]
    name: str = "answer"
    strict: bool = False


class Context(Struct, frozen=True, kw_only=True):
    """All that a model is shown: messages that are valid for every provider, tools, and the form of its answer.

    `cache_key` is the same for all requests of a session, so that its server can find what it has cached.
    """

    system: str = ""
    messages: Sequence[Message]
    tools: Sequence[Spec] = ()
    form: Form | None = None
    cache_key: str = ""


class Usage(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a request cost; `request` is the provider's own name for it."""

    prompt: int = 0
    completion: int = 0
    cached: int = 0
    request: str = ""


class Reply(Struct, frozen=True, kw_only=True):
    """What a model answered: a whole assistant message, and why it stopped."""

    message: Message
    usage: Usage | None = None
    finish: Literal["stop", "calls", "length"] = "stop"


class Output(Struct, frozen=True, kw_only=True):
    """What a call gave: text for the model, all of it if that was cut, image parts; `is_refused`: it was not run."""

    text: str
    whole: str | None = None
    failed: bool = False
    is_refused: bool = False
    images: tuple[dict[str, Any], ...] = ()


# ---- what happens during a turn, for anyone who watches; any of it may be lost


class Text(Struct, frozen=True, tag=True):
    """A piece of the answer."""

    text: str


class Thought(Struct, frozen=True, tag=True):
    """A piece of what the model thinks before it answers."""

    text: str


class Called(Struct, frozen=True, tag=True):
    """A tool begins to run."""

    call: ToolCall


class Returned(Struct, frozen=True, tag=True):
    """A tool has run, or was refused; `session` is the delegated session in which it was refused, if it was there."""

    call: ToolCall
    output: Output
    session: str = ""


class ChildReturned(Struct, frozen=True, tag=True):
    """A tool has run in a delegated session, whose key is `session`; the output has neither images nor what was cut."""

    session: str
    call: ToolCall
    output: Output


class Notice(Struct, frozen=True, tag=True):
    """Something that a person may want to know: a retry, a wait, messages that were left out."""

    text: str


Event = Text | Thought | Called | Returned | ChildReturned | Notice
Emit = Callable[[Event], None]


def ignore(_: Event) -> None:
    """The `emit` of a caller who watches nothing."""


class Provider(Protocol):
    """A model, wherever it runs."""

    @property
    def model(self) -> str:
        """Which model answers."""

    async def complete(self, context: Context, *, emit: Emit) -> Reply:
        """Answer; pieces of the answer are emitted as they come. Raises ProviderError, ContextOverflow."""

    async def close(self) -> None:
        """Release everything; twice is harmless."""


async def _permit(_: Mapping[str, Any]) -> str:
    return ""


class Scene(Struct, frozen=True, kw_only=True):
    """The context of a tool call.

    `permit` asks whether the tool may run with other arguments, before a redirect say: "" if it may, else why not.
    """

    key: str
    call: ToolCall
    emit: Emit
    permit: Callable[[Mapping[str, Any]], Awaitable[str]] = _permit


class Tool(Protocol):
    """Something that a model may call."""

    @property
    def spec(self) -> Spec:
        """How it is described to the model."""

    @property
    def effect(self) -> Effect:
        """Whether it only reads, changes files, or runs programs."""

    async def run(self, arguments: Mapping[str, Any], scene: Scene) -> Output:
        """Do it; raises ToolError with what the model should know."""


class Change(Struct, frozen=True, kw_only=True):
    """A change to a text file; `before` is None for a new file, `after` for one that is gone."""

    path: str
    before: str | None
    after: str | None


class Approval(Struct, frozen=True, kw_only=True):
    """A call that a person is asked about.

    `change` is what it does to a file. `always` has the rules that the answer "always" would keep, in this folder or
    this session (`scope`); without any, "always" is not offered. `skill` is the skill that names these rules, and
    `task` the delegated task that asks, with the key of its session.
    """

    tool: Tool
    call: ToolCall
    change: Change | None = None
    always: tuple[str, ...] = ()
    scope: Literal["folder", "session"] = "session"
    skill: str = ""
    task: str = ""
    session: str = ""


Answer = Literal["yes", "no", "always"]
Ask = Callable[[Approval], Awaitable[Answer]]
"""Ask a person whether a call may run."""

Look = Callable[[int | None], Awaitable[Context]]
"""What the model is shown now; given the size of a request that was refused, in fewer estimated tokens than that."""

Commit = Callable[[Sequence[Entry]], Awaitable[int]]
"""Store entries as one transaction; returns the last number once they are durable."""

Pace = Callable[[], Awaitable[None]]
"""Wait until a turn may go on, where there is more to do than can be done at once."""

Guard = Callable[[Tool, ToolCall], Awaitable[str]]
"""Ask whether a call may run: "" if it may, else why not, in words for the model."""


class Turn(Struct, frozen=True, kw_only=True):
    """The parts of a turn; `hear` commits messages that arrived meanwhile."""

    key: str
    look: Look
    provider: Provider
    tools: Mapping[str, Tool]
    guard: Guard
    commit: Commit
    hear: Callable[[], Awaitable[None]]
    emit: Emit
    steps: int = 50


class Finished(Struct, frozen=True, kw_only=True):
    """How a sandboxed command ended: its exit status, negative for a signal; `notes` say what else the sandbox did."""

    status: int
    output: bytes
    timed_out: bool = False
    cut: bool = False
    notes: tuple[str, ...] = ()


class Sandbox(Protocol):
    """Where tool processes run."""

    @property
    def name(self) -> str:
        """Which confinement it is."""

    async def run(self, command: Sequence[str], *, timeout: float, max_bytes: int) -> Finished:  # noqa: ASYNC109 - a limit on the command
        """Run a command in the workspace, confined; at most `max_bytes` of its output are kept."""


async def no_wait() -> None:
    """The pace of a process where every turn may go on at once."""
