"""A running turn as pages show it: what the model has written so far, what is being done, who is asked.

It is a state and not a list of events, so that a page that is reloaded, or a second one, sees all of it at once.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterator, Sequence

import anyio
from anyio import to_thread

from nacre.agent.ports import Called, Event, Notice, Returned, Text, Thought
from nacre.messages import Message
from nacre.render.html import blocks_html, escaped
from nacre.render.text import one_line
from nacre.web.http_errors import fault_of
from nacre.web.pages import call_html
from nacre.web.pages.approvals import Audience, Question, Questions, Settled
from nacre.web.pages.approvals import html as question_html
from nacre.web.running_turns import Running
from nacre.web.sse import BEAT, event

_WAITING = "…"
_PACE = 0.06
"""Seconds between two looks at a draft: often enough to be read as it comes, seldom enough to be drawn each time."""


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

    @property
    def is_over(self) -> bool:
        return self.running is not None and self.running.is_over

    def emit(self, happened: Event) -> None:
        """Take in what happens in the turn."""
        match happened:
            case Question():
                self.doing = "waiting for you"
            case Settled():
                self.doing = _WAITING
            case Called(call):
                self.doing = f"{call_html.doing(call)} …"
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
                self.doing = escaped(one_line(text))
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

    async def told(
        self, questions: Callable[[], Sequence[Question]], *, is_stored: Callable[[int], bool], heartbeat: float
    ) -> AsyncGenerator[bytes, None]:
        """The turn as events for one page, from its beginning, and at last how it ended.

        `is_stored` tells whether the session has records behind a number: from then on a page can follow it.
        """
        sent, is_there = _Sent(), False
        yield event({"base": self.base, "html": self.words}, name="begin")
        while True:
            is_over, version = self.is_over, self._version
            asked = "".join(map(question_html, questions()))
            for piece in await to_thread.run_sync(sent.news, self.step, self.text, self.doing, asked):
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
        yield self._end()

    def _end(self) -> bytes:
        try:
            return event({"joined": self.running is None or self.running.outcome() is None}, name="answer")
        except Exception as error:  # noqa: BLE001 - the status is sent; what went wrong is an event now
            return event(fault_of(error).to_problem(), name="problem")

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

    def news(self, step: int, text: str, doing: str, asked: str) -> list[bytes]:
        """The events that bring a page up to date."""
        return list(self._news(step, text, doing, asked))

    def _news(self, step: int, text: str, doing: str, asked: str) -> Iterator[bytes]:
        blocks = blocks_html(call_html.cut(text)) if text else []
        if step != self._step:
            self._step, self._blocks = step, []
        if blocks != self._blocks:
            pairs = zip(blocks, self._blocks, strict=False)
            same = next((at for at, (new, old) in enumerate(pairs) if new != old), min(len(blocks), len(self._blocks)))
            yield event({"step": step, "keep": same, "html": "".join(blocks[same:])}, name="draft")
            self._blocks = blocks
        if asked != self._asked:
            self._asked = asked
            yield event({"html": asked}, name="questions")
        if doing != self._doing:
            self._doing = doing
            yield event({"html": doing}, name="doing")


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
        """Let go of a turn that is over, or did not begin."""
        if self._running.get(key) is stage:
            del self._running[key]
