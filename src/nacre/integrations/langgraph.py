"""LangGraph: `NacreSaver`, a checkpointer that keeps a thread as a session; the extra is `langgraph`.

The key of the session is the thread's id. Its history is the list of messages of the checkpoint that was put last: the
channel `messages` of the root graph, if that is a list of LangChain's messages. Only what is new in it is appended.
Everything else is in records `x.langgraph`, of three kinds (`k`):

    c   a checkpoint. `set` has the values that are new in it, by channel; `at` the numbers of the records that have
        the others. If the list of messages is new, `live` is its length: it is the history as it was after that record.
    w   pending writes of a task, for checkpoint `cp`
    d   checkpoints stored before it that are no longer listed: all but those in `keep`, or those of some `runs`

A value is JSON (`j`), messages (`m`), an object of values (`o`), or what the serializer made of it (`t` and `b`).
With a serializer other than LangGraph's own, such as one that encrypts, everything is stored by it, the content of
messages too.
"""

from __future__ import annotations

import builtins
import logging
import re
from base64 import b64decode, b64encode
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import islice
from operator import attrgetter, is_, itemgetter
from threading import Lock, RLock
from typing import Any, NamedTuple, TypeVar, cast
from weakref import WeakKeyDictionary

import msgspec
from msgspec.structs import replace

from nacre.checks import check_key, is_unicode, show
from nacre.client_shapes import part_text
from nacre.codec import data_of, message_of
from nacre.errors import Conflict, InvalidArgument, SessionNotFound, missing_extra
from nacre.history.pairing import as_shown
from nacre.history.session_state import chain, meta
from nacre.integrations.access import AnySessions, awaited, blocking, change, check_sessions, finish, read_active
from nacre.integrations.conversation import is_exact_json, with_results
from nacre.messages import Message, Snapshot, ToolCall, Version
from nacre.records import AppendRecord, Pop, Record, Rewind, SetMeta, State, Truncate, View
from nacre.sessions import AnyOperation, Sessions

try:
    from langchain_core.messages import (
        AIMessage,
        AnyMessage,
        BaseMessage,
        FunctionMessage,
        HumanMessage,
        RemoveMessage,
        SystemMessage,
        ToolMessage,
    )
    from langchain_core.messages.chat import ChatMessage
    from langchain_core.runnables import RunnableConfig
    from langgraph.checkpoint.base import (
        WRITES_IDX_MAP,
        BaseCheckpointSaver,
        ChannelVersions,
        Checkpoint,
        CheckpointMetadata,
        CheckpointTuple,
        DeltaChannelHistory,
        get_checkpoint_metadata,
    )
    from langgraph.checkpoint.serde.base import SerializerProtocol
    from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
    from pydantic_core import PydanticUndefined
except ModuleNotFoundError as error:
    raise missing_extra("langgraph", error) from error

logger = logging.getLogger(__name__)

NAME = "langgraph"
KIND = "x.langgraph"
MESSAGES = "messages"
T = TypeVar("T")

_LEFT = (
    "thread %r: messages that others wrote (%d) are not in the state of the graph and leave its history; "
    "`read_messages` reads them for a graph"
)
_MAX_THREADS = 64
_MAX_MESSAGES = 200_000
_MAX_RECORDS = 64
_MAX_TAIL = 1000
_MAX_POPS = 32
_CHECKED = 4
_PART_COMPARED = 500
_PART = 32
_GIVEN = re.compile(r".+@\d+(/\d+)?", re.DOTALL)
_content = itemgetter("content")
_fields = attrgetter("__dict__")
_to_builtins = msgspec.to_builtins
_pack = msgspec.msgpack.encode


# ---- what is remembered of a thread


class _Row(NamedTuple):
    """A record that a checkpoint is made of, and where the session stood after it."""

    data: dict[str, Any]
    state: State


class _History:
    """The live messages of a thread: their records, as they were last given out or put, and what they were then.

    Anyone who was given a message may have changed it in place. `contents` tells that for all of them, and `last`, how
    the last few were stored, tells it for every field of these. Both are copies; `fields`, which have the contents as
    they are now, belong to the messages.

    A checkpoint compares the contents of some messages, so that it costs no more in a long history: those of the last
    ones, and in turn those of the others.
    """

    def __init__(self, numbers: list[int], messages: list[BaseMessage], last: list[bytes]) -> None:
        self.numbers: list[int] = []
        self.messages: list[BaseMessage] = []
        self.fields: list[dict[str, Any]] = []
        self.contents: list[Any] = []
        self._compared = 0
        self.grow(numbers, messages, last)

    def grow(self, numbers: Iterable[int], messages: list[BaseMessage], last: list[bytes]) -> None:
        """Take in further messages, in place: a copy would cost as much as the history is long."""
        fields = list(map(_fields, messages))
        self.numbers += numbers
        self.messages += messages
        self.fields += fields
        self.contents += _copy_contents(fields)
        self.last = last

    def parts_to_compare(self, size: int) -> tuple[slice, slice]:
        """The parts whose contents the next checkpoint compares, where `size` messages stay."""
        recent = slice(max(size - _PART_COMPARED, 0), size)
        begun = self._compared if self._compared < recent.start else 0
        self._compared = begun + _PART_COMPARED
        return slice(begun, min(self._compared, recent.start)), recent


class _Index:
    """The checkpoints and writes of a thread that are known, up to record `n` of a generation.

    `is_whole` if they are all of the thread; otherwise those since the newest checkpoint of some namespaces.
    """

    def __init__(self, uid: str = "", n: int = 0, state: State | None = None) -> None:
        self.uid, self.n, self.state = uid, n, state or State()
        self.is_whole = False
        self.is_marked = False
        self.checkpoints: dict[str, dict[str, int]] = {}
        self.runs: dict[int, str] = {}
        self.hidden: set[int] = set()
        self.newest: dict[str, str] = {}
        self.writes: dict[tuple[str, str], list[int]] = {}

    @property
    def version(self) -> Version:
        return Version(self.n, self.uid)

    def take(self, n: int, data: Mapping[str, Any]) -> None:
        """Take in one of our records."""
        ns, kind = data.get("ns", ""), data.get("k")
        if kind == "w":
            self.writes.setdefault((ns, data["cp"]), []).append(n)
        elif kind == "c":
            self.checkpoints.setdefault(ns, {})[data["id"]] = n
            if "run" in data:
                self.runs[n] = data["run"]
            self.newest[ns] = max(data["id"], self.newest.get(ns, ""), data.get("top", ""))
            early = self.writes.setdefault((ns, data["id"]), [])
            early[:0] = [number for number in data.get("early", ()) if number not in early]
        elif kind == "d":
            self.hide(data)

    def hide(self, data: Mapping[str, Any]) -> None:
        keep, runs = data.get("keep"), set(data.get("runs", ()))
        for ns, found in self.checkpoints.items():
            for id, n in found.items():
                if self.runs.get(n) in runs or (keep is not None and keep.get(ns) != id):
                    self.hidden.add(n)
            self.newest[ns] = max((id for id, n in found.items() if n not in self.hidden), default="")

    def find(self, ns: str, id: str | None) -> int | None:
        """The record of a checkpoint, or of the newest one; None if there is none."""
        n = self.checkpoints.get(ns, {}).get(id or self.newest.get(ns, ""))
        return None if n is None or n in self.hidden else n


class _Thread:
    """What is remembered of a thread; `lock` is held while any of it is used."""

    def __init__(self) -> None:
        self.lock = RLock()
        self.index = _Index()
        self.history: _History | None = None
        self.rows: OrderedDict[int, _Row] = OrderedDict()
        # Messages that were remembered of a generation, by their numbers, as `_identify` tells them apart; and by that,
        # what is read for those whose content was erased since.
        self._identities: dict[int, int] = {}
        self._identified = ""
        self.erased: dict[int, BaseMessage] = {}

    def forget(self) -> None:
        self.forget_history()
        self.index = _Index()
        self.rows.clear()

    def forget_history(self) -> None:
        """Forget the messages, but not which they were: a graph that is running may have one after it was erased."""
        known, self.history = self.history, None
        if known is not None:
            identities = self._identities if self._identified == self.index.uid else {}
            for at, n in enumerate(known.numbers):
                # The first is what was stored: no record becomes another message.
                if n not in identities:
                    identities[n] = _identify(at, known.messages[at].id, known.contents[at])
            self._identities, self._identified = identities, self.index.uid

    def remember(self, history: _History, erased: Collection[int]) -> None:
        """Remember the messages that were read; the content of those with some numbers was erased."""
        self.history, self.erased = history, {}
        if erased and self._identified == self.index.uid:
            for n, message in zip(history.numbers, history.messages, strict=True):
                if n in erased and n in self._identities:
                    self.erased[self._identities[n]] = message

    def keep(self, n: int, row: _Row) -> None:
        self.rows[n] = row
        while len(self.rows) > _MAX_RECORDS:
            self.rows.popitem(last=False)


class _Threads:
    """The threads that were used last; together they have no more than so many messages."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._found: OrderedDict[str, _Thread] = OrderedDict()

    def get(self, key: str) -> _Thread:
        with self._lock:
            thread = self._found.setdefault(key, _Thread())
            self._found.move_to_end(key)
            return thread

    def trim(self) -> None:
        with self._lock:
            sizes = {key: len(it.messages) if (it := one.history) else 0 for key, one in self._found.items()}
            total = sum(sizes.values())
            while len(self._found) > 1 and (len(self._found) > _MAX_THREADS or total > _MAX_MESSAGES):
                total -= sizes[self._found.popitem(last=False)[0]]


_shared: WeakKeyDictionary[AnySessions, _Threads] = WeakKeyDictionary()


class _Place(NamedTuple):
    """What a config names."""

    key: str
    ns: str
    id: str | None


class _Listed(NamedTuple):
    """A checkpoint in a list, and its record."""

    id: str
    key: str
    n: int
    uid: str


class _Edit(NamedTuple):
    """How the history becomes another list: operations, how many messages stay from where, and what is appended."""

    operations: list[AnyOperation]
    kept: slice
    added: list[Message]


# ---- the checkpointer


class NacreSaver(BaseCheckpointSaver[int]):
    """A checkpointer that keeps each thread as a session, under the thread's id.

    `sessions` are `Sessions` or `AsyncSessions`, of any store; several savers may have the same, in several processes.
    What is put is durable when the call returns.

    The messages of threads that were used last are kept in memory, at most 200,000, for all savers of the same
    `sessions`, and given to every reader of the process: like all state of a graph they are replaced, not changed.
    Where the content of one was changed in place, that is noticed: a reader is given what is stored, and a checkpoint
    stores the new content. Of messages further back than the last 500 a checkpoint compares only 500, and other ones
    the next time.

    `prune` and `delete_for_runs` take checkpoints out of every list; the session keeps what they were made of.
    `delete_thread` erases everything.
    """

    def __init__(self, sessions: AnySessions, *, serde: SerializerProtocol | None = None) -> None:
        super().__init__(serde=serde)
        self._sessions = check_sessions(sessions)
        # Values made by a serializer of one's own are for those who have it.
        self._threads = _Threads() if serde is not None else _shared.setdefault(sessions, _Threads())

    def __repr__(self) -> str:
        return f"NacreSaver({self._sessions!r})"

    # ---- reading

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """The checkpoint that a config names, or the newest one; None if there is none."""
        return self._get(blocking(self._sessions), _place(config))

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """The same, awaited."""
        place = _place(config)
        return await awaited(self._sessions).call(lambda plain: self._get(plain, place))

    def list(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> Iterator[CheckpointTuple]:
        """The checkpoints of a thread, or of all threads, newest first; they are read as they are taken."""
        return self._list(blocking(self._sessions), config, filter, before, limit)

    async def alist(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[CheckpointTuple]:
        """The same, for `async for`."""
        sessions = awaited(self._sessions)
        found = await sessions.call(lambda plain: self._list(plain, config, filter, before, limit))
        while part := await sessions.call(lambda _: [*islice(found, _PART)]):
            for one in part:
                yield one

    def get_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        """The writes to some channels since their last snapshot, and that; checkpoints that were pruned count."""
        return self._get_deltas(blocking(self._sessions), _place(config), channels)

    async def aget_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        """The same, awaited."""
        place = _place(config)
        return await awaited(self._sessions).call(lambda plain: self._get_deltas(plain, place, channels))

    # ---- writing

    def put(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """Store a checkpoint, and what is new in its messages, as one step."""
        return self._put(blocking(self._sessions), config, checkpoint, metadata, new_versions)

    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """The same, awaited."""
        return await finish(
            awaited(self._sessions), lambda plain: self._put(plain, config, checkpoint, metadata, new_versions)
        )

    def put_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        """Store what a task has written, for the checkpoint that it started from."""
        self._put_writes(blocking(self._sessions), config, writes, task_id, task_path)

    async def aput_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        """The same, awaited."""
        await finish(awaited(self._sessions), lambda plain: self._put_writes(plain, config, writes, task_id, task_path))

    # ---- threads

    def delete_thread(self, thread_id: str) -> None:
        """Erase a thread for good, its session with all that is in it."""
        self._delete(blocking(self._sessions), check_key(thread_id))

    async def adelete_thread(self, thread_id: str) -> None:
        """The same, awaited."""
        key = check_key(thread_id)
        await finish(awaited(self._sessions), lambda plain: self._delete(plain, key))

    def copy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """Begin a thread that has everything of another; what is there already is shared, not copied.

        Nothing happens if there is no such thread. Raises Conflict if the target has a session.
        """
        _copy(blocking(self._sessions), check_key(source_thread_id), check_key(target_thread_id))

    async def acopy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """The same, awaited."""
        source, target = check_key(source_thread_id), check_key(target_thread_id)
        await finish(awaited(self._sessions), lambda plain: _copy(plain, source, target))

    def prune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """List only the newest checkpoint of each namespace from now on, or erase the threads (`"delete"`)."""
        self._prune(blocking(self._sessions), _keys(thread_ids), strategy)

    async def aprune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """The same, awaited."""
        keys = _keys(thread_ids)
        await finish(awaited(self._sessions), lambda plain: self._prune(plain, keys, strategy))

    def delete_for_runs(self, run_ids: Sequence[str]) -> None:
        """No longer list the checkpoints of some runs, in any thread; the history is that of the newest one left."""
        self._delete_runs(blocking(self._sessions), _texts(run_ids))

    async def adelete_for_runs(self, run_ids: Sequence[str]) -> None:
        """The same, awaited."""
        runs = _texts(run_ids)
        await finish(awaited(self._sessions), lambda plain: self._delete_runs(plain, runs))

    # ---- reading, where it may wait

    def _get(self, plain: Sessions, place: _Place) -> CheckpointTuple | None:
        thread = self._threads.get(place.key)

        def get() -> CheckpointTuple | None:
            self._catch_up(plain, place.key, thread, place.ns)
            n = thread.index.find(place.ns, place.id)
            if n is None and not thread.index.is_whole:
                self._catch_up(plain, place.key, thread, None)
                n = thread.index.find(place.ns, place.id)
            return None if n is None else self._load(plain, place.key, thread, n)

        with thread.lock:
            return change(plain, place.key, get)

    def _list(
        self,
        plain: Sessions,
        config: RunnableConfig | None,
        wanted: dict[str, Any] | None,
        before: RunnableConfig | None,
        limit: int | None,
    ) -> Iterator[CheckpointTuple]:
        named = config["configurable"] if config else {}
        keys = [check_key(named["thread_id"])] if "thread_id" in named else _thread_keys(plain)
        ns, id = named.get("checkpoint_ns"), named.get("checkpoint_id")
        end = before["configurable"].get("checkpoint_id") if before else None
        found: builtins.list[_Listed] = []
        for key in keys:
            thread = self._threads.get(key)
            with thread.lock:
                self._catch_up(plain, key, thread, None)
                index = thread.index
                for space, ids in index.checkpoints.items():
                    if ns is None or space == ns:
                        found += [_Listed(one, key, n, index.uid) for one, n in ids.items() if n not in index.hidden]
            self._threads.trim()
        found = [one for one in found if (not id or one.id == id) and (not end or one.id < end)]
        found.sort(reverse=True)
        return islice(self._load_each(plain, found, wanted or {}), None if limit is None else max(limit, 0))

    def _load_each(
        self, plain: Sessions, found: builtins.list[_Listed], wanted: dict[str, Any]
    ) -> Iterator[CheckpointTuple]:
        for _, key, n, uid in found:
            thread = self._threads.get(key)

            def load(key: str = key, n: int = n, uid: str = uid, thread: _Thread = thread) -> CheckpointTuple | None:
                self._catch_up(plain, key, thread, None)
                # The same number is another record in another generation.
                row = self._rows(plain, key, thread, [n]).get(n) if thread.index.uid == uid else None
                if row is None:
                    return None
                if wanted:
                    metadata = self._decode(row.data["meta"])
                    if any(metadata.get(name) != value for name, value in wanted.items()):
                        return None
                return self._load(plain, key, thread, n)

            with thread.lock:
                loaded = change(plain, key, load)
            if loaded is not None:
                yield loaded

    def _get_deltas(self, plain: Sessions, place: _Place, channels: Sequence[str]) -> dict[str, DeltaChannelHistory]:
        thread = self._threads.get(place.key)

        def get() -> dict[str, DeltaChannelHistory]:
            self._catch_up(plain, place.key, thread, None)
            return self._deltas(plain, place, thread, channels)

        with thread.lock:
            return change(plain, place.key, get)

    def _deltas(
        self, plain: Sessions, place: _Place, thread: _Thread, channels: Sequence[str]
    ) -> dict[str, DeltaChannelHistory]:
        collected: dict[str, builtins.list[Any]] = {channel: [] for channel in channels}
        seeds: dict[str, Any] = {}
        index = thread.index
        ids = index.checkpoints.get(place.ns, {})
        n = index.find(place.ns, place.id)
        row = self._rows(plain, place.key, thread, [n]).get(n) if n is not None else None
        while row is not None and len(seeds) < len(collected):
            n = ids.get(row.data.get("parent", ""))
            row = self._rows(plain, place.key, thread, [n]).get(n) if n is not None else None
            if n is None or row is None:
                break
            missing = [channel for channel in collected if channel not in seeds]
            written = self._writes(plain, place.key, thread, place.ns, row.data["id"], missing)
            for write in reversed(written):
                collected[write[1]].append(write)
            seeds |= self._values(plain, place.key, thread, n, row, missing)
        found: dict[str, DeltaChannelHistory] = {}
        for channel, writes in collected.items():
            found[channel] = {"writes": writes[::-1]}
            if channel in seeds:
                found[channel]["seed"] = seeds[channel]
        return found

    def _load(self, plain: Sessions, key: str, thread: _Thread, n: int) -> CheckpointTuple | None:
        row = self._rows(plain, key, thread, [n]).get(n)
        if row is None:
            return None
        data = row.data
        ns, id, parent = data.get("ns", ""), data["id"], data.get("parent")
        values = self._values(plain, key, thread, n, row, None)
        checkpoint = {**self._decode(data["cp"]), "id": id, "channel_values": values}
        self._threads.trim()
        return CheckpointTuple(
            config=_config(key, ns, id),
            checkpoint=cast("Checkpoint", checkpoint),
            metadata=self._decode(data["meta"]),
            parent_config=_config(key, ns, parent) if parent else None,
            pending_writes=self._writes(plain, key, thread, ns, id, None),
        )

    def _values(  # noqa: PLR0913, PLR0917 - the thread, and what is wanted of it
        self, plain: Sessions, key: str, thread: _Thread, n: int, row: _Row, channels: Collection[str] | None
    ) -> dict[str, Any]:
        """The values of a checkpoint, or of some of its channels."""
        places = _places(n, row.data)
        if channels is not None:
            places = {channel: place for channel, place in places.items() if channel in channels}
        rows = self._rows(plain, key, thread, sorted({*places.values()} - {n}))
        rows[n] = row
        values: dict[str, Any] = {}
        for channel, place in places.items():
            one = rows.get(place)
            if one is None:
                continue
            # What was erased is no longer in `set`.
            if channel in (kept := one.data.get("set", {})):
                values[channel] = self._decode(kept[channel])
            elif channel == MESSAGES and "live" in one.data:
                values[channel] = self._messages(plain, key, thread, one.state)
        return values

    def _writes(  # noqa: PLR0913, PLR0917 - the thread, and what is wanted of it
        self, plain: Sessions, key: str, thread: _Thread, ns: str, id: str, channels: Collection[str] | None
    ) -> builtins.list[tuple[str, str, Any]]:
        """The writes for a checkpoint, in the order in which a step applies them, or those to some channels."""
        numbers = thread.index.writes.get((ns, id), ())
        rows = self._rows(plain, key, thread, numbers)
        found: dict[tuple[str, int], tuple[tuple[str, str, int], str, Any]] = {}
        for row in (rows[n] for n in numbers if n in rows):
            task, path = row.data["task"], row.data.get("path", "")
            for at, channel, value in row.data.get("w", ()):
                # An error or an interrupt replaces the one before it; anything else that is written again is a retry.
                if at < 0 or (task, at) not in found:
                    found[task, at] = ((path, task, at), channel, value)
        return [
            (order[1], channel, self._decode(value))
            for order, channel, value in sorted(found.values(), key=lambda one: one[0])
            if channels is None or channel in channels
        ]

    def _messages(self, plain: Sessions, key: str, thread: _Thread, state: State) -> builtins.list[BaseMessage]:
        """The messages that were live in a state."""
        known = thread.history
        if known is not None and (
            list(map(_content, known.fields)) != known.contents or self._pack_last(known.messages) != known.last
        ):
            thread.forget_history()
            known = None
        if known is not None:
            end = bisect_left(known.numbers, state.hd) + 1 if state.live else 0
            start = end - state.live
            if start >= 0 and (not end or (end <= len(known.numbers) and known.numbers[end - 1] == state.hd)):
                return known.messages[start:end]
        found = _Live([], [], set())
        if state.live:
            found = _read_same(plain, key, thread, lambda view: _read_live(view, state, self.serde))
        if (state.hd, state.live) == (thread.index.state.hd, thread.index.state.live):
            history = _History(found.numbers, found.messages, self._pack_last(found.messages))
            thread.remember(history, found.erased)
        return found.messages

    def _pack_last(self, messages: builtins.list[BaseMessage]) -> builtins.list[bytes]:
        return [_pack(dump_message(message, self.serde)) for message in messages[-_CHECKED:]]

    def _rows(self, plain: Sessions, key: str, thread: _Thread, numbers: Iterable[int]) -> dict[int, _Row]:
        """Our records by their numbers, as far as they are there."""
        missing = []
        found: dict[int, _Row] = {}
        for n in numbers:
            if (row := thread.rows.get(n)) is not None:
                found[n] = row
            else:
                missing.append(n)
        if missing:
            read = _read_same(plain, key, thread, lambda view: _read_rows(view, missing))
            for n, row in read.items():
                thread.keep(n, row)
            found |= read
        return found

    def _catch_up(self, plain: Sessions, key: str, thread: _Thread, ns: str | None) -> None:
        """Know what others have stored since; the newest checkpoint of a namespace, or, for None, all of them."""
        known = thread.index
        is_enough = known.is_whole or (ns is not None and ns in known.newest)
        if known.uid and is_enough and plain.is_at(key, known.version):
            return
        news = plain.read(key, lambda view: _read_new(view, known, ns, is_enough=is_enough))
        if news is None:
            if known.uid:
                thread.forget()
            thread.index.is_whole = True
            return
        if not news.continues:
            thread.forget()
            thread.index = _Index(news.uid)
            thread.index.is_whole = news.is_whole
        index, history = thread.index, thread.history
        for n, data in news.ours:
            index.take(n, data)
        index.n, index.is_marked = news.n, news.is_marked
        if history is not None and (news.state.hd, news.state.live) != (index.state.hd, index.state.live):
            thread.forget_history()
        index.state = news.state

    # ---- writing, where it may wait

    def _put(
        self,
        plain: Sessions,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        key, ns, parent = _place(config)
        id, values = checkpoint["id"], checkpoint["channel_values"]
        data: dict[str, Any] = {"k": "c", "id": id}
        if ns:
            data["ns"] = ns
        if parent:
            data["parent"] = parent
        meta = get_checkpoint_metadata(config, metadata)
        if isinstance(run := meta.get("run_id"), str):
            data["run"] = run
        data["cp"] = self._encode({k: v for k, v in checkpoint.items() if k not in ("id", "channel_values")})
        data["meta"] = self._encode(meta)
        thread = self._threads.get(key)

        def store() -> int:
            self._catch_up(plain, key, thread, ns)
            written = self._values_of(plain, key, thread, data, checkpoint, new_versions)
            messages = values.get(MESSAGES) if not ns and MESSAGES in checkpoint["channel_versions"] else None
            edit = None
            if type(messages) is list:
                messages = self._as_erased(plain, key, thread, messages)
                edit = self._edit(plain, key, thread, messages)
            if edit is not None and MESSAGES in written["at"] and _drops_only_others(key, thread, edit):
                # What others have said since is kept until the graph has had the chance to take it in.
                edit = None
            elif edit is not None:
                written["live"] = len(cast("builtins.list[Any]", messages))
                written["set"].pop(MESSAGES, None)
                written["at"].pop(MESSAGES, None)
            elif messages is not None and MESSAGES in written["set"]:
                written["set"][MESSAGES] = self._encode(messages)
            record = {**data, **{name: part for name, part in written.items() if part or name == "live"}}
            left = self._count_left(plain, key, thread, edit, messages or []) if edit is not None else 0
            self._store(plain, key, thread, record, edit, messages)
            return left

        with thread.lock:
            left = change(plain, key, store)
        if left:
            logger.warning(_LEFT, key, left)
        return _config(key, ns, id)

    def _values_of(  # noqa: PLR0913, PLR0917 - the thread, and what is wanted of it
        self,
        plain: Sessions,
        key: str,
        thread: _Thread,
        data: dict[str, Any],
        checkpoint: Checkpoint,
        new_versions: ChannelVersions,
    ) -> dict[str, Any]:
        """Where the values of a new checkpoint are: those that are new in its record, the others where they were."""
        ns, index = data.get("ns", ""), thread.index
        values, versions = checkpoint["channel_values"], checkpoint["channel_versions"]
        before: dict[str, int] = {}
        if (parent := data.get("parent")) and any(channel not in new_versions for channel in versions):
            n = index.find(ns, parent)
            if n is None and not index.is_whole:
                self._catch_up(plain, key, thread, None)
                index = thread.index
                n = index.find(ns, parent)
            row = self._rows(plain, key, thread, [n]).get(n) if n is not None else None
            if n is not None and row is not None:
                known = self._decode(row.data["cp"])["channel_versions"]
                places = _places(n, row.data)
                before = {channel: at for channel, at in places.items() if known.get(channel) == versions.get(channel)}
        found: dict[str, Any] = {"set": {}, "at": {}}
        for channel in versions:
            if channel not in new_versions and channel in before:
                found["at"][channel] = before[channel]
            elif channel in values:
                is_conversation = channel == MESSAGES and not ns and type(values[channel]) is list
                found["set"][channel] = {} if is_conversation else self._encode(values[channel])
        if early := index.writes.get((ns, data["id"])):
            found["early"] = early
        if (newest := index.newest.get(ns, "")) > data["id"]:
            found["top"] = newest
        return found

    def _store(  # noqa: PLR0913, PLR0917 - the thread, and what is wanted of it
        self,
        plain: Sessions,
        key: str,
        thread: _Thread,
        record: dict[str, Any],
        edit: _Edit | None = None,
        messages: builtins.list[BaseMessage] | None = None,
    ) -> None:
        """Append one of our records, with a change of the history; raises Conflict if others have written meanwhile."""
        index = thread.index
        operations: builtins.list[AnyOperation] = []
        if not index.is_marked:
            operations.append(SetMeta({NAME: True}))
        if edit is not None:
            operations += [*edit.operations, *edit.added]
        operations.append(AppendRecord(KIND, record))
        if not index.uid:
            plain.submit(key, operations, expect=index.version).result()
            thread.forget()
            return
        n = plain.update(key, operations, expect=index.version)
        if not n:
            raise Conflict(f"session {key!r} was archived meanwhile; nothing was stored")
        if not index.is_marked or n != index.n + len(operations):
            # Unmarked, its records were not looked at. Or upkeep came in between, which may have erased content.
            thread.forget()
            return
        # Nobody else has written since: what was remembered goes on.
        state = index.state
        if edit is not None and edit.operations:
            now = plain.read(key, lambda view: view.state if (view.uid, view.n) == (index.uid, n) else None)
            if now is None:
                thread.forget()
                return
            state = now
        elif edit is not None and edit.added:
            count = len(edit.added)
            state = replace(state, hd=n - 1, i=state.i + count, live=state.live + count)
        if edit is not None and messages is not None and thread.history is not None:
            self._follow(thread, edit, messages, n)
        index.n, index.state = n, state
        index.take(n, record)
        thread.keep(n, _Row(record, state))

    def _follow(self, thread: _Thread, edit: _Edit, messages: builtins.list[BaseMessage], n: int) -> None:
        """Remember the history after a change whose last record is `n`."""
        before = cast("_History", thread.history)
        count = edit.kept.stop - edit.kept.start
        numbers = range(n - len(edit.added), n)
        last = [*(before.last if edit.kept.stop == len(before.numbers) else ()), *map(_pack, edit.added)]
        last = last[-_CHECKED:] if len(last) >= min(_CHECKED, len(messages)) else self._pack_last(messages)
        if count == len(before.numbers) and (not count or messages[count - 1] is before.messages[-1]):
            before.grow(numbers, messages[count:], last)
        else:
            thread.history = _History([*before.numbers[edit.kept], *numbers], [*messages], last)
        self._threads.trim()

    def _as_erased(self, plain: Sessions, key: str, thread: _Thread, wanted: builtins.list[Any]) -> builtins.list[Any]:
        """The wanted list; what was erased stays so, though a graph that is running still has it."""
        if thread.history is None:
            self._messages(plain, key, thread, thread.index.state)
        if not thread.erased:
            return wanted
        return [
            thread.erased.get(_identify(at, one.id, one.content), one) if isinstance(one, BaseMessage) else one
            for at, one in enumerate(wanted)
        ]

    def _edit(self, plain: Sessions, key: str, thread: _Thread, wanted: builtins.list[Any]) -> _Edit | None:
        """How the history becomes the wanted list; None if that is not one of messages."""
        known = thread.history or _History([], [], [])
        thread.history = known
        count = len(known.messages)
        # 1. Nearly always it has grown: the same messages, and further ones.
        start, kept = 0, self._common(known, wanted, 0)
        if not kept and wanted and count:
            # 2. It was cut at the front.
            id = getattr(wanted[0], "id", None)
            start = next((at for at, message in enumerate(known.messages) if message.id == id and id is not None), 0)
            kept = self._common(known, wanted, start)
        added = wanted[kept:]
        if not all(isinstance(message, BaseMessage) for message in added):
            return None
        operations: builtins.list[AnyOperation] = []
        if not kept and count:
            operations.append(Truncate(0))
        else:
            if count > start + kept:
                # 3. What follows was edited, or another branch goes on.
                operations += self._go_back(plain, key, known.numbers[start + kept - 1], count - start - kept)
            if start or count > start + kept:
                operations.append(Truncate(kept))
        messages = [dump_message(message, self.serde) for message in added]
        return _Edit(operations, slice(start, start + kept), messages)

    def _common(self, known: _History, wanted: builtins.list[Any], start: int) -> int:
        """How many of the messages known from `start` on the wanted list begins with."""
        rest, fields, contents = known.messages, known.fields, known.contents
        if start:
            rest, fields, contents = rest[start:], fields[start:], contents[start:]
        size = min(len(rest), len(wanted))
        same = wanted[:size] if size < len(wanted) else wanted
        parts = known.parts_to_compare(size) if size == len(rest) and all(map(is_, same, rest)) else ()
        # The same objects are equal at once; only their contents may have been changed in place.
        if not parts or any(list(map(_content, fields[part])) != contents[part] for part in parts):
            size = next((at for at in range(size) if not self._is_same(same[at], rest[at], contents[at])), size)
        if size < len(rest):
            return size
        checked = min(size, len(known.last))
        last = [_pack(dump_message(message, self.serde)) for message in same[size - checked :]]
        return size - next((checked - at for at in range(checked) if last[at] != known.last[at - checked]), 0)

    def _is_same(self, wanted: Any, known: BaseMessage, content: Any) -> bool:
        """Tell whether a message is one that is known, whose content was `content`."""
        if known.content != content:
            return False
        # Values that are equal may be stored differently: 1 and True.
        return wanted is known or (
            wanted == known and _pack(dump_message(wanted, self.serde)) == _pack(dump_message(known, self.serde))
        )

    def _go_back(self, plain: Sessions, key: str, number: int, count: int) -> builtins.list[AnyOperation]:
        """Operations after which message `number` is the last one, where `count` follow it."""
        if count <= _MAX_POPS:
            return [Pop()] * count

        def find(view: View) -> builtins.list[AnyOperation] | None:
            record = view.find(number)
            if record is None:
                return None
            # One can go back only to the end of what was stored together.
            end = view.find(record.tx[0] + record.tx[1] - 1) if record.tx is not None else record
            if end is None or not 0 <= end.st.i - record.st.i <= _MAX_POPS:
                return None
            return [Rewind(end.n, keeps_summary=True), *([Pop()] * (end.st.i - record.st.i))]

        return plain.read(key, find) or [Pop()] * count

    def _put_writes(
        self, plain: Sessions, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task: str, path: str
    ) -> None:
        key, ns, id = _place(config)
        if id is None:
            raise InvalidArgument("writes need the checkpoint_id of the checkpoint that they follow")
        data: dict[str, Any] = {"k": "w", "cp": id, "task": task}
        if ns:
            data["ns"] = ns
        if path:
            data["path"] = path
        data["w"] = [
            [WRITES_IDX_MAP.get(channel, at), channel, self._encode(value)]
            for at, (channel, value) in enumerate(writes)
        ]
        thread = self._threads.get(key)

        def store() -> None:
            self._catch_up(plain, key, thread, ns)
            self._store(plain, key, thread, data)

        with thread.lock:
            change(plain, key, store)

    def _count_left(
        self, plain: Sessions, key: str, thread: _Thread, edit: _Edit, wanted: builtins.list[BaseMessage]
    ) -> int:
        """How many messages of others leave the history that the graph was never given."""
        dropped = _find_of_others(key, thread, edit)
        if not dropped:
            return 0
        # What the newest checkpoint has, the graph itself has taken out.
        n = thread.index.find("", None)
        row = self._rows(plain, key, thread, [n]).get(n) if n is not None else None
        place = _places(n, row.data).get(MESSAGES) if n is not None and row is not None else None
        before = self._rows(plain, key, thread, [place]).get(place) if place is not None else None
        seen = before.state.hd if before is not None and before.state.live else 0
        given = {one.id for one in wanted}
        left = [one for at, one in dropped if at > seen and one.id not in given and not isinstance(one, RemoveMessage)]
        # Of the results of a call only the last one is read, which may have the id of another that it replaces.
        newest = {one.tool_call_id: one.id for _, one in dropped if isinstance(one, ToolMessage)}
        results = {(one.tool_call_id, one.text) for one in wanted if isinstance(one, ToolMessage)}
        return sum(
            not isinstance(one, ToolMessage)
            or (newest[one.tool_call_id] == one.id and (one.tool_call_id, one.text) not in results)
            for one in left
        )

    # ---- threads, where it may wait

    def _delete(self, plain: Sessions, key: str) -> None:
        thread = self._threads.get(key)
        with thread.lock:
            plain.delete(key)
            thread.forget()

    def _prune(self, plain: Sessions, keys: builtins.list[str], strategy: str) -> None:
        if strategy not in ("keep_latest", "delete"):
            raise InvalidArgument(f"strategy must be 'keep_latest' or 'delete', not {show(strategy)}")
        for key in keys:
            if strategy == "delete":
                self._delete(plain, key)
            else:
                self._hide(plain, key, lambda index: {"k": "d", "keep": index.newest})

    def _delete_runs(self, plain: Sessions, runs: builtins.list[str]) -> None:
        if not runs:
            return
        wanted = set(runs)

        def named(index: _Index) -> dict[str, Any]:
            found = {run for n, run in index.runs.items() if n not in index.hidden}
            return {"k": "d", "runs": sorted(found & wanted)}

        for key in _thread_keys(plain):
            self._hide(plain, key, named)

    def _hide(self, plain: Sessions, key: str, describe: Callable[[_Index], dict[str, Any]]) -> None:
        """Store that some checkpoints are hidden; the history is that of the newest one that is left."""
        thread = self._threads.get(key)

        def store() -> None:
            self._catch_up(plain, key, thread, None)
            index = thread.index
            data = describe(index)
            after = _Index()
            after.checkpoints, after.runs, after.hidden = index.checkpoints, index.runs, {*index.hidden}
            after.hide(data)
            if after.hidden == index.hidden:
                return
            edit = None
            if (n := after.find("", None)) != index.find("", None):
                row = self._rows(plain, key, thread, [n]).get(n) if n is not None else None
                to = row.data.get("at", {}).get(MESSAGES, n) if row is not None else None
                back: AnyOperation = Rewind(to, keeps_summary=True) if to is not None else Truncate(0)
                edit = _Edit([back], slice(0, 0), [])
                thread.forget_history()
            self._store(plain, key, thread, data, edit)

        with thread.lock:
            change(plain, key, store)

    # ---- values

    def _encode(self, value: Any) -> dict[str, Any]:
        """A value as a record has it."""
        if type(self.serde) is JsonPlusSerializer:
            if type(value) is list and value and all(isinstance(one, BaseMessage) for one in value):
                messages = [dump_message(one, self.serde) for one in value]
                return {"m": [_to_builtins(one, builtin_types=(bytes,)) for one in messages]}
            if is_exact_json(value):
                # A copy: the record is remembered, and a node may change the value in place.
                return {"j": _copy_json(value)}
            if type(value) is dict and all(type(name) is str and is_unicode(name) for name in value):
                # What a graph is called with: texts in it stay texts.
                return {"o": {name: self._encode(one) for name, one in value.items()}}
        kind, encoded = self.serde.dumps_typed(value)
        return {"t": kind, "b": encoded}

    def _decode(self, kept: dict[str, Any]) -> Any:
        if "j" in kept:
            return _copy_json(kept["j"])
        if "m" in kept:
            return [load_message(msgspec.convert(one, Message), self.serde) for one in kept["m"]]
        if "o" in kept:
            return {name: self._decode(one) for name, one in kept["o"].items()}
        return self.serde.loads_typed((kept["t"], kept["b"]))


class _NewRecords(NamedTuple):
    """What was read of a thread: our records, and whether they follow those that are known."""

    uid: str
    n: int
    state: State
    ours: list[tuple[int, dict[str, Any]]]
    continues: bool
    is_whole: bool
    is_marked: bool


def _read_new(view: View, known: _Index, ns: str | None, *, is_enough: bool) -> _NewRecords | None:
    """What was stored after what is known; or since the newest checkpoint of a namespace; or, for None, everything."""
    if view.is_archived:
        return None
    found = partial(_NewRecords, view.uid, view.n, view.state)
    # Looked up each time: a mark that another generation had is not in this one.
    if NAME not in meta(view, view.state):
        return found([], continues=False, is_whole=True, is_marked=False)
    ours: list[tuple[int, dict[str, Any]]] = []
    if is_enough and known.is_marked and view.uid == known.uid and view.n >= known.n:
        count = 0
        for record in view.back(view.n):
            # After a mark, earlier records may not be what they were: content may have been erased.
            if record.n <= known.n or record.t == "mark":
                break
            count += 1
            _take(record, ours)
        if count == view.n - known.n:
            return found(ours[::-1], continues=True, is_whole=known.is_whole, is_marked=True)
        ours = []
    if ns is not None and not known.is_whole:
        for record in islice(view.back(view.n), _MAX_TAIL):
            data = _take(record, ours)
            if data is None or (data["k"] != "d" and (data["k"], data.get("ns", "")) != ("c", ns)):
                continue
            if data["k"] == "d" or "top" in data:
                break
            return found(ours[::-1], continues=False, is_whole=False, is_marked=True)
        ours = []
    for record in view.all():
        _take(record, ours)
    return found(ours, continues=False, is_whole=True, is_marked=True)


def _take(record: Record, ours: list[tuple[int, dict[str, Any]]]) -> dict[str, Any] | None:
    if record.t != KIND or not isinstance(record.data, dict) or "k" not in record.data:
        return None
    ours.append((record.n, record.data))
    return record.data


def _read_same(plain: Sessions, key: str, thread: _Thread, get: Callable[[View], T]) -> T:
    """Read the generation that is known; raises Conflict if the key has another one by now, or none."""
    uid = thread.index.uid
    found = plain.read(key, lambda view: (get(view),) if view.uid == uid else None)
    if found is None:
        raise Conflict(f"session {key!r} was deleted or begun again meanwhile")
    return found[0]


def _read_rows(view: View, numbers: Iterable[int]) -> dict[int, _Row]:
    found = {}
    for n in numbers:
        record = view.find(n)
        if record is not None and record.t == KIND and record.data is not None:
            found[n] = _Row(data_of(record if record.blobs is None else view.whole(record)), record.st)
    return found


class _Live(NamedTuple):
    """The messages that were live in a state, each as one message; their numbers, and those of the erased ones."""

    numbers: list[int]
    messages: list[BaseMessage]
    erased: set[int]


def _read_live(view: View, state: State, serde: SerializerProtocol) -> _Live:
    found = _Live([], [], set())
    for record in chain(view, state):
        message = record.m
        if message is None or record.blobs is not None or record.bin or record.gone is not None:
            message = message_of(record, view)
        if record.gone is not None:
            found.erased.add(record.n)
        found.numbers.append(record.n)
        if _is_ours(message):
            found.messages.append(load_message(message, serde))
        else:
            found.messages.append(_from_other(message, f"{view.key}@{record.n}"))
    found.numbers.reverse()
    found.messages.reverse()
    return found


def _identify(at: int, id: str | None, content: Any) -> int:
    """Tell a message apart from others, by its id or else its place in the history, without keeping what it says."""
    return hash((at if id is None else id, content if type(content) is str else repr(content)))


def _places(n: int, data: Mapping[str, Any]) -> dict[str, int]:
    """The records that have the values of a checkpoint, by channel."""
    own = (*data.get("set", ()), *([MESSAGES] if "live" in data else ()))
    return {**data.get("at", {}), **dict.fromkeys(own, n)}


def _drops_only_others(key: str, thread: _Thread, edit: _Edit) -> bool:
    """Tell whether a change takes off only what others have appended."""
    dropped = len(cast("_History", thread.history).numbers) - edit.kept.stop
    if edit.added or edit.kept.start or not dropped:
        return False
    return len(_find_of_others(key, thread, edit)) == dropped


def _find_of_others(key: str, thread: _Thread, edit: _Edit) -> list[tuple[int, BaseMessage]]:
    """The messages that others have written which a change takes off the end, with their numbers."""
    known, end = cast("_History", thread.history), edit.kept.stop
    dropped = zip(known.numbers[end:], known.messages[end:], strict=True)
    return [(n, message) for n, message in dropped if message.id == f"{key}@{n}"]


def _place(config: RunnableConfig) -> _Place:
    """What a config names; raises InvalidArgument or InvalidKey."""
    try:
        named = config["configurable"]
        key = named["thread_id"]
    except (KeyError, TypeError):
        raise InvalidArgument("the config needs a thread_id: {'configurable': {'thread_id': …}}") from None
    ns, id = named.get("checkpoint_ns") or "", named.get("checkpoint_id") or None
    if not isinstance(ns, str) or not isinstance(id, str | None):
        raise InvalidArgument(f"checkpoint_ns and checkpoint_id must be texts, not {show(ns)} and {show(id)}")
    return _Place(check_key(key), ns, id)


def _config(key: str, ns: str, id: str) -> RunnableConfig:
    return {"configurable": {"thread_id": key, "checkpoint_ns": ns, "checkpoint_id": id}}


def _keys(thread_ids: Sequence[str]) -> list[str]:
    return [check_key(id) for id in _texts(thread_ids)]


def _texts(given: Sequence[str]) -> list[str]:
    if isinstance(given, str) or not all(isinstance(one, str) for one in given):
        raise InvalidArgument(f"a list of ids is needed, not {show(given)}")
    return [*given]


def _thread_keys(plain: Sessions) -> list[str]:
    return [info.key for info in plain.list() if NAME in info.meta]


def _copy(plain: Sessions, source: str, target: str) -> None:
    # It may be deleted meanwhile.
    with suppress(SessionNotFound):
        if plain.status(source) == "active":
            plain.fork(source, target)


# ---- messages


_ROLES: dict[type[BaseMessage], str] = {
    HumanMessage: "user",
    AIMessage: "assistant",
    SystemMessage: "system",
    ToolMessage: "tool",
    FunctionMessage: "function",
    ChatMessage: "chat",
    RemoveMessage: "",
}
_CLASSES = {role: kind for kind, role in _ROLES.items()}
_SAID_BY = ((HumanMessage, "user"), (AIMessage, "assistant"), (SystemMessage, "system"), (ToolMessage, "tool"))


def _template(kind: type[BaseMessage]) -> dict[str, Any]:
    """The fields of a kind of message as they are unless said otherwise."""
    fields = {name: field.get_default(call_default_factory=True) for name, field in kind.model_fields.items()}
    return {name: None if default is PydanticUndefined else default for name, default in fields.items()}


_TEMPLATES = {kind: _template(kind) for kind in _ROLES}
_FRESH = {
    kind: [(name, type(value)) for name, value in template.items() if type(value) in (dict, list)]
    for kind, template in _TEMPLATES.items()
}
_KEPT = {"+", "is_chat"}.union(*_TEMPLATES.values())
_CALL = {"name", "args", "id", "type"}


def dump_message(message: BaseMessage, serde: SerializerProtocol) -> Message:
    """The message that one of LangChain's is stored as."""
    kind = type(message)
    role = _ROLES.get(kind)
    if role is not None and type(serde) is JsonPlusSerializer:
        fields, template = message.__dict__, _TEMPLATES[kind]
        kept = {name: value for name, value in fields.items() if name not in template or value != template[name]}
        content = kept.pop("content", "")
        if extra := message.__pydantic_extra__:
            kept["+"] = extra
        if fields.keys() == template.keys() and isinstance(content, str | list) and is_exact_json([content, kept]):
            return _dump_plain(role, content, kept)
    said_by = next((name for kind, name in _SAID_BY if isinstance(message, kind)), None)
    role, content = said_by or "chat", None
    calls: tuple[ToolCall, ...] = ()
    call_id = None
    if type(serde) is JsonPlusSerializer:
        # Anyone can read these, and calls and results find each other also when one of them was erased.
        if isinstance(message, AIMessage):
            named = [
                call for call in message.tool_calls if _is_call(call) and is_exact_json([call["id"], call["name"]])
            ]
            calls = _dump_calls([call if is_exact_json(call["args"]) else {**call, "args": {}} for call in named])
        elif isinstance(message, ToolMessage) and is_unicode(message.tool_call_id):
            call_id = message.tool_call_id
        if type(message.content) is str and is_unicode(message.content):
            content = message.content
            message = message.model_copy(update={"content": ""})
    kind_of, encoded = serde.dumps_typed(message)
    return Message(
        role=role,
        content=content,
        tool_calls=calls,
        tool_call_id=call_id,
        extra={NAME: {"t": kind_of, "b": b64encode(encoded).decode()}},
    )


def _dump_plain(role: str, content: Any, kept: dict[str, Any]) -> Message:
    if not role:
        return Message(role="", extra={"type": "remove", NAME: {**kept, "content": content} if content else kept})
    if role == "chat":
        role = kept.pop("role")
        if not role or role in _CLASSES:
            kept["role"] = role
            role = "chat"
        else:
            kept["is_chat"] = True
    calls: tuple[ToolCall, ...] = ()
    if role == "assistant" and all(map(_is_call, kept.get("tool_calls", ()))):
        calls = _dump_calls(kept.pop("tool_calls", ()))
    model = kept.get("response_metadata", {}).get("model_name")
    if model and type(model) is str:
        kept["response_metadata"] = {k: v for k, v in kept["response_metadata"].items() if k != "model_name"}
    else:
        model = None
    name, call_id = kept.pop("name", None), kept.pop("tool_call_id", None)
    return Message(
        role=role, content=content, tool_calls=calls, tool_call_id=call_id, name=name, model=model, extra={NAME: kept}
    )


def _dump_calls(calls: Iterable[Any]) -> tuple[ToolCall, ...]:
    return tuple([ToolCall(id=call["id"], name=call["name"], arguments=call["args"]) for call in calls])


def load_message(message: Message, serde: SerializerProtocol) -> BaseMessage:
    """The message of LangChain's that one of our own was made of."""
    kept, role = message.extra[NAME], message.role
    if "b" in kept:
        found = cast("BaseMessage", serde.loads_typed((kept["t"], b64decode(kept["b"]))))
        if message.content is not None:
            found.content = cast("Any", message.content)
        return found
    kind = ChatMessage if "is_chat" in kept else _CLASSES[role]
    fields = _TEMPLATES[kind].copy()
    for name, make in _FRESH[kind]:
        fields[name] = make()
    extra = None
    for name, value in kept.items():
        fields[name] = value
    if not role:
        fields["content"] = kept.get("content", "")
    else:
        fields["content"] = message.content
        if message.name is not None:
            fields["name"] = message.name
        if message.tool_call_id is not None:
            fields["tool_call_id"] = message.tool_call_id
        if message.model is not None:
            fields["response_metadata"]["model_name"] = message.model
        if message.tool_calls:
            fields["tool_calls"] = [
                {"name": call.name, "args": call.arguments, "id": call.id, "type": "tool_call"}
                for call in message.tool_calls
            ]
    if "is_chat" in kept:
        del fields["is_chat"]
        fields["role"] = role
    extra = fields.pop("+", None)
    return _make(kind, fields, extra)


def _make(kind: type[BaseMessage], fields: dict[str, Any], extra: dict[str, Any] | None) -> BaseMessage:
    """A message with these fields, which were valid when they were stored: they are not checked again."""
    found: BaseMessage = object.__new__(kind)
    _set(found, "__dict__", fields)
    _set(found, "__pydantic_fields_set__", set(fields))
    _set(found, "__pydantic_extra__", extra if extra is not None else {})
    _set(found, "__pydantic_private__", None)
    return found


_set = object.__setattr__


def _is_call(call: Any) -> bool:
    return (
        type(call) is dict
        and call.keys() == _CALL
        and call["type"] == "tool_call"
        and type(call["name"]) is str
        and type(call["args"]) is dict
        and type(call["id"]) is str
    )


def _copy_contents(fields: Iterable[dict[str, Any]]) -> list[Any]:
    return [one if type(one) is str else _copy_json(one) for one in map(_content, fields)]


def _copy_json(value: Any) -> Any:
    """A copy of a JSON value, since the caller may change the other one; a tuple is a list, as LangGraph reads one."""
    if type(value) is dict:
        return {name: _copy_json(one) for name, one in value.items()}
    if type(value) in {list, tuple}:
        return [_copy_json(one) for one in value]
    return value


# ---- conversations of others


def read_messages(sessions: AnySessions, key: str) -> list[AnyMessage]:
    """The history of any session as LangChain's messages: for a graph to go on from.

    What others wrote has ids such as `cli:1@42`, which are the same each time: a graph that is given it twice has it
    once. Every call of theirs is followed by its result, or by one that says that it was interrupted. It blocks: in a
    coroutine use `await sessions.call(lambda plain: read_messages(plain, key))` with `AsyncSessions`.
    """
    now = read_active(blocking(check_sessions(sessions)), key)
    serde = JsonPlusSerializer()
    found: list[Any] = []
    last, more = "", 0
    for message, is_ours in with_results(_place_late_results(key, now), NAME):
        if is_ours:
            found.append(load_message(message, serde))
            continue
        # What was made up has no id: it stands for a result of the message before it.
        id = message.extra.get(NAME, "")
        last, more = (id, 0) if id else (last, more + 1)
        found.append(_from_other(message, id or f"{last}/{more}"))
    return found


def _place_late_results(key: str, now: Snapshot) -> list[Message]:
    """The history, with the ids of what others wrote; a result that others stored late replaces the one before it.

    A graph that was given a call without its result has stored that it was interrupted, and goes on after that:

    stored   call 1 (others)   interrupted   reply   result 1 (others)
    placed   call 1 (others)   result 1, with the id of what it replaces   reply
    """
    found: list[Message] = []
    answered: dict[str, int] = {}
    last_of_ours = -1
    for n, message in zip(now.numbers, now.messages, strict=True):
        is_ours = _is_ours(message)
        one = message if is_ours else replace(message, extra={**message.extra, NAME: f"{key}@{n}"})
        for call in one.tool_calls:
            answered.pop(call.id, None)
        if one.role == "tool" and one.tool_call_id:
            place = answered.setdefault(one.tool_call_id, len(found))
            id = _id_of_others(found[place]) if not is_ours and place <= last_of_ours else None
            if id is not None:
                found[place] = replace(one, extra={**one.extra, NAME: id})
                continue
        if is_ours:
            last_of_ours = len(found)
        found.append(one)
    return found


def _id_of_others(result: Message) -> str | None:
    """The id that was given to a result of others, also if a graph has stored it since; None if it is the graph's."""
    mark = result.extra[NAME]
    id = mark.get("id") if isinstance(mark, dict) else mark
    return id if isinstance(id, str) and _GIVEN.fullmatch(id) else None


def _is_ours(message: Message) -> bool:
    """Tell whether a saver has stored a message: anybody may have used its name for something else."""
    kept, role = message.extra.get(NAME), message.role
    if type(kept) is not dict:
        return False
    if "b" in kept:
        return "t" in kept
    if not isinstance(kept.get("id"), str | None) or not kept.keys() <= _KEPT:
        return False
    if role == "tool":
        return message.tool_call_id is not None
    return "is_chat" in kept or (role in _CLASSES and (role != "chat" or "role" in kept))


def _from_other(message: Message, id: str) -> BaseMessage:
    """What others wrote, as one message, in the form that `pair` gives it."""
    shown = message if message.role == "tool" else as_shown(message)
    if shown is None:
        # No model is shown it.
        return RemoveMessage(id=id)
    given = shown.to_openai()
    content, name = given.get("content"), given.get("name")
    if given["role"] == "user":
        return HumanMessage(content, id=id, name=name)
    text = "\n".join(map(part_text, content)) if isinstance(content, list) else content or ""
    if given["role"] == "tool":
        # As it is: the call, which may be the graph's own, has the same.
        return ToolMessage(text, id=id, tool_call_id=message.tool_call_id or "")
    calls: Any = [
        {"name": one.name, "args": one.arguments, "id": one.id, "type": "tool_call"} for one in shown.tool_calls
    ]
    return AIMessage(text, id=id, name=name, tool_calls=calls)
