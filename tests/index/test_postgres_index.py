"""Lists of sessions in PostgreSQL are what the records say, cost what is shown, and make no append cost more.

What is searched follows the records, whoever takes it in.
"""

# ruff: noqa: S608 - the tests' own names

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
import pytest

import nacre
from nacre import Message, Sessions
from nacre.errors import InvalidArgument
from nacre.history.list_page import Wanted, parse_cursor
from nacre.history.session_state import RULES
from nacre.index.postgres_index import PostgresIndex, labels
from nacre.storage.postgres.address import parse
from nacre.storage.postgres.schema import init, upgrade
from nacre.storage.postgres.store import PostgresStore
from tests.index.test_catalog import KEYS, do_something, queries
from tests.postgres.programs import wait_until
from tests.postgres.servers import PostgresServer


@pytest.fixture
def url(database: str) -> str:
    init(parse(database))
    return database


@pytest.fixture
def schema(url: str) -> str:
    return url.partition("schema=")[2]


@contextmanager
def opened(url: str) -> Iterator[PostgresStore]:
    store = PostgresStore(parse(url), rules=RULES, labels=labels)
    try:
        yield store
    finally:
        store.close()


def found(sessions: Sessions, query: str) -> set[tuple[str, int]]:
    return {(hit.key, hit.n) for hit in sessions.search(query, limit=100_000)}


# ---- lists


@pytest.mark.parametrize("seed", range(8))
def test_pages_are_what_the_records_say_whatever_several_processes_do(url: str, seed: int) -> None:
    chance = random.Random(seed)
    with opened(url) as store, opened(url) as other, opened(url) as third:
        writers = [Sessions(one).with_internal_keys() for one in (store, other)]
        truth, index = Sessions(third), PostgresIndex(third)
        for _ in range(12):
            for _ in range(chance.randint(1, 8)):
                do_something(chance.choice(writers), chance)
            for wanted in queries(chance):
                assert index.page(wanted) == truth._page(wanted)
                walked = wanted._replace(limit=2, which="all", internal=True)
                while True:
                    page = index.page(walked)
                    assert page == truth._page(walked)
                    if page.cursor is None:
                        break
                    after = parse_cursor(page.cursor, order=walked.order, reverse=walked.reverse)
                    walked = walked._replace(after=after)


def test_texts_that_no_column_can_hold_find_nothing_or_what_they_are(url: str) -> None:
    with nacre.open(url) as sessions:
        sessions.set_meta("k", title="nu\0ll 100%", tags=["a\0b"], cwd="/wo\0rk")
        sessions.set_meta("\U0010ffff", title="last")
        sessions.set_meta("\ud7ff", title="before the surrogates")
        assert [info.key for info in sessions.page(text="nu\0ll").items] == ["k"]
        assert [info.key for info in sessions.page(text="0%").items] == ["k"]
        assert sessions.page(text="_").total == 0
        assert [info.key for info in sessions.page(tags=["a\0b"]).items] == ["k"]
        assert sessions.page(prefix="k\0").total == 0
        assert [info.key for info in sessions.page(prefix="\U0010ffff").items] == ["\U0010ffff"]
        assert [info.key for info in sessions.page(prefix="\ud7ff").items] == ["\ud7ff"]


def test_a_cursor_that_names_no_time_is_a_place_like_any_other(url: str) -> None:
    with nacre.open(url) as sessions:
        for key in KEYS[:3]:
            sessions.add_message(key, "user", "hello")
        page = sessions.page(limit=1)
        assert page.cursor is not None
        after = parse_cursor(page.cursor, order="updated", reverse=False)._replace(value="Zeno's time")
        with opened(url) as store:
            rest = PostgresIndex(store).page(Wanted(after=after))
        assert len(rest.items) == 3
        with pytest.raises(InvalidArgument):
            sessions.page(cursor=page.cursor, order="bytes")


def test_a_damaged_session_is_listed_with_what_is_left(url: str, schema: str, postgres: PostgresServer) -> None:
    with nacre.open(url) as sessions:
        for text in ("one", "two", "three"):
            sessions.add_message("k", "user", text)
        postgres.query(f"UPDATE {schema}.records SET line = 'rotten' WHERE n = 4")
        (info,) = sessions.page().items
        assert (info.messages, info.last) == (3, "two")
        sessions.repair("k")
        (info,) = sessions.page().items
        assert (info.messages, info.last) == (2, "two")


def test_restored_records_count_as_the_last_that_was_said(url: str, schema: str, postgres: PostgresServer) -> None:
    with nacre.open(url) as sessions, opened(url) as store:
        for text in ("one", "two", "three"):
            sessions.add_message("k", "user", text)
        # Whole records, which can be restored, where they do not belong.
        swapped = f"SELECT 5 - n AS n, line FROM {schema}.records WHERE n IN (2, 3)"
        postgres.query(f"UPDATE {schema}.records SET line = o.line FROM ({swapped}) AS o WHERE records.n = o.n")
        sessions.repair("k")
        assert len(sessions.restore("k").numbers) == 2
        sessions.add_message("other", "user", "later")
        assert sessions.page() == Sessions(store).page()
        postgres.query(f"UPDATE {schema}.sessions SET holes = false")
        assert [info.updated for info in sessions.page().items] == [
            info.updated for info in Sessions(store).page().items
        ]


def test_changes_of_how_many_there_are_become_one(url: str, schema: str, postgres: PostgresServer) -> None:
    with nacre.open(url) as sessions:
        for key in KEYS[:3]:
            sessions.add_message(key, "user", "hello")
        postgres.query(
            f"INSERT INTO {schema}.counts SELECT gen_random_uuid(), 0, false, change "
            "FROM generate_series(1, 600), unnest(ARRAY[-1, 1]) AS changes (change)"
        )
        assert [sessions.page(limit=1).total for _ in range(2)] == [3, 3]
        assert postgres.query(f"SELECT status, internal, change FROM {schema}.counts") == [["0", "f", "3"]]


# ---- what a list and an append cost


def fill(postgres: PostgresServer, schema: str, count: int) -> None:
    """Make many sessions like the one that is there."""
    postgres.query(
        f"""INSERT INTO {schema}.sessions (sid, uid, key, status, internal, minute, changed, bytes, began, updated, n,
            hd, mp, first, created, folded, live, state, cwd, pinned, tags,
            bytes_class, live_class)
        SELECT substr(encode(sha256(('talk:' || i)::bytea), 'hex'), 1, 32)::uuid, uid, 'talk:' || i, 0, false,
            floor(date_part('epoch', at.at) / 60), 0, size.bytes, at.t, at.t, n, hd, mp, first, at.t, folded,
            size.live, format('[2,%1$s,%1$s,0,0,2]', size.live),
            CASE WHEN i % 500 = 0 THEN '/work' ELSE '' END, i % 500 = 0,
            CASE WHEN i % 500 = 0 THEN '{{x}}'::text[] ELSE '{{}}' END,
            length(ltrim((size.bytes)::bit(64)::text, '0')), length(ltrim((size.live)::bit(64)::text, '0'))
        FROM {schema}.sessions, generate_series(1, {count}) AS i, LATERAL (
            SELECT at, to_char(at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') AS t
            FROM (SELECT now() - i * interval '7 seconds' AS at) AS past) AS at,
            LATERAL (SELECT (100 * 1.0005 ^ i)::bigint AS bytes, (1.0003 ^ i)::bigint AS live) AS size
        WHERE key = 'model';
        INSERT INTO {schema}.records SELECT s.sid, s.uid, n.n, 0, NULL, n.line
        FROM {schema}.sessions AS s, (SELECT n, line FROM {schema}.records) AS n WHERE key <> 'model';
        INSERT INTO {schema}.counts VALUES ('{"0" * 32}', 0, false, {count});
        """
    )
    postgres.query(f"VACUUM ANALYZE {schema}.sessions, {schema}.records")


def clients(postgres: PostgresServer) -> set[str]:
    """The processes of the server that serve stores."""
    return {row[0] for row in postgres.query("SELECT pid FROM pg_stat_activity WHERE application_name = 'nacre'")}


def scans(postgres: PostgresServer, schema: str, others: set[str]) -> list[list[str]]:
    """How often whole tables were read; every process of this test has ended, and so has said what it did."""
    wait_until(lambda: clients(postgres) <= others, "the end of connections", log=postgres.dump_log)
    return postgres.query(
        f"SELECT relname, seq_scan FROM pg_stat_user_tables WHERE schemaname = '{schema}' "
        "AND relname IN ('sessions', 'records') ORDER BY 1"
    )


def test_no_list_reads_all_sessions(url: str, schema: str, postgres: PostgresServer) -> None:
    others = clients(postgres)
    with nacre.open(url) as sessions:
        sessions.add_message("model", "user", "hello")
    fill(postgres, schema, 20_000)
    before = scans(postgres, schema, others)
    with nacre.open(url) as sessions:
        for order in ("updated", "created", "bytes", "messages", "key"):
            page = sessions.page(order=order, limit=50)
            assert (len(page.items), page.total) == (50, 20_001)
            assert len(sessions.page(order=order, limit=50, cursor=page.cursor).items) == 50
        assert sessions.page(prefix="talk:123", limit=50).total == 111
        assert sessions.page(tags=["x"], limit=50).total == 40
        assert sessions.page(pinned=True, limit=50).total == 40
        assert sessions.page(folder="/work", limit=50).total == 40
        assert sessions.page(which="archived", limit=50).total == 0
    assert scans(postgres, schema, others) == before


def test_no_search_within_a_prefix_reads_all_sessions(url: str, schema: str, postgres: PostgresServer) -> None:
    others = clients(postgres)
    with nacre.open(url) as sessions:
        sessions.add_message("model", "user", "hello")
    fill(postgres, schema, 20_000)
    # As if all had been taken in but for what comes now.
    postgres.query(f"UPDATE {schema}.sessions SET indexed = n")
    with nacre.open(url) as sessions:
        sessions.add_message("talk:123", "user", "a pearl")
        sessions.search("pearl")
    postgres.query(f"VACUUM ANALYZE {schema}.sessions")
    before = scans(postgres, schema, others)
    with nacre.open(url) as sessions:
        assert [hit.key for hit in sessions.search("pearl", prefix="talk:123")] == ["talk:123"]
        assert [hit.key for hit in sessions.search("pearl session:talk:123")] == ["talk:123"]
    assert scans(postgres, schema, others) == before


def test_an_append_writes_no_index(url: str, schema: str, postgres: PostgresServer) -> None:
    others = clients(postgres)
    with nacre.open(url) as sessions:
        for number in range(200):
            sessions.add_message("k", "user", f"message {number}")
    scans(postgres, schema, others)
    update = f"SELECT n_tup_upd, n_tup_hot_upd FROM pg_stat_user_tables WHERE relid = '{schema}.sessions'::regclass"
    [[all_updates, without_index]] = postgres.query(update)
    # Others are due when a minute is over, or a size or a number is twice what it was.
    assert int(all_updates) >= 199
    assert int(without_index) >= 150


# ---- taking in


def test_what_two_take_in_at_once_is_found_once(url: str) -> None:
    with nacre.open(url) as one, nacre.open(url) as other:
        for number in range(40):
            one.add_messages(f"talk:{number}", [Message(role="user", content=f"word {number}")] * 30)
        wanted = {(f"talk:{number}", n) for number in range(40) for n in range(2, 32)}
        results: list[set[tuple[str, int]]] = []
        threads = [threading.Thread(target=lambda s=s: results.append(found(s, "word"))) for s in (one, other, one)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert all(result <= wanted for result in results)
        assert found(other, "word") == wanted


@pytest.mark.parametrize("change", ["indexed = -9", "status = 3"], ids=["redacted", "erased"])
def test_what_is_erased_while_it_is_taken_in_is_not_kept(
    url: str, schema: str, postgres: PostgresServer, change: str
) -> None:
    with nacre.open(url) as sessions, psycopg.connect(postgres.url()) as eraser:
        sessions.add_message("k", "user", "word")
        # An erasure holds the row of the session; who takes it in has read the message and waits.
        eraser.execute(f"SELECT 1 FROM {schema}.sessions FOR UPDATE")
        search = threading.Thread(target=found, args=(sessions, "word"))
        search.start()
        waits = "SELECT 1 FROM pg_stat_activity WHERE application_name = 'nacre' AND wait_event_type = 'Lock'"
        wait_until(lambda: postgres.query(waits) == [["1"]], "a search that waits", log=postgres.dump_log)
        eraser.execute(f"UPDATE {schema}.sessions SET {change}".encode())
        eraser.commit()
        search.join()
        assert postgres.query(f"SELECT count(*) FROM {schema}.texts") == [["0"]]
        assert found(sessions, "word") == ({("k", 2)} if "indexed" in change else set())


def test_an_append_does_not_wait_for_a_search(url: str, schema: str, postgres: PostgresServer) -> None:
    with nacre.open(url) as sessions, psycopg.connect(postgres.url()) as blocker:
        sessions.add_message("k", "user", "word")
        # Somebody who takes in the same message has not come to its end.
        blocker.execute(
            f"INSERT INTO {schema}.texts (sid, uid, n, ts, role, tools, body, plain, words, stems, is_long) "
            f"SELECT sid, uid, 2, '', '', '{{}}', '', '', '', '', false FROM {schema}.sessions"
        )
        search = threading.Thread(target=found, args=(sessions, "word"))
        search.start()
        waits = "SELECT 1 FROM pg_stat_activity WHERE application_name = 'nacre' AND wait_event_type = 'Lock'"
        wait_until(lambda: postgres.query(waits) == [["1"]], "a search that waits", log=postgres.dump_log)
        sessions.add_message("k", "user", "more")
        blocker.rollback()
        search.join()
        assert found(sessions, "word") == {("k", 2)}
        assert found(sessions, "more") == {("k", 3)}


def test_a_redacted_message_leaves_nothing_to_search(url: str, schema: str, postgres: PostgresServer) -> None:
    with nacre.open(url) as sessions:
        sessions.add_message("k", "user", "the secret is xyzzy")
        sessions.fork("k", "branch")
        sessions.add_message("k", "user", "hello")
        assert found(sessions, "xyzzy") == {("k", 2)}
        sessions.redact("k", 2)
        assert found(sessions, "hello") == {("k", 3)}
        assert found(sessions, "xyzzy") == {("branch", 2)}
        sessions.redact("branch", 2)
        assert found(sessions, "xyzzy") == set()
        assert postgres.query(f"SELECT count(*) FROM {schema}.texts WHERE texts::text LIKE '%xyzzy%'") == [["0"]]


def test_what_becomes_visible_late_is_found(url: str, schema: str, postgres: PostgresServer) -> None:
    with nacre.open(url) as sessions:
        sessions.add_message("k", "user", "word")
        assert found(sessions, "word") == {("k", 2)}
        # As if a transaction that began nine minutes ago had been committed now.
        sessions.add_message("k", "user", "late word")
        postgres.query(f"UPDATE {schema}.sessions SET changed = changed - 9")
        assert found(sessions, "late") == {("k", 3)}
        assert postgres.query(f"SELECT minute > 0 FROM {schema}.indexing") == [["t"]]


def test_a_trashed_session_is_found_again_when_it_is_back(url: str) -> None:
    with nacre.open(url) as sessions:
        sessions.add_message("k", "user", "word")
        assert found(sessions, "word") == {("k", 2)}
        sessions.move_to_trash("k")
        assert found(sessions, "word") == set()
        (trashed,) = sessions.list_trash()
        sessions.restore_from_trash(trashed.id)
        assert found(sessions, "word") == {("k", 2)}


def test_long_sessions_and_large_messages_are_taken_in_by_parts(url: str) -> None:
    with nacre.open(url) as sessions:
        sessions.add_messages("k", [Message(role="user", content="word") for _ in range(450)])
        sessions.add_messages("large", [Message(role="user", content="word " + "hay " * 200_000) for _ in range(3)])
        assert len(found(sessions, "word")) == 453


def test_many_sessions_are_taken_in(url: str) -> None:
    with nacre.open(url) as sessions:
        for number in range(501):
            sessions.add_message(f"talk:{number}", "user", "word")
        assert len(found(sessions, "word")) == 501


def test_damaged_records_do_not_hide_the_others(url: str, schema: str, postgres: PostgresServer) -> None:
    with nacre.open(url) as sessions:
        for text in ("word one", "word two", "word three"):
            sessions.add_message("k", "user", text)
        postgres.query(f"UPDATE {schema}.records SET line = 'rotten' WHERE n IN (3, 4)")
        assert found(sessions, "word") == {("k", 2)}


# ---- parts of words


def test_parts_of_words_have_an_index_where_the_extension_is(postgres: PostgresServer) -> None:
    url = f"{postgres.create_database('trigrams')}?schema=nacre"
    names = "SELECT indexname FROM pg_indexes WHERE indexname LIKE '%_parts' ORDER BY 1"
    try:
        assert init(parse(url))
        assert postgres.query(names, database="trigrams") == []
        postgres.query(
            'CREATE SCHEMA "An Extension"; CREATE EXTENSION pg_trgm SCHEMA "An Extension"', database="trigrams"
        )
        assert upgrade(parse(url)) == (1, 1, True)
        assert postgres.query(names, database="trigrams") == [["sessions_parts"], ["texts_parts"]]
        with nacre.open(url) as sessions:
            sessions.add_message("k", "user", "concatenate")
            sessions.set_meta("k", title="Concatenation")
            assert found(sessions, "catena") == {("k", 2)}
            assert [info.key for info in sessions.page(text="catena").items] == ["k"]
    finally:
        postgres.query("DROP DATABASE trigrams WITH (FORCE)")


def test_the_labels_of_a_session_are_what_its_meta_says() -> None:
    meta = {"title": "A Title", "cwd": "/work", "pinned": 1, "tags": ["x", 7, "y"]}
    assert labels(meta, "Key") == ("key\x1fa title", "/work", True, ["x", "y"])
    assert labels({"title": 7, "cwd": None}, "Key") == ("key\x1f", "", False, [])
