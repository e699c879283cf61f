"""A reload that comes too early, or goes wrong in a way that nobody thought of, and two daemons on one store."""

from __future__ import annotations

import logging
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import anyio
import pytest

from nacre.app.agents import Agents
from nacre.cli.serve import _reload
from nacre.errors import ConfigError
from tests.cli.daemons import PROGRAM, Models, configure, daemon, environment


class Broken:
    """Agents that cannot be changed."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    async def change(self, settings: Any) -> list[str]:
        raise self._error


@pytest.mark.parametrize("error", [ConfigError("no"), PermissionError("no"), RuntimeError("no")])
def test_a_reload_that_fails_is_logged(error: Exception, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        anyio.run(_reload, cast("Agents", Broken(error)))
    assert "the configuration cannot be used; all goes on as it was" in caplog.text


@pytest.fixture
def models(tmp_path: Path) -> Iterator[Models]:
    with Models(("main",)) as made:
        configure(tmp_path, f'[memory]\nenabled = false\n[ollama]\nhost = "{made.host("main")}"')
        yield made


@pytest.mark.usefixtures("models")
def test_a_reload_that_comes_before_it_is_up_ends_nothing(tmp_path: Path) -> None:
    tools = tmp_path / "store" / "workspace" / "tools"
    tools.mkdir(parents=True)
    (tools / "early.py").write_text("import os, signal\nos.kill(os.getpid(), signal.SIGHUP)\n")
    with daemon(tmp_path) as running:
        assert running.ends(signal.SIGTERM) < 5
        assert running.process.returncode == 0


@pytest.mark.usefixtures("models")
def test_a_second_daemon_on_the_same_store_is_told_of_the_first(tmp_path: Path) -> None:
    with daemon(tmp_path) as running:
        command = [*PROGRAM, "serve", "--port", "0"]
        done = subprocess.run(command, env=environment(tmp_path), capture_output=True, text=True, check=False)
        assert (done.returncode, f"is at work in another process ({running.process.pid})" in done.stderr) == (5, True)
        assert running.client.get("readyz").status_code == 200


@pytest.mark.usefixtures("models")
def test_a_daemon_that_cannot_listen_begins_nothing(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        command = [*PROGRAM, "serve", "--port", str(taken.getsockname()[1])]
        done = subprocess.run(command, env=environment(tmp_path), capture_output=True, text=True, check=False)
    assert (done.returncode, "cannot listen at '127.0.0.1'" in done.stderr) == (2, True)
    assert not (tmp_path / "store").exists()
