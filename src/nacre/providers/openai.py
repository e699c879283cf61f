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
from nacre.errors import ProviderError
from nacre.providers.http import OVER, RETRIED, Failure, Patience, Server, Wire, checked_key, events, refused
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
)

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
        secret = checked_key(key, owner=base_url)
        self._paths = _azure_paths(model, azure) if azure else ("/chat/completions", "/models")
        headers = {"api-key": secret} if azure else {"authorization": f"Bearer {secret}"}
        server = Server(
            name="Azure OpenAI" if azure else "the server",
            address=base_url.rstrip("/").removesuffix("/openai") if azure else base_url,
            headers=headers if secret else {},
            secret=secret,
        )
        self._wire = Wire(server, frames=events, judge=self._judge, patience=patience or Patience())

    @property
    def model(self) -> str:
        return self._settings.model

    async def complete(self, context: Context, *, emit: Emit, schema: dict[str, Any] | None = None) -> Reply:
        """Answer; `schema` holds the text of the answer to a JSON schema."""
        try:
            return await self._chat(context, emit, schema)
        except _NoUsage:
            self._usage = False
            return await self._chat(context, emit, schema)

    async def models(self) -> list[str]:
        """The models that the server has."""
        listed = await self._wire.fetch(self._paths[1])
        return [str(entry["id"]) for entry in listed.get("data") or []]

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
            return ProviderError(f"{said}; asking again will not help, the account must be topped up")
        if failure.status == 404 and not failure.overflow:  # noqa: PLR2004 - not found
            return ProviderError(f"{said}; is there a model {self.model!r}, and is the address right?")
        return None


class _NoUsage(ProviderError):
    """The server does not know how to count tokens in a stream."""


def _azure_paths(deployment: str, version: str) -> tuple[str, str]:
    asked = f"?api-version={quote(version, safe='')}"
    return f"/openai/deployments/{quote(deployment, safe='')}/chat/completions{asked}", f"/openai/models{asked}"


# ---- what is asked


class Settings(Struct, frozen=True, kw_only=True):
    """What every request to a model says beside the conversation; `limit` is the name of `max_tokens` there."""

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
        prompt=counted.get("prompt_tokens") or 0,
        completion=counted.get("completion_tokens") or 0,
        cached=details.get("cached_tokens") or 0,
        request=request,
    )
