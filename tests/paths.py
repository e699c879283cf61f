"""Where a test finds the files of a session, whatever they are called."""

from __future__ import annotations

import os
from pathlib import Path

from nacre.storage.paths import SessionPaths, stem


def log_of(root: str | os.PathLike[str], key: str) -> Path:
    """The active log of a key in a store, whatever its name; where it would be made, if there is none.

    On a simulated disk, where it would be made: `str(log_of(ROOT, "k"))`.
    """
    folder, name = Path(root) / "sessions", stem(key)
    found = [*folder.glob(f"{name}~*.jsonl"), *folder.glob(f"{name}.jsonl")]
    return found[0] if found else Path(SessionPaths.of(os.fspath(root), key).log)
