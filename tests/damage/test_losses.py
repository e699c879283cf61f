"""What cannot be read because a file beside the log is damaged: the library warns of it until it is settled."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

import nacre
from tests.spoilt import FOLDERS, spoil


@pytest.mark.parametrize("folder", FOLDERS)
def test_who_reads_everything_is_told_once_until_it_is_settled(
    root: Path, folder: str, caplog: pytest.LogCaptureFixture
) -> None:
    key = spoil(root, folder)
    with caplog.at_level(logging.WARNING), nacre.open(root) as sessions:
        for _ in range(3):
            sessions.transcript(key)
        (said,) = caplog.messages
        assert said.startswith(f"session {key!r}: ")
        assert said.endswith(f"cannot be read; `nacre sessions verify {key}` shows where")
        sessions.repair(key)
        sessions.discard(key)
    caplog.clear()
    with caplog.at_level(logging.WARNING), nacre.open(root) as sessions:
        sessions.transcript(key)
    assert caplog.messages == []
