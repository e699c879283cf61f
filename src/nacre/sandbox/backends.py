"""Confinement by bubblewrap: a root of our own making, with nothing in it but what the policy names."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator, Sequence

from nacre.sandbox import seccomp
from nacre.sandbox.policy import SETTINGS, Limits, Policy, environment, inside
from nacre.sandbox.process_tree import Plan, memory_file

_ROOM = "/tmp"  # noqa: S108 - the sandbox's own, seen from inside


def plan(policy: Policy, scratch: str) -> Plan:
    """How to start a shell in there that waits for its script on stdin."""
    rules = memory_file(seccomp.program(platform.machine(), netlink=policy.network))
    reader, writer = os.pipe()
    settings, files = _settings()
    words = [*_namespaces(policy, rules, writer), *settings, *_view(policy, scratch), *_environment()]
    # The arguments name what is hidden; on a command line the processes inside could read them.
    arguments = memory_file(b"".join(os.fsencode(word) + b"\0" for word in [*words, "--chdir", policy.workspace]))
    return Plan(
        command=["bwrap", "--args", str(arguments), "--", "/bin/sh", "-c", _waiting(policy.limits)],
        passed=(rules, writer, arguments, *files),
        news=reader,
        processes=policy.limits.processes,
    )


def script(command: Sequence[str]) -> bytes:
    """What makes the waiting shell the command."""
    return (
        b"exec "
        + b" ".join(b"'" + os.fsencode(word).replace(b"'", b"'\\''") + b"'" for word in command)
        + b" </dev/null\n"
    )


def _namespaces(policy: Policy, rules: int, news: int) -> Iterator[str]:
    yield from ("--unshare-all", "--unshare-user", "--die-with-parent", "--new-session", "--cap-drop", "ALL")
    if policy.network:
        yield "--share-net"
    yield from ("--seccomp", str(rules), "--json-status-fd", str(news))


def _settings() -> tuple[list[str], list[int]]:
    """Options and descriptors for the parts of /etc; files are copied, for each mount costs a millisecond."""
    words: list[str] = []
    files: list[int] = []
    for place in SETTINGS:
        if os.path.isdir(place):
            words += ["--ro-bind", place, place]
        elif os.path.exists(place):
            files.append(os.open(place, os.O_RDONLY))
            words += ["--perms", "0444", "--file", str(files[-1]), place]
    return words, files


def _view(policy: Policy, scratch: str) -> Iterator[str]:
    for place in policy.system:
        if os.path.islink(place):
            yield from ("--symlink", os.readlink(place), place)
        else:
            yield from ("--ro-bind-try", place, place)
    yield from ("--proc", "/proc", "--dev", "/dev", "--bind", scratch, "/dev/shm", "--remount-ro", "/dev")  # noqa: S108 - as above
    yield from ("--bind", scratch, _ROOM)
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


def _environment() -> Iterator[str]:
    yield "--clearenv"
    for name, value in environment(_ROOM).items():
        yield from ("--setenv", name, value)


def _waiting(limits: Limits) -> str:
    """A script of the shell: set limits, then become what stdin says; -u and -p are two shells' words for one limit."""
    return (
        f"ulimit -c 0 && ulimit -t {limits.cpu} && ulimit -v {limits.memory >> 10} && ulimit -f {limits.file >> 9}"
        f" && {{ ulimit -u {limits.processes} || ulimit -p {limits.processes}; }} 2>/dev/null"
        " && . /proc/self/fd/0"
    )
