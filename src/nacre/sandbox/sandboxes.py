"""The sandboxes: one over each backend, one that confines nothing; and which of them works here."""

from __future__ import annotations

import asyncio
import os
import platform
import secrets
import signal
import subprocess
import sys
import weakref
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Literal

import anyio
import anyio.to_thread
from msgspec import Struct

from nacre.agent.ports import Finished, Sandbox
from nacre.errors import ConfigError, NacreError, ToolError
from nacre.sandbox.backends import BACKENDS, MACHINES, Backend
from nacre.sandbox.policy import SYSTEM, Limits, Policy, environment, fingerprint, linked_folders, settle
from nacre.sandbox.process_tree import Cell, follow, sweep
from nacre.sandbox.protected_files import Guarded, guarded_paths

Kind = Literal["auto", "bwrap", "landlock", "off"]

_INSTALL = "install bubblewrap (Debian and Ubuntu: apt-get install bubblewrap)"
_OFF = "set the sandbox to 'off'"
_IS_OFF = "the sandbox is off: tools run with every right of the user"
_TRIAL_SECONDS = 20
_TRIAL_BYTES = 4096
_PREPARE_AFTER = 0.01
_CALL_ID = "NACRE_CALL"
_KILL_TIMEOUT = 5.0
_KILL_PAUSE = 0.005


class Found(Struct, frozen=True, kw_only=True):
    """The sandbox, or None; and a sentence: what confines, or why nothing does and what to do."""

    sandbox: Sandbox | None
    why: str


async def find(  # noqa: PLR0913 - each is a choice of its own, by name
    workspace: str,
    *,
    kind: Kind = "auto",
    hidden: Sequence[str] = (),
    frozen: Sequence[str] = (),
    readable: Sequence[str] = (),
    skills: Sequence[str] = (),
    system: tuple[str, ...] = SYSTEM,
    network: bool = False,
    limits: Limits | None = None,
    aside: Path | None = None,
) -> Found:
    """The first sandbox that runs `true` here; raises ConfigError for paths that no sandbox could serve.

    `hidden` paths can be neither read nor written from inside; those in the workspace must exist. A hidden folder
    stays hidden; a hidden file only until someone puts another in its place, so hide folders. `frozen` paths in the
    workspace that exist when a command begins can be read and not written; so can `readable` paths anywhere, and the
    folders of `skills`, those in something hidden too, and of programs in `system`. With `aside`, files that tell
    agents or git what to do are protected (see `protected_files`), and what a command changes in them is moved there.
    """

    def guard(sandbox: Sandbox) -> Sandbox:
        return sandbox if aside is None else Guarded(sandbox, Path(workspace), aside=aside)

    if kind == "off":
        return Found(sandbox=guard(Unsandboxed(workspace)), why=_IS_OFF)
    if sys.platform != "linux" or platform.machine() not in MACHINES:
        where = f"{platform.system()} on {platform.machine()}"
        return Found(sandbox=None, why=f"there is no sandbox for {where}; to run tools unconfined, {_OFF}")

    linked = linked_folders(hidden=hidden)

    def make_policy() -> Policy:
        return settle(
            workspace,
            hidden=hidden,
            frozen=frozen if aside is None else [*frozen, *guarded_paths(workspace)],
            readable=[*readable, *linked],
            skills=skills,
            system=system,
            network=network,
            limits=limits or Limits(),
        )

    make_policy()
    sweep()
    reasons = []
    for name in BACKENDS if kind == "auto" else (kind,):
        sandbox = Sandboxed(name, make_policy, BACKENDS[name])
        try:
            finished = await sandbox.run(["true"], timeout=_TRIAL_SECONDS, max_bytes=_TRIAL_BYTES)
        except (NacreError, OSError) as error:
            reasons.append(f"{name}: {error}")
            continue
        if finished.status == 0:
            return Found(sandbox=guard(sandbox), why=f"tools are confined to the workspace by {name}")
        output = finished.output.decode(errors="replace").strip()
        reasons.append(f"{name}: {output or f'`true` ended with {finished.status}'}")
    return Found(sandbox=None, why=f"no sandbox works here ({'; '.join(reasons)}); {_INSTALL}, or {_OFF}")


class Sandboxed:
    """Runs each command in a confinement of its own.

    A command waits neither for namespaces nor for mounts: once one has run, a confinement for the next is started
    while nobody waits. It is used only if the policy, which is made again for each command, still names the same
    files.
    """

    def __init__(self, name: str, make_policy: Callable[[], Policy], backend: Backend) -> None:
        self.name = name
        self._make_policy = make_policy
        self._backend = backend
        self._ready: Cell | None = None
        self._soon: asyncio.TimerHandle | None = None

    async def run(self, command: Sequence[str], *, timeout: float, max_bytes: int) -> Finished:  # noqa: ASYNC109 - a limit on the command
        if not command:
            raise ToolError("there is no command to run; give at least the name of a program")
        if any("\0" in word for word in command):
            raise ToolError(f"the command {command[0]!r} contains a NUL character; remove it")
        # The confinement that is ready, if it is still for the same files.
        if self._soon is not None:
            self._soon.cancel()
        ready, self._ready = self._ready, None
        loop, policy = asyncio.get_running_loop(), self._make_policy()
        if ready is not None and not (ready.alive and ready.made_for == (policy, fingerprint(policy))):
            loop.run_in_executor(None, ready.discard)
            ready = None
        cell = ready or self._start(policy)
        try:
            await cell.order(self._backend.script(command))
            return await follow(cell, timeout=timeout, max_bytes=max_bytes)
        finally:
            # Nothing runs in it any more; to take it down and to empty its scratch folder, nobody need wait.
            loop.run_in_executor(None, cell.discard)
            self._soon = loop.call_later(_PREPARE_AFTER, _prepare, weakref.ref(self))

    def close(self) -> None:
        """End the confinement that waits for a command; it ends with this process anyway."""
        ready, self._ready = self._ready, None
        if ready is not None:
            ready.discard()

    def prepare(self) -> None:
        """Make a confinement ready for the next command, if none is."""
        if self._ready is None:
            self._ready = self._start(self._make_policy())

    def _start(self, policy: Policy) -> Cell:
        return Cell(lambda scratch: self._backend.plan(policy, scratch), made_for=(policy, fingerprint(policy)))


def _prepare(sandbox: weakref.ref[Sandboxed]) -> None:
    """Prepare a sandbox that someone still has; failing costs nothing, for the next command will say why."""
    found = sandbox()
    if found is not None:
        with suppress(OSError, ConfigError):
            found.prepare()


class Unsandboxed:
    """Runs commands in the workspace with every right of the user, in a clean environment, for a limited time."""

    name = "off"

    def __init__(self, workspace: str) -> None:
        self._workspace = workspace

    async def run(self, command: Sequence[str], *, timeout: float, max_bytes: int) -> Finished:  # noqa: ASYNC109 - a limit on the command
        try:
            tree = _Group(command, self._workspace)
        except (OSError, ValueError, IndexError) as error:
            raise ToolError(f"the command {list(command)[:1]!r} did not start: {error}") from error
        try:
            return await follow(tree, timeout=timeout, max_bytes=max_bytes)
        finally:
            os.close(tree.output)


class _Group:
    """A process group; what left it is known by an id in its environment, where /proc shows that."""

    def __init__(self, command: Sequence[str], workspace: str) -> None:
        self._id = secrets.token_hex(8)
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
                env={**environment(home), "TMPDIR": "/tmp", _CALL_ID: self._id},  # noqa: S108 - where programs expect it
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
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        with anyio.move_on_after(_KILL_TIMEOUT):
            while self._kill_those_with_id():  # noqa: ASYNC110 - the dead send no event
                await anyio.sleep(_KILL_PAUSE)
        await self.over()
        return self._process.returncode

    def _kill_those_with_id(self) -> bool:
        """Kill every process that has the id; says whether there was one."""
        variable = f"{_CALL_ID}={self._id}".encode()
        processes = []
        with suppress(FileNotFoundError):
            for name in filter(str.isdigit, os.listdir("/proc")):
                with suppress(OSError):
                    if variable in Path("/proc", name, "environ").read_bytes().split(b"\0"):
                        processes.append(int(name))
        for process in processes:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(process, signal.SIGKILL)
        return bool(processes)
