"""Lines of IRC, parsed and written, and the people on a server: nicks change hands, sessions belong to people."""

from __future__ import annotations

import re
from collections.abc import Iterator

from msgspec import Struct

from nacre.channels.chunking import clean, split, utf8

MAX_LINE = 512
# Tags may take 8,191 bytes before the line itself; what is longer is no IRC.
_MAX_TAGGED_LINE = 8191 + MAX_LINE
# What others are shown begins with who said it, and a host name may have 63 bytes.
_USER, _HOST = 11, 63
_MIN_ROOM = 64
_ESCAPES = {":": ";", "s": " ", "r": "\r", "n": "\n", "\\": "\\"}
_FORMATTING = re.compile(r"\x03(\d{1,2}(,\d{1,2})?)?|\x04([0-9a-fA-F]{6}(,[0-9a-fA-F]{6})?)?")
# What else is one letter in two cases; of mappings that are not here nothing but ASCII's letters is known to be.
_CASES = {"rfc1459": str.maketrans("[]\\^", "{}|~"), "rfc1459-strict": str.maketrans("[]\\", "{}|")}


class Line(Struct, frozen=True, kw_only=True):
    """One message of the protocol."""

    command: str
    params: tuple[str, ...] = ()
    prefix: str = ""
    tags: dict[str, str] = {}

    @property
    def nick(self) -> str:
        """Who sent it, if that was a person."""
        nick, mark, _ = self.prefix.partition("!")
        return nick if mark else ""

    @property
    def mask(self) -> str:
        """The sender's `user@host`."""
        return self.prefix.partition("!")[2]

    def param(self, at: int) -> str:
        return self.params[at] if -len(self.params) <= at < len(self.params) else ""


class Incoming:
    """Bytes into lines; one that is longer than the protocol allows is left out, not kept in RAM."""

    def __init__(self) -> None:
        self._rest = b""
        self._overlong = False

    def feed(self, data: bytes) -> Iterator[Line]:
        *whole, rest = (self._rest + data).split(b"\n")
        for raw in whole:
            if not self._overlong and len(raw) <= _MAX_TAGGED_LINE and (line := parse(raw)) is not None:
                yield line
            self._overlong = False
        self._overlong = self._overlong or len(rest) > _MAX_TAGGED_LINE
        self._rest = b"" if self._overlong else rest


def parse(raw: bytes) -> Line | None:
    """A line's parts; None if it has no command. Bytes that are not UTF-8 become U+FFFD."""
    text = raw.decode("utf-8", "replace").rstrip("\r\n").replace("\0", "").lstrip(" ")
    tags, text = _leading(text, "@")
    prefix, text = _leading(text, ":")
    middle, mark, trailing = text.partition(" :")
    command, *params = middle.split() or [""]
    if not command:
        return None
    params += [trailing] if mark else []
    pairs = (tag.partition("=") for tag in tags.split(";") if tag)
    values = {key: re.sub(r"\\(.?)", lambda found: _ESCAPES.get(found[1], found[1]), value) for key, _, value in pairs}
    return Line(command=command.upper(), params=tuple(params), prefix=prefix, tags=values)


def plain(text: str) -> str:
    """What somebody typed, without colours and control characters."""
    return clean(_FORMATTING.sub("", text)).strip()


def fold(name: str, mapping: str) -> str:
    """A nick or a channel as the server compares it."""
    folded = "".join(char.lower() if char.isascii() else char for char in name)
    return folded.translate(_CASES.get(mapping, {}))


def outgoing(text: str, target: str, nick: str, *, head: str = "", mark: str = "") -> list[str]:
    """The lines that say a text to somebody, each short enough to be relayed whole.

    The first begins with `head`, all others with `mark`: in a channel, no line may begin with what the text says
    there, since a program may take it for a message or a command to itself.
    """
    command = f"PRIVMSG {target} :"
    relayed = len(f":!@ {command}\r\n".encode()) + utf8(nick) + _USER + _HOST
    # Names that are so long are a server's fault, which then cuts the lines; some text there must be in each.
    room = max(MAX_LINE - relayed - max(utf8(head), utf8(mark)), _MIN_ROOM)
    # A tab is no character of a line, but spaces at its beginning may be Python.
    lines = clean(text).replace("\t", "    ").split("\n")
    pieces = [piece for line in lines for piece in split(line, room, size=utf8)]
    return [f"{command}{mark if number else head}{piece}" for number, piece in enumerate(pieces)]


def _leading(text: str, mark: str) -> tuple[str, str]:
    if not text.startswith(mark):
        return "", text
    word, _, rest = text[1:].partition(" ")
    return word, rest.lstrip(" ")


_MAX_PEOPLE = 1000


class Whois(Struct, frozen=True, kw_only=True):
    """What a server reports of somebody; the mask is `user@host`."""

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
        while len(self._here) > _MAX_PEOPLE:
            self.leave(next(iter(self._here)))
        return person

    def rename(self, old: str, new: str, *, shown: str) -> None:
        """Follow somebody to another nick."""
        person = self._here.pop(old, None)
        self.leave(new)
        if person is not None:
            self._here[new], person.nick = person, shown

    def leave(self, nick: str) -> None:
        """Lose sight of the owner of a nick."""
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
        while len(self._spoke) > _MAX_PEOPLE:
            del self._spoke[next(iter(self._spoke))]

    def who_said(self, sender: str, shown: str) -> Person | None:
        """Who said something; None if that was too long ago, or in an earlier run."""
        return self._spoke.get((sender, shown))
