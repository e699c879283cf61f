"""The programs of PostgreSQL on this machine, and how tests start them: on loopback, and never as root."""

from __future__ import annotations

import atexit
import functools
import os
import pwd
import random
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.postgres import guard

PATIENT = 60.0
"""How long to wait for what must come, in seconds."""
HOST = "127.0.0.1"
_UNPRIVILEGED = "nobody"
# The kernel gives none of them to an outgoing connection, which would take the port of a server that is down.
_PORTS = range(20_000, 32_000)


class ProgramFailed(Exception):
    """A program ended with an error; the message has its output."""


def find_postgres() -> Path:
    """The folder with the programs of the newest PostgreSQL server that runs here."""
    on_path = shutil.which("initdb")
    folders = {Path(on_path).resolve().parent} if on_path else set()
    folders |= set(Path("/usr/lib/postgresql").glob("*/bin"))
    versions = {folder: _version(folder / "postgres") for folder in folders if (folder / "initdb").exists()}
    found = [folder for folder, version in versions.items() if version]
    if not found:
        pytest.fail("PostgreSQL is not installed: run `make tools` as root, or `apt-get install postgresql`")
    return max(found, key=lambda folder: versions[folder])


def find_pgbouncer() -> tuple[str, tuple[int, ...]]:
    """PgBouncer and its version."""
    program = shutil.which("pgbouncer") or shutil.which("pgbouncer", path="/usr/sbin")
    version = _version(Path(program)) if program else ()
    if not program or not version:
        pytest.fail("PgBouncer is not installed: run `make tools` as root, or `apt-get install pgbouncer`")
    return program, version


@functools.cache
def _version(program: Path) -> tuple[int, ...]:
    """The version of a program of PostgreSQL; empty if it does not run."""
    try:
        said = run([str(program), "--version"], Path("/"))
    except (OSError, ProgramFailed):
        return ()
    match = re.search(r"(?:\(PostgreSQL\)|PgBouncer) (\d+)(?:\.(\d+))?", said)
    return tuple(int(part or 0) for part in match.groups()) if match else ()


def run(command: Sequence[str], folder: Path) -> str:
    """Run a program to its end, as the user of the servers; returns its output."""
    done = subprocess.run(
        command,
        cwd=folder,
        env=_environment(folder),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        **_as_user(),
    )
    if done.returncode:
        raise ProgramFailed(f"{' '.join(command)} failed with status {done.returncode}:\n{done.stdout}")
    return str(done.stdout)


def start(command: Sequence[str], folder: Path) -> subprocess.Popen[bytes]:
    """Start a program as the user of the servers; its output is added to the file `log` of its folder."""
    with (folder / "log").open("ab") as log:
        return subprocess.Popen(
            command,
            cwd=folder,
            env=_environment(folder),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            # What a terminal sends to the tests, as Ctrl-C, is not for the servers.
            start_new_session=True,
            **_as_user(),
        )


def make_folder(name: str) -> Path:
    """A new folder for a server, which belongs to its user; it is removed when the test process is gone."""
    folder = Path(tempfile.mkdtemp(prefix=f"{name}-", dir=_guarded_folder()))
    give_to_user(folder)
    return folder


def give_to_user(path: Path) -> None:
    """Let a file or folder belong to the user of the servers."""
    if os.geteuid() == 0:
        user = pwd.getpwnam(_UNPRIVILEGED)
        os.chown(path, user.pw_uid, user.pw_gid)


def free_port() -> int:
    """A port of loopback that is free now."""
    for port in random.SystemRandom().sample(_PORTS, k=100):
        with socket.socket() as found, suppress(OSError):
            found.bind((HOST, port))
            return port
    pytest.fail("no free port was found on loopback")


def wait_until(condition: Callable[[], bool], what: str, *, log: Callable[[], str] = str) -> None:
    """Wait until something holds; if it does not, the test fails with the log."""
    deadline = time.monotonic() + PATIENT
    while not condition():
        if time.monotonic() > deadline:
            pytest.fail(f"{what} did not happen within {PATIENT:.0f} s\n{log()}")
        time.sleep(0.01)


@functools.cache
def _guarded_folder() -> Path:
    """The folder of all servers of this test process, and the process that cleans up after it."""
    # Root's own temporary directory need not be open to other users.
    root = Path(tempfile.mkdtemp(prefix="nacre-postgres-", dir="/tmp" if os.geteuid() == 0 else None)).resolve()
    root.chmod(0o755)
    command = [sys.executable, "-I", guard.__file__, str(root), str(os.getpid())]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True)

    def end() -> None:
        assert process.stdin is not None
        process.stdin.close()
        process.wait()

    atexit.register(end)
    return root


def _environment(folder: Path) -> dict[str, str]:
    # Nothing of the caller's: variables as PGPORT would change what the programs do.
    return {"PATH": "/usr/bin:/bin", "HOME": str(folder), "LC_ALL": "C.UTF-8", "TZ": "UTC"}


def _as_user() -> dict[str, Any]:
    if os.geteuid() != 0:
        return {}
    user = pwd.getpwnam(_UNPRIVILEGED)
    return {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
