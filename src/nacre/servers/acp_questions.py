"""What an editor's user is asked before an agent starts: whether the folder is trusted, and which MCP servers start."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from nacre.config import Settings
from nacre.render.text import visible_line
from nacre.runtime.trust import TrustStore
from nacre.runtime.trust_question import Shown, find_trust_question
from nacre.servers.acp_updates import fence, fence_line


class Confirm(Protocol):
    """Asks a question with two answers; `texts` are Markdown, as editors draw it."""

    async def __call__(self, title: str, texts: Sequence[str], *, yes: str, no: str, kind: str) -> bool: ...


async def ask_for_trust(folder: Path, settings: Settings, confirm: Confirm) -> None:
    """Ask about a folder that is new, or that tells the agent something new, as `nacre chat` does."""
    store = TrustStore()
    question = find_trust_question(folder, settings, store)
    if question is None:
        return
    texts = [" ".join(question.about), *map(_draw, question.shown)]
    if question.is_new:
        title, yes, no = f"Trust the folder {question.root}?", "Trust it", "Only read files"
        texts.append("This holds for everything below the folder too. Without trust the agent only reads files.")
    else:
        title, yes, no = "Follow these instructions?", "Follow", "Do not"
    if await confirm(title, texts, yes=yes, no=no, kind="allow_always"):
        store.accept(question.place, question.digests)


def _draw(shown: Shown) -> str:
    """A source as code that its text cannot end: Markdown could hide a part of it."""
    parts = [fence_line(shown.about)]
    if shown.text:
        parts.append(fence(shown.text))
    if shown.rest:
        parts.append(fence_line(shown.rest))
    return "\n".join(parts)


async def ask_for_servers(
    offered: Mapping[str, dict[str, Any]], *, configured: Collection[str], confirm: Confirm
) -> dict[str, dict[str, Any]]:
    """Ask about each MCP server that the editor names; those that the user accepts."""
    accepted: dict[str, dict[str, Any]] = {}
    for name, config in offered.items():
        if "command" in config:
            # With the values: a variable can make a program run another one.
            variables = [f"{variable}={value}" for variable, value in config["env"].items()]
            what = shlex.join([*variables, config["command"], *config["args"]])
            title, about = f"Start the MCP server {visible_line(name)}?", "The editor wants this program started:"
        else:
            what = config["url"]
            title, about = f"Connect to the MCP server {visible_line(name)}?", "The editor wants it at this address:"
        texts = [about, fence(visible_line(what))]
        if name in configured:
            texts.append("It would replace the server of this name in your configuration.")
        if await confirm(title, texts, yes="For this session", no="No", kind="allow_once"):
            accepted[name] = config
    return accepted
