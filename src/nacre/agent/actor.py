"""One session's actor: one task, one writer; it takes requests one after the other and answers each."""

from __future__ import annotations

import asyncio
import hashlib
import math
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any, Protocol, TypeVar

import anyio
from anyio import to_thread
from msgspec import Struct
from msgspec.structs import replace

from nacre.agent import ports
from nacre.agent.loop import run_turn
from nacre.agent.model_request import Material, ModelRequest, Terms, fit, terms_of
from nacre.agent.ports import STOPPED, Ask, Emit, Entry, Guard, Notice, Output, Pace, Provider, Tool, Turn
from nacre.agent.tool_calls import result_message
from nacre.errors import Busy, Conflict, LeaseLost, NacreError, Stopped
from nacre.history import replies
from nacre.history.message_text import cut_middle, text_of
from nacre.history.pairing import RECALLED, without_facts
from nacre.history.window import Costs, Turns, Window, recent
from nacre.messages import Message, Snapshot, ToolCall, Version
from nacre.records import AppendRecord, SetMeta, View
from nacre.storage.protocol import Lease

T = TypeVar("T")
_MIN_KEPT = 256  # messages, so that a repeat is known without reading the log


class KernelSessions(Protocol):
    """All that the kernel needs of sessions, whatever keeps them."""

    def submit(
        self, key: str, operations: Sequence[Entry | SetMeta], *, id: str | None = None, lease: Lease | None = None
    ) -> Awaitable[int]:
        """Store entries as one transaction, unless the lease is lost; gives the last number once they are durable.

        What it returns may be awaited again.
        """

    def snapshot(self, key: str, *, last: int | None = None) -> Snapshot:
        """The session at this moment: its last messages, summary and meta."""

    def is_at(self, key: str, version: Version) -> bool:
        """Tell, without reading, whether nothing was stored since; False if that is not known."""

    def read(self, key: str, get: Callable[[View], T]) -> T | None:
        """The result of a function of the records of a session; None if there is none."""

    def hold(self, key: str) -> Lease:
        """The lease of a session's turn."""


async def no_wait() -> None:
    """The pace of a process where every turn may go on at once."""


class LiveSession:
    """The newest messages of a session, and the session as it was `now`; the model is shown these messages alone.

    What is known of it is kept in step with what is committed here. Whether somebody else has written to the session,
    the store tells without reading it.
    """

    def __init__(self, sessions: KernelSessions, key: str, pace: Pace = no_wait, *, limit: int = _MIN_KEPT) -> None:
        self.key, self._sessions, self._pace = key, sessions, pace
        self.lease: Lease | None = None
        self._max_shown, self._max_kept = limit, max(limit, _MIN_KEPT)
        self.now = Snapshot(n=-1)  # it is not read yet
        self.messages: list[Message] = []
        self._numbers: list[int] = []
        self._by_id = replies.MessagesById()
        self._turns = Turns(Costs(limit=4 * self._max_kept), limit=2 * limit)
        self._last_user: Message | None = None
        # What was used since a record, by the records that were committed here.
        self._used: list[tuple[int, Any]] = []
        self._used_since = 0
        self._cache_key = ("", "")
        # A message that is stored with what is committed next, and its id.
        self.coming: list[Message] = []
        self._coming_id = ""

    def take_turn(self) -> None:
        """Take the turn; from then on commits are refused with LeaseLost if another takes it over."""
        # What an earlier turn could not store comes again.
        self.coming = []
        self.lease = self._sessions.hold(self.key)
        self.lease.take()

    def read(self) -> None:
        """Read the session as it is now."""
        now = self._sessions.snapshot(self.key, last=self._max_kept)
        self.messages, self._numbers = list(now.messages), list(now.numbers)
        self._by_id = replies.MessagesById(self.messages)
        self.now = replace(now, messages=[], numbers=[])
        self._used, self._used_since = [], now.n
        self._last_user = next((message for message in reversed(self.messages) if message.role == "user"), None)
        if self._last_user is None and self.messages:
            self._last_user = self._sessions.read(self.key, replies.last_words)

    def refresh(self) -> None:
        """Read the session again if somebody else has written to it, as a summary does."""
        is_read = self.now.n >= 0
        if is_read and (self.is_current or self._sessions.snapshot(self.key, last=0).version == self.now.version):
            self._used, self._used_since = [], self.now.n
        else:
            self.read()

    @property
    def is_current(self) -> bool:
        """Whether the session is as it is known here; False also if only reading it would tell."""
        return self.now.n > 0 and self._sessions.is_at(self.key, self.now.version)

    def snapshot(self) -> Snapshot | None:
        """The session with its newest messages, without reading it; None if somebody else may have written to it."""
        if not self.is_current:
            return None
        return replace(self.now, messages=list(self.messages), numbers=list(self._numbers))

    def used_since(self, n: int) -> list[Any] | None:
        """What `use` records after record `n` say; None if not all of them were committed here."""
        return None if n < self._used_since else [data for number, data in self._used if number > n]

    @property
    def terms(self) -> Terms:
        """What the user's newest message asks of its answer, also where a summary covers it."""
        newest = [*filter(None, [self._last_user]), *self.coming]
        return terms_of(newest[-1:])

    @property
    def cache_key(self) -> str:
        """A name for the session that is its own and tells nothing about it; "" before it is stored."""
        generation, name = self._cache_key
        if generation != self.now.generation:
            generation = self.now.generation
            name = hashlib.sha256(generation.encode()).hexdigest()[:32]
            self._cache_key = (generation, name)
        return name

    def has(self, id: str) -> bool:
        """Tell whether the message with an id is among the newest."""
        return self._by_id.place(id) is not None

    def reply(self, id: str = "", content: object = "") -> Message | None:
        """The reply to the message with an id, or to the last one if it is ""; None if it has none yet."""
        if not id:
            return next(filter(replies.is_final, self.messages[-1:]), None)
        at = self._by_id.place(id)
        return None if at is None else replies.reply_to(self.messages[at:], content, id=id)

    def window(self, tokens: int, *, summary: int, has_facts: bool = True, coming: Sequence[Message] = ()) -> Window:
        """What fits into a number of tokens, with the summary in at most `summary` tokens, once messages have come."""
        coming = [*self.coming, *coming]
        now, messages = self.now, [*self.messages, *coming]
        count = max(now.live, len(self.messages)) + len(coming)
        newest = reversed(messages) if has_facts else map(without_facts, reversed(messages))
        text = cut_middle(now.summary, summary)
        return recent(newest, count=count, summary=text, tokens=tokens, limit=self._max_shown, known=self._turns)

    async def commit_once(self, message: Message, *prompt: SetMeta, id: str) -> Message | None:
        """Commit a message, unless it is a repeat; returns its earlier answer, None if it has none yet."""
        try:
            await self.commit([*prompt, message], id=id)
        except Conflict as error:
            self.read()
            if not id or not self.now.n or isinstance(error, LeaseLost):
                raise
        if not id or self.has(id):
            return self.reply(id, message.content)
        return await to_thread.run_sync(
            self._sessions.read, self.key, lambda view: replies.find_reply(view, message.content, id=id)
        )

    def add_later(self, message: Message, *, id: str) -> None:
        """Show the model a message now, and store it in one transaction with what is committed next."""
        self.coming, self._coming_id = [message], id

    async def commit_coming(self) -> None:
        """Commit a message that was to be stored later, if it is not stored yet."""
        try:
            if self.coming:
                await self.commit([])
        except Conflict as error:
            if isinstance(error, LeaseLost):
                raise
            # It is stored: a commit of it and more failed and left that unknown.
            self.read()

    async def commit(self, entries: Sequence[Entry | SetMeta], *, id: str | None = None) -> int:
        """Store entries as one transaction, and return when they are durable, whatever is cancelled meanwhile."""
        if self.coming:
            # With its id the transaction is refused if the message was stored before.
            entries, id = [*self.coming, *entries], self._coming_id
        pending = self._sessions.submit(self.key, entries, id=id or None, lease=self.lease)
        try:
            number = await pending
            await self._pace()
        except asyncio.CancelledError:
            if anyio.current_effective_deadline() > -math.inf:
                # Not a scope of ours: the task itself is cancelled, as when the loop is closed.
                raise
            # It is written all the same. Whatever was cancelled is again at the next wait. A scope is entered only
            # here, since it costs more than all else around a commit.
            with anyio.CancelScope(shield=True):
                number = await pending
        self.coming = []
        before = self.now
        is_next = before.n > 0 and number == before.n + len(entries)
        if not is_next or any(isinstance(entry, SetMeta) for entry in entries):
            # Somebody else wrote too, it was stored before, or the session is new: read it again.
            self.read()
            return number
        added: list[Message] = []
        for at, entry in enumerate(entries, before.n + 1):
            if isinstance(entry, Message):
                added.append(entry)
                self._numbers.append(at)
            elif isinstance(entry, AppendRecord) and entry.kind == "use":
                self._used.append((at, entry.data))
        self.messages += added
        self._by_id.add(added)
        if users := [message for message in added if message.role == "user"]:
            # Not within a turn: the message that it answers is kept.
            self._by_id.drop(self.messages[: -self._max_kept])
            del self.messages[: -self._max_kept], self._numbers[: -self._max_kept]
            self._last_user = users[-1]
        changed = self._numbers[-1] if added else before.expect
        self.now = replace(before, n=number, live=before.live + len(added), expect=changed)
        return number


NOT_RUN = "not run: stopped by the user"


class Agent(Struct, frozen=True, kw_only=True):
    """Who answers: a model, its tools, and how much of a session it is shown.

    `provider` gives the model, `system` the system prompt, `skills` the part of it that lists skills, and `guard` who
    decides about calls, given the session and someone to ask. `tokens` is how many estimated tokens a request should
    have, `capacity` how many the model can take, None if that is not known. `make_room` is asked for a summary of a
    session that does not fit, and gives a notice about it, None if it made none. `recall` gives what is remembered of
    use to words that came, and can ask which texts will be in view, so as not to repeat them; `after` is called when a
    turn is over. Neither may take long. `local_model` names the local model that a message is meant for, "" if it is
    remote: stored with the message, before the model is asked.
    """

    provider: Callable[[], Provider]
    tools: Mapping[str, Tool] = {}
    system: Callable[[], str] = str
    skills: Callable[[], str] = str
    guard: Callable[[str, Ask | None], Guard]
    tokens: Callable[[], int] = lambda: 32_000
    capacity: Callable[[], int | None] = lambda: None
    max_messages: int = 50
    steps: int = 50
    make_room: Callable[[str], Awaitable[str | None]] | None = None
    recall: Callable[[str, Callable[[], Sequence[str]]], str] = lambda *_: ""
    local_model: Callable[[], str] = str
    after: Callable[[str], None] = lambda _: None


class UserMessage(Struct, frozen=True, kw_only=True):
    """A message from somewhere; `id` is the channel's own name for it, so that it counts once.

    `meta` is stored in the same transaction, as meta of the session; fields that it has are kept. `extra` is that of
    the message. `is_kept` says that it came for the first time, and that its caller keeps it durably until it is
    answered, and delivers it again after a crash: then it may be stored together with its answer.
    """

    key: str
    content: str | list[Any]
    id: str = ""
    sender: str = ""
    meta: dict[str, Any] = {}
    extra: dict[str, Any] = {}
    is_kept: bool = False


class TurnRequest:
    """A message for an actor, and its future answer; without a message, a turn to resume."""

    def __init__(self, message: UserMessage | None, *, emit: Emit, ask: Ask | None) -> None:
        self.message, self.emit, self.ask = message, emit, ask
        self.answer: Message | None = None
        self.error: BaseException | None = None
        # A future of the loop, here and below: an event of anyio costs ten times as much.
        self.done = asyncio.get_running_loop().create_future()

    def settle(self, answer: Message | None = None, error: BaseException | None = None) -> None:
        """Pass the answer or the error to the caller, who may have been cancelled."""
        self.answer, self.error = answer, error
        if not self.done.done():
            self.done.set_result(None)


class Actor:
    """The only one in this process that writes to its session."""

    def __init__(self, sessions: KernelSessions, key: str, agent: Agent, *, pace: Pace, max_waiting: int) -> None:
        self._session = LiveSession(sessions, key, pace, limit=agent.max_messages)
        self._agent, self._max_waiting = agent, max_waiting
        self._mailbox: deque[TurnRequest] = deque()
        # While it waits for a request: what wakes it, and since when it waits.
        self._wake: asyncio.Future[None] | None = None
        self._idle_since = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._request: TurnRequest | None = None
        self._turn: anyio.CancelScope | None = None
        self._unsaved_text: list[str] = []
        self._unstarted: list[ToolCall] = []
        self.answers: list[str] = []
        self._notices: set[str] = set()

    @property
    def is_at_work(self) -> bool:
        return self._turn is not None or bool(self._mailbox)

    def post(self, request: TurnRequest) -> None:
        """Put a request into the mailbox; raises Busy if that is full."""
        if len(self._mailbox) >= self._max_waiting:
            raise Busy(f"session {self._session.key!r} has {self._max_waiting} messages waiting; try again later")
        self._mailbox.append(request)
        self.end()

    def stop(self) -> bool:
        """Stop the turn that is running; False if none is."""
        if self._turn is not None:
            self._turn.cancel()
        return self._turn is not None

    def end(self) -> None:
        """Wake it if it waits: it ends, unless there is something to answer."""
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)

    def snapshot(self) -> Snapshot | None:
        """The session with its newest messages, without reading it; None if somebody else may have written to it."""
        return self._session.snapshot()

    def used_since(self, n: int) -> list[Any] | None:
        """What `use` records after record `n` say; None if not all of them were committed here."""
        return self._session.used_since(n)

    async def run(self, *, idle: float) -> None:
        """Answer requests until none has come for a while."""
        try:
            while self._mailbox or await self._wait(idle):
                await self._answer_next()
        finally:
            if self._timer is not None:
                self._timer.cancel()

    async def _wait(self, idle: float) -> bool:
        """Wait for a request; False if none has come for a while, or somebody ended it."""
        loop = asyncio.get_running_loop()

        def look() -> None:
            """End it if it has waited for so long; if it has worked meanwhile, look again when it may have."""
            self._timer, left = None, self._idle_since + idle - loop.time()
            if self._wake is not None and left > 0:
                self._timer = loop.call_later(left, look)
            else:
                self.end()

        # A timer that was set for an earlier wait serves this one, too.
        self._idle_since, self._wake = loop.time(), loop.create_future()
        if self._timer is None:
            self._timer = loop.call_later(idle, look)
        try:
            await self._wake
        finally:
            self._wake = None
        return bool(self._mailbox)

    async def _answer_next(self) -> None:
        request = self._request = self._mailbox.popleft()
        try:
            self._session.take_turn()
            request.settle(await self._answer(request))
        except NacreError as error:
            request.settle(error=error)
        finally:
            if self._session.lease is not None:
                self._session.lease.close()
            self._agent.after(self._session.key)
        self._request = None

    def give_up(self, error: BaseException) -> None:
        """Tell everyone who waits that there will be no answer."""
        for request in filter(None, [self._request, *self._mailbox]):
            request.settle(error=error)
        self._mailbox.clear()

    async def _answer(self, request: TurnRequest) -> Message | None:
        """Commit the message of a request and run the turn that answers it, unless it was answered before."""
        first = None if request.message is None else request.message.id
        if first is None:
            self._session.read()
        else:
            self._session.refresh()
        system = self._agent.system()
        if (earlier := await self._commit_message(request.message, system, may_wait=True)) is not None:
            return earlier
        self._unsaved_text, self._unstarted = [], []
        self.answers = replies.ids_to_answer([*self._session.messages, *self._session.coming], first)
        try:
            return await self._run_turn(request, system)
        except Conflict as error:
            if request.message is None or not self._session.coming or isinstance(error, LeaseLost):
                raise
            # It was stored long ago, or the session was deleted: it is looked for, or stored before the model is asked.
            self._session.coming = []
            request.message = replace(request.message, is_kept=False)
            return await self._answer(request)
        finally:
            # However the turn ended: who keeps the message may forget it now.
            await self._session.commit_coming()

    async def _run_turn(self, request: TurnRequest, system: str) -> Message:
        """Run the turn that answers a request; raises Stopped if somebody stopped it."""
        with anyio.CancelScope() as turn:
            self._turn = turn
            try:
                return self._with_answers(await run_turn(self._make_turn(request, system)))
            finally:
                self._turn = None
        # Stopped. With what the model had said so far in the log, the turn is over.
        text = f"{''.join(self._unsaved_text).rstrip()}\n\n{STOPPED}".strip()
        # Without a result, a call that was never started would be shown as one whose outcome is unknown.
        not_run = [result_message(call, Output(text=NOT_RUN, failed=True)) for call in self._unstarted]
        await self._session.commit([*not_run, self._with_answers(Message(role="assistant", content=text))])
        raise Stopped("the turn was stopped")

    async def _commit_message(
        self, message: UserMessage | None, system: str, *, may_wait: bool = False
    ) -> Message | None:
        """Commit a message, and the system prompt if that is new; returns its earlier answer, None if it has none.

        If it `may_wait`, one that is kept elsewhere is committed with its answer, which saves a flush; not the first
        one of a session, which creates it.
        """
        session = self._session
        # Another message may have come first: what it gave to the session stays.
        given = message.meta.items() if message is not None else ()
        fields = {name: value for name, value in given if not session.now.meta.get(name)}
        if system != session.now.meta.get("system", ""):
            fields["system"] = system or None
        prompt = [SetMeta(fields)] if fields else []
        if message is None:
            if prompt:
                await session.commit(prompt)
            return session.reply()
        if session.has(message.id):
            return session.reply(message.id, message.content)

        # It is new: stored with where it came from and the facts that are recalled for it.
        text = message.content

        def texts_in_view() -> list[str]:
            """What users said that the model will still be shown when it answers, with what was recalled for it."""
            show = partial(session.window, coming=[Message(role="user", content=text)])
            request = self._make_request(Material(show=show, system=system, skills=self._agent.skills()))
            return [text_of(message) for message in request.context.messages if message.role == "user"]

        extra = {
            "origin": {name: value for name, value in (("id", message.id), ("sender", message.sender)) if value},
            RECALLED: self._agent.recall(text, texts_in_view) if isinstance(text, str) else "",
            "asked": self._agent.local_model(),
            **message.extra,
        }
        stored = Message(role="user", content=text, extra={name: value for name, value in extra.items() if value})
        if may_wait and message.is_kept and message.id and session.now.n and not prompt:
            session.add_later(stored, id=message.id)
            return None
        return await session.commit_once(stored, *prompt, id=message.id)

    def _make_request(self, material: Material, *, below: int | None = None) -> ModelRequest:
        """A request to the model that fits; `below` is the size of one that did not."""
        agent, session = self._agent, self._session
        # Tools may change during a turn: a server of theirs may have others.
        specs = [tool.spec for tool in agent.tools.values()]
        now = replace(material, tools=specs, terms=session.terms, cache_key=session.cache_key)
        return fit(now, tokens=agent.tokens(), capacity=agent.capacity(), below=below)

    def _make_turn(self, request: TurnRequest, system: str) -> Turn:
        agent, session = self._agent, self._session
        material = Material(show=session.window, system=system, skills=agent.skills())

        def emit(event: ports.Event) -> None:
            if isinstance(event, ports.Text):
                self._unsaved_text.append(event.text)
            elif isinstance(event, ports.Called):
                self._unsaved_text.clear()
            request.emit(event)

        async def look(below: int | None) -> ports.Context:
            found = self._make_request(material, below=below)
            summary_notice = None
            if found.is_cut and agent.make_room:
                if session.coming:
                    await session.commit([])
                summary_notice = await agent.make_room(session.key)
            if summary_notice is not None:
                session.read()
                found = self._make_request(material, below=below)
            left_out = [f"{found.left_out} earlier messages are not shown to the model"] if found.left_out else []
            new = [text for text in (*left_out, *found.cuts) if text not in self._notices]
            self._notices.update(new)
            for text in filter(None, [summary_notice, *new]):
                request.emit(Notice(text))
            return found.context

        return Turn(
            key=session.key,
            look=look,
            provider=agent.provider(),
            tools=agent.tools,
            guard=agent.guard(session.key, request.ask),
            commit=self._commit,
            hear=self._take_waiting,
            emit=emit,
            steps=agent.steps,
        )

    async def _commit(self, entries: Sequence[Entry]) -> int:
        """Store entries of the turn, its reply with what it answers; keep track of the calls that were not started."""
        stored = [self._with_answers(entry) if isinstance(entry, Message) else entry for entry in entries]
        number = await self._session.commit(stored)
        for entry in entries:
            match entry:
                case Message(role="assistant", tool_calls=calls):
                    self._unstarted = list(calls)
                # Its start, or its result.
                case AppendRecord(kind="tool", data={"call": id}) | Message(role="tool", tool_call_id=id):
                    if started := [call for call in self._unstarted if call.id == id][:1]:
                        self._unstarted.remove(started[0])
                case _:
                    pass
        return number

    def _with_answers(self, message: Message) -> Message:
        """The message; if it is the reply of the turn, with the ids of the messages that it answers."""
        is_reply = self.answers and replies.is_final(message)
        return replace(message, extra={**message.extra, replies.ANSWERS: [*self.answers]}) if is_reply else message

    async def _take_waiting(self) -> None:
        """Commit messages that came during the turn, so that the model sees them at its next step."""
        while self._mailbox:
            message, answer, refusal = self._mailbox[0].message, None, None
            try:
                answer = await self._commit_message(message, str(self._session.now.meta.get("system", "")))
                if answer is None and message is not None and message.id and message.id not in self.answers:
                    self.answers.append(message.id)
            except replies.Taken as error:
                refusal = error
            # Only now: what cannot be stored ends this turn, and is the next one's.
            self._mailbox.popleft().settle(answer, refusal)
