"""Anthropic's messages, over their native interface."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct, convert

from nacre.agent.ports import Context, Emit, Notice, Reply, Usage
from nacre.entries import Message, ToolCall
from nacre.errors import ModelUnavailable, ProviderError
from nacre.providers import wire
from nacre.providers.model_server import Endpoint, ModelServer, Timeouts, clean_key, is_nearby
from nacre.providers.server_responses import Failure, events, read_failure
from nacre.providers.text_tools.provider import read_written_calls

HOME = "https://api.anthropic.com"
VERSION = "2023-06-01"
SIGNED = "thinking_blocks"
"""Where a message's `extra` keeps thoughts as they came: only unchanged are they taken back."""

_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")
_TEMPORARY = {"overloaded_error", "api_error", "rate_limit_error", "timeout_error"}
_CACHE_MARK = {"cache_control": {"type": "ephemeral"}}


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
        timeouts: Timeouts | None = None,
    ) -> None:
        self._settings = Settings(model=model, max_tokens=max_tokens, thinking=thinking, options=dict(options or {}))
        self.is_local = is_nearby(base_url)
        secret = clean_key(key, owner=base_url)
        endpoint = Endpoint(
            name="Anthropic" if base_url.rstrip("/") == HOME else "the server",
            address=base_url.rstrip("/").removesuffix("/v1"),
            headers={"anthropic-version": VERSION, **({"x-api-key": secret} if secret else {})},
            secret=secret,
        )
        self._server = ModelServer(endpoint, frames=events, judge=self._judge, timeouts=timeouts or Timeouts())

    @property
    def model(self) -> str:
        return self._settings.model

    @property
    def context_size(self) -> int | None:
        """The context window of the model in tokens; None if it is not a known one."""
        return wire.known_window(self.model)

    async def complete(self, context: Context, *, emit: Emit) -> Reply:
        request = body(context, self._settings)

        async def ask(inner: Emit) -> Reply:
            return await self._server.ask(
                "/v1/messages", request, begin=lambda watch: _Answer(self.model, watch), emit=inner
            )

        return await read_written_calls(ask, context.tools, emit)

    async def models(self) -> list[str]:
        """The names of the server's models."""
        return [info.name for info in await self.list_models()]

    async def list_models(self) -> list[wire.ModelInfo]:
        """The server's models, with the windows of those we know."""
        listed = await self._server.fetch("/v1/models?limit=1000")
        names = (entry["id"] for entry in wire.entries_of(listed, "data", name="id"))
        return [wire.ModelInfo(name=name, context=wire.known_window(name)) for name in names]

    async def close(self) -> None:
        await self._server.close()

    def _judge(self, failure: Failure) -> ProviderError | None:
        if failure.status == 404:  # noqa: PLR2004 - not found
            sentence = self._server.sentence(failure)
            return ModelUnavailable(f"{sentence}; check the name of the model ({self.model!r}) and the address")
        return None


# ---- the request


class Settings(Struct, frozen=True, kw_only=True):
    """The settings that every request to a model carries."""

    model: str
    max_tokens: int = 8192
    thinking: int | None = None
    options: dict[str, Any] = {}


def body(context: Context, settings: Settings) -> dict[str, Any]:
    """Translate a context to the body of `/v1/messages`; what the next one repeats is marked for the cache."""
    messages = _messages(context.messages, settings)
    if messages and messages[-1]["role"] == "user":
        messages[-1]["content"][-1] |= _CACHE_MARK
    found: dict[str, Any] = {
        "model": settings.model,
        "max_tokens": settings.max_tokens,
        "messages": messages,
        "stream": True,
    }
    if context.system.strip():
        found["system"] = [{"type": "text", "text": context.system, **_CACHE_MARK}]
    if context.tools:
        found["tools"] = [
            {"name": spec.name, "description": spec.description, "input_schema": spec.parameters}
            for spec in context.tools
        ]
        found["tools"][-1] |= _CACHE_MARK
    # The server takes schemas that follow its rules alone, which are those of OpenAI's strict mode.
    if context.form is not None and context.form.strict:
        found["output_config"] = {"format": {"type": "json_schema", "schema": context.form.schema}}
    if settings.thinking is not None:
        found["thinking"] = {"type": "enabled", "budget_tokens": settings.thinking}
    return found | settings.options


def _messages(messages: Sequence[Message], settings: Settings) -> list[dict[str, Any]]:
    """Turns of user and assistant; what the assistant does not say is the user's, its results first."""
    found: list[dict[str, Any]] = []
    for is_assistant, turn in itertools.groupby(messages, key=lambda message: message.role == "assistant"):
        content: list[dict[str, Any]] = []
        if is_assistant:
            for message in turn:
                if message.model == settings.model:
                    content += message.extra.get(SIGNED) or []
                content += _blocks(message)
                for call in message.tool_calls:
                    id, arguments = wire.fitting_id(call.id, _ID), wire.object_of(call.arguments)
                    content.append({"type": "tool_use", "id": id, "name": call.name, "input": arguments})
        else:
            given = list(turn)
            content += [_result(message) for message in given if message.role == "tool"]
            content += [block for message in given if message.role != "tool" for block in _blocks(message)]
            content = content or [{"type": "text", "text": "(nothing)"}]
        role = "assistant" if is_assistant else "user"
        if found and role == found[-1]["role"]:
            found[-1]["content"] += content
        elif content:
            found.append({"role": role, "content": content})
    return found


def _result(message: Message) -> dict[str, Any]:
    found: dict[str, Any] = {"type": "tool_result", "tool_use_id": wire.fitting_id(message.tool_call_id, _ID)}
    if any(wire.image_url(part) is not None for part in wire.parts_of(message)):
        found["content"] = _blocks(message)
    elif text := wire.text_of(message).strip():
        found["content"] = text
    return found | ({"is_error": True} if message.extra.get("failed") else {})


def _blocks(message: Message) -> list[dict[str, Any]]:
    """A message's parts; empty text is refused, and so is a message without any part."""
    found: list[dict[str, Any]] = []
    for part in wire.parts_of(message):
        url = wire.image_url(part)
        if url is not None:
            source: dict[str, Any] = {"type": "url", "url": url}
            if data := wire.image_data(url):
                source = {"type": "base64", "media_type": data[0], "data": data[1]}
            found.append({"type": "image", "source": source})
        elif (text := wire.part_text(part)).strip():
            found.append({"type": "text", "text": text})
    return found


# ---- the answer: the fields that an answer is made of must have their types, others may be anything


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
        self._pieces = wire.Pieces(emit)
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
                self._start(read.index, wire.mapping_of(piece.get("content_block")))
            case "content_block_delta":
                self._take_delta(self._open.setdefault(read.index, {}), read.delta or _Delta())
            case "message_delta":
                self._count(read.usage)
                self._finish = (read.delta.stop_reason if read.delta else None) or self._finish
            case "message_stop":
                self._over = True
            case "message":
                self._begin(_Message(id=read.id, usage=read.usage))
                for index, block in enumerate(piece.get("content") or ()):
                    self._start(index, block)
                self._finish, self._over = read.stop_reason or "", True
            case _:
                if read.error:
                    kind = wire.mapping_of(read.error).get("type")
                    is_temporary = isinstance(kind, str) and kind in _TEMPORARY
                    raise read_failure({"error": read.error}, status=200, can_retry=is_temporary)

    def _begin(self, message: _Message) -> None:
        self._request = message.id if isinstance(message.id, str) else ""
        self._count(message.usage)

    def _count(self, usage: Any) -> None:
        counts = wire.mapping_of(usage).items()
        self._usage |= {key: wire.token_count(count) for key, count in counts if count is not None}

    def _start(self, index: int, block: dict[str, Any]) -> None:
        """Open a block; it is kept with fields that we do not know, for it may have to be returned as it was."""
        self._open[index] = dict(block)
        self._pieces.say(block.get("text"))
        self._pieces.think(block.get("thinking"))

    def _take_delta(self, block: dict[str, Any], delta: _Delta) -> None:
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
            case _:  # citations, and what comes later
                pass

    def end(self) -> None:
        """An answer is complete when the server says so, and only then."""

    def result(self) -> Reply:
        if self._finish == "refusal":
            self._emit(Notice("the model's safety filter ended the answer"))
        blocks = [self._open[index] for index in sorted(self._open)]
        calls = []
        for block in blocks:
            if block.get("type") == "tool_use":
                raw = block["json"] if block.get("json") else block.get("input") or {}
                id, name = block.get("id") or "", block.get("name") or ""
                calls.append(ToolCall(id=id, name=name, arguments=wire.arguments_of(raw)))
        signed = [block for block in blocks if block.get("signature") or block.get("type") == "redacted_thinking"]
        extra = wire.storable({SIGNED: signed}, SIGNED) if signed else None
        message = self._pieces.message(self._model, calls, extra)
        # Tokens read from the cache or written to it are not among the `input_tokens`.
        counts = self._usage
        cached = counts.get("cache_read_input_tokens", 0)
        prompt = counts.get("input_tokens", 0) + cached + counts.get("cache_creation_input_tokens", 0)
        completion = counts.get("output_tokens", 0)
        usage = Usage(prompt=prompt, completion=completion, cached=cached, request=self._request)
        cut = self._finish in {"max_tokens", "model_context_window_exceeded"}
        return wire.make_reply(message, usage=usage, cut=cut)
