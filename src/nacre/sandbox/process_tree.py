"""One process tree from its start to its certain end, and its output on the way."""

from __future__ import annotations

import fcntl
import os
import re
import secrets
import select
import shutil
import signal
import stat
import subprocess
import tempfile
import time
import weakref
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack, suppress
from typing import Protocol

import anyio
from msgspec import Struct

from nacre.agent.ports import Finished
from nacre.errors import ToolError

# ---- what it needs on the host: a folder shown as /tmp, and a control group for root; removed after use

_SCRATCH_PREFIX = "nacre-sandbox-"
CGROUPS = ("/sys/fs/cgroup/pids", "/sys/fs/cgroup")
_CGROUP_PREFIX = "nacre-"
_REMOVE_TIMEOUT = 2.0
_REMOVE_PAUSE = 0.002


class Scratch:
    """A new folder; its lock ends with this process, however that ends."""

    def __init__(self) -> None:
        while True:
            self.path = tempfile.mkdtemp(prefix=_SCRATCH_PREFIX)
            self._lock = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            fcntl.flock(self._lock, fcntl.LOCK_EX)
            with suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(self._lock), os.stat(self.path, follow_symlinks=False)):
                    return
            os.close(self._lock)  # somebody swept it before it was locked

    def remove(self) -> None:
        """Remove it with all that is in it."""
        _remove_folder(self.path)
        os.close(self._lock)


def sweep() -> None:
    """Remove the scratch folders that agents of this user left when they were killed."""
    with os.scandir(tempfile.gettempdir()) as entries:
        paths = [entry.path for entry in entries if entry.name.startswith(_SCRATCH_PREFIX)]
    for path in paths:
        with suppress(OSError):
            found = os.lstat(path)
            if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
                continue
            os.chmod(path, stat.S_IRWXU)  # a command may have forbidden everything
            folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
                _remove_folder(path)
            finally:
                os.close(folder)


def _remove_folder(folder: str) -> None:
    """Remove a folder whose contents may forbid it."""
    os.chmod(folder, stat.S_IRWXU)
    shutil.rmtree(folder, ignore_errors=True)
    for path, _folders, _files in os.walk(folder):
        for entry in os.scandir(path):
            if entry.is_dir(follow_symlinks=False):
                os.chmod(entry.path, stat.S_IRWXU)
    shutil.rmtree(folder, ignore_errors=True)


def make_cgroup(max_processes: int) -> str | None:
    """A new control group, which bounds root's processes as RLIMIT_NPROC does not.

    None where none is needed, or none is available.
    """
    if os.geteuid() != 0:
        return None
    for place in CGROUPS:
        group = f"{place}/{_CGROUP_PREFIX}{os.getpid()}-{secrets.token_hex(8)}"
        with suppress(OSError):
            # The groups of agents that were killed are removed first.
            for name in os.listdir(place):
                owner = name.removeprefix(_CGROUP_PREFIX).partition("-")[0] if name.startswith(_CGROUP_PREFIX) else ""
                if owner.isdigit() and not os.path.isdir(f"/proc/{owner}"):
                    with suppress(OSError):
                        os.rmdir(f"{place}/{name}")
            os.mkdir(group)
            with suppress(OSError):
                # Not "w": where this is no control group, that would make a file.
                with open(f"{group}/pids.max", "r+", encoding="ascii") as file:
                    file.write(str(max_processes))
                return group
            remove_cgroup(group)
    return None


def remove_cgroup(group: str | None) -> None:
    """Remove a group, once the last of its dying processes is out of it."""
    until = time.monotonic() + _REMOVE_TIMEOUT
    while group is not None and os.path.isdir(group) and time.monotonic() < until:
        try:
            os.rmdir(group)
        except OSError:
            time.sleep(_REMOVE_PAUSE)


# ---- processes

_CHUNK = 1 << 16
_MAX_LEFT_IN_PIPE = 1 << 20
_START_TIMEOUT = 10.0
_BY_SIGNAL = range(129, 193)
_JOIN_CGROUP = 'echo $$ >"$0/cgroup.procs" && exec "$@"'


class Tree(Protocol):
    """Processes that began with one command."""

    @property
    def output(self) -> int:
        """The descriptor that gives what they print."""

    async def over(self) -> None:
        """Wait until the command has ended."""

    async def end(self) -> int:
        """End what is left, wait until it is gone, and give the command's status."""


class Plan(Struct, frozen=True, kw_only=True):
    """How a confinement starts; it is given `passed`, and reports on `news` its first process and how it ended."""

    command: Sequence[str]
    passed: Sequence[int]
    news: int
    processes: int


def memory_file(content: bytes) -> int:
    """A descriptor from which a program that we start can read `content`."""
    file = os.memfd_create("nacre", 0)
    os.write(file, content)
    os.lseek(file, 0, os.SEEK_SET)
    return file


async def follow(tree: Tree, *, timeout: float, max_bytes: int) -> Finished:  # noqa: ASYNC109 - a limit on the command
    """Wait for the command until its timeout; whatever happens to the caller, nothing of the tree is left."""
    content = bytearray()  # one byte more than is kept tells that there was more

    def keep(piece: bytes) -> None:
        content.extend(piece[: max_bytes + 1 - len(content)])

    async def drain() -> None:
        """Read to the end, past what is kept, so that nobody inside waits for a full pipe."""
        while True:
            await anyio.wait_readable(tree.output)
            piece = os.read(tree.output, _CHUNK)
            if not piece:
                return
            keep(piece)

    async with anyio.create_task_group() as group:
        group.start_soon(drain)
        try:
            with anyio.move_on_after(timeout) as limit:
                await tree.over()
        finally:
            with anyio.CancelScope(shield=True):
                status = await tree.end()
        group.cancel_scope.cancel()
    keep(_read_rest(tree.output))
    kept, is_cut = bytes(content[:max_bytes]), len(content) > max_bytes
    return Finished(status=status, output=kept, timed_out=limit.cancelled_caught, cut=is_cut)


def _read_rest(descriptor: int) -> bytes:
    """What the dead have left in the pipe, up to a limit: a survivor could fill it forever."""
    found = bytearray()
    with suppress(BlockingIOError):
        while len(found) < _MAX_LEFT_IN_PIPE and (piece := os.read(descriptor, _CHUNK)):
            found += piece
    return bytes(found)


class Cell:
    """A confinement that is ready, and waits for its one command; `made_for` says for which state of the files."""

    def __init__(self, make: Callable[[str], Plan], *, made_for: object) -> None:
        self.made_for = made_for
        with ExitStack() as undo:
            scratch = Scratch()
            undo.callback(scratch.remove)
            plan = make(scratch.path)
            group = make_cgroup(plan.processes)
            undo.callback(remove_cgroup, group)
            orders, self._orders = os.pipe()
            self.output, printed = os.pipe()
            undo.callback(_close, (self._orders, self.output, plan.news))
            try:
                self._process = subprocess.Popen(  # noqa: S603 - to run commands is what a sandbox is for
                    # In the control group from its first moment.
                    plan.command if group is None else ["/bin/sh", "-c", _JOIN_CGROUP, group, *plan.command],
                    stdin=orders,
                    stdout=printed,
                    stderr=printed,
                    pass_fds=plan.passed,
                    cwd="/",
                    env={"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C"},
                    start_new_session=True,
                )
            finally:
                _close((orders, printed, *plan.passed))
            undo.pop_all()
        self._news = plan.news
        self._heard = b""
        self._first: int | None = None
        self._status: int | None = None
        self._held = [self._news, self.output, self._orders]
        self._release = weakref.finalize(self, _release, self._process, self._held, (scratch, group), os.getpid())
        for ours in self._held:
            os.set_blocking(ours, False)

    def discard(self) -> None:
        """Give everything back, whatever state it is in; twice is harmless.

        It takes a while. Who holds this method holds the cell too: otherwise it would be done wherever the last
        reference to the cell ends, which is where its caller waits.
        """
        self._release()

    @property
    def alive(self) -> bool:
        """Whether it can still take a command."""
        return self._process.poll() is None

    async def order(self, script: bytes) -> None:
        """Begin the command; raises ToolError with what it printed if it could not start."""
        with anyio.move_on_after(_START_TIMEOUT):
            number = await self._read_news(b"child-pid")
            self._first = None if number is None else os.pidfd_open(number)
        if self._first is None:
            await self.end()
            printed = _read_rest(self.output)[:_CHUNK].decode(errors="replace").strip()
            raise ToolError(f"the sandbox did not start: {printed!r}")
        self._held.append(self._first)
        with suppress(BrokenPipeError):  # it has ended, and `over` finds that out
            while script:
                try:
                    script = script[os.write(self._orders, script) :]
                except BlockingIOError:
                    await anyio.wait_writable(self._orders)
        self._held.remove(self._orders)
        os.close(self._orders)

    async def over(self) -> None:
        self._status = await self._read_news(b"exit-code")

    async def end(self) -> int:
        if self._first is None:
            self._process.kill()
        else:
            # The first process of a PID namespace ends only when every other one in it has.
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._first, signal.SIGKILL)
            await anyio.wait_readable(self._first)
        status = 128 + signal.SIGKILL if self._status is None else self._status
        return 128 - status if status in _BY_SIGNAL else status

    async def _read_news(self, name: bytes) -> int | None:
        """The number that it reports under a name; None if it ended before it could."""
        while (found := _number(self._heard, name)) is None:
            try:
                piece = os.read(self._news, _CHUNK)
            except BlockingIOError:
                await anyio.wait_readable(self._news)
                continue
            if not piece:
                return None
            self._heard += piece
        return found


def _number(news: bytes, name: bytes) -> int | None:
    """The number under a name, once it is there to its last digit."""
    found = re.search(rb'"%s": *(\d+)\s*[,}]' % name, news)
    return int(found[1]) if found else None


def _release(
    process: subprocess.Popen[bytes], descriptors: Sequence[int], rest: tuple[Scratch, str | None], owner: int
) -> None:
    if os.getpid() != owner:
        return  # a child of ours was forked with it, and it is not the child's to end
    # Killed too early, bubblewrap leaves its first process waiting for it; so that one is killed first.
    news, heard = descriptors[0], b""
    # Not `select`, which takes no descriptor from 1024 on: a daemon may have as many.
    poll = select.poll()
    poll.register(news, select.POLLIN)
    while (first := _number(heard, b"child-pid")) is None:
        if not poll.poll(_START_TIMEOUT * 1000) or not (piece := os.read(news, _CHUNK)):
            break
        heard += piece
    if first is not None:
        with suppress(ProcessLookupError):
            os.kill(first, signal.SIGKILL)
    process.kill()
    process.wait()
    _close(descriptors)
    scratch, group = rest
    scratch.remove()
    remove_cgroup(group)


def _close(descriptors: Iterable[int]) -> None:
    for descriptor in descriptors:
        os.close(descriptor)
