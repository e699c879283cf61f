"""What the tests of the index share: a store, and an index of it in a cache of its own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import nacre
from nacre import Sessions
from nacre.history.list_page import Wanted
from nacre.index import Index
from nacre.messages import SessionInfo


@pytest.fixture
def cache(root: Path) -> Path:
    """Where the index of one test is kept."""
    return root.parent / "cache"


@pytest.fixture
def sessions(root: Path) -> Iterator[Sessions]:
    with nacre.open(root) as opened:
        yield opened


@pytest.fixture
def index(root: Path, cache: Path, sessions: Sessions) -> Iterator[Index]:
    made = Index(str(root), cache=str(cache))
    yield made
    made.close()


def infos(index: Index, *, archived: bool = False) -> list[SessionInfo]:
    """The active or the archived sessions, internal ones too, newest first."""
    return index.page(Wanted(which="archived" if archived else "active", internal=True)).items
