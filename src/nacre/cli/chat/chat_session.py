"""One conversation in a terminal: its session, the turn that runs, and what is shown of it."""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Awaitable, Callable, Collection, Sequence
from contextlib import suppress
from typing import Any

import anyio
from anyio.abc import TaskGroup

from nacre.agent.actor import UserMessage
from nacre.agent.ports import Event
from nacre.channels.file_parts import content, mark_pasted
from nacre.cli.chat.questions import ask_with
from nacre.cli.chat.reader import About, Footer, Reader
from nacre.cli.chat.screen import Screen
from nacre.errors import ModelNotAllowed, NacreError, ProviderError, SessionBusy, Stopped
from nacre.history.message_text import text_of
from nacre.history.replies import is_final
from nacre.messages import Message
from nacre.runtime.app import App
from nacre.runtime.chat_start import opening_meta
from nacre.runtime.summarizer import Draft

logger = logging.getLogger(__name__)

_AGAIN = 0.3
_WAIT = "[w]ait, [f]ork into a new session, or [c]ancel? "

Begin = Callable[[], Awaitable[Message | None]]


class Talk:
    """A session with a person at it, who may write while a turn runs."""

    def __init__(self, app: App, screen: Screen, *, key: str, make_reader: Callable[[Talk], Reader]) -> None:
        self.app = app
        self.screen = screen
        self.key = key
        self.cwd = ""
        self.parts: list[dict[str, Any]] = []
        self.draft = ""
        self.left: list[tuple[str, int, list[dict[str, Any]]]] = []
        self.tasks: TaskGroup | None = None
        self._drawing = screen.drawing()
        self._turns = 0
        self._since = 0.0
        self._is_stopping = False
        self._wait: anyio.CancelScope | None = None
        self._settled = anyio.Event()
        self._title = ""
        self._plain_titles: dict[str, str] = {}
        self._titling: anyio.CancelScope | None = None
        self._used = 0
        self.reader = make_reader(self)
        app.compactor.listeners.append(self._tell_summary)
        self._ask = ask_with(
            screen.question,
            # After everything that was said and thought before the question.
            lambda lines: self.show(*self._drawing.pause(), *lines),
            self._read_answer,
        )

    # ---- what is seen

    @property
    def is_at_work(self) -> bool:
        return self._turns > 0

    @property
    def live(self) -> list[str]:
        """Lines of the turn that may still change."""
        return self._drawing.live if self.is_at_work else []

    @property
    def status(self) -> str:
        """What happens now, and for how long; "" if nothing does."""
        if not self.is_at_work:
            return ""
        waiting = f" · {self._turns - 1} waiting" if self._turns > 1 else ""
        doing = "stopping" if self._is_stopping else "waiting" if self._wait is not None else self._drawing.doing
        return f"{doing} {time.monotonic() - self._since:.0f} s{waiting} · Ctrl-C stops it"

    @property
    def footer(self) -> Footer:
        """The model, how full its context is, and the session."""
        share = f"{100 * self._used // max(self.app.tokens, 1)}%"
        return Footer(
            model=self.screen.safe(self.app.model),
            used=f"{_short(self._used)}/{_short(self.app.tokens)} tokens ({share})",
            share=share,
            title=self.screen.safe(self._title or self.key),
        )

    def show(self, *lines: str) -> None:
        self.reader.show(lines)

    def _alert(self, text: str) -> None:
        """Call somebody who has waited long enough to look elsewhere."""
        if time.monotonic() - self._since >= self.screen.look.bell_after:
            self.reader.alert(f"nacre: {text}")

    async def _read_answer(self, question: str, answers: Collection[str], about: About | None = None) -> str:
        self._alert("Waiting for your answer to a question")
        return await self.reader.ask(question, answers, about)

    def complain(self, error: object) -> None:
        """Tell what went wrong."""
        first, *rest = str(error).strip().split("\n")
        self.show(*(self.screen.paint(line, "31") for line in self.screen.wrap(f"× {self.screen.safe(first)}")))
        self.show(*(f"  {self.screen.safe(line)}" for line in rest))

    def hint(self, text: str) -> None:
        """Tell something in passing, in whole words and as many lines as it takes."""
        self.show(*(self.screen.paint(line, "2") for line in self.screen.wrap(text)))

    def _tell_summary(self, key: str, draft: Draft) -> None:
        if key == self.key:
            self.hint(draft.sentence)
            self.look()
            self.reader.refresh()

    # ---- which session

    def enter(self, key: str) -> None:
        """Switch to another session."""
        self.key = key
        self.draft, self.left = "", []
        self.look()

    def look(self) -> None:
        """Read the title of the session and how full its context is."""
        title = self.app.sessions.get_meta(self.key).get("title", "")
        self._title = title if isinstance(title, str) else ""
        self._used = self.app.filling(self.key).used

    def is_unfinished(self) -> bool:
        """Tell whether a message or a tool result waits for an answer."""
        last = self.app.sessions.get_history(self.key, last=1)
        return bool(last) and not is_final(last[0])

    # ---- turns

    def say(self, words: str, *, pasted: Sequence[str] = ()) -> None:
        """Send a message, of which some texts may be pasted; the answer is drawn as it comes."""
        whole, extra = content(words, self.parts), mark_pasted(words, pasted)
        self.parts = []
        id = uuid.uuid4().hex

        async def deliver() -> Message | None:
            meta = opening_meta(self.app.sessions, self.key, cwd=self.cwd, text=words)
            if "title" in meta:
                self._plain_titles[self.key] = meta["title"]
            inbound = UserMessage(key=self.key, content=whole, id=id, sender="terminal", meta=meta, extra=extra)
            return await self.app.kernel.deliver(inbound, emit=self._emit, ask=self._ask)

        self._start(deliver, words)

    def go_on(self) -> None:
        """Finish a turn that was interrupted, unless another process runs it."""
        hold = self.app.sessions.hold(self.key)
        try:
            hold.take()
        except SessionBusy:
            self.hint("another process is running a turn in this session; when you send a message, you can wait for it")
            return
        hold.close()
        self.hint("the last turn was interrupted; finishing it")

        async def resume() -> Message | None:
            return await self.app.kernel.resume(self.key, emit=self._emit, ask=self._ask)

        self._start(resume, "")

    def stop(self) -> bool:
        """Stop the turn that runs; False if it was asked to stop before, and still runs."""
        if self._is_stopping:
            return False
        self._is_stopping = True
        if self._wait is not None:
            self._wait.cancel()
        elif self.tasks is not None:
            self.tasks.start_soon(self._stop_turn)
        return True

    async def settled(self) -> None:
        """Wait until nothing runs."""
        while self.is_at_work:
            await self._settled.wait()

    def _start(self, begin: Begin, words: str) -> None:
        if self.tasks is None:
            raise NacreError("the conversation has not started")
        if not self._turns:
            self._since, self._is_stopping = time.monotonic(), False
            self._settled = anyio.Event()
        self._turns += 1
        if self._titling is not None:
            self._titling.cancel()
        self.tasks.start_soon(self._turn, begin, words)

    async def _turn(self, begin: Begin, words: str) -> None:
        try:
            await self._ask_about_remote(words)
            answer = await self._unless_busy(begin)
            self.show(*self._ended())
            if answer is not None and not text_of(answer).strip():
                self.hint("the model gave no answer: ask again, or let another model answer (/model)")
                self.show("")
            elif answer is not None and answer.extra.get("stopped") in {"steps", "repeated"}:
                # Nobody said this: it is in the log alone.
                self.hint(text_of(answer).strip("[]"))
                self.show("")
            if answer is not None and self.key in self._plain_titles and self.tasks is not None:
                self.tasks.start_soon(self._improve_title, self.key, self._plain_titles.pop(self.key))
        except Stopped:
            self.show(*self._ended(), self.screen.paint("■ stopped; the session continues from here", "33"), "")
        except NacreError as error:
            self.show(*self._ended())
            self.complain(error)
            if isinstance(error, ProviderError) and self.is_unfinished():
                self.hint("  your message is stored: /resume asks again, /model changes the model")
            self.show("")
        except Exception as error:
            # The edge: a bug in one turn does not end the conversation.
            logger.exception("a turn failed")
            self.show(*self._ended())
            self.complain(f"a bug in nacre: {type(error).__name__}: {error}")
        finally:
            self._turns -= 1
            self._is_stopping = False
            if not self._turns:
                self._settled.set()
                self._alert("The answer is ready")
            self._since = time.monotonic()
            try:
                self.look()
            except Exception as error:
                # The same edge: what is in the footer is not worth a conversation.
                logger.exception("a session cannot be read")
                self.complain(error)
            self.reader.refresh()

    async def _improve_title(self, key: str, title: str) -> None:
        """Let the model name a session, unless it has another title by then; the next message ends the attempt."""
        # What is in the footer is not worth a conversation.
        with anyio.CancelScope() as self._titling, suppress(NacreError):
            if await self.app.improve_title(key, title):
                self.look()
                self.reader.refresh()

    def _ended(self) -> list[str]:
        lines = self._drawing.end()
        return [*lines, *([""] if lines and lines[-1] else [])]

    async def _stop_turn(self) -> None:
        """Stop the turn, also one that is only about to begin."""
        while self._is_stopping and self.is_at_work and not self.app.kernel.stop(self.key):  # noqa: ASYNC110 - it says by no event that it begins
            await anyio.sleep(_AGAIN / 10)

    def _emit(self, event: Event) -> None:
        lines = self._drawing.take(event)
        if lines:
            self.reader.show(lines)
        self.reader.refresh()

    async def _ask_about_remote(self, words: str) -> None:
        """Let a person decide whether a session of a local model is sent to a remote one; raises ModelNotAllowed."""
        question = self.app.remote_question(self.key)
        if not question:
            return
        self.show(self.screen.safe(question))
        if await self.reader.ask("Send it? [y]es or [n]o: ", ("y", "yes", "n", "no")) in {"y", "yes"}:
            self.app.allow_remote(self.key)
            return
        self.draft = self.draft or words
        raise ModelNotAllowed("nothing was sent\n/model lists the models, /model NAME lets another one answer")

    # ---- another process

    async def _unless_busy(self, begin: Begin) -> Message | None:
        """Begin a turn; if another process is at one, let a person say what to do."""
        try:
            return await begin()
        except SessionBusy as busy:
            self.complain(busy)
        with anyio.CancelScope() as scope:
            self._wait = scope
            try:
                answer = await self.reader.ask(_WAIT, ("w", "wait", "f", "fork", "c", "cancel", "no"))
                if answer in {"f", "fork"}:
                    key = self.app.sessions.free_key(self.key)
                    self.app.sessions.fork(self.key, key)
                    self.enter(key)
                    self.hint(f"forked: you are now in {self.screen.safe(key)}")
                    return await begin()
                while answer in {"w", "wait"}:
                    try:
                        return await begin()
                    except SessionBusy:
                        await anyio.sleep(_AGAIN)
                raise Stopped("the message was cancelled")
            finally:
                self._wait = None
        raise Stopped("waiting was cancelled")


def _short(count: int) -> str:
    return str(count) if count < 1000 else f"{count / 1000:.1f}k"  # noqa: PLR2004 - a kilo
