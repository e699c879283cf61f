# mypy: ignore-errors
"""OpenAI's agents with an output type and a tool, over responses (their own way) and over chat completions."""

from __future__ import annotations

from agents import (
    Agent,
    ModelSettings,
    OpenAIChatCompletionsModel,
    OpenAIResponsesModel,
    Runner,
    function_tool,
    set_tracing_disabled,
)
from common import TOKEN, URL, City, tell
from openai import AsyncOpenAI

set_tracing_disabled(disabled=True)
client = AsyncOpenAI(base_url=URL, api_key=TOKEN, max_retries=0)
ran = []


@function_tool
def weather(city: str) -> str:
    """The weather of a city."""
    ran.append(city)
    return "rain"


found = {}
for name, kind in (("responses", OpenAIResponsesModel), ("chat", OpenAIChatCompletionsModel)):
    model = kind(model="nacre", openai_client=client)
    plain = Runner.run_sync(Agent(name="a", instructions="Be brief.", model=model, output_type=City), "Where?")
    forecast = Agent(name="b", instructions="Be brief.", model=model, output_type=City, tools=[weather])
    with_tool = Runner.run_sync(forecast, "The weather?")
    # Whoever takes over has no tools, and answers to the result of the call that handed over.
    other = Agent(name="other", model=model)
    settings = ModelSettings(tool_choice="required", parallel_tool_calls=False)
    over = Runner.run_sync(Agent(name="first", model=model, handoffs=[other], model_settings=settings), "Go on.")
    found[name] = {
        "plain": plain.final_output,
        "with_tool": with_tool.final_output,
        "ran": list(ran),
        "by_call": [over.last_agent.name, over.final_output],
    }
    ran.clear()

tell(**found)
