"""What a new user is told to install, and what they get: the name, the extras and the lowest versions."""

from __future__ import annotations

import ast
import re
import tomllib
from email import message_from_string
from functools import cache
from pathlib import Path
from typing import Any
from zipfile import ZipFile

from hatchling.builders.wheel import WheelBuilder

import nacre
from nacre.errors import install_command
from tests.everyday.conftest import Person
from tests.lowest import EXTRAS as LOWEST_EXTRAS
from tests.lowest import constraints

ROOT = Path(__file__).parents[2]
NAMING = {"install_command", "missing_extra", "require_extra"}
"""The functions whose first argument is an extra."""
HINT = re.compile(r"pip install ['\"]?([a-z-]+)\[([a-z0-9,{}-]+)\]")


@cache
def project() -> dict[str, Any]:
    found: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return found


def test_every_install_command_in_the_source_names_an_extra_that_exists() -> None:
    extras = set()
    for path in (ROOT / "src").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in NAMING:
                named = [str(argument.value) for argument in node.args[:1] if isinstance(argument, ast.Constant)]
                extras |= {extra for names in named for extra in names.split(",")}
    from nacre.cli.failures import EXTRAS  # noqa: PLC0415 - the table of modules and their extras

    assert {"agent", "serve"} <= extras
    assert extras | set(EXTRAS.values()) <= set(project()["optional-dependencies"])
    assert install_command("agent") == 'pip install "nacre-sessions[agent]"'


def test_every_package_of_an_extra_is_known_by_its_module() -> None:
    from nacre.cli.failures import EXTRAS  # noqa: PLC0415 - as above

    modules = {
        "agent-client-protocol": "acp",
        "opentelemetry-api": "opentelemetry",
        "prompt-toolkit": "prompt_toolkit",
        "pyyaml": "yaml",
    }
    # `all` combines the others; adapters name their extra themselves, and nothing else needs them.
    adapters = {path.stem.replace("_", "-") for path in (ROOT / "src/nacre/integrations").glob("*.py")}
    for extra, listed in project()["optional-dependencies"].items():
        if extra in {"all", *adapters}:
            continue
        names = {re.split(r"[\[><=;]", one)[0] for one in listed} - {project()["name"]}
        expected = {modules.get(name, name.replace("-", "_")) for name in names}
        assert {module for module, found in EXTRAS.items() if found == extra} == expected


def test_every_install_command_in_texts_and_docs_is_of_this_distribution() -> None:
    pages = [ROOT / "README.md", *(ROOT / "docs").glob("*.md"), *(ROOT / "src").rglob("*.py")]
    for page in pages:
        for name, extras in HINT.findall(page.read_text()):
            assert name == project()["name"], page
            if "{" not in extras:
                assert set(extras.split(",")) <= set(project()["optional-dependencies"]), page


def test_the_wheel_has_the_name_the_version_and_the_links(tmp_path: Path) -> None:
    wheel = next(WheelBuilder(str(ROOT)).build(directory=str(tmp_path), versions=["standard"]))
    with ZipFile(wheel) as archive:
        listed = next(name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        metadata = message_from_string(archive.read(listed).decode())
    assert Path(wheel).name.startswith("nacre_sessions-")
    assert (metadata["Name"], metadata["Version"]) == ("nacre-sessions", nacre.__version__)
    assert {line.partition(",")[0] for line in metadata.get_all("Project-URL", [])} >= {"Documentation", "Source"}
    extras = {"agent", "serve", "embedded", "embeddings", "mcp", "postgres", "acp", "otel", "all"}
    adapters = {"adk", "agent-framework", "claude-agent", "langgraph", "llama-index", "openai-agents", "pydantic-ai"}
    assert set(metadata.get_all("Provides-Extra", [])) == {*extras, *adapters, "strands"}


def test_a_missing_extra_is_one_line_with_a_command_that_works(person: Person) -> None:
    (person.home / "missing").mkdir()
    (person.home / "missing/anyio.py").write_text("raise ModuleNotFoundError('no anyio', name='anyio')\n")
    done = person.nacre("chat", "hello", PYTHONPATH=str(person.home / "missing"))
    assert (done.code, done.out) == (1, "")
    assert done.err == 'nacre: this needs anyio, which is not installed\n  pip install "nacre-sessions[agent]"\n'


def test_the_lowest_versions_that_are_tested_are_those_that_may_be_installed() -> None:
    named = {line.partition("==")[0] for line in constraints(LOWEST_EXTRAS)}
    groups = [project()["dependencies"], *(project()["optional-dependencies"][extra] for extra in LOWEST_EXTRAS)]
    ours = f"{project()['name']}["
    wanted = {re.split(r"[><=;\[ ]", one)[0] for group in groups for one in group if not one.startswith(ours)}
    assert named == wanted
    assert "\nlowest: " in (ROOT / "Makefile").read_text()
