"""The sandbox of the port, over either confinement, with the next one always made ready."""

from __future__ import annotations

import asyncio
import contextlib
import weakref
from collections.abc import Callable, Sequence

from nacre.agent.sandbox import Finished
from nacre.errors import ConfigError, ToolError
from nacre.sandbox.policy import Policy, fingerprint
from nacre.sandbox.process_tree import Cell, Plan, follow

Make = Callable[[Policy, str], Plan]
Script = Callable[[Sequence[str]], bytes]

_PAUSE = 0.01


class Confined:
    """Runs each command in a confinement of its own.

    A command waits neither for namespaces nor for mounts: once one has run, a confinement for the next is started
    while nobody waits. It is used only if the policy, which is made anew for each command, still names the same files.
    """

    def __init__(self, name: str, policy: Callable[[], Policy], *, make: Make, script: Script) -> None:
        self.name = name
        self._policy = policy
        self._make = make
        self._script = script
        self._ready: Cell | None = None
        self._soon: asyncio.TimerHandle | None = None

    async def run(self, command: Sequence[str], *, timeout: float, most: int) -> Finished:  # noqa: ASYNC109 - a limit on the command
        _check(command)
        cell = self._take()
        try:
            await cell.order(self._script(command))
            return await follow(cell, timeout=timeout, most=most)
        finally:
            loop = asyncio.get_running_loop()
            # Nothing runs in it any more; to take it down and to empty its scratch folder, nobody need wait.
            loop.run_in_executor(None, cell.discard)
            self._soon = loop.call_later(_PAUSE, _prepare, weakref.ref(self))

    def close(self) -> None:
        """End the confinement that waits for a command; it ends with this process anyway."""
        ready, self._ready = self._ready, None
        if ready is not None:
            ready.discard()

    def _take(self) -> Cell:
        if self._soon is not None:
            self._soon.cancel()
        ready, self._ready = self._ready, None
        policy = self._policy()
        if ready is not None:
            if ready.alive and ready.marks == _marks(policy):
                return ready
            ready.discard()
        return self._start(policy)

    def prepare(self) -> None:
        """Make a confinement ready for the next command, if none is."""
        if self._ready is None:
            self._ready = self._start(self._policy())

    def _start(self, policy: Policy) -> Cell:
        return Cell(lambda scratch: self._make(policy, scratch), marks=_marks(policy))


def _marks(policy: Policy) -> object:
    """What a confinement was made for: the policy, and the files that its paths named."""
    return policy, fingerprint(policy)


def _prepare(sandbox: weakref.ref[Confined]) -> None:
    """Prepare a sandbox that someone still has; failing costs nothing, for the next command will say why."""
    confined = sandbox()
    if confined is not None:
        with contextlib.suppress(OSError, ConfigError):
            confined.prepare()


def _check(command: Sequence[str]) -> None:
    if not command:
        raise ToolError("there is no command to run; give at least the name of a program")
    if any("\0" in word for word in command):
        raise ToolError(f"the command {command[0]!r} contains a NUL character; remove it")
