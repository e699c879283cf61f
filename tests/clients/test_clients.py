"""Clients of other projects, as their makers ship them, against one running `nacre serve`."""

from __future__ import annotations

from typing import Any

import pytest

from tests.clients.conftest import Run

OSLO = {"city": "Oslo", "people": 700_000}
HELLO = "You said: hello"


def test_openai(python: Run) -> None:
    found = python("with_openai.py")
    assert "an image must be" in found.pop("refused")
    assert "nacre" in found.pop("names")
    assert found == {
        "whole": HELLO,
        "streamed": HELLO,
        "call": '{"city":"Oslo"}',
        "told": "The tool says: rain",
        "seen": "an image",
        "parsed": OSLO,
        "first": HELLO,
        "second": "You said: hello / again",
        "read": "You said: hello / again",
        "responded": OSLO,
        "unstored": "The tool says: rain",
        "streamed_call": '{"city":"Oslo"}',
        "many": [f"You said: {number}" for number in range(10)],
    }


def test_langchain(python: Run) -> None:
    found = python("with_langchain.py")
    for way in ("chat", "responses"):
        assert found[way] == {
            "whole": HELLO,
            "streamed": HELLO,
            "schema": OSLO,
            "object": OSLO,
            "by_call": OSLO,
            "calls": {"city": "Oslo"},
        }


@pytest.mark.parametrize(
    ("script", "by_call"),
    [
        ("with_pydantic_ai.py", OSLO),
        ("with_agents.py", ["other", 'The tool says: {"assistant": "other"}']),
    ],
)
def test_agents_with_an_output_type(python: Run, script: str, by_call: Any) -> None:
    found = python(script)
    for way in ("chat", "responses"):
        assert found[way] == {"plain": OSLO, "with_tool": OSLO, "ran": ["Oslo"], "by_call": by_call}


def test_litellm(python: Run) -> None:
    assert python("with_litellm.py") == {
        "whole": HELLO,
        "streamed": HELLO,
        "schema": OSLO,
        "call": {"city": "Oslo"},
        "response": HELLO,
    }


def test_llm(python: Run) -> None:
    assert python("with_llm.py") == {
        "whole": HELLO,
        "streamed": HELLO,
        "schema": OSLO,
        "told": "The tool says: rain in Oslo",
        "first": HELLO,
        "second": "You said: hello / again",
    }


def test_the_ai_sdk(node: Run) -> None:
    found = node("with_ai_sdk.mjs")
    for way in ("chat", "responses"):
        assert found[way] == {
            "whole": HELLO,
            "streamed": HELLO,
            "object": OSLO,
            "told": "The tool says: rain",
            "ran": ["Oslo"],
            "byCall": OSLO,
        }
