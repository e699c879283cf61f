"""NacreSessionService under ADK's own Runner, in several processes, and next to other readers of the store."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from google.adk.agents import LlmAgent
from google.adk.apps.app import App, EventsCompactionConfig
from google.adk.apps.base_events_summarizer import BaseEventsSummarizer
from google.adk.errors import StaleSessionError
from google.adk.events.event import Event
from google.adk.events.event_actions import EventActions, EventCompaction
from google.adk.models.base_llm import BaseLlm
from google.adk.models.llm_request import LlmRequest
from google.adk.models.llm_response import LlmResponse
from google.adk.runners import Runner
from google.adk.sessions.base_session_service import BaseSessionService, GetSessionConfig
from google.adk.sessions.in_memory_session_service import InMemorySessionService
from google.adk.sessions.session import Session
from google.adk.tools.tool_context import ToolContext
from google.genai import types
from pydantic import Field

import nacre
from nacre.integrations.adk import NacreSessionService
from tests.event_loop import assert_loop_goes_on, async_methods

# ADK says of its compaction that it may change.
pytestmark = pytest.mark.filterwarnings(r"ignore:\[EXPERIMENTAL\]:UserWarning")
WHO: Any = {"app_name": "app", "user_id": "ann"}


class Scripted(BaseLlm):
    """A model that says one part after another, and keeps the texts and results that it was sent."""

    script: list[types.Part]
    asked: list[list[Any]] = Field(default_factory=list)

    async def generate_content_async(
        self,
        llm_request: LlmRequest,
        stream: bool = False,  # noqa: FBT002 - as in BaseLlm
    ) -> AsyncGenerator[LlmResponse, None]:
        parts = [part for content in llm_request.contents for part in content.parts or ()]
        self.asked.append([shown(part) for part in parts])
        yield LlmResponse(content=types.Content(role="model", parts=[self.script[len(self.asked) - 1]]))


def shown(part: types.Part) -> Any:
    if part.function_call:
        return part.function_call.name, part.function_call.args
    return part.text if part.function_response is None else part.function_response.response


def look_up(city: str, tool_context: ToolContext) -> dict[str, Any]:
    """Look up the weather of a city."""
    tool_context.state["city"] = city
    tool_context.state["user:cities"] = [*tool_context.state.get("user:cities", []), city]
    tool_context.state["app:calls"] = tool_context.state.get("app:calls", 0) + 1
    tool_context.state["temp:raw"] = "not stored"
    return {"result": f"sunny in {city}"}


class Summarizer(BaseEventsSummarizer):
    """Says how many events there were."""

    async def maybe_summarize_events(self, *, events: list[Event]) -> Event | None:
        content = types.Content(role="model", parts=[types.Part(text=f"summary of {len(events)} events")])
        start, end = events[0].timestamp, events[-1].timestamp
        compaction = EventCompaction(start_timestamp=start, end_timestamp=end, compacted_content=content)
        return Event(author="user", invocation_id=Event.new_id(), actions=EventActions(compaction=compaction))


def say(text: str) -> types.Content:
    return types.Content(role="user", parts=[types.Part(text=text)])


def call(city: str) -> types.Part:
    return types.Part(function_call=types.FunctionCall(id=f"c-{city}", name="look_up", args={"city": city}))


async def talk(service: BaseSessionService, *, compacts: bool = False) -> tuple[list[Any], Any]:
    """Three turns, of which the second is taken back before the third; what the model was sent, and the session."""
    script = [
        call("Rome"),
        types.Part(text="sunny"),
        call("Oslo"),
        types.Part(text="sunny too"),
        types.Part(text="bye"),
    ]
    model = Scripted(model="scripted", script=script)
    config = EventsCompactionConfig(summarizer=Summarizer(), compaction_interval=2, overlap_size=0)
    agent = LlmAgent(name="agent", model=model, tools=[look_up])
    app = App(name="app", root_agent=agent, events_compaction_config=config if compacts else None)
    runner = Runner(app=app, session_service=service)
    await service.create_session(**WHO, session_id="s", state={"app:calls": 0})
    second = ""
    for text in ("Rome?", "Oslo?"):
        async for event in runner.run_async(user_id="ann", session_id="s", new_message=say(text)):
            second = event.invocation_id
    if not compacts:
        await runner.rewind_async(user_id="ann", session_id="s", rewind_before_invocation_id=second)
    async for _ in runner.run_async(user_id="ann", session_id="s", new_message=say("Bye")):
        pass
    await runner.close()
    session = await service.get_session(**WHO, session_id="s")
    assert session is not None
    events = [
        (it.author, [shown(part) for part in it.content.parts or ()] if it.content else []) for it in session.events
    ]
    actions = [(sorted(it.actions.state_delta), it.actions.compaction is not None) for it in session.events]
    return model.asked, (session.state, events, actions)


@pytest.mark.parametrize("compacts", [False, True])
def test_a_runner_has_the_same_conversation_as_with_adks_own_service(place: str, compacts: bool) -> None:
    async def run() -> None:
        expected = await talk(InMemorySessionService(), compacts=compacts)
        async with nacre.open_async(place) as sessions:
            asked, (state, events, actions) = await talk(NacreSessionService(sessions), compacts=compacts)
        # ADK's service in memory hands out `temp:` values that a durable one does not.
        assert (asked, events, actions) == (expected[0], *expected[1][1:])
        assert state == {name: value for name, value in expected[1][0].items() if not name.startswith("temp:")}
        if compacts:
            assert any(is_compaction for _, is_compaction in actions)
            assert any("summary of" in str(part) for part in asked[-1])
        else:
            assert "Oslo?" not in asked[-1]
            assert state["user:cities"] == ["Rome", "Oslo"]

    asyncio.run(run())


def test_nacre_sessions_show_reads_what_adk_wrote(root: Path) -> None:
    async def run() -> None:
        async with nacre.open_async(root) as sessions:
            await talk(NacreSessionService(sessions))

    asyncio.run(run())
    command = [sys.executable, "-m", "nacre", "sessions", "show", "--full", "--store", str(root), "app/ann/s"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    for text in ("Rome?", "look_up", "sunny in Rome", "sunny too", "bye"):
        assert text in done.stdout


ALL = ["Rome?", None, "sunny in Rome", "sunny", "Oslo?", None, "sunny in Oslo", "sunny too", None, "Bye", "bye"]


@pytest.mark.parametrize("compacts", [False, True])
def test_what_adk_took_back_or_summarized_is_there_for_others(compacts: bool, place: str) -> None:
    async def run() -> None:
        with nacre.open(place) as sessions:
            await talk(NacreSessionService(sessions), compacts=compacts)
            assert [one.content for one in sessions.get_history("app/ann/s")] == ALL

    asyncio.run(run())


def test_what_nacre_took_back_is_not_there_for_adk(place: str) -> None:
    async def run() -> None:
        with nacre.open(place) as sessions:
            service = NacreSessionService(sessions)
            await talk(service)
            sessions.rewind("app/ann/s", before=sessions.snapshot("app/ann/s").numbers[4])
            model = Scripted(model="scripted", script=[types.Part(text="bye")])
            runner = Runner(app_name="app", agent=LlmAgent(name="agent", model=model), session_service=service)
            async for _ in runner.run_async(user_id="ann", session_id="s", new_message=say("Bye")):
                pass
            await runner.close()
            assert model.asked == [
                ["Rome?", ("look_up", {"city": "Rome"}), {"result": "sunny in Rome"}, "sunny", "Bye"]
            ]

    asyncio.run(run())


def test_a_conversation_of_another_framework_is_read_and_continued(place: str) -> None:
    async def run() -> None:
        with nacre.open(place) as sessions:
            function = {"name": "look_up", "arguments": '{"city": "Rome"}'}
            messages: list[dict[str, Any]] = [
                {"role": "user", "content": "Rome?"},
                {
                    "role": "assistant",
                    "content": None,
                    "tool_calls": [{"id": "c", "type": "function", "function": function}],
                },
                {"role": "tool", "tool_call_id": "c", "name": "look_up", "content": "sunny"},
                {"role": "assistant", "content": "Sunny."},
            ]
            sessions.add_messages("app/ann/s", messages)
            service = NacreSessionService(sessions)
            model = Scripted(model="scripted", script=[types.Part(text="bye")])
            runner = Runner(app_name="app", agent=LlmAgent(name="agent", model=model), session_service=service)
            async for _ in runner.run_async(user_id="ann", session_id="s", new_message=say("Bye")):
                pass
            await runner.close()
            # What another agent has said, ADK tells the model as context.
            sent = str(model.asked[0])
            assert all(text in sent for text in ("Rome?", "look_up", "sunny", "Sunny.", "Bye"))
            assert [one.content for one in sessions.get_history("app/ann/s", last=2)] == ["Bye", "bye"]

    asyncio.run(run())


# ---- large, odd and concurrent


def test_texts_of_any_size_and_bytes_come_back_after_reopening(lasting_place: str) -> None:
    texts = ["", "é\u2028\x00🐚", "x" * 1_000_000]
    parts = [
        *(types.Part(text=text) for text in texts),
        types.Part(inline_data=types.Blob(data=bytes(range(256)), mime_type="image/png")),
    ]
    event = Event(author="user", content=types.Content(role="user", parts=parts))
    names: Any = {"app_name": "a:b/%", "user_id": "ü/ 🐚", "session_id": "s/1%2F"}

    async def run() -> None:
        async with nacre.open_async(lasting_place) as sessions:
            service = NacreSessionService(sessions)
            await service.append_event(await service.create_session(**names), event)
        async with nacre.open_async(lasting_place) as sessions:
            service = NacreSessionService(sessions)
            loaded = await service.get_session(**names)
            assert loaded is not None
            assert loaded.events == [event]
            [listed] = (await service.list_sessions(app_name="a:b/%")).sessions
            assert (listed.app_name, listed.user_id, listed.id) == tuple(names.values())

    asyncio.run(run())


def test_partial_events_are_not_stored_and_appends_at_once_are_in_order(place: str) -> None:
    async def run() -> None:
        async with nacre.open_async(place) as sessions:
            service = NacreSessionService(sessions)
            session = await service.create_session(**WHO, session_id="s")
            await service.append_event(session, Event(author="agent", content=say("par"), partial=True))
            events = [Event(author="user", content=say(str(n))) for n in range(20)]
            await asyncio.gather(*(service.append_event(session, event) for event in events))
            await service.flush()
            loaded = await service.get_session(**WHO, session_id="s")
            assert loaded is not None
            assert sorted(it.id for it in loaded.events) == sorted(it.id for it in events)

    asyncio.run(run())


def test_the_last_events_are_read_without_the_others(root: Path) -> None:
    async def run() -> None:
        with nacre.open(root) as sessions:
            service = NacreSessionService(sessions)
            session = await service.create_session(**WHO, session_id="s")
            for n in range(1000):
                await service.append_event(session, Event(author="user", content=say(str(n)), timestamp=1e9 + n))
            read: list[int | None] = []
            snapshot = sessions.snapshot
            sessions.snapshot = lambda key, *, last=None: read.append(last) or snapshot(key, last=last)  # type: ignore[method-assign, func-returns-value]
            for config in (
                GetSessionConfig(num_recent_events=3),
                GetSessionConfig(after_timestamp=1e9 + 997),
                GetSessionConfig(num_recent_events=900, after_timestamp=1e9 + 997),
            ):
                loaded = await service.get_session(**WHO, session_id="s", config=config)
                assert loaded is not None
                assert [it.timestamp - 1e9 for it in loaded.events] == [997, 998, 999]
            assert all(last is not None and last <= 901 for last in read)
            assert sum(last or 0 for last in read) < 1000

    asyncio.run(run())


MANY = [nacre.Message(role="user", content=str(n)) for n in range(1000)]
PARTS = [types.Part(text=str(n)) for n in range(1000)]
LONG = Event(author="user", content=types.Content(role="user", parts=PARTS), actions=EventActions(state_delta={"n": 1}))
AWAITED: dict[str, Callable[[NacreSessionService], Awaitable[Any]]] = {
    "create_session": lambda service: service.create_session(**WHO, session_id="new", state={"user:x": 1}),
    "get_session": lambda service: service.get_session(**WHO, session_id="s"),
    "list_sessions": lambda service: service.list_sessions(**WHO),
    "delete_session": lambda service: service.delete_session(**WHO, session_id="s"),
    "get_user_state": lambda service: service.get_user_state(**WHO),
    # The session object is none that nacre has made.
    "append_event": lambda service: service.append_event(
        Session(app_name="app", user_id="ann", id="s", last_update_time=4e9), LONG
    ),
}


def fill(sessions: nacre.Sessions) -> None:
    sessions.add_messages("app/ann/s", MANY)
    for n in range(20):
        sessions.add_message(f"app/ann/{n}", "user", "hello")


@pytest.mark.parametrize("method", AWAITED)
def test_no_call_blocks_the_event_loop(method: str) -> None:
    assert_loop_goes_on(fill, lambda sessions: AWAITED[method](NacreSessionService(sessions)), most=500)


def test_every_method_is_tried_in_the_event_loop() -> None:
    assert async_methods(NacreSessionService) == set(AWAITED)


# ---- several processes

WRITER = """
import asyncio, sys, nacre
from google.adk.errors import StaleSessionError
from google.adk.events.event import Event
from google.adk.events.event_actions import EventActions
from google.genai import types
from nacre.integrations.adk import NacreSessionService
place, who, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
async def main():
    async with nacre.open_async(place) as sessions:
        service = NacreSessionService(sessions)
        for number in range(count):
            content = types.Content(role="user", parts=[types.Part(text=f"{who} {number}")])
            actions = EventActions(state_delta={f"user:{who}": number, who: number})
            while True:
                session = await service.get_session(app_name="app", user_id="ann", session_id="s")
                try:
                    await service.append_event(session, Event(author="user", content=content, actions=actions))
                    break
                except StaleSessionError:
                    continue
            print(number, flush=True)
asyncio.run(main())
"""


def texts_of(session: Any) -> list[str]:
    return [event.content.parts[0].text for event in session.events]


async def create(place: str) -> None:
    async with nacre.open_async(place) as sessions:
        await NacreSessionService(sessions).create_session(**WHO, session_id="s")


async def load(place: str) -> Any:
    async with nacre.open_async(place) as sessions:
        service = NacreSessionService(sessions)
        session = await service.get_session(**WHO, session_id="s")
        return session, await service.get_user_state(**WHO)


def test_two_processes_lose_no_event_and_no_state(lasting_place: str) -> None:
    asyncio.run(create(lasting_place))
    command = [sys.executable, "-c", WRITER, lasting_place]
    writers = [subprocess.Popen([*command, who, "15"], stdout=subprocess.DEVNULL) for who in ("a", "b")]
    assert [writer.wait() for writer in writers] == [0, 0]
    session, shared = asyncio.run(load(lasting_place))
    for who in ("a", "b"):
        assert [text for text in texts_of(session) if text[0] == who] == [f"{who} {n}" for n in range(15)]
    assert shared == {"a": 14, "b": 14}
    assert session.state == {"a": 14, "b": 14, "user:a": 14, "user:b": 14}


def test_a_killed_process_leaves_events_and_state_that_agree(lasting_place: str) -> None:
    asyncio.run(create(lasting_place))
    for round_number in range(3):
        who = f"r{round_number}"
        command = [sys.executable, "-c", WRITER, lasting_place, who, "100000"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as writer:
            assert writer.stdout is not None
            lines = [writer.stdout.readline() for _ in range(4 + 3 * round_number)]
            writer.kill()
            acknowledged = [line for line in [*lines, *writer.stdout.readlines()] if line.endswith("\n")]
        session, shared = asyncio.run(load(lasting_place))
        stored = [text for text in texts_of(session) if text.startswith(f"{who} ")]
        assert stored == [f"{who} {n}" for n in range(len(stored))]
        assert len(stored) >= len(acknowledged)
        assert shared[who] == session.state[who] == len(stored) - 1


def test_an_object_that_another_process_made_stale_is_refused(lasting_place: str) -> None:
    async def run() -> None:
        async with nacre.open_async(lasting_place) as sessions:
            service = NacreSessionService(sessions)
            session = await service.create_session(**WHO, session_id="s")
            command = [sys.executable, "-c", WRITER, lasting_place, "a", "1"]
            await asyncio.to_thread(subprocess.run, command, check=True, stdout=subprocess.DEVNULL)
            with pytest.raises(StaleSessionError):
                await service.append_event(session, Event(author="user", content=say("late")))
            loaded = await service.get_session(**WHO, session_id="s")
            assert texts_of(loaded) == ["a 0"]

    asyncio.run(run())


ROME, OSLO = ("look_up", {"city": "Rome"}), ("look_up", {"city": "Oslo"})
ERASED = {"result": "[erased]"}


@pytest.mark.parametrize(
    ("erased", "sent"),
    [
        (0, ["[erased]", ROME, OSLO, {"result": "hot"}, {"result": "cold"}, "Hot and cold."]),
        (1, ["Where?", ("look_up", {}), ("look_up", {}), {"result": "hot"}, {"result": "cold"}, "Hot and cold."]),
        (2, ["Where?", ROME, OSLO, ERASED, {"result": "cold"}, "Hot and cold."]),
        (3, ["Where?", ROME, OSLO, {"result": "hot"}, ERASED, "Hot and cold."]),
        (4, ["Where?", ROME, OSLO, {"result": "hot"}, {"result": "cold"}, "[erased]"]),
    ],
)
def test_what_is_left_after_erasing_is_sent_as_the_agents_own(erased: int, sent: list[Any], place: str) -> None:
    def result(city: str, text: str) -> types.Part:
        response = {"result": text}
        return types.Part(function_response=types.FunctionResponse(id=f"c-{city}", name="look_up", response=response))

    async def main() -> None:
        with nacre.open(place) as sessions:
            service = NacreSessionService(sessions)
            session = await service.create_session(**WHO, session_id="s")
            parts = [call("Rome"), call("Oslo")]
            for author, role, said in (
                ("user", "user", [types.Part(text="Where?")]),
                ("agent", "model", parts),
                ("agent", "user", [result("Rome", "hot"), result("Oslo", "cold")]),
                ("agent", "model", [types.Part(text="Hot and cold.")]),
            ):
                event = Event(author=author, invocation_id="i", content=types.Content(role=role, parts=said))
                await service.append_event(session, event)
            sessions.redact("app/ann/s", sessions.snapshot("app/ann/s").numbers[erased])

            model = Scripted(model="scripted", script=[types.Part(text="bye")])
            agent = LlmAgent(name="agent", model=model, tools=[look_up])
            runner = Runner(app=App(name="app", root_agent=agent), session_service=service)
            async for _ in runner.run_async(user_id="ann", session_id="s", new_message=say("Bye")):
                pass
            await runner.close()
            assert model.asked == [[*sent, "Bye"]]

    asyncio.run(main())


def test_a_result_of_others_has_the_name_of_its_tool(place: str) -> None:
    async def main() -> None:
        with nacre.open(place) as sessions:
            service = NacreSessionService(sessions)
            await service.create_session(**WHO, session_id="s")
            asked = nacre.ToolCall(id="c1", name="look_up", arguments={"city": "Rome"})
            sessions.add_messages(
                "app/ann/s",
                [
                    nacre.Message(role="assistant", tool_calls=(asked,)),
                    nacre.Message(role="tool", tool_call_id="c1", content="hot"),
                ],
            )
            session = await service.get_session(**WHO, session_id="s")
            assert session is not None
            assert [(one.author, one.get_function_responses()) for one in session.events[1:]] == [
                ("assistant", [types.FunctionResponse(id="c1", name="look_up", response={"result": "hot"})])
            ]

    asyncio.run(main())
