"""Which messages a summary is to cover: whole turns, oldest first, and of a long last turn its earlier steps."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate

from msgspec import Struct

from nacre.history.message_text import text_of
from nacre.history.pairing import as_shown
from nacre.history.tokens import count
from nacre.history.tokens import estimate as by_length
from nacre.history.window import Estimate, is_beginning
from nacre.messages import Message

_FULL, _FULL_OF_MESSAGES = 0.8, 0.96
"""The share of the tokens, and of the messages, at which a summary is due, so that the next turn usually still fits.

Of the messages it is the larger, because each is only one: the later a summary is, the longer requests continue.
"""
_KEPT = 0.25
"""The share of either limit that stays live, so that the next summary is not due at once."""
_LONG = 0.5
"""The share of the tokens above which the last turn alone is too long to stay whole."""
_WORTHWHILE, _NEEDED = 0.25, 0.1
"""The share of either limit that a summary covers at least, or it is not asked for: after a turn, and inside one."""

REQUEST = "[the user's message that is being answered]"


class Limits(Struct, frozen=True, kw_only=True):
    """How much of a session a model is shown, in tokens and in messages."""

    tokens: int = 32_000
    messages: int = 50

    @property
    def kept_texts(self) -> int:
        """The tokens for what a summary carries word for word."""
        return self.tokens // 4

    @property
    def prose(self) -> int:
        """The longest summary that is taken, in tokens."""
        return self.tokens // 8


class Plan(Struct, frozen=True, kw_only=True):
    """What a summary is to cover: the messages up to record `upto`, on top of the previous summary.

    `request` is what the user said in the turn that the rest begins in the middle of; a summary has it word for word.
    `ended` is such a request of the previous summary whose turn is over.
    """

    upto: int
    covered: Sequence[Message]
    summary: str
    kept: int
    request: str = ""
    ended: str = ""


def is_due(
    messages: Sequence[Message], *, live: int, summary: str = "", limits: Limits, estimate: Estimate = by_length
) -> bool:
    """Tell whether a session has come near a limit; `messages` are its last ones, of `live`.

    They are counted as they are sent, with the facts that were recalled for them.
    """
    is_long = live > _FULL_OF_MESSAGES * limits.messages
    return is_long or count(summary) + _cost(messages, estimate) > _FULL * limits.tokens


def plan(  # noqa: PLR0913 - what is there, and what is wanted of it
    messages: Sequence[Message],
    numbers: Sequence[int],
    *,
    summary: str = "",
    limits: Limits,
    everything: bool = False,
    inside: bool = False,
    reach: int | None = None,
    estimate: Estimate = by_length,
) -> Plan | None:
    """The range to summarise of all live messages; None if there is none that is worth it.

    What stays live is what fits into a part of the limits, or only the active turn if `everything` else is to be
    covered. With `inside`, an active turn that is too long itself is cut between two of its steps. Of more than
    `reach` tokens only the oldest turns are covered.
    """
    places, active = list(cuts(messages)), _active(messages)
    if inside and _cost(messages[active:], estimate) > _LONG * limits.tokens:
        places += steps(messages)
    if not places:
        return None
    at = places[-1] if everything else _oldest_that_fits(messages, places, limits, estimate)
    least = _NEEDED if inside else _WORTHWHILE
    is_little = at < least * limits.messages and _cost(messages[:at], estimate) < least * limits.tokens
    if is_little and not everything:
        return None
    if reach is not None:
        at = min(at, _newest_within(messages, places, reach, estimate))
    # If another turn is active than the one that the previous summary was made in, that one's request is past.
    earlier, summary = split_request(summary)
    said = [text_of(message) for message in messages[active:at] if is_beginning(message)]
    return Plan(
        upto=numbers[at - 1],
        covered=messages[:at],
        summary=summary,
        kept=len(messages) - at,
        request="\n\n".join(said if active or not earlier else [earlier, *said]),
        ended=earlier if active else "",
    )


def join_request(summary: str, request: str) -> str:
    """A summary that ends with the user's words which are being answered."""
    quoted = "\n".join(f"| {line}" for line in request.split("\n"))
    clean = summary.replace(REQUEST, "").strip()
    return f"{clean}\n\n{REQUEST}\n{quoted}" if request else clean


def split_request(summary: str) -> tuple[str, str]:
    """The words that are being answered, as a summary has them, and the summary without them."""
    rest, mark, quoted = f"\n{summary}".rpartition(f"\n{REQUEST}\n")
    lines = quoted.split("\n")
    if not mark or not all(line.startswith("| ") for line in lines):
        return "", summary
    return "\n".join(line[2:] for line in lines), rest.strip()


def steps(messages: Sequence[Message]) -> Iterator[int]:
    """The places between two steps of the active turn at which it can be cut: before an answer of the model."""
    earliest = _earliest_call(messages)
    for at in range(_active(messages) + 1, len(messages)):
        if messages[at].role == "assistant" and earliest[at] >= at:
            yield at


def cuts(messages: Sequence[Message]) -> Iterator[int]:
    """The places at which a history can be cut in two: before a user's words, no tool pair in both parts.

    None is after the beginning of the active turn, which is the last one, answered or not.
    """
    earliest = _earliest_call(messages)
    for at in range(1, _active(messages) + 1):
        if is_beginning(messages[at]) and earliest[at] >= at:
            yield at


def _active(messages: Sequence[Message]) -> int:
    """Where the last turn begins: after the last answer that something follows; 0 if there is no such."""
    for at in range(len(messages) - 2, -1, -1):
        if messages[at].role == "assistant" and not messages[at].tool_calls:
            return next((place for place in range(at + 1, len(messages)) if is_beginning(messages[place])), 0)
    return 0


def _earliest_call(messages: Sequence[Message]) -> list[int]:
    """For each place, the first message that something from there on belongs to.

    A result belongs to its call, everything else to itself. A result that names no call belongs to any since the
    model last answered, so it counts for the first of them.
    """
    owners: list[int] = []
    calls: dict[str, int] = {}
    first = -1
    for at, message in enumerate(messages):
        owner = at
        if message.role == "tool":
            owner = calls.get(message.tool_call_id, at) if message.tool_call_id else first
        elif message.role == "assistant" and message.tool_calls:
            calls.update((call.id, at) for call in message.tool_calls)
            first = at if first < 0 else first
        elif message.role == "assistant":
            # A model that has answered waits for no result that does not name its call.
            first = -1
        owners.append(owner if owner >= 0 else at)
    return list(accumulate(reversed(owners), min))[::-1]


def _oldest_that_fits(messages: Sequence[Message], places: Sequence[int], limits: Limits, estimate: Estimate) -> int:
    """The oldest place after which everything fits into what is to stay live; the newest if none does."""
    tokens, limit = _KEPT * limits.tokens, _KEPT * limits.messages
    chosen = end = len(messages)
    for at in reversed(places):
        tokens -= _cost(messages[at:end], estimate)
        if tokens < 0 or len(messages) - at > limit:
            break
        chosen = end = at
    return chosen if chosen < len(messages) else places[-1]


def _newest_within(messages: Sequence[Message], places: Sequence[int], tokens: int, estimate: Estimate) -> int:
    """The newest place before which there are no more tokens than given; the oldest if there is no such."""
    chosen, start = places[0], 0
    for at in places:
        tokens -= _cost(messages[start:at], estimate)
        if tokens < 0:
            break
        chosen = start = at
    return chosen


def _cost(messages: Iterable[Message], estimate: Estimate) -> int:
    """The tokens of messages as they are sent."""
    seen = (message if message.role == "tool" else as_shown(message) for message in messages)
    return sum(estimate(message) for message in seen if message is not None)
