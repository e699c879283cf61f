"""No sandbox: commands run with every right of the user, in a clean environment, for a limited time."""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

import anyio
import anyio.to_thread

from nacre.agent.sandbox import Finished
from nacre.errors import ToolError
from nacre.sandbox.policy import environment
from nacre.sandbox.process_tree import follow

_MARK = "NACRE_CALL"
_PAUSE = 0.005
_PATIENCE = 5.0


class Unconfined:
    """Runs commands in the workspace, and confines them to nothing."""

    name = "off"

    def __init__(self, workspace: str) -> None:
        self._workspace = workspace

    async def run(self, command: Sequence[str], *, timeout: float, most: int) -> Finished:  # noqa: ASYNC109 - a limit on the command
        try:
            tree = _Group(command, self._workspace)
        except (OSError, ValueError, IndexError) as error:
            raise ToolError(f"the command {list(command)[:1]!r} did not start: {error}") from error
        try:
            return await follow(tree, timeout=timeout, most=most)
        finally:
            os.close(tree.output)


class _Group:
    """A process group; what left it is known by a mark in its environment, where /proc shows that."""

    def __init__(self, command: Sequence[str], workspace: str) -> None:
        self._mark = secrets.token_hex(8)
        home = os.environ.get("HOME", workspace)
        self.output, printed = os.pipe()
        os.set_blocking(self.output, False)
        try:
            self._process = subprocess.Popen(  # noqa: S603 - the user has turned the sandbox off
                list(command),
                stdin=subprocess.DEVNULL,
                stdout=printed,
                stderr=printed,
                cwd=workspace,
                env={**environment(home), "TMPDIR": "/tmp", _MARK: self._mark},  # noqa: S108 - where programs expect it
                start_new_session=True,
            )
        except BaseException:
            os.close(self.output)
            raise
        finally:
            os.close(printed)

    async def over(self) -> None:
        await anyio.to_thread.run_sync(self._process.wait, abandon_on_cancel=True)

    async def end(self) -> int:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        with anyio.move_on_after(_PATIENCE):
            while self._kill_marked():  # noqa: ASYNC110 - the dead send no event
                await anyio.sleep(_PAUSE)
        await self.over()
        return self._process.returncode

    def _kill_marked(self) -> bool:
        """Kill whoever carries the mark; says whether there was anyone."""
        processes = list(_marked(f"{_MARK}={self._mark}".encode()))
        for process in processes:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(process, signal.SIGKILL)
        return bool(processes)


def _marked(mark: bytes) -> Iterator[int]:
    with contextlib.suppress(FileNotFoundError):
        for name in filter(str.isdigit, os.listdir("/proc")):
            with contextlib.suppress(OSError):
                if mark in Path("/proc", name, "environ").read_bytes().split(b"\0"):
                    yield int(name)
