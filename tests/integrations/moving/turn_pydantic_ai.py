"""One turn of a conversation by Pydantic AI, which uses a tool; prints what the model was shown."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

from pydantic_ai import Agent
from pydantic_ai.conversation import Conversation
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart, ToolReturnPart, UserPromptPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

import nacre
from nacre.integrations.pydantic_ai import NacreConversationStore

PLACE, KEY, QUESTION = sys.argv[1:]
ID = "call_" + QUESTION.replace(" ", "_")
asked: list[ModelMessage] = []


def answer(messages: list[ModelMessage], _: AgentInfo) -> ModelResponse:
    asked[:] = messages
    if isinstance(messages[-1].parts[-1], ToolReturnPart):
        return ModelResponse([TextPart(f"Pydantic AI: {QUESTION}!")])
    return ModelResponse([ToolCallPart("clock", {}, tool_call_id=ID)])


async def main() -> None:
    agent = Agent(FunctionModel(answer))

    @agent.tool_plain
    def clock() -> str:
        return "noon"

    async with nacre.open_async(PLACE) as sessions:
        store = NacreConversationStore(sessions)
        conversation = await store.load(KEY) or Conversation(conversation_id=KEY)
        await store.save(await agent.run(QUESTION, conversation=conversation))
    shown: list[Any] = []
    for message in asked:
        for part in message.parts:
            if isinstance(part, UserPromptPart):
                shown.append(["user", part.content, []])
            elif isinstance(part, ToolReturnPart):
                shown.append(["tool", part.content, []])
            elif isinstance(part, TextPart):
                shown.append(["assistant", part.content, []])
            elif isinstance(part, ToolCallPart):
                shown.append(["assistant", "", [part.tool_name]])
    sys.stdout.write(json.dumps(shown))


asyncio.run(main())
