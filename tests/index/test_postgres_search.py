"""A search of sessions in PostgreSQL finds what a search of files does: the same tests, and a scan of every message."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import nacre
from nacre import Message, Sessions
from nacre.errors import ConfigError
from nacre.history.session_state import RULES
from nacre.index.postgres_index import PostgresIndex, labels
from nacre.storage.postgres.address import parse
from nacre.storage.postgres.schema import init
from nacre.storage.postgres.store import PostgresStore
from tests.index.test_differential import ROLES, WORDS, scanned, text
from tests.index.test_index import (  # noqa: F401 - collected here, too
    test_a_deleted_session_is_gone,
    test_a_fork_is_found_with_the_past_it_shares,
    test_a_fork_that_is_searched_alone_is_searched_with_its_past,
    test_a_group_is_found_whole,
    test_a_message_is_found_with_its_place,
    test_a_past_whose_writer_is_gone_is_found_in_one_of_its_forks,
    test_a_payload_that_is_kept_apart_is_searched_too,
    test_a_question_finds_what_has_its_rarest_words,
    test_an_empty_store_has_nothing,
    test_an_unarchived_session_is_found_once,
    test_archived_sessions_are_found_and_listed_apart,
    test_calls_and_results_are_found_by_their_tool,
    test_chinese_and_signs_of_any_length_are_found,
    test_excluded_words_exclude,
    test_filters_narrow_what_is_found,
    test_inside_words_is_searched_when_no_word_matches,
    test_internal_sessions_are_searched_only_if_asked_for,
    test_messages_that_are_stored_again_are_found_once_where_they_are_now,
    test_rewound_truncated_and_replaced_messages_are_found,
    test_signs_and_parts_of_words_are_found_over_any_white_space,
    test_the_better_match_comes_first,
    test_the_limit_keeps_the_newest,
    test_the_text_of_a_large_payload_is_found,
    test_three_words_must_all_match,
    test_what_a_fork_has_of_an_internal_session_is_found_in_the_fork,
    test_what_a_fork_shares_is_found_once_where_it_was_written,
    test_what_is_appended_after_a_search_is_found,
    test_what_was_said_alike_in_two_sessions_is_found_twice,
    test_words_that_are_said_again_are_found_each_time,
)
from tests.index.test_prefix import CONFINED, GUEST, OTHERS, QUERIES
from tests.index.test_typed import MESSAGES, TYPED
from tests.postgres.servers import PostgresServer


def found(searched: Sessions | PostgresIndex, query: str) -> set[tuple[str, int]]:
    return {(hit.key, hit.n) for hit in searched.search(query, limit=1_000_000)}


@pytest.fixture
def url(database: str) -> str:
    init(parse(database))
    return database


@pytest.fixture
def sessions(url: str) -> Iterator[Sessions]:
    with nacre.open(url) as opened:
        yield opened


@pytest.fixture
def index(url: str, sessions: Sessions) -> Iterator[PostgresIndex]:
    with opened_store(url) as store:
        yield PostgresIndex(store)


@contextmanager
def opened_store(url: str) -> Iterator[PostgresStore]:
    store = PostgresStore(parse(url), rules=RULES, labels=labels)
    try:
        yield store
    finally:
        store.close()


@pytest.fixture(scope="module")
def corpus(postgres: PostgresServer) -> Iterator[Sessions]:
    """Sessions of words that are hard to find, appended to, truncated and archived, as for files."""
    with in_schema(postgres, "corpus") as url, nacre.open(url) as sessions:
        chance = random.Random(7)
        for number in range(12):
            key = f"talk:{number}"
            for _ in range(4):
                sessions.add_messages(key, [{"role": chance.choice(ROLES), "content": text(chance)} for _ in range(8)])
                sessions.search("anything")
                sessions.truncate_history(key, chance.randint(1, 20))
            if number % 4 == 0:
                sessions.archive(key)
        yield sessions


@pytest.fixture(scope="module")
def messages(postgres: PostgresServer) -> Iterator[Sessions]:
    with in_schema(postgres, "messages") as url, nacre.open(url) as sessions:
        for key, said in MESSAGES.items():
            sessions.add_message(key, "user", said)
        yield sessions


@contextmanager
def in_schema(postgres: PostgresServer, schema: str) -> Iterator[str]:
    """A store for all tests of this file."""
    url = f"{postgres.url()}?schema={schema}"
    init(parse(url))
    yield url
    postgres.query(f"DROP SCHEMA {schema} CASCADE")


# ---- as files are searched


@pytest.mark.parametrize("word", WORDS)
def test_every_word_by_itself(corpus: Sessions, word: str) -> None:
    assert found(corpus, word) == scanned(corpus, word)
    assert found(corpus, f'"{word}"') == scanned(corpus, f'"{word}"')


def test_every_part_of_every_word(corpus: Sessions) -> None:
    parts = {word[at : at + size] for word in WORDS for size in (1, 2, 3, 4) for at in range(len(word) - size + 1)}
    chosen = random.Random(3).sample(sorted(parts), 60)
    assert {part: found(corpus, part) for part in chosen} == {part: scanned(corpus, part) for part in chosen}


@pytest.mark.parametrize("seed", range(60))
def test_random_queries(corpus: Sessions, seed: int) -> None:
    chance = random.Random(seed)
    words = [chance.choice(("", "", "-")) + chance.choice(WORDS) for _ in range(chance.randint(1, 3))]
    filters = [chance.choice(("", "role:user", "session:talk:1", "role:tool session:talk:11"))]
    query = " ".join(words + filters)
    assert found(corpus, query) == scanned(corpus, query)


@settings(max_examples=150)
@given(query=st.text(st.characters(codec=None)) | st.text("\"-:*()^~{}+ \0\\%_'|&!< aANDORTNE数🎉é\ud800", max_size=40))
def test_no_query_raises(corpus: Sessions, query: str) -> None:
    assert all(hit.snippet is not None for hit in corpus.search(query, limit=3))


@pytest.mark.parametrize(
    "query",
    ["a " * 5_000, "x" * 200_000, "数" * 50_000, "-a " * 3_000, "数据 " * 3_000, '"' * 999, "a & b | !c", "a:*", "'"],
    ids=lambda query: query[:9],
)
def test_no_length_and_no_syntax_raises(corpus: Sessions, query: str) -> None:
    assert isinstance(corpus.search(query), list)


@pytest.mark.parametrize(("typed", "meant"), TYPED, ids=[typed for typed, _ in TYPED])
def test_what_is_typed_finds_what_is_meant(messages: Sessions, typed: str, meant: str) -> None:
    assert [hit.key for hit in messages.search(typed, limit=1)] == [meant]


@pytest.mark.parametrize("typed", ["plotter", "poet", '"locker codes"', "disc", "mies", "cat*", "accommodation Madrid"])
def test_what_is_not_meant_is_not_found(messages: Sessions, typed: str) -> None:
    assert messages.search(typed) == []


@pytest.mark.parametrize(("own", "foreign", "confine"), CONFINED, ids=["prefix", "only"])
def test_what_others_said_changes_nothing(
    postgres: PostgresServer, own: str, foreign: str, confine: dict[str, Any]
) -> None:
    def ask(others: tuple[str, ...]) -> list[list[tuple[str, int, str]]]:
        """What each query finds in the guest's sessions, in a store where others said something."""
        with in_schema(postgres, "confined") as url, nacre.open(url) as sessions:
            for at, said in enumerate(GUEST):
                sessions.add_message(own.format(at), "user", said)
            for at, said in enumerate(others):
                sessions.add_message(foreign.format(at), "user", said)
            with opened_store(url) as store:
                hits = [PostgresIndex(store).search(query, fill=True, **confine) for query in QUERIES]
        return [[(hit.key, hit.n, hit.snippet) for hit in many] for many in hits]

    alone = ask(())
    assert all(alone[:7])
    for others in OTHERS.values():
        assert ask(others) == alone


def test_typos_and_questions_work_within_a_prefix_too(sessions: Sessions, index: PostgresIndex) -> None:
    for at, said in enumerate(GUEST):
        sessions.add_message(f"guest:{at}", "user", said)
    sessions.add_message("other", "user", "where does the dog of the saxophane player get a biscuit")
    assert [hit.key for hit in index.search("saxophane", prefix="guest:")] == ["guest:2"]
    assert [hit.key for hit in index.search("where does my dog get a biscuit", prefix="guest:")] == ["guest:4"]
    assert next(hit.key for hit in index.search("cherry bakery", prefix="guest:", fill=True)) == "guest:5"


# ---- what is special here


def test_a_search_by_meaning_is_refused_with_the_reason(index: PostgresIndex) -> None:
    with pytest.raises(ConfigError, match="search by meaning works for sessions in files only"):
        index.search("word", meaning=True)
    assert index.make_vectors(16) == 0


def test_a_session_that_can_be_none_is_not_found(sessions: Sessions, index: PostgresIndex) -> None:
    sessions.add_message("k", "user", "word")
    assert index.search(f'word session:"{"k" * 2000}"') == []
    assert [hit.key for hit in index.search("word", skip=("k" * 2000, 1))] == ["k"]
    assert index.search("word", skip=("k", 1)) == []


def test_a_letter_that_is_no_word_finds_nothing(sessions: Sessions, index: PostgresIndex) -> None:
    sessions.add_message("k", "user", "word")
    assert index.search("\u037a") == index.search("word \u037a") == []
    assert [hit.key for hit in index.search("word \u037a", fill=True)] == ["k"]


def test_words_of_a_text_with_more_than_postgresql_can_number_are_found(
    sessions: Sessions, index: PostgresIndex
) -> None:
    many = " ".join(f"word{number}" for number in range(20_000))
    sessions.add_message("many", "user", f"red fox {many} green owl foo.bar")
    sessions.add_message("often", "user", "the " * 300 + "the blue whale")
    sessions.add_message("short", "user", "green fox, red owl, bar foo")
    assert found(index, '"green owl"') == {("many", 2)}
    assert found(index, '"green fox"') == {("short", 2)}
    assert found(index, '"the blue whale"') == {("often", 2)}
    assert found(index, "foo.bar") == {("many", 2)}
    assert found(index, "word19999") == {("many", 2)}


def test_of_a_text_with_more_words_than_postgresql_can_keep_the_first_are_found(
    sessions: Sessions, index: PostgresIndex
) -> None:
    sessions.add_message("k", "user", "first " + " ".join(f"{number:x}padding" for number in range(100_000)))
    sessions.add_message("k", "user", f"one {'z' * 5000} word")
    assert found(index, "first") == {("k", 2)}
    assert found(index, "z" * 5000) == {("k", 3)}


def test_any_text_can_be_searched(sessions: Sessions, index: PostgresIndex) -> None:
    sessions.add_full_message("k", Message(role="ro\0le", content="a\0needle 'quoted' \\back\\ {brace} \ufffe"))
    sessions.add_full_message("k", Message(role="tool", name="na\0me", content="needle", tool_call_id="unknown"))
    assert found(index, "needle") == {("k", 2), ("k", 3)}
    assert found(index, "{brace}") == found(index, "\\back\\") == found(index, "'quoted'") == {("k", 2)}


def test_of_more_than_can_be_ranked_the_newest_come_first(sessions: Sessions, index: PostgresIndex) -> None:
    for _ in range(9):
        sessions.add_messages("k", [Message(role="user", content="needle " + "hay " * 20)] * 500)
    sessions.add_message("k", "user", "needle")
    for _ in range(2):
        sessions.add_message("k", "user", "needle " + "hay " * 200)
    assert [hit.n for hit in index.search("needle", limit=3)] == [4504, 4503, 4502]


def test_a_question_of_words_that_are_everywhere_finds_what_has_all(sessions: Sessions, index: PostgresIndex) -> None:
    for _ in range(9):
        sessions.add_messages("k", [Message(role="user", content="garden sister moved house")] * 500)
    assert len(index.search("garden sister moved house", limit=3)) == 3
