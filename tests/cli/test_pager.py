"""The pager: long output a screen at a time."""

from __future__ import annotations

import io
import os
from pathlib import Path

import pytest

from nacre.cli.output import open_pager
from tests.cli.conftest import Nacre


def shown(text: str) -> str:
    """What is printed without a pager of some text; "" if a pager took it."""
    otherwise = io.StringIO()
    with open_pager(otherwise) as stream:
        stream.write(text)
    return otherwise.getvalue()


def test_the_chosen_program_gets_the_output(nacre: Nacre, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PAGER", f"cat > '{tmp_path}/paged'")
    assert shown("héllo\n") == ""
    assert (tmp_path / "paged").read_text() == "héllo\n"


def test_the_setting_comes_before_the_variable(nacre: Nacre, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PAGER", "false")
    monkeypatch.setenv("NACRE_CLI_PAGER", f"cat > '{tmp_path}/paged'")
    shown("hello")
    assert (tmp_path / "paged").read_text() == "hello"


def test_cat_is_no_pager(nacre: Nacre, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PAGER", "cat")
    assert shown("hello") == "hello"


def test_without_any_pager_it_is_printed(nacre: Nacre, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert shown("hello") == "hello"


def test_less_is_taken_where_it_is(nacre: Nacre, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    less = tmp_path / "less"
    less.write_text(f'#!/bin/sh\necho "$@" > {tmp_path}/asked; exec cat > {tmp_path}/paged\n')
    less.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    assert shown("hello") == ""
    assert [(tmp_path / name).read_text() for name in ("asked", "paged")] == ["-FRX\n", "hello"]


def test_who_leaves_the_pager_early_has_seen_enough(nacre: Nacre, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PAGER", "true")
    assert shown("x" * 1_000_000) == ""
