"""Ollama, over its native interface: a request is never cut in silence."""

from __future__ import annotations

import ipaddress
import os
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from difflib import get_close_matches
from typing import Any, Literal
from urllib.parse import urlsplit

from msgspec import Struct, convert
from msgspec.structs import replace

from nacre.agent.ports import Context, Emit, Notice, Reply, Usage
from nacre.client_shapes import image_data, image_url
from nacre.errors import ConfigError, ModelUnavailable, ProviderError
from nacre.messages import ToolCall
from nacre.providers import wire
from nacre.providers.model_server import ModelServer, Timeouts, clean_key, is_nearby
from nacre.providers.text_tools.provider import TextToolProvider, read_written_calls
from nacre.providers.wire import Failure, documents, read_failure

PORT = 11434
_MAX_NAMES = 8
Think = bool | Literal["low", "medium", "high", "max"]


class Capabilities(Struct, frozen=True, kw_only=True):
    """The capabilities of a model as its server reports them; `context` is the model's window in tokens."""

    tools: bool = False
    thinking: bool = False
    vision: bool = False
    context: int | None = None


class Ollama:
    """A model of an Ollama server.

    `num_ctx` is the window that the server is asked to use; a model with a smaller one gets that.
    `tools="auto"` lets the model call tools natively if it can, else by its prompt. `host` is read
    as OLLAMA_HOST, which it replaces. `options` are Ollama's own; `extra` is put into every request as it is.
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
        extra: Mapping[str, Any] | None = None,
        timeouts: Timeouts | None = None,
    ) -> None:
        self.model = model
        given, more = dict(options or {}), dict(extra or {})
        self._settings = Settings(
            model=model, num_ctx=num_ctx, keep_alive=keep_alive, think=think, options=given, extra=more
        )
        self._native: bool | None = {"auto": None, "native": True, "prompted": False}[tools]
        self._may_fall_back = tools == "auto"
        self._known: Capabilities | None = None
        secret = clean_key(key, owner="Ollama")
        where = address(os.environ.get("OLLAMA_HOST", "") if host is None else host)
        # Ollama passes requests for its cloud models on to its own servers.
        self.is_local = is_nearby(where) and not is_cloud(model)
        self._server = ModelServer(
            "Ollama",
            where,
            headers={"authorization": f"Bearer {secret}"} if secret else {},
            secret=secret,
            remedy="start it with `ollama serve`",
            frames=documents,
            judge=self._judge,
            timeouts=timeouts,
        )

    @property
    def context_size(self) -> int | None:
        """The context window of the model in tokens, as far as the server has reported it."""
        return self._known.context if self._known is not None else None

    async def complete(self, context: Context, *, emit: Emit, schema: dict[str, Any] | None = None) -> Reply:
        """Answer; with a `schema`, in JSON that follows it, as with the context's form where there are no tools."""
        if not context.tools:
            form = context.form.schema if schema is None and context.form is not None else schema
            return await self._chat(context, emit, form)
        if self._native is None:
            known = await self.capabilities()
            self._native = known is None or known.tools
        if self._native:
            try:
                return await read_written_calls(lambda inner: self._chat(context, inner, schema), context.tools, emit)
            except _NoTools:
                if not self._may_fall_back:
                    raise
                self._native = False
        return await TextToolProvider(self).complete(context, emit=emit)

    async def check(self) -> None:
        """Raise ModelUnavailable unless the server runs and has the model; learn the model's window."""
        names = await self.models()
        if not {self.model, f"{self.model}:latest"} & {*names}:
            shown = ", ".join(names[:_MAX_NAMES]) + (", …" if len(names) > _MAX_NAMES else "")
            near = get_close_matches(self.model, names, n=1)
            hint = f"Did you mean {near[0]}? " if near else ""
            raise ModelUnavailable(
                f"{self._server.where} does not have the model {self.model!r}\n"
                f"{hint}Installed: {shown or 'none'}. To install it: nacre models pull {self.model}"
            )
        await self.capabilities()

    async def capabilities(self) -> Capabilities | None:
        """The capabilities of the model; None if the server does not report them."""
        if self._known is None:
            with suppress(_NotFound):
                shown = await self._server.fetch("/api/show", {"model": self.model}, attempts=3)
                able = wire.mapping_of(shown).get("capabilities")
                if isinstance(able, list):
                    named = {name: name in able for name in ("tools", "thinking", "vision")}
                    self._known = Capabilities(**named, context=_context_length(shown))
        return self._known

    async def models(self) -> list[str]:
        """The names of the installed models."""
        return [info.name for info in await self.installed()]

    async def list_models(self) -> list[wire.ModelInfo]:
        """The installed models with size, window and capabilities."""
        return [await self.describe(info) for info in await self.installed()]

    async def describe(self, info: wire.ModelInfo) -> wire.ModelInfo:
        """Add window and capabilities to an installed model; unchanged if the server does not report them."""
        try:
            shown = await self._server.fetch("/api/show", {"model": info.name})
        except ProviderError:
            return info
        able = wire.mapping_of(shown).get("capabilities")
        capabilities = tuple(map(str, able)) if isinstance(able, list) else ()
        return replace(info, context=_context_length(shown), capabilities=capabilities)

    async def installed(self) -> list[wire.ModelInfo]:
        """The installed models with their size only: one request."""
        listed = await self._server.fetch("/api/tags")
        if not isinstance(wire.mapping_of(listed).get("models"), list):
            raise ModelUnavailable(f"{self._server.where} does not answer like Ollama; is it another server?")
        return [
            wire.ModelInfo(name=entry["name"], size=size if isinstance(size := entry.get("size"), int) else None)
            for entry in wire.entries_of(listed, "models", name="name")
        ]

    async def pull(self, name: str) -> AsyncIterator[dict[str, Any]]:
        """Install a model; gives the server's progress reports. A pull that was stopped resumes where it was."""
        async for report in self._server.stream("/api/pull", {"model": name, "stream": True}):
            if report.get("error"):
                raise ProviderError(f"{self._server.where} cannot install {name!r}: {report['error']}")
            yield report

    async def close(self) -> None:
        await self._server.close()

    async def _chat(self, context: Context, emit: Emit, schema: dict[str, Any] | None) -> Reply:
        settings = self._settings
        settings = replace(settings, num_ctx=min(settings.num_ctx, self.context_size or settings.num_ctx))
        request = body(context, settings, schema=schema)
        return await self._server.ask("/api/chat", request, begin=lambda inner: _Answer(settings, inner), emit=emit)

    def _judge(self, failure: Failure) -> ProviderError | None:
        sentence, message = self._server.sentence(failure), failure.message
        if failure.status == 404 and "model" in message.lower():  # noqa: PLR2004 - not found
            return ModelUnavailable(
                f"{self._server.where} does not have the model {self.model!r}\n"
                f"To install it: nacre models pull {self.model}"
            )
        if failure.status == 404:  # noqa: PLR2004 - the same
            return _NotFound(sentence)
        if "does not support tools" in message:
            return _NoTools(f'{sentence}; set agent.tools = "prompted" to describe tools in the prompt')
        return ProviderError(f"{sentence}; leave `think` unset") if "does not support thinking" in message else None


def _context_length(shown: Any) -> int | None:
    """The window of a model from the answer of `/api/show`."""
    info = wire.mapping_of(wire.mapping_of(shown).get("model_info"))
    lengths = (size for key, size in info.items() if key.endswith(".context_length"))
    return next((size for size in lengths if isinstance(size, int) and size > 0), None)


def is_cloud(model: str) -> bool:
    """Whether a model runs on Ollama's servers instead of this one."""
    return model.endswith((":cloud", "-cloud"))


class _NotFound(ProviderError):
    """The server does not know that path."""


class _NoTools(ProviderError):
    """The model cannot call tools natively."""


# ---- the request


class Settings(Struct, frozen=True, kw_only=True):
    """The settings that every request to a model carries."""

    model: str
    num_ctx: int
    keep_alive: str | int | None = None
    think: Think | None = None
    options: dict[str, Any] = {}
    extra: dict[str, Any] = {}


def body(context: Context, settings: Settings, *, schema: dict[str, Any] | None = None) -> dict[str, Any]:
    """Translate a context to the body of `/api/chat`."""
    # Which tool each call was of; results of earlier versions do not name theirs.
    names = {call.id: call.name for message in context.messages for call in message.tool_calls}
    messages = wire.system_first(context)
    for message in wire.with_result_images(context.messages):
        found: dict[str, Any] = {"role": message.role, "content": wire.text_of(message)}
        messages.append(found)
        if message.role == "tool":
            id = message.tool_call_id or ""
            found |= {"tool_name": message.name or names.get(id, ""), "tool_call_id": id}
            continue
        # The images that came along as data; the server fetches none.
        urls = (image_url(part) for part in wire.parts_of(message))
        images = [image[1] for url in urls if url is not None and (image := image_data(url))]
        if images:
            found["images"] = images
        if message.role == "assistant" and message.reasoning:
            found["thinking"] = message.reasoning
        if message.tool_calls:
            found["tool_calls"] = []
            for index, call in enumerate(message.tool_calls):
                function = {"index": index, "name": call.name, "arguments": wire.object_of(call.arguments)}
                found["tool_calls"].append({"id": call.id, "function": function})
    request: dict[str, Any] = {
        "model": settings.model,
        "messages": messages,
        "stream": True,
        # The server would drop messages from the front, or from the middle while it answers.
        "truncate": False,
        "shift": False,
        "options": {**settings.options, "num_ctx": settings.num_ctx},
    }
    if context.tools:
        request["tools"] = [wire.function(spec) for spec in context.tools]
    wanted = {"keep_alive": settings.keep_alive, "think": settings.think, "format": schema}
    return request | {key: value for key, value in wanted.items() if value is not None} | settings.extra


# ---- the answer: the fields that an answer is made of must have their types, others may be anything


class _CallPiece(Struct):
    id: Any = None
    function: wire.FunctionPiece | None = None


class _Message(Struct):
    content: str | None = None
    thinking: str | None = None
    tool_calls: list[_CallPiece] | None = None


class _Piece(Struct):
    message: _Message | None = None
    done: bool | None = None
    error: Any = None


class _Answer(wire.Answer):
    def __init__(self, settings: Settings, emit: Emit) -> None:
        super().__init__(settings.model, emit)
        self._num_ctx = settings.num_ctx
        self._calls: list[ToolCall] = []
        self._last: dict[str, Any] = {}

    def take(self, piece: dict[str, Any]) -> None:
        if "error" in piece:
            raise read_failure(piece, status=200)
        read = convert(piece, _Piece)
        message = read.message or _Message()
        self.think(message.thinking)
        self.say(message.content)
        for call in message.tool_calls or ():
            function = call.function or wire.FunctionPiece()
            id, arguments = call.id if isinstance(call.id, str) else "", wire.arguments_of(function.arguments or {})
            self._calls.append(ToolCall(id=id, name=function.name or "", arguments=arguments))
        if read.done:
            self._last, self.complete = piece, True

    def result(self) -> Reply:
        prompt, completion = self._last.get("prompt_eval_count"), self._last.get("eval_count")
        usage = Usage(prompt=wire.token_count(prompt), completion=wire.token_count(completion))
        if usage.prompt >= self._num_ctx:
            self._emit(Notice("Ollama cut the request to fit its window; Ollama 0.12.6 and later report this instead"))
        return self.reply(self._calls, usage=usage, is_cut=self._last.get("done_reason") == "length")


# ---- the address


def address(host: str) -> str:
    """Read OLLAMA_HOST as Ollama does: host, port, both, or a URL; a server on all addresses is asked on its own."""
    text = host.strip().strip("\"'").strip()
    scheme, found, rest = text.partition("://")
    if not found:
        scheme, rest = "http", text
    fallback = {"http": 80, "https": 443}.get(scheme, PORT) if found else PORT
    place, slash, path = rest.rstrip("/").partition("/")

    # Host and port; an IPv6 address has colons of its own, and needs brackets only before a port.
    try:
        name, port = str(ipaddress.ip_address(place.strip("[]"))), ""
    except ValueError:
        name, _, port = place.rpartition(":") if ":" in place else (place, "", "")
        name = name.strip("[]")
    try:
        number = urlsplit(f"{scheme}://x:{port}").port or fallback
    except ValueError:
        raise ConfigError(f"OLLAMA_HOST {host!r} has an invalid port; write it as host:port") from None

    # What it listens on is not always where it can be reached.
    try:
        ip = ipaddress.ip_address(name or "127.0.0.1")
    except ValueError:
        return f"{scheme}://{name}:{number}{slash}{path}"
    if ip.is_unspecified:
        ip = ipaddress.ip_address("127.0.0.1" if ip.version == 4 else "::1")  # noqa: PLR2004 - IPv4
    return f"{scheme}://{f'[{ip}]' if ip.version == 6 else ip}:{number}{slash}{path}"  # noqa: PLR2004 - IPv6
