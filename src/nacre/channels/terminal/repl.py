"""Read a line, do what it says, until somebody leaves."""

from __future__ import annotations

import logging
import signal

import anyio
from anyio.abc import TaskGroup

from nacre.channels.terminal.commands import Leave, obey, show_past
from nacre.channels.terminal.talk import Talk
from nacre.errors import NacreError

logger = logging.getLogger(__name__)

_LAST_CHANCE = 5.0
_TICK = 0.1


class Repl:
    """A conversation from its beginning to its end."""

    def __init__(self, talk: Talk) -> None:
        self._talk = talk
        self._signal = 0

    async def run(self) -> int:
        """Talk until somebody leaves; returns 0, or the signal that ended it."""
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
        """Say where one is, and finish what a crash left."""
        talk = self._talk
        for note in talk.app.notes:
            talk.hint(talk.desk.safe(note))
        if talk.app.sessions.exists(talk.key):
            show_past(talk)
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
                await self._heard(await talk.reader.read(draft))
            except (EOFError, Leave):
                return
            except NacreError as error:
                talk.complain(error)
                talk.show("")
            except Exception as error:
                # The edge: a mistake in one command does not end the conversation.
                logger.exception("a command failed")
                talk.complain(f"a mistake in nacre: {type(error).__name__}: {error}")

    async def _heard(self, line: str) -> None:
        if line.startswith("/") and "/" not in line[1:].partition(" ")[0]:
            await obey(self._talk, line.strip())
        elif line.strip():
            self._talk.say(line.strip())

    async def _leave(self) -> None:
        """Let the turn that runs come to its end, soon."""
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
        """Leave in order when the process is to end; Ctrl-C where no editor reads it stops the turn, or leaves."""
        with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM, signal.SIGHUP) as signals:
            async for number in signals:
                # Without a turn it comes between two lines, from a key that was meant for a line.
                if number == signal.SIGINT and (not self._talk.is_at_work or self._talk.stop()):
                    continue
                self._signal = int(number)
                tasks.cancel_scope.cancel()
