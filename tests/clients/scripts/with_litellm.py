# mypy: ignore-errors
"""LiteLLM, to which this is one more server that speaks OpenAI's interface."""

from __future__ import annotations

import json

import litellm
from common import TOKEN, URL, City, tell

SAID = {"model": "openai/nacre", "messages": [{"role": "user", "content": "hello"}], "api_base": URL, "api_key": TOKEN}
TOOL = {"name": "weather", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}

schema = litellm.completion(**SAID, response_format=City).choices[0].message.content
calls = litellm.completion(**SAID, tools=[{"type": "function", "function": TOOL}]).choices[0].message.tool_calls
streamed = litellm.completion(**SAID, stream=True)
tell(
    whole=litellm.completion(**SAID).choices[0].message.content,
    streamed="".join(piece.choices[0].delta.content or "" for piece in streamed),
    schema=City(**json.loads(schema)),
    call=json.loads(calls[0].function.arguments),
    response=litellm.responses(model="openai/nacre", input="hello", api_base=URL, api_key=TOKEN)
    .output[0]
    .content[0]
    .text,
)
