"""How the daemon is: whether it lives, whether it can work, and what it does in numbers.

The numbers are Prometheus' text format, made of what the parts count for themselves.
"""

from __future__ import annotations

import asyncio
import os
import platform
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partialmethod
from typing import Literal, NamedTuple, Protocol, TypeVar

import anyio
import msgspec
from anyio import to_thread
from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

import nacre
from nacre.errors import NacreError, describe_error
from nacre.messages import Load
from nacre.opening import is_url, moved_to, sealed_to
from nacre.runtime import App
from nacre.runtime.counters import SHORT, Spread, Traffic, Work
from nacre.runtime.workers import WorkerKernel
from nacre.sessions import Sessions
from nacre.web.api.api_routes import parse_query
from nacre.web.api.schemas import NoQuery, Readiness
from nacre.web.caller import caller

MEDIA_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_PAGE = b"\0" * 4096

K = TypeVar("K")
Labels = Mapping[str, str]
Sample = tuple[Labels, float]


async def lives(request: Request) -> Response:
    """Say that the process lives; whether it can work is another question."""
    parse_query(request, NoQuery)
    return Response(media_type="text/plain")


async def ready(request: Request) -> Response:
    """Report whether new messages can be stored and answered; the reasons only to the owner."""
    parse_query(request, NoQuery)
    found = await request.app.state.check.troubles()
    readiness = Readiness(
        ready=not found,
        role="serving" if all(gateway.is_serving for gateway in request.app.state.parts.gateways) else "waiting",
        failing=sorted({trouble.part for trouble in found}),
        reasons=[trouble.reason for trouble in found] if not caller(request).is_guest else [],
    )
    return Response(msgspec.json.encode(readiness), status_code=503 if found else 200, media_type="application/json")


async def measure(request: Request) -> Response:
    """The numbers, for Prometheus."""
    parse_query(request, NoQuery)
    return Response(render(request.app.state.parts), headers={"content-type": MEDIA_TYPE})


routes = [Route("/healthz", lives), Route("/readyz", ready), Route("/metrics", measure)]


class Served(Protocol):
    """The channels of an agent: each and whether it is up, how many messages wait, and what was counted.

    Not `is_serving` while another daemon on the same store serves them.
    """

    traffic: Traffic

    @property
    def is_serving(self) -> bool: ...

    @property
    def channels(self) -> Mapping[str, bool]: ...

    @property
    def open(self) -> int: ...


class Parts(Struct, frozen=True, kw_only=True):
    """What is watched: the agents by their names, the gateways of their channels, and what came over HTTP.

    `missing` are the names of agents that are to run and do not.
    """

    agents: Mapping[str, App]
    missing: Collection[str] = ()
    gateways: Sequence[Served] = ()
    http: Traffic
    began: float

    def loads(self) -> Mapping[str, Load]:
        """What each agent's store has to write; one in memory has nothing to say."""
        found = {name: app.sessions.load() for name, app in self.agents.items()}
        workers = worker_kernels(self.agents)
        return {
            name: workers[name].add_load(load) if name in workers else load
            for name, load in found.items()
            if load is not None
        }

    def is_database(self, agent: str) -> bool:
        """Tell whether an agent's sessions are in a database."""
        return is_url(self.agents[agent].sessions.location)

    def channels(self) -> Mapping[str, bool]:
        """Every channel and whether it is up; one that several agents have is up if it is for all of them."""
        found: dict[str, bool] = {}
        for gateway in self.gateways:
            for name, is_up in gateway.channels.items():
                found[name] = is_up and found.get(name, True)
        return found


# ---- whether it can work


class Trouble(NamedTuple):
    """Why the daemon cannot work: which part, for everybody, and what is wrong with it, for the owner."""

    part: Literal["store", "channels", "agents", "workers"]
    reason: str


class Check:
    """Checks whether all parts work; the result is cached for `fresh` seconds.

    Everybody may ask, so asking must not keep the disk busy: there is one look at a time, in one thread.
    It is waited for `timeout` seconds, and `refusal` says why nothing can be written to a store.
    """

    def __init__(
        self, parts: Parts, *, fresh: float = 1.0, timeout: float = 5.0, refusal: Callable[[str], str] | None = None
    ) -> None:
        self._parts = parts
        self._fresh = fresh
        self._timeout = timeout
        self._refusal = refusal or _refusal
        self._lock = anyio.Lock()
        self._look: asyncio.Task[list[Trouble]] | None = None
        self._found: Sequence[Trouble] = ()
        self._looked = float("-inf")

    async def troubles(self) -> Sequence[Trouble]:
        """The problems; empty if new messages can be stored and answered."""
        async with self._lock:
            if time.monotonic() - self._looked > self._fresh:
                stores, channels = await self._stores(), self._parts.channels()
                down = [Trouble("channels", f"channel {name!r} is down") for name, up in channels.items() if not up]
                missing = [Trouble("agents", f"agent {name!r} could not be started") for name in self._parts.missing]
                workers = [
                    Trouble("workers", f"worker {number} of agent {name!r} is not running; it is being restarted")
                    for name, kernel in worker_kernels(self._parts.agents).items()
                    for number, is_up in enumerate(kernel.up)
                    if not is_up
                ]
                self._found = [*stores, *down, *missing, *workers]
                self._looked = time.monotonic()
            return self._found

    async def _stores(self) -> list[Trouble]:
        """Write to each store, in a thread that is not waited for long: a dead disk answers nothing at all."""

        def write() -> list[Trouble]:
            agents = self._parts.agents.values()
            places = {app.sessions.location for app in agents}
            folders = sorted(place for place in places if os.path.isabs(place))  # noqa: PTH117 - a path is text here
            databases = {app.sessions.location: app.sessions for app in agents if is_url(app.sessions.location)}
            reasons = [*(app.trouble for app in agents), *map(self._refusal, folders)]
            reasons += [_silence(sessions) for _, sessions in sorted(databases.items())]
            reasons += map(_seal, folders)
            unsound = sum(load.unsound for load in self._parts.loads().values())
            reasons.append(f"{unsound} logs could not be flushed or moved to a new file" if unsound else "")
            return [Trouble("store", reason) for reason in reasons if reason]

        look = self._look or asyncio.create_task(to_thread.run_sync(write, abandon_on_cancel=True))
        self._look = look
        done, _ = await asyncio.wait((look,), timeout=self._timeout)
        if not done:
            # It goes on: a second one would only wait as well.
            return [Trouble("store", f"the store did not answer within {self._timeout:g} seconds")]
        self._look = None
        return look.result()


def _refusal(place: str) -> str:
    """Why nothing can be written to a store now; "" if it can. What is written has no name and leaves nothing."""
    try:
        with tempfile.TemporaryFile(dir=place, buffering=0) as file:
            taken = file.write(_PAGE)
            os.fsync(file.fileno())
    except OSError as error:
        return f"{place} cannot be written: {error.strerror or error}"
    return "" if taken == len(_PAGE) else f"{place} cannot be written: only {taken} bytes of a page were written"


def _silence(sessions: Sessions) -> str:
    """Why a database cannot be read or written now; "" if it can."""
    try:
        return _moved(sessions.location, moved_to(sessions))
    except NacreError as error:
        return f"the database does not answer: {describe_error(error)}"


def _seal(place: str) -> str:
    """Why a store in a folder takes nothing any more; "" if it does."""
    try:
        return _moved(place, sealed_to(place))
    except OSError as error:
        return f"{place} cannot be read: {error.strerror or error}"


def _moved(place: str, to: str) -> str:
    return f"{place} is sealed, and refuses every write: its sessions were moved to {to}" if to else ""


# ---- what it does in numbers


def render(parts: Parts) -> str:
    """Everything, as Prometheus reads it."""
    page = _Page()
    build = {"version": nacre.__version__, "python": platform.python_version()}
    page.gauge("nacre_build_info", "Version of nacre and of Python.", [(build, 1)])
    page.gauge("process_start_time_seconds", "Start of the process, in seconds since 1970.", [({}, parts.began)])
    _add_messages(page, [*(gateway.traffic for gateway in parts.gateways), parts.http])
    channels = [({"channel": name}, int(is_up)) for name, is_up in parts.channels().items()]
    serving = sum(gateway.is_serving for gateway in parts.gateways)
    page.gauge("nacre_channels_served", "Agents whose channels this daemon serves, and no other.", [({}, serving)])
    page.gauge("nacre_channel_up", "1 if a channel runs and accepted the last answer.", channels)
    waiting = sum(gateway.open for gateway in parts.gateways)
    page.gauge("nacre_inbox_open", "Messages whose answer is not delivered yet.", [({}, waiting)])
    _add_agents(page, parts.agents)
    stores = [({"agent": name}, load) for name, load in parts.loads().items()]
    page.gauge("nacre_logs_open", "Logs of sessions that are open for writing.", [(of, one.open) for of, one in stores])
    batches = [(of, one.batches) for of, one in stores]
    page.counter("nacre_store_batches_total", "Batches written, each with one flush.", batches)
    unsound = [(of, one.unsound) for of, one in stores]
    page.gauge("nacre_logs_unsound", "Logs whose last flush failed and that could not be moved to a new file.", unsound)
    _add_databases(page, [({"agent": name}, load) for name, load in parts.loads().items() if parts.is_database(name)])
    return "".join(page.lines)


def _add_databases(page: _Page, stores: Sequence[tuple[Labels, Load]]) -> None:
    """The connections of the agents whose sessions are in a database, and how fast it answers."""
    if not stores:
        return
    connections = [
        ({**of, "state": state}, count)
        for of, one in stores
        for state, count in (("idle", one.idle), ("used", max(0, one.connections - one.idle)))
    ]
    page.gauge("nacre_database_connections", "Connections to the database.", connections)
    waiting = [(of, one.waiting) for of, one in stores]
    page.gauge("nacre_database_waiting", "Callers that wait for a connection now.", waiting)
    for name, help, counts in (
        ("waits_total", "Callers that had to wait for a connection.", [one.waits for _, one in stores]),
        ("wait_seconds_total", "How long they waited.", [one.wait_seconds for _, one in stores]),
        ("failed_connects_total", "Attempts to connect that failed.", [one.failed_connects for _, one in stores]),
        ("round_trips_total", "Requests to the database.", [one.round_trips for _, one in stores]),
        (
            "round_trip_seconds_total",
            "How long the database took to answer them; divided by their number, its latency.",
            [one.round_trip_seconds for _, one in stores],
        ),
    ):
        samples = [(of, count) for (of, _), count in zip(stores, counts, strict=True)]
        page.counter(f"nacre_database_{name}", help, samples)


def _add_messages(page: _Page, traffic: Sequence[Traffic]) -> None:
    def total(counters: Iterable[Counter[K]]) -> Counter[K]:
        found: Counter[K] = Counter()
        for counter in counters:
            found.update(counter)
        return found

    for name, help, counters in (
        ("accepted", "Messages that were accepted.", [one.accepted for one in traffic]),
        ("answered", "Messages whose answer was delivered.", [one.answered for one in traffic]),
        (
            "failed",
            "Messages that could not be answered because the model or the store failed.",
            [one.failed for one in traffic],
        ),
    ):
        samples = [({"channel": channel}, count) for channel, count in sorted(total(counters).items())]
        page.counter(f"nacre_messages_{name}_total", help, samples)
    refused = sorted(total(one.refused for one in traffic).items())
    page.counter(
        "nacre_messages_refused_total",
        "Messages that were rejected: sender not allowed, rate limit, or full queue.",
        [({"channel": channel, "reason": reason}, count) for (channel, reason), count in refused],
    )
    # All of them have the same bounds.
    durable = Spread(SHORT)
    durable.counts = [sum(counts) for counts in zip(*(one.durable.counts for one in traffic), strict=True)]
    durable.sum = sum(one.durable.sum for one in traffic)
    page.histogram(
        "nacre_message_durable_seconds", "Time from the arrival of a message until it is on disk.", [({}, durable)]
    )


def _add_agents(page: _Page, agents: Mapping[str, App]) -> None:
    named = [({"agent": name}, app) for name, app in agents.items()]
    page.gauge("nacre_actors", "Sessions that are loaded.", [(of, len(app.kernel)) for of, app in named])
    if workers := [({"agent": name}, kernel) for name, kernel in worker_kernels(agents).items()]:
        page.gauge("nacre_workers", "Workers that take turns.", [(of, sum(kernel.up)) for of, kernel in workers])
        restarts = [(of, kernel.restarts) for of, kernel in workers]
        page.counter("nacre_worker_restarts_total", "Workers that ended and were replaced.", restarts)
    page.gauge("nacre_turns_running", "Turns that are running.", [(of, _running(app)) for of, app in named])
    works = [(of, _work(app)) for of, app in named]
    page.histogram("nacre_turn_seconds", "Duration of turns.", [(of, work.turns) for of, work in works])
    requests = [({**of, "model": model}, n) for of, work in works for model, n in work.requests.items()]
    page.counter("nacre_model_requests_total", "Requests to a model.", requests)
    errors = [
        ({**of, "model": model, "error": error}, n) for of, work in works for (model, error), n in work.errors.items()
    ]
    page.counter("nacre_model_errors_total", "Requests that failed.", errors)
    tokens = [
        ({**of, "model": model, "direction": direction}, n)
        for of, work in works
        for direction, counted in (("in", work.tokens_in), ("out", work.tokens_out))
        for model, n in counted.items()
    ]
    page.counter("nacre_model_tokens_total", "Tokens sent to a model and received from it.", tokens)


def worker_kernels(agents: Mapping[str, App]) -> dict[str, WorkerKernel]:
    """The kernels of the agents that have workers."""
    return {name: app.kernel for name, app in agents.items() if isinstance(app.kernel, WorkerKernel)}


def _running(app: App) -> int:
    return app.work.running + (app.kernel.running if isinstance(app.kernel, WorkerKernel) else 0)


def _work(app: App) -> Work:
    """What an agent did, in this process and in its workers."""
    if not isinstance(app.kernel, WorkerKernel):
        return app.work
    total = Work()
    total.add(app.work.counts())
    app.kernel.add_work(total)
    return total


class _Page:
    """Families of samples, one line each."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def _add_family(self, kind: str, name: str, help: str, samples: Iterable[Sample]) -> None:
        self.lines.append(f"# HELP {name} {help}\n# TYPE {name} {kind}\n")
        for labels, value in samples:
            self._add(name, labels, value)

    gauge = partialmethod(_add_family, "gauge")
    counter = partialmethod(_add_family, "counter")

    def histogram(self, name: str, help: str, samples: Iterable[tuple[Labels, Spread]]) -> None:
        self.lines.append(f"# HELP {name} {help}\n# TYPE {name} histogram\n")
        for labels, spread in samples:
            total = 0
            for bound, count in zip((*map(_number, spread.bounds), "+Inf"), spread.counts, strict=True):
                total += count
                self._add(f"{name}_bucket", {**labels, "le": bound}, total)
            self._add(f"{name}_sum", labels, spread.sum)
            self._add(f"{name}_count", labels, total)

    def _add(self, name: str, labels: Labels, value: float) -> None:
        escapes = str.maketrans({"\\": "\\\\", "\n": "\\n", '"': '\\"'})
        written = ",".join(f'{label}="{text.translate(escapes)}"' for label, text in labels.items())
        self.lines.append(f"{name}{f'{{{written}}}' if written else ''} {_number(value)}\n")


def _number(value: float) -> str:
    return repr(value) if isinstance(value, int) else repr(float(value))
