"""What tools that run programs need of a sandbox."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from msgspec import Struct


class Finished(Struct, frozen=True, kw_only=True):
    """How a sandboxed command ended; `status` is its exit status, negative for a signal.

    `notes` say what else the sandbox did, for the model and the person.
    """

    status: int
    output: bytes
    timed_out: bool = False
    cut: bool = False
    notes: tuple[str, ...] = ()


class Sandbox(Protocol):
    """Where tool processes run."""

    @property
    def name(self) -> str:
        """Which confinement it is."""

    async def run(self, command: Sequence[str], *, timeout: float, max_bytes: int) -> Finished:  # noqa: ASYNC109 - a limit on the command
        """Run a command in the workspace, confined; at most `max_bytes` of its output are kept."""
