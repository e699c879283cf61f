"""A store and a workspace for each test of memory."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import nacre
from nacre.sessions import Sessions


@pytest.fixture
def sessions(root: Path) -> Iterator[Sessions]:
    with nacre.open(root) as opened:
        yield opened


@pytest.fixture
def folder(root: Path) -> Path:
    return root / "workspace"
