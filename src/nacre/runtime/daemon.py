"""The agent as a daemon: its channels made, joined to their sessions, and served."""

from __future__ import annotations

import importlib.metadata
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

import nacre
from nacre.agent.actor import Agent
from nacre.agent.kernel import Kernel
from nacre.channels.channel import Channel, InboundMessage
from nacre.channels.channel_files import parse_settings
from nacre.config import Settings, is_name
from nacre.errors import (
    ConfigError,
    DurabilityUnknown,
    LogDamaged,
    NacreError,
    ProviderError,
    Refused,
    SessionBusy,
    SessionNotFound,
)
from nacre.runtime.app import App
from nacre.runtime.gateway.access import TAKEN, Access, access_of, channel_tables
from nacre.runtime.gateway.earlier_agent import Earlier, kinds_of
from nacre.runtime.gateway.gateway import Command, Gateway, Room
from nacre.runtime.gateway.inbox import KEYS, Inbox
from nacre.runtime.workers import WorkerKernel

if TYPE_CHECKING:
    from nacre.channels.schedules import Forward

GROUP = "nacre.channels"
_OWN = ("irc", "matrix", "telegram")
_WORK = "delegate"
FOLDER = "channels"
"""Where in an agent's local folder its channels keep how far they have read."""
_HELP = """\
Write a message, and I will answer. I also know these commands:
/new: start a new conversation
/status: show which model answers, and whether a turn is running
/stop: stop the current turn
/compact: summarise the conversation so far"""


@asynccontextmanager
async def serving(app: App) -> AsyncIterator[Gateway]:
    """A gateway for the configured channels; raises ConfigError for a channel that cannot be created.

    Raises SessionBusy if another gateway uses the store: two would answer the same messages.
    """
    async with AsyncExitStack() as stack:
        hold = app.sessions.hold(KEYS[0])
        try:
            hold.take()
        except SessionBusy as error:
            where = f"{app.sessions.location} is in use by another daemon: {error}"
            raise SessionBusy(f"{where}; stop it, or choose another store with --store") from error
        stack.callback(hold.close)

        # Sessions live on disk, and in RAM for channels that keep nothing. A subagent's session would be on disk.
        passing = stack.enter_context(nacre.open(":memory:"))

        def agent_for(key: str) -> Agent:
            found = app.agent_for(key)
            return replace(found, tools={name: tool for name, tool in found.tools.items() if name != _WORK})

        kernel = await stack.enter_async_context(Kernel(passing, agent_for))
        rooms = {True: Room(app.sessions, app.kernel), False: Room(passing, kernel)}

        folder = Path(app.root) / FOLDER
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        access = access_of(app.settings)
        channels = channels_of(app.settings, folder, access)
        for channel in channels:
            stack.push_async_callback(channel.close)
        yield Gateway(
            channels,
            inbox=Inbox(app.sessions),
            room=lambda channel: rooms[access(channel).keeps],
            access=access,
            commands=_commands(app),
            earlier=Earlier(app.sessions, access, kinds_of(channel_tables(app.settings))),
            turns=app.settings.number("agent.max_turns"),
            pacer=app.pacer,
        )


# ---- channels


def channels_of(settings: Settings, folder: Path, access: Callable[[str], Access] | None = None) -> list[Channel]:
    """The channels of an agent, which keep their state in a folder; raises ConfigError for one that cannot be made."""
    makers = channels_by_name(settings, folder, access or access_of(settings))
    found = [make() for make in makers.values()]
    by_name = {channel.name: channel for channel in found}

    async def forward(to: InboundMessage, text: str, *, id: str) -> None:
        """Send what a schedule led to over the channel that it names."""
        if to.channel not in by_name:
            raise ConfigError(f"a schedule sends to {to.channel!r}, which is not a configured channel")
        await by_name[to.channel].send(to, text, id=id)

    schedule = schedule_of(settings, folder, list(makers), forward=forward)
    return [*found, schedule] if schedule is not None else found


def channels_by_name(
    settings: Settings, folder: Path, access: Callable[[str], Access]
) -> Mapping[str, Callable[[], Channel]]:
    """What makes each channel; it raises ConfigError if that cannot be made."""
    return {
        name: partial(_make_channel, name, table, folder, access) for name, table in channel_tables(settings).items()
    }


def schedule_of(
    settings: Settings, folder: Path, names: Sequence[str], *, forward: Forward | None = None
) -> Channel | None:
    """The clock of an agent, if it has one; what it leads to goes out over its own channels, which have these names."""
    schedules = settings.table("schedule")
    for name, table in schedules.items():
        to = str(table.get("to", "")).partition(":")[0]
        if to and to not in names:
            raise ConfigError(f"schedule.{name} sends to {to!r}, which is not a channel of its agent")
    if not schedules:
        return None
    from nacre.channels.schedules import Schedule  # noqa: PLC0415 - each channel only where it is configured

    return Schedule(schedules, state=folder / "schedule.json", forward=forward)


def _make_channel(name: str, table: Mapping[str, Any], folder: Path, access: Callable[[str], Access]) -> Channel:
    """A channel from its table, without what is not for itself; several of one kind have different names."""
    if not is_name(name) or name in TAKEN:
        named = f"lower-case letters, digits and dashes, and not {', '.join(TAKEN)}"
        raise ConfigError(f"[channels.{name}]: the name of a channel has {named}")
    kind = table.get("kind", name)
    own = {key: value for key, value in table.items() if key not in {*Access.__struct_encode_fields__, "kind"}}
    state = folder / f"{name}.json"
    section = f"channels.{name}"
    match kind:
        case "irc":
            from nacre.channels import irc  # noqa: PLC0415 - each only where it is configured

            people = access(name).named
            return irc.Irc(parse_settings(irc.Config, own, section=section), name=name, state=state, named=people)
        case "matrix":
            from nacre.channels import matrix  # noqa: PLC0415

            config = parse_settings(matrix.Config, own, section=section)
            return matrix.Matrix(config, name=name, state=state, welcome=access(name).lets)
        case "telegram":
            from nacre.channels import telegram  # noqa: PLC0415

            return telegram.Telegram(parse_settings(telegram.Config, own, section=section), name=name, state=state)
        case _:
            for point in importlib.metadata.entry_points(group=GROUP, name=str(kind)):
                brought: Channel = point.load()(own, name=name, state=state)
                return brought
    raise ConfigError(f"[channels.{name}]: there is no such channel; there are {', '.join(_OWN)}")


# ---- commands


def _commands(app: App) -> Mapping[str, Command]:
    began = time.monotonic()

    async def new(key: str, room: Room) -> str:
        hold = room.sessions.hold(key)
        hold.take()
        try:
            room.sessions.archive(key)
        except SessionNotFound:
            return "This conversation is already new."
        finally:
            hold.close()
        kept = " The old one is kept in the archive." if room.sessions is app.sessions else ""
        return f"A new conversation has started.{kept}"

    async def status(key: str, room: Room) -> str:
        now = room.sessions.snapshot(key, last=0)
        hours = (time.monotonic() - began) / 3600
        at_work = "a turn is running" if room.kernel.is_at_work(key) else "idle"
        text = f"{app.model}; {now.live} messages in this conversation; {at_work}; running for {hours:.1f} hours"
        if isinstance(app.kernel, WorkerKernel):
            text += f"; {sum(app.kernel.up)} of {len(app.kernel.up)} workers"
        return text

    async def stop(key: str, room: Room) -> str:
        return "Stopped." if room.kernel.stop(key) else "There is nothing to stop."

    async def compact(key: str, room: Room) -> str:
        if room.sessions is not app.sessions:
            return "This conversation is not stored, so there is nothing to summarise."
        try:
            draft = await app.compactor.compact(key)
        except (ProviderError, Refused, DurabilityUnknown, LogDamaged):
            # They name servers and files, which are not for everybody.
            raise
        except NacreError as error:
            return f"The conversation was not summarised: {error}"
        return f"Summarised: about {draft.before} tokens became {draft.after}."

    async def help(_: str, __: Room) -> str:
        return _HELP

    # The button under which Telegram's clients begin a chat says /start.
    return {"/new": new, "/status": status, "/stop": stop, "/compact": compact, "/help": help, "/start": help}
