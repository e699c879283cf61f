"""A message that is kept elsewhere until it is answered is stored in one transaction with what follows it."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import anyio
import pytest

import nacre
from nacre.agent.kernel import Kernel
from nacre.agent.live_session import LiveSession
from nacre.agent.ports import STOPPED
from nacre.errors import ProviderError, Refused, Stopped
from nacre.messages import Message
from nacre.providers.scripted import Scripted, Step
from nacre.sessions import Sessions
from tests.agent.scene import Echo, agent, call, lines, words
from tests.agent.test_kernel import Gate, forget

EARLIER = ["user: before", "assistant: hello"]


def kept(content: str, id: str = "") -> Any:
    return words(content, id=id or content, is_kept=True)


@pytest.fixture
def begun(sessions: Sessions) -> Sessions:
    """Sessions of which one is there already: the first message of a session always creates it."""
    sessions.add_message("k", "user", "before")
    sessions.add_message("k", "assistant", "hello")
    return sessions


def answered(sessions: Sessions, steps: list[Step], *contents: str, **changes: Any) -> Scripted:
    model = Scripted(steps)

    async def play() -> None:
        async with Kernel(sessions, lambda _: agent(model, **changes)) as kernel:
            for content in contents:
                await kernel.deliver(kept(content))

    anyio.run(play)
    return model


def groups(sessions: Sessions) -> list[Any]:
    """Which records were stored together: the group of each, None if it was stored alone."""
    return sessions.read("k", lambda view: [record.tx for record in view.all()][1:]) or []


async def in_the_middle(sessions: Sessions, gate: Gate, model: Scripted, then: Any) -> None:
    """Do something while the model answers a message."""

    async def deliver() -> None:
        with suppress(Stopped):
            await kernel.deliver(kept("ask"))

    async with Kernel(sessions, lambda _: agent(model)) as kernel, anyio.create_task_group() as tasks:
        tasks.start_soon(deliver)
        await gate.reached.wait()
        then(kernel)
        gate.opened.set()


def test_it_is_stored_with_its_answer(begun: Sessions) -> None:
    async def play() -> list[list[str]]:
        gate, seen = Gate(), list[list[str]]()
        model = Scripted([["yes", gate.pause()]])
        await in_the_middle(begun, gate, model, lambda _: seen.append(lines(begun)))
        assert [message.content for message in model.contexts[0].messages] == ["before", "hello", "ask"]
        return seen

    assert anyio.run(play) == [EARLIER]
    assert lines(begun) == [*EARLIER, "user: ask", "assistant: yes"]
    # With what it cost.
    assert groups(begun) == [None, None, (4, 3), (4, 3), (4, 3)]


def test_the_next_turns_know_it(begun: Sessions) -> None:
    model = answered(begun, ["one", "two", "three"], "a", "b", "c")
    said = [message.content for message in model.contexts[2].messages]
    assert said == ["before", "hello", "a", "one", "b", "two", "c"]
    assert lines(begun)[2:] == ["user: a", "assistant: one", "user: b", "assistant: two", "user: c", "assistant: three"]


def test_the_first_of_a_session_and_one_with_a_new_prompt_are_stored_before_the_model_is_asked(
    sessions: Sessions,
) -> None:
    prompts = iter(["", "Be kind."])
    answered(sessions, ["one", "two"], "a", "b", system=lambda: next(prompts))
    # Each message alone or with its prompt; each answer with what it cost.
    assert groups(sessions) == [None, (3, 2), (3, 2), (5, 2), (5, 2), (7, 2), (7, 2)]


def test_it_is_stored_before_a_tool_runs(begun: Sessions) -> None:
    seen: list[list[str]] = []

    async def look(_: str) -> str:
        seen.append(lines(begun))
        return "ran"

    answered(begun, [call(), "done"], "ask", tools={"echo": Echo(act=look)})
    assert seen == [[*EARLIER, "user: ask", "assistant:  echo({'x': 'a'})"]]
    assert lines(begun)[-2:] == ["tool: ran", "assistant: done"]


def test_it_is_stored_when_its_turn_fails(begun: Sessions) -> None:
    with pytest.raises(ProviderError):
        answered(begun, [ProviderError("no server")], "ask")
    assert lines(begun) == [*EARLIER, "user: ask"]


def test_it_is_stored_when_its_turn_is_stopped(begun: Sessions) -> None:
    async def play() -> None:
        gate = Gate()
        await in_the_middle(begun, gate, Scripted([["half", gate.pause()]]), lambda kernel: kernel.stop("k"))

    anyio.run(play)
    assert lines(begun) == [*EARLIER, "user: ask", f"assistant: half\n\n{STOPPED}"]


def test_it_is_stored_when_everything_ends(begun: Sessions) -> None:
    async def play() -> None:
        gate = Gate()
        kernel = Kernel(begun, lambda _: agent(Scripted([["half", gate.pause()]])))
        async with anyio.create_task_group() as tasks, kernel:
            tasks.start_soon(kernel.deliver, kept("ask"))
            await gate.reached.wait()
            tasks.cancel_scope.cancel()

    anyio.run(play)
    assert lines(begun) == [*EARLIER, "user: ask"]


def test_it_is_stored_before_a_summary_is_made(begun: Sessions) -> None:
    seen: list[list[str]] = []

    async def make_room(_: str) -> str | None:
        seen.append(lines(begun))
        return None

    answered(begun, ["yes"], "ask", make_room=make_room, max_messages=1)
    assert seen == [[*EARLIER, "user: ask"]]
    assert lines(begun) == [*EARLIER, "user: ask", "assistant: yes"]


def test_one_that_joins_its_turn_is_stored_before_its_sender_hears_so(begun: Sessions) -> None:
    async def play() -> None:
        gate, reached = Gate(), list[list[str]]()

        async def wait(_: str) -> str:
            gate.reached.set()
            await gate.opened.wait()
            return "ran"

        async def join() -> None:
            assert await kernel.deliver(kept("join")) is None
            reached.append(lines(begun))

        model = Scripted([call(), "both"])
        kernel = Kernel(begun, lambda _: agent(model, Echo(act=wait)))
        async with kernel, anyio.create_task_group() as tasks:
            tasks.start_soon(kernel.deliver, kept("ask"))
            await gate.reached.wait()
            tasks.start_soon(join)
            await anyio.wait_all_tasks_blocked()
            gate.opened.set()
        assert "user: join" in reached[0]

    anyio.run(play)
    assert lines(begun)[-3:] == ["tool: ran", "user: join", "assistant: both"]
    assert begun.get_history("k")[-1].extra["answers"] == ["ask", "join"]


def test_a_repeat_of_one_that_was_answered_long_ago_gets_the_first_answer(begun: Sessions) -> None:
    answered(begun, ["one", "two"], "a", "b")
    forget(begun, 6)

    async def play() -> Message | None:
        async with Kernel(begun, lambda _: agent(Scripted(["another"]))) as kernel:
            return await kernel.deliver(kept("a"))

    found = anyio.run(play)
    assert found is not None
    assert found.content == "one"
    assert [stored.message.content for stored in begun.transcript("k")] == ["before", "hello", "a", "one", "b", "two"]


def test_a_turn_that_was_taken_over_stores_nothing_and_says_so(begun: Sessions) -> None:
    async def play() -> None:
        gate = Gate()

        async def deliver() -> None:
            with pytest.raises(nacre.LeaseLost):
                await kernel.deliver(kept("ask"))

        model = Scripted([["half", gate.pause()], "whole"])
        async with Kernel(begun, lambda _: agent(model)) as kernel:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(deliver)
                await gate.reached.wait()
                thief = begun.hold("k")
                thief.take_over()
                gate.opened.set()
            assert lines(begun) == EARLIER
            thief.close()
            await kernel.deliver(kept("ask"))

    anyio.run(play)
    assert lines(begun) == [*EARLIER, "user: ask", "assistant: whole"]


def test_an_answer_that_is_refused_leaves_the_message(begun: Sessions, monkeypatch: pytest.MonkeyPatch) -> None:
    submit = Sessions.submit

    def refuse_answers(self: Sessions, key: str, operations: Any, **options: Any) -> Any:
        if any(getattr(one, "role", "") == "assistant" for one in operations):
            raise Refused("the disk is full")
        return submit(self, key, operations, **options)

    monkeypatch.setattr(Sessions, "submit", refuse_answers)
    with pytest.raises(Refused):
        answered(begun, ["yes"], "ask")
    assert lines(begun) == [*EARLIER, "user: ask"]


def test_one_whose_storing_with_its_answer_is_in_doubt_is_stored_once(
    begun: Sessions, monkeypatch: pytest.MonkeyPatch
) -> None:
    submit = Sessions.submit

    def doubt(self: Sessions, key: str, operations: Any, **options: Any) -> Any:
        submit(self, key, operations, **options).result()
        monkeypatch.undo()
        raise nacre.DurabilityUnknown("the flush failed")

    monkeypatch.setattr(Sessions, "submit", doubt)
    with pytest.raises(nacre.DurabilityUnknown):
        answered(begun, ["yes"], "ask")
    assert lines(begun) == [*EARLIER, "user: ask", "assistant: yes"]


def test_only_the_newest_stay_in_memory(begun: Sessions) -> None:
    async def play() -> LiveSession:
        session = LiveSession(begun, "k")
        await session.read()
        for number in range(200):
            session.save_with_next(Message(role="user", content="ask"), id=str(number))
            await session.commit([Message(role="assistant", content="yes")])
        return session

    session = anyio.run(play)
    assert (len(session.messages), session.now.live) == (256, 402)


def test_each_of_two_messages_is_stored_under_its_own_id(begun: Sessions) -> None:
    async def play() -> None:
        session = LiveSession(begun, "k")
        await session.read()
        session.save_with_next(Message(role="user", content="first"), id="1")
        await session.commit_once(Message(role="user", content="second"), id="2")
        # A repeat of each is known by its id, and the message is not stored again.
        again = LiveSession(begun, "k")
        await again.read()
        for id, text in (("1", "first"), ("2", "second")):
            await again.commit_once(Message(role="user", content=text), id=id)

    anyio.run(play)
    assert lines(begun) == [*EARLIER, "user: first", "user: second"]


def test_no_id_is_dropped_for_that_of_a_message_that_waits(begun: Sessions) -> None:
    async def play() -> None:
        session = LiveSession(begun, "k")
        await session.read()
        session.save_with_next(Message(role="user", content="first"), id="1")
        with pytest.raises(ValueError, match="one id"):
            await session.commit([Message(role="user", content="second")], id="2")
        await session.commit_unsaved()

    anyio.run(play)
    assert lines(begun) == [*EARLIER, "user: first"]


def test_a_conflict_over_a_message_that_waits_is_not_taken_for_one_over_the_next(begun: Sessions) -> None:
    begun.submit("k", [Message(role="user", content="other words")], id="1").result()

    async def play() -> None:
        session = LiveSession(begun, "k")
        await session.read()
        session.save_with_next(Message(role="user", content="first"), id="1")
        with pytest.raises(nacre.Conflict, match="'1' was used for other content"):
            await session.commit_once(Message(role="user", content="second"), id="2")

    anyio.run(play)
    assert lines(begun) == [*EARLIER, "user: other words"]
