"""The models of every provider that is configured and can be reached."""

from __future__ import annotations

from difflib import get_close_matches
from typing import Any

from msgspec import Struct

from nacre.config import Settings
from nacre.errors import ConfigError, ModelUnavailable, ProviderError
from nacre.providers import weights
from nacre.providers.wire import ModelInfo
from nacre.runtime.fallback import ModelChain
from nacre.runtime.models import KEYS, Model, choose, has_key, has_own_server, make

_NEAR = 3


class Listed(Struct, frozen=True, kw_only=True):
    """What one provider has, or why it could not be asked."""

    kind: str
    models: tuple[ModelInfo, ...] = ()
    is_local: bool = False
    problem: str = ""


async def list_all(settings: Settings) -> list[Listed]:
    """The models of Ollama, of each provider with a key or a server of its own, and the embedded one."""
    kinds = ["ollama"]
    kinds += [kind for kind in KEYS if _is_configured(settings, kind)]
    found = [await _list_provider(settings, kind) for kind in kinds]
    if weights.is_installed():
        toy = ModelInfo(name=weights.NAME, size=93_000_000, context=4096, capabilities=("completion", "tools"))
        found.append(Listed(kind="embedded", models=(toy,), is_local=True))
    return found


async def find_model(settings: Settings, named: str) -> ModelChain:
    """A model that somebody named, if it can answer; raises ModelUnavailable with similar names, or ConfigError."""
    model = await choose(settings, named)
    try:
        await _check(model)
    except ModelUnavailable as error:
        await model.provider.close()
        refs = [f"{one.kind}/{info.name}" for one in await list_all(settings) for info in one.models if info.can_chat]
        by_name = {ref.partition("/")[2]: ref for ref in refs} | {ref: ref for ref in refs}
        near = [by_name[name] for name in get_close_matches(named, by_name, n=_NEAR, cutoff=0.5)]
        meant = f"\nDid you mean {' or '.join(dict.fromkeys(near))}?" if near else ""
        raise ModelUnavailable(f"{error}{meant}") from error
    return ModelChain(model, settings)


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


def _is_configured(settings: Settings, kind: str) -> bool:
    if settings.text("agent.provider") == kind or has_own_server(settings, kind):
        return True
    try:
        return has_key(settings, kind)
    except ConfigError:
        return True  # The key file cannot be read: the list says so.


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
