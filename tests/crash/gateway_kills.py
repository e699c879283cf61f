"""Conversations with a gateway that is killed again and again, and what must be true of each when it is over."""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import time
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import anyio
import httpx2
from msgspec import Struct, field

import nacre
from nacre.channels.channel import AGAIN, InboundMessage, key_of
from nacre.history.replies import is_final
from nacre.messages import Message
from nacre.runtime.gateway.inbox import Inbox
from nacre.storage.postgres.address import parse
from nacre.storage.postgres.schema import init
from tests.channels.servers import Server
from tests.channels.test_matrix import Person, person, registered
from tests.crash.gateway_daemon import STEPS, STORE, Death, Launcher, Order
from tests.crash.gateway_people import MODEL, TOKEN, Change, OnIrc, OverHttp, on_irc, talk_on_matrix, words_in

GROUPS = (("one",), ("two?", "three"), ("four",))
"""What each person says: the words of a group at once."""
LONGEST = 120.0
"""How long a conversation may take, in seconds."""
SHORT = 7
"""How many records the inbox gets before it is begun anew: few, so that this comes to be killed, too."""
LEASE = 3
"""Seconds after which another gateway takes over from one that was killed."""
_SLOWLY, _SOON = 0.02, 1.0


class Servers(Struct, frozen=True):
    """What all conversations share."""

    irc: Server
    matrix: Server
    model: str
    launcher: Launcher
    workspace: Path
    workers: int = 0
    database: str = ""
    at_once: int = 1

    def store(self, room: Path) -> str:
        """Where the sessions of a conversation are: in its room, or in a schema of its own."""
        return f"{self.database}?schema=gateway_{room.name}" if self.database else str(room / "store")


class Tally(Struct):
    """What came of conversations."""

    conversations: int = 0
    kills: Counter[str] = field(default_factory=Counter)
    worker_kills: Counter[str] = field(default_factory=Counter)
    words: Counter[str] = field(default_factory=Counter)
    repeats: Counter[str] = field(default_factory=Counter)
    joined: int = 0
    lost_on_irc: int = 0
    steps: int = 0

    def add(self, other: Tally) -> None:
        self.conversations += other.conversations
        self.kills += other.kills
        self.worker_kills += other.worker_kills
        self.words += other.words
        self.repeats += other.repeats
        self.joined += other.joined
        self.lost_on_irc += other.lost_on_irc
        self.steps = max(self.steps, other.steps)

    def __str__(self) -> str:
        return (
            f"{self.conversations} conversations, {self.kills.total()} kills at {len(self.kills)} kinds of step, "
            f"{self.worker_kills.total()} of workers at {len(self.worker_kills)}; "
            f"messages answered: {dict(self.words)}, {self.joined} times two by one answer; "
            f"delivered again: {dict(self.repeats)}; "
            f"said to a bot that was killed before it had them: {self.lost_on_irc}"
        )


def deaths(number: int, of: int, steps: int) -> list[Death]:
    """How the lives of one conversation of many end: the first ends go evenly through all steps of a whole life."""
    rng = random.Random(number)
    spread = Death(1 + number * steps // of)
    kind = [step for step in STEPS if step != STORE][number % (len(STEPS) - 1)]
    chosen = [spread, Death(rng.randint(1, 3), kind), Death(rng.randint(1, max(1, steps // 2)))]
    rng.shuffle(chosen)
    return chosen


_OF_WORKERS = ("before Ollama.complete", "after Ollama.complete", STORE)


def worker_death(seed: str) -> Death:
    """How a worker ends in one life of the daemon."""
    rng = random.Random(seed)
    step = rng.choice(_OF_WORKERS)
    return Death(rng.randint(1, 250 if step == STORE else 3), step)


# ---- the daemon


class Daemon:
    """`nacre serve` through all its lives, on one machine or on several at once that share a database."""

    def __init__(self, servers: Servers, room: Path, environment: dict[str, str], ends: Sequence[Death]) -> None:
        self.kills: list[str] = []
        self.worker_kills: list[str] = []
        self.steps = 0
        self._servers, self._room, self._environment = servers, room, environment
        self._deaths = list(ends)
        self._life = 0
        self._up: dict[int, tuple[int, int]] = {}
        """The port and the process of each life that is up."""
        self._is_ending, self._machines = False, servers.at_once
        self._change = Change()

    async def run(self) -> None:
        async with anyio.create_task_group() as machines:
            for _ in range(self._servers.at_once):
                machines.start_soon(self._run_machine)

    async def _run_machine(self) -> None:
        while not self._is_ending:
            await self._live(self._deaths.pop(0) if self._deaths else Death())
        self._machines -= 1
        self._change.happens()

    async def __call__(self, *, after: int) -> tuple[int, int]:
        """Wait until it is up in a later life."""
        await self._change.until(lambda: any(life > after for life in self._up))
        life = max(self._up)
        return life, self._up[life][0]

    async def end(self) -> None:
        """Stop it as an administrator does, and wait for its end; if it is killed just now, in its next life."""
        while self._machines:
            await self._change.until(lambda: len(self._up) == self._machines)
            self._is_ending = True
            for life, (_, pid) in list(self._up.items()):
                del self._up[life]
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGTERM)
            await self._change.until(lambda: not self._machines or bool(self._up))

    async def roles(self, client: httpx2.AsyncClient) -> dict[int, str]:
        """What each process that answers says of its role, by its process id."""
        found = {}
        for port, pid in list(self._up.values()):
            with suppress(httpx2.TransportError):
                answer = await client.get(f"http://127.0.0.1:{port}/readyz", timeout=_SOON)
                found[pid] = str(answer.json()["role"])
        return found

    async def _live(self, death: Death) -> None:
        self._life += 1
        said, kills, life = "", len(self.kills), self._life
        room, environment = self._room, self._environment
        if self._servers.at_once > 1:
            # Each time another machine: what the last one had on its disk is gone with it.
            room = self._room / f"machine-{life}"
            room.mkdir()
            environment = {**environment, "HOME": str(room), "NACRE_HOME": str(room / "store")}
        order = Order(
            room=str(room),
            environment=environment,
            inbox=SHORT,
            death=death,
            workers=self._servers.workers,
            worker_death=worker_death(f"{self._room.name} {life}"),
        )
        async with _lines(self._servers.launcher.launch(order)) as lines:
            async for line in lines:
                said += line.decode(errors="replace")
                if line.startswith(b"{"):
                    self._told(life, json.loads(line))
        self._up.pop(life, None)
        self._change.happens()
        assert self._is_ending or len(self.kills) > kills, f"the daemon ended by itself: {said}"
        assert "Traceback" not in said, said

    def _told(self, life: int, facts: dict[str, Any]) -> None:
        if "killed" in facts:
            self.kills.append(facts["killed"])
        if "worker killed" in facts:
            self.worker_kills.append(facts["worker killed"])
        if "port" in facts:
            self._up[life] = facts["port"], facts["pid"]
        self.steps = facts.get("steps", self.steps)
        self._change.happens()


@asynccontextmanager
async def _lines(pipe: int) -> AsyncIterator[asyncio.StreamReader]:
    reader = asyncio.StreamReader()
    end = os.fdopen(pipe, "rb", 0)
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), end)
    try:
        yield reader
    finally:
        transport.close()


# ---- one conversation


class Scene(Struct, frozen=True, kw_only=True):
    """Everybody in a conversation, and where the daemon keeps things."""

    name: str
    store: str
    daemon: Daemon
    talker: OnIrc
    writer: Person
    room: str
    bot: str
    client: httpx2.AsyncClient
    clients: dict[str, OverHttp]


async def converse(servers: Servers, room: Path, name: str, ends: Sequence[Death]) -> Tally:
    """Hold one conversation on every channel while the daemon is killed, and look at what is left."""
    with anyio.fail_after(LONGEST):
        async with _scene(servers, room, name, ends) as scene, anyio.create_task_group() as tasks:
            tasks.start_soon(scene.daemon.run)
            await _talk(scene)
            await _drained(scene.store)
            await scene.daemon.end()
            await scene.talker.hear_all()
            history = await scene.writer.all(scene.room)
    return _checked(scene, history)


async def outlast_a_pause(servers: Servers, room: Path, name: str) -> list[str]:
    """Talk on Matrix while the gateway that serves it is stopped, until another does, and then goes on.

    Returns what is to be read in the room afterwards.
    """
    with anyio.fail_after(LONGEST):
        async with _scene(servers, room, name, ()) as scene, anyio.create_task_group() as tasks:
            tasks.start_soon(scene.daemon.run)
            client = scene.client

            async def until(roles: list[str]) -> list[int]:
                """Wait until the processes that answer have these roles; the ids of those that serve."""
                while sorted((found := await scene.daemon.roles(client)).values()) != roles:  # noqa: ASYNC110 - it is asked over HTTP
                    await anyio.sleep(_SLOWLY)
                return [pid for pid, role in found.items() if role == "serving"]

            await until(["serving", "waiting"])
            await talk_on_matrix(scene.writer, scene.room, GROUPS[:1])
            [stopped] = await until(["serving", "waiting"])
            os.kill(stopped, signal.SIGSTOP)
            try:
                await talk_on_matrix(scene.writer, scene.room, GROUPS[1:2])
                await until(["serving"])
            finally:
                os.kill(stopped, signal.SIGCONT)
            await until(["serving", "waiting"])
            await talk_on_matrix(scene.writer, scene.room, GROUPS[2:])
            await _drained(scene.store)
            await scene.daemon.end()
            history = await scene.writer.all(scene.room)
    on_matrix = InboundMessage(
        channel="matrix", account=scene.bot, chat=scene.room, sender=scene.writer.user, id="", text=""
    )
    with nacre.open(scene.store) as sessions:
        assert answered(sessions, key_of(on_matrix)) == [word for group in GROUPS for word in group]
    return history


@asynccontextmanager
async def _scene(servers: Servers, room: Path, name: str, ends: Sequence[Death]) -> AsyncIterator[Scene]:
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(httpx2.AsyncClient(trust_env=False, timeout=LONGEST))
        writer = await stack.enter_async_context(person(servers.matrix, f"writer{name}"))
        bot, secrets = await _bot(servers.matrix, name, room)
        talker = await stack.enter_async_context(on_irc(servers.irc.port, f"t{name}", f"#{name}"))
        environment = _configured(servers, room, name, secrets)
        daemon = Daemon(servers, room, environment, ends)
        clients = {
            "api::desk::": OverHttp(daemon, client, has_keys=False),
            "rest": OverHttp(daemon, client, has_keys=True),
        }
        chat = await writer.room(bot)
        yield Scene(
            name=name,
            store=servers.store(room),
            daemon=daemon,
            talker=talker,
            writer=writer,
            room=chat,
            bot=bot,
            client=client,
            clients=clients,
        )


async def _bot(server: Server, name: str, room: Path) -> tuple[str, dict[str, str]]:
    """A bot on Matrix: every other one logs in with a password each time, the rest have a token."""
    async with httpx2.AsyncClient(base_url=f"http://127.0.0.1:{server.port}", trust_env=False, timeout=60) as client:
        token, user = await registered(client, f"bot{name}")
    has_token = len(name) % 2 == 0
    (room / "secret").write_text(token if has_token else f"bot{name}")
    file = str(room / "secret")
    return user, {"token_file": file} if has_token else {"user": user, "password_file": file}


def _configured(servers: Servers, room: Path, name: str, secrets: dict[str, str]) -> dict[str, str]:
    """The environment of the daemon, with its configuration in a file."""
    tables: dict[str, dict[str, Any]] = {
        "agent": {"provider": "ollama", "model": MODEL, "workspace": str(servers.workspace)},
        "ollama": {"host": servers.model},
        "memory": {"enabled": False},
        "channels.irc": {
            "host": "127.0.0.1",
            "port": servers.irc.port,
            "tls": False,
            "nick": f"b{name}",
            "channels": [f"#{name}"],
        },
        "channels.matrix": {"homeserver": f"http://127.0.0.1:{servers.matrix.port}", **secrets},
    }
    lines = [line for table, keys in tables.items() for line in (f"[{table}]", *_settings(keys))]
    (room / "config" / "nacre").mkdir(parents=True)
    (room / "config" / "nacre" / "config.toml").write_text("\n".join(lines) + "\n")
    homes = {
        "HOME": room,
        "XDG_CONFIG_HOME": room / "config",
        "XDG_CACHE_HOME": room / "cache",
        "NACRE_HOME": room / "store",
    }
    environment = {"NACRE_SERVE_TOKEN": TOKEN, **{name: str(path) for name, path in homes.items()}}
    if servers.database:
        init(parse(servers.store(room)))
        environment |= {"NACRE_STORE_URL": servers.store(room), "NACRE_STORE_LEASE_SECONDS": str(LEASE)}
    return environment


def _settings(keys: dict[str, Any]) -> list[str]:
    """Settings as TOML, which writes these values as JSON does."""
    return [f"{key} = {json.dumps(value)}" for key, value in keys.items()]


async def _talk(scene: Scene) -> None:
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(scene.talker.talk, GROUPS)
        tasks.start_soon(talk_on_matrix, scene.writer, scene.room, GROUPS)
        for client in scene.clients.values():
            tasks.start_soon(client.talk, GROUPS)


async def _drained(store: str) -> None:
    """Wait until the daemon has nothing left to answer."""
    deadline = time.monotonic() + LONGEST
    while _open(store):
        assert time.monotonic() < deadline, f"never answered: {_open(store)}"
        await anyio.sleep(_SLOWLY)


def _open(store: str) -> list[InboundMessage]:
    with nacre.open(store) as sessions:
        return Inbox(sessions).read()


# ---- what must be true


def _checked(scene: Scene, history: list[str]) -> Tally:
    """Check a conversation that is over; raises AssertionError."""
    on_irc = InboundMessage(
        channel="irc",
        account=f"b{scene.name}@127.0.0.1",
        chat=f"t{scene.name}",
        sender=f"t{scene.name}",
        id="",
        text="",
    )
    on_matrix = InboundMessage(
        channel="matrix", account=scene.bot, chat=scene.room, sender=scene.writer.user, id="", text=""
    )
    words = [word for group in GROUPS for word in group]
    with nacre.open(scene.store) as sessions:
        assert sessions.verify().ok
        assert answered(sessions, key_of(on_matrix)) == words
        for key in scene.clients:
            assert answered(sessions, key) == words, key
        heard = answered(sessions, key_of(on_irc))
    assert heard == [word for word in scene.talker.said if word in heard], "out of order"
    kills = len(scene.daemon.kills)
    assert len(scene.talker.said) - len(heard) <= 2 * kills, "lost on IRC, and nobody was killed"
    assert [word for text in history for word in words_in(text)] == words, history
    for client in scene.clients.values():
        assert {word for word, text in client.heard.items() if word in words_in(text)} == set(words), client.heard
    tally = Tally(conversations=1, kills=Counter(scene.daemon.kills), steps=scene.daemon.steps)
    tally.worker_kills = Counter(scene.daemon.worker_kills)
    tally.repeats["irc"] = repeats(scene.talker.heard, heard, kills)
    tally.words.update(irc=len(heard), matrix=len(words), http=len(words) * len(scene.clients))
    tally.joined = sum(len(words_in(text)) > 1 for text in (*history, *scene.talker.heard))
    tally.lost_on_irc = len(scene.talker.said) - len(heard)
    return tally


def answered(sessions: nacre.Sessions, key: str) -> list[str]:
    """What was said in a session, in order, each with exactly one answer behind it."""
    messages = sessions.get_history(key)
    said = [str(one.content) for one in messages if one.role == "user"]
    answers = [word for one in messages if is_final(one) for word in words_in(str(one.content))]
    assert said == answers == list(dict.fromkeys(said)), f"{key}: {said} were answered by {answers}"
    assert all(words_in(str(one.content)) for one in messages if is_final(one)), f"{key}: {_texts(messages)}"
    return said


def _texts(messages: Sequence[Message]) -> list[str]:
    return [f"{one.role}: {one.content}" for one in messages]


def repeats(heard: Sequence[str], words: Sequence[str], kills: int) -> int:
    """How often an answer came again on IRC: each time it says so, and for each kill there is one at most."""
    seen: set[str] = set()
    repeats = 0
    for text in heard:
        plain = text.removeprefix(AGAIN)
        assert plain not in seen or text != plain, f"came again and does not say so: {heard}"
        repeats += plain in seen
        seen.add(plain)
    assert sorted(word for text in seen for word in words_in(text)) == sorted(words), heard
    assert sum(text.startswith(AGAIN) for text in heard) <= kills, heard
    return repeats
