"""A running turn as pages show it: what the model has written so far, what is being done, who is asked.

It is a state and not a list of events, so that a page that is reloaded, or a second one, sees all of it at once.
"""

from __future__ import annotations

import secrets
from collections.abc import AsyncGenerator, Callable, Sequence

import anyio
from anyio import to_thread
from msgspec import Struct

from nacre.agent.ports import (
    Answer,
    Approval,
    Ask,
    Called,
    ChildReturned,
    Effect,
    Emit,
    Event,
    Notice,
    Returned,
    Text,
    Thought,
)
from nacre.messages import Message, ToolCall
from nacre.render.html import blocks_html, escape
from nacre.render.text import one_line
from nacre.web.http_errors import Fault, fault_of
from nacre.web.pages import message_parts, urls
from nacre.web.running_turns import Running
from nacre.web.sse import BEAT, event

_WAITING = "…"
_PACE = 0.06
"""Seconds between two looks at a draft: often enough to be read as it comes, rarely enough to be drawn each time."""
ANSWERS: tuple[Answer, ...] = ("yes", "no", "always")

# ---- questions before a tool runs


class Question(Notice, frozen=True, kw_only=True):
    """Whether a tool may run, for the person at the page; `wider` is what "always" allows besides this tool."""

    id: str
    key: str
    call: ToolCall
    effect: Effect
    wider: str = ""


class Settled(Notice, frozen=True):
    """A question is no longer open."""


class Audience:
    """Whether any page shows a turn; the one that begins it is there from the start."""

    def __init__(self) -> None:
        self._count = 1
        self._changed = anyio.Event()

    def enter(self) -> None:
        self._change(1)

    def leave(self) -> None:
        self._change(-1)

    async def gone(self, timeout: float) -> None:  # noqa: ASYNC109 - it is not the wait that ends then
        """Wait until nobody has been there for so long."""
        while True:
            while self._count:
                await self._changed.wait()
            with anyio.move_on_after(timeout) as waiting:
                await self._changed.wait()
            if waiting.cancelled_caught and not self._count:
                return

    def _change(self, by: int) -> None:
        self._count += by
        self._changed.set()
        self._changed = anyio.Event()


class _Open(Struct):
    """A question, and what has been answered so far: no."""

    question: Question
    is_answered: anyio.Event
    answer: Answer = "no"


class Questions:
    """What people are being asked, in all sessions; anyone who has a session's page may answer.

    A question stays open for `timeout` seconds when no page shows it.
    """

    def __init__(self, *, timeout: float = 60.0) -> None:
        self._timeout = timeout
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
            tool, call, wider = approval.tool, approval.call, ""
            if approval.skill:
                rules = ", ".join(map(one_line, approval.always))
                wider = f"Always allows {rules}, as the skill {one_line(approval.skill)} wants."
            id = secrets.token_urlsafe(9)
            words = f"{one_line(tool.spec.name)} waits for permission"
            question = Question(words, id=id, key=key, call=call, effect=tool.effect, wider=wider)
            asked = self._open[id] = _Open(question, anyio.Event())
            emit(asked.question)

            async def give_up() -> None:
                await audience.gone(self._timeout)
                tasks.cancel_scope.cancel()

            try:
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(give_up)
                    await asked.is_answered.wait()
                    tasks.cancel_scope.cancel()
            finally:
                del self._open[id]
                emit(Settled(""))
            return asked.answer

        return ask


def question_html(question: Question) -> str:
    """A question as a form: the exact command, the exact change, or every argument."""
    verb = {"read": "read", "write": "write", "run": "run"}[question.effect]
    buttons = "".join(
        f'<button class="{answer}" name="answer" value="{answer}" aria-keyshortcuts="Alt+{key}">{words} '
        f"<kbd>Alt {key}</kbd></button>"
        for answer, words, key in (("yes", "Yes", "Y"), ("no", "No", "N"), ("always", "Always in this session", "A"))
    )
    where = message_parts.path_of(question.call)
    return (
        f'<form class="ask" method="post" action="{escape(urls.to("do/answer", question.key))}" '
        f'aria-label="Permission"><p><b>{escape(one_line(question.call.name))}</b> wants to {verb}'
        f"{f' <code>{escape(where)}</code>' if where else ''}</p>{message_parts.arguments(question.call)}"
        f"{f'<p>{escape(question.wider)}</p>' if question.wider else ''}"
        f'<input type="hidden" name="id" value="{escape(question.id)}"><p>{buttons}</p></form>'
    )


# ---- a turn


class Stage:
    """The turn of one session that was begun on a page.

    `base` is the session's last record before it, `words` what the person said, as HTML; `step` counts the answers of
    the model, which calls divide, and `text` is what there is of the newest.
    """

    def __init__(self) -> None:
        self.audience = Audience()
        self.running: Running[Message | None] | None = None
        self.base = 0
        self.words = ""
        self.step = 0
        self.text = ""
        self.doing = _WAITING
        self._is_step_over = False
        self._version = 0
        self._woken = anyio.Event()

    def emit(self, happened: Event) -> None:
        """Take in what happens in the turn."""
        match happened:
            case Question():
                self.doing = "waiting for you"
            case Settled():
                self.doing = _WAITING
            case Called(call):
                self.doing = f"{message_parts.summary(call)} …"
                self._is_step_over = True
            case Returned():
                self.doing = _WAITING
            case Text(text):
                self._begin_step()
                self.text += text
                self.doing = ""
            case Thought():
                self._begin_step()
                self.doing = "thinking …"
            case Notice(text):
                self.doing = escape(one_line(text))
            case ChildReturned():
                return
        self.touch()

    def touch(self) -> None:
        """Wake everybody who watches."""
        self._version += 1
        self._woken.set()
        self._woken = anyio.Event()

    async def wait(self, version: int, seconds: float) -> bool:
        """Wait until something has changed since a version; False if nothing has for so long."""
        if self._version == version:
            with anyio.move_on_after(seconds):
                await self._woken.wait()
        return self._version != version

    async def events(
        self, questions: Callable[[], Sequence[Question]], *, is_stored: Callable[[int], bool], heartbeat: float
    ) -> AsyncGenerator[bytes, None]:
        """The turn as events for one page, from its beginning, and at last how it ended.

        `is_stored` tells whether the session has records after a number: from then on a page can follow it.
        """
        sent, is_there = _Sent(), False
        yield event({"base": self.base, "html": self.words}, name="begin")
        while True:
            is_over, version = self.running is not None and self.running.is_over, self._version
            asked = "".join(map(question_html, questions()))
            for piece in await to_thread.run_sync(sent.update, self.step, self.text, self.doing, asked):
                yield piece
            if is_over:
                break
            if not is_there and await to_thread.run_sync(is_stored, self.base):
                is_there = True
                yield event({}, name="stored")
            if await self.wait(version, heartbeat if is_there else _PACE):
                await anyio.sleep(_PACE)
            elif is_there:
                yield BEAT
        try:
            yield event({"joined": self.running is None or self.running.outcome() is None}, name="answer")
        except Exception as error:  # noqa: BLE001 - the status is sent; what went wrong is an event now
            yield event(fault_of(error).to_problem(), name="problem")

    def _begin_step(self) -> None:
        if self._is_step_over:
            self.step += 1
            self.text, self._is_step_over = "", False


class _Sent:
    """What one page has been sent, so that only what differs follows."""

    def __init__(self) -> None:
        self._step = -1
        self._blocks: list[str] = []
        self._doing, self._asked = _WAITING, ""

    def update(self, step: int, text: str, doing: str, asked: str) -> list[bytes]:
        """The events that bring a page up to date."""
        events: list[bytes] = []
        blocks = blocks_html(message_parts.cut(text)) if text else []
        if step != self._step:
            self._step, self._blocks = step, []
        if blocks != self._blocks:
            pairs = zip(blocks, self._blocks, strict=False)
            same = next((at for at, (new, old) in enumerate(pairs) if new != old), min(len(blocks), len(self._blocks)))
            events.append(event({"step": step, "keep": same, "html": "".join(blocks[same:])}, name="draft"))
            self._blocks = blocks
        if asked != self._asked:
            self._asked = asked
            events.append(event({"html": asked}, name="questions"))
        if doing != self._doing:
            self._doing = doing
            events.append(event({"html": doing}, name="doing"))
        return events


class Stages:
    """The turns that pages have begun and that still run, by session, and the questions in them."""

    def __init__(self, *, heartbeat: float) -> None:
        self.heartbeat = heartbeat
        self.questions = Questions()
        self._running: dict[str, Stage] = {}

    def of(self, key: str) -> Stage | None:
        """The turn that runs in a session; None if no page has begun one."""
        return self._running.get(key)

    def begin(self, key: str) -> Stage:
        """A stage for a turn that is about to begin."""
        stage = self._running[key] = Stage()
        return stage

    def end(self, key: str, stage: Stage) -> None:
        """Forget a turn that is over, or did not begin."""
        if self._running.get(key) is stage:
            del self._running[key]
