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


class Operator:
    """Somebody who types what the page says, in a home of their own; nobody answers when they are asked."""

    def __init__(self, root: Path) -> None:
        self.store, self.copy = root / "home/.local/share/nacre", root / "copy"
        programs = root / "bin"
        programs.mkdir()
        for name, line in (("nacre", f'exec {" ".join(PROGRAM)} "$@"'), ("systemctl", "exit 0")):
            (programs / name).write_text(f"#!/bin/sh\n{line}\n")
            (programs / name).chmod(0o755)
        known = environment(root)
        self._known = {**known, "NACRE_HOME": "", "XDG_DATA_HOME": "", "PATH": f"{programs}:{known['PATH']}"}

    def run(self, lines: list[str]) -> str:
        """Run lines, each of which must succeed; gives what they print."""
        script = "set -e\n" + "\n".join(lines).replace("/backup/nacre-2026-11-17", str(self.copy))
        done = subprocess.run(
            ["sh", "-c", script], env=self._known, stdin=subprocess.DEVNULL, check=False, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        return done.stdout


def test_a_person_is_erased(tmp_path: Path) -> None:
    operator = Operator(tmp_path)
    with nacre.open(operator.store) as sessions:
        for _ in range(2):
            sessions.add_message("telegram:42", "user", "I am Ada, and I live in Lisbon")
            sessions.archive("telegram:42")
        sessions.add_message("telegram:42", "user", "in the trash: Ada")
    operator.run(["nacre sessions rm telegram:42", "nacre memory add 'Ada lives in Lisbon.'"])
    with nacre.open(operator.store) as sessions:
        sessions.add_message("telegram:42", "user", "Ada again")
        sessions.add_message("irc:other", "user", "a group in which Ada is")
    found = operator.run(commands("Erasing a person")).splitlines()
    assert [line.count("/sessions/irc-other") for line in found if line.startswith(str(operator.store))] == [1]


def test_a_store_that_is_written_is_backed_up_and_restored(tmp_path: Path) -> None:
    operator = Operator(tmp_path)
    store, run = operator.store, operator.run

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
