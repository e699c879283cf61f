"""Matrix events: what is in a server's answer, what a message says, and what an answer looks like."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import msgspec
from msgspec import Struct, field

from nacre.channels.channel import InboundMessage, Lost
from nacre.channels.chunking import clean, text_to

# Not sets: what is looked for in them may be anything, and not everything has a hash.
_INSIDE = ("invite", "join")
_TYPED = ("m.text", "m.emote")


class Event(Struct, frozen=True, kw_only=True):
    """One event of a room; events of any other shape are ignored."""

    type: str
    sender: str
    id: str = field(default="", name="event_id")
    content: dict[str, Any] = {}
    state_key: str | None = None
    unsigned: dict[str, Any] = {}

    def admits(self, user: str) -> bool:
        """Whether it invites somebody in, or lets them in who were not inside."""
        if self.type != "m.room.member" or self.state_key != user:
            return False
        before = self.unsigned.get("prev_content")
        was_in = isinstance(before, dict) and before.get("membership") in _INSIDE
        return self.content.get("membership") in _INSIDE and not was_in


class Room(Struct, frozen=True):
    """What is new in a room; if it is limited, there is more before it, up to where `before` is."""

    events: list[Event]
    limited: bool
    before: str


class Batch(Struct, frozen=True):
    """What is new, and where to go on."""

    next: str
    rooms: dict[str, Room]
    invites: dict[str, list[Event]]

    def invitations(self, user: str) -> list[tuple[str, str]]:
        """Each room that somebody is invited to, and by whom."""
        return [(room, event.sender) for room, found in self.invites.items() for event in found if event.admits(user)]


class RoomMessage(Struct, frozen=True, kw_only=True):
    """What somebody said, in which thread, and whether it was said to the bot by name."""

    text: str
    thread: str
    to_me: bool


def batch(answer: dict[str, Any]) -> Batch:
    """What a server's answer holds; raises Lost if it does not say where to go on."""
    place, rooms = answer.get("next_batch"), _object(answer.get("rooms"))
    if not isinstance(place, str) or not place:
        raise Lost("answered without a next_batch token")
    joined: dict[str, Room] = {}
    for name, room in _named(rooms.get("join")):
        timeline = _object(room.get("timeline"))
        before = str(timeline.get("prev_batch") or "")
        joined[name] = Room(events(timeline.get("events")), timeline.get("limited") is True, before)
    invites = {
        name: events(_object(room.get("invite_state")).get("events")) for name, room in _named(rooms.get("invite"))
    }
    return Batch(place, joined, invites)


def events(found: Any) -> list[Event]:
    """The events of a list that have the shape of one."""
    parsed: list[Event] = []
    for item in found if isinstance(found, list) else ():
        with suppress(msgspec.ValidationError):
            event = msgspec.convert(item, Event)
            parsed += [event] if event.sender.isprintable() and event.id.isprintable() else []
    return parsed


def since_invited(found: list[Event], user: str) -> list[Event] | None:
    """What came after somebody was let in; None if that is not among it."""
    places = [place for place, event in enumerate(found) if event.admits(user)]
    return found[places[-1] + 1 :] if places else None


def parse_message(event: Event, user: str) -> RoomMessage | None:
    """What a message says; None if it is an edit, a bot's, or no text."""
    body, relation = event.content.get("body"), _object(event.content.get("m.relates_to"))
    typed = event.type == "m.room.message" and event.content.get("msgtype") in _TYPED
    if not typed or not isinstance(body, str) or not event.id or relation.get("rel_type") == "m.replace":
        return None
    if "m.in_reply_to" in relation and body.startswith("> "):
        # A reply without the lines that older clients quote before it.
        lines = body.split("\n")
        end = next((place for place, line in enumerate(lines) if not line.startswith(">")), len(lines))
        body = "\n".join(lines[end:]).lstrip("\n")
    text = clean(body).strip()
    # The words without the name before them, if there is one.
    name = user.removeprefix("@").partition(":")[0]
    words = next((words for form in (user, name) if (words := text_to(text, form)) is not None), None)
    named = words is not None or user in text
    text = text if words is None else words
    thread = relation.get("event_id") if relation.get("rel_type") == "m.thread" else ""
    mentioned = _object(event.content.get("m.mentions")).get("user_ids")
    to_me = named or (isinstance(mentioned, list) and user in mentioned)
    if not isinstance(thread, str) or not thread.isprintable():
        thread = ""
    return RoomMessage(text=text, thread=thread, to_me=to_me) if text else None


def answer(text: str, to: InboundMessage | None, *, html: Callable[[str], str] | None = None) -> dict[str, Any]:
    """The content of an answer; it is a notice, which no bot answers."""
    content: dict[str, Any] = {"msgtype": "m.notice", "body": text, "m.mentions": {}}
    if html is not None:
        content |= {"format": "org.matrix.custom.html", "formatted_body": html(text)}
    if to is not None and to.thread:
        content["m.relates_to"] = {
            "rel_type": "m.thread",
            "event_id": to.thread,
            "is_falling_back": True,
            "m.in_reply_to": {"event_id": to.id or to.thread},
        }
    return content


def _named(found: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    yield from ((name, _object(room)) for name, room in _object(found).items() if name.isprintable())


def _object(found: Any) -> dict[str, Any]:
    return found if isinstance(found, dict) else {}
