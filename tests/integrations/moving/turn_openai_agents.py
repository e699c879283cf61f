"""One turn of a conversation by the OpenAI Agents SDK, which uses a tool; prints what the model was shown."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from typing import Any

from agents import Agent, Model, ModelResponse, Runner, Usage, function_tool, set_tracing_disabled
from agents.models.chatcmpl_converter import Converter
from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText

import nacre
from nacre.integrations.openai_agents import NacreSession

PLACE, KEY, QUESTION = sys.argv[1:]
ID = "call_" + QUESTION.replace(" ", "_")


class ScriptedModel(Model):
    """Calls the tool, then answers."""

    asked: list[Any]

    async def get_response(self, system_instructions: Any, input: Any, *_: Any, **__: Any) -> ModelResponse:
        self.asked = Converter.items_to_messages(input)  # fails where a call has no result
        if self.asked[-1]["role"] == "user":
            call = ResponseFunctionToolCall(call_id=ID, type="function_call", name="clock", arguments="{}")
            return ModelResponse(output=[call], usage=Usage(), response_id=None)
        text = ResponseOutputText(type="output_text", text=f"OpenAI: {QUESTION}!", annotations=[], logprobs=[])
        message = ResponseOutputMessage(id="msg", type="message", role="assistant", status="completed", content=[text])
        return ModelResponse(output=[message], usage=Usage(), response_id=None)

    def stream_response(self, *_: Any, **__: Any) -> AsyncIterator[Any]:
        raise NotImplementedError


@function_tool
def clock() -> str:
    """The time."""
    return "noon"


async def main() -> None:
    set_tracing_disabled(disabled=True)
    model = ScriptedModel()
    async with nacre.open_async(PLACE) as sessions:
        agent = Agent(name="a", model=model, tools=[clock])
        await Runner.run(agent, QUESTION, session=NacreSession(KEY, sessions))
    shown = []
    for it in model.asked:
        content = it.get("content") or ""
        text = content if isinstance(content, str) else "".join(part["text"] for part in content)
        shown.append([it["role"], text, [call["function"]["name"] for call in it.get("tool_calls") or []]])
    sys.stdout.write(json.dumps(shown))


asyncio.run(main())
