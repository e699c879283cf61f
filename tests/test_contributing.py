"""What contributors are given is valid, and names what exists: the workflow, the forms for issues, the hooks."""

from __future__ import annotations

import os
import re
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[1]
GITHUB = ROOT / ".github"
FORMS = sorted(file for file in (GITHUB / "ISSUE_TEMPLATE").glob("*.yml") if file.name != "config.yml")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
TARGETS = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))


def load(path: Path) -> Any:
    return yaml.safe_load(path.read_text())


def test_the_workflow_runs_targets_that_exist_on_every_python_that_is_supported() -> None:
    jobs = load(GITHUB / "workflows" / "ci.yml")["jobs"]
    commands = [step["run"] for job in jobs.values() for step in job["steps"] if "run" in step]
    named = {
        word
        for command in commands
        for word in command.removeprefix("sudo ").removeprefix("make ").split()
        if "=" not in word
    }
    assert all(command.removeprefix("sudo ").startswith("make ") for command in commands)
    assert named <= TARGETS
    assert {"test", "dist", "adapters", "crash", "lowest"} <= named
    supported = [one.rpartition(" ")[2] for one in PROJECT["classifiers"] if "Python :: 3." in one]
    assert jobs["test"]["strategy"]["matrix"]["python"] == supported


def test_everything_is_linted_before_anything_slow_is_installed() -> None:
    (needed,) = re.findall(r"^test: (.*) ##", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert needed.split()[:2] == ["lint", "types"]
    assert ".venv/site/.installed" in needed.split()


def test_every_installation_of_packages_outlasts_a_short_trouble_of_the_network() -> None:
    text = (ROOT / "Makefile").read_text().replace("\\\n", " ")
    (options,) = re.findall(r"^PIP_OPTIONS := (.*)", text, re.MULTILINE)
    assert {"--retries", "--timeout"} <= set(options.split())
    assert re.findall(r"\bpip (?!\$\(PIP_OPTIONS\)).*? install ", text) == []


def test_a_program_that_the_system_does_not_know_keeps_no_other_from_being_installed(tmp_path: Path) -> None:
    install = (
        'for name; do case $name in want-*) printf "#!/bin/sh\\n" >"$HERE/$name"; chmod +x "$HERE/$name";; esac; done'
    )
    for name, does in {
        "id": "echo 0",
        "apt-get": f'case "$*" in *no-such*) exit 100;; esac; {install}',
    }.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{does}\n")
        (tmp_path / name).chmod(0o755)
    environ = {"PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}", "HERE": str(tmp_path)}
    command = ["make", "--no-print-directory", "programs", "PROGRAMS=want-one no-such-program want-two"]
    said = subprocess.check_output(command, cwd=ROOT, env=environ, text=True)
    assert said.splitlines() == [
        "installing want-one no-such-program want-two",
        "no-such-program was not found and not installed: what needs it is skipped",
    ]
    assert {path.name for path in tmp_path.glob("want-*")} == {"want-one", "want-two"}


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.stem)
def test_every_form_for_issues_has_what_a_form_needs(form: Path) -> None:
    given = load(form)
    assert given["name"]
    assert given["description"]
    fields = [field for field in given["body"] if field["type"] != "markdown"]
    assert {field["type"] for field in fields} <= {"input", "textarea", "dropdown", "checkboxes"}
    assert all(field["attributes"]["label"] for field in fields)
    ids = [field["id"] for field in fields]
    assert len(set(ids)) == len(ids) > 0


def test_the_hooks_are_tools_that_the_project_installs() -> None:
    hooks = [hook for repo in load(ROOT / ".pre-commit-config.yaml")["repos"] for hook in repo["hooks"]]
    tools = {hook["entry"].split()[0].removeprefix(".venv/bin/") for hook in hooks}
    assert tools == {"ruff", "lint-imports", "mypy"}
    assert {hook["language"] for hook in hooks} == {"system"}  # nothing is downloaded


def test_the_commands_that_contributing_names_exist() -> None:
    named = set(re.findall(r"`make ([a-z]+)", (ROOT / "CONTRIBUTING.md").read_text()))
    assert named <= TARGETS
    assert {"test", "adapters", "dist", "site"} <= named
