"""OpenAI's messages, calls and tools as ours, and ours as theirs."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from nacre.agent.ports import Spec
from nacre.codec import encode_message
from nacre.errors import InvalidMessage
from nacre.messages import Message, ToolCall
from nacre.providers.wire import image_data, image_url
from nacre.web.api.openai_schemas import ChatMessage, Function
from nacre.web.http_errors import Fault

SYSTEM = ("system", "developer")
"""The roles whose text is shown to the model as its system prompt."""


# ---- theirs as ours


def message_of(given: ChatMessage, *, param: str) -> Message:
    """A message as ours, with what OpenAI documents alone; raises Fault if a model could not be shown it.

    `param` is where the request has it.
    """
    content = given.content
    if content is None and given.role != "assistant":
        raise Fault("usage", f"a message of the role {given.role!r} needs a content", param=f"{param}.content")
    if content is None and given.refusal is not None:
        content = given.refusal
    if given.tool_calls and given.role != "assistant":
        raise Fault("usage", f"a message of the role {given.role!r} has no tool_calls", param=f"{param}.tool_calls")
    if given.role == "tool" and not given.tool_call_id:
        raise Fault("usage", "a result needs the tool_call_id of its call", param=f"{param}.tool_call_id")
    if isinstance(content, list):
        content = [_part(part, given.role, param=f"{param}.content[{at}]") for at, part in enumerate(content)]
    calls: list[ToolCall] = []
    for call in given.tool_calls or ():
        # Arguments are an object, if their text is one.
        arguments = call.function.arguments
        if isinstance(arguments, str):
            try:
                found = msgspec.json.decode(arguments or "{}")
            except (msgspec.DecodeError, RecursionError):
                found = arguments
            arguments = found if isinstance(found, dict) else arguments
        calls.append(ToolCall(id=call.id, name=call.function.name, arguments=arguments))
    message = Message(
        role=given.role,
        content=content,
        name=given.name,
        tool_call_id=given.tool_call_id,
        tool_calls=tuple(calls),
    )
    try:
        encode_message(message)
    except InvalidMessage as error:
        raise Fault("invalid_message", str(error), param=param) from error
    return message


def _part(part: dict[str, Any], role: str, *, param: str) -> dict[str, Any]:
    """A part of a content as it is stored; raises Fault for sound, files and all else that no model here is shown."""
    match part:
        case {"type": "text", "text": str(text)}:
            return {"type": "text", "text": text}
        case {"type": "refusal", "refusal": str(text)} if role == "assistant":
            return {"type": "text", "text": text}
        case {"type": "image_url"} if role in {"user", "tool"}:
            check_image(part, param=param)
            return part
        case {"type": "text" | "refusal" as kind}:
            raise Fault("usage", f"a part of the type {kind!r} needs its text, as {kind!r}", param=param)
        case _:
            there = "text and image_url" if role in {"user", "tool"} else "text"
            kind = part.get("type")
            raise Fault("usage", f"a part of the type {kind!r:.100} cannot be shown; there are: {there}", param=param)


def check_image(part: dict[str, Any], *, param: str) -> None:
    """Raise Fault for what is no image, or is somewhere else: nothing is fetched here, and servers of models differ."""
    data = image_data(image_url(part) or "")
    if data is None or not data[0].startswith("image/"):
        reason = "an image must be a URL that begins with data:image/…;base64, for none is fetched"
        raise Fault("usage", reason, param=param)
    try:
        content = base64.b64decode(data[1], validate=True)
    except ValueError as error:
        raise Fault("usage", f"the image is not base64: {error}", param=param) from error
    if not content:
        raise Fault("usage", "the image is empty", param=param)


def specs_of(functions: Iterable[Function]) -> list[Spec]:
    """The tools of a client; raises Fault if two have the same name, for a call could not say which it means."""
    specs: dict[str, Spec] = {}
    for at, function in enumerate(functions):
        if function.name in specs:
            raise Fault("usage", f"there are two tools {function.name!r}", param=f"tools[{at}]")
        parameters = function.parameters or {"type": "object", "properties": {}}
        specs[function.name] = Spec(name=function.name, description=function.description or "", parameters=parameters)
    return list(specs.values())


def choose_specs(specs: Sequence[Spec], names: Sequence[str] | None) -> list[Spec]:
    """The tools with these names, or all; raises Fault for a name that no tool has."""
    if names is None:
        return list(specs)
    for name in names:
        if name not in {spec.name for spec in specs}:
            raise Fault("usage", f"there is no tool {name!r:.100} among the tools", param="tool_choice")
    return [spec for spec in specs if spec.name in names]


# ---- ours as theirs


def text_of(message: Message, *, between: str = "") -> str | None:
    """The words of a message; None if it has none but calls."""
    if isinstance(message.content, list):
        parts = (part.get("text", "") for part in message.content if isinstance(part, dict))
        return between.join(part for part in parts if isinstance(part, str))
    return message.content


def calls_of(message: Message) -> list[dict[str, Any]]:
    calls = []
    for call in message.tool_calls:
        text = call.arguments if isinstance(call.arguments, str) else msgspec.json.encode(call.arguments).decode()
        calls.append({"id": call.id, "type": "function", "function": {"name": call.name, "arguments": text}})
    return calls
