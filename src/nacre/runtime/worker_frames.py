"""What the daemon and its workers send each other: frames of MessagePack, each with its length before it."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable
from typing import Any, Generic, TypeVar, cast

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import astuple, replace

from nacre import errors
from nacre.agent.actor import UserMessage
from nacre.agent.ports import Answer, Approval, Change, Effect, Event, Output, Scene, Spec
from nacre.codec import plain_json
from nacre.errors import InvalidMessage, NacreError
from nacre.messages import Load, ToolCall
from nacre.runtime.counters import WorkCounts

MAX_FRAME = 1 << 28
"""The longest frame in bytes; a longer one is refused by who would send it, and ends a connection that it comes by."""
_LENGTH = struct.Struct(">I")
_INTERNAL = "internal"

T = TypeVar("T")


class Sent(Struct, frozen=True, tag=True, array_like=True):
    """A frame."""


# ---- from the daemon to a worker


class Start(Sent, frozen=True, tag=True, array_like=True):
    """The first frame: who the worker is, and all that it runs with; nothing secret is on a command line."""

    number: int
    tables: dict[str, Any]
    environ: dict[str, str]
    options: dict[str, Any]
    log_form: str
    log_level: str
    secrets: list[str]


class Deliver(Sent, frozen=True, tag=True, array_like=True):
    """Answer a message (`Kernel.deliver`)."""

    id: int
    message: UserMessage
    is_watched: bool
    can_ask: bool


class Resume(Sent, frozen=True, tag=True, array_like=True):
    """Finish a turn that was cut short (`Kernel.resume`)."""

    id: int
    key: str
    is_watched: bool
    can_ask: bool


class Call(Sent, frozen=True, tag=True, array_like=True):
    """Do something in a session that a layer above knows, by its name."""

    id: int
    key: str
    name: str
    data: Raw
    is_watched: bool


class Cancel(Sent, frozen=True, tag=True, array_like=True):
    """Nobody waits for a request any more; a turn goes on without them, and the request fails when it is over."""

    id: int


class Stop(Sent, frozen=True, tag=True, array_like=True):
    """Stop the turn of a session."""

    key: str


class Decided(Sent, frozen=True, tag=True, array_like=True):
    """The answer to a question."""

    question: int
    answer: Answer


class Ping(Sent, frozen=True, tag=True, array_like=True):
    """Say that you live; `has_news`: turns have ended in other workers since the last one."""

    has_news: bool = False


class End(Sent, frozen=True, tag=True, array_like=True):
    """End in order."""


# ---- from a worker to the daemon


class SentError(Struct, frozen=True, array_like=True):
    """An error: the class of `nacre.errors` that it is of, what it says, and what callers read of it."""

    kind: str
    text: str
    summary: str = ""
    wait: float | None = None


class Ready(Sent, frozen=True, tag=True, array_like=True):
    """The worker takes requests."""


class NotStarted(Sent, frozen=True, tag=True, array_like=True):
    """The worker cannot start."""

    error: SentError


class Happened(Sent, frozen=True, tag=True, array_like=True):
    """What happened in a turn."""

    id: int
    events: list[Event]


class Question(Sent, frozen=True, tag=True, array_like=True):
    """A call that a person is asked about; the tool is described, it stays where it is."""

    id: int
    question: int
    spec: Spec
    effect: Effect
    call: ToolCall
    change: Change | None
    always: tuple[str, ...]
    scope: str
    skill: str
    task: str
    session: str


class Withdrawn(Sent, frozen=True, tag=True, array_like=True):
    """A question needs no answer any more."""

    question: int


class Done(Sent, frozen=True, tag=True, array_like=True):
    """The result of a request; `ids` are those of the messages that the turn in its session answers so far."""

    id: int
    value: Raw
    ids: list[str]


class Failed(Sent, frozen=True, tag=True, array_like=True):
    """A request failed."""

    id: int
    error: SentError


class StoreCounts(Struct, frozen=True, array_like=True):
    """What the store of a process has to do and has done, as `Load` has it."""

    open: int = 0
    batches: int = 0
    unsound: int = 0
    connections: int = 0
    idle: int = 0
    waiting: int = 0
    waits: int = 0
    wait_seconds: float = 0.0
    failed_connects: int = 0
    round_trips: int = 0
    round_trip_seconds: float = 0.0

    @classmethod
    def of(cls, load: Load | None) -> StoreCounts:
        """The same as a load; nothing for a store that has none."""
        return cls() if load is None else cls(*astuple(load))

    def __add__(self, other: StoreCounts) -> StoreCounts:
        return StoreCounts(*map(sum, zip(astuple(self), astuple(other), strict=True)))

    def counted(self) -> StoreCounts:
        """What stays counted when the process has ended."""
        return replace(self, open=0, unsound=0, connections=0, idle=0, waiting=0)


class Pong(Sent, frozen=True, tag=True, array_like=True):
    """The worker lives; what it has counted since its start, and what runs there that no request asked for."""

    counts: WorkCounts
    store: StoreCounts
    actors: int
    children: list[str]


ToWorker = Start | Deliver | Resume | Call | Cancel | Stop | Decided | Ping | End
FromWorker = Ready | NotStarted | Happened | Question | Withdrawn | Done | Failed | Pong

_OF_A_REQUEST = {kind.__name__ for kind in (Deliver, Resume, Call, Happened, Question, Done, Failed)}
"""The frames that begin with the id of a request."""


class _Head(Struct, frozen=True, array_like=True):
    """How a frame of a request begins."""

    name: str
    id: int


_heads = msgspec.msgpack.Decoder(_Head)
_encoder = msgspec.msgpack.Encoder()
to_worker = msgspec.msgpack.Decoder(ToWorker)
from_worker: msgspec.msgpack.Decoder[FromWorker] = msgspec.msgpack.Decoder(FromWorker)


def encode(value: object) -> bytes:
    """A value as MessagePack; raises InvalidMessage for one that no store would take either."""
    try:
        return _encoder.encode(value)
    except (UnicodeEncodeError, TypeError):
        return _encode_plainly(value)
    except (OverflowError, RecursionError, ValueError) as error:
        raise InvalidMessage(f"a message cannot be passed to its worker: {error}") from error


def _encode_plainly(value: object) -> bytes:
    """A value that has lone surrogates or subclasses of text, as the store would have it."""
    try:
        return _encoder.encode(plain_json(msgspec.to_builtins(value, str_keys=True), "a message"))
    except InvalidMessage:
        raise
    except (OverflowError, RecursionError, ValueError, TypeError) as error:
        raise InvalidMessage(f"a message cannot be passed to its worker: {error}") from error


class Connection(asyncio.Protocol, Generic[T]):
    """One end of the connection: `receive` is called with each frame, `lost` once when no more will come.

    `refuse` is called with the id of a request and why, if what came for it is not as it should be.
    What is sent in one round of the event loop is one write.
    """

    def __init__(
        self,
        decoder: msgspec.msgpack.Decoder[T],
        *,
        receive: Callable[[T], None],
        refuse: Callable[[int, str], None],
        lost: Callable[[str], None],
        max_frame: int = MAX_FRAME,
    ) -> None:
        self._decode, self._receive, self._refuse, self._lost = decoder.decode, receive, refuse, lost
        self._max_frame = max_frame
        self._transport: asyncio.Transport | None = None
        self._loop = asyncio.get_running_loop()
        self._rest, self._needed, self._out = bytearray(), 0, list[bytes]()
        self._reason = "the connection ended"

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        if self._rest:
            self._rest += data
            if len(self._rest) < self._needed:
                return None
            data = bytes(self._rest)
        at, end = 0, len(data)
        try:
            self._needed = _LENGTH.size
            while end - at >= _LENGTH.size:
                (length,) = _LENGTH.unpack_from(data, at)
                if length > self._max_frame:
                    return self._give_up(f"a frame of {length} bytes is too long")
                self._needed = _LENGTH.size + length
                if end - at < self._needed:
                    break
                at += self._needed
                # A copy of its own: what is not decoded yet may be kept for longer than the rest.
                self._take(data[at - length : at])
                self._needed = _LENGTH.size
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            return self._give_up(f"what came is not a frame: {type(error).__name__}")
        self._rest = bytearray(data[at:])
        return None

    def _take(self, data: bytes) -> None:
        """Receive a frame; one of a request that is not as it should be is that request's failure alone."""
        try:
            frame = self._decode(data)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            head = _heads.decode(data)
            if head.name not in _OF_A_REQUEST:
                raise
            self._refuse(head.id, str(error))
        else:
            self._receive(frame)

    def _give_up(self, reason: str) -> None:
        """Nothing that follows can be understood."""
        self._reason = reason
        self.abort()

    def connection_lost(self, _: Exception | None) -> None:
        self._transport = None
        self._lost(self._reason)

    def send(self, frame: Sent) -> None:
        """Send a frame; raises InvalidMessage for one that cannot be sent. Without a connection it goes nowhere."""
        data = encode(frame)
        if len(data) > self._max_frame:
            raise InvalidMessage(f"a message of {len(data)} bytes is too long for a worker: at most {self._max_frame}")
        if not self._out:
            self._loop.call_soon(self._flush)
        self._out += (_LENGTH.pack(len(data)), data)

    def close(self) -> None:
        """End the connection once what was sent has gone out."""
        self._flush()
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        """End the connection at once."""
        if self._transport is not None:
            self._transport.abort()

    def _flush(self) -> None:
        if self._transport is not None and self._out:
            self._transport.write(b"".join(self._out))
        self._out.clear()


# ---- errors


class WorkerFault(Exception):
    """Something unexpected happened in a worker, which has logged it."""


def encode_error(error: BaseException) -> SentError:
    """An error as it is sent: of a class that every process knows."""
    if not isinstance(error, NacreError):
        return SentError(_INTERNAL, "")
    known = next(cls for cls in type(error).__mro__ if getattr(errors, cls.__name__, None) is cls)
    return SentError(known.__name__, str(error), summary=error.summary, wait=getattr(error, "wait", None))


def decode_error(sent: SentError) -> Exception:
    """The error that was sent."""
    kind = getattr(errors, sent.kind, None)
    if not (isinstance(kind, type) and issubclass(kind, NacreError)):
        return WorkerFault("something unexpected happened in a worker; its log has the details")
    error: NacreError = kind(sent.text)
    if isinstance(error, errors.RateLimited):
        error.wait = sent.wait
    if sent.summary:
        error.summary = sent.summary
    return error


# ---- questions


class DescribedTool:
    """A tool of another process, as a person is asked about it."""

    def __init__(self, spec: Spec, effect: Effect) -> None:
        self.spec, self.effect = spec, effect

    async def run(self, _: object, __: Scene) -> Output:
        """Refuse: it runs in its own process."""
        raise NacreError(f"the tool {self.spec.name} runs in another process")


def encode_question(approval: Approval, *, question: int, id: int) -> Question:
    """A question as it is sent."""
    tool = approval.tool
    return Question(
        question=question,
        id=id,
        spec=tool.spec,
        effect=tool.effect,
        call=approval.call,
        change=approval.change,
        always=approval.always,
        scope=approval.scope,
        skill=approval.skill,
        task=approval.task,
        session=approval.session,
    )


def decode_question(asked: Question) -> Approval:
    """The question that was sent."""
    return Approval(
        tool=DescribedTool(asked.spec, asked.effect),
        call=asked.call,
        change=asked.change,
        always=asked.always,
        scope="folder" if asked.scope == "folder" else "session",
        skill=asked.skill,
        task=asked.task,
        session=asked.session,
    )
