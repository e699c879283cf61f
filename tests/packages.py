"""Which packages are installed, as far as a test wants it so."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import pytest


class File(NamedTuple):
    """A file of a package."""

    path: Path

    @property
    def name(self) -> str:
        return self.path.name

    def locate(self) -> Path:
        return self.path


def only_installed(
    monkeypatch: pytest.MonkeyPatch, versions: Mapping[str, str] | None = None, *, folder: Path | None = None
) -> None:
    """Let these packages be found in their versions, with the files of a folder, and no others."""
    known = versions or {}

    def version(name: str) -> str:
        if name not in known:
            raise importlib.metadata.PackageNotFoundError(name)
        return known[name]

    def files(name: str) -> list[File]:
        version(name)
        return [File(path) for path in sorted(folder.iterdir())] if folder is not None else []

    monkeypatch.setattr(importlib.metadata, "version", version)
    monkeypatch.setattr(importlib.metadata, "files", files)
