"""OpenAI's chat completions, and every server that speaks them; Azure's addresses too."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import partial
from typing import Any
from urllib.parse import quote

from msgspec import Struct, convert
from msgspec.structs import replace

from nacre.agent.ports import Context, Emit, Form, Notice, Reply, Usage, ignore
from nacre.client_shapes import fitting_id
from nacre.errors import ModelUnavailable, ProviderError, RateLimited
from nacre.messages import Message, ToolCall
from nacre.providers import wire
from nacre.providers.model_server import RETRIED, AnswerWatch, ModelServer, Timeouts, clean_key, is_nearby
from nacre.providers.text_tools.parser import read
from nacre.providers.text_tools.provider import read_written_calls
from nacre.providers.wire import DONE, Failure, events, read_failure

HOME = "https://api.openai.com/v1"
EXTRA = "extra_content"
"""Where a call's `extra` keeps what Gemini wants back with it: the signature of the thought that led to it."""
DETAILS = "reasoning_details"
"""Where a message's `extra` keeps OpenRouter's thoughts, which go back to the model that had them."""
_ID = re.compile(r".{1,40}", re.DOTALL)
_DEMANDING = re.compile(r"deepseek|kimi", re.IGNORECASE)
_WINDOW_FIELDS = ("max_model_len", "context_length", "max_context_length", "context_window", "n_ctx", "n_ctx_train")


class OpenAI:
    """A model of a server that speaks OpenAI's chat completions.

    `azure` is the version of Azure's interface; the model is then the name of
    a deployment and `base_url` the resource's address. `return_reasoning` sends
    the thoughts before a tool call back with it, which DeepSeek and Kimi demand;
    None: to models with these names. `options` are put into every request as they are.
    """

    def __init__(  # noqa: PLR0913 - each is one setting of the request
        self,
        model: str,
        *,
        base_url: str = HOME,
        key: str | None = None,
        azure: str | None = None,
        max_tokens: int | None = None,
        return_reasoning: bool | None = None,
        options: Mapping[str, Any] | None = None,
        timeouts: Timeouts | None = None,
    ) -> None:
        self.model = model
        modern = azure is not None or base_url.rstrip("/") == HOME
        self._settings = Settings(
            model=model,
            max_tokens=max_tokens,
            limit="max_completion_tokens" if modern else "max_tokens",
            form_with_tools=modern,
            has_cache_key=azure is None and modern,
            return_reasoning=bool(_DEMANDING.search(model)) if return_reasoning is None else return_reasoning,
            options=dict(options or {}),
        )
        self._usage = True
        self.is_local = azure is None and is_nearby(base_url)
        self._window: int | None = None
        secret = clean_key(key, owner=base_url)
        self._chat_path, self._models_path = "/chat/completions", "/models"
        if azure:
            version = f"?api-version={quote(azure, safe='')}"
            self._chat_path = f"/openai/deployments/{quote(model, safe='')}/chat/completions{version}"
            self._models_path = f"/openai/models{version}"
        headers = {"api-key": secret} if azure else {"authorization": f"Bearer {secret}"}
        self._server = ModelServer(
            "Azure OpenAI" if azure else "OpenAI" if modern else "the server",
            base_url.rstrip("/").removesuffix("/openai") if azure else base_url,
            headers=headers if secret else {},
            secret=secret,
            frames=events,
            judge=self._judge,
            timeouts=timeouts,
        )

    @property
    def context_size(self) -> int | None:
        """The context window of the model in tokens: named by the server, else that of a known model."""
        return self._window or wire.known_window(self.model)

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
            raise ModelUnavailable(f"{self._server.where} does not have the model {self.model!r}\nIt has: {names}")
        # llama.cpp serves its one model under any name.
        found = found or (listed[0] if listed else None)
        self._window = found.context if found is not None else None

    async def complete(self, context: Context, *, emit: Emit, schema: dict[str, Any] | None = None) -> Reply:
        """Answer; with a `schema`, in JSON that follows it, as with the context's form.

        A request that the server refused for no lasting reason is repeated.
        """
        shown = context if schema is None else replace(context, form=Form(schema=schema))

        async def ask(inner: Emit) -> Reply:
            watch, begin, is_repeated = AnswerWatch(inner), partial(_Answer, self.model), False
            while True:
                request = body(shown, self._settings, usage=self._usage)
                try:
                    return await self._server.ask(self._chat_path, request, begin=begin, emit=watch)
                except _NoUsage:
                    self._usage = False
                except _CallRefused as error:
                    # The server could not read the calls; perhaps we can.
                    calls = read(error.generation, shown.tools).calls
                    if calls and all(isinstance(call.arguments, dict) for call in calls):
                        made = [ToolCall(name=call.name, arguments=call.arguments) for call in calls]
                        return wire.Answer(self.model, ignore).reply(made, usage=None, is_cut=False)
                    # The same request may well succeed, but words that were shown would come twice.
                    if is_repeated or watch.has_answer:
                        raise
                    is_repeated = True
                    inner(Notice(f"{error}; asking again"))

        return await read_written_calls(ask, context.tools, emit)

    async def models(self) -> list[str]:
        """The names of the server's models."""
        return [info.name for info in await self.list_models()]

    async def list_models(self) -> list[wire.ModelInfo]:
        """The server's models; the window where the server or our table knows it."""
        found = []
        for entry in wire.entries_of(await self._server.fetch(self._models_path), "data", name="id"):
            # vLLM, OpenRouter, LM Studio and llama.cpp each have a field of their own for the window.
            meta = wire.mapping_of(entry.get("meta"))
            sizes = (source.get(name) for name in _WINDOW_FIELDS for source in (entry, meta))
            window = next((size for size in sizes if isinstance(size, int) and size > 0), None)
            found.append(wire.ModelInfo(name=entry["id"], context=window or wire.known_window(entry["id"])))
        return found

    async def close(self) -> None:
        await self._server.close()

    def _judge(self, failure: Failure) -> ProviderError | None:
        sentence = self._server.sentence(failure)
        if failure.status in {400, 422} and self._usage and "stream_options" in failure.message:
            return _NoUsage(sentence)
        if "tool_use_failed" in failure.kind:
            return _CallRefused(f"{sentence}; the model wrote: {failure.generation[:200]!r}", failure.generation)
        if "insufficient_quota" in failure.kind:
            return RateLimited(f"{sentence}; the account has no credit left", wait=failure.wait)
        if failure.status == 404 and not failure.overflow:  # noqa: PLR2004 - not found
            return ModelUnavailable(f"{sentence}; check the name of the model ({self.model!r}) and the address")
        return None


class _NoUsage(ProviderError):
    """The server does not know how to count tokens in a stream."""


class _CallRefused(ProviderError):
    """The server did not pass on a tool call that it could not read; `generation` is what the model wrote."""

    def __init__(self, message: str, generation: str) -> None:
        super().__init__(message)
        self.generation = generation


# ---- the request


class Settings(Struct, frozen=True, kw_only=True):
    """The settings that every request to a model carries; `limit` is the name of `max_tokens` there.

    `form_with_tools`: the server can force an answer into a form where the model may call tools as well.
    `has_cache_key`: it finds what it has cached by a key; most other servers refuse a field that they do not know.
    """

    model: str
    max_tokens: int | None = None
    limit: str = "max_tokens"
    form_with_tools: bool = False
    has_cache_key: bool = False
    return_reasoning: bool = False
    options: dict[str, Any] = {}


def body(context: Context, settings: Settings, *, usage: bool = True) -> dict[str, Any]:
    """Translate a context to the body of `/chat/completions`."""
    messages = wire.system_first(context)
    messages += [_message(message, settings) for message in wire.with_result_images(context.messages)]
    found: dict[str, Any] = {"model": settings.model, "messages": messages, "stream": True}
    if usage:
        found["stream_options"] = {"include_usage": True}
    if context.tools:
        found["tools"] = [wire.function(spec) for spec in context.tools]
    if settings.max_tokens is not None:
        found[settings.limit] = settings.max_tokens
    if settings.has_cache_key and context.cache_key:
        found["prompt_cache_key"] = context.cache_key
    form = context.form
    if form is not None and (settings.form_with_tools or not context.tools):
        # Any object at all is what more servers understand.
        found["response_format"] = {"type": "json_object"}
        if form.schema != {"type": "object"}:
            json_schema = {"name": form.name, "schema": form.schema, **({"strict": True} if form.strict else {})}
            found["response_format"] = {"type": "json_schema", "json_schema": json_schema}
    return found | settings.options


def _message(message: Message, settings: Settings) -> dict[str, Any]:
    text = wire.text_of(message)
    if message.role == "tool":
        return {"role": "tool", "tool_call_id": fitting_id(message.tool_call_id, _ID), "content": text}
    # Text where text is all there is, which every server takes; an assistant's parts are text.
    parts = wire.parts_of(message)
    is_text = message.role != "user" or all(part.get("type") == "text" for part in parts)
    found: dict[str, Any] = {"role": message.role, "content": text if is_text else parts}
    if message.tool_calls and settings.return_reasoning and message.reasoning:
        found["reasoning_content"] = message.reasoning
    # What the server gave along with its answer goes back to the same model alone.
    is_own = message.role == "assistant" and message.model == settings.model
    if is_own and DETAILS in message.extra:
        found[DETAILS] = message.extra[DETAILS]
    if message.tool_calls:
        found["tool_calls"] = []
        for call in message.tool_calls:
            arguments = json.dumps(wire.object_of(call.arguments), ensure_ascii=False)
            function = {"name": call.name, "arguments": arguments}
            signature = {EXTRA: call.extra[EXTRA]} if is_own and EXTRA in call.extra else {}
            id = fitting_id(call.id, _ID)
            found["tool_calls"].append({"id": id, "type": "function", "function": function, **signature})
        found["content"] = found["content"] or None
    return found


# ---- the answer: the fields that an answer is made of must have their types, others may be anything


class _CallPiece(Struct):
    index: int | str | None = None
    id: str | int | None = None
    function: wire.FunctionPiece | None = None
    extra_content: Any = None


class _Part(Struct):
    """A part of the content; Mistral has its thoughts there."""

    text: str | None = None
    thinking: Any = None


class _Delta(Struct):
    """What comes next; `function_call` is how the first models called."""

    content: str | list[_Part | str] | None = None
    refusal: Any = None
    reasoning_content: Any = None
    reasoning: Any = None
    reasoning_details: Any = None
    tool_calls: list[_CallPiece] | None = None
    function_call: wire.FunctionPiece | None = None


class _Choice(Struct):
    delta: _Delta | None = None
    message: _Delta | None = None
    finish_reason: str | None = None
    error: Any = None


class _Piece(Struct):
    id: Any = None
    choices: list[_Choice] | None = None
    usage: Any = None
    error: Any = None


class _Answer(wire.Answer):
    def __init__(self, model: str, emit: Emit) -> None:
        super().__init__(model, emit)
        # Calls as they are put together from pieces, and where the pieces that come next belong.
        self._calls: list[ToolCall] = []
        self._at: dict[int | str, int] = {}
        self._details: list[dict[str, Any]] = []
        self._usage: dict[str, Any] = {}
        self._request = self._finish = ""
        self._is_left_open = self._streams = False

    def take(self, piece: dict[str, Any]) -> None:
        read = convert(piece, _Piece)
        if read.error:
            raise _stream_failure(read.error)
        self._request = self._request or (read.id if isinstance(read.id, str) else "")
        self._usage = wire.mapping_of(read.usage) or self._usage
        for choice in read.choices or ():
            if choice.error:
                raise _stream_failure(choice.error)
            self._streams = self._streams or choice.delta is not None
            self._take_delta((choice.delta if self._streams else choice.message) or _Delta())
            self._finish = self._finish or choice.finish_reason or ""
            self._is_left_open = choice.finish_reason == ""
        if self._finish == "error":
            raise Failure("ended its answer with an error, and did not say which", can_retry=True)
        self.complete = self.complete or bool(self._finish) or piece is DONE

    def _take_delta(self, delta: _Delta) -> None:
        details = self._take_details(delta.reasoning_details)
        self.think(_text(delta.reasoning_content) or _text(delta.reasoning) or details)
        for part in [delta.content] if isinstance(delta.content, str) else delta.content or ():
            if isinstance(part, str):
                self.say(part)
            else:
                self.think(_text(part.thinking))
                self.say(part.text)
        self.say(_text(delta.refusal))
        for call in delta.tool_calls or ():
            self._take_call(call)
        if delta.function_call is not None:
            self._take_call(_CallPiece(index="function_call", function=delta.function_call))

    def _take_call(self, piece: _CallPiece) -> None:
        function = piece.function or wire.FunctionPiece()
        name, id = function.name or "", str(piece.id or "")
        # Find the call that it belongs to; some servers give all their calls the same index, or none.
        index = piece.index
        if index is None:
            index = len(self._at) - (not name and bool(self._at))
        place = self._at.get(index)
        if place is None or (id and self._calls[place].id not in ("", id)):
            place = self._at[index] = len(self._calls)
            self._calls.append(ToolCall())
        call, more = self._calls[place], function.arguments or ""
        arguments = call.arguments + (more if isinstance(more, str) else wire.json_text(more))
        given = {EXTRA: piece.extra_content} if isinstance(piece.extra_content, dict) else {}
        extra = call.extra | wire.storable(given, EXTRA)
        self._calls[place] = replace(call, id=call.id or id, name=call.name or name, arguments=arguments, extra=extra)

    def _take_details(self, details: Any) -> str:
        """Take OpenRouter's thoughts, which it wants back as they came; gives what can be shown of them."""
        shown = ""
        for part in details if isinstance(details, list) else ():
            if not isinstance(part, dict):
                continue
            shown += _text(part.get("text")) or _text(part.get("summary"))
            last = self._details[-1] if self._details else {}
            if last.get("index") is None or any(last.get(key) != part.get(key) for key in ("index", "type")):
                self._details.append(dict(part))
                continue
            # It continues the last one.
            for key, value in part.items():
                before = last.get(key)
                is_text = key in {"text", "summary", "data"} and isinstance(before, str) and isinstance(value, str)
                last[key] = f"{before}{value}" if is_text else before if value is None else value
        return shown

    def end(self) -> None:
        """Take an answer as complete whose last piece gives an empty reason for its end, as some servers do."""
        if self._is_left_open:
            self.complete = True
            self._emit(Notice("the server did not say why its answer ended; it may be incomplete"))

    def result(self) -> Reply:
        if self._finish == "content_filter":
            self._emit(Notice("the server's content filter cut the answer"))
        extra = wire.storable({DETAILS: self._details}, DETAILS) if self._details else {}
        calls = [replace(call, arguments=wire.arguments_of(call.arguments)) for call in self._calls]
        counts, details = self._usage, wire.mapping_of(self._usage.get("prompt_tokens_details"))
        given = (counts.get("prompt_tokens"), counts.get("completion_tokens"), details.get("cached_tokens"))
        prompt, completion, cached = map(wire.token_count, given)
        usage = Usage(prompt=prompt, completion=completion, cached=cached, request=self._request) if counts else None
        return self.reply(calls, usage=usage, is_cut=self._finish == "length", extra=extra)


def _text(content: Any) -> str:
    """The text of a piece, which some servers send in parts."""
    if isinstance(content, list):
        texts = (part.get("text") for part in content if isinstance(part, dict))
        return "".join(text for text in texts if isinstance(text, str))
    return content if isinstance(content, str) else ""


def _stream_failure(error: Any) -> Failure:
    """Read an error that came where a piece of the answer was due; its status, if any, is in its code."""
    code = wire.mapping_of(error).get("code")
    return read_failure({"error": error}, status=200, can_retry=isinstance(code, int) and code in RETRIED)
