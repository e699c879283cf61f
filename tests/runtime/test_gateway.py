"""The gateway: accepted words are durable, answered once, in order, through restarts; strangers and floods are not."""

from __future__ import annotations

import errno
import itertools
import logging
import os
import signal
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import anyio
import pytest

import nacre
from nacre.agent.actor import UserMessage
from nacre.agent.kernel import Kernel
from nacre.agent.ports import Context, Emit, Provider, Reply
from nacre.backoff import Backoff
from nacre.channels.channel import AGAIN, Accept, InboundMessage, key_of
from nacre.errors import ChannelError, ProviderError
from nacre.history.session_state import RULES
from nacre.messages import Message, ToolCall
from nacre.records import AppendRecord
from nacre.runtime.gateway.access import Access
from nacre.runtime.gateway.gateway import SILENT, TOO_FAST, Gateway, Room
from nacre.runtime.gateway.inbox import KEYS, Inbox, forget_answered, id_of, name_of
from nacre.sessions import Sessions
from nacre.storage.file_store import FileStore
from nacre.storage.postgres.address import parse
from nacre.storage.postgres.schema import init
from nacre.storage.system import System
from tests.agent.scene import agent
from tests.agent.test_kills import Deadly

AT_ONCE = Backoff(first=0)


class Parrot:
    """A model that says the last words back."""

    model = "parrot"
    silent_at: tuple[str, ...] = ()

    async def complete(self, context: Context, *, emit: Emit) -> Reply:
        words = str(context.messages[-1].content)
        if words in self.silent_at:
            await anyio.sleep_forever()
        if words == "fail":
            raise ProviderError("no server")
        said = f"re: {words}"
        content = [{"type": "text", "text": said}] if words == "in parts" else said
        return Reply(message=Message(role="assistant", content=content))

    async def close(self) -> None:
        """There is nothing to close."""


class Line:
    """A channel that delivers what it is given, and remembers what was sent."""

    name = "line"
    is_exact = False
    is_up = True

    def __init__(self, arriving: Sequence[InboundMessage], *, enough: int, broken: int = 0) -> None:
        self.sent: list[tuple[str, str]] = []
        self.acknowledged: list[str] = []
        self.done = anyio.Event()
        self._arriving = arriving
        self._enough = enough
        self._broken = broken

    async def run(self, accept: Accept) -> None:
        for arrived in self._arriving:
            await accept(arrived)
            self.acknowledged.append(arrived.id)
        if not self._enough:
            self.done.set()

    async def send(self, to: InboundMessage, text: str, *, id: str) -> None:
        if self._broken:
            self._broken -= 1
            raise ChannelError("the line is down")
        self.sent.append((to.sender, text))
        if len(self.sent) == self._enough:
            self.done.set()

    async def close(self) -> None:
        """There is nothing to close."""


@pytest.fixture(params=["files", "database"])
def place(request: pytest.FixtureRequest, root: Path) -> str:
    """Where the sessions of a gateway are: a folder, or a database."""
    if request.param == "files":
        return str(root)
    url = str(request.getfixturevalue("database"))
    init(parse(url))
    return url


def words(text: str, sender: str = "ann", id: str = "", **fields: Any) -> InboundMessage:
    return InboundMessage(channel="line", chat="c", sender=sender, id=id or text, text=text, **fields)


async def serve(
    sessions: Sessions,
    line: Line,
    access: Access | None = None,
    *,
    turns: int = 32,
    until_closed: bool = False,
    forgetting: float = 3600,
    until: Callable[[], bool] = lambda: True,
    model: Provider | None = None,
    inbox: type[Inbox] = Inbox,
    **commands: Any,
) -> None:
    """Run a gateway until the line has had enough, or until nothing is open either."""
    async with Kernel(sessions, lambda _: agent(model or Parrot())) as kernel:
        gateway = Gateway(
            [line],
            inbox=inbox(sessions),
            room=lambda _: Room(sessions, kernel),
            access=lambda _: access or Access(),
            commands={f"/{name}": command for name, command in commands.items()},
            turns=turns,
            forgetting=forgetting,
            backoff=AT_ONCE,
        )
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(gateway.run)
            with anyio.fail_after(20):
                await line.done.wait()
                while (until_closed and gateway.open) or not until():  # noqa: ASYNC110 - it has no event for that
                    await anyio.sleep(0.005)
            await anyio.wait_all_tasks_blocked()
            tasks.cancel_scope.cancel()
        # A daemon has other things to close before its kernel.
        await anyio.wait_all_tasks_blocked()


def served(root: Path | str, arriving: Sequence[InboundMessage], *, enough: int, **options: Any) -> Line:
    async def run() -> Line:
        line = Line(arriving, enough=enough, broken=options.pop("broken", 0))
        with nacre.open(root) as sessions:
            await serve(sessions, line, **options)
        return line

    return anyio.run(run)


def texts(root: Path | str, arrived: InboundMessage) -> list[Any]:
    with nacre.open(root) as sessions:
        return [message.content for message in sessions.get_history(key_of(arrived))]


def test_words_are_answered_where_they_came_from(place: str) -> None:
    line = served(place, [words("hi"), words("ho", "bob")], enough=2)
    assert sorted(line.sent) == [("ann", "re: hi"), ("bob", "re: ho")]
    assert texts(place, words("hi")) == ["hi", "re: hi"]


def test_words_of_one_sender_are_answered_in_order(place: str) -> None:
    line = served(place, [words(str(number)) for number in range(20)], enough=20)
    assert line.sent == [("ann", f"re: {number}") for number in range(20)]


def test_words_that_come_again_are_answered_once(place: str) -> None:
    served(place, [words("hi", id="1")], enough=1)
    line = served(place, [words("hi", id="1"), words("new", id="2")], enough=1)
    assert line.sent == [("ann", "re: new")]
    assert texts(place, words("hi")) == ["hi", "re: hi", "new", "re: new"]


def test_what_a_crash_left_open_is_answered_at_the_next_start(place: str) -> None:
    async def crash() -> None:
        with nacre.open(place) as sessions:
            await Inbox(sessions).add(words("hi"))

    anyio.run(crash)
    assert served(place, [], enough=1).sent == [("ann", "re: hi")]
    assert served(place, [], enough=0).sent == []


def test_a_line_that_is_down_gets_the_answer_later(place: str) -> None:
    logging.disable()
    line = served(place, [words("hi")], enough=1, broken=3)
    logging.disable(logging.NOTSET)
    assert line.sent == [("ann", "re: hi")]


def test_a_stranger_is_not_answered(place: str) -> None:
    access = Access(allow=["bob"])
    line = served(place, [words("hi"), words("ho", "bob")], enough=1, access=access)
    assert line.sent == [("bob", "re: ho")]
    with nacre.open(place) as sessions:
        assert not sessions.exists(key_of(words("hi")))


def test_a_flood_is_answered_politely(place: str) -> None:
    line = served(place, [words(str(n)) for n in range(3)], enough=3, access=Access(per_minute=2))
    assert ("ann", TOO_FAST) in line.sent
    assert texts(place, words("0")) == ["0", "re: 0", "1", "re: 1"]


@pytest.mark.parametrize(("owner", "told"), [("ann", "I cannot answer now: no server"), ("bob", SILENT)])
def test_a_failing_model_is_said_and_why_to_the_owner_alone(place: str, owner: str, told: str) -> None:
    logging.disable()
    line = served(place, [words("fail")], enough=1, access=Access(owners=[owner]))
    logging.disable(logging.NOTSET)
    assert line.sent == [("ann", told)]


def test_an_answer_in_parts_is_sent_as_text(place: str) -> None:
    assert served(place, [words("in parts")], enough=1).sent == [("ann", "re: in parts")]


def test_a_command_is_carried_out(place: str) -> None:
    async def new(key: str, room: Room) -> str:
        return f"new after {len(room.sessions.get_history(key))}"

    line = served(place, [words("/new please")], enough=1, new=new)
    assert line.sent == [("ann", "new after 0")]


def test_the_inbox_does_not_grow_for_ever(place: str) -> None:
    async def work(sessions: Sessions) -> None:
        inbox = Inbox(sessions, max_records=8)
        await inbox.add(words("open"))
        await inbox.sending(words("open"))
        for number in range(100):
            assert await inbox.add(words(str(number)))
            closed = inbox.done(words(str(number)))
            assert closed is not None
            await closed
        assert not await inbox.add(words("99"))
        assert not await inbox.add(words("open"))

    with nacre.open(place) as sessions:
        anyio.run(work, sessions)
        assert all(len(list(sessions.records(key))) < 30 for key in KEYS)
        kept = Inbox(sessions, max_records=8)
        kept.read()
        assert all(kept.knows([id_of(words(str(number)))]) for number in range(92, 100))
        assert Inbox(sessions).read() == [words("open")]
        assert anyio.run(_is_repeat, sessions)


def copies(sessions: Sessions) -> set[str]:
    """The texts that the inbox has."""
    return {entry.data["text"] for key in KEYS for entry in sessions.records(key) if "text" in entry.data}


def test_what_was_answered_is_forgotten_but_for_its_name(place: str) -> None:
    async def work(sessions: Sessions) -> None:
        inbox = Inbox(sessions)
        await inbox.add(words("still open"))
        for text in ("a secret", "another"):
            await inbox.add(words(text))
            closed = inbox.done(words(text))
            assert closed is not None
            await closed
        await inbox.forget()
        await inbox.forget()

    with nacre.open(place) as sessions:
        anyio.run(work, sessions)
        found = Inbox(sessions)
        assert found.read() == [words("still open")]
        assert not any(anyio.run(found.add, words(text)) for text in ("a secret", "another"))
        assert copies(sessions) == {"still open"}


def test_what_is_answered_while_others_are_forgotten_is_so_the_next_time(place: str) -> None:
    async def work(sessions: Sessions) -> None:
        inbox = Inbox(sessions)
        await inbox.add(words("a secret"))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(inbox.forget)
            await anyio.wait_all_tasks_blocked()
            inbox.done(words("a secret"))
        await inbox.forget()
        assert copies(sessions) == set()

    with nacre.open(place) as sessions:
        anyio.run(work, sessions)


def test_a_daemon_forgets_what_it_answered(place: str) -> None:
    async def run() -> None:
        line = Line([words("a secret")], enough=1, broken=0)
        with nacre.open(place) as sessions:
            await serve(sessions, line, until_closed=True, forgetting=0.01, until=lambda: not copies(sessions))
            assert Inbox(sessions).read() == []

    anyio.run(run)


@pytest.mark.parametrize("is_served", [False, True])
def test_a_store_is_made_to_forget_unless_a_daemon_has_it(place: str, is_served: bool) -> None:
    served(place, [words("a secret")], enough=1, until_closed=True)
    with nacre.open(place) as sessions, ExitStack() as held:
        if is_served:
            hold = sessions.hold(KEYS[0])
            hold.take()
            held.callback(hold.close)
        with nacre.open(place) as other:
            assert forget_answered(other) is not is_served
        assert copies(sessions) == ({"a secret"} if is_served else set())


def test_words_keep_their_order_when_the_inbox_is_begun_anew(place: str) -> None:
    arriving = [words(str(number)) for number in range(20)]

    async def work(sessions: Sessions, arrived: InboundMessage) -> list[InboundMessage]:
        inbox = Inbox(sessions, max_records=3)
        left = inbox.read()
        await inbox.add(arrived)
        return left

    for number, arrived in enumerate(arriving):
        with nacre.open(place) as sessions:
            assert anyio.run(work, sessions, arrived) == arriving[:number]


def test_a_clock_that_goes_back_opens_nothing_again(root: Path) -> None:
    seconds = itertools.count(2_000_000_000, -1)

    class Backwards(System):
        def now(self) -> float:
            return next(seconds)

    async def work(sessions: Sessions, first: int) -> list[InboundMessage]:
        inbox = Inbox(sessions, max_records=4)
        left = inbox.read()
        for number in range(first, first + 3):
            await inbox.add(words(str(number)))
            closed = inbox.done(words(str(number)))
            assert closed is not None
            await closed
        return left

    for first in range(0, 60, 3):
        with Sessions(FileStore(str(root), rules=RULES, system=Backwards())) as sessions:
            assert anyio.run(work, sessions, first) == []


async def _is_repeat(sessions: Sessions) -> bool:
    inbox = Inbox(sessions)
    inbox.read()
    return await inbox.sending(words("open"))


def test_killed_while_the_inbox_is_begun_anew_nothing_is_lost(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise KeyboardInterrupt

    async def work(sessions: Sessions) -> None:
        inbox = Inbox(sessions, max_records=2)
        await inbox.add(words("0"))
        with monkeypatch.context() as patch:
            patch.setattr(Sessions, "delete", fail)
            with pytest.raises(KeyboardInterrupt):
                await inbox.add(words("1"))

    with nacre.open(place) as sessions:
        anyio.run(work, sessions)
    with nacre.open(place) as sessions:
        assert Inbox(sessions).read() == [words("0"), words("1")]


def kinds_in_inbox(sessions: Sessions) -> list[tuple[str, Any]]:
    """The records of the inbox after its first, each with the group in which it was stored, None if it was alone."""
    found = sessions.with_internal_keys().read(KEYS[0], lambda view: [(record.t, record.tx) for record in view.all()])
    return (found or [])[1:]


def test_that_a_message_was_answered_is_written_with_the_next_one_where_no_repeat_is_seen(place: str) -> None:
    async def work(sessions: Sessions) -> None:
        inbox = Inbox(sessions, later=3600)
        await inbox.add(words("a"))
        inbox.done_later(words("a"))
        assert len(inbox) == 0
        assert not await inbox.add(words("a"))
        await inbox.add(words("b"))
        inbox.done_later(words("b"))
        inbox.done_later(words("b"))

    with nacre.open(place) as sessions:
        anyio.run(work, sessions)
        assert kinds_in_inbox(sessions) == [("x.arrived", None), ("x.arrived", (3, 2)), ("x.answered", (3, 2))]
        # A crash now: the answer to b is sent again, under its id.
        assert Inbox(sessions).read() == [words("b")]


def test_that_a_message_was_answered_is_written_soon_if_nobody_writes(place: str) -> None:
    async def work(sessions: Sessions) -> None:
        inbox = Inbox(sessions, later=0)
        for text in ("a", "b"):
            await inbox.add(words(text))
            inbox.done_later(words(text))
            with anyio.fail_after(20):
                while Inbox(sessions).read():  # noqa: ASYNC110 - it has no event for that
                    await anyio.sleep(0.005)
        assert inbox.write_later() is None

    with nacre.open(place) as sessions:
        anyio.run(work, sessions)
        assert [kind for kind, _ in kinds_in_inbox(sessions)] == ["x.arrived", "x.answered"] * 2


def test_what_is_to_be_written_later_is_not_lost_with_a_record_that_is_refused(place: str) -> None:
    async def work(sessions: Sessions) -> None:
        inbox = Inbox(sessions, later=3600)
        for text in ("a", "b"):
            await inbox.add(words(text))
        inbox.done_later(words("a"))
        with pytest.raises(nacre.InvalidMessage):
            await inbox.set_result(words("b"), object())  # type: ignore[arg-type]
        written = inbox.write_later()
        assert written is not None
        await written

    with nacre.open(place) as sessions:
        anyio.run(work, sessions)
        assert Inbox(sessions).read() == [words("b")]


class SickDisk(System):
    """A disk of which one call fails, once: a write for want of space, or a flush."""

    failing = ""

    def write(self, fd: int, data: bytes | memoryview) -> int:
        self._fail("write", errno.ENOSPC)
        return super().write(fd, data)

    def fdatasync(self, fd: int) -> None:
        self._fail("fdatasync", errno.EIO)
        super().fdatasync(fd)

    def _fail(self, call: str, number: int) -> None:
        if self.failing == call:
            self.failing = ""
            raise OSError(number, os.strerror(number))


@pytest.mark.parametrize(
    ("failing", "error"), [("write", nacre.Refused), ("fdatasync", nacre.DurabilityUnknown)], ids=["write", "flush"]
)
def test_what_is_to_be_written_later_is_not_lost_with_a_write_that_fails(
    root: Path, failing: str, error: type[Exception], caplog: pytest.LogCaptureFixture
) -> None:
    disk = SickDisk()

    async def work(sessions: Sessions) -> None:
        inbox = Inbox(sessions, later=3600)
        await inbox.add(words("a"))
        inbox.done_later(words("a"))
        disk.failing = failing
        with pytest.raises(error):
            await inbox.add(words("b"))
        assert disk.failing == ""
        # What the thread that writes has to say comes to the loop of its own accord.
        with anyio.fail_after(20):
            while (written := inbox.write_later()) is None:  # noqa: ASYNC110 - as above
                await anyio.sleep(0.005)
        await written
        assert [kind for kind, _ in kinds_in_inbox(sessions)][-1] == "x.answered"

    with Sessions(FileStore(str(root), rules=RULES, system=disk)) as sessions:
        anyio.run(work, sessions)
        assert words("a") not in Inbox(sessions).read()
    assert "that messages were answered was not written" in caplog.text


def test_what_is_to_be_written_later_is_tried_again_if_nobody_awaits_it(root: Path) -> None:
    disk = SickDisk()

    async def work(sessions: Sessions) -> None:
        inbox = Inbox(sessions, later=0)
        await inbox.add(words("a"))
        disk.failing = "write"
        inbox.done_later(words("a"))
        with anyio.fail_after(20):
            while disk.failing or Inbox(sessions).read():  # noqa: ASYNC110 - as above
                await anyio.sleep(0.005)

    with Sessions(FileStore(str(root), rules=RULES, system=disk)) as sessions:
        anyio.run(work, sessions)
        assert [kind for kind, _ in kinds_in_inbox(sessions)] == ["x.arrived", "x.answered"]


def test_what_is_to_be_written_later_is_written_at_the_end(place: str) -> None:
    class Exact(Line):
        is_exact = True

    async def run(sessions: Sessions) -> None:
        await serve(sessions, Exact([words("hi")], enough=1), until_closed=True)

    with nacre.open(place) as sessions:
        anyio.run(run, sessions)
    with nacre.open(place) as sessions:
        assert Inbox(sessions).read() == []


def test_more_words_than_turns_wait_and_keep_their_order(place: str) -> None:
    arriving = [words(f"{who} {number}", who) for number in range(5) for who in ("ann", "bob", "cid")]
    line = served(place, arriving, enough=15, turns=2)
    for who in ("ann", "bob", "cid"):
        assert [text for name, text in line.sent if name == who] == [f"re: {who} {number}" for number in range(5)]


def stored_together(root: Path | str) -> list[Any]:
    """The records of ann's session after its first: the group of each, None if it was stored alone."""
    with nacre.open(root) as sessions:
        return sessions.read(key_of(words("")), lambda view: [record.tx for record in view.all()][1:]) or []


def test_a_message_that_the_inbox_has_is_stored_with_its_answer(place: str) -> None:
    served(place, [words("first")], enough=1, until_closed=True)
    served(place, [words("second")], enough=1, until_closed=True)
    # The first message creates the session before the model is asked.
    assert stored_together(place) == [None, None, (4, 2), (4, 2)]


def test_a_message_that_an_earlier_run_left_open_is_stored_before_the_model_is_asked(place: str) -> None:
    """It may be stored already, and answered: that must be known before."""
    served(place, [words("first")], enough=1, until_closed=True)
    with nacre.open(place) as sessions:
        anyio.run(Inbox(sessions).add, words("second"))
    served(place, [], enough=1, until_closed=True)
    assert stored_together(place) == [None, None, None, None]


class Stuck(Line):
    """A line that takes one chat's answers never."""

    is_exact = True

    async def send(self, to: InboundMessage, text: str, *, id: str) -> None:
        if to.chat == "stuck":
            await anyio.sleep_forever()
        await super().send(to, text, id=id)


@pytest.mark.anyio
async def test_an_answer_that_cannot_be_sent_yet_keeps_no_turn_from_others(place: str) -> None:
    arriving = [
        InboundMessage(channel="line", chat=chat, sender=chat, id="1", text="hi") for chat in ("stuck", "a", "b", "c")
    ]
    line = Stuck(arriving, enough=3)
    with nacre.open(place) as sessions:
        await serve(sessions, line, turns=1)
    assert line.sent == [("a", "re: hi"), ("b", "re: hi"), ("c", "re: hi")]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"chat": "a:b", "sender": "c"}, {"chat": "a", "sender": "b:c"}),
        ({"chat": "a%3A", "sender": "c"}, {"chat": "a:", "sender": "c"}),
        ({"chat": "a", "thread": "t", "sender": "s"}, {"chat": "a:t", "sender": "s"}),
    ],
)
def test_no_two_senders_share_a_session(one: Any, other: Any) -> None:
    first, second = (InboundMessage(channel="x", id="1", text="t", **fields) for fields in (one, other))
    assert key_of(first) != key_of(second)


def test_a_chat_may_share_one(place: str) -> None:
    assert key_of(words("a", "ann"), per="chat") == key_of(words("b", "bob"), per="chat") == "line::c::"


@pytest.mark.parametrize(("is_exact", "told"), [(False, f"{AGAIN}re: hi"), (True, "re: hi")])
def test_what_may_have_been_seen_before_a_crash_says_so(
    place: str, monkeypatch: pytest.MonkeyPatch, is_exact: bool, told: str
) -> None:
    async def crash() -> None:
        with nacre.open(place) as sessions:
            inbox = Inbox(sessions)
            for arrived in (words("hi"), words("ho", "bob")):
                await inbox.add(arrived)
            assert not await inbox.sending(words("hi"))

    anyio.run(crash)
    monkeypatch.setattr(Line, "is_exact", is_exact)
    assert sorted(served(place, [], enough=2).sent) == [("ann", told), ("bob", "re: ho")]
    assert served(place, [words("new")], enough=1).sent == [("ann", "re: new")]


def test_that_an_answer_is_about_to_be_sent_is_on_disk_first(place: str) -> None:
    kinds: list[list[str]] = []

    class Watched(Line):
        async def send(self, to: InboundMessage, text: str, *, id: str) -> None:
            with nacre.open(place) as sessions:
                kinds.append([entry.kind for entry in sessions.records(KEYS[0])])
            await super().send(to, text, id=id)

    async def run() -> None:
        with nacre.open(place) as sessions:
            await serve(sessions, Watched([words("hi")], enough=1))

    anyio.run(run)
    assert kinds == [["open", "x.arrived", "x.sending"]]


def test_a_shutdown_in_the_middle_of_a_turn_leaves_the_words_to_the_next_start(
    place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(Parrot, "silent_at", ("hi",))
        assert served(place, [words("hi")], enough=0).sent == []
    assert texts(place, words("hi")) == ["hi"]
    assert served(place, [], enough=1).sent == [("ann", "re: hi")]
    assert texts(place, words("hi")) == ["hi", "re: hi"]


@pytest.mark.parametrize("is_first_open", [True, False])
def test_words_that_had_joined_a_turn_before_a_crash_share_its_answer(place: str, is_first_open: bool) -> None:
    first, second = words("first"), words("second")

    async def crash() -> None:
        with nacre.open(place) as sessions:
            for arrived in (first, second) if is_first_open else (second,):
                await Inbox(sessions).add(arrived)
            for arrived in (first, second):
                extra = {"origin": {"id": id_of(arrived)}}
                sessions.add_messages(key_of(arrived), [Message(role="user", content=arrived.text, extra=extra)])
            sessions.add_message(key_of(first), "assistant", "to both")

    anyio.run(crash)
    assert served(place, [words("third")], enough=2).sent == [("ann", "to both"), ("ann", "re: third")]


def test_words_that_had_joined_a_turn_whose_answer_was_sent_are_not_answered_again(place: str) -> None:
    first, second = words("first"), words("second")

    async def crash() -> None:
        with nacre.open(place) as sessions:
            inbox = Inbox(sessions)
            for arrived in (first, second):
                await inbox.add(arrived)
                extra = {"origin": {"id": id_of(arrived)}}
                sessions.add_messages(key_of(arrived), [Message(role="user", content=arrived.text, extra=extra)])
            sessions.add_message(key_of(first), "assistant", "to both")
            closed = inbox.done(first)
            assert closed is not None
            await closed

    anyio.run(crash)
    assert served(place, [words("third")], enough=1).sent == [("ann", "re: third")]
    with nacre.open(place) as sessions:
        assert Inbox(sessions).read() == []


class Silent(Parrot):
    """A model that must not be asked."""

    async def complete(self, context: Context, *, emit: Emit) -> Reply:
        raise AssertionError("the model was asked")


def test_a_reply_that_was_committed_before_a_crash_is_sent_and_the_model_not_asked_again(place: str) -> None:
    first, second = words("first"), words("second")

    async def crash() -> None:
        with nacre.open(place) as sessions:
            inbox = Inbox(sessions)
            await inbox.add(first)
            await inbox.add(second)
            async with Kernel(sessions, lambda _: agent(Parrot())) as kernel:
                for arrived in (first, second):
                    inbound = UserMessage(key=key_of(arrived), content=arrived.text, id=id_of(arrived))
                    await kernel.deliver(inbound)

    anyio.run(crash)
    line = served(place, [], enough=2, until_closed=True, model=Silent())
    assert line.sent == [("ann", "re: first"), ("ann", "re: second")]


@pytest.mark.parametrize(("names", "sent"), [(("first", "second"), []), (("second",), [("ann", "to you")])])
def test_the_reply_goes_to_the_first_message_that_it_names(place: str, names: Any, sent: Any) -> None:
    """The first one is closed; unless the reply names it too, it had an error, and the second one gets the reply."""
    first, second = words("first"), words("second")

    async def crash() -> None:
        with nacre.open(place) as sessions:
            inbox = Inbox(sessions)
            for arrived in (first, second):
                await inbox.add(arrived)
                extra = {"origin": {"id": id_of(arrived)}}
                sessions.add_messages(key_of(arrived), [Message(role="user", content=arrived.text, extra=extra)])
            answers = [id_of(words(name)) for name in names]
            reply = Message(role="assistant", content="to you", extra={"answers": answers})
            sessions.add_messages(key_of(first), [reply])
            closed = inbox.done(first)
            assert closed is not None
            await closed

    anyio.run(crash)
    assert served(place, [], enough=len(sent), until_closed=True, model=Silent()).sent == sent


def store(sessions: Sessions, arrived: InboundMessage) -> None:
    """Store a message in its session, as the actor does."""
    message = Message(role="user", content=arrived.text, extra={"origin": {"id": id_of(arrived)}})
    sessions.submit(key_of(arrived), [message], id=id_of(arrived)).result()


async def deliver(kernel: Kernel, arrived: InboundMessage) -> None:
    await kernel.deliver(UserMessage(key=key_of(arrived), content=arrived.text, id=id_of(arrived)))


def test_a_reply_is_not_sent_to_a_message_before_it_whose_error_a_crash_left_untold(place: str) -> None:
    first, second = words("fail"), words("second")

    async def crash() -> None:
        with nacre.open(place) as sessions:
            for arrived in (first, second):
                await Inbox(sessions).add(arrived)
            async with Kernel(sessions, lambda _: agent(Parrot())) as kernel:
                with pytest.raises(ProviderError):
                    await deliver(kernel, first)
                await deliver(kernel, second)

    anyio.run(crash)
    assert served(place, [], enough=1, until_closed=True, model=Silent()).sent == [("ann", "re: second")]


@pytest.mark.parametrize("forgets", [True, False])
@pytest.mark.parametrize("said", [None, "at a terminal"])
def test_a_reply_elsewhere_is_not_taken_for_that_of_a_message_that_had_an_error(
    place: str, said: str | None, forgets: bool
) -> None:
    """Such a reply names all that waits, if the turn was resumed, or nothing."""
    first, second = words("fail"), words("second")
    key = key_of(second)

    async def crash() -> None:
        with nacre.open(place) as sessions:
            inbox = Inbox(sessions)
            inbox.read()
            await inbox.add(second)
            if forgets:
                await inbox.forget()
            store(sessions, second)
            async with Kernel(sessions, lambda _: agent(Parrot())) as kernel:
                await (kernel.resume(key) if said is None else kernel.deliver(UserMessage(key=key, content=said)))

    assert served(place, [first], enough=1, until_closed=True).sent == [("ann", SILENT)]
    anyio.run(crash)
    sent = served(place, [], enough=1, until_closed=True, model=Silent()).sent
    assert sent == [("ann", f"re: {said or 'second'}")]


def test_words_that_joined_a_long_turn_before_a_crash_share_its_answer(place: str) -> None:
    """The message that began the turn is not among the newest any more."""
    first, second = words("first"), words("second")
    steps = [
        message
        for step in map(str, range(150))
        for message in (
            Message(role="assistant", tool_calls=(ToolCall(id=step, name="echo", arguments="{}"),)),
            Message(role="tool", content="x", tool_call_id=step),
        )
    ]

    async def crash() -> None:
        with nacre.open(place) as sessions:
            for arrived in (first, second):
                await Inbox(sessions).add(arrived)
            store(sessions, first)
            sessions.add_messages(key_of(first), steps)
            store(sessions, second)

    anyio.run(crash)
    assert served(place, [], enough=1, until_closed=True).sent == [("ann", "re: second")]
    with nacre.open(place) as sessions:
        reply = sessions.get_history(key_of(first), last=1)[0]
    assert reply.extra["answers"] == [id_of(first), id_of(second)]


@pytest.mark.parametrize("is_tidied", [False, True])
@pytest.mark.parametrize("why", ["failed", "joined"])
def test_in_an_older_log_words_after_others_without_an_answer_get_theirs(
    place: str, why: str, *, is_tidied: bool
) -> None:
    """An older version wrote no `answers`, but in the inbox which words had no answer of their own."""
    first, second = words("first"), words("second")

    async def crash() -> None:
        with nacre.open(place) as sessions:
            for arrived in (first, second):
                await Inbox(sessions).add(arrived)
                extra = {"origin": {"id": id_of(arrived)}}
                sessions.add_messages(key_of(arrived), [Message(role="user", content=arrived.text, extra=extra)])
            sessions.add_message(key_of(first), "assistant", "to you")
            closing = AppendRecord("x.answered", {"of": name_of(first), why: True})
            sessions.with_internal_keys().submit(KEYS[0], [closing]).result()

    anyio.run(crash)
    if is_tidied:
        with nacre.open(place) as sessions:
            assert forget_answered(sessions)
    assert served(place, [], enough=1, until_closed=True, model=Silent()).sent == [("ann", "to you")]


# Killed at any call


def run_once(root: Path, system: System) -> None:
    """Serve two senders; what was sent goes to a file, as the other end of a line would keep it."""
    sent = root.parent / "sent"
    arriving = [words("one", id="1"), words("two", "bob", id="2"), words("three", id="3")]

    class Kept(Line):
        async def send(self, to: InboundMessage, text: str, *, id: str) -> None:
            with sent.open("a") as file:
                file.write(f"{text}\n")
            await super().send(to, text, id=id)

    async def run(sessions: Sessions) -> None:
        line = Kept(arriving, enough=0)
        line.done = anyio.Event()
        await serve(sessions, line)
        while Inbox(sessions).read():
            await serve(sessions, Kept([], enough=0))

    with Sessions(FileStore(str(root), rules=RULES, system=system)) as sessions:
        anyio.run(run, sessions)


def killed(run: Callable[[Path, System], None], root: Path, nth: int) -> bool:
    child = os.fork()
    if not child:
        try:
            logging.disable()
            run(root, Deadly(nth))
        finally:
            os._exit(0)
    return os.WIFSIGNALED(os.waitpid(child, 0)[1]) and signal.SIGKILL > 0


def test_killed_anywhere_every_message_has_one_answer(tmp_path: Path) -> None:
    duplicates, tried = 0, 0
    for nth in range(1, 400, 4):
        root = tmp_path / str(nth) / "store"
        root.parent.mkdir()
        if not killed(run_once, root, nth):
            break
        tried += 1
        run_once(root, System())
        assert texts(root, words("one")) == ["one", "re: one", "three", "re: three"]
        assert texts(root, words("two", "bob")) == ["two", "re: two"]
        sent = (root.parent / "sent").read_text().splitlines()
        assert {text.removeprefix(AGAIN) for text in sent} == {"re: one", "re: two", "re: three"}
        unmarked = [text for text in sent if not text.startswith(AGAIN)]
        assert len(set(unmarked)) == len(unmarked)
        duplicates = max(duplicates, len(sent) - 3)
    assert tried >= 20
    assert duplicates <= 1
