"""Matrix, over its client API: every room the bot was invited to, as long as nobody encrypts it; and its events."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from hashlib import blake2b
from typing import Any
from urllib.parse import quote

import anyio
import msgspec
from anyio.to_thread import run_sync
from msgspec import Struct, field

from nacre.channels.channel import Accept, Gone, InboundMessage, Lost
from nacre.channels.channel_files import Cursor, Retries, RetryPolicy, parse_address, read_secret
from nacre.channels.chunking import clean, split, text_to, utf8
from nacre.channels.http_client import Api, Refusal
from nacre.errors import ChannelError, ConfigError, NacreError, describe_error
from nacre.storage.protocol import Document

logger = logging.getLogger(__name__)

_API = "/_matrix/client/v3"
_DEVICE = "nacre"
# An event may have 65,536 bytes with all that is around the text, and the text may be in it twice.
_MAX_TEXT = 20_000
_POLL = 30.0
_TYPING_MILLISECONDS, _TYPING_PAUSE, _TYPING_TIMEOUT = 30_000, 20.0, 5.0
_MAX_PAGES = 50
_TYPES = ["m.room.message", "m.room.encrypted", "m.room.member"]
_NONE: dict[str, Any] = {"types": []}
_UNREADABLE = "This room is encrypted, and I cannot read its messages. Please write to me in an unencrypted room."
_UNAUTHORIZED, _TOO_MANY = 401, 429
_PAIR = 2
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


class Config(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[channels.matrix]`: where the home server is, and who the bot is there, by token or by name and password."""

    homeserver: str
    user: str = ""
    token_file: str = ""
    password_file: str = ""


class Matrix:
    """A bot on one home server; `state` is a document for how far it has read.

    `welcome` says whose invitations are accepted; `html` makes of an answer
    what clients show instead of the bare text.
    """

    is_exact = True

    def __init__(  # noqa: PLR0913 - each may be another
        self,
        config: Config,
        *,
        state: Document,
        name: str = "matrix",
        welcome: Callable[[str], bool] = lambda _: False,
        html: Callable[[str], str] | None = None,
        retry: RetryPolicy | None = None,
        page: int = 100,
    ) -> None:
        self.name = name
        self._page = page
        self._config, self._welcome, self._html = config, welcome, html
        self._retry = retry or RetryPolicy()
        self._cursor = Cursor(state)
        # The token, or nothing and the password.
        token = read_secret(name, "token", config.token_file, is_required=not config.user)
        self._password = "" if token else read_secret(name, "password", config.password_file)
        server = parse_address(config.homeserver, section=f"channels.{name}", key="homeserver")
        self._api = Api(f"{server}{_API}", secret=token)
        self._use(token)
        self.is_up = False
        self._me = ""
        self._entered = anyio.Event()
        self._notified: set[str] = set()
        self._crowded: dict[str, bool] = {}

    async def run(self, accept: Accept) -> None:
        """Hear people until cancelled; raises ConfigError if the server does not know the bot."""
        retries = Retries(self._retry)
        while True:
            try:
                if not self._token:
                    await self._log_in()
                found = await self._api.call("GET", "/account/whoami")
                self._me = str(found.get("user_id") or "")
                self.is_up = True
                self._entered.set()
                await self._follow(accept, retries)
            except Refusal as refusal:
                if refusal.status == _UNAUTHORIZED and not self._password:
                    where = f"channels.{self.name}.token_file"
                    raise ConfigError(f"{self._config.homeserver} rejects the token of {where}") from None
                if refusal.status == _UNAUTHORIZED:
                    # It logs in again.
                    self._use("")
                reason = describe_error(refusal)
                logger.warning("the Matrix server rejected a request; retrying", extra={"reason": reason})
            except ConfigError:
                raise
            except (Lost, NacreError, OSError) as error:
                logger.warning("connection to Matrix lost; reconnecting", extra={"reason": describe_error(error)})
            self.is_up = False
            await retries.wait()

    async def send(self, to: InboundMessage, text: str, *, id: str) -> None:
        """Answer in the room, and in its thread if it was in one; the same `id` is shown once, however often sent."""
        with anyio.move_on_after(self._retry.outage):
            await self._entered.wait()
        if not self._entered.is_set():
            raise ChannelError(f"{self._config.homeserver} cannot be reached, and nothing was sent")
        for number, piece in enumerate(split(text, _MAX_TEXT, size=utf8)):
            content = answer(piece, to, html=self._html)
            await self._put(to.chat, f"{id}.{number}" if number else id, content)

    async def show_typing(self, to: InboundMessage) -> None:
        """Show that an answer is being written, until cancelled."""
        try:
            while True:
                await self._set_typing(to.chat, typing=True)
                await anyio.sleep(_TYPING_PAUSE)
        finally:
            with anyio.CancelScope(shield=True):
                await self._set_typing(to.chat, typing=False)

    async def close(self) -> None:
        await self._api.close()

    async def _log_in(self) -> None:
        """Get a token for the password, always as the same device: transactions are remembered per device."""
        body = {
            "type": "m.login.password",
            "identifier": {"type": "m.id.user", "user": self._config.user},
            "password": self._password,
            "device_id": _DEVICE,
            "initial_device_display_name": _DEVICE,
        }
        try:
            found = await self._api.call("POST", "/login", body=body)
        except Refusal as refusal:
            if refusal.status == _TOO_MANY:
                raise
            reason = f"rejects the login of {self._config.user!r}: {refusal}"
            raise ConfigError(f"{self._config.homeserver} {reason}") from None
        self._api.secret = str(found.get("access_token") or "")
        self._use(self._api.secret)

    def _use(self, token: str) -> None:
        """Send a token with every request; "" for none."""
        self._token = token
        self._api.headers = {"authorization": f"Bearer {token}"} if token else {}

    # ---- in

    async def _follow(self, accept: Accept, retries: Retries) -> None:
        # All that is requested of the server: what is said, and who comes and goes.
        timeline = {"types": _TYPES, "limit": self._page}
        of_room = {"account_data": _NONE, "ephemeral": _NONE, "state": _NONE, "timeline": timeline}
        shape = json.dumps({"presence": _NONE, "account_data": _NONE, "room": of_room})
        saved = await run_sync(self._cursor.read)
        if saved.get("user") != self._me:
            saved = {"told": saved.get("told")}
        since = str(saved.get("since") or "")
        self._notified = set(map(str, saved.get("told") or ()))
        await self._join_rooms(list(dict(saved.get("invited") or {}).items()))
        while True:
            # The first answer only says where we are: what was said before the bot came is not for it.
            query = {"filter": shape, "timeout": str(int(_POLL * 1000) if since else 0)}
            query |= {"since": since} if since else {}
            found = batch(await self._api.call("GET", "/sync", query=query, max_seconds=2 * _POLL))
            rooms = found.rooms if since else {}
            for name, room in rooms.items():
                # What came after we were let in; if that is not among it, all since the last answer.
                places = [place for place, event in enumerate(room.events) if event.admits(self._me)]
                gap = await self._read_gap(name, room.before, since) if room.limited and not places else []
                await self._hear(name, [*gap, *room.events[places[-1] + 1 if places else 0 :]], accept)
            # Each room that we are invited to, and by whom.
            invited = ((name, event) for name, state in found.invites.items() for event in state)
            invitations = [(name, event.sender) for name, event in invited if event.admits(self._me)]
            if not since:
                # Before any room is joined: what is said there from then on comes after this position.
                await self._save(found.next, dict(invitations))
            await self._join_rooms(invitations)
            since = found.next
            if invitations or any(room.events for room in rooms.values()):
                await self._save(since)
            retries.reset()

    async def _hear(self, room: str, found: list[Event], accept: Accept) -> None:
        if any(event.type == "m.room.member" for event in found):
            self._crowded.pop(room, None)
        for event in found:
            if event.sender == self._me:
                continue
            if event.type == "m.room.encrypted":
                await self._notify_encrypted(room)
                continue
            message = parse_message(event, self._me)
            if message is None or (not message.to_me and await self._is_crowded(room)):
                continue
            sender = event.sender
            who = {"channel": self.name, "account": self._me, "chat": room, "sender": sender, "shown": sender}
            await accept(InboundMessage(**who, thread=message.thread, id=event.id, text=message.text))

    async def _read_gap(self, room: str, before: str, since: str) -> list[Event]:
        """What was said between the last answer and the part of a room that the server shows at once."""
        found: list[Event] = []
        shape = json.dumps({"types": _TYPES})
        for _ in range(_MAX_PAGES):
            query = {"dir": "b", "from": before, "to": since, "limit": str(self._page), "filter": shape}
            page = await self._get_of_room(room, "messages", query)
            found += events(page.get("chunk"))
            before = str(page.get("end") or "")
            if not before or not page.get("chunk"):
                return found[::-1]
        logger.warning("too many messages in a Matrix room; the oldest were skipped", extra={"chat": room})
        return found[::-1]

    async def _join_rooms(self, invitations: list[tuple[str, str]]) -> None:
        """Join where somebody who is welcome invites us; an invitation that has lapsed is no matter."""
        for room, sender in invitations:
            if not self._welcome(sender):
                logger.info("an invitation by an unknown user was ignored", extra={"channel": self.name})
                continue
            try:
                await self._api.call("POST", f"/join/{quote(room, safe='')}", body={})
            except Refusal as refusal:
                if refusal.status in {_UNAUTHORIZED, _TOO_MANY}:
                    raise
                reason = describe_error(refusal)
                logger.warning("a Matrix room cannot be joined", extra={"chat": room, "reason": reason})

    async def _is_crowded(self, room: str) -> bool:
        """Whether there are others besides the bot and one person; there, only what is said to the bot is for it."""
        if room not in self._crowded:
            found = await self._get_of_room(room, "joined_members")
            if "joined" not in found:
                return True
            self._crowded[room] = len(found.get("joined") or ()) > _PAIR
        return self._crowded[room]

    async def _get_of_room(self, room: str, what: str, query: Mapping[str, str] | None = None) -> dict[str, Any]:
        """What the server reports of a room; nothing if it refuses, so that one room does not stop all others."""
        try:
            return await self._api.call("GET", f"/rooms/{quote(room, safe='')}/{what}", query=query)
        except Refusal as refusal:
            if refusal.status in {_UNAUTHORIZED, _TOO_MANY}:
                raise
            logger.warning("a Matrix room cannot be read", extra={"chat": room, "reason": describe_error(refusal)})
            return {}

    async def _save(self, since: str, invited: Mapping[str, str] | None = None) -> None:
        """Save how far was read, and who invited us where as long as we have not joined."""
        saved = {"user": self._me, "since": since, "told": sorted(self._notified), "invited": invited or {}}
        await run_sync(self._cursor.write, saved)

    # ---- out

    async def _notify_encrypted(self, room: str) -> None:
        """Say once that an encrypted room cannot be read."""
        if room in self._notified:
            return
        id = blake2b(room.encode(), digest_size=16).hexdigest()
        try:
            await self._put(room, f"encrypted-{id}", answer(_UNREADABLE, None))
        except ChannelError as error:
            fields = {"chat": room, "reason": describe_error(error)}
            logger.warning("the notice about an encrypted Matrix room could not be sent", extra=fields)
        self._notified.add(room)

    async def _put(self, room: str, id: str, content: dict[str, Any]) -> None:
        """Send an event until the server has it, always under the same id."""
        path = f"/rooms/{quote(room, safe='')}/send/m.room.message/{quote(id, safe='')}"
        retries, reason = Retries(self._retry), ""
        with anyio.move_on_after(self._retry.outage):
            while True:
                try:
                    await self._api.call("PUT", path, body=content)
                except Lost as lost:
                    reason = str(lost)
                except Refusal as refusal:
                    reason = str(refusal)
                    if refusal.status == _TOO_MANY:
                        # Wait as long as the server asks.
                        milliseconds = refusal.body.get("retry_after_ms")
                        asked = milliseconds / 1000 if isinstance(milliseconds, int) else refusal.wait
                        await self._retry.sleep(asked or 0)
                    elif refusal.status != _UNAUTHORIZED:
                        raise Gone(f"the Matrix room {room!r} cannot be written to: the server {refusal}") from None
                else:
                    return
                await retries.wait()
        reason = f"{reason or 'does not answer'}; it is not known whether it was sent"
        raise ChannelError(f"{self._config.homeserver} {reason}")

    async def _set_typing(self, room: str, *, typing: bool) -> None:
        body = {"typing": True, "timeout": _TYPING_MILLISECONDS} if typing else {"typing": False}
        try:
            path = f"/rooms/{quote(room, safe='')}/typing/{quote(self._me, safe='')}"
            await self._api.call("PUT", path, body=body, max_seconds=_TYPING_TIMEOUT)
        except (Lost, Refusal) as error:
            logger.debug("a typing notice was not accepted", extra={"reason": describe_error(error)})
