"""Sessions of which a file beside the log is damaged."""

from __future__ import annotations

from pathlib import Path

import nacre

FOLDERS = ["cold", "base", "blobs"]


def spoil(root: Path, folder: str) -> str:
    """Make a session of which a file beside the log is damaged; returns its key."""
    with nacre.open(root) as sessions:
        sessions.add_message("k", "user", "x" * 70_000)
        for at in range(3000):
            sessions.add_message("k", "user", f"message {at} " * 9)
        if folder == "cold":
            sessions.truncate_history("k", 1)
            sessions.save("k")
        elif folder == "base":
            sessions.fork("k", "child")
    for path in (root / folder).iterdir():
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 4
        path.write_bytes(data)
        if folder != "blobs" or path.stat().st_nlink > 1:
            break
    return "child" if folder == "base" else "k"
