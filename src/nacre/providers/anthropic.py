"""Anthropic's messages, over their native interface."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from msgspec import Struct, convert

from nacre.agent.ports import Context, Emit, Notice, Reply, Usage
from nacre.client_shapes import anthropic_content, fitting_id
from nacre.errors import ModelUnavailable, ProviderError
from nacre.messages import Message, ToolCall
from nacre.providers import wire
from nacre.providers.model_server import ModelServer, Timeouts, clean_key, is_nearby
from nacre.providers.text_tools.provider import read_written_calls
from nacre.providers.wire import Failure, events, read_failure

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
        self.model = model
        self._settings = Settings(model=model, max_tokens=max_tokens, thinking=thinking, options=dict(options or {}))
        self.is_local = is_nearby(base_url)
        secret = clean_key(key, owner=base_url)
        self._server = ModelServer(
            "Anthropic" if base_url.rstrip("/") == HOME else "the server",
            base_url.rstrip("/").removesuffix("/v1"),
            headers={"anthropic-version": VERSION, **({"x-api-key": secret} if secret else {})},
            secret=secret,
            frames=events,
            judge=self._judge,
            timeouts=timeouts,
        )

    @property
    def context_size(self) -> int | None:
        """The context window of the model in tokens; None if it is not a known one."""
        return wire.known_window(self.model)

    async def complete(self, context: Context, *, emit: Emit) -> Reply:
        request, begin = body(context, self._settings), partial(_Answer, self.model)
        return await read_written_calls(
            lambda inner: self._server.ask("/v1/messages", request, begin=begin, emit=inner), context.tools, emit
        )

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
        if failure.status != 404:  # noqa: PLR2004 - not found
            return None
        sentence = self._server.sentence(failure)
        return ModelUnavailable(f"{sentence}; check the name of the model ({self.model!r}) and the address")


# ---- the request


class Settings(Struct, frozen=True, kw_only=True):
    """The settings that every request to a model carries."""

    model: str
    max_tokens: int = 8192
    thinking: int | None = None
    options: dict[str, Any] = {}


def body(context: Context, settings: Settings) -> dict[str, Any]:
    """Translate a context to the body of `/v1/messages`; what the next one repeats is marked for the cache."""
    messages = _turns(context.messages, settings.model)
    if messages and messages[-1]["role"] == "user":
        messages[-1]["content"][-1] |= _CACHE_MARK
    found = {"model": settings.model, "max_tokens": settings.max_tokens, "messages": messages, "stream": True}
    if context.system.strip():
        found["system"] = [{"type": "text", "text": context.system, **_CACHE_MARK}]
    if context.tools:
        tools: list[dict[str, Any]] = [
            {"name": spec.name, "description": spec.description, "input_schema": spec.parameters}
            for spec in context.tools
        ]
        found["tools"] = [*tools[:-1], tools[-1] | _CACHE_MARK]
    # The server takes schemas that follow its rules alone, which are those of OpenAI's strict mode.
    if context.form is not None and context.form.strict:
        found["output_config"] = {"format": {"type": "json_schema", "schema": context.form.schema}}
    if settings.thinking is not None:
        found["thinking"] = {"type": "enabled", "budget_tokens": settings.thinking}
    return found | settings.options


def _turns(messages: Sequence[Message], model: str) -> list[dict[str, Any]]:
    """Turns of user and assistant; what the assistant does not say is the user's, its results first."""
    found: list[dict[str, Any]] = []
    for is_assistant, turn in itertools.groupby(messages, key=lambda message: message.role == "assistant"):
        content: list[dict[str, Any]] = []
        results: list[dict[str, Any]] = []
        for message in turn:
            blocks = _blocks(message)
            if message.role == "tool":
                has_images = any(block["type"] == "image" for block in blocks)
                shown = blocks if has_images else wire.text_of(message).strip()
                result = {"type": "tool_result", "tool_use_id": fitting_id(message.tool_call_id, _ID)}
                failed = {"is_error": True} if message.extra.get("failed") else {}
                results.append(result | ({"content": shown} if shown else {}) | failed)
                continue
            signed = message.extra.get(SIGNED) if is_assistant and message.model == model else None
            content += [*(signed or ()), *blocks]
            for call in message.tool_calls if is_assistant else ():
                id, arguments = fitting_id(call.id, _ID), wire.object_of(call.arguments)
                content.append({"type": "tool_use", "id": id, "name": call.name, "input": arguments})
        role = "assistant" if is_assistant else "user"
        content = [*results, *content] or ([] if is_assistant else [{"type": "text", "text": "(nothing)"}])
        if found and role == found[-1]["role"]:
            found[-1]["content"] += content
        elif content:
            found.append({"role": role, "content": content})
    return found


def _blocks(message: Message) -> list[dict[str, Any]]:
    """A message's parts; empty text is refused, and so is a message without any part."""
    return anthropic_content(wire.parts_of(message))


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


class _Answer(wire.Answer):
    def __init__(self, model: str, emit: Emit) -> None:
        super().__init__(model, emit)
        self._open: dict[int, dict[str, Any]] = {}
        self._usage: dict[str, int] = {}
        self._request = self._finish = ""

    def take(self, piece: dict[str, Any]) -> None:
        read = convert(piece, _Piece)
        delta = read.delta or _Delta()
        match read.type, delta.type:
            case "message_start" | "message", _:
                message = read.message or _Message(id=read.id, usage=read.usage)
                self._request = message.id if isinstance(message.id, str) else ""
                self._count(message.usage)
                if read.type == "message":
                    for index, block in enumerate(piece.get("content") or ()):
                        self._start(index, block)
                    self._finish, self.complete = read.stop_reason or "", True
            case "content_block_start", _:
                self._start(read.index, wire.mapping_of(piece.get("content_block")))
            case "content_block_delta", "text_delta":
                self.say(delta.text)
            case "content_block_delta", kind:
                # Others are citations, and what comes later.
                block = self._open.setdefault(read.index, {})
                if kind == "thinking_delta":
                    self.think(delta.thinking)
                    block["thinking"] = (block.get("thinking") or "") + (delta.thinking or "")
                elif kind == "signature_delta":
                    block["signature"] = delta.signature
                elif kind == "input_json_delta":
                    block["json"] = block.get("json", "") + (delta.partial_json or "")
            case "message_delta", _:
                self._count(read.usage)
                self._finish = delta.stop_reason or self._finish
            case "message_stop", _:
                self.complete = True
            case _ if read.error:
                name = wire.mapping_of(read.error).get("type")
                is_temporary = isinstance(name, str) and name in _TEMPORARY
                raise read_failure({"error": read.error}, status=200, can_retry=is_temporary)
            case _:
                pass

    def _count(self, usage: Any) -> None:
        counts = wire.mapping_of(usage).items()
        self._usage |= {key: wire.token_count(count) for key, count in counts if count is not None}

    def _start(self, index: int, block: dict[str, Any]) -> None:
        """Open a block; it is kept with fields that we do not know, for it may have to be returned as it was."""
        self._open[index] = dict(block)
        self.say(block.get("text"))
        self.think(block.get("thinking"))

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
        # Tokens read from the cache or written to it are not among the `input_tokens`.
        counts = self._usage
        cached = counts.get("cache_read_input_tokens", 0)
        prompt = counts.get("input_tokens", 0) + cached + counts.get("cache_creation_input_tokens", 0)
        completion = counts.get("output_tokens", 0)
        usage = Usage(prompt=prompt, completion=completion, cached=cached, request=self._request)
        is_cut = self._finish in {"max_tokens", "model_context_window_exceeded"}
        return self.reply(calls, usage=usage, is_cut=is_cut, extra=extra)
