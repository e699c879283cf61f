"""Whether the daemon lives, whether it can work, and its numbers, read as Prometheus reads them."""

from __future__ import annotations

import os
import re
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import anyio
import pytest
from prometheus_client.parser import text_string_to_metric_families

import nacre
from nacre.agent.ports import Context, Emit, Reply
from nacre.channels.channel import Accept, InboundMessage
from nacre.errors import ChannelError, DurabilityUnknown, ProviderError
from nacre.history.session_state import RULES
from nacre.runtime.counters import Spread, Traffic, Work
from nacre.runtime.gateway.access import Access
from nacre.runtime.gateway.gateway import Gateway, Room
from nacre.runtime.gateway.inbox import Inbox
from nacre.sessions import Sessions
from nacre.storage.file_store import FileStore
from nacre.storage.system import System
from nacre.web import health
from nacre.web.health import Parts
from tests.web.conftest import Echo, Serve, Site, agent


def numbers(site: Site) -> dict[str, float]:
    """Every sample by its name and labels, as Prometheus' own parser finds them."""
    answer = site.client.get("/metrics")
    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    return parsed(answer.text)


def check_with(site: Site, **given: Any) -> None:
    """Let a site check its parts in another way."""
    state = site.web.state
    state.check = site.call(lambda: health.Check(state.parts, **given))


def parsed(text: str) -> dict[str, float]:
    found: dict[str, float] = {}
    for family in text_string_to_metric_families(text):
        assert family.type != "unknown"
        assert family.documentation
        for sample in family.samples:
            labels = ",".join(f"{name}={value}" for name, value in sample.labels.items())
            assert f"{sample.name} {labels}" not in found
            found[f"{sample.name} {labels}".strip()] = sample.value
    return found


# ---- it lives


def test_whoever_asks_hears_that_it_lives_and_nothing_else(echo: Site) -> None:
    with echo.visitor() as visitor:
        answer = visitor.get("/healthz")
    assert (answer.status_code, answer.content) == (200, b"")


# ---- it can work


def test_a_daemon_whose_store_can_be_written_is_ready(echo: Site) -> None:
    with echo.visitor() as visitor:
        answer = visitor.get("/readyz")
    assert (answer.status_code, answer.json()) == (
        200,
        {"ready": True, "role": "serving", "failing": [], "reasons": []},
    )


def test_looking_leaves_nothing_in_the_store(echo: Site, root: Path) -> None:
    before = sorted(path.name for path in root.iterdir())
    echo.client.get("/readyz")
    assert sorted(path.name for path in root.iterdir()) == before


def test_sessions_in_ram_are_always_ready(server: Serve) -> None:
    site = server(provider=Echo(), root=":memory:")
    assert site.client.get("/readyz").json()["ready"]
    assert "nacre_logs_open agent=main" not in numbers(site)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of one megabyte."""
    directory = tmp_path / "disk"
    directory.mkdir(mode=0o700)
    mounting = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m,mode=700", "none", directory], check=False, capture_output=True
    )
    if mounting.returncode:
        pytest.skip(f"mount is not permitted here: {mounting.stderr.decode().strip()}")
    yield directory
    subprocess.run(["umount", "--lazy", directory], check=True)


def fill(filler: Path) -> None:
    """Use up every free block."""
    with filler.open("wb", buffering=0) as file, suppress(OSError):
        while True:
            file.write(b"f" * 4096)


def test_a_full_disk_is_not_ready_until_there_is_room(server: Serve, small_disk: Path) -> None:
    site = server(provider=Echo(), root=small_disk / "store")
    check_with(site, fresh=0.0)
    filler = small_disk / "filler"
    fill(filler)
    assert site.client.get("/readyz").status_code == 503
    filler.unlink()
    assert site.client.get("/readyz").status_code == 200


def test_strangers_hear_which_part_fails_and_only_those_with_the_token_why(echo: Site, root: Path) -> None:
    check_with(echo, refusal=lambda place: f"{place} cannot be written")
    with echo.visitor() as visitor:
        answer = visitor.get("/readyz")
        found = {"ready": False, "role": "serving", "failing": ["store"], "reasons": []}
        assert (answer.status_code, answer.json()) == (503, found)
    assert echo.client.get("/readyz").json()["reasons"] == [f"{root} cannot be written"]


def test_a_wrong_token_is_a_guess_here_too(echo: Site) -> None:
    with echo.visitor() as visitor:
        answers = [visitor.get("/readyz", headers={"Authorization": f"Bearer {n}"}).status_code for n in range(11)]
        assert answers == [401] * 10 + [429]
        assert visitor.get("/readyz").status_code == 200


def test_a_store_that_does_not_answer_is_not_ready_and_asking_again_starts_no_more_threads(
    echo: Site,
) -> None:
    stuck, asked = threading.Event(), []

    def dead(place: str) -> str:
        asked.append(place)
        stuck.wait(20)
        return ""

    check_with(echo, refusal=dead, timeout=0.05, fresh=0.0)
    try:
        answers = [echo.client.get("/readyz") for _ in range(3)]
    finally:
        stuck.set()
    assert [answer.status_code for answer in answers] == [503] * 3
    assert answers[0].json()["reasons"] == ["the store did not answer within 0.05 seconds"]
    assert len(asked) == 1


def reasons(parts: Parts) -> list[str]:
    """Why the parts cannot work, as somebody hears who asks now."""
    return [trouble.reason for trouble in anyio.run(health.Check(parts).troubles)]


class Failing(System):
    """A disk whose flushes fail while it is broken."""

    def __init__(self) -> None:
        self.is_broken = False

    def _flush(self, fd: int) -> None:
        if self.is_broken:
            raise OSError(5, "Input/output error")
        os.fsync(fd)

    def __getattribute__(self, name: str) -> Any:
        return object.__getattribute__(self, "_flush" if name in {"fdatasync", "fsync"} else name)


def test_a_log_whose_flush_failed_and_that_could_not_be_moved_is_not_ready(root: Path) -> None:
    system = Failing()
    store = FileStore(str(root), rules=RULES, system=system)
    app = agent(":memory:", Echo())
    app.sessions = Sessions(store)
    parts = Parts(agents={"main": app}, http=Traffic(), began=0)
    app.sessions.add_message("k", "user", "one")
    assert reasons(parts) == []
    system.is_broken = True
    with pytest.raises(DurabilityUnknown):
        app.sessions.add_message("k", "user", "two")
    assert reasons(parts) == ["1 logs could not be flushed or moved to a new file"]
    system.is_broken = False
    app.sessions.add_message("k", "user", "three")
    assert reasons(parts) == []
    app.sessions.close()


# ---- channels


class Line:
    """A channel that stays until it is told to go, and whose answers may not get through."""

    name = "line"
    is_exact = True
    is_up = True

    def __init__(self) -> None:
        self.is_cut = False
        self.leave = anyio.Event()

    async def run(self, accept: Accept) -> None:
        self.accept = accept
        await self.leave.wait()

    async def send(self, to: InboundMessage, text: str, *, id: str) -> None:
        if self.is_cut:
            raise ChannelError("the line is cut")

    async def close(self) -> None:
        """Nothing is open."""


class Moody:
    """A model that fails when it is told to."""

    model = 'moo"dy\\'

    async def complete(self, context: Context, *, emit: Emit) -> Reply:
        if context.messages[-1].content == "fail":
            raise ProviderError("no server")
        return await Echo().complete(context, emit=emit)

    async def close(self) -> None:
        """Nothing is open."""


async def until(is_so: Callable[[], bool]) -> None:
    with anyio.fail_after(20):
        while not is_so():  # noqa: ASYNC110 - nothing tells of it, as nothing tells Prometheus
            await anyio.sleep(0.001)


def words(text: str, id: str, sender: str = "ann") -> InboundMessage:
    return InboundMessage(channel="line", chat="c", sender=sender, id=id, text=text)


def test_what_channels_bring_is_counted_and_one_that_is_away_is_down(root: Path) -> None:
    async def main() -> list[dict[str, float]]:
        line, app = Line(), agent(root, Moody())
        gateway = Gateway(
            [line],
            inbox=Inbox(app.sessions),
            room=lambda _: Room(app.sessions, app.kernel),
            access=lambda _: Access(allow=["ann"], per_minute=4),
            commands={},
        )
        parts = Parts(agents={"main": app}, gateways=[gateway], http=Traffic(), began=0)
        seen = []

        async def look() -> None:
            await until(lambda: not gateway.open and not app.work.running)
            await anyio.wait_all_tasks_blocked()
            found = parsed(health.render(parts))
            seen.append({re.sub("channel=line,?", "", name).strip(): value for name, value in found.items()})

        async with app.kernel, anyio.create_task_group() as tasks:
            await look()
            tasks.start_soon(gateway.run)
            await anyio.wait_all_tasks_blocked()
            for text, id in (("hello", "0"), ("fail", "1"), ("hello", "2"), ("hello", "0"), ("too fast", "3")):
                await gateway.accept(words(text, id))
            await gateway.accept(words("hello", "9", sender="mallory"))
            await look()
            line.leave.set()
            await look()
            tasks.cancel_scope.cancel()
        app.sessions.close()
        return seen

    before, after, left = anyio.run(main)
    assert [seen["nacre_channel_up"] for seen in (before, after, left)] == [0, 1, 0]
    assert after["nacre_messages_accepted_total"] == 3
    assert after["nacre_messages_answered_total"] == 3
    assert after["nacre_messages_failed_total"] == 1
    assert after["nacre_messages_refused_total reason=stranger"] == 1
    assert after["nacre_messages_refused_total reason=rate"] == 1
    assert after["nacre_message_durable_seconds_count"] >= 3
    assert after["nacre_inbox_open"] == 0
    assert after['nacre_model_errors_total agent=main,model=moo"dy\\,error=ProviderError'] == 1
    assert after['nacre_model_tokens_total agent=main,model=moo"dy\\,direction=in'] == 6


def test_a_channel_that_does_not_take_answers_is_down_and_the_daemon_not_ready(root: Path) -> None:
    async def main() -> tuple[dict[str, bool], list[str], dict[str, bool]]:
        line, app = Line(), agent(root, Echo())
        gateway = Gateway(
            [line],
            inbox=Inbox(app.sessions),
            room=lambda _: Room(app.sessions, app.kernel),
            access=lambda _: Access(),
            commands={},
        )
        check = health.Check(Parts(agents={"main": app}, gateways=[gateway], http=Traffic(), began=0))
        async with app.kernel, anyio.create_task_group() as tasks:
            tasks.start_soon(gateway.run)
            await anyio.wait_all_tasks_blocked()
            line.is_cut = True
            await gateway.accept(words("hello", "1"))
            await until(lambda: not gateway.channels["line"])
            away, why = dict(gateway.channels), [trouble.reason for trouble in await check.troubles()]
            line.is_cut = False
            await until(lambda: not gateway.open)
            found = dict(gateway.channels)
            tasks.cancel_scope.cancel()
        app.sessions.close()
        return away, why, found

    away, why, found = anyio.run(main)
    assert (away, why, found) == ({"line": False}, ["channel 'line' is down"], {"line": True})


def test_an_agent_that_does_not_start_makes_the_daemon_not_ready(root: Path) -> None:
    app = agent(root, Echo())
    missing = {"clerk": None}
    check = health.Check(Parts(agents={"main": app}, missing=missing, http=Traffic(), began=0))
    assert anyio.run(check.troubles) == [("agents", "agent 'clerk' could not be started")]
    missing.clear()
    check._looked = float("-inf")
    assert anyio.run(check.troubles) == []
    app.sessions.close()


# ---- numbers


def test_numbers_need_the_token(echo: Site) -> None:
    with echo.visitor() as visitor:
        assert visitor.get("/metrics").status_code == 401


def test_what_comes_over_http_is_counted(server: Serve) -> None:
    site = server("hello", ProviderError("no server"))
    assert site.client.post("/api/sessions/k/messages", json={"content": "hi"}).status_code == 200
    assert site.client.post("/api/sessions/k/messages", json={"content": "ho"}).status_code == 502
    found = numbers(site)
    assert found["nacre_messages_accepted_total channel=http"] == 2
    assert found["nacre_messages_answered_total channel=http"] == 1
    assert found["nacre_messages_failed_total channel=http"] == 1
    assert found["nacre_turn_seconds_count agent=main"] == 2
    assert found["nacre_turn_seconds_bucket agent=main,le=+Inf"] == 2
    assert found["nacre_turns_running agent=main"] == 0
    assert found["nacre_actors agent=main"] == 1
    assert found["nacre_model_requests_total agent=main,model=scripted"] == 2
    assert found["nacre_logs_open agent=main"] == 1
    assert found["nacre_store_batches_total agent=main"] == 3
    assert found["nacre_logs_unsound agent=main"] == 0


def test_a_turn_that_ends_by_somebodys_bug_is_over(server: Serve) -> None:
    site = server(RuntimeError("a bug"))
    assert site.client.post("/api/sessions/k/messages", json={"content": "hi"}).status_code == 500
    found = numbers(site)
    assert found["nacre_turns_running agent=main"] == 0
    assert found["nacre_model_errors_total agent=main,model=scripted,error=RuntimeError"] == 1


def test_an_agent_that_has_done_nothing_yet_says_so(echo: Site) -> None:
    found = numbers(echo)
    assert found["process_start_time_seconds"] > 1e9
    assert found["nacre_inbox_open"] == 0
    assert found["nacre_message_durable_seconds_count"] == 0
    build = next(name for name in found if name.startswith("nacre_build_info"))
    assert build.startswith(f"nacre_build_info version={nacre.__version__},python=3.")


def test_a_spread_counts_each_value_once_and_bounds_belong_to_what_is_below_them() -> None:
    spread = Spread((1.0, 2.0))
    for value in (0.5, 1.0, 1.5, 99.0):
        spread.add(value)
    assert (spread.counts, spread.sum) == ([2, 1, 1], 102.0)


def test_words_that_were_answered_before_are_no_turn() -> None:
    work = Work()
    work.begin("k")
    work.end("k")
    work.end("k")
    assert (work.running, sum(work.turns.counts)) == (0, 1)
