"""Several gateways on one database: one serves the channels, the others wait, and each message is answered once."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import anyio
import pytest

import nacre
from nacre.agent.kernel import Kernel
from nacre.backoff import Backoff
from nacre.channels.channel import Accept, InboundMessage, key_of
from nacre.channels.channel_files import Cursor
from nacre.errors import LeaseLost, SessionBusy, StoreError
from nacre.runtime.counters import Traffic
from nacre.runtime.gateway.access import Access
from nacre.runtime.gateway.gateway import Gateway, Room
from nacre.runtime.gateway.inbox import KEYS, Inbox
from nacre.runtime.gateway.service import ChannelService, Term
from nacre.sessions import Sessions
from nacre.storage.postgres.address import parse
from nacre.storage.postgres.schema import init
from tests.agent.scene import agent
from tests.runtime.test_gateway import Parrot


class Post:
    """A messenger's server: messages stay until they are acknowledged, and what was sent can be read."""

    def __init__(self) -> None:
        self.waiting: list[str] = []
        self.sent: list[tuple[str, str]] = []
        self.news = anyio.Event()

    def put(self, text: str) -> None:
        self.waiting.append(text)
        self.tell()

    def tell(self) -> None:
        self.news.set()
        self.news = anyio.Event()

    async def until(self, is_so: Callable[[], bool]) -> None:
        with anyio.fail_after(60):
            while not is_so():
                await self.news.wait()


class Bot:
    """A channel of one gateway to that server."""

    name = "post"
    is_exact = False
    is_up = True

    def __init__(self, post: Post, place: str, cursor: Cursor) -> None:
        self._post, self._place, self._cursor = post, place, cursor

    async def run(self, accept: Accept) -> None:
        read = int(self._cursor.read().get("read", 0))
        while True:
            while read < len(self._post.waiting):
                text = self._post.waiting[read]
                await accept(InboundMessage(channel="post", chat="c", sender="ann", id=text, text=text))
                read += 1
                self._cursor.write({"read": read, "by": self._place})
            await self._post.news.wait()

    async def send(self, to: InboundMessage, text: str, *, id: str) -> None:
        self._post.sent.append((self._place, text))
        self._post.tell()

    async def close(self) -> None:
        """There is nothing to close."""


@asynccontextmanager
async def gateway_at(place: str, sessions: Sessions, post: Post) -> AsyncIterator[ChannelService]:
    """A gateway that runs meanwhile, or waits."""
    async with Kernel(sessions, lambda _: agent(Parrot())) as kernel:

        @asynccontextmanager
        async def make(term: Term, traffic: Traffic) -> AsyncIterator[Gateway]:
            cursor = Cursor(sessions.with_internal_keys(held=term.lease).document("post"))
            yield Gateway(
                [Bot(post, place, cursor)],
                inbox=Inbox(sessions, held=term.lease, lost=term.end),
                room=lambda _: Room(sessions, kernel),
                access=lambda _: Access(),
                commands={},
                traffic=traffic,
                lost=term.end,
                may_send=term.may_send,
                backoff=Backoff(first=0.01, longest=0.1),
            )

        service = ChannelService(sessions, make, began=post.tell)
        await service.start()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(service.run)
            yield service
            tasks.cancel_scope.cancel()
        await service.close()


async def until_settled(sessions: Sessions) -> None:
    """Wait until it is stored that all answers were sent; else whoever comes next sends the last one again."""
    with anyio.fail_after(60):
        while Inbox(sessions).read():  # noqa: ASYNC110 - nothing tells of it
            await anyio.sleep(0.01)


@pytest.fixture
def url(database: str) -> str:
    init(parse(database))
    return database


def answers(url: str) -> list[object]:
    """Everything that was said in the session, in its order."""
    with nacre.open(url) as sessions:
        key = key_of(InboundMessage(channel="post", chat="c", sender="ann", id="", text=""))
        return [message.content for message in sessions.get_history(key)]


def test_a_second_gateway_waits_and_goes_on_where_the_first_one_ended(url: str) -> None:
    async def main() -> list[tuple[str, str]]:
        post = Post()
        with nacre.open(url) as one, nacre.open(url) as other:
            async with gateway_at("one", one, post) as first, gateway_at("other", other, post) as second:
                post.put("a")
                await post.until(lambda: len(post.sent) == 1)
                await until_settled(other)
                assert (first.is_serving, second.is_serving, second.channels, second.open) == (True, False, {}, 0)
                first.end()
                await first.close()
                post.put("b")
                await post.until(lambda: len(post.sent) == 2)
                assert (first.is_serving, second.is_serving) == (False, True)
        return post.sent

    assert anyio.run(main) == [("one", "re: a"), ("other", "re: b")]
    assert answers(url) == ["a", "re: a", "b", "re: b"]


def test_a_gateway_that_lost_the_lease_sends_and_accepts_nothing_until_it_has_it_again(url: str) -> None:
    async def main() -> list[tuple[str, str]]:
        post = Post()
        with nacre.open(url) as one, nacre.open(url) as other:
            async with gateway_at("one", one, post) as first:
                post.put("a")
                await post.until(lambda: len(post.sent) == 1)
                await until_settled(other)
                thief = other.hold(KEYS[0])
                thief.take_over()
                post.put("b")
                with anyio.fail_after(60):
                    while first.is_serving:  # noqa: ASYNC110 - nothing tells of it
                        await anyio.sleep(0.01)
                assert Inbox(other).read() == []
                assert len(post.sent) == 1
                thief.close()
                await post.until(lambda: len(post.sent) == 2)
        return post.sent

    assert anyio.run(main) == [("one", "re: a"), ("one", "re: b")]
    assert answers(url) == ["a", "re: a", "b", "re: b"]


def test_what_a_gateway_without_the_lease_has_read_does_not_count(url: str) -> None:
    with nacre.open(url) as one, nacre.open(url) as other:
        lost, lease = one.hold(KEYS[0]), other.hold(KEYS[0])
        lost.take()
        stale = Cursor(one.with_internal_keys(held=lost).document("post"))
        stale.write({"read": 1})
        lease.take_over()
        Cursor(other.with_internal_keys(held=lease).document("post")).write({"read": 5})
        with pytest.raises(LeaseLost):
            stale.write({"read": 2})
        assert stale.read() == {"read": 5}


def test_on_files_a_second_gateway_is_refused(tmp_path: object) -> None:
    async def main() -> None:
        post = Post()
        with nacre.open(str(tmp_path)) as sessions:
            async with gateway_at("one", sessions, post):
                with pytest.raises(SessionBusy):
                    async with gateway_at("other", sessions, post):
                        """It does not come to this."""

    anyio.run(main)


def test_a_store_that_is_away_for_long_is_two_lines_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)

    class Away:
        """The lease in a database that does not answer the first times."""

        left = 9

        def check(self) -> None:
            self.left -= 1
            if self.left > 0:
                raise StoreError("the database does not answer")

    with nacre.open(":memory:") as sessions:
        lease = sessions.hold("k")
        lease.check = Away().check  # type: ignore[method-assign]
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr("nacre.runtime.gateway.service.PAUSE", 0.001)
            term = Term(lease, can_be_lost=True)

            async def wait() -> None:
                async with anyio.create_task_group() as tasks:
                    for _ in range(3):
                        tasks.start_soon(term.may_send)

            anyio.run(wait)
    assert caplog.messages == ["answers have to wait for the store", "the store answers again"]


def test_one_that_waits_for_the_channels_says_once_that_the_store_is_away(
    url: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)

    async def main() -> None:
        post = Post()
        with nacre.open(url) as one, nacre.open(url) as other:
            async with gateway_at("one", one, post), gateway_at("other", other, post) as second:
                lease, calls = second._lease, 0
                take = lease.take

                def take_or_fail() -> None:
                    nonlocal calls
                    calls += 1
                    # Not at the start, which it would keep from succeeding.
                    if 1 < calls < 5:
                        raise StoreError("the database does not answer")
                    take()

                lease.take = take_or_fail  # type: ignore[method-assign]
                with anyio.fail_after(60):
                    while "the store answers again" not in caplog.messages:  # noqa: ASYNC110 - nothing tells of it
                        await anyio.sleep(0.01)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("nacre.runtime.gateway.service.PAUSE", 0.05)
        anyio.run(main)
    assert caplog.messages.count("the channels could not be served; retrying") == 1
