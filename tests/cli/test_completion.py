"""Completion in the shells, and what they ask for."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import Nacre


def completed(nacre: Nacre, *words: str) -> dict[str, str]:
    result = nacre("__complete", "--", *words)
    assert (result.code, result.err) == (0, "")
    return dict(line.partition("\t")[::2] for line in result.out.splitlines())


def test_verbs_with_what_they_do(nacre: Nacre) -> None:
    assert completed(nacre, "do") == {"doctor": "check the store, its permissions, free space and index"}
    assert set(completed(nacre, "s", "re")) == {"rename", "restore", "repair"}


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
    nacre("__complete", "--", *words)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_script_asks_nacre(nacre: Nacre, shell: str) -> None:
    assert "__complete --" in nacre("completion", shell).out


def test_bash_completes_a_key_with_a_colon(nacre: Nacre, tmp_path: Path) -> None:
    nacre.fill("telegram:1", "telegram:2", "irc:1")
    command = tmp_path / "nacre"
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m nacre.cli "$@"\n')
    command.chmod(0o755)
    script = tmp_path / "completion.bash"
    script.write_text(nacre("completion", "bash").out)
    asked = f"COMP_LINE='{command} s show telegram:' COMP_POINT={len(str(command)) + 17} COMP_TYPE=9"
    line = (
        f"source {script}; {asked}; COMP_WORDBREAKS=$' \\t\\n\"><=;|&(:'; _nacre; printf '%s\\n' \"${{COMPREPLY[@]}}\""
    )
    done = subprocess.run(["bash", "-c", line], check=True, capture_output=True, text=True, timeout=60)
    assert sorted(done.stdout.split()) == ["1", "2"]
