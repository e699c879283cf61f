"""A window's way to every provider: the bodies of its requests, held to the providers' rules."""

from __future__ import annotations

from collections.abc import Sequence

from nacre.agent.ports import Context, Spec
from nacre.codec import message_of
from nacre.history import session_state
from nacre.history.window import Window, recent
from nacre.messages import Message
from nacre.providers import anthropic, ollama, openai
from nacre.records import Records
from tests import provider_rules

TOOLS = (Spec(name="shell", description="Run a command.", parameters={"type": "object", "properties": {}}),)
LIMITS = ((32_000, 50), (300, 6), (0, 0))


def check(messages: Sequence[Message]) -> None:
    """Raise BrokenRule if any provider would refuse these messages; there is nothing to send without any."""
    if not messages:
        return
    context = Context(system="You are a test.", messages=messages, tools=TOOLS)
    provider_rules.openai(openai.body(context, openai.Settings(model="m")))
    provider_rules.anthropic(anthropic.body(context, anthropic.Settings(model="m")))
    provider_rules.ollama(ollama.body(context, ollama.Settings(model="m", num_ctx=4096)))


def at(view: Records, tokens: int = 32_000, most: int = 50) -> Window:
    """What a model would be shown of a session."""
    state = view.state
    newest_first = (message_of(record, view) for record in session_state.chain(view, state))
    summary = session_state.summary(view, state)
    return recent(newest_first, count=state.live, summary=summary, tokens=tokens, limit=most)


def check_past(view: Records) -> None:
    """Check a session at one moment, by turns with much, little and no room."""
    check(at(view, *LIMITS[view.n % len(LIMITS)]).messages)
