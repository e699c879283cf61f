"""Other names of sessions: read and written under, in every process, and erased with the session."""

from __future__ import annotations

import errno
import os
import random
from collections.abc import Iterator
from contextlib import suppress
from itertools import count
from pathlib import Path

import pytest

import nacre
from nacre import Conflict, InvalidKey, SessionBusy, SessionNotFound, Sessions, StoreError
from nacre.history import alias_table
from nacre.history.session_state import RULES
from nacre.messages import Hit, Page
from nacre.storage.file_store import Durability, FileStore
from nacre.testing import Disk, Fault, Killed, images
from nacre.testing.disk import Mode
from tests.paths import log_of
from tests.simulated import ROOT, opened


@pytest.fixture
def sessions(place: str) -> Iterator[Sessions]:
    with nacre.open(place) as opened:
        opened.add_message("one", "user", "hello")
        yield opened


def said(sessions: Sessions, key: str) -> list[object]:
    return [message.content for message in sessions.get_history(key)]


def test_every_read_finds_a_session_by_its_other_name(sessions: Sessions) -> None:
    sessions.set_summary("one", "S")
    sessions.add_alias("one", "uno")
    assert sessions.exists("uno")
    assert (sessions.resolve("uno"), sessions.resolve("one"), sessions.resolve("two")) == ("one", "one", "two")
    assert (said(sessions, "uno"), sessions.get_summary("uno")) == (["hello"], "S")
    assert sessions.snapshot("uno") == sessions.snapshot("one")
    assert sessions.transcript("uno") == sessions.transcript("one")
    assert list(sessions.records("uno")) == list(sessions.records("one"))
    assert sessions.get_meta("uno") == {"aliases": ["uno"]}
    assert [info.key for info in sessions.list()] == ["one"]


def test_what_is_written_under_another_name_is_in_the_session(sessions: Sessions) -> None:
    sessions.add_alias("one", "uno")
    sessions.add_message("uno", "user", "a")
    assert sessions.submit("uno", [{"role": "user", "content": "b"}]).result()
    sessions.truncate_history("uno", 2)
    assert said(sessions, "one") == ["a", "b"]
    popped = sessions.pop("uno")
    assert popped is not None
    assert (popped.content, said(sessions, "one")) == ("b", ["a"])


def test_names_are_read_on_from_where_they_were_read(sessions: Sessions) -> None:
    for number in range(3):
        sessions.add_alias("one", f"uno-{number}")
        sessions.with_internal_keys().append(alias_table.KEY, "x.other", number)
    assert list(sessions.aliases("one")) == ["uno-0", "uno-1", "uno-2"]


def test_names_that_were_moved_out_of_the_log_are_read(tmp_path: Path) -> None:
    store = FileStore(str(tmp_path), rules=RULES, compact_at=1)
    with Sessions(store) as sessions, nacre.open(tmp_path) as other:
        sessions.add_message("one", "user", "hello")
        sessions.add_alias("one", "uno")
        assert other.exists("uno")
        for number in range(20):
            sessions.add_alias("one", f"uno-{number}")
        store.compact(alias_table.KEY, lambda _: set())
        assert other.exists("uno-0")
        assert len(other.aliases("one")) == 21


def test_a_key_is_nobodys_other_name(sessions: Sessions) -> None:
    sessions.add_message("two", "user", "x")
    with pytest.raises(Conflict):
        sessions.add_alias("one", "two")
    with pytest.raises(SessionNotFound):
        sessions.add_alias("three", "uno")
    with pytest.raises(InvalidKey):
        sessions.add_alias("one", "")
    assert not sessions.exists(alias_table.KEY)


@pytest.mark.parametrize("name", ["nacre:inbox", "nacre:memory", "nacre:new"])
def test_a_reserved_name_is_nobodys(sessions: Sessions, name: str) -> None:
    with pytest.raises(InvalidKey, match="reserved"):
        sessions.add_alias("one", name)
    assert not sessions.exists(alias_table.KEY)


def test_a_reserved_name_in_the_table_leads_nowhere(sessions: Sessions) -> None:
    own = sessions.with_internal_keys()
    own.append(alias_table.KEY, "x.alias", {"alias": "nacre:inbox", "key": "one"})
    assert (sessions.exists("nacre:inbox"), sessions.resolve("nacre:inbox")) == (False, "nacre:inbox")
    own.add_message("nacre:inbox", "user", "for nacre")
    assert said(sessions, "one") == ["hello"]


def test_a_turn_is_held_under_every_name(lasting_place: str) -> None:
    with nacre.open(lasting_place) as here, nacre.open(lasting_place) as there:
        here.add_message("one", "user", "hello")
        assert not there.exists("uno")
        here.add_alias("one", "uno")
        hold = here.hold("one")
        hold.take()
        with pytest.raises(SessionBusy, match="'one'"):
            there.hold("uno").take()
        hold.close()
        there.hold("uno").take()


def test_a_session_is_followed_under_its_other_name(sessions: Sessions) -> None:
    sessions.add_alias("one", "uno")
    followed = sessions.follow("uno")
    assert [next(followed).kind for _ in range(3)] == ["open", "msg", "meta"]
    sessions.add_message("uno", "user", "more")
    assert next(followed).data["content"] == "more"
    followed.close()


def test_a_session_that_has_the_name_as_its_key_comes_first(sessions: Sessions) -> None:
    sessions.add_alias("one", "uno")
    sessions.archive("one")
    sessions.delete("one")
    sessions.add_message("uno", "user", "new")
    sessions.add_message("one", "user", "again")
    assert (said(sessions, "uno"), sessions.aliases("one")) == (["new"], ())


def test_a_session_that_has_the_name_as_its_key_hides_the_other_even_if_empty(lasting_place: str) -> None:
    with nacre.open(lasting_place) as here, nacre.open(lasting_place) as there:
        there.add_message("uno", "user", "own")
        there.delete("uno")
        here.add_message("one", "user", "hello")
        here.add_alias("one", "uno")
        there.add_message("uno", "user", "own again")
        there.clear("uno")
        generation = there.transcript("one")[0].generation
        assert there.read("uno", lambda view: view.state.live or None) is None
        assert there.read("uno", lambda view: view.n, generation=generation) is None
        assert there.pop("uno") is None


def test_a_name_that_two_have_stands_for_neither(sessions: Sessions) -> None:
    sessions.add_message("two", "user", "x")
    for key in ("one", "two", "two"):
        sessions.add_alias(key, "both")
    assert not sessions.exists("both")
    assert (sessions.aliases("one"), sessions.aliases("two")) == (("both",), ("both",))
    sessions.delete("one")
    assert said(sessions, "both") == ["x"]


def test_a_session_keeps_its_names_when_it_is_begun_anew(sessions: Sessions) -> None:
    sessions.add_alias("one", "uno")
    sessions.archive("one")
    sessions.add_alias("one", "eins")
    assert said(sessions, "uno") == ["hello"]
    sessions.add_message("uno", "user", "anew")
    assert (said(sessions, "one"), sessions.aliases("one")) == (["anew"], ("uno", "eins"))


def test_a_name_is_known_to_others_who_have_the_store_open(lasting_place: str) -> None:
    with nacre.open(lasting_place) as here, nacre.open(lasting_place) as there:
        here.add_message("one", "user", "hello")
        assert not there.exists("uno")
        here.add_alias("one", "uno")
        assert there.exists("uno")
        there.delete("one")
        assert not here.exists("uno")


def test_deleting_a_session_erases_its_names_and_no_others(tmp_path: Path) -> None:
    with nacre.open(tmp_path) as sessions:
        for key, name in (("one", "uno-secret"), ("two", "due")):
            sessions.add_message(key, "user", "x")
            sessions.add_alias(key, name)
        sessions.delete("one")
        assert (sessions.exists("uno-secret"), sessions.exists("due")) == (False, True)
    left = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    assert b"uno-secret" not in left


def filled(disk: Disk, *, durability: Durability) -> Sessions:
    """A store in which three sessions have names, and the second table was in use before."""
    sessions = opened(disk, durability=durability)
    for key in ("zero", "one", "two", "three"):
        sessions.add_message(key, "user", key)
        sessions.add_alias(key, f"name-of-{key}")
    sessions.delete("zero")
    sessions.add_alias("two", "also-two")
    return sessions


NAMES = {"name-of-two": "two", "also-two": "two", "name-of-three": "three"}
ERASED = (b"name-of-one", b"name-of-zero")


@pytest.mark.parametrize("durability", ["commit", "relaxed"])
@pytest.mark.parametrize("mode", ["kill", "error"])
def test_who_fails_to_delete_a_session_loses_no_other_name(mode: Mode, durability: Durability) -> None:
    """Whatever call fails, or is the last one; then a power cut; then the session is deleted once more."""
    for nth in count(1):
        disk = Disk(nth)
        sessions = filled(disk, durability=durability)
        sessions.close()
        sessions = opened(disk, durability=durability)
        disk.fail(Fault(call="*", nth=nth, errno=errno.ENOSPC, mode=mode, count=None if mode == "error" else 1))
        try:
            sessions.delete("one")
            is_done = True
        except (StoreError, Killed):
            is_done = False
        disk.heal()
        for image in (disk, *images(disk.snapshot(), random.Random(nth), 3)):
            again = opened(image)
            assert {name: again.resolve(name) for name in NAMES} == NAMES
            again.delete("one")
            assert {name: again.resolve(name) for name in NAMES} == NAMES
            assert not again.exists("name-of-one")
            again.close()
            assert not any(text in data for text in ERASED for data in contents(image))
        if is_done:
            break
    assert nth > 10


def contents(disk: Disk) -> Iterator[bytes]:
    """What is in every file of the store."""
    calls = disk.process()
    for folder in ("sessions", "archive"):
        with suppress(FileNotFoundError):
            for name in calls.listdir(f"{ROOT}/{folder}"):
                fd = calls.open(f"{ROOT}/{folder}/{name}", os.O_RDONLY, 0)
                yield calls.pread(fd, 1 << 20, 0)
                calls.close(fd)


def test_names_in_both_tables_are_erased(sessions: Sessions) -> None:
    own = sessions.with_internal_keys()
    sessions.add_message("two", "user", "x")
    for table in alias_table.TABLES:
        for key in ("one", "two"):
            own.append(table, "x.alias", {"alias": f"n-{key}", "key": key})
    sessions.delete("one")
    assert (sessions.resolve("n-two"), sessions.aliases("two")) == ("two", ("n-two",))
    assert not any("n-one" in str(entry.data) for table in alias_table.TABLES for entry in sessions.records(table))


class NoIndex:
    """An index that notes what it is told to let go of."""

    def __init__(self) -> None:
        self.gone: list[str] = []

    def make_vectors(self, most: int) -> int:
        return 0

    def search(self, query: str, *, limit: int, internal: bool, **_: object) -> list[Hit]:
        return []

    def page(self, wanted: object) -> Page:
        return Page(items=[], total=0)

    def forget(self, key: str) -> None:
        self.gone.append(key)

    def erase(self, key: str) -> None:
        self.gone.append(key)

    def close(self) -> None:
        pass


def test_a_deleted_session_is_not_found_though_its_names_cannot_be_erased(tmp_path: Path) -> None:
    with nacre.open(tmp_path) as sessions:
        sessions.add_message("one", "user", "hello")
        sessions.add_alias("one", "uno")
    log = log_of(tmp_path, alias_table.KEY)
    log.unlink()
    log.mkdir()
    index = NoIndex()
    with Sessions(FileStore(str(tmp_path), rules=RULES), index=lambda: index) as sessions:
        with pytest.raises(StoreError):
            sessions.delete("one")
        assert index.gone == ["one"]


@pytest.mark.parametrize(
    ("meta", "found"), [({}, []), ({"aliases": "x"}, []), ({"aliases": ["a", 1, "", "b"]}, ["a", "b"])]
)
def test_only_names_in_the_meta_are_names(meta: dict[str, object], found: list[str]) -> None:
    assert alias_table.aliases_in(meta) == found


def test_names_that_cannot_be_read_keep_nothing_from_being_stored(tmp_path: Path) -> None:
    with nacre.open(tmp_path) as sessions:
        sessions.add_message("one", "user", "hello")
        sessions.add_alias("one", "uno")
    log = log_of(tmp_path, alias_table.KEY)
    log.unlink()
    log.mkdir()
    with nacre.open(tmp_path) as sessions:
        sessions.add_message("one", "user", "more")
        assert said(sessions, "one") == ["hello", "more"]
        with pytest.raises(StoreError):
            sessions.exists("uno")
        sessions.hold("uno").take()


def test_a_process_that_has_written_before_learns_names_that_another_gives(lasting_place: str) -> None:
    with nacre.open(lasting_place) as one, nacre.open(lasting_place) as other:
        one.add_message("k", "user", "a")
        other.add_alias("k", "name")
        one.add_message("name", "user", "b")
        assert [message.content for message in one.get_history("k")] == ["a", "b"]


@pytest.mark.parametrize("data", [None, 3, [], {"alias": 1, "key": "k"}, {"alias": "x"}])
def test_a_record_among_the_names_that_is_none_is_passed_over(lasting_place: str, data: object) -> None:
    with nacre.open(lasting_place) as sessions:
        sessions.add_message("k", "user", "a")
        sessions.add_alias("k", "name")
        sessions.append("nacre:aliases", "x.alias", data)
    with nacre.open(lasting_place) as sessions:
        assert sessions.resolve("name") == "k"
        sessions.add_message("new", "user", "b")
        sessions.delete("k")
        assert sessions.resolve("name") == "name"
