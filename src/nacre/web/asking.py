"""Turns begun on the page: what happens in them as events, and a person who is asked before a tool runs."""

from __future__ import annotations

import secrets
from collections.abc import AsyncGenerator, Awaitable, Callable

import anyio
from anyio import to_thread

from nacre.agent.actor import Inbound
from nacre.agent.ports import Answer, Approval, Ask, Called, Effect, Emit, Event, Notice, Returned, Text, Thought
from nacre.app import App
from nacre.entries import Message, ToolCall
from nacre.render.html import escaped
from nacre.render.text import one_line
from nacre.web import calls, links, reading
from nacre.web.events import BEAT, HEARTBEAT, event
from nacre.web.problems import Fault, fault_of
from nacre.web.retries import answer_to, is_waiting
from nacre.web.turns import Running

PATIENCE = 60.0
"""How long a question stays open when the page that it was asked on is gone."""

ANSWERS: tuple[Answer, ...] = ("yes", "no", "always")


class Question(Notice, frozen=True, kw_only=True):
    """Whether a tool may run, for the person at the page."""

    id: str
    key: str
    call: ToolCall
    effect: Effect


class Questions:
    """What people are being asked, in all sessions; whoever has a session's page may answer."""

    def __init__(self) -> None:
        self._open: dict[str, _Open] = {}

    def of(self, key: str) -> list[Question]:
        """The questions of a session that are open."""
        return [one.question for one in self._open.values() if one.question.key == key]

    def answer(self, key: str, id: str, answer: str) -> None:
        """Answer a question; raises Fault if it is not open any more, or if that is no answer."""
        asked = self._open.get(id)
        if asked is None or asked.question.key != key or asked.is_answered.is_set():
            raise Fault("conflict", "this question is no longer open: the call was answered or stopped")
        if answer not in ANSWERS:
            raise Fault("usage", f"an answer is yes, no or always, not {answer!r:.40}")
        asked.answer = answer
        asked.is_answered.set()

    def asker(self, key: str, emit: Emit, left: anyio.Event) -> Ask:
        """Somebody to ask in a turn; `left` is set when the page is gone, and silence means no a while after."""

        async def ask(approval: Approval) -> Answer:
            tool, call = approval.tool, approval.call
            id = secrets.token_urlsafe(9)
            words = f"{one_line(tool.spec.name)} waits for permission"
            asked = self._open[id] = _Open(Question(words, id=id, key=key, call=call, effect=tool.effect))
            emit(asked.question)
            try:
                await asked.settled(left)
            finally:
                del self._open[id]
            return asked.answer

        return ask


class _Open:
    """A question, and what has been answered so far: no."""

    def __init__(self, question: Question) -> None:
        self.question = question
        self.answer: Answer = "no"
        self.is_answered = anyio.Event()

    async def settled(self, left: anyio.Event) -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._given_up, left, tasks.cancel_scope)
            await self.is_answered.wait()
            tasks.cancel_scope.cancel()

    async def _given_up(self, left: anyio.Event, scope: anyio.CancelScope) -> None:
        await left.wait()
        await anyio.sleep(PATIENCE)
        scope.cancel()


def turn(
    app: App, inbound: Inbound, asker: Callable[[Emit], Ask | None] = lambda _: None
) -> Callable[[Emit], Awaitable[Message | None]]:
    """The work of a turn; words that were said before under their id are not said again."""

    async def work(emit: Emit) -> Message | None:
        stand = await to_thread.run_sync(reading.stand, app.sessions, inbound.key)
        known = answer_to(stand, id=inbound.id, content=inbound.content)
        if known is not None:
            return known
        words = Message(role="user", content=inbound.content)
        if inbound.id and is_waiting(stand, id=inbound.id, words=words):
            return await app.kernel.resume(inbound.key, emit=emit, ask=asker(emit))
        return await app.kernel.deliver(inbound, emit=emit, ask=asker(emit))

    return work


async def told(running: Running[Message | None]) -> AsyncGenerator[bytes, None]:
    """A turn as events for the page, and at last how it ended."""
    async for happened in running.events(silence=HEARTBEAT):
        yield BEAT if happened is None else _event(happened)
    try:
        yield event({"joined": running.outcome() is None}, name="answer")
    except Exception as error:  # noqa: BLE001 - the status is sent; what went wrong is an event now
        yield event(fault_of(error).to_problem(), name="problem")


def html(question: Question) -> str:
    """A question as a form: the exact command, the exact change, or every argument."""
    verb = {"read": "read", "write": "write", "run": "run"}[question.effect]
    buttons = "".join(
        f'<button name="answer" value="{answer}">{words}</button>'
        for answer, words in (("yes", "Yes"), ("no", "No"), ("always", "Always in this session"))
    )
    where = calls.path_of(question.call)
    return (
        f'<form class="ask" method="post" action="{escaped(links.to("do/answer", question.key))}" '
        f'role="group" aria-label="Permission"><p><b>{escaped(one_line(question.call.name))}</b> wants to {verb}'
        f"{f' <code>{escaped(where)}</code>' if where else ''}</p>{calls.arguments(question.call)}"
        f'<input type="hidden" name="id" value="{escaped(question.id)}"><p>{buttons}</p></form>'
    )


def _event(happened: Event) -> bytes:
    match happened:
        case Question(id=id):
            return event({"id": id, "html": html(happened)}, name="question")
        case Called(call):
            return event({"html": calls.doing(call)}, name="called")
        case Returned(call, output):
            return event({"id": call.id, "failed": output.failed}, name="returned")
        case Text(text):
            return event({"text": text}, name="text")
        case Thought(text):
            return event({"text": text}, name="thought")
        case Notice(text):
            return event({"text": text}, name="notice")
