"""Runs the tests, the type check and the example of each adapter, in the environments of its framework.

`python -m tests.integrations langgraph` runs one with the newest version, in .venv/adapters. With `--results` the
lowest version is tried too, in .venv/lowest-adapters, and RESULTS.md is written.
"""

from __future__ import annotations

import argparse
import platform
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
RESULTS = Path(__file__).parent / "RESULTS.md"
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]


class Outcome(NamedTuple):
    """One adapter with one version of its framework."""

    extra: str
    version: str
    passed: int
    skipped: int
    failed: list[str]

    def __str__(self) -> str:
        failed = "".join(f", {it} failed" for it in self.failed)
        return f"{self.extra} {self.version}: {self.passed} tests passed, {self.skipped} skipped{failed}"


def try_adapter(extra: str, environments: str) -> Outcome:
    """Run everything of one adapter; what a failing part printed is shown."""
    python = str(ROOT / ".venv" / environments / extra / "bin" / "python")
    name = extra.replace("-", "_")
    tests, example = f"tests/integrations/{name}", f"examples/adapters/{name}.py"
    types = [str(ROOT / ".venv/bin/mypy"), "--python-executable", python]
    types += ["--cache-dir", f".mypy_cache/{environments}/{name}", f"src/nacre/integrations/{name}.py", example]
    # One by one: the configuration leaves out their folder, which can only be checked in this environment.
    types += [str(file.relative_to(ROOT)) for file in sorted((ROOT / tests).glob("*.py"))]
    commands = {
        "tests": [python, "-m", "pytest", "-q", "-n", "2", "-p", "no:cacheprovider", tests],
        "types": types,
        "example": [python, "-W", "error::ResourceWarning", example],
    }
    counts, failed = {"passed": 0, "skipped": 0}, []
    for part, command in commands.items():
        run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        if part == "tests":
            counts |= {word: int(count) for count, word in re.findall(r"(\d+) (passed|skipped)", run.stdout)}
        if run.returncode:
            sys.stdout.write(run.stdout + run.stderr)
            failed.append(part)
    query = f"import importlib.metadata; print(importlib.metadata.version({package_of(extra)!r}))"
    version = subprocess.check_output([python, "-c", query], text=True).strip()
    return Outcome(extra, version, counts["passed"], counts["skipped"], failed)


def package_of(extra: str) -> str:
    return re.split(r"[\[<>=]", EXTRAS[extra][0])[0]


def page(outcomes: list[Outcome]) -> str:
    """RESULTS.md."""
    lines = [
        "# The adapters, tried",
        "",
        "Written by `make adapters`: the tests, the strict type check and the example of each adapter, with the lowest",
        "and the newest version of its framework that the extra allows. Tests of what that version does not",
        "have are skipped.",
        "",
        f"Python {platform.python_version()}, {platform.system()}.",
        "",
        "| extra | package | version | tests passed | skipped | result |",
        "|---|---|---|---|---|---|",
    ]
    for it in outcomes:
        result = f"FAILED: {', '.join(it.failed)}" if it.failed else "passed"
        lines.append(
            f"| `{it.extra}` | {package_of(it.extra)} | {it.version} | {it.passed} | {it.skipped} | {result} |"
        )
    return "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.integrations")
    parser.add_argument("--results", action="store_true", help="try the lowest versions too, and write RESULTS.md")
    parser.add_argument("extras", nargs="+", metavar="EXTRA")
    given = parser.parse_args()
    outcomes = []
    for extra in given.extras:
        for environments in ("lowest-adapters", "adapters") if given.results else ("adapters",):
            outcomes.append(try_adapter(extra, environments))
            sys.stdout.write(f"{outcomes[-1]}\n")
            sys.stdout.flush()
    if given.results:
        RESULTS.write_text(page(outcomes), encoding="utf-8")
    return any(it.failed for it in outcomes)


if __name__ == "__main__":
    sys.exit(main())
