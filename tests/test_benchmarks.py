from __future__ import annotations

import json
import math
import re
import tomllib
from pathlib import Path

import pytest

import nacre
from benchmarks import contenders, database_contenders, measure, peers, postgres, scale_model
from benchmarks.comparison import __main__ as comparison
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


def test_the_page_of_the_comparison_has_what_was_measured_and_no_path_of_the_machine() -> None:
    shown = comparison.PAGE.read_text().partition(comparison.BEGIN)[2].partition(comparison.END)[0]
    assert shown.strip() == comparison.tables(json.loads(comparison.RESULTS.read_text()))
    assert comparison.ROOMS.findall(shown) == []


def test_of_a_path_of_the_suite_only_its_end_is_shown() -> None:
    why = "no file '/tmp/conformance-_oos5i20/torn-tail/cut-1/a.json', nor /a/b/conformance-x/two-processes/b"
    assert comparison.ROOMS.sub("", why) == "no file 'cut-1/a.json', nor b"


def test_the_page_about_scale_has_the_tables_of_the_model() -> None:
    page = (ROOT / "docs" / "scale.md").read_text()
    found = list(scale_model.tables(scale_model.Turn(), scale_model.Load(), scale_model.Node()))
    assert [table for table in found if table not in page] == []


def test_a_node_that_is_asked_more_keeps_turns_waiting_longer() -> None:
    calm, busy = (
        scale_model.simulate_node(rate, scale_model.Turn(), scale_model.Node(cores=2)) for rate in (100, 1_300)
    )
    assert calm.p99 < busy.p99
    assert calm.busy < busy.busy <= 1
    assert calm.per_flush < busy.per_flush


def test_a_row_takes_no_more_than_it_has_time_for() -> None:
    assert math.isinf(scale_model.simulate_row(1_000, each=0.001, trip=0.001))
    assert 0.001 < scale_model.simulate_row(100, each=0.001, trip=0.001) < 0.02


def test_one_session_is_on_one_node_and_many_are_on_nearly_all() -> None:
    assert scale_model.nodes_touched(1, 16) == pytest.approx(1)
    assert 15 < scale_model.nodes_touched(64, 16) < 16
