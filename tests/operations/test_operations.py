"""The commands and units of docs/operations.md, as an operator would use them."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import nacre
from tests.cli.daemons import PROGRAM, Models, configure, daemon, environment
from tests.operations.proxies import ROOT, block

PAGE = (ROOT / "docs" / "operations.md").read_text()
WRITER = """
import itertools, sys, nacre
with nacre.open(sys.argv[1]) as sessions:
    for n in itertools.count():
        print(sessions.add_message(f"web:{n % 5}", "user", f"message {n}"), flush=True)
"""


def commands(heading: str) -> list[str]:
    """The lines of the first shell block below a heading."""
    found = re.search(rf"^## {heading}\n.*?^```sh\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
    assert found is not None
    return found[1].splitlines()


def test_a_store_that_is_written_is_backed_up_and_restored(tmp_path: Path) -> None:
    store, copy = tmp_path / "home/.local/share/nacre", tmp_path / "copy"
    programs = tmp_path / "bin"
    programs.mkdir()
    for name, line in (("nacre", f'exec {" ".join(PROGRAM)} "$@"'), ("systemctl", "exit 0")):
        (programs / name).write_text(f"#!/bin/sh\n{line}\n")
        (programs / name).chmod(0o755)
    known = environment(tmp_path)
    known |= {"NACRE_HOME": "", "XDG_DATA_HOME": "", "PATH": f"{programs}:{known['PATH']}"}

    def run(lines: list[str]) -> None:
        script = "set -e\n" + "\n".join(lines).replace("/backup/nacre-2026-11-17", str(copy))
        done = subprocess.run(["sh", "-c", script], env=known, check=False, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr

    with subprocess.Popen([sys.executable, "-c", WRITER, str(store)], stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout is not None
        acknowledged = sum(1 for _ in range(500) if writer.stdout.readline())
        run(commands("Backup"))
        writer.kill()
    run(commands("Restore"))
    with nacre.open(store) as sessions:
        texts = {str(one.message.content) for at in range(5) for one in sessions.transcript(f"web:{at}")}
        assert texts >= {f"message {n}" for n in range(acknowledged)}
        assert sessions.verify().ok


def test_a_daemon_takes_up_a_restored_store(tmp_path: Path) -> None:
    with Models(("main",)) as models:
        configure(tmp_path, f'[memory]\nenabled = false\n[ollama]\nhost = "{models.host("main")}"\n')
        copy = tmp_path / "copy"
        with daemon(tmp_path) as served:
            assert served.client.post("api/sessions/k/messages", json={"content": "hello"}).status_code == 200
            command = [*PROGRAM, "sessions", "backup", str(copy), "--quiet"]
            assert subprocess.run(command, env=environment(tmp_path), check=False).returncode == 0
        with daemon(tmp_path, "--store", str(copy)) as served:
            assert served.client.get("readyz").status_code == 200
            assert served.client.post("api/sessions/k/messages", json={"content": "again"}).status_code == 200
            assert served.client.get("api/sessions").json()["items"][0]["messages"] == 4


def test_systemd_takes_the_unit_with_what_the_page_adds_to_it(tmp_path: Path) -> None:
    unit = tmp_path / "nacre.service"
    command = [*PROGRAM, "serve", "--unit", "--port", "8080"]
    unit.write_text(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    (tmp_path / "nacre.service.d").mkdir()
    added = tmp_path / "nacre.service.d" / "system.conf"
    added.write_text(block("ini"))
    try:
        assert verified(unit) == ""
    except FileNotFoundError:
        pytest.skip("systemd-analyze is not there")
    added.write_text(block("ini").replace("ProtectClock=yes", "ProtectClocks=yes"))
    assert "ProtectClocks" in verified(unit)


def verified(unit: Path) -> str:
    """What systemd says against a unit, of its own lines."""
    command = ["systemd-analyze", "verify", "--recursive-errors=no", str(unit)]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    return "\n".join(line for line in done.stderr.splitlines() if "nacre.service" in line)
