"""A person's machine for everyday scripts: a home directory, folders to work in, a model, and the real `nacre`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import nacre as library
from tests.everyday.model import Model

PATIENCE = 120
"""Seconds until a command counts as hanging; a busy machine may take long."""


class Done:
    """A command that has ended: exit code, what it printed, and that as JSON."""

    def __init__(self, process: subprocess.CompletedProcess[str]) -> None:
        self.code, self.out, self.err = process.returncode, process.stdout, process.stderr

    def __repr__(self) -> str:
        return f"exit {self.code}\n--- stdout\n{self.out}\n--- stderr\n{self.err}"

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def lines(self) -> list[Any]:
        """Every line of standard output as JSON."""
        return [json.loads(line) for line in self.out.splitlines()]


class Person:
    """Somebody with a home directory of their own, who types commands; memory is on, as it is by default."""

    def __init__(self, home: Path, model: Model) -> None:
        self.home = home
        self.model = model
        self.store = home / ".local/share/nacre"
        self.env = {
            "PATH": os.environ["PATH"],
            "HOME": str(home),
            "TERM": "xterm-256color",
            "LANG": "C.UTF-8",
            "OLLAMA_HOST": model.host,
            **{name: os.environ[name] for name in ("PYTHONPATH",) if name in os.environ},
        }

    def folder(self, name: str, **files: str) -> Path:
        """A folder in the home directory; keyword arguments are files, as `readme="text"`."""
        place = self.home / name
        place.mkdir(parents=True, exist_ok=True)
        for file, text in files.items():
            (place / file).parent.mkdir(parents=True, exist_ok=True)
            (place / file).write_text(text)
        return place

    def config(self, text: str) -> None:
        """Write the configuration file."""
        file = self.home / ".config/nacre/config.toml"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    def command(self, *words: str) -> list[str]:
        """How `nacre` is started."""
        return [sys.executable, "-m", "nacre.cli", *words]

    def nacre(self, *words: str, at: Path | None = None, stdin: str | None = None, **env: str) -> Done:
        """Run a command to its end, in a folder; nothing is on its standard input unless given."""
        given: dict[str, Any] = {"stdin": subprocess.DEVNULL} if stdin is None else {"input": stdin}
        return Done(
            subprocess.run(
                self.command(*words),
                check=False,
                capture_output=True,
                text=True,
                timeout=PATIENCE,
                cwd=at or self.home,
                env={**self.env, **env},
                **given,
            )
        )

    def trust(self, folder: Path) -> Path:
        """Trust a folder with `nacre trust`; gives the folder."""
        done = self.nacre("trust", str(folder))
        assert done.code == 0, done
        return folder

    def ask(self, *words: str, at: Path | None = None, **env: str) -> dict[str, Any]:
        """Ask once with `nacre chat --json`; gives the document, and fails if the command did."""
        done = self.nacre("chat", "--json", *words, at=at, **env)
        assert done.code == 0, done
        document: dict[str, Any] = done.json
        return document

    def start(self, *words: str, at: Path | None = None, **env: str) -> subprocess.Popen[str]:
        """Start a command and leave it running; whoever starts it ends it."""
        return subprocess.Popen(
            self.command(*words),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=at or self.home,
            env={**self.env, **env},
        )

    def sessions(self) -> library.Sessions:
        """The store, opened by the library; close it."""
        return library.open(self.store)

    def said(self, key: str) -> list[str]:
        """The texts of every message of a session ever, oldest first."""
        with self.sessions() as sessions:
            return [str(stored.message.content) for stored in sessions.transcript(key)]


@pytest.fixture
def model() -> Iterator[Model]:
    """A model server that answers with what was said."""
    with Model() as server:
        yield server


@pytest.fixture
def person(tmp_path: Path, model: Model) -> Person:
    """Somebody who sits down in front of nacre for the first time, with Ollama running."""
    home = tmp_path / "home"
    home.mkdir()
    return Person(home, model)
