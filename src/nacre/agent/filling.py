"""What fills a model's context: each part of the next request in tokens."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msgspec import Struct

from nacre.agent.ports import Spec
from nacre.entries import Snapshot
from nacre.history.pairing import RECALLED
from nacre.history.tokens import PER_MESSAGE, count, definition
from nacre.history.window import Window


class Filling(Struct, frozen=True, kw_only=True):
    """The parts of a context in the model's own tokens, about; `limit` is what all of them may have together."""

    limit: int
    system: int = 0
    skills: int = 0
    tools: int = 0
    summary: int = 0
    facts: int = 0
    messages: int = 0
    reply: int = 0

    @property
    def used(self) -> int:
        """What would be sent: everything but the room for the reply."""
        return self.system + self.skills + self.tools + self.summary + self.facts + self.messages

    @property
    def free(self) -> int:
        return max(self.limit - self.used - self.reply, 0)


class Parts(Struct, frozen=True, kw_only=True):
    """What comes with every request: the system prompt, the part of it that lists skills, and the tools."""

    system: str = ""
    skills: str = ""
    tools: Sequence[Spec] = ()


def measure(  # noqa: PLR0913 - what is measured, and by what
    parts: Parts, now: Snapshot, window: Window, *, limit: int, reply: int, scale: Callable[[int], int] = int
) -> Filling:
    """Measure the parts of the next request; `window` is what it would show of the session as it is `now`.

    `scale` turns an estimate into the model's own tokens.
    """
    shown = now.messages[len(now.messages) - max(now.live - window.left_out, 0) :]
    facts = sum(count(text) for message in shown if isinstance(text := message.extra.get(RECALLED), str))
    summary = count(now.summary) if now.summary else 0
    skills = count(parts.skills) if parts.skills and parts.skills in parts.system else 0
    system = PER_MESSAGE + count(parts.system) - skills if parts.system else 0
    return Filling(
        limit=limit,
        system=scale(system),
        skills=scale(skills),
        tools=scale(sum(map(definition, parts.tools))),
        summary=scale(summary),
        facts=scale(facts),
        messages=scale(max(window.tokens - summary - facts, 0)),
        reply=reply,
    )
