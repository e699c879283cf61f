"""Microsoft Agent Framework: an agent whose history is in nacre, without the network.

In an agent it is one argument: `Agent(client=…, context_providers=[NacreHistoryProvider(sessions)])`. The client here
gives scripted answers; between the two turns the store is closed and opened again.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from collections.abc import Awaitable, Mapping, Sequence
from pathlib import Path
from typing import Any

# This file has the name of the package, which Python would look for here first.
sys.path = [folder for folder in sys.path if Path(folder).resolve() != Path(__file__).resolve().parent]

from agent_framework import (  # noqa: E402 - after the line above
    Agent,
    BaseChatClient,
    ChatResponse,
    ChatResponseUpdate,
    Content,
    FunctionInvocationLayer,
    Message,
    ResponseStream,
    tool,
)

import nacre  # noqa: E402 - as above
from nacre.integrations.agent_framework import NacreHistoryProvider  # noqa: E402 - as above


class ScriptedClient(FunctionInvocationLayer, BaseChatClient):
    """Gives one message after the other."""

    def __init__(self, *replies: Message) -> None:
        super().__init__()
        self.replies = list(replies)

    def _inner_get_response(
        self, *, messages: Sequence[Message], stream: bool, options: Mapping[str, Any], **_: Any
    ) -> Awaitable[ChatResponse[Any]] | ResponseStream[ChatResponseUpdate, ChatResponse[Any]]:
        del stream, options
        print(f"the model is asked with {len(messages)} messages")

        async def answer() -> ChatResponse[Any]:
            return ChatResponse(messages=[self.replies.pop(0)])

        return answer()


@tool(approval_mode="never_require")
def weather(city: str) -> str:
    """The weather of a city."""
    return f"sun in {city}"


async def main(place: str) -> None:
    call = Content.from_function_call("c1", "weather", arguments='{"city": "Oslo"}')
    client = ScriptedClient(
        Message("assistant", [call]),
        Message("assistant", ["It is sunny in Oslo."]),
        Message("assistant", ["You asked about Oslo."]),
    )
    for question in ("How is the weather in Oslo?", "Which city was it?"):
        # Another process would do the same: open the store and go on with the conversation.
        async with nacre.open_async(place) as sessions:
            provider = NacreHistoryProvider(sessions)
            agent = Agent(client=client, tools=[weather], context_providers=[provider])
            print(f"answer: {await agent.run(question, session=agent.create_session(session_id='user-42'))}")

    async with nacre.open_async(place) as sessions:
        # A client that sends all of its transcript again: nothing is stored twice.
        provider = NacreHistoryProvider(sessions)
        await provider.save_messages("user-42", await provider.get_messages("user-42"))
        for message in await sessions.get_history("user-42"):
            calls = "".join(f"[calls {one.name} {one.arguments}]" for one in message.tool_calls)
            print(f"{message.role}: {message.content or ''}{calls}")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(main(f"{folder}/store"))
