"""Spans of turns, model calls and tools, by OpenTelemetry's conventions for generative AI.

A turn is `invoke_agent`, a request to a model `chat`, a tool that runs `execute_tool`. The conventions are still in
development; the names of attributes are those of their version 1.41.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from contextvars import Context as Variables
from contextvars import Token
from typing import Any, TypeVar

import msgspec
from opentelemetry import trace
from opentelemetry.context import Context as Surroundings
from opentelemetry.context import attach, detach, get_current, get_value, set_value
from opentelemetry.trace import Span, SpanKind, StatusCode, Tracer, set_span_in_context

import nacre
from nacre.agent.ports import Context, Effect, Emit, Event, Notice, Output, Provider, Reply, Scene, Spec, Text, Thought
from nacre.agent.ports import Tool as AnyTool
from nacre.errors import NacreError, describe_error
from nacre.messages import Message
from nacre.runtime.counters import ProviderWrapper

logger = logging.getLogger(__name__)

T = TypeVar("T")
Attributes = Mapping[str, Any]
_CONVERSATION = "nacre-session"
"""Where the surroundings of a span keep the key of the session."""
_TURN = "nacre-turn"
"""Where those of a turn keep the task that it runs in."""
_FINISH = {"stop": "stop", "calls": "tool_call", "length": "length"}
_REQUEST = ("temperature", "top_p", "max_tokens")
"""Settings of a model that have an attribute of the same name."""


class Spans:
    """Makes spans with the tracer of the process, as the program that started it has set it up.

    `models` has the settings of single models. Without `has_content` nothing of a conversation is in a span but its
    key: no text, no argument, no result, and no sentence of an error.
    """

    def __init__(self, *, models: Mapping[str, Any], has_content: bool) -> None:
        self.models, self.has_content = models, has_content
        self._tracer: Tracer | None = None
        self._has_failed = False

    def trace_turn(
        self, key: str, caller: Variables, *, agent: str, model: Callable[[], tuple[str, str]]
    ) -> AbstractContextManager[object]:
        # Not by the surroundings here: an actor has those of the request that started it, perhaps long ago.
        outside = self.attempt(lambda: set_value(_CONVERSATION, key, caller.run(get_current)))
        parent = self.attempt(lambda: set_value(_TURN, asyncio.current_task(), outside))
        provider = name = ""
        with suppress(NacreError):  # the turn itself says that there is no such model
            provider, name = model()
        fields = {
            "gen_ai.operation.name": "invoke_agent",
            "gen_ai.agent.name": agent,
            "gen_ai.conversation.id": key,
            "gen_ai.provider.name": provider,
            "gen_ai.request.model": name,
        }
        return self.span(f"invoke_agent {agent}", fields, parent=parent)

    def trace_model(self, kind: str, provider: Provider) -> Provider:
        return _TracedModel(provider, self, kind)

    def trace_tools(self, tools: Mapping[str, AnyTool]) -> Mapping[str, AnyTool]:
        return _TracedTools(tools, self)

    def name_session(self, key: str, provider: Provider) -> Provider:
        return _OfSession(provider, key)

    @contextmanager
    def span(
        self, name: str, fields: Attributes, *, kind: SpanKind = SpanKind.INTERNAL, parent: Surroundings | None = None
    ) -> Iterator[_OpenSpan]:
        """A span that is current while it is entered; an error that leaves it is noted by its class."""
        opened = _OpenSpan(self)
        self.attempt(lambda: opened.begin(self.tracer, name, _known(fields), kind=kind, parent=parent))
        try:
            yield opened
        except BaseException as error:
            opened.fail(type(error).__qualname__, error.__str__)
            raise
        finally:
            opened.end()

    @property
    def tracer(self) -> Tracer:
        if self._tracer is None:
            self._tracer = trace.get_tracer("nacre", nacre.__version__)
        return self._tracer

    def attempt(self, step: Callable[[], T]) -> T | None:
        """Do something for a span; what goes wrong with it is logged once, and is nobody's trouble."""
        try:
            return step()
        except Exception as error:  # noqa: BLE001 - the code of exporters and samplers is anybody's
            if not self._has_failed:
                self._has_failed = True
                logger.warning("spans cannot be recorded", extra={"error": describe_error(error)})
            return None


class _OpenSpan:
    """A span until it ends; none if it could not be started."""

    def __init__(self, spans: Spans) -> None:
        self._spans = spans
        self._span: Span | None = None
        self._token: Token[Surroundings] | None = None

    def begin(
        self, tracer: Tracer, name: str, fields: Attributes, *, kind: SpanKind, parent: Surroundings | None
    ) -> None:
        if parent is not None:
            # Also if there is no span: what is below it is of this caller and this session.
            self._token = attach(parent)
        self._span = tracer.start_span(name, kind=kind, attributes=fields)
        current = set_span_in_context(self._span)
        if self._token is not None:
            detach(self._token)
        self._token = attach(current)

    @property
    def has_content(self) -> bool:
        """Whether texts are wanted, and somebody records them."""
        span = self._span
        return self._spans.has_content and span is not None and bool(self._spans.attempt(span.is_recording))

    def note(self, make: Callable[[], Attributes]) -> None:
        """Add what is known by now."""
        if (span := self._span) is not None:
            self._spans.attempt(lambda: span.set_attributes(_known(make())))

    def tell(self, event: str, text: str) -> None:
        """Add that something happened; its text is content."""
        if (span := self._span) is not None:
            self._spans.attempt(lambda: span.add_event(event, {"text": text} if self.has_content else None))

    def fail(self, kind: str, text: Callable[[], str]) -> None:
        """Note that it ended with an error; its text is content."""
        if (span := self._span) is not None:
            self._spans.attempt(lambda: span.set_attribute("error.type", kind))
            self._spans.attempt(lambda: span.set_status(StatusCode.ERROR, text() if self.has_content else None))

    def end(self) -> None:
        span, token = self._span, self._token
        if token is not None:
            self._spans.attempt(lambda: detach(token))
        if span is not None:
            self._spans.attempt(span.end)


def _known(fields: Attributes) -> Attributes:
    return {name: value for name, value in fields.items() if value not in (None, "")}


# ---- models


class _TracedModel(ProviderWrapper):
    """One model. A retry of the same request is part of its span; another model, or a smaller request, has its own."""

    def __init__(self, inner: Provider, spans: Spans, kind: str) -> None:
        super().__init__(inner)
        self._spans, self._kind = spans, kind

    async def complete(self, context: Context, *, emit: Emit, **options: Any) -> Reply:
        kind = SpanKind.INTERNAL if self._kind == "embedded" else SpanKind.CLIENT
        fields = self._spans.attempt(lambda: self._request(context)) or {}
        with self._spans.span(f"chat {self.model}", fields, kind=kind) as span:
            if span.has_content:
                span.note(lambda: _request_content(context))
            watch = _Watch(emit, span)
            reply = await self._inner.complete(context, emit=watch, **options)
            span.note(lambda: {**_response(reply), "gen_ai.response.time_to_first_chunk": watch.first_after})
            if span.has_content:
                span.note(lambda: _reply_content(reply))
            return reply

    def _request(self, context: Context) -> Attributes:
        own = self._spans.models.get(f"{self._kind}/{self.model}", {})
        return {
            "gen_ai.operation.name": "chat",
            "gen_ai.provider.name": self._kind,
            "gen_ai.request.model": self.model,
            "gen_ai.conversation.id": get_value(_CONVERSATION),
            "gen_ai.output.type": "json" if context.form is not None else None,
            **{f"gen_ai.request.{name}": own[name] for name in _REQUEST if name in own},
        }


class _OfSession(ProviderWrapper):
    """A provider that is asked for a session, by its turn or besides it: then each request begins a trace."""

    def __init__(self, inner: Provider, key: str) -> None:
        super().__init__(inner)
        self._key = key

    async def complete(self, context: Context, *, emit: Emit) -> Reply:
        # A task in the background has the surroundings in which it was started: of another request, perhaps long ago,
        # or of the turn that gave this session its task.
        is_in_turn = get_value(_TURN) is asyncio.current_task()
        token = attach(set_value(_CONVERSATION, self._key, None if is_in_turn else Surroundings()))
        try:
            return await super().complete(context, emit=emit)
        finally:
            detach(token)


class _Watch:
    """Passes events on; knows after how many seconds the first piece came, and notes retries in the span."""

    def __init__(self, emit: Emit, span: _OpenSpan) -> None:
        self._emit, self._span = emit, span
        self._begun = time.monotonic()
        self.first_after: float | None = None

    def __call__(self, event: Event) -> None:
        if self.first_after is None and isinstance(event, Text | Thought):
            self.first_after = time.monotonic() - self._begun
        if isinstance(event, Notice):
            self._span.tell("nacre.notice", event.text)
        self._emit(event)


def _response(reply: Reply) -> Attributes:
    usage, used = reply.usage, {}
    if usage is not None:
        used = {
            "gen_ai.response.id": usage.request,
            "gen_ai.usage.input_tokens": usage.prompt,
            "gen_ai.usage.output_tokens": usage.completion,
            "gen_ai.usage.cache_read.input_tokens": usage.cached or None,
        }
    return {
        "gen_ai.response.model": reply.message.model,
        "gen_ai.response.finish_reasons": [_FINISH[reply.finish]],
        **used,
    }


# ---- tools


class _TracedTools(Mapping[str, AnyTool]):
    """The same tools, traced; a view, because servers of tools change theirs."""

    def __init__(self, tools: Mapping[str, AnyTool], spans: Spans) -> None:
        self._tools, self._spans = tools, spans

    def __getitem__(self, name: str) -> AnyTool:
        return _TracedTool(self._tools[name], self._spans)

    def __iter__(self) -> Iterator[str]:
        return iter(self._tools)

    def __len__(self) -> int:
        return len(self._tools)


class _TracedTool:
    def __init__(self, inner: AnyTool, spans: Spans) -> None:
        self._inner, self._spans = inner, spans

    @property
    def spec(self) -> Spec:
        return self._inner.spec

    @property
    def effect(self) -> Effect:
        return self._inner.effect

    async def run(self, arguments: Mapping[str, Any], scene: Scene) -> Output:
        fields = {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": self.spec.name,
            "gen_ai.tool.type": "function",
            "gen_ai.tool.call.id": scene.call.id,
            "gen_ai.conversation.id": scene.key,
        }
        with self._spans.span(f"execute_tool {self.spec.name}", fields) as span:
            if span.has_content:
                span.note(lambda: {"gen_ai.tool.call.arguments": _json(arguments)})
            output = await self._inner.run(arguments, scene)
            if span.has_content:
                span.note(lambda: {"gen_ai.tool.call.result": output.text})
            if output.failed:
                span.fail("refused" if output.is_refused else "failed", lambda: output.text)
            return output


# ---- content, only where it is asked for


def _request_content(context: Context) -> Attributes:
    tools = [
        {"type": "function", "name": tool.name, "description": tool.description, "parameters": tool.parameters}
        for tool in context.tools
    ]
    return {
        "gen_ai.system_instructions": _json([_text(context.system)]) if context.system else None,
        "gen_ai.input.messages": _json([_message(message) for message in context.messages]),
        "gen_ai.tool.definitions": _json(tools) if tools else None,
    }


def _reply_content(reply: Reply) -> Attributes:
    message = {**_message(reply.message), "finish_reason": _FINISH[reply.finish]}
    return {"gen_ai.output.messages": _json([message])}


def _message(message: Message) -> dict[str, Any]:
    """A message in the form of the conventions; of an image only that it was there."""
    if message.role == "tool":
        parts = [{"type": "tool_call_response", "id": message.tool_call_id, "response": message.content}]
        if isinstance(message.content, list):
            parts[0]["response"] = _parts(message.content)
        return {"role": "tool", "parts": parts}
    parts = [{"type": "reasoning", "content": message.reasoning}] if message.reasoning else []
    parts += _parts(message.content if isinstance(message.content, list) else [message.content or ""])
    parts += [
        {"type": "tool_call", "id": call.id, "name": call.name, "arguments": call.arguments}
        for call in message.tool_calls
    ]
    return {"role": message.role, "parts": parts}


def _parts(content: Iterable[Any]) -> list[dict[str, Any]]:
    """Texts, and of anything else its kind; a framework may have stored parts in a shape that nobody here knows."""
    parts = []
    for part in content:
        text = part.get("text") if isinstance(part, Mapping) else part
        if isinstance(text, str):
            parts += [_text(text)] if text else []
        else:
            parts.append({"type": str(part.get("type", "unknown")) if isinstance(part, Mapping) else "unknown"})
    return parts


def _text(text: str) -> dict[str, Any]:
    return {"type": "text", "content": text}


def _json(value: Any) -> str:
    return msgspec.json.encode(value, enc_hook=str).decode()
