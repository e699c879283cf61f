"""What a person chose for one run of the agent, apart from the configuration."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from msgspec import Struct

from nacre.config import MAIN

Mode = Literal["ask", "read-only", "yolo"]


class Options(Struct, frozen=True, kw_only=True):
    """The choices of one run.

    `store` is the agent's own (see `store_of`). `folder` is where a conversation works; None is the daemon's
    workspace. `allow_remote` lets a remote model answer where a local one did before. `is_trusted` follows the folder
    for this run only. `allow` has permission rules for this run. `system` replaces the persona (`agent.persona`,
    PERSONA.md) in the system prompt.
    """

    store: str | None = None
    agent: str = MAIN
    incognito: bool = False
    model: str | None = None
    allow_remote: bool = False
    folder: Path | None = None
    is_trusted: bool = False
    mode: Mode = "ask"
    allow: tuple[str, ...] = ()
    system: str = ""


USUAL = Options()
"""What holds when a person chose nothing."""
