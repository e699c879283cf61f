"""Whose a session is: that of the one it works for, and of those whose past it shares."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from nacre.errors import StoreError
from nacre.records import View
from nacre.sessions import Sessions


def outermost(sessions: Sessions, key: str) -> str:
    """The session that one works for in the end: its own key, unless it is a child."""
    # Only by what it says itself: people may have names that look like a child's key.
    while "/" in key:
        try:
            parent = sessions.get_meta(key).get("parent")
        except StoreError:
            break
        if not isinstance(parent, str) or not key.startswith(f"{parent}/"):
            break
        key = parent
    return key


class GuestWords:
    """Tells by its key whether a session may hold what a guest wrote.

    It may if it is a guest's, by what `is_guest` says of its key, or a fork that shares the past of a guest's. A child
    is judged as the session it works for, and what cannot be read as a guest's. May be called from any thread.
    It remembers the writers of as many generations as `remembered` says.
    """

    def __init__(self, sessions: Sessions, is_guest: Callable[[str], bool], *, remembered: int = 10_000) -> None:
        self._sessions, self._is_guest, self._remembered = sessions, is_guest, remembered
        self.writers: dict[str, Sequence[str]] = {}
        """The keys of those who wrote a generation, by its uid: they never change."""

    def __call__(self, key: str) -> bool:
        writers = {key, outermost(self._sessions, key)}
        try:
            for one in tuple(writers):
                writers.update(*self._sessions.read_generations(one, self._writers_of))
        except StoreError:
            return True
        return any(self._is_guest(outermost(self._sessions, writer)) for writer in writers)

    def _writers_of(self, view: View) -> Sequence[str]:
        writers = self.writers.get(view.uid)
        if writers is None:
            first = view.find(1)
            # Only a fork begins with the header of another generation. Each header names who wrote what follows it.
            is_fork = first is None or first.uid != view.uid
            headers = (record for record in view.back(view.n) if record.t == "open") if is_fork else ()
            writers = [record.sid for record in headers if record.sid]
            # A server may be asked for years about sessions that come and go: to read some again is cheap.
            if len(self.writers) >= self._remembered:
                self.writers.clear()
            self.writers[view.uid] = writers
        return writers
