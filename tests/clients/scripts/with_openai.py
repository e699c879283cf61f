# mypy: ignore-errors
"""OpenAI's own client."""

from __future__ import annotations

import asyncio

import openai
from common import PIXEL, TOKEN, URL, City, tell

HELLO = [{"role": "user", "content": "hello"}]
FUNCTION = {"name": "weather", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}
IMAGE = [{"type": "text", "text": "look"}, {"type": "image_url", "image_url": {"url": PIXEL}}]
REMOTE = [{"type": "image_url", "image_url": {"url": "https://example.org/a.png"}}]

with openai.OpenAI(base_url=URL, api_key=TOKEN, max_retries=0) as ask:
    chat = ask.chat.completions
    whole = chat.create(model="nacre", messages=HELLO).choices[0].message.content
    pieces = chat.create(model="nacre", messages=HELLO, stream=True)
    streamed = "".join(piece.choices[0].delta.content or "" for piece in pieces)
    tools = [{"type": "function", "function": FUNCTION}]
    called = chat.create(model="nacre", messages=HELLO, tools=tools).choices[0].message
    result = {"role": "tool", "tool_call_id": called.tool_calls[0].id, "content": "rain"}
    told = chat.create(model="nacre", messages=[*HELLO, called, result], tools=tools).choices[0].message.content
    seen = chat.create(model="nacre", messages=[{"role": "user", "content": IMAGE}]).choices[0].message.content
    try:
        chat.create(model="nacre", messages=[{"role": "user", "content": REMOTE}])
        refused = ""
    except openai.BadRequestError as error:
        refused = str(error)
    parsed = chat.parse(model="nacre", messages=HELLO, response_format=City).choices[0].message.parsed
    first = ask.responses.create(model="nacre", input="hello")
    second = ask.responses.create(model="nacre", input="again", previous_response_id=first.id)
    with ask.responses.stream(model="nacre", input="hello", text_format=City) as stream:
        responded = stream.get_final_response().output_parsed
    read = ask.responses.retrieve(second.id).output_text
    ask.responses.delete(second.id)
    # Items of earlier answers as input, nothing stored; a stream with a call; and many at once.
    flat = [{"type": "function", **FUNCTION}]
    asked = ask.responses.create(model="nacre", input="hello", tools=flat, store=False)
    output = {"type": "function_call_output", "call_id": asked.output[0].call_id, "output": "rain"}
    items = [{"role": "user", "content": "hello"}, *asked.output, output]
    more = {"store": False, "include": ["reasoning.encrypted_content"], "tools": flat}
    unstored = ask.responses.create(model="nacre", input=items, **more).output_text
    with chat.stream(model="nacre", messages=HELLO, tools=tools, tool_choice="required") as stream:
        streamed_call = stream.get_final_completion().choices[0].message.tool_calls[0].function.arguments
    names = [ask.models.retrieve(model.id).id for model in ask.models.list()]


async def ask_many() -> list[str]:
    """Ten questions at once."""
    async with openai.AsyncOpenAI(base_url=URL, api_key=TOKEN, max_retries=0) as ask:

        async def create(number: int) -> str:
            said = [{"role": "user", "content": str(number)}]
            pieces = await ask.chat.completions.create(model="nacre", messages=said, stream=True, user=str(number))
            return "".join([piece.choices[0].delta.content or "" async for piece in pieces])

        return await asyncio.gather(*map(create, range(10)))


tell(
    unstored=unstored,
    streamed_call=streamed_call,
    many=asyncio.run(ask_many()),
    whole=whole,
    streamed=streamed,
    call=called.tool_calls[0].function.arguments,
    told=told,
    seen=seen,
    refused=refused,
    parsed=parsed,
    first=first.output_text,
    second=second.output_text,
    read=read,
    responded=responded,
    names=names,
)
