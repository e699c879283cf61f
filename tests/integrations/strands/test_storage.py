"""Snapshots of Strands in nacre: agents go on where they were, and what the file storage says, this one says too."""

from __future__ import annotations

import asyncio
import copy
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strands import Agent, tool
from strands.agent.conversation_manager import SlidingWindowConversationManager
from strands.models.model import Model
from strands.multiagent import GraphBuilder
from strands.session.snapshot_session_manager import SnapshotSessionManager
from strands.storage import LocalFileStorage
from strands.storage.storage import Storage
from strands.types.exceptions import StorageError

import nacre
from nacre.integrations.strands import InvalidStorageKey, NacreStorage
from tests.event_loop import assert_loop_goes_on, async_methods

LATEST = "session/s1/scopes/agent/a/snapshots/snapshot_latest.json"


class Scripted(Model):
    """A model that says what is in its script: a text, the call of a tool, or a redaction."""

    def __init__(self, *script: Any) -> None:
        self.script = list(script)

    def update_config(self, **model_config: Any) -> None: ...

    def get_config(self) -> Any:
        return {}

    def structured_output(self, *args: Any, **named: Any) -> Any:
        raise NotImplementedError

    async def stream(self, *args: Any, **named: Any) -> AsyncIterator[Any]:
        said = self.script.pop(0)
        yield {"messageStart": {"role": "assistant"}}
        if isinstance(said, dict):
            yield said
            said = "Blocked."
        is_call = said == "look"
        yield {"contentBlockStart": {"start": {"toolUse": {"name": said, "toolUseId": "c1"}} if is_call else {}}}
        yield {"contentBlockDelta": {"delta": {"toolUse": {"input": "{}"}} if is_call else {"text": said}}}
        yield {"contentBlockStop": {}}
        yield {"messageStop": {"stopReason": "tool_use" if is_call else "end_turn"}}


@tool
def look() -> str:
    """List the files."""
    return "a.py"


def agent(storage: Storage, *script: Any, save: Any = "message", session: str = "s1", **named: Any) -> Agent:
    trigger = named.pop("trigger", None)
    manager = SnapshotSessionManager(session, storage=storage, save_latest_on=save, snapshot_trigger=trigger)
    named.setdefault("agent_id", "a")
    return Agent(model=Scripted(*script), session_manager=manager, tools=[look], callback_handler=None, **named)


def texts(messages: Any) -> list[str]:
    return [block.get("text", next(iter(block))) for message in messages for block in message["content"]]


def contents(sessions: nacre.Sessions, key: str = "s1") -> list[Any]:
    return [message.content for message in sessions.get_history(key)]


def snapshot(*messages: Any, **state: Any) -> bytes:
    value = {"scope": "agent", "schema_version": "1.0", "created_at": "then"}
    data = {"messages": list(messages), "state": state}
    return json.dumps({**value, "data": data, "app_data": {}}, ensure_ascii=False).encode()


def said(text: str, id: str | None = None, role: str = "user") -> dict[str, Any]:
    return {"role": role, "content": [{"text": text}], **({"tracking_id": id} if id else {})}


# ---- the session manager end to end


def test_an_agent_goes_on_where_it_was(lasting_place: str) -> None:
    with nacre.open(lasting_place) as sessions:
        first = agent(NacreStorage(sessions), "look", "One.", "Bye.", state={"n": 1})
        first("Which files?")
        first.state.set("n", 2)
        first("Bye")
        before = copy.deepcopy(first.messages)
    with nacre.open(lasting_place) as sessions:
        second = agent(NacreStorage(sessions), "Still one.")
        assert second.messages == before
        assert second.state.get("n") == 2
        second("And now?")
        # What is stored is a conversation, and each message is stored once.
        assert [(one.role, one.content, one.tool_call_id) for one in sessions.get_history("s1")] == [
            ("user", "Which files?", None),
            ("assistant", None, None),
            ("tool", "a.py", "c1"),
            ("assistant", "One.", None),
            ("user", "Bye", None),
            ("assistant", "Bye.", None),
            ("user", "And now?", None),
            ("assistant", "Still one.", None),
        ]
        assert len(sessions.transcript("s1")) == 8
        assert all("json" not in one.extra["strands"] for one in sessions.get_history("s1"))


def test_checkpoints_share_their_messages_and_can_be_restored(place: str) -> None:
    with nacre.open(place) as sessions:
        one = agent(NacreStorage(sessions), "a0", "a1", "a2", "b", trigger=lambda **_: True)
        manager: Any = one._session_manager
        for n in range(3):
            one(f"q{n}")
        assert len(sessions.transcript("s1")) == 6
        ids = asyncio.run(manager.list_snapshot_ids(one))
        assert len(ids) == 3
        assert asyncio.run(manager.restore_snapshot(one, snapshot_id=ids[0]))
        assert texts(one.messages) == ["q0", "a0"]
        one("other")
        assert contents(sessions) == ["q0", "a0", "other", "b"]
        assert asyncio.run(manager.restore_snapshot(one, snapshot_id=ids[2]))
        assert texts(one.messages) == ["q0", "a0", "q1", "a1", "q2", "a2"]
        asyncio.run(manager.delete_session())
        assert list(sessions.list()) == []


def test_the_window_slides_and_the_history_stays(place: str) -> None:
    def window() -> SlidingWindowConversationManager:
        return SlidingWindowConversationManager(window_size=4)

    with nacre.open(place) as sessions:
        one = agent(NacreStorage(sessions), *(f"a{n}" for n in range(5)), conversation_manager=window())
        for n in range(5):
            one(f"q{n}")
        again = agent(NacreStorage(sessions), conversation_manager=window())
        assert again.messages == one.messages
        assert texts(again.messages) == ["q3", "a3", "q4", "a4"]
        assert contents(sessions) == [text for n in range(5) for text in (f"q{n}", f"a{n}")]
        assert len(sessions.transcript("s1")) == 10


def test_what_a_guardrail_redacts_is_erased(lasting_place: str) -> None:
    redaction = {"redactContent": {"redactUserContentMessage": "Redacted input."}}
    with nacre.open(lasting_place) as sessions:
        one = agent(NacreStorage(sessions), "Hello.", redaction, "Go on.")
        for text in ("Hi", "My password is swordfish", "Sorry"):
            one(text)
        assert contents(sessions) == ["Hi", "Hello.", "Redacted input.", "Blocked.", "Sorry", "Go on."]
        assert "swordfish" not in str(sessions.transcript("s1"))
        assert agent(NacreStorage(sessions)).messages == one.messages
    if Path(lasting_place).is_dir():
        stored = b"".join(path.read_bytes() for path in Path(lasting_place).rglob("*") if path.is_file())
        assert b"swordfish" not in stored


@pytest.mark.parametrize("save", ["message", "invocation"])
@pytest.mark.parametrize("erased", range(6))
def test_an_agent_that_is_running_does_not_store_again_what_was_erased(erased: int, save: Any, place: str) -> None:
    with nacre.open(place) as sessions:
        one = agent(NacreStorage(sessions), "look", "Said once.", "And more.", "Bye.", save=save)
        one("Tell me of swordfish")
        one("What else?")
        sessions.redact("s1", sessions.snapshot("s1").numbers[erased])
        expected = contents(sessions)
        one("Bye")
        assert contents(sessions) == [*expected, "Bye", "Bye."]
        # Nothing was stored twice.
        assert len(sessions.transcript("s1")) == 8
        again = agent(NacreStorage(sessions), "Hm.", save=save)
        assert str(again.messages).count("'[erased]'") == 1
        again("Still there?")
        assert contents(sessions) == [*expected, "Bye", "Bye.", "Still there?", "Hm."]


WORDS = [said("q0", "t0"), said("secret", "t1", "assistant"), said("q2", "t2"), said("a3", "t3", "assistant")]


def write_and_erase(sessions: nacre.Sessions) -> None:
    asyncio.run(NacreStorage(sessions).write(LATEST, snapshot(*WORDS)))
    sessions.redact("s1", sessions.snapshot("s1").numbers[1])


def stored_texts(sessions: nacre.Sessions) -> list[str]:
    found = asyncio.run(NacreStorage(sessions).read(LATEST))
    return texts(json.loads(found or b"")["data"]["messages"])


@pytest.mark.parametrize("before", [[], [WORDS[:1]], [WORDS[2:]], [[said("summary", "t9"), *WORDS[2:]]], [[]]])
def test_what_was_erased_stays_so_whatever_becomes_of_the_history(before: list[Any], place: str) -> None:
    with nacre.open(place) as sessions:
        write_and_erase(sessions)
        # Somebody else meanwhile has written another snapshot.
        for given in before:
            asyncio.run(NacreStorage(sessions).write(LATEST, snapshot(*given)))
        for more in (1, 2):
            new = [said("new", f"n{number}") for number in range(more)]
            asyncio.run(NacreStorage(sessions).write(LATEST, snapshot(*WORDS, *new)))
            assert stored_texts(sessions) == ["q0", "[erased]", "q2", "a3", *["new"] * more]
        assert "secret" not in str(sessions.transcript("s1"))


def test_what_was_erased_stays_so_after_the_session_was_archived(place: str) -> None:
    with nacre.open(place) as sessions:
        write_and_erase(sessions)
        sessions.archive("s1")
        asyncio.run(NacreStorage(sessions).write(LATEST, snapshot(*WORDS)))
        assert stored_texts(sessions) == ["q0", "[erased]", "q2", "a3"]
        assert "secret" not in str(sessions.transcript("s1"))


@pytest.mark.parametrize("erased", range(3))
def test_a_part_of_a_message_that_was_erased_stays_so(erased: int, place: str) -> None:
    results = [
        {"toolResult": {"toolUseId": f"c{number}", "status": "success", "content": [{"text": f"secret{number}"}]}}
        for number in range(2)
    ]
    given = [said("q", "t0"), {"role": "user", "content": [*results, {"text": "secret2"}], "tracking_id": "t1"}]
    with nacre.open(place) as sessions:
        storage = NacreStorage(sessions)
        asyncio.run(storage.write(LATEST, snapshot(*given)))
        sessions.redact("s1", sessions.snapshot("s1").numbers[1 + erased])
        for more in (1, 2):
            asyncio.run(storage.write(LATEST, snapshot(*given, *[said("more", "t2")] * more)))
            # Another agent has changed the beginning, so that all is stored again.
            asyncio.run(storage.write(LATEST, snapshot(said("s", "t9"), *given)))
        message = json.loads(asyncio.run(storage.read(LATEST)) or b"")["data"]["messages"][2]
        assert message["tracking_id"] == "t1"
        shown = [block.get("text") or block["toolResult"]["content"][0]["text"] for block in message["content"]]
        assert shown == ["[erased]" if number == erased else f"secret{number}" for number in range(3)]
        assert f"secret{erased}" not in str(sessions.transcript("s1"))


def test_several_agents_and_a_graph_share_a_session(place: str) -> None:
    with nacre.open(place) as sessions:
        storage = NacreStorage(sessions)
        agent(storage, "w")("write")
        agent(storage, "c", agent_id="critic")("judge")
        assert (contents(sessions), contents(sessions, "s1/critic")) == (["write", "w"], ["judge", "c"])
        assert texts(agent(storage, agent_id="critic").messages) == ["judge", "c"]
        builder = GraphBuilder()
        builder.add_node(Agent(model=Scripted("done"), name="n", callback_handler=None), "n")
        builder.set_session_manager(SnapshotSessionManager("s1", storage=storage))
        builder.set_graph_id("graph")
        builder.set_max_node_executions(5)
        builder.build()("go")
        found = asyncio.run(storage.list("session/s1/"))
        assert [key.split("/")[4:6] for key in found] == [
            ["a", "snapshots"],
            ["critic", "snapshots"],
            ["graph", "snapshots"],
        ]
        asyncio.run(SnapshotSessionManager("s1", storage=storage).delete_session())
        assert list(sessions.list()) == []


def test_messages_of_others_stay_in_the_history(place: str) -> None:
    with nacre.open(place) as sessions:
        sessions.add_message("s1", "user", "from elsewhere")
        one = agent(NacreStorage(sessions), "a0", "a1")
        one("q0")
        sessions.add_message("s1", "user", "in between")
        one("q1")
        assert contents(sessions) == ["from elsewhere", "q0", "a0", "in between", "q1", "a1"]
        assert agent(NacreStorage(sessions)).messages == one.messages


# ---- as the file storage

BLOCKS: list[Any] = [
    {"text": "hello"},
    {"text": ""},
    {"image": {"format": "png", "source": {"bytes": {"__bytes_encoded__": True, "data": "iVBORw=="}}}},
    {"toolUse": {"toolUseId": "c1", "name": "ls", "input": {"path": "."}}},
    {"toolUse": {"name": "ls", "toolUseId": "c1", "input": {}}},
    {"toolResult": {"toolUseId": "c1", "status": "success", "content": [{"text": "a.py"}]}},
    {"toolResult": {"status": "error", "toolUseId": "c1", "content": [{"text": "a"}, {"json": {"b": 1}}]}},
    {"reasoningContent": {"reasoningText": {"text": "hm", "signature": "s"}}},
    {"odd": {"n": 1.5, "big": 2**70}},
    {"text": "two kinds", "cachePoint": {"type": "default"}},
    {},
    *(
        {"toolUse": {"toolUseId": "c1", "name": "ls", "input": {"__bytes_encoded__": True, **given}}}
        for given in ({"data": "!"}, {"data": "YWJ"}, {"data": None}, {"data": "YR=="}, {"data": "YWJj", "x": 1})
    ),
]
CONTENTS: list[Any] = ["hello", None, 5, [1], {"a": 1}]
messages = st.builds(
    lambda role, content, more: {"role": role, "content": copy.deepcopy(content), **more},
    st.sampled_from(["user", "assistant"]),
    st.lists(st.sampled_from(BLOCKS), max_size=3) | st.sampled_from(CONTENTS),
    st.sampled_from([{}, {"tracking_id": "t1"}, {"tracking_id": "t2"}]),
)
values = st.one_of(
    st.binary(max_size=4),
    st.sampled_from(
        [
            b"{}",
            b'{"data": 1}',
            b'{"data": {"messages": [1]}}',
            b'{"data": {"messages": ""}}',
            snapshot({"content": [], "role": "user"}),
        ]
    ),
    st.lists(messages, max_size=5).map(lambda given: snapshot(*given, n="é")),
)
keys = st.sampled_from(
    [
        LATEST,
        LATEST.replace("snapshot_latest", "immutable_history/snapshot_1"),
        LATEST.replace("/a/", "/b/"),
        LATEST.replace("session/", "tenant/x/"),
        "context/s1/ref",
        "//context//s1/other/",
    ]
)
steps = st.one_of(
    st.tuples(st.just("write"), keys, values),
    st.tuples(st.just("more"), keys, messages),
    st.tuples(st.just("less"), keys, st.integers(0, 3), st.integers(0, 2)),
    st.tuples(st.just("read"), keys),
    st.tuples(st.just("delete"), keys),
    st.tuples(st.just("list"), st.sampled_from(["", "session/", "session/s1/scopes/agent/a/", "con", "/context/"])),
)


@settings(max_examples=200, deadline=None)
@given(st.lists(steps, max_size=20))
def test_it_says_what_the_file_storage_says(script: list[Any]) -> None:
    async def play(storage: Storage) -> list[Any]:
        return [await act(storage, step) for step in script]

    with tempfile.TemporaryDirectory() as folder, nacre.open(":memory:") as sessions:
        assert asyncio.run(play(NacreStorage(sessions))) == asyncio.run(play(LocalFileStorage(folder)))


async def act(storage: Storage, step: Any) -> Any:
    match step:
        case ("write", key, data):
            await storage.write(key, data)
            return await storage.read(key)
        case ("more", key, message):
            await storage.write(key, snapshot(*before(await storage.read(key)), message))
            return await storage.read(key)
        case ("less", key, first, last):
            found = before(await storage.read(key))
            await storage.write(key, snapshot(*found[first : len(found) - last]))
            return await storage.read(key)
        case ("read", key):
            return await storage.read(key)
        case ("delete", key):
            return await storage.delete(key)
        case _:
            return await storage.list(step[1])


def before(data: bytes | None) -> list[Any]:
    try:
        return list(json.loads(data or b"")["data"]["messages"])
    except (KeyError, TypeError, ValueError):
        return []


@pytest.mark.parametrize("key", ["", "/", "a/../b", "..", "a\\b"])
def test_keys_are_refused_as_by_the_file_storage(key: str, tmp_path: Path) -> None:
    with nacre.open(":memory:") as sessions:
        for storage in (NacreStorage(sessions), LocalFileStorage(str(tmp_path))):
            with pytest.raises(StorageError):
                asyncio.run(storage.read(key))
            with pytest.raises(StorageError):
                asyncio.run(storage.write(key, b""))


@pytest.mark.parametrize("key", [None, 7, "\ud800", "a\0b", "x" * 5000])
def test_keys_must_be_texts(key: Any) -> None:
    with nacre.open(":memory:") as sessions:
        with pytest.raises(InvalidStorageKey):
            asyncio.run(NacreStorage(sessions).write(key, b""))
        assert list(sessions.list()) == []


def test_wrong_arguments() -> None:
    wrong: Any = "place"
    with pytest.raises(nacre.InvalidArgument, match="Sessions or AsyncSessions"):
        NacreStorage(wrong)
    with nacre.open(":memory:") as sessions, pytest.raises(nacre.InvalidArgument, match="bytes"):
        asyncio.run(NacreStorage(sessions).write("a", wrong))


def test_errors_of_the_store_are_storage_errors(root: Path) -> None:
    sessions = nacre.open(root)
    sessions.close()
    with pytest.raises(StorageError, match="Failed to write"):
        asyncio.run(NacreStorage(sessions).write("a", b""))


def test_search_finds_values(place: str) -> None:
    async def find(storage: NacreStorage) -> list[str]:
        await storage.write("notes/shells", b"nacre is the inside of shells")
        await storage.write("notes/other", b"something else")
        return [one.key for one in await storage.search("nacre")]

    with nacre.open(place) as sessions:
        assert asyncio.run(find(NacreStorage(sessions))) == ["notes/shells"]


def test_a_deep_value_is_read_as_it_was_written(place: str) -> None:
    deep: Any = {}
    for _ in range(900):
        deep = {"a": deep}
    data = snapshot({"role": "user", "content": [{"toolUse": {"toolUseId": "c1", "name": "ls", "input": deep}}]})
    with nacre.open(place) as sessions:
        asyncio.run(NacreStorage(sessions).write(LATEST, data))
        assert asyncio.run(NacreStorage(sessions).read(LATEST)) == data


def test_a_session_with_the_name_of_a_value_is_listed(place: str) -> None:
    async def play(storage: NacreStorage) -> list[str]:
        await storage.write("v", b"1")
        await storage.write(LATEST.replace("s1", "strands:v"), snapshot(said("hello")))
        return await storage.list()

    with nacre.open(place) as sessions:
        assert asyncio.run(play(NacreStorage(sessions))) == [LATEST.replace("s1", "strands:v"), "v"]


def test_large_values(lasting_place: str) -> None:
    text = "é" * 1_000_000
    given = {"a": b"\xff" * 1_000_000, LATEST: snapshot(said(text), said("ok", role="assistant"))}
    with nacre.open(lasting_place) as sessions:
        for key, data in given.items():
            asyncio.run(NacreStorage(sessions).write(key, data))
    with nacre.open(lasting_place) as sessions:
        assert {key: asyncio.run(NacreStorage(sessions).read(key)) for key in given} == given


MANY = snapshot(*(said(f"{n}") for n in range(1000)))
AWAITED: dict[str, Callable[[NacreStorage], Awaitable[object]]] = {
    "write": lambda storage: storage.write(LATEST, MANY),
    "read": lambda storage: storage.read(LATEST),
    "delete": lambda storage: storage.delete(LATEST),
    "list": lambda storage: storage.list(),
}


@pytest.mark.parametrize("method", AWAITED)
def test_no_call_blocks_the_event_loop(method: str) -> None:
    def fill(sessions: nacre.Sessions) -> None:
        asyncio.run(NacreStorage(sessions).write(LATEST, MANY))

    assert_loop_goes_on(fill, lambda sessions: AWAITED[method](NacreStorage(sessions)), most=500)


def test_every_method_is_tried_in_the_event_loop() -> None:
    assert async_methods(NacreStorage) == set(AWAITED)


def test_async_sessions_will_do() -> None:
    async def play() -> bytes | None:
        async with nacre.open_async(":memory:") as sessions:
            storage = NacreStorage(sessions)
            await storage.write(LATEST, snapshot(said("hello")))
            return await storage.read(LATEST)

    assert asyncio.run(play()) == snapshot(said("hello"))


def test_a_message_that_a_checkpoint_has_is_not_erased(place: str) -> None:
    async def write(storage: NacreStorage) -> None:
        await storage.write(LATEST.replace("latest", "1"), snapshot(said("old", "t1")))
        await storage.write(LATEST, snapshot(said("old", "t1")))
        await storage.write(LATEST, snapshot(said("new", "t1")))

    with nacre.open(place) as sessions:
        storage = NacreStorage(sessions)
        asyncio.run(write(storage))
        assert asyncio.run(storage.read(LATEST.replace("latest", "1"))) == snapshot(said("old", "t1"))
        assert asyncio.run(storage.read(LATEST)) == snapshot(said("new", "t1"))


def test_the_records_of_a_long_conversation_stay_small(root: Path) -> None:
    """A snapshot has the whole conversation; what is stored for it has not."""
    with nacre.open(root) as sessions:
        storage = NacreStorage(sessions)
        given: list[Any] = []
        for n in range(60):
            given.append(said(f"{n} " + "x" * 1000))
            asyncio.run(storage.write(LATEST, snapshot(*given)))
        records = [entry.data for entry in sessions.records("s1", "x.strands")]
        assert len(sessions.transcript("s1")) == 60
        assert all(len(record["spans"]) == 1 for record in records)
        assert len(json.dumps(records)) < 60 * 300


# ---- several processes, and one that is killed

CHILD = """
import asyncio, json, sys, nacre
from nacre.integrations.strands import NacreStorage
place, who, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
storage = NacreStorage(nacre.open(place))
KEY = "session/s1/scopes/agent/a/snapshots/snapshot_latest.json"
print("ready", flush=True)
sys.stdin.readline()
messages = []
for n in range(count):
    messages.append({"role": "user", "content": [{"text": f"{who} {n}"}]})
    value = {"scope": "agent", "data": {"messages": messages}}
    asyncio.run(storage.write(KEY, json.dumps(value).encode()))
    print(n, flush=True)
"""


def start(place: str, who: str, count: int) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", CHILD, place, who, str(count)]
    child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    assert child.stdout.readline() == "ready\n"
    return child


def begin(child: subprocess.Popen[str]) -> None:
    assert child.stdin is not None
    child.stdin.write("\n")
    child.stdin.flush()


def test_of_two_processes_the_last_one_is_read_and_both_are_kept(lasting_place: str) -> None:
    children = [start(lasting_place, who, 15) for who in ("one", "two")]
    for child in children:
        begin(child)
    assert [child.communicate()[0].count("\n") for child in children] == [15, 15]
    with nacre.open(lasting_place) as sessions:
        found = texts(before(asyncio.run(NacreStorage(sessions).read(LATEST))))
        assert found in ([f"one {n}" for n in range(15)], [f"two {n}" for n in range(15)])
        assert contents(sessions) == found
        ever = {str(stored.message.content) for stored in sessions.transcript("s1")}
        assert ever == {f"{who} {n}" for who in ("one", "two") for n in range(15)}


def test_what_was_acknowledged_survives_a_kill(lasting_place: str) -> None:
    child = start(lasting_place, "one", 100_000)
    begin(child)
    assert child.stdout is not None
    seen = [child.stdout.readline() for _ in range(20)]
    os.kill(child.pid, signal.SIGKILL)
    # Not by `communicate`, which does not have what `readline` has read ahead.
    seen += child.stdout.readlines()
    child.communicate()
    with nacre.open(lasting_place) as sessions:
        found = texts(before(asyncio.run(NacreStorage(sessions).read(LATEST))))
        assert len(found) in (len(seen), len(seen) + 1)
        assert found == [f"one {n}" for n in range(len(found))]


def test_reads_and_writes_after_archiving_are_about_another_session(lasting_place: str) -> None:
    async def play(storage: NacreStorage, other: nacre.Sessions) -> None:
        await storage.write(LATEST, snapshot(said("old")))
        other.archive("s1")
        assert await storage.read(LATEST) is None
        assert await storage.list() == []
        await storage.delete(LATEST)
        assert other.status("s1") == "archived"
        await storage.write(LATEST, snapshot(said("old"), said("new")))
        assert await storage.read(LATEST) == snapshot(said("old"), said("new"))
        assert contents(other) == ["old", "new"]

    with nacre.open(lasting_place) as sessions, nacre.open(lasting_place) as other:
        asyncio.run(play(NacreStorage(sessions), other))
