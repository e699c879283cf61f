"""What a test needs besides nacre: where it is missing the test is skipped, but in CI it fails."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def require(is_there: object, problem: str) -> None:
    """Skip the test unless what it needs is there; `problem` says what is missing and how to get it.

    `make test` installs everything, and CI runs `make test`: there a skip would hide that something was not tested.
    """
    if not is_there:
        end = pytest.fail if os.environ.get("CI") else pytest.skip
        end(problem)


def require_adapter(extra: str) -> Path:
    """The Python that has the framework of an adapter; without one the test is skipped."""
    python = ROOT / ".venv" / "adapters" / extra / "bin" / "python"
    require(python.exists(), f"{extra} is not installed: make .venv/adapters/{extra}/.installed")
    return python
