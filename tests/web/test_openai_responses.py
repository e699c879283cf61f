"""Responses: the official client talks to the agent, and each response is an answer of a session."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from typing import Any

import anyio
import openai
import pytest
from pydantic import BaseModel

from nacre.errors import ProviderError, RateLimited
from nacre.providers.scripted import Call, Pause, Scripted, Stops, Thinks
from nacre.web.api.openai_responses import Name
from tests.web.conftest import Serve, Site
from tests.web.test_openai_completions import Note, client

WEATHER: Any = {
    "type": "function",
    "name": "weather",
    "description": "The weather.",
    "parameters": {"type": "object", "properties": {}},
    "strict": True,
}
PIXEL = "data:image/png;base64,iVBORw0KGgo="


@pytest.fixture
def ask(echo: Site) -> Iterator[openai.OpenAI]:
    with client(echo) as made:
        yield made


def key_of(id: str) -> str:
    """The session of a response, as its id has it."""
    session = json.loads(base64.urlsafe_b64decode(f"{id[5:-16]}==="))[0]
    return f"api::{session}::"


# ---- one answer


def test_the_official_client_gets_a_response_with_its_cost(ask: openai.OpenAI) -> None:
    answer = ask.responses.create(model="nacre", input="hello", metadata={"a": "b"})
    assert (answer.output_text, answer.status, answer.model) == ("echo: hello", "completed", "echo")
    assert (answer.metadata, answer.error, answer.incomplete_details) == ({"a": "b"}, None, None)
    assert answer.usage is not None
    assert (answer.usage.input_tokens, answer.usage.output_tokens, answer.usage.total_tokens) == (3, 2, 5)


def test_a_response_is_an_answer_of_a_session_and_can_be_read_again(echo: Site, ask: openai.OpenAI) -> None:
    answer = ask.responses.create(model="nacre", input="hello", instructions="Be brief.", metadata={"a": "b"})
    assert echo.said(key_of(answer.id)) == [("user", "hello"), ("assistant", "echo: hello")]
    again = ask.responses.retrieve(answer.id)
    assert again.to_dict() == {**answer.to_dict(), "created_at": again.created_at}


def test_a_response_that_follows_another_goes_on_in_its_session(server: Serve) -> None:
    model = Scripted(["one", "two"])
    site = server(provider=model)
    with client(site) as ask:
        first = ask.responses.create(model="nacre", input="a")
        second = ask.responses.create(model="nacre", input="b", previous_response_id=first.id)
    assert second.previous_response_id == first.id
    assert key_of(first.id) == key_of(second.id)
    assert [one.content for one in model.contexts[1].messages] == ["a", "one", "b"]
    assert len(list(site.sessions.list())) == 1


def test_a_response_that_follows_an_older_one_is_a_branch(server: Serve) -> None:
    model = Scripted(["one", "two", "three"])
    site = server(provider=model)
    with client(site) as ask:
        first = ask.responses.create(model="nacre", input="a")
        ask.responses.create(model="nacre", input="b", previous_response_id=first.id)
        other = ask.responses.create(model="nacre", input="c", previous_response_id=first.id)
        assert ask.responses.retrieve(other.id).output_text == "three"
    assert [one.content for one in model.contexts[2].messages] == ["a", "one", "c"]
    assert site.said(key_of(first.id))[-1] == ("assistant", "two")
    assert site.said(key_of(other.id)) == [("user", "a"), ("assistant", "one"), ("user", "c"), ("assistant", "three")]


def test_instructions_hold_for_one_response_and_are_in_the_log(server: Serve) -> None:
    model = Scripted(["Hallo", "Hi"])
    site = server(provider=model)
    with client(site) as ask:
        first = ask.responses.create(model="nacre", input="a", instructions="Speak Dutch.")
        ask.responses.create(model="nacre", input="b", previous_response_id=first.id)
    assert [context.system for context in model.contexts] == ["Be brief.\n\nSpeak Dutch.", "Be brief."]
    assert site.sessions.get_history(key_of(first.id))[0].extra["terms"] == {"instructions": "Speak Dutch."}


def test_a_whole_history_as_input_is_in_the_session_and_shown(server: Serve) -> None:
    model = Scripted(["fine"])
    site = server(provider=model)
    history: Any = [
        {"role": "developer", "content": "Speak Dutch."},
        {"role": "user", "content": "a"},
        {"type": "reasoning", "id": "rs_1", "summary": []},
        {
            "type": "message",
            "role": "assistant",
            "id": "msg_1",
            "status": "completed",
            "content": [{"type": "output_text", "text": "b", "annotations": []}],
        },
        {"role": "user", "content": [{"type": "input_text", "text": "c"}]},
    ]
    with client(site) as ask:
        answer = ask.responses.create(model="nacre", input=history)
    assert [one.content for one in model.contexts[0].messages] == ["a", "b", "c"]
    assert model.contexts[0].system == "Be brief.\n\nSpeak Dutch."
    assert [text for _, text in site.said(key_of(answer.id))] == ["a", "b", "c", "fine"]


def test_without_store_nothing_is_kept_and_nothing_can_be_read(server: Serve) -> None:
    model = Scripted(["one", "two", "three"])
    site = server(provider=model)
    with client(site) as ask:
        kept = ask.responses.create(model="nacre", input="a")
        other = ask.responses.create(model="nacre", input="b", previous_response_id=kept.id, store=False)
        alone = ask.responses.create(model="nacre", input="c", store=False, instructions="Hm.")
        for lost in (other, alone):
            assert lost.store is False  # type: ignore[attr-defined]
            with pytest.raises(openai.NotFoundError):
                ask.responses.retrieve(lost.id)
    assert [one.content for one in model.contexts[1].messages] == ["a", "one", "b"]
    assert model.contexts[2].system == "Be brief.\n\nHm."
    assert [info.key for info in site.sessions.list()] == [key_of(kept.id)]
    assert len(site.said(key_of(kept.id))) == 2


def test_a_session_that_is_named_is_used(echo: Site, ask: openai.OpenAI) -> None:
    answer = ask.responses.create(model="nacre", input="hello", extra_body={"session_id": "desk"})
    assert echo.said("api::desk::") == [("user", "hello"), ("assistant", "echo: hello")]
    assert ask.responses.retrieve(answer.id).output_text == "echo: hello"


def test_a_response_of_an_archived_session_can_be_read(echo: Site, ask: openai.OpenAI) -> None:
    answer = ask.responses.create(model="nacre", input="hello")
    echo.sessions.archive(key_of(answer.id))
    assert ask.responses.retrieve(answer.id).output_text == "echo: hello"


def test_an_old_response_of_a_long_session_can_be_read(echo: Site, ask: openai.OpenAI) -> None:
    answer = ask.responses.create(model="nacre", input="hello")
    for number in range(5):
        ask.chat.completions.create(
            model="nacre",
            messages=[{"role": "user", "content": f"more {number}"}],
            extra_body={"session_id": key_of(answer.id).split(":")[2]},
        )
    assert len(echo.said(key_of(answer.id))) == 12
    assert ask.responses.retrieve(answer.id).output_text == "echo: hello"


def test_a_deleted_response_is_gone_with_its_session(echo: Site, ask: openai.OpenAI) -> None:
    answer = ask.responses.create(model="nacre", input="hello")
    ask.responses.delete(answer.id)
    assert not echo.sessions.exists(key_of(answer.id))
    with pytest.raises(openai.NotFoundError):
        ask.responses.delete(answer.id)
    with pytest.raises(openai.NotFoundError):
        ask.responses.create(model="nacre", input="more", previous_response_id=answer.id)


def test_an_image_in_the_request_reaches_the_model(server: Serve) -> None:
    model = Scripted(["a dot"])
    parts: Any = [
        {"type": "input_text", "text": "What?"},
        {"type": "input_image", "image_url": PIXEL, "detail": "auto"},
    ]
    with client(server(provider=model)) as ask:
        ask.responses.create(model="nacre", input=[{"role": "user", "content": parts}])
    assert model.contexts[0].messages[-1].content == [
        {"type": "text", "text": "What?"},
        {"type": "image_url", "image_url": {"url": PIXEL}},
    ]


# ---- forms and tools


class City(BaseModel):
    """What is asked for."""

    city: str


@pytest.mark.parametrize("store", [True, False])
def test_the_official_client_parses_a_response(server: Serve, store: bool) -> None:
    with client(server("Oslo.", '{"city": "Oslo"}')) as ask:
        answer = ask.responses.parse(model="nacre", input="Where?", text_format=City, store=store)
        assert answer.output_parsed == City(city="Oslo")
        if store:
            again: Any = ask.responses.retrieve(answer.id)
            assert (again.text.format.type, again.text.format.name) == ("json_schema", "City")


def test_any_object_will_do_where_an_object_is_asked_for(server: Serve) -> None:
    with client(server("no", "{}")) as ask:
        answer = ask.responses.create(model="nacre", input="json", text={"format": {"type": "json_object"}})
    assert answer.output_text == "{}"


@pytest.mark.parametrize("store", [True, False])
def test_the_clients_tools_are_the_clients_to_run(server: Serve, store: bool) -> None:
    model = Scripted([["Let me see. ", Call("weather", {"city": "Oslo"})], "Rain."])
    with client(server(provider=model)) as ask:
        first: Any = ask.responses.create(model="nacre", input="Oslo?", tools=[WEATHER], store=store)
        called = first.output[-1]
        assert (called.type, called.name, called.arguments) == ("function_call", "weather", '{"city":"Oslo"}')
        result = {"type": "function_call_output", "call_id": called.call_id, "output": "rain"}
        if store:
            said: Any = {"input": [result], "previous_response_id": first.id}
            assert ask.responses.retrieve(first.id).output == first.output
        else:
            said = {"input": [{"role": "user", "content": "Oslo?"}, *first.to_dict()["output"], result]}
        second = ask.responses.create(model="nacre", tools=[WEATHER], store=store, **said)
    assert second.output_text == "Rain."
    assert [spec.name for spec in model.contexts[1].tools] == ["weather"]
    assert [(one.role, one.content) for one in model.contexts[1].messages] == [
        ("user", "Oslo?"),
        ("assistant", "Let me see."),
        ("tool", "rain"),
    ]


def test_the_agent_runs_its_own_tools_and_the_client_sees_the_answer(server: Serve) -> None:
    with client(server(["looking", Call("note")], "done", tools={"note": Note()})) as ask:
        answer = ask.responses.create(model="nacre", input="hello")
        assert [one.type for one in answer.output] == ["message"]
        assert ask.responses.retrieve(answer.id).output_text == answer.output_text == "done"


# ---- streams


def test_the_official_client_streams_a_response(server: Serve) -> None:
    site = server([Thinks("hm, "), Thinks("yes"), "one ", "two"])
    with client(site) as ask, ask.responses.stream(model="nacre", input="hello") as stream:
        events = list(stream)
        final = stream.get_final_response()
    assert [one.type for one in events] == [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.content_part.added",
        "response.reasoning_text.delta",
        "response.reasoning_text.delta",
        "response.reasoning_text.done",
        "response.content_part.done",
        "response.output_item.done",
        "response.output_item.added",
        "response.content_part.added",
        "response.output_text.delta",
        "response.output_text.delta",
        "response.output_text.done",
        "response.content_part.done",
        "response.output_item.done",
        "response.completed",
    ]
    assert [one.sequence_number for one in events] == list(range(17))
    assert (final.output_text, final.output[0].type, final.status) == ("one two", "reasoning", "completed")


def test_a_streamed_response_is_stored_as_it_was_streamed(server: Serve) -> None:
    with client(server([Thinks("hm"), "one"])) as ask:
        events: Any = list(ask.responses.create(model="nacre", input="hello", stream=True))
        final = events[-1].response
        assert ask.responses.retrieve(final.id).output == final.output


def test_a_stream_has_calls_with_their_arguments(server: Serve) -> None:
    site = server(Call("weather", {"city": "Oslo"}))
    with client(site) as ask, ask.responses.stream(model="nacre", input="hello", tools=[WEATHER]) as stream:
        kinds = [one.type for one in stream]
        final: Any = stream.get_final_response()
    assert "response.function_call_arguments.done" in kinds
    assert (final.output[0].name, final.output[0].arguments) == ("weather", '{"city":"Oslo"}')


def test_words_before_a_tool_of_the_agents_are_an_item_of_their_own(server: Serve) -> None:
    site = server(["looking", Call("note")], "done", tools={"note": Note()})
    with client(site) as ask, ask.responses.stream(model="nacre", input="hello") as stream:
        final: Any = stream.get_final_response()
    assert [one.content[0].text for one in final.output] == ["looking", "done"]


def test_a_stream_in_a_form_has_nothing_but_the_checked_answer(server: Serve) -> None:
    site = server("Oslo", '{"city": "Oslo"}')
    with client(site) as ask, ask.responses.stream(model="nacre", input="Where?", text_format=City) as stream:
        deltas = [one.delta for one in stream if one.type == "response.output_text.delta"]
        final = stream.get_final_response()
    assert deltas == ['{"city": "Oslo"}']
    assert final.output_parsed == City(city="Oslo")


@pytest.mark.parametrize(
    ("error", "code"), [(ProviderError("away"), "server_error"), (RateLimited("later"), "rate_limit_exceeded")]
)
def test_what_goes_wrong_in_mid_stream_is_a_failed_response(server: Serve, error: Exception, code: str) -> None:
    go_on = anyio.Event()
    site = server(["one ", Pause(go_on), error])
    with client(site) as ask:
        stream = ask.responses.create(model="nacre", input="hello", stream=True)
        next(stream)
        site.call(go_on.set)
        events: Any = list(stream)
    assert (events[-1].type, events[-1].response.error.code) == ("response.failed", code)


def test_what_goes_wrong_at_once_has_its_status(server: Serve) -> None:
    with client(server(RateLimited("later", wait=3))) as ask, pytest.raises(openai.RateLimitError) as caught:
        ask.responses.create(model="nacre", input="hello", stream=True)
    assert caught.value.response.headers["retry-after"] == "3"


@pytest.mark.parametrize("tools", [[], [WEATHER]], ids=["the agent", "the client's tools"])
@pytest.mark.parametrize("stream", [False, True])
def test_an_answer_that_was_cut_off_is_incomplete(server: Serve, stream: bool, tools: list[Any]) -> None:
    with client(server(["one", Stops()])) as ask:
        for _ in range(2):
            answer: Any = ask.responses.create(
                model="nacre", input="hello", stream=stream, tools=tools, extra_headers={"Idempotency-Key": "1"}
            )
            answer = list(answer)[-1].response if stream else answer
            assert (answer.status, answer.incomplete_details.reason) == ("incomplete", "max_output_tokens")
            assert answer.output[0].status == "incomplete"
            assert ask.responses.retrieve(answer.id).status == "incomplete"


@pytest.mark.parametrize(
    ("choice", "offered"),
    [
        ("required", ["weather", "other"]),
        ({"type": "function", "name": "other"}, ["other"]),
        ({"type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": "other"}]}, ["other"]),
    ],
)
def test_a_call_that_is_required_is_asked_for_until_it_comes(server: Serve, choice: Any, offered: list[str]) -> None:
    model = Scripted(["No.", [Call("other"), Call("other")]])
    with client(server(provider=model)) as ask:
        tools: Any = [WEATHER, {**WEATHER, "name": "other"}]
        answer = ask.responses.create(
            model="nacre", input="hello", tools=tools, tool_choice=choice, parallel_tool_calls=False
        )
    assert [item.type for item in answer.output] == ["function_call"]
    assert [[spec.name for spec in context.tools] for context in model.contexts] == [offered] * 2


# ---- repeats


def test_an_idempotency_key_makes_a_response_count_once(server: Serve) -> None:
    site = server("one", "two", "three")
    headers = {"Idempotency-Key": "k"}
    with client(site) as ask:
        first = ask.responses.create(model="nacre", input="a", extra_headers=headers)
        again = ask.responses.create(model="nacre", input="a", extra_headers=headers)
        assert (again.id, again.output_text) == (first.id, "one")
        said: Any = {"model": "nacre", "input": "b", "previous_response_id": first.id}
        second = ask.responses.create(**said, extra_headers={"Idempotency-Key": "l"})
        again = ask.responses.create(**said, extra_headers={"Idempotency-Key": "l"})
        assert (again.id, again.output_text) == (second.id, "two")
        branch = ask.responses.create(**{**said, "input": "c"}, extra_headers={"Idempotency-Key": "m"})
        again = ask.responses.create(**{**said, "input": "c"}, extra_headers={"Idempotency-Key": "m"})
        assert (again.id, again.output_text) == (branch.id, "three")
    assert len(list(site.sessions.list())) == 2


def test_the_clients_own_retry_gets_the_answer_that_is_there(server: Serve) -> None:
    site = server("one", "two")
    with client(site) as ask:
        first = ask.responses.create(model="nacre", input="a")
        said: Any = {"model": "nacre", "input": "b", "previous_response_id": first.id}
        second = ask.responses.create(**said)
        again = ask.responses.create(**said, extra_headers={"X-Stainless-Retry-Count": "1"})
    assert (again.id, again.output_text) == (second.id, "two")


def test_a_response_without_an_answer_is_in_progress_and_cannot_be_followed(server: Serve) -> None:
    site = server(ProviderError("away"))
    headers = {"Idempotency-Key": "k"}
    with client(site) as ask:
        with pytest.raises(openai.InternalServerError):
            ask.responses.create(model="nacre", input="a", extra_headers=headers)
        (info,) = site.sessions.list()
        words = site.sessions.get_history(info.key)[0]
        id = Name(info.key.split(":")[2], "", words.extra["origin"]["id"]).id
        assert ask.responses.retrieve(id).status == "in_progress"
        with pytest.raises(openai.ConflictError, match="is not complete"):
            ask.responses.create(model="nacre", input="b", previous_response_id=id)


# ---- what is refused


@pytest.mark.parametrize(
    "fields",
    [
        {"input": []},
        {"input": ""},
        {"input": [{"role": "assistant", "content": "a"}]},
        {"input": [{"role": "system", "content": "a"}]},
        {"input": [{"role": "wizard", "content": "a"}]},
        {"input": [{"type": "item_reference", "id": "msg_1"}]},
        {"input": [{"role": "user", "content": [{"type": "input_file", "file_id": "f"}]}]},
        {"input": [{"role": "user", "content": ["a"]}]},
        {"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "https://example.org/a.png"}]}]},
        {"input": [{"type": "function_call_output", "call_id": "none", "output": "x"}]},
        {"input": "a", "tools": [{"type": "web_search"}]},
        {"input": "a", "tools": [{"type": "function"}]},
        {"input": "a", "background": True},
        {"input": "a", "conversation": "conv_1"},
        {"input": "a", "prompt": {"id": "pmpt_1"}},
        {"input": "a", "top_logprobs": 3},
        {"input": "a", "session_id": "s", "previous_response_id": "resp_x"},
        {"input": "a", "text": {"format": {"type": "json_schema", "name": "x", "schema": {"type": "strin"}}}},
        {"input": "a", "text": {"format": {"type": "json_schema", "name": "not a name", "schema": {}}}},
    ],
    ids=lambda fields: str(fields)[:60],
)
def test_what_would_be_answered_otherwise_is_refused(echo: Site, fields: dict[str, Any]) -> None:
    answer = echo.client.post("/v1/responses", json={"model": "nacre", **fields})
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "usage")
    assert list(echo.sessions.list()) == []


NOWHERE = [
    "resp_x",
    "x",
    "resp_" + "A" * 40,
    "resp_Wyj_IiwgIiJd" + "0" * 16,
    Name("s", "", "0" * 16).id,
    Name("t", "", "0" * 16).id,
]


@pytest.mark.parametrize("id", NOWHERE)
def test_an_id_that_leads_nowhere_is_not_found(echo: Site, ask: openai.OpenAI, id: str) -> None:
    echo.sessions.add_message("api::t::", "user", "a message that no response answers")
    for act in (ask.responses.retrieve, ask.responses.delete):
        with pytest.raises(openai.NotFoundError):
            act(id)
    with pytest.raises(openai.NotFoundError):
        ask.responses.create(model="nacre", input="a", previous_response_id=id)
    assert echo.sessions.exists("api::t::")


def test_a_response_of_one_user_is_not_continued_by_another(ask: openai.OpenAI) -> None:
    first = ask.responses.create(model="nacre", input="a", user="ann")
    ask.responses.create(model="nacre", input="b", user="ann", previous_response_id=first.id)
    with pytest.raises(openai.NotFoundError):
        ask.responses.create(model="nacre", input="b", user="bob", previous_response_id=first.id)


def test_a_response_is_continued_whatever_its_session_and_user_are_named(ask: openai.OpenAI) -> None:
    first = ask.responses.create(model="nacre", input="a", user="a\nb", extra_body={"session_id": "x\ny"})
    next_one = ask.responses.create(model="nacre", input="b", user="a\nb", previous_response_id=first.id)
    assert ask.responses.retrieve(next_one.id).previous_response_id == first.id


def test_a_model_that_there_is_not_is_named(ask: openai.OpenAI) -> None:
    with pytest.raises(openai.NotFoundError, match="no model 'gpt-9'"):
        ask.responses.create(model="gpt-9", input="a")
