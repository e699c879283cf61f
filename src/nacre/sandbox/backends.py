"""How each backend starts a confinement: bubblewrap; or Landlock, namespaces and a system call filter.

Each has a plan, which starts a program that waits for its command on stdin, and a script, which gives it the command.
"""

from __future__ import annotations

import json
import os
import platform
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from nacre.sandbox import seccomp
from nacre.sandbox.policy import SETTINGS, Policy, environment, inside
from nacre.sandbox.process_tree import Plan, memory_file

_TMP = "/tmp"  # noqa: S108 - the sandbox's own, seen from inside
_LANDLOCK_CHILD = str(Path(__file__).with_name("landlock_child.py"))


class Backend(NamedTuple):
    """`plan` takes the policy and the scratch folder, `script` the words of a command."""

    plan: Callable[[Policy, str], Plan]
    script: Callable[[Sequence[str]], bytes]


# ---- bubblewrap: a root of our own making, with nothing in it but what the policy names


def _plan_bubblewrap(policy: Policy, scratch: str) -> Plan:
    """Start a shell in the confinement that waits for its script on stdin."""
    limits = policy.limits
    rules = memory_file(seccomp.program(platform.machine(), netlink=policy.network))
    reader, writer = os.pipe()
    words = ["--unshare-all", "--unshare-user", "--die-with-parent", "--new-session", "--cap-drop", "ALL"]
    words += ["--share-net"] if policy.network else []
    words += ["--seccomp", str(rules), "--json-status-fd", str(writer)]
    # The parts of /etc: files are copied, for each mount costs a millisecond.
    files: list[int] = []
    for place in SETTINGS:
        if os.path.isdir(place):
            words += ["--ro-bind", place, place]
        elif os.path.exists(place):
            files.append(os.open(place, os.O_RDONLY))
            words += ["--perms", "0444", "--file", str(files[-1]), place]
    words += [*_mounts(policy, scratch), "--clearenv"]
    for name, value in environment(_TMP).items():
        words += ["--setenv", name, value]
    words += ["--chdir", policy.workspace]
    # The arguments name what is hidden; on a command line the processes inside could read them.
    arguments = memory_file(b"".join(os.fsencode(word) + b"\0" for word in words))
    # Set limits, then run what stdin says; -u and -p are two shells' words for one limit.
    waiting = (
        f"ulimit -c 0 && ulimit -t {limits.cpu} && ulimit -v {limits.memory >> 10} && ulimit -f {limits.file >> 9}"
        f" && {{ ulimit -u {limits.processes} || ulimit -p {limits.processes}; }} 2>/dev/null"
        " && . /proc/self/fd/0"
    )
    return Plan(
        command=["bwrap", "--args", str(arguments), "--", "/bin/sh", "-c", waiting],
        passed=(rules, writer, arguments, *files),
        news=reader,
        processes=limits.processes,
    )


def _mounts(policy: Policy, scratch: str) -> Iterator[str]:
    for place in policy.system:
        if os.path.islink(place):
            yield from ("--symlink", os.readlink(place), place)
        else:
            yield from ("--ro-bind-try", place, place)
    yield from ("--proc", "/proc", "--dev", "/dev", "--bind", scratch, "/dev/shm", "--remount-ro", "/dev")  # noqa: S108 - as above
    yield from ("--bind", scratch, _TMP)
    for place in policy.readable:
        yield from ("--ro-bind", place, place)
    for place in (policy.workspace, *policy.held):
        yield from ("--bind", place, place)
    for place in policy.frozen:
        yield from ("--ro-bind", place, place)
    for place in policy.covered:
        if not os.path.isdir(place):
            yield from ("--ro-bind", "/dev/null", place)
            continue
        bared = [path for path in policy.bared if inside(path, place)]
        yield from ("--perms", "0711" if bared else "0000", "--tmpfs", place)
        for path in bared:
            yield from ("--ro-bind", path, path)
        yield from ("--remount-ro", place)
    # Root owns the kernel's settings in /proc, and bubblewrap leaves them writable.
    yield from ("--remount-ro", "/proc", "--remount-ro", "/")


def _script_of_shell(command: Sequence[str]) -> bytes:
    quoted = (b"'" + os.fsencode(word).replace(b"'", b"'\\''") + b"'" for word in command)
    return b"exec " + b" ".join(quoted) + b" </dev/null\n"


# ---- Landlock, where bubblewrap is missing


def _plan_landlock(policy: Policy, scratch: str) -> Plan:
    """Start the program that confines itself and waits for a command on stdin."""
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
        "environment": {**environment(_TMP), "GIT_CONFIG_NOSYSTEM": "1"},
        "limits": [limits.cpu, limits.memory, limits.file, limits.processes],
        "filter": seccomp.program(platform.machine(), netlink=policy.network).hex(),
    }
    order = memory_file(json.dumps(words).encode())
    command = [sys.executable, "-I", "-S", _LANDLOCK_CHILD, str(order)]
    return Plan(command=command, passed=(writer, order), news=reader, processes=limits.processes)


def _script_of_landlock_child(command: Sequence[str]) -> bytes:
    return json.dumps([os.fsencode(word).hex() for word in command]).encode()


BACKENDS = {
    "bwrap": Backend(_plan_bubblewrap, _script_of_shell),
    "landlock": Backend(_plan_landlock, _script_of_landlock_child),
}
"""In the order in which they are tried."""
