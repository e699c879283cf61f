"""The configuration that a folder brings: a few settings that can only restrict what the user configured."""

from __future__ import annotations

import os
import tomllib
from typing import Any

from msgspec import Struct

from nacre.config import Settings, flat
from nacre.runtime.permissions import readable_rules

CONFIG_FILE = ".nacre/config.toml"
_LIMITS = (
    "agent.max_context_tokens",
    "agent.max_history_messages",
    "agent.max_steps",
    "anthropic.max_tokens",
    "memory.tokens",
)
_LISTS = {
    "permissions.ask": "ask",
    "permissions.deny": "deny",
    "skills.folders": "skill_folders",
    "skills.hide": "hidden_skills",
}
_MAY = "a folder may set agent.model, skills, permissions.ask, permissions.deny and lower limits"


class FolderConfig(Struct, frozen=True, kw_only=True):
    """What a folder's configuration sets; `refused` has a line for everything that it may not set."""

    model: str = ""
    ask: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()
    skill_folders: tuple[str, ...] = ()
    hidden_skills: tuple[str, ...] = ()
    limits: dict[str, int] = {}
    refused: tuple[str, ...] = ()


def parse(text: str, settings: Settings) -> FolderConfig:
    """Read a folder's configuration; `settings` are the user's, which it can only narrow."""
    try:
        tables = tomllib.loads(text)
    except ValueError as error:
        return FolderConfig(refused=(f"{CONFIG_FILE} is not followed: it is not TOML ({error})",))
    known: dict[str, Any] = {}
    limits: dict[str, int] = {}
    refused: list[str] = []
    for key, value in flat(tables):
        problem = ""
        if key == "agent.model":
            problem = _model_problem(value, settings)
            known["model"] = "" if problem else value
        elif key in _LIMITS:
            problem = _limit_problem(key, value, settings)
            if not problem:
                limits[key] = value
        elif key in _LISTS:
            problem = "" if _is_texts(value) else "it is an array of texts"
            known[_LISTS[key]] = () if problem else tuple(value)
        else:
            problem = _MAY
        if problem:
            refused.append(f"{CONFIG_FILE}: {key} is not followed: {problem}")
    outside = [name for name in known.get("skill_folders", ()) if name.startswith("/") or ".." in name.split("/")]
    refused += [f"{CONFIG_FILE}: skills.folders: {name!r} is outside the folder and not followed" for name in outside]
    if outside:
        known["skill_folders"] = tuple(name for name in known["skill_folders"] if name not in outside)
    for kind in ("ask", "deny"):
        known[kind], problems = readable_rules(known.get(kind, ()))
        refused += [f"{CONFIG_FILE}: permissions.{kind}: {problem}; it is not followed" for problem in problems]
    return FolderConfig(**known, limits=limits, refused=tuple(refused))


def apply(config: FolderConfig, settings: Settings) -> Settings:
    """The user's settings, narrowed by a folder's; a model that a variable names is not replaced."""
    for key, value in config.limits.items():
        # `parse` compared it with the main agent's; another agent may have a lower one of its own.
        settings = settings.override(key, min(value, settings.number(key)))
    if config.model and "NACRE_AGENT_MODEL" not in os.environ:
        settings = settings.override("agent.model", config.model)
    return settings


def configured_models(settings: Settings) -> list[str]:
    """The models that the user's configuration names, for any agent."""
    agents = [settings.for_agent(name) for name in settings.agents]
    names = [own.text(key) for own in agents for key in ("agent.model", "memory.model")]
    names += [name for own in agents for name in own.texts("agent.fallback")]
    return list(dict.fromkeys(name for name in names if name))


def _model_problem(value: Any, settings: Settings) -> str:
    allowed = configured_models(settings)
    if isinstance(value, str) and value in allowed:
        return ""
    names = ", ".join(allowed) or "none"
    return f"{value!r} is not among the models that you configured ({names})"


def _limit_problem(key: str, value: Any, settings: Settings) -> str:
    if type(value) is not int or value < 1:
        return "it is a whole number above 0"
    most = settings.number(key)
    return f"{value} is more than your own limit of {most}" if value > most else ""


def _is_texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(one, str) for one in value)
