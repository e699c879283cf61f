"""Sessions that work for another: begun by a call, linked to it, and held to their limits."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from msgspec.structs import replace

from nacre.agent.actor import UserMessage
from nacre.agent.ports import ChildReturned, Context, Emit, Event, Provider, Reply, Returned
from nacre.errors import NacreError, Stopped
from nacre.messages import Message
from nacre.records import SetMeta
from nacre.runtime.counters import ProviderWrapper
from nacre.sessions import Sessions
from nacre.tools.builtin import Report, Status, Task

_MAX_TITLE = 80

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


class _Counted(ProviderWrapper):
    def __init__(self, inner: Provider, tally: Tally) -> None:
        super().__init__(inner)
        self._tally = tally

    async def complete(self, context: Context, *, emit: Emit) -> Reply:
        tally = self._tally
        if tally.tokens >= tally.task.tokens:
            raise Spent(f"the session has used {tally.tokens} of {tally.task.tokens} tokens")
        reply = await self._inner.complete(context, emit=emit)
        tally.steps += 1
        tally.tokens += reply.usage.prompt + reply.usage.completion if reply.usage is not None else 0
        return reply


class Delegated:
    """Runs child sessions through the kernel; each is named by its parent and the call that asked for it."""

    def __init__(self, sessions: Sessions, deliver: Deliver) -> None:
        self._sessions, self._deliver = sessions, deliver
        self.running: dict[str, Tally] = {}

    def depth(self, key: str) -> int:
        """How many parents a session has; 0 for one that a person began."""
        found = self._sessions.get_meta(key).get("depth", 0)
        return found if isinstance(found, int) else 0

    async def run(self, task: Task, emit: Emit) -> Report:
        """Run a new child to its end; `emit` gets what its calls, and those of its children, gave."""

        def pass_on(event: Event) -> None:
            match event:
                case ChildReturned():
                    emit(event)
                case Returned(output=output) if output.is_refused:
                    emit(replace(event, session=event.session or key))
                case Returned(call=call, output=output):
                    emit(ChildReturned(key, call, replace(output, whole=None, images=())))
                case _:
                    # What it says is for its parent, which gets it as the result of the call.
                    pass

        key = f"{task.parent}/{task.call}"
        if self._sessions.exists(key):
            # Some servers number their calls from the start in every answer.
            key = self._sessions.free_key(key)
        tally = self.running[key] = Tally(task)
        try:
            fields = {"parent": task.parent, "call": task.call, "depth": task.depth, "title": task.text[:_MAX_TITLE]}
            approvals = self._sessions.get_meta(task.parent).get("approvals")
            await self._sessions.submit(key, [SetMeta({**fields, "approvals": approvals})])
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
