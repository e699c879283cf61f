"""The turns of a conversation: what was asked and answered, taken from its live messages or from all that were said."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from hashlib import blake2b
from typing import Any

import msgspec
from msgspec import Struct

from nacre.entries import Entry, Message
from nacre.history.pairing import PASTED
from nacre.memory import pasted
from nacre.memory.model import Cursor
from nacre.sessions import Sessions

_ATTACHED = ("<file name=", "The user ran a command in their shell")
_WINDOWS = (64, 4096)


class Turn(Struct, frozen=True, kw_only=True):
    """Words of a user and the answer to them: the numbers of the first and the last message, and when it ended.

    `own` of what was asked are the user's own words, and `pasted` the rest. `outside` says whether the conversation
    had words of neither user nor assistant in it by then, which the assistant may repeat.

    `id` tells it from every other turn, in whatever session it is found: a fork shares it, and a history that
    is stored again repeats it.
    """

    id: str
    key: str
    n: int
    upto: int
    asked: str
    answered: str
    at: datetime
    own: str = ""
    pasted: str = ""
    outside: bool = False

    @property
    def said(self) -> str:
        return f"{self.asked}\n{self.answered}"


Numbered = tuple[int, Message]


def turns_after(sessions: Sessions, key: str, cursor: Cursor | None, *, outside: bool = False) -> list[Turn]:
    """The turns after a cursor, oldest first; those that were undone are not among them.

    `outside` is what the last turn before them was.
    """
    after = cursor.n if cursor is not None else 0
    for last in _WINDOWS:
        now = sessions.snapshot(key, last=last)
        messages = list(zip(now.numbers, now.messages, strict=True))
        # The header is record 1.
        reaches = bool(messages) and messages[0][0] == 2  # noqa: PLR2004
        if messages and cursor is not None and cursor.n:
            # The live messages must go back to the cursor, in the same generation of the session.
            reaches = messages[0][0] <= cursor.n and utc_text(_created(messages[0][1])) <= cursor.at
        if reaches:
            before = outside or any(_is_outside(message) for n, message in messages if n <= after)
            return list(turns(key, (found for found in messages if found[0] > after), outside=before))
        if now.live <= last:
            break
    # Something was truncated, summarised, undone or archived before it was gone through: read all of it.
    messages = _read_all(sessions, key)
    if cursor is None:
        return list(turns(key, messages, outside=outside))
    # The place of the cursor's message, or its time if that is lost.
    for at in range(len(messages) - 1, -1, -1):
        n, message = messages[at]
        if n == cursor.n and utc_text(_created(message)) == cursor.at:
            before = outside or any(_is_outside(earlier) for _, earlier in messages[: at + 1])
            return list(turns(key, messages[at + 1 :], outside=before))
    return [turn for turn in turns(key, messages, outside=outside) if utc_text(turn.at) >= cursor.at]


def turn_at(sessions: Sessions, key: str, n: int, at: str = "") -> Turn | None:
    """The turn that a message belongs to, undone or not; None if the session is gone."""
    messages = ((stored.n, stored.message) for stored in sessions.transcript(key))
    found = [turn for turn in turns(key, messages) if turn.n <= n <= turn.upto]
    exact = [turn for turn in found if utc_text(turn.at) == at]
    return next(reversed(exact or found), None)


def turns(key: str, messages: Iterable[Numbered], *, outside: bool = False) -> Iterator[Turn]:
    """Whole turns: from a user's words to the answer without calls; the last one may not have ended."""
    asked: list[Numbered] = []
    for n, message in messages:
        outside = outside or _is_outside(message)
        if message.role == "user":
            asked.append((n, message))
        elif asked and message.role == "assistant" and not message.tool_calls:
            yield _turn(key, asked, n, message, outside=outside)
            asked = []


def _is_outside(message: Message) -> bool:
    """Tell whether a message has words that are not those of the user or the assistant."""
    return message.role == "tool" or (message.role == "user" and bool(_words(message)[1]))


def _words(message: Message) -> tuple[str, str]:
    """The user's own words in a message, and the rest: files and output of commands are parts before the words."""
    if not isinstance(message.content, list):
        return pasted.split(text_of(message.content), message.extra.get(PASTED))
    own, rest = list[str](), list[str]()
    texts = [_piece(part) for part in message.content]
    for at, text in enumerate(texts):
        if text.startswith(_ATTACHED):
            rest.append(text)
            continue
        typed, other = pasted.split(text, message.extra.get(PASTED) if at == len(texts) - 1 else None)
        own.append(typed)
        rest += [other] if other else []
    return "\n".join(own), "\n".join(rest)


def text_of(content: Any) -> str:
    """The words of a message; what is not words is named."""
    if isinstance(content, str):
        return content
    return "\n".join(_piece(part) for part in content or ())


def utc_text(time: datetime) -> str:
    """A time as memory spells it, in UTC."""
    return time.astimezone(UTC).isoformat(timespec="milliseconds")


def _turn(key: str, asked: list[Numbered], upto: int, answer: Message, *, outside: bool) -> Turn:
    words = "\n".join(text_of(message.content) for _, message in asked)
    answered = text_of(answer.content)
    began, ended = _created(asked[0][1]), _created(answer)
    parts = (utc_text(began), words, answered)
    digest = blake2b("\0".join(parts).encode("utf-8", "replace"), digest_size=8).hexdigest()
    split = [_words(message) for _, message in asked]
    return Turn(
        id=digest,
        key=key,
        n=asked[0][0],
        upto=upto,
        asked=words,
        answered=answered,
        at=ended,
        own="\n".join(own for own, _ in split),
        pasted="\n".join(rest for _, rest in split if rest),
        outside=outside,
    )


def _created(message: Message) -> datetime:
    return message.created or datetime.fromtimestamp(0, UTC)


def _piece(part: Any) -> str:
    if isinstance(part, str):
        return part
    text = part.get("text") if isinstance(part, dict) else None
    return text if isinstance(text, str) else "[something that is not text]"


class _Link(Struct, frozen=True):
    """A message, and the one before it on its branch."""

    entry: Entry
    before: _Link | None


def _read_all(sessions: Sessions, key: str) -> list[Numbered]:
    """Every message of a session, truncated and summarised ones too, but not those that were undone."""
    generations: dict[str, list[Entry]] = {}
    for entry in sessions.records(key):
        generations.setdefault(entry.generation, []).append(entry)
    found: list[Numbered] = []
    for entries in generations.values():
        # 1. Follow the head of the branch through messages, undoing and rewinding.
        head: _Link | None = None
        after: dict[int, _Link | None] = {}
        for entry in entries:
            if entry.kind == "msg":
                head = _Link(entry, head)
            elif entry.kind == "head" and "pop" in entry.data:
                head = head.before if head is not None else None
            elif entry.kind == "head":
                head = after.get(entry.data.get("to", 0))
            after[entry.n] = head
        # 2. From the last head back to the first message.
        messages: list[Numbered] = []
        while head is not None:
            message = msgspec.convert(head.entry.data, Message)
            created = message.created or head.entry.ts
            messages.append((head.entry.n, msgspec.structs.replace(message, created=created)))
            head = head.before
        found += messages[::-1]
    return found
