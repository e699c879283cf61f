"""Programs of other projects that npm brings, installed once for all runs and all workers of a run."""

from __future__ import annotations

import fcntl
import re
import shutil
import subprocess
from pathlib import Path

import pytest


def installed(config: pytest.Config, *packages: str) -> Path:
    """The folder of modules with these packages; skips the test if they cannot be had."""
    if shutil.which("npm") is None:
        pytest.skip(f"{packages[0]} comes by npm, which is not on the path")
    assert config.cache is not None
    room = config.cache.mkdir(re.sub(r"[^\w.-]+", "-", packages[0]).strip("-"))
    with (room / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (room / "installed").exists():
            _install(room, packages)
            (room / "installed").touch()
    return room / "node_modules"


def _install(room: Path, packages: tuple[str, ...]) -> None:
    command = ["npm", "install", "--silent", "--no-audit", "--no-fund", "--prefix", str(room), *packages]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    except subprocess.TimeoutExpired:
        pytest.skip(f"{packages[0]} could not be installed: npm took more than 300 seconds")
    if done.returncode != 0:
        pytest.skip(f"{packages[0]} could not be installed: {done.stderr.strip()[-200:]}")
