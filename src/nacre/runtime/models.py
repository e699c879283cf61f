"""Which model answers: the one that the user named, else the best that is there."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from msgspec import Struct

from nacre.agent.ports import Provider
from nacre.config import Settings
from nacre.errors import ConfigError, ModelUnavailable, NoModel, ProviderError

if TYPE_CHECKING:
    from nacre.providers.model_server import Timeouts
    from nacre.providers.ollama import Ollama
    from nacre.providers.wire import ModelInfo

DEFAULT_OLLAMA = "gemma4:e4b"
DEFAULTS = {
    "openai": ("gpt-5-mini", "gpt-4.1-mini", "gpt-4o-mini"),
    "anthropic": ("claude-sonnet-4-5", "claude-sonnet-4-0", "claude-3-5-haiku-latest"),
}
"""The models that `auto` takes of each provider: the first that it lists."""
KEYS = {"openai": "OPENAI_API_KEY", "anthropic": "ANTHROPIC_API_KEY"}
_HOMES = {"openai": "https://api.openai.com/v1", "anthropic": "https://api.anthropic.com"}
TOY = "The model is SmolLM2-135M, a toy inside nacre: do not rely on what it says."

_REMOTE_NAMES = re.compile(r"(gpt-(?!oss)|chatgpt|o[1-9](-|$)|claude)[^:]*$")
_MAX_DESCRIBED = 8


class Model(Struct, frozen=True, kw_only=True):
    """A model and its provider; `note` is a line for the person who did not choose it."""

    kind: str
    provider: Provider
    note: str = ""

    @property
    def ref(self) -> str:
        """The name by which it is chosen again: `provider/model`."""
        return f"{self.kind}/{self.provider.model}"

    @property
    def is_local(self) -> bool:
        """Whether requests stay on this machine or in its private network."""
        return bool(getattr(self.provider, "is_local", True))


async def choose(settings: Settings, named: str | None = None) -> Model:
    """The model that was named by a flag or the configuration, else the one that `auto` finds."""
    name = named or settings.text("agent.model")
    kind = settings.text("agent.provider")
    prefix, _, rest = name.partition("/")
    if prefix in _MAKERS and (rest or prefix == "embedded"):
        return make(settings, prefix, rest)
    if kind == "auto" and not name:
        return await _find(settings)
    if kind == "auto" and _REMOTE_NAMES.match(name):
        kind = "anthropic" if name.startswith("claude") else "openai"
    elif kind == "auto":
        # Ollama's names have a colon; others may be of a server of one's own.
        kind = "openai" if ":" not in name and has_own_server(settings, "openai") else "ollama"
    return make(settings, kind, name)


def make(settings: Settings, kind: str, name: str) -> Model:
    """A model of one provider; what can be said without the network is checked: a name, a key."""
    note = TOY if kind == "embedded" else ""
    return Model(kind=kind, provider=_MAKERS[kind](settings, name), note=note)


def make_named(settings: Settings, ref: str) -> Model:
    """The model of a full name, as `provider/model`; raises ModelUnavailable if there is no such provider."""
    kind, _, name = ref.partition("/")
    if kind not in _MAKERS:
        raise ModelUnavailable(f"there is no provider {kind!r}, which the model {ref!r:.100} is of")
    return make(settings, kind, name)


def has_key(settings: Settings, kind: str) -> bool:
    """Whether there is a key for a provider, in the environment or in a file."""
    return bool(_secret(settings.text(f"{kind}.key_file"), KEYS[kind]))


def has_own_server(settings: Settings, kind: str) -> bool:
    """Whether requests go to another server than the provider's own."""
    return settings.text(f"{kind}.base_url").rstrip("/") != _HOMES[kind]


# ---- nobody named a model


async def _find(settings: Settings) -> Model:
    """Ollama if it runs and has a chat model, else a provider with a key, else the embedded model."""
    ollama = make_ollama(settings, "")
    try:
        installed = await ollama.installed()
    except ProviderError as error:
        installed, reason = [], str(error).splitlines()[0]
    else:
        reason = "Ollama runs but has no chat model installed"
        if name := await _pick(ollama, installed):
            await ollama.close()
            note = "" if name == DEFAULT_OLLAMA else f"Ollama does not have {DEFAULT_OLLAMA}; {name} answers instead."
            return Model(kind="ollama", provider=make_ollama(settings, name), note=note)
    await ollama.close()
    for kind in ("openai", "anthropic"):
        if has_key(settings, kind):
            name = await _default_model(settings, kind)
            note = f"Ollama is not used ({reason}); {kind}/{name} answers, since {KEYS[kind]} is set."
            return Model(kind=kind, provider=make(settings, kind, name).provider, note=note)
    from nacre.providers.weights import is_installed  # noqa: PLC0415 - only where there is no server

    if is_installed():
        return Model(kind="embedded", provider=make(settings, "embedded", "").provider, note=f"{reason}. {TOY}")
    pull = f"`nacre models pull {DEFAULT_OLLAMA}`" if "has no chat model" in reason else "start Ollama"
    raise NoModel(
        f"no model can answer: {reason}, neither OPENAI_API_KEY nor ANTHROPIC_API_KEY is set, and the embedded model "
        f"is not installed\nRun `nacre init` to set one up; or {pull}, set a key, or run `nacre setup embedded`."
    )


async def _pick(ollama: Ollama, installed: list[ModelInfo]) -> str:
    """The default model if it is installed, else the newest chat model, one that can call tools first; "" if none.

    Ollama lists what was changed last first. Models of its cloud are not taken unasked: they are not on this machine.
    """
    from nacre.providers.ollama import is_cloud  # noqa: PLC0415 - with its provider

    names = [info.name for info in installed]
    if DEFAULT_OLLAMA in names:
        return DEFAULT_OLLAMA
    likely = [info for info in installed if info.can_chat and not is_cloud(info.name)][:_MAX_DESCRIBED]
    described = [await ollama.describe(info) for info in likely]
    chat = [info for info in described if info.can_chat]
    chat.sort(key=lambda info: "tools" not in info.capabilities)
    return chat[0].name if chat else ""


async def _default_model(settings: Settings, kind: str) -> str:
    """The model to take of a provider with a key; of a server of one's own any that can chat."""
    wanted = DEFAULTS[kind]
    provider: Any = make(settings, kind, wanted[0]).provider
    try:
        listed: list[ModelInfo] = await provider.list_models()
    except ProviderError:
        return wanted[0]  # The first request says what is wrong.
    finally:
        await provider.close()
    names = [info.name for info in listed if info.can_chat]
    found = [name for name in wanted if name in names]
    if found or not has_own_server(settings, kind):
        return (found or wanted)[0]
    return names[0] if names else wanted[0]


# ---- what there is


class Listed(Struct, frozen=True, kw_only=True):
    """What one provider has, or why it could not be asked."""

    kind: str
    models: tuple[ModelInfo, ...] = ()
    is_local: bool = False
    problem: str = ""


async def list_all(settings: Settings) -> list[Listed]:
    """The models of Ollama, of each provider with a key or a server of its own, and the embedded one."""
    from nacre.providers import weights  # noqa: PLC0415 - with its provider
    from nacre.providers.wire import ModelInfo  # noqa: PLC0415

    kinds = ["ollama"]
    for kind in KEYS:
        try:
            if settings.text("agent.provider") == kind or has_own_server(settings, kind) or has_key(settings, kind):
                kinds.append(kind)
        except ConfigError:
            kinds.append(kind)  # The key file cannot be read: the list says so.
    found = [await _list_provider(settings, kind) for kind in kinds]
    if weights.is_installed():
        toy = ModelInfo(name=weights.NAME, size=93_000_000, context=4096, capabilities=("completion", "tools"))
        found.append(Listed(kind="embedded", models=(toy,), is_local=True))
    return found


async def _list_provider(settings: Settings, kind: str) -> Listed:
    try:
        provider: Any = make(settings, kind, "").provider
    except (ModelUnavailable, ConfigError) as error:
        return Listed(kind=kind, problem=str(error).splitlines()[0])
    is_local = bool(getattr(provider, "is_local", False))
    try:
        return Listed(kind=kind, models=tuple(await provider.list_models()), is_local=is_local)
    except ProviderError as error:
        return Listed(kind=kind, is_local=is_local, problem=str(error).splitlines()[0])
    finally:
        await provider.close()


# ---- the providers


def make_ollama(settings: Settings, model: str) -> Ollama:
    from nacre.providers.ollama import Ollama  # noqa: PLC0415 - each brings its client along

    model = model or DEFAULT_OLLAMA
    own = _settings_of(settings, "ollama", model)
    named = {"temperature": "temperature", "top_p": "top_p", "num_predict": "max_tokens"}
    return Ollama(
        model,
        num_ctx=settings.number("agent.max_context_tokens"),
        host=settings.text("ollama.host") or None,
        keep_alive=settings.text("ollama.keep_alive"),
        think=own.get("think"),
        tools=cast("Any", settings.text("agent.tools")),
        options={**own.get("options", {}), **{option: own[key] for option, key in named.items() if key in own}},
        extra=own.get("body", {}),
        timeouts=_timeouts(own),
    )


def _make_openai(settings: Settings, model: str) -> Provider:
    from nacre.providers.openai import OpenAI  # noqa: PLC0415

    key = _needed_key(settings, "openai", model)
    model = model or DEFAULTS["openai"][0]
    own = _settings_of(settings, "openai", model)
    fields = ("temperature", "top_p", "reasoning_effort", "prompt_cache_key")
    provider = OpenAI(
        model,
        base_url=settings.text("openai.base_url"),
        key=key,
        azure=settings.text("openai.azure_version") or None,
        max_tokens=own.get("max_tokens"),
        return_reasoning=own.get("return_reasoning"),
        options={**{field: own[field] for field in fields if field in own}, **own.get("body", {})},
        timeouts=_timeouts(own),
    )
    return _with_text_tools(provider, settings)


def _make_anthropic(settings: Settings, model: str) -> Provider:
    from nacre.providers.anthropic import Anthropic  # noqa: PLC0415

    key = _needed_key(settings, "anthropic", model)
    model = model or DEFAULTS["anthropic"][0]
    own = _settings_of(settings, "anthropic", model)
    limit, budget = own.get("max_tokens", settings.number("anthropic.max_tokens")), own.get("thinking_budget")
    if budget is not None and budget >= limit:
        raise ConfigError(
            f"models.anthropic/{model}.thinking_budget is {budget}, and the whole answer may have {limit} tokens; "
            f"set max_tokens of the model to more"
        )
    provider = Anthropic(
        model,
        base_url=settings.text("anthropic.base_url"),
        key=key,
        max_tokens=limit,
        thinking=budget,
        options={**{field: own[field] for field in ("temperature", "top_p") if field in own}, **own.get("body", {})},
        timeouts=_timeouts(own),
    )
    return _with_text_tools(provider, settings)


def _settings_of(settings: Settings, kind: str, model: str) -> Mapping[str, Any]:
    """What `[models."provider/model"]` sets for a model."""
    found: Mapping[str, Any] = settings.table("models").get(f"{kind}/{model}", {})
    return found


def _timeouts(own: Mapping[str, Any]) -> Timeouts:
    from nacre.providers.model_server import Timeouts  # noqa: PLC0415 - it brings the client along

    named = {"connect": "connect_timeout", "read": "read_timeout", "whole": "total_timeout"}
    return Timeouts(**{field: own[key] for field, key in named.items() if key in own})


def _make_embedded(settings: Settings, model: str) -> Provider:
    from nacre.providers import weights  # noqa: PLC0415
    from nacre.providers.embedded import Embedded  # noqa: PLC0415
    from nacre.providers.embedded import Settings as Sizes  # noqa: PLC0415

    if model and model != weights.NAME:
        raise ModelUnavailable(f"the embedded provider has no model {model!r}\nIt has one: embedded/{weights.NAME}")
    if not weights.is_installed():
        raise ModelUnavailable("the embedded model is not installed\nTo install it: nacre setup embedded")
    return Embedded(Sizes(threads=settings.number("embedded.threads")))


_MAKERS: Mapping[str, Callable[[Settings, str], Provider]] = {
    "ollama": make_ollama,
    "openai": _make_openai,
    "anthropic": _make_anthropic,
    "embedded": _make_embedded,
}


def _with_text_tools(provider: Provider, settings: Settings) -> Provider:
    if settings.text("agent.tools") != "prompted":
        return provider
    from nacre.providers.text_tools.provider import TextToolProvider  # noqa: PLC0415

    return TextToolProvider(provider)


# ---- keys


def _needed_key(settings: Settings, kind: str, model: str) -> str | None:
    """The key of a provider; raises ModelUnavailable if its own service is meant and there is none."""
    key = _secret(settings.text(f"{kind}.key_file"), KEYS[kind])
    if key or has_own_server(settings, kind):
        return key
    raise ModelUnavailable(
        f"{kind}/{model or DEFAULTS[kind][0]} needs an API key, and none is set\n"
        f"Set {KEYS[kind]}, or {kind}.key_file to a file that has the key."
    )


def _secret(file: str, variable: str) -> str | None:
    """A key, from a file or from the environment; never from the configuration itself."""
    if not file:
        return os.environ.get(variable)
    try:
        return Path(file).expanduser().read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"the key file {file} cannot be read: {error}") from error
