"""One conversation moves through several frameworks: each continues what the others said, and nothing is said twice."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import nacre
from tests.required import require_adapter

ROOT = Path(__file__).parents[2]
NAMES = {"openai-agents": "OpenAI", "langgraph": "LangGraph", "pydantic-ai": "Pydantic AI"}
TURNS = ["openai-agents", "langgraph", "pydantic-ai", "langgraph", "openai-agents", "pydantic-ai", "openai-agents"]


def take_turn(extra: str, place: Path, question: str, *, key: str = "chat") -> list[Any]:
    """One turn in the framework's own environment; what its model was shown last."""
    python = require_adapter(extra)
    script = ROOT / "tests" / "integrations" / "moving" / f"turn_{extra.replace('-', '_')}.py"
    run = subprocess.run([python, script, place, key, question], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    shown: list[Any] = json.loads(run.stdout)
    return shown


def turn_in(extra: str, question: str) -> list[Any]:
    """What a turn leaves behind for the next one."""
    call = ["assistant", "", ["clock"]]
    return [["user", question, []], call, ["tool", "noon", []], ["assistant", f"{NAMES[extra]}: {question}!", []]]


def test_a_conversation_moves_through_openai_agents_langgraph_and_pydantic_ai(tmp_path: Path) -> None:
    place = tmp_path / "store"
    expected: list[Any] = []
    for number, extra in enumerate(TURNS):
        expected += turn_in(extra, f"question {number}")
        assert take_turn(extra, place, f"question {number}") == expected[:-1], extra

    with nacre.open(place) as sessions:
        history = sessions.get_history("chat")
        assert [[it.role, it.content or "", [call.name for call in it.tool_calls]] for it in history] == expected
        calls = [call.id for it in history for call in it.tool_calls]
        assert calls == [it.tool_call_id for it in history if it.role == "tool"]
        assert len(set(calls)) == len(TURNS)
        assert sessions.verify("chat").ok
    shown = subprocess.check_output(
        [ROOT / ".venv" / "bin" / "nacre", "sessions", "show", "chat", "--store", place], text=True
    )
    for number, extra in enumerate(TURNS):
        assert shown.count(f"{NAMES[extra]}: question {number}!") == 1


def test_a_conversation_goes_on_under_the_key_of_another_framework_as_a_fork(tmp_path: Path) -> None:
    place = tmp_path / "store"
    turns = [("openai-agents", "telegram:42"), ("pydantic-ai", "shells/ann/42"), ("langgraph", "thread-1")]
    expected: list[Any] = []
    for number, (extra, key) in enumerate(turns):
        if number:
            with nacre.open(place) as sessions:
                sessions.fork(turns[number - 1][1], key)
        expected += turn_in(extra, f"question {number}")
        assert take_turn(extra, place, f"question {number}", key=key) == expected[:-1], extra

    with nacre.open(place) as sessions:
        # What it was forked from stays as it was.
        assert [len(sessions.get_history(key)) for _, key in turns] == [4, 8, 12]
        assert all(sessions.verify(key).ok for _, key in turns)
