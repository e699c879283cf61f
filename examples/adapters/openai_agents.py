"""OpenAI Agents SDK: its Runner with sessions in nacre, without the network.

In an agent it is one argument: `Runner.run(agent, text, session=NacreSession("user-42", sessions))`. The model here
gives scripted answers: it calls a tool, answers, and answers again after the store was closed and opened.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator
from typing import Any

from agents import Agent, Model, ModelResponse, Runner, Usage, function_tool, set_tracing_disabled
from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText

import nacre
from nacre.integrations.openai_agents import NacreSession


class ScriptedModel(Model):
    """Gives one output after the other."""

    def __init__(self, *outputs: Any) -> None:
        self.outputs = list(outputs)

    async def get_response(self, system_instructions: Any, input: Any, *_: Any, **__: Any) -> ModelResponse:  # noqa: ARG002 - as the SDK calls it
        print(f"the model is asked with {len(input)} items")
        return ModelResponse(output=[self.outputs.pop(0)], usage=Usage(), response_id=None)

    def stream_response(self, *args: Any, **named: Any) -> AsyncIterator[Any]:
        raise NotImplementedError


@function_tool
def weather(city: str) -> str:
    """The weather of a city."""
    return f"sun in {city}"


def say(text: str) -> ResponseOutputMessage:
    part = ResponseOutputText(type="output_text", text=text, annotations=[])
    return ResponseOutputMessage(id="msg", type="message", role="assistant", status="completed", content=[part])


async def main(place: str) -> None:
    call = ResponseFunctionToolCall(call_id="c1", type="function_call", name="weather", arguments='{"city": "Oslo"}')
    model = ScriptedModel(call, say("It is sunny in Oslo."), say("You asked about Oslo."))
    agent = Agent(name="guide", model=model, tools=[weather])

    async with nacre.open_async(place) as sessions:
        result = await Runner.run(agent, "How is the weather in Oslo?", session=NacreSession("user-42", sessions))
        print(f"answer: {result.final_output}")

    # Another process would do the same: open the store and go on with the conversation.
    async with nacre.open_async(place) as sessions:
        session = NacreSession("user-42", sessions)
        result = await Runner.run(agent, "Which city was it?", session=session)
        print(f"answer: {result.final_output}")
        print(f"the last item: {(await session.get_items(limit=1))[0].get('role')}")
        for message in await sessions.get_history("user-42"):
            calls = "".join(f"[calls {one.name} {one.arguments}]" for one in message.tool_calls)
            print(f"{message.role}: {message.content or ''}{calls}")


if __name__ == "__main__":
    set_tracing_disabled(True)
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(main(f"{folder}/store"))
