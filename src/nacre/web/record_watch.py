"""Waiting for what is written to a session, by whichever process, without looking again and again."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from contextlib import contextmanager

import anyio

from nacre.sessions import Sessions

_LOOK_AGAIN = 0.2
"""How often to look, in seconds, where no changes are told."""


class Bell:
    """Rings when a session may have changed; one ring counts, however many were missed."""

    def __init__(self, closing: anyio.Event, *, patience: float) -> None:
        self._closing = closing
        self._patience = patience
        self._rang = anyio.Event()

    @property
    def is_over(self) -> bool:
        """True when nobody should wait any more."""
        return self._closing.is_set()

    def ring(self) -> None:
        self._rang.set()

    async def rung(self, most: float) -> None:
        """Wait until it has rung since the last time, or all is over, or it is time to look anyway."""
        with anyio.move_on_after(min(self._patience, most)):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(_ending, self._closing, tasks.cancel_scope)
                await self._rang.wait()
                tasks.cancel_scope.cancel()
        self._rang = anyio.Event()


async def _ending(event: anyio.Event, scope: anyio.CancelScope) -> None:
    await event.wait()
    scope.cancel()


class Changes:
    """Reports changes in stores; each is watched while a caller waits, with one descriptor.

    Where changes are told it looks every `look` seconds too: those made on other machines are not told.
    """

    def __init__(self, closing: anyio.Event, *, look: float = 2.0) -> None:
        self._look = look
        self._closing = closing
        self._watched: dict[str, _Store] = {}

    @contextmanager
    def of(self, sessions: Sessions, key: str) -> Iterator[Bell]:
        """A bell for a session; what changes from now on rings it."""
        location = sessions.location
        store = self._watched.get(location) or self._watched.setdefault(location, _Store(sessions))
        bell = Bell(self._closing, patience=self._look if store.tells else _LOOK_AGAIN)
        name = store.watch.name(key)
        bells = store.bells.setdefault(name, set())
        bells.add(bell)
        try:
            yield bell
        finally:
            bells.discard(bell)
            if not bells:
                store.bells.pop(name, None)
            if not store.bells and self._watched.pop(location, None) is not None:
                store.close()


class _Store:
    """A store, and those who wait for changes in it, by what its watch calls their session."""

    def __init__(self, sessions: Sessions) -> None:
        self.bells: dict[str, set[Bell]] = {}
        self.watch = sessions.watch()
        self._loop = asyncio.get_running_loop()
        if self.tells:
            os.set_blocking(self.watch.fd, False)
            self._loop.add_reader(self.watch.fd, self.ring)

    @property
    def tells(self) -> bool:
        return self.watch.fd >= 0

    def close(self) -> None:
        if self.tells:
            self._loop.remove_reader(self.watch.fd)
        self.watch.close()

    def ring(self) -> None:
        names = self.watch.changed()
        # An empty name: too much has changed to be told, and it may be anything.
        chosen = self.bells if "" in names else names & self.bells.keys()
        for name in chosen:
            for bell in self.bells[name]:
                bell.ring()
