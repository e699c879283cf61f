"""NacreSessionService against ADK's own SQLite service, and where it does better."""

from __future__ import annotations

import asyncio
import time
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

import nacre
from nacre.integrations.adk import NacreSessionService

WHO = {"app_name": "app", "user_id": "ann"}
NAMES = st.sampled_from(["a", "b", "user:a", "app:a", "temp:a"])
VALUES = st.sampled_from([None, 1, 2.5, "é", "", [1], {"x": None}])
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["create", "append", "append", "stale", "delete", "recent"]),
        st.sampled_from(["one", "two"]),
        st.dictionaries(NAMES, VALUES, max_size=3),
    ),
    max_size=12,
)
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
            lambda data, kind: types.Part(inline_data=types.Blob(data=data, mime_type=kind)),
            st.sampled_from([b"", b"\xff\xfe\xfb"]),
            st.sampled_from(["image/png", "audio/wav"]),
        ),
        st.just(types.Part(text="t", thought_signature=b"\xff\xef")),
    ),
    max_size=4,
)
CONTENTS = st.none() | st.builds(types.Content, role=st.sampled_from([None, "user", "model"]), parts=st.none() | PARTS)


def say(text: str, state: dict[str, Any] | None = None, **more: Any) -> Event:
    content = types.Content(role="user", parts=[types.Part(text=text)])
    return Event(author="user", content=content, actions=EventActions(state_delta=state or {}), **more)


async def outcome(service: BaseSessionService, step: tuple[str, str, dict[str, Any]], at: float, kept: Any) -> Any:
    what, id, state = step
    try:
        if what == "create":
            made = await service.create_session(**WHO, session_id=id, state=dict(state))
            kept.setdefault(id, made)
            return made.state
        if what == "delete":
            await service.delete_session(**WHO, session_id=id)
        elif what == "recent":
            config = GetSessionConfig(num_recent_events=1)
            return seen(await service.get_session(**WHO, session_id=id, config=config))
        else:
            session = kept.get(id) if what == "stale" else await service.get_session(**WHO, session_id=id)
            if session is not None:
                await service.append_event(session, say("hello", dict(state), id=f"e{at}", timestamp=at))
                return session.state
    except (StaleSessionError, AlreadyExistsError, SessionNotFoundError) as error:
        return type(error)
    return None


def seen(session: Session | None) -> Any:
    return session and (session.id, session.state, [event.model_dump() for event in session.events])


@settings(deadline=None, max_examples=40)
@given(steps=STEPS)
def test_random_operations_as_the_sqlite_service(steps: Any, tmp_path_factory: pytest.TempPathFactory) -> None:
    async def run() -> None:
        database = SqliteSessionService(str(tmp_path_factory.mktemp("adk") / "s.db"))
        with nacre.open(":memory:") as sessions:
            ours = NacreSessionService(sessions)
            kept: tuple[dict[str, Any], dict[str, Any]] = ({}, {})
            start = time.time() + 1000
            for index, step in enumerate(steps):
                both = [await outcome(it, step, start + index, k) for it, k in zip((database, ours), kept, strict=True)]
                assert both[0] == both[1]
                for id in ("one", "two"):
                    loaded = [await it.get_session(**WHO, session_id=id) for it in (database, ours)]
                    assert seen(loaded[0]) == seen(loaded[1])
            lists = [(await it.list_sessions(app_name="app")).sessions for it in (database, ours)]
            assert [seen(it) for it in sorted(lists[0], key=lambda it: it.id)] == [
                seen(it) for it in sorted(lists[1], key=lambda it: it.id)
            ]

    asyncio.run(run())


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


def test_wrong_arguments(tmp_path: Path) -> None:
    with pytest.raises(nacre.InvalidArgument):
        NacreSessionService(tmp_path)  # type: ignore[arg-type]
    with nacre.open(":memory:") as sessions, pytest.raises(nacre.InvalidArgument):
        asyncio.run(NacreSessionService(sessions).get_session(app_name="", user_id="u", session_id="s"))
