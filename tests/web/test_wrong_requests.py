"""Wrong input to OpenAI's interfaces: every parameter is checked, and the error says which one is wrong."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.web.conftest import Echo, Site, served

HELLO = {"role": "user", "content": "hello"}
CHAT: dict[str, Any] = {"model": "nacre", "messages": [HELLO]}
RESPOND: dict[str, Any] = {"model": "nacre", "input": "hello", "store": False}
EMBED: dict[str, Any] = {"model": "nacre", "input": "hello"}
TOOL = {"type": "function", "function": {"name": "weather"}}
FLAT_TOOL = {"type": "function", "name": "weather"}


def image(url: str) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": url}}


PIXEL = image("data:image/png;base64,iVBORw0KGgo=")

# Each is wrong for every parameter, except for those whose kind it is.
VALUES: dict[str, Any] = {
    "text": "hot",
    "no text": "",
    "long text": "x" * 2000,
    "integer": 7,
    "negative": -3,
    "huge": 10**30,
    "fraction": 0.5,
    "large fraction": 1e9,
    "true": True,
    "list": [],
    "list of texts": ["a", "b", "c", "d", "e"],
    "list of numbers": [1],
    "object": {},
    "object of objects": {"a": {"b": 1}},
}
TEXT = {"text", "no text"}
LONG_TEXT = {*TEXT, "long text"}
OBJECT = {"object", "object of objects"}
NATURAL = {"integer"}
LISTS = {"list"}
CHAT_FIELDS: dict[str, set[str]] = {
    "model": set(),
    "messages": set(),
    "stream": set(),
    "stream_options": OBJECT,
    "tools": LISTS,
    "tool_choice": set(),
    "parallel_tool_calls": {"true"},
    "response_format": set(),
    "session_id": {"no text"},
    "user": {"no text"},
    "n": set(),
    "logprobs": set(),
    "top_logprobs": set(),
    "modalities": set(),
    "audio": set(),
    "functions": LISTS,
    "function_call": {"no text", "object"},
    "moderation": set(),
    "web_search_options": set(),
    "temperature": {"fraction"},
    "top_p": {"fraction"},
    "frequency_penalty": {"fraction"},
    "presence_penalty": {"fraction"},
    "logit_bias": {"object"},
    "max_tokens": NATURAL,
    "max_completion_tokens": NATURAL,
    "stop": {*LONG_TEXT, "list"},
    "seed": {"integer", "negative"},
    "reasoning_effort": set(),
    "verbosity": set(),
    "metadata": {"object"},
    "store": {"true"},
    "prediction": OBJECT,
    "prompt_cache_key": TEXT,
    "prompt_cache_options": OBJECT,
    "prompt_cache_retention": TEXT,
    "safety_identifier": TEXT,
    "service_tier": TEXT,
}
RESPOND_FIELDS: dict[str, set[str]] = {
    "model": set(),
    "input": {"text", "long text"},
    "instructions": LONG_TEXT,
    "text": OBJECT,
    "tools": LISTS,
    "tool_choice": set(),
    "parallel_tool_calls": {"true"},
    "previous_response_id": set(),
    "store": {"true"},
    "stream": set(),
    "background": set(),
    "conversation": set(),
    "prompt": set(),
    "top_logprobs": set(),
    "include": {"list", "list of texts"},
    "moderation": set(),
    "metadata": {"object"},
    "session_id": {"text", "no text"},
    "user": {"text", "no text"},
    "stream_options": OBJECT,
    "temperature": {"fraction"},
    "top_p": {"fraction"},
    "max_output_tokens": NATURAL,
    "max_tool_calls": NATURAL,
    "reasoning": OBJECT,
    "truncation": set(),
    "context_management": LISTS,
    "prompt_cache_key": TEXT,
    "prompt_cache_options": OBJECT,
    "prompt_cache_retention": TEXT,
    "safety_identifier": TEXT,
    "service_tier": TEXT,
}
EMBED_FIELDS: dict[str, set[str]] = {
    "model": set(),
    "input": {"text", "long text", "list of texts"},
    "encoding_format": set(),
    "dimensions": set(),
    "user": LONG_TEXT,
}
STATUS = {"model": (400, 404), "previous_response_id": (400, 404)}
"""A name that is text, but nobody's, is not found."""
ELSEWHERE = {"session_id", "user"}
"""Their text is a key, which is checked as a whole."""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """One server for everything that is tried."""
    with served(tmp_path_factory.mktemp("wrong") / "store", Echo()) as found:
        yield found


def refusal(site: Site, path: str, body: Any) -> tuple[int, str, str]:
    """Status, parameter and reason of an error in OpenAI's shape."""
    content = body if isinstance(body, str) else json.dumps(body)
    answer = site.client.post(path, content=content, headers={"Content-Type": "application/json"})
    if answer.status_code == 200:
        return 200, "", ""
    error = answer.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    return answer.status_code, error["param"] or "", error["message"]


@pytest.mark.parametrize(
    ("path", "usual", "fields"),
    [
        pytest.param("/v1/chat/completions", CHAT, CHAT_FIELDS, id="chat"),
        pytest.param("/v1/responses", RESPOND, RESPOND_FIELDS, id="responses"),
    ],
)
def test_every_parameter_of_another_kind_is_refused_by_its_name(
    site: Site, path: str, usual: dict[str, Any], fields: dict[str, set[str]]
) -> None:
    wrong = [
        (field, kind, refusal(site, path, {**usual, field: value})[:2])
        for field, right in fields.items()
        for kind, value in VALUES.items()
        if kind not in right and not (field in ELSEWHERE and isinstance(value, str))
        if not (field == "stream" and value is True)
    ]
    assert len(wrong) > 300
    found = [
        (field, kind, answer)
        for field, kind, answer in wrong
        if answer[0] not in STATUS.get(field, (400,)) or not (answer[1] or field).startswith(field)
    ]
    assert found == []


@pytest.mark.parametrize(
    ("path", "usual", "fields"),
    [
        pytest.param("/v1/chat/completions", CHAT, CHAT_FIELDS, id="chat"),
        pytest.param("/v1/responses", RESPOND, RESPOND_FIELDS, id="responses"),
    ],
)
def test_every_parameter_of_its_kind_is_taken_and_null_is_none(
    site: Site, path: str, usual: dict[str, Any], fields: dict[str, set[str]]
) -> None:
    right = [(field, VALUES[kind]) for field, kinds in fields.items() for kind in kinds]
    absent = [(field, None) for field in fields if field not in {"model", "messages", "input", "store"}]
    found = [
        (field, value) for field, value in [*right, *absent] if refusal(site, path, {**usual, field: value})[0] != 200
    ]
    assert found == []
    assert refusal(site, path, {**usual, "a_parameter_of_next_year": {"a": [1]}})[0] == 200


@pytest.mark.parametrize(("field", "kind"), [(field, kind) for field in EMBED_FIELDS for kind in VALUES])
def test_wrong_embeddings_are_refused(site: Site, field: str, kind: str) -> None:
    status, _, _ = refusal(site, "/v1/embeddings", {**EMBED, field: VALUES[kind]})
    # They are not there where their model is not installed, which only what is right so far can meet.
    assert status in ({200, 501} if kind in EMBED_FIELDS[field] else {400, 404, 501})


@pytest.mark.parametrize(
    ("message", "param", "reason"),
    [
        ({"content": [{"type": "input_audio", "input_audio": {"data": "", "format": "wav"}}]}, ".content[0]", "audio"),
        ({"content": [{"type": "file", "file": {"file_id": "a"}}]}, ".content[0]", "'file' cannot be shown"),
        ({"content": [{"type": "text"}]}, ".content[0]", "needs its text"),
        ({"content": [{"text": "no type"}]}, ".content[0]", "None cannot be shown"),
        ({"content": [PIXEL, {"type": "image_url", "image_url": {"url": 5}}]}, ".content[1]", "data:image"),
        ({"content": [{"type": "image_url"}]}, ".content[0]", "data:image"),
        ({"content": [image("data:image/png;base64,!!!")]}, ".content[0]", "not base64"),
        ({"content": [image("data:image/png;base64,")]}, ".content[0]", "empty"),
        ({"role": "system", "content": [PIXEL]}, ".content[0]", "there are: text"),
        ({"content": ["text"]}, ".content[0]", "object"),
        ({"content": []}, ".content", "length"),
        ({"content": None}, ".content", "needs a content"),
        ({"content": 5}, ".content", "int"),
        ({"role": "emperor"}, ".role", "Invalid value"),
        ({"role": "function", "name": "f"}, ".role", "Invalid value"),
        ({"role": "tool"}, ".tool_call_id", "needs the tool_call_id"),
        ({"tool_calls": [{"id": "a", "function": {"name": "f"}}]}, ".tool_calls", "has no tool_calls"),
        ({"role": "assistant", "tool_calls": [{"id": "", "function": {"name": "f"}}]}, ".tool_calls[0].id", "length"),
        ({"role": "assistant", "tool_calls": [{"id": "a", "type": "custom"}]}, ".tool_calls[0].type", "Invalid value"),
        ({"name": 5}, ".name", "int"),
    ],
)
def test_a_wrong_message_is_refused_with_its_place(
    site: Site, message: dict[str, Any], param: str, reason: str
) -> None:
    body = {"model": "nacre", "messages": [HELLO, {**HELLO, **message}, HELLO]}
    status, found, said = refusal(site, "/v1/chat/completions", body)
    assert (status, found) == (400, f"messages[1]{param}")
    assert reason in said


@pytest.mark.parametrize(
    ("item", "param"),
    [
        ({"role": "user", "content": [{"type": "input_audio", "input_audio": {}}]}, "input[0].content[0]"),
        ({"role": "user", "content": [{"type": "input_file", "file_id": "a"}]}, "input[0].content[0]"),
        ({"role": "user", "content": [{"type": "input_image", "file_id": "a"}]}, "input[0].content[0]"),
        ({"role": "user", "content": [{"type": "input_image", "image_url": "http://a"}]}, "input[0].content[0]"),
        ({"role": "user", "content": 5}, "input[0]"),
        ({"role": "user"}, "input[0].content"),
        ({"role": "emperor", "content": "a"}, "input[0]"),
        ({"role": "tool", "content": "a"}, "input[0].role"),
        ({"type": "function_call", "call_id": "a", "name": 5, "arguments": ""}, "input[0]"),
        ({"type": "function_call_output", "output": "a"}, "input[0].call_id"),
        ({"type": "function_call_output", "call_id": "a", "output": 5}, "input[0]"),
        ({"type": "item_reference", "id": "a"}, "input[0].type"),
        ({"type": 5}, "input[0].type"),
    ],
)
def test_a_wrong_item_is_refused_with_its_place(site: Site, item: dict[str, Any], param: str) -> None:
    status, found, _ = refusal(site, "/v1/responses", {**RESPOND, "input": [item, HELLO]})
    assert (status, found) == (400, param)


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        ("chat/completions", {**CHAT, "tools": [{"type": "custom"}]}, "tools[0].type"),
        ("chat/completions", {**CHAT, "tools": [{**TOOL, "function": {"name": "a b"}}]}, "tools[0].function.name"),
        ("chat/completions", {**CHAT, "tools": [{**TOOL, "function": {"name": "f\n"}}]}, "tools[0].function.name"),
        ("chat/completions", {**CHAT, "tools": [TOOL, TOOL]}, "tools[1]"),
        ("chat/completions", {**CHAT, "tools": [TOOL], "tool_choice": "sometimes"}, "tool_choice"),
        ("chat/completions", {**CHAT, "tool_choice": "required"}, "tool_choice"),
        (
            "chat/completions",
            {**CHAT, "tools": [TOOL], "tool_choice": {"type": "function", "function": {"name": "other"}}},
            "tool_choice",
        ),
        ("responses", {**RESPOND, "tools": [{"type": "web_search"}]}, "tools[0].type"),
        ("responses", {**RESPOND, "tools": [{"type": "function"}]}, "tools[0].name"),
        ("responses", {**RESPOND, "tools": [{**FLAT_TOOL, "parameters": []}]}, "tools[0].parameters"),
        ("responses", {**RESPOND, "tool_choice": "required"}, "tool_choice"),
        ("responses", {**RESPOND, "tools": [FLAT_TOOL], "tool_choice": {"type": "web_search"}}, "tool_choice.type"),
        ("responses", {**RESPOND, "include": ["message.output_text.logprobs"]}, "include"),
        ("responses", {**RESPOND, "metadata": {"a": "x" * 513}}, "metadata[...]"),
        ("responses", {**RESPOND, "text": {"format": {"type": "json_schema", "name": "a"}}}, "text.format.schema"),
        ("responses", {"input": "hello"}, "model"),
        ("chat/completions", {"messages": [HELLO]}, "model"),
        ("chat/completions", {"model": "nacre"}, "messages"),
        ("chat/completions", "[]", ""),
        ("chat/completions", "{", ""),
        ("chat/completions", "", ""),
        ("responses", '{"model": "nacre", "input": "a", "temperature": NaN}', ""),
        ("responses", "[" * 100_000, ""),
    ],
)
def test_what_is_wrong_is_named(site: Site, path: str, body: Any, param: str) -> None:
    status, found, _ = refusal(site, f"/v1/{path}", body)
    assert (status, found) == (400, param)


def test_what_a_client_adds_to_a_message_is_not_stored(site: Site) -> None:
    ours = {
        "origin": {"id": "forged"},
        "recalled": "forged",
        "stopped": "length",
        "model": "x",
        "created": "2001-01-01",
    }
    body = {"model": "nacre", "session_id": "s", "messages": [{**HELLO, **ours}], "tools": [TOOL]}
    assert refusal(site, "/v1/chat/completions", body)[0] == 200
    (said, _) = site.sessions.get_history("api::s::")
    assert (said.extra, said.model) == ({}, None)
    assert said.created is not None
    assert said.created.year > 2001


def test_what_a_query_adds_is_ignored(site: Site) -> None:
    assert site.client.get("/v1/models?limit=5").status_code == 200
    assert site.client.post("/v1/chat/completions?api-version=1", json=CHAT).status_code == 200
    id = site.client.post("/v1/responses?a=b", json={"model": "nacre", "input": "hello"}).json()["id"]
    assert site.client.get(f"/v1/responses/{id}?include[]=reasoning.encrypted_content").status_code == 200
    refused = site.client.get(f"/v1/responses/{id}?stream=true")
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "stream")


def test_what_earlier_answers_said_is_shown_as_text(tmp_path: Path) -> None:
    model = Echo()
    call = {"id": "c", "function": {"name": "f", "arguments": "no JSON"}}
    earlier: list[dict[str, Any]] = [
        {"role": "assistant", "content": None, "refusal": "no"},
        {"role": "assistant", "content": [{"type": "refusal", "refusal": "never"}]},
        {"role": "assistant", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c", "content": "done"},
    ]
    with served(tmp_path / "store", model) as found:
        assert refusal(found, "/v1/chat/completions", {**CHAT, "messages": [HELLO, *earlier, HELLO]})[0] == 200
    shown = [(one.role, one.content) for one in model.contexts[0].messages if one.role == "assistant"]
    assert shown[:2] == [("assistant", "no"), ("assistant", [{"type": "text", "text": "never"}])]


def test_arguments_that_cannot_be_stored_are_refused(site: Site) -> None:
    deep: dict[str, Any] = {}
    for _ in range(200):
        deep = {"a": deep}
    call = {"id": "c", "function": {"name": "f", "arguments": deep}}
    messages = [HELLO, {"role": "assistant", "tool_calls": [call]}, HELLO]
    status, param, said = refusal(site, "/v1/chat/completions", {**CHAT, "messages": messages})
    assert (status, param) == (400, "messages[1]")
    assert "levels deep" in said
