"""NacreSessionService while others archive, delete and change its sessions, in the same store."""

from __future__ import annotations

import asyncio
from random import Random
from typing import Any

import pytest
from google.adk.errors import StaleSessionError
from google.adk.errors.already_exists_error import AlreadyExistsError
from google.adk.errors.session_not_found_error import SessionNotFoundError
from google.adk.events.event import Event
from google.adk.events.event_actions import EventActions
from google.adk.sessions.session import Session
from google.genai import types

import nacre
from nacre.integrations.adk import NacreSessionService
from tests.integrations.others import Interrupted, Others

WHO: Any = {"app_name": "app", "user_id": "ann"}
KEYS = {"s": "app/ann/s", "t": "app/ann/t"}
SHARED = ("app/ann/", "app/")


def say(text: str, state: dict[str, Any] | None = None, **more: Any) -> Event:
    content = types.Content(role="user", parts=[types.Part(text=text)])
    return Event(author="user", content=content, actions=EventActions(state_delta=state or {}), **more)


def shown(session: Session | None) -> Any:
    if session is None:
        return None
    return session.state, session.last_update_time, [event.model_dump() for event in session.events]


class Play:
    """Random calls of a service, and what is sure to be there after them."""

    def __init__(self, place: str, seed: int) -> None:
        self.place, self.random = place, Random(seed)
        self.sessions = Interrupted.open(place)
        self.service = NacreSessionService(self.sessions)
        self.others = Others(place, self.random, framework="adk")
        self.kept: dict[str, Session] = {}
        self.stored: dict[str, set[str]] = {id: set() for id in KEYS}
        self.user: dict[str, Any] = {}
        self.happened: list[str] = []
        self.used: set[tuple[str, str]] = set()
        self.number = 0

    def close(self) -> None:
        self.sessions.close()
        self.others.close()

    def others_act(self) -> None:
        """What may also happen inside a call."""
        match self.random.randrange(6):
            case 0:
                self.others.toggle(self.random.choice(SHARED))
            case 1:
                service = NacreSessionService(self.others.sessions)
                assert asyncio.run(service.get_user_state(**WHO)).keys() <= {*self.user, "x", "y"}
            case _:
                id = self.random.choice(list(KEYS))
                act = self.others.act(KEYS[id], list(KEYS.values()))
                if act in ("delete", "redact"):
                    self.stored[id].clear()
                self.happened.append(f"{act} {id}")

    async def step(self) -> None:
        self.happened.clear()
        self.number += 1
        id = self.random.choice(list(KEYS))
        state = {name: self.number for name in ("own", "user:x", "user:y") if self.random.random() < 0.3}
        is_interrupted = self.random.random() < 0.5
        self.sessions.interrupt(self.random.randrange(1, 9), self.others_act if is_interrupted else None)
        was_active = self.others.status(KEYS[id]) == "active"
        match self.random.choices(range(6), weights=(3, 1, 4, 1, 4, 8))[0]:
            case 0:
                await asyncio.to_thread(self.others_act)
            case 1:
                self.others.sessions.delete(SHARED[0])
                self.user.clear()
            case 2:
                await self.create(id, state, may_fail=is_interrupted or was_active)
            case 3:
                await self.service.delete_session(**WHO, session_id=id)
                self.stored[id].clear()
            case 4 if id in self.kept:
                await self.append(self.kept[id], state, may_fail=True)
            case _:
                session = await self.service.get_session(**WHO, session_id=id)
                if session is not None:
                    self.kept[id] = session
                    await self.append(session, state, may_fail=is_interrupted)
        self.sessions.interrupt(0, None)
        await self.check()

    async def create(self, id: str, state: dict[str, Any], *, may_fail: bool) -> None:
        try:
            self.kept[id] = await self.service.create_session(**WHO, session_id=id, state=state)
        except AlreadyExistsError:
            assert may_fail
        else:
            self.store(state)

    async def append(self, session: Session, state: dict[str, Any], *, may_fail: bool) -> None:
        number = self.random.randrange(4)
        event = say("hello", state, id=f"e{number}", timestamp=float(number))
        # An event counts in its generation, also if a rewind has left it.
        name = (self.others.sessions.snapshot(KEYS[session.id]).generation, event.id)
        is_known = name in self.used
        self.used.add(name)
        try:
            await self.service.append_event(session, event)
        except AlreadyExistsError:
            assert may_fail or is_known
        except (StaleSessionError, SessionNotFoundError):
            assert may_fail
        else:
            self.store(state)
            if not {f"delete {session.id}", f"redact {session.id}"} & set(self.happened):
                self.stored[session.id].add(event.id)
            self.sessions.interrupt(0, None)
            if not self.happened:
                loaded = await self.service.get_session(**WHO, session_id=session.id)
                assert loaded is not None
                assert shown(loaded)[2][-1] == event.model_dump()

    def store(self, state: dict[str, Any]) -> None:
        self.user |= {name.removeprefix("user:"): value for name, value in state.items() if name.startswith("user:")}

    async def check(self) -> None:
        """What the service says is what one says that has just been made, and what was stored is there."""
        with nacre.open(self.place) as sessions:
            fresh = NacreSessionService(sessions)
            for id, key in KEYS.items():
                session = await self.service.get_session(**WHO, session_id=id)
                assert shown(session) == shown(await fresh.get_session(**WHO, session_id=id))
                assert (session is not None) == (self.others.status(key) == "active")
                marks = [one for one in self.others.marks(key, "adk") if isinstance(one, dict)]
                assert self.stored[id] <= {one.get("id") for one in marks}
            for service in (self.service, fresh):
                assert await service.get_user_state(**WHO) == self.user
                listed = (await service.list_sessions(**WHO)).sessions
                assert {one.id for one in listed} == {id for id in KEYS if self.others.status(KEYS[id]) == "active"}


@pytest.mark.parametrize("seed", range(6))
def test_nothing_is_lost_and_only_adks_errors_are_raised_whatever_others_do(lasting_place: str, seed: int) -> None:
    async def run() -> None:
        play = Play(lasting_place, seed)
        for _ in range(60):
            await play.step()
        play.close()

    asyncio.run(run())
