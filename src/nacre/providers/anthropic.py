"""Anthropic's messages, over their native wire."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from msgspec import Struct

from nacre.agent.ports import Context, Emit, Notice, Reply, Spec, Usage
from nacre.entries import Message, ToolCall
from nacre.errors import ModelUnavailable, ProviderError
from nacre.providers.http import Failure, Patience, Server, Wire, checked_key, events, is_nearby, refused
from nacre.providers.listing import ModelInfo
from nacre.providers.translation import (
    Pieces,
    arguments_of,
    fitting_id,
    image_data,
    image_url,
    object_of,
    part_text,
    parts_of,
    reply,
    text_of,
    token_count,
)
from nacre.providers.windows import known_window

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
        return await self._wire.ask("/v1/messages", request, begin=lambda heard: _Answer(self.model, heard), emit=emit)

    async def models(self) -> list[str]:
        """The names of the server's models."""
        return [info.name for info in await self.list_models()]

    async def list_models(self) -> list[ModelInfo]:
        """The server's models, with the windows of those we know."""
        listed = await self._wire.fetch("/v1/models?limit=1000")
        entries = listed.get("data") if isinstance(listed, dict) else None
        names = [str(entry["id"]) for entry in entries or [] if isinstance(entry, dict) and entry.get("id")]
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
    if text := text_of(message).strip():
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


# ---- what is answered


class _Answer:
    def __init__(self, model: str, emit: Emit) -> None:
        self._model, self._emit = model, emit
        self._pieces = Pieces(emit)
        self._open: dict[int, dict[str, Any]] = {}
        self._usage: dict[str, Any] = {}
        self._request = ""
        self._finish = ""
        self._over = False

    @property
    def complete(self) -> bool:
        return self._over

    def take(self, piece: dict[str, Any]) -> None:
        match piece.get("type"):
            case "message_start":
                self._begin(piece.get("message") or {})
            case "content_block_start":
                self._start(piece["index"], piece.get("content_block") or {})
            case "content_block_delta":
                self._hear(self._open.setdefault(piece["index"], {}), piece.get("delta") or {})
            case "message_delta":
                self._count(piece.get("usage"))
                self._finish = (piece.get("delta") or {}).get("stop_reason") or self._finish
            case "message_stop":
                self._over = True
            case _:
                if piece.get("error"):
                    raise _failed(piece)

    def _begin(self, message: Mapping[str, Any]) -> None:
        self._request = str(message.get("id") or "")
        self._count(message.get("usage"))

    def _count(self, usage: Mapping[str, Any] | None) -> None:
        self._usage |= {key: token_count(count) for key, count in (usage or {}).items() if count is not None}

    def _start(self, index: int, block: Mapping[str, Any]) -> None:
        self._open[index] = dict(block)
        self._pieces.say(block.get("text"))
        self._pieces.think(block.get("thinking"))

    def _hear(self, block: dict[str, Any], delta: Mapping[str, Any]) -> None:
        match delta.get("type"):
            case "text_delta":
                self._pieces.say(delta["text"])
            case "thinking_delta":
                self._pieces.think(delta["thinking"])
                block["thinking"] = block.get("thinking", "") + delta["thinking"]
            case "signature_delta":
                block["signature"] = delta["signature"]
            case "input_json_delta":
                block["json"] = block.get("json", "") + delta["partial_json"]
            case _:  # citations, and what is not invented yet
                pass

    def result(self) -> Reply:
        if self._finish == "refusal":
            self._emit(Notice("the model's safety filter ended the answer"))
        blocks = [self._open[index] for index in sorted(self._open)]
        calls = [_called(block) for block in blocks if block.get("type") == "tool_use"]
        signed = [block for block in blocks if block.get("signature") or block.get("type") == "redacted_thinking"]
        message = self._pieces.message(self._model, calls, {SIGNED: signed} if signed else None)
        cut = self._finish in {"max_tokens", "model_context_window_exceeded"}
        return reply(message, usage=_usage(self._usage, self._request), cut=cut)


def _called(block: Mapping[str, Any]) -> ToolCall:
    raw = block["json"] if block.get("json") else json.dumps(block.get("input") or {})
    return ToolCall(id=str(block.get("id") or ""), name=str(block.get("name") or ""), arguments=arguments_of(raw))


def _failed(piece: Mapping[str, Any]) -> Failure:
    error = piece["error"]
    kind = error.get("type") if isinstance(error, dict) else ""
    return refused(piece, status=200, again=kind in _PASSING)


def _usage(counted: Mapping[str, int], request: str) -> Usage:
    """What it cost; tokens read from the cache or written to it are not among the `input_tokens`."""
    cached = counted.get("cache_read_input_tokens", 0)
    prompt = counted.get("input_tokens", 0) + cached + counted.get("cache_creation_input_tokens", 0)
    return Usage(prompt=prompt, completion=counted.get("output_tokens", 0), cached=cached, request=request)
