"""What a person typed before: one JSON string per line, for their eyes only."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from pathlib import Path

from nacre.user_files import state_folder

_MAX_LINES = 1000


class Recall:
    """The lines typed so far; without a path they are forgotten at the end."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self.lines = self._read()

    def add(self, line: str) -> None:
        """Remember a line; that it cannot be written down keeps nobody from talking."""
        if not line.strip() or self.lines[-1:] == [line]:
            return
        self.lines.append(line)
        if self._path is not None:
            try:
                _append(self._path, line)
            except OSError:
                self._path = None

    def _read(self) -> list[str]:
        if self._path is None:
            return []
        try:
            written = self._path.read_text("utf-8", "replace").splitlines()
        except OSError:
            return []
        lines: list[str] = []
        for line in written[-_MAX_LINES:]:
            with suppress(ValueError, RecursionError):
                if isinstance(found := json.loads(line), str) and found:
                    lines.append(found)
        if len(written) > 2 * _MAX_LINES:
            try:
                self._path.unlink()
                for line in lines:
                    _append(self._path, line)
            except OSError:
                self._path = None
        return lines


def place() -> Path:
    """Where the lines are kept."""
    return Path(state_folder()) / "chat-history"


def _append(path: Path, line: str) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o600)
    with os.fdopen(fd, "ab") as file:
        file.write(json.dumps(line).encode() + b"\n")
