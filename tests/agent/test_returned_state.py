"""What a server gives with a call to be returned: it survives the log, and comes back with the next request."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import anyio
import pytest

import nacre
from nacre.providers.openai import OpenAI
from tests.agent.scene import Echo, agent, said
from tests.ollama_server import Answer
from tests.providers.peers import replayed, sse

SIGNED = {"google": {"thought_signature": "c2ln"}}
THOUGHT = {"type": "reasoning.text", "text": "Hm.", "signature": "c2ln", "index": 0}
FUNCTION = {"name": "echo", "arguments": '{"x": "1"}'}
CALL = {"id": "c1", "type": "function", "function": FUNCTION}


def answered(**message: Any) -> Answer:
    finish = "tool_calls" if "tool_calls" in message else "stop"
    return Answer(chunks=[sse({"choices": [{"delta": message, "finish_reason": finish}]}, "[DONE]")])


@pytest.mark.parametrize(
    ("model", "message", "returned"),
    [
        ("gemini", {"tool_calls": [{**CALL, "extra_content": SIGNED}]}, {"extra_content": SIGNED}),
        ("claude", {"tool_calls": [CALL], "reasoning_details": [THOUGHT]}, {"reasoning_details": [THOUGHT]}),
        ("deepseek-chat", {"tool_calls": [CALL], "reasoning_content": "Hm."}, {"reasoning_content": "Hm."}),
    ],
    ids=["Gemini", "OpenRouter", "DeepSeek"],
)
def test_it_comes_back_within_the_turn_and_after_a_restart(
    root: Path, model: str, message: Mapping[str, Any], returned: Mapping[str, Any]
) -> None:
    requests: list[dict[str, Any]] = []

    async def say(words: str, *answers: Answer) -> None:
        async with replayed(*answers) as server:
            provider = OpenAI(model, base_url=server.host)
            sessions = nacre.open(root)
            await said(sessions, agent(provider, Echo()), words)
            sessions.close()
            await provider.close()
            requests.extend(body for _, body in server.requests)

    anyio.run(say, "go", answered(**message), answered(content="done"))
    anyio.run(say, "again", answered(content="done"))
    assert len(requests) == 3
    for request in requests[1:]:
        (call,) = (one for one in request["messages"] if one.get("tool_calls"))
        assert json.dumps(returned)[1:-1] in json.dumps(call)
