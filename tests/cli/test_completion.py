"""Completion in the shells, and what they ask for."""

from __future__ import annotations

import os
import pty
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.conftest import Nacre
from tests.readable import is_readable


def completed(nacre: Nacre, *words: str) -> dict[str, str]:
    result = nacre("__complete", "--", *words)
    assert (result.code, result.err) == (0, "")
    return dict(line.partition("\t")[::2] for line in result.out.splitlines())


def test_verbs_with_what_they_do(nacre: Nacre) -> None:
    assert completed(nacre, "do") == {"doctor": "check the store, the settings, the model and the machine"}
    assert set(completed(nacre, "s", "re")) == {"rename", "redact", "restore", "repair", "retain"}


def test_sessions_with_their_titles(nacre: Nacre) -> None:
    nacre.fill("telegram:1", title="Tax\x1b return")
    nacre.fill("telegram:2", "irc:1")
    assert completed(nacre, "sessions", "archive", "tele") == {
        "telegram:1": "Tax\\x1b return",
        "telegram:2": "2 messages",
    }


def test_a_key_that_a_shell_cannot_hold_is_left_out(nacre: Nacre) -> None:
    nacre.fill("tele\ngram")
    assert completed(nacre, "s", "archive", "tele") == {}


def test_only_the_argument_that_is_a_session(nacre: Nacre) -> None:
    nacre.fill("one")
    assert completed(nacre, "s", "fork", "one", "o") == {}
    assert set(completed(nacre, "s", "archive", "one", "o")) == {"one"}
    assert set(completed(nacre, "s", "search", "x", "--session", "o")) == {"one"}


def test_options_and_their_choices(nacre: Nacre) -> None:
    assert "--sort" in completed(nacre, "s", "list", "--so")
    assert "--store" in completed(nacre, "s", "list", "--st")
    assert set(completed(nacre, "s", "list", "--sort", "c")) == {"created"}
    assert set(completed(nacre, "completion", "")) == {"bash", "zsh", "fish"}


def test_what_is_in_the_trash_for_restore(nacre: Nacre) -> None:
    nacre.fill("one", "two")
    nacre("s", "rm", "two")
    assert set(completed(nacre, "s", "restore", "")) == {"two"}


@pytest.mark.parametrize("words", [("nonsense", "x"), ("s", "nonsense", "x"), ("s", "archive", "x"), ("--store",)])
def test_where_there_is_nothing_to_say_nothing_is_said(nacre: Nacre, words: tuple[str, ...]) -> None:
    found = nacre("__complete", "--", *words)
    assert (found.out, found.err) == ("", "")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_script_asks_nacre(nacre: Nacre, shell: str) -> None:
    assert "__complete --" in nacre("completion", shell).out


@pytest.fixture
def shell(nacre: Nacre, tmp_path: Path) -> Callable[[str], Path]:
    """Installs the completion of a shell that is there; gives the path of its script, with `nacre` beside it."""
    command = tmp_path / "nacre"
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m nacre.cli "$@"\n')
    command.chmod(0o755)
    nacre.fill("telegram:1", title="Tax return")
    nacre.fill("telegram:2", "irc:1")

    def install(name: str) -> Path:
        if shutil.which(name) is None:
            pytest.skip(f"{name} is not installed")
        script = tmp_path / f"completion.{name}"
        script.write_text(nacre("completion", name).out)
        return script

    return install


def test_bash_completes_a_key_with_a_colon(shell: Callable[[str], Path]) -> None:
    script = shell("bash")
    command = script.parent / "nacre"
    asked = f"COMP_LINE='{command} s show telegram:' COMP_POINT={len(str(command)) + 17} COMP_TYPE=9"
    line = (
        f"source {script}; {asked}; COMP_WORDBREAKS=$' \\t\\n\"><=;|&(:'; _nacre; printf '%s\\n' \"${{COMPREPLY[@]}}\""
    )
    done = subprocess.run(["bash", "-c", line], check=True, capture_output=True, text=True, timeout=60)
    assert sorted(done.stdout.split()) == ["1", "2"]


def fish(script: Path, line: str) -> list[str]:
    """What fish offers at the end of a line."""
    program = f"set -x PATH {script.parent} $PATH; source {script}; complete -C {shlex.quote(line)}"
    done = subprocess.run(
        ["fish", "--no-config", "-c", program], check=True, capture_output=True, text=True, timeout=60
    )
    return done.stdout.splitlines()


def test_fish_completes_sessions_with_titles(shell: Callable[[str], Path]) -> None:
    script = shell("fish")
    assert sorted(fish(script, "nacre s show telegram:")) == ["telegram:1\tTax return", "telegram:2\t2 messages"]


def test_fish_completes_verbs_and_options(shell: Callable[[str], Path]) -> None:
    script = shell("fish")
    assert fish(script, "nacre doc") == ["doctor\tcheck the store, the settings, the model and the machine"]
    assert [line.split("\t")[0] for line in fish(script, "nacre s list --so")] == ["--sort"]


def test_fish_completes_a_path_where_one_is_wanted(shell: Callable[[str], Path]) -> None:
    script = shell("fish")
    assert fish(script, f"nacre s migrate {script}") == [str(script)]


def zsh(script: Path, typed: str, *until: str) -> str:
    """What an interactive zsh shows when a line is typed, until it has shown some texts."""
    screen, keyboard = pty.openpty()
    start = f"PATH={script.parent}:$PATH; PS1='%% '; autoload -U compinit; compinit -C -D; source {script}; print ready"
    # Without a terminal's tricks: what is shown is what is read.
    environment = {**os.environ, "TERM": "dumb", "ZDOTDIR": str(script.parent)}
    process = subprocess.Popen(
        ["zsh", "-f", "-i"], stdin=keyboard, stdout=keyboard, stderr=keyboard, env=environment, start_new_session=True
    )
    os.close(keyboard)
    try:
        os.write(screen, f"{start}\n".encode())
        _read(screen, "\nready")
        os.write(screen, typed.encode())
        return _read(screen, *until)
    finally:
        process.kill()
        process.wait()
        os.close(screen)


def _read(screen: int, *until: str) -> str:
    shown = ""
    while not all(text in shown.replace("\r", "") for text in until):
        assert is_readable(screen, 30), f"zsh does not show {until!r} but {shown!r}"
        shown += os.read(screen, 65536).decode(errors="replace")
    return shown


def test_zsh_completes_sessions_with_titles(shell: Callable[[str], Path]) -> None:
    shown = zsh(shell("zsh"), "nacre s show tele\t\t", "Tax return", "2 messages")
    assert "irc" not in shown


def test_zsh_completes_what_is_the_only_one(shell: Callable[[str], Path]) -> None:
    assert "irc:1" in zsh(shell("zsh"), "print -r -- $(nacre s show ir\t", "irc:1").replace("\\", "")
