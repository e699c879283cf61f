"""One session's actor: one task, one writer; it takes letters one after the other and answers each."""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any

import anyio
from msgspec import Struct, structs

from nacre.agent.kernel_sessions import KernelSessions
from nacre.agent.live_session import Conversation
from nacre.agent.loop import run_turn
from nacre.agent.model_request import Material, Request, fit
from nacre.agent.ports import (
    STOPPED,
    Ask,
    Called,
    Context,
    Emit,
    Entry,
    Event,
    Guard,
    Notice,
    Output,
    Pace,
    Provider,
    Text,
    Tool,
    Turn,
)
from nacre.agent.tool_calls import result
from nacre.entries import Describe, Message, Note, ToolCall
from nacre.errors import Busy, NacreError, Stopped
from nacre.history.earlier import Taken
from nacre.history.pairing import RECALLED
from nacre.history.text import text_of

NOT_RUN = "not run: stopped by the user"


async def _no_room(_: str) -> None:
    """There is nobody who summarises."""


class Agent(Struct, frozen=True, kw_only=True):
    """Who answers: a model, its tools, and how much of a session it is shown.

    `provider` gives the model, `system` the system prompt, `skills` the part of it that lists skills, and `guard` who
    decides about calls, given the session and someone to ask. `tokens` is how many estimated tokens a request should
    have, `capacity` how many the model can take, None if that is not known. `make_room` is asked for a summary of a
    session that does not fit, and gives a notice about it, None if it made none. `recall` gives what is remembered of
    use to words that came, and can ask which texts will be in view, so as not to repeat them; `after` is told when a
    turn is over. Neither may take long. `asked` names the local model that a message is meant for, "" if it is remote:
    stored with the message, before the model is asked.
    """

    provider: Callable[[], Provider]
    tools: Mapping[str, Tool] = {}
    system: Callable[[], str] = str
    skills: Callable[[], str] = str
    guard: Callable[[str, Ask | None], Guard]
    tokens: Callable[[], int] = lambda: 32_000
    capacity: Callable[[], int | None] = lambda: None
    most: int = 50
    steps: int = 50
    make_room: Callable[[str], Awaitable[str | None]] = _no_room
    recall: Callable[[str, Callable[[], Sequence[str]]], str] = lambda *_: ""
    asked: Callable[[], str] = str
    after: Callable[[str], None] = lambda _: None


class Inbound(Struct, frozen=True, kw_only=True):
    """A message from somewhere; `id` is the channel's own name for it, so that it counts once.

    `meta` is stored in the same unit, as meta of the session; fields that it has are kept. `extra` is the message's.
    """

    key: str
    content: str | list[Any]
    id: str = ""
    sender: str = ""
    meta: dict[str, Any] = {}
    extra: dict[str, Any] = {}


class Letter:
    """A message for an actor, and its future answer; without a message, a turn to resume."""

    def __init__(self, inbound: Inbound | None, *, emit: Emit, ask: Ask | None) -> None:
        self.inbound, self.emit, self.ask = inbound, emit, ask
        self.answer: Message | None = None
        self.error: BaseException | None = None
        self.done = anyio.Event()

    def settle(self, answer: Message | None = None, error: BaseException | None = None) -> None:
        """Pass the answer or the error to the caller."""
        self.answer, self.error = answer, error
        self.done.set()


class Actor:
    """The only one in this process that writes to its session."""

    def __init__(self, sessions: KernelSessions, key: str, agent: Agent, *, pace: Pace, max_waiting: int) -> None:
        self._max_waiting = max_waiting
        self._conversation = Conversation(sessions, key, pace, most=agent.most)
        self._hold = sessions.hold(key)
        self._agent, self._is_read = agent, False
        self._mailbox: deque[Letter] = deque()
        self._woken = anyio.Event()
        self._turn: anyio.CancelScope | None = None
        self._spoken: list[str] = []
        self._unstarted: list[ToolCall] = []
        self._told: set[str] = set()
        self._letter: Letter | None = None

    @property
    def is_at_work(self) -> bool:
        return self._turn is not None or bool(self._mailbox)

    def post(self, letter: Letter) -> None:
        """Put a letter into the mailbox; raises Busy if that is full."""
        if len(self._mailbox) >= self._max_waiting:
            raise Busy(f"session {self._conversation.key!r} has {self._max_waiting} messages waiting; try again later")
        self._mailbox.append(letter)
        self._woken.set()

    def stop(self) -> bool:
        """Stop the turn that is running; False if none is."""
        if self._turn is None:
            return False
        self._turn.cancel()
        return True

    def end(self) -> None:
        """End it, unless there is something to answer."""
        self._woken.set()

    async def run(self, *, idle: float) -> None:
        """Answer letters until none has come for a while."""
        while await self._has_mail(idle):
            self._letter = self._mailbox.popleft()
            await self._answered(self._letter)
            self._letter = None

    def give_up(self, error: BaseException) -> None:
        """Tell everyone who waits that there will be no answer."""
        waiting = [*([self._letter] if self._letter is not None else []), *self._mailbox]
        self._mailbox.clear()
        for letter in waiting:
            letter.settle(error=error)

    async def _has_mail(self, idle: float) -> bool:
        if not self._mailbox:
            self._woken = anyio.Event()
            with anyio.move_on_after(idle):
                await self._woken.wait()
        return bool(self._mailbox)

    async def _answered(self, letter: Letter) -> None:
        try:
            self._hold.take()
            letter.settle(await self._turned(letter))
        except NacreError as error:
            letter.settle(error=error)
        finally:
            self._hold.close()
            self._agent.after(self._conversation.key)

    async def _turned(self, letter: Letter) -> Message | None:
        """Commit the words of a letter and run the turn that answers them, unless they have been answered before."""
        if not self._is_read or letter.inbound is None:
            self._conversation.read()
            self._is_read = True
        else:
            self._conversation.refresh()
        system = self._agent.system()
        answered = await self._heard(letter.inbound, system)
        if answered is not None:
            return answered
        self._spoken, self._unstarted = [], []
        with anyio.CancelScope() as turn:
            self._turn = turn
            try:
                return await run_turn(self._prepared(letter, system))
            finally:
                self._turn = None
        # With what the model had said so far in the log, the turn is over.
        said = f"{''.join(self._spoken).rstrip()}\n\n{STOPPED}".strip()
        ended = Message(role="assistant", content=said)
        # Without a result, a call that was never started would be shown as one whose outcome is unknown.
        not_run = [result(call, Output(text=NOT_RUN, failed=True)) for call in self._unstarted]
        await self._conversation.commit([*not_run, ended])
        raise Stopped("the turn was stopped")

    async def _commit(self, entries: Sequence[Entry]) -> int:
        """Store entries of the turn, and keep track of the calls that were not started."""
        number = await self._conversation.commit(entries)
        for entry in entries:
            if isinstance(entry, Message) and entry.role == "assistant":
                self._unstarted = list(entry.tool_calls)
            elif settled := [call for call in self._unstarted if _settles(entry, call)][:1]:
                self._unstarted.remove(settled[0])
        return number

    async def _heard(self, inbound: Inbound | None, system: str) -> Message | None:
        """Commit what was said, and the system prompt if that is new; what it was answered with, None if it waits."""
        conversation = self._conversation
        given = inbound.meta if inbound is not None else {}
        # Another message may have come first: what it gave to the session stays.
        fields = {name: value for name, value in given.items() if not conversation.has_meta(name)}
        if system != conversation.system:
            fields["system"] = system or None
        prompt = [Describe(fields)] if fields else []
        if inbound is not None and conversation.place(inbound.id) is None:
            return await conversation.hear(self._message(inbound, system), *prompt, id=inbound.id)
        if inbound is not None:
            return conversation.answer(inbound.id, inbound.content)
        if prompt:
            await conversation.commit(prompt)
        return conversation.answer()

    def _message(self, inbound: Inbound, system: str) -> Message:
        """What was said, with the facts that are recalled for it."""
        origin = {name: value for name, value in (("id", inbound.id), ("sender", inbound.sender)) if value}
        text = inbound.content
        recalled = self._agent.recall(text, partial(self._in_view, text, system)) if isinstance(text, str) else ""
        extra = {"origin": origin, RECALLED: recalled, "asked": self._agent.asked(), **inbound.extra}
        return Message(role="user", content=text, extra={name: value for name, value in extra.items() if value})

    def _in_view(self, text: str, system: str) -> list[str]:
        """What users said that the model will still be shown when it answers a text, with what was recalled for it."""
        show = partial(self._conversation.window, coming=[Message(role="user", content=text)])
        request = self._request(Material(show=show, system=system, skills=self._agent.skills()))
        return [text_of(message) for message in request.context.messages if message.role == "user"]

    def _request(self, material: Material, *, below: int | None = None) -> Request:
        """A request to the model that fits; `below` is the size of one that did not."""
        agent, conversation = self._agent, self._conversation
        # Tools may change during a turn: a server of theirs may have others.
        specs = [tool.spec for tool in agent.tools.values()]
        now = structs.replace(material, tools=specs, terms=conversation.terms, cache_key=conversation.cache_key)
        return fit(now, tokens=agent.tokens(), capacity=agent.capacity(), below=below)

    def _prepared(self, letter: Letter, system: str) -> Turn:
        agent, conversation = self._agent, self._conversation

        material = Material(show=conversation.window, system=system, skills=agent.skills())

        def emit(event: Event) -> None:
            if isinstance(event, Text):
                self._spoken.append(event.text)
            elif isinstance(event, Called):
                self._spoken.clear()
            letter.emit(event)

        async def look(below: int | None) -> Context:
            request = self._request(material, below=below)
            summarised = await agent.make_room(conversation.key) if request.is_cut else None
            if summarised is not None:
                conversation.read()
                request = self._request(material, below=below)
            if summarised:
                letter.emit(Notice(summarised))
            left_out = f"{request.left_out} earlier messages are not shown to the model"
            for text in [*([left_out] if request.left_out else []), *request.cuts]:
                if text not in self._told:
                    self._told.add(text)
                    letter.emit(Notice(text))
            return request.context

        return Turn(
            key=conversation.key,
            look=look,
            provider=agent.provider(),
            tools=agent.tools,
            guard=agent.guard(conversation.key, letter.ask),
            commit=self._commit,
            hear=self._hear,
            emit=emit,
            steps=agent.steps,
        )

    async def _hear(self) -> None:
        """Commit words that came during the turn, so that the model sees them at its next step."""
        while self._mailbox:
            answer, refusal = None, None
            try:
                answer = await self._heard(self._mailbox[0].inbound, self._conversation.system)
            except Taken as error:
                refusal = error
            # Only now: what cannot be stored ends this turn, and is the next one's.
            self._mailbox.popleft().settle(answer, refusal)


def _settles(entry: Entry, call: ToolCall) -> bool:
    """Tell whether an entry says that a call was started, or what came of it."""
    if isinstance(entry, Note):
        return entry.kind == "tool" and isinstance(entry.data, Mapping) and entry.data.get("call") == call.id
    return isinstance(entry, Message) and entry.role == "tool" and entry.tool_call_id == call.id
