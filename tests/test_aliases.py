"""Other names of sessions: read and written under, in every process, and erased with the session."""

from __future__ import annotations

from pathlib import Path

import pytest

import nacre
from nacre import Conflict, InvalidKey, SessionBusy, SessionNotFound, Sessions, StoreError
from nacre.history import other_names
from nacre.history.live import RULES
from nacre.store.files import Files
from tests.paths import log_of


@pytest.fixture(params=["files", "memory"])
def sessions(request: pytest.FixtureRequest, tmp_path: Path) -> Sessions:
    opened = nacre.open(":memory:" if request.param == "memory" else tmp_path / "store")
    opened.add_message("one", "user", "hello")
    return opened


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
    assert sessions.records("uno") == sessions.records("one")
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
        sessions.with_internal_keys().append(other_names.KEY, "x.other", number)
    assert list(sessions.aliases("one")) == ["uno-0", "uno-1", "uno-2"]


def test_names_that_were_moved_out_of_the_log_are_read(tmp_path: Path) -> None:
    store = Files(str(tmp_path), rules=RULES, compact_at=1)
    with Sessions(store) as sessions, nacre.open(tmp_path) as other:
        sessions.add_message("one", "user", "hello")
        sessions.add_alias("one", "uno")
        assert other.exists("uno")
        for number in range(20):
            sessions.add_alias("one", f"uno-{number}")
        store.compact(other_names.KEY, lambda _: set())
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
    assert not sessions.exists(other_names.KEY)


@pytest.mark.parametrize("name", ["nacre:inbox", "nacre:memory", "nacre:new"])
def test_a_reserved_name_is_nobodys(sessions: Sessions, name: str) -> None:
    with pytest.raises(InvalidKey, match="reserved"):
        sessions.add_alias("one", name)
    assert not sessions.exists(other_names.KEY)


def test_a_reserved_name_in_the_table_leads_nowhere(sessions: Sessions) -> None:
    own = sessions.with_internal_keys()
    own.append(other_names.KEY, "x.alias", {"alias": "nacre:inbox", "key": "one"})
    assert (sessions.exists("nacre:inbox"), sessions.resolve("nacre:inbox")) == (False, "nacre:inbox")
    own.add_message("nacre:inbox", "user", "for nacre")
    assert said(sessions, "one") == ["hello"]


def test_a_turn_is_held_under_every_name(tmp_path: Path) -> None:
    with nacre.open(tmp_path) as here, nacre.open(tmp_path) as there:
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


def test_a_name_is_known_to_others_who_have_the_store_open(tmp_path: Path) -> None:
    with nacre.open(tmp_path) as here, nacre.open(tmp_path) as there:
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


@pytest.mark.parametrize(
    ("meta", "found"), [({}, []), ({"aliases": "x"}, []), ({"aliases": ["a", 1, "", "b"]}, ["a", "b"])]
)
def test_only_names_in_the_meta_are_names(meta: dict[str, object], found: list[str]) -> None:
    assert other_names.listed(meta) == found


def test_names_that_cannot_be_read_keep_nothing_from_being_stored(tmp_path: Path) -> None:
    with nacre.open(tmp_path) as sessions:
        sessions.add_message("one", "user", "hello")
        sessions.add_alias("one", "uno")
    log = log_of(tmp_path, other_names.KEY)
    log.unlink()
    log.mkdir()
    with nacre.open(tmp_path) as sessions:
        sessions.add_message("one", "user", "more")
        assert said(sessions, "one") == ["hello", "more"]
        with pytest.raises(StoreError):
            sessions.exists("uno")
        sessions.hold("uno").take()
