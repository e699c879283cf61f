"""A store for each test of the agent."""

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
