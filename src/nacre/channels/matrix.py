"""Matrix, over its client API: every room the bot was invited to, as long as nobody encrypts it."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping
from hashlib import blake2b
from pathlib import Path
from typing import Any
from urllib.parse import quote

import anyio
from anyio.to_thread import run_sync
from msgspec import Struct

from nacre.channels.channel import Accept, Arrived, Attempts, Gone, Lost, Patience
from nacre.channels.channel_files import Position
from nacre.channels.channel_settings import address, needed, secret, variable
from nacre.channels.chunking import split, utf8
from nacre.channels.http_client import Api, Refusal
from nacre.channels.matrix_events import Event, Room, answer, batch, events, said, since_invited
from nacre.errors import ChannelError, ConfigError, NacreError, describe_error

logger = logging.getLogger(__name__)

_API = "/_matrix/client/v3"
_DEVICE = "nacre"
# An event may have 65,536 bytes with all that is around the text, and the text may be in it twice.
_LONGEST_TEXT = 20_000
_POLL = 30.0
_TYPING, _RENEWED, _BRIEFLY = 30_000, 20.0, 5.0
_PAGES = 50
_TYPES = ["m.room.message", "m.room.encrypted", "m.room.member"]
_NONE: dict[str, Any] = {"types": []}
_UNREADABLE = "This room is encrypted, and I cannot read its messages. Please write to me in an unencrypted room."
_UNAUTHORIZED, _TOO_MANY = 401, 429
_ALONE_TOGETHER = 2


class Config(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[channels.matrix]`: where the home server is, and who the bot is there, by token or by name and password."""

    homeserver: str
    user: str = ""
    token_file: str = ""
    password_file: str = ""


class Matrix:
    """A bot on one home server; `state` is a file for how far it has read.

    `welcome` says whose invitations are accepted; `html` makes of an answer
    what clients show instead of the bare text.
    """

    is_exact = True

    def __init__(  # noqa: PLR0913 - each may be another
        self,
        config: Config,
        *,
        state: Path,
        name: str = "matrix",
        welcome: Callable[[str], bool] = lambda _: False,
        html: Callable[[str], str] | None = None,
        patience: Patience | None = None,
        page: int = 100,
    ) -> None:
        self.name = name
        self._page = page
        self._config, self._welcome, self._html = config, welcome, html
        self._patience = patience or Patience()
        self._position = Position(state)
        self._token, self._password = _secrets(config, name)
        server = address(config.homeserver, section=f"channels.{name}", key="homeserver")
        self._api = Api(server, secret=self._token)
        self.is_up = False
        self._me = ""
        self._entered = anyio.Event()
        self._told: set[str] = set()
        self._crowded: dict[str, bool] = {}

    async def run(self, accept: Accept) -> None:
        """Hear people until cancelled; raises ConfigError if the server does not know the bot."""
        attempts = Attempts(self._patience)
        while True:
            try:
                await self._enter()
                await self._follow(accept, attempts)
            except Refusal as refusal:
                self._judge(refusal)
                logger.warning(
                    "the Matrix server rejected a request; retrying",
                    extra={"reason": describe_error(refusal)},
                )
            except ConfigError:
                raise
            except (Lost, NacreError, OSError) as error:
                logger.warning("connection to Matrix lost; reconnecting", extra={"reason": describe_error(error)})
            self.is_up = False
            await attempts.wait()

    async def send(self, to: Arrived, text: str, *, id: str) -> None:
        """Answer in the room, and in its thread if it was in one; the same `id` is shown once, however often sent."""
        await self._ready()
        for number, piece in enumerate(split(text, _LONGEST_TEXT, size=utf8)):
            content = answer(piece, to, html=self._html)
            await self._put(to.chat, f"{id}.{number}" if number else id, content)

    async def show_typing(self, to: Arrived) -> None:
        """Show that an answer is being written, until cancelled."""
        try:
            while True:
                await self._type(to.chat, typing=True)
                await anyio.sleep(_RENEWED)
        finally:
            with anyio.CancelScope(shield=True):
                await self._type(to.chat, typing=False)

    async def close(self) -> None:
        await self._api.close()

    # ---- who we are

    async def _enter(self) -> None:
        if not self._token:
            await self._log_in()
        found = await self._ask("GET", "/account/whoami")
        self._me = str(found.get("user_id") or "")
        self.is_up = True
        self._entered.set()

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
            found = await self._ask("POST", "/login", body)
        except Refusal as refusal:
            if refusal.status == _TOO_MANY:
                raise
            raise ConfigError(
                f"{self._config.homeserver} rejects the login of {self._config.user!r}: {refusal}"
            ) from None
        self._token = self._api.secret = str(found.get("access_token") or "")

    def _judge(self, refusal: Refusal) -> None:
        """What a refusal of the token means: log in again, or raise ConfigError if there is only a token."""
        if refusal.status != _UNAUTHORIZED:
            return
        if not self._password:
            where = f"channels.{self.name}.token_file"
            raise ConfigError(f"{self._config.homeserver} rejects the token of {where}") from None
        self._token = ""

    async def _ready(self) -> None:
        with anyio.move_on_after(self._patience.outage):
            await self._entered.wait()
        if not self._entered.is_set():
            raise ChannelError(f"{self._config.homeserver} cannot be reached, and nothing was sent")

    # ---- words in

    async def _follow(self, accept: Accept, attempts: Attempts) -> None:
        place = self._position.read()
        if place.get("user") != self._me:
            place = {"told": place.get("told")}
        since = str(place.get("since") or "")
        self._told = set(map(str, place.get("told") or ()))
        await self._enter_rooms(list(dict(place.get("invited") or {}).items()))
        while True:
            found = batch(await self._sync(since))
            heard = await self._take(found.rooms, since, accept)
            invitations = found.invitations(self._me)
            if not since:
                # Before any room is entered: what is said there from then on comes after this position.
                await self._keep(found.next, dict(invitations))
            await self._enter_rooms(invitations)
            since = found.next
            if heard or invitations:
                await self._keep(since)
            attempts.succeeded()

    async def _sync(self, since: str) -> dict[str, Any]:
        # The first answer only says where we are: what was said before the bot came is not for it.
        query = {"filter": _filter(self._page), "timeout": str(int(_POLL * 1000) if since else 0)}
        return await self._ask("GET", "/sync", query=query | ({"since": since} if since else {}), patience=2 * _POLL)

    async def _take(self, rooms: Mapping[str, Room], since: str, accept: Accept) -> bool:
        """Accept what was said in every room; whether anything was there at all."""
        if not since:
            return False
        for name, room in rooms.items():
            found = since_invited(room.events, self._me)
            if found is None:
                found = [*await self._gap(name, room.before, since), *room.events] if room.limited else room.events
            await self._hear(name, found, accept)
        return any(room.events for room in rooms.values())

    async def _hear(self, room: str, found: list[Event], accept: Accept) -> None:
        if any(event.type == "m.room.member" for event in found):
            self._crowded.pop(room, None)
        for event in found:
            if event.sender == self._me:
                continue
            if event.type == "m.room.encrypted":
                await self._tell(room)
            elif (arrived := await self._arrived(room, event)) is not None:
                await accept(arrived)

    async def _arrived(self, room: str, event: Event) -> Arrived | None:
        found = said(event, self._me)
        if found is None or not (found.to_me or not await self._is_crowded(room)):
            return None
        return Arrived(
            channel=self.name,
            account=self._me,
            chat=room,
            thread=found.thread,
            sender=event.sender,
            id=event.id,
            text=found.text,
            shown=event.sender,
        )

    async def _gap(self, room: str, before: str, since: str) -> list[Event]:
        """What was said between the last answer and the part of a room that the server shows at once."""
        found: list[Event] = []
        shape = json.dumps({"types": _TYPES})
        for _ in range(_PAGES):
            query = {"dir": "b", "from": before, "to": since, "limit": str(self._page), "filter": shape}
            page = await self._told_of(room, "messages", query)
            found += events(page.get("chunk"))
            before = str(page.get("end") or "")
            if not before or not page.get("chunk"):
                return found[::-1]
        logger.warning("too many messages in a Matrix room; the oldest were skipped", extra={"chat": room})
        return found[::-1]

    async def _enter_rooms(self, invitations: list[tuple[str, str]]) -> None:
        for room, sender in invitations:
            await self._invited(room, sender)

    async def _invited(self, room: str, sender: str) -> None:
        """Go where somebody who is welcome invites us; an invitation that has lapsed is no matter."""
        if not self._welcome(sender):
            logger.info("an invitation by an unknown user was ignored", extra={"channel": self.name})
            return
        try:
            await self._ask("POST", f"/join/{quote(room, safe='')}", {})
        except Refusal as refusal:
            if refusal.status in {_UNAUTHORIZED, _TOO_MANY}:
                raise
            logger.warning("a Matrix room cannot be joined", extra={"chat": room, "reason": describe_error(refusal)})

    async def _is_crowded(self, room: str) -> bool:
        """Whether there are others beside the bot and one person; there, only what is said to the bot is for it."""
        if room not in self._crowded:
            found = await self._told_of(room, "joined_members")
            if "joined" not in found:
                return True
            self._crowded[room] = len(found.get("joined") or ()) > _ALONE_TOGETHER
        return self._crowded[room]

    async def _told_of(self, room: str, what: str, query: Mapping[str, str] | None = None) -> dict[str, Any]:
        """What the server tells of a room; nothing if it refuses, so that one room does not stop all others."""
        try:
            return await self._ask("GET", f"/rooms/{quote(room, safe='')}/{what}", query=query)
        except Refusal as refusal:
            if refusal.status in {_UNAUTHORIZED, _TOO_MANY}:
                raise
            logger.warning("a Matrix room cannot be read", extra={"chat": room, "reason": describe_error(refusal)})
            return {}

    async def _keep(self, since: str, invited: Mapping[str, str] | None = None) -> None:
        """Note how far was read, and who invited us where as long as we have not gone there."""
        place = {"user": self._me, "since": since, "told": sorted(self._told), "invited": invited or {}}
        await run_sync(self._position.write, place)

    # ---- words out

    async def _tell(self, room: str) -> None:
        """Say once that an encrypted room cannot be read."""
        if room in self._told:
            return
        id = blake2b(room.encode(), digest_size=16).hexdigest()
        try:
            await self._put(room, f"encrypted-{id}", answer(_UNREADABLE, None))
        except ChannelError as error:
            logger.warning(
                "the notice about an encrypted Matrix room could not be sent",
                extra={"chat": room, "reason": describe_error(error)},
            )
        self._told.add(room)

    async def _put(self, room: str, id: str, content: dict[str, Any]) -> None:
        """Send an event until the server has it, always under the same id."""
        path = f"/rooms/{quote(room, safe='')}/send/m.room.message/{quote(id, safe='')}"
        attempts, reason = Attempts(self._patience), ""
        with anyio.move_on_after(self._patience.outage):
            while True:
                try:
                    await self._ask("PUT", path, content)
                except Lost as lost:
                    reason = str(lost)
                except Refusal as refusal:
                    reason = str(refusal)
                    await self._obey(refusal, room)
                else:
                    return
                await attempts.wait()
        raise ChannelError(
            f"{self._config.homeserver} {reason or 'does not answer'}; it is not known whether it was sent"
        )

    async def _obey(self, refusal: Refusal, room: str) -> None:
        """Wait as long as the server asks; raises Gone if waiting is of no use."""
        if refusal.status == _TOO_MANY:
            milliseconds = refusal.body.get("retry_after_ms")
            asked = milliseconds / 1000 if isinstance(milliseconds, int) else refusal.wait
            await self._patience.sleep(asked or 0)
        elif refusal.status != _UNAUTHORIZED:
            raise Gone(f"the Matrix room {room!r} cannot be written to: the server {refusal}") from None

    async def _type(self, room: str, *, typing: bool) -> None:
        body = {"typing": True, "timeout": _TYPING} if typing else {"typing": False}
        try:
            path = f"/rooms/{quote(room, safe='')}/typing/{quote(self._me, safe='')}"
            await self._ask("PUT", path, body, patience=_BRIEFLY)
        except (Lost, Refusal) as error:
            logger.debug("a typing notice was not accepted", extra={"reason": describe_error(error)})

    async def _ask(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        *,
        query: Mapping[str, str] | None = None,
        patience: float = 30.0,
    ) -> dict[str, Any]:
        self._api.headers = {"authorization": f"Bearer {self._token}"} if self._token else {}
        return await self._api.call(method, _API + path, body=body, query=query, patience=patience)


def _filter(page: int) -> str:
    """All that is asked of the server: what is said, and who comes and goes."""
    timeline = {"types": _TYPES, "limit": page}
    room = {"account_data": _NONE, "ephemeral": _NONE, "state": _NONE, "timeline": timeline}
    return json.dumps({"presence": _NONE, "account_data": _NONE, "room": room})


def _secrets(config: Config, name: str) -> tuple[str, str]:
    """The token, or nothing and the password."""
    section = f"channels.{name}"
    known = variable(name, "TOKEN")
    token = secret(config.token_file, known, section=section, key="token_file")
    if token or not config.user:
        return needed(token, section=section, key="token_file", variable=known), ""
    known = variable(name, "PASSWORD")
    password = secret(config.password_file, known, section=section, key="password_file")
    return "", needed(password, section=section, key="password_file", variable=known)
