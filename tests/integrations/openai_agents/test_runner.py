"""All that the SDK documents of sessions, by its real Runner with a scripted model, next to its SQLiteSession."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from agents import (
    Agent,
    GuardrailFunctionOutput,
    InputGuardrail,
    InputGuardrailTripwireTriggered,
    Model,
    ModelResponse,
    OutputGuardrail,
    OutputGuardrailTripwireTriggered,
    RunConfig,
    Runner,
    RunState,
    SessionSettings,
    SQLiteSession,
    Usage,
    function_tool,
    set_tracing_disabled,
)
from agents.memory import OpenAIResponsesCompactionSession
from openai.types.responses import (
    Response,
    ResponseCompletedEvent,
    ResponseFunctionToolCall,
    ResponseOutputMessage,
    ResponseOutputText,
)

import nacre
from nacre.integrations.openai_agents import NacreSession

set_tracing_disabled(True)


class ScriptedModel(Model):
    """Gives one output after the other, and keeps what it was asked."""

    def __init__(self, *outputs: list[Any] | Exception) -> None:
        self.outputs = list(outputs)
        self.asked: list[Any] = []

    async def get_response(self, system_instructions: Any, input: Any, *_: Any, **__: Any) -> ModelResponse:
        self.asked.append(input)
        output = self.outputs.pop(0)
        if isinstance(output, Exception):
            raise output
        return ModelResponse(output=output, usage=Usage(), response_id=f"resp_{len(self.asked)}")

    async def stream_response(self, *args: Any, **named: Any) -> AsyncIterator[Any]:
        found = await self.get_response(*args, **named)
        response = Response(
            id=found.response_id or "",
            created_at=0,
            model="scripted",
            object="response",
            output=found.output,
            tool_choice="none",
            tools=[],
            parallel_tool_calls=True,
        )
        yield ResponseCompletedEvent(type="response.completed", response=response, sequence_number=0)


def say(text: str) -> ResponseOutputMessage:
    content = ResponseOutputText(type="output_text", text=text, annotations=[], logprobs=[])
    return ResponseOutputMessage(
        id=f"msg_{text}", type="message", role="assistant", status="completed", content=[content]
    )


def call(name: str, id: str, arguments: str = "{}") -> ResponseFunctionToolCall:
    return ResponseFunctionToolCall(id=f"fc_{id}", call_id=id, type="function_call", name=name, arguments=arguments)


@function_tool
def weather(city: str) -> str:
    return f"sun in {city}"


@function_tool(needs_approval=True)
def launch() -> str:
    return "launched"


MakeSession = Callable[[str], Any]


async def talk_twice(make: MakeSession) -> list[Any]:
    model = ScriptedModel([say("hi Ann")], [say("Ann")])
    agent = Agent(name="a", model=model)
    await Runner.run(agent, "I am Ann", session=make("s"))
    result = await Runner.run(agent, "who am I?", session=make("s"))
    return [model.asked, result.final_output, result.to_input_list()]


async def use_tools_in_parallel(make: MakeSession) -> list[Any]:
    calls = [call("weather", "c1", '{"city":"Oslo"}'), call("weather", "c2", '{"city":"Rome"}')]
    model = ScriptedModel(calls, [say("both sunny")], [say("yes")])
    agent = Agent(name="a", model=model, tools=[weather])
    await Runner.run(agent, "compare", session=make("s"))
    await Runner.run(agent, "sure?", session=make("s"))
    return model.asked


async def hand_off(make: MakeSession) -> list[Any]:
    other = Agent(name="other", model=ScriptedModel([say("hola")], [say("adios")]))
    first = Agent(name="first", model=ScriptedModel([call("transfer_to_other", "h1")]), handoffs=[other])
    result = await Runner.run(first, "en espanol", session=make("s"))
    await Runner.run(result.last_agent, "bye", session=make("s"))
    return [result.last_agent.name, other.model.asked]  # type: ignore[union-attr]


async def stream(make: MakeSession) -> list[Any]:
    model = ScriptedModel([call("weather", "c1", '{"city":"Oslo"}')], [say("sun")], [say("again")])
    agent = Agent(name="a", model=model, tools=[weather])
    for text in ("weather?", "and now?"):
        run = Runner.run_streamed(agent, text, session=make("s"))
        async for _ in run.stream_events():
            pass
    return model.asked


async def correct_a_question(make: MakeSession) -> list[Any]:
    model, session = ScriptedModel([say("5")], [say("4")]), make("s")
    agent = Agent(name="a", model=model)
    await Runner.run(agent, "2+3?", session=session)
    popped = [await session.pop_item(), await session.pop_item()]
    await Runner.run(agent, "2+2?", session=session)
    return [popped, model.asked]


async def limit_what_is_read(make: MakeSession) -> list[Any]:
    model, session = ScriptedModel(*([say(str(n))] for n in range(6))), make("s")
    agent = Agent(name="a", model=model)
    for n in range(3):
        await Runner.run(agent, f"question {n}", session=session)
    await Runner.run(agent, "short", session=session, run_config=RunConfig(session_settings=SessionSettings(limit=2)))
    session.session_settings = SessionSettings(limit=3)
    await Runner.run(agent, "three", session=session)
    return [model.asked, await session.get_items(), await session.get_items(1)]


async def keep_sessions_apart(make: MakeSession) -> list[Any]:
    model = ScriptedModel([say("a")], [say("b")], [say("c")])
    agent = Agent(name="a", model=model)
    await Runner.run(agent, "first", session=make("one"))
    await Runner.run(agent, "second", session=make("two"))
    await Runner.run(agent, "third", session=make("one"))
    await make("two").clear_session()
    return [model.asked, await make("one").get_items(), await make("two").get_items()]


async def approve_after_a_restart(make: MakeSession) -> list[Any]:
    model = ScriptedModel([call("launch", "c1")], [say("done")], [say("bye")])
    agent = Agent(name="a", model=model, tools=[launch])
    result = await Runner.run(agent, "go", session=make("s"))
    before = await make("s").get_items()
    state = await RunState.from_string(agent, result.to_state().to_string())
    for one in state.get_interruptions():
        state.approve(one)
    result = await Runner.run(agent, state, session=make("s"))
    await Runner.run(agent, "thanks", session=make("s"))
    return [before, result.final_output, model.asked]


async def fail_and_retry(make: MakeSession) -> list[Any]:
    model = ScriptedModel(RuntimeError("down"), [say("ok")])
    agent = Agent(name="a", model=model)
    with pytest.raises(RuntimeError, match="down"):
        await Runner.run(agent, "hello", session=make("s"))
    after = await make("s").get_items()
    await Runner.run(agent, "hello", session=make("s"))
    return [after, model.asked]


async def trip_the_guardrail_of_the_input(make: MakeSession) -> list[Any]:
    async def check(context: Any, agent: Any, given: Any) -> GuardrailFunctionOutput:
        return GuardrailFunctionOutput(output_info=None, tripwire_triggered="secret" in str(given))

    # It runs before the model, so that what is stored does not depend on which of them is faster.
    guardrail: InputGuardrail[Any] = InputGuardrail(guardrail_function=check, run_in_parallel=False)
    model = ScriptedModel([say("hello")], [say("fine")])
    agent = Agent(name="a", model=model, input_guardrails=[guardrail])
    await Runner.run(agent, "hi", session=make("s"))
    with pytest.raises(InputGuardrailTripwireTriggered):
        await Runner.run(agent, "the secret", session=make("s"))
    stored = await make("s").get_items()
    calm = Agent(name="a", model=model)
    await Runner.run(calm, "never mind", session=make("s"))
    return [stored, model.asked]


async def trip_the_guardrail_of_the_output(make: MakeSession) -> list[Any]:
    async def check(context: Any, agent: Any, output: Any) -> GuardrailFunctionOutput:
        return GuardrailFunctionOutput(output_info=None, tripwire_triggered="secret" in str(output))

    guardrail: OutputGuardrail[Any] = OutputGuardrail(guardrail_function=check)
    model = ScriptedModel([say("hello")], [say("a secret")], [say("fine")])
    agent = Agent(name="a", model=model, output_guardrails=[guardrail])
    await Runner.run(agent, "hi", session=make("s"))
    with pytest.raises(OutputGuardrailTripwireTriggered):
        await Runner.run(agent, "what is it?", session=make("s"))
    stored = await make("s").get_items()
    await Runner.run(agent, "never mind", session=make("s"))
    return [stored, model.asked]


async def rewind_for_a_retry(make: MakeSession) -> list[Any]:
    from agents.run_internal.session_persistence import rewind_session_items  # noqa: PLC0415 - the SDK's own

    session = make("s")
    kept: list[Any] = [{"role": "user", "content": "first"}]
    retried: list[Any] = [{"role": "user", "content": "second"}, call("weather", "c1").model_dump(exclude_unset=True)]
    await session.add_items(kept + retried)
    await rewind_session_items(session, retried)
    return await session.get_items()  # type: ignore[no-any-return]


async def choose_the_input(make: MakeSession) -> list[Any]:
    def newest_first(history: list[Any], new: list[Any]) -> list[Any]:
        return [*new, *history[-1:]]

    model = ScriptedModel([say("one")], [say("two")])
    agent = Agent(name="a", model=model)
    await Runner.run(agent, "first", session=make("s"))
    config = RunConfig(session_input_callback=newest_first)
    items: Any = [{"role": "user", "content": "second"}]
    await Runner.run(agent, items, session=make("s"), run_config=config)
    return model.asked


class CompactingClient:
    """The part of OpenAI's client that compacts."""

    def __init__(self) -> None:
        self.asked: list[Any] = []
        self.responses = self

    async def compact(self, **named: Any) -> Any:
        self.asked.append(named)
        item = {"type": "compaction", "id": f"cmp_{len(self.asked)}", "encrypted_content": "all of it"}
        return SimpleNamespace(output=[item], usage=None)


async def compact(make: MakeSession) -> list[Any]:
    client: Any = CompactingClient()
    session = OpenAIResponsesCompactionSession(
        "s",
        make("s"),
        client=client,
        compaction_mode="input",
        should_trigger_compaction=lambda context: len(context["session_items"]) >= 4,
    )
    model = ScriptedModel(*([say(str(n))] for n in range(5)))
    agent = Agent(name="a", model=model)
    seen = []
    for n in range(5):
        await Runner.run(agent, f"question {n}", session=session)
        seen.append(await session.get_items())
    await session.run_compaction({"force": True})
    return [seen, await make("s").get_items(), client.asked, model.asked]


async def encrypt(make: MakeSession) -> list[Any]:
    encrypt_session = pytest.importorskip("agents.extensions.memory.encrypt_session")
    model = ScriptedModel([say("hi Ann")], [say("Ann")], [say("Bob")])
    agent = Agent(name="a", model=model)
    session = encrypt_session.EncryptedSession("s", make("s"), encryption_key="secret")
    await Runner.run(agent, "I am Ann", session=session)
    await Runner.run(agent, "who?", session=session)
    assert "Ann" not in repr(await make("s").get_items())
    found = [model.asked, await session.get_items(2), await session.pop_item(), await session.get_items()]
    # No two ciphers of a text are the same.
    await session.clear_session()
    return found


SCENARIOS: list[Callable[[MakeSession], Awaitable[list[Any]]]] = [
    talk_twice,
    use_tools_in_parallel,
    hand_off,
    stream,
    correct_a_question,
    limit_what_is_read,
    keep_sessions_apart,
    approve_after_a_restart,
    fail_and_retry,
    trip_the_guardrail_of_the_input,
    trip_the_guardrail_of_the_output,
    rewind_for_a_retry,
    choose_the_input,
    compact,
    encrypt,
]


@pytest.fixture(params=["sessions", "async sessions"])
def make(request: pytest.FixtureRequest, place: str) -> Iterator[MakeSession]:
    with nacre.open(place) as sessions:
        given = sessions if request.param == "sessions" else nacre.AsyncSessions.of(sessions)
        yield lambda key: NacreSession(key, given)


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
def test_a_scenario_ends_as_with_sqlite(
    scenario: Callable[[MakeSession], Awaitable[list[Any]]], make: MakeSession, tmp_path: Path
) -> None:
    opened: list[SQLiteSession] = []

    def make_sqlite(id: str) -> SQLiteSession:
        opened.append(SQLiteSession(id, tmp_path / "sqlite.db"))
        return opened[-1]

    async def run() -> None:
        try:
            expected = [await scenario(make_sqlite), await make_sqlite("s").get_items()]
        finally:
            for session in opened:
                session.close()
        assert [await scenario(make), await make("s").get_items()] == expected

    asyncio.run(run())
