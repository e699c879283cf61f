"""What single commands teach memory when the model is slow: nothing is lost, and nobody waits long for it."""

from __future__ import annotations

import json
import signal
import subprocess
import threading
from collections.abc import Iterator

import pytest

from tests.everyday.conftest import Person
from tests.everyday.model import Model, Reply, Request

FACT = "The user keeps bees on the roof"


class SlowMemory:
    """A model that answers people at once, and memory only while it may."""

    def __init__(self) -> None:
        self.may_answer = threading.Event()
        self.is_asked = threading.Event()

    def __call__(self, request: Request) -> Reply:
        if request.tools:
            return "All right."
        self.is_asked.set()
        self.may_answer.wait()
        return json.dumps({"line": "", "facts": [{"subject": "bees", "text": FACT}]})


@pytest.fixture
def slow(model: Model) -> Iterator[SlowMemory]:
    found = SlowMemory()
    model.answer = found
    yield found
    found.may_answer.set()


def _facts(person: Person) -> list[str]:
    return [fact["text"] for fact in person.nacre("memory", "list", "--json").json["items"]]


def _first_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline()


def test_a_command_learns_from_its_own_turn(person: Person, slow: SlowMemory) -> None:
    slow.may_answer.set()
    person.ask("I keep bees on the roof, remember: the user keeps bees on the roof")
    assert _facts(person) == [FACT]


def test_a_command_ends_before_a_slow_model_has_learned_and_the_next_one_learns(
    person: Person, slow: SlowMemory
) -> None:
    person.ask("the user keeps bees on the roof")
    assert _facts(person) == []
    slow.is_asked.clear()
    with person.start("chat", "--json", "and what else?") as later:
        # It has its own answer before the model has said what is to be learned from the first turn.
        assert json.loads(_first_line(later))["answer"] == "All right."
        assert slow.is_asked.wait(60)
        slow.may_answer.set()
        later.communicate()
    assert later.returncode == 0
    assert _facts(person) == [FACT]


def test_what_a_killed_command_was_told_is_learned_by_the_next_one(person: Person, slow: SlowMemory) -> None:
    with person.start("chat", "--json", "the user keeps bees on the roof") as killed:
        assert slow.is_asked.wait(60)
        killed.send_signal(signal.SIGKILL)
        killed.communicate()
    assert _facts(person) == []
    slow.may_answer.set()
    person.ask("and what else?")
    assert _facts(person) == [FACT]


def test_ctrl_c_ends_the_wait_for_memory_and_nothing_is_lost(person: Person, slow: SlowMemory) -> None:
    person.ask("the user keeps bees on the roof")
    with person.start("chat", "--json", "and what else?") as waiting:
        _first_line(waiting)
        waiting.send_signal(signal.SIGINT)
        waiting.communicate()
    assert waiting.returncode == 128 + signal.SIGINT
    slow.may_answer.set()
    person.ask("and now?")
    assert _facts(person) == [FACT]
