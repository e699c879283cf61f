"""Sessions that work for another: begun by a call, linked to it, and held to their limits."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from nacre.agent.actor import UserMessage
from nacre.agent.ports import Context, Emit, Event, Provider, Reply, Returned
from nacre.errors import NacreError, Stopped, StoreError
from nacre.messages import Message
from nacre.records import SetMeta
from nacre.sessions import Sessions
from nacre.tools.builtin import Report, Status, Task

_LONGEST_TITLE = 80

Deliver = Callable[[UserMessage, str, Emit], Awaitable[Message | None]]
"""Give a task to a child of a session; what happens in it is emitted."""


class Spent(NacreError):
    """A session has used all the tokens that it may use."""


class Tally:
    """A provider that counts what one session uses of it, and refuses when that is too much."""

    def __init__(self, task: Task) -> None:
        self.task = task
        self.steps = self.tokens = 0

    def of(self, inner: Provider) -> Provider:
        return _Counted(inner, self)


class _Counted:
    def __init__(self, inner: Provider, tally: Tally) -> None:
        self._inner = inner
        self._tally = tally

    @property
    def model(self) -> str:
        return self._inner.model

    async def complete(self, context: Context, *, emit: Emit) -> Reply:
        tally = self._tally
        if tally.tokens >= tally.task.tokens:
            raise Spent(f"the session has used {tally.tokens} of {tally.task.tokens} tokens")
        reply = await self._inner.complete(context, emit=emit)
        tally.steps += 1
        tally.tokens += reply.usage.prompt + reply.usage.completion if reply.usage is not None else 0
        return reply

    async def close(self) -> None:
        """It is the parent's to close."""


class Delegated:
    """Runs child sessions through the kernel; each is named by its parent and the call that asked for it."""

    def __init__(self, sessions: Sessions, deliver: Deliver) -> None:
        self._sessions = sessions
        self._deliver = deliver
        self.running: dict[str, Tally] = {}

    def depth(self, key: str) -> int:
        """How many parents a session has; 0 for one that a person began."""
        found = self._sessions.get_meta(key).get("depth", 0)
        return found if isinstance(found, int) else 0

    def outermost(self, key: str) -> str:
        """The session that one works for in the end: its own key, unless it is a child."""
        parent = self._parent(key)
        return key if parent is None else self.outermost(parent)

    async def run(self, task: Task, emit: Emit) -> Report:
        """Run a new child to its end; `emit` gets the calls in it that were refused."""

        def pass_on(event: Event) -> None:
            if isinstance(event, Returned) and event.output.is_refused:
                emit(event)

        key = f"{task.parent}/{task.call}"
        if self._sessions.exists(key):
            # Some servers number their calls anew in every answer.
            key = self._sessions.free_key(key)
        tally = self.running[key] = Tally(task)
        try:
            await self._sessions.submit(key, [_description(task, self._sessions.get_meta(task.parent))])
            answer = await self._deliver(UserMessage(key=key, content=task.text), task.parent, pass_on)
            status: Status = "done" if answer is None else answer.extra.get("stopped", "done")
        except Spent:
            answer, status = None, "tokens"
        except Stopped:
            answer, status = None, "interrupted"
        except NacreError as error:
            answer, status = Message(role="assistant", content=str(error)), "failed"
        finally:
            del self.running[key]
        text = str(answer.content or "") if answer is not None else ""
        return Report(key=key, status=status, answer=text, steps=tally.steps, tokens=tally.tokens)

    def _parent(self, key: str) -> str | None:
        """Whose child a session says that it is: people may have names that look like a child's key."""
        if "/" not in key:
            return None
        try:
            parent = self._sessions.get_meta(key).get("parent")
        except StoreError:
            return None
        return parent if isinstance(parent, str) and key.startswith(f"{parent}/") else None


def _description(task: Task, parent: dict[str, object]) -> SetMeta:
    fields = {"parent": task.parent, "call": task.call, "depth": task.depth, "title": task.text[:_LONGEST_TITLE]}
    return SetMeta({**fields, "approvals": parent.get("approvals")})
