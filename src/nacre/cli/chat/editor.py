"""Line editing with prompt_toolkit: an input line at the bottom, and the conversation above it."""

from __future__ import annotations

import asyncio
import sys
import textwrap
import time
from collections.abc import AsyncGenerator, Collection, Sequence
from contextlib import AbstractContextManager
from typing import IO

from prompt_toolkit import PromptSession
from prompt_toolkit.application import in_terminal, run_in_terminal
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document
from prompt_toolkit.filters import Condition, is_searching
from prompt_toolkit.formatted_text import ANSI, StyleAndTextTuples, to_formatted_text
from prompt_toolkit.history import InMemoryHistory
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.keys import Keys
from prompt_toolkit.output import ColorDepth
from prompt_toolkit.patch_stdout import patch_stdout
from prompt_toolkit.search import stop_search
from prompt_toolkit.styles import Style
from prompt_toolkit.utils import get_cwidth

from nacre.cli.chat.chat_session import Talk
from nacre.cli.chat.external_editor import edit
from nacre.cli.chat.input_history import Recall
from nacre.cli.chat.keyboard import Keyboard, clip
from nacre.cli.chat.line_completion import Completion as Choices
from nacre.cli.chat.paste import Pastes
from nacre.cli.chat.reader import About, Footer, Line, Look
from nacre.errors import NacreError

_MARK = "> "
_FRAME = 0.1
_TWICE = 2.0
_TOO_SOON = 0.5
_SPINNER = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
_ROWS_BELOW = 6
_SHORTEST_TITLE = 12


class Editor:
    """Reads lines while the conversation goes on above; its last lines may still change."""

    reads_ahead = True

    def __init__(self, talk: Talk, *, recall: Recall, choices: Choices, stream: IO[str], look: Look) -> None:
        self._talk = talk
        self._recall = recall
        self._stream = stream
        self._look = look
        self._lines: list[str] = []
        self._live: list[str] = []
        self._printing: asyncio.Task[None] | None = None
        self._question: _Question | None = None
        self._interrupted = float("-inf")
        self._hint = ""
        self._pastes = Pastes()
        self._keyboard = Keyboard(sys.stdin)
        self._completer = _Completer(choices)
        self._session: PromptSession[str] = PromptSession(
            message=self._message,
            input=self._keyboard,
            multiline=True,
            prompt_continuation=lambda width, *_: " " * width,
            bottom_toolbar=self._toolbar,
            key_bindings=self._keys(),
            completer=self._completer,
            history=InMemoryHistory(recall.lines),
            style=Style.from_dict({"bottom-toolbar": f"noreverse {look.dim}", "mark": "bold", "status": look.dim}),
            color_depth=None if look.has_colour else ColorDepth.DEPTH_1_BIT,
            reserve_space_for_menu=4,
        )
        self._session.app.ttimeoutlen = 0.05
        self._session.app.min_redraw_interval = _FRAME / 2
        self._session.default_buffer.on_text_changed += self._clear_hint

    # ---- as a reader

    def held(self) -> AbstractContextManager[None]:
        """Have the keyboard, so that a key between two lines is for the next line."""
        return self._keyboard.held()

    def released(self) -> AbstractContextManager[None]:
        """Give the terminal to another program."""
        return self._keyboard.released()

    @property
    def is_released(self) -> bool:
        """Whether another program has the terminal."""
        return self._keyboard.is_released

    def resume(self) -> None:
        """Draw again after the process was stopped by a signal."""
        self._keyboard.restore()
        self.refresh()

    async def read(self, draft: str = "") -> Line:
        """Read the next message or command; raises EOFError when the user leaves."""
        self._pastes.clear()
        if draft:
            self._pastes.add_foreign(draft)
        try:
            with patch_stdout(raw=True):
                text = await self._session.prompt_async(default=draft, handle_sigint=False)
        finally:
            await self._finish_printing()
        # A Ctrl-C before this line and one after it are not twice.
        self._interrupted = float("-inf")
        line = Line(self._pastes.whole(text), self._pastes.foreign, tuple(self._pastes.pasted))
        self._recall.add(line.text)
        return line

    async def ask(self, question: str, answers: Collection[str], about: About | None = None) -> str:
        """Ask until one of the answers is given; a message that was being written waits meanwhile."""
        # What was printed before is seen before the question is.
        await self._finish_printing()
        if self._session.app.layout.is_searching:
            stop_search()
        buffer = self._session.default_buffer
        pastes, self._pastes = self._pastes, Pastes()
        self._question = asked = _Question(question, answers, draft=buffer.text, about=about)
        # Without completion no rows are kept free for its menu.
        self._session.completer = None
        buffer.reset()
        self.refresh()
        try:
            return await asked.answer
        finally:
            self._question, self._pastes, self._session.completer = None, pastes, self._completer
            self._hint = ""
            buffer.text = asked.draft
            buffer.cursor_position = len(asked.draft)
            self.show(asked.drawn)
            self.refresh()

    def show(self, lines: Sequence[str]) -> None:
        """Print lines above the input line."""
        self._lines += lines
        if not self._session.app.is_running:
            self._write()
        elif self._printing is None or self._printing.done():
            self._printing = asyncio.ensure_future(self._print())

    def refresh(self) -> None:
        """Draw again what may change."""
        self._session.app.invalidate()

    def alert(self, text: str) -> None:
        """Call somebody who looks elsewhere: by the bell, or by a notification of the terminal."""
        output = self._session.app.output
        if self._look.bell == "bell":
            output.bell()
        elif self._look.bell == "notify":
            output.write_raw(f"\x1b]9;{''.join(filter(str.isprintable, text))}\x07")
        output.flush()

    def _clear_hint(self, _: object) -> None:
        self._hint = ""

    # ---- printing

    async def _print(self) -> None:
        while self._lines:
            await run_in_terminal(self._write)

    async def _finish_printing(self) -> None:
        if self._printing is not None:
            await self._printing
        if self._lines:
            self._write()

    def _write(self) -> None:
        """Print what waits; what may still change changes with it, so that no line is seen twice or not at all."""
        lines, self._lines = self._lines, []
        self._live = self._talk.live
        if lines:
            self._stream.write("".join(f"{line}\n" for line in lines))
            self._stream.flush()

    # ---- drawing

    def _message(self) -> StyleAndTextTuples:
        if self._session.app.is_done:
            return [("class:mark", _MARK)]
        size = self._session.app.output.get_size()
        if self._question is not None:
            return self._question.draw(size.columns, size.rows)
        if not self._lines:
            self._live = self._talk.live
        above = "".join(f"{line}\n" for line in self._live[-max(size.rows - _ROWS_BELOW, 1) :])
        shown: StyleAndTextTuples = [*to_formatted_text(ANSI(above))]
        if status := self._talk.status:
            frame = _SPINNER[int(time.monotonic() / _FRAME) % len(_SPINNER)]
            shown.append(("class:status", f"{clip(f'{frame} {status}', size.columns - 1)}\n"))
        return [*shown, ("class:mark", _MARK)]

    def _toolbar(self) -> StyleAndTextTuples:
        columns = self._session.app.output.get_size().columns - 1
        return [("", clip(self._hint, columns) if self._hint else footer_text(self._talk.footer, columns))]

    # ---- keys

    def _keys(self) -> KeyBindings:
        keys = KeyBindings()
        is_writing = ~is_searching
        keys.add("enter", filter=is_writing)(self._enter)
        keys.add("escape", "enter", filter=is_writing)(lambda event: event.current_buffer.insert_text("\n"))
        keys.add("c-c", filter=is_writing)(self._interrupt)
        keys.add("c-z")(lambda _: run_in_terminal(self._keyboard.suspend))
        keys.add("c-x", "c-e", filter=is_writing & Condition(lambda: self._question is None))(
            lambda event: event.app.create_background_task(self._edit())
        )
        keys.add(Keys.BracketedPaste, filter=is_writing)(
            lambda event: event.current_buffer.insert_text(self._pastes.add(event.data))
        )
        keys.add("backspace", filter=is_writing & Condition(lambda: bool(self._mark_before_cursor())))(
            lambda event: event.current_buffer.delete_before_cursor(len(self._mark_before_cursor()))
        )
        return keys

    def _enter(self, event: KeyPressEvent) -> None:
        buffer = event.current_buffer
        self._hint = ""
        if self._question is not None:
            text = self._pastes.whole(buffer.text)
            buffer.reset()
            self._hint = self._question.settle(text)
        elif buffer.document.text_before_cursor.endswith("\\"):
            buffer.delete_before_cursor()
            buffer.insert_text("\n")
        else:
            buffer.validate_and_handle()

    def _interrupt(self, event: KeyPressEvent) -> None:
        """Stop the turn, or clear the line, or leave if that was wanted just before."""
        now = time.monotonic()
        if self._talk.is_at_work:
            if not self._talk.stop():
                event.app.exit(exception=EOFError())
        elif event.current_buffer.text:
            event.current_buffer.reset()
            self._pastes.clear()
        elif now - self._interrupted < _TWICE:
            event.app.exit(exception=EOFError())
        else:
            self._hint = "Ctrl-C again to leave, or Ctrl-D"
            self._interrupted = now
        event.app.invalidate()

    def _mark_before_cursor(self) -> str:
        return self._pastes.mark_before(self._session.default_buffer.document.text_before_cursor)

    async def _edit(self) -> None:
        """Write the message in $EDITOR; what is printed meanwhile waits until it is closed."""
        buffer = self._session.default_buffer
        before = self._pastes.whole(buffer.text)
        async with in_terminal():
            try:
                with self._keyboard.released():
                    after = await asyncio.to_thread(edit, before)
            except NacreError as error:
                self._hint = str(error)
                return
        self._pastes.add_edited(before, after)
        buffer.text = after
        buffer.cursor_position = len(after)


class _Question:
    """A question that is on the screen until it is answered; what was typed before it was seen is no answer."""

    def __init__(self, text: str, answers: Collection[str], *, draft: str, about: About | None) -> None:
        self.draft = draft
        self.answer: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self.drawn: list[str] = []
        self._text = text.strip()
        self._answers = answers
        self._about = about
        self._size = (0, 0)
        self._from = time.monotonic() + (_TOO_SOON if draft else 0.0)

    def draw(self, columns: int, rows: int) -> StyleAndTextTuples:
        """Draw what is asked about, as much of its beginning as fits, and the question below it."""
        lines = textwrap.wrap(self._text, max(columns - 1, 10))
        if self._about is not None and self._size != (columns, rows):
            # One row for the answer, one for the footer, one to spare.
            room = max(rows - len(lines) - 3, 1)
            self._size, self.drawn = (columns, rows), self._about(room)[:room]
        above = "".join(f"{line}\n" for line in self.drawn)
        question = "".join(f"{line}\n" for line in lines)
        return [*to_formatted_text(ANSI(above)), ("class:mark", f"{question}{_MARK}")]

    def settle(self, text: str) -> str:
        """Take an answer; a text that is none gives a hint, and a message stays for later."""
        answer = text.strip().lower()
        if answer in self._answers and not self.answer.done() and time.monotonic() >= self._from:
            self.answer.set_result(answer)
            return ""
        if " " in answer or "\n" in answer:
            self.draft = f"{self.draft}\n{text}" if self.draft else text
        return f"Please answer the question: {', '.join(one for one in self._answers if len(one) == 1)}"


class _Completer(Completer):
    """Completions, as prompt_toolkit asks for them."""

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


def footer_text(footer: Footer, columns: int) -> str:
    """The footer in one line: the title is cut first, then the model's provider and the exact counts go."""
    short_model = footer.model.partition("/")[2] or footer.model
    for model, used in ((footer.model, footer.used), (short_model, footer.share)):
        facts = f"{model} · {used} · "
        room = columns - get_cwidth(facts)
        if room >= min(get_cwidth(footer.title), _SHORTEST_TITLE):
            return f"{facts}{clip(footer.title, room)}"
    return clip(f"{footer.share} · {short_model}", columns)
