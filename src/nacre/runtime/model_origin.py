"""Who was asked in a session so far: a local model, or one that the messages were sent to over the internet."""

from __future__ import annotations

import re

from nacre.config import Settings
from nacre.runtime.fallback import ModelChain
from nacre.sessions import Sessions

_LOOKED_AT = 50
# Messages of earlier versions and of other agents name the model only.
_REMOTE = re.compile(
    r"(.*/)?(gpt-(?!oss)|chatgpt|o[1-9](-|$)|claude|gemini|grok|deepseek-(chat|reasoner)|mistral-large)"
)


def local_model_before(model: ModelChain, settings: Settings, sessions: Sessions, key: str) -> str:
    """The local model that was asked last, if a remote one would answer now and the configuration does not allow it."""
    if getattr(model, "is_local", True) or settings.flag("agent.allow_remote"):
        return ""
    if {model.ref, model.model} & {*settings.texts("agent.fallback")}:
        return ""  # Whoever lists a remote model there has said yes.
    return last_local_model(sessions, key)


def last_model(sessions: Sessions, key: str) -> str:
    """The model that answered last in a session, as `provider/model`; "" if that is not known."""
    for message in reversed(sessions.get_history(key, last=_LOOKED_AT)):
        if message.role == "assistant" and message.model:
            provider = message.extra.get("provider")
            return f"{provider}/{message.model}" if provider else ""
    return ""


def last_local_model(sessions: Sessions, key: str) -> str:
    """The local model that was last asked or answered in a session; "" if a remote one answered since, or none did.

    A message to a local model counts before it is answered: the answer may never come.
    """
    for message in reversed(sessions.get_history(key, last=_LOOKED_AT)):
        if message.role == "user" and message.extra.get("asked"):
            return str(message.extra["asked"])
        if message.role != "assistant" or not message.model:
            continue
        provider = message.extra.get("provider")
        if provider is None:
            return "" if _REMOTE.match(message.model) else message.model
        return "" if message.extra.get("remote") else f"{provider}/{message.model}"
    return ""
