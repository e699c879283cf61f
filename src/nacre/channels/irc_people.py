"""Who is who on an IRC server: nicks change hands, and a session belongs to whoever spoke, not to a nick."""

from __future__ import annotations

from msgspec import Struct

_MOST = 1000


class Whois(Struct, frozen=True, kw_only=True):
    """What a server tells of somebody; the mask is `user@host`."""

    mask: str
    real_name: str = ""
    is_bot: bool = False


class Person(Struct, kw_only=True, eq=False):
    """One connection of somebody who spoke to us.

    `name` is what they are called in keys: the nick under which they spoke first.
    Once they are out of sight, their nick may be somebody else's.
    """

    nick: str
    mask: str
    name: str
    handle: str
    is_here: bool = True
    is_program: bool | None = None


class People:
    """The people who spoke to us, followed through changes of their nicks for as long as the server shows them.

    Somebody who takes the nick of a person who is still here under another one is not that person: they are called by
    nick and mask, which is no nick, so nothing that the configuration or a session says of the nick is theirs.
    Nicks are given as the server compares them.
    """

    def __init__(self) -> None:
        self._here: dict[str, Person] = {}
        self._names: dict[str, Person] = {}
        self._spoke: dict[tuple[str, str], Person] = {}

    def hear(self, nick: str, *, shown: str, mask: str) -> Person:
        """The person who says something under a nick."""
        person = self._here.get(nick)
        if person is not None and person.mask == mask:
            return person
        self.leave(nick)
        is_another = nick in self._names
        name, handle = (f"{nick}!{mask}", "") if is_another else (nick, shown)
        person = self._here[nick] = self._names[name] = Person(nick=shown, mask=mask, name=name, handle=handle)
        while len(self._here) > _MOST:
            self.leave(next(iter(self._here)))
        return person

    def rename(self, old: str, new: str, *, shown: str) -> None:
        """Follow somebody to another nick."""
        person = self._here.pop(old, None)
        self.leave(new)
        if person is not None:
            self._here[new], person.nick = person, shown

    def leave(self, nick: str) -> None:
        """Lose sight of whoever has a nick."""
        person = self._here.pop(nick, None)
        if person is not None:
            person.is_here = False
            self._names.pop(person.name, None)

    def lose_sight(self) -> None:
        """Lose sight of everybody, as when the connection ends: nobody knows what they do meanwhile."""
        for nick in list(self._here):
            self.leave(nick)

    def remember(self, sender: str, shown: str, person: Person) -> None:
        """Note who said something, so that the answer finds them under whatever nick."""
        self._spoke.pop((sender, shown), None)
        self._spoke[sender, shown] = person
        while len(self._spoke) > _MOST:
            del self._spoke[next(iter(self._spoke))]

    def who_said(self, sender: str, shown: str) -> Person | None:
        """Who said something; None if that was too long ago, or in an earlier run."""
        return self._spoke.get((sender, shown))
