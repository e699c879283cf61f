"""Calls that go wrong in a child under the preloaded shim."""

from __future__ import annotations

import ctypes
from typing import Any, NamedTuple

from tests.crash import workload
from tests.crash.warm import Say

FAIL, SHORT, KILL_BEFORE, KILL_AFTER = range(4)
FOR_EVER = -1


class Fault(NamedTuple):
    """Which calls go wrong, and how; in the order of the shim's arguments."""

    call: str
    first: int
    times: int
    mode: int
    error: int


def live_with_faults(say: Say, root: str, faults: list[list[Any]]) -> None:
    """The child: arm the shim, live the workload, tell whether the first fault was met."""
    shim = ctypes.CDLL(None)
    for slot, (call, *numbers) in enumerate(faults):
        shim.failnth_arm(root.encode(), slot, call.encode(), *numbers)
    workload.live(say, root)
    say(fired=shim.failnth_fired(0))
