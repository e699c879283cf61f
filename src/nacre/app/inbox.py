"""The durable inbox: words that arrived and have not been answered yet, through every restart."""

from __future__ import annotations

import msgspec

from nacre.channels.channel import Arrived
from nacre.entries import Note
from nacre.sessions import Sessions

KEY = "nacre:inbox"
_ARRIVED, _ANSWERED = "x.arrived", "x.answered"
_MOST_RECORDS = 20_000


class Inbox:
    """What is open; its log is a session of its own, and is begun anew when nothing is."""

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions
        self._open: dict[str, Arrived] = {}
        self._known: set[str] = set()
        self._count = 0

    def read(self) -> list[Arrived]:
        """Read what an earlier run of the program left open, in the order in which it came."""
        for entry in self._sessions.records(KEY):
            self._count += 1
            if entry.kind == _ARRIVED:
                arrived = msgspec.convert(entry.data, Arrived)
                self._open[name_of(arrived)] = arrived
                self._known.add(name_of(arrived))
            elif entry.kind == _ANSWERED:
                self._open.pop(entry.data["of"], None)
        return list(self._open.values())

    async def add(self, arrived: Arrived) -> bool:
        """Take words in; durable when it returns. False if they came before."""
        name = name_of(arrived)
        if name in self._known:
            return False
        self._known.add(name)
        self._open[name] = arrived
        try:
            await self._sessions.submit(KEY, [Note(_ARRIVED, msgspec.to_builtins(arrived))])
        except BaseException:
            self._known.discard(name)
            self._open.pop(name, None)
            raise
        self._count += 1
        return True

    async def done(self, arrived: Arrived) -> None:
        """Close words that were answered."""
        name = name_of(arrived)
        if self._open.pop(name, None) is None:
            return
        await self._sessions.submit(KEY, [Note(_ANSWERED, {"of": name})])
        self._count += 1
        if self._count > _MOST_RECORDS and not self._open:
            # What the channels may still repeat is only the last of it, which their own positions tell.
            self._sessions.delete(KEY)
            self._count = 0


def name_of(arrived: Arrived) -> str:
    """What tells words apart from all others."""
    return msgspec.json.encode((arrived.channel, arrived.account, arrived.chat, arrived.id)).decode()
