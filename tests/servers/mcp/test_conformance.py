"""The server scenarios of the conformance kit of the protocol's authors, which is a client that checks the server."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from tests.required import require
from tests.servers.mcp import conformance_kit

ROOT = Path(__file__).parents[3]
Results: TypeAlias = dict[str, list[dict[str, Any]]]

OURS = [
    "server-initialize",
    "ping",
    "tools-list",
    "resources-list",
    "server-sse-multiple-streams",
    "dns-rebinding-protection",
]
"""What the kit can ask any server; nacre's own server passes it, and the example too."""

BY_NAME = [
    "tools-call-simple-text",
    "tools-call-image",
    "tools-call-audio",
    "tools-call-embedded-resource",
    "tools-call-mixed-content",
    "tools-call-with-logging",
    "tools-call-error",
    "tools-call-with-progress",
    "tools-call-sampling",
    "tools-call-elicitation",
    "elicitation-sep1034-defaults",
    "elicitation-sep1330-enums",
    "json-schema-2020-12",
    "resources-read-text",
    "resources-read-binary",
    "resources-templates-read",
    "resources-subscribe",
    "resources-unsubscribe",
    "prompts-list",
    "prompts-get-simple",
    "prompts-get-with-args",
    "prompts-get-embedded-resource",
    "prompts-get-with-image",
    "completion-complete",
    "logging-set-level",
]
"""What it asks for by names of its own, or what nacre does not offer: the example behind the same door passes it."""

DO_NOT_APPLY = {
    "server-sse-polling": "it is about streams that a client resumes, which is optional: no call here lasts that long",
}


@pytest.fixture(scope="session")
def kit() -> list[str]:
    """The command that runs the kit, which `make test` installs; in CI it must be there."""
    problem = f"{conformance_kit.KIT} is not installed: make .venv/mcp-conformance/.installed"
    require(conformance_kit.is_installed(), problem)
    return conformance_kit.command()


@contextmanager
def served(which: str, folder: Path) -> Iterator[str]:
    """The address of one of the servers of `conformance_server`."""
    command = [sys.executable, "-m", "tests.servers.mcp.conformance_server", which]
    environ = {name: value for name, value in os.environ.items() if not name.startswith("NACRE_")}
    (folder / "config.toml").touch()
    environ["NACRE_CONFIG"] = str(folder / "config.toml")
    with (
        (folder / "log").open("wb") as log,
        subprocess.Popen(command, cwd=ROOT, env=environ, stdout=subprocess.PIPE, stderr=log) as process,
    ):
        assert process.stdout is not None
        try:
            yield f"http://127.0.0.1:{int(process.stdout.readline())}/mcp"
        finally:
            process.kill()


def run(kit: list[str], which: str, folder: Path) -> Results:
    """The checks of each scenario, by its name, of one run of all of them."""
    with served(which, folder) as url:
        command = [*kit, "server", "--url", url, "--suite", "all", "-o", str(folder / "found")]
        subprocess.run(command, capture_output=True, timeout=300, check=False)
    found = Results()
    for checks in (folder / "found").glob("*/checks.json"):
        # A folder is called server-NAME-TIME.
        name = re.sub(r"-\d{4}-\d\d-\d\dT.*", "", checks.parent.name.removeprefix("server-"))
        found[name] = json.loads(checks.read_text())
    return found


def failures(found: Results, scenarios: list[str]) -> dict[str, list[dict[str, Any]]]:
    """What is wrong in each scenario that did not pass; nothing is listed where nothing was checked."""
    wrong: dict[str, list[dict[str, Any]]] = {}
    for scenario in scenarios:
        checks = found.get(scenario, [])
        bad = [check for check in checks if check["status"] in {"FAILURE", "WARNING"}]
        if bad or not any(check["status"] == "SUCCESS" for check in checks):
            wrong[scenario] = bad
    return wrong


# Each runs the kit once for all its scenarios: as tests of their own they would run it in every process of pytest.


def test_our_server_passes(kit: list[str], tmp_path: Path) -> None:
    assert failures(run(kit, "ours", tmp_path), OURS) == {}


def test_any_server_behind_our_door_passes(kit: list[str], tmp_path: Path) -> None:
    assert failures(run(kit, "example", tmp_path), [*OURS, *BY_NAME]) == {}


def test_a_scenario_that_was_not_checked_or_has_a_warning_does_not_pass() -> None:
    good, warning = {"status": "SUCCESS"}, {"status": "WARNING"}
    found = {"a": [good], "b": [good, warning], "c": [{"status": "INFO"}]}
    assert failures(found, ["a", "b", "c", "d"]) == {"b": [warning], "c": [], "d": []}


def test_every_scenario_is_run_or_has_a_reason_not_to_be(kit: list[str]) -> None:
    listed = subprocess.check_output([*kit, "list", "--server"], text=True, env={**os.environ, "NO_COLOR": "1"})
    names = {line.split()[1] for line in listed.splitlines() if line.startswith("  - ")}
    assert names == {*OURS, *BY_NAME, *DO_NOT_APPLY}
