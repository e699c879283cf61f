"""The models after the first one, and who answered before: units of what tests/everyday/test_models.py shows."""

from __future__ import annotations

import json
from typing import Any

import anyio
import pytest

import nacre
from nacre.agent.ports import Context, Emit, Event, Notice, Reply, Text
from nacre.config import Settings
from nacre.errors import ConfigError, ModelNotAllowed, ModelUnavailable, ProviderError
from nacre.messages import Message
from nacre.providers.embedded import ALL_CORES, count_threads
from nacre.providers.model_server import is_nearby
from nacre.providers.scripted import Scripted
from nacre.providers.wire import known_window
from nacre.runtime.app import App
from nacre.runtime.model_chain import ModelChain, last_local_model
from nacre.runtime.models import Model, choose
from tests.ollama_server import Answer, OllamaServer, done, said, serving

HELLO = Context(messages=[Message(role="user", content="hello")])


class Failing:
    """A model that says something, or nothing, and fails."""

    model = "one"

    def __init__(self, error: Exception, said: str = "") -> None:
        self._error, self._said = error, said

    async def complete(self, context: Context, *, emit: Emit) -> Reply:
        if self._said:
            emit(Text(self._said))
        raise self._error

    async def close(self) -> None:
        """Nothing is open."""


def ask(model: Failing, *fallback: str) -> list[Event]:
    """What is said while a chain of models is asked."""
    events: list[Event] = []

    async def run() -> None:
        chain = ModelChain(Model(kind="test", provider=model), Settings({}, {}), fallback)
        await chain.complete(HELLO, emit=events.append)

    anyio.run(run)
    return events


def test_a_fallback_that_cannot_be_made_is_said_and_the_first_error_stays() -> None:
    events: list[Event] = []

    async def run() -> None:
        down = Model(kind="test", provider=Failing(ModelUnavailable("it is down")))
        chain = ModelChain(down, Settings({}, {}), ["openai/gpt-5"])
        await chain.complete(HELLO, emit=events.append)

    with pytest.raises(ModelUnavailable, match="it is down"):
        anyio.run(run)
    assert [event.text for event in events if isinstance(event, Notice)] == [
        "openai/gpt-5 cannot answer either: openai/gpt-5 needs an API key, and none is set"
    ]


def test_going_back_to_the_first_model_is_said() -> None:
    events: list[Event] = []
    now = 0.0

    async def run() -> None:
        nonlocal now
        down = Model(kind="test", provider=Failing(ModelUnavailable("it is down")))
        server = OllamaServer([Answer(chunks=(said("Hi."), done()))], {"two": ["completion"]})
        async with serving(server):
            settings = Settings({"ollama": {"host": server.host}}, {})
            chain = ModelChain(down, settings, ["ollama/two"], clock=lambda: now)
            await chain.complete(HELLO, emit=events.append)
            now = 301.0
            await chain.complete(HELLO, emit=events.append)
            await chain.close()

    anyio.run(run)
    switch = "test/one cannot answer: it is down. ollama/two answers instead."
    back = "test/one is asked again: it could not answer before"
    assert [event.text for event in events if isinstance(event, Notice)] == [switch, back, switch]


def test_an_answer_of_which_a_part_was_shown_is_not_given_by_another_model() -> None:
    with pytest.raises(ModelUnavailable, match="it is down"):
        ask(Failing(ModelUnavailable("it is down"), "Well, "), "ollama/two")


def test_a_request_that_was_refused_is_not_sent_to_another_model() -> None:
    with pytest.raises(ProviderError, match="bad request"):
        ask(Failing(ProviderError("bad request")), "ollama/two")


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("gpt-5", "openai"),
        ("o3", "openai"),
        ("claude-opus-4-1", "anthropic"),
        ("gpt-oss:20b", "ollama"),
        ("llama3.2", "ollama"),
        ("hf.co/some/model", "ollama"),
        ("openai/gpt-oss", "openai"),
    ],
)
def test_the_provider_of_a_model_is_known_by_its_name(name: str, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY"):
        monkeypatch.setenv(variable, "sk-test")

    async def run() -> str:
        model = await choose(Settings({}, {}), name)
        await model.provider.close()
        return model.kind

    assert anyio.run(run) == kind


@pytest.mark.parametrize(
    ("answers", "local"),
    [
        ([], ""),
        ([("gemma4:e4b", {})], "gemma4:e4b"),
        ([("gpt-4o", {})], ""),
        ([("gemma4:e4b", {"provider": "ollama"})], "ollama/gemma4:e4b"),
        ([("qwen", {"provider": "openai", "remote": True})], ""),
        ([("gemma4:e4b", {"provider": "ollama"}), ("gpt-5", {"provider": "openai", "remote": True})], ""),
        ([("gpt-5", {"provider": "openai", "remote": True}), ("qwen", {"provider": "openai"})], "openai/qwen"),
    ],
)
def test_the_last_answer_says_whether_a_session_is_local(
    answers: list[tuple[str, dict[str, object]]], local: str
) -> None:
    with nacre.open(":memory:") as sessions:
        for model, extra in answers:
            sessions.add_full_message("k", Message(role="user", content="hi"))
            sessions.add_full_message("k", Message(role="assistant", content="hello", model=model, extra=extra))
        assert last_local_model(sessions.get_history("k")) == local


@pytest.mark.parametrize(
    ("model", "window"),
    [
        ("gpt-5-mini", 400_000),
        ("openai/gpt-4o", 128_000),
        ("gpt-4-0613", 8_192),
        ("gpt-oss:20b", 131_072),
        ("claude-sonnet-4-5", 200_000),
        ("llama3.2", None),
    ],
)
def test_windows_of_known_models(model: str, window: int | None) -> None:
    assert known_window(model) == window


@pytest.mark.parametrize(
    ("address", "nearby"),
    [
        ("http://127.0.0.1:11434", True),
        ("http://[::1]:1", True),
        ("http://192.168.1.5:8080/v1", True),
        ("http://gpu:8000", True),
        ("http://box.local", True),
        ("https://api.openai.com/v1", False),
        ("http://8.8.8.8", False),
    ],
)
def test_nearby_is_this_machine_and_its_private_network(address: str, *, nearby: bool) -> None:
    assert is_nearby(address) is nearby


def test_the_number_of_threads_is_what_was_set_and_at_least_one() -> None:
    assert count_threads(3) == 3
    assert count_threads(ALL_CORES) >= count_threads(-1) >= 1


class Remote(Scripted):
    """A model on the internet."""

    is_local = False


@pytest.mark.parametrize(("settings", "is_skipped"), [({}, True), ({"agent": {"allow_remote": True}}, False)])
def test_memory_sends_no_turn_of_a_local_session_to_a_remote_model(
    settings: dict[str, object], *, is_skipped: bool
) -> None:
    with nacre.open(":memory:") as sessions:
        sessions.add_full_message("k", Message(role="user", content="my secret"))
        sessions.add_full_message("k", Message(role="assistant", content="hello", model="gemma4:e4b"))
        app = App(Settings(settings, {}), sessions, Remote([]))
        assert app.skips_memory("k") is is_skipped


def test_a_message_to_a_local_model_that_was_never_answered_is_not_for_a_remote_one() -> None:
    with nacre.open(":memory:") as sessions:
        sessions.add_full_message("k", Message(role="user", content="a", extra={"asked": "ollama/gemma4:e4b"}))
        app = App(Settings({}, {}), sessions, Remote(["hello"]))
        assert "ollama/gemma4:e4b" in app.remote_question("k")
        with pytest.raises(ModelNotAllowed):
            anyio.run(app.compactor.compact, "k")
        assert anyio.run(app.suggest_title, "k") == ""
        app.allow_remote("k")
        assert not app.remote_question("k")


def test_a_remote_model_answers_a_request_that_has_no_session() -> None:
    with nacre.open(":memory:") as sessions:
        app = App(Settings({}, {}), sessions, Remote(["hello"]))

        async def complete() -> object:
            reply = await app.agent_for("").provider().complete(HELLO, emit=lambda _: None)
            return reply.message.content

        assert anyio.run(complete) == "hello"


def test_two_requests_that_fail_at_once_are_both_answered_by_the_fallback() -> None:
    both = anyio.Event()
    waiting: list[None] = []

    class Down(Failing):
        async def complete(self, context: Context, *, emit: Emit) -> Reply:
            waiting.append(None)
            if len(waiting) == 2:
                both.set()
            await both.wait()
            return await super().complete(context, emit=emit)

    first = Model(kind="test", provider=Down(ModelUnavailable("down")))
    chain = ModelChain(first, Settings({}, {}), ["test/two"])
    chain._models[1] = Model(kind="test", provider=Scripted(["hello", "hello"]))

    async def run() -> list[object]:
        said: list[object] = []

        async def ask() -> None:
            said.append((await chain.complete(HELLO, emit=lambda _: None)).message.content)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ask)
            tasks.start_soon(ask)
        return said

    assert anyio.run(run) == ["hello", "hello"]


# ---- settings of one model


class Anything(OllamaServer):
    """A server that answers whatever the path, and whatever the wire."""

    def answer(self, path: str, body: object) -> Answer:
        return self.next()


STOP = b'data: {"choices": [{"delta": {"content": "Hi."}, "finish_reason": "stop"}]}\n\n'
OVER = b'data: {"type": "message_stop"}\n\n'
SHARED = {"temperature": 0.2, "top_p": 0.5, "max_tokens": 2000, "body": {"seed": 7}}


@pytest.mark.parametrize(
    ("model", "own", "answer", "sent"),
    [
        (
            "openai/m",
            {**SHARED, "reasoning_effort": "low", "prompt_cache_key": "k"},
            STOP,
            {"temperature": 0.2, "top_p": 0.5, "max_tokens": 2000, "seed": 7, "reasoning_effort": "low",
             "prompt_cache_key": "k"},
        ),
        (
            "anthropic/m",
            {**SHARED, "thinking_budget": 1024},
            OVER,
            {"temperature": 0.2, "top_p": 0.5, "max_tokens": 2000, "seed": 7,
             "thinking": {"type": "enabled", "budget_tokens": 1024}},
        ),
        (
            "ollama/m",
            {**SHARED, "think": "low", "options": {"top_k": 4}},
            said("Hi.") + done(),
            {"think": "low", "seed": 7,
             "options": {"top_k": 4, "temperature": 0.2, "top_p": 0.5, "num_predict": 2000, "num_ctx": 32_000}},
        ),
    ],
    ids=["openai", "anthropic", "ollama"],
)  # fmt: skip
def test_requests_carry_the_settings_of_their_model(
    model: str, own: dict[str, Any], answer: bytes, sent: dict[str, Any]
) -> None:
    async def run(name: str) -> dict[str, Any]:
        async with serving(Anything([Answer(chunks=(answer,))], {})) as server:
            places = {"openai": {"base_url": server.host}, "anthropic": {"base_url": server.host}}
            tables = {**places, "ollama": {"host": server.host}, "models": {model: own}}
            provider = (await choose(Settings(tables, {}), name)).provider
            await provider.complete(Context(messages=[Message(role="user", content="Hello")]), emit=lambda _: None)
            await provider.close()
            return server.requests[-1][1]

    assert {field: anyio.run(run, model).get(field) for field in sent} == sent
    assert "temperature" not in json.dumps(anyio.run(run, f"{model}2"))


def test_a_model_has_the_timeouts_that_were_set() -> None:
    async def run() -> None:
        async with serving(Anything([Answer(end="hang")], {})) as server:
            own = {"openai/m": {"read_timeout": 0.05, "connect_timeout": 1, "total_timeout": 60}}
            settings = Settings({"openai": {"base_url": server.host}, "models": own}, {})
            provider = (await choose(settings, "openai/m")).provider
            with pytest.raises(ProviderError, match=r"did not begin to answer within 0.05 seconds"):
                await provider.complete(Context(messages=[]), emit=lambda _: None)
            await provider.close()

    anyio.run(run)


def test_a_budget_for_thinking_that_leaves_no_room_for_an_answer_is_refused() -> None:
    tables = {"anthropic": {"base_url": "http://127.0.0.1"}, "models": {"anthropic/m": {"thinking_budget": 8192}}}
    with pytest.raises(ConfigError, match=r"thinking_budget is 8192, and the whole answer may have 8192 tokens"):
        anyio.run(choose, Settings(tables, {}), "anthropic/m")
