"""One `nacre serve` for clients that nobody here wrote, each in a process of its own, from packages of their own."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.daemons import TOKEN, configure, daemon
from tests.everyday.model import Call, Model, Reply, Request, text_of

SCRIPTS = Path(__file__).parent / "scripts"
PYTHON = Path(__file__).parents[2] / ".venv" / "clients" / "bin" / "python"
PACKAGES = ("ai@6.0.326", "@ai-sdk/openai@3.0.139", "@ai-sdk/openai-compatible@2.0.87", "zod@4.6.7")
PATIENCE = 300
OSLO = '{"city": "Oslo", "people": 700000}'
# They would otherwise tell their makers that they were used, or fetch lists of models and prices.
QUIET = {
    "DO_NOT_TRACK": "1",
    "AI_SDK_TELEMETRY_DISABLED": "1",
    "ANONYMIZED_TELEMETRY": "False",
    "LANGCHAIN_TRACING_V2": "false",
    "LANGSMITH_TRACING": "false",
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    "LITELLM_TELEMETRY": "False",
    "OPENAI_AGENTS_DISABLE_TRACING": "1",
    "OTEL_SDK_DISABLED": "true",
    "NO_PROXY": "127.0.0.1",
    # Whoever tries to reach the world outside fails at once.
    "HTTPS_PROXY": "http://127.0.0.1:9",
}

Run = Callable[[str], Any]


def answer(request: Request) -> Reply:
    """A model that calls the tool it is offered, and gives a JSON value only once it was told what is wrong."""
    asked = "\n".join(text_of(message) for message in request.messages)
    is_told = request.last["role"] == "tool" or "<tool_response" in asked
    if "weather" in request.tools and not is_told:
        return [Call("weather", {"city": "Oslo"})]
    if "Answer with a call of one of these tools" in asked:
        return [Call(next(iter(request.tools)), json.loads(OSLO))]
    if "Answer with one JSON value" in asked:
        return OSLO if "Answer again" in asked else "Oslo, with 700,000 people."
    if is_told:
        return f"The tool says: {request.said}"
    if any(message.get("images") for message in request.messages):
        return "an image"
    said = [text_of(message) for message in request.messages if message["role"] == "user"]
    return ["You said: ", " / ".join(said)]


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """What a client needs to know of the server."""
    room = tmp_path_factory.mktemp("clients")
    configure(room, "[agent]\nonly = []\ntitles = false\n[memory]\nenabled = false\n")
    with Model(answer) as model, daemon(room, OLLAMA_HOST=model.host) as served:
        (room / "llm").mkdir()
        yield {
            **{name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ},
            **QUIET,
            "HOME": str(room / "home"),
            "LLM_USER_PATH": str(room / "llm"),
            "CLIENT_URL": f"{served.url.rstrip('/')}/v1",
            "CLIENT_TOKEN": TOKEN,
        }


@pytest.fixture
def python(environment: dict[str, str]) -> Run:
    """Run a script with the clients' own packages; what it found."""
    if not PYTHON.exists():
        pytest.skip("the clients are not installed: make .venv/clients/.installed")
    return lambda name: _found([str(PYTHON), str(SCRIPTS / name)], environment)


@pytest.fixture
def node(environment: dict[str, str], request: pytest.FixtureRequest) -> Run:
    """Run a script with the packages of npm; what it found."""
    if shutil.which("npm") is None:
        pytest.skip("there is no npm here")
    room = _installed(request.config)

    def run(name: str) -> Any:
        shutil.copy(SCRIPTS / name, room / name)
        return _found(["node", str(room / name)], environment)

    return run


def _found(command: list[str], environment: dict[str, str]) -> Any:
    done = subprocess.run(
        command,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return json.loads(done.stdout.splitlines()[-1])


def _installed(config: pytest.Config) -> Path:
    """Install the packages once for all runs and all workers of a run."""
    assert config.cache is not None
    room = Path(config.cache.mkdir("ai-sdk-6.0.326"))
    with (room / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (room / "installed").exists():
            command = ["npm", "install", "--silent", "--no-audit", "--no-fund", "--prefix", str(room), *PACKAGES]
            try:
                done = subprocess.run(command, capture_output=True, text=True, timeout=180, check=False)
            except subprocess.TimeoutExpired:
                pytest.skip("the AI SDK could not be installed: npm took more than 180 seconds")
            if done.returncode != 0:
                pytest.skip(f"the AI SDK could not be installed: {done.stderr.strip()[-200:]}")
            (room / "installed").touch()
    return room
