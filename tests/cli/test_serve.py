"""nacre serve: it starts, says where it is, asks for its token, and ends in order when it is told to."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest

PROGRAM = [sys.executable, "-m", "nacre.cli"]


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """A home of its own, and a model whose server is never asked."""
    ours = {"NACRE_HOME": "store", "XDG_CONFIG_HOME": "config", "XDG_CACHE_HOME": "cache", "HOME": "home"}
    (tmp_path / "home").mkdir()
    places = {name: str(tmp_path / folder) for name, folder in ours.items()}
    model = {"NACRE_AGENT_PROVIDER": "openai", "NACRE_AGENT_MODEL": "m", "OPENAI_API_KEY": "k"}
    return {**os.environ, **places, **model, "NACRE_SERVE_TOKEN": "a-token-that-is-long-enough-for-all"}


@pytest.fixture
def daemon(
    environment: dict[str, str], tmp_path: Path, request: pytest.FixtureRequest
) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A daemon; the words before its command may be given."""
    command = [*getattr(request, "param", []), *PROGRAM, "serve", "--port", "0", "--json"]
    with subprocess.Popen(
        command, env=environment, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as running:
        assert running.stdout is not None
        yield running, json.loads(running.stdout.readline())["url"]
        running.kill()


def test_it_serves_those_who_have_the_token(daemon: tuple[subprocess.Popen[str], str]) -> None:
    _, url = daemon
    assert httpx.get(f"{url}api/sessions").status_code == 401
    allowed = {"Authorization": "Bearer a-token-that-is-long-enough-for-all"}
    assert httpx.get(f"{url}api/sessions", headers=allowed).json()["items"] == []


@pytest.mark.parametrize("daemon", [["sh", "-c", 'ulimit -n 128; exec "$@"', "sh"]], indirect=True, ids=["few files"])
def test_many_connections_leave_files_for_everybody_else(daemon: tuple[subprocess.Popen[str], str]) -> None:
    running, url = daemon
    address = ("127.0.0.1", httpx.URL(url).port)
    with ExitStack() as idle:
        for _ in range(300):
            # A line that is not answered would be tried again by the system, a second later.
            line = idle.enter_context(socket.socket())
            line.settimeout(0)
            line.connect_ex(address)
        for _ in range(5):
            # It writes a page to the store.
            assert httpx.get(f"{url}readyz", timeout=60).status_code == 200
    running.send_signal(signal.SIGTERM)
    _, errors = running.communicate(timeout=20)
    assert "Too many open files" not in errors


@pytest.mark.parametrize("told", [signal.SIGTERM, signal.SIGINT])
def test_it_ends_in_order_when_it_is_told_to(daemon: tuple[subprocess.Popen[str], str], told: signal.Signals) -> None:
    running, _ = daemon
    running.send_signal(told)
    _, errors = running.communicate(timeout=20)
    assert (running.returncode, "Traceback" in errors) == (0, False)


def test_elsewhere_than_on_loopback_it_wants_a_token_that_somebody_chose(environment: dict[str, str]) -> None:
    del environment["NACRE_SERVE_TOKEN"]
    command = [*PROGRAM, "serve", "--host", "192.0.2.1"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "needs a token of your choice" in done.stderr


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--prefix", "nacre/"), "--prefix is a path such as /nacre"),
        (("--prefix", "/api"), "begins like a path of nacre's own"),
    ],
)
def test_a_prefix_that_cannot_be_one_is_refused_before_anything_starts(
    environment: dict[str, str], tmp_path: Path, words: tuple[str, ...], told: str
) -> None:
    command = [*PROGRAM, "serve", "--port", "0", *words]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, told in done.stderr) == (2, True)
    assert not (tmp_path / "store").exists()
    checked = subprocess.run([*command, "--check"], env=environment, capture_output=True, text=True, check=False)
    assert (checked.returncode, told in checked.stdout + checked.stderr) == (2, True)


def test_the_prefix_of_the_configuration_is_in_the_address_that_is_told(
    environment: dict[str, str], tmp_path: Path
) -> None:
    environment["NACRE_SERVE_PREFIX"] = "/nacre"
    with subprocess.Popen(
        [*PROGRAM, "serve", "--port", "0", "--json"], env=environment, cwd=tmp_path, stdout=subprocess.PIPE, text=True
    ) as running:
        assert running.stdout is not None
        url = json.loads(running.stdout.readline())["url"]
        try:
            assert url.endswith("/nacre/")
            assert httpx.get(f"{url}healthz").status_code == 200
        finally:
            running.kill()
