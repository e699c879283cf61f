"""What the documentation says of the project is there, and what there is it says."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from textwrap import dedent

import pytest

import nacre
from nacre.cli import verbs
from nacre.config import MODEL_SETTINGS, SETTINGS, to_toml

ROOT = Path(__file__).parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "benchmarks").glob("*.md")])
PACKAGE = ROOT / "src" / "nacre"

LINK = re.compile(r"\]\(([^()\s]+)\)")
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
CODE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)


def anchors(page: Path) -> set[str]:
    """What a link to a heading of a page may say behind its #."""
    headings = HEADING.findall(CODE.sub("", page.read_text()))
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_somewhere(page: Path) -> None:
    for link in LINK.findall(CODE.sub("", page.read_text())):
        path, _, anchor = link.partition("#")
        target = page.parent / path if path else page
        if ":" not in path:
            assert target.exists(), link
            assert not anchor or anchor in anchors(target), link


def drawn() -> set[str]:
    """The folders in the tree of ARCHITECTURE.md, by their path below the package."""
    tree = (ROOT / "ARCHITECTURE.md").read_text().split("```")[1].split("src/nacre/\n")[1].split("\ntests/")[0]
    found: list[str] = []
    for indent, name in re.findall(r"^( +)(\w+)/ ", tree, re.MULTILINE):
        found.append(name if len(indent) == 2 else f"{next(one for one in found[::-1] if '/' not in one)}/{name}")
    return set(found)


def test_the_tree_of_the_architecture_has_every_folder_and_no_other() -> None:
    packages = {str(path.parent.relative_to(PACKAGE)) for path in PACKAGE.rglob("*/__init__.py")}
    assert drawn() == packages | {"web/static"}


def test_every_file_that_the_architecture_names_is_there() -> None:
    named = re.findall(r"[`(](?:src/nacre/)?([\w/]+\.py)\b", (ROOT / "ARCHITECTURE.md").read_text())
    missing = [name for name in named if not (PACKAGE / name).exists() and not (ROOT / name).exists()]
    assert missing == []


def test_every_function_that_the_architecture_names_is_in_its_file() -> None:
    questions = (ROOT / "ARCHITECTURE.md").read_text().partition("## Reading the source")[2].partition("\n## ")[0]
    named = [
        (file, name)
        for file, words in re.findall(r"`([\w/]+\.py)` \(([^)]*)\)", questions)
        for name in re.findall(r"`(?:\w+\.)?(\w+)`", words)
    ]
    missing = [
        (file, name) for file, name in named if not re.search(rf"(def|class) {name}\b", (PACKAGE / file).read_text())
    ]
    assert named
    assert missing == []


ADAPTERS = (ROOT / "docs" / "adapters.md").read_text()
SNIPPETS = re.findall(r"^```py\n(.*?)^```$", ADAPTERS, re.MULTILINE | re.DOTALL)


def defined(module: str) -> set[str]:
    """The names at the top level of a module, which is not imported: its framework may not be installed."""
    path = ROOT / "src" / module.replace(".", "/")
    found = set()
    for node in ast.parse(path.with_suffix(".py").read_text()).body:
        match node:
            case ast.ClassDef(name=name) | ast.FunctionDef(name=name):
                found.add(name)
            case ast.Assign(targets=[ast.Name(id=name)]):
                found.add(name)
            case _:
                pass
    return found


@pytest.mark.parametrize("snippet", SNIPPETS)
def test_every_snippet_of_an_adapter_compiles_and_imports_what_is_there(snippet: str) -> None:
    code = dedent(snippet)
    # They are parts of coroutines.
    compile(code, "docs/adapters.md", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    for node in ast.walk(ast.parse(code)):
        match node:
            case ast.ImportFrom(module=str(module), names=names) if module.startswith("nacre."):
                assert {name.name for name in names} <= defined(module)
            case ast.Attribute(value=ast.Name(id="nacre"), attr=name):
                assert hasattr(nacre, name)
            case _:
                pass


def test_every_adapter_in_the_table_has_a_snippet() -> None:
    table = re.findall(r"`(nacre\.integrations\.\w+)\.(\w+)` \|$", ADAPTERS, re.MULTILINE)
    assert table
    assert set(table) <= set(re.findall(r"^from (\S+) import (\w+)$", "".join(SNIPPETS), re.MULTILINE))


CLASSES = [
    (path.stem, name)
    for path in sorted((ROOT / "src/nacre/integrations").glob("*.py"))
    for name in re.findall(r"^class (Nacre\w+)", path.read_text(), re.MULTILINE)
]


@pytest.mark.parametrize(("module", "name"), CLASSES)
def test_every_class_of_an_adapter_is_in_its_page_and_in_the_reference(module: str, name: str) -> None:
    assert f"`{name}`" in ADAPTERS or f".{name}`" in ADAPTERS
    listed = re.search(rf'\("{module}", \[(.*)\]\)', (ROOT / "docs/site_hooks.py").read_text())
    assert listed
    assert f'"{name}"' in listed[1]


def test_the_tutorial_is_a_program_without_its_scripted_model_too() -> None:
    blocks = re.findall(r"^```python\n(.*?)^```$", (ROOT / "docs/tutorial.md").read_text(), re.MULTILINE | re.DOTALL)
    lines = "".join(block for block in blocks if "class Scripted" not in block).splitlines()
    kept = [line for line in lines if not re.search("replies|server|assert", line)]
    program = re.sub(r"(OpenAI|Client)\(.*\)", r"\1()", "\n".join(kept))
    names = {node.id for node in ast.walk(ast.parse(program)) if isinstance(node, ast.Name)}
    assert "turn" in names
    assert {"json", "address"} & names == {"json"}
    assert "import json" in kept


@pytest.mark.parametrize("verb", [*verbs.SESSIONS, *(f"nacre {verb}" for verb in verbs.TOP)])
def test_every_verb_is_in_the_page_on_the_command_line(verb: str) -> None:
    assert re.search(rf"`{verb}\b", (ROOT / "docs" / "cli.md").read_text())


def test_every_setting_is_in_the_page_on_the_command_line_with_its_default() -> None:
    rows = re.findall(r"^\| `(\w+\.\w+)` \|.*\| (.*?) ?\|$", (ROOT / "docs" / "cli.md").read_text(), re.MULTILINE)
    defaults = {setting.key: to_toml(setting.default).strip('"') for setting in SETTINGS}
    assert {key: text.strip("`") for key, text in rows} == defaults


def test_every_setting_of_a_model_is_in_the_page_on_chats() -> None:
    rows = re.findall(r"^\| `(\w+)` \| (.*?) \| (.*?) \|$", (ROOT / "docs" / "chat.md").read_text(), re.MULTILINE)
    for setting in MODEL_SETTINGS:
        assert (setting.key, setting.meaning, ", ".join(setting.providers)) in [
            (key, meaning.replace("`", ""), providers) for key, meaning, providers in rows
        ]


def test_every_test_that_shows_a_guarantee_is_there() -> None:
    page = (ROOT / "docs" / "guarantees.md").read_text()
    named = set(re.findall(r"`(?:tests/)?(?:\w+/)*(test_\w+\.py)`", page))
    assert named
    assert named <= {path.name for path in (ROOT / "tests").rglob("test_*.py")}


def test_every_decision_has_a_number_of_its_own() -> None:
    numbers = [path.name[:4] for path in (ROOT / "docs" / "decisions").glob("*.md")]
    assert len(numbers) == len(set(numbers))
    assert all(number.isdigit() for number in numbers)
