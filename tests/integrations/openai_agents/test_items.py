"""Items are restored as they were given, and read as a conversation by everybody else."""

from __future__ import annotations

import asyncio
import copy
from typing import Any

import pytest
from agents import SQLiteSession
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import nacre
from nacre.history.pairing import pair
from nacre.integrations.openai_agents import NAME, NacreSession, to_item, to_messages

ITEMS: dict[str, Any] = {
    "input": {"role": "user", "content": "hello"},
    "typed input": {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "be brief"}]},
    "several parts": {
        "role": "user",
        "content": [{"type": "input_text", "text": "what is it?"}, {"type": "input_image", "image_url": "https://x/y"}],
    },
    "output": {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "status": "completed",
        "phase": "final_answer",
        "content": [{"type": "output_text", "text": "hi", "annotations": [], "logprobs": []}],
    },
    "refusal": {"type": "message", "role": "assistant", "content": [{"type": "refusal", "refusal": "no"}]},
    "no content": {"role": "assistant", "content": None},
    "strange content": {"role": "assistant", "content": 7},
    "call": {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "ls", "arguments": "{}", "status": "x"},
    "result": {"type": "function_call_output", "call_id": "c1", "output": "a.py"},
    "result of parts": {
        "type": "function_call_output",
        "call_id": "c1",
        "output": [{"type": "input_text", "text": "a.py"}],
    },
    "custom call": {"type": "custom_tool_call", "id": "x", "call_id": "c2", "name": "py", "input": "1+1"},
    "custom result": {"type": "custom_tool_call_output", "call_id": "c2", "output": "2"},
    "computer": {"type": "computer_call", "id": "cu", "call_id": "c3", "action": {"type": "click"}, "status": "done"},
    "screenshot": {
        "type": "computer_call_output",
        "call_id": "c3",
        "output": {"type": "computer_screenshot", "image_url": "data:image/png;base64,YWJj"},
    },
    "shell": {"type": "shell_call", "call_id": "c4", "action": {"commands": ["ls"]}},
    "shell result": {"type": "shell_call_output", "call_id": "c4", "output": [{"stdout": "a", "stderr": ""}]},
    "reasoning": {"type": "reasoning", "id": "rs", "summary": [{"type": "summary_text", "text": "hm"}]},
    "web": {"type": "web_search_call", "id": "ws", "status": "completed", "action": {"type": "search", "query": "q"}},
    "files": {"type": "file_search_call", "id": "fs", "queries": ["q"], "results": None, "status": "completed"},
    "compaction": {"type": "compaction", "id": "cmp", "encrypted_content": "abc"},
    "reference": {"type": "item_reference", "id": "msg_1"},
    "envelope": {"__enc__": 1, "v": 1, "kid": "k", "payload": "abc"},
    "our name": {"role": "user", "content": "x", NAME: {"part": 1}},
    "our words": {"type": "function_call_output", "call_id": "c", "output": "x", "screenshot": {}, "is_json": 1},
    "no object": ["x", 1],
    "surrogate": {"role": "user", "content": "\ud800"},
    "huge": {"type": "x", "number": 10**30},
}

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(st.characters(codec=None)),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
names = st.sampled_from(
    ["role", "type", "content", "call_id", "name", "arguments", "output", "input", "id", "part", "item", "json", NAME]
)
words = st.sampled_from(
    ["user", "tool", "", "message", "function_call", "shell_call", "shell_call_output", "reasoning"]
)
near_items = st.dictionaries(names, words | json_values, max_size=6)
spoilt_items = st.builds(lambda item, more: {**item, **more}, st.sampled_from(list(ITEMS.values())[:24]), near_items)
any_item = st.sampled_from(list(ITEMS.values())) | spoilt_items.filter(bool) | near_items | json_values


@pytest.mark.parametrize("name", ITEMS)
def test_each_kind_is_restored_from_a_store(name: str) -> None:
    async def run(sessions: nacre.Sessions) -> None:
        session = NacreSession("s", sessions)
        await session.add_items([copy.deepcopy(ITEMS[name])])
        assert await session.get_items() == [ITEMS[name]]
        assert await session.get_items(1) == [ITEMS[name]]
        assert await session.get_items(1) == [ITEMS[name]]
        assert await session.pop_item() == ITEMS[name]

    with nacre.open(":memory:") as sessions:
        asyncio.run(run(sessions))


@settings(deadline=None, suppress_health_check=list(HealthCheck), max_examples=400)
@given(st.lists(any_item, max_size=4))
def test_any_json_is_restored(items: list[Any]) -> None:
    with nacre.open(":memory:") as sessions:
        sessions.add_messages("s", to_messages(copy.deepcopy(items)))
        assert [to_item(message) for message in sessions.get_history("s")] == items


def test_what_no_json_holds_is_refused_and_nothing_is_stored() -> None:
    items: list[Any] = [{"role": "user", "content": "x"}, {"type": object()}]
    with nacre.open(":memory:") as sessions:
        with pytest.raises(nacre.InvalidMessage):
            asyncio.run(NacreSession("s", sessions).add_items(items))
        assert not sessions.exists("s")


def test_others_read_a_conversation_with_paired_calls() -> None:
    kinds = ["input", "reasoning", "call", "custom call", "result", "custom result", "output"]
    shown = pair(to_messages([ITEMS[kind] for kind in kinds]))
    assert [(one.role, one.content, one.tool_call_id) for one in shown] == [
        ("user", "hello", None),
        ("assistant", "", None),
        ("tool", "a.py", "c1"),
        ("assistant", "", None),
        ("tool", "2", "c2"),
        ("assistant", "hi", None),
    ]


def test_texts_are_stored_once_and_plainly() -> None:
    output, call = to_messages([ITEMS["output"], ITEMS["call"]])
    assert (output.role, output.content) == ("assistant", "hi")
    assert "hi" not in repr(output.extra)
    assert [(one.id, one.name, one.arguments) for one in call.tool_calls] == [("c1", "ls", "{}")]


# ---- the same operations as SQLiteSession

operations = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.lists(any_item, max_size=3)),
        st.tuples(st.just("get"), st.sampled_from([None, -1, 0, 1, 2, 5, 50])),
        st.tuples(st.just("pop"), st.none()),
        st.tuples(st.just("clear"), st.none()),
    ),
    max_size=15,
)


@settings(deadline=None, suppress_health_check=list(HealthCheck), max_examples=150)
@given(operations)
def test_random_operations_give_what_sqlite_gives(steps: list[tuple[str, Any]]) -> None:
    async def run(sessions: nacre.Sessions) -> None:
        both: list[Any] = [NacreSession("s", sessions), SQLiteSession("s")]
        for step, value in [*steps, ("get", None)]:
            found = []
            for session in both:
                if step == "add":
                    await session.add_items(copy.deepcopy(value))
                elif step == "get":
                    found.append(await session.get_items(value))
                elif step == "pop":
                    found.append(await session.pop_item())
                else:
                    await session.clear_session()
            assert found[:1] == found[1:]
        both[1].close()

    with nacre.open(":memory:") as sessions:
        asyncio.run(run(sessions))
