"""NacreSessionStore: the SDK's own suite, and entries that are read again as they were, whatever happens."""

from __future__ import annotations

import asyncio
import gc
import json
import re
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from concurrent.futures import wait
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from threading import Event
from typing import Any, cast
from uuid import uuid4

import pytest
from claude_agent_sdk import (
    SessionKey,
    delete_session_via_store,
    fork_session_via_store,
    get_session_messages_from_store,
    list_sessions_from_store,
    project_key_for_directory,
    rename_session_via_store,
)
from claude_agent_sdk.testing import run_session_store_conformance
from hypothesis import given, settings
from hypothesis import strategies as st

import nacre
from nacre.integrations.claude_agent import NacreSessionStore
from tests.event_loop import assert_loop_goes_on, async_methods

ID = "0f8fad5b-d9cb-469f-a165-70867728950e"
KEY: SessionKey = {"project_key": "-home-me-shells", "session_id": ID}
NAME = f"-home-me-shells/{ID}"


def run(test: Coroutine[Any, Any, Any]) -> Any:
    return asyncio.run(test)


def entry(uuid: str, content: Any, *, role: str = "user", parent: str | None = None, **more: Any) -> Any:
    message: dict[str, Any] = {"role": role, "content": content}
    if role == "assistant":
        message |= {"model": "claude-x", "id": f"msg_{uuid}", "usage": {"input_tokens": 3}, "stop_reason": None}
    about = {"parentUuid": parent, "sessionId": ID, "isSidechain": False, "timestamp": "2026-01-02T03:04:05.678Z"}
    return {"type": role, "uuid": uuid, **about, "message": message, **more}


CALL = {"type": "tool_use", "id": "toolu_1", "name": "Bash", "input": {"command": "ls"}, "caller": {"type": "direct"}}
TURN = [
    {"type": "queue-operation", "operation": "enqueue", "timestamp": "2026-01-02T03:04:05.000Z", "sessionId": ID},
    entry("u1", "Which files are here?", cwd="/home/me/shells", gitBranch="main"),
    entry("a1", [{"type": "thinking", "thinking": "I look.", "signature": "s1"}], role="assistant", parent="u1"),
    entry("a2", [{"type": "text", "text": "Let me see."}, CALL], role="assistant", parent="a1"),
    entry(
        "u2",
        [
            {"type": "tool_result", "tool_use_id": "toolu_1", "content": "a.py", "is_error": False},
            {"type": "tool_result", "tool_use_id": "toolu_2", "content": [{"type": "text", "text": "no"}]},
            {"type": "text", "text": "Go on."},
        ],
        parent="a2",
        toolUseResult={"stdout": "a.py"},
    ),
    entry("a3", [{"type": "text", "text": "There is a.py."}], role="assistant", parent="u2"),
    {"type": "custom-title", "customTitle": "Files", "sessionId": ID},
]


# ---- the SDK's own suite


@pytest.mark.parametrize("kind", ["sessions", "async sessions"])
def test_the_suite_of_the_sdk(kind: str, tmp_path: Path, place_kind: str, request: pytest.FixtureRequest) -> None:
    async def main() -> None:
        async with AsyncExitStack() as stack:
            number = 0

            async def make() -> NacreSessionStore:
                nonlocal number
                number += 1
                place = ":memory:"
                if place_kind == "files":
                    place = str(tmp_path / str(number))
                elif place_kind == "postgres":
                    place = request.getfixturevalue("emptied_store").empty()
                if kind == "async sessions":
                    return NacreSessionStore(await stack.enter_async_context(nacre.open_async(place)))
                return NacreSessionStore(stack.enter_context(nacre.open(place)))

            await run_session_store_conformance(make)
            # One to look at, and one for each of the 14 contracts.
            assert number == 15

    run(main())


@pytest.fixture(params=["files", "ram", "postgres"])
def place_kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


# ---- what is stored


@asynccontextmanager
async def opened(place: str) -> AsyncIterator[tuple[NacreSessionStore, nacre.AsyncSessions]]:
    async with nacre.open_async(place) as sessions:
        yield NacreSessionStore(sessions), sessions


def with_store(place: str, test: Callable[[NacreSessionStore, nacre.AsyncSessions], Awaitable[Any]]) -> Any:
    async def main() -> Any:
        async with opened(place) as (store, sessions):
            return await test(store, sessions)

    return run(main())


def test_a_turn_is_read_again_and_is_a_conversation(place: str) -> None:
    async def test(store: NacreSessionStore, sessions: nacre.AsyncSessions) -> None:
        await store.append(KEY, TURN)
        assert await store.load(KEY) == TURN
        history = await sessions.get_history(NAME)
        said = [(one.role, one.content, [call.name for call in one.tool_calls], one.tool_call_id) for one in history]
        assert said == [
            ("user", "Which files are here?", [], None),
            ("assistant", None, [], None),
            ("assistant", "Let me see.", ["Bash"], None),
            ("tool", "a.py", [], "toolu_1"),
            ("tool", [{"type": "text", "text": "no"}], [], "toolu_2"),
            ("user", "Go on.", [], None),
            ("assistant", "There is a.py.", [], None),
        ]
        assert (history[1].reasoning, history[1].model) == ("I look.", "claude-x")
        assert history[2].tool_calls[0].arguments == {"command": "ls"}
        meta = await sessions.get_meta(NAME)
        assert (meta["title"], meta["cwd"]) == ("Files", "/home/me/shells")

    with_store(place, test)


def test_the_command_line_shows_the_conversation(tmp_path: Path) -> None:
    place = str(tmp_path / "store")
    with_store(place, lambda store, _: store.append(KEY, TURN))
    command = [sys.executable, "-m", "nacre", "sessions", "show", "--", NAME]
    shown = subprocess.run(command, env={"NACRE_HOME": place, "PATH": ""}, capture_output=True, text=True, check=True)
    for words in ("Which files are here?", "Let me see.", "Bash", "a.py", "There is a.py."):
        assert words in shown.stdout
    assert "queue-operation" not in shown.stdout


def test_no_text_is_stored_twice(root: Path) -> None:
    with_store(str(root), lambda store, _: store.append(KEY, TURN))
    logs = b"".join(path.read_bytes() for path in root.rglob("*") if path.is_file())
    assert logs.count(b"There is a.py.") == 1
    assert logs.count(b"toolu_2") == 1


names = st.sampled_from(["type", "text", "id", "name", "content", "uuid", "message", "part", "whole", "json", "x"])
plain = st.none() | st.booleans() | st.integers(-(2**80), 2**80) | st.floats(allow_nan=False) | st.text()
values = st.recursive(plain, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3))
surrogates = st.text(st.characters(codec=None, categories=("L", "Cs")), max_size=4)
blocks = st.one_of(
    st.builds(
        lambda text, more: {**more, "type": "text", "text": text}, st.text() | surrogates | st.none(), st.just({})
    ),
    st.builds(lambda text, sign: {"type": "thinking", "thinking": text, "signature": sign}, st.text(), st.text()),
    st.builds(lambda one, given: {"type": "tool_use", "id": one, "name": "ls", "input": given}, st.text(), values),
    st.builds(lambda one, content: {"type": "tool_result", "tool_use_id": one, "content": content}, st.text(), values),
    st.just({"type": "tool_result", "tool_use_id": "t"}),
    st.just({"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aGk="}}),
    st.dictionaries(names, values, max_size=4),
)
times = st.sampled_from(["2026-01-02T03:04:05.678Z", "2026-01-02T03:04:05Z", "2026-01-02", "soon", None, 5])
entries = st.one_of(
    st.builds(
        lambda role, content, time, more: {
            "type": role,
            "timestamp": time,
            **more,
            "message": {"role": role, "content": content, "model": "m"},
        },
        st.sampled_from(["user", "assistant"]),
        st.lists(blocks, max_size=4) | st.text() | surrogates | values,
        times,
        st.dictionaries(names.filter(lambda name: name not in ("type", "uuid")), values, max_size=3),
    ),
    st.builds(lambda kind, fields: {**fields, "type": kind}, st.text(), st.dictionaries(st.text(), values, max_size=3)),
)


@given(st.lists(entries, min_size=1, max_size=5))
@settings(max_examples=400)
def test_every_entry_is_read_again_as_it_was(given_entries: list[Any]) -> None:
    for number, one in enumerate(given_entries):
        one["uuid"] = str(number)

    async def test(store: NacreSessionStore, _: nacre.AsyncSessions) -> None:
        await store.append(KEY, given_entries)
        loaded = await store.load(KEY)
        assert json.dumps(loaded, sort_keys=True) == json.dumps(given_entries, sort_keys=True)

    with_store(":memory:", test)


def test_half_of_a_surrogate_pair_is_kept_and_the_rest_can_be_read(place: str) -> None:
    cut = entry("u1", "cut here: \ud83d")

    async def test(store: NacreSessionStore, sessions: nacre.AsyncSessions) -> None:
        await store.append(KEY, [cut])
        assert await store.load(KEY) == [cut]
        assert [one.content for one in await sessions.get_history(NAME)] == ["cut here: \ufffd"]

    with_store(place, test)


def test_long_texts_and_deep_values(place: str) -> None:
    deep: Any = "x"
    for _ in range(300):
        deep = [deep]
    given_entries = [entry("u1", "ü" * 1_000_000), entry("u2", ""), entry("u3", [], deep=deep)]

    async def test(store: NacreSessionStore, _: nacre.AsyncSessions) -> None:
        await store.append(KEY, given_entries)
        assert await store.load(KEY) == given_entries

    with_store(place, test)


# ---- retries


def test_a_known_uuid_is_stored_once_however_batches_are_cut(place: str) -> None:
    async def test(store: NacreSessionStore, _: nacre.AsyncSessions) -> None:
        said = [entry(f"u{number}", str(number)) for number in range(6)]
        await store.append(KEY, said[:3])
        await store.append(KEY, said[:3])
        await store.append(KEY, said[2:5])
        await store.append(KEY, [said[0], said[5], said[5]])
        await store.append(KEY, [entry("u1", "other words")])
        assert await store.load(KEY) == said

    with_store(place, test)


def test_a_uuid_is_known_after_thousands_of_entries_and_by_another_process(lasting_place: str) -> None:
    said = [entry(f"u{number}", "x") for number in range(5000)]

    async def begin(store: NacreSessionStore, _: nacre.AsyncSessions) -> None:
        for start in range(0, len(said), 500):
            await store.append(KEY, said[start : start + 500])

    async def again(store: NacreSessionStore, _: nacre.AsyncSessions) -> None:
        await store.append(KEY, [said[3], entry("new", "y")])
        assert await store.load(KEY) == [*said, entry("new", "y")]

    with_store(lasting_place, begin)
    with_store(lasting_place, again)


def test_what_has_no_uuid_is_stored_each_time(place: str) -> None:
    async def test(store: NacreSessionStore, _: nacre.AsyncSessions) -> None:
        title: Any = {"type": "custom-title", "customTitle": "Files"}
        await store.append(KEY, [title])
        await store.append(KEY, [title])
        assert await store.load(KEY) == [title, title]

    with_store(place, test)


def test_calls_at_once_are_stored_in_their_order(place: str) -> None:
    async def test(store: NacreSessionStore, _: nacre.AsyncSessions) -> None:
        said = [entry(f"u{number}", str(number)) for number in range(40)]
        await asyncio.gather(*(store.append(KEY, [one]) for one in said))
        assert await store.load(KEY) == said
        [summary] = await store.list_session_summaries("-home-me-shells")
        assert summary["data"]["first_prompt"] == "0"

    with_store(place, test)


def answered(id: str) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": id, "content": f"result of {id}"}


TWO_CALLS = [
    entry("u1", "Which files are here?"),
    entry("a1", [CALL, {**CALL, "id": "toolu_2"}], role="assistant", parent="u1"),
    entry("u2", [answered("toolu_1"), answered("toolu_2")], parent="a1"),
    entry("a2", [{"type": "text", "text": "There is a.py."}], role="assistant", parent="u2"),
    entry("u3", "Thanks.", parent="a2"),
]


@pytest.mark.parametrize("erased", range(6))
def test_what_is_left_after_erasing_is_one_chain_with_a_result_for_each_call(erased: int, place: str) -> None:
    async def test(store: NacreSessionStore, sessions: nacre.AsyncSessions) -> None:
        await store.append(KEY, TWO_CALLS)
        await sessions.redact(NAME, (await sessions.snapshot(NAME)).numbers[erased])
        loaded: list[Any] = await store.load(KEY) or []

        assert [one["parentUuid"] for one in loaded] == [None, *(one["uuid"] for one in loaded[:-1])]
        contents = [one["message"]["content"] for one in loaded]
        blocks = [block for content in contents if isinstance(content, list) for block in content]
        assert [block["id"] for block in blocks if block["type"] == "tool_use"] == ["toolu_1", "toolu_2"]
        results = [block["tool_use_id"] for block in blocks if block["type"] == "tool_result"]
        assert results == ["toolu_1", "toolu_2"]
        assert await store.load(KEY) == loaded

    with_store(place, test)


FORK = "0f8fad5b-d9cb-469f-a165-70867728950f"
CALL_OF_OTHERS = nacre.ToolCall(id="c1", name="ls", arguments={})
RESULT_OF_OTHERS = nacre.Message(role="tool", tool_call_id="c1", content="a.py")


@pytest.mark.parametrize(
    ("change", "left"),
    [
        ("say nothing", "Hello, a call, its result, Own 1, And then?, Own 2, Own 3"),
        ("erase 2", "[erased], a call, its result, Own 1, And then?, Own 2, Own 3"),
        ("erase 3", "Hello, a call, its result, Own 1, And then?, Own 2, Own 3"),
        ("erase 4", "Hello, a call, its result, Own 1, And then?, Own 2, Own 3"),
        ("erase 5", "Hello, a call, its result, [erased], And then?, Own 2, Own 3"),
        ("erase 7", "Hello, a call, its result, Own 1, [erased], Own 2, Own 3"),
        ("erase 8", "Hello, a call, its result, Own 1, And then?, [erased], Own 3"),
        ("truncate", "Own 1, And then?, Own 2, Own 3"),
        ("fork", "Hello, a call, its result, Own 1, And then?, Own 2, Own 3"),
        ("archive", "Hello, a call, its result, Own 1, And then?, Own 2, Own 3"),
    ],
)
def test_the_sdk_finds_the_whole_conversation_after_others_have_written_and_changed_it(
    change: str, left: str, place: str, tmp_path: Path
) -> None:
    """What the CLI has appended is linked to what was loaded before."""

    def show(message: dict[str, Any]) -> str:
        block = message["content"] if isinstance(message["content"], str) else message["content"][0]
        words = {"tool_use": "a call", "tool_result": "its result"}
        return str(block if isinstance(block, str) else words.get(block["type"]) or block["text"])

    async def test(store: NacreSessionStore, sessions: nacre.AsyncSessions) -> None:
        key: SessionKey = {"project_key": project_key_for_directory(str(tmp_path)), "session_id": ID}
        name = f"{key['project_key']}/{ID}"

        async def append(text: str) -> None:
            loaded: list[Any] = await store.load(key) or []
            await store.append(key, [entry(str(uuid4()), text, parent=loaded[-1]["uuid"])])

        await sessions.add_message(name, "user", "Hello")
        await sessions.add_full_message(name, nacre.Message(role="assistant", tool_calls=(CALL_OF_OTHERS,)))
        # The result comes while the CLI goes on from what stands for it.
        loaded: list[Any] = await store.load(key) or []
        await sessions.add_full_message(name, RESULT_OF_OTHERS)
        await store.append(key, [entry(str(uuid4()), "Own 1", parent=loaded[-1]["uuid"])])
        await sessions.add_message(name, "user", "And then?")
        await append("Own 2")
        await append("Own 3")
        before = [one["uuid"] for one in await store.load(key) or [] if one["uuid"][14] == "5"]
        if change.startswith("erase"):
            await sessions.redact(name, int(change.removeprefix("erase ")))
        elif change == "truncate":
            await sessions.update(name, [nacre.Truncate(4)])
        elif change == "fork":
            await sessions.fork(name, f"{key['project_key']}/{FORK}")
        elif change == "archive":
            await sessions.archive(name)
            await sessions.unarchive(name)
        id = FORK if change == "fork" else ID
        found = await get_session_messages_from_store(store, id, directory=str(tmp_path))
        assert ", ".join(show(one.message) for one in found) == left
        after = [one["uuid"] for one in await store.load(key) or []]
        assert [uuid for uuid in before if uuid in after] == (before[3:] if change == "truncate" else before)

    with_store(place, test)


def test_an_entry_keeps_its_parent_as_long_as_that_is_there(place: str) -> None:
    async def test(store: NacreSessionStore, sessions: nacre.AsyncSessions) -> None:
        await sessions.add_message(NAME, "user", "Hello")
        loaded: list[Any] = await store.load(KEY) or []
        # The CLI goes on from what it has loaded.
        await sessions.add_message(NAME, "user", "And then?")
        own = entry("u1", "Own", parent=loaded[0]["uuid"])
        await store.append(KEY, [own])
        assert (await store.load(KEY) or [])[2:] == [own]

    with_store(place, test)


def test_what_others_wrote_is_not_stored_again_when_it_is_sent_as_it_was_loaded(place: str) -> None:
    async def test(store: NacreSessionStore, sessions: nacre.AsyncSessions) -> None:
        for text in ("one", "two"):
            await sessions.add_message(NAME, "user", text)
        loaded: list[Any] = await store.load(KEY) or []
        await sessions.redact(NAME, 2)
        await store.append(KEY, loaded)
        assert len(await store.load(KEY) or []) == 2
        await store.append(KEY, [*loaded, entry("u1", "three", parent=loaded[-1]["uuid"])])
        history = await sessions.get_history(NAME)
        assert [one.content for one in history] == ["", "two", "three"]

    with_store(place, test)


def test_a_session_that_another_deletes_meanwhile_begins_again_with_every_entry(root: Path) -> None:
    class OneByOne(nacre.Sessions):
        def submit(self, *given: Any, **named: Any) -> Any:
            future = super().submit(*given, **named)
            # The next one does not share its batch.
            wait([future])
            return future

    async def main() -> None:
        with nacre.open(root) as sessions, nacre.open(root) as others:
            sessions.__class__ = OneByOne
            store = NacreSessionStore(sessions)
            await store.append(KEY, [entry("u1", "erased")])
            await NacreSessionStore(others).delete(KEY)
            said = [entry("u2", "one"), entry("u3", "two")]
            await store.append(KEY, said)
            found = await store.load(KEY)
            assert found is not None
            assert [one["uuid"] for one in found] == ["u2", "u3"]

    run(main())


def test_an_archived_transcript_begins_again_and_takes_the_same_entries(place: str) -> None:
    agent: SessionKey = {**KEY, "subpath": "subagents/agent-1"}

    async def test(store: NacreSessionStore, sessions: nacre.AsyncSessions) -> None:
        await store.append(KEY, TURN)
        await store.append(agent, TURN)
        await sessions.archive(NAME)
        await sessions.archive(f"{NAME}/subagents/agent-1")
        assert await store.load(KEY) is None
        assert await store.list_sessions(KEY["project_key"]) == []
        await store.append(KEY, TURN[1:2])
        await store.append(KEY, TURN[1:3])
        assert await store.load(KEY) == TURN[1:3]
        [summary] = await store.list_session_summaries(KEY["project_key"])
        assert "custom_title" not in summary["data"]
        assert (await sessions.get_meta(NAME))["keep_ids"] is True
        await store.delete(KEY)
        assert not await sessions.exists(f"{NAME}/subagents/agent-1")

    with_store(place, test)


# ---- several processes

WRITER = """
import asyncio, sys, nacre
from nacre.integrations.claude_agent import NacreSessionStore
place, who, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
key = {"project_key": "p", "session_id": "s"}
async def main():
    async with nacre.open_async(place) as sessions:
        store = NacreSessionStore(sessions)
        for number in range(count):
            said = [{"type": "user", "uuid": f"{who}-{number}-{part}", "message": {"role": "user", "content": who}}
                    for part in range(3)]
            await store.append(key, [*said, {"type": "custom-title", "customTitle": f"{who} {number}"}])
            print(number, flush=True)
asyncio.run(main())
"""
SHARED: SessionKey = {"project_key": "p", "session_id": "s"}


def test_two_processes_lose_nothing_and_the_summary_is_that_of_the_entries(lasting_place: str) -> None:
    with_store(lasting_place, lambda store, _: store.append({"project_key": "q", "session_id": "s"}, TURN))
    writers = [
        subprocess.Popen([sys.executable, "-c", WRITER, lasting_place, who, "25"], stdout=subprocess.DEVNULL)
        for who in ("a", "b")
    ]
    assert [writer.wait() for writer in writers] == [0, 0]

    async def test(store: NacreSessionStore, _: nacre.AsyncSessions) -> None:
        loaded: Any = await store.load(SHARED)
        assert len(loaded) == 2 * 25 * 4
        for who in ("a", "b"):
            own = [one["uuid"] for one in loaded if one.get("uuid", "").startswith(who)]
            assert own == [f"{who}-{number}-{part}" for number in range(25) for part in range(3)]
        titles = [one["customTitle"] for one in loaded if one["type"] == "custom-title"]
        for _again in range(2):
            [summary] = await store.list_session_summaries("p")
            assert summary["data"]["custom_title"] == titles[-1]
            assert summary["data"]["first_prompt"] == loaded[0]["message"]["content"]

    with_store(lasting_place, test)


SENDER = """
import asyncio, sys, nacre
from nacre.integrations.claude_agent import NacreSessionStore
place, size = sys.argv[1], int(sys.argv[2])
key = {"project_key": "p", "session_id": "s"}
said = [{"type": "user", "uuid": f"u{n}", "message": {"role": "user", "content": str(n)}} for n in range(120)]
async def main():
    async with nacre.open_async(place) as sessions:
        store = NacreSessionStore(sessions)
        for start in range(0, len(said), size):
            # Each batch begins with the end of the one before.
            await store.append(key, said[max(start - 2, 0) : start + size])
asyncio.run(main())
"""


def test_two_processes_that_send_the_same_entries_store_them_once_in_their_order(lasting_place: str) -> None:
    with_store(lasting_place, lambda store, _: store.append({"project_key": "q", "session_id": "s"}, TURN))
    senders = [subprocess.Popen([sys.executable, "-c", SENDER, lasting_place, size]) for size in ("3", "5")]
    assert [sender.wait() for sender in senders] == [0, 0]

    async def test(store: NacreSessionStore, _: nacre.AsyncSessions) -> None:
        loaded: Any = await store.load(SHARED)
        assert [one["uuid"] for one in loaded] == [f"u{n}" for n in range(120)]
        await store.append(SHARED, loaded[50:])
        assert await store.load(SHARED) == loaded

    with_store(lasting_place, test)


def test_a_killed_process_loses_nothing_that_was_acknowledged(lasting_place: str) -> None:
    for round_number in range(3):
        command = [sys.executable, "-c", WRITER, lasting_place, f"r{round_number}", "100000"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as writer:
            assert writer.stdout is not None
            lines = [writer.stdout.readline() for _ in range(7 + 5 * round_number)]
            writer.kill()
            acknowledged = [*lines, *writer.stdout.readlines()]
        last = int([line for line in acknowledged if line.endswith("\n")][-1])

        async def test(
            store: NacreSessionStore, _: nacre.AsyncSessions, last: int = last, who: str = f"r{round_number}"
        ) -> None:
            loaded: Any = await store.load(SHARED)
            own = [one["uuid"] for one in loaded if one.get("uuid", "").startswith(f"{who}-")]
            assert own[: 3 * last + 3] == [f"{who}-{number}-{part}" for number in range(last + 1) for part in range(3)]
            titles = [one["customTitle"] for one in loaded if one["type"] == "custom-title"]
            [summary] = await store.list_session_summaries("p")
            assert summary["data"]["custom_title"] == titles[-1]
            # The retry of a batch, of which perhaps a part was stored.
            again: Any = [
                {"type": "user", "uuid": f"{who}-{last + 1}-{part}", "message": {"role": "user", "content": who}}
                for part in range(3)
            ]
            await store.append(SHARED, again)
            loaded = await store.load(SHARED)
            own = [one["uuid"] for one in loaded if one.get("uuid", "").startswith(f"{who}-")]
            assert own == [f"{who}-{number}-{part}" for number in range(last + 2) for part in range(3)]

        with_store(lasting_place, test)


# ---- listings, as the SDK reads them


def test_the_functions_of_the_sdk_that_use_a_store(place: str, tmp_path: Path) -> None:
    async def test(store: NacreSessionStore, _: nacre.AsyncSessions) -> None:
        key: SessionKey = {"project_key": project_key_for_directory(str(tmp_path)), "session_id": ID}
        uuids = {name: str(uuid4()) for name in ("u1", "a1", "a2", "u2", "a3")}
        turn = json.loads(json.dumps(TURN))
        for one in turn:
            for field in ("uuid", "parentUuid"):
                if one.get(field):
                    one[field] = uuids[one[field]]
        await store.append(key, turn)
        directory = str(tmp_path)
        [info] = await list_sessions_from_store(store, directory=directory)
        assert (info.session_id, info.summary, info.first_prompt) == (ID, "Files", "Which files are here?")
        messages = await get_session_messages_from_store(store, ID, directory=directory)
        assert [one.type for one in messages] == ["user", "assistant", "assistant", "user", "assistant"]
        await rename_session_via_store(store, ID, "Shells", directory=directory)
        [info] = await list_sessions_from_store(store, directory=directory)
        assert info.summary == "Shells"
        forked = await fork_session_via_store(store, ID, directory=directory)
        assert len(await get_session_messages_from_store(store, forked.session_id, directory=directory)) == 5
        await delete_session_via_store(store, ID, directory=directory)
        assert [one.session_id for one in await list_sessions_from_store(store, directory=directory)] == [
            forked.session_id
        ]

    with_store(place, test)


def test_a_summary_is_made_again_after_others_have_changed_the_session(place: str) -> None:
    async def test(store: NacreSessionStore, sessions: nacre.AsyncSessions) -> None:
        await store.append(KEY, TURN)
        await sessions.set_meta(NAME, title="My own title")
        await store.append(KEY, [entry("u9", "More?", parent="a3", gitBranch="other")])
        [summary] = await store.list_session_summaries(KEY["project_key"])
        assert summary["data"]["git_branch"] == "other"
        assert (await sessions.get_meta(NAME))["title"] == "My own title"
        before = (await sessions.snapshot(NAME)).n
        await store.list_session_summaries(KEY["project_key"])
        assert (await sessions.snapshot(NAME)).n == before

    with_store(place, test)


def test_projects_and_ids_with_any_characters_are_kept_apart(place: str) -> None:
    async def test(store: NacreSessionStore, _: nacre.AsyncSessions) -> None:
        parts = [("a/b", "c"), ("a", "b/c"), ("a%2Fb", "c"), ("a", "b%"), ("ä: ", "\U0001f41a"), ("a", "b")]
        for project, session in parts:
            await store.append({"project_key": project, "session_id": session}, [entry(project, session)])
        await store.append({"project_key": "a", "session_id": "b", "subpath": "c"}, [entry("sub", "sub")])
        for project, session in parts:
            loaded = await store.load({"project_key": project, "session_id": session})
            assert loaded == [entry(project, session)]
        listed = {project: await store.list_sessions(project) for project, _ in parts}
        found = {(project, one["session_id"]) for project, some in listed.items() for one in some}
        assert found == set(parts)
        assert await store.list_subkeys({"project_key": "a", "session_id": "b"}) == ["c"]

    with_store(place, test)


def test_what_others_wrote_is_loaded_as_linked_entries(place: str) -> None:
    async def test(store: NacreSessionStore, sessions: nacre.AsyncSessions) -> None:
        call = {"id": "c1", "type": "function", "function": {"name": "ls", "arguments": "{}"}}
        await sessions.add_messages(
            NAME,
            [
                {"role": "user", "content": "Hello"},
                {"role": "assistant", "content": None, "tool_calls": [call]},
                {"role": "tool", "tool_call_id": "c1", "content": "a.py"},
            ],
        )
        await store.append(KEY, [entry("u1", "Own")])
        loaded: Any = await store.load(KEY)
        assert [one["type"] for one in loaded] == ["user", "assistant", "user", "user"]
        assert loaded[1]["message"]["content"][0]["name"] == "ls"
        assert loaded[2]["message"]["content"][0]["type"] == "tool_result"
        assert [one["parentUuid"] for one in loaded[:3]] == [None, loaded[0]["uuid"], loaded[1]["uuid"]]
        assert loaded[3] == entry("u1", "Own")
        assert await store.load(KEY) == loaded

    with_store(place, test)


def test_what_others_wrote_has_a_time_and_is_the_end_of_the_conversation(place: str) -> None:
    """The CLI leaves out entries without a time, and those after the end that a `last-prompt` names."""
    prompt = {"type": "last-prompt", "leafUuid": "u1", "sessionId": "s"}

    async def test(store: NacreSessionStore, sessions: nacre.AsyncSessions) -> None:
        key: Any = {"project_key": "p", "session_id": "s"}
        own = [prompt, entry("u1", "hi"), prompt]
        await store.append(key, own)
        assert await store.load(key) == own
        await sessions.add_message("p/s", "user", "and then?")
        await sessions.add_message("p/s", "assistant", "the end")
        loaded: list[Any] = await store.load(key) or []
        assert [one["type"] for one in loaded] == ["user", "user", "assistant"]
        times = [one["timestamp"] for one in loaded[1:]]
        assert times == sorted(set(times))
        assert all(re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", time) for time in times)
        # What the CLI appends next is the end again.
        await store.append(key, [cast("Any", {**prompt, "leafUuid": "u2"})])
        assert cast("Any", await store.load(key))[-1]["leafUuid"] == "u2"

    with_store(place, test)


# ---- at the door


@pytest.mark.parametrize(
    "key",
    [
        {"project_key": "", "session_id": "s"},
        {"project_key": "p", "session_id": ""},
        {"project_key": "p", "session_id": 5},
        {"project_key": "p"},
        {"project_key": "p", "session_id": "s", "subpath": ""},
        {"project_key": "p", "session_id": "s" * 2000},
        {"project_key": "nacre:memory", "session_id": "s"},
        "p/s",
    ],
)
def test_a_wrong_key_is_refused(key: Any) -> None:
    async def test(store: NacreSessionStore, _: nacre.AsyncSessions) -> None:
        with pytest.raises(nacre.InvalidArgument):
            await store.append(key, [entry("u1", "Hello")])

    with_store(":memory:", test)


def test_wrong_sessions_and_entries_are_refused() -> None:
    with pytest.raises(nacre.InvalidArgument, match="sessions must be"):
        NacreSessionStore("sessions")  # type: ignore[arg-type]

    async def test(store: NacreSessionStore, _: nacre.AsyncSessions) -> None:
        for wrong in ("text", [entry("u1", "x"), "text"]):
            with pytest.raises(nacre.InvalidArgument):
                await store.append(KEY, wrong)  # type: ignore[arg-type]
        assert await store.load(KEY) is None

    with_store(":memory:", test)


LOADED: SessionKey = {"project_key": "p", "session_id": "s"}
LONG = [entry("u1", [{"type": "text", "text": str(n)} for n in range(1000)])]
# The last one is refused, so the store is not called for each of them.
MANY: Any = [*(entry(f"u{n}", str(n)) for n in range(1000)), "text"]
AWAITED: dict[str, Callable[[NacreSessionStore], Awaitable[Any]]] = {
    "append": lambda store: store.append(KEY, LONG),
    "append many": lambda store: refused(store.append(KEY, MANY)),
    "load": lambda store: store.load(LOADED),
    "list_sessions": lambda store: store.list_sessions("p"),
    "list_session_summaries": lambda store: store.list_session_summaries("p"),
    "list_subkeys": lambda store: store.list_subkeys({"project_key": "p", "session_id": "s"}),
    "delete": lambda store: store.delete(LOADED),
}


async def refused(call: Awaitable[Any]) -> None:
    with pytest.raises(nacre.InvalidMessage):
        await call


def fill(sessions: nacre.Sessions) -> None:
    sessions.add_messages("p/s", [{"role": "user", "content": "hello"}] * 1000)
    for n in range(5):
        sessions.add_message(f"p/{n}", "user", "hello")
        sessions.add_message(f"p/s/{n}", "user", "hello")


@pytest.mark.parametrize("method", AWAITED)
def test_no_call_blocks_the_event_loop(method: str) -> None:
    assert_loop_goes_on(fill, lambda sessions: AWAITED[method](NacreSessionStore(sessions)), most=500)


def test_every_method_is_tried_in_the_event_loop() -> None:
    assert async_methods(NacreSessionStore) == {name.split()[0] for name in AWAITED}


class Held(nacre.AsyncSessions):
    """Sessions in memory whose first work waits in its thread, and may then fail."""

    calls = 0
    begun: Event
    gate: Event
    fails: bool

    @classmethod
    def of_memory(cls, *, fails: bool = False) -> Held:
        sessions = nacre.AsyncSessions.of(nacre.open(":memory:"))
        sessions.__class__ = cls
        assert isinstance(sessions, cls)
        sessions.begun, sessions.gate, sessions.fails = Event(), Event(), fails
        return sessions

    async def call(self, work: Callable[[nacre.Sessions], Any]) -> Any:
        self.calls += 1
        is_first = self.calls == 1

        def hold(plain: nacre.Sessions) -> Any:
            if is_first:
                self.begun.set()
                self.gate.wait(20)
                if self.fails:
                    raise nacre.StoreError("a full disk")
            return work(plain)

        return await super().call(hold)

    async def cancel_first(self, call: Coroutine[Any, Any, None]) -> None:
        """Cancel a call while it works in its thread; the caller does not wait for it."""
        first = asyncio.create_task(call)
        assert await asyncio.to_thread(self.begun.wait, 20)
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first

    async def call_next(self, call: Coroutine[Any, Any, None]) -> None:
        """Make the call that comes after the cancelled one, which goes on only when this one waits."""
        second = asyncio.create_task(call)
        # It has every chance to overtake: it would begin its work in the first of these.
        for _ in range(10):
            await asyncio.sleep(0)
        assert self.calls == 1
        self.gate.set()
        await second


@pytest.mark.parametrize("fails", [False, True])
def test_an_append_that_is_cancelled_does_not_come_after_the_next(fails: bool) -> None:
    """The SDK gives an append a time limit, and goes on with the next batch."""

    async def main() -> None:
        sessions = Held.of_memory(fails=fails)
        store = NacreSessionStore(sessions)
        unhandled: list[Any] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: unhandled.append(context))
        await sessions.cancel_first(store.append(KEY, [entry("u1", "one")]))
        await sessions.call_next(store.append(KEY, [entry("u2", "two")]))
        found = await store.load(KEY)
        assert found is not None
        assert [one["uuid"] for one in found] == (["u2"] if fails else ["u1", "u2"])
        gc.collect()
        assert unhandled == []
        sessions.blocking.close()

    run(main())


AGENT: SessionKey = {**KEY, "subpath": "subagents/agent-1"}


@pytest.mark.parametrize(("first", "then"), [(KEY, KEY), (AGENT, AGENT), (AGENT, KEY)])
def test_what_was_deleted_after_a_cancelled_append_does_not_come_back(first: SessionKey, then: SessionKey) -> None:
    async def main() -> None:
        sessions = Held.of_memory()
        await sessions.cancel_first(NacreSessionStore(sessions).append(first, [entry("u1", "one")]))
        # Programs make a store where they need one.
        await sessions.call_next(NacreSessionStore(sessions).delete(then))
        assert await NacreSessionStore(sessions).load(first) is None
        sessions.blocking.close()

    run(main())


def test_what_was_appended_after_a_cancelled_delete_is_there() -> None:
    async def main() -> None:
        sessions = Held.of_memory()
        store = NacreSessionStore(sessions)
        sessions.blocking.add_message(NAME, "user", "deleted")
        await sessions.cancel_first(store.delete(KEY))
        await sessions.call_next(store.append(KEY, [entry("u1", "one")]))
        assert await store.load(KEY) == [entry("u1", "one")]
        sessions.blocking.close()

    run(main())


def test_an_event_loop_does_not_end_before_a_cancelled_append() -> None:
    begun, gate = Event(), Event()

    class HeldInside(nacre.Sessions):
        def snapshot(self, key: str, *, last: int | None = None) -> nacre.Snapshot:
            if not begun.is_set():
                begun.set()
                gate.wait(20)
            return super().snapshot(key, last=last)

    async def append(sessions: nacre.Sessions) -> None:
        appending = asyncio.create_task(NacreSessionStore(sessions).append(KEY, [entry("u1", "one")]))
        assert await asyncio.to_thread(begun.wait, 20)
        appending.cancel()
        asyncio.get_running_loop().call_later(0.1, gate.set)

    async def delete(sessions: nacre.Sessions) -> None:
        await NacreSessionStore(sessions).delete(KEY)

    with nacre.open(":memory:") as sessions:
        sessions.__class__ = HeldInside
        run(append(sessions))
        assert sessions.exists(NAME)
        run(delete(sessions))
        assert not sessions.exists(NAME)
