"""`response_format`: the answer has the form that was asked for, or there is a clear error."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import openai
import pytest
from pydantic import BaseModel

from nacre.errors import RateLimited
from nacre.providers.scripted import Call, Scripted
from nacre.web.gate import Limits
from tests.web.conftest import Serve, Site, events
from tests.web.test_openai_completions import HELLO, WEATHER, Note, client


class City(BaseModel):
    """What is asked for."""

    city: str
    people: int


OSLO = '{"city": "Oslo", "people": 700000}'
SCHEMA: Any = {"type": "json_schema", "json_schema": {"name": "city", "schema": City.model_json_schema()}}
PIXEL = "data:image/png;base64,iVBORw0KGgo="


def test_the_official_client_parses_the_answer(server: Serve) -> None:
    model = Scripted([OSLO])
    with client(server(provider=model)) as ask:
        answer = ask.chat.completions.parse(model="nacre", messages=HELLO, response_format=City)
    assert answer.choices[0].message.parsed == City(city="Oslo", people=700_000)
    form = model.contexts[0].form
    assert form is not None
    assert (form.name, form.strict) == ("City", True)


def test_a_wrong_answer_is_corrected_before_the_client_sees_it(server: Serve) -> None:
    with client(server("Oslo, I think.", OSLO)) as ask:
        answer = ask.chat.completions.parse(model="nacre", messages=HELLO, response_format=City)
    assert answer.choices[0].message.parsed == City(city="Oslo", people=700_000)


def test_answers_that_stay_wrong_are_an_error_that_clients_do_not_retry(server: Serve) -> None:
    site = server(*["Oslo."] * 4)
    with client(site, max_retries=2) as ask, pytest.raises(openai.UnprocessableEntityError) as caught:
        ask.chat.completions.create(model="nacre", messages=HELLO, response_format=SCHEMA)
    assert caught.value.code == "invalid_answer"
    assert "it is not JSON" in caught.value.message


def test_answers_that_stay_wrong_are_an_error_in_a_stream_too(server: Serve) -> None:
    with client(server(*["Oslo."] * 3)) as ask, pytest.raises(openai.APIError, match="none had the form"):
        list(ask.chat.completions.create(model="nacre", messages=HELLO, response_format=SCHEMA, stream=True))


def test_any_object_will_do_where_an_object_is_asked_for(server: Serve) -> None:
    with client(server("[1]", '{"a": 1}')) as ask:
        answer = ask.chat.completions.create(
            model="nacre", messages=HELLO, response_format={"type": "json_object"}, extra_body={"session_id": "s"}
        )
    assert answer.choices[0].message.content == '{"a": 1}'


def test_a_stream_has_nothing_but_the_checked_answer(server: Serve) -> None:
    fenced = ["```json\n", OSLO, "\n```"]
    site = server(["Let me ", "look.", Call("note")], ["Os", "lo"], fenced, tools={"note": Note()})
    with client(site) as ask:
        pieces = list(ask.chat.completions.create(model="nacre", messages=HELLO, response_format=SCHEMA, stream=True))
    assert [one.choices[0].delta.content for one in pieces if one.choices[0].delta.content] == [OSLO]
    assert pieces[-1].choices[0].finish_reason == "stop"


def test_a_session_keeps_the_form_with_the_words_and_only_the_answer_that_has_it(server: Serve) -> None:
    site = server("Oslo.", OSLO, "Hi!")
    with client(site) as ask:
        said: Any = {"model": "nacre", "messages": HELLO, "extra_body": {"session_id": "s"}}
        ask.chat.completions.create(**said, response_format=SCHEMA)
        other = ask.chat.completions.create(**{**said, "messages": [{"role": "user", "content": "and now?"}]})
    assert other.choices[0].message.content == "Hi!"
    assert site.said("api::s::") == [
        ("user", "hello"),
        ("assistant", OSLO),
        ("user", "and now?"),
        ("assistant", "Hi!"),
    ]
    words = site.sessions.get_history("api::s::")[0]
    assert words.extra["terms"]["form"]["name"] == "city"


def test_a_turn_that_is_resumed_keeps_to_its_form(server: Serve) -> None:
    site = server(RateLimited("later"), "Oslo.", OSLO)
    with client(site) as ask:
        said: Any = {"model": "nacre", "messages": HELLO, "extra_body": {"session_id": "s"}, "response_format": SCHEMA}
        with pytest.raises(openai.RateLimitError):
            ask.chat.completions.create(**said)
        answer = ask.chat.completions.create(**said)
    assert answer.choices[0].message.content == OSLO
    assert site.said("api::s::") == [("user", "hello"), ("assistant", OSLO)]


def test_the_same_words_in_another_form_are_not_answered_in_the_first(server: Serve) -> None:
    site = server(*["Oslo."] * 3, '{"a": 1}')
    with client(site) as ask:
        said: Any = {"model": "nacre", "messages": HELLO, "extra_body": {"session_id": "s"}}
        with pytest.raises(openai.UnprocessableEntityError):
            ask.chat.completions.create(**said, response_format=SCHEMA)
        answer = ask.chat.completions.create(**said, response_format={"type": "json_object"})
    assert answer.choices[0].message.content == '{"a": 1}'


@pytest.mark.parametrize("session", [{}, {"session_id": "s"}], ids=["no session", "a session"])
def test_the_clients_tools_and_a_form_go_together(server: Serve, session: dict[str, str]) -> None:
    model = Scripted([Call("weather"), OSLO])
    with client(server(provider=model)) as ask:
        said: Any = {"model": "nacre", "tools": [WEATHER], "response_format": SCHEMA, "extra_body": session}
        first: Any = ask.chat.completions.create(messages=HELLO, **said).choices[0].message
        result: Any = {"role": "tool", "tool_call_id": first.tool_calls[0].id, "content": "rain"}
        second = ask.chat.completions.create(messages=[*HELLO, first, result], **said)
    assert second.choices[0].message.content == OSLO
    assert [context.form is not None for context in model.contexts] == [True, True]


@pytest.mark.parametrize(
    "schema",
    [{"type": "strin"}, {"$ref": "http://127.0.0.1:9/x"}],
    ids=["not a schema", "somewhere else"],
)
def test_a_schema_that_cannot_be_used_is_refused_at_the_door(echo: Site, schema: dict[str, Any]) -> None:
    form = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
    body = {"model": "nacre", "messages": HELLO, "response_format": form, "session_id": "s"}
    answer = echo.client.post("/v1/chat/completions", json=body)
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "usage")
    assert "schema is not valid" in answer.json()["error"]["message"]
    assert not echo.sessions.exists("api::s::")


# ---- images, limits and models


@pytest.mark.parametrize("url", ["https://example.org/a.png", "http://127.0.0.1/a.png", "file:///a.png", "data:,x", ""])
def test_an_image_that_is_somewhere_else_is_refused(echo: Site, url: str) -> None:
    content = [{"type": "text", "text": "What is it?"}, {"type": "image_url", "image_url": {"url": url}}]
    body = {"model": "nacre", "messages": [{"role": "user", "content": content}], "session_id": "s"}
    answer = echo.client.post("/v1/chat/completions", json=body)
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "usage")
    assert "an image must be" in answer.json()["error"]["message"]
    assert not echo.sessions.exists("api::s::")


def test_an_image_in_the_request_reaches_the_model(server: Serve) -> None:
    model = Scripted(["a dot"])
    content: Any = [{"type": "text", "text": "What is it?"}, {"type": "image_url", "image_url": {"url": PIXEL}}]
    with client(server(provider=model)) as ask:
        ask.chat.completions.create(model="nacre", messages=[{"role": "user", "content": content}])
    assert model.contexts[0].messages[-1].content == content


@pytest.mark.parametrize(("wait", "header"), [(2.4, "3"), (None, None)])
def test_a_model_that_takes_no_more_is_429_with_the_time_to_wait(
    server: Serve, wait: float | None, header: str | None
) -> None:
    site = server(RateLimited("slow down", wait=wait))
    with client(site) as ask, pytest.raises(openai.RateLimitError, match="slow down") as caught:
        ask.chat.completions.create(model="nacre", messages=HELLO)
    assert (caught.value.code, caught.value.response.headers.get("retry-after")) == ("rate_limited", header)


def test_a_model_is_found_by_its_name_with_and_without_a_slash(echo: Site) -> None:
    with client(echo) as ask:
        assert [ask.models.retrieve(name).id for name in ("nacre", "echo/echo")] == ["nacre", "echo/echo"]
        with pytest.raises(openai.NotFoundError, match="no model 'gpt-9'; there are: nacre, echo, echo/echo"):
            ask.models.retrieve("gpt-9")
    assert echo.client.get("/v1/models/echo/echo").json()["id"] == "echo/echo"
    assert echo.client.get("/v1/models/echo%2Fecho").json()["id"] == "echo/echo"


def test_a_stream_is_kept_alive_while_an_answer_is_checked(server: Serve) -> None:
    limits = Limits(heartbeat=0.001, first_event_timeout=0.001)
    body = {"model": "nacre", "messages": HELLO, "response_format": SCHEMA, "stream": True}
    with server("Oslo.", OSLO, limits=limits).client.stream("POST", "/v1/chat/completions", json=body) as answer:
        lines: Iterable[str] = list(answer.iter_lines())
    assert ": still here" in lines
    assert [one["data"]["choices"][0]["delta"].get("content") for one in events(lines) if one["data"] != "[DONE]"] == [
        "",
        OSLO,
        None,
    ]
