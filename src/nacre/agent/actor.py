"""One session's actor: one task, one writer; it takes requests one after the other and answers each."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from contextvars import Context, copy_context
from functools import partial
from typing import Any

import anyio
from msgspec import Struct
from msgspec.structs import replace

from nacre.agent import ports
from nacre.agent.live_session import KernelSessions, LiveSession
from nacre.agent.loop import run_turn
from nacre.agent.model_request import Material, ModelRequest, fit
from nacre.agent.ports import STOPPED, Ask, Emit, Entry, Guard, Notice, Output, Pace, Provider, Tool, Turn
from nacre.agent.tool_calls import result_message
from nacre.errors import Busy, Conflict, LeaseLost, NacreError, Stopped
from nacre.history import replies
from nacre.history.message_text import text_of
from nacre.history.pairing import RECALLED
from nacre.messages import Message, Snapshot, ToolCall
from nacre.records import AppendRecord, SetMeta

NOT_RUN = "not run: stopped by the user"


class Agent(Struct, frozen=True, kw_only=True):
    """Who answers: a model, its tools, and how much of a session it is shown.

    `provider` gives the model, `system` the system prompt, `skills` the part of it that lists skills, and `guard` who
    decides about calls, given the session and someone to ask. `tokens` is how many estimated tokens a request should
    have, `capacity` how many the model can take, None if that is not known. `make_room` is asked for a summary of a
    session that does not fit, and gives a notice about it, None if it made none. `recall` gives what is remembered of
    use to words that came, and can ask which texts will be in view, so as not to repeat them; `after` is called when a
    turn is over. Neither may take long. `local_model` names the local model that a message is meant for, "" if it is
    remote: stored with the message, before the model is asked. `trace` is entered while a turn runs, given the context
    of its caller.
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
    trace: Callable[[Context], AbstractContextManager[object]] = nullcontext


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
        self.message, self.emit, self.ask, self.caller = message, emit, ask, copy_context()
        self.answer: Message | None = None
        self.error: BaseException | None = None
        self.is_settled = False
        # A future of the loop, here and below: an event of anyio costs ten times as much.
        self.done = asyncio.get_running_loop().create_future()

    def settle(self, answer: Message | None = None, error: BaseException | None = None) -> None:
        """Pass the answer or the error to the caller, who may have been cancelled."""
        self.answer, self.error, self.is_settled = answer, error, True
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
        # A request is at work before its turn begins, too: while its message is stored.
        return bool(self._mailbox) or (self._request is not None and not self._request.is_settled)

    def post(self, request: TurnRequest) -> None:
        """Put a request into the mailbox; raises Busy if that is full."""
        if len(self._mailbox) >= self._max_waiting:
            raise Busy(f"session {self._session.key!r} has {self._max_waiting} messages waiting; try again later")
        self._mailbox.append(request)
        self.wake()

    def stop(self) -> bool:
        """Stop the turn that is running; False if none is."""
        if self._turn is not None:
            self._turn.cancel()
        return self._turn is not None

    def wake(self) -> None:
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
                self.wake()

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
            await self._session.take_turn()
            request.settle(await self._answer(request))
        except NacreError as error:
            request.settle(error=error)
        finally:
            await self._session.give_turn_back()
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
            await self._session.read()
        else:
            await self._session.refresh()
        system = self._agent.system()
        if (earlier := await self._commit_message(request.message, system, may_wait=True)) is not None:
            return earlier
        self._unsaved_text, self._unstarted = [], []
        self.answers = replies.ids_to_answer([*self._session.messages, *self._session.unsaved], first)
        try:
            with self._agent.trace(request.caller):
                return await self._run_turn(request, system)
        except Conflict as error:
            if request.message is None or not self._session.unsaved or isinstance(error, LeaseLost):
                raise
            # It was stored long ago, or the session was deleted: it is looked for, or stored before the model is asked.
            self._session.unsaved = []
            request.message = replace(request.message, is_kept=False)
            return await self._answer(request)
        finally:
            # However the turn ended: who keeps the message may forget it now.
            await self._session.commit_unsaved()

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
            session.save_with_next(stored, id=message.id)
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
                if session.unsaved:
                    await session.commit([])
                summary_notice = await agent.make_room(session.key)
            if summary_notice is not None:
                await session.read()
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
