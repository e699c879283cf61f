"""What fills a context, part by part."""

from __future__ import annotations

from typing import Any

from nacre.agent.model_request import ContextUsage, ModelRequest, measure
from nacre.agent.ports import Context, Spec
from nacre.history.tokens import count
from nacre.history.window import window
from nacre.messages import Message, Snapshot

TOOL = Spec(name="shell", description="Run a command. " * 20, parameters={"type": "object", "properties": {}})
SKILLS = "skills: " + "one " * 50
SYSTEM = f"Be kind.\n\n{SKILLS}"


def filled(now: Snapshot, *, system: str = SYSTEM, **changes: Any) -> ContextUsage:
    shown = window(now.messages, summary=now.summary, tokens=4000, limit=50)
    request = ModelRequest(
        context=Context(system=system, messages=shown.messages, tools=[TOOL]), left_out=shown.left_out, cuts=["a cut"]
    )
    return measure(request, now, skills=SKILLS, **{"limit": 8000, "reply": 1000, **changes})


def test_every_part_is_counted_once() -> None:
    messages = [Message(role="user", content="word " * 100, extra={"recalled": "fact " * 40})]
    found = filled(Snapshot(messages=messages, live=1, summary="before " * 30))
    assert found.skills == count(SKILLS)
    assert found.facts == count("fact " * 40)
    assert found.summary == count("before " * 30)
    assert 100 <= found.messages <= 130
    assert found.tools > 60
    assert found.used + found.reply + found.free == 8000
    assert found.cuts == ["a cut"]


def test_it_is_told_in_the_models_own_tokens() -> None:
    now = Snapshot(messages=[Message(role="user", content="word " * 100)], live=1)
    assert filled(now, scale=lambda tokens: 2 * tokens).messages == 2 * filled(now).messages


def test_nothing_is_free_in_a_context_that_is_too_full() -> None:
    assert ContextUsage(limit=10, messages=20).free == 0
    assert filled(Snapshot(), system="").system == 0
