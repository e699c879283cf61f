"""Embeddings: the official client gets vectors, and a clear word where there are none."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import openai
import pytest

from nacre.index import minilm
from tests.packages import only_installed
from tests.web.conftest import Site
from tests.web.test_openai_completions import client

needs_weights = pytest.mark.skipif(not minilm.is_installed(), reason="the weights of MiniLM are not installed")


@pytest.fixture
def ask(echo: Site) -> Iterator[openai.OpenAI]:
    with client(echo) as made:
        yield made


@needs_weights
def test_the_official_client_gets_a_vector_for_each_text_in_either_encoding(ask: openai.OpenAI) -> None:
    texts = ["The cat sleeps.", "A kitten is napping.", "Interest rates rise."]
    found = ask.embeddings.create(model="all-MiniLM-L6-v2", input=texts)
    vectors = [one.embedding for one in found.data]
    assert [len(one) for one in vectors] == [384, 384, 384]
    assert [one.index for one in found.data] == [0, 1, 2]
    assert found.usage.prompt_tokens == found.usage.total_tokens > 10
    near, far = (sum(a * b for a, b in zip(vectors[0], other, strict=True)) for other in vectors[1:])
    assert near > far + 0.2
    plain = ask.embeddings.create(model="nacre", input=texts[0], encoding_format="float").data[0].embedding
    assert plain == pytest.approx(vectors[0], abs=1e-5)


@needs_weights
def test_many_texts_are_the_same_as_one_by_one(ask: openai.OpenAI) -> None:
    texts = [f"text number {at} " * (at % 7 + 1) for at in range(40)]
    found = ask.embeddings.create(model="nacre", input=texts)
    alone = ask.embeddings.create(model="nacre", input=texts[33])
    assert found.data[33].embedding == pytest.approx(alone.data[0].embedding, abs=1e-5)


@needs_weights
@pytest.mark.parametrize(
    ("fields", "code", "word"),
    [
        ({"input": [1, 2, 3]}, "usage", "input must be text"),
        ({"input": [[1, 2], [3]]}, "usage", "input must be text"),
        ({"input": ""}, "usage", "input"),
        ({"input": ["a", ""]}, "usage", "none of them empty"),
        ({"input": [None]}, "usage", "none of them empty"),
        ({"input": []}, "usage", "input"),
        ({"input": "a", "dimensions": 256}, "usage", "dimensions must be left out"),
        ({"input": "a", "encoding_format": "int8"}, "usage", "encoding_format"),
        ({"input": ["short", "word " * 300]}, "context_length_exceeded", "the text at index 1 has 302 tokens"),
    ],
    ids=lambda one: str(one)[:40],
)
def test_what_would_be_answered_otherwise_is_refused(echo: Site, fields: Any, code: str, word: str) -> None:
    answer = echo.client.post("/v1/embeddings", json={"model": "nacre", **fields})
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, code)
    assert word in answer.json()["error"]["message"]


@needs_weights
def test_another_model_is_not_found(ask: openai.OpenAI) -> None:
    with pytest.raises(openai.NotFoundError, match="use 'all-MiniLM-L6-v2'"):
        ask.embeddings.create(model="text-embedding-3-small", input="a")


def test_where_they_are_not_installed_the_command_is_named(echo: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    only_installed(monkeypatch)
    answer = echo.client.post("/v1/embeddings", json={"model": "nacre", "input": "a"})
    assert (answer.status_code, answer.json()["error"]["code"]) == (501, "unsupported")
    assert "nacre setup embeddings" in answer.json()["error"]["message"]
