"""The power is cut at every system call of gateway turns: each accepted message is answered once, and none is lost."""

from __future__ import annotations

import logging
import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import anyio
import anyio.lowlevel
import pytest

from nacre.agent.kernel import Kernel
from nacre.agent.live_session import LiveSession
from nacre.agent.ports import Context, Emit, Reply
from nacre.backoff import Backoff
from nacre.channels.channel import AGAIN, Accept, InboundMessage, again, key_of
from nacre.errors import ProviderError, StoreError
from nacre.history.session_state import RULES
from nacre.messages import Message, ToolCall
from nacre.records import AppendRecord, Transaction
from nacre.runtime.gateway.access import Access
from nacre.runtime.gateway.gateway import SILENT, Gateway, Room
from nacre.runtime.gateway.inbox import Inbox
from nacre.sessions import Sessions
from nacre.storage import locks
from nacre.storage.file_store import FileStore
from nacre.storage.group_commit import Pending, resolve
from nacre.storage.transaction import PendingCommit
from nacre.testing import Disk, Snapshot, images
from tests.agent.scene import Echo, agent
from tests.simulated import ROOT

TEXTS = ("first", "second " + "z" * 700, "with a tool", "fail", "last")
"""The first one creates the session; the others are stored with what follows them."""
KEY = key_of(InboundMessage(channel="line", chat="c", sender="ann", id="", text=""))
RANDOM_IMAGES, IN_A_CAMPAIGN = 2, 30
MOST_ROUNDS = 5_000
"""Of the event loop, in whose thread everything happens here: who has not come to an end by then never will."""


class Inline(FileStore):
    """A store that writes in the thread of its caller: a simulated disk has one thread."""

    def submit(self, key: str, transaction: Transaction, pending: Pending | None = None) -> Pending:
        pending, commit = pending or Pending(), PendingCommit(transaction)
        try:
            commit.number = self.run(key, transaction)
        except StoreError as error:
            commit.error = error
        resolve([(commit, pending)], None)
        return pending


class Moment(NamedTuple):
    """The disk before a system call, what was accepted by then, and what was shown."""

    snapshot: Snapshot
    accepted: tuple[str, ...]
    shown: dict[str, str]


class Model:
    """Answers with what was said, calls a tool once if it should, and sometimes fails."""

    model = "parrot"

    async def complete(self, context: Context, *, emit: Emit) -> Reply:
        last = context.messages[-1]
        if last.content == "fail":
            raise ProviderError("no server")
        if last.content == "with a tool":
            call = ToolCall(id="call_1", name="echo", arguments={"x": "1"})
            return Reply(message=Message(role="assistant", content="", tool_calls=(call,)), finish="calls")
        said = "with a tool" if last.role == "tool" else str(last.content)
        return Reply(message=Message(role="assistant", content=f"re: {said}"))

    async def close(self) -> None:
        """There is nothing to close."""


class Line:
    """A channel that sends again what was not acknowledged, and shows an answer once under its id or a repeat of it."""

    name = "line"
    is_up = True

    def __init__(
        self, accepted: Sequence[str] = (), shown: dict[str, str] | None = None, *, is_exact: bool = True
    ) -> None:
        self.is_exact = is_exact
        self.accepted, self.shown = list(accepted), dict(shown or {})
        self._answered: dict[str, anyio.Event] = {}

    async def run(self, accept: Accept) -> None:
        for text in TEXTS:
            if text not in self.accepted:
                await accept(InboundMessage(channel="line", chat="c", sender="ann", id=text[:6], text=text))
                self.accepted.append(text)
            if text not in self.shown:
                await self._answer_to(text).wait()

    async def send(self, to: InboundMessage, text: str, *, id: str) -> None:
        first = self.shown.setdefault(to.text, text)
        assert text == first or (text == again(first) and not self.is_exact), "a message has two answers"
        self._answer_to(to.text).set()

    def _answer_to(self, text: str) -> anyio.Event:
        return self._answered.setdefault(text, anyio.Event())

    async def close(self) -> None:
        """There is nothing to close."""


def serve(disk: Disk, line: Line, *, tool: Callable[[], None] = lambda: None) -> list[Message]:
    """Run a gateway until every message is accepted and closed; returns what its session holds then."""

    async def act(x: str) -> str:
        tool()
        return x

    async def run(sessions: Sessions) -> None:
        async with Kernel(sessions, lambda _: agent(Model(), Echo(act=act))) as kernel:
            gateway = Gateway(
                [line],
                inbox=Inbox(sessions),
                room=lambda _: Room(sessions, kernel),
                access=lambda _: Access(),
                commands={},
                backoff=Backoff(first=0),
            )
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(gateway.run)
                for _ in range(MOST_ROUNDS):
                    await anyio.lowlevel.checkpoint()
                    if not gateway.open and len(line.accepted) == len(TEXTS):
                        break
                await anyio.wait_all_tasks_blocked()
                tasks.cancel_scope.cancel()

    # A process has one descriptor for all turns; this one belongs to a disk that is gone.
    for path in [path for path in locks._open_files if path.startswith(f"{ROOT}/")]:
        del locks._open_files[path]
    with Sessions(Inline(ROOT, rules=RULES, system=disk.process(), marks=False)) as sessions:
        anyio.run(run, sessions)
        return [stored.message for stored in sessions.transcript(KEY)]


def cut_everywhere(seed: int, *, budget: int, is_exact: bool = True) -> int:
    """Cut the power before each system call that changes something; returns how many disks were looked at."""
    disk, line, moments = Disk(seed), Line(is_exact=is_exact), list[Moment]()

    def watch(_: str, __: tuple[Any, ...]) -> None:
        moments.append(Moment(disk.snapshot(), tuple(line.accepted), dict(line.shown)))

    def look_at_what_is_durable() -> None:
        flushed = next(images(disk.snapshot(), random.Random(0), 0))
        with Sessions(FileStore(ROOT, rules=RULES, system=flushed.process())) as sessions:
            assert [message.content for message in sessions.get_history(KEY)][-2:] == ["with a tool", ""]

    disk.before = watch
    check(serve(disk, line, tool=look_at_what_is_durable), line)
    disk.before = None
    tried = 0
    for number, moment in enumerate(moments):
        for image in images(moment.snapshot, random.Random(f"{seed}.{number}"), budget):
            tried += 1
            after = Line(moment.accepted, moment.shown, is_exact=is_exact)
            check(serve(image, after), after)
    return tried


def check(stored: Sequence[Message], line: Line) -> None:
    """Every message is stored once, in order and with one reply, and every sender was shown one answer."""
    users = [message.content for message in stored if message.role == "user"]
    replies = [message for message in stored if message.role == "assistant" and not message.tool_calls]
    assert users == list(TEXTS)
    assert [message.content for message in replies] == [f"re: {text}" for text in TEXTS if text != "fail"]
    assert set(Counter(id for message in replies for id in message.extra["answers"]).values()) == {1}
    shown = {text: answer.removeprefix(AGAIN) for text, answer in line.shown.items()}
    assert shown == {text: SILENT if text == "fail" else f"re: {text}" for text in TEXTS}


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """No log lines: every crash that is recovered from would write some."""
    logging.disable()
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("is_exact", [True, False], ids=["a repeat is not seen", "a repeat is seen"])
def test_each_accepted_message_has_one_reply_wherever_the_power_is_cut(campaign: bool, is_exact: bool) -> None:
    assert cut_everywhere(1, budget=IN_A_CAMPAIGN if campaign else RANDOM_IMAGES, is_exact=is_exact) > 150


# ---- bugs that are planted on purpose must be caught


def stored_without_the_message(patch: pytest.MonkeyPatch) -> None:
    commit = LiveSession.commit

    async def forget(self: LiveSession, entries: Any, **options: Any) -> int:
        self.unsaved = []
        return await commit(self, entries, **options)

    patch.setattr(LiveSession, "commit", forget)


def left_out_when_a_turn_fails(patch: pytest.MonkeyPatch) -> None:
    async def nothing(_: LiveSession) -> None:
        """A failed turn leaves its message to the inbox, which closes it."""

    patch.setattr(LiveSession, "commit_unsaved", nothing)


def closed_before_it_is_answered(patch: pytest.MonkeyPatch) -> None:
    answer = Gateway._answer

    async def close_first(self: Gateway, key: str, arrived: InboundMessage) -> str:
        self._inbox.done(arrived)
        return await answer(self, key, arrived)

    patch.setattr(Gateway, "_answer", close_first)


def not_kept_before_it_is_answered(patch: pytest.MonkeyPatch) -> None:
    append = Inbox._append

    async def skip() -> int:
        return 0

    def forget(self: Inbox, *records: AppendRecord) -> Any:
        return skip() if records and records[0].kind == "x.arrived" else append(self, *records)

    patch.setattr(Inbox, "_append", forget)


PLANTED = (
    stored_without_the_message,
    left_out_when_a_turn_fails,
    closed_before_it_is_answered,
    not_kept_before_it_is_answered,
)


@pytest.mark.parametrize("plant", PLANTED, ids=[plant.__name__ for plant in PLANTED])
def test_a_planted_bug_is_caught(plant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    with pytest.raises(AssertionError):
        cut_everywhere(1, budget=1)
