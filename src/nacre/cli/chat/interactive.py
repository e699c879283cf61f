"""A conversation in the terminal: the REPL, and what it needs from the command line."""

from __future__ import annotations

import os
import sys
from argparse import Namespace
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from nacre import __version__
from nacre.cli.chat.chat_ports import App, Desk, Reader
from nacre.cli.chat.chat_session import Talk
from nacre.cli.chat.input_history import Recall, place
from nacre.cli.chat.plain_input import Plain
from nacre.cli.chat.repl import Repl
from nacre.cli.chat.resume import describe_origin, make_look, open_session, pick_other, tell_how_to_resume
from nacre.cli.commands.export import write
from nacre.cli.commands.show import live_view
from nacre.cli.failures import OK, SIGNALLED, Failure
from nacre.cli.one_line import clean, short_path
from nacre.cli.output import Out
from nacre.cli.rows import remember
from nacre.entries import SessionInfo
from nacre.errors import NacreError, install_command
from nacre.render import terminal
from nacre.render.html_page import page
from nacre.render.markdown_export import document
from nacre.render.terminal import Sheet
from nacre.render.text import clip, one_line, pad, width, wrapped
from nacre.render.text_changes import change_lines
from nacre.render.turn import Turn, question

_SHOWN = 6
"""How many messages of a session are shown when it is resumed."""
_NARROW = 30
"""How many columns a meaning needs beside its name."""


async def converse(app: App, args: Namespace, out: Out, *, key: str, attachments: Sequence[dict[str, Any]] = ()) -> int:
    """Talk until the user leaves; returns the exit code."""
    recall = Recall(None if args.incognito else place())
    talk = Talk(
        app,
        make_desk(app, out, folder=args.folder),
        key=key,
        make_reader=_reader_factory(app, out, recall, args.folder),
    )
    talk.parts = [*attachments]
    talk.cwd = str(args.folder)
    code = await Repl(talk, greet=lambda: _greet(app, args, out)).run()
    tell_how_to_resume(app, args, out, talk.key)
    return SIGNALLED + code if code else OK


def _greet(app: App, args: Namespace, out: Out) -> None:
    """Say what this is, which model answers, which folder it works in, and how to get help."""
    # A folder that is not trusted has a notice of its own, with what follows from that.
    trust = " (trusted)" if app.folder is not None and app.folder.is_trusted else ""
    what = "incognito: nothing is stored" if args.incognito else "an agent that keeps every conversation"
    facts = (("", what), ("Model: ", app.model), ("Folder: ", f"{_short(args.folder)}{trust}"))
    columns = out.sheet().columns - 1
    for label, text in facts:
        head = label or f"nacre {__version__}: "
        first, *others = wrapped(f"{head}{clean(text)}", columns)
        out.say(f"{out.bold(head)}{first.removeprefix(head)}")
        for line in others:
            out.say(f"  {line}")
    out.say(out.dim("/help for help · Ctrl-D to leave"))
    out.say()
    out.flush()


def _short(path: Path) -> str:
    """A path with ~ for the home directory."""
    home = Path.home()
    return f"~/{path.relative_to(home)}" if path.is_relative_to(home) and path != home else str(path)


def _reader_factory(app: App, out: Out, recall: Recall, folder: Path) -> Callable[[Talk], Reader]:
    """The editor of prompt_toolkit, or a plain one where that is missing or the terminal cannot do it."""

    def make(talk: Talk) -> Reader:
        if os.environ.get("TERM", "dumb") != "dumb":
            try:
                from nacre.cli.chat.editor import Editor  # noqa: PLC0415 - the same
                from nacre.cli.chat.line_completion import Completion  # noqa: PLC0415 - prompt_toolkit is optional

                choices = Completion(app, folder)
                return Editor(talk, recall=recall, choices=choices, stream=sys.stdout, look=talk.desk.look)
            except ModuleNotFoundError as error:
                if (error.name or "").partition(".")[0] != "prompt_toolkit":
                    raise
                out.note(f"the line editor is not installed, input is plain: {install_command('agent')}")
        return Plain(talk, recall=recall, stream=sys.stdout, safe=talk.desk.safe)

    return make


def make_desk(app: App, out: Out, *, folder: Path) -> Desk:
    """What a conversation gets from the command line: how things look, and how sessions are found."""
    return Desk(
        pick=lambda: pick_other(app, folder, out),
        find=lambda ref: _as_nacre_error(lambda: open_session(app, ref, out)),
        origin=lambda key: describe_origin(app.sessions, key, folder),
        history=lambda key: live_view(app.sessions, key).stored if app.sessions.exists(key) else [],
        view=lambda key: _last_messages(app, out, key),
        export=lambda key, path: _as_nacre_error(lambda: _export(app, key, path)),
        listed=lambda infos: _session_rows(app, out, infos),
        drawing=lambda: Turn(out.sheet),
        change=lambda change: list(change_lines(change, out.sheet())),
        question=lambda approval, most: question(approval, out.sheet(), most=most),
        rows=lambda rows: _rows(rows, out.sheet()),
        safe=lambda text: clean(text, lines=True),
        paint=lambda text, sgr: out.sheet().paint(text, sgr),
        wrap=lambda text: list(wrapped(text, out.sheet().columns - 1)),
        look=make_look(out),
    )


def _as_nacre_error(do: Callable[[], str]) -> str:
    """Turn a failure of the command line into an error that a conversation shows."""
    try:
        return do()
    except Failure as failure:
        candidates = "".join(f"\n{clean(key)}  {clean(title)}" for key, title in failure.candidates)
        raise NacreError(f"{failure.message}{f'; {failure.hint}' if failure.hint else ''}{candidates}") from failure


def _last_messages(app: App, out: Out, key: str) -> list[str]:
    """The last messages of a session, drawn."""
    excerpt = live_view(app.sessions, key, last=_SHOWN)
    sheet = out.sheet()
    head = terminal.cover(excerpt.cover, sheet, when=out.when)
    return [*head, *terminal.conversation(excerpt.parts(), sheet, when=out.when)]


def _session_rows(app: App, out: Out, infos: Sequence[SessionInfo]) -> list[str]:
    """Sessions as rows, numbered so that @3 names one."""
    remember(app.sessions.location, [info.key for info in infos])
    cells = []
    for n, info in enumerate(infos, 1):
        cwd = app.sessions.get_meta(info.key).get("cwd")
        folder = short_path(cwd) if isinstance(cwd, str) else ""
        cells.append((f"@{n} {info.key}", " · ".join(filter(None, (out.when(info.updated), info.title, folder)))))
    return _rows(cells, out.sheet())


def _rows(rows: Sequence[tuple[str, str]], sheet: Sheet) -> list[str]:
    """Names and their meanings in two columns; on a narrow screen the meaning is below the name."""
    cells = [(one_line(name), one_line(meaning)) for name, meaning in rows]
    left = max((width(name) for name, _ in cells), default=0)
    is_narrow = sheet.columns - left < _NARROW
    indent = 6 if is_narrow else left + 4
    lines: list[str] = []
    for name, meaning in cells:
        first, *others = wrapped(meaning, max(sheet.columns - indent - 1, 8))
        head = sheet.paint(clip(name, sheet.columns - 3) if is_narrow else pad(name, left), "1")
        lines += [f"  {head}", *([f"      {first}"] if first else [])] if is_narrow else [f"  {head}  {first}".rstrip()]
        lines += [f"{' ' * indent}{other}" for other in others]
    return lines


def _export(app: App, key: str, path: str) -> str:
    """Write a session to a file that is not there yet; returns its name and size."""
    if not app.sessions.exists(key):
        raise Failure("not_found", "there is nothing to export yet")
    place = Path(path).expanduser() if path else Path(f"{key}.md")
    excerpt = live_view(app.sessions, key)
    form = page if place.suffix.lower() in {".html", ".htm"} else document
    count = write(place, (piece.encode() for piece in form(excerpt.cover, excerpt.parts())), force=False)
    return f"{place}: {count:,} bytes"
