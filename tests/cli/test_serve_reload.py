"""A reload that comes too early, or goes wrong in a way that nobody thought of, and two daemons on one store."""

from __future__ import annotations

import logging
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import anyio
import pytest

from nacre.cli.commands.serve import _reload
from nacre.config import Settings
from nacre.errors import ConfigError
from nacre.runtime.agents import Agents
from tests.cli.daemons import PATIENT, PROGRAM, Models, configure, daemon, environment


class Broken:
    """Agents that cannot be changed."""

    settings = Settings({}, {})

    def __init__(self, error: Exception) -> None:
        self._error = error

    async def change(self, settings: Any) -> list[str]:
        raise self._error


def test_a_reload_says_that_another_store_needs_a_restart(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Willing(Broken):
        async def change(self, settings: Any) -> list[str]:
            self.settings = settings
            return []

    monkeypatch.setenv("NACRE_STORE_URL", "postgresql://127.0.0.1/db")
    with caplog.at_level(logging.WARNING):
        anyio.run(_reload, cast("Agents", Willing(ConfigError(""))))
    assert "store.url has changed; the daemon keeps its store until it is restarted" in caplog.text


@pytest.mark.parametrize("error", [ConfigError("no"), PermissionError("no"), RuntimeError("no")])
def test_a_reload_that_fails_is_logged(error: Exception, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        anyio.run(_reload, cast("Agents", Broken(error)))
    assert "the configuration is not valid; nothing was changed" in caplog.text


@pytest.fixture
def models(tmp_path: Path) -> Iterator[Models]:
    with Models(("main",)) as made:
        configure(tmp_path, f'[memory]\nenabled = false\n[ollama]\nhost = "{made.host("main")}"')
        yield made


@pytest.mark.usefixtures("models")
def test_a_reload_that_comes_before_it_is_up_ends_nothing(tmp_path: Path) -> None:
    tools = tmp_path / "store" / "home" / "tools"
    tools.mkdir(parents=True)
    (tools / "early.py").write_text("import os, signal\nos.kill(os.getpid(), signal.SIGHUP)\n")
    with daemon(tmp_path) as running:
        assert running.ends(signal.SIGTERM) < 5
        assert running.process.returncode == 0


def test_a_daemon_is_not_ready_while_an_agent_does_not_start_after_a_reload(models: Models, tmp_path: Path) -> None:
    key = tmp_path / "key"

    def set_up(steps: int) -> None:
        clerk = f'[agents.clerk]\nprovider = "openai"\nmodel = "m"\nmax_steps = {steps}'
        ollama = f'[memory]\nenabled = false\n[ollama]\nhost = "{models.host("main")}"'
        configure(tmp_path, f'{ollama}\n{clerk}\n[agents.clerk.openai]\nkey_file = "{key}"')

    def bring() -> None:
        file = key.with_suffix(".new")
        file.write_text("secret")
        file.chmod(0o600)
        file.rename(key)

    def until_ready(status: int) -> Any:
        deadline = time.monotonic() + PATIENT
        while (answer := running.client.get("readyz")).status_code != status:
            assert time.monotonic() < deadline
            time.sleep(0.1)
        return answer.json()

    set_up(2)
    bring()
    with daemon(tmp_path) as running:
        assert until_ready(200)["ready"]
        key.unlink()
        set_up(3)
        running.process.send_signal(signal.SIGHUP)
        found = until_ready(503)
        assert (found["failing"], found["reasons"]) == (["agents"], ["agent 'clerk' could not be started"])
        assert running.client.get("agents/clerk/api/sessions").status_code == 429
        assert running.client.get("api/sessions").status_code == 200
        bring()
        until_ready(200)
        assert running.client.get("agents/clerk/api/sessions").status_code == 200


@pytest.mark.usefixtures("models")
def test_a_second_daemon_on_the_same_store_is_told_of_the_first(tmp_path: Path) -> None:
    with daemon(tmp_path) as running:
        command = [*PROGRAM, "serve", "--port", "0"]
        done = subprocess.run(command, env=environment(tmp_path), capture_output=True, text=True, check=False)
        assert (done.returncode, f"is in use by another process ({running.process.pid})" in done.stderr) == (5, True)
        assert running.client.get("readyz").status_code == 200


@pytest.mark.usefixtures("models")
def test_a_daemon_that_cannot_listen_begins_nothing(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        command = [*PROGRAM, "serve", "--port", str(taken.getsockname()[1])]
        done = subprocess.run(command, env=environment(tmp_path), capture_output=True, text=True, check=False)
    assert (done.returncode, "cannot listen at '127.0.0.1'" in done.stderr) == (2, True)
    assert not (tmp_path / "store").exists()
