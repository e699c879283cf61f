"""Agents of Strands go on where they were, and what the file repository says, this one says too."""

from __future__ import annotations

import copy
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strands import Agent, tool
from strands.agent.conversation_manager import (
    ConversationManager,
    NullConversationManager,
    SlidingWindowConversationManager,
    SummarizingConversationManager,
)
from strands.models.model import Model
from strands.multiagent import GraphBuilder
from strands.session.file_session_manager import FileSessionManager
from strands.session.repository_session_manager import RepositorySessionManager
from strands.session.session_repository import SessionRepository
from strands.types.exceptions import ContextWindowOverflowException, SessionException
from strands.types.session import Session, SessionAgent, SessionMessage, SessionType

import nacre
from nacre.integrations.strands import InvalidId, NacreSessionRepository, to_messages

Script = list[Any]


class Scripted(Model):
    """A model that says what is in its script: a text, calls of tools, a redaction, or an error."""

    def __init__(self, *script: Any) -> None:
        self.script: Script = list(script)
        self.seen: list[Any] = []

    def update_config(self, **model_config: Any) -> None: ...

    def get_config(self) -> Any:
        return {}

    def structured_output(self, *args: Any, **named: Any) -> Any:
        raise NotImplementedError

    async def stream(self, messages: Any, *args: Any, **named: Any) -> AsyncIterator[Any]:
        self.seen.append(copy.deepcopy(messages))
        said = self.script.pop(0)
        if isinstance(said, Exception):
            raise said
        yield {"messageStart": {"role": "assistant"}}
        if isinstance(said, dict) and "redactContent" in said:
            yield said
            said = "Blocked."
        if isinstance(said, str):
            yield {"contentBlockStart": {"start": {}}}
            yield {"contentBlockDelta": {"delta": {"text": said}}}
            yield {"contentBlockStop": {}}
            yield {"messageStop": {"stopReason": "end_turn"}}
            return
        for number, (name, arguments) in enumerate(said):
            start = {"toolUse": {"name": name, "toolUseId": f"call_{number}"}}
            yield {"contentBlockStart": {"start": start}}
            yield {"contentBlockDelta": {"delta": {"toolUse": {"input": json.dumps(arguments)}}}}
            yield {"contentBlockStop": {}}
        yield {"messageStop": {"stopReason": "tool_use"}}


@tool
def look(path: str) -> str:
    """List a directory.

    Args:
        path: which
    """
    return f"{path}/a.py"


def agent(sessions: nacre.Sessions | nacre.AsyncSessions, *script: Any, session: str = "s1", **named: Any) -> Agent:
    manager = RepositorySessionManager(session, NacreSessionRepository(sessions))
    named.setdefault("agent_id", "default")
    return Agent(model=Scripted(*script), session_manager=manager, tools=[look], callback_handler=None, **named)


def texts(messages: Any) -> list[str]:
    return [block.get("text", next(iter(block))) for message in messages for block in message["content"]]


# ---- a real agent


def test_an_agent_goes_on_where_it_was(lasting_place: str) -> None:
    with nacre.open(lasting_place) as sessions:
        first = agent(sessions, [("look", {"path": "src"}), ("look", {"path": "lib"})], "Two files.", state={"n": 1})
        first("Which files?")
        first.state.set("n", 2)
        first.model.script.append("Bye.")  # type: ignore[attr-defined]
        first("Bye")
        before = copy.deepcopy(first.messages)
    with nacre.open(lasting_place) as sessions:
        second = agent(sessions, "Still two.")
        assert second.messages == before
        assert second.state.get("n") == 2
        second("And now?")
        assert texts(second.model.seen[0])[-1] == "And now?"  # type: ignore[attr-defined]
        ids = [one.message_id for one in NacreSessionRepository(sessions).list_messages("s1", "default")]
        assert ids == list(range(8))


def test_what_is_stored_is_a_conversation(place: str) -> None:
    with nacre.open(place) as sessions:
        agent(sessions, [("look", {"path": "src"}), ("look", {"path": "lib"})], "Two files.")("Which files?")
        history = sessions.get_history("s1")
        assert [(one.role, one.content, one.tool_call_id) for one in history] == [
            ("user", "Which files?", None),
            ("assistant", None, None),
            ("tool", "src/a.py", "call_0"),
            ("tool", "lib/a.py", "call_1"),
            ("assistant", "Two files.", None),
        ]
        assert [(call.id, call.name, call.arguments) for call in history[1].tool_calls] == [
            ("call_0", "look", {"path": "src"}),
            ("call_1", "look", {"path": "lib"}),
        ]


@pytest.mark.parametrize("manager", [NullConversationManager, SlidingWindowConversationManager])
def test_a_conversation_of_others_is_continued(manager: type[ConversationManager], place: str) -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": '{"path": "."}'}}
    with nacre.open(place) as sessions:
        sessions.add_message("s1", "user", "Which files?")
        sessions.add_full_message(
            "s1", {"role": "assistant", "content": "I look.", "tool_calls": [call, {**call, "id": "c2"}]}
        )
        for id in ("c1", "c2"):
            sessions.add_full_message("s1", {"role": "tool", "content": id, "tool_call_id": id})
        sessions.add_message("s1", "assistant", "One.")
        one = agent(sessions, "Yes.", conversation_manager=manager())
        assert [block for message in one.messages for block in message["content"]] == [
            {"text": "Which files?"},
            {"text": "I look."},
            {"toolUse": {"toolUseId": "c1", "name": "look", "input": {"path": "."}}},
            {"toolUse": {"toolUseId": "c2", "name": "look", "input": {"path": "."}}},
            {"toolResult": {"toolUseId": "c1", "content": [{"text": "c1"}], "status": "success"}},
            {"toolResult": {"toolUseId": "c2", "content": [{"text": "c2"}], "status": "success"}},
            {"text": "One."},
        ]
        one("Sure?")
        assert [message.content for message in sessions.get_history("s1", last=2)] == ["Sure?", "Yes."]
        again = agent(sessions, conversation_manager=manager())
        assert texts(again.messages)[-3:] == ["One.", "Sure?", "Yes."]


@pytest.mark.parametrize("at", range(4))
def test_an_erased_message_of_others_leaves_calls_and_results_paired(at: int, place: str) -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    with nacre.open(place) as sessions:
        sessions.add_message("s1", "user", "Which files?")
        sessions.add_full_message("s1", {"role": "assistant", "tool_calls": [call, {**call, "id": "c2"}]})
        for id in ("c1", "c2"):
            sessions.add_full_message("s1", {"role": "tool", "content": id, "tool_call_id": id})
        sessions.redact("s1", sessions.snapshot("s1").numbers[at])
        found = NacreSessionRepository(sessions).list_messages("s1", "default")
        results = [block["toolResult"] for block in found[2].message["content"]]
        assert len(found) == 3
        assert [(one["toolUseId"], one["content"]) for one in results] == [
            ("c1", [{"text": "[erased]" if at == 2 else "c1"}]),
            ("c2", [{"text": "[erased]" if at == 3 else "c2"}]),
        ]


def test_the_window_slides_and_the_history_stays(place: str) -> None:
    with nacre.open(place) as sessions:
        manager = SlidingWindowConversationManager(window_size=4)
        one = agent(sessions, *(f"answer {n}" for n in range(5)), conversation_manager=manager)
        for n in range(5):
            one(f"question {n}")
        again = agent(sessions, conversation_manager=SlidingWindowConversationManager(window_size=4))
        assert again.messages == one.messages
        assert texts(again.messages) == ["question 3", "answer 3", "question 4", "answer 4"]
        assert len(sessions.get_history("s1")) == 10


def test_a_summary_is_kept(place: str) -> None:
    def manager() -> SummarizingConversationManager:
        return SummarizingConversationManager(summary_ratio=0.5, preserve_recent_messages=2)

    with nacre.open(place) as sessions:
        script = ["a0", "a1", "a2", ContextWindowOverflowException("too long"), "It was about numbers.", "a3"]
        one = agent(sessions, *script, conversation_manager=manager())
        for n in range(4):
            one(f"q{n}")
        again = agent(sessions, conversation_manager=manager())
        assert again.messages == one.messages
        assert "It was about numbers." in texts(again.messages)
        assert [message.content for message in sessions.get_history("s1")][:3] == ["q0", "a0", "q1"]


def test_what_a_guardrail_redacts_is_erased(lasting_place: str) -> None:
    redaction = {"redactContent": {"redactUserContentMessage": "Redacted input."}}
    with nacre.open(lasting_place) as sessions:
        one = agent(sessions, "Hello.", redaction, "Go on.")
        one("Hi")
        one("My password is swordfish")
        one("Sorry")
        assert [message.content for message in sessions.get_history("s1")] == [
            "Hi",
            "Hello.",
            "Redacted input.",
            "Blocked.",
            "Sorry",
            "Go on.",
        ]
        assert "swordfish" not in str(sessions.transcript("s1"))
        assert sessions.search("swordfish") == []
        found = NacreSessionRepository(sessions).list_messages("s1", "default")
        assert [bool(message.redact_message) for message in found] == [False, False, True, False, False, False]
    with nacre.open(lasting_place) as sessions:
        assert agent(sessions).messages == one.messages
    if Path(lasting_place).is_dir():
        stored = b"".join(path.read_bytes() for path in Path(lasting_place).rglob("*") if path.is_file())
        assert b"swordfish" not in stored


@pytest.mark.parametrize("erased", range(4))
def test_every_call_of_others_has_one_result_after_erasing(erased: int, place: str) -> None:
    with nacre.open(place) as sessions:
        sessions.add_messages(
            "s1",
            [
                nacre.Message(role="user", content="Where?"),
                nacre.Message(role="assistant", tool_calls=(nacre.ToolCall(id="c1", name="ls", arguments={}),)),
                nacre.Message(role="tool", tool_call_id="c1", content="a.py"),
                nacre.Message(role="assistant", content="There."),
            ],
        )
        sessions.redact("s1", sessions.snapshot("s1").numbers[erased])
        found = [one.message for one in NacreSessionRepository(sessions).list_messages("s1", "default")]
        assert [one["role"] for one in found] == ["user", "assistant", "user", "assistant"]
        blocks = [block for one in found for block in one["content"]]
        assert [block["toolUse"]["toolUseId"] for block in blocks if "toolUse" in block] == ["c1"]
        assert [block["toolResult"]["toolUseId"] for block in blocks if "toolResult" in block] == ["c1"]


def test_several_agents_share_a_session(place: str) -> None:
    with nacre.open(place) as sessions:
        manager = RepositorySessionManager("s1", NacreSessionRepository(sessions))
        writer = Agent(model=Scripted("w"), session_manager=manager, agent_id="writer", callback_handler=None)
        critic = Agent(model=Scripted("c"), session_manager=manager, agent_id="critic", callback_handler=None)
        writer("write")
        critic("judge")
        assert [info.key for info in sessions.list(order="key")] == ["s1", "s1/critic"]
        assert [message.content for message in sessions.get_history("s1")] == ["write", "w"]
        for name, said in (("writer", ["write", "w"]), ("critic", ["judge", "c"]), ("new", [])):
            assert texts(agent(sessions, agent_id=name).messages) == said
        NacreSessionRepository(sessions).delete_session("s1")
        assert list(sessions.list()) == []


def test_a_further_agent_continues_a_conversation_of_others(place: str) -> None:
    with nacre.open(place) as sessions:
        agent(sessions, "w", agent_id="writer")("write")
        sessions.add_message("s1/critic", "user", "from elsewhere")
        agent(sessions, "c", agent_id="critic")("judge")
        assert [message.content for message in sessions.get_history("s1/critic")] == ["from elsewhere", "judge", "c"]
        assert [message.content for message in sessions.get_history("s1")] == ["write", "w"]


def test_a_graph_goes_on_where_it_was(place: str) -> None:
    def graph(sessions: nacre.Sessions, *script: str) -> Any:
        builder = GraphBuilder()
        builder.add_node(Agent(model=Scripted(*script), name="a", callback_handler=None), "a")
        builder.add_node(Agent(model=Scripted(*script), name="b", callback_handler=None), "b")
        builder.add_edge("a", "b")
        builder.set_session_manager(RepositorySessionManager("g1", NacreSessionRepository(sessions)))
        builder.set_graph_id("graph")
        builder.set_max_node_executions(5)
        return builder.build()

    with nacre.open(place) as sessions:
        first = graph(sessions, "done")
        first("go")
        state = NacreSessionRepository(sessions).read_multi_agent("g1", "graph")
        assert state is not None
        assert state == first.serialize_state()
        assert sorted(state["completed_nodes"]) == ["a", "b"]
        graph(sessions, "again")
        assert NacreSessionRepository(sessions).read_multi_agent("g1", "other") is None


def test_an_archived_session_begins_again(place: str) -> None:
    with nacre.open(place) as sessions:
        one = agent(sessions, "a", "b")
        one("first")
        sessions.archive("s1")
        one("second")
        assert [message.content for message in sessions.get_history("s1")] == ["second", "b"]
        assert texts(agent(sessions, conversation_manager=SlidingWindowConversationManager()).messages) == [
            "second",
            "b",
        ]
        sessions.archive("s1")
        assert NacreSessionRepository(sessions).read_session("s1") is None
        assert agent(sessions).messages == []


def test_a_fork_is_a_session_of_its_own(place: str) -> None:
    with nacre.open(place) as sessions:
        agent(sessions, "a")("first")
        sessions.fork("s1", "s2")
        agent(sessions, "b", session="s2")("second")
        assert texts(agent(sessions).messages) == ["first", "a"]
        assert texts(agent(sessions, session="s2").messages) == ["first", "a", "second", "b"]


# ---- messages are restored as they were given

BLOCKS: list[Any] = [
    {"text": "hello"},
    {"text": ""},
    {"text": "\ud800"},
    {"image": {"format": "png", "source": {"bytes": b"\x89PNG\x00"}}},
    {"image": {"format": "png", "source": {"location": {"type": "s3", "uri": "s3://a/b"}}}},
    {"document": {"format": "pdf", "name": "doc", "source": {"bytes": b"%PDF"}}},
    {"video": {"format": "mp4", "source": {"bytes": b"\0\1"}}},
    {"toolUse": {"toolUseId": "c1", "name": "ls", "input": {"path": "."}}},
    {"toolUse": {"toolUseId": "c2", "name": "ls", "input": [1, None], "reasoningSignature": "x"}},
    {"toolUse": {"toolUseId": "c2", "name": "ls", "input": {"n": float("inf")}}},
    {"toolResult": {"toolUseId": "c1", "status": "success", "content": [{"text": "a.py"}]}},
    {"toolResult": {"toolUseId": "c2", "status": "error", "content": [{"text": "no"}, {"json": {"a": [1]}}]}},
    {"toolResult": {"toolUseId": "c3", "status": "success", "content": [{"json": {"a": "é"}}]}},
    {"toolResult": {"toolUseId": "c4", "content": [{"image": {"format": "jpeg", "source": {"bytes": b"x"}}}]}},
    {"toolResult": {"toolUseId": "c5", "status": "success", "content": []}},
    {"reasoningContent": {"reasoningText": {"text": "hm", "signature": "s"}}},
    {"reasoningContent": {"reasoningText": {"text": "so"}}},
    {"reasoningContent": {"redactedContent": b"\xff"}},
    {"cachePoint": {"type": "default"}},
    {"guardContent": {"text": {"text": "guarded", "qualifiers": ["query"]}}},
    {"citationsContent": {"citations": [{"title": "t"}], "content": [{"text": "cited"}]}},
    {"citationsContent": {"citations": [], "content": [{"text": "a"}, {"text": "b"}]}},
    {"text": "two kinds", "cachePoint": {"type": "default"}},
    {},
]
given_messages = st.builds(
    lambda role, content, more: {"role": role, "content": copy.deepcopy(content), **more},
    st.sampled_from(["user", "assistant"]),
    st.lists(st.sampled_from(BLOCKS), max_size=5),
    st.sampled_from([{}, {"tracking_id": "t1"}, {"metadata": {"usage": {"inputTokens": 1}, "custom": {"x": "y"}}}]),
)


def begun(repository: SessionRepository) -> None:
    if repository.read_session("s1") is None:
        repository.create_session(Session("s1", SessionType.AGENT))
    repository.create_agent("s1", SessionAgent("a", {}, {}))


@pytest.mark.parametrize("content", ["hello", None, 5, [1], ["a"], {"a": 1}])
def test_contents_that_are_no_blocks_are_restored(content: Any, place: str) -> None:
    with nacre.open(place) as sessions:
        repository = NacreSessionRepository(sessions)
        begun(repository)
        stored = SessionMessage.from_message({"role": "user", "content": content}, 0)
        repository.create_message("s1", "a", stored)
        assert repository.list_messages("s1", "a") == [stored]


@settings(max_examples=150, deadline=None)
@given(st.lists(given_messages, max_size=6))
def test_messages_are_restored_as_they_were_given(messages: list[Any]) -> None:
    with nacre.open(":memory:") as sessions:
        repository = NacreSessionRepository(sessions)
        begun(repository)
        stored = [SessionMessage.from_message(copy.deepcopy(one), n) for n, one in enumerate(messages)]
        for one in stored:
            repository.create_message("s1", "a", one)
        assert repository.list_messages("s1", "a") == stored


def test_all_kinds_of_blocks_are_stored_once(place: str) -> None:
    with nacre.open(place) as sessions:
        repository = NacreSessionRepository(sessions)
        begun(repository)
        stored = [SessionMessage.from_message({"role": "user", "content": [one]}, n) for n, one in enumerate(BLOCKS)]
        for one in stored:
            repository.create_message("s1", "a", one)
        assert repository.list_messages("s1", "a") == stored
        assert repository.read_message("s1", "a", 4) == stored[4]
        assert repository.read_message("s1", "a", 99) is None
    for one in stored:
        blocks = one.message["content"]
        if "ud800" not in str(blocks) and "inf" not in str(blocks) and len(blocks[0]) == 1:
            assert all("json" not in made.extra["strands"] for made in to_messages(one)), one


# ---- which message is meant


def message(text: str, id: int, time: str, redacted: str | None = None) -> SessionMessage:
    def said(text: str) -> Any:
        return {"role": "user", "content": [{"text": text}]}

    words = said(text if redacted is None else redacted)
    return SessionMessage(words, id, None if redacted is None else words, time, time)


def contents(sessions: nacre.Sessions) -> list[Any]:
    return [one.content for one in sessions.get_history("s1")]


def test_the_number_says_which_of_several_messages_with_the_same_time_is_redacted(place: str) -> None:
    with nacre.open(place) as sessions:
        repository = NacreSessionRepository(sessions)
        begun(repository)
        for id in range(3):
            repository.create_message("s1", "a", message(f"m{id}", id, "T"))
        repository.update_message("s1", "a", message("m1", 1, "T", redacted="no"))
        assert contents(sessions) == ["m0", "no", "m2"]


@pytest.mark.parametrize("foreign", range(3))
@pytest.mark.parametrize("erased", [(), (0,), (1,), (2,), (1, 2), (0, 1, 2)])
@pytest.mark.parametrize("wanted", range(3))
def test_the_message_that_an_agent_has_stored_is_redacted_whatever_happened_to_the_session(
    foreign: int, erased: tuple[int, ...], wanted: int, place: str
) -> None:
    with nacre.open(place) as sessions:
        for number in range(foreign):
            sessions.add_message("s1", "user", f"f{number}")
        repository = NacreSessionRepository(sessions)
        begun(repository)
        for id in range(3):
            repository.create_message("s1", "a", message(f"m{id}", id, f"T{id}"))
        for at in erased:
            sessions.redact("s1", sessions.snapshot("s1").numbers[foreign + at])
        repository.update_message("s1", "a", message("", wanted, f"T{wanted}", redacted="no"))
        expected = ["" if id in erased else f"m{id}" for id in range(3)]
        expected[wanted] = "no"
        found = [one.message["content"][0]["text"] for one in repository.list_messages("s1", "a")][foreign:]
        assert found == [text or "[erased]" for text in expected]


@pytest.mark.parametrize("erased", range(3))
def test_what_was_erased_is_not_stored_again_by_an_agent_that_still_has_it(erased: int, place: str) -> None:
    with nacre.open(place) as sessions:
        repository = NacreSessionRepository(sessions)
        begun(repository)
        given = [message(f"secret{id}", id, f"T{id}") for id in range(3)]
        for one in given:
            repository.create_message("s1", "a", one)
        sessions.redact("s1", sessions.snapshot("s1").numbers[erased])
        # It replaces another message first, after which the erased one is stored again.
        repository.update_message("s1", "a", message("secret0", 0, "T0") if erased else message("secret1", 1, "T1"))
        repository.update_message("s1", "a", given[erased])
        repository.create_message("s1", "a", given[erased])
        with_original = message(f"secret{erased}", erased, f"T{erased}")
        with_original.redact_message = {"role": "user", "content": [{"text": "no"}]}
        repository.update_message("s1", "a", with_original)
        assert f"secret{erased}" not in str(sessions.transcript("s1"))
        found = repository.list_messages("s1", "a")
        assert [one.to_message()["content"][0]["text"] for one in found] == [
            "no" if id == erased else f"secret{id}" for id in range(3)
        ]
        assert [(one.message_id, one.created_at) for one in found] == [(id, f"T{id}") for id in range(3)]


def test_a_retry_of_the_first_message_in_a_conversation_of_others_stores_nothing(place: str) -> None:
    with nacre.open(place) as sessions:
        sessions.add_message("s1", "user", "theirs")
        repository = NacreSessionRepository(sessions)
        repository.create_message("s1", "a", message("ours", 1, "T1"))
        repository.create_message("s1", "a", message("ours", 1, "T1"))
        assert contents(sessions) == ["theirs", "ours"]
        sessions.redact("s1", sessions.snapshot("s1").numbers[1])
        repository.create_message("s1", "a", message("ours", 1, "T1"))
        assert contents(sessions) == ["theirs", ""]


def test_a_message_that_was_taken_from_the_history_is_not_another_one(place: str) -> None:
    with nacre.open(place) as sessions:
        repository = NacreSessionRepository(sessions)
        begun(repository)
        repository.create_message("s1", "a", message("mine", 0, "T0"))
        sessions.clear("s1")
        repository.create_message("s1", "a", message("another agent's", 0, "T1"))
        with pytest.raises(SessionException):
            repository.update_message("s1", "a", message("mine", 0, "T0", redacted="no"))
        assert contents(sessions) == ["another agent's"]


def test_a_prompt_that_was_tried_several_times_is_redacted_everywhere(lasting_place: str) -> None:
    redaction = {"redactContent": {"redactUserContentMessage": "Redacted input."}}
    prompt: Any = {"role": "user", "content": [{"text": "My password is swordfish"}]}
    with nacre.open(lasting_place) as sessions:
        one = agent(sessions, RuntimeError("down"), "Hello.", redaction)
        with pytest.raises(RuntimeError):
            one([prompt])
        one([prompt])
        one([prompt])
        assert contents(sessions) == ["Redacted input.", "Redacted input.", "Hello.", "Redacted input.", "Blocked."]
        assert "swordfish" not in str(sessions.transcript("s1"))


# ---- as the file repository

ids = st.sampled_from(["a", "b"])
steps = st.one_of(
    st.tuples(st.just("create_agent"), ids, st.dictionaries(st.text(max_size=3), st.integers(), max_size=2)),
    st.tuples(st.just("update_agent"), ids, st.dictionaries(st.text(max_size=3), st.integers(), max_size=2)),
    st.tuples(st.just("read_agent"), ids),
    st.tuples(st.just("append"), ids, given_messages.filter(lambda one: "ud800" not in str(one))),
    st.tuples(st.just("redact"), ids, st.integers(0, 5), st.booleans()),
    st.tuples(st.just("read_message"), ids, st.integers(0, 5)),
    st.tuples(st.just("list_messages"), ids, st.none() | st.integers(0, 4), st.integers(0, 4)),
)


@settings(max_examples=120, deadline=None)
@given(st.lists(steps, max_size=25))
def test_it_says_what_the_file_repository_says(script: list[Any]) -> None:
    def play(repository: SessionRepository) -> list[Any]:
        if repository.read_session("s1") is None:
            repository.create_session(Session("s1", SessionType.AGENT))
        counts: dict[str, int] = {}
        return [outcome(partial(act, repository, step, counts)) for step in script]

    with tempfile.TemporaryDirectory() as folder, nacre.open(":memory:") as sessions:
        ours = play(NacreSessionRepository(sessions))
        assert ours == play(FileSessionManager("s1", folder))


def act(repository: SessionRepository, step: Any, counts: dict[str, int]) -> Any:
    times = {"created_at": "2026-01-02T03:04:05+00:00", "updated_at": "2026-01-02T03:04:06+00:00"}
    match step:
        case ("create_agent", id, state):
            counts.setdefault(id, 0)
            return repository.create_agent("s1", SessionAgent(id, state, {}, {}, **times))
        case ("update_agent", id, state):
            later = {**times, "created_at": "2027-01-02T03:04:05+00:00"}
            return repository.update_agent("s1", SessionAgent(id, state, {"x": 1}, {}, **later))
        case ("read_agent", id):
            return repository.read_agent("s1", id)
        case ("append", id, message):
            if id not in counts:
                return None
            number = counts[id]
            counts[id] += 1
            made = SessionMessage(copy.deepcopy(message), number, None, f"{times['created_at']}{number}", "later")
            return repository.create_message("s1", id, made)
        case ("redact", id, number, is_same):
            words: Any = {"role": "user", "content": [{"text": "redacted"}]}
            original: Any = words if is_same else {"role": "user", "content": [{"text": "kept"}]}
            made = SessionMessage(original, number, words, "never", "later")
            return repository.update_message("s1", id, made)
        case ("read_message", id, number):
            return repository.read_message("s1", id, number)
        case _:
            _, id, limit, offset = step
            return repository.list_messages("s1", id, limit=limit, offset=offset)


def outcome(act: Callable[[], Any]) -> Any:
    try:
        return act()
    except (SessionException, ValueError) as error:
        return SessionException if isinstance(error, SessionException) else ValueError


@pytest.mark.parametrize(
    "act",
    [
        lambda one: one.create_session(Session("s1", SessionType.AGENT)),
        lambda one: one.create_session(Session("a/b", SessionType.AGENT)),
        lambda one: one.read_session("a/b"),
        lambda one: one.read_session("none"),
        lambda one: one.read_agent("s1", "a/b"),
        lambda one: one.read_agent("s1", "none"),
        lambda one: one.read_agent("none", "none"),
        lambda one: one.update_agent("s1", SessionAgent("none", {}, {})),
        lambda one: one.read_message("s1", "a", "x"),
        lambda one: one.read_message("s1", "none", 0),
        lambda one: one.update_message("s1", "a", SessionMessage({"role": "user", "content": []}, 9)),
        lambda one: one.list_messages("s1", "none"),
        lambda one: one.list_messages("none", "none"),
        lambda one: one.list_messages("s1", "a"),
        lambda one: one.read_multi_agent("s1", "none"),
        lambda one: one.read_multi_agent("s1", "a/b"),
        lambda one: one.delete_session("none"),
    ],
)
def test_errors_are_those_of_the_file_repository(act: Callable[[Any], Any], tmp_path: Path) -> None:
    with nacre.open(":memory:") as sessions:
        found = []
        for repository in (NacreSessionRepository(sessions), FileSessionManager("s1", str(tmp_path))):
            begun(repository)
            found.append(outcome(lambda repository=repository: act(repository)))  # type: ignore[misc]
        assert found[0] == found[1]


def test_a_session_is_read_as_it_was_created(lasting_place: str) -> None:
    session = Session("ü 🐚", SessionType.AGENT, created_at="then", updated_at="later")
    with nacre.open(lasting_place) as sessions:
        assert NacreSessionRepository(sessions).create_session(session) is session
    with nacre.open(lasting_place) as sessions:
        assert NacreSessionRepository(sessions).read_session("ü 🐚") == session


def test_agents_keep_bytes_and_what_no_log_holds(place: str) -> None:
    with nacre.open(place) as sessions:
        repository = NacreSessionRepository(sessions)
        begun(repository)
        for state in ({"image": b"\x00\xff"}, {"n": float("inf")}, {"n": 2**70}, {"text": "\ud800"}, {"json": "x"}):
            repository.update_agent("s1", SessionAgent("a", state, {}))
            found = repository.read_agent("s1", "a")
            assert found is not None
            assert found.state == state
        with pytest.raises(TypeError):
            repository.update_agent("s1", SessionAgent("a", {"x": object()}, {}))


# ---- wrong arguments


@pytest.mark.parametrize("sessions", [None, "place", 1, object()])
def test_sessions_must_be_sessions(sessions: Any) -> None:
    with pytest.raises(nacre.InvalidArgument, match="Sessions or AsyncSessions"):
        NacreSessionRepository(sessions)


@pytest.mark.parametrize("id", ["", None, 7, "a\0b", "\ud800", "a/b", "x" * 5000])
def test_ids_must_be_texts(id: Any) -> None:
    with nacre.open(":memory:") as sessions:
        repository = NacreSessionRepository(sessions)
        for act in (
            lambda: repository.read_session(id),
            lambda: repository.create_session(Session(id, SessionType.AGENT)),
            lambda: repository.read_agent("s1", id),
            lambda: repository.create_message("s1", id, SessionMessage({"role": "user", "content": []}, 0)),
            lambda: repository.read_multi_agent("s1", id),
        ):
            with pytest.raises(InvalidId):
                act()
        assert list(sessions.list()) == []


# ---- several processes, and one that is killed


def test_a_retry_stores_nothing_and_the_same_number_twice_keeps_both(place: str) -> None:
    with nacre.open(place) as sessions:
        repository = NacreSessionRepository(sessions)
        begun(repository)
        for said in ("one", "one", "two", "three"):
            made = SessionMessage({"role": "user", "content": [{"text": said}]}, 0, None, f"at {said}", "now")
            repository.create_message("s1", "a", made)
        found = repository.list_messages("s1", "a")
        assert [(one.message_id, texts([one.message])) for one in found] == [(0, ["one"]), (1, ["two"]), (2, ["three"])]
        # Each process redacts its own, although both have the same number.
        mine = SessionMessage({"role": "user", "content": [{"text": "x"}]}, 0, None, "at two", "now")
        mine.redact_message = mine.message
        repository.update_message("s1", "a", mine)
        assert texts(one.to_message() for one in repository.list_messages("s1", "a")) == ["one", "x", "three"]


CHILD = """
import sys, nacre
from nacre.integrations.strands import NacreSessionRepository
from strands.types.session import *
place, who, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
sessions = nacre.open(place)
repository = NacreSessionRepository(sessions)
print("ready", flush=True)
sys.stdin.readline()
for n in range(count):
    message = SessionMessage.from_message({"role": "user", "content": [{"text": f"{who} {n}"}]}, n)
    repository.create_message("s1", "a", message)
    print(n, flush=True)
"""


def start(place: str, who: str, count: int) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", CHILD, place, who, str(count)]
    child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    assert child.stdout.readline() == "ready\n"
    return child


def test_two_processes_lose_nothing(lasting_place: str) -> None:
    with nacre.open(lasting_place) as sessions:
        begun(NacreSessionRepository(sessions))
    children = [start(lasting_place, who, 30) for who in ("one", "two")]
    for child in children:
        assert child.stdin is not None
        child.stdin.write("\n")
        child.stdin.flush()
    assert [child.communicate()[0].count("\n") for child in children] == [30, 30]
    with nacre.open(lasting_place) as sessions:
        found = NacreSessionRepository(sessions).list_messages("s1", "a")
        assert sorted(texts(one.message for one in found)) == sorted(
            f"{a} {n}" for a in ("one", "two") for n in range(30)
        )
        assert [one.message_id for one in found] == list(range(60))


def test_what_was_acknowledged_survives_a_kill(lasting_place: str) -> None:
    with nacre.open(lasting_place) as sessions:
        begun(NacreSessionRepository(sessions))
    child = start(lasting_place, "one", 100_000)
    assert child.stdin is not None
    assert child.stdout is not None
    child.stdin.write("\n")
    child.stdin.flush()
    seen = [child.stdout.readline() for _ in range(20)]
    os.kill(child.pid, signal.SIGKILL)
    # Not by `communicate`, which does not have what `readline` has read ahead.
    seen += child.stdout.readlines()
    child.communicate()
    with nacre.open(lasting_place) as sessions:
        found = NacreSessionRepository(sessions).list_messages("s1", "a")
        assert len(found) in (len(seen), len(seen) + 1)
        assert texts(one.message for one in found) == [f"one {n}" for n in range(len(found))]


def test_an_append_reads_no_message(root: Path) -> None:
    """The cost of an append does not grow with the history: nothing of it is decoded."""
    with nacre.open(root) as sessions:
        repository = NacreSessionRepository(sessions)
        begun(repository)
        calls = []
        for n in range(300):
            made = SessionMessage.from_message({"role": "user", "content": [{"text": str(n)}]}, n)
            count = [0]

            def tracer(frame: Any, event: str, arg: Any, count: list[int] = count) -> None:
                count[0] += event == "call"

            sys.setprofile(tracer)
            repository.create_message("s1", "a", made)
            sys.setprofile(None)
            calls.append(count[0])
        assert sorted(calls[-50:])[25] <= sorted(calls[10:60])[25] * 1.2


@pytest.mark.parametrize("role", ["user", ""])
@pytest.mark.parametrize("mark", [5, "text", True, None, ["a"]])
def test_what_others_keep_under_the_name_does_not_make_it_unreadable(mark: Any, role: str) -> None:
    with nacre.open(":memory:") as sessions:
        agent(sessions, "a")("first")
        sessions.add_full_message(
            "s1", nacre.Message(role=role, content="theirs" if role else None, extra={"type": "item", "strands": mark})
        )
        later = agent(sessions, "b")
        assert texts(later.messages) == ["first", "a", *(["theirs"] if role else [])]
        later("second")
        assert texts(agent(sessions).messages)[-2:] == ["second", "b"]


def test_reads_and_writes_after_archiving_are_about_another_session(lasting_place: str) -> None:
    """Also in the process that has written to it, whose session another process archives."""
    session = Session(session_id="s1", session_type=SessionType.AGENT)
    state = SessionAgent("a", {}, {"__name__": "x", "removed_message_count": 0})
    hello = SessionMessage({"role": "user", "content": [{"text": "hello"}]}, 0)
    with nacre.open(lasting_place) as sessions, nacre.open(lasting_place) as other:
        repository = NacreSessionRepository(sessions)
        repository.create_session(session)
        repository.create_agent("s1", state)
        repository.create_message("s1", "a", hello)
        other.archive("s1")
        assert repository.read_session("s1") is None
        assert repository.read_agent("s1", "a") is None
        assert repository.read_message("s1", "a", 0) is None
        for refused in (
            lambda: repository.list_messages("s1", "a"),
            lambda: repository.update_agent("s1", state),
            lambda: repository.update_message("s1", "a", hello),
        ):
            with pytest.raises(SessionException, match="does not exist"):
                refused()
        repository.create_session(session)
        repository.create_message("s1", "a", hello)
        assert [one.message for one in repository.list_messages("s1", "a")] == [hello.message]
        # All of its generations.
        repository.delete_session("s1")
        assert not other.exists("s1")
