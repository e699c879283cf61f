"""The model that answers, those that answer in its place (agent.fallback), and who answered before."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from difflib import get_close_matches
from typing import Any

from msgspec.structs import replace

from nacre.agent.ports import Context, Emit, Event, Notice, Provider, Reply, Text, Thought
from nacre.config import Settings
from nacre.errors import ConfigError, ModelUnavailable, ProviderError
from nacre.messages import Message
from nacre.runtime.models import KEYS, Model, choose, list_all
from nacre.runtime.telemetry import Tracing, tracing_for
from nacre.sessions import Sessions

_RETURN_AFTER = 300.0
"""Seconds after which the first model is tried again."""
_MAX_SIMILAR = 3
_MAX_LOOKED_AT = 50
# Messages of earlier versions and of other agents name the model only.
_REMOTE = re.compile(
    r"(.*/)?(gpt-(?!oss)|chatgpt|o[1-9](-|$)|claude|gemini|grok|deepseek-(chat|reasoner)|mistral-large)"
)


class ModelChain:
    """Asks the first model; when it is unavailable, the next one of the list. Every switch is said as a Notice.

    A request that the model rejects (too long, malformed) is not sent to another one, and neither is one of which
    part of the answer was already shown. After a while the first model is tried again.
    """

    def __init__(
        self,
        first: Model,
        settings: Settings,
        rest: Sequence[str] = (),
        *,
        tracing: Tracing | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._settings = settings
        self._refs = tuple(rest)
        self._models: list[Model | None] = [first, *(None for _ in rest)]
        self._at, self._left, self._clock = 0, 0.0, clock
        self.tracing = tracing_for(settings) if tracing is None else tracing
        """What traces the requests; all models of an agent share one."""
        self.note = first.note
        """A line about the choice for the person who did not make it; "" if there is nothing to say."""

    @classmethod
    async def after(
        cls, error: ModelUnavailable, settings: Settings, rest: Sequence[str], *, tracing: Tracing | None = None
    ) -> ModelChain:
        """The first model of agent.fallback that can be made, where the configured one cannot."""
        reasons = [_reason(error)]
        for position, ref in enumerate(rest):
            try:
                model = await choose(settings, ref)
            except (ModelUnavailable, ConfigError) as problem:
                reasons.append(_reason(problem))
                continue
            chain = cls(model, settings, rest[position + 1 :], tracing=tracing)
            chain.note = f"{'; '.join(reasons)}: {model.ref} answers instead (agent.fallback). {model.note}".strip()
            return chain
        raise ModelUnavailable(f"{error}\nThe models of agent.fallback cannot answer either: {'; '.join(reasons[1:])}")

    @property
    def current(self) -> Model:
        """The model that answers now."""
        model = self._models[self._at]
        if model is None:
            raise AssertionError  # a model is made before the chain moves to it
        return model

    @property
    def model(self) -> str:
        return self.current.provider.model

    @property
    def ref(self) -> str:
        """`provider/model` of the model that answers now."""
        return self.current.ref

    @property
    def is_local(self) -> bool:
        return self.current.is_local

    @property
    def context_size(self) -> int | None:
        """The context window of the model that answers now, in tokens; None while it is not known."""
        size: int | None = getattr(self.current.provider, "context_size", None)
        return size

    async def check(self, emit: Emit) -> None:
        """Raise ModelUnavailable if no model of the chain can answer, as far as that is known without asking it."""
        while True:
            check = getattr(self.current.provider, "check", None)
            if check is None:
                return
            try:
                await check()
            except ModelUnavailable as error:
                await self._advance(ModelUnavailable(f"{self.ref} cannot answer: {error}"), emit)
            else:
                return

    async def models(self) -> list[str]:
        """The names of the models that the current provider has."""
        listed = getattr(self.current.provider, "models", None)
        return list(await listed()) if listed is not None else [self.model]

    async def complete(self, context: Context, *, emit: Emit, **options: Any) -> Reply:
        """Answer with the first model that can; the message says who answered. Raises ProviderError."""
        if self._at and self._clock() - self._left > _RETURN_AFTER:
            self._at = 0
            emit(Notice(f"{self.ref} is asked again: it could not answer before"))
        while True:
            at, model, heard = self._at, self.current, _Heard(emit)
            provider = self.tracing.trace_model(model.kind, model.provider)
            try:
                reply = await provider.complete(context, emit=heard, **options)
            except ModelUnavailable as error:
                if heard.anything:
                    raise
                # Another request, of memory for example, may have switched meanwhile.
                if self._at == at:
                    await self._advance(error, emit)
                continue
            origin: dict[str, Any] = {"provider": model.kind} | ({} if model.is_local else {"remote": True})
            return replace(reply, message=replace(reply.message, extra={**reply.message.extra, **origin}))

    async def close(self) -> None:
        """Close every model that was used."""
        for model in self._models:
            if model is not None:
                await model.provider.close()

    async def _advance(self, error: ModelUnavailable, emit: Emit) -> None:
        """Switch to the next model of the list that can be made; raises the error if there is none."""
        for position in range(self._at + 1, len(self._models)):
            ref = self._refs[position - 1]
            try:
                model = self._models[position] or await choose(self._settings, ref)
            except (ModelUnavailable, ConfigError) as problem:
                emit(Notice(f"{ref} cannot answer either: {_reason(problem)}"))
                continue
            reason = _reason(error).removeprefix(f"{self.ref} cannot answer: ")
            text = f"{self.ref} cannot answer: {reason}. {model.ref} answers instead. {model.note}"
            emit(Notice(text.strip()))
            self._models[position], self._at, self._left = model, position, self._clock()
            return
        raise error


def as_chain(provider: Provider, settings: Settings) -> ModelChain:
    """A provider as a chain of one, unless it is one already."""
    if isinstance(provider, ModelChain):
        return provider
    return ModelChain(Model(kind=type(provider).__name__.lower(), provider=provider), settings)


class _Heard:
    """Passes events on, and knows whether part of an answer was among them."""

    def __init__(self, emit: Emit) -> None:
        self._emit = emit
        self.anything = False

    def __call__(self, event: Event) -> None:
        self.anything = self.anything or isinstance(event, Text | Thought)
        self._emit(event)


def _reason(error: Exception) -> str:
    return str(error).splitlines()[0]


# ---- making one


async def provider_for(settings: Settings, model: str | None = None, *, tracing: Tracing | None = None) -> ModelChain:
    """The model that answers, and after it those of agent.fallback; a model that is named here is never replaced.

    Raises ModelUnavailable, ConfigError.
    """
    rest = () if model is not None else settings.texts("agent.fallback")
    try:
        return ModelChain(await choose(settings, model), settings, rest, tracing=tracing)
    except ModelUnavailable as error:
        if not rest:
            raise
        return await ModelChain.after(error, settings, rest, tracing=tracing)


async def find_model(settings: Settings, named: str, *, tracing: Tracing | None = None) -> ModelChain:
    """A model that somebody named, if it can answer; raises ModelUnavailable with similar names, or ConfigError."""
    model = await choose(settings, named)
    try:
        await _check(model)
    except ModelUnavailable as error:
        await model.provider.close()
        refs = [f"{one.kind}/{info.name}" for one in await list_all(settings) for info in one.models if info.can_chat]
        by_name = {ref.partition("/")[2]: ref for ref in refs} | {ref: ref for ref in refs}
        near = [by_name[name] for name in get_close_matches(named, by_name, n=_MAX_SIMILAR, cutoff=0.5)]
        meant = f"\nDid you mean {' or '.join(dict.fromkeys(near))}?" if near else ""
        raise ModelUnavailable(f"{error}{meant}") from error
    return ModelChain(model, settings, tracing=tracing)


async def _check(model: Model) -> None:
    """Raise ModelUnavailable if a provider is down or does not list the model."""
    provider: Any = model.provider
    if hasattr(provider, "check"):
        await provider.check()
    if model.kind in KEYS and hasattr(provider, "models"):
        try:
            names = await provider.models()
        except ModelUnavailable:
            raise
        except ProviderError:
            return  # Not every server lists its models.
        if names and provider.model not in names and not model.is_local:
            raise ModelUnavailable(f"{model.kind} does not have the model {provider.model!r}")


# ---- which model answered in a session


def local_model_before(model: ModelChain, settings: Settings, newest: Callable[[int], Sequence[Message]]) -> str:
    """The local model that was asked last, if a remote one would answer now and the configuration does not allow it.

    `newest` gives so many of the newest messages of the session.
    """
    if getattr(model, "is_local", True) or settings.flag("agent.allow_remote"):
        return ""
    if {model.ref, model.model} & {*settings.texts("agent.fallback")}:
        return ""  # Anyone who lists a remote model there has said yes.
    return last_local_model(newest(_MAX_LOOKED_AT))


def last_model(sessions: Sessions, key: str) -> str:
    """The model that answered last in a session, as `provider/model`; "" if that is not known."""
    for message in reversed(sessions.get_history(key, last=_MAX_LOOKED_AT)):
        if message.role == "assistant" and message.model:
            provider = message.extra.get("provider")
            return f"{provider}/{message.model}" if provider else ""
    return ""


def last_local_model(messages: Sequence[Message]) -> str:
    """The local model that was last asked or answered in a session; "" if a remote one answered since, or none did.

    A message to a local model counts before it is answered: the answer may never come.
    """
    for message in reversed(messages):
        if message.role == "user" and message.extra.get("asked"):
            return str(message.extra["asked"])
        if message.role != "assistant" or not message.model:
            continue
        provider = message.extra.get("provider")
        if provider is None:
            return "" if _REMOTE.match(message.model) else message.model
        return "" if message.extra.get("remote") else f"{provider}/{message.model}"
    return ""
