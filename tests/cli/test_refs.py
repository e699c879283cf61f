"""How a session may be named."""

from __future__ import annotations

import pytest

from nacre.cli.failures import Failure
from nacre.cli.refs import Target, find
from tests.cli.conftest import Nacre


@pytest.fixture
def store(nacre: Nacre) -> Nacre:
    nacre.fill("telegram:42", "telegram:77", "irc:general")
    nacre.fill("matrix:1", title="Tax return")
    return nacre


def found(store: Nacre, ref: str) -> Target:
    with store.sessions() as sessions:
        return find(sessions, ref)


def refused(store: Nacre, ref: str) -> Failure:
    with pytest.raises(Failure) as caught:
        found(store, ref)
    return caught.value


def test_a_key_names_its_session(store: Nacre) -> None:
    assert found(store, "telegram:42") == Target("telegram:42")


def test_a_unique_beginning_of_a_key_is_enough(store: Nacre) -> None:
    assert found(store, "irc:").key == "irc:general"


def test_a_beginning_of_three_characters_is_too_short(store: Nacre) -> None:
    assert refused(store, "irc").code == 3


def test_an_ambiguous_beginning_lists_the_candidates(store: Nacre) -> None:
    failure = refused(store, "telegram")
    assert failure.code == 4
    assert [key for key, _ in failure.candidates] == ["telegram:42", "telegram:77"]


def test_an_exact_key_wins_over_longer_ones(store: Nacre) -> None:
    store.fill("telegram")
    assert found(store, "telegram").key == "telegram"


def test_a_title_names_its_session(store: Nacre) -> None:
    assert found(store, "Tax return").key == "matrix:1"


def test_another_name_of_a_session_names_it(store: Nacre) -> None:
    with store.sessions() as sessions:
        for name in ("telegram", "tg", "Tax return"):
            sessions.add_alias("irc:general", name)
        sessions.archive("irc:general")
    assert [found(store, ref) for ref in ("telegram", "tg", "tg@2", "Tax return")] == [
        Target("irc:general"),
        Target("irc:general"),
        Target("irc:general", 2),
        Target("matrix:1"),
    ]
    assert store("sessions", "show", "tg").code == 0


def test_another_name_of_two_sessions_is_ambiguous_and_one_that_is_gone_is_none(store: Nacre) -> None:
    with store.sessions() as sessions:
        for key in ("telegram:42", "irc:general"):
            sessions.add_alias(key, "both")
        sessions.with_internal_keys().append("nacre:aliases", "x.alias", {"alias": "lost", "key": "nobody"})
        sessions.with_internal_keys().append("nacre:aliases", "x.alias", {"alias": "nacre:x", "key": "irc:general"})
    assert [key for key, _ in refused(store, "both").candidates] == ["irc:general", "telegram:42"]
    assert (refused(store, "lost").code, refused(store, "nacre:x").code) == (3, 3)


def test_two_sessions_of_one_title_are_ambiguous(store: Nacre) -> None:
    store.fill("matrix:2", title="Tax return")
    assert refused(store, "Tax return").code == 4


@pytest.mark.parametrize("part", [slice(0, 31), slice(-8, None)], ids=["beginning", "end"])
def test_a_uid_names_its_session_by_its_beginning_and_its_end(store: Nacre, part: slice) -> None:
    with store.sessions() as sessions:
        uid = sessions.transcript("irc:general")[0].generation
    assert found(store, uid[part]).key == "irc:general"


def test_the_uid_of_an_archived_session_names_it_too(store: Nacre) -> None:
    with store.sessions() as sessions:
        uid = sessions.transcript("irc:general")[0].generation
        sessions.archive("irc:general")
    assert found(store, uid[-8:]).key == "irc:general"


def test_last_is_the_newest_and_counts_back(store: Nacre) -> None:
    # In the order of their names, too: all of it may be written within a millisecond.
    store.fill("ab")
    store.fill("aa")
    assert [found(store, ref).key for ref in ("@last", "@last~0", "@last~1")] == ["aa", "aa", "ab"]


def test_last_of_too_few_is_not_found(store: Nacre) -> None:
    assert refused(store, "@last~9").code == 3


def test_a_row_of_the_last_list_names_its_session(store: Nacre) -> None:
    assert store("sessions", "list", "--sort", "key").code == 0
    assert [found(store, ref).key for ref in ("@1", "@4")] == ["irc:general", "telegram:77"]


@pytest.mark.parametrize("ref", ["@0", "@5", "@999999999"])
def test_a_row_that_was_not_listed_is_not_found(store: Nacre, ref: str) -> None:
    store("sessions", "list")
    assert refused(store, ref).code == 3


def test_rows_of_another_store_are_not_taken(store: Nacre, tmp_path_factory: pytest.TempPathFactory) -> None:
    other = tmp_path_factory.mktemp("other")
    store("sessions", "list", "--store", str(other))
    assert refused(store, "@1").code == 3


def test_a_list_of_another_store_leaves_the_rows_as_they_were(
    store: Nacre, tmp_path_factory: pytest.TempPathFactory
) -> None:
    store("sessions", "list", "--sort", "key")
    store("sessions", "list", "--store", str(tmp_path_factory.mktemp("other")))
    assert found(store, "@1").key == "irc:general"


def test_a_path_names_the_session_in_it(store: Nacre) -> None:
    log = next(path for path in (store.root / "sessions").iterdir() if path.name.startswith("irc"))
    assert found(store, str(log)).key == "irc:general"


def test_a_path_in_another_store_says_which(store: Nacre, tmp_path_factory: pytest.TempPathFactory) -> None:
    log = tmp_path_factory.mktemp("other") / "x.jsonl"
    log.write_bytes(b"")
    failure = refused(store, str(log))
    assert failure.code == 3
    assert "--store" in failure.hint


def test_a_number_behind_it_names_a_record(store: Nacre) -> None:
    assert found(store, "telegram:42@3") == Target("telegram:42", 3)
    assert found(store, "@last@2").n == 2
    assert found(store, "Tax return@2") == Target("matrix:1", 2)


def test_a_key_with_an_at_is_still_a_key(store: Nacre) -> None:
    store.fill("someone@example.org", "room@7")
    assert found(store, "room@7") == Target("room@7")
    assert found(store, "someone@example.org@4") == Target("someone@example.org", 4)
    assert found(store, "someone@exam") == Target("someone@example.org")


@pytest.mark.parametrize("ref", ["nothing-here", "@last~x", "\x00", "x" * 2000, "@", "nothing@3"])
def test_what_names_nothing_is_not_found(store: Nacre, ref: str) -> None:
    assert refused(store, ref).code == 3


def test_nothing_is_no_reference(store: Nacre) -> None:
    assert refused(store, "").code == 2


def test_a_title_is_found_in_any_case(store: Nacre) -> None:
    assert found(store, "TAX return").key == "matrix:1"


def test_internal_sessions_are_named_by_their_key_alone(store: Nacre) -> None:
    with store.sessions() as sessions:
        sessions.with_internal_keys().set_meta("nacre:memory", title="what nacre remembers")
        path = next((store.root / "sessions").glob("nacre-memory*"))
    assert found(store, "nacre:memory").key == "nacre:memory"
    assert found(store, str(path)).key == "nacre:memory"
    for ref in ("nacre:mem", "what nacre remembers"):
        assert refused(store, ref).code == 3
    assert found(store, "@last").key == "matrix:1"


def test_last_is_no_delegated_task_and_no_schedule(store: Nacre) -> None:
    with store.sessions() as sessions:
        sessions.set_meta("matrix:1/call_1", parent="matrix:1")
        sessions.add_message("schedule::morning::", "user", "hello")
    assert found(store, "@last").key == "matrix:1"
    store.fill("a/b")
    assert found(store, "@last").key == "a/b"
