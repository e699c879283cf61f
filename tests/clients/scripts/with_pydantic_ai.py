# mypy: ignore-errors
"""Pydantic AI with NativeOutput and a tool, over chat completions and over responses."""

from __future__ import annotations

from common import TOKEN, URL, City, tell
from pydantic_ai import Agent, NativeOutput
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.openai import OpenAIProvider

provider = OpenAIProvider(base_url=URL, api_key=TOKEN)


def run(model: OpenAIChatModel | OpenAIResponsesModel) -> dict:
    """An agent without a tool, and one with."""
    ran = []

    def weather(city: str) -> str:
        """The weather of a city."""
        ran.append(city)
        return "rain"

    plain = Agent(model, output_type=NativeOutput(City)).run_sync("Where?")
    agent = Agent(model, output_type=NativeOutput(City), instructions="Be brief.", tools=[weather])
    return {
        "plain": plain.output,
        "with_tool": agent.run_sync("The weather?").output,
        "ran": ran,
        # Their usual way: the answer is a call of a tool that they add, which they require.
        "by_call": Agent(model, output_type=City).run_sync("Where?").output,
    }


kinds = {"chat": OpenAIChatModel, "responses": OpenAIResponsesModel}
tell(**{name: run(kind("nacre", provider=provider)) for name, kind in kinds.items()})
