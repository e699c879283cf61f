"""Claude Agent SDK: transcripts in nacre, without the network and without the CLI.

In an agent it is one line: `ClaudeAgentOptions(session_store=NacreSessionStore(sessions))`. Here the calls are made
that the SDK makes: it appends what was said, sends a batch again, lists the sessions, and loads one to resume it.
"""

from __future__ import annotations

import asyncio
import tempfile
from typing import Any

from claude_agent_sdk import SessionKey, list_sessions_from_store, project_key_for_directory

import nacre
from nacre.integrations.claude_agent import NacreSessionStore

SESSION = "7c9e6679-7425-40de-944b-e07fc1f90ae7"


def said(uuid: str, parent: str | None, role: str, content: Any) -> Any:
    """One line of a transcript, as the CLI writes it."""
    about = {"uuid": uuid, "parentUuid": parent, "sessionId": SESSION, "timestamp": "2026-01-02T03:04:05.678Z"}
    return {"type": role, **about, "isSidechain": False, "message": {"role": role, "content": content}}


async def main(place: str) -> None:
    key: SessionKey = {"project_key": project_key_for_directory(place), "session_id": SESSION}
    call = {"type": "tool_use", "id": "toolu_1", "name": "Bash", "input": {"command": "ls"}}
    turn = [
        said("u1", None, "user", "Which files are here?"),
        said("a1", "u1", "assistant", [{"type": "text", "text": "Let me see."}, call]),
        said("u2", "a1", "user", [{"type": "tool_result", "tool_use_id": "toolu_1", "content": "shell.py"}]),
        said("a2", "u2", "assistant", [{"type": "text", "text": "There is shell.py."}]),
        {"type": "custom-title", "customTitle": "Files", "sessionId": SESSION},
    ]
    async with nacre.open_async(place) as sessions:
        store = NacreSessionStore(sessions)
        await store.append(key, turn)
        # A retry after a timeout: nothing is stored twice.
        await store.append(key, turn[:4])
        for info in await list_sessions_from_store(store, directory=place):
            print(f"listed: {info.summary!r}, which began with {info.first_prompt!r}")

    # Another process would do the same: open the store and load the session.
    async with nacre.open_async(place) as sessions:
        loaded = await NacreSessionStore(sessions).load(key)
        print(f"loaded {len(loaded or [])} entries, equal to what was appended: {loaded == turn}")
        [key_in_nacre] = [one.key async for one in sessions.list()]
        for message in await sessions.get_history(key_in_nacre):
            calls = "".join(f" [calls {one.name}]" for one in message.tool_calls)
            print(f"{message.role}: {message.content or ''}{calls}")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(main(f"{folder}/store"))
