"""The rules of the providers: what they take passes, and each thing that they refuse is found."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

from tests import provider_rules
from tests.provider_rules import BrokenRule

SCHEMA = {"type": "object", "properties": {}}
PNG = "iVBORw0KGgo="
FUNCTION = {"type": "function", "function": {"name": "shell", "description": "Run.", "parameters": SCHEMA}}


def changed(body: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    """A copy with one thing set; GONE takes it away; a `+` at the end of the path inserts."""
    made = copy.deepcopy(body)
    *way, last = [int(step) if step.isdigit() else step for step in path.rstrip("+").split(".")]
    place: Any = made
    for step in way:
        place = place[step]
    if path.endswith("+"):
        place.insert(last, value)
    elif value is GONE:
        del place[last]
    else:
        place[last] = value
    return made


GONE = object()

OPENAI: dict[str, Any] = {
    "model": "m",
    "stream": True,
    "stream_options": {"include_usage": True},
    "tools": [FUNCTION],
    "messages": [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": [
            {"type": "text", "text": "look"},
            {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PNG}"}},
        ]},
        {"role": "assistant", "content": None, "tool_calls": [
            {"id": "a", "type": "function", "function": {"name": "shell", "arguments": "{}"}},
            {"id": "b", "type": "function", "function": {"name": "shell", "arguments": "{}"}},
        ]},
        {"role": "tool", "tool_call_id": "a", "content": ""},
        {"role": "tool", "tool_call_id": "b", "content": [{"type": "text", "text": "x"}]},
        {"role": "assistant", "content": "done"},
        {"role": "user", "content": "thanks", "name": "anna"},
    ],
}  # fmt: skip

ANTHROPIC: dict[str, Any] = {
    "model": "m",
    "max_tokens": 100,
    "system": [{"type": "text", "text": "Be brief."}],
    "tools": [{"name": "shell", "description": "Run.", "input_schema": SCHEMA}],
    "messages": [
        {"role": "user", "content": [
            {"type": "text", "text": "look"},
            {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG}},
            {"type": "image", "source": {"type": "url", "url": "https://example.org/a.png"}},
        ]},
        {"role": "assistant", "content": [
            {"type": "thinking", "thinking": "hm", "signature": "s"},
            {"type": "redacted_thinking", "data": "x"},
            {"type": "text", "text": "well "},
            {"type": "tool_use", "id": "a", "name": "shell", "input": {}},
            {"type": "tool_use", "id": "b", "name": "shell", "input": {"x": [1, None, 2.5]}},
        ]},
        {"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": "b", "content": [{"type": "text", "text": "x"}], "is_error": True},
            {"type": "tool_result", "tool_use_id": "a", "content": ""},
            {"type": "text", "text": "and?"},
        ]},
        {"role": "assistant", "content": "done"},
    ],
}  # fmt: skip

OLLAMA: dict[str, Any] = {
    "model": "m",
    "stream": True,
    "truncate": False,
    "options": {"num_ctx": 4096},
    "think": "low",
    "tools": [FUNCTION],
    "messages": [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "look", "images": [PNG]},
        {"role": "assistant", "content": "", "thinking": "hm", "tool_calls": [
            {"id": "a", "function": {"index": 0, "name": "shell", "arguments": {}}},
            {"function": {"name": "shell", "arguments": {}}},
        ]},
        {"role": "tool", "content": "", "tool_name": "shell", "tool_call_id": "a"},
        {"role": "tool", "content": "x", "tool_name": "shell"},
        {"role": "assistant", "content": "done"},
    ],
}  # fmt: skip


@pytest.mark.parametrize(
    ("rules", "body"),
    [
        (provider_rules.openai, OPENAI),
        (provider_rules.openai, {"model": "m", "messages": [{"role": "user", "content": "x"}]}),
        (provider_rules.anthropic, ANTHROPIC),
        (provider_rules.anthropic, ANTHROPIC | {"system": ""}),
        (provider_rules.ollama, OLLAMA),
    ],
)
def test_a_good_body_passes(rules: Callable[[dict[str, Any]], None], body: dict[str, Any]) -> None:
    rules(body)


TOOL = {"role": "tool", "tool_call_id": "a", "content": "x"}


@pytest.mark.parametrize(
    ("path", "value", "rule"),
    [
        ("model", GONE, "has no \\['model'\\]"),
        ("model", "", "not empty"),
        ("strange", 1, "unknown fields"),
        ("stream", False, "only for a stream"),
        ("metadata", {1: 2}, "has keys"),
        ("metadata", {"a": object()}, "is not JSON"),
        ("tools", GONE, None),
        ("tools", [], "something in it"),
        ("tools.0.function.name", "a b", "does not fit"),
        ("tools.0.type", "custom", "is 'function'"),
        ("tools.0.function.parameters", {"type": "string"}, "schema of an object"),
        ("tools.1+", FUNCTION, "twice"),
        ("messages", [], "something in it"),
        ("messages", [{"role": "system", "content": "x"}], "begin with a user"),
        ("messages.0", "x", "is an object"),
        ("messages.0.role", "human", "not one of OpenAI's"),
        ("messages.6.role", "system", "not at the beginning"),
        ("messages.1", GONE, "begin with a user"),
        ("messages.1.content", "", "is empty"),
        ("messages.1.content", [], "something in it"),
        ("messages.1.content.0.type", "image", "not taken here"),
        ("messages.1.content.0.text", "", "not empty"),
        ("messages.1.content.1.image_url.url", "", "not empty"),
        ("messages.2.tool_calls", [], "something in it"),
        ("messages.2.tool_calls.0.id", "", "not empty"),
        ("messages.2.tool_calls.0.id", "x" * 41, "longer than 40"),
        ("messages.2.tool_calls.0.id", "b", "answers no call"),
        ("messages.2.tool_calls.0.type", "custom", "is 'function'"),
        ("messages.2.tool_calls.0.function.name", "", "does not fit"),
        ("messages.2.tool_calls.0.function.arguments", {}, "is JSON text"),
        ("messages.2.tool_calls.0.function.arguments", "{", "is not JSON"),
        ("messages.2.tool_calls.0.function.arguments", "[]", "not an object in JSON"),
        ("messages.3", GONE, "answers no call"),
        ("messages.4", GONE, "before the results of"),
        ("messages.4+", {"role": "user", "content": "x"}, "before the results of"),
        ("messages.4+", TOOL, "answers no call"),
        ("messages.6+", TOOL, "answers no call"),
        ("messages.7+", {"role": "assistant", "tool_calls": OPENAI["messages"][2]["tool_calls"]}, "end before"),
        ("messages.5.content", None, "content or tool_calls"),
        ("messages.5.content", "", "is empty"),
        ("messages.5.reasoning", "x", "unknown fields"),
        ("messages.6.name", "Anna B", "does not fit"),
    ],
)
def test_openai_refuses(path: str, value: Any, rule: str | None) -> None:
    refuses(provider_rules.openai, changed(OPENAI, path, value), rule)


def test_openai_refuses_a_choice_of_no_tools() -> None:
    for choice in ("tool_choice", "parallel_tool_calls"):
        refuses(provider_rules.openai, changed(OPENAI, "tools", GONE) | {choice: "auto"}, "only allowed when")


def test_openai_refuses_an_id_that_comes_again() -> None:
    again = OPENAI["messages"][2:5]
    refuses(provider_rules.openai, OPENAI | {"messages": [*OPENAI["messages"], *again]}, "twice")


USE = {"type": "tool_use", "id": "c", "name": "shell", "input": {}}
RESULT = {"type": "tool_result", "tool_use_id": "c"}


@pytest.mark.parametrize(
    ("path", "value", "rule"),
    [
        ("max_tokens", GONE, "has no"),
        ("max_tokens", 0, "positive"),
        ("system", " ", "only white space"),
        ("system.0.text", "", "not empty"),
        ("system.0.type", "image", "is 'text'"),
        ("tools", GONE, None),
        ("tools.0.name", "", "does not fit"),
        ("tools.0.input_schema", {}, "schema of an object"),
        ("messages.0", GONE, "first message is a user's"),
        ("messages.0.role", "system", "is 'user' or 'assistant'"),
        ("messages.0.content", "", "is empty"),
        ("messages.0.content", " ", "only white space"),
        ("messages.0.content", [], "something in it"),
        ("messages.0.content.0.text", "", "not empty"),
        ("messages.0.content.0.text", " ", "only white space"),
        ("messages.0.content.0.type", "image_url", "not taken from a user"),
        ("messages.0.content.1.source.data", "?", "not base64"),
        ("messages.0.content.1.source.media_type", "image/svg+xml", "not taken"),
        ("messages.0.content.1.source.type", "file", "is 'base64' or 'url'"),
        ("messages.0.content.2.source.url", "http://example.org/a.png", "not https"),
        ("messages.1", GONE, "same as before"),
        ("messages.1.content.0.signature", "", "not empty"),
        ("messages.1.content.0+", {"type": "text", "text": "x"}, "thinking blocks come first"),
        ("messages.1.content.5+", {"type": "text", "text": "x"}, "tool_use blocks come last"),
        ("messages.1.content.3.id", "a.b", "does not fit"),
        ("messages.1.content.3.id", "b", "tool_result without its tool_use"),
        ("messages.1.content.3.name", "a b", "does not fit"),
        ("messages.1.content.3.input", "{}", "is an object"),
        ("messages.1.content.5+", USE, "no tool_result for each"),
        ("messages.2.content.0+", {"type": "text", "text": "x"}, "tool_result blocks come first"),
        ("messages.2.content.0", GONE, "no tool_result for each"),
        ("messages.2.content.0+", RESULT, "without its tool_use"),
        ("messages.2.content.0+", {"type": "tool_result", "tool_use_id": "a"}, "twice"),
        ("messages.2.content.0.content.0.text", "", "not empty"),
        ("messages.2.content.0.content.0.type", "tool_use", "not taken in a result"),
        ("messages.2.content.0.is_error", 1, "true or false"),
        ("messages.3.content", "done ", "ends with white space"),
        ("messages.3.content", [{"type": "text", "text": "done\n"}], "ends with white space"),
        ("messages.3.content", [USE], "end with tool_use"),
    ],
)
def test_anthropic_refuses(path: str, value: Any, rule: str | None) -> None:
    refuses(provider_rules.anthropic, changed(ANTHROPIC, path, value), rule)


def test_anthropic_refuses_an_id_that_comes_again() -> None:
    again = [*ANTHROPIC["messages"], *ANTHROPIC["messages"][:3]]
    refuses(provider_rules.anthropic, ANTHROPIC | {"messages": again}, "twice")


@pytest.mark.parametrize(
    ("path", "value", "rule"),
    [
        ("options", [], "is an object"),
        ("stream", 1, "true or false"),
        ("think", 1, "or a level"),
        ("tools.0.function.name", "", "does not fit"),
        ("messages.0.role", "developer", "not one of Ollama's"),
        ("messages.1", GONE, "begin with a user"),
        ("messages.1.content", None, "is text"),
        ("messages.1.content", [{"type": "text", "text": "x"}], "is text"),
        ("messages.1.images.0", f"data:image/png;base64,{PNG}", "not base64"),
        ("messages.1.tool_name", "shell", "for a tool's result"),
        ("messages.1.tool_calls", [], "are the assistant's"),
        ("messages.2.tool_calls.0.type", "function", "unknown fields"),
        ("messages.2.tool_calls.0.function.arguments", "{}", "is an object"),
        ("messages.2.tool_calls.0.function.name", "a b", "does not fit"),
        ("messages.3.tool_name", "read", "answers no call"),
        ("messages.3", GONE, "answers no call"),
        ("messages.4", GONE, "before the results of"),
        ("messages.5.content", "", "neither content"),
        ("messages.5.name", "x", "unknown fields"),
    ],
)
def test_ollama_refuses(path: str, value: Any, rule: str | None) -> None:
    refuses(provider_rules.ollama, changed(OLLAMA, path, value), rule)


def refuses(rules: Callable[[dict[str, Any]], None], body: dict[str, Any], rule: str | None) -> None:
    if rule is None:
        rules(body)
        return
    with pytest.raises(BrokenRule, match=rule):
        rules(body)
