"""Read a line and act on it, until the user leaves."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
from argparse import Namespace
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import anyio
from anyio.abc import TaskGroup
from anyio.streams.text import TextReceiveStream

from nacre import __version__
from nacre.channels.file_parts import attach
from nacre.cli.chat.chat_session import Talk
from nacre.cli.chat.input_history import Recall, place
from nacre.cli.chat.paste import spellings, typed_mentions
from nacre.cli.chat.plain_input import Plain
from nacre.cli.chat.reader import Line, Reader
from nacre.cli.chat.resume import tell_how_to_resume
from nacre.cli.chat.screen import Screen
from nacre.cli.chat.slash_commands import Leave, obey, show_past
from nacre.cli.failures import OK, SIGNALLED
from nacre.cli.one_line import clean
from nacre.cli.output import Out
from nacre.errors import NacreError, install_command
from nacre.render.text import wrap
from nacre.runtime.app import App

logger = logging.getLogger(__name__)

_LAST_CHANCE = 5.0
_TICK = 0.1


class Repl:
    """A conversation from its first line to its last; `greet` says what this is."""

    def __init__(self, talk: Talk, *, greet: Callable[[], None] = lambda: None) -> None:
        self._talk = talk
        self._greet = greet
        self._signal = 0

    async def run(self) -> int:
        """Talk until the user leaves; returns 0, or the signal that ended it."""
        talk = self._talk
        with talk.reader.held():
            async with anyio.create_task_group() as tasks:
                talk.tasks = tasks
                tasks.start_soon(self._signals, tasks)
                tasks.start_soon(self._ticks)
                # 1. Print the session so far, then greeting and notices.
                is_known = talk.app.sessions.exists(talk.key)
                if is_known:
                    show_past(talk)
                self._greet()
                for note in filter(None, [talk.screen.origin(talk.key) if is_known else "", *talk.app.notes]):
                    talk.hint(talk.screen.safe(note))
                talk.look()
                # 2. Finish a turn that a crash cut short, then read and act.
                if talk.is_unfinished():
                    talk.go_on()
                await self._loop()
                # 3. Stop the turn that runs, and give it a few seconds.
                if talk.is_at_work:
                    talk.stop()
                    with anyio.move_on_after(_LAST_CHANCE):
                        await talk.settled()
                tasks.cancel_scope.cancel()
        return self._signal

    async def _loop(self) -> None:
        talk = self._talk
        while True:
            if not talk.reader.reads_ahead:
                await talk.settled()
            draft, talk.draft = talk.draft, ""
            try:
                line = await talk.reader.read(draft)
                text = line.text
                # A command of ours or of the shell, or a message.
                if text.startswith("/") and "/" not in text[1:].partition(" ")[0]:
                    await obey(talk, text.strip())
                elif text.startswith("!"):
                    await run_shell(talk, line)
                elif text.strip():
                    attach_mentions(talk, line)
                    talk.say(text.strip(), pasted=line.pasted)
            except (EOFError, Leave):
                return
            except NacreError as error:
                talk.complain(error)
                talk.show("")
            except Exception as error:
                # The edge: a bug in one command does not end the conversation.
                logger.exception("a command failed")
                talk.complain(f"a bug in nacre: {type(error).__name__}: {error}")

    async def _ticks(self) -> None:
        """Show that time passes while a turn runs."""
        while True:
            if self._talk.is_at_work:
                self._talk.reader.refresh()
            await anyio.sleep(_TICK)

    async def _signals(self, tasks: TaskGroup) -> None:
        """Leave in order when the process is to end; Ctrl-C that no editor reads stops the turn, or leaves."""
        talk = self._talk
        with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGCONT) as signals:
            async for number in signals:
                if number == signal.SIGCONT:
                    talk.reader.resume()
                    continue
                # For a program that has the terminal, Ctrl-C is that program's. Without a turn it comes
                # between two lines, from a key that was meant for a line.
                if number == signal.SIGINT and (talk.reader.is_released or not talk.is_at_work or talk.stop()):
                    continue
                self._signal = int(number)
                tasks.cancel_scope.cancel()


async def converse(app: App, args: Namespace, out: Out, *, key: str, attachments: Sequence[dict[str, Any]] = ()) -> int:
    """Talk until the user leaves; returns the exit code."""
    recall = Recall(None if args.incognito else place())
    screen = Screen(app, out, folder=args.folder)
    talk = Talk(app, screen, key=key, make_reader=lambda talk: _make_reader(talk, out, recall, args.folder))
    talk.parts = [*attachments]
    talk.cwd = str(args.folder)
    code = await Repl(talk, greet=lambda: _greet(app, args, out)).run()
    tell_how_to_resume(app, args, out, talk.key)
    return SIGNALLED + code if code else OK


def _greet(app: App, args: Namespace, out: Out) -> None:
    """Say what this is, which model answers, which folder it works in, and how to get help."""
    home = Path.home()
    is_inside = args.folder.is_relative_to(home) and args.folder != home
    folder = f"~/{args.folder.relative_to(home)}" if is_inside else str(args.folder)
    # A folder that is not trusted has a notice of its own, with what follows from that.
    trust = " (trusted)" if app.folder is not None and app.folder.is_trusted else ""
    what = "incognito: nothing is stored" if args.incognito else "an agent that keeps every conversation"
    facts = (("", what), ("Model: ", app.model), ("Folder: ", f"{folder}{trust}"))
    columns = out.sheet().columns - 1
    for label, text in facts:
        head = label or f"nacre {__version__}: "
        first, *others = wrap(f"{head}{clean(text)}", columns)
        out.say(f"{out.bold(head)}{first.removeprefix(head)}")
        for line in others:
            out.say(f"  {line}")
    out.say(out.dim("/help for help · Ctrl-D to leave"))
    out.say()
    out.flush()


def _make_reader(talk: Talk, out: Out, recall: Recall, folder: Path) -> Reader:
    """The editor of prompt_toolkit, or a plain one where that is missing or the terminal cannot do it."""
    if os.environ.get("TERM", "dumb") != "dumb":
        try:
            from nacre.cli.chat.editor import Editor  # noqa: PLC0415 - the same
            from nacre.cli.chat.line_completion import Completion  # noqa: PLC0415 - prompt_toolkit is optional

            choices = Completion(talk.app, folder)
            return Editor(talk, recall=recall, choices=choices, stream=sys.stdout, look=talk.screen.look)
        except ModuleNotFoundError as error:
            if (error.name or "").partition(".")[0] != "prompt_toolkit":
                raise
            out.note(f"the line editor is not installed, input is plain: {install_command('agent')}")
    return Plain(lambda: talk.status, recall=recall, stream=sys.stdout, safe=talk.screen.safe)


# ---- `!command` and `@file`: what a person at the terminal does besides talking


_MAX_OUTPUT = 30_000


async def run_shell(talk: Talk, line: Line) -> None:
    """Run `!command` as the user, outside the sandbox; the model sees its output with the next message.

    Raises NacreError if it was not typed, or a turn is running.
    """
    command = line.text[1:].strip()
    if not talk.reader.reads_ahead:
        raise NacreError("!command needs the line editor, which can tell typed text from pasted text")
    if any("!" in text for text in line.foreign):
        talk.draft = line.text
        raise NacreError("pasted text is never run: type the command, or put a space before the ! to send it")
    if not command:
        raise NacreError("name a command: !ls")
    if talk.is_at_work:
        talk.draft = line.text
        raise NacreError("a command has to wait: a turn is running, Ctrl-C stops it")
    talk.hint("(runs as you, outside the sandbox)")
    shell = os.environ.get("SHELL") or "/bin/sh"
    output: list[str] = []
    with talk.reader.released():
        # Standard input is the terminal's, so that a command can ask something.
        async with await anyio.open_process(
            [shell, "-c", command],
            stdin=None,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            cwd=talk.cwd or None,
        ) as process:
            rest = ""
            assert process.stdout is not None  # noqa: S101 - a pipe was asked for
            async for piece in TextReceiveStream(process.stdout, errors="replace"):
                output.append(piece)
                *lines, rest = (rest + piece).split("\n")
                talk.show(*(talk.screen.safe(one) for one in lines))
            if rest:
                talk.show(talk.screen.safe(rest))
            code = await process.wait()
    text = "".join(output)
    if (hidden := len(text) - _MAX_OUTPUT) > 0:
        text = f"[the first {hidden} characters are left out]\n{text[-_MAX_OUTPUT:]}"
    end = "" if text.endswith("\n") or not text else "\n"
    text = f"The user ran a command in their shell, exit code {code}:\n$ {command}\n{text}{end}"
    talk.parts.append({"type": "text", "text": text})
    talk.hint(f"(exit code {code}; the model sees the output with your next message)")


def attach_mentions(talk: Talk, line: Line) -> None:
    """Attach every file that was mentioned by typing `@path`, and say so; other words with an @ stay words."""
    for mention in typed_mentions(line.text, line.foreign):
        names = (name for name in spellings(mention) if Path(talk.cwd, Path(name).expanduser()).is_file())
        if found := next(names, ""):
            talk.parts.append(attach(found, talk.cwd))
            talk.hint(f"attached: {talk.screen.safe(found)}")
        elif "/" in mention or "." in mention.rstrip("."):
            talk.hint(f"not attached: {talk.screen.safe(mention)} is not a file")
