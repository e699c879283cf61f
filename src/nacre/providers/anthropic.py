"""Anthropic's messages, over their native wire."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from msgspec import Struct, convert

from nacre.agent.ports import Context, Emit, Notice, Reply, Spec, Usage
from nacre.entries import Message, ToolCall
from nacre.errors import ModelUnavailable, ProviderError
from nacre.providers.frames import events
from nacre.providers.listing import ModelInfo, entries_of
from nacre.providers.model_server import Patience, Server, Wire, checked_key, is_nearby
from nacre.providers.server_responses import Failure, refused
from nacre.providers.windows import known_window
from nacre.providers.wire import (
    Pieces,
    arguments_of,
    fitting_id,
    image_data,
    image_url,
    mapping_of,
    object_of,
    part_text,
    parts_of,
    reply,
    storable,
    text_of,
    token_count,
)
from nacre.providers.written import with_written_calls

HOME = "https://api.anthropic.com"
VERSION = "2023-06-01"
SIGNED = "thinking_blocks"
"""Where a message's `extra` keeps thoughts as they came: only unchanged are they taken back."""

_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")
_PASSING = {"overloaded_error", "api_error", "rate_limit_error", "timeout_error"}
_CACHED = {"cache_control": {"type": "ephemeral"}}


class Anthropic:
    """A model of Anthropic's, or of a server that speaks its messages.

    `thinking` is how many tokens the model may think for before it answers; it
    must be less than `max_tokens`. `options` are put into every request as they are.
    """

    def __init__(  # noqa: PLR0913 - each is one setting of the request
        self,
        model: str,
        *,
        base_url: str = HOME,
        key: str | None = None,
        max_tokens: int = 8192,
        thinking: int | None = None,
        options: Mapping[str, Any] | None = None,
        patience: Patience | None = None,
    ) -> None:
        self._settings = Settings(model=model, max_tokens=max_tokens, thinking=thinking, options=dict(options or {}))
        self.is_local = is_nearby(base_url)
        secret = checked_key(key, owner=base_url)
        server = Server(
            name="Anthropic" if base_url.rstrip("/") == HOME else "the server",
            address=base_url.rstrip("/").removesuffix("/v1"),
            headers={"anthropic-version": VERSION, **({"x-api-key": secret} if secret else {})},
            secret=secret,
        )
        self._wire = Wire(server, frames=events, judge=self._judge, patience=patience or Patience())

    @property
    def model(self) -> str:
        return self._settings.model

    @property
    def context_size(self) -> int | None:
        """The context window of the model in tokens; None if it is not a known one."""
        return known_window(self.model)

    async def complete(self, context: Context, *, emit: Emit) -> Reply:
        request = body(context, self._settings)

        async def ask(emit: Emit) -> Reply:
            return await self._wire.ask(
                "/v1/messages", request, begin=lambda heard: _Answer(self.model, heard), emit=emit
            )

        return await with_written_calls(ask, context.tools, emit)

    async def models(self) -> list[str]:
        """The names of the server's models."""
        return [info.name for info in await self.list_models()]

    async def list_models(self) -> list[ModelInfo]:
        """The server's models, with the windows of those we know."""
        listed = await self._wire.fetch("/v1/models?limit=1000")
        names = (entry["id"] for entry in entries_of(listed, "data", name="id"))
        return [ModelInfo(name=name, context=known_window(name)) for name in names]

    async def close(self) -> None:
        await self._wire.close()

    def _judge(self, failure: Failure) -> ProviderError | None:
        if failure.status == 404:  # noqa: PLR2004 - not found
            said = self._wire.sentence(failure)
            return ModelUnavailable(f"{said}; check the name of the model ({self.model!r}) and the address")
        return None


# ---- what is asked


class Settings(Struct, frozen=True, kw_only=True):
    """The settings that every request to a model carries."""

    model: str
    max_tokens: int = 8192
    thinking: int | None = None
    options: dict[str, Any] = {}


def body(context: Context, settings: Settings) -> dict[str, Any]:
    """Translate a context to the body of `/v1/messages`; what the next one repeats is marked for the cache."""
    found: dict[str, Any] = {
        "model": settings.model,
        "max_tokens": settings.max_tokens,
        "messages": _marked(_messages(context.messages, settings)),
        "stream": True,
    }
    if context.system.strip():
        found["system"] = [{"type": "text", "text": context.system, **_CACHED}]
    if context.tools:
        tools = [_tool(spec) for spec in context.tools]
        found["tools"] = [*tools[:-1], tools[-1] | _CACHED]
    # The server takes schemas that follow its rules alone, which are those of OpenAI's strict mode.
    if context.form is not None and context.form.strict:
        found["output_config"] = {"format": {"type": "json_schema", "schema": context.form.schema}}
    if settings.thinking is not None:
        found["thinking"] = {"type": "enabled", "budget_tokens": settings.thinking}
    return found | settings.options


def _tool(spec: Spec) -> dict[str, Any]:
    return {"name": spec.name, "description": spec.description, "input_schema": spec.parameters}


def _messages(messages: Sequence[Message], settings: Settings) -> list[dict[str, Any]]:
    """Turns of user and assistant; what the assistant does not say is the user's, its results first."""
    turns = itertools.groupby(messages, key=lambda message: message.role == "assistant")
    made = [_assistant(turn, settings) if speaks else _user(turn) for speaks, turn in turns]
    found: list[dict[str, Any]] = []
    for message in made:
        if found and message["role"] == found[-1]["role"]:
            found[-1]["content"] += message["content"]
        elif message["content"]:
            found.append(message)
    return found


def _marked(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The same messages, the last of the user's words marked: the next request begins with all that came before."""
    if messages and messages[-1]["role"] == "user":
        messages[-1]["content"][-1] |= _CACHED
    return messages


def _user(turn: Iterable[Message]) -> dict[str, Any]:
    said = list(turn)
    results = [_result(message) for message in said if message.role == "tool"]
    rest = [block for message in said if message.role != "tool" for block in _blocks(message)]
    return {"role": "user", "content": [*results, *rest] or [{"type": "text", "text": "(nothing)"}]}


def _result(message: Message) -> dict[str, Any]:
    found: dict[str, Any] = {"type": "tool_result", "tool_use_id": fitting_id(message.tool_call_id, _ID)}
    if any(image_url(part) is not None for part in parts_of(message)):
        found["content"] = _blocks(message)
    elif text := text_of(message).strip():
        found["content"] = text
    return found | ({"is_error": True} if message.extra.get("failed") else {})


def _assistant(turn: Iterable[Message], settings: Settings) -> dict[str, Any]:
    content: list[dict[str, Any]] = []
    for message in turn:
        if message.model == settings.model:
            content += message.extra.get(SIGNED) or []
        content += _blocks(message)
        content += [_use(call) for call in message.tool_calls]
    return {"role": "assistant", "content": content}


def _use(call: ToolCall) -> dict[str, Any]:
    return {"type": "tool_use", "id": fitting_id(call.id, _ID), "name": call.name, "input": object_of(call.arguments)}


def _blocks(message: Message) -> list[dict[str, Any]]:
    """A message's parts; text without a letter is refused, and so is none of its own."""
    blocks = (_block(part) for part in parts_of(message))
    return [block for block in blocks if block["type"] != "text" or block["text"].strip()]


def _block(part: dict[str, Any]) -> dict[str, Any]:
    url = image_url(part)
    if url is None:
        return {"type": "text", "text": part_text(part)}
    data = image_data(url)
    if data is None:
        return {"type": "image", "source": {"type": "url", "url": url}}
    return {"type": "image", "source": {"type": "base64", "media_type": data[0], "data": data[1]}}


# ---- what is answered: the fields that an answer is made of must have their types, others may be anything


class _Block(Struct):
    type: str = ""
    text: str | None = None
    thinking: str | None = None
    signature: str | None = None
    id: str | None = None
    name: str | None = None
    input: str | dict[str, Any] | list[Any] | None = None


class _Delta(Struct):
    type: str = ""
    text: str | None = None
    thinking: str | None = None
    signature: str | None = None
    partial_json: str | None = None
    stop_reason: str | None = None


class _Message(Struct):
    id: Any = None
    usage: Any = None


class _Piece(Struct):
    """One event; a server that does not stream sends a `message` with all its blocks."""

    type: str = ""
    index: int = 0
    message: _Message | None = None
    content_block: _Block | None = None
    delta: _Delta | None = None
    id: Any = None
    content: list[_Block] | None = None
    stop_reason: str | None = None
    usage: Any = None
    error: Any = None


class _Answer:
    def __init__(self, model: str, emit: Emit) -> None:
        self._model, self._emit = model, emit
        self._pieces = Pieces(emit)
        self._open: dict[int, dict[str, Any]] = {}
        self._usage: dict[str, int] = {}
        self._request = ""
        self._finish = ""
        self._over = False

    @property
    def complete(self) -> bool:
        return self._over

    def take(self, piece: dict[str, Any]) -> None:
        read = convert(piece, _Piece)
        match read.type:
            case "message_start":
                self._begin(read.message or _Message())
            case "content_block_start":
                self._start(read.index, mapping_of(piece.get("content_block")))
            case "content_block_delta":
                self._hear(self._open.setdefault(read.index, {}), read.delta or _Delta())
            case "message_delta":
                self._count(read.usage)
                self._finish = (read.delta.stop_reason if read.delta else None) or self._finish
            case "message_stop":
                self._over = True
            case "message":
                self._take_whole(piece, read)
            case _:
                if read.error:
                    raise _failed(read.error)

    def _take_whole(self, piece: dict[str, Any], read: _Piece) -> None:
        self._begin(_Message(id=read.id, usage=read.usage))
        for index, block in enumerate(piece.get("content") or ()):
            self._start(index, block)
        self._finish, self._over = read.stop_reason or "", True

    def _begin(self, message: _Message) -> None:
        self._request = message.id if isinstance(message.id, str) else ""
        self._count(message.usage)

    def _count(self, usage: Any) -> None:
        self._usage |= {key: token_count(count) for key, count in mapping_of(usage).items() if count is not None}

    def _start(self, index: int, block: dict[str, Any]) -> None:
        """Open a block; it is kept with fields that we do not know, for it may have to be returned as it was."""
        self._open[index] = dict(block)
        self._pieces.say(block.get("text"))
        self._pieces.think(block.get("thinking"))

    def _hear(self, block: dict[str, Any], delta: _Delta) -> None:
        match delta.type:
            case "text_delta":
                self._pieces.say(delta.text)
            case "thinking_delta":
                self._pieces.think(delta.thinking)
                block["thinking"] = (block.get("thinking") or "") + (delta.thinking or "")
            case "signature_delta":
                block["signature"] = delta.signature
            case "input_json_delta":
                block["json"] = block.get("json", "") + (delta.partial_json or "")
            case _:  # citations, and what is not invented yet
                pass

    def end(self) -> None:
        """An answer is complete when the server says so, and only then."""

    def result(self) -> Reply:
        if self._finish == "refusal":
            self._emit(Notice("the model's safety filter ended the answer"))
        blocks = [self._open[index] for index in sorted(self._open)]
        calls = [_called(block) for block in blocks if block.get("type") == "tool_use"]
        signed = [block for block in blocks if block.get("signature") or block.get("type") == "redacted_thinking"]
        message = self._pieces.message(self._model, calls, storable({SIGNED: signed}, SIGNED) if signed else None)
        cut = self._finish in {"max_tokens", "model_context_window_exceeded"}
        return reply(message, usage=_usage(self._usage, self._request), cut=cut)


def _called(block: Mapping[str, Any]) -> ToolCall:
    raw = block["json"] if block.get("json") else block.get("input") or {}
    return ToolCall(id=block.get("id") or "", name=block.get("name") or "", arguments=arguments_of(raw))


def _failed(error: Any) -> Failure:
    kind = mapping_of(error).get("type")
    return refused({"error": error}, status=200, again=isinstance(kind, str) and kind in _PASSING)


def _usage(counted: Mapping[str, int], request: str) -> Usage:
    """What it cost; tokens read from the cache or written to it are not among the `input_tokens`."""
    cached = counted.get("cache_read_input_tokens", 0)
    prompt = counted.get("input_tokens", 0) + cached + counted.get("cache_creation_input_tokens", 0)
    return Usage(prompt=prompt, completion=counted.get("output_tokens", 0), cached=cached, request=request)
