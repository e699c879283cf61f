"""How turns and the process end: why, with no call left open, and with nothing lost or left running."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from acp import schema

from tests.servers.acp.conftest import Place, run
from tests.servers.acp.test_turns import begin, stored

LIST = {"call": "list_files"}
SLEEP = {"call": "shell", "command": "sleep 1000"}
TASK = {"call": "delegate", "task": "Wait"}
SMALL = Path(__file__).parents[2] / "tools" / "mcp_small.py"


@pytest.mark.parametrize(
    ("script", "reason", "text"),
    [
        ([["Half of", {"finish": "length"}]], "max_tokens", "Half of"),
        ([[LIST], [LIST], ["Never asked."]], "max_turn_requests", "[stopped after 2 steps]"),
        # That the model would not go on does not make the session forget the prompt, as "refusal" says.
        ([["Half of", {"finish": "content_filter"}]], "end_turn", "Half of"),
        ([["All of it."]], "end_turn", "All of it."),
    ],
)
def test_why_a_turn_ended_is_told(place: Place, script: list[Any], reason: str, text: str) -> None:
    place.config.write_text(place.config.read_text().replace("[agent]\n", "[agent]\nmax_steps = 2\n"))
    place.model.script = script

    async def talk() -> None:
        async with place.editor() as editor:
            assert await editor.ask(await begin(editor, place), "go") == reason
            assert editor.text() == text

    run(talk())


def test_a_turn_that_repeats_what_fails_says_so(place: Place) -> None:
    place.model.script = [[{"call": "read_file", "path": "no"}]] * 3

    async def talk() -> None:
        async with place.editor() as editor:
            assert await editor.ask(await begin(editor, place), "go") == "end_turn"
            assert editor.text() == "[stopped: read_file failed 3 times in a row with the same arguments]"

    run(talk())


# Editor.ask checks that each call has an end.
@pytest.mark.parametrize("script", [[[SLEEP, LIST]], [[TASK], [SLEEP, LIST]]], ids=["own", "delegated"])
def test_a_turn_that_is_cancelled_leaves_no_call_open(place: Place, script: list[Any]) -> None:
    place.model.script = list(script)

    async def talk() -> None:
        async with place.editor() as editor:
            key = await begin(editor, place)
            turn = asyncio.create_task(editor.ask(key, "go"))
            await editor.until(lambda: [card.status for card in editor.cards.values()] == ["in_progress"] * len(script))
            await editor.agent.cancel(session_id=key)
            assert await turn == "cancelled"
            assert {card.status for card in editor.cards.values()} == {"failed"}
            assert "outcome unknown" in editor.of("tool_call_update")[-1].content[0].content.text

    run(talk())


def test_a_call_whose_question_is_cancelled_was_not_run(place: Place) -> None:
    place.model.script = [[SLEEP]]

    async def talk() -> None:
        async with place.editor() as editor:
            editor.answer = lambda call, options: "yes" if call.title.startswith("Trust") else None
            assert await editor.ask(await begin(editor, place), "go") == "cancelled"
            (card,) = editor.cards.values()
            assert (card.status, "not run" in card.content[0].content.text) == ("failed", True)

    run(talk())


@pytest.mark.parametrize("ending", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_ends_the_process_as_an_editor_that_is_gone(place: Place, ending: signal.Signals) -> None:
    never = threading.Event()
    place.model.script = [["Half ", {"wait": never}]]
    pid = place.root.parent / "pid"
    command = f"echo $$ > {pid}; exec {sys.executable} {SMALL}"
    server = schema.McpServerStdio(name="small", command="/bin/sh", args=["-c", command], env=[])

    async def talk() -> str:
        async with place.editor() as editor:
            key = (await editor.agent.new_session(cwd=str(place.folder), mcp_servers=[server])).session_id
            turn = asyncio.create_task(editor.ask(key, "one"))
            await editor.until(lambda: editor.text() == "Half ")
            editor.process.send_signal(ending)
            assert await asyncio.wait_for(editor.process.wait(), 30) == 0
            await asyncio.gather(turn, return_exceptions=True)
            assert await editor.process.stderr.read() == b""
            return str(key)

    key = run(talk())
    never.set()
    assert stored(place, key)[-1] == ("assistant", "Half\n\n[stopped by the user]")
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid.read_text()), 0)
