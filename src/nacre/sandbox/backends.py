"""How each backend starts a confinement: bubblewrap; or Landlock, namespaces and a system call filter.

Each has a plan, which starts a program that waits for its command on stdin, and a script, which gives it the command.
"""

from __future__ import annotations

import errno
import json
import os
import platform
import struct
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from nacre.sandbox.policy import SETTINGS, Policy, environment, inside
from nacre.sandbox.process_tree import Plan, memory_file

# ---- the system calls that no tool needs and every escape does, as a seccomp program

_Step = tuple[int, int, int, int]

_LOAD, _MASK, _EQUAL, _ANY_BIT, _RETURN = 0x20, 0x54, 0x15, 0x45, 0x06
_ALLOW, _KILL, _ERROR = 0x7FFF0000, 0x80000000, 0x00050000
_NUMBER, _MACHINE, _ARGUMENTS = 0, 4, 16
_X32 = 0x40000000
_NEW_NAMESPACE = 0x7E020000
_MAKES_A_FILE = 0o100 | 0o20000000
_SET_ID = 0o6000
_KIND_OF_FILE, _CHARACTER, _BLOCK = 0o170000, 0o020000, 0o060000
_PUSHES_INPUT = (0x5412, 0x541C)
_INET, _INET6, _NETLINK = 2, 10, 16
_KIND_OF_SOCKET, _STREAM, _PACKETS = 0xF, 1, 5
_ALLOWED = (_RETURN, 0, 0, _ALLOW)

MACHINES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_ABSENT = -1

# Each call with its number on x86_64 and on aarch64.
_REFUSED = {
    # other processes
    "ptrace": (101, 117), "process_vm_readv": (310, 270), "process_vm_writev": (311, 271), "kcmp": (312, 272),
    "pidfd_getfd": (438, 438),
    # the view of the file system
    "mount": (165, 40), "umount2": (166, 39), "pivot_root": (155, 41), "chroot": (161, 51), "open_tree": (428, 428),
    "move_mount": (429, 429), "fsopen": (430, 430), "fsconfig": (431, 431), "fsmount": (432, 432),
    "fspick": (433, 433), "mount_setattr": (442, 442), "open_tree_attr": (467, 467), "name_to_handle_at": (303, 264),
    "open_by_handle_at": (304, 265), "quotactl": (179, 60), "quotactl_fd": (443, 443),
    # namespaces
    "setns": (308, 268), "unshare": (272, 97),
    # ways round this filter, and parts of the kernel with a long record of holes
    "io_uring_setup": (425, 425), "io_uring_enter": (426, 426), "io_uring_register": (427, 427), "bpf": (321, 280),
    "perf_event_open": (298, 241), "userfaultfd": (323, 282), "modify_ldt": (154, _ABSENT),
    # keys
    "add_key": (248, 217), "request_key": (249, 218), "keyctl": (250, 219),
    # the machine itself
    "kexec_load": (246, 104), "kexec_file_load": (320, 294), "init_module": (175, 105), "finit_module": (313, 273),
    "delete_module": (176, 106), "reboot": (169, 142), "swapon": (167, 224), "swapoff": (168, 225), "acct": (163, 89),
    "syslog": (103, 116), "iopl": (172, _ABSENT), "ioperm": (173, _ABSENT), "settimeofday": (164, 170),
    "clock_settime": (227, 112), "adjtimex": (159, 171), "clock_adjtime": (305, 266), "sethostname": (170, 161),
    "setdomainname": (171, 162), "vhangup": (153, 58),
}  # fmt: skip

# Their arguments lie in memory, where a filter cannot look; programs fall back to the older calls.
_UNKNOWN = {"clone3": (435, 435), "openat2": (437, 437)}


def seccomp_program(machine: str, *, netlink: bool) -> bytes:
    """The filter for `machine`; Internet sockets are left to the network namespace.

    There are no Unix sockets: no namespace keeps a tool from one in the workspace that a program outside listens on.
    """
    column = list(MACHINES).index(machine)
    families = [_INET, _INET6, *([_NETLINK] if netlink else [])]
    steps = [
        (_LOAD, 0, 0, _MACHINE),
        (_EQUAL, 1, 0, MACHINES[machine]),
        (_RETURN, 0, 0, _KILL),
        (_LOAD, 0, 0, _NUMBER),
        *([(_ANY_BIT, 0, 1, _X32), (_RETURN, 0, 0, _KILL)] if machine == "x86_64" else []),
    ]
    blocks = [
        *((numbers, [_refuse()]) for numbers in _REFUSED.values()),
        *((numbers, [_refuse(errno.ENOSYS)]) for numbers in _UNKNOWN.values()),
        # Refused with some arguments only: each has the position of what is looked at.
        ((56, 220), _unless_bits(0, _NEW_NAMESPACE)),  # clone
        ((16, 29), [_load(1), *_refuse_each(_PUSHES_INPUT), _ALLOWED]),  # ioctl
        ((41, 198), _only(0, families)),  # socket
        # One of a pair of datagram sockets can still be connected to a path.
        ((53, 199), _only(1, (_STREAM, _PACKETS), mask=_KIND_OF_SOCKET)),  # socketpair
        # A set-id file that root's tool leaves in the workspace would make root of anyone who runs it.
        ((90, _ABSENT), _unless_bits(1, _SET_ID)),  # chmod
        ((91, 52), _unless_bits(1, _SET_ID)),  # fchmod
        ((268, 53), _unless_bits(2, _SET_ID)),  # fchmodat
        ((452, 452), _unless_bits(2, _SET_ID)),  # fchmodat2
        ((85, _ABSENT), _unless_bits(1, _SET_ID)),  # creat
        ((2, _ABSENT), _if_it_makes_a_file(1, _unless_bits(2, _SET_ID))),  # open
        ((257, 56), _if_it_makes_a_file(2, _unless_bits(3, _SET_ID))),  # openat
        ((133, _ABSENT), _no_device(1)),  # mknod
        ((259, 33), _no_device(2)),  # mknodat
    ]
    for numbers, block in blocks:
        if numbers[column] != _ABSENT:
            steps += [(_EQUAL, 0, len(block), numbers[column]), *block]
    steps.append(_ALLOWED)
    return b"".join(struct.pack("=HBBI", *step) for step in steps)


def _refuse(error: int = errno.EPERM) -> _Step:
    return (_RETURN, 0, 0, _ERROR | error)


def _load(position: int) -> _Step:
    return (_LOAD, 0, 0, _ARGUMENTS + 8 * position)


def _unless_bits(position: int, bits: int) -> list[_Step]:
    return [_load(position), (_ANY_BIT, 0, 1, bits), _refuse(), _ALLOWED]


def _refuse_each(values: Iterable[int]) -> list[_Step]:
    return [step for value in values for step in ((_EQUAL, 0, 1, value), _refuse())]


def _only(position: int, values: Iterable[int], *, mask: int = 0xFFFFFFFF) -> list[_Step]:
    allowed = [step for value in values for step in ((_EQUAL, 0, 1, value), _ALLOWED)]
    return [_load(position), (_MASK, 0, 0, mask), *allowed, _refuse()]


def _if_it_makes_a_file(position: int, then: list[_Step]) -> list[_Step]:
    return [_load(position), (_ANY_BIT, 1, 0, _MAKES_A_FILE), _ALLOWED, *then]


def _no_device(position: int) -> list[_Step]:
    kinds = _refuse_each((_CHARACTER, _BLOCK))
    return [_load(position), (_MASK, 0, 0, _KIND_OF_FILE), *kinds, *_unless_bits(position, _SET_ID)]


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
    rules = memory_file(seccomp_program(platform.machine(), netlink=policy.network))
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
        "filter": seccomp_program(platform.machine(), netlink=policy.network).hex(),
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
