"""The sessions within a prefix, as a guest has them: their own keys, and nothing behind any other."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import nacre
from nacre.errors import InvalidArgument, InvalidKey, NacreError
from nacre.records import Transaction
from nacre.storage.protocol import Backend, Prefixed

OWN, OTHER = "api:bob:x::", "cli:1"


@pytest.fixture
def whole(root: Path) -> Iterator[nacre.Sessions]:
    with nacre.open(root) as sessions:
        for key in (OWN, OTHER, "api:bobby:x::"):
            sessions.add_message(key, "user", f"a pearl of {key}")
        yield sessions


@pytest.fixture
def guests(whole: nacre.Sessions) -> nacre.Sessions:
    return whole.within("api:bob:")


def test_a_guest_uses_a_session_of_their_own_by_its_key(whole: nacre.Sessions, guests: nacre.Sessions) -> None:
    assert guests[OWN].append("user", "b") == 3
    assert (len(guests[OWN]), len(whole[OWN])) == (2, 2)
    assert (len(guests[OTHER]), OTHER in guests) == (0, False)
    with pytest.raises(InvalidKey):
        guests[OTHER].append("user", "b")


def test_a_guest_is_not_told_whether_others_have_changed(whole: nacre.Sessions, guests: nacre.Sessions) -> None:
    assert guests.is_at(OWN, whole.snapshot(OWN).version)
    assert not guests.is_at(OTHER, whole.snapshot(OTHER).version)


def test_a_guest_finds_and_lists_their_own(guests: nacre.Sessions) -> None:
    assert [hit.key for hit in guests.search("pearl")] == [OWN]
    for prefix in ("", "api:", "api:bob:", "api:bob:x"):
        assert [info.key for info in guests.list(prefix=prefix)] == [OWN]
        assert [hit.key for hit in guests.search("pearl", prefix=prefix)] == [OWN]
    for prefix in ("cli", "api:bobby", "api:bob:y"):
        assert list(guests.list(prefix=prefix)) == []
        assert guests.search("pearl", prefix=prefix) == []
    assert guests.page(limit=None).total == 1


@pytest.mark.parametrize(
    "query", ['pearl session:"cli:1"', "pearl session:cli", "session:api", 'session:"nacre:memory"']
)
def test_a_query_does_not_lead_outside(guests: nacre.Sessions, query: str) -> None:
    assert {hit.key for hit in guests.search(query, internal=True)} <= {OWN}


def test_which_words_others_use_is_not_told_by_an_easier_search(whole: nacre.Sessions, guests: nacre.Sessions) -> None:
    whole.add_message(OWN, "user", "which colour has the boat")
    whole.add_message(OWN, "user", "a harbour in the evening")
    question = "what is the colour of the boat that we saw yesterday in the harbour"
    before = guests.search(question)
    assert [hit.key for hit in before] == [OWN, OWN]
    for _ in range(20):
        whole.add_message("cli:owner", "user", "the colour of the boat")
    assert guests.search(question) == before
    assert guests.search(question, only="cli:owner") == []


def test_a_guest_makes_no_vectors_and_learns_not_how_many_are_to_be_made(guests: nacre.Sessions) -> None:
    assert guests.make_vectors() == 0


def test_whether_others_use_a_word_is_not_told_by_typos(whole: nacre.Sessions, guests: nacre.Sessions) -> None:
    whole.add_message(OWN, "user", "the harbour is full of kajaks")
    before = guests.search("harbout")
    whole.add_message(OTHER, "user", "a harbout")
    assert guests.search("harbout") == before


def test_which_words_are_rare_elsewhere_does_not_move_a_snippet(whole: nacre.Sessions, guests: nacre.Sessions) -> None:
    whole.add_message(OWN, "user", f"lantern {'and more ' * 100} anchor")
    before = guests.search("lantern anchor")
    for _ in range(3):
        whole.add_message(OTHER, "user", "lantern")
    assert [hit.snippet for hit in guests.search("lantern anchor")] == [hit.snippet for hit in before]


def test_a_guest_writes_reads_forks_and_erases_their_own(whole: nacre.Sessions, guests: nacre.Sessions) -> None:
    guests.add_message(OWN, "user", "more")
    guests.fork(OWN, "api:bob:y::")
    assert [len(guests.get_history(key)) for key in (OWN, "api:bob:y::")] == [2, 2]
    assert len(guests.transcript(OWN)) == 2
    assert guests.verify(OWN).ok
    guests.save(OWN)
    guests.archive(OWN)
    guests.unarchive(OWN)
    hold = guests.hold(OWN)
    hold.take()
    hold.close()
    assert next(guests.follow(OWN)).kind == "open"
    guests.repair(OWN)
    assert guests.quarantine() == []
    with pytest.raises(nacre.Conflict):
        guests.delete(OWN, expect=2)
    guests.delete(OWN)
    with pytest.raises(nacre.Conflict):
        guests.delete(OWN, expect=2)
    guests.close()
    assert [whole.exists(key) for key in (OWN, "api:bob:y::", OTHER)] == [False, True, True]


def arguments(name: str) -> list[Any]:
    """Something for each argument of a store's method, with another's key for the session."""
    given = {
        "key": OTHER,
        "new_key": OTHER,
        "transaction": Transaction(()),
        "after": 0,
        "n": None,
    }
    parameters = list(inspect.signature(getattr(Prefixed, name)).parameters.values())[1:]
    return [given.get(one.name, lambda *_: set()) for one in parameters if one.kind is not one.KEYWORD_ONLY]


METHODS = [name for name, _ in inspect.getmembers(Backend, inspect.isfunction) if not name.startswith("_")]


@pytest.mark.parametrize("name", [name for name in METHODS if name not in {"close", "each", "end_redaction", "watch"}])
def test_no_method_of_a_store_reaches_another_key(whole: nacre.Sessions, guests: nacre.Sessions, name: str) -> None:
    method: Callable[..., Any] = getattr(Prefixed(whole._store, "api:bob:"), name)
    before = list(whole.records(OTHER))
    keyword: dict[str, Any] = {"archive": True} if name == "move" else {}
    given = arguments(name)
    if name == "redact":
        given, keyword = [OTHER, 2], {"uid": "", "find_copies": lambda *_: [], "has_copies": False}
    try:
        found = method(*given, **keyword)
    except InvalidKey as error:
        assert "these begin with 'api:bob:'" in str(error)  # noqa: PT017 - most refuse, some find nothing
    else:
        assert found in (None, [], "", False)
    assert list(whole.records(OTHER)) == before


@pytest.mark.parametrize("kind", ["memory", "disk"])
def test_another_name_of_anothers_session_leads_nowhere(tmp_path: Path, kind: str) -> None:
    with nacre.open(":memory:" if kind == "memory" else tmp_path / "s") as sessions:
        sessions.add_message(OTHER, "user", "a pearl")
        sessions.add_alias(OTHER, "api:bob:alias::")
        guests = sessions.within("api:bob:")
        assert guests.get_history("api:bob:alias::") == []
        assert not guests.exists("api:bob:alias::")
        assert list(guests.list()) == []
        guests.delete("api:bob:alias::")
        assert sessions.exists(OTHER)


def test_only_one_session_is_verified(guests: nacre.Sessions) -> None:
    with pytest.raises(InvalidArgument, match="name one of your sessions"):
        guests.verify()
    with pytest.raises(NacreError):
        guests.verify(OTHER)


def test_they_are_where_all_are(whole: nacre.Sessions, guests: nacre.Sessions) -> None:
    assert guests.location == whole.location


def test_a_free_key_has_the_next_number(whole: nacre.Sessions) -> None:
    assert whole.free_key(OTHER) == "cli:1-2"
    whole.add_message("cli:1-2", "user", "x")
    assert whole.free_key(OTHER) == "cli:1-3"


@pytest.mark.parametrize("prefix", [None, 5, b"guest:"])
def test_a_prefix_that_is_no_text_is_refused(prefix: Any) -> None:
    with nacre.open(":memory:") as sessions, pytest.raises(nacre.InvalidArgument):
        sessions.within(prefix)
