"""Which model answers: the one that was named, else Ollama if it answers, else the embedded one."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from nacre.agent.ports import Provider
from nacre.config import Settings, path
from nacre.errors import ConfigError, ProviderError

if TYPE_CHECKING:
    from nacre.providers.ollama import Ollama

_OLLAMA_MODEL = "gemma4:e4b"
_NO_MODEL = (
    "there is no model to talk to: Ollama does not answer ({reason}), and the embedded model is not installed.\n"
    "Start Ollama and `ollama pull {model}`, or run `nacre setup embedded`, or set agent.provider in {config}."
)
_NO_SUCH = (
    "{model} cannot be asked: Ollama does not answer ({reason}).\n"
    "Start Ollama, or name a model as `provider/model`, or none to talk to the embedded one."
)


async def provider_for(settings: Settings, model: str | None) -> Provider:
    """The provider of a model, which may be named `provider/model`; raises ProviderError if there is none."""
    kind, name = settings.text("agent.provider"), model or settings.text("agent.model")
    named, _, rest = name.partition("/")
    if named in _MAKERS and (rest or named == "embedded"):
        kind, name = named, rest
    if kind == "auto":
        return await _found(settings, name, is_asked=model is not None)
    return _MAKERS[kind](settings, name)


async def _found(settings: Settings, model: str, *, is_asked: bool) -> Provider:
    """Ollama if it answers, else the embedded model if it is installed and nobody has just asked for another."""
    ollama = _ollama(settings, model)
    try:
        await ollama.models()
    except ProviderError as error:
        await ollama.close()
        from nacre.providers.weights import is_installed  # noqa: PLC0415 - only where there is no server

        reason = str(error).splitlines()[0]
        if is_installed() and is_asked:
            raise ProviderError(_NO_SUCH.format(model=model, reason=reason)) from error
        if is_installed():
            return _embedded(settings, "")
        raise ProviderError(_NO_MODEL.format(reason=reason, model=model or _OLLAMA_MODEL, config=path())) from error
    return ollama


def _ollama(settings: Settings, model: str) -> Ollama:
    from nacre.providers.ollama import Ollama  # noqa: PLC0415 - each brings its client along

    return Ollama(
        model or _OLLAMA_MODEL,
        num_ctx=settings.number("agent.max_context_tokens"),
        host=settings.text("ollama.host") or None,
        keep_alive=settings.text("ollama.keep_alive"),
        tools=cast("Any", settings.text("agent.tools")),
    )


def _openai(settings: Settings, model: str) -> Provider:
    from nacre.providers.openai import OpenAI  # noqa: PLC0415

    key = _secret(settings.text("openai.key_file"), "OPENAI_API_KEY")
    azure = settings.text("openai.azure_version") or None
    made = OpenAI(_needed(model, "openai"), base_url=settings.text("openai.base_url"), key=key, azure=azure)
    return _prompted(made, settings)


def _anthropic(settings: Settings, model: str) -> Provider:
    from nacre.providers.anthropic import Anthropic  # noqa: PLC0415

    key = _secret(settings.text("anthropic.key_file"), "ANTHROPIC_API_KEY")
    most = settings.number("anthropic.max_tokens")
    url = settings.text("anthropic.base_url")
    return _prompted(Anthropic(_needed(model, "anthropic"), base_url=url, key=key, max_tokens=most), settings)


def _embedded(settings: Settings, model: str) -> Provider:  # noqa: ARG001 - it is one model
    from nacre.providers.embedded import Embedded  # noqa: PLC0415
    from nacre.providers.embedded import Settings as Sizes  # noqa: PLC0415

    return Embedded(Sizes(threads=settings.number("embedded.threads")))


_MAKERS: Mapping[str, Callable[[Settings, str], Provider]] = {
    "ollama": _ollama,
    "openai": _openai,
    "anthropic": _anthropic,
    "embedded": _embedded,
}


def _prompted(provider: Provider, settings: Settings) -> Provider:
    if settings.text("agent.tools") != "prompted":
        return provider
    from nacre.providers.prompted import Prompted  # noqa: PLC0415

    return Prompted(provider)


def _needed(model: str, provider: str) -> str:
    if not model:
        raise ConfigError(f"agent.model is not set: say which model of {provider} is to answer (NACRE_AGENT_MODEL)")
    return model


def _secret(file: str, variable: str) -> str | None:
    """A key, from a file or from the environment; never from the configuration itself."""
    if not file:
        return os.environ.get(variable)
    try:
        return Path(file).expanduser().read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"the key in {file} cannot be read: {error}") from error
