"""Strands Agents: an agent whose messages and state are in nacre, without the network.

The model is scripted. The agent calls a tool, the program ends, and another agent goes on where it was. A third one is
kept in snapshots.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import AsyncIterator
from typing import Any

# This file has the name of the package, and its folder is searched first.
sys.path[:] = [folder for folder in sys.path if not __file__.startswith(f"{folder or '.'}/strands.py")]

from strands import Agent, tool  # noqa: E402 - the path comes first
from strands.models.model import Model  # noqa: E402 - the same
from strands.session.repository_session_manager import RepositorySessionManager  # noqa: E402 - the same
from strands.session.snapshot_session_manager import SnapshotSessionManager  # noqa: E402 - the same

import nacre  # noqa: E402 - the same
from nacre.integrations.strands import NacreSessionRepository, NacreStorage  # noqa: E402 - the same


class Scripted(Model):
    """A model that says what it is told to: a text, or the name of a tool to call."""

    def __init__(self, *script: str) -> None:
        self.script = list(script)

    def update_config(self, **model_config: Any) -> None: ...

    def get_config(self) -> Any:
        return {}

    def structured_output(self, *args: Any, **named: Any) -> Any:
        raise NotImplementedError

    async def stream(self, *_: Any, **__: Any) -> AsyncIterator[Any]:
        said = self.script.pop(0)
        is_call = said == "list_files"
        yield {"messageStart": {"role": "assistant"}}
        yield {"contentBlockStart": {"start": {"toolUse": {"name": said, "toolUseId": "c1"}} if is_call else {}}}
        yield {"contentBlockDelta": {"delta": {"toolUse": {"input": "{}"}} if is_call else {"text": said}}}
        yield {"contentBlockStop": {}}
        yield {"messageStop": {"stopReason": "tool_use" if is_call else "end_turn"}}


@tool
def list_files() -> str:
    """List the files that are here."""
    return "shell.py"


def make_agent(sessions: nacre.Sessions, *script: str) -> Agent:
    manager = RepositorySessionManager("shells", NacreSessionRepository(sessions))
    return Agent(
        model=Scripted(*script),
        session_manager=manager,
        agent_id="helper",
        tools=[list_files],
        callback_handler=None,
    )


def main(place: str) -> None:
    with nacre.open(place) as sessions:
        agent = make_agent(sessions, "list_files", "There is shell.py.")
        print(f"the agent says: {str(agent('Which files are here?')).strip()}")

    # Another process would do the same: open the store and make the agent again.
    with nacre.open(place) as sessions:
        agent = make_agent(sessions, "As I said: shell.py.")
        print(f"the agent remembers {len(agent.messages)} messages")
        agent("Say it again.")
        for message in sessions.get_history("shells"):
            calls = "".join(f" [calls {one.name}]" for one in message.tool_calls)
            print(f"{message.role}: {message.content or ''}{calls}")

        # Snapshots are stored as a conversation, too.
        manager = SnapshotSessionManager("pearls", storage=NacreStorage(sessions))
        Agent(model=Scripted("Layers of nacre."), session_manager=manager, callback_handler=None)("What is a pearl?")
        print("in snapshots:", [message.content for message in sessions.get_history("pearls")])


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        main(f"{folder}/store")
