"""What the tests of memory share: conversations that were had, and models that say what was learned from them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import anyio

from nacre.agent.ports import Provider
from nacre.memory.agent_memory import Memory
from nacre.providers.scripted import Scripted
from nacre.sessions import Sessions


def turn(sessions: Sessions, key: str, asked: str, answered: str = "All right.") -> int:
    """Have a turn of a conversation; gives the number of its last message."""
    return sessions.add_messages(key, [_said("user", asked), _said("assistant", answered)])


def _said(role: str, content: str) -> dict[str, str]:
    return {"role": role, "content": content}


def answer(line: str = "", *facts: tuple[str, str]) -> str:
    """What a model answers that learned these facts, as subjects with texts."""
    return json.dumps({"line": line, "facts": [{"subject": subject, "text": text} for subject, text in facts]})


def nothing() -> None:
    """No embedding."""


def memory(sessions: Sessions, folder: Path, *answers: Any, provider: Provider | None = None, **parts: Any) -> Memory:
    """A memory whose model gives these answers, or another model, or none."""
    asked = provider or (Scripted(answers) if answers else None)
    give = None if asked is None else lambda: asked
    return Memory(sessions, folder, provider=give, **{"embedding": nothing, **parts})


def learn(kept: Memory, *keys: str) -> int:
    """Go through conversations; gives how many turns were learned from."""

    async def run() -> int:
        return sum([await kept.consolidate(key) for key in keys])

    return anyio.run(run)


def facts(kept: Memory) -> list[str]:
    return [line.text for line in kept.list()]


def page(folder: Path, name: str = "MEMORY.md") -> list[str]:
    """The lines of a page, without its head."""
    lines = (folder / name).read_text().splitlines()
    return [line for line in lines if line and not line.startswith(("#", "<!--"))]


def days(folder: Path) -> list[str]:
    """The lines of all days."""
    return [line for file in sorted((folder / "memory").glob("*.md")) for line in page(folder, f"memory/{file.name}")]


def texts(lines: Sequence[Any]) -> list[str]:
    return [line.text for line in lines]
