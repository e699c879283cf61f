"""Ollama, over its native wire: what it is shown is never cut in silence."""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Literal
from urllib.parse import urlsplit

from msgspec import Struct

from nacre.agent.ports import Context, Emit, Notice, Reply, Usage
from nacre.entries import Message, ToolCall
from nacre.errors import ConfigError, ProviderError
from nacre.providers.http import Failure, Patience, Server, Wire, checked_key, documents, refused
from nacre.providers.translation import (
    Pieces,
    arguments_of,
    function,
    image_data,
    image_url,
    object_of,
    parts_of,
    reply,
    system_first,
    text_of,
    tool_names,
)

PORT = 11434
Think = bool | Literal["low", "medium", "high", "max"]


class Capabilities(Struct, frozen=True, kw_only=True):
    """What a model can do, as its server says; `context` is how many tokens it was trained for."""

    tools: bool = False
    thinking: bool = False
    vision: bool = False
    context: int | None = None


class Ollama:
    """A model of an Ollama server.

    `num_ctx` is how many tokens the server makes room for, and must be what the
    context was made for. `tools="auto"` lets the model call tools natively if
    it can, else by its prompt. `host` is read as OLLAMA_HOST, which it stands for.
    """

    def __init__(  # noqa: PLR0913 - each is one setting of the request
        self,
        model: str,
        *,
        num_ctx: int,
        host: str | None = None,
        key: str | None = None,
        keep_alive: str | int | None = None,
        think: Think | None = None,
        tools: Literal["auto", "native", "prompted"] = "auto",
        options: Mapping[str, Any] | None = None,
        patience: Patience | None = None,
    ) -> None:
        self._settings = Settings(
            model=model, num_ctx=num_ctx, keep_alive=keep_alive, think=think, options=dict(options or {})
        )
        self._native: bool | None = {"auto": None, "native": True, "prompted": False}[tools]
        self._may_fall_back = tools == "auto"
        self._known: Capabilities | None = None
        secret = checked_key(key, owner="Ollama")
        server = Server(
            name="Ollama",
            address=address(os.environ.get("OLLAMA_HOST", "") if host is None else host),
            headers={"authorization": f"Bearer {secret}"} if secret else {},
            secret=secret,
            remedy="start it: ollama serve",
        )
        self._wire = Wire(server, frames=documents, judge=self._judge, patience=patience or Patience())

    @property
    def model(self) -> str:
        return self._settings.model

    async def complete(self, context: Context, *, emit: Emit, schema: dict[str, Any] | None = None) -> Reply:
        """Answer; `schema` holds the text of the answer to a JSON schema."""
        if not context.tools:
            return await self._chat(context, emit, schema)
        if self._native is None:
            self._native = await self._has_tools()
        if self._native:
            try:
                return await self._chat(context, emit, schema)
            except _NoTools:
                if not self._may_fall_back:
                    raise
                self._native = False
        from nacre.providers.prompted import Prompted  # noqa: PLC0415 - most models call tools natively

        return await Prompted(self).complete(context, emit=emit)

    async def capabilities(self) -> Capabilities | None:
        """What the model can do; None if the server does not say."""
        if self._known is None:
            self._known = await self._shown()
        return self._known

    async def models(self) -> list[str]:
        """The models that the server has."""
        listed = await self._wire.fetch("/api/tags")
        return [str(entry["name"]) for entry in listed.get("models") or []]

    async def close(self) -> None:
        await self._wire.close()

    async def _chat(self, context: Context, emit: Emit, schema: dict[str, Any] | None) -> Reply:
        request = body(context, self._settings, schema=schema)
        return await self._wire.ask("/api/chat", request, begin=lambda heard: _Answer(self._settings, heard), emit=emit)

    async def _has_tools(self) -> bool:
        known = await self.capabilities()
        return known is None or known.tools

    async def _shown(self) -> Capabilities | None:
        try:
            shown = await self._wire.fetch("/api/show", {"model": self._settings.model}, attempts=3)
        except _NotFound:
            return None
        able = shown.get("capabilities")
        if able is None:
            return None
        lengths = (size for key, size in (shown.get("model_info") or {}).items() if key.endswith(".context_length"))
        return Capabilities(
            tools="tools" in able, thinking="thinking" in able, vision="vision" in able, context=next(lengths, None)
        )

    def _judge(self, failure: Failure) -> ProviderError | None:
        said = self._wire.sentence(failure)
        if failure.status == 404:  # noqa: PLR2004 - not found
            if "model" in failure.message.lower():
                return ProviderError(
                    f"{self._wire.where} has no model {self.model!r}; get it: ollama pull {self.model}"
                )
            return _NotFound(said)
        if "does not support tools" in failure.message:
            return _NoTools(f'{said}; with tools = "prompted" it calls them by its prompt')
        if "does not support thinking" in failure.message:
            return ProviderError(f"{said}; leave `think` unset")
        return None


class _NotFound(ProviderError):
    """The server does not know that path."""


class _NoTools(ProviderError):
    """The model cannot call tools natively."""


# ---- what is asked


class Settings(Struct, frozen=True, kw_only=True):
    """What every request to a model says beside the conversation."""

    model: str
    num_ctx: int
    keep_alive: str | int | None = None
    think: Think | None = None
    options: dict[str, Any] = {}


def body(context: Context, settings: Settings, *, schema: dict[str, Any] | None = None) -> dict[str, Any]:
    """Translate a context to the body of `/api/chat`."""
    names = tool_names(context.messages)
    found: dict[str, Any] = {
        "model": settings.model,
        "messages": [*system_first(context), *(_message(message, names) for message in context.messages)],
        "stream": True,
        # The server would drop messages from the front, or from the middle while it answers.
        "truncate": False,
        "shift": False,
        "options": {**settings.options, "num_ctx": settings.num_ctx},
    }
    if context.tools:
        found["tools"] = [function(spec) for spec in context.tools]
    wanted = {"keep_alive": settings.keep_alive, "think": settings.think, "format": schema}
    return found | {key: value for key, value in wanted.items() if value is not None}


def _message(message: Message, names: Mapping[str, str]) -> dict[str, Any]:
    found: dict[str, Any] = {"role": message.role, "content": text_of(message)}
    if message.role == "tool":
        id = message.tool_call_id or ""
        return found | {"tool_name": message.name or names.get(id, ""), "tool_call_id": id}
    if images := _images(message):
        found["images"] = images
    if message.role == "assistant" and message.reasoning:
        found["thinking"] = message.reasoning
    if message.tool_calls:
        found["tool_calls"] = [_call(index, call) for index, call in enumerate(message.tool_calls)]
    return found


def _call(index: int, call: ToolCall) -> dict[str, Any]:
    told = {"index": index, "name": call.name, "arguments": object_of(call.arguments)}
    return {"id": call.id, "function": told}


def _images(message: Message) -> list[str]:
    """The images that came along as data; the server fetches none."""
    urls = (image_url(part) for part in parts_of(message))
    found = (image_data(url) for url in urls if url is not None)
    return [data for _, data in filter(None, found)]


# ---- what is answered


class _Answer:
    def __init__(self, settings: Settings, emit: Emit) -> None:
        self._settings, self._emit = settings, emit
        self._pieces = Pieces(emit)
        self._calls: list[ToolCall] = []
        self._end: dict[str, Any] = {}

    @property
    def complete(self) -> bool:
        return bool(self._end)

    def take(self, piece: dict[str, Any]) -> None:
        if "error" in piece:
            raise refused(piece, status=200)
        message = piece.get("message") or {}
        self._pieces.think(message.get("thinking"))
        self._pieces.say(message.get("content"))
        self._calls.extend(_called(call) for call in message.get("tool_calls") or ())
        if piece.get("done"):
            self._end = piece

    def result(self) -> Reply:
        usage = Usage(prompt=self._end.get("prompt_eval_count") or 0, completion=self._end.get("eval_count") or 0)
        if usage.prompt >= self._settings.num_ctx:
            self._emit(Notice("Ollama cut what it was shown to fit num_ctx; a newer Ollama (0.12.6) refuses instead"))
        message = self._pieces.message(self._settings.model, self._calls)
        return reply(message, usage=usage, cut=self._end.get("done_reason") == "length")


def _called(call: Mapping[str, Any]) -> ToolCall:
    told = call.get("function") or {}
    return ToolCall(
        id=str(call.get("id") or ""),
        name=str(told.get("name") or ""),
        arguments=arguments_of(told.get("arguments") or {}),
    )


# ---- where it is


def address(host: str) -> str:
    """Read OLLAMA_HOST as Ollama does: host, port, both, or a URL; a server on all addresses is asked on its own."""
    text = host.strip().strip("\"'").strip()
    scheme, found, rest = text.partition("://")
    if not found:
        scheme, rest = "http", text
    fallback = {"http": 80, "https": 443}.get(scheme, PORT) if found else PORT
    place, slash, path = rest.rstrip("/").partition("/")
    name, port = _split(place)
    try:
        number = urlsplit(f"{scheme}://x:{port}").port or fallback
    except ValueError:
        raise ConfigError(f"OLLAMA_HOST {host!r} has a port that is none; write it as host:port") from None
    return f"{scheme}://{_reachable(name)}:{number}{slash}{path}"


def _split(place: str) -> tuple[str, str]:
    """Host and port; an IPv6 address has colons of its own, and needs brackets only before a port."""
    with suppress(ValueError):
        return str(ipaddress.ip_address(place.strip("[]"))), ""
    name, _, port = place.rpartition(":") if ":" in place else (place, "", "")
    return name.strip("[]"), port


def _reachable(name: str) -> str:
    try:
        ip = ipaddress.ip_address(name or "127.0.0.1")
    except ValueError:
        return name
    if ip.is_unspecified:
        return "127.0.0.1" if ip.version == 4 else "[::1]"  # noqa: PLR2004 - IPv4
    return f"[{ip}]" if ip.version == 6 else str(ip)  # noqa: PLR2004 - IPv6
