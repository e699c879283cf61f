"""The conformance suite passes what keeps its promises, and finds every planted fault."""

from __future__ import annotations

import json
import math
import os
import select
import subprocess
import sys
import venv
from pathlib import Path

import pytest

import nacre
from nacre.testing.conformance import CHECKS, run
from nacre.testing.conformance.process import Child, Setting
from tests.testing import conformance_stores
from tests.testing.conformance_stores import PLANTED, Lines

HERE = "tests.testing.conformance_stores"
ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("factory", ["nacre.testing.conformance:open_nacre", f"{HERE}:Lines"])
@pytest.mark.parametrize("check", CHECKS)
def test_a_true_store_passes(factory: str, check: str) -> None:
    (outcome,) = run(factory, only=[check]).outcomes
    assert outcome.status == "passed", outcome.why


@pytest.mark.parametrize("store", ["LocksByALink", "HasASocket", "HasAFifo", "RemembersItsPath", "ReadsTheInput"])
def test_a_true_store_passes_whatever_is_in_its_directory(store: str) -> None:
    report = run(f"{HERE}:{store}", only=["crash-inside", "torn-tail"], kills=2)
    assert [outcome.status for outcome in report.outcomes] == ["passed", "passed"], report


@pytest.mark.parametrize("store", ["HasAHelper", "HasAHelperThatGetsAway"])
def test_a_helper_of_a_store_does_not_keep_the_suite(store: str) -> None:
    checks = ["crash-inside", "crash-while-writing", "torn-tail"]
    ran = command(f"{HERE}:{store}", "--kills", "2", *(word for check in checks for word in ("--only", check)))
    assert [line.split()[:2] for line in ran.stdout.splitlines()[1:]] == [[check, "passed"] for check in checks]


def test_a_helper_is_killed_with_the_process_of_its_store(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "alive")
    alive = os.open(tmp_path / "alive", os.O_RDONLY | os.O_NONBLOCK)
    try:
        with Child(Setting(f"{HERE}:HasAHelperThatCanBeHeard"), tmp_path) as child:
            child.open()
            child.kill()
        heard = select.poll()
        heard.register(alive, 0)
        assert heard.poll(60_000) == [(alive, select.POLLHUP)]
    finally:
        os.close(alive)


@pytest.mark.parametrize(("store", "check", "said"), PLANTED, ids=lambda value: getattr(value, "__name__", None))
def test_a_planted_fault_is_found(store: type[Lines], check: str, said: str) -> None:
    timeout = 0.1 if store.__name__ == "Hangs" else 60
    report = run(f"{HERE}:{store.__name__}", only=[check], timeout=timeout)
    (outcome,) = report.outcomes
    assert outcome.status == "failed"
    assert said in outcome.why
    assert not report.passed


def test_every_check_was_seen_to_fail() -> None:
    assert {check for _, check, _ in PLANTED} == set(CHECKS)


def test_what_cannot_be_asked_is_not_applicable_with_the_reason_the_store_gives() -> None:
    report = run(f"{HERE}:WithoutIds", only=["idempotent-retry"])
    assert [(it.status, it.why) for it in report.outcomes] == [("not applicable", "it takes no ids")]


def test_a_store_of_which_nothing_was_checked_has_not_passed() -> None:
    assert not run(f"{HERE}:WithoutIds", only=["idempotent-retry"]).passed
    assert run(f"{HERE}:WithoutIds", only=["idempotent-retry", "reopen"]).passed
    ran = command(f"{HERE}:NamesEveryCheck")
    assert ran.returncode == 2
    assert ran.stdout.splitlines()[-1] == "nothing was checked: no check is applicable"


@pytest.mark.parametrize(
    ("store", "said"),
    [
        ("NamesNoCheck", "not_applicable names 'idempotent_retry', which is no check; there are reopen, crash-inside"),
        ("ListsChecks", "not_applicable must map names of checks to reasons"),
    ],
)
def test_what_is_not_applicable_must_be_a_check(store: str, said: str) -> None:
    with pytest.raises(nacre.InvalidArgument, match=said):
        run(f"{HERE}:{store}", only=["reopen"])


@pytest.mark.parametrize(
    ("factory", "said"),
    [("no_such_module:Store", "No module named"), (f"{HERE}:Missing", "has no function"), ("nothing", "is named")],
)
def test_a_factory_that_cannot_be_imported_is_no_verdict(factory: str, said: str) -> None:
    with pytest.raises(nacre.InvalidArgument, match=said):
        run(factory)


@pytest.mark.parametrize("check", CHECKS)
@pytest.mark.parametrize(
    ("factory", "said"),
    [
        ("IsAwaited", "it is asynchronous, and the suite awaits nothing"),
        ("AppendIsAwaited", "it is asynchronous, and the suite awaits nothing"),
        ("open_awaited", "it is asynchronous, and the suite awaits nothing"),
        ("CannotAppend", "it has no 'append'"),
    ],
)
def test_what_cannot_be_called_as_a_store_is_no_verdict(factory: str, said: str, check: str) -> None:
    with pytest.raises(nacre.InvalidArgument, match=f"{factory}: .*{said}"):
        run(f"{HERE}:{factory}", only=[check])


def test_a_store_that_is_awaited_is_tried_through_a_class_around_it() -> None:
    report = run(f"{HERE}:IsAwaitedInside", kills=2)
    assert [outcome.status for outcome in report.outcomes] == ["passed"] * len(CHECKS), report


def test_what_takes_long_to_import_does_not_hang() -> None:
    (outcome,) = run("tests.testing.slow_to_import:Hangs", only=["reopen"], timeout=0.1).outcomes
    assert (outcome.status, outcome.why) == ("failed", "no answer within 0.1 s")


def test_the_environment_of_a_store_needs_no_nacre(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    venv.create(tmp_path / "other", with_pip=False)
    monkeypatch.delenv("PYTHONPATH", raising=False)
    monkeypatch.chdir(tmp_path)
    program = Path(str(conformance_stores.__file__)).read_text()
    program += "\nimport importlib.util\nassert importlib.util.find_spec('nacre') is None\n"
    (tmp_path / "lone.py").write_text(program)
    report = run("lone:Lines", only=["reopen", "crash-inside"], python=str(tmp_path / "other" / "bin" / "python"))
    assert report.passed, report


def test_an_interpreter_that_is_not_there_is_no_verdict() -> None:
    with pytest.raises(nacre.InvalidArgument, match="'no-such/python' cannot be started"):
        run(f"{HERE}:Lines", python="no-such/python")


def test_an_interpreter_that_is_no_python_is_no_verdict() -> None:
    with pytest.raises(nacre.InvalidArgument, match="writes what is no answer"):
        run(f"{HERE}:Lines", python="echo")


def test_wrong_arguments_are_refused() -> None:
    with pytest.raises(nacre.InvalidArgument, match="no check 'crashh'"):
        run(f"{HERE}:Lines", only=["crashh"])
    with pytest.raises(nacre.InvalidArgument, match="at least 2"):
        run(f"{HERE}:Lines", kills=1)
    for timeout in (-1, 0, math.nan, math.inf):
        with pytest.raises(nacre.InvalidArgument, match="seconds above 0"):
            run(f"{HERE}:Lines", timeout=timeout)


def test_a_check_that_is_named_twice_runs_once() -> None:
    report = run(f"{HERE}:Lines", only=["reopen", "reopen"])
    assert [(it.check, it.status) for it in report.outcomes] == [("reopen", "passed")]


def command(*arguments: str) -> subprocess.CompletedProcess[str]:
    line = [sys.executable, "-m", "nacre.testing.conformance", *arguments]
    return subprocess.run(line, cwd=ROOT, capture_output=True, text=True, check=False, timeout=250)


def test_the_command_prints_a_line_per_check_and_its_exit_code_says_whether_one_failed() -> None:
    good = command(f"{HERE}:Lines", "--only", "reopen")
    assert (good.returncode, good.stderr) == (0, "")
    assert good.stdout.splitlines()[1].split()[:2] == ["reopen", "passed"]
    bad = command(f"{HERE}:NewestFirst", "--only", "reopen", "--json")
    assert bad.returncode == 1
    report = json.loads(bad.stdout)
    assert (report["passed"], report["outcomes"][0]["status"]) == (False, "failed")
    assert command("no_such_module:Store").returncode == 2
    awaited = command(f"{HERE}:IsAwaited")
    assert (awaited.returncode, awaited.stdout, len(awaited.stderr.splitlines())) == (2, "", 1)


def test_the_command_prints_what_the_output_cannot_show() -> None:
    ran = command(f"{HERE}:SaysWhatCannotBeShown", "--only", "reopen")
    assert (ran.returncode, ran.stderr) == (1, "")
    assert "not \\udcff" in ran.stdout
