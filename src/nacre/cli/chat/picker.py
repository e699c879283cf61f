"""Choose a session to resume: type to filter, move, Enter."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from datetime import datetime

from prompt_toolkit.application import Application
from prompt_toolkit.buffer import Buffer
from prompt_toolkit.formatted_text import StyleAndTextTuples
from prompt_toolkit.input import Input
from prompt_toolkit.key_binding import KeyBindings
from prompt_toolkit.layout import BufferControl, Dimension, FormattedTextControl, HSplit, Layout, VSplit, Window
from prompt_toolkit.output import ColorDepth
from prompt_toolkit.styles import Style
from prompt_toolkit.utils import get_cwidth

from nacre.cli.chat.keyboard import Keyboard, clip, clip_start
from nacre.cli.chat.reader import Candidate, Look
from nacre.cli.one_line import short_path

_ROWS_AROUND = 4
"""Rows of the heading, the filter, the help, and one to spare."""
_ROWS_EACH = 2


class Picker:
    """A list of sessions on the screen, and what is chosen of it; `safe` makes a text safe to print."""

    def __init__(
        self,
        rows: Sequence[Candidate],
        *,
        when: Callable[[datetime], str],
        safe: Callable[[str], str],
        look: Look,
        keyboard: Input | None = None,
    ) -> None:
        self._rows = rows
        self._when = when
        self._safe = safe
        self._is_everywhere = not any(row.is_here for row in rows)
        self._chosen = 0
        self._filter = Buffer(multiline=False, on_text_changed=self._reset)
        listing = Window(FormattedTextControl(self._draw_rows), height=lambda: Dimension.exact(self._height))
        prompt = Window(FormattedTextControl([("bold", "Filter: ")]), width=8, height=1)
        field = Window(BufferControl(self._filter), height=1)
        head = Window(FormattedTextControl(self._draw_head), height=1)
        foot = Window(FormattedTextControl(self._draw_help), height=1)
        self._app: Application[str | None] = Application(
            layout=Layout(HSplit([head, VSplit([prompt, field]), listing, foot]), focused_element=field),
            key_bindings=self._keys(),
            input=keyboard or Keyboard(sys.stdin),
            style=Style.from_dict({"dim": look.dim}),
            color_depth=None if look.has_colour else ColorDepth.DEPTH_1_BIT,
            erase_when_done=True,
        )
        self._app.ttimeoutlen = 0.05

    async def run(self) -> str | None:
        """Show the list until a session is chosen; returns its key, or None if the user leaves."""
        return await self._app.run_async(handle_sigint=False)

    @property
    def _matching(self) -> list[Candidate]:
        """The rows with every word of the filter: those with it in their title first, else the newest first."""
        words = self._filter.text.lower().split()
        shown = [row for row in self._rows if self._is_everywhere or row.is_here]
        found = [
            row
            for row in shown
            if all(word in f"{row.title} {row.first_words} {row.cwd} {row.key}".lower() for word in words)
        ]
        if not words:
            return found
        phrase = " ".join(words)

        def rank(row: Candidate) -> int:
            # 0 is the title itself, then come the phrase, all words, and another field.
            title = _one_line(row.title or row.first_words).lower()
            if phrase in title:
                return int(title != phrase)
            return 2 if all(word in title for word in words) else 3

        return sorted(found, key=rank)

    @property
    def _height(self) -> int:
        """How many rows the list takes; it does not shrink while somebody types."""
        room = max(self._app.output.get_size().rows - _ROWS_AROUND, _ROWS_EACH)
        return min(room, max(len(self._rows), 1) * _ROWS_EACH)

    def _reset(self, _: object) -> None:
        self._chosen = 0

    # ---- drawing

    def _draw_head(self) -> StyleAndTextTuples:
        scope = "every folder" if self._is_everywhere else "this folder"
        head = f"Resume a session of {scope} ({len(self._matching)})"
        return [("bold", clip(head, self._app.output.get_size().columns - 1))]

    def _draw_help(self) -> StyleAndTextTuples:
        columns = self._app.output.get_size().columns - 1
        other = "this folder" if self._is_everywhere else "every folder"
        scope = f" · Tab {other}" if any(row.is_here for row in self._rows) else ""
        long, short = f"↑↓ move · Enter resume{scope} · Esc leave", f"↑↓ Enter{scope} · Esc"
        return [("class:dim", long if get_cwidth(long) <= columns else clip(short, columns))]

    def _draw_rows(self) -> StyleAndTextTuples:
        found = self._matching
        if not found:
            return [("class:dim", "  no session matches")]
        most = max(self._height // _ROWS_EACH, 1)
        first = min(max(self._chosen - most // 2, 0), max(len(found) - most, 0))
        drawn: StyleAndTextTuples = []
        columns = self._app.output.get_size().columns - 1
        for place, row in enumerate(found[first : first + most], first):
            # Two lines: the title and its age; the folder and the first words.
            age = self._when(row.updated)
            room = columns - 3 - get_cwidth(age)
            name = clip(_one_line(self._safe(row.title or row.first_words or row.key)), room)
            gap = " " * (room - get_cwidth(name) + 1)
            mark, style = ("> ", "bold") if place == self._chosen else ("  ", "")
            words = _one_line(self._safe(row.first_words))
            if words.startswith(_one_line(row.title).rstrip("…")) and row.title:
                words = _one_line(self._safe(row.key))
            folder = clip_start(_one_line(self._safe(short_path(row.cwd) or "no folder")), (columns - 2) // 2)
            below = clip(f"{folder} · {words}", columns - 2)
            drawn += [(style, f"{mark}{name}"), ("class:dim", f"{gap}{age}\n  {below}\n")]
        return drawn

    # ---- keys

    def _keys(self) -> KeyBindings:
        keys = KeyBindings()

        def move(by: int) -> None:
            self._chosen = min(max(self._chosen + by, 0), max(len(self._matching) - 1, 0))

        def toggle() -> None:
            if any(row.is_here for row in self._rows):
                self._is_everywhere = not self._is_everywhere
                self._chosen = 0

        def choose() -> None:
            found = self._matching
            if found:
                self._app.exit(result=found[self._chosen].key)

        page = 5
        for names, by in ((("up", "c-p"), -1), (("down", "c-n"), 1), (("pageup",), -page), (("pagedown",), page)):
            for name in names:
                keys.add(name)(lambda _, by=by: move(by))
        keys.add("tab")(lambda _: toggle())
        keys.add("enter")(lambda _: choose())
        for name in ("escape", "c-c", "c-d"):
            keys.add(name, eager=True)(lambda _: self._app.exit(result=None))
        return keys


def _one_line(text: str) -> str:
    return " ".join(text.split())
