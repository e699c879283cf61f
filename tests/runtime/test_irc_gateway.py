"""Agents on a real IRC server: they do not answer each other without end, and who is away holds nobody up."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import anyio
import pytest

import nacre
from nacre.agent.kernel import Kernel
from nacre.agent.ports import Context, Emit, Reply
from nacre.channels.channel_files import RetryPolicy
from nacre.channels.irc_lines import Line
from nacre.messages import Message
from nacre.runtime.gateway.access import Access
from nacre.runtime.gateway.gateway import Gateway, Room
from nacre.runtime.gateway.inbox import Inbox
from tests.agent.scene import agent
from tests.channels.irc_peers import Person, bot, person
from tests.channels.servers import PATIENT, Server, ngircd

HERE = "#reef"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with ngircd(tmp_path_factory.mktemp("ngircd")).running() as made:
        yield made


class Chatty:
    """A model that takes its time, and says what a function makes of the words."""

    model = "chatty"

    def __init__(self, reply: Callable[[str], str], *, delay: float = 0.0) -> None:
        self._reply, self._delay = reply, delay

    async def complete(self, context: Context, *, emit: Emit) -> Reply:
        await anyio.sleep(self._delay)
        return Reply(message=Message(role="assistant", content=self._reply(str(context.messages[-1].content))))

    async def close(self) -> None:
        """There is nothing to close."""


class Agent(NamedTuple):
    """An agent that is up."""

    nick: str
    gateway: Gateway

    @property
    def answers(self) -> int:
        return self.gateway.traffic.answered["irc"]

    async def heard_all(self, by: Person) -> None:
        """Wait until it has read all that was said before, and answered what it answers."""
        by.say(self.nick, "/help")
        while "/status" not in (await by.line("PRIVMSG")).param(-1):
            pass
        await self.until_open(0)

    async def until_open(self, count: int) -> None:
        """Wait until so many messages wait for their answer."""
        with anyio.fail_after(PATIENT):
            while self.gateway.open != count:  # noqa: ASYNC110 - it has no event for that
                await anyio.sleep(0.002)


@asynccontextmanager
async def agent_on(server: Server, root: Path, nick: str, model: Chatty, **more: Any) -> AsyncIterator[Agent]:
    async def help(_: str, __: Room) -> str:
        return "/status"

    with nacre.open(root / nick) as sessions:
        async with Kernel(sessions, lambda _: agent(model)) as kernel:
            gateway = Gateway(
                [bot(server.port, root / nick, nick, channels=(HERE,), **more)],
                inbox=Inbox(sessions),
                room=lambda _: Room(sessions, kernel),
                access=lambda _: Access(),
                commands={"/help": help},
            )
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(gateway.run)
                yield Agent(nick, gateway)
                tasks.cancel_scope.cancel()


async def joined(watcher: Person, *nicks: str) -> None:
    """Wait until all are in the channel."""
    missing = set(nicks)
    with anyio.fail_after(PATIENT):
        while missing:
            watcher.write(f"NAMES {HERE}")
            missing -= {name.lstrip("@+~&%") for name in (await watcher.line("353")).param(-1).split()}


def addresses(other: str) -> str:
    """An answer of which every line addresses somebody, however it is cut."""
    long = f"{other}: what do you think? " * 40
    return f"{other}: and you?\n{other}, and you?\n@{other} and you?\n   {other}: you?\n{long}"


@pytest.mark.parametrize("delay", [0.0, 0.05])
def test_two_agents_and_a_person_in_one_channel_come_to_an_end(server: Server, tmp_path: Path, delay: float) -> None:
    alpha, beta = ("alpha", "beta") if delay else ("able", "baker")

    async def run() -> int:
        async with (
            person("ann", server.port, HERE) as ann,
            agent_on(server, tmp_path, alpha, Chatty(lambda _: addresses(beta), delay=delay)) as one,
            agent_on(server, tmp_path, beta, Chatty(lambda _: addresses(alpha), delay=delay)) as two,
        ):
            await joined(ann, alpha, beta)
            ann.say(HERE, f"{alpha}: ask {beta}")
            ann.say(HERE, f"{beta}: ask {alpha}")
            said: list[Line] = []
            while {line.nick for line in said} != {alpha, beta}:
                said.append(await ann.line("PRIVMSG"))
            # Each has read what the other said before, so what it leads to is under way or done.
            for _ in range(3):
                for each in (one, two):
                    await each.heard_all(ann)
            return one.answers + two.answers - 6

    assert anyio.run(run) == 2


def test_no_line_in_a_channel_begins_with_what_the_model_says(server: Server, tmp_path: Path) -> None:
    async def run() -> list[str]:
        async with (
            person("bea", server.port, HERE) as bea,
            agent_on(server, tmp_path, "gamma", Chatty(lambda _: addresses("bea"))),
        ):
            await joined(bea, "gamma")
            bea.say(HERE, "gamma: hello")
            return await bea.hears(7)

    first, *others = anyio.run(run)
    assert first == "bea: bea: and you?"
    assert others[0] == "| bea, and you?"
    assert all(line.startswith("| ") for line in others)


@pytest.mark.parametrize(("delta", "robot", "delay"), [("delta", "robby", 0.0), ("dog", "rosie", 0.05)])
def test_a_program_that_nobody_marked_stops_when_it_is_not_addressed_any_more(
    server: Server, tmp_path: Path, delta: str, robot: str, delay: float
) -> None:

    async def run() -> list[str]:
        said: list[str] = []
        async with (
            person(robot, server.port, HERE) as other,
            agent_on(server, tmp_path, delta, Chatty(lambda _: "yes", delay=delay)) as one,
        ):
            await joined(other, delta)
            other.say(HERE, f"{delta}: hello")
            while not said or said[-1].startswith(f"{robot}:"):
                said += await other.hears()
                if said[-1].startswith(f"{robot}:"):
                    other.say(HERE, f"{delta}: and again?")
            await one.heard_all(other)
            assert one.answers == 4
        return said

    assert anyio.run(run) == [f"{robot}: yes", f"{robot}: yes", f"({robot}) yes"]


def test_a_bot_that_the_server_knows_as_one_gets_no_answer(server: Server, tmp_path: Path) -> None:
    async def run() -> int:
        async with (
            person("robot", server.port, HERE) as robot,
            person("cleo", server.port, HERE) as cleo,
            agent_on(server, tmp_path, "epsilon", Chatty(lambda _: "yes")) as one,
        ):
            robot.write("MODE robot +B")
            await robot.line("MODE")
            await joined(cleo, "epsilon")
            robot.say(HERE, "epsilon: hello")
            robot.say("epsilon", "hello")
            robot.write("PING :1")
            await robot.line("PONG")
            await one.heard_all(cleo)
            return one.answers

    assert anyio.run(run) == 1


def test_somebody_who_left_holds_up_nobody_else(server: Server, tmp_path: Path) -> None:
    """The answers to those who are there come while the one that nobody takes is still open."""

    class Holding(Chatty):
        left = anyio.Event()

        async def complete(self, context: Context, *, emit: Emit) -> Reply:
            if context.messages[-1].content == "wait for me":
                await self.left.wait()
            return await super().complete(context, emit=emit)

    async def run() -> None:
        model, retry = Holding(str.upper), RetryPolicy(first=0.02, limit=0.1, outage=3600)
        async with (
            agent_on(server, tmp_path, "zeta", model, retry=retry) as one,
            person("dora", server.port) as dora,
        ):
            async with person("gone", server.port) as gone:
                await gone.meets("zeta")
                gone.say("zeta", "wait for me")
                await one.until_open(1)
            await dora.misses("gone")
            model.left.set()
            for number in range(5):
                dora.say("zeta", f"words {number}")
                assert await dora.hears() == [f"WORDS {number}"]
            await one.until_open(1)

    anyio.run(run)
