"""What a model is shown of a session: the newest whole turns that fit, and a note where something is left out."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache

from msgspec import Struct
from msgspec.structs import replace

from nacre.entries import Message
from nacre.history.pairing import SAID_AS, Piece, attached, distinct, shown
from nacre.history.tokens import estimate as by_length

Estimate = Callable[[Message], int]

_SHORTEST = 64
"""Tokens that a tool's result keeps, however little room there is."""


class Window(Struct, frozen=True, kw_only=True):
    """Messages that every provider takes, about how many tokens they cost, and what in them differs from the log.

    `left_out` counts the older messages that are not shown, `interrupted` the calls that were never
    answered, `orphans` the results without a call, `shortened` the results that were cut.
    """

    messages: list[Message]
    tokens: int
    left_out: int
    interrupted: int
    orphans: int
    shortened: int


def window(
    messages: Sequence[Message], *, summary: str = "", tokens: int, most: int, estimate: Estimate = by_length
) -> Window:
    """The newest whole turns within a number of tokens and of messages; a turn begins at a user's message.

    The newest turn is always there. If it alone is too long, its tools' results are cut, oldest
    first, never anyone's words. Where a summary exists or something is left out, a user's message
    says so first; it does not count towards `most`.
    """
    limits = _Limits(count=len(messages), summary=summary.strip(), tokens=tokens, most=most, estimate=estimate)
    return _fitted(reversed(messages), limits)


def recent(  # noqa: PLR0913 - what `window` takes, and the count
    newest_first: Iterable[Message],
    *,
    count: int,
    summary: str = "",
    tokens: int,
    most: int,
    estimate: Estimate = by_length,
) -> Window:
    """The same for messages that come newest first, of which there are `count`; reads little more than it shows."""
    limits = _Limits(count=count, summary=summary.strip(), tokens=tokens, most=most, estimate=estimate)
    return _fitted(iter(newest_first), limits)


class Costs:
    """An estimate that works each message out once, for a session that is looked at again and again."""

    def __init__(self, estimate: Estimate = by_length, *, most: int = 1024) -> None:
        self._estimate = estimate
        self._most = most
        # The message is kept beside what it costs, so that its id stays its own.
        self._known: dict[int, tuple[Message, int]] = {}

    def __call__(self, message: Message) -> int:
        found = self._known.get(id(message))
        if found is None:
            if len(self._known) >= self._most:
                self._known.clear()
            found = self._known[id(message)] = (message, self._estimate(message))
        return found[1]


class _Limits(Struct, frozen=True, kw_only=True):
    count: int
    summary: str
    tokens: int
    most: int
    estimate: Estimate

    def needs_note(self, turn: Sequence[Message], read: int) -> bool:
        """Tell whether there is something to say when a turn is the oldest one and so many are read."""
        return read < self.count or bool(self.summary) or not _begins(turn[0])

    def cost(self, messages: Iterable[Message]) -> int:
        return sum(map(self.estimate, messages))


class _View:
    """The turns that are shown, newest first, and what they come to."""

    def __init__(self) -> None:
        self.pieces: list[Piece] = []
        self.read = self.tokens = self.size = self.shortened = 0

    @property
    def seeking(self) -> list[Message]:
        """Results whose calls are in an older turn, if anywhere."""
        return self.pieces[-1].seeking if self.pieces else []

    def add(self, piece: Piece, *, read: int, tokens: int) -> None:
        self.pieces.append(piece)
        self.read += read
        self.tokens += tokens
        self.size += len(piece.messages)

    def messages(self) -> list[Message]:
        return distinct([message for piece in reversed(self.pieces) for message in piece.messages])


def _fitted(newest_first: Iterator[Message], limits: _Limits) -> Window:
    view = _View()
    is_cut = False
    note = limits.cost(_longest_note(limits.summary, len(str(limits.count))))
    while not is_cut and (turn := _turn(newest_first, view, limits)):
        piece = attached([*turn, *view.seeking])
        room = limits.tokens - view.tokens - (note if limits.needs_note(turn, view.read + len(turn)) else 0)
        if not view.pieces:
            piece, view.shortened = _shortened(piece, room, limits.estimate)
        cost = limits.cost(piece.messages)
        is_cut = bool(view.pieces) and (cost > room or view.size + len(piece.messages) > limits.most)
        if not is_cut:
            view.add(piece, read=len(turn), tokens=cost)
    return _window(view, limits, is_cut=is_cut)


def _window(view: _View, limits: _Limits, *, is_cut: bool) -> Window:
    left_out = max(limits.count - view.read, 1) + len(view.seeking) if is_cut else 0
    messages = view.messages()
    note = _note(limits.summary, left_out, begins=not messages or messages[0].role == "user")
    return Window(
        messages=[*note, *messages],
        tokens=view.tokens + limits.cost(note),
        left_out=left_out,
        interrupted=sum(piece.interrupted for piece in view.pieces),
        orphans=sum(piece.orphans for piece in view.pieces) + (0 if is_cut else len(view.seeking)),
        shortened=view.shortened,
    )


def _turn(newest_first: Iterator[Message], view: _View, limits: _Limits) -> list[Message]:
    """The next older turn, oldest message first; only its end if that is already too much."""
    most, room = math.inf, math.inf
    if view.pieces:
        most, room = limits.most - view.size, limits.tokens - view.tokens
    found: list[Message] = []
    for message in newest_first:
        found.append(message)
        seen = shown(message) if message.role != "tool" else None
        if seen is not None:
            most -= 1 + len(seen.tool_calls)
            room -= limits.estimate(seen)
        if _begins(message) or most < 0 or room < 0:
            break
    return found[::-1]


def _begins(message: Message) -> bool:
    return message.role == "user" and SAID_AS not in message.extra


def _note(summary: str, left_out: int, *, begins: bool) -> list[Message]:
    """The message that comes before all others, if there is something to say; else nothing."""
    said = [f"[summary of what was said before]\n{summary}"] if summary else []
    if left_out:
        said.append(f"[{left_out} earlier message{' is' if left_out == 1 else 's are'} not shown]")
    if not said and not begins:
        said.append("[the beginning of this conversation is not shown]")
    return [Message(role="user", content="\n\n".join(said))] if said else []


@lru_cache(maxsize=64)
def _longest_note(summary: str, digits: int) -> Sequence[Message]:
    """The note at its longest: how much is left out is known only in the end, but for how many digits that has."""
    return _note(summary, 10**digits - 1, begins=False)


# ---- a turn that is too long


def _shortened(piece: Piece, room: int, estimate: Estimate) -> tuple[Piece, int]:
    """A turn with its results cut, oldest first, until it fits or none is left to cut; and how many were."""
    messages, count = list(piece.messages), 0
    excess = sum(map(estimate, messages)) - room
    for at, message in enumerate(messages):
        if excess <= 0:
            break
        cost = estimate(message)
        if message.role == "tool" and cost > _SHORTEST:
            shorter = _as_text(message)
            size = estimate(shorter)
            if excess > cost - size:
                # A little less than fits: tokens are not quite proportional to characters.
                shorter = _cut(shorter, 0.95 * max(cost - excess, _SHORTEST) / size)
            saved = cost - estimate(shorter)
            if saved > 0:
                messages[at], count, excess = shorter, count + 1, excess - saved
    return replace(piece, messages=messages), count


def _as_text(message: Message) -> Message:
    """A result without its images, which are the first to go."""
    if not isinstance(message.content, list):
        return message
    return replace(message, content="\n".join(part.get("text", "[image]") for part in message.content))


def _cut(message: Message, share: float) -> Message:
    """A result of which the beginning and the end are left, and a note between them."""
    text = str(message.content)
    note = f"\n[{len(text)} characters, of which the middle is not shown]\n"
    half = max(int(len(text) * share) - len(note), 2) // 2
    return replace(message, content=text[:half] + note + text[-half:])
