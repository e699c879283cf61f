from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

import nacre
from benchmarks import contenders, database_contenders, measure, peers, postgres
from benchmarks.rows import at_most
from nacre.storage.postgres.address import parse
from nacre.storage.postgres.schema import init

ROOT = Path(__file__).parents[1]


def test_every_peer_has_a_contender_and_an_environment_that_make_installs() -> None:
    groups = tomllib.loads((ROOT / "pyproject.toml").read_text())["dependency-groups"]
    declared = {name.removeprefix("bench-") for name in groups if name.startswith("bench-")}
    (made,) = re.findall(r"^PEERS := (.+)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    needed = {peer.environment for peer in (*peers.STORES, *peers.AGENTS, *postgres.PEERS)}
    assert declared == set(made.split()) == needed - {""}
    assert {peer.name for peer in peers.STORES} <= set(contenders.BUILDS["append"])
    assert {peer.name for peer in peers.AGENTS} <= set(contenders.BUILDS["turn"])
    for kind in ("append", "resume"):
        assert {peer.name for peer in postgres.PEERS} <= set(database_contenders.BUILDS[kind])


@pytest.mark.parametrize("kind", ["append", "turn"])
def test_a_contender_acts_in_a_process_of_its_own_as_often_as_it_is_told(kind: str, tmp_path: Path) -> None:
    with peers.Contender(kind, peers.Peer("ours", "nacre"), tmp_path / "room", 4) as contender:
        contender.wait()
        assert contender.failure == ""
        assert len(contender.act(3).seconds) == 3


@pytest.mark.parametrize("kind", ["append", "resume"])
def test_a_contender_in_a_database_is_told_where_it_is_by_a_file(kind: str, database: str, tmp_path: Path) -> None:
    (tmp_path / "url").write_text(database)
    if kind == "resume":
        init(parse(database))
        with nacre.open(database) as sessions:
            sessions.add_messages(contenders.KEY, [{"role": "user", "content": "hello"}] * 4)
    with peers.Contender(
        kind, peers.Peer("ours", "nacre"), tmp_path, 4, module="benchmarks.database_contenders"
    ) as contender:
        contender.wait()
        assert contender.failure == ""
        assert len(contender.act(3).seconds) == 3


def test_a_contender_without_an_environment_says_so(tmp_path: Path) -> None:
    with peers.Contender("turn", peers.Peer("nobody", "nanobot", "nobody"), tmp_path / "room", 4) as contender:
        contender.wait()
        assert contender.failure == "not installed"


def test_flushes_are_counted_between_marks() -> None:
    trace = (
        "7 fdatasync(3) = 0\n7 getppid() = 1\n7 fsync(3 <unfinished ...>\n7 <... fsync resumed>) = 0\n7 getppid() = 1\n"
    )
    assert measure.count_by_phase(trace) == [1, 1, 0]


def test_a_figure_beyond_its_bar_is_not_met() -> None:
    assert (at_most("a", 2.01, 2).met, at_most("a", 2.0, 2).met) == (False, True)
