"""An MCP server that is a program: one JSON message per line, on its standard input and output."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from itertools import count
from typing import Any, Self

import anyio
import msgspec
from anyio import BrokenResourceError, ClosedResourceError, EndOfStream, Lock, move_on_after
from anyio.abc import Process
from anyio.streams.buffered import BufferedByteReceiveStream

from nacre.tools.mcp import Config, Gone, result_of

_LONGEST_LINE = 64 * 1024 * 1024
_PASSED_ON = ("HOME", "LANG", "LC_ALL", "LOGNAME", "PATH", "SHELL", "TERM", "TMPDIR", "TZ", "USER")
_PATIENCE = 2
_NO_SUCH_METHOD = -32601


class Stdio:
    """A running server.

    There is no task in the background: who waits for an answer reads, and passes on what is for others.
    """

    def __init__(self, process: Process) -> None:
        self._process = process
        if process.stdin is None or process.stdout is None:
            raise Gone("it has no input or output")
        self._stdin = process.stdin
        self._lines = BufferedByteReceiveStream(process.stdout)
        self._reading = Lock()
        self._numbers = count(1)
        self._answers: dict[int, Mapping[str, Any] | None] = {}
        self._is_gone = False

    @classmethod
    async def started(cls, config: Config) -> Self:
        """Start the program, with a small part of our environment and what the configuration adds."""
        environment = {name: os.environ[name] for name in _PASSED_ON if name in os.environ} | dict(config.env)
        process = await anyio.open_process(
            [config.command, *config.args],
            env=environment,
            stderr=subprocess.DEVNULL,
            # A Ctrl-C in the terminal is for us, not for it; and its children end with it.
            start_new_session=True,
        )
        return cls(process)

    @property
    def is_open(self) -> bool:
        return not self._is_gone and self._process.returncode is None

    async def request(self, method: str, params: Mapping[str, Any]) -> Mapping[str, Any]:
        number = next(self._numbers)
        self._answers[number] = None
        try:
            await self._send({"jsonrpc": "2.0", "id": number, "method": method, "params": params})
            answer = await self._awaited(number)
        except anyio.get_cancelled_exc_class():
            with move_on_after(1, shield=True):
                await self.notify("notifications/cancelled", {"requestId": number})
            raise
        finally:
            self._answers.pop(number, None)
        return result_of(answer)

    async def notify(self, method: str, params: Mapping[str, Any]) -> None:
        await self._send({"jsonrpc": "2.0", "method": method, "params": params})

    async def close(self) -> None:
        """Close its input, which tells it to end; then be less and less polite."""
        self._is_gone = True
        with suppress(BrokenResourceError, ClosedResourceError, OSError):
            await self._stdin.aclose()
        for sign in (None, signal.SIGTERM, signal.SIGKILL):
            if sign is not None:
                self._kill(sign)
            with move_on_after(_PATIENCE):
                await self._process.wait()
                break
        self._kill(signal.SIGKILL)
        await self._process.aclose()

    def _kill(self, sign: signal.Signals) -> None:
        """Send a signal to the server and to all that it started."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, sign)

    async def _send(self, message: Mapping[str, Any]) -> None:
        try:
            await self._stdin.send(msgspec.json.encode(message) + b"\n")
        except (BrokenResourceError, ClosedResourceError, OSError) as error:
            raise self._gone() from error

    async def _awaited(self, number: int) -> Mapping[str, Any]:
        while True:
            async with self._reading:
                answer = self._answers[number]
                if answer is not None:
                    return answer
                await self._take(await self._received())

    async def _received(self) -> Any:
        try:
            line = await self._lines.receive_until(b"\n", _LONGEST_LINE)
        except (EndOfStream, BrokenResourceError, ClosedResourceError, anyio.IncompleteRead) as error:
            raise self._gone() from error
        except anyio.DelimiterNotFound as error:
            self._is_gone = True
            raise Gone(f"it sent a message of more than {_LONGEST_LINE:,} bytes") from error
        try:
            return msgspec.json.decode(line)
        except msgspec.DecodeError:
            return None  # some servers print other things too

    async def _take(self, message: Any) -> None:
        """Keep an answer for who waits for it; answer what the server asks."""
        if not isinstance(message, dict):
            return
        number = message.get("id")
        if "method" not in message:
            if number in self._answers:
                self._answers[number] = message
        elif number is not None:
            await self._send({"jsonrpc": "2.0", "id": number, **_reply(message["method"])})

    def _gone(self) -> Gone:
        self._is_gone = True
        status = self._process.returncode
        return Gone("it closed its output" if status is None else f"its exit status is {status}")


def _reply(method: str) -> dict[str, Any]:
    if method == "ping":
        return {"result": {}}
    return {"error": {"code": _NO_SUCH_METHOD, "message": f"{method} is not supported"}}
