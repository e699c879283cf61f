"""NacreSessionStore while others archive, delete and change its sessions, in the same store."""

from __future__ import annotations

import asyncio
from random import Random
from typing import Any

import pytest
from claude_agent_sdk import SessionKey, fold_session_summary

import nacre
from nacre.integrations.claude_agent import NacreSessionStore
from tests.integrations.others import Interrupted, Others

KEYS: dict[str, SessionKey] = {
    "p/s": {"project_key": "p", "session_id": "s"},
    "p/t": {"project_key": "p", "session_id": "t"},
    "p/s/sub": {"project_key": "p", "session_id": "s", "subpath": "sub"},
}
CALL = {"type": "tool_use", "id": "toolu_1", "name": "Bash", "input": {"command": "ls"}}
CONTENTS: list[tuple[str, Any]] = [
    ("user", "Which files are here?"),
    ("assistant", [{"type": "text", "text": "Let me see."}, CALL]),
    (
        "user",
        [{"type": "tool_result", "tool_use_id": "toolu_1", "content": "a.py"}, {"type": "text", "text": "Go on."}],
    ),
]
TITLE: Any = {"type": "custom-title", "customTitle": "Files"}


def entry(number: int) -> Any:
    role, content = CONTENTS[number % len(CONTENTS)]
    time = f"2026-01-02T03:04:{number:02}.000Z"
    return {"type": role, "uuid": f"e{number}.", "timestamp": time, "message": {"role": role, "content": content}}


class Play:
    """Random calls of a store of transcripts, and what is sure to be there after them."""

    def __init__(self, place: str, seed: int) -> None:
        self.place, self.random = place, Random(seed)
        self.sessions = Interrupted.open(place)
        self.store = NacreSessionStore(self.sessions)
        self.others = Others(place, self.random, framework="claude_agent")
        self.stored: dict[str, set[str]] = {name: set() for name in KEYS}
        self.used: set[tuple[str, str]] = set()
        self.happened: list[str] = []
        self.erased: set[str] = set()

    def close(self) -> None:
        self.sessions.close()
        self.others.close()

    def others_act(self) -> None:
        """What may also happen inside a call."""
        name = self.random.choice(list(KEYS))
        act = self.others.act(name, list(KEYS))
        if act in ("delete", "redact"):
            self.stored[name].clear()
        self.happened.append(f"{act} {name}")

    async def step(self) -> None:
        self.happened.clear()
        name = self.random.choice(list(KEYS))
        is_interrupted = self.random.random() < 0.5
        self.sessions.interrupt(self.random.randrange(1, 9), self.others_act if is_interrupted else None)
        match self.random.choices(range(6), weights=(3, 1, 1, 1, 1, 12))[0]:
            case 0:
                await asyncio.to_thread(self.others_act)
            case 1:
                await self.store.list_session_summaries("p")
            case 2:
                await self.store.list_sessions("p")
            case 3:
                await self.store.load(KEYS[name])
            case 4:
                await self.delete(name)
            case _:
                await self.append(name)
        self.sessions.interrupt(0, None)
        await self.check()

    async def delete(self, name: str) -> None:
        await self.store.delete(KEYS[name])
        under = [other for other in KEYS if other == name or other.startswith(f"{name}/")]
        for one in under:
            self.stored[one].clear()
            assert self.happened or not self.others.status(one)

    async def append(self, name: str) -> None:
        # An entry counts in its generation, also if a rewind has left it, or if it was erased.
        is_active = self.others.status(name) == "active"
        generation = self.others.sessions.snapshot(name).generation if is_active else ""
        marks = str(self.others.marks(name, "claude_agent", generation))
        said = [entry(self.random.randrange(12)) for _ in range(self.random.randrange(1, 4))]
        uuids = dict.fromkeys(one["uuid"] for one in said)
        new = [uuid for uuid in uuids if uuid not in marks and not {(generation, uuid), (name, uuid)} & self.used]
        await self.store.append(KEYS[name], [*said, TITLE] if self.random.random() < 0.3 else said)

        self.sessions.interrupt(0, None)
        now = self.others.sessions.snapshot(name)
        self.used |= {(now.generation, uuid) for uuid in uuids}
        if f"unarchive {name}" in self.happened:
            # What comes back at that moment may get them as if it were the transcript after it.
            self.used |= {(name, uuid) for uuid in uuids}
        if not {f"delete {name}", f"redact {name}"} & set(self.happened):
            self.stored[name] |= set(new)
        if f"redact {name}" in self.happened:
            # What was appended at that moment has a summary that may have been made before.
            self.erased.add(name)
        if not self.happened:
            loaded = await self.store.load(KEYS[name]) or []
            assert [one.get("uuid") for one in loaded if one.get("uuid") in new] == new

    async def check(self) -> None:
        """What the store says is what one says that has just been made, and what was stored is there."""
        with nacre.open(self.place) as sessions:
            fresh = NacreSessionStore(sessions)
            active = {name for name in KEYS if self.others.status(name) == "active"}
            for name, key in KEYS.items():
                loaded = await self.store.load(key)
                assert loaded == await fresh.load(key)
                assert loaded is None or name in active
                marks = str(self.others.marks(name, "claude_agent"))
                assert all(uuid in marks for uuid in self.stored[name])
            listed = await self.store.list_sessions("p")
            assert listed == await fresh.list_sessions("p")
            assert {f"p/{one['session_id']}" for one in listed} == active - {"p/s/sub"}
            for summary in await self.store.list_session_summaries("p"):
                key = KEYS[f"p/{summary['session_id']}"]
                folded = fold_session_summary(None, key, await self.store.load(key) or [])
                assert summary["data"] == folded["data"] or f"p/{summary['session_id']}" in self.erased
            subkeys = await self.store.list_subkeys({"project_key": "p", "session_id": "s"})
            assert subkeys == (["sub"] if "p/s/sub" in active else [])


@pytest.mark.parametrize("seed", range(6))
def test_nothing_is_lost_and_nothing_is_raised_whatever_others_do(lasting_place: str, seed: int) -> None:
    async def run() -> None:
        play = Play(lasting_place, seed)
        for _ in range(60):
            await play.step()
        play.close()

    asyncio.run(run())
