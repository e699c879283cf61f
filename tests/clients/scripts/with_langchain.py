# mypy: ignore-errors
"""LangChain's ChatOpenAI, over chat completions and over responses."""

from __future__ import annotations

from common import TOKEN, URL, City, tell
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI


@tool
def weather(city: str) -> str:
    """The weather of a city."""
    return f"rain in {city}"


found = {}
for name, options in (("chat", {}), ("responses", {"use_responses_api": True})):
    model = ChatOpenAI(model="nacre", base_url=URL, api_key=TOKEN, max_retries=0, **options)
    found[name] = {
        "whole": model.invoke("hello").text,
        "streamed": "".join(piece.text for piece in model.stream("hello")),
        "schema": model.with_structured_output(City).invoke("Where?"),
        "object": model.with_structured_output(City, method="json_mode").invoke("Where? In JSON: city, people."),
        "by_call": model.with_structured_output(City, method="function_calling").invoke("Where?"),
        "calls": model.bind_tools([weather]).invoke("The weather?").tool_calls[0]["args"],
    }

tell(**found)
