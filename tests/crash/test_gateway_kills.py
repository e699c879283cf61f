"""The gateway is killed at every step, on real IRC and Matrix servers: each message has one answer, shown once."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import anyio
import pytest

import nacre
from nacre.channels.channel import AGAIN
from tests.channels.servers import Server, ngircd, synapse
from tests.conftest import SHARED_MEMORY
from tests.crash.gateway_daemon import Launcher
from tests.crash.gateway_kills import GROUPS, Servers, Tally, answered, converse, deaths, outlast_a_pause, repeats
from tests.crash.gateway_people import Parrot, words_in
from tests.ollama_server import serving
from tests.postgres.servers import PostgresServer

AT_ONCE = 4
CONVERSATIONS, IN_A_CAMPAIGN = 20, 500
WITH_WORKERS = 10
IN_A_DATABASE, IN_TWO_PLACES = 5, 200


@pytest.fixture(scope="module")
def room() -> Iterator[Path]:
    where = SHARED_MEMORY if os.access(SHARED_MEMORY, os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="nacre-", dir=where) as made:
        yield Path(made)


@pytest.fixture(scope="module")
def chat_servers(request: pytest.FixtureRequest, room: Path) -> Iterator[tuple[Server, Server]]:
    with ExitStack() as stack:
        made = []
        for name, server in (("irc", ngircd), ("matrix", lambda place: synapse(request.config, place))):
            (room / name).mkdir()
            made.append(stack.enter_context(server(room / name).running()))
        yield made[0], made[1]


def test_killed_at_every_step_each_message_has_one_answer_and_it_is_shown_once(
    chat_servers: tuple[Server, Server], room: Path, tmp_path: Path, campaign: bool
) -> None:
    # Any other number, for whoever looks for something rare.
    count = int(os.environ.get("NACRE_CONVERSATIONS") or (IN_A_CAMPAIGN if campaign else CONVERSATIONS))
    tally = anyio.run(held, chat_servers, room, tmp_path, count)
    sys.stdout.write(f"{tally}\n")
    assert tally.conversations == count
    assert tally.kills.total() >= count


def test_so_it_is_with_workers_that_are_killed_too(
    chat_servers: tuple[Server, Server], room: Path, tmp_path: Path, campaign: bool
) -> None:
    count = int(os.environ.get("NACRE_CONVERSATIONS") or (IN_A_CAMPAIGN if campaign else WITH_WORKERS))
    tally = anyio.run(held, chat_servers, room, tmp_path, count, 2)
    sys.stdout.write(f"{tally}\n")
    assert tally.conversations == count
    assert tally.kills.total() >= count // 2
    assert tally.worker_kills.total() >= count


def test_so_it_is_in_a_database(
    chat_servers: tuple[Server, Server], room: Path, tmp_path: Path, campaign: bool, postgres: PostgresServer
) -> None:
    count = int(os.environ.get("NACRE_CONVERSATIONS") or (IN_TWO_PLACES if campaign else IN_A_DATABASE))
    tally = anyio.run(held, chat_servers, room, tmp_path, count, 0, postgres.url(), 1)
    sys.stdout.write(f"{tally}\n")
    assert tally.conversations == count
    assert tally.kills.total() >= count


def test_another_gateway_takes_over_from_one_that_is_killed(
    chat_servers: tuple[Server, Server], room: Path, tmp_path: Path, campaign: bool, postgres: PostgresServer
) -> None:
    count = int(os.environ.get("NACRE_CONVERSATIONS") or (IN_TWO_PLACES if campaign else IN_A_DATABASE))
    tally = anyio.run(held, chat_servers, room, tmp_path, count, 0, postgres.url(), 2)
    sys.stdout.write(f"{tally}\n")
    assert tally.conversations == count
    assert tally.kills.total() >= count


def test_a_gateway_that_was_stopped_for_too_long_leaves_the_channels_to_another(
    chat_servers: tuple[Server, Server], room: Path, tmp_path: Path, postgres: PostgresServer
) -> None:
    async def run() -> list[str]:
        with Launcher() as launcher:
            async with serving(Parrot()) as model:
                servers = Servers(*chat_servers, model.host, launcher, tmp_path, 0, postgres.url(), 2)
                (room / "paused").mkdir()
                return await outlast_a_pause(servers, room / "paused", "paused")

    history = anyio.run(run)
    assert [word for text in history for word in words_in(text)] == [word for group in GROUPS for word in group]


async def held(
    chat_servers: tuple[Server, Server],
    room: Path,
    workspace: Path,
    count: int,
    workers: int = 0,
    database: str = "",
    at_once: int = 1,
) -> Tally:
    """Hold conversations, some at once; the first is left alone, to see how many steps there are."""
    tally, limit = Tally(), anyio.CapacityLimiter(AT_ONCE)
    with Launcher() as launcher:
        async with serving(Parrot()) as model:
            servers = Servers(*chat_servers, model.host, launcher, workspace, workers, database, at_once)

            async def one(number: int) -> None:
                ends = deaths(number, count, tally.steps) if number else []
                async with limit:
                    kind = "w" if workers else "g" if at_once > 1 else "d" if database else "c"
                    name = f"{kind}{number}"
                    (room / name).mkdir()
                    try:
                        tally.add(await converse(servers, room / name, name, ends))
                    except Exception as error:
                        error.add_note(f"This was conversation {number} of {count}, with {ends}.")
                        raise

            await one(0)
            async with anyio.create_task_group() as tasks:
                for number in range(1, count):
                    tasks.start_soon(one, number)
    return tally


# That it would be noticed


@pytest.mark.parametrize(
    ("heard", "kills"),
    [
        (["re:a", "re:b", "re:a"], 1),
        (["re:a", f"{AGAIN}re:a", "re:b", f"{AGAIN}re:b"], 1),
        (["re:a"], 1),
        (["re:a", "re:b", "re:c"], 1),
    ],
    ids=["not marked", "two for one kill", "lost", "never said"],
)
def test_a_wrong_answer_on_irc_is_noticed(heard: list[str], kills: int) -> None:
    assert repeats(["re:a", "re:b", f"{AGAIN}re:b"], ["a", "b"], 1) == 1
    with pytest.raises(AssertionError):
        repeats(heard, ["a", "b"], kills)


@pytest.mark.parametrize(
    "said",
    ["user a, user b, assistant re:a", "user a, assistant re:a, assistant re:a", "user a, assistant re:a, user a"],
    ids=["without an answer", "answered twice", "said twice"],
)
def test_a_wrong_session_is_noticed(said: str) -> None:
    with nacre.open(":memory:") as sessions:
        for role, text in (("user", "a"), ("user", "b?"), ("assistant", "re:a re:b?")):
            sessions.add_message("right", role, text)
        assert answered(sessions, "right") == ["a", "b?"]
        for role, text in (line.split() for line in said.split(", ")):
            sessions.add_message("wrong", role, text)
        with pytest.raises(AssertionError):
            answered(sessions, "wrong")
