"""The same conversation through every provider, native and prompted, leaves the same log but for ids and times."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import anyio
import pytest

import nacre
from nacre.agent.ports import Provider
from nacre.providers.anthropic import Anthropic
from nacre.providers.ollama import Ollama
from nacre.providers.openai import OpenAI
from nacre.providers.scripted import Call, Scripted
from nacre.providers.text_tools.provider import TextToolProvider
from tests.agent.scene import Echo, agent, said
from tests.ollama_server import Answer, called, done
from tests.ollama_server import said as spoken
from tests.providers.peers import replayed, sse

BEFORE, AFTER = "Let me look.", "It snows."
CITIES = ("Oslo", "Rome")
ASKED = [f'<tool_call>{{"name": "echo", "arguments": {{"x": "{city}"}}}}</tool_call>' for city in CITIES]


def ollama_native() -> list[Answer]:
    calls = [called("echo", {"x": city}) for city in CITIES]
    return [Answer(chunks=(spoken(BEFORE), *calls, done())), Answer(chunks=(spoken(AFTER), done()))]


def openai_native() -> list[Answer]:
    calls = [
        {
            "index": at,
            "id": f"c{at}",
            "type": "function",
            "function": {"name": "echo", "arguments": json.dumps({"x": x})},
        }
        for at, x in enumerate(CITIES)
    ]
    return [_openai({"content": BEFORE, "tool_calls": calls}, "tool_calls"), _openai({"content": AFTER}, "stop")]


def anthropic_native() -> list[Answer]:
    return [_anthropic([BEFORE, *({"x": city} for city in CITIES)], "tool_use"), _anthropic([AFTER], "end_turn")]


def _openai(delta: Mapping[str, Any], reason: str) -> Answer:
    pieces: list[Mapping[str, Any] | str] = [
        {"id": "r", "choices": [{"index": 0, "delta": delta}]},
        {"id": "r", "choices": [{"index": 0, "delta": {}, "finish_reason": reason}]},
        {"id": "r", "choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 4}},
        "[DONE]",
    ]
    return Answer(chunks=(sse(*pieces),), headers={"content-type": "text/event-stream"})


def _anthropic(parts: Sequence[Any], reason: str) -> Answer:
    events: list[Mapping[str, Any]] = [{"type": "message_start", "message": {"id": "m", "usage": {"input_tokens": 3}}}]
    for at, part in enumerate(parts):
        text = isinstance(part, str)
        block = (
            {"type": "text", "text": ""} if text else {"type": "tool_use", "id": f"t{at}", "name": "echo", "input": {}}
        )
        delta = (
            {"type": "text_delta", "text": part}
            if text
            else {"type": "input_json_delta", "partial_json": json.dumps(part)}
        )
        events.append({"type": "content_block_start", "index": at, "content_block": block})
        events.append({"type": "content_block_delta", "index": at, "delta": delta})
        events.append({"type": "content_block_stop", "index": at})
    events.append({"type": "message_delta", "delta": {"stop_reason": reason}, "usage": {"output_tokens": 4}})
    events.append({"type": "message_stop"})
    return Answer(chunks=(sse(*events),), headers={"content-type": "text/event-stream"})


def ollama(address: str, tools: Any = "native") -> Provider:
    return Ollama("test", host=address, num_ctx=4096, tools=tools)


def openai(address: str) -> Provider:
    return OpenAI("test", base_url=f"{address}/v1", key="k")


def anthropic(address: str) -> Provider:
    return Anthropic("test", base_url=address, key="k")


TEXT = f"{BEFORE}\n{''.join(ASKED)}"
WAYS: dict[str, tuple[Callable[[str], Provider], list[Answer]]] = {
    "ollama": (ollama, ollama_native()),
    "openai": (openai, openai_native()),
    "anthropic": (anthropic, anthropic_native()),
    "ollama, prompted": (
        lambda address: ollama(address, "prompted"),
        [Answer(chunks=(spoken(TEXT), done())), Answer(chunks=(spoken(AFTER), done()))],
    ),
    "openai, prompted": (
        lambda address: TextToolProvider(openai(address)),
        [_openai({"content": TEXT}, "stop"), _openai({"content": AFTER}, "stop")],
    ),
    "anthropic, prompted": (
        lambda address: TextToolProvider(anthropic(address)),
        [_anthropic([TEXT], "end_turn"), _anthropic([AFTER], "end_turn")],
    ),
}


def entries(root: Path) -> list[tuple[str, Any]]:
    """What the log holds, without ids, times and counts of tokens."""
    with nacre.open(root) as sessions:
        return [(entry.kind, _bare(entry.kind, entry.data)) for entry in sessions.records("k")][1:]


def _bare(kind: str, data: Any) -> Any:
    if kind == "use":
        return data["model"]
    bare = {name: value for name, value in data.items() if name not in ("created", "tool_call_id", "call")}
    if "tool_calls" in bare:
        bare["tool_calls"] = [{name: call[name] for name in ("name", "arguments")} for call in bare["tool_calls"]]
    return bare


@pytest.fixture(scope="module")
def scripted(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[str, Any]]:
    root = tmp_path_factory.mktemp("scripted")
    model = Scripted([[BEFORE, *(Call("echo", {"x": city}) for city in CITIES)], AFTER], model="test")
    with nacre.open(root) as sessions:
        anyio.run(said, sessions, agent(model, Echo()), "How is the weather?")
    return entries(root)


@pytest.mark.parametrize("way", WAYS)
def test_the_log_is_the_same(way: str, root: Path, scripted: list[tuple[str, Any]]) -> None:
    make, answers = WAYS[way]

    async def play() -> None:
        async with replayed(*answers) as server:
            provider = make(server.host)
            with nacre.open(root) as sessions:
                await said(sessions, agent(provider, Echo()), "How is the weather?")
            await provider.close()

    anyio.run(play)
    assert entries(root) == scripted
    assert [kind for kind, _ in scripted] == ["msg", "msg", "use", "tool", "tool", "msg", "msg", "msg", "use"]
