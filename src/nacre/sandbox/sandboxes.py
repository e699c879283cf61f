"""Which sandbox works here: found by running a command in it."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal

from msgspec import Struct

from nacre.agent.sandbox import Sandbox
from nacre.errors import NacreError
from nacre.sandbox import backends, host_resources, landlock
from nacre.sandbox.confined import Confined
from nacre.sandbox.policy import ELSEWHERE, PROGRAMS, SYSTEM, Limits, Policy, inside, linked_folders, settle
from nacre.sandbox.protected_files import Guarded, guarded_paths
from nacre.sandbox.seccomp import MACHINES
from nacre.sandbox.unconfined import Unconfined

Kind = Literal["auto", "bwrap", "landlock", "off"]

_BACKENDS = {"bwrap": backends, "landlock": landlock}
_INSTALL = "install bubblewrap (Debian and Ubuntu: apt-get install bubblewrap)"
_OFF = "set the sandbox to 'off'"
_TRIAL_SECONDS = 20
_TRIAL_BYTES = 4096


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
    agents or git what to do are protected (see `protected_files`), and what a command makes of them is moved there.
    """

    def guard(sandbox: Sandbox) -> Sandbox:
        return sandbox if aside is None else Guarded(sandbox, Path(workspace), aside=aside)

    if kind == "off":
        why = "the sandbox is off: tools run with every right of the user"
        return Found(sandbox=guard(Unconfined(workspace)), why=why)
    if sys.platform != "linux" or platform.machine() not in MACHINES:
        where = f"{platform.system()} on {platform.machine()}"
        return Found(sandbox=None, why=f"there is no sandbox for {where}; to run tools unconfined, {_OFF}")

    linked = _linked(hidden)

    def policy() -> Policy:
        kept = frozen if aside is None else [*frozen, *guarded_paths(workspace)]
        return settle(
            workspace,
            hidden=hidden,
            frozen=kept,
            readable=[*readable, *linked],
            skills=skills,
            system=system,
            network=network,
            limits=limits or Limits(),
        )

    policy()
    host_resources.sweep()
    reasons = []
    for name in _BACKENDS if kind == "auto" else (kind,):
        sandbox = _confined(name, policy)
        trouble = await _trouble(sandbox)
        if not trouble:
            return Found(sandbox=guard(sandbox), why=f"tools are confined to the workspace by {name}")
        reasons.append(f"{name}: {trouble}")
    return Found(sandbox=None, why=f"no sandbox works here ({'; '.join(reasons)}); {_INSTALL}, or {_OFF}")


def _linked(hidden: Sequence[str]) -> list[str]:
    """The folders outside the system that programs are linked from, without those that must be hidden."""
    secret = [os.path.realpath(path) for path in hidden]
    return [path for path in linked_folders(PROGRAMS, ELSEWHERE) if not any(inside(path, one) for one in secret)]


def _confined(name: str, policy: Callable[[], Policy]) -> Confined:
    module = _BACKENDS[name]
    return Confined(name, policy, make=module.plan, script=module.script)


async def _trouble(sandbox: Confined) -> str:
    """What goes wrong when `true` is run; "" if nothing does."""
    try:
        finished = await sandbox.run(["true"], timeout=_TRIAL_SECONDS, most=_TRIAL_BYTES)
    except (NacreError, OSError) as error:
        return str(error)
    if finished.status == 0:
        return ""
    return finished.output.decode(errors="replace").strip() or f"`true` ended with {finished.status}"
