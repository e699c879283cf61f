"""The agent as a daemon: its channels made, joined to their sessions, and served."""

from __future__ import annotations

import importlib.metadata
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from anyio.to_thread import run_sync
from msgspec.structs import replace

import nacre
from nacre import Document
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
from nacre.opening import check_not_moved
from nacre.runtime.app import App
from nacre.runtime.counters import Traffic
from nacre.runtime.gateway.access import TAKEN, Access, access_of, channel_tables
from nacre.runtime.gateway.earlier_agent import Earlier, kinds_of
from nacre.runtime.gateway.gateway import Command, Gateway, Room
from nacre.runtime.gateway.inbox import Inbox
from nacre.runtime.gateway.service import ChannelService, Term
from nacre.runtime.workers import WorkerKernel

if TYPE_CHECKING:
    from nacre.channels.schedules import Forward

GROUP = "nacre.channels"
_OWN = ("irc", "matrix", "telegram")
_WORK = "delegate"
FOLDER = "channels"
"""Where in an agent's local folder its channels keep what is of this machine."""
Documents = Callable[[str], Document]
"""What a store keeps for its channels under a name: how far they have read."""
_HELP = """\
Write a message, and I will answer. I also know these commands:
/new: start a new conversation
/status: show which model answers, and whether a turn is running
/stop: stop the current turn
/compact: summarise the conversation so far"""


@asynccontextmanager
async def serving(app: App) -> AsyncIterator[ChannelService]:
    """The service of the configured channels; raises ConfigError for a channel that cannot be created.

    Where another daemon serves them, it waits until that one is gone; on a store that is not shared, it raises
    SessionBusy.
    """
    async with AsyncExitStack() as stack:
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
        commands = _commands(app)
        earlier = Earlier(app.sessions, access, kinds_of(channel_tables(app.settings)))

        @asynccontextmanager
        async def make(term: Term, traffic: Traffic) -> AsyncIterator[Gateway]:
            documents = app.sessions.with_internal_keys(held=term.lease).document
            async with AsyncExitStack() as channels:
                made = channels_of(app.settings, folder, access, documents=documents)
                for channel in made:
                    channels.push_async_callback(channel.close)
                yield Gateway(
                    made,
                    inbox=Inbox(app.sessions, held=term.lease, lost=term.end),
                    room=lambda channel: rooms[access(channel).keeps],
                    access=access,
                    commands=commands,
                    earlier=earlier,
                    turns=app.settings.number("agent.max_turns"),
                    pacer=app.pacer,
                    traffic=traffic,
                    lost=term.end,
                    may_send=term.may_send,
                )

        await run_sync(check_not_moved, app.sessions)
        service = ChannelService(app.sessions, make, began=lambda: _learn_from_others(app))
        stack.push_async_callback(service.close)
        try:
            await service.start()
        except SessionBusy as error:
            where = f"{app.sessions.location} is in use by another daemon: {error}"
            raise SessionBusy(f"{where}; stop it, or choose another store with --store") from error
        yield service


def _learn_from_others(app: App) -> None:
    """Have memory go through what was said to a daemon that served the channels before."""
    if app.sessions.is_shared and app.learner is not None:
        app.learner.look_back()


# ---- channels


def channels_of(
    settings: Settings,
    folder: Path,
    access: Callable[[str], Access] | None = None,
    *,
    documents: Documents | None = None,
) -> list[Channel]:
    """The channels of an agent; raises ConfigError for one that cannot be made.

    How far they have read is in `documents`; without those it is kept nowhere, for who only wants to check them.
    """
    makers = channels_by_name(settings, folder, access or access_of(settings), documents=documents)
    found = [make() for make in makers.values()]
    by_name = {channel.name: channel for channel in found}

    async def forward(to: InboundMessage, text: str, *, id: str) -> None:
        """Send what a schedule led to over the channel that it names."""
        if to.channel not in by_name:
            raise ConfigError(f"a schedule sends to {to.channel!r}, which is not a configured channel")
        await by_name[to.channel].send(to, text, id=id)

    schedule = schedule_of(settings, list(makers), forward=forward, documents=documents)
    return [*found, schedule] if schedule is not None else found


def channels_by_name(
    settings: Settings, folder: Path, access: Callable[[str], Access], *, documents: Documents | None = None
) -> Mapping[str, Callable[[], Channel]]:
    """What makes each channel; it raises ConfigError if that cannot be made."""
    return {
        name: partial(_make_channel, name, table, folder, access, documents or _nowhere)
        for name, table in channel_tables(settings).items()
    }


def _nowhere(name: str) -> Document:
    return nacre.open(":memory:").document(name)


def schedule_of(
    settings: Settings, names: Sequence[str], *, forward: Forward | None = None, documents: Documents | None = None
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

    return Schedule(schedules, state=(documents or _nowhere)("schedule"), forward=forward)


def _make_channel(
    name: str, table: Mapping[str, Any], folder: Path, access: Callable[[str], Access], documents: Documents
) -> Channel:
    """A channel from its table, without what is not for itself; several of one kind have different names."""
    if not is_name(name) or name in TAKEN:
        named = f"lower-case letters, digits and dashes, and not {', '.join(TAKEN)}"
        raise ConfigError(f"[channels.{name}]: the name of a channel has {named}")
    kind = table.get("kind", name)
    own = {key: value for key, value in table.items() if key not in {*Access.__struct_encode_fields__, "kind"}}
    # What was said on IRC and is not accepted yet is in a file of this machine, and so is what other packages keep.
    file = folder / f"{name}.json"
    section = f"channels.{name}"
    match kind:
        case "irc":
            from nacre.channels import irc  # noqa: PLC0415 - each only where it is configured

            people = access(name).named
            return irc.Irc(parse_settings(irc.Config, own, section=section), name=name, state=file, named=people)
        case "matrix":
            from nacre.channels import matrix  # noqa: PLC0415

            config = parse_settings(matrix.Config, own, section=section)
            return matrix.Matrix(config, name=name, state=documents(name), welcome=access(name).lets)
        case "telegram":
            from nacre.channels import telegram  # noqa: PLC0415

            bot = parse_settings(telegram.Config, own, section=section)
            return telegram.Telegram(bot, name=name, state=documents(name))
        case _:
            for point in importlib.metadata.entry_points(group=GROUP, name=str(kind)):
                brought: Channel = point.load()(own, name=name, state=file)
                return brought
    raise ConfigError(f"[channels.{name}]: there is no such channel; there are {', '.join(_OWN)}")


# ---- commands


def _commands(app: App) -> Mapping[str, Command]:
    began = time.monotonic()

    async def new(key: str, room: Room) -> str:
        def archive() -> str:
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

        return await run_sync(archive)

    async def status(key: str, room: Room) -> str:
        now = await run_sync(partial(room.sessions.snapshot, key, last=0))
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
