"""Run every attempt in one sandbox, as one user, and print what came of each as JSON."""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import anyio

from nacre.agent.ports import Sandbox
from nacre.sandbox import Kind, Limits, find
from nacre.sandbox.policy import PROGRAMS, linked_folders
from tests.sandbox.attempts import ALONE

PYTHON = "/usr/bin/python3"
HERE = Path(__file__).parent
LIMITS = Limits(cpu=20, memory=1 << 30, file=16 << 20, processes=320)


def main() -> None:
    kind, user, names = sys.argv[1], int(sys.argv[2]), sys.argv[3].split(",")
    (kind,) = (each for each in get_args(Kind) if each == kind)
    with tempfile.TemporaryDirectory() as anywhere:
        anyio.run(_load_everything, kind, anywhere)
    _become(user)
    with _world() as (base, world):
        sys.stdout.write(json.dumps(anyio.run(_run_all, kind, base, world, names)))


async def _load_everything(kind: Kind, folder: str) -> None:
    """Import what is imported late, while the interpreter's files can still be read."""
    await _attempts(await _sandbox(kind, Path(folder)), ["none"], {})


def _become(user: int) -> None:
    """Be that user, and as open to others of the same user as a process usually is."""
    if user != os.getuid():
        os.setgroups([])
        os.setgid(user)
        os.setuid(user)
    ctypes.CDLL(None).prctl(4, 1, 0, 0, 0)
    if not os.access(sys.executable, os.X_OK):
        sys.executable = PYTHON


@contextlib.contextmanager
def _world() -> Iterator[tuple[Path, dict[str, Any]]]:
    """A place with things to steal and to break, and servers to talk to."""
    base = Path(tempfile.mkdtemp(prefix="campaign-", dir="/var/tmp"))
    for folder in (
        "outside",
        "workspace/deep/er/store",
        "workspace/fixed",
        "workspace/frozen",
        "workspace/kept/skills",
    ):
        (base / folder).mkdir(parents=True)
    for name in (
        "outside/secret",
        "outside/victim",
        "outside/removable",
        "workspace/deep/er/store/log",
        "workspace/config",
        "workspace/fixed/file",
        "workspace/frozen/file",
        "workspace/kept/log",
        "workspace/kept/skills/script",
    ):
        (base / name).write_text("SECRET\n")
    shutil.copy(HERE / "attempts.py", base / "workspace")
    secret = ctypes.create_string_buffer(b"SECRET")
    segment = ctypes.CDLL(None).shmget(0, 4096, 0o1600)
    victim = subprocess.Popen(
        ["sh", "-c", "read x", f"nacre-victim-{os.getpid()}"], stdin=subprocess.PIPE, cwd=base / "outside"
    )
    with contextlib.ExitStack() as stack:
        yield (
            base,
            {
                "outside": str(base / "outside"),
                "parent": os.getpid(),
                "victim": victim.pid,
                "address": ctypes.addressof(secret),
                "shared": segment,
                "installed": _installed(),
                **_servers(stack, base),
            },
        )
    victim.kill()
    victim.communicate()
    ctypes.CDLL(None).shmctl(segment, 0, None)
    shutil.rmtree(base)


def _installed() -> list[str]:
    """What is in /opt and no program is linked from."""
    there = {str(path) for path in Path("/opt").iterdir()} if Path("/opt").is_dir() else set()
    return [Path(path).name for path in sorted(there - set(linked_folders(PROGRAMS, "/opt")))]


def _servers(stack: contextlib.ExitStack, base: Path) -> dict[str, Any]:
    abstract = f"nacre-{os.getpid()}"
    tcp = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
    udp = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
    udp.bind(("127.0.0.1", 0))
    path = str(base / "outside" / "socket")
    datagrams = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM))
    datagrams.bind(str(base / "workspace" / "log.socket"))
    for name in (path, str(base / "workspace" / "agent.socket"), "\0" + abstract):
        listener = stack.enter_context(socket.socket(socket.AF_UNIX))
        listener.bind(name)
        listener.listen(8)
    threading.Thread(target=_answer, args=(udp,), daemon=True).start()
    return {"tcp": tcp.getsockname()[1], "udp": udp.getsockname()[1], "unix": path, "abstract": abstract}


def _answer(udp: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while True:
            udp.sendto(b"pong", udp.recvfrom(16)[1])


async def _sandbox(kind: Kind, workspace: Path) -> Sandbox:
    hidden = [str(workspace / name) for name in ("deep/er/store", "config", "kept") if (workspace / name).exists()]
    frozen = [str(workspace / name) for name in ("fixed/file", "frozen")]
    skills = [str(workspace / "kept" / "skills")]
    found = await find(str(workspace), kind=kind, hidden=hidden, frozen=frozen, skills=skills, limits=LIMITS)
    if found.sandbox is None:
        sys.exit(found.why)
    return found.sandbox


async def _run_all(kind: Kind, base: Path, world: dict[str, Any], names: list[str]) -> dict[str, str]:
    sandbox = await _sandbox(kind, base / "workspace")
    results = await _attempts(sandbox, names, world)
    return {**results, **_traces(base)} if kind != "off" else results


async def _attempts(sandbox: Sandbox, names: list[str], world: dict[str, Any]) -> dict[str, str]:
    """What each attempt said, by its name; those that use everything up have a call of their own."""
    calls = [[name] for name in names if name in ALONE]
    calls.append([name for name in names if name not in ALONE])
    lines: list[str] = []
    for together in calls:
        command = [PYTHON, "attempts.py", ",".join(together), json.dumps(world)]
        finished = await sandbox.run(command, timeout=30, max_bytes=1 << 20)
        lines += finished.output.decode(errors="replace").splitlines()
    return dict(line.partition(": ")[::2] for line in lines)


def _traces(base: Path) -> dict[str, str]:
    """What the attempts have left, seen from outside."""
    seen = {}
    outside, room = base / "outside", base / "workspace"
    left = sorted(path.name for path in outside.iterdir())
    if left != ["removable", "secret", "socket", "victim"] or (outside / "victim").read_text() != "SECRET\n":
        seen["the outside"] = f"ESCAPED: {left}"
    if [path.name for path in (room / "deep/er/store").iterdir()] != ["log"]:
        seen["the store"] = "ESCAPED"
    if {(room / name).read_text() for name in ("deep/er/store/log", "config")} != {"SECRET\n"}:
        seen["the hidden files"] = "ESCAPED"
    if [path.name for path in sorted((room / "kept").rglob("*"))] != ["log", "skills", "script"]:
        seen["the skills"] = "ESCAPED"
    if {(room / "kept" / name).read_text() for name in ("log", "skills/script")} != {"SECRET\n"}:
        seen["the files of skills"] = "ESCAPED"
    if [path.read_text() for name in ("fixed", "frozen") for path in (room / name).iterdir()] != ["SECRET\n"] * 2:
        seen["the frozen files"] = "ESCAPED"
    if any(path.lstat().st_mode & 0o6000 for path in room.iterdir()):
        seen["the modes"] = "ESCAPED"
    with (room / "lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            seen["the lock"] = "ESCAPED: a process is left"
    return seen


if __name__ == "__main__":
    main()
