# mypy: ignore-errors
"""Pydantic AI with NativeOutput and a tool, over chat completions and over responses."""

from __future__ import annotations

from common import TOKEN, URL, City, tell
from pydantic_ai import Agent, NativeOutput
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.openai import OpenAIProvider

provider = OpenAIProvider(base_url=URL, api_key=TOKEN)
found = {}
for name, kind in (("chat", OpenAIChatModel), ("responses", OpenAIResponsesModel)):
    model = kind("nacre", provider=provider)
    plain = Agent(model, output_type=NativeOutput(City)).run_sync("Where?")
    ran = []

    def weather(city: str, ran: list = ran) -> str:
        """The weather of a city."""
        ran.append(city)
        return "rain"

    agent = Agent(model, output_type=NativeOutput(City), instructions="Be brief.")
    agent.tool_plain(lambda city, weather=weather: weather(city), name="weather")
    with_tool = agent.run_sync("The weather?")
    found[name] = {"plain": plain.output, "with_tool": with_tool.output, "ran": ran}

tell(**found)
