"""A request that is made smaller: what goes first, what stays, and that it stays valid for every provider."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from nacre.agent.model_request import Material, ModelRequest, fit, squeeze
from nacre.agent.ports import Context, Spec
from nacre.history.message_text import cut_middle
from nacre.history.pairing import without_facts
from nacre.history.tokens import cost
from nacre.history.window import Window, window
from nacre.messages import Message, ToolCall
from nacre.providers import ollama
from tests import provider_rules

MARK = "of which the middle is not shown"
SKILLS = "Load skills with use_skill: <available_skills>" + " a skill" * 100
SYSTEM = f"You are nacre.\n\n{'Project rule. ' * 200}\n\n{SKILLS}"
TOOLS = [
    Spec(name=name, description="Does things. " * 100, parameters={"type": "object", "properties": {}})
    for name in ("read_file", "shell", "web_fetch", "use_skill")
]


def user(text: str, **extra: Any) -> Message:
    return Message(role="user", content=text, extra=extra)


def assistant(text: str) -> Message:
    return Message(role="assistant", content=text)


def step(id: str, argument: str, result: str) -> list[Message]:
    """A call of the shell, and its result."""
    call = ToolCall(id=id, name="shell", arguments={"command": argument, "n": 1})
    return [
        Message(role="assistant", content="", tool_calls=(call,)),
        Message(role="tool", tool_call_id=id, name="shell", content=result),
    ]


def made(messages: Sequence[Message], *, summary: str = "", system: str = SYSTEM, **limits: Any) -> ModelRequest:
    def show(tokens: int, *, summary: int, has_facts: bool) -> Window:
        kept = messages if has_facts else list(map(without_facts, messages))
        return window(kept, summary=cut_middle(text, summary), tokens=tokens, limit=50)

    text = summary
    material = Material(show=show, system=system, skills=SKILLS, tools=TOOLS)
    request = fit(material, **{"tokens": 32_000, **limits})
    settings = ollama.Settings(model="m", num_ctx=1)
    provider_rules.ollama(ollama.body(request.context, settings))
    return request


def names(request: ModelRequest) -> list[str]:
    return [tool.name for tool in request.context.tools]


TURNS = [message for n in range(20) for message in (user(f"{n} " + "word " * 100), assistant("ok"))]
WHOLE = cost(Context(system=SYSTEM, messages=[], tools=TOOLS))


def test_what_fits_is_shown_whole() -> None:
    request = made(TURNS)
    assert (request.context.system, names(request)) == (SYSTEM, [tool.name for tool in TOOLS])
    assert (len(request.context.messages), request.left_out, request.cuts) == (40, 0, [])


def test_older_turns_go_first() -> None:
    request = made(TURNS, capacity=WHOLE + 500)
    assert request.left_out > 20
    assert (request.context.system, len(request.context.tools), request.cuts) == (SYSTEM, 4, [])
    assert cost(request.context) <= WHOLE + 500


def test_then_tools_from_the_last_one_on_and_skills_with_theirs() -> None:
    request = made(TURNS, capacity=WHOLE - 50)
    assert names(request) == ["read_file", "shell", "web_fetch"]
    assert SKILLS not in request.context.system
    assert any("use_skill" in cut for cut in request.cuts)
    assert cost(request.context) <= WHOLE - 50


def test_a_prompt_that_takes_more_than_half_is_cut_before_tools() -> None:
    request = made([user("what now?")], system=SYSTEM + " More rules." * 2000, capacity=4000)
    assert MARK in request.context.system
    assert request.context.system.startswith("You are nacre.")
    assert len(request.context.tools) == 4


def test_a_last_message_is_whole_as_long_as_it_alone_fits() -> None:
    request = made([*TURNS, user("x " * 1000)], capacity=1500)
    assert request.context.messages[-1].content == "x " * 1000
    assert names(request) == []
    assert cost(request.context) <= 1500


def test_the_middle_of_a_longer_one_is_cut() -> None:
    request = made([*TURNS, user(f"begin {'x ' * 9000}end")], capacity=1500)
    text = str(request.context.messages[-1].content)
    assert text.startswith("begin")
    assert MARK in text
    assert text.endswith("end")
    assert 1300 < cost(request.context) <= 1500
    assert any("cut in the middle" in cut for cut in request.cuts)


def test_a_refusal_makes_the_next_request_smaller_than_that() -> None:
    before = cost(made(TURNS).context)
    assert cost(made(TURNS, below=before).context) <= before * 0.6
    assert cost(made(TURNS, below=before, capacity=900).context) <= 900


def test_without_a_capacity_only_turns_are_left_out() -> None:
    request = made([*TURNS, user("x " * 9000)], tokens=1000)
    assert request.context.messages[-1].content == "x " * 9000
    assert (request.context.system, len(request.context.tools), request.cuts) == (SYSTEM, 4, [])


def test_recalled_facts_go_before_the_words_are_cut() -> None:
    asked = user("a question " * 100, recalled="- a fact about it\n" * 300)
    request = made([asked], capacity=1000)
    assert request.context.messages[-1].content == "a question " * 100


def test_a_summary_of_a_larger_window_is_cut() -> None:
    request = made([user("and?")], summary="a fact, and another. " * 2000, capacity=2400)
    assert MARK in str(request.context.messages[0].content)
    assert request.context.messages[-1].content == "and?"
    assert cost(request.context) <= 2400


def test_a_long_turn_keeps_its_question_and_its_last_call() -> None:
    steps = [message for n in range(30) for message in step(f"c{n}", f"echo {n}", "line " * 80)]
    request = made([user("do it"), *steps], capacity=1000)
    shown = request.context.messages
    assert shown[0].content == "do it"
    assert "earlier steps of this turn are not shown" in str(shown[1].content)
    assert shown[-1].tool_call_id == "c29"
    assert names(request) == ["shell"]
    assert cost(request.context) <= 1000


def test_long_arguments_and_results_of_the_last_call_are_cut() -> None:
    request = made([user("do it"), *step("a", "echo " * 5000, "line " * 5000)], capacity=900)
    _, call, result = request.context.messages
    assert MARK in call.tool_calls[0].arguments["command"]
    assert call.tool_calls[0].arguments["n"] == 1
    assert MARK in str(result.content)
    assert cost(request.context) <= 900


def test_parts_are_cut_and_images_named() -> None:
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,aaaa"}}
    parts = [{"type": "text", "text": "x " * 5000}, image]
    [shown] = squeeze([Message(role="user", content=parts)], 500)
    assert isinstance(shown.content, list)
    assert MARK in shown.content[0]["text"]
    assert shown.content[1] == {"type": "text", "text": "[image]"}
    [large] = squeeze([Message(role="user", content=parts)], 3000)
    assert isinstance(large.content, list)
    assert large.content[1] == image


def test_arguments_that_are_no_object_stay() -> None:
    call = Message(role="assistant", content="x " * 900, tool_calls=(ToolCall(id="a", name="shell", arguments="{"),))
    [shown] = squeeze([call], 100)
    assert shown.tool_calls == call.tool_calls


@pytest.mark.parametrize("capacity", [100, 300, 1000, 3000, 9000])
def test_it_fits_as_soon_as_anything_can(capacity: int) -> None:
    steps = [message for n in range(9) for message in step(f"c{n}", "echo " * 300, "line " * 300)]
    messages = [*TURNS, user("question " * 4000), *steps]
    request = made(messages, capacity=capacity, summary="fact " * 900)
    smallest = cost(made(messages, capacity=1, summary="fact " * 900).context)
    assert cost(request.context) <= max(capacity, smallest + 20)
    assert smallest < 900
