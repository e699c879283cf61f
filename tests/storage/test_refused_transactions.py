"""One transaction that cannot be stored, at any stage and place of a batch, is refused alone."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import nacre
from nacre.codec import encode_text
from nacre.history.session_state import RULES
from nacre.records import AppendRecord, Records, Rewind, SetMeta, Summarise, Transaction, Truncate
from nacre.storage.file_store import FileStore
from nacre.storage.memory_store import MemoryStore

WAIT = 30
KEY = "k"


def nested(depth: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(depth):
        value = [value]
    return value


def fail(_: Records) -> set[int]:
    raise MemoryError


SPOILT: dict[str, Transaction] = {
    "a number that is a text": Transaction((Truncate("2"),), creates=False),  # type: ignore[arg-type]
    "a number that is a float": Transaction((Truncate(2.5),), creates=False),  # type: ignore[arg-type]
    "a float in the middle": Transaction((encode_text("user", "x"), Rewind(2.0), encode_text("user", "y"))),  # type: ignore[arg-type]
    "upto is a text": Transaction((Summarise("s", "2"),), creates=False),  # type: ignore[arg-type]
    "a summary that is none": Transaction((Summarise(7),)),  # type: ignore[arg-type]
    "a kind without a text": Transaction((AppendRecord("x.\ud800", 1),)),
    "what JSON has not": Transaction((AppendRecord("x.a", object()),)),
    "nested without an end": Transaction((AppendRecord("x.a", nested(5 * sys.getrecursionlimit())),)),
    "longer than a line": Transaction((AppendRecord("x." + "y" * (17 << 20), 1),)),
    "meta that is none": Transaction((SetMeta(7),)),  # type: ignore[arg-type]
    "no wish": Transaction((object(),)),  # type: ignore[arg-type]
    "an id that is no key": Transaction((AppendRecord("x.a", 1),), id=[]),  # type: ignore[arg-type]
    "not as expected": Transaction((AppendRecord("x.a", 1),), expect=99),
    "another version": Transaction((AppendRecord("x.a", 1),), expect=nacre.Version(2, "0" * 32)),
    "a version that is none": Transaction((AppendRecord("x.a", 1),), expect=nacre.Version("2", 7)),  # type: ignore[arg-type]
    "an id of other content": Transaction((AppendRecord("x.a", 1),), id="used", print="other"),
    "what is not stored under an id": Transaction((Truncate(1), Rewind(999)), id="new", print="new"),
    "records that cannot be brought back": Transaction((Rewind(2),), creates=False, reach=2, needs=fail),
}


def transaction(text: str) -> Transaction:
    return Transaction((encode_text("user", text),))


def attempt(act: Callable[[], int]) -> int | Exception:
    try:
        return act()
    except Exception as error:  # noqa: BLE001 - what it is, is looked at later
        return error


def by_submit(store: FileStore, transactions: list[Transaction]) -> list[int | Exception]:
    """Have transactions stored in one batch: they come while the log is worked on."""
    with ThreadPoolExecutor(1) as pool:
        queue = store._writers.of(KEY).queue
        pending = queue.alone(
            lambda: pool.submit(lambda: [store.submit(KEY, each) for each in transactions]).result(WAIT)
        )
        return [attempt(lambda future=each: future.result(WAIT)) for each in pending]  # type: ignore[misc]


def by_run(store: FileStore | MemoryStore, transactions: list[Transaction]) -> list[int | Exception]:
    return [attempt(lambda each=each: store.run(KEY, each)) for each in transactions]  # type: ignore[misc]


class Scene(NamedTuple):
    """A session whose first records were moved out, and a way to store transactions in it, with the result of each."""

    sessions: nacre.Sessions
    in_ram: bool
    store_all: Callable[[list[Transaction]], list[int | Exception]]


@pytest.fixture(params=["one batch", "one by one", "memory"])
def scene(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Scene]:
    store: Any = FileStore(str(tmp_path), rules=RULES, compact_at=1)
    if request.param == "memory":
        store = MemoryStore(rules=RULES)
    with nacre.Sessions(store) as sessions:
        for text in "abcdefgh":
            sessions.add_message(KEY, "user", text * 1000)
        sessions.append(KEY, "x.a", 2, id="used")
        sessions.truncate_history(KEY, 3)
        sessions.save(KEY)
        in_ram = request.param == "memory"
        assert in_ram or list((tmp_path / "cold").iterdir())
        yield Scene(sessions, in_ram, partial(by_submit if request.param == "one batch" else by_run, store))


@pytest.mark.parametrize("place", [0, 1, 2])
@pytest.mark.parametrize("spoilt", SPOILT.values(), ids=SPOILT)
def test_a_unit_that_cannot_be_stored_is_refused_alone(scene: Scene, spoilt: Transaction, place: int) -> None:
    transactions = [transaction("first"), transaction("second")]
    transactions.insert(place, spoilt)
    results = scene.store_all(transactions)
    error = results.pop(place)
    # In RAM nothing is moved out, and so nothing is brought back.
    assert isinstance(error, Exception) or (scene.in_ram and spoilt.needs is not None)
    assert not isinstance(error, nacre.DurabilityUnknown)
    stored = scene.sessions.transcript(KEY)[-2:]
    assert [each.message.content for each in stored] == ["first", "second"]
    assert results == [each.n for each in stored]
    assert scene.sessions.verify().ok


def test_who_expects_the_same_version_in_one_batch_is_stored_once(scene: Scene) -> None:
    seen = scene.sessions.snapshot(KEY).version
    transactions = [Transaction((AppendRecord("x.a", n),), expect=seen) for n in range(3)]
    first, *others = scene.store_all(transactions)
    assert [type(other) for other in others] == [nacre.Conflict, nacre.Conflict]
    assert [(entry.n, entry.data) for entry in scene.sessions.records(KEY, "x.a")][1:] == [(first, 0)]


def test_a_retry_in_the_batch_of_the_first_try_is_not_stored(scene: Scene) -> None:
    tries = [Transaction((AppendRecord("x.a", 1),), id="new", print="p") for _ in range(3)]
    others = Transaction((AppendRecord("x.a", 2),), id="new", print="q")
    first, *later, conflict = scene.store_all([*tries, others])
    assert later == [first, first]
    assert isinstance(conflict, nacre.Conflict)
    assert [entry.data for entry in scene.sessions.records(KEY, "x.a")] == [2, 1]
