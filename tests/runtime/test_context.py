"""What a model is sent over a long session: it fits, it is valid, and it begins like the request before."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import anyio
import pytest

import nacre
from nacre.agent.actor import UserMessage
from nacre.agent.model_request import NONE, Terms, to_extra
from nacre.agent.ports import Context, Effect, Emit, Event, Notice, Output, Reply, Scene, Spec
from nacre.config import Settings
from nacre.errors import ProviderError
from nacre.history.pairing import RECALLED
from nacre.history.tokens import cost
from nacre.memory import Memory
from nacre.messages import Message, ToolCall
from nacre.providers import anthropic, openai
from nacre.runtime import App
from nacre.runtime.agent_parts import AgentParts
from nacre.sessions import Sessions
from nacre.skills import Catalogue
from tests import provider_rules

KEY = "k"
TASK = "Repair the parser in src/parser.py, and change no test."
SUMMARY = "The user wants the parser in src/parser.py repaired; the assistant has read the file and found the place."


class Read:
    """A tool that gives much text."""

    effect: Effect = "read"
    spec = Spec(name="read", description="Read a file.", parameters={"type": "object", "properties": {}})

    async def run(self, arguments: Mapping[str, Any], scene: Scene) -> Output:
        return Output(text=f"{scene.call.id} " + "one line of the file\n" * 40)


class Worker:
    """A model that calls the tool so many times before it answers; it summarises, unless it is told not to."""

    model = "worker"

    def __init__(self, *, calls: int = 0, size: int | None = None, can_summarise: bool = True) -> None:
        self.contexts: list[Context] = []
        self.context_size = size
        self.asked = 0
        self.order: list[str] = []
        self._calls, self._can_summarise = calls, can_summarise
        self._left = calls

    async def complete(self, context: Context, *, emit: Emit) -> Reply:
        self.order.append("answer" if context.tools else "summary")
        if not context.tools:
            self.asked += 1
            if not self._can_summarise:
                raise ProviderError("the server is gone")
            return Reply(message=Message(role="assistant", content=SUMMARY))
        self.contexts.append(context)
        self._left, is_done = (self._calls, True) if not self._left else (self._left - 1, False)
        if is_done:
            return Reply(message=Message(role="assistant", content="It is done."))
        call = ToolCall(id=f"call_{len(self.contexts)}", name="read", arguments={"path": "src/parser.py"})
        return Reply(message=Message(role="assistant", content="I look again.", tool_calls=(call,)), finish="calls")

    async def close(self) -> None:
        """Nothing is held."""


def talk(
    model: Worker,
    said: Sequence[str],
    *,
    sessions: Sessions,
    memory: Memory | None = None,
    terms: Terms = NONE,
    between: Callable[[], None] = lambda: None,
    **own: Any,
) -> list[Event]:
    """Let the agent answer in one session; returns what happened. `between` is called after each turn."""
    events: list[Event] = []

    async def run() -> None:
        app = App(Settings({"agent": {"max_steps": 1000, **own}}, {}), sessions, model)
        app.parts = AgentParts({"read": Read()}, Catalogue(()), "Be brief and exact.", [])
        app.memory = memory
        app.after = [app.compactor.post]
        async with app.compactor, app.kernel:
            for text in said:
                await app.kernel.deliver(UserMessage(key=KEY, content=text, extra=to_extra(terms)), emit=events.append)
                await app.compactor.finish(KEY)
                between()

    anyio.run(run)
    for context in model.contexts:
        provider_rules.openai(openai.body(context, openai.Settings(model="m")))
        provider_rules.anthropic(anthropic.body(context, anthropic.Settings(model="m")))
    return events


def resume(model: Worker, sessions: Sessions) -> None:
    async def run() -> None:
        app = App(Settings({}, {}), sessions, model)
        app.parts = AgentParts({"read": Read()}, Catalogue(()), "Be brief and exact.", [])
        async with app.kernel:
            await app.kernel.resume(KEY)

    anyio.run(run)


def said_in(context: Context) -> str:
    return "\n".join(str(message.content) for message in context.messages)


def is_continued(before: Context, now: Context) -> bool:
    """Tell whether a request begins with all of the one before."""
    return list(now.messages[: len(before.messages)]) == list(before.messages) and before.tools == now.tools


def breaks(contexts: Sequence[Context]) -> int:
    return sum(not is_continued(before, now) for before, now in pairwise(contexts))


@pytest.mark.parametrize("size", [None, 4000])
def test_one_long_turn_is_summarised_between_its_steps(size: int | None) -> None:
    sessions, model = nacre.open(":memory:"), Worker(calls=60, size=size)
    events = talk(model, [TASK], sessions=sessions, max_context_tokens=4000)
    summaries = len(list(sessions.records(KEY, "sum")))
    assert 3 < summaries < 12
    assert max(map(cost, model.contexts)) <= 4000 * 7 // 8
    assert all(TASK in said_in(context) for context in model.contexts)
    assert breaks(model.contexts) == summaries
    assert len(sessions.transcript(KEY)) == 122
    assert sum("were summarised" in event.text for event in events if isinstance(event, Notice)) == summaries
    assert not any("not shown" in event.text for event in events if isinstance(event, Notice))


def test_a_long_turn_fits_without_any_summary_too() -> None:
    sessions, model = nacre.open(":memory:"), Worker(calls=60, can_summarise=False)
    talk(model, [TASK], sessions=sessions, max_context_tokens=4000)
    assert max(map(cost, model.contexts)) <= 4000 * 7 // 8
    assert all(TASK in said_in(context) for context in model.contexts)
    assert breaks(model.contexts) < 20
    assert model.asked < 12
    assert len(sessions.get_history(KEY)) == 122


def test_the_turn_after_a_long_one_knows_what_was_asked_before() -> None:
    sessions, model = nacre.open(":memory:"), Worker(calls=30)
    talk(model, [TASK, "And now the lexer."], sessions=sessions, max_context_tokens=4000)
    last = said_in(model.contexts[-1])
    assert "And now the lexer." in last
    assert SUMMARY in last
    assert f"| {TASK}" not in sessions.get_summary(KEY)


@pytest.mark.parametrize("most", [200, 1000])
def test_between_two_summaries_every_request_begins_with_the_one_before(most: int) -> None:
    sessions, model = nacre.open(":memory:"), Worker()
    said = [f"{number}: " + "some words of the user " * 8 for number in range(150)]
    talk(model, said, sessions=sessions, max_history_messages=most)
    assert breaks(model.contexts) == len(list(sessions.records(KEY, "sum"))) <= 2


def test_a_long_history_is_shown_whole_where_there_is_room() -> None:
    sessions, model = nacre.open(":memory:"), Worker()
    for number in range(300):
        sessions.add_message(KEY, "user" if number % 2 == 0 else "assistant", f"message {number}")
    talk(model, ["and?"], sessions=sessions, max_history_messages=1000, max_context_tokens=128_000)
    assert len(model.contexts[0].messages) == 301


def test_what_is_not_shown_is_said_and_summarised() -> None:
    sessions, model = nacre.open(":memory:"), Worker()
    for number in range(300):
        sessions.add_message(KEY, "user" if number % 2 == 0 else "assistant", f"message {number}")
    events = talk(model, ["and?"], sessions=sessions)
    assert SUMMARY in said_in(model.contexts[0])
    assert any("were summarised" in event.text for event in events if isinstance(event, Notice))


def test_the_next_process_does_not_wait_for_a_summary_that_has_just_failed() -> None:
    sessions = nacre.open(":memory:")
    for number in range(300):
        sessions.add_message(KEY, "user" if number % 2 == 0 else "assistant", f"message {number}")
    first, second = (Worker(can_summarise=False) for _ in range(2))
    talk(first, ["and?"], sessions=sessions)
    talk(second, ["and?"], sessions=sessions)
    assert first.order[:2] == ["summary", "answer"]
    assert second.order[0] == "answer"


def test_what_would_be_shown_counts_all_that_would_not() -> None:
    sessions = nacre.open(":memory:")
    for number in range(300):
        sessions.add_message(KEY, "user" if number % 2 == 0 else "assistant", f"message {number}")
    app = App(Settings({"agent": {"max_history_messages": 20}}, {}), sessions, Worker())
    found = app.window(KEY)
    assert found.left_out == 300 - (len(found.messages) - 1) >= 280


def test_a_summary_is_due_by_the_model_that_answers_now() -> None:
    sessions = nacre.open(":memory:")
    said = ["some words of the user " * 60] * 5
    talk(Worker(size=32_000), said, sessions=sessions)
    assert sessions.get_summary(KEY) == ""
    small = Worker(size=2000)
    talk(small, ["and?"], sessions=sessions)
    assert SUMMARY in sessions.get_summary(KEY)
    assert max(map(cost, small.contexts)) <= 2000 * 7 // 8


@pytest.mark.parametrize("can_summarise", [True, False])
def test_what_is_asked_of_the_answer_holds_and_is_counted_to_the_end_of_a_long_turn(can_summarise: bool) -> None:
    sessions, model = nacre.open(":memory:"), Worker(calls=30, can_summarise=can_summarise)
    terms = Terms(instructions="Answer in French. " + "Keep to the rules of the house. " * 60)
    talk(model, [TASK], sessions=sessions, terms=terms, max_context_tokens=4000)
    assert all(terms.instructions in context.system for context in model.contexts)
    assert max(map(cost, model.contexts)) <= 4000 * 7 // 8


def test_a_turn_that_was_interrupted_behind_a_summary_keeps_to_what_was_asked_of_it() -> None:
    sessions, model = nacre.open(":memory:"), Worker(calls=30)
    terms = Terms(instructions="Answer in French.")
    talk(model, [TASK], sessions=sessions, terms=terms, max_context_tokens=4000)
    sessions.pop(KEY)
    resumed = Worker()
    resume(resumed, sessions)
    assert [terms.instructions in context.system for context in resumed.contexts] == [True]


def test_all_requests_of_a_session_have_one_cache_key_that_does_not_tell_its_name() -> None:
    keys = []
    for _ in range(2):
        model = Worker(calls=3)
        talk(model, ["one", "two"], sessions=nacre.open(":memory:"))
        (key,) = {context.cache_key for context in model.contexts}
        keys.append(key)
    assert keys[0] != keys[1]
    assert all(len(key) == 32 for key in keys)


# ---- recalled facts


def remembering(sessions: Sessions, home: Path, count: int) -> Memory:
    memory = Memory(sessions, home, embedding=lambda: None)
    for number in range(count):
        memory.remember(f"The parser has rule {number}, which the user calls rule {number} of the grammar.")
    return memory


def facts_in(context: Context) -> list[str]:
    return [line for line in said_in(context).splitlines() if line.startswith("- The parser has rule")]


def test_few_facts_are_recalled_and_none_twice_while_it_is_in_view(tmp_path: Path) -> None:
    sessions, model = nacre.open(tmp_path / "store"), Worker()
    memory = remembering(sessions, tmp_path / "home", 15)
    talk(model, ["Which rule has the parser?"] * 4, sessions=sessions, memory=memory)
    counts = [len(facts_in(context)) for context in model.contexts]
    assert counts == [10, 15, 15, 15]
    assert len(set(facts_in(model.contexts[-1]))) == 15


def test_facts_take_a_small_share_of_a_small_window(tmp_path: Path) -> None:
    sessions, model = nacre.open(tmp_path / "store"), Worker()
    memory = remembering(sessions, tmp_path / "home", 15)
    talk(model, ["Which rule has the parser?"], sessions=sessions, memory=memory, max_context_tokens=4000)
    assert 1 <= len(facts_in(model.contexts[0])) <= 3


@pytest.mark.parametrize("can_summarise", [True, False])
@pytest.mark.parametrize("runs", [1, 30])
def test_a_fact_is_in_view_once_whatever_was_summarised_or_left_out(
    tmp_path: Path, runs: int, *, can_summarise: bool
) -> None:
    sessions, model = nacre.open(tmp_path / "store"), Worker(can_summarise=can_summarise)
    memory = remembering(sessions, tmp_path / "home", 3)
    said = ["Which rule has the parser? " + "words " * 30] * 30
    for run in range(runs):
        talk(model, said[run::runs], sessions=sessions, memory=memory, max_history_messages=20)
    assert [sorted(set(facts_in(context))) == sorted(facts_in(context)) for context in model.contexts] == [True] * 30
    assert [len(facts_in(context)) for context in model.contexts] == [3] * 30
    recalls = [entry for entry in sessions.transcript(KEY) if RECALLED in entry.message.extra]
    assert 2 < len(recalls) < 8


def test_a_fact_is_recalled_again_after_another_process_has_summarised(tmp_path: Path) -> None:
    sessions, model = nacre.open(tmp_path / "store"), Worker()
    memory = remembering(sessions, tmp_path / "home", 3)

    def summarise() -> None:
        with nacre.open(tmp_path / "store") as other:
            other.set_summary(KEY, "They talked about the parser.", upto=other.snapshot(KEY).n)

    asked = "Which rule has the parser?"
    talk(model, [asked, asked, asked], sessions=sessions, memory=memory, between=summarise)
    assert [len(facts_in(context)) for context in model.contexts] == [3, 3, 3]
