"""How a channel is served, and who in it is the agent's owner and who a guest."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import msgspec
from msgspec import Struct

from nacre.config import Settings, is_name
from nacre.errors import ConfigError

TAKEN = ("api", "nacre", "schedule")
"""What no channel is called: their sessions come over HTTP, are our own, or begin with the clock."""
API = "api"
"""How the keys of sessions over HTTP begin."""
_ALL = "*"
_PARTS = 5


class Access(Struct, frozen=True, kw_only=True, rename={"keeps": "session_persistence"}):
    """Who may write in a channel, how often, whose session it is, whether anything is kept, and whose agent it is."""

    allow: Sequence[str] = (_ALL,)
    owners: Sequence[str] | None = None
    per_minute: int = 30
    per: Literal["sender", "chat"] = "sender"
    keeps: bool = True

    @property
    def named(self) -> Sequence[str]:
        """Everybody of whom the configuration says something."""
        return [*self.allow, *(self.owners or ())]

    def lets(self, sender: str) -> bool:
        """Tell whether a user may write."""
        return _ALL in self.allow or sender in self.allow

    def is_owner(self, sender: str) -> bool:
        """Tell whether a user owns the agent: without configured owners, the only allowed user does."""
        only = self.allow if len(self.allow) == 1 and _ALL not in self.allow else ()
        owners = self.owners if self.owners is not None else only
        return _ALL in owners or sender in owners


def channel_tables(settings: Settings) -> Mapping[str, dict[str, Any]]:
    """The tables of channels; what else is in their section is about all of them."""
    return {name: table for name, table in settings.table("channels").items() if isinstance(table, dict)}


def access_of(settings: Settings) -> Callable[[str], Access]:
    """How each channel is served; what the configuration says of keeping holds unless the channel's table says else."""
    kept = "session_persistence"
    usual = settings.flag(f"channels.{kept}")
    found: dict[str, Access] = {}
    for name, table in channel_tables(settings).items():
        own = {key: value for key, value in table.items() if key in Access.__struct_encode_fields__}
        try:
            made = msgspec.convert({kept: usual, **own}, Access)
        except msgspec.ValidationError as error:
            raise ConfigError(f"[channels.{name}] cannot be used: {error}") from error
        has_nicks = table.get("kind", name) == "irc" and table.get("identify", "nick") == "nick"
        if has_nicks:
            from nacre.channels.irc_lines import fold  # noqa: PLC0415 - each channel only where it is configured

            # In keys, and as the channel gives them, nicks are in lower case.
            allow, owners = ([fold(nick, "ascii") for nick in nicks or ()] for nicks in (made.allow, made.owners))
            made = msgspec.structs.replace(made, allow=allow, owners=None if made.owners is None else owners)
        found[name] = made
    return lambda channel: found.get(channel) or Access(keeps=usual)


class Guests:
    """Tells by its key whether a session is a guest's, who must not reach what is the owner's or another guest's.

    It is if it came through a channel, and not from its owner alone; that of a channel which the configuration does
    not know (any more) names nobody who could be the owner. Over HTTP it is if the token that its key names is, or
    was, not an owner's (`is_owners`). A session of an earlier agent is judged by the keys of those who continue it,
    else by all of its names.
    """

    def __init__(
        self,
        settings: Settings,
        aliases: Callable[[str], Sequence[str]] = lambda _: (),
        *,
        is_owners: Callable[[str], bool] = lambda _: False,
    ) -> None:
        access = access_of(settings)
        self._access = {name: access(name) for name in channel_tables(settings)}
        self._aliases, self._is_owners = aliases, is_owners

    def __call__(self, key: str) -> bool:
        # A request without a session has no key.
        names = self._aliases(key) if key else ()
        continued = [name for name in names if is_of_sender(name)]
        return any(map(self._is_guests, continued or (key, *names)))

    def _is_guests(self, key: str) -> bool:
        parts = key.split(":")
        channel, sender = parts[0], parts[-1]
        if account := account_of(key):
            return not self._is_owners(account)
        if len(parts) == _PARTS and channel in self._access and sender:
            return not self._access[channel].is_owner(sender.replace("%3A", ":").replace("%25", "%"))
        for name, access in self._access.items():
            # The later ones are how earlier agents named their sessions, which do not say who the sender is.
            if key.startswith((f"{name}:", f"{name}_", f"agent:main:{name}:")):
                return not (access.allow and all(map(access.is_owner, access.allow)))
        return len(parts) == _PARTS and is_name(channel) and channel not in TAKEN


def account_of(key: str) -> str:
    """The token that a session over HTTP belongs to, by its key, and where it is one of its users the user too.

    Empty for one of the owner's token in the environment, and for any other session.
    """
    channel, _, rest = key.partition(":")
    account, colon, _ = rest.partition(":")
    return account if channel == API and colon else ""


def is_of_sender(key: str) -> bool:
    """Tell whether a key has the parts that those of senders and chats have; some of earlier agents have as many."""
    return len(key.split(":")) == _PARTS and not key.startswith("agent:")
