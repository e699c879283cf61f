"""NacreSessionService against ADK's own SQLite service, and where it does better."""

from __future__ import annotations

import asyncio
import gc
import json
import tempfile
import threading
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from google.adk.errors import StaleSessionError
from google.adk.errors.already_exists_error import AlreadyExistsError
from google.adk.errors.session_not_found_error import SessionNotFoundError
from google.adk.events.event import Event
from google.adk.events.event_actions import EventActions
from google.adk.sessions.base_session_service import BaseSessionService, GetSessionConfig
from google.adk.sessions.session import Session
from google.adk.sessions.sqlite_session_service import SqliteSessionService
from google.genai import types
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule

import nacre
from nacre.integrations.adk import NacreSessionService

WHO: Any = {"app_name": "app", "user_id": "ann"}
NAMES = st.sampled_from(["a", "b", "user:a", "app:a", "temp:a"])
VALUES = st.sampled_from([None, 1, 2.5, "é", "", [1], {"x": None}])
STATES = st.dictionaries(NAMES, VALUES, max_size=3)
USERS = st.sampled_from(["ann", "bob/%"])
IDS = st.sampled_from(["one", "two"])
PARTS = st.lists(
    st.one_of(
        st.builds(types.Part, text=st.sampled_from(["", "hi", "é\n"]), thought=st.sampled_from([None, True, False])),
        st.builds(
            lambda call, args: types.Part(function_call=types.FunctionCall(id=call, name="f", args=args)),
            st.sampled_from([None, "", "c1"]),
            st.sampled_from([None, {}, {"x": [1, None]}]),
        ),
        st.builds(
            lambda call, response: types.Part(
                function_response=types.FunctionResponse(id=call, name="f", response=response)
            ),
            st.sampled_from([None, "", "c1"]),
            st.sampled_from([None, {}, {"result": "ok"}, {"result": 1}, {"x": "y"}]),
        ),
        st.builds(
            lambda data, kind, name: types.Part(inline_data=types.Blob(data=data, mime_type=kind, display_name=name)),
            st.sampled_from([b"", b"\xff\xfe\xfb"]),
            st.sampled_from(["image/png", "audio/wav", "audio/pcm;rate=24000", "application/pdf", ""]),
            st.sampled_from([None, "", "a.pdf"]),
        ),
        st.builds(
            types.Part.from_executable_code,
            code=st.sampled_from(["", "print(1)"]),
            language=st.just(types.Language.PYTHON),
        ),
        st.builds(
            lambda outcome, output: types.Part(
                code_execution_result=types.CodeExecutionResult(outcome=outcome, output=output)
            ),
            st.just(types.Outcome.OUTCOME_FAILED),
            st.sampled_from([None, "", "1"]),
        ),
        st.just(types.Part.from_uri(file_uri="gs://x/a.pdf", mime_type="application/pdf")),
        st.just(types.Part(text="t", thought_signature=b"\xff\xef")),
    ),
    max_size=4,
)
CONTENTS = st.none() | st.builds(types.Content, role=st.sampled_from([None, "user", "model"]), parts=st.none() | PARTS)


def say(text: str, state: dict[str, Any] | None = None, **more: Any) -> Event:
    content = types.Content(role="user", parts=[types.Part(text=text)])
    return Event(author="user", content=content, actions=EventActions(state_delta=state or {}), **more)


def seen(session: Session | None) -> Any:
    if session is None:
        return None
    return session.user_id, session.id, session.state, [event.model_dump() for event in session.events]


class SameAsSqlite(RuleBasedStateMachine):
    """Random calls of both services: what they return, raise and store is the same."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.runner = asyncio.Runner()
        self.sessions = nacre.open(":memory:")
        self.services = (SqliteSessionService(f"{self.folder.name}/s.db"), NacreSessionService(self.sessions))
        self.kept: dict[Any, list[Session]] = {}
        # Later than the creation of every session, and each event has a time of its own.
        self.now = time.time() + 1000

    def teardown(self) -> None:
        self.sessions.close()
        self.runner.close()
        self.folder.cleanup()

    def both(self, call: Callable[[BaseSessionService, int], Coroutine[Any, Any, Any]]) -> list[Any]:
        found: list[Any] = []
        for at, service in enumerate(self.services):
            try:
                found.append(self.runner.run(call(service, at)))
            except (StaleSessionError, AlreadyExistsError, SessionNotFoundError) as error:
                found.append(type(error))
        shown = [seen(one) if isinstance(one, Session) else one for one in found]
        assert shown[0] == shown[1]
        return found

    @rule(user=USERS, id=IDS | st.just(" two "), state=STATES)
    def create(self, user: str, id: str, state: dict[str, Any]) -> None:
        made = self.both(
            lambda it, _: it.create_session(app_name="app", user_id=user, session_id=id, state=dict(state))
        )
        if isinstance(made[0], Session):
            self.kept.setdefault((user, id.strip()), made)

    @rule(user=USERS, id=IDS)
    def load(self, user: str, id: str) -> None:
        found = self.both(lambda it, _: it.get_session(app_name="app", user_id=user, session_id=id))
        if found[0] is not None:
            self.kept[user, id] = found

    @rule(user=USERS, id=IDS, state=STATES, text=st.sampled_from(["", "hello", "é"]), again=st.booleans())
    def append(self, user: str, id: str, state: dict[str, Any], text: str, again: bool) -> None:
        kept = self.kept.get((user, id))
        if kept is None:
            return
        self.now += 1
        event = say(text, state, id=f"e{self.now}", timestamp=self.now)

        async def append(service: BaseSessionService, at: int) -> Any:
            await service.append_event(kept[at], event.model_copy(deep=True))
            return kept[at].state, [one.id for one in kept[at].events], kept[at].last_update_time

        self.both(append)
        if not again:
            # The object grows old if it is loaded and used again later.
            self.kept[user, id] = [one.model_copy(deep=True) for one in kept]

    @rule(user=USERS, id=IDS)
    def append_to_a_fresh_object(self, user: str, id: str) -> None:
        """What was kept is stale after it."""
        self.now += 1

        async def append(service: BaseSessionService, _: int) -> Any:
            session = await service.get_session(app_name="app", user_id=user, session_id=id)
            if session is not None:
                await service.append_event(
                    session, say("x", {"user:n": self.now}, id=f"e{self.now}", timestamp=self.now)
                )
            return seen(session)

        self.both(append)

    @rule(user=USERS, id=IDS, most=st.sampled_from([None, 0, 1, 3]), back=st.sampled_from([None, 0, 2, 5]))
    def load_some(self, user: str, id: str, most: int | None, back: int | None) -> None:
        after = None if back is None else self.now - back
        config = GetSessionConfig(num_recent_events=most, after_timestamp=after)
        self.both(lambda it, _: it.get_session(app_name="app", user_id=user, session_id=id, config=config))

    @rule(user=USERS, id=IDS)
    def delete(self, user: str, id: str) -> None:
        self.both(lambda it, _: it.delete_session(app_name="app", user_id=user, session_id=id))

    @rule(user=st.none() | USERS)
    def list(self, user: str | None) -> None:
        async def listed(service: BaseSessionService, _: int) -> Any:
            found = (await service.list_sessions(app_name="app", user_id=user)).sessions
            # Those without an event have the times of two creations.
            return sorted([seen(one) for one in found], key=lambda one: one[:2]), [
                one.id for one in found if one.last_update_time > self.now - 900
            ]

        self.both(listed)

    @rule(user=USERS)
    def get_user_state(self, user: str) -> None:
        self.both(lambda it, _: it.get_user_state(app_name="app", user_id=user))


SameAsSqlite.TestCase.settings = settings(max_examples=40, stateful_step_count=25, deadline=None)
TestSameAsSqlite = SameAsSqlite.TestCase


@settings(deadline=None, max_examples=300)
@given(content=CONTENTS, author=st.sampled_from(["", "user", "agent"]), model=st.sampled_from([None, "m"]))
def test_every_event_comes_back_as_from_json(content: Any, author: str, model: str | None) -> None:
    event = Event(author=author, content=content, model_version=model, long_running_tool_ids={"b", "a"})
    expected = Event.model_validate_json(event.model_dump_json(exclude_none=True))

    async def run() -> None:
        with nacre.open(":memory:") as sessions:
            service = NacreSessionService(sessions)
            session = await service.create_session(**WHO, session_id="s")
            await service.append_event(session, event)
            loaded = await service.get_session(**WHO, session_id="s")
            assert loaded is not None
            assert [it.model_dump() for it in loaded.events] == [expected.model_dump()]

    asyncio.run(run())


def test_a_crash_before_the_shared_state_loses_nothing(place: str) -> None:
    async def run() -> None:
        with nacre.open(place) as sessions:
            service = NacreSessionService(sessions)
            session = await service.create_session(**WHO, session_id="s")
            now = sessions.snapshot("app/ann/s")
            pending = {"session": "app/ann/s", "generation": now.generation, "n": now.n, "fields": {"adk:c": ["red"]}}
            sessions.set_meta("app/ann/", {"adk.pending:e1": pending})
            assert await service.get_user_state(**WHO) == {}
            await service.append_event(session, say("hello", id="e1"))
            assert await service.get_user_state(**WHO) == {"c": "red"}
            assert "adk.pending:e1" not in sessions.get_meta("app/ann/")

    asyncio.run(run())


def test_a_crash_before_the_shared_state_loses_nothing_although_the_session_is_archived(place: str) -> None:
    async def run() -> None:
        with nacre.open(place) as sessions:
            service = NacreSessionService(sessions)
            session = await service.create_session(**WHO, session_id="s")
            for at in range(3):
                now = sessions.snapshot("app/ann/s")
                fields = {"adk:c": [at]}
                pending = {"session": "app/ann/s", "generation": now.generation, "n": now.n, "fields": fields}
                sessions.set_meta("app/ann/", {f"adk.pending:e{at}": pending})
                await service.append_event(session, say("hello", id=f"e{at}"))
                if at > 0:
                    sessions.archive("app/ann/")
                sessions.archive("app/ann/s")
                if at > 1:
                    # Deleting takes away the event that the change waits for.
                    await service.delete_session(**WHO, session_id="s")
                session = await service.create_session(**WHO, session_id="s")
                assert session.state == {"user:c": at}
                assert await service.get_user_state(**WHO) == {"c": at}

    asyncio.run(run())


def test_an_archived_session_begins_again_and_takes_the_same_events(place: str) -> None:
    async def run() -> None:
        with nacre.open(place) as sessions:
            service = NacreSessionService(sessions)
            first = await service.create_session(**WHO, session_id="s")
            for n in range(3):
                await service.append_event(first, say(str(n), id=f"e{n}"))
            sessions.archive("app/ann/s")
            assert await service.get_session(**WHO, session_id="s") is None
            with pytest.raises(SessionNotFoundError):
                await service.append_event(first, say("late", {"user:x": 1}))
            second = await service.create_session(**WHO, session_id="s")
            assert (second.events, second.state) == ([], {})
            for event in first.events:
                await service.append_event(second, event)
            assert (await load(service)).events == first.events
            with pytest.raises(StaleSessionError):
                await service.append_event(first, say("late"))

    asyncio.run(run())


def test_the_state_of_a_user_and_an_app_goes_on_after_their_keys_were_archived(place: str) -> None:
    async def run() -> None:
        with nacre.open(place) as sessions:
            service = NacreSessionService(sessions)
            session = await service.create_session(**WHO, session_id="s", state={"user:x": 1, "app:x": 1})
            for key in ("app/ann/", "app/"):
                sessions.archive(key)
            assert (await load(service)).state == {"user:x": 1, "app:x": 1}
            await service.append_event(session, say("hello", {"user:y": 2, "app:y": 2}))
            assert (await load(service)).state == {"user:x": 1, "app:x": 1, "user:y": 2, "app:y": 2}

    asyncio.run(run())


def test_two_objects_of_one_session(place: str) -> None:
    async def run() -> None:
        with nacre.open(place) as sessions:
            service = NacreSessionService(sessions)
            first = await service.create_session(**WHO, session_id="s")
            second = await service.get_session(**WHO, session_id="s")
            assert second is not None
            event = say("hello")
            await service.append_event(first, event)
            with pytest.raises(StaleSessionError):
                await service.append_event(second, say("late", {"user:x": 1}, timestamp=event.timestamp))
            assert await service.get_user_state(**WHO) == {}

    asyncio.run(run())


def test_spaces_around_an_id_are_not_part_of_it() -> None:
    # ADK's SQLite service does so too when it creates one, and since 2.11 when it loads one.
    async def run() -> None:
        with nacre.open(":memory:") as sessions:
            service = NacreSessionService(sessions)
            assert (await service.create_session(**WHO, session_id=" s ")).id == "s"
            assert await service.get_session(**WHO, session_id="s ") is not None
            await service.delete_session(**WHO, session_id=" s")
            assert await service.get_session(**WHO, session_id="s") is None

    asyncio.run(run())


def with_service(place: str, test: Callable[[NacreSessionService, nacre.Sessions], Coroutine[Any, Any, None]]) -> None:
    async def run() -> None:
        with nacre.open(place) as sessions:
            await test(NacreSessionService(sessions), sessions)

    asyncio.run(run())


async def load(service: NacreSessionService, **config: Any) -> Session:
    session = await service.get_session(**WHO, session_id="s", config=GetSessionConfig(**config))
    assert session is not None
    return session


@pytest.mark.parametrize("value", [2**70, [-(10**400)], {"x": 2**64}])
def test_whole_numbers_of_any_size_come_back(place: str, value: Any) -> None:
    call = types.Part(function_call=types.FunctionCall(id="c", name="f", args={"n": value}))
    result = types.Part(function_response=types.FunctionResponse(id="c", name="f", response={"n": value}))
    state = {"own": value, "user:theirs": value}
    events = [
        Event(author="m", content=types.Content(role="model", parts=[types.Part(text="f?"), call])),
        Event(author="m", content=types.Content(role="user", parts=[result]), custom_metadata={"n": value}),
        say("done", state),
    ]

    async def test(service: NacreSessionService, sessions: nacre.Sessions) -> None:
        session = await service.create_session(**WHO, session_id="s", state={"first": value})
        for event in events:
            await service.append_event(session, event)
        loaded = await load(service)
        assert loaded.events == events
        assert loaded.state == {"first": value, **state}
        # The conversation is still one that others can read.
        history = sessions.get_history("app/ann/s")
        assert [one.content for one in history] == ["f?", json.dumps({"n": value}), "done"]
        assert history[0].tool_calls[0].name == "f"

    with_service(place, test)


def test_state_that_json_text_can_say_comes_back(place: str) -> None:
    state = {"infinite": float("inf"), "cut": "half of a pair: \ud83d", "user:cut": ["\ud83d"]}

    async def test(service: NacreSessionService, _: nacre.Sessions) -> None:
        await service.create_session(**WHO, session_id="s", state=state)
        assert (await load(service)).state == state

    with_service(place, test)


@pytest.mark.parametrize("length", [36, 257, 5000])
def test_an_event_is_known_although_thousands_came_after_it(length: int) -> None:
    async def test(service: NacreSessionService, sessions: nacre.Sessions) -> None:
        session = await service.create_session(**WHO, session_id="s")
        event = say("hello", {"n": 1}, id="e" * length)
        await service.append_event(session, event.model_copy(deep=True))
        for _ in range(6):
            sessions.add_messages("app/ann/s", [{"role": "user", "content": "x"}] * 500)
        with pytest.raises(AlreadyExistsError):
            await service.append_event(await load(service), event)
        assert [one.id for one in (await load(service)).events].count(event.id) == 1

    with_service(":memory:", test)


def test_what_others_wrote_is_the_same_event_each_time(place: str) -> None:
    call: dict[str, Any] = {"id": "c", "type": "function", "function": {"name": "ls", "arguments": "{}"}}
    messages: list[dict[str, Any]] = [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": None, "tool_calls": [call, {**call, "id": "d"}]},
        {"role": "tool", "tool_call_id": "c", "content": "a.py"},
    ]

    async def test(service: NacreSessionService, sessions: nacre.Sessions) -> None:
        begun = time.time()
        sessions.add_messages("app/ann/s", messages)
        stored = time.time()
        events = (await load(service)).events
        assert len({event.id for event in events}) == len(events) == 4
        # Times are stored in milliseconds.
        assert all(begun - 0.001 <= event.timestamp <= stored for event in events)
        assert (await load(service)).events == events
        assert (await load(service, num_recent_events=3)).events == events[1:]

    with_service(place, test)


def test_as_many_events_are_loaded_as_were_asked_for_whoever_wrote_last(place: str) -> None:
    calls = [{"id": str(n), "type": "function", "function": {"name": "f", "arguments": "{}"}} for n in range(4)]
    results: list[dict[str, Any]] = [{"role": "tool", "tool_call_id": str(n), "content": f"r{n}"} for n in range(4)]
    reply: dict[str, Any] = {"role": "assistant", "content": None, "tool_calls": calls}
    said: list[dict[str, Any]] = [{"role": "user", "content": "q"}, reply, *results]

    async def test(service: NacreSessionService, sessions: nacre.Sessions) -> None:
        sessions.add_messages("app/ann/s", [*said, *({"type": "thing", "x": n} for n in range(5))])
        events = (await load(service)).events
        for most in range(1, 7):
            assert (await load(service, num_recent_events=most)).events == events[-most:]

    with_service(place, test)


@pytest.mark.parametrize("erased", [(0,), (1,), (2,), (3,), (1, 3), (2, 4), (2, 3, 4), (1, 2, 3, 4)])
def test_after_an_erasure_every_call_has_one_result(place: str, erased: tuple[int, ...]) -> None:
    def part(n: int) -> types.Part:
        return types.Part(function_call=types.FunctionCall(id=f"c{n}", name="f", args={"n": n}))

    def result(n: int) -> types.Part:
        return types.Part(function_response=types.FunctionResponse(id=f"c{n}", name="f", response={"n": n}))

    events = [
        say("hello"),
        Event(author="m", content=types.Content(role="model", parts=[part(n) for n in (1, 2, 3)])),
        Event(author="m", content=types.Content(role="user", parts=[result(n) for n in (1, 2, 3)])),
        Event(author="m", content=types.Content(role="model", parts=[types.Part(text="bye")])),
    ]

    async def test(service: NacreSessionService, sessions: nacre.Sessions) -> None:
        session = await service.create_session(**WHO, session_id="s")
        for event in events:
            await service.append_event(session, event)
        numbers = sessions.snapshot("app/ann/s").numbers
        for at in erased:
            sessions.redact("app/ann/s", numbers[at])
        loaded = (await load(service)).events
        calls = [call.id for event in loaded for call in event.get_function_calls()]
        results = [result.id for event in loaded for result in event.get_function_responses()]
        assert (calls, sorted(str(id) for id in results)) == (["c1", "c2", "c3"], ["c1", "c2", "c3"])
        assert "outcome unknown" not in str(loaded)
        assert (await load(service)).events == loaded

    with_service(place, test)


@pytest.mark.parametrize("fails", [False, True])
def test_an_append_that_is_cancelled_leaves_an_object_that_agrees_with_what_is_stored(fails: bool) -> None:
    begun, gate = threading.Event(), threading.Event()

    class Held(nacre.Sessions):
        def update(self, *given: Any, **named: Any) -> int:
            if not begun.is_set():
                begun.set()
                gate.wait(20)
                if fails:
                    raise nacre.StoreError("a full disk")
            return super().update(*given, **named)

    async def test(service: NacreSessionService, sessions: nacre.Sessions) -> None:
        sessions.__class__ = Held
        session = await service.create_session(**WHO, session_id="s")
        unhandled: list[Any] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: unhandled.append(context))
        first = asyncio.create_task(service.append_event(session, say("one", {"x": 1}, id="e1")))
        assert await asyncio.to_thread(begun.wait, 20)
        first.cancel()
        gate.set()
        with pytest.raises(asyncio.CancelledError):
            await first
        assert [event.id for event in session.events] == ([] if fails else ["e1"])
        await service.append_event(session, say("two", id="e2"))
        loaded = await load(service)
        assert [event.id for event in loaded.events] == (["e2"] if fails else ["e1", "e2"])
        assert [event.id for event in session.events] == [event.id for event in loaded.events]
        assert session.state == loaded.state == ({} if fails else {"x": 1})
        del first
        gc.collect()
        assert unhandled == []

    with_service(":memory:", test)


CHANGES: dict[str, tuple[str, Callable[[NacreSessionService, Session], Coroutine[Any, Any, Any]], bool]] = {
    "create_session": ("snapshot", lambda service, _: service.create_session(**WHO, session_id="t"), True),
    "append_event": ("update", lambda service, session: service.append_event(session, say("one")), True),
    "delete_session": ("delete", lambda service, _: service.delete_session(**WHO, session_id="s"), False),
}


@pytest.mark.parametrize("method", CHANGES)
def test_a_cancelled_change_is_made_when_the_caller_goes_on(method: str) -> None:
    held, change, is_there = CHANGES[method]
    begun, gate = threading.Event(), threading.Event()

    def hold(sessions: nacre.Sessions) -> None:
        go_on = getattr(sessions, held)

        def wait(*given: Any, **named: Any) -> Any:
            begun.set()
            gate.wait(20)
            return go_on(*given, **named)

        setattr(sessions, held, wait)

    async def test(service: NacreSessionService, sessions: nacre.Sessions) -> None:
        session = await service.create_session(**WHO, session_id="s")
        hold(sessions)
        changing = asyncio.create_task(change(service, session))
        assert await asyncio.to_thread(begun.wait, 20)
        changing.cancel()
        for _ in range(10):
            await asyncio.sleep(0)
        assert not changing.done()
        gate.set()
        with pytest.raises(asyncio.CancelledError):
            await changing
        assert sessions.exists("app/ann/t" if method == "create_session" else "app/ann/s") == is_there
        assert len(sessions.get_history("app/ann/s")) == (method == "append_event")

    with_service(":memory:", test)


def test_wrong_arguments(tmp_path: Path) -> None:
    with pytest.raises(nacre.InvalidArgument):
        NacreSessionService(tmp_path)  # type: ignore[arg-type]
    with nacre.open(":memory:") as sessions, pytest.raises(nacre.InvalidArgument):
        asyncio.run(NacreSessionService(sessions).get_session(app_name="", user_id="u", session_id="s"))


def test_files_and_code_are_shown_to_everyone_and_stored_once() -> None:
    pdf = types.Part.from_bytes(data=b"\xff" * 500_000, mime_type="application/pdf")
    given = [
        [types.Part(text="look"), pdf],
        [types.Part(inline_data=types.Blob(data=b"1234", mime_type="audio/wav", display_name="a.wav"))],
        [types.Part.from_uri(file_uri="gs://x/a.pdf", mime_type="application/pdf")],
        [
            types.Part.from_executable_code(code="print(1)", language=types.Language.PYTHON),
            types.Part.from_code_execution_result(outcome=types.Outcome.OUTCOME_OK, output="1"),
        ],
    ]
    events = [Event(author="user", content=types.Content(role="user", parts=parts)) for parts in given]

    sessions = nacre.open(":memory:")

    async def talk() -> Session | None:
        service = NacreSessionService(sessions)
        session = await service.create_session(**WHO, session_id="s")
        for event in events:
            await service.append_event(session, event)
        return await service.get_session(**WHO, session_id="s")

    loaded = asyncio.run(talk())
    assert loaded is not None
    assert [one.content for one in loaded.events] == [one.content for one in events]
    messages = sessions.get_history("app/ann/s")
    said = [[part["text"] for part in one["content"]] for one in nacre.to_openai(messages)]
    assert said == [
        ["look", "[application/pdf, 500.0 kB]"],
        ["[audio/wav, 4 B: a.wav]"],
        ["[file: gs://x/a.pdf]"],
        ["print(1)", "1"],
    ]
    assert len(str(messages[0].to_mapping())) < 700_000
