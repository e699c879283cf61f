"""The harness itself: the model answers on both wires, refuses what is too long, and streams in pieces."""

from __future__ import annotations

from tests.everyday.conftest import Person
from tests.everyday.model import Model


def test_a_question_is_answered_by_the_model(person: Person, model: Model) -> None:
    document = person.ask("hello there")
    assert document["answer"] == "You said: hello there"
    assert document["model"] == "ollama/gemma4:e4b"
    assert any(request.said.endswith("hello there") for request in model.chats)


def test_the_same_model_answers_as_an_openai_server(person: Person, model: Model) -> None:
    person.config(f'[agent]\nprovider = "openai"\nmodel = "gemma4:e4b"\n[openai]\nbase_url = "{model.host}/v1"\n')
    assert person.ask("hello", OPENAI_API_KEY="a-key")["answer"] == "You said: hello"
