"""delegate: a piece of work for a session of its own, linked to the one that asked for it."""

from __future__ import annotations

from typing import Literal, Protocol

from msgspec import Struct

from nacre.agent.ports import Emit, Output, Scene
from nacre.errors import ToolError
from nacre.tools.functions import Function
from nacre.tools.tool_output import bounded

Status = Literal["done", "steps", "repeated", "tokens", "length", "failed", "interrupted"]
_STATUS = {
    "done": "done",
    "steps": "stopped: it used all its steps",
    "repeated": "stopped: it repeated a call that fails",
    "tokens": "stopped: it used all its tokens",
    "length": "its answer was cut off",
    "failed": "failed",
    "interrupted": "interrupted; what it did so far is kept",
}


class Limits(Struct, frozen=True, kw_only=True):
    """How deep sessions may delegate, and what one child may use."""

    depth: int = 2
    steps: int = 30
    tokens: int = 200_000


class Task(Struct, frozen=True, kw_only=True):
    """Work for a child: its parent and the call that asked for it, what to do, and what it may use."""

    parent: str
    call: str
    text: str
    depth: int
    steps: int
    tokens: int


class Report(Struct, frozen=True, kw_only=True):
    """What became of a child: its session, how it ended, its last answer, and what it used."""

    key: str
    status: Status
    answer: str = ""
    steps: int = 0
    tokens: int = 0


class Children(Protocol):
    """Who runs child sessions."""

    def depth(self, key: str) -> int:
        """How many parents a session has; 0 for one that a person began."""

    async def run(self, task: Task, emit: Emit) -> Report:
        """Run a new child to its end, and pass on the calls in it that were refused; it is cancelled with the call."""


class Delegate:
    """The tool that delegates."""

    def __init__(self, children: Children, limits: Limits) -> None:
        self._children = children
        self._limits = limits

    async def delegate(self, task: str, scene: Scene, steps: int | None = None) -> Output:
        """Give a piece of work to a helper with a conversation of its own, and wait for its answer.

        It knows nothing of this conversation, so say all that it needs; it has the same workspace and tools.

        Args:
            task: what to do, and what to answer
            steps: maximum number of steps, if fewer than the default
        """
        depth = self._children.depth(scene.key)
        if depth >= self._limits.depth:
            raise ToolError(f"this session is already {depth} levels deep and cannot delegate: do the work here")
        if not task.strip():
            raise ToolError("the task is empty: describe what to do")
        most = self._limits.steps if steps is None else min(max(steps, 1), self._limits.steps)
        return _told(await self._children.run(self._task(task, scene, depth, most), scene.emit))

    def _task(self, text: str, scene: Scene, depth: int, steps: int) -> Task:
        return Task(
            parent=scene.key,
            call=scene.call.id,
            text=text,
            depth=depth + 1,
            steps=steps,
            tokens=self._limits.tokens,
        )


def delegate_tool(children: Children, limits: Limits | None = None) -> Function:
    """The tool that delegates, within limits."""
    return Function(Delegate(children, limits or Limits()).delegate, effect="run")


def _told(report: Report) -> Output:
    used = f"{report.steps:,} step{'s' * (report.steps != 1)}, {report.tokens:,} tokens"
    heading = f"[session {report.key}: {_STATUS[report.status]}; {used}]"
    return bounded(f"{heading}\n\n{report.answer or '(no answer)'}", failed=report.status != "done")
