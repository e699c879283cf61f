"""Servers for the channels, on loopback: ngircd, Synapse, an independent fake of Telegram, and any bytes at all."""

from __future__ import annotations

import asyncio
import base64
import fcntl
import http.client
import json
import secrets
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any

import anyio
import pytest
from msgspec import Struct

from nacre.channels.channel import Accept, Channel, InboundMessage
from nacre.channels.channel_files import RetryPolicy

SYNAPSE = "1.163.2"
TELEGRAM = "4.2.1"
HASTY = RetryPolicy(first=0.02, limit=0.1, outage=20.0)
PATIENT = 30.0
"""How long a test waits for what must come, in seconds."""


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


class Server:
    """A program that listens on a port; it can be stopped and started again."""

    def __init__(self, command: Sequence[str], port: int, *, room: Path, ready: Callable[[int], bool]) -> None:
        self.port, self.room = port, room
        self._command, self._ready = command, ready
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        log = (self.room / "output").open("ab")
        with log:
            self._process = subprocess.Popen(self._command, cwd=self.room, stdout=log, stderr=subprocess.STDOUT)
        deadline = time.monotonic() + PATIENT
        while not self._ready(self.port):
            if self._process.poll() is not None or time.monotonic() > deadline:
                said = (self.room / "output").read_text(errors="replace")[-500:]
                self.stop()
                pytest.fail(f"{self._command[0]} did not come up: {said}")
            time.sleep(0.02)

    def stop(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()

    @contextmanager
    def running(self) -> Iterator[Server]:
        self.start()
        try:
            yield self
        finally:
            self.stop()


def listens(port: int) -> bool:
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
        return True
    return False


# ---- ngircd


def ngircd(room: Path, **options: str) -> Server:
    """An IRC server without a flood brake; options go into its [Global] or [SSL] section."""
    program = shutil.which("ngircd", path="/usr/sbin:/usr/bin:/sbin:/usr/local/sbin")
    if program is None:
        pytest.skip("ngircd is not installed: apt-get install ngircd")
    port = free_port()
    tls = {name: value for name, value in options.items() if name.endswith("File")}
    lines = ["[Global]", "Name = irc.nacre.test", "Info = test", "Listen = 127.0.0.1", "MotdPhrase = hello"]
    lines += [f"{name} = {value}" for name, value in options.items() if name not in tls]
    lines += [] if tls else [f"Ports = {port}"]
    lines += [
        "[Limits]",
        "MaxPenaltyTime = 0",
        "MaxConnectionsIP = 0",
        "[Options]",
        "DNS = no",
        "Ident = no",
        "PAM = no",
    ]
    lines += ["[SSL]", f"Ports = {port}", *(f"{name} = {value}" for name, value in tls.items())] if tls else []
    (room / "ngircd.conf").write_text("\n".join(lines) + "\n")
    (room / "ngircd.conf").chmod(0o644)
    return Server([program, "-n", "-f", str(room / "ngircd.conf")], port, room=room, ready=listens)


# ---- Synapse


def synapse(config: pytest.Config, room: Path) -> Server:
    """A Matrix home server with a database of its own; people are registered by the secret `SECRET`."""
    python = _installed(config, f"synapse-{SYNAPSE}", _install_synapse) / "bin" / "python"
    port = free_port()
    key = base64.b64encode(secrets.token_bytes(32)).decode().rstrip("=")
    (room / "signing.key").write_text(f"ed25519 a_test {key}\n")
    (room / "logging.yaml").write_text(json.dumps({"version": 1, "root": {"level": "ERROR"}}))
    (room / "homeserver.yaml").write_text(json.dumps(_homeserver(room, port)))
    command = [str(python), "-m", "synapse.app.homeserver", "-c", str(room / "homeserver.yaml")]
    return Server(command, port, room=room, ready=_is_healthy)


SECRET = "let people in"  # noqa: S105 - of a server that lives for a test
_FREELY = {"per_second": 10_000, "burst_count": 10_000}


def _homeserver(room: Path, port: int) -> dict[str, Any]:
    listener = {"port": port, "type": "http", "bind_addresses": ["127.0.0.1"], "resources": [{"names": ["client"]}]}
    freely = dict.fromkeys(("rc_message", "rc_registration", "rc_joins_per_room", "rc_admin_redaction"), _FREELY)
    nested = {"rc_login": ("address", "account", "failed_attempts"), "rc_joins": ("local", "remote")}
    nested["rc_invites"] = ("per_room", "per_user", "per_issuer")
    return {
        "server_name": "nacre.test",
        "listeners": [listener],
        "database": {"name": "sqlite3", "args": {"database": str(room / "homeserver.db")}},
        "log_config": str(room / "logging.yaml"),
        "media_store_path": str(room / "media"),
        "signing_key_path": str(room / "signing.key"),
        "pid_file": str(room / "pid"),
        "registration_shared_secret": SECRET,
        "macaroon_secret_key": "m",
        "form_secret": "f",
        "report_stats": False,
        "trusted_key_servers": [],
        "bcrypt_rounds": 4,
        **freely,
        **{name: dict.fromkeys(parts, _FREELY) for name, parts in nested.items()},
    }


def _install_synapse(room: Path) -> None:
    _tried([sys.executable, "-m", "venv", str(room)], "synapse")
    _tried([str(room / "bin" / "python"), "-m", "pip", "install", "--quiet", f"matrix-synapse=={SYNAPSE}"], "synapse")


def _is_healthy(port: int) -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("GET", "/health")
        return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


# ---- Telegram


def telegram(config: pytest.Config, room: Path) -> Server:
    """A fake of the Bot API that somebody else wrote."""
    if shutil.which("node") is None or shutil.which("npm") is None:
        pytest.skip("telegram-test-api needs Node, and node or npm is not on the path")
    modules = _installed(config, f"telegram-test-api-{TELEGRAM}", _install_telegram) / "node_modules"
    port = free_port()
    script = f"const TelegramServer = require({json.dumps(str(modules / 'telegram-test-api'))});"
    script += f"new TelegramServer({{port: {port}, host: '127.0.0.1', storeTimeout: 600}}).start();"
    return Server(["node", "-e", script], port, room=room, ready=listens)


def _install_telegram(room: Path) -> None:
    command = ["npm", "install", "--silent", "--no-audit", "--no-fund", "--prefix", str(room)]
    _tried([*command, f"telegram-test-api@{TELEGRAM}"], "telegram-test-api")


# ---- what is installed at first use


def _installed(config: pytest.Config, name: str, install: Callable[[Path], None]) -> Path:
    """Install something once, for all runs and for all workers of a run."""
    assert config.cache is not None
    room = config.cache.mkdir(name)
    with (room / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (room / "installed").exists():
            install(room)
            (room / "installed").touch()
    return room


def _tried(command: Sequence[str], what: str) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        pytest.skip(f"{what} could not be installed: {error}")
    if done.returncode != 0:
        pytest.skip(f"{what} could not be installed: {done.stderr.strip()[-200:]}")


# ---- any bytes


class Request(Struct, frozen=True):
    """What a client asked."""

    method: str
    path: str
    headers: dict[str, str]
    body: Any


class Reply(Struct, frozen=True):
    """What it is answered: a JSON value or the very bytes; `cut` hangs up instead, `hold` never answers."""

    body: Any = None
    status: int = 200
    headers: Mapping[str, str] = {}
    how: str = ""


class Scripted:
    """A server that answers by a function, and remembers what it was asked."""

    def __init__(self, answer: Callable[[Request], Reply]) -> None:
        self.asked: list[Request] = []
        self.address = ""
        self._answer = answer
        self._talks: list[tuple[asyncio.StreamWriter, asyncio.Task[Any] | None]] = []

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._talks.append((writer, asyncio.current_task()))
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            while True:
                request = await _request(reader)
                self.asked.append(request)
                reply = self._answer(request)
                if reply.how == "hold":
                    await reader.read()
                if reply.how:
                    break
                writer.write(_response(reply))
                await writer.drain()
        writer.close()

    async def hang_up(self) -> None:
        for writer, _ in self._talks:
            writer.close()
        await asyncio.gather(*(task for _, task in self._talks if task is not None))

    def paths(self, end: str) -> list[Request]:
        return [request for request in self.asked if request.path.partition("?")[0].endswith(end)]


@asynccontextmanager
async def scripted(answer: Callable[[Request], Reply]) -> AsyncIterator[Scripted]:
    made = Scripted(answer)
    server = await asyncio.start_server(made.handle, "127.0.0.1", 0)
    made.address = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield made
    finally:
        server.close()
        await made.hang_up()


async def _request(reader: asyncio.StreamReader) -> Request:
    head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
    method, path, _ = head[0].split(" ")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:] if line)}
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    return Request(method, path, headers, json.loads(body) if body else None)


def _response(reply: Reply) -> bytes:
    body = reply.body if isinstance(reply.body, bytes) else json.dumps(reply.body).encode()
    headers = {"content-length": str(len(body)), **reply.headers}
    head = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    return f"HTTP/1.1 {reply.status} X\r\n{head}\r\n".encode() + body


# ---- what the tests listen with


class Heard:
    """Accepts words as the gateway does, each id once, and lets a test wait for them; `calls` counts all.

    One that is `stuck` never returns, as if killed before the words were durable.
    """

    def __init__(self, *, stuck: bool = False) -> None:
        self.words: list[InboundMessage] = []
        self.calls = 0
        self._stuck = stuck
        self._more = anyio.Event()

    async def __call__(self, arrived: InboundMessage) -> None:
        self.calls += 1
        if arrived.id not in {known.id for known in self.words}:
            self.words.append(arrived)
        self._more.set()
        self._more = anyio.Event()
        if self._stuck:
            await anyio.sleep_forever()

    async def until(self, count: int) -> list[InboundMessage]:
        """Wait for so many; more than that is an error."""
        with anyio.fail_after(PATIENT):
            while len(self.words) < count:
                await self._more.wait()
        assert len(self.words) == count
        return self.words

    async def saw(self, text: str) -> InboundMessage:
        """Wait for certain words."""
        with anyio.fail_after(PATIENT):
            while text not in self.texts:
                await self._more.wait()
        return self.words[self.texts.index(text)]

    @property
    def texts(self) -> list[str]:
        return [arrived.text for arrived in self.words]


@asynccontextmanager
async def running(channel: Channel, accept: Accept) -> AsyncIterator[None]:
    """A channel that runs, and is cancelled and closed at the end."""
    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(channel.run, accept)
            yield
            tasks.cancel_scope.cancel()
    finally:
        await channel.close()


async def ended(channel: Channel) -> None:
    """Run a channel that ends by itself."""
    with anyio.fail_after(PATIENT):
        await channel.run(Heard())
