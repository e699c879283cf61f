"""How a conversation in a terminal shows things, and how it finds sessions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from nacre.agent.ports import Approval, Change
from nacre.cli.chat.resume import describe_origin, make_look, open_session, pick_other
from nacre.cli.commands.show import live_view
from nacre.cli.commands.transfer import write
from nacre.cli.failures import Failure
from nacre.cli.one_line import clean, short_path
from nacre.cli.output import Out
from nacre.cli.store_choice import remember_rows
from nacre.errors import NacreError
from nacre.messages import SessionInfo, Stored
from nacre.render import terminal
from nacre.render.changes import change_lines
from nacre.render.html_page import page
from nacre.render.markdown_export import document
from nacre.render.text import clip, one_line, pad, width, wrap
from nacre.render.turn import Turn, question
from nacre.runtime.app import App

_SHOWN = 6
"""How many messages of a session are shown when it is resumed."""
_NARROW = 30
"""How many columns a meaning needs next to its name."""


class Screen:
    """How a conversation shows things, and how it finds sessions."""

    def __init__(self, app: App, out: Out, *, folder: Path) -> None:
        self._app = app
        self._out = out
        self._folder = folder
        self.look = make_look(out)

    def safe(self, text: str) -> str:
        """A text that is safe to print."""
        return clean(text, lines=True)

    def paint(self, text: str, sgr: str) -> str:
        return self._out.sheet().paint(text, sgr)

    def wrap(self, text: str) -> list[str]:
        """Lines that fit the screen."""
        return list(wrap(text, self._out.sheet().columns - 1))

    def drawing(self) -> Turn:
        return Turn(self._out.sheet)

    def question(self, approval: Approval, limit: int) -> list[str]:
        """A call that somebody has to allow, within a limit of lines."""
        return question(approval, self._out.sheet(), limit=limit)

    def change(self, change: Change) -> list[str]:
        """What was done to a file."""
        return list(change_lines(change, self._out.sheet()))

    def history(self, key: str) -> Sequence[Stored]:
        """The live messages of a session."""
        return live_view(self._app.sessions, key).stored if self._app.sessions.exists(key) else []

    def last_messages(self, key: str) -> list[str]:
        """The last messages of a session, drawn."""
        excerpt, sheet = live_view(self._app.sessions, key, last=_SHOWN), self._out.sheet()
        head = terminal.cover(excerpt.cover, sheet, when=self._out.when)
        return [*head, *terminal.conversation(excerpt.parts(), sheet, when=self._out.when)]

    def session_rows(self, infos: Sequence[SessionInfo]) -> list[str]:
        """Sessions as rows, numbered so that @3 names one."""
        remember_rows(self._app.sessions.location, [info.key for info in infos])
        cells = []
        for n, info in enumerate(infos, 1):
            cwd = self._app.sessions.get_meta(info.key).get("cwd")
            facts = (self._out.when(info.updated), info.title, short_path(cwd) if isinstance(cwd, str) else "")
            cells.append((f"@{n} {info.key}", " · ".join(filter(None, facts))))
        return self.rows(cells)

    def rows(self, rows: Sequence[tuple[str, str]]) -> list[str]:
        """Names and their meanings in two columns; on a narrow screen the meaning is below the name."""
        sheet = self._out.sheet()
        cells = [(one_line(name), one_line(meaning)) for name, meaning in rows]
        left = max((width(name) for name, _ in cells), default=0)
        is_narrow = sheet.columns - left < _NARROW
        indent = 6 if is_narrow else left + 4
        lines: list[str] = []
        for name, meaning in cells:
            first, *others = wrap(meaning, max(sheet.columns - indent - 1, 8))
            head = sheet.paint(clip(name, sheet.columns - 3) if is_narrow else pad(name, left), "1")
            lines += (
                [f"  {head}", *([f"      {first}"] if first else [])] if is_narrow else [f"  {head}  {first}".rstrip()]
            )
            lines += [f"{' ' * indent}{other}" for other in others]
        return lines

    async def pick(self) -> str | None:
        """Let the person choose another session."""
        return await pick_other(self._app, self._folder, self._out)

    def find(self, ref: str) -> str:
        """The key of a reference; raises NacreError."""
        with _as_nacre_error():
            return open_session(self._app, ref, self._out)

    def origin(self, key: str) -> str:
        """That a session belongs to another folder or to a channel; "" if it does not."""
        return describe_origin(self._app.sessions, key, self._folder)

    def export(self, key: str, path: str) -> str:
        """Write a session to a file that is not there yet; returns its name and size. Raises NacreError."""
        if not self._app.sessions.exists(key):
            raise NacreError("there is nothing to export yet")
        place = Path(path).expanduser() if path else Path(f"{key}.md")
        excerpt = live_view(self._app.sessions, key)
        form = page if place.suffix.lower() in {".html", ".htm"} else document
        try:
            count = write(place, (piece.encode() for piece in form(excerpt.cover, excerpt.parts())), force=False)
        except Failure as failure:
            # Its hint is for the command line: here there is no --force.
            raise NacreError(failure.message) from failure
        return f"{place}: {count:,} bytes"


@contextmanager
def _as_nacre_error() -> Iterator[None]:
    """Turn a failure of the command line into an error that a conversation shows."""
    try:
        yield
    except Failure as failure:
        candidates = "".join(f"\n{clean(key)}  {clean(title)}" for key, title in failure.candidates)
        raise NacreError(f"{failure.message}{f'; {failure.hint}' if failure.hint else ''}{candidates}") from failure
