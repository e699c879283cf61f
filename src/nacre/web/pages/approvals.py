"""A person at a page who is asked before a tool runs."""

from __future__ import annotations

import secrets

import anyio

from nacre.agent.ports import Answer, Approval, Ask, Effect, Emit, Notice
from nacre.messages import ToolCall
from nacre.render.html import escaped
from nacre.render.text import one_line
from nacre.web.http_errors import Fault
from nacre.web.pages import call_html, urls

ANSWERS: tuple[Answer, ...] = ("yes", "no", "always")


class Question(Notice, frozen=True, kw_only=True):
    """Whether a tool may run, for the person at the page; `wider` is what "always" allows besides this tool."""

    id: str
    key: str
    call: ToolCall
    effect: Effect
    wider: str = ""


class Questions:
    """What people are being asked, in all sessions; whoever has a session's page may answer.

    A question stays open for `patience` seconds when no page shows it.
    """

    def __init__(self, *, patience: float = 60.0) -> None:
        self._patience = patience
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

    def asker(self, key: str, emit: Emit, audience: Audience) -> Ask:
        """Somebody to ask in a turn; when no page has shown it for a while, silence means no."""

        async def ask(approval: Approval) -> Answer:
            tool, call = approval.tool, approval.call
            id = secrets.token_urlsafe(9)
            words = f"{one_line(tool.spec.name)} waits for permission"
            question = Question(words, id=id, key=key, call=call, effect=tool.effect, wider=_wider(approval))
            asked = self._open[id] = _Open(question)
            emit(asked.question)
            try:
                await asked.settled(audience, self._patience)
            finally:
                del self._open[id]
                emit(Settled(""))
            return asked.answer

        return ask


class Settled(Notice, frozen=True):
    """A question is no longer open."""


class Audience:
    """Whether any page shows a turn; the one that begins it is there from the start."""

    def __init__(self) -> None:
        self._count = 1
        self._changed = anyio.Event()

    def enter(self) -> None:
        self._count += 1
        self._tell()

    def leave(self) -> None:
        self._count -= 1
        self._tell()

    async def gone(self, patience: float) -> None:
        """Wait until nobody has been there for so long."""
        while True:
            while self._count:
                await self._changed.wait()
            with anyio.move_on_after(patience) as waiting:
                await self._changed.wait()
            if waiting.cancelled_caught and not self._count:
                return

    def _tell(self) -> None:
        self._changed.set()
        self._changed = anyio.Event()


class _Open:
    """A question, and what has been answered so far: no."""

    def __init__(self, question: Question) -> None:
        self.question = question
        self.answer: Answer = "no"
        self.is_answered = anyio.Event()

    async def settled(self, audience: Audience, patience: float) -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._given_up, audience, patience, tasks.cancel_scope)
            await self.is_answered.wait()
            tasks.cancel_scope.cancel()

    async def _given_up(self, audience: Audience, patience: float, scope: anyio.CancelScope) -> None:
        await audience.gone(patience)
        scope.cancel()


def _wider(approval: Approval) -> str:
    if not approval.skill:
        return ""
    rules = ", ".join(map(one_line, approval.always))
    return f"Always allows {rules}, as the skill {one_line(approval.skill)} wants."


def html(question: Question) -> str:
    """A question as a form: the exact command, the exact change, or every argument."""
    verb = {"read": "read", "write": "write", "run": "run"}[question.effect]
    buttons = "".join(
        f'<button class="{answer}" name="answer" value="{answer}" aria-keyshortcuts="Alt+{key}">{words} '
        f"<kbd>Alt {key}</kbd></button>"
        for answer, words, key in (("yes", "Yes", "Y"), ("no", "No", "N"), ("always", "Always in this session", "A"))
    )
    where = call_html.path_of(question.call)
    return (
        f'<form class="ask" method="post" action="{escaped(urls.to("do/answer", question.key))}" '
        f'aria-label="Permission"><p><b>{escaped(one_line(question.call.name))}</b> wants to {verb}'
        f"{f' <code>{escaped(where)}</code>' if where else ''}</p>{call_html.arguments(question.call)}"
        f"{f'<p>{escaped(question.wider)}</p>' if question.wider else ''}"
        f'<input type="hidden" name="id" value="{escaped(question.id)}"><p>{buttons}</p></form>'
    )
