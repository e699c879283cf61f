"""Spans of turns, model calls and tools, as OpenTelemetry's own SDK records them."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import suppress
from contextvars import copy_context
from pathlib import Path
from typing import Any

import anyio
import hypothesis
import msgspec
import pytest
from anyio.abc import TaskGroup
from hypothesis import strategies as st
from mcp.client import Client
from mcp.server.lowlevel import Server as McpServer
from mcp.shared.exceptions import MCPError
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, Span, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.semconv._incubating.attributes import gen_ai_attributes
from opentelemetry.trace import SpanKind, StatusCode

import nacre
from nacre.agent.actor import UserMessage
from nacre.agent.ports import Context, Effect, Emit, Notice, Output, Provider, Reply, Scene, Spec, Text, Tool, Usage
from nacre.config import Settings
from nacre.errors import ConfigError, ContextOverflow, ModelUnavailable, NacreError, ProviderError, Stopped, ToolError
from nacre.messages import Message
from nacre.providers.scripted import Call, Pause, Scripted, Thinks
from nacre.runtime import App, Options, model_chain, run_agent, telemetry
from nacre.runtime.agent_parts import AgentParts
from nacre.runtime.models import Model
from nacre.runtime.spans import Spans
from nacre.runtime.telemetry import OFF, is_asked_for, tracing_for
from nacre.servers.mcp import make_server
from nacre.servers.mcp_archive import Archive
from nacre.skills import Catalogue
from nacre.tools.builtin import Report, Task
from nacre.tools.mcp import connection as mcp_connection
from tests.ollama_server import Answer, OllamaServer, done, said, serving

KEY = "telegram-7"
WORD = "albatross"
_exporter = InMemorySpanExporter()


class Trouble(SpanProcessor):
    """A part of the SDK that fails at its beginning or its end, while it is told to."""

    at = ""

    def on_start(self, span: Span, parent_context: Any = None) -> None:
        if self.at == "start":
            raise RuntimeError(WORD)

    def on_end(self, span: ReadableSpan) -> None:
        if self.at == "end":
            raise RuntimeError(WORD)


class Refusing(SpanExporter):
    """An exporter whose server is gone."""

    is_on = False

    def export(self, spans: Any) -> SpanExportResult:
        if self.is_on:
            raise ConnectionError(WORD)
        return SpanExportResult.SUCCESS


_trouble, _refusing = Trouble(), Refusing()


@pytest.fixture(scope="module", autouse=True)
def tracer() -> trace.Tracer:
    """The tracer of this process, which can be set once."""
    provider = TracerProvider()
    for processor in (SimpleSpanProcessor(_refusing), SimpleSpanProcessor(_exporter), _trouble):
        provider.add_span_processor(processor)
    trace.set_tracer_provider(provider)
    return trace.get_tracer("test")


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    _exporter.clear()
    yield
    _trouble.at, _refusing.is_on = "", False


class Look:
    """A tool that reads, refuses, or fails, by what it is asked."""

    effect: Effect = "read"
    spec = Spec(name="look", description="Look.", parameters={"type": "object", "properties": {}})

    async def run(self, arguments: Mapping[str, Any], scene: Scene) -> Output:
        what = arguments.get("at", "")
        if what == "nothing":
            raise ToolError(f"there is no {WORD}")
        return Output(text=f"it is an {WORD}", failed=what == "failure", is_refused=False)


class Delegate:
    """A tool that gives its task to a session of its own."""

    effect: Effect = "run"
    spec = Spec(name="delegate", description="Delegate.", parameters={"type": "object", "properties": {}})

    def __init__(self, app: App) -> None:
        self._app = app

    async def run(self, arguments: Mapping[str, Any], scene: Scene) -> Output:
        task = Task(parent=scene.key, call=scene.call.id, text="a part of it", depth=1, steps=5, tokens=9999)
        report: Report = await self._app.children.run(task, scene.emit)
        return Output(text=report.answer)


def settings(**more: Any) -> Settings:
    tables = {"telemetry": {"spans": "on", **more}, "approvals": {"delegate": "allow"}, "memory": {"enabled": False}}
    return Settings(tables, {})


def make_app(provider: Provider, given: Settings | None = None) -> App:
    app = App(given or settings(), nacre.open(":memory:"), provider)
    tools: dict[str, Tool] = {"look": Look(), "delegate": Delegate(app)}
    app.parts = AgentParts(tools, Catalogue(()), f"The system prompt says {WORD}.", [])
    return app


def run(provider: Provider, *said: str, given: Settings | None = None) -> list[Any]:
    """The answers of an agent, or the errors instead of them."""

    async def talk() -> list[Any]:
        app = make_app(provider, given)
        found: list[Any] = []
        async with app.kernel:
            for text in said:
                try:
                    found.append(await app.kernel.deliver(UserMessage(key=KEY, content=text)))
                except NacreError as error:
                    found.append(error)
        app.sessions.close()
        return found

    return anyio.run(talk)


def recorded() -> list[ReadableSpan]:
    """All spans in the order in which they began."""
    return sorted(_exporter.get_finished_spans(), key=lambda span: span.start_time or 0)


def tree() -> list[tuple[str, str]]:
    """Each span with its parent's name, in the order in which they began."""
    by_id = {span.context.span_id: span.name for span in recorded() if span.context is not None}
    return [(span.name, by_id.get(span.parent.span_id, "?") if span.parent else "") for span in recorded()]


def fields(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


def one(name: str) -> ReadableSpan:
    [found] = [span for span in recorded() if span.name == name]
    return found


def words() -> str:
    """Everything that was recorded, as text."""
    return "\n".join(span.to_json() for span in recorded())


# ---- what is recorded


def test_a_turn_has_a_span_for_itself_and_one_for_each_call_of_the_model_and_of_a_tool() -> None:
    model = Scripted([[Call("look"), Call("look", {"at": "x"})], ContextOverflow("too long"), "done"])
    [answer] = run(model, "look at both")
    assert answer.content == "done"
    turn = "invoke_agent main"
    assert tree() == [
        (turn, ""),
        ("chat scripted", turn),
        ("execute_tool look", turn),
        ("execute_tool look", turn),
        ("chat scripted", turn),
        ("chat scripted", turn),
    ]
    assert len({span.context.trace_id for span in recorded() if span.context is not None}) == 1
    begun, first, tool, _, refused, last = recorded()
    assert fields(begun) == {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.agent.name": "main",
        "gen_ai.conversation.id": KEY,
        "gen_ai.provider.name": "scripted",
        "gen_ai.request.model": "scripted",
    }
    assert fields(first) == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "scripted",
        "gen_ai.request.model": "scripted",
        "gen_ai.response.model": "scripted",
        "gen_ai.conversation.id": KEY,
        "gen_ai.response.finish_reasons": ("tool_call",),
        "gen_ai.response.id": "request_1",
        "gen_ai.usage.input_tokens": 8,
        "gen_ai.usage.output_tokens": 0,
    }
    assert fields(tool) == {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "look",
        "gen_ai.tool.type": "function",
        "gen_ai.tool.call.id": "call_1",
        "gen_ai.conversation.id": KEY,
    }
    assert (fields(refused)["error.type"], refused.status.status_code) == ("ContextOverflow", StatusCode.ERROR)
    assert fields(last)["gen_ai.response.finish_reasons"] == ("stop",)
    assert [span.kind for span in (begun, first, tool)] == [SpanKind.INTERNAL, SpanKind.CLIENT, SpanKind.INTERNAL]
    assert begun.status.status_code is StatusCode.UNSET


def test_every_attribute_is_one_of_the_conventions() -> None:
    known = {value for name, value in vars(gen_ai_attributes).items() if name.startswith("GEN_AI_")} | {"error.type"}
    run(Scripted([[Call("look")], ProviderError("no")]), "hi", given=settings(content=True))
    assert {name for span in recorded() for name in fields(span)} <= known


def test_a_streamed_answer_says_when_its_first_piece_came() -> None:
    async def talk() -> None:
        until, reached = anyio.Event(), anyio.Event()
        app = make_app(Scripted([[Thinks("well"), "one ", Pause(until, reached), "two"]]))
        async with app.kernel, anyio.create_task_group() as group:
            group.start_soon(app.kernel.deliver, UserMessage(key=KEY, content="count"))
            await reached.wait()
            # It ends with its last piece, not with its first.
            assert recorded() == []
            until.set()
        app.sessions.close()

    anyio.run(talk)
    span = one("chat scripted")
    length = ((span.end_time or 0) - (span.start_time or 0)) / 1e9
    assert 0 <= fields(span)["gen_ai.response.time_to_first_chunk"] <= length


class Retrying:
    """A model whose server is asked twice for one answer."""

    model = "flaky"

    async def complete(self, context: Context, *, emit: Emit) -> Reply:
        emit(Notice(f"the server said {WORD}; asking again in 0.5 seconds"))
        emit(Text("done"))
        message = Message(role="assistant", content="done", model="flaky-2026")
        return Reply(message=message, usage=Usage(prompt=10, completion=2, cached=4, request="r"))

    async def close(self) -> None:
        """Nothing is held."""


def test_a_request_that_is_sent_again_is_one_span_that_says_so() -> None:
    run(Retrying(), "hi")
    span = one("chat flaky")
    assert [(event.name, dict(event.attributes or {})) for event in span.events] == [("nacre.notice", {})]
    assert fields(span)["gen_ai.response.model"] == "flaky-2026"
    assert fields(span)["gen_ai.usage.cache_read.input_tokens"] == 4


def test_each_model_of_a_chain_that_is_asked_has_its_own_span(monkeypatch: pytest.MonkeyPatch) -> None:
    async def choose(_: Settings, ref: str | None = None) -> Model:
        kind, name = str(ref).split("/")
        return Model(kind=kind, provider=Scripted(["from the second"], model=name))

    monkeypatch.setattr(model_chain, "choose", choose)
    given = settings()
    first = Model(kind="openai", provider=Scripted([ModelUnavailable("gone")], model="big"))
    run(model_chain.ModelChain(first, given, ["ollama/small"]), "hi", given=given)
    assert tree() == [
        ("invoke_agent main", ""),
        ("chat big", "invoke_agent main"),
        ("chat small", "invoke_agent main"),
    ]
    assert fields(one("chat big"))["error.type"] == "ModelUnavailable"
    assert fields(one("chat small"))["gen_ai.provider.name"] == "ollama"


def test_the_turn_of_a_delegated_task_is_below_the_call_that_gave_it() -> None:
    [answer] = run(Scripted([Call("delegate"), Call("look"), "the part", "all"]), "do it")
    assert answer.content == "all"
    names = [name for name, _ in tree()]
    assert names == [
        "invoke_agent main",
        "chat scripted",
        "execute_tool delegate",
        "invoke_agent main",
        "chat scripted",
        "execute_tool look",
        "chat scripted",
        "chat scripted",
    ]
    spans = recorded()
    parents = [span.parent.span_id if span.parent else 0 for span in spans]
    ids = [span.context.span_id if span.context else 0 for span in spans]
    assert parents == [0, ids[0], ids[0], ids[2], ids[3], ids[3], ids[3], ids[0]]
    assert [fields(span)["gen_ai.conversation.id"] for span in spans] == [KEY] * 3 + [f"{KEY}/call_1"] * 4 + [KEY]


def test_a_turn_is_below_the_span_of_its_caller_and_of_no_earlier_one(tracer: trace.Tracer) -> None:
    async def talk() -> None:
        app = make_app(Scripted(["one", "two", "three"]))
        async with app.kernel:
            for name in ("first request", "second request"):
                with tracer.start_as_current_span(name):
                    await app.kernel.deliver(UserMessage(key=KEY, content=name))
            await app.kernel.deliver(UserMessage(key=KEY, content="a third"))
        app.sessions.close()

    anyio.run(talk)
    found = [parent for name, parent in tree() if name.startswith("invoke_agent")]
    assert found == ["first request", "second request", ""]


def test_work_after_a_turn_is_not_below_it_and_names_its_session() -> None:
    async def talk() -> None:
        app = make_app(Scripted(["one", "A Title"]))
        async with app.kernel:
            await app.kernel.deliver(UserMessage(key=KEY, content="hi"))
            assert await app.improve_title(KEY)
        app.sessions.close()

    anyio.run(talk)
    assert tree() == [("invoke_agent main", ""), ("chat scripted", "invoke_agent main"), ("chat scripted", "")]
    assert fields(recorded()[2])["gen_ai.conversation.id"] == KEY


def test_a_request_that_a_turn_waits_for_is_below_it_and_one_in_the_background_is_not() -> None:
    async def talk() -> None:
        app = make_app(Scripted(["a", "b", "c"]))
        provider = app.tracing.name_session("other", app.provider)
        async with app.kernel:
            await app.kernel.deliver(UserMessage(key=KEY, content="hi"))
            with app.tracing.trace_turn(KEY, copy_context(), agent="main", model=lambda: ("", "")):
                await provider.complete(Context(messages=[]), emit=lambda _: None)
            await provider.complete(Context(messages=[]), emit=lambda _: None)
        app.sessions.close()

    anyio.run(talk)
    assert [parent for name, parent in tree() if name == "chat scripted"] == ["invoke_agent main"] * 2 + [""]
    ids = [fields(span)["gen_ai.conversation.id"] for span in recorded() if span.name == "chat scripted"]
    assert ids == [KEY, "other", "other"]


def test_a_summary_is_below_no_turn_and_names_its_session() -> None:
    async def talk() -> None:
        app = make_app(Scripted(["one", "two", f"The user asked about the {WORD} and got two answers."]))
        async with app.kernel:
            for text in ("first", "second"):
                await app.kernel.deliver(UserMessage(key=KEY, content=f"{text}: what is an {WORD}? " * 40))
            await app.compactor.compact(KEY)
        assert WORD in app.sessions.get_summary(KEY)
        app.sessions.close()

    anyio.run(talk)
    assert tree()[-1] == ("chat scripted", "")
    assert fields(recorded()[-1])["gen_ai.conversation.id"] == KEY


class Leaves:
    """A tool that leaves something to be done in the background, and waits until it is."""

    effect: Effect = "read"
    spec = Spec(name="leave", description="Leave.", parameters={"type": "object", "properties": {}})

    def __init__(self, tasks: TaskGroup, work: Callable[[], Awaitable[object]]) -> None:
        self._tasks, self._work = tasks, work

    async def run(self, arguments: Mapping[str, Any], scene: Scene) -> Output:
        done = anyio.Event()

        async def work() -> None:
            await self._work()
            done.set()

        self._tasks.start_soon(work)
        await done.wait()
        return Output(text="done")


def test_what_runs_in_the_background_begins_a_trace_wherever_it_was_started(tracer: trace.Tracer) -> None:
    async def talk() -> None:
        app = make_app(Scripted([Call("leave"), "A Title", "done", "Another Title"]))
        async with app.kernel, anyio.create_task_group() as tasks:
            app.parts.tools["leave"] = Leaves(tasks, lambda: app.improve_title(KEY))
            with tracer.start_as_current_span("a request"):
                await app.kernel.deliver(UserMessage(key=KEY, content=f"what is an {WORD}? " * 40))
                tasks.start_soon(app.improve_title, KEY)
        app.sessions.close()

    anyio.run(talk)
    assert tree() == [
        ("a request", ""),
        ("invoke_agent main", "a request"),
        ("chat scripted", "invoke_agent main"),
        ("execute_tool leave", "invoke_agent main"),
        ("chat scripted", ""),
        ("chat scripted", "invoke_agent main"),
        ("chat scripted", ""),
    ]
    assert {fields(span)["gen_ai.conversation.id"] for span in recorded()[1:]} == {KEY}


def test_facts_are_read_outside_of_the_span_in_which_the_agent_was_started(home: Path, tracer: trace.Tracer) -> None:
    async def talk() -> None:
        answers = [Answer(chunks=(said("hello"), done())), Answer(chunks=(said("nothing"), done()))]
        async with serving(OllamaServer(answers, {"gemma4:e4b": ["completion", "tools"]})) as server:
            tables = {"telemetry": {"spans": "on"}, "agent": {"titles": False}, "ollama": {"host": server.host}}
            with tracer.start_as_current_span("the start"):
                async with run_agent(Settings(tables, {}), Options(), emit=lambda _: None) as app:
                    await app.kernel.deliver(UserMessage(key=KEY, content=f"I have an {WORD}, and it is blue."))
                    assert app.learner is not None
                    await app.learner.rest()

    anyio.run(talk)
    turn = "invoke_agent main"
    assert tree() == [("the start", ""), (turn, "the start"), ("chat gemma4:e4b", turn), ("chat gemma4:e4b", "")]
    named = [fields(span).get("gen_ai.conversation.id") for span in recorded() if span.name == "chat gemma4:e4b"]
    assert named == [KEY, None]


def test_the_tools_of_a_guest_have_spans_too() -> None:
    async def talk() -> None:
        app = make_app(Scripted([Call("look"), "done"]))
        app.parts = app.parts._replace(for_guests={"look": Look()}, guest_system="Be polite.")
        app.is_guest = lambda _: True
        async with app.kernel:
            await app.kernel.deliver(UserMessage(key=KEY, content="hi"))
        app.sessions.close()

    anyio.run(talk)
    assert [name for name, _ in tree()] == ["invoke_agent main", "chat scripted", "execute_tool look", "chat scripted"]


# ---- what goes wrong


def test_an_error_is_named_by_its_class_in_the_call_and_in_the_turn() -> None:
    [error] = run(Scripted([ProviderError(f"the server repeats: {WORD}")]), "hi")
    assert isinstance(error, ProviderError)
    assert [fields(span)["error.type"] for span in recorded()] == ["ProviderError", "ProviderError"]
    assert [span.status.status_code for span in recorded()] == [StatusCode.ERROR, StatusCode.ERROR]


@pytest.mark.parametrize(("at", "kind"), [("nothing", "ToolError"), ("failure", "failed")])
def test_a_tool_that_fails_has_an_error_and_its_turn_has_none(at: str, kind: str) -> None:
    run(Scripted([Call("look", {"at": at}), "done"]), "hi")
    assert fields(one("execute_tool look"))["error.type"] == kind
    assert "error.type" not in fields(one("invoke_agent main"))


def test_a_turn_that_is_stopped_ends_its_spans() -> None:
    async def talk() -> None:
        reached = anyio.Event()
        app = make_app(Scripted([["some ", Pause(anyio.Event(), reached), "more"]]))
        async with app.kernel, anyio.create_task_group() as group:

            async def ask() -> None:
                with pytest.raises(Stopped):
                    await app.kernel.deliver(UserMessage(key=KEY, content="hi"))

            group.start_soon(ask)
            await reached.wait()
            assert app.kernel.stop(KEY)
        app.sessions.close()

    anyio.run(talk)
    assert [(span.name, fields(span)["error.type"]) for span in recorded()] == [
        ("invoke_agent main", "Stopped"),
        ("chat scripted", "CancelledError"),
    ]


@pytest.mark.parametrize("at", ["start", "end"])
def test_an_sdk_that_fails_disturbs_no_turn_and_is_logged_once(at: str, caplog: pytest.LogCaptureFixture) -> None:
    _trouble.at = at
    with caplog.at_level(logging.WARNING, logger="nacre"):
        answers = run(Scripted([[Call("look")], "one", "two"]), "hi", "again")
    assert [answer.content for answer in answers] == ["one", "two"]
    assert [record.message for record in caplog.records] == ["spans cannot be recorded"]
    assert WORD not in str([vars(record) for record in caplog.records])


def test_an_exporter_that_fails_disturbs_no_turn() -> None:
    _refusing.is_on = True
    [answer] = run(Scripted([[Call("look")], "done"]), "hi")
    assert answer.content == "done"


# ---- content


def chatter() -> Scripted:
    """A model in whose conversation everything has the secret word."""
    call = Call("look", {"at": WORD})
    bad = Call("look", {"at": "nothing", "why": WORD})
    return Scripted([[Thinks(WORD), WORD, call, bad], WORD, ProviderError(WORD)])


def test_no_text_is_in_any_span() -> None:
    run(chatter(), WORD, WORD)
    assert len(recorded()) == 7
    assert WORD not in words()


def test_texts_are_in_the_spans_if_they_are_asked_for() -> None:
    run(chatter(), f"What is an {WORD}?", given=settings(content=True))
    asked, _ = (span for span in recorded() if span.name == "chat scripted")
    said = fields(asked)
    assert json.loads(said["gen_ai.system_instructions"]) == [
        {"type": "text", "content": f"The system prompt says {WORD}."}
    ]
    assert json.loads(said["gen_ai.input.messages"]) == [
        {"role": "user", "parts": [{"type": "text", "content": f"What is an {WORD}?"}]}
    ]
    assert json.loads(said["gen_ai.output.messages"]) == [
        {
            "role": "assistant",
            "parts": [
                {"type": "reasoning", "content": WORD},
                {"type": "text", "content": WORD},
                {"type": "tool_call", "id": "call_1", "name": "look", "arguments": {"at": WORD}},
                {
                    "type": "tool_call",
                    "id": "call_2",
                    "name": "look",
                    "arguments": {"at": "nothing", "why": WORD},
                },
            ],
            "finish_reason": "tool_call",
        }
    ]
    assert [tool["name"] for tool in json.loads(said["gen_ai.tool.definitions"])] == ["look", "delegate"]
    good, bad = (span for span in recorded() if span.name == "execute_tool look")
    assert fields(good)["gen_ai.tool.call.arguments"] == json.dumps({"at": WORD}, separators=(",", ":"))
    assert fields(good)["gen_ai.tool.call.result"] == f"it is an {WORD}"
    assert bad.status.description == f"there is no {WORD}"
    last = fields([span for span in recorded() if span.name == "chat scripted"][-1])
    assert [each["role"] for each in json.loads(last["gen_ai.input.messages"])] == ["user", "assistant", "tool", "tool"]


def test_of_an_image_only_its_kind_is_content() -> None:
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    shown = [{"type": "text", "text": "look"}, image]
    context = Context(messages=[Message(role="user", content=shown)])
    spans = Spans(models={}, has_content=True)
    anyio.run(lambda: spans.trace_model("x", Scripted(["ok"])).complete(context, emit=lambda _: None))
    [message] = json.loads(fields(one("chat scripted"))["gen_ai.input.messages"])
    assert message["parts"] == [{"type": "text", "content": "look"}, {"type": "image_url"}]


def test_of_a_part_in_a_shape_that_nobody_knows_only_its_text_is_content() -> None:
    content = ["bare", "", 7, None, ["nested"], {"text": 7}, {"type": None}, {"type": "text", "text": "plain"}]
    complete(Message(role="assistant", content=content))
    [message] = json.loads(fields(one("chat any"))["gen_ai.output.messages"])
    assert message["parts"] == [
        {"type": "text", "content": "bare"},
        *[{"type": "unknown"}] * 4,
        {"type": "None"},
        {"type": "text", "content": "plain"},
    ]


class Given:
    """A model that gives a message, and a tool that gives a text."""

    model = "any"
    effect: Effect = "read"
    spec = Spec(name="given", description="Give.", parameters={})

    def __init__(self, message: Message) -> None:
        self._message = message

    async def complete(self, context: Context, *, emit: Emit) -> Reply:
        emit(Notice(self._message.role))
        return Reply(message=self._message)

    async def run(self, arguments: Mapping[str, Any], scene: Scene) -> Output:
        return Output(text=self._message.role, failed=True)

    async def close(self) -> None:
        """Nothing is held."""


def complete(message: Message) -> Message:
    """What a traced model gives, after a history with the same message."""
    model = Spans(models={}, has_content=True).trace_model("x", Given(message))
    context = Context(messages=[message], system=message.role)
    return anyio.run(lambda: model.complete(context, emit=lambda _: None)).message


class Mute:
    """A value without a text."""

    def __str__(self) -> str:
        raise ValueError(WORD)

    __repr__ = object.__repr__


_json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text() | st.sampled_from(["type", "text"]), inner),
    max_leaves=10,
)
_values = _json_values | st.builds(object) | st.dates() | st.binary()


def messages(values: st.SearchStrategy[Any], texts: st.SearchStrategy[str]) -> st.SearchStrategy[Message]:
    calls = st.builds(nacre.ToolCall, id=texts, name=texts, arguments=values)
    return st.builds(
        Message,
        role=st.sampled_from(["user", "assistant", "tool", ""]) | texts,
        content=st.none() | texts | st.lists(values) | values,
        tool_calls=st.lists(calls, max_size=2).map(tuple),
        tool_call_id=st.none() | texts,
        reasoning=st.none() | texts,
    )


@hypothesis.given(messages(_values, st.text()))
def test_any_content_is_described(message: Message) -> None:
    _exporter.clear()
    assert complete(message) is message
    for attribute in ("gen_ai.input.messages", "gen_ai.output.messages"):
        [described] = json.loads(fields(one("chat any"))[attribute])
        assert described["role"] == message.role


_endless: list[Any] = []
_endless.append(_endless)
_odd = st.sampled_from([Mute(), [Mute()], {"text": Mute()}, {"type": Mute()}, _endless, {Mute(): 1}, "\ud800"])


@hypothesis.given(messages(_values | _odd, st.text(st.characters())), st.dictionaries(st.text(st.characters()), _odd))
def test_no_content_makes_a_turn_fail(message: Message, arguments: dict[str, Any]) -> None:
    assert complete(message) is message
    tool = Spans(models={}, has_content=True).trace_tools({"given": Given(message)})["given"]
    scene = Scene(key=KEY, call=_call(), emit=lambda _: None)
    assert anyio.run(lambda: tool.run(arguments, scene)).text == message.role


def test_an_error_without_a_text_leaves_a_turn_as_it_is() -> None:
    class Wordless(Exception):
        def __str__(self) -> str:
            raise ValueError(WORD)

    spans = Spans(models={}, has_content=True)
    with pytest.raises(Wordless), spans.span("wordless", {}):
        raise Wordless
    assert fields(one("wordless")) == {"error.type": f"{Wordless.__qualname__}"}


# ---- what other packages would add


def test_our_mcp_server_makes_no_spans_and_a_program_that_uses_that_package_itself_keeps_its_own() -> None:
    assert callable(mcp_connection.Connection)  # it turns them off for ours
    server = make_server(Archive(nacre.open(":memory:"), uri=str))

    async def ask() -> None:
        async with Client(server, mode="legacy") as client:
            with pytest.raises(MCPError, match=WORD):
                await client.call_tool(WORD, {})

    anyio.run(ask)
    assert [(span.name, span.kind) for span in recorded()] == [
        ("MCP send initialize", SpanKind.CLIENT),
        (f"MCP send tools/call {WORD}", SpanKind.CLIENT),
    ]


def test_there_is_nothing_else_in_the_list_that_our_mcp_server_clears() -> None:
    assert [type(one).__name__ for one in McpServer("other").middleware] == ["OpenTelemetryMiddleware"]
    assert make_server(Archive(nacre.open(":memory:"), uri=str)).middleware == []


# ---- when there are spans


ENDPOINT = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:4318"}


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({}, False),
        (ENDPOINT, True),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://127.0.0.1:4318"}, True),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": ""}, False),
        ({"OTEL_TRACES_EXPORTER": "console"}, True),
        ({"OTEL_TRACES_EXPORTER": "none", **ENDPOINT}, False),
        ({"OTEL_SDK_DISABLED": "true", **ENDPOINT}, False),
        ({"OTEL_SERVICE_NAME": "nacre"}, False),
    ],
)
def test_the_standard_variables_ask_for_spans(environ: dict[str, str], expected: bool) -> None:
    assert is_asked_for(environ) is expected
    assert (tracing_for(Settings({}, environ)) is not OFF) is expected


def test_the_setting_wins_over_the_variables() -> None:
    assert tracing_for(Settings({"telemetry": {"spans": "off"}}, ENDPOINT)) is OFF
    assert tracing_for(Settings({"telemetry": {"spans": "on"}}, {"OTEL_SDK_DISABLED": "true"})) is not OFF


def test_a_missing_package_is_an_error_only_if_spans_are_demanded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(telemetry, "find_spec", lambda _: None)
    assert tracing_for(Settings({}, ENDPOINT)) is OFF
    with pytest.raises(ConfigError, match=r'pip install "nacre-sessions\[otel\]"'):
        tracing_for(settings())


def test_nothing_is_wrapped_or_recorded_where_nobody_asked() -> None:
    given = Settings({"memory": {"enabled": False}}, {})
    [answer] = run(Scripted([[Call("look")], "done"]), "hi", given=given)
    assert (answer.content, recorded()) == ("done", [])
    provider, tools = Scripted([]), {"look": Look()}
    assert OFF.trace_model("x", provider) is provider
    assert OFF.trace_tools(tools) is tools
    assert OFF.name_session(KEY, provider) is provider


def test_without_spans_the_package_is_not_imported(tmp_path: Path) -> None:
    program = (
        "import sys, nacre.runtime.app, nacre.runtime.assembly\n"
        "from nacre.config import Settings\n"
        "from nacre.runtime.telemetry import tracing_for\n"
        "tracing_for(Settings({}, {}))\n"
        "sys.exit(any(name.startswith('opentelemetry') for name in sys.modules))\n"
    )
    environ = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path)}
    assert subprocess.run([sys.executable, "-c", program], env=environ, check=False).returncode == 0


def test_tools_that_come_later_are_traced_too() -> None:
    tools: dict[str, Any] = {}
    traced = Spans(models={}, has_content=False).trace_tools(tools)
    tools["look"] = Look()
    scene = Scene(key=KEY, call=_call(), emit=lambda _: None)
    anyio.run(lambda: traced["look"].run({}, scene))
    assert [span.name for span in recorded()] == ["execute_tool look"]
    assert (list(traced), len(traced), traced["look"].effect) == (["look"], 1, "read")


def test_settings_of_a_model_are_in_the_spans_of_its_requests() -> None:
    given = Settings({"telemetry": {"spans": "on"}, "models": {"ollama/scripted": {"temperature": 0.2}}}, {})
    model = tracing_for(given).trace_model("ollama", Scripted(["ok"]))
    with suppress(ProviderError):
        anyio.run(lambda: model.complete(Context(messages=[]), emit=lambda _: None))
    assert fields(one("chat scripted"))["gen_ai.request.temperature"] == 0.2


def _call() -> Any:
    return msgspec.convert({"id": "call_1", "name": "look", "arguments": {}}, nacre.ToolCall)
