"""The room for a session: what is configured, less what comes with every request, in the model's own tokens."""

from __future__ import annotations

import anyio

from nacre.agent.kernel import ignored
from nacre.agent.ports import Context, Reply, Spec, Usage
from nacre.app.budget import Budget
from nacre.entries import Message
from nacre.providers.scripted import Scripted

TOOL = Spec(name="shell", description="Run a command. " * 20, parameters={"type": "object", "properties": {}})


class Small(Scripted):
    """A model that takes little."""

    context_size = 4096


def test_prompt_tools_and_reply_take_their_part() -> None:
    budget, model = Budget(8000), Scripted([])
    bare = budget.room(model, "", ())
    assert bare == 7000
    assert budget.room(model, "Be kind. " * 100, [TOOL]) < bare - 200


def test_a_small_model_has_a_small_room() -> None:
    assert Budget(32_000).limit(Small([])) == 4096
    assert Budget(300).room(Small([]), "x" * 10_000, ()) == 256


def test_a_model_that_counts_more_is_shown_less() -> None:
    budget = Budget(8000)
    context = Context(messages=[Message(role="user", content="word " * 400)])
    reply = Reply(message=Message(role="assistant", content="ok"), usage=Usage(prompt=1000))
    before = budget.room(Scripted([]), "", ())
    budget.learn("scripted", context, reply)
    assert budget.room(Scripted([]), "", ()) < before * 0.7


def test_it_learns_from_every_request() -> None:
    budget = Budget(8000)
    watched = budget.watched(Scripted(["ok"]))
    context = Context(messages=[Message(role="user", content="word, " * 400)])
    anyio.run(lambda: watched.complete(context, emit=ignored))
    anyio.run(watched.close)
    assert "scripted" in budget._learned
