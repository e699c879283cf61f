"""Tools that users bring."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from nacre.agent.ports import Tool
from nacre.tools.functions import load_tools
from tests.tools.scenes import text

GOOD = '''
from __future__ import annotations
from nacre.tools import tool

@tool(effect="read")
def double(n: int) -> int:
    """Double a number."""
    return n * 2

def unused() -> None: ...
'''


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "good.py").write_text(GOOD)
    return tmp_path


def names(loaded: tuple[list[Tool], list[tuple[str, str]]]) -> list[str]:
    return [tool.spec.name for tool in loaded[0]]


def test_a_file_with_decorated_functions_brings_these(folder: Path) -> None:
    loaded = load_tools(folder)
    assert names(loaded) == ["double"]
    assert text(loaded[0][0], n="4") == "8"
    assert loaded[1] == []


def test_a_file_of_plain_functions_brings_all_public_ones_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "p.py").write_text('from shutil import copy\ndef a(x: int):\n    """A."""\ndef _b(): ...\n')
    loaded = load_tools(tmp_path)
    assert names(loaded) == ["a"]
    assert loaded[0][0].effect == "run"


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("x = 1\n1/0\n", "line 2: ZeroDivisionError: division by zero"),
        ("def f(:\n", "line 1: invalid syntax"),
        ("import sys\nsys.exit(3)\n", "line 2: SystemExit: 3"),
        ("import not_there_at_all\n", "line 1: ModuleNotFoundError: No module named 'not_there_at_all'"),
        ("def f(x):\n    'F.'\n", "parameter 'x' of tool 'f' has no type: annotate it"),
        ("x = 1\n", "it has no tools: write a function with types and a docstring"),
    ],
)
def test_a_broken_file_is_reported_and_the_others_go_on(folder: Path, source: str, reason: str) -> None:
    (folder / "bad.py").write_text(source)
    loaded = load_tools(folder)
    assert names(loaded) == ["double"]
    assert loaded[1] == [(str(folder / "bad.py"), reason)]


def test_a_name_that_is_taken_is_reported(folder: Path) -> None:
    (folder / "zz.py").write_text('def double(n: int):\n    """D."""\ndef triple(n: int):\n    """T."""\n')
    loaded = load_tools(folder, taken=["triple"])
    assert names(loaded) == ["double"]
    assert [reason.split(":")[0] for _, reason in loaded[1]] == [
        "there is a tool 'double' already",
        "there is a tool 'triple' already",
    ]


def test_a_file_that_anybody_may_write_to_is_not_run(folder: Path) -> None:
    (folder / "good.py").chmod(0o666)
    loaded = load_tools(folder)
    assert loaded[0] == []
    assert "everyone can write to it" in loaded[1][0][1]


def test_no_folder_is_no_problem(tmp_path: Path) -> None:
    assert load_tools(tmp_path / "none") == ([], [])


def test_entry_points_of_installed_packages_bring_tools(tmp_path: Path) -> None:
    (tmp_path / "brought.py").write_text(
        'def hello(name: str):\n    """Greet."""\n    return "hi " + name\nnothing = 3\n'
    )
    info = tmp_path / "brought-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: brought\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[nacre.tools]\nhello = brought:hello\nbad = brought:nothing\ngone = nowhere:x\n"
    )
    program = (
        "from nacre.tools.functions import load_tools; found = load_tools(); "
        "print([tool.spec.name for tool in found[0]], [where for where, _ in found[1]])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], env={"PYTHONPATH": str(tmp_path)}, check=True, capture_output=True, text=True
    )
    assert done.stdout == "['hello'] ['bad of brought (brought:nothing)', 'gone of brought (nowhere:x)']\n"
