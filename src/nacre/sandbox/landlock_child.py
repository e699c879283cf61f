"""A program that confines itself and then runs the command it is given; it needs the standard library alone.

Two processes: the outer one makes the namespaces; the first of the new PID namespace sets up the view, gives up
every right, runs the command, reaps, and reports. When it ends, the kernel ends every other one in its namespace.
"""

from __future__ import annotations

import ctypes
import fcntl
import json
import os
import resource
import signal
import socket
import struct
import sys
from typing import Any, NoReturn

# linux/sched.h
_NEW_MOUNTS, _NEW_CGROUPS, _NEW_NAMES, _NEW_IPC = 0x00020000, 0x02000000, 0x04000000, 0x08000000
_NEW_USERS, _NEW_PIDS, _NEW_NETWORK = 0x10000000, 0x20000000, 0x40000000
# linux/mount.h
_READ_ONLY, _NO_SET_ID, _NO_DEVICES, _NO_EXEC = 1, 2, 4, 8
_BIND, _RECURSIVE, _PRIVATE = 4096, 16384, 1 << 18
_HERE, _WHOLE, _CLONE, _EMPTY_PATH = -100, 0x8000, 1, 4
_OPEN_TREE, _MOVE_MOUNT, _SET_ATTRIBUTES = 428, 429, 442
# linux/prctl.h
_DIE_WITH_PARENT, _DUMPABLE, _FILTER, _DROP_BOUND, _NO_NEW_RIGHTS, _AMBIENT = 1, 4, 22, 24, 38, 47
# linux/landlock.h
_CREATE_RULES, _ADD_RULE, _RESTRICT = 444, 445, 446
_EXECUTE, _WRITE, _READ, _LIST, _TRUNCATE, _CONTROL_DEVICE = 1, 2, 4, 8, 1 << 14, 1 << 15
_MAKE_DEVICES = 1 << 6 | 1 << 11
_OF_A_FILE = _EXECUTE | _WRITE | _READ | _TRUNCATE | _CONTROL_DEVICE
_OLDEST_VERSION, _DEVICES_SINCE, _SCOPES_SINCE = 3, 5, 6

_DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")
_SHARED = ("/tmp", "/dev/shm")  # noqa: S108 - the scratch folder lies over them
_MIN_PIDS = 301
_PIDS_PER_NAMESPACE = (6, 14)
_COULD_NOT_START = 127

libc = ctypes.CDLL(None, use_errno=True)


def main() -> None:
    """Read what to do, and do it."""
    with open(int(sys.argv[1]), encoding="utf-8") as file:
        words = json.load(file)
    _call(libc.prctl, _DIE_WITH_PARENT, signal.SIGKILL)
    if os.getppid() != words["parent"]:
        sys.exit("the process that started this is gone")
    # Enter namespaces of our own, as the same user.
    user, group = os.getuid(), os.getgid()
    if user == 0:
        os.setgroups([])
    spaces = _NEW_USERS | _NEW_MOUNTS | _NEW_PIDS | _NEW_IPC | _NEW_NAMES | _NEW_CGROUPS
    _call(libc.unshare, spaces if words["network"] else spaces | _NEW_NETWORK)
    _put("/proc/self/setgroups", "deny")
    _put("/proc/self/uid_map", f"{user} {user} 1")
    _put("/proc/self/gid_map", f"{group} {group} 1")
    first = os.fork()
    if first == 0:
        os.set_inheritable(words["news"], False)  # noqa: FBT003 - the call takes it so
        _be_first(words)
    os.write(words["news"], b'{"child-pid": %d}' % first)
    os.close(words["news"])
    os.closerange(0, 3)
    os.waitpid(first, 0)
    os._exit(0)


def _be_first(words: dict[str, Any]) -> NoReturn:
    """Be the first process of the namespace: set up, run the command, reap until it is over."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _set_view(words)
    # Bound the number of processes for root, whom RLIMIT_NPROC does not; older kernels have one bound for all.
    release = tuple(int("".join(filter(str.isdigit, part)) or 0) for part in os.uname().release.split(".")[:2])
    if os.getuid() == 0 and release >= _PIDS_PER_NAMESPACE:
        _put("/proc/sys/kernel/pid_max", str(max(words["limits"][-1], _MIN_PIDS)))
    _restrict_mount("/proc", _READ_ONLY)
    if not words["network"]:
        # Raise the loopback device.
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
            fcntl.ioctl(any_socket, 0x8914, struct.pack("16sh14x", b"lo", 1))
    _give_up_rights(words)
    # Last, for giving up rights takes these back.
    _call(libc.prctl, _DUMPABLE, 0)
    _call(libc.prctl, _DIE_WITH_PARENT, signal.SIGKILL)
    kinds = (resource.RLIMIT_CPU, resource.RLIMIT_AS, resource.RLIMIT_FSIZE, resource.RLIMIT_NPROC)
    for kind, limit in (*zip(kinds, words["limits"], strict=True), (resource.RLIMIT_CORE, 0)):
        hard = resource.getrlimit(kind)[1]
        bound = limit if hard == resource.RLIM_INFINITY else min(limit, hard)
        resource.setrlimit(kind, (bound, bound))
    os.environ["PATH"] = words["environment"]["PATH"]
    order = b""
    while piece := os.read(0, 1 << 16):
        order += piece
    if not order:
        os._exit(0)
    # Run the command without copying ourselves first, and reap all processes until it is over.
    command = [bytes.fromhex(word) for word in json.loads(order)]
    running, status = None, _COULD_NOT_START
    try:
        running = os.posix_spawnp(
            command[0],
            command,
            words["environment"],
            file_actions=[(os.POSIX_SPAWN_OPEN, 0, "/dev/null", os.O_RDONLY, 0)],
            setsid=True,
            setsigdef=[signal.SIGINT, signal.SIGPIPE, signal.SIGXFSZ],
        )
    except OSError as error:
        os.write(2, command[0] + f": {error.strerror}\n".encode())
    os.closerange(0, 3)
    while running is not None:
        process, ended = os.wait()
        if process == running:
            code = os.waitstatus_to_exitcode(ended)
            running, status = None, code if code >= 0 else 128 - code
    os.write(words["news"], b'{"exit-code": %d}' % status)
    os._exit(status)


# ---- what can be seen


def _set_view(words: dict[str, Any]) -> None:
    """Make everything read-only but the workspace and the scratch folder; freeze parts of it, cover what is hidden."""
    _mount(None, "/", None, _RECURSIVE | _PRIVATE)
    shared = [(_copy(words["scratch"]), place) for place in _SHARED]
    readable = [(_copy(path), path) for path in words["readable"]]
    workspace = (_copy(words["workspace"]), words["workspace"])
    _restrict_mount("/", _READ_ONLY | _NO_SET_ID, deep=True)
    for tree, place in (*shared, *readable, workspace):
        _place(tree, place)
        if (tree, place) in readable:
            _restrict_mount(place, _READ_ONLY | _NO_SET_ID, deep=True)
    for folder in words["held"]:
        _mount(folder, folder, None, _BIND | _RECURSIVE)
    for path in words["frozen"]:
        _mount(path, path, None, _BIND | _RECURSIVE)
        _restrict_mount(path, _READ_ONLY | _NO_SET_ID, deep=True)
    bared = [(path, _copy(path)) for path in words["bared"]]
    for path in words["covered"]:
        # An empty folder lies over it, in which only the bared trees can be seen.
        within = [(place, tree) for place, tree in bared if place.startswith(path + "/")]
        if os.path.isdir(path):
            mode = b"mode=0711,size=4k" if within else b"mode=0000,size=4k"
            _mount("none", path, "tmpfs", _NO_SET_ID | _NO_DEVICES | _NO_EXEC, mode)
        else:
            _mount("/dev/null", path, None, _BIND)
        for place, tree in within:
            _place(tree, place)
            _restrict_mount(place, _READ_ONLY | _NO_SET_ID, deep=True)
        _restrict_mount(path, _READ_ONLY | _NO_SET_ID | _NO_DEVICES | _NO_EXEC)
    _mount("proc", "/proc", "proc", _NO_SET_ID | _NO_DEVICES | _NO_EXEC)
    os.chdir(words["workspace"])


def _copy(path: str) -> int:
    return _call(libc.syscall, _OPEN_TREE, _HERE, os.fsencode(path), _CLONE | os.O_CLOEXEC | _WHOLE)


def _place(tree: int, place: str) -> None:
    """Mount a copied tree; what lay in the host's /tmp needs a new place to be mounted on."""
    if not os.path.lexists(place):
        os.makedirs(os.path.dirname(place), exist_ok=True)
        if os.path.isdir(f"/proc/self/fd/{tree}"):
            os.mkdir(place)
        else:
            os.close(os.open(place, os.O_CREAT | os.O_WRONLY, 0o600))
    _call(libc.syscall, _MOVE_MOUNT, tree, b"", _HERE, os.fsencode(place), _EMPTY_PATH)
    os.close(tree)


def _mount(source: str | None, place: str, kind: str | None, flags: int, options: bytes | None = None) -> None:
    _call(libc.mount, source and os.fsencode(source), os.fsencode(place), kind and kind.encode(), flags, options)


def _restrict_mount(place: str, attributes: int, *, deep: bool = False) -> None:
    wanted = struct.pack("=QQQQ", attributes, 0, 0, 0)
    _call(libc.syscall, _SET_ATTRIBUTES, _HERE, os.fsencode(place), _WHOLE if deep else 0, wanted, len(wanted))


# ---- what may be done


def _give_up_rights(words: dict[str, Any]) -> None:
    """Give up every right; there is no way back."""
    # The Landlock rules: all that the kernel knows to refuse is refused, but for these paths.
    version = _call(libc.syscall, _CREATE_RULES, None, 0, 1)
    if version < _OLDEST_VERSION:
        sys.exit(f"Landlock here is version {version}, and {_OLDEST_VERSION} is needed (Linux 6.2)")
    everything = (_CONTROL_DEVICE << 1) - 1 if version >= _DEVICES_SINCE else _CONTROL_DEVICE - 1
    wanted = struct.pack("=QQQ", everything, 0, 3) if version >= _SCOPES_SINCE else struct.pack("=Q", everything)
    rules = _call(libc.syscall, _CREATE_RULES, wanted, len(wanted), 0)
    for path in (*words["system"], *words["readable"], *words["bared"]):
        _allow(rules, path, _EXECUTE | _READ | _LIST)
    _allow(rules, "/proc", _READ | _LIST)
    for path in _DEVICES:
        _allow(rules, path, _READ | _WRITE)
    for path in (words["workspace"], *_SHARED, *words["held"]):
        _allow(rules, path, everything & ~(_MAKE_DEVICES | _CONTROL_DEVICE))
    # Capabilities
    for capability in range(64):
        if libc.prctl(_DROP_BOUND, capability, 0, 0, 0) != 0:
            break
    _call(libc.prctl, _AMBIENT, 4, 0, 0, 0)
    _call(libc.capset, struct.pack("=Ii", 0x20080522, 0), bytes(24))
    # Landlock
    _call(libc.prctl, _NO_NEW_RIGHTS, 1, 0, 0, 0)
    _call(libc.syscall, _RESTRICT, rules, 0)
    os.close(rules)
    # The filter of system calls
    steps = bytes.fromhex(words["filter"])
    program = ctypes.create_string_buffer(steps, len(steps))
    header = struct.pack("@HP", len(steps) // 8, ctypes.addressof(program))
    _call(libc.prctl, _FILTER, 2, header, 0, 0)


def _allow(rules: int, path: str, access: int) -> None:
    try:
        descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    if not os.path.isdir(path):
        access &= _OF_A_FILE
    _call(libc.syscall, _ADD_RULE, rules, 1, struct.pack("=Qi", access, descriptor), 0)
    os.close(descriptor)


# ---- the kernel


def _call(function: Any, *arguments: Any) -> int:
    wide = (ctypes.c_long(each) if isinstance(each, int) else each for each in arguments)
    result: int = function(*wide)
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{getattr(function, '__name__', 'call')} {arguments[0]!r}: {os.strerror(number)}")
    return result


def _put(path: str, content: str) -> None:
    with open(path, "w", encoding="ascii") as file:
        file.write(content)


if __name__ == "__main__":
    main()
