"""A model that answers from a script: for tests and demonstrations."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Protocol

from msgspec import Struct

from nacre.agent.ports import Context, Emit, Reply, Text, Thought, Usage
from nacre.errors import ProviderError
from nacre.messages import Message, ToolCall


class Happens(Protocol):
    """Something to wait for: an event of anyio or asyncio."""

    async def wait(self) -> object:
        """Come back once it has happened."""


class Call(Struct, frozen=True):
    """A call that the model makes; its id is the script's to choose, or `call_1`, `call_2` and so on."""

    name: str
    arguments: Any = {}
    id: str = ""


class Pause:
    """A place in an answer at which the model waits; `reached` is set when it has come there."""

    def __init__(self, until: Happens, reached: Any = None) -> None:
        self.until = until
        self.reached = reached


class Thinks(Struct, frozen=True):
    """What the model thinks before it answers."""

    text: str


class Stops(Struct, frozen=True):
    """The answer ends here because it grew too long."""


Part = str | Call | Pause | Thinks | Stops | Exception
Step = Part | Sequence[Part]


class Scripted:
    """Answers one step of a script per request and remembers what it was shown, in `contexts`.

    A step is a text, a call, an exception to raise, or several of these and pauses in a row; each text of
    a step is emitted as one piece. Ids, request names and usage are the same in every run.
    """

    def __init__(self, steps: Iterable[Step], *, model: str = "scripted") -> None:
        self.contexts: list[Context] = []
        self.closed = False
        self._steps = iter(list(steps))
        self.model = model
        self._calls = 0

    async def close(self) -> None:
        """Note that it was closed."""
        self.closed = True

    async def complete(self, context: Context, *, emit: Emit) -> Reply:
        """Answer with the next step; raises ProviderError when the script is over."""
        self.contexts.append(context)
        step = next(self._steps, None)
        if step is None:
            raise ProviderError(f"the script of {self.model!r} has ended: request {len(self.contexts)} has no answer")
        parts = [step] if isinstance(step, str | Call | Pause | Thinks | Stops | Exception) else list(step)
        text = thoughts = ""
        calls: list[ToolCall] = []
        for part in parts:
            match part:
                case str():
                    text += part
                    emit(Text(part))
                case Thinks(thought):
                    thoughts += thought
                    emit(Thought(thought))
                case Call():
                    id = part.id or f"call_{self._calls + len(calls) + 1}"
                    calls.append(ToolCall(id=id, name=part.name, arguments=part.arguments))
                case Pause():
                    if part.reached is not None:
                        part.reached.set()
                    await part.until.wait()
                case Exception():
                    raise part
                case Stops():
                    pass
        self._calls += len(calls)
        message = Message(
            role="assistant", content=text, tool_calls=tuple(calls), reasoning=thoughts or None, model=self.model
        )
        # Words are counted, which is as good as anything and always the same.
        prompt = len(context.system.split()) + sum(len(str(one.content or "").split()) for one in context.messages)
        usage = Usage(prompt=prompt, completion=len(text.split()), request=f"request_{len(self.contexts)}")
        is_cut = any(isinstance(part, Stops) for part in parts)
        return Reply(message=message, usage=usage, finish="length" if is_cut else "calls" if calls else "stop")
