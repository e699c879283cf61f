"""What fills a model's context: each part of the next request in tokens."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msgspec import Struct

from nacre.agent.model_request import Request
from nacre.entries import Snapshot
from nacre.history.pairing import RECALLED
from nacre.history.tokens import PER_MESSAGE, count, definition, estimate


class Filling(Struct, frozen=True, kw_only=True):
    """The parts of a context in the model's own tokens, about; `limit` is what all of them may have together.

    `cuts` says in sentences what is left out of it besides older turns.
    """

    limit: int
    system: int = 0
    skills: int = 0
    tools: int = 0
    summary: int = 0
    facts: int = 0
    messages: int = 0
    reply: int = 0
    cuts: Sequence[str] = ()

    @property
    def used(self) -> int:
        """What would be sent: everything but the room for the reply."""
        return self.system + self.skills + self.tools + self.summary + self.facts + self.messages

    @property
    def free(self) -> int:
        return max(self.limit - self.used - self.reply, 0)


def measure(  # noqa: PLR0913 - what is measured, and by what
    request: Request, now: Snapshot, *, skills: str, limit: int, reply: int, scale: Callable[[int], int] = int
) -> Filling:
    """Measure the parts of a request that was made of a session as it is `now`; `skills` is the list of skills.

    `scale` turns an estimate into the model's own tokens.
    """
    context = request.context
    said = sum(map(estimate, context.messages))
    summary = min(count(now.summary), estimate(context.messages[0])) if now.summary and context.messages else 0
    shown = now.messages[len(now.messages) - max(now.live - request.left_out, 0) :]
    facts = sum(count(text) for message in shown if isinstance(text := message.extra.get(RECALLED), str))
    facts = min(facts, said - summary)
    listed = count(skills) if skills and skills in context.system else 0
    return Filling(
        limit=limit,
        system=scale(PER_MESSAGE + count(context.system) - listed if context.system else 0),
        skills=scale(listed),
        tools=scale(sum(map(definition, context.tools))),
        summary=scale(summary),
        facts=scale(facts),
        messages=scale(said - summary - facts),
        reply=reply,
        cuts=request.cuts,
    )
