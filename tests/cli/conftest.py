"""The command line in a place of its own: run in this process, or as a process where pipes and signals matter."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import nacre as library
from nacre.cli import main
from tests.paths import log_of


class Result(NamedTuple):
    """What a run gave back."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


class Terminal:
    """Somebody at a keyboard, with one answer."""

    def __init__(self, answer: str) -> None:
        self._answer = answer

    def isatty(self) -> bool:
        return True

    def readline(self) -> str:
        return self._answer


class Nacre:
    """The command `nacre` on a store of its own."""

    def __init__(self, root: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.root = root
        self._capsys = capsys

    def __call__(self, *words: str) -> Result:
        self._capsys.readouterr()
        code = main(words)
        captured = self._capsys.readouterr()
        return Result(code, captured.out, captured.err)

    def run(self, *words: str, **options: Any) -> subprocess.CompletedProcess[str]:
        """Run it as a process of its own."""
        command = [sys.executable, "-m", "nacre.cli", *words]
        return subprocess.run(command, check=False, capture_output=True, text=True, timeout=60, **options)

    def sessions(self) -> library.Sessions:
        return library.open(self.root)

    def fill(self, *keys: str, title: str = "") -> None:
        """Make sessions of two messages each."""
        with self.sessions() as sessions:
            for key in keys:
                sessions.add_message(key, "user", f"hello from {key}")
                sessions.add_message(key, "assistant", "hi")
                if title:
                    sessions.set_meta(key, title=title)
                # Records have their time in milliseconds: the next session is newer.
                now = time.time_ns() // 10**6
                while time.time_ns() // 10**6 == now:
                    pass

    def files(self) -> dict[str, bytes]:
        """Every file of the store with its bytes."""
        found = sorted(
            path for path in self.root.rglob("*") if path.is_file() and path.suffix != ".lock" and path.name != "marks"
        )
        return {str(path.relative_to(self.root)): path.read_bytes() for path in found}

    def damage(self, key: str) -> None:
        """Flip a byte in the first message of a session."""
        log = log_of(self.root, key)
        data = bytearray(log.read_bytes())
        data[data.index(b"hello")] ^= 1
        log.write_bytes(data)


@pytest.fixture
def nacre(
    root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Iterator[Nacre]:
    """The command on an empty store."""
    for name in [name for name in os.environ if name.startswith("NACRE_")]:
        monkeypatch.delenv(name)
    for name in ("NO_COLOR", "FORCE_COLOR", "CLICOLOR_FORCE", "COLUMNS", "PAGER"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("NACRE_HOME", str(root))
    for name in ("cache", "config", "data", "state"):
        monkeypatch.setenv(f"XDG_{name.upper()}_HOME", str(tmp_path / name))
    return_to = Path.cwd()
    yield Nacre(root, capsys)
    os.chdir(return_to)
