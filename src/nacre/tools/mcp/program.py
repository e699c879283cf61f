"""The program of an MCP server: started with little, ended with all that it started."""

from __future__ import annotations

import os
import signal
import subprocess
from contextlib import suppress

import anyio
from anyio import BrokenResourceError, ClosedResourceError, move_on_after
from anyio.abc import ByteReceiveStream, ByteSendStream, Process

from nacre.tools.mcp.client_types import Config

_PASSED_ON = ("HOME", "LANG", "LC_ALL", "LOGNAME", "PATH", "SHELL", "TERM", "TMPDIR", "TZ", "USER")
_END_TIMEOUT = 2


class Program:
    """A running program; its output is read by the connection."""

    def __init__(self, process: Process, stdin: ByteSendStream, stdout: ByteReceiveStream) -> None:
        self._process = process
        self.stdin, self.stdout = stdin, stdout

    @property
    def reason(self) -> str:
        """Why it can no longer be asked."""
        status = self._process.returncode
        return "it closed its output" if status is None else f"its exit status is {status}"

    async def settle(self) -> None:
        """Wait a moment for the exit status of a program that has closed its output."""
        with move_on_after(_END_TIMEOUT):
            await self._process.wait()

    async def close(self) -> None:
        """Close its input, which asks it to end; then send a signal, then kill it."""
        with suppress(BrokenResourceError, ClosedResourceError, OSError):
            await self.stdin.aclose()
        for sign in (None, signal.SIGTERM, signal.SIGKILL):
            if sign is not None:
                self._kill(sign)
            with move_on_after(_END_TIMEOUT):
                await self._process.wait()
                break
        self._kill(signal.SIGKILL)
        await self._process.aclose()

    def _kill(self, sign: signal.Signals) -> None:
        """Send a signal to the program and to all that it started."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, sign)


async def start(config: Config) -> Program:
    """Start the program, with a small part of our environment and what the configuration adds; raises OSError."""
    environment = {name: os.environ[name] for name in _PASSED_ON if name in os.environ} | dict(config.env)
    process = await anyio.open_process(
        [config.command, *config.args],
        env=environment,
        stderr=subprocess.DEVNULL,
        # A Ctrl-C in the terminal is for us, not for it; and its children end with it.
        start_new_session=True,
    )
    if process.stdin is None or process.stdout is None:
        raise OSError("it has no input or output")
    return Program(process, process.stdin, process.stdout)
