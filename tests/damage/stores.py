"""Stores to be damaged, and what is left of them afterwards."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import nacre
from tests.damage.lines import is_whole

KEY = "demo"
NEXT = "written afterwards"


def write(root: Path, texts: Sequence[str], *, key: str = KEY) -> Path:
    """One session of plain messages, each acknowledged on its own; returns its log."""
    known = set((root / "sessions").glob("*.jsonl"))
    with nacre.open(root) as sessions:
        for text in texts:
            sessions.add_message(key, "user", text)
    (log,) = set((root / "sessions").glob("*.jsonl")) - known
    return log


def lines_of(log: Path) -> list[bytes]:
    """The lines of a log, newlines included."""
    return [line + b"\n" for line in log.read_bytes().split(b"\n")[:-1]]


def said(root: Path, key: str = KEY) -> list[str]:
    """Every message of a session, as a fresh process of ours reads it."""
    with nacre.open(root) as sessions:
        return [str(stored.message.content) for stored in sessions.transcript(key)]


def set_aside(root: Path) -> list[bytes]:
    """The damaged pieces in quarantine, as the bytes they were."""
    lines = [line for file in sorted(root.glob("quarantine/*")) for line in file.read_bytes().splitlines()]
    entries = [entry for line in lines if "settled" not in (entry := json.loads(line))]
    return [base64.b64decode(entry["b64"]) if "b64" in entry else entry["raw"].encode() for entry in entries]


@dataclass(frozen=True, slots=True, kw_only=True)
class Aftermath:
    """What the first look at a damaged store found, and what stood there once it had been written to again."""

    reported: bool
    loaded: list[str]
    history: list[str]
    transcript: list[str]
    set_aside: list[bytes]
    ok: bool
    """Nothing is wrong any more but what is in quarantine, and once that is settled nothing is."""

    @property
    def kept(self) -> list[str]:
        """The messages that survived, without the one written afterwards."""
        assert self.transcript[-1] == self.history[-1] == NEXT
        assert self.loaded == self.transcript[:-1]
        return self.loaded


def go_on(root: Path, key: str = KEY) -> Aftermath:
    """Verify, load, append, and look again."""
    with nacre.open(root) as sessions:
        first = sessions.verify(key)
        loaded = [str(stored.message.content) for stored in sessions.transcript(key)]
        sessions.add_message(key, "user", NEXT)
        waits = sessions.quarantine(key)
        left = {finding.kind for finding in sessions.verify(key).findings}
        sessions.discard(key)
        return Aftermath(
            reported=not first.ok or bool(waits),
            loaded=loaded,
            history=[str(message.content) for message in sessions.get_history(key)],
            transcript=[str(stored.message.content) for stored in sessions.transcript(key)],
            set_aside=set_aside(root),
            ok=left == ({"quarantine"} if waits else set()) and sessions.verify(key).ok,
        )


def assert_every_line_whole(log: Path) -> None:
    """The log can be read with any JSON tool again."""
    assert all(is_whole(line) for line in lines_of(log))
