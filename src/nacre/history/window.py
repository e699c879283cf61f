"""What a model is shown of a session: the newest whole turns that fit, and a note where something is left out."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import accumulate, islice, pairwise
from operator import is_
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from nacre.history.pairing import SAID_AS, Piece, as_shown, attach_results, distinct, is_silent
from nacre.history.tokens import estimate as by_length
from nacre.messages import Message

Estimate = Callable[[Message], int]

NO_BEGINNING = "[the beginning of this conversation is not shown]"
_MIN_TOKENS = 64
"""Tokens that a tool's result keeps, however little room there is."""


class Window(Struct, frozen=True, kw_only=True):
    """Messages that every provider takes, about how many tokens they cost, and what in them differs from the log.

    `left_out` counts the messages that are not shown, `interrupted` the calls that were never answered,
    `orphans` the results without a call and those that a later one replaced, `shortened` the results that were cut.
    """

    messages: list[Message]
    tokens: int
    left_out: int
    interrupted: int
    orphans: int
    shortened: int

    @property
    def is_cut(self) -> bool:
        """Tell whether something is missing that a summary could stand for."""
        return bool(self.left_out or self.shortened)


def window(
    messages: Sequence[Message], *, summary: str = "", tokens: int, limit: int, estimate: Estimate = by_length
) -> Window:
    """The newest whole turns within a number of tokens and of messages; a turn begins at a user's message.

    The newest turn is always there. If it alone is too long, its earlier steps are left out, and then the
    results of the last one are cut, never anyone's words. Where a summary exists or something is left out, a
    user's message says so; it does not count towards `limit`. While messages are appended, what is shown keeps
    its beginning for as long as it can: the beginning moves rarely, and then by up to a half.
    """
    count = len(messages)
    return recent(reversed(messages), count=count, summary=summary, tokens=tokens, limit=limit, estimate=estimate)


def recent(  # noqa: PLR0913 - what `window` takes, the count, and what is remembered
    newest_first: Iterable[Message],
    *,
    count: int,
    summary: str = "",
    tokens: int,
    limit: int,
    estimate: Estimate = by_length,
    known: Turns | None = None,
) -> Window:
    """The same for messages that come newest first, of which there are `count`; reads little more than it shows.

    With `known`, turns that were shown before are not worked out again, by the estimate that is theirs.
    """
    messages, summary = _NewestFirst(newest_first), summary.strip()
    if known is None:
        known = Turns(estimate, limit=0)
    estimate = known.estimate
    note = sum(map(estimate, _longest_note(summary, len(str(count)))))
    turns: list[Turn] = []
    read = used = size = steps = shortened = 0
    seeking: list[Message] = []
    is_cut = False
    # 1. Whole turns, newest first, as long as they fit; the newest one is made to fit.
    while True:
        # The newest turn still grows, and results that come late change the turn that they belong to.
        is_settled = bool(turns) and not seeking
        turn = known.find(messages, read) if is_settled else None
        if turn is None:
            room = (limit - size, tokens - used) if turns else (math.inf, math.inf)
            said = _turn(messages.since(read), estimate, *room)
            if not said:
                break
            piece = attach_results([*reversed(said), *seeking])
            turn = Turn(said, piece, sum(map(estimate, piece.messages)))
            if is_settled:
                known.keep(turn)
        # There is something to say if this turn is the oldest one.
        needs_note = read + len(turn.said) < count or summary or not is_beginning(turn.said[-1])
        left = tokens - used - (note if needs_note else 0)
        if turns and (turn.cost > left or size + len(turn.piece.messages) > limit):
            is_cut = True
            break
        if not turns and turn.cost > left:
            piece, steps, shortened = _shorten(turn.piece, left, estimate)
            turn = Turn(turn.said, piece, sum(map(estimate, piece.messages)))
        turns.append(turn)
        seeking, read, used = turn.piece.seeking, read + len(turn.said), used + turn.cost
        size += len(turn.piece.messages)
        if steps or shortened:
            break
    # 2. If some are left out, leave out more, up to a round number: it stays the same while further ones come.
    if is_cut or read < count:
        is_cut, least = True, max(count - read, 1)
        round_number = _roundest(least, least + read // 2)
        while len(turns) > 1 and count - read < round_number:
            turn = turns.pop()
            read, used, seeking = read - len(turn.said), used - turn.cost, turns[-1].piece.seeking
    # 3. A note says what is missing.
    older = max(count - read, 1) + len(seeking) if is_cut else 0
    shown: list[Message] = []
    for turn in reversed(turns):
        shown += turn.piece.messages
    shown = distinct(shown)
    heading = _note(summary, older, begins=not shown or shown[0].role == "user")
    return Window(
        messages=[*heading, *shown],
        tokens=used + sum(map(estimate, heading)),
        left_out=older + steps,
        interrupted=sum([turn.piece.interrupted for turn in turns]),
        orphans=sum([turn.piece.orphans for turn in turns]) + (0 if is_cut else len(seeking)),
        shortened=shortened,
    )


# ---- what is remembered of a session that is looked at again and again


class Costs:
    """An estimate that works each message out once."""

    def __init__(self, estimate: Estimate = by_length, *, limit: int = 1024) -> None:
        self._estimate = estimate
        self._most = limit
        # The message is kept with what it costs, so that its id stays its own.
        self._known: dict[int, tuple[Message, int]] = {}

    def __call__(self, message: Message) -> int:
        found = self._known.get(id(message))
        if found is None:
            if len(self._known) >= self._most:
                self._known.clear()
            found = self._known[id(message)] = (message, self._estimate(message))
        return found[1]


class Turn(NamedTuple):
    """The messages of a turn, newest first, the turn as it is shown, and what that costs."""

    said: list[Message]
    piece: Piece
    cost: int


class Turns:
    """Whole turns of a session as they are shown, each worked out once; at most `limit` of them."""

    def __init__(self, estimate: Estimate = by_length, *, limit: int = 100) -> None:
        self.estimate = estimate
        self._most = limit
        # By the last message of each, which is kept here, so that its id stays its own.
        self._known: dict[int, Turn] = {}

    def find(self, messages: _NewestFirst, start: int) -> Turn | None:
        """The turn whose last message stands at a place, if it is known and has the same messages still."""
        last = messages.at(start)
        turn = self._known.get(id(last))
        if turn is None or last is None:
            return None
        said = messages.part(start, len(turn.said))
        return turn if len(said) == len(turn.said) and all(map(is_, said, turn.said)) else None

    def keep(self, turn: Turn) -> None:
        """Remember a turn if it is whole, and no results of later ones were given to it."""
        if is_beginning(turn.said[-1]) and self._most:
            if len(self._known) >= self._most:
                self._known.clear()
            self._known[id(turn.said[0])] = turn


class _NewestFirst:
    """Messages that are read as far as they are needed, by their place; the newest one is 0."""

    def __init__(self, messages: Iterable[Message]) -> None:
        self._read: list[Message] = []
        self._rest = iter(messages)

    def at(self, place: int) -> Message | None:
        """The message at a place; None if there is none."""
        found = self._read
        if place >= len(found):
            found.extend(islice(self._rest, place + 1 - len(found)))
        return found[place] if place < len(found) else None

    def part(self, start: int, size: int) -> list[Message]:
        """So many messages from a place on; fewer if there are no more."""
        self.at(start + size - 1)
        return self._read[start : start + size]

    def since(self, start: int) -> Iterator[Message]:
        while (message := self.at(start)) is not None:
            yield message
            start += 1


def _roundest(low: int, high: int) -> int:
    """The number in a range that the highest power of two divides.

    While both ends grow, it stays the same for about as long as the range is wide.
    """
    while (rounder := high & (high - 1)) >= low:
        high = rounder
    return high


def _turn(newest_first: Iterator[Message], estimate: Estimate, limit: float, room: float) -> list[Message]:
    """The next older turn, newest message first; only its end if that is more messages or tokens than there is room."""
    found: list[Message] = []
    for message in newest_first:
        found.append(message)
        seen = as_shown(message) if message.role != "tool" else None
        if seen is not None:
            limit -= 1 + len(seen.tool_calls)
            room -= estimate(seen)
        if is_beginning(message) or limit < 0 or room < 0:
            break
    return found


def is_beginning(message: Message) -> bool:
    """Tell whether a turn begins with a message."""
    return message.role == "user" and SAID_AS not in message.extra and not is_silent(message)


def _note(summary: str, left_out: int, *, begins: bool) -> list[Message]:
    """The message that comes before all others, if there is something to say; else nothing."""
    said = [f"[summary of what was said before]\n{summary}"] if summary else []
    if left_out:
        said.append(f"[{left_out} earlier message{' is' if left_out == 1 else 's are'} not shown]")
    if not said and not begins:
        said.append(NO_BEGINNING)
    return [Message(role="user", content="\n\n".join(said))] if said else []


@lru_cache(maxsize=64)
def _longest_note(summary: str, digits: int) -> Sequence[Message]:
    """The note at its longest: how much is left out is known only in the end, but for how many digits that has."""
    return _note(summary, 10**digits - 1, begins=False)


# ---- a turn that is too long


def _shorten(piece: Piece, room: int, estimate: Estimate) -> tuple[Piece, int, int]:
    """A turn without its earlier steps and with its results cut, until it fits or nothing more can go.

    A step is an answer of the model with the results of its calls. What stands before the first one stays, and so
    does the last step. Returns also how many messages were left out, and how many results were cut.
    """
    messages, gone, count = list(piece.messages), 0, 0
    excess = sum(map(estimate, messages)) - room
    starts = [at for at, message in enumerate(messages) if message.role == "assistant"]
    if excess > 0 and len(starts) > 1:
        excess += estimate(_steps_note(len(starts)))
        costs = [sum(map(estimate, messages[at:end])) for at, end in pairwise(starts)]
        least = next((n for n, saved in enumerate(accumulate(costs), 1) if saved >= excess), len(costs))
        # As with turns, up to a round number, so that it stays the same at the next step.
        steps = _roundest(least, min(least + (len(starts) - least) // 2, len(costs)))
        gone = starts[steps] - starts[0]
        messages[starts[0] : starts[steps]] = [_steps_note(steps)]
        excess -= sum(costs[:steps])
    for at, message in enumerate(messages):
        if excess <= 0:
            break
        cost = estimate(message)
        if message.role == "tool" and cost > _MIN_TOKENS:
            # Images are the first to go; then all but the beginning and the end, with a note between them.
            shorter = message
            if isinstance(message.content, list):
                text = "\n".join(part.get("text", "[image]") for part in message.content)
                shorter = replace(message, content=text)
            size = estimate(shorter)
            if excess > cost - size:
                text = str(shorter.content)
                note = f"\n[{len(text)} characters, of which the middle is not shown]\n"
                # A little less than fits: tokens are not quite proportional to characters.
                share = 0.95 * max(cost - excess, _MIN_TOKENS) / size
                half = max(int(len(text) * share) - len(note), 2) // 2
                shorter = replace(shorter, content=text[:half] + note + text[-half:])
            saved = cost - estimate(shorter)
            if saved > 0:
                messages[at], count, excess = shorter, count + 1, excess - saved
    return replace(piece, messages=messages), gone, count


@lru_cache(maxsize=64)
def _steps_note(count: int) -> Message:
    are = "step of this turn is" if count == 1 else "steps of this turn are"
    return Message(role="user", content=f"[{count} earlier {are} not shown]")
