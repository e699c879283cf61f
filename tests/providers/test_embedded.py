"""The embedded model, for real where it is installed; what it says is never looked at."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from nacre.agent.ports import Context, Event, Reply, Spec, Text
from nacre.cli import main
from nacre.codec import encode_message
from nacre.errors import ContextOverflow, ProviderError
from nacre.messages import Message, ToolCall
from nacre.providers import weights
from nacre.providers.embedded import Embedded, Settings, body, run_request
from tests.packages import only_installed

READ = Spec(
    name="read_file",
    description="Read a file.",
    parameters={"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]},
)
SMALL = Settings(context_size=512, max_tokens=16, threads=1)
HELLO = Context(system="You are kind.", messages=(Message(role="user", content="hello"),))
CALLED = Context(
    messages=(
        Message(role="user", content="Read a."),
        Message(
            role="assistant", content="", tool_calls=(ToolCall(id="c", name="read_file", arguments={"path": "a"}),)
        ),
        Message(role="tool", tool_call_id="c", name="read_file", content="milk"),
    ),
    tools=(READ,),
)


def is_installed() -> bool:
    return importlib.util.find_spec(weights.RUNTIME) is not None and bool(weights.version_of(weights.WEIGHTS))


real = pytest.mark.skipif(not is_installed(), reason="the embedded model is not installed: `nacre setup embedded`")


@asynccontextmanager
async def model(settings: Settings = SMALL) -> AsyncIterator[Embedded]:
    provider = Embedded(settings)
    try:
        yield provider
    finally:
        await provider.close()


def run(work: Callable[[Embedded], Awaitable[Any]], settings: Settings = SMALL) -> Any:
    """Do something with a fresh model."""

    async def doing() -> Any:
        async with model(settings) as provider:
            return await work(provider)

    return anyio.run(doing)


@real
def test_it_answers_in_pieces_with_usage() -> None:
    events: list[Event] = []

    async def ask(provider: Embedded) -> Sequence[Reply]:
        return [await provider.complete(HELLO, emit=events.append) for _ in range(2)]

    first, second = run(ask)
    shown = "".join(event.text for event in events if isinstance(event, Text))
    assert shown == first.message.content + second.message.content
    assert first.usage.prompt > 0
    assert 0 < first.usage.completion <= 16
    assert (first.message.role, first.message.model) == ("assistant", weights.NAME)


@real
def test_with_tools_it_answers_text_or_calls_that_follow_the_schema() -> None:
    async def ask(provider: Embedded) -> Sequence[Reply]:
        words = ("Read the file notes.txt", "<tool_call>")
        contexts = [Context(messages=(Message(role="user", content=text),), tools=(READ,)) for text in words]
        return [await provider.complete(context, emit=lambda _: None) for context in (*contexts, CALLED)]

    for reply in run(ask, Settings(context_size=512, max_tokens=40, threads=1)):
        encode_message(reply.message)
        assert "<tool_call>" not in reply.message.content
        for call in reply.message.tool_calls:
            assert call.name == "read_file"
            assert reply.finish == "calls"
            assert isinstance(call.arguments, str) or isinstance(call.arguments["path"], str)


@real
def test_a_context_that_is_too_long_is_its_own_error() -> None:
    async def ask(provider: Embedded) -> None:
        assert provider.context_size == 512
        long = Context(messages=(Message(role="user", content="word " * 2000),))
        with pytest.raises(ContextOverflow, match="too long"):
            await provider.complete(long, emit=lambda _: None)
        await provider.complete(HELLO, emit=lambda _: None)

    run(ask)


@real
def test_cancelling_frees_the_model_and_the_loop_goes_on_meanwhile() -> None:
    async def ask(provider: Embedded) -> None:
        endless = Context(messages=(Message(role="user", content="Write a very long story."),))
        begun = anyio.Event()
        async with anyio.create_task_group() as group:
            group.start_soon(lambda: provider.complete(endless, emit=lambda event: _note(event, begun)))
            with anyio.fail_after(30):
                await begun.wait()
            group.cancel_scope.cancel()
        with anyio.fail_after(30):
            await provider.complete(HELLO, emit=lambda _: None)

    run(ask, Settings(context_size=4096, max_tokens=4000, threads=1))


def _note(event: Event, begun: anyio.Event) -> None:
    if isinstance(event, Text):
        begun.set()


def test_a_cancelled_request_tells_the_model_to_stop() -> None:
    told: list[bool] = []

    def serve(_: dict[str, Any], came: Callable[[dict[str, Any]], bool]) -> None:
        piece = {"choices": [{"delta": {"content": "and "}}]}
        told.append(any(came(piece) for _ in range(100_000)))

    async def ask() -> None:
        with anyio.CancelScope() as scope:
            await run_request(serve, {}, lambda _: scope.cancel())

    anyio.run(ask)
    assert told == [True]


def test_a_failure_inside_the_model_is_an_error_of_the_provider() -> None:
    def serve(_: dict[str, Any], came: Callable[[dict[str, Any]], bool]) -> None:
        raise RuntimeError("no memory left")

    with pytest.raises(ProviderError, match="no memory left"):
        anyio.run(lambda: run_request(serve, {}, lambda _: None))


@real
def test_two_requests_at_once_are_answered_one_after_the_other() -> None:
    async def ask(provider: Embedded) -> int:
        replies: list[Reply] = []

        async def one() -> None:
            replies.append(await provider.complete(HELLO, emit=lambda _: None))

        async with anyio.create_task_group() as group:
            group.start_soon(one)
            group.start_soon(one)
        return len(replies)

    assert run(ask) == 2


@real
def test_weights_that_cannot_be_loaded_are_an_error_with_a_remedy(tmp_path: Path) -> None:
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(b"GGUF nothing")
    with pytest.raises(ProviderError, match="nacre setup embedded"):
        run(lambda provider: provider.complete(HELLO, emit=lambda _: None), Settings(path=str(broken), threads=1))


def test_missing_packages_are_an_error_with_the_command_that_brings_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ProviderError, match="run `nacre setup embedded`"):
        run(lambda provider: provider.complete(HELLO, emit=lambda _: None))
    only_installed(monkeypatch)
    with pytest.raises(ProviderError, match="run `nacre setup embedded`"):
        weights.path()


def test_importing_it_loads_no_model_code() -> None:
    code = "import sys, nacre.providers.embedded; sys.exit('xllamacpp' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_the_grammar_is_given_only_with_tools() -> None:
    assert "grammar" not in body(HELLO, (), SMALL)
    assert '{"const":"read_file"}' in body(HELLO, (READ,), SMALL)["grammar"]


# ---- nacre setup embedded


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """A machine without the packages, on which commands are noted instead of run."""
    commands: list[list[str]] = []

    def noted(command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        commands.append(command)
        return subprocess.CompletedProcess(command, 1, "WARNING: x\nERROR: No matching distribution found", "")

    only_installed(monkeypatch)
    monkeypatch.setattr(subprocess, "run", noted)
    return commands


def test_a_dry_run_only_says_what_would_be_installed(bare: list[list[str]], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["setup", "embedded", "--dry-run"]) == 0
    said = capsys.readouterr().out
    assert f"{weights.RUNTIME}=={weights.RUNTIME_VERSION} would be installed" in said
    assert f"{weights.WEIGHTS}=={weights.WEIGHTS_VERSION} would be installed" in said
    assert bare == []


def test_packages_are_installed_with_digests_and_without_what_they_ask_for(bare: list[list[str]]) -> None:
    assert main(["setup", "embedded"]) == 1
    assert bare[0][-4:-1] == ["--no-deps", "--require-hashes", "-r"]
    assert main(["setup", "embeddings"]) == 1
    assert bare[1][-2:] == ["--no-deps", "numpy"]


def test_an_installer_that_fails_is_told_with_its_reason(
    bare: list[list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["setup", "embedded"]) == 1
    said = capsys.readouterr().err
    assert "could not be installed: ERROR: No matching distribution found" in said
    assert "the package index can be reached" in said


def test_without_an_installer_it_says_how_to_get_one(
    bare: list[list[str]], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr("shutil.which", lambda name: None)
    assert main(["setup", "embedded"]) == 1
    assert "ensurepip" in capsys.readouterr().err


def test_weights_of_other_bytes_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    other = tmp_path / "other.gguf"
    other.write_bytes(b"GGUF")
    versions = {weights.RUNTIME: weights.RUNTIME_VERSION, weights.WEIGHTS: weights.WEIGHTS_VERSION}
    only_installed(monkeypatch, versions, folder=tmp_path)
    assert main(["setup", "embedded"]) == 6
    assert "the expected checksum" in capsys.readouterr().err


@real
def test_where_everything_is_there_it_checks_and_tries(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["setup", "embedded"]) == 0
    captured = capsys.readouterr()
    assert captured.out == f"{weights.NAME} is installed. It is a toy: do not rely on what it says.\n"
    assert captured.err.endswith("Try it: nacre chat -m embedded\n")
