"""The package itself: every name it promises, loaded when it is first used."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path
from zipfile import ZipFile

import pytest
from hatchling.builders.wheel import WheelBuilder

import nacre

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize("name", nacre.__all__)
def test_every_promised_name_is_there(name: str) -> None:
    assert getattr(nacre, name) is not None


def test_modules_are_reached_through_the_package() -> None:
    program = "import nacre; print(nacre.errors.Refused.__name__)"
    assert subprocess.check_output([sys.executable, "-c", program], text=True) == "Refused\n"
    assert vars(nacre)["__getattr__"]("errors").Refused is nacre.Refused


def test_a_name_that_is_not_there_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nope'"):
        nacre.nope  # noqa: B018


def test_importing_it_loads_no_event_loop_network_or_database() -> None:
    program = "import nacre, sys; nacre.open(':memory:'); print({'asyncio', 'ssl', 'sqlite3'} & set(sys.modules))"
    assert subprocess.check_output([sys.executable, "-c", program], text=True) == "set()\n"


def loaded(program: str, folder: Path) -> set[str]:
    """The modules that are loaded when a program has run; it finds a folder as its first argument."""
    command = [sys.executable, "-c", f"import sys\n{program}\nprint(*sys.modules, file=sys.stderr)", str(folder)]
    return set(subprocess.run(command, check=True, capture_output=True, text=True).stderr.split())


_NOT_TO_OPEN = {
    "argparse",
    "asyncio",
    "html",
    "pathlib",
    "sqlite3",
    "ssl",
    "subprocess",
    "tempfile",
    "nacre.async_sessions",
    "nacre.config",
    "nacre.history.copies",
    "nacre.history.every_message",
    "nacre.history.list_page",
    "nacre.history.overview",
    "nacre.history.tokens",
    "nacre.history.transcript",
    "nacre.history.window",
    "nacre.index",
    "nacre.legacy.formats",
    "nacre.storage.holes",
    "nacre.storage.maintenance",
    "nacre.storage.memory_store",
    "nacre.storage.redaction",
    "nacre.storage.trash_folder",
    "nacre.storage.watch",
}


def test_opening_a_store_loads_only_what_that_needs(tmp_path: Path) -> None:
    program = "import nacre\nwith nacre.open(sys.argv[1]) as sessions: sessions.add_message('k', 'user', 'hello')"
    found = loaded(program, tmp_path)
    assert "nacre.storage.writer" in found
    assert found & _NOT_TO_OPEN == set()


def test_showing_a_short_session_loads_only_what_that_needs(tmp_path: Path) -> None:
    with nacre.open(tmp_path) as sessions:
        sessions.add_message("k", "user", "hello")
    program = "import os\nos.environ['NACRE_HOME'] = sys.argv[1]\nfrom nacre.cli import main\n"
    found = loaded(program + "main(['sessions', 'show', 'k'])", tmp_path)
    assert "nacre.cli.commands.show" in found
    # The first opening of a store that has sessions looks for those of earlier agents.
    needed = {"argparse", "nacre.config", "nacre.history.overview", "nacre.legacy.formats"}
    assert found & (_NOT_TO_OPEN - needed | {"anyio", "nacre.runtime", "nacre.web"}) == set()


@pytest.mark.parametrize("place", ["':memory:'", "sys.argv[1]"])
def test_what_every_write_needs_is_loaded_when_a_store_is_opened(place: str, tmp_path: Path) -> None:
    program = f"""
import nacre, sys
print("hashlib" in sys.modules)
sessions = nacre.open({place})
before = set(sys.modules)
sessions.add_message("k", "user", "a" * 200_000)
sessions.submit("k", [{{"role": "user", "content": "b"}}], id="1").result()
sessions.fork("k", "new")
sessions.archive("k")
sessions.unarchive("k")
sessions.get_history("k")
print(set(sys.modules) - before)
"""
    command = [sys.executable, "-c", program, str(tmp_path)]
    assert subprocess.check_output(command, text=True) == "False\nset()\n"


def test_everything_that_the_package_has_is_in_its_wheel(tmp_path: Path) -> None:
    wheel = next(WheelBuilder(str(ROOT)).build(directory=str(tmp_path), versions=["standard"]))
    ours = {str(path.relative_to(ROOT / "src")) for path in (ROOT / "src").rglob("*") if path.is_file()}
    with ZipFile(wheel) as archive:
        packed = {name for name in archive.namelist() if name.startswith("nacre/")}
    assert packed == {name for name in ours if "__pycache__" not in name}
    assert {"nacre/web/static/nacre.js", "nacre/web/static/nacre.css", "nacre/py.typed"} <= packed


def test_a_listing_of_the_package_is_what_it_offers() -> None:
    assert dir(nacre) == sorted(nacre.__all__)


def imported(tree: ast.AST, modules: set[str]) -> Iterator[str]:
    """The modules of the package that a module imports, also inside functions and for the type checker alone."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            names = (f"{node.module}.{alias.name}" for alias in node.names)
            yield from (name if name in modules else node.module for name in names)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        yield from imported(node, modules)


def test_no_modules_import_each_other_in_a_circle() -> None:
    files = {
        ".".join(path.relative_to(ROOT / "src").with_suffix("").parts).removesuffix(".__init__"): path
        for path in (ROOT / "src" / "nacre").rglob("*.py")
    }
    graph = {
        module: {other for other in imported(ast.parse(path.read_text()), set(files)) if other in files} - {module}
        for module, path in files.items()
    }
    assert len(list(TopologicalSorter(graph).static_order())) == len(files)  # raises CycleError, which names a circle
