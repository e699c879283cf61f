"""What a program is shown whose framework is not installed: the command that installs it."""

from __future__ import annotations

import re
import sys
from importlib import import_module

import pytest


@pytest.mark.parametrize(
    ("adapter", "package", "extra"),
    [
        ("adk", "google", "adk"),
        ("agent_framework", "agent_framework", "agent-framework"),
        ("claude_agent", "claude_agent_sdk", "claude-agent"),
        ("langgraph", "langchain_core", "langgraph"),
        ("llama_index", "llama_index", "llama-index"),
        ("openai_agents", "agents", "openai-agents"),
        ("pydantic_ai", "pydantic_ai", "pydantic-ai"),
        ("strands", "strands", "strands"),
    ],
)
def test_an_adapter_without_its_framework_names_the_command_that_installs_it(
    adapter: str, package: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    said = re.escape(f' is not installed: pip install "nacre-sessions[{extra}]"')
    with pytest.raises(ModuleNotFoundError, match=rf"^\w+(\.\w+)*{said}$"):
        import_module(f"nacre.integrations.{adapter}")
