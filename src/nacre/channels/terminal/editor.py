"""Line editing with prompt_toolkit: one line at the bottom to write in, and the conversation above it."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import AsyncGenerator, Collection, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import IO, Protocol

from prompt_toolkit import PromptSession
from prompt_toolkit.application import run_in_terminal
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document
from prompt_toolkit.formatted_text import ANSI, StyleAndTextTuples, to_formatted_text
from prompt_toolkit.history import InMemoryHistory
from prompt_toolkit.input.vt100 import Vt100Input
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.output import ColorDepth
from prompt_toolkit.patch_stdout import patch_stdout
from prompt_toolkit.styles import Style
from prompt_toolkit.utils import get_cwidth

from nacre.channels.terminal.completion import Completion as Choices
from nacre.channels.terminal.recall import Recall

_MARK = "> "
_FRAME = 0.1
_TWICE = 2.0
_TOO_SOON = 0.5
_SPINNER = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
_ROWS_BELOW = 6
_STYLE = Style.from_dict({"bottom-toolbar": "noreverse ansibrightblack", "mark": "bold", "status": "ansibrightblack"})


class Face(Protocol):
    """What the editor shows, and whom it tells that a person wants to stop."""

    @property
    def is_at_work(self) -> bool: ...

    @property
    def live(self) -> list[str]: ...

    @property
    def status(self) -> str: ...

    @property
    def footer(self) -> str: ...

    def stop(self) -> bool:
        """Stop the turn; False if that was asked for before."""


class Editor:
    """Reads lines while the conversation goes on above; the last lines of it may still change."""

    reads_ahead = True

    def __init__(self, face: Face, *, recall: Recall, choices: Choices, stream: IO[str], has_colour: bool) -> None:
        self._face = face
        self._recall = recall
        self._stream = stream
        self._lines: list[str] = []
        self._live: list[str] = []
        self._printing: asyncio.Task[None] | None = None
        self._question: _Question | None = None
        self._interrupted = float("-inf")
        self._hint = ""
        self._session: PromptSession[str] = PromptSession(
            message=self._message,
            input=_Keyboard(sys.stdin),
            multiline=True,
            prompt_continuation=lambda width, *_: " " * width,
            bottom_toolbar=self._toolbar,
            key_bindings=self._keys(),
            completer=_Completer(choices),
            history=InMemoryHistory(recall.lines),
            style=_STYLE,
            color_depth=None if has_colour else ColorDepth.DEPTH_1_BIT,
            reserve_space_for_menu=4,
            enable_suspend=True,
        )
        self._session.app.ttimeoutlen = 0.05
        self._session.app.min_redraw_interval = _FRAME / 2
        self._session.default_buffer.on_text_changed += self._changed

    # ---- as a reader

    def held(self) -> AbstractContextManager[None]:
        """Have the keyboard, so that a key between two lines is for the next line."""
        return self._session.input.raw_mode()

    async def read(self, draft: str = "") -> str:
        """The next message or command; raises EOFError when somebody leaves."""
        try:
            with patch_stdout(raw=True):
                text = await self._session.prompt_async(default=draft)
        finally:
            await self._printed()
        self._recall.add(text)
        return text

    async def ask(self, question: str, answers: Collection[str]) -> str:
        """The answer to a question; a message that was being written waits meanwhile."""
        # What is asked about is seen before the question is.
        await self._printed()
        buffer = self._session.default_buffer
        self._question = asked = _Question(question, answers, draft=buffer.text)
        buffer.reset()
        self.refresh()
        try:
            return await asked.answer
        finally:
            self._question = None
            buffer.text = asked.draft
            buffer.cursor_position = len(asked.draft)
            self.refresh()

    def show(self, lines: Sequence[str]) -> None:
        """Print lines above the one that is written in."""
        self._lines += lines
        if not self._session.app.is_running:
            self._write()
        elif self._printing is None or self._printing.done():
            self._printing = asyncio.ensure_future(self._print())

    def refresh(self) -> None:
        """Draw anew what may change."""
        self._session.app.invalidate()

    def _changed(self, _: object) -> None:
        self._hint = ""

    # ---- printing

    async def _print(self) -> None:
        while self._lines:
            await run_in_terminal(self._write)

    async def _printed(self) -> None:
        if self._printing is not None:
            await self._printing
        if self._lines:
            self._write()

    def _write(self) -> None:
        """Print what waits; what may still change changes with it, so that no line is seen twice or not at all."""
        lines, self._lines = self._lines, []
        self._live = self._face.live
        if lines:
            self._stream.write("".join(f"{line}\n" for line in lines))
            self._stream.flush()

    # ---- what is drawn

    def _message(self) -> StyleAndTextTuples:
        if self._session.app.is_done:
            return [("class:mark", _MARK)]
        if not self._lines:
            self._live = self._face.live
        rows = max(self._session.app.output.get_size().rows - _ROWS_BELOW, 1)
        above = "".join(f"{line}\n" for line in self._live[-rows:])
        shown: StyleAndTextTuples = [*to_formatted_text(ANSI(above))]
        if self._question is not None:
            return [*shown, ("class:mark", self._question.text)]
        if status := self._face.status:
            frame = _SPINNER[int(time.monotonic() / _FRAME) % len(_SPINNER)]
            shown.append(("class:status", f"{self._fitting(f'{frame} {status}')}\n"))
        return [*shown, ("class:mark", _MARK)]

    def _toolbar(self) -> StyleAndTextTuples:
        return [("", self._fitting(self._hint or self._face.footer))]

    def _fitting(self, text: str) -> str:
        room = self._session.app.output.get_size().columns - 1
        while text and get_cwidth(text) > room:
            text = text[:-2] + "…" if len(text) > 1 else ""
        return text

    # ---- keys

    def _keys(self) -> KeyBindings:
        keys = KeyBindings()
        keys.add("enter")(self._entered)
        keys.add("escape", "enter")(lambda event: event.current_buffer.insert_text("\n"))
        keys.add("c-c")(self._wants_stop)
        return keys

    def _entered(self, event: KeyPressEvent) -> None:
        buffer = event.current_buffer
        self._hint = ""
        if self._question is not None:
            text = buffer.text
            buffer.reset()
            self._question.settle(text)
        elif buffer.document.text_before_cursor.endswith("\\"):
            buffer.delete_before_cursor()
            buffer.insert_text("\n")
        else:
            buffer.validate_and_handle()

    def _wants_stop(self, event: KeyPressEvent) -> None:
        """Stop the turn, or clear the line, or leave if that was wanted just before."""
        now = time.monotonic()
        if self._face.is_at_work:
            if not self._face.stop():
                event.app.exit(exception=EOFError())
        elif event.current_buffer.text:
            event.current_buffer.reset()
        elif now - self._interrupted < _TWICE:
            event.app.exit(exception=EOFError())
        else:
            self._hint = "Ctrl-C again leaves, so does Ctrl-D"
            self._interrupted = now
        event.app.invalidate()


class _Keyboard(Vt100Input):
    """The keyboard; it stays ours while something is printed, so that no key is lost to the terminal meanwhile."""

    def cooked_mode(self) -> AbstractContextManager[None]:
        return nullcontext()


class _Question:
    """A question that somebody has to answer; what they typed before they could have seen it is no answer."""

    def __init__(self, text: str, answers: Collection[str], *, draft: str) -> None:
        self.text = text
        self.draft = draft
        self._answers = answers
        self.answer: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._from = time.monotonic() + (_TOO_SOON if draft else 0.0)

    def settle(self, text: str) -> None:
        answer = text.strip().lower()
        if answer in self._answers and not self.answer.done() and time.monotonic() >= self._from:
            self.answer.set_result(answer)


class _Completer(Completer):
    """What may follow, as prompt_toolkit asks for it."""

    def __init__(self, choices: Choices) -> None:
        self._choices = choices

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> list[Completion]:  # noqa: ARG002 - as it is called
        return []

    async def get_completions_async(
        self,
        document: Document,
        complete_event: CompleteEvent,  # noqa: ARG002 - the same
    ) -> AsyncGenerator[Completion, None]:
        for choice in await self._choices.choices(document.text_before_cursor):
            yield Completion(choice.word, start_position=-choice.replaces, display_meta=choice.meaning)
