"""What the tests of the sandbox share: which kinds work here, and a sandbox of one."""

from __future__ import annotations

import functools
import tempfile
from pathlib import Path
from typing import Any, cast

import anyio
import pytest

from nacre.agent.ports import Finished, Sandbox
from nacre.sandbox import Kind, find

CONFINED = ("bwrap", "landlock")


async def sandbox(kind: str, workspace: Path, **options: Any) -> Sandbox:
    found = await find(str(workspace), kind=cast("Kind", kind), **options)
    assert found.sandbox is not None, found.why
    return found.sandbox


def ran(
    kind: str, workspace: Path, *command: str, timeout: float = 20, max_bytes: int = 1 << 16, **options: Any
) -> Finished:
    """The end of one command in a sandbox of its own."""
    usable(kind)

    async def run() -> Finished:
        return await (await sandbox(kind, workspace, **options)).run(command, timeout=timeout, max_bytes=max_bytes)

    return anyio.run(run)


def usable(kind: str) -> None:
    """Skip a test whose kind of sandbox does not work here."""
    if trouble := _trouble(kind):
        pytest.skip(trouble)


@functools.cache
def _trouble(kind: str) -> str:
    with tempfile.TemporaryDirectory() as workspace:
        found = anyio.run(lambda: find(workspace, kind=cast("Kind", kind)))
    return found.why if found.sandbox is None else ""
