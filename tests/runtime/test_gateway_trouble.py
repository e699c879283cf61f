"""The gateway in trouble: hostile words, channels and models that fail, and what a restart finds half done."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest

import nacre
from nacre.agent.actor import UserMessage
from nacre.agent.kernel import Kernel
from nacre.agent.ports import Context, Emit, Reply
from nacre.channels.channel import AGAIN, Absent, Accept, Doubtful, Gone, InboundMessage, Later, key_of
from nacre.errors import ChannelError, ProviderError, Refused, SessionBusy
from nacre.messages import Message, ToolCall
from nacre.runtime.counters import Traffic
from nacre.runtime.gateway.access import Access
from nacre.runtime.gateway.delivery import Delivery
from nacre.runtime.gateway.gateway import BROKEN, NOTHING, TOO_FAST, Gateway, Room
from nacre.runtime.gateway.inbox import KEYS, Inbox, id_of, name_of
from nacre.runtime.gateway.rate_limit import LoopLimit
from nacre.sessions import Sessions
from tests.agent.scene import agent
from tests.runtime.test_gateway import AT_ONCE, Line, Parrot, serve, served, texts, words


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    logging.disable()
    yield
    logging.disable(logging.NOTSET)


def left_open(root: Path) -> list[str]:
    with nacre.open(root) as sessions:
        return [arrived.text for arrived in Inbox(sessions).read()]


class Odd(Parrot):
    """A model that may say nothing, or fail in a way that nobody thought of."""

    async def complete(self, context: Context, *, emit: Emit) -> Reply:
        words = str(context.messages[-1].content)
        if words == "nothing":
            return Reply(message=Message(role="assistant", content=" \n"))
        if words in ("bug", "wordless"):
            raise RuntimeError if words == "bug" else ProviderError
        return await super().complete(context, emit=emit)


@pytest.mark.parametrize(
    ("said", "told"), [("nothing", NOTHING), ("bug", BROKEN), ("wordless", "I cannot answer now: ProviderError")]
)
def test_whatever_a_model_does_somebody_hears_of_it_once(root: Path, said: str, told: str) -> None:
    access = Access(owners=["ann"])
    assert served(root, [words(said)], enough=1, access=access, model=Odd()).sent == [("ann", told)]
    assert left_open(root) == []


def test_words_after_a_turn_that_failed_are_answered_after_a_crash(root: Path) -> None:
    async def crash() -> None:
        with nacre.open(root) as sessions:
            inbox = Inbox(sessions)
            inbox.read()
            await inbox.add(words("hi"))

    served(root, [words("fail")], enough=1)
    anyio.run(crash)
    assert served(root, [], enough=1).sent == [("ann", "re: hi")]


def test_words_after_others_that_joined_a_turn_are_answered_though_that_turn_fails_after_a_crash(root: Path) -> None:
    first, second, third = words("first"), words("fail"), words("third")

    async def crash() -> None:
        with nacre.open(root) as sessions:
            inbox = Inbox(sessions)
            for arrived in (first, second, third):
                await inbox.add(arrived)
            for arrived in (first, second):
                extra = {"origin": {"id": id_of(arrived)}}
                sessions.add_messages(key_of(arrived), [Message(role="user", content=arrived.text, extra=extra)])
            closed = inbox.done(second)
            assert closed is not None
            await closed

    anyio.run(crash)
    assert [text for _, text in served(root, [], enough=2).sent][1:] == ["re: third"]
    assert left_open(root) == []


@pytest.mark.parametrize("owner", ["ann", "bob"])
def test_a_command_that_fails_is_said_once_and_where_the_disk_is_to_the_owner_alone(root: Path, owner: str) -> None:
    async def status(_: str, room: Room) -> str:
        raise Refused(f"{room.sessions.location} is no disk")

    line = served(root, [words("/status")], enough=1, status=status, access=Access(owners=[owner]))
    assert line.sent == [("ann", f"I cannot answer now: {root} is no disk" if owner == "ann" else BROKEN)]
    assert left_open(root) == []


# ---- channels that fail


class Raising(Line):
    """A channel with a bug: it fails with some words, in a way that nobody thought of."""

    def __init__(self, arriving: list[InboundMessage], *, enough: int) -> None:
        super().__init__(arriving, enough=enough)
        self.tried = 0

    async def send(self, to: InboundMessage, text: str, *, id: str) -> None:
        if to.sender == "ann":
            self.tried += 1
            raise UnicodeError
        await super().send(to, text, id=id)


@pytest.mark.parametrize("per_minute", [0, 30])
def test_a_channel_that_cannot_say_something_says_all_else(root: Path, per_minute: int) -> None:
    line = Raising([words("hi"), words("ho", "bob")], enough=1)

    async def run() -> None:
        with nacre.open(root) as sessions:
            await serve(sessions, line, Access(per_minute=per_minute), until_closed=True)

    anyio.run(run)
    assert [who for who, _ in line.sent] == ["bob"]
    assert left_open(root) == []


class Doubting(Line):
    """A channel whose server fails on what is for ann, and on all else as long as it is away."""

    def __init__(self, arriving: list[InboundMessage], *, enough: int, away: int = 0, fails: int = 10**9) -> None:
        super().__init__(arriving, enough=enough)
        self.tried: list[str] = []
        self._away, self._fails = away, fails

    async def send(self, to: InboundMessage, text: str, *, id: str) -> None:
        self.tried.append(to.sender)
        if len(self.tried) <= self._away or (to.sender == "ann" and self.tried.count("ann") <= self._fails):
            raise Doubtful("500; it is not known whether it was sent")
        await super().send(to, text, id=id)


def doubted(root: Path, line: Line) -> Line:
    async def run() -> None:
        with nacre.open(root) as sessions:
            await serve(sessions, line, until_closed=True)

    anyio.run(run)
    return line


def test_an_answer_that_a_server_fails_on_is_given_up_when_it_takes_others(root: Path) -> None:
    class Busy(Doubting):
        """Bob writes again and again, until ann's words are closed."""

        async def run(self, accept: Accept) -> None:
            await accept(words("hi"))
            while not self.tried:
                await anyio.lowlevel.checkpoint()
            while name_of(words("hi")) in inbox._open:
                before = len(self.sent)
                await accept(words(f"ho {before}", "bob"))
                while len(self.sent) == before:
                    await anyio.lowlevel.checkpoint()
            self.done.set()
            await anyio.sleep_forever()

    async def run() -> None:
        async with Kernel(sessions, lambda _: agent(Parrot())) as kernel:
            made = Gateway(
                [line],
                inbox=inbox,
                room=lambda _: Room(sessions, kernel),
                access=lambda _: Access(per_minute=10**6),
                commands={},
                backoff=AT_ONCE,
            )
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(made.run)
                with anyio.fail_after(20):
                    await line.done.wait()
                assert made.channels == {"line": True}
                tasks.cancel_scope.cancel()

    line = Busy([], enough=-1)
    with nacre.open(root) as sessions:
        inbox = Inbox(sessions)
        anyio.run(run)
    assert {who for who, _ in line.sent} == {"bob"}
    assert line.tried[:3] == ["ann"] * 3
    assert line.tried.count("ann") >= 6
    with nacre.open(root) as sessions:
        kept = Inbox(sessions)
        assert words("hi") not in kept.read()


def test_no_answer_is_given_up_because_a_server_is_away(root: Path) -> None:
    arriving = [words(f"{who} {number}", who) for number in range(3) for who in ("bob", "cid")]
    line = doubted(root, Doubting(arriving, enough=6, away=100))
    assert sorted(line.sent) == sorted((who.sender, f"re: {who.text}") for who in arriving)


def test_an_answer_that_a_server_fails_on_is_tried_as_long_as_there_is_no_other(root: Path) -> None:
    line = doubted(root, Doubting([words("hi")], enough=1, fails=50))
    assert line.sent == [("ann", "re: hi")]


def test_one_lost_connection_changes_no_order(root: Path) -> None:
    line = doubted(root, Doubting([words(str(number), "bob") for number in range(5)], enough=5, away=2))
    assert [text for _, text in line.sent] == [f"re: {number}" for number in range(5)]


@pytest.mark.parametrize("troubles", [[Doubtful("cut"), Gone("left")], [ChannelError("cut"), *[UnicodeError()] * 5]])
def test_a_channel_counts_as_reached_when_an_answer_has_come_to_its_end_in_any_way(
    root: Path, troubles: list[Exception]
) -> None:
    left = iter(troubles)

    class Left(Line):
        async def send(self, to: InboundMessage, text: str, *, id: str) -> None:
            raise next(left)

    async def run() -> None:
        with nacre.open(root) as sessions:
            inbox = Inbox(sessions)
            delivery = Delivery({"line": Left([], enough=0)}, inbox, Traffic(), LoopLimit(), backoff=AT_ONCE)
            await inbox.add(words("hi"))
            await delivery.tell(words("hi"), "re")
            assert (len(inbox), delivery.reaches("line")) == (0, True)

    anyio.run(run)


def test_an_answer_that_has_to_wait_lets_those_for_other_chats_go_first_and_keeps_its_order(root: Path) -> None:
    class Waiting(Line):
        async def send(self, to: InboundMessage, text: str, *, id: str) -> None:
            if to.sender == "away" and len(self.sent) < 2:
                raise Later("too many messages for this chat", wait=0.001)
            await super().send(to, text, id=id)

    def to(sender: str, text: str) -> InboundMessage:
        return InboundMessage(channel="line", chat=sender, sender=sender, id=text, text=text)

    async def run() -> list[tuple[str, str]]:
        line = Waiting([to("away", "1"), to("away", "2"), to("ann", "3"), to("bob", "4")], enough=4)
        with nacre.open(root) as sessions:
            await serve(sessions, line, until_closed=True)
        return line.sent

    sent = anyio.run(run)
    assert sorted(sent[:2]) == [("ann", "re: 3"), ("bob", "re: 4")]
    assert sent[2:] == [("away", "re: 1"), ("away", "re: 2")]


def test_who_is_absent_for_too_long_is_gone(root: Path) -> None:
    class Empty(Line):
        tried = 0

        async def send(self, to: InboundMessage, text: str, *, id: str) -> None:
            self.tried += 1
            raise Absent("nobody is there")

    async def run() -> int:
        line = Empty([], enough=0)
        with nacre.open(root) as sessions:
            inbox = Inbox(sessions)
            delivery = Delivery({"line": line}, inbox, Traffic(), LoopLimit(), absence=0.01, backoff=AT_ONCE)
            for text in ("hi", "ho"):
                await inbox.add(words(text))
            await delivery.tell(words("hi"), "re")
            assert line.tried > 1
            line.tried = 0
            await delivery.tell(words("ho"), "re")
            assert len(inbox) == 0
        return line.tried

    # What comes for them later is not waited with as long again.
    assert anyio.run(run) == 1


def test_what_is_said_to_a_flood_is_tried_once(root: Path) -> None:
    class Away(Line):
        tried = 0

        async def send(self, to: InboundMessage, text: str, *, id: str) -> None:
            if text == TOO_FAST:
                self.tried += 1
                if self.tried < 5:
                    raise ChannelError
            await super().send(to, text, id=id)

    async def run() -> Away:
        line = Away([words("hi"), words("ho")], enough=1)
        with nacre.open(root) as sessions:
            await serve(sessions, line, Access(per_minute=1), until_closed=True)
        return line

    assert anyio.run(run).tried == 1


def test_a_channel_that_fails_is_run_again(root: Path) -> None:
    class Failing(Line):
        failures = 3

        async def run(self, accept: Accept) -> None:
            if self.failures:
                self.failures -= 1
                raise RuntimeError
            await super().run(accept)

    async def run() -> Line:
        with nacre.open(root) as sessions:
            line = Failing([words("hi")], enough=1)
            await serve(sessions, line)
        return line

    assert anyio.run(run).sent == [("ann", "re: hi")]


def test_an_answer_waits_for_a_disk_that_is_full(root: Path) -> None:
    refusals = [Refused("disk full")] * 3

    class Full(Inbox):
        async def sending(self, arrived: InboundMessage) -> bool:
            if refusals:
                raise refusals.pop()
            return await super().sending(arrived)

    assert served(root, [words("hi")], enough=1, inbox=Full).sent == [("ann", "re: hi")]


# ---- floods and clocks


def test_a_flood_is_told_once_that_it_is_one(root: Path) -> None:
    flood = [words(str(number)) for number in range(200)]
    line = served(root, [*flood, words("ho", "bob")], enough=3, access=Access(per_minute=1))
    assert sorted(line.sent) == [("ann", TOO_FAST), ("ann", "re: 0"), ("bob", "re: ho")]


def test_a_clock_is_not_too_fast(root: Path) -> None:
    class Clock(Line):
        name = "schedule"

    planned = [
        InboundMessage(channel="schedule", chat=str(n), sender="clock", id=str(n), text=str(n)) for n in range(9)
    ]
    line = Clock(planned, enough=9)

    async def run() -> None:
        with nacre.open(root) as sessions:
            await serve(sessions, line, Access(per_minute=2))

    anyio.run(run)
    assert sorted(text for _, text in line.sent) == [f"re: {number}" for number in range(9)]


def test_words_that_come_twice_are_answered_once_where_nothing_is_kept_too(root: Path) -> None:
    arriving = [words("hi"), words("hi"), words("ho")]
    assert served(root, arriving, enough=2, access=Access(keeps=False)).sent == [("ann", "re: hi"), ("ann", "re: ho")]
    assert left_open(root) == []


def test_who_writes_where_nothing_is_kept_is_on_no_disk(root: Path) -> None:
    async def work(sessions: Sessions) -> None:
        inbox = Inbox(sessions, max_records=4)
        assert [inbox.is_new(words("hush", "eve")) for _ in range(2)] == [True, False]
        for number in range(3):
            await inbox.add(words(str(number)))
            closed = inbox.done(words(str(number)))
            assert closed is not None
            await closed
        assert not inbox.is_new(words("2"))

    with nacre.open(root) as sessions:
        anyio.run(work, sessions)
        assert "hush" not in str([entry.data for key in KEYS for entry in sessions.records(key)])


def test_only_the_last_words_of_which_nothing_is_kept_are_known(root: Path) -> None:
    with nacre.open(root) as sessions:
        inbox = Inbox(sessions, max_records=4)
        assert all(inbox.is_new(words(str(number))) for number in range(20))
        assert [inbox.knows(["none", id_of(words(text))]) for text in ("19", "12", "11")] == [True, True, False]
        assert [inbox.is_new(words(text)) for text in ("19", "0")] == [False, True]


# ---- commands


def test_a_command_that_was_carried_out_is_not_carried_out_again(root: Path) -> None:
    """The line is down, so nothing is closed; the next start must not archive what came after the command."""
    done: list[str] = []

    async def new(key: str, room: Room) -> str:
        done.append(key)
        if room.sessions.exists(key):
            room.sessions.archive(key)
        return "anew"

    class Down(Line):
        async def send(self, to: InboundMessage, text: str, *, id: str) -> None:
            self.sent.append((to.sender, text))
            if len(self.sent) == 1:
                self.done.set()
            await anyio.sleep_forever()

    async def crash() -> None:
        with nacre.open(root) as sessions:
            await serve(sessions, Down([words("/new"), words("hi")], enough=9), new=new)

    anyio.run(crash)
    assert texts(root, words("hi")) == ["hi", "re: hi"]
    line = served(root, [], enough=2, new=new)
    assert (len(done), [text.removeprefix(AGAIN) for _, text in line.sent]) == (
        1,
        ["anew", "re: hi"],
    )
    assert texts(root, words("hi")) == ["hi", "re: hi"]


def test_a_command_waits_for_whoever_is_at_work(root: Path) -> None:
    tries = iter([SessionBusy("a turn runs"), None])

    async def new(_: str, __: Room) -> str:
        if (trouble := next(tries)) is not None:
            raise trouble
        return "anew"

    assert served(root, [words("/new")], enough=1, new=new).sent == [("ann", "anew")]


def test_what_a_command_led_to_is_kept_when_the_inbox_is_begun_anew(
    root: Path,
) -> None:
    async def work(sessions: Sessions) -> None:
        inbox = Inbox(sessions, max_records=4)
        await inbox.add(words("/new"))
        await inbox.set_result(words("/new"), "anew")
        for number in range(20):
            await inbox.add(words(str(number)))

    with nacre.open(root) as sessions:
        anyio.run(work, sessions)
        inbox = Inbox(sessions, max_records=4)
        inbox.read()
        assert (inbox.result(words("/new")), inbox.result(words("3"))) == ("anew", None)


# ---- turns that somebody else began


class Stepping(Parrot):
    """A model that calls a tool which is not there, waits, and answers."""

    def __init__(self) -> None:
        self.asked, self.go_on = anyio.Event(), anyio.Event()

    async def complete(self, context: Context, *, emit: Emit) -> Reply:
        if context.messages[-1].content == "begin":
            self.asked.set()
            await self.go_on.wait()
            calls = (ToolCall(id="1", name="none", arguments={}),)
            return Reply(message=Message(role="assistant", content="", tool_calls=calls))
        return Reply(message=Message(role="assistant", content="to all"))


@pytest.mark.parametrize("is_ours", [True, False])
def test_words_that_join_a_turn_are_answered_where_nobody_else_there_is(root: Path, is_ours: bool) -> None:
    """A turn that began on the web answers there; whoever joins it from a channel is there alone."""
    first, second = words("begin"), words("too")

    async def run(sessions: Sessions) -> list[Any]:
        model = Stepping()
        async with Kernel(sessions, lambda _: agent(model)) as kernel:
            line = Line([first] if is_ours else [], enough=1)
            made = Gateway(
                [line],
                inbox=Inbox(sessions),
                room=lambda _: Room(sessions, kernel),
                access=lambda _: Access(),
                commands={},
                backoff=AT_ONCE,
            )
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(made.run)
                if not is_ours:
                    tasks.start_soon(kernel.deliver, UserMessage(key=key_of(first), content="begin"))
                await model.asked.wait()
                await made.accept(second)
                await anyio.wait_all_tasks_blocked()
                model.go_on.set()
                with anyio.fail_after(20):
                    await line.done.wait()
                await anyio.wait_all_tasks_blocked()
                tasks.cancel_scope.cancel()
        return line.sent

    with nacre.open(root) as sessions:
        assert anyio.run(run, sessions) == [("ann", "to all")]
    assert texts(root, first)[-2:] == ["too", "to all"]
    assert left_open(root) == []
    with nacre.open(root) as sessions:
        reply = sessions.get_history(key_of(first))[-1]
    assert reply.extra == {"answers": [id_of(one) for one in ((first, second) if is_ours else (second,))]}


def test_words_that_join_a_turn_of_the_web_are_answered_though_a_command_waits_for_its_end(root: Path) -> None:
    async def run(sessions: Sessions) -> list[Any]:
        model, line, answered = Stepping(), Line([], enough=2), anyio.Event()

        async def wait(_: str, __: Room) -> str:
            await answered.wait()
            return "waited"

        async def send(to: InboundMessage, text: str, *, id: str) -> None:
            await Line.send(line, to, text, id=id)
            answered.set()

        line.send = send  # type: ignore[method-assign]

        async with Kernel(sessions, lambda _: agent(model)) as kernel:
            made = Gateway(
                [line],
                inbox=Inbox(sessions),
                room=lambda _: Room(sessions, kernel),
                access=lambda _: Access(),
                commands={"/wait": wait},
                backoff=AT_ONCE,
            )
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(made.run)
                tasks.start_soon(kernel.deliver, UserMessage(key=key_of(words("too")), content="begin"))
                await model.asked.wait()
                await made.accept(words("too"))
                await made.accept(words("/wait"))
                await anyio.wait_all_tasks_blocked()
                model.go_on.set()
                with anyio.fail_after(20):
                    await line.done.wait()
                await anyio.wait_all_tasks_blocked()
                tasks.cancel_scope.cancel()
        return line.sent

    with nacre.open(root) as sessions:
        assert anyio.run(run, sessions) == [("ann", "to all"), ("ann", "waited")]
