"""The examples run as they are, with scripted models, and say that nothing was lost."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.required import require_adapter

ROOT = Path(__file__).parents[1]
EXAMPLES = ROOT / "examples"
LOOPS = sorted(EXAMPLES.glob("loops/*.py"))
ADAPTERS = sorted(EXAMPLES.glob("adapters/*.py"))

# Examples of a framework that has no adapter of its own name, and the environment that has what they import.
ELSEWHERE = {"langchain_history": "langgraph"}
# What would make an example ask a real model, or write where a person keeps sessions.
REAL = ("MODEL", "NACRE_HOME", "OLLAMA_HOST", "OPENAI_API_KEY", "OPENAI_BASE_URL")


def run(python: str, example: Path, home: Path) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if name not in REAL}
    # A proxy that refuses everything but this machine: an example that asks the network fails, here as elsewhere.
    nowhere = dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"), "http://127.0.0.1:9")
    here = {"HOME": str(home), "NACRE_HOME": str(home / "nacre"), "NO_PROXY": "127.0.0.1", "no_proxy": "127.0.0.1"}
    return subprocess.run(
        [python, "-W", "error::ResourceWarning", str(example)],
        cwd=home,
        env=environment | nowhere | here,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def test_the_demo_kills_a_writer_and_finds_everything(tmp_path: Path) -> None:
    ended = run(sys.executable, EXAMPLES / "demo.py", tmp_path)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert "200 of 200 acknowledged messages are there" in ended.stdout
    assert "✗" not in ended.stdout


@pytest.mark.parametrize("loop", LOOPS, ids=lambda path: path.stem)
def test_a_loop_runs_without_network_and_keys(loop: Path, tmp_path: Path) -> None:
    ended = run(sys.executable, loop, tmp_path)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("loop", "line"),
    [
        ("openai_loop", "4 messages are stored in 1 session"),
        ("ollama_loop", "4 messages are stored in 1 session"),
        ("tools_loop", "tool: 2 lines"),
        ("retries_loop", "record 3, assistant: Nacre is mother-of-pearl."),
        ("retries_loop", "delivery 3 of update-1001: Nacre is mother-of-pearl."),
        ("truncation_loop", "the model sees 4 messages and the summary 'They asked what nacre is.'"),
    ],
)
def test_a_loop_says_what_it_stored(loop: str, line: str, tmp_path: Path) -> None:
    ended = run(sys.executable, EXAMPLES / "loops" / f"{loop}.py", tmp_path)
    assert line in ended.stdout.splitlines()


@pytest.mark.parametrize("adapter", ADAPTERS, ids=lambda path: path.stem)
def test_the_example_of_an_adapter_runs_in_its_environment(adapter: Path, tmp_path: Path) -> None:
    extra = ELSEWHERE.get(adapter.stem, adapter.stem).replace("_", "-")
    ended = run(str(require_adapter(extra)), adapter, tmp_path)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert ended.stdout


def test_the_page_on_examples_names_every_one_and_no_other() -> None:
    named = {
        line.split("](")[1].split(")")[0] for line in (EXAMPLES / "README.md").read_text().splitlines() if "](" in line
    }
    assert {name for name in named if name.endswith(".py")} == {
        str(path.relative_to(EXAMPLES)) for path in EXAMPLES.rglob("*.py")
    }
