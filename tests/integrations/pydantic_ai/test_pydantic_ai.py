"""NacreConversationStore: the same answers as Pydantic AI's store in memory, and conversations that anyone can read."""

from __future__ import annotations

import asyncio
import inspect
import subprocess
import sys
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule
from pydantic_ai import Agent, BinaryContent, BinaryImage, DeferredToolRequests, ImageUrl, ModelRetry
from pydantic_ai.conversation import Conversation
from pydantic_ai.conversation_store import (
    ConversationConflict,
    ConversationEntry,
    ConversationRecord,
    ConversationStore,
    InMemoryConversationStore,
)
from pydantic_ai.exceptions import UserError
from pydantic_ai.messages import (
    DocumentUrl,
    FilePart,
    ModelMessage,
    ModelMessagesTypeAdapter,
    ModelRequest,
    ModelResponse,
    RetryFeedbackPart,
    RetryInfo,
    SystemPromptPart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UserContent,
    UserPromptPart,
)
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.models.test import TestModel
from pydantic_ai.usage import RequestUsage, RunUsage

import nacre
from nacre.integrations.pydantic_ai import NacreConversationStore
from tests.event_loop import assert_loop_goes_on, async_methods

AT = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)
PNG = b"\x89PNG\xff\xfe\xfb\x00"


def run(test: Coroutine[Any, Any, Any]) -> Any:
    return asyncio.run(test)


def with_store(place: str, test: Callable[[NacreConversationStore, nacre.AsyncSessions], Awaitable[Any]]) -> Any:
    async def main() -> Any:
        async with nacre.open_async(place) as sessions:
            return await test(NacreConversationStore(sessions), sessions)

    return run(main())


def asked(text: str) -> ModelRequest:
    return ModelRequest(parts=[UserPromptPart(text, timestamp=AT)], timestamp=AT)


def replied(text: str) -> ModelResponse:
    return ModelResponse(parts=[TextPart(text)], timestamp=AT, model_name="m")


# ---- every kind of message

texts = st.text(max_size=8) | st.sampled_from(["", "ü\U0001f41a", "\ud83d", "\0", "x" * 1000])
json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
media = st.one_of(
    st.builds(BinaryContent, st.binary(max_size=20), media_type=st.sampled_from(["image/png", "audio/wav"])),
    st.builds(ImageUrl, st.sampled_from(["https://shells.example/a.png", "data:image/png;base64,aGk="])),
    st.just(DocumentUrl("https://shells.example/a.pdf")),
)
ids = st.text(min_size=1, max_size=6)
request_parts: st.SearchStrategy[Any] = st.one_of(
    st.builds(SystemPromptPart, texts, timestamp=st.just(AT), dynamic_ref=st.none() | st.text(max_size=3)),
    st.builds(UserPromptPart, texts | st.lists(texts | media, max_size=4), timestamp=st.just(AT)),
    st.builds(ToolReturnPart, ids, json_values, ids, timestamp=st.just(AT), metadata=json_values),
    st.builds(ToolReturnPart, ids, texts, ids, timestamp=st.just(AT), outcome=st.sampled_from(["failed", "retried"])),
    st.builds(RetryFeedbackPart, texts, retry=st.just(RetryInfo(cause="no_output")), timestamp=st.just(AT)),
)
response_parts: st.SearchStrategy[Any] = st.one_of(
    st.builds(TextPart, texts, id=st.none() | ids),
    st.builds(ThinkingPart, texts, signature=st.none() | texts),
    st.builds(
        ToolCallPart,
        ids,
        st.none() | st.sampled_from(["{}", "not json"]) | st.dictionaries(st.text(max_size=5), json_values, max_size=2),
        tool_call_id=ids,
    ),
    st.builds(FilePart, st.just(BinaryImage(PNG, media_type="image/png"))),
)
model_messages = st.one_of(
    st.builds(ModelRequest, st.lists(request_parts, max_size=4), timestamp=st.just(AT), instructions=st.none() | texts),
    st.builds(
        ModelResponse,
        st.lists(response_parts, max_size=5),
        timestamp=st.just(AT),
        model_name=st.none() | st.just("m"),
        usage=st.builds(RequestUsage, input_tokens=st.integers(0, 9)),
        provider_details=st.none() | st.dictionaries(st.text(max_size=5), json_values, max_size=2),
    ),
)


def as_json(messages: list[ModelMessage]) -> Any:
    return ModelMessagesTypeAdapter.dump_python(messages, mode="json")


@given(st.lists(model_messages, min_size=1, max_size=5))
@settings(max_examples=400)
def test_every_message_is_loaded_as_the_frameworks_own_json_has_it(messages: list[ModelMessage]) -> None:
    async def test(store: NacreConversationStore, _: nacre.AsyncSessions) -> None:
        await store.save(Conversation(conversation_id="c", messages=messages))
        loaded = await store.load("c")
        assert loaded is not None
        assert as_json(loaded.messages) == as_json(messages)

    with_store(":memory:", test)


def test_a_turn_is_a_conversation_that_anyone_can_read(place: str) -> None:
    turn: list[ModelMessage] = [
        ModelRequest(
            parts=[
                SystemPromptPart("Be brief.", timestamp=AT),
                UserPromptPart(["What is it?", BinaryImage(PNG, media_type="image/png")], timestamp=AT),
            ],
            timestamp=AT,
        ),
        ModelResponse(
            parts=[
                ThinkingPart("Two tools.", signature="s"),
                TextPart("I look."),
                ToolCallPart("look", {"at": 1}, tool_call_id="c1"),
                ToolCallPart("feel", "{}", tool_call_id="c2"),
            ],
            timestamp=AT,
            model_name="m",
        ),
        ModelRequest(
            parts=[
                ToolReturnPart("look", {"colour": "white"}, "c1", timestamp=AT),
                ToolReturnPart("feel", "harder", "c2", timestamp=AT, outcome="retried"),
            ],
            timestamp=AT,
        ),
        replied("A pearl."),
    ]

    async def test(store: NacreConversationStore, sessions: nacre.AsyncSessions) -> None:
        await store.save(Conversation(conversation_id="c", messages=turn))
        loaded = await store.load("c")
        assert loaded is not None
        assert loaded.messages == turn
        said = await sessions.get_history("c")
        assert [(one.role, one.name, one.tool_call_id) for one in said] == [
            ("system", None, None),
            ("user", None, None),
            ("assistant", None, None),
            ("tool", "look", "c1"),
            ("tool", "feel", "c2"),
            ("assistant", None, None),
        ]
        image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBOR//++wA="}}
        assert said[1].content == [{"type": "text", "text": "What is it?"}, image]
        assert (said[2].content, said[2].reasoning, said[2].model) == ("I look.", "Two tools.", "m")
        assert [(call.id, call.name, call.arguments) for call in said[2].tool_calls] == [
            ("c1", "look", {"at": 1}),
            ("c2", "feel", "{}"),
        ]
        assert [one.content for one in said[3:]] == ['{"colour": "white"}', "harder", "A pearl."]
        assert (said[3].extra.get("failed"), said[4].extra.get("failed")) == (None, True)

    with_store(place, test)


def test_the_command_line_shows_the_conversation_and_no_text_is_stored_twice(root: Path) -> None:
    messages: list[ModelMessage] = [asked("Which shell?"), replied("A mussel.")]
    with_store(str(root), lambda store, _: store.save(Conversation(conversation_id="c", messages=messages)))
    command = [sys.executable, "-m", "nacre", "sessions", "show", "c"]
    env = {"NACRE_HOME": str(root), "PATH": ""}
    shown = subprocess.run(command, env=env, capture_output=True, text=True, check=True).stdout
    assert "Which shell?" in shown
    assert "A mussel." in shown
    logs = b"".join(path.read_bytes() for path in root.rglob("*") if path.is_file())
    assert logs.count(b"A mussel.") == 1


# ---- the same as the store in memory


async def play(store: ConversationStore, moves: list[Any]) -> list[Any]:
    """What a store answers to some moves, without the ids that it makes up."""
    stale: dict[str, Conversation] = {}
    return [await answer_to(store, stale, move, number) for number, move in enumerate(moves)]


async def answer_to(store: ConversationStore, stale: dict[str, Conversation], one: Any, number: int) -> Any:
    move, which, *more = one
    try:
        answer = await _play(store, stale, move, f"c{which}", more, number)
    except (UserError, ConversationConflict) as error:
        answer = type(error)
    return move, answer, await _all(store)


async def _play(
    store: ConversationStore, stale: dict[str, Conversation], move: str, name: str, more: list[Any], number: int
) -> Any:
    if move == "save":
        count, scope = more
        conversation = await store.load(name) or Conversation(conversation_id=name)
        stale.setdefault(name, await store.load(name) or Conversation(conversation_id=name))
        conversation.messages += [asked(f"{number}.{at}") for at in range(count)]
        conversation.usage = RunUsage(requests=number)
        return [entry.message for entry in await store.save(conversation, scope=scope)]
    if move == "call":
        conversation = await store.load(name) or Conversation(conversation_id=name)
        calls = [ToolCallPart("look", {"at": number}, tool_call_id=id) for id in ("c1", "c2")]
        prompts = [UserPromptPart(f"{number} {part}", timestamp=AT) for part in "ab"]
        conversation.messages += [
            ModelRequest(parts=prompts, timestamp=AT),
            ModelResponse(parts=calls, timestamp=AT),
        ]
        if more[0]:
            results = [ToolReturnPart("look", f"{number} {id}", id, timestamp=AT) for id in ("c1", "c2")]
            conversation.messages.append(ModelRequest(parts=results, timestamp=AT))
        return len(await store.save(conversation))
    if move == "go on":
        # As an application does that keeps the conversation: it is saved again and again without being loaded.
        kept = stale.get(f"kept {name}") or await store.load(name) or Conversation(conversation_id=name)
        stale[f"kept {name}"] = kept
        kept.messages.append(asked(f"on {number}"))
        return len(await store.save(kept))
    if move == "stale":
        old = stale.pop(name, None) or Conversation(conversation_id=name)
        old.messages += [asked(f"stale {number}")]
        return len(await store.save(old))
    if move == "rewrite":
        [at] = more
        found = await store.load(name)
        if found is None:
            return None
        fresh = Conversation(
            conversation_id=name, messages=[*found.messages[:at], replied(f"again {number}")], revision=found.revision
        )
        return len(await store.save(fresh))
    if move == "branch":
        [at] = more
        record = await store.read_record(name)
        expected = record.revision if record is not None else None
        stale[f"kept {name}"] = branched = await store.branch(name, at=at, expected_revision=expected)
        return list(branched.messages)
    if move == "branch back":
        [which] = more
        record = await store.read_record(name)
        if record is None or not record.branches:
            return None
        # The end of a branch, or an entry before it; not by the id of the branch, whose end may be erased.
        line = await store.read_history(record.branches[which % len(record.branches)])
        entry = line[-1 - which % len(line)].id
        stale[f"kept {name}"] = branched = await store.branch(name, from_entry=entry, expected_revision=record.revision)
        return list(branched.messages)
    if move == "fork":
        to, at = more
        forked = await store.fork(name, at=at, new_conversation_id=f"c{to}")
        stale[f"kept c{to}"] = forked
        return list(forked.messages), forked.usage
    if move == "delete":
        [scope] = more
        return await store.delete(name, scope=scope)
    limit, scope = more
    loaded = await store.load(name, limit=limit, scope=scope)
    return loaded and (loaded.messages, loaded.usage)


async def _all(store: ConversationStore) -> Any:
    found = []
    for record in await store.list_conversations():
        entries = await store.load_entries(record.conversation_id)
        assert entries is not None
        known = {entry.id: at for at, entry in enumerate(entries)}
        links = [known.get(entry.parent_id or "") for entry in entries]
        tips = [[entry.message for entry in await store.read_history(tip)] for tip in record.branches]
        about = (record.scope, record.forked_from, record.forked_at is None, record.usage, record.head_id in known)
        found.append((record.conversation_id, about, links, [entry.message for entry in entries], tips))
    return found


which = st.integers(0, 2)
scopes = st.sampled_from([None, "me", "you"])
OF_OTHERS: list[dict[str, Any]] = [
    {"role": "user", "content": "And in Oslo?"},
    {
        "role": "assistant",
        "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "ls", "arguments": "{}"}}],
    },
    *({"role": "tool", "tool_call_id": id, "content": "theirs"} for id in ("c1", "c2")),
]


class TwoStores(RuleBasedStateMachine):
    """Every move in both stores; each answers the same, and then has the same conversations."""

    def __init__(self) -> None:
        super().__init__()
        self.runner, self.sessions, self.number = asyncio.Runner(), nacre.open(":memory:"), 0
        stores: list[ConversationStore] = [InMemoryConversationStore(), NacreConversationStore(self.sessions)]
        self.stores: list[tuple[ConversationStore, dict[str, Conversation]]] = [(store, {}) for store in stores]

    def both(self, *move: Any) -> None:
        self.number += 1
        expected, found = (self.runner.run(answer_to(store, stale, move, self.number)) for store, stale in self.stores)
        assert found == expected

    @rule(which=which, count=st.integers(0, 3), scope=scopes)
    def save(self, which: int, count: int, scope: str | None) -> None:
        self.both("save", which, count, scope)

    @rule(which=which)
    def go_on(self, which: int) -> None:
        self.both("go on", which)

    @rule(which=which)
    def save_what_is_stale(self, which: int) -> None:
        self.both("stale", which)

    @rule(which=which, at=st.integers(0, 4))
    def rewrite(self, which: int, at: int) -> None:
        self.both("rewrite", which, at)

    @rule(which=which, at=st.integers(0, 6))
    def branch(self, which: int, at: int) -> None:
        self.both("branch", which, at)

    @rule(which=which, tip=st.integers(0, 3))
    def branch_back(self, which: int, tip: int) -> None:
        self.both("branch back", which, tip)

    @rule(which=which, to=which, at=st.none() | st.integers(0, 6))
    def fork(self, which: int, to: int, at: int | None) -> None:
        self.both("fork", which, to, at)

    @rule(which=which, scope=scopes)
    def delete(self, which: int, scope: str | None) -> None:
        self.both("delete", which, scope)

    @rule(which=which, limit=st.none() | st.integers(0, 4), scope=scopes)
    def load(self, which: int, limit: int | None, scope: str | None) -> None:
        self.both("load", which, limit, scope)

    def teardown(self) -> None:
        self.runner.close()
        self.sessions.close()


TestTwoStores = TwoStores.TestCase
TestTwoStores.settings = settings(max_examples=60, stateful_step_count=20)


class TwoStoresAndOthers:
    """Moves in both stores while others write into the sessions, erase and go back.

    The store in memory is given what they made of a conversation. That is done after each move, so that the next one
    begins where both have the same.
    """

    def __init__(self, sessions: nacre.Sessions, random: Random) -> None:
        self.sessions, self.random, self.number, self.is_clear = sessions, random, 0, True
        self.theirs, self.ours = InMemoryConversationStore(), NacreConversationStore(sessions)
        self.held: dict[str, Conversation] = {}
        self.kept: dict[str, Conversation] = {}

    async def step(self) -> None:
        self.number += 1
        which, at = self.random.choice([0, 0, 0, 1]), self.random.randrange(8)
        act = self.random.choice(["save", "call", "go on", "rewrite", "branch", "branch back", "fork", *4 * ["others"]])
        if act == "others":
            self.others_act(f"c{which}")
        else:
            moves = {
                "save": ("save", which, 1 + at % 2, None),
                "call": ("call", which, at % 2),
                "fork": ("fork", which, 1 + at % 2, at),
            }
            move = moves.get(act, (act, which) if act == "go on" else (act, which, at % 5))
            _, expected, theirs = await answer_to(self.theirs, self.held, move, self.number)
            _, found, ours = await answer_to(self.ours, self.kept, move, self.number)
            assert found == expected
            assert [one[:-1] for one in ours] == [one[:-1] for one in theirs]
            # A history that others have cut is not known to be another one, so that leaving it may leave no branch; and
            # one whose end they have erased stays a branch, also after going back to it.
            for (*_, live, tips), (*_, known) in zip(ours, theirs, strict=True):
                assert all(tip in known or tip == live[: len(tip)] for tip in tips)
        await self.mirror()

    def others_act(self, key: str) -> None:
        numbers = self.sessions.snapshot(key).numbers
        if not numbers:
            return
        acts: list[Callable[[], object]] = [
            lambda: self.sessions.add_messages(key, [self.random.choice(OF_OTHERS)]),
            lambda: self.sessions.redact(key, self.random.choice([one.n for one in self.sessions.transcript(key)])),
            lambda: self.sessions.truncate_history(key, self.random.randint(1, len(numbers))),
            lambda: self.sessions.pop(key),
        ]
        self.random.choice(acts)()

    async def mirror(self) -> None:
        """Give the store in memory what ours has; there an id says what comes before it."""
        self.theirs._records, self.theirs._entries = {}, {}
        for record in await self.ours.list_conversations():
            name = record.conversation_id
            # A fork has entries of the same ids: those of the conversation that was read last are meant.
            await self.ours.read_record(name)
            ends: dict[str | None, str | None] = {}
            places: dict[str, str] = {}
            for tip in (record.head_id, *record.branches):
                parent_id = None
                for entry in await self.ours.read_history(tip):
                    id = f"{parent_id or name} {entry.id}"
                    self.is_clear &= places.setdefault(entry.id, id) == id
                    self.theirs._entries[id] = ConversationEntry(id=id, parent_id=parent_id, message=entry.message)
                    parent_id = id
                ends[tip] = parent_id
            branches = [end for tip in record.branches if (end := ends[tip]) is not None]
            self.theirs._records[name] = replace(record, head_id=ends[record.head_id], branches=branches)
            for known_as in self.kept.keys() & {name, f"kept {name}"}:
                is_current = self.kept[known_as].revision == record.revision
                self.held[known_as].revision = record.revision if is_current else "stale"
            whole = await self.ours.load_entries(name) or []
            # Where others have truncated, an entry may follow different ones in two histories: the live is meant.
            self.is_clear &= {entry.id for entry in whole}.isdisjoint(record.branches)
            assert [entry.id for entry in whole][-1:] == [id for id in [record.head_id] if id is not None]
            for limit in range(1, len(whole)):
                assert await self.ours.load_entries(name, limit=limit) == whole[-limit:]


@pytest.mark.parametrize("seed", range(8))
def test_it_answers_as_the_store_in_memory_while_others_change_the_sessions(seed: int) -> None:
    async def test(random: Random) -> None:
        for _ in range(15):
            with nacre.open(":memory:") as sessions:
                stores = TwoStoresAndOthers(sessions, random)
                while stores.is_clear and stores.number < 25:
                    await stores.step()

    run(test(Random(seed)))


MOVES = [
    ("save", 0, 3, "me"),
    ("save", 0, 2, None),
    ("fork", 0, 1, 4),
    ("branch", 0, 2),
    ("save", 0, 2, None),
    ("branch back", 0, 0),
    ("rewrite", 0, 1),
    ("branch back", 0, 1),
    ("stale", 0),
    ("delete", 0, None),
    ("load", 1, 2, None),
    ("save", 1, 1, None),
    ("fork", 1, 0, None),
    ("delete", 1, None),
    ("load", 0, None, None),
]


def test_it_answers_as_the_store_in_memory_in_every_store(place: str) -> None:
    expected = run(play(InMemoryConversationStore(), MOVES))
    assert with_store(place, lambda store, _: play(store, MOVES)) == expected
    with nacre.open(":memory:") as sessions:
        assert run(play(NacreConversationStore(sessions), MOVES)) == expected


def test_a_new_process_finds_what_another_saved(lasting_place: str) -> None:
    async def first(store: NacreConversationStore, _: nacre.AsyncSessions) -> Any:
        await play(store, MOVES[:8])
        return await _all(store), (await store.read_record("c0"))

    async def second(store: NacreConversationStore, _: nacre.AsyncSessions) -> Any:
        record = await store.read_record("c0")
        assert record is not None
        fresh = NacreConversationStore(_)
        for tip in (record.head_id, *record.branches):
            assert await fresh.read_history(tip) == await store.read_history(tip)
            assert tip is None or (await fresh.read_entry(tip)).id == tip
        with pytest.raises(LookupError):
            await fresh.read_entry("unknown")
        return await _all(store), record

    assert with_store(lasting_place, first) == with_store(lasting_place, second)


# ---- agents


def test_an_agent_with_tools_retries_images_and_thoughts(place: str) -> None:
    def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        last = messages[-1].parts[-1]
        if isinstance(last, UserPromptPart):
            calls = [ToolCallPart("weigh", {"shell": "a"}), ToolCallPart("weigh", {"shell": "b"})]
            return ModelResponse(parts=[ThinkingPart("I weigh."), TextPart("Let me weigh."), *calls])
        if isinstance(last, ToolReturnPart) and last.outcome == "retried":
            return ModelResponse(parts=[ToolCallPart("weigh", {"shell": "c"})])
        return ModelResponse(parts=[TextPart(f"{len(info.function_tools)} tool, {len(messages)} messages.")])

    agent = Agent(FunctionModel(answer), instructions="Be brief.")

    @agent.tool_plain(retries=2)
    def weigh(shell: str) -> dict[str, Any]:
        if shell == "b":
            raise ModelRetry("not that one")
        return {"shell": shell, "grams": 5}

    async def test(store: NacreConversationStore, sessions: nacre.AsyncSessions) -> None:
        for turn in range(3):
            conversation = await store.load("c") or Conversation(conversation_id="c")
            prompt: list[UserContent] = ["Which is heavier?", BinaryImage(PNG, media_type="image/png")]
            result = await agent.run(prompt, conversation=conversation)
            await store.save(result)
            loaded = await store.load("c")
            assert loaded is not None
            assert loaded.messages == result.all_messages()
            assert (loaded.usage.requests, loaded.usage.tool_calls) == (
                3 * (turn + 1),
                result.conversation.usage.tool_calls,
            )
        said = await sessions.get_history("c")
        assert [one.role for one in said[:7]] == ["user", "assistant", "tool", "tool", "assistant", "tool", "assistant"]
        assert len(said) == 21

    with_store(place, test)


def test_a_paused_run_is_continued_after_a_restart(lasting_place: str) -> None:
    agent = Agent(TestModel(), output_type=[str, DeferredToolRequests])

    @agent.tool_plain(requires_approval=True)
    def erase(name: str) -> str:
        return f"erased {name}"

    async def pause(store: NacreConversationStore, _: nacre.AsyncSessions) -> None:
        result = await agent.run("Erase it.", conversation=Conversation(conversation_id="c"))
        assert isinstance(result.output, DeferredToolRequests)
        await store.save(result)

    async def go_on(store: NacreConversationStore, _: nacre.AsyncSessions) -> None:
        conversation = await store.load("c")
        assert conversation is not None
        assert conversation.deferred_tool_requests is not None
        answers = conversation.deferred_tool_requests.build_results(approve_all=True)
        result = await agent.run(conversation=conversation, deferred_tool_results=answers)
        assert "erased a" in str(result.output)
        await store.save(result)
        again = await store.load("c")
        assert again is not None
        assert again.deferred_tool_requests is None

    with_store(lasting_place, pause)
    with_store(lasting_place, go_on)


# ---- several processes

WRITER = """
import asyncio, sys, nacre
from pydantic_ai.conversation import Conversation
from pydantic_ai.conversation_store import ConversationConflict
from pydantic_ai.messages import ModelRequest, UserPromptPart
from nacre.integrations.pydantic_ai import NacreConversationStore
place, who, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
async def main():
    async with nacre.open_async(place) as sessions:
        store = NacreConversationStore(sessions)
        for number in range(count):
            while True:
                conversation = await store.load("c") or Conversation(conversation_id="c")
                for part in range(2):
                    said = UserPromptPart(f"{who} {number} {part} {len(conversation.messages)}")
                    conversation.messages.append(ModelRequest(parts=[said]))
                conversation.usage.requests += 1
                try:
                    await store.save(conversation)
                except ConversationConflict:
                    continue
                break
            print(number, flush=True)
asyncio.run(main())
"""


def texts_of(messages: list[ModelMessage]) -> list[str]:
    return [str(part.content) for message in messages for part in message.parts if isinstance(part, UserPromptPart)]


def test_two_processes_never_overwrite_each_other(lasting_place: str) -> None:
    with_store(lasting_place, lambda store, _: store.save(Conversation(conversation_id="other")))
    writers = [
        subprocess.Popen([sys.executable, "-c", WRITER, lasting_place, who, "20"], stdout=subprocess.DEVNULL)
        for who in ("a", "b")
    ]
    assert [writer.wait() for writer in writers] == [0, 0]

    async def test(store: NacreConversationStore, _: nacre.AsyncSessions) -> None:
        loaded = await store.load("c")
        assert loaded is not None
        said = [text.split() for text in texts_of(loaded.messages)]
        # Each saw exactly what is before it.
        assert [int(at) for *_, at in said] == list(range(80))
        for who in ("a", "b"):
            own = [(int(number), int(part)) for name, number, part, _ in said if name == who]
            assert own == [(number, part) for number in range(20) for part in range(2)]
        assert loaded.usage.requests == 40
        record = await store.read_record("c")
        assert record is not None
        assert record.branches == []

    with_store(lasting_place, test)


def test_a_killed_process_leaves_whole_saves(lasting_place: str) -> None:
    with_store(lasting_place, lambda store, _: store.save(Conversation(conversation_id="other")))
    for round_number in range(3):
        command = [sys.executable, "-c", WRITER, lasting_place, f"r{round_number}", "100000"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as writer:
            assert writer.stdout is not None
            lines = [writer.stdout.readline() for _ in range(5 + 4 * round_number)]
            writer.kill()
            acknowledged = [*lines, *writer.stdout.readlines()]
        last = int([line for line in acknowledged if line.endswith("\n")][-1])

        async def test(
            store: NacreConversationStore, _: nacre.AsyncSessions, last: int = last, who: str = f"r{round_number}"
        ) -> None:
            loaded = await store.load("c")
            assert loaded is not None
            own = [text for text in texts_of(loaded.messages) if text.startswith(f"{who} ")]
            assert len(own) in (2 * last + 2, 2 * last + 4)
            assert loaded.usage.requests * 2 == len(loaded.messages)

        with_store(lasting_place, test)


# ---- sessions of others


def test_what_others_wrote_is_loaded_and_continued(place: str) -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "ls", "arguments": '{"path": "."}'}}
    other = {"id": "c2", "type": "function", "function": {"name": "pwd", "arguments": "{}"}}
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,aGk="}}

    async def test(store: NacreConversationStore, sessions: nacre.AsyncSessions) -> None:
        await sessions.add_messages(
            "c",
            [
                {"role": "user", "content": [{"type": "text", "text": "What is here?"}, image]},
                {"role": "assistant", "content": "I look.", "tool_calls": [call, other]},
                {"role": "tool", "tool_call_id": "c1", "content": "a.py"},
                {"role": "assistant", "content": "a.py."},
            ],
        )
        messages = await store.read_messages("c")
        assert [type(one).__name__ for one in messages] == [
            "ModelRequest",
            "ModelResponse",
            "ModelRequest",
            "ModelResponse",
        ]
        [prompt], results = messages[0].parts, messages[2].parts
        assert isinstance(prompt, UserPromptPart)
        assert prompt.content == ["What is here?", BinaryImage(b"hi", media_type="image/png", identifier="c22b5f")]
        assert [(one.tool_name, one.content) for one in results if isinstance(one, ToolReturnPart)] == [
            ("ls", "a.py"),
            ("pwd", "interrupted, outcome unknown"),
        ]
        assert await store.read_messages("c", limit=1) == messages[-1:]
        assert await store.read_messages("nothing") == []
        # It is a conversation like any other now, also if both write in it.
        agent = Agent(TestModel(custom_output_text="Fine."))
        conversation = await store.load("c")
        assert conversation is not None
        await store.save(await agent.run("And now?", conversation=conversation))
        stale = await store.load("c")
        assert stale is not None
        await sessions.add_message("c", "user", "From elsewhere.")
        stale.messages.append(asked("lost?"))
        with pytest.raises(ConversationConflict):
            await store.save(stale)
        whole = await store.load("c")
        assert whole is not None
        assert whole.messages[:4] == messages
        assert texts_of(whole.messages)[1:] == ["And now?", "From elsewhere."]
        whole.messages.append(asked("Not lost."))
        await store.save(whole)
        assert texts_of(await store.read_messages("c"))[1:] == ["And now?", "From elsewhere.", "Not lost."]
        for limit in range(1, 9):
            assert await store.read_messages("c", limit=limit) == (await store.read_messages("c"))[-limit:]

    with_store(place, test)


def test_an_archived_conversation_is_not_there_and_can_begin_again(place: str) -> None:
    async def test(store: NacreConversationStore, sessions: nacre.AsyncSessions) -> None:
        await store.save(Conversation(conversation_id="c", messages=[asked("one")]))
        await sessions.archive("c")
        assert await store.load("c") is None
        await store.save(Conversation(conversation_id="c", messages=[asked("two")]))
        assert texts_of(await store.read_messages("c")) == ["two"]

    with_store(place, test)


async def load(store: ConversationStore, name: str) -> Conversation:
    found = await store.load(name)
    assert found is not None
    return found


def called(*ids: str) -> dict[str, Any]:
    calls = [{"id": id, "type": "function", "function": {"name": f"do_{id}", "arguments": "{}"}} for id in ids]
    return {"role": "assistant", "content": "I look.", "tool_calls": calls}


foreign_messages = st.one_of(
    st.just({"role": "user", "content": "hello"}),
    st.just({"role": "system", "content": "Be brief."}),
    st.just({"role": "assistant", "content": "Well."}),
    st.just({"role": "assistant", "content": ""}),
    st.lists(st.sampled_from(["c1", "c2"]), min_size=1, max_size=2).map(lambda found: called(*found)),
    st.builds(
        lambda call: {"role": "tool", "tool_call_id": call, "content": "done"}, st.sampled_from(["c1", "c2", "c3"])
    ),
)


@given(st.lists(st.lists(foreign_messages, min_size=1, max_size=5) | st.integers(1, 2), min_size=1, max_size=5))
@settings(max_examples=150)
def test_any_history_of_others_can_be_read_from_its_end_branched_and_forked_at_every_entry(writes: list[Any]) -> None:
    async def test(store: NacreConversationStore, sessions: nacre.AsyncSessions) -> None:
        for write in writes:
            if isinstance(write, int):
                conversation = await store.load("c") or Conversation(conversation_id="c")
                conversation.messages += [asked(f"own {number}") for number in range(write)]
                await store.save(conversation)
            else:
                await sessions.add_messages("c", write)
        entries = await store.load_entries("c") or []
        assert len({entry.id for entry in entries}) == len(entries)
        assert await store.load_entries("c") == (entries or None)
        for at, entry in enumerate(entries, 1):
            assert await store.load_entries("c", limit=at) == entries[-at:]
            assert await store.read_entry(entry.id) == entry
            assert await store.read_history(entry.id) == entries[:at]
            await store.fork("c", at=at, new_conversation_id=f"fork {at}")
        said = [entry.message for entry in entries]
        for at in range(len(entries), 0, -1):
            record = await store.read_record("c")
            assert record is not None
            branched = await store.branch("c", at=at, expected_revision=record.revision)
            assert branched.messages == said[:at]
            assert (await load(store, "c")).messages == said[:at]
            branched.messages.append(asked("more"))
            await store.save(branched)
            assert (await load(store, "c")).messages == [*said[:at], asked("more")]
        await store.delete("c")
        for at in range(1, len(entries) + 1):
            forked = await load(store, f"fork {at}")
            assert forked.messages == said[:at]
            forked.messages.append(asked("more"))
            await store.save(forked)
            assert (await load(store, f"fork {at}")).messages == [*said[:at], asked("more")]

    with_store(":memory:", test)


def test_an_entry_of_others_keeps_its_id_while_they_write_on(place: str) -> None:
    async def test(store: NacreConversationStore, sessions: nacre.AsyncSessions) -> None:
        before: list[str] = []
        for message in ({"role": "user", "content": "a"}, called("c1"), {"role": "tool", "content": "b"}, called("c2")):
            await sessions.add_messages("c", [message])
            ids = [entry.id for entry in await store.load_entries("c") or []]
            # What stands for a missing result goes when the result comes.
            assert ids[: len(before)] == before
            before = [id for id in ids if not id.endswith("+")]

    with_store(place, test)


def test_a_result_that_others_store_late_stands_with_their_call(place: str) -> None:
    async def test(store: NacreConversationStore, sessions: nacre.AsyncSessions) -> None:
        await sessions.add_messages("c", [{"role": "user", "content": "Pay."}, called("c1")])
        loaded = await store.load("c")
        assert loaded is not None
        agent = Agent(TestModel(custom_output_text="Soon."))
        await store.save(await agent.run("When?", conversation=loaded))
        await sessions.add_messages("c", [{"role": "tool", "tool_call_id": "c1", "content": "paid"}])
        contents = [getattr(part, "content", "call") for one in await store.read_messages("c") for part in one.parts]
        assert contents == ["Pay.", "I look.", "call", "paid", "When?", "Soon."]

    with_store(place, test)


CHANGES: dict[str, Callable[[nacre.AsyncSessions], Awaitable[Any]]] = {
    "truncate": lambda sessions: sessions.truncate_history("c", 2),
    "pop": lambda sessions: sessions.pop("c"),
    "clear": lambda sessions: sessions.clear("c"),
    "add": lambda sessions: sessions.add_message("c", "user", "elsewhere"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_history_that_others_change_is_loaded_and_the_stale_one_is_refused(change: str, place: str) -> None:
    parts: list[Any] = [
        SystemPromptPart("a", timestamp=AT),
        UserPromptPart("b", timestamp=AT),
        UserPromptPart("c", timestamp=AT),
    ]

    async def test(store: NacreConversationStore, sessions: nacre.AsyncSessions) -> None:
        await store.save(Conversation(conversation_id="c", messages=[ModelRequest(parts=parts, timestamp=AT)]))
        stale = await load(store, "c")
        await CHANGES[change](sessions)
        stale.messages.append(asked("lost?"))
        with pytest.raises(ConversationConflict):
            await store.save(stale)
        fresh = await load(store, "c")
        expected = {"truncate": ["b", "c"], "pop": ["b"], "clear": [], "add": ["b", "c", "elsewhere"]}[change]
        assert texts_of(fresh.messages) == expected
        fresh.messages.append(asked("not lost"))
        await store.save(fresh)
        assert texts_of((await load(store, "c")).messages) == [*expected, "not lost"]

    with_store(place, test)


@pytest.mark.parametrize("erased", range(5))
def test_every_call_has_one_result_after_erasing_and_the_conversation_goes_on(erased: int, place: str) -> None:
    calls = [ToolCallPart("look", {"at": id}, tool_call_id=id) for id in ("c1", "c2")]
    results = [ToolReturnPart("look", f"result of {id}", id, timestamp=AT) for id in ("c1", "c2")]
    said: list[ModelMessage] = [
        asked("Where?"),
        ModelResponse(parts=calls),
        ModelRequest(parts=results),
        replied("There."),
    ]

    async def test(store: NacreConversationStore, sessions: nacre.AsyncSessions) -> None:
        await store.save(Conversation(conversation_id="c", messages=said))
        await sessions.redact("c", (await sessions.snapshot("c")).numbers[erased])
        loaded = await load(store, "c")
        found = [one for message in loaded.messages for one in message.parts]
        assert [one.tool_call_id for one in found if isinstance(one, ToolCallPart)] == ["c1", "c2"]
        returned = [(one.tool_name, one.tool_call_id) for one in found if isinstance(one, ToolReturnPart)]
        assert returned == [("look", "c1"), ("look", "c2")]
        assert str(found).count("[erased]") == (0 if erased == 1 else 1)

        loaded.messages.append(asked("And then?"))
        await store.save(loaded)
        again = await load(store, "c")
        assert again.messages == loaded.messages

    with_store(place, test)


def test_a_label_that_others_set_is_no_conflict(place: str) -> None:
    async def test(store: NacreConversationStore, sessions: nacre.AsyncSessions) -> None:
        await store.save(Conversation(conversation_id="c", messages=[asked("one")]))
        loaded = await load(store, "c")
        for title in ("a", "b"):
            await sessions.set_meta("c", {"title": title})
        loaded.messages.append(asked("two"))
        await store.save(loaded)
        assert texts_of((await load(store, "c")).messages) == ["one", "two"]
        assert (await sessions.snapshot("c")).meta["title"] == "b"

    with_store(place, test)


def test_a_label_does_not_hide_what_others_wrote_before_it(place: str) -> None:
    async def test(store: NacreConversationStore, sessions: nacre.AsyncSessions) -> None:
        await store.save(Conversation(conversation_id="c", messages=[asked("one")]))
        stale = await load(store, "c")
        await sessions.add_message("c", "user", "elsewhere")
        await sessions.set_meta("c", {"title": "a"})
        stale.messages.append(asked("lost?"))
        with pytest.raises(ConversationConflict):
            await store.save(stale)
        assert texts_of((await load(store, "c")).messages) == ["one", "elsewhere"]

    with_store(place, test)


class Interrupted(nacre.Sessions):
    """Somebody else writes between the look at a session and the change of it."""

    def _interrupt(self) -> None:
        self.__class__ = nacre.Sessions  # type: ignore[assignment] # once
        self.add_message("c", "user", "in between")

    def submit(self, *args: Any, **named: Any) -> Any:
        self._interrupt()
        return self.submit(*args, **named)

    def delete(self, *args: Any, **named: Any) -> Any:
        self._interrupt()
        return self.delete(*args, **named)


@pytest.mark.parametrize("change", ["save", "branch", "delete"])
def test_what_is_written_between_the_look_and_the_change_is_a_conflict(change: str, place: str) -> None:
    async def main() -> None:
        with nacre.open(place) as sessions:
            store = NacreConversationStore(sessions)
            await store.save(Conversation(conversation_id="c", messages=[asked("one")]))
            loaded = await load(store, "c")
            assert loaded.revision is not None
            loaded.messages.append(asked("lost?"))
            changes: dict[str, Callable[[str], Awaitable[Any]]] = {
                "save": lambda _: store.save(loaded),
                "branch": lambda revision: store.branch("c", at=0, expected_revision=revision),
                "delete": lambda revision: store.delete_record("c", expected_revision=revision),
            }
            sessions.__class__ = Interrupted
            with pytest.raises(ConversationConflict):
                await changes[change](loaded.revision)
            assert texts_of((await load(store, "c")).messages) == ["one", "in between"]

    run(main())


# ---- large, odd and many


def test_forks_of_forks_outlive_what_they_were_forked_from(lasting_place: str) -> None:
    async def make(store: NacreConversationStore, sessions: nacre.AsyncSessions) -> None:
        await sessions.add_messages("c0", [{"role": "user", "content": "0"}, called("c1")])
        for number in range(1, 6):
            forked = await store.fork(f"c{number - 1}", new_conversation_id=f"c{number}")
            forked.messages.append(asked(str(number)))
            await store.save(forked)
        for number in range(5):
            await store.delete(f"c{number}")

    async def test(store: NacreConversationStore, sessions: nacre.AsyncSessions) -> None:
        assert [info.key async for info in sessions.list()] == ["c5"]
        assert texts_of((await load(store, "c5")).messages) == ["0", "1", "2", "3", "4", "5"]

    with_store(lasting_place, make)
    with_store(lasting_place, test)


def test_a_fork_has_what_its_source_has_and_not_another_fork_with_the_same_entries(place: str) -> None:
    async def test(store: NacreConversationStore, sessions: nacre.AsyncSessions) -> None:
        await store.save(Conversation(conversation_id="c0", messages=[asked("1"), asked("2"), asked("3")]))
        await store.fork("c0", new_conversation_id="c1")
        await sessions.truncate_history("c0", 2)
        await sessions.add_message("c1", "user", "4")
        forked = await store.fork("c0", at=1, new_conversation_id="c2")
        assert texts_of((await load(store, "c2")).messages) == texts_of(forked.messages) == ["2"]

    with_store(place, test)


def test_large_texts_images_and_values_that_json_has_not(lasting_place: str) -> None:
    image = BinaryImage(bytes(range(256)) * 4096, media_type="image/png")
    messages: list[ModelMessage] = [
        ModelRequest(parts=[UserPromptPart(["\U0001f41a" * 250_000, image], timestamp=AT)], timestamp=AT),
        ModelResponse(parts=[TextPart("x" * 1_000_000), ToolCallPart("t", {"n": 2**70}, tool_call_id="c")]),
        ModelRequest(parts=[ToolReturnPart("t", image, "c", timestamp=AT)], timestamp=AT),
    ]
    waiting = DeferredToolRequests(calls=[ToolCallPart("t", {"n": 2**70, "s": "\ud83d"}, tool_call_id="c")])

    async def save(store: NacreConversationStore, _: nacre.AsyncSessions) -> None:
        conversation = Conversation(conversation_id="c/\U0001f41a%", messages=messages, deferred_tool_requests=waiting)
        await store.save(conversation, scope="\ud83d")

    async def test(store: NacreConversationStore, _: nacre.AsyncSessions) -> None:
        loaded = await load(store, "c/\U0001f41a%")
        assert loaded.messages == messages
        assert loaded.deferred_tool_requests == waiting
        [record] = await store.list_conversations(scope="\ud83d")
        assert record.conversation_id == "c/\U0001f41a%"

    with_store(lasting_place, save)
    with_store(lasting_place, test)


class CountingView:
    """A view that counts the records that are read through it."""

    read = 0

    def __init__(self, view: nacre.View) -> None:
        self._view = view

    def __getattr__(self, name: str) -> Any:
        return getattr(self._view, name)

    def find(self, n: int) -> Any:
        CountingView.read += 1
        return self._view.find(n)

    def back(self, n: int) -> Iterator[Any]:
        for record in self._view.back(n):
            CountingView.read += 1
            yield record

    def all(self) -> Iterator[Any]:
        for record in self._view.all():
            CountingView.read += 1
            yield record


class CountingSessions(nacre.Sessions):
    def read(self, key: str, get: Callable[[Any], Any], **named: Any) -> Any:
        return super().read(key, lambda view: get(CountingView(view)), **named)


@pytest.mark.parametrize("own", [True, False])
def test_reading_the_end_and_saving_do_not_read_more_of_a_longer_history(own: bool) -> None:
    async def count(length: int) -> tuple[int, int]:
        with nacre.open(":memory:") as sessions:
            if own:
                messages: list[ModelMessage] = [asked(str(number)) for number in range(length)]
                await NacreConversationStore(sessions).save(Conversation(conversation_id="c", messages=messages))
            else:
                sessions.add_messages("c", [{"role": "user", "content": str(number)} for number in range(length)])
            sessions.__class__ = CountingSessions
            store = NacreConversationStore(sessions)
            CountingView.read = 0
            loaded = await store.load("c", limit=5)
            assert loaded is not None
            assert texts_of(loaded.messages) == [str(number) for number in range(length)][-5:]
            reading, CountingView.read = CountingView.read, 0
            loaded.messages.append(asked("more"))
            await store.save(loaded)
            return reading, CountingView.read

    assert run(count(50)) == run(count(2000))


# ---- at the door


def test_wrong_arguments_are_refused() -> None:
    with pytest.raises(nacre.InvalidArgument, match="sessions must be"):
        NacreConversationStore("sessions")  # type: ignore[arg-type]

    async def test(store: NacreConversationStore, sessions: nacre.AsyncSessions) -> None:
        for wrong in ("", 5, "x" * 2000):
            with pytest.raises(nacre.InvalidKey):
                await store.load(wrong)  # type: ignore[arg-type]
            with pytest.raises(nacre.InvalidKey):
                await store.save(Conversation(conversation_id=wrong))  # type: ignore[arg-type]
        await store.save(Conversation(conversation_id="c", messages=[asked("x")]))
        generation = (await sessions.snapshot("c")).generation
        for unknown in ("", "x", "/", "x/2", f"{generation}/", f"{generation}/1", f"{generation}/99", "\ud83d"):
            with pytest.raises(KeyError):
                await store.read_history(unknown)
            with pytest.raises(KeyError):
                await store.read_entry(f"{generation}/\u00b2")
        with pytest.raises(nacre.InvalidKey):
            await store.save(Conversation(conversation_id="nacre:memory", messages=[asked("x")]))

    with_store(":memory:", test)


RECORD = ConversationRecord(conversation_id="c", head_id="e999", revision="2", updated_at=AT)
NEW = [ConversationEntry(id=f"e{n}", parent_id=f"e{n - 1}" if n else None, message=asked(f"{n}")) for n in range(1000)]
AWAITED: dict[str, Callable[[NacreConversationStore], Awaitable[object]]] = {
    "read_record": lambda store: store.read_record("c"),
    "read_records": lambda store: store.read_records(),
    "write_record": lambda store: store.write_record(
        replace(RECORD, conversation_id="new"), new_entries=NEW, expected_revision=None
    ),
    "delete_record": lambda store: store.delete_record("c", expected_revision="2"),
    "read_entry": lambda store: store.read_entry("e500"),
    "read_history": lambda store: store.read_history("e999"),
    "read_messages": lambda store: store.read_messages("c"),
}


@pytest.mark.parametrize("method", AWAITED)
def test_no_call_blocks_the_event_loop(method: str) -> None:
    def fill(sessions: nacre.Sessions) -> None:
        run(NacreConversationStore(sessions).write_record(RECORD, new_entries=NEW, expected_revision=None))

    assert_loop_goes_on(fill, lambda sessions: AWAITED[method](NacreConversationStore(sessions)), most=500)


def test_every_method_is_tried_in_the_event_loop() -> None:
    assert async_methods(NacreConversationStore) == set(AWAITED)


def test_the_methods_that_it_has_from_pydantic_ai_are_described() -> None:
    described = " ".join((NacreConversationStore.__doc__ or "").split())
    for name in vars(ConversationStore).keys() - vars(NacreConversationStore).keys():
        if not name.startswith("_"):
            _, *parameters = inspect.signature(getattr(ConversationStore, name)).parameters.values()
            plain = inspect.Signature([one.replace(annotation=inspect.Parameter.empty) for one in parameters])
            assert f"- `{name}{plain}`: " in described


@pytest.mark.parametrize("role", ["user", ""])
@pytest.mark.parametrize("mark", [*[5, "text", True, None, ["a"]], {}, {"entry": 5}])
def test_what_others_keep_under_the_name_does_not_make_it_unreadable(mark: Any, role: str) -> None:
    async def test(store: NacreConversationStore, sessions: nacre.AsyncSessions) -> None:
        await store.save(Conversation(conversation_id="c", messages=[asked("ours")]))
        theirs = nacre.Message(
            role=role, content="theirs" if role else None, extra={"type": "item", "pydantic_ai": mark}
        )
        await sessions.add_full_message("c", theirs)
        loaded = await store.load("c")
        assert loaded is not None
        assert texts_of(loaded.messages) == (["ours", "theirs"] if role else ["ours"])
        loaded.messages.append(asked("more"))
        await store.save(loaded)
        assert texts_of(await store.read_messages("c"))[-1] == "more"

    with_store(":memory:", test)
