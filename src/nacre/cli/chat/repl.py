"""Read a line and act on it, until the user leaves."""

from __future__ import annotations

import logging
import signal
from collections.abc import Callable

import anyio
from anyio.abc import TaskGroup

from nacre.cli.chat.chat_ports import Line
from nacre.cli.chat.chat_session import Talk
from nacre.cli.chat.shell_escape import attach_mentions, run_shell
from nacre.cli.chat.slash_commands import Leave, obey, show_past
from nacre.errors import NacreError

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
            return await self._run(talk)

    async def _run(self, talk: Talk) -> int:
        async with anyio.create_task_group() as tasks:
            talk.tasks = tasks
            tasks.start_soon(self._signals, tasks)
            tasks.start_soon(self._ticks)
            self._begin()
            await self._loop()
            await self._leave()
            tasks.cancel_scope.cancel()
        return self._signal

    def _begin(self) -> None:
        """Print the session so far, then greeting and notices, and finish a turn that a crash cut short."""
        talk = self._talk
        if talk.app.sessions.exists(talk.key):
            show_past(talk)
        self._greet()
        origin = talk.desk.origin(talk.key) if talk.app.sessions.exists(talk.key) else ""
        for note in filter(None, [origin, *talk.app.notes]):
            talk.hint(talk.desk.safe(note))
        talk.look()
        if talk.is_unfinished():
            talk.go_on()

    async def _loop(self) -> None:
        talk = self._talk
        while True:
            if not talk.reader.reads_ahead:
                await talk.settled()
            draft, talk.draft = talk.draft, ""
            try:
                await self._handle(await talk.reader.read(draft))
            except (EOFError, Leave):
                return
            except NacreError as error:
                talk.complain(error)
                talk.show("")
            except Exception as error:
                # The edge: a bug in one command does not end the conversation.
                logger.exception("a command failed")
                talk.complain(f"a bug in nacre: {type(error).__name__}: {error}")

    async def _handle(self, line: Line) -> None:
        """Run a command of ours or of the shell, or send a message."""
        text = line.text
        if text.startswith("/") and "/" not in text[1:].partition(" ")[0]:
            await obey(self._talk, text.strip())
        elif text.startswith("!"):
            await run_shell(self._talk, line)
        elif text.strip():
            attach_mentions(self._talk, line)
            self._talk.say(text.strip(), pasted=line.pasted)

    async def _leave(self) -> None:
        """Stop the turn that runs, and give it a few seconds."""
        talk = self._talk
        if talk.is_at_work:
            talk.stop()
            with anyio.move_on_after(_LAST_CHANCE):
                await talk.settled()

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
