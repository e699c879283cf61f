"""Many sessions, one kernel: order, stopping, crashes, limits, and an orderly end."""

from __future__ import annotations

import logging
import subprocess
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest

import nacre
from nacre.agent.actor import Agent, UserMessage
from nacre.agent.kernel import Kernel
from nacre.agent.live_session import LiveSession
from nacre.agent.ports import STOPPED, Ask, Guard, Tool
from nacre.errors import Busy, Refused, Stopped
from nacre.history import replies
from nacre.messages import ToolCall
from nacre.providers.scripted import Pause, Scripted
from nacre.sessions import Sessions
from tests.agent.scene import Echo, agent, call, lines, words


class Gate:
    """A place to wait at, and a sign that somebody waits there."""

    def __init__(self) -> None:
        self.reached, self.opened = anyio.Event(), anyio.Event()

    def pause(self) -> Pause:
        return Pause(self.opened, self.reached)


def test_words_that_come_during_a_turn_are_seen_at_its_next_step(sessions: Sessions) -> None:
    async def play() -> None:
        gate = Gate()

        async def wait(_: str) -> str:
            gate.reached.set()
            await gate.opened.wait()
            return "ran"

        model = Scripted([call(), "both"])
        kernel = Kernel(sessions, lambda _: agent(model, Echo(act=wait)))
        async with kernel, anyio.create_task_group() as tasks:
            tasks.start_soon(kernel.deliver, words("first"))
            await gate.reached.wait()
            tasks.start_soon(kernel.deliver, words("second"))
            await anyio.wait_all_tasks_blocked()
            gate.opened.set()
        assert [str(message.content) for message in model.contexts[1].messages][-1] == "second"

    anyio.run(play)
    assert lines(sessions)[2:] == ["tool: ran", "user: second", "assistant: both"]


def test_words_that_come_before_an_answer_are_answered_after_it(sessions: Sessions) -> None:
    async def play() -> None:
        gate = Gate()
        kernel = Kernel(sessions, lambda _: agent(Scripted([["one", gate.pause()], "two"])))
        async with kernel, anyio.create_task_group() as tasks:
            tasks.start_soon(kernel.deliver, words("first"))
            await gate.reached.wait()
            tasks.start_soon(kernel.deliver, words("second"))
            await anyio.wait_all_tasks_blocked()
            gate.opened.set()

    anyio.run(play)
    assert lines(sessions) == ["user: first", "assistant: one", "user: second", "assistant: two"]


def test_a_stopped_turn_keeps_what_was_said_and_the_session_goes_on(sessions: Sessions) -> None:
    async def play() -> None:
        gate = Gate()
        model = Scripted([["The answer", gate.pause(), " is"], "hello"])
        async with Kernel(sessions, lambda _: agent(model)) as kernel:
            await _stopped(kernel, gate)
            await kernel.deliver(words("again"))
            assert not kernel.stop("k")

    anyio.run(play)
    assert lines(sessions) == ["user: ask", f"assistant: The answer\n\n{STOPPED}", "user: again", "assistant: hello"]


def test_a_stopped_tool_is_shown_as_interrupted(sessions: Sessions) -> None:
    model = Scripted([call(), "hello"])

    async def play() -> None:
        gate = Gate()

        async def wait(_: str) -> str:
            gate.reached.set()
            await gate.opened.wait()
            return "never"

        async with Kernel(sessions, lambda _: agent(model, Echo(act=wait))) as kernel:
            await _stopped(kernel, gate)
            await kernel.deliver(words("again"))

    anyio.run(play)
    assert [str(message.content) for message in model.contexts[1].messages] == [
        "ask",
        "",
        "interrupted, outcome unknown",
        STOPPED,
        "again",
    ]


def test_calls_that_were_not_started_when_the_turn_was_stopped_are_shown_as_not_run(sessions: Sessions) -> None:
    model = Scripted([[call(x="first"), call(x="second"), call(x="third")], "hello"])
    echo = Echo()
    echo.effect = "run"

    async def play() -> None:
        gate = Gate()

        def asking(_: str, __: Ask | None) -> Guard:
            async def decide(_: Tool, asked: ToolCall) -> str:
                if asked.arguments["x"] == "second":
                    gate.reached.set()
                    await gate.opened.wait()
                return ""

            return decide

        async with Kernel(sessions, lambda _: agent(model, echo, guard=asking)) as kernel:
            await _stopped(kernel, gate)
            await kernel.deliver(words("again"))

    anyio.run(play)
    assert echo.ran == ["first"]
    assert [str(message.content) for message in model.contexts[1].messages] == [
        "ask",
        "",
        "<first>",
        "not run: stopped by the user",
        "not run: stopped by the user",
        STOPPED,
        "again",
    ]


def test_a_full_mailbox_says_so(sessions: Sessions) -> None:
    async def play() -> None:
        gate = Gate()
        kernel = Kernel(sessions, lambda _: agent(Scripted([["a", gate.pause()], "b"])), max_waiting=1)
        async with kernel, anyio.create_task_group() as tasks:
            tasks.start_soon(kernel.deliver, words("1"))
            await gate.reached.wait()
            tasks.start_soon(kernel.deliver, words("2"))
            await anyio.wait_all_tasks_blocked()
            with pytest.raises(Busy, match="1 messages waiting"):
                await kernel.deliver(words("3"))
            gate.opened.set()

    anyio.run(play)
    assert "user: 3" not in lines(sessions)


def test_words_that_came_before_are_answered_once(sessions: Sessions) -> None:
    async def play() -> None:
        async with Kernel(sessions, lambda _: agent(Scripted(["one", "two"]))) as kernel:
            first = await kernel.deliver(words("hi", id="m1"))
            await kernel.deliver(words("more", id="m2"))
            again = await kernel.deliver(words("hi", id="m1"))
            assert (first and first.content, again and again.content) == ("one", "one")

    anyio.run(play)
    assert lines(sessions) == ["user: hi", "assistant: one", "user: more", "assistant: two"]


def test_one_session_s_bug_is_its_own(sessions: Sessions) -> None:
    def failing(key: str) -> Agent:
        def guard(*_: Any) -> Any:
            raise RuntimeError("a bug")

        return agent(Scripted(["fine"] * 3), guard=guard) if key == "bad" else good

    good = agent(Scripted(["one", "two"]))

    async def play() -> None:
        async with Kernel(sessions, failing) as kernel:
            await kernel.deliver(words("hi"))
            for _ in range(2):
                with pytest.raises(RuntimeError, match="a bug"):
                    await kernel.deliver(words("hi", "bad"))
            await kernel.deliver(words("hi"))

    logging.disable()
    anyio.run(play)
    logging.disable(logging.NOTSET)
    assert lines(sessions)[-1] == "assistant: two"


def test_an_idle_actor_ends_and_comes_back(sessions: Sessions) -> None:
    async def play() -> None:
        async with Kernel(sessions, lambda _: agent(Scripted(["a", "b"])), idle=0) as kernel:
            await kernel.deliver(words("1"))
            while len(kernel):
                await anyio.lowlevel.checkpoint()
            assert not kernel.is_at_work("k")
            await kernel.deliver(words("2"))

    anyio.run(play)
    assert lines(sessions)[-1] == "assistant: a"


def test_meta_of_a_message_replaces_nothing_that_the_session_has(sessions: Sessions) -> None:
    model = Scripted(["a", "b"])

    async def play() -> None:
        async with Kernel(sessions, lambda _: agent(model)) as kernel:
            await kernel.deliver(UserMessage(key="k", content="1", meta={"title": "one"}))
            await kernel.deliver(UserMessage(key="k", content="2", meta={"title": "two", "cwd": "/work"}))

    anyio.run(play)
    assert sessions.get_meta("k") == {"title": "one", "cwd": "/work"}


def test_what_another_process_wrote_between_two_turns_is_seen(sessions: Sessions, root: Path) -> None:
    model = Scripted(["a", "b"])

    async def play() -> None:
        async with Kernel(sessions, lambda _: agent(model)) as kernel:
            await kernel.deliver(words("1"))
            with nacre.open(root) as other:
                other.add_message("k", "user", "from elsewhere")
            await kernel.deliver(words("2"))

    anyio.run(play)
    assert [str(message.content) for message in model.contexts[1].messages] == ["1", "a", "from elsewhere", "2"]


def test_a_turn_in_another_process_is_told_with_who_is_at_it(sessions: Sessions, root: Path) -> None:
    code = "import sys, nacre; nacre.open(sys.argv[1]).hold('k').take(); print(1, flush=True); input()"
    command = [sys.executable, "-c", code, str(root)]
    holder = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert holder.stdout is not None
    holder.stdout.readline()

    async def play() -> None:
        async with Kernel(sessions, lambda _: agent(Scripted(["a"]))) as kernel:
            with pytest.raises(nacre.SessionBusy, match=rf"another process \({holder.pid}\)"):
                await kernel.deliver(words("1"))
            holder.communicate(b"\n")
            await kernel.deliver(words("1"))

    anyio.run(play)
    assert lines(sessions) == ["user: 1", "assistant: a"]


def test_an_unfinished_turn_is_finished_once(sessions: Sessions) -> None:
    sessions.add_message("k", "user", "are you there?")

    async def play() -> None:
        async with Kernel(sessions, lambda _: agent(Scripted(["yes"]))) as kernel:
            answer = await kernel.resume("k")
            assert answer is not None
            assert await kernel.resume("k") is None
            assert await kernel.resume("unknown") is None

    anyio.run(play)
    assert lines(sessions) == ["user: are you there?", "assistant: yes"]


def test_shutting_down_leaves_a_turn_to_be_finished(sessions: Sessions) -> None:
    async def play() -> None:
        gate = Gate()
        kernel = Kernel(sessions, lambda _: agent(Scripted([["half", gate.pause()]])))
        async with anyio.create_task_group() as tasks, kernel:
            tasks.start_soon(_expect_stop, kernel)
            await gate.reached.wait()

    anyio.run(play)
    assert lines(sessions) == ["user: ask"]


def test_a_kernel_that_does_not_run_takes_no_words(sessions: Sessions) -> None:
    with pytest.raises(nacre.NacreError, match="not running"):
        anyio.run(Kernel(sessions, lambda _: agent(Scripted([]))).deliver, words("hi"))


def test_a_turn_goes_on_when_nobody_waits_for_it(sessions: Sessions) -> None:
    async def play() -> None:
        gate = Gate()
        async with Kernel(sessions, lambda _: agent(Scripted([["half", gate.pause()]]))) as kernel:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(kernel.deliver, words("ask"))
                await gate.reached.wait()
                tasks.cancel_scope.cancel()
            gate.opened.set()
            while kernel.is_at_work("k"):
                await anyio.lowlevel.checkpoint()

    anyio.run(play)
    assert lines(sessions) == ["user: ask", "assistant: half"]


def test_a_turn_that_is_stopped_while_all_of_it_ends_is_gone_on_with(sessions: Sessions) -> None:
    async def play() -> None:
        gate = Gate()
        async with Kernel(sessions, lambda _: agent(Scripted([["half", gate.pause()]]))) as kernel:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(kernel.deliver, words("ask"))
                await gate.reached.wait()
                tasks.cancel_scope.cancel()
            assert kernel.stop("k")

    anyio.run(play)
    assert lines(sessions) == ["user: ask"]


async def _stopped(kernel: Kernel, gate: Gate) -> None:
    """Begin a turn, and stop it where it waits."""
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_expect_stop, kernel)
        await gate.reached.wait()
        assert kernel.stop("k")


async def _expect_stop(kernel: Kernel) -> None:
    with pytest.raises(Stopped):
        await kernel.deliver(words("ask"))


def test_words_whose_turn_failed_are_answered_when_they_come_again(sessions: Sessions) -> None:
    recalled = iter(["You like tea.", "You like coffee."])
    model = Scripted([nacre.ProviderError("no server"), "here"])
    answering = agent(model, system=lambda: "Be kind.", recall=lambda *_: next(recalled))

    async def play() -> None:
        async with Kernel(sessions, lambda _: answering) as kernel:
            with pytest.raises(nacre.ProviderError):
                await kernel.deliver(words("hi", id="m1"))
            await kernel.deliver(words("hi", id="m1"))

    anyio.run(play)
    assert lines(sessions) == ["user: hi", "assistant: here"]


def test_of_many_idle_actors_the_oldest_make_way_and_are_heard_again(sessions: Sessions) -> None:
    async def play() -> None:
        async with Kernel(sessions, lambda _: agent(Scripted(["hello"])), max_actors=3) as kernel:
            for number in range(10):
                await kernel.deliver(words("hi", key=f"k{number}"))
                await anyio.wait_all_tasks_blocked()
            assert len(kernel) == 3
            await kernel.deliver(words("ho", key="k0"))

    anyio.run(play)
    assert [message.content for message in sessions.get_history("k0")] == ["hi", "hello", "ho", "hello"]


def test_whoever_counts_turns_hears_of_the_end_of_one_that_failed_by_a_bug(sessions: Sessions) -> None:
    over: list[str] = []

    def broken(key: str, ask: Any) -> Any:
        raise RuntimeError

    async def play() -> None:
        async with Kernel(sessions, lambda _: agent(Scripted(["x"]), guard=broken, after=over.append)) as kernel:
            with pytest.raises(RuntimeError):
                await kernel.deliver(words("hi"))

    logging.disable()
    anyio.run(play)
    logging.disable(logging.NOTSET)
    assert over == ["k"]


def test_words_that_cannot_be_stored_in_the_middle_of_a_turn_do_not_wait_for_ever(
    sessions: Sessions, monkeypatch: pytest.MonkeyPatch
) -> None:
    refusals, commit, told = [Refused("disk full")], LiveSession.commit, []

    async def full(conversation: LiveSession, entries: Any, **options: Any) -> int:
        if refusals and any(getattr(entry, "content", "") == "second" for entry in entries):
            raise refusals.pop()
        return await commit(conversation, entries, **options)

    async def play() -> None:
        gate = Gate()

        async def wait(_: str) -> str:
            gate.reached.set()
            await gate.opened.wait()
            return "ran"

        async def first(kernel: Kernel) -> None:
            with pytest.raises(Refused):
                await kernel.deliver(words("first"))

        async def second(kernel: Kernel) -> None:
            answer = await kernel.deliver(words("second"))
            told.append(None if answer is None else answer.content)

        kernel = Kernel(sessions, lambda _: agent(Scripted([call(), "both"]), Echo(act=wait)))
        with anyio.fail_after(5):
            async with kernel, anyio.create_task_group() as tasks:
                tasks.start_soon(first, kernel)
                await gate.reached.wait()
                tasks.start_soon(second, kernel)
                await anyio.wait_all_tasks_blocked()
                gate.opened.set()

    monkeypatch.setattr(LiveSession, "commit", full)
    anyio.run(play)
    assert told == ["both"]


# ---- words that come again


def forget(sessions: Sessions, count: int) -> None:
    """Let a summary take the place of the first few messages, as compaction does."""
    sessions.set_summary("k", "What was said.", upto=sessions.snapshot("k").numbers[count - 1])


def said_again(sessions: Sessions, answering: Agent, *texts: str, **fields: Any) -> list[Any]:
    """What words get that each come under an id that is their own text."""

    async def play() -> list[Any]:
        async with Kernel(sessions, lambda _: answering) as kernel:
            answers = [await kernel.deliver(words(text, **{"id": text, **fields})) for text in texts]
        return [answer and answer.content for answer in answers]

    return anyio.run(play)


def test_words_that_a_summary_covers_get_their_own_answer_again(sessions: Sessions) -> None:
    answering = agent(Scripted(["one", "two", "three"]), system=lambda: "Be kind.")
    assert said_again(sessions, answering, "a", "b", "c") == ["one", "two", "three"]
    forget(sessions, 4)
    assert said_again(sessions, answering, "b", "a", "c") == ["two", "one", "three"]
    assert lines(sessions) == ["user: c", "assistant: three"]


def test_words_that_a_summary_covers_are_known_with_another_prompt_and_other_memories(sessions: Sessions) -> None:
    recalled = iter(["You like tea.", "", "You like coffee."])
    model = Scripted(["one", "two"])
    said_again(sessions, agent(model, system=lambda: "Be kind.", recall=lambda *_: next(recalled)), "a", "b")
    forget(sessions, 3)
    assert said_again(sessions, agent(model, system=lambda: "Be brief.", recall=lambda *_: next(recalled)), "a") == [
        "one"
    ]


def test_other_words_under_an_id_that_a_summary_covers_are_refused(sessions: Sessions) -> None:
    answering = agent(Scripted(["one", "two"]))
    said_again(sessions, answering, "a", "b")
    forget(sessions, 3)
    with pytest.raises(nacre.Conflict, match="another message was sent with the id 'a'"):
        said_again(sessions, answering, "c", id="a")
    assert len(sessions.transcript("k")) == 4


def test_words_of_a_turn_that_grew_long_are_answered_when_they_come_again(sessions: Sessions) -> None:
    sessions.submit("k", [nacre.Message(role="user", content="a", extra={"origin": {"id": "a"}})], id="a").result()
    for number in range(300):
        sessions.add_full_message("k", {"role": "tool", "tool_call_id": str(number), "content": "result"})
    assert said_again(sessions, agent(Scripted(["at last"])), "a") == ["at last"]


def test_no_turn_reads_further_back_than_it_must(sessions: Sessions, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(replies, "find_reply")
    answering = agent(Scripted(["one", "two"]), system=lambda: "Be kind.")
    assert said_again(sessions, answering, "a", "b", "a") == ["one", "two", "one"]


def test_words_to_a_session_that_is_erased_meanwhile_say_so(sessions: Sessions, root: Path) -> None:
    async def play() -> None:
        async with Kernel(sessions, lambda _: agent(Scripted(["one", "two"]))) as kernel:
            await kernel.deliver(words("a", id="a"))
            with nacre.open(root) as other:
                other.delete("k")
            with pytest.raises(nacre.Conflict, match="was deleted meanwhile"):
                await kernel.deliver(words("b", id="b"))

    anyio.run(play)


def in_the_middle(sessions: Sessions, answering: Agent, gate: Gate, *later: Any) -> dict[str, list[Any]]:
    """What words get that come while the turn of the word "first" waits in a tool, each by its own text."""
    told: dict[str, list[Any]] = {}

    async def hear(kernel: Kernel, inbound: Any) -> None:
        heard = told.setdefault(inbound.content, [])
        try:
            answer = await kernel.deliver(inbound)
            heard.append(answer and answer.content)
        except nacre.NacreError as error:
            heard.append(str(error))

    async def play() -> None:
        gate.reached, gate.opened = anyio.Event(), anyio.Event()
        async with Kernel(sessions, lambda _: answering) as kernel, anyio.create_task_group() as tasks:
            tasks.start_soon(hear, kernel, words("first", id="first"))
            await gate.reached.wait()
            for inbound in later:
                tasks.start_soon(hear, kernel, inbound)
            await anyio.wait_all_tasks_blocked()
            gate.opened.set()

    anyio.run(play)
    return told


def waiting(gate: Gate) -> Echo:
    """A tool that waits at a gate."""

    async def wait(_: str) -> str:
        gate.reached.set()
        await gate.opened.wait()
        return "ran"

    return Echo(act=wait)


def test_the_same_words_in_the_middle_of_their_own_turn_join_it(sessions: Sessions) -> None:
    gate = Gate()
    answering = agent(Scripted([call(), "done"]), waiting(gate), system=lambda: "Be kind.")
    twice = words("first", id="first")
    assert in_the_middle(sessions, answering, gate, twice, twice)["first"] == [None, None, "done"]
    assert lines(sessions)[0::3] == ["user: first", "assistant: done"]


def test_words_that_were_stored_before_do_not_end_the_turn_that_they_come_into(sessions: Sessions) -> None:
    gate = Gate()
    answering = agent(
        Scripted([nacre.ProviderError("no server"), "earlier", call(), "done"]),
        waiting(gate),
        system=lambda: "Be kind.",
    )
    with pytest.raises(nacre.ProviderError):
        said_again(sessions, answering, "a")
    said_again(sessions, answering, "b")
    assert in_the_middle(sessions, answering, gate, words("a", id="a"), words("new", id="new")) == {
        "first": ["done"],
        "a": ["earlier"],
        "new": [None],
    }


def test_words_that_a_summary_covers_do_not_end_the_turn_that_they_come_into(sessions: Sessions) -> None:
    gate = Gate()
    answering = agent(Scripted(["one", "two", call(), "done"]), waiting(gate), system=lambda: "Be kind.")
    said_again(sessions, answering, "a", "b")
    forget(sessions, 4)
    told = in_the_middle(sessions, answering, gate, words("a", id="a"), words("c", id="b"), words("new", id="new"))
    refusal = "another message was sent with the id 'b'"
    assert told == {"first": ["done"], "a": ["one"], "c": [refusal], "new": [None]}
    assert [line for line in lines(sessions) if line.startswith("user")] == ["user: first", "user: new"]


# ---- what a reply answers


def replies_of(sessions: Sessions) -> dict[str, Any]:
    """What each reply says that it answers, None if it does not say."""
    return {str(one.content): one.extra.get("answers") for one in sessions.get_history("k") if one.role == "assistant"}


def test_a_reply_says_which_message_it_answers(sessions: Sessions) -> None:
    model = Scripted([nacre.ProviderError("no server"), "to b", "to c"])
    with pytest.raises(nacre.ProviderError):
        said_again(sessions, agent(model), "a")
    said_again(sessions, agent(model), "b")
    said_again(sessions, agent(model), "c", id="")
    assert replies_of(sessions) == {"to b": ["b"], "to c": None}


def test_a_reply_answers_all_that_joined_its_turn(sessions: Sessions) -> None:
    gate = Gate()
    later = (words("second", id="second"), words("second", id="second"), words("without an id"))
    in_the_middle(sessions, agent(Scripted([call(), "to all"]), waiting(gate)), gate, *later)
    assert replies_of(sessions) == {"": None, "to all": ["first", "second"]}


def test_a_turn_that_goes_on_after_a_crash_answers_all_that_had_joined_it(sessions: Sessions) -> None:
    for text in ("a", "b"):
        stored = nacre.Message(role="user", content=text, extra={"origin": {"id": text}})
        sessions.submit("k", [stored], id=text).result()
    assert said_again(sessions, agent(Scripted(["to both"])), "a", "b") == ["to both", "to both"]
    assert replies_of(sessions) == {"to both": ["a", "b"]}


def test_a_turn_that_is_resumed_answers_all_that_waits(sessions: Sessions) -> None:
    sessions.add_message("k", "assistant", "hello")
    sessions.add_full_message("k", {"role": "user", "content": "a", "origin": {"id": "a"}})

    async def play() -> None:
        async with Kernel(sessions, lambda _: agent(Scripted(["to a"]))) as kernel:
            await kernel.resume("k")

    anyio.run(play)
    assert replies_of(sessions) == {"hello": None, "to a": ["a"]}


def test_a_turn_that_is_stopped_has_answered_its_message(sessions: Sessions) -> None:
    async def play() -> None:
        gate = Gate()
        gate.reached, gate.opened = anyio.Event(), anyio.Event()
        async with Kernel(sessions, lambda _: agent(Scripted([call()]), waiting(gate))) as kernel:

            async def stop() -> None:
                await gate.reached.wait()
                kernel.stop("k")

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(stop)
                with pytest.raises(nacre.Stopped):
                    await kernel.deliver(words("a", id="a"))

    anyio.run(play)
    assert list(replies_of(sessions).values()) == [None, ["a"]]
