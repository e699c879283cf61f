"""Which messages a summary is to cover: whole turns, oldest first, never inside a tool pair, never the active turn."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

import msgspec
from msgspec import Struct

from nacre.entries import Message
from nacre.history.pairing import SAID_AS
from nacre.history.text import text_of
from nacre.history.tokens import count
from nacre.history.tokens import estimate as by_length
from nacre.history.window import Estimate

_FULL = 0.8
"""The share of either limit at which a summary is due, so that the next turn still fits."""
_KEPT = 0.4
"""The share of either limit that stays live, so that the next summary is not due at once."""

_END = 1500
"""Characters at either end of a tool's result that a model is told of."""
_SHORTEST, _MANY, _REPEATED = 8, 60, 8


class Limits(Struct, frozen=True, kw_only=True):
    """How much of a session a model is shown, in tokens and in messages."""

    tokens: int = 32_000
    messages: int = 50

    @property
    def keepsakes(self) -> int:
        """The tokens for what a summary carries word for word."""
        return self.tokens // 4

    @property
    def prose(self) -> int:
        """The longest summary that is taken, in tokens."""
        return self.tokens // 8


class Plan(Struct, frozen=True, kw_only=True):
    """What a summary is to cover: the messages up to record `upto`, on top of the previous summary."""

    upto: int
    covered: Sequence[Message]
    summary: str
    kept: int


def is_due(
    messages: Sequence[Message], *, live: int, summary: str = "", limits: Limits, estimate: Estimate = by_length
) -> bool:
    """Tell whether a session has come near a limit; `messages` are its last ones, of `live`."""
    if live > _FULL * limits.messages:
        return True
    return count(summary) + sum(map(estimate, messages)) > _FULL * limits.tokens


def plan(  # noqa: PLR0913 - what is there, and what is wanted of it
    messages: Sequence[Message],
    numbers: Sequence[int],
    *,
    summary: str = "",
    limits: Limits,
    everything: bool = False,
    reach: int | None = None,
    estimate: Estimate = by_length,
) -> Plan | None:
    """The range to summarise of all live messages; None if there is none.

    What stays live is what fits into a part of the limits, or only the active turn if `everything`
    else is to be covered. Of more than `reach` tokens only the oldest turns are covered.
    """
    places = list(cuts(messages))
    if not places:
        return None
    at = places[-1] if everything else _oldest_that_fits(messages, places, limits, estimate)
    if reach is not None:
        at = min(at, _newest_within(messages, places, reach, estimate))
    return Plan(upto=numbers[at - 1], covered=messages[:at], summary=summary, kept=len(messages) - at)


def cuts(messages: Sequence[Message]) -> Iterator[int]:
    """The places at which a history can be cut in two: before a user's words, no tool pair in both parts.

    None is behind the beginning of the active turn, which is the last one, answered or not.
    """
    earliest = _earliest_call(messages)
    active = _active(messages)
    for at in range(1, active + 1):
        if is_beginning(messages[at]) and earliest[at] >= at:
            yield at


def is_beginning(message: Message) -> bool:
    """Tell whether a turn begins with a message."""
    return message.role == "user" and SAID_AS not in message.extra


def told(messages: Iterable[Message]) -> list[str]:
    """Messages as a model is told of them that is to summarise them; of a long result only both ends."""
    return [line for message in messages for line in _told(message)]


def pieces(texts: Iterable[str], *, tokens: int) -> list[str]:
    """Texts put together into pieces of at most so many tokens; a longer one is parted, nothing is left out."""
    found: list[str] = []
    size = 0
    for text in texts:
        for part in _parts(text, tokens):
            cost = count(part) + 1
            if found and size + cost <= tokens:
                found[-1] += f"\n{part}"
                size += cost
            else:
                found.append(part)
                size = cost
    return found


def complaint(summary: str, *, tokens: int) -> str:
    """What is wrong with a summary that a model made, of at most so many tokens; "" if nothing is."""
    words = re.findall(r"\w+", summary.casefold())
    size = count(summary)
    if size < _SHORTEST or not any(map(str.isalpha, summary)):
        return f"it is almost empty: {summary!r:.80}"
    if size > tokens:
        return f"it has about {size} tokens; the maximum is {tokens}"
    if len(words) > _MANY and len(set(words)) * _REPEATED < len(words):
        return f"it repeats itself: {summary!r:.80}"
    return ""


def _told(message: Message) -> Iterator[str]:
    text = text_of(message).strip()
    if message.role == "tool":
        text = text if len(text) <= 2 * _END else f"{text[:_END]} […] {text[-_END:]}"
        yield f"result of {message.name or 'a tool'}: {text}"
        return
    if text or not message.tool_calls:
        yield f"{message.role}: {text or '[no text]'}"
    for call in message.tool_calls:
        arguments = call.arguments if isinstance(call.arguments, str) else msgspec.json.encode(call.arguments).decode()
        yield f"{message.role} calls {call.name}: {arguments if len(arguments) <= _END else arguments[:_END] + ' […]'}"


def _parts(text: str, tokens: int) -> Iterator[str]:
    """A text in parts of at most so many tokens, parted where a line or a word ends if there is one."""
    while (size := count(text)) > max(tokens - 1, 1):
        end = max(len(text) * max(tokens - 1, 1) // size * 3 // 4, 1)
        end = max(text.rfind("\n", 1, end), text.rfind(" ", 1, end)) if " " in text[1:end] else end
        yield text[:end]
        text = text[end:]
    yield text


def _active(messages: Sequence[Message]) -> int:
    """Where the last turn begins: behind the last answer that something follows; 0 if there is no such."""
    for at in range(len(messages) - 2, -1, -1):
        if messages[at].role == "assistant" and not messages[at].tool_calls:
            return next((place for place in range(at + 1, len(messages)) if is_beginning(messages[place])), 0)
    return 0


def _earliest_call(messages: Sequence[Message]) -> list[int]:
    """For each place, the first message that something from there on belongs to."""
    earliest = _owners(messages)
    for at in range(len(earliest) - 2, -1, -1):
        earliest[at] = min(earliest[at], earliest[at + 1])
    return earliest


def _owners(messages: Sequence[Message]) -> list[int]:
    """For each result the place of its call, for everything else its own.

    One that names no call belongs to any since the model last answered, so it counts for the first of them.
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
            # A model that has answered waits for nothing that was called before.
            calls.clear()
            first = -1
        owners.append(owner if owner >= 0 else at)
    return owners


def _oldest_that_fits(messages: Sequence[Message], places: Sequence[int], limits: Limits, estimate: Estimate) -> int:
    """The oldest place behind which everything fits into what is to stay live; the newest if none does."""
    tokens, most = _KEPT * limits.tokens, _KEPT * limits.messages
    chosen = end = len(messages)
    for at in reversed(places):
        tokens -= sum(map(estimate, messages[at:end]))
        if tokens < 0 or len(messages) - at > most:
            break
        chosen = end = at
    return chosen if chosen < len(messages) else places[-1]


def _newest_within(messages: Sequence[Message], places: Sequence[int], tokens: int, estimate: Estimate) -> int:
    """The newest place before which there are at most so many tokens; the oldest if there is no such."""
    chosen, start = places[0], 0
    for at in places:
        tokens -= sum(map(estimate, messages[start:at]))
        if tokens < 0:
            break
        chosen = start = at
    return chosen
