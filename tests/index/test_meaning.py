"""Search by meaning: other words are found, filters hold, and vectors go where their messages go."""

from __future__ import annotations

import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nacre import ConfigError, Sessions
from nacre.index import Index, tables
from nacre.index.database import Database
from nacre.index.meaning import Near, embedded, save, take
from nacre.index.minilm import is_installed
from tests.index.concepts import Concepts


@pytest.fixture
def model() -> Concepts:
    return Concepts()


@pytest.fixture
def index(root: Path, cache: Path, sessions: Sessions, model: Concepts) -> Iterator[Index]:
    for key, text in (("a", "my dog is old"), ("b", "I parked on level three"), ("c", "Anna is allergic to nuts")):
        sessions.add_message(key, "user", text)
    made = Index(str(root), cache=str(cache), embedder=lambda: model)
    yield made
    made.close()


def found(index: Index, query: str, **options: Any) -> list[str]:
    return [hit.key for hit in index.search(query, meaning=True, **options)]


def count(cache: Path, table: str = "vector") -> int:
    connection = sqlite3.connect(next(cache.rglob("index.sqlite")))
    try:
        return int(connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0])  # noqa: S608 - our own names
    finally:
        connection.close()


def tallies(cache: Path) -> tuple[int, int]:
    """How many vectors there are, and how many messages wait for some: as is noted, and as is counted."""
    connection = sqlite3.connect(next(cache.rglob("index.sqlite")))
    try:
        noted = connection.execute("SELECT n FROM tally ORDER BY name").fetchall()
    finally:
        connection.close()
    counted = count(cache), count(cache, "waiting")
    assert noted == [(n,) for n in counted]
    return counted


def test_other_words_are_found_once_the_messages_were_read(index: Index) -> None:
    assert found(index, "puppy") == []
    assert index.make_vectors() == 0
    assert found(index, "puppy") == ["a"]
    assert found(index, "vehicle") == ["b"]
    assert index.search("vehicle") == []


def test_what_has_the_word_and_the_meaning_comes_first(index: Index, sessions: Sessions) -> None:
    sessions.add_message("d", "user", "the puppy sleeps")
    index.make_vectors()
    assert found(index, "puppy sleeps") == ["d", "a"]


def test_what_has_no_vector_yet_is_not_behind_what_has_one(index: Index, sessions: Sessions) -> None:
    best = sessions.add_message("d", "user", "the puppy group meets on Monday")
    sessions.add_message("d", "user", "a group of vehicles")
    index.make_vectors(1)
    assert index.search("puppy group", meaning=True)[0].n == best


LONG = "The car is parked where every vehicle is. " * 5


def test_a_message_is_as_near_as_the_nearest_of_its_sentences(index: Index, sessions: Sessions) -> None:
    sessions.add_message("d", "user", f"{LONG}Our pup is called Biscuit, and she is fourteen. {LONG}")
    sessions.add_message("e", "user", "a dog and the bill for a car")
    index.make_vectors()
    best = index.search("cat", meaning=True)[0]
    assert best.key == "d"
    assert "Our pup is called Biscuit, and she is fourteen." in best.snippet


def test_what_stands_far_behind_in_a_message_is_found(index: Index, sessions: Sessions) -> None:
    end = "The invoice came today, at last, and the bill of last month; I put both of them there where you always look."
    sessions.add_message("d", "user", f"{LONG * 8}{end}")
    index.make_vectors()
    best = index.search("payment", meaning=True)[0]
    assert (best.key, "The invoice came today" in best.snippet) == ("d", True)


def test_a_question_shows_what_is_nearest_to_it_and_a_word_where_it_is(index: Index, sessions: Sessions) -> None:
    sessions.add_message("d", "user", f"Which vehicle was called green? {LONG}Our pup is Biscuit. {LONG}")
    index.make_vectors()
    (asked,) = index.search("what is the cat called? session:d", meaning=True)
    (word,) = index.search("called session:d", meaning=True)
    assert "Our pup is Biscuit." in asked.snippet
    assert "**called**" in word.snippet


def test_where_no_message_has_much_of_a_question_words_do_not_hide_what_is_near(
    index: Index, sessions: Sessions
) -> None:
    sessions.add_messages("d", [{"role": "user", "content": f"the name of street {n}"} for n in range(12)])
    index.make_vectors()
    assert found(index, "Which name did your kitten, your puppy, answer to?", limit=1) == ["a"]
    # Where one has most of it, words count.
    assert found(index, "What was the name of street 7?", limit=1) == ["d"]


def test_what_only_words_find_follows(index: Index, sessions: Sessions) -> None:
    index.make_vectors()
    sessions.add_message("d", "user", "dogma and puppyish things")
    assert found(index, "puppy") == ["a", "d"]


@pytest.mark.parametrize("query", ["狗 饼干", "狗 饼干 ?", '狗 "饼干"', '"狗吃饼干"'])
def test_what_has_the_words_of_a_language_without_spaces_comes_before_what_is_near(
    index: Index, sessions: Sessions, query: str
) -> None:
    sessions.add_message("right", "user", "昨天狗吃饼干了")
    sessions.add_messages("near", [{"role": "user", "content": f"dog {n}"} for n in range(9)])
    while index.make_vectors():
        pass
    best = index.search(query, meaning=True, limit=5)
    assert best[0].key == "right"
    assert "**狗" in best[0].snippet
    # What was in quotes holds.
    assert {hit.key for hit in best[1:]} == (set() if '"' in query else {"near"})


@pytest.mark.parametrize(("query", "keys"), [("->", ["e"]), ("=>", []), ("pup*", ["e"]), ("cat*", [])])
def test_signs_and_beginnings_of_words_are_not_found_in_what_is_only_near(
    index: Index, sessions: Sessions, query: str, keys: list[str]
) -> None:
    sessions.add_message("e", "user", "a puppy -> a dog")
    index.make_vectors()
    assert found(index, query) == keys


def test_a_sign_beside_words_is_not_asked_for(index: Index) -> None:
    index.make_vectors()
    assert found(index, "vehicle ?") == found(index, "- vehicle") == ["b"]


def test_filters_and_exclusions_have_no_meaning(index: Index, model: Concepts) -> None:
    index.make_vectors()
    model.read.clear()
    query = 'where is "the vehicle" OR puppy* role:user since:2020-01-01 session:b -"on the table" -dog caf\udce9'
    assert found(index, "vehicle role:user") == ["b"]
    found(index, query)
    assert model.read == ["vehicle", "where is the vehicle puppy* caf?"]
    assert found(index, "role:user") == ["c", "b", "a"]


def test_a_few_at_a_time_the_newest_first(index: Index, model: Concepts) -> None:
    assert index.make_vectors(0) == 3
    assert [index.make_vectors(2), index.make_vectors(2), index.make_vectors(2)] == [1, 0, 0]
    assert set(model.read[:2]) == {"I parked on level three", "Anna is allergic to nuts"}


def test_of_long_messages_fewer_are_read_in_one_step(index: Index, sessions: Sessions) -> None:
    for _ in range(3):
        sessions.add_message("d", "user", LONG * 9)
    # One that is long takes as much time as several; one is always read.
    assert [index.make_vectors(2), index.make_vectors(4), index.make_vectors(8)] == [5, 4, 0]


def test_filters_exclusions_and_phrases_hold(index: Index, sessions: Sessions) -> None:
    n = sessions.add_message("a", "assistant", "a puppy needs care")
    index.make_vectors()
    assert found(index, "puppy role:assistant") == ["a"]
    assert found(index, "vehicle session:a") == []
    assert found(index, "vehicle -parked") == []
    assert found(index, 'vehicle "level three"') == ["b"]
    assert found(index, 'vehicle "level four"') == []
    assert [hit.n for hit in index.search("puppy", meaning=True, skip=("a", n))] == [2]
    assert len(found(index, "puppy", limit=1)) == 1
    assert found(index, "role:assistant") == ["a"]


def test_only_what_people_and_models_say_is_read_for_its_meaning(index: Index, sessions: Sessions, cache: Path) -> None:
    sessions.add_message("d", "system", "you like dogs")
    sessions.add_full_message("d", {"role": "tool", "content": "dog.txt", "tool_call_id": "c1"})
    sessions.add_message("d", "user", "   ")
    sessions.with_internal_keys().add_message("nacre:memory", "user", "the dog's birthday")
    assert index.make_vectors() == 0
    assert (count(cache), count(cache, "waiting")) == (3, 0)


def test_a_forgotten_session_leaves_no_vector(index: Index, sessions: Sessions, cache: Path, model: Concepts) -> None:
    sessions.add_message("a", "user", f"{LONG}A puppy and a dog are not the same.")
    index.make_vectors()
    connection = sqlite3.connect(next(cache.rglob("index.sqlite")))
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    of_session = (
        "SELECT value FROM vector JOIN message ON message.id = vector.message JOIN log ON log.id = message.log "
        "WHERE key = 'a'"
    )
    values = [value for (value,) in connection.execute(of_session)]
    connection.close()
    kept = b"".join(path.read_bytes() for path in cache.rglob("index.sqlite*"))
    assert [value in kept for value in values] == [True] * 7
    sessions.delete("a")
    index.forget("a")
    assert found(index, "puppy") == []
    kept = b"".join(path.read_bytes() for path in cache.rglob("index.sqlite*"))
    assert [value in kept for value in values] == [False] * 7
    assert tallies(cache) == (2, 0)


def test_a_message_that_is_erased_meanwhile_gets_no_vector(
    index: Index, root: Path, cache: Path, sessions: Sessions, model: Concepts
) -> None:
    other = Index(str(root), cache=str(cache))

    def erase() -> None:
        sessions.delete("c")
        other.forget("c")
        # It gets the number of the message that is gone.
        sessions.add_message("d", "user", "the bill")
        other.search("bill")

    index.search("anything")
    model.meanwhile = erase
    index.make_vectors()
    model.meanwhile = lambda: None
    other.close()
    assert found(index, "sick") == []
    assert index.make_vectors() == 0
    assert found(index, "payment") == ["d"]


def test_only_the_newest_have_a_vector(index: Index, sessions: Sessions, cache: Path, model: Concepts) -> None:
    for number in range(6):
        sessions.add_message("d", "user", f"dog {number}")
    index.search("dog")
    database = Database(str(next(cache.glob("index-*"))))

    def make(connection: sqlite3.Connection) -> int:
        rows = take(connection, 4)
        return save(connection, rows, embedded(model, rows), limit=4)

    assert database.run(make) == 0
    sessions.add_message("d", "user", "the newest dog")
    index.search("dog")
    assert database.run(make) == 0
    near = database.run(lambda connection: Near(connection, model.embed(["dog"])[0]).close())
    bodies = "SELECT body FROM message JOIN vector ON vector.message = message.id"
    kept = {body for (body,) in database.run(lambda connection: connection.execute(bodies).fetchall())}
    database.close()
    assert len(near) == 4
    assert kept == {"the newest dog", "dog 5", "dog 4", "dog 3"}


def test_vectors_are_bounded_not_messages_and_none_is_left_of_a_message_that_has_to_go(
    root: Path, sessions: Sessions, cache: Path, model: Concepts
) -> None:
    text = "This is the dog that belongs to me. That is the vehicle that belongs to me. Bye."
    sessions.add_messages("d", [{"role": "user", "content": text}] * 5)
    index = Index(str(root), cache=str(cache), embedder=lambda: model)
    assert index.make_vectors(0) == 5
    database = Database(str(next(cache.glob("index-*"))))

    def make(connection: sqlite3.Connection) -> int:
        rows = take(connection, 1)
        return save(connection, rows, embedded(model, rows), limit=5)

    left = [database.run(make) for _ in range(3)]
    whose = "SELECT DISTINCT n FROM message JOIN vector ON vector.message = message.id ORDER BY n"
    kept = database.run(lambda connection: connection.execute(whose).fetchall())
    database.close()
    index.close()
    # A message has two pieces: the third does not fit, and what is older waits no more.
    assert left == [4, 3, 0]
    assert kept == [(5,), (6,)]
    assert tallies(cache) == (4, 0)


def test_a_step_takes_no_longer_the_more_vectors_there_are(
    root: Path, sessions: Sessions, cache: Path, model: Concepts
) -> None:
    sessions.add_messages("d", [{"role": "user", "content": f"dog {n}"} for n in range(1200)])
    index = Index(str(root), cache=str(cache), embedder=lambda: model)
    index.make_vectors(16)
    database = Database(str(next(cache.glob("index-*"))))
    steps = 0
    said: list[str] = []

    def step() -> None:
        nonlocal steps
        steps += 1

    def make(connection: sqlite3.Connection) -> int:
        nonlocal steps
        steps = 0
        connection.set_progress_handler(step, 1)
        connection.set_trace_callback(said.append)
        rows = take(connection, 8)
        save(connection, rows, embedded(model, rows), limit=1100)
        connection.set_progress_handler(None, 0)
        return steps

    few = database.run(make)
    index.make_vectors(1000)
    many = database.run(make)
    while count(cache, "waiting"):
        database.run(make)
    sessions.add_messages("d", [{"role": "user", "content": f"new dog {n}"} for n in range(8)])
    index.search("new")
    bounded = database.run(make)
    assert tallies(cache) == (1100, 0)
    database.close()
    index.close()
    assert max(many, bounded) < 2 * few
    # To count all rows is one step for SQLite, but reads all of them.
    assert not any("count(*)" in statement for statement in said)


NO_NUMBER = b"\x00\x00\xc0\x7f"


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE vector SET value = damaged(value, 1, 388)",
        "UPDATE vector SET value = damaged(value, 4, 388, no_number())",
        "UPDATE vector SET value = 'text'",
        "UPDATE vector SET piece = 1; INSERT INTO vector SELECT message, 0, zeroblob(388) FROM vector",
        "DELETE FROM tally",
        "UPDATE tally SET n = n + 7",
        "UPDATE tally SET n = n - 7",
        "INSERT INTO waiting VALUES (99)",
        "INSERT INTO waiting VALUES (1)",
        "INSERT INTO vector SELECT 99, piece, value FROM vector LIMIT 1",
    ],
)
def test_damaged_vectors_are_made_anew(index: Index, cache: Path, damage: str) -> None:
    index.make_vectors()
    index.close()
    connection = sqlite3.connect(next(cache.rglob("index.sqlite")))
    connection.create_function("damaged", -1, lambda value, start, end, *more: b"".join(more) + value[start:end])
    connection.create_function("no_number", 0, lambda: NO_NUMBER)
    connection.executescript(damage)
    connection.close()
    found(index, "puppy")
    index.make_vectors()
    assert index.make_vectors() == 0
    assert found(index, "puppy") == ["a"]


def test_vectors_are_shared_and_made_anew_with_the_index(
    index: Index, root: Path, cache: Path, model: Concepts
) -> None:
    index.make_vectors()
    other = Index(str(root), cache=str(cache), embedder=lambda: model)
    assert other.make_vectors() == 0
    assert found(other, "puppy") == ["a"]
    other.close()
    for path in cache.rglob("index.sqlite*"):
        path.unlink()
    assert found(index, "puppy") == []
    assert index.make_vectors() == 0
    assert found(index, "puppy") == ["a"]


def test_who_is_killed_while_vectors_are_made_loses_none(index: Index, root: Path, cache: Path) -> None:
    script = """
import os, signal, sys
from nacre.index import Index
from nacre.index.database import Database
from tests.index.concepts import Concepts
model = Concepts()
index = Index(sys.argv[1], cache=sys.argv[2], embedder=lambda: model)
print(index.make_vectors(1), flush=True)
model.meanwhile = lambda: os.kill(os.getpid(), signal.SIGKILL)
index.make_vectors(2)
"""
    command = [sys.executable, "-c", script, str(root), str(cache)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, cwd=Path(__file__).parents[2])
    assert (ended.returncode, ended.stdout) == (-signal.SIGKILL, "2\n")
    assert (count(cache), count(cache, "waiting")) == (1, 2)
    assert index.make_vectors() == 0
    assert [found(index, word) for word in ("puppy", "vehicle", "sick")] == [["a"], ["b"], ["c"]]


def test_two_that_are_the_first_to_want_vectors_make_them_once(
    index: Index, root: Path, cache: Path, model: Concepts, monkeypatch: pytest.MonkeyPatch
) -> None:
    index.search("anything")
    other = Index(str(root), cache=str(cache), embedder=lambda: model)
    begin = tables.begin

    def begin_later(connection: sqlite3.Connection) -> None:
        monkeypatch.setattr(tables, "begin", begin)
        other.make_vectors()
        begin(connection)

    monkeypatch.setattr(tables, "begin", begin_later)
    assert index.make_vectors() == 0
    other.close()
    assert tallies(cache) == (3, 0)
    assert len(model.read) == 3


def test_an_archived_session_keeps_its_vectors(index: Index, sessions: Sessions, model: Concepts) -> None:
    index.make_vectors()
    sessions.archive("a")
    assert found(index, "puppy") == ["a"]
    assert index.make_vectors() == 0
    assert model.read.count("my dog is old") == 1


def test_without_the_model_it_says_what_to_do(root: Path, cache: Path, sessions: Sessions) -> None:
    def missing() -> Concepts:
        raise ConfigError("run `nacre setup embeddings`")

    index = Index(str(root), cache=str(cache), embedder=missing)
    for call in (lambda: index.search("x", meaning=True), index.make_vectors):
        with pytest.raises(ConfigError, match="nacre setup embeddings"):
            call()
    index.close()


@pytest.mark.skipif(not is_installed(), reason="the extra [embeddings] is not installed")
def test_the_model_that_is_installed_finds_other_words(sessions: Sessions, index: Index, root: Path) -> None:
    usual = Index(str(root), cache=str(root.parent / "other"))
    usual.make_vectors()
    assert [hit.key for hit in usual.search("where did I leave my vehicle", limit=1, meaning=True)] == ["b"]
    usual.close()
