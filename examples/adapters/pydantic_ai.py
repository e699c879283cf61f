"""Pydantic AI: conversations in nacre, with a scripted model and without the network.

An agent runs a turn with a tool and the conversation is saved; a fork goes another way; a stale copy is refused. Then
the store is opened again: the agent continues what a program without Pydantic AI has written in between.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from pathlib import Path

# This file has the name of the package, which must not be looked for in its folder.
sys.path[:] = [path for path in sys.path if Path(path).resolve() != Path(__file__).resolve().parent]

from pydantic_ai import Agent  # noqa: E402 - after the line above
from pydantic_ai.conversation import Conversation  # noqa: E402 - the same
from pydantic_ai.conversation_store import ConversationConflict  # noqa: E402 - the same
from pydantic_ai.messages import (  # noqa: E402 - the same
    ModelMessage,
    ModelResponse,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
)
from pydantic_ai.models.function import AgentInfo, FunctionModel  # noqa: E402 - the same

import nacre  # noqa: E402 - the same
from nacre.integrations.pydantic_ai import NacreConversationStore  # noqa: E402 - the same


def answer(messages: list[ModelMessage], _: AgentInfo) -> ModelResponse:
    """The script: weigh first, then say what came of it."""
    last = messages[-1].parts[-1]
    if isinstance(last, ToolReturnPart):
        return ModelResponse(parts=[TextPart(f"It weighs {last.content} grams. I have read {len(messages)} messages.")])
    return ModelResponse(parts=[TextPart("Let me weigh it."), ToolCallPart("weigh", {"shell": "mussel"})])


agent = Agent(FunctionModel(answer))


@agent.tool_plain
def weigh(shell: str) -> int:
    return len(shell)


async def main(place: str) -> None:
    async with nacre.open_async(place) as sessions:
        store = NacreConversationStore(sessions)
        result = await agent.run("How heavy is it?", conversation=Conversation(conversation_id="shells"))
        entries = await store.save(result)
        print(f"saved {len(entries)} messages: {result.output}")

        fork = await store.fork("shells", at=1, new_conversation_id="shells, again")
        print(f"forked after {len(fork.messages)} message")

        stale = await store.load("shells") or fork
        await sessions.add_message("shells", "user", "A note from a program without Pydantic AI.")
        try:
            await store.save(stale)
        except ConversationConflict:
            print("a stale conversation is refused")

    async with nacre.open_async(place) as sessions:
        store = NacreConversationStore(sessions)
        conversation = await store.load("shells")
        result = await agent.run("And now?", conversation=conversation)
        await store.save(result)
        print(f"continued: {result.output}")
        for message in await sessions.get_history("shells"):
            calls = "".join(f" [calls {one.name}]" for one in message.tool_calls)
            print(f"{message.role}: {message.content or ''}{calls}")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(main(folder))
