"""Confinement by Landlock, namespaces and a system call filter, where bubblewrap is missing."""

from __future__ import annotations

import json
import os
import platform
import sys
from collections.abc import Sequence
from pathlib import Path

from nacre.sandbox import seccomp
from nacre.sandbox.policy import SETTINGS, Policy, environment
from nacre.sandbox.process_tree import Plan, memory_file

_PROGRAM = str(Path(__file__).with_name("landlock_child.py"))


def plan(policy: Policy, scratch: str) -> Plan:
    """How to start the program that confines itself and waits for a command on stdin."""
    reader, writer = os.pipe()
    limits = policy.limits
    words = {
        "parent": os.getpid(),
        "news": writer,
        "workspace": policy.workspace,
        "scratch": scratch,
        "held": policy.held,
        "covered": policy.covered,
        "frozen": policy.frozen,
        "readable": policy.readable,
        "bared": policy.bared,
        "system": (*policy.system, *SETTINGS),
        "network": policy.network,
        # To git, a file that it may not look for is an error.
        "environment": {**environment("/tmp"), "GIT_CONFIG_NOSYSTEM": "1"},  # noqa: S108 - seen from inside
        "limits": [limits.cpu, limits.memory, limits.file, limits.processes],
        "filter": seccomp.program(platform.machine(), netlink=policy.network).hex(),
    }
    order = memory_file(json.dumps(words).encode())
    command = [sys.executable, "-I", "-S", _PROGRAM, str(order)]
    return Plan(command=command, passed=(writer, order), news=reader, processes=limits.processes)


def script(command: Sequence[str]) -> bytes:
    """What the waiting program becomes."""
    return json.dumps([os.fsencode(word).hex() for word in command]).encode()
