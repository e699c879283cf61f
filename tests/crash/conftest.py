"""Warm processes, with and without the shim that makes calls fail; one of each per test session."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.crash.warm import Warm

SOURCE = Path(__file__).with_name("failnth.c")


@pytest.fixture(scope="session")
def warm() -> Iterator[Warm]:
    with Warm() as process:
        yield process


@pytest.fixture(scope="session")
def failing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Warm]:
    """A warm process in which any call can be made to fail."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler to build the shim with")
    shim = tmp_path_factory.mktemp("shim") / "failnth.so"
    subprocess.run([compiler, "-O2", "-shared", "-fPIC", "-o", shim, SOURCE, "-ldl"], check=True)
    with Warm(preload=shim) as process:
        yield process
