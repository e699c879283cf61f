"""Google ADK: a Runner whose sessions are in nacre, with a tool, state, and a model that is scripted.

In an agent it is one line: `Runner(…, session_service=NacreSessionService(sessions))`. Nothing here needs the network.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncGenerator
from typing import Any

from google.adk.agents import LlmAgent
from google.adk.models.base_llm import BaseLlm
from google.adk.models.llm_request import LlmRequest
from google.adk.models.llm_response import LlmResponse
from google.adk.runners import Runner
from google.adk.tools.tool_context import ToolContext
from google.genai import types

import nacre
from nacre.integrations.adk import NacreSessionService

SCRIPT = [
    types.Part(function_call=types.FunctionCall(id="c1", name="find_shells", args={"beach": "north"})),
    types.Part(text="There are two: a whelk and a cowrie."),
]


class Scripted(BaseLlm):
    """A model that says what is written above."""

    said: int = 0

    async def generate_content_async(
        self,
        llm_request: LlmRequest,  # noqa: ARG002 - it has its script
        stream: bool = False,  # noqa: ARG002, FBT001, FBT002 - as in BaseLlm
    ) -> AsyncGenerator[LlmResponse, None]:
        part = SCRIPT[self.said]
        self.said += 1
        yield LlmResponse(content=types.Content(role="model", parts=[part]))


def find_shells(beach: str, tool_context: ToolContext) -> dict[str, Any]:
    """Find the shells on a beach."""
    tool_context.state["user:beach"] = beach
    return {"result": "a whelk, a cowrie"}


async def main(place: str) -> None:
    async with nacre.open_async(place) as sessions:
        service = NacreSessionService(sessions)
        await service.create_session(app_name="shells", user_id="ann", session_id="s1")
        agent = LlmAgent(name="finder", model=Scripted(model="scripted"), tools=[find_shells])
        runner = Runner(app_name="shells", agent=agent, session_service=service)
        question = types.Content(role="user", parts=[types.Part(text="Which shells are on the north beach?")])
        async for event in runner.run_async(user_id="ann", session_id="s1", new_message=question):
            print(f"event of {event.author}, {'the last one' if event.is_final_response() else 'not the last one'}")
        await runner.close()

    # Another process would do the same: open the store and load the session.
    async with nacre.open_async(place) as sessions:
        service = NacreSessionService(sessions)
        loaded = await service.get_session(app_name="shells", user_id="ann", session_id="s1")
        print(f"loaded {len(loaded.events) if loaded else 0} events")
        print(f"every session of ann knows: {await service.get_user_state(app_name='shells', user_id='ann')}")
        for message in await sessions.get_history("shells/ann/s1"):
            calls = "".join(f"[calls {one.name}]" for one in message.tool_calls)
            print(f"{message.role}: {message.content or ''}{calls}")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(main(f"{folder}/store"))
