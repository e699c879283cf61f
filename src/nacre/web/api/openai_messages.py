"""OpenAI's messages, calls and tools as ours, and ours as theirs: as messages, or as the items of a response."""

from __future__ import annotations

import base64
import time
from collections.abc import AsyncGenerator, Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal

import msgspec
from msgspec.structs import replace

from nacre.agent.ports import Called, Event, Form, Spec, Text, Thought
from nacre.client_shapes import image_data, image_url
from nacre.codec import encode_message
from nacre.errors import InvalidMessage
from nacre.messages import Message, ToolCall
from nacre.web.api import openai_schemas as openai
from nacre.web.api.openai_requests import Answer, finish_of
from nacre.web.http_errors import Fault, fault_of
from nacre.web.running_turns import Running
from nacre.web.sse import BEAT, event

SYSTEM = ("system", "developer")
"""The roles whose text is shown to the model as its system prompt."""


# ---- theirs as ours


def message_of(given: openai.ChatMessage, *, param: str) -> Message:
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
        role=given.role, content=content, name=given.name, tool_call_id=given.tool_call_id, tool_calls=tuple(calls)
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
            _check_image(part, param=param)
            return part
        case {"type": "text" | "refusal" as kind}:
            raise Fault("usage", f"a part of the type {kind!r} needs its text, as {kind!r}", param=param)
        case _:
            there = "text and image_url" if role in {"user", "tool"} else "text"
            kind = part.get("type")
            raise Fault("usage", f"a part of the type {kind!r:.100} cannot be shown; there are: {there}", param=param)


def _check_image(part: dict[str, Any], *, param: str) -> None:
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


def specs_of(functions: Iterable[openai.Function], names: Sequence[str] | None) -> list[Spec]:
    """The tools of a client, those with these names if any are given.

    Raises Fault if two have the same name, for a call could not say which it means, and for a name that none has.
    """
    specs: dict[str, Spec] = {}
    for at, function in enumerate(functions):
        if function.name in specs:
            raise Fault("usage", f"there are two tools {function.name!r}", param=f"tools[{at}]")
        parameters = function.parameters or {"type": "object", "properties": {}}
        specs[function.name] = Spec(name=function.name, description=function.description or "", parameters=parameters)
    for name in names or ():
        if name not in specs:
            raise Fault("usage", f"there is no tool {name!r:.100} among the tools", param="tool_choice")
    return [spec for name, spec in specs.items() if names is None or name in names]


def choice_of(
    given: openai.Choice
    | openai.ChosenTool
    | openai.ChosenFunction
    | openai.OfferedTools
    | openai.OfferedFunctions
    | None,
) -> tuple[bool, bool, list[str] | None]:
    """Whether the model may call a tool, whether it must, and which, None for any; as both interfaces say it."""
    match given:
        case openai.ChosenTool(function=openai.NamedFunction(name=name)) | openai.ChosenFunction(name=name):
            return True, True, [name]
        case openai.OfferedTools(allowed_tools=offer):
            return True, offer.mode == "required", [tool.function.name for tool in offer.tools]
        case openai.OfferedFunctions(mode=mode, tools=tools):
            return True, mode == "required", [tool.name for tool in tools]
        case word:
            return word != "none", word == "required", None


def form_of(
    given: openai.TextFormat | openai.JsonObjectFormat | openai.JsonSchemaFormat | openai.FlatJsonSchemaFormat | None,
) -> Form | None:
    """The form that an answer is to have, as both interfaces say it; None if it may have any."""
    match given:
        case openai.JsonObjectFormat():
            return Form(schema={"type": "object"})
        case openai.JsonSchemaFormat(json_schema=found) | (openai.FlatJsonSchemaFormat() as found):
            return Form(name=found.name, schema=found.schema or {}, strict=bool(found.strict))
        case _:
            return None


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


# ---- a response and its items

Kind = Literal["message", "reasoning"]
_EVENT = {"message": "output_text", "reasoning": "reasoning_text"}


def text_config(form: Form | None) -> dict[str, Any]:
    if form is None:
        return {"format": {"type": "text"}}
    return {"format": {"type": "json_schema", "name": form.name, "schema": form.schema, "strict": form.strict}}


def end_document(
    document: openai.ResponseDocument, answer: Answer, output: list[dict[str, Any]] | None = None
) -> openai.ResponseDocument:
    """A document with its answer; `output` are the items that were streamed."""
    is_cut, usage = finish_of(answer.message) == "length", answer.usage
    return replace(
        document,
        # A session may have a model of its own.
        model=answer.message.model or document.model,
        status="incomplete" if is_cut else "completed",
        incomplete_details={"reason": "max_output_tokens"} if is_cut else None,
        output=_items_of(document.id, answer.message) if output is None else output,
        usage=openai.ResponseCost(
            input_tokens=usage.prompt,
            input_tokens_details={"cached_tokens": usage.cached, "cache_write_tokens": 0},
            output_tokens=usage.completion,
            output_tokens_details={"reasoning_tokens": 0},
            total_tokens=usage.prompt + usage.completion,
        ),
    )


def _items_of(id: str, message: Message) -> list[dict[str, Any]]:
    """The items of a whole answer, named as those of a stream are."""
    found: list[dict[str, Any]] = []
    if message.reasoning:
        found.append(_item("reasoning", id, 0, message.reasoning))
    calls = calls_of(message)
    text = text_of(message) or ""
    if text or not calls:
        found.append(_item("message", id, len(found), text, is_cut=finish_of(message) == "length"))
    return [*found, *(_call(call, id, at) for at, call in enumerate(calls, len(found)))]


def _item(kind: Kind, id: str, at: int, text: str | None, *, is_cut: bool = False) -> dict[str, Any]:
    """An item of words or thoughts; one that has only begun has no text yet."""
    status = "in_progress" if text is None else "incomplete" if is_cut else "completed"
    content = [] if text is None else [_words(kind, text)]
    if kind == "reasoning":
        return {"id": f"rs_{id[5:]}{at}", "type": "reasoning", "summary": [], "content": content, "status": status}
    return {"id": f"msg_{id[5:]}{at}", "type": "message", "role": "assistant", "content": content, "status": status}


def _words(kind: Kind, text: str) -> dict[str, Any]:
    if kind == "reasoning":
        return {"type": "reasoning_text", "text": text}
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def _call(call: Mapping[str, Any], id: str, at: int) -> dict[str, Any]:
    return {
        "id": f"fc_{id[5:]}{at}",
        "type": "function_call",
        "call_id": call["id"],
        "name": call["function"]["name"],
        "arguments": call["function"]["arguments"],
        "status": "completed",
    }


def begin_document(
    id: str, model: str, wanted: openai.Respond, *, form: Form | None, is_stored: bool
) -> openai.ResponseDocument:
    """What stands around an answer that is to come."""
    return openai.ResponseDocument(
        id=id,
        created_at=int(time.time()),
        status="in_progress",
        model=model,
        instructions=wanted.instructions,
        previous_response_id=wanted.previous_response_id,
        metadata=wanted.metadata or {},
        text=text_config(form),
        store=is_stored,
        tools=list(wanted.tools or ()),
        tool_choice=wanted.tool_choice or "auto",
        parallel_tool_calls=wanted.parallel_tool_calls is not False,
        user=wanted.user,
    )


async def stream_response(
    running: Running[Answer], begun: openai.ResponseDocument, heartbeat: float
) -> AsyncGenerator[bytes, None]:
    """The answer as it comes; words before a tool of the agent's are an item of their own."""
    sent = _Stream(begun.id)
    yield sent.send("response.created", response=begun)
    yield sent.send("response.in_progress", response=begun)
    async for happened in running.events(silence=heartbeat):
        if happened is None:
            yield BEAT
            continue
        for piece in sent.take(happened):
            yield piece
    try:
        answer = running.outcome()
    except Exception as error:  # noqa: BLE001 - the status is sent; what went wrong is an event now
        fault = fault_of(error)
        code = "rate_limit_exceeded" if fault.kind == "rate_limited" else "server_error"
        failed = replace(begun, status="failed", error={"code": code, "message": fault.detail})
        yield sent.send("response.failed", response=failed)
        return
    for piece in sent.end(answer):
        yield piece
    whole = end_document(begun, answer, sent.output)
    yield sent.send(f"response.{whole.status}", response=whole)


class _Stream:
    """The events of a response, numbered, and the items that they make."""

    def __init__(self, id: str) -> None:
        self._id = id
        self._sent = 0
        self._kind: Kind | None = None
        self._said: list[str] = []
        self.output: list[dict[str, Any]] = []

    def send(self, kind: str, **fields: Any) -> bytes:
        sent = event({"type": kind, "sequence_number": self._sent, **fields}, name=kind)
        self._sent += 1
        return sent

    def take(self, happened: Event) -> Iterator[bytes]:
        """What an event of the turn is to the client, who sees nothing of the agent's tools."""
        match happened:
            case Text(text):
                yield from self._add("message", text)
            case Thought(text):
                yield from self._add("reasoning", text)
            case Called():
                yield from self._close()
            case _:
                pass

    def _add(self, kind: Kind, text: str) -> Iterator[bytes]:
        """Say or think something further."""
        if self._kind != kind:
            yield from self._close()
            self._kind = kind
            item = _item(kind, self._id, len(self.output), None)
            yield self.send("response.output_item.added", output_index=len(self.output), item=item)
            yield self._send("response.content_part.added", part=_words(kind, ""))
        self._said.append(text)
        more: dict[str, Any] = {"logprobs": []} if kind == "message" else {}
        yield self._send(f"response.{_EVENT[kind]}.delta", delta=text, **more)

    def _close(self, *, is_cut: bool = False) -> Iterator[bytes]:
        """End the item that is open, if there is one."""
        kind, text = self._kind, "".join(self._said)
        if kind is None:
            return
        more: dict[str, Any] = {"logprobs": []} if kind == "message" else {}
        yield self._send(f"response.{_EVENT[kind]}.done", text=text, **more)
        yield self._send("response.content_part.done", part=_words(kind, text))
        item = _item(kind, self._id, len(self.output), text, is_cut=is_cut)
        yield self.send("response.output_item.done", output_index=len(self.output), item=item)
        self.output.append(item)
        self._kind, self._said = None, []

    def end(self, answer: Answer) -> Iterator[bytes]:
        """What did not come piece by piece: words, and calls."""
        calls = calls_of(answer.message)
        text = text_of(answer.message) or ""
        if self._kind != "message" and (text or not calls):
            yield from self._add("message", text)
        yield from self._close(is_cut=finish_of(answer.message) == "length")
        for call in calls:
            at, item = len(self.output), _call(call, self._id, len(self.output))
            begun = {**item, "arguments": "", "status": "in_progress"}
            place = {"item_id": item["id"], "output_index": at}
            yield self.send("response.output_item.added", output_index=at, item=begun)
            yield self.send("response.function_call_arguments.delta", delta=item["arguments"], **place)
            yield self.send(
                "response.function_call_arguments.done", arguments=item["arguments"], name=item["name"], **place
            )
            yield self.send("response.output_item.done", output_index=at, item=item)
            self.output.append(item)

    def _send(self, kind: str, **fields: Any) -> bytes:
        """An event of the item that is open."""
        at = len(self.output)
        item = _item(self._kind or "message", self._id, at, None)
        return self.send(kind, item_id=item["id"], output_index=at, content_index=0, **fields)
