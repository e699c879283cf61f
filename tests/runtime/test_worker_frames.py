"""The frames between the daemon and its workers: whole, halved, wrong, too long, and a side that is gone."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

import msgspec
import pytest
from msgspec import Raw

from nacre import errors
from nacre.agent.actor import UserMessage
from nacre.agent.ports import Approval, Called, Change, ChildReturned, Notice, Output, Returned, Spec, Text, Thought
from nacre.errors import InvalidMessage, NacreError, RateLimited, ServerFailed
from nacre.history.replies import Taken
from nacre.messages import Load, Message, ToolCall
from nacre.runtime.counters import Work
from nacre.runtime.worker_frames import (
    Connection,
    Deliver,
    DescribedTool,
    Done,
    FromWorker,
    Happened,
    Pong,
    StoreCounts,
    WorkerFault,
    decode_error,
    decode_question,
    encode,
    encode_error,
    encode_question,
    from_worker,
    to_worker,
)

CALL = ToolCall(id="c1", name="write_file", arguments={"path": "a"})
DONE = Done(7, Raw(encode(Message(role="assistant", content="hi"))), ["a", "b"])


class Far:
    """What came of the bytes that were sent to one end."""

    def __init__(self) -> None:
        self.frames: list[FromWorker] = []
        self.reasons: list[str] = []
        self.refused: list[int] = []
        self.is_over = asyncio.Event()

    def lose(self, reason: str) -> None:
        self.reasons.append(reason)
        self.is_over.set()


def framed(data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + data


def receive(*pieces: bytes, max_frame: int = 1000) -> Far:
    """Send pieces of bytes, one after the other, and then end; what the other side has of it."""

    async def run() -> Far:
        far = Far()
        ours, theirs = socket.socketpair()
        connect = asyncio.get_running_loop().create_unix_connection
        await connect(
            lambda: Connection(
                from_worker,
                receive=far.frames.append,
                refuse=lambda number, _: far.refused.append(number),
                lost=far.lose,
                max_frame=max_frame,
            ),
            sock=theirs,
        )
        with ours:
            for piece in pieces:
                count = len(far.frames)
                try:
                    ours.sendall(piece)
                except (BrokenPipeError, ConnectionResetError):
                    break
                for _ in range(3):
                    await asyncio.sleep(0)
                assert len(far.frames) >= count
        await far.is_over.wait()
        return far

    return asyncio.run(run())


def test_frames_arrive_as_they_were_sent() -> None:
    pong = Pong(Work().counts(), StoreCounts(1, 2, 3), 3, ["k/1"])
    far = receive(framed(encode(DONE)) + framed(encode(pong)))
    assert far.frames == [DONE, pong]
    assert far.reasons == ["the connection ended"]


def test_a_frame_may_come_byte_by_byte() -> None:
    data = framed(encode(DONE)) * 2
    far = receive(*(data[at : at + 1] for at in range(len(data))))
    assert far.frames == [DONE, DONE]


@pytest.mark.parametrize("left", [1, 3, 4, 5, 20])
def test_half_a_frame_is_none(left: int) -> None:
    far = receive(framed(encode(DONE)) + framed(encode(DONE))[:left])
    assert (far.frames, far.reasons) == ([DONE], ["the connection ended"])


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (struct.pack(">I", 1001), "a frame of 1001 bytes is too long"),
        (struct.pack(">I", 2**32 - 1) + b"x", "a frame of 4294967295 bytes is too long"),
        (framed(b""), "what came is not a frame: DecodeError"),
        (framed(b"\xc1"), "what came is not a frame: DecodeError"),
        (framed(encode(["Unknown", 1])), "what came is not a frame: ValidationError"),
        (framed(encode(["Done", "seven", None, []])), "what came is not a frame: ValidationError"),
        (framed(encode(DONE)[:-1]), "what came is not a frame: DecodeError"),
        (b"GET / HTTP/1.1\r\n\r\n", "a frame of 1195725856 bytes is too long"),
    ],
)
def test_nothing_is_taken_after_what_is_no_frame(data: bytes, reason: str) -> None:
    far = receive(framed(encode(DONE)) + data, framed(encode(DONE)))
    assert (far.frames, far.reasons) == ([DONE], [reason])


@pytest.mark.parametrize(
    "data",
    [
        encode(["Happened", 3, [["Text", 7]]]),
        encode(["Happened", 3, "soon"]),
        encode(["Question", 3, "one"]),
        encode(["Done", 3]),
        encode(["Failed", 3, None]),
        b"\x93\xa8Happened\x03\x91\x92\xa4Text\xa2\xff\xff",
    ],
)
def test_what_is_wrong_for_one_request_leaves_the_connection_to_the_others(data: bytes) -> None:
    far = receive(framed(encode(DONE)) + framed(data) + framed(encode(DONE)))
    assert (far.frames, far.refused, far.reasons) == ([DONE, DONE], [3], ["the connection ended"])


def both(act: Callable[[Connection[Any]], Coroutine[Any, Any, None]], *, max_frame: int = 1 << 28) -> list[Any]:
    """Do something with one end; what arrives at the other."""

    async def run() -> list[Any]:
        heard: list[Any] = []
        over = asyncio.Event()
        ours, theirs = socket.socketpair()
        connect = asyncio.get_running_loop().create_unix_connection
        await connect(
            lambda: Connection(to_worker, receive=heard.append, refuse=print, lost=lambda _: over.set()), sock=theirs
        )
        _, near = await connect(
            lambda: Connection(from_worker, receive=print, refuse=print, lost=lambda _: None, max_frame=max_frame),
            sock=ours,
        )
        await act(near)
        near.close()
        await over.wait()
        return heard

    return asyncio.run(run())


def test_a_message_that_is_longer_than_any_buffer_arrives_whole() -> None:
    words = UserMessage(key="k", content="x" * 5_000_000, id="1", meta={"title": "t"}, extra={"a": [1, None]})

    async def act(near: Connection[Any]) -> None:
        near.send(Deliver(1, words, is_watched=True, can_ask=False))

    assert both(act) == [Deliver(1, words, True, False)]  # noqa: FBT003 - as they are sent


def test_a_message_that_is_too_long_is_refused_and_the_next_one_arrives() -> None:
    async def act(near: Connection[Any]) -> None:
        with pytest.raises(InvalidMessage, match=r"a message of \d+ bytes is too long for a worker: at most 1000"):
            near.send(Deliver(1, UserMessage(key="k", content="x" * 2000), is_watched=False, can_ask=False))
        near.send(Deliver(2, UserMessage(key="k", content="x"), is_watched=False, can_ask=False))

    assert [frame.id for frame in both(act, max_frame=1000)] == [2]


def test_lone_surrogates_arrive_as_the_store_would_have_them() -> None:
    async def act(near: Connection[Any]) -> None:
        near.send(Deliver(1, UserMessage(key="k", content="a\ud800b"), is_watched=False, can_ask=False))

    (frame,) = both(act)
    assert frame.message.content == "a\ufffdb"


def test_a_number_that_no_store_takes_is_refused() -> None:
    with pytest.raises(InvalidMessage):
        encode(UserMessage(key="k", content="x", extra={"n": 2**70}))


@pytest.mark.parametrize("value", [object(), {"a": {object()}}, {"a": ["\ud800", object()]}, Raw(b"\xc1")])
def test_what_cannot_be_sent_is_refused_as_a_message(value: object) -> None:
    with pytest.raises(InvalidMessage):
        encode(UserMessage(key="k", content="\ud800", extra={"value": value}))


@pytest.mark.parametrize(
    "event",
    [
        Text("a"),
        Thought("b"),
        Called(CALL),
        Returned(CALL, Output(text="t", whole="tt", failed=True, images=({"type": "image"},))),
        Returned(CALL, Output(text="t", failed=True, is_refused=True), session="k/call"),
        ChildReturned("k/call", CALL, Output(text="t")),
        Notice("c"),
    ],
)
def test_every_event_can_be_sent(event: Any) -> None:
    assert from_worker.decode(encode(Happened(1, [event]))) == Happened(1, [event])


# ---- errors


def sent(error: Exception) -> Exception:
    return decode_error(encode_error(error))


def leaves(kind: type[NacreError] = NacreError) -> Sequence[type[NacreError]]:
    found = [one for below in kind.__subclasses__() for one in leaves(below)]
    return [kind, *(one for one in found if one.__module__ == errors.__name__)]


@pytest.mark.parametrize("kind", leaves(), ids=lambda kind: kind.__name__)
def test_every_error_is_of_its_class_with_its_words(kind: type[NacreError]) -> None:
    found = sent(kind("no room for 'pearl'"))
    assert (type(found), str(found)) == (kind, "no room for 'pearl'")


def test_an_error_keeps_what_callers_read_of_it() -> None:
    limited = RateLimited("later", wait=2.5)
    limited.summary = "answered 429"
    found = sent(limited)
    assert isinstance(found, RateLimited)
    assert (found.wait, found.summary) == (2.5, "answered 429")
    assert ServerFailed("x").summary == ""


def test_an_error_of_another_module_is_of_the_class_that_callers_know() -> None:
    assert type(sent(Taken("the id is taken"))) is errors.Conflict


@pytest.mark.parametrize("name", ["internal", "os", "describe_error", "Nothing", "annotations"])
def test_what_is_no_error_of_ours_is_an_internal_one(name: str) -> None:
    found = decode_error(msgspec.structs.replace(encode_error(KeyError("secret words")), kind=name))
    assert type(found) is WorkerFault
    assert "secret" not in str(found)


# ---- questions


def test_a_question_has_all_that_a_person_is_shown() -> None:
    spec = Spec(name="write_file", description="Write.", parameters={"type": "object"})
    approval = Approval(
        tool=DescribedTool(spec, "write"),
        call=CALL,
        change=Change(path="a", before=None, after="b"),
        always=("write_file(a)",),
        scope="folder",
        skill="pdf",
        task="do it",
        session="k/call",
    )
    asked = from_worker.decode(encode(encode_question(approval, question=4, id=9)))
    found = decode_question(asked)  # type: ignore[arg-type] # that is what it is
    assert (found.tool.spec, found.tool.effect) == (spec, "write")
    assert msgspec.structs.replace(found, tool=approval.tool) == approval


def test_a_tool_that_is_described_cannot_be_run() -> None:
    tool = DescribedTool(Spec(name="shell", description="", parameters={}), "run")
    with pytest.raises(NacreError, match="the tool shell runs in another process"):
        asyncio.run(tool.run({}, None))  # type: ignore[arg-type] # it reads nothing


def test_counts_of_stores_are_added_and_what_was_counted_outlives_a_worker() -> None:
    one = StoreCounts.of(Load(1, 2, 3, connections=4, idle=1, waiting=1, waits=2, wait_seconds=0.5, round_trips=9))
    total = one + StoreCounts(batches=1, round_trips=1)
    assert (total.open, total.batches, total.round_trips, total.wait_seconds) == (1, 3, 10, 0.5)
    assert one.counted() == StoreCounts(batches=2, waits=2, wait_seconds=0.5, round_trips=9)
    assert StoreCounts.of(None) == StoreCounts()
