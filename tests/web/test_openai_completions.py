"""Chat completions: the official client talks to the agent, and a session does not grow twice."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import anyio
import httpx
import openai
import pytest

from nacre.agent.ports import Context, Effect, Emit, Output, Reply, Scene, Spec
from nacre.errors import Busy, ContextOverflow, ProviderError
from nacre.messages import Message, Snapshot, ToolCall
from nacre.providers.scripted import Call, Pause, Scripted, Stops, Thinks
from nacre.web.api import openai_completions
from nacre.web.api.openai_messages import message_of
from nacre.web.api.retries import answer_to_history, is_waiting
from nacre.web.running_turns import MAX_WAITING, Running, Turns
from tests.web.conftest import PLAIN, TOKEN, Echo, Serve, Site, events

HELLO: Any = [{"role": "user", "content": "hello"}]
WEATHER: Any = {
    "type": "function",
    "function": {"name": "weather", "description": "The weather.", "parameters": {"type": "object", "properties": {}}},
}
KEY = "api::s::"
RETRY = {"X-Stainless-Retry-Count": "1"}


def client(site: Site, **options: Any) -> openai.OpenAI:
    http = openai.DefaultHttpxClient(**PLAIN)
    return openai.OpenAI(base_url=f"{site.url}/v1", api_key=TOKEN, http_client=http, **{"max_retries": 0, **options})


@pytest.fixture
def ask(echo: Site) -> Iterator[openai.OpenAI]:
    with client(echo) as made:
        yield made


def user(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


def assistant(text: str) -> dict[str, str]:
    return {"role": "assistant", "content": text}


# ---- one answer


def test_the_official_client_gets_an_answer_with_its_cost(ask: openai.OpenAI) -> None:
    answer = ask.chat.completions.create(model="nacre", messages=HELLO)
    assert answer.choices[0].message.content == "echo: hello"
    assert answer.choices[0].finish_reason == "stop"
    assert answer.usage is not None
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens, answer.usage.total_tokens) == (3, 2, 5)


def test_the_official_client_streams(server: Serve) -> None:
    site = server([Thinks("hm"), "one ", "two"])
    with client(site) as ask:
        stream = ask.chat.completions.create(
            model="scripted", messages=HELLO, stream=True, stream_options={"include_usage": True}
        )
        pieces = list(stream)
    assert [piece.choices[0].delta.content for piece in pieces if piece.choices][:4] == ["", None, "one ", "two"]
    assert pieces[-2].choices[0].finish_reason == "stop"
    assert pieces[-1].usage is not None
    assert pieces[-1].usage.completion_tokens == 2


def test_the_models_are_listed_and_others_are_refused(ask: openai.OpenAI) -> None:
    assert [model.id for model in ask.models.list()] == ["nacre", "echo", "echo/echo"]
    with pytest.raises(openai.NotFoundError, match="no model 'gpt-9'"):
        ask.chat.completions.create(model="gpt-9", messages=HELLO)


@pytest.mark.parametrize(
    "field",
    [{"n": 2}, {"logprobs": True}, {"response_format": {"type": "grammar"}}],
    ids=lambda one: next(iter(one)),
)
def test_what_would_be_answered_otherwise_is_refused(ask: openai.OpenAI, field: dict[str, Any]) -> None:
    with pytest.raises(openai.BadRequestError):
        ask.chat.completions.create(model="nacre", messages=HELLO, **field)


def test_an_answer_without_a_session_leaves_nothing_on_disk(server: Serve, root: Path) -> None:
    site = server("hi")
    before = sorted(root.rglob("*"))
    with client(site) as ask:
        ask.chat.completions.create(model="nacre", messages=HELLO)
    assert sorted(root.rglob("*")) == before
    assert list(site.sessions.list()) == []


def test_without_a_session_the_whole_history_is_shown_with_the_clients_system_text(server: Serve) -> None:
    model = Scripted(["fine"])
    site = server(provider=model)
    messages: Any = [{"role": "system", "content": "Speak Dutch."}, user("a"), assistant("b"), user("c")]
    with client(site) as ask:
        ask.chat.completions.create(model="nacre", messages=messages)
    (context,) = model.contexts
    assert context.system == "Be brief.\n\nSpeak Dutch."
    assert [message.content for message in context.messages] == ["a", "b", "c"]


@pytest.mark.parametrize("tools", [[], [WEATHER]], ids=["the agent", "the client's tools"])
def test_a_system_text_in_parts_is_shown_as_text(server: Serve, tools: list[Any]) -> None:
    model = Scripted(["fine"])
    parts = [{"type": "text", "text": "Speak Dutch."}, {"type": "text", "text": "Be formal."}]
    system: Any = {"role": "system", "content": parts}
    with client(server(provider=model, system="")) as ask:
        ask.chat.completions.create(model="nacre", messages=[system, *HELLO], tools=tools)
    assert model.contexts[0].system == "Speak Dutch.\nBe formal."


class Note:
    """A tool of the agent's."""

    spec = Spec(name="note", description="Note it.", parameters={"type": "object", "properties": {}})
    effect: Effect = "read"

    async def run(self, arguments: Any, scene: Scene) -> Output:
        return Output(text="noted")


@pytest.mark.parametrize("body", [{}, {"session_id": "s"}], ids=["no session", "a session"])
def test_the_agent_runs_its_own_tools_and_the_client_sees_the_answer(server: Serve, body: dict[str, Any]) -> None:
    site = server(["looking", Call("note")], "done", tools={"note": Note()})
    with client(site) as ask:
        answer = ask.chat.completions.create(model="nacre", messages=HELLO, extra_body=body)
    assert answer.choices[0].message.content == "done"
    assert answer.choices[0].message.tool_calls is None
    assert answer.usage is not None
    assert answer.usage.completion_tokens == 2


def test_words_before_and_after_a_tool_are_kept_apart_in_a_stream(server: Serve) -> None:
    site = server(["looking", Call("note")], "done", tools={"note": Note()})
    with client(site) as ask:
        pieces = list(ask.chat.completions.create(model="nacre", messages=HELLO, stream=True))
    assert "".join(piece.choices[0].delta.content or "" for piece in pieces) == "looking\n\ndone"


# ---- the client's tools


def test_the_clients_tools_are_the_clients_to_run(server: Serve) -> None:
    model = Scripted([[Call("weather", {"city": "Delft"})], "rain"])
    site = server(provider=model)
    with client(site) as ask:
        first = ask.chat.completions.create(model="nacre", messages=HELLO, tools=[WEATHER])
        (call,) = first.choices[0].message.tool_calls or []
        assert (first.choices[0].finish_reason, call.function.arguments) == ("tool_calls", '{"city":"Delft"}')  # type: ignore[union-attr]
        history: Any = [*HELLO, first.choices[0].message, {"role": "tool", "tool_call_id": call.id, "content": "wet"}]
        second = ask.chat.completions.create(model="nacre", messages=history, tools=[WEATHER])
    assert second.choices[0].message.content == "rain"
    assert [spec.name for spec in model.contexts[1].tools] == ["weather"]
    assert [message.role for message in model.contexts[1].messages] == ["user", "assistant", "tool"]
    assert model.contexts[1].messages[1].tool_calls[0].arguments == {"city": "Delft"}


@pytest.mark.parametrize("session", ["", "s"])
def test_a_client_that_offers_no_tools_any_more_is_answered_by_the_model(server: Serve, session: str) -> None:
    model = Scripted([Call("weather", id="c1"), "rain"])
    site = server(provider=model)
    body = {"model": "nacre", "session_id": session}
    first = site.client.post("/v1/chat/completions", json={**body, "messages": HELLO, "tools": [WEATHER]})
    result = {"role": "tool", "tool_call_id": "c1", "content": "wet"}
    messages = [*HELLO, first.json()["choices"][0]["message"], result]
    answer = site.client.post("/v1/chat/completions", json={**body, "messages": messages})
    assert answer.json()["choices"][0]["message"]["content"] == "rain"
    assert (model.contexts[1].tools, model.contexts[1].messages[-1].content) == ([], "wet")


def test_calls_are_streamed(server: Serve) -> None:
    site = server([Call("weather", {"city": "Delft"})])
    with client(site) as ask:
        pieces = list(ask.chat.completions.create(model="nacre", messages=HELLO, tools=[WEATHER], stream=True))
    (call,) = [call for piece in pieces for call in piece.choices[0].delta.tool_calls or []]
    assert (call.index, call.function and call.function.name) == (0, "weather")
    assert pieces[-1].choices[0].finish_reason == "tool_calls"


def test_a_session_with_the_clients_tools_keeps_every_step_once(server: Serve) -> None:
    site = server([Call("weather")], "rain")
    body = {"session_id": "s"}
    with client(site) as ask:
        first = ask.chat.completions.create(model="nacre", messages=HELLO, tools=[WEATHER], extra_body=body)
        calls: Any = first.choices[0].message
        result: Any = {"role": "tool", "tool_call_id": calls.tool_calls[0].id, "content": "wet"}
        history: Any = [*HELLO, calls, result]
        for _ in range(2):
            again = ask.chat.completions.create(model="nacre", messages=history, tools=[WEATHER], extra_body=body)
            assert again.choices[0].message.content == "rain"
    assert [role for role, _ in site.said(KEY)] == ["user", "assistant", "tool", "assistant"]


# ---- sessions


@pytest.mark.parametrize(
    ("options", "key"),
    [
        ({"extra_body": {"session_id": "s"}}, "api::s::"),
        ({"extra_headers": {"X-Session-Id": "s"}}, "api::s::"),
        ({"user": "s"}, "api::::s"),
        ({"user": "u", "extra_body": {"session_id": "a:b/../c"}}, "api::a%3Ab/../c::"),
    ],
)
def test_a_session_is_named_in_three_ways(echo: Site, ask: openai.OpenAI, options: Any, key: str) -> None:
    ask.chat.completions.create(model="nacre", messages=HELLO, **options)
    assert echo.said(key) == [("user", "hello"), ("assistant", "echo: hello")]


def test_a_client_that_sends_everything_each_time_does_not_make_it_grow_twice(echo: Site, ask: openai.OpenAI) -> None:
    history: Any = []
    for text in ("a", "b", "a", "a"):
        history.append(user(text))
        answer = ask.chat.completions.create(model="nacre", messages=history, extra_body={"session_id": "s"})
        history.append(assistant(str(answer.choices[0].message.content)))
    assert echo.said(KEY) == [(one["role"], one["content"]) for one in history]


def test_a_client_that_sends_only_the_newest_words_is_remembered(server: Serve) -> None:
    model = Echo()
    site = server(provider=model)
    with client(site) as ask:
        for text in ("a", "a"):
            ask.chat.completions.create(model="nacre", messages=[user(text)], extra_body={"session_id": "s"})  # type: ignore[list-item]
    assert [message.content for message in model.contexts[1].messages] == ["a", "echo: a", "a"]


def test_the_same_history_again_gets_the_same_answer(server: Serve) -> None:
    site = server("one", "two", "three")
    history: Any = [user("a"), assistant("one"), user("b")]
    with client(site) as ask:
        ask.chat.completions.create(model="nacre", messages=history[:1], extra_body={"session_id": "s"})
        for _ in range(2):
            answer = ask.chat.completions.create(model="nacre", messages=history, extra_body={"session_id": "s"})
            assert answer.choices[0].message.content == "two"
    assert len(site.said(KEY)) == 4


def test_an_idempotency_key_makes_a_request_count_once(server: Serve) -> None:
    site = server("one", "two")
    with client(site) as ask:

        def create(text: str, id: str) -> str | None:
            answer = ask.chat.completions.create(
                model="nacre",
                messages=[user(text)],  # type: ignore[list-item]
                extra_body={"session_id": "s"},
                extra_headers={"Idempotency-Key": id},
            )
            return answer.choices[0].message.content

        assert [create("a", "1"), create("b", "2"), create("a", "1")] == ["one", "two", "one"]
        with pytest.raises(openai.ConflictError):
            create("c", "1")
    assert len(site.said(KEY)) == 4


def test_an_idempotency_key_counts_for_clients_with_tools_of_their_own(server: Serve) -> None:
    site = server(Call("weather", id="c1"), "sunny")
    result = {"role": "tool", "tool_call_id": "c1", "content": "sun"}
    with client(site) as ask:

        def create(message: Any, id: str) -> Any:
            return ask.chat.completions.create(
                model="nacre",
                messages=[message],
                tools=[WEATHER],
                extra_body={"session_id": "s"},
                extra_headers={"Idempotency-Key": id},
            )

        first = [create(user("hello"), "1").choices[0].message.tool_calls[0].id for _ in range(2)]
        second = [create(result, "2").choices[0].message.content for _ in range(2)]
        assert create(user("hello"), "1").choices[0].message.tool_calls[0].id == "c1"
        with pytest.raises(openai.ConflictError):
            create(user("goodbye"), "1")
    assert (first, second) == (["c1"] * 2, ["sunny"] * 2)
    assert [role for role, _ in site.said(KEY)] == ["user", "assistant", "tool", "assistant"]


def test_a_client_with_tools_of_its_own_gets_the_same_answer_when_a_summary_has_taken_its_place(server: Serve) -> None:
    site = server(Call("weather", id="c1"), "sunny", "rainy")

    def create(text: str, id: str) -> Any:
        body = {"model": "nacre", "session_id": "s", "tools": [WEATHER], "messages": [user(text)]}
        answer = site.client.post("/v1/chat/completions", json=body, headers={"Idempotency-Key": id})
        message = answer.json()["choices"][0]["message"] if answer.status_code == 200 else {}
        return answer.status_code, message.get("content"), len(message.get("tool_calls", []))

    for text in ("a", "b", "c"):
        create(text, text)
    site.sessions.set_summary(KEY, "What was said.", upto=site.sessions.snapshot(KEY).numbers[3])
    told = [create("a", "a"), create("b", "b"), create("c", "c"), create("d", "b")]
    assert told == [(200, "", 1), (200, "sunny", 0), (200, "rainy", 0), (409, None, 0)]
    assert [text for _, text in site.said(KEY)] == ["c", "rainy"]


@pytest.mark.parametrize("headers", [{}, {"Idempotency-Key": "1"}], ids=["no id", "an id"])
def test_words_that_wait_for_an_answer_are_answered_and_not_said_again(server: Serve, headers: dict[str, str]) -> None:
    site = server(ProviderError("no"), "yes")
    options: Any = {"extra_body": {"session_id": "s"}, "extra_headers": headers}
    with client(site) as ask:
        with pytest.raises(openai.InternalServerError):
            ask.chat.completions.create(model="nacre", messages=HELLO, **options)
        ask.chat.completions.create(model="nacre", messages=HELLO, **options)
    assert site.said(KEY) == [("user", "hello"), ("assistant", "yes")]


def test_the_official_clients_own_retries_do_not_repeat_a_turn(server: Serve) -> None:
    go_on, reached = anyio.Event(), threading.Event()
    site = server([Pause(go_on, reached), "late"])
    with client(site, max_retries=1, timeout=httpx.Timeout(20, read=0.5)) as ask:
        with ThreadPoolExecutor() as pool:
            asked = pool.submit(
                ask.chat.completions.create, model="nacre", messages=HELLO, extra_body={"session_id": "s"}
            )
            assert reached.wait(5)
            with pytest.raises(openai.APITimeoutError):
                asked.result(20)
        site.call(go_on.set)
        answer = ask.with_options(timeout=20).chat.completions.create(
            model="nacre",
            messages=HELLO,
            extra_body={"session_id": "s"},
            extra_headers={"X-Stainless-Retry-Count": "2"},
        )
    assert answer.choices[0].message.content == "late"
    assert site.said(KEY) == [("user", "hello"), ("assistant", "late")]


class Working(Echo):
    """A model that calls a tool before it answers."""

    async def complete(self, context: Context, *, emit: Emit) -> Reply:
        if context.messages[-1].role != "user":
            said = [one for one in context.messages if one.role == "user"]
            return await super().complete(Context(messages=said), emit=emit)
        calls = (ToolCall(id=secrets.token_hex(4), name="note", arguments={}),)
        return Reply(message=Message(role="assistant", content="", tool_calls=calls), finish="calls")


def test_requests_of_one_session_wait_for_each_other(server: Serve) -> None:
    site = server(provider=Working(), tools={"note": Note()})
    ask = client(site)

    def create(number: int) -> str | None:
        messages: Any = [user(str(number))]
        answer = ask.chat.completions.create(model="nacre", messages=messages, extra_body={"session_id": "s"})
        return answer.choices[0].message.content

    with ask, ThreadPoolExecutor(8) as pool:
        assert list(pool.map(create, range(8))) == [f"echo: {number}" for number in range(8)]
    assert [role for role, _ in site.said(KEY)] == ["user", "assistant", "tool", "assistant"] * 8


def test_a_hundred_clients_at_once_each_get_their_own_answer(echo: Site) -> None:
    def create(number: int) -> tuple[str, bool]:
        body = {"model": "nacre", "messages": [user(str(number))], "session_id": str(number), "stream": number % 2 == 0}
        text = many.post("/v1/chat/completions", json=body).text
        return text, f"echo: {number}" in text

    many = httpx.Client(
        base_url=echo.url, headers=dict(echo.client.headers), timeout=30, limits=httpx.Limits(), **PLAIN
    )
    with many, ThreadPoolExecutor(100) as pool:
        answers = list(pool.map(create, range(100)))
    assert [text for text, is_right in answers if not is_right] == []
    assert all(len(echo.said(f"api::{number}::")) == 2 for number in range(100))


# ---- clients that go


@pytest.fixture
def left(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Set when the server has noticed that a client is gone."""
    noticed, leave = threading.Event(), Running.leave

    def noticing(running: Running[Any], *, stop: bool) -> None:
        leave(running, stop=stop)
        noticed.set()

    monkeypatch.setattr(Running, "leave", noticing)
    return noticed


def test_a_turn_goes_on_when_its_client_goes_in_the_middle(server: Serve, left: threading.Event) -> None:
    go_on = anyio.Event()
    site = server(["one ", Pause(go_on), "two"])
    body = {"model": "nacre", "messages": HELLO, "session_id": "s", "stream": True}
    with site.client.stream("POST", "/v1/chat/completions", json=body) as response:
        assert any(one["data"]["choices"][0]["delta"].get("content") == "one " for one in events(response.iter_lines()))
    assert left.wait(5)
    site.call(go_on.set)
    again = site.client.post("/v1/chat/completions", json={**body, "stream": False}, headers=RETRY)
    assert again.json()["choices"][0]["message"]["content"] == "one two"
    assert site.said(KEY) == [("user", "hello"), ("assistant", "one two")]


def test_an_answer_that_nobody_could_see_is_stopped_when_its_client_goes(server: Serve) -> None:
    stopped = threading.Event()

    class Never:
        async def wait(self) -> None:
            try:
                await anyio.sleep_forever()
            finally:
                stopped.set()

    site = server(["one ", Pause(Never()), "two"])
    body = {"model": "nacre", "messages": HELLO, "stream": True}
    with site.client.stream("POST", "/v1/chat/completions", json=body) as response:
        assert next(response.iter_lines())
    assert stopped.wait(5)


def test_a_turn_that_the_servers_end_cut_short_is_finished_by_the_next(server: Serve, stack: ExitStack) -> None:
    reached = threading.Event()
    site = server(["half", Pause(anyio.Event(), reached)])
    body = {"model": "nacre", "messages": HELLO, "session_id": "s"}
    with site.visitor(dict(site.client.headers)) as visitor, ThreadPoolExecutor() as pool:
        asked = pool.submit(visitor.post, "/v1/chat/completions", json=body)
        assert reached.wait(5)
        stack.close()
        assert asked.result(10).json()["error"]["message"] == "the agent is shutting down"
    again = server("whole")
    assert again.client.post("/v1/chat/completions", json=body).json()["choices"][0]["message"]["content"] == "whole"
    assert again.said(KEY) == [("user", "hello"), ("assistant", "whole")]


def test_a_session_that_too_many_wait_for_is_busy() -> None:
    async def run() -> None:
        turns = Turns()

        async def come() -> None:
            async with turns.alone("k"):
                await anyio.sleep_forever()

        async with anyio.create_task_group() as tasks:
            for _ in range(MAX_WAITING + 1):
                tasks.start_soon(come)
            await anyio.wait_all_tasks_blocked()
            with pytest.raises(Busy):
                await come()
            tasks.cancel_scope.cancel()
        assert turns._lines == {}

    anyio.run(run)


# ---- errors


@pytest.mark.parametrize(
    ("error", "kind", "code"),
    [
        (ProviderError("the server is away"), openai.InternalServerError, "provider"),
        (ContextOverflow("too long"), openai.BadRequestError, "context_length_exceeded"),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_what_goes_wrong_has_openais_shape(
    server: Serve, error: Exception, kind: type[openai.APIStatusError], code: str, stream: bool
) -> None:
    site = server(*[error] * 3)
    with client(site) as ask, pytest.raises(kind) as caught:
        ask.chat.completions.create(model="nacre", messages=HELLO, stream=stream)
    assert caught.value.code == code
    assert caught.value.body is not None


def test_what_goes_wrong_in_mid_stream_is_told_in_the_stream(server: Serve) -> None:
    go_on = anyio.Event()
    site = server(["one ", Pause(go_on), ProviderError("the line is dead")])
    with client(site) as ask:
        stream = ask.chat.completions.create(model="nacre", messages=HELLO, stream=True)
        assert [next(stream).choices[0].delta.content for _ in range(2)] == ["", "one "]
        site.call(go_on.set)
        with pytest.raises(openai.APIError, match="the line is dead"):
            list(stream)


def test_an_answer_that_grew_too_long_says_so(server: Serve) -> None:
    site = server(["and so on", Stops()])
    with client(site) as ask:
        answer = ask.chat.completions.create(model="nacre", messages=HELLO, tools=[WEATHER])
    assert answer.choices[0].finish_reason == "length"


@pytest.mark.parametrize("tools", [[], [WEATHER]], ids=["the agent", "the client's tools"])
@pytest.mark.parametrize("stream", [False, True])
def test_an_answer_that_was_cut_off_says_so_when_it_is_told_again(
    server: Serve, tools: list[Any], stream: bool
) -> None:
    site = server(["and so on", Stops()])
    body = {"model": "nacre", "messages": HELLO, "tools": tools, "session_id": "s", "stream": stream}

    def finish() -> str:
        answer = site.client.post("/v1/chat/completions", json=body, headers={"Idempotency-Key": "1"})
        told = [one["data"] for one in events(answer.iter_lines())][-2] if stream else answer.json()
        return str(told["choices"][0]["finish_reason"])

    assert [finish(), finish()] == ["length", "length"]


def required(*, named: bool) -> Any:
    return {"type": "function", "function": {"name": "weather"}} if named else "required"


OTHER: Any = {"type": "function", "function": {"name": "other"}}


@pytest.mark.parametrize("named", [False, True])
@pytest.mark.parametrize("stream", [False, True])
def test_a_call_that_is_required_is_asked_for_until_it_comes(server: Serve, named: bool, stream: bool) -> None:
    model = Scripted(["It rains.", Call("weather", {"city": "Delft"})])
    site = server(provider=model)
    body = {"model": "nacre", "messages": HELLO, "tools": [WEATHER, OTHER], "stream": stream}
    answer = site.client.post("/v1/chat/completions", json={**body, "tool_choice": required(named=named)})
    assert "weather" in answer.text
    assert "It rains." not in answer.text
    assert '"finish_reason":"tool_calls"' in answer.text
    offered = [["weather"] if named else ["weather", "other"]] * 2
    assert [[spec.name for spec in context.tools] for context in model.contexts] == offered
    assert "weather" in model.contexts[0].system


def test_a_call_that_never_comes_is_said_not_to(server: Serve) -> None:
    site = server("one", "two", "three")
    body = {"model": "nacre", "messages": HELLO, "tools": [WEATHER], "tool_choice": "required", "session_id": "s"}
    answer = site.client.post("/v1/chat/completions", json=body)
    assert (answer.status_code, answer.json()["error"]["code"]) == (422, "invalid_answer")
    assert site.said(KEY) == [("user", "hello")]


def test_some_of_the_tools_may_be_offered(server: Serve) -> None:
    model = Scripted(["fine"])
    offer = {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [OTHER]}}
    body = {"model": "nacre", "messages": HELLO, "tools": [WEATHER, OTHER], "tool_choice": offer}
    assert server(provider=model).client.post("/v1/chat/completions", json=body).status_code == 200
    assert [spec.name for spec in model.contexts[0].tools] == ["other"]


@pytest.mark.parametrize("session", ["", "s"])
def test_a_client_that_runs_one_call_at_a_time_gets_one(server: Serve, session: str) -> None:
    site = server([Call("weather", {"city": "Delft"}), Call("weather", {"city": "Oslo"})], "rain")
    body = {"model": "nacre", "tools": [WEATHER], "parallel_tool_calls": False, "session_id": session}
    answer = site.client.post("/v1/chat/completions", json={**body, "messages": HELLO})
    message = answer.json()["choices"][0]["message"]
    assert [call["function"]["arguments"] for call in message["tool_calls"]] == ['{"city":"Delft"}']
    result = {"role": "tool", "tool_call_id": message["tool_calls"][0]["id"], "content": "wet"}
    told = site.client.post("/v1/chat/completions", json={**body, "messages": [*HELLO, message, result]})
    assert told.json()["choices"][0]["message"]["content"] == "rain"


@pytest.mark.parametrize(
    "messages",
    [
        [],
        [assistant("I speak last")],
        [{"role": "emperor", "content": "x"}],
        [{"content": "x"}],
        [{"role": "user", "content": 5}],
        [{"role": "user", "tool_calls": "x"}],
        [{"role": "user", "content": "x", "tool_calls": [{"function": {"name": 5}}]}],
        ["x"],
        "x",
    ],
)
def test_messages_that_are_none_are_refused(echo: Site, messages: Any) -> None:
    answer = echo.client.post("/v1/chat/completions", json={"model": "nacre", "messages": messages})
    assert (answer.status_code, answer.json()["error"]["type"]) == (400, "invalid_request_error")


# ---- what counts as said before


def snapshot(*messages: dict[str, Any], more: int = 0) -> Snapshot:
    return Snapshot(n=9, live=len(messages) + more, messages=[Message.from_mapping(one) for one in messages])


def sent(*messages: dict[str, Any]) -> list[Message]:
    return [Message.from_mapping(one) for one in messages]


YES_OK = (user("yes"), assistant("ok"))


@pytest.mark.parametrize(
    ("stored", "given", "is_retry", "is_known"),
    [
        (snapshot(*YES_OK, *YES_OK), sent(*YES_OK, user("yes")), False, True),
        (snapshot(*YES_OK, *YES_OK), sent(*YES_OK, *YES_OK, user("yes")), False, False),
        (snapshot(*YES_OK, *YES_OK, more=2), sent(*YES_OK, user("yes")), False, False),
        (snapshot(*YES_OK), sent(user("yes")), False, False),
        (snapshot(*YES_OK), sent(user("yes")), True, True),
        (snapshot(*YES_OK), sent(user("no")), True, False),
        (snapshot(), sent(user("yes")), True, False),
        (snapshot(*YES_OK, user("yes")), sent(*YES_OK, user("yes")), False, False),
    ],
)
def test_only_a_history_that_is_the_stored_one_was_said_before(
    stored: Snapshot, given: list[Message], is_retry: bool, is_known: bool
) -> None:
    assert (answer_to_history(stored, given, is_retry=is_retry) is not None) == is_known


def test_words_wait_only_while_they_are_the_last() -> None:
    (yes,) = sent(user(" yes "))
    assert is_waiting(snapshot(user("yes")), id="", words=yes)
    assert not is_waiting(snapshot(user("no")), id="", words=yes)
    assert not is_waiting(snapshot(*YES_OK), id="", words=yes)


def picture(data: str) -> dict[str, Any]:
    text = {"type": "text", "text": "What is this?"}
    return {
        "role": "user",
        "content": [text, {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{data}"}}],
    }


def test_the_same_words_with_another_picture_are_new(server: Serve) -> None:
    site = server("hello", "a cat", "a dog")
    history = [*HELLO, assistant("hello")]
    with client(site) as ask:
        answers = [
            ask.chat.completions.create(model="nacre", messages=messages, extra_body={"session_id": "s"})
            for messages in (HELLO, [*history, picture("Y2F0")], [*history, picture("ZG9n")])
        ]
    assert [answer.choices[0].message.content for answer in answers] == ["hello", "a cat", "a dog"]


def test_a_picture_does_not_wait_for_the_answer_to_another() -> None:
    stored, other = (Message.from_mapping(picture(data)) for data in ("Y2F0", "ZG9n"))
    now = Snapshot(n=2, live=1, messages=[stored])
    assert is_waiting(now, id="", words=stored)
    assert not is_waiting(now, id="", words=other)


@pytest.mark.parametrize("session", ["", "s"])
def test_a_result_that_nobody_called_for_is_refused(server: Serve, session: str) -> None:
    site = server("never said")
    result = {"role": "tool", "tool_call_id": "none", "content": "rain"}
    body = {"model": "nacre", "messages": [result], "tools": [WEATHER], "session_id": session}
    answer = site.client.post("/v1/chat/completions", json=body)
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "usage")
    assert not site.sessions.exists(KEY)


def test_a_long_history_is_read_where_nobody_else_waits(echo: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    readers: list[str] = []

    def read(given: Any, *, param: str) -> Message:
        readers.append(threading.current_thread().name)
        return message_of(given, param=param)

    monkeypatch.setattr(openai_completions, "message_of", read)
    long = {"role": "user", "content": "word " * 10_000}
    answer = echo.client.post("/v1/chat/completions", json={"model": "nacre", "messages": [long]})
    assert answer.status_code == 200
    assert "server" not in readers
    assert len(readers) == 1
    # One that is short takes less time than a thread would.
    assert echo.client.post("/v1/chat/completions", json={"model": "nacre", "messages": HELLO}).status_code == 200
    assert readers[1:] == ["server"]
