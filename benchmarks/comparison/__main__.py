"""The tables of docs/comparison.md: `python -m benchmarks.comparison`.

The conformance suite and a measurement of costs, on the frameworks' own stores and on nacre's adapters, each in the
environment of its framework (.venv/adapters). What was measured is kept in results.json, so that one framework can be
measured again by `--only`.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks import measure
from benchmarks.comparison.cost import DEPTHS, SAMPLES, TEXT
from nacre.errors import InvalidArgument
from nacre.testing.conformance import CHECKS, run

PAGE = measure.PROJECT / "docs" / "comparison.md"
RESULTS = Path(__file__).parent / "results.json"
BEGIN, END = "<!-- measured: python -m benchmarks.comparison -->", "<!-- end of what was measured -->"
ROOMS = re.compile(r"/\S*/conformance-\w+/[\w-]+/")
"""Where the suite's temporary files are."""
MARKS = {"passed": "✓", "failed": "**✗**", "not applicable": "–"}


class Framework(NamedTuple):
    """A framework, the environment and the distribution that have it, and its store and ours as `module:class`."""

    name: str
    extra: str
    package: str
    store: str
    factory: str
    adapter: str

    @property
    def python(self) -> str:
        return str(measure.PROJECT / ".venv" / "adapters" / self.extra / "bin" / "python")

    @property
    def ours(self) -> str:
        return f"{self.factory.partition(':')[0]}:Nacre"


FRAMEWORKS = (
    Framework(
        name="OpenAI Agents SDK",
        extra="openai-agents",
        package="openai-agents",
        store="SQLiteSession",
        factory="benchmarks.comparison.openai_agents_store:OpenAIAgents",
        adapter="NacreSession",
    ),
    Framework(
        name="LangGraph",
        extra="langgraph",
        package="langgraph-checkpoint-sqlite",
        store="SqliteSaver",
        factory="benchmarks.comparison.langgraph_store:LangGraph",
        adapter="NacreSaver",
    ),
    Framework(
        name="Google ADK",
        extra="adk",
        package="google-adk",
        store="SqliteSessionService",
        factory="benchmarks.comparison.adk_store:Adk",
        adapter="NacreSessionService",
    ),
    Framework(
        name="Microsoft Agent Framework",
        extra="agent-framework",
        package="agent-framework-core",
        store="FileHistoryProvider",
        factory="benchmarks.comparison.agent_framework_store:AgentFramework",
        adapter="NacreHistoryProvider",
    ),
    Framework(
        name="LlamaIndex",
        extra="llama-index",
        package="llama-index-core",
        store="SimpleChatStore",
        factory="benchmarks.comparison.llama_index_store:LlamaIndex",
        adapter="NacreChatStore",
    ),
    Framework(
        name="Strands Agents",
        extra="strands",
        package="strands-agents",
        store="FileSessionManager",
        factory="benchmarks.comparison.strands_store:Strands",
        adapter="NacreSessionRepository",
    ),
)


def try_framework(one: Framework, kills: int) -> dict[str, Any]:
    """Run the suite and the measurement on the framework's store and on our adapter."""
    factories = {one.store: one.factory, one.adapter: one.ours}
    reports = {store: run(factory, python=one.python, kills=kills) for store, factory in factories.items()}
    with tempfile.TemporaryDirectory(prefix="comparison-") as directory:
        costs = json.loads(in_environment(one, directory, *factories.values()).splitlines()[-1])
    query = (
        "import importlib.metadata, platform\n"
        f"print(importlib.metadata.version({one.package!r}), platform.python_version())"
    )
    version, python = subprocess.check_output([one.python, "-c", query], text=True).split()  # noqa: S603 - its own program
    return {
        "version": version,
        # As it was here and now: the page may be written again elsewhere.
        "python": python,
        "system": platform.system(),
        "cores": os.cpu_count(),
        "kills": kills,
        "stores": {
            store: {
                # Where the temporary files were says nothing about the store.
                "outcomes": [
                    asdict(outcome) | {"why": ROOMS.sub("", outcome.why)} for outcome in reports[store].outcomes
                ],
                "costs": costs[factory] | {"flushes": count_flushes(one, factory)},
            }
            for store, factory in factories.items()
        },
    }


def count_flushes(one: Framework, factory: str) -> float | None:
    """Flushes of an append, the mean of ten; None where nothing can be traced."""
    if not measure.can_trace():
        return None
    with tempfile.TemporaryDirectory(prefix="comparison-") as directory:
        trace, room = Path(directory) / "trace", Path(directory) / "room"
        room.mkdir()
        in_environment(one, "flush", str(room), factory, prefix=measure.tracing_flushes(trace))
        # A framework may ask for its parent too, but before the two marks: what is between them is the last but one.
        return measure.count_by_phase(trace.read_text())[-2] / 10


def in_environment(one: Framework, *arguments: str, prefix: Sequence[str] = ()) -> str:
    """Run the measurement of costs with the Python of the framework; returns its output."""
    command = [*prefix, one.python, "-m", "benchmarks.comparison.cost", *arguments]
    ran = subprocess.run(command, cwd=measure.PROJECT, capture_output=True, text=True, check=False)  # noqa: S603 - its own program
    if ran.returncode:
        sys.exit(f"{one.name}: {ran.stderr}")
    return ran.stdout


def tables(results: dict[str, Any]) -> str:
    """What was measured, as Markdown."""
    rows = [
        (one, f"nacre, `{store}`" if store == one.adapter else f"`{store}`", found)
        for one in FRAMEWORKS
        if one.extra in results
        for store, found in results[one.extra]["stores"].items()
    ]
    lines = ["### What survives what", ""]
    lines += [f"| framework | store | {' | '.join(CHECKS)} |", "|---|---|" + "---|" * len(CHECKS)]
    for one, store, found in rows:
        marks = " | ".join(MARKS[outcome["status"]] for outcome in found["outcomes"])
        lines.append(f"| {one.name} | {store} | {marks} |")
    lines += ["", "✓ kept, ✗ not kept, – cannot be asked of this store. What was seen:", ""]
    for one, store, found in rows:
        for outcome in found["outcomes"]:
            if outcome["status"] != "passed":
                why = "".join(char if char.isprintable() else " " for char in outcome["why"]).rstrip(".")
                lines.append(f"- {one.name}, {store}, {outcome['check']}: {MARKS[outcome['status']]} {why}.")
    lines += ["", "### What it costs", ""]
    depths = " | ".join(f"append, {depth:,} deep, µs" for depth in DEPTHS)
    lines += [
        f"| framework | store | flushes per append | {depths} | read all {DEPTHS[-1]:,}, µs | bytes per message |"
    ]
    lines += ["|---|---|---|" + "---|" * (len(DEPTHS) + 2)]
    for one, store, found in rows:
        costs = found["costs"]
        numbers = [
            *(costs[f"append at {depth}"] for depth in DEPTHS),
            costs["read"],
            costs["bytes"] / costs["messages"],
        ]
        flushes = "not counted" if costs["flushes"] is None else f"{costs['flushes']:g}"
        lines.append(f"| {one.name} | {store} | {flushes} | {' | '.join(f'{number:,.0f}' for number in numbers)} |")
    measured = [one for one in FRAMEWORKS if one.extra in results]
    versions = ", ".join(f"{one.package} {results[one.extra]['version']}" for one in measured)
    kills = min(results[one.extra]["kills"] for one in measured)
    machines = sorted({"Python {python} on {system}, {cores} cores".format_map(results[one.extra]) for one in measured})
    lines += [
        "",
        f"{'; '.join(machines)} that other work shared.",
        f"{versions}.",
        f"Messages of {len(TEXT):,} characters; µs of CPU of the process, the median of {SAMPLES} appends and 5 reads.",
        "The two stores of a framework were measured in one process, in turn, in one run.",
        f"Bytes are the blocks that the files take. At least {kills} kills in each check of crashes.",
    ]
    if missing := [one.name for one in FRAMEWORKS if one.extra not in results]:
        lines += ["", f"Not measured yet: {', '.join(missing)}."]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.comparison")
    parser.add_argument("--only", action="append", choices=[one.extra for one in FRAMEWORKS], help="may be repeated")
    parser.add_argument("--kills", type=int, default=10, help="how often to kill a writer in each check (default 10)")
    given = parser.parse_args()
    results: dict[str, Any] = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else {}
    for one in FRAMEWORKS:
        if given.only and one.extra not in given.only:
            continue
        try:
            results[one.extra] = try_framework(one, given.kills)
        except InvalidArgument as error:
            sys.stdout.write(f"{one.name}: {error}\n")
            continue
        sys.stdout.write(f"{one.name}: measured\n")
        sys.stdout.flush()
        RESULTS.write_text(json.dumps(results, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    PAGE.write_text(f"{before}{BEGIN}\n\n{tables(results)}\n\n{END}{rest.partition(END)[2]}", encoding="utf-8")


if __name__ == "__main__":
    main()
