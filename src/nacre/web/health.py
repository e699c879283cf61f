"""How the daemon is: whether it lives, whether it can work, and what it does in numbers."""

from __future__ import annotations

import asyncio
import os
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Literal, NamedTuple

import anyio
import msgspec
from anyio import to_thread
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from nacre.runtime import App
from nacre.web import metrics
from nacre.web.api.api_routes import nothing_queried
from nacre.web.api.schemas import Readiness
from nacre.web.caller import caller
from nacre.web.metrics import Parts

_PAGE = b"\0" * 4096


class Trouble(NamedTuple):
    """Why the daemon cannot work: which part, for everybody, and what is wrong with it, for the owner."""

    part: Literal["store", "channels", "agents"]
    reason: str


async def lives(request: Request) -> Response:
    """Say that the process lives; whether it can work is another question."""
    nothing_queried(request)
    return Response(media_type="text/plain")


async def ready(request: Request) -> Response:
    """Report whether new messages can be stored and answered; the reasons only to the owner."""
    nothing_queried(request)
    found = await request.app.state.check.troubles()
    told = Readiness(
        ready=not found,
        failing=sorted({trouble.part for trouble in found}),
        reasons=[trouble.reason for trouble in found] if not caller(request).is_guest else [],
    )
    return Response(msgspec.json.encode(told), status_code=503 if found else 200, media_type="application/json")


async def measure(request: Request) -> Response:
    """The numbers, for Prometheus."""
    nothing_queried(request)
    text = metrics.rendered(request.app.state.parts)
    return Response(text, headers={"content-type": metrics.MEDIA_TYPE})


routes = [Route("/healthz", lives), Route("/readyz", ready), Route("/metrics", measure)]


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
                self._found = [*await self._stores(), *self._channels(), *self._agents()]
                self._looked = time.monotonic()
            return self._found

    def _channels(self) -> list[Trouble]:
        channels = metrics.channels(self._parts.gateways)
        return [Trouble("channels", f"channel {name!r} is down") for name, up in channels.items() if not up]

    def _agents(self) -> list[Trouble]:
        return [Trouble("agents", f"agent {name!r} could not be started") for name in self._parts.missing]

    async def _stores(self) -> list[Trouble]:
        """Write to each store, in a thread that is not waited for long: a dead disk answers nothing at all."""
        look = self._look = self._look or asyncio.create_task(self._looking())
        done, _ = await asyncio.wait((look,), timeout=self._timeout)
        if not done:
            # It goes on: another one would only wait beside it.
            return [Trouble("store", f"the store did not answer within {self._timeout:g} seconds")]
        self._look = None
        return look.result()

    async def _looking(self) -> list[Trouble]:
        return await to_thread.run_sync(_written, self._parts, self._refusal, abandon_on_cancel=True)


def _written(parts: Parts, refusal: Callable[[str], str]) -> list[Trouble]:
    found = [Trouble("store", app.trouble) for app in parts.agents.values() if app.trouble]
    found += [Trouble("store", why) for why in map(refusal, _places(parts.agents)) if why]
    unsound = sum(load.unsound for load in parts.loads().values())
    return (
        [*found, Trouble("store", f"{unsound} logs could not be flushed or moved to a new file")] if unsound else found
    )


def _places(agents: Mapping[str, App]) -> Sequence[str]:
    places = {app.sessions.location for app in agents.values()}
    return sorted(place for place in places if os.path.isabs(place))  # noqa: PTH117 - a path is text here


def _refusal(place: str) -> str:
    """Why nothing can be written to a store now; "" if it can. What is written has no name and leaves nothing."""
    try:
        with tempfile.TemporaryFile(dir=place, buffering=0) as file:
            taken = file.write(_PAGE)
            os.fsync(file.fileno())
    except OSError as error:
        return f"{place} cannot be written: {error.strerror or error}"
    return "" if taken == len(_PAGE) else f"{place} cannot be written: only {taken} bytes of a page were written"
