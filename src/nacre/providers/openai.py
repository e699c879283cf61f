"""OpenAI's chat completions, and every server that speaks them; Azure's addresses too."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from msgspec import Struct

from nacre.agent.ports import Context, Emit, Notice, Reply, Usage
from nacre.entries import Message, ToolCall
from nacre.errors import ModelUnavailable, ProviderError
from nacre.providers.http import (
    OVER,
    RETRIED,
    Failure,
    Patience,
    Server,
    Wire,
    checked_key,
    events,
    is_nearby,
    refused,
)
from nacre.providers.listing import ModelInfo
from nacre.providers.translation import (
    Pieces,
    arguments_of,
    fitting_id,
    function,
    object_of,
    parts_of,
    reply,
    system_first,
    text_of,
    token_count,
)
from nacre.providers.windows import known_window

HOME = "https://api.openai.com/v1"
_ID = re.compile(r".{1,40}", re.DOTALL)


class OpenAI:
    """A model of a server that speaks OpenAI's chat completions.

    `azure` is the version of Azure's interface; the model is then the name of
    a deployment and `base_url` the resource's address. `options` are put into
    every request as they are.
    """

    def __init__(  # noqa: PLR0913 - each is one setting of the request
        self,
        model: str,
        *,
        base_url: str = HOME,
        key: str | None = None,
        azure: str | None = None,
        max_tokens: int | None = None,
        return_reasoning: bool = False,
        options: Mapping[str, Any] | None = None,
        patience: Patience | None = None,
    ) -> None:
        modern = azure is not None or base_url.rstrip("/") == HOME
        self._settings = Settings(
            model=model,
            max_tokens=max_tokens,
            limit="max_completion_tokens" if modern else "max_tokens",
            return_reasoning=return_reasoning,
            options=dict(options or {}),
        )
        self._usage = True
        self.is_local = azure is None and is_nearby(base_url)
        self._reported: int | None = None
        secret = checked_key(key, owner=base_url)
        self._paths = _azure_paths(model, azure) if azure else ("/chat/completions", "/models")
        headers = {"api-key": secret} if azure else {"authorization": f"Bearer {secret}"}
        server = Server(
            name="Azure OpenAI" if azure else "OpenAI" if modern else "the server",
            address=base_url.rstrip("/").removesuffix("/openai") if azure else base_url,
            headers=headers if secret else {},
            secret=secret,
        )
        self._wire = Wire(server, frames=events, judge=self._judge, patience=patience or Patience())

    @property
    def model(self) -> str:
        return self._settings.model

    @property
    def context_size(self) -> int | None:
        """The context window of the model in tokens: named by the server, else that of a known model."""
        return self._reported or known_window(self.model)

    async def check(self) -> None:
        """Raise ModelUnavailable if a server of this network is down or lacks the model; learn the model's window.

        A public server is not asked: the first request says the same, and costs no second round trip.
        """
        if not self.is_local:
            return
        try:
            listed = await self.list_models()
        except ModelUnavailable:
            raise
        except ProviderError:
            return  # Not every server lists its models.
        found = next((info for info in listed if info.name == self.model), None)
        if found is None and len(listed) > 1:
            names = ", ".join(info.name for info in listed[:8])
            raise ModelUnavailable(f"{self._wire.where} does not have the model {self.model!r}\nIt has: {names}")
        # llama.cpp serves its one model under any name.
        found = found or (listed[0] if listed else None)
        self._reported = found.context if found is not None else None

    async def complete(self, context: Context, *, emit: Emit, schema: dict[str, Any] | None = None) -> Reply:
        """Answer; `schema` holds the text of the answer to a JSON schema."""
        try:
            return await self._chat(context, emit, schema)
        except _NoUsage:
            self._usage = False
            return await self._chat(context, emit, schema)

    async def models(self) -> list[str]:
        """The names of the server's models."""
        return [info.name for info in await self.list_models()]

    async def list_models(self) -> list[ModelInfo]:
        """The server's models; the window where the server or our table knows it."""
        listed = await self._wire.fetch(self._paths[1])
        entries = listed.get("data") if isinstance(listed, dict) else None
        found = (entry for entry in entries or [] if isinstance(entry, dict) and entry.get("id"))
        return [
            ModelInfo(name=str(entry["id"]), context=_reported(entry) or known_window(str(entry["id"])))
            for entry in found
        ]

    async def close(self) -> None:
        await self._wire.close()

    async def _chat(self, context: Context, emit: Emit, schema: dict[str, Any] | None) -> Reply:
        request = body(context, self._settings, schema=schema, usage=self._usage)
        return await self._wire.ask(self._paths[0], request, begin=lambda heard: _Answer(self.model, heard), emit=emit)

    def _judge(self, failure: Failure) -> ProviderError | None:
        said = self._wire.sentence(failure)
        if failure.status in {400, 422} and self._usage and "stream_options" in failure.message:
            return _NoUsage(said)
        if "insufficient_quota" in failure.kind:
            return ModelUnavailable(f"{said}; the account has no credit left")
        if failure.status == 404 and not failure.overflow:  # noqa: PLR2004 - not found
            return ModelUnavailable(f"{said}; check the name of the model ({self.model!r}) and the address")
        return None


def _reported(entry: Mapping[str, Any]) -> int | None:
    """The window of a listed model: vLLM, OpenRouter, LM Studio and llama.cpp each have a field of their own."""
    meta = entry.get("meta")
    sources = (entry, meta) if isinstance(meta, dict) else (entry,)
    names = ("max_model_len", "context_length", "max_context_length", "context_window", "n_ctx", "n_ctx_train")
    sizes = (source.get(name) for name in names for source in sources)
    return next((size for size in sizes if isinstance(size, int) and size > 0), None)


class _NoUsage(ProviderError):
    """The server does not know how to count tokens in a stream."""


def _azure_paths(deployment: str, version: str) -> tuple[str, str]:
    asked = f"?api-version={quote(version, safe='')}"
    return f"/openai/deployments/{quote(deployment, safe='')}/chat/completions{asked}", f"/openai/models{asked}"


# ---- what is asked


class Settings(Struct, frozen=True, kw_only=True):
    """The settings that every request to a model carries; `limit` is the name of `max_tokens` there."""

    model: str
    max_tokens: int | None = None
    limit: str = "max_tokens"
    return_reasoning: bool = False
    options: dict[str, Any] = {}


def body(
    context: Context, settings: Settings, *, schema: dict[str, Any] | None = None, usage: bool = True
) -> dict[str, Any]:
    """Translate a context to the body of `/chat/completions`."""
    found: dict[str, Any] = {
        "model": settings.model,
        "messages": [*system_first(context), *(_message(message, settings) for message in context.messages)],
        "stream": True,
    }
    if usage:
        found["stream_options"] = {"include_usage": True}
    if context.tools:
        found["tools"] = [function(spec) for spec in context.tools]
    if settings.max_tokens is not None:
        found[settings.limit] = settings.max_tokens
    if schema is not None:
        found["response_format"] = {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema}}
    return found | settings.options


def _message(message: Message, settings: Settings) -> dict[str, Any]:
    if message.role == "tool":
        return {"role": "tool", "tool_call_id": _id(message.tool_call_id), "content": text_of(message)}
    found: dict[str, Any] = {"role": message.role, "content": _content(message)}
    if message.role == "assistant" and settings.return_reasoning and message.reasoning:
        found["reasoning_content"] = message.reasoning
    if message.tool_calls:
        found["tool_calls"] = [_call(call) for call in message.tool_calls]
        found["content"] = found["content"] or None
    return found


def _content(message: Message) -> str | list[dict[str, Any]]:
    """Text where text is all there is, which every server takes; an assistant's parts are text."""
    parts = parts_of(message)
    if message.role != "user" or all(part.get("type") == "text" for part in parts):
        return text_of(message)
    return parts


def _call(call: ToolCall) -> dict[str, Any]:
    told = {"name": call.name, "arguments": json.dumps(object_of(call.arguments), ensure_ascii=False)}
    return {"id": _id(call.id), "type": "function", "function": told}


def _id(id: str | None) -> str:
    return fitting_id(id, _ID)


# ---- what is answered


class _Answer:
    def __init__(self, model: str, emit: Emit) -> None:
        self._model, self._emit = model, emit
        self._pieces = Pieces(emit)
        self._calls = _Calls()
        self._usage: dict[str, Any] = {}
        self._request = ""
        self._finish = ""
        self._streams = False
        self._over = False

    @property
    def complete(self) -> bool:
        return bool(self._finish) or self._over

    def take(self, piece: dict[str, Any]) -> None:
        if piece.get("error"):
            raise _failed(piece)
        self._over = self._over or piece is OVER
        self._request = self._request or str(piece.get("id") or "")
        self._usage = piece.get("usage") or self._usage
        for choice in piece.get("choices") or ():
            self._streams = self._streams or "delta" in choice
            self._hear(choice.get("delta" if self._streams else "message") or {})
            self._finish = self._finish or choice.get("finish_reason") or ""

    def _hear(self, delta: Mapping[str, Any]) -> None:
        self._pieces.think(_text(delta.get("reasoning_content") or delta.get("reasoning")))
        self._pieces.say(_text(delta.get("content")))
        self._pieces.say(_text(delta.get("refusal")))
        for call in delta.get("tool_calls") or ():
            self._calls.take(call)

    def result(self) -> Reply:
        if self._finish == "content_filter":
            self._emit(Notice("the server's content filter cut the answer"))
        message = self._pieces.message(self._model, self._calls.whole())
        return reply(message, usage=_usage(self._usage, self._request), cut=self._finish == "length")


class _Calls:
    """Tool calls put together from pieces, which say by their index where they belong."""

    def __init__(self) -> None:
        self._calls: list[dict[str, str]] = []
        self._at: dict[int, dict[str, str]] = {}

    def take(self, piece: Mapping[str, Any]) -> None:
        told = piece.get("function") or {}
        call = self._place(piece, str(told.get("name") or ""))
        arguments = told.get("arguments") or ""
        call["arguments"] += arguments if isinstance(arguments, str) else json.dumps(arguments)

    def _place(self, piece: Mapping[str, Any], name: str) -> dict[str, str]:
        """Find the call that a piece belongs to; some servers give all their calls the same index, or none."""
        index, id = piece.get("index"), str(piece.get("id") or "")
        if index is None:
            index = len(self._at) - (not name and bool(self._at))
        call = self._at.get(index)
        if call is None or (id and call["id"] and id != call["id"]):
            call = self._at[index] = {"id": "", "name": "", "arguments": ""}
            self._calls.append(call)
        call["id"], call["name"] = call["id"] or id, call["name"] or name
        return call

    def whole(self) -> list[ToolCall]:
        return [
            ToolCall(id=call["id"], name=call["name"], arguments=arguments_of(call["arguments"]))
            for call in self._calls
        ]


def _text(content: Any) -> str:
    """The text of a piece, which some servers send in parts."""
    if isinstance(content, list):
        return "".join(_text(part.get("text")) for part in content if isinstance(part, dict))
    return content if isinstance(content, str) else ""


def _failed(piece: Mapping[str, Any]) -> Failure:
    """Read an error that came where a piece of the answer was due; its status, if any, is in its code."""
    error = piece["error"]
    code = error.get("code") if isinstance(error, dict) else None
    return refused(piece, status=200, again=code in RETRIED)


def _usage(counted: Mapping[str, Any], request: str) -> Usage | None:
    if not counted:
        return None
    details = counted.get("prompt_tokens_details") or {}
    return Usage(
        prompt=token_count(counted.get("prompt_tokens")),
        completion=token_count(counted.get("completion_tokens")),
        cached=token_count(details.get("cached_tokens")),
        request=request,
    )
