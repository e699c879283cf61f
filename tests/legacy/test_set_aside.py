"""What was no message in an earlier session's file is set aside once."""

from __future__ import annotations

from pathlib import Path

import pytest

import nacre
from nacre.legacy.documents import Bad
from nacre.legacy.formats import set_aside
from nacre.storage.paths import SessionPaths
from nacre.storage.system import System


@pytest.mark.parametrize("start", [0, 7])
def test_what_a_person_has_settled_is_not_set_aside_again(root: Path, start: int) -> None:
    with nacre.open(root) as sessions:
        sessions.add_message("k", "user", "a")
        place, (listed,) = SessionPaths.of(str(root), "k"), sessions.list()
        bad = [Bad(raw=b"no message", start=start, reason="not a message")]
        set_aside(System(), place, listed.generation, bad)
        assert [entry.text for entry in sessions.quarantine("k")] == ["no message"]
        sessions.discard("k")
        set_aside(System(), place, listed.generation, bad)
        assert sessions.quarantine("k") == []
