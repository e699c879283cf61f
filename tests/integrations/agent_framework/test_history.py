"""Messages are restored as they were given, and a transcript that is replayed does not grow."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import AsyncIterable, Awaitable, Callable, Iterator, Mapping, Sequence
from typing import Any

import pytest
from agent_framework import (
    Agent,
    BaseChatClient,
    ChatResponse,
    ChatResponseUpdate,
    Content,
    FunctionInvocationLayer,
    InMemoryHistoryProvider,
    Message,
    ResponseStream,
    tool,
)
from hypothesis import given
from hypothesis import strategies as st

import nacre
from nacre.history.pairing import pair
from nacre.integrations.agent_framework import NacreHistoryProvider, to_stored
from tests.event_loop import assert_loop_goes_on, async_methods

KINDS: dict[str, list[Content]] = {
    "text": [Content.from_text("hello")],
    "empty text": [Content.from_text("")],
    "nothing": [],
    "texts": [Content.from_text("a"), Content.from_text("b", additional_properties={"x": 1})],
    "call": [Content.from_text("let me see"), Content.from_function_call("c1", "ls", arguments='{"path": "."}')],
    "calls": [Content.from_function_call("c1", "ls", arguments={"a": 1}), Content.from_function_call("c2", "ls")],
    "result": [Content.from_function_result("c1", result="a.py")],
    "results": [Content.from_function_result("c1", result="a.py"), Content.from_function_result("c2", result="b.py")],
    "failed": [Content.from_function_result("c1", result="no", exception="ValueError")],
    "image": [Content.from_text("look"), Content.from_data(b"abc", "image/png")],
    "link": [Content.from_uri("https://example.org/a.png", media_type="image/png"), Content.from_text("after")],
    "audio": [Content.from_data(b"abc", "audio/wav")],
    "reasoning": [Content.from_text_reasoning(text="hm", protected_data="x"), Content.from_text("yes")],
    "reasonings": [Content.from_text_reasoning(text="a"), Content.from_text_reasoning(text="b")],
    "error": [Content.from_error(message="broken")],
    "hosted": [Content.from_hosted_file("file_1")],
    "half a character": [Content.from_text("\ud800")],
    "call that no log holds": [Content.from_function_call("c1", "ls", arguments={"n": 2**70, "x": float("inf")})],
    "approval": [Content.from_function_approval_request("a1", Content.from_function_call("c1", "ls"))],
}
messages = st.builds(
    lambda role, kinds, **named: Message(role, [copy.deepcopy(one) for kind in kinds for one in KINDS[kind]], **named),
    st.sampled_from(["user", "assistant", "tool", "system"]),
    st.lists(st.sampled_from(list(KINDS)), max_size=3),
    author_name=st.none() | st.text(max_size=5),
    message_id=st.none() | st.sampled_from(["m1", "m2", "m3"]),
    additional_properties=st.sampled_from([{}, {"x": [1]}, {"_excluded": True}, {"n": 2**70}]),
)


def dicts(found: Sequence[Message]) -> list[dict[str, Any]]:
    return [one.to_dict() for one in found]


@given(st.lists(messages, max_size=4))
def test_messages_are_restored(given: list[Message]) -> None:
    async def run(sessions: nacre.Sessions) -> None:
        for number, one in enumerate(given):
            provider = NacreHistoryProvider(sessions)
            await provider.save_messages(f"s{number}", [one])
            assert dicts(await provider.get_messages(f"s{number}")) == dicts([one])

    with nacre.open(":memory:") as sessions:
        asyncio.run(run(sessions))


def test_a_file_is_shown_to_everyone_and_restored() -> None:
    files = [
        Content.from_data(b"abc", "application/pdf"),
        Content.from_uri("https://x.org/a.wav", media_type="audio/wav"),
    ]
    sent = [Message("user", files)]
    with nacre.open(":memory:") as sessions:
        provider = NacreHistoryProvider(sessions)
        asyncio.run(provider.save_messages("s", sent))
        assert dicts(asyncio.run(provider.get_messages("s"))) == dicts(sent)
        (shown,) = nacre.to_openai(sessions.get_history("s"))
    assert [part["text"] for part in shown["content"]] == ["[application/pdf, 3 B]", "[file: https://x.org/a.wav]"]


pool = st.lists(messages, min_size=1, max_size=4)


@given(pool, st.data())
def test_saving_again_and_again_gives_what_the_own_provider_gives(pool: list[Message], data: st.DataObject) -> None:
    pool = [one for one in pool if one.contents]

    async def run(sessions: nacre.Sessions) -> None:
        ours, theirs = NacreHistoryProvider(sessions), InMemoryHistoryProvider()
        state: dict[str, Any] = {}
        sent: list[Message] = []
        for _ in range(data.draw(st.integers(1, 6))):
            new = [copy.deepcopy(pool[at]) for at in data.draw(st.lists(st.integers(0, len(pool) - 1), max_size=3))]
            replayed = data.draw(st.sampled_from([0, 1, 2, len(sent)]))
            batch = [*sent[len(sent) - replayed :], *new]
            await theirs.save_messages("s", batch, state=state)
            await ours.save_messages("s", batch)
            sent += new
            expected = await theirs.get_messages("s", state=state)
            assert dicts(await ours.get_messages("s")) == dicts(expected)

    if pool:
        with nacre.open(":memory:") as sessions:
            asyncio.run(run(sessions))


@pytest.mark.parametrize("mark", ["", "\ud800"])
def test_a_replayed_transcript_does_not_grow(mark: str) -> None:
    async def run(sessions: nacre.Sessions) -> None:
        provider, sent = NacreHistoryProvider(sessions), []
        for n in range(20):
            sent += [Message("user", [f"question {n}{mark}"]), Message("assistant", [f"answer {n}"])]
            await provider.save_messages("s", sent)
            await provider.save_messages("s", sent)
        assert len(sessions.transcript("s")) == 40

    with nacre.open(":memory:") as sessions:
        asyncio.run(run(sessions))


def test_several_results_are_as_many_messages_for_others() -> None:
    given = [Message("user", ["ls"]), Message("assistant", KINDS["calls"]), Message("tool", KINDS["results"])]
    shown = pair([one for message in given for one in to_stored(message.to_dict())])
    assert [(one.role, one.content, one.tool_call_id) for one in shown] == [
        ("user", "ls", None),
        ("assistant", "", None),
        ("tool", "a.py", "c1"),
        ("tool", "b.py", "c2"),
    ]


def test_a_message_of_another_framework_is_read() -> None:
    with nacre.open(":memory:") as sessions:
        call = {"id": "c1", "type": "function", "function": {"name": "ls", "arguments": "{}"}}
        sessions.add_message("s", "user", "hello")
        sessions.add_full_message("s", {"role": "assistant", "content": None, "tool_calls": [call]})
        sessions.add_full_message("s", {"role": "tool", "content": "a.py", "tool_call_id": "c1"})
        found = asyncio.run(NacreHistoryProvider(sessions).get_messages("s"))
    assert [(one.role, [content.type for content in one.contents]) for one in found] == [
        ("user", ["text"]),
        ("assistant", ["function_call"]),
        ("tool", ["function_result"]),
    ]


# ---- what nacre does to the session meanwhile


@pytest.mark.parametrize("at", range(5))
def test_an_erased_message_leaves_calls_and_results_paired(at: int, place: str) -> None:
    turn = [
        Message("user", ["ls"]),
        Message("assistant", KINDS["calls"]),
        Message("tool", KINDS["results"]),
        Message("assistant", ["done"]),
    ]

    async def run(sessions: nacre.Sessions) -> None:
        provider = NacreHistoryProvider(sessions)
        await provider.save_messages("s", turn)
        sessions.redact("s", sessions.snapshot("s").numbers[at])
        found = await provider.get_messages("s")
        by_role = [(one.role, content.call_id) for one in found for content in one.contents if content.call_id]
        assert by_role == [("assistant", "c1"), ("assistant", "c2"), ("tool", "c1"), ("tool", "c2")]
        shown = [content.text or content.result for one in found for content in one.contents]
        assert shown.count("[erased]") == 1
        assert [text for text in ("ls", "a.py", "b.py", "done") if text not in shown] == [
            text for n, text in ((0, "ls"), (2, "a.py"), (3, "b.py"), (4, "done")) if n == at
        ]

    with nacre.open(place) as sessions:
        asyncio.run(run(sessions))


def conversation(*, has_ids: bool) -> list[Message]:
    said = [
        Message("user", ["q0"]),
        Message("assistant", KINDS["calls"]),
        Message("tool", KINDS["results"]),
        Message("assistant", ["done"]),
        Message("user", ["q1"]),
        Message("assistant", ["a1"]),
    ]
    for number, one in enumerate(said):
        one.message_id = f"m{number}" if has_ids else None
    return said


@pytest.mark.parametrize("has_ids", [False, True])
@pytest.mark.parametrize("erased", range(7))
def test_a_replayed_transcript_does_not_store_again_what_was_erased(erased: int, *, has_ids: bool, place: str) -> None:
    given = conversation(has_ids=has_ids)

    async def run(sessions: nacre.Sessions) -> None:
        await NacreHistoryProvider(sessions).save_messages("s", given)
        sessions.redact("s", sessions.snapshot("s").numbers[erased])
        before = dicts(await NacreHistoryProvider(sessions).get_messages("s"))
        # Also by a provider that has seen none of it, and with what is new.
        for new in ([], [Message("user", ["q2"]), Message("assistant", ["a2"])]):
            await NacreHistoryProvider(sessions).save_messages("s", [*given, *new])
            assert dicts(await NacreHistoryProvider(sessions).get_messages("s")) == before + dicts(new)
        assert len(sessions.transcript("s")) == 9

    with nacre.open(place) as sessions:
        asyncio.run(run(sessions))


@pytest.mark.parametrize("has_ids", [False, True])
@pytest.mark.parametrize("at", [0, 2, 6])
@pytest.mark.parametrize("is_seen", [False, True])
def test_a_replayed_transcript_is_known_again_among_messages_of_others(
    at: int, *, is_seen: bool, has_ids: bool
) -> None:
    given = conversation(has_ids=has_ids)[:2] + conversation(has_ids=has_ids)[3:]
    given[1] = Message("assistant", ["a0"], message_id="m1" if has_ids else None)

    async def run(sessions: nacre.Sessions) -> None:
        provider = NacreHistoryProvider(sessions)
        await provider.save_messages("s", given[:at])
        for number in range(10):
            sessions.add_message("s", "user", f"f{number}")
        sessions.add_full_message("s", {"role": "assistant", "content": [{"type": "text", "text": "theirs"}]})
        if given[at:]:
            await provider.save_messages("s", given[at:])
        before = dicts(await provider.get_messages("s"))
        replayed = await provider.get_messages("s") if is_seen else given
        for new in ([], [Message("user", ["q2"]), Message("assistant", ["a2"])]):
            await provider.save_messages("s", [*replayed, *new])
            assert dicts(await provider.get_messages("s")) == before + dicts(new)

    with nacre.open(":memory:") as sessions:
        asyncio.run(run(sessions))


def test_a_transcript_is_known_again_if_its_sender_saw_some_messages_of_others() -> None:
    async def run(sessions: nacre.Sessions) -> list[str]:
        provider = NacreHistoryProvider(sessions)
        theirs: list[dict[str, Any]] = [{"role": "user", "content": "f1"}, {"role": "assistant", "content": "f2"}]
        sessions.add_messages("s", theirs)
        seen = await provider.get_messages("s")
        sessions.add_messages("s", [{"role": "user", "content": "f3"}, {"role": "assistant", "content": "f4"}])
        turns = [Message("user", ["q1"]), Message("assistant", ["a1"])]
        await provider.save_messages("s", [*seen, *turns])
        await provider.save_messages("s", [*seen, *turns, Message("user", ["q2"]), Message("assistant", ["a2"])])
        return [one.text for one in await provider.get_messages("s")]

    with nacre.open(":memory:") as sessions:
        assert asyncio.run(run(sessions)) == ["f1", "f2", "f3", "f4", "q1", "a1", "q2", "a2"]


def test_a_question_with_the_same_answer_as_an_erased_one_is_kept() -> None:
    async def run(sessions: nacre.Sessions) -> list[str]:
        provider = NacreHistoryProvider(sessions)
        for question in ("first", "second"):
            await provider.save_messages("s", [Message("user", [question]), Message("assistant", ["done"])])
            sessions.redact("s", sessions.snapshot("s").numbers[-2])
        await provider.save_messages("s", [Message("user", ["third"]), Message("assistant", ["done"])])
        return [one.text for one in await provider.get_messages("s")]

    with nacre.open(":memory:") as sessions:
        assert asyncio.run(run(sessions)) == ["[erased]", "done", "[erased]", "done", "third", "done"]


def test_an_archived_session_is_not_there_and_begins_again(place: str) -> None:
    turn = [Message("user", ["a"]), Message("assistant", ["b"])]

    async def run(sessions: nacre.Sessions) -> list[str]:
        provider = NacreHistoryProvider(sessions)
        await provider.save_messages("s", turn)
        sessions.archive("s")
        assert await provider.get_messages("s") == []
        # What the archived conversation has is no message of the new one.
        await provider.save_messages("s", [*turn, Message("user", ["c"])])
        return [one.text for one in await provider.get_messages("s")]

    with nacre.open(place) as sessions:
        assert asyncio.run(run(sessions)) == ["a", "b", "c"]


def test_a_save_after_another_process_has_deleted_or_archived_the_session(lasting_place: str) -> None:
    async def run(sessions: nacre.Sessions, other: nacre.Sessions) -> None:
        provider = NacreHistoryProvider(sessions)
        for end in (other.archive, other.delete):
            await provider.save_messages("s", [Message("user", ["a"]), Message("assistant", ["b"])])
            end("s")
            await provider.save_messages("s", [Message("user", ["c"]), Message("assistant", ["d"])])
            assert [one.text for one in await provider.get_messages("s")] == ["c", "d"]
            other.delete("s")

    with nacre.open(lasting_place) as sessions, nacre.open(lasting_place) as other:
        asyncio.run(run(sessions, other))


def test_the_last_messages_are_the_end_of_all_whoever_wrote_them() -> None:
    calls = [{"id": id, "type": "function", "function": {"name": "ls", "arguments": "{}"}} for id in ("c2", "c3")]

    async def run(sessions: nacre.Sessions) -> None:
        await NacreHistoryProvider(sessions).save_messages(
            "s", [Message("user", ["ls"]), Message("assistant", [Content.from_function_call("c1", "ls")])]
        )
        sessions.add_full_message("s", {"role": "assistant", "content": None, "tool_calls": calls})
        sessions.add_full_message("s", {"role": "tool", "content": "a.py", "tool_call_id": "c1"})
        found = dicts(await NacreHistoryProvider(sessions).get_messages("s"))
        for last in range(1, len(found) + 1):
            assert dicts(await NacreHistoryProvider(sessions, last=last).get_messages("s")) == found[-last:]

    with nacre.open(":memory:") as sessions:
        asyncio.run(run(sessions))


# ---- the event loop

MANY = [Message("user", [f"{n}"]) for n in range(1000)]
AWAITED: dict[str, Callable[[NacreHistoryProvider], Awaitable[object]]] = {
    "get_messages": lambda provider: provider.get_messages("s"),
    "save_messages": lambda provider: provider.save_messages("s", MANY),
}


@pytest.mark.parametrize("method", AWAITED)
def test_no_call_blocks_the_event_loop(method: str) -> None:
    assert_loop_goes_on(
        lambda sessions: asyncio.run(NacreHistoryProvider(sessions).save_messages("s", MANY[::2])),
        lambda sessions: AWAITED[method](NacreHistoryProvider(sessions)),
        most=500,
    )


def test_every_method_is_tried_in_the_event_loop() -> None:
    assert async_methods(NacreHistoryProvider) == set(AWAITED)


# ---- a real agent


class ScriptedClient(FunctionInvocationLayer, BaseChatClient):
    """Gives one message after the other, and keeps what it was asked."""

    def __init__(self, *replies: Message) -> None:
        super().__init__()
        self.replies = list(replies)
        self.asked: list[list[dict[str, Any]]] = []

    def _inner_get_response(
        self, *, messages: Sequence[Message], stream: bool, options: Mapping[str, Any], **_: Any
    ) -> Awaitable[ChatResponse[Any]] | ResponseStream[ChatResponseUpdate, ChatResponse[Any]]:
        del options
        # Which provider a message came from is not the same.
        self.asked.append([{**one, "additional_properties": {}} for one in dicts(messages)])
        reply = self.replies.pop(0)
        if not stream:

            async def answer() -> ChatResponse[Any]:
                return ChatResponse(messages=[reply])

            return answer()

        async def updates() -> AsyncIterable[ChatResponseUpdate]:
            yield ChatResponseUpdate(role="assistant", contents=list(reply.contents), message_id="m")

        return ResponseStream(updates(), finalizer=ChatResponse.from_updates)


@tool(approval_mode="never_require")
def weather(city: str) -> str:
    """The weather of a city."""
    return f"sun in {city}"


@pytest.fixture(params=["sessions", "async sessions"])
def given_sessions(request: pytest.FixtureRequest, place: str) -> Iterator[nacre.Sessions | nacre.AsyncSessions]:
    with nacre.open(place) as sessions:
        yield sessions if request.param == "sessions" else nacre.AsyncSessions.of(sessions)


@pytest.mark.parametrize("stream", [False, True])
def test_an_agent_remembers_as_with_its_own_provider(
    given_sessions: nacre.Sessions | nacre.AsyncSessions, *, stream: bool
) -> None:
    calls = [Content.from_function_call(f"c{n}", "weather", arguments=f'{{"city": "{n}"}}') for n in range(2)]

    async def talk(provider: Any) -> Any:
        client = ScriptedClient(
            Message("assistant", ["hi Ann"]), Message("assistant", calls), Message("assistant", ["sun"])
        )
        agent = Agent(client=client, tools=[weather], context_providers=[provider])
        session = agent.create_session(session_id="s")
        for text in ("I am Ann", "weather?"):
            if stream:
                async for _ in agent.run(text, session=session, stream=True):
                    pass
            else:
                await agent.run(text, session=session)
        return client.asked

    async def run() -> None:
        expected = await talk(InMemoryHistoryProvider())
        asked = await talk(NacreHistoryProvider(given_sessions, source_id=InMemoryHistoryProvider.DEFAULT_SOURCE_ID))
        assert len(asked) == 3
        assert asked == expected
        assert len(await NacreHistoryProvider(given_sessions).get_messages("s")) == 6

    asyncio.run(run())


# ---- at the door


def test_wrong_arguments_are_refused() -> None:
    wrong: Any = "place"
    with pytest.raises(nacre.InvalidArgument, match="sessions"):
        NacreHistoryProvider(wrong)
    with nacre.open(":memory:") as sessions:
        with pytest.raises(nacre.InvalidKey):
            asyncio.run(NacreHistoryProvider(sessions).get_messages(None))
        with pytest.raises(nacre.InvalidKey):
            asyncio.run(NacreHistoryProvider(sessions).save_messages("", [Message("user", ["x"])]))


@pytest.mark.parametrize("erased", range(5))
def test_every_call_has_one_result_after_erasing(erased: int, place: str) -> None:
    said = [
        Message("user", ["Where?"]),
        Message("assistant", [Content.from_function_call("c1", "ls"), Content.from_function_call("c2", "ls")]),
        Message(
            "tool", [Content.from_function_result("c1", result="a"), Content.from_function_result("c2", result="b")]
        ),
        Message("assistant", ["There."]),
    ]

    async def test() -> None:
        with nacre.open(place) as sessions:
            provider = NacreHistoryProvider(sessions)
            await provider.save_messages("k", said)
            sessions.redact("k", sessions.snapshot("k").numbers[erased])
            found = [(str(one.role), content) for one in await provider.get_messages("k") for content in one.contents]
            assert [(role, one.call_id) for role, one in found if one.call_id] == [
                ("assistant", "c1"),
                ("assistant", "c2"),
                ("tool", "c1"),
                ("tool", "c2"),
            ]
            # That a message with calls was erased is a text next to them.
            assert len(found) == (7 if erased == 1 else 6)

    asyncio.run(test())


@pytest.mark.parametrize("last", [None, 1])
@pytest.mark.parametrize("role", ["user", ""])
@pytest.mark.parametrize("mark", [5, "text", True, None, ["a"]])
def test_what_others_keep_under_the_name_does_not_make_it_unreadable(mark: Any, role: str, last: int | None) -> None:
    async def run(sessions: nacre.Sessions) -> None:
        provider = NacreHistoryProvider(sessions, last=last)
        await provider.save_messages("s", [Message("user", ["ours"])])
        sessions.add_full_message(
            "s",
            nacre.Message(
                role=role, content="theirs" if role else None, extra={"type": "item", "agent_framework": mark}
            ),
        )
        expected = ["ours", "theirs"] if role else ["ours"]
        assert [one.text for one in await provider.get_messages("s")] == expected[-(last or 2) :]
        await provider.save_messages("s", [Message("assistant", ["more"])])
        assert (await provider.get_messages("s"))[-1].text == "more"

    with nacre.open(":memory:") as sessions:
        asyncio.run(run(sessions))


class ClientThatSays(BaseChatClient):
    """Always the same, with or without ids."""

    def __init__(self, *, has_ids: bool) -> None:
        super().__init__()
        self.ids = (f"m{number}" if has_ids else None for number in range(9))

    def _inner_get_response(self, **_: Any) -> Awaitable[ChatResponse[Any]]:
        async def answer() -> ChatResponse[Any]:
            return ChatResponse(messages=[Message("assistant", ["done"], message_id=next(self.ids))])

        return answer()


@pytest.mark.parametrize(("has_ids", "gives_ids"), [(False, False), (True, False), (False, True)])
def test_a_turn_that_is_repeated_word_for_word_is_kept_as_the_frameworks_own_providers_keep_it(
    *, has_ids: bool, gives_ids: bool
) -> None:
    """Without ids it cannot be told from a replay: see the class."""

    async def talk(provider: Any) -> list[str]:
        agent = Agent(client=ClientThatSays(has_ids=has_ids), context_providers=[provider])
        session = agent.create_session(session_id="s")
        for number in range(3):
            question = Message("user", ["press the button"], message_id=f"q{number}" if gives_ids else None)
            await agent.run(question, session=session)
        found = await provider.get_messages("s", state=session.state.get(provider.source_id))
        return [one.text for one in found]

    with nacre.open(":memory:") as sessions:
        expected = ["press the button", "done"] * (3 if has_ids or gives_ids else 1)
        assert asyncio.run(talk(NacreHistoryProvider(sessions))) == expected
        assert asyncio.run(talk(InMemoryHistoryProvider())) == expected
