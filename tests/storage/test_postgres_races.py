"""Two processes at one session of a database, and texts that it takes badly: found by attacking it."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg
import pytest

import nacre
from nacre.opening import Move
from nacre.records import Record, View
from nacre.storage.postgres.address import parse
from nacre.storage.postgres.connections import ConnectionLost, Failed, Request, Result, Rows, Statement, Value
from nacre.storage.postgres.view import PostgresView
from tests.postgres.opened import create, open_store, opened, said
from tests.postgres.programs import wait_until
from tests.postgres.servers import PostgresServer

_COLUMNS = "SELECT attname FROM pg_attribute WHERE attrelid = 'sessions'::regclass AND attnum > 0 ORDER BY attnum"


@pytest.fixture
def sessions(database: str) -> Iterator[nacre.Sessions]:
    with nacre.open(create(database)) as found:
        yield found


@pytest.fixture
def other(database: str) -> Iterator[psycopg.Connection]:
    """Another process in the middle of a transaction."""
    address = parse(database)
    with psycopg.connect(address.conninfo, options=f"-c search_path={address.schema}") as link:
        yield link


def _wait_for_lock(postgres: PostgresServer) -> None:
    waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
    wait_until(lambda: postgres.query(waiting) != [["0"]], "a statement that waits for a row")


def test_ids_that_differ_after_a_nul_are_two(sessions: nacre.Sessions) -> None:
    sessions.add_message("k", "user", "first")
    numbers = [sessions.add_message("k", "user", "x", id=id) for id in ("a", "a\0b", "a\0c", "a\\0b", "a\\", "a\0b")]
    assert numbers == [3, 4, 5, 6, 7, 4]
    assert sessions.add_message("new", "user", "x", id="\0") == sessions.add_message("new", "user", "x", id="\0") == 2


def test_what_was_restored_meanwhile_is_not_erased_from_the_trash(
    sessions: nacre.Sessions, other: psycopg.Connection, postgres: PostgresServer
) -> None:
    sessions.add_message("k", "user", "hello")
    sessions.move_to_trash("k")
    [trashed] = sessions.list_trash()
    other.execute("UPDATE sessions SET status = was, trash = '', removed = '' WHERE key = 'k'")
    with ThreadPoolExecutor() as pool:
        erasing = pool.submit(sessions.erase_from_trash, trashed.id)
        _wait_for_lock(postgres)
        other.commit()
        with pytest.raises(nacre.SessionNotFound):
            erasing.result()
    assert said(sessions, "k") == ["hello"]


def test_a_base_and_its_last_fork_that_are_deleted_at_once_leave_nothing(
    sessions: nacre.Sessions, other: psycopg.Connection, postgres: PostgresServer
) -> None:
    sessions.add_message("base", "user", "hello")
    sessions.fork("base", "fork")
    # The other has found the fork, and keeps what that shares.
    other.execute("UPDATE sessions SET status = 3, key = '' WHERE key = 'base'")
    with ThreadPoolExecutor() as pool:
        deleting = pool.submit(sessions.delete, "fork")
        _wait_for_lock(postgres)
        other.commit()
        deleting.result()
    counts = "SELECT (SELECT count(*) FROM sessions), (SELECT count(*) FROM records), (SELECT count(*) FROM forks)"
    assert other.execute(counts).fetchone() == (0, 0, 0)


def test_a_text_of_many_long_words_does_not_keep_others_from_being_found(sessions: nacre.Sessions) -> None:
    sessions.add_message("long", "user", " ".join(f"{n:0600x}" for n in range(2600)))
    sessions.add_message("k", "user", "a pearl")
    assert [hit.key for hit in sessions.search("pearl")] == ["k"]


def test_a_role_that_may_only_read_finds_what_others_have_taken_in(
    sessions: nacre.Sessions, database: str, postgres: PostgresServer, caplog: pytest.LogCaptureFixture
) -> None:
    sessions.add_message("k", "user", "a pearl")
    assert len(sessions.search("pearl")) == 1
    role, schema = f"reader_{uuid4().hex[:12]}", parse(database).schema
    postgres.query(f"CREATE ROLE {role} LOGIN; GRANT USAGE ON SCHEMA {schema} TO {role}")
    postgres.query(f"GRANT SELECT ON ALL TABLES IN SCHEMA {schema} TO {role}")
    try:
        with nacre.open(f"{postgres.url(user=role)}?schema={schema}") as reader:
            assert [hit.n for hit in reader.search("pearl")] == [2]
            assert "new messages may be missing" not in caplog.text
            sessions.add_message("k", "user", "another pearl")
            assert [hit.n for hit in reader.search("pearl")] == [2]
            assert "new messages may be missing" in caplog.text
            assert [info.key for info in reader.list()] == ["k"]
            with pytest.raises(nacre.StoreError, match="permission denied"):
                reader.add_message("k", "user", "no")
    finally:
        postgres.query(f"DROP OWNED BY {role}; DROP ROLE {role}")


def test_a_sealed_store_takes_no_document(sessions: nacre.Sessions, other: psycopg.Connection) -> None:
    sessions.document("cursor").write(b"1")
    other.execute("UPDATE store SET sealed_to = 'elsewhere'")
    other.commit()
    with pytest.raises(nacre.Refused, match="elsewhere"):
        sessions.document("cursor").write(b"2")
    assert sessions.document("cursor").read() == b"1"


def test_a_fork_that_is_made_while_its_origin_is_redacted_keeps_the_message(
    sessions: nacre.Sessions, database: str
) -> None:
    with nacre.open(database) as elsewhere, ThreadPoolExecutor() as pool:
        for turn in range(20):
            origin, fork, second = (f"{name}{turn}" for name in ("origin", "fork", "second"))
            n = sessions.add_message(origin, "user", "hello")
            sessions.fork(origin, fork)
            done: list[Future[Any]] = [
                pool.submit(sessions.redact, origin, n),
                pool.submit(elsewhere.fork, fork, second),
            ]
            for one in done:
                one.result()
            assert (said(sessions, origin), said(sessions, fork), said(sessions, second)) == (
                [""],
                ["hello"],
                ["hello"],
            )


def test_a_fork_is_found_by_what_was_redacted_in_its_origin_while_it_was_searched(
    sessions: nacre.Sessions, database: str
) -> None:
    with nacre.open(database) as elsewhere, ThreadPoolExecutor() as pool:
        for turn in range(10):
            n = sessions.add_message(f"origin{turn}", "user", f"pearl{turn}")
            sessions.fork(f"origin{turn}", f"fork{turn}")
            done: list[Future[Any]] = [
                pool.submit(sessions.redact, f"origin{turn}", n),
                pool.submit(elsewhere.search, "anything"),
            ]
            for one in done:
                one.result()
        assert [len(sessions.search(f"pearl{turn}")) for turn in range(10)] == [1] * 10


@pytest.mark.parametrize("erase", ["delete", "erase_from_trash"])
def test_what_was_redacted_in_a_fork_goes_with_its_origin(
    sessions: nacre.Sessions, other: psycopg.Connection, erase: str
) -> None:
    n = sessions.add_message("origin", "user", "the secret words")
    sessions.fork("origin", "fork")
    sessions.redact("fork", n)
    if erase == "delete":
        sessions.delete("origin")
    else:
        sessions.move_to_trash("origin")
        sessions.erase_from_trash(sessions.list_trash()[0].id)
    left = other.execute("SELECT count(*) FROM records WHERE line LIKE '%secret%'").fetchone()
    assert (left, said(sessions, "fork")) == ((0,), [""])


def test_what_was_set_aside_goes_from_the_trash_with_its_session(
    sessions: nacre.Sessions, other: psycopg.Connection
) -> None:
    sessions.add_message("k", "user", "the secret words")
    sessions.add_message("k", "user", "more")
    other.execute("UPDATE records SET line = replace(line, 'secret', 'secreT') WHERE n = 2")
    other.commit()
    assert said(sessions, "k") == ["more"]
    sessions.move_to_trash("k")
    sessions.erase_from_trash(sessions.list_trash()[0].id)
    assert other.execute("SELECT count(*) FROM quarantine").fetchone() == (0,)


def test_a_list_does_not_find_a_title_that_was_erased(sessions: nacre.Sessions) -> None:
    n = sessions.add_message("k", "user", "the secret words")
    sessions.set_meta("k", title="the secret words")
    assert sessions.page(text="secret").total == 1
    sessions.redact("k", n)
    assert sessions.page(text="secret").total == 0


def test_long_tags_are_kept_and_found(sessions: nacre.Sessions) -> None:
    tag = "t" * 18_000
    sessions.set_meta("k", tags=[tag])
    assert [info.tags for info in sessions.page(tags=[tag]).items] == [(tag,)]


@pytest.mark.parametrize("name", ["\0abc", "\ud800", ""])
def test_a_name_that_nothing_can_have_is_not_in_the_trash(sessions: nacre.Sessions, name: str) -> None:
    sessions.add_message("k", "user", "hello")
    for call in (sessions.erase_from_trash, sessions.restore_from_trash):
        with pytest.raises(nacre.SessionNotFound):
            call(name)
    assert said(sessions, "k") == ["hello"]


def test_a_lease_that_could_not_store_its_fence_is_free(sessions: nacre.Sessions, other: psycopg.Connection) -> None:
    sessions.add_message("k", "user", "hello")
    other.execute("UPDATE store SET sealed_to = 'elsewhere'")
    other.execute("UPDATE sessions SET sealed = true")
    other.commit()
    with pytest.raises(nacre.Refused):
        sessions.hold("k").take_over()
    assert sessions.hold("k").holder() == 0


def test_a_prefix_with_nul_is_that_of_no_session(sessions: nacre.Sessions) -> None:
    sessions.add_message("k", "user", "a pearl")
    assert sessions.search("pearl", prefix="\0") == []


def test_a_page_after_a_time_that_no_clock_shows_is_one(sessions: nacre.Sessions) -> None:
    sessions.add_message("k", "user", "a pearl")
    place = ["updated", False, "9999-12-31T23:59:59.999999Z", "k", ""]
    cursor = base64.urlsafe_b64encode(json.dumps(place).encode()).decode()
    assert [one.key for one in sessions.page(cursor=cursor).items] == ["k"]


def test_an_id_that_was_restored_from_the_trash_is_known_to_one_who_has_the_session_open(
    database: str, sessions: nacre.Sessions
) -> None:
    sessions.add_message("k", "user", "once", id="i")
    sessions.archive("k")
    [generation] = sessions.read_generations("k", lambda view: view.uid)
    sessions.move_to_trash("k", generation=generation)
    with nacre.open(database) as others:
        number = others.add_message("k", "user", "new")
        sessions.restore_from_trash(sessions.list_trash()[0].id)
        assert others.add_message("k", "user", "once", id="i") == 2
        assert others.add_message("k", "user", "more") == number + 1
        assert said(others, "k") == ["once", "new", "more"]


def test_another_content_under_the_id_of_a_message_that_was_erased_in_the_origin_is_refused(
    sessions: nacre.Sessions,
) -> None:
    n = sessions.add_message("k", "user", "hello", id="i")
    sessions.fork("k", "fork")
    sessions.redact("k", n)
    assert sessions.add_message("fork", "user", "hello", id="i") == n
    with pytest.raises(nacre.Conflict):
        sessions.add_message("fork", "user", "other", id="i")
    assert said(sessions, "fork") == ["hello"]


def test_a_payload_that_two_records_had_goes_with_the_last_of_them(
    sessions: nacre.Sessions, other: psycopg.Connection
) -> None:
    large = "pearl" * 60_000
    n = sessions.add_message("k", "user", large)
    sessions.add_message("k", "user", large)
    sessions.fork("k", "fork", at=n)
    sessions.redact("k", n)
    sessions.delete("k")
    assert said(sessions, "fork") == [large]
    sessions.redact("fork", n)
    assert other.execute("SELECT count(*) FROM blobs").fetchone() == (0,)


def content_of(view: View, record: Record) -> str:
    message = view.whole(record).m
    return str(message.content) if message is not None else ""


def test_who_reads_a_fork_while_its_origin_is_redacted_sees_what_it_has(
    database: str, sessions: nacre.Sessions
) -> None:
    texts = ["hello", "pearl" * 60_000]
    numbers = [sessions.add_message("k", "user", text) for text in texts]
    sessions.fork("k", "fork")
    with nacre.open(database) as others:

        def read(view: View) -> list[str]:
            # Its row is known by now, and none of its records.
            for n in numbers:
                sessions.redact("k", n)
            return [content_of(view, record) for record in view.all() if record.m is not None]

        assert others.read("fork", read) == texts


def test_a_payload_that_is_given_to_a_fork_while_it_is_read_is_found(database: str, sessions: nacre.Sessions) -> None:
    large = "pearl" * 60_000
    n = sessions.add_message("k", "user", large)
    sessions.fork("k", "fork")
    with nacre.open(database) as others:

        def read(view: View) -> list[str]:
            assert isinstance(view, PostgresView)
            records, look = [record for record in view.all() if record.m is not None], view._read

            def look_and_erase(statement: Statement, *values: Value) -> Rows:
                found = look(statement, *values)
                view._read = look
                sessions.redact("k", n)
                return found

            view._read = look_and_erase
            return [content_of(view, record) for record in records]

        assert others.read("fork", read) == [large]


@pytest.mark.parametrize("call", ["fork", "unarchive", "restore"])
def test_a_key_that_another_takes_meanwhile_is_a_conflict(
    sessions: nacre.Sessions, other: psycopg.Connection, postgres: PostgresServer, call: str
) -> None:
    sessions.add_message("k", "user", "hello")
    sessions.add_message("new", "user", "there")
    calls = {"fork": lambda: sessions.fork("k", "new"), "unarchive": lambda: sessions.unarchive("new")}
    if call == "restore":
        sessions.move_to_trash("new")
        id = sessions.list_trash()[0].id
        calls["restore"] = lambda: sessions.restore_from_trash(id)
    else:
        sessions.archive("new")
    # The other begins it, as a copy of a row, and is not yet done.
    columns = [name for (name,) in other.execute(_COLUMNS).fetchall() if name not in ("uid", "status", "trash")]
    copied = ", ".join(columns)
    other.execute(
        f"INSERT INTO sessions (uid, status, trash, {copied}) "  # noqa: S608 - the columns of the table
        f"SELECT gen_random_uuid(), 0, '', {copied} FROM sessions WHERE key = 'new'".encode()
    )
    with ThreadPoolExecutor() as pool:
        done = pool.submit(calls[call])
        _wait_for_lock(postgres)
        other.commit()
        with pytest.raises(nacre.Conflict):
            done.result()


def test_a_lock_that_another_keeps_for_too_long_is_a_refusal(
    database: str, sessions: nacre.Sessions, other: psycopg.Connection
) -> None:
    sessions.add_message("k", "user", "hello")
    other.execute("SELECT 1 FROM sessions FOR UPDATE")
    with opened(database, patience=1, timeout=6) as others, pytest.raises(nacre.Refused, match="lock timeout"):
        others.delete("k")
    other.rollback()
    assert said(sessions, "k") == ["hello"]


@pytest.mark.parametrize("then", ["fork", "delete"])
def test_a_fork_that_said_a_large_text_again_gives_it_to_its_own_forks(sessions: nacre.Sessions, then: str) -> None:
    large = "pearl" * 60_000
    first = sessions.add_message("k", "user", large)
    last = sessions.add_message("k", "user", "end")
    sessions.fork("k", "fork")
    sessions.add_message("fork", "user", large)
    sessions.redact("k", first)
    sessions.fork("fork", "next", at=last)
    if then == "delete":
        sessions.delete("fork")
    assert said(sessions, "next") == [large, "end"]
    assert sessions.verify().ok


def test_a_release_that_arrives_late_meets_another_holder(database: str, sessions: nacre.Sessions) -> None:
    sessions.add_message("k", "user", "hello")
    store = open_store(database)
    late: list[Sequence[Request]] = []
    send, append = store.connections.send, store.leases.append

    def hold_up(requests: Sequence[Request]) -> list[Result | Failed]:
        if requests[0][0].name == b"release":
            late.append(requests)
            raise ConnectionLost("cut")
        return send(requests)

    def refuse(*_: object) -> int:
        raise nacre.Refused("nothing was stored")

    lease = store.hold("k")
    store.connections.send, store.leases.append = hold_up, refuse  # type: ignore[method-assign]
    with pytest.raises(nacre.Refused):
        lease.take_over()
    store.connections.send, store.leases.append = send, append  # type: ignore[method-assign]
    lease.take_over()
    send(late[0])
    with pytest.raises(nacre.SessionBusy):
        sessions.hold("k").take()
    store.close()


# ---- copies


def copy(source: str, target: str) -> None:
    with Move(source, target) as move:
        assert all(outcome.ok for outcome in move.copy())


def test_an_id_counts_once_although_the_trash_has_it_too(database: str, tmp_path: Path) -> None:
    with nacre.open(tmp_path) as sessions:
        for _ in range(2):
            sessions.add_message("k", "user", "hello", id="i")
            sessions.move_to_trash("k")
        oldest = min(sessions.list_trash(), key=lambda one: one.generations)
        sessions.restore_from_trash(oldest.id)
    copy(str(tmp_path), create(database))
    with nacre.open(database) as sessions:
        assert sessions.add_message("k", "user", "hello", id="i") == 2
        assert said(sessions, "k") == ["hello"]


@pytest.mark.parametrize("act", ["delete", "archive"])
def test_an_id_from_before_a_fork_stays_known_when_its_origin_is_copied_again(
    sessions: nacre.Sessions, database: str, tmp_path: Path, act: str
) -> None:
    sessions.add_message("k", "user", "hello", id="i")
    sessions.fork("k", "fork")
    getattr(sessions, act)("k")
    with nacre.open(tmp_path) as others:
        others.add_message("k", "user", "hello", id="i")
    copy(str(tmp_path), database)
    assert sessions.add_message("fork", "user", "hello", id="i") == 2
    assert said(sessions, "fork") == ["hello"]


def test_an_id_of_a_generation_that_is_copied_beside_another_is_known(
    sessions: nacre.Sessions, database: str, tmp_path: Path
) -> None:
    with nacre.open(tmp_path) as others:
        others.add_message("k", "user", "hello", id="i")
        others.archive("k")
    sessions.add_message("k", "user", "own")
    copy(str(tmp_path), database)
    assert sessions.add_message("k", "user", "hello", id="i") == 2
    assert said(sessions, "k") == ["hello", "own"]


@pytest.mark.parametrize("text", ["pearl", "pearl" * 60_000])
def test_what_was_erased_in_a_copy_is_erased_where_only_its_fork_has_it(
    sessions: nacre.Sessions, database: str, other: psycopg.Connection, tmp_path: Path, text: str
) -> None:
    n = sessions.add_message("k", "user", text)
    sessions.fork("k", "fork")
    sessions.delete("k")
    copy(database, str(tmp_path))
    with nacre.open(tmp_path) as others:
        others.redact("fork", n)
    copy(str(tmp_path), database)
    left = "SELECT (SELECT count(*) FROM records WHERE strpos(line, 'pearl') > 0), (SELECT count(*) FROM blobs)"
    assert other.execute(left).fetchone() == (0, 0)
